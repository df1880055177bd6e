"""LEML; public as `manylabel.linear.LEMLClassifier`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse
from scipy.special import expit

from manylabel import _core
from manylabel.estimator import parameters as kinds
from manylabel.estimator.parameters import fixed_threshold, n_threads
from manylabel.estimator.progress import Progress, reported
from manylabel.estimator.registry import register
from manylabel.estimator.scaling import ScaledFeatures
from manylabel.estimator.schema import Array, Scalar, Schema
from manylabel.estimator.validation import as_column, check_labels, check_training_set
from manylabel.linear.base import LinearClassifier

__all__ = ["LEMLClassifier"]


@register(command="leml")
class LEMLClassifier(LinearClassifier):
    """Linear classifiers of all labels through a matrix of low rank, from full or partly known labels.

    Minimizes ``sum l(y_ij, x_i.W h_j) + alpha/2 (|W|^2 + |H|^2)`` over the known entries of Y, W having
    `rank` columns and H a row h_j for each label; W and H take turns, and the objective never rises [1]_.

    Parameters
    ----------
    rank : int, default=100
        Columns of W and H; >= 1. No more are used than there are rows and labels with a positive row:
        ``W H'`` then has any rank it can have, and `alpha` alone holds it back.
    alpha : float or "auto", default="auto"
        Weight of the squares of W and H, which is the weight of the sum of the singular values of ``W H'``;
        from 1e-30 to 1e12. "auto" takes the one at which rows held out are predicted best (see Notes); the
        fit takes two to nine times as long.
    loss : {"squared", "logistic", "squared-hinge"}, default="squared"
        What an entry costs: ``(y - z)^2 / 2``, ``log(1 + exp(-s z))`` or ``max(0, 1 - s z)^2 / 2`` with
        ``s = 2 y - 1``. With all entries known, "squared" is by far the fastest (see Notes).
    threshold : {"auto", "zero"} or float, default="auto"
        Prediction above which `predict` names a label. "auto" learns it in fit: among rows held out, as many
        labels are named as there are (see Notes). "zero" is the threshold of the loss, 1/2 with "squared" and
        else 0.
    max_iter : int, default=10
        Turns of W and H at most; >= 1.
    tol : float, default=1e-3
        The fit is done when a turn lowers the objective by less than this share; finite and > 0.
    cg_max_iter : int, default=20
        Steps of conjugate gradients in a turn of W (for each of Newton's steps in a turn of either factor
        with other losses or entries unknown) at most; >= 1.
    cg_tol : float, default=0.1
        Share of the residual at which conjugate gradients stop; finite and > 0.
    fit_intercept : bool, default=True
        Whether to fit an intercept: the score of a feature that is 1 in every row. Its row of W is
        regularized as the others.
    random_state : int, RandomState instance or None, default=None
        The first H, of independent normal numbers. An int gives the same bits every time.

    Attributes
    ----------
    features_ : ndarray of shape (n_seen_features,), dtype int32
        Features that some training row has, in increasing order; others have no part in scores.
    feature_factors_ : ndarray of shape (n_seen_features, n_factors), dtype float32
        W without its intercept; n_factors is `rank` or less.
    label_factors_ : ndarray of shape (n_factors, n_labels), dtype float32
        The transpose of H; zeros for labels never seen.
    intercept_ : ndarray of shape (n_labels,), dtype float32
        What is added to ``X[:, features_] @ feature_factors_ @ label_factors_``, `threshold_` taken off; -inf
        for a label that no training row is known to carry, so that it is never predicted.
    objective_ : ndarray of shape (n_iter_,), dtype float64
        The objective after each turn; empty if no label was seen.
    n_iter_ : int
        Turns taken.
    alpha_ : float
        `alpha`, or what "auto" chose; ``alpha=alpha_`` gives the same model.

    See Also
    --------
    DiSMECClassifier : Every label on its own, without a common subspace.

    Notes
    -----
    Scores are predictions less `threshold_`; those of predicted labels are positive. With
    ``loss="logistic"`` there is `predict_proba`, ``1 / (1 + exp(-score - threshold_))``.

    ``alpha="auto"``: a quarter of the rows, at most 2,000, is held out; up to four parts in turn where rows
    are few (one only where Newton's method is at work). The others are fitted with values that differ by
    factors of 3, from 3 on for rows of unit length and in the direction where the loss of the rows held out
    falls: four turns for the first, two for every next one from the factors of the one before. A parabola
    through the lowest loss and its neighbours tells where it is lowest; taken is the smaller value at which
    it is half a per cent higher, which ranks better. Then all rows are fitted with it. The value found is
    ``alpha_``; it grows with the length and the weight of rows.

    ``threshold="auto"``: after the last turn a tenth of the rows, at most 2,000 and up to three parts where
    rows are few, is forgotten by half a turn of W without them, and scored by it. H, whose part in the
    scores of a row is small, is kept. The threshold is where as many of these scores lie above as there are
    labels. Factors stay as they were. It takes 5 to 15 per cent of a fit with ``alpha="auto"``,
    and up to a third where `alpha` is given and turns are few.

    With r factors, a turn of squared loss over all entries takes up to ``2 r cg_max_iter`` steps for each
    stored feature and r^2 for each row, feature and label; scores of entries that are 0 are never computed.
    If `observed` is given, every product of conjugate gradients takes r steps for each known entry.
    "logistic" and "squared-hinge" over all entries compute all n_samples x n_labels scores for each product,
    O(n_samples n_labels r), in blocks that are never kept: hours where labels go into the tens of thousands.

    Memory: 14 bytes a stored feature, 4 r for each row (12 r with Newton's method), 22 r for each feature
    and label; with the learned threshold 35 r, with ``alpha="auto"`` and few rows up to 110 r. Both factors
    are dense by nature.

    References
    ----------
    .. [1] H. Yu, P. Jain, P. Kar and I. Dhillon, "Large-scale Multi-label Learning with Missing Labels",
       ICML 2014, with factors 1/2 for the squared losses.

    Examples
    --------
    >>> import manylabel as ml
    >>> X, Y = ml.datasets.make_multilabel(200, 50, 10, random_state=0)
    >>> model = ml.LEMLClassifier(5, random_state=0).fit(X, Y)
    >>> model.predict_topk(X, k=3).shape
    (200, 10)
    """

    parameters = kinds.Parameters(
        rank=kinds.Count(1),
        alpha=kinds.Either("auto", kinds.Number(least=1e-30, most=1e12)),
        loss=kinds.Choice("squared", "logistic", "squared-hinge"),
        threshold=kinds.Threshold(),
        max_iter=kinds.Count(1),
        tol=kinds.Number(above=0),
        cg_max_iter=kinds.Count(1),
        cg_tol=kinds.Number(above=0),
        fit_intercept=kinds.Flag(),
        normalize=kinds.Normalization(),
        **kinds.SEEDED_RUN,
    )

    schema = Schema(
        **LinearClassifier.fitted,
        features_=Array(("n_seen_features",), "i4", below="n_features"),
        feature_factors_=Array(("n_seen_features", "n_factors"), "f4"),
        label_factors_=Array(("n_factors", "n_labels"), "f4"),
        objective_=Array(("n_turns",), "f8"),
        alpha_=Scalar(float, optional=True),  # not in version 0.1
        n_iter_=Scalar(int),
    )

    features_: NDArray[np.int32]
    feature_factors_: NDArray[np.float32]
    label_factors_: NDArray[np.float32]
    objective_: NDArray[np.float64]
    alpha_: float
    n_iter_: int

    def __init__(
        self,
        rank: int = 100,
        *,
        alpha: float | str = "auto",
        loss: str = "squared",
        threshold: float | str = "auto",
        max_iter: int = 10,
        tol: float = 1e-3,
        cg_max_iter: int = 20,
        cg_tol: float = 0.1,
        fit_intercept: bool = True,
        normalize: bool | str = "auto",
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self._assign(locals())

    def _make_scorer(self) -> _core.Scorer:
        return _core.low_rank_scorer(self)

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, observed: Any = None, progress: Progress = None
    ) -> LEMLClassifier:
        """Fit both factors.

        Parameters
        ----------
        observed : array-like or sparse matrix of the shape of `y`, default=None
            1 where an entry of Y is known, 0 where it is not and Y does not matter. None means all are.
        """
        known = as_column(observed)
        with self._fitting(y) as (built, Y):
            built._fit(X, Y, sample_weight, progress, observed if known is None else known)
        return self

    def _fit(self, X: Any, y: Any, sample_weight: Any, progress: Progress, observed: Any = None) -> None:
        params = self.parameters.check(self)
        threshold = fixed_threshold(params["threshold"], self._textbook_threshold)
        sparse_output = issparse(y)
        X_given = X
        X, y, kept_weight = check_training_set(self, X, y, sample_weight)
        if observed is not None:
            observed = _check_observed(observed, (np.shape(X_given)[0], y.shape[1]))
            if sample_weight is not None:
                observed = observed[np.asarray(sample_weight) > 0]
        scaled = ScaledFeatures(X, kept_weight, self.normalize, center=params["fit_intercept"])
        params |= {"learn_cut": threshold is None, "normalize": scaled.by_row}
        with reported(params["max_iter"], "turn", params["verbose"], progress) as report:
            fitted = _core.fit_leml((scaled.X, y, kept_weight), observed, params, (params["n_jobs"], report))
        self.features_, factors, self.label_factors_ = fitted[:3]
        intercept, self.objective_, self.alpha_, cut = fitted[3:]
        self.feature_factors_, shift = scaled.unscaled_rows(self.features_, factors)
        self._shift(intercept - shift @ self.label_factors_, threshold, cut)
        self.normalize_ = scaled.by_row
        self.n_iter_ = len(self.objective_)
        self.classes_ = np.arange(y.shape[1])
        self.sparse_output_ = sparse_output

    @property
    def _textbook_threshold(self) -> float:
        return 0.5 if self.loss == "squared" else 0.0

    def _log_odds(self, scores: NDArray[Any]) -> NDArray[Any]:
        if self.loss == "logistic":
            return scores
        # Targets of the squared loss are 0 and 1, and those of a margin -1 and 1.
        margins = 2 * (scores - self._least_score) if self.loss == "squared" else scores
        return super()._log_odds(margins)

    def _knows_probabilities(self) -> bool:
        return bool(self.loss == "logistic")

    def _probabilities(self, X: csr_array | NDArray[Any]) -> NDArray[Any]:
        lowered_by = np.float32(getattr(self, "threshold_", 0))  # model files of version 0.1 have none
        scores = self._scorer().decision(X, n_threads(self.n_jobs))
        return np.asarray(expit(scores + lowered_by))


def _check_observed(observed: Any, shape: tuple[int | None, int]) -> csr_array:
    """Turn the mask of known entries into a canonical CSR array of ones."""
    try:
        known = check_labels(observed)
    except ValueError as error:
        raise ValueError(str(error).replace("Y", "observed", 1)) from None
    if known.shape != shape:
        raise ValueError(f"`observed` must be of the shape of Y, {shape}, got {known.shape}")
    return known
