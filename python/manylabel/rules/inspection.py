"""Fitted rules as arrays, text and data frames, and plots of importances."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.utils.validation import check_is_fitted

from manylabel.estimator.documentation import documented_like
from manylabel.estimator.parameters import check_count
from manylabel.estimator.plotting import pyplot
from manylabel.estimator.validation import check_names

__all__ = [
    "FiredRule",
    "Rules",
    "export_text",
    "feature_importances",
    "fired_rules",
    "frame",
    "label_importances",
    "plot_importance",
]

_AT_MOST, _ABOVE, _EQUAL = 0, 1, 2


@dataclass(frozen=True)
class Rules:
    """Fitted rules as arrays. The first rule is the default rule, which has no conditions.

    Parameters
    ----------
    body_indptr : ndarray of shape (n_rules + 1,), dtype int64
        Start and end of each rule in `feature`, `operator` and `threshold`, as in the CSR format. The
        conditions of rule r have the indices ``body_indptr[r]`` to ``body_indptr[r + 1] - 1`` in these
        arrays. These conditions are called the body of the rule. The rule covers the rows that satisfy all
        conditions of its body.
    feature : ndarray of shape (n_conditions,), dtype int32
        Column index of the feature of each condition.
    operator : ndarray of shape (n_conditions,), dtype uint8
        Operator of each condition: 0 for ``value <= threshold``, 1 for ``>``, 2 for ``==``, 3 for ``!=``. A
        NaN value satisfies no condition.
    threshold : ndarray of shape (n_conditions,), dtype float32
        Threshold of each condition.
    heads : csr_array of shape (n_rules, n_labels), dtype float32
        Head of each rule: the label scores that the rule adds for the rows that it covers.
    coverage : ndarray of shape (n_rules,), dtype float64
        Sum of the weights of the training rows that each rule covers.

    Examples
    --------
    >>> import manylabel as ml
    >>> X, Y = [[20], [30], [70]], [[1, 0], [1, 0], [0, 1]]
    >>> model = ml.BoostedRulesClassifier(2, bootstrap=False, random_state=0).fit(X, Y)
    >>> model.rules_.threshold
    array([50.], dtype=float32)
    """

    body_indptr: NDArray[np.int64]
    feature: NDArray[np.int32]
    operator: NDArray[np.uint8]
    threshold: NDArray[np.float32]
    heads: csr_array
    coverage: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.coverage)


@dataclass(frozen=True)
class FiredRule:
    """A rule that covers a given row, as returned by `BoostedRulesClassifier.explain`.

    A rule covers the rows that satisfy all its conditions. For these rows, the rule adds a score to some
    labels.

    Parameters
    ----------
    rule : int
        Position of the rule in the model. The default rule has position 0.
    text : str
        Text of the rule, in the format of `export_text`.
    coverage : float
        Sum of the weights of the training rows that the rule covers.
    labels : ndarray of shape (n_scored,), dtype int
        Column indices in Y of the labels to which the rule adds a nonzero score.
    scores : ndarray of shape (n_scored,), dtype float32
        Scores that the rule adds for these labels.
    contribution : float, default=nan
        Score that the rule adds for the label that was passed to `explain`. It is NaN if no label was passed.

    Examples
    --------
    >>> import manylabel as ml
    >>> X, Y = [[20], [30], [70]], [[1, 0], [1, 0], [0, 1]]
    >>> model = ml.BoostedRulesClassifier(2, bootstrap=False, random_state=0).fit(X, Y)
    >>> model.explain([20])[1]
    1: if feature 0 <= 50 then  (covers 2)
        +0.15 label 0
        -0.15 label 1
    """

    rule: int
    text: str
    coverage: float
    labels: NDArray[Any]
    scores: NDArray[np.float32]
    contribution: float = math.nan

    @property
    def part(self) -> str:
        """Kind of this part of a `LabelExplanation`. It is always "rule"."""
        return "rule"

    @property
    def name(self) -> str:
        """The position and the conditions of the rule, as text."""
        return f"rule {self.rule}: " + self.text.split(" then ")[0].splitlines()[0]

    def __repr__(self) -> str:
        return f"{self.rule}: {self.text}"


def export_text(
    model: Any,
    *,
    feature_names: Sequence[str] | None = None,
    label_names: Sequence[str] | None = None,
    max_rules: int | None = None,
    max_labels: int | None = 10,
    decimals: int = 2,
) -> str:
    """Write the rules of a model as text.

    A rule covers the rows that satisfy all its conditions. For these rows, the rule adds a score to some
    labels.

    Parameters
    ----------
    model : BoostedRulesClassifier
        A fitted model.
    feature_names : sequence of str of length n_features, default=None
        Names of the features. None means ``feature_names_in_`` if the model has this attribute. Otherwise,
        the names are "feature 0", "feature 1" and so on.
    label_names : sequence of str of length n_labels, default=None
        Names of the labels. None means ``label_names_`` if the model has this attribute. Otherwise, the names
        are "label 0", "label 1" and so on.
    max_rules : int, default=None
        Maximum number of rules to write, starting with the first rule; >= 1. None writes all rules.
    max_labels : int, default=10
        Maximum number of labels to name per rule; >= 1. The labels with the largest absolute scores are
        named. For the other labels of the rule, the text contains only their number and the range of their
        scores. None names all labels.
    decimals : int, default=2
        Number of digits after the decimal point of scores; >= 0. Labels with equal rounded scores are written
        on the same line. This parameter does not apply to the thresholds of conditions, which have at least
        four significant digits. The attribute `rules_` of the model contains the exact thresholds.

    Returns
    -------
    str
        The text. A rule is a line such as
        ``if alpha > 0.5 and beta <= 1.2 then +0.80 topic_a  (covers 123)``, where alpha and beta are features
        and topic_a is a label. The number 123 is the sum of the weights of the training rows that the rule
        covers. If `fit` was called without `sample_weight`, 123 is the number of these rows. If a rule adds
        several different scores, each score is on a separate line below the conditions. Several
        conditions on one numeric feature are merged, as in ``0.2 < alpha <= 0.5``.

    Raises
    ------
    ValueError
        If the length of `feature_names` differs from the number of features, if the length of `label_names`
        differs from the number of labels, or if another argument is not valid.
    sklearn.exceptions.NotFittedError
        If the model is not fitted.

    Examples
    --------
    >>> import manylabel as ml
    >>> X, Y = [[20], [30], [70]], [[1, 0], [1, 0], [0, 1]]
    >>> model = ml.BoostedRulesClassifier(2, bootstrap=False, random_state=0).fit(X, Y)
    >>> print(ml.rules.export_text(model, feature_names=["age"], label_names=["young", "old"]))
    always  (covers 3)
        +0.25 young
        -0.25 old
    if age <= 50 then  (covers 2)
        +0.15 young
        -0.15 old
    """
    check_is_fitted(model, "heads_")
    max_rules = _up_to("max_rules", max_rules)
    writer = _Writer(model, feature_names, label_names, _up_to("max_labels", max_labels), decimals)
    n_rules = len(writer.rules)
    lines = [writer.rule(rule) for rule in range(min(n_rules, max_rules))]
    if n_rules > max_rules:
        lines.append(f"... and {n_rules - max_rules:,} more rules")
    return "\n".join(lines)


def fired_rules(
    model: Any,
    rules: NDArray[Any],
    label: int | None,
    feature_names: Sequence[str] | None,
    label_names: Sequence[str] | None,
) -> list[FiredRule]:
    """Return the given rules as `FiredRule` objects; see `BoostedRulesClassifier.explain`."""
    writer = _Writer(model, feature_names, label_names, max_labels=10, decimals=2)
    heads = model.heads_
    adds = np.full(len(rules), math.nan)
    if label is not None:
        adds = heads[rules][:, [label]].toarray().ravel()
        order = np.argsort(-np.abs(adds), kind="stable")
        kept = order[adds[order] != 0]
        rules, adds = rules[kept], adds[kept]
    fired = []
    for rule, add in zip(rules.tolist(), adds.tolist(), strict=True):
        labels, scores = writer.head(rule)
        fired.append(FiredRule(rule, writer.rule(rule), float(model.coverage_[rule]), labels, scores, add))
    return fired


def frame(model: Any, feature_names: Sequence[str] | None, label_names: Sequence[str] | None) -> Any:
    """Return the rules of a model as a data frame; see `BoostedRulesClassifier.to_frame`."""
    try:
        import pandas as pd
    except ModuleNotFoundError as error:
        if error.name != "pandas":
            raise
        raise ModuleNotFoundError(
            "`to_frame` requires pandas; install it with: pip install pandas", name="pandas"
        ) from None
    writer = _Writer(model, feature_names, label_names, max_labels=10, decimals=2)
    rules = writer.rules
    heads = [writer.head(rule) for rule in range(len(rules))]
    strongest = [int(np.argmax(np.abs(scores))) if len(scores) else None for _, scores in heads]
    columns: dict[str, Any] = {
        "conditions": [writer.body(rule) for rule in range(len(rules))],
        "head": ["; ".join(writer.scores(rule)) for rule in range(len(rules))],
        "n_conditions": np.diff(rules.body_indptr),
        "coverage": rules.coverage,
        "n_labels": [len(labels) for labels, _ in heads],
        "strongest_label": [
            None if at is None else writer.label_names[labels[at]]
            for at, (labels, _) in zip(strongest, heads, strict=True)
        ],
        "score": [
            0.0 if at is None else float(scores[at]) for at, (_, scores) in zip(strongest, heads, strict=True)
        ],
    }
    if len(model.validation_loss_):
        columns["validation_loss"] = model.validation_loss_
    return pd.DataFrame(columns, index=pd.RangeIndex(len(rules), name="rule"))


def feature_importances(rules: Rules, n_features: int) -> NDArray[np.float64]:
    """Return the importances of the features, as defined in the Notes of `BoostedRulesClassifier`."""
    lengths = np.diff(rules.body_indptr)
    moved = np.asarray(abs(rules.heads).sum(axis=1), dtype=np.float64) * rules.coverage
    each = np.repeat(moved / np.maximum(lengths, 1), lengths)
    return _shares(np.bincount(rules.feature, weights=each, minlength=n_features))


def label_importances(rules: Rules) -> NDArray[np.float64]:
    """Return the importances of the labels, as defined in the Notes of `BoostedRulesClassifier`."""
    heads = rules.heads
    weights = np.where(np.diff(rules.body_indptr) > 0, rules.coverage, 0.0)
    each = np.repeat(weights, np.diff(heads.indptr)) * np.abs(heads.data)
    return _shares(np.bincount(heads.indices, weights=each, minlength=heads.shape[1]))


@documented_like(export_text)
def plot_importance(
    model: Any,
    *,
    feature_names: Sequence[str] | None = None,
    label_names: Sequence[str] | None = None,
    max_bars: int = 20,
    axes: Sequence[Any] | None = None,
) -> NDArray[Any]:
    """Plot bar charts of the importances of features and labels, with the largest importance on top.

    The importances are the attributes `feature_importances_` and `label_importances_` of the model.

    Parameters
    ----------
    max_bars : int, default=20
        Maximum number of bars in each of the two charts; >= 1.
    axes : sequence of two matplotlib.axes.Axes, default=None
        Axes for the chart of the features and for the chart of the labels. None creates a new figure.

    Returns
    -------
    ndarray of two matplotlib.axes.Axes
        The axes with the two charts, first for the features and then for the labels.

    Raises
    ------
    ModuleNotFoundError
        If matplotlib is not installed.
    """
    check_is_fitted(model, "heads_")
    max_bars = check_count("max_bars", max_bars, 1)
    features = check_names("feature", feature_names, model.n_features_in_, model)
    labels = check_names("label", label_names, model.heads_.shape[1], model)
    if axes is None:
        n_bars = min(max_bars, max(len(features), len(labels)))
        _, axes = pyplot().subplots(1, 2, figsize=(11, 1.2 + 0.26 * n_bars), layout="constrained")
    both = np.asarray(axes, dtype=object)
    if both.shape != (2,):
        raise ValueError(f"`axes` must have two entries, for features and labels, got shape {both.shape}")
    for ax, what, names, shares in (
        (both[0], "features", features, model.feature_importances_),
        (both[1], "labels", labels, model.label_importances_),
    ):
        top = np.argsort(-shares, kind="stable")[:max_bars]
        ax.barh(range(len(top)), shares[top])
        ax.set_yticks(range(len(top)), [names[at] for at in top])
        ax.invert_yaxis()
        ax.set(xlabel=f"importance of {what}")
    return both


class _Writer:
    """Writer of rules as text, with names for features and labels."""

    def __init__(
        self,
        model: Any,
        feature_names: Sequence[str] | None,
        label_names: Sequence[str] | None,
        max_labels: int,
        decimals: int,
    ) -> None:
        self.rules: Rules = model.rules_
        self.feature_names = check_names("feature", feature_names, model.n_features_in_, model)
        self.label_names = check_names("label", label_names, self.rules.heads.shape[1], model)
        self.max_labels = max_labels
        self.decimals = check_count("decimals", decimals, 0)

    def rule(self, rule: int) -> str:
        covers = f"(covers {self.rules.coverage[rule]:,.10g})"
        body = self.body(rule)
        condition = f"if {body} then" if body else "always"
        scores = list(self.scores(rule))
        if len(scores) == 1:
            return f"{condition} {scores[0]}  {covers}"
        return "\n    ".join([f"{condition}  {covers}", *scores])

    def body(self, rule: int) -> str:
        """Return the conditions of a rule as text. Conditions on the same numeric feature are merged."""
        rules = self.rules
        bounds: dict[int, tuple[float, float]] = {}
        texts: dict[tuple[int, str], str] = {}
        for at in range(*rules.body_indptr[rule : rule + 2]):
            feature, operator = int(rules.feature[at]), rules.operator[at]
            name, threshold = self.feature_names[feature], float(rules.threshold[at])
            if operator in (_AT_MOST, _ABOVE):
                low, high = bounds.get(feature, (-math.inf, math.inf))
                if operator == _AT_MOST:
                    bounds[feature] = low, min(high, threshold)
                else:
                    bounds[feature] = max(low, threshold), high
                texts[feature, "interval"] = _interval(name, *bounds[feature])
            else:
                sign = "==" if operator == _EQUAL else "!="
                texts[feature, f"{sign} {threshold!r}"] = f"{name} {sign} {_digits(threshold)}"
        return " and ".join(texts.values())

    def head(self, rule: int) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """Return the labels with nonzero scores in the head of a rule, and their scores."""
        heads = self.rules.heads
        stored = slice(*heads.indptr[rule : rule + 2])
        labels, scores = heads.indices[stored], heads.data[stored]
        return labels[scores != 0], scores[scores != 0]

    def scores(self, rule: int) -> Iterator[str]:
        """Yield texts that list the labels and their rounded scores, in order of decreasing absolute score.

        Each text contains one score and the names of the labels with this score. All texts together name at
        most `max_labels` labels. If only some labels of a score are named, the text of this score ends with
        the number of its other labels, as in "+0.50 a, b and 3 more". One last text is about all scores
        without any named label. It contains the range of these scores and the number of their labels. For 7
        labels with scores from -0.20 to +0.10, it is "-0.20 to +0.10 7 other labels".
        """
        labels, values = self.head(rule)
        if not len(labels):
            yield "nothing"
            return
        groups: dict[str, list[int]] = {}
        for at in np.argsort(-np.abs(values), kind="stable").tolist():
            groups.setdefault(f"{values[at]:+.{self.decimals}f}", []).append(int(labels[at]))
        left = self.max_labels
        texts = list(groups)
        for at, text in enumerate(texts):
            if left == 0:
                others = sum(len(groups[other]) for other in texts[at:])
                low, high = (extreme(texts[at:], key=float) for extreme in (min, max))
                yield f"{low if low == high else f'{low} to {high}'} {others:,} other labels"
                return
            named = groups[text][:left]
            left -= len(named)
            more = len(groups[text]) - len(named)
            names = ", ".join(self.label_names[label] for label in sorted(named))
            yield f"{text} {names}" + (f" and {more:,} more" if more else "")


def _interval(name: str, low: float, high: float) -> str:
    if math.isinf(low):
        return f"{name} <= {_digits(high)}"
    if math.isinf(high):
        return f"{name} > {_digits(low)}"
    return f"{_digits(low)} < {name} <= {_digits(high)}"


def _digits(threshold: float) -> str:
    """Format a threshold with at least four significant digits.

    If the absolute value of the threshold is below 1e9, all digits before the decimal point are written.
    """
    before = len(str(abs(int(threshold)))) if abs(threshold) < 1e9 else 0
    return f"{threshold:.{max(4, before)}g}"


def _up_to(name: str, value: Any) -> int:
    return np.iinfo(np.int32).max if value is None else check_count(name, value, 1)


def _shares(amounts: NDArray[Any]) -> NDArray[np.float64]:
    total = float(amounts.sum())
    return amounts.astype(np.float64) / (total if total > 0 else 1.0)
