"""Write the tables of ``benches/README.md`` and ``benches/papers.md`` from the records.

A table is between the lines ``<!-- table: name -->`` and ``<!-- end -->``. `TABLES` describes how each table
is made. A row shows the newest record of a system on a data set. A record that was measured while the machine
was busy is used only if there is no other record. ``--check`` writes nothing, and fails if a page is out of
date.
"""

import argparse
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import mean

import record
from published import (
    EXPERIMENTS,
    NOT_MEASURED,
    PAPERS,
    STANDARDIZED,
    VERDICTS,
    Experiment,
    Figure,
    half_width,
    key,
    verdict,
)

PAGES = [record.ROOT / "benches/README.md", record.ROOT / "benches/papers.md"]
MARKED = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)

# The name of a figure, or a function that makes a cell from all figures of a line.
Cell = str | Callable[[dict], object]
Figures = dict[str, object]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="fail if a page is out of date")
    args = parser.parse_args()
    for page in PAGES:
        old = page.read_text(encoding="utf-8")
        new = filled(page, old)
        if not args.check:
            page.write_text(new, encoding="utf-8")
        elif new != old:
            sys.exit(f"{page} is out of date; run `python benches/python/tables.py`")


def filled(page: Path, text: str) -> str:
    """Return the text of a page with new tables."""
    named = [name for _, name, _ in MARKED.findall(text)]
    if len(named) != text.count("<!-- table:") or len(named) != text.count("<!-- end -->"):
        sys.exit(f"{page}: each `<!-- table: name -->` needs its `<!-- end -->`")
    unknown = [name for name in named if name not in TABLES]
    if unknown:
        sys.exit(f"{page}: no such table: {', '.join(unknown)}")
    return MARKED.sub(lambda found: found[1] + "\n".join(TABLES[found[2]]()) + "\n" + found[3], text)


def newest(topic: str, parts: tuple[str, ...] = ("set", "system")) -> dict[tuple, dict]:
    """Return the newest lines by data set and system, in the order in which the pairs first appear."""
    chosen: dict[tuple, dict] = {}
    for line in record.read(topic):
        key = tuple(line[part] for part in parts)
        if key not in chosen or "busy" not in line or "busy" in chosen[key]:
            chosen[key] = line
    return chosen


def rows(
    topic: str,
    columns: dict[str, Cell],
    *,
    sets: dict[str, str] | list[str] | None = None,
    systems: dict[str, str] | None = None,
    only: list[tuple[str, str]] | None = None,
    first: str = "system",
    sizes: bool = False,
    quiet: bool = False,
    join: str = "",
) -> list[str]:
    """Return one row per data set and system. The rows of a data set are adjacent.

    `systems` chooses and names the systems, and `only` chooses pairs. `quiet` leaves out lines that were
    measured while the machine was busy. `sizes` writes the sizes of the data beside the name of the set. If
    the topic `join` has a line for a pair, the figures of this line are used. If `first` is empty, there is
    no column of systems.
    """
    lines = newest(topic)
    for pair, line in newest(join).items() if join else ():
        if pair in lines:
            lines[pair] = lines[pair] | {"figures": lines[pair]["figures"] | line["figures"]}
    if only is not None:
        missing = [pair for pair in only if pair not in lines]
        if missing:
            sys.exit(f"{topic}.jsonl has no line of {missing}")
        lines = {pair: lines[pair] for pair in only}
    names = list(sets if sets is not None else dict.fromkeys(name for name, _ in lines))
    cells, used = [], []
    for name in names:
        shown = ""
        ranked = [line for (of, _), line in lines.items() if of == name]
        if systems is not None:
            order = list(systems)
            ranked = sorted(
                (line for line in ranked if line["system"] in order), key=lambda a: order.index(a["system"])
            )
        for line in ranked:
            if quiet and "busy" in line:
                continue
            title = f"{name} ({line['data']})" if sizes and line.get("data") else name
            system = [systems[line["system"]] if systems else line["system"]] if first else []
            figures = [cell(line["figures"], column, of) for column, of in columns.items()]
            cells.append([title if shown != name else "", *system, *figures])
            shown = name
            used.append(line)
    return [*markdown(["data", *([first] if first else []), *columns], cells), *measured(used)]


