"""Plots of couplings (weights of pairs of labels), and explanations of the log-odds of a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, triu

from manylabel.estimator.explanation import Part
from manylabel.estimator.plotting import pyplot

__all__ = ["Explanation", "draw_correlations"]

# Maximum number of feature contributions, and of label contributions, in the text about a label.
_MOST_NAMED = 5


@dataclass(frozen=True, eq=False)
class Explanation:
    """Contributions of features, labels and intercepts to the log-odds of each label for one row.

    Parameters
    ----------
    predicted : ndarray of shape (n_labels,), dtype bool
        The predicted label set.
    intercept : ndarray of shape (n_labels,), dtype float64
        Intercept of each label minus the attribute `threshold_` of the classifier.
    features : csr_array of shape (n_labels, n_features), dtype float64
        Contribution of each feature (column of the array) to the log-odds of each label (row of the array).
    labels : csr_array of shape (n_labels, n_labels), dtype float64
        Contribution of each predicted label (column of the array) to the log-odds of each other label (row of
        the array).
    feature_names : sequence of str of length n_features
        Names of the features. The ``repr`` of the object and the result of its method `parts` contain them.
    label_names : sequence of str of length n_labels
        Names of the labels. The ``repr`` of the object and the result of its method `parts` contain them.

    Examples
    --------
    >>> import manylabel as ml
    >>> X, Y = [[0.0], [0.0], [2.0], [2.0]], [[0, 0], [0, 1], [1, 1], [1, 1]]
    >>> explanation = ml.CorrLogClassifier(0.1, 0.01).fit(X, Y).explain([2.0])
    >>> bool(explanation.log_odds[0] > 0)
    True
    """

    predicted: NDArray[np.bool_]
    intercept: NDArray[np.float64]
    features: csr_array
    labels: csr_array
    feature_names: Sequence[str]
    label_names: Sequence[str]

    @property
    def log_odds(self) -> NDArray[np.float64]:
        """Log-odds of each label, given the other predicted labels, minus the threshold of the classifier.

        The threshold is the attribute `threshold_` of the classifier. The result is an ndarray of shape
        (n_labels,). The value for a label is the sum of all contributions to this label.
        """
        return self.intercept + self.features.sum(axis=1) + self.labels.sum(axis=1)

    def parts(self, label: int) -> list[Part]:
        """Return the contributions to the log-odds of one label.

        Parameters
        ----------
        label : int
            Column index of the label in Y.

        Returns
        -------
        list of Part
            One part for the intercept, and one part for each nonzero contribution. These contributions come
            from features and from the other predicted labels.
        """
        found = [Part("intercept", "intercept", float(self.intercept[label]))]
        for kind, rows, names in (
            ("feature", self.features, self.feature_names),
            ("label", self.labels, self.label_names),
        ):
            stored = slice(rows.indptr[label], rows.indptr[label + 1])
            for at, value in zip(rows.indices[stored].tolist(), rows.data[stored].tolist(), strict=True):
                found.append(Part(kind, str(names[at]), value))
        return found

    def __repr__(self) -> str:
        lines = []
        log_odds = self.log_odds
        for label in np.flatnonzero(self.predicted).tolist():
            lines.append(f"{self.label_names[label]}: log-odds {log_odds[label]:+.2f}")
            lines.append(f"    {self.intercept[label]:+.2f} intercept")
            for contributions, kind, names in (
                (self.features, "feature", self.feature_names),
                (self.labels, "label", self.label_names),
            ):
                lines += _largest(contributions, label, kind, names)
        return "\n".join(lines) or "no label is predicted"


def _largest(contributions: csr_array, row: int, kind: str, names: Sequence[str]) -> list[str]:
    """Return lines of text with the five largest contributions to a label, by absolute value.

    If there are more than five contributions, the last line contains the sum of the others.
    """
    stored = slice(contributions.indptr[row], contributions.indptr[row + 1])
    values, columns = contributions.data[stored], contributions.indices[stored]
    order = np.argsort(-np.abs(values), kind="stable")
    named, others = order[:_MOST_NAMED], order[_MOST_NAMED:]
    lines = [f"    {values[at]:+.2f} {names[columns[at]]}" for at in named]
    if len(others):
        lines.append(f"    {values[others].sum():+.2f} {len(others)} other {kind}s")
    return lines


def draw_correlations(
    correlations: csr_array,
    names: Sequence[str],
    max_labels: int,
    max_pairs: int,
    axes: Sequence[Any] | None,
) -> NDArray[Any]:
    """Plot couplings (weights of pairs of labels) as a heat map and as a graph.

    `CorrLogClassifier.plot_correlations` describes the parameters.
    """
    if axes is None:
        _, axes = pyplot().subplots(1, 2, figsize=(13, 6), layout="constrained")
    both = np.asarray(axes, dtype=object)
    if both.shape != (2,):
        raise ValueError(
            f"`axes` must have two entries, for the heat map and the graph, got shape {both.shape}"
        )
    _draw_heat_map(both[0], correlations, names, max_labels)
    _draw_graph(both[1], correlations, names, max_pairs)
    return both


def _draw_heat_map(ax: Any, correlations: csr_array, names: Sequence[str], max_labels: int) -> None:
    strength = abs(correlations).sum(axis=1)
    shown = np.sort(np.argsort(-strength, kind="stable")[:max_labels])
    values = correlations[shown][:, shown].toarray()
    most = np.abs(values).max(initial=0) or 1.0
    image = ax.imshow(values, cmap="RdBu", vmin=-most, vmax=most)
    ax.set_xticks(range(len(shown)), [names[label] for label in shown], rotation=90)
    ax.set_yticks(range(len(shown)), [names[label] for label in shown])
    ax.set_title("Couplings: change of the log-odds if the other label is present")
    ax.figure.colorbar(image, ax=ax, shrink=0.8)


def _draw_graph(ax: Any, correlations: csr_array, names: Sequence[str], max_pairs: int) -> None:
    pairs = triu(correlations, format="coo")
    strongest = np.argsort(-np.abs(pairs.data), kind="stable")[:max_pairs]
    rows, cols, values = pairs.row[strongest], pairs.col[strongest], pairs.data[strongest]
    shown = np.unique([rows, cols])
    angles = 2 * np.pi * np.arange(len(shown)) / max(len(shown), 1)
    places = dict(zip(shown.tolist(), zip(np.cos(angles), np.sin(angles), strict=True), strict=True))
    most = np.abs(values).max(initial=0) or 1.0
    # The strongest pairs are drawn last, so that they are on top.
    for row, col, value in zip(rows[::-1], cols[::-1], values[::-1], strict=True):
        (x1, y1), (x2, y2) = places[int(row)], places[int(col)]
        share = abs(value) / most
        color = "tab:blue" if value > 0 else "tab:red"
        ax.plot([x1, x2], [y1, y2], color=color, linewidth=0.5 + 4 * share, alpha=0.2 + 0.7 * share, zorder=1)
    for angle, (label, (x, y)) in zip(angles, places.items(), strict=True):
        ax.plot(x, y, "o", color="0.2", zorder=2)
        ax.annotate(
            names[label],
            (1.06 * x, 1.06 * y),
            ha="left" if x >= 0 else "right",
            va="center",
            rotation=float(np.degrees(angle)) + (0 if x >= 0 else 180),
            rotation_mode="anchor",
        )
    ax.set_title(f"The {len(values)} strongest couplings: blue if positive, red if negative")
    ax.set(xlim=(-1.8, 1.8), ylim=(-1.8, 1.8), aspect="equal")
    ax.axis("off")
