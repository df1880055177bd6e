"""Measure rows on disk, pieces and Dask against plain fits.

Each figure is measured in child processes. The script reads the training part of eurlex57k from the folder
MANYLABEL_DATA. Each of the options measures something else instead. ``--memory`` measures a fit in a memory
cgroup and needs Linux and the right to create a memory cgroup (version 1).
"""

import argparse
import gzip
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import record
from scipy.sparse import csr_array, hstack

REPEATS = 3
# Copies of eurlex57k in the text file that `convert` reads.
COPIES = 8
# Number of rows of the synthetic data, which have 1,920 bytes each.
N_ROWS = 500_000
# Files of a data set with the rows to fit.
FILES = ("train.txt.gz", "all.txt.gz")
CGROUPS = Path("/sys/fs/cgroup/memory")

CONVERT = """
import resource, sys, time
from manylabel.datasets import convert, load_xc
start, cpu = time.perf_counter(), time.process_time()
if sys.argv[1] == "convert":
    convert(sys.argv[2], sys.argv[3])
else:
    load_xc(sys.argv[2])
seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
print(seconds, cpu, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""

FIT = """
import sys, time, tempfile
import manylabel as ml
kind, rows, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
model = eval(sys.argv[4], vars(ml))
X, Y = ml.datasets.open_rows(rows)
if kind == "dask":
    import manylabel.dask
    from distributed import Client, LocalCluster

def spent():
    # Processor seconds of this process, which includes the scheduler, and of the workers.
    workers = client.run(time.process_time).values() if kind == "dask" else ()
    return time.process_time() + sum(workers)

if __name__ == "__main__":
    folder = tempfile.mkdtemp()
    if kind == "dask":
        cluster = LocalCluster(n_workers=threads, threads_per_worker=1, dashboard_address=None)
        client = Client(cluster)
    start, cpu = time.perf_counter(), spent()
    if kind == "plain":
        model.set_params(n_jobs=threads).fit(X, Y)
    elif kind == "pieces":
        ml.shards.fit(model.set_params(n_jobs=threads), rows, checkpoint=folder)
    else:
        ml.dask.fit(model, rows, checkpoint=folder)
    print(time.perf_counter() - start, spent() - cpu)
    if kind == "dask":
        client.close()
        cluster.close()
"""

# Estimators for the comparison of fits. The rounds of the second one are shared.
DISMEC = "DiSMECClassifier(C=1.0, random_state=0)"
CORRLOG = 'CorrLogClassifier(1e-3, 1e-3, threshold="zero", solver="fista")'

# Estimators for `--memory`. The fits are short, but each needs several passes over X.
LIMITS = {
    "dismec": 'DiSMECClassifier(C=0.1, threshold="zero", tol=0.1, random_state=0)',
    "tree": "LabelTreeClassifier(C=0.1, random_state=0)",
    "rembrandt": "Rembrandt(8, l2_final=1.0, random_state=0)",
}
# Estimators for `--traffic`.
TRAFFICS = {"dismec": LIMITS["dismec"], "corrlog": CORRLOG}
# The memory limit of the library, as a share of the limit of the cgroup. The rest is for the pages of files.
PRIVATE = 0.8

LIMITED = """
import sys, time, zlib
import manylabel as ml

most = 0
def look(_=0):
    # The progress callback, which is called 20 times per second.
    global most
    lines = open("/proc/self/status")
    most = max(most, next(int(line.split()[1]) // 1024 for line in lines if line.startswith("RssAnon")))

X, Y = ml.datasets.open_rows(sys.argv[1])
model = eval(sys.argv[2], vars(ml))
start, cpu = time.perf_counter(), time.process_time()
limit, spill = (int(sys.argv[3]), sys.argv[4]) if len(sys.argv) > 3 else (None, None)
with ml.memory_limit(limit, spill=spill):
    model.fit(X, Y, progress=look)
seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
model.save(sys.argv[1] + "-model")
checksum = zlib.crc32(open(sys.argv[1] + "-model", "rb").read())
print("private", most, "seconds", seconds, "cpu", cpu, "checksum", checksum)
"""


TRAFFIC = """
import re, subprocess, sys, time
import manylabel as ml, manylabel.dask
from distributed import Client, LocalCluster

def passed():
    # Bytes that the sockets of the scheduler have sent and received, in both directions.
    port = cluster.scheduler_address.rsplit(":", 1)[1]
    told = subprocess.run(["ss", "-tinH", f"sport = :{port}"], capture_output=True, text=True, check=True)
    return sum(map(int, re.findall(r"bytes_(?:sent|received):([0-9]+)", told.stdout)))

if __name__ == "__main__":
    model = eval(sys.argv[2], vars(ml))
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster):
        time.sleep(2)
        before, start = passed(), time.perf_counter()
        time.sleep(10)
        idle = (passed() - before) / (time.perf_counter() - start)
        before, start = passed(), time.perf_counter()
        ml.dask.fit(model, sys.argv[1])
        print(passed() - before, time.perf_counter() - start, idle)
"""

PLAN = """
import json, sys, threading, time
import manylabel as ml
kind, sets, name = sys.argv[1:4]
model = eval(name, vars(ml))
X, Y = ml.datasets.load_xc(sets)
def private():
    lines = open("/proc/self/status")
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))
if kind == "plan":
    plan = ml.plan(model, X, Y, n_jobs=1)
    print(plan.fit_memory, plan.model_bytes, plan.seconds, max(plan.rows) / X.shape[0])
