"""Compare partitioning into blocks with the base classifier alone, CBMLC and LPSR.

Every line has P@k, PSP@k and R@k in percent, and two counts of the saved work. It also has the wall seconds
of the fit, of the partition, of the router and of ranking the test set. The last ratio is the ranking time of
the base classifier divided by the ranking time of the system. Everything runs in turn in this process, so
memory is not measured. The figures are appended to the records.
"""

import argparse
import statistics
import sys
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
import record
from compare import data_folder, heading, hold_threads

import manylabel as ml
from manylabel.metrics import precision_at_k, propensities, psp_at_k, recall_at_k
from manylabel.partition.choice import default_lam, routing_rows
from manylabel.partition.router import fit_router

SETS = ["delicious", "eurlex57k", "citeulike-t", "yso-finna-en"]
KS = (1, 3, 5)
# No margin separates the labels of delicious, so early stopping on held-out rows ends the fit of PD-Sparse.
BASES: dict[str, tuple[str, dict[str, Any]]] = {
    "dismec": ("DiSMECClassifier", {}),
    "leml": ("LEMLClassifier", {}),
    "pdsparse": ("PDSparseClassifier", {"early_stopping": True}),
}
PACKAGES = [(sys.executable, "manylabel"), (sys.executable, "scikit-learn")]
COLUMNS = [
    *["system", "fit s", "partition s", "router s", "test s", "faster", "blocks", "lam", "captured"],
    *["counted", "with router", *(f"{name}@{k}" for name in ("P", "PSP", "R") for k in KS)],
]


