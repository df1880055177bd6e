"""Ranking measures for extreme multi-label classification, for dense and sparse scores.

Every measure uses the k labels with the highest scores in each row. The table below defines the measures with
these symbols:

- n_i is the number of true labels of row i.
- j(i, r) is the label of row i at rank r. Ranks count from 1.
- h_ir is 1 if j(i, r) is a true label of row i (a hit), and 0 otherwise (a miss).
- p_ir is the propensity of the label j(i, r). Label matrices are often incomplete: a label can apply to a row
  but be missing in the matrix. The propensity of a label is the probability that the matrix has the label for
  a row, given that the label applies to this row. The function `propensities` estimates propensities.
- I(m) = sum_{r<=m} 1 / log2(r + 1) is the discounted gain of m hits at the first m ranks.

=================  =====================================================================================
`precision_at_k`   mean of sum_{r<=k} h_ir / k over all rows i
`recall_at_k`      mean of sum_{r<=k} h_ir / n_i over all rows i with at least one true label
`ndcg_at_k`        mean of sum_{r<=k} h_ir / log2(r + 1) / I(min(k, n_i)) over all rows i
`psp_at_k`         sum of h_ir / p_ir over all i and r<=k, divided by the largest possible sum
`psndcg_at_k`      like `psp_at_k`, but with h_ir / log2(r + 1) / I(min(k, n_i)) instead of h_ir
=================  =====================================================================================

In `ndcg_at_k`, a row without true labels counts as 0. The Extreme Classification Repository [1]_ uses the
same definitions, but reports percentages. The functions of this module return fractions.

All measures treat ``scores`` in the same way. Only candidate labels are ranked. In dense ``scores``, every
entry except -inf is a candidate. In sparse ``scores``, such as the result of ``predict_topk``, only stored
entries are candidates. Stored zeros and negative scores are also candidates. If a row has fewer than k
candidates, its last ranks are empty. Empty ranks count as misses. If labels have equal scores, the label with
the lower column index ranks first.

NaN in ``Y_true`` marks an unknown entry: nobody checked whether the row has the label. All measures leave
unknown entries out of the rankings. A label with an unknown entry in a row is not a candidate in this row, so
it is neither a hit nor a miss. The labels that rank lower move up by one rank. If sparse ``scores`` have only
the k best labels of each row, no further labels can move up, so the last ranks can be empty. For example, if
a row has unknown entries for 2 of its k best labels, its ranks k - 1 and k are empty. To avoid empty ranks,
call ``predict_topk`` for ``k + u`` labels per row, where u is the largest number of unknown entries in a row
of ``Y_true``.

To measure label sets instead of rankings, apply scikit-learn's functions to the result of ``predict``, which
may be sparse. Examples are `sklearn.metrics.hamming_loss`, `sklearn.metrics.zero_one_loss` (the subset 0/1
loss), and `sklearn.metrics.f1_score` with ``average="micro"``, ``"macro"`` or ``"samples"``.

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
from typing import Any, TypeAlias, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, issparse, sparray, spmatrix

from manylabel.estimator.costs import check_propensities
from manylabel.estimator.documentation import documented_like
from manylabel.estimator.parameters import Number, shown
from manylabel.estimator.validation import canonical_csr, known_ones, native_numbers, unknown_entries

__all__ = ["ndcg_at_k", "precision_at_k", "propensities", "psndcg_at_k", "psp_at_k", "recall_at_k"]

Matrix: TypeAlias = ArrayLike | sparray | spmatrix
Floats: TypeAlias = NDArray[np.float64]

# Number of scores that are ranked at a time. With this number, temporary arrays take a few dozen megabytes,
# and numpy's overhead per call is small.
_BLOCK = 1 << 22

_CONSTANT = Number(above=0)


@overload
def precision_at_k(Y_true: Matrix, scores: Matrix, k: int) -> float: ...
@overload
def precision_at_k(Y_true: Matrix, scores: Matrix, k: Sequence[int] = (1, 3, 5)) -> Floats: ...
def precision_at_k(Y_true: Matrix, scores: Matrix, k: int | Sequence[int] = (1, 3, 5)) -> float | Floats:
    """Compute precision at k (P@k), averaged over the rows.

    The precision of a row is the number of true labels among the k labels with the highest scores, divided by
    k.

    Parameters
    ----------
    Y_true : ndarray or sparse matrix of shape (n, c)
        True labels: a 0/1 indicator matrix of any numeric or bool dtype. NaN marks unknown entries, which are
        left out of the rankings. An entry is unknown if nobody checked whether the row has the label.
    scores : ndarray or sparse matrix of shape (n, c)
        Scores of the labels. Labels with higher scores rank first. In an ndarray, entries of -inf are never
        ranked. In a sparse matrix, only stored entries are ranked.
    k : int or sequence of int, default=(1, 3, 5)
        Number of top-ranked labels to use, >= 1. If `k` is a sequence, the measure is computed for each
        number in the sequence. If a row has fewer than k ranked labels, for example because k is larger than
        c, its last ranks are empty. Empty ranks count as ranks without a true label.

    Returns
    -------
    float or ndarray of shape (len(k),), dtype float64
        The precision for each k, in [0, 1]. The result is a float if `k` is an int. The precision of a row
        without true labels is 0.

    Raises
    ------
    ValueError
        If `Y_true` and `scores` have different shapes, or if they have no rows or no columns. The error is
        also raised if `Y_true` has values other than 0, 1 and NaN, if `scores` has NaN, or if `k` is < 1.

    Notes
    -----
    The time is O(n c) for dense scores, and O(m log m) for sparse scores with m stored entries. In addition
    to its input, the function needs a few dozen megabytes of memory. A dense `Y_true` is also copied to a
    sparse matrix. All ranking measures need about the same time and memory.
    """
    ks = check_k(k)
    Y, scores = known_pair(Y_true, scores)
    return as_asked(k, _total(Y, scores, ks) / (ks * Y.shape[0]))


@overload
def recall_at_k(Y_true: Matrix, scores: Matrix, k: int) -> float: ...
@overload
def recall_at_k(Y_true: Matrix, scores: Matrix, k: Sequence[int] = (1, 3, 5)) -> Floats: ...
@documented_like(precision_at_k)
def recall_at_k(Y_true: Matrix, scores: Matrix, k: int | Sequence[int] = (1, 3, 5)) -> float | Floats:
    """Compute recall at k (R@k), averaged over the rows.

    The recall of a row is the number of true labels among the k labels with the highest scores, divided by
    the number of all true labels of the row.

    Returns
    -------
    float or ndarray of shape (len(k),), dtype float64
        The recall for each k, in [0, 1]. The result is a float if `k` is an int. The average leaves out rows
        without true labels. If no row has a true label, the result is NaN.
    """
    ks = check_k(k)
    Y, scores = known_pair(Y_true, scores)
    total = _total(Y, scores, ks, per_row=lambda _, n_true: 1.0 / np.maximum(n_true, 1))
    n_labelled = np.count_nonzero(np.diff(Y.indptr))
    return as_asked(k, _ratio(total, np.full(len(ks), float(n_labelled))))


@overload
def ndcg_at_k(Y_true: Matrix, scores: Matrix, k: int) -> float: ...
@overload
def ndcg_at_k(Y_true: Matrix, scores: Matrix, k: Sequence[int] = (1, 3, 5)) -> Floats: ...
@documented_like(precision_at_k)
def ndcg_at_k(Y_true: Matrix, scores: Matrix, k: int | Sequence[int] = (1, 3, 5)) -> float | Floats:
    """Compute normalized discounted cumulative gain at k (nDCG@k), averaged over the rows.

    In each row, only the k labels with the highest scores are considered. A true label at rank r adds
    ``1 / log2(r + 1)`` to the gain of the row. The gain of each row is divided by the largest possible gain
    of this row. A row reaches this gain if all of its first m ranks have true labels, where m is the smaller
    of k and the number of true labels of the row.

    Returns
    -------
    float or ndarray of shape (len(k),), dtype float64
        The nDCG for each k, in [0, 1]. The result is a float if `k` is an int. The nDCG of a row without true
        labels is 0, as is usual in extreme classification.

    Notes
    -----
    If labels have equal scores, the label with the lower column index ranks first. In contrast,
    `sklearn.metrics.ndcg_score` averages over all orders of labels with equal scores.
    """
    ks = check_k(k)
    Y, scores = known_pair(Y_true, scores)
    return as_asked(k, _total(Y, scores, ks, discounted=True, per_row=_inverse_ideal) / Y.shape[0])


def propensities(Y_train: Matrix, *, A: float = 0.55, B: float = 1.5) -> Floats:
    """Estimate the propensity of each label.

    In large data sets, the label matrix is often incomplete: some labels apply to a row but are missing in
    the matrix. The propensity of a label is the probability that the matrix has the label for a row, given
    that the label applies to this row.

    As in [1]_, the propensity of label j is estimated as p_j = 1 / (1 + C (N_j + B)^-A), with
    C = (log N - 1) (B + 1)^A. N is the number of training rows, and N_j is the number of training rows with
    label j. The logarithm is natural.

    Parameters
    ----------
    Y_train : ndarray or sparse matrix of shape (n, c)
        0/1 indicator matrix of the **training** rows. It must have at least 3 rows, since the formula is not
        valid for log N < 1. NaN marks unknown entries, which count as 0.
    A, B : float, default=0.55 and 1.5
        Constants of the formula, finite and > 0. Usual values are A=0.5, B=0.4 for Wikipedia data and A=0.6,
        B=2.6 for Amazon data.

    Returns
    -------
    ndarray of shape (c,), dtype float64
        The propensity of each label, in (0, 1). It increases with the number of rows that have the label. It
        is smallest for labels that occur in no row.

    Raises
    ------
    ValueError
        If `Y_train` has values other than 0, 1 and NaN, if it has fewer than 3 rows, or if `A` or `B` is not
        finite and > 0.

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
    Y = known_ones(_check_indicator(Y_train, "Y_train"))
    n, c = Y.shape
    if n < 3:
        raise ValueError(f"`Y_train` must have at least 3 rows, got {n}")
    counts = np.bincount(Y.indices, minlength=c)
    try:
        constant = (np.log(n) - 1.0) * (B + 1.0) ** A
    except OverflowError:
        raise ValueError(f"`A` must be small enough that (B + 1)**A is finite, got {A} with B={B}") from None
    return np.asarray(1.0 / (1.0 + constant * (counts + B) ** -A), dtype=np.float64)


