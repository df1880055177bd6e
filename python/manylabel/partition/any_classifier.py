"""Wrapper that fits multi-label classifiers of other libraries to blocks of rows and labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack
from scipy.special import logit
from sklearn.base import BaseEstimator

from manylabel import _core
from manylabel.estimator.base import ODDS_OF_MARGINS, core_rows
from manylabel.estimator.registry import register
from manylabel.estimator.schema import Array, Model, Schema, Text

__all__ = ["AnyClassifier", "rows_at_once", "topk_of_decisions"]

# Maximum number of values of a dense array in memory at a time.
_VALUES_AT_ONCE = 1 << 22
# Probabilities are clipped to [_LEAST, 1 - _LEAST], because the logits of 0 and 1 are infinite.
_LEAST = 1e-7


def rows_at_once(n_rows: int, n_columns: int) -> Iterator[slice]:
    """Divide rows into small batches, and yield each batch as a slice.

    Each batch has at most ``4_194_304 // n_columns`` rows, but at least one row. A dense array with
    `n_columns` columns and the rows of a batch is therefore small. If there are no rows, the function yields
    one empty slice.
    """
    step = max(1, _VALUES_AT_ONCE // max(1, n_columns))
    for start in range(0, max(1, n_rows), step):
        yield slice(start, min(start + step, n_rows))


def topk_of_decisions(
    decide: Callable[[csr_array | NDArray[Any]], NDArray[np.float32]],
    X: csr_array | NDArray[Any],
    n_labels: int,
    k: int,
) -> csr_array:
    """Return the best labels of each row; the dense scores are computed for a few rows at a time.

    Parameters
    ----------
    decide : callable
        Function that takes rows and returns an array of scores, of shape (n_rows, n_labels).
    X : csr_array or ndarray, of shape (n_samples, n_features)
        Features.
    n_labels : int
        Number of labels.
    k : int
        Maximum number of labels per row. Labels with the score -inf are not included.

    Returns
    -------
    csr_array of shape (n_samples, n_labels), dtype float32
        Scores of the best labels of each row, in the format of `AnyClassifier.predict_topk`.
    """
    parts = []
    for rows in rows_at_once(X.shape[0], n_labels):
        scores = decide(X[rows])
        ends = n_labels * np.arange(len(scores) + 1)
        columns = np.tile(np.arange(n_labels), len(scores))
        every = csr_array((scores.ravel(), columns, ends), shape=scores.shape)
        parts.append(core_rows(_core.topk_of_rows(every, k), scores.shape))
    return parts[0] if len(parts) == 1 else csr_array(vstack(parts, format="csr"))


@register
class AnyClassifier(BaseEstimator):  # type: ignore[misc]
    """Wrapper for any multi-label classifier that has the interface of scikit-learn.

    The wrapper is fitted to one block, which contains some of the rows and some of the labels of the data.

    Many classifiers cannot be fitted to labels that occur in all rows or in no row. These labels get a
    constant score, the log-odds ``log((n_1 + 1/2) / (n_0 + 1/2))``. Here, n_1 is the number of rows with the
    label, and n_0 is the number of rows without the label. If `estimator` cannot be fitted to a block, for
    example because the block has too few rows, all labels of the block get constant scores.

    Parameters
    ----------
    estimator : estimator
        Classifier with `decision_function` or `predict_proba`. `fit` trains this object itself, not a clone.
    dense_X, dense_Y : bool, default=False
        `dense_X` states whether X is passed to `estimator` as an ndarray (True) or as a CSR array (False).
        `dense_Y` states the same for Y.

    Attributes
    ----------
    estimator_ : estimator or None
        The fitted classifier for the labels in `varying_`. The value is None if the fit failed, or if
        `varying_` is empty.
    varying_ : ndarray of shape (n_varying,), dtype int32
        Labels that occur in some but not all training rows.
    log_odds_ : ndarray of shape (n_labels,), dtype float32
        Log-odds of each label, computed from the training rows. A label gets this value as its constant score
        only if `estimator_` does not score the label.
    error_ : str or None
        Message of the exception if `estimator` could not be fitted, and None otherwise.
    n_features_in_ : int
        Number of features in `fit`.
    classes_ : ndarray of shape (n_labels,), dtype int64
        ``arange(n_labels)``.
    """

    schema = Schema(
        classes_=Array(("n_labels",), "i8"),
        log_odds_=Array(("n_labels",), "f4"),
        varying_=Array(("n_varying",), "i4", below="n_labels"),
        estimator_=Model(),
        error_=Text(),
    )

    def __init__(self, estimator: Any, dense_X: bool = False, dense_Y: bool = False) -> None:
        self.estimator = estimator
        self.dense_X = dense_X
        self.dense_Y = dense_Y

    def fit(self, X: csr_array | NDArray[Any], Y: csr_array, sample_weight: Any = None) -> AnyClassifier:
        """Fit `estimator` to the labels that occur in some but not all training rows.

        Parameters
        ----------
        X : csr_array or ndarray, of shape (n_samples, n_features)
            Features.
        Y : csr_array of shape (n_samples, n_labels), dtype float32
            0/1 indicator matrix.
        sample_weight : ndarray of shape (n_samples,), default=None
            Weights of the rows. If the weights are not None, they are passed to the `fit` method of
            `estimator`.

        Returns
        -------
        AnyClassifier
            This `AnyClassifier`.
        """
        n_rows, n_labels = Y.shape
        self.n_features_in_, self.classes_ = X.shape[1], np.arange(n_labels)
        positive = np.bincount(Y.indices, minlength=n_labels)
        self.log_odds_ = np.log((positive + 0.5) / (n_rows - positive + 0.5)).astype(np.float32)
        self.varying_ = np.flatnonzero((positive > 0) & (positive < n_rows)).astype(np.int32)
        self.estimator_ = self.error_ = None
        if len(self.varying_) == 0:
            return self
        # A single label is passed as two equal columns, because some classifiers do not accept an indicator
        # matrix with one column.
        columns = self.varying_ if len(self.varying_) > 1 else np.repeat(self.varying_, 2)
        targets = Y[:, columns].astype(np.int64)
        arguments = {} if sample_weight is None else {"sample_weight": sample_weight}
        try:
            self.estimator.fit(self._features(X), targets.toarray() if self.dense_Y else targets, **arguments)
            self.estimator_ = self.estimator
            self.decision_function(X[:1])
        except ValueError as error:
            self.estimator_, self.error_ = None, str(error)
        return self

    def decision_function(self, X: csr_array | NDArray[Any]) -> NDArray[np.float32]:
        """Compute the scores of all labels for every row.

        Parameters
        ----------
        X : csr_array or ndarray, of shape (n_samples, n_features)
            Features.

        Returns
        -------
        ndarray of shape (n_samples, n_labels), dtype float32
            Scores. If `estimator` has no `decision_function`, the scores are the logits of its probabilities.
        """
        scores = np.tile(self.log_odds_, (X.shape[0], 1))
        if self.estimator_ is not None:
            scores[:, self.varying_] = self._scores(self._features(X))[:, : len(self.varying_)]
        return scores

    def _log_odds(self, scores: NDArray[Any]) -> NDArray[Any]:
        if self.estimator_ is None or hasattr(self.estimator_, "predict_proba"):
            return scores
        odds = scores.copy()
        odds[:, self.varying_] *= ODDS_OF_MARGINS
        return odds

    def predict_topk(self, X: csr_array | NDArray[Any], k: int = 5) -> csr_array:
        """Return the labels with the highest scores for every row.

        Parameters
        ----------
        X : csr_array or ndarray, of shape (n_samples, n_features)
            Features.
        k : int, default=5
            Maximum number of labels per row.

        Returns
        -------
        csr_array of shape (n_samples, n_labels), dtype float32
            Scores of the best labels.
        """
        return topk_of_decisions(self.decision_function, X, len(self.log_odds_), k)

    def predict(self, X: csr_array | NDArray[Any]) -> csr_array:
        """Predict label sets with the `predict` method of `estimator_`.

        Parameters
        ----------
        X : csr_array or ndarray, of shape (n_samples, n_features)
            Features.

        Returns
        -------
        csr_array of shape (n_samples, n_labels)
            0/1 indicator matrix. A label that occurred in all training rows or in none has a constant score.
            If this score is positive, the label is predicted for all rows. Otherwise, the label is predicted
            for no row. If `estimator_` is None, all labels have constant scores.
        """
        parts = []
        for rows in rows_at_once(X.shape[0], len(self.log_odds_)):
            positive = np.tile(self.log_odds_ > 0, (rows.stop - rows.start, 1))
            if self.estimator_ is not None:
                found: Any = self.estimator_.predict(self._features(X[rows]))
                found = np.asarray(found.toarray() if hasattr(found, "toarray") else found)
                positive[:, self.varying_] = found[:, : len(self.varying_)] > 0
            parts.append(csr_array(positive))
        return csr_array(vstack(parts, format="csr"))

    def _features(self, X: csr_array | NDArray[Any]) -> Any:
        if not self.dense_X:
            return csr_array(X) if isinstance(X, np.ndarray) else X
        if not isinstance(X, np.ndarray):
            return X.toarray()
        # Some estimators overwrite X, so they get a copy. Sums of values in half precision may overflow.
        return np.array(X, dtype=np.float32 if X.dtype == np.float16 else X.dtype, order="C")

    def _scores(self, X: Any) -> NDArray[Any]:
        estimator: Any = self.estimator_
        if hasattr(estimator, "decision_function"):
            return _finite(np.asarray(estimator.decision_function(X)))
        if not hasattr(estimator, "predict_proba"):
            raise ValueError(f"`estimator` must have decision_function or predict_proba, got {estimator!r}")
        probabilities = estimator.predict_proba(X)
        if isinstance(probabilities, list):
            # The list has one array per label. The first column of the array is the probability that the
            # label is absent. The second column is the probability that the label is present.
            if any(each.shape[1] != 2 for each in probabilities):
                raise ValueError(
                    "predict_proba of `estimator` must return two columns for every label, got arrays of "
                    f"other shapes from {estimator!r}; check that this estimator supports "
                    f"{'dense' if self.dense_Y else 'sparse'} Y"
                )
            probabilities = np.column_stack([each[:, 1] for each in probabilities])
        return _finite(np.asarray(logit(np.clip(probabilities, _LEAST, 1 - _LEAST))))


def _finite(scores: NDArray[Any]) -> NDArray[Any]:
    if np.isnan(scores).any():
        raise ValueError("`estimator` must return scores without NaN, got NaN")
    return scores
