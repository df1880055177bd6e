"""Compare ten-fold cross-validation of boosted rules with Table 2 of the paper. `--runs` uses fewer folds.

The training and test rows of a set are joined and divided randomly into folds. The folds of the paper are not
known. The settings are those of the paper: 5,000 rules, and predictions that are restricted to label vectors
of training rows. Both losses are measured for these predictions.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import published
import record
import scipy.sparse as sp
from compare import heading, hold_threads
from rules_systems import SYSTEMS
from sklearn.model_selection import KFold

from rules import add_worker_arguments, check_worker_arguments, markdown, packages, prepare, run, split

SETS = ["medical", "enron", "birds", "yeast"]
# Column of Table 2 with which a system is compared.
COLUMN_OF = {
    **dict.fromkeys(("exact", "default", "boomer"), "no bins"),
    **dict.fromkeys(("exact-32", "boomer-32"), "32 %"),
    **dict.fromkeys(("exact-16", "boomer-16"), "16 %"),
    **dict.fromkeys(("exact-8", "boomer-8"), "8 %"),
    **dict.fromkeys(("exact-binned", "fast-binned", "boomer-binned"), "4 %"),
    **dict.fromkeys(("exact-two-bins", "boomer-two-bins"), "2 bins"),
    **dict.fromkeys(("label-wise", "label-wise-single"), "label-wise"),
    **dict.fromkeys(("boomer-label-wise", "boomer-label-wise-single"), "label-wise"),
}
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
            if paper := published.losses(name).get(COLUMN_OF[system]):
                cells = row(args, folds, system, paper)
                print("| " + " | ".join(cells) + " |", flush=True)
                record.keep("rules_cv", COLUMNS, cells, packages=packages(args))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", default=SETS, choices=published.RULES)
    default = ["exact", "exact-binned", "exact-two-bins"]
    parser.add_argument("--systems", nargs="+", default=default, choices=COLUMN_OF)
    parser.add_argument("--folds", type=int, default=10)
    parser.add_argument(
        "--runs", type=int, metavar="N", help="use only the first N folds as test rows (default: all)"
    )
    parser.add_argument("--rules", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1, help="seed of the folds and of the fits")
    add_worker_arguments(parser)
    args = parser.parse_args()
    args.runs = args.folds if args.runs is None else args.runs
    if not 1 <= args.runs <= args.folds:
        parser.error(f"--runs must be between 1 and {args.folds}, the number of folds, got {args.runs}")
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


def of_folds(args: argparse.Namespace, folds: Folds, system: str) -> Iterator[dict[str, float]]:
    """Yield the figures of the fit without each fold."""
    for parts in folds.parts():
        with tempfile.TemporaryDirectory(prefix="manylabel-bench-") as folder:
            data = Path(folder) / "fold"
            prepare(data, parts)
            yield run(args, system, data, args.rules, args.seed)


def row(args: argparse.Namespace, folds: Folds, system: str, paper: tuple[str, str]) -> list[str]:
    figures = []
    for number, of_fold in enumerate(islice(of_folds(args, folds, system), args.runs), 1):
        print(f"{folds.name}: {system}, fold {number} of {args.runs}", file=sys.stderr, flush=True)
        figures.append(of_fold)
    cells = [folds.name, SYSTEMS[system].title, str(len(figures))]
    cells.append(f"{np.mean([of_fold['fit_seconds'] for of_fold in figures]):.3g}")
    for part, reported in zip(("zero_one", "hamming"), paper, strict=True):
        percent = [100 * of_fold[part] for of_fold in figures]
        mean = np.mean(percent)
        cells += [f"{mean:.2f} ± {np.std(percent):.2f}", reported, f"{mean - float(reported):+.2f}"]
    return cells


if __name__ == "__main__":
    main()
