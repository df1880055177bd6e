"""Rembrandt: label embeddings by randomized partial least squares, as a transformer."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from manylabel import _core
from manylabel.estimator import parameters as kinds
from manylabel.estimator.base import Estimator, built_aside
from manylabel.estimator.parameters import n_threads
from manylabel.estimator.progress import Progress, reported
from manylabel.estimator.registry import register
from manylabel.estimator.schema import ANY, Array, Scalar, Schema
from manylabel.estimator.validation import (
    check_labels,
    check_matrix,
    check_training_set,
    one_hot,
)

__all__ = ["Rembrandt"]

# Number of right-hand sides that the core solves together.
_PANEL = 32


def _embeds_labels(estimator: Any) -> bool:
    return bool(estimator.embedding != "pca")


@register
class Rembrandt(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator):  # type: ignore[misc]
    """Label embedding by randomized partial least squares, for very many labels.

    Finds U, the top eigenvectors of ``Y'PY``, where P is the projection onto the columns of X, and W, the
    coefficients of the regression of ``YU`` on X. ``XWU'`` is then the best linear prediction of Y with rank
    `n_components` [1]_. Neither P nor a matrix of labels x labels is formed. `transform` returns ``XW``, a
    low-dimensional summary of the labels that can be used as features for a classifier.

    Parameters
    ----------
    n_components : int or float, default=100
        Size of the embedding; >= 1. If a float in (0, 1), the smallest number of components that explain more
        than this share of the trace of ``Y'Y`` (not centered). See Notes on its cost.
    n_oversamples : int, default=20
        Number of random vectors in addition to `n_components`; >= 0.
    n_iter : int, default=1
        Number of passes that improve the random vectors before U is computed; >= 0. 2 is more accurate and
        often worth its time.
    l2 : float or "auto", default=1.0
        Ridge of the regressions that find U, relative to the mean diagonal of ``X'X``; finite and >= 0. With
        0 and an exact solver these are least squares, as in [1]_. "auto" chooses the ridge with the lowest
        leave-one-out error of 32 random combinations of labels (see Notes).
    l2_final : float or "auto", default="auto"
        Ridge of the regression for W, relative to that of the others; finite and >= 0. "auto" chooses the
        ridge with the lowest leave-one-out error of the first 32 components, or 0 with ``l2=0`` (see Notes).
        The paper [2]_ uses 1, the authors' code 1e-6.
    variant : {"power", "ritz"}, default="power"
        "ritz" computes U from the vectors of the last pass, as algorithm 1 of [1]_ does. "power" multiplies
        them by ``Y'PY`` once more, as the authors' code does: it takes one pass more, and is about as
        accurate as "ritz" with `n_iter` larger by 1.
    embedding : {"rembrandt", "gaussian", "pca"}, default="rembrandt"
        Alternatives for comparison: "gaussian" takes a random U (compressed sensing); "pca" takes the top
        right singular vectors of X as W, without using Y.
    center : bool, default=False
        Whether to subtract the column means of X and Y, without making either dense.
    fit_intercept : bool, default=True
        Whether to append a column of ones to X, whose weights are regularized like the others. Ignored with
        `center`, whose intercept is not regularized, and with "pca".
    solver : {"auto", "cholesky", "cg", "dual"}, default="auto"
        Solver of the regressions. "cholesky" factorizes a matrix of features x features, "dual" one of rows x
        rows. "cg" takes at most `max_iter` conjugate gradient steps; stopping early regularizes, so its
        results differ from those of the others. "auto" is "cholesky" for up to 4000 features, "dual" for
        dense X with more features and up to 4000 rows, and "cg" otherwise.
    max_iter : int, default=10
        Maximum number of "cg" steps; >= 1. 10 suffice for text; dense features may need 100.
    tol : float or None, default=None
        "cg" has converged for a component when the norm of its residual, divided by that of the initial
        residual, is below this; finite and > 0. None is 1e-3 (1e-2 in float32), without a warning if
        `max_iter` is reached first.
    random_state : int, RandomState instance or None, default=None
        Seeds the random vectors. Pass an int for reproducible results.

    Attributes
    ----------
    label_embedding_ : ndarray of shape (n_labels, n_components_)
        U, with the dtype of X. Columns are orthonormal, and the largest entry of each is positive. Rows of
        labels that no training row has are zero. With "gaussian" the entries are independent normal numbers
        of variance ``1/k``. Missing with "pca".
    coef_ : ndarray of shape (n_features, n_components_)
        W, with the dtype of X.
    intercept_ : ndarray of shape (n_components_,)
        Intercept of `transform`.
    eigenvalues_ : ndarray of shape (n_components_,), dtype float64
        Estimated eigenvalues of ``Y'PY`` (of ``X'X`` with "pca"), largest first. Missing with "gaussian".
    singular_values_ : ndarray of shape (n_components_,), dtype float64
        Their square roots, the singular values of PY (of X with "pca"). Missing with "gaussian".
    l2_ : float
        Ridge of the regressions that found U, relative to the mean diagonal of ``X'X``; 0 with "pca".
    l2_final_ : float
        Ridge of the regression for W, relative to `l2_`, or to the mean diagonal if `l2_` is 0.
    n_components_ : int
        `n_components`, or fewer if the data have fewer directions; at least 1.
    n_iter_ : int
        Largest number of conjugate gradient steps of a regression; 1 with the other solvers.
    classes_ : ndarray of shape (n_labels,)
        The classes of a 1-D y, otherwise ``arange(n_labels)``.

    Notes
    -----
    Let l = n_components + n_oversamples, q = n_iter, and t the number of conjugate gradient steps. Time is
    O((q + 2) (nnz(Y) + nnz(X) t) l) plus O(q n_labels l^2). With "cholesky" it is O(n_samples n_features^2 +
    n_features^3) once and O(n_features^2 l) for each of the q + 2 regressions.

    Memory:

    - a copy of a sparse X, 14 bytes per stored value (22 in float64); a dense X is not copied;
    - about 3 l numbers per label and n_components per feature;
    - 200 numbers per feature for each thread;
    - with "cholesky" 48 n_features^2 bytes, with "dual" 48 n_samples^2 bytes (84 instead of 48 if a ridge is
      "auto").

    Nothing of size n_samples x n_labels or n_labels x n_labels is formed.

    float32 X is computed in float32 (orthogonalization in float64), which halves time and memory; everything
    else in float64. "cg" solves 32 components at a time on one thread, so few components use few threads.

    If `n_components` is a float, the number of components is computed exactly for up to 5000 labels, in
    O(n_labels^3), about 15 seconds for 5000. With more labels, random probes of doubling width bound the
    eigenvalues from below; fit raises `ValueError` if 1024 components do not reach the share.

    If there are nearly as many features as rows, a W with almost no ridge overfits: the projections of the
    training rows differ from those of new rows, and a classifier trained on them generalizes badly. With
    ``l2_final=1e-6``, logistic regressions on 50 components of reuters-21578 (9603 x 11411) have a precision
    at 1 of 0.82; with 1 they have 0.86. If features have different scales, 1 is far too large. "auto"
    therefore searches. It starts at 1, or with dense X at the best of 1 and four other values from 1e-6 to
    100, and moves up or down by factors of ``sqrt(10)`` while the leave-one-out error falls. That error needs
    one fit: the leave-one-out residual of a row is its residual divided by one minus its leverage. At least
    three ridges are tried. Each needs one regression with 32 columns and the leverages. With "cholesky" and
    "dual", this takes two or three factorizations. With "cg", a regression with 64 more columns estimates the
    leverages, with a standard deviation of at most 0.06.

    The papers' settings, all with ``l2_final=1e-6, n_iter=2``: for LSHTC, rows divided by their sums and
    ``n_components=800, l2=128, max_iter=50``; for the Mulan sets ``n_components=0.9, l2=1e-4, max_iter=100``.

    References
    ----------
    .. [1] P. Mineiro and N. Karampatziakis, "Fast Label Embeddings for Extremely Large Output Spaces",
       arXiv:1412.6547, algorithm 1, with F of line 8 as the square of the product with the regression.
    .. [2] P. Mineiro and N. Karampatziakis, "Scalable Multilabel Prediction via Randomized Methods",
       arXiv:1502.02710, for the ridge and the weights.

    Examples
    --------
    >>> import manylabel as ml
    >>> X, Y = ml.datasets.make_multilabel(200, 50, 10, random_state=0)
    >>> embedding = ml.Rembrandt(3, random_state=0).fit(X, Y)
    >>> embedding.transform(X).shape, embedding.embed_labels(Y).shape
    ((200, 3), (200, 3))
    """

    parameters = kinds.Parameters(
        n_components=kinds.Either(kinds.Count(1), kinds.Number(above=0, below=1)),
        n_oversamples=kinds.Count(0),
        n_iter=kinds.Count(0),
        l2=kinds.Either("auto", kinds.Number(least=0)),
        l2_final=kinds.Either("auto", kinds.Number(least=0)),
        variant=kinds.Choice("power", "ritz"),
        embedding=kinds.Choice("rembrandt", "gaussian", "pca"),
        center=kinds.Flag(),
        fit_intercept=kinds.Flag(),
        solver=kinds.Choice("auto", "cholesky", "cg", "dual"),
        max_iter=kinds.Count(1),
        tol=kinds.Either(None, kinds.Number(above=0)),
        **kinds.SEEDED_RUN,
    )

    schema = Schema(
        classes_=Array(("n_labels",), ANY),
        n_components_=Scalar(int, size="n_components"),
        coef_=Array(("n_features", "n_components"), "f4 f8", precision="float_bytes"),
        intercept_=Array(("n_components",), "f4 f8", precision="float_bytes"),
        label_embedding_=Array(("n_labels", "n_components"), "f4 f8", precision="float_bytes", optional=True),
        eigenvalues_=Array(("n_components",), "f8", optional=True),
        singular_values_=Array(("n_components",), "f8", optional=True),
        l2_=Scalar(float, optional=True),  # this and the next: not in version 0.1
        l2_final_=Scalar(float, optional=True),
        n_iter_=Scalar(int),
    )

    label_embedding_: NDArray[Any]
    coef_: NDArray[Any]
    intercept_: NDArray[Any]
    eigenvalues_: NDArray[np.float64]
    singular_values_: NDArray[np.float64]

    def __init__(
        self,
        n_components: int | float = 100,
        *,
        n_oversamples: int = 20,
        n_iter: int = 1,
        l2: float | str = 1.0,
        l2_final: float | str = "auto",
        variant: str = "power",
        embedding: str = "rembrandt",
        center: bool = False,
        fit_intercept: bool = True,
        solver: str = "auto",
        max_iter: int = 10,
        tol: float | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self._assign(locals())

    @built_aside
    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, progress: Progress = None) -> Rembrandt:
        """Fit the embedding of the labels and the projection of the features.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features; finite, any numeric dtype, int32 or int64 indices.
        y : array-like or sparse matrix of shape (n_samples, n_labels), or array-like of shape (n_samples,)
            0/1 indicator matrix Y, or one class per row.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, >= 0. A row with weight 2 counts like two rows.
        progress : callable, default=None
            Called about 20 times per second with the number of panels of 32 components done, over all passes.
            An exception it raises stops the fit.

        Returns
        -------
        Rembrandt
            The estimator itself.

        Raises
        ------
        ValueError
            If an argument or parameter is not as described; the message states what was expected and what was
            given.
        MemoryError
            If the solver's matrix does not fit in memory.
        KeyboardInterrupt
            Within a second of Ctrl-C, except during a single large factorization.

        Warns
        -----
        sklearn.exceptions.ConvergenceWarning
            If `tol` was given and `max_iter` steps do not reach it.
        """
        self._fit(X, y, sample_weight, progress)
        return self

    def _fit(
        self, X: Any, y: Any, sample_weight: Any, progress: Progress, *, leave_one_out: bool = False
    ) -> NDArray[np.float32] | None:
        """Fit; if requested, return the leave-one-out predictions ``XW`` of all rows."""
        params = self._core_params(leave_one_out=leave_one_out)
        y, classes = one_hot(y)
        X, y, sample_weight = check_training_set(self, X, y, sample_weight, dense=True)
        if isinstance(params["n_components"], float):
            params["n_components"] = _core.pls_n_components(y, sample_weight, params, params["n_jobs"])
        n_panels = _n_panels(params, X.shape[1], y.shape[1])
        with reported(n_panels, "panel", params["verbose"], progress) as report:
            fitted = _core.fit_pls(X, y, sample_weight, params, (params["n_jobs"], report))
        # An earlier fit with another `embedding` may have set these.
        for name in ("label_embedding_", "eigenvalues_", "singular_values_"):
            if hasattr(self, name):
                delattr(self, name)
        label_embedding, self.coef_, self.intercept_, eigenvalues, self.n_iter_, n_unfinished = fitted[:6]
        self.l2_, l2_of_coef = fitted[6]
        self.l2_final_ = l2_of_coef / self.l2_ if self.l2_ > 0 else l2_of_coef
        if label_embedding is not None:
            self.label_embedding_ = label_embedding
        if eigenvalues is not None:
            self.eigenvalues_, self.singular_values_ = eigenvalues, np.sqrt(eigenvalues)
        self.n_components_ = self.coef_.shape[1]
        self.classes_ = np.arange(y.shape[1]) if classes is None else classes
        if n_unfinished:
            warnings.warn(
                f"{n_unfinished} solutions did not reach tol={self.tol} in max_iter={self.max_iter} steps",
                ConvergenceWarning,
                stacklevel=4,
            )
        predictions: NDArray[np.float32] | None = fitted[7]
        return predictions

    def transform(self, X: Any) -> NDArray[Any]:
        """Predict the label embedding of each row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features.

        Returns
        -------
        ndarray of shape (n_samples, n_components_)
            ``X @ coef_ + intercept_``, with the dtype of `coef_`.

        Raises
        ------
        ValueError
            If X has another number of features than in fit, or is invalid.
        """
        check_is_fitted(self)
        X = check_matrix(self, X, reset=False)
        return _core.pls_project(X, (self.coef_, self.intercept_), n_threads(self.n_jobs))

    @available_if(_embeds_labels)  # type: ignore[untyped-decorator]
    def embed_labels(self, y: Any) -> NDArray[Any]:
        """Embed the label sets of rows; not available with ``embedding="pca"``.

        Parameters
        ----------
        y : array-like or sparse matrix of shape (n_samples, n_labels), or array-like of shape (n_samples,)
            0/1 indicator matrix Y, or classes, as in `fit`.

        Returns
        -------
        ndarray of shape (n_samples, n_components_)
            ``Y @ label_embedding_``.

        Raises
        ------
        ValueError
            If y has another number of labels or an unknown class.
        """
        check_is_fitted(self)
        Y = check_labels(one_hot(y, self.classes_)[0])
        n_labels = len(self.classes_)
        if Y.shape[1] != n_labels:
            raise ValueError(f"labels of Y: expected {n_labels} as in fit, got {Y.shape[1]}")
        nothing = np.zeros_like(self.intercept_)
        return _core.pls_project(Y, (self.label_embedding_, nothing), n_threads(self.n_jobs))

    def _core_params(self, *, leave_one_out: bool = False) -> dict[str, Any]:
        """Return the parameters that the core takes; `n_components` may be a share."""
        return self.parameters.check(self) | {"leave_one_out": leave_one_out}

    @property
    def _n_features_out(self) -> int:
        """Number of columns that `transform` returns, for ``get_feature_names_out``."""
        n_components: int = self.coef_.shape[1]
        return n_components

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _n_panels(params: dict[str, Any], n_features: int, n_labels: int) -> int:
    """Count the panels of a fit, for the progress bar."""
    k, p, q = (int(params[name]) for name in ("n_components", "n_oversamples", "n_iter"))
    probe = min(k + p, n_features + 1, n_labels)
    return (q + 1) * math.ceil(probe / _PANEL) + math.ceil(min(k, n_labels) / _PANEL)
