"""Repeat the experiments of the five papers that can run on available data sets.

published.py lists the experiments and the figures of the papers. Each experiment is repeated with several
folds or seeds, and its means and standard deviations are appended to ``benches/results/papers.jsonl``. An
interrupted run continues with the experiments that the file lacks. A line counts if it has the same version
of the library and at least as many runs. The version consists of the git hashes of the folders ``rust`` and
``python/manylabel``. If only the settings of an experiment in benches/python change, use ``--again``.

``--only``, ``--sets`` and ``--systems`` choose experiments. ``--list`` prints how many experiments each part
has, and how many processor minutes they took in the last run. ``--runs 1`` measures each experiment once, to
see how long it takes. ``python benches/python/tables.py`` writes the figures to
``benches/papers.md``.
"""

import argparse
import os
import sys
from argparse import Namespace
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import corrlog_cv
import corrlog_scene
import link_embeddings
import numpy as np
import record
import rules_cv
import smooth_link_data
import smooth_link_table
from compare import hold_threads
from corrlog_data import MEASURES, everything
from published import (
    DEFAULT_LINK,
    EMBEDDING_KS,
    EXPERIMENTS,
    FLEXIBILITY,
    PAPERS,
    STANDARDIZED,
    Experiment,
    key,
)
from sklearn.base import clone
from sklearn.kernel_approximation import RBFSampler
from sklearn.pipeline import make_pipeline

import manylabel as ml
import partition
from manylabel.metrics import precision_at_k

SOURCES = ["rust", "python/manylabel"]
N_RULES = 5000
N_FEATURES = 1000  # of the kernel on X; the smooth link has as many, a quarter of the rows
Run = dict[str, float]


def main():
    args = arguments()
    chosen = [experiment for experiment in EXPERIMENTS if is_chosen(args, experiment)]
    lines = record.read("papers")
    missing = [experiment for experiment in chosen if args.again or not is_measured(args, experiment, lines)]
    if args.list:
        print_parts(args, chosen, missing, lines)
        return
    hold_threads(args.threads)
    for number, experiment in enumerate(missing, 1):
        left = minutes(args, missing[number - 1 :], lines)
        print(
            f"[{number} of {len(missing)}; {left}] {', '.join(experiment.key)}", file=sys.stderr, flush=True
        )
        measure(args, experiment)


def arguments() -> Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=list(PAPERS), choices=PAPERS, help="papers")
    names = list(dict.fromkeys(experiment.data for experiment in EXPERIMENTS))
    parser.add_argument("--sets", nargs="+", default=names, choices=names, metavar="SET")
    parser.add_argument(
        "--systems", nargs="+", default=[""], metavar="TEXT", help="parts of names of systems"
    )
    parser.add_argument("--runs", type=int, help="largest number of folds or seeds")
    parser.add_argument(
        "--again", action="store_true", help="repeat experiments that the records already have"
    )
    parser.add_argument("--list", action="store_true", help="measure nothing, and list the parts")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    if not os.environ.get("MANYLABEL_DATA"):
        parser.error("set MANYLABEL_DATA to the folder of data sets")
    args.data = Path(os.environ["MANYLABEL_DATA"])
    return args


def is_chosen(args: Namespace, experiment: Experiment) -> bool:
    named = any(text in experiment.system for text in args.systems)
    return named and experiment.paper in args.only and experiment.data in args.sets


def wanted(args: Namespace, experiment: Experiment) -> int:
    return min(args.runs or experiment.runs, experiment.runs)


def is_measured(args: Namespace, experiment: Experiment, lines: list[dict]) -> bool:
    return any(
        key(line) == experiment.key
        and line["version"] == version()
        and line["figures"]["runs"] >= wanted(args, experiment)
        for line in lines
    )


