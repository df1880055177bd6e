"""Compare every classifier with the usual baselines on fourteen data sets, all with default parameters.

Each system is fitted to the same arrays, and only the seed is set. Dense sets are passed as ndarrays, and
sparse sets as CSR matrices. If a set comes with a split, the systems are measured on this split. Otherwise
they are measured on three random splits that hold out a third of the rows. Every fit appends one JSON line to
`--results`. The tables are made from these lines. ``--table`` makes the tables again without a fit.

The baselines are ``OneVsRestClassifier(LogisticRegression(max_iter=300))`` (LR), a random forest, XGBoost,
and the mean of ten classifier chains of logistic regressions. XGBoost fits one model per label, and is used
only if `xgboost` is installed.
"""

import argparse
import json
import os
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import record
from scipy.sparse import csr_array, vstack
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import ClassifierChain
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

import manylabel as ml

DENSE = ["yeast", "scene", "emotions", "birds", "flags", "image"]
SPARSE = ["enron", "medical", "genbase", "bibtex", "stackex-chemistry", "reuters-k500"]
SPARSE += ["yahoo-science", "yahoo-reference"]  # word counts with 37,000 and 40,000 features
SEEDS = 3  # number of random splits of a set that comes without a split
CHAINS = 10
# A cell is good if it is at most this many points below LR. The sizes of label sets must be within these
# multiples of the true size.
BEHIND = 3.0
SIZES = (0.6, 1.5)


class Chains:
    """Classifier chains in random orders (Read et al., 2011). Their mean probability is compared with the
    threshold 0.5.
    """

    def __init__(self, seed):
        base = LogisticRegression(max_iter=300)
        self.chains = [ClassifierChain(base, order="random", random_state=seed + i) for i in range(CHAINS)]

    def fit(self, X, Y):
        self.varying = np.flatnonzero((Y.min(axis=0) < 1) & (Y.max(axis=0) > 0))
        self.constant = Y.min(axis=0).astype(float)
        for chain in self.chains:
            chain.fit(X, Y[:, self.varying])
        return self

    def predict_proba(self, X):
        probabilities = np.tile(self.constant, (X.shape[0], 1))
        probabilities[:, self.varying] = np.mean([chain.predict_proba(X) for chain in self.chains], axis=0)
        return probabilities

    def predict(self, X):
        return self.predict_proba(X) > 0.5


class OfLabels:
    """A separate model for every label that has both classes in the training rows."""

    def __init__(self, make):
        self.make = make

    def fit(self, X, Y):
        self.models = [self.make().fit(X, y) if 0 < y.sum() < len(y) else float(y[0]) for y in Y.T]
        return self

    def predict_proba(self, X):
        columns = [
            np.full(X.shape[0], model) if isinstance(model, float) else model.predict_proba(X)[:, 1]
            for model in self.models
        ]
        return np.column_stack(columns)

    def predict(self, X):
        return self.predict_proba(X) > 0.5


def xgboost(seed, **params):
    from xgboost import XGBClassifier

    return OfLabels(lambda: XGBClassifier(random_state=seed, n_jobs=2, **params))


SYSTEMS = {
    "LR": lambda seed: OneVsRestClassifier(LogisticRegression(max_iter=300), n_jobs=2),
    "forest": lambda seed: RandomForestClassifier(random_state=seed, n_jobs=2),
    "XGBoost": xgboost,
    "chains": Chains,
    "DiSMEC": lambda seed: ml.DiSMECClassifier(random_state=seed, n_jobs=2),
    "trees": lambda seed: ml.LabelTreeClassifier(random_state=seed, n_jobs=2),
    "LEML": lambda seed: ml.LEMLClassifier(random_state=seed, n_jobs=2),
    "PD-Sparse": lambda seed: ml.PDSparseClassifier(random_state=seed, n_jobs=2),
    "blocks": lambda seed: ml.BlockPartitionClassifier(random_state=seed, n_jobs=2),
    "CBMLC": lambda seed: ml.CBMLCClassifier(random_state=seed, n_jobs=2),
    "LPSR": lambda seed: ml.LPSRClassifier(random_state=seed, n_jobs=2),
    "link": lambda seed: ml.SmoothLinkClassifier(random_state=seed, n_jobs=2),
    "CorrLog": lambda seed: ml.CorrLogClassifier(n_jobs=2),
    "rules": lambda seed: ml.BoostedRulesClassifier(random_state=seed, n_jobs=2),
    "CorrLog, unit rows": lambda seed: make_pipeline(Normalizer(), SYSTEMS["CorrLog"](seed)),
}
BASELINES = ("LR", "forest", "XGBoost", "chains")
MEASURES = ["P@1", "example-F1", "Hamming %", "subset 0/1 %", "labels a row", "fit s"]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", default=DENSE + SPARSE, help="folders of MANYLABEL_DATA")
    parser.add_argument("--dense", nargs="*", default=DENSE, help="data sets that are passed as dense arrays")
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=SYSTEMS)
    parser.add_argument("--splits", type=int, metavar="N", help="use N random splits of every data set")
    parser.add_argument("--table", action="store_true", help="only print the tables of the records")
    args = parser.parse_args()
    if not args.table:
        root = os.environ.get("MANYLABEL_DATA")
        if not root:
            sys.exit("MANYLABEL_DATA must be the path of the folder of data sets")
        for name in args.sets:
            for split, parts in enumerate(splits(Path(root) / name, name in args.dense, args.splits)):
                for system in args.systems:
                    line = {"set": name, "split": split, "system": system}
                    line |= {"command": record.command(), **measured(system, split, *parts)}
                    print(json.dumps(line), file=sys.stderr, flush=True)
                    record.append("defaults", record.about(**record.busy(), **line))
    print_tables()