def main():
    args = arguments()
    hold_threads(args.threads)
    print(heading(PACKAGES))
    for name in args.sets:
        print(f"\n{table(args, name)}", flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", default=SETS, help="folders of MANYLABEL_DATA")
    parser.add_argument("--base", default="dismec", choices=BASES)
    parser.add_argument("--blocks", type=int, nargs="*", default=[10], help="numbers of blocks")
    parser.add_argument(
        "--shares",
        type=float,
        nargs="+",
        default=[0.99, 0.9],
        help="lam, chosen so that one block captures this fraction of the ones",
    )
    parser.add_argument("--routes", type=int, nargs="+", default=[1, 2])
    parser.add_argument(
        "--modes",
        nargs="*",
        default=[],
        choices=["accuracy", "speed"],
        help="choose blocks and weight by cross-validation",
    )
    parser.add_argument("--clusters", type=int, nargs="*", default=[10], help="numbers of clusters of CBMLC")
    parser.add_argument("--lpsr", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3, help="number of timed rankings of the test set")
    parser.add_argument(
        "--append",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="append the figures to the records",
    )
    args = parser.parse_args()
    args.data = data_folder(parser, args.sets)
    return args


def table(args: argparse.Namespace, name: str) -> str:
    """Return the table of one data set, as Markdown."""
    train, test = read(args, name)
    sizes = f"{train[0].shape[0]:,} rows, {train[0].shape[1]:,} features, {train[1].shape[1]:,} labels"
    lines = [
        f"#### {name}: {sizes}; {args.base}, {args.threads} threads",
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "|---" + "|---:" * (len(COLUMNS) - 1) + "|",
    ]
    for cells in measured(args, name, train, test):
        lines.append("| " + " | ".join(cells) + " |")
        if args.append:
            title_of = [
                f"{name}, {sizes}",
                f"{cells[0]}, over {BASES[args.base][0].removesuffix('Classifier')}",
            ]
            record.keep("partition", ["set", *COLUMNS], [*title_of, *cells[1:]], packages=PACKAGES)
        print(lines[-1], file=sys.stderr, flush=True)
    return "\n".join(lines)


def read(args: argparse.Namespace, name: str) -> list[tuple[Any, Any]]:
    return [ml.datasets.load_xc(args.data / name / f"{part}.txt.gz") for part in ("train", "test")]


def measured(args: argparse.Namespace, name: str, train: tuple[Any, Any], test: tuple[Any, Any]):
    """Yield the row of each system and number of routes."""
    propensity = propensities(train[1])
    plain_seconds = None
    for title, model, routes in systems(args, train[1]):
        print(f"{name}: {title} ...", file=sys.stderr, flush=True)
        start = perf_counter()
        model.fit(*train)
        fitted = perf_counter() - start
        once_more = parts(model, *train)
        for n_routes in routes:
            if n_routes is not None:
                model.set_params(n_routes=n_routes)
            seconds = []
            for _ in range(args.repeats):
                start = perf_counter()
                top = model.predict_topk(test[0], k=max(KS))
                seconds.append(perf_counter() - start)
            tested = statistics.median(seconds)
            plain_seconds = plain_seconds or tested
            cells = [
                title if n_routes in (None, 1) else f"{title}, {n_routes} routes",
                f"{fitted:.1f}",
                *once_more,
                f"{tested:.2f}",
                f"{plain_seconds / tested:.2f}",
                *counts(model, test[0]),
            ]
            for found in (
                precision_at_k(test[1], top, KS),
                psp_at_k(test[1], top, propensity, KS),
                recall_at_k(test[1], top, KS),
            ):
                cells += [f"{100 * value:.2f}" for value in np.asarray(found)]
            yield cells


def systems(args: argparse.Namespace, Y: Any):
    """Yield the title, the model, and the numbers of routes to rank with, for each system."""
    base = partial(getattr(ml, BASES[args.base][0]), random_state=args.seed, **BASES[args.base][1])
    run = {"random_state": args.seed, "n_jobs": args.threads}
    yield args.base, base().set_params(n_jobs=args.threads), [None]
    for n_blocks in args.blocks:
        for share in args.shares:
            lam = default_lam(Y, share)
            model = ml.BlockPartitionClassifier(base(), n_blocks=n_blocks, lam=lam, **run)
            yield f"BP, {n_blocks} blocks, share {share}", model, args.routes
    for mode in args.modes:
        yield f"BP, {mode}", ml.BlockPartitionClassifier(base(), mode=mode, **run), args.routes
    for n_clusters in args.clusters:
        yield f"CBMLC, {n_clusters} clusters", ml.CBMLCClassifier(base(), n_clusters, **run), [None]
    if args.lpsr:
        yield "LPSR over naive Bayes", ml.LPSRClassifier("naive-bayes", **run), [None]


def parts(model: Any, X: Any, Y: Any) -> list[str]:
    """Return the seconds of the partition and of the router. Both are computed again for this measurement."""
    if not isinstance(model, ml.BlockPartitionClassifier):
        return ["", ""]
    names = ("max_labels", "n_init", "max_iter", "tol", "random_state", "n_jobs")
    params = {name: getattr(model, name) for name in names}
    blocks = ml.BlockPartitioner(n_blocks=model.n_blocks_, lam=model.lam_, **params)
    start = perf_counter()
    blocks.fit(X, Y)
    partitioned = perf_counter()
    usable = np.array([len(labels) > 0 for labels in blocks.label_blocks_])
    router = {
        "C": model.router_C,
        "fit_intercept": model.router_intercept,
        "tol": 0.1,
        "max_iter": 1000,
        "random_state": 0,
    }
    rows = routing_rows(Y, blocks.row_blocks_, drop_unlabeled=model.drop_unlabeled)
    fit_router(X, rows, usable, None, router, model.n_jobs, lambda _: None)
    return [f"{partitioned - start:.1f}", f"{perf_counter() - partitioned:.1f}"]


def counts(model: Any, X: Any) -> list[str]:
    """Return the number of blocks, the weight, the fraction of ones that blocks capture, and two counts of
    saved work on the test rows.
    """
    if not hasattr(model, "measure_speedup"):
        return ["", "", "", "1", "1"]
    counted, honest = model.measure_speedup(X)
    lam, captured = getattr(model, "lam_", None), getattr(model, "captured_", None)
    return [
        f"{len(model.label_blocks_)}",
        "" if lam is None else f"{lam:.3g}",
        "" if captured is None else f"{100 * captured:.1f} %",
        f"{counted:.1f}",
        f"{honest:.1f}",
    ]


if __name__ == "__main__":
    main()
