"""Adapter that fits and scores blocks with a multi-label classifier of another library."""

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

# Number of dense scores held at a time.
_SCORES_AT_ONCE = 1 << 22
# Probabilities are clipped to this and 1 minus this, since logits of 0 and 1 are infinite.
_LEAST = 1e-7


def rows_at_once(n_rows: int, n_labels: int) -> Iterator[slice]:
    """Split rows into slices whose dense scores fit in memory; one empty slice if there are no rows."""
    step = max(1, _SCORES_AT_ONCE // max(1, n_labels))
    for start in range(0, max(1, n_rows), step):
        yield slice(start, min(start + step, n_rows))


def topk_of_decisions(
    decide: Callable[[csr_array], NDArray[np.float32]], X: csr_array, n_labels: int, k: int
) -> csr_array:
    """Rank labels by dense scores, some rows at a time.

    Parameters
    ----------
    decide : callable
        Returns the scores of rows, (n_rows, n_labels).
    X : csr_array of shape (n_samples, n_features)
    n_labels : int
    k : int
        Maximum number of labels per row; labels with score -inf are left out.

    Returns
    -------
    csr_array of shape (n_samples, n_labels), dtype float32
        As from `predict_topk`.
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
    """A multi-label classifier with scikit-learn's interface, for blocks of any shape.

    Many classifiers refuse labels that all rows of a block have, or none. Such labels get a constant score:
    the log-odds ``log((n_1 + 1/2) / (n_0 + 1/2))`` of their counts. So do all labels of a block that the
    classifier cannot be fitted to, for example because it has too few rows.

    Parameters
    ----------
    estimator : estimator
        Not cloned; has `decision_function` or `predict_proba`.
    dense_X, dense_Y : bool, default=False
        Whether `estimator` gets X and Y as ndarrays rather than CSR arrays.

    Attributes
    ----------
    estimator_ : estimator or None
        Fitted to the labels that vary, if that was possible.
    varying_ : ndarray of shape (n_varying,), dtype int32
        These labels.
    log_odds_ : ndarray of shape (n_labels,), dtype float32
        Constant scores.
    error_ : str or None
        Why `estimator` could not be fitted.
    n_features_in_ : int
        Number of features seen in fit.
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

    def fit(self, X: csr_array, Y: csr_array, sample_weight: Any = None) -> AnyClassifier:
        """Fit `estimator` to the labels that some training rows have and others lack.

        Parameters
        ----------
        X : csr_array of shape (n_samples, n_features)
        Y : csr_array of shape (n_samples, n_labels), dtype float32
        sample_weight : ndarray of shape (n_samples,), default=None
            Passed to `estimator` unless None.

        Returns
        -------
        AnyClassifier
            The estimator itself.
        """
        n_rows, n_labels = Y.shape
        self.n_features_in_, self.classes_ = X.shape[1], np.arange(n_labels)
        positive = np.bincount(Y.indices, minlength=n_labels)
        self.log_odds_ = np.log((positive + 0.5) / (n_rows - positive + 0.5)).astype(np.float32)
        self.varying_ = np.flatnonzero((positive > 0) & (positive < n_rows)).astype(np.int32)
        self.estimator_ = self.error_ = None
        if len(self.varying_) == 0:
            return self
        # A single label is given twice: not every classifier accepts an indicator matrix of one column.
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

    def decision_function(self, X: csr_array) -> NDArray[np.float32]:
        """Score every label by the classifier's scores or, without these, the logits of its probabilities.

        Parameters
        ----------
        X : csr_array of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_labels), dtype float32
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

    def predict_topk(self, X: csr_array, k: int = 5) -> csr_array:
        """Return the best labels of every row.

        Parameters
        ----------
        X : csr_array of shape (n_samples, n_features)
        k : int, default=5

        Returns
        -------
        csr_array of shape (n_samples, n_labels), dtype float32
        """
        return topk_of_decisions(self.decision_function, X, len(self.log_odds_), k)

    def predict(self, X: csr_array) -> csr_array:
        """Predict the labels, as the classifier does.

        Parameters
        ----------
        X : csr_array of shape (n_samples, n_features)

        Returns
        -------
        csr_array of shape (n_samples, n_labels)
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

    def _features(self, X: csr_array) -> Any:
        return X.toarray() if self.dense_X else X

    def _scores(self, X: Any) -> NDArray[Any]:
        estimator: Any = self.estimator_
        if hasattr(estimator, "decision_function"):
            return _finite(np.asarray(estimator.decision_function(X)))
        if not hasattr(estimator, "predict_proba"):
            raise ValueError(f"`estimator` must have decision_function or predict_proba, got {estimator!r}")
        probabilities = estimator.predict_proba(X)
        if isinstance(probabilities, list):
            # One array per label, with columns for its absence and its presence.
            if any(each.shape[1] != 2 for each in probabilities):
                raise ValueError(
                    f"`estimator` must return probabilities of 0 and 1 for every label, which {estimator!r} "
                    f"did not; does it accept {'dense' if self.dense_Y else 'sparse'} Y?"
                )
            probabilities = np.column_stack([each[:, 1] for each in probabilities])
        return _finite(np.asarray(logit(np.clip(probabilities, _LEAST, 1 - _LEAST))))


def _finite(scores: NDArray[Any]) -> NDArray[Any]:
    if np.isnan(scores).any():
        raise ValueError("`estimator` must return scores without NaN, got NaN")
    return scores
