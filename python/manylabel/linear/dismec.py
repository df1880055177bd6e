"""The classifier `DiSMECClassifier`: one linear classifier per label, with small weights set to zero."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array, issparse, vstack
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from manylabel import _core
from manylabel.estimator import parameters as kinds
from manylabel.estimator.base import core_parts
from manylabel.estimator.costs import LabelCosts, label_costs
from manylabel.estimator.held_out import (
    Fold,
    best_ranked_strength,
    best_strength,
    clearly_lower,
    held_out_folds,
)
from manylabel.estimator.parameters import fixed_threshold
from manylabel.estimator.progress import Progress, Tell, reported
from manylabel.estimator.registry import register
from manylabel.estimator.scaling import ScaledFeatures, ScaledTable, core_table, scaled_features
from manylabel.estimator.schema import Array, Scalar, Schema, Weights
from manylabel.estimator.surgery import EditableLabels
from manylabel.estimator.validation import KeptDense, check_training_set, known_ones
from manylabel.linear.base import LinearClassifier, SparseLinearClassifier
from manylabel.linear.pieces import DiSMECPieces, prepared_for

__all__ = ["DiSMECClassifier"]

# The usual value of C in publications, and the range that ``C="auto"`` searches.
_USUAL_C = 1.0
_LEAST_C, _MOST_C = 1e-3, 1e2

# The value of C from which the search starts if rows have unit length. On fifteen public data sets with such
# rows, the best precision at 1 was at 0.1 to 1, and 0.3 was the best value on ten of them.
# The logistic loss has an eighth of the curvature, so it needs larger values.
_USUAL_C_OF_UNIT_ROWS = {"squared_hinge": 0.3, "logistic": 3.0}

# The number of labels of the longest ranking that is measured. If Y has at most this many labels, such a
# ranking contains all true labels, and C is chosen by the loss.
_LONGEST_RANKING = 5

# If rows are not scaled to unit length, C is chosen by the loss if Y has at most this many labels. All of
# these labels are in the sample for the loss. On twelve public data sets with more labels, precision at 1 was
# 0.3 points lower to 3.8 points higher with the choice by rankings (mean 0.8 higher). On eight sets with 5 to
# 19 labels, it was 3.4 points lower to 1.5 points higher (mean 0.2 lower).
_MOST_LABELS_FOR_LOSS = 32


@register(command="dismec", demo=("DiSMEC", lambda dismec: dismec(random_state=0)))
class DiSMECClassifier(EditableLabels, SparseLinearClassifier):
    """One-vs-rest linear classifier with squared hinge or logistic loss and pruned, sparse weights.

    `fit` trains a separate classifier for each label. The weights w and the intercept b of a label minimize
    ``|w|^2/2 + b^2/2 + C * sum_i max(0, 1 - s_i (w.x_i + b))^2``, where ``s_i`` is 1 if row i has the label
    and -1 otherwise. Weights with an absolute value below `prune` are then set to zero [1]_. With
    ``loss="logistic"``, the loss of row i is ``log(1 + exp(-s_i (w.x_i + b)))``.

    Parameters
    ----------
    C : float or "auto", default="auto"
        Weight of the loss relative to the regularization; finite and > 0. Smaller values regularize more
        strongly. "auto" tries several values and compares them on held-out rows (see Notes). Most
        publications use ``C=1``.
    loss : {"squared_hinge", "logistic"}, default="squared_hinge"
        Loss of a row for a label. With "logistic", each label is fitted by an L2-regularized logistic
        regression. The logistic function of the margin ``w.x + b`` then estimates the probability of the
        label. A fit with "logistic" takes about as long as a fit with "squared_hinge" and ``solver="exact"``.
    prune : float, default=0.01
        Weights with an absolute value below `prune` are set to zero; finite and >= 0. If `normalize` scales
        the columns of X, `prune` applies to the weights of the scaled columns.
    fit_intercept : bool, default=True
        Whether to fit an intercept. The intercept is regularized like the weight of a feature that is 1 in
        every row.
    threshold : {"auto", "zero"} or float, default="auto"
        Number that is subtracted from the margins ``w.x + b`` to get the scores. `predict` assigns the labels
        with positive scores. "auto" learns the threshold on held-out rows, so that about the right number of
        labels is predicted (see Notes). "zero" is the threshold 0, the usual threshold for both losses. With
        "zero", rare labels are rarely predicted.
    solver : {"fast", "exact"}, default="fast"
        Solver for the weights. "exact" computes the optimum of every label over all rows, within `tol`.
        "fast" differs from "exact" only for rare labels, which occur in fewer than 1 % of the rows. If X is
        sparse, "fast" approximates the weights of rare labels from some of the rows (see Notes). With many
        rows, "fast" is then many times faster than "exact", and the rankings are nearly equal. If X is dense,
        "fast" uses all rows, but stops earlier than "exact" for rare labels. With the logistic loss, "fast"
        is the same as "exact".
    tol : float, default=0.01
        Tolerance of the solver; finite and > 0. A label has converged when the norm of the gradient of its
        objective is small enough. The largest allowed norm is
        ``tol * max(1, min(positives, negatives)) / n_samples`` times the norm of the gradient at zero
        weights. Here, positives and negatives are the numbers of rows with and without the label. For rare
        labels, "fast" uses other stopping rules. If X is sparse, it uses the rule of LIBLINEAR: the largest
        and the smallest projected gradient of the dual problem differ by at most ``30 * tol``. The Notes have
        the rule for a dense X.
    max_iter : int, default=1000
        Maximum number of steps per label; >= 1. Rare labels are an exception if X is sparse and the solver is
        "fast". Each rare label is then fitted in several runs of dual coordinate descent, and `max_iter` is
        the maximum number of passes per run. A pass visits the rows that "fast" uses for the label.
    random_state : int, RandomState instance or None, default=None
        Seed of the order in which "fast" visits the rows of a rare label. Pass an int for exactly
        reproducible results.

    Attributes
    ----------
    coef_ : csc_array or ndarray, of shape (n_labels, n_features), dtype float32
        Weights. They are an ndarray if X was dense in `fit` and `loss` is "squared_hinge". Otherwise, they
        are a CSC array.
    intercept_ : ndarray of shape (n_labels,), dtype float32
        Intercepts minus the given or learned threshold (`threshold_`). Labels that occur in no training row
        have the intercept -inf, so that they are never predicted.
    C_ : float
        The value of `C`, as given or chosen.
    n_iter_ : ndarray of shape (n_labels,), dtype int32
        Number of solver steps for each label. For labels that did not converge, the value is `max_iter`. If
        X is sparse and the solver is "fast", rare labels are fitted in several runs (see `max_iter`). The
        value of a rare label is then the number of passes of the longest run.

    See Also
    --------
    manylabel.metrics : Metrics for the rankings of `predict_topk`.

    Notes
    -----
    With ``threshold="auto"``, the threshold is the margin at which the number of predicted labels on held-out
    rows equals the number of true labels. A tenth of the rows is held out, or up to a quarter if the data set
    is small. The weights in `coef_` are fitted to all rows, including the held-out rows. These weights would
    give a threshold that is too high, because rows that were used in a fit have higher margins for their own
    labels than new rows. `fit` therefore uses other weights for the threshold. It copies the weights of a
    sample of the labels. A few solver steps then adapt the copies to the rows that are not held out. The
    margins of the held-out rows are computed with the adapted copies. If the held-out rows have fewer than
    ten positive entries for the sampled labels, the threshold is 0. Learning the threshold takes up to 15 %
    of the fit time, or more if the fit takes only a few milliseconds.

    With ``C="auto"``, C is chosen on a sample of at most 16,384 rows and at most 512 labels. A quarter of the
    sampled rows is held out, and models are fitted to the other sampled rows. If the sample has fewer than
    2,048 rows, one to three of the other quarters are also held out, one after another, as in
    cross-validation. The search starts at a value between 0.3 and 3. It multiplies or divides C by
    ``sqrt(10)`` as long as the models clearly improve. C stays between 0.001 and 100. The search does not
    depend on `random_state`.

    The models are compared on the held-out rows by one of two measures. The measure depends on whether the
    number of labels that occur in Y exceeds a limit. The limit is five labels if `normalize` scales rows to
    unit length, and 32 labels otherwise.

    - Above the limit, the measure is the mean of the precisions at 1, 3 and 5. After the search, C is refined
      by interpolation between the best value and its two neighbors.
    - Up to the limit, the measure is the loss, and C is not refined.

    If the held-out rows have fewer than ten positive entries for the sampled labels, C is 1. On small data
    sets, the search takes about 0.1 seconds, and a fit with a given C takes 0.01 seconds. On large data sets,
    where a fit takes minutes, the search takes a few percent of the fit time.

    With the squared hinge loss and a sparse X, "fast" approximates the weights of rare labels by dual
    coordinate descent on some of the rows. All rows with the label are used. Of the rows without the label,
    only rows with a margin above about -1 are used, because rows with a lower margin have no loss. A single
    artificial row without the label replaces the unused rows. Its features are the means over all rows of X.

    On the data sets bibtex, delicious and eurlex57k with a sparse X and ``C=1``, "fast" and "exact" give
    similar rankings: the precision at 1, 3 and 5 differs by less than 0.2 percentage points. If C is much
    larger than 1, use ``solver="exact"``, because the approximation is then less accurate.

    With the squared hinge loss and a dense X, "fast" minimizes the objective over all rows, as "exact" does.
    For rare labels, the tolerance of the gradient is ten times as large as with "exact". The fit of a rare
    label also stops after a step that hardly lowers the objective. The limit for this decrease is
    proportional to `tol`. With a dense X, the weights from "fast" differ less from the weights from "exact"
    than with a sparse X. The weights for a dense X can differ slightly from the weights for a sparse X with
    equal values.

    With a sparse X, the fit processes 16 labels at once, or 32 labels if "fast" approximates them. One step
    for all of these labels together takes O(nnz(X)) time, where nnz(X) is the number of stored values of X.
    In addition to the weights, the fit takes 8 bytes of memory per stored value if "fast" approximates all
    labels, and 16 bytes otherwise. Each thread takes 200 bytes per row and 140 bytes per feature. If "fast"
    uses many rows for a rare label, or if Y has unknown entries, a thread takes up to 460 bytes per row and
    780 bytes per feature. The fit allocates no dense array of shape (n_samples, n_labels) or (n_labels,
    n_features). However, `decision_function` returns a dense array.

    With the squared hinge loss, the fit reads a dense X in place and does not copy it. This holds for the
    dtypes float16, float32 and float64 and for any memory order. X may be memory-mapped from a ``.npy`` file.
    In addition to X and the weights, the fit usually takes about 0.8 bytes of memory per value of X. It takes
    at most about 2 bytes per value, or up to 100 MB if X is small.

    With the logistic loss, the fit makes two copies of a dense X. If no value is 0, each copy takes 4 bytes
    per value. Otherwise, each copy takes 8 bytes per nonzero value. If `normalize` scales the columns, a
    third copy takes 4 bytes per value.

    References
    ----------
    .. [1] R. Babbar and B. Schölkopf, "DiSMEC: Distributed Sparse Machines for Extreme Multi-label
       Classification", WSDM 2017, equation 1 and section 2.2. The factor 1/2 of the regularization is from
       LIBLINEAR.

    Examples
    --------
    >>> import manylabel as ml
    >>> X, Y = ml.datasets.make_multilabel(200, 50, 10, random_state=0)
    >>> model = ml.DiSMECClassifier(random_state=0).fit(X, Y)
    >>> model.predict_topk(X, k=3).shape
    (200, 10)
    """

    parameters = kinds.Parameters(
        C=kinds.Either("auto", kinds.Number(above=0)),
        loss=kinds.Choice("squared_hinge", "logistic"),
        prune=kinds.Number(least=0),
        fit_intercept=kinds.Flag(),
        threshold=kinds.Threshold(),
        normalize=kinds.Normalization(),
        solver=kinds.Choice("fast", "exact"),
        tol=kinds.Number(above=0),
        max_iter=kinds.Count(1),
        **kinds.SEEDED_RUN,
    )

    schema = Schema(
        **(LinearClassifier.fitted | EditableLabels.fitted),
        coef_=Weights(("n_labels", "n_features")),
        n_iter_=Array(("n_labels",), "i4"),
        C_=Scalar(float, optional=True),  # missing in files of version 0.1
    )

    chosen = ("C", "threshold")

    n_iter_: NDArray[np.int32]

    def __init__(
        self,
        C: float | Literal["auto"] = "auto",
        *,
        loss: Literal["squared_hinge", "logistic"] = "squared_hinge",
        prune: float = 0.01,
        fit_intercept: bool = True,
        threshold: float | Literal["auto", "zero"] = "auto",
        normalize: bool | Literal["auto", "rows", "columns"] = "auto",
        solver: Literal["fast", "exact"] = "fast",
        tol: float = 0.01,
        max_iter: int = 1000,
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
        propensities: Any = None,
        progress: Progress = None,
    ) -> DiSMECClassifier:
        """Fit the weights of all labels.

        Parameters
        ----------
        label_weight : array-like of shape (n_labels,), default=None
            Weights of the labels, > 0. The loss of a label is multiplied by its weight, as if the label had
            its own value of `C`. None means equal weights.
        propensities : array-like of shape (n_labels,), default=None
            Propensities of the labels, > 0 and <= 1. Pass them if Y may lack some true labels of a row. The
            propensity of a label is the probability that Y has the label for a row, given that the label is
            true for this row. `manylabel.metrics.propensities` estimates propensities. In each row of Y that
            has the label, the loss of the label is multiplied by ``2/p - 1``, where p is its propensity. The
            loss with this factor is convex, and never smaller than an unbiased estimate of the loss with a
            complete Y [1]_. Propensities raise the scores of rare labels, because rare labels usually have
            low propensities. None means that Y is assumed to be complete.

            With ``C="auto"``, propensities can also affect the choice of C. In some cases, C is chosen by the
            precisions at 1, 3 and 5 on held-out rows (see the Notes of `DiSMECClassifier`). In these
            precisions, a correctly predicted label counts ``w/p`` instead of 1, where w is the weight of the
            label in `label_weight`.

        Warns
        -----
        sklearn.exceptions.ConvergenceWarning
            If some labels did not converge in `max_iter` steps or passes (see `max_iter`).

        References
        ----------
        .. [1] M. Qaraei, E. Schultheis, P. Gupta and R. Babbar, "Convex Surrogates for Unbiased Loss
           Functions in Extreme Classification With Missing Labels", WWW 2021, section 4; H. Jain, Y. Prabhu
           and M. Varma, "Extreme Multi-label Loss Functions for Recommendation, Tagging, Ranking & Other
           Missing Label Applications", KDD 2016.
        """
        with self._fitting(y) as (built, Y):
            built._fit(X, Y, sample_weight, progress, label_weight=label_weight, propensities=propensities)
        return self

    @property
    def _dense(self) -> KeptDense:
        return "as given" if self.loss == "squared_hinge" else "if mostly nonzero"

    def _scaled_features(
        self, X: csr_array | NDArray[Any], sample_weight: NDArray[np.float32] | None
    ) -> ScaledFeatures | ScaledTable:
        """Return the features together with their scaling, which `normalize` determines.

        With the squared hinge loss, a dense X is wrapped in a `ScaledTable`, which does not copy X.
        """
        scaling = scaled_features if self._dense == "as given" else ScaledFeatures
        return scaling(X, sample_weight, self.normalize, center=self.fit_intercept)

    def _fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        progress: Progress,
        *,
        label_weight: Any = None,
        propensities: Any = None,
        start: tuple[Any, NDArray[np.float32]] | None = None,
        quiet: bool = False,
    ) -> None:
        params = self.parameters.check(self)
        threshold = fixed_threshold(params["threshold"])
        self.__dict__.pop("label_changes_", None)
        sparse_output = issparse(y)
        X, y, sample_weight = check_training_set(self, X, y, sample_weight, dense=self._dense, unknown=True)
        n_labels = y.shape[1]
        costs = label_costs(n_labels, label_weight, propensities)
        factors = None if costs is None else (costs.positive, costs.negative)
        scaled = self._scaled_features(X, sample_weight)
        params |= {"learn_cut": threshold is None, "normalize": scaled.by_row}
        with reported(n_labels, "label", params["verbose"], progress) as report:
            if params["C"] == "auto":
                params["C"] = self._chosen_strength(scaled, y, sample_weight, costs, report)
            job = (params["n_jobs"], report)
            if isinstance(scaled, ScaledTable):
                examples = (core_table(scaled.X), y, sample_weight)
                task = _core.DismecDenseTask(examples, scaled.columns, factors, params, job)
                start = None if start is None else scaled.scaled(*start)
                weights, intercept, n_iter, cut = task.model(start, job)
                self.coef_, intercept = scaled.unscaled(weights, intercept)
            else:
                parts, intercept, n_iter, cut = _core.fit_dismec(
                    (scaled.X, y, sample_weight),
                    prepared_for(scaled.X, y, params, report),
                    None if start is None else scaled.scaled(*start),
                    factors,
                    params,
                    job,
                )
                # Predictions read the weights feature by feature, so the format is CSC. A CSR matrix of shape
                # (n_features, n_labels) has the same arrays as its transpose in CSC.
                coef = csc_array(core_parts(parts), shape=(n_labels, X.shape[1]))
                self.coef_, intercept = scaled.unscaled(coef, intercept)
        self._shift(intercept, threshold, cut)
        self.C_ = params["C"]
        self.n_iter_ = n_iter
        self.normalize_ = scaled.by_row
        self.classes_ = np.arange(n_labels)
        self.sparse_output_ = sparse_output
        if not quiet:
            self._warn_of_unfinished(stacklevel=4)

    def _warn_of_unfinished(self, stacklevel: int) -> None:
        """Warn if some labels did not converge.

        `stacklevel` is passed to `warnings.warn`. With 4, a warning from `fit` points to the line that called
        `fit`.
        """
        n_labels = len(self.n_iter_)
        unfinished = int(np.count_nonzero(self.n_iter_ >= self.max_iter))
        if unfinished:
            warnings.warn(
                f"{unfinished} of {n_labels} labels did not converge in max_iter={self.max_iter} steps",
                ConvergenceWarning,
                stacklevel=stacklevel,
            )

    def _select_labels(self, labels: NDArray[np.int64]) -> None:
        chosen: Any = self.coef_[labels]
        self.coef_ = chosen if isinstance(chosen, np.ndarray) else csc_array(chosen).sorted_indices()
        self.intercept_ = self.intercept_[labels]
        self.n_iter_ = self.n_iter_[labels]

    def _append_labels(
        self,
        X: Any,
        Y: csr_array,
        sample_weight: Any,
        progress: Progress,
        label_weight: Any = None,
        propensities: Any = None,
        start: list[int] | None = None,
    ) -> int:
        self.parameters.require(self)
        added: DiSMECClassifier = clone(self)
        added.C = getattr(self, "C_", self.C)
        # Version 0.1 did not store these values.
        if hasattr(self, "threshold_"):
            added.threshold = self.threshold_
        if self._normalizes_rows:
            added.normalize = "rows"
        elif self.normalize == "auto":
            added.normalize = "columns"
        by_products = isinstance(X, np.ndarray) and self._dense == "as given"
        added._fit(
            X,
            Y,
            sample_weight,
            progress,
            label_weight=label_weight,
            propensities=propensities,
            start=None if start is None else self._margins(start, dense=by_products),
            quiet=True,
        )
        if isinstance(self.coef_, np.ndarray):
            more: Any = added.coef_ if isinstance(added.coef_, np.ndarray) else added.coef_.toarray()
            self.coef_ = np.vstack([self.coef_, more])
        else:
            self.coef_ = csc_array(vstack([self.coef_, csc_array(added.coef_)], format="csc"))
        self.intercept_ = np.concatenate([self.intercept_, added.intercept_])
        self.n_iter_ = np.concatenate([self.n_iter_, added.n_iter_])
        return int(np.count_nonzero(added.n_iter_ >= self.max_iter))

    def _margins(self, labels: list[int], *, dense: bool) -> tuple[Any, NDArray[np.float32]]:
        """Return the weights and the intercepts of the given labels.

        `intercept_` has the intercepts minus the threshold. This method adds the threshold back.
        """
        threshold = np.float32(getattr(self, "threshold_", 0.0))
        weights: Any = self.coef_[labels]
        if dense:
            weights = weights if isinstance(weights, np.ndarray) else weights.toarray()
        else:
            weights = csr_array(weights).sorted_indices()
        return weights, self.intercept_[labels] + threshold

    def _log_odds(self, scores: NDArray[Any]) -> NDArray[Any]:
        return scores if self.loss == "logistic" else super()._log_odds(scores)

    def _cut(self) -> type[DiSMECPieces]:
        return DiSMECPieces

    def _settled(
        self,
        X: Any,
        Y: csr_array,
        sample_weight: Any,
        threads: int,
        report: Tell,
        costs: LabelCosts | None = None,
    ) -> DiSMECClassifier:
        if self.C != "auto":
            return self
        scaled = self._scaled_features(X, sample_weight)
        model: DiSMECClassifier = clone(self)
        if model.normalize == "auto":
            model.normalize = "rows" if scaled.by_row else "columns"
        chooser = clone(self).set_params(n_jobs=threads)
        model.C = chooser._chosen_strength(scaled, Y, sample_weight, costs, report)
        return model

    def _chosen_strength(
        self,
        scaled: ScaledFeatures | ScaledTable,
        Y: csr_array,
        sample_weight: NDArray[np.float32] | None,
        costs: LabelCosts | None,
        report: Tell,
    ) -> float:
        """Choose the value of C with the best rankings, or with the lowest loss, on held-out rows."""
        n_seen = np.count_nonzero(np.bincount(known_ones(Y).indices, minlength=Y.shape[1]))
        ranks = bool(n_seen > (_LONGEST_RANKING if scaled.by_row else _MOST_LABELS_FOR_LOSS))
        drawn = held_out_folds(scaled.X, Y, sample_weight, for_rankings=ranks)
        folds = [
            fold._replace(
                X=scaled.rows(fold.X, overwrite=True),  # type: ignore[arg-type]
                X_held=scaled.rows(fold.X_held, overwrite=True),  # type: ignore[arg-type]
            )
            for fold in drawn  # the rows of a fold are copies
        ]
        del drawn  # may have unscaled copies of the sampled rows, which are no longer needed
        if not folds:
            return _USUAL_C
        # The seed is fixed, so that the choice depends only on the data.
        model = clone(self).set_params(
            prune=0.0, threshold="zero", normalize=scaled.by_row, random_state=0, verbose=0
        )

        def fitted(C: float) -> Iterator[tuple[Fold, DiSMECClassifier, LabelCosts | None]]:
            model.set_params(C=C)
            for fold in folds:
                of_fold = None if costs is None else costs.of(fold.labels)
                model._fit(
                    fold.X,
                    fold.Y,
                    fold.sample_weight,
                    lambda _: report(0),
                    label_weight=None if of_fold is None else of_fold.weight,
                    propensities=None if of_fold is None else of_fold.propensity,
                    quiet=True,
                )
                yield fold, model, of_fold

        def loss(C: float) -> float:
            try:
                losses = [
                    fold.mean_loss(_LOSSES[model.loss], model.decision_function(fold.X_held), of_fold)
                    for fold, model, of_fold in fitted(C)
                ]
            except ValueError:
                return np.inf  # C times the weights of the rows is too large
            return float(np.mean(losses))

        def precisions(C: float) -> NDArray[np.float64]:
            try:
                of_folds = [
                    fold.precisions(
                        model.predict_topk(fold.X_held, _LONGEST_RANKING + fold.most_unknown), of_fold
                    )
                    for fold, model, of_fold in fitted(C)
                ]
            except ValueError:
                return np.zeros(1)  # C times the weights of the rows is too large
            return np.concatenate(of_folds)

        if ranks:
            first = _USUAL_C_OF_UNIT_ROWS[self.loss] if scaled.by_row else _USUAL_C
            return best_ranked_strength(precisions, first, _LEAST_C, _MOST_C)
        return best_strength(loss, clearly_lower, _USUAL_C, _LEAST_C, _MOST_C)


def _squared_hinge(margins: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.maximum(1 - margins, 0) ** 2


def _logistic(margins: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.logaddexp(0, -margins)


_LOSSES = {"squared_hinge": _squared_hinge, "logistic": _logistic}
