"""`BlockPartitionClassifier()`, CBMLC and LPSR with nothing set against the classifier in their blocks.

Every set is fitted and ranked by `DiSMECClassifier()` and by the others in turn, in one process. Each line
has the seconds of fit and ranking by the clock and by the processor (all threads; what a busy machine
does not change much), P@k in percent, and the blocks there are. For LPSR the last column has the number of
leaves over ``n_samples / leaf_size``, and the largest leaf over ``leaf_size``.
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
        sys.exit("MANYLABEL_DATA must name the folder of data sets")
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
    """The split a set comes with, or a random one, a third of the rows held out."""
    if (folder / "train.txt.gz").is_file():
        return *ml.datasets.load_xc(folder / "train.txt.gz"), *ml.datasets.load_xc(folder / "test.txt.gz")
    X, Y = ml.datasets.load_xc(folder / "all.txt.gz")
    order = np.random.default_rng(0).permutation(X.shape[0])
    test, train = np.sort(order[: X.shape[0] // 3]), np.sort(order[X.shape[0] // 3 :])
    return X[train], Y[train], X[test], Y[test]


def timed(work, *args):
    """The result, and the seconds of the clock and of the processor."""
    clock, processor = perf_counter(), process_time()
    result = work(*args)
    return result, (perf_counter() - clock, process_time() - processor)


def shape(model, X, X_test):
    """Blocks, mean number of routes, and how far leaves are from their size."""
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
