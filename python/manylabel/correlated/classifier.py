"""The classifier `CorrLogClassifier`, and the functions `corrlog_path` and `corrlog_space`."""

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
from manylabel.correlated.pieces import CorrLogPieces
from manylabel.estimator import parameters as kinds
from manylabel.estimator.base import MultiLabelClassifier, core_parts, core_rows
from manylabel.estimator.explanation import LabelExplanation
from manylabel.estimator.held_out import held_out_folds, spread_rows
from manylabel.estimator.names import check_label
from manylabel.estimator.parameters import check_count, fixed_threshold, shown
from manylabel.estimator.progress import Progress, Tell, reported
from manylabel.estimator.registry import register
from manylabel.estimator.scaling import holds_measurements, inverse_deviations
from manylabel.estimator.schema import Array, Scalar, Schema, SparseMatrix
from manylabel.estimator.validation import (
    KeptDense,
    check_names,
    check_row,
    check_training_set,
    known_ones,
    unknown_entries,
)

__all__ = ["CorrLogClassifier", "corrlog_path", "corrlog_space"]

# The search for a penalty starts at the larger of two values. The first value is `_LEAST_PENALTY`, from Li et
# al. (2016). The second value is `_PRIOR` divided by the number of rows, or by the sum of `sample_weight`.
# The second value corresponds to a Gaussian prior with standard deviation 1/2 for each weight of a feature.
_LEAST_PENALTY = 1e-3
_PRIOR = 2.0

# Values that replace "auto" while the Rust core checks that the parameters are compatible.
_UNCHOSEN = {"l2_features": _LEAST_PENALTY, "l2_pairs": _LEAST_PENALTY, "standardize": True}

# The threshold of the model with couplings is chosen on a sample of the training rows. The rows of the sample
# have about `_MATCHED_LABELS` labels in total. `_MATCHED_ROWS` contains the minimum and maximum number of
# rows. The minimum is needed because all labels of a row are predicted together, so few rows give a noisy
# result.
_MATCHED_LABELS, _MATCHED_ROWS = 300, (128, 512)


