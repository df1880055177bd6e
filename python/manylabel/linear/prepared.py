"""Stores the rows of X on disk in the form that the fit of one linear classifier per label uses.

The fit needs rows of unit length, with a column of ones for the intercept, and their transpose. If X is
mapped from a folder of `convert`, copies in memory would need as much memory as X itself. The copies are
therefore written to the folder, once, and mapped. Later fits and other processes use them again.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from manylabel import _core
from manylabel.aside import locked
from manylabel.datasets.rows import folder_of
from manylabel.estimator.progress import Tell
from manylabel.estimator.validation import known_ones, unknown_entries

__all__ = ["has_frequent_labels", "prepared_rows"]

_Arrays = tuple[NDArray[np.uint64], NDArray[np.uint32], NDArray[np.float32]]
_Prepared = tuple[_Arrays, _Arrays | None, NDArray[np.uint32], int, int]

# A label is fitted with the transpose of X if at least one in this number of the rows for which it is known
# has it, as in the Rust core.
_RARE = 100


def has_frequent_labels(Y: csr_array, solver: str) -> bool:
    """Return whether the fit needs the transpose of X."""
    n_positive = np.bincount(known_ones(Y).indices, minlength=Y.shape[1])
    unknown = unknown_entries(Y)
    n_known: Any = Y.shape[0]
    if unknown is not None:
        n_known = n_known - np.bincount(unknown.indices, minlength=Y.shape[1])
    frequent = n_positive * _RARE >= n_known
    return bool(((n_positive > 0) & (frequent | (solver == "exact"))).any())


def prepared_rows(
    X: Any, *, normalize: bool, ones: bool, by_column: bool, job: tuple[int, Tell]
) -> _Prepared | None:
    """Map the prepared rows of X, and write them first if necessary.

    Parameters
    ----------
    X : csr_array of shape (n_samples, n_features)
        Features.
    normalize : bool
        Whether rows are scaled to unit length.
    ones : bool
        Whether there is a column of ones.
    by_column : bool
        Whether the transpose is needed.
    job : tuple of int and callable
        The number of threads, and a function that is called from time to time.

    Returns
    -------
    tuple or None
        The rows, their transpose or None, the original numbers of their columns, the number of features of X,
        and the number of columns of the rows. None if X is not mapped from a folder of `convert`, or if this
        folder may not be written. The fit then makes copies in memory.
    """
    folder = folder_of(X)
    if folder is None:
        return None
    rows = folder / f"{'unit' if normalize else 'given'}{'-ones' if ones else ''}"

    def write_rows(aside: Path) -> None:
        out = _new_arrays(aside, X.shape[0], X.nnz + (X.shape[0] if ones else 0))
        np.save(aside / "features.npy", _core.scale_rows(X, normalize, ones, out, job))

    def write_columns(aside: Path) -> None:
        x = _arrays(rows)
        n_columns = len(np.load(rows / "features.npy")) + ones
        _core.transpose_rows(x, n_columns, _new_arrays(aside, n_columns, len(x[1])), job)

    try:
        with locked(folder / "prepare.lock", wait=True):
            _written_once(rows, write_rows)
            if by_column:
                _written_once(rows / "columns", write_columns)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        return None
    features = np.load(rows / "features.npy")
    xt = _arrays(rows / "columns") if by_column else None
    return _arrays(rows), xt, features, X.shape[1], len(features) + ones


def _written_once(folder: Path, write: Callable[[Path], None]) -> None:
    """Write a folder under another name and rename it, unless it exists."""
    if folder.exists():
        return
    aside = folder.with_name(f"{folder.name}.tmp")
    shutil.rmtree(aside, ignore_errors=True)  # a killed process may have left it
    aside.mkdir()
    try:
        write(aside)
        aside.rename(folder)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def _new_arrays(folder: Path, n_rows: int, n_stored: int) -> _Arrays:
    """Map new files for the row ends, columns and values of a matrix."""

    def new(name: str, dtype: type, size: int) -> NDArray[Any]:
        # An empty file cannot be mapped.
        mapped = np.lib.format.open_memmap(folder / f"{name}.npy", "w+", dtype, (max(size, 1),))
        return mapped[:size]

    return (
        new("indptr", np.uint64, n_rows + 1),
        new("indices", np.uint32, n_stored),
        new("data", np.float32, n_stored),
    )


def _arrays(folder: Path) -> _Arrays:
    """Map the row ends, columns and values of a matrix."""
    indptr, indices, data = (
        np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("indptr", "indices", "data")
    )
    end = int(indptr[-1])  # zeros of X are left out, so the files may be longer
    return indptr, indices[:end], data[:end]
