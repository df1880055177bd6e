"""Functions that check user input and convert it to a uniform format, called canonical.

A canonical X is a CSR array of dtype float32 or float64. Its column indices have dtype int32 or int64, and
are sorted and unique within each row. Its values are finite. NaN is also allowed if the scikit-learn tags of
the estimator have ``allow_nan``. A canonical Y is a CSR array of dtype float32 in which all stored values are
1 or NaN. NaN marks an unknown entry: nobody checked whether the row has the label. The function `known_ones`
returns the stored values that are 1, and `unknown_entries` returns the unknown entries. Functions of the Rust
core raise an error for NaN if they do not support unknown entries.

The matrices of the caller are never changed. Canonical input is used without a copy. Other input is copied
for the conversion. Input may be dense or sparse. Its values may be integers, bool, or floats of 16 to 128
bits, in any byte order. All user input is converted in this module.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse
from sklearn.utils import check_array, check_consistent_length, get_tags
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import _check_sample_weight, validate_data

from manylabel import _core
from manylabel.estimator.parameters import shown

__all__ = [
    "KeptDense",
    "as_column",
    "canonical_csr",
    "check_features",
    "check_labels",
    "check_matrix",
    "check_names",
    "check_object",
    "check_row",
    "check_single",
    "check_training_set",
    "held_out_rows",
    "known_ones",
    "mostly_nonzero",
    "native_numbers",
    "one_hot",
    "unknown_entries",
]

# Number of values that are checked at a time.
_PART = 1 << 22


def check_object(estimator: Any) -> None:
    """Raise an error if `estimator` is a class.

    Raises
    ------
    TypeError
        If `estimator` is a class.
    """
    if isinstance(estimator, type):
        raise TypeError(f"`estimator` must be an estimator instance, got the class {estimator.__name__}")


# How a dense X is treated; see the parameter `dense` of `check_training_set`.
KeptDense: TypeAlias = bool | Literal["as given", "if mostly nonzero", "as given if mostly nonzero"]


def check_features(estimator: Any, X: Any, *, reset: bool) -> csr_array:
    """Convert X to a CSR array with sorted, unique indices.

    Parameters
    ----------
    estimator : estimator
        The estimator. If `reset` is True, its ``n_features_in_`` and ``feature_names_in_`` are set from X.
        Otherwise, X must agree with these attributes.
    X : array-like or sparse matrix of shape (n_samples, n_features)
        Features, of any numeric or bool dtype. A sparse X may have int32 or int64 indices. NaN is allowed
        only if the scikit-learn tags of the estimator have ``allow_nan``. NaN stays NaN in the result.
    reset : bool
        Whether X defines the number and the names of the features. This is True in fit and False in
        predictions.

    Returns
    -------
    csr_array of shape (n_samples, n_features)
        The features. The dtype is float32 if X is float32, or if X is float16 and `reset` is False. It is
        float64 otherwise.

    Raises
    ------
    ValueError
        If X is not 2-D or is empty, if X has infinite values or text, or if X has NaN and the estimator does
        not allow NaN. The error is also raised if indices are outside the shape of X, or if X and the
        training data have different numbers of features. Finite values that would be infinite in float32 also
        raise the error, unless the estimator scales rows to unit length before it converts them to float32.
    """
    matrix = check_matrix(estimator, X, reset=reset)
    return csr_array(matrix) if isinstance(matrix, np.ndarray) else matrix


def check_row(estimator: Any, x: Any) -> csr_array:
    """Convert a single row to a CSR array with sorted, unique indices, for a fitted estimator.

    Parameters
    ----------
    estimator : estimator
        The fitted estimator. x must agree with its ``n_features_in_`` and ``feature_names_in_``.
    x : array-like or sparse matrix of shape (n_features,) or (1, n_features)
        Features of the row, with the dtypes that `check_features` allows. If x is a pandas Series, its index
        is used as the feature names.

    Returns
    -------
    csr_array of shape (1, n_features)
        The features. The dtype is float32 if x is float32 or float16, and float64 otherwise.

    Raises
    ------
    ValueError
        If x does not have exactly one row, or if x is not valid. The docstring of `check_features` lists the
        conditions.
    """
    if np.ndim(x) == 1:
        if hasattr(x, "to_frame"):
            x = x.to_frame().T
        else:
            one: Any = x if issparse(x) else np.asarray(x)
            x = one.reshape((1, -1))
    row = check_features(estimator, x, reset=False)
    if row.shape[0] != 1:
        raise ValueError(f"`x` must have exactly one row, got {row.shape[0]} rows")
    return row


def check_matrix(estimator: Any, X: Any, *, reset: bool, as_given: bool = False) -> csr_array | NDArray[Any]:
    """Convert a sparse X to a CSR array with sorted, unique indices, and a dense X to C order.

    Parameters
    ----------
    estimator : estimator
        The estimator. If `reset` is True, its ``n_features_in_`` and ``feature_names_in_`` are set from X.
        Otherwise, X must agree with these attributes.
    X : array-like or sparse matrix of shape (n_samples, n_features)
        Features, of any numeric or bool dtype.
    reset : bool
        Whether X defines the number and the names of the features. This is True in fit and False in
        predictions.
    as_given : bool, default=False
        If True, a dense X keeps its memory order, and a dense X of dtype float16 also keeps this dtype.

    Returns
    -------
    csr_array or ndarray of shape (n_samples, n_features)
        The features. If X is float32, the dtype is float32. A dense X of dtype float16 keeps this dtype if
        `as_given` is True. Any other X of dtype float16 is converted to float64 in fit and to float32 in
        predictions. For all other dtypes of X, the dtype is float64.

    Raises
    ------
    ValueError
        If X is not valid. The docstring of `check_features` lists the conditions.
    """
    if _is_ready(estimator, X, reset=reset):
        ready: csr_array | NDArray[Any] = X
        if reset:
            # As in scikit-learn's `validate_data`.
            estimator.n_features_in_ = ready.shape[1]
            vars(estimator).pop("feature_names_in_", None)
        return ready
    if issparse(X):
        X = _check_positions(_natively(X), "X")
    dtypes: list[Any] = [np.float64, np.float32]
    if as_given and not issparse(X):
        dtypes.append(np.float16)
    elif not reset and getattr(X, "dtype", None) == np.float16:
        dtypes = [np.float32]  # exact, and half as large as float64
    matrix: Any = validate_data(
        estimator,
        X,
        reset=reset,
        accept_sparse="csr",
        dtype=dtypes,
        order=None if as_given else "C",
        accept_large_sparse=True,
        ensure_all_finite="allow-nan" if get_tags(estimator).input_tags.allow_nan else True,
    )
    sparse = issparse(matrix)
    if sparse:
        given: Any = matrix
        matrix = _canonical(csr_array(given))
        # All stored values are finite, but the sum of duplicate entries may be infinite.
        if not _has_sound_values(estimator, matrix.data):
            raise ValueError("values of X must be finite, got inf or NaN as the sum of duplicate entries")
    else:
        matrix = np.require(matrix, requirements=["A"] if as_given else ["C", "A"])
    # In fit, the values of X may determine whether rows are scaled. `fit` therefore checks the values again
    # later.
    scaled = getattr(estimator, "normalize" if reset else "_normalizes_rows", False)
    if matrix.dtype == np.float64 and not scaled:
        check_single(matrix.data if sparse else matrix, "values of X")
    rows: csr_array | NDArray[Any] = matrix
    return rows


def check_labels(Y: Any, name: str = "Y", *, unknown: bool = False) -> csr_array:
    """Convert an indicator matrix to a CSR array with sorted, unique indices.

    All stored values of the result are 1 or NaN.

    Parameters
    ----------
    Y : array-like or sparse matrix of shape (n_samples, n_labels)
        Indicator matrix of 0 and 1, of any numeric or bool dtype. NaN marks an unknown entry.
    name : str, default="Y"
        Name of the argument, for error messages.
    unknown : bool, default=False
        Whether unknown entries are allowed.

    Returns
    -------
    csr_array of shape (n_samples, n_labels), dtype float32
        The labels. Zeros that are stored in Y are left out.

    Raises
    ------
    ValueError
        If Y is not 2-D, has no columns, or has values other than 0, 1 and NaN. The error is also raised if Y
        has NaN and `unknown` is False.
    """
    return _labels(Y, name, nan=unknown, allowed="0, 1 and NaN" if unknown else "0 and 1")


def _labels(Y: Any, name: str, *, nan: bool, allowed: str) -> csr_array:
    """Check Y as `check_labels` does. NaN is allowed if `nan` is True.

    `allowed` is the text that lists the allowed values in an error message.
    """
    expected = f"{name} must be a 2-D indicator matrix (n_samples, n_labels) of 0 and 1"
    hint = "sklearn.preprocessing.MultiLabelBinarizer converts lists of labels to an indicator matrix"
    if not hasattr(Y, "ndim"):
        try:
            Y = np.asarray(Y)
        except ValueError:
            raise ValueError(f"{expected}, got rows of unequal length; {hint}") from None
    if Y.ndim != 2:
        got = f"a {Y.ndim}-D array"
        if Y.ndim == 1 and not issparse(Y) and as_column(Y) is None:
            got += f" with {_not_0_or_1(Y)}; a 1-D y is a single label, so its values must be 0 and 1"
            # scikit-learn's estimator checks look for this wording.
            kind = _target_kind(Y)
            if kind.startswith("continuous"):
                got += f". Unknown label type: {kind}"
            elif kind == "multiclass":
                got += ". For such a y: Only binary classification is supported. "
                got += f"The type of the target is {kind}"
        raise ValueError(f"{expected}, got {got}; {hint}")
    if issparse(Y):
        Y = _check_positions(_natively(Y), name)
    # For integers in these types, scikit-learn's check finds nothing and converts nothing. It takes longer
    # than all other checks of a small Y.
    if type(Y) not in (np.ndarray, csr_array) or Y.dtype.kind not in "biu" or Y.shape[1] == 0:
        try:
            Y = check_array(
                Y,
                accept_sparse="csr",
                dtype="numeric",
                input_name=name,
                ensure_min_samples=0,
                ensure_all_finite="allow-nan" if nan else True,
            )
        except ValueError as error:
            raise ValueError(f"{expected}: {error}") from None
    numbers: Any = Y if issparse(Y) else native_numbers(Y)
    canonical = _canonical(csr_array(numbers))
    data = canonical.data
    if not (valid := (data == 0) | (data == 1) | np.isnan(data)).all():
        wrong = np.unique(data[~valid])
        raise ValueError(f"{name} must contain only {allowed}, got {', '.join(map(str, wrong[:3]))}")
    ones = csr_array(
        (data.astype(np.float32, copy=False), canonical.indices, canonical.indptr), shape=canonical.shape
    )
    if not data.all():
        ones = ones.copy()
        ones.eliminate_zeros()
    return ones


def known_ones(Y: csr_array) -> csr_array:
    """Return a copy of a canonical Y without its unknown entries, or Y itself if all entries are known."""
    return _entries(Y, ~np.isnan(Y.data))


def unknown_entries(Y: csr_array) -> csr_array | None:
    """Return the unknown entries of a canonical Y as a CSR array of ones, or None if there are none."""
    unknown = np.isnan(Y.data)
    return _entries(Y, unknown) if unknown.any() else None


def _entries(Y: csr_array, chosen: NDArray[np.bool_]) -> csr_array:
    """Return a CSR array that has the value 1 at some of the stored entries of Y.

    `chosen` is a mask with one bool per stored entry of Y. True selects the entry. Y is not changed.
    """
    if chosen.all() and not np.isnan(Y.data).any():
        return Y
    ends = np.concatenate([[0], np.cumsum(chosen)])[Y.indptr].astype(Y.indptr.dtype)
    return csr_array((np.ones(ends[-1], dtype=np.float32), Y.indices[chosen], ends), shape=Y.shape)


def _target_kind(values: Any) -> str:
    try:
        with np.errstate(invalid="ignore"):  # NaN cannot be cast to an integer
            return str(type_of_target(values))
    except ValueError:  # y is not a valid target
        return "unknown"


def _not_0_or_1(values: Any) -> str:
    """Return the first value that is neither 0 nor 1, as text for an error message."""
    for value in values:
        plain = value.item() if isinstance(value, np.generic) else value
        if isinstance(plain, str | np.ndarray) or plain not in (0, 1):
            return shown(plain)
    return f"values of dtype {values.dtype}"


def as_column(y: Any) -> NDArray[Any] | None:
    """Convert a 1-D y of 0 and 1 to an indicator matrix with a single label.

    Parameters
    ----------
    y : array-like or sparse matrix
        The y that the user passed to `fit`. It need not be valid.

    Returns
    -------
    ndarray of shape (n_samples, 1), or None
        The indicator matrix, or None if y is not a 1-D array of 0 and 1. If the result is None, `fit`
        continues with y itself and checks y later.
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
    """Convert a 1-D y to an indicator matrix of its classes.

    A y that is not 1-D is returned unchanged.

    Parameters
    ----------
    y : array-like or sparse matrix
        One class per row, or an indicator matrix. If y is not 1-D, this function does not check y. The
        caller must then check y, for example with `check_labels`.
    classes : ndarray of shape (n_classes,), default=None
        The sorted classes. None uses the classes that occur in `y`.

    Returns
    -------
    y : csr_array of shape (n_samples, n_classes), or unchanged
        The indicator matrix, with one column per class.
    classes : ndarray of shape (n_classes,) or None
        The sorted classes, or None if y is returned unchanged. Classes that are strings are in an array of
        dtype object, because model files require this dtype for strings.

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
            raise ValueError(f"y must have only classes seen in fit, got {found[unknown][0]!r}")
        positions = np.searchsorted(known, found)[positions]
        found = classes
    ones = np.ones(len(labels), dtype=np.float32)
    indicator = csr_array((ones, positions, np.arange(len(labels) + 1)), shape=(len(labels), len(found)))
    return indicator, found.astype(object) if found.dtype.kind == "U" else found


def check_training_set(
    estimator: Any,
    X: Any,
    Y: Any,
    sample_weight: Any,
    *,
    reset: bool = True,
    dense: KeptDense = False,
    name: str = "Y",
    unknown: bool = False,
) -> tuple[Any, csr_array, NDArray[np.float32] | None]:
    """Check the arguments of ``fit``, and leave out rows with weight 0.

    Parameters
    ----------
    estimator : estimator
        The estimator. If `reset` is True, its ``n_features_in_`` and ``feature_names_in_`` are set from X.
        Otherwise, X must agree with these attributes.
    X : array-like or sparse matrix of shape (n_samples, n_features)
        Features.
    Y : array-like or sparse matrix of shape (n_samples, n_labels)
        Indicator matrix.
    sample_weight : array-like of shape (n_samples,) or None
        Weights of the rows, >= 0. None means equal weights.
    reset : bool, default=True
        Whether X defines the number and the names of the features. Pass False if the fit continues an earlier
        fit. X must then have the same features as in the earlier fit.
    dense : bool or str, default=False
        Whether a dense X stays dense. A sparse X is always converted to a CSR array.

        - False: X is converted to a CSR array.
        - True: X stays dense and is converted to C order.
        - "as given": X stays dense and keeps its memory order. float16 is not converted to another dtype.
        - "if mostly nonzero": If at most half of the values of X are nonzero, X is converted to a CSR array.
          Otherwise, X stays dense and is converted to C order.
        - "as given if mostly nonzero": If at most half of the values of X are nonzero, X is converted to a
          CSR array. Otherwise, X stays dense and keeps its memory order, and float16 is not converted to
          another dtype.
    name : str, default="Y"
        Name of the argument Y, for error messages.
    unknown : bool, default=False
        Whether Y may have unknown entries, marked by NaN. Otherwise, NaN raises an error.

    Returns
    -------
    X : csr_array or ndarray, of shape (n_kept, n_features)
        Features of the n_kept rows with weights > 0. X is an ndarray if the given X is dense and stays dense.
        The indices of a CSR array are sorted and unique.
    Y : csr_array of shape (n_kept, n_labels), dtype float32
        Labels of the rows with weights > 0. All stored values are 1, or 1 and NaN if `unknown` is True.
    sample_weight : ndarray of shape (n_kept,), dtype float32, or None
        The weights that are > 0, or None if no weights were given.

    Raises
    ------
    ValueError
        If X and Y have different numbers of rows, if a weight is negative, or if all weights are zero. The
        error is also raised if X or Y is not valid. The docstrings of `check_features` and `check_labels`
        list the conditions.
    """
    if Y is None:
        target = "y" if name == "Y" else name
        raise ValueError(
            f"{type(estimator).__name__} requires {target} to be passed, but the target {target} is None; "
            f"{target} must be an indicator matrix of shape (n_samples, n_labels)"
        )
    if dense:
        as_given = dense in ("as given", "as given if mostly nonzero")
        X = check_matrix(estimator, X, reset=reset, as_given=as_given)
        may_be_zero = dense in ("if mostly nonzero", "as given if mostly nonzero")
        if may_be_zero and not issparse(X) and not mostly_nonzero(X):
            # scipy has no sparse arrays of float16.
            X = csr_array(X.astype(np.float32) if X.dtype == np.float16 else X)
    else:
        X = check_features(estimator, X, reset=reset)
    Y = _labels(Y, name, nan=True, allowed="0, 1 and NaN" if unknown else "0 and 1")
    if not unknown and np.isnan(Y.data).any():
        raise ValueError(
            f"{name} must not have unknown entries (NaN), because {type(estimator).__name__} does not "
            f"support them with these parameters; Input {name} contains NaN"
        )
    if Y.shape[0] != X.shape[0]:
        raise ValueError(f"number of rows of {name}: expected {X.shape[0]} as in X, got {Y.shape[0]}")
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
    """A sequence of numbered names, for example "label 0", "label 1" and so on.

    There may be a billion names, but only a few of them are used. A name is therefore made only when it is
    read.
    """

    def __init__(self, kind: str, count: int) -> None:
        self._kind, self._count = kind, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, at: Any) -> Any:
        number = range(self._count)[at]
        return f"{self._kind} {number}" if isinstance(number, int) else [self[each] for each in number]


def check_names(kind: str, names: Sequence[str] | None, count: int, estimator: Any) -> Sequence[str]:
    """Return the names of all features if `kind` is "feature", and of all labels if `kind` is "label".

    If `names` is not None, its length is checked and `names` is returned. If `names` is None, the names come
    from an attribute of `estimator`: ``feature_names_in_`` for features, and ``label_names_`` for labels. If
    `estimator` does not have the attribute, the names are "feature 0", "feature 1" and so on, or "label 0",
    "label 1" and so on.
    """
    if names is None:
        known = getattr(estimator, "feature_names_in_" if kind == "feature" else "label_names_", None)
        if known is not None:
            return [str(name) for name in known]
        return _Numbered(kind, count)
    if isinstance(names, str) or len(names) != count:
        got = shown(names) if isinstance(names, str) else len(names)
        raise ValueError(f"`{kind}_names` must be a sequence of {count} names, got {got}")
    return names


def held_out_rows(fraction: float, n_rows: int, seed: int) -> NDArray[np.bool_]:
    """Draw the held-out rows for early stopping.

    Parameters
    ----------
    fraction : float
        Fraction of the rows to hold out, > 0 and < 1. At least one row is held out.
    n_rows : int
        Number of rows.
    seed : int
        Seed of the random draw.

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
            f"`validation_fraction` must leave at least one row to train on, got {fraction}, which holds out "
            f"{n_held} of {n_rows} rows"
        )
    held_out = np.zeros(n_rows, dtype=bool)
    held_out[np.random.default_rng(seed).permutation(n_rows)[:n_held]] = True
    return held_out


