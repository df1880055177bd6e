"""Functions that scale features for linear classifiers, and undo the scaling in the fitted weights."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array

from manylabel import _core
from manylabel.estimator.base import core_rows
from manylabel.estimator.validation import check_single

__all__ = [
    "Features",
    "ScaledFeatures",
    "ScaledTable",
    "core_features",
    "core_table",
    "holds_measurements",
    "inverse_deviations",
    "scaled_columns",
    "scaled_features",
    "scorer_features",
    "unit_rows",
    "unscaled_dense",
    "unscaled_rows",
    "unscaled_weights",
]

# If the fraction of nonzero values is larger than this number, the data are treated as measurements.
# Otherwise, they are treated as word counts. In 56 public data sets, the densest word counts have 9 % nonzero
# values (enron and Yahoo's pages). The sparsest measurements have 21 % nonzero values (flags).
_DENSE_SHARE = 1 / 8

# A column is treated as constant if its variance divided by its squared mean is at most this number. Rounding
# errors alone can cause such a small variance.
_CONSTANT = 1e-20

# Number of rows that are scaled at a time. Their copies in double precision fit in the cache of a core.
_ROWS = 64


def holds_measurements(X: csr_array | NDArray[Any]) -> bool:
    """Return whether X is treated as measurements and not as word counts.

    The result is True if more than an eighth of the values of X are nonzero.
    """
    values = X if isinstance(X, np.ndarray) else X.data
    return bool(np.count_nonzero(values) > _DENSE_SHARE * X.shape[0] * X.shape[1])


def inverse_deviations(
    X: csr_array | NDArray[Any], sample_weight: NDArray[np.float32] | None
) -> NDArray[np.float64]:
    """Return 1 / standard deviation for each column, and 0 for constant columns.

    The result is exactly the same for a sparse X and a dense X with the same values.
    """
    n, d = X.shape
    of_row = np.ones(n) if sample_weight is None else sample_weight.astype(np.float64)
    total = of_row.sum()
    if isinstance(X, np.ndarray):
        sums, present = _column_sums(X, of_row, np.zeros(d), 1)
        means = sums / total
        squares, _ = _column_sums(X, of_row, means, 2)
    else:
        # Stored zeros get weight 0. The result is then exactly the same whether zeros are stored or not.
        weights = np.repeat(of_row, np.diff(X.indptr)) * (X.data != 0)
        means = np.bincount(X.indices, weights * X.data, d).astype(np.float64) / total
        present = np.bincount(X.indices, weights, d).astype(np.float64)
        squares = np.bincount(X.indices, weights * (X.data - means[X.indices]) ** 2, d).astype(np.float64)
    absent = total - present
    variances = np.maximum(squares + np.maximum(absent, 0.0) * means**2, 0.0) / total
    varies = variances > _CONSTANT * means**2
    return np.where(varies, 1 / np.sqrt(np.where(varies, variances, 1.0)), 0.0)


def _column_sums(
    X: NDArray[Any], weights: NDArray[np.float64], means: NDArray[np.float64], power: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return two sums over the nonzero values x of each column of a dense X.

    For each x, the first sum adds ``weight * (x - mean) ** power``, and the second sum adds ``weight``. Here,
    ``weight`` is the entry of `weights` for the row of x, and ``mean`` is the entry of `means` for its
    column. The terms are added in the order of the rows. For a sparse X, `inverse_deviations` uses
    `numpy.bincount`, which adds the terms in the same order. The sums are therefore exactly the same for a
    dense X and a sparse X.
    """
    sums, present = np.zeros(X.shape[1]), np.zeros(X.shape[1])
    for first in range(0, len(X), _ROWS):
        block = X[first : first + _ROWS].astype(np.float64)
        of_value = weights[first : first + _ROWS, None] * (block != 0)
        terms = of_value * (block - means) ** power
        sums = np.add.accumulate(np.vstack([sums, terms]), axis=0)[-1]
        present = np.add.accumulate(np.vstack([present, of_value]), axis=0)[-1]
    return sums, present


Features = TypeVar("Features", csr_array, NDArray[Any])


