"""The classifier `PDSparseClassifier`, a linear classifier with a ranking loss and sparse weights."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, issparse

from manylabel import _core
from manylabel.estimator import parameters as kinds
from manylabel.estimator.base import core_parts
from manylabel.estimator.parameters import fixed_threshold
from manylabel.estimator.progress import Progress, reported
from manylabel.estimator.registry import register
from manylabel.estimator.scaling import ScaledTable, core_features, scaled_features, unscaled_weights
from manylabel.estimator.schema import Array, Scalar, Schema, SparseMatrix
from manylabel.estimator.validation import KeptDense, check_training_set, held_out_rows
from manylabel.linear.base import LinearClassifier, SparseLinearClassifier

__all__ = ["PDSparseClassifier"]


@register(command="pd-sparse")
class PDSparseClassifier(SparseLinearClassifier):
    """Linear classifier with a max-margin ranking loss and sparse weights.

    `fit` minimizes ``sum_k (|w_k|^2/2 + l1 |w_k|_1) + C sum_i max(0, 1 + max_n w_n.x_i - min_p w_p.x_i)``
    over the weights w_k of all labels k. For each row x_i, n runs over the labels that the row does not have,
    and p over the labels that it has.

    The solver works on the dual problem, which has one variable for each pair of a row and a label. It
    updates the variables of one row at a time. Each row has an active set of a few labels. For all other
    labels, the variables of the row are 0 [1]_.

    Parameters
    ----------
    C : float, default=1.0
        Weight of the loss relative to the regularization; finite and > 0. Smaller values regularize more
        strongly.
    l1 : float, default=0.01
        Strength of the L1 penalty; finite and >= 0. Larger values give fewer nonzero weights. The default
        suits rows of unit length.
    max_iter : int, default=50
        Maximum number of passes over the rows; >= 1.
    tol : float, default=0.01
        Relative tolerance; finite and > 0. The fit has converged when the duality gap is below `tol` times
        the primal objective, which is the function that `fit` minimizes.
    search : {"exact", "sampled"}, default="exact"
        How `fit` finds the labels that most violate the margin of a row. Let s be the lowest score among the
        labels that the row has. A label that the row does not have violates the margin if its score exceeds
        ``s - 1``. The higher the score, the larger the violation. "exact" computes the scores of all labels.
        "sampled" estimates the scores from a random sample of the features of the row. Features with large
        absolute values in the row are more likely to be in the sample.
    n_candidates : int or None, default=None
        Maximum number of labels that a pass adds to the active set of a row; >= 1. The labels that most
        violate the margin of the row are added (see `search`). With an int, all passes have this maximum.
        With None, the maximum of the first pass is the mean number of labels per row, rounded up. The maximum
        increases in later passes if the search for labels takes most of the work. It never exceeds 100.
    post_solve : bool, default=True
        Whether to refit the nonzero weights after the main fit. The refit has no L1 penalty. It stops when it
        has converged within `tol`, and makes at most as many passes as the main fit. With `early_stopping`,
        the refitted weights are kept only if the refit does not lower the precision on the held-out rows.
    fit_intercept : bool, default=True
        Whether to add intercepts to the scores. The intercept of a label is a factor times the logarithm of
        the frequency of the label. All labels have the same factor, which is chosen on held-out rows (see
        Notes). If `normalize` scales the columns of X, ``fit_intercept=True`` also centers the columns in
        which most values are nonzero. Centering changes the weights. If `normalize` does not scale the
        columns, the weights do not depend on `fit_intercept`.
    threshold : {"auto", "zero"} or float, default="auto"
        Number that is subtracted from all scores. `predict` assigns the labels whose scores are positive
        after the subtraction. "auto" learns the threshold, so that the number of predicted labels on held-out
        rows equals the number of true labels (see Notes). "zero" is the threshold 0.
    early_stopping : bool, default=False
        Whether to stop the fit when the precision at 1 on held-out rows no longer improves. The weights of
        the best pass are kept.
    validation_fraction : float, default=0.1
        Fraction of the rows that `early_stopping` holds out; in (0, 1).
    n_iter_no_change : int, default=3
        If `early_stopping` is True, the fit stops when the precision on held-out rows has reached no new
        maximum for this number of consecutive passes; >= 1.
    random_state : int, RandomState instance or None, default=None
        Seed of four random choices: the order of the rows, the choice among labels with equal scores in the
        search, the sampled features, and the held-out rows. Pass an int for reproducible results.
    n_jobs : int or None, default=None
        Number of threads. None means 1, and -1 means all cores. The result does not depend on this number.
        Predictions, the precision on held-out rows and the duality gap are computed with all threads. The
        passes over the rows use only one thread.

    Attributes
    ----------
    coef_ : csc_array of shape (n_labels, n_features), dtype float32
        Weights. The format is CSC, because predictions read the weights feature by feature.
    intercept_ : ndarray of shape (n_labels,), dtype float32
        Intercepts (0 with ``fit_intercept=False``) minus the given or learned threshold (`threshold_`).
        Labels that occur in no training row have the intercept -inf, so that they are never predicted.
    n_iter_ : int
        Number of passes of the main fit, without the passes of `post_solve`.
    dual_gap_ : float
        Duality gap before `post_solve`: the primal objective minus the dual objective. The duality gap is an
        upper bound on the difference between the primal objective and its minimum.
    validation_precision_ : ndarray of shape (n_iter_,) or (0,), dtype float64
        Precision at 1 on the held-out rows after each pass, from 0 to 1; empty without `early_stopping`.

    See Also
    --------
    DiSMECClassifier : Fits a separate linear classifier for each label.

    Notes
    -----
    Scores, with the threshold subtracted, are ``X @ coef_.T + intercept_``. `predict` assigns the labels with
    positive scores. If `normalize_` is True, each row of X is first scaled to unit length.

    If an entry of Y is unknown (NaN), the loss of its row ignores the label of this entry. A row does not
    affect the weights if its known entries are all 0 or all 1.

    The loss of a row depends only on two labels: the lowest-scored label that the row has and the
    highest-scored label that it does not have. If many labels are hard to predict, nearly every row has these
    two labels in the wrong order, and the weights shrink to nearly zero. On such data, one-vs-rest
    classifiers such as `DiSMECClassifier` give better rankings.

    The loss only compares scores within a row. Without a threshold, the sign of a score therefore has no
    meaning. In addition, the loss does not take into account how frequent a label is. For these two reasons,
    `fit` learns intercepts and a threshold after the weights, from the scores of held-out rows:

    - The factor of the intercepts is one of 0, 1/512, 1/256, ..., 2. For each factor, `fit` computes the mean
      label ranking average precision of the held-out rows. `fit` chooses the smallest factor whose mean
      differs from the highest mean by at most the standard error of this difference.
    - With ``threshold="auto"``, the threshold is then chosen so that the number of predicted labels equals
      the number of true labels.

    With `early_stopping`, both choices use the rows that are held out for early stopping, at almost no cost.
    Without `early_stopping`, the weights in `coef_` are learned from all rows. After that, a tenth of the
    rows (at most 2,000) is held out. With fewer than 1,000 rows, up to five different tenths are held out in
    turn. `fit` subtracts the contributions of the held-out rows from a copy of the weights. `fit` then adapts
    the copy by two passes over the other rows, and scores the held-out rows with the copy. With at least
    1,000 rows, both choices together take up to 16 % of the fit time. With a few hundred rows, both choices
    together take a few milliseconds, which can be up to 28 % of the fit time.

    With ``search="exact"``, a pass takes O(m + n_labels) time for each row. Here, m is the number of nonzero
    weights in the columns of `coef_` for the nonzero features of the row.

    The fit stores the following data:

    - A copy of X. It takes 4 bytes per value if X is dense and has no zeros at all. Otherwise, it takes 8
      bytes per nonzero value.
    - The active sets. They take 12 bytes for each label in the active set of each row.
    - The weights. They take about 30 bytes for each distinct (feature, label) pair that occurs in a row. A
      pair occurs in a row if the feature is nonzero and the label is in the active set of the row.

    `early_stopping` doubles the memory of the active sets and the weights.

    If more than half of the values of a dense X are nonzero, the fit makes its copy directly from X. X may
    then have the dtype float16, float32 or float64 and any memory order, and may be memory-mapped. A dense X
    with fewer nonzero values is first converted to a sparse matrix.

    References
    ----------
    .. [1] I. Yen, X. Huang, K. Zhong, P. Ravikumar and I. Dhillon, "PD-Sparse: A Primal and Dual Sparse
       Approach to Extreme Multiclass and Multilabel Classification", ICML 2016.

    Examples
    --------
    >>> import manylabel as ml
    >>> X, Y = ml.datasets.make_multilabel(200, 50, 10, random_state=0)
    >>> model = ml.PDSparseClassifier(random_state=0).fit(X, Y)
    >>> model.predict_topk(X, k=3).shape
    (200, 10)
    """

    _couples_labels = (
        "its loss compares the scores of different labels of a row and is not a sum over the labels"
    )

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
        search: Literal["exact", "sampled"] = "exact",
        n_candidates: int | None = None,
        post_solve: bool = True,
        normalize: bool | Literal["auto", "rows", "columns"] = "auto",
        fit_intercept: bool = True,
        threshold: float | Literal["auto", "zero"] = "auto",
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 3,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self._assign(locals())

    @property
    def _dense(self) -> KeptDense:
        return "as given if mostly nonzero"

    def _fit(self, X: Any, y: Any, sample_weight: Any, progress: Progress) -> None:
        params = self.parameters.check(self)
        threshold = fixed_threshold(params["threshold"])
        sparse_output = issparse(y)
        X, y, sample_weight = check_training_set(self, X, y, sample_weight, dense=self._dense, unknown=True)
        held_out = None
        if params["early_stopping"]:
            held_out = held_out_rows(params["validation_fraction"], X.shape[0], params["random_state"])
        scaled = scaled_features(X, sample_weight, self.normalize, center=params["fit_intercept"])
        # The core scales a dense X while it copies the rows.
        columns = scaled.columns if isinstance(scaled, ScaledTable) else None
        params |= {"learn_cut": threshold is None, "normalize": scaled.by_row}
        with reported(params["max_iter"], "pass", params["verbose"], progress) as report:
            weights, intercept, n_iter, dual_gap, validation, cut = _core.fit_pdsparse(
                (core_features(scaled.X), y, sample_weight),
                columns,
                held_out,
                params,
                (params["n_jobs"], report),
            )
        # A CSR matrix of shape (n_features, n_labels) has the same arrays as its transpose in CSC format.
        coef = csc_array(core_parts(weights), shape=(y.shape[1], X.shape[1]))
        self.coef_, intercept = unscaled_weights(coef, intercept, scaled.columns)
        self._shift(intercept, threshold, cut)
        self.n_iter_, self.dual_gap_ = n_iter, dual_gap
        self.validation_precision_ = validation
        self.normalize_ = scaled.by_row
        self.classes_ = np.arange(y.shape[1])
        self.sparse_output_ = sparse_output
