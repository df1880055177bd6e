"""Run our label embedding and a numpy implementation on the same data in turn, and print time, memory and
energy.

Every fit runs in a separate process (pls_worker.py), and each repetition has a different seed. This process
prepares the data, and computes the energy of all embeddings with the same code. The energy of U is trace(Uᵀ B
U) with B = Yᵀ X (XᵀX + ridge I)⁻¹ XᵀY. It measures how much of the squared labels the ridge predictions
explain. Among all U with the same number of orthonormal columns, the exact eigenvectors have the largest
energy.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import record
import scipy.sparse as sp
from compare import HERE, WorkerError, comparison, data_folder, figures_of, heading, hold_threads
from pls_peer import conjugate_gradients, product
from pls_systems import SYSTEMS, append_csr
from rates import rates
from sklearn.preprocessing import normalize

from manylabel.datasets import load_xc
from rules import markdown

SETS = ["eurlex57k", "yso-finna-en"]
COLUMNS = [
    *["set", "system", "fit s", "times faster", "fit CPU s", "CG steps", "data MB", "peak MB", "beyond MB"],
    *["energy %", "ratio"],
]


def main():
    args = arguments()
    hold_threads(args.threads)
    print(heading([(sys.executable, "manylabel")]), "", rates(args.threads)[2], "", sep="\n", flush=True)
    settings = ", ".join(f"{name}={value}" for name, value in settings_of(args, "seed").items())
    print(f"{settings}; medians of {args.repeats} seeds.", flush=True)
    for name in args.sets:
        rows = rows_of(args, name)
        print("", markdown(COLUMNS, rows, n_left=2), sep="\n", flush=True)
        for row in rows:
            record.keep("pls", COLUMNS, row)


def arguments() -> argparse.Namespace:
    parser = comparison(__doc__, SETS, SYSTEMS)
    parser.add_argument("--components", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rows", type=int, help="use only the first training rows")
    add_solver_arguments(parser)
    args = parser.parse_args()
    args.data = data_folder(parser, args.sets)
    return args


def add_solver_arguments(parser: argparse.ArgumentParser):
    """Add the options that all systems take. The defaults are our defaults for single precision."""
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--oversamples", type=int, default=20)
    parser.add_argument("--n-iter", type=int, default=1, help="number of passes of the range finder")
    parser.add_argument("--l2", type=float, default=1.0)
    parser.add_argument(
        "--max-iter", type=int, default=10, help="maximum number of conjugate gradient steps per solve"
    )
    parser.add_argument(
        "--tol",
        type=float,
        default=1e-2,
        help="tolerance for the norm of residuals: of each column in ours, of all columns in numpy",
    )


def settings_of(args: argparse.Namespace, seed) -> dict:
    return {
        "n_components": args.components,
        "n_oversamples": args.oversamples,
        "n_iter": args.n_iter,
        "l2": args.l2,
        "max_iter": args.max_iter,
        "tol": args.tol,
        "random_state": seed,
    }


def rows_of(args: argparse.Namespace, name: str) -> list[list[str]]:
    """Return the rows of the table for one data set."""
    X, Y = load_xc(args.data / name / "train.txt.gz")
    X = sp.csr_matrix(normalize(X)[: args.rows], dtype=np.float32)
    Y = sp.csr_matrix(Y[: args.rows], dtype=np.float32)
    fits: dict[str, list[dict]] = {system: [] for system in args.systems}
    failed: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="manylabel-bench-") as folder:
        data = Path(folder)
        append_csr(data, "X", X)
        append_csr(data, "Y", Y)
        for seed in range(args.repeats):
            for system in args.systems:
                print(f"{name}, seed {seed}: {system} ...", file=sys.stderr, flush=True)
                try:
                    fits[system].append(run(args, system, data, settings_of(args, seed)))
                except WorkerError as error:
                    failed[system] = f"failed: {error}"
                else:
                    print(f"{fits[system][-1]['fit_seconds']:.4g} s", file=sys.stderr, flush=True)
    weigh(args, X, Y, [fit for of_system in fits.values() for fit in of_system])
    ours = fits.get("manylabel")
    sizes = f"{name}, {X.shape[0]:,} x {X.shape[1]:,}, {Y.shape[1]:,} labels"
    return [
        [
            sizes,
            SYSTEMS[system].title,
            *(cells(fits[system], ours, Y.nnz) if fits[system] else [failed[system]]),
        ]
        for system in args.systems
    ]


def run(args: argparse.Namespace, system: str, data: Path, settings: dict, *more: str) -> dict:
    """Run a worker and return its figures. The figures of a fit include the label embedding."""
    with tempfile.TemporaryDirectory(dir=data) as scratch:
        command = [sys.executable, HERE / "pls_worker.py", system, data, scratch]
        command += ["--threads", str(args.threads), "--settings", json.dumps(settings), *more]
        figures = figures_of(command, Path(scratch))
        embedding = Path(scratch) / "embedding.npy"
        return figures | ({"embedding": np.load(embedding)} if embedding.is_file() else {})


def weigh(args: argparse.Namespace, X: sp.csr_matrix, Y: sp.csr_matrix, fits: list[dict]):
    """Add the captured energy to each fit. It is computed in float64, with a bound on its error."""
    X, Y = X.astype(np.float64), Y.astype(np.float64)
    times_x, times_xt = product(X, args.threads), product(X.T.tocsr(), args.threads)
    diagonal = np.asarray(X.multiply(X).sum(axis=0)).ravel()
    ridge = args.l2 * diagonal.mean()

    def matrix(Z):
        return times_xt(times_x(Z)) + ridge * Z

    # The numpy implementation gives the same embedding with and without threads, so its energy is reused.
    known: dict[bytes, float] = {}
    for number, fit in enumerate(fits):
        embedding = fit.pop("embedding")
        if (key := embedding.tobytes()) in known:
            fit["energy"] = known[key]
            continue
        print(f"energy {number + 1} of {len(fits)} ...", file=sys.stderr, flush=True)
        U, _ = np.linalg.qr(embedding.astype(np.float64))  # only the space that the columns span matters
        R = times_xt(Y @ U)
        Z, _ = conjugate_gradients(matrix, diagonal + ridge, R, 1000, 1e-5)
        left = R - matrix(Z)
        # For any Z, R·A⁻¹R = R·Z + Z·left + left·A⁻¹left. The last term is at most |left|² / ridge.
        fit["energy"] = known[key] = np.vdot(R + left, Z)
        if np.vdot(left, left) > 1e-6 * ridge * fit["energy"]:
            raise RuntimeError("the bound on the error of the energies is too large for the printed digits")


def cells(fits: list[dict], ours: list[dict] | None, nnz: int) -> list[str]:
    median = {part: np.median([fit[part] for fit in fits]) for part in fits[0]}
    energy = np.mean([fit["energy"] for fit in fits])
    faster = ratio = ""
    if ours:
        faster = f"{median['fit_seconds'] / np.median([fit['fit_seconds'] for fit in ours]):.3g}"
        ratio = f"{np.mean([fit['energy'] for fit in ours]) / energy:.5f}"
    return [
        f"{median['fit_seconds']:.3g}",
        faster,
        f"{median['fit_cpu_seconds']:.3g}",
        f"{median['n_iter']:.0f}",
        f"{median['data_bytes'] / 1e6:,.1f}",
        f"{median['peak_bytes'] / 1e6:,.1f}",
        f"{(median['peak_bytes'] - median['read_bytes']) / 1e6:,.1f}",
        f"{100 * energy / nnz:.3f}",
        ratio,
    ]


if __name__ == "__main__":
    main()