def scaled_columns(
    X: Features,
    columns: tuple[NDArray[np.float64], NDArray[np.float64]] | None,
    *,
    overwrite: bool = False,
) -> Features:
    """Return X with scaled columns: each value x becomes ``(x - shift) * scale``.

    Parameters
    ----------
    X : csr_array or ndarray, of shape (n_samples, n_features)
        Features.
    columns : tuple of two ndarrays of shape (n_features,), dtype float64, or None
        The shift and the scale of each column; see `ScaledFeatures.columns`. If None, X is returned.
    overwrite : bool, default=False
        Whether a dense X of dtype float32 is overwritten with the result.

    Returns
    -------
    csr_array or ndarray, of shape (n_samples, n_features), dtype float32
        The scaled features. In a sparse result, a column with a nonzero shift also stores the values that
        were 0 in X, because the shift turns these zeros into nonzero values. Values that are 0 after scaling
        are not stored.
    """
    if columns is None:
        return X
    if not isinstance(X, np.ndarray):
        return core_rows(_core.scale_columns(X, *columns), X.shape)
    shift, scale = columns
    out = X if overwrite and X.dtype == np.float32 else np.empty(X.shape, dtype=np.float32)
    for first in range(0, len(X), _ROWS):
        rows = slice(first, first + _ROWS)
        out[rows] = (X[rows] - shift) * scale
    return out


def unit_rows(X: NDArray[Any]) -> NDArray[np.float32]:
    """Return a new array with the rows of a dense X scaled to unit length. Rows of zeros stay as they are.

    The new array is in C order. The lengths are computed in double precision. The squares are added in an
    order that does not depend on the memory order of X.
    """
    out = np.empty(X.shape, dtype=np.float32)
    for first in range(0, len(X), _ROWS):
        block = np.ascontiguousarray(X[first : first + _ROWS], dtype=np.float64)
        # Rows are divided by their largest value first, so that the squares of large values are finite.
        largest = np.abs(block).max(axis=1, initial=0.0, keepdims=True)
        block /= np.where(largest > 0, largest, 1.0)
        lengths = np.sqrt(np.square(block).sum(axis=1, keepdims=True))
        out[first : first + _ROWS] = block / np.where(lengths > 0, lengths, 1.0)
    return out


class ScaledFeatures:
    """Features scaled for a linear classifier. A dense X and a sparse X give exactly the same scaled values.

    Parameters
    ----------
    X : csr_array or ndarray, of shape (n_samples, n_features)
        Features. An ndarray has dtype float32 or float64.
    sample_weight : ndarray of shape (n_samples,), dtype float32, or None
        Weights of the rows. None means equal weights.
    normalize : {"auto", "rows", "columns"} or bool
        What to scale. "rows" and True scale each row to unit length. "columns" divides each column by a
        multiple of its standard deviation (see the attribute `X`). "auto" is the same as "columns" if more
        than an eighth of the values of X are nonzero, and the same as "rows" otherwise. False scales nothing.
    center : bool
        Whether to center scaled columns in which most values are nonzero. Other columns are never centered,
        because centering turns zeros into stored values. With this rule, the number of stored values grows by
        a factor of at most about 2.

    Attributes
    ----------
    X : csr_array or ndarray, of shape (n_samples, n_features)
        The given X if columns are not scaled, and a copy with scaled columns otherwise. The copy has dtype
        float32. Each of its columns is divided by the standard deviation of the column, and by the square
        root of the number of columns that are not constant. With `center`, columns in which most values are
        nonzero are centered before this division. Constant columns become zeros. Rows are never scaled here;
        see `by_row`.
    by_row : bool
        Whether the Rust core must scale rows to unit length.

    Raises
    ------
    ValueError
        If columns are scaled and X contains a value that is not finite after its conversion to float32.
    """

    def __init__(
        self,
        X: csr_array | NDArray[Any],
        sample_weight: NDArray[np.float32] | None,
        normalize: bool | str,
        *,
        center: bool,
    ) -> None:
        self.X: csr_array | NDArray[Any]
        self._shift: NDArray[np.float64] | None = None
        self._scale: NDArray[np.float64] | None = None
        if isinstance(X, np.ndarray):
            table = ScaledTable(X, sample_weight, normalize, center=center)
            self.by_row, self.X = table.by_row, table.rows(X)
            if table.columns is not None:
                self._shift, self._scale = table.columns
            return
        if normalize == "auto":
            normalize = "columns" if holds_measurements(X) else "rows"
        self.X = X
        self.by_row = normalize == "rows" if isinstance(normalize, str) else bool(normalize)
        if normalize == "columns":
            check_single(X.data, "values of X")
            scaled, self._shift, self._scale = _core.standardize_columns(X, sample_weight, center)
            self.X = core_rows(scaled, X.shape)

    def rows(self, X: csr_array | NDArray[Any], *, overwrite: bool = False) -> csr_array:
        """Convert rows that were taken from the attribute `X` to a CSR array.

        The values do not change: the constructor has already scaled the attribute `X` if columns are scaled.
        `overwrite` has no effect. The parameter exists because `ScaledTable.rows` has it.
        """
        return csr_array(X)

    @property
    def columns(self) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """The shift and the scale of each column, or None if columns are not scaled.

        Each value x of a column becomes ``(x - shift) * scale``.
        """
        return None if self._shift is None or self._scale is None else (self._shift, self._scale)

    def unscaled(
        self, coef: csc_array, intercept: NDArray[np.float32]
    ) -> tuple[csc_array, NDArray[np.float32]]:
        """Convert weights of scaled columns to weights of the unscaled features; see `unscaled_weights`."""
        return unscaled_weights(coef, intercept, self.columns)

    def scaled(
        self, coef: csr_array, intercept: NDArray[np.float32]
    ) -> tuple[csr_array, NDArray[np.float32]]:
        """Convert weights for the unscaled columns to weights for the scaled columns.

        This is the inverse of `unscaled`, except that constant columns get the weight 0.

        Parameters
        ----------
        coef : csr_array of shape (n_labels, n_features), dtype float32
            Weights of the unscaled features.
        intercept : ndarray of shape (n_labels,), dtype float32
            Intercepts for the unscaled features.

        Returns
        -------
        coef : csr_array of shape (n_labels, n_features), dtype float32
            Weights of the scaled columns.
        intercept : ndarray of shape (n_labels,), dtype float32
            Intercepts for the scaled columns.
        """
        if self._shift is None or self._scale is None:
            return coef, intercept
        factor = np.divide(1, self._scale, out=np.zeros(len(self._scale)), where=self._scale > 0)
        weights = (coef.data * factor[coef.indices]).astype(np.float32)
        return (
            csr_array((weights, coef.indices, coef.indptr), shape=coef.shape),
            (intercept + coef @ self._shift).astype(np.float32),
        )