@register(command="corrlog", demo=("CorrLog", lambda corrlog: corrlog()))
class CorrLogClassifier(MultiLabelClassifier):
    """Correlated logistic regressions: one weight per feature and label, one coupling per pair of labels.

    Let x be the features of a row. Let z_k be 1 if the row has label k, and 0 otherwise. If all other labels
    of the row are given, the log-odds of label i are ``x @ b_i + intercept_i + sum_k c_ik z_k`` [1]_ [2]_.
    The sum is over all labels k except i. The b_i are called weights, and the c_ik are called couplings.
    `predict` chooses all labels of a row together, as one label set.

    The log-odds give the conditional probability of z_i, given x and the other labels. `fit` maximizes the
    pseudo-likelihood: the product of the conditional probabilities of all labels in all rows. The loss of a
    row is the negative sum of the logarithms of its conditional probabilities. Elastic net penalties
    regularize the weights and the couplings.

    Parameters
    ----------
    l2_features : float or "auto", default="auto"
        Strength of the penalty on the weights; finite and > 0. Each weight b adds
        ``l2_features * (b**2 + epsilon * abs(b))`` to the mean loss per row. Intercepts are not penalized.
        "auto" chooses the value with the lowest Brier score on held-out rows (see Notes). The final model is
        then fitted to all rows. With the solver "reference", "auto" is 0.001.
    l2_pairs : float or "auto", default="auto"
        Strength of the penalty on the couplings; > 0. Each pair of labels with the coupling c adds
        ``l2_pairs * (c**2 + epsilon * abs(c))`` to the mean loss per row. If `l2_pairs` is infinite, all
        couplings are 0, and the labels have independent logistic regressions. If features are standardized
        (see `standardize`), or if the solver is "reference", "auto" is `l2_features`. Otherwise, "auto" is
        `l2_features` divided by the mean variance of the features that are not constant.
    threshold : {"auto", "zero"} or float, default="auto"
        Threshold of the log-odds. `predict` subtracts the threshold from every intercept before it computes
        label sets. "auto" learns the threshold on held-out rows, so that the number of predicted labels is
        close to the number of true labels (see Notes). With "zero", the threshold is 0, and `predict` looks
        for the most probable label set, as in [2]_. The most probable label set minimizes the expected subset
        0/1 loss. If no label is likely, this set contains few or no labels.
    epsilon : float, default=1.0
        Factor of the absolute values in both penalties; finite and >= 0. With ``epsilon > 0``, many weights
        and couplings become exactly zero. With ``epsilon=0``, the penalties are pure L2 penalties.
    coding : {"01", "pm1"}, default="01"
        Coding of absent and present labels. The coding determines which numbers are penalized. "01" codes the
        labels as 0 and 1, and the penalties apply to the weights b and the couplings c. "pm1" codes the
        labels as -1 and 1, as in [2]_. With "pm1", the penalties apply to b/2 and c/4, which are the weights
        and couplings in this coding. The fitted attributes always contain b and c.
    decoder : {"auto", "exact", "search", "bp"}, default="auto"
        Method that looks for the most probable label set of a row:

        - "exact" tries all label sets. If more than 20 labels have nonzero couplings, "exact" raises a
          `ValueError`.
        - "search" starts from several label sets, mainly label sets of the training rows (`label_sets_`).
          From each start, it adds or removes labels as long as the probability increases. "search" may miss
          the most probable label set.
        - "bp" is max-product belief propagation with at most 50 rounds, as in [2]_. If many labels have
          couplings, "bp" often misses the most probable label set.
        - "auto" is "exact" if at most 14 labels have nonzero couplings, and "search" otherwise.
    solver : {"auto", "fista", "reference"}, default="auto"
        Solver for the weights and couplings:

        - "fista" computes the optimum by accelerated proximal gradient steps.
        - "auto" computes the same optimum. If possible, "auto" starts with quasi-Newton steps, which usually
          need at most a third of the gradient evaluations of "fista". Let s be 1 plus the number of features
          that are not constant plus the number of labels that are not constant. Quasi-Newton steps require
          ``epsilon > 0``, ``s <= 2048``, and at least ``2 * s`` rows. X and Y together must have at least
          about ``s**2 / 8`` nonzero values. If a requirement is not met, "auto" is "fista".
        - "reference" is the algorithm in the code of the authors of [2]_, to reproduce their results. The
          algorithm takes at most 500 steps of fixed size. After 20 steps, it stops as soon as a step changes
          the objective by less than 0.1 %. This early stopping regularizes the model. The penalty of a
          coupling is ``l2_pairs * (2 * c**2 + epsilon * abs(c))``, and `coding` must be "01".
    standardize : bool or "auto", default="auto"
        Whether the penalty of a weight takes the scale of the feature into account. If True, the penalty
        applies to the weight times the standard deviation of the feature, as if the feature were scaled to
        unit variance. If False, the penalty applies to the weight itself. `coef_` always contains the weights
        of the unscaled features. "auto" is True if more than an eighth of the values of X are nonzero. For
        text data, False is better, because the weights of rare words then stay small.
    tol : float, default=1e-4
        Tolerance of the KKT violation; finite and > 0. The KKT violation measures how far the fit is from the
        optimum. It is the largest absolute entry of the (sub)gradient of the objective, for features scaled
        to unit variance. The fit has converged when the KKT violation is at most `tol`. A penalty has hardly
        any effect if its strength (`l2_features` or `l2_pairs`) is smaller than `tol`. The solver "reference"
        ignores this parameter.
    max_iter : int, default=1000
        Maximum number of gradient evaluations; >= 1. The solver "reference" computes at most 500 gradients,
        even if `max_iter` is larger. If the fit does not converge within these limits, `fit` issues a
        `ConvergenceWarning`.

    Attributes
    ----------
    coef_ : csc_array of shape (n_labels, n_features_in_), dtype float64
        Weights b, in CSC format.
    intercept_ : ndarray of shape (n_labels,), dtype float64
        Intercepts, in units of log-odds. Labels that occur in no training row have the intercept -inf. Labels
        that occur in all training rows have a large intercept, and zero weights and couplings.
    correlations_ : csr_array of shape (n_labels, n_labels), dtype float64
        Couplings c, a symmetric matrix. If label k is present, c_ik is added to the log-odds of label i.
    label_sets_ : csr_array of shape (n_sets, n_labels), dtype float32
        Distinct label sets of the training rows, in order of decreasing frequency; at most 65,536 sets.
        Labels whose couplings are all zero are left out of the sets, so the columns of these labels are
        empty. If all couplings are zero, there are no sets.
    label_set_energies_ : ndarray of shape (n_sets,), dtype float64
        Energy of each label set in `label_sets_`: the sum of the couplings of all pairs of labels in the set.
    objective_ : float
        Value of the objective: the mean loss per row plus the penalties. Labels that occur in no row or in
        every row are not included.
    kkt_ : float
        KKT violation at the end of the fit (see `tol`): the maximum over all weights and all pairs of labels.
    n_iter_ : int
        Number of gradient evaluations.
    l2_features_, l2_pairs_ : float
        The values of `l2_features` and `l2_pairs`, as given or chosen.
    threshold_ : float
        The value of `threshold`, as given or learned. `predict` and `decision_function` use this threshold.
        `intercept_`, `predict_proba` and `predict_topk` do not depend on the threshold.

    See Also
    --------
    corrlog_path : Fits models for a sequence of penalties.
    corrlog_space : Parameter ranges for a random search.

    Notes
    -----
    If an entry of Y is unknown (NaN), its label is left out of the loss of the row. In the probabilities of
    the other labels of the row, the unknown label counts as absent. `label_sets_` contains only labels that
    are known to be present.

    `predict` returns the label set that the decoder finds. `decision_function` returns one score per label:
    the log-odds of the label minus `threshold_`. In the log-odds, each other label counts as present if the
    predicted set contains it, and as absent otherwise. The score of a label is positive if and only if the
    label is predicted.

    With ``decoder="bp"``, the scores are max-marginals instead, and `predict` returns the labels with
    positive scores. The max-marginal of a label is ``log(p / q)``. Here, p is the probability of the most
    probable label set with the label. Likewise, q is the probability of the most probable label set without
    the label. Before p and q are computed, `threshold_` is subtracted from every intercept. If the couplings
    form cycles, the max-marginals are only approximate.

    `predict_proba` returns marginal probabilities, which do not depend on predictions for other labels. If at
    most 14 labels have nonzero couplings, the probabilities are exact. Otherwise, they are approximated by
    sum-product belief propagation. If more than 2,500 pairs of labels have nonzero couplings, a mean-field
    approximation is used instead. The mean-field approximation is also used for each row for which belief
    propagation does not converge. To minimize the Hamming loss, use ``predict_proba(X) > 0.5``.

    `predict_topk` ranks labels by the log-odds of the marginal probabilities. Rankings by `decision_function`
    are worse, because the scores depend on uncertain predictions for other labels. For example, on the data
    set yeast, the precision at 1 is 76 % with `predict_topk` and 73 % with a ranking by `decision_function`.
    On delicious, these two values are 55 % and 43 %. If more than 14 labels have nonzero couplings,
    `predict_proba` and `predict_topk` take 2 to 15 times as long as `predict`. They take at most a few
    milliseconds per row.

    A gradient evaluation takes O((nnz(X) + nnz(Y)) n_labels) time. Here, nnz is the number of nonzero values,
    and nnz(Y) counts only labels with nonzero couplings.

    The fit takes 36 bytes of memory for each pair of a feature and a label. If `tol` is below 1e-5, the fit
    uses double precision and takes 72 bytes per pair. For pairs with a nonzero weight, quasi-Newton steps at
    least double this memory. The fit also stores two copies of the nonzero values of X. If more than half of
    the values are nonzero, it stores one copy of all values instead. No dense array of shape
    (n_samples, n_labels) is stored.

    If two labels nearly determine each other in the training rows, their coupling has a very large absolute
    value. For example, two labels nearly determine each other if they nearly always occur together, or if
    nearly every row has exactly one of them. In predictions, each label of the pair then determines the other
    label. A larger `l2_pairs` prevents such large couplings.

    With ``l2_features="auto"``, the penalty is chosen on a sample of the data. The sample has an eighth of
    the rows, but at least 4,096 and at most 16,384 rows. The sample has 1/64 of the labels, but at least 32
    and at most 512 labels. With fewer than 4,096 rows, all rows are used. With fewer than 32 labels, all
    labels are used. A quarter of the sampled rows is held out. Models without couplings are fitted to the
    other sampled rows, and compared by their Brier score on the held-out rows: the mean squared difference
    between a predicted probability and the true value, 0 or 1. With fewer than 2,048 rows, the comparison is
    repeated for other quarters, one at a time. The repetition ends as soon as at least 512 rows have been
    held out in total, or after the fourth quarter. The Brier scores of all held-out quarters are averaged. On
    small data sets, the choice takes about 0.1 seconds.

    The first penalty that is tried is ``max(0.001, 2 / n)``. Here, n is the number of rows of X, or the sum
    of `sample_weight` if given. If features are not standardized, the first penalty is multiplied by the mean
    variance of the features that are not constant. The penalty is then divided by ``sqrt(10)`` as long as
    each division lowers the Brier score by more than 2 %. If the first division does not lower the score by
    more than 2 %, the first penalty is instead multiplied by ``sqrt(10)`` in the same way. All steps together
    change the penalty by at most a factor of 1,000. If the held-out rows have fewer than ten positive entries
    for the sampled labels, the first penalty is chosen.

    With ``threshold="auto"``, rows and labels are sampled, and rows are held out, as described above for
    ``l2_features="auto"``. Models without couplings are fitted to the other sampled rows. Their penalty is
    `l2_features_`, adjusted to the number of these rows. A first threshold is chosen so that the models
    predict as many labels in the held-out rows as there are true labels. With the first threshold, these
    models also predict labels for the rows that they were fitted to. In these rows, the number of predicted
    labels is divided by the number of true labels.

    No rows are held out from the fit of the final model, so its threshold is chosen on a sample of at most
    512 training rows. `threshold_` is chosen so that the final model has about the same ratio of predicted to
    true labels in this sample. `threshold_` is 0 if the held-out rows have fewer than ten positive entries
    for the sampled labels, or if the solver is "reference".

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

    _couples_labels = "the coupling of two labels is part of the losses of both labels"

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
        # Model files of version 0.1 do not have the following three attributes.
        l2_features_=Scalar(float, optional=True),
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
        coding: Literal["01", "pm1"] = "01",
        decoder: Literal["auto", "exact", "search", "bp"] = "auto",
        solver: Literal["auto", "fista", "reference"] = "auto",
        standardize: bool | Literal["auto"] = "auto",
        tol: float = 1e-4,
        max_iter: int = 1000,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self._assign(locals())

    @property
    def _dense(self) -> KeptDense:
        return "if mostly nonzero"

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
        """Fit the model.

        If `start` is not None, the optimization starts at the solution of `start`, a fitted model of the same
        features and labels.
        """
        params = self._checked()
        sparse_output = issparse(y)
        X, y, sample_weight = check_training_set(self, X, y, sample_weight, dense=self._dense, unknown=True)
        with reported(y.shape[1], "label", params["verbose"], progress) as report:
            cut = self._chosen(params, X, y, sample_weight, report)
            fitted = _core.fit_correlated(
                (X, known_ones(y), sample_weight),
                unknown_entries(y),
                start,
                params,
                (params["n_jobs"], report),
            )
        self._set_fitted(fitted, params, X.shape[1])
        if cut is not None:
            self.threshold_ = self._matching_threshold(X, y, sample_weight, cut, params["n_jobs"])
        self.sparse_output_ = sparse_output
        converged = fitted[-1][-1]
        if not (converged or quiet):
            self._warn_of_end(stacklevel=4)

    def _checked(self) -> dict[str, Any]:
        """Check all parameters, and return their values by name."""
        params = self.parameters.check(self)
        _core.check_correlated(params | _UNCHOSEN)
        return params

    def _set_fitted(self, fitted: tuple[Any, ...], params: dict[str, Any], n_features: int) -> None:
        """Set the fitted attributes from the result of the Rust core.

        `params` has the chosen penalties. If the threshold is learned, the caller sets it later.
        """
        weights, self.intercept_, couplings, (indptr, indices), energies, end = fitted
        n_labels = len(self.intercept_)
        # A CSR matrix of shape (n_features, n_labels) has the same arrays as its transpose in CSC format.
        self.coef_ = csc_array(core_parts(weights), shape=(n_labels, n_features))
        self.correlations_ = csr_array(core_parts(couplings), shape=(n_labels, n_labels))
        ones = np.ones(len(indices), dtype=np.float32)
        self.label_sets_ = csr_array((ones, indices, indptr), shape=(len(energies), n_labels))
        self.label_set_energies_ = energies
        self.objective_, self.kkt_, self.n_iter_, _ = end
        self.l2_features_, self.l2_pairs_ = params["l2_features"], params["l2_pairs"]
        threshold = fixed_threshold(self.parameters["threshold"].check("threshold", self.threshold))
        self.threshold_ = 0.0 if threshold is None else threshold
        self.classes_ = np.arange(n_labels)

    def _warn_of_end(self, stacklevel: int) -> None:
        """Warn that the fit has not converged."""
        aim = "reach its stopping rule" if self.solver == "reference" else "converge"
        warnings.warn(
            f"the fit did not {aim} in {self.n_iter_} gradient evaluations; the KKT violation is "
            f"{self.kkt_:.3g} (max_iter={self.max_iter}, tol={self.tol})",
            ConvergenceWarning,
            stacklevel=stacklevel,
        )

    def _cut(self) -> type[CorrLogPieces]:
        return CorrLogPieces

    def _settled(
        self, X: csr_array | NDArray[Any], Y: csr_array, sample_weight: Any, threads: int, report: Tell
    ) -> CorrLogClassifier:
        names = ("l2_features", "l2_pairs", "standardize")
        # The threshold is not learned.
        params = {name: getattr(self, name) for name in names} | {"threshold": "zero"}
        chooser = clone(self).set_params(n_jobs=threads)
        chooser._chosen(params, X, Y, sample_weight, report)
        model: CorrLogClassifier = clone(self)
        model.set_params(**{name: params[name] for name in names})
        return model

    def _chosen(
        self,
        params: dict[str, Any],
        X: csr_array | NDArray[Any],
        Y: csr_array,
        sample_weight: NDArray[np.float32] | None,
        report: Tell,
    ) -> tuple[float, float] | None:
        """Choose the penalties and the scaling, and learn a threshold.

        The chosen values of `l2_features`, `l2_pairs` and `standardize` replace "auto" in `params`. To choose
        `l2_features` and the threshold, models without couplings are fitted to the training rows of
        `held_out_folds` and evaluated on the held-out rows.

        If the threshold is not learned, or if `held_out_folds` returns an empty list, the method returns
        None. Otherwise, it returns the threshold and a ratio. For the ratio, the models predict labels for
        their training rows with this threshold. The ratio is the number of predicted labels divided by the
        number of true labels in these rows.
        """
        if params["standardize"] == "auto":
            params["standardize"] = holds_measurements(X)
        by_hand = self.solver == "reference"
        learns = fixed_threshold(params["threshold"]) is None and not by_hand
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
        X: csr_array | NDArray[Any],
        Y: csr_array,
        sample_weight: NDArray[np.float32] | None,
        cut: tuple[float, float],
        threads: int,
    ) -> float:
        """Find the threshold at which the model with couplings predicts the wanted number of labels.

        `cut` contains the first threshold that is tried, and the wanted ratio of predicted to true labels.
        """
        # No rows are held out for the model with couplings, so the ratio is measured on training rows.
        first, share = cut
        least, most = _MATCHED_ROWS
        ones, unknown = known_ones(Y), unknown_entries(Y)
        wanted = -(-_MATCHED_LABELS * X.shape[0] // max(ones.nnz, 1))
        rows = spread_rows(X.shape[0], min(max(wanted, least), most))
        weight = None if sample_weight is None else sample_weight[rows]
        X = X[rows]

        def count(threshold: float) -> float:
            self.threshold_ = threshold
            above = core_rows(self._scorer().above(X, 0.0, threads), (X.shape[0], Y.shape[1]))
            counts = np.diff(above.indptr)
            if unknown is not None:
                above.data = np.ones(len(above.indices), dtype=np.float32)
                counts = counts - (above.multiply(unknown[rows]) != 0).sum(axis=1)
            return weighted_count(counts, weight)

        return matching_threshold(count, share * weighted_count(np.diff(ones[rows].indptr), weight), first)

    @property
    def _threshold(self) -> float:
        """The attribute `threshold_`, or 0 if the model does not have this attribute."""
        return float(getattr(self, "threshold_", 0.0))  # missing in files of version 0.1

    def _make_scorer(self) -> _core.Scorer:
        decoder = self.parameters["decoder"].check("decoder", self.decoder)  # may be set after fit
        return _core.correlated_scorer(self, {"decoder": decoder})

    def _knows_probabilities(self) -> bool:
        return True

    def in_coding(self, coding: str) -> tuple[csc_array, NDArray[np.float64], csr_array]:
        """Return the weights, intercepts and couplings for labels coded as 0 and 1, or as -1 and 1.

        Parameters
        ----------
        coding : {"01", "pm1"}
            Label coding of the result. "01" codes labels as 0 and 1, and the method returns `coef_`,
            `intercept_` and `correlations_`. "pm1" codes labels as -1 and 1, and the method returns the
            weights ``w = coef_ / 2``, the couplings ``a = correlations_ / 4``, and the intercepts
            ``v_i = intercept_[i] / 2 + sum_k a_ik``. With "pm1", a label set y is a vector of -1 and 1. For a
            row x, the probability of y is proportional to
            ``exp(sum_i y_i (x @ w_i + v_i) + sum_{i<k} a_ik y_i y_k)``.

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

    def explain(  # type: ignore[override]  # without a label, the contributions to all labels
        self,
        x: Any,
        label: int | str | None = None,
        *,
        feature_names: Sequence[str] | None = None,
        label_names: Sequence[str] | None = None,
    ) -> Explanation | LabelExplanation:
        """For one row, split the log-odds of one label or of all labels into contributions.

        Parameters
        ----------
        x : array-like or sparse matrix of shape (n_features_in_,) or (1, n_features_in_)
            The features of one row.
        label : int or str, default=None
            Label to explain: its column index in Y or its name. None means all labels.
        feature_names : sequence of str of length n_features_in_, default=None
            Names of the features in the result. None means ``feature_names_in_`` if this attribute exists,
            and otherwise "feature 0", "feature 1" and so on.
        label_names : sequence of str of length n_labels, default=None
            Names of the labels in the result. None means ``label_names_`` if this attribute exists, and
            otherwise "label 0", "label 1" and so on.

        Returns
        -------
        Explanation or LabelExplanation
            If `label` is given, a `LabelExplanation` with the contributions to this label. If `label` is
            None, an `Explanation` with the contributions to every label. The ``repr`` of an `Explanation` is
            a text that lists the contributions to the predicted labels.

            The contributions to a label add up to the log-odds of the label minus `threshold_`. In these
            log-odds, each other label counts as present if it is predicted, and as absent otherwise. Each
            feature and each other predicted label has one contribution. One more contribution is the
            intercept minus `threshold_`. Features and labels with the contribution 0 are left out.

        Raises
        ------
        ValueError
            If x is not a single row, if x does not have the same number of features as in `fit`, if the model
            does not have the label, or if `feature_names` or `label_names` has the wrong length.
        """
        check_is_fitted(self)
        x = check_row(self, x)
        sets = core_parts(self._scorer().above(x, 0.0, 1))
        predicted = csr_array(sets, shape=(1, len(self.intercept_))).toarray()[0] > 0
        features = csr_array(self.coef_ * x.toarray())
        labels = csr_array(self.correlations_ * predicted.astype(np.float64))
        for contributions in (features, labels):
            contributions.eliminate_zeros()
        every = Explanation(
            predicted=predicted,
            intercept=self.intercept_ - self._threshold,
            features=features,
            labels=labels,
            feature_names=check_names("feature", feature_names, self.n_features_in_, self),
            label_names=check_names("label", label_names, len(self.intercept_), self),
        )
        if label is None:
            return every
        number = check_label(self, label, len(self.intercept_))
        return LabelExplanation(
            every.parts(number),
            label=every.label_names[number],
            quantity="log-odds given the other predicted labels",
            total=float(every.log_odds[number]),
            score=float(self._scorer().decision(x, 1)[0, number]),
        )

    def plot_correlations(
        self,
        *,
        label_names: Sequence[str] | None = None,
        max_labels: int = 30,
        max_pairs: int = 40,
        axes: Sequence[Any] | None = None,
    ) -> NDArray[Any]:
        """Plot the couplings of the labels as a heat map, and the strongest couplings as a graph.

        Parameters
        ----------
        label_names : sequence of str of length n_labels, default=None
            Names of the labels. None means ``label_names_`` if this attribute exists. Otherwise, the names
            are "label 0", "label 1" and so on.
        max_labels : int, default=30
            Maximum number of labels in the heat map; >= 1. The heat map shows the labels with the strongest
            couplings.
        max_pairs : int, default=40
            Maximum number of label pairs in the graph; >= 1. The graph shows the pairs with the strongest
            couplings.
        axes : sequence of two matplotlib.axes.Axes, default=None
            Axes for the heat map and for the graph. None creates a new figure.

        Returns
        -------
        ndarray of two matplotlib.axes.Axes
            The axes with the heat map and the graph. Each coupling belongs to a pair of labels. A negative
            coupling is red: each label of the pair makes the other label less likely. A positive coupling is
            blue: each label of the pair makes the other label more likely.

        Raises
        ------
        ModuleNotFoundError
            If matplotlib is not installed.
        ValueError
            If `label_names` does not have one name per label, if `max_labels` or `max_pairs` is not an
            integer >= 1, or if `axes` does not have two entries.
        """
        check_is_fitted(self)
        return draw_correlations(
            self.correlations_,
            check_names("label", label_names, len(self.intercept_), self),
            check_count("max_labels", max_labels, 1),
            check_count("max_pairs", max_pairs, 1),
            axes,
        )


