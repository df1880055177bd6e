"""Stratified splits of multi-label data, in which every label has about the same frequency in all parts."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array, hstack
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils import check_random_state

from manylabel.estimator.parameters import Count, Flag, Number, Seed
from manylabel.estimator.validation import check_labels, known_ones

__all__ = ["MultilabelStratifiedKFold", "iterative_split", "stratified_parts"]

_FRACTION = Number(above=0, below=1)
_SPLITS = Count(2)
_FLAG = Flag()
_SEED = Seed()

# Bounds on the work of `_exchange`: the number of steps, the number of stored entries that all steps read,
# and the numbers of labels, parts and rows that a step tries. With 20 labels and 64 rows, the
# largest deviation on the data set scene was 2 % larger than with iterative-stratification 0.1.9.
_MOST_STEPS, _MOST_WORK = 2000, 1 << 28
_TRIED_LABELS, _TRIED_PARTS, _TRIED_ROWS = 200, 5, 256

# Two wanted numbers of rows are equal if they differ by less. They are sums of fractions.
_EQUAL = 1e-9


def iterative_split(
    Y: Any, *, test_size: float = 0.2, random_state: Any = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split rows into training and test rows, so that every label has about the same frequency in both.

    The two parts are the training rows and the test rows. The rows are first assigned by iterative
    stratification [1]_. Each step takes the label with the fewest unassigned rows, and assigns these rows one
    by one. A row goes to the part that still needs the most rows with this label. After the last step, rows
    are moved or exchanged between the parts as long as this makes the frequencies of the labels in the two
    parts more similar.

    Parameters
    ----------
    Y : array-like or sparse matrix of shape (n_samples, n_labels)
        0/1 indicator matrix. Unknown entries, marked by NaN, count as 0.
    test_size : float, default=0.2
        Fraction of the rows that are test rows; > 0 and < 1.
    random_state : int, RandomState instance or None, default=None
        Seed of the order in which the rows of a label are assigned. Pass an int for reproducible results.

    Returns
    -------
    train : ndarray of shape (n_train,), dtype int64
        Positions of the training rows, in increasing order.
    test : ndarray of shape (n_test,), dtype int64
        Positions of the test rows, in increasing order.

    Raises
    ------
    ValueError
        If an argument is not valid, or if one part would have no rows.

    Notes
    -----
    The first assignment takes O(nnz(Y) log(n_labels)) time. After that, there are at most 2,000 moves and
    exchanges of rows, and fewer if Y is large. Y is never made dense. If a label has a single row, only one
    part has this label.

    References
    ----------
    .. [1] K. Sechidis, G. Tsoumakas and I. Vlahavas, "On the Stratification of Multi-label Data", ECML PKDD
       2011, algorithm 1.

    Examples
    --------
    >>> import numpy as np
    >>> from manylabel.model_selection import iterative_split
    >>> Y = np.tile([[1, 0], [0, 1]], (10, 1))
    >>> train, test = iterative_split(Y, test_size=0.2, random_state=0)
    >>> Y[test].sum(axis=0)
    array([2, 2])
    """
    fraction = _FRACTION.check("test_size", test_size)
    _SEED.require("random_state", random_state)
    rows = known_ones(check_labels(Y, unknown=True))
    part = stratified_parts(rows, np.array([1 - fraction, fraction]), random_state)
    train, test = np.flatnonzero(part == 0), np.flatnonzero(part == 1)
    if not len(train) or not len(test):
        raise ValueError(
            "`test_size` must give at least one training row and one test row, "
            f"got {test_size} for {rows.shape[0]} rows"
        )
    return train, test


