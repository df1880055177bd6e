"""The figures of the five papers, and the experiments that are compared with them.

`EXPERIMENTS` lists what papers.py measures. An experiment is a classifier on a data set, with the figures of
the paper that it is compared with. `verdict` compares a measurement with a figure by a fixed rule. This
module needs only the standard library, because tables.py imports it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf, sqrt
from statistics import NormalDist

PAPERS = {
    "smooth-link": "N. Karampatziakis and P. Mineiro, "
    '"Scalable Multilabel Prediction via Randomized Methods", 2015',
    "blocks": 'Liang, Hsieh and Lee, "Block-wise Partitioning for Extreme Multi-label Classification"',
    "rembrandt": "P. Mineiro and N. Karampatziakis, "
    '"Fast Label Embeddings for Extremely Large Output Spaces", 2014',
    "corrlog": "Li et al., "
    '"Correlated Logistic Model With Elastic Net Regularization for Multilabel Image Classification", 2016',
    "rules": "M. Rapp, E. Loza Mencía, J. Fürnkranz and E. Hüllermeier, "
    '"Gradient-based Label Binning in Multi-label Classification", 2021',
}

# --- smooth-link: the smooth link ------------------------------------------------------------------------

# Table 2, and the later log of the authors' code: the lower and the upper end of a 90 % interval. The log
# also has the center.
SMOOTH_LINK = {
    ("HL", "yeast"): (("0.212", "0.226"), ("0.2141", "0.2223", "0.2305")),
    ("HL", "bibtex"): (("0.0138", "0.0145"), ("0.0138", "0.0140", "0.0145")),
    ("HL", "corel5k"): (("0.0102", "0.0106"), ("0.0095", "0.0097", "0.0098")),
    ("macro-F1", "yeast"): (("0.428", "0.450"), ("0.4681", "0.4785", "0.4851")),
    ("macro-F1", "bibtex"): (("0.301", "0.333"), ("0.3415", "0.3528", "0.3608")),
    ("macro-F1", "corel5k"): (("0.0511", "0.0583"), ("0.0662", "0.0700", "0.0725")),
}

DEFAULT_LINK = "smooth link, default parameters"
# Section 7.2, industries (RCV1): Hamming losses. The intervals do not overlap.
FLEXIBILITY = "flexibility of the link and of kernels on X"
INDUSTRIES = {"smooth link": 0.00159, "regressions": 0.00163, "kernel on X": 0.00193}

# --- blocks: blocks ---------------------------------------------------------------------------------

# Section 4 states bounds for all sets: with the weight for speed, P@k is at most 2 points lower than without
# blocks, and PSP@k at most 6 points.
MOST_LOST = {"P": 2.0, "PSP": 6.0}
# Table 3, the weight for speed: the least and the greatest speed-up on the five sets.
SPEEDUPS = {"dismec": (6, 2075), "leml": (58, 2780), "pdsparse": (4, 2104)}
# Table 5, the weight for speed: the least and the greatest R@1 on a set, less R@1 without blocks.
RECALL_LOST = {"dismec": (-0.87, -0.07), "leml": (-0.14, 0.13)}

# --- rembrandt: Rembrandt ------------------------------------------------------------------------------

# Table 2, ODP, k = 300: test errors in percent. Table 3, LSHTC: P@1 in percent by k.
ODP_ERRORS = {"rembrandt": 83.15, "gaussian": 85.14, "pca": 90.37}
LSHTC = {500: 52.84, 800: 53.39}
# Numbers of components on the sets that are available. They cannot exceed the number of labels.
EMBEDDING_KS = {"reuters-21578": (25, 50), "eurlex57k": (50, 100), "yso-finna-en": (50, 100)}

# --- corrlog: CorrLog --------------------------------------------------------------------------------

CORRLOG_MEASURES = ["Hamming", "0-1", "accuracy", "F1", "macro-F1", "micro-F1"]
# Results on scene that the authors stored in their repository: mean and, in units of 0.0001, standard
# deviation over five folds.
CORRLOG_SCENE = {
    "l2": ["0.1005 (95)", "0.3577 (299)", "0.7003 (262)", "0.7214 (244)", "0.7343 (232)", "0.7228 (235)"],
    "elastic net": [
        *["0.0947 (69)", "0.3411 (198)", "0.7097 (180)", "0.7280 (172)", "0.7451 (161)", "0.7340 (173)"],
    ],
}

COUPLINGS = "CorrLog, penalties and couplings"
# With standardized features, to find out why the claims do not hold on the sparse features of enron.
STANDARDIZED = ", standardized"

# --- rules: boosted rules with label binning -------------------------------------------------------

# Table 2: subset 0/1 and Hamming loss in percent. With at most 25 labels, 4 % gives the same two bins, and
# the paper has no figures.
BINS = ["label-wise", "no bins", "32 %", "16 %", "8 %", "4 %", "2 bins"]
RULES = {
    "medical": "28.25/0.84 28.82/1.05 23.13/0.80 22.62/0.77 23.08/0.79 23.23/0.81 22.77/0.79",
    "enron": "88.19/4.53 83.14/4.72 83.32/4.77 83.32/4.77 83.38/4.72 82.91/4.72 82.97/4.73",
    "birds": "45.29/3.91 45.30/3.79 45.14/3.80 45.45/3.79 45.60/3.73 - 46.53/3.87",
    "yeast": "84.94/19.75 76.54/19.01 76.91/18.87 76.42/19.08 76.87/19.01 - 76.21/18.80",
    "eukaryote-go": "30.63/1.89 28.35/1.95 28.39/1.95 28.24/1.94 28.10/1.92 - 28.55/1.98",
    "bibtex": "85.99/1.25 81.31/1.45 77.28/1.27 77.44/1.27 77.55/1.27 77.32/1.28 78.95/1.31",
    "reuters-k500": "71.37/1.11 71.07/1.71 53.70/1.11 53.22/1.09 53.07/1.09 52.90/1.09 53.40/1.10",
    "yahoo-science": "74.00/2.83 85.80/5.85 50.89/2.74 51.20/2.75 52.07/2.81 52.79/2.84 52.04/2.79",
    "yahoo-reference": "58.19/2.30 74.14/4.95 39.82/2.28 40.16/2.30 40.73/2.34 40.51/2.33 40.48/2.32",
}
# Table 1: seconds of a fit, in the same order without "label-wise".
RULES_SECONDS = {
    "medical": "170 60 57 55 50 51",
    "enron": "181 69 52 48 47 44",
    "birds": "2027 701 505 337 - 336",
    "yeast": "2338 998 761 525 - 521",
    "eukaryote-go": "191 79 74 60 - 64",
    "bibtex": "2507 2599 2765 2649 2456 2125",
    "reuters-k500": "12093 6930 4197 3353 2803 2743",
    "yahoo-science": "735 200 160 135 106 136",
    "yahoo-reference": "571 174 141 129 110 137",
}


def losses(name: str) -> dict[str, tuple[str, str]]:
    """Return the subset 0/1 and the Hamming loss of Table 2 by the column of the table."""
    pairs = zip(BINS, RULES[name].split(), strict=True)
    return {column: tuple(cell.split("/")) for column, cell in pairs if cell != "-"}


# --- What is compared ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Figure:
    """A figure of a paper, or a claim.

    `measure` is the name of our figure in the records, and `text` is what the paper states. A figure without
    an interval has `low` equal to `high`. A claim is that the figure is between `low` and `high`. `sign` is
    -1 if lower figures are better.
    """

    table: str
    measure: str
    text: str
    low: float
    high: float
    sign: int = 1
    claim: bool = False


@dataclass(frozen=True)
class Experiment:
    """A measurement that is repeated `runs` times, with other folds or seeds."""

    paper: str
    data: str
    system: str
    runs: int
    figures: tuple[Figure, ...]

    @property
    def key(self) -> tuple[str, str, str]:
        return self.paper, self.data, self.system


def key(line: dict) -> tuple[str, str, str]:
    """Return the key of the experiment that a line of the records belongs to."""
    return line["paper"], line["set"], line["system"]


FEW = 3  # with fewer runs, the noise is not known


def half_width(deviation: float, n_runs: int) -> float:
    """Return half the width of a 90 % interval of a mean."""
    return NormalDist().inv_cdf(0.95) * deviation / sqrt(n_runs)


# In the order in which a page counts them.
VERDICTS = [
    *["within the paper's interval", "equal within noise", "better", "worse"],
    *["holds", "undecided", "does not hold", "too few runs", "not measured"],
]


def verdict(figure: Figure, mean: float, deviation: float, n_runs: int) -> str:
    if n_runs < FEW:
        return "too few runs"
    half = half_width(deviation, n_runs)
    if figure.claim:
        if figure.low <= mean - half and mean + half <= figure.high:
            return "holds"
        outside = mean + half < figure.low or mean - half > figure.high
        return "does not hold" if outside else "undecided"
    if figure.low < figure.high:
        if figure.low <= mean <= figure.high:
            return "within the paper's interval"
    elif abs(mean - figure.low) <= half:
        return "equal within noise"
    return "better" if figure.sign * (mean - figure.low) > 0 else "worse"


def of_smooth_link() -> Iterator[Experiment]:
    for measure, name in SMOOTH_LINK:
        figures = of_table_2(measure, name)
        yield Experiment("smooth-link", name, f"smooth link, settings for {measure}", 5, figures)
    for name in dict.fromkeys(name for _, name in SMOOTH_LINK):
        figures = (*of_table_2("HL", name), *of_table_2("macro-F1", name))
        yield Experiment("smooth-link", name, DEFAULT_LINK, 5, figures)
    for name in ("rcv1-subset1", "rcv1-subset2"):
        figures = []
        for worse, better in (("regressions", "smooth link"), ("kernel on X", "regressions")):
            text = f"above 0 ({INDUSTRIES[worse] - INDUSTRIES[better]:+.5f} on industries)"
            figures.append(above_zero("section 7.2", f"HL: {worse} less {better}", text))
        yield Experiment("smooth-link", name, FLEXIBILITY, 5, tuple(figures))


def of_table_2(measure: str, name: str) -> tuple[Figure, ...]:
    sign = -1 if measure == "HL" else 1
    paper, (least, center, most) = SMOOTH_LINK[measure, name]
    return (
        Figure("Table 2", measure, " to ".join(paper), *map(float, paper), sign),
        Figure("log of the code", measure, f"{center} ({least} to {most})", float(least), float(most), sign),
    )


def of_blocks() -> Iterator[Experiment]:
    for name in ("delicious", "citeulike-t", "eurlex57k"):
        for base, (least, most) in SPEEDUPS.items():
            figures = [
                Figure(
                    "Table 3",
                    f"{kind}@{k}: blocks for speed less none",
                    f"at least -{lost:.0f}",
                    -lost,
                    inf,
                    claim=True,
                )
                for kind, lost in MOST_LOST.items()
                for k in (1, 3, 5)
            ]
            text = f"{least} to {most:,} on other sets, and above 1 on all"
            figures.append(Figure("Table 3", "speed-up of blocks for speed", text, 1, inf, claim=True))
            # Section 4: with LEML, blocks for accuracy are better than none, and CBMLC is better than blocks.
            # With the other two, CBMLC is worse.
            if base == "leml":
                figures += [above_zero("Table 3", f"P@{k}: blocks for accuracy less none") for k in (1, 3, 5)]
            text, low, high = ("below 0", -inf, 0) if base == "leml" else ("above 0", 0, inf)
            figures.append(
                Figure("Table 3", "P@1: blocks for accuracy less CBMLC", text, low, high, claim=True)
            )
            if base in RECALL_LOST:
                low, high = RECALL_LOST[base]
                text = f"{low:+} to {high:+} on other sets"
                figures.append(Figure("Table 5", "R@1: blocks for speed less none", text, low, high))
            yield Experiment("blocks", name, f"blocks over {base}", 3, tuple(figures))


def above_zero(table: str, measure: str, text: str = "above 0") -> Figure:
    return Figure(table, measure, text, 0, inf, claim=True)


def of_embeddings() -> Iterator[Experiment]:
    for name, ks in EMBEDDING_KS.items():
        figures = []
        for other in ("gaussian", "pca"):
            gain = ODP_ERRORS[other] - ODP_ERRORS["rembrandt"]
            figures += [
                above_zero(
                    "Table 2",
                    f"P@1: rembrandt less {other}, k = {k}",
                    f"above 0 ({gain:+.2f} on ODP, k = 300)",
                )
                for k in ks
            ]
        (fewer, low), (more, high) = LSHTC.items()
        text = f"above 0 ({high - low:+.2f} on LSHTC, k = {more} less k = {fewer})"
        figures.append(above_zero("Table 3", f"P@1: rembrandt, k = {ks[1]} less k = {ks[0]}", text))
        yield Experiment("rembrandt", name, "logistic regressions on embeddings", 5, tuple(figures))


def of_corrlog() -> Iterator[Experiment]:
    for penalty, cells in CORRLOG_SCENE.items():
        figures = []
        for measure, cell in zip(CORRLOG_MEASURES, cells, strict=True):
            mean, spread = cell.rstrip(")").split(" (")
            half = half_width(float(spread) * 1e-4, 5)
            figures.append(
                Figure(
                    "authors' file",
                    measure,
                    cell,
                    float(mean) - half,
                    float(mean) + half,
                    better_sign(measure),
                )
            )
        yield Experiment("corrlog", "scene", f"CorrLog, authors' settings, {penalty}", 20, tuple(figures))
    for name in ("scene", "emotions", "yeast", "enron", "medical", "birds", "image"):
        figures = []
        for measure, *cells in zip(CORRLOG_MEASURES, *CORRLOG_SCENE.values(), strict=True):
            l2, elastic = (float(cell.split()[0]) for cell in cells)
            text = f"above 0 ({better_sign(measure) * (elastic - l2):+.4f} on scene)"
            figures.append(above_zero("authors' file", f"gain of {measure}: elastic net over l2", text))
        # The paper states this for its toy example.
        figures.append(above_zero("section V", "gain of 0-1: CorrLog over no couplings"))
        yield Experiment("corrlog", name, COUPLINGS, 10, tuple(figures))
        if name == "enron":
            yield Experiment("corrlog", name, f"{COUPLINGS}{STANDARDIZED}", 10, tuple(figures))


def better_sign(measure: str) -> int:
    return -1 if measure in ("Hamming", "0-1") else 1


def of_rules() -> Iterator[Experiment]:
    for name in RULES:
        seconds = dict(zip(BINS[1:], RULES_SECONDS[name].split(), strict=True))
        for column, pair in losses(name).items():
            figures = [
                Figure("Table 2", measure, cell, float(cell), float(cell), -1)
                for measure, cell in zip(("subset 0/1 %", "Hamming %"), pair, strict=True)
            ]
            if column in seconds:
                cell = seconds[column]
                figures.append(Figure("Table 1", "fit CPU s", cell, float(cell), float(cell), -1))
            # The paper does not state the heads of its label-wise rules.
            heads = ["", ", single-label heads"] if column == "label-wise" else [""]
            for head in heads:
                yield Experiment("rules", name, f"rules, {column}{head}", 10, tuple(figures))


EXPERIMENTS = [*of_smooth_link(), *of_blocks(), *of_embeddings(), *of_corrlog(), *of_rules()]

# Tables and sets of the papers that papers.py does not measure, with the reason.
NOT_MEASURED = [
    ("smooth-link", "Table 2", "mediamill", "The data set is not available."),
    (
        "smooth-link",
        "section 7.2",
        "industries (RCV1)",
        "The data set is not available. Its claims are measured on others.",
    ),
    (
        "smooth-link",
        "Table 3",
        "ODP",
        "The data set is not available. The rows of rembrandt measure the claim on other sets.",
    ),
    ("smooth-link", "Table 4", "LSHTC", "The data set is not available."),
    (
        "blocks",
        "Tables 2 and 4",
        "all",
        "No script measures the times of the chosen blocks without their search.",
    ),
    (
        "blocks",
        "Tables 3 and 5",
        "the five sets",
        "The data sets are not available. Claims are measured on others.",
    ),
    ("blocks", "Table 3", "LPSR-NB", "The paper copied the figures from other publications."),
    (
        "blocks",
        "Figures 1 and 3",
        "all",
        "`partition_lambda.py` measures figure 3 on other sets, without a verdict.",
    ),
    (
        "rembrandt",
        "Tables 1 to 3",
        "ODP, LSHTC",
        "The data sets are not available. Claims are measured on others.",
    ),
    ("corrlog", "section V", "toy example", "The figures of the paper are not available."),
    (
        "corrlog",
        "section VII",
        "MIT, PASCAL 2007 and 2012",
        "The data sets and the figures of the paper are not available.",
    ),
    (
        "rules",
        "Tables 1 and 2",
        "eurlex-sm, eukaryote-pseaac, slashdot, langlog",
        "The data sets are not available.",
    ),
    (
        "rules",
        "Tables 1 and 2",
        "yahoo-social, yahoo-computers",
        "Only reduced forms of the sets are available.",
    ),
    ("rules", "Figure 2", "all", "The figure shows ratios of the rows of Tables 1 and 2."),
    ("rules", "Figure 3", "all", "No script measures the time of the search alone."),
]
