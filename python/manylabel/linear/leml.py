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
    """Linear classifiers of all labels with one low-rank weight matrix; labels may be partly unknown.

    Minimizes ``sum l(y_ij, x_i.W h_j) + alpha/2 (|W|^2 + |H|^2)`` over the known entries of Y. W has `rank`
    columns, and H has a row h_j per label. W and H are optimized in turns; no turn raises the objective [1]_.

    Parameters
    ----------
    rank : int, default=100
        Columns of W and H; >= 1. No more are used than there are rows, or labels with a positive row. At that
        number ``W H'`` can have any rank, and only `alpha` regularizes it.
    alpha : float or "auto", default="auto"
        Weight of the squared norms of W and H, which equals the weight of the nuclear norm of ``W H'``; from
        1e-30 to 1e12. "auto" chooses the value that predicts held-out rows best (see Notes); the fit then
        takes two to nine times as long.
    loss : {"squared", "logistic", "squared-hinge"}, default="squared"
        Loss of an entry y with the score z: ``(y - z)^2 / 2``, ``log(1 + exp(-s z))`` or
        ``max(0, 1 - s z)^2 / 2``, where ``s = 2 y - 1``. If all entries are known, "squared" is by far the
        fastest (see Notes).
    threshold : {"auto", "zero"} or float, default="auto"
        Score above which `predict` assigns a label. "auto" learns it, so that held-out rows get as many
        labels as they have (see Notes). "zero" is the threshold of the loss: 1/2 with "squared", else 0.
    max_iter : int, default=10
        Maximum number of turns of W and H; >= 1.
    tol : float, default=1e-3
        The fit has converged when a turn lowers the objective by less than this share; finite and > 0.
    cg_max_iter : int, default=20
        Maximum number of conjugate gradient steps in a turn of W; >= 1. With other losses than "squared", or
        with unknown entries, it applies to each Newton step in a turn of either factor.
    cg_tol : float, default=0.1
        Relative residual at which conjugate gradients stop; finite and > 0.
    fit_intercept : bool, default=True
        Whether to fit an intercept, which is the score of a feature that is 1 in every row. Its row of W is
        regularized like the others.
    random_state : int, RandomState instance or None, default=None
        Seeds the initial H, which has independent standard normal entries, and the held-out rows. An int
        gives the same bits every time.

    Attributes
    ----------
    features_ : ndarray of shape (n_seen_features,), dtype int32
        Features that are nonzero in some training row, in increasing order. Others do not affect scores.
    feature_factors_ : ndarray of shape (n_seen_features, n_factors), dtype float32
        W without the row of the intercept; n_factors is `rank` or less.
    label_factors_ : ndarray of shape (n_factors, n_labels), dtype float32
        The transpose of H; zeros for labels never seen in fit.
    intercept_ : ndarray of shape (n_labels,), dtype float32
        Scores are ``X[:, features_] @ feature_factors_ @ label_factors_ + intercept_``; `threshold_` is
        subtracted already. -inf for a label that no training row is known to have, so that it is never
        predicted.
    objective_ : ndarray of shape (n_iter_,), dtype float64
        The objective after each turn; empty if no label was seen.
    n_iter_ : int
        Number of turns.
    alpha_ : float
        `alpha`, as given or chosen. Fitting with ``alpha=alpha_`` gives the same model.

    See Also
    --------
    DiSMECClassifier : Every label on its own, without a common subspace.

    Notes
    -----
    Scores are predictions minus `threshold_`. Labels with positive scores are predicted. With
    ``loss="logistic"`` there is `predict_proba`, which returns ``1 / (1 + exp(-score - threshold_))``.

    ``alpha="auto"``: a quarter of the rows, at most 2,000, is held out; if rows are few, up to four parts in
    turn (only one where Newton's method is used). The other rows are fitted with values that differ by
    factors of 3. The first is 3 for rows of unit length, and the search follows the direction in which the
    held-out loss falls. The first value takes four turns; each further value continues from the factors of
    the one before with two turns. A parabola through the lowest loss and its neighbors gives the minimum. The
    smaller value at which the loss is 0.5 % above that minimum is used, since it ranks better. All rows are
    then fitted with it. The chosen value is ``alpha_``; it grows with the length and the weight of rows.

    ``threshold="auto"``: after the last turn a tenth of the rows is held out, at most 2,000, and up to three
    parts if rows are few. W is fitted without these rows by half a turn, and scores them; H is kept. The
    threshold is the value above which as many of these scores lie as there are labels. The fitted factors do
    not change. This takes 5 to 15 % of a fit with ``alpha="auto"``, and up to a third of a fit with a given
    `alpha` and few turns.

    With r factors, a turn of the squared loss over all entries takes at most ``2 r cg_max_iter`` operations
    per stored value of X, and r^2 per row, feature and label. Scores of entries that are 0 are never
    computed. With `observed`, each product in conjugate gradients takes r operations per known entry.
    "logistic" and "squared-hinge" over all entries compute all n_samples x n_labels scores for each product,
    in O(n_samples n_labels r) time and in blocks that are not kept. This takes hours with tens of thousands
    of labels.

    Memory in bytes: 14 per stored value of X, 4 r per row (12 r with Newton's method), and 22 r per feature
    and per label; 35 r with the learned threshold, and up to 110 r with ``alpha="auto"`` and few rows. Both
    factors are dense.

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
            1 where an entry of Y is known, and 0 where it is unknown and its value in Y is ignored. None
            means that all entries are known.
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
        # The squared loss has targets 0 and 1, a margin has -1 and 1.
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
