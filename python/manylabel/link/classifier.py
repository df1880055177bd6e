"""The smooth link as an estimator, and what to search."""

from __future__ import annotations

import warnings
from typing import Any

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
from manylabel.estimator.parameters import check_count, fixed_threshold, n_threads
from manylabel.estimator.progress import Progress, reported
from manylabel.estimator.registry import register
from manylabel.estimator.schema import ANY, Array, Classes, Scalar, Schema
from manylabel.estimator.validation import (
    check_training_set,
    held_out_rows,
    one_hot,
)
from manylabel.link.setup import (
    KERNELS,
    Embedding,
    automatic_features,
    check_one_label,
    core_params,
    linear_predictions,
    unfitted_embedding,
)

__all__ = ["SmoothLinkClassifier", "smooth_link_space"]


@register(command="smooth-link", demo=("Smooth link", lambda link: link(random_state=0)))
class SmoothLinkClassifier(MultiLabelClassifier):
    """Random cosine features of a low-rank linear prediction, with a linear model on top.

    `Rembrandt` gives k linear predictions p of a row that know what labels have in common. The scores are
    ``cos((p, 1) R + b) V``, with random frequencies R: the primal form of a kernel machine on predictions,
    which bends independent linear predictions into joint ones [1]_.

    Parameters
    ----------
    n_components : int or float, default=0.99
        Size of the embedding; >= 1. A float in (0, 1) is a share: the fewest components whose eigenvalues of
        ``Y'Y`` sum to more than that share of its trace, at most 300; with more than 1024 labels 300.
    kernel : str, default="gaussian"
        "gaussian", "matern-3", "matern-5" or "cauchy" (for ever more components), "linear" for no cosines, or
        "quasi-gaussian", "quasi-matern-3" or "quasi-matern-5" with frequencies drawn by Latin hypercube.
    n_features : int or "auto", default="auto"
        Random features s; >= 1. "auto" is a quarter of the rows, but at least 100 and at most 2000. Of no
        consequence with "linear".
    gamma : float or "auto", default="auto"
        Multiple of the frequencies that the median of squared distances suggests: the Gaussian kernel is
        ``exp(-gamma^2 |p - p'|^2 / median)``; finite and > 0. "auto" is the one of 1/4, 1/2 and 1 with the
        least leave-one-out error of least squares; see Notes.
    loss : {"logistic", "squared", "softmax"}, default="logistic"
        Of every label, or of the one class of a row.
    embedding : {"rembrandt", "gaussian", "pca", "none"} or Rembrandt, default="rembrandt"
        Where the linear predictions come from; see `Rembrandt`. "none" takes those of the labels themselves,
        one ridge regression each: n_features_in_ x n_labels numbers. Of an instance, which stays as it is,
        a clone is fitted, with its own `n_components`, `l2`, `n_iter` and `n_oversamples` in place of those
        here, and the seed from here unless it has one.
    solver : {"psgd", "newton-cg"}, default="psgd"
        "psgd" takes preconditioned stochastic gradients with momentum from the least-squares solution;
        stopping after a few passes, the ridge and label smoothing are its regularization. "newton-cg" finds
        the optimum of the logistic loss plus ridge. The squared loss has a closed form.
    l2 : float or "auto", default="auto"
        Ridge of all regressions of the embedding, relative to the mean diagonal of ``X'X``; finite and >= 0.
        "auto" chooses it by leave-one-out error, centers X and Y, gives features of dense X unit variance
        and has the link learn from leave-one-out predictions; see Notes. With "pca" it has no meaning.
    l2_link : float or "auto", default="auto"
        Ridge of V relative to the mean diagonal of the Gram matrix of features; finite and >= 0. "auto" is
        0.1.
    n_iter : int, default=1
        Passes of the range finder of the embedding before the last; >= 0.
    n_oversamples : int, default=20
        Columns of its probe beyond `n_components`; >= 0.
    n_passes : int, default=8
        Passes of "psgd" over the rows; >= 1.
    step_size : float, default=1.0
        Step of "psgd"; finite and > 0. Up to 4 is fast, more may not converge.
    momentum : float, default=0.5
        Of "psgd"; in [0, 1).
    decay : float, default=0.95
        What step and momentum are multiplied by after each pass; in (0, 1].
    threshold : {"auto", "zero"} or float, default="auto"
        Logit (with the squared loss, prediction less 1/2) above which `predict` names a label. "zero" is a
        probability of one half. "auto" is that too unless fewer than 0.7 or more than 1.4 times the true
        labels would be named of rows that the weights were not fitted to, and then the nearest score to name
        so many; see Notes. Of no consequence with "softmax".
    shrink : float or None, default=None
        Label smoothing: the target of a label that is present; in (0.5, 1]. None is ``1 - 1/n_samples``.
    preflate : bool, default=False
        Whether the start of rare classes is enlarged; for the kernel "linear" with "softmax" only.
    early_stopping : bool, default=False
        Whether "psgd" stops when the loss on held-out rows no longer falls, and keeps the best pass.
    validation_fraction : float, default=0.1
        Share of the rows held out; in (0, 1).
    n_iter_no_change : int, default=2
        Passes without a better held-out loss after which it stops; >= 1.
    max_iter : int, default=100
        Steps of "newton-cg" at most; >= 1.
    tol : float, default=1e-3
        Length of a label's gradient, relative to that at zero weights, at which "newton-cg" is done; finite
        and > 0.
    max_memory : int or None, default=None
        Bytes that the fit of the link may take; >= 1. What is forecast to need more raises; features are kept
        from pass to pass if there is room, or computed anew. None for no limit, and features of 2 GiB.
    random_state : int, RandomState instance or None, default=None
        Seeds the embedding, frequencies and the order of rows. An int gives the same bits every time.

    Attributes
    ----------
    projection_ : ndarray of shape (n_features_in_, n_components_), dtype float64
        W of the linear predictions.
    projection_intercept_ : ndarray of shape (n_components_,), dtype float64
        What is added to them.
    frequencies_ : ndarray of shape (n_components_ + 1, n_features), dtype float32
        R, the last row that of the constant; no columns with "linear".
    phases_ : ndarray of shape (n_features,), dtype float32
        b; empty with "linear".
    coef_ : ndarray of shape (n_labels, n_features), dtype float32
        V, one row a label; with "linear" (n_labels, n_components_).
    intercept_ : ndarray of shape (n_labels,), dtype float32
        Weight of a constant feature, less `threshold_`, and less 1/2 with the squared loss; -inf for labels
        never seen in fit.
    gamma_ : float
        `gamma`, or the one that was chosen.
    threshold_ : float
        What intercepts were lowered by, so that predicted labels have positive scores.
    l2_ : float
        `l2`, or the one that was chosen; 0 with "pca".
    ridge_ : float
        The relative ridge that was used: `l2_link`, or more where the Gram matrix was singular.
    validation_loss_ : ndarray of shape (n_iter_,), dtype float64
        Mean held-out loss of a row after each pass, or empty.
    n_iter_ : int
        Passes, or the most Newton steps that a label took; 1 for the closed form.
    n_components_ : int
        Linear predictions.
    classes_ : ndarray of shape (n_labels,)
        ``arange(n_labels)``, or the classes of a 1-D y.
    one_dimensional_ : bool
        Whether y was 1-D in fit, and `predict` is.

    See Also
    --------
    manylabel.decision.F1Inference : Label sets for macro-F1 from `predict_proba`.
    smooth_link_space : Ranges of the parameters for a random search.

    Notes
    -----
    With "softmax" each row has one label, and the y of `fit` may be 1-D, one class a row. A fit that is
    forecast to take more than `max_memory` raises `MemoryError`. Ctrl-C ends it within a second, unless a
    single large factorization of the embedding runs. A `ConvergenceWarning` tells of a singular Gram matrix
    whose ridge had to be raised, and of labels that need more than `max_iter` Newton steps.

    Scores are logits less `threshold_`; with the squared loss predictions less 1/2 and `threshold_`. Those of
    predicted labels are positive. Probabilities are ``1 / (1 + exp(-score - threshold_))``; with "softmax"
    those of a row sum to 1; with the squared loss they are predictions, cut off at 0 and 1.

    Let n be the rows, s the random features, k the components and c the labels. Time: the embedding; O(n s k)
    for features, O(n s^2 + s^3) for the least-squares start, O(n s c) a pass of "psgd", and O(s^2 c) for
    each of its ten batches if rows are many. Memory: 4 n s bytes where features are kept; 20 s^2; 4 s c for V
    and 24 s times at most 4096 labels (all with "softmax" and early stopping) that are fitted together.
    "newton-cg" takes, for each thread, 320 n bytes more. Scoring works on blocks of rows. `max_memory` is of
    the link alone: the embedding takes what `Rembrandt` in float64 does and, where more than half of X is not
    zero, 8 bytes a cell for a dense copy.

    The link must learn from predictions that are as good as those of new rows are, or it trusts them too
    much. Those of the embedding for the rows it was fitted to are better, the more so the fewer the rows.
    So with ``l2="auto"`` the link learns from leave-one-out predictions: what the embedding's last
    regression would predict for each row, had it been fitted to the others. They take one fit and the
    leverages of the rows; see `Rembrandt` on these, on the choice of the ridge and what both cost. Columns
    of X with more than one cell in eight that is not zero are divided by their standard deviations, since
    one ridge suits no features of different scales; `projection_` has that included. With a number, and
    for an instance, the link learns from predictions of the rows that the embedding was fitted to, as
    printed in [1]_, and X is taken as it is.

    The error that chooses `gamma` is that of up to 4000 rows, the 64 commonest labels and 500 features, or
    more where that takes no more than a tenth of the fit of V. It stands for what is fitted: its ridge is
    smaller by what the passes of "psgd" undo of `l2_link`, and residuals are between those of the fit and
    leave-one-out ones, the nearer to the first the more rows there are beside these. Unless 1/4 is better
    than 1/2, 1 is tried too.

    A probability of one half is the cut of least Hamming loss. But where labels are hard to tell few are
    above it. The threshold is learned by fitting a sample of labels, common and rare, anew to four fifths
    of the rows; features, their Gram matrix and leave-one-out predictions are those of the fit. The sample
    takes about a tenth of the time of the fit of V, but has at least 32 labels; below 2500 rows more
    fifths are held out in turn, until their rows have 500 of these labels.

    Settings of the paper's authors: ``n_components=0.9, n_iter=2, l2=1e-4, threshold="zero"`` and the
    parameters of `smooth_link_space`. Their quasi-random frequencies are those of
    ``gamma / sqrt(2)`` here.

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
        gamma_=Scalar(float, optional=True),  # not in version 0.1, as the next two
        threshold_=Scalar(float, finite=True, optional=True),
        l2_=Scalar(float, optional=True),
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
        kernel: str = "gaussian",
        n_features: int | str = "auto",
        gamma: float | str = "auto",
        loss: str = "logistic",
        embedding: str | Rembrandt = "rembrandt",
        solver: str = "psgd",
        l2: float | str = "auto",
        l2_link: float | str = "auto",
        n_iter: int = 1,
        n_oversamples: int = 20,
        n_passes: int = 8,
        step_size: float = 1.0,
        momentum: float = 0.5,
        decay: float = 0.95,
        threshold: float | str = "auto",
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

    def _fit(self, X: Any, y: Any, sample_weight: Any, progress: Progress) -> None:
        params = self.parameters.check(self)
        learned = core_params(params)
        _core.check_link(learned)  # before the embedding takes its time
        embedding = unfitted_embedding(params)
        sparse_output = issparse(y)
        y, classes = one_hot(y) if self._takes_classes else (y, None)
        X, y, sample_weight = check_training_set(self, X, y, sample_weight)
        if self.loss == "softmax":
            check_one_label(y)
        held_out = None
        # A single row is there to learn from.
        if X.shape[0] > 1 and params["early_stopping"] and self.solver == "psgd" and self.loss != "squared":
            held_out = held_out_rows(params["validation_fraction"], X.shape[0], params["random_state"])
        if params["n_features"] == "auto":
            n_learned = X.shape[0] if held_out is None else int(np.count_nonzero(~held_out))
            learned["n_features"] = automatic_features(n_learned)
        n_seen = int((np.bincount(y.indices, minlength=y.shape[1]) > 0).sum())
        rounds = self.n_passes + 1 if self.solver == "psgd" and self.loss != "squared" else 1
        with reported(n_seen, "label", params["verbose"], progress) as report:
            projection, intercept, predictions = linear_predictions(
                params, embedding, (X, y, sample_weight), held_out, lambda _: report(0)
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
        self.classes_ = np.arange(y.shape[1]) if classes is None else classes
        if self._takes_classes:
            self.one_dimensional_ = classes is not None
        self.sparse_output_ = sparse_output
        self._note_convergence(steps, learned["l2_link"])

    def _log_odds(self, scores: NDArray[Any]) -> NDArray[Any]:
        # Predictions of 0 and 1, less a half, are margins of -1 and 1.
        return ODDS_OF_MARGINS * 2 * scores if self.loss == "squared" else scores

    def _make_scorer(self) -> _core.Scorer:
        return _core.link_scorer(self)

    @property
    def _takes_classes(self) -> bool:
        return bool(self.loss == "softmax")

    def _knows_probabilities(self) -> bool:
        return True

    def _probabilities(self, X: csr_array | NDArray[Any]) -> NDArray[np.float64]:
        # Model files of version 0.1 have no threshold.
        scores = self._scorer().decision(X, n_threads(self.n_jobs)).astype(np.float64)
        scores += getattr(self, "threshold_", 0.0)
        if self.loss == "softmax":
            return np.asarray(softmax(scores, axis=1))
        if self.loss == "squared":
            return np.clip(scores + 0.5, 0.0, 1.0)
        return np.asarray(expit(scores))

    def predict(self, X: Any) -> csr_array | NDArray[Any]:
        """Predict the labels with positive scores, or the best class.

        Returns
        -------
        ndarray or csr_array of shape (n_samples, n_labels), dtype int64
            0/1 indicator matrix; sparse if Y was in fit, and then never dense in between. With "softmax" one
            label a row; the classes themselves, of shape (n_samples,), if y was 1-D.

        Raises
        ------
        ValueError
            If X is not as in fit.
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
                f"the Gram matrix was singular with l2_link={l2_link}; took {self.ridge_:.3g}",
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
    """Return the ranges that the paper's authors searched for their tables.

    Parameters
    ----------
    n_samples : int
        Rows of a training fold; >= 5. Label smoothing depends on it, and with fewer would reach 1/2.

    Returns
    -------
    dict of str to list or distribution
        For `sklearn.model_selection.RandomizedSearchCV`, over a classifier with ``n_components=0.9, n_iter=2,
        l2=1e-4``. The
        authors drew 300 times and kept a tenth of the rows for validation.

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
    """Uniform on [low, low + width], what exceeds 1 taken for 1."""

    def __init__(self, low: float, width: float) -> None:
        self._uniform = stats.uniform(low, width)

    def rvs(self, *args: Any, **kwargs: Any) -> Any:
        return np.minimum(self._uniform.rvs(*args, **kwargs), 1.0)
