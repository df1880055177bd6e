"""Measure how the time and the memory of every classifier grow with the number of labels and of rows.

The data are synthetic (`manylabel.datasets.make_multilabel`). Each fit runs in a separate process with one
thread and default parameters, apart from the seed. Times are processor seconds. The memory of a fit is the
peak memory of the process minus its memory before the fit. The user guide draws its curves from these
records.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from time import process_time

import record
from compare import heading, hold_threads

import manylabel as ml

MANY = {"n_samples": 20_000, "n_features": 10_000, "n_labels": 2_000}
FEW = {"n_samples": 5_000, "n_features": 500, "n_labels": 60}
VERY_FEW = {"n_samples": 2_000, "n_features": 500, "n_labels": 20}
SYSTEMS = {
    "DiSMECClassifier": MANY,
    "LabelTreeClassifier": MANY,
    "LEMLClassifier": MANY,
    "PDSparseClassifier": MANY,
    "BlockPartitionClassifier": MANY,
    "SmoothLinkClassifier": FEW,
    "BoostedRulesClassifier": VERY_FEW,
    "CorrLogClassifier": FEW,
}
TIMES = {"n_labels": (1 / 4, 1, 4, 16), "n_samples": (1 / 4, 1 / 2, 1, 2)}
AT_MOST = {"n_labels": {"SmoothLinkClassifier": 4, "BoostedRulesClassifier": 4, "CorrLogClassifier": 16}}
TEST_ROWS = 1_000


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=SYSTEMS)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        print(json.dumps(measured(**json.loads(args.worker))))
        return
    hold_threads(1)
    print(heading([(sys.executable, "manylabel")]), "", sep="\n", flush=True)
    for system in args.systems:
        for what, times in TIMES.items():
            most = AT_MOST.get(what, {}).get(system, max(times))
            for by in times:
                if by <= most:
                    keep(system, what, SYSTEMS[system] | {what: int(by * SYSTEMS[system][what])})


def keep(system: str, what: str, shape: dict):
    """Measure one size in a process of its own, and record it."""
    call = [sys.executable, __file__, "--worker", json.dumps({"system": system, "shape": shape})]
    done = subprocess.run(call, text=True, stdout=subprocess.PIPE, check=True)
    figures = json.loads(done.stdout)
    print(f"{system}, {what} {shape[what]:,}: {figures}", flush=True)
    sizes = "{n_samples:,} rows, {n_features:,} features, {n_labels:,} labels".format(**shape)
    record.write("growth", f"growing {what}, {sizes}", system, {what: shape[what], **figures}, data=sizes)


def measured(system: str, shape: dict) -> dict:
    """Return the times and the memory of a fit and of a prediction in this process."""
    X, Y = ml.datasets.make_multilabel(**shape, random_state=0)
    # CorrLogClassifier has no random numbers.
    cls = getattr(ml, system)
    model = cls(**({"random_state": 0} if "random_state" in cls().get_params() else {}))
    before = resident("VmRSS")
    begun = process_time()
    model.fit(X, Y)
    fitted = process_time()
    peak = resident("VmHWM")
    model.predict_topk(X[:10], 5)
    ready = process_time()
    model.predict_topk(X[:TEST_ROWS], 5)
    predicted = process_time()
    with tempfile.TemporaryDirectory(prefix="manylabel-bench-") as folder:
        path = Path(folder) / "model.safetensors"
        model.save(path)
        size = path.stat().st_size
    return {
        "fit CPU s": round(fitted - begun, 3),
        "fit MB": round((peak - before) / 1e6, 1),
        "ms per 1000 rows": round(1e6 * (predicted - ready) / TEST_ROWS, 2),
        "model MB": round(size / 1e6, 2),
    }


def resident(entry: str) -> int:
    """Return an entry of ``/proc/self/status`` in bytes: the present or the peak resident memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (value,) = [line.split()[1] for line in lines if line.startswith(f"{entry}:")]
    return 1024 * int(value)


if __name__ == "__main__":
    main()
