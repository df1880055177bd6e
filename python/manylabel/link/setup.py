"""Preparation of a smooth link fit: the parameters that the core takes, and the linear predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.base import clone

from manylabel import _core
from manylabel.embedding import Rembrandt
from manylabel.estimator.parameters import Parameter
from manylabel.estimator.progress import Tell
from manylabel.estimator.scaling import holds_measurements, inverse_deviations

__all__ = [
    "KERNELS",
    "Embedding",
    "automatic_features",
    "check_one_label",
    "core_params",
    "linear_predictions",
    "unfitted_embedding",
]

# A share in `n_components` means at most so many components. Eigenvalues are computed for up to so many
# labels; with more labels the maximum is used.
_MOST_COMPONENTS = 300
_MOST_EIGENVALUES = 1024

# Random features per row, and their minimum and maximum. With as many features as rows the link overfits; a
# quarter predicts as well as more where the signal is strong, and better where it is weak.
_FEATURES_OF_A_ROW = 1 / 4
_FEWEST_FEATURES, _MOST_FEATURES = 100, 2000

# Ridge of the link. On sets of all kinds, with the chosen gamma, 0.1 is better than 0.01 or within half a
# point of precision at 1.
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
    """An embedding that the user passes as an instance."""

    wanted = "a Rembrandt"
    documented = "Rembrandt"
    wrong = (3, Rembrandt)

    def takes(self, value: Any) -> bool:
        """Say whether a value is allowed."""
        return isinstance(value, Rembrandt)

    def read(self, text: str) -> Any:
        """Refuse text: the command line can only name embeddings."""
        raise ValueError


def core_params(params: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters that the core takes; the caller sets an automatic `n_features`."""
    auto = {"n_features": _MOST_FEATURES, "l2_link": _L2_LINK}
    settled = {name: value for name, value in auto.items() if params[name] == "auto"}
    return params | settled | {"learn_threshold": params["threshold"] == "auto"}


def automatic_features(n_samples: int) -> int:
    """Return the number of random features for so many rows."""
    return min(max(int(n_samples * _FEATURES_OF_A_ROW), _FEWEST_FEATURES), _MOST_FEATURES)


def unfitted_embedding(params: dict[str, Any]) -> Rembrandt:
    """Return the embedding; the caller sets a share in `n_components` and an automatic ridge."""
    embedding, n_jobs, random_state = params["embedding"], params["n_jobs"], params["random_state"] % 2**32
    if isinstance(embedding, Rembrandt):
        own: Rembrandt = clone(embedding).set_params(n_jobs=n_jobs)
        return own if own.random_state is not None else own.set_params(random_state=random_state)
    return Rembrandt(
        n_iter=params["n_iter"],
        n_oversamples=params["n_oversamples"],
        embedding="rembrandt" if embedding == "none" else embedding,
        # One ridge for all regressions, as the paper prints.
        l2_final=1.0,
        # Centering leaves the means unregularized: the ridge that suits the features may be far too large
        # for them.
        center=params["l2"] == "auto" and embedding != "pca",
        random_state=random_state,
        n_jobs=n_jobs,
    )


def linear_predictions(
    params: dict[str, Any],
    embedding: Rembrandt,
    training_set: tuple[csr_array, csr_array, NDArray[np.float32] | None],
    held_out: NDArray[np.bool_] | None,
    progress: Tell,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float32] | None]:
    """Fit the embedding to the rows that are not held out; return weights, intercepts and predictions.

    Predictions cover all rows: leave-one-out predictions of the rows that the embedding was fitted to, and
    ordinary predictions of held-out rows. They are None if the link is to be fitted to ordinary predictions
    of all rows.
    """
    X, Y, sample_weight = training_set
    held_out_X = None
    if held_out is not None:
        held_out_X = X[held_out]
        X, Y = X[~held_out], Y[~held_out]
        sample_weight = None if sample_weight is None else sample_weight[~held_out]
    automatic = False
    if not isinstance(params["embedding"], Rembrandt):
        automatic = params["l2"] == "auto" and params["embedding"] != "pca"
        embedding.l2 = params["l2"] if automatic or params["l2"] != "auto" else 1.0
        embedding.n_components = _n_components(params, embedding, X.shape[1], Y, sample_weight)
    # In double precision, and dense or sparse by the values of X rather than its format: all formats give
    # the same bits.
    features: Any = X.astype(np.float64, copy=False)
    n_cells, n_values = X.shape[0] * X.shape[1], np.count_nonzero(X.data)
    scales = None
    if automatic and holds_measurements(X):
        if n_values < X.nnz:
            features = features.copy()
            features.eliminate_zeros()
        scales = inverse_deviations(features, sample_weight)
        features = csr_array(
            (features.data * scales[features.indices], features.indices, features.indptr), features.shape
        )
    if n_values > n_cells / 2:
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
        all_rows[held_out] = _core.pls_project(held_out_X, weights, params["n_jobs"])
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
    held = _core.pls_n_components(Y, sample_weight, embedding._core_params(), params["n_jobs"])
    return min(held, _MOST_COMPONENTS)


def check_one_label(Y: csr_array) -> None:
    """Check that each row has exactly one label, as the softmax requires."""
    counts = np.diff(Y.indptr)
    wrong = counts[counts != 1]
    if len(wrong):
        # The message names no row number: rows with weight 0 are dropped, which shifts the numbers.
        raise ValueError(
            f'rows of Y must have one label each with `loss="softmax"`, got {len(wrong)} rows that do not, '
            f"the first with {wrong[0]}"
        )
