"""Run our classifier and other libraries on the same data, in turn, and record the figures.

Every system is measured in a separate process (worker.py). Our classifier runs with the Python that runs this
script, and the other libraries run with the Python of ``.venv-peers``. This process prepares the data. It
computes P@k and PSP@k of all systems with the same code, and writes the table. If a system fails, its row
states the reason.
"""

import argparse
import datetime
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import record
import scipy.sparse as sp
from sklearn.preprocessing import normalize
from systems import SYSTEMS

from manylabel.datasets import load_xc
from manylabel.metrics import precision_at_k, propensities, psp_at_k

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SETS = ["bibtex", "delicious", "eurlex57k", "citeulike-t", "yso-finna-en"]
TIMEOUT = 4 * 3600  # time limit in seconds for one system on one set
KS = (1, 3, 5)
COLUMNS = [
    *["system", "fit s", "fit ms/label", "test s", "rows/s", "one row p50 ms", "p99 ms", "load s"],
    *["data MB", "peak MB", "model MB", *(f"P@{k}" for k in KS), *(f"PSP@{k}" for k in KS)],
]


def main():
    args = arguments()
    hold_threads(args.threads)
    print(heading(packages(args)), flush=True)
    for name in args.sets:
        with tempfile.TemporaryDirectory(prefix="manylabel-bench-") as folder:
            data = args.data / name
            train, test = load_xc(data / "train.txt.gz"), load_xc(data / "test.txt.gz")
            print(f"\n{table(args, name, train, test, Path(folder))}", flush=True)


def arguments() -> argparse.Namespace:
    parser = comparison(__doc__, SETS, SYSTEMS)
    add_options(parser)
    parser.add_argument("--seed", type=int, default=0, help="seed of the systems that accept one")
    parser.add_argument(
        "--sample-labels",
        type=int,
        default=50,
        metavar="N",
        help="number of labels that scikit-learn fits if there are many labels",
    )
    args = parser.parse_args()
    args.data = data_folder(parser, args.sets)
    check_peers(parser, args)
    return args


def add_options(parser: argparse.ArgumentParser):
    """Add the options that comparisons of whole fits and predictions share."""
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3, help="number of timed predictions of the test set")
    parser.add_argument("--peer-python", type=Path, default=ROOT / ".venv-peers/bin/python")
    parser.add_argument(
        "--append",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="append the figures to the records",
    )


def check_peers(parser: argparse.ArgumentParser, args: argparse.Namespace):
    """End with an error if a system needs the Python of ``.venv-peers`` and it does not exist."""
    if (
        any(interpreter(args, system) != sys.executable for system in args.systems)
        and not args.peer_python.is_file()
    ):
        parser.error(
            f"{args.peer_python} does not exist; run `make .venv-peers/installed`, or use --peer-python"
        )


