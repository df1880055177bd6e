"""What the smooth link is fitted with: parameters as the core takes them, and linear predictions."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.base import clone

from manylabel import _core
from manylabel.embedding import Rembrandt
from manylabel.estimator.scaling import holds_measurements, inverse_deviations
from manylabel.estimator.validation import (
    check_count,
    check_flag,
    check_number,
    check_number_or_auto,
    check_threshold,
    n_threads,
    seed,
)

__all__ = [
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

_EMBEDDINGS = ("rembrandt", "gaussian", "pca", "none")


def core_params(model: Any) -> dict[str, Any]:
    """Check the parameters of the link and name them for the core, which checks ranges."""
    share = check_number("validation_fraction", model.validation_fraction)
    if not 0 < share < 1:
        raise ValueError(f"`validation_fraction` must be > 0 and < 1, got {model.validation_fraction!r}")
    params = {
        "kernel": str(model.kernel),
        # "auto" is settled when the rows are known.
        "n_features": _MOST_FEATURES
        if _is_auto(model.n_features)
        else check_count("n_features", model.n_features, 1),
        "gamma": None if _is_auto(model.gamma) else check_number_or_auto("gamma", model.gamma),
        "loss": str(model.loss),
        "solver": str(model.solver),
        "l2_link": _L2_LINK if _is_auto(model.l2_link) else check_number_or_auto("l2_link", model.l2_link),
        "n_passes": check_count("n_passes", model.n_passes, 1),
        "step_size": check_number("step_size", model.step_size),
        "momentum": check_number("momentum", model.momentum),
        "decay": check_number("decay", model.decay),
        "shrink": None if model.shrink is None else check_number("shrink", model.shrink),
        "preflate": check_flag("preflate", model.preflate),
        "n_iter_no_change": check_count("n_iter_no_change", model.n_iter_no_change, 1),
        "max_iter": check_count("max_iter", model.max_iter, 1),
        "tol": check_number("tol", model.tol),
        "max_memory": _check_bytes(model.max_memory),
        "seed": seed(model.random_state),
        "learn_threshold": check_threshold(model.threshold, 0.0) is None,
    }
    _core.check_link(params)  # before the embedding takes its time
    return params


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"


def automatic_features(n_samples: int) -> int:
    """Return how many random features so many rows are fitted with."""
    return min(max(int(n_samples * _FEATURES_OF_A_ROW), _FEWEST_FEATURES), _MOST_FEATURES)


def unfitted_embedding(model: Any, seed_: int) -> Rembrandt:
    """Return the embedding, but for a share in `n_components` and an automatic ridge."""
    n_components: Any = model.n_components
    is_count = isinstance(n_components, Integral) and not isinstance(n_components, bool | np.bool_)
    is_share = isinstance(n_components, float | np.floating) and 0 < n_components < 1
    if not (is_share or (is_count and n_components >= 1)):
        raise ValueError(
            f"`n_components` must be an integer >= 1 or a share > 0 and < 1, got {n_components!r}"
        )
    if model.l2 != "auto":
        number = model.l2 if isinstance(model.l2, int | float | np.number) else np.nan
        if isinstance(model.l2, bool) or not 0 <= number < np.inf:
            raise ValueError(f'`l2` must be "auto" or a finite number >= 0, got {model.l2!r}')
    n_iter = check_count("n_iter", model.n_iter, 0)
    n_oversamples = check_count("n_oversamples", model.n_oversamples, 0)
    if isinstance(model.embedding, Rembrandt):
        own: Rembrandt = clone(model.embedding).set_params(n_jobs=model.n_jobs)
        return own if own.random_state is not None else own.set_params(random_state=seed_ % 2**32)
    if not isinstance(model.embedding, str) or model.embedding not in _EMBEDDINGS:
        raise ValueError(
            '`embedding` must be "rembrandt", "gaussian", "pca", "none" or a Rembrandt, '
            f"got {model.embedding!r}"
        )
    return Rembrandt(
        n_iter=n_iter,
        n_oversamples=n_oversamples,
        embedding="rembrandt" if model.embedding == "none" else model.embedding,
        # One ridge for all regressions, as the paper prints.
        l2_final=1.0,
        # Means that are not ridged: the ridge that suits the features may be far too much for them.
        center=_is_auto(model.l2) and model.embedding != "pca",
        random_state=seed_ % 2**32,
        n_jobs=model.n_jobs,
    )


def linear_predictions(
    model: Any,
    embedding: Rembrandt,
    training_set: tuple[csr_array, csr_array, NDArray[np.float32] | None],
    held_out: NDArray[np.bool_] | None,
    progress: Callable[[int], None],
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
    if not isinstance(model.embedding, Rembrandt):
        automatic = _is_auto(model.l2) and model.embedding != "pca"
        embedding.l2 = model.l2 if automatic or not _is_auto(model.l2) else 1.0
        embedding.n_components = _n_components(model, embedding, X.shape[1], Y, sample_weight)
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
    if model.embedding == "none":
        labels = embedding.label_embedding_.T
        coef, intercept = coef @ labels, intercept @ labels
        predictions = None if predictions is None else (predictions @ labels).astype(np.float32)
    coef = np.ascontiguousarray(coef)
    if predictions is not None and held_out is not None and held_out_X is not None:
        all_rows = np.empty((len(held_out), predictions.shape[1]), dtype=np.float32)
        all_rows[~held_out] = predictions
        weights = (coef, intercept)
        all_rows[held_out] = _core.pls_project(held_out_X, weights, n_threads(model.n_jobs))
        predictions = all_rows
    return coef, intercept, predictions


def _n_components(model: Any, embedding: Rembrandt, n_features: int, Y: csr_array, sample_weight: Any) -> int:
    n_labels = Y.shape[1]
    if model.embedding == "none":
        return min(n_features + 1, n_labels)
    if isinstance(model.n_components, Integral):
        return int(model.n_components)
    if n_labels > _MOST_EIGENVALUES:
        return _MOST_COMPONENTS
    embedding.n_components = float(model.n_components)
    held = _core.pls_n_components(Y, sample_weight, embedding._core_params(), n_threads(model.n_jobs))
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


def _check_bytes(max_memory: Any) -> int | None:
    if max_memory is None:
        return None
    if isinstance(max_memory, bool) or not isinstance(max_memory, Integral) or max_memory < 1:
        raise ValueError(f"`max_memory` must be None or an integer >= 1, got {max_memory!r}")
    return min(int(max_memory), 2**63)