def markdown(columns: list[str], cells: list[list[str]]) -> list[str]:
    """Return a Markdown table. Columns of numbers are aligned to the right."""
    numeric = [all(re.match(r"[-+~]?[\d.,]|$", row[at]) for row in cells) for at in range(len(columns))]
    return [
        "| " + " | ".join(columns) + " |",
        "|" + "|".join("---:" if at and number else "---" for at, number in enumerate(numeric)) + "|",
        *("| " + " | ".join(row) + " |" for row in cells),
    ]


def measured(lines: list[dict]) -> list[str]:
    """Return the line below each table. It states the date, the machine and the command."""
    dates = sorted({line["date"] for line in lines})
    machines = list(dict.fromkeys(line["machine"] for line in lines if "machine" in line))
    scripts = [re.match(r"(?:python )?(\S+\.py)", line.get("command", "")) for line in lines]
    commands = list(dict.fromkeys(f"`python {found[1]}`" for found in scripts if found))
    text = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    return ["", "; ".join([f"Measured {text}", *machines, *commands]) + "."]


def cell(figures: Figures, title: str, of: Cell) -> str:
    value = of(figures) if callable(of) else figures.get(of)
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, float) and re.match(r"(P|PSP|R)@|.*%", title):
        return f"{value:.2f}"
    return f"{value:,}"


# --- The tables ----------------------------------------------------------------------------------

RANKING = {"P@1": "P@1", "P@3": "P@3", "P@5": "P@5"}


def same(*columns: str) -> dict[str, Cell]:
    return {column: column for column in columns}


def glance() -> list[str]:
    """Return the table that compares one-vs-rest with other libraries."""
    return rows(
        "compare",
        {"fit s": "fit s", **RANKING, "test rows/s": "rows/s", "one row p50 ms": "one row p50 ms"},
        sets=["delicious", "eurlex57k", "citeulike-t", "yso-finna-en"],
        systems={
            "manylabel DiSMECClassifier()": "manylabel",
            "scikit-learn OneVsRest(LinearSVC(C=1))": "scikit-learn `OneVsRestClassifier(LinearSVC())`",
            "PECOS XR-Linear, defaults": "PECOS XR-Linear",
            "omikuji, defaults (Parabel-like)": "omikuji",
            "napkinXC PLT, defaults": "napkinXC",
        },
        sizes=True,
        quiet=True,
    )


def compare() -> list[str]:
    columns = same(
        "fit s", "fit ms/label", "rows/s", "one row p50 ms", "p99 ms", "load s", "peak MB", "model MB"
    )
    return rows("compare", columns | RANKING | {"PSP@5": "PSP@5"})


def trees() -> list[str]:
    columns = same("fit s", "rows/s", "one row p50 ms", "peak MB", "model MB")
    return rows("trees", columns | RANKING | {"PSP@5": "PSP@5"}, sizes=True)


DEFAULTS = {
    "LR": "LR",
    "forest": "forest",
    "XGBoost": "XGBoost",
    "DiSMEC": "DiSMEC",
    "LEML": "LEML",
    "PD-Sparse": "PD-Sparse",
    "link": "smooth link",
    "CorrLog": "CorrLog",
    "rules": "rules",
}


def of_splits(
    topic: str, show: Callable[[Callable[[str], float]], str], systems: dict[str, str]
) -> list[str]:
    """Return a table with one column per classifier. Cells are means over the newest lines of all splits."""
    lines = newest(topic, ("set", "system", "split"))
    cells = []
    for name in dict.fromkeys(name for name, _, _ in lines):
        row = [name]
        for system in systems:
            splits = [line["figures"] for key, line in lines.items() if key[:2] == (name, system)]
            splits = [figures for figures in splits if figures]
            row.append(
                show(lambda of, splits=splits: mean(figures[of] for figures in splits)) if splits else ""
            )
        cells.append(row)
    return [*markdown(["data", *systems.values()], cells), *measured(list(lines.values()))]


def pair(figure: str) -> Cell:
    """Return a cell with a calibration error, and the error that calibrated probabilities have by chance."""
    return lambda figures: f"{figures[figure]} ({figures[f'{figure}, by chance']})"


def with_error(figure: str) -> Cell:
    """Return a cell with a mean and its standard error."""
    return lambda figures: f"{figures[figure]:.4f} ± {figures[f'{figure}, standard error']:.4f}"


def gain(measure: str) -> Cell:
    """Return a cell with a difference and its standard error."""
    return lambda figures: f"{figures[f'{measure} gain']:+.2f} ± {figures[f'{measure} error']:.2f}"


