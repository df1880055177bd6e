"""What the smooth link is fitted with: parameters as the core takes them, and linear predictions."""

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

# A share of the labels' variance asks for so many components at most, and for their eigenvalues only up to
# so many labels.
_MOST_COMPONENTS = 300
_MOST_EIGENVALUES = 1024

# Random features for each row, and how many at least and at most. With as many as rows the link learns rows
# by heart; a quarter predicts as well as more where the signal is strong, and better where it is weak.
_FEATURES_OF_A_ROW = 1 / 4
_FEWEST_FEATURES, _MOST_FEATURES = 100, 2000

# Ridge of the link. Of 0.01 and 0.1 this one is better or within half a point of precision at 1 on sets of
# all kinds with the chosen gamma.
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
    """An embedding of the user's own."""

    wanted = "a Rembrandt"
    documented = "Rembrandt"
    wrong = (3, Rembrandt)

    def takes(self, value: Any) -> bool:
        """Say whether a value is allowed."""
        return isinstance(value, Rembrandt)

    def read(self, text: str) -> Any:
        """Refuse text: the command line has words for embeddings."""
        raise ValueError


def core_params(params: dict[str, Any]) -> dict[str, Any]:
    """Give the parameters that the core takes; "auto" for `n_features` is settled when the rows are known."""
    auto = {"n_features": _MOST_FEATURES, "l2_link": _L2_LINK}
    settled = {name: value for name, value in auto.items() if params[name] == "auto"}
    return params | settled | {"learn_threshold": params["threshold"] == "auto"}


def automatic_features(n_samples: int) -> int:
    """Return how many random features so many rows are fitted with."""
    return min(max(int(n_samples * _FEATURES_OF_A_ROW), _FEWEST_FEATURES), _MOST_FEATURES)


def unfitted_embedding(params: dict[str, Any]) -> Rembrandt:
    """Return the embedding, but for a share in `n_components` and an automatic ridge."""
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
        # Means that are not ridged: the ridge that suits the features may be far too much for them.
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
    """Fit the embedding to the rows that are learned from; return weights, intercepts and predictions.

    Predictions are of all rows, by fits without the row each; None where those of the weights are to be
    learned from.
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
    # In double precision, and by what X holds rather than how: the same bits for all its forms.
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
    """Check that each row has one label, as the softmax demands."""
    counts = np.diff(Y.indptr)
    wrong = counts[counts != 1]
    if len(wrong):
        # No number of a row: rows of weight zero are gone, and the caller's are numbered with them.
        raise ValueError(
            f'rows of Y must have one label each with `loss="softmax"`, got {len(wrong)} rows that have not, '
            f"the first of them {wrong[0]}"
        )
