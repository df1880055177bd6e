"""Compare `manylabel.datasets.load_xc` with scikit-learn's `load_svmlight_file` on the same rows.

The script reads the uncompressed training part of eurlex57k from the folder MANYLABEL_DATA. The readers run
in turn, on one thread unless stated otherwise. The two file formats differ only in the first line.
"""

import gzip
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import record
import sklearn
from sklearn.datasets import load_svmlight_file

from manylabel.datasets import load_xc

REPEATS = 5


def seconds(read):
    start = time.perf_counter()
    read()
    return time.perf_counter() - start


# The name of the set in the records.
TITLES = {"load_svmlight_file": "sklearn.datasets.load_svmlight_file(multilabel=True)"}


def main():
    if not os.environ.get("MANYLABEL_DATA"):
        sys.exit("MANYLABEL_DATA must be the path of the folder of data sets")
    packed = Path(os.environ["MANYLABEL_DATA"], "eurlex57k", "train.txt.gz")
    text = gzip.decompress(packed.read_bytes())
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = Path(folder, "rows.txt"), Path(folder, "rows.svm")
        ours.write_bytes(text)
        theirs.write_bytes(text.split(b"\n", 1)[1])
        options = {"multilabel": True, "dtype": np.float32, "zero_based": True}
        readers = {
            "load_xc": lambda: load_xc(ours),
            "load_xc, n_jobs=2": lambda: load_xc(ours, n_jobs=2),
            "load_xc, gzip": lambda: load_xc(packed),
            "load_svmlight_file": lambda: load_svmlight_file(str(theirs), **options),
        }
        times = {name: [] for name in readers}
        for _ in range(REPEATS):
            for name, read in readers.items():
                times[name].append(seconds(read))
        X, Y = load_xc(ours)
        X_svm, _ = load_svmlight_file(str(theirs), **options)
        same = np.array_equal(X.data, X_svm.data) and np.array_equal(X.indices, X_svm.indices)
    megabytes = len(text) / 1e6
    print(
        f"eurlex57k, train: {X.shape[0]} rows, {X.nnz} features, {Y.nnz} labels, {megabytes:.1f} MB of text"
    )
    print(f"scikit-learn {sklearn.__version__}, Python {platform.python_version()}, {os.cpu_count()} cores")
    print(f"median of {REPEATS}; same values: {same}")
    reference = statistics.median(times["load_svmlight_file"])
    for name, measured in times.items():
        median = statistics.median(measured)
        print(f"{name:20} {median:7.3f} s {megabytes / median:7.1f} MB/s {reference / median:6.1f} x")
        figures = {
            "s": round(median, 4),
            "MB/s": round(megabytes / median),
            "times faster": round(reference / median, 1),
        }
        packages = [(sys.executable, "scikit-learn")]
        record.write("load_xc", "eurlex57k", TITLES.get(name, name), figures, packages=packages)


if __name__ == "__main__":
    main()
