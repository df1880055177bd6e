"""Measure calibrated probabilities and the label sets that decision rules choose from them.

On each data set, each classifier is fitted alone and by `LabelCalibrator`, with default parameters. The
curves are also fitted without pooling and as one curve for all labels, to the same scores of the same
held-out rows. All decision rules are fitted to the calibrated probabilities of these rows. Probabilities and
label sets are measured on the test rows. ``--cv`` sets the held-out rows.

``--splits`` joins the training and test rows and divides them at random, several times, into parts of the
same sizes. Only the calibration errors are measured. The figures are means over the divisions, with standard
errors. They show which errors are due to the calibrator, and which are due to differences between the
training rows and the test rows of a data set.
"""

import argparse
import os
import resource
import sys
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
import record
from blocks_default import split
from scipy.sparse import csr_array, vstack

import manylabel as ml
from manylabel import metrics
from manylabel.decision import ExpectedF1, F1Inference, LabelCalibrator, RiskControl, Thresholds

SETS = ["bibtex", "delicious", "citeulike-t", "eurlex57k", "yso-finna-en"]
SYSTEMS = {
    "DiSMEC": ml.DiSMECClassifier,
    "trees": ml.LabelTreeClassifier,
    "blocks": ml.BlockPartitionClassifier,
}
KS = (1, 3, 5)
# Draws of labels from perfect probabilities.
N_DRAWS = 10
# Bounds of the rule with a single bound.
GRID = np.linspace(0.02, 0.9, 45)


class Calibrator(LabelCalibrator):
    """A calibrator that keeps the scores and the labels of the held-out rows."""

    def _fit(self, X, y, sample_weight, progress):
        params = self.parameters.check(self)
        self.held_ = self._calibrate(X, y, sample_weight, progress, params)
        self.frequency_ = np.bincount(csr_array(y).indices, minlength=y.shape[1])


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", default=SETS, help="folders of MANYLABEL_DATA")
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=SYSTEMS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cv", type=read_cv, default="auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--splits", type=int, default=0, help="number of random divisions of all rows")
    args = parser.parse_args()
    if not os.environ.get("MANYLABEL_DATA"):
        sys.exit("MANYLABEL_DATA must be the path of the folder of data sets")
    for name in args.sets:
        data = split(Path(os.environ["MANYLABEL_DATA"]) / name)
        for system in args.systems:
            measure = of_splits if args.splits else measured
            figures = measure(SYSTEMS[system], args, *data)
            title = system if args.cv == "auto" else f"{system}, cv={args.cv}"
            title += f", seed {args.seed}" if args.seed else ""
            print(f"\n{name}, {title}", *(f"{key}: {value}" for key, value in figures.items()), sep="\n  ")
            sys.stdout.flush()
            record.write("decisions_splits" if args.splits else "decisions", name, title, figures)


def read_cv(text):
    return text if text == "auto" else float(text) if "." in text else int(text)


