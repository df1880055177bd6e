"""The rule `Thresholds`, which chooses labels whose probabilities reach a threshold."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.stats import beta
from sklearn.utils.validation import check_is_fitted

from manylabel.decision.rules import DecisionRule, kept, of_known_entries
from manylabel.estimator.parameters import Choice, Either, Number, Parameters
from manylabel.estimator.registry import register
from manylabel.metrics.calibration import hits_of

__all__ = ["Thresholds"]

# If a label is a candidate and a true label in this number of rows, its bound depends in equal parts on these
# rows and on its probabilities.
_HITS = 20.0

# Confidence of the bounds for `precision` and `recall`.
_CONFIDENCE = 0.95

# Candidates for the bounds of groups and for the bound of the example-based F1.
_GRID = np.linspace(0.01, 0.9, 90)


@register
class Thresholds(DecisionRule):
    """Choose the labels whose probabilities are at least as large as a bound.

    The bounds are probability thresholds. `fit` learns one bound for all labels, or one bound per label, from
    the probabilities and the true labels of held-out rows.

    Parameters
    ----------
    metric : {"micro_f1", "macro_f1", "example_f1"}, default="micro_f1"
        The measure that the bounds maximize on the held-out rows. With "micro_f1" and "example_f1", `fit`
        learns one bound for all labels. A single bound works best if the probabilities are calibrated. With
        "macro_f1", `fit` learns one bound per label. Macro-F1 is the mean of the F1 of all labels. To get a
        high example-based F1, it is better to use `ExpectedF1` than this rule.
    precision : float or None, default=None
        If not None, `fit` chooses the lowest bound that reaches this precision, and ignores `metric`. The
        precision is the fraction of true labels among the chosen labels of all held-out rows. A bound reaches
        `precision` if the one-sided 95 % lower confidence limit of this fraction is at least `precision`.
        This condition is safer than a condition on the fraction itself.
    recall : float or None, default=None
        If not None, `fit` chooses the highest bound that reaches this recall, and ignores `metric`. The
        recall is the fraction of chosen labels among the true labels of all held-out rows. A bound reaches
        `recall` if the one-sided 95 % lower confidence limit of this fraction is at least `recall`.
    labels_per_row : float or None, default=None
        If not None, `fit` chooses the highest bound at which rows get at least this number of labels on
        average, and ignores `metric`.
    pooling : {"frequency", "none"}, default="frequency"
        How ``metric="macro_f1"`` computes the bounds. With "none", the bound of a label maximizes the F1 of
        the label on the held-out rows. "frequency" moves this bound towards two other bounds. The first would
        be the best bound if the probabilities were calibrated. The second is a common bound for all labels
        with a similar frequency. If a label is true in few held-out rows, its bound moves more (see Notes).

    Attributes
    ----------
    bounds_ : ndarray of shape (n_labels,), dtype float64
        Smallest probability at which each label is chosen.

    Notes
    -----
    At most one of `precision`, `recall` and `labels_per_row` may be given. With each of these parameters,
    `fit` learns one bound for all labels.

    `fit` leaves out the unknown entries of Y (NaN). The exception is `labels_per_row`: the bound then does
    not depend on Y, and a chosen label counts even if its entry in Y is unknown.

    The following applies to ``metric="macro_f1"`` and ``pooling="frequency"``. A label is a candidate in each
    held-out row in which its probability p is positive. Let n be the number of rows in which the label is a
    candidate and is true. The weight of the label is ``w = n / (n + 20)``. `fit` uses this weight twice.

    First, `fit` uses w to compute a smoothed F1 of the label. Let h be 1 if the label is true in a row, and 0
    otherwise. The usual F1 of the label is computed from h and the prediction for the label in all held-out
    rows. The smoothed F1 is computed in the same way, but ``w h + (1 - w) p`` replaces h in each row in which
    the label is a candidate. In all other rows, h is not replaced.

    Second, the bound of the label is ``w b + (1 - w) g``. The bound b maximizes the smoothed F1 of the label.
    The bound g is the same for all labels of a group. It maximizes the mean of the smoothed F1 of these
    labels. Labels are grouped by the number of held-out rows in which they are true: 0, 1, 2 to 3, 4 to 7, 8
    to 15 and so on.

    If labels are true in few held-out rows, these bounds give a higher macro-F1 than `F1Inference`.
    Otherwise, the two rules differ little. The table shows the macro-F1 in percent. Both rules use the
    calibrated probabilities of DiSMEC:

    ============ ======================= ========== ===========
    data         held-out rows           Thresholds F1Inference
    ============ ======================= ========== ===========
    citeulike-t  a tenth of the rows     15         8
    eurlex57k    a tenth of the rows     50         39
    yso-finna-en a tenth of the rows     23         18
    citeulike-t  all rows, in five folds 15.3       15.0
    bibtex       all rows, in five folds 42.3       42.6
    delicious    a tenth of the rows     18.1       18.6
    ============ ======================= ========== ===========

    Examples
    --------
    >>> from manylabel.decision import Thresholds
    >>> P, Y = [[0.9, 0.1], [0.6, 0.2], [0.3, 0.1]], [[1, 0], [1, 0], [0, 0]]
    >>> Thresholds().fit(P, Y).predict(P)
    array([[1, 0],
           [1, 0],
           [0, 0]])
    """

    is_monotone: ClassVar[bool] = False

    parameters = Parameters(
        metric=Choice("micro_f1", "macro_f1", "example_f1"),
        precision=Either(None, Number(above=0, below=1)),
        recall=Either(None, Number(above=0, below=1)),
        labels_per_row=Either(None, Number(above=0)),
        pooling=Choice("frequency", "none"),
    )

    bounds_: NDArray[np.float64]

    def __init__(
        self,
        metric: Literal["micro_f1", "macro_f1", "example_f1"] = "micro_f1",
        *,
        precision: float | None = None,
        recall: float | None = None,
        labels_per_row: float | None = None,
        pooling: Literal["frequency", "none"] = "frequency",
    ) -> None:
        self.metric = metric
        self.precision = precision
        self.recall = recall
        self.labels_per_row = labels_per_row
        self.pooling = pooling

    def _learn(self, probabilities: csr_array, Y: csr_array, params: dict[str, Any]) -> None:
        """Learn the bounds.

        Raises
        ------
        ValueError
            If no bound reaches the given `precision`, `recall` or `labels_per_row`, or if more than one of
            these parameters is given.
        """
        targets = {name: params[name] for name in ("precision", "recall", "labels_per_row")}
        given = [name for name, value in targets.items() if value is not None]
        if len(given) > 1:
            raise ValueError(
                "at most one of `precision`, `recall` and `labels_per_row` may be given, "
                f"got {' and '.join(given)}"
            )
        if "labels_per_row" not in given:
            probabilities, Y = of_known_entries(probabilities, Y)
        if not given and params["metric"] == "macro_f1":
            self.bounds_ = _macro_f1(probabilities, Y, pooled=params["pooling"] == "frequency")
            return
        if not given and params["metric"] == "example_f1":
            bound = _example_f1(probabilities, Y)
        else:
            bound = _Falling(probabilities, Y).bound(given[0] if given else "micro_f1", targets)
        self.bounds_ = np.full(Y.shape[1], bound)

    def _chosen(self, probabilities: csr_array, params: dict[str, Any]) -> csr_array:
        check_is_fitted(self, "bounds_")
        if len(self.bounds_) != probabilities.shape[1]:
            raise ValueError(
                f"`probabilities` must have {len(self.bounds_)} columns, one for each label, "
                f"got {probabilities.shape[1]}"
            )
        return kept(probabilities, probabilities.data >= self.bounds_[probabilities.indices])


class _Falling:
    """For each possible bound, the number of chosen labels, and how many of them are true.

    A label is chosen for a row if its stored probability is at least the bound. The numbers are totals over
    all rows, with the same bound for all labels. The possible bounds are the distinct stored probabilities,
    in decreasing order.
    """

    def __init__(self, probabilities: csr_array, Y: csr_array) -> None:
        order = np.argsort(-probabilities.data, kind="stable")
        values = probabilities.data[order].astype(np.float64)
        # A set ends after the last of equal probabilities.
        ends = np.flatnonzero(np.append(values[1:] != values[:-1], True)[: len(values)])
        self.bounds = values[ends]
        self.n_chosen = ends.astype(np.float64) + 1
        self.n_hits = np.cumsum(hits_of(probabilities, Y)[order])[ends].astype(np.float64)
        self.n_true, self.n_rows = Y.nnz, Y.shape[0]

    def bound(self, target: str, targets: dict[str, float | None]) -> float:
        """Return the bound that meets a target.

        If `target` is "micro_f1", the bound maximizes micro-F1. Otherwise, `target` is "precision", "recall"
        or "labels_per_row", and ``targets[target]`` is the value that this quantity must reach. For precision
        and recall, the lower confidence limit of the quantity must reach the value. The result for
        "precision" is the lowest bound at which the value is reached. The result for "recall" and
        "labels_per_row" is the highest such bound.
        """
        if target == "micro_f1":
            if not len(self.bounds):
                return 1.0
            return float(self.bounds[np.argmax(self.n_hits / (self.n_chosen + self.n_true))])
        wanted = float(targets[target] or 0)
        if target == "labels_per_row":
            at = np.flatnonzero(self.n_chosen >= wanted * self.n_rows)
        elif target == "recall":
            at = np.flatnonzero(_least_share(self.n_hits, np.full(len(self.bounds), self.n_true)) >= wanted)
        else:
            at = np.flatnonzero(_least_share(self.n_hits, self.n_chosen) >= wanted)[::-1]
        if not len(at):
            raise ValueError(
                f"`{target}` must be a value that can be reached on the held-out rows, got {wanted}"
            )
        return float(self.bounds[at[0]])


def _least_share(n_hits: NDArray[np.float64], n: NDArray[Any]) -> NDArray[np.float64]:
    """Return the lower confidence limits of the fractions ``n_hits / n``.

    The limits are those of C. J. Clopper and E. S. Pearson, Biometrika 1934.
    """
    with np.errstate(invalid="ignore"):
        found = beta.ppf(1 - _CONFIDENCE, n_hits, n - n_hits + 1)
    return np.where(n_hits > 0, found, 0.0)


def _example_f1(probabilities: csr_array, Y: csr_array) -> float:
    """Return the bound in `_GRID` that maximizes the mean F1 of the rows."""
    rows = np.repeat(np.arange(Y.shape[0]), np.diff(probabilities.indptr))
    hits, n_true = hits_of(probabilities, Y), np.diff(Y.indptr)
    means = []
    for bound in _GRID:
        chosen = probabilities.data >= bound
        n_hits = np.bincount(rows[chosen], weights=hits[chosen], minlength=Y.shape[0])
        n = np.bincount(rows[chosen], minlength=Y.shape[0]) + n_true
        means.append((2 * n_hits / np.maximum(n, 1)).mean())
    return float(_GRID[np.argmax(means)])


def _macro_f1(probabilities: csr_array, Y: csr_array, *, pooled: bool) -> NDArray[np.float64]:
    """Return the bound of each label; see the Notes of `Thresholds`."""
    n_labels = Y.shape[1]
    labels, values = probabilities.indices, probabilities.data.astype(np.float64)
    hits = hits_of(probabilities, Y)
    order = np.lexsort((-values, labels))
    labels, values, hits = labels[order], values[order], hits[order]
    n_true = np.bincount(Y.indices, minlength=n_labels).astype(np.float64)
    n_hits = np.bincount(labels, weights=hits, minlength=n_labels)
    weight = n_hits / (n_hits + _HITS) if pooled else np.ones(n_labels)
    counted = weight[labels] * hits + (1 - weight[labels]) * values
    # The expected number of true labels, of which candidates have a part.
    expected = np.bincount(labels, weights=values, minlength=n_labels) + (n_true - n_hits)
    total = weight * n_true + (1 - weight) * expected
    starts = np.searchsorted(labels, np.arange(n_labels))
    sums = np.concatenate([[0.0], np.cumsum(counted)])
    rank = np.arange(len(labels)) - starts[labels] + 1
    found = sums[1:] - sums[starts[labels]]
    f1 = 2 * found / (rank + total[labels])
    # A set ends after the last of equal probabilities.
    ends = np.append((values[1:] != values[:-1]) | (labels[1:] != labels[:-1]), True)[: len(labels)]
    f1 = np.where(ends, f1, -1.0)
    bounds = np.full(n_labels, 1.0)
    if len(labels):
        best = np.lexsort((rank, -f1, labels))
        first = best[np.searchsorted(labels, np.unique(labels))]
        bounds[labels[first]] = values[first]
        bounds[labels[first][f1[first] <= 0]] = 1.0
    if not pooled:
        return bounds
    group = np.frexp(n_true)[1]
    curves = _f1_of_grid(labels, values, counted, total, n_labels)
    for number in np.unique(group):
        members = group == number
        of_group = _GRID[np.argmax(curves[:, members].sum(axis=1))]
        bounds[members] = weight[members] * bounds[members] + (1 - weight[members]) * of_group
    return bounds


def _f1_of_grid(
    labels: NDArray[Any],
    values: NDArray[np.float64],
    counted: NDArray[np.float64],
    total: NDArray[np.float64],
    n_labels: int,
) -> NDArray[np.float64]:
    """Return the F1 of each label for each bound in `_GRID`, as an array of shape (n_bounds, n_labels)."""
    curves = np.empty((len(_GRID), n_labels))
    for at, bound in enumerate(_GRID):
        chosen = values >= bound
        n = np.bincount(labels[chosen], minlength=n_labels)
        found = np.bincount(labels[chosen], weights=counted[chosen], minlength=n_labels)
        curves[at] = np.divide(2 * found, n + total, out=np.zeros(n_labels), where=n + total > 0)
    return curves
