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


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--l2", type=float, default=1e-3, help="value of both penalties")
    arguments = parser.parse_args()
    head("set", "model", *MEASURES)
    wins = {}
    for name in arguments.sets:
        X, Y = everything(name)
        results = {variant: [] for variant in VARIANTS}
        for test in folds(len(Y), 0):
            train = np.setdiff1d(np.arange(len(Y)), test)
            for variant, params in VARIANTS.items():
                model = CorrLogClassifier(
                    **{"l2_features": arguments.l2, "l2_pairs": arguments.l2, "threshold": "zero"} | params
                )
                model.set_params(max_iter=5000)
                predicted = csr_array(model.fit(X[train], Y[train]).predict(X[test])).toarray()
                results[variant].append(measures(Y[test], predicted))
        for variant, of_folds in results.items():
            record.keep(
                "corrlog_cv", ["set", "model", *MEASURES], row(name, variant, *np.mean(of_folds, axis=0))
            )
        for better, worse in (
            ("CorrLog, elastic net", "CorrLog, l2"),
            ("CorrLog, l2", "independent, l2"),
            ("CorrLog, elastic net", "independent, elastic net"),
        ):
            gains = (np.array(results[better]) - results[worse]) * [-1, -1, 1, 1, 1, 1]
            wins[name, better, worse] = gains[:, 1:4]
    print(
        "\nDifferences of fold means, positive where the first is better, and folds of five in which it is\n"
    )
    head("set", "first", "second", "0-1", "accuracy", "F1")
    for (name, better, worse), gains in wins.items():
        cells = [
            f"{gain:+.4f} ({count})"
            for gain, count in zip(gains.mean(axis=0), (gains >= 0).sum(axis=0), strict=True)
        ]
        cells = row(name, better, worse, *cells)[3:]
        columns = ["set", "system", "0-1", "accuracy", "F1"]
        record.keep("corrlog_cv_gains", columns, [name, f"{better}, less {worse}", *cells])


if __name__ == "__main__":
    main()
