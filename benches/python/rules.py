"""Run our boosted rules and mlrl-boomer on the same data in turn, with each fit in a separate process.

Every fit appends one JSON line to the file ``--results``. If the file has a line of the same version, the fit
is not measured again, so results can be collected over several runs. ``--again`` measures the fit again.
``--quiet`` states that nothing else runs on the machine; fits that were measured without this option are then
measured again. The tables at the end are made from all lines. If a system has quiet times on a set, the
tables show only these. Otherwise they show all times, marked with a tilde.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import record
import scipy.sparse as sp
from compare import HERE, ROOT, WorkerError, figures_of, heading, hold_threads
from rules_systems import SYSTEMS
from sklearn.metrics import hamming_loss, zero_one_loss

from manylabel.datasets import load_xc

SETS = ["medical", "birds", "enron", "yeast", "eukaryote-go", "bibtex", "reuters-k500"]
IN_TURN = ["boomer", "exact", "default", "boomer-binned", "exact-binned", "fast-binned"]
COLUMNS = [
    *["set", "system", "seeds", "rules", "fit s", "fit CPU s", "fit times faster", "test s"],
    *["test times faster", "data MB", "peak MB", "subset 0/1 %", "subset less peer's", "Hamming %"],
    "Hamming less peer's",
]

# Columns that need several seeds, and their names in the records that have only losses.
OF_SEEDS = {
    "seeds": "seeds",
    "subset 0/1 %": "subset 0/1 %",
    "subset less peer's": "less peer's",
    "Hamming %": "Hamming %",
}

Parts = tuple[sp.csr_array, sp.csr_array, sp.csr_array, sp.csr_array]


def main():
    args = arguments()
    hold_threads(args.threads)
    if args.systems:
        with tempfile.TemporaryDirectory(prefix="manylabel-bench-") as folder:
            collect(args, Path(folder))
    print(heading(packages(args)), tables(args), sep="\n\n")
    for row in details(args):
        record.keep("rules", COLUMNS, row, packages=packages(args))
        if int(row[COLUMNS.index("seeds")]) > 1:
            several = {COLUMNS.index(column): column for column in COLUMNS if column in OF_SEEDS}
            cells = [*row[:2], *(row[at] for at in several)]
            record.keep("rules_losses", ["set", "system", *OF_SEEDS.values()], cells, packages=packages(args))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, required=True, help="file to which JSON lines are appended")
    parser.add_argument("--sets", nargs="+", default=SETS, help="folders of MANYLABEL_DATA")
    parser.add_argument(
        "--systems",
        nargs="*",
        default=IN_TURN,
        choices=SYSTEMS,
        help="systems to measure; without names, only print the tables",
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3, 4, 5])
    parser.add_argument("--rules", type=int, default=500)
    parser.add_argument("--quiet", action="store_true", help="state that nothing else runs on this machine")
    parser.add_argument("--again", action="store_true", help="repeat measurements that the file already has")
    add_worker_arguments(parser)
    args = parser.parse_args()
    check_worker_arguments(parser, args)
    return args


def add_worker_arguments(parser: argparse.ArgumentParser):
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3, help="number of timed predictions of the test set")
    parser.add_argument("--peer-python", type=Path, default=ROOT / ".venv-boomer/bin/python")


def check_worker_arguments(parser: argparse.ArgumentParser, args: argparse.Namespace):
    if not os.environ.get("MANYLABEL_DATA"):
        parser.error("set MANYLABEL_DATA to the folder of data sets")
    args.data = Path(os.environ["MANYLABEL_DATA"])
    for name in args.sets:
        if not any((args.data / name / f"{part}.txt.gz").is_file() for part in ("train", "all")):
            parser.error(f"--sets: {args.data / name} has neither train.txt.gz nor all.txt.gz")
    if not all(Path(interpreter(args, system)).is_file() for system in args.systems):
        parser.error(
            f"{args.peer_python} does not exist; install rules_peers.txt there, or use --peer-python"
        )


def interpreter(args: argparse.Namespace, system: str) -> str:
    return sys.executable if SYSTEMS[system].package == "manylabel" else str(args.peer_python)


def packages(args: argparse.Namespace) -> list[tuple[str, str]]:
    return [(interpreter(args, system), SYSTEMS[system].package) for system in args.systems]


def collect(args: argparse.Namespace, folder: Path):
    """Measure the missing fits. All sets are measured with one seed before the next seed, so that an
    interrupted run covers all sets.
    """
    known = {key(line) for line in results(args)}
    version = {system: version_of(args, system) for system in args.systems}
    for seed in args.seeds:
        for name in args.sets:
            for system in args.systems:
                line = {"set": name, "system": system, "seed": seed, "rules": args.rules}
                line |= {"version": version[system], "threads": args.threads, "quiet": args.quiet}
                wanted = {key(line | {"quiet": quiet}) for quiet in {True, args.quiet}}
                if wanted & known and not args.again:
                    continue
                data = folder / name
                if not data.is_dir():
                    prepare(data, split(args.data / name))
                print(f"{name}, seed {seed}: {system} ...", file=sys.stderr, flush=True)
                try:
                    line |= run(args, system, data, args.rules, seed)
                except WorkerError as error:
                    print(f"failed: {error}", file=sys.stderr, flush=True)
                    continue
                with args.results.open("a") as file:
                    file.write(json.dumps(line) + "\n")


def version_of(args: argparse.Namespace, system: str) -> str:
    package = SYSTEMS[system].package
    if package == "manylabel":
        return record.commit()
    return record.versions(interpreter(args, system), [package]).split()[-1]


def key(line: dict) -> tuple:
    return tuple(line[part] for part in ("set", "system", "seed", "rules", "threads", "version", "quiet"))


def results(args: argparse.Namespace) -> list[dict]:
    if not args.results.is_file():
        return []
    return [json.loads(line) for line in args.results.read_text().splitlines()]


def split(folder: Path) -> Parts:
    """Return X and Y for training, and X and Y for testing. A set without a split is divided randomly, with
    two thirds for training.
    """
    if (folder / "train.txt.gz").is_file():
        return (*load_xc(folder / "train.txt.gz"), *load_xc(folder / "test.txt.gz"))
    X, Y = load_xc(folder / "all.txt.gz")
    train, test = np.split(np.random.default_rng(0).permutation(X.shape[0]), [2 * X.shape[0] // 3])
    return X[train], Y[train], X[test], Y[test]


def prepare(data: Path, parts: Parts):
    """Write the training and test rows in the form that the worker reads."""
    data.mkdir()
    for part, matrix in zip(("X_train", "Y_train", "X_test", "Y_test"), parts, strict=True):
        sp.save_npz(data / f"{part}.npz", sp.csr_matrix(matrix, dtype=np.float32), compressed=False)


def run(args: argparse.Namespace, system: str, data: Path, n_rules: int, seed: int) -> dict[str, float]:
    """Return the figures of one fit, including the losses on the test rows."""
    with tempfile.TemporaryDirectory(dir=data) as scratch:
        command = [interpreter(args, system), HERE / "rules_worker.py", system, data, scratch]
        command += ["--threads", str(args.threads), "--repeats", str(args.repeats)]
        command += ["--rules", str(n_rules), "--seed", str(seed)]
        figures = figures_of(command, Path(scratch))
        predicted = sp.load_npz(Path(scratch) / "labels.npz")
    Y = sp.load_npz(data / "Y_test.npz").astype(predicted.dtype)
    return figures | {"zero_one": zero_one_loss(Y, predicted), "hamming": hamming_loss(Y, predicted)}


class Figures:
    """Means over the seeds, for one system on one data set."""

    def __init__(self, lines: list[dict]):
        self.of_seed = {line["seed"]: line for line in lines}  # keeps the newest line of each seed
        quiet = {line["seed"]: line for line in lines if line["quiet"]}
        self.timed = list((quiet or self.of_seed).values())
        self.mark = "" if quiet else "~"

    def time(self, part: str) -> float:
        return float(np.mean([line[part] for line in self.timed]))

    def seconds(self, part: str) -> str:
        return f"{self.mark}{self.time(part):.3g}"

    def times_faster(self, part: str, peer: "Figures") -> str:
        mark = max(self.mark, peer.mark)
        return f"{mark}{peer.time(part) / self.time(part):.3g}"

    def loss(self, part: str) -> str:
        values = [100 * line[part] for line in self.of_seed.values()]
        return f"{np.mean(values):.2f} ± {np.std(values):.2f}"

    def less(self, part: str, peer: "Figures") -> str:
        """Return the loss minus the loss of the other library, in percentage points, on the seeds that both
        have.
        """
        seeds = self.of_seed.keys() & peer.of_seed.keys()
        if not seeds:
            return ""
        return f"{100 * np.mean([self.of_seed[s][part] - peer.of_seed[s][part] for s in seeds]):+.2f}"


def measured(args: argparse.Namespace) -> dict[tuple[str, str], Figures]:
    """Return all results with this number of rules and threads, by data set and system."""
    lines = [line for line in results(args) if (line["rules"], line["threads"]) == (args.rules, args.threads)]
    figures: dict[tuple[str, str], Figures] = {}
    for name in args.sets:
        for system in SYSTEMS:
            if of_both := [line for line in lines if (line["set"], line["system"]) == (name, system)]:
                figures[name, system] = Figures(of_both)
    return figures


def details(args: argparse.Namespace) -> list[list[str]]:
    """Return one row with all figures per data set and system."""
    figures = measured(args)
    return [[name, SYSTEMS[system].title, *cells(figures, name, system)] for name, system in figures]


def tables(args: argparse.Namespace) -> str:
    """Return two tables: all figures, and a short comparison of the systems."""
    figures = measured(args)
    ours = [system for system in SYSTEMS if SYSTEMS[system].peer and any(s == system for _, s in figures)]
    summary = {name: [name] for name in args.sets}
    for name in args.sets:
        for system in ours:
            summary[name] += short(figures, name, system)
    titles = [f"{SYSTEMS[s].title}: {part}" for s in ours for part in ("fit", "test", "subset 0/1")]
    parts = [markdown(COLUMNS, details(args), n_left=2)]
    if ours:
        parts.append(
            "Times faster than the peer at the same binning, and points of subset 0/1 loss less its own:"
        )
        parts.append(markdown(["set", *titles], list(summary.values()), n_left=1))
    return "\n\n".join(parts)


def cells(figures: dict[tuple[str, str], Figures], name: str, system: str) -> list[str]:
    own, peer = figures[name, system], figures.get((name, SYSTEMS[system].peer or ""))
    rules = [line["fitted_rules"] for line in own.of_seed.values()]
    return [
        str(len(own.of_seed)),
        str(rules[0]) if len(set(rules)) == 1 else f"{min(rules)} to {max(rules)}",
        own.seconds("fit_seconds"),
        own.seconds("fit_cpu_seconds"),
        own.times_faster("fit_seconds", peer) if peer else "",
        own.seconds("predict_seconds"),
        own.times_faster("predict_seconds", peer) if peer else "",
        *(f"{own.time(part) / 1e6:,.1f}" for part in ("data_bytes", "peak_bytes")),
        own.loss("zero_one"),
        own.less("zero_one", peer) if peer else "",
        own.loss("hamming"),
        own.less("hamming", peer) if peer else "",
    ]


def short(figures: dict[tuple[str, str], Figures], name: str, system: str) -> list[str]:
    own, peer = figures.get((name, system)), figures.get((name, SYSTEMS[system].peer or ""))
    if not own or not peer:
        return ["", "", ""]
    times = [own.times_faster(part, peer) for part in ("fit_seconds", "predict_seconds")]
    return [*times, own.less("zero_one", peer)]


def markdown(columns: list[str], rows: list[list[str]], n_left: int) -> str:
    rule = "|---" * n_left + "|---:" * (len(columns) - n_left) + "|"
    return "\n".join(
        ["| " + " | ".join(columns) + " |", rule, *("| " + " | ".join(row) + " |" for row in rows)]
    )


if __name__ == "__main__":
    main()
