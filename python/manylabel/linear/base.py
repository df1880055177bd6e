"""Base classes of the linear classifiers. The Rust core computes the scores of these classifiers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array

from manylabel import _core
from manylabel.estimator.base import ODDS_OF_MARGINS, MultiLabelClassifier
from manylabel.estimator.explanation import Explained, Part, feature_parts
from manylabel.estimator.schema import Array, Attribute, Scalar

__all__ = ["LinearClassifier", "SparseLinearClassifier", "unit_length"]


class LinearClassifier(MultiLabelClassifier):
    """Base class of classifiers that compute scores as linear functions of the features.

    Each subclass sets the fitted attributes ``intercept_``, ``threshold_`` and ``normalize_``. A label that
    occurs in no training row has the intercept -inf, so that it is never predicted.

    Parameters
    ----------
    normalize : {"auto", "rows", "columns"} or bool, default="auto"
        Scaling of the features. "rows" (or True) scales every row to unit Euclidean length, in `fit` and in
        predictions. This scaling suits text data. "columns" scales each column to unit variance in `fit`. It
        then divides all columns by the square root of the number of columns that are not constant, so that
        the rows have a mean squared length of about 1. Columns with mostly nonzero values are also centered
        if an intercept is fitted. With "columns", the weights are converted after the fit, so they apply to
        the unscaled features. "auto" is "columns" if more than an eighth of the values of X are nonzero, and
        "rows" otherwise. False does not scale the features. For every value of `normalize`, scores are
        computed in single precision. They are therefore less accurate if a column has a ratio
        ``|mean| / (standard deviation)`` of at least 10,000. With "columns", a column is ignored if this
        ratio is at least 1,000,000. To avoid both problems, subtract the means of such columns before the
        fit.

    Attributes
    ----------
    threshold_ : float
        The value of `threshold`, as given or learned. ``intercept_`` has the fitted intercepts minus this
        value, so that predicted labels have positive scores.
    normalize_ : bool
        Whether predictions scale rows to unit length.
    """

    fitted: ClassVar[dict[str, Attribute]] = {
        **MultiLabelClassifier.fitted,
        "intercept_": Array(("n_labels",), "f4", or_minus_infinity=True),
        # Model files of version 0.1 do not have the following two attributes.
        "threshold_": Scalar(float, finite=True, optional=True),
        "normalize_": Scalar(bool, optional=True),
    }

    intercept_: NDArray[np.float32]
    threshold_: float
    normalize_: bool
    normalize: bool | str

    @property
    def _textbook_threshold(self) -> float:
        """The threshold that ``threshold="zero"`` means: 0, or 1/2 for the squared loss."""
        return 0.0

    @property
    def _normalizes_rows(self) -> bool:
        """Whether predictions scale rows to unit length."""
        # Models from files of version 0.1 have no `normalize_`.
        return bool(getattr(self, "normalize_", self.normalize))

    @property
    def _least_score(self) -> float:
        """The score above which a label is predicted."""
        # In models from files of version 0.1, no threshold has been subtracted from the intercepts.
        return 0.0 if hasattr(self, "threshold_") else self._textbook_threshold

    def _make_scorer(self) -> _core.Scorer:
        return _core.linear_scorer(self)

    def _explained(self, x: csr_array, label: int, names: Sequence[str]) -> Explained:
        values = unit_length(x.data) if self._normalizes_rows else x.data.astype(np.float64)
        contributions = values * self._weights(label, x.indices)
        intercept = Part("intercept", "intercept", float(self.intercept_[label]))
        return Explained(feature_parts(x.indices, contributions, names, [intercept]))

    def _weights(self, label: int, features: NDArray[Any]) -> NDArray[np.float64]:
        """Return the weight of one label for each of the given feature indices."""
        raise NotImplementedError

    def _shift(self, intercept: NDArray[np.float32], threshold: float | None, learned: float | None) -> None:
        """Set `threshold_` to the given or learned threshold, and subtract it from the intercepts."""
        if threshold is None:
            threshold = self._textbook_threshold if learned is None else learned
        self.threshold_ = float(threshold)
        self.intercept_ = intercept - np.float32(threshold)

    def _log_odds(self, scores: NDArray[Any]) -> NDArray[Any]:
        return ODDS_OF_MARGINS * scores


class SparseLinearClassifier(LinearClassifier):
    """Base class of linear classifiers with sparse or dense weights in ``coef_``."""

    coef_: csc_array | NDArray[np.float32]

    def _make_scorer(self) -> _core.Scorer:
        if isinstance(self.coef_, np.ndarray):
            return _core.dense_linear_scorer(self)
        return _core.linear_scorer(self)

    def _weights(self, label: int, features: NDArray[Any]) -> NDArray[np.float64]:
        if isinstance(self.coef_, np.ndarray):
            of_label: NDArray[np.float64] = self.coef_[label, features].astype(np.float64)
            return of_label
        # Each column has the weights of one feature, with sorted labels.
        found = np.zeros(len(features))
        for at, feature in enumerate(features.tolist()):
            begin, end = self.coef_.indptr[feature], self.coef_.indptr[feature + 1]
            place = begin + np.searchsorted(self.coef_.indices[begin:end], label)
            if place < end and self.coef_.indices[place] == label:
                found[at] = self.coef_.data[place]
        return found


def unit_length(values: NDArray[Any]) -> NDArray[np.float64]:
    """Scale the values of a row to unit Euclidean length, as the Rust core does before it scores a row."""
    doubles = values.astype(np.float64)
    largest = np.abs(doubles).max(initial=0.0)
    if largest == 0:
        return doubles
    if not 1e-140 < largest < 1e140:  # squares could overflow or underflow
        doubles /= largest
    return doubles / np.linalg.norm(doubles)