@overload
def psp_at_k(Y_true: Matrix, scores: Matrix, propensities: ArrayLike, k: int) -> float: ...
@overload
def psp_at_k(
    Y_true: Matrix, scores: Matrix, propensities: ArrayLike, k: Sequence[int] = (1, 3, 5)
) -> Floats: ...
@documented_like(precision_at_k)
def psp_at_k(
    Y_true: Matrix, scores: Matrix, propensities: ArrayLike, k: int | Sequence[int] = (1, 3, 5)
) -> float | Floats:
    """Compute propensity-scored precision at k (PSP@k).

    A hit is a true label among the k labels with the highest scores of a row. The weight of a hit is 1 / p,
    where p is the propensity of the label. The result is the sum of the weights of all hits in all rows,
    divided by the largest possible sum. As in published results, this is a ratio of two sums over all rows,
    and not a mean over the rows.

    Parameters
    ----------
    propensities : array-like of shape (c,)
        Propensities of the labels, in (0, 1]. The function `manylabel.metrics.propensities` estimates them.

    Returns
    -------
    float or ndarray of shape (len(k),), dtype float64
        The measure for each k, in [0, 1]. The result is a float if `k` is an int. If no row has a true label,
        the result is NaN.

    Raises
    ------
    ValueError
        If `Y_true` and `scores` have different shapes, or if they have no rows or no columns. The error is
        also raised if `Y_true` has values other than 0, 1 and NaN, if `scores` has NaN, if `k` is < 1, or if
        `propensities` is not an array of c numbers in (0, 1].
    """
    ks = check_k(k)
    Y, scores = known_pair(Y_true, scores)
    gains = 1.0 / check_propensities(propensities, Y.shape[1])
    best = _total(Y, _ideal_scores(Y, gains), ks, gains=gains)
    return as_asked(k, _ratio(_total(Y, scores, ks, gains=gains), best))


