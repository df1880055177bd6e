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
        Strength of the L1 penalty; finite and >= 0. Larger values give fewer nonzero weights.
    max_iter : int, default=50
        Maximum number of passes over the rows; >= 1.
    tol : float, default=0.01
        The fit has converged when the duality gap is below this share of the primal objective; finite and >
        0.
    search : {"exact", "sampled"}, default="exact"
        Method to find the labels with the largest margin violations in a row. "exact" computes all scores.
        "sampled" estimates them from some of the row's features, drawn with probabilities proportional to
        their absolute values.
    n_candidates : int or None, default=None
        Number of violating labels that are added to a row's active set in a pass; >= 1. If None, the fit
        starts with the mean number of labels per row. After each pass that spent more than two thirds of its
        time on the search, it doubles the number, up to 100.
    post_solve : bool, default=True
        Whether to fit the nonzero weights again without the L1 penalty after the main fit, with as many
        passes. With `early_stopping`, the result is kept only if it is no worse on the held-out rows.
    fit_intercept : bool, default=True
        Whether to add intercepts to the scores. The intercept of a label is the logarithm of its frequency
        times a factor, which is the same for all labels and chosen on held-out rows (see Notes). The weights
        do not depend on this, unless columns are centered (see `normalize`).
    threshold : {"auto", "zero"} or float, default="auto"
        Score above which `predict` assigns a label. "auto" chooses it so that the number of predicted labels
        on held-out rows equals the number of true ones (see Notes). "zero" is 0.
    early_stopping : bool, default=False
        Whether to hold rows out, stop when the precision at 1 on them no longer improves, and keep the best
        weights.
    validation_fraction : float, default=0.1
        Share of the rows that `early_stopping` holds out; > 0 and < 1.
    n_iter_no_change : int, default=3
        Passes without improvement after which `early_stopping` stops; >= 1.
    random_state : int, RandomState instance or None, default=None
        Seeds the order of rows, the order of labels with equal scores, the sampled features and the held-out
        rows. Pass an int for reproducible results.
    n_jobs : int or None, default=None
        Number of threads; None means 1, -1 all cores. Never changes the result. Predictions, the precision on
        held-out rows and the duality gap use all threads, the passes over the rows use one.

    Attributes
    ----------
    coef_ : csc_array of shape (n_labels, n_features), dtype float32
        Weights, in CSC format because scoring reads them feature by feature.
    intercept_ : ndarray of shape (n_labels,), dtype float32
        Intercepts (0 with ``fit_intercept=False``) minus `threshold_`; -inf for a label that no training row
        has, so that it is never predicted.
    n_iter_ : int
        Number of passes, without those of `post_solve`.
    dual_gap_ : float
        Duality gap before `post_solve`: the primal objective minus the dual one, an upper bound on the
        distance of the objective from its optimum.
    validation_precision_ : ndarray of shape (n_iter_,) or (0,), dtype float64
        Precision at 1 on the held-out rows after each pass, from 0 to 1; empty without `early_stopping`.

    See Also
    --------
    DiSMECClassifier : Every label on its own.

    Notes
    -----
    Scores are ``w.x + b`` with `threshold_` subtracted from the intercepts b. Labels with positive scores are
    predicted.

    With "exact", a pass takes O(number of weights of the row's features + n_labels) time for each row.
    Memory: the stored values of X; about 30 bytes for each pair of a feature and a label that were active
    together in some row; and 12 bytes for each active label of a row. `early_stopping` doubles the weights
    and the active labels.

    The loss compares the labels of a row with one another. Therefore the sign of a score has no meaning, and
    label frequencies are not learned. The threshold and the intercepts are therefore learned after the
    weights. A tenth of the rows, at most 2,000, is held out. If that is less than a hundred rows, up to five
    tenths are held out in turn. The contribution of these rows
    to the weights is subtracted, two passes over the other rows adapt the weights, and the held-out rows are
    scored. The factor of the log frequencies is one of 0, 1/512, 1/256, ..., 2: the smallest whose mean label
    ranking average precision is within a standard error of the best. The threshold is chosen so that the
    number of predicted labels on the held-out rows equals the number of true ones. With `early_stopping`, the
    rows that it holds out are used, at almost no cost. Without, threshold and intercepts take up to 16 % of
    the fit time with a thousand rows or more, and up to 28 % (a few milliseconds) with a few hundred rows.
    The returned weights are not affected.

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
