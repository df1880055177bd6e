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
    weights of all labels together. The maximum is over the labels that row i lacks, and the minimum over
    those that it has. The dual is solved row by row, with a small active set of labels per row [1]_.

    Parameters
    ----------
    C : float, default=1.0
        Weight of the loss; finite and > 0.
    l1 : float, default=0.01
        Weight of the absolute values of the weights; finite and >= 0. Larger values give fewer weights.
    max_iter : int, default=50
        Maximum number of passes over the rows; >= 1.
    tol : float, default=0.01
        The fit has converged when the duality gap is below this share of the primal objective; finite and >
        0.
    search : {"exact", "sampled"}, default="exact"
        How the labels that violate a row's margin most are found. "exact" computes all scores. "sampled"
        estimates them from some of the row's features, drawn with probabilities proportional to their
        absolute values.
    n_candidates : int or None, default=None
        Violating labels added to a row's active set per visit; >= 1. None starts with the mean number of
        labels per row and doubles it, up to 100, after a pass in which the search took more than twice the
        time of the rest.
    post_solve : bool, default=True
        Whether to make as many passes again without `l1` once it is known which weights are nonzero. With
        `early_stopping` the result is kept only if it is no worse on the held-out rows.
    fit_intercept : bool, default=True
        Whether scores have intercepts: the logarithms of the label frequencies times one factor that is
        chosen on held-out rows (see Notes). With False, intercepts are 0. The weights do not depend on it,
        unless columns are centered (see `normalize`).
    threshold : {"auto", "zero"} or float, default="auto"
        Score above which `predict` assigns a label. "auto" learns it, so that held-out rows get as many
        labels as they have (see Notes). "zero" is 0.
    early_stopping : bool, default=False
        Whether to hold rows out, stop when the precision at 1 on them no longer improves, and keep the best
        weights.
    validation_fraction : float, default=0.1
        Share of the rows that `early_stopping` holds out; > 0 and < 1.
    n_iter_no_change : int, default=3
        Passes without improvement after which `early_stopping` stops; >= 1.
    random_state : int, RandomState instance or None, default=None
        Seeds the order of rows, the order of labels with equal scores, the sampled features and the held-out
        rows. An int gives the same bits every time.
    n_jobs : int or None, default=None
        Threads; None means 1, -1 all cores. Never changes the result. The passes themselves run on one
        thread; predictions, the precision on held-out rows and the duality gap use all.

    Attributes
    ----------
    coef_ : csc_array of shape (n_labels, n_features), dtype float32
        Weights, compressed by feature, which is the order that scoring reads.
    intercept_ : ndarray of shape (n_labels,), dtype float32
        Factor times log frequency, or 0, minus `threshold_`; -inf for a label that no training row has, so
        that it is never predicted.
    n_iter_ : int
        Number of passes, without those of `post_solve`.
    dual_gap_ : float
        Duality gap before `post_solve`: an upper bound on the distance of the objective from its optimum. It
        is the sum of the primal objective and the minimized dual one.
    validation_precision_ : ndarray of shape (n_iter_,) or (0,), dtype float64
        Precision at 1 on the held-out rows after each pass, from 0 to 1; empty without `early_stopping`.

    See Also
    --------
    DiSMECClassifier : Every label on its own.

    Notes
    -----
    Scores are ``w.x + b`` with `threshold_` subtracted from the intercepts b. Labels with positive scores are
    predicted.

    With "exact", a visit of a row takes O(number of weights of the row's features + n_labels) time. Memory:
    the stored values of X, about 30 bytes per pair of a feature and a label that was ever active in a row
    with this feature, and 12 bytes per active label of a row; twice that with `early_stopping`.

    The loss compares the labels of a row with one another. Therefore the sign of a score has no meaning, and
    label frequencies are not learned. Both are learned after the fit. A tenth of the rows, at most 2,000, is
    held out; if a tenth is less than a hundred rows, up to five parts in turn. The contribution of these rows
    to the weights is subtracted, two passes over the other rows adapt the weights, and the held-out rows are
    scored. The factor of the log frequencies is one of 0, 1/512, 1/256, ..., 2: the smallest whose mean label
    ranking average precision is within a standard error of the best. The threshold is the value above which
    as many pairs of a row and a label lie as are true. With `early_stopping` its held-out rows are used, at
    almost no cost. Otherwise both took up to 16 % of the fit time with a thousand rows or more, and 20 to 28
    %, some milliseconds, with a few hundred. The returned weights are not affected.

    The loss of a row is that of its worst pair of labels. If rows have many labels that the features hardly
    predict, some pair is always wrong and the weights shrink to nearly zero. One-vs-rest classifiers rank
    better on such data. Rows without labels, or with all of them, do not affect the weights.

    References
    ----------
    .. [1] I. Yen, X. Huang, K. Zhong, P. Ravikumar and I. Dhillon, "PD-Sparse: A Primal and Dual Sparse
       Approach to Extreme Multiclass and Multilabel Classification", ICML 2016. The default `l1` suits rows
       of unit length.

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
        # The CSR arrays of (n_features, n_labels) are the CSC arrays of the transpose.
        coef = csc_array(core_parts(weights), shape=(y.shape[1], X.shape[1]))
        self.coef_, intercept = scaled.unscaled(coef, intercept)
        self._shift(intercept, threshold, cut)
        self.n_iter_, self.dual_gap_ = n_iter, dual_gap
        self.validation_precision_ = validation
        self.normalize_ = scaled.by_row
        self.classes_ = np.arange(y.shape[1])
        self.sparse_output_ = sparse_output
