"""The classifier `BoostedRulesClassifier`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse, vstack
from scipy.special import expit
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from manylabel import _core
from manylabel.estimator import parameters as kinds
from manylabel.estimator.base import MultiLabelClassifier, core_rows
from manylabel.estimator.explanation import LabelExplanation
from manylabel.estimator.held_out import held_out_parts, spread_rows
from manylabel.estimator.names import check_label, column_names, values_of_frame
from manylabel.estimator.parameters import n_threads, shown
from manylabel.estimator.progress import Progress, Report, reported
from manylabel.estimator.registry import register
from manylabel.estimator.schema import Array, Scalar, Schema, SparseMatrix
from manylabel.estimator.validation import (
    KeptDense,
    as_column,
    canonical_csr,
    check_features,
    check_names,
    check_row,
    check_training_set,
    held_out_rows,
    known_ones,
)
from manylabel.rules.choice import MEASURES, HeldOutMeasures, SetChoice
from manylabel.rules.inspection import (
    FiredRule,
    Rules,
    feature_importances,
    fired_rules,
    frame,
    label_importances,
)
from manylabel.rules.setup import (
    categorical_positions,
    chosen_predictor,
    chosen_step,
    label_sets,
    n_fitted,
    n_tried,
)

__all__ = ["BoostedRulesClassifier"]


@register(command="rules", demo=("Boosted rules", lambda rules: rules(n_rules=500, random_state=0)))
class BoostedRulesClassifier(MultiLabelClassifier):
    """Gradient-boosted rules such as ``if feature 3 > 0.5 and feature 7 <= 1.2 then label 2 += 0.8``.

    A rule consists of a body and a head. The body is a list of conditions on features. A rule covers the rows
    that satisfy all its conditions. The head contains a score for each label. The score of a label for a row
    is the sum of the head scores of all rules that cover the row.

    `fit` adds one rule at a time. It grows each rule on a bootstrap sample of the rows, one condition at a
    time. Among the conditions on randomly drawn features, it adds the condition that lowers the loss most
    [1]_. After the last condition, `fit` computes the head with one Newton step for the loss of all training
    rows that the rule covers. By default, `fit` halves this step until the step lowers the loss sufficiently
    (see `step`).

    Label binning puts labels with similar Newton steps into one bin. All labels of a bin get one score [2]_.
    With label binning, `fit` solves one equation per bin for each head, instead of one equation per label. By
    default, there is no label binning.

    Parameters
    ----------
    n_rules : int or "auto", default="auto"
        Number of rules; >= 1. This number includes the default rule, which has no conditions and covers every
        row. "auto" means one rule per ten features, but at least 1000 and at most 5000 rules. The authors of
        [2]_ use 5000 rules.
    loss : {"example-wise-logistic", "label-wise-logistic"}, default="example-wise-logistic"
        Loss function of a row. "example-wise-logistic" is ``log(1 + sum_k exp(-y_k p_k))``, where p_k is the
        score of label k, and y_k is 1 if the row has label k and -1 otherwise. It is a surrogate of the
        subset 0/1 loss, and models dependencies between labels. "label-wise-logistic" is
        ``sum_k log(1 + exp(-y_k p_k))``, a surrogate of the Hamming loss.
    head : {"complete", "single-label"}, default="complete"
        Labels for which a rule has scores. With "complete", a rule has scores for all labels. With
        "single-label", a rule has a score only for the label that lowers the loss most.
    label_binning : float or None, default=None
        Number of label bins of a complete head, as a fraction of the number of labels; in (0, 1]. Labels with
        positive Newton steps and labels with negative Newton steps form two groups with separate bins. The
        number of bins of each group is this fraction of the number of labels in the group. None means no
        label binning, so that every label has its own score. The authors of [2]_ use 0.04, with
        ``step="newton"``.
    min_bins : int, default=1
        Minimum number of bins of each of the two groups of labels (see `label_binning`); >= 1.
    max_bins : int or None, default=None
        Maximum number of bins of each of the two groups of labels (see `label_binning`); >= `min_bins`. None
        means no limit.
    hessian : {"paper", "restricted"}, default="paper"
        Which mixed second derivatives of the loss the Newton steps use. A mixed second derivative is taken
        with respect to the scores of two different labels. Both settings use the mixed derivatives for two
        labels in different bins. "restricted" also uses the mixed derivatives for two labels in the same bin.
        "paper" ignores these derivatives, as in [2]_, and takes shorter steps than "restricted". This
        parameter has an effect only with label binning and the example-wise loss.
    step : {"auto", "newton", "safeguarded"}, default="auto"
        Length of a step. "newton" takes the full Newton step. "safeguarded" halves the Newton step until the
        step lowers the loss sufficiently (Armijo's rule). "auto" is "newton" for the label-wise loss, and for
        label binning with ``hessian="paper"``. In all other cases, "auto" is "safeguarded". In these cases,
        full Newton steps are too long if most labels occur in few rows.
    search : {"fast", "exact"}, default="fast"
        Search for the next condition. "exact" tries every threshold of each drawn feature (see
        `max_features`). "fast" tries at most 65 thresholds per numeric feature. With label binning, "exact"
        computes new label bins for each condition that it tries. "fast" does the same, with one exception.
        With the example-wise loss and at most about ``2 * sqrt(n_labels)`` bins per head, "fast" saves time
        on features with mostly nonzero values. For conditions on these features, it uses the label bins of
        the sampled rows that the rule covers before the condition is added. With more than 256 labels, it
        also does so for some conditions on other features. The label bins of a finished rule are always
        computed again.
    learning_rate : float, default=0.3
        Factor that multiplies every head except the head of the default rule; in (0, 1].
    l2 : float, default=1.0
        Strength of the L2 regularization of the head scores; finite and >= 0. The regularization adds
        ``l2 / 2`` times the sum of the squared head scores to the summed loss of the covered rows.
    bootstrap : bool, default=True
        Whether each rule is grown on a sample of rows drawn with replacement. If False, each rule is grown on
        all rows.
    max_features : int, float, "log2" or None, default="log2"
        Number of features that are drawn at random and tried for each condition. "log2" means
        ``floor(log2(n_features - 1) + 1)`` features. An int is the number of features; >= 1. A float is a
        fraction of the features; in (0, 1]. None means all features.
    min_coverage : int, default=1
        Minimum number of distinct sampled rows that a rule must cover; >= 1.
    max_conditions : int or None, default=None
        Maximum number of conditions per rule; >= 1. None means no limit.
    predictor : {"auto", "known-label-sets", "signs"} or measure, default="auto"
        Method that `predict` uses to convert scores to label sets, or a measure for choosing the method.
        "signs" predicts the labels with positive scores. "known-label-sets" predicts the label set in
        `label_sets_` for which the scores of the row have the lowest example-wise loss. "auto" is
        "known-label-sets" for the example-wise loss and "signs" for the label-wise loss. The measures are
        "subset-accuracy", "hamming" and "example-f1". "subset-accuracy" is the fraction of rows with a
        completely correct label set. "hamming" is the Hamming loss, the fraction of wrong entries.
        "example-f1" is the mean F1 of the rows, where an empty label set has an F1 of 0. With a measure,
        `fit` tunes a variant of "known-label-sets" and a variant of "signs" on held-out rows (see Notes).
        `predict` then uses the variant that is better for this measure on the held-out rows. With many rows,
        a fit with a measure takes about twice as long as a fit without a measure. With a few hundred rows, it
        takes up to six times as long. After a fit with a measure, `predictor` may be set to another measure.
    categorical_features : sequence of int, bool or str, default=None
        Nominal (categorical) features, given as column positions, as a boolean mask or as feature names.
        Conditions on a nominal feature test whether the feature is equal to a value. All other features are
        numeric. None means that all features are numeric. If the model will be saved, pass a list, because
        `save` does not support an ndarray for this parameter.
    warm_start : bool, default=False
        Whether `fit` keeps the rules of the previous fit and adds further rules. `n_rules` must be "auto", or
        at least the number of existing rules. The seed of the previous fit is used again. On the same data,
        the continued fit gives the same model as a single fit with `n_rules` rules.
    early_stopping : bool, default=False
        Whether to stop the fit when the loss on held-out rows no longer falls. The model keeps the rules up
        to the lowest loss, and all later rules are removed. If `eval_set` is passed to `fit`, its rows are
        used instead of held-out rows.
    validation_fraction : float, default=0.1
        Fraction of the rows that `early_stopping` holds out; in (0, 1). At least one row is held out.
    n_iter_no_change : int, default=50
        If `early_stopping` is True, the fit stops when the loss on the held-out rows has reached no new
        minimum for this number of consecutive rules; >= 1.
    random_state : int, RandomState instance or None, default=None
        Seed of the samples of rows and features, and of the choice of held-out rows. Pass an int for
        reproducible results.

    Attributes
    ----------
    body_indptr_ : ndarray of shape (n_rules + 1,), dtype int64
        Positions of the conditions of each rule, as in the CSR format. Rule r has the conditions
        ``body_indptr_[r]`` to ``body_indptr_[r + 1] - 1``. The first rule is the default rule, which has no
        conditions. In the shapes of the attributes, n_rules is the number of fitted rules. If `fit` finds no
        further rule or stops early, this number is smaller than the parameter `n_rules`.
    body_feature_ : ndarray of shape (n_conditions,), dtype int32
        Column index of the feature of each condition.
    body_operator_ : ndarray of shape (n_conditions,), dtype uint8
        Operator of each condition: 0 for ``value <= threshold``, 1 for ``>``, 2 for ``==``, 3 for ``!=``. A
        NaN value satisfies no condition.
    body_threshold_ : ndarray of shape (n_conditions,), dtype float32
        Threshold of each condition. Feature values are rounded to float32 before the comparison.
    heads_ : csr_array of shape (n_rules, n_labels), dtype float32
        Head of each rule: the scores that the rule adds for the rows that it covers.
    coverage_ : ndarray of shape (n_rules,), dtype float64
        Sum of the weights of the training rows that each rule covers.
    validation_loss_ : ndarray of shape (n_rules,) or (0,), dtype float64
        Weighted mean loss of the held-out rows after each rule. The array is empty without `early_stopping`.
    label_sets_ : csr_array of shape (n_label_sets, n_labels), dtype float32
        Distinct label sets of the training rows, without the rows that `early_stopping` holds out. Each label
        set is a row of the array, with the value 1 for the labels in the set. The label sets are sorted by
        decreasing weight (see `label_set_weights_`).
    label_set_weights_ : ndarray of shape (n_label_sets,), dtype float64
        Weight of each label set: the sum of the weights of the training rows with this label set.
    choice_powers_, choice_bounds_ : ndarray of shape (3,), dtype float64
        If `predictor` is a measure, `predict` uses one of two methods (see Notes). `choice_powers_` contains
        the power of method 1, and `choice_bounds_` contains the bound of method 2. The three entries are for
        the measures "subset-accuracy", "hamming" and "example-f1", in this order. The attributes exist only
        if `predictor` was a measure in `fit`.
    choice_by_sets_ : ndarray of shape (3,), dtype uint8
        Chosen method for each measure, in the order of `choice_powers_` (see Notes). The value is 1 for
        method 1, and 0 for method 2. The attribute exists only if `predictor` was a measure in `fit`.
    seed_ : int
        Seed of the fit, which was drawn from `random_state`.
    rules_ : Rules
        All rules, as an object with arrays of conditions and heads.
    feature_importances_ : ndarray of shape (n_features,), dtype float64
        Importance of each feature (see Notes). The importances sum to 1, or are all 0 if no rule has
        conditions.
    label_importances_ : ndarray of shape (n_labels,), dtype float64
        Importance of each label (see Notes). The importances sum to 1, or are all 0 if no rule has
        conditions.

    See Also
    --------
    manylabel.rules.export_text : Writes the rules as text.
    manylabel.rules.plot_importance : Plots the importances of features and labels as bars.

    Notes
    -----
    X may contain NaN for missing values. A missing value satisfies no condition. Unknown entries of Y (NaN)
    are left out of the loss, and count as absent in `label_sets_`. Labels that occur in no training row get
    the score -inf and are never predicted.

    With the label-wise loss, `predict_proba` returns ``1 / (1 + exp(-score))``. With the example-wise loss,
    the probability of a label set in `label_sets_` is proportional to ``1 / (1 + sum_k exp(-y_k p_k))``.
    Here, p_k is the score of label k, and y_k is 1 if the label set contains label k and -1 otherwise. All
    other label sets have the probability 0. The probability of a label is the sum of the probabilities of the
    label sets that contain the label.

    If `predictor` is a measure, `fit` chooses one of two methods for `predict`:

    - Method 1 predicts a known label set: the label set in `label_sets_` with the smallest value of
      ``loss - a * log(f)``. Here, loss is the example-wise loss, and f is the weight of the label set in
      `label_set_weights_`. The power a is a number from 0 to 1. With a = 0, method 1 is the same as
      "known-label-sets". A larger power gives more preference to frequent label sets.
    - Method 2 predicts all labels with scores above a bound. For "example-f1", method 2 always predicts the
      label with the highest score as well.

    On held-out rows, `fit` first chooses the power of method 1 and the bound of method 2. Then `fit` chooses
    the method that is better for the measure. To get scores for the held-out rows, `fit` fits further models.
    Each further model holds out a quarter of the rows, but at most 16,384 rows, and is fitted to the other
    rows. No row is held out twice. With at least 2,048 rows, there is one further model. With 4 to 2,047
    rows, there are two to four further models: as many as are needed to hold out at least 512 rows in total,
    but at most four. With fewer than four rows, there is no further model, and the power and the bound are 0.
    In this case, `fit` chooses method 1 for "subset-accuracy" and method 2 for the other measures. When the
    measure is computed, the rows are weighted by `sample_weight`, and unknown entries of Y are left out. A
    warm start repeats the choice with new models of up to `n_rules` rules.

    The fit takes 16 bytes of memory for each pair of a row and a label, and about 16 bytes per stored value
    of X. If `predictor` is a measure, `fit` also copies X and Y for the further models, one model at a time.
    With the example-wise loss and ``head="complete"``, each thread also stores a few matrices of shape
    (n_labels, n_labels). With more than 256 labels, no matrices of this shape are stored if ``search="fast"``
    saves time by using the same label bins for many conditions (see `search`).

    Up to four threads of `fit` wait for work without sleeping. With n threads, the processor time is
    therefore at least about ``min(n, 4)`` times the elapsed time. If several fits run at the same time in
    different processes, use ``n_jobs=1``.

    If two fits differ only in `n_rules`, the shorter list of rules is the beginning of the longer list.

    The effect of a rule on a label is the absolute head score of the label, times the coverage of the rule.
    The importance of a label is the sum of the effects of all rules on the label, without the default rule.
    For the importances of features, the effects of a rule on all labels are summed. Each condition of the
    rule gets an equal share of this sum. The importance of a feature is the sum of the shares of all
    conditions on the feature. `label_importances_` and `feature_importances_` are each scaled to sum to 1.

    References
    ----------
    .. [1] M. Rapp, E. Loza Mencía, J. Fürnkranz, V.-L. Nguyen and E. Hüllermeier, "Learning Gradient
       Boosted Multi-label Classification Rules", ECML PKDD 2020.
    .. [2] M. Rapp, E. Loza Mencía, J. Fürnkranz and E. Hüllermeier, "Gradient-based Label Binning in
       Multi-label Classification", ECML PKDD 2021, equations 18 to 20.

    Examples
    --------
    >>> import manylabel as ml
    >>> X, Y = ml.datasets.make_multilabel(200, 20, 10, random_state=0)
    >>> model = ml.BoostedRulesClassifier(n_rules=20, random_state=0).fit(X, Y)
    >>> model.predict_topk(X, k=3).shape
    (200, 10)
    """

    _couples_labels = "a rule is chosen for all labels together"

    parameters = kinds.Parameters(
        n_rules=kinds.Either("auto", kinds.Count(1)),
        loss=kinds.Choice("example-wise-logistic", "label-wise-logistic"),
        head=kinds.Choice("complete", "single-label"),
        label_binning=kinds.Either(None, kinds.Number(above=0, most=1)),
        min_bins=kinds.Count(1),
        max_bins=kinds.Either(None, kinds.Count(1)),
        hessian=kinds.Choice("paper", "restricted"),
        step=kinds.Choice("auto", "newton", "safeguarded"),
        search=kinds.Choice("fast", "exact"),
        learning_rate=kinds.Number(above=0, most=1),
        l2=kinds.Number(least=0),
        bootstrap=kinds.Flag(),
        max_features=kinds.Either("log2", kinds.Count(1), kinds.Number(above=0, most=1), None),
        min_coverage=kinds.Count(1),
        max_conditions=kinds.Either(None, kinds.Count(1)),
        predictor=kinds.Choice(
            "auto",
            "known-label-sets",
            "signs",
            *MEASURES,
            documented='{"auto", "known-label-sets", "signs"} or measure',
        ),
        categorical_features=kinds.Anything("sequence of int, bool or str", [6], [-1], [0.5], "a", 3, [[1]]),
        warm_start=kinds.Flag(),
        early_stopping=kinds.Flag(),
        validation_fraction=kinds.Number(above=0, below=1),
        n_iter_no_change=kinds.Count(1),
        **kinds.SEEDED_RUN,
    )

    schema = Schema(
        **MultiLabelClassifier.fitted,
        body_indptr_=Array(("n_rules + 1",), "i8", ends="n_conditions"),
        body_feature_=Array(("n_conditions",), "i4", below="n_features"),
        body_operator_=Array(("n_conditions",), "u1"),
        body_threshold_=Array(("n_conditions",), "f4"),
        heads_=SparseMatrix("csr", ("n_rules", "n_labels"), "f4"),
        coverage_=Array(("n_rules",), "f8"),
        validation_loss_=Array(("n_losses",), "f8"),
        label_sets_=SparseMatrix("csr", ("n_label_sets", "n_labels"), "f4"),
        label_set_weights_=Array(("n_label_sets",), "f8"),
        choice_powers_=Array((len(MEASURES),), "f8", optional=True),
        choice_bounds_=Array((len(MEASURES),), "f8", optional=True),
        choice_by_sets_=Array((len(MEASURES),), "u1", optional=True),
        seed_=Scalar(int),
    )

    body_indptr_: NDArray[np.int64]
    body_feature_: NDArray[np.int32]
    body_operator_: NDArray[np.uint8]
    body_threshold_: NDArray[np.float32]
    heads_: csr_array
    coverage_: NDArray[np.float64]
    validation_loss_: NDArray[np.float64]
    label_sets_: csr_array
    label_set_weights_: NDArray[np.float64]
    choice_powers_: NDArray[np.float64]
    choice_bounds_: NDArray[np.float64]
    choice_by_sets_: NDArray[np.uint8]
    seed_: int

    def __init__(
        self,
        n_rules: int | Literal["auto"] = "auto",
        *,
        loss: Literal["example-wise-logistic", "label-wise-logistic"] = "example-wise-logistic",
        head: Literal["complete", "single-label"] = "complete",
        label_binning: float | None = None,
        min_bins: int = 1,
        max_bins: int | None = None,
        hessian: Literal["paper", "restricted"] = "paper",
        step: Literal["auto", "newton", "safeguarded"] = "auto",
        search: Literal["fast", "exact"] = "fast",
        learning_rate: float = 0.3,
        l2: float = 1.0,
        bootstrap: bool = True,
        max_features: int | float | Literal["log2"] | None = "log2",
        min_coverage: int = 1,
        max_conditions: int | None = None,
        predictor: Literal[
            "auto", "known-label-sets", "signs", "subset-accuracy", "hamming", "example-f1"
        ] = "auto",
        categorical_features: Sequence[int] | Sequence[bool] | Sequence[str] | None = None,
        warm_start: bool = False,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 50,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self._assign(locals())

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        label_weight: Any = None,
        eval_set: tuple[Any, Any] | None = None,
        progress: Progress = None,
    ) -> BoostedRulesClassifier:
        """Fit the rules.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features, of any numeric dtype. NaN marks a missing value. All other values must be finite, and at
            most 3.4e38 in absolute value (the maximum of float32). A sparse matrix may have int32 or int64
            indices.
        label_weight : None, default=None
            Label weights are not supported. Any value other than None raises a ValueError that states the
            reason.
        eval_set : tuple of two matrices (X, y), default=None
            Further rows for early stopping: a pair ``(X_eval, y_eval)`` in the same formats as X and y. The
            fit stops when the loss on these rows no longer falls. The rules are not fitted to these rows.
            However, with ``search="fast"``, the candidate thresholds for the conditions of the rules depend
            on the values in both X and X_eval. `eval_set` requires ``early_stopping=True``. With
            ``early_stopping=True`` and without `eval_set`, some rows of X are held out instead.
        """
        self._refuse_label_weight(label_weight)
        with self._fitting(y) as (built, Y):
            built._fit(X, Y, sample_weight, progress, eval_set)
        return self

    @property
    def _dense(self) -> KeptDense:
        return "if mostly nonzero"

    def _fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        progress: Progress,
        eval_set: tuple[Any, Any] | None = None,
    ) -> None:
        params = self.parameters.check(self)
        if eval_set is not None and not params["early_stopping"]:
            raise ValueError("`eval_set` must be None if `early_stopping` is False, got a pair")
        params["step"] = chosen_step(params)
        goes_on = params["warm_start"] and hasattr(self, "heads_")
        sparse_output = issparse(y)
        if not goes_on:
            for name in [name for name in vars(self) if name.endswith("_")]:
                delattr(self, name)
        X, y, sample_weight = check_training_set(
            self, X, y, sample_weight, reset=not goes_on, dense=self._dense, unknown=True
        )
        params["n_rules"] = n_fitted(params["n_rules"], X.shape[1], len(self.coverage_) if goes_on else 0)
        if goes_on:
            self._check_goes_on(params["n_rules"], y.shape[1])
            params["random_state"] = self.seed_
            for name in [name for name in vars(self) if name.startswith("choice_")]:
                delattr(self, name)
        params["max_features"] = n_tried(params["max_features"], X.shape[1])
        held_out = None
        if eval_set is not None:
            X, y, sample_weight, held_out = self._with_rows_to_measure(X, y, sample_weight, eval_set)
        elif params["early_stopping"]:
            held_out = held_out_rows(params["validation_fraction"], X.shape[0], params["random_state"])
        chooses = params["predictor"] in MEASURES
        rows = np.arange(X.shape[0])
        if eval_set is not None and held_out is not None:
            rows = np.flatnonzero(~held_out)
        parts = list(held_out_parts(rows[spread_rows(len(rows), len(rows))])) if chooses else []
        total = params["n_rules"] * (len(parts) + 1)
        with reported(total, "rule", params["verbose"], progress) as report:
            if chooses:
                further = None if eval_set is None else (X[held_out], y[held_out])
                self._choose(params, X, y, sample_weight, parts, further, report)
            begun = params["n_rules"] * len(parts)
            fitted = _core.fit_rules(
                (X, y, sample_weight),
                held_out,
                categorical_positions(self),
                self if goes_on else None,
                params,
                (params["n_jobs"], lambda done: report(begun + done)),
            )
        self.body_indptr_, self.body_feature_, self.body_operator_, self.body_threshold_ = fitted[:4]
        self.coverage_, self.validation_loss_ = fitted[5:]
        self.heads_ = core_rows(fitted[4], (len(self.coverage_), y.shape[1]))
        self.label_sets_, self.label_set_weights_ = label_sets(known_ones(y), sample_weight, held_out)
        self.seed_ = params["random_state"]
        self.classes_ = np.arange(y.shape[1])
        self.sparse_output_ = sparse_output

    def _make_scorer(self) -> _core.Scorer:
        return _core.rules_scorer(self)

    @property
    def _decision(self) -> SetChoice:
        """How `predict` converts scores to label sets. The Rust core reads this property."""
        predictor = self.parameters["predictor"].check("predictor", self.predictor)  # may be set after fit
        if predictor not in MEASURES:
            known = chosen_predictor(predictor, self.loss) == "known-label-sets"
            return SetChoice(0.0 if known else None, 0.0, False)
        if not hasattr(self, "choice_powers_"):
            raise ValueError(
                '`predictor` must be "auto", "known-label-sets" or "signs" for this model, '
                f"got {predictor!r}; to predict with this measure, set `predictor` before `fit`"
            )
        at = MEASURES.index(predictor)
        if self.choice_by_sets_[at]:
            return SetChoice(float(self.choice_powers_[at]), 0.0, False)
        return SetChoice.by_bound(predictor, float(self.choice_bounds_[at]))

    def _choose(
        self,
        params: dict[str, Any],
        X: csr_array | NDArray[Any],
        y: csr_array,
        sample_weight: NDArray[np.float32] | None,
        parts: list[tuple[NDArray[np.intp], NDArray[np.intp]]],
        eval_set: tuple[Any, Any] | None,
        report: Report,
    ) -> None:
        """Choose the method that `predict` uses to convert scores to label sets.

        For each pair in `parts`, a model is fitted to the rows in the first array and evaluated on the
        held-out rows in the second array. The choices are stored in `choice_powers_`, `choice_bounds_` and
        `choice_by_sets_`.
        """
        weights = np.ones(X.shape[0]) if sample_weight is None else sample_weight.astype(np.float64)
        positions = categorical_positions(self).tolist()
        measures = HeldOutMeasures()
        for number, (fit_rows, held_rows) in enumerate(parts):
            begun = number * params["n_rules"]
            model = clone(self).set_params(
                predictor="auto",
                categorical_features=positions or None,
                warm_start=False,
                random_state=params["random_state"] % 2**32,  # a seed that was drawn can be larger
                verbose=0,
            )
            model.fit(
                X[fit_rows],
                y[fit_rows],
                None if sample_weight is None else sample_weight[fit_rows],
                eval_set=eval_set,
                progress=lambda done, begun=begun: report(begun + done),
            )
            measures.add(model, X[held_rows], y[held_rows], weights[held_rows])
        if parts:
            self.choice_powers_, self.choice_bounds_, self.choice_by_sets_ = measures.best()
        else:
            # With fewer than four rows, no rows are held out. Only "subset-accuracy" then uses known sets.
            self.choice_powers_, self.choice_bounds_ = np.zeros(len(MEASURES)), np.zeros(len(MEASURES))
            self.choice_by_sets_ = np.array([1, 0, 0], dtype=np.uint8)

    def _knows_probabilities(self) -> bool:
        return True

    def _probabilities(self, X: csr_array | NDArray[Any]) -> NDArray[np.float64]:
        if self.loss == "label-wise-logistic":
            scores = self._scorer().decision(X, n_threads(self.n_jobs))
            return np.asarray(expit(scores, dtype=np.float64))
        return super()._probabilities(X)

    def staged_decision_function(self, X: Any) -> Iterator[NDArray[np.float32]]:
        """Compute the scores of the first rule, the scores of the first two rules, and so on.

        Returns
        -------
        iterator of ndarray of shape (n_samples, n_labels), or (n_samples,) if y was 1-D, dtype float32
            One array for each rule. The r-th array contains the scores that the first r rules give to all
            labels. The last array equals the result of `decision_function`.

        Raises
        ------
        ValueError
            If X is not valid, or if its number of features differs from the number in `fit`.

        Notes
        -----
        For each rule, the iterator checks the arrays of the whole model. The total time is therefore
        quadratic in the number of rules.
        """
        check_is_fitted(self, "heads_")
        return self._stages(check_features(self, X, reset=False))

    def _stages(self, X: csr_array) -> Iterator[NDArray[np.float32]]:
        n_rules, n_labels = self.heads_.shape
        threads = n_threads(self.n_jobs)
        never_seen = np.bincount(self.label_sets_.indices, minlength=n_labels) == 0
        scores = np.zeros((X.shape[0], n_labels))
        for rule in range(n_rules):
            _core.rules_add(self, X, scores, rule, rule + 1, threads)
            stage = scores.astype(np.float32)
            stage[:, never_seen] = -np.inf
            yield self._in_form_of_y(stage)

    @property
    def rules_(self) -> Rules:
        """All rules, as an object with arrays of conditions and heads.

        The head of a rule contains a score for each label. If a row satisfies all conditions of the rule,
        these scores are added to the scores of the row.
        """
        check_is_fitted(self, "heads_")
        return Rules(
            body_indptr=self.body_indptr_,
            feature=self.body_feature_,
            operator=self.body_operator_,
            threshold=self.body_threshold_,
            heads=self.heads_,
            coverage=self.coverage_,
        )

    @property
    def feature_importances_(self) -> NDArray[np.float64]:
        """Importance of each feature, as defined in the Notes of the class.

        The importances sum to 1, or are all 0 if no rule has conditions.
        """
        return feature_importances(self.rules_, self.n_features_in_)

    @property
    def label_importances_(self) -> NDArray[np.float64]:
        """Importance of each label, as defined in the Notes of the class.

        The importances sum to 1, or are all 0 if no rule has conditions.
        """
        return label_importances(self.rules_)

    def explain(  # type: ignore[override]  # without a label, all rules
        self,
        x: Any,
        label: int | str | None = None,
        *,
        feature_names: Sequence[str] | None = None,
        label_names: Sequence[str] | None = None,
    ) -> list[FiredRule]:
        """List the rules that cover a row, with the scores that each rule adds to the labels.

        A rule covers a row if the row satisfies all conditions of the rule.

        Parameters
        ----------
        x : array-like or sparse matrix of shape (n_features,) or (1, n_features)
            The features of one row.
        label : int or str, default=None
            Label to explain: its column index in Y or its name. If given, only rules with a nonzero score for
            this label are returned, in order of decreasing absolute score. If None, all rules that cover the
            row are returned, in the order in which `fit` added them.
        feature_names : sequence of str of length n_features, default=None
            Names of the features in the ``repr`` of the result. None means ``feature_names_in_`` if this
            attribute exists, and otherwise "feature 0", "feature 1" and so on.
        label_names : sequence of str of length n_labels, default=None
            Names of the labels in the ``repr`` of the result. None means ``label_names_`` if this attribute
            exists, and otherwise "label 0", "label 1" and so on.

        Returns
        -------
        LabelExplanation, or list of FiredRule
            The rules that cover the row. The ``repr`` of each rule is the text of the rule. If `label` is
            None, the result is a list of `FiredRule` objects. For each label, the scores of these rules sum
            to the score that `decision_function` returns for the row. If `label` is given, the result is a
            `LabelExplanation`: a list of the `FiredRule` objects with a nonzero score for this label. The
            values of their attribute `contribution` sum to the score of the label. There is one exception for
            both results: a label that occurs in no training row has the score -inf instead of the sum.

        Raises
        ------
        ValueError
            If x is not a single row, if x does not have the same number of features as in `fit`, if the model
            does not have the label, or if `feature_names` or `label_names` has the wrong length.
        """
        check_is_fitted(self, "heads_")
        row = check_row(self, x)
        number = None if label is None else check_label(self, label, self.heads_.shape[1])
        _, fired, _ = _core.rules_fired(self, row, 1)
        rules = fired_rules(self, fired, number, feature_names, label_names)
        if number is None:
            return rules
        names = check_names("label", label_names, self.heads_.shape[1], self)
        return LabelExplanation(
            rules,
            label=names[number],
            quantity="score",
            total=sum(rule.contribution for rule in rules),
            score=float(self._scorer().decision(row, 1)[0, number]),
        )

    def to_frame(
        self, *, feature_names: Sequence[str] | None = None, label_names: Sequence[str] | None = None
    ) -> Any:
        """Return the rules as a data frame, for sorting and filtering.

        Parameters
        ----------
        feature_names : sequence of str of length n_features, default=None
            Names of the features in the column "conditions". None means ``feature_names_in_`` if this
            attribute exists, and otherwise "feature 0", "feature 1" and so on.
        label_names : sequence of str of length n_labels, default=None
            Names of the labels in the columns "head" and "strongest_label". None means ``label_names_`` if
            this attribute exists, and otherwise "label 0", "label 1" and so on.

        Returns
        -------
        pandas.DataFrame
            Data frame with one row per rule. It has the following columns:

            - "conditions": the conditions of the rule, as text.
            - "head": the scores that the rule adds to labels, as text. The text rounds scores to two
              decimals, and names at most ten labels.
            - "n_conditions": the number of conditions.
            - "coverage": the total weight of the covered training rows.
            - "n_labels": the number of labels with a nonzero score.
            - "strongest_label": the label with the largest absolute score.
            - "score": the score of the strongest label, with its sign.
            - "validation_loss": the loss on the held-out rows, or on the rows of `eval_set`, after the rule
              was added. This column exists only if the model was fitted with ``early_stopping=True``.

        Raises
        ------
        ModuleNotFoundError
            If pandas is not installed.
        """
        check_is_fitted(self, "heads_")
        return frame(self, feature_names, label_names)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _with_rows_to_measure(
        self, X: csr_array | NDArray[Any], Y: csr_array, sample_weight: Any, eval_set: tuple[Any, Any]
    ) -> tuple[csr_array | NDArray[Any], csr_array, Any, NDArray[np.bool_]]:
        """Append the rows of `eval_set` to X and Y. Return X, Y, the weights and a mask of the added rows.

        The added rows have the weight 1. If `sample_weight` is None, the returned weights are also None.
        """
        if not isinstance(eval_set, tuple | list) or len(eval_set) != 2:
            raise ValueError(f"`eval_set` must be a pair (X, y), got {shown(eval_set)}")
        y = eval_set[1] if column_names(eval_set[1]) is None else values_of_frame(eval_set[1])
        column = as_column(y)
        rows, labels, _ = check_training_set(
            self,
            eval_set[0],
            y if column is None else column,
            None,
            reset=False,
            dense=isinstance(X, np.ndarray),
            name="y of `eval_set`",
            unknown=True,
        )
        if labels.shape[1] != Y.shape[1]:
            raise ValueError(f"y of `eval_set` must have {Y.shape[1]} labels, as in y, got {labels.shape[1]}")
        n_rows, n_more = X.shape[0], rows.shape[0]
        if sample_weight is not None:
            sample_weight = np.concatenate([sample_weight, np.ones(n_more, dtype=sample_weight.dtype)])
        every: csr_array | NDArray[Any]
        if isinstance(X, np.ndarray) and isinstance(rows, np.ndarray):
            every = np.vstack([X, rows])
        else:
            dtype = np.promote_types(X.dtype, rows.dtype)
            every = canonical_csr(vstack([csr_array(X), rows], format="csr", dtype=dtype), "X")
        known = canonical_csr(vstack([Y, labels], format="csr", dtype=Y.dtype), "y")
        return every, known, sample_weight, np.arange(n_rows + n_more) >= n_rows

    def _check_goes_on(self, n_rules: int, n_labels: int) -> None:
        """Check that a warm start has as many labels as the previous fit, and at least as many rules."""
        if n_labels != self.heads_.shape[1]:
            raise ValueError(
                f"Y must have {self.heads_.shape[1]} labels, as in the fit that `warm_start` continues, "
                f"got {n_labels}"
            )
        if n_rules < len(self.coverage_):
            raise ValueError(
                f"`n_rules` must be an integer >= {len(self.coverage_)}, the number of rules of the fit that "
                f"`warm_start` continues, got {n_rules}"
            )
