"""What boosted rules are fitted with: parameters as the core takes them, and label sets."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from manylabel.estimator.validation import check_count, check_flag, check_number

__all__ = [
    "categorical_positions",
    "chosen_predictor",
    "core_params",
    "label_sets",
    "n_tried",
]


def core_params(model: Any) -> dict[str, Any]:
    """Check the parameters that need no data, and name them for the core, which checks ranges.

    `max_features` and the seed are missing.
    """
    chosen_predictor(model)
    share = check_number("validation_fraction", model.validation_fraction)
    if not 0 < share < 1:
        raise ValueError(f"`validation_fraction` must be > 0 and < 1, got {model.validation_fraction!r}")
    binning = model.label_binning
    step = _choice("step", model.step, "auto", "newton", "safeguarded")
    if step == "auto":
        short = model.loss == "label-wise-logistic" or (binning is not None and model.hessian == "paper")
        step = "newton" if short else "safeguarded"
    return {
        "n_rules": check_count("n_rules", model.n_rules, 1),
        "loss": str(model.loss),
        "head": str(model.head),
        "label_binning": None if binning is None else check_number("label_binning", binning),
        "min_bins": check_count("min_bins", model.min_bins, 1),
        "max_bins": _limit("max_bins", model.max_bins),
        "hessian": str(model.hessian),
        "step": step,
        "search": str(model.search),
        "learning_rate": check_number("learning_rate", model.learning_rate),
        "l2": check_number("l2", model.l2),
        "bootstrap": check_flag("bootstrap", model.bootstrap),
        "min_coverage": check_count("min_coverage", model.min_coverage, 1),
        "max_conditions": _limit("max_conditions", model.max_conditions),
        "n_iter_no_change": check_count("n_iter_no_change", model.n_iter_no_change, 1),
    }


def chosen_predictor(model: Any) -> str:
    """Return "known-label-sets" or "signs", whatever "auto" stands for."""
    predictor = _choice("predictor", model.predictor, "auto", "known-label-sets", "signs")
    if predictor == "auto":
        return "signs" if model.loss == "label-wise-logistic" else "known-label-sets"
    return predictor


def n_tried(max_features: Any, n_features: int) -> int:
    """Return how many features are tried for a condition."""
    if max_features is None:
        return n_features
    if isinstance(max_features, str) and max_features == "log2":
        return max(1, (n_features - 1).bit_length())  # floor(log2(n_features - 1) + 1)
    if (
        isinstance(max_features, int | np.integer)
        and not isinstance(max_features, bool)
        and max_features >= 1
    ):
        return min(int(max_features), n_features)
    if isinstance(max_features, float | np.floating) and 0 < max_features <= 1:
        return max(1, int(max_features * n_features))
    raise ValueError(
        f'`max_features` must be None, "log2", an integer >= 1 or a share > 0 and <= 1, got {max_features!r}'
    )


def categorical_positions(model: Any) -> NDArray[np.int32]:
    """Return the positions of the nominal features, sorted; the model has seen X."""
    given = model.categorical_features
    n_features = model.n_features_in_
    listed = np.asarray([] if given is None else given)
    if listed.ndim == 1 and listed.size == 0:
        return np.zeros(0, dtype=np.int32)
    if listed.ndim == 1 and listed.dtype == bool and len(listed) == n_features:
        return np.flatnonzero(listed).astype(np.int32)
    if listed.ndim == 1 and listed.dtype.kind in "iu" and listed.min() >= 0 and listed.max() < n_features:
        return np.unique(listed).astype(np.int32)
    names = getattr(model, "feature_names_in_", None)
    if listed.ndim == 1 and names is not None and all(isinstance(name, str) for name in listed):
        unknown = sorted(set(listed) - set(names))
        if unknown:
            raise ValueError(f"`categorical_features` must be names of features, got {str(unknown[0])!r}")
        return np.flatnonzero(np.isin(names, listed)).astype(np.int32)
    raise ValueError(
        f"`categorical_features` must be None, positions from 0 to {n_features - 1}, a mask of {n_features} "
        f"bool, or names if X has names, got {given!r}"
    )


def label_sets(
    Y: csr_array, sample_weight: NDArray[np.float32] | None, held_out: NDArray[np.bool_] | None
) -> tuple[csr_array, NDArray[np.float64]]:
    """Return the distinct rows of Y and their weights, most frequent first, then first seen."""
    weights = np.ones(Y.shape[0]) if sample_weight is None else sample_weight.astype(np.float64)
    if held_out is not None:
        Y, weights = Y[~held_out], weights[~held_out]
    numbers: dict[bytes, int] = {}
    row_bytes = Y.indices.tobytes()  # in one go, since slices of bytes are quicker than those of arrays
    ends = Y.indptr.astype(np.int64) * Y.indices.itemsize
    # Canonical rows are equal if their bytes are; setdefault sees the length before it is one more.
    number = [
        numbers.setdefault(row_bytes[begin:end], len(numbers)) for begin, end in pairwise(ends.tolist())
    ]
    total = np.bincount(number, weights=weights).astype(np.float64)
    _, first = np.unique(number, return_index=True)
    order = np.argsort(-total, kind="stable")
    sets = Y[first[order]]
    # As narrow as they can be: the model is the same, however wide the positions of Y are.
    narrow = np.int32 if max(sets.nnz, sets.shape[1]) <= np.iinfo(np.int32).max else np.int64
    positions = sets.indices.astype(narrow), sets.indptr.astype(narrow)
    return csr_array((sets.data, *positions), shape=sets.shape), total[order]


def _choice(name: str, value: Any, *choices: str) -> str:
    """Check a choice that is settled here; the core checks the others."""
    if not isinstance(value, str) or value not in choices:
        *most, last = (f'"{choice}"' for choice in choices)
        raise ValueError(f"`{name}` must be {', '.join(most)} or {last}, got {value!r}")
    return value


def _limit(name: str, value: Any) -> int | None:
    return None if value is None else check_count(name, value, 1)