@overload
def psndcg_at_k(Y_true: Matrix, scores: Matrix, propensities: ArrayLike, k: int) -> float: ...
@overload
def psndcg_at_k(
    Y_true: Matrix, scores: Matrix, propensities: ArrayLike, k: Sequence[int] = (1, 3, 5)
) -> Floats: ...
@documented_like(psp_at_k)
def psndcg_at_k(
    Y_true: Matrix, scores: Matrix, propensities: ArrayLike, k: int | Sequence[int] = (1, 3, 5)
) -> float | Floats:
    """Compute propensity-scored nDCG at k (PSnDCG@k).

    A hit is a true label among the k labels with the highest scores of a row. A hit at rank r has the gain
    1 / (p log2(r + 1) S), where p is the propensity of the label. S is the sum of 1 / log2(i + 1) over i from
    1 to min(k, t), where t is the number of true labels of the row. The result is the sum of the gains of all
    hits in all rows, divided by the largest possible sum. The sum is largest if the true labels of each row
    rank first, in order of increasing propensity.
    """
    ks = check_k(k)
    Y, scores = known_pair(Y_true, scores)
    gains = 1.0 / check_propensities(propensities, Y.shape[1])

    def total(ranked_by: Any) -> Floats:
        return _total(Y, ranked_by, ks, gains=gains, discounted=True, per_row=_inverse_ideal)

    return as_asked(k, _ratio(total(scores), total(_ideal_scores(Y, gains))))