@cache
def version() -> str:
    """Return the hashes of the sources. "-dirty" is appended if they have uncommitted changes."""
    trees = [record.output("git", "rev-parse", "--short=10", f"HEAD:{folder}") for folder in SOURCES]
    dirty = record.output("git", "diff", "--name-only", "HEAD", "--", *SOURCES)
    return " ".join(trees) + ("-dirty" if dirty else "")


def minutes(args: Namespace, experiments: list[Experiment], lines: list[dict]) -> str:
    """Return the processor minutes that experiments take, from the newest line of each."""
    seconds = {key(line): line["figures"]["CPU s"] / line["figures"]["runs"] for line in lines}
    known = [
        seconds[experiment.key] * wanted(args, experiment)
        for experiment in experiments
        if experiment.key in seconds
    ]
    times = [f"{sum(known) / 60:.1f} processor minutes"] if known else []
    unknown = len(experiments) - len(known)
    return " and ".join(times + ([f"an unknown time for {unknown}"] if unknown else []))


def print_parts(args: Namespace, chosen: list[Experiment], missing: list[Experiment], lines: list[dict]):
    for paper, name in dict.fromkeys((experiment.paper, experiment.data) for experiment in chosen):
        part = [experiment for experiment in chosen if (experiment.paper, experiment.data) == (paper, name)]
        todo = sum(experiment in missing for experiment in part)
        found = f"{len(part) - todo} of {len(part)} measured"
        print(f"--only {paper} --sets {name}: {found}; all take {minutes(args, part, lines)}")


def measure(args: Namespace, experiment: Experiment):
    """Run an experiment, and append its means and standard deviations to the records."""
    start = processor_seconds()
    runs = []
    n_runs = wanted(args, experiment)
    for figures in MEASURED[experiment.paper](args, experiment, n_runs):
        runs.append(figures)
        if absent := {figure.measure for figure in experiment.figures} - figures.keys():
            sys.exit(f"{', '.join(experiment.key)}: not measured: {absent}")
        print(f"  run {len(runs)} of {n_runs}", file=sys.stderr, flush=True)
    found = {"runs": len(runs), "CPU s": round(processor_seconds() - start, 1)}
    for name in runs[0]:
        values = [run[name] for run in runs]
        found[name] = float(f"{np.mean(values):.6g}")
        if len(runs) > 1:
            found[f"{name}, deviation"] = float(f"{np.std(values, ddof=1):.6g}")
    record.write(
        "papers",
        experiment.data,
        experiment.system,
        found,
        paper=experiment.paper,
        version=version(),
        threads=args.threads,
    )


def processor_seconds() -> float:
    """Return the processor seconds of this process and of its workers that have ended."""
    return sum(os.times()[:4])


# --- The experiments of each paper ---------------------------------------------------------------


def smooth_link(args: Namespace, experiment: Experiment, n_runs: int) -> Iterator[Run]:
    if experiment.system == FLEXIBILITY:
        yield from flexibility(args, experiment, n_runs)
        return
    split = smooth_link_data.load(experiment.data)
    if experiment.system == DEFAULT_LINK:
        for seed in range(n_runs):
            model = ml.SmoothLinkClassifier(threshold="zero", random_state=seed, n_jobs=args.threads)
            model.fit(split.X, split.Y)
            yield {
                measure: of_measure(split.Y_test, naming(model, split))
                for measure, (of_measure, naming, _) in smooth_link_data.MEASURES.items()
            }
        return
    measure = experiment.figures[0].measure
    of_measure, naming, _ = smooth_link_data.MEASURES[measure]
    for model, _ in smooth_link_table.of_seeds(split, experiment.data, measure, n_runs, args.threads):
        yield {measure: of_measure(split.Y_test, naming(model, split))}


