"""Measure the product of sparse rows and a dense matrix, which takes most of the time of a label embedding.

The product is `transform` with random weights, by our code and by scipy. It is measured on real data sets and
on synthetic rows (the set "planted"), beside the best rates of the machine. The number of bytes assumes that
no row of W stays in the cache: one row of W per entry, the entries, and the result.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import record
import scipy.sparse as sp
from compare import WorkerError, comparison, data_folder, heading, hold_threads
from planted import Planted
from pls_systems import SYSTEMS, append_csr
from rates import rates
from sklearn.preprocessing import normalize

from manylabel.datasets import load_xc
from pls import run
from rules import markdown

SETS = ["eurlex57k", "yso-finna-en", "planted"]
COLUMNS = [
    *["set", "system", "nnz/row", "ms", "rows/s", "GFLOP/s", "% of matrix product", "GB/s", "% of copy"],
]


def main():
    args = arguments()
    hold_threads(args.threads)
    gemm, copy, text = rates(args.threads)
    print(heading([(sys.executable, "manylabel")]), "", text, sep="\n")
    print(f"W has {args.components} columns; medians of {args.repeats} products.\n", flush=True)
    rows = []
    for name in args.sets:
        with tempfile.TemporaryDirectory(prefix="manylabel-bench-") as folder:
            sizes = prepare(args, name, Path(folder))
            for system in args.systems:
                print(f"{name}: {system} ...", file=sys.stderr, flush=True)
                try:
                    products = "--columns", str(args.components), "--repeats", str(args.repeats)
                    settings = {"n_components": 2, "max_iter": 1, "random_state": 0}
                    figures = run(args, system, Path(folder), settings, *products)
                except WorkerError as error:
                    rows.append([sizes, SYSTEMS[system].title, f"failed: {error}"])
                else:
                    rows.append([sizes, SYSTEMS[system].title, *cells(figures, args.components, gemm, copy)])
    print(markdown(COLUMNS, rows, n_left=2))
    for row in rows:
        record.keep("pls_product", COLUMNS, row)


def arguments() -> argparse.Namespace:
    parser = comparison(__doc__, SETS, SYSTEMS)
    parser.add_argument("--components", type=int, default=320)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--rows", type=int, default=200_000, help="number of synthetic rows, and maximum number of real rows"
    )
    args = parser.parse_args()
    real = [name for name in args.sets if name != "planted"]
    args.data = data_folder(parser, real) if real else None
    return args


def prepare(args: argparse.Namespace, name: str, data: Path) -> str:
    """Write X and Y for the worker, and return a text with their sizes."""
    if name == "planted":
        blocks = Planted(n_rows=args.rows).blocks()
    else:
        X, Y = load_xc(args.data / name / "train.txt.gz")
        blocks = iter([(sp.csr_matrix(normalize(X)[: args.rows]), sp.csr_matrix(Y[: args.rows]))])
    n_rows = 0
    for X, Y in blocks:
        append_csr(data, "X", X)
        append_csr(data, "Y", Y)
        n_rows += X.shape[0]
    return f"{name}, {n_rows:,} x {X.shape[1]:,}"


def cells(figures: dict, width: int, gemm: float, copy: float) -> list[str]:
    n_rows, nnz = figures["n_rows"], figures["nnz"]
    flops = 2 * nnz * width / figures["seconds"]
    entry = np.dtype(np.float32).itemsize * width
    moved = (nnz * (entry + 8) + n_rows * entry) / figures["seconds"]
    return [
        f"{nnz / n_rows:.1f}",
        f"{1000 * figures['seconds']:.4g}",
        f"{n_rows / figures['seconds']:,.0f}",
        f"{flops / 1e9:.1f}",
        f"{100 * flops / gemm:.0f}",
        f"{moved / 1e9:.1f}",
        f"{100 * moved / copy:.0f}",
    ]


if __name__ == "__main__":
    main()
