"""DiSMEC: one linear classifier a label, pruned."""

from __future__ import annotations

import warnings
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array, issparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from manylabel import _core
from manylabel.estimator import parameters as kinds
from manylabel.estimator.base import core_parts
from manylabel.estimator.held_out import best_strength, held_out_folds
from manylabel.estimator.parameters import fixed_threshold
from manylabel.estimator.progress import Progress, Tell, reported
from manylabel.estimator.registry import register
from manylabel.estimator.scaling import ScaledFeatures
from manylabel.estimator.schema import Array, Scalar, Schema, SparseMatrix
from manylabel.estimator.validation import check_training_set
from manylabel.linear.base import LinearClassifier

__all__ = ["DiSMECClassifier"]

# The literature's weight of the loss, and the range in which another is looked for.
_USUAL_C = 1.0
_LEAST_C, _MOST_C = 1e-3, 1e2


@register(command="dismec", demo=("DiSMEC", lambda dismec: dismec(random_state=0)))
class DiSMECClassifier(LinearClassifier):
    """One-vs-rest linear classifier with squared hinge loss and pruned, sparse weights.

    Every label, on its own, minimizes ``|w|^2/2 + b^2/2 + C * sum_i max(0, 1 - s_i (w.x_i + b))^2`` with
    ``s_i = 1`` where row i carries the label and -1 elsewhere; then weights below `prune` are dropped [1]_.

    Parameters
    ----------
    C : float or "auto", default="auto"
        Weight of the loss against the regularizer; finite and > 0. "auto" chooses it by the loss of rows that
        are held out (see Notes); 1 is usual in the literature.
    prune : float, default=0.01
        Weights whose absolute value is below are dropped; finite and >= 0. With "columns" these are the
        weights of the scaled columns.
    fit_intercept : bool, default=True
        Whether to fit an intercept. It is regularized, as the weight of a feature that is 1 everywhere.
    threshold : {"auto", "zero"} or float, default="auto"
        Margin above which `predict` names a label. "auto" learns it, so that rows get as many labels as they
        have (see Notes). "zero" is that of the loss, which names rare labels hardly ever.
    solver : {"fast", "exact"}, default="fast"
        "exact" finds every label's optimum over all rows to `tol`. "fast" solves labels that fewer than one
        row in a hundred carries over their positives and the negatives that come near them, all other rows
        standing as one, their mean; with many rows it is many times faster, and ranks alike (see Notes).
    tol : float, default=0.01
        A label is done when its gradient is below `tol` times ``min(positives, negatives) / n_samples`` of
        the gradient at zero. Rare labels under "fast" stop when their projected dual gradients span at most
        ``30 * tol``. Finite and > 0.
    max_iter : int, default=1000
        Steps of a label at most; >= 1.
    random_state : int, RandomState instance or None, default=None
        Order in which "fast" visits the rows of a rare label. An int gives the same bits every time.

    Attributes
    ----------
    coef_ : csc_array of shape (n_labels, n_features), dtype float32
        Weights, compressed by feature: the index that scoring walks.
    intercept_ : ndarray of shape (n_labels,), dtype float32
        Intercepts less `threshold_`; -inf for a label that no training row carries, so that it is never
        predicted.
    C_ : float
        The weight of the loss, as given or chosen.
    n_iter_ : ndarray of shape (n_labels,), dtype int32
        Steps (for rare labels under "fast", passes) taken; `max_iter` where a label did not converge.

    See Also
    --------
    manylabel.metrics : Measures for the rankings of `predict_topk`.

    Notes
    -----
    Scores are the margins ``w.x + b`` less `threshold_`; those of predicted labels are positive.

    The learned threshold is the margin above which as many labels are named as there are, on a tenth of the
    rows (a quarter of few rows). Some labels are made to forget these rows: of frequent and of rare labels
    each, the 64 most frequent, and 64 or 1 in 20 of the others. What the rows added to the weights is taken
    back, and a few steps let the other rows answer. The weights returned are not changed by this. It takes up
    to 15 % of the fit, more of fits of a few milliseconds. Where these rows have fewer than ten
    ones in all, the threshold is that of "zero".

    ``C="auto"`` is chosen on a sample, always the same one: 4,096 rows and 32 labels, or where that is more
    an eighth of the rows and 1 in 64 labels, at most 16,384 and 512, frequent labels most likely. A quarter
    of its rows is held out, of few rows each quarter in turn. The search starts at 1 and takes steps of half
    an order of magnitude, between 0.001 and 100, as long as a step lowers the loss of the held-out rows by
    2 %. With fewer than ten labels among these rows C is 1. It takes about a tenth of a second on small sets,
    where a fit with a given C takes a hundredth, and a few hundredths of fits of minutes.

    Time is O(nnz(X)) a step for sixteen labels at once. Memory: 16 bytes a stored feature of X; for each
    thread about 64 bytes for each row and feature, four times; the weights. Nothing of size n_samples x
    n_labels or n_labels x n_features is allocated, but for the scores `decision_function` returns and, where
    Y was dense in fit, the predictions of `predict`.

    The two solvers' P@1, P@3 and P@5 differ by less than 0.2 points on bibtex, delicious and eurlex57k at
    ``C=1``. With much larger C the mean row stands for the others less well: take "exact" there.

    References
    ----------
    .. [1] R. Babbar and B. Schölkopf, "DiSMEC: Distributed Sparse Machines for Extreme Multi-label
       Classification", WSDM 2017, equation 1 and section 2.2, with the factor 1/2 of LIBLINEAR.

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
        **LinearClassifier.fitted,
        coef_=SparseMatrix("csc", ("n_labels", "n_features"), "f4"),
        n_iter_=Array(("n_labels",), "i4"),
        C_=Scalar(float, optional=True),  # not in version 0.1
    )

    coef_: csc_array
    n_iter_: NDArray[np.int32]

    def __init__(
        self,
        C: float | Literal["auto"] = "auto",
        *,
        prune: float = 0.01,
        fit_intercept: bool = True,
        threshold: float | str = "auto",
        normalize: bool | str = "auto",
        solver: str = "fast",
        tol: float = 0.01,
        max_iter: int = 1000,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self._assign(locals())

    def _fit(self, X: Any, y: Any, sample_weight: Any, progress: Progress, *, quiet: bool = False) -> None:
        params = self.parameters.check(self)
        threshold = fixed_threshold(params["threshold"])
        sparse_output = issparse(y)
        X, y, sample_weight = check_training_set(self, X, y, sample_weight)
        n_labels = y.shape[1]
        scaled = ScaledFeatures(X, sample_weight, self.normalize, center=params["fit_intercept"])
        params |= {"learn_cut": threshold is None, "normalize": scaled.by_row}
        with reported(n_labels, "label", params["verbose"], progress) as report:
            if params["C"] == "auto":
                params["C"] = self._chosen_strength(scaled, y, sample_weight, report)
            weights, intercept, n_iter, cut = _core.fit_dismec(
                (scaled.X, y, sample_weight), params, (params["n_jobs"], report)
            )
        # Compressed rows of (n_features, n_labels) are compressed columns of the transpose.
        coef = csc_array(core_parts(weights), shape=(n_labels, X.shape[1]))
        self.coef_, intercept = scaled.unscaled(coef, intercept)
        self._shift(intercept, threshold, cut)
        self.C_ = params["C"]
        self.n_iter_ = n_iter
        self.normalize_ = scaled.by_row
        self.classes_ = np.arange(n_labels)
        self.sparse_output_ = sparse_output
        unfinished = int(np.count_nonzero(n_iter >= self.max_iter))
        if unfinished and not quiet:
            warnings.warn(
                f"{unfinished} of {n_labels} labels did not converge in max_iter={self.max_iter} steps",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _settled(
        self, X: csr_array, Y: csr_array, sample_weight: Any, threads: int, report: Tell
    ) -> DiSMECClassifier:
        if self.C != "auto":
            return self
        scaled = ScaledFeatures(X, sample_weight, self.normalize, center=self.fit_intercept)
        model: DiSMECClassifier = clone(self)
        if model.normalize == "auto":
            model.normalize = "rows" if scaled.by_row else "columns"
        model.C = clone(self).set_params(n_jobs=threads)._chosen_strength(scaled, Y, sample_weight, report)
        return model

    def _chosen_strength(
        self,
        scaled: ScaledFeatures,
        Y: csr_array,
        sample_weight: NDArray[np.float32] | None,
        report: Tell,
    ) -> float:
        """Choose the weight of the loss by rows held out."""
        folds = held_out_folds(scaled.X, Y, sample_weight)
        if not folds:
            return _USUAL_C
        # One seed for all: estimators of the same data choose alike.
        model = clone(self).set_params(
            prune=0.0, threshold="zero", normalize=scaled.by_row, random_state=0, verbose=0
        )

        def loss(C: float) -> float:
            model.set_params(C=C)
            losses = []
            for fold in folds:
                try:
                    model._fit(fold.X, fold.Y, fold.sample_weight, lambda _: report(0), quiet=True)
                except ValueError:
                    return (
                        np.inf
                    )  # parameters are checked: C times the weights of the rows is too small or large
                losses.append(fold.mean_loss(_squared_hinge, model.decision_function(fold.X_held)))
            return float(np.mean(losses))

        return best_strength(loss, _USUAL_C, _LEAST_C, _MOST_C)


def _squared_hinge(margins: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.maximum(1 - margins, 0) ** 2
