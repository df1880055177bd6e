"""How boosted rules choose label sets for a measure, one bound, one power and one row at a time."""

import numpy as np

MEASURES = ("subset-accuracy", "hamming", "example-f1")
POWERS = [0.0, 0.05, 0.1, 0.15, 0.25, 0.35, 0.5, 0.75, 1.0]
BOUNDS = [i / 128 for i in range(-16 * 128, 16 * 128 + 1)]


def by_power(scores, sets, weights, power):
    """The known label sets with the smallest losses. `scores` are those of all labels, also without rows."""
    chosen = []
    for row in scores:
        losses = np.logaddexp(0, np.logaddexp.reduce(-(2 * sets - 1) * row, axis=1))
        chosen.append(sets[np.argmin(losses - power * np.log(weights))])
    return np.array(chosen)


def by_bound(scores, bound, measure):
    """The labels above the bound. A label without rows has the score -inf."""
    chosen = (scores > bound).astype(int)
    if measure == "example-f1":
        chosen[np.arange(len(scores)), np.argmax(scores, axis=1)] = 1
    return chosen


def value(measure, chosen, true, weights):
    """The weighted sum of a measure over the rows; larger is better. NaN in `true` is not counted."""
    known = ~np.isnan(true)
    chosen, true = np.where(known, chosen, 0), np.where(known, true, 0)
    if measure == "subset-accuracy":
        return weights @ (chosen == true).all(axis=1)
    if measure == "hamming":
        return -weights @ (chosen != true).sum(axis=1)
    total = chosen.sum(axis=1) + true.sum(axis=1)
    return weights @ np.where(total > 0, 2 * (chosen * true).sum(axis=1) / np.maximum(total, 1), 0)
