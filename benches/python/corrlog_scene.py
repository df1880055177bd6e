"""Compare CorrLog with its authors' stored results on scene, in five folds.

CorrLog is fitted with the authors' settings, and with default settings until it converges.
"""

import numpy as np
import published
import record
from corrlog_data import MEASURES, everything, folds, head, measures, row

from manylabel import CorrLogClassifier

REFERENCE = {"solver": "reference", "decoder": "bp", "standardize": False}
# The authors' settings for each penalty.
AUTHORS = {"l2": REFERENCE | {"epsilon": 0.0}, "elastic net": REFERENCE}
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
    for penalty, cells in published.CORRLOG_SCENE.items():
        row(f"authors' file, {penalty}", *cells)
    for name, model, leak in [
        *[
            (f"authors' run, {penalty}", CorrLogClassifier(**params), True)
            for penalty, params in AUTHORS.items()
        ],
        ("authors' run, exact decoder", CorrLogClassifier(**REFERENCE | {"decoder": "exact"}), True),
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
