"""Preparation of a fit of `SmoothLinkClassifier`: parameters for the Rust core, and linear predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.preprocessing import normalize

from manylabel import _core
from manylabel.embedding import Rembrandt
from manylabel.estimator.parameters import Parameter
from manylabel.estimator.progress import Tell
from manylabel.estimator.scaling import holds_measurements, inverse_deviations
from manylabel.estimator.validation import known_ones

__all__ = [
    "KERNELS",
    "Embedding",
    "automatic_features",
    "check_one_label",
    "core_params",
    "linear_predictions",
    "of_unit_length",
    "scales_rows",
    "unfitted_embedding",
]

# Maximum number of components if `n_components` is a float. Eigenvalues are computed for up to
# `_MOST_EIGENVALUES` labels. With more labels, the number of components is the maximum.
_MOST_COMPONENTS = 300
_MOST_EIGENVALUES = 1024

# Number of random features per row, and the minimum and maximum number of random features. With as many
# features as rows, the link overfits. If labels are easy to predict, a quarter as many features as rows gives
# the same accuracy as more features. If labels are hard to predict, a quarter gives a higher accuracy.
_FEATURES_OF_A_ROW = 1 / 4
_FEWEST_FEATURES, _MOST_FEATURES = 100, 2000

# Default ridge penalty of the link. Compared with 0.01 on various data sets with ``gamma="auto"``, the value
# 0.1 gives a higher precision at 1, or at most half a percentage point less.
_L2_LINK = 0.1

KERNELS = (
    "gaussian",
    "matern-3",
    "matern-5",
    "cauchy",
    "linear",
    "quasi-gaussian",
    "quasi-matern-3",
    "quasi-matern-5",
)


class Embedding(Parameter):
    """A parameter whose value is an instance of `Rembrandt`."""

    wanted = "an instance of Rembrandt"
    documented = "Rembrandt"
    wrong = (3, Rembrandt)

    def takes(self, value: Any) -> bool:
        """Return whether `value` is an instance of `Rembrandt`."""
        return isinstance(value, Rembrandt)

    def read(self, text: str) -> Any:
        """Raise ValueError, because text on the command line cannot describe an instance of `Rembrandt`."""
        raise ValueError


def core_params(params: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters for the Rust core, with numbers for `n_features` and `l2_link` instead of "auto".

    If `n_features` is "auto", the result contains the largest number that "auto" can choose. The caller
    replaces this number by the result of `automatic_features` when the number of training rows is known.
    """
    auto = {"n_features": _MOST_FEATURES, "l2_link": _L2_LINK}
    settled = {name: value for name, value in auto.items() if params[name] == "auto"}
    return params | settled | {"learn_threshold": params["threshold"] == "auto"}


def automatic_features(n_samples: int) -> int:
    """Return the number of random features for ``n_features="auto"`` and `n_samples` rows."""
    return min(max(int(n_samples * _FEATURES_OF_A_ROW), _FEWEST_FEATURES), _MOST_FEATURES)


def unfitted_embedding(params: dict[str, Any]) -> Rembrandt:
    """Return a `Rembrandt` that is not fitted yet.

    If the user passed an instance of `Rembrandt`, the result is a clone of it. Otherwise, the result is a new
    instance with the default `n_components` and `l2` of `Rembrandt`. `linear_predictions` replaces these two
    values later.
    """
    embedding, n_jobs, random_state = params["embedding"], params["n_jobs"], params["random_state"] % 2**32
    if isinstance(embedding, Rembrandt):
        own: Rembrandt = clone(embedding).set_params(n_jobs=n_jobs)
        return own if own.random_state is not None else own.set_params(random_state=random_state)
    return Rembrandt(
        n_iter=params["n_iter"],
        n_oversamples=params["n_oversamples"],
        embedding="rembrandt" if embedding == "none" else embedding,
        # All regressions use the same ridge penalty, as in the paper of Karampatziakis and Mineiro (2015).
        l2_final=1.0,
        # With centering, the ridge penalty does not apply to the means. A penalty that suits the features may
        # be far too large for the means.
        center=chooses_l2(params),
        random_state=random_state,
        n_jobs=n_jobs,
    )


def chooses_l2(params: dict[str, Any]) -> bool:
    """Return whether the ridge penalty of the embedding is chosen by the leave-one-out error."""
    return bool(params["l2"] == "auto" and params["embedding"] in ("rembrandt", "gaussian", "none"))


def scales_rows(params: dict[str, Any], X: csr_array | NDArray[Any]) -> bool:
    """Return whether the embedding is fitted to rows of unit length.

    The embedding minimizes squared errors. Without scaling, long texts in word counts would have by far the
    largest influence. On yahoo-science and yahoo-reference, precision at 1 is 10 percentage points higher
    with scaled rows.
    """
    return chooses_l2(params) and not holds_measurements(X)


