"""Division of the fit of `CorrLogClassifier` into rounds that several processes can share.

The processes share a folder; see `manylabel.shards`. Most rounds compute a gradient. For each label, the
gradient is a sum over all rows. The labels and the rows are divided into groups. If several processes share a
round, each process computes a part of the gradient: the sums over some groups of rows for some groups of
labels. After the last round, one file with the whole model is written to the folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.base import clone

from manylabel import _core
from manylabel.estimator.costs import LabelCosts
from manylabel.estimator.pieces import Arrays, Rounds, check_no_costs, plain
from manylabel.estimator.progress import Tell
from manylabel.estimator.validation import known_ones, unknown_entries

if TYPE_CHECKING:
    from manylabel.correlated.classifier import CorrLogClassifier

__all__ = ["CorrLogPieces"]

# Names of the items of the result of the core, in order. An item is an array or a tuple of arrays.
_FITTED: dict[str, tuple[str, ...] | None] = {
    "coef": ("indptr", "indices", "data"),
    "intercept": None,
    "correlations": ("indptr", "indices", "data"),
    "label_sets": ("indptr", "indices"),
    "label_set_energies": None,
    "end": ("objective", "kkt", "n_iter", "converged"),
}


class CorrLogPieces:
    """The training set of a `CorrLogClassifier`, and methods that fit the model in rounds (see `Pieces`)."""

    most_units = 1
    has_end = True
    has_rounds = True

    n_units = 1
    stages: ClassVar[list[int]] = [0]

    def __init__(
        self,
        estimator: CorrLogClassifier,
        X: csr_array | NDArray[Any],
        Y: csr_array,
        sample_weight: NDArray[np.float32] | None,
        costs: LabelCosts | None,
        choice: Arrays,
        report: Tell,
    ) -> None:
        self._estimator, self._choice = estimator, choice
        self._examples = X, Y, sample_weight
        params = estimator.parameters.check(estimator) | _settled(choice)
        self._n_jobs = params["n_jobs"]
        self._task = _core.CorrelatedTask(
            (X, known_ones(Y), sample_weight),
            unknown_entries(Y),
            params,
            (self._n_jobs, lambda _: report(0)),
        )

    @staticmethod
    def choose(
        estimator: CorrLogClassifier,
        X: csr_array | NDArray[Any],
        Y: csr_array,
        sample_weight: NDArray[np.float32] | None,
        costs: LabelCosts | None,
        report: Tell,
    ) -> Arrays:
        """Choose `l2_features`, `l2_pairs` and `standardize`, unless they are given.

        The values are chosen with models without couplings. If the threshold is learned and some rows can be
        held out, these models also give a first threshold. `fit` starts its search for the final threshold at
        this value.
        """
        check_no_costs(estimator, costs)
        params = estimator._checked()
        cut = estimator._chosen(params, X, Y, sample_weight, lambda _: report(0))
        choice = {name: np.asarray(params[name]) for name in ("l2_features", "l2_pairs", "standardize")}
        return choice if cut is None else choice | {"cut": np.array(cut)}

    def complete(self, pieces: Sequence[Arrays], report: Tell) -> None:
        """Do nothing, since the fit has only one stage (see `Pieces`)."""

    def rounds(self) -> Rounds:
        """Return an object that carries out the rounds of the fit one after the other (see `Rounds`)."""
        return _Rounds(self._task, self._examples[0], self._n_jobs)

    def fit(self, first: int, end: int, report: Tell) -> Arrays:
        """Return the arrays of the fitted model. All rounds must be finished first."""
        X, Y, sample_weight = self._examples
        fitted: tuple[Any, ...] = self._task.take_model(known_ones(Y), (self._n_jobs, report))
        arrays: Arrays = {}
        for (item, parts), values in zip(_FITTED.items(), fitted, strict=True):
            if parts is None:
                arrays[item] = values
            else:
                arrays |= {f"{item}_{part}": value for part, value in zip(parts, values, strict=True)}
        if "cut" in self._choice:
            model = clone(self._estimator)
            model.n_features_in_ = X.shape[1]
            model._set_fitted(fitted, _settled(self._choice), X.shape[1])
            first_cut, share = self._choice["cut"].tolist()
            arrays["threshold"] = np.float64(
                model._matching_threshold(X, Y, sample_weight, (first_cut, share), self._n_jobs)
            )
        return arrays

    @staticmethod
    def join(
        estimator: CorrLogClassifier, choice: Arrays, shape: tuple[int, int], pieces: Sequence[Arrays]
    ) -> None:
        """Set the fitted attributes. `shape` is (n_labels, n_features).

        This fit has a single piece, so `pieces` has one element.
        """
        arrays = plain(pieces[0])
        fitted = tuple(
            arrays[item] if parts is None else tuple(arrays[f"{item}_{part}"] for part in parts)
            for item, parts in _FITTED.items()
        )
        estimator._set_fitted(fitted, _settled(choice), shape[1])
        if "threshold" in arrays:
            estimator.threshold_ = arrays["threshold"]
        if not arrays["end_converged"]:
            estimator._warn_of_end(stacklevel=5)


class _Rounds:
    """The rounds of a `CorrLogClassifier` fit, computed by the Rust core (see `Rounds`)."""

    def __init__(self, task: _core.CorrelatedTask, X: csr_array | NDArray[Any], n_threads: int) -> None:
        self._task, self._X, self.n_threads = task, X, n_threads

    @property
    def n_rounds(self) -> int:
        return self._task.n_rounds

    @property
    def n_units(self) -> int:
        return self._task.n_units

    def advance(self, least: float, seconds: float, report: Tell) -> None:
        self._task.advance(self._X, least, seconds, (self.n_threads, report))

    def compute(self, first: int, end: int, report: Tell) -> list[NDArray[np.uint8]]:
        return self._task.compute(first, end, (self.n_threads, report))

    def complete(self, results: Sequence[NDArray[np.uint8]], report: Tell) -> None:
        self._task.complete(list(results), self._X, (self.n_threads, report))

    def state(self) -> NDArray[np.uint8]:
        return self._task.state((self.n_threads, None))

    def restore(self, state: NDArray[np.uint8], report: Tell) -> None:
        self._task.restore(state, self._X, (self.n_threads, report))


def _settled(choice: Arrays) -> dict[str, Any]:
    """Return `l2_features`, `l2_pairs` and `standardize` from `choice`, as two floats and a bool."""
    return {
        "l2_features": float(choice["l2_features"]),
        "l2_pairs": float(choice["l2_pairs"]),
        "standardize": bool(choice["standardize"]),
    }
