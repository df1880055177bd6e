"""Calibrated probabilities, thresholds and risks from their definitions, in plain numpy."""

import itertools

import numpy as np
from scipy.optimize import minimize


def shrunken_sigmoid(x, offset, hits, mean, precision):
    """Minimum of the logistic loss with a quadratic penalty, by a general optimizer."""
    x, offset, hits = (np.asarray(each, dtype=float) for each in (x, offset, hits))

    def objective(theta):
        z = offset + theta[0] + theta[1] * x
        penalty = 0.5 * np.sum(np.asarray(precision) * (theta - np.asarray(mean)) ** 2)
        return np.sum(np.logaddexp(0, z) - hits * z) + penalty

    return minimize(objective, np.asarray(mean, dtype=float), method="BFGS", tol=1e-10).x


def calibration_error(P, Y, n_bins):
    """Calibration error of all entries of dense matrices, bin by bin."""
    p, h = P.ravel(), Y.ravel()
    order = np.argsort(p, kind="stable")
    n = len(order)
    k = min(n_bins, n)
    edges = [i * n // k for i in range(k + 1)]
    bins = [order[a:b] for a, b in itertools.pairwise(edges)]
    return sum(abs(p[b].sum() - h[b].sum()) for b in bins) / n


def expected_f1(p, chosen, zero_division):
    """Expected F1 of a set of labels that are independent with probabilities p, by enumeration."""
    truths = sets(len(p))
    chances = np.prod(np.where(truths, p, 1 - p), axis=1)
    sizes = truths.sum(axis=1) + chosen.sum()
    return chances @ np.where(sizes > 0, 2 * (truths @ chosen) / np.maximum(sizes, 1), zero_division)


def sets(n):
    """All sets of n labels, as rows of 0 and 1."""
    return np.array(list(itertools.product([0, 1], repeat=n)))


def best_bound(measure, P, Y):
    """The value of a measure at the best single bound. Every probability is tried as a bound."""
    return max(measure(Y, (bound <= P).astype(int)) for bound in [*np.unique(P[P > 0]), 2.0])


def false_negative_rate(Y, chosen):
    """Mean share of the true labels that are not chosen; rows without labels count 0."""
    missed = (Y & ~chosen.astype(bool)).sum(axis=1)
    return float(np.mean(missed / np.maximum(Y.sum(axis=1), 1)))


def false_discovery_rate(Y, chosen):
    """Mean share of the chosen labels that are not true; rows without chosen labels count 0."""
    wrong = (chosen.astype(bool) & ~Y.astype(bool)).sum(axis=1)
    return float(np.mean(wrong / np.maximum(chosen.sum(axis=1), 1)))
