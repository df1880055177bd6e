"""The data sets of the smooth link's tables with their official splits, and the measures of the tables."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import published
from scipy.sparse import csr_array

from manylabel.datasets import load_arff, load_xc
from manylabel.decision import F1Inference

SETS = ["yeast", "bibtex", "corel5k", "emotions", "scene"]

# Figures that Karampatziakis and Mineiro published in "Scalable Multilabel Prediction via Randomized
# Methods", and figures in the later log of their code. Each has the lower and the upper end of a 90 %
# interval. The figures of the log have the center in parentheses.
PUBLISHED = {
    pair: f"paper {paper[0]}-{paper[1]}, log {log[0]} ({log[1]}) {log[2]}"
    for pair, (paper, log) in published.SMOOTH_LINK.items()
}


@dataclass
class Split:
    X: object
    Y: object
    X_test: object
    Y_test: np.ndarray


def load(name):
    """Return the official training and test rows."""
    folder = os.environ.get("MANYLABEL_DATA")
    if not folder:
        sys.exit("MANYLABEL_DATA must be the path of the folder of data sets")
    arff = Path(folder) / "_arff"
    stem = {"corel5k": "Corel5k"}.get(name, name)
    if (arff / f"{stem}.xml.gz").exists():
        parts = []
        for part in ("train", "test"):
            path = arff / f"{stem}-{part}.arff.gz"
            path = path if path.exists() else arff / f"{stem}-{part}-sparse.arff.gz"
            parts.append(load_arff(path, arff / f"{stem}.xml.gz"))
    else:
        parts = [load_xc(next((Path(folder) / name).glob(f"{part}.txt*"))) for part in ("train", "test")]
    (X, Y), (X_test, Y_test) = parts
    return Split(X, Y, X_test, csr_array(Y_test).toarray())


def hamming(Y, named, weights=None):
    return np.average((named != Y).mean(axis=1), weights=weights)


def macro_f1(Y, named, weights=None):
    """Return the mean over labels of 2TP / (2TP + FP + FN). Labels with 0 / 0 count 0."""
    weights = np.ones(len(Y)) if weights is None else weights
    both, either = weights @ (Y * named), weights @ (Y + named)
    return np.divide(2 * both, either, out=np.zeros(len(both)), where=either > 0).mean()


def named_by_sign(model, split):
    return csr_array(model.predict(split.X_test)).toarray()


def named_for_f1(model, split):
    """Predict label sets by algorithm 4, for all test rows together."""
    inference = F1Inference().fit(None, split.Y)
    return csr_array(inference.predict(model.predict_proba(split.X_test))).toarray()


# For each measure: the function, how label sets are predicted, and whether lower or higher is better.
MEASURES = {"HL": (hamming, named_by_sign, -1), "macro-F1": (macro_f1, named_for_f1, 1)}


def interval(measure, Y, named, seed=0):
    """Return an interval of about 90 % and its center, from sixteen Poisson(1) reweightings of the rows.

    The sorted values are used: the second, the mean of the eighth and ninth, and the fifteenth.
    """
    rng = np.random.default_rng(seed)
    values = sorted(measure(Y, named, rng.poisson(1.0, len(Y))) for _ in range(16))
    return values[1], (values[7] + values[8]) / 2, values[14]
