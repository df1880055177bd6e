"""Division of the fit of `DiSMECClassifier` into pieces, which several machines can share.

The fit divides the labels into groups, which are called units. A piece is a range of consecutive units. The
size of a unit depends on X and the loss:

- If X is dense and the loss is the squared hinge loss, a unit has up to 256 labels.
- In all other cases, a unit is also called a panel. A panel has up to 16 labels of similar frequency, or up
  to 32 labels if the labels are rare.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array, vstack

from manylabel import _core
from manylabel.estimator.base import core_rows
from manylabel.estimator.costs import LabelCosts
from manylabel.estimator.parameters import fixed_threshold
from manylabel.estimator.pieces import Arrays
from manylabel.estimator.progress import Tell
from manylabel.estimator.scaling import (
    ScaledTable,
    core_table,
    unscaled_dense,
    unscaled_weights,
)
from manylabel.linear.prepared import has_frequent_labels, prepared_rows

if TYPE_CHECKING:
    from manylabel.linear.dismec import DiSMECClassifier

__all__ = ["DiSMECPieces", "prepared_for"]


def prepared_for(X: csr_array | NDArray[Any], Y: csr_array, params: dict[str, Any], report: Tell) -> Any:
    """Memory-map the prepared rows of X, or return None if the fit must copy X in memory.

    If the prepared rows are not yet on disk, they are written first. The docstring of
    `manylabel.linear.prepared` describes the prepared rows, and `prepared_rows` describes the result.
    """
    return prepared_rows(
        X,
        normalize=params["normalize"],
        ones=params["fit_intercept"],
        by_column=params["loss"] == "logistic" or has_frequent_labels(Y, params["solver"]),
        job=(params["n_jobs"], lambda _: report(0)),
    )


class DiSMECPieces:
    """Training set of a fit of `DiSMECClassifier`, with methods that fit ranges of units.

    The class implements the interface `manylabel.estimator.pieces.Pieces`. The docstring of `Pieces` explains
    what units and stages are.
    """

    most_units = 32  # panels
    has_end = False
    has_rounds = False

    def __init__(
        self,
        estimator: DiSMECClassifier,
        X: csr_array | NDArray[Any],
        Y: csr_array,
        sample_weight: NDArray[np.float32] | None,
        costs: LabelCosts | None,
        choice: Arrays,
        report: Tell,
    ) -> None:
        params = estimator.parameters.check(estimator)
        scaled = estimator._scaled_features(X, sample_weight)
        threshold = fixed_threshold(params["threshold"])
        params |= {"learn_cut": threshold is None, "normalize": scaled.by_row, "C": float(choice["C"])}
        factors = None if costs is None else (costs.positive, costs.negative)
        self._n_jobs = params["n_jobs"]
        job = (self._n_jobs, lambda _: report(0))
        self._task: _core.DismecTask | _core.DismecDenseTask
        if isinstance(scaled, ScaledTable):
            self.most_units = 1
            examples = (core_table(scaled.X), Y, sample_weight)
            self._task = _core.DismecDenseTask(examples, scaled.columns, factors, params, job)
        else:
            prepared = prepared_for(scaled.X, Y, params, report)
            self._task = _core.DismecTask((scaled.X, Y, sample_weight), prepared, factors, params, job)

    @staticmethod
    def choose(
        estimator: DiSMECClassifier,
        X: csr_array | NDArray[Any],
        Y: csr_array,
        sample_weight: NDArray[np.float32] | None,
        costs: LabelCosts | None,
        report: Tell,
    ) -> Arrays:
        """Return the values that all pieces share: C and the scaling of X.

        C is chosen if it is "auto". The scaling consists of the flag `by_row` (whether rows are scaled to
        unit length) and, if columns are scaled, a shift and a scale for each column.
        """
        params = estimator.parameters.check(estimator)
        scaled = estimator._scaled_features(X, sample_weight)
        C = params["C"]
        if C == "auto":
            C = estimator._chosen_strength(scaled, Y, sample_weight, costs, report)
        choice: Arrays = {"C": np.float64(C), "by_row": np.bool_(scaled.by_row)}
        if scaled.columns is not None:
            choice["shift"], choice["scale"] = scaled.columns
        return choice

    @property
    def n_units(self) -> int:
        """Number of units. A unit is a group of labels that is never divided between pieces."""
        return self._task.n_units

    @property
    def stages(self) -> list[int]:
        """Index of the first unit of each stage. The fit has only one stage."""
        return [0]

    def complete(self, pieces: Sequence[Arrays], report: Tell) -> None:
        """Do nothing, because the fit has only one stage."""

    def fit(self, first: int, end: int, report: Tell) -> Arrays:
        """Fit the units (groups of labels) from `first` to ``end - 1``."""
        labels, weights, intercept, n_iter, tally = self._task.fit(first, end, (self._n_jobs, report))
        piece: Arrays = {"labels": labels, "intercept": intercept, "n_iter": n_iter}
        if isinstance(weights, np.ndarray):
            piece["weights"] = weights
        else:
            piece["indptr"], piece["indices"], piece["data"] = weights
        if tally is not None:
            piece["wanted"], piece["scores"], piece["score_weights"] = np.float64(tally[0]), *tally[1:]
        return piece

    @staticmethod
    def join(
        estimator: DiSMECClassifier, choice: Arrays, shape: tuple[int, int], pieces: Sequence[Arrays]
    ) -> None:
        """Set the fitted attributes from the results of all pieces. `shape` is (n_labels, n_features)."""
        n_labels = shape[0]
        intercept = np.full(n_labels, -np.inf, dtype=np.float32)
        n_iter = np.zeros(n_labels, dtype=np.int32)
        for piece in pieces:
            intercept[piece["labels"]] = piece["intercept"]
            n_iter[piece["labels"]] = piece["n_iter"]
        columns = (choice["shift"], choice["scale"]) if "shift" in choice else None
        if "weights" in pieces[0]:
            estimator.coef_, intercept = unscaled_dense(_dense_weights(shape, pieces), intercept, columns)
        else:
            estimator.coef_, intercept = unscaled_weights(_sparse_weights(shape, pieces), intercept, columns)
        threshold = fixed_threshold(estimator.parameters.check(estimator)["threshold"])
        cut = None
        if "wanted" in pieces[0]:
            scores, weights = (
                np.concatenate([piece[name] for piece in pieces]) for name in ("scores", "score_weights")
            )
            cut = _core.dismec_cut(float(pieces[0]["wanted"]), scores, weights)
        estimator._shift(intercept, threshold, cut)
        estimator.C_ = float(choice["C"])
        estimator.n_iter_ = n_iter
        estimator.normalize_ = bool(choice["by_row"])
        estimator.classes_ = np.arange(n_labels)
        estimator._warn_of_unfinished(stacklevel=5)


def _sparse_weights(shape: tuple[int, int], pieces: Sequence[Arrays]) -> csc_array:
    """Join the weights of all pieces into one CSC array with a row for each label.

    If a label occurs in no training row, its row in the array has no stored values.
    """
    n_labels, n_features = shape
    labels = np.concatenate([piece["labels"] for piece in pieces])
    rows: list[Any] = [
        core_rows((piece["indptr"], piece["indices"], piece["data"]), (len(piece["labels"]), n_features))
        for piece in pieces
    ]
    # The labels that occur in no training row have empty rows, which come after the other rows.
    rows.append(csr_array((n_labels - len(labels), n_features), dtype=np.float32))
    unseen = np.setdiff1d(np.arange(n_labels), labels)
    order = np.argsort(np.concatenate([labels, unseen]))
    return csr_array(vstack(rows, format="csr"))[order].tocsc()


def _dense_weights(shape: tuple[int, int], pieces: Sequence[Arrays]) -> NDArray[np.float32]:
    """Join the weights of all pieces into one ndarray. Labels that occur in no row have weights 0."""
    weights = np.zeros(shape, dtype=np.float32)
    for piece in pieces:
        weights[piece["labels"]] = piece["weights"]
    return weights
