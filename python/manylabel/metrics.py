"""Ranking measures of extreme multi-label classification, for dense and sparse scores.

Each measure uses the best k labels of every row. Let r be the rank, from 1, y_i the true labels of row i,
j(i, r) the label at rank r, and h_ir = 1 if j(i, r) is in y_i, else 0:

=================  ===========================================================================
`precision_at_k`   mean over i of sum_{r<=k} h_ir / k
`recall_at_k`      mean over i with labels of sum_{r<=k} h_ir / abs(y_i)
`ndcg_at_k`        mean over i of sum_{r<=k} h_ir / log2(r + 1) / I(min(k, abs(y_i)))
`psp_at_k`         sum over i, r<=k of h_ir / p_j(i,r), divided by its largest possible value
`psndcg_at_k`      as `psp_at_k`, each row weighted as in `ndcg_at_k`
=================  ===========================================================================

where I(m) = sum_{r<=m} 1 / log2(r + 1) is the gain of hits at the first m ranks, and p_j is the
propensity of label j (`propensities`). The Extreme Classification Repository [1]_ reports the measures
in these forms; here they are fractions rather than percentages.

All measures interpret their input in the same way. In dense ``scores`` every entry except -inf is a
candidate. In sparse ``scores``, as returned by ``predict_topk``, only stored entries are candidates,
including explicit zeros and negative scores. If a row has fewer than k candidates, its last ranks are
empty, and empty ranks are misses. Of equal scores, the lower label ranks first.

For measures of label sets rather than rankings use scikit-learn's functions on the result of
``predict``, which may be sparse: `sklearn.metrics.hamming_loss`, `sklearn.metrics.zero_one_loss` (the
subset 0/1 loss), `sklearn.metrics.f1_score` with ``average="micro"``, ``"macro"`` or ``"samples"``.

References
----------
.. [1] Bhatia et al., "The extreme classification repository: multi-label datasets and code", 2016,
   http://manikvarma.org/downloads/XC/XMLRepository.html

Examples
--------
>>> import numpy as np
>>> Y_true = np.array([[1, 0, 1], [0, 1, 0]])
>>> scores = np.array([[0.9, 0.2, 0.4], [0.6, 0.3, 0.1]])
>>> precision_at_k(Y_true, scores, k=(1, 2)).tolist()
[0.5, 0.75]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, issparse, sparray, spmatrix

from manylabel.estimator.documentation import documented_like
from manylabel.estimator.parameters import Number, shown
from manylabel.estimator.validation import canonical_csr, native_numbers

__all__ = ["ndcg_at_k", "precision_at_k", "propensities", "psndcg_at_k", "psp_at_k", "recall_at_k"]

Matrix: TypeAlias = ArrayLike | sparray | spmatrix
Floats: TypeAlias = NDArray[np.float64]

# Scores ranked at a time: temporaries of a few dozen megabytes, large enough to hide numpy's overhead.
_BLOCK = 1 << 22

_CONSTANT = Number(above=0)


def precision_at_k(Y_true: Matrix, scores: Matrix, k: int | Sequence[int] = (1, 3, 5)) -> float | Floats:
    """Mean share of true labels among the k best labels of each row (P@k).

    Parameters
    ----------
    Y_true : ndarray or sparse matrix of shape (n, c)
        True labels: 0 and 1, any numeric or bool dtype.
    scores : ndarray or sparse matrix of shape (n, c)
        Higher is better. Dense: entries of -inf are not candidates. Sparse: only stored entries are.
    k : int or sequence of int, default=(1, 3, 5)
        Numbers of ranks to use, each >= 1; ranks beyond c are misses.

    Returns
    -------
    float or ndarray of shape (len(k),), dtype float64
        In [0, 1]; a float if `k` is an int. Rows without labels count as 0.

    Raises
    ------
    ValueError
        If the shapes differ or are empty, `Y_true` is not 0/1, `scores` has NaN or `k` is not positive.

    Notes
    -----
    Time is O(m log m) for m stored sparse scores and O(n c) for dense scores. Memory is a few dozen
    megabytes besides the input and a sparse copy of a dense `Y_true`. This holds for all measures of this
    module.
    """
    ks = _check_k(k)
    Y, scores = _check_pair(Y_true, scores)
    return _as_asked(k, _total(Y, scores, ks) / (ks * Y.shape[0]))


@documented_like(precision_at_k)
def recall_at_k(Y_true: Matrix, scores: Matrix, k: int | Sequence[int] = (1, 3, 5)) -> float | Floats:
    """Mean share of a row's true labels that are among its k best labels (R@k).

    Returns
    -------
    float or ndarray of shape (len(k),), dtype float64
        In [0, 1]; a float if `k` is an int. Rows without labels are left out of the mean; if no row has a
        label, the result is nan.
    """
    ks = _check_k(k)
    Y, scores = _check_pair(Y_true, scores)
    total = _total(Y, scores, ks, per_row=lambda _, n_true: 1.0 / np.maximum(n_true, 1))
    n_labelled = np.count_nonzero(np.diff(Y.indptr))
    return _as_asked(k, _ratio(total, np.full(len(ks), float(n_labelled))))


@documented_like(precision_at_k)
def ndcg_at_k(Y_true: Matrix, scores: Matrix, k: int | Sequence[int] = (1, 3, 5)) -> float | Floats:
    """Mean discounted gain of the k best labels of each row, relative to the best possible (nDCG@k).

    A hit at rank r gains 1 / log2(r + 1). The best possible gain is that of hits at each of the first
    min(k, number of true labels) ranks.

    Returns
    -------
    float or ndarray of shape (len(k),), dtype float64
        In [0, 1]; a float if `k` is an int. Rows without labels count as 0, as is usual for this measure in
        extreme classification.

    Notes
    -----
    Of labels with equal scores, the one with the lower number ranks first. `sklearn.metrics.ndcg_score`
    averages over such ties instead.
    """
    ks = _check_k(k)
    Y, scores = _check_pair(Y_true, scores)
    return _as_asked(k, _total(Y, scores, ks, discounted=True, per_row=_inverse_ideal) / Y.shape[0])


def propensities(Y_train: Matrix, *, A: float = 0.55, B: float = 1.5) -> Floats:
    """Propensity of each label: the estimated probability that it is recorded where it applies.

    p_j = 1 / (1 + C (N_j + B)^-A) with C = (log N - 1) (B + 1)^A, where N is the number of training rows
    and N_j the number of rows with label j [1]_.

    Parameters
    ----------
    Y_train : ndarray or sparse matrix of shape (n, c)
        Labels of the **training** set: 0 and 1; n >= 3, since the model has no meaning below (log N < 1).
    A, B : float, default=0.55 and 1.5
        Constants of the model, finite and > 0. Usual values are A=0.5, B=0.4 for Wikipedia data and A=0.6,
        B=2.6 for Amazon data.

    Returns
    -------
    ndarray of shape (c,), dtype float64
        In (0, 1), increasing with N_j; smallest for labels that no row has.

    Raises
    ------
    ValueError
        If `Y_train` is not 0/1 or has fewer than 3 rows, or `A` or `B` is not finite and > 0.

    References
    ----------
    .. [1] Jain, Prabhu, Varma, "Extreme multi-label loss functions for recommendation, tagging, ranking
       & other missing label applications", KDD 2016, section 4.

    Examples
    --------
    >>> round(float(propensities(np.eye(20))[0]), 3)
    0.334
    """
    A, B = (_CONSTANT.check(name, value) for name, value in (("A", A), ("B", B)))
    Y = _check_indicator(Y_train, "Y_train")
    n, c = Y.shape
    if n < 3:
        raise ValueError(f"`Y_train` must have at least 3 rows, got {n}")
    counts = np.bincount(Y.indices, minlength=c)
    try:
        constant = (np.log(n) - 1.0) * (B + 1.0) ** A
    except OverflowError:
        raise ValueError(f"`A` must be small enough that (B + 1)**A is finite, got {A} with B={B}") from None
    return np.asarray(1.0 / (1.0 + constant * (counts + B) ** -A), dtype=np.float64)


@documented_like(precision_at_k)
def psp_at_k(
    Y_true: Matrix, scores: Matrix, propensities: ArrayLike, k: int | Sequence[int] = (1, 3, 5)
) -> float | Floats:
    """Precision with hits weighted by 1 / propensity, relative to the best possible (PSP@k).

    This is the ratio of two totals over all rows rather than a mean of ratios, as published results are.

    Parameters
    ----------
    propensities : array-like of shape (c,)
        Propensity of each label, in (0, 1]; see `propensities`.

    Returns
    -------
    float or ndarray of shape (len(k),), dtype float64
        In [0, 1], nan if no row has a label; a float if `k` is an int.

    Raises
    ------
    ValueError
        If the shapes differ or are empty, `Y_true` is not 0/1, `scores` has NaN, `k` is not positive, or
        `propensities` are not c numbers in (0, 1].
    """
    ks = _check_k(k)
    Y, scores = _check_pair(Y_true, scores)
    gains = _check_propensities(propensities, Y.shape[1])
    best = _total(Y, _ideal_scores(Y, gains), ks, gains=gains)
    return _as_asked(k, _ratio(_total(Y, scores, ks, gains=gains), best))


@documented_like(psp_at_k)
def psndcg_at_k(
    Y_true: Matrix, scores: Matrix, propensities: ArrayLike, k: int | Sequence[int] = (1, 3, 5)
) -> float | Floats:
    """Discounted gain with hits weighted by 1 / propensity, relative to the best possible (PSnDCG@k).

    A hit on label j at rank r of row i gains 1 / (p_j log2(r + 1) I(min(k, abs(y_i)))), where I is as in the
    module. The result is the total gain divided by that of ranking the true labels of each row by falling
    1 / p_j.
    """
    ks = _check_k(k)
    Y, scores = _check_pair(Y_true, scores)
    gains = _check_propensities(propensities, Y.shape[1])

    def total(ranked_by: Any) -> Floats:
        return _total(Y, ranked_by, ks, gains=gains, discounted=True, per_row=_inverse_ideal)

    return _as_asked(k, _ratio(total(scores), total(_ideal_scores(Y, gains))))


def _total(
    Y: csr_array,
    scores: Any,
    ks: NDArray[np.int64],
    *,
    gains: Floats | None = None,
    discounted: bool = False,
    per_row: Callable[[int, NDArray[np.int64]], Floats] | None = None,
) -> Floats:
    """For each k, sum over rows i of per_row(k, abs(y_i)) * sum_{r<=k} h_ir gains_j(i,r) / log2(r + 1).

    Factors that are not given count as 1. All five measures are computed from this sum.
    """
    depth = min(int(ks.max()), Y.shape[1])
    discount = 1.0 / np.log2(np.arange(2.0, depth + 2.0)) if discounted else np.ones(depth)
    totals = np.zeros(len(ks))
    for block, top in _ranked(scores, depth):
        n_true = np.diff(Y.indptr[block.start : block.stop + 1]).astype(np.int64)
        gain = _hits(Y, block, top) * discount
        if gains is not None:
            gain *= gains[top]  # an empty rank, -1, reads the last label's gain, but has no hit
        reached = np.cumsum(gain, axis=1)
        for at, k in enumerate(ks.tolist()):
            at_k = reached[:, min(k, depth) - 1]
            totals[at] += at_k.sum() if per_row is None else at_k @ per_row(k, n_true)
    return totals


def _ranked(scores: Any, depth: int) -> Iterator[tuple[slice, NDArray[np.int64]]]:
    """Yield blocks of rows with the labels at their first `depth` ranks; -1 for empty ranks."""
    n, c = scores.shape
    sparse = isinstance(scores, csr_array)
    per_row = max(depth, scores.nnz // n) if sparse else c
    # The second bound keeps `row * c + label` inside 64 bits in `_hits`.
    step = max(1, min(_BLOCK // per_row, (2**63 - 1) // c))
    rank = _top_of_sparse if sparse else _top_of_dense
    for start in range(0, n, step):
        block = slice(start, min(n, start + step))
        yield block, rank(scores, block, depth)


def _top_of_sparse(scores: csr_array, block: slice, depth: int) -> NDArray[np.int64]:
    starts = scores.indptr[block]
    counts = scores.indptr[block.start + 1 : block.stop + 1] - starts
    top = np.full((len(counts), depth), -1, dtype=np.int64)
    # Rows of similar length are padded to a rectangle. This at most doubles the entries, and sorting the rows
    # of a rectangle is 25 times faster than sorting all entries by row and score.
    magnitudes = np.frexp(counts)[1]
    for magnitude in np.unique(magnitudes[counts > 0]):
        rows = np.flatnonzero(magnitudes == magnitude)
        width = np.arange(counts[rows].max())
        stored = width < counts[rows, None]
        entries = starts[rows, None] + np.where(stored, width, 0)
        values = np.where(stored, scores.data[entries], -np.inf)
        labels = np.where(values > -np.inf, scores.indices[entries], -1)
        # The sort is stable and labels ascend within a row, so equal scores keep the lower label first.
        order = np.argsort(-values, axis=1, kind="stable")[:, :depth]
        top[rows, : order.shape[1]] = np.take_along_axis(labels, order, axis=1)
    return top


def _top_of_dense(scores: NDArray[Any], block: slice, depth: int) -> NDArray[np.int64]:
    values = scores[block]
    n, c = values.shape
    threshold = np.partition(values, c - depth, axis=1)[:, c - depth, None]
    chosen = values >= threshold
    # Of labels tied at the threshold, keep the lowest ones that fit.
    tied = np.flatnonzero(chosen.sum(axis=1) > depth)
    above = values[tied] > threshold[tied]
    level = chosen[tied] & ~above
    room = depth - above.sum(axis=1, keepdims=True)
    chosen[tied] = above | (level & (np.cumsum(level, axis=1) <= room))
    labels = np.nonzero(chosen)[1].reshape(n, depth)
    kept = np.take_along_axis(values, labels, axis=1)
    order = np.argsort(-kept, axis=1, kind="stable")
    top = np.take_along_axis(labels, order, axis=1)
    return np.where(np.take_along_axis(kept, order, axis=1) > -np.inf, top, -1)


def _hits(Y: csr_array, block: slice, top: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return whether each ranked label is true, by bisection in the entries of `Y`, numbered row by row."""
    c = Y.shape[1]
    indptr = Y.indptr[block.start : block.stop + 1]
    first_cell = np.arange(len(indptr) - 1, dtype=np.int64) * c
    true_cells = np.repeat(first_cell, np.diff(indptr)) + Y.indices[indptr[0] : indptr[-1]]
    if true_cells.size == 0:
        return np.zeros(top.shape, dtype=np.bool_)
    cells = first_cell[:, None] + top
    found = true_cells[np.minimum(np.searchsorted(true_cells, cells), len(true_cells) - 1)]
    hits: NDArray[np.bool_] = (found == cells) & (top >= 0)
    return hits


