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
from manylabel._validation import check_count, check_flag, check_number, n_threads, seed
from manylabel.pls import Rembrandt

__all__ = ["check_one_label", "core_params", "linear_predictions", "unfitted_embedding"]

# A share of the labels' variance asks for so many components at most, and for their eigenvalues only up to
# so many labels.
_MOST_COMPONENTS = 300
_MOST_EIGENVALUES = 1024

# Features from which on the ridge of the embedding is 1 by default.
_MANY_FEATURES = 5000

_EMBEDDINGS = ("rembrandt", "gaussian", "pca", "none")


def core_params(model: Any) -> dict[str, Any]:
    """Check the parameters of the link and name them for the core, which checks ranges."""
    share = check_number("validation_fraction", model.validation_fraction)
    if not 0 < share < 1:
        raise ValueError(f"`validation_fraction` must be > 0 and < 1, got {model.validation_fraction!r}")
    params = {
        "kernel": str(model.kernel),
        "n_features": check_count("n_features", model.n_features, 1),
        "gamma": check_number("gamma", model.gamma),
        "loss": str(model.loss),
        "solver": str(model.solver),
        "l2_link": check_number("l2_link", model.l2_link),
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
    }
    _core.check_link(params)  # before the embedding takes its time
    return params


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
        # One ridge for all regressions, as the paper prints: the link learns from predictions of the rows
        # that W is fitted to, and a W that has learned these by heart misleads it.
        l2_final=1.0,
        random_state=seed_ % 2**32,
        n_jobs=model.n_jobs,
    )


def linear_predictions(
    model: Any,
    embedding: Rembrandt,
    training_set: tuple[csr_array, csr_array, NDArray[np.float32] | None],
    held_out: NDArray[np.bool_] | None,
    progress: Callable[[int], None],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Fit the embedding to the rows that are learned from; return weights and intercepts."""
    X, Y, sample_weight = training_set
    if held_out is not None:
        X, Y = X[~held_out], Y[~held_out]
        sample_weight = None if sample_weight is None else sample_weight[~held_out]
    if not isinstance(model.embedding, Rembrandt):
        automatic = 1e-4 if X.shape[1] < _MANY_FEATURES else 1.0
        embedding.l2 = automatic if model.l2 == "auto" else float(model.l2)
        embedding.n_components = _n_components(model, embedding, X.shape[1], Y, sample_weight)
    # In double precision, and by what X holds rather than how: the same bits for all its forms.
    features: Any = X.astype(np.float64, copy=False)
    if np.count_nonzero(X.data) > X.shape[0] * X.shape[1] / 2:
        features = features.toarray()
    embedding.fit(features, Y, sample_weight, progress=progress)
    if model.embedding == "none":
        labels = embedding.label_embedding_.T
        return embedding.coef_ @ labels, embedding.intercept_ @ labels
    return np.ascontiguousarray(embedding.coef_), embedding.intercept_


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
