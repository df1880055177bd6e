"""Linear models that select the blocks of a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array

from manylabel import _core
from manylabel.estimator.base import core_parts, core_rows
from manylabel.estimator.scaling import core_features, scorer_features

__all__ = ["Router", "Routing", "best_blocks", "fit_router", "nearest_center"]


@dataclass(frozen=True)
class Router:
    """Linear model that computes one score per block for each row. Rows are first scaled to unit length.

    Parameters
    ----------
    coef_ : csc_array of shape (n_blocks, n_features), dtype float32
        Weights of the features for each block.
    intercept_ : ndarray of shape (n_blocks,), dtype float32
        Intercepts of the blocks. A block to which no row may be routed has the intercept -inf.
    """

    coef_: csc_array
    intercept_: NDArray[np.float32]
    _normalizes_rows: ClassVar[bool] = True

    def scorer(self) -> _core.Scorer:
        """Check the weights of the router, and return the Rust object that computes its scores."""
        return _core.linear_scorer(self)


@dataclass(frozen=True)
class Routing:
    """Rule for the number of blocks that a row is routed to. The Rust core applies this rule.

    Parameters
    ----------
    most : int
        Maximum number of blocks that a row is routed to. The candidates of a row are the `most` blocks with
        the highest scores. Blocks with the score -inf are never candidates.
    share : float or None, default=None
        None means that a row is routed to all its candidates. With a number, a row may be routed to fewer
        blocks, which are chosen from its candidates. The probability of a block is the logistic function of
        its score. Candidates are chosen in order of decreasing probability. The choice ends when the
        probabilities of the chosen blocks sum to at least ``share * p``, where p is the sum of the
        probabilities of all candidates of the row. The most probable candidate is always chosen.
    """

    most: int
    share: float | None = None


def best_blocks(scorer: _core.Scorer, X: csr_array | NDArray[Any], n_routes: int, threads: int) -> csr_array:
    """Return the `n_routes` highest scores of each row.

    The result is a sparse matrix of shape (n_samples, n_blocks). Only these scores are stored.
    """
    # A stored zero is a score and stays in the matrix.
    return core_rows(scorer.topk(scorer_features(X), n_routes, threads), (X.shape[0], scorer.n_labels))


def fit_router(
    X: csr_array | NDArray[Any],
    row_blocks: NDArray[np.int32],
    usable: NDArray[np.bool_],
    sample_weight: NDArray[np.float32] | None,
    params: dict[str, Any],
    threads: int,
    progress: Callable[[int], object],
) -> tuple[Router, NDArray[np.int32]]:
    """Fit a router that predicts the block of a row.

    Parameters
    ----------
    X : csr_array or ndarray, of shape (n_samples, n_features)
        Features. An ndarray may have any memory order, and dtype float16, float32 or float64.
    row_blocks : ndarray of shape (n_samples,), dtype int32
        The block of each row. Rows with the value -1 are ignored.
    usable : ndarray of shape (n_blocks,), dtype bool
        For each block, whether rows may be routed to it. If the entry of a block is False, the rows of this
        block are ignored.
    sample_weight : ndarray of shape (n_samples,), dtype float32, or None
        Weights of the rows.
    params : dict
        Parameters of the logistic regressions: C, fit_intercept, tol, max_iter and random_state.
    threads : int
        Number of threads.
    progress : callable
        Function that is called regularly. If it raises an exception, the fit stops.

    Returns
    -------
    router : Router
        The fitted router.
    n_iter : ndarray of shape (n_blocks,), dtype int32
        For each block, the number of passes over the rows in the fit of its logistic regression. The value is
        0 for blocks that are not usable, since no regression is fitted for them. If fewer than two blocks are
        usable, no regression is fitted at all, and all values are 0.
    """
    classes = np.flatnonzero(usable)
    coef = csc_array((len(usable), X.shape[1]), dtype=np.float32)
    intercept = np.where(usable, np.float32(0), np.float32(-np.inf))
    n_iter = np.zeros(len(usable), dtype=np.int32)
    if len(classes) > 1:
        new = np.full(len(usable) + 1, -1, dtype=np.int32)  # the last entry is for rows with block -1
        new[classes] = np.arange(len(classes))
        classes_of_rows = new[row_blocks]
        kept = classes_of_rows >= 0
        if not kept.all():
            X, classes_of_rows = X[kept], classes_of_rows[kept]
            sample_weight = None if sample_weight is None else sample_weight[kept]
        weights, intercept[classes], n_iter[classes] = _core.fit_router(
            core_features(X), classes_of_rows, len(classes), sample_weight, params, (threads, progress)
        )
        data, indices, indptr = core_parts(weights)
        indices = classes[indices].astype(indices.dtype)
        coef = csc_array((data, indices, indptr), shape=(len(usable), X.shape[1]))
    return Router(coef_=coef, intercept_=intercept), n_iter


def nearest_center(
    centers: Any, intercept: NDArray[np.float32], label_blocks: Sequence[NDArray[Any]], n_features: int
) -> Router:
    """Return a router that selects the block with the nearest center. Blocks without labels are excluded.

    Parameters
    ----------
    centers : tuple of ndarrays
        The arrays of a CSR matrix of shape (n_features, n_centers), as returned by the Rust core. Each
        column of the matrix is a center.
    intercept : ndarray of shape (n_centers,), dtype float32
        Intercepts: minus half the squared length of each center.
    label_blocks : sequence of ndarrays
        The labels of each block, in the order of the centers.
    n_features : int
        Number of features.

    Returns
    -------
    Router
        The router. Blocks without labels get the intercept -inf.
    """
    empty = np.array([len(labels) == 0 for labels in label_blocks])
    return Router(
        coef_=csc_array(core_parts(centers), shape=(len(intercept), n_features)),
        intercept_=np.where(empty, np.float32(-np.inf), intercept),
    )
