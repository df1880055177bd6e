"""The rule `F1Inference`, which maximizes the expected F1 of each label over the rows."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse, vstack
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from manylabel.decision.rules import DecisionRule, check_probabilities, kept
from manylabel.estimator.base import built_aside
from manylabel.estimator.parameters import Choice, Parameters, shown
from manylabel.estimator.registry import register
from manylabel.estimator.validation import check_labels, known_ones, unknown_entries

__all__ = ["F1Inference"]

# Number of label columns that are sorted in one call. This number is large enough that numpy's overhead per
# call is small, and small enough to use little memory.
_LABELS = 64


@register
class F1Inference(DecisionRule):
    """Predict label sets that maximize the expected F1 of every label.

    The label probabilities can come from any classifier. For each label, a call of `predict` by default sorts
    its n rows by decreasing probability of the label. The label is predicted for the first m rows. Let
    ``prior`` be the fraction of training rows with the label. The expected F1 of the label on the n rows is
    about ``2 * (sum of the probabilities of the first m rows) / (n * prior + m)``. The number m is chosen so
    that this expected F1 is as large as possible [1]_. If later rows have the same probability as row m, the
    label is also predicted for these rows. Macro-F1 is the mean of the F1 of all labels, so the predictions
    for all labels together maximize the expected macro-F1.

    Parameters
    ----------
    threshold : {"test", "train"}, default="test"
        The rows that are sorted to choose m. "test" sorts the rows of each call of `predict`. The prediction
        for a row then depends on the other rows of the call. "train" sorts the training rows by the
        out-of-fold probabilities that are passed to `fit`. The probability of row m becomes the threshold of
        the label. The prediction for a row then does not depend on the other rows of the call.

    Attributes
    ----------
    prior_ : ndarray of shape (n_labels,), dtype float64
        For each label, the fraction of the training rows that have the label. Rows in which the label is
        unknown are not counted.
    thresholds_ : ndarray of shape (n_labels,), dtype float64
        The smallest probability at which a label is predicted. The value is inf for labels that occur in no
        training row. This attribute exists only with ``threshold="train"``.
    sparse_output_ : bool
        Whether y was sparse in fit. If so, the result of `predict` is sparse too.

    Notes
    -----
    A label that occurs in no training row is never predicted. Nor is a label predicted for rows in which its
    probability is 0. In contrast, the original algorithm in [1]_ predicts each label for at least one row.

    The choice of m for all labels takes O(n_labels n_samples log n_samples) time.

    References
    ----------
    .. [1] N. Karampatziakis and P. Mineiro, "Scalable Multilabel Prediction via Randomized Methods",
       arXiv:1502.02710, algorithm 4.

    Examples
    --------
    >>> import numpy as np
    >>> from manylabel.decision import F1Inference
    >>> probabilities = np.array([[0.4], [0.3], [0.1], [0.0]])
    >>> F1Inference().fit(None, np.array([[1], [0], [0], [0]])).predict(probabilities).ravel()
    array([1, 1, 0, 0])
    """

    is_monotone: ClassVar[bool] = False

    parameters = Parameters(threshold=Choice("test", "train"))

    prior_: NDArray[np.float64]
    thresholds_: NDArray[np.float64]
    sparse_output_: bool

    def __init__(self, threshold: str = "test") -> None:
        self.threshold = threshold

    @built_aside
    def fit(self, probabilities: Any, y: Any) -> F1Inference:
        """Learn the label frequencies and, with ``threshold="train"``, the threshold of each label.

        Parameters
        ----------
        probabilities : array-like or sparse matrix of shape (n_samples, n_labels), or None
            Out-of-fold probabilities of the labels for the training rows. The probabilities of a row must
            come from a model that was not fitted to this row.
            ``cross_val_predict(model, X, Y, method="predict_proba")`` computes such probabilities. With
            ``threshold="test"`` this argument is ignored and may be None.
        y : array-like or sparse matrix of shape (n_samples, n_labels)
            0/1 indicator matrix of the training rows. NaN marks unknown entries.

        Returns
        -------
        F1Inference
            The estimator itself.

        Raises
        ------
        ValueError
            If an argument or parameter is not valid. The message states the expected value and the given
            value.
        """
        if self.threshold not in ("test", "train"):
            raise ValueError(f'`threshold` must be "test" or "train", got {shown(self.threshold)}')
        labels = check_labels(y, unknown=True)
        n_rows, n_labels = labels.shape
        if n_rows == 0:
            raise ValueError("Y must have at least one row, got 0")
        n_known = np.full(n_labels, float(n_rows))
        unknown = unknown_entries(labels)
        if unknown is not None:
            n_known -= np.bincount(unknown.indices, minlength=n_labels)
        prior = np.bincount(known_ones(labels).indices, minlength=n_labels) / np.maximum(n_known, 1)
        if self.threshold == "train":
            if probabilities is None:
                raise ValueError('`probabilities` must be an array if `threshold` is "train", got None')
            checked = _check_probabilities(probabilities, n_labels)
            if checked.shape[0] != n_rows:
                raise ValueError(
                    f"`probabilities` must have {n_rows} rows, one for each row of Y, got {checked.shape[0]}"
                )
            if isinstance(checked, csr_array):
                self.thresholds_ = _sparse_thresholds(checked, prior)
            else:
                self.thresholds_ = np.concatenate(
                    [_thresholds(checked[:, block], prior[block]) for block in _blocks(len(prior))]
                )
        elif hasattr(self, "thresholds_"):
            del self.thresholds_
        self.prior_ = prior
        self.sparse_output_ = issparse(y)
        return self

    def predict(self, probabilities: Any) -> csr_array | NDArray[np.int64]:
        """Predict the label sets of the rows.

        Parameters
        ----------
        probabilities : array-like or sparse matrix of shape (n_samples, n_labels)
            Probabilities of the labels, in [0, 1]. In a sparse matrix, labels that are not stored have the
            probability 0. With ``threshold="test"``, all rows on which F1 will be measured must be passed
            together, in one call.

        Returns
        -------
        ndarray or csr_array of shape (n_samples, n_labels), dtype int64
            0/1 indicator matrix. It is sparse if y was sparse in fit, or if `probabilities` is sparse.

        Raises
        ------
        ValueError
            If `probabilities` has values outside [0, 1], or if it does not have one column for each label.
        sklearn.exceptions.NotFittedError
            If the rule is not fitted.
        """
        check_is_fitted(self, "prior_")
        checked = _check_probabilities(probabilities, len(self.prior_))
        if isinstance(checked, csr_array):
            of_labels = getattr(self, "thresholds_", None)
            if of_labels is None:
                of_labels = _sparse_thresholds(checked, self.prior_)
            chosen = kept(checked, checked.data >= of_labels[checked.indices])
            chosen.data = np.ones(len(chosen.indices), dtype=np.int64)
            return chosen
        named = []
        for block in _blocks(len(self.prior_)):
            columns = checked[:, block]
            thresholds = (
                self.thresholds_[block]
                if hasattr(self, "thresholds_")
                else _thresholds(columns, self.prior_[block])
            )
            named.append((columns >= thresholds) & (columns > 0))
        if not self.sparse_output_:
            return np.hstack(named).astype(np.int64)
        # The blocks are converted to sparse matrices one by one, so at most one dense block of int64 exists
        # at a time.
        by_label: Any = vstack([csr_array(block.T.astype(np.int64)) for block in named], format="csr")
        return csr_array(by_label.T)


def _blocks(n_labels: int) -> list[slice]:
    return [slice(begin, begin + _LABELS) for begin in range(0, n_labels, _LABELS)]


def _thresholds(probabilities: NDArray[Any], prior: NDArray[np.float64]) -> NDArray[np.float64]:
    """Choose one probability threshold per label. `probabilities` has one column per label.

    A label is predicted if its probability is at least its threshold. `prior` is the fraction of training
    rows with each label. If this fraction is 0 for a label, the threshold of the label is inf.
    """
    n_rows = probabilities.shape[0]
    falling = -np.sort(-probabilities.astype(np.float64), axis=0)
    named = np.arange(1, n_rows + 1)[:, None]
    expected = 2 * np.cumsum(falling, axis=0) / (n_rows * prior + named)
    best = np.take_along_axis(falling, expected.argmax(axis=0)[None], axis=0)[0]
    return np.where(prior > 0, best, np.inf)


def _sparse_thresholds(probabilities: csr_array, prior: NDArray[np.float64]) -> NDArray[np.float64]:
    """Choose one probability threshold per label, like `_thresholds`, for a sparse matrix of probabilities.

    All stored probabilities must be positive.
    """
    n_labels = len(prior)
    order = np.lexsort((-probabilities.data, probabilities.indices))
    labels = probabilities.indices[order]
    falling = probabilities.data[order].astype(np.float64)
    starts = np.searchsorted(labels, np.arange(n_labels))
    named = np.arange(len(labels)) - starts[labels] + 1
    sums = np.concatenate([[0.0], np.cumsum(falling)])
    expected = 2 * (sums[1:] - sums[starts[labels]]) / (probabilities.shape[0] * prior[labels] + named)
    thresholds = np.zeros(n_labels)
    # The first position with the largest expected F1 of each label.
    best = np.lexsort((named, -expected, labels))
    stored = np.unique(labels)
    thresholds[stored] = falling[best[np.searchsorted(labels, stored)]]
    return np.where(prior > 0, thresholds, np.inf)


def _check_probabilities(probabilities: Any, n_labels: int) -> Any:
    checked: Any = (
        check_probabilities(probabilities)
        if issparse(probabilities)
        else check_array(probabilities, dtype=[np.float64, np.float32], input_name="probabilities")
    )
    if checked.shape[1] != n_labels:
        raise ValueError(
            f"`probabilities` must have {n_labels} columns, one for each label, got {checked.shape[1]}"
        )
    if isinstance(checked, csr_array):
        return checked
    if checked.min() < 0 or checked.max() > 1:
        outside = checked.min() if checked.min() < 0 else checked.max()
        raise ValueError(f"values of `probabilities` must be from 0 to 1, got {outside}")
    return checked
