"""Pieces of the fit of `DiSMECClassifier`.

The fit divides the labels into panels. A panel has up to sixteen labels of similar frequency, or up to
thirty-two if the labels are rare. A piece is the fit of a range of panels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from manylabel import _core
from manylabel.estimator.base import core_rows
from manylabel.estimator.costs import LabelCosts
from manylabel.estimator.parameters import fixed_threshold
from manylabel.estimator.pieces import Arrays
from manylabel.estimator.progress import Tell
from manylabel.estimator.scaling import ScaledFeatures, unscaled_weights
from manylabel.linear.prepared import has_frequent_labels, prepared_rows

if TYPE_CHECKING:
    from manylabel.linear.dismec import DiSMECClassifier

__all__ = ["DiSMECPieces", "prepared_for"]


def prepared_for(X: csr_array, Y: csr_array, params: dict[str, Any], report: Tell) -> Any:
    """Return the prepared rows of X that are stored on disk, or None if the fit copies X in memory."""
    return prepared_rows(
        X,
        normalize=params["normalize"],
        ones=params["fit_intercept"],
        by_column=params["loss"] == "logistic" or has_frequent_labels(Y, params["solver"]),
        job=(params["n_jobs"], lambda _: report(0)),
    )


class DiSMECPieces:
    """The training set of a fit, and methods that fit ranges of panels to it; see `Pieces`."""

    most_units = 32
    has_end = False
    has_rounds = False

    def __init__(
        self,
        estimator: DiSMECClassifier,
        X: csr_array,
        Y: csr_array,
        sample_weight: NDArray[np.float32] | None,
        costs: LabelCosts | None,
        choice: Arrays,
        report: Tell,
    ) -> None:
        params = estimator.parameters.check(estimator)
        scaled = ScaledFeatures(X, sample_weight, estimator.normalize, center=params["fit_intercept"])
        threshold = fixed_threshold(params["threshold"])
        params |= {"learn_cut": threshold is None, "normalize": scaled.by_row, "C": float(choice["C"])}
        prepared = prepared_for(scaled.X, Y, params, report)
        self._n_jobs = params["n_jobs"]
        self._n_features = X.shape[1]
        examples = (scaled.X, Y, sample_weight)
        factors = None if costs is None else (costs.positive, costs.negative)
        self._task = _core.DismecTask(
            examples, prepared, factors, params, (self._n_jobs, lambda _: report(0))
        )

    @staticmethod
    def choose(
        estimator: DiSMECClassifier,
        X: csr_array,
        Y: csr_array,
        sample_weight: NDArray[np.float32] | None,
        costs: LabelCosts | None,
        report: Tell,
    ) -> Arrays:
        """Choose the values that all pieces share: C and the scaling of the columns."""
        params = estimator.parameters.check(estimator)
        scaled = ScaledFeatures(X, sample_weight, estimator.normalize, center=params["fit_intercept"])
        C = params["C"]
        if C == "auto":
            C = estimator._chosen_strength(scaled, Y, sample_weight, costs, report)
        choice: Arrays = {"C": np.float64(C), "by_row": np.bool_(scaled.by_row)}
        if scaled.columns is not None:
            choice["shift"], choice["scale"] = scaled.columns
        return choice

    @property
    def n_units(self) -> int:
        """Number of panels. A panel is never divided between pieces."""
        return self._task.n_panels

    @property
    def stages(self) -> list[int]:
        """For each stage, the index of its first unit. There is only one stage."""
        return [0]

    def complete(self, pieces: Sequence[Arrays], report: Tell) -> None:
        """Do nothing, because the fit has only one stage."""

    def fit(self, first: int, end: int, report: Tell) -> Arrays:
        """Fit the panels (groups of labels) from `first` to ``end - 1``."""
        labels, (indptr, indices, data), intercept, n_iter, tally = self._task.fit(
            first, end, (self._n_jobs, report)
        )
        piece: Arrays = {
            "labels": labels,
            "indptr": indptr,
            "indices": indices,
            "data": data,
            "intercept": intercept,
            "n_iter": n_iter,
        }
        if tally is not None:
            piece["wanted"], piece["scores"], piece["score_weights"] = np.float64(tally[0]), *tally[1:]
        return piece

    @staticmethod
    def join(
        estimator: DiSMECClassifier, choice: Arrays, shape: tuple[int, int], pieces: Sequence[Arrays]
    ) -> None:
        """Set the fitted attributes from the results of all pieces. `shape` is (n_labels, n_features)."""
        n_labels, n_features = shape
        labels = np.concatenate([piece["labels"] for piece in pieces] or [np.empty(0, np.int32)])
        rows: list[Any] = [
            core_rows((piece["indptr"], piece["indices"], piece["data"]), (len(piece["labels"]), n_features))
            for piece in pieces
        ]
        # The labels that occur in no training row have empty rows, which come after the other rows.
        rows.append(csr_array((n_labels - len(labels), n_features), dtype=np.float32))
        unseen = np.setdiff1d(np.arange(n_labels), labels)
        order = np.argsort(np.concatenate([labels, unseen]))
        coef = csr_array(vstack(rows, format="csr"))[order].tocsc()
        intercept = np.full(n_labels, -np.inf, dtype=np.float32)
        n_iter = np.zeros(n_labels, dtype=np.int32)
        for piece in pieces:
            intercept[piece["labels"]] = piece["intercept"]
            n_iter[piece["labels"]] = piece["n_iter"]
        columns = (choice["shift"], choice["scale"]) if "shift" in choice else None
        estimator.coef_, intercept = unscaled_weights(coef, intercept, columns)
        threshold = fixed_threshold(estimator.parameters.check(estimator)["threshold"])
        cut = None
        if pieces and "wanted" in pieces[0]:
            scores, weights = (
                np.concatenate([piece[name] for piece in pieces]) for name in ("scores", "score_weights")
            )
            cut = _core.dismec_cut(float(pieces[0]["wanted"]), scores, weights)
        estimator._shift(intercept, threshold, cut)
        estimator.C_ = float(choice["C"])
        estimator.n_iter_ = n_iter
        estimator.normalize_ = bool(choice["by_row"])
        estimator.classes_ = np.arange(n_labels)
        estimator._warn_of_unfinished(stacklevel=4)
