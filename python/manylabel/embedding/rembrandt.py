"""The transformer `Rembrandt`, which computes label embeddings by randomized partial least squares."""

from __future__ import annotations

import math
import warnings
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from manylabel import _core
from manylabel.embedding.pieces import RembrandtPieces
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
    known_ones,
    one_hot,
)

__all__ = ["Rembrandt"]

# Number of right-hand sides of a regression that the Rust core solves together.
_PANEL = 32

# With unknown entries in Y, U and W are computed until the estimated errors of the values of unknown entries
# are at most the fraction `_TOL_OF_UNKNOWN` of these values, as root mean squares, but at most `_MOST_ROUNDS`
# times. The tolerance is relative, because the predictions for rare labels are small.
_TOL_OF_UNKNOWN, _MOST_ROUNDS = 1e-2, 10


def _embeds_labels(estimator: Any) -> bool:
    return bool(estimator.embedding != "pca")


@register
class Rembrandt(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator):  # type: ignore[misc]
    """Label embedding by randomized partial least squares, for data with very many labels.

    A label embedding summarizes the labels of a row by a short vector of numbers, called components. `fit`
    learns to predict the components of a row from its features. `transform` returns the predicted components,
    which a classifier can use as features.

    `fit` computes two matrices, U and W, from the features X and the 0/1 indicator matrix Y of the labels.
    The columns of U are the eigenvectors of ``Y'PY`` with the largest eigenvalues. Here, the prime denotes
    the transpose, and P is the projection onto the column space of X. `fit` does not compute P. Instead, it
    computes each product with P by a ridge regression on X.

    The components of the training rows are ``YU``. W contains the coefficients of the ridge regression of
    ``YU`` on X. The predicted components are therefore ``XW``. The product ``XWU'`` predicts Y. Suppose that
    U is exact and the ridge penalties are 0. Then ``XWU'`` has the smallest sum of squared errors among all
    products ``XA`` with a matrix A of rank at most `n_components` [1]_.

    Parameters
    ----------
    n_components : int or float, default=100
        Number of components of the embedding. An int is the number of components; >= 1. A float between 0 and
        1 is a fraction of the sum of all eigenvalues of ``Y'Y``. With a float, `fit` chooses the smallest
        number k for which the sum of the k largest eigenvalues exceeds this fraction. For this choice, Y is
        not centered, even with ``center=True``. The Notes describe the cost of this choice.
    n_oversamples : int, default=20
        Number of random vectors beyond `n_components`; >= 0. The randomized algorithm starts with
        ``n_components + n_oversamples`` random vectors. More vectors make U more accurate.
    n_iter : int, default=1
        Number of passes over the data that improve the random vectors before U is computed; >= 0. With more
        passes, U is more accurate and the fit takes longer.
    l2 : float or "auto", default=1.0
        Ridge penalty of the regressions that compute U, as a multiple of the mean diagonal entry of ``X'X``;
        finite and >= 0. With ``l2=0`` and the solver "cholesky" or "dual", the regressions are ordinary least
        squares, as in [1]_. With "auto", `fit` chooses the penalty with the lowest leave-one-out error for 32
        random linear combinations of the labels (see Notes).
    l2_final : float or "auto", default="auto"
        Ridge penalty of the regression that computes W, as a multiple of the ridge penalty `l2_`; finite and
        >= 0. With "auto", `fit` chooses the penalty with the lowest leave-one-out error for the first 32
        components (see Notes). If `l2` is 0, `l2_final` has no effect, and W is computed without a ridge
        penalty. The paper [2]_ uses ``l2_final=1``. The code of its authors uses ``l2_final=1e-6``.
    variant : {"power", "ritz"}, default="power"
        Vectors from which U is computed. `fit` multiplies the random vectors by ``Y'PY`` ``n_iter + 1``
        times. With "power", the columns of U are linear combinations of the vectors after the last
        multiplication, as in the code of the authors of [1]_ and [2]_. With "ritz", the columns of U are
        linear combinations of the vectors before the last multiplication, as in algorithm 1 of [1]_. In both
        variants, the last multiplication determines the coefficients of the linear combinations. The two
        variants take the same time, but "power" is more accurate. To make "ritz" as accurate as "power",
        increase `n_iter` by 1.
    embedding : {"rembrandt", "gaussian", "pca"}, default="rembrandt"
        Kind of embedding. "rembrandt" is the method described above. "gaussian" and "pca" are baselines for
        comparison. "gaussian" draws U at random (compressed sensing). With "pca", the columns of W are the
        right singular vectors of X with the largest singular values. "pca" does not use Y, except to choose
        the number of components if `n_components` is a float.
    center : bool, default=False
        Whether to subtract the column means of X and Y. Sparse matrices stay sparse.
    fit_intercept : bool, default=True
        Whether to append a column of ones to X. The weights of this column are regularized like all other
        weights. This parameter is ignored if `embedding` is "pca" or `center` is True. With ``center=True``,
        `fit` computes the intercept from the column means. The intercept is then not regularized.
    solver : {"auto", "cholesky", "cg", "dual"}, default="auto"
        Solver of the regressions. "cholesky" factorizes a matrix of shape (n_features, n_features). "dual"
        factorizes a matrix of shape (n_samples, n_samples). "cg" takes at most `max_iter` conjugate gradient
        steps. Because "cg" stops early, the solution is regularized and differs from the solution of the
        other solvers. "auto" is "cholesky" for at most 4000 features. For more features, "auto" is "dual" if
        X is dense and has at most 4000 rows, and "cg" otherwise.
    max_iter : int, default=10
        Maximum number of conjugate gradient steps of the solver "cg"; >= 1. The default suffices for text
        data. Dense features may need 100 steps.
    tol : float or None, default=None
        Tolerance of the solver "cg"; finite and > 0. The solution for a component has converged when the norm
        of its residual is at most `tol` times the norm of the initial residual. None means 1e-3 for float64
        and 1e-2 for float32. If a solution does not converge in `max_iter` steps, `fit` warns, except if
        `tol` is None.
    random_state : int, RandomState instance or None, default=None
        Seed of the random vectors. Pass an int for reproducible results.

    Attributes
    ----------
    label_embedding_ : ndarray of shape (n_labels, n_components_)
        The matrix U, with the dtype of X. If a label occurs in no training row, its row of U is zero. With
        ``embedding="rembrandt"``, the columns of U are orthonormal. In each column, the entry with the
        largest absolute value is positive. With ``embedding="gaussian"``, the entries of all nonzero rows are
        independent normal random numbers with variance ``1 / n_components_``. With ``embedding="pca"``, the
        attribute does not exist.
    coef_ : ndarray of shape (n_features, n_components_)
        The matrix W, with the dtype of X.
    intercept_ : ndarray of shape (n_components_,)
        Intercepts that `transform` adds to the components.
    eigenvalues_ : ndarray of shape (n_components_,), dtype float64
        Estimated eigenvalues of ``Y'PY``, in decreasing order. With ``embedding="pca"``, the array contains
        eigenvalues of ``X'X``. With ``embedding="gaussian"``, the attribute does not exist.
    singular_values_ : ndarray of shape (n_components_,), dtype float64
        Square roots of `eigenvalues_`: the singular values of ``PY``. With ``embedding="pca"``, the array
        contains singular values of X. With ``embedding="gaussian"``, the attribute does not exist.
    l2_ : float
        The value of `l2`, as given or chosen. It is 0 with ``embedding="pca"``.
    l2_final_ : float
        The value of `l2_final`, as given or chosen. It is 0 if `l2_` is 0.
    n_components_ : int
        Number of components; at least 1. If `n_components` is an int and exceeds the rank of ``PY``,
        `n_components_` is smaller than `n_components`.
    n_iter_ : int
        Largest number of conjugate gradient steps that a regression took. The value is 1 if the solver is not
        "cg". This attribute is related to the parameter `max_iter`, not to `n_iter`.
    classes_ : ndarray of shape (n_labels,)
        Column indices of the labels in Y: ``arange(n_labels)``. If y was 1-D in `fit`, the array contains the
        sorted distinct classes.

    Notes
    -----
    If Y has unknown entries (NaN), `fit` fills in a value for each unknown entry. At first, all values are 0.
    `fit` then repeatedly updates the values with the predictions ``XWU'`` and computes W again. If the
    updates change Y considerably, `fit` also computes U again. W is computed at most ten times, usually two
    or three times.

    `fit` stops before the tenth computation of W if the updates are small. Updates are small if their root
    mean square is at most 0.01 times the root mean square of the predictions. With "cg", this factor is
    ``max(0.01, 5 * tol)``, and `fit` may stop even earlier if "cg" does not converge. If the updates are
    small, the filled-in values are close to the predictions. Unknown entries then add almost nothing to the
    sum of squared errors, and U and W depend almost only on the known entries.

    However, unknown entries count as 0 while `fit` chooses a penalty or the number of components. With
    ``embedding="gaussian"``, U is random and does not depend on Y, and the predictions use the pseudo-inverse
    of U instead of ``U'``. With ``embedding="pca"``, unknown entries affect only the choice of the number of
    components. If one percent of the entries of Y are unknown, the fit takes about 10 percent longer than
    without unknown entries.

    The time of the fit depends on the solver. Let m = n_components + n_oversamples and q = n_iter. Let t be
    the number of conjugate gradient steps, and nnz the number of nonzero values of a matrix. For a dense X,
    nnz(X) is the number of all values. With every solver, the orthogonalization of vectors takes O((q + 1)
    n_labels m^2) time. In addition, the fit takes the following time:

    - With "cg", each of the q + 2 regressions takes O((nnz(Y) + nnz(X) t) m) time.
    - With "cholesky", the fit takes O(n_samples n_features^2 + n_features^3) time once. Each of the q + 2
      regressions takes O((nnz(Y) + nnz(X) + n_features^2) m) time.
    - With "dual", the fit takes O(n_samples nnz(X) + n_samples^3) time once. Each of the q + 2 regressions
      takes O((nnz(Y) + nnz(X) + n_samples^2) m) time.

    The fit uses the following memory:

    - For a copy of a sparse X, 14 bytes per stored value with float32 and 22 bytes with float64. A dense X is
      not copied.
    - About ``3 * m`` numbers per label, and about n_components numbers per feature.
    - 200 numbers per feature for each thread.
    - With "cholesky", 48 n_features^2 bytes. With "dual", 48 n_samples^2 bytes. If `l2` or `l2_final` is
      "auto", the factor is 84 instead of 48.

    The fit forms no array of shape (n_samples, n_labels).

    If X has the dtype float32, the fit computes in float32, but factorizations and the orthogonalization of
    vectors use float64. With "cg", a float32 fit takes about half the time and 50 to 65 percent of the memory
    of a float64 fit. If X has any other dtype, the whole fit computes in float64.

    With "cg", each thread solves the equations of 32 components together. A fit with few components therefore
    uses few threads.

    If `n_components` is a float, `fit` computes the number of components from the eigenvalues of ``Y'Y``.
    The computation depends on the number of labels that occur in the training rows:

    - With at most 5000 labels, the eigenvalues are exact. `fit` then needs O(n_labels^3) time, about 15
      seconds for 5000 labels, and an array of shape (n_labels, n_labels).
    - With more labels, a randomized algorithm estimates the eigenvalues. The estimates are lower bounds, so
      the number of components may be slightly too large. `fit` raises `ValueError` if 1024 components do not
      reach the fraction `n_components`.

    The ridge penalty of W matters if the number of features is close to the number of rows. If the penalty is
    too small, W overfits. The predicted components then have one distribution for training rows and another
    for new rows. A classifier that is trained on the components of training rows then predicts badly for new
    rows. For example, logistic regressions on 50 components of reuters-21578 (9603 rows, 11411 features)
    reach a precision at 1 of 0.82 with ``l2_final=1e-6`` and 0.86 with ``l2_final=1``. However, if the
    features have different scales, ``l2_final=1`` is far too large.

    With ``l2="auto"`` or ``l2_final="auto"``, `fit` searches for the penalty with the lowest leave-one-out
    error. If X is sparse, the search for `l2` starts at ``l2=1``, and the search for `l2_final` starts at
    ``l2_final=1``. If X is dense, each search starts at the best of five values from 1e-6 to 100. The search
    then multiplies or divides the penalty by ``sqrt(10)`` as long as the error falls, but at most 12 times.
    The search tries at least three penalties for a sparse X, and at least seven for a dense X.

    `fit` computes the leave-one-out error of a penalty from the residuals of a single regression on all rows
    and from the leverages of the rows. The leverage of a row measures how much the labels of the row change
    the prediction for the row. For each penalty, `fit` solves a regression with 32 target columns and
    computes the leverages. The regression takes the time given above for one regression, with m = 32. The
    additional time for each penalty depends on the solver:

    - With "cholesky", a factorization and exact leverages take O(n_samples n_features^2 + n_features^3) time.
    - With "dual", a factorization and exact leverages take O(n_samples^3) time.
    - With "cg", `fit` estimates the leverages by a second regression with 64 random target columns, which
      takes O(nnz(X) t) time.

    The code of the authors of [1]_ and [2]_ uses ``l2_final=1e-6`` and ``n_iter=2`` for all data sets. For
    the data set LSHTC, the code divides each row by its sum and uses
    ``n_components=800, l2=128, max_iter=50``. For the data sets of Mulan, the code uses
    ``n_components=0.9, l2=1e-4, max_iter=100``.

    References
    ----------
    .. [1] P. Mineiro and N. Karampatziakis, "Fast Label Embeddings for Extremely Large Output Spaces",
       arXiv:1412.6547, algorithm 1. The formula for F in line 8 is misprinted; this class uses
       ``(Y'XZ)'(Y'XZ)``.
    .. [2] P. Mineiro and N. Karampatziakis, "Scalable Multilabel Prediction via Randomized Methods",
       arXiv:1502.02710. This paper describes the ridge penalties and the row weights (the
       argument `sample_weight` of `fit`).

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
        l2_=Scalar(float, optional=True),  # files of version 0.1 have neither l2_ nor l2_final_
        l2_final_=Scalar(float, optional=True),
        n_iter_=Scalar(int),
    )

    # A dense X stays dense.
    _dense: ClassVar[bool] = True

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
        l2: float | Literal["auto"] = 1.0,
        l2_final: float | Literal["auto"] = "auto",
        variant: Literal["power", "ritz"] = "power",
        embedding: Literal["rembrandt", "gaussian", "pca"] = "rembrandt",
        center: bool = False,
        fit_intercept: bool = True,
        solver: Literal["auto", "cholesky", "cg", "dual"] = "auto",
        max_iter: int = 10,
        tol: float | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self._assign(locals())

    @built_aside
    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, progress: Progress = None) -> Rembrandt:
        """Fit the label embedding U and the regression coefficients W.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features, of any numeric dtype. Values must be finite. A sparse matrix may have int32 or int64
            indices.
        y : array-like or sparse matrix of shape (n_samples, n_labels), or array-like of shape (n_samples,)
            Labels: a 0/1 indicator matrix Y, in which NaN marks unknown entries, or an array with one class
            per row.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows; >= 0. A row with weight 2 counts as two rows.
        progress : callable, default=None
            Function that is called about 20 times per second. Its argument is the total number of panels
            finished so far in all passes over the data. A panel is a group of up to 32 components. If Y has
            unknown entries, `fit` may repeat regressions. The panels of these repetitions are not counted. If
            the function raises an exception, the fit stops.

        Returns
        -------
        Rembrandt
            The estimator itself.

        Raises
        ------
        ValueError
            If an argument or parameter is not valid. The message states the expected value and the given
            value.
        MemoryError
            If the matrix that the solver factorizes does not fit in memory.
        KeyboardInterrupt
            If Ctrl-C is pressed. The fit stops within a second, except during a large factorization.

        Warns
        -----
        sklearn.exceptions.ConvergenceWarning
            If `tol` is not None, and at least one regression with the solver "cg" did not reach this
            tolerance in `max_iter` steps.
        """
        self._fit(X, y, sample_weight, progress)
        return self

    def _fit(
        self, X: Any, y: Any, sample_weight: Any, progress: Progress, *, leave_one_out: bool = False
    ) -> NDArray[np.float32] | None:
        """Fit the model.

        If `leave_one_out` is True, return a predicted label embedding for each row. The prediction for a row
        uses regression coefficients that are fitted without this row. If `leave_one_out` is False, return
        None.
        """
        params = self._core_params(leave_one_out=leave_one_out)
        y, classes = one_hot(y)
        X, y, sample_weight = check_training_set(self, X, y, sample_weight, dense=True, unknown=True)
        if isinstance(params["n_components"], float):
            params["n_components"] = _core.pls_n_components(
                known_ones(y), sample_weight, params, params["n_jobs"]
            )
        n_panels = _n_panels(params, X.shape[1], y.shape[1])
        with reported(n_panels, "panel", params["verbose"], progress) as report:
            fitted = _core.fit_pls(X, y, sample_weight, params, (params["n_jobs"], report))
        self._set_fitted(fitted)
        self.classes_ = np.arange(y.shape[1]) if classes is None else classes
        self._warn_of_unfinished(fitted[5], stacklevel=5)
        predictions: NDArray[np.float32] | None = fitted[7]
        return predictions

    def _set_fitted(self, fitted: tuple[Any, ...]) -> None:
        """Set the fitted attributes, except `classes_`, from the result of the Rust core."""
        # An earlier fit with another `embedding` may have set these attributes.
        for name in ("label_embedding_", "eigenvalues_", "singular_values_"):
            if hasattr(self, name):
                delattr(self, name)
        label_embedding, self.coef_, self.intercept_, eigenvalues, self.n_iter_ = fitted[:5]
        self.l2_, l2_of_coef = fitted[6]
        self.l2_final_ = l2_of_coef / self.l2_ if self.l2_ > 0 else l2_of_coef
        if label_embedding is not None:
            self.label_embedding_ = label_embedding
        if eigenvalues is not None:
            self.eigenvalues_, self.singular_values_ = eigenvalues, np.sqrt(eigenvalues)
        self.n_components_ = self.coef_.shape[1]

    def _warn_of_unfinished(self, n_unfinished: int, stacklevel: int) -> None:
        if n_unfinished:
            warnings.warn(
                f"conjugate gradients did not reach tol={self.tol} in max_iter={self.max_iter} steps for "
                f"{n_unfinished} solutions of the regressions",
                ConvergenceWarning,
                stacklevel=stacklevel,
            )

    def _cut(self) -> type[RembrandtPieces]:
        return RembrandtPieces

    def transform(self, X: Any) -> NDArray[Any]:
        """Predict the label embedding of each row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features of the rows.

        Returns
        -------
        ndarray of shape (n_samples, n_components_)
            Predicted embeddings ``X @ coef_ + intercept_``, with the dtype of `coef_`.

        Raises
        ------
        ValueError
            If X is not valid, or if its number of features differs from the number in `fit`.
        """
        check_is_fitted(self)
        X = check_matrix(self, X, reset=False)
        return _core.pls_project(X, (self.coef_, self.intercept_), n_threads(self.n_jobs))

    @available_if(_embeds_labels)  # type: ignore[untyped-decorator]
    def embed_labels(self, y: Any) -> NDArray[Any]:
        """Compute the embeddings of label sets. This method is not available with ``embedding="pca"``.

        Parameters
        ----------
        y : array-like or sparse matrix of shape (n_samples, n_labels), or array-like of shape (n_samples,)
            Labels in one of the two forms that `fit` accepts: a 0/1 indicator matrix Y, or one class per row.

        Returns
        -------
        ndarray of shape (n_samples, n_components_)
            Embeddings of the label sets, ``Y @ label_embedding_``.

        Raises
        ------
        ValueError
            If y is not valid, if it contains a class that did not occur in `fit`, or if its number of labels
            differs from the number in `fit`.
        """
        check_is_fitted(self)
        Y = check_labels(one_hot(y, self.classes_)[0])
        n_labels = len(self.classes_)
        if Y.shape[1] != n_labels:
            raise ValueError(f"Y must have {n_labels} labels, as in fit, got {Y.shape[1]}")
        nothing = np.zeros_like(self.intercept_)
        return _core.pls_project(Y, (self.label_embedding_, nothing), n_threads(self.n_jobs))

    def _core_params(self, *, leave_one_out: bool = False) -> dict[str, Any]:
        """Return the checked parameters for the Rust core.

        If `n_components` is a float, it is not yet converted to a number of components.
        """
        own = {"tol_of_unknown": _TOL_OF_UNKNOWN, "most_rounds": _MOST_ROUNDS}
        return self.parameters.check(self) | own | {"leave_one_out": leave_one_out}

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
    """Return the total number of panels of all passes. A panel is a group of up to 32 components."""
    k, p, q = (int(params[name]) for name in ("n_components", "n_oversamples", "n_iter"))
    probe = min(k + p, n_features + 1, n_labels)
    return (q + 1) * math.ceil(probe / _PANEL) + math.ceil(min(k, n_labels) / _PANEL)