def of_rules(measure: str, *titles: str) -> Cell:
    """Return a cell with a measure of the label sets of several rules."""
    return lambda figures: ", ".join(f"{figures[f'{measure}-F1, {title}']:.2f}" for title in titles)


def unknown_losses() -> list[str]:
    """Return how much each classifier loses to the fit to complete labels: means over sets and measures."""
    of_systems: dict[str, list[dict]] = {}
    for (_, system), line in newest("unknown_gains").items():
        of_systems.setdefault(system, []).append(line)
    measures = [f"{kind}@{k}" for kind in ("P", "PSP") for k in (1, 3, 5)]
    cells = []
    for system, lines in of_systems.items():
        row = [system]
        for some in (lines, [line for line in lines if line["set"] != "scene"]):
            zeros, told = (
                mean(
                    line["figures"][f"{measure} complete"] - line["figures"][f"{measure} {name}"]
                    for line in some
                    for measure in measures
                )
                for name in ("zeros", "told")
            )
            row += [str(len(some)), f"{zeros:.2f}", f"{told:.2f}", f"{told / zeros:.2f}"]
        cells.append(row)
    kinds = ("sets", "lost by zeros", "lost by told", "ratio")
    columns = ["system", *kinds, *(f"{kind}, without scene" for kind in kinds)]
    return [*markdown(columns, cells), *measured([line for lines in of_systems.values() for line in lines])]


def glance_defaults() -> list[str]:
    kept = {system: title for system, title in DEFAULTS.items() if system not in ("forest", "XGBoost")}
    return of_splits(
        "defaults", lambda of: f"{of('P@1'):.1f}, {of('labels a row') / of('true labels'):.2f}", kept
    )


def defaults() -> list[str]:
    measures = ("P@1", "example-F1", "Hamming %", "subset 0/1 %")
    return of_splits("defaults", lambda of: ", ".join(f"{of(measure):.3g}" for measure in measures), DEFAULTS)


def tabular(*systems: str) -> list[str]:
    def show(of: Callable[[str], float]) -> str:
        losses = f"{of('subset 0/1 %'):.1f}, {of('Hamming %'):.2f}, {of('example-F1'):.1f}"
        return f"{losses}, {of('fit s'):.2g} s"

    return of_splits("tabular", show, {system: system for system in systems})


def glance_partition() -> list[str]:
    chosen = {
        "eurlex57k": {
            "dismec": "alone",
            "BP, 10 blocks, share 0.95": "10 blocks, `lam` of 95 %",
            "BP, 10 blocks, share 0.95, 2 routes": "10 blocks, `lam` of 95 %, 2 routes",
        },
        "citeulike-t": {
            "dismec": "alone",
            "BP, 4 blocks, share 0.8": "4 blocks, `lam` of 80 %",
            "BP, 4 blocks, share 0.8, 2 routes": "4 blocks, `lam` of 80 %, 2 routes",
        },
        "yso-finna-en": {
            "dismec": "alone",
            "BP, 3 blocks, share 0.95, 3 routes": "3 blocks, `lam` of 95 %, 3 routes",
        },
    }
    return rows(
        "partition",
        {"fit s": "fit s", **RANKING, "fewer": "counted", "test s": "test s"},
        only=[(name, f"{system}, over DiSMEC") for name, systems in chosen.items() for system in systems],
        systems={
            f"{system}, over DiSMEC": title
            for systems in chosen.values()
            for system, title in systems.items()
        },
    )


def of_papers() -> dict[tuple[str, str, str], dict]:
    """Return the newest line of each experiment. A line with fewer runs does not replace a line with more."""
    chosen: dict[tuple[str, str, str], dict] = {}
    for line in record.read("papers"):
        old = chosen.setdefault(key(line), line)
        if line["figures"]["runs"] >= old["figures"]["runs"]:
            chosen[key(line)] = line
    unknown = chosen.keys() - {experiment.key for experiment in EXPERIMENTS}
    if unknown:
        sys.exit(f"papers.jsonl has lines of unknown experiments: {unknown}")
    return chosen