def measured(make, args, X, Y, X_test, Y_test):
    estimator = make(random_state=args.seed)
    start, before = perf_counter(), process_time()
    make(random_state=args.seed, n_jobs=args.threads).fit(X, Y)
    alone, between = perf_counter() - start, process_time()
    model = Calibrator(estimator, cv=args.cv, random_state=args.seed, n_jobs=args.threads).fit(X, Y)
    # Processor seconds change little if the machine is busy.
    times = (process_time() - between) / (between - before)
    scores, Y_held = model.held_
    top = model._candidates(model._features(X_test), 1)
    raw = model.predict_topk(X_test, max(KS))
    found = {"cv": str(model.cv_), "fit s": round(alone, 2), "times fit": round(times, 2)}
    for k, before, after in zip(
        KS, metrics.precision_at_k(Y_test, raw, KS), metrics.precision_at_k(Y_test, top, KS), strict=True
    ):
        found[f"P@{k}"] = round(100 * before, 2)
        found[f"gain of P@{k}"] = round(100 * (after - before), 2)
    found |= with_chance(Y_test, top)
    found["log loss"] = loss(Y_test, top)
    found |= {
        f"log loss, {title}": loss(Y_test, refitted(model, X_test, **params))
        for title, params in {
            "no pooling": {"pooling": "none"},
            "one curve": {"pooling": "all"},
            "one isotonic curve": {"pooling": "all", "method": "isotonic"},
        }.items()
    }
    found |= rules(model._calibrated(scores), Y_held, top, Y_test)
    found |= risks(top, Y_test)
    found["peak MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1000
    return found


def of_splits(make, args, X, Y, X_test, Y_test):
    """Return means and standard errors of the calibration errors over random divisions of all rows."""
    n = X.shape[0]
    X, Y = csr_array(vstack([X, X_test])), csr_array(vstack([Y, Y_test]))
    found = []
    for seed in range(args.splits):
        order = np.random.default_rng(seed).permutation(X.shape[0])
        train, test = np.sort(order[:n]), np.sort(order[n:])
        model = LabelCalibrator(make(random_state=0), cv=args.cv, random_state=seed, n_jobs=args.threads)
        model.fit(X[train], Y[train])
        found.append(with_chance(Y[test], model._candidates(model._features(X[test]), 1)))
    figures = {}
    for title in found[0]:
        values = np.array([each[title] for each in found])
        figures[title] = round(float(values.mean()), 4)
        figures[f"{title}, standard error"] = round(float(values.std(ddof=1) / np.sqrt(len(values))), 4)
    return figures | {"splits": args.splits}


def refitted(model, X_test, *, pooling, method="sigmoid"):
    """Return the probabilities of other curves, fitted to the same held-out scores."""
    other = Calibrator(model.estimator, method=method, pooling=pooling, n_jobs=model.n_jobs)
    scores, Y_held = model.held_
    other.__dict__ |= {
        name: getattr(model, name) for name in ("estimator_", "n_features_in_", "classes_", "sparse_output_")
    }
    params = {"method": method, "pooling": pooling, "n_jobs": 1}
    other._fit_curves(scores, Y_held, model.frequency_, params)
    return other._candidates(model._features(X_test), 1)


def loss(Y, P):
    return round(float(metrics.log_loss_at_k(Y, P, P.shape[1])), 5)


def errors(Y, P):
    """Return calibration errors: of all candidates, of probable ones, and of labels, in two ways."""
    of_labels = {"average": "label", "least_positives": 50}
    kinds = {
        "error": {},
        "error above 0.3": {"above": 0.3},
        "error of labels": of_labels | {"pairs": "all"},
        "error of labels, candidates": of_labels,
    }
    return {title: round(metrics.calibration_error(Y, P, **kind), 4) for title, kind in kinds.items()}


def with_chance(Y, P):
    """Return calibration errors, and the errors that perfectly calibrated probabilities have by chance. The
    latter are means over several draws of the labels.
    """
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(N_DRAWS):
        labels = csr_array((rng.random(P.nnz) < P.data, P.indices, P.indptr), shape=P.shape)
        labels = csr_array(labels.astype(np.float32))
        labels.eliminate_zeros()
        drawn.append(errors(labels, P))
    chance = {title: round(float(np.mean([each[title] for each in drawn])), 4) for title in drawn[0]}
    return errors(Y, P) | {f"{title}, by chance": value for title, value in chance.items()}


def rules(held, Y_held, P, Y):
    """Return the F1 of label sets, in percent. The rules are fitted to held-out rows."""
    fitted = {
        "micro bound": Thresholds("micro_f1"),
        "macro bounds": Thresholds("macro_f1"),
        "macro bounds, no pooling": Thresholds("macro_f1", pooling="none"),
        "expected F1": ExpectedF1(),
        "F1Inference": F1Inference("train"),
    }
    sets = {title: csr_array(rule.fit(held, Y_held).predict(P)) for title, rule in fitted.items()}
    of_bounds = {bound: f1(Y_held, chosen(held, bound)) for bound in GRID}
    for measure in ("micro", "macro", "example"):
        best = max(GRID, key=lambda bound: of_bounds[bound][measure])
        sets[f"one bound for {measure}-F1"] = chosen(P, best)
    return {
        f"{measure}-F1, {title}": round(100 * value, 2)
        for title, each in sets.items()
        for measure, value in f1(Y, each).items()
    }


def chosen(P, bound):
    # `eliminate_zeros` changes the index arrays, so they are copied.
    sets = csr_array((P.data >= bound, P.indices, P.indptr), shape=P.shape, dtype=np.int64, copy=True)
    sets.eliminate_zeros()
    return sets


def f1(Y, sets):
    """Return micro-, macro- and example-F1. Labels and rows without a true label count 0 in the last two, but
    labels without a true row are left out.
    """
    hits = sets.multiply(Y)
    of_labels, of_rows = (
        np.divide(2 * both, n, out=np.zeros(len(n)), where=n > 0)
        for both, n in (
            (
                np.asarray(hits.sum(axis=axis)).ravel(),
                np.asarray(sets.sum(axis=axis) + Y.sum(axis=axis)).ravel(),
            )
            for axis in (0, 1)
        )
    )
    present = np.asarray(Y.sum(axis=0)).ravel() > 0
    micro = 2 * hits.sum() / (sets.sum() + Y.sum())
    return {"micro": micro, "macro": of_labels[present].mean(), "example": of_rows.mean()}


def risks(P, Y):
    """Return the risk of sets whose bound is learned on half of the test rows, and their mean size."""
    order = np.random.default_rng(0).permutation(Y.shape[0])
    first, second = np.sort(order[: len(order) // 2]), np.sort(order[len(order) // 2 :])
    found = {}
    for title, rule in {
        "FNR 0.3": RiskControl(0.3),
        "FNR 0.3, probability": RiskControl(0.3, guarantee="probability"),
        "FDR 0.3, probability": RiskControl(0.3, risk="false_discovery_rate", guarantee="probability"),
    }.items():
        try:
            sets = csr_array(rule.fit(P[first], Y[first]).predict(P[second]))
        except ValueError:
            found[title] = "not reached"
            continue
        hits = np.asarray(sets.multiply(Y[second]).sum(axis=1)).ravel()
        n, n_true = (np.asarray(each.sum(axis=1)).ravel() for each in (sets, Y[second]))
        missed = np.where(n_true > 0, 1 - hits / np.maximum(n_true, 1), 0)
        wrong = np.where(n > 0, 1 - hits / np.maximum(n, 1), 0)
        found[title] = f"{(missed if title.startswith('FNR') else wrong).mean():.3f} ({n.mean():.1f} labels)"
    return found


if __name__ == "__main__":
    main()
