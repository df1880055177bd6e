"""Compare CorrLog, boosted rules and the smooth link with the baselines of the multi-label literature.

The baselines are binary relevance, ensembles of classifier chains, RAkEL and ML-kNN. RAkEL and ML-kNN are
implemented here, since RAkEL of scikit-multilearn-ng 0.0.8 does not accept the sparse arrays of the present
scipy. All baselines except ML-kNN use the logistic regression of scikit-learn with C=1. Its features are
standardized if X has many nonzero values, except in RAkEL, which had lower losses without. Our classifiers
have default parameters. "CorrLog, independent" is CorrLog without couplings.

The training and test rows of a set are joined and divided into five random folds, of which ``--folds`` are
measured. Each row has means over these folds: the processor seconds of a fit and the six measures of the
CorrLog paper, in which an empty label set counts 0. One thread is used.
"""

import argparse
import sys
import warnings
from time import process_time

import numpy as np
import record
from corrlog_cv import SETS
from corrlog_data import MEASURES, everything, folds, head, measures, row
from scipy.linalg import LinAlgWarning
from scipy.sparse import csr_array
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import ClassifierChain
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, StandardScaler

import manylabel as ml

# With more than this share of nonzero values, X is a dense array, and its features are standardized.
DENSE = 0.3
N_ORDERS = 10


def scaler(X):
    return StandardScaler() if isinstance(X, np.ndarray) else MaxAbsScaler()


def logistic(X, n_classes=2):
    """Return an unfitted logistic regression for features like X, with the fastest solver of scikit-learn."""
    of_sparse = "liblinear" if n_classes == 2 else "lbfgs"
    solver = "newton-cholesky" if isinstance(X, np.ndarray) else of_sparse
    return LogisticRegression(solver=solver, max_iter=1000)


class BinaryRelevance:
    """One logistic regression for each label. A label with one value in the training rows is constant."""

    def fit(self, X, Y):
        self.models = [
            make_pipeline(scaler(X), logistic(X)).fit(X, y) if 0 < y.sum() < len(y) else float(y.mean())
            for y in Y.T
        ]
        return self

    def probabilities(self, X):
        n = X.shape[0]
        return np.column_stack(
            [np.full(n, m) if isinstance(m, float) else m.predict_proba(X)[:, 1] for m in self.models]
        )

    def predict(self, X):
        return self.probabilities(X) > 0.5


class Chains:
    """The mean probabilities of classifier chains with random orders (Read et al., Machine Learning 2011)."""

    def fit(self, X, Y):
        self.varying = np.flatnonzero((Y.sum(axis=0) > 0) & (Y.sum(axis=0) < len(Y)))
        self.always, self.n_labels = Y.all(axis=0), Y.shape[1]
        # The scaler must not see the labels that the chain appends to the features.
        self.scaler, base = scaler(X), logistic(X)
        X, Y = self.scaler.fit_transform(X), Y[:, self.varying]
        self.models = [
            ClassifierChain(base, order="random", random_state=seed).fit(X, Y) for seed in range(N_ORDERS)
        ]
        return self

    def predict(self, X):
        X = self.scaler.transform(X)
        found = np.tile(self.always, (X.shape[0], 1))
        found[:, self.varying] = np.mean([model.predict_proba(X) for model in self.models], axis=0) > 0.5
        return found


class RAkEL:
    """Random sets of three labels, each with one class per combination that occurs (Tsoumakas, Katakis and
    Vlahavas, TKDE 2011). There are twice as many sets as labels, and a label needs half of the votes.
    """

    def fit(self, X, Y):
        rng, c = np.random.default_rng(0), Y.shape[1]
        self.n_labels, self.models = c, []
        for _ in range(2 * c):
            labels = rng.choice(c, min(3, c), replace=False)
            combinations, classes = np.unique(Y[:, labels], axis=0, return_inverse=True)
            n = len(combinations)
            model = logistic(X, n).fit(X, classes.ravel()) if n > 1 else None
            self.models.append((labels, combinations, model))
        return self

    def predict(self, X):
        votes, counts = np.zeros((X.shape[0], self.n_labels)), np.zeros(self.n_labels)
        for labels, combinations, model in self.models:
            classes = np.zeros(X.shape[0], dtype=int) if model is None else model.predict(X)
            votes[:, labels] += combinations[classes]
            counts[labels] += 1
        return votes > counts / 2


class MLkNN:
    """Bayes' rule for the number of neighbours with a label (Zhang and Zhou, Pattern Recognition 2007), with
    10 neighbours and Laplace smoothing.
    """

    def fit(self, X, Y, k=10):
        self.k, self.Y, n = k, Y, len(Y)
        self.neighbours = NearestNeighbors(n_neighbors=k).fit(X)
        counts = Y[self.neighbours.kneighbors(return_distance=False)].sum(axis=1)
        self.prior = (1 + Y.sum(axis=0)) / (2 + n)
        self.likelihood = np.empty((2, k + 1, Y.shape[1]))
        for value in (0, 1):
            histogram = np.array([((counts == j) & (value == Y)).sum(axis=0) for j in range(k + 1)])
            self.likelihood[value] = (1 + histogram) / (k + 1 + histogram.sum(axis=0))
        return self

    def predict(self, X):
        counts = self.Y[self.neighbours.kneighbors(X, return_distance=False)].sum(axis=1)
        without, having = self.likelihood[:, counts, np.arange(self.Y.shape[1])]
        return self.prior * having > (1 - self.prior) * without


SYSTEMS = {
    "binary relevance": BinaryRelevance,
    "classifier chains, 10 orders": Chains,
    "RAkEL": RAkEL,
    "ML-kNN": MLkNN,
    "CorrLog, independent": lambda: ml.CorrLogClassifier(l2_pairs=np.inf),
    "CorrLog": ml.CorrLogClassifier,
    "boosted rules": lambda: ml.BoostedRulesClassifier(random_state=0),
    "smooth link": lambda: ml.SmoothLinkClassifier(random_state=0),
}
COLUMNS = ["set", "system", "folds", "fit CPU s", *MEASURES]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", default=SETS, help="folders of MANYLABEL_DATA")
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=SYSTEMS)
    parser.add_argument("--folds", type=int, default=5)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    # If a Newton step fails, scikit-learn uses another solver.
    warnings.simplefilter("ignore", LinAlgWarning)
    head(*COLUMNS)
    for name in arguments.sets:
        X, Y = everything(name)
        X = X.toarray() if X.nnz > DENSE * np.prod(X.shape) else X
        for system in arguments.systems:
            results = [one(SYSTEMS[system], X, Y, test) for test in folds(len(Y), 0)[: arguments.folds]]
            seconds, *found = np.mean(results, axis=0)
            cells = row(name, system, str(len(results)), f"{seconds:.2f}", *found)
            record.keep("baselines", COLUMNS, cells, packages=[(sys.executable, "scikit-learn")])


def one(make, X, Y, test):
    """Return the processor seconds of a fit and the measures of the rows of a fold."""
    train = np.setdiff1d(np.arange(len(Y)), test)
    start = process_time()
    model = make().fit(X[train], Y[train])
    seconds = process_time() - start
    return [seconds, *measures(Y[test], csr_array(model.predict(X[test])).toarray())]


if __name__ == "__main__":
    main()
