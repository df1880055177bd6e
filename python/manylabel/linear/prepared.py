"""Rows of X that are prepared for the fit of `DiSMECClassifier`, in memory or on disk.

The fit uses a copy of X, except if X is dense and the loss is the squared hinge loss. The parameters
determine whether the rows of this copy are scaled to unit length, and whether the copy has a column of ones
for the intercept. Columns of X that are zero in every row are left out of the copy. The fit also uses the
transpose of the copy if some labels are frequent, if `solver` is "exact", or if the loss is logistic.

The copy and its transpose are on disk if all of the following conditions are met:

- X is sparse.
- X is memory-mapped from a folder that `manylabel.datasets.convert` or `manylabel.dask.fit` wrote.
- The fit uses all rows of X and does not scale its columns.
- The process is allowed to write to the folder.

In this case, the first fit writes the copy and the transpose to the folder, and all fits memory-map them. X,
the copy and the transpose may then be larger than memory. In all other cases, the copy and its transpose are
in memory.
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

__all__ = ["has_frequent_labels", "original_rows", "prepared_rows"]

_Arrays = tuple[NDArray[np.uint64], NDArray[np.uint32], NDArray[np.float32]]
_Prepared = tuple[_Arrays, _Arrays | None, NDArray[np.uint32], int, int]

# Number of columns that are renumbered at a time.
_ITEMS = 1 << 22

# A label is rare if less than one in this number of its known entries is positive, as in the Rust core. Only
# labels that are not rare are fitted with the transpose of X.
_RARE = 100


def has_frequent_labels(Y: csr_array, solver: str) -> bool:
    """Return whether a fit with the squared hinge loss needs the transpose of X.

    The fit needs the transpose if at least one label is frequent, or if `solver` is "exact" and at least one
    label has a positive entry. A label is frequent if at least 1 % of its known entries are positive.
    """
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
    """Memory-map the prepared rows of X. If they do not exist, write them first.

    The docstring of `manylabel.linear.prepared` describes the prepared rows.

    Parameters
    ----------
    X : csr_array or ndarray, of shape (n_samples, n_features)
        Features.
    normalize : bool
        Whether rows are scaled to unit length.
    ones : bool
        Whether the prepared rows have a column of ones.
    by_column : bool
        Whether the transpose of the prepared rows is needed.
    job : tuple of int and callable
        The number of threads, and a function that is called regularly. If it raises an exception, the
        preparation stops.

    Returns
    -------
    tuple or None
        The tuple has five values:

        - the prepared rows;
        - the transpose of the prepared rows, or None if `by_column` is False;
        - the column index in X of each column of the prepared rows, except the column of ones;
        - the number of columns of X;
        - the number of columns of the prepared rows, including the column of ones, if there is one.

        The result is None if X is dense, or if X is not memory-mapped from a folder that `convert` or
        `manylabel.dask.fit` wrote. It is also None if the process is not allowed to write to this folder. In
        these cases, the fit makes copies in memory.
    """
    folder = folder_of(X)
    if folder is None or isinstance(X, np.ndarray):
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


def original_rows(X: Any, *, normalize: bool, job: tuple[int, Tell]) -> _Prepared | None:
    """Memory-map the prepared rows of X, without renumbering the columns.

    `prepared_rows` leaves out the columns of X that are zero in every row, and renumbers the other columns.
    In the result of this function, the columns have the same indices as in X. This function adds no column of
    ones and returns no transpose. The third value of the returned tuple has the indices of the columns of X
    that have at least one nonzero value. Otherwise, the arguments and the result have the same meaning as in
    `prepared_rows`.
    """
    prepared = prepared_rows(X, normalize=normalize, ones=False, by_column=False, job=job)
    if prepared is None or len(prepared[2]) == X.shape[1]:
        return prepared
    folder = folder_of(X)
    assert folder is not None
    (indptr, indices, data), _, features, n_features, _ = prepared
    rows = folder / ("unit" if normalize else "given")

    def write(aside: Path) -> None:
        shape = (max(len(indices), 1),)
        out = np.lib.format.open_memmap(aside / "indices.npy", "w+", np.uint32, shape)
        for first in range(0, len(indices), _ITEMS):
            np.take(features, indices[first : first + _ITEMS], out=out[first : first + _ITEMS])
            job[1](0)

    try:
        with locked(folder / "prepare.lock", wait=True):
            _written_once(rows / "original", write)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        return None
    original = np.load(rows / "original" / "indices.npy", mmap_mode="r")[: len(indices)]
    return (indptr, original, data), None, features, n_features, n_features


def _written_once(folder: Path, write: Callable[[Path], None]) -> None:
    """Create a folder whose files are written by the function `write`, unless the folder already exists.

    `write` gets the path of a temporary folder and writes the files to it. The temporary folder is then
    renamed to `folder`. If an exception is raised, the temporary folder is removed.
    """
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
    """Create and memory-map files for the arrays indptr, indices and data of a CSR matrix."""

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
    """Memory-map the files with the arrays indptr, indices and data of a CSR matrix."""
    indptr, indices, data = (
        np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("indptr", "indices", "data")
    )
    end = int(indptr[-1])  # the files may be longer, because stored zeros of X were left out
    return indptr, indices[:end], data[:end]
