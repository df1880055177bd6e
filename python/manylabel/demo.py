"""The command ``manylabel demo``, which trains one model of each family of methods and writes an HTML page.

The data are images of handwritten digits. The labels are attributes of the digits, such as "even".

The page is a single file, which contains its charts as inline SVG. The command needs matplotlib, which draws
the charts. Digits and weights are drawn as grids of 8 x 8 cells. Each model has a fixed color. All other
colors are CSS variables, so that the page supports dark mode.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from string import Template
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.metrics import f1_score, hamming_loss, recall_score, zero_one_loss
from sklearn.model_selection import train_test_split

from manylabel.datasets import load_digit_attributes
from manylabel.estimator.registry import DEMOS
from manylabel.metrics import precision_at_k
from manylabel.persistence import load

__all__ = ["FAMILIES", "HEADER", "Data", "Result", "load_data", "page", "train"]

# Importing the package has already registered all estimators.
FAMILIES: list[tuple[str, Any]] = [(title, make()) for title, make in sorted(DEMOS.items())]

HEADER = f"{'':28}{'fit, s':>9}{'bytes':>12}{'Hamming':>10}{'subset 0/1':>12}{'micro F1':>10}{'macro F1':>10}"

_KS = (1, 2, 3, 4, 5)


@dataclass(frozen=True)
class Data:
    """The images of digits, split into training and test images. All models use the same split.

    Parameters
    ----------
    X_train, X_test : ndarray of shape (n_images, 64), dtype float32
        The training and test images. An image has 8 x 8 cells, and each cell is one feature.
    Y_train, Y_test : ndarray of shape (n_images, n_attributes), dtype int32
        The attributes of the training and test images, as 0/1 indicator matrices.
    digits_test : ndarray of shape (n_images,), dtype int64
        The digit that each test image shows.
    label_names : list of str
        Names of the attributes.
    """

    X_train: NDArray[np.float32]
    X_test: NDArray[np.float32]
    Y_train: NDArray[np.int32]
    Y_test: NDArray[np.int32]
    digits_test: NDArray[np.int64]
    label_names: list[str]


@dataclass(frozen=True)
class Result:
    """A trained model, with its fit time, file size and quality measures.

    Parameters
    ----------
    title : str
        Name of the model.
    model : estimator
        The model after it was saved and loaded.
    seconds : float
        Wall-clock time of `fit`.
    n_bytes : int
        Size of the model file.
    predicted : ndarray of shape (n_images, n_attributes), dtype bool
        True for each attribute that the model predicts for a test image.
    precision : ndarray of shape (5,), dtype float64
        Precision at k, for k = 1 to 5.
    hamming, subset, micro, macro : float
        Hamming loss, subset 0/1 loss, micro-F1 and macro-F1.
    """

    title: str
    model: Any
    seconds: float
    n_bytes: int
    predicted: NDArray[np.bool_]
    precision: NDArray[np.float64]
    hamming: float
    subset: float
    micro: float
    macro: float

    def row(self) -> str:
        """Return one line of the results table. `HEADER` is the first line of this table."""
        return (
            f"{self.title:28}{self.seconds:9.2f}{self.n_bytes:12,}{self.hamming:10.4f}{self.subset:12.4f}"
            f"{self.micro:10.4f}{self.macro:10.4f}"
        )


def load_data() -> Data:
    """Load the images of digits and split them into training and test images.

    One third of the images are test images. Every call gives the same split.

    Returns
    -------
    Data
        The training and test images with their labels.
    """
    X, Y, _, label_names = load_digit_attributes(return_names=True)
    digits = load_digits(return_X_y=True)[1]
    parts = train_test_split(X, Y, digits, test_size=1 / 3, stratify=digits, random_state=0)
    X_train, X_test, Y_train, Y_test, _, digits_test = parts
    return Data(X_train, X_test, Y_train, Y_test, digits_test, label_names)


def train(title: str, estimator: Any, data: Data, folder: Path) -> Result:
    """Fit, save and load one model, and compute its quality measures.

    Parameters
    ----------
    title : str
        Name of the model. The file name is `title` in lower case. Hyphens replace the spaces, and
        ``.safetensors`` is appended.
    estimator : estimator
        The estimator to fit. The function fits this object, not a clone of it.
    data : Data
        The training and test images.
    folder : path
        Folder to which the model file is written.

    Returns
    -------
    Result
        The loaded model and its measures.

    Raises
    ------
    RuntimeError
        If the predictions of the loaded model differ from the predictions of the fitted model.
    """
    start = perf_counter()
    fitted = estimator.fit(data.X_train, data.Y_train)
    seconds = perf_counter() - start
    path = folder / (re.sub(r"\W+", "-", title.lower()) + ".safetensors")
    fitted.save(path)
    model = load(path)

    predicted = model.predict(data.X_test)
    ranked = model.predict_topk(data.X_test, k=max(_KS))
    before = fitted.predict_topk(data.X_test, k=max(_KS))
    if not (
        np.array_equal(predicted, fitted.predict(data.X_test))
        and np.array_equal(ranked.indices, before.indices)
        and np.array_equal(ranked.data, before.data)
    ):
        raise RuntimeError(f"the predictions of {title} changed when the model was saved and loaded")
    return Result(
        title=title,
        model=model,
        seconds=seconds,
        n_bytes=path.stat().st_size,
        predicted=predicted.astype(bool),
        precision=np.asarray(precision_at_k(data.Y_test, ranked, _KS)),
        hamming=float(hamming_loss(data.Y_test, predicted)),
        subset=float(zero_one_loss(data.Y_test, predicted)),
        micro=float(f1_score(data.Y_test, predicted, average="micro", zero_division=0.0)),
        macro=float(f1_score(data.Y_test, predicted, average="macro", zero_division=0.0)),
    )


def page(data: Data, results: Sequence[Result]) -> str:
    """Return an HTML page with the results.

    Parameters
    ----------
    data : Data
        The training and test images.
    results : sequence of Result
        The results of at least one model.

    Returns
    -------
    str
        The HTML text. The page does not refer to other files.

    Raises
    ------
    ModuleNotFoundError
        If matplotlib is not installed.
    """
    colors = {result.title: _COLORS[at % len(_COLORS)] for at, result in enumerate(results)}
    template = Template(files("manylabel").joinpath("demo.html").read_text(encoding="utf-8"))
    return template.substitute(
        n_train=f"{len(data.X_train):,}",
        n_test=f"{len(data.X_test):,}",
        version=version("manylabel"),
        tab_rules="".join(
            f"#model-{at}:checked~.panel:nth-of-type({at + 1}){{display:block}}" for at in range(len(results))
        ),
        symbols=_symbols(data, _shown(data, results)),
        digits=_digits(data, results),
        legend="".join(
            f'<span><i style="background:{color}"></i>{escape(title)}</span>'
            for title, color in colors.items()
        ),
        precision=_precision_chart(data, results, colors),
        recall=_recall_chart(data, results, colors),
        costs=_costs_chart(results, colors),
        rows="".join(map(_table_row, results)),
    )


# Colors of the models. Most people can distinguish these colors on white and on black.
_COLORS = ("#4477dd", "#e07b39", "#2a9d8f", "#cc4a7c", "#8a63d2", "#b8962e", "#5f8fa8", "#6fa23c")

# Placeholder colors in the charts. CSS variables replace them later.
_INK, _MUTED, _GRID, _PAPER = "#010101", "#020202", "#030303", "#040404"
_VARIABLES = {_INK: "var(--ink)", _MUTED: "var(--muted)", _GRID: "var(--grid)", _PAPER: "var(--paper)"}

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.size": 10.5,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "text.color": _INK,
    "axes.labelcolor": _MUTED,
    "axes.edgecolor": _GRID,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": _GRID,
    "grid.linewidth": 0.8,
    "xtick.color": _GRID,
    "ytick.color": _GRID,
    "xtick.labelcolor": _MUTED,
    "ytick.labelcolor": _INK,
    "lines.linewidth": 2.2,
    "lines.markersize": 6.5,
}


def _svg(figure: Any, what: str) -> str:
    """Convert a figure to an SVG element.

    The style sheet of the page sets the width and the colors of this element.
    """
    import matplotlib

    text = io.StringIO()
    # matplotlib computes ids from this salt. The ids are then the same in every run, and different in every
    # chart.
    with matplotlib.rc_context({"svg.hashsalt": what}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    # All charts have the same group ids, but ids must be unique within a page. Nothing refers to the group
    # ids, so they are removed.
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg [^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg [^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{escape(what)}" ', 1)
    for color, variable in _VARIABLES.items():
        svg = svg.replace(color, variable)
    return svg


def _precision_chart(data: Data, results: Sequence[Result], colors: dict[str, str]) -> str:
    import matplotlib
    from matplotlib.figure import Figure

    # A baseline that ranks the labels of every image by their frequency in the training images.
    frequency = np.broadcast_to(data.Y_train.mean(axis=0), data.Y_test.shape)
    n_true = data.Y_test.sum(axis=1)
    best_possible = [float(np.minimum(n_true, k).mean()) / k for k in _KS]
    most_frequent = np.asarray(precision_at_k(data.Y_test, frequency, _KS))
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(5.6, 3.8), layout="constrained")
        axes = figure.subplots()
        for values in (best_possible, most_frequent):
            axes.plot(_KS, values, color=_MUTED, linewidth=1.2, linestyle=(0, (2, 2)))
        note: dict[str, Any] = {"textcoords": "offset points", "color": _MUTED, "fontsize": 9}
        axes.annotate("best possible", (_KS[0], best_possible[0]), (0, 6), **note)
        axes.annotate("most frequent labels", (_KS[2], most_frequent[2]), (0, 6), **note)
        for result in results:
            axes.plot(_KS, result.precision, "o-", color=colors[result.title], clip_on=False, zorder=3)
        axes.set(xticks=_KS, xlabel="k", xlim=(0.85, 5.15), ylim=(None, 1.04))
        axes.grid(axis="x", visible=False)
        axes.tick_params(length=0)
        return _svg(figure, "Precision at k for every model")


def _recall_chart(data: Data, results: Sequence[Result], colors: dict[str, str]) -> str:
    import matplotlib
    from matplotlib.figure import Figure

    frequency = data.Y_train.mean(axis=0)
    order = np.argsort(frequency)
    places = np.arange(len(order))
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(5.6, 3.8), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True, width_ratios=(1, 2.4))
        left.barh(places, frequency[order], height=0.5, color=_GRID)
        for place, value in zip(places, frequency[order], strict=True):
            left.annotate(
                f"{value:.0%}", (value, place), (4, 0), textcoords="offset points", va="center", color=_MUTED,
                fontsize=9,
            )  # fmt: skip
        left.set(yticks=places, xticks=[], xlim=(0, 0.95), xlabel="of images")
        left.set_yticklabels([data.label_names[at] for at in order])
        left.tick_params(length=0)
        left.spines[["left", "bottom"]].set_visible(False)
        left.grid(visible=False)
        lowest = 1.0
        for result in results:
            recall = recall_score(data.Y_test, result.predicted, average=None, zero_division=0.0)[order]
            lowest = min(lowest, recall.min())
            right.plot(
                recall, places, "o", color=colors[result.title], markeredgecolor=_PAPER, markersize=9,
                markeredgewidth=1.2, clip_on=False,
            )  # fmt: skip
        right.tick_params(left=False, labelleft=False)
        right.spines["left"].set_visible(False)
        right.set(xlabel="recall", xlim=(lowest - 0.04, 1.0))
        return _svg(figure, "Frequency and recall of every label")


def _costs_chart(results: Sequence[Result], colors: dict[str, str]) -> str:
    import matplotlib
    from matplotlib.figure import Figure

    places = np.arange(len(results))
    panels: list[tuple[str, list[float], Any]] = [
        ("fit time", [result.seconds for result in results], lambda value: f"{value:.2g} s"),
        ("model file", [result.n_bytes / 1000 for result in results], lambda value: f"{value:,.1f} kB"),
    ]
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(11.5, 0.6 + 0.36 * len(results)), layout="constrained")
        both = figure.subplots(1, 2, sharey=True)
        for axes, (title, values, text) in zip(both, panels, strict=True):
            axes.barh(places, values, height=0.55, color=[colors[result.title] for result in results])
            for place, value in zip(places, values, strict=True):
                axes.annotate(
                    text(value), (value, place), (6, 0), textcoords="offset points", va="center", fontsize=9.5
                )
            axes.set_title(title, loc="left", fontsize=10.5, color=_MUTED)
            axes.set(xticks=[], xlim=(0, 1.25 * max(values)), ylim=(len(results) - 0.5, -0.5))
            axes.spines["bottom"].set_visible(False)
            axes.grid(visible=False)
            axes.tick_params(length=0)
        both[0].set(yticks=places)
        both[0].set_yticklabels([result.title for result in results])
        return _svg(figure, "Fit time and size of every model")


def _shown(data: Data, results: Sequence[Result]) -> tuple[list[int], list[int]]:
    """Return two lists of test images to show, as row numbers of ``data.X_test``.

    The first list has the first image of each digit. The second list has the hardest image of each digit,
    which is the image on which all models together make the most mistakes.
    """
    mistakes = np.sum([(result.predicted != data.Y_test).sum(axis=1) for result in results], axis=0)
    first, hardest = [], []
    for digit in range(10):
        images = np.flatnonzero(data.digits_test == digit)
        first.append(int(images[0]))
        hardest.append(int(images[np.argmax(mistakes[images])]))
    return first, hardest


def _symbols(data: Data, shown: tuple[list[int], list[int]]) -> str:
    return "".join(
        f'<symbol id="digit-{image}" viewBox="0 0 8 8">{_cells(data.X_test[image], "ink")}</symbol>'
        for image in dict.fromkeys(shown[0] + shown[1])
    )


def _cells(values: NDArray[Any], *kinds: str) -> str:
    """Return SVG that shows 64 values, each from -1 to 1, as a grid of 8 x 8 cells.

    `kinds` has the names of one or two CSS classes. Cells with positive values have the first CSS class.
    Cells with negative values have the second CSS class. If only one CSS class is given, all cells have this
    class.
    """
    return "".join(
        f'<rect class="{kinds[0 if value > 0 else -1]}" x="{at % 8}" y="{at // 8}" width="1" height="1" '
        f'fill-opacity="{abs(value):.2f}"/>'
        for at, value in enumerate(values.tolist())
        if abs(value) >= 0.005
    )


def _digits(data: Data, results: Sequence[Result]) -> str:
    """Return HTML with one tab per model.

    A tab shows images, with the attributes that the model found, missed or predicted wrongly.
    """
    first, hardest = _shown(data, results)
    best = max(range(len(results)), key=lambda at: results[at].micro)
    inputs, panels = [], []
    for at, result in enumerate(results):
        checked = " checked" if at == best else ""
        inputs.append(
            f'<input type="radio" name="model" id="model-{at}"{checked}>'
            f'<label for="model-{at}">{escape(result.title)}</label>'
        )
        right = (result.predicted == data.Y_test).all(axis=1)
        panels.append(
            f'<div class="panel"><p class="count">All attributes are right for <b>{right.mean():.0%}</b> of '
            f"the test images.</p><h3>The first image of each digit</h3>{_cards(data, result, first)}"
            f"<h3>The hardest image of each digit</h3>{_cards(data, result, hardest)}"
            f"{_weights(data, result)}</div>"
        )
    return f'<div class="tabs">{"".join(inputs)}{"".join(panels)}</div>'


def _cards(data: Data, result: Result, images: list[int]) -> str:
    cards = []
    for image in images:
        lines = []
        for name, true, said in zip(
            data.label_names, data.Y_test[image], result.predicted[image], strict=True
        ):
            if true or said:
                kind = "found" if true and said else "missed" if true else "wrong"
                lines.append(f'<li class="{kind}">{escape(name)}</li>')
        cards.append(
            f'<li class="card"><svg role="img" aria-label="a {data.digits_test[image]}">'
            f'<use href="#digit-{image}"/></svg><ul>{"".join(lines)}</ul></li>'
        )
    return f'<ul class="cards">{"".join(cards)}</ul>'


def _weights(data: Data, result: Result) -> str:
    """Return HTML that shows the weights of a linear model, or an empty string for other models."""
    coef: Any = getattr(result.model, "coef_", None)
    if coef is None or coef.shape != (len(data.label_names), data.X_test.shape[1]):
        return ""
    coef = coef.toarray() if hasattr(coef, "toarray") else coef
    largest = np.maximum(np.abs(coef).max(axis=1, keepdims=True), np.finfo(np.float32).tiny)
    pictures = "".join(
        f'<li><svg viewBox="0 0 8 8" role="img" aria-label="weights of {escape(name)}">'
        f"{_cells(weights, 'plus', 'minus')}</svg><span>{escape(name)}</span></li>"
        for name, weights in zip(data.label_names, coef / largest, strict=True)
    )
    return (
        '<h3>Weights of the model. Ink in a <b class="plus">blue</b> cell makes the attribute more likely. '
        f'Ink in a <b class="minus">red</b> cell makes it less likely</h3><ul class="weights">{pictures}</ul>'
    )


def _table_row(result: Result) -> str:
    values = (
        f"{result.seconds:.2f}",
        f"{result.n_bytes:,}",
        f"{result.hamming:.4f}",
        f"{result.subset:.4f}",
        f"{result.micro:.4f}",
        f"{result.macro:.4f}",
    )
    cells = "".join(f"<td>{value}</td>" for value in values)
    return f"<tr><th scope=row>{escape(result.title)}</th>{cells}</tr>"
