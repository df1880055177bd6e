"""Base classes of the estimators, with methods that save models and make predictions from scores."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from functools import lru_cache, wraps
from typing import Any, ClassVar, Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import Tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from manylabel import _core, persistence
from manylabel.estimator.explanation import Explained, LabelExplanation, Part, by_removal
from manylabel.estimator.names import as_names, check_label, column_names, label_name, values_of_frame
from manylabel.estimator.parameters import Parameters, check_count, n_threads
from manylabel.estimator.progress import Progress, Tell
from manylabel.estimator.schema import Array, Attribute, Classes, Scalar, Schema
from manylabel.estimator.validation import (
    KeptDense,
    as_column,
    check_labels,
    check_matrix,
    check_names,
    check_row,
)

__all__ = ["ODDS_OF_MARGINS", "Estimator", "MultiLabelClassifier", "built_aside", "core_parts", "core_rows"]

E = TypeVar("E", bound=BaseEstimator)
P = ParamSpec("P")
T = TypeVar("T", bound="MultiLabelClassifier")

# The scorers of fitted estimators. A scorer is an object of the Rust core that computes scores. Scorers are
# not attributes of the estimators. A prediction therefore does not change the attributes of an estimator, and
# copies, pickles and model files contain no scorer.
_SCORERS: WeakKeyDictionary[Any, _core.Scorer] = WeakKeyDictionary()

# Factor that converts margins to log-odds, for losses with a margin of 1. Factors from 1 to 8 were compared.
# This factor gives the best ranking when the scores of several block models are merged.
ODDS_OF_MARGINS = 4


@contextmanager
def _aside(estimator: E) -> Iterator[E]:
    """Yield a copy of the estimator for the body of a ``with`` statement.

    If the body raises no error, the estimator gets the attributes of the copy.
    """
    built = copy(estimator)
    yield built
    estimator.__dict__ = built.__dict__


def built_aside(fit: Callable[Concatenate[E, P], object]) -> Callable[Concatenate[E, P], E]:
    """Decorate a fit method, so that it fits a copy of the estimator.

    After the fit, the estimator gets the attributes of the copy. The estimator does not change if the fit
    fails or is interrupted. During the fit, other threads can still predict with the old attributes.
    """

    @wraps(fit)
    def fit_aside(self: E, /, *args: P.args, **kwargs: P.kwargs) -> E:
        with _aside(self) as built:
            fit(built, *args, **kwargs)
        return self

    # `fit` returns None, but the decorated method returns the estimator.
    signature = inspect.signature(fit).replace(return_annotation="Self")
    fit_aside.__signature__ = signature  # type: ignore[attr-defined]
    fit_aside.__annotations__ = {name: kind for name, kind in fit.__annotations__.items() if name != "return"}
    return fit_aside


class Estimator(BaseEstimator):  # type: ignore[misc]
    """Base class of all estimators. It stores the parameters and saves fitted models.

    Parameters
    ----------
    random_state : int, RandomState instance or None, default=None
        Seed of all random draws. Pass an int for reproducible results.
    n_jobs : int or None, default=None
        Number of threads. None means 1 thread, and -1 means all cores. The number of threads never changes
        the result.
    verbose : int, default=0
        A value of 1 or more shows a progress bar. 0 shows no progress bar.

    Attributes
    ----------
    n_features_in_ : int
        Number of features seen in fit.
    feature_names_in_ : ndarray of shape (n_features_in_,), dtype object
        Names of the features. This attribute exists only if X had column names in fit and all column names
        were strings.
    """

    parameters: ClassVar[Parameters]
    schema: ClassVar[Schema]

    n_features_in_: int

    def _assign(self, arguments: dict[str, Any]) -> None:
        """Store the parameters of ``__init__`` as attributes.

        `arguments` is the ``locals()`` of ``__init__``.
        """
        for name in self.parameters:
            setattr(self, name, arguments[name])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the fitted model to one file.

        The file is written completely or not at all.

        Parameters
        ----------
        path : str or path-like
            The file to write. `manylabel.load` can read this file.

        Raises
        ------
        TypeError
            If a parameter or a fitted attribute has a type that cannot be saved, or if the model contains an
            estimator of a class that this library cannot save (see `manylabel.save`).
        ValueError
            If a parameter or a fitted attribute is not valid, for example because it was changed after `fit`.
        sklearn.exceptions.NotFittedError
            If the model is not fitted.
        OSError
            If the file cannot be written. In this case, an older file at `path` is not changed.
        """
        persistence.save_model(self, path)


