"""Measure what unknown entries and propensities are worth, and what unknown entries cost.

``hidden`` hides a fifth of the ones of the training rows. For each hidden one, ten random zeros are hidden
too. Every classifier is fitted three times with each seed: to the complete labels, with the hidden entries
told as unknown (NaN), and with the hidden entries taken for zeros. The measures are means over the seeds, on
complete test labels. The standard error of a difference between two fits is that of the paired differences of
the test rows, after the mean over the seeds.

The data sets of ``hidden`` were chosen before the measurement, by a rule that makes standard errors small.
The rule takes the sets with at most 10,000 training rows and at most 200 labels, which every classifier can
fit in about a minute. It takes the three sets of text and the two other sets with the most test rows, and
only the first set of each collection. All parameters have their default values. `TextTagger`,
`LabelCalibrator` and `DecisionClassifier` are left out, because they rank labels with one of the other
classifiers.

``ones`` is ``hidden`` without the hidden zeros. Fits in which the hidden entries are told then use all
entries that are correct. So losses show whether a classifier treats unknown entries wrongly, and not that it
has fewer entries to learn from.

``propensities`` compares classifiers with and without the fit parameter `propensities`.

``cost`` compares a fit with one percent of unknown entries to a fit without unknown entries. The two fits run
one after the other, several times. The times are medians of processor times, and the ratio is the median of
the ratios of two fits that follow each other.
"""

import argparse
import os
import time
import warnings
from pathlib import Path

import numpy as np
import record
from scipy.sparse import csr_array

import manylabel as ml

SETS = ["reuters-21578", "yahoo-arts-mlnb", "bibtex", "eukaryote-go", "scene"]
LARGE = ["bibtex", "delicious", "citeulike-t", "eurlex57k"]
SHARE, NEGATIVES = 0.2, 10  # share of hidden ones, and the number of hidden zeros for each of them
COST_SHARE = 0.01
TOPICS = {
    "hidden": "unknown_gains",
    "ones": "unknown_ones",
    "propensities": "unknown_propensities",
    "cost": "unknown_times",
}


class Embedded:
    """A classifier of the components that `Rembrandt` computes."""

    def __init__(self, seed):
        self.embedding = ml.Rembrandt(random_state=seed, n_jobs=2)
        self.classifier = ml.DiSMECClassifier(random_state=seed, n_jobs=2)

    def get_params(self):
        return {"C": self.classifier.C}

    def set_params(self, **params):
        self.classifier.set_params(**params)

    def fit(self, X, Y):
        self.classifier.fit(self.embedding.fit(X, Y).transform(X), Y)
        return self

    def predict_topk(self, X, k):
        return self.classifier.predict_topk(self.embedding.transform(X), k)


SYSTEMS = {
    "DiSMEC": lambda seed: ml.DiSMECClassifier(random_state=seed, n_jobs=2),
    "DiSMEC, exact": lambda seed: ml.DiSMECClassifier(solver="exact", random_state=seed, n_jobs=2),
    "trees": lambda seed: ml.LabelTreeClassifier(random_state=seed, n_jobs=2),
    "LEML": lambda seed: ml.LEMLClassifier(random_state=seed, n_jobs=2),
    "PD-Sparse": lambda seed: ml.PDSparseClassifier(random_state=seed, n_jobs=2),
    "CorrLog": lambda seed: ml.CorrLogClassifier(n_jobs=2),
    "link": lambda seed: ml.SmoothLinkClassifier(random_state=seed, n_jobs=2),
    "rules": lambda seed: ml.BoostedRulesClassifier(random_state=seed, n_jobs=2),
    "blocks": lambda seed: ml.BlockPartitionClassifier(random_state=seed, n_jobs=2),
    "CBMLC": lambda seed: ml.CBMLCClassifier(random_state=seed, n_jobs=2),
    "LPSR": lambda seed: ml.LPSRClassifier(random_state=seed, n_jobs=2),
    "Rembrandt": Embedded,
}
KS = (1, 3, 5)
MEASURES = [f"{kind}@{k}" for kind in ("P", "PSP") for k in KS]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=list(TOPICS))
    parser.add_argument("--sets", nargs="+")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    args = parser.parse_args()
    folder = os.environ.get("MANYLABEL_DATA")
    if folder is None:
        parser.error("MANYLABEL_DATA must name the folder of the data sets")
    warnings.simplefilter("ignore")
    measure = {"hidden": hidden, "ones": ones, "propensities": propensities, "cost": cost}[args.what]
    for name in args.sets or (LARGE if args.what == "propensities" else SETS):
        train, test = (
            ml.datasets.load_xc(Path(folder) / name / f"{part}.txt.gz") for part in ("train", "test")
        )
        data = f"{train[0].shape[0]:,} + {test[0].shape[0]:,} rows, {train[1].shape[1]:,} labels"
        for system in args.systems:
            figures = measure(SYSTEMS[system], train, test, args.seeds)
            if figures:
                record.write(TOPICS[args.what], name, system, figures, data=data)
                print(name, system, figures, flush=True)


def measures(model, test, p):
    """Return all measures of a fitted model in percent."""
    X, Y = test
    top = model.predict_topk(X, max(KS))
    found = *ml.metrics.precision_at_k(Y, top, KS), *ml.metrics.psp_at_k(Y, top, p, KS)
    return 100 * np.array(found)


