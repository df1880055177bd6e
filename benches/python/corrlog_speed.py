"""Measure the times of CorrLog fits, decoding times, and how both grow with the number of labels.

The fits are compared with scikit-learn's independent regressions. All times are processor seconds on one
thread. Each is the smallest of a few runs, which is close to the time on an idle machine.
"""

import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = "1"

import argparse  # noqa: E402
import warnings  # noqa: E402
from time import process_time  # noqa: E402

import numpy as np  # noqa: E402
import record  # noqa: E402
from corrlog_data import head, parts, row  # noqa: E402
from scipy.sparse import csr_array  # noqa: E402
from sklearn.exceptions import ConvergenceWarning  # noqa: E402
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.multiclass import OneVsRestClassifier  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402

from manylabel import CorrLogClassifier  # noqa: E402
from manylabel.datasets import make_multilabel  # noqa: E402

SETS = ["yeast", "scene", "enron", "corel5k", "delicious"]
ENUMERABLE = ["emotions", "flags", "genbase", "scene", "image", "yeast", "birds", "eukaryote-go"]
PENALTY = 1e-3
FITS = [
    *["labels", "scikit-learn s", "scikit-learn violation", "independent l2 s", "independent violation"],
    *["CorrLog l2 s", "CorrLog s", "pairs", "gradients", "share"],
]
DECODING = [
    *["labels", "coupled", "auto s", "exact s", "search s", "bp s", "marginals s", "ms a row (auto)"],
    "search = exact",
]


def timed(repeat, work, *arguments):
    best = np.inf
    for _ in range(repeat):
        begun = process_time()
        result = work(*arguments)
        best = min(best, process_time() - begun)
    return best, result


def violation(X, Y, coef, intercept):
    """Return the KKT violation of independent regressions: the largest absolute entry of the gradients."""
    residual = (1 / (1 + np.exp(-(X @ coef.T + intercept))) - Y) / len(Y)
    return max(np.abs(residual.T @ X + 2 * PENALTY * coef).max(), np.abs(residual.sum(axis=0)).max())


def fits(sets):
    print("\nFit seconds; scikit-learn without couplings, on features scaled beforehand\n")
    head("set", *FITS)
    for name in sets:
        X, Y = parts(name)[0]
        Y = Y.toarray()
        Y = Y[:, (Y.sum(axis=0) > 0) & (Y.sum(axis=0) < len(Y))]
        dense = X.nnz > X.shape[0] * X.shape[1] / 2
        scaler = StandardScaler(with_mean=dense)
        scaled = scaler.fit_transform(X.toarray().astype(float) if dense else X.astype(float))
        peer = OneVsRestClassifier(
            LogisticRegression(C=1 / (2 * len(Y) * PENALTY), tol=1e-4, max_iter=10_000)
        )
        seconds, peer = timed(1 if Y.shape[1] > 300 else 3, peer.fit, scaled, Y)
        coef = np.vstack([one.coef_ for one in peer.estimators_])
        intercept = np.concatenate([one.intercept_ for one in peer.estimators_])
        cells = [f"{seconds:.3f}", f"{violation(scaled, Y, coef, intercept):.1e}"]
        repeat = 1 if Y.shape[1] > 900 else 3
        own, model = timed(
            repeat, CorrLogClassifier(PENALTY, np.inf, threshold="zero", epsilon=0.0, max_iter=5000).fit, X, Y
        )
        coef = model.coef_.toarray() * scaler.scale_
        intercept = model.intercept_ + (model.coef_ @ scaler.mean_ if dense else 0)
        cells += [f"{own:.3f}", f"{violation(scaled, Y, coef, intercept):.1e}"]
        ridge, _ = timed(
            repeat,
            CorrLogClassifier(PENALTY, PENALTY, threshold="zero", epsilon=0.0, max_iter=5000).fit,
            X,
            Y,
        )
        joint, model = timed(
            repeat, CorrLogClassifier(PENALTY, PENALTY, threshold="zero", max_iter=5000).fit, X, Y
        )
        cells += [f"{ridge:.3f}", f"{joint:.3f}", f"{model.correlations_.nnz // 2:,}", str(model.n_iter_)]
        sizes = f"{X.shape[0]:,} rows, {X.shape[1]:,} features, {parts(name)[0][1].shape[1]:,} labels"
        cells = row(name, str(Y.shape[1]), *cells, f"1/{seconds / joint:.1f}")
        record.keep("corrlog_speed", ["set", "system", *FITS], [f"{name}, {sizes}", "CorrLog", *cells[1:]])


