"""Measure one system and write its figures. compare.py starts this script once per system and data set.

The process runs only one system, so that imports and peak memory are those of this system.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from systems import SYSTEMS, System

ROWS_ONE_BY_ONE = 1000
# After this time, further rows are left out, since the latency of a slow system is then known.
SECONDS_ONE_BY_ONE = 60


def memory(field: str) -> int:
    """Return the bytes that this process holds (``VmRSS``) or the most that it has held (``VmHWM``).

    ``getrusage`` is not used. Its peak is kept across ``exec``, so a child process would begin with the peak
    of its parent.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no field {field}")


def measure(system: System, data: Path, scratch: Path, n_repeats: int) -> dict[str, float]:
    """Fit, save, load and predict. The predictions are written to ``top.npy`` in `scratch`, and the figures
    are returned.
    """
    train = system.read(data, scratch)
    data_bytes = memory("VmRSS")
    fit_seconds, _ = timed(lambda: system.fit(*train))
    peak_bytes = memory("VmHWM")

    folder = scratch / "model"
    folder.mkdir(exist_ok=True)
    system.save(folder)
    model_bytes = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    load_seconds, _ = timed(lambda: system.load(folder))

    X = sp.load_npz(data / "X_test.npz")
    answer = system.predict(X)  # a warm-up call, which is not timed
    predict_seconds = np.median([timed(lambda: system.predict(X))[0] for _ in range(n_repeats)])
    np.save(scratch / "top.npy", system.top_labels(answer))

    rows = [X[[row]] for row in np.linspace(0, X.shape[0] - 1, ROWS_ONE_BY_ONE).astype(int)]
    system.predict(rows[0])
    seconds, until = [], time.perf_counter() + SECONDS_ONE_BY_ONE
    for row in rows:
        seconds.append(timed(lambda row=row: system.predict(row))[0])
        if time.perf_counter() > until:
            break
    p50, p99 = np.percentile(seconds, [50, 99])

    return {
        "fit_seconds": fit_seconds,
        "data_bytes": data_bytes,
        "peak_bytes": peak_bytes,
        "model_bytes": model_bytes,
        "load_seconds": load_seconds,
        "predict_seconds": predict_seconds,
        "p50_seconds": p50,
        "p99_seconds": p99,
    }


def sample_labels(system: System, data: Path, scratch: Path, n_labels: int) -> dict[str, float]:
    """Return the mean seconds per label on one thread. The labels are at equal steps in the order by
    frequency.
    """
    X, Y = system.read(data, scratch)
    Y = Y.tocsc()
    by_frequency = np.argsort(np.diff(Y.indptr), kind="stable")
    sample = by_frequency[np.linspace(0, Y.shape[1] - 1, min(n_labels, Y.shape[1])).astype(int)]
    targets = [Y[:, [label]].toarray().ravel() for label in sample]
    fit = system.model.estimator.fit
    return {"label_seconds": np.mean([timed(lambda y=y: fit(X, y))[0] for y in targets])}


def timed(call):
    """Return the wall seconds of `call`, and its result."""
    start = time.perf_counter()
    value = call()
    return time.perf_counter() - start, value


def command_line(description: str, systems: dict, *, data: str, answers: str) -> argparse.ArgumentParser:
    """Return a parser with the options of every worker: the system, the folders of its data and results, and
    the threads.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("system", choices=systems)
    parser.add_argument("data", type=Path, help=f"folder with {data}")
    parser.add_argument("scratch", type=Path, help=f"folder for {answers}, and figures.json")
    parser.add_argument("--threads", type=int, required=True)
    return parser


def main():
    parser = command_line(
        __doc__, SYSTEMS, data="X_train, Y_train and X_test as .npz", answers="the model and top.npy"
    )
    parser.add_argument("--repeats", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sample-labels", type=int, help="only fit this number of labels, one by one")
    args = parser.parse_args()
    system = SYSTEMS[args.system](args.threads)
    system.seed = args.seed
    if args.sample_labels:
        figures = sample_labels(system, args.data, args.scratch, args.sample_labels)
    else:
        figures = measure(system, args.data, args.scratch, args.repeats)
    (args.scratch / "figures.json").write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
