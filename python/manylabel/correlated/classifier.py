"""The correlated logistic model as an estimator, its path of penalties and what to search."""

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

# The penalty of the paper, and what penalties come to against the sum of losses where rows are few; where
# the choice of a penalty begins.
_LEAST_PENALTY = 1e-3
_PRIOR = 2.0

# Stands for what data choose, where parameters are checked for going together.
_UNCHOSEN = {"l2_features": _LEAST_PENALTY, "l2_pairs": _LEAST_PENALTY, "standardize": True}

# The threshold of the model with couplings is matched on rows that carry so many labels, but on no fewer rows
# than the first and no more than the second number: labels of a row come together.
_MATCHED_LABELS, _MATCHED_ROWS = 300, (128, 512)


@register(command="corrlog", demo=("CorrLog", lambda corrlog: corrlog()))
class CorrLogClassifier(MultiLabelClassifier):
    """Correlated logistic regressions: one weight a feature and label, one coupling a pair of labels.

    The log-odds of label i, given the features x and the other labels z, are
    ``x @ b_i + intercept_i + sum_k c_ik z_k`` [1]_ [2]_. Weights and couplings are fitted together, by
    pseudo-likelihood with elastic nets on both; the labels of a row are predicted as a whole set.

    Parameters
    ----------
    l2_features : float or "auto", default="auto"
        Penalty of weights, ``l2_features * (b**2 + epsilon * abs(b))`` each, against the mean loss of a row;
        finite and > 0. Intercepts are free. "auto" chooses it by the loss of rows that are held out (see
        Notes); with the solver "reference" it is 0.001.
    l2_pairs : float or "auto", default="auto"
        Penalty of couplings, ``l2_pairs * (c**2 + epsilon * abs(c))`` a pair; > 0. Infinite for independent
        regressions. "auto" is that of weights of features of unit variance: `l2_features` where they are
        standardized, else divided by the mean variance of the features.
    threshold : {"auto", "zero"} or float, default="auto"
        What is taken from every intercept where label sets are decided. "auto" learns it, so that rows get as
        many labels as they have (see Notes). "zero" decides for the most probable set, as the paper does; it
        is right for subset 0/1 loss, and small or empty where no label is likely.
    epsilon : float, default=1.0
        Share of absolute values in both penalties, which set weights and couplings to zero; finite and >= 0.
    coding : {"01", "pm1"}, default="01"
        Whether penalties apply to weights and couplings of labels 0 and 1, or of labels -1 and 1 as in the
        paper: b/2 and c/4. The model is the same, and what is fitted is told in terms of 0 and 1.
    decoder : {"auto", "exact", "search", "bp"}, default="auto"
        How the most probable label set is found. "exact" visits all states of at most 20 coupled labels.
        "search" starts from the best label sets of the training rows and flips labels and pairs while that
        helps. "bp" is the paper's max-product belief propagation, at most 50 rounds; it often fails where
        many labels are coupled. "auto" is "exact" for up to 14 coupled labels, else "search".
    solver : {"auto", "fista", "reference"}, default="auto"
        "fista" goes to the optimum by accelerated proximal gradients, with restarts and a step for each
        label. "auto" takes quasi-Newton steps from the second moments of features and labels, mostly a third
        or less of the gradients, where these are at most 2,048 together and half as many as rows, and
        `epsilon` is not 0; it ends at the same optimum, and goes on as "fista" elsewhere or if that fails.
        "reference" repeats the run of the method's authors: fixed steps from zero, at most 500, ended early
        when the objective changes by less than a thousandth, which regularizes; their penalty of couplings
        is ``2 c**2 + epsilon * abs(c)`` times `l2_pairs`.
    standardize : bool or "auto", default="auto"
        Whether penalties are those of features of unit variance. "auto" is True where more than an eighth of
        the values of X are nonzero. False suits texts: rare words cannot have large weights.
    tol : float, default=1e-4
        Largest violation of the optimality conditions that is accepted, the largest entry of a gradient in
        terms of features of unit variance; finite and > 0. Penalties less than this make no difference. Not
        for "reference".
    max_iter : int, default=1000
        Gradients at most; >= 1.

    Attributes
    ----------
    coef_ : csc_array of shape (n_labels, n_features_in_), dtype float64
        Weights b, compressed by feature.
    intercept_ : ndarray of shape (n_labels,), dtype float64
        Intercepts; -inf for labels never seen in fit. A label that all rows carry has a large one alone.
    correlations_ : csr_array of shape (n_labels, n_labels), dtype float64
        Couplings c, symmetric: what the presence of one label adds to the log-odds of the other.
    label_sets_ : csr_array of shape (n_sets, n_labels), dtype float32
        The distinct sets of coupled labels among the training rows, most frequent first, at most 65,536.
    label_set_energies_ : ndarray of shape (n_sets,), dtype float64
        Sum of couplings within each.
    objective_ : float
        Mean loss of a row plus penalties; labels that no row or every row holds left out.
    kkt_ : float
        Violation of the optimality conditions that is left, of all weights and all pairs.
    n_iter_ : int
        Gradients taken.
    l2_features_, l2_pairs_ : float
        The penalties, as given or chosen.
    threshold_ : float
        What label sets are decided with, as given or learned. `intercept_` is not changed by it, nor are
        probabilities and rankings.

    See Also
    --------
    corrlog_path : Fits for falling penalties, each from the one before.
    corrlog_space : Ranges of the parameters for a random search.

    Notes
    -----
    Scores of `decision_function` are log-odds of each label given the features and the labels predicted for
    the others, less `threshold_`; with "bp" the max-marginals of its messages. Labels with positive scores
    are predicted.

    `predict_proba` gives probabilities of a label whatever the others are: sums over all label sets for up
    to 14 coupled labels, else sum-product belief propagation, damped by half; mean field for rows where 100
    rounds do not settle it, and where more than 2,500 pairs are coupled. `predict_topk` ranks by their
    log-odds. By `decision_function`, which takes the labels decided for the others for granted, rankings
    are worse where these are uncertain: P@1 is 73 instead of 76 on yeast, 43 instead of 55 on delicious.
    Probabilities and rankings take 2 to 15 times as long as `predict` where more than 14 labels are coupled,
    a few milliseconds a row at most.

    A gradient takes O((stored values of X + of Y) n_labels), Y counting for labels with couplings. Pairs
    that stay at zero take no part; none is left out that violates optimality. Memory: 36 bytes a weight, in
    double precision (`tol` below 1e-5) 72, quasi-Newton steps as much again and more for every weight that
    is not zero; two copies of X; of rows times labels no more than a block.

    With deterministic relations among labels couplings grow until one label decides for the other; more
    `l2_pairs` helps.

    The penalty of "auto" is chosen without couplings, on a sample of 4,096 rows and 32 labels, or where that
    is more an eighth of the rows and 1 in 64 labels, at most 16,384 and 512. A quarter of the rows is held
    out, of few rows each quarter in turn. The search starts at ``max(0.001, 2 / n_samples)``, a prior with a
    standard deviation of 1/2 for each weight, times the mean variance of the features if these are not
    standardized. It takes steps of half an order of magnitude, three orders up or down at most, as long as a
    step lowers the log loss of the held-out rows by 2 %. It takes about a tenth of a second on small sets.
    With fewer than ten labels among these rows the start is taken. With `sample_weight`, n_samples is the sum
    of the weights.

    The threshold of "auto" is learned in two steps. The same regressions give a cut of the log-odds that
    names as many labels of the held-out rows as there are. The threshold is then set such that the model with
    couplings names as many labels of 128 to 512 of its training rows as that cut does. It is 0 where no rows
    can be held out, and with the solver "reference". For Hamming loss take ``predict_proba(X) > 0.5``.

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
        l2_features_=Scalar(float, optional=True),  # not in version 0.1, as the next two
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
        """Fit, from a model of the same features and labels if there is one."""
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
        # Compressed rows of (n_features, n_labels) are compressed columns of the transpose.
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
        """Choose penalties of "auto"; return the cut of a model without couplings, and what it names.

        None if there is nothing to learn it from, or nothing to be learned.
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
        """Find the threshold that names as many labels of training rows as a cut without couplings does."""
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
        """What label sets are decided with."""
        return float(getattr(self, "threshold_", 0.0))  # model files of version 0.1 have none

    def _make_scorer(self) -> _core.Scorer:
        decoder = self.parameters["decoder"].check("decoder", self.decoder)  # it may be set after fit
        return _core.correlated_scorer(self, {"decoder": decoder})

    def _knows_probabilities(self) -> bool:
        return True

    def in_coding(self, coding: str) -> tuple[csc_array, NDArray[np.float64], csr_array]:
        """Give the model in terms of labels 0 and 1, or of labels -1 and 1.

        Parameters
        ----------
        coding : {"01", "pm1"}
            With "pm1" the probability of a label set y is proportional to
            ``exp(sum_i y_i (w_i x + v_i) + sum_i<k a_ik y_i y_k)``: ``w = b / 2``, ``a = c / 4``, and the
            intercepts v take what couplings leave. With "01" these are the fitted attributes themselves.

        Returns
        -------
        coef : csc_array of shape (n_labels, n_features_in_)
            Weights.
        intercept : ndarray of shape (n_labels,)
            Intercepts.
        correlations : csr_array of shape (n_labels, n_labels)
            Couplings.

        Raises
        ------
        ValueError
            If there is no such coding.
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
        """Say what speaks for and against the labels of one row.

        Parameters
        ----------
        x : array-like or sparse matrix of shape (n_features_in_,) or (1, n_features_in_)
            The features of one row.
        feature_names : sequence of str of length n_features_in_, default=None
            Names for the text; None for ``feature_names_in_``, or "feature 0" and so on.
        label_names : sequence of str of length n_labels, default=None
            Names for the text; None for "label 0" and so on.

        Returns
        -------
        Explanation
            What the intercept less `threshold_`, each feature and each predicted other label add to the
            log-odds of every label. Its text tells of the labels that are predicted.

        Raises
        ------
        ValueError
            If x is not one row of the features of fit, or the number of names is not that of features or
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
            None for "label 0" and so on.
        max_labels : int, default=30
            Labels in the heat map, those with the strongest couplings; >= 1.
        max_pairs : int, default=40
            Pairs in the graph; >= 1.
        axes : sequence of two matplotlib.axes.Axes, default=None
            Where to draw heat map and graph; None for a new figure.

        Returns
        -------
        ndarray of two matplotlib.axes.Axes
            Those drawn on. Red is for labels that exclude each other, blue for labels that go together.

        Raises
        ------
        ModuleNotFoundError
            If matplotlib is not installed.
        ValueError
            If the number of names is not that of labels.
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
    """Return the mean variance of the columns that vary; 1 if none does."""
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
    """Fit a model for each of several penalties, each from the one before.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_samples, n_features)
        Features.
    Y : array-like or sparse matrix of shape (n_samples, n_labels), or array-like of shape (n_samples,)
        0/1 indicator matrix, or one label, as in `CorrLogClassifier.fit`.
    lambdas : sequence of float
        Values for both `l2_features` and `l2_pairs`; finite and > 0. Falling ones are fastest.
    estimator : CorrLogClassifier, default=None
        All other parameters. None for the defaults. If its two penalties differ, their ratio is kept:
        `l2_pairs` is ``lambda * l2_pairs / l2_features``, an "auto" `l2_features` being 0.001. "auto" for
        `l2_pairs` stays.
    sample_weight : array-like of shape (n_samples,), default=None
        Multiplies the loss of each row; >= 0.

    Returns
    -------
    list of CorrLogClassifier
        Fitted, in the order of `lambdas`; the same as separate fits, within tolerance.

    Raises
    ------
    ValueError
        As `CorrLogClassifier.fit`; if a penalty is not > 0, or the solver has no start.
    TypeError
        If `lambdas` is no sequence, or `estimator` something else.

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
    """Return the ranges worth searching.

    Returns
    -------
    dict of str to list or distribution
        For `sklearn.model_selection.RandomizedSearchCV`: penalties, drawn apart from each other, from the
        least of the authors' grid (1e-4) to its largest (1), for weights to a tenth of that, above which
        none are left; and how much of them is of absolute values.

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
