"""The correlated logistic model as an estimator, its path of penalties and its search space."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.sparse import csc_array, csr_array, issparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from manylabel import _core
from manylabel.correlated.choice import HeldOut, matching_threshold, weighted_count
from manylabel.correlated.inspection import Explanation, draw_correlations
from manylabel.estimator import parameters as kinds
from manylabel.estimator.base import MultiLabelClassifier, core_parts
from manylabel.estimator.held_out import held_out_folds, spread_rows
from manylabel.estimator.parameters import check_count, fixed_threshold, shown
from manylabel.estimator.progress import Progress, Tell, reported
from manylabel.estimator.registry import register
from manylabel.estimator.scaling import holds_measurements, inverse_deviations
from manylabel.estimator.schema import Array, Scalar, Schema, SparseMatrix
from manylabel.estimator.validation import (
    check_names,
    check_row,
    check_training_set,
)

__all__ = ["CorrLogClassifier", "corrlog_path", "corrlog_space"]

# The choice of a penalty starts at the paper's value or, if rows are few, at this value divided by their
# number.
_LEAST_PENALTY = 1e-3
_PRIOR = 2.0

# Placeholders for "auto" while the core checks that the parameters go together.
_UNCHOSEN = {"l2_features": _LEAST_PENALTY, "l2_pairs": _LEAST_PENALTY, "standardize": True}

# The threshold of the model with couplings is matched on rows that have so many labels in all, but on at
# least and at most so many rows: the labels of one row are predicted together, so few rows are noisy.
_MATCHED_LABELS, _MATCHED_ROWS = 300, (128, 512)


@register(command="corrlog", demo=("CorrLog", lambda corrlog: corrlog()))
class CorrLogClassifier(MultiLabelClassifier):
    """Correlated logistic regressions: one weight per feature and label, one coupling per pair of labels.

    Given the features x and the other labels z, the log-odds of label i are
    ``x @ b_i + intercept_i + sum_k c_ik z_k`` [1]_ [2]_. Weights and couplings are fitted together by
    maximizing the pseudo-likelihood with elastic net penalties on both. The labels of a row are predicted
    jointly, as a set.

    Parameters
    ----------
    l2_features : float or "auto", default="auto"
        Penalty of the weights: ``l2_features * (b**2 + epsilon * abs(b))`` each, added to the mean loss per
        row; finite and > 0. Intercepts are not penalized. "auto" chooses it by the loss on held-out rows (see
        Notes); with the solver "reference" it is 0.001.
    l2_pairs : float or "auto", default="auto"
        Penalty of the couplings: ``l2_pairs * (c**2 + epsilon * abs(c))`` per pair; > 0. Infinity gives
        independent logistic regressions. "auto" is `l2_features` if features are standardized, else
        `l2_features` divided by the mean variance of the features.
    threshold : {"auto", "zero"} or float, default="auto"
        Subtracted from every intercept when label sets are predicted. "auto" learns it, so that rows get
        about as many labels as they have (see Notes). "zero" predicts the most probable set, as the paper
        does. That minimizes the subset 0/1 loss, but the sets are small or empty if no label is likely.
    epsilon : float, default=1.0
        Share of the absolute values in both penalties, which set weights and couplings to zero; finite and
        >= 0.
    coding : {"01", "pm1"}, default="01"
        Whether the penalties apply to the weights and couplings of labels 0 and 1, or to those of labels -1
        and 1 as in the paper, which are b/2 and c/4. The model is the same, and the fitted attributes are for
        labels 0 and 1 in both cases.
    decoder : {"auto", "exact", "search", "bp"}, default="auto"
        How the most probable label set is found. "exact" enumerates all states of at most 20 coupled labels.
        "search" starts from the best label sets of the training rows and flips single labels and pairs as
        long as that helps. "bp" is the paper's max-product belief propagation with at most 50 rounds; it
        often fails if many labels are coupled. "auto" is "exact" for up to 14 coupled labels, else "search".
    solver : {"auto", "fista", "reference"}, default="auto"
        "fista" finds the optimum by accelerated proximal gradients, with restarts and one step size per
        label. "auto" finds the same optimum by quasi-Newton steps, which mostly takes a third or less of the
        gradients. It needs the second moments of features and labels: it is used if these are at most 2,048
        together and at most half as many as rows, and `epsilon` is not 0. Otherwise, or if it fails, "auto"
        continues as "fista". "reference" repeats the optimization of the method's authors: fixed steps from
        zero, at most 500, stopped early when the objective changes by less than a thousandth, which
        regularizes. There the penalty of a coupling is ``l2_pairs * (2 c**2 + epsilon * abs(c))``, and
        `coding` must be "01".
    standardize : bool or "auto", default="auto"
        Whether the penalties apply to features scaled to unit variance. "auto" is True if more than an eighth
        of the values of X are nonzero. False suits text, since rare words then cannot get large weights.
    tol : float, default=1e-4
        Largest KKT violation that is accepted: the largest entry of the (sub)gradient, for features of unit
        variance; finite and > 0. Penalties below this have no effect. Ignored with "reference".
    max_iter : int, default=1000
        Maximum number of gradients; >= 1.

    Attributes
    ----------
    coef_ : csc_array of shape (n_labels, n_features_in_), dtype float64
        Weights b, compressed by feature.
    intercept_ : ndarray of shape (n_labels,), dtype float64
        Intercepts; -inf for labels never seen in fit. A label that all rows have has a large intercept and
        nothing else.
    correlations_ : csr_array of shape (n_labels, n_labels), dtype float64
        Couplings c, symmetric: what the presence of one label adds to the log-odds of the other.
    label_sets_ : csr_array of shape (n_sets, n_labels), dtype float32
        The distinct sets of coupled labels among the training rows, most frequent first, at most 65,536.
    label_set_energies_ : ndarray of shape (n_sets,), dtype float64
        Sum of the couplings within each set.
    objective_ : float
        Mean loss per row plus penalties, without labels that no row or every row has.
    kkt_ : float
        Remaining KKT violation, over all weights and all pairs.
    n_iter_ : int
        Number of gradients.
    l2_features_, l2_pairs_ : float
        The penalties, as given or chosen.
    threshold_ : float
        The threshold of label sets, as given or learned. `intercept_`, probabilities and rankings do not
        depend on it.

    See Also
    --------
    corrlog_path : Fits for falling penalties, each from the one before.
    corrlog_space : Ranges of the parameters for a random search.

    Notes
    -----
    Scores of `decision_function` are the log-odds of each label given the features and the predicted other
    labels, minus `threshold_`; with "bp" they are max-marginals of the messages. Labels with positive scores
    are predicted.

    `predict_proba` returns marginal probabilities, whatever the other labels are. For up to 14 coupled labels
    they are sums over all label sets. For more they come from sum-product belief propagation with damping
    1/2; rows that do not converge in 100 rounds, and models with more than 2,500 coupled pairs, use mean
    field. `predict_topk` ranks by the log-odds of these probabilities. Rankings by `decision_function`, which
    takes the other predicted labels for granted, are worse if these are uncertain: P@1 is 73 instead of 76 on
    yeast, and 43 instead of 55 on delicious. With more than 14 coupled labels, probabilities and rankings
    take 2 to 15 times as long as `predict`, at most a few milliseconds per row.

    A gradient takes O((nnz(X) + nnz(Y)) n_labels) time, where Y counts for labels with couplings only. Pairs
    that stay at zero are skipped, but no pair is left out that violates optimality. Memory: 36 bytes per
    weight, 72 in double precision (`tol` below 1e-5); as much again and more for each nonzero weight with
    quasi-Newton steps; two copies of X; no array of n_samples x n_labels beyond one block of rows.

    If labels determine one another, their couplings grow until one label decides the other. A larger
    `l2_pairs` prevents this.

    ``l2_features="auto"`` is chosen without couplings, on a sample of 4,096 rows and 32 labels, or an eighth
    of the rows and 1 in 64 labels if that is more, but at most 16,384 rows and 512 labels. A quarter of these
    rows is held out; on small sets each quarter in turn. The search starts at ``max(0.001, 2 / n_samples)``,
    where the second is a prior with standard deviation 1/2 per weight, times the mean variance of the
    features if these are not standardized. It moves by factors of ``sqrt(10)``, at most three orders of
    magnitude up or down, as long as a step lowers the held-out log loss by 2 %. It takes about 0.1 seconds on
    small sets. If the held-out rows have fewer than ten labels in all, the start is used. With
    `sample_weight`, n_samples is the sum of the weights.

    ``threshold="auto"`` is learned in two steps. First, the same regressions give a cut of the log-odds that
    predicts as many labels of the held-out rows as they have. Then the threshold is set so that the model
    with couplings predicts as many labels on 128 to 512 of its training rows as that cut does. It is 0 if no
    rows can be held out, and with the solver "reference". For Hamming loss use ``predict_proba(X) > 0.5``.

    References
    ----------
    .. [1] W. Bian, B. Xie and D. Tao, "CorrLog: Correlated Logistic Models for Joint Prediction of Multiple
       Labels", AISTATS 2012.
    .. [2] Q. Li, B. Xie, J. You, W. Bian and D. Tao, "Correlated Logistic Model With Elastic Net
       Regularization for Multilabel Image Classification", IEEE Transactions on Image Processing 25, 2016.

    Examples
    --------
    >>> import manylabel as ml
    >>> X, Y = ml.datasets.make_multilabel(200, 50, 10, random_state=0)
    >>> model = ml.CorrLogClassifier().fit(X, Y)
    >>> model.correlations_.shape
    (10, 10)
    """

    parameters = kinds.Parameters(
        l2_features=kinds.Either("auto", kinds.Number(above=0)),
        l2_pairs=kinds.Either("auto", kinds.Number(above=0, infinite=True)),
        threshold=kinds.Threshold(),
        epsilon=kinds.Number(least=0),
        coding=kinds.Choice("01", "pm1"),
        decoder=kinds.Choice("auto", "exact", "search", "bp"),
        solver=kinds.Choice("auto", "fista", "reference"),
        standardize=kinds.Either("auto", kinds.Flag()),
        tol=kinds.Number(above=0),
        max_iter=kinds.Count(1),
        **kinds.RUN,
    )

    schema = Schema(
        **MultiLabelClassifier.fitted,
        coef_=SparseMatrix("csc", ("n_labels", "n_features"), "f8"),
        intercept_=Array(("n_labels",), "f8", or_minus_infinity=True),
        correlations_=SparseMatrix("csr", ("n_labels", "n_labels"), "f8"),
        label_sets_=SparseMatrix("csr", ("n_label_sets", "n_labels"), "f4"),
        label_set_energies_=Array(("n_label_sets",), "f8"),
        objective_=Scalar(float),
        kkt_=Scalar(float),
        n_iter_=Scalar(int),
        l2_features_=Scalar(float, optional=True),  # this and the next two: not in version 0.1
        l2_pairs_=Scalar(float, optional=True),
        threshold_=Scalar(float, finite=True, optional=True),
    )

    coef_: csc_array
    intercept_: NDArray[np.float64]
    correlations_: csr_array
    label_sets_: csr_array
    label_set_energies_: NDArray[np.float64]

    def __init__(
        self,
        l2_features: float | Literal["auto"] = "auto",
        l2_pairs: float | Literal["auto"] = "auto",
        *,
        threshold: float | Literal["auto", "zero"] = "auto",
        epsilon: float = 1.0,
        coding: str = "01",
        decoder: str = "auto",
        solver: str = "auto",
        standardize: bool | Literal["auto"] = "auto",
        tol: float = 1e-4,
        max_iter: int = 1000,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self._assign(locals())

    def _fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        progress: Progress,
        start: CorrLogClassifier | None = None,
        *,
        quiet: bool = False,
    ) -> None:
        """Fit, starting from a model of the same features and labels if one is given."""
        params = self.parameters.check(self)
        _core.check_correlated(params | _UNCHOSEN)
        threshold = fixed_threshold(params["threshold"])
        sparse_output = issparse(y)
        X, y, sample_weight = check_training_set(self, X, y, sample_weight)
        n_labels = y.shape[1]
        if params["standardize"] == "auto":
            params["standardize"] = holds_measurements(X)
        with reported(n_labels, "label", params["verbose"], progress) as report:
            cut = self._chosen(params, threshold, X, y, sample_weight, report)
            weights, intercept, couplings, sets, energies, end = _core.fit_correlated(
                (X, y, sample_weight), start, params, (params["n_jobs"], report)
            )
        # The CSR arrays of (n_features, n_labels) are the CSC arrays of the transpose.
        self.coef_ = csc_array(core_parts(weights), shape=(n_labels, X.shape[1]))
        self.intercept_ = intercept
        self.correlations_ = csr_array(core_parts(couplings), shape=(n_labels, n_labels))
        indptr, indices = sets
        ones = np.ones(len(indices), dtype=np.float32)
        self.label_sets_ = csr_array((ones, indices, indptr), shape=(len(energies), n_labels))
        self.label_set_energies_ = energies
        self.objective_, self.kkt_, self.n_iter_, converged = end
        self.l2_features_, self.l2_pairs_ = params["l2_features"], params["l2_pairs"]
        self.threshold_ = 0.0 if threshold is None else threshold
        if cut is not None:
            self.threshold_ = self._matching_threshold(X, y, sample_weight, cut, params["n_jobs"])
        self.classes_ = np.arange(n_labels)
        self.sparse_output_ = sparse_output
        if not (converged or quiet):
            aim = "stop" if self.solver == "reference" else "converge"
            warnings.warn(
                f"the fit did not {aim} in {self.n_iter_} gradients, violation {self.kkt_:.3g}; "
                f"max_iter={self.max_iter}, tol={self.tol}",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _settled(
        self, X: csr_array, Y: csr_array, sample_weight: Any, threads: int, report: Tell
    ) -> CorrLogClassifier:
        params = {name: getattr(self, name) for name in ("l2_features", "l2_pairs")}
        params["standardize"] = holds_measurements(X) if self.standardize == "auto" else self.standardize
        chooser = clone(self).set_params(n_jobs=threads)
        chooser._chosen(params, 0.0, X, Y, sample_weight, report)
        model: CorrLogClassifier = clone(self)
        model.set_params(**params)
        return model

    def _chosen(
        self,
        params: dict[str, Any],
        threshold: float | None,
        X: csr_array,
        Y: csr_array,
        sample_weight: NDArray[np.float32] | None,
        report: Tell,
    ) -> tuple[float, float] | None:
        """Choose the penalties that are "auto"; return the cut without couplings and the share it predicts.

        None if there are no rows to learn it from, or the threshold is not to be learned.
        """
        by_hand = self.solver == "reference"
        learns = threshold is None and not by_hand
        total = X.shape[0] if sample_weight is None else float(sample_weight.sum(dtype=np.float64))
        first = _LEAST_PENALTY if by_hand else max(_LEAST_PENALTY, _PRIOR / total)
        variance = 1.0 if by_hand or params["standardize"] else _mean_variance(X, sample_weight)
        chooses = params["l2_features"] == "auto" and not by_hand
        folds = held_out_folds(X, Y, sample_weight) if chooses or learns else []
        model = clone(self).set_params(standardize=params["standardize"])
        held_out = HeldOut(model, folds, report) if folds else None
        if params["l2_features"] == "auto":
            first *= variance
            params["l2_features"] = (
                held_out.best_penalty(first) if held_out is not None and chooses else first
            )
        if params["l2_pairs"] == "auto":
            params["l2_pairs"] = params["l2_features"] / variance
        return held_out.cut(params["l2_features"]) if held_out is not None and learns else None

    def _matching_threshold(
        self,
        X: csr_array,
        Y: csr_array,
        sample_weight: NDArray[np.float32] | None,
        cut: tuple[float, float],
        threads: int,
    ) -> float:
        """Find the threshold that predicts as many labels on training rows as the cut without couplings."""
        first, share = cut
        least, most = _MATCHED_ROWS
        wanted = -(-_MATCHED_LABELS * X.shape[0] // max(Y.nnz, 1))
        rows = spread_rows(X.shape[0], min(max(wanted, least), most))
        weight = None if sample_weight is None else sample_weight[rows]
        X = X[rows]

        def count(threshold: float) -> float:
            self.threshold_ = threshold
            indptr, _, _ = self._scorer().above(X, 0.0, threads)
            return weighted_count(np.diff(indptr), weight)

        return matching_threshold(count, share * weighted_count(np.diff(Y[rows].indptr), weight), first)

    @property
    def _threshold(self) -> float:
        """The threshold that label sets are predicted with."""
        return float(getattr(self, "threshold_", 0.0))  # model files of version 0.1 have none

    def _make_scorer(self) -> _core.Scorer:
        decoder = self.parameters["decoder"].check("decoder", self.decoder)  # it may be set after fit
        return _core.correlated_scorer(self, {"decoder": decoder})

    def _knows_probabilities(self) -> bool:
        return True

    def in_coding(self, coding: str) -> tuple[csc_array, NDArray[np.float64], csr_array]:
        """Return the parameters of the model for labels coded as 0 and 1, or as -1 and 1.

        Parameters
        ----------
        coding : {"01", "pm1"}
            "01" returns the fitted attributes. With "pm1" the probability of a label set y is proportional to
            ``exp(sum_i y_i (w_i x + v_i) + sum_i<k a_ik y_i y_k)``, where ``w = b / 2``, ``a = c / 4`` and
            ``v_i = intercept_i / 2 + sum_k c_ik / 4``.

        Returns
        -------
        coef : csc_array of shape (n_labels, n_features_in_), dtype float64
            Weights.
        intercept : ndarray of shape (n_labels,), dtype float64
            Intercepts.
        correlations : csr_array of shape (n_labels, n_labels), dtype float64
            Couplings.

        Raises
        ------
        ValueError
            If `coding` is not "01" or "pm1".
        """
        check_is_fitted(self)
        if coding == "01":
            return self.coef_, self.intercept_, self.correlations_
        if coding != "pm1":
            raise ValueError(f'`coding` must be "01" or "pm1", got {shown(coding)}')
        intercept = self.intercept_ / 2 + self.correlations_.sum(axis=1) / 4
        return csc_array(self.coef_ / 2), intercept, csr_array(self.correlations_ / 4)

    def explain(
        self,
        x: Any,
        *,
        feature_names: Sequence[str] | None = None,
        label_names: Sequence[str] | None = None,
    ) -> Explanation:
        """Show what contributes to the log-odds of the labels of one row.

        Parameters
        ----------
        x : array-like or sparse matrix of shape (n_features_in_,) or (1, n_features_in_)
            The features of one row.
        feature_names : sequence of str of length n_features_in_, default=None
            Names that the text uses. By default ``feature_names_in_``, or else "feature 0", "feature 1", ...
        label_names : sequence of str of length n_labels, default=None
            Names that the text uses. By default "label 0", "label 1", ...

        Returns
        -------
        Explanation
            What the intercept minus `threshold_`, each feature and each other predicted label add to the
            log-odds of every label. Its text covers the predicted labels.

        Raises
        ------
        ValueError
            If x is not one row with the features of fit, or the number of names is not that of features or
            labels.
        """
        check_is_fitted(self)
        x = check_row(self, x)
        sets = core_parts(self._scorer().above(x, 0.0, 1))
        predicted = csr_array(sets, shape=(1, len(self.intercept_))).toarray()[0] > 0
        features = csr_array(self.coef_ * x.toarray())
        labels = csr_array(self.correlations_ * predicted.astype(np.float64))
        for contributions in (features, labels):
            contributions.eliminate_zeros()
        return Explanation(
            predicted=predicted,
            intercept=self.intercept_ - self._threshold,
            features=features,
            labels=labels,
            feature_names=check_names("feature", feature_names, self.n_features_in_, self),
            label_names=check_names("label", label_names, len(self.intercept_), self),
        )

    def plot_correlations(
        self,
        *,
        label_names: Sequence[str] | None = None,
        max_labels: int = 30,
        max_pairs: int = 40,
        axes: Sequence[Any] | None = None,
    ) -> NDArray[Any]:
        """Draw couplings as a heat map, and the strongest ones as a graph.

        Parameters
        ----------
        label_names : sequence of str of length n_labels, default=None
            Names of the labels. By default "label 0", "label 1", ...
        max_labels : int, default=30
            Number of labels in the heat map, those with the strongest couplings; >= 1.
        max_pairs : int, default=40
            Number of pairs in the graph, the strongest ones; >= 1.
        axes : sequence of two matplotlib.axes.Axes, default=None
            Where to draw heat map and graph; None for a new figure.

        Returns
        -------
        ndarray of two matplotlib.axes.Axes
            The axes drawn on. Red means that labels exclude each other, blue that they occur together.

        Raises
        ------
        ModuleNotFoundError
            If matplotlib is not installed.
        ValueError
            If `label_names` does not have one name for each label, or `axes` does not have two entries.
        """
        check_is_fitted(self)
        return draw_correlations(
            self.correlations_,
            check_names("label", label_names, len(self.intercept_), self),
            check_count("max_labels", max_labels, 1),
            check_count("max_pairs", max_pairs, 1),
            axes,
        )


def _mean_variance(X: csr_array, sample_weight: NDArray[np.float32] | None) -> float:
    """Return the mean variance of the columns that are not constant; 1 if there are none."""
    inverse = inverse_deviations(X, sample_weight)
    varying = inverse[inverse > 0]
    return float(np.mean(varying**-2.0)) if len(varying) else 1.0


def corrlog_path(
    X: Any,
    Y: Any,
    lambdas: Sequence[float],
    *,
    estimator: CorrLogClassifier | None = None,
    sample_weight: Any = None,
) -> list[CorrLogClassifier]:
    """Fit one model per penalty, each starting from the one before.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_samples, n_features)
        Features.
    Y : array-like or sparse matrix of shape (n_samples, n_labels), or array-like of shape (n_samples,)
        0/1 indicator matrix, or one label, as in `CorrLogClassifier.fit`.
    lambdas : sequence of float
        Values for both `l2_features` and `l2_pairs`; finite and > 0. A falling sequence is fastest.
    estimator : CorrLogClassifier, default=None
        Source of all other parameters; None for the defaults. If its two penalties differ, their ratio is
        kept: `l2_pairs` is ``lambda * l2_pairs / l2_features``, where an automatic `l2_features` counts as
        0.001. An automatic `l2_pairs` stays automatic.
    sample_weight : array-like of shape (n_samples,), default=None
        Multiplies the loss of each row; >= 0.

    Returns
    -------
    list of CorrLogClassifier
        The fitted models, in the order of `lambdas`; the same as separate fits, within tolerance.

    Raises
    ------
    ValueError
        As in `CorrLogClassifier.fit`; if a penalty is not finite and > 0; if the solver is "reference", which
        cannot start from another model.
    TypeError
        If `lambdas` is not a sequence, or `estimator` is neither None nor a `CorrLogClassifier`.

    Examples
    --------
    >>> from manylabel.correlated import corrlog_path
    >>> from manylabel.datasets import make_multilabel
    >>> X, Y = make_multilabel(200, 50, 10, random_state=0)
    >>> [model.correlations_.nnz > 0 for model in corrlog_path(X, Y, [10.0, 0.001])]
    [False, True]
    """
    estimator = CorrLogClassifier() if estimator is None else estimator
    if not isinstance(estimator, CorrLogClassifier):
        raise TypeError(f"`estimator` must be None or a CorrLogClassifier, got {estimator!r}")
    if estimator.solver == "reference":
        raise ValueError('`solver` must be "auto" or "fista" for a path, got "reference"')
    given = [
        estimator.parameters[name].check(name, getattr(estimator, name))
        for name in ("l2_features", "l2_pairs")
    ]
    penalties = [_LEAST_PENALTY if value == "auto" else value for value in given]
    keeps_ratio = given[1] != "auto"
    if np.ndim(lambdas) != 1:
        raise TypeError(f"`lambdas` must be a sequence of numbers, got {shown(lambdas)}")
    values = [kinds.Number(above=0).check("lambdas", value) for value in lambdas]
    ratio = penalties[1] / penalties[0]
    models: list[CorrLogClassifier] = []
    for value in values:
        pairs = ratio * value if keeps_ratio else "auto"
        model = clone(estimator).set_params(l2_features=value, l2_pairs=pairs)
        start = models[-1] if models else None
        with model._fitting(Y) as (built, of_labels):
            built._fit(X, of_labels, sample_weight, None, start)
        models.append(model)
    return models


def corrlog_space() -> dict[str, Any]:
    """Return parameter ranges for a random search.

    Returns
    -------
    dict of str to list or distribution
        The parameter `param_distributions` of `sklearn.model_selection.RandomizedSearchCV`. Both penalties
        are drawn independently and log-uniformly: `l2_pairs` from 1e-4 to 1, which is the range of the
        authors' grid, and `l2_features` from 1e-4 to 0.1. `epsilon` is 0, 0.3, 1 or 3.

    Examples
    --------
    >>> from sklearn.model_selection import ParameterSampler
    >>> from manylabel.correlated import corrlog_space
    >>> sorted(next(iter(ParameterSampler(corrlog_space(), 1, random_state=0))))
    ['epsilon', 'l2_features', 'l2_pairs']
    """
    return {
        "l2_features": stats.loguniform(1e-4, 1e-1),
        "l2_pairs": stats.loguniform(1e-4, 1.0),
        "epsilon": [0.0, 0.3, 1.0, 3.0],
    }
