"""Fit our label embedding to synthetic documents of the size of ODP, and to increasing numbers of rows and
labels.

Each fit runs in a separate process, which reads its data from the disk. The memory before the fit is
therefore only the data and the imports. The data are made in blocks and written to the disk, so no process
holds all of them while they are made.
"""

import argparse
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import record
from compare import WorkerError, heading, hold_threads
from planted import Planted
from pls_systems import SYSTEMS, append_csr
from rates import rates

from pls import add_solver_arguments, run, settings_of
from rules import markdown

ROWS = [100_000, 200_000, 400_000, 800_000]
LABELS = [10_000, 30_000, 100_000, 300_000]  # number of rows of ODP, each with one label
COLUMNS = [
    *["rows", "features", "labels", "nnz/row", "fit s", "fit CPU s", "CG steps"],
    *["data MB", "peak MB", "beyond MB"],
]


def main():
    args = arguments()
    hold_threads(args.threads)
    print(heading([(sys.executable, "manylabel")]), "", rates(args.threads)[2], sep="\n")
    settings = ", ".join(f"{name}={value}" for name, value in settings_of(args, 0).items())
    print(f"\n{SYSTEMS[args.system].title}, {settings}.\n", flush=True)
    whole = Planted(args.rows, args.features, args.labels)
    if args.growth in (None, "none"):
        print(markdown(COLUMNS, [measure(args, whole)[0]], n_left=0), flush=True)
    if args.growth in (None, "rows"):
        growth(args, "n_rows", [replace(whole, n_rows=n) for n in args.growth_rows])
    if args.growth in (None, "labels"):
        n_rows = args.growth_rows[0]
        growth(args, "n_labels", [replace(whole, n_rows=n_rows, n_labels=c) for c in args.growth_labels])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--system", default="manylabel", choices=SYSTEMS)
    parser.add_argument("--rows", type=int, default=Planted.n_rows)
    parser.add_argument("--features", type=int, default=Planted.n_features)
    parser.add_argument("--labels", type=int, default=Planted.n_labels)
    parser.add_argument("--components", type=int, default=300)
    parser.add_argument(
        "--growth", choices=["none", "rows", "labels"], help="run only one of the three parts"
    )
    parser.add_argument(
        "--growth-rows",
        nargs="+",
        type=int,
        default=ROWS,
        help="numbers of rows; labels grow on the first number",
    )
    parser.add_argument("--growth-labels", nargs="+", type=int, default=LABELS)
    add_solver_arguments(parser)
    args = parser.parse_args()
    for name in ("growth_rows", "growth_labels"):
        if len(set(getattr(args, name))) < 2:
            parser.error(
                f"--{name.replace('_', '-')}: expected at least two different numbers, to compute an exponent"
            )
    return args


def growth(args: argparse.Namespace, along: str, sizes: list[Planted]):
    """Return the table of these sizes, and the exponents with which the time grows."""
    measured = [measure(args, size) for size in sizes]
    print(f"\n{markdown(COLUMNS, [row for row, _ in measured], n_left=0)}\n")
    fitted = [(getattr(size, along), figures) for size, (_, figures) in zip(sizes, measured, strict=True)]
    counts = [count for count, figures in fitted if figures]
    if len(counts) > 1:
        seconds = [figures["fit_seconds"] for _, figures in fitted if figures]
        exponent, _ = np.polyfit(np.log(counts), np.log(seconds), 1)
        print(f"Time against {along}: exponent {exponent:.2f}.", flush=True)


def measure(args: argparse.Namespace, size: Planted) -> tuple[list[str], dict | None]:
    """Return a row of the table, and the figures from which it is made."""
    with tempfile.TemporaryDirectory(prefix="manylabel-bench-") as folder:
        data = Path(folder)
        print(f"{size}: data ...", file=sys.stderr, flush=True)
        nnz = 0
        for X, Y in size.blocks():
            append_csr(data, "X", X)
            append_csr(data, "Y", Y)
            nnz += X.nnz
        row = [f"{size.n_rows:,}", f"{size.n_features:,}", f"{size.n_labels:,}", f"{nnz / size.n_rows:.1f}"]
        print(f"{size}: fit ...", file=sys.stderr, flush=True)
        try:
            figures = run(args, args.system, data, settings_of(args, 0))
        except WorkerError as error:
            return [*row, f"failed: {error}"], None
    row += [f"{figures['fit_seconds']:.4g}", f"{figures['fit_cpu_seconds']:.4g}"]
    row += [
        str(figures["n_iter"]),
        f"{figures['data_bytes'] / 1e6:,.1f}",
        f"{figures['peak_bytes'] / 1e6:,.1f}",
    ]
    row.append(f"{(figures['peak_bytes'] - figures['read_bytes']) / 1e6:,.1f}")
    name = f"planted, {size.n_rows:,} rows, {size.n_labels:,} labels"
    system = f"{SYSTEMS[args.system].title}, {args.components} components"
    record.write("pls_planted", name, system, record.figures(COLUMNS, row))
    return row, figures


if __name__ == "__main__":
    main()
