"""Base class of the block classifiers, which route rows to blocks and merge the scores of block models.

A block consists of a group of training rows and a set of labels. A block classifier routes every row to one
or several blocks. For each of these blocks, a model scores the labels of the block. All other labels get the
score -inf. If rows may be routed to several blocks, all scores are converted to log-odds before scores of
different blocks are merged.

For models of this library, the Rust core computes the scores of all rows and blocks in one call.
`AskedScorer` computes the scores of models of other libraries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array
from sklearn.utils import get_tags

from manylabel import _core
from manylabel.estimator.base import MultiLabelClassifier, core_rows
from manylabel.estimator.explanation import Explained, Part, by_removal
from manylabel.estimator.parameters import n_threads
from manylabel.estimator.scaling import scorer_features
from manylabel.estimator.schema import Array, Attribute, Each, Scalar, SparseMatrix
from manylabel.estimator.validation import KeptDense
from manylabel.partition.any_classifier import rows_at_once
from manylabel.partition.asked import AskedScorer
from manylabel.partition.router import Router, Routing

__all__ = ["Block", "BlockClassifier", "core_scorer", "meaning"]

# Constants for ``n_routes="auto"``. A row is routed to at most `_MOST_ROUTES` blocks. The best blocks are
# taken in order until their probabilities sum to at least the fraction `_ROUTED` of the total probability of
# the `_MOST_ROUTES` best blocks. On citeulike-t with four blocks, a row then has 1.5 blocks on average. The
# ranking is as good as with two blocks for every row, and its precision at 1 is 1.3 points higher than with
# one block. On eurlex57k, a row has 1.2 blocks on average.
_MOST_ROUTES = 3
_ROUTED = 0.9


@dataclass(frozen=True)
class Block:
    """Description of a block for the Rust core.

    Parameters
    ----------
    labels : ndarray, dtype int32
        The labels of the block, in increasing order.
    scorer : Scorer or None, default=None
        Scorer that scores at least the labels of the block. None if the block has no labels.
    places : ndarray, dtype int32, or None, default=None
        Positions of `labels` among the labels that `scorer` scores. None means that `scorer` scores exactly
        `labels`.
    factor, zero : float, default=1 and 0
        Conversion of scores: the log-odds of a score s are ``factor * (s - zero)``.
    least : float or None, default=0
        Score above which labels are predicted for a row that is routed only to this block. This threshold
        applies to the scores of `scorer`, before they are converted to log-odds. None means that only the
        label with the highest score is predicted. If the scores of several blocks are merged for a row,
        `least` is not used.
    """

    labels: NDArray[np.int32]
    scorer: _core.Scorer | None = None
    places: NDArray[np.int32] | None = None
    factor: float = 1.0
    zero: float = 0.0
    least: float | None = 0.0


def meaning(model: MultiLabelClassifier) -> tuple[float, float, float | None]:
    """Return the parameters `factor`, `zero` and `least` of `Block` for the scores of a model.

    The first two numbers convert scores to log-odds. The third value is the score above which labels are
    predicted. It is None if only the label with the highest score is predicted.
    """
    # Log-odds are a linear function of the scores, so the log-odds of two scores determine the function.
    at_zero, at_one = (float(odds) for odds in model._log_odds(np.array([0.0, 1.0])))
    names_one = get_tags(model).classifier_tags.multi_class
    factor = at_one - at_zero
    return factor, -at_zero / factor, None if names_one else model._least_score


def core_scorer(model: Any) -> _core.Scorer | None:
    """Return a scorer of the Rust core with the same predictions as a model, or None if there is none."""
    if not isinstance(model, MultiLabelClassifier):
        return None
    for name in ("decision_function", "predict_topk", "predict"):
        # A subclass outside this library may override one of these methods. The method must then be called.
        if not getattr(type(model), name).__module__.startswith("manylabel."):
            return None
    scorer = model._scorer()
    return scorer if isinstance(scorer, _core.Scorer) else None


class BlockClassifier(MultiLabelClassifier):
    """Base class of classifiers that route each row to blocks, where each block has a separate model.

    A subclass sets the fitted attributes ``row_blocks_``, ``label_blocks_`` and ``estimators_``. The subclass
    then calls `_finish`, which sets ``classes_``, ``sparse_output_``, ``speedup_`` and the attributes of the
    router: ``router_coef_`` and ``router_intercept_``.
    """

    fitted: ClassVar[dict[str, Attribute]] = {
        **MultiLabelClassifier.fitted,
        "router_intercept_": Array(("n_blocks",), "f4", or_minus_infinity=True),
        "router_coef_": SparseMatrix("csc", ("n_blocks", "n_features"), "f4"),
        "row_blocks_": Array(("n_rows",), "i4", below="n_blocks"),
        "label_blocks_": Each(Array(("n_labels_of_block",), "i4", below="n_labels"), "n_blocks"),
        "speedup_": Each(Scalar(float), "n_speedups"),
    }

    _couples_labels = "this class does not pass weights of labels to `estimator`"

    @property
    def _dense(self) -> KeptDense:
        return "as given if mostly nonzero"

    label_blocks_: list[NDArray[np.int32]]
    estimators_: list[Any]
    router_coef_: csc_array
    router_intercept_: NDArray[np.float32]
    n_features_in_: int

    @property
    def _n_routes(self) -> int | None:
        """Number of blocks that a row is routed to. None if it depends on the router's probabilities."""
        return 1

    def _routing(self) -> Routing:
        n_routes = self._n_routes
        return Routing(_MOST_ROUTES, _ROUTED) if n_routes is None else Routing(n_routes)

    def _log_odds(self, scores: NDArray[Any]) -> NDArray[Any]:
        inner = next((model for model in self.estimators_ if model is not None), None)
        if self._n_routes != 1 or inner is None:
            return scores
        odds: NDArray[Any] = inner._log_odds(scores)
        return odds

    def measure_speedup(self, X: Any) -> tuple[float, float]:
        """Measure the factor by which the blocks reduce the number of scores that a prediction computes.

        A classifier without blocks computes the scores of all labels for each row. With blocks, a router
        first chooses some of the blocks for a row, and only the labels of these blocks are scored.

        Returns
        -------
        scoring : float
            Number of labels divided by the mean number of labels that are scored per row. The paper of
            `BlockPartitionClassifier` (Liang, Hsieh and Lee) reports this ratio.
        with_routing : float
            The same ratio, but the scores of the router are counted too. For each row, the router computes
            one score per block. This ratio is more realistic than `scoring`.

        Raises
        ------
        ValueError
            If X is not valid, or if its number of features differs from the number in `fit`.
        """
        return self._speedup(self._features(X))

    def _speedup(self, X: csr_array | NDArray[Any]) -> tuple[float, float]:
        sizes = np.array([len(labels) for labels in self.label_blocks_], dtype=np.int64)
        parts: Iterable[Any] = (X,)
        if isinstance(X, np.ndarray):
            # The copies of rows that are not in C order or in half precision stay small.
            parts = (scorer_features(X[rows]) for rows in rows_at_once(*X.shape))
        routes = map(self._routes, parts)
        scored = int(sum(sizes[of_rows.indices].sum() for of_rows in routes)) / X.shape[0]
        n_labels = self._n_labels
        return (n_labels / scored if scored else float("inf")), n_labels / (scored + len(sizes))

    def _finish(
        self, X: csr_array | NDArray[Any], router: Router, n_labels: int, sparse_output: bool
    ) -> None:
        """Set the fitted attributes that all subclasses have in common."""
        self.router_coef_, self.router_intercept_ = router.coef_, router.intercept_
        self.classes_ = np.arange(n_labels)
        self.sparse_output_ = sparse_output
        self.speedup_ = self._speedup(X)

    def _explained(self, x: csr_array, label: int, names: Sequence[str]) -> Explained:
        """Explain the score of a label for the row `x`; see `MultiLabelClassifier.explain`.

        The explanation uses a block that contains the label. If the row is routed to several such blocks, the
        explanation uses the block with the highest score of the router.
        """
        routes = self._routes(x)
        for block in routes.indices[np.argsort(-routes.data, kind="stable")].tolist():
            model, place = self._model_of_label(block, label)
            if model is None:
                continue
            path = (Part("route", f"block {block}", float(routes[0, block])),)
            if isinstance(model, MultiLabelClassifier):
                inner = model._explained(x, place, names)
                quantity = f"{inner.quantity} of the model of block {block}"
                return Explained(inner.rows, quantity, (*path, *inner.path))
            inner = by_removal(lambda rows: np.asarray(model.decision_function(rows))[:, place], x, names)  # noqa: B023
            return Explained(inner.rows, f"score of the model of block {block}", path)
        return super()._explained(x, label, names)

    def _model_of_label(self, block: int, label: int) -> tuple[Any, int]:
        """Return the model that scores a label in a block, and the label's column in the model's scores."""
        places = np.flatnonzero(self.label_blocks_[block] == label)
        return (self.estimators_[block], int(places[0])) if len(places) else (None, -1)

    def _router(self) -> _core.Scorer:
        return Router(coef_=self.router_coef_, intercept_=self.router_intercept_).scorer()

    def _routes(self, X: csr_array | NDArray[Any]) -> csr_array:
        """Return the blocks that each row is routed to, with the scores of the router."""
        routes = _core.route(self._router(), X, self._routing(), n_threads(self.n_jobs))
        return core_rows(routes, (X.shape[0], len(self.router_intercept_)))

    def _make_scorer(self) -> Any:
        if len(self.estimators_) != len(self.label_blocks_):
            raise ValueError(
                f"number of models in estimators_ must be {len(self.label_blocks_)}, as in label_blocks_, "
                f"got {len(self.estimators_)}"
            )
        blocks = []
        for labels, model in zip(self.label_blocks_, self.estimators_, strict=True):
            scorer = core_scorer(model)
            if model is None:
                blocks.append(Block(labels))
            elif scorer is None:
                return self._asked(list(self.estimators_).__getitem__)
            else:
                blocks.append(Block(labels, scorer, None, *meaning(model)))
        return self._scored(blocks)

    def _scored(self, blocks: list[Block], weights: Any = None) -> _core.Scorer:
        """Return a scorer of the Rust core for the given blocks.

        If the same linear model scores the labels of all blocks, the weights of this model can be passed as
        `weights`. Scoring many rows is then faster.
        """
        return _core.block_scorer(self._router(), blocks, self._n_labels, self._routing(), weights)

    def _asked(self, model_of: Callable[[int], Any]) -> AskedScorer:
        """Return a scorer that calls the methods of the block models."""
        labels = list(self.label_blocks_)
        return AskedScorer(self._router(), self._routing(), labels, model_of, self._n_labels)
