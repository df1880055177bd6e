"""Base classes of the estimators. They provide tags, saving, and predictions from scores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from functools import lru_cache, wraps
from typing import Any, ClassVar, Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from manylabel import _core, persistence
from manylabel.estimator.parameters import Parameters, check_count, n_threads
from manylabel.estimator.progress import Progress, Tell
from manylabel.estimator.schema import Attribute, Classes, Scalar, Schema
from manylabel.estimator.validation import as_column, check_matrix

__all__ = ["ODDS_OF_MARGINS", "Estimator", "MultiLabelClassifier", "built_aside", "core_parts", "core_rows"]

E = TypeVar("E", bound=BaseEstimator)
P = ParamSpec("P")
T = TypeVar("T", bound="MultiLabelClassifier")

# The scorers of fitted estimators. They are kept here and not as attributes. A prediction therefore does not
# change the state of its estimator, and copies, pickles and files contain no scorer.
_SCORERS: WeakKeyDictionary[Any, _core.Scorer] = WeakKeyDictionary()

# Factor that converts margins to log-odds, for losses with a margin of 1. Factors from 1 to 8 were compared;
# this factor gives the best ranking when the scores of several blocks are merged.
ODDS_OF_MARGINS = 4


@contextmanager
def _aside(estimator: E) -> Iterator[E]:
    """Yield a copy of the estimator. After the body, the estimator gets the attributes of the copy."""
    built = copy(estimator)
    yield built
    estimator.__dict__ = built.__dict__


def built_aside(fit: Callable[Concatenate[E, P], object]) -> Callable[Concatenate[E, P], E]:
    """Return a fit method that fits a copy of the estimator and copies its attributes back at the end.

    A fit that fails or is interrupted does not change the estimator. Other threads predict with the old state
    until the fit is done.
    """

    @wraps(fit)
    def fit_aside(self: E, /, *args: P.args, **kwargs: P.kwargs) -> E:
        with _aside(self) as built:
            fit(built, *args, **kwargs)
        return self

    return fit_aside


class Estimator(BaseEstimator):  # type: ignore[misc]
    """Base class of all estimators. It checks parameters and saves models.

    Parameters
    ----------
    random_state : int, RandomState instance or None, default=None
        Seeds all random draws. Pass an int for reproducible results.
    n_jobs : int or None, default=None
        Number of threads. None means 1 thread, and -1 means all cores. The number of threads never changes
        the result.
    verbose : int, default=0
        0 shows no progress bar, and 1 or more shows a progress bar.

    Attributes
    ----------
    n_features_in_ : int
        Number of features seen in fit.
    feature_names_in_ : ndarray of shape (n_features_in_,), dtype object
        Names of the features. This attribute exists only if X had column names in fit and all of these were
        strings.
    """

    parameters: ClassVar[Parameters]
    schema: ClassVar[Schema]

    n_features_in_: int

    def _assign(self, arguments: dict[str, Any]) -> None:
        """Store the parameters from the ``locals()`` of ``__init__``."""
        for name in self.parameters:
            setattr(self, name, arguments[name])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one file, completely or not at all.

        Parameters
        ----------
        path : str or path-like
            The file to write. `manylabel.load` reads it.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            If the model is not fitted.
        OSError
            If the file cannot be written. An older file at `path` is then not changed.
        """
        persistence.save_model(self, path)


