"""Load the data sets, make the folds and compute the measures for the tables of the correlated logistic
model.
"""

import os
import sys
from pathlib import Path

import numpy as np
import published
from scipy.sparse import csr_array, vstack

from manylabel.datasets import load_xc

MEASURES = published.CORRLOG_MEASURES


def parts(name):
    """Return the training and test rows of the split that comes with the set."""
    root = os.environ.get("MANYLABEL_DATA")
    if not root:
        sys.exit("MANYLABEL_DATA must be the path of the folder of data sets")
    return [load_xc(Path(root) / name / f"{part}.txt.gz") for part in ("train", "test")]


def everything(name):
    """Return all rows, with the training rows first."""
    (X, Y), (X_test, Y_test) = parts(name)
    return csr_array(vstack([X, X_test])), csr_array(vstack([Y, Y_test])).toarray()


def folds(n_rows, seed, n_folds=5):
    """Return the rows of each fold, from a random partition with a fixed seed."""
    return np.array_split(np.random.default_rng(seed).permutation(n_rows), n_folds)


def measures(Y, P):
    """Compute the six measures of the paper. An empty label set counts 0. Macro-F1 is computed from the mean
    precision and the mean recall.
    """
    Y, P = np.asarray(Y) > 0, np.asarray(P) > 0
    both, either = (Y & P).sum(axis=1), (Y | P).sum(axis=1)
    sizes = Y.sum(axis=1) + P.sum(axis=1)
    hits, predicted, present = (Y & P).sum(axis=0), P.sum(axis=0), Y.sum(axis=0)
    precision = (hits / np.maximum(predicted, 1)).mean()
    recall = (hits / np.maximum(present, 1)).mean()
    return np.array(
        [
            (Y != P).mean(),
            (Y != P).any(axis=1).mean(),
            (both / np.maximum(either, 1)).mean(),
            (2 * both / np.maximum(sizes, 1)).mean(),
            2 * precision * recall / max(precision + recall, 1e-300),
            2 * hits.sum() / max(predicted.sum() + present.sum(), 1),
        ]
    )


def row(*cells):
    """Print a row of the table, and return the numbers in its cells."""
    texts = [cell if isinstance(cell, str) else f"{cell:.4f}" for cell in cells]
    print("| " + " | ".join(texts) + " |", flush=True)
    return texts


def head(*cells):
    row(*cells)
    print("|" + "---|" * len(cells))
