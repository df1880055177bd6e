"""What every multi-label classifier shares: tags, saving, and predictions from scores."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags

from manylabel import persistence

__all__ = ["ODDS_OF_MARGINS", "MultiLabelClassifier", "SavedToFile", "core_parts"]

# Log-odds of a score for which a margin of 1 was asked: of 1 to 8, what ranks best where blocks are merged.
ODDS_OF_MARGINS = 4


class SavedToFile:
    """Saving, for estimators of registered classes."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one file, complete or not at all.

        Parameters
        ----------
        path : str or path-like
            Where to; `manylabel.load` reads it back.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            If the model is not fitted.
        OSError
            If the file cannot be written; an older file at `path` is then still there.
        """
        persistence.save_model(self, path)


class MultiLabelClassifier(SavedToFile, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Base of the classifiers: indicator targets in, indicator predictions out.

    A subclass fits ``classes_``, ``sparse_output_`` and what else it needs.
    """

    classes_: NDArray[np.int64]
    sparse_output_: bool

    def _log_odds(self, scores: NDArray[Any]) -> NDArray[Any]:
        """Turn scores into log-odds of the labels, for models of other rows to be compared with."""
        return scores

    def _indicator(self, positive: csr_array) -> csr_array | NDArray[np.int64]:
        """Give 0/1 predictions the form Y had at fit."""
        ones = np.ones(positive.nnz, dtype=np.int64)
        indicator = csr_array((ones, positive.indices, positive.indptr), shape=positive.shape)
        return indicator if self.sparse_output_ else indicator.toarray()

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = True
        tags.classifier_tags.multi_class = False
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = False
        return tags

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of rows whose label sets are predicted exactly.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features.
        y : array-like or sparse matrix of shape (n_samples, n_labels)
            True labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        float
            1 minus the subset 0/1 loss.
        """
        return float(super().score(X, y, sample_weight))


def core_parts(arrays: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
    """Order what the core returns, (indptr, indices, data), as the constructors of scipy want it."""
    indptr, indices, data = arrays
    return data, indices, indptr
