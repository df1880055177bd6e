"""The classifier `LEMLClassifier`, which fits a low-rank weight matrix."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse
from scipy.special import expit

from manylabel import _core
from manylabel.estimator import parameters as kinds
from manylabel.estimator.costs import check_label_weight
from manylabel.estimator.parameters import fixed_threshold, n_threads
from manylabel.estimator.progress import Progress, reported
from manylabel.estimator.registry import register
from manylabel.estimator.scaling import ScaledTable, core_table, scaled_features, unscaled_rows
from manylabel.estimator.schema import Array, Scalar, Schema
from manylabel.estimator.validation import (
    KeptDense,
    as_column,
    check_labels,
    check_training_set,
    known_ones,
    unknown_entries,
)
from manylabel.linear.base import LinearClassifier

__all__ = ["LEMLClassifier"]


@register(command="leml")
class LEMLClassifier(LinearClassifier):
    """Linear classifier with a low-rank weight matrix. Entries of Y may be unknown.

    `fit` minimizes ``sum l(y_ij, x_i.W h_j) + alpha/2 (|W|^2 + |H|^2)``. The sum is over the known entries
    y_ij of Y, and l is the loss of an entry. W has one row per feature, and H has one row h_j per label. Both
    matrices have at most `rank` columns. ``x_i.W h_j`` is the dot product of row x_i of X and the vector
    ``W h_j``. |W| and |H| are Frobenius norms.

    `fit` updates W and H alternately. A turn is one update of W followed by one update of H. No turn
    increases the objective [1]_.

    Parameters
    ----------
    rank : int, default=100
        Maximum number of columns of W and H; >= 1. The number of columns limits the rank of the weight matrix
        ``W H'``, where H' is the transpose of H. W and H have fewer than `rank` columns if there are fewer
        than `rank` training rows, or if fewer than `rank` labels occur in these rows. The parameter `rank`
        then has no effect, and only `alpha` regularizes the model.
    alpha : float or "auto", default="auto"
        Strength of the regularization; from 1e-30 to 1e12. Larger values regularize more strongly. At the
        minimum of the objective, the penalty ``alpha/2 (|W|^2 + |H|^2)`` equals `alpha` times the nuclear
        norm of ``W H'``, which is the sum of the singular values of this product. "auto" chooses the value by
        the loss on held-out rows (see Notes). With "auto", the fit takes two to nine times as long as with a
        given value.
    loss : {"squared", "logistic", "squared-hinge"}, default="squared"
        Loss function l(y, z), where y is an entry of Y and z is the product ``x_i.W h_j`` for this entry.
        "squared" is ``(y - z)^2 / 2``. With ``s = 2 y - 1``, "logistic" is ``log(1 + exp(-s z))`` and
        "squared-hinge" is ``max(0, 1 - s z)^2 / 2``. If all entries are known, fits with "squared" are by far
        the fastest (see Notes).
    threshold : {"auto", "zero"} or float, default="auto"
        Number that is subtracted from ``x.W h_j`` to get the score of label j. `predict` assigns the labels
        with positive scores. "auto" learns the threshold, so that the number of predicted labels on held-out
        rows equals the number of true labels (see Notes). "zero" means 1/2 with ``loss="squared"``, because
        ``x.W h_j`` then approximates the values 0 and 1. With the other losses, "zero" means 0.
    max_iter : int, default=10
        Maximum number of turns; >= 1. Each turn updates W first and then H.
    tol : float, default=1e-3
        Relative tolerance; finite and > 0. The fit has converged when a turn lowers the objective by less
        than `tol` times the objective.
    cg_max_iter : int, default=20
        Maximum number of conjugate gradient steps in an update of W; >= 1. If the fit uses Newton's method
        (see Notes), `cg_max_iter` applies to each Newton step, in the updates of W and in the updates of H.
    cg_tol : float, default=0.1
        Tolerance of the conjugate gradient method; finite and > 0. The method stops when the relative
        residual is at most `cg_tol`.
    fit_intercept : bool, default=True
        Whether to fit intercepts. If True, `fit` adds a feature that is 1 in every row. The row of W for this
        feature is regularized like all other rows of W.
    random_state : int, RandomState instance or None, default=None
        Seed of the random initial H and of the choice of held-out rows. Pass an int for exactly reproducible
        results.

    Attributes
    ----------
    features_ : ndarray of shape (n_seen_features,), dtype int32
        Indices of the features that are nonzero in at least one training row, in increasing order. The other
        features do not affect the scores.
    feature_factors_ : ndarray of shape (n_seen_features, n_factors), dtype float32
        The matrix W without the row of the intercept. The number of columns, n_factors, is at most `rank`.
    label_factors_ : ndarray of shape (n_factors, n_labels), dtype float32
        The transpose of H. If a label occurs in no training row, its column is zero.
    intercept_ : ndarray of shape (n_labels,), dtype float32
        Intercepts minus the given or learned threshold, `threshold_`. Scores are
        ``X[:, features_] @ feature_factors_ @ label_factors_ + intercept_``. If `normalize_` is True, each
        row of X is first scaled to unit length. Labels that occur in no training row have the intercept -inf,
        so that they are never predicted.
    objective_ : ndarray of shape (n_iter_,), dtype float64
        Value of the objective after each turn. The array is empty if no training row has any label.
    n_iter_ : int
        Number of turns.
    alpha_ : float
        The value of `alpha`, as given or chosen. A fit with ``alpha=alpha_`` gives the same model.

    See Also
    --------
    DiSMECClassifier : Fits a separate linear classifier for each label.

    Notes
    -----
    `predict_proba` is available only with ``loss="logistic"``. It returns ``1 / (1 + exp(-x.W h_j))`` for
    label j and row x, so the probabilities do not depend on the threshold.

    The updates of W and H use one of two solvers:

    - Newton's method is used if `label_weight` or `observed` is passed to `fit`. It is also used if `loss` is
      not "squared", or if more than a quarter of the entries of a column of Y are unknown.
    - Ridge regressions are used in all other cases.

    With ``alpha="auto"``, some rows are held out. Short fits to the other rows try values of alpha that
    differ by factors of 3. From the losses on the held-out rows, `fit` estimates the value of alpha with the
    lowest loss. Smaller values of alpha usually give better rankings. `fit` therefore chooses a smaller
    value, whose estimated loss is at most 0.5 % above the lowest estimated loss. The held-out part has up to
    a quarter of the rows, and at most 2,000 rows. With ridge regressions and fewer than 2,000 rows, up to
    four parts are held out in turn, as in cross-validation. The final fit uses all rows.

    Suitable values of alpha are proportional to the length of the scaled rows (see `normalize`), to the
    sample weights and to the label weights. The search for alpha starts at 3 if the rows have unit length and
    all of these weights are 1. For other lengths or weights, the start changes in the same proportion.

    With ``threshold="auto"``, `fit` holds out a part of the training rows after the last turn. The part has
    at most a tenth of the training rows, or at most a quarter if there are fewer than 500 training rows. The
    part never has more than 2,000 rows. If there are fewer than 2,000 training rows, up to three parts are
    held out in turn. The held-out rows are scored with a copy of W that is updated without these rows.
    Learning the threshold takes 5 to 15 % of the time of a fit with ``alpha="auto"``. With a given `alpha`
    and few turns, learning the threshold takes up to a third of the time of the fit.

    Let r be the number of columns of W and H. With ridge regressions, a turn takes at most
    ``2 r cg_max_iter`` operations per stored value of X, plus ``r^2 (n_samples + n_features + n_labels)``
    operations.

    With Newton's method, each conjugate gradient step takes at most O(r) time per stored value of X. In
    addition, each step takes time for the entries of Y:

    - With `observed`, the time is O(r) per known entry.
    - Without `observed` and with ``loss="squared"``, the time is O(r) per entry that is 1 or unknown, plus
      O(r^2 (n_samples + n_labels)).
    - Without `observed` and with another loss, the time is O(n_samples n_labels r). All scores are computed,
      in blocks that are not stored. With tens of thousands of labels, such a fit takes hours.

    The fit reads a dense X of dtype float16, float32 or float64 in place and does not copy it. X may have any
    memory order and may be memory-mapped. The objective is the same as for a sparse X with the same values,
    but products are rounded differently.

    For a dense X, ridge regressions compute the Gram matrix of the columns of X in the two cases below. The
    conjugate gradient steps then use this matrix and do not read X.

    - X has at most about 1,670 columns, and at most twice as many columns as rows.
    - X has at least about 20 times as many rows as columns.

    The fit takes 4 r bytes of memory per row (12 r bytes with Newton's method). It also takes
    ``22 r (n_features + n_labels)`` bytes. If the threshold is learned, the factor 22 increases to 35. With
    ``alpha="auto"`` and few rows, the factor increases to at most 110. For a sparse X, the fit takes 14
    additional bytes per stored value of X. The Gram matrix of a dense X takes ``8 n_features^2`` bytes, and
    the same again for each held-out part. W and H are dense arrays.

    References
    ----------
    .. [1] H. Yu, P. Jain, P. Kar and I. Dhillon, "Large-scale Multi-label Learning with Missing Labels",
       ICML 2014. This class uses a factor 1/2 in the squared losses.

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
        alpha_=Scalar(float, optional=True),  # missing in files of version 0.1
        n_iter_=Scalar(int),
    )

    features_: NDArray[np.int32]
    feature_factors_: NDArray[np.float32]
    label_factors_: NDArray[np.float32]
    objective_: NDArray[np.float64]
    chosen = ("alpha", "threshold")

    alpha_: float
    n_iter_: int

    def __init__(
        self,
        rank: int = 100,
        *,
        alpha: float | Literal["auto"] = "auto",
        loss: Literal["squared", "logistic", "squared-hinge"] = "squared",
        threshold: float | Literal["auto", "zero"] = "auto",
        max_iter: int = 10,
        tol: float = 1e-3,
        cg_max_iter: int = 20,
        cg_tol: float = 0.1,
        fit_intercept: bool = True,
        normalize: bool | Literal["auto", "rows", "columns"] = "auto",
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self._assign(locals())

    @property
    def _dense(self) -> KeptDense:
        return "as given"

    def _weights(self, label: int, features: NDArray[Any]) -> NDArray[np.float64]:
        # Rows of `feature_factors_` by feature. An array with an entry for each feature could be too large.
        row_of = {feature: row for row, feature in enumerate(self.features_.tolist())}
        if not row_of:
            return np.zeros(len(features))
        rows = np.array([row_of.get(feature, -1) for feature in features.tolist()], dtype=np.int64)
        factors = self.label_factors_[:, label].astype(np.float64)
        weights = self.feature_factors_[rows].astype(np.float64) @ factors
        return np.asarray(np.where(rows >= 0, weights, 0.0))

    def _make_scorer(self) -> _core.Scorer:
        return _core.low_rank_scorer(self)

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        label_weight: Any = None,
        observed: Any = None,
        progress: Progress = None,
    ) -> LEMLClassifier:
        """Fit the factors W and H.

        Parameters
        ----------
        label_weight : array-like of shape (n_labels,), default=None
            Weights of the labels, > 0. The loss of an entry of Y is multiplied by the weight of its label.
            None means equal weights. With the squared loss, a fit with label weights takes longer, because it
            uses Newton's method.
        observed : array-like or sparse matrix of the shape of `y`, default=None
            Mask of the known entries of Y, with 1 for a known entry and 0 for an unknown entry. The values of
            unknown entries of Y are ignored. Entries that are NaN in Y are also unknown. None means that all
            entries that are not NaN are known. If most entries are unknown, a sparse matrix for `observed`
            takes less memory than NaN in Y.
        """
        known = as_column(observed)
        with self._fitting(y) as (built, Y):
            observed = observed if known is None else known
            built._fit(X, Y, sample_weight, progress, observed, label_weight)
        return self

    def _fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        progress: Progress,
        observed: Any = None,
        label_weight: Any = None,
    ) -> None:
        params = self.parameters.check(self)
        threshold = fixed_threshold(params["threshold"], self._textbook_threshold)
        sparse_output = issparse(y)
        X_given = X
        X, y, kept_weight = check_training_set(self, X, y, sample_weight, dense=self._dense, unknown=True)
        if label_weight is not None:
            label_weight = check_label_weight(label_weight, y.shape[1]).astype(np.float32)
        if observed is not None:
            observed = _check_observed(observed, (np.shape(X_given)[0], y.shape[1]))
            if sample_weight is not None:
                observed = observed[np.asarray(sample_weight) > 0]
            unknown = unknown_entries(y)
            if unknown is not None:
                observed = csr_array(observed - observed.multiply(unknown))
                observed.eliminate_zeros()
                observed.sort_indices()
                y = known_ones(y)
        scaled = scaled_features(X, kept_weight, self.normalize, center=params["fit_intercept"])
        params |= {"learn_cut": threshold is None, "normalize": scaled.by_row}
        with reported(params["max_iter"], "turn", params["verbose"], progress) as report:
            job = (params["n_jobs"], report)
            # The columns of sparse features are scaled already.
            rows, columns = (
                (core_table(scaled.X), scaled.columns)
                if isinstance(scaled, ScaledTable)
                else (scaled.X, None)
            )
            fitted = _core.fit_leml((rows, y, kept_weight), columns, observed, label_weight, params, job)
        self.features_, factors, self.label_factors_ = fitted[:3]
        intercept, self.objective_, self.alpha_, cut = fitted[3:]
        self.feature_factors_, shift = unscaled_rows(self.features_, factors, scaled.columns)
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
        # The squared loss has the targets 0 and 1. A margin has the targets -1 and 1.
        margins = 2 * (scores - self._least_score) if self.loss == "squared" else scores
        return super()._log_odds(margins)

    def _knows_probabilities(self) -> bool:
        return bool(self.loss == "logistic")

    def _probabilities(self, X: csr_array | NDArray[Any]) -> NDArray[Any]:
        lowered_by = np.float32(getattr(self, "threshold_", 0))  # missing in files of version 0.1
        scores = self._scorer().decision(X, n_threads(self.n_jobs))
        return np.asarray(expit(scores + lowered_by))


def _check_observed(observed: Any, shape: tuple[int | None, int]) -> csr_array:
    """Check the mask `observed`, and convert it to a canonical CSR array whose stored values are all 1."""
    try:
        known = check_labels(observed)
    except ValueError as error:
        raise ValueError(str(error).replace("Y", "observed", 1)) from None
    if known.shape != shape:
        raise ValueError(f"`observed` must have the shape of Y, {shape}, got {known.shape}")
    return known
