"""Explanations of the scores of label trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manylabel.estimator.explanation import Explained, Part, feature_parts

__all__ = ["explained"]


def explained(
    model: Any, features: NDArray[Any], values: NDArray[np.float64], label: int, names: Sequence[str]
) -> Explained:
    """Explain the margin of a label in its leaf, for one row.

    Parameters
    ----------
    model : LabelTreeClassifier
        The fitted model.
    features : ndarray of shape (n_stored,)
        Column indices of the stored values of the row.
    values : ndarray of shape (n_stored,), dtype float64
        The stored values of the row, scaled in the same way as in predictions.
    label : int
        Column index of a label. At least one leaf must have the label.
    names : sequence of str
        Names of all features, one for each column of X.

    Returns
    -------
    Explained
        The contributions of the features, and the intercept as one more contribution. Features with the
        contribution 0 are left out. With ``combine="leaf"`` and only one tree, ``-threshold_`` is also a
        contribution, and the contributions sum to the score of the label. In all other cases, they sum to the
        margin. The attribute `path` contains the nodes on the path from the root to the leaf, without the
        root. With several trees, several leaves have the label. Only the first of these leaves in the order
        of ``leaf_labels_`` is explained.
    """
    entry = int(np.flatnonzero(model.leaf_labels_ == label)[0])
    leaf = int(np.searchsorted(model.node_label_ends_, entry, side="right")) - 1
    output = entry - int(model.node_label_ends_[leaf])
    weights = _weights(model, leaf, output, features, None if _is_float(model) else model.leaf_scale_[entry])
    intercept = Part("intercept", "intercept", float(model.leaf_intercept_[entry]))
    path: list[Part] = []
    node, n_trees = leaf, int(model.node_children_[0])
    while node >= n_trees:
        parent = int(np.searchsorted(model.node_children_, node, side="right")) - 1
        scale = None if _is_float(model) else model.node_scale_[node]
        place = node - int(model.node_children_[parent])
        margin = float(values @ _weights(model, parent, place, features, scale))
        margin += float(model.node_intercept_[node])
        path.append(Part("node", f"node {node}", model.path_weight_ * _log_probability(model, margin)))
        node = parent
    more = [intercept]
    if model.by_leaf_ and n_trees == 1:
        more.append(Part("threshold", "threshold", -float(model.threshold_)))
        quantity = "score"
    else:
        quantity = "margin in its leaf" if n_trees == 1 else f"margin in its leaf of tree {node}"
    parts = feature_parts(features, values * weights, names, more)
    return Explained(parts, quantity, tuple(reversed(path)))


def _log_probability(model: Any, margin: float) -> float:
    """Return the logarithm of the probability of a node with the given margin."""
    if model._is_logistic:
        return -float(np.logaddexp(0.0, -margin))
    return -float(max(0.0, 1.0 - margin) ** model._power)


def _is_float(model: Any) -> bool:
    return bool(model.chunk_weights_.dtype.kind == "f")


def _weights(
    model: Any, node: int, output: int, features: NDArray[Any], scale: np.float32 | None
) -> NDArray[np.float64]:
    """Return the weights of the given features for one child or one label of a node."""
    stored = slice(model.chunk_weight_ends_[node], model.chunk_weight_ends_[node + 1])
    of_node = slice(model.chunk_feature_ends_[node], model.chunk_feature_ends_[node + 1])
    mine = np.flatnonzero(model.chunk_outputs_[stored] == output)
    rows = np.searchsorted(model.chunk_row_ends_[of_node], mine, side="right")
    weights = model.chunk_weights_[stored][mine].astype(np.float64)
    weight_of = dict(zip(model.chunk_features_[of_node][rows].tolist(), weights.tolist(), strict=True))
    found = np.array([weight_of.get(feature, 0.0) for feature in features.tolist()])
    return found if scale is None else found * float(scale)
