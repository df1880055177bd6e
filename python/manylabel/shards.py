"""Fits that are divided into pieces and can be continued after an interruption.

A piece is a part of the fit: some labels, some nodes of label trees, the models of some blocks of rows and
labels, or some components of a label embedding. Each finished piece is stored as a file in a folder. A fit
can be interrupted at any time. If it is started again, it reuses the finished pieces. Several processes or
machines that share the folder can fit different pieces. If all of them have the same type of CPU, the fitted
model is exactly the same as a model that was fitted with the method ``fit`` of the estimator. The fit of a
`CorrLogClassifier` is not divided into pieces. It consists of many rounds, and its state is stored from time
to time. If a round takes long enough, the processes share its work.

The folder has the file ``fit.json`` with the parameters of the estimator, the type of the CPU, and checksums
of the data. The file ``choice.npz`` has the values that all pieces share, such as the chosen value of a
parameter that is "auto". Each piece has a file, such as ``piece-000000.npz``. If label weights or
propensities are given, they are in the file ``costs.npz``. Each file is written under a temporary name and
renamed when it is complete.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import zlib
from collections.abc import Iterable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse
from sklearn.base import clone
from sklearn.utils import check_random_state

from manylabel import _core
from manylabel.aside import read_arrays, write_arrays, written_aside
from manylabel.datasets.rows import checksum_of, data_or_rows, is_of_folder
from manylabel.estimator.base import MultiLabelClassifier
from manylabel.estimator.costs import LabelCosts, label_costs
from manylabel.estimator.names import as_names, column_names, values_of_frame
from manylabel.estimator.parameters import Count, shown
from manylabel.estimator.pieces import Arrays, Pieces, pieces_of
from manylabel.estimator.progress import Progress, Report, Tell, reported
from manylabel.estimator.validation import as_column, check_training_set, one_hot
from manylabel.persistence import description_of, from_description
from manylabel.rounds import SharedRounds, SumOfJobs

__all__ = ["fit", "merge"]

# Number of items of an array whose checksum is computed at a time.
_ITEMS = 1 << 22

# Version of the folder format.
_FORM = 4

# Name of the array that tells which piece of which fit a file has.
_IDENTITY = "identity"

# With "auto", a stage has at most this number of pieces.
_MOST_PIECES = 4096
# With "auto", the pieces of a stage become larger only if there are more than this number of pieces.
_ENOUGH_PIECES = 32
# With "auto" and fewer pieces than that, a piece has at most this number of units, and at least half of it if
# there are several pieces. A machine fits one piece at a time, and most units are fitted by one thread.
_FEW_UNITS = 8


def fit(
    estimator: Any,
    X: Any,
    Y: Any = None,
    sample_weight: Any = None,
    *,
    checkpoint: str | os.PathLike[str],
    n_pieces: int | Literal["auto"] = "auto",
    piece: tuple[int, int] = (1, 1),
    any_cpu: bool = False,
    label_weight: Any = None,
    propensities: Any = None,
    progress: Progress = None,
) -> Any:
    """Fit an estimator piece by piece, and store each finished piece in a folder.

    A piece is a part of the fit, such as the fit of a group of labels.

    If the call is interrupted or the process is killed, make the same call again. The second call reuses the
    finished pieces. Only the piece that was being fitted is lost.

    Parameters
    ----------
    estimator : estimator
        The estimator: a `DiSMECClassifier`, a `LabelTreeClassifier`, a `CorrLogClassifier`, a
        `BlockPartitionClassifier` whose `estimator` is from this library, or a `Rembrandt` whose `embedding`
        is not "pca". The given object is not changed.
    X : array-like or sparse matrix of shape (n_samples, n_features), str or path-like
        Features, or the path of a folder that `manylabel.datasets.convert` has written.
    Y : array-like or sparse matrix of shape (n_samples, n_labels), default=None
        0/1 indicator matrix, in which NaN marks unknown entries. With `Rembrandt`, all entries must be known.
        Y must be None if X is a folder.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the rows, >= 0. None means equal weights.
    checkpoint : str or path-like
        The folder of the finished pieces. It is created if it does not exist.
    n_pieces : int or "auto", default="auto"
        Number of pieces; >= 1. Machines that share the folder must use the same value. The meaning of
        `n_pieces` depends on the estimator:

        - `DiSMECClassifier` fits labels in groups. If X is dense and the loss is the squared hinge loss, a
          group has up to 256 labels. Otherwise, a group has up to 16 labels, or up to 32 if the labels are
          rare. There are at most as many pieces as groups.
        - With `LabelTreeClassifier`, a level without leaves has `n_pieces` pieces for all trees together. A
          level with leaves has `n_pieces` pieces for each tree. There are at most as many pieces as nodes.
        - With `BlockPartitionClassifier`, there are at most as many pieces as blocks.
        - The fit of a `Rembrandt` consists of several regressions. A regression fits the components in groups
          of 32. `n_pieces` is the number of pieces of each regression. A regression has at most as many
          pieces as groups.
        - The fit of a `CorrLogClassifier` consists of rounds (see Notes). If several processes share the
          folder, each round is divided into at most `n_pieces` pieces. With "auto", a round is divided
          into at most 16 pieces, and rounds that take less than about 0.05 seconds are not divided.

        For all estimators except `CorrLogClassifier`, "auto" sets the size of the pieces as listed below. If
        these sizes would give more than 4,096 pieces, the pieces are larger. With `LabelTreeClassifier`, this
        limit applies to each level. With `Rembrandt`, it applies to each regression.

        - A piece of a `BlockPartitionClassifier` is one block.
        - A piece of a `LabelTreeClassifier` has up to eight nodes.
        - A piece of a `Rembrandt` has up to eight groups. Each group is fitted by one thread, so a piece of
          eight groups uses at most eight threads.
        - If X is dense and the loss is the squared hinge loss, a piece of a `DiSMECClassifier` is one group.
          All threads work on one group at a time.
        - With a sparse X or another loss, a piece of a `DiSMECClassifier` has up to eight groups. If there
          are more than 256 groups in total, a piece has up to 32 groups. Each group is fitted by one thread.
    piece : tuple of two int, default=(1, 1)
        With ``(i, N)``, this call fits every N-th piece, starting with the i-th piece; 1 <= i <= N. If N
        machines share the folder, each machine must use a different i. With `LabelTreeClassifier`, a piece
        needs the results of all pieces of the levels above. With `Rembrandt`, a piece needs the results of
        all pieces of the earlier regressions. If other machines have not finished some of the needed pieces,
        this call also fits those pieces. With `CorrLogClassifier`, N calls divide the pieces of each round
        among themselves, and this call computes the i-th share. If the results of another call are late, this
        call computes the missing pieces itself. With `CorrLogClassifier`, each of the N calls returns the
        estimator.
    any_cpu : bool, default=False
        Whether machines with different types of CPU may share the folder. The last digits of the weights of a
        piece depend on the type of CPU of the machine that fitted the piece.
    label_weight : array-like of shape (n_labels,), default=None
        Weights of the labels, > 0, as in the method ``fit`` of the estimator. None means equal weights.
    propensities : array-like of shape (n_labels,), default=None
        Propensities of the labels, in (0, 1], as in the method ``fit`` of the estimator. None means that all
        true labels are recorded in Y.
    progress : callable, default=None
        Function that is called about 20 times per second. Its argument is the number of labels that this call
        of `fit` has fitted. With `Rembrandt`, the argument is instead the number of groups of components that
        this call has fitted in all regressions. If the function raises an exception, the fit stops.

    Returns
    -------
    estimator or None
        The fitted estimator, or None if other machines have not finished their pieces. If the result is None,
        call `merge` when all pieces are finished.

    Raises
    ------
    TypeError
        If the fit of the estimator cannot be divided into pieces, if its ``random_state`` is a RandomState,
        or if `estimator` or `checkpoint` has the wrong type.
    ValueError
        If an argument is not valid, or if the folder was made with other data, other parameters, another
        version of manylabel or another type of CPU. The message states the difference.
    OSError
        If a file cannot be written, for example because the disk is full. Make the same call again later.

    See Also
    --------
    merge : Make the estimator from a folder with all pieces.
    manylabel.dask.fit : Fit the pieces on the workers of a cluster.

    Notes
    -----
    With ``random_state=None``, the seed is drawn once and stored in the folder. The parameters `n_jobs` and
    `verbose` may differ between calls.

    Each call needs as much memory for X as the method ``fit`` of the estimator. A dense X can be
    memory-mapped from a file, for example with ``numpy.load("X.npy", mmap_mode="r")``. X must not change
    during the fit. If X is a folder, `DiSMECClassifier` and `LabelTreeClassifier` usually do not copy X into
    memory. If their parameter `normalize` scales columns, they do. A call with `DiSMECClassifier` needs
    memory for the weights of one piece only. However, the call that returns the estimator needs memory for
    all weights. With `LabelTreeClassifier`, each call sends all rows through the finished levels of the
    trees, and needs memory for the weights of these levels.

    With `Rembrandt`, each call copies Y. If X is sparse, each call also copies X, even if X is a folder. Each
    call reads the pieces of the finished regressions and orthogonalizes their results. An orthogonalization
    takes O(n_labels m^2) time, where m is the number of random vectors (see `Rembrandt`). If the parameter
    `solver` is not "cg", each call also factorizes the Gram matrix once for each penalty. For each group of
    components in a piece, the file of the piece has ``32 * n_labels`` numbers. In the last regression, the
    file instead has ``32 * n_features`` numbers for each group of components.

    The fit of a `CorrLogClassifier` consists of rounds. A round usually computes a gradient and then takes a
    step. The state of the fit is stored every five seconds. If storing a state takes more than 0.25 seconds,
    states are stored less often, so that storing takes at most a twentieth of the time of the fit. If the
    process is killed, the rounds after the last stored state are lost. A stored state has up to seven numbers
    for each pair of a feature and a label. It also has the curvature estimates of the quasi-Newton steps.
    Each call needs as much memory as the method ``fit`` of the estimator. If several processes share the
    folder, each of them copies X, takes all steps, and reads the results of the others in each round. In each
    round, the processes together write one number for each pair of a feature and a label. With fewer than 500
    labels, they write up to 16 numbers for each pair. The folder should therefore be on a fast disk.

    Examples
    --------
    >>> import tempfile
    >>> import manylabel as ml
    >>> X, Y = ml.datasets.make_multilabel(200, 50, 40, random_state=0)
    >>> folder = tempfile.mkdtemp()
    >>> model = ml.DiSMECClassifier(random_state=0)
    >>> ml.shards.fit(model, X, Y, checkpoint=folder, n_pieces=3, piece=(1, 2)) is None
    True
    >>> model = ml.shards.fit(model, X, Y, checkpoint=folder, n_pieces=3, piece=(2, 2))
    >>> model.predict_topk(X, k=3).shape
    (200, 40)
    """
    piece = _checked_piece(piece)
    work = Work(
        estimator,
        X,
        Y,
        sample_weight,
        checkpoint_path(checkpoint),
        n_pieces,
        any_cpu=any_cpu,
        label_weight=label_weight,
        propensities=propensities,
    )
    with reported(None, "label", bool(work.estimator.verbose), progress) as report:
        work.choose(report)
        work.fit(range(piece[0] - 1, work.n_pieces, piece[1]), report, piece)
    missing = work.folder.missing()
    return None if missing else work.join()


def merge(checkpoint: str | os.PathLike[str]) -> Any:
    """Make the fitted estimator from the pieces that `fit` has stored in a folder.

    Parameters
    ----------
    checkpoint : str or path-like
        The folder that `fit` has written. It must have all pieces of the fit.

    Returns
    -------
    estimator
        The fitted estimator.

    Raises
    ------
    TypeError
        If `checkpoint` is not a path.
    ValueError
        If pieces are missing, damaged or from another fit, or if the folder was not written by `fit`.
    OSError
        If the folder does not exist, or if it cannot be read.

    Notes
    -----
    The function needs memory for the model and for a copy of its weights. X and Y are not needed. The
    parameters `n_jobs` and `verbose` of the estimator have their default values.

    Examples
    --------
    >>> import tempfile
    >>> import manylabel as ml
    >>> X, Y = ml.datasets.make_multilabel(200, 50, 40, random_state=0)
    >>> folder = tempfile.mkdtemp()
    >>> _ = ml.shards.fit(ml.DiSMECClassifier(random_state=0), X, Y, checkpoint=folder)
    >>> ml.shards.merge(folder).predict_topk(X, k=3).shape
    (200, 40)
    """
    return Folder(checkpoint_path(checkpoint)).join()


def checkpoint_path(checkpoint: Any) -> Path:
    """Check the argument `checkpoint`, and return it as a path."""
    if not isinstance(checkpoint, str | os.PathLike):
        raise TypeError(f"`checkpoint` must be the path of a folder, got {type(checkpoint).__name__}")
    if not os.fspath(checkpoint):
        raise ValueError("`checkpoint` must be the path of a folder, got an empty path")
    return Path(checkpoint)


class Folder:
    """The folder in which `fit` stores the finished pieces of a fit; see the docstring of this module."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._choice: Arrays | None = None
        os.listdir(path)  # raises an error that names the folder if there is no such folder
        try:
            self.about = json.loads((path / "fit.json").read_text())
        except FileNotFoundError:
            raise ValueError(
                f"{path}: expected a folder that `shards.fit` has written, but it has no file fit.json"
            ) from None
        except ValueError:
            self.about = None
        if not isinstance(self.about, dict):
            raise ValueError(f"{path}: fit.json is damaged; delete the folder and fit again")
        if self.about.get("form") != _FORM:
            raise ValueError(f"{path}: fit.json was not written by this version of manylabel")
        if missing := _FINGERPRINTS.keys() - self.about.keys():
            raise ValueError(
                f"{path}: fit.json is damaged, since it has no {min(missing)}; delete the folder and fit "
                "again"
            )
        # Each piece has this number, so that a piece of another fit is recognized.
        shared = {name: value for name, value in self.about.items() if name != "cpu"}
        self._checksum = zlib.crc32(json.dumps(shared, sort_keys=True).encode())

    @classmethod
    def made(cls, path: Path, about: dict[str, Any], *, any_cpu: bool) -> Folder:
        """Open a folder, or create it if it does not exist.

        `about` describes the fit. A ValueError is raised if the folder was made with another description.
        With ``any_cpu=True``, ``about["cpu"]`` is not compared.
        """
        path.mkdir(parents=True, exist_ok=True)
        if not (path / "fit.json").exists():
            strange = [file.name for file in path.iterdir() if not file.name.startswith(".")]
            if strange and not (path / "fit.json").exists():
                raise ValueError(
                    f"{path}: the folder must be empty or written by `shards.fit`, "
                    f"but it contains the file {strange[0]}"
                )
            with written_aside(path / "fit.json", "x", replace=False, encoding="utf-8") as file:
                json.dump(about, file, indent=1)
        folder = cls(path)
        # If no seed was given, each process draws one, and all use the seed of the first process.
        seed = None if about["seed"] is None else folder.about.get("seed")
        expected = about | {"seed": seed, "estimator": folder.about["estimator"]}
        if _without_seed(about["estimator"]) != _without_seed(folder.about["estimator"]):
            expected["estimator"] = about["estimator"]
        for name, wanted in expected.items():
            found = folder.about.get(name)
            if wanted != found and not (name == "cpu" and any_cpu):
                what = _FINGERPRINTS[name]
                if name in _FORMATS:
                    found, wanted = _FORMATS[name][bool(found)], _FORMATS[name][bool(wanted)]
                change = _difference(found, wanted)
                if name == "X" and is_of_folder(found) != is_of_folder(wanted):
                    # The checksum of a folder of rows also covers Y, so the two cannot be compared.
                    change = "X was in memory, now it is a folder of rows"
                    if is_of_folder(found):
                        change = "X was a folder of rows, now it is in memory"
                elif name in _CHECKSUMS:
                    change = f"the checksum was {shown(found)}, now it is {shown(wanted)}"
                raise ValueError(f"{path}: the folder was made with {what}: {change}")
        return folder

    @property
    def choice(self) -> Arrays | None:
        """The values that all pieces share, or None if they have not been chosen."""
        if self._choice is None:
            self._choice = read_arrays(self.path / "choice.npz")
        # A copy of the dict, so that callers can add values.
        return None if self._choice is None else dict(self._choice)

    def choose(self, choice: Arrays) -> bool:
        """Store the values that all pieces share, unless another process has already stored such values.

        Return whether the values in the folder are equal to the given values.
        """
        write_arrays(self.path / "choice.npz", choice, replace=False)
        stored = self.choice
        assert stored is not None
        return stored.keys() == choice.keys() and all(
            np.array_equal(stored[name], value) for name, value in choice.items()
        )

    @property
    def costs(self) -> LabelCosts | None:
        """The weights and propensities of the labels, or None if neither is given."""
        costs = read_arrays(self.path / "costs.npz")
        return None if costs is None else LabelCosts(**costs)

    @property
    def n_pieces(self) -> int:
        """Number of pieces."""
        choice = self.choice
        if choice is None:
            raise ValueError(
                f"{self.path}: the folder has no pieces yet, because `shards.fit` is still running or was "
                "interrupted; if it was interrupted, call it again"
            )
        return len(choice["cuts"]) - 1

    def piece_path(self, number: int) -> Path:
        """Return the path of a piece."""
        return self.path / f"piece-{number:06}.npz"

    def piece(self, number: int) -> Arrays:
        """Return the result of a piece."""
        found = read_arrays(self.piece_path(number))
        if found is None:
            raise ValueError(f"{self.path}: the file {self.piece_path(number).name} is missing")
        identity = found.pop(_IDENTITY, None)
        if identity is None or identity.tolist() != [self._checksum, number]:
            raise ValueError(
                f"{self.piece_path(number)}: the file belongs to another fit or is another piece of this "
                "fit; delete it and call `shards.fit` again"
            )
        return found

    def store(self, number: int, piece: Arrays) -> None:
        """Write the result of a piece."""
        identity = np.array([self._checksum, number], dtype=np.int64)
        write_arrays(self.piece_path(number), {**piece, _IDENTITY: identity})

    @property
    def stages(self) -> list[range]:
        """For each stage of the fit, the range of its piece indices (see `Pieces`)."""
        choice = self.choice
        assert choice is not None
        return [range(*bounds) for bounds in pairwise([*choice["stages"].tolist(), self.n_pieces])]

    def stage_of(self, number: int) -> int:
        """Return the stage of a piece."""
        return next(stage for stage, numbers in enumerate(self.stages) if number in numbers)

    def units_of(self, number: int) -> tuple[int, int]:
        """Return the index of the first unit of a piece, and the index after its last unit (see `Pieces`)."""
        choice = self.choice
        assert choice is not None
        first, end = choice["cuts"][number : number + 2].tolist()
        return first, end

    def missing(self) -> list[int]:
        """Return the indices of the pieces that are not finished."""
        return [number for number in range(self.n_pieces) if not self.piece_path(number).exists()]

    def join(self) -> Any:
        """Make the fitted estimator from the pieces."""
        choice = self.choice
        n_pieces, missing = self.n_pieces, self.missing()
        if missing or choice is None:
            raise ValueError(
                f"{self.path}: {len(missing)} of {n_pieces} pieces are missing; the first is "
                f"{self.piece_path(missing[0]).name}"
            )
        estimator = from_description(self.about["estimator"])
        n_features, n_labels = self.about["n_features"], self.about["n_labels"]
        pieces = [self.piece(number) for number in range(n_pieces)]
        estimator.n_features_in_ = n_features
        if self.about["feature_names"] is not None:
            estimator.feature_names_in_ = np.array(self.about["feature_names"], dtype=object)
        pieces_of(estimator).join(estimator, choice, (n_labels, n_features), pieces)
        if isinstance(estimator, MultiLabelClassifier):
            self._set_form_of_labels(estimator)
        # `random_state` in the description is a drawn seed. It is replaced by the parameter of the caller.
        if self.about["seed"] is not None:
            estimator.random_state = self.about["given_seed"]
        return estimator

    def _set_form_of_labels(self, estimator: MultiLabelClassifier) -> None:
        """Set the fitted attributes that describe Y: sparse or dense, 1-D or 2-D, and the label names."""
        estimator.sparse_output_ = self.about["sparse_output"]
        if self.about["label_names"] is not None:
            estimator.label_names_ = np.array(self.about["label_names"], dtype=object)
        estimator.one_dimensional_ = self.about["one_dimensional"]
        if estimator.one_dimensional_:
            estimator.classes_ = np.arange(2)


