"""DiSMEC: one pruned linear classifier per label."""

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

# The usual weight of the loss in the literature, and the range that "auto" searches.
_USUAL_C = 1.0
_LEAST_C, _MOST_C = 1e-3, 1e2


@register(command="dismec", demo=("DiSMEC", lambda dismec: dismec(random_state=0)))
class DiSMECClassifier(LinearClassifier):
    """One-vs-rest linear classifier with squared hinge loss and pruned, sparse weights.

    Each label is solved on its own. It minimizes
    ``|w|^2/2 + b^2/2 + C * sum_i max(0, 1 - s_i (w.x_i + b))^2``, where ``s_i`` is 1 if row i has the label
    and -1 otherwise. Weights with an absolute value below `prune` are then dropped [1]_.

    Parameters
    ----------
    C : float or "auto", default="auto"
        Weight of the loss against the regularizer; finite and > 0. "auto" chooses it by the loss on held-out
        rows (see Notes). The literature mostly uses 1.
    prune : float, default=0.01
        Weights with a smaller absolute value are dropped; finite and >= 0. With ``normalize="columns"`` this
        applies to the weights of the scaled columns.
    fit_intercept : bool, default=True
        Whether to fit an intercept. It is regularized like the weight of a feature that is 1 in every row.
    threshold : {"auto", "zero"} or float, default="auto"
        Margin above which `predict` assigns a label. "auto" learns it, so that rows get about as many labels
        as they have (see Notes). "zero" is the threshold of the loss; it rarely predicts rare labels.
    solver : {"fast", "exact"}, default="fast"
        "exact" finds the optimum of every label over all rows, to `tol`. "fast" treats labels that fewer than
        one row in 100 has differently: it solves them over their positive rows and the negative rows near the
        margin, and replaces all other rows by their mean. With many rows this is many times faster, and
        rankings are nearly the same (see Notes).
    tol : float, default=0.01
        A label has converged when the norm of its gradient is below
        ``tol * min(positives, negatives) / n_samples`` times the norm at zero. Rare labels under "fast" stop
        when their projected dual gradients span at most ``30 * tol``. Finite and > 0.
    max_iter : int, default=1000
        Maximum number of steps per label; >= 1.
    random_state : int, RandomState instance or None, default=None
        Seeds the order in which "fast" visits the rows of a rare label. An int gives the same bits every
        time.

    Attributes
    ----------
    coef_ : csc_array of shape (n_labels, n_features), dtype float32
        Weights, compressed by feature, which is the order that scoring reads.
    intercept_ : ndarray of shape (n_labels,), dtype float32
        Intercepts minus `threshold_`; -inf for a label that no training row has, so that it is never
        predicted.
    C_ : float
        Weight of the loss, as given or chosen.
    n_iter_ : ndarray of shape (n_labels,), dtype int32
        Steps taken per label (passes, for rare labels under "fast"); `max_iter` where a label did not
        converge.

    See Also
    --------
    manylabel.metrics : Measures for the rankings of `predict_topk`.

    Notes
    -----
    Scores are margins ``w.x + b`` minus `threshold_`. Labels with positive scores are predicted.

    The learned threshold is the margin at which as many labels are predicted on held-out rows as these rows
    have. A tenth of the rows is held out, or a quarter of small sets. A sample of labels is made to forget
    these rows: among frequent and among rare labels, the 64 most frequent ones, and 64 or 1 in 20 of the
    others. Their contribution to the weights is subtracted, and a few solver steps adapt the solution to the
    remaining rows. The returned weights are not affected. This takes up to 15 % of the fit time, and more for
    fits of a few milliseconds. If the held-out rows have fewer than ten labels in all, the threshold is 0.

    ``C="auto"`` is chosen on a sample that depends on the size of the data only. It has 4,096 rows and 32
    labels, or an eighth of the rows and 1 in 64 labels if that is more, but at most 16,384 rows and 512
    labels. Frequent labels are drawn more often. A quarter of the sampled rows is held out; on small sets
    each quarter in turn. The search starts at 1 and moves by factors of ``sqrt(10)`` between 0.001 and 100,
    as long as a step lowers the held-out loss by 2 %. If the held-out rows have fewer than ten labels in all,
    C is 1. The search takes about 0.1 seconds on small sets, where a fit with a given C takes 0.01 seconds,
    and a few percent of a fit of minutes.

    Time is O(nnz(X)) per step for 16 labels at once. Memory is 16 bytes per stored value of X, about
    256 bytes per row and feature for each thread, and the weights. No array of size n_samples x n_labels or
    n_labels x n_features is allocated, except for the scores that `decision_function` returns and, if Y was
    dense in fit, the predictions of `predict`.

    P@1, P@3 and P@5 of the two solvers differ by less than 0.2 points on bibtex, delicious and eurlex57k at
    ``C=1``. With a much larger C the mean row is a worse approximation; use "exact" then.

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
        # The CSR arrays of (n_features, n_labels) are the CSC arrays of the transpose.
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
        """Choose the weight of the loss by the loss on held-out rows."""
        folds = held_out_folds(scaled.X, Y, sample_weight)
        if not folds:
            return _USUAL_C
        # A fixed seed: the choice depends on the data only.
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
                    return np.inf  # parameters are checked, so C times the row weights is out of range
                losses.append(fold.mean_loss(_squared_hinge, model.decision_function(fold.X_held)))
            return float(np.mean(losses))

        return best_strength(loss, _USUAL_C, _LEAST_C, _MOST_C)


def _squared_hinge(margins: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.maximum(1 - margins, 0) ** 2