def flexibility(args: Namespace, experiment: Experiment, n_runs: int) -> Iterator[Run]:
    """Compare the smooth link with a linear link, with independent logistic regressions, and with logistic
    regressions on random features of X. A random third of the rows is the test set.
    """
    for seed in range(n_runs):
        rng = np.random.default_rng(seed)
        X, Y, X_test, Y_test = parts_of(args, experiment.data, rng)
        common = {"threshold": "zero", "random_state": seed, "n_jobs": args.threads}
        regressions = ml.DiSMECClassifier(loss="logistic", prune=0.0, **common)
        link = ml.SmoothLinkClassifier(loss="squared", **common)
        # The bandwidth of the random features is chosen on a tenth of the training rows.
        held, kept = np.split(rng.permutation(X.shape[0]), [X.shape[0] // 10])
        kernels = [
            make_pipeline(RBFSampler(gamma=gamma, n_components=N_FEATURES, random_state=seed), regressions)
            for gamma in gammas(X, rng)
        ]
        held_out = [hamming(kernel.fit(X[kept], Y[kept]), X[held], Y[held]) for kernel in kernels]
        loss = {
            name: hamming(model.fit(X, Y), X_test, Y_test)
            for name, model in {
                "kernel on X": kernels[int(np.argmin(held_out))],
                "regressions": regressions,
                "smooth link": link,
                "linear link": clone(link).set_params(kernel="linear"),
            }.items()
        }
        yield {
            "HL: regressions less smooth link": loss["regressions"] - loss["smooth link"],
            "HL: kernel on X less regressions": loss["kernel on X"] - loss["regressions"],
            **{f"HL of {name}": value for name, value in loss.items()},
        }


def parts_of(args: Namespace, name: str, rng: np.random.Generator):
    """Divide all rows of a set, whose rows have unit length, randomly into training and test rows."""
    X, Y = link_embeddings.read(args.data / name / "all.txt.gz")
    test, train = np.split(rng.permutation(X.shape[0]), [X.shape[0] // 3])
    return X[train], Y[train], X[test], Y[test]


def gammas(X, rng: np.random.Generator) -> list[float]:
    """Return bandwidths of the Gaussian kernel around the median heuristic, for rows of unit length."""
    rows = X[rng.choice(X.shape[0], 1000, replace=False)]
    median = np.median(2 - 2 * (rows @ rows.T).toarray()[np.triu_indices(1000, 1)])
    return [float(factor**2 / median) for factor in (0.25, 0.5, 1)]


def hamming(model, X, Y) -> float:
    return float(abs(Y - model.predict(X)).sum() / np.prod(Y.shape))


def blocks(args: Namespace, experiment: Experiment, n_runs: int) -> Iterator[Run]:
    """Compare blocks, whose weight is chosen on held-out rows, with the base classifier and with CBMLC."""
    base = experiment.system.removeprefix("blocks over ")
    train, test = partition.read(args, experiment.data)
    for seed in range(n_runs):
        run = Namespace(
            base=base,
            seed=seed,
            threads=args.threads,
            repeats=1,
            routes=[1],
            lpsr=False,
            blocks=[],
            shares=[],
            modes=["accuracy", "speed"],
            clusters=[10],
        )
        rows = {
            cells[0]: record.figures(partition.COLUMNS[1:], cells[1:])
            for cells in partition.measured(run, experiment.data, train, test)
        }
        none, speed, accuracy = rows[base], rows["BP, speed"], rows["BP, accuracy"]
        lost = {
            f"{kind}@{k}: blocks for speed less none": speed[f"{kind}@{k}"] - none[f"{kind}@{k}"]
            for kind in ("P", "PSP", "R")
            for k in partition.KS
        }
        won = {
            f"P@{k}: blocks for accuracy less {other}": accuracy[f"P@{k}"] - rows[title][f"P@{k}"]
            for other, title in {"none": base, "CBMLC": "CBMLC, 10 clusters"}.items()
            for k in partition.KS
        }
        shown = {f"P@1 of {name}": row["P@1"] for name, row in rows.items()}
        yield lost | won | shown | {"speed-up of blocks for speed": speed["counted"]}


def embeddings(args: Namespace, experiment: Experiment, n_runs: int) -> Iterator[Run]:
    """Rank labels by logistic regressions on label embeddings, random codes and principal components."""
    train, test = (
        link_embeddings.read(args.data / experiment.data / f"{part}.txt.gz") for part in ("train", "test")
    )
    ks = EMBEDDING_KS[experiment.data]
    for seed in range(n_runs):
        run = Namespace(seed=seed, threads=args.threads)
        P = {}
        for k in ks:
            for embedding in link_embeddings.EMBEDDINGS:
                top_of = link_embeddings.logistic(run, embedding, k).fit(*train).predict_topk
                P[embedding, k] = 100 * float(precision_at_k(test[1], top_of(test[0], 1), k=1))
        figures = {f"P@1 of {embedding}, k = {k}": found for (embedding, k), found in P.items()}
        for k in ks:
            for other in ("gaussian", "pca"):
                figures[f"P@1: rembrandt less {other}, k = {k}"] = P["rembrandt", k] - P[other, k]
        gain = P["rembrandt", ks[1]] - P["rembrandt", ks[0]]
        yield figures | {f"P@1: rembrandt, k = {ks[1]} less k = {ks[0]}": gain}


def corrlog(args: Namespace, experiment: Experiment, n_runs: int) -> Iterator[Run]:
    _, penalty = experiment.system.rsplit(", ", 1)
    if penalty in corrlog_scene.AUTHORS:
        X, Y = everything(experiment.data)
        model = ml.CorrLogClassifier(n_jobs=args.threads, **corrlog_scene.AUTHORS[penalty])
        results = corrlog_scene.run(X.toarray().astype(float), Y, model, leak=True)
        for _, found in zip(range(n_runs), results, strict=False):
            yield dict(zip(MEASURES, map(float, found), strict=True))
        return
    elastic, l2, none = "CorrLog, elastic net", "CorrLog, l2", "independent, elastic net"
    standardize = True if experiment.system.endswith(STANDARDIZED) else "auto"
    results = corrlog_cv.of_folds(
        experiment.data, experiment.runs, variants=(elastic, l2, none), standardize=standardize
    )
    for _, found in zip(range(n_runs), results, strict=False):
        figures = {
            f"{measure} of {elastic}": float(found[elastic][at]) for at, measure in enumerate(MEASURES)
        }
        for title, other in {"elastic net over l2": l2, "CorrLog over no couplings": none}.items():
            gains = corrlog_cv.gains(found[elastic], found[other])
            names = [f"gain of {measure}: {title}" for measure in MEASURES]
            figures |= dict(zip(names, map(float, gains), strict=True))
        yield figures


def rules(args: Namespace, experiment: Experiment, n_runs: int) -> Iterator[Run]:
    column = experiment.system.removeprefix("rules, ")
    system = SYSTEM_OF[column]
    run = Namespace(**vars(args) | {"folds": experiment.runs, "seed": 1, "rules": N_RULES, "repeats": 1})
    folds = rules_cv.Folds(run, experiment.data)
    for _, figures in zip(range(n_runs), rules_cv.of_folds(run, folds, system), strict=False):
        losses = {"subset 0/1 %": "zero_one", "Hamming %": "hamming"}
        seconds = figures["fit_cpu_seconds"]
        yield {name: 100 * figures[part] for name, part in losses.items()} | {"fit CPU s": seconds}


SYSTEM_OF = {column: system for system, column in rules_cv.COLUMN_OF.items() if "exact" in system}
SYSTEM_OF |= {"label-wise": "label-wise", "label-wise, single-label heads": "label-wise-single"}
MEASURED = {
    "smooth-link": smooth_link,
    "blocks": blocks,
    "rembrandt": embeddings,
    "corrlog": corrlog,
    "rules": rules,
}

if __name__ == "__main__":
    main()
