"""Compare `BlockPartitionClassifier()`, CBMLC and LPSR with the classifier that they fit to their blocks.

All estimators have default parameters. On each data set, `DiSMECClassifier()` and the other systems are
fitted and rank the test rows in turn, in one process. Each line has the wall seconds and the processor
seconds of the fit and of the ranking. Processor seconds are summed over all threads and change little if the
machine is busy. Each line also has P@k in percent and the number of blocks. For LPSR, the last column has two
ratios: the number of leaves over ``n_samples / leaf_size``, and the size of the largest leaf over
``leaf_size``.
"""

import argparse
import os
import sys
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
import record

import manylabel as ml
from manylabel.metrics import precision_at_k

SETS = ["eurlex57k", "citeulike-t", "yso-finna-en"]
KS = (1, 3, 5)
SYSTEMS = {
    "DiSMEC": ml.DiSMECClassifier,
    "blocks": ml.BlockPartitionClassifier,
    "CBMLC": ml.CBMLCClassifier,
    "LPSR": ml.LPSRClassifier,
}
COLUMNS = [
    "fit s",
    "fit CPU s",
    "rank s",
    "rank CPU s",
    *(f"P@{k}" for k in KS),
    "blocks",
    "routes",
    "leaves",
]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", default=SETS, help="folders of MANYLABEL_DATA")
    parser.add_argument("--systems", nargs="+", default=["DiSMEC", "blocks"], choices=SYSTEMS)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    if not os.environ.get("MANYLABEL_DATA"):
        sys.exit("MANYLABEL_DATA must be the path of the folder of data sets")
    for name in args.sets:
        X, Y, X_test, Y_test = split(Path(os.environ["MANYLABEL_DATA"]) / name)
        print(f"\n{name}: {X.shape[0]:,} rows, {X.shape[1]:,} features, {Y.shape[1]:,} labels\n")
        print("| system | " + " | ".join(COLUMNS) + " |\n|---" + "|---:" * len(COLUMNS) + "|", flush=True)
        for system in args.systems:
            model = SYSTEMS[system](random_state=0, n_jobs=args.threads)
            seconds = timed(model.fit, X, Y)[1]
            top, ranked = timed(model.predict_topk, X_test, max(KS))
            precision = precision_at_k(Y_test, top, KS)
            cells = [f"{second:.2f}" for second in (*seconds, *ranked)]
            cells += [f"{100 * value:.2f}" for value in np.asarray(precision)]
            cells += shape(model, X, X_test)
            print(f"| {system} | " + " | ".join(cells) + " |", flush=True)
            record.keep("blocks_default", ["set", "system", *COLUMNS], [name, system, *cells])


def split(folder):
    """Return the split that comes with a set. If there is none, draw a random split with a third of the rows
    held out.
    """
    if (folder / "train.txt.gz").is_file():
        return *ml.datasets.load_xc(folder / "train.txt.gz"), *ml.datasets.load_xc(folder / "test.txt.gz")
    X, Y = ml.datasets.load_xc(folder / "all.txt.gz")
    order = np.random.default_rng(0).permutation(X.shape[0])
    test, train = np.sort(order[: X.shape[0] // 3]), np.sort(order[X.shape[0] // 3 :])
    return X[train], Y[train], X[test], Y[test]


def timed(work, *args):
    """Call a function, and return its result with the wall seconds and the processor seconds."""
    clock, processor = perf_counter(), process_time()
    result = work(*args)
    return result, (perf_counter() - clock, process_time() - processor)


def shape(model, X, X_test):
    """Return the number of blocks, the mean number of routes, and how much the leaves differ from their
    target size.
    """
    blocks = getattr(model, "label_blocks_", None)
    if blocks is None:
        return "", "", ""
    routes = model._routes(model._features(X_test)).nnz / X_test.shape[0]
    leaves = ""
    if isinstance(model, ml.LPSRClassifier):
        wanted = max(1, X.shape[0] / model.leaf_size)
        largest = np.bincount(model.row_blocks_).max() / model.leaf_size
        leaves = f"{len(blocks) / wanted:.2f}, {largest:.2f}"
    return str(len(blocks)), f"{routes:.2f}", leaves


if __name__ == "__main__":
    main()