else:
    from manylabel.planning import _size_of
    # A fit to a few rows imports and allocates what does not belong to the fit.
    ml.DiSMECClassifier(C=1.0).fit(X[:50], Y[:50])
    before, most, done = private(), 0, False
    def look():
        global most
        while not done:
            most = max(most, private())
            time.sleep(0.003)
    thread = threading.Thread(target=look)
    thread.start()
    begun = time.process_time()
    model.set_params(n_jobs=1).fit(X, Y)
    seconds = time.process_time() - begun
    done = True
    thread.join()
    print(most - before, _size_of(model), seconds, 1)
"""

# Sets and estimators for `--plan`.
PLANS = [
    ("delicious", "DiSMECClassifier(random_state=0)"),
    ("eurlex57k", "DiSMECClassifier(random_state=0)"),
    ("eurlex57k", "LabelTreeClassifier(random_state=0)"),
    ("citeulike-t", "LabelTreeClassifier(n_trees=3, random_state=0)"),
    ("bibtex", "PDSparseClassifier(random_state=0)"),
    ("bibtex", "LEMLClassifier(random_state=0)"),
    ("delicious", "Rembrandt(random_state=0)"),
    ("reuters-21578", "Rembrandt(random_state=0)"),
    ("tmc2007-500", "BoostedRulesClassifier(n_rules=100, random_state=0)"),
    ("bibtex", "SmoothLinkClassifier(random_state=0)"),
    ("tmc2007-500", "CorrLogClassifier()"),
    ("rcv1-subset1", "BlockPartitionClassifier(n_blocks=5, random_state=0)"),
]


def child(program, *arguments):
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(program)
        file.flush()
        call = [sys.executable, file.name, *map(str, arguments)]
        done = subprocess.run(call, check=True, text=True, stdout=subprocess.PIPE)
    return done.stdout.split()


def conversions(folder, text):
    """Measure the MB of text per second and the peak memory."""
    path = folder / "copies.txt"
    header, rows = text.split(b"\n", 1)
    n, d, m = map(int, header.split())
    with open(path, "wb") as file:
        file.write(f"{COPIES * n} {d} {m}\n".encode())
        for _ in range(COPIES):
            file.write(rows)
    megabytes = path.stat().st_size / 1e6
    found = {"convert": [], "load_xc": []}
    for repeat in range(3 * REPEATS):
        for kind in found:
            os.sync()  # otherwise the disk would still write the text, or the files of the previous call
            found[kind].append(tuple(map(float, child(CONVERT, kind, path, folder / f"{kind}{repeat}"))))
            shutil.rmtree(folder / f"{kind}{repeat}", ignore_errors=True)
    speeds = {kind: megabytes / statistics.median(s for s, *_ in of) for kind, of in found.items()}
    spent = {kind: statistics.median(cpu for _, cpu, _ in of) for kind, of in found.items()}
    for kind, of in found.items():
        figures = {
            "MB of text": round(megabytes),
            "MB/s": round(speeds[kind]),
            "share of load_xc": round(speeds[kind] / speeds["load_xc"], 2),
            "processor s": round(spent[kind], 2),
            "peak memory (MB)": round(max(peak for *_, peak in of)),
        }
        print(kind, figures)
        record.write("scale_convert", "eurlex57k", kind, figures)


def fits(folder, text):
    """Compare fits of DiSMEC to eurlex57k."""
    from manylabel.datasets import convert

    (folder / "train.txt").write_bytes(text)
    convert(folder / "train.txt", folder / "rows")
    compared(folder / "rows", DISMEC, "eurlex57k")


def rounds(folder):
    """Compare fits of CorrLog to made data, whose rounds take from 10 ms to 0.2 s."""
    from manylabel.datasets import make_multilabel, rows

    X, Y = make_multilabel(300_000, 2000, 300, n_nonzero=20, random_state=1)
    starts = range(0, X.shape[0], 10_000)
    rows.store(((X[at : at + 10_000], Y[at : at + 10_000]) for at in starts), folder / "rows", "made")
    compared(folder / "rows", CORRLOG, "made, 300,000 rows, 300 labels", REPEATS + 2)


def compared(rows, model, name_of_set, repeats=REPEATS):
    """Measure the seconds of plain fits, of fits in pieces and of fits on a cluster.

    The ratios are medians of the ratios of fits that follow one another, because the speed of a machine may
    drift.
    """
    kinds = [("plain", 1), ("plain", 2), ("pieces", 1), ("dask", 1), ("dask", 2)]
    times, spent = {kind: [] for kind in kinds}, {kind: [] for kind in kinds}
    child(FIT, "plain", rows, 2, model)  # writes the prepared rows
    for _ in range(repeats):
        for kind in kinds:
            seconds, cpu = map(float, child(FIT, kind[0], rows, kind[1], model))
            times[kind].append(seconds)
            spent[kind].append(cpu)

    def ratio(of, upper, lower):
        return statistics.median(a / b for a, b in zip(of[upper], of[lower], strict=True))

    names = {
        ("plain", 1): "fit, 1 thread",
        ("plain", 2): "fit, 2 threads",
        ("pieces", 1): "shards.fit, 1 thread",
        ("dask", 1): "dask.fit, 1 worker of 1 thread",
        ("dask", 2): "dask.fit, 2 workers of 1 thread",
    }
    for kind, name in names.items():
        figures = {
            "s": round(statistics.median(times[kind]), 2),
            "time over the fit with as many threads": round(ratio(times, kind, ("plain", kind[1])), 2),
            "processor s": round(statistics.median(spent[kind]), 2),
            "processor s over the fit with as many threads": round(ratio(spent, kind, ("plain", kind[1])), 2),
            "speedup over one thread": round(ratio(times, (kind[0], 1), kind), 2),
        }
        if kind == ("dask", 2):
            shares = [
                dask1 / dask2 / (plain1 / plain2)
                for plain1, plain2, _, dask1, dask2 in zip(*times.values(), strict=True)
            ]
            figures["share of the speedup of two threads"] = round(statistics.median(shares), 2)
        print(name, figures)
        record.write("scale_fits", name_of_set, name, figures)


def plans(folder, chosen):
    """Compare forecasts of `plan` with fits on one thread."""
    for name, model in PLANS:
        if chosen and chosen not in f"{name} {model}":
            continue
        path = folder / f"{name}.txt"
        if not path.exists():
            of_set = Path(os.environ["MANYLABEL_DATA"], name)
            source = next(of_set / file for file in FILES if (of_set / file).exists())
            path.write_bytes(gzip.decompress(source.read_bytes()))
        forecast = [float(word) for word in child(PLAN, "plan", path, model)]
        truth = [float(word) for word in child(PLAN, "fit", path, model)]
        figures = {"share of the rows in the largest sample": round(forecast[3], 2)}
        for what, unit, got, wanted in zip(
            ("memory", "model", "time"), (1e6, 1e6, 1), forecast, truth, strict=False
        ):
            name_of = f"{what} ({'s' if unit == 1 else 'MB'})"
            figures[name_of] = round(wanted / unit, 2)
            figures[f"forecast over {what}"] = round(got / wanted, 2)
        print(name, model, figures, flush=True)
        record.write("scale_plan", name, model, figures)


# The data of the forecast: rows, labels, stored values per row, machines and threads per machine.
FORECAST = (10**7, 10**6, 100, 16, 16)
# DiSMEC fits labels in panels of this size.
PANEL = 16


def measured_pieces(folder):
    """Processor seconds of pieces on yso-finna-en, and a forecast; docs/scale.md lists its assumptions."""
    from manylabel import DiSMECClassifier, LabelTreeClassifier, shards
    from manylabel.datasets import convert, open_rows

    source = Path(os.environ["MANYLABEL_DATA"], "yso-finna-en", "train.txt.gz")
    (folder / "yso.txt").write_bytes(gzip.decompress(source.read_bytes()))
    convert(folder / "yso.txt", folder / "rows")
    n_rows, n_stored = open_rows(folder / "rows")[0].shape[0], open_rows(folder / "rows")[0].nnz
    rows, labels, per_row, machines, threads = FORECAST
    larger = rows * per_row / n_stored

    def spent(work):
        begun = time.process_time()
        work()
        return time.process_time() - begun

    def silent(_):
        pass

    def write(name, figures):
        figures = {what: round(float(value), 3) for what, value in figures.items()}
        print(name, figures, flush=True)
        record.write("scale_pieces", "yso-finna-en", name, figures)

    # Label tree: all pieces.
    model = LabelTreeClassifier(C=1.0, random_state=0, n_jobs=1)
    work = shards.Work(model, folder / "rows", None, None, folder / "tree", "auto", any_cpu=False)
    chosen = spent(lambda: work.choose(silent))
    levels, routed = [], []
    for stage, numbers in enumerate(work.folder.stages[:-1]):
        routed.append(spent(lambda stage=stage: work._reach(stage, silent_sum())))
        levels.append(spent(lambda numbers=numbers: work.fit(numbers, silent)))
    sizes = [path.stat().st_size for path in (folder / "tree").glob("piece-*.npz")]
    # A larger tree has one more level between the root and the leaves, which costs as much as the leaves.
    # Every machine sends all rows through the levels, on all threads.
    fit = larger * (levels[0] + 2 * levels[-1]) / (machines * threads)
    route = larger * 2 * sum(routed[1:]) / threads
    grown = larger * chosen / threads
    write(
        "LabelTreeClassifier",
        {
            "rows": n_rows,
            "stored values": n_stored,
            "trees and choices (s)": chosen,
            "root (s)": levels[0],
            "leaves and thresholds (s)": levels[-1],
            "rows to the next level (s)": sum(routed[1:]),
            "MB of all pieces": sum(sizes) / 1e6,
            "forecast of the fit (h)": fit / 3600,
            "forecast of the routes (h)": route / 3600,
            "forecast of the trees (h)": grown / 3600,
            "forecast (h)": (fit + route + grown) / 3600,
            "forecast of the pieces (GB)": sum(sizes) / 1e9 * labels / open_rows(folder / "rows")[1].shape[1],
        },
    )
    # DiSMEC: some pieces. Labels are sorted by frequency.
    model = DiSMECClassifier(C=1.0, threshold="zero", random_state=0, n_jobs=1)
    work = shards.Work(model, folder / "rows", None, None, folder / "dismec", "auto", any_cpu=False)
    chosen = spent(lambda: work.choose(silent))
    numbers = np.linspace(0, work.n_pieces - 1, 5).astype(int).tolist()
    times = [spent(lambda number=number: work.fit([number], silent)) for number in numbers]
    units = [np.diff(work.folder.units_of(number))[0] for number in numbers]
    of_panel = sum(times) / sum(units)
    sizes = [work.folder.piece_path(number).stat().st_size for number in numbers]
    write(
        "DiSMECClassifier",
        {
            "rows": n_rows,
            "stored values": n_stored,
            "choices (s)": chosen,
            "pieces measured": len(numbers),
            "pieces": work.n_pieces,
            "a panel of 16 labels (s)": of_panel,
            "the slowest piece (s)": max(times),
            "MB of a piece": statistics.mean(sizes) / 1e6,
            "forecast (h)": larger * of_panel * labels / PANEL / (machines * threads) / 3600,
            "forecast of the pieces (GB)": sum(sizes) / sum(units) * labels / PANEL / 1e9,
        },
    )


def silent_sum():
    """Return a report of several pieces that reports nothing."""
    from manylabel.rounds import SumOfJobs

    return SumOfJobs(lambda _: None)


def traffic(folder, kind):
    """Bytes through the scheduler during a fit on two workers. X is made data."""
    from manylabel.datasets import rows

    rows.store(made_rows(), folder / "rows", "made")
    size = sum((folder / "rows" / f"X.{part}.npy").stat().st_size for part in ("indptr", "indices", "data"))
    total, seconds, idle = map(float, child(TRAFFIC, folder / "rows", TRAFFICS[kind]))
    figures = {
        "X (GB)": round(size / 1e9, 2),
        "s": round(seconds, 1),
        "MB through the scheduler": round(total / 1e6, 3),
        "MB per GB of X": round(total / 1e6 / (size / 1e9), 3),
        "of which heartbeats (MB)": round(idle * seconds / 1e6, 3),
    }
    print(figures)
    record.write("scale_traffic", "made", f"dask.fit of {kind}, 2 workers of 1 thread", figures)


def made_rows():
    """Yield blocks of rows with 240 of 40,000 features, one frequent label, and 47 rare labels."""
    rng = np.random.default_rng(0)
    for _ in range(N_ROWS // 10_000):
        columns = np.cumsum(rng.integers(1, 330, (10_000, 240), dtype=np.int32), axis=1, dtype=np.int32)
        columns = np.minimum(columns, np.arange(40_000 - 240, 40_000, dtype=np.int32))
        values = rng.random(columns.shape, dtype=np.float32) + 0.1
        ends = np.arange(0, columns.size + 1, 240, dtype=np.int32)
        X = csr_array((values.ravel(), columns.ravel(), ends), shape=(10_000, 40_000))
        topic = columns[:, 3] % 400
        Y = csr_array((columns[:, [3]] % 400 == np.arange(47)).astype(np.float32))
        yield X, csr_array(hstack([Y, csr_array((topic % 5 == 0)[:, None].astype(np.float32))]))


def limited(folder, kind):
    """Measure a fit in a memory cgroup with a third of the memory of X."""
    from manylabel.datasets import rows

    rows.store(made_rows(), folder / "rows", "made")
    size = sum((folder / "rows" / f"X.{part}.npy").stat().st_size for part in ("indptr", "indices", "data"))
    limit = size // 3
    print(f"X: {size / 2**20:.0f} MB, limit {limit / 2**20:.0f} MB", flush=True)
    free = child(LIMITED, folder / "rows", LIMITS[kind])
    print(*free, flush=True)
    # The fit with a limit writes the prepared rows, too, and reads X from the disk.
    os.sync()
    for part in (folder / "rows").iterdir():
        if part.is_dir():
            shutil.rmtree(part)
            continue
        with part.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    group = CGROUPS / f"manylabel-bench-{os.getpid()}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(limit))
        join = f"open({str(group / 'cgroup.procs')!r}, 'w').write(str(__import__('os').getpid()))\n"
        held = child(join + LIMITED, folder / "rows", LIMITS[kind], int(PRIVATE * limit), folder)
        peak = int((group / "memory.max_usage_in_bytes").read_text())
    finally:
        time.sleep(0.5)
        group.rmdir()
    found = {}
    for name, words in (("without a limit", free), ("with a limit", held)):
        found[name] = dict(zip(words[::2], words[1::2], strict=True))
        figures = {
            "X (MB)": round(size / 2**20),
            "limit (MB)": round(limit / 2**20) if name == "with a limit" else "none",
            "largest private memory (MB)": int(found[name]["private"]),
            "s": round(float(found[name]["seconds"]), 1),
            "processor s": round(float(found[name]["cpu"]), 1),
        }
        if name == "with a limit":
            figures["peak of the cgroup (MB)"] = peak >> 20
        print(name, figures)
        record.write("scale_memory", "made", f"{kind} {name}", figures)
    assert free[-1] == held[-1], "the models differ"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--memory", choices=LIMITS, help="measure a fit in a memory cgroup")
    parser.add_argument("--convert", action="store_true", help="measure `convert` only")
    parser.add_argument("--pieces", action="store_true", help="measure pieces, and forecast a large fit")
    parser.add_argument("--traffic", choices=TRAFFICS, help="count bytes through the scheduler, with ss")
    parser.add_argument("--rounds", action="store_true", help="measure fits whose rounds are shared")
    parser.add_argument("--plan", nargs="?", const="", help="measure `plan` only, for sets with this text")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if args.memory or args.traffic:
            limited(folder, args.memory) if args.memory else traffic(folder, args.traffic)
            return
        if args.rounds:
            rounds(folder)
            return
        if not os.environ.get("MANYLABEL_DATA"):
            sys.exit("MANYLABEL_DATA must be the path of the folder of data sets")
        text = gzip.decompress(Path(os.environ["MANYLABEL_DATA"], "eurlex57k", "train.txt.gz").read_bytes())
        if args.plan is not None:
            plans(folder, args.plan)
        elif args.pieces:
            measured_pieces(folder)
        elif args.convert:
            conversions(folder, text)
        else:
            fits(folder, text)


if __name__ == "__main__":
    main()
