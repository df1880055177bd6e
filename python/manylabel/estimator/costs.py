"""Weights and propensities of labels. They determine the factor that multiplies the loss of each label."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["LabelCosts", "check_label_weight", "check_propensities", "label_costs"]


class LabelCosts(NamedTuple):
    """The weights and propensities of the labels; see `label_costs`."""

    weight: NDArray[np.float64]
    """Weight of each label, shape (n_labels,)."""
    propensity: NDArray[np.float64]
    """Propensity of each label, shape (n_labels,)."""

    def of(self, labels: NDArray[np.intp]) -> LabelCosts:
        """Return the weights and propensities of the labels with the column indices `labels`."""
        return LabelCosts(self.weight[labels], self.propensity[labels])

    @property
    def positive(self) -> NDArray[np.float32]:
        """For each label, the factor by which its loss is multiplied in rows that have the label."""
        return (self.weight * (2 / self.propensity - 1)).astype(np.float32)

    @property
    def negative(self) -> NDArray[np.float32]:
        """For each label, the factor by which its loss is multiplied in rows that do not have the label."""
        return self.weight.astype(np.float32)

    @property
    def gain(self) -> NDArray[np.float64]:
        """The weight of each label divided by its propensity.

        In `manylabel.estimator.held_out.Fold.precisions`, a correct prediction of a label counts as this
        number instead of 1.
        """
        return self.weight / self.propensity


def label_costs(n_labels: int, label_weight: Any, propensities: Any) -> LabelCosts | None:
    """Check the weights and propensities of the labels.

    The loss of a label is multiplied by its weight. The propensity of a label is the probability that Y
    records the label in a row for which the label is true. Propensities are used to compensate for true
    labels that are missing from Y. In rows for which Y records the label, the loss is also multiplied by
    ``2/p - 1``, where p is the propensity of the label [1]_.

    Parameters
    ----------
    n_labels : int
        Number of labels.
    label_weight : array-like of shape (n_labels,) or None
        Weights of the labels, > 0.
    propensities : array-like of shape (n_labels,) or None
        Propensities of the labels, in (0, 1].

    Returns
    -------
    LabelCosts or None
        The weights and propensities. If only `label_weight` is None, all weights are 1. If only
        `propensities` is None, all propensities are 1. If both arguments are None, the result is None.

    Raises
    ------
    ValueError
        If an argument does not have one valid number for each label.

    References
    ----------
    .. [1] M. Qaraei et al., "Convex Surrogates for Unbiased Loss Functions in Extreme Classification With
       Missing Labels", WWW 2021.
    """
    if label_weight is None and propensities is None:
        return None
    weight = np.ones(n_labels) if label_weight is None else check_label_weight(label_weight, n_labels)
    propensity = np.ones(n_labels) if propensities is None else check_propensities(propensities, n_labels)
    return LabelCosts(weight, propensity)


def check_label_weight(label_weight: Any, n_labels: int) -> NDArray[np.float64]:
    """Check that there is one finite weight > 0 for each label."""
    weights = _one_for_each_label(label_weight, "label_weight", n_labels)
    with np.errstate(over="ignore", under="ignore"):
        single = weights.astype(np.float32)
    if not (np.isfinite(single) & (single > 0)).all():
        wrong = weights[~(np.isfinite(single) & (single > 0))][0]
        raise ValueError(f"`label_weight` must be finite and > 0 in float32 for each label, got {wrong}")
    return weights


def check_propensities(propensities: Any, n_labels: int) -> NDArray[np.float64]:
    """Check that there is one propensity in (0, 1] for each label."""
    checked = _one_for_each_label(propensities, "propensities", n_labels)
    allowed = (checked > 0) & (checked <= 1)
    if not allowed.all():
        raise ValueError(f"`propensities` must all be > 0 and <= 1, got {checked[~allowed][0]}")
    return checked


def _one_for_each_label(values: Any, name: str, n_labels: int) -> NDArray[np.float64]:
    checked = np.asarray(values, dtype=np.float64)
    if checked.shape != (n_labels,):
        raise ValueError(
            f"`{name}` must have shape ({n_labels},), one number per label, got shape {checked.shape}"
        )
    return checked
