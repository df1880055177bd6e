"""Plots for all classifiers. `manylabel.rules` and other modules have plots for one classifier."""

from __future__ import annotations

from typing import Any

from manylabel.estimator.explanation import LabelExplanation
from manylabel.estimator.parameters import check_count
from manylabel.estimator.plotting import pyplot

__all__ = ["explanation"]


def explanation(parts: LabelExplanation, *, max_parts: int = 15, ax: Any = None) -> Any:
    """Plot an explanation as horizontal bars.

    An explanation lists the parts of the score of a label, such as the features and the intercept. Each bar
    shows the contribution of one part.

    Parameters
    ----------
    parts : LabelExplanation
        The result of the method `explain` of a classifier.
    max_parts : int, default=15
        Maximum number of parts with a separate bar; >= 1. The parts with the largest absolute contributions
        get these bars. If there are other parts, one more bar shows the sum of their contributions.
    ax : matplotlib.axes.Axes, default=None
        Axes for the plot. None creates a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the plot.

    Raises
    ------
    ModuleNotFoundError
        If matplotlib is not installed.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("agg")
    >>> import manylabel as ml
    >>> X, Y = ml.datasets.make_multilabel(200, 50, 10, random_state=0)
    >>> model = ml.DiSMECClassifier(random_state=0).fit(X, Y)
    >>> axes = ml.plotting.explanation(model.explain(X[[0]], 3))
    >>> matplotlib.pyplot.close(axes.figure)
    """
    max_parts = check_count("max_parts", max_parts, 1)
    bars = [
        (f"{row.part}: {row.name}" if row.part != row.name else row.part, row.contribution) for row in parts
    ]
    if len(bars) > max_parts:
        rest = sum(value for _, value in bars[max_parts:])
        bars = [*bars[:max_parts], (f"{len(bars) - max_parts} other parts", rest)]
    if ax is None:
        _, ax = pyplot().subplots(figsize=(7, 1 + 0.3 * len(bars)), layout="constrained")
    names, values = [name for name, _ in bars], [value for _, value in bars]
    ax.barh(range(len(bars)), values, color=["tab:blue" if value > 0 else "tab:red" for value in values])
    ax.set_yticks(range(len(bars)), names)
    ax.invert_yaxis()
    ax.axvline(0, color="0.3", linewidth=0.8)
    ax.set_title(f"{parts.label}: {parts.quantity} {parts.total:.3g}")
    ax.set_xlabel("contribution")
    return ax