def _total(
    Y: csr_array,
    scores: Any,
    ks: NDArray[np.int64],
    *,
    gains: Floats | None = None,
    discounted: bool = False,
    per_row: Callable[[int, NDArray[np.int64]], Floats] | None = None,
) -> Floats:
    """Return the sum of the gains of all hits for each k.

    The result for k is a sum over all rows i and all ranks r <= k. The summands are per_row(k, n_i) *
    h_ir * gains[j(i, r)] / log2(r + 1). The docstring of this module defines n_i, h_ir and j(i, r). The
    factors `per_row` and `gains` are left out if they are None. The division by log2(r + 1) is left out if
    `discounted` is False. All five measures are computed from such sums.
    """
    depth = min(int(ks.max()), Y.shape[1])
    discount = 1.0 / np.log2(np.arange(2.0, depth + 2.0)) if discounted else np.ones(depth)
    totals = np.zeros(len(ks))
    for block, top in ranked(scores, depth):
        n_true = np.diff(Y.indptr[block.start : block.stop + 1]).astype(np.int64)
        gain = hits_of_ranks(Y, block, top) * discount
        if gains is not None:
            gain *= gains[top]  # an empty rank, -1, gets the gain of the last label, but it is never a hit
        reached = np.cumsum(gain, axis=1)
        for at, k in enumerate(ks.tolist()):
            at_k = reached[:, min(k, depth) - 1]
            totals[at] += at_k.sum() if per_row is None else at_k @ per_row(k, n_true)
    return totals


