"""Boosted rules as an estimator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse
from scipy.special import expit
from sklearn.utils.validation import check_is_fitted

from manylabel import _core
from manylabel.estimator import parameters as kinds
from manylabel.estimator.base import MultiLabelClassifier, core_rows
from manylabel.estimator.parameters import n_threads
from manylabel.estimator.progress import Progress, reported
from manylabel.estimator.registry import register
from manylabel.estimator.schema import Array, Scalar, Schema, SparseMatrix
from manylabel.estimator.validation import check_features, check_row, check_training_set, held_out_rows
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
    n_tried,
)

__all__ = ["BoostedRulesClassifier"]


@register(command="rules", demo=("Boosted rules", lambda rules: rules(n_rules=500, random_state=0)))
class BoostedRulesClassifier(MultiLabelClassifier):
    """Gradient-boosted rules ``if alpha > 0.5 and beta <= 1.2 then +0.8 for these labels``.

    The score of a label for a row is the sum of what the rules that cover the row add to it. Rules are added
    one at a time. Each is grown condition by condition on a bootstrap sample, so that its head, a Newton step
    of the loss over the rows it covers, lowers the loss most [1]_. Labels with similar steps may share a bin
    and a score, which shortens the step and shrinks its system of equations [2]_. By default each label has a
    score of its own, and steps that overshoot are halved.

    Parameters
    ----------
    n_rules : int, default=1000
        Number of rules, including the default rule, which covers every row; >= 1. [2]_ uses 5000.
    loss : {"example-wise-logistic", "label-wise-logistic"}, default="example-wise-logistic"
        For scores p and labels y = +-1 of a row. "example-wise-logistic" is ``log(1 + sum_k exp(-y_k p_k))``,
        a surrogate of the subset 0/1 loss that couples the labels. "label-wise-logistic" is
        ``sum_k log(1 + exp(-y_k p_k))``, a surrogate of the Hamming loss.
    head : {"complete", "single-label"}, default="complete"
        Whether a rule scores all labels, or only the one that lowers the loss most.
    label_binning : float or None, default=None
        Number of bins of a complete head, as a share of the labels with steps of either sign; in (0, 1]. None
        gives every label a score of its own. [2]_ uses 0.04 and Newton steps.
    min_bins : int, default=1
        Minimum number of bins of either sign; >= 1.
    max_bins : int or None, default=None
        Maximum number of bins of either sign; >= `min_bins`. None for no limit.
    hessian : {"paper", "restricted"}, default="paper"
        Second derivatives between labels of one bin. "paper" drops them as [2]_ does, which keeps steps
        short; "restricted" keeps them.
    step : {"auto", "newton", "safeguarded"}, default="auto"
        Length of a step: the full Newton step, or that step halved until the loss falls enough. "auto" is
        "newton" for the label-wise loss and for bins with ``hessian="paper"``, and otherwise "safeguarded",
        since full steps overshoot if most labels are rare.
    search : {"fast", "exact"}, default="fast"
        "exact" tries every threshold, each with bins of its own. "fast" tries at most 64 thresholds per
        numeric feature (one more if most of its values are 0). With label binning it also judges features
        with mostly nonzero values by the bins of the rule so far, and with more than 256 labels all features.
        Heads are exact in both.
    learning_rate : float, default=0.3
        Factor of every head except that of the default rule; in (0, 1].
    l2 : float, default=1.0
        Weight of the squared scores of a head, relative to the loss; finite and >= 0.
    bootstrap : bool, default=True
        Whether each rule is grown on rows drawn with replacement, rather than on all rows.
    max_features : int, float, "log2" or None, default="log2"
        Number of features that are drawn and tried for each condition: ``floor(log2(n_features - 1) + 1)``,
        a number, a share in (0, 1], or all.
    min_coverage : int, default=1
        Minimum number of sampled rows that a rule covers; >= 1.
    max_conditions : int or None, default=None
        Maximum number of conditions per rule; >= 1. None for no limit.
    predictor : {"auto", "known-label-sets", "signs"}, default="auto"
        How `predict` uses the scores. "known-label-sets" returns the label set of a training row with the
        lowest example-wise loss, "signs" the labels with positive scores. "auto" is the former for the
        example-wise loss and the latter for the label-wise loss.
    categorical_features : sequence of int, bool or str, default=None
        Nominal features, as positions, a mask or names. Their conditions test for equality with a value. All
        other features are numeric. A model can be saved if this is a list, but not if it is an ndarray.
    warm_start : bool, default=False
        Whether `fit` continues from the rules of the previous fit. `n_rules` must be at least their number;
        the seed is kept. On the same data the result is that of a single fit.
    early_stopping : bool, default=False
        Whether to hold rows out and stop when the loss on them no longer falls. The model keeps the rules up
        to the lowest loss.
    validation_fraction : float, default=0.1
        Share of the rows that `early_stopping` holds out, at least one row; > 0 and < 1.
    n_iter_no_change : int, default=50
        Rules without a lower held-out loss after which `early_stopping` stops; >= 1.
    random_state : int, RandomState instance or None, default=None
        Seeds the samples of rows and features and the held-out rows. Pass an int for reproducible results.

    Attributes
    ----------
    body_indptr_ : ndarray of shape (n_rules + 1,), dtype int64
        Rule r has the conditions ``body_indptr_[r]`` to ``body_indptr_[r + 1]``. The first rule is the
        default rule, which has none. There are fewer than `n_rules` rules if no further rule could be found.
    body_feature_ : ndarray of shape (n_conditions,), dtype int32
        Feature of each condition.
    body_operator_ : ndarray of shape (n_conditions,), dtype uint8
        0 for ``value <= threshold``, 1 for ``>``, 2 for ``==``, 3 for ``!=``. NaN satisfies none of them.
    body_threshold_ : ndarray of shape (n_conditions,), dtype float32
        Threshold of each condition. Values are rounded to float32 before the comparison.
    heads_ : csr_array of shape (n_rules, n_labels), dtype float32
        What a rule adds to the scores of the rows it covers.
    coverage_ : ndarray of shape (n_rules,), dtype float64
        Sum of the weights of the training rows that a rule covers.
    validation_loss_ : ndarray of shape (n_rules,) or (0,), dtype float64
        Weighted mean loss of the held-out rows after each rule; empty without `early_stopping`.
    label_sets_ : csr_array of shape (n_label_sets, n_labels), dtype float32
        The distinct label sets of the training rows (without held-out rows), as rows of ones; most frequent
        first, then in order of appearance.
    label_set_weights_ : ndarray of shape (n_label_sets,), dtype float64
        Sum of the weights of the rows with each label set.
    seed_ : int
        The seed drawn from `random_state`.
    rules_ : Rules
        The rules as one object of plain arrays.
    feature_importances_ : ndarray of shape (n_features,), dtype float64
        Share of each feature in the score movement by rules (see Notes).
    label_importances_ : ndarray of shape (n_labels,), dtype float64
        Share of each label in the score movement by rules (see Notes).

    See Also
    --------
    manylabel.rules.export_text : The rules as text.
    manylabel.rules.plot_importance : Bars for features and labels.

    Notes
    -----
    A score is the sum of the heads of the rules that cover the row, added in double precision. With the
    label-wise loss, `predict_proba` returns ``1 / (1 + exp(-score))``. With the example-wise loss it returns
    the marginals of ``P(y) ~ 1 / (1 + sum_k exp(-y_k p_k))`` over the label sets seen in fit, where p are the
    scores. With "known-label-sets", label sets with equal loss are resolved in favor of the first in
    `label_sets_`.

    X may contain NaN for missing values; they satisfy no condition. Labels that no training row has get the
    score -inf and are never predicted.

    Memory is 16 bytes per row and label, and about 16 per stored value of X. No matrix of labels x labels is
    kept per row. A few per thread are kept for groups of rows: without bins, with exact search, or with bins
    and sparse features of up to 256 labels. The first rules of a fit do not depend on `n_rules`.

    The movement of a label by a rule is the absolute score times the coverage of the rule.
    `label_importances_` are the shares of the labels in the movement by all rules except the default rule.
    `feature_importances_` are those of the features, where the conditions of a rule share its movement
    equally.

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

    parameters = kinds.Parameters(
        n_rules=kinds.Count(1),
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
        predictor=kinds.Choice("auto", "known-label-sets", "signs"),
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
    seed_: int

    def __init__(
        self,
        n_rules: int = 1000,
        *,
        loss: str = "example-wise-logistic",
        head: str = "complete",
        label_binning: float | None = None,
        min_bins: int = 1,
        max_bins: int | None = None,
        hessian: str = "paper",
        step: str = "auto",
        search: str = "fast",
        learning_rate: float = 0.3,
        l2: float = 1.0,
        bootstrap: bool = True,
        max_features: int | float | Literal["log2"] | None = "log2",
        min_coverage: int = 1,
        max_conditions: int | None = None,
        predictor: str = "auto",
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

    def _fit(self, X: Any, y: Any, sample_weight: Any, progress: Progress) -> None:
        params = self.parameters.check(self)
        params["step"] = chosen_step(params)
        goes_on = params["warm_start"] and hasattr(self, "heads_")
        sparse_output = issparse(y)
        if not goes_on:
            for name in [name for name in vars(self) if name.endswith("_")]:
                delattr(self, name)
        X, y, sample_weight = check_training_set(self, X, y, sample_weight, reset=not goes_on)
        if goes_on:
            self._check_goes_on(params["n_rules"], y.shape[1])
        if goes_on:
            params["random_state"] = self.seed_
        params["max_features"] = n_tried(params["max_features"], X.shape[1])
        held_out = None
        if params["early_stopping"]:
            held_out = held_out_rows(params["validation_fraction"], X.shape[0], params["random_state"])
        with reported(params["n_rules"], "rule", params["verbose"], progress) as report:
            fitted = _core.fit_rules(
                (X, y, sample_weight),
                held_out,
                categorical_positions(self),
                self if goes_on else None,
                params,
                (params["n_jobs"], report),
            )
        self.body_indptr_, self.body_feature_, self.body_operator_, self.body_threshold_ = fitted[:4]
        self.coverage_, self.validation_loss_ = fitted[5:]
        self.heads_ = core_rows(fitted[4], (len(self.coverage_), y.shape[1]))
        self.label_sets_, self.label_set_weights_ = label_sets(y, sample_weight, held_out)
        self.seed_ = params["random_state"]
        self.classes_ = np.arange(y.shape[1])
        self.sparse_output_ = sparse_output

    def _make_scorer(self) -> _core.Scorer:
        return _core.rules_scorer(self)

    @property
    def _names_sets(self) -> bool:
        """Whether `predict` returns label sets of training rows; read by the core."""
        predictor = self.parameters["predictor"].check("predictor", self.predictor)  # it may be set after fit
        return chosen_predictor(predictor, self.loss) == "known-label-sets"

    def _knows_probabilities(self) -> bool:
        return True

    def _probabilities(self, X: csr_array | NDArray[Any]) -> NDArray[np.float64]:
        if self.loss == "label-wise-logistic":
            scores = self._scorer().decision(X, n_threads(self.n_jobs))
            return np.asarray(expit(scores, dtype=np.float64))
        return super()._probabilities(X)

    def staged_decision_function(self, X: Any) -> Iterator[NDArray[np.float32]]:
        """Score every label of every row by the first rule, the first two, and so on.

        Returns
        -------
        iterator of ndarray of shape (n_samples, n_labels), or (n_samples,) if y was 1-D, dtype float32
            One new array per rule; the last equals the result of `decision_function`.

        Raises
        ------
        ValueError
            If X has another number of features than in fit, or is invalid.

        Notes
        -----
        Each stage checks the arrays of the whole model, so the time of all stages together is quadratic in
        the number of rules.
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
        """The rules as one object of plain arrays."""
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
        """Shares of the features in the score movement by rules; they sum to 1, or to 0 without rules."""
        return feature_importances(self.rules_, self.n_features_in_)

    @property
    def label_importances_(self) -> NDArray[np.float64]:
        """Shares of the labels in the score movement by rules; they sum to 1, or to 0 without rules."""
        return label_importances(self.rules_)

    def explain(
        self,
        x: Any,
        label: int | None = None,
        *,
        feature_names: Sequence[str] | None = None,
        label_names: Sequence[str] | None = None,
    ) -> list[FiredRule]:
        """List the rules that cover a row, with what each adds to the scores.

        Parameters
        ----------
        x : array-like or sparse matrix of shape (n_features,) or (1, n_features)
            The features of one row.
        label : int, default=None
            If given, only the rules that score this label are listed, by falling absolute score; otherwise
            all rules, in order of the ensemble.
        feature_names : sequence of str of length n_features, default=None
            Names that the text uses. By default ``feature_names_in_``, or else "feature 0", "feature 1", ...
        label_names : sequence of str of length n_labels, default=None
            Names that the text uses. By default "label 0", "label 1", ...

        Returns
        -------
        list of FiredRule
            They print as text. Their scores sum to the row's `decision_function`.

        Raises
        ------
        ValueError
            If x is not one row as in fit, or there is no such label.
        """
        check_is_fitted(self, "heads_")
        _, fired, _ = _core.rules_fired(self, check_row(self, x), 1)
        return fired_rules(self, fired, label, feature_names, label_names)

    def to_frame(
        self, *, feature_names: Sequence[str] | None = None, label_names: Sequence[str] | None = None
    ) -> Any:
        """Return the rules as a data frame, for sorting and filtering.

        Returns
        -------
        pandas.DataFrame
            One row per rule: "conditions" and "head" as text, "n_conditions", "coverage", "n_labels" (number
            of labels scored), "strongest_label" with its "score", and "validation_loss" if rows were held
            out.

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

    def _check_goes_on(self, n_rules: int, n_labels: int) -> None:
        """Check that a warm start fits the previous model; features are checked with X."""
        if n_labels != self.heads_.shape[1]:
            raise ValueError(
                f"labels of Y: expected {self.heads_.shape[1]} as in the fit that `warm_start` continues, "
                f"got {n_labels}"
            )
        if n_rules < len(self.coverage_):
            raise ValueError(
                f"`n_rules` must be an integer >= {len(self.coverage_)}, the number of rules that "
                f"`warm_start` continues from, got {n_rules}"
            )
