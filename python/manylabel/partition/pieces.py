"""Division of the fit of `BlockPartitionClassifier` into pieces, which several machines can share.

A piece fits the models of some of the blocks.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array
from sklearn.base import clone

from manylabel.estimator.costs import LabelCosts
from manylabel.estimator.pieces import Arrays, check_no_costs
from manylabel.estimator.progress import Tell, reported
from manylabel.partition.models import base_estimator, fit_block, rows_of_blocks
from manylabel.persistence import description_of, from_bytes, from_description, to_bytes

if TYPE_CHECKING:
    from manylabel.partition.classifier import BlockPartitionClassifier

__all__ = ["BlockPieces"]

# The fitted attributes that do not depend on the models of the blocks, and their types if they are numbers.
_SHARED: dict[str, Any] = {
    "n_blocks_": int,
    "lam_": float,
    "lams_": None,
    "lam_precision_": None,
    "objective_history_": None,
    "n_iter_": int,
    "objective_": float,
    "captured_": float,
}


class BlockPieces:
    """A training set, and the methods that fit the models of blocks to this set; see `Pieces`."""

    most_units = 1
    has_end = False
    has_rounds = False

    def __init__(
        self,
        estimator: BlockPartitionClassifier,
        X: csr_array | NDArray[Any],
        Y: csr_array,
        sample_weight: NDArray[np.float32] | None,
        costs: LabelCosts | None,
        choice: Arrays,
        report: Tell,
    ) -> None:
        params = estimator.parameters.check(estimator)
        self._examples = X, Y, sample_weight
        self._seed, self._threads = params["random_state"], params["n_jobs"]
        self._labels = _label_blocks(choice)
        self._rows = rows_of_blocks(choice["row_blocks_"], len(self._labels))
        self._model = from_description(json.loads(choice["model"].tobytes()))

    @staticmethod
    def choose(
        estimator: BlockPartitionClassifier,
        X: csr_array | NDArray[Any],
        Y: csr_array,
        sample_weight: NDArray[np.float32] | None,
        costs: LabelCosts | None,
        report: Tell,
    ) -> Arrays:
        """Choose what all pieces share: the partition, the router and the parameters of the block models."""
        check_no_costs(estimator, costs)
        inner = base_estimator(estimator.estimator)
        built: Any = clone(estimator)
        params = built.parameters.check(built)
        with reported(None, "label", False, lambda _: report(0)) as told:
            built._fit_partition(X, Y, sample_weight, built._setting(params, (False, False)), told)
        settled = inner._settled(X, Y, sample_weight, params["n_jobs"], lambda _: report(0))
        text = json.dumps(description_of(settled)).encode()
        sizes = [len(labels) for labels in built.label_blocks_]
        return {
            **{name: np.asarray(getattr(built, name)) for name in _SHARED},
            "labels": np.concatenate([np.empty(0, np.int32), *built.label_blocks_]),
            "label_ends": np.cumsum([0, *sizes]),
            "speedup_": np.array(built.speedup_),
            "row_blocks_": built.row_blocks_,
            "router_intercept_": built.router_intercept_,
            "model": np.frombuffer(text, dtype=np.uint8),
            **{f"router_{part}": getattr(built.router_coef_, part) for part in ("indptr", "indices", "data")},
        }

    @property
    def n_units(self) -> int:
        """Number of units of the fit. A unit fits the model of one block."""
        return len(self._labels)

    @property
    def stages(self) -> list[int]:
        """For each stage, the index of its first unit. There is only one stage."""
        return [0]

    def complete(self, pieces: Sequence[Arrays], report: Tell) -> None:
        """Do nothing, because the fit has only one stage."""

    def fit(self, first: int, end: int, report: Tell) -> Arrays:
        """Fit the models of the blocks from `first` to ``end - 1``."""
        X, Y, sample_weight = self._examples
        piece: Arrays = {}
        done = 0
        for block in range(first, end):
            labels = self._labels[block]
            if len(labels) == 0:
                continue

            def tell(count: int, done: int = done) -> None:
                report(done + count)

            model = fit_block(
                self._model,
                X,
                Y,
                sample_weight,
                self._rows[block],
                labels,
                seed=self._seed,
                block=block,
                threads=self._threads,
                report=tell,
            )
            piece[f"block {block}"] = to_bytes(model)
            done += len(labels)
        return piece

    @staticmethod
    def join(
        estimator: BlockPartitionClassifier,
        choice: Arrays,
        shape: tuple[int, int],
        pieces: Sequence[Arrays],
    ) -> None:
        """Set the fitted attributes from the results of all pieces. `shape` is (n_labels, n_features)."""
        n_labels, n_features = shape
        # The order of the attributes is the same as in `fit`, since files have them in this order.
        estimator.row_blocks_, estimator.label_blocks_ = choice["row_blocks_"], _label_blocks(choice)
        models = {name: content for piece in pieces for name, content in piece.items()}
        found = [models.get(f"block {block}") for block in range(len(estimator.label_blocks_))]
        estimator.estimators_ = [None if content is None else from_bytes(content) for content in found]
        for name, kind in _SHARED.items():
            setattr(estimator, name, choice[name] if kind is None else kind(choice[name]))
        weights = (choice["router_data"], choice["router_indices"], choice["router_indptr"])
        estimator.router_coef_ = csc_array(weights, shape=(len(found), n_features))
        estimator.router_intercept_ = choice["router_intercept_"]
        estimator.classes_ = np.arange(n_labels)
        estimator.sparse_output_ = True  # the caller replaces it
        speedup = choice["speedup_"].tolist()
        estimator.speedup_ = (speedup[0], speedup[1])


def _label_blocks(choice: Arrays) -> list[NDArray[np.int32]]:
    """Return the labels of each block."""
    return np.split(choice["labels"], choice["label_ends"][1:-1])
