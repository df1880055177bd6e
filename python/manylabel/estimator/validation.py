"""Conversion of user input to canonical arrays, which happens only here.

A canonical X is a CSR array of float32 or float64 with sorted, unique columns, int32 or int64 indices, and
finite values (or NaN, for estimators whose tags allow it). A canonical Y is a CSR array of float32 ones.
Canonical input is passed on without a copy. Other input is copied: the caller's matrices are never sorted,
summed or cast in place. Numbers of every width and byte order are accepted, dense and sparse: integers, bool,
and floats of 16 to 128 bits.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse
from sklearn.utils import check_array, check_consistent_length, get_tags
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import _check_sample_weight, validate_data

from manylabel import _core
from manylabel.estimator.parameters import shown

__all__ = [
    "as_column",
    "canonical_csr",
    "check_features",
    "check_labels",
    "check_matrix",
    "check_names",
    "check_row",
    "check_single",
    "check_training_set",
    "held_out_rows",
    "native_numbers",
    "one_hot",
]


def check_features(estimator: Any, X: Any, *, reset: bool) -> csr_array:
    """Convert X to a canonical CSR array.

    Parameters
    ----------
    estimator : estimator
        Its ``n_features_in_`` and ``feature_names_in_`` are set (with `reset`) or compared with X.
    X : array-like or sparse matrix of shape (n_samples, n_features)
        Any numeric or bool dtype; int32 or int64 indices. NaN is refused unless the estimator's tags have
        ``allow_nan``; the result then stores it.
    reset : bool
        True in fit, False afterwards.

    Returns
    -------
    csr_array of shape (n_samples, n_features)
        float32 if X was, otherwise float64.

    Raises
    ------
    ValueError
        If X is not 2-D, is empty, has values that are not finite or not numbers, indices outside its shape,
        or another number of features than in fit. Values must also be finite as float32, unless the
        estimator scales rows to unit length first.
    """
    matrix = check_matrix(estimator, X, reset=reset)
    return csr_array(matrix) if isinstance(matrix, np.ndarray) else matrix


def check_row(estimator: Any, x: Any) -> csr_array:
    """Convert one row to a CSR array, after fit.

    Parameters
    ----------
    estimator : estimator
        Its ``n_features_in_`` and ``feature_names_in_`` are compared with x.
    x : array-like or sparse matrix of shape (n_features,) or (1, n_features)
        As in `check_features`; a pandas row keeps its names.

    Returns
    -------
    csr_array of shape (1, n_features)
        float32 if x was, otherwise float64.

    Raises
    ------
    ValueError
        As `check_features`, and if x has another number of rows.
    """
    if np.ndim(x) == 1:
        if hasattr(x, "to_frame"):
            x = x.to_frame().T
        else:
            one: Any = x if issparse(x) else np.asarray(x)
            x = one.reshape((1, -1))
    row = check_features(estimator, x, reset=False)
    if row.shape[0] != 1:
        raise ValueError(f"`x` must be one row, got {row.shape[0]}")
    return row


def check_matrix(estimator: Any, X: Any, *, reset: bool) -> csr_array | NDArray[Any]:
    """Convert X to a canonical CSR array if it is sparse, else to an ndarray in C order.

    Parameters
    ----------
    estimator : estimator
        As in `check_features`.
    X : array-like or sparse matrix of shape (n_samples, n_features)
        Any numeric or bool dtype.
    reset : bool
        True in fit, False afterwards.

    Returns
    -------
    csr_array or ndarray of shape (n_samples, n_features)
        float32 if X was, otherwise float64.

    Raises
    ------
    ValueError
        As `check_features`.
    """
    if not reset and _is_ready(estimator, X):
        ready: csr_array | NDArray[Any] = X
        return ready
    if issparse(X):
        X = _check_positions(_natively(X), "X")
    matrix: Any = validate_data(
        estimator,
        X,
        reset=reset,
        accept_sparse="csr",
        dtype=[np.float64, np.float32],
        order="C",
        accept_large_sparse=True,
        ensure_all_finite="allow-nan" if get_tags(estimator).input_tags.allow_nan else True,
    )
    sparse = issparse(matrix)
    if sparse:
        given: Any = matrix
        matrix = _canonical(csr_array(given))
        # Each value is finite, but the sum of duplicate entries may not be.
        if not _has_sound_values(estimator, matrix.data):
            raise ValueError("values of X must be finite, got inf or NaN as the sum of repeated entries")
    else:
        matrix = np.require(matrix, requirements=["C", "A"])
    # Before fit, whether rows are scaled may depend on X; fit checks again.
    scaled = getattr(estimator, "normalize" if reset else "_normalizes_rows", False)
    if matrix.dtype == np.float64 and not scaled:
        check_single(matrix.data if sparse else matrix, "values of X")
    rows: csr_array | NDArray[Any] = matrix
    return rows


def check_labels(Y: Any) -> csr_array:
    """Convert an indicator matrix to a canonical CSR array whose stored values are all 1.

    Parameters
    ----------
    Y : array-like or sparse matrix of shape (n_samples, n_labels)
        0 and 1 of any numeric or bool dtype.

    Returns
    -------
    csr_array of shape (n_samples, n_labels), dtype float32
        Ones only; zeros stored in Y are left out.

    Raises
    ------
    ValueError
        If Y is not 2-D, has no columns, or has other values than 0 and 1.
    """
    expected = "Y must be a 2-D indicator matrix (n_samples, n_labels) of 0 and 1"
    hint = "sklearn.preprocessing.MultiLabelBinarizer makes one"
    if not hasattr(Y, "ndim"):
        try:
            Y = np.asarray(Y)
        except ValueError:
            raise ValueError(f"{expected}, got rows of unequal length; {hint}") from None
    if Y.ndim != 2:
        got = f"a {Y.ndim}-D array"
        if Y.ndim == 1 and not issparse(Y) and as_column(Y) is None:
            got += f" with {_not_0_or_1(Y)}; as one label, where that is taken, it must hold 0 and 1"
            # scikit-learn's wording, which its estimator checks look for.
            kind = _target_kind(Y)
            if kind.startswith("continuous"):
                got += f". Unknown label type: {kind}"
            elif kind == "multiclass":
                got += f". Only binary classification is supported. The type of the target is {kind}"
        raise ValueError(f"{expected}, got {got}; {hint}")
    if issparse(Y):
        Y = _check_positions(_natively(Y), "Y")
    try:
        Y = check_array(Y, accept_sparse="csr", dtype="numeric", input_name="Y", ensure_min_samples=0)
    except ValueError as error:
        raise ValueError(f"{expected}: {error}") from None
    numbers: Any = Y if issparse(Y) else native_numbers(Y)
    canonical = _canonical(csr_array(numbers))
    data = canonical.data
    if not np.isin(data, (0, 1)).all():
        wrong = np.unique(data[~np.isin(data, (0, 1))])
        raise ValueError(f"Y must hold 0 and 1 only, got {', '.join(map(str, wrong[:3]))}")
    ones = csr_array(
        (data.astype(np.float32, copy=False), canonical.indices, canonical.indptr), shape=canonical.shape
    )
    if not data.all():
        ones = ones.copy()
        ones.eliminate_zeros()
    return ones


def _target_kind(values: Any) -> str:
    try:
        with np.errstate(invalid="ignore"):  # NaN cannot be cast to an integer
            return str(type_of_target(values))
    except ValueError:  # not a target
        return "unknown"


def _not_0_or_1(values: Any) -> str:
    """Return the first value that is neither 0 nor 1 as text."""
    for value in values:
        plain = value.item() if isinstance(value, np.generic) else value
        if isinstance(plain, str | np.ndarray) or plain not in (0, 1):
            return shown(plain)
    return f"values of dtype {values.dtype}"


def as_column(y: Any) -> NDArray[Any] | None:
    """Convert a 1-D y of 0 and 1 to an indicator matrix of one label.

    Parameters
    ----------
    y : array-like or sparse matrix
        Any input, not checked before.

    Returns
    -------
    ndarray of shape (n_samples, 1), or None
        None if y is not 1-D or has other values; `fit` accepts or refuses it later.
    """
    if y is None or issparse(y):
        return None
    if getattr(y, "ndim", 1) != 1:
        return None
    try:
        values = np.asarray(y)
    except ValueError:  # rows of unequal length
        return None
    if values.ndim != 1 or values.dtype.kind not in "biufO" or not np.isin(values, (0, 1)).all():
        return None
    return values[:, None]


def one_hot(y: Any, classes: NDArray[Any] | None = None) -> tuple[Any, NDArray[Any] | None]:
    """Convert a 1-D y to an indicator matrix of its classes; return other shapes unchanged.

    Parameters
    ----------
    y : array-like or sparse matrix
        One class per row, or an indicator matrix; anything else is refused by `check_labels` later.
    classes : ndarray of shape (n_classes,), default=None
        Sorted classes; None for those in `y`.

    Returns
    -------
    y : csr_array of shape (n_samples, n_classes), or unchanged
    classes : ndarray of shape (n_classes,) or None
        The sorted classes; strings have dtype object, as model files require. None if y is unchanged.

    Raises
    ------
    ValueError
        If a 1-D y is continuous, or has a class that is not in `classes`.
    """
    if y is None or issparse(y):
        return y, None
    try:
        labels = np.asarray(y)
    except ValueError:  # rows of unequal length
        return y, None
    if labels.ndim != 1:
        return y, None
    check_classification_targets(labels)
    found, positions = np.unique(labels, return_inverse=True)
    if classes is not None:
        known = np.asarray(classes.tolist()) if classes.dtype == object else classes
        unknown = ~np.isin(found, known)
        if unknown.any():
            raise ValueError(f"y must have classes seen in fit, got {found[unknown][0]!r}")
        positions = np.searchsorted(known, found)[positions]
        found = classes
    ones = np.ones(len(labels), dtype=np.float32)
    indicator = csr_array((ones, positions, np.arange(len(labels) + 1)), shape=(len(labels), len(found)))
    return indicator, found.astype(object) if found.dtype.kind == "U" else found


def check_training_set(
    estimator: Any, X: Any, Y: Any, sample_weight: Any, *, reset: bool = True, dense: bool = False
) -> tuple[Any, csr_array, NDArray[np.float32] | None]:
    """Check the arguments of ``fit``; rows with weight 0 are dropped.

    Parameters
    ----------
    estimator : estimator
        Its ``n_features_in_`` and ``feature_names_in_`` are set.
    X : array-like or sparse matrix of shape (n_samples, n_features)
        Features.
    Y : array-like or sparse matrix of shape (n_samples, n_labels)
        Indicator matrix.
    sample_weight : array-like of shape (n_samples,) or None
        Weights of the rows, at least 0.
    reset : bool, default=True
        False if the fit continues an earlier one, whose features X must have.
    dense : bool, default=False
        Whether a dense X stays dense.

    Returns
    -------
    X : csr_array, or ndarray if `dense`, of shape (n_kept, n_features)
    Y : csr_array of shape (n_kept, n_labels), dtype float32
    sample_weight : ndarray of shape (n_kept,), dtype float32, or None

    Raises
    ------
    ValueError
        As `check_features` and `check_labels`; if the numbers of rows differ; if a weight is negative or all
        are zero.
    """
    if Y is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None: "
            "it must be an indicator matrix (n_samples, n_labels)"
        )
    check = check_matrix if dense else check_features
    X = check(estimator, X, reset=reset)
    Y = check_labels(Y)
    if Y.shape[0] != X.shape[0]:
        raise ValueError(f"rows of Y: expected {X.shape[0]} as in X, got {Y.shape[0]}")
    if sample_weight is None:
        return X, Y, None
    weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    check_consistent_length(X, weights)
    check_single(weights, "sample_weight")
    weights = weights.astype(np.float32)
    kept = weights > 0
    if not kept.any():
        raise ValueError("sample_weight must be > 0 for at least one row, got zeros only")
    if not kept.all():
        X, Y, weights = X[kept], Y[kept], weights[kept]
    return X, Y, weights


class _Numbered(Sequence[str]):
    """Names such as "label 3", made on request: there may be a billion, of which few are used."""

    def __init__(self, kind: str, count: int) -> None:
        self._kind, self._count = kind, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, at: Any) -> Any:
        number = range(self._count)[at]
        return f"{self._kind} {number}" if isinstance(number, int) else [self[each] for each in number]


def check_names(kind: str, names: Sequence[str] | None, count: int, estimator: Any) -> Sequence[str]:
    """Return the names of all features or labels (`kind`): those given, those of fit, or numbers."""
    if names is None:
        if kind == "feature" and hasattr(estimator, "feature_names_in_"):
            return [str(name) for name in estimator.feature_names_in_]
        return _Numbered(kind, count)
    if isinstance(names, str) or len(names) != count:
        got = shown(names) if isinstance(names, str) else len(names)
        raise ValueError(f"`{kind}_names` must be {count} names, got {got}")
    return names


def held_out_rows(fraction: float, n_rows: int, seed: int) -> NDArray[np.bool_]:
    """Draw the rows that early stopping holds out.

    Parameters
    ----------
    fraction : float
        Share of the rows; > 0 and < 1.
    n_rows : int
        Number of rows.
    seed : int
        Seeds the draw.

    Returns
    -------
    ndarray of shape (n_rows,), dtype bool
        True for the held-out rows.

    Raises
    ------
    ValueError
        If no row would be left to train on.
    """
    n_held = max(1, round(fraction * n_rows))
    if n_held >= n_rows:
        raise ValueError(
            f"`early_stopping` must have a row to train on and one to hold out, got {n_held} of {n_rows} "
            f"rows to hold out"
        )
    held_out = np.zeros(n_rows, dtype=bool)
    held_out[np.random.default_rng(seed).permutation(n_rows)[:n_held]] = True
    return held_out


def _is_ready(estimator: Any, X: Any) -> bool:
    """Return whether a fitted estimator can use X unchanged, in a tenth of the time of the full check.

    The full check takes most of the time of predicting a single row. It is made if this returns False.
    """
    matrix: Any = X
    if issparse(X):
        if matrix.format != "csr" or not _core.is_canonical(matrix):
            return False
        values = matrix.data
    elif type(X) is np.ndarray and X.dtype in (np.float32, np.float64) and X.flags.carray:
        values = X
    else:
        return False
    return bool(
        matrix.ndim == 2
        and matrix.shape[0] > 0
        and matrix.shape[1] == estimator.n_features_in_
        and not hasattr(estimator, "feature_names_in_")
        and _has_sound_values(estimator, values)
        and (values.dtype == np.float32 or getattr(estimator, "_normalizes_rows", False))
    )


def _has_sound_values(estimator: Any, values: NDArray[Any]) -> bool:
    """Return whether all values are finite, or NaN where that is allowed."""
    # Tags come second, since getting them takes longer than checking the values of a row.
    return bool(
        np.isfinite(values).all() or (get_tags(estimator).input_tags.allow_nan and not np.isinf(values).any())
    )


def canonical_csr(matrix: Any, name: str) -> csr_array:
    """Convert a 2-D ndarray or sparse matrix to a CSR array with sorted, unique columns.

    Parameters
    ----------
    matrix : ndarray or sparse matrix of shape (n_rows, n_columns)
        Not changed; canonical arrays are shared, not copied.
    name : str
        The argument's name, for the message.

    Returns
    -------
    csr_array of shape (n_rows, n_columns)
        With the dtype of `matrix`.

    Raises
    ------
    ValueError
        If a sparse matrix has indices outside its shape.
    """
    if issparse(matrix):
        return _canonical(csr_array(_check_positions(_natively(matrix), name)))
    return _canonical(csr_array(native_numbers(matrix)))


def _canonical(matrix: csr_array) -> csr_array:
    """Sort columns, sum duplicates and align arrays for the core, on copies where needed."""
    if not matrix.has_canonical_format:
        # Not `matrix.copy()` alone: a view's flags may be shared with the caller's matrix.
        matrix = csr_array(
            (matrix.data.copy(), matrix.indices.copy(), matrix.indptr.copy()), shape=matrix.shape
        )
        matrix.sum_duplicates()
    positions = np.promote_types(matrix.indices.dtype, matrix.indptr.dtype)
    matrix.data = np.require(matrix.data, requirements=["C", "A"])
    matrix.indices = np.require(matrix.indices, positions, ["C", "A"])
    matrix.indptr = np.require(matrix.indptr, positions, ["C", "A"])
    return matrix


def native_numbers(values: NDArray[Any]) -> NDArray[Any]:
    """Convert numbers to a width and byte order that scipy supports.

    Parameters
    ----------
    values : ndarray
        Any dtype.

    Returns
    -------
    ndarray
        An array in native byte order, copied only if necessary. float16 becomes float32, and float128 becomes
        float64.
    """
    dtype = values.dtype.newbyteorder("=")
    if dtype.kind == "f" and dtype.itemsize not in (4, 8):
        dtype = np.dtype(np.float32 if dtype.itemsize < 4 else np.float64)
    with np.errstate(over="ignore"):  # infinity is refused later, where values must be finite
        return values.astype(dtype, copy=False)


def check_single(values: NDArray[np.floating[Any]], name: str) -> None:
    """Refuse values that would be infinite in single precision, in which the core works.

    Parameters
    ----------
    values : ndarray
    name : str
        Name of the values, for the message.

    Raises
    ------
    ValueError
        If a value is not finite as float32.
    """
    for extreme in (
        np.fmax.reduce(values, axis=None, initial=0),
        np.fmin.reduce(values, axis=None, initial=0),
    ):
        if abs(extreme) > np.finfo(np.float32).max:
            raise ValueError(f"{name} must be finite as float32, got {extreme}")


def _natively(matrix: Any) -> Any:
    """Convert the values of a sparse matrix with `native_numbers`, on a shallow copy if needed."""
    if matrix.format not in ("csr", "csc", "bsr", "coo", "dia"):
        return matrix
    data = native_numbers(matrix.data)
    if data is matrix.data:
        return matrix
    matrix = copy.copy(matrix)
    matrix.data = data
    return matrix


def _check_positions(matrix: Any, name: str) -> Any:
    """Refuse a sparse matrix with indices outside its shape, before scipy's code trusts them.

    Returns the matrix with indices of one valid dtype. Arrays are shared with the caller's matrix. scipy's
    check trims and casts the matrix it is called on, so it is called on a shallow copy.
    """
    if matrix.format == "coo" and len(matrix.shape) == 2:
        for axis, positions in enumerate((matrix.row, matrix.col)):
            size = matrix.shape[axis]
            if len(positions) and not 0 <= positions.min() <= positions.max() < size:
                raise ValueError(
                    f"{name} is not a valid COO matrix: {('row', 'col')[axis]} must be from 0 to {size - 1}"
                )
    if matrix.format not in ("csr", "csc", "bsr"):
        return matrix
    matrix = copy.copy(matrix)
    invalid = f"{name} is not a valid {matrix.format.upper()} matrix"
    try:
        matrix.check_format(full_check=True)
    except ValueError as error:
        raise ValueError(f"{invalid}: {error}") from None
    # scipy does not check the inner entries of indptr if the last one is 0.
    if (matrix.indptr[1:] < matrix.indptr[:-1]).any():
        raise ValueError(f"{invalid}: indptr must be a non-decreasing sequence")
    return matrix
