"""Compare elastic net penalties, l2 penalties and independent regressions by five-fold cross-validation.

The script also prints paired differences over the folds.
"""

import argparse

import numpy as np
import record
from corrlog_data import MEASURES, everything, folds, head, measures, row
from scipy.sparse import csr_array

from manylabel import CorrLogClassifier

SETS = ["scene", "emotions", "yeast", "enron", "medical", "birds", "image"]
VARIANTS = {
    "independent, l2": {"epsilon": 0.0, "l2_pairs": np.inf},
    "independent, elastic net": {"l2_pairs": np.inf},
    "CorrLog, l2": {"epsilon": 0.0},
    "CorrLog, elastic net": {},
}


# Pairs of variants, of which the first should be better.
PAIRS = [
    ("CorrLog, elastic net", "CorrLog, l2"),
    ("CorrLog, l2", "independent, l2"),
    ("CorrLog, elastic net", "independent, elastic net"),
]


def of_folds(name, n_folds, l2=1e-3, variants=tuple(VARIANTS), standardize="auto"):
    """Yield the measures of each variant on the rows of each fold."""
    X, Y = everything(name)
    for test in folds(len(Y), 0, n_folds):
        train = np.setdiff1d(np.arange(len(Y)), test)
        results = {}
        for variant in variants:
            params = {"l2_features": l2, "l2_pairs": l2, "threshold": "zero"} | VARIANTS[variant]
            model = CorrLogClassifier(**params).set_params(max_iter=5000, standardize=standardize)
            predicted = csr_array(model.fit(X[train], Y[train]).predict(X[test])).toarray()
            results[variant] = measures(Y[test], predicted)
        yield results


def gains(better, worse):
    """Return by how much the first of two arrays of measures is better than the second."""
    return (np.array(better) - worse) * [-1, -1, 1, 1, 1, 1]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--l2", type=float, default=1e-3, help="value of both penalties")
    arguments = parser.parse_args()
    head("set", "model", *MEASURES)
    wins = {}
    for name in arguments.sets:
        of_variants = list(of_folds(name, 5, arguments.l2))
        results = {variant: [found[variant] for found in of_variants] for variant in VARIANTS}
        for variant, found in results.items():
            record.keep(
                "corrlog_cv", ["set", "model", *MEASURES], row(name, variant, *np.mean(found, axis=0))
            )
        for better, worse in PAIRS:
            wins[name, better, worse] = gains(results[better], results[worse])[:, 1:4]
    print(
        "\nDifferences of fold means, positive where the first is better, and folds of five in which it is\n"
    )
    head("set", "first", "second", "0-1", "accuracy", "F1")
    for (name, better, worse), won in wins.items():
        cells = [
            f"{gain:+.4f} ({count})"
            for gain, count in zip(won.mean(axis=0), (won >= 0).sum(axis=0), strict=True)
        ]
        cells = row(name, better, worse, *cells)[3:]
        columns = ["set", "system", "0-1", "accuracy", "F1"]
        record.keep("corrlog_cv_gains", columns, [name, f"{better}, less {worse}", *cells])


if __name__ == "__main__":
    main()