_FINGERPRINTS = {
    "form": "another version of the folder format",
    "version": "another version of manylabel",
    "estimator": "other parameters",
    "seed": "another seed",
    "given_seed": "another random_state",
    "n_pieces": "another number of pieces",
    "n_rows": "another number of rows",
    "n_features": "another number of features",
    "n_labels": "another number of labels",
    "feature_names": "other names of features",
    "label_names": "other label names",
    "sparse_output": "Y in another format",
    "one_dimensional": "Y with another number of dimensions",
    "X": "another X",
    "Y": "another Y",
    "sample_weight": "other sample weights",
    "costs": "another `label_weight` or other `propensities`",
    "cpu": (
        "another type of CPU (`any_cpu=True` allows this, but the last digits of the weights then depend on "
        "the CPU)"
    ),
}

_CHECKSUMS = ("X", "Y", "sample_weight", "costs")

# How errors name the formats of Y, if the value of the fingerprint is False or True.
_FORMATS = {"sparse_output": ("dense", "sparse"), "one_dimensional": ("2-D", "1-D")}


# X, Y, the weights of the rows or None, and the costs (weights and propensities) of the labels or None.
Examples = tuple[Any, csr_array, NDArray[np.float32] | None, LabelCosts | None]


class Work:
    """A fit whose pieces are stored in a folder."""

    def __init__(
        self,
        estimator: Any,
        X: Any,
        Y: Any,
        sample_weight: Any,
        checkpoint: Path,
        n_pieces: int | Literal["auto"],
        *,
        any_cpu: bool,
        label_weight: Any = None,
        propensities: Any = None,
    ) -> None:
        self._cut: type[Pieces] = pieces_of(estimator)
        if n_pieces != "auto":
            if not Count(1).takes(n_pieces):
                raise ValueError(f'`n_pieces` must be an integer >= 1 or "auto", got {n_pieces!r}')
            n_pieces = int(n_pieces)
        X, Y = data_or_rows(X, Y)
        self.estimator = clone(estimator)
        self.estimator.parameters.check(self.estimator)
        draws = "random_state" in self.estimator.get_params(deep=False)
        given = self.estimator.random_state if draws else None
        if isinstance(given, np.random.RandomState):
            raise TypeError(
                "`random_state` must be None or an integer, got a RandomState, which changes in each call"
            )
        labels = column_names(Y)
        if labels is not None:
            Y = values_of_frame(Y)
        column = None
        if isinstance(estimator, MultiLabelClassifier):
            column = as_column(Y)
        elif one_hot(Y)[1] is not None:
            raise ValueError("`Y` must be a 2-D indicator matrix, got one class per row")
        X_checked, Y_checked, weights = check_training_set(
            self.estimator,
            X,
            Y if column is None else column,
            sample_weight,
            dense=getattr(self.estimator, "_dense", False),
            unknown=True,
        )
        if labels is not None:
            named = all(isinstance(name, str) for name in labels)
            labels = list(as_names(labels, Y_checked.shape[1], "the column names of Y")) if named else None
        costs = label_costs(Y_checked.shape[1], label_weight, propensities)
        self._examples = X_checked, Y_checked, weights, costs
        if draws and given is None:
            drawn = int(check_random_state(None).randint(2**31))
            self.estimator.random_state = drawn
        names = getattr(self.estimator, "feature_names_in_", None)
        described = clone(self.estimator).set_params(n_jobs=None, verbose=0)
        about = {
            "form": _FORM,
            "version": importlib.metadata.version("manylabel"),
            "estimator": description_of(described),
            "seed": self.estimator.random_state if draws and given is None else None,
            "given_seed": given if given is None else int(given),
            "n_pieces": n_pieces,
            "n_rows": X_checked.shape[0],
            "n_features": X_checked.shape[1],
            "n_labels": Y_checked.shape[1],
            "feature_names": None if names is None else list(names),
            "label_names": labels,
            "sparse_output": bool(issparse(Y)),
            "one_dimensional": column is not None,
            "X": checksum_of(X_checked) or _checksum_of_features(X_checked),
            "Y": _checksum(Y_checked.indptr, Y_checked.indices, np.isnan(Y_checked.data)),
            "sample_weight": None if weights is None else _checksum(weights),
            "costs": None if costs is None else _checksum(*costs),
            "cpu": cpu_type(),
        }
        self.folder = Folder.made(checkpoint, about, any_cpu=any_cpu)
        if costs is not None and self.folder.costs is None:
            write_arrays(self.folder.path / "costs.npz", costs._asdict())
        if draws:
            self.estimator.random_state = from_description(self.folder.about["estimator"]).random_state
        self._n_pieces = n_pieces
        self._task: Pieces | None = None
        self._stage = 0

    @classmethod
    def opened(
        cls, folder: Folder, examples: tuple[Any, csr_array, NDArray[np.float32] | None], n_jobs: int
    ) -> Work:
        """Open the folder of a fit that another process has begun.

        `examples` are the checked data of the fit: X, Y and the weights of the rows.
        """
        work = cls.__new__(cls)
        work.folder = folder
        work.estimator = from_description(folder.about["estimator"]).set_params(n_jobs=n_jobs)
        work._cut = pieces_of(work.estimator)
        work._examples = (*examples, folder.costs)
        work._n_pieces = folder.about["n_pieces"]
        work._task = None
        work._stage = 0
        return work

    @property
    def examples(self) -> Examples:
        """X, Y, the weights of the rows, and the weights and propensities of the labels."""
        return self._examples

    @property
    def n_pieces(self) -> int:
        """Number of pieces."""
        return self.folder.n_pieces

    def choose(self, report: Report) -> None:
        """Choose the values that all pieces share. If the folder has these values, do nothing."""
        if self.folder.choice is not None:
            return
        choice = self._cut.choose(self.estimator, *self._examples, report)
        self._begin(choice, report)
        assert self._task is not None
        bounds = [*self._task.stages, self._task.n_units]
        cuts, stages = [0], []
        for first, end in pairwise(bounds):
            stages.append(len(cuts) - 1)
            n_units, wanted = end - first, self._n_pieces
            if isinstance(wanted, str):
                # Pieces have few units if a stage has few, because their costs can differ by a factor of ten.
                # Machines that share the stage then finish at about the same time.
                most = min(max(n_units // _ENOUGH_PIECES, _FEW_UNITS), self._task.most_units)
                wanted = min(-(-n_units // most), _MOST_PIECES)
            n_pieces = max(1, min(int(wanted), n_units))
            cuts += [first + (piece + 1) * n_units // n_pieces for piece in range(n_pieces)]
        choice["cuts"], choice["stages"] = np.array(cuts), np.array(stages)
        task, self._task = self._task, None
        if self.folder.choose(choice):  # otherwise, another process was first and has chosen other values
            self._task = task

    @property
    def has_rounds(self) -> bool:
        """Whether the fit of the last piece consists of rounds.

        The last piece is the piece with the highest number. If its fit consists of rounds, several processes
        can share the work of each round.
        """
        return self._cut.has_rounds

    def fit(self, numbers: Iterable[int], report: Report, share: tuple[int, int] = (1, 1)) -> None:
        """Fit the given pieces that are not in the folder yet.

        If pieces of an earlier stage are missing, they are also fitted, because later stages need their
        results. `share` is ``(i, N)`` for the i-th of N processes. It has an effect only if `has_rounds` is
        True. In this case, the last piece consists of rounds, and the N processes share the work of long
        rounds (see `manylabel.rounds`).
        """
        tell = SumOfJobs(report)
        last = self.n_pieces - 1
        for number in numbers:
            if self._cut.has_end and number == last:
                continue
            if not self.folder.piece_path(number).exists():
                self._reach(self.folder.stage_of(number), tell)
                self._fit_piece(number, tell)
        if self._cut.has_end and self.folder.missing() == [last]:
            self._reach(len(self.folder.stages) - 1, tell)
            self._fit_piece(last, tell, share)

    def _begin(self, choice: Arrays, report: Tell) -> None:
        self._task = self._cut(self.estimator, *self._examples, choice, report)
        self._stage = 0

    def _reach(self, stage: int, tell: SumOfJobs) -> None:
        """Fit the missing pieces of earlier stages, and then prepare the training set for the given stage."""
        if self._task is None or self._stage > stage:
            choice = self.folder.choice
            assert choice is not None
            self._begin(choice, tell)
        assert self._task is not None
        while self._stage < stage:
            numbers = self.folder.stages[self._stage]
            # Another machine begins with the first of its pieces, so this one begins with the last.
            for number in reversed(numbers):
                if not self.folder.piece_path(number).exists():
                    self._fit_piece(number, tell)
            self._task.complete([self.folder.piece(number) for number in numbers], tell)
            self._stage += 1

    def _fit_piece(self, number: int, tell: SumOfJobs, share: tuple[int, int] = (1, 1)) -> None:
        first, end = self.folder.units_of(number)
        task, path = self._task, self.folder.piece_path(number)
        assert task is not None
        rounds = None
        try:
            if task.has_rounds:
                rounds = SharedRounds(self.folder.path, path, task.rounds(), share, self._n_pieces)
            if rounds is None or rounds.run(tell):
                self.folder.store(number, task.fit(first, end, tell.restart()))
        except Exception as error:
            if hasattr(error, "add_note"):  # from Python 3.11 on
                error.add_note(f"while fitting {path.name}, one of {self.n_pieces} pieces")
            raise
        finally:
            if rounds is not None:
                self._task = None  # the rounds have changed it
        if rounds is not None:
            rounds.remove()

    def join(self) -> Any:
        """Make the fitted estimator from the pieces in the folder.

        Its parameters `n_jobs` and `verbose` get the values that they have in ``self.estimator``.
        """
        joined = self.folder.join()
        joined.set_params(n_jobs=self.estimator.n_jobs, verbose=self.estimator.verbose)
        return joined


@cache
def cpu_type() -> str:
    """Return the type of the CPU as a str. The instructions that the Rust core uses depend on the type."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    found = dict(line.split(":", 1) for line in lines if ":" in line)
    found = {name.strip(): value.strip() for name, value in found.items()}
    flags = found.get("flags", found.get("Features", ""))
    name = found.get("model name", platform.machine())
    return f"{name} {zlib.crc32(' '.join(sorted(flags.split())).encode()):08x}"


def _checked_piece(piece: Any) -> tuple[int, int]:
    valid = isinstance(piece, tuple | list) and len(piece) == 2 and all(map(Count(1).takes, piece))
    if not valid or not piece[0] <= piece[1]:
        raise ValueError(f"`piece` must be a pair (i, N) of integers with 1 <= i <= N, got {shown(piece)}")
    return int(piece[0]), int(piece[1])


def _checksum(*arrays: Any) -> str:
    checksum = 0
    for array in arrays:
        n_rows = max(1, _ITEMS // max(1, array[:1].size))
        for first in range(0, len(array), n_rows):
            part = array[first : first + n_rows]
            # The checksum depends neither on the memory order nor on whether indices have 32 or 64 bits.
            wide = np.ascontiguousarray(part, dtype=np.int64 if part.dtype.kind in "iu" else None)
            checksum = _core.crc32(wide.reshape(-1).view(np.uint8), checksum)
    return f"{checksum:08x}"


def _checksum_of_features(X: Any) -> str:
    if isinstance(X, np.ndarray):
        return f"{X.dtype.name} {_checksum(X)}"
    return _checksum(X.indptr, X.indices, X.data)


def _without_seed(description: dict[str, Any]) -> dict[str, Any]:
    params = {name: value for name, value in description["params"].items() if name != "random_state"}
    return description | {"params": params}


def _difference(found: Any, wanted: Any) -> str:
    if isinstance(found, dict) and isinstance(wanted, dict):
        for name in wanted:
            if found.get(name) != wanted[name]:
                if isinstance(found.get(name), dict) and isinstance(wanted[name], dict):
                    return _difference(found.get(name), wanted[name])
                return f"`{name}` was {shown(found.get(name))}, now it is {shown(wanted[name])}"
    return f"it was {shown(found)}, now it is {shown(wanted)}"
