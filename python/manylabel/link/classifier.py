"""The classifier `SmoothLinkClassifier`, and the function `smooth_link_space`."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from copy import copy
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.sparse import csr_array, issparse
from scipy.special import expit, softmax
from sklearn.exceptions import ConvergenceWarning

from manylabel import _core
from manylabel.embedding import Rembrandt
from manylabel.estimator import parameters as kinds
from manylabel.estimator.base import ODDS_OF_MARGINS, MultiLabelClassifier
from manylabel.estimator.explanation import Explained
from manylabel.estimator.parameters import check_count, fixed_threshold, n_threads
from manylabel.estimator.progress import Progress, reported
from manylabel.estimator.registry import register
from manylabel.estimator.schema import ANY, Array, Classes, Scalar, Schema
from manylabel.estimator.validation import (
    KeptDense,
    check_training_set,
    held_out_rows,
    known_ones,
    one_hot,
)
from manylabel.link.setup import (
    KERNELS,
    Embedding,
    automatic_features,
    check_one_label,
    core_params,
    linear_predictions,
    of_unit_length,
    scales_rows,
    unfitted_embedding,
)

__all__ = ["SmoothLinkClassifier", "smooth_link_space"]


@register(command="smooth-link", demo=("Smooth link", lambda link: link(random_state=0)))
class SmoothLinkClassifier(MultiLabelClassifier):
    """Classifier that scores labels by a nonlinear function of a few linear predictions.

    The model has two parts. The first part, called the embedding, is a linear model such as `Rembrandt`. For
    each row of X, the embedding predicts a vector p of k numbers. This vector summarizes the labels of the
    row. The second part, called the link, computes one output for each label from p:
    ``cos((p, 1) R + b) V + v``. Here, (p, 1) is the vector p with a 1 appended. R contains random
    frequencies, and b contains random phases. V contains the fitted weights, and v contains the fitted
    intercepts of the labels. The cosines are random features of a kernel, so the link approximates a kernel
    machine on p [1]_.

    With the logistic loss and the softmax loss, the outputs of the link are logits. With the squared loss,
    the outputs are least-squares predictions of Y, whose entries are 0 or 1. The score of a label is the
    output minus a threshold. With the squared loss, 1/2 is also subtracted (see Notes).

    Parameters
    ----------
    n_components : int or float, default=0.99
        Number k of components of the embedding. An int is the number of components; >= 1. A float between 0
        and 1 is a fraction of the sum of all eigenvalues of ``Y'Y``, where Y is the indicator matrix of the
        labels. Then k is the smallest number for which the k largest eigenvalues make up more than this
        fraction of the sum. With a float, k is at most 300. With more than 1024 labels, k is 300 for every
        float. This parameter is ignored with ``embedding="none"``.
    kernel : str, default="gaussian"
        Kernel that the random features approximate. "gaussian" is the Gaussian kernel. "matern-3" and
        "matern-5" are the Matérn kernels of smoothness 3/2 and 5/2. "cauchy" is the kernel for which the
        random frequencies have a Cauchy distribution. Large frequencies are rarest with "gaussian", more
        common with "matern-5" and "matern-3", and most common with "cauchy". "quasi-gaussian",
        "quasi-matern-3" and "quasi-matern-5" approximate the kernels "gaussian", "matern-3" and "matern-5",
        but draw the frequencies by Latin hypercube sampling. "linear" uses no cosines: the scores are linear
        functions of p.
    n_features : int or "auto", default="auto"
        Number s of random features; >= 1. "auto" is a quarter of the number of rows, but at least 100 and at
        most 2000. This parameter is ignored with ``kernel="linear"``.
    gamma : float or "auto", default="auto"
        Factor that multiplies the random frequencies; finite and > 0. A larger gamma gives a more nonlinear
        link. The Gaussian kernel is ``exp(-gamma^2 |p - p'|^2 / q)``, where p and p' are the linear
        predictions of two rows. Here, q is the median of ``|p - p'|^2`` over all pairs of rows. With more
        than 1000 rows, q is computed from 1000 random rows. ``gamma=1`` is the median heuristic. "auto"
        chooses 1/4, 1/2 or 1 by the leave-one-out error of least-squares fits (see Notes). This parameter is
        ignored with ``kernel="linear"``.
    loss : {"logistic", "squared", "softmax"}, default="logistic"
        Loss function of a row. "logistic" and "squared" are sums of a loss over all labels. "softmax" is the
        multinomial logistic loss. With "softmax", each row must have exactly one label, and y may be 1-D with
        one class per row.
    embedding : {"rembrandt", "gaussian", "pca", "none"} or Rembrandt, default="rembrandt"
        Method that computes the linear predictions p. "rembrandt", "gaussian" and "pca" are described at the
        parameter `embedding` of `Rembrandt`. "none" does not reduce the dimension of Y: p then contains one
        prediction for each label, from one ridge regression per label. The dense array `projection_` then has
        one weight for each pair of a feature and a label. If an instance of `Rembrandt` is given, a clone of
        the instance is fitted. The `n_components`, `l2`, `n_iter` and `n_oversamples` of the instance then
        replace those of the classifier. If the `random_state` of the instance is None, the clone uses the
        `random_state` of the classifier.
    solver : {"psgd", "newton-cg"}, default="psgd"
        Solver for the weights V of the link. "psgd" starts at the least-squares solution and takes
        preconditioned stochastic gradient steps with momentum. The result of "psgd" is regularized by the
        small number of passes, the ridge penalty and label smoothing. "newton-cg" computes the optimum of the
        logistic loss plus the ridge penalty, and does not support "softmax". With the squared loss, the
        solution has a closed form, so this parameter is ignored.
    l2 : float or "auto", default="auto"
        Ridge penalty of all regressions of the embedding, as a multiple of the mean diagonal entry of
        ``X'X``; finite and >= 0. "auto" chooses the penalty with the lowest leave-one-out error. "auto" also
        centers X and Y, and fits the link to leave-one-out predictions. If many values of X are nonzero,
        "auto" also scales the columns of X. Otherwise, it scales every row to unit Euclidean length (see
        Notes). This parameter is ignored with ``embedding="pca"``.
    l2_link : float or "auto", default="auto"
        Ridge penalty of the weights V of the link, as a multiple of the mean diagonal entry of the Gram
        matrix of the random features; finite and >= 0. "auto" is 0.1.
    n_iter : int, default=1
        Number of passes over the data that improve the random vectors from which the embedding is computed;
        >= 0. More passes give a more accurate embedding, but take longer (see `Rembrandt`).
    n_oversamples : int, default=20
        Number of random vectors beyond the number k of components; >= 0. The fit of the embedding starts with
        ``k + n_oversamples`` random vectors (see `Rembrandt`).
    n_passes : int, default=8
        Number of passes of "psgd" over the rows; >= 1.
    step_size : float, default=1.0
        Step size of "psgd"; finite and > 0. Values up to 4 converge fast. Larger values may diverge.
    momentum : float, default=0.5
        Momentum of "psgd"; in [0, 1).
    decay : float, default=0.95
        Factor by which the step size and the momentum are multiplied after each pass of "psgd"; in (0, 1].
    threshold : {"auto", "zero"} or float, default="auto"
        Number that is subtracted from the outputs of the link to get the scores. With the squared loss, 1/2
        is also subtracted. `predict` assigns the labels with positive scores. "zero" is the threshold 0,
        which corresponds to a probability of one half. "auto" chooses the threshold nearest to 0 for which
        the number of predicted labels is 0.7 to 1.4 times the number of true labels. Both numbers are totals
        over held-out rows (see Notes). With ``loss="softmax"``, `predict` does not depend on the threshold,
        and "auto" is the threshold 0.
    shrink : float or None, default=None
        Target value of a label that is present, for label smoothing; in (0.5, 1]. The target value of an
        absent label is ``1 - shrink``. None means ``1 - 1/n``, but at least 0.75, where n is the number of
        training rows.
    preflate : bool, default=False
        Whether to enlarge the initial weights of rare classes. This option requires ``kernel="linear"`` and
        ``loss="softmax"``.
    early_stopping : bool, default=False
        Whether "psgd" stops when the loss on held-out rows no longer falls. The weights of the best pass are
        kept.
    validation_fraction : float, default=0.1
        Fraction of the rows that `early_stopping` holds out; in (0, 1).
    n_iter_no_change : int, default=2
        Number of consecutive passes without a new minimum of the loss on the held-out rows, after which
        `early_stopping` ends the fit; >= 1.
    max_iter : int, default=100
        Maximum number of "newton-cg" steps; >= 1.
    tol : float, default=1e-3
        Tolerance of "newton-cg"; finite and > 0. A label has converged when the norm of the gradient of its
        objective is at most `tol` times the norm of this gradient at zero weights.
    max_memory : int or None, default=None
        Memory limit for the fit of the link, in bytes; >= 1. The random features of all rows are computed
        once and stored, if the limit allows it. Otherwise, they are computed again in every pass. `fit`
        raises `MemoryError` if the estimated memory exceeds the limit even without stored random features.
        None means no limit. In this case, the random features are stored if they take at most 2 GiB.
    random_state : int, RandomState instance or None, default=None
        Seed of the embedding, the frequencies, the order of the rows and the choice of held-out rows. Pass an
        int for exactly reproducible results.

    Attributes
    ----------
    projection_ : ndarray of shape (n_features_in_, n_components_), dtype float64
        Weights W of the linear predictions ``p = X @ projection_ + projection_intercept_``. If `normalize_`
        is True, the rows of X are first scaled to unit length.
    projection_intercept_ : ndarray of shape (n_components_,), dtype float64
        Intercepts of the linear predictions p.
    frequencies_ : ndarray of shape (n_components_ + 1, n_features), dtype float32
        Random frequencies R. Here and in the shapes below, n_features is the number s of random features. The
        last row of R is multiplied by the 1 that is appended to p. With ``kernel="linear"``, R has no
        columns.
    phases_ : ndarray of shape (n_features,), dtype float32
        Random phases b, in radians. The array is empty with ``kernel="linear"``.
    coef_ : ndarray of shape (n_labels, n_features), dtype float32
        The transpose of V. With ``kernel="linear"``, the shape is (n_labels, n_components_).
    intercept_ : ndarray of shape (n_labels,), dtype float32
        Intercepts of the scores. They are ``v - threshold_``, or ``v - 1/2 - threshold_`` with the squared
        loss, where v contains the intercepts of the link. The intercept is -inf for labels that occur in no
        training row.
    gamma_ : float
        The value of `gamma`, as given or chosen.
    threshold_ : float
        The value of `threshold`, as given or learned. It is already subtracted from the intercepts, so that
        predicted labels have positive scores. With "softmax", it has no effect on predictions and
        probabilities.
    l2_ : float
        The value of `l2`, as given or chosen. It is 0 with ``embedding="pca"``.
    normalize_ : bool
        Whether predictions scale rows to unit length.
    ridge_ : float
        The ridge penalty of V that was used, as a multiple of the mean diagonal entry of the Gram matrix. It
        equals `l2_link`, or is larger if the Gram matrix was singular.
    validation_loss_ : ndarray of shape (n_iter_,) or (0,), dtype float64
        Mean loss per held-out row after each pass; empty without `early_stopping`.
    n_iter_ : int
        Number of passes of "psgd", or 1 with the squared loss. With "newton-cg", the value is the largest
        number of Newton steps that any label took. The parameter `n_iter` is unrelated: it is the number of
        passes at the start of the fit of the embedding.
    n_components_ : int
        Number k of linear predictions.
    classes_ : ndarray of shape (n_labels,), or (2,) if y was 1-D and `loss` is not "softmax"
        Column indices of the labels in Y: ``arange(n_labels)``. If y was 1-D in `fit` and `loss` is
        "softmax", the array contains the sorted distinct classes of y, and n_labels is the number of classes.
        If y was 1-D and `loss` is not "softmax", there is only one label, and the array contains the values 0
        and 1 of y.
    one_dimensional_ : bool
        Whether y was 1-D in `fit`. If y was 1-D, predictions are also 1-D.

    See Also
    --------
    manylabel.decision.F1Inference : Label sets that maximize macro-F1, computed from `predict_proba`.
    smooth_link_space : Parameter ranges for a random search.

    Notes
    -----
    Y may have unknown entries (NaN), except with ``loss="softmax"``. The embedding treats unknown entries as
    `Rembrandt` does. The loss of the link ignores unknown entries. Unknown entries count as 0 in the choice
    of `gamma`, and in the least-squares solution from which "psgd" starts.

    Ctrl-C ends a fit within a second, except while the embedding factorizes a large matrix. `fit` issues a
    `ConvergenceWarning` if the ridge penalty was increased because the Gram matrix was singular. `fit` also
    issues a `ConvergenceWarning` if labels did not converge in `max_iter` Newton steps.

    Scores and probabilities are computed from the outputs of the link:

    - With "logistic", the score is the output minus `threshold_`. The probability is
      ``1 / (1 + exp(-(score + threshold_)))``.
    - With "squared", the score is the output minus 1/2 minus `threshold_`. The probability is the output,
      clipped to [0, 1].
    - With "softmax", the score is the output minus `threshold_`. The probabilities of a row are the softmax
      of the outputs and sum to 1. `predict` assigns the class with the highest score.

    Let n be the number of rows, s the number of random features, k the number of components and c the number
    of labels. After the fit of the embedding, the random features take O(n s k) time, and the least-squares
    solution takes O(n s^2 + s^3) time. Each pass of "psgd" takes O(n s c) time. A batch of "psgd" is usually
    a tenth of the rows. If n is greater than ``20 * n_passes * c``, or if the random features are not stored,
    each batch takes O(s^2 c) additional time.

    The fit of the link uses the following memory:

    - 4 n k bytes for the linear predictions, and 4 n s bytes for the random features if they are stored.
    - 20 s^2 bytes for the Gram matrix and its factorization, and 4 s c bytes for V.
    - 24 s bytes for each of the labels that are fitted at the same time. With "softmax" or early stopping,
      all labels are fitted at the same time. Otherwise, at most 4096 labels are fitted at the same time.
    - With "newton-cg", 320 n bytes for each thread.

    `max_memory` limits only the memory for the fit of the link. The Notes of `Rembrandt` describe the memory
    for the fit of the embedding, which computes in float64. If more than half of the values of X are nonzero,
    the embedding usually needs a dense float64 copy of X, which takes 8 bytes per value. No copy is made if X
    is a float64 array in C order, its columns are not scaled, and all rows are used. All rows are used if no
    row has weight 0 and `early_stopping` holds out no rows. If rows are scaled, the embedding needs a sparse
    float64 copy of X, with 12 or 16 bytes per nonzero value. Predictions compute the random features of only
    a few rows at a time.

    The embedding predicts its own training rows better than new rows, especially if there are few training
    rows. A link that is fitted to the ordinary predictions for the training rows overfits. With
    ``l2="auto"``, the link is therefore fitted to leave-one-out predictions: the prediction for a row comes
    from a regression that is fitted without the row. All leave-one-out predictions are computed from one fit
    to all rows. The Notes of `Rembrandt` describe the choice of the ridge penalty and the cost of this
    choice.

    With ``l2="auto"``, columns are divided by their standard deviations if more than an eighth of the values
    of X are nonzero. A single ridge penalty then suits features of different scales. `projection_` applies to
    the unscaled columns. If at most an eighth of the values are nonzero, as in word counts, every row is
    scaled to unit Euclidean length, in `fit` and in predictions. Without this scaling, the squared errors of
    the embedding would depend mostly on a few long texts. If `l2` is a number, or if `embedding` is "pca" or
    an instance of `Rembrandt`, X is not scaled. In these cases, the link is fitted to the ordinary
    predictions for the training rows, as in [1]_.

    ``gamma="auto"`` chooses the value with the lowest leave-one-out error of least-squares fits. The fits use
    at most 4000 rows and the 64 most frequent labels. The comparison of the values of gamma corrects for two
    differences between these fits and the final fit. First, the final fit can use more rows. Second, the
    solver of the final fit can make the effect of the ridge penalty stronger or weaker. With many rows or
    labels, the comparison takes at most about a tenth of the time of the fit of V. With few rows and labels,
    the comparison may take longer than the fit of V.

    A threshold at a probability of one half minimizes the Hamming loss. However, if labels are hard to
    predict, only a few probabilities exceed one half. ``threshold="auto"`` therefore learns a threshold from
    held-out rows. A fifth of the rows is held out, but at most 4000 rows. With fewer than 2500 rows, up to
    five different fifths are held out, one after the other. Each time, the weights V are fitted again to the
    other rows, but only for a sample of frequent and rare labels. With many labels, each of these fits takes
    at most about a tenth of the time of the fit of V. With few labels, each of these fits can take longer,
    because the sample has at least 32 labels, or all labels if there are fewer.

    A learned threshold corresponds to a probability from 0.01 to 0.99. If the held-out rows have fewer than
    ten positive entries for the sampled labels, the threshold is 0.

    The authors of [1]_ use ``n_components=0.9, n_iter=2, l2=1e-4, threshold="zero"``. They choose the other
    parameters by a random search over the ranges that `smooth_link_space` returns. Their code scales the
    frequencies of the "quasi-" kernels differently: a value ``g`` of gamma in their code corresponds to
    ``gamma=g / sqrt(2)`` in this class.

    References
    ----------
    .. [1] N. Karampatziakis and P. Mineiro, "Scalable Multilabel Prediction via Randomized Methods",
       arXiv:1502.02710, algorithm 3 (algorithm 2 with ``embedding="none"``).

    Examples
    --------
    >>> import manylabel as ml
    >>> X, Y = ml.datasets.make_multilabel(200, 50, 10, random_state=0)
    >>> model = ml.SmoothLinkClassifier(n_features=300, random_state=0).fit(X, Y)
    >>> model.predict_proba(X).shape
    (200, 10)
    """

    _couples_labels = "all labels share the linear predictions of the embedding"

    parameters = kinds.Parameters(
        n_components=kinds.Either(kinds.Count(1), kinds.Number(above=0, below=1)),
        kernel=kinds.Choice(*KERNELS, documented="str"),
        n_features=kinds.Either("auto", kinds.Count(1)),
        gamma=kinds.Either("auto", kinds.Number(above=0)),
        loss=kinds.Choice("logistic", "squared", "softmax"),
        embedding=kinds.Either(kinds.Choice("rembrandt", "gaussian", "pca", "none"), Embedding()),
        solver=kinds.Choice("psgd", "newton-cg"),
        l2=kinds.Either("auto", kinds.Number(least=0)),
        l2_link=kinds.Either("auto", kinds.Number(least=0)),
        n_iter=kinds.Count(0),
        n_oversamples=kinds.Count(0),
        n_passes=kinds.Count(1),
        step_size=kinds.Number(above=0),
        momentum=kinds.Number(least=0, below=1),
        decay=kinds.Number(above=0, most=1),
        threshold=kinds.Threshold(),
        shrink=kinds.Either(None, kinds.Number(above=0.5, most=1)),
        preflate=kinds.Flag(),
        early_stopping=kinds.Flag(),
        validation_fraction=kinds.Number(above=0, below=1),
        n_iter_no_change=kinds.Count(1),
        max_iter=kinds.Count(1),
        tol=kinds.Number(above=0),
        max_memory=kinds.Either(None, kinds.Count(1, most=2**63)),
        **kinds.SEEDED_RUN,
    )

    schema = Schema(
        sparse_output_=Scalar(bool),
        one_dimensional_=Scalar(bool, size="one_dimensional"),
        n_components_=Scalar(int, size="n_components"),
        projection_=Array(("n_features", "n_components"), "f8"),
        projection_intercept_=Array(("n_components",), "f8"),
        phases_=Array(("n_cosines",), "f4"),
        frequencies_=Array(("n_components + 1", "n_cosines"), "f4"),
        coef_=Array(("n_labels", "n_inputs"), "f4"),
        intercept_=Array(("n_labels",), "f4", or_minus_infinity=True),
        classes_=Classes(ANY),
        # Model files of version 0.1 do not have the following four attributes.
        gamma_=Scalar(float, optional=True),
        threshold_=Scalar(float, finite=True, optional=True),
        l2_=Scalar(float, optional=True),
        normalize_=Scalar(bool, optional=True),
        ridge_=Scalar(float),
        validation_loss_=Array(("n_losses",), "f8"),
        n_iter_=Scalar(int),
    )

    projection_: NDArray[np.float64]
    projection_intercept_: NDArray[np.float64]
    frequencies_: NDArray[np.float32]
    phases_: NDArray[np.float32]
    coef_: NDArray[np.float32]
    intercept_: NDArray[np.float32]
    validation_loss_: NDArray[np.float64]

    def __init__(
        self,
        n_components: int | float = 0.99,
        *,
        kernel: Literal[
            "gaussian",
            "matern-3",
            "matern-5",
            "cauchy",
            "linear",
            "quasi-gaussian",
            "quasi-matern-3",
            "quasi-matern-5",
        ] = "gaussian",
        n_features: int | Literal["auto"] = "auto",
        gamma: float | Literal["auto"] = "auto",
        loss: Literal["logistic", "squared", "softmax"] = "logistic",
        embedding: Literal["rembrandt", "gaussian", "pca", "none"] | Rembrandt = "rembrandt",
        solver: Literal["psgd", "newton-cg"] = "psgd",
        l2: float | Literal["auto"] = "auto",
        l2_link: float | Literal["auto"] = "auto",
        n_iter: int = 1,
        n_oversamples: int = 20,
        n_passes: int = 8,
        step_size: float = 1.0,
        momentum: float = 0.5,
        decay: float = 0.95,
        threshold: float | Literal["auto", "zero"] = "auto",
        shrink: float | None = None,
        preflate: bool = False,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 2,
        max_iter: int = 100,
        tol: float = 1e-3,
        max_memory: int | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self._assign(locals())

    @property
    def _dense(self) -> KeptDense:
        return "if mostly nonzero"

    def _fit(self, X: Any, y: Any, sample_weight: Any, progress: Progress) -> None:
        params = self.parameters.check(self)
        learned = core_params(params)
        _core.check_link(learned)  # checked first, since the embedding may take long
        embedding = unfitted_embedding(params)
        sparse_output = issparse(y)
        y, classes = one_hot(y) if self._takes_classes else (y, None)
        # With the softmax, each row must have one known label. All its other labels are then absent.
        X, y, sample_weight = check_training_set(
            self, X, y, sample_weight, dense=self._dense, unknown=self.loss != "softmax"
        )
        if self.loss == "softmax":
            check_one_label(y)
        held_out = None
        # A single row is not held out, because no row would be left for the fit.
        if X.shape[0] > 1 and params["early_stopping"] and self.solver == "psgd" and self.loss != "squared":
            held_out = held_out_rows(params["validation_fraction"], X.shape[0], params["random_state"])
        if params["n_features"] == "auto":
            n_learned = X.shape[0] if held_out is None else int(np.count_nonzero(~held_out))
            learned["n_features"] = automatic_features(n_learned)
        n_seen = int((np.bincount(known_ones(y).indices, minlength=y.shape[1]) > 0).sum())
        rounds = self.n_passes + 1 if self.solver == "psgd" and self.loss != "squared" else 1
        by_row = scales_rows(params, X)
        with reported(n_seen, "label", params["verbose"], progress) as report:
            projection, intercept, predictions = linear_predictions(
                params, embedding, (X, y, sample_weight), held_out, by_row, lambda _: report(0)
            )
            fitted = _core.fit_link(
                (X, y, sample_weight),
                projection,
                intercept,
                predictions,
                held_out,
                learned,
                (params["n_jobs"], lambda done: report(done // rounds)),
            )
        self.projection_, self.projection_intercept_ = projection, intercept
        self.n_components_ = len(intercept)
        self.frequencies_, self.phases_, self.coef_, self.intercept_ = fitted[:4]
        self.ridge_, self.validation_loss_, steps, threshold, self.gamma_ = fitted[4:]
        fixed = fixed_threshold(params["threshold"])
        self.threshold_ = float(threshold if fixed is None else fixed)
        self.intercept_ -= np.float32(self.threshold_)
        self.l2_ = embedding.l2_
        self.normalize_ = by_row
        self.classes_ = np.arange(y.shape[1]) if classes is None else classes
        if self._takes_classes:
            self.one_dimensional_ = classes is not None
        self.sparse_output_ = sparse_output
        self._note_convergence(steps, learned["l2_link"])

    def _log_odds(self, scores: NDArray[Any]) -> NDArray[Any]:
        # Scores have targets -1/2 and 1/2. Twice the score is a margin with targets -1 and 1.
        return ODDS_OF_MARGINS * 2 * scores if self.loss == "squared" else scores

    def _make_scorer(self) -> _core.Scorer:
        return _core.link_scorer(self)

    def _explained(self, x: csr_array, label: int, names: Sequence[str]) -> Explained:
        if not self._normalizes_rows:
            return super()._explained(x, label, names)
        # The row is scaled once. Otherwise, the other features would grow with each feature that is set to 0.
        unscaled = copy(self)
        unscaled.normalize_ = False
        return unscaled._explained(of_unit_length(x), label, names)

    @property
    def _normalizes_rows(self) -> bool:
        """Whether predictions scale rows to unit length."""
        return getattr(self, "normalize_", False)  # models from files of version 0.1 have no `normalize_`

    @property
    def _takes_classes(self) -> bool:
        return bool(self.loss == "softmax")

    def _knows_probabilities(self) -> bool:
        return True

    def _probabilities(self, X: csr_array | NDArray[Any]) -> NDArray[np.float64]:
        # Models from files of version 0.1 have no `threshold_`.
        scores = self._scorer().decision(X, n_threads(self.n_jobs)).astype(np.float64)
        scores += getattr(self, "threshold_", 0.0)
        if self.loss == "softmax":
            return np.asarray(softmax(scores, axis=1))
        if self.loss == "squared":
            return np.clip(scores + 0.5, 0.0, 1.0)
        return np.asarray(expit(scores))

    def predict(self, X: Any) -> csr_array | NDArray[Any]:
        """Predict the labels with positive scores. With ``loss="softmax"``, predict the highest-scored class.

        Returns
        -------
        ndarray or csr_array of shape (n_samples, n_labels), dtype int64
            0/1 indicator matrix. If Y was sparse in `fit`, the result is sparse, and no dense array is
            formed. With ``loss="softmax"``, each row has exactly one label. If y was 1-D in `fit`, the result
            is instead an ndarray of shape (n_samples,). With ``loss="softmax"``, this ndarray contains the
            class with the highest score for each row. With the other losses, it contains 0 or 1 for each row.

        Raises
        ------
        ValueError
            If X is not valid, or if its number of features differs from the number in `fit`.
        """
        if self.loss == "softmax":
            best = self.predict_topk(X, k=1)
            if self.one_dimensional_:
                return self.classes_[best.indices]
            return self._indicator(best)
        return super().predict(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if self.loss == "softmax":
            tags.classifier_tags.multi_class = True
        return tags

    def _note_convergence(self, steps: NDArray[np.int32], l2_link: float) -> None:
        if self.ridge_ > l2_link * (1 + 1e-9):
            warnings.warn(
                f"the Gram matrix was singular with l2_link={l2_link}; "
                f"the larger ridge penalty {self.ridge_:.3g} was used instead",
                ConvergenceWarning,
                stacklevel=4,
            )
        self.n_iter_ = 1
        if self.loss != "squared" and self.solver == "psgd":
            self.n_iter_ = len(self.validation_loss_) or self.n_passes
        elif self.loss != "squared":
            unfinished = int(np.count_nonzero(steps > self.max_iter))
            self.n_iter_ = max(1, min(int(steps.max(initial=1)), self.max_iter))
            if unfinished:
                warnings.warn(
                    f"{unfinished} of {len(steps)} labels did not converge in max_iter={self.max_iter} steps",
                    ConvergenceWarning,
                    stacklevel=4,
                )


def smooth_link_space(n_samples: int) -> dict[str, Any]:
    """Return parameter ranges for a random search with `SmoothLinkClassifier`.

    The ranges are those of Karampatziakis and Mineiro (2015).

    Parameters
    ----------
    n_samples : int
        Number of training rows of each fit of the search; >= 5. If the search uses cross-validation, do not
        count the rows of the fold that is held out. The range of the parameter `shrink` depends on
        `n_samples`. With fewer than 5 rows, this range would include 1/2, which is not a valid value of
        `shrink`.

    Returns
    -------
    dict of str to list or distribution
        Value for the parameter `param_distributions` of `sklearn.model_selection.RandomizedSearchCV`. To
        repeat the search of the authors, pass
        ``n_components=0.9, n_iter=2, l2=1e-4, threshold="zero"`` to `SmoothLinkClassifier`. The authors drew
        300 settings of the parameters and validated each setting on a tenth of the rows.

    Examples
    --------
    >>> from sklearn.model_selection import ParameterSampler
    >>> from manylabel.link import smooth_link_space
    >>> draw = next(iter(ParameterSampler(smooth_link_space(1000), 1, random_state=0)))
    >>> sorted(draw)[:3]
    ['decay', 'gamma', 'kernel']
    """
    n_samples = check_count("n_samples", n_samples, 5)
    least, most = 1 / n_samples, n_samples**-0.5
    return {
        "n_features": stats.randint(1001, 8001),
        "gamma": stats.uniform(0.25, 3.5),
        "l2_link": stats.loguniform(1e-4, 1e-1),
        "n_passes": stats.randint(2, 16),
        "step_size": stats.uniform(0.25, 1.0),
        "momentum": stats.uniform(0.05, 0.85),
        "decay": _CappedUniform(0.9, 0.15),
        "kernel": [f"{quasi}{kernel}" for quasi in ("", "quasi-") for kernel in _SEARCHED_KERNELS],
        "shrink": stats.uniform(1 - most, most - least),
    }


_SEARCHED_KERNELS = ("gaussian", "matern-3", "matern-5")


class _CappedUniform:
    """Uniform distribution on [low, low + width], with values above 1 replaced by 1."""

    def __init__(self, low: float, width: float) -> None:
        self._uniform = stats.uniform(low, width)

    def rvs(self, *args: Any, **kwargs: Any) -> Any:
        return np.minimum(self._uniform.rvs(*args, **kwargs), 1.0)
