"""PD-Sparse; public as `manylabel.linear.PDSparseClassifier`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, issparse

from manylabel import _core
from manylabel.estimator import parameters as kinds
from manylabel.estimator.base import core_parts
from manylabel.estimator.parameters import fixed_threshold
from manylabel.estimator.progress import Progress, reported
from manylabel.estimator.registry import register
from manylabel.estimator.scaling import ScaledFeatures
from manylabel.estimator.schema import Array, Scalar, Schema, SparseMatrix
from manylabel.estimator.validation import check_training_set, held_out_rows
from manylabel.linear.base import LinearClassifier

__all__ = ["PDSparseClassifier"]


@register(command="pd-sparse")
class PDSparseClassifier(LinearClassifier):
    """Linear classifier with a margin between the labels of a row and all others, and sparse weights.

    Minimizes ``sum_k |w_k|^2/2 + l1 |w_k|_1 + C sum_i max(0, 1 + max w_k.x_i - min w_k.x_i)`` over the
    weights of all labels together; the maximum is over the labels row i does not carry, the minimum over
    those it does. Solved in the dual, row by row, where few labels of each row have a say [1]_.

    Parameters
    ----------
    C : float, default=1.0
        Weight of the loss; finite and > 0.
    l1 : float, default=0.01
        Weight of the absolute values of the weights; finite and >= 0. The larger, the fewer weights.
    max_iter : int, default=50
        Passes over the rows at most; >= 1.
    tol : float, default=0.01
        The fit is done when the duality gap, as seen row by row during a pass, is below this share of the
        objective; finite and > 0.
    search : {"exact", "sampled"}, default="exact"
        How the labels that violate a row's margin most are found: by all scores, or by estimates from some
        of the row's features, drawn with probability in proportion to their absolute values.
    n_candidates : int or None, default=None
        Violating labels added to a row's active set in a visit; >= 1. None begins with the mean number of
        labels of a row and doubles it, up to 100, after a pass in which the search took more than twice the
        rest of the work.
    post_solve : bool, default=True
        Whether, once it is found which weights are not zero, as many passes follow for these without `l1`.
        With `early_stopping` what they find is kept only if it is no worse on the rows held out.
    fit_intercept : bool, default=True
        Whether scores have intercepts: the logarithms of the labels' frequencies, all times one factor that
        held-out rows choose (see Notes). With False, intercepts are 0. Weights are the same either way.
    threshold : {"auto", "zero"} or float, default="auto"
        Score above which `predict` names a label. "auto" learns it from held-out rows, so that as many labels
        are named there as there are (see Notes). "zero" is 0.
    early_stopping : bool, default=False
        Whether to hold rows out, to stop when the precision of their best label does not improve, and to
        keep the weights that were best.
    validation_fraction : float, default=0.1
        Share of the rows held out; > 0 and < 1.
    n_iter_no_change : int, default=3
        Passes without improvement that stop the fit; >= 1.
    random_state : int, RandomState instance or None, default=None
        Order of the rows, order of labels whose scores are equal, features sampled, rows held out. An int
        gives the same bits every time.
    n_jobs : int or None, default=None
        Threads; None means 1, -1 all cores. Never changes the result. The passes themselves go from row to
        row on one thread; predictions, the precision on rows held out and the duality gap use all.

    Attributes
    ----------
    coef_ : csc_array of shape (n_labels, n_features), dtype float32
        Weights, compressed by feature: the index that scoring walks.
    intercept_ : ndarray of shape (n_labels,), dtype float32
        Factor times log frequency, or 0, less `threshold_`; -inf for a label that no training row carries, so
        that it is never predicted.
    n_iter_ : int
        Passes made, those after the support was found not counted.
    dual_gap_ : float
        Primal plus dual objective (the dual one is minimized) before the post-solve: how far from the
        optimum the objective can at most be.
    validation_precision_ : ndarray of shape (n_iter_,) or (0,), dtype float64
        Share of held-out rows whose best label is right, after each pass.

    See Also
    --------
    DiSMECClassifier : Every label on its own.

    Notes
    -----
    Scores are ``w.x + b`` with the intercepts less `threshold_`; those of predicted labels are positive.

    A visit of a row takes as many steps as its features have weights, plus n_labels, for an exact search.
    Memory: the stored features, some 30 bytes for each pair of a feature and a label that has ever been
    active in one of its rows, 12 bytes for each active label of a row; with `early_stopping` a second time.

    The loss compares the labels of a row with one another: that a score is positive means nothing, and that
    a label is frequent is not learned as such. Both are learned after the fit. A tenth of the rows, 2,000 at
    most, is held out (several parts one after the other, up to five, where a tenth is under a hundred rows).
    What these rows have taught is taken back, the others adapt to that in two passes, and the held-out rows
    are scored. The factor of the log frequencies is the smallest of 0, 1/512, 1/256, ..., 2 whose mean
    label ranking average precision is within a standard error of the best one. The threshold is that above
    which as many pairs of a row and a label lie as are true. With `early_stopping` the rows held out for it
    serve, at next to no cost; else both together took up to 16 % of the time of the fit with a thousand rows
    or more, and 20 to 28 %, some milliseconds, with a few hundred. The weights stay what they were.

    The loss of a row is that of its worst pair of labels. Where rows carry many labels that features tell
    little about, some pair is always wrong, and weights shrink to nearly nothing although there is something
    to learn: one-vs-rest classifiers rank better there. Rows without a label, or with all of them, have no
    say in the weights.

    References
    ----------
    .. [1] I. Yen, X. Huang, K. Zhong, P. Ravikumar and I. Dhillon, "PD-Sparse: A Primal and Dual Sparse
       Approach to Extreme Multiclass and Multilabel Classification", ICML 2016. The default `l1` goes with
       rows of unit length.

    Examples
    --------
    >>> import manylabel as ml
    >>> X, Y = ml.datasets.make_multilabel(200, 50, 10, random_state=0)
    >>> model = ml.PDSparseClassifier(random_state=0).fit(X, Y)
    >>> model.predict_topk(X, k=3).shape
    (200, 10)
    """

    parameters = kinds.Parameters(
        C=kinds.Number(above=0),
        l1=kinds.Number(least=0),
        max_iter=kinds.Count(1),
        tol=kinds.Number(above=0),
        search=kinds.Choice("exact", "sampled"),
        n_candidates=kinds.Either(None, kinds.Count(1)),
        post_solve=kinds.Flag(),
        normalize=kinds.Normalization(),
        fit_intercept=kinds.Flag(),
        threshold=kinds.Threshold(),
        early_stopping=kinds.Flag(),
        validation_fraction=kinds.Number(above=0, below=1),
        n_iter_no_change=kinds.Count(1),
        **kinds.SEEDED_RUN,
    )

    schema = Schema(
        **LinearClassifier.fitted,
        coef_=SparseMatrix("csc", ("n_labels", "n_features"), "f4"),
        n_iter_=Scalar(int),
        dual_gap_=Scalar(float),
        validation_precision_=Array(("n_passes",), "f8"),
    )

    coef_: csc_array
    n_iter_: int
    dual_gap_: float
    validation_precision_: NDArray[np.float64]

    def __init__(
        self,
        C: float = 1.0,
        *,
        l1: float = 0.01,
        max_iter: int = 50,
        tol: float = 0.01,
        search: str = "exact",
        n_candidates: int | None = None,
        post_solve: bool = True,
        normalize: bool | str = "auto",
        fit_intercept: bool = True,
        threshold: float | str = "auto",
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 3,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self._assign(locals())

    def _fit(self, X: Any, y: Any, sample_weight: Any, progress: Progress) -> None:
        params = self.parameters.check(self)
        threshold = fixed_threshold(params["threshold"])
        sparse_output = issparse(y)
        X, y, sample_weight = check_training_set(self, X, y, sample_weight)
        held_out = None
        if params["early_stopping"]:
            held_out = held_out_rows(params["validation_fraction"], X.shape[0], params["random_state"])
        scaled = ScaledFeatures(X, sample_weight, self.normalize, center=params["fit_intercept"])
        params |= {"learn_cut": threshold is None, "normalize": scaled.by_row}
        with reported(params["max_iter"], "pass", params["verbose"], progress) as report:
            weights, intercept, n_iter, dual_gap, validation, cut = _core.fit_pdsparse(
                (scaled.X, y, sample_weight), held_out, params, (params["n_jobs"], report)
            )
        # Compressed rows of (n_features, n_labels) are compressed columns of the transpose.
        coef = csc_array(core_parts(weights), shape=(y.shape[1], X.shape[1]))
        self.coef_, intercept = scaled.unscaled(coef, intercept)
        self._shift(intercept, threshold, cut)
        self.n_iter_, self.dual_gap_ = n_iter, dual_gap
        self.validation_precision_ = validation
        self.normalize_ = scaled.by_row
        self.classes_ = np.arange(y.shape[1])
        self.sparse_output_ = sparse_output
