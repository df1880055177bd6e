"""Decision rules, which choose a label set for each row from the probabilities of its labels."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse
from sklearn.base import BaseEstimator

from manylabel import _core
from manylabel.estimator.base import built_aside, core_rows
from manylabel.estimator.parameters import Count, Number, Parameter, Parameters
from manylabel.estimator.registry import register
from manylabel.estimator.validation import canonical_csr, check_labels, known_ones, unknown_entries
from manylabel.metrics.calibration import hits_of

__all__ = [
    "AnyRule",
    "Costs",
    "DecisionRule",
    "ExpectedF1",
    "TopLabels",
    "check_probabilities",
    "of_known_entries",
]


class DecisionRule(BaseEstimator):  # type: ignore[misc]
    """Base class of the decision rules.

    A rule chooses labels by their probabilities. In a sparse matrix, such as the result of
    ``predict_proba_topk``, labels that are not stored have the probability 0 and are never chosen.
    """

    parameters: ClassVar[Parameters]

    # Whether the rule may only be fitted to rows that neither the classifier nor the calibrator has seen.
    needs_fresh_rows: ClassVar[bool] = False

    # Whether a label of a row is never chosen without the labels of the row that are more probable.
    is_monotone: ClassVar[bool] = True

    @built_aside
    def fit(self, probabilities: Any, Y: Any) -> None:
        """Learn from the probabilities and the true labels of held-out rows.

        `Costs`, `ExpectedF1` and `TopLabels` have nothing to learn. For these rules, `fit` only checks its
        arguments, and `predict` also works without `fit`.

        Parameters
        ----------
        probabilities : array-like or sparse matrix of shape (n_samples, n_labels)
            Probabilities of the labels, in [0, 1]. The rows must be held out: the classifier that predicted
            the probabilities must not be fitted to these rows.
        Y : array-like or sparse matrix of shape (n_samples, n_labels)
            0/1 indicator matrix of the true labels. NaN marks unknown entries, from which the rule learns
            nothing.

        Returns
        -------
        self
            The rule itself.

        Raises
        ------
        ValueError
            If an argument or parameter is not valid. The message states the expected value and the given
            value.
        """
        params = self.parameters.check(self)
        checked = check_probabilities(probabilities)
        labels = check_labels(Y, unknown=True)
        if labels.shape != checked.shape:
            raise ValueError(f"`probabilities` must have the shape of Y, {labels.shape}, got {checked.shape}")
        if labels.shape[0] == 0:
            raise ValueError("Y must have at least one row, got 0")
        self._learn(checked, labels, params)

    def predict(self, probabilities: Any) -> csr_array | NDArray[np.int64]:
        """Choose the label set of every row.

        Parameters
        ----------
        probabilities : array-like or sparse matrix of shape (n_samples, n_labels)
            Probabilities of the labels, in [0, 1].

        Returns
        -------
        ndarray or csr_array of shape (n_samples, n_labels), dtype int64
            0/1 indicator matrix. It is sparse if `probabilities` is sparse.

        Raises
        ------
        ValueError
            If `probabilities` has values outside [0, 1].
        sklearn.exceptions.NotFittedError
            If the rule needs a fit and is not fitted.
        """
        chosen = self._chosen(check_probabilities(probabilities), self.parameters.check(self))
        chosen.data = np.ones(len(chosen.indices), dtype=np.int64)
        return chosen if issparse(probabilities) else chosen.toarray()

    def _learn(self, probabilities: csr_array, Y: csr_array, params: dict[str, Any]) -> None:
        """Set the fitted attributes.

        Rules that have nothing to learn use this base method, which does nothing. Other rules override it.

        The stored values of Y are 1 for true labels and NaN for unknown entries. A rule can call
        `of_known_entries` to remove the unknown entries.
        """

    def _chosen(self, probabilities: csr_array, params: dict[str, Any]) -> csr_array:
        """Return a matrix whose stored entries are the chosen labels."""
        raise NotImplementedError


class AnyRule(Parameter):
    """A parameter that is a decision rule."""

    wanted = "a decision rule"
    documented = "DecisionRule"
    wrong = ("a", 3, None)

    def takes(self, value: Any) -> bool:
        """Return whether a value is allowed."""
        return isinstance(value, DecisionRule)

    def read(self, text: str) -> Any:
        """Raise ValueError, because a decision rule cannot be given as text on the command line."""
        raise ValueError


def check_probabilities(probabilities: Any) -> csr_array:
    """Convert probabilities to a CSR array without stored zeros. The given matrix is not changed."""
    matrix: Any = probabilities if issparse(probabilities) else np.asarray(probabilities)
    if len(matrix.shape) != 2 or matrix.shape[1] == 0 or matrix.dtype.kind not in "biuf":
        raise ValueError(
            f"`probabilities` must be a 2-D numeric matrix with at least one column, "
            f"got {matrix.dtype} of shape {matrix.shape}"
        )
    checked = canonical_csr(matrix, "`probabilities`")
    if checked.dtype not in (np.float32, np.float64):
        checked = checked.astype(np.float64)
    if checked.nnz:
        least, most = checked.data.min(), checked.data.max()
        if not (least >= 0 and most <= 1):
            outside = most if least >= 0 else least
            raise ValueError(f"values of `probabilities` must be from 0 to 1, got {outside}")
    return kept(checked, checked.data > 0) if not checked.data.all() else checked


def of_known_entries(probabilities: csr_array, Y: csr_array) -> tuple[csr_array, csr_array]:
    """Return `probabilities` and Y without the entries that are unknown in Y.

    The results have the same shape as the arguments, but do not store the unknown entries. The arguments do
    not change. If all entries of Y are known, the arguments themselves are returned.
    """
    unknown = unknown_entries(Y)
    if unknown is None:
        return probabilities, Y
    return kept(probabilities, ~hits_of(probabilities, unknown)), known_ones(Y)


def kept(matrix: csr_array, mask: NDArray[np.bool_]) -> csr_array:
    """Return a CSR array with the stored entries of `matrix` for which `mask` is True.

    `mask` has one value for each stored entry.
    """
    ends = np.concatenate([[0], np.cumsum(mask)])[matrix.indptr].astype(matrix.indptr.dtype)
    return core_rows((ends, matrix.indices[mask], matrix.data[mask]), matrix.shape)


@register
class TopLabels(DecisionRule):
    """Choose the k most probable labels of every row.

    Parameters
    ----------
    k : int, default=5
        Number of labels per row, >= 1. If fewer labels have a positive probability, the row gets only these
        labels. If labels have the same probability, labels with lower column indices are preferred.

    Examples
    --------
    >>> from manylabel.decision import TopLabels
    >>> TopLabels(2).predict([[0.5, 0.1, 0.4]])
    array([[1, 0, 1]])
    """

    parameters = Parameters(k=Count(1))

    def __init__(self, k: int = 5) -> None:
        self.k = k

    def _chosen(self, probabilities: csr_array, params: dict[str, Any]) -> csr_array:
        return core_rows(_core.topk_of_rows(probabilities, params["k"]), probabilities.shape)


@register
class Costs(DecisionRule):
    """Choose the label set with the lowest expected cost for every row.

    A label that is chosen but not true costs `false_positive`, and a true label that is not chosen costs
    `false_negative`. The expected cost of a set is a sum with one term per label, and each term depends on
    one probability only. A label is chosen if its probability is above
    ``false_positive / (false_positive + false_negative)``. This choice minimizes the expected cost even if
    labels depend on each other.

    Parameters
    ----------
    false_positive, false_negative : float, default=1.0
        The two costs, finite and > 0. With equal costs, labels with probabilities above 1/2 are chosen. This
        choice minimizes the expected Hamming loss.

    Examples
    --------
    >>> from manylabel.decision import Costs
    >>> Costs(false_positive=1, false_negative=4).predict([[0.5, 0.1, 0.4]])
    array([[1, 0, 1]])
    """

    parameters = Parameters(false_positive=Number(above=0), false_negative=Number(above=0))

    def __init__(self, false_positive: float = 1.0, false_negative: float = 1.0) -> None:
        self.false_positive = false_positive
        self.false_negative = false_negative

    def _chosen(self, probabilities: csr_array, params: dict[str, Any]) -> csr_array:
        # This form of the quotient does not overflow.
        bound = 1 / (1 + params["false_negative"] / params["false_positive"])
        return kept(probabilities, probabilities.data > bound)


@register
class ExpectedF1(DecisionRule):
    """Choose the label set with the largest expected F1 for every row.

    The F1 of a row with the true set T and the chosen set S is ``2 |S & T| / (|S| + |T|)``. Its mean over the
    rows is the example-based F1, ``f1_score(average="samples")`` in scikit-learn. The expectation assumes
    that the labels of a row are independent, with the given probabilities. The best set then consists of the
    m most probable labels, where m depends on all probabilities of the row [1]_ [2]_.

    Parameters
    ----------
    zero_division : float, default=0.0
        The F1 of a row that has no true labels and gets the empty set; a number from 0 to 1. With the value
        0, a row gets at least one label, unless all its labels have the probability 0. With a larger value,
        more rows may get the empty set. The expected F1 of the empty set is `zero_division` times the
        probability that the row has no true labels. A row gets the empty set if no other set has a larger
        expected F1.

    Notes
    -----
    A row with k labels of positive probability takes O(k²) time. For data with many labels, pass sparse
    probabilities of the most probable labels, such as the result of ``predict_proba_topk(X, 100)``.

    References
    ----------
    .. [1] N. Ye, K. M. A. Chai, W. S. Lee and H. L. Chieu, "Optimizing F-measure: a tale of two approaches",
       ICML 2012, algorithm 1.
    .. [2] W. Waegeman, K. Dembczynski, A. Jachnik, W. Cheng and E. Hüllermeier, "On the Bayes-optimality of
       F-measure maximizers", JMLR 15, 2014.

    Examples
    --------
    >>> from manylabel.decision import ExpectedF1
    >>> ExpectedF1().predict([[0.5, 0.1, 0.4], [0.9, 0.1, 0.1]])
    array([[1, 0, 1],
           [1, 0, 0]])
    """

    parameters = Parameters(zero_division=Number(least=0, most=1))

    def __init__(self, zero_division: float = 0.0) -> None:
        self.zero_division = zero_division

    def _chosen(self, probabilities: csr_array, params: dict[str, Any]) -> csr_array:
        sets = _core.expected_f1_sets(probabilities, params["zero_division"], (1, None))
        return core_rows(sets, probabilities.shape)
