"""Choose the method for converting scores to label sets, based on a measure on held-out rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import uniform_filter1d
from scipy.sparse import csr_array
from sklearn.linear_model import LogisticRegression

__all__ = ["MEASURES", "HeldOutMeasures", "SetChoice"]

# The measures for which label sets can be chosen, in the order of the attributes `choice_powers_`,
# `choice_bounds_` and `choice_by_sets_`.
MEASURES = ("subset-accuracy", "hamming", "example-f1")

# Candidates for the power of the frequencies of label sets. The best powers on fourteen public data sets are
# 0 to 0.5.
_POWERS = np.array([0.0, 0.05, 0.1, 0.15, 0.25, 0.35, 0.5, 0.75, 1.0])

# Candidates for the bound of scores, from the smallest to the largest. With the label-wise loss, scores are
# log-odds, and the bounds are probabilities from 1e-7 to 1 - 1e-7. Scores have a similar size with the
# example-wise loss.
_LARGEST, _PER_UNIT = 16, 128
_BOUNDS = np.arange(-_LARGEST * _PER_UNIT, _LARGEST * _PER_UNIT + 1) / _PER_UNIT

# The mean of a measure over bounds within this distance is maximized. A bound that maximizes the measure
# itself depends on few rows. On eight public data sets, its example-based F1 on other rows is 0.1 to 0.2
# points lower.
_SMOOTHED = _PER_UNIT // 2

# The inverse strength of the regularization of a logistic regression with one feature. The regularization
# only keeps the weight finite if a bound separates all pairs.
_WEAK = 1e3

# Number of pairs of a row and a label that are evaluated at once. They take about 100 MB.
_PAIRS_AT_ONCE = 2**20


class SetChoice(NamedTuple):
    """A way to convert the scores of a row to a label set. The Rust core reads the attributes."""

    power: float | None
    """The number a in ``loss - a * log(f)``, or None to choose labels by `bound`.

    Here, loss is the example-wise loss of a known label set, and f is the total weight of the training rows
    with this label set. If the value is not None, the known label set with the smallest ``loss - a * log(f)``
    is chosen, and `bound` and `best` are not used.
    """
    bound: float
    """If `power` is None, the labels with scores above this bound are chosen."""
    best: bool
    """Whether the label with the highest score is also chosen if its score is not above `bound`."""

    @classmethod
    def by_bound(cls, measure: str, bound: float) -> SetChoice:
        """Return the `SetChoice` that chooses the labels with scores above a bound.

        For the measure "example-f1", every row gets at least one label, because an empty label set has an F1
        of 0.
        """
        return cls(None, bound, measure == "example-f1")


class HeldOutMeasures:
    """Sums of the measures over the held-out rows.

    A candidate is a value of `SetChoice.power` or a value of `SetChoice.bound`, never a combination of both.
    Each measure has one sum per candidate.
    """

    def __init__(self) -> None:
        self._by_power = np.zeros((len(MEASURES), len(_POWERS)))
        self._by_bound = np.zeros((len(MEASURES), len(_BOUNDS)))
        # Weights of the pairs of a row and an absent or a present label, by the number of bounds below the
        # score of the label.
        self._pairs = np.zeros((2, len(_BOUNDS) + 1))
        self._n_pairs = 0

    def add(
        self, model: Any, X: csr_array | NDArray[Any], Y: csr_array, weights: NDArray[np.float64]
    ) -> None:
        """Add the measures of held-out rows to the sums of this object.

        Parameters
        ----------
        model : BoostedRulesClassifier
            A model that was fitted to other rows. This method changes the parameter `predictor` of the
            model and its attributes `choice_powers_`, `choice_bounds_` and `choice_by_sets_`.
        X : csr_array or ndarray, of shape (n_samples, n_features)
            Features of the held-out rows.
        Y : csr_array of shape (n_samples, n_labels)
            Labels of the held-out rows. NaN marks unknown entries, which are not counted.
        weights : ndarray of shape (n_samples,), dtype float64
            Weights of the held-out rows.
        """
        blocks = _row_blocks(Y)
        for rows in blocks:
            labels = Y[rows].toarray()
            scores = model.decision_function(X[rows])
            self._add_bounds(scores, labels > 0, ~np.isnan(labels), weights[rows])
        model.predictor = MEASURES[0]
        model.choice_by_sets_ = np.ones(len(MEASURES), dtype=np.uint8)
        model.choice_bounds_ = np.zeros(len(MEASURES))
        for at, power in enumerate(_POWERS):
            model.choice_powers_ = np.full(len(MEASURES), power)
            predicted = model.predict(X)
            for rows in blocks:
                labels, chosen = Y[rows].toarray(), predicted[rows].toarray() > 0
                true, known = labels > 0, ~np.isnan(labels)
                n_hits, n_chosen = ((chosen & part).sum(axis=1) for part in (true, known))
                self._by_power[:, at] += _measures(n_hits, n_chosen, true.sum(axis=1)) @ weights[rows]

    def _add_bounds(
        self,
        scores: NDArray[np.float32],
        true: NDArray[np.bool_],
        known: NDArray[np.bool_],
        weight: NDArray[np.float64],
    ) -> None:
        # With a lower bound, a row gets more labels, in the order of its scores. The measures of a row are
        # therefore computed for 0, 1, 2 and more labels, and the differences are added to the bounds at which
        # the row gets the next label.
        order = np.argsort(-scores, axis=1, kind="stable")
        true, known = (np.take_along_axis(part, order, axis=1) for part in (true, known))
        n_hits, n_chosen = (np.cumsum(np.pad(part, ((0, 0), (1, 0))), axis=1) for part in (true, known))
        of_counts = _measures(n_hits, n_chosen, true.sum(axis=1, keepdims=True))
        steps = np.diff(of_counts, axis=2) * weight[:, None]
        first = of_counts[:, :, 0] @ weight
        for number, measure in enumerate(MEASURES):
            if SetChoice.by_bound(measure, 0.0).best and scores.shape[1]:
                first[number] = of_counts[number, :, 1] @ weight
                steps[number, :, 0] = 0.0
        sorted_scores = np.take_along_axis(scores, order, axis=1).astype(np.float64)
        # A label is chosen at all bounds below its score. This is the number of these bounds.
        n_below = np.clip(np.ceil((sorted_scores + _LARGEST) * _PER_UNIT), 0, len(_BOUNDS)).astype(np.intp)
        finite = np.isfinite(sorted_scores) & known
        weights = np.broadcast_to(weight[:, None], finite.shape)
        self._n_pairs += int(np.count_nonzero(finite))
        for present in (0, 1):
            chosen = finite & (true == present)
            self._pairs[present] += np.bincount(
                n_below[chosen], weights=weights[chosen], minlength=len(_BOUNDS) + 1
            )
        for number, of_measure in enumerate(steps):
            sums = np.bincount(n_below.ravel(), weights=of_measure.ravel(), minlength=len(_BOUNDS) + 1)
            self._by_bound[number] += first[number] + np.cumsum(sums[::-1])[::-1][1:]

    def best(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.uint8]]:
        """Return the best power and the best bound for each measure, and which of the two to use.

        Label sets are chosen from scores with a power or with a bound (see `SetChoice.power` and
        `SetChoice.bound`). With a bound, the labels with scores above the bound are chosen.

        The result consists of three arrays. Each array has one entry per measure, in the order of `MEASURES`.
        The first array contains the best powers, and the second array contains the best bounds. An entry of
        the third array is 1 if the measure is at least as good with the best power as with the best bound,
        and 0 otherwise. If several powers are equally good, the smallest power is returned. If several bounds
        are equally good, the bound nearest to 0 is returned.

        The Hamming loss is an exception: its bound is determined by a logistic regression. The regression
        predicts from the score of a label whether a row has the label. The bound is the score at which the
        predicted probability is 1/2.
        """
        powers = _POWERS[self._by_power.argmax(axis=1)]
        smoothed = uniform_filter1d(self._by_bound, 2 * _SMOOTHED + 1, mode="nearest")
        nearest = np.argsort(np.abs(_BOUNDS), kind="stable")
        bounds = _BOUNDS[nearest[smoothed[:, nearest].argmax(axis=1)]]
        bounds[MEASURES.index("hamming")] = self._even_score()
        of_bounds = self._by_bound[range(len(MEASURES)), np.searchsorted(_BOUNDS, bounds)]
        return powers, bounds, (self._by_power.max(axis=1) >= of_bounds).astype(np.uint8)

    def _even_score(self) -> float:
        """Return the score at which a logistic regression predicts a probability of 1/2.

        One regression is fitted for all labels. It is fitted to the (row, label) pairs of the held-out rows.
        Pairs are left out if the entry is unknown or the score is not finite. The regression predicts from
        the score of a pair whether the row has the label. The returned score is a threshold for all labels: a
        label is predicted if its score exceeds this threshold. If the regression gives no usable threshold,
        the result is 0.

        An alternative would be to return the threshold with the smallest Hamming loss on the held-out rows.
        But that threshold depends on only a few pairs. The threshold of the regression depends on all pairs,
        and gives a lower loss on other rows.
        """
        present, number = np.nonzero(self._pairs)
        if len(np.unique(present)) < 2:
            return 0.0
        scores = _BOUNDS[np.minimum(number, len(_BOUNDS) - 1)]
        weights = self._pairs[present, number]
        # The strength of the regularization must not depend on the unit of the weights.
        weights = weights * (self._n_pairs / weights.sum())
        curve = LogisticRegression(C=_WEAK, solver="newton-cholesky")
        curve.fit(scores[:, None], present, weights)
        slope = float(curve.coef_[0, 0])
        bound = -float(curve.intercept_[0]) / slope if slope > 0 else 0.0
        return bound if abs(bound) <= _LARGEST else 0.0


def _row_blocks(Y: csr_array) -> list[slice]:
    n_at_once = max(1, _PAIRS_AT_ONCE // max(1, Y.shape[1]))
    return [slice(first, first + n_at_once) for first in range(0, Y.shape[0], n_at_once)]


def _measures(n_hits: NDArray[Any], n_chosen: NDArray[Any], n_true: NDArray[Any]) -> NDArray[np.float64]:
    """Return the measures of predicted label sets.

    The arguments count labels of each row. `n_hits` counts the correctly predicted labels, `n_chosen` the
    predicted labels, and `n_true` the true labels. The first axis of the result has one entry for each of
    `MEASURES`. A larger value is better. For "hamming", the value is minus the number of wrong entries.
    """
    n_wrong = n_chosen + n_true - 2 * n_hits
    return np.stack([n_wrong == 0, -n_wrong, 2 * n_hits / np.maximum(n_chosen + n_true, 1)]).astype(
        np.float64
    )