def _mean_variance(X: csr_array | NDArray[Any], sample_weight: NDArray[np.float32] | None) -> float:
    """Return the mean variance of the columns that are not constant, or 1 if all columns are constant."""
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
    """Fit a `CorrLogClassifier` for each penalty. Each fit starts at the solution of the previous fit.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_samples, n_features)
        Features.
    Y : array-like or sparse matrix of shape (n_samples, n_labels), or array-like of shape (n_samples,)
        Labels, as in `CorrLogClassifier.fit`: a 0/1 indicator matrix, or the values 0 and 1 of a single
        label.
    lambdas : sequence of float
        Penalties, one for each model; finite and > 0. The model with the penalty ``lam`` has
        ``l2_features=lam`` and, by default, ``l2_pairs="auto"`` (see `estimator`). A decreasing sequence is
        fastest.
    estimator : CorrLogClassifier, default=None
        Unfitted estimator. All models have its parameters, except for the penalties `l2_features` and
        `l2_pairs`. None means ``CorrLogClassifier()``. If ``estimator.l2_pairs`` is "auto", all models have
        ``l2_pairs="auto"``. If ``estimator.l2_pairs`` is a number, all models have the same ratio
        ``l2_pairs / l2_features`` as `estimator`. In this ratio, an `l2_features` of "auto" counts as 0.001.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the rows; >= 0. The loss of a row is multiplied by the weight of the row.

    Returns
    -------
    list of CorrLogClassifier
        The fitted models, in the order of `lambdas`. A separate fit of a `CorrLogClassifier` with the
        parameters of one of these models may give slightly different weights. The two fits start from
        different weights, and each fit stops within the tolerance ``estimator.tol``.

    Raises
    ------
    ValueError
        If a penalty is infinite, NaN or <= 0, if ``estimator.solver`` is "reference", or if
        `CorrLogClassifier.fit` raises `ValueError`. The solver "reference" cannot start at the solution of
        another model.
    TypeError
        If `lambdas` is not a sequence, or if `estimator` is neither None nor a `CorrLogClassifier`.

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
        raise ValueError('`estimator.solver` must be "auto" or "fista" in `corrlog_path`, got "reference"')
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
    """Return parameter ranges of `CorrLogClassifier` for a random search.

    Returns
    -------
    dict of str to list or distribution
        Value for the parameter `param_distributions` of `sklearn.model_selection.RandomizedSearchCV`. The
        penalties `l2_pairs` and `l2_features` are drawn independently from log-uniform distributions. The
        range of `l2_pairs` is 1e-4 to 1, as in the grid search of Li et al. (2016). The range of
        `l2_features` is 1e-4 to 0.1. `epsilon` is 0, 0.3, 1 or 3.

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