class ScaledTable:
    """Dense features, and the scaling of their rows or columns for a linear classifier.

    The features are not copied. The Rust core applies the scaling when it reads a block of rows.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Features, of dtype float16, float32 or float64, in any memory order.
    sample_weight, normalize, center
        As in `ScaledFeatures`.

    Attributes
    ----------
    X : ndarray of shape (n_samples, n_features)
        The given features.
    by_row : bool
        Whether rows are scaled to unit length.
    columns : tuple of two ndarrays of shape (n_features,), dtype float64, or None
        The shift and the scale of each column, or None if columns are not scaled.

    Raises
    ------
    ValueError
        If columns are scaled and X contains a value that is not finite after its conversion to float32.
    """

    def __init__(
        self,
        X: NDArray[Any],
        sample_weight: NDArray[np.float32] | None,
        normalize: bool | str,
        *,
        center: bool,
    ) -> None:
        if normalize == "auto":
            normalize = "columns" if holds_measurements(X) else "rows"
        self.X = X
        self.by_row = normalize == "rows" if isinstance(normalize, str) else bool(normalize)
        self.columns: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None
        if normalize == "columns":
            if X.dtype == np.float64:
                check_single(X, "values of X")
            self.columns = _core.column_scaling(core_table(X), sample_weight, center)

    def rows(self, X: NDArray[Any], *, overwrite: bool = False) -> NDArray[Any]:
        """Scale the columns of the given rows, and return the rows.

        If the attribute `columns` is None, the given rows themselves are returned. Otherwise, the result has
        dtype float32 and is a new array by default. If `overwrite` is True and the given rows have dtype
        float32, they are overwritten with the result.
        """
        return scaled_columns(X, self.columns, overwrite=overwrite)

    def unscaled(
        self, coef: NDArray[np.float32], intercept: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Convert weights of scaled columns to weights of the unscaled features. `coef` is overwritten."""
        return unscaled_dense(coef, intercept, self.columns)

    def scaled(
        self, coef: NDArray[np.float32], intercept: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Convert weights for the unscaled columns to weights for the scaled columns."""
        if self.columns is None:
            return np.ascontiguousarray(coef), intercept
        shift, scale = self.columns
        factor = np.divide(1, scale, out=np.zeros(len(scale)), where=scale > 0)
        weights = (coef * factor).astype(np.float32)
        return weights, (intercept + _products(coef, shift)).astype(np.float32)


def _products(coef: NDArray[np.float32], shift: NDArray[np.float64]) -> NDArray[np.float64]:
    # Unlike `@`, this makes no copy of `coef` in double precision, and uses one thread.
    products: NDArray[np.float64] = np.einsum("ij,j->i", coef, shift)
    return products


def scaled_features(
    X: csr_array | NDArray[Any],
    sample_weight: NDArray[np.float32] | None,
    normalize: bool | str,
    *,
    center: bool,
) -> ScaledFeatures | ScaledTable:
    """Return a `ScaledTable` if X is dense, and `ScaledFeatures` if X is sparse."""
    if isinstance(X, np.ndarray):
        return ScaledTable(X, sample_weight, normalize, center=center)
    return ScaledFeatures(X, sample_weight, normalize, center=center)


def unscaled_dense(
    coef: NDArray[np.float32],
    intercept: NDArray[np.float32],
    columns: tuple[NDArray[np.float64], NDArray[np.float64]] | None,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Convert dense weights of scaled columns to dense weights of the unscaled features.

    The arguments are the same as in `unscaled_weights`, but `coef` is an ndarray and is overwritten.
    """
    if columns is None:
        return coef, intercept
    shift, scale = columns
    np.multiply(coef, scale, out=coef, casting="same_kind")
    # The rounded weights are used here, so that the scores of the column means do not change.
    return coef, (intercept - _products(coef, shift)).astype(np.float32)


def core_table(X: NDArray[Any]) -> NDArray[Any]:
    """Return a dense X for the Rust core. A float16 array is returned as integers with the same bits."""
    return X.view(np.uint16) if X.dtype == np.float16 else X


def core_features(X: csr_array | NDArray[Any]) -> csr_array | NDArray[Any]:
    """Return X in the form that the fit functions of the Rust core take; see `core_table`."""
    return core_table(X) if isinstance(X, np.ndarray) else X


def scorer_features(X: csr_array | NDArray[Any]) -> csr_array | NDArray[Any]:
    """Return X in the form that the scorers of the Rust core take.

    A dense X is copied if it is not in C order, or if its dtype is float16.
    """
    if not isinstance(X, np.ndarray):
        return X
    return np.require(X, dtype=np.float32 if X.dtype == np.float16 else X.dtype, requirements=["C", "A"])


def unscaled_weights(
    coef: csc_array,
    intercept: NDArray[np.float32],
    columns: tuple[NDArray[np.float64], NDArray[np.float64]] | None,
) -> tuple[csc_array, NDArray[np.float32]]:
    """Convert weights of scaled columns to weights of the unscaled features.

    Parameters
    ----------
    coef : csc_array of shape (n_labels, n_features), dtype float32
        Weights of the scaled columns.
    intercept : ndarray of shape (n_labels,), dtype float32
        Intercepts for the scaled columns.
    columns : tuple of two ndarrays of shape (n_features,), dtype float64, or None
        The shift and the scale of each column. If None, the columns are not scaled.

    Returns
    -------
    coef : csc_array of shape (n_labels, n_features), dtype float32
        Weights of the unscaled features.
    intercept : ndarray of shape (n_labels,), dtype float32
        Intercepts for the unscaled features. An intercept of -inf stays -inf.
    """
    if columns is None:
        return coef, intercept
    shift, scale = columns
    weights = coef.data * np.repeat(scale, np.diff(coef.indptr))
    scaled = csc_array((weights.astype(np.float32), coef.indices, coef.indptr), shape=coef.shape)
    # The rounded weights are used here, so that the scores of the column means do not change.
    return scaled, (intercept - scaled @ shift).astype(np.float32)


def unscaled_rows(
    features: NDArray[np.int32],
    factors: NDArray[np.float32],
    columns: tuple[NDArray[np.float64], NDArray[np.float64]] | None,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Convert factors of scaled columns to factors of the unscaled features.

    Let X be a matrix of unscaled features, and let Z be ``X[:, features]`` after its columns are scaled. The
    product ``Z @ factors`` is the same as ``X[:, features] @ unscaled - shift``, where ``unscaled`` and
    ``shift`` are the results of this function.

    Parameters
    ----------
    features : ndarray of shape (n_seen_features,), dtype int32
        Column indices of the features that have a row in `factors`.
    factors : ndarray of shape (n_seen_features, n_factors), dtype float32
        Factors of the scaled columns, with one row for each entry of `features`.
    columns : tuple of two ndarrays of shape (n_features,), dtype float64, or None
        The shift and the scale of each column. Columns that are not centered have the shift 0. If None, the
        columns are not scaled.

    Returns
    -------
    unscaled : ndarray of shape (n_seen_features, n_factors), dtype float32
        Factors of the unscaled features.
    shift : ndarray of shape (n_factors,), dtype float32
        The product ``columns[0][features] @ unscaled``. If `columns` is None, `shift` has only zeros.
    """
    if columns is None:
        return factors, np.zeros(factors.shape[1], dtype=np.float32)
    shift, scale = columns
    unscaled = (factors * scale[features, None]).astype(np.float32)
    return unscaled, (shift[features] @ unscaled).astype(np.float32)
