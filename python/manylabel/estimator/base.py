"""What every multi-label classifier shares: tags, saving, and predictions from scores."""

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

# The prepared models of fitted estimators. Not attributes: predictions leave the state of an estimator as it
# is, and copies, pickles and files hold no prepared model.
_SCORERS: WeakKeyDictionary[Any, _core.Scorer] = WeakKeyDictionary()

# Log-odds of a score for which a margin of 1 was asked: of 1 to 8, what ranks best where blocks are merged.
ODDS_OF_MARGINS = 4


@contextmanager
def _aside(estimator: E) -> Iterator[E]:
    """Give a copy to work on, whose attributes are assigned at once when the body is done."""
    built = copy(estimator)
    yield built
    estimator.__dict__ = built.__dict__


def built_aside(fit: Callable[Concatenate[E, P], object]) -> Callable[Concatenate[E, P], E]:
    """Let a fit build its state aside and assign it at once, when all is done; a method decorator.

    A fit that fails or is interrupted leaves the estimator as it was, and other threads predict with the old
    state until the new one is there.
    """

    @wraps(fit)
    def fit_aside(self: E, /, *args: P.args, **kwargs: P.kwargs) -> E:
        with _aside(self) as built:
            fit(built, *args, **kwargs)
        return self

    return fit_aside


class Estimator(BaseEstimator):  # type: ignore[misc]
    """Base of all estimators: a table of parameters, and saving.

    Parameters
    ----------
    random_state : int, RandomState instance or None, default=None
        Seeds what is drawn at random. An int gives the same bits every time.
    n_jobs : int or None, default=None
        Threads; None means 1, -1 all cores. Never changes the result.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    n_features_in_ : int
        Features seen in fit.
    feature_names_in_ : ndarray of shape (n_features_in_,), dtype object
        Their names, if X had string names.
    """

    parameters: ClassVar[Parameters]
    schema: ClassVar[Schema]

    n_features_in_: int

    def _assign(self, arguments: dict[str, Any]) -> None:
        """Store the parameters, as they were given to ``__init__``; its ``locals()``."""
        for name in self.parameters:
            setattr(self, name, arguments[name])

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