def comparison(description: str, sets: list[str], systems: dict) -> argparse.ArgumentParser:
    """Return a command line parser with the options of a comparison: the data sets and the systems."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", default=sets, help="folders of MANYLABEL_DATA")
    parser.add_argument("--systems", nargs="+", default=list(systems), choices=systems)
    return parser


def data_folder(parser: argparse.ArgumentParser, sets: list[str]) -> Path:
    """Return the folder of data sets. End with an error if the folder lacks the training rows of a set."""
    if not os.environ.get("MANYLABEL_DATA"):
        parser.error("set MANYLABEL_DATA to the folder of data sets")
    data = Path(os.environ["MANYLABEL_DATA"])
    for name in sets:
        if not (data / name / "train.txt.gz").is_file():
            parser.error(f"--sets: {data / name} has no train.txt.gz")
    return data


def hold_threads(n_threads: int):
    """Limit all thread pools that a system may use to the same number of threads."""
    pools = ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"]
    os.environ |= dict.fromkeys(pools, str(n_threads))
    # If another thread needs its core, an OpenMP thread that spins at a barrier delays it by 100 ms or more.
    os.environ["OMP_WAIT_POLICY"] = "passive"


def heading(packages: list[tuple[str, str]]) -> str:
    """Return the date, commit, machine and command, and the versions of `packages`, which are pairs of a
    Python and a distribution.
    """
    lines = [
        f"### {datetime.date.today()}, commit {record.commit()}",
        "",
        f"- machine: {record.machine()}; load average at the start {record.LOAD:.2f}",
        f"- command: `{record.command()}`",
        *(f"- {line}" for line in record.all_versions(tuple(packages))),
    ]
    return "\n".join(lines)


def packages(args: argparse.Namespace) -> list[tuple[str, str]]:
    """Return the packages whose versions are reported, as pairs of a Python and a distribution."""
    return [(interpreter(args, system), SYSTEMS[system].package) for system in args.systems]


def interpreter(args: argparse.Namespace, system: str) -> str:
    return sys.executable if system.startswith("manylabel") else str(args.peer_python)


def table(
    args: argparse.Namespace, name: str, train: tuple, test: tuple, folder: Path, topic: str = "compare"
) -> str:
    """Return the figures of the systems on one data set, as Markdown. Each system is recorded as soon as it
    is measured. `train` and `test` are pairs of X and Y.
    """
    (X_train, Y_train), (X_test, Y_test) = train, test
    # Some systems would rank a label without examples above all labels that they have learned.
    known = np.unique(Y_train.indices)
    parts = {"X_train": normalize(X_train), "Y_train": Y_train[:, known], "X_test": normalize(X_test)}
    for part, matrix in parts.items():
        # This is csr_matrix and not csr_array, since napkinXC checks the type.
        sp.save_npz(folder / f"{part}.npz", sp.csr_matrix(matrix, dtype=np.float32), compressed=False)
    propensity = propensities(Y_train)
    sizes = (
        f"{X_train.shape[0]:,} + {X_test.shape[0]:,} rows, {X_train.shape[1]:,} features,"
        f" {len(known):,} labels with an example"
    )

    rows = []

    def add(row: list[str]):
        rows.append(row)
        if args.append:
            figures = record.figures(COLUMNS[1:], row[1:])
            record.write(topic, name, row[0], figures, data=sizes, packages=packages(args))

    for system in args.systems:
        print(f"{name}: {system} ...", file=sys.stderr, flush=True)
        title = SYSTEMS[system].title
        sampled = len(known) > SYSTEMS[system].whole_up_to
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            try:
                figures = run(args, system, folder, Path(scratch), sampled)
            except WorkerError as error:
                rows.append([title, f"failed: {error}"])
                continue
            if sampled:
                add(
                    [
                        f"{title}: {args.sample_labels} labels, 1 thread",
                        "",
                        f"{1000 * figures['label_seconds']:.3g}",
                    ]
                )
                continue
            scores = as_scores(np.load(Path(scratch) / "top.npy"), known, Y_train.shape[1])
        measures = [*precision_at_k(Y_test, scores, k=KS), *psp_at_k(Y_test, scores, propensity, k=KS)]
        add([title, *cells(figures, len(known), X_test.shape[0]), *(f"{100 * m:.2f}" for m in measures)])

    lines = [f"**{name}** ({sizes})", ""]
    lines += ["| " + " | ".join(COLUMNS) + " |", "|---" + "|---:" * (len(COLUMNS) - 1) + "|"]
    lines += ["| " + " | ".join(row + [""] * (len(COLUMNS) - len(row))) + " |" for row in rows]
    return "\n".join(lines)


class WorkerError(Exception):
    """A worker failed. The message states the reason in a few words."""


def run(args: argparse.Namespace, system: str, data: Path, scratch: Path, sampled: bool) -> dict[str, float]:
    command = [interpreter(args, system), HERE / "worker.py", system, data, scratch]
    command += ["--threads", str(args.threads), "--repeats", str(args.repeats), "--seed", str(args.seed)]
    if sampled:
        command += ["--sample-labels", str(args.sample_labels)]
    return figures_of(command, scratch)


def figures_of(command: list, scratch: Path) -> dict[str, float]:
    """Run a worker and return the content of its ``figures.json``."""
    try:
        done = subprocess.run(command, text=True, errors="replace", capture_output=True, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        raise WorkerError(f"did not finish within {TIMEOUT} s") from None
    if done.returncode < 0:
        raise WorkerError(f"ended by {signal.Signals(-done.returncode).name}")
    if done.returncode:
        raise WorkerError(done.stderr.strip().splitlines()[-1][:200].replace("|", "/"))
    return json.loads((scratch / "figures.json").read_text())


def as_scores(top: np.ndarray, known: np.ndarray, n_labels: int) -> sp.csr_array:
    """Convert the ranked labels of a system to CSR scores over all labels of the set, in the same order."""
    row, rank = np.nonzero(top >= 0)
    scores = (top.shape[1] - rank).astype(np.float32)
    return sp.csr_array((scores, (row, known[top[row, rank]])), shape=(top.shape[0], n_labels))


def cells(figures: dict[str, float], n_labels: int, n_rows: int) -> list[str]:
    return [
        f"{figures['fit_seconds']:.4g}",
        f"{1000 * figures['fit_seconds'] / n_labels:.3g}",
        f"{figures['predict_seconds']:.3g}",
        f"{n_rows / figures['predict_seconds']:,.0f}",
        f"{1000 * figures['p50_seconds']:.3g}",
        f"{1000 * figures['p99_seconds']:.3g}",
        f"{figures['load_seconds']:.3g}",
        *(f"{figures[part] / 1e6:,.1f}" for part in ("data_bytes", "peak_bytes", "model_bytes")),
    ]


if __name__ == "__main__":
    main()
