"""The meta-estimator `LabelCalibrator`, which gives a classifier calibrated probabilities."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse, vstack
from sklearn.utils.validation import check_is_fitted

from manylabel import _core
from manylabel.decision.rules import of_known_entries
from manylabel.estimator import parameters as kinds
from manylabel.estimator.base import MultiLabelClassifier, core_rows
from manylabel.estimator.explanation import Explained
from manylabel.estimator.parameters import check_count, n_threads, shown
from manylabel.estimator.progress import Progress
from manylabel.estimator.registry import register
from manylabel.estimator.schema import Array, Model, Scalar, Schema
from manylabel.estimator.validation import KeptDense, check_training_set, known_ones, unknown_entries
from manylabel.metrics.calibration import hits_of
from manylabel.partition.any_classifier import AnyClassifier, rows_at_once
from manylabel.partition.asked import DenseScorer
from manylabel.partition.base import core_scorer
from manylabel.partition.models import seeded

__all__ = ["LabelCalibrator"]

# Fitted arrays of the two methods.
_OF_SIGMOIDS = ("knot_scores", "knot_log_odds", "intercept", "slope", "variance")
_OF_STEPS = ("curve_ends", "curves", "curve_scores", "curve_probabilities")


# With "auto", folds are used if Y has fewer ones than this number; see the Notes of `LabelCalibrator`.
# A tenth of the rows then has fewer than about 25,000 ones. Up to this number, five folds lowered the log
# loss.
_FEW_ONES = 250_000
_FOLDS, _SHARE = 5, 0.1


@register
class LabelCalibrator(MultiLabelClassifier):
    """Calibrated probabilities for any multi-label classifier.

    Some rows are held out, and are scored by a model that is not fitted to them. In each row, the labels with
    the highest scores are called candidates. Each label gets a curve. The curve converts the score of the
    label to the probability that the row has the label. The curve is fitted to the held-out rows in which the
    label is a candidate.

    Most labels are true in only a few held-out rows, which is too little data to fit a separate curve. By
    default, the curves are therefore pooled. Labels that occur in about the same number of training rows form
    a group. The curve of a label is shrunk towards the curve of its group. The curve of a group is shrunk
    towards one curve for all labels. The parameters `method` and `pooling` select other kinds of curves.

    Parameters
    ----------
    estimator : estimator
        The classifier. A classifier that is not from this library must have scikit-learn's interface, support
        multi-label targets, and have the method `decision_function` or `predict_proba`.
    method : {"sigmoid", "isotonic"}, default="sigmoid"
        Form of the curves. "sigmoid" fits two parameters per label. "isotonic" fits a non-decreasing,
        piecewise linear curve, which needs more data.
    pooling : {"frequency", "none", "all"}, default="frequency"
        Which labels share data. "frequency" groups the labels that occur in about the same number of training
        rows. With the method "sigmoid", the curve of a label is shrunk towards the curve of its group. With
        "isotonic", each frequent label has its own curve, and the other labels of a group share one curve
        (see the Notes of `LabelCalibrator`). "all" fits one curve to the candidates of all held-out rows, and
        all labels use this curve. "none" fits a separate curve for each label, without data of other labels.
        With "none", a label that is a candidate in no held-out row gets the curve of "all". With "all" and
        "none", `method` determines how the curves are fitted: "sigmoid" uses Platt's method [1]_, and
        "isotonic" uses isotonic regression [2]_.
    cv : {"auto", "prefit"}, int or float, default="auto"
        Which rows are held out. A float between 0 and 1 is the fraction of the rows to hold out. An int >= 2
        is a number of folds: each fold is scored by a model that is fitted to the other folds. "auto" means
        five folds if Y has fewer than 250,000 ones, and otherwise a tenth of the rows. The Notes of
        `LabelCalibrator` give the reason. "prefit" means that `estimator` is already fitted, and that all
        rows that are passed to `fit` count as held out. Pass only rows that `estimator` has not seen.
    n_candidates : int, default=100
        Number of candidates per row, >= 1. The candidates are the labels with the highest scores.
    refit : bool, default=True
        Whether `estimator_` is a model that is fitted to all rows. If False, `estimator_` is the model that
        scored the held-out rows. In this case, `cv` must be a fraction or "auto", and "auto" means a tenth of
        the rows. `refit` is ignored if `cv` is "prefit".
    max_memory : int, default=1073741824
        Maximum size of the result of `predict_proba` in bytes. The result is a dense array with one number
        for each row and label. `predict_proba` raises a `MemoryError` if the result would be larger. The
        default is 1 GiB.

    Attributes
    ----------
    estimator_ : estimator
        The fitted classifier.
    cv_ : int or float
        The value of `cv`, as given or chosen. This attribute does not exist if `cv` is "prefit".
    tail_probability_ : float
        The probability that `predict_proba` returns for every label that is not a candidate of a row, except
        for the labels in `unseen_`. `fit` counts all pairs of a held-out row and a label that is not a
        candidate of this row. `tail_probability_` is the fraction of these pairs in which the row has the
        label. Labels in `unseen_` and unknown entries of Y are left out.
    unseen_ : ndarray of shape (n_unseen,), dtype int64
        Labels that occur in no training row. If a label in `unseen_` is not a candidate of a row, its
        probability is 0.
    knot_scores_, knot_log_odds_ : ndarray of shape (n_knots,), dtype float64
        Points of a common curve f, with the method "sigmoid". The curves of all labels are computed from f
        (see `intercept_`). The arrays contain increasing scores and the log-odds at these scores. Between two
        scores, f is linear. Below the lowest and above the highest score, f continues as a straight line.
        With the pooling "none" or "all", the arrays are empty. For empty arrays, f(score) is the score
        itself.
    intercept_, slope_ : ndarray of shape (n_labels,), dtype float64
        Parameters of the curve of each label, with the method "sigmoid". The log-odds of label l are
        ``intercept_[l] + slope_[l] * f(score)``, where f is the curve of `knot_scores_` and `knot_log_odds_`.
    variance_ : float
        How much the curves of labels may differ from the curves of their groups, with the method "sigmoid"
        and the pooling "frequency". Each label has a shift ``a`` (see the Notes of `LabelCalibrator`). The
        prior of this shift is normal. Its mean is the shift of the group of the label, and its variance is
        `variance_`. With a smaller variance, the curves of labels are closer to the curves of their groups.
        If `variance_` is 0, all labels of a group have the same curve. The value is from 0 to 3 and is chosen
        by cross-validation.
    curves_ : ndarray of shape (n_labels,), dtype int32
        Index of the curve of each label, with the method "isotonic".
    curve_ends_ : ndarray of shape (n_curves + 1,), dtype int64
        Positions of the curves, with the method "isotonic". Curve i has the entries ``curve_ends_[i]`` to
        ``curve_ends_[i + 1] - 1`` of `curve_scores_` and `curve_probabilities_`.
    curve_scores_, curve_probabilities_ : ndarray of shape (n_points,), dtype float64
        Points of the curves, with the method "isotonic": increasing scores and the probabilities at these
        scores. Between two points, a curve is linear. A score below the first point of a curve has the
        probability of the first point. A score above the last point has the probability of the last point.

    See Also
    --------
    DecisionClassifier : Also chooses label sets.
    manylabel.metrics.calibration_error : Measures calibration.

    Notes
    -----
    The groups of ``pooling="frequency"`` and the labels in `unseen_` depend on the training rows. The
    training rows are the rows to which `estimator_` was fitted. With ``cv="prefit"``, the training rows are
    not known, and the rows that are passed to `fit` are used instead.

    With ``method="sigmoid"`` and ``pooling="frequency"``, `fit` first computes a common curve f for all
    labels. The value f(s) is the log-odds that a candidate with score s is a true label. The curve f is
    fitted to the candidates of all held-out rows, by isotonic regression on bins of scores. With little data,
    f is fitted by Platt's method instead.

    The log-odds of a label with score s are ``f(s) + a + b * (f(s) - c)``. The number c is the mean of f over
    all candidates that are true labels. Each label has its own shift ``a`` and its own change of slope ``b``.
    `intercept_` is ``a - b * c``, and `slope_` is ``1 + b``.

    Penalized logistic regressions fit ``a`` and ``b``, first for each group and then for each label. The
    penalties shrink the values of a group towards 0, and the values of a label towards the values of its
    group. The curve of a rare label therefore stays close to the curve of its group. The curve of a frequent
    label can differ more. With this pooling, all curves are non-decreasing.

    `variance_` determines the strength of the penalties for labels. `fit` chooses the value with the lowest
    log loss in five-fold cross-validation over the held-out rows, without new fits of `estimator`.

    With ``method="isotonic"`` and ``pooling="frequency"``, frequent labels have separate curves. A label is
    frequent if it is a candidate in at least 200 held-out rows that have the label, and in at least 200
    held-out rows that do not.

    ``cv="auto"`` uses five folds if Y has fewer than 250,000 ones. The probabilities are then better than if
    a tenth of the rows is held out. In tests with DiSMEC and label trees, five folds lowered the log loss on
    test rows. The table shows by how much five folds changed the log loss, compared with a tenth of the rows
    held out:

    ======================= ======================== ======================
    data                    ones in a tenth of rows  change of the log loss
    ======================= ======================== ======================
    bibtex                  1,200                    -2 %
    delicious, 3,000 rows   5,700                    -0.6 %
    citeulike-t             20,700                   -0.5 %
    delicious               24,600                   -0.4 %
    ======================= ======================== ======================

    The more ones Y has, the smaller the change. On citeulike-t, five folds also raised the precision at 1 by
    1 percentage point. A fit with five folds took 4 to 6.6 times as long as a fit without calibration. A fit
    with a tenth of the rows took 1.4 to 2.1 times as long as a fit without calibration.

    The probabilities of `DiSMECClassifier`, `LabelTreeClassifier` and `BlockPartitionClassifier` were tested
    on five data sets with 159 to 24,522 labels. `manylabel.metrics.calibration_error` with 15 bins was at
    most 0.006 over the candidates of all labels together. The error was at most 0.032 over the candidates
    with probabilities above 0.3. The measured error of a single label that is a candidate in few rows is
    mostly random.

    `predict_topk` ranks labels by scores, and `predict_proba_topk` by probabilities. The rankings can differ,
    because labels have different curves. With label trees on citeulike-t, the precision at 5 of the two
    rankings differed by 0.2 percentage points. The ranking by scores was better with a tenth of the rows held
    out, and the ranking by probabilities was better with five folds.

    If Y has unknown entries (NaN), they are passed to `estimator`, which must then be from this library. The
    curves are fitted to the known entries of the held-out rows.

    If `refit` is True and `estimator` is from this library, the fit to all rows chooses the values of the
    parameters that are "auto". The models that score the held-out rows use these values and do not search
    again. If `estimator` is from another library, every model is fitted with the given parameters.

    Predictions take the candidates of a row and their scores from ``estimator_.predict_topk``. No array of
    size rows × labels is allocated, except for the results of `predict_proba` and `decision_function`. The
    dense scores of a classifier of another library are computed for a few rows at a time.

    If `estimator` is from another library, Ctrl-C ends the fit of the calibrator only when the running fit of
    `estimator` is done.

    References
    ----------
    .. [1] J. Platt, "Probabilistic outputs for support vector machines and comparisons to regularized
       likelihood methods", 1999.
    .. [2] B. Zadrozny and C. Elkan, "Transforming classifier scores into accurate multiclass probability
       estimates", KDD 2002.

    Examples
    --------
    >>> import manylabel as ml
    >>> from manylabel.decision import LabelCalibrator
    >>> X, Y = ml.datasets.make_multilabel(300, 50, 10, random_state=0)
    >>> model = LabelCalibrator(ml.DiSMECClassifier(random_state=0), random_state=0).fit(X, Y)
    >>> model.predict_proba_topk(X, k=3).shape
    (300, 10)
    """

    parameters = kinds.Parameters(
        estimator=kinds.Classifier(),
        method=kinds.Choice("sigmoid", "isotonic"),
        pooling=kinds.Choice("frequency", "none", "all"),
        cv=kinds.Either("auto", "prefit", kinds.Count(2), kinds.Number(above=0, below=1)),
        n_candidates=kinds.Count(1),
        refit=kinds.Flag(),
        max_memory=kinds.Count(1, 2**62),
        **kinds.SEEDED_RUN,
    )

    schema = Schema(
        **MultiLabelClassifier.fitted,
        estimator_=Model(),
        cv_=Scalar(float, finite=True, optional=True),
        tail_probability_=Scalar(float, finite=True),
        unseen_=Array(("n_unseen",), "i8", below="n_labels"),
        knot_scores_=Array(("n_knots",), "f8", optional=True),
        knot_log_odds_=Array(("n_knots",), "f8", optional=True),
        intercept_=Array(("n_labels",), "f8", optional=True),
        slope_=Array(("n_labels",), "f8", optional=True),
        variance_=Scalar(float, finite=True, optional=True),
        curve_ends_=Array(("n_curves + 1",), "i8", ends="n_points", optional=True),
        curves_=Array(("n_labels",), "i4", below="n_curves", optional=True),
        curve_scores_=Array(("n_points",), "f8", optional=True),
        curve_probabilities_=Array(("n_points",), "f8", optional=True),
    )

    chosen = ("cv",)

    estimator_: Any
    cv_: int | float
    tail_probability_: float
    unseen_: NDArray[np.int64]

    def __init__(
        self,
        estimator: Any,
        *,
        method: Literal["sigmoid", "isotonic"] = "sigmoid",
        pooling: Literal["frequency", "none", "all"] = "frequency",
        cv: int | float | Literal["auto", "prefit"] = "auto",
        n_candidates: int = 100,
        refit: bool = True,
        max_memory: int = 2**30,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self._assign(locals())

    @property
    def calibration_(self) -> dict[str, Any]:
        """Dict of the attributes that define the fitted curves.

        The keys are the names of these attributes without the underscore at the end.
        """
        names = _OF_STEPS if hasattr(self, "curves_") else _OF_SIGMOIDS
        return {name: getattr(self, f"{name}_") for name in names}

    def _make_scorer(self) -> Any:
        if isinstance(self.estimator_, MultiLabelClassifier):
            return self.estimator_._scorer()
        return DenseScorer(lambda X, _: self.estimator_.decision_function(csr_array(X)), self._n_labels)

    def _explained(self, x: csr_array, label: int, names: Sequence[str]) -> Explained:
        if isinstance(self.estimator_, MultiLabelClassifier):
            return self.estimator_._explained(x, label, names)
        return super()._explained(x, label, names)

    def _fit(self, X: Any, y: Any, sample_weight: Any, progress: Progress) -> None:
        self._calibrate(X, y, sample_weight, progress, self.parameters.check(self))

    @property
    def _dense(self) -> KeptDense:
        return True

    def _calibrate(
        self, X: Any, y: Any, sample_weight: Any, progress: Progress, params: dict[str, Any]
    ) -> tuple[csr_array, csr_array]:
        """Fit the classifier and the curves. Return the scores and the true labels of the held-out rows.

        If `params` has the entry "spare", half of the held-out rows are not used for the curves. The method
        then returns the scores and the true labels of this half only.
        """
        cv = params["cv"]
        sparse_output, dense = issparse(y), (not issparse(X), not issparse(y))
        X, y, sample_weight = check_training_set(self, X, y, sample_weight, dense=self._dense, unknown=True)
        self.__dict__.pop("cv_", None)  # an earlier fit may have set it
        if cv != "prefit" and not params["refit"] and isinstance(cv, int):
            raise ValueError(f'if `refit` is False, `cv` must be a fraction, "auto" or "prefit", got {cv}')
        fitting = _Fitting(self.estimator, params, dense, progress)
        n_rows, n_labels = y.shape
        if cv == "prefit":
            self.estimator_ = fitting.prefit(n_labels)
            held = [np.arange(n_rows)]
            frequency = np.bincount(known_ones(y).indices, minlength=n_labels)
            scored = [fitting.scores(self.estimator_, X)]
        else:
            if cv == "auto":
                folds = params["refit"] and n_rows > 1 and known_ones(y).nnz < _FEW_ONES
                cv = min(_FOLDS, n_rows) if folds else _SHARE
            self.cv_ = cv
            held = list(_held_out(cv, n_rows, params["random_state"]))
            settings = self.estimator
            if params["refit"]:
                self.estimator_ = fitting.fitted(settings, X, y, sample_weight)
                if isinstance(self.estimator_, MultiLabelClassifier):
                    settings = self.estimator_._as_chosen()
            scored = []
            for rows in held:
                rest = np.ones(n_rows, dtype=bool)
                rest[rows] = False
                others = None if sample_weight is None else sample_weight[rest]
                model = fitting.fitted(settings, X[rest], y[rest], others)
                scored.append(fitting.scores(model, X[rows]))
            if not params["refit"]:
                self.estimator_ = model
            of_fit = y if params["refit"] else y[rest]
            frequency = np.bincount(known_ones(of_fit).indices, minlength=n_labels)
        scores = csr_array(vstack(scored, format="csr")) if len(scored) > 1 else scored[0]
        Y = y[np.concatenate(held)]
        if params.get("spare"):
            # Half of the rows is not used for the curves.
            order = np.random.default_rng([params["random_state"], 1]).permutation(Y.shape[0])
            spared, used = np.sort(order[: len(order) // 2]), np.sort(order[len(order) // 2 :])
            self._fit_curves(scores[used], Y[used], frequency, params)
            scores, Y = scores[spared], Y[spared]
        else:
            self._fit_curves(scores, Y, frequency, params)
        self.classes_ = np.arange(n_labels)
        self.sparse_output_ = sparse_output
        return scores, Y

    def _fit_curves(
        self, scores: csr_array, Y: csr_array, frequency: NDArray[np.intp], params: dict[str, Any]
    ) -> None:
        for name in (*_OF_SIGMOIDS, *_OF_STEPS):  # an earlier fit may have set them
            self.__dict__.pop(f"{name}_", None)
        unknown = unknown_entries(Y)
        n_unknown = 0
        if unknown is not None:
            n_unknown = int(np.count_nonzero(frequency[unknown.indices]))
            scores, Y = of_known_entries(scores, Y)
        arrays = _core.fit_calibration(
            scores, Y, frequency.astype(np.int32), params, (params["n_jobs"], None)
        )
        for name, value in arrays.items():
            setattr(self, f"{name}_", value)
        seen = frequency > 0
        hits = scores.indices[hits_of(scores, Y)]
        n_missed = np.count_nonzero(seen[Y.indices]) - np.count_nonzero(seen[hits])
        n_candidates = np.count_nonzero(seen[scores.indices])
        n_others = scores.shape[0] * np.count_nonzero(seen) - n_unknown - n_candidates
        self.tail_probability_ = float(n_missed / n_others) if n_others > 0 else 0.0
        self.unseen_ = np.flatnonzero(~seen)

    def _calibrated(self, scores: csr_array) -> csr_array:
        """Convert scores of candidates to probabilities."""
        self._check_arrays(scores.shape[1])
        curves = {**self.calibration_, "method": "isotonic" if hasattr(self, "curves_") else "sigmoid"}
        curves = {
            name: np.require(value, requirements=["C", "A"]) if isinstance(value, np.ndarray) else value
            for name, value in curves.items()
        }
        found = _core.calibrated(scores, curves, n_threads(self.n_jobs))
        return core_rows((scores.indptr, scores.indices, found), scores.shape)

    def _check_arrays(self, n_labels: int) -> None:
        """Raise a ValueError if the fitted arrays are not valid for a classifier with `n_labels` labels."""
        if self._n_labels != n_labels:
            raise ValueError(
                f"`classes_` must have {n_labels} labels, like `estimator_`, got {self._n_labels}"
            )
        sizes = {"n_labels": n_labels}
        for name in ("unseen_", *(f"{name}_" for name in self.calibration_)):
            self.schema.attributes[name].check(name, getattr(self, name), sizes)

    def _candidates(self, X: Any, k: int) -> csr_array:
        """Return the probabilities of the labels with the highest scores of every row.

        The number of labels per row is ``max(k, n_candidates)``, or fewer if the estimator scores fewer.
        """
        k = max(k, check_count("n_candidates", self.n_candidates, 1))
        return self._calibrated(_topk(self.estimator_, X, k, self.n_jobs))

    def predict_proba_topk(self, X: Any, k: int = 5) -> csr_array:
        """Estimate the probabilities of the k most probable labels of every row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features.
        k : int, default=5
            Number of labels per row, >= 1. A row gets fewer labels if the estimator scores fewer than k
            labels for the row. This may happen with label trees.

        Returns
        -------
        csr_array of shape (n_samples, n_labels), dtype float32
            The probabilities. The entries of a row are sorted by column index, not by probability. If labels
            have the same probability, labels with lower column indices are preferred.

        Raises
        ------
        ValueError
            If k < 1, if X is not valid, or if X and the training data have different numbers of features.
        """
        self._check_fitted()
        k = check_count("k", k, 1)
        found = self._candidates(self._features(X), k)
        return core_rows(_core.topk_of_rows(found, k), found.shape)

    def predict_topk(self, X: Any, k: int = 5) -> csr_array:
        """Predict the k labels with the highest scores for every row.

        The scores are those of `estimator_`, not the calibrated probabilities. To get the labels with the
        highest probabilities, call `predict_proba_topk`.

        Parameters
        ----------
        k : int, default=5
            Number of labels per row, >= 1.

        Returns
        -------
        csr_array of shape (n_samples, n_labels), dtype float32
            The scores of the k best labels of each row.
        """
        self._check_fitted()
        return _topk(self.estimator_, self._features(X), check_count("k", k, 1), self.n_jobs)

    def predict(self, X: Any) -> csr_array | NDArray[np.int64]:
        """Predict the labels with probabilities above 1/2.

        Returns
        -------
        ndarray or csr_array of shape (n_samples, n_labels), or (n_samples,) if y was 1-D, dtype int64
            0/1 indicator matrix. It is sparse if y was sparse in fit.
        """
        found = self._candidates(self._features(X), 1)
        found.data = (found.data > 0.5).astype(np.int64)
        found.eliminate_zeros()
        return self._indicator(found)

    def _knows_probabilities(self) -> bool:
        return True

    def _probabilities(self, X: csr_array | NDArray[Any]) -> NDArray[Any]:
        n_rows, n_labels = X.shape[0], self._n_labels
        size = 4 * n_rows * n_labels
        if size > self.max_memory:
            raise MemoryError(
                f"the probabilities of {n_rows} rows and {n_labels} labels take {size} bytes, more than "
                f"`max_memory`={self.max_memory}; use predict_proba_topk, which returns a sparse matrix"
            )
        self._check_arrays(self._scorer().n_labels)
        dense = np.full((n_rows, n_labels), self.tail_probability_, dtype=np.float32)
        dense[:, self.unseen_] = 0
        for rows in rows_at_once(n_rows, self.n_candidates):
            found = self._candidates(X[rows], 1)
            of_rows = np.repeat(np.arange(rows.start, rows.stop), np.diff(found.indptr))
            dense[of_rows, found.indices] = found.data
        return dense


class _Fitting:
    """Fits the classifier of a calibrator, and computes the scores of this classifier."""

    def __init__(
        self, estimator: Any, params: dict[str, Any], dense: tuple[bool, bool], progress: Progress
    ) -> None:
        self.estimator, self.params = estimator, params
        self.dense, self.progress = dense, progress
        self.is_ours = isinstance(estimator, MultiLabelClassifier)
        self.before, self.done = 0, 0  # the work of the earlier fits and of the present one

    def _tell(self, done: int) -> None:
        """Report the amount of work done so far in all fits.

        `done` is the amount of work done so far in the present fit. The work of the earlier fits is added to
        `done`, so the reported amount never falls.
        """
        self.done = done
        if self.progress is not None:
            self.progress(self.before + done)

    def prefit(self, n_labels: int) -> Any:
        """Return the fitted estimator, which must have as many labels as Y."""
        check_is_fitted(self.estimator)
        if self.is_ours:
            found = self.estimator._n_labels
            if found != n_labels:
                raise ValueError(f"Y must have {found} columns, as in the fit of `estimator`, got {n_labels}")
            return self.estimator
        return _adapted(self.estimator, n_labels, self.dense)

    def fitted(self, settings: Any, X: Any, Y: csr_array, sample_weight: Any) -> Any:
        """Fit a clone of the estimator `settings`, and return the fitted model."""
        model = seeded(settings, self.params["random_state"], 0)
        arguments = {} if sample_weight is None else {"sample_weight": sample_weight}
        if not self.is_ours:
            if unknown_entries(Y) is not None:
                raise ValueError(
                    "Y must not have unknown entries (NaN) if `estimator` is from another library, got NaN "
                    f"with the estimator {type(self.estimator).__name__}"
                )
            wrapped = AnyClassifier(model, dense_X=self.dense[0], dense_Y=self.dense[1])
            wrapped.fit(csr_array(X), Y, **arguments)
            if wrapped.error_ is not None:
                raise ValueError(f"`estimator` could not be fitted: {wrapped.error_}")
            return wrapped
        # The fitted model does not depend on the number of threads and shows no progress later.
        run = {"n_jobs": self.params["n_jobs"], "verbose": int(self.params["verbose"])}
        lent = {name: run[name] for name in ("n_jobs", "verbose") if not model.get_params().get(name, True)}
        kept = {name: getattr(model, name) for name in lent}
        model.set_params(**lent).fit(X, Y, **arguments, progress=self._tell)
        self.before, self.done = self.before + self.done, 0
        model.set_params(**kept)
        return model

    def scores(self, model: Any, X: Any) -> csr_array:
        """Return the scores of the candidates of every row."""
        return _topk(model, X, self.params["n_candidates"], self.params["n_jobs"])


def _adapted(estimator: Any, n_labels: int, dense: tuple[bool, bool]) -> AnyClassifier:
    """Wrap a fitted classifier of another library."""
    adapted = AnyClassifier(estimator, dense_X=dense[0], dense_Y=dense[1])
    adapted.n_features_in_ = estimator.n_features_in_
    adapted.classes_ = np.arange(n_labels)
    adapted.varying_ = np.arange(n_labels, dtype=np.int32)
    adapted.log_odds_ = np.zeros(n_labels, dtype=np.float32)
    adapted.estimator_, adapted.error_ = estimator, None
    return adapted


def _input_of(model: Any, X: Any) -> Any:
    return csr_array(X) if isinstance(model, AnyClassifier) else X


def _topk(model: Any, X: Any, k: int, n_jobs: int | None) -> csr_array:
    """Return the scores of the best k labels of every row.

    The argument `n_jobs` is used only if the attribute `n_jobs` of the model is missing or None.
    """
    scorer = core_scorer(model)
    if scorer is not None:
        own = getattr(model, "n_jobs", None)
        threads = n_threads(n_jobs if own is None else own)
        return core_rows(scorer.topk(model._features(X), k, threads), (X.shape[0], scorer.n_labels))
    top: csr_array = model.predict_topk(_input_of(model, X), k=k)
    if not np.isfinite(top.data).all():
        raise ValueError(
            f"`estimator` must return finite scores, got {shown(top.data[~np.isfinite(top.data)])}"
        )
    return top


def _held_out(cv: int | float, n_rows: int, seed: int) -> Iterator[NDArray[np.intp]]:
    """Yield the sorted indices of the held-out rows: once per fold, or only once if `cv` is a fraction."""
    if n_rows == 1:
        raise ValueError("X must have at least two rows, so that rows can be held out, got n_samples = 1")
    order = np.random.default_rng(seed).permutation(n_rows)
    if isinstance(cv, float):
        n_held = max(1, round(cv * n_rows))
        if n_held >= n_rows:
            raise ValueError(
                f"`cv` must leave at least one row to fit `estimator`, got {cv}, which holds out {n_held} of "
                f"{n_rows} rows"
            )
        yield np.sort(order[:n_held])
        return
    if cv > n_rows:
        raise ValueError(f"`cv` must be at most {n_rows}, the number of rows, got {cv}")
    for fold in range(cv):
        yield np.sort(order[fold::cv])
