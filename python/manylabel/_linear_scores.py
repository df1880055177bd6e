"""What the linear classifiers share: predictions from scores that the core computes from the weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.utils.validation import check_is_fitted

from manylabel._base import ODDS_OF_MARGINS, MultiLabelClassifier, core_parts
from manylabel._validation import check_count, check_features, n_threads

__all__ = ["LinearClassifier"]


class LinearClassifier(MultiLabelClassifier):
    """Base of the classifiers whose scores are linear in the features.

    A subclass fits ``intercept_``, -inf for labels that are never to be named, ``threshold_`` and
    ``normalize_``, and names the functions of the core that score with what else it fits.
    """

    intercept_: NDArray[np.float32]
    threshold_: float
    normalize_: bool
    normalize: bool | str
    n_jobs: int | None

    _core_topk: ClassVar[Callable[..., tuple[Any, Any, Any]]]
    _core_above: ClassVar[Callable[..., tuple[Any, Any, Any]]]
    _core_decision: ClassVar[Callable[..., NDArray[np.float32]]]

    @property
    def _textbook_threshold(self) -> float:
        """The score of the loss above which the literature names a label."""
        return 0.0

    @property
    def _normalizes_rows(self) -> bool:
        """Whether rows are scaled to unit length before they are scored."""
        # Model files of version 0.1 have no `normalize_`.
        return bool(getattr(self, "normalize_", self.normalize))

    @property
    def _least_score(self) -> float:
        """The score above which a label is predicted."""
        # In model files of version 0.1 intercepts are those of the loss.
        return 0.0 if hasattr(self, "threshold_") else self._textbook_threshold

    def _shift(self, intercept: NDArray[np.float32], threshold: float | None, learned: float | None) -> None:
        """Set `threshold_`, as given or as learned, and intercepts such that `predict` cuts at 0."""
        if threshold is None:
            threshold = self._textbook_threshold if learned is None else learned
        self.threshold_ = float(threshold)
        self.intercept_ = intercept - np.float32(threshold)

    def _log_odds(self, scores: NDArray[Any]) -> NDArray[Any]:
        return ODDS_OF_MARGINS * scores

    def decision_function(self, X: Any) -> NDArray[np.float32]:
        """Score every label of every row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features.

        Returns
        -------
        ndarray of shape (n_samples, n_labels), dtype float32
            Scores; those of predicted labels are positive. Dense by nature, 4 bytes each. -inf for labels
            never seen in fit.

        Raises
        ------
        ValueError
            If X is not as in fit.
        MemoryError
            If the scores do not fit in memory; `predict_topk` needs no such array.
        """
        check_is_fitted(self)
        X = check_features(self, X, reset=False)
        return self._core_decision(self, X, n_threads(self.n_jobs))

    def predict_topk(self, X: Any, k: int = 5) -> csr_array:
        """Name the best labels of every row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features.
        k : int, default=5
            Labels a row, >= 1; fewer where fewer labels were seen in fit.

        Returns
        -------
        csr_array of shape (n_samples, n_labels), dtype float32
            The scores of the k best labels of each row, in order of label; equal scores go to the lower
            label. ``np.argsort(-row.data, kind="stable")`` ranks them.

        Raises
        ------
        ValueError
            If X is not as in fit, or k < 1.

        Notes
        -----
        Beside the result, memory is that of the scores of the few rows at work.
        """
        check_is_fitted(self)
        k = check_count("k", k, 1)
        X = check_features(self, X, reset=False)
        top = self._core_topk(self, X, k, n_threads(self.n_jobs))
        return csr_array(core_parts(top), shape=(X.shape[0], len(self.intercept_)))

    def predict(self, X: Any) -> csr_array | NDArray[np.int64]:
        """Predict the labels with positive scores.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features.

        Returns
        -------
        ndarray or csr_array of shape (n_samples, n_labels), dtype int64
            0/1 indicator matrix; sparse if Y was in fit, and then never dense in between.

        Raises
        ------
        ValueError
            If X is not as in fit.
        """
        check_is_fitted(self)
        X = check_features(self, X, reset=False)
        above = self._core_above(self, X, self._least_score, n_threads(self.n_jobs))
        return self._indicator(csr_array(core_parts(above), shape=(X.shape[0], len(self.intercept_))))
