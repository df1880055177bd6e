"""Compare CorrLog with its authors' stored results on scene, in five folds.

CorrLog is fitted with the authors' settings, and with default settings until it converges.
"""

import numpy as np
import record
from corrlog_data import MEASURES, everything, folds, head, measures, row

from manylabel import CorrLogClassifier

# Mean and standard deviation over the authors' five folds, from their repository.
STORED = {
    "authors' file, l2": (
        "0.1005 (95)",
        "0.3577 (299)",
        "0.7003 (262)",
        "0.7214 (244)",
        "0.7343 (232)",
        "0.7228 (235)",
    ),
    "authors' file, elastic net": (
        "0.0947 (69)",
        "0.3411 (198)",
        "0.7097 (180)",
        "0.7280 (172)",
        "0.7451 (161)",
        "0.7340 (173)",
    ),
}
SEEDS = range(4)


def standardized(X, rows, by=None):
    """Subtract the mean of `by` from the rows, and divide by the standard deviation of the rows, as the
    authors do.
    """
    rows = X[rows]
    return (rows - (rows if by is None else X[by]).mean(axis=0)) / rows.std(axis=0, ddof=1)


def run(X, Y, model, leak):
    for seed in SEEDS:
        for test in folds(len(Y), seed):
            train = np.setdiff1d(np.arange(len(Y)), test)
            if leak:  # the authors divide test rows by the standard deviation of the test rows
                model.fit(standardized(X, train), Y[train])
                predicted = model.predict(standardized(X, test, train))
            else:
                predicted = model.fit(X[train], Y[train]).predict(X[test])
            yield measures(Y[test], predicted)


def main():
    X, Y = everything("scene")
    X = X.toarray().astype(float)
    head("scene", *MEASURES)
    for name, cells in STORED.items():
        row(name, *cells)
    reference = {"solver": "reference", "decoder": "bp", "standardize": False}
    for name, model, leak in [
        ("authors' run, l2", CorrLogClassifier(epsilon=0.0, **reference), True),
        ("authors' run, elastic net", CorrLogClassifier(**reference), True),
        ("authors' run, exact decoder", CorrLogClassifier(**reference | {"decoder": "exact"}), True),
        ("converged l2", CorrLogClassifier(1e-3, 1e-3, threshold="zero", epsilon=0.0), False),
        ("converged, penalties chosen", CorrLogClassifier(threshold="zero"), False),
        ("converged, pm1", CorrLogClassifier(1e-3, 1e-3, threshold="zero", coding="pm1"), False),
        ("independent l2", CorrLogClassifier(1e-3, np.inf, threshold="zero", epsilon=0.0), False),
        ("independent", CorrLogClassifier(1e-3, np.inf, threshold="zero"), False),
    ]:
        results = np.array(list(run(X, Y, model, leak)))
        spread = results.std(axis=0, ddof=1)
        pairs = zip(results.mean(axis=0), spread, strict=True)
        cells = row(name, *(f"{mean:.4f} ({sd * 1e4:.0f})" for mean, sd in pairs))
        record.keep("corrlog_scene", ["set", "system", *MEASURES], ["scene", *cells])
    print(f"\nmeans (and standard deviations, in ten-thousandths) of {5 * len(SEEDS)} folds")


if __name__ == "__main__":
    main()
