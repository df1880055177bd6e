"""Show how much memory of one saved model several processes share.

Each process loads the model, predicts, and reports its memory. A mapped page of the model file is counted in
full in the Rss of every process. In the Pss it is divided equally among the processes. Private memory is not
shared with other processes, so it is what one more worker needs.
"""

import argparse
import multiprocessing as mp
import os
import time
from pathlib import Path

import record

FIELDS = ["Rss", "Pss", "Private"]


def memory() -> dict[str, float]:
    """Return the memory of this process in megabytes, as the kernel counts it. Private is the sum of clean
    and dirty private memory.
    """
    sums = dict.fromkeys(FIELDS, 0.0)
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]:
        name = line.split(":")[0]
        kind = "Private" if name in ("Private_Clean", "Private_Dirty") else name
        if kind in sums:
            sums[kind] += int(line.split()[1]) * 1024 / 1e6
    return sums


def serve(path: Path, n_rows: int, barrier, queue):
    """Load the model and predict, as a worker of a server does. The barriers make all processes report at the
    same moment.
    """
    import numpy as np
    import scipy.sparse as sp

    import manylabel

    def report(stage: str, **more: float):
        barrier.wait()
        figures = memory()
        barrier.wait()
        queue.put((os.getpid(), stage, figures | more))

    report("imported")
    start = time.perf_counter()
    model = manylabel.load(path)
    report("loaded", seconds=time.perf_counter() - start)
    rng = np.random.default_rng(0)
    shape = (n_rows, model.n_features_in_)
    X = sp.random(*shape, density=min(1, 100 / shape[1]), format="csr", dtype=np.float32, random_state=rng)
    start = time.perf_counter()
    model.predict_topk(X, 5)  # reads the pages that a prediction needs
    report("predicted", seconds=time.perf_counter() - start)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path, help="model file, written by save()")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument(
        "--rows", type=int, default=1000, help="number of random rows of 100 features to predict"
    )
    args = parser.parse_args()
    if not args.model.is_file():
        parser.error(f"{args.model} does not exist")

    # A forked process would share the pages of its parent, which would hide the memory that loading takes.
    spawn = mp.get_context("spawn")
    barrier, queue = spawn.Barrier(args.processes, timeout=600), spawn.Queue()
    workers = [
        spawn.Process(target=serve, args=(args.model, args.rows, barrier, queue))
        for _ in range(args.processes)
    ]
    for worker in workers:
        worker.start()
    print(f"{args.model}: {args.model.stat().st_size / 1e6:,.1f} MB")
    print(f"{'pid':>8} {'stage':10}" + "".join(f"{field + ' MB':>12}" for field in FIELDS) + f"{'s':>10}")
    for worker in workers:
        worker.join()
        if worker.exitcode:
            raise SystemExit(f"process {worker.pid} ended with code {worker.exitcode}")
    workers_of: dict[int, int] = {}
    for pid, stage, figures in sorted(queue.get() for _ in range(3 * args.processes)):
        seconds = f"{figures['seconds']:10.4f}" if "seconds" in figures else ""
        print(f"{pid:8} {stage:10}" + "".join(f"{figures[field]:12,.1f}" for field in FIELDS) + seconds)
        known = {
            f"{'private' if field == 'Private' else field} MB": round(figures[field], 1) for field in FIELDS
        }
        if "seconds" in figures:
            known["s"] = round(figures["seconds"], 4)
        number = workers_of.setdefault(pid, len(workers_of) + 1)
        record.write("page_sharing", args.model.name, f"process {number}, {stage}", known)


if __name__ == "__main__":
    main()