def _inverse_ideal(k: int, n_true: NDArray[np.int64]) -> Floats:
    """Return 1 / I(min(k, n_true)), and 0 for rows without labels."""
    depth = np.minimum(k, n_true)
    ideal = np.cumsum(1.0 / np.log2(np.arange(2.0, depth.max() + 2.0)))
    return np.concatenate([[0.0], 1.0 / ideal])[depth]


def _ideal_scores(Y: csr_array, gains: Floats) -> csr_array:
    """Return scores that rank the true labels of each row by falling gain, and no other label."""
    return csr_array((gains[Y.indices], Y.indices, Y.indptr), shape=Y.shape)


def _ratio(total: Floats, best: Floats) -> Floats:
    return np.divide(total, best, out=np.full_like(total, np.nan), where=best > 0)


def _as_asked(k: int | Sequence[int], values: Floats) -> float | Floats:
    return float(values[0]) if isinstance(k, int | np.integer) else values


def _check_k(k: Any) -> NDArray[np.int64]:
    ks: list[Any] = list(k) if np.iterable(k) else [k]
    if not ks or not all(isinstance(one, int | np.integer) and one is not True and one >= 1 for one in ks):
        raise ValueError(f"`k` must be an integer >= 1 or a non-empty sequence of such, got {shown(k)}")
    # Keeps numbers of ranks over all rows within 64 bits.
    if max(ks) > np.iinfo(np.int32).max:
        raise ValueError(f"`k` must be less than 2**31, got {shown(k)}")
    return np.array(ks, dtype=np.int64)