class MultiLabelClassifier(ClassifierMixin, Estimator):  # type: ignore[misc]
    """Base class of the multi-label classifiers. It provides scores, rankings and 0/1 predictions.

    A subclass must implement two methods. `_fit` sets ``classes_``, ``sparse_output_`` and the fitted
    attributes of the subclass. `_make_scorer` returns a scorer, which is an object that computes scores. A
    subclass may override `_log_odds`, which converts scores to log-odds. To offer `predict_proba`, a subclass
    overrides `_knows_probabilities` so that it returns True. If the scorer of the subclass does not compute
    probabilities, the subclass also overrides `_probabilities`.

    The first prediction makes the scorer. The scorer uses the fitted arrays without copying them. Calling
    `fit` or `set_params`, or assigning an attribute of the estimator, discards the scorer.

    A 1-D y of 0 and 1 is treated as a single label, and `_fit` gets y as a matrix with one column.
    Predictions then have the same shape as predictions of scikit-learn's binary classifiers. Meta-estimators
    that fit one model per label, such as `OneVsRestClassifier`, expect this shape.

    Attributes
    ----------
    classes_ : ndarray of shape (n_labels,), or (2,) if y was 1-D, dtype int64
        Column indices of the labels in Y: ``arange(n_labels)``. If y was 1-D in fit, the array contains the
        classes 0 and 1.
    one_dimensional_ : bool
        Whether y was 1-D in fit. If so, predictions are 1-D too.
    sparse_output_ : bool
        Whether Y was sparse in fit. If so, the result of `predict` is sparse too.
    label_names_ : ndarray of shape (n_labels,), dtype object
        Names of the labels. This attribute exists only if Y was a data frame in fit and all column names were
        strings.
    """

    # Descriptions of the fitted attributes that all subclasses have.
    fitted: ClassVar[dict[str, Attribute]] = {
        # Model files of version 0.1 do not have this attribute.
        "one_dimensional_": Scalar(bool, size="one_dimensional", optional=True),
        "classes_": Classes("i8"),
        "sparse_output_": Scalar(bool),
        "label_names_": Array(("n_labels",), "O", optional=True),
    }

    # Parameters whose value "auto" means that `fit` chooses a value. The fitted attribute with the same name
    # and an underscore has the chosen value.
    chosen: ClassVar[tuple[str, ...]] = ()

    classes_: NDArray[np.int64]
    one_dimensional_: bool
    sparse_output_: bool
    label_names_: NDArray[Any]
    n_jobs: int | None

    @property
    def _dense(self) -> KeptDense:
        """How `fit` stores a dense X: as an ndarray or as a CSR array.

        The parameter `dense` of `check_training_set` describes the possible values.
        """
        return False

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        _SCORERS.pop(self, None)

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        _SCORERS.pop(self, None)

    @property
    def _is_one_label(self) -> bool:
        """Whether y was a 1-D array of 0 and 1 in fit."""
        return getattr(self, "one_dimensional_", False) and not self._takes_classes

    # The reason why `fit` does not accept weights of labels. An error message ends with this text.
    _couples_labels: ClassVar[str] = "its fit does not support weights of labels"

    @property
    def _takes_classes(self) -> bool:
        """Whether `_fit` accepts a 1-D y with arbitrary classes."""
        return False

    @property
    def _n_labels(self) -> int:
        return 1 if self._is_one_label else len(self.classes_)

    @property
    def _least_score(self) -> float:
        """Threshold of the scores. A label is predicted if its score is higher than this threshold."""
        return 0.0

    def _make_scorer(self) -> _core.Scorer:
        """Check the fitted arrays and return a scorer, an object that computes scores from these arrays."""
        raise NotImplementedError

    def _settled(
        self: T,
        X: csr_array | NDArray[Any],
        Y: csr_array,
        sample_weight: Any,
        threads: int,
        report: Tell,
    ) -> T:
        """Choose values for parameters that are "auto", and return an unfitted clone with these values.

        The values are chosen once, for the whole X and Y. The caller then fits copies of the clone to subsets
        of the rows and labels. All fitted copies have the same regularization, so that scores of different
        copies can be compared.
        """
        return self

    def _as_chosen(self: T) -> T:
        """Return an unfitted clone of a fitted estimator, with the values that the fit chose for "auto".

        The clone can be fitted to some of the rows, as in cross-validation. Such a fit does not choose the
        values again, so it is faster. Both estimators use the same values, so the scores of the clone can be
        compared with the scores of the fitted estimator.
        """
        model: T = clone(self)
        for name in self.chosen:
            if getattr(self, name) == "auto":
                setattr(model, name, getattr(self, f"{name}_"))
        return model

    def _scorer(self) -> _core.Scorer:
        scorer = _SCORERS.get(self)
        if scorer is None:
            # Two threads may make a scorer at the same time, and both scorers are valid. But if a fit in
            # another thread has replaced the attributes in the meantime, the scorer is outdated and is
            # discarded.
            state = self.__dict__
            scorer = _SCORERS[self] = self._make_scorer()
            if self.__dict__ is not state:
                _SCORERS.pop(self, None)
        return scorer

    def _check_fitted(self) -> None:
        # If an estimator has a scorer, it is fitted. This test is much faster than `check_is_fitted`, which
        # takes as long as scoring a row.
        if self not in _SCORERS:
            check_is_fitted(self, "classes_")

    def _features(self, X: Any) -> csr_array | NDArray[Any]:
        """Check the X of a prediction method. A sparse X is converted to CSR, and a dense X stays dense."""
        self._check_fitted()
        return check_matrix(self, X, reset=False)

    @contextmanager
    def _fitting(self: T, y: Any) -> Iterator[tuple[T, Any]]:
        """Yield a copy of the estimator, and y in the form that `_fit` takes.

        The method is used in a ``with`` statement. If the body of this statement raises no error, the
        estimator gets the attributes of the copy.
        """
        names = column_names(y)
        if names is not None:
            y = values_of_frame(y)
        column = None if self._takes_classes else as_column(y)
        # Other threads can predict with the old attributes until the new attributes are complete.
        with _aside(self) as built:
            for name in ("one_dimensional_", "label_names_"):
                built.__dict__.pop(name, None)
            yield built, y if column is None else column
            if names is not None and all(isinstance(name, str) for name in names):
                built.label_names_ = as_names(names, len(built.classes_), "the column names of Y")
            if not self._takes_classes:
                built.one_dimensional_ = column is not None
            if column is not None:
                built.classes_ = np.arange(2)

    def fit(
        self: T,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        label_weight: Any = None,
        progress: Progress = None,
    ) -> T:
        """Fit the model.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features, of any numeric dtype. For most estimators, values must be finite, and at most 3.4e38 in
            absolute value (the maximum of float32). Estimators that scale rows to unit length also accept
            larger finite values, and `BoostedRulesClassifier` also accepts NaN, which marks a missing value.
            A sparse matrix may have int32 or int64 indices.
        y : array-like or sparse matrix of shape (n_samples, n_labels), or array-like of shape (n_samples,)
            0/1 indicator matrix, or a 1-D array of 0 and 1 for a single label. All numeric dtypes are
            accepted. If y is a data frame from pandas, polars or Arrow, its column names become the names of
            the labels. NaN in an indicator matrix marks an unknown entry: nobody checked whether the row has
            the label. Most estimators leave unknown entries out of the loss. If an estimator treats unknown
            entries differently or does not support them, its Notes section says so.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, >= 0. The loss of a row is multiplied by its weight. Rows with weight 0 are
            ignored. None means equal weights.
        label_weight : array-like of shape (n_labels,), default=None
            Weights of the labels, > 0. The loss of a label is multiplied by its weight. None means equal
            weights. Only `DiSMECClassifier`, `LabelTreeClassifier` and `LEMLClassifier` accept label weights.
            If `label_weight` is given, all other estimators raise a ValueError that states the reason.
        progress : callable, default=None
            Function that is called about 20 times per second. Its argument is the amount of work done so far.
            The unit, for example labels or rules, depends on the estimator. If the function raises an
            exception, the fit stops.

        Returns
        -------
        self
            The estimator itself. It does not change if the fit fails or is interrupted.

        Raises
        ------
        ValueError
            If an argument or parameter is not valid. The message states the expected value and the given
            value.
        MemoryError
            If there is not enough memory.
        KeyboardInterrupt
            If Ctrl-C is pressed. The fit then stops within a second, unless the Notes section of the
            estimator says that stopping can take longer.
        """
        self._refuse_label_weight(label_weight)
        with self._fitting(y) as (built, Y):
            built._fit(X, Y, sample_weight, progress)
        return self

    def _refuse_label_weight(self, label_weight: Any) -> None:
        """Raise a ValueError if `label_weight` is given. The message states why it is not supported."""
        if label_weight is not None:
            raise ValueError(
                f"`label_weight` must be None for {type(self).__name__}, because {self._couples_labels}"
            )

    def _fit(self, X: Any, y: Any, sample_weight: Any, progress: Progress) -> None:
        """Check the parameters and the data, fit the model, and set the fitted attributes.

        `y` is an indicator matrix.
        """
        raise NotImplementedError

    def prepare(self: T) -> T:
        """Prepare the fitted model, so that the first prediction is as fast as later predictions.

        If this method is not called, the first prediction prepares the model. A service can call this method
        before it forks its worker processes. The workers then share the prepared model. The prepared model is
        kept until an attribute of the estimator is assigned.

        Returns
        -------
        self
            The estimator itself.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            If the model is not fitted.
        ValueError
            If the fitted arrays are inconsistent, for example because one array was replaced by an array of
            another shape.

        Notes
        -----
        The preparation does not copy the fitted arrays. Do not change these arrays in place after the
        preparation, because predictions may ignore such changes. To change a fitted attribute, assign a new
        array.
        """
        self._check_fitted()
        self._scorer()
        return self

    def decision_function(self, X: Any) -> NDArray[np.float32]:
        """Compute the scores of all labels for every row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features.

        Returns
        -------
        ndarray of shape (n_samples, n_labels), or (n_samples,) if y was 1-D, dtype float32
            The scores, which the Notes section of the estimator describes. A label that occurs in no training
            row has the score -inf. The result is always dense and takes 4 bytes per score.

        Raises
        ------
        ValueError
            If X is not valid, or if X and the training data have different numbers of features.
        MemoryError
            If the scores do not fit in memory. `predict_topk` needs far less memory.
        """
        X = self._features(X)
        return self._in_form_of_y(self._scorer().decision(X, n_threads(self.n_jobs)))

    def decision_at(self, X: Any, candidates: Any) -> csr_array:
        """Compute the scores of given labels only.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features.
        candidates : array-like or sparse matrix of shape (n_samples, n_labels)
            0/1 indicator matrix. In each row, the entries that are 1 mark the labels to score (the
            candidates). For example, candidates can be labels that another model predicts, or labels whose
            names occur in the text of the row.

        Returns
        -------
        csr_array of shape (n_samples, n_labels), dtype float32
            The scores of the candidates. Each score is equal to the corresponding entry in the result of
            `decision_function`. Each candidate has a stored entry, even if its score is 0 or -inf. The
            entries of a row are sorted by label.

        Raises
        ------
        ValueError
            If X or `candidates` is not valid, or if their shapes do not agree with each other or with the
            model.

        Notes
        -----
        The time depends on the estimator class. Linear classifiers and label trees first compute the scores
        of a row for all labels, and then keep the scores of its candidates. The memory use does not grow with
        n_samples × n_labels.

        Examples
        --------
        >>> import manylabel as ml
        >>> X, Y = ml.datasets.make_multilabel(200, 50, 6, random_state=0)
        >>> model = ml.DiSMECClassifier(random_state=0).fit(X, Y)
        >>> found = model.decision_at(X[[0, 1]], [[0, 1, 0, 0, 0, 1], [0, 0, 1, 0, 0, 0]])
        >>> found.indices.tolist()
        [1, 5, 2]
        """
        X = self._features(X)
        pairs = check_labels(candidates, "candidates")
        scorer = self._scorer()
        wanted = (X.shape[0], scorer.n_labels)
        if pairs.shape != wanted:
            raise ValueError(f"shape of `candidates`: expected {wanted}, got {pairs.shape}")
        scores = scorer.at(X, pairs, n_threads(self.n_jobs))
        return core_rows((pairs.indptr, pairs.indices, scores), wanted)

    def explain(
        self, x: Any, label: int | str, *, feature_names: Sequence[str] | None = None
    ) -> LabelExplanation:
        """Explain the score of a label for one row by the contributions of the features and other parts.

        Parameters
        ----------
        x : array-like or sparse matrix of shape (n_features,) or (1, n_features)
            The features of one row.
        label : int or str
            The label: its column index in Y, or its name if the model has label names.
        feature_names : sequence of str of length n_features, default=None
            Names of the features in the result. None means ``feature_names_in_`` if this attribute exists,
            and otherwise "feature 0", "feature 1" and so on.

        Returns
        -------
        LabelExplanation
            A list of parts, such as features and the intercept, in order of decreasing absolute contribution.
            Each item has the attributes `part` (its kind, such as "feature"), `name` and `contribution`. For
            most estimators, the contributions sum to the score that `decision_function` returns. For some
            estimators, they sum to another quantity (see Notes). The attribute `quantity` of the list names
            the sum, for example "score". Print the list, or use its methods `to_dict` and `to_frame`.

        Raises
        ------
        ValueError
            If x is not a valid row, or if the model does not have the label.

        Notes
        -----
        The parts depend on the class of the estimator. They sum to the score, unless an item below states
        another sum:

        - Linear classifiers: the features and the intercept.
        - `CorrLogClassifier`: the features, the other predicted labels and the intercept. These parts sum to
          ``s - threshold_``, where s is the log-odds of the label, given the other predicted labels.
        - `BoostedRulesClassifier`: the rules that cover the row.
        - `LabelTreeClassifier`: the features and the intercept. A leaf of a tree has a linear classifier for
          each of its labels. The parts come from the linear classifier of the explained label, and sum to the
          margin of this label in its leaf. With several trees, the first leaf in ``leaf_labels_`` that has
          the label is used. With ``combine="leaf"`` and one tree, ``-threshold_`` is one more part, and all
          parts sum to the score. The attribute `path` of the result has the nodes on the path to the leaf.
        - Classifiers that divide the labels into blocks: the parts that one block model gives for the label.
          A block model is the classifier for the labels of one block. If several blocks contain the label,
          the block that is most probable for the row is used. The parts and their sum depend on the class of
          the block model; see the item of this list for that class.
        - `LabelCalibrator`: the parts for the classifier in `estimator_`.
        - All other classifiers: the features, and the score of a row of zeros. The features are set to 0 one
          after the other, in two separate passes: once in the order of their column indices, and once in the
          reverse order. In a pass, features that were set to 0 stay 0. The contribution of a feature is the
          decrease of the score when this feature is set to 0, averaged over both passes. A negative
          contribution means that the score increased.

        Examples
        --------
        >>> import manylabel as ml
        >>> X, Y = ml.datasets.make_multilabel(200, 50, 6, random_state=0)
        >>> model = ml.DiSMECClassifier(random_state=0).fit(X, Y)
        >>> explanation = model.explain(X[[0]], 3)
        >>> abs(sum(part.contribution for part in explanation) - explanation.score) < 1e-5
        True
        """
        self._check_fitted()
        row = check_row(self, x)
        number = check_label(self, label, self._n_labels)
        names = check_names("feature", feature_names, self.n_features_in_, self)
        scorer = self._scorer()
        pair = csr_array((np.ones(1, dtype=np.float32), ([0], [number])), shape=(1, scorer.n_labels))
        score = float(scorer.at(row, pair, 1)[0])
        if np.isfinite(score):
            explained = self._explained(row, number, names)
        else:
            explained = Explained([Part("intercept", "the model does not score this label", score)])
        total = float(sum(part.contribution for part in explained.rows))
        return LabelExplanation(
            explained.rows,
            label=label_name(self, number),
            quantity=explained.quantity,
            total=total,
            score=score,
            path=explained.path,
        )

    def _explained(self, x: csr_array, label: int, names: Sequence[str]) -> Explained:
        """Compute the parts that `explain` returns for one label and one row. The score must be finite."""

        def score(rows: csr_array) -> NDArray[Any]:
            n_rows = rows.shape[0]
            pairs = csr_array(
                (np.ones(n_rows, dtype=np.float32), np.full(n_rows, label), np.arange(n_rows + 1)),
                shape=(n_rows, self._n_labels),
            )
            return self._scorer().at(rows, pairs, n_threads(self.n_jobs))

        return by_removal(score, x, names)

    def predict_topk(self, X: Any, k: int = 5) -> csr_array:
        """Predict the k labels with the highest scores for every row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features.
        k : int, default=5
            Number of labels per row, >= 1. Labels with the score -inf, such as labels that occur in no
            training row, are left out. A row may therefore get fewer than k labels.

        Returns
        -------
        csr_array of shape (n_samples, n_labels), dtype float32
            The scores of the k best labels of each row. The entries of a row are sorted by label and not by
            score. If ``row`` is one row of the result, ``np.argsort(-row.data, kind="stable")`` gives the
            order of its entries by score. If scores are equal, the label with the lower column index ranks
            first.

        Raises
        ------
        ValueError
            If k < 1, if X is not valid, or if X and the training data have different numbers of features.

        Notes
        -----
        Scores are computed for a few rows at a time. Only the k best scores of each row are kept.
        """
        X = self._features(X)
        k = check_count("k", k, 1)
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
            0/1 indicator matrix. It is sparse if y was sparse in fit. In this case, no dense matrix is made.

        Raises
        ------
        ValueError
            If X is not valid, or if X and the training data have different numbers of features.
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
        """Estimate the probabilities of all labels for every row.

        Only classifiers that estimate probabilities have this method: `BoostedRulesClassifier`,
        `CorrLogClassifier`, `SmoothLinkClassifier`, `LabelCalibrator`, `DecisionClassifier`, and
        `LEMLClassifier` with ``loss="logistic"``.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features.

        Returns
        -------
        ndarray of shape (n_samples, n_labels), or (n_samples, 2) if y was 1-D
            The probabilities, which the Notes section of the estimator describes. A label that occurs in no
            training row has the probability 0. If y was 1-D in fit, the two columns are the probabilities of
            class 0 and class 1. The result is always dense.

        Raises
        ------
        ValueError
            If X is not valid, or if X and the training data have different numbers of features.
        MemoryError
            If the probabilities do not fit in memory.
        """
        found = self._probabilities(self._features(X))
        return np.hstack([1 - found, found]) if self._is_one_label else found

    def _log_odds(self, scores: NDArray[Any]) -> NDArray[Any]:
        """Convert scores to log-odds of the labels, so that scores of different models can be compared."""
        return scores

    def _indicator(self, positive: csr_array) -> csr_array | NDArray[np.int64]:
        """Convert the predicted labels of the rows to the result of `predict`.

        `positive` has one stored entry for each predicted label of a row. The result is a 0/1 indicator
        matrix, which is sparse if Y was sparse in fit, and dense otherwise. If y was 1-D in fit, the result
        is a 1-D array instead.
        """
        positive.data = np.ones(len(positive.indices), dtype=np.int64)
        return positive if self.sparse_output_ else self._in_form_of_y(positive.toarray())

    def _in_form_of_y(self, of_labels: NDArray[Any]) -> NDArray[Any]:
        """Return predictions as a 1-D array if y was a 1-D array for a single label in fit.

        The array `of_labels` has one column per label. If y was a 1-D array of 0 and 1, the only column of
        `of_labels` is returned as a 1-D array. Otherwise, `of_labels` itself is returned.
        """
        return of_labels[:, 0] if self._is_one_label else of_labels

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = True
        tags.classifier_tags.multi_class = False
        tags.target_tags.multi_output = True
        return tags

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the fraction of rows for which `predict` returns exactly the true label set.

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
    """Reorder (indptr, indices, data) to (data, indices, indptr), the order in scipy's constructors."""
    indptr, indices, data = arrays
    return data, indices, indptr


@lru_cache(maxsize=16)
def _empty(shape: tuple[int, int]) -> Any:
    return csr_array(shape, dtype=np.float32)


def core_rows(arrays: tuple[Any, Any, Any], shape: tuple[int, int]) -> csr_array:
    """Make a CSR array from the arrays (indptr, indices, data) that the Rust core returns.

    The Rust core returns valid indices of the right type. scipy's constructor would check the indices again.
    This check takes longer than scoring a row. To avoid the check, this function makes an object with the
    attributes of an empty matrix, and then replaces the three arrays of this object. A `copy` of the empty
    matrix would take three times as long.
    """
    matrix: csr_array = csr_array.__new__(csr_array)
    matrix.__dict__.update(_empty(shape).__dict__)
    matrix.indptr, matrix.indices, matrix.data = arrays
    return matrix
