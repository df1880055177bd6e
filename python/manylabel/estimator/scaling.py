"""How linear classifiers scale features before they learn from them, and how weights take that back."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array

from manylabel import _core
from manylabel.estimator.base import core_rows
from manylabel.estimator.validation import check_single

__all__ = ["ScaledFeatures", "holds_measurements", "inverse_deviations"]

# X holds measurements rather than counts of words where more than this share of it is not zero. It lies
# between the densest word counts (9 %, enron and Yahoo's pages) and the sparsest table of measurements (21 %,
# flags) of 56 public sets.
_DENSE_SHARE = 1 / 8

# Variance relative to the squared mean below which a column is constant but for rounding.
_CONSTANT = 1e-20


def holds_measurements(X: csr_array) -> bool:
    """Say whether features are measurements, by how many are not zero, rather than counts of words."""
    return bool(np.count_nonzero(X.data) > _DENSE_SHARE * X.shape[0] * X.shape[1])


def inverse_deviations(X: csr_array, sample_weight: NDArray[np.float32] | None) -> NDArray[np.float64]:
    """Return one over the standard deviation of each column, 0 for constant ones."""
    n, d = X.shape
    of_row = np.ones(n) if sample_weight is None else sample_weight.astype(np.float64)
    total = of_row.sum()
    # Zeros count as absent, stored or not: the same bits for both.
    weights = np.repeat(of_row, np.diff(X.indptr)) * (X.data != 0)
    means = np.bincount(X.indices, weights * X.data, d) / total
    absent = total - np.bincount(X.indices, weights, d)
    squares = np.bincount(X.indices, weights * (X.data - means[X.indices]) ** 2, d)
    variances = np.maximum(squares + np.maximum(absent, 0.0) * means**2, 0.0) / total
    varies = variances > _CONSTANT * means**2
    return np.where(varies, 1 / np.sqrt(np.where(varies, variances, 1.0)), 0.0)


class ScaledFeatures:
    """The features a linear classifier learns from.

    Parameters
    ----------
    X : csr_array of shape (n_samples, n_features)
    sample_weight : ndarray of shape (n_samples,), dtype float32, or None
    normalize : {"auto", "rows", "columns"} or bool
        "auto" is "columns" where X is mostly measurements, else "rows".
    center : bool
        Whether columns that are scaled are centred too, where most of a column is not zero. Others never
        are, so that what is stored at most doubles.

    Attributes
    ----------
    X : csr_array of shape (n_samples, n_features)
        With columns of unit variance, divided by the square root of their number, if these are to be scaled;
        else as it was: the core scales rows by itself.
    by_row : bool
        Whether rows are to be scaled to unit length.

    Raises
    ------
    ValueError
        If rows are not to be scaled, and values are not finite as float32.
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
        """Turn weights of scaled columns into those of the features as they are.

        Parameters
        ----------
        coef : csc_array of shape (n_labels, n_features), dtype float32
        intercept : ndarray of shape (n_labels,), dtype float32

        Returns
        -------
        coef : csc_array of shape (n_labels, n_features), dtype float32
        intercept : ndarray of shape (n_labels,), dtype float32
            -inf stays as it is.
        """
        if self._shift is None or self._scale is None:
            return coef, intercept
        weights = coef.data * np.repeat(self._scale, np.diff(coef.indptr))
        scaled = csc_array((weights.astype(np.float32), coef.indices, coef.indptr), shape=coef.shape)
        # By the weights as rounded, so that the means of the columns score as they did.
        return scaled, (intercept - scaled @ self._shift).astype(np.float32)

    def unscaled_rows(
        self, features: NDArray[np.int32], factors: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Turn factors of scaled columns into those of the features as they are.

        Parameters
        ----------
        features : ndarray of shape (n_seen_features,), dtype int32
        factors : ndarray of shape (n_seen_features, n_factors), dtype float32
            One row for each of `features`.

        Returns
        -------
        factors : ndarray of shape (n_seen_features, n_factors), dtype float32
        shift : ndarray of shape (n_factors,), dtype float32
            What the means of the columns add to ``X @ factors``.
        """
        if self._shift is None or self._scale is None:
            return factors, np.zeros(factors.shape[1], dtype=np.float32)
        unscaled = (factors * self._scale[features, None]).astype(np.float32)
        return unscaled, (self._shift[features] @ unscaled).astype(np.float32)
