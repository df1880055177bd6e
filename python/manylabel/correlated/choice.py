"""What the correlated model chooses by rows held out: how much to regularize, and how many labels to name.

Both are chosen without couplings, which leaves a regression a label: a few labels then stand for all.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from manylabel.estimator.held_out import Fold, best_strength

__all__ = ["HeldOut", "matching_threshold"]

# The range of the penalty. Weights are all zero above it, and free below it.
_LEAST, _MOST = 1e-6, 1.0

# Violation of optimality and gradients that will do for a choice.
_TOL = 1e-3
_MAX_ITER = 300

# Thresholds of log-odds are looked for between minus and plus so much, by so many halvings, until the number
# of labels is right to within 2 %.
_WIDEST = 8.0
_HALVINGS = 12
_CLOSE = 0.02


class HeldOut:
    """Independent regressions of a few labels, and what they make of held-out rows.

    Parameters
    ----------
    model : CorrLogClassifier
        An unfitted one, whose other parameters apply.
    folds : sequence of Fold
        At least one.
    report : callable
        Called from time to time. An exception it raises stops the fits.
    """

    def __init__(self, model: Any, folds: Sequence[Fold], report: Callable[[int], None]) -> None:
        self._folds = folds
        self._report = report
        self._fits: dict[float, list[Any]] = {}
        self._model = model.set_params(
            l2_pairs=np.inf,
            threshold="zero",
            tol=max(model.tol, _TOL),
            max_iter=min(model.max_iter, _MAX_ITER),
            verbose=0,
        )

    def _fitted(self, l2: float) -> list[Any]:
        """Fit all folds; what was fitted once is kept."""
        if l2 not in self._fits:
            self._fits[l2] = [self._fit(l2, fold) for fold in self._folds]
        return self._fits[l2]

    def _fit(self, l2: float, fold: Fold) -> Any:
        # Against the sum of the losses, penalties shall be those of the whole fit, which has more rows.
        share = (len(fold.weight_held) + fold.X.shape[0]) / fold.X.shape[0]
        model = clone(self._model).set_params(l2_features=l2 * share)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return model.fit(fold.X, fold.Y, fold.sample_weight, progress=lambda _: self._report(0))

    def best_penalty(self, first: float) -> float:
        """Choose the penalty of weights, starting from `first`."""

        def loss(l2: float) -> float:
            losses = [
                fold.mean_loss(_log_loss, model.decision_function(fold.X_held))
                for fold, model in zip(self._folds, self._fitted(l2), strict=True)
            ]
            return float(np.mean(losses))

        return best_strength(loss, first, _LEAST, _MOST)

    def cut(self, l2: float) -> tuple[float, float]:
        """Choose log-odds above which as many labels of the held-out rows are named as there are.

        Returns
        -------
        cut : float
        share : float
            How many labels of the fitted rows it names, as a share of those there are.
        """
        held: list[tuple[NDArray[Any], NDArray[Any], NDArray[Any]]] = []
        fitted: list[tuple[NDArray[Any], NDArray[Any], NDArray[Any]]] = []
        for fold, model in zip(self._folds, self._fitted(l2), strict=True):
            weight = np.ones(fold.X.shape[0]) if fold.sample_weight is None else fold.sample_weight
            held.append(_flat(model.decision_function(fold.X_held), fold.Y_held, fold.weight_held))
            fitted.append(_flat(model.decision_function(fold.X), fold.Y.toarray() > 0, weight))
        scores, are_held, weights = map(np.concatenate, zip(*held, strict=True))
        order = np.argsort(-scores, kind="stable")
        last = np.searchsorted(np.cumsum(weights[order]), weights[are_held].sum())
        cut = scores[order[min(last, len(order) - 1)]]
        scores, are_there, weights = map(np.concatenate, zip(*fitted, strict=True))
        return float(cut), float(weights[scores >= cut].sum() / weights[are_there].sum())


def _flat(
    scores: NDArray[Any], Y: NDArray[np.bool_], weight: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return score, label and weight of every pair of row and label."""
    return scores.ravel(), Y.ravel(), np.repeat(weight.astype(np.float64), Y.shape[1])


def matching_threshold(count: Callable[[float], int], wanted: float, first: float) -> float:
    """Find the threshold above which so many labels are named.

    Parameters
    ----------
    count : callable
        The number of labels named above a threshold; falls with it.
    wanted : float
    first : float
        A threshold that may do. Where rows are known by heart many would.

    Returns
    -------
    float
        Between -8 and 8.
    """
    low, high = -_WIDEST, _WIDEST
    threshold = min(max(first, low), high)
    for _ in range(_HALVINGS):
        named = count(threshold)
        if abs(named - wanted) <= _CLOSE * wanted:
            break
        low, high = (threshold, high) if named > wanted else (low, threshold)
        threshold = (low + high) / 2
    return threshold


def _log_loss(margins: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.logaddexp(0, -margins)