def ranked(scores: Any, depth: int) -> Iterator[tuple[slice, NDArray[np.int64]]]:
    """Yield each block of rows together with the labels at the first `depth` ranks of each row.

    A block is a slice of row indices. An empty rank has the label -1.
    """
    n, c = scores.shape
    sparse = isinstance(scores, csr_array)
    per_row = max(depth, scores.nnz // n) if sparse else c
    # The second bound ensures that `row * c + label` in `hits_of_ranks` fits in 64 bits.
    step = max(1, min(_BLOCK // per_row, (2**63 - 1) // c))
    rank = _top_of_sparse if sparse else _top_of_dense
    for start in range(0, n, step):
        block = slice(start, min(n, start + step))
        yield block, rank(scores, block, depth)


def _top_of_sparse(scores: csr_array, block: slice, depth: int) -> NDArray[np.int64]:
    starts = scores.indptr[block]
    counts = scores.indptr[block.start + 1 : block.stop + 1] - starts
    top = np.full((len(counts), depth), -1, dtype=np.int64)
    # Rows of similar length are padded to the same length and stored as a 2-D array. Padding at most doubles
    # the number of entries. Sorting the rows of a 2-D array is 25 times faster than sorting all entries by
    # row and score.
    magnitudes = np.frexp(counts)[1]
    for magnitude in np.unique(magnitudes[counts > 0]):
        rows = np.flatnonzero(magnitudes == magnitude)
        width = np.arange(counts[rows].max())
        stored = width < counts[rows, None]
        entries = starts[rows, None] + np.where(stored, width, 0)
        values = np.where(stored, scores.data[entries], -np.inf)
        labels = np.where(values > -np.inf, scores.indices[entries], -1)
        # The sort is stable and labels ascend within a row. If scores are equal, the lower label stays first.
        order = np.argsort(-values, axis=1, kind="stable")[:, :depth]
        top[rows, : order.shape[1]] = np.take_along_axis(labels, order, axis=1)
    return top


def _top_of_dense(scores: NDArray[Any], block: slice, depth: int) -> NDArray[np.int64]:
    values = scores[block]
    n, c = values.shape
    threshold = np.partition(values, c - depth, axis=1)[:, c - depth, None]
    chosen = values >= threshold
    # Among the labels whose score equals the threshold, keep the lowest labels until there are `depth`
    # labels.
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


def hits_of_ranks(Y: csr_array, block: slice, top: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return a boolean array that states for each ranked label whether it is a true label.

    A pair of a row and a label is encoded as the integer row * c + label, where c is the number of labels.
    The codes of the stored entries of `Y` are in increasing order. For each ranked label, bisection finds
    whether the code of its pair is one of these codes.
    """
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
    """Return 1 / S for each row with true labels, and 0 for each row without true labels.

    The docstring of `psndcg_at_k` defines the sum S. `n_true` holds the number of true labels of each row.
    """
    depth = np.minimum(k, n_true)
    ideal = np.cumsum(1.0 / np.log2(np.arange(2.0, depth.max() + 2.0)))
    return np.concatenate([[0.0], 1.0 / ideal])[depth]


def _ideal_scores(Y: csr_array, gains: Floats) -> csr_array:
    """Return scores that rank the true labels of each row by decreasing gain. Other labels have no score."""
    return csr_array((gains[Y.indices], Y.indices, Y.indptr), shape=Y.shape)


def _ratio(total: Floats, best: Floats) -> Floats:
    return np.divide(total, best, out=np.full_like(total, np.nan), where=best > 0)


def as_asked(k: int | Sequence[int], values: Floats) -> float | Floats:
    """Return the only entry of `values` as a float if `k` is an int. Otherwise, return the array `values`."""
    return float(values[0]) if isinstance(k, int | np.integer) else values


def check_k(k: Any) -> NDArray[np.int64]:
    """Check the argument `k`, an integer or a sequence of integers, and return it as a 1-D int64 array."""
    ks: list[Any] = list(k) if np.iterable(k) else [k]
    if not ks or not all(isinstance(one, int | np.integer) and one is not True and one >= 1 for one in ks):
        raise ValueError(
            f"`k` must be an integer >= 1 or a non-empty sequence of integers >= 1, got {shown(k)}"
        )
    # With this bound, the total number of ranks in all rows fits in 64 bits.
    if max(ks) > np.iinfo(np.int32).max:
        raise ValueError(f"`k` must be less than 2**31, got {shown(k)}")
    return np.array(ks, dtype=np.int64)


def check_pair(Y_true: Matrix, scores: Matrix, name: str = "scores") -> tuple[csr_array, Any]:
    """Check true labels and predictions, and return both.

    The true labels are returned as a CSR array. This array stores 1 for each label that a row has, and NaN
    for each unknown entry. The predictions are returned as an ndarray if they are dense, and as a CSR array
    if they are sparse. All CSR arrays have sorted and unique indices. `name` is the name of the predictions
    in error messages.
    """
    Y = _check_indicator(Y_true, "Y_true")
    checked = _check_matrix(scores, name)
    if checked.shape != Y.shape:
        raise ValueError(f"`{name}` must have the shape of `Y_true`, which is {Y.shape}, got {checked.shape}")
    if checked.dtype.kind != "f":
        checked = checked.astype(np.float64)
    # The maximum is NaN if any value is NaN. Unlike np.isnan on all values, this allocates no array.
    values = checked.data if isinstance(checked, csr_array) else checked
    if values.size and np.isnan(values.max()):
        raise ValueError(f"`{name}` must not contain NaN")
    return Y, checked


def known_pair(Y_true: Matrix, scores: Matrix) -> tuple[csr_array, Any]:
    """Check true labels and scores, and return both with the unknown entries masked.

    In the returned labels, unknown entries are not stored. In the returned scores, they are -inf.
    """
    Y, scores = check_pair(Y_true, scores)
    unknown = unknown_entries(Y)
    return known_ones(Y), scores if unknown is None else without(scores, unknown)


def without(scores: Any, unknown: csr_array) -> Any:
    """Return a copy of `scores` with the score -inf for unknown entries, so that they are not ranked."""
    scores = scores.copy()
    if isinstance(scores, csr_array):
        cells, gone = (
            np.repeat(np.arange(one.shape[0], dtype=np.int64), np.diff(one.indptr)) * one.shape[1]
            + one.indices
            for one in (scores, unknown)
        )
        scores.data[np.isin(cells, gone)] = -np.inf
    else:
        scores[unknown.nonzero()] = -np.inf
    return scores


def _check_indicator(Y: Matrix, name: str) -> csr_array:
    """Convert `Y` to a CSR array with sorted, unique indices and without stored zeros.

    `Y` itself is not changed.
    """
    checked = csr_array(_check_matrix(Y, name))
    if not checked.data.all():
        checked = checked.copy()
        checked.eliminate_zeros()
    wrong = checked.data[(checked.data != 1) & ~np.isnan(checked.data)]
    if wrong.size:
        raise ValueError(f"`{name}` must contain only 0, 1 and NaN, got {wrong[0]}")
    return checked


def _check_matrix(matrix: Any, name: str) -> Any:
    """Check that a matrix is 2-D and numeric or bool, with at least one row and one column.

    A sparse matrix is converted to a CSR array with sorted, unique indices.
    """
    checked: Any = matrix if issparse(matrix) else np.asarray(matrix)
    if len(checked.shape) != 2 or 0 in checked.shape:
        raise ValueError(f"`{name}` must be 2-D, with at least one row and column, got shape {checked.shape}")
    if checked.dtype.kind not in "biuf":
        raise ValueError(f"`{name}` must be numeric or bool, got dtype {checked.dtype}")
    if isinstance(checked, np.ndarray):
        return native_numbers(checked)
    return canonical_csr(checked, f"`{name}`")