def _is_ready(estimator: Any, X: Any, *, reset: bool) -> bool:
    """Return whether X is valid and needs no conversion. The arguments are the same as in `check_matrix`.

    Full validation of X would take most of the time of a prediction for a single row. This function takes a
    tenth of the time of full validation. If this function returns False, X may still be valid, and the caller
    validates X in full.
    """
    matrix: Any = X
    # Full validation also checks whether values of float64 are finite in float32. In predictions, rows that
    # are scaled to unit length need no such check.
    takes_float64 = not reset and getattr(estimator, "_normalizes_rows", False)
    if getattr(X, "dtype", None) != np.float32 and not takes_float64:
        return False
    if issparse(X):
        if matrix.format != "csr" or (reset and type(X) is not csr_array) or not _core.is_canonical(matrix):
            return False
        values = matrix.data
    elif type(X) is np.ndarray and X.dtype in (np.float32, np.float64) and X.flags.carray:
        values = X
    else:
        return False
    return bool(
        matrix.ndim == 2
        and matrix.shape[0] > 0
        and matrix.shape[1] > 0
        and (reset or matrix.shape[1] == estimator.n_features_in_)
        and (reset or not hasattr(estimator, "feature_names_in_"))
        and _has_sound_values(estimator, values)
    )


def _has_sound_values(estimator: Any, values: NDArray[Any]) -> bool:
    """Return whether the estimator accepts all of the given values of X.

    Finite values are accepted. NaN is also accepted if the scikit-learn tags of the estimator have
    ``allow_nan``.
    """
    # Reading the tags takes longer than checking the values of a row, so it is done only if needed.
    for part in _in_parts(values):
        if np.isfinite(part).all():
            continue
        if np.isinf(part).any() or not get_tags(estimator).input_tags.allow_nan:
            return False
    return True


