"""The smooth link as an estimator, and the parameter ranges of its authors."""

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

    `Rembrandt` reduces a row to k linear predictions p, which carry what the labels have in common. The
    scores are ``cos((p, 1) R + b) V`` with random frequencies R. This is the primal form of a kernel machine
    on the predictions: it turns independent linear predictions into joint nonlinear ones [1]_.

    Parameters
    ----------
    n_components : int or float, default=0.99
        Size k of the embedding; >= 1. A float in (0, 1) is a share: the fewest components whose eigenvalues
        of ``Y'Y`` sum to more than that share of its trace, at most 300; with more than 1024 labels it is
        300.
    kernel : str, default="gaussian"
        Kernel that the random features approximate: "gaussian", "matern-3", "matern-5" or "cauchy", in order
        of heavier tails of the frequencies. "quasi-gaussian", "quasi-matern-3" and "quasi-matern-5" draw the
        frequencies by Latin hypercube sampling. "linear" uses the predictions p without cosines.
    n_features : int or "auto", default="auto"
        Number s of random features; >= 1. "auto" is a quarter of the number of rows, but at least 100 and at
        most 2000. Ignored with "linear".
    gamma : float or "auto", default="auto"
        Factor of the frequencies, relative to the median heuristic: the Gaussian kernel is
        ``exp(-gamma^2 |p - p'|^2 / median)``, with the median of squared distances; finite and > 0. "auto" is
        the one of 1/4, 1/2 and 1 with the lowest leave-one-out error of least squares (see Notes).
    loss : {"logistic", "squared", "softmax"}, default="logistic"
        "logistic" and "squared" are per label. "softmax" is for data with exactly one label per row.
    embedding : {"rembrandt", "gaussian", "pca", "none"} or Rembrandt, default="rembrandt"
        Source of the linear predictions; see the parameter of `Rembrandt`. "none" predicts the labels
        themselves by one ridge regression each, which takes n_features_in_ x n_labels numbers. If an instance
        is given, a clone of it is fitted. It keeps its own `n_components`, `l2`, `n_iter` and
        `n_oversamples`, and takes the seed from here unless it has one.
    solver : {"psgd", "newton-cg"}, default="psgd"
        "psgd" takes preconditioned stochastic gradient steps with momentum from the least-squares solution;
        stopping after a few passes, the ridge and label smoothing regularize it. "newton-cg" finds the
        optimum of the logistic loss plus ridge. The squared loss has a closed form.
    l2 : float or "auto", default="auto"
        Ridge of all regressions of the embedding, relative to the mean diagonal of ``X'X``; finite and >= 0.
        "auto" chooses it by leave-one-out error, centers X and Y, scales the columns of dense X to unit
        variance, and fits the link on leave-one-out predictions (see Notes). Ignored with "pca".
    l2_link : float or "auto", default="auto"
        Ridge of V, relative to the mean diagonal of the Gram matrix of the random features; finite and >= 0.
        "auto" is 0.1.
    n_iter : int, default=1
        Passes of the embedding's range finder before the last; >= 0.
    n_oversamples : int, default=20
        Columns of its random probe beyond `n_components`; >= 0.
    n_passes : int, default=8
        Passes of "psgd" over the rows; >= 1.
    step_size : float, default=1.0
        Step size of "psgd"; finite and > 0. Values up to 4 converge fast; larger ones may diverge.
    momentum : float, default=0.5
        Momentum of "psgd"; in [0, 1).
    decay : float, default=0.95
        Factor of step size and momentum after each pass of "psgd"; in (0, 1].
    threshold : {"auto", "zero"} or float, default="auto"
        Logit above which `predict` assigns a label; with the squared loss, the prediction minus 1/2. "zero"
        is a probability of one half. "auto" is the same, unless that would predict fewer than 0.7 or more
        than 1.4 times as many labels of held-out rows as they have; then it is the nearest score that stays
        within these bounds (see Notes). Ignored with "softmax".
    shrink : float or None, default=None
        Label smoothing: the target of a label that is present; in (0.5, 1]. None is ``1 - 1/n_samples``, but
        at least 0.75.
    preflate : bool, default=False
        Whether to enlarge the initial weights of rare classes; only with the kernel "linear" and "softmax".
    early_stopping : bool, default=False
        Whether "psgd" stops when the loss on held-out rows no longer falls, and keeps the best pass.
    validation_fraction : float, default=0.1
        Share of the rows that `early_stopping` holds out; in (0, 1).
    n_iter_no_change : int, default=2
        Passes without a lower held-out loss after which `early_stopping` stops; >= 1.
    max_iter : int, default=100
        Maximum number of "newton-cg" steps; >= 1.
    tol : float, default=1e-3
        "newton-cg" has converged for a label when the norm of its gradient, relative to the norm at zero
        weights, is below this; finite and > 0.
    max_memory : int or None, default=None
        Limit in bytes for the fit of the link; >= 1. A fit that is estimated to need more raises. Random
        features are kept between passes if the limit allows, else they are recomputed. None means no limit,
        and features are kept up to 2 GiB.
    random_state : int, RandomState instance or None, default=None
        Seeds the embedding, the frequencies, the order of rows and the held-out rows. An int gives the same
        bits every time.

    Attributes
    ----------
    projection_ : ndarray of shape (n_features_in_, n_components_), dtype float64
        Weights W of the linear predictions ``p = X @ projection_ + projection_intercept_``.
    projection_intercept_ : ndarray of shape (n_components_,), dtype float64
        Their intercepts.
    frequencies_ : ndarray of shape (n_components_ + 1, n_features), dtype float32
        R; the last row belongs to the constant. No columns with "linear".
    phases_ : ndarray of shape (n_features,), dtype float32
        b, in radians; empty with "linear".
    coef_ : ndarray of shape (n_labels, n_features), dtype float32
        The transpose of V; of shape (n_labels, n_components_) with "linear".
    intercept_ : ndarray of shape (n_labels,), dtype float32
        Weight of a constant feature, minus `threshold_`, and minus 1/2 with the squared loss; -inf for labels
        never seen in fit.
    gamma_ : float
        `gamma`, as given or chosen.
    threshold_ : float
        The threshold, as given or learned. It is subtracted from the intercepts, so that predicted labels
        have positive scores.
    l2_ : float
        `l2`, as given or chosen; 0 with "pca".
    ridge_ : float
        The relative ridge that was used: `l2_link`, or more if the Gram matrix was singular.
    validation_loss_ : ndarray of shape (n_iter_,), dtype float64
        Mean held-out loss per row after each pass; empty without `early_stopping`.
    n_iter_ : int
        Number of passes, or the most Newton steps that a label took; 1 for the closed form.
    n_components_ : int
        Number of linear predictions.
    classes_ : ndarray of shape (n_labels,)
        ``arange(n_labels)``, or the classes of a 1-D y.
    one_dimensional_ : bool
        Whether y was 1-D in fit; predictions then are, too.

    See Also
    --------
    manylabel.decision.F1Inference : Label sets for macro-F1 from `predict_proba`.
    smooth_link_space : Ranges of the parameters for a random search.

    Notes
    -----
    With "softmax" each row must have exactly one label, and y may be 1-D with one class per row. A fit that
    is estimated to need more than `max_memory` raises `MemoryError`. Ctrl-C ends a fit within a second,
    except during a single large factorization of the embedding. A `ConvergenceWarning` reports a singular
    Gram matrix whose ridge had to be raised, and labels that did not converge in `max_iter` Newton steps.

    Scores are logits minus `threshold_`; with the squared loss, predictions minus 1/2 and `threshold_`.
    Labels with positive scores are predicted. Probabilities are ``1 / (1 + exp(-score - threshold_))``. With
    "softmax" those of a row sum to 1. With the squared loss they are the predictions, clipped to [0, 1].

    Cost, for n rows, s random features, k components and c labels. Time: the embedding; O(n s k) for the
    features; O(n s^2 + s^3) for the least-squares start; O(n s c) per pass of "psgd", plus O(s^2 c) for each
    of its ten batches if rows are many. Memory in bytes: 4 n s for features that are kept; 20 s^2; 4 s c for
    V; 24 s per label for up to 4096 labels that are fitted together (all labels with "softmax" and with early
    stopping). "newton-cg" takes 320 n bytes more per thread. Rows are scored in blocks. `max_memory` limits
    the link only: the embedding takes the memory of `Rembrandt` in float64 and, if more than half of X is
    nonzero, 8 bytes per entry for a dense copy.

    The link must be fitted on predictions that are as good as those of new rows, else it trusts them too
    much. The embedding predicts its own training rows better, and the fewer rows there are, the larger the
    difference. With ``l2="auto"`` the link is therefore fitted on leave-one-out predictions: for each row,
    the prediction of the embedding's last regression fitted to the other rows. They cost one fit and the
    leverages of the rows; see `Rembrandt` on leverages, on the choice of the ridge and on the cost of both.
    If more than an eighth of the values of X are nonzero, the columns are divided by their standard
    deviations, since no single ridge suits features of different scales; `projection_` applies to the
    unscaled features. If `l2` is a number or `embedding` an instance, the link is fitted on predictions of
    the rows that the embedding was fitted to, as printed in [1]_, and X is not scaled.

    ``gamma="auto"`` compares errors on up to 4000 rows, the 64 most frequent labels, and 500 random features,
    or more if that takes no more than a tenth of the time of the fit of V. The error mimics the model that is
    fitted. Its ridge is smaller than `l2_link`, by what the passes of "psgd" undo of it. Its residuals lie
    between those of the fit and leave-one-out residuals; the more rows there are, the closer to the first. 1
    is tried only if 1/4 is not better than 1/2.

    A probability of one half minimizes Hamming loss. But if labels are hard to predict, few probabilities
    exceed it. ``threshold="auto"`` refits a sample of frequent and rare labels on four fifths of the rows,
    with the features, the Gram matrix and the leave-one-out predictions of the fit, and scores the other
    fifth. The sample takes about a tenth of the time of the fit of V, but has at least 32 labels. Below 2500
    rows more fifths are held out in turn, until the held-out rows are 500 or have 500 of these labels.

    Settings of the paper's authors: ``n_components=0.9, n_iter=2, l2=1e-4, threshold="zero"`` and the
    parameters of `smooth_link_space`. Their quasi-random frequencies equal those with ``gamma / sqrt(2)``
    here.

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
        gamma_=Scalar(float, optional=True),  # this and the next two: not in version 0.1
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
        _core.check_link(learned)  # early, since the embedding may take long
        embedding = unfitted_embedding(params)
        sparse_output = issparse(y)
        y, classes = one_hot(y) if self._takes_classes else (y, None)
        X, y, sample_weight = check_training_set(self, X, y, sample_weight)
        if self.loss == "softmax":
            check_one_label(y)
        held_out = None
        # A single row cannot be held out.
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
        # Targets 0 and 1 minus 1/2, doubled, are margins -1 and 1.
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
        """Predict the labels with positive scores; with "softmax", the best class.

        Returns
        -------
        ndarray or csr_array of shape (n_samples, n_labels), dtype int64
            0/1 indicator matrix; sparse if Y was sparse in fit, without a dense intermediate. With "softmax"
            it has one label per row; if y was 1-D, the classes themselves, of shape (n_samples,).

        Raises
        ------
        ValueError
            If X has another number of features than in fit, or is invalid.
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
                f"the Gram matrix was singular with l2_link={l2_link}; {self.ridge_:.3g} was used instead",
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
    """Return the parameter ranges that the paper's authors searched.

    Parameters
    ----------
    n_samples : int
        Rows of a training fold; >= 5. The range of label smoothing depends on it, and would reach 1/2 with
        fewer rows.

    Returns
    -------
    dict of str to list or distribution
        For `sklearn.model_selection.RandomizedSearchCV` over a classifier with ``n_components=0.9, n_iter=2,
        l2=1e-4``. The authors drew 300 times and validated on a tenth of the rows.

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
