"""Removal of the weights of some labels from a label tree."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["without_outputs"]


def without_outputs(model: Any, kept: NDArray[np.bool_]) -> None:
    """Remove the weights, intercepts and scales (``leaf_scale_``) of some labels from a label tree.

    The other weights of the label tree do not change, so the scores of all other labels do not change either.
    The caller must remove the labels from ``leaf_labels_``.

    Parameters
    ----------
    model : LabelTreeClassifier
        The fitted model. The function changes this object: new arrays replace the attributes that describe
        weights and leaves. ``leaf_labels_`` is not changed.
    kept : ndarray of shape (n_leaf_labels,), dtype bool
        For each entry of ``leaf_labels_``, whether its weights, intercept and scale are kept.
    """
    label_ends, weight_ends = model.node_label_ends_, model.chunk_weight_ends_
    kept_before = np.concatenate([[0], np.cumsum(kept)])
    stays = np.ones(len(model.chunk_weights_), dtype=bool)
    outputs, row_ends = model.chunk_outputs_.copy(), model.chunk_row_ends_.copy()
    for node in np.flatnonzero(np.diff(label_ends) > np.diff(kept_before[label_ends])).tolist():
        labels = slice(label_ends[node], label_ends[node + 1])
        weights = slice(weight_ends[node], weight_ends[node + 1])
        features = slice(model.chunk_feature_ends_[node], model.chunk_feature_ends_[node + 1])
        stays[weights] = kept[labels][outputs[weights]]
        outputs[weights] = (kept_before[labels] - kept_before[labels.start])[outputs[weights]]
        weights_before = np.concatenate([[0], np.cumsum(stays[weights])])
        row_ends[features] = weights_before[row_ends[features]]
    stays_before = np.concatenate([[0], np.cumsum(stays)])
    model.chunk_weight_ends_ = stays_before[weight_ends]
    model.chunk_weights_ = model.chunk_weights_[stays]
    model.chunk_outputs_ = outputs[stays]
    model.chunk_row_ends_ = row_ends
    model.node_label_ends_ = kept_before[label_ends]
    model.leaf_intercept_ = model.leaf_intercept_[kept]
    if hasattr(model, "leaf_scale_"):
        model.leaf_scale_ = model.leaf_scale_[kept]
