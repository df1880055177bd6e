"""Reproduce figure 3 of the paper: how the weight of label sets changes P@k and the time that prediction
saves.

For each weight, a block classifier is fitted to the training set and measured on the test set. The script
prints a table. With ``--png`` it also draws a figure, which needs matplotlib.
"""

import argparse
import os
from pathlib import Path
from time import perf_counter

import numpy as np
import record

import manylabel as ml
from manylabel.metrics import precision_at_k
from manylabel.partition.choice import default_lam

KS = (1, 3, 5)
SHARES = (0.999, 0.99, 0.97, 0.95, 0.9, 0.8, 0.65, 0.5, 0.35)
COLUMNS = ["lam", "captured", "P@1", "P@3", "P@5", "counted", "with router", "test s"]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("set", nargs="?", default="delicious", help="a folder of MANYLABEL_DATA")
    parser.add_argument("--blocks", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--png", type=Path, help="file for the figure")
    args = parser.parse_args()
    folder = Path(os.environ["MANYLABEL_DATA"]) / args.set
    X, Y = ml.datasets.load_xc(folder / "train.txt.gz")
    X_test, Y_test = ml.datasets.load_xc(folder / "test.txt.gz")
    base = ml.DiSMECClassifier(random_state=0, n_jobs=args.threads).fit(X, Y)
    plain = 100 * np.asarray(precision_at_k(Y_test, base.predict_topk(X_test, 5), KS))
    print(f"{args.set}, {args.blocks} blocks; DiSMEC alone: " + " / ".join(f"{p:.2f}" for p in plain))
    print("| " + " | ".join(COLUMNS) + " |\n" + "|---:" * len(COLUMNS) + "|")
    rows = []
    for share in SHARES:
        model = ml.BlockPartitionClassifier(
            ml.DiSMECClassifier(random_state=0),
            n_blocks=args.blocks,
            lam=default_lam(Y, share),
            random_state=0,
            n_jobs=args.threads,
        ).fit(X, Y)
        start = perf_counter()
        top = model.predict_topk(X_test, 5)
        seconds = perf_counter() - start
        precision = 100 * np.asarray(precision_at_k(Y_test, top, KS))
        rows.append([model.lam_, 100 * model.captured_, *precision, *model.measure_speedup(X_test), seconds])
        lam, captured, *rest = rows[-1]
        cells = [f"{lam:.4g}", f"{captured:.1f} %", *(f"{value:.2f}" for value in rest)]
        print("| " + " | ".join(cells) + " |", flush=True)
        title = [args.set, f"{args.blocks} blocks, lam {lam:.4g}"]
        record.keep("partition_lambda", ["set", "system", *COLUMNS], [*title, *cells])
    if args.png is not None:
        draw(np.array(rows), plain, args)


def draw(rows, plain, args):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    left = figure.subplots()
    right = left.twinx()
    for k, values, alone in zip(KS, rows[:, 2:5].T, plain, strict=True):
        (line,) = left.plot(rows[:, 0], values, "o-", label=f"P@{k}")
        left.axhline(alone, color=line.get_color(), linestyle=":", linewidth=1)
    right.plot(rows[:, 0], rows[:, 5], "ks--", markersize=4, label="labels over labels scored")
    right.plot(rows[:, 0], rows[:, 6], "k^:", markersize=4, label="the same, with the router")
    left.set(xscale="log", xlabel="weight on label-set sizes", ylabel="P@k, % (dotted: DiSMEC alone)")
    right.set(yscale="log", ylabel="times fewer products")
    left.set_title(f"{args.set}, {args.blocks} blocks")
    figure.legend(loc="outside lower center", ncols=3)
    figure.savefig(args.png, dpi=150)


if __name__ == "__main__":
    main()
