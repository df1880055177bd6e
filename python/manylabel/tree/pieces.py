"""Pieces of the fit of `LabelTreeClassifier`.

The levels of the trees are fitted one after the other. A piece is the fit of some of the nodes of a level.
The last piece is different: it learns `path_weight_` and `threshold_` from the scores of held-out rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from manylabel import _core
from manylabel.datasets.rows import folder_of
from manylabel.estimator.costs import LabelCosts
from manylabel.estimator.pieces import Arrays, plain
from manylabel.estimator.progress import Tell
from manylabel.estimator.scaling import ScaledFeatures, ScaledTable, core_table, scaled_columns
from manylabel.linear.prepared import original_rows

if TYPE_CHECKING:
    from manylabel.tree.classifier import LabelTreeClassifier

__all__ = ["TreePieces", "fitted_trees"]

_TREES = ("children", "spans", "levels", "orders")


class TreePieces:
    """Training set of a fit of `LabelTreeClassifier`, with methods that fit ranges of nodes; see `Pieces`."""

    most_units = 8
    has_end = True
    has_rounds = False

    def __init__(
        self,
        estimator: LabelTreeClassifier,
        X: csr_array | NDArray[Any],
        Y: csr_array,
        sample_weight: NDArray[np.float32] | None,
        costs: LabelCosts | None,
        choice: Arrays,
        report: Tell,
    ) -> None:
        params = _params(estimator, choice)
        self._n_jobs = params["n_jobs"]
        examples = core_examples(X, _columns(choice), Y, sample_weight)
        self._task = _task(examples, costs, params, choice, None, report)
        self._levels = choice["levels"].tolist()

    @staticmethod
    def choose(
        estimator: LabelTreeClassifier,
        X: csr_array | NDArray[Any],
        Y: csr_array,
        sample_weight: NDArray[np.float32] | None,
        costs: LabelCosts | None,
        report: Tell,
    ) -> Arrays:
        """Build the trees, and choose the values of parameters that are "auto"; see `Pieces.choose`."""
        checked = estimator.parameters.check(estimator)
        params, scaled, vectors = estimator._settled_params(checked, X, Y, sample_weight, costs, report)
        task = _task(_examples(scaled, Y, sample_weight), costs, params, None, vectors, report)
        choice = {
            "C": np.float64(params["C"]),
            "prune": np.float64(params["prune"]),
            "by_row": np.bool_(params["normalize"]),
            "max_leaf": np.int64(params["max_leaf"]),
            "measurements": np.bool_(params["measurements"]),
            **task.trees(),
        }
        if scaled.columns is not None:
            choice["shift"], choice["scale"] = scaled.columns
        return choice

    @property
    def n_units(self) -> int:
        """Number of units: one for each node, and one that learns `path_weight_` and `threshold_`."""
        n_nodes: int = self._levels[-1]
        return n_nodes + 1

    @property
    def stages(self) -> list[int]:
        """Index of the first unit of each stage.

        A level without leaves is one stage. A level with leaves has one stage for each tree. The last stage
        follows all levels, and learns `path_weight_` and `threshold_`.
        """
        return list(self._levels)

    def complete(self, pieces: Sequence[Arrays], report: Tell) -> None:
        """Add the results of all pieces of a level, so that the nodes of the next level can be fitted."""
        self._task.complete([plain(piece) for piece in pieces], (self._n_jobs, lambda _: report(0)))

    def fit(self, first: int, end: int, report: Tell) -> Arrays:
        """Fit the units from `first` to ``end - 1``."""
        if first == self._levels[-1]:
            path_weight, cut = self._task.learn((self._n_jobs, lambda _: report(0)))
            learned = {"path_weight": np.float64(path_weight)}
            return learned if cut is None else learned | {"cut": np.float64(cut)}
        return self._task.fit(first, end, (self._n_jobs, report))

    @staticmethod
    def join(
        estimator: LabelTreeClassifier, choice: Arrays, shape: tuple[int, int], pieces: Sequence[Arrays]
    ) -> None:
        """Set the fitted attributes of `estimator` from the results of all pieces.

        `shape` is the pair (n_labels, n_features).
        """
        *of_nodes, learned = pieces
        params = _params(estimator, choice)
        attributes, n_iter, n_unfinished = _core.join_tree(
            _trees(choice), shape, [plain(piece) for piece in of_nodes], params
        )
        attributes["path_weight_"] = float(learned["path_weight"])
        cut = float(learned["cut"]) if "cut" in learned else None
        estimator._set_fitted(attributes, cut, n_iter, params, shape[0], _columns(choice))
        estimator._warn_of_unfinished(n_unfinished, stacklevel=5)


def fitted_trees(
    scaled: ScaledFeatures | ScaledTable,
    Y: csr_array,
    sample_weight: NDArray[np.float32] | None,
    costs: LabelCosts | None,
    params: dict[str, Any],
    vectors: Any,
    report: Tell,
) -> tuple[dict[str, Any], float | None, int, int]:
    """Fit trees. The result is the same as the result of the function `fit_tree` of the Rust core.

    If X is memory-mapped from a folder that `manylabel.datasets.convert` wrote, X is not copied into memory.
    """
    job = (params["n_jobs"], report)
    examples = _examples(scaled, Y, sample_weight)
    if folder_of(scaled.X) is None:
        factors = None if costs is None else (costs.positive, costs.negative)
        return _core.fit_tree(*examples, factors, params, vectors, job)
    task = _task(examples, costs, params, None, vectors, report)
    before = done = 0

    def count(now: int) -> None:
        nonlocal done
        done = before + now
        report(done)

    fitting, waiting = (params["n_jobs"], count), (params["n_jobs"], lambda _: report(done))
    for first, end in pairwise(task.levels.tolist()):
        task.complete([task.fit(first, end, fitting)], waiting)
        before = done
    path_weight, cut = task.learn(waiting)
    attributes, n_iter, n_unfinished = task.take_model(waiting)
    return attributes | {"path_weight_": path_weight}, cut, n_iter, n_unfinished


# X, Y and the weights of the rows or None; and the shift and the scale of each column of a dense X, or None.
_Examples = tuple[
    tuple[csr_array | NDArray[Any], csr_array, NDArray[np.float32] | None],
    tuple[NDArray[np.float64], NDArray[np.float64]] | None,
]


def core_examples(
    X: csr_array | NDArray[Any],
    columns: tuple[NDArray[np.float64], NDArray[np.float64]] | None,
    Y: csr_array,
    sample_weight: NDArray[np.float32] | None,
) -> _Examples:
    """Return a training set for the Rust core.

    The columns of a sparse X are scaled here. The columns of a dense X are scaled later, by the core.
    """
    if isinstance(X, np.ndarray):
        return (core_table(X), Y, sample_weight), columns
    return (scaled_columns(X, columns), Y, sample_weight), None


def _examples(
    scaled: ScaledFeatures | ScaledTable, Y: csr_array, sample_weight: NDArray[np.float32] | None
) -> _Examples:
    """Return a training set for the core.

    The X of a `ScaledFeatures` is sparse, and the X of a `ScaledTable` is dense. With column scaling, the
    sparse X contains scaled values. The dense X contains unscaled values, and the core scales its columns
    later.
    """
    columns = scaled.columns if isinstance(scaled, ScaledTable) else None
    return core_examples(scaled.X, columns, Y, sample_weight)


def _columns(choice: Arrays) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Return the shift and the scale of each column, or None if columns are not scaled."""
    return (choice["shift"], choice["scale"]) if "shift" in choice else None


def _params(estimator: LabelTreeClassifier, choice: Arrays) -> dict[str, Any]:
    """Return the parameters for the core."""
    settled = {
        "C": float(choice["C"]),
        "prune": float(choice["prune"]),
        "normalize": bool(choice["by_row"]),
        "max_leaf": int(choice["max_leaf"]),
        "measurements": bool(choice["measurements"]),
    }
    return estimator._core_params(estimator.parameters.check(estimator) | settled)


def _task(
    examples: _Examples,
    costs: LabelCosts | None,
    params: dict[str, Any],
    choice: Arrays | None,
    vectors: Any,
    report: Tell,
) -> _core.TreeTask:
    job = (params["n_jobs"], lambda _: report(0))
    return _core.TreeTask(
        *examples,
        original_rows(examples[0][0], normalize=params["normalize"], job=job),
        None if costs is None else (costs.positive, costs.negative),
        params,
        None if choice is None else _trees(choice),
        vectors,
        job,
    )


def _trees(choice: Arrays) -> dict[str, Any]:
    return {name: choice[name] for name in _TREES}