class MultilabelStratifiedKFold(BaseCrossValidator):  # type: ignore[misc]
    """Cross-validation with folds that all have about the same frequency of each label.

    The rows are first assigned to the folds by iterative stratification [1]_. Then rows are moved or
    exchanged between the folds; see `iterative_split`. An instance can be passed as `cv` to functions and
    classes of scikit-learn, such as `GridSearchCV`, and to functions of `manylabel.model_selection`, such as
    `cross_validate`.

    Parameters
    ----------
    n_splits : int, default=5
        Number of folds; >= 2.
    shuffle : bool, default=False
        Rows are assigned to the folds label by label. If True, the rows that have the current label are
        assigned in random order. If False, they are assigned in their order in Y.
    random_state : int, RandomState instance or None, default=None
        Seed of the random order. This parameter has an effect only if `shuffle` is True.

    References
    ----------
    .. [1] K. Sechidis, G. Tsoumakas and I. Vlahavas, "On the Stratification of Multi-label Data", ECML PKDD
       2011, algorithm 1.

    Examples
    --------
    >>> import numpy as np
    >>> from manylabel.model_selection import MultilabelStratifiedKFold
    >>> Y = np.tile([[1, 0], [0, 1]], (9, 1))
    >>> [Y[test].sum(axis=0).tolist() for _, test in MultilabelStratifiedKFold(3).split(Y, Y)]
    [[3, 3], [3, 3], [3, 3]]
    """

    def __init__(self, n_splits: int = 5, *, shuffle: bool = False, random_state: Any = None) -> None:
        self.n_splits = n_splits
        self.shuffle = shuffle
        self.random_state = random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of folds.

        Parameters
        ----------
        X, y, groups : object, default=None
            Ignored.

        Returns
        -------
        int
            The number of folds.
        """
        return int(_SPLITS.check("n_splits", self.n_splits))

    def split(
        self, X: Any, y: Any = None, groups: Any = None
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Yield the training rows and the test rows of each fold.

        Parameters
        ----------
        X : array-like
            Only the number of rows is used. It must be the same as in y.
        y : array-like or sparse matrix of shape (n_samples, n_labels)
            0/1 indicator matrix. Unknown entries, marked by NaN, count as 0.
        groups : object, default=None
            Ignored.

        Yields
        ------
        train, test : ndarray of int64
            Positions of the training rows and of the test rows, in increasing order.
        """
        n_splits = self.get_n_splits()
        if y is None:
            raise ValueError("y must be an indicator matrix, got None")
        Y = known_ones(check_labels(y, "y", unknown=True))
        n_rows = X.shape[0] if hasattr(X, "shape") else len(X)
        if n_rows != Y.shape[0]:
            raise ValueError(f"number of rows of y: expected {n_rows} as in X, got {Y.shape[0]}")
        if n_splits > Y.shape[0]:
            raise ValueError(f"`n_splits` must be at most {Y.shape[0]}, the number of rows, got {n_splits}")
        shuffle = _FLAG.check("shuffle", self.shuffle)
        seed = self.random_state if shuffle else _IN_ORDER
        part = stratified_parts(Y, np.full(n_splits, 1 / n_splits), seed)
        for fold in range(n_splits):
            yield np.flatnonzero(part != fold), np.flatnonzero(part == fold)


class _InOrder:
    """Value of `random_state` with which `stratified_parts` does not shuffle the rows.

    Rows with the same label are then assigned to the parts in their order in Y.
    """


_IN_ORDER = _InOrder()


def stratified_parts(Y: csr_array, shares: NDArray[np.float64], random_state: Any) -> NDArray[np.int64]:
    """Assign each row to a part, so that every label has about the same frequency in all parts.

    Parameters
    ----------
    Y : csr_array of shape (n_samples, n_labels)
        Indicator matrix, with sorted and unique indices.
    shares : ndarray of shape (n_parts,)
        Fraction of the rows that each part gets. The sum is 1.
    random_state : int, RandomState instance, None or `_IN_ORDER`
        Seed of the order in which the rows of a label are assigned. `_IN_ORDER` means their order in Y.

    Returns
    -------
    ndarray of shape (n_samples,), dtype int64
        The part of each row.
    """
    n_rows = Y.shape[0]
    if isinstance(random_state, _InOrder):
        place = np.arange(n_rows)
    else:
        place = np.empty(n_rows, dtype=np.int64)
        place[check_random_state(random_state).permutation(n_rows)] = np.arange(n_rows)
    by_label = csc_array(Y)
    counts = np.diff(by_label.indptr)
    # The numbers of rows that each part still wants: of each label, and of all rows.
    wanted = counts[:, None] * shares
    room = n_rows * shares
    part = np.full(n_rows, -1, dtype=np.int64)
    left = counts.copy()
    # The rarest label comes next. Entries of the heap are outdated if the number of rows has changed.
    heap = [(int(count), label) for label, count in enumerate(counts.tolist()) if count]
    heapq.heapify(heap)
    while heap:
        count, label = heapq.heappop(heap)
        if count != left[label]:
            continue
        rows = by_label.indices[by_label.indptr[label] : by_label.indptr[label + 1]]
        rows = rows[part[rows] < 0]
        changed: set[int] = set()
        for row in rows[np.argsort(place[rows], kind="stable")].tolist():
            chosen = _neediest(wanted[label], room)
            labels = Y.indices[Y.indptr[row] : Y.indptr[row + 1]]
            part[row] = chosen
            wanted[labels, chosen] -= 1
            room[chosen] -= 1
            left[labels] -= 1
            changed.update(labels.tolist())
        for other in changed:
            if left[other]:
                heapq.heappush(heap, (int(left[other]), other))
    # Rows without labels fill the parts.
    rest = np.flatnonzero(part < 0)
    for row in rest[np.argsort(place[rest], kind="stable")].tolist():
        chosen = int(np.argmax(room))
        part[row] = chosen
        room[chosen] -= 1
    _exchange(Y, shares, part)
    return part