def decoding(sets):
    print("\nSeconds for 10,000 rows, and agreement with the exact decoder\n")
    head("set", *DECODING)
    for name in sets:
        (X, Y), (X_test, _) = parts(name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = CorrLogClassifier(PENALTY, PENALTY, threshold="zero").fit(X, Y)
        rows = csr_array(X_test)[np.resize(np.arange(X_test.shape[0]), 10_000)]
        coupled = int((np.diff(model.correlations_.indptr) > 0).sum())
        seconds, predictions = {}, {}
        for decoder in ("auto", "exact", "search", "bp"):
            few = rows[:200] if decoder == "bp" and coupled > 100 else rows
            if decoder == "exact" and coupled > 20:
                continue
            model.set_params(decoder=decoder)
            taken, predictions[decoder] = timed(1, model.predict, few)
            seconds[decoder] = taken * 10_000 / few.shape[0]
        few = rows[:200] if coupled > 20 else rows
        seconds["marginals"] = timed(1, model.predict_proba, few)[0] * 10_000 / few.shape[0]
        agreement = ""
        if "exact" in predictions:
            differ = np.abs(predictions["exact"] - predictions["search"]).sum(axis=1) > 0
            agreement = f"{100 * (1 - differ.mean()):.2f} %"
        cells = [
            f"{seconds[key]:.3f}" if key in seconds else ""
            for key in ("auto", "exact", "search", "bp", "marginals")
        ]
        cells = [str(Y.shape[1]), str(coupled), *cells, f"{seconds['auto'] / 10:.4f}", agreement]
        record.keep(
            "corrlog_decoding", ["set", "system", *DECODING], [name, "CorrLog", *row(name, *cells)[1:]]
        )


def agreement():
    print("\nTest rows in % for which the search finds what the exact decoder does, by both penalties\n")
    penalties = (1e-5, 1e-4, 1e-3, 1e-2)
    head("set", "labels", "rows", *(f"{penalty:g}" for penalty in penalties))
    for name in ENUMERABLE:
        (X, Y), (X_test, _) = parts(name)
        cells = []
        for penalty in penalties:
            model = CorrLogClassifier(
                penalty, penalty, threshold="zero", max_iter=20_000, decoder="search"
            ).fit(X, Y)
            found = csr_array(model.predict(X_test))
            differ = abs(found - csr_array(model.set_params(decoder="exact").predict(X_test))).sum(axis=1) > 0
            cells.append(f"{100 * (1 - differ.mean()):.2f}")
        cells = row(name, str(Y.shape[1]), str(X_test.shape[0]), *cells)[1:]
        columns = ["set", "system", "labels", "rows", *(f"{penalty:g}" for penalty in penalties)]
        record.keep("corrlog_search", columns, [name, "CorrLog", *cells])


def growth():
    print(
        "\nMilliseconds a gradient with all pairs coupled, 10,000 rows of 100 values among 2,000 features\n"
    )
    head("labels", "ms a gradient", "pairs")
    found = []
    for n_labels in (32, 64, 128, 256, 512, 1024):
        X, Y = make_multilabel(10_000, 2_000, n_labels, n_nonzero=100, random_state=0)
        taken = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            # Both limits are after the first few iterations, which fit independent regressions, and before
            # any label has converged.
            for max_iter in (30, 60):
                model = CorrLogClassifier(
                    PENALTY, PENALTY, threshold="zero", epsilon=0.0, tol=1e-5, max_iter=max_iter
                )
                taken[max_iter], model = timed(2, model.fit, X, Y)
        each = (taken[60] - taken[30]) / 30
        found.append((n_labels, each))
        cells = row(str(n_labels), f"{1000 * each:.2f}", f"{model.correlations_.nnz // 2:,}")
        figures = record.figures(["labels", "ms a gradient", "pairs"], cells)
        shape = "10,000 rows of 100 values among 2,000 features"
        record.write("corrlog_growth", shape, f"CorrLog, {n_labels} labels", figures)
    labels, seconds = np.log(found).T
    print(f"\nexponent {np.polyfit(labels, seconds, 1)[0]:.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    tables = {
        "fits": lambda: fits(arguments.sets),
        "decoding": lambda: decoding(arguments.sets),
        "agreement": agreement,
        "growth": growth,
    }
    parser.add_argument("--tables", nargs="+", choices=tables, default=tables)
    parser.add_argument("--sets", nargs="+", default=SETS, help="data sets of the first two tables")
    arguments = parser.parse_args()
    for table in arguments.tables:
        tables[table]()


if __name__ == "__main__":
    main()
