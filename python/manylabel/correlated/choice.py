"""Choices of the correlated model by held-out rows: the penalty, and how many labels to predict.

Both are made without couplings. The labels are then independent regressions, so a sample of them suffices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from manylabel.estimator.held_out import Fold, best_strength

__all__ = ["HeldOut", "matching_threshold", "weighted_count"]

# The search stays within this factor of its start.
_RANGE = 1e3

# KKT violation and number of gradients that suffice for a choice.
_TOL = 1e-3
_MAX_ITER = 300

# Thresholds of log-odds are searched between -8 and 8 by at most so many bisections, until the number of
# labels is within 2 %.
_WIDEST = 8.0
_HALVINGS = 12
_CLOSE = 0.02


class HeldOut:
    """Independent regressions of some labels, and their predictions of held-out rows.

    Parameters
    ----------
    model : CorrLogClassifier
        Unfitted; its other parameters apply.
    folds : sequence of Fold
        At least one.
    report : callable
        Called from time to time. An exception it raises stops the fits.
    """

    def __init__(self, model: Any, folds: Sequence[Fold], report: Callable[[int], object]) -> None:
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
        """Fit all folds with a penalty, or return the earlier fits with it."""
        if l2 not in self._fits:
            self._fits[l2] = [self._fit(l2, fold) for fold in self._folds]
        return self._fits[l2]

    def _fit(self, l2: float, fold: Fold) -> Any:
        # Relative to the mean loss of n rows, the best penalty of squares falls as 1/n (a fixed prior), and
        # that of absolute values as 1/sqrt(n) (the rate of the lasso).
        rate = 0.5 if self._model.epsilon > 0 else 1.0
        model = clone(self._model).set_params(l2_features=l2 / fold.share**rate)
        model._fit(fold.X, fold.Y, fold.sample_weight, lambda _: self._report(0), quiet=True)
        return model

    def best_penalty(self, first: float) -> float:
        """Choose the penalty of the weights, starting from `first`."""

        def loss(l2: float) -> float:
            losses = [
                fold.mean_loss(_log_loss, model.decision_function(fold.X_held))
                for fold, model in zip(self._folds, self._fitted(l2), strict=True)
            ]
            return float(np.mean(losses))

        best = best_strength(loss, first, first / _RANGE, first * _RANGE)
        self._fits = {best: self._fits[best]}
        return best

    def cut(self, l2: float) -> tuple[float, float]:
        """Choose the log-odds above which as many labels of the held-out rows are predicted as they have.

        Returns
        -------
        cut : float
        share : float
            Number of labels of the fitted rows that it predicts, relative to the number they have.
        """
        fits = list(zip(self._folds, self._fitted(l2), strict=True))
        held = np.concatenate([model.decision_function(fold.X_held).ravel() for fold, model in fits])
        weights = np.concatenate([np.repeat(fold.weight_held, fold.Y_held.shape[1]) for fold in self._folds])
        wanted = sum(weighted_count(fold.Y_held.sum(axis=1), fold.weight_held) for fold in self._folds)
        order = np.argsort(-held, kind="stable")
        last = int(np.searchsorted(np.cumsum(weights[order]), wanted))
        cut = float(held[order[min(last, len(order) - 1)]])
        named = there = 0.0
        for fold, model in fits:
            counts = np.count_nonzero(model.decision_function(fold.X) >= cut, axis=1)
            named += weighted_count(counts, fold.sample_weight)
            there += weighted_count(np.diff(fold.Y.indptr), fold.sample_weight)
        return cut, named / there


def matching_threshold(count: Callable[[float], float], wanted: float, first: float) -> float:
    """Find the threshold that predicts a given number of labels.

    Parameters
    ----------
    count : callable
        Returns the number of labels predicted above a threshold; falls as the threshold rises.
    wanted : float
        The number to reach.
    first : float
        The first threshold tried. Overfitted rows may be matched by many thresholds, of which this is the
        best guess.

    Returns
    -------
    float
        The threshold between -8 and 8, among those tried, with the nearest number. If couplings change whole
        sets of labels at once, the number jumps and none may be near.
    """
    low, high = -_WIDEST, _WIDEST
    threshold = best = min(max(first, low), high)
    least = np.inf
    for _ in range(_HALVINGS):
        named = count(threshold)
        if abs(named - wanted) < least:
            best, least = threshold, abs(named - wanted)
        if least <= _CLOSE * wanted:
            break
        low, high = (threshold, high) if named > wanted else (low, threshold)
        threshold = (low + high) / 2
    return best


def weighted_count(counts: NDArray[Any], sample_weight: NDArray[Any] | None) -> float:
    """Sum the counts of rows by weight. Avoids BLAS, which ends the process if memory is short."""
    return float(counts.sum() if sample_weight is None else (counts * sample_weight.astype(np.float64)).sum())


def _log_loss(margins: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.logaddexp(0, -margins)
