"""The one place where user input becomes canonical arrays.

Canonical is: X a CSR array of float32 or float64 with sorted, unique columns, int32 or int64 positions,
finite values; Y a CSR array of float32 ones. What already is so is passed on as it is, without a copy. What
is not is copied; the caller's matrices are never sorted, summed or widened in place.
"""

from __future__ import annotations

import os
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse
from sklearn.utils import check_array, check_consistent_length, check_random_state
from sklearn.utils.validation import _check_sample_weight, validate_data

__all__ = ["check_count", "check_features", "check_labels", "check_training_set", "n_threads", "seed"]


def check_features(estimator: Any, X: Any, *, reset: bool) -> csr_array:
    """Turn X into a canonical CSR array.

    Parameters
    ----------
    estimator : estimator
        Whose ``n_features_in_`` and ``feature_names_in_`` are set (`reset`) or compared with.
    X : array-like or sparse matrix of shape (n_samples, n_features)
        Any numeric or bool dtype; int32 or int64 positions.
    reset : bool
        True in fit, False afterwards.

    Returns
    -------
    csr_array of shape (n_samples, n_features)
        float32 if X was, otherwise float64.

    Raises
    ------
    ValueError
        If X is not 2-D, is empty, has values that are not finite or not numbers, positions outside its
        shape, or another number of features than fit has seen.
    """
    if issparse(X):
        _check_positions(X, "X")
    X = validate_data(
        estimator, X, reset=reset, accept_sparse="csr", dtype=[np.float64, np.float32], accept_large_sparse=True
    )
    return _canonical(csr_array(X))


def check_labels(Y: Any) -> csr_array:
    """Turn an indicator matrix into a canonical CSR array of ones.

    Parameters
    ----------
    Y : array-like or sparse matrix of shape (n_samples, n_labels)
        0 and 1 of any numeric or bool dtype.

    Returns
    -------
    csr_array of shape (n_samples, n_labels), dtype float32
        Ones only; zeros that Y stores are left out.

    Raises
    ------
    ValueError
        If Y is not 2-D, has no column, or holds anything but 0 and 1.
    """
    if np.ndim(Y) == 1:
        raise ValueError(
            "Y must be a 2-D indicator matrix (n_samples, n_labels) of 0 and 1, got a 1-D array; "
            "sklearn.preprocessing.MultiLabelBinarizer makes one"
        )
    if issparse(Y):
        _check_positions(Y, "Y")
    Y = check_array(Y, accept_sparse="csr", dtype="numeric", input_name="Y", ensure_min_samples=0)
    Y = _canonical(csr_array(Y))
    if not np.isin(Y.data, (0, 1)).all():
        wrong = np.unique(Y.data[~np.isin(Y.data, (0, 1))])
        raise ValueError(f"Y must hold 0 and 1 only, got {', '.join(map(str, wrong[:3]))}")
    if Y.dtype != np.float32:
        Y = csr_array((Y.data.astype(np.float32), Y.indices, Y.indptr), shape=Y.shape)
    if not Y.data.all():
        Y = Y.copy()
        Y.eliminate_zeros()
    return Y


def check_training_set(
    estimator: Any, X: Any, Y: Any, sample_weight: Any
) -> tuple[csr_array, csr_array, NDArray[np.float32] | None]:
    """Check what ``fit`` is given; rows of weight zero are left out.

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

    Returns
    -------
    X : csr_array of shape (n_kept, n_features)
    Y : csr_array of shape (n_kept, n_labels), dtype float32
    sample_weight : ndarray of shape (n_kept,), dtype float32, or None

    Raises
    ------
    ValueError
        As `check_features` and `check_labels`; if rows differ in number; if a weight is negative or all
        are zero.
    """
    if Y is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None: "
            "it must be an indicator matrix (n_samples, n_labels)"
        )
    X = check_features(estimator, X, reset=True)
    Y = check_labels(Y)
    if Y.shape[0] != X.shape[0]:
        raise ValueError(f"rows of Y: expected {X.shape[0]} as in X, got {Y.shape[0]}")
    if sample_weight is None:
        return X, Y, None
    weights = _check_sample_weight(sample_weight, X, dtype=np.float32, ensure_non_negative=True)
    check_consistent_length(X, weights)
    kept = weights > 0
    if not kept.any():
        raise ValueError("sample_weight must be > 0 for at least one row, got zeros only")
    if not kept.all():
        X, Y, weights = X[kept], Y[kept], weights[kept]
    return X, Y, weights


def check_count(name: str, value: Any, least: int) -> int:
    """Check that a parameter is an integer of at least `least`."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Integral) or value < least:
        raise ValueError(f"`{name}` must be an integer >= {least}, got {value!r}")
    return int(value)


def n_threads(n_jobs: int | None) -> int:
    """Turn scikit-learn's ``n_jobs`` into a number of threads; never more than the machine's cores.

    None means 1; -1 all cores this process may use, -2 all but one, and so on.
    """
    if n_jobs is None:
        return 1
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, Integral) or n_jobs == 0:
        raise ValueError(f"`n_jobs` must be None or an integer other than 0, got {n_jobs!r}")
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    wanted = int(n_jobs) if n_jobs > 0 else cores + 1 + int(n_jobs)
    return max(1, min(wanted, cores))


def seed(random_state: Any) -> int:
    """Turn scikit-learn's ``random_state`` into one seed; None draws one from numpy's global state."""
    if isinstance(random_state, Integral) and not isinstance(random_state, bool) and random_state >= 0:
        return int(random_state)
    return int(check_random_state(random_state).randint(np.iinfo(np.int64).max, dtype=np.int64))


def _canonical(matrix: csr_array) -> csr_array:
    """Sort columns and add up duplicates, on a copy if there is anything to do."""
    if not matrix.has_canonical_format:
        # Not `matrix.copy()` alone: a view's flags may be shared with the caller's matrix.
        matrix = csr_array((matrix.data.copy(), matrix.indices.copy(), matrix.indptr.copy()), shape=matrix.shape)
        matrix.sum_duplicates()
    if matrix.indices.dtype != matrix.indptr.dtype:
        wide = np.promote_types(matrix.indices.dtype, matrix.indptr.dtype)
        matrix = csr_array(
            (matrix.data, matrix.indices.astype(wide), matrix.indptr.astype(wide)), shape=matrix.shape
        )
    return matrix


def _check_positions(matrix: Any, name: str) -> None:
    """Reject a hand-made sparse matrix whose positions leave its shape, before scipy's code trusts them."""
    if matrix.format not in ("csr", "csc", "bsr"):
        return
    try:
        matrix.check_format(full_check=True)
    except ValueError as error:
        raise ValueError(f"{name} is not a valid {matrix.format.upper()} matrix: {error}") from None
