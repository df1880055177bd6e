"""Pieces of the fit of `Rembrandt`.

The fit has several stages. With the solver "cholesky", the first stage computes the Gram matrix of the
features. With the solver "dual", it computes the Gram matrix of the rows. Further stages choose the ridge
penalties and multiply the random vectors by ``Y'PY``. A regression then computes the matrix W. The docstring
of `Rembrandt` defines ``Y'PY`` and W. The last stage makes the model.

Each stage consists of units. Depending on the stage, a unit is the computation of a strip of rows of the Gram
matrix, the choice of a penalty, the fit of a group of 32 components, or the construction of the model. A
piece is a range of units of one stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from manylabel import _core
from manylabel.estimator.costs import LabelCosts
from manylabel.estimator.pieces import Arrays, check_no_costs, plain
from manylabel.estimator.progress import Tell

if TYPE_CHECKING:
    from manylabel.embedding.rembrandt import Rembrandt

__all__ = ["RembrandtPieces"]

# Names of the items of the result of the core, in order. The last item is left out, since pieces have no
# leave-one-out predictions.
_FITTED = ("label_embedding", "coef", "intercept", "eigenvalues", "n_iter", "n_unfinished", "penalties")


class RembrandtPieces:
    """Training set of a fit of `Rembrandt`, with methods that compute units of the fit; see `Pieces`."""

    # A group of 32 components is fitted by one thread.
    most_units = 8
    has_end = True
    has_rounds = False

    def __init__(
        self,
        estimator: Rembrandt,
        X: csr_array | NDArray[Any],
        Y: csr_array,
        sample_weight: NDArray[np.float32] | None,
        costs: LabelCosts | None,
        choice: Arrays,
        report: Tell,
    ) -> None:
        params = estimator._core_params() | {"n_components": int(choice["n_components"])}
        self._n_jobs = params["n_jobs"]
        self._task = _core.PlsTask((X, Y, sample_weight), params, (self._n_jobs, lambda _: report(0)))
        self._stages = self._task.stages

    @staticmethod
    def choose(
        estimator: Rembrandt,
        X: csr_array | NDArray[Any],
        Y: csr_array,
        sample_weight: NDArray[np.float32] | None,
        costs: LabelCosts | None,
        report: Tell,
    ) -> Arrays:
        """Choose the number of components. Later stages of the fit choose the ridge penalties."""
        check_no_costs(estimator, costs)
        if estimator.embedding == "pca":
            raise TypeError(
                '`embedding` must not be "pca", since the fit of principal components cannot be divided into '
                "pieces"
            )
        if np.isnan(Y.data).any():
            raise TypeError(
                "`Y` must have no unknown entries (NaN), because a fit of Rembrandt with unknown entries "
                "cannot be divided into pieces"
            )
        params = estimator._core_params()
        n_components = params["n_components"]
        if isinstance(n_components, float):
            n_components = _core.pls_n_components(Y, sample_weight, params, params["n_jobs"])
        return {"n_components": np.int64(n_components)}

    @property
    def n_units(self) -> int:
        """Number of units of work.

        A unit computes a strip of rows of the Gram matrix, chooses a penalty, fits a group of components, or
        makes the model.
        """
        return self._stages[-1]

    @property
    def stages(self) -> list[int]:
        """For each stage, the index of its first unit. The last stage makes the model."""
        return self._stages[:-1]

    def complete(self, pieces: Sequence[Arrays], report: Tell) -> None:
        """Complete a stage with the results of all its pieces. The next stage can then be fitted."""
        self._task.complete([plain(piece) for piece in pieces], (self._n_jobs, lambda _: report(0)))

    def fit(self, first: int, end: int, report: Tell) -> Arrays:
        """Fit the units from `first` to ``end - 1``."""
        if first == self._stages[-2]:
            fitted = self._task.take_model((self._n_jobs, lambda _: report(0)))
            named = zip(_FITTED, fitted[:-1], strict=True)
            return {name: np.asarray(value) for name, value in named if value is not None}
        return self._task.fit(first, end, (self._n_jobs, report))

    @staticmethod
    def join(estimator: Rembrandt, choice: Arrays, shape: tuple[int, int], pieces: Sequence[Arrays]) -> None:
        """Set the fitted attributes from the results of all pieces. `shape` is (n_labels, n_features)."""
        model = pieces[-1]
        estimator._set_fitted(
            (
                model["label_embedding"],
                model["coef"],
                model["intercept"],
                model.get("eigenvalues"),
                int(model["n_iter"]),
                int(model["n_unfinished"]),
                (float(model["penalties"][0]), float(model["penalties"][1])),
            )
        )
        estimator.classes_ = np.arange(shape[0])
        estimator._warn_of_unfinished(int(model["n_unfinished"]), stacklevel=5)