class MultiLabelClassifier(ClassifierMixin, Estimator):  # type: ignore[misc]
    """Base class of the multi-label classifiers. It provides scores, rankings and 0/1 predictions.

    A subclass implements `_fit`, which sets ``classes_``, ``sparse_output_`` and the attributes of the
    subclass. It also implements `_make_scorer`, which returns an object that computes scores, and
    `_log_odds`, which converts scores to log-odds. A subclass with probabilities implements
    `_knows_probabilities`, and may override `_probabilities`.

    The scorer is made at the first prediction and borrows the fitted arrays. It is dropped when an attribute
    of the estimator is assigned. Therefore `fit` and `set_params` drop it.

    A 1-D y of 0 and 1 is a single label. `_fit` gets this y as a column. Predictions then have the same shape
    as predictions of scikit-learn's binary classifiers. Wrappers that fit one model per label expect this.

    Attributes
    ----------
    classes_ : ndarray of shape (n_labels,), dtype int64
        The labels, ``arange(n_labels)``. If y was 1-D in fit, these are the classes 0 and 1.
    one_dimensional_ : bool
        Whether y was 1-D in fit. If so, predictions are 1-D too.
    sparse_output_ : bool
        Whether Y was sparse in fit. If so, the result of `predict` is sparse too.
    """

    # The attributes that the schemas of subclasses share.
    fitted: ClassVar[dict[str, Attribute]] = {
        "one_dimensional_": Scalar(bool, size="one_dimensional", optional=True),  # not in version 0.1
        "classes_": Classes("i8"),
        "sparse_output_": Scalar(bool),
    }

    classes_: NDArray[np.int64]
    one_dimensional_: bool
    sparse_output_: bool
    n_jobs: int | None

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        _SCORERS.pop(self, None)

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        _SCORERS.pop(self, None)

    @property
    def _is_one_label(self) -> bool:
        """Whether y was 1-D in fit and held 0 and 1."""
        return getattr(self, "one_dimensional_", False) and not self._takes_classes

    @property
    def _takes_classes(self) -> bool:
        """Whether `_fit` accepts a 1-D y with arbitrary classes."""
        return False

    @property
    def _n_labels(self) -> int:
        return 1 if self._is_one_label else len(self.classes_)

    @property
    def _least_score(self) -> float:
        """Threshold of the scores: a label is predicted if its score is higher."""
        return 0.0

    def _make_scorer(self) -> _core.Scorer:
        """Check the fitted arrays and return a scorer that borrows them."""
        raise NotImplementedError

    def _settled(self: T, X: csr_array, Y: csr_array, sample_weight: Any, threads: int, report: Tell) -> T:
        """Return an unfitted clone whose automatic parameters are chosen on all data.

        The clone is then fitted to parts of the data. All these models have the same regularization, so their
        scores can be compared.
        """
        return self

    def _scorer(self) -> _core.Scorer:
        scorer = _SCORERS.get(self)
        if scorer is None:
            # Two threads may each make a scorer, and both scorers are valid. But a fit in a third thread may
            # have replaced the state that the scorer was made from; such a scorer is dropped.
            state = self.__dict__
            scorer = _SCORERS[self] = self._make_scorer()
            if self.__dict__ is not state:
                _SCORERS.pop(self, None)
        return scorer

    def _check_fitted(self) -> None:
        # An estimator with a scorer is fitted. `check_is_fitted` would take as long as scoring a row.
        if self not in _SCORERS:
            check_is_fitted(self, "classes_")

    def _features(self, X: Any) -> csr_array | NDArray[Any]:
        """Check X for a prediction. A dense X stays dense."""
        self._check_fitted()
        return check_matrix(self, X, reset=False)

    @contextmanager
    def _fitting(self: T, y: Any) -> Iterator[tuple[T, Any]]:
        """Yield a copy of the estimator and the Y for its `_fit`.

        After the body, the state of the copy replaces the state of the estimator.
        """
        column = None if self._takes_classes else as_column(y)
        # Other threads may predict with the old state until the new one is complete.
        with _aside(self) as built:
            built.__dict__.pop("one_dimensional_", None)
            yield built, y if column is None else column
            if not self._takes_classes:
                built.one_dimensional_ = column is not None
            if column is not None:
                built.classes_ = np.arange(2)

    def fit(self: T, X: Any, y: Any, sample_weight: Any = None, *, progress: Progress = None) -> T:
        """Fit the model.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features, of any numeric dtype. Values must be finite when converted to float32. NaN is allowed if
            the class accepts missing values. A sparse matrix may have int32 or int64 indices.
        y : array-like or sparse matrix of shape (n_samples, n_labels), or array-like of shape (n_samples,)
            0/1 indicator matrix Y, or a 1-D array with 0 or 1 per row for a single label. All numeric dtypes
            are accepted.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, >= 0. The loss of a row is multiplied by its weight. Rows with weight 0 are
            ignored. None means equal weights.
        progress : callable, default=None
            Function that is called about 20 times per second with the amount of work done so far. The amount
            has the unit of the progress bar of ``verbose=1``, such as labels or rules. If the function raises
            an exception, the fit stops.

        Returns
        -------
        self
            The estimator itself. A fit that fails or is interrupted does not change it.

        Raises
        ------
        ValueError
            If an argument or parameter is not as described. The message states the expected and the given
            value.
        MemoryError
            If there is not enough memory.
        KeyboardInterrupt
            Within a second after Ctrl-C. If a fit can take longer to stop, the Notes section of the class
            says so.

        Warns
        -----
        sklearn.exceptions.ConvergenceWarning
            If the fit ended at `max_iter` before it converged.
        """
        with self._fitting(y) as (built, Y):
            built._fit(X, Y, sample_weight, progress)
        return self

    def _fit(self, X: Any, y: Any, sample_weight: Any, progress: Progress) -> None:
        """Check parameters and data, and assign the fitted attributes. `y` is an indicator matrix."""
        raise NotImplementedError

    def prepare(self: T) -> T:
        """Prepare the fitted model for predictions before the first one.

        A service can call this method before it forks its workers. The workers then share the prepared model.
        Without this call, the first prediction prepares the model. The prepared model is kept until an
        attribute of the estimator is assigned.

        Returns
        -------
        self
            The estimator itself.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            If the model is not fitted.
        ValueError
            If the fitted arrays do not agree with one another, for example because an array was replaced.

        Notes
        -----
        Fitted arrays are borrowed, not copied. To change a fitted array, assign a new array. Changes inside
        an array after the first prediction may be ignored.
        """
        self._check_fitted()
        self._scorer()
        return self

    def decision_function(self, X: Any) -> NDArray[np.float32]:
        """Score every label of every row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features.

        Returns
        -------
        ndarray of shape (n_samples, n_labels), or (n_samples,) if y was 1-D, dtype float32
            Scores, as described in the notes of the class. Labels that occur in no training row get -inf. The
            result is always dense and takes 4 bytes per score.

        Raises
        ------
        ValueError
            If X is invalid, or its number of features differs from X in fit.
        MemoryError
            If the scores do not fit in memory. `predict_topk` needs far less memory.
        """
        X = self._features(X)
        return self._in_form_of_y(self._scorer().decision(X, n_threads(self.n_jobs)))

    def predict_topk(self, X: Any, k: int = 5) -> csr_array:
        """Return the best labels of every row with their scores.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features.
        k : int, default=5
            Number of labels per row, >= 1. If fewer than k labels occur in the training rows, each row gets
            only these labels.

        Returns
        -------
        csr_array of shape (n_samples, n_labels), dtype float32
            The scores of the k best labels of each row. Within a row, entries are sorted by label and not by
            score; ``np.argsort(-row.data, kind="stable")`` sorts them by score. If scores are equal, the
            label with the lower number ranks first.

        Raises
        ------
        ValueError
            If k < 1, if X is invalid, or if its number of features differs from X in fit.

        Notes
        -----
        Besides the result, only the scores of a few rows are in memory at a time.
        """
        self._check_fitted()
        k = check_count("k", k, 1)
        X = self._features(X)
        scorer = self._scorer()
        top = scorer.topk(X, k, n_threads(self.n_jobs))
        return core_rows(top, (X.shape[0], scorer.n_labels))

    def predict(self, X: Any) -> csr_array | NDArray[np.int64]:
        """Predict the label sets of the rows.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features.

        Returns
        -------
        ndarray or csr_array of shape (n_samples, n_labels), or (n_samples,) if y was 1-D, dtype int64
            0/1 indicator matrix. It is sparse if Y was sparse in fit. No dense matrix is made in this case.

        Raises
        ------
        ValueError
            If X is invalid, or its number of features differs from X in fit.
        """
        X = self._features(X)
        scorer = self._scorer()
        above = scorer.above(X, self._least_score, n_threads(self.n_jobs))
        return self._indicator(core_rows(above, (X.shape[0], scorer.n_labels)))

    def _knows_probabilities(self) -> bool:
        """Whether the estimator has the method `predict_proba`."""
        return False

    def _probabilities(self, X: csr_array | NDArray[Any]) -> NDArray[Any]:
        return self._scorer().probabilities(X, n_threads(self.n_jobs))

    @available_if(lambda self: self._knows_probabilities())  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Estimate the probability of every label of every row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features.

        Returns
        -------
        ndarray of shape (n_samples, n_labels), or (n_samples, 2) if y was 1-D
            Probabilities, as described in the notes of the class. Labels that occur in no training row get 0.
            If y was 1-D in fit, the columns have the probabilities of class 0 and of class 1. The result is
            always dense.

        Raises
        ------
        ValueError
            If X is invalid, or its number of features differs from X in fit.
        MemoryError
            If the probabilities do not fit in memory.
        """
        found = self._probabilities(self._features(X))
        return np.hstack([1 - found, found]) if self._is_one_label else found

    def _log_odds(self, scores: NDArray[Any]) -> NDArray[Any]:
        """Convert scores to log-odds of the labels, so that scores of different models can be compared."""
        return scores

    def _indicator(self, positive: csr_array) -> csr_array | NDArray[np.int64]:
        """Return 0/1 predictions, which are dense or sparse as Y was in fit."""
        positive.data = np.ones(len(positive.indices), dtype=np.int64)
        return positive if self.sparse_output_ else self._in_form_of_y(positive.toarray())

    def _in_form_of_y(self, of_labels: NDArray[Any]) -> NDArray[Any]:
        """Return the values of all rows and labels, as a 1-D array if y was 1-D in fit."""
        return of_labels[:, 0] if self._is_one_label else of_labels

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = True
        tags.classifier_tags.multi_class = False
        tags.target_tags.multi_output = True
        return tags

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the fraction of rows for which `predict` gives exactly the true label set.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features.
        y : array-like or sparse matrix of shape (n_samples, n_labels), or (n_samples,) as in fit
            True labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows. None means equal weights.

        Returns
        -------
        float
            The subset accuracy, which is 1 minus the subset 0/1 loss.
        """
        return float(super().score(X, y, sample_weight))


def core_parts(arrays: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
    """Reorder (indptr, indices, data) from the core to the order that scipy's constructors take."""
    indptr, indices, data = arrays
    return data, indices, indptr


@lru_cache(maxsize=16)
def _empty(shape: tuple[int, int]) -> Any:
    return csr_array(shape, dtype=np.float32)


def core_rows(arrays: tuple[Any, Any, Any], shape: tuple[int, int]) -> csr_array:
    """Make a matrix from the arrays (indptr, indices, data) that the core returns.

    The core returns valid indices of the right type. scipy's constructor would check their values and types
    again, which takes longer than scoring a row. Copying an empty matrix of the same shape avoids these
    checks.
    """
    matrix: csr_array = copy(_empty(shape))
    matrix.indptr, matrix.indices, matrix.data = arrays
    return matrix