def judged(experiment: Experiment, figure: Figure, line: dict | None) -> tuple[str, str, str]:
    """Return our figure, the number of runs, and the verdict."""
    if line is None:
        return "", "", "not measured"
    figures, measure = line["figures"], figure.measure
    n_runs, ours, deviation = figures["runs"], figures[measure], figures.get(f"{measure}, deviation", 0.0)
    places = 2
    if experiment.paper in ("smooth-link", "corrlog"):  # fractions, not percentages
        places = 4 if abs(ours) >= 0.01 else 5
    shown = f"{ours:{'+' if figure.claim else ''}.{places}f}"
    if n_runs > 1:
        shown += f" ± {deviation:.{places}f}"
    found = verdict(figure, ours, deviation, n_runs)
    if found in ("worse", "does not hold"):
        found += "; " + cause(experiment, figure, ours - half_width(deviation, n_runs), n_runs)
    return shown, str(n_runs), found


def cause(experiment: Experiment, figure: Figure, least: float, n_runs: int) -> str:
    """Return why our figure is worse than in the paper, if an experiment shows it. `least` is the lower end
    of the interval of our figure, which is the mean of `n_runs` runs.
    """
    other = of_papers().get((*experiment.key[:2], f"{experiment.system}{STANDARDIZED}"))
    if other:
        figures = other["figures"]
        mean, deviation = figures[figure.measure], figures[f"{figure.measure}, deviation"]
        if verdict(figure, mean, deviation, figures["runs"]) == "holds":
            return f"holds with standardized features ({mean:+.4f} ± {deviation:.4f})"
    line = newest("rules_cv").get((experiment.data, BOOMER.get(experiment.system, "")))
    theirs = ""
    if line and line["figures"]["folds"] == n_runs:
        theirs = str(line["figures"].get(figure.measure, ""))
    if theirs and float(theirs.split()[0]) >= least:
        return f"the present BOOMER has {theirs} on the same folds"
    return "cause not known"


# Systems in rules_cv.jsonl, by the experiment that has the same settings and folds.
BOOMER = {
    "rules, no bins": "BOOMER, no binning",
    **{f"rules, {share} %": f"BOOMER, {share} % bins" for share in (32, 16, 8, 4)},
    "rules, 2 bins": "BOOMER, 2 bins",
    "rules, label-wise": "BOOMER, label-wise loss",
    "rules, label-wise, single-label heads": "BOOMER, label-wise loss, single-label heads",
}


def papers(name: str) -> list[str]:
    """Return one row for each figure of a paper."""
    lines = of_papers()
    cells = []
    for experiment in (experiment for experiment in EXPERIMENTS if experiment.paper == name):
        for figure in experiment.figures:
            ours = judged(experiment, figure, lines.get(experiment.key))
            cells.append([figure.table, *experiment.key[1:], figure.measure, figure.text, *ours])
    columns = ["table", "data", "system", "measure", "paper", "ours", "runs", "verdict"]
    return [*markdown(columns, cells), *of_lines(lines, name)]


def of_lines(lines: dict[tuple[str, str, str], dict], name: str) -> list[str]:
    used = [line for line in lines.values() if line["paper"] == name]
    return measured(used) if used else []


def papers_summary() -> list[str]:
    """Return the number of rows of each paper by verdict."""
    lines = of_papers()
    counts = {name: Counter[str]() for name in PAPERS}
    for experiment in EXPERIMENTS:
        for figure in experiment.figures:
            found = judged(experiment, figure, lines.get(experiment.key))[-1]
            counts[experiment.paper][found.partition(";")[0]] += 1
    verdicts = [found for found in VERDICTS if any(found in count for count in counts.values())]
    cells = [
        [title, str(sum(counts[name].values())), *(str(counts[name][found]) for found in verdicts)]
        for name, title in PAPERS.items()
    ]
    return markdown(["paper", "rows", *verdicts], cells)


