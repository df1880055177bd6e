"""Cross-validation and parameter searches that accept a sparse Y and never make it dense."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from time import perf_counter
from typing import Any, Literal

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse, vstack
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold, RandomizedSearchCV
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing, indexable

from manylabel.estimator.names import column_names, named_indicator, values_of_column, values_of_frame
from manylabel.estimator.parameters import check_count, shown
from manylabel.model_selection.scorers import RankingScorer, ranking, scorers_of

__all__ = ["cross_val_predict", "cross_validate", "search"]

_METHODS = ("predict", "predict_topk", "decision_function", "predict_proba")


def cross_validate(
    estimator: Any,
    X: Any,
    Y: Any,
    *,
    scoring: Any = ("P@1", "P@3", "P@5"),
    cv: Any = 5,
    params: Mapping[str, Any] | None = None,
    return_estimator: bool = False,
    n_jobs: int | None = None,
) -> dict[str, Any]:
    """Fit an estimator to the training rows of each fold, and measure it on the test rows.

    Parameters
    ----------
    estimator : estimator
        The classifier, a pipeline or a `TextTagger`. It is cloned for each fold.
    X : array-like, sparse matrix or list of texts, of n_samples rows
        Features.
    Y : array-like or sparse matrix of shape (n_samples, n_labels), or list of lists of str
        0/1 indicator matrix, or the names of the labels of each text for a `TextTagger`.
    scoring : str, callable, sequence of str or mapping, default=("P@1", "P@3", "P@5")
        The scorers: the name of a scorer (see `scorer`), a sequence of such names, or a function of an
        estimator, X and Y. A mapping is also allowed. Its keys are the names in the result, and each value is
        a function or the name of a scorer. Propensities of "PSP@k" and "PSnDCG@k" are computed from the
        training rows of each fold.
    cv : int, splitter or iterable, default=5
        The folds. An int is the number of folds, and the test rows of each fold are then consecutive rows. A
        splitter of scikit-learn, a `MultilabelStratifiedKFold`, or an iterable of pairs is also allowed. Each
        pair has an array of training row indices and an array of test row indices.
    params : mapping of str to object, default=None
        Arguments of the method `fit`. Arguments with one entry per row, such as `sample_weight`, are divided
        into folds.
    return_estimator : bool, default=False
        Whether to return the fitted estimators.
    n_jobs : int or None, default=None
        Number of folds that are fitted at the same time, as in joblib. None means 1. It is usually faster to
        keep this value at 1, and to set the parameter `n_jobs` of the estimator to several threads.

    Returns
    -------
    dict of str to ndarray of shape (n_folds,)
        The dict has an array ``test_<name>`` for each scorer, for example ``test_P@1``. If `scoring` is a
        function, the array is ``test_score``. The arrays ``fit_time`` and ``score_time`` contain times in
        seconds. With ``return_estimator=True``, ``estimator`` is the list of the fitted estimators.

    Raises
    ------
    ValueError
        If an argument is not valid.

    Notes
    -----
    The functions that `scorer` returns can also be passed to scikit-learn's `cross_validate`. With a dense Y,
    scikit-learn's function computes the same scores as this function. However, scikit-learn's function does
    not accept a sparse Y. It also does not compute propensities. To use "PSP@k" or "PSnDCG@k" with
    scikit-learn's function, pass the propensities to `scorer`.

    `manylabel.model_selection.cross_validate` accepts a sparse Y and does not make Y dense. In each fold, it
    ranks the labels of each test row only once. All scorers with a number k in their names, such as "P@1" and
    "P@5", share this ranking. It contains as many labels as the largest k.

    Examples
    --------
    >>> import manylabel as ml
    >>> X, Y = ml.datasets.make_multilabel(200, 50, 10, random_state=0)
    >>> model = ml.DiSMECClassifier(random_state=0)
    >>> found = ml.model_selection.cross_validate(model, X, Y, scoring=["P@1", "PSP@3"], cv=3)
    >>> found["test_P@1"].shape
    (3,)
    """
    scorers = scorers_of(scoring)
    Y, params = _without_names(Y, params)
    X, Y = _rows(X, Y)
    jobs = (
        delayed(_fitted_and_scored)(clone(estimator), X, Y, train, test, scorers, params)
        for train, test in _folds(cv, X, Y)
    )
    results = Parallel(n_jobs=n_jobs)(jobs)
    found: dict[str, Any] = {
        "fit_time": np.array([result[1] for result in results]),
        "score_time": np.array([result[2] for result in results]),
    }
    if return_estimator:
        found["estimator"] = [result[0] for result in results]
    for name in scorers:
        found[f"test_{name}"] = np.array([result[3][name] for result in results])
    return found


def cross_val_predict(
    estimator: Any,
    X: Any,
    Y: Any,
    *,
    method: Literal["predict", "predict_topk", "decision_function", "predict_proba"] = "predict",
    k: int = 5,
    cv: Any = 5,
    params: Mapping[str, Any] | None = None,
    n_jobs: int | None = None,
) -> csr_array | NDArray[Any] | list[list[str]]:
    """Predict every row with a model that was not fitted to this row.

    Parameters
    ----------
    estimator : estimator
        The classifier, a pipeline or a `TextTagger`. It is cloned for each fold.
    X : array-like, sparse matrix or list of texts, of n_samples rows
        Features.
    Y : array-like or sparse matrix of shape (n_samples, n_labels), or list of lists of str
        0/1 indicator matrix, or the names of the labels of each text for a `TextTagger`.
    method : {"predict", "predict_topk", "decision_function", "predict_proba"}, default="predict"
        Name of the estimator's method that computes the predictions.
    k : int, default=5
        Number of labels of each row, for `predict_topk`.
    cv : int, splitter or iterable, default=5
        The folds, as in `cross_validate`. Every row must be a test row of exactly one fold.
    params : mapping of str to object, default=None
        Arguments of the method `fit`, as in `cross_validate`.
    n_jobs : int or None, default=None
        Number of folds that are fitted at the same time, as in joblib.

    Returns
    -------
    csr_array or ndarray of shape (n_samples, n_labels), or list of list of str
        The predictions, in the order of the rows. The result is sparse if `method` returns sparse matrices.
        For a `TextTagger`, the columns are in the order of ``params["label_names"]`` if `params` has this
        entry, and otherwise sorted by the names of the labels. The method `predict` of a `TextTagger` returns
        lists of names.

    Raises
    ------
    ValueError
        If an argument is not valid, or if a row is a test row of no fold or of several folds.

    Examples
    --------
    >>> import manylabel as ml
    >>> X, Y = ml.datasets.make_multilabel(200, 50, 10, random_state=0)
    >>> model = ml.DiSMECClassifier(random_state=0)
    >>> top = ml.model_selection.cross_val_predict(model, X, Y, method="predict_topk", k=3)
    >>> top.shape, int(top[[0]].nnz)
    ((200, 10), 3)
    """
    if method not in _METHODS:
        raise ValueError(f"`method` must be one of {', '.join(_METHODS)}, got {shown(method)}")
    k = check_count("k", k, 1)
    Y, params = _without_names(Y, params)
    X, Y = _rows(X, Y)
    folds = list(_folds(cv, X, Y))
    order = np.concatenate([test for _, test in folds])
    n_rows = Y.shape[0]
    if not np.array_equal(np.sort(order), np.arange(n_rows)):
        raise ValueError(
            f"each of the rows 0 to {n_rows - 1} must be a test row of exactly one fold of `cv`, "
            f"got {len(order)} test rows in total, and "
            f"{np.isin(np.arange(n_rows), order, invert=True).sum()} of the {n_rows} rows are in no test fold"
        )
    arguments = {"k": k} if method == "predict_topk" else {}
    jobs = (
        delayed(_predicted)(clone(estimator), X, Y, train, test, method, arguments, params)
        for train, test in folds
    )
    parts: list[Any] = Parallel(n_jobs=n_jobs)(jobs)
    back = np.argsort(order, kind="stable")
    if isinstance(parts[0], list):  # the names of labels that a tagger predicts
        rows = [row for part in parts for row in part]
        return [rows[at] for at in back.tolist()]
    if issparse(parts[0]):
        return csr_array(csr_array(vstack(parts, format="csr"))[back])
    return np.asarray(np.concatenate(parts)[back])


def search(
    estimator: Any,
    X: Any,
    Y: Any,
    parameters: Any,
    *,
    scoring: Any = "P@1",
    n_iter: int | None = None,
    cv: Any = 5,
    random_state: Any = None,
    refit: bool = True,
    params: Mapping[str, Any] | None = None,
    n_jobs: int | None = None,
) -> GridSearchCV | RandomizedSearchCV:
    """Search for the parameters with the best score in cross-validation.

    Parameters
    ----------
    estimator : estimator
        The classifier, a pipeline or a `TextTagger`.
    X : array-like, sparse matrix or list of texts, of n_samples rows
        Features.
    Y : array-like or sparse matrix of shape (n_samples, n_labels), or list of lists of str
        0/1 indicator matrix, or the names of the labels of each text for a `TextTagger`.
    parameters : mapping or list of mappings
        Mapping from the name of each parameter to a list of values to try. A list of such mappings is also
        allowed, as in `GridSearchCV`. If `n_iter` is given, a distribution of scipy may replace a list of
        values. For example, `manylabel.link.smooth_link_space` returns a mapping with lists and distributions
        for `SmoothLinkClassifier`.
    scoring : str or callable, default="P@1"
        The name of a scorer (see `scorer`), or a function of an estimator, X and Y. "PSP@k" and "PSnDCG@k"
        give rare labels more weight. The weights depend on the propensities of the labels, which are computed
        from all rows of Y; see `manylabel.metrics.propensities`.
    n_iter : int or None, default=None
        Number of parameter combinations that are drawn at random and tried. None tries all combinations.
    cv : int, splitter or iterable, default=5
        The folds, as in `cross_validate`.
    random_state : int, RandomState instance or None, default=None
        Seed of the drawn combinations.
    refit : bool, default=True
        Whether to fit the estimator with the best parameters to all rows.
    params : mapping of str to object, default=None
        Arguments of the method `fit`, as in `cross_validate`.
    n_jobs : int or None, default=None
        Number of fits that run at the same time, as in joblib.

    Returns
    -------
    GridSearchCV or RandomizedSearchCV
        The fitted search of scikit-learn, with `best_params_`, `best_score_`, `cv_results_` and, if `refit`
        is True, `best_estimator_`.

    Raises
    ------
    ValueError
        If an argument is not valid.

    Examples
    --------
    >>> import manylabel as ml
    >>> X, Y = ml.datasets.make_multilabel(200, 50, 10, random_state=0)
    >>> model = ml.DiSMECClassifier(random_state=0)
    >>> found = ml.model_selection.search(model, X, Y, {"C": [0.1, 1.0]}, scoring="nDCG@3", cv=3)
    >>> found.best_params_["C"] in (0.1, 1.0)
    True
    """
    scorers = scorers_of(scoring)
    if len(scorers) != 1:
        raise ValueError(f"`scoring` must be one name or one function, got {shown(scoring)}")
    Y, params = _without_names(Y, params)
    X, Y = _rows(X, Y)
    measure = _for_training_rows(next(iter(scorers.values())), Y)
    folds = list(_folds(cv, X, Y))
    common = {"scoring": measure, "cv": folds, "refit": refit, "n_jobs": n_jobs, "error_score": "raise"}
    if n_iter is None:
        found = GridSearchCV(estimator, parameters, **common)
    else:
        n_iter = check_count("n_iter", n_iter, 1)
        found = RandomizedSearchCV(estimator, parameters, n_iter=n_iter, random_state=random_state, **common)
    return found.fit(X, Y, **params)


def _rows(X: Any, Y: Any) -> tuple[Any, Any]:
    """Convert X and Y to types that allow the selection of rows by index."""
    if hasattr(Y, "tocsr"):
        Y = csr_array(Y)
    X, Y = indexable(X, Y)
    return X, Y if hasattr(Y, "tocsr") or hasattr(Y, "iloc") else np.asarray(Y)


def _folds(cv: Any, X: Any, Y: Any) -> Any:
    if isinstance(cv, int | np.integer) and not isinstance(cv, bool):
        cv = KFold(check_count("cv", cv, 2))
    if hasattr(cv, "split") and not isinstance(cv, str):
        return cv.split(X, Y)
    if not hasattr(cv, "__iter__") or isinstance(cv, str):
        raise ValueError(
            f"`cv` must be an integer >= 2, a splitter or pairs of arrays of row indices, got {shown(cv)}"
        )
    return cv


def _for_training_rows(measure: Any, Y: Any) -> Any:
    return measure.with_propensities(Y) if isinstance(measure, RankingScorer) else measure


def _without_names(Y: Any, params: Mapping[str, Any] | None) -> tuple[Any, Mapping[str, Any]]:
    """Return Y and the other arguments of `fit`. Label names in Y are converted to an indicator matrix.

    If Y was converted, the returned arguments include `label_names`, the names of the columns of Y.
    """
    given = dict(params or {})
    known = given.get("label_names")
    if known is not None:
        given["label_names"] = _Whole(known)
    if column_names(Y) is not None:  # the rows of a pandas data frame can be selected
        return Y if hasattr(Y, "iloc") else values_of_frame(Y), given
    if issparse(Y) or (isinstance(Y, np.ndarray) and Y.dtype.kind not in "OUT"):
        return Y, given
    rows = values_of_column(Y, "Y")
    rows = list(rows) if hasattr(rows, "__iter__") and not isinstance(rows, str) else []
    if not rows or not all(_is_names(row) for row in rows):
        return Y, given
    names, Y = named_indicator(rows, known)
    given["label_names"] = _Whole(names)
    return Y, given


def _is_names(row: Any) -> bool:
    """Return whether a row is a collection of names."""
    if isinstance(row, str) or not hasattr(row, "__len__") or not hasattr(row, "__iter__"):
        return False
    return all(isinstance(name, str) for name in row)


class _Whole:
    """An argument of `fit` that is not divided into folds, even if it has one entry for each row."""

    def __init__(self, values: Iterable[str]) -> None:
        self._values = values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)


def _fit(estimator: Any, X: Any, Y: Any, train: Any, params: Mapping[str, Any]) -> Any:
    n_rows = Y.shape[0]
    of_rows = {
        name: _safe_indexing(value, train)
        if hasattr(value, "__len__") and not isinstance(value, str) and len(value) == n_rows
        else value
        for name, value in params.items()
    }
    return estimator.fit(_safe_indexing(X, train), _safe_indexing(Y, train), **of_rows)


def _fitted_and_scored(
    estimator: Any,
    X: Any,
    Y: Any,
    train: Any,
    test: Any,
    scorers: Mapping[str, Any],
    params: Mapping[str, Any],
) -> tuple[Any, float, float, dict[str, float]]:
    start = perf_counter()
    _fit(estimator, X, Y, train, params)
    fitted = perf_counter()
    X_test, Y_test = _safe_indexing(X, test), _safe_indexing(Y, test)
    measures = {
        name: _for_training_rows(measure, _safe_indexing(Y, train)) for name, measure in scorers.items()
    }
    ranks = [measure.k for measure in measures.values() if isinstance(measure, RankingScorer)]
    top = ranking(estimator, X_test, max(ranks)) if ranks else None
    scores = {
        name: measure.of_ranking(Y_test, top)
        if isinstance(measure, RankingScorer)
        else float(measure(estimator, X_test, Y_test))
        for name, measure in measures.items()
    }
    return estimator, fitted - start, perf_counter() - fitted, scores


def _predicted(
    estimator: Any,
    X: Any,
    Y: Any,
    train: Any,
    test: Any,
    method: str,
    arguments: Mapping[str, Any],
    params: Mapping[str, Any],
) -> Any:
    _fit(estimator, X, Y, train, params)
    X_test = _safe_indexing(X, test)
    if method == "predict_topk" and isinstance(estimator, Pipeline):
        return ranking(estimator, X_test, **arguments)
    return getattr(estimator, method)(X_test, **arguments)