def of_unit_length(X: csr_array | NDArray[Any]) -> csr_array:
    """Return a copy of X, in CSR format and float64, with rows of unit length."""
    # The largest absolute value of each row is divided out first, so that all squares are finite.
    rows = normalize(csr_array(X).astype(np.float64), "max", copy=False)
    return csr_array(normalize(rows, copy=False))


def linear_predictions(
    params: dict[str, Any],
    embedding: Rembrandt,
    training_set: tuple[csr_array | NDArray[Any], csr_array, NDArray[np.float32] | None],
    held_out: NDArray[np.bool_] | None,
    by_row: bool,
    progress: Tell,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float32] | None]:
    """Fit the embedding to the rows that are not held out. Return its weights, intercepts and predictions.

    If `by_row` is True, rows are scaled to unit length, and the weights apply to rows of unit length. The
    caller fits the link to the predictions. The function returns an array of predictions only if `chooses_l2`
    returns True. The array has a row for each row of X. Held-out rows have ordinary predictions, and the
    other rows have leave-one-out predictions. If `chooses_l2` returns False, the function returns None in
    place of the array, and the caller computes ordinary predictions for all rows.
    """
    X, Y, sample_weight = training_set
    automatic = chooses_l2(params)
    if by_row:
        X = of_unit_length(X)
    held_out_X = None
    if held_out is not None:
        held_out_X = X[held_out]
        X, Y = X[~held_out], Y[~held_out]
        sample_weight = None if sample_weight is None else sample_weight[~held_out]
    if not isinstance(params["embedding"], Rembrandt):
        embedding.l2 = params["l2"] if automatic or params["l2"] != "auto" else 1.0
        embedding.n_components = _n_components(params, embedding, X.shape[1], Y, sample_weight)
    # The features are converted to double precision. The number of nonzero values, not the format of X,
    # decides whether the features are stored densely. All input formats therefore give exactly the same
    # results.
    values = X if isinstance(X, np.ndarray) else X.data
    is_dense = np.count_nonzero(values) > X.shape[0] * X.shape[1] / 2
    scales = inverse_deviations(X, sample_weight) if automatic and not by_row else None
    features: Any
    if isinstance(X, np.ndarray) and is_dense:
        features = X.astype(np.float64, copy=False) if scales is None else X * scales
    else:
        features = csr_array(X).astype(np.float64, copy=False)
        if scales is not None:
            if np.count_nonzero(features.data) < features.nnz:
                features = features.copy()
                features.eliminate_zeros()
            features = csr_array(
                (features.data * scales[features.indices], features.indices, features.indptr), features.shape
            )
        if is_dense:
            features = features.toarray()
    predictions = embedding._fit(features, Y, sample_weight, progress, leave_one_out=automatic)
    coef, intercept = embedding.coef_, embedding.intercept_
    if scales is not None:
        coef = coef * scales[:, None]
    if params["embedding"] == "none":
        labels = embedding.label_embedding_.T
        coef, intercept = coef @ labels, intercept @ labels
        predictions = None if predictions is None else (predictions @ labels).astype(np.float32)
    coef = np.ascontiguousarray(coef)
    if predictions is not None and held_out is not None and held_out_X is not None:
        all_rows = np.empty((len(held_out), predictions.shape[1]), dtype=np.float32)
        all_rows[~held_out] = predictions
        weights = (coef, intercept)
        # Sparse rows give the same bits for both forms of X.
        all_rows[held_out] = _core.pls_project(csr_array(held_out_X), weights, params["n_jobs"])
        predictions = all_rows
    return coef, intercept, predictions


def _n_components(
    params: dict[str, Any], embedding: Rembrandt, n_features: int, Y: csr_array, sample_weight: Any
) -> int:
    n_labels = Y.shape[1]
    if params["embedding"] == "none":
        return min(n_features + 1, n_labels)
    n_components: int | float = params["n_components"]
    if isinstance(n_components, int):
        return n_components
    if n_labels > _MOST_EIGENVALUES:
        return _MOST_COMPONENTS
    embedding.n_components = n_components
    held = _core.pls_n_components(known_ones(Y), sample_weight, embedding._core_params(), params["n_jobs"])
    return min(held, _MOST_COMPONENTS)


def check_one_label(Y: csr_array) -> None:
    """Check that each row has exactly one label, as the softmax loss requires."""
    counts = np.diff(Y.indptr)
    wrong = counts[counts != 1]
    if len(wrong):
        # The message contains no row number, because removed rows with weight 0 have changed the row numbers.
        raise ValueError(
            f'with `loss="softmax"`, each row of Y must have exactly one label, got {len(wrong)} rows with '
            f"no or several labels; the first of these rows has {wrong[0]} labels"
        )
