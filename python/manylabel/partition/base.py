"""From blocks to scores: rows are routed, models asked, and answers put together.

A block classifier routes every row to one block or several and asks only the models of these; labels that
none of them knows score -inf. Where scores of several blocks are merged, all scores are log-odds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array, vstack
from scipy.special import expit

from manylabel import _core
from manylabel.estimator.base import MultiLabelClassifier, core_parts
from manylabel.estimator.parameters import check_count, n_threads
from manylabel.estimator.schema import Array, Attribute, Each, Scalar, SparseMatrix
from manylabel.estimator.validation import check_features
from manylabel.partition.router import Router, best_blocks

__all__ = ["FEW_ROWS", "BlockClassifier"]

T = TypeVar("T")
B = TypeVar("B", bound="BlockClassifier")

# So many scores are held at a time where scores are dense: 64 MB.
_SCORES_AT_ONCE = 1 << 24
# Rows for which it is not worth to start threads.
FEW_ROWS = 32
# With n_routes="auto", blocks a row is sent to at most, and the share of the router's probability of so many
# best blocks that those it is sent to must hold. Over four blocks of citeulike-t 1.5 routes a row rank as two
# for every row do, 1.3 points of P@1 above one; on eurlex57k 1.2.
_MOST_ROUTES = 3
_ROUTED = 0.9


class BlockClassifier(MultiLabelClassifier):
    """Base of classifiers that route a row to blocks and ask the models of these.

    A subclass fits ``row_blocks_``, ``label_blocks_``, ``estimators_``, ``router_coef_`` and
    ``router_intercept_``.
    """

    fitted: ClassVar[dict[str, Attribute]] = {
        **MultiLabelClassifier.fitted,
        "router_intercept_": Array(("n_blocks",), "f4", or_minus_infinity=True),
        "router_coef_": SparseMatrix("csc", ("n_blocks", "n_features"), "f4"),
        "row_blocks_": Array(("n_rows",), "i4", below="n_blocks"),
        "label_blocks_": Each(Array(("n_labels_of_block",), "i4", below="n_labels"), "n_blocks"),
        "speedup_": Each(Scalar(float), "n_speedups"),
    }

    label_blocks_: list[NDArray[np.int32]]
    estimators_: list[Any]
    router_coef_: csc_array
    router_intercept_: NDArray[np.float32]
    n_features_in_: int
    n_jobs: int | None

    @property
    def _n_routes(self) -> int | None:
        """Blocks a row is sent to; None for as many as the router is in doubt about."""
        return 1

    def _log_odds(self, scores: NDArray[Any]) -> NDArray[Any]:
        inner = next((model for model in self.estimators_ if model is not None), None)
        if self._n_routes != 1 or inner is None:
            return scores
        odds: NDArray[Any] = inner._log_odds(scores)
        return odds

    def decision_function(self, X: Any) -> NDArray[np.float32]:
        """Score every label of every row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features.

        Returns
        -------
        ndarray of shape (n_samples, n_labels), dtype float32
            The scores of the models of a row's blocks; dense by nature, 4 bytes each. -inf for labels
            outside of these blocks.

        Raises
        ------
        ValueError
            If X is not as in fit.
        MemoryError
            If the scores do not fit in memory; `predict_topk` needs no such array.
        """
        X = self._features(X)
        routes = self._routes(X)
        scores = np.full((X.shape[0], len(self.classes_)), -np.inf, dtype=np.float32)
        several, rows, of_one = self._by_routes(routes)
        for first, merged in self._merged(X, routes, several):
            of_row = np.repeat(several[first : first + merged.shape[0]], np.diff(merged.indptr))
            scores[of_row, merged.indices] = merged.data
        for answer in self._answers(_of(X, rows), of_one, lambda model, X: model.decision_function(X)):
            value = answer.value
            if self._n_routes != 1:
                value = self._model(answer.block)._log_odds(value)
            scores[np.ix_(rows[answer.rows], answer.labels)] = value
        return scores

    def predict_topk(self, X: Any, k: int = 5) -> csr_array:
        """Name the best labels of every row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features.
        k : int, default=5
            Labels a row, >= 1; fewer where a row's blocks have fewer.

        Returns
        -------
        csr_array of shape (n_samples, n_labels), dtype float32
            The scores of the k best labels of each row, in order of label; equal scores go to the lower
            label. ``np.argsort(-row.data, kind="stable")`` ranks them.

        Raises
        ------
        ValueError
            If X is not as in fit, or k < 1.

        Notes
        -----
        Only the labels of a row's blocks are scored, and nothing of size n_samples x n_labels is allocated.
        """
        self._check_fitted()
        k = check_count("k", k, 1)
        X = self._features(X)

        def best(model: Any, X: csr_array) -> csr_array:
            top: csr_array = model.predict_topk(X, k=k)
            if self._n_routes != 1:
                odds = model._log_odds(top.data).astype(np.float32, copy=False)
                top = csr_array((odds, top.indices, top.indptr), shape=top.shape)
            return top

        routes = self._routes(X)
        several, rows, of_one = self._by_routes(routes)
        merged = [top for _, top in self._merged(X, routes, several, k)]
        return _interleaved(
            several, _stacked(merged), rows, self._joined(_of(X, rows), of_one, best, np.float32)
        )

    def predict(self, X: Any) -> csr_array | NDArray[np.int64]:
        """Predict the label sets of the rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features.

        Returns
        -------
        ndarray or csr_array of shape (n_samples, n_labels), dtype int64
            0/1 indicator matrix: what the model of a row's block predicts, or where scores merged from
            several blocks are positive. Sparse if Y was in fit, and then never dense in between.

        Raises
        ------
        ValueError
            If X is not as in fit.
        """
        X = self._features(X)
        routes = self._routes(X)
        several, rows, of_one = self._by_routes(routes)
        merged = [csr_array(merged > 0) for _, merged in self._merged(X, routes, several)]
        alone = self._joined(_of(X, rows), of_one, lambda model, X: csr_array(model.predict(X)), np.int64)
        return self._indicator(_interleaved(several, _stacked(merged), rows, alone))

    def measure_speedup(self, X: Any) -> tuple[float, float]:
        """Count what routing saves on given rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features.

        Returns
        -------
        scoring : float
            Labels over the mean number of labels scored for a row, as published results count it.
        with_routing : float
            The same with the router's products, one for each block, counted as well: the honest figure.

        Raises
        ------
        ValueError
            If X is not as in fit.
        """
        return self._speedup(self._features(X))

    def _speedup(self, X: csr_array) -> tuple[float, float]:
        routes = self._routes(X)
        sizes = np.array([len(labels) for labels in self.label_blocks_], dtype=np.int64)
        scored = int(sizes[routes.indices].sum()) / X.shape[0]
        n_labels = len(self.classes_)
        return (n_labels / scored if scored else float("inf")), n_labels / (scored + len(sizes))

    def _finish(self, X: csr_array, router: Router, n_labels: int, sparse_output: bool) -> None:
        """Set what all fits end with."""
        self.router_coef_, self.router_intercept_ = router.coef_, router.intercept_
        self.classes_ = np.arange(n_labels)
        self.sparse_output_ = sparse_output
        self.speedup_ = self._speedup(X)

    def _features(self, X: Any) -> csr_array:
        self._check_fitted()
        if len(self.label_blocks_) != len(self.router_intercept_):
            raise ValueError(
                f"blocks of label_blocks_: expected {len(self.router_intercept_)} as the router has, "
                f"got {len(self.label_blocks_)}"
            )
        return check_features(self, X, reset=False)

    def _model(self, block: int) -> Any:
        """Return what scores a block's labels."""
        if len(self.estimators_) != len(self.label_blocks_):
            raise ValueError(
                f"models of estimators_: expected {len(self.label_blocks_)}, got {len(self.estimators_)}"
            )
        return self.estimators_[block]

    def prepare(self: B) -> B:
        """Prepare the router and the models of all blocks for predictions, ahead of the first one.

        Returns
        -------
        self
            The estimator itself.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            If the model is not fitted.
        ValueError
            If fitted arrays, as changed or loaded, do not go together.
        """
        super().prepare()
        for model in self.estimators_:
            if isinstance(model, MultiLabelClassifier):
                model.prepare()
        return self

    def _models(self, X: csr_array) -> Callable[[int], Any]:
        """Return what gives each block's model for these rows."""
        return self._model

    def _make_scorer(self) -> _core.Scorer:
        """Prepare the router; the models of blocks prepare themselves."""
        return Router(coef_=self.router_coef_, intercept_=self.router_intercept_).scorer()

    def _routes(self, X: csr_array) -> csr_array:
        """Score the blocks that each row is sent to.

        With a doubtful router these are the fewest best ones that hold a share of the probability of some
        more.
        """
        threads = n_threads(self.n_jobs) if X.shape[0] > FEW_ROWS else 1
        routes = best_blocks(self._scorer(), X, self._n_routes or _MOST_ROUTES, threads)
        if self._n_routes is not None:
            return routes
        counts = np.diff(routes.indptr)
        # A row of blocks by falling score, 0 beyond those there are.
        chances = np.zeros((X.shape[0], _MOST_ROUTES))
        there = np.arange(_MOST_ROUTES) < counts[:, None]
        chances[there] = expit(routes.data.astype(np.float64))
        order = np.argsort(-chances, axis=1, kind="stable")
        before = np.cumsum(np.take_along_axis(chances, order, axis=1), axis=1)
        wanted = 1 + (before[:, :-1] < _ROUTED * before[:, -1:]).sum(axis=1)
        rank = np.argsort(order, axis=1, kind="stable")
        kept = (there & (rank < wanted[:, None]))[there]
        indptr = np.concatenate([[0], np.cumsum(kept)])[routes.indptr].astype(routes.indptr.dtype)
        return csr_array((routes.data[kept], routes.indices[kept], indptr), shape=routes.shape)

    def _by_routes(self, routes: csr_array) -> tuple[NDArray[np.intp], NDArray[np.intp], csr_array]:
        """Tell rows whose scores are merged from others: both row numbers, and the routes of the others."""
        if self._n_routes == 1:
            return np.empty(0, dtype=np.intp), np.arange(routes.shape[0]), routes
        if self._n_routes is not None:
            return np.arange(routes.shape[0]), np.empty(0, dtype=np.intp), routes[:0]
        # Another's constant scores are log-odds where its own are not: these are told apart by label only
        # where all scores are at hand.
        plain = all(isinstance(model, MultiLabelClassifier | None) for model in self.estimators_)
        merged = (np.diff(routes.indptr) > 1) | (not plain)
        several, alone = np.flatnonzero(merged), np.flatnonzero(~merged)
        return several, alone, _of(routes, alone)

    def _answers(
        self, X: csr_array, routes: csr_array, ask: Callable[[Any, csr_array], T]
    ) -> Iterator[_Answer[T]]:
        """Ask the models of the blocks that rows are sent to, block after block."""
        order = np.argsort(routes.indices, kind="stable")
        of_row = np.repeat(np.arange(X.shape[0]), np.diff(routes.indptr))
        blocks, starts = np.unique(routes.indices[order], return_index=True)
        groups = np.split(order, starts[1:])
        model_of = self._models(X)

        def answer(at: int) -> _Answer[T]:
            block, rows = blocks[at], of_row[groups[at]]
            part = _of(X, rows)
            labels = self.label_blocks_[block]
            value = ask(model_of(int(block)), part)
            # Fitted arrays may come from a file that somebody made.
            if getattr(value, "shape", None) != (len(rows), len(labels)):
                raise ValueError(
                    f"scores of block {block}: expected {len(labels)} labels as in label_blocks_"
                )
            if len(labels) and not 0 <= labels.min() <= labels.max() < len(self.classes_):
                raise ValueError(f"labels of block {block} must be from 0 to {len(self.classes_) - 1}")
            return _Answer(int(block), rows, labels, value)

        threads = min(n_threads(self.n_jobs), len(blocks))
        if threads <= 1 or X.shape[0] <= FEW_ROWS:
            yield from map(answer, range(len(blocks)))
            return
        with ThreadPoolExecutor(threads) as pool:
            yield from pool.map(answer, range(len(blocks)))

    def _joined(
        self, X: csr_array, routes: csr_array, ask: Callable[[Any, csr_array], csr_array], dtype: Any
    ) -> csr_array:
        """Join the answers for each row's one block to one matrix of all labels."""
        if not X.shape[0]:
            return csr_array((0, len(self.classes_)), dtype=dtype)
        answers = list(self._answers(X, routes, ask))
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
        return csr_array((data, indices, indptr), shape=(X.shape[0], len(self.classes_)))

    def _merged(
        self, X: csr_array, routes: csr_array, several: NDArray[np.intp], k: int | None = None
    ) -> Iterator[tuple[int, csr_array]]:
        """Merge the scores of several blocks, for the rows `several`.

        Yields the first of them and the scores of as many as there is room for.

        A label's score is the logit of ``sum_l p_l / (1 + exp(-s_l))`` over the row's blocks l that have it,
        s_l its log-odds there and p_l the router's probabilities, scaled to sum to 1 over the row's blocks.
        Of each row the `k` best are given, or all.
        """
        if not len(several):
            return
        X, routes = _of(X, several), _of(routes, several)
        sizes = np.array([len(labels) for labels in self.label_blocks_], dtype=np.int64)
        scored = np.concatenate([[0], np.cumsum(sizes[routes.indices])])[routes.indptr]
        start = 0
        while start < X.shape[0]:
            stop = int(np.searchsorted(scored, scored[start] + _SCORES_AT_ONCE, side="right")) - 1
            rows = np.arange(start, max(start + 1, min(stop, X.shape[0])))
            yield start, self._merge(_of(X, rows), _of(routes, rows), k)
            start += len(rows)

    def _merge(self, X: csr_array, routes: csr_array, k: int | None) -> csr_array:
        labels = list(self.label_blocks_)
        scores = [np.empty((0, len(known)), dtype=np.float32) for known in labels]
        for answer in self._answers(X, routes, lambda model, X: model.decision_function(X)):
            odds = self._model(answer.block)._log_odds(answer.value)
            scores[answer.block] = np.ascontiguousarray(odds, dtype=np.float32)
        threads = n_threads(self.n_jobs) if X.shape[0] > FEW_ROWS else 1
        merged = _core.merge_blocks(routes, labels, scores, len(self.classes_), k, threads)
        return csr_array(core_parts(merged), shape=(X.shape[0], len(self.classes_)))


@dataclass(frozen=True)
class _Answer(Generic[T]):
    """What the model of one block says of the rows sent there."""

    block: int
    rows: NDArray[Any]
    labels: NDArray[np.int32]
    value: T


def _of(X: csr_array, rows: NDArray[Any]) -> csr_array:
    """Take some rows, which are in increasing order."""
    if len(rows) == X.shape[0]:
        return X
    return X[rows] if len(rows) else csr_array((0, X.shape[1]), dtype=X.dtype)


def _stacked(parts: Sequence[csr_array]) -> csr_array | None:
    if len(parts) <= 1:
        return parts[0] if parts else None
    return csr_array(vstack(parts, format="csr"))


def _interleaved(
    rows: NDArray[np.intp], part: csr_array | None, other_rows: NDArray[np.intp], other: csr_array
) -> csr_array:
    """Put two matrices of some rows together to one of all rows."""
    if part is None:
        return other
    if len(other_rows) == 0:
        return part
    both = csr_array(vstack([part, other.astype(part.dtype, copy=False)], format="csr"))
    return both[np.argsort(np.concatenate([rows, other_rows]), kind="stable")]
