"""Measure the memory of boosted rules on many rows, and how the time of a fit grows with the number of
labels.

The data are synthetic (`manylabel.datasets.make_multilabel`). Each fit runs in a separate process, which
reads its data from the disk. The memory before the fit is therefore only the data and the imports. Memory
that was freed while the data were made does not affect the measurement.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import record
from compare import heading, hold_threads
from rules_systems import SYSTEMS

from manylabel.datasets import make_multilabel
from rules import add_worker_arguments, markdown, packages, prepare, run

# These sizes resemble EUR-Lex.
WITHIN = {"n_samples": 17_000, "n_features": 5_000, "n_nonzero": 200, "labels_per_sample": 2.2}
ALONG = {"n_samples": 5_000, "n_features": 1_000, "n_nonzero": 50, "labels_per_sample": 3.0}


def main():
    args = arguments()
    hold_threads(args.threads)
    print(heading(packages(args)), "", sep="\n", flush=True)
    print(memory_of_fits(args), "", sep="\n", flush=True)
    print(time_of_fits(args), flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--systems", nargs="+", default=["fast-binned", "exact-binned", "default"], choices=SYSTEMS
    )
    parser.add_argument("--labels", nargs="+", type=int, default=[25, 50, 100, 200, 400])
    parser.add_argument("--rules", type=int, default=200)
    parser.add_argument(
        "--fits", type=int, default=3, help="number of timed fits of each size; the table has their median"
    )
    add_worker_arguments(parser)
    args = parser.parse_args()
    if len(set(args.labels)) < 2:
        parser.error("--labels: expected at least two different numbers, to compute an exponent")
    return args


def fits(args: argparse.Namespace, system: str, n_labels: int, n_fits: int, sizes: dict) -> list[dict]:
    """Return the figures of `n_fits` fits to the same synthetic data, with different seeds."""
    print(f"{n_labels} labels: {system} ...", file=sys.stderr, flush=True)
    X, Y = make_multilabel(n_labels=n_labels, **sizes, random_state=0)
    with tempfile.TemporaryDirectory(prefix="manylabel-bench-") as folder:
        data = Path(folder) / "planted"
        prepare(data, (X, Y, X[:100], Y[:100]))
        return [run(args, system, data, args.rules, seed) for seed in range(1, n_fits + 1)]


def memory_of_fits(args: argparse.Namespace) -> str:
    n_labels, rows = 201, []
    for system in args.systems:
        (figures,) = fits(args, system, n_labels, 1, WITHIN)
        before, peak = figures["data_bytes"] / 1e6, figures["peak_bytes"] / 1e6
        rows.append([SYSTEMS[system].title, f"{figures['fit_seconds']:.3g}"])
        rows[-1] += [f"{size:,.1f}" for size in (before, peak, peak - before)]
    columns = ["system", "fit s", "before MB", "peak MB", "fit's MB"]
    keep(args, columns, rows, n_labels, WITHIN)
    sizes = f"{WITHIN['n_samples']:,} rows, {WITHIN['n_features']:,} features, {n_labels} labels"
    return f"Memory, {args.rules} rules on planted data ({sizes}):\n\n{markdown(columns, rows, n_left=1)}"


def keep(args: argparse.Namespace, columns: list[str], rows: list[list[str]], n_labels: object, sizes: dict):
    """Record the rows of the table for synthetic data of these sizes."""
    shape = f"{sizes['n_samples']:,} rows, {sizes['n_features']:,} features, {n_labels} labels"
    for system, *cells in rows:
        cells = [f"planted, {shape}", f"{system}, {args.rules} rules", *cells]
        record.keep("rules_growth", ["set", *columns], cells, packages=packages(args))


def time_of_fits(args: argparse.Namespace) -> str:
    rows = []
    for system in args.systems:
        seconds = [
            np.median([figures["fit_seconds"] for figures in fits(args, system, n_labels, args.fits, ALONG)])
            for n_labels in args.labels
        ]
        exponent, _ = np.polyfit(np.log(args.labels), np.log(seconds), 1)
        rows.append([SYSTEMS[system].title, *(f"{time:.3g}" for time in seconds), f"{exponent:.2f}"])
    columns = ["system", *(f"{n_labels} labels" for n_labels in args.labels), "exponent"]
    keep(args, columns, rows, "growing", ALONG)
    sizes = f"{ALONG['n_samples']:,} rows, {ALONG['n_features']:,} features"
    return (
        f"Fit seconds, {args.rules} rules on planted data ({sizes}):\n\n{markdown(columns, rows, n_left=1)}"
    )


if __name__ == "__main__":
    main()
