"""Feature scaling of the linear classifiers, and its inverse for fitted weights."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array

from manylabel import _core
from manylabel.estimator.base import core_rows
from manylabel.estimator.validation import check_single

__all__ = ["ScaledFeatures", "holds_measurements", "inverse_deviations"]

# Data with a larger share of nonzero values are taken for measurements rather than word counts. It lies
# between the densest word counts (9 %, enron and Yahoo's pages) and the sparsest table of measurements (21 %,
# flags) of 56 public sets.
_DENSE_SHARE = 1 / 8

# Variance relative to the squared mean below which a column counts as constant, up to rounding.
_CONSTANT = 1e-20


def holds_measurements(X: csr_array) -> bool:
    """Return whether X holds measurements rather than word counts, by its share of nonzero values."""
    return bool(np.count_nonzero(X.data) > _DENSE_SHARE * X.shape[0] * X.shape[1])


def inverse_deviations(X: csr_array, sample_weight: NDArray[np.float32] | None) -> NDArray[np.float64]:
    """Return the inverse standard deviation of each column; 0 for constant columns."""
    n, d = X.shape
    of_row = np.ones(n) if sample_weight is None else sample_weight.astype(np.float64)
    total = of_row.sum()
    # Stored zeros are treated like absent ones, for the same bits.
    weights = np.repeat(of_row, np.diff(X.indptr)) * (X.data != 0)
    means = np.bincount(X.indices, weights * X.data, d) / total
    absent = total - np.bincount(X.indices, weights, d)
    squares = np.bincount(X.indices, weights * (X.data - means[X.indices]) ** 2, d)
    variances = np.maximum(squares + np.maximum(absent, 0.0) * means**2, 0.0) / total
    varies = variances > _CONSTANT * means**2
    return np.where(varies, 1 / np.sqrt(np.where(varies, variances, 1.0)), 0.0)


class ScaledFeatures:
    """Features scaled for a linear classifier.

    Parameters
    ----------
    X : csr_array of shape (n_samples, n_features)
    sample_weight : ndarray of shape (n_samples,), dtype float32, or None
    normalize : {"auto", "rows", "columns"} or bool
        "auto" is "columns" if X holds measurements, else "rows".
    center : bool
        Whether scaled columns with mostly nonzero values are also centered. Other columns never are, so that
        the stored values at most double.

    Attributes
    ----------
    X : csr_array of shape (n_samples, n_features)
        If columns are scaled: columns of unit variance, divided by the square root of their number.
        Otherwise the X given; the core scales rows.
    by_row : bool
        Whether the core scales rows to unit length.

    Raises
    ------
    ValueError
        If columns are scaled and values of X are not finite as float32.
    """

    def __init__(
        self,
        X: csr_array,
        sample_weight: NDArray[np.float32] | None,
        normalize: bool | str,
        *,
        center: bool,
    ) -> None:
        if normalize == "auto":
            normalize = "columns" if holds_measurements(X) else "rows"
        self.X = X
        self.by_row = normalize == "rows" if isinstance(normalize, str) else bool(normalize)
        self._shift: NDArray[np.float64] | None = None
        self._scale: NDArray[np.float64] | None = None
        if normalize == "columns":
            check_single(X.data, "values of X")
            scaled, self._shift, self._scale = _core.standardize_columns(X, sample_weight, center)
            self.X = core_rows(scaled, X.shape)

    def unscaled(
        self, coef: csc_array, intercept: NDArray[np.float32]
    ) -> tuple[csc_array, NDArray[np.float32]]:
        """Convert weights of scaled columns to weights of the unscaled features.

        Parameters
        ----------
        coef : csc_array of shape (n_labels, n_features), dtype float32
        intercept : ndarray of shape (n_labels,), dtype float32

        Returns
        -------
        coef : csc_array of shape (n_labels, n_features), dtype float32
        intercept : ndarray of shape (n_labels,), dtype float32
            -inf stays -inf.
        """
        if self._shift is None or self._scale is None:
            return coef, intercept
        weights = coef.data * np.repeat(self._scale, np.diff(coef.indptr))
        scaled = csc_array((weights.astype(np.float32), coef.indices, coef.indptr), shape=coef.shape)
        # With the rounded weights, so that the column means keep their scores.
        return scaled, (intercept - scaled @ self._shift).astype(np.float32)

    def unscaled_rows(
        self, features: NDArray[np.int32], factors: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Convert factors of scaled columns to factors of the unscaled features.

        Parameters
        ----------
        features : ndarray of shape (n_seen_features,), dtype int32
        factors : ndarray of shape (n_seen_features, n_factors), dtype float32
            One row for each of `features`.

        Returns
        -------
        factors : ndarray of shape (n_seen_features, n_factors), dtype float32
        shift : ndarray of shape (n_factors,), dtype float32
            What the column means add to ``X @ factors``.
        """
        if self._shift is None or self._scale is None:
            return factors, np.zeros(factors.shape[1], dtype=np.float32)
        unscaled = (factors * self._scale[features, None]).astype(np.float32)
        return unscaled, (self._shift[features] @ unscaled).astype(np.float32)