def splits(folder, dense, n_random=None):
    """Return the split that comes with a set, or random splits."""
    has_split = (folder / "train.txt.gz").is_file()
    names = ("train", "test") if has_split else ("all",)
    pairs = [[ml.datasets.load_xc(folder / f"{part}.txt.gz") for part in names]]
    if n_random or not has_split:
        X, Y = (csr_array(vstack(parts, format="csr")) for parts in zip(*pairs[0], strict=True))
        pairs = []
        for seed in range(n_random or SEEDS):
            order = np.random.default_rng(seed).permutation(X.shape[0])
            test, train = np.sort(order[: X.shape[0] // 3]), np.sort(order[X.shape[0] // 3 :])
            pairs.append([(X[train], Y[train]), (X[test], Y[test])])
    for (X, Y), (X_test, Y_test) in pairs:
        if dense:
            # Arrays are in double precision, like most arrays that users have. In single precision, LR does
            # not converge on unscaled features. Its P@1 on flags is then 75, 82 or 83 % after 100, 300 or
            # 1,000 iterations.
            X, X_test = X.toarray().astype(np.float64), X_test.toarray().astype(np.float64)
        yield X, csr_array(Y).toarray().astype(int), X_test, csr_array(Y_test).toarray().astype(int)


def measured(system, seed, X, Y, X_test, Y_test):
    """Fit with default parameters, predict, and compute every measure. If this fails, return the reason."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = SYSTEMS[system](seed)
            start = time.perf_counter()
            model.fit(X, Y)
            fitted = time.perf_counter()
            named = np.asarray(model.predict(X_test)) > 0
            done = time.perf_counter()
            best = best_labels(model, X_test)
    except (ImportError, ValueError, MemoryError) as error:
        return {"failed": f"{type(error).__name__}: {error}"[:200], "figures": {}}
    known = best >= 0
    figures = {
        "P@1": 100 * float((Y_test[np.arange(len(Y_test)), best] * known).mean()),
        "example-F1": 100 * float(f1_score(Y_test, named, average="samples", zero_division=0)),
        "Hamming %": 100 * float((named != Y_test).mean()),
        "subset 0/1 %": 100 * float((named != Y_test).any(axis=1).mean()),
        "labels a row": float(named.sum(axis=1).mean()),
        "true labels": float(Y_test.sum(axis=1).mean()),
        "fit s": fitted - start,
        "predict s": done - fitted,
    }
    return {"figures": figures}


def best_labels(model, X):
    """Return the best label of every row, or -1 if no label is ranked."""
    if hasattr(model, "predict_topk"):
        top = model.predict_topk(X, k=1)
        best = np.full(top.shape[0], -1)
        best[np.diff(top.indptr) > 0] = top.indices
        return best
    # Probabilities are used, since the decision function of a constant label is 0, which would rank it first.
    scores = model.predict_proba(X)
    if isinstance(scores, list):
        scores = np.column_stack([each[:, 1] if each.shape[1] > 1 else 0 * each[:, 0] for each in scores])
    return np.argmax(scores, axis=1)


def print_tables():
    """Print one table per measure. Also print how many cells are worse than LR, and how many have label sets
    of another size.
    """
    cells = {}
    for line in record.read("defaults"):
        cells.setdefault((line["set"], line["system"]), {})[line["split"]] = line  # keeps the newest line
    sets = list(dict.fromkeys(name for name, _ in cells))
    systems = [system for system in SYSTEMS if any(of == system for _, of in cells)]

    def mean(name, system, measure):
        lines = [line["figures"] for line in cells.get((name, system), {}).values()]
        values = [figures[measure] for figures in lines if measure in figures]
        return np.mean(values) if values else np.nan

    for measure in MEASURES:
        print(
            f"\n{measure}\n\n| set | {'true | ' if measure == 'labels a row' else ''}{' | '.join(systems)} |"
        )
        print("|---" + "|---:" * (len(systems) + (measure == "labels a row")) + "|")
        for name in sets:
            true = [f"{mean(name, systems[0], 'true labels'):.2f}"] if measure == "labels a row" else []
            values = [mean(name, system, measure) for system in systems]
            print("| " + " | ".join([name, *true, *(f"{value:.4g}" for value in values)]) + " |")
    ours = [system for system in systems if system not in BASELINES]
    for measure in ("P@1", "example-F1"):
        lost = {
            (system, name): mean(name, system, measure) - mean(name, "LR", measure)
            for system in ours
            for name in sets
        }
        behind = [f"{system} {name} {by:+.1f}" for (system, name), by in lost.items() if not by >= -BEHIND]
        print(
            f"\n{measure}: {len(behind)} of {len(lost)} cells more than {BEHIND:g} points under LR's:",
            behind,
        )
    sizes = {
        (system, name): mean(name, system, "labels a row") / mean(name, system, "true labels")
        for system in ours
        for name in sets
    }
    off = [f"{s} {n} {size:.2f}" for (s, n), size in sizes.items() if not SIZES[0] <= size <= SIZES[1]]
    print(f"\nlabels a row over the true number: {len(off)} of {len(sizes)} outside of {SIZES}: {off}")
    for (name, system), lines in cells.items():
        for line in lines.values():
            if "failed" in line:
                print(f"\n{system} on {name}: {line['failed']}")


if __name__ == "__main__":
    main()