def _check_pair(Y_true: Matrix, scores: Matrix) -> tuple[csr_array, Any]:
    Y = _check_indicator(Y_true, "Y_true")
    checked = _check_matrix(scores, "scores")
    if checked.shape != Y.shape:
        raise ValueError(f"`scores` must have the shape of `Y_true`, {Y.shape}, got {checked.shape}")
    if checked.dtype.kind != "f":
        checked = checked.astype(np.float64)
    # The maximum is NaN if any value is; this needs no array of flags.
    values = checked.data if isinstance(checked, csr_array) else checked
    if values.size and np.isnan(values.max()):
        raise ValueError("`scores` must not contain NaN")
    return Y, checked


def _check_indicator(Y: Matrix, name: str) -> csr_array:
    """Return `Y` as CSR without explicit zeros, labels ascending in each row; `Y` is not changed."""
    checked = csr_array(_check_matrix(Y, name))
    if not checked.data.all():
        checked = checked.copy()
        checked.eliminate_zeros()
    wrong = checked.data[checked.data != 1]
    if wrong.size:
        raise ValueError(f"`{name}` must contain only 0 and 1, got {wrong[0]}")
    return checked


def _check_matrix(matrix: Any, name: str) -> Any:
    """Return a nonempty numeric 2-D ndarray or, for sparse input, a canonical CSR array."""
    checked: Any = matrix if issparse(matrix) else np.asarray(matrix)
    if len(checked.shape) != 2 or 0 in checked.shape:
        raise ValueError(f"`{name}` must have two dimensions, none of length 0, got shape {checked.shape}")
    if checked.dtype.kind not in "biuf":
        raise ValueError(f"`{name}` must be numeric or bool, got dtype {checked.dtype}")
    if isinstance(checked, np.ndarray):
        return native_numbers(checked)
    return canonical_csr(checked, f"`{name}`")


def _check_propensities(propensities: ArrayLike, c: int) -> Floats:
    """Return the gains 1 / p_j."""
    checked = np.asarray(propensities, dtype=np.float64)
    if checked.shape != (c,):
        raise ValueError(f"`propensities` must have shape ({c},), one per label, got {checked.shape}")
    if not ((checked > 0) & (checked <= 1)).all():
        raise ValueError("`propensities` must all be in (0, 1]")
    return 1.0 / checked
