"""From probabilities to label sets that a measure likes best."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse, vstack
from sklearn.base import BaseEstimator
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from manylabel.estimator.base import built_aside
from manylabel.estimator.parameters import shown
from manylabel.estimator.validation import check_labels

__all__ = ["F1Inference"]

# Labels sorted together: enough for numpy to be busy, and little memory.
_LABELS = 64


class F1Inference(BaseEstimator):  # type: ignore[misc]
    """Label sets with the best expected F1 of every label, from any classifier's probabilities.

    A label's F1 on n rows, if the m most probable ones are named, is about ``2 * (sum of their
    probabilities) / (n * prior + m)``; the best m is taken, and with it all rows that are as probable as the
    last [1]_. That is the measure whose mean over labels is macro-F1.

    Parameters
    ----------
    threshold : {"test", "train"}, default="test"
        "test" chooses m anew for the rows `predict` is given, all together: what it says of a row depends on
        the others. "train" chooses a probability for each label from the out-of-fold probabilities given to
        `fit`, and `predict` compares with it, row by row.

    Attributes
    ----------
    prior_ : ndarray of shape (n_labels,), dtype float64
        Share of the training rows that have the label.
    thresholds_ : ndarray of shape (n_labels,), dtype float64
        With "train": the least probability for which a label is named; inf for labels without a training row.
    sparse_output_ : bool
        Whether Y was sparse in fit, and `predict` is.

    Notes
    -----
    A label that no training row has, and a probability of 0, are never named, where the printed algorithm
    would name one row at least. Time O(n_labels n_samples log n_samples).

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

    prior_: NDArray[np.float64]
    thresholds_: NDArray[np.float64]
    sparse_output_: bool

    def __init__(self, threshold: str = "test") -> None:
        self.threshold = threshold

    @built_aside
    def fit(self, probabilities: Any, y: Any) -> F1Inference:
        """Learn how frequent labels are and, with "train", from which probability on to name them.

        Parameters
        ----------
        probabilities : array-like of shape (n_samples, n_labels) or None
            Of the training rows, from models that have not seen them: what ``cross_val_predict(model, X, Y,
            method="predict_proba")`` returns. Not looked at, and may be None, with "test".
        y : array-like or sparse matrix of shape (n_samples, n_labels)
            0/1 indicator matrix Y of the training rows.

        Returns
        -------
        F1Inference
            The estimator itself.

        Raises
        ------
        ValueError
            If an argument or parameter is not as described; the message says what came.
        """
        if self.threshold not in ("test", "train"):
            raise ValueError(f'`threshold` must be "test" or "train", got {shown(self.threshold)}')
        labels = check_labels(y)
        n_rows = labels.shape[0]
        if n_rows == 0:
            raise ValueError("rows of Y: expected at least one, got 0")
        prior = np.bincount(labels.indices, minlength=labels.shape[1]) / n_rows
        if self.threshold == "train":
            if probabilities is None:
                raise ValueError('`probabilities` must be an array with `threshold="train"`, got None')
            checked = _check_probabilities(probabilities, labels.shape[1])
            if checked.shape[0] != n_rows:
                raise ValueError(f"rows of probabilities: expected {n_rows} as in Y, got {checked.shape[0]}")
            self.thresholds_ = np.concatenate(
                [_thresholds(checked[:, block], prior[block]) for block in _blocks(len(prior))]
            )
        elif hasattr(self, "thresholds_"):
            del self.thresholds_
        self.prior_ = prior
        self.sparse_output_ = issparse(y)
        return self

    def predict(self, probabilities: Any) -> csr_array | NDArray[np.int64]:
        """Name labels.

        Parameters
        ----------
        probabilities : array-like of shape (n_samples, n_labels)
            In [0, 1]; with "test" those of all rows that F1 will be measured on.

        Returns
        -------
        ndarray or csr_array of shape (n_samples, n_labels), dtype int64
            0/1 indicator matrix; sparse if Y was in fit.

        Raises
        ------
        ValueError
            If probabilities are not in [0, 1] or of another number of labels than Y in fit.
        """
        check_is_fitted(self, "prior_")
        checked = _check_probabilities(probabilities, len(self.prior_))
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
        # Labels by rows, stacked, so that each block may be thrown away.
        by_label: Any = vstack([csr_array(block.T.astype(np.int64)) for block in named], format="csr")
        return csr_array(by_label.T)


def _blocks(n_labels: int) -> list[slice]:
    return [slice(begin, begin + _LABELS) for begin in range(0, n_labels, _LABELS)]


def _thresholds(probabilities: NDArray[Any], prior: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the probability of the last row to name, for every column; inf where `prior` is 0."""
    n_rows = probabilities.shape[0]
    falling = -np.sort(-probabilities.astype(np.float64), axis=0)
    named = np.arange(1, n_rows + 1)[:, None]
    expected = 2 * np.cumsum(falling, axis=0) / (n_rows * prior + named)
    best = np.take_along_axis(falling, expected.argmax(axis=0)[None], axis=0)[0]
    return np.where(prior > 0, best, np.inf)


def _check_probabilities(probabilities: Any, n_labels: int) -> NDArray[Any]:
    checked: NDArray[Any] = check_array(
        probabilities, dtype=[np.float64, np.float32], input_name="probabilities"
    )
    if checked.shape[1] != n_labels:
        raise ValueError(f"labels of probabilities: expected {n_labels} as in Y, got {checked.shape[1]}")
    if checked.min() < 0 or checked.max() > 1:
        outside = checked.min() if checked.min() < 0 else checked.max()
        raise ValueError(f"probabilities must be from 0 to 1, got {outside}")
    return checked
