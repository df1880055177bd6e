"""Scorers: functions that measure the predictions of a fitted classifier on test rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sklearn.metrics import get_scorer
from sklearn.pipeline import Pipeline

from manylabel import metrics
from manylabel.estimator.parameters import shown

__all__ = ["RankingScorer", "ranking", "scorer", "scorers_of"]

_MEASURES: dict[str, Callable[..., Any]] = {
    "P": metrics.precision_at_k,
    "R": metrics.recall_at_k,
    "nDCG": metrics.ndcg_at_k,
    "PSP": metrics.psp_at_k,
    "PSnDCG": metrics.psndcg_at_k,
}
_NAME = re.compile(r"(P|R|nDCG|PSP|PSnDCG)@([1-9][0-9]{0,8})")


class RankingScorer:
    """Scorer that measures the ranking of the k best labels of each row; see `scorer`.

    Parameters
    ----------
    measure : {"P", "R", "nDCG", "PSP", "PSnDCG"}
        The measure.
    k : int
        Number of labels per row that the measure uses: the k labels with the highest scores.
    propensities : ndarray of shape (n_labels,) or None
        Propensities of the labels, for "PSP" and "PSnDCG".
    """

    def __init__(self, measure: str, k: int, propensities: Any = None) -> None:
        self.measure, self.k, self.propensities = measure, k, propensities

    def __repr__(self) -> str:
        return f"scorer('{self.measure}@{self.k}')"

    @property
    def needs_propensities(self) -> bool:
        """Whether the measure needs propensities and none were given."""
        return self.measure.startswith("PS") and self.propensities is None

    def with_propensities(self, Y: Any) -> RankingScorer:
        """Return a scorer with propensities computed from Y.

        If the measure needs no propensities, or if they were given, return this scorer itself.
        """
        if not self.needs_propensities:
            return self
        return RankingScorer(self.measure, self.k, metrics.propensities(Y))

    def of_ranking(self, Y: Any, top: Any) -> float:
        """Return the value of the measure for Y and the ranking `top`.

        The ranking is a result of the function `ranking`, called with the k of this scorer or a larger k.
        """
        more: tuple[Any, ...] = ()
        if self.measure.startswith("PS"):
            if self.propensities is None:
                raise ValueError(f"`propensities` must be given for {self.measure}@{self.k}, got None")
            more = (self.propensities,)
        return float(_MEASURES[self.measure](Y, top, *more, k=self.k))

    def __call__(self, estimator: Any, X: Any, Y: Any) -> float:
        """Return the value of the measure for a fitted classifier on X and Y. Higher values are better."""
        return self.of_ranking(Y, ranking(estimator, X, self.k))


def ranking(estimator: Any, X: Any, k: int) -> Any:
    """Return the k best labels of each row. The estimator may be a pipeline that ends with a classifier."""
    if isinstance(estimator, Pipeline):
        for _, step in estimator.steps[:-1]:
            if step is not None and step != "passthrough":
                X = step.transform(X)
        return ranking(estimator.steps[-1][1], X, k)
    if not hasattr(estimator, "predict_topk"):
        raise ValueError(
            "`estimator` must have the method predict_topk for a scorer such as P@1, "
            f"got {type(estimator).__name__}"
        )
    return estimator.predict_topk(X, k=k)


def scorer(name: str, *, propensities: Any = None) -> Callable[[Any, Any, Any], float]:
    """Return a scorer by its name.

    The scorer is a function of an estimator, X and Y. It can be used as `scoring` in scikit-learn's
    `GridSearchCV`, which accepts a sparse Y. scikit-learn's `cross_validate` accepts only a dense Y. For a
    sparse Y, use `manylabel.model_selection.cross_validate`.

    Parameters
    ----------
    name : str
        "P@k", "R@k", "nDCG@k", "PSP@k" or "PSnDCG@k" with a number k, such as "P@1"; see `manylabel.metrics`.
        All other names are those of scikit-learn, such as "f1_micro".
    propensities : ndarray of shape (n_labels,), default=None
        Propensities of the labels, for "PSP@k" and "PSnDCG@k"; see `manylabel.metrics.propensities`. If this
        argument is None, `manylabel.model_selection.cross_validate` computes the propensities from the
        training rows of each fold, and `manylabel.model_selection.search` computes them from all rows. In
        any other use, a scorer for "PSP@k" or "PSnDCG@k" without propensities raises a ValueError.

    Returns
    -------
    callable
        Function that takes a fitted estimator, X and Y, and returns a float. Higher values are better.

    Raises
    ------
    ValueError
        If there is no scorer with this name.

    Examples
    --------
    >>> import manylabel as ml
    >>> X, Y = ml.datasets.make_multilabel(200, 50, 10, random_state=0)
    >>> model = ml.DiSMECClassifier(random_state=0).fit(X[:150], Y[:150])
    >>> 0 <= ml.model_selection.scorer("P@1")(model, X[150:], Y[150:]) <= 1
    True
    """
    found = _NAME.fullmatch(name) if isinstance(name, str) else None
    if found is not None:
        return RankingScorer(found[1], int(found[2]), propensities)
    try:
        known: Callable[[Any, Any, Any], float] = get_scorer(name)
    except (ValueError, TypeError, AttributeError):
        raise ValueError(
            "`name` must be P@k, R@k, nDCG@k, PSP@k or PSnDCG@k with a number k, or the name of a scorer of "
            f"scikit-learn, got {shown(name)}"
        ) from None
    return known


def scorers_of(scoring: Any) -> dict[str, Callable[[Any, Any, Any], float]]:
    """Return a dict that maps names to scorers. `scoring` has the same meaning as in `cross_validate`."""
    if isinstance(scoring, str):
        return {scoring: scorer(scoring)}
    if callable(scoring):
        return {"score": scoring}
    if isinstance(scoring, Mapping):
        return {name: each if callable(each) else scorer(each) for name, each in scoring.items()}
    if isinstance(scoring, Sequence) and scoring and all(isinstance(name, str) for name in scoring):
        return {name: scorer(name) for name in scoring}
    raise ValueError(
        "`scoring` must be the name of a scorer, a function, a non-empty list of names, or a dict whose "
        f"values are names or functions, got {shown(scoring)}"
    )
