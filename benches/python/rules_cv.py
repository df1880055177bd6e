"""Compare ten-fold cross-validation of boosted rules with Table 2 of the paper.

The training and test rows of a set are joined and divided randomly into folds. The folds of the paper are not
known. The settings are those of the paper: 5,000 rules, and predictions that are restricted to label vectors
of training rows. Both losses are measured for these predictions.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import record
import scipy.sparse as sp
from compare import heading, hold_threads
from rules_systems import SYSTEMS
from sklearn.model_selection import KFold

from rules import add_worker_arguments, check_worker_arguments, markdown, packages, prepare, run, split

# Rapp, Loza Mencía, Fürnkranz and Hüllermeier, "Gradient-based Label Binning in Multi-label Classification",
# ECML PKDD 2021, Table 2: subset 0/1 and Hamming loss in percent. With at most 25 labels, 4 % gives the same
# two bins, and the paper has no figures. Such rows cannot be compared and are left out.
PAPER = {
    "medical": {"exact": (28.82, 1.05), "exact-binned": (23.23, 0.81), "exact-two-bins": (22.77, 0.79)},
    "enron": {"exact": (83.14, 4.72), "exact-binned": (82.91, 4.72), "exact-two-bins": (82.97, 4.73)},
    "birds": {"exact": (45.30, 3.79), "exact-two-bins": (46.53, 3.87)},
    "yeast": {"exact": (76.54, 19.01), "exact-two-bins": (76.21, 18.80)},
}
# If BOOMER is measured too, its row has the same figures of the paper.
SAME = {"boomer": "exact", "default": "exact", "boomer-binned": "exact-binned", "fast-binned": "exact-binned"}
COLUMNS = [
    *["set", "system", "folds", "fit s", "subset 0/1 %", "subset of the paper %", "subset difference"],
    *["Hamming %", "Hamming of the paper %", "Hamming difference"],
]


def main():
    args = arguments()
    hold_threads(args.threads)
    print(heading(packages(args)), "", markdown(COLUMNS, [], n_left=2), sep="\n", flush=True)
    for name in args.sets:
        folds = Folds(args, name)
        for system in args.systems:
            if paper := PAPER[name].get(SAME.get(system, system)):
                cells = row(args, folds, system, paper)
                print("| " + " | ".join(cells) + " |", flush=True)
                record.keep("rules_cv", COLUMNS, cells, packages=packages(args))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", default=list(PAPER), choices=PAPER)
    default = ["exact", "exact-binned", "exact-two-bins"]
    parser.add_argument("--systems", nargs="+", default=default, choices=SYSTEMS)
    parser.add_argument("--folds", type=int, default=10)
    parser.add_argument("--rules", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1, help="seed of the folds and of the fits")
    add_worker_arguments(parser)
    args = parser.parse_args()
    check_worker_arguments(parser, args)
    return args


class Folds:
    """A data set that is divided into folds."""

    def __init__(self, args: argparse.Namespace, name: str):
        X_train, Y_train, X_test, Y_test = split(args.data / name)
        self.name = name
        self.X, self.Y = sp.vstack([X_train, X_test]).tocsr(), sp.vstack([Y_train, Y_test]).tocsr()
        deal = KFold(args.folds, shuffle=True, random_state=args.seed)
        self.rows = list(deal.split(np.empty(self.X.shape[0])))

    def parts(self):
        for train, test in self.rows:
            yield self.X[train], self.Y[train], self.X[test], self.Y[test]


def row(args: argparse.Namespace, folds: Folds, system: str, paper: tuple[float, float]) -> list[str]:
    figures = []
    for number, parts in enumerate(folds.parts(), 1):
        print(f"{folds.name}: {system}, fold {number} of {args.folds} ...", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="manylabel-bench-") as folder:
            data = Path(folder) / "fold"
            prepare(data, parts)
            figures.append(run(args, system, data, args.rules, args.seed))
    cells = [folds.name, SYSTEMS[system].title, str(len(figures))]
    cells.append(f"{np.mean([of_fold['fit_seconds'] for of_fold in figures]):.3g}")
    for part, reported in zip(("zero_one", "hamming"), paper, strict=True):
        percent = [100 * of_fold[part] for of_fold in figures]
        mean = np.mean(percent)
        cells += [f"{mean:.2f} ± {np.std(percent):.2f}", f"{reported:.2f}", f"{mean - reported:+.2f}"]
    return cells


if __name__ == "__main__":
    main()