def ones(make, train, test, seeds):
    return hidden(make, train, test, seeds, negatives=0)


def hidden(make, train, test, seeds, negatives=NEGATIVES):
    X, Y = train
    p = ml.metrics.propensities(Y)
    found = {"complete": [], "zeros": [], "told": []}
    for seed in seeds:
        told, zeros = hide(Y, SHARE, negatives, np.random.default_rng(seed))
        for name, labels in (("complete", Y), ("zeros", zeros), ("told", told)):
            found[name].append(measures_of_rows(make(seed).fit(X, labels), test, p))
    of_rows = {name: np.mean(values, axis=0) for name, values in found.items()}
    figures = {
        f"{measure} {name}": round(float(value), 2)
        for name, values in of_rows.items()
        for measure, value in zip(MEASURES, values.mean(axis=0), strict=True)
    }
    gains = of_rows["told"] - of_rows["zeros"]
    errors = gains.std(axis=0, ddof=1) / np.sqrt(len(gains))
    for measure, gain, error in zip(MEASURES, gains.mean(axis=0), errors, strict=True):
        figures |= {f"{measure} gain": round(float(gain), 3), f"{measure} error": round(float(error), 3)}
    return figures | {"seeds": len(seeds)}


def measures_of_rows(model, test, p):
    """Return an array with a row for each test row. Its means are the measures of `measures`."""
    X, Y = test
    Y = csr_array(Y)
    top = model.predict_topk(X, max(KS))
    row_of = np.repeat(np.arange(top.shape[0]), np.diff(top.indptr))
    order = np.lexsort([top.indices, -top.data, row_of])
    rank = np.arange(top.nnz) - top.indptr[row_of]
    labels = top.indices[order]
    hits = np.asarray(Y[row_of, labels]).ravel() > 0
    gains, values = np.zeros((2, top.shape[0], max(KS)))
    gains[row_of, rank], values[row_of, rank] = hits, hits / p[labels]
    best = np.zeros((top.shape[0], max(KS)))
    for row in range(Y.shape[0]):
        ideal = np.sort(1 / p[Y.indices[Y.indptr[row] : Y.indptr[row + 1]]])[::-1][: max(KS)]
        best[row, : len(ideal)] = ideal
    precisions = [gains[:, :k].sum(axis=1) / k for k in KS]
    scored = [values[:, :k].sum(axis=1) / best[:, :k].sum(axis=1).mean() for k in KS]
    found = 100 * np.column_stack([*precisions, *scored])
    np.testing.assert_allclose(found.mean(axis=0), measures(model, test, p), rtol=1e-4)
    return found


def hide(Y, share, negatives, rng):
    """Return Y with hidden entries as NaN, and Y with hidden entries as zeros."""
    n, c = Y.shape
    Y = csr_array(Y, dtype=np.float32)
    gone = rng.random(Y.nnz) < share
    ones = np.repeat(np.arange(n), np.diff(Y.indptr)) * c + Y.indices
    wanted = min(negatives * int(gone.sum()), n * c - Y.nnz)
    zeros = np.setdiff1d(np.arange(n * c), ones)
    cells = np.concatenate([ones[~gone], ones[gone], rng.choice(zeros, wanted, replace=False)])
    values = np.repeat(np.array([1, np.nan], np.float32), [np.sum(~gone), len(cells) - np.sum(~gone)])
    told = csr_array((values, (cells // c, cells % c)), shape=Y.shape)
    kept = ones[~gone]
    left = csr_array((np.ones(len(kept), np.float32), (kept // c, kept % c)), shape=Y.shape)
    return told, left


def propensities(make, train, test, seeds):
    if not isinstance(make(0), ml.DiSMECClassifier | ml.LabelTreeClassifier):
        return {}
    X, Y = train
    p = ml.metrics.propensities(Y)
    figures = {}
    for name, more in (("without", {}), ("with", {"propensities": p})):
        values = np.mean([measures(make(seed).fit(X, Y, **more), test, p) for seed in seeds], axis=0)
        figures |= {f"{m} {name}": round(float(value), 2) for m, value in zip(MEASURES, values, strict=True)}
    return figures | {"seeds": len(seeds)}


def cost(make, train, test, seeds):
    X, Y = train
    Y = csr_array(Y, dtype=np.float32)
    n, c = Y.shape
    rng = np.random.default_rng(0)
    cells = np.unique(rng.integers(0, n * c, int(COST_SHARE * n * c)))
    marks = csr_array((np.full(len(cells), np.nan, np.float32), (cells // c, cells % c)), shape=Y.shape)
    told = csr_array(Y + marks)
    times = {"known s": [], "told s": []}
    for repeat in range(max(5, len(seeds))):
        for name, labels in (("known s", Y), ("told s", told)):
            model = make(0)
            if "C" in model.get_params():
                model.set_params(C=1.0)
            start = time.process_time()
            model.fit(X, labels)
            if repeat > 0:  # the first fits warm up the caches
                times[name].append(time.process_time() - start)
    figures = {name: float(f"{np.median(values):.4g}") for name, values in times.items()}
    ratios = np.divide(times["told s"], times["known s"])
    return figures | {"times": round(float(np.median(ratios)), 2)}


if __name__ == "__main__":
    main()
