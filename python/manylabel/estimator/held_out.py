"""Choice of the regularization strength by the loss on held-out rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

__all__ = ["STRENGTH_STEP", "Fold", "best_strength", "held_out_folds", "spread_rows"]

# Candidates are half an order of magnitude apart. On 26 public sets precision at 1 differs by less than a
# point between neighbours near the best.
STRENGTH_STEP = 10**0.5

# Relative improvement of the loss that a step needs. The loss is flat near its minimum; steps that gain less
# move precision at 1 by half a point in either direction.
_LEAST_GAIN = 0.02

# Rows and labels of the sample: a number, or a share of large sets up to a limit that keeps scores within
# 100 MB. The choice then takes a few percent of the time of a large fit.
_MANY_ROWS, _ROW_IN, _MOST_ROWS = 4096, 8, 16_384
_MANY_LABELS, _LABEL_IN, _MOST_LABELS = 32, 64, 512

# A quarter of the rows is held out, then a second, third and fourth quarter until enough rows were.
_N_PARTS = 4
_ENOUGH_ROWS = 512

# Minimum number of ones in the held-out rows: with fewer, the loss is too noisy.
_FEWEST_POSITIVES = 10

# Knuth's multiplicative hash: a prime near 2**32 over the golden ratio. It spreads any run of rows evenly
# over the parts, and does not depend on a random generator.
_HASH = 2654435769


class Fold(NamedTuple):
    """Rows to fit, and the held-out rows."""

    X: csr_array
    Y: csr_array
    sample_weight: NDArray[np.float32] | None
    X_held: csr_array
    Y_held: NDArray[np.bool_]
    weight_held: NDArray[np.float64]
    share: float
    """Weight of the rows to fit, relative to that of all rows."""

    def mean_loss(
        self, loss_of_margin: Callable[[NDArray[Any]], NDArray[Any]], scores: NDArray[Any]
    ) -> float:
        """Return the loss of held-out rows, summed over the labels that the fitted rows have.

        Parameters
        ----------
        loss_of_margin : callable
            Losses of margins: the score where the label is present, minus the score where it is not.
        scores : ndarray of shape (n_held_rows, n_labels)

        Returns
        -------
        float
            Weighted mean over the rows.
        """
        fitted = np.bincount(self.Y.indices, minlength=self.Y.shape[1]) > 0
        scores = scores[:, fitted].astype(np.float64)
        margins = np.where(self.Y_held[:, fitted], scores, -scores)
        return float(np.average(loss_of_margin(margins).sum(axis=1), weights=self.weight_held))


def held_out_folds(X: csr_array, Y: csr_array, sample_weight: NDArray[np.float32] | None) -> list[Fold]:
    """Split a sample of rows and labels into rows to fit and held-out rows.

    Parameters
    ----------
    X : csr_array of shape (n_samples, n_features)
    Y : csr_array of shape (n_samples, n_labels)
    sample_weight : ndarray of shape (n_samples,), dtype float32, or None
        All > 0.

    Returns
    -------
    list of Fold
        The sample has 4,096 rows and 32 labels, or an eighth of the rows and 1 in 64 labels if that is more,
        but at most 16,384 rows and 512 labels; it depends on the data only. Labels are drawn with
        probabilities proportional to their number of rows. The list is empty if the held-out rows have fewer
        than ten labels in all.
    """
    weights = np.ones(X.shape[0]) if sample_weight is None else sample_weight.astype(np.float64)
    rows = spread_rows(X.shape[0], min(max(_MANY_ROWS, X.shape[0] // _ROW_IN), _MOST_ROWS))
    n_held = len(rows) // _N_PARTS
    if n_held == 0:
        return []
    labels = _drawn_labels(Y[rows])
    folds = []
    n_positive = 0
    for part in range(min(_N_PARTS, -(-_ENOUGH_ROWS // n_held))):
        held = np.zeros(len(rows), dtype=bool)
        held[part * n_held : (part + 1) * n_held] = True
        # Sorted, so that neighbors in memory stay neighbors.
        fit_rows, held_rows = np.sort(rows[~held]), np.sort(rows[held])
        Y_held = Y[held_rows][:, labels].toarray() > 0
        n_positive += int(np.count_nonzero(Y_held))
        share = float(weights[fit_rows].sum() / weights.sum())
        weight = None if sample_weight is None else sample_weight[fit_rows]
        folds.append(
            Fold(X[fit_rows], Y[fit_rows][:, labels], weight, X[held_rows], Y_held, weights[held_rows], share)
        )
    return folds if n_positive >= _FEWEST_POSITIVES else []


def spread_rows(n_rows: int, n_drawn: int) -> NDArray[np.intp]:
    """Draw up to `n_drawn` rows, spread evenly, in no particular order; always the same ones."""
    return np.argsort(np.arange(n_rows, dtype=np.uint64) * _HASH % 2**32, kind="stable")[:n_drawn]


def _drawn_labels(Y: csr_array) -> NDArray[np.intp]:
    """Draw labels by systematic sampling, with probabilities proportional to their counts."""
    counts = np.bincount(Y.indices, minlength=Y.shape[1])
    n_drawn = min(max(_MANY_LABELS, Y.shape[1] // _LABEL_IN), _MOST_LABELS)
    if np.count_nonzero(counts) <= n_drawn:
        return np.flatnonzero(counts)
    by_count = np.argsort(-counts, kind="stable")
    ends = np.cumsum(counts[by_count])
    drawn = np.searchsorted(ends, (np.arange(n_drawn) + 0.5) * (ends[-1] / n_drawn), side="right")
    return np.sort(by_count[np.unique(drawn)])


def best_strength(loss: Callable[[float], float], first: float, least: float, most: float) -> float:
    """Search from `first` by factors of `STRENGTH_STEP`, as long as a step lowers the loss by 2 %.

    Parameters
    ----------
    loss : callable
        Returns the loss of a strength; assumed to be unimodal.
    first, least, most : float
        The search starts at `first` and stays between `least` and `most`.

    Returns
    -------
    float
        The strength where the search ends.
    """
    best, lowest = first, loss(first)
    for step in (1 / STRENGTH_STEP, STRENGTH_STEP):
        while least <= best * step <= most and (next_loss := loss(best * step)) < (1 - _LEAST_GAIN) * lowest:
            best, lowest = best * step, next_loss
        if best != first:
            break
    return best