def _exchange(Y: csr_array, shares: NDArray[np.float64], part: NDArray[np.int64]) -> None:
    """Move and exchange rows between parts, as long as this makes the label frequencies more similar.

    Iterative stratification assigns each row only once. The labels that are assigned last can therefore have
    different frequencies in the parts.

    The share of a part is the fraction of all rows that the part gets. For each label, the part should get
    this fraction of the rows with the label. The deviation of a label in a part is the actual minus the
    wanted number of rows with the label. An additional label, which all rows have, stands for the total
    number of rows of a part. The steps reduce the sum of squared deviations over all labels and parts.

    Each step searches for a label and two parts, a source and a target. The deviation of the label must be
    larger in the source than in the target. The step moves a row with the label from the source to the
    target. It may also move a row without the label from the target to the source. The step tries several
    rows, and chooses the moves that reduce the sum most. If no tried move reduces the sum, the step tries
    other parts, and then other labels.

    For each label and each part, the absolute value of the deviation is divided by the share of the part. The
    labels are tried in decreasing order of the largest quotient of each label.
    """
    state = _Parts(Y, shares, part)
    for _ in range(min(_MOST_STEPS, _MOST_WORK // max(state.rows.nnz, 1))):
        found = state.find()
        if found is None:
            return
        state.exchange(*found)


class _Parts:
    """Assignment of rows to parts, with the deviation of each label in each part; see `_exchange`.

    Parameters
    ----------
    Y : csr_array of shape (n_samples, n_labels)
        Indicator matrix, with sorted and unique indices.
    shares : ndarray of shape (n_parts,)
        Fraction of the rows that each part gets. The sum is 1.
    part : ndarray of shape (n_samples,)
        The part of each row. `exchange` changes this array.
    """

    def __init__(self, Y: csr_array, shares: NDArray[np.float64], part: NDArray[np.int64]) -> None:
        n_rows = Y.shape[0]
        every: Any = hstack([Y, csr_array(np.ones((n_rows, 1), dtype=Y.dtype))], format="csr")
        self.rows: Any = every
        self.part = part
        self._shares = shares[:, None]
        self._lengths = np.diff(every.indptr)
        self._by_label = csc_array(every)
        members = csr_array((np.ones(n_rows), (part, np.arange(n_rows))), shape=(len(shares), n_rows))
        # The number of rows of each part and label that are too many, and the sums over the labels of each
        # row. Sums over all rows take as long as the rest of a step, so steps update them.
        self._more = (members @ every).toarray() - (
            np.asarray(every.sum(axis=0, dtype=np.float64)).ravel() * self._shares
        )
        self._sums = np.ascontiguousarray((every @ self._more.T).T)
        self._deviation = np.abs(self._more / self._shares).max(axis=0)
        # Labels for which no exchange was found. They are tried again when their numbers of rows have
        # changed, and before the search ends.
        self._stuck = np.zeros(every.shape[1], dtype=bool)

    def find(self) -> tuple[int, int, int, int] | None:
        """Return two parts and the two rows that they exchange, or None if no exchange is an improvement.

        Parts and rows are given by their indices. The first row moves from the first part to the second part.
        The second row moves from the second part to the first part. If only the first row moves, the index of
        the second row is -1.
        """
        found = self._find()
        if found is None and self._stuck.any():
            self._stuck[:] = False
            found = self._find()
        return found

    def _find(self) -> tuple[int, int, int, int] | None:
        for label in _first_smallest(-self._deviation, _TRIED_LABELS).tolist():
            if self._stuck[label]:
                continue
            order = np.argsort(-self._more[:, label], kind="stable")
            # Not only the two extreme parts are tried, but the part with too many rows comes first.
            for source, target in product(
                order[:_TRIED_PARTS].tolist(), order[: -_TRIED_PARTS - 1 : -1].tolist()
            ):
                if self._more[source, label] > self._more[target, label]:
                    rows = self._best_exchange(label, source, target)
                    if rows is not None:
                        return source, target, *rows
            self._stuck[label] = True
        return None

    def _best_exchange(self, label: int, source: int, target: int) -> tuple[int, int] | None:
        """Return the best pair of rows to exchange between the parts `source` and `target`.

        The first row has `label` and moves from `source` to `target`. The second row does not have `label`
        and moves from `target` to `source`. Rows are given by their indices. If only the first row moves, the
        index of the second row is -1.

        For each candidate for the first or the second row, the method computes the change of the sum of
        squared deviations (see `_exchange`) if only this row moves. A decrease is a negative change. For each
        of the two rows, at most `_TRIED_ROWS` candidates are tried: those with the lowest changes. The result
        is None if no exchange of the tried rows lowers the sum.

        Moving row a from `source` to `target`, and row b from `target` to `source`, changes this sum by
        ``2 (gain_a - gain_b + |a - b|^2)``. Here, `_gain` computes gain_a and gain_b, and ``|a - b|^2`` is
        the number of labels that only one of the two rows has.
        """
        with_label = self._with(label)
        leaving = with_label[self.part[with_label] == source]
        has = np.zeros(len(self.part), dtype=bool)
        has[with_label] = True
        coming = np.flatnonzero((self.part == target) & ~has)
        of_leaving = self._gain(leaving, source, target) + self._lengths[leaving]
        of_coming = self._lengths[coming] - self._gain(coming, source, target)
        first, second = (_first_smallest(each, _TRIED_ROWS) for each in (of_leaving, of_coming))
        a, b, alone = leaving[first], coming[second], of_leaving[first]
        both = alone[:, None] + of_coming[second] - 2 * self._common(a, b)
        change = np.hstack([alone[:, None], both])
        if not change.size or change.min() >= -_EQUAL:
            return None
        at, to = np.unravel_index(int(np.argmin(change)), change.shape)
        return int(a[at]), int(b[to - 1]) if to else -1

    def _common(self, a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.int64]:
        """For each row in `a` and each row in `b`, count the labels that both rows have."""
        (of_a, labels_a), (of_b, labels_b) = self._entries(a), self._entries(b)
        order = np.argsort(labels_b, kind="stable")
        of_b, labels_b = of_b[order], labels_b[order]
        first = np.searchsorted(labels_b, labels_a)
        count = np.searchsorted(labels_b, labels_a, side="right") - first
        # The pairs of an entry of a and an entry of b with the same label.
        pairs = np.repeat(of_a, count) * len(b) + of_b[_ranges(first, count)]
        return np.bincount(pairs, minlength=len(a) * len(b)).reshape(len(a), len(b))

    def _entries(self, rows: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the labels of the given rows, as one array of row positions and one array of labels.

        A row position is a position in `rows`. The arrays have one entry for each label of each row.
        """
        first, lengths = self.rows.indptr[rows], self._lengths[rows]
        return np.repeat(np.arange(len(rows)), lengths), self.rows.indices[_ranges(first, lengths)]

    def _gain(self, rows: NDArray[Any], source: int, target: int) -> NDArray[np.float64]:
        gain: NDArray[np.float64] = self._sums[target, rows] - self._sums[source, rows]
        return gain

    def exchange(self, source: int, target: int, leaving: int, coming: int) -> None:
        """Move row `leaving` from `source` to `target`, and row `coming` from `target` to `source`.

        If `coming` is -1, only row `leaving` moves.
        """
        out, back = (self._labels(row) for row in (leaving, coming))
        self.part[leaving] = target
        if coming >= 0:
            self.part[coming] = source
        # Labels that both rows have stay in their parts.
        for labels, old, new in (
            (np.setdiff1d(out, back), source, target),
            (np.setdiff1d(back, out), target, source),
        ):
            self._more[old, labels] -= 1
            self._more[new, labels] += 1
            self._stuck[labels] = False
            self._deviation[labels] = np.abs(self._more[:, labels] / self._shares).max(axis=0)
            for label in labels.tolist():
                with_label = self._with(label)
                self._sums[old, with_label] -= 1
                self._sums[new, with_label] += 1

    def _labels(self, row: int) -> NDArray[Any]:
        """Return the labels of a row. The row -1 has none."""
        begin, end = (0, 0) if row < 0 else self.rows.indptr[row : row + 2]
        found: NDArray[Any] = self.rows.indices[begin:end]
        return found

    def _with(self, label: int) -> NDArray[Any]:
        """Return the rows that have the label `label`."""
        found: NDArray[Any] = self._by_label.indices[
            self._by_label.indptr[label] : self._by_label.indptr[label + 1]
        ]
        return found


def _ranges(first: NDArray[Any], lengths: NDArray[Any]) -> NDArray[Any]:
    """Concatenate ranges of integers, which are given by their first integers and their lengths."""
    found: NDArray[Any] = np.repeat(first - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
    return found


def _first_smallest(values: NDArray[Any], count: int) -> NDArray[np.int64]:
    """Return the positions of the `count` smallest values, sorted by value. Equal values keep their order."""
    if len(values) <= count:
        return np.argsort(values, kind="stable")
    small = np.flatnonzero(values <= np.partition(values, count - 1)[count - 1])
    return small[np.argsort(values[small], kind="stable")[:count]]


def _neediest(wanted: NDArray[np.float64], room: NDArray[np.float64]) -> int:
    """Return the part that still needs the most rows of a label.

    If several parts need equally many, the function returns the one that still needs the most rows in total.
    """
    most = wanted >= wanted.max() - _EQUAL
    return int(np.argmax(np.where(most, room, -np.inf)))