class MultiLabelClassifier(ClassifierMixin, Estimator):  # type: ignore[misc]
    """Base of the classifiers: indicator targets in; scores, rankings and indicator predictions out.

    A subclass fits (`_fit`) ``classes_``, ``sparse_output_`` and what else it needs, and says how its scorer
    is made (`_make_scorer`), what its scores mean (`_log_odds`) and, if it knows probabilities, how they
    follow (`_knows_probabilities`, `_probabilities`).

    The scorer is made at the first prediction, from fitted arrays that it borrows. It is dropped when an
    attribute of the estimator is assigned, and so by `fit` and `set_params`.

    A 1-D y of 0 and 1 is one label: a subclass is given its column. What it answers is then for a binary
    classifier of scikit-learn's, such as a wrapper of one model a label wants.

    Attributes
    ----------
    classes_ : ndarray of shape (n_labels,), dtype int64
        ``arange(n_labels)``; 0 and 1 if y was 1-D.
    one_dimensional_ : bool
        Whether y was 1-D in fit, and predictions are.
    sparse_output_ : bool
        Whether Y was sparse in fit, and `predict` is.
    """

    # For the schemas of subclasses.
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
        """Whether y was 1-D in fit, of 0 and 1."""
        return getattr(self, "one_dimensional_", False) and not self._takes_classes

    @property
    def _takes_classes(self) -> bool:
        """Whether `_fit` takes a 1-D y as it is, of any classes."""
        return False

    @property
    def _n_labels(self) -> int:
        return 1 if self._is_one_label else len(self.classes_)

    @property
    def _least_score(self) -> float:
        """The score above which a label is predicted."""
        return 0.0

    def _make_scorer(self) -> _core.Scorer:
        """Check the fitted arrays and prepare them for predictions."""
        raise NotImplementedError

    def _settled(self: T, X: csr_array, Y: csr_array, sample_weight: Any, threads: int, report: Tell) -> T:
        """Return an unfitted estimator for parts of the data, with what is to be chosen by all of it.

        Scores of parts that were regularized alike can be compared.
        """
        return self

    def _scorer(self) -> _core.Scorer:
        scorer = _SCORERS.get(self)
        if scorer is None:
            # Two threads may both come here: either scorer will do. But a fit in a third may have replaced
            # the state that this one was made from.
            state = self.__dict__
            scorer = _SCORERS[self] = self._make_scorer()
            if self.__dict__ is not state:
                _SCORERS.pop(self, None)
        return scorer

    def _check_fitted(self) -> None:
        # What has a scorer is fitted; looking costs as much as scoring a row.
        if self not in _SCORERS:
            check_is_fitted(self, "classes_")

    def _features(self, X: Any) -> csr_array | NDArray[Any]:
        """Check X for a prediction; dense stays dense."""
        self._check_fitted()
        return check_matrix(self, X, reset=False)

    @contextmanager
    def _fitting(self: T, y: Any) -> Iterator[tuple[T, Any]]:
        """Give a copy to fit, and Y for its `_fit`; its attributes are assigned when the body is done."""
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
            Features; finite as float32, or NaN where the class takes missing values. Any numeric dtype, int32
            or int64 positions.
        y : array-like or sparse matrix of shape (n_samples, n_labels), or array-like of shape (n_samples,)
            0/1 indicator matrix Y, or one label: 0 or 1 for each row. Any numeric dtype.
        sample_weight : array-like of shape (n_samples,), default=None
            Multiplies the loss of each row; >= 0. Rows with weight 0 are ignored.
        progress : callable, default=None
            Called some 20 times a second with how much is done, in the unit that ``verbose=1`` shows: labels,
            rules, turns or passes. An exception it raises stops the fit.

        Returns
        -------
        self
            The estimator itself. A fit that fails or is interrupted leaves it as it was.

        Raises
        ------
        ValueError
            If an argument or parameter is not as described; the message says what came.
        MemoryError
            If there is not enough memory.
        KeyboardInterrupt
            Within a second of Ctrl-C, but for exceptions that the notes of the class name.

        Warns
        -----
        sklearn.exceptions.ConvergenceWarning
            If the fit ended at `max_iter` before it converged.
        """
        with self._fitting(y) as (built, Y):
            built._fit(X, Y, sample_weight, progress)
        return self

    def _fit(self, X: Any, y: Any, sample_weight: Any, progress: Progress) -> None:
        """Check parameters and data, and assign the fitted attributes, as for an indicator matrix."""
        raise NotImplementedError

    def prepare(self: T) -> T:
        """Prepare the fitted model for predictions, ahead of the first one.

        A service calls this before it forks its workers: they then share what is prepared. Otherwise the
        first prediction does it, and later ones find it done until an attribute of the estimator is assigned.

        Returns
        -------
        self
            The estimator itself.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            If the model is not fitted.
        ValueError
            If fitted arrays, as changed or loaded, do not go together.

        Notes
        -----
        Fitted arrays are borrowed, not copied. Replace them by assignment; what is changed inside them after
        the first prediction may not be seen.
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
            Scores, as the notes of the class describe them. Dense by nature, 4 bytes each. -inf for labels
            never seen in fit.

        Raises
        ------
        ValueError
            If X is not as in fit.
        MemoryError
            If the scores do not fit in memory; `predict_topk` needs no such array.
        """
        X = self._features(X)
        return self._in_form_of_y(self._scorer().decision(X, n_threads(self.n_jobs)))

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
            0/1 indicator matrix; sparse if Y was in fit, and then never dense in between.

        Raises
        ------
        ValueError
            If X is not as in fit.
        """
        X = self._features(X)
        scorer = self._scorer()
        above = scorer.above(X, self._least_score, n_threads(self.n_jobs))
        return self._indicator(core_rows(above, (X.shape[0], scorer.n_labels)))

    def _knows_probabilities(self) -> bool:
        """Whether there is `predict_proba`."""
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
            Probabilities, as the notes of the class describe them. Dense by nature. 0 for labels never seen
            in fit. If y was 1-D, those of its absence and of its presence.

        Raises
        ------
        ValueError
            If X is not as in fit.
        MemoryError
            If the probabilities do not fit in memory.
        """
        found = self._probabilities(self._features(X))
        return np.hstack([1 - found, found]) if self._is_one_label else found

    def _log_odds(self, scores: NDArray[Any]) -> NDArray[Any]:
        """Turn scores into log-odds of the labels, for models of other rows to be compared with."""
        return scores

    def _indicator(self, positive: csr_array) -> csr_array | NDArray[np.int64]:
        """Give 0/1 predictions the form Y had at fit."""
        positive.data = np.ones(len(positive.indices), dtype=np.int64)
        return positive if self.sparse_output_ else self._in_form_of_y(positive.toarray())

    def _in_form_of_y(self, of_labels: NDArray[Any]) -> NDArray[Any]:
        """Give a value for each row and label the dimensions that y had at fit."""
        return of_labels[:, 0] if self._is_one_label else of_labels

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = True
        tags.classifier_tags.multi_class = False
        tags.target_tags.multi_output = True
        return tags

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of rows whose label sets are predicted exactly.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features.
        y : array-like or sparse matrix of shape (n_samples, n_labels), or (n_samples,) as in fit
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


@lru_cache(maxsize=16)
def _empty(shape: tuple[int, int]) -> Any:
    return csr_array(shape, dtype=np.float32)


def core_rows(arrays: tuple[Any, Any, Any], shape: tuple[int, int]) -> csr_array:
    """Make a matrix of what the core returns, (indptr, indices, data).

    The core has chosen the type of the positions and they are sound. The constructor would look at both
    again, which takes longer than to score a row; a copy of a matrix of that shape does not.
    """
    matrix: csr_array = copy(_empty(shape))
    matrix.indptr, matrix.indices, matrix.data = arrays
    return matrix