def _in_parts(values: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Yield parts of an array, so that an operation on a part allocates little memory.

    The array may be mapped from a file that is larger than memory.
    """
    if values.size <= _PART:
        yield values
        return
    flat = values.reshape(-1)
    for first in range(0, len(flat), _PART):
        yield flat[first : first + _PART]


def canonical_csr(matrix: Any, name: str) -> csr_array:
    """Convert a 2-D ndarray or sparse matrix to a CSR array with sorted, unique indices.

    Parameters
    ----------
    matrix : ndarray or sparse matrix of shape (n_rows, n_columns)
        The matrix to convert. It is not changed. If no conversion is needed, the result shares the arrays of
        the matrix.
    name : str
        Name of the argument, for the error message.

    Returns
    -------
    csr_array of shape (n_rows, n_columns)
        The converted matrix, with the dtype of `matrix`.

    Raises
    ------
    ValueError
        If a sparse matrix has indices outside its shape.
    """
    if issparse(matrix):
        return _canonical(csr_array(_check_positions(_natively(matrix), name)))
    return _canonical(csr_array(native_numbers(matrix)))


def _canonical(matrix: csr_array) -> csr_array:
    """Sort the indices of a CSR array, sum duplicate entries, and align its inner arrays for the Rust core.

    The inner arrays are ``data``, ``indices`` and ``indptr``. Those that must be changed are copied first.
    """
    if not matrix.has_canonical_format:
        # `matrix.copy()` is not enough, since this matrix may share its flags with the caller's matrix.
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
    """Convert numbers to a dtype that scipy's sparse matrices support.

    Parameters
    ----------
    values : ndarray
        Array of any dtype.

    Returns
    -------
    ndarray
        The array in native byte order. It is copied only if necessary. float16 becomes float32, and float128
        becomes float64.
    """
    dtype = values.dtype.newbyteorder("=")
    if dtype.kind == "f" and dtype.itemsize not in (4, 8):
        dtype = np.dtype(np.float32 if dtype.itemsize < 4 else np.float64)
    with np.errstate(over="ignore"):  # later checks raise an error for infinite values
        return values.astype(dtype, copy=False)


def mostly_nonzero(X: NDArray[Any]) -> bool:
    """Return whether more than half of the values of a dense X are nonzero."""
    return bool(2 * np.count_nonzero(X) > X.size)


def check_single(values: NDArray[np.floating[Any]], name: str) -> None:
    """Raise an error if a value would be infinite in float32, the dtype that the Rust core uses.

    Parameters
    ----------
    values : ndarray
        Values to check. NaN is ignored.
    name : str
        Name of the values, for the error message.

    Raises
    ------
    ValueError
        If a value would be infinite in float32.
    """
    for extreme in (
        np.fmax.reduce(values, axis=None, initial=0),
        np.fmin.reduce(values, axis=None, initial=0),
    ):
        if abs(extreme) > np.finfo(np.float32).max:
            raise ValueError(
                f"{name} must be finite in float32 (at most 3.4e38 in absolute value), got {extreme}"
            )


def _natively(matrix: Any) -> Any:
    """Apply `native_numbers` to the values of a sparse matrix. The given matrix is not changed."""
    if matrix.format not in ("csr", "csc", "bsr", "coo", "dia"):
        return matrix
    data = native_numbers(matrix.data)
    if data is matrix.data:
        return matrix
    matrix = copy.copy(matrix)
    matrix.data = data
    return matrix


def _check_positions(matrix: Any, name: str) -> Any:
    """Raise an error if a sparse matrix has indices outside its shape. Otherwise, return the matrix.

    The check is necessary because most functions of scipy use indices without checking them. For a CSR, CSC
    or BSR matrix, the result is a shallow copy of the matrix, since scipy's method ``check_format`` may trim
    the index arrays and change their dtype. For any other format, the given matrix itself is returned.
    """
    if matrix.format == "coo" and len(matrix.shape) == 2:
        for axis, positions in enumerate((matrix.row, matrix.col)):
            size = matrix.shape[axis]
            if len(positions) and not 0 <= positions.min() <= positions.max() < size:
                raise ValueError(
                    f"{name} is not a valid COO matrix: `{('row', 'col')[axis]}` must have indices from 0 to "
                    f"{size - 1}, got indices from {positions.min()} to {positions.max()}"
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
