"""Measure the time of partitioning, and how it grows.

The first part is a real data set with many blocks. The second part increases the numbers of rows, of labels
per row and of blocks on synthetic data. The number of rounds until nothing changes depends on the data, so
the script limits it to `ROUNDS`. The last column states the rounds of fits that stopped earlier.
"""

import argparse
import os
import statistics
import sys
from pathlib import Path
from time import perf_counter

import numpy as np
import record
from compare import heading, hold_threads

import manylabel as ml
from rules import markdown

ROUNDS = 5
SHAPE = {"n_samples": 50_000, "n_features": 20_000, "n_labels": 5_000, "labels_per_sample": 5.0}
BLOCKS = 50
COLUMNS = ["data", "blocks", "nnz(Y)", "s", "rounds"]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--set", default="yso-finna-en", help="a folder of MANYLABEL_DATA")
    parser.add_argument("--blocks", type=int, default=100, help="number of blocks on that data set")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--repeats", type=int, default=3, help="number of timed fits; the table has their median"
    )
    args = parser.parse_args()
    hold_threads(args.threads)
    print(heading([(sys.executable, "manylabel")]), "", sep="\n", flush=True)
    X, Y = ml.datasets.load_xc(Path(os.environ["MANYLABEL_DATA"]) / args.set / "train.txt.gz")
    rows = [timed(args, args.set, X, Y, args.blocks, max_iter=100)]
    print(markdown(COLUMNS, rows, n_left=1), "", sep="\n", flush=True)
    n, per_row = SHAPE["n_samples"], SHAPE["labels_per_sample"]
    for what, steps in {
        "rows": [({"n_samples": times * n}, BLOCKS) for times in (1, 2, 4, 8)],
        "labels a row": [({"labels_per_sample": times * per_row}, BLOCKS) for times in (1, 2, 4, 8)],
        "blocks": [({}, times * BLOCKS) for times in (1, 2, 4, 8)],
    }.items():
        rows = []
        for changed, n_blocks in steps:
            X, Y = ml.datasets.make_multilabel(**(SHAPE | changed), random_state=0)
            title = f"{X.shape[0]:,} x {X.shape[1]:,}, {Y.shape[1]:,} labels"
            rows.append(timed(args, title, X, Y, n_blocks, max_iter=ROUNDS))
        grown = [row[2].replace(",", "") for row in rows] if what == "labels a row" else (1, 2, 4, 8)
        exponent, _ = np.polyfit(np.log(np.array(grown, float)), np.log([float(row[3]) for row in rows]), 1)
        print(
            markdown(COLUMNS, rows, n_left=1), f"\nTime against {what}: exponent {exponent:.2f}\n", sep="\n"
        )
        sys.stdout.flush()


def timed(args, title, X, Y, n_blocks, max_iter):
    model = ml.BlockPartitioner(n_blocks, max_iter=max_iter, random_state=0, n_jobs=args.threads)
    seconds = []
    for _ in range(args.repeats):
        start = perf_counter()
        model.fit(X, Y)
        seconds.append(perf_counter() - start)
    row = [title, str(model.n_blocks_), f"{Y.nnz:,}", f"{statistics.median(seconds):.3f}", str(model.n_iter_)]
    system = f"{row[1]} blocks, {row[2]} ones in Y"
    record.write("partition_growth", title, system, record.figures(COLUMNS[1:], row[1:]))
    return row


if __name__ == "__main__":
    main()
