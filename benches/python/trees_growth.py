"""Measure how the time of label trees grows with the number of labels and with the number of rows.

The data are synthetic. If the number of labels grows, the number of rows stays the same, and so does the
number of labels per row. C is given, because the time to choose it is about the same for all large data sets.
"""

import argparse
import statistics
import sys
from time import perf_counter

import numpy as np
import record
from compare import heading, hold_threads

import manylabel as ml
from rules import markdown

SHAPE = {"n_samples": 40_000, "n_features": 40_000, "n_labels": 20_000, "labels_per_sample": 4.0}
STEPS = (1, 2, 4, 8)
COLUMNS = ["data", "fit s", "test ms per 1000 rows", "nodes"]
TEST_ROWS = 5_000


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3, help="number of timed runs; tables have medians")
    args = parser.parse_args()
    hold_threads(args.threads)
    print(heading([(sys.executable, "manylabel")]), "", sep="\n", flush=True)
    for what in ("n_labels", "n_samples"):
        rows = [timed(args, SHAPE | {what: times * SHAPE[what] // 2}) for times in STEPS]
        print(markdown(COLUMNS, rows, n_left=1), flush=True)
        for name, column in (("Fit", 1), ("Prediction", 2)):
            times = [float(row[column]) for row in rows]
            exponent, _ = np.polyfit(np.log(STEPS), np.log(times), 1)
            figures = {"exponent": round(float(exponent), 2)}
            record.write("trees_growth", f"time against {what}", name.lower(), figures)
            print(f"\n{name} time against {what}: exponent {exponent:.2f}", flush=True)
        print()


def timed(args, shape):
    """Measure one size. Return a row of the table."""
    X, Y = ml.datasets.make_multilabel(**shape, random_state=0)
    test = X[:TEST_ROWS]
    fits, tests = [], []
    for _ in range(args.repeats):
        model = ml.LabelTreeClassifier(1.0, random_state=0, n_jobs=args.threads)
        start = perf_counter()
        model.fit(X, Y)
        fits.append(perf_counter() - start)
        start = perf_counter()
        model.predict_topk(test, 5)
        tests.append(perf_counter() - start)
    title = f"{X.shape[0]:,} x {X.shape[1]:,}, {Y.shape[1]:,} labels"
    per_thousand = 1e6 * statistics.median(tests) / TEST_ROWS
    nodes = str(len(model.node_intercept_))
    row = [title, f"{statistics.median(fits):.2f}", f"{per_thousand:.1f}", nodes]
    record.write("trees_growth", title, "one tree", record.figures(COLUMNS[1:], row[1:]))
    return row


if __name__ == "__main__":
    main()
