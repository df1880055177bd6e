"""Scorers that call Python methods, for models whose scores the Rust core cannot compute."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from manylabel import _core
from manylabel.estimator.base import core_rows
from manylabel.partition.any_classifier import rows_at_once, topk_of_decisions
from manylabel.partition.router import Routing

__all__ = ["AskedScorer", "DenseScorer"]

T = TypeVar("T")

# Maximum number of scores in memory at a time while scores are merged; 64 MB.
_SCORES_AT_ONCE = 1 << 24
# For at most this number of rows, no threads are started, because this would take longer than scoring the
# rows.
_FEW_ROWS = 32

_Csr = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]


class DenseScorer:
    """Scorer that calls a function to compute all scores, and has the interface of `_core.Scorer`.

    Parameters
    ----------
    decide : callable
        Function that takes rows and a number of threads. It returns the scores of the rows, of shape
        (n_rows, n_labels) and dtype float32.
    n_labels : int
        Number of labels.
    """

    def __init__(
        self, decide: Callable[[csr_array | NDArray[Any], int], NDArray[np.float32]], n_labels: int
    ) -> None:
        self._decide = decide
        self.n_labels = n_labels

    def decision(self, X: csr_array | NDArray[Any], threads: int) -> NDArray[np.float32]:
        """Return the scores of all labels for every row."""
        return self._decide(X, threads)

    def topk(self, X: csr_array | NDArray[Any], k: int, threads: int) -> _Csr:
        """Return the `k` labels with the highest scores for every row, as the arrays of a CSR matrix."""
        return _arrays(topk_of_decisions(lambda X: self._decide(X, threads), X, self.n_labels, k))

    def above(self, X: csr_array | NDArray[Any], bound: float, threads: int) -> _Csr:
        """For each row, return the labels with scores above `bound`, as the arrays of a CSR matrix."""
        parts = [
            csr_array(self._decide(X[rows], threads) > bound)
            for rows in rows_at_once(X.shape[0], self.n_labels)
        ]
        return _arrays(csr_array(vstack(parts, format="csr")))

    def at(self, X: csr_array | NDArray[Any], pairs: csr_array, threads: int) -> NDArray[np.float32]:
        """Return the scores of the given (row, label) pairs.

        `pairs` is a sparse matrix of shape (n_samples, n_labels). The result has one score for each stored
        entry of `pairs`, in the order of these entries.
        """
        return _given(lambda X: self._decide(X, threads), X, pairs)


@dataclass(frozen=True)
class _Answer(Generic[T]):
    """Output of the model of one block for the rows that are routed to this block."""

    rows: NDArray[np.intp]
    labels: NDArray[np.int32]
    value: T
    block: int


class AskedScorer:
    """Scorer that calls the Python methods of the block models, and has the interface of `_core.Scorer`.

    If `routing` allows more than one block per row, the scores of all rows are converted to log-odds. For
    each row, the log-odds from all blocks of the row are then merged. A row that is routed to only one block
    also gets log-odds, so that the scores of all rows are comparable.

    The conversion can change the ranking of the labels, because some models convert the scores of different
    labels with different factors. Therefore, the scores of all labels in the blocks of a row are converted
    and merged before the best labels are selected.

    Parameters
    ----------
    router : Scorer
        Scorer that computes one score per block for each row.
    routing : Routing
        Rule for the number of blocks that a row is routed to.
    label_blocks : list of ndarray, dtype int32
        The labels of each block, in increasing order.
    model_of : callable
        Function that takes the index of a block and returns the model of the block. The model has the methods
        `decision_function`, `predict_topk` and `predict`. If scores are merged, the model also has the method
        `_log_odds`.
    n_labels : int
        Total number of labels.
    """

    def __init__(
        self,
        router: _core.Scorer,
        routing: Routing,
        label_blocks: list[NDArray[np.int32]],
        model_of: Callable[[int], Any],
        n_labels: int,
    ) -> None:
        if len(label_blocks) != router.n_labels:
            raise ValueError(
                f"number of blocks in label_blocks_ must be {router.n_labels}, as in the router, "
                f"got {len(label_blocks)}"
            )
        for block, labels in enumerate(label_blocks):
            if len(labels) and not 0 <= labels.min() <= labels.max() < n_labels:
                raise ValueError(
                    f"labels of block {block} must be from 0 to {n_labels - 1}, "
                    f"got {labels.min()} to {labels.max()}"
                )
        self._router, self._routing = router, routing
        self._label_blocks, self._model_of = label_blocks, model_of
        self.n_labels = n_labels

    @property
    def _merges(self) -> bool:
        return self._routing != Routing(1)

    def decision(self, X: csr_array | NDArray[Any], threads: int) -> NDArray[np.float32]:
        """Return the scores of all labels for every row."""
        scores = np.full((X.shape[0], self.n_labels), -np.inf, dtype=np.float32)
        if self._merges:
            for first, merged in self._merged(X, None, threads):
                of_row = np.repeat(np.arange(first, first + merged.shape[0]), np.diff(merged.indptr))
                scores[of_row, merged.indices] = merged.data
            return scores
        routes = self._routes(X, threads)
        for answer in self._answers(X, routes, threads, lambda model, X: model.decision_function(X)):
            scores[np.ix_(answer.rows, answer.labels)] = answer.value
        return scores

    def topk(self, X: csr_array | NDArray[Any], k: int, threads: int) -> _Csr:
        """Return the `k` labels with the highest scores for every row, as the arrays of a CSR matrix."""
        if self._merges:
            return _stacked([merged for _, merged in self._merged(X, k, threads)])
        return self._joined(X, threads, lambda model, X: model.predict_topk(X, k=k), np.float32)

    def above(self, X: csr_array | NDArray[Any], bound: float, threads: int) -> _Csr:
        """Return the predicted labels of every row, as the arrays of a CSR matrix.

        If the scores of blocks are merged, the labels with merged scores above `bound` are predicted.
        Otherwise, the method `predict` of the block models predicts the labels, and `bound` is ignored.
        """
        if self._merges:
            return _stacked([csr_array(merged > bound) for _, merged in self._merged(X, None, threads)])
        return self._joined(X, threads, lambda model, X: csr_array(model.predict(X)), np.int64)

    def at(self, X: csr_array | NDArray[Any], pairs: csr_array, threads: int) -> NDArray[np.float32]:
        """Return the scores of the given (row, label) pairs.

        `pairs` is a sparse matrix of shape (n_samples, n_labels). The result has one score for each stored
        entry of `pairs`, in the order of these entries.
        """
        return _given(lambda X: self.decision(X, threads), X, pairs)

    def _routes(self, X: csr_array | NDArray[Any], threads: int) -> csr_array:
        routes = _core.route(self._router, X, self._routing, threads)
        return core_rows(routes, (X.shape[0], len(self._label_blocks)))

    def _answers(
        self,
        X: csr_array | NDArray[Any],
        routes: csr_array,
        threads: int,
        ask: Callable[[Any, csr_array | NDArray[Any]], T],
    ) -> Iterator[_Answer[T]]:
        """Call the model of each block for the rows that are routed to this block."""
        order = np.argsort(routes.indices, kind="stable")
        of_row = np.repeat(np.arange(X.shape[0]), np.diff(routes.indptr))
        blocks, starts = np.unique(routes.indices[order], return_index=True)
        groups = np.split(order, starts[1:])

        def answer(at: int) -> _Answer[T]:
            block, rows = int(blocks[at]), of_row[groups[at]]
            labels = self._label_blocks[block]
            value = ask(self._model_of(block), X if len(rows) == X.shape[0] else X[rows])
            # Fitted arrays may have been loaded from a file with inconsistent shapes.
            if getattr(value, "shape", None) != (len(rows), len(labels)):
                raise ValueError(
                    f"scores of block {block} must be of shape {(len(rows), len(labels))}, with one column "
                    f"per label of the block, got {getattr(value, 'shape', None)}"
                )
            return _Answer(rows, labels, value, block)

        threads = min(threads, len(blocks))
        if threads <= 1 or X.shape[0] <= _FEW_ROWS:
            yield from map(answer, range(len(blocks)))
            return
        with ThreadPoolExecutor(threads) as pool:
            yield from pool.map(answer, range(len(blocks)))

    def _joined(
        self,
        X: csr_array | NDArray[Any],
        threads: int,
        ask: Callable[[Any, csr_array | NDArray[Any]], csr_array],
        dtype: Any,
    ) -> _Csr:
        """Combine the outputs of the block models into one matrix with a column for every label.

        Each row must be routed to at most one block.
        """
        answers = list(self._answers(X, self._routes(X, threads), threads, ask))
        counts = np.zeros(X.shape[0] + 1, dtype=np.int64)
        for answer in answers:
            counts[answer.rows + 1] = np.diff(answer.value.indptr)
        indptr = np.cumsum(counts)
        indices, data = np.empty(indptr[-1], dtype=np.int32), np.empty(indptr[-1], dtype=dtype)
        for answer in answers:
            part = answer.value
            moves = np.repeat(indptr[answer.rows] - part.indptr[:-1], np.diff(part.indptr))
            places = np.arange(part.nnz) + moves
            indices[places], data[places] = answer.labels[part.indices], part.data
        if indptr[-1] <= np.iinfo(np.int32).max:
            indptr = indptr.astype(np.int32)
        return indptr, indices, data

    def _merged(
        self, X: csr_array | NDArray[Any], k: int | None, threads: int
    ) -> Iterator[tuple[int, csr_array]]:
        """Merge the scores that each row has in its blocks.

        The rows are divided into ranges, to limit the number of scores in memory. The method yields a tuple
        for each range. The tuple contains the position of the first row of the range and a matrix of merged
        scores. For each row, the matrix has the `k` highest scores. If `k` is None, the matrix has the scores
        of all labels in the blocks of the row.
        """
        routes = self._routes(X, threads)
        sizes = np.array([len(labels) for labels in self._label_blocks], dtype=np.int64)
        scored = np.concatenate([[0], np.cumsum(sizes[routes.indices])])[routes.indptr]
        start = 0
        while start < X.shape[0]:
            stop = int(np.searchsorted(scored, scored[start] + _SCORES_AT_ONCE, side="right")) - 1
            rows = slice(start, max(start + 1, min(stop, X.shape[0])))
            yield start, self._merge(X[rows], routes[rows], k, threads)
            start = rows.stop

    def _merge(
        self, X: csr_array | NDArray[Any], routes: csr_array, k: int | None, threads: int
    ) -> csr_array:
        labels = self._label_blocks
        scores = [np.empty((0, len(known)), dtype=np.float32) for known in labels]

        def log_odds(model: Any, X: csr_array | NDArray[Any]) -> NDArray[Any]:
            odds: NDArray[Any] = model._log_odds(model.decision_function(X))
            return odds

        for answer in self._answers(X, routes, threads, log_odds):
            scores[answer.block] = np.ascontiguousarray(answer.value, dtype=np.float32)
        merged = _core.merge_blocks(routes, labels, scores, self.n_labels, k, threads)
        return core_rows(merged, (X.shape[0], self.n_labels))


def _given(
    decide: Callable[[csr_array | NDArray[Any]], NDArray[np.float32]],
    X: csr_array | NDArray[Any],
    pairs: csr_array,
) -> NDArray[np.float32]:
    """Return the scores of given (row, label) pairs.

    The function computes the scores of all labels for a few rows at a time, and keeps only the scores of the
    given pairs.
    """
    scores = np.empty(pairs.nnz, dtype=np.float32)
    for rows in rows_at_once(*pairs.shape):
        wanted = slice(pairs.indptr[rows.start], pairs.indptr[rows.stop])
        if wanted.start < wanted.stop:
            of_row = np.repeat(
                np.arange(rows.stop - rows.start), np.diff(pairs.indptr[rows.start : rows.stop + 1])
            )
            scores[wanted] = decide(X[rows])[of_row, pairs.indices[wanted]]
    return scores


def _arrays(matrix: csr_array) -> _Csr:
    return matrix.indptr, matrix.indices, matrix.data


def _stacked(parts: list[csr_array]) -> _Csr:
    return _arrays(parts[0] if len(parts) == 1 else csr_array(vstack(parts, format="csr")))
