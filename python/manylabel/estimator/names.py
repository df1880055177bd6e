"""Functions for the names of labels. The names are unique strings, one for each column of Y."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from manylabel.estimator.parameters import shown
from manylabel.estimator.validation import check_labels

__all__ = [
    "NamedRows",
    "as_names",
    "check_label",
    "column_names",
    "label_name",
    "named_indicator",
    "pairs_of",
    "renamed",
    "rows_of_names",
    "values_of_column",
    "values_of_frame",
]


def as_names(names: Any, count: int, argument: str = "label_names") -> NDArray[Any]:
    """Check label names, and return them as an array.

    Parameters
    ----------
    names : sequence of str
        The names. They must be unique.
    count : int
        Number of labels.
    argument : str, default="label_names"
        Name of the argument, for error messages.

    Returns
    -------
    ndarray of shape (count,), dtype object
        The names.

    Raises
    ------
    ValueError
        If the number of names is not `count`, if a name is not a str, or if a name occurs twice.
    """
    if isinstance(names, str) or not hasattr(names, "__iter__"):
        raise ValueError(f"`{argument}` must be a sequence of {count} str, got {shown(names)}")
    given = list(names)
    if len(given) != count:
        raise ValueError(f"`{argument}` must have {count} names, one for each label, got {len(given)}")
    checked = np.empty(count, dtype=object)
    seen: set[str] = set()
    for at, name in enumerate(given):
        if not isinstance(name, str):
            raise ValueError(f"each name in `{argument}` must be a str, got {shown(name)}")
        if name in seen:
            raise ValueError(f"`{argument}` must be unique, got {shown(name)} twice")
        seen.add(name)
        checked[at] = str(name)
    return checked


def column_names(Y: Any) -> list[Any] | None:
    """Return the names of the columns of a data frame, or None if Y is not a data frame.

    The data frame may be from pandas, polars, Arrow, or another library whose data frames have the attribute
    ``columns`` or ``column_names`` and the method ``__dataframe__`` or ``__arrow_c_stream__``. These
    libraries are not imported.
    """
    if not (hasattr(Y, "__dataframe__") or hasattr(Y, "__arrow_c_stream__")):
        return None
    names = getattr(Y, "column_names", None)
    if names is None or callable(names):
        names = getattr(Y, "columns", None)
    return None if names is None or callable(names) or isinstance(names, str) else list(names)


def values_of_frame(Y: Any) -> Any:
    """Convert a data frame to a sparse matrix or an ndarray, unless scikit-learn can convert it.

    A pandas data frame in which all columns are sparse is converted to a sparse matrix. Any other pandas
    data frame is returned unchanged, because scikit-learn can convert it. All other data frames are converted
    to ndarrays.
    """
    if hasattr(Y, "sparse") and hasattr(Y, "dtypes"):
        kinds = {type(dtype).__name__ for dtype in Y.dtypes}
        return csr_array(Y.sparse.to_coo()) if kinds == {"SparseDtype"} else Y
    if hasattr(Y, "column_names"):  # an Arrow table has no method that converts it to a matrix
        return np.column_stack([np.asarray(Y[name]) for name in Y.column_names])
    return Y.to_numpy() if hasattr(Y, "to_numpy") else Y


def values_of_column(column: Any, argument: str) -> Any:
    """Return the values of an Arrow array as Python objects.

    Parameters
    ----------
    column : object
        Any object. An object exports an Arrow array if it has the method ``__arrow_c_array__`` or
        ``__arrow_c_stream__`` of the Arrow PyCapsule interface.
    argument : str
        Name of the argument, for error messages.

    Returns
    -------
    object
        A list of the values if `column` is an array of pyarrow, or if `column` exports an Arrow array and is
        not iterable. Any other `column` is returned as it is, for example a list or a Series of pandas or
        polars.

    Raises
    ------
    ModuleNotFoundError
        If `column` exports an Arrow array but is not iterable, and pyarrow is not installed.
    ValueError
        If `column` is a data frame, or exports a table.
    """
    columns = column_names(column)
    if columns is not None:
        raise _no_column(argument, columns)
    if hasattr(column, "to_pylist"):
        return column.to_pylist()  # the scalars of Arrow are not Python objects
    exports = hasattr(column, "__arrow_c_stream__") or hasattr(column, "__arrow_c_array__")
    if not exports or hasattr(column, "__iter__"):
        return column
    try:
        import pyarrow
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"`{argument}` is an object of the Arrow PyCapsule interface, which requires pyarrow; install it "
            "with: pip install pyarrow",
            name=error.name,
        ) from None
    read = pyarrow.array if hasattr(column, "__arrow_c_array__") else pyarrow.chunked_array
    values = read(column)
    if pyarrow.types.is_struct(values.type):
        raise _no_column(argument, [values.type.field(at).name for at in range(values.type.num_fields)])
    return values.to_pylist()


def _no_column(argument: str, columns: list[Any]) -> ValueError:
    return ValueError(f"`{argument}` must be one column, got a table with the columns {shown(columns)}")


def label_name(estimator: Any, label: int) -> str:
    """Return the name of a label, or a text such as "label 3" if the estimator has no label names."""
    names = getattr(estimator, "label_names_", None)
    return f"label {label}" if names is None else str(names[label])


def check_label(estimator: Any, label: Any, n_labels: int) -> int:
    """Return the column index of a label that is given by its column index or by its name.

    Parameters
    ----------
    estimator : estimator
        The fitted estimator. It has label names if it has the attribute ``label_names_``.
    label : int or str
        The column index or the name of the label.
    n_labels : int
        Number of labels of the estimator.

    Returns
    -------
    int
        The column index of the label.

    Raises
    ------
    ValueError
        If the estimator does not have the label.
    """
    names = getattr(estimator, "label_names_", None)
    if isinstance(label, str):
        if names is None:
            raise ValueError(
                f"`label` must be an int, since the model has no label names, got {shown(label)}"
            )
        found = np.flatnonzero(names == label)
        if not len(found):
            raise ValueError(f"`label` must be a label of the model, got {shown(label)}")
        return int(found[0])
    if isinstance(label, bool) or not isinstance(label, int | np.integer) or not 0 <= label < n_labels:
        raise ValueError(f"`label` must be an integer from 0 to {n_labels - 1}, got {shown(label)}")
    return int(label)


class NamedRows:
    """Collects lists of label names, one list for each row, and converts them to an indicator matrix.

    The lists themselves are not kept. A row is stored as the indices of its labels, and each distinct name is
    stored only once. The lists can therefore be added one by one while they are read from a stream.

    Parameters
    ----------
    names : sequence of str or None, default=None
        The allowed names, in the order of the columns. None means that all names are allowed. In this case,
        every name that occurs becomes a column, and the columns are sorted by name.

    Examples
    --------
    >>> rows = NamedRows()
    >>> for names in [["b", "a"], [], ["a"]]:
    ...     rows.add(names)
    >>> names, Y = rows.indicator()
    >>> names.tolist(), Y.toarray().tolist()
    (['a', 'b'], [[1.0, 1.0], [0.0, 0.0], [1.0, 0.0]])
    """

    def __init__(self, names: Sequence[str] | None = None) -> None:
        self._known = names is not None
        self._columns: dict[str, int] = {name: at for at, name in enumerate(names or ())}
        self._indices = array("q")
        self._ends = array("q", [0])

    def __len__(self) -> int:
        return len(self._ends) - 1

    def add(self, names: Any) -> None:
        """Append a row, given the names of its labels. A name that occurs twice in the row counts once."""
        if isinstance(names, str | bytes) or not isinstance(names, Iterable):
            raise ValueError(
                f"the labels of row {len(self)} must be a list of names, got {shown(names)}"
                + (f"; pass a single name as [{shown(names)}]" if isinstance(names, str) else "")
            )
        row = set()
        for name in names:
            if not isinstance(name, str):
                raise ValueError(f"the names of the labels of row {len(self)} must be str, got {shown(name)}")
            column = self._columns.get(name)
            if column is None:
                if self._known:
                    raise ValueError(
                        f"the labels of row {len(self)} must be in `label_names`, got {shown(name)}"
                    )
                column = self._columns[str(name)] = len(self._columns)
            row.add(column)
        self._indices.extend(sorted(row))
        self._ends.append(len(self._indices))

    def indicator(self) -> tuple[NDArray[Any], csr_array]:
        """Return the names of the columns, and the indicator matrix of dtype float32."""
        given = list(self._columns)
        indices = (
            np.frombuffer(self._indices, dtype=np.int64) if len(self._indices) else np.empty(0, np.int64)
        )
        if not self._known:
            order = sorted(range(len(given)), key=given.__getitem__)
            new = np.empty(len(given), dtype=np.int64)
            new[order] = np.arange(len(given))
            indices, given = new[indices], [given[at] for at in order]
        indptr = np.frombuffer(self._ends, dtype=np.int64)
        Y = csr_array(
            (np.ones(len(indices), dtype=np.float32), indices, indptr), shape=(len(self), len(given))
        )
        Y.sort_indices()
        return as_names(given, len(given)), Y


def rows_of_names(labels: Any) -> Iterable[Any]:
    """Return `labels` as an iterable that has one list of names for each row.

    An Arrow array is converted to a list. Any other iterable is returned unchanged. A str or a data frame
    raises an error.
    """
    rows = values_of_column(labels, "labels")
    if isinstance(rows, str) or not isinstance(rows, Iterable):
        raise ValueError(f"`labels` must be an iterable of lists of names, got {shown(rows)}")
    return rows


def named_indicator(labels: Any, label_names: Any) -> tuple[NDArray[Any], csr_array]:
    """Convert labels to an array of their names and an indicator matrix.

    Parameters
    ----------
    labels : iterable of iterables of str, data frame, ndarray or sparse matrix
        The names of the labels of each row, or an indicator matrix.
    label_names : sequence of str or None
        Names of the labels, in the order of the columns. If `labels` is a data frame, None means the names of
        its columns. If `labels` has lists of names, None means the names that occur, in sorted order. If
        `labels` is an indicator matrix without column names, `label_names` must be given.

    Returns
    -------
    names : ndarray of shape (n_labels,), dtype object
        The names of the labels.
    Y : csr_array of shape (n_samples, n_labels), dtype float32
        The indicator matrix.

    Raises
    ------
    ValueError
        If the labels are not valid.
    """
    columns = column_names(labels)
    if columns is not None:
        Y = check_labels(values_of_frame(labels), "labels")
        return as_names(columns if label_names is None else label_names, Y.shape[1]), Y
    if issparse(labels) or (isinstance(labels, np.ndarray) and labels.dtype.kind not in "OUT"):
        Y = check_labels(labels, "labels")
        if label_names is None:
            raise ValueError("`label_names` must be given if `labels` is an indicator matrix, got None")
        return as_names(label_names, Y.shape[1]), Y
    known = None if label_names is None else as_names(label_names, len(list(label_names))).tolist()
    rows = NamedRows(known)
    for names in rows_of_names(labels):
        rows.add(names)
    return rows.indicator()


def renamed(names: NDArray[Any], changes: Mapping[str, str]) -> NDArray[Any]:
    """Return a copy of `names`, in which the keys of `changes` are replaced by the values of `changes`."""
    new = names.copy()
    where = {name: at for at, name in enumerate(names.tolist())}
    for old, name in changes.items():
        if old not in where:
            raise ValueError(f"keys of `names` must be labels of the model, got {shown(old)}")
        new[where[old]] = name
    return as_names(new, len(new), "names")


def pairs_of(rows: Iterable[Any], labels: NamedRows) -> Iterator[str]:
    """For each pair (text, names) in `rows`, yield the text, and append the names to `labels` as one row."""
    for at, pair in enumerate(rows):
        if isinstance(pair, str) or not hasattr(pair, "__len__") or len(pair) != 2:
            raise ValueError(
                f"row {at} of `texts` must be a pair (text, label names) if `labels` is None, got "
                f"{shown(pair)}"
            )
        text, names = pair
        labels.add(names)
        yield text
