"""Measure how well labels are ranked from a few features: label embeddings, random codes or principal
components.

The link is linear. ``logistic`` fits `SmoothLinkClassifier` without cosine features, so that each label has a
logistic regression on the k features. ``least-squares`` regresses the labels on the features of `Rembrandt`
in closed form. If the features are our label embeddings, this is exactly reduced-rank regression.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import record
import scipy.sparse as sp
from compare import KS, data_folder, heading, hold_threads
from sklearn.preprocessing import normalize

import manylabel
from manylabel.datasets import load_xc
from manylabel.metrics import precision_at_k
from rules import markdown

SETS = ["reuters-21578", "eurlex57k"]
EMBEDDINGS = ["rembrandt", "gaussian", "pca"]
RIDGE = 1e-6  # ridge penalty as a multiple of the mean diagonal entry; used by least squares only
BLOCK = 4096  # number of rows that are scored at a time
COLUMNS = ["set", "embedding", "k", "link", "fit s", *(f"P@{k}" for k in KS)]


def main():
    args = arguments()
    hold_threads(args.threads)
    print(heading([(sys.executable, "manylabel")]), "", sep="\n", flush=True)
    rows = []
    for name in args.sets:
        train, test = (read(args.data / name / f"{part}.txt.gz") for part in ("train", "test"))
        sizes = f"{name}, {train[0].shape[0]:,} x {train[0].shape[1]:,}, {train[1].shape[1]:,} labels"
        n_labels = len(np.unique(train[1].indices))
        # An embedding of the labels has at most `n_labels` dimensions.
        for k in (k for k in args.components if k <= n_labels):
            for embedding in args.embeddings:
                for link in args.links:
                    print(f"{name}, k={k}: {embedding}, {link} ...", file=sys.stderr, flush=True)
                    start = time.perf_counter()
                    top_of = LINKS[link](args, embedding, k).fit(*train).predict_topk
                    seconds = time.perf_counter() - start
                    precision = precision_at_k(test[1], top_of(test[0], max(KS)), k=KS)
                    row = [sizes, embedding, str(k), link, f"{seconds:.3g}"]
                    rows.append([*row, *(f"{100 * p:.2f}" for p in precision)])
                    title = f"{embedding}, {link} link, k = {k}"
                    record.keep(
                        "link_embeddings", ["set", "system", *COLUMNS[4:]], [sizes, title, *rows[-1][4:]]
                    )
    print(markdown(COLUMNS, rows, n_left=2))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", default=SETS, help="folders of MANYLABEL_DATA")
    parser.add_argument("--components", nargs="+", type=int, default=[5, 10, 25, 50, 100])
    parser.add_argument("--embeddings", nargs="+", default=EMBEDDINGS, choices=EMBEDDINGS)
    parser.add_argument("--links", nargs="+", default=list(LINKS), choices=LINKS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    args.data = data_folder(parser, args.sets)
    return args


def read(path: Path) -> tuple[sp.csr_array, sp.csr_array]:
    X, Y = load_xc(path)
    return normalize(X), Y


def logistic(args: argparse.Namespace, embedding: str, k: int):
    return manylabel.SmoothLinkClassifier(
        n_components=k,
        kernel="linear",
        embedding=embedding,
        loss="logistic",
        n_jobs=args.threads,
        random_state=args.seed,
    )


class LeastSquares:
    """Scores [XW, 1] V, where V is the ridge regression of Y on [XW, 1]."""

    def __init__(self, args: argparse.Namespace, embedding: str, k: int):
        # All regressions have the same ridge penalty, as in `SmoothLinkClassifier`.
        self.features = manylabel.Rembrandt(
            k, embedding=embedding, l2_final=1.0, n_jobs=args.threads, random_state=args.seed
        )

    def fit(self, X, Y) -> "LeastSquares":
        H = self.rows(self.features.fit(X, Y), X)
        gram = H.T @ H
        ridged = gram + RIDGE * np.trace(gram) / len(gram) * np.eye(len(gram))
        self.weights = np.linalg.solve(ridged, (Y.T @ H).T)
        return self

    @staticmethod
    def rows(features, X) -> np.ndarray:
        H = features.transform(X).astype(np.float64)
        return np.column_stack([H, np.ones(len(H))])

    def predict_topk(self, X, k: int) -> sp.csr_array:
        H = self.rows(self.features, X)
        shape = len(H), self.weights.shape[1]
        labels, scores = np.empty((len(H), k), np.int64), np.empty((len(H), k))
        for at in range(0, len(H), BLOCK):
            block = H[at : at + BLOCK] @ self.weights
            labels[at : at + BLOCK] = np.argpartition(-block, k - 1)[:, :k]
            scores[at : at + BLOCK] = np.take_along_axis(block, labels[at : at + BLOCK], axis=1)
        return sp.csr_array((scores.ravel(), labels.ravel(), np.arange(0, labels.size + 1, k)), shape=shape)


LINKS = {"logistic": logistic, "least-squares": LeastSquares}


if __name__ == "__main__":
    main()