TABLES: dict[str, Callable[[], list[str]]] = {
    "glance": glance,
    "glance-defaults": glance_defaults,
    "glance-partition": glance_partition,
    "glance-pls": lambda: rows("pls", same("fit s", "times faster", "energy %"), sizes=True),
    "glance-correlated": lambda: rows(
        "corrlog_speed",
        {
            "scikit-learn s": "scikit-learn s",
            "ours s": "CorrLog s",
            "couplings": "pairs",
            "times faster": lambda figures: figures["share"].removeprefix("1/"),
        },
        first="",
        sizes=True,
    ),
    "compare": compare,
    "dense": lambda: rows(
        "dense",
        {**same("fit CPU s", "memory MB", "memory / X"), **RANKING},
        sets=[
            "planted",
            *(f"{name}-{n}" for name in ("eurlex57k", "citeulike-t", "yso-finna-en") for n in (512, 1024)),
        ],
        sizes=True,
    ),
    "dense_forms": lambda: rows(
        "dense_forms",
        same(
            *(
                f"{figure}, {form} X"
                for figure in ("fit s", "fit memory / X", "top 5 s", "top 5 memory / X")
                for form in ("dense", "sparse")
            )
        ),
        first="estimator",
        sizes=True,
    ),
    "unknown_gains": lambda: rows(
        "unknown_gains",
        {
            **same("seeds", "P@1 complete", "P@1 zeros", "P@1 told"),
            **{f"gain of {m}": gain(m) for m in ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")},
        },
        sets=["reuters-21578", "yahoo-arts-mlnb", "bibtex", "eukaryote-go", "scene"],
    ),
    "unknown_losses": unknown_losses,
    "unknown_ones": lambda: rows(
        "unknown_ones",
        {
            **same("P@1 complete", "P@1 zeros", "P@1 told"),
            **{f"gain of {m}": gain(m) for m in ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")},
        },
    ),
    "unknown_propensities": lambda: rows(
        "unknown_propensities",
        same(*(f"{m} {kind}" for m in ("P@1", "PSP@1", "PSP@3", "PSP@5") for kind in ("without", "with"))),
    ),
    "unknown_peers": lambda: rows(
        "compare",
        same("P@1", "PSP@1", "PSP@3", "PSP@5"),
        sets=["bibtex", "delicious", "citeulike-t", "eurlex57k"],
        systems={
            "scikit-learn OneVsRest(LinearSVC(C=1))": "scikit-learn `OneVsRestClassifier(LinearSVC())`",
            "PECOS XR-Linear, defaults": "PECOS XR-Linear",
            "omikuji, defaults (Parabel-like)": "omikuji",
            "omikuji, Bonsai-like (unbalanced, k = 100, depth 3)": "omikuji, like Bonsai",
            "napkinXC PLT, defaults": "napkinXC",
        },
    ),
    "unknown_times": lambda: rows("unknown_times", same("known s", "told s", "times"), first="system"),
    "trees": trees,
    "calibration": lambda: rows(
        "decisions",
        {
            **same("cv"),
            "error": pair("error"),
            "above 0.3": pair("error above 0.3"),
            "of labels": pair("error of labels"),
            "of labels, candidates": pair("error of labels, candidates"),
            **same("log loss", "log loss, no pooling", "log loss, one curve", "log loss, one isotonic curve"),
            **same("gain of P@1", "gain of P@3", "gain of P@5", "times fit", "peak MB"),
        },
    ),
    "calibration_splits": lambda: rows(
        "decisions_splits",
        {
            title: with_error(figure)
            for title, figure in {
                "error": "error",
                "above 0.3": "error above 0.3",
                "above 0.3, by chance": "error above 0.3, by chance",
                "of labels": "error of labels",
                "of labels, candidates": "error of labels, candidates",
                "of labels, candidates, by chance": "error of labels, candidates, by chance",
            }.items()
        },
    ),
    "decisions": lambda: rows(
        "decisions",
        {
            "micro-F1": of_rules("micro", "micro bound", "one bound for micro-F1"),
            "macro-F1": of_rules(
                "macro", "macro bounds", "one bound for macro-F1", "macro bounds, no pooling", "F1Inference"
            ),
            "example-F1": of_rules("example", "expected F1", "one bound for example-F1"),
            **same("FNR 0.3", "FNR 0.3, probability", "FDR 0.3, probability"),
        },
    ),
    "hierarchies": lambda: rows(
        "hierarchies",
        same("rows with an orphan %", "example-F1 %", "cost", "us a row"),
        first="rule",
        sizes=True,
    ),
    "load_xc": lambda: rows("load_xc", same("s", "MB/s", "times faster"), first="reader"),
    "tagger": lambda: rows(
        "tagger",
        same(
            "labels",
            "fit s",
            "of which texts s",
            "MB",
            "load s",
            "one text p50 ms",
            "one text p95 ms",
            "texts/s",
        ),
    ),
    "tagger_changes": lambda: rows("tagger_changes", same("s", "other labels", "same bits"), first="change"),
    "service": lambda: rows(
        "service",
        same(
            "labels",
            "workers",
            "model MB",
            "private MB of a worker",
            "of which libraries",
            "requests/s",
            "p50 ms",
            "p95 ms",
            "p99 ms",
        ),
        first="service",
    ),
    "annif": lambda: rows(
        "annif",
        {
            **same("train CPU s", "learn CPU s", "suggestions/s"),
            "train peak MB": "train MB of memory",
            "suggest peak MB": "suggest MB of memory",
            **same("F1@5", "NDCG", "MB", "files"),
        },
        first="backend",
        sizes=True,
    ),
    "page_sharing": lambda: rows(
        "page_sharing", same("Rss MB", "Pss MB", "private MB", "s"), first="process, stage"
    ),
    "defaults": defaults,
    "tabular": lambda: tabular("rules", "rules, measure", "forest", "XGBoost", "LightGBM"),
    "tabular-tuned": lambda: tabular(
        *(f"{system}, tuned" for system in ("rules, measure", "forest", "XGBoost"))
    ),
    "rules": lambda: rows(
        "rules",
        {
            **same("fit s", "fit times faster", "test s", "test times faster", "peak MB", "seeds"),
            **same("subset 0/1 %"),
            "minus BOOMER's": "less peer's",
            **same("Hamming %"),
        },
        join="rules_losses",
    ),
    "rules_one_by_one": lambda: rows(
        "rules_one_by_one",
        {
            "equal": "equal rules",
            "equal, sparse X": "equal rules, sparse X",
            **same("ours by the definition", "BOOMER's by its search"),
            "our quality": "quality of our rule",
            "BOOMER's quality": "quality of BOOMER's rule",
        },
        first="bins",
        sizes=True,
    ),
    "rules_searches": lambda: rows(
        "rules_searches", same("seeds", "subset 0/1 %", "Hamming %", "conditions"), first="search"
    ),
    "lpsr": lambda: rows(
        "partition",
        {**same("fit s", "test s"), "leaves": "blocks", **RANKING},
        systems={"LPSR over naive Bayes, over DiSMEC": ""},
        first="",
    ),
    "rules_cv": lambda: rows(
        "rules_cv",
        same("folds", "subset 0/1 %", "subset of the paper %", "Hamming %", "Hamming of the paper %"),
    ),
    "pls_planted": lambda: rows("pls_planted", same("fit s", "fit CPU s", "peak MB"), first=""),
    "pls_product": lambda: rows("pls_product", same("ms", "GFLOP/s", "GB/s", "% of copy"), sizes=True),
    "smooth_link_table": lambda: rows(
        "smooth_link_table", same("mean (least, most)", "fit s", "published"), first="measure"
    ),
    "trees_growth": lambda: rows("trees_growth", same("fit s", "test ms per 1000 rows", "nodes", "exponent")),
    "partition_growth": lambda: rows("partition_growth", same("s", "rounds"), first="partition"),
    "partition_lambda": lambda: rows(
        "partition_lambda",
        sets=["eurlex57k"],
        columns={"captured": "captured", **RANKING, "times fewer scores": "counted", "test s": "test s"},
    ),
    "blocks_default": lambda: rows(
        "blocks_default", {**same("fit s", "fit CPU s", "rank s"), **RANKING, "blocks": "blocks"}
    ),
    "corrlog_decoding": lambda: rows(
        "corrlog_decoding",
        same("labels", "coupled", "auto s", "exact s", "search s", "bp s", "marginals s"),
        first="",
    ),
    "corrlog_scene": lambda: rows(
        "corrlog_scene", same("Hamming", "0-1", "accuracy", "F1", "macro-F1", "micro-F1")
    ),
    "baselines": lambda: rows(
        "baselines",
        same("folds", "fit CPU s", "Hamming", "0-1", "accuracy", "F1", "macro-F1", "micro-F1"),
    ),
    "corrlog_cv": lambda: rows(
        "corrlog_cv", same("Hamming", "0-1", "accuracy", "F1", "macro-F1", "micro-F1")
    ),
    "papers_summary": papers_summary,
    **{f"papers_{name}": lambda name=name: papers(name) for name in PAPERS},
    "papers_not_measured": lambda: markdown(
        ["paper", "table", "data", "reason"], [list(line) for line in NOT_MEASURED]
    ),
    "one_row": lambda: rows(
        "one_row",
        {
            "predict_topk": "predict_topk after",
            "predict": "predict after",
            "decision_function": "decision_function after",
        },
        sets=["enron"],
        first="estimator",
    ),
}

if __name__ == "__main__":
    main()
