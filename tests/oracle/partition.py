"""Block partitioning from its definitions: dense and slow."""

from itertools import combinations

import numpy as np
from scipy.optimize import minimize


def objective(Y, row_blocks, label_blocks, lam):
    """lam times the squared numbers of labels of the blocks, minus the number of ones inside blocks."""
    inside = sum(Y[i, j] for i, block in enumerate(row_blocks) for j in label_blocks[block])
    return lam * sum(len(labels) ** 2 for labels in label_blocks) - inside


def best_labels(Y, rows, lam):
    """The lowest objective of a block of rows over all label sets."""
    counts = Y[rows].sum(axis=0).tolist()
    sizes = range(len(counts) + 1)
    return min(lam * size**2 - sum(chosen) for size in sizes for chosen in combinations(counts, size))


def logistic(v, A, s, C, m):
    """|v|^2 / 2 + C sum_i m_i ln(1 + exp(-s_i a_i.v))."""
    return v @ v / 2 + C * np.sum(m * np.logaddexp(0, -s * (A @ v)))


def logistic_minimum(A, s, C, m):
    """The minimizer of `logistic`, by a generic method."""
    options = {"maxiter": 10_000, "maxfun": 100_000, "ftol": 0, "gtol": 1e-9}
    return minimize(logistic, np.zeros(A.shape[1]), (A, s, C, m), "L-BFGS-B", options=options).x


def naive_bayes(X, Y):
    """log pi_j + sum_f x_f log theta_fj for every row and label; -inf for labels without rows."""
    scores = np.full(Y.shape, -np.inf)
    for j in np.flatnonzero(Y.any(axis=0)):
        counts = X[Y[:, j] == 1].sum(axis=0) + 1
        theta = counts / counts.sum()
        for i, x in enumerate(X):
            scores[i, j] = np.log(Y[:, j].sum() / Y.sum()) + sum(x * np.log(theta))
    return scores


def merged(probabilities, scores):
    """The logit of sum_l p_l / (1 + exp(-s_l)), p scaled to sum to 1; s_l is -inf without the label."""
    p = np.asarray(probabilities) / sum(probabilities)
    total = sum(p_l / (1 + np.exp(-s_l)) for p_l, s_l in zip(p, scores, strict=True))
    return np.log(total / (1 - total)) if total > 0 else -np.inf
