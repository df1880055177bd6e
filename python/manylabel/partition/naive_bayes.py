"""Multinomial naive Bayes for counts.

`LPSRClassifier` can use this classifier to rank labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array, diags_array
from scipy.special import logsumexp
from sklearn.utils import Tags

from manylabel import _core
from manylabel.estimator import parameters as kinds
from manylabel.estimator.base import MultiLabelClassifier
from manylabel.estimator.progress import Progress
from manylabel.estimator.registry import register
from manylabel.estimator.schema import Array, Scalar, Schema, SparseMatrix
from manylabel.estimator.validation import KeptDense, check_training_set, known_ones
from manylabel.partition.any_classifier import rows_at_once
from manylabel.partition.asked import DenseScorer

__all__ = ["NaiveBayes"]


@register
class NaiveBayes(MultiLabelClassifier):
    """Multinomial naive Bayes for multi-label data: each row counts once for each of its labels.

    For label j and a row x, the model is ``log P(j | x) = log pi_j + sum_f x_f log theta_fj + const``. Here,
    ``x_f`` is the value of feature f in the row. ``theta_fj`` is the sum of feature f over the training rows
    with label j, divided by the sum of all features over these rows. The sums use add-one (Laplace)
    smoothing. ``pi_j`` is the fraction of the positive entries of Y that belong to label j. ``const`` depends
    on the row, but not on the label: it makes the probabilities ``P(j | x)`` of a row sum to 1 over all
    labels. A row may have several labels, so the probability that it has label j is estimated by
    ``m * P(j | x)``, where m is the mean number of labels per row. Label j is predicted if this estimate
    exceeds one half.

    Attributes
    ----------
    coef_ : csr_array of shape (n_labels, n_features), dtype float32
        Logarithms ``log(1 + count)``, where count is the sum of a feature over the rows with the label.
    log_totals_ : ndarray of shape (n_labels,), dtype float32
        Logarithm of the sum of ``1 + count`` over all features, for each label.
    intercept_ : ndarray of shape (n_labels,), dtype float32
        Logarithms ``log pi_j``. Labels that occur in no training row have the value -inf.
    log_cardinality_ : float
        Logarithm of the mean number of labels per row.

    Notes
    -----
    Unknown entries of Y (NaN) are treated as 0.
    """

    parameters = kinds.Parameters(n_jobs=kinds.Threads())

    schema = Schema(
        **MultiLabelClassifier.fitted,
        coef_=SparseMatrix("csr", ("n_labels", "n_features"), "f4"),
        log_totals_=Array(("n_labels",), "f4"),
        intercept_=Array(("n_labels",), "f4", or_minus_infinity=True),
        log_cardinality_=Scalar(float, finite=True, or_minus_infinity=True),
    )

    coef_: csr_array
    log_totals_: NDArray[np.float32]
    intercept_: NDArray[np.float32]

    def __init__(self, n_jobs: int | None = None) -> None:
        self._assign(locals())

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        return tags

    def _fit(self, X: Any, y: Any, sample_weight: Any, progress: Progress) -> None:
        X, y, weights = check_training_set(self, X, y, sample_weight, dense=self._dense, unknown=True)
        y = known_ones(y)  # the model depends only on positive entries
        least = float((X if isinstance(X, np.ndarray) else X.data).min(initial=0))
        if least < 0:
            raise ValueError(f"values of X must be >= 0 for naive Bayes, got {least}")
        if weights is not None:
            y = csr_array(diags_array(weights.astype(np.float64)) @ y)
        if isinstance(X, np.ndarray):
            sums = np.zeros((y.shape[1], X.shape[1]))
            for rows in rows_at_once(*X.shape):
                sums += y[rows].T @ X[rows].astype(np.float64)
            counts = csr_array(sums)
        else:
            counts = csr_array(y.T @ X.astype(np.float64))
        held = np.asarray(y.sum(axis=0), dtype=np.float64).ravel()
        totals = np.asarray(counts.sum(axis=1)).ravel() + X.shape[1]
        with np.errstate(divide="ignore"):
            self.intercept_ = np.log(held / max(held.sum(), 1e-300)).astype(np.float32)
            rows = X.shape[0] if weights is None else weights.sum(dtype=np.float64)
            self.log_cardinality_ = float(np.log(held.sum() / rows))
        counts.data = np.log1p(counts.data)
        self.coef_ = counts.astype(np.float32)
        self.log_totals_ = np.log(totals).astype(np.float32)
        self.classes_ = np.arange(y.shape[1])
        self.sparse_output_ = True
        if progress is not None:
            progress(y.shape[1])

    def restricted(self, labels: NDArray[Any]) -> NaiveBayes:
        """Return a new model that has only the labels in `labels`.

        For each row x, the probabilities ``P(j | x)`` of the new model sum to 1 over these labels.
        """
        model = NaiveBayes(self.n_jobs)
        model.__dict__.update(vars(self))
        model.coef_ = self.coef_[labels]
        model.log_totals_, model.intercept_ = self.log_totals_[labels], self.intercept_[labels]
        model.classes_ = np.arange(len(labels))
        return model

    @property
    def _dense(self) -> KeptDense:
        return "as given if mostly nonzero"

    def _make_scorer(self) -> Any:
        weights = SimpleNamespace(
            coef_=csc_array(self.coef_), intercept_=self.intercept_, _normalizes_rows=False
        )
        shares = _Shares(_core.linear_scorer(weights), self.log_totals_, self.log_cardinality_)
        return DenseScorer(shares, self._n_labels)


@dataclass(frozen=True)
class _Shares:
    """Callable that computes the scores of `NaiveBayes`.

    The score of label j is ``log(2 * m * P(j | x))``, where m is the mean number of labels per row. A score
    is therefore above 0 if ``m * P(j | x)`` is above one half.
    """

    linear: _core.Scorer
    log_totals: NDArray[np.float32]
    log_cardinality: float

    def __call__(self, X: csr_array | NDArray[Any], threads: int) -> NDArray[np.float32]:
        scores = self.linear.decision(X, threads).astype(np.float64)
        scores -= np.outer(np.asarray(X.sum(axis=1)).ravel(), self.log_totals)
        totals = logsumexp(scores, axis=1, keepdims=True)
        scores -= np.where(np.isneginf(totals), 0, totals)
        scores += np.log(2) + self.log_cardinality if np.isfinite(self.log_cardinality) else 0
        return scores.astype(np.float32)
