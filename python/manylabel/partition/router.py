"""Routers, which send rows to blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array

from manylabel import _core
from manylabel.estimator.base import core_parts, core_rows

__all__ = ["Router", "Routing", "best_blocks", "fit_router", "nearest_center"]


@dataclass(frozen=True)
class Router:
    """Linear model that scores the blocks for rows of unit length.

    Parameters
    ----------
    coef_ : csc_array of shape (n_blocks, n_features), dtype float32
    intercept_ : ndarray of shape (n_blocks,), dtype float32
        -inf for a block to which no row is sent.
    """

    coef_: csc_array
    intercept_: NDArray[np.float32]
    _normalizes_rows: ClassVar[bool] = True

    def scorer(self) -> _core.Scorer:
        """Check the weights and prepare them for scoring."""
        return _core.linear_scorer(self)


@dataclass(frozen=True)
class Routing:
    """How many blocks a row is sent to, as the core takes it.

    Parameters
    ----------
    most : int
        Maximum number of blocks, the best ones.
    share : float or None, default=None
        If given, the fewest of these that have this share of their probability, which is the logistic
        function of each block's score.
    """

    most: int
    share: float | None = None


def best_blocks(scorer: _core.Scorer, X: csr_array, n_routes: int, threads: int) -> csr_array:
    """Return the scores of the `n_routes` best blocks of every row, by a router's scorer."""
    # Stored zeros are scores, and are kept.
    return core_rows(scorer.topk(X, n_routes, threads), (X.shape[0], scorer.n_labels))


def fit_router(
    X: csr_array,
    row_blocks: NDArray[np.int32],
    usable: NDArray[np.bool_],
    sample_weight: NDArray[np.float32] | None,
    params: dict[str, Any],
    threads: int,
    progress: Callable[[int], object],
) -> tuple[Router, NDArray[np.int32]]:
    """Fit a router to the blocks of rows.

    Parameters
    ----------
    X : csr_array of shape (n_samples, n_features)
    row_blocks : ndarray of shape (n_samples,), dtype int32
        -1 for rows to leave out.
    usable : ndarray of shape (n_blocks,), dtype bool
        Rows of other blocks are left out, and no row is sent there.
    sample_weight : ndarray of shape (n_samples,), dtype float32, or None
    params : dict
        C, fit_intercept, tol, max_iter and seed of the logistic regressions.
    threads : int
    progress : callable

    Returns
    -------
    router : Router
    n_iter : ndarray of shape (n_blocks,), dtype int32
        Passes of each block's regression; 0 if there was nothing to fit.
    """
    classes = np.flatnonzero(usable)
    coef = csc_array((len(usable), X.shape[1]), dtype=np.float32)
    intercept = np.where(usable, np.float32(0), np.float32(-np.inf))
    n_iter = np.zeros(len(usable), dtype=np.int32)
    if len(classes) > 1:
        new = np.full(len(usable) + 1, -1, dtype=np.int32)  # the last entry is for -1
        new[classes] = np.arange(len(classes))
        classes_of_rows = new[row_blocks]
        kept = classes_of_rows >= 0
        if not kept.all():
            X, classes_of_rows = X[kept], classes_of_rows[kept]
            sample_weight = None if sample_weight is None else sample_weight[kept]
        weights, intercept[classes], n_iter[classes] = _core.fit_router(
            X, classes_of_rows, len(classes), sample_weight, params, (threads, progress)
        )
        data, indices, indptr = core_parts(weights)
        indices = classes[indices].astype(indices.dtype)
        coef = csc_array((data, indices, indptr), shape=(len(usable), X.shape[1]))
    return Router(coef_=coef, intercept_=intercept), n_iter


def nearest_center(
    centers: Any, intercept: NDArray[np.float32], label_blocks: Sequence[NDArray[Any]], n_features: int
) -> Router:
    """Return a router to the nearest center whose rows have labels.

    Parameters
    ----------
    centers : tuple of ndarrays
        CSR arrays of (n_features, n_centers), as the core returns them.
    intercept : ndarray of shape (n_centers,), dtype float32
        Minus half the squared lengths of the centers.
    label_blocks : sequence of ndarrays
        The labels of each center.
    n_features : int

    Returns
    -------
    Router
    """
    empty = np.array([len(labels) == 0 for labels in label_blocks])
    return Router(
        coef_=csc_array(core_parts(centers), shape=(len(intercept), n_features)),
        intercept_=np.where(empty, np.float32(-np.inf), intercept),
    )
