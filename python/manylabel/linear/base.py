"""Base class of the linear classifiers: predictions from scores that the core computes from the weights."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from manylabel import _core
from manylabel.estimator.base import ODDS_OF_MARGINS, MultiLabelClassifier
from manylabel.estimator.schema import Array, Attribute, Scalar

__all__ = ["LinearClassifier"]


class LinearClassifier(MultiLabelClassifier):
    """Base of the classifiers whose scores are linear in the features.

    A subclass fits ``intercept_`` (-inf for labels that are never predicted), ``threshold_`` and
    ``normalize_``.

    Parameters
    ----------
    normalize : {"auto", "rows", "columns"} or bool, default="auto"
        "rows" (or True) scales every row to unit Euclidean length, in fit and in prediction; it suits text.
        "columns" fits columns scaled to unit variance and divided by the square root of their number. Columns
        with mostly nonzero values are also centered if an intercept is fitted. The returned weights apply to
        the unscaled features. "auto" is "columns" if more than an eighth of the values of X are nonzero, else
        "rows". False scales nothing. Scores are computed in single precision: columns whose mean is 10,000
        times their standard deviation lose digits, and those with 1,000,000 times are ignored. Subtract such
        means first.

    Attributes
    ----------
    threshold_ : float
        The threshold, as given or learned. It is subtracted from the intercepts, so that predicted labels
        have positive scores.
    normalize_ : bool
        Whether rows are scaled to unit length before they are scored.
    """

    fitted: ClassVar[dict[str, Attribute]] = {
        **MultiLabelClassifier.fitted,
        "intercept_": Array(("n_labels",), "f4", or_minus_infinity=True),
        "threshold_": Scalar(float, finite=True, optional=True),  # this and the next: not in version 0.1
        "normalize_": Scalar(bool, optional=True),
    }

    intercept_: NDArray[np.float32]
    threshold_: float
    normalize_: bool
    normalize: bool | str

    @property
    def _textbook_threshold(self) -> float:
        """The score above which the loss itself assigns a label."""
        return 0.0

    @property
    def _normalizes_rows(self) -> bool:
        """Whether rows are scaled to unit length before they are scored."""
        # Model files of version 0.1 have no `normalize_`.
        return bool(getattr(self, "normalize_", self.normalize))

    @property
    def _least_score(self) -> float:
        """The score above which a label is predicted."""
        # In model files of version 0.1 no threshold is subtracted from the intercepts.
        return 0.0 if hasattr(self, "threshold_") else self._textbook_threshold

    def _make_scorer(self) -> _core.Scorer:
        return _core.linear_scorer(self)

    def _shift(self, intercept: NDArray[np.float32], threshold: float | None, learned: float | None) -> None:
        """Set `threshold_`, as given or learned, and subtract it from the intercepts."""
        if threshold is None:
            threshold = self._textbook_threshold if learned is None else learned
        self.threshold_ = float(threshold)
        self.intercept_ = intercept - np.float32(threshold)

    def _log_odds(self, scores: NDArray[Any]) -> NDArray[Any]:
        return ODDS_OF_MARGINS * scores
