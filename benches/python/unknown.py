"""Measure what unknown entries and propensities are worth, and what unknown entries cost.

``hidden`` hides a fifth of the ones of the training rows. For each hidden one, ten random zeros are hidden
too. Every classifier is fitted three times with each seed: to the complete labels, with the hidden entries
told as unknown (NaN), and with the hidden entries taken for zeros. The measures are means over the seeds, on
complete test labels.

``propensities`` compares classifiers with and without the fit parameter `propensities`.

``cost`` compares the time of a fit with one percent of unknown entries to the time of a fit without unknown
entries. The times are the shortest of some alternating fits.
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

SETS = ["enron", "medical", "genbase", "bibtex", "corel5k"]
LARGE = ["bibtex", "delicious", "citeulike-t", "eurlex57k"]
SHARE, NEGATIVES = 0.2, 10  # share of hidden ones, and the number of hidden zeros for each of them
COST_SHARE = 0.01

SYSTEMS = {
    "DiSMEC": lambda seed: ml.DiSMECClassifier(random_state=seed, n_jobs=2),
    "DiSMEC, exact": lambda seed: ml.DiSMECClassifier(solver="exact", random_state=seed, n_jobs=2),
    "trees": lambda seed: ml.LabelTreeClassifier(random_state=seed, n_jobs=2),
    "LEML": lambda seed: ml.LEMLClassifier(random_state=seed, n_jobs=2),
    "PD-Sparse": lambda seed: ml.PDSparseClassifier(random_state=seed, n_jobs=2),
    "CorrLog": lambda seed: ml.CorrLogClassifier(n_jobs=2),
    "link": lambda seed: ml.SmoothLinkClassifier(random_state=seed, n_jobs=2),
    "rules": lambda seed: ml.BoostedRulesClassifier(100, random_state=seed, n_jobs=2),
    "blocks": lambda seed: ml.BlockPartitionClassifier(random_state=seed, n_jobs=2),
    "CBMLC": lambda seed: ml.CBMLCClassifier(random_state=seed, n_jobs=2),
    "LPSR": lambda seed: ml.LPSRClassifier(random_state=seed, n_jobs=2),
}
KS = (1, 3, 5)
MEASURES = [f"{kind}@{k}" for kind in ("P", "PSP") for k in KS]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["hidden", "propensities", "cost"])
    parser.add_argument("--sets", nargs="+")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    args = parser.parse_args()
    folder = os.environ.get("MANYLABEL_DATA")
    if folder is None:
        parser.error("MANYLABEL_DATA must name the folder of the data sets")
    warnings.simplefilter("ignore")
    measure = {"hidden": hidden, "propensities": propensities, "cost": cost}[args.what]
    for name in args.sets or (LARGE if args.what == "propensities" else SETS):
        train, test = (
            ml.datasets.load_xc(Path(folder) / name / f"{part}.txt.gz") for part in ("train", "test")
        )
        data = f"{train[0].shape[0]:,} + {test[0].shape[0]:,} rows, {train[1].shape[1]:,} labels"
        for system in args.systems:
            figures = measure(SYSTEMS[system], train, test, args.seeds)
            if figures:
                record.write(f"unknown_{args.what}", name, system, figures, data=data)
                print(name, system, figures, flush=True)


def measures(model, test, p):
    """Return all measures of a fitted model in percent."""
    X, Y = test
    top = model.predict_topk(X, max(KS))
    found = *ml.metrics.precision_at_k(Y, top, KS), *ml.metrics.psp_at_k(Y, top, p, KS)
    return 100 * np.array(found)


def hidden(make, train, test, seeds):
    X, Y = train
    p = ml.metrics.propensities(Y)
    found = {"complete": [], "zeros": [], "told": []}
    for seed in seeds:
        told, zeros = hide(Y, SHARE, NEGATIVES, np.random.default_rng(seed))
        for name, labels in (("complete", Y), ("zeros", zeros), ("told", told)):
            found[name].append(measures(make(seed).fit(X, labels), test, p))
    return {
        f"{measure} {name}": round(float(value), 2)
        for name, values in found.items()
        for measure, value in zip(MEASURES, np.mean(values, axis=0), strict=True)
    } | {"seeds": len(seeds)}


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
    times = {"known s": np.inf, "told s": np.inf}
    for _ in range(max(3, len(seeds))):
        for name, labels in (("known s", Y), ("told s", told)):
            model = make(0)
            if "C" in model.get_params():
                model.set_params(C=1.0)
            start = time.perf_counter()
            model.fit(X, labels)
            times[name] = min(times[name], time.perf_counter() - start)
    figures = {name: float(f"{value:.4g}") for name, value in times.items()}
    return figures | {"times": round(times["told s"] / times["known s"], 2)}


if __name__ == "__main__":
    main()
