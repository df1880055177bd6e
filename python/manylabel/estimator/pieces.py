"""The interface of estimators whose fit can be divided into pieces, which several machines can share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from manylabel.estimator.costs import LabelCosts
from manylabel.estimator.progress import Tell
from manylabel.estimator.validation import check_object

__all__ = ["Arrays", "Pieces", "Rounds", "check_no_costs", "pieces_of", "plain"]

# The result of a piece: arrays and numpy scalars by name, as in a ``.npz`` file.
Arrays = dict[str, Any]


class Pieces(Protocol):
    """A training set, and the methods that fit parts of a model to it.

    The work of a fit is divided into units. For example, one unit is the fit of one group of labels. A piece
    is a range of consecutive units. The same data, parameters and range always give the same result on the
    same type of CPU. A fit that is divided into pieces gives exactly the same fitted attributes as a fit that
    is not divided.

    A fit can have several stages, such as the levels of a tree or the regressions of a label embedding. A
    piece has units of one stage only. A piece of a later stage also needs the results of all pieces of the
    earlier stages. These results depend only on the data, the parameters and the type of CPU. Therefore, a
    piece of a later stage also gives the same result for the same data, parameters, range and type of CPU.
    """

    # With an automatic number of pieces, a piece has at most this number of units. The number may depend on
    # X.
    most_units: int

    # Whether the last stage is a single short piece that ends the fit. The process that finds the results of
    # all other pieces fits it.
    has_end: bool

    # Whether the last piece consists of rounds. All rounds must be made before this piece is fitted.
    has_rounds: bool

    def __init__(
        self,
        estimator: Any,
        X: Any,
        Y: csr_array,
        sample_weight: NDArray[np.float32] | None,
        costs: LabelCosts | None,
        choice: Arrays,
        report: Tell,
    ) -> None:
        """Prepare the training set. `choice` is the result of `choose`."""

    @staticmethod
    def choose(
        estimator: Any,
        X: Any,
        Y: csr_array,
        sample_weight: NDArray[np.float32] | None,
        costs: LabelCosts | None,
        report: Tell,
    ) -> Arrays:
        """Choose the values that all pieces share, such as values for parameters that are "auto"."""
        ...

    @property
    def n_units(self) -> int:
        """Number of units."""
        ...

    @property
    def stages(self) -> list[int]:
        """For each stage, the index of its first unit."""
        ...

    def complete(self, pieces: Sequence[Arrays], report: Tell) -> None:
        """Prepare the next stage of the fit from `pieces`, the results of all pieces of the current stage."""

    def fit(self, first: int, end: int, report: Tell) -> Arrays:
        """Fit the units from `first` to ``end - 1``."""
        ...

    def rounds(self) -> Rounds:
        """Return the object that carries out the rounds of the last piece; see `Rounds` and `has_rounds`."""
        ...

    @staticmethod
    def join(estimator: Any, choice: Arrays, shape: tuple[int, int], pieces: Sequence[Arrays]) -> None:
        """Set the fitted attributes from the results of all pieces. `shape` is (n_labels, n_features)."""


class Rounds(Protocol):
    """A fit that consists of rounds. A `Rounds` object holds the state of the fit after the finished rounds.

    Each round first computes a result from the training rows, such as a gradient. The round then takes a step
    that depends on the result, for example a step along the gradient. The computation of the result consists
    of units, which can be divided among several processes. The step is not divided: each process computes the
    whole step.
    """

    @property
    def n_threads(self) -> int:
        """Number of threads."""
        ...

    @property
    def n_rounds(self) -> int:
        """Number of finished rounds."""
        ...

    @property
    def n_units(self) -> int:
        """Number of units of the next round, or 0 if there is no further round."""
        ...

    def advance(self, least: float, seconds: float, report: Tell) -> None:
        """Carry out rounds in this process.

        The method returns when `seconds` have passed, when there is no further round, or when other processes
        should share the next round. A round should be shared if it has several units and needs at least
        `least` multiplications.
        """

    def compute(self, first: int, end: int, report: Tell) -> list[NDArray[np.uint8]]:
        """Compute some units of the next round: the units from `first` to ``end - 1``."""
        ...

    def complete(self, results: Sequence[NDArray[np.uint8]], report: Tell) -> None:
        """Finish the next round, after all of its units have been computed.

        `results` holds the results of `compute` for all units of the round, in order. One array can hold the
        results of several consecutive units.
        """

    def state(self) -> NDArray[np.uint8]:
        """Return the state, from which `restore` continues the fit."""
        ...

    def restore(self, state: NDArray[np.uint8], report: Tell) -> None:
        """Continue the fit from a state that `state` returned."""


def pieces_of(estimator: Any) -> type[Pieces]:
    """Return the class that divides the fit of an estimator into pieces.

    Raises
    ------
    TypeError
        If the fit of the estimator cannot be divided into pieces.
    """
    check_object(estimator)
    cut = getattr(estimator, "_cut", None)
    if cut is None:
        raise TypeError(
            f"the fit of {type(estimator).__name__} cannot be divided into pieces; only the fits of "
            "DiSMECClassifier, LabelTreeClassifier, BlockPartitionClassifier, CorrLogClassifier and "
            "Rembrandt can"
        )
    found: type[Pieces] = cut()
    return found


def check_no_costs(estimator: Any, costs: LabelCosts | None) -> None:
    """Raise an error if `costs` is given, since `estimator` does not support label costs.

    `costs` holds the weights and propensities of the labels.

    Raises
    ------
    TypeError
        If `costs` is not None.
    """
    if costs is not None:
        raise TypeError(
            f"`label_weight` and `propensities` must be None, since {type(estimator).__name__} does not "
            "support them"
        )


def plain(piece: Arrays) -> dict[str, Any]:
    """Return a copy of the results of a piece, with Python scalars instead of arrays of shape ()."""
    return {name: value.item() if np.ndim(value) == 0 else value for name, value in piece.items()}
