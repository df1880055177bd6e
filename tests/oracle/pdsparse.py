"""PD-Sparse from its definition: dense, in double precision, its dual minimized by scipy.

    f(w) = sum_k |w_k|^2/2 + l1 |w_k|_1
           + sum_i C m_i max(0, 1 + max_{k not in y_i} w_k.a_i - min_{k in y_i} w_k.a_i)

over rows that have some, but not all labels. The dual variables of a row are >= 0 for its labels and <= 0
for the others. They sum to 0, and those >= 0 sum to at most C m_i.

Intercepts and threshold are found from the scores of held-out rows.
"""

import numpy as np
from scipy.optimize import LinearConstraint, minimize


def primal(coef, A, Y, C, l1, m):
    """The objective of weights (n_labels, n_features)."""
    total = (coef**2).sum() / 2 + l1 * np.abs(coef).sum()
    for a, y, weight in zip(A, Y, m, strict=True):
        if 0 < y.sum() < len(y):
            scores = coef @ a
            total += C * weight * max(0.0, 1 + scores[y == 0].max() - scores[y == 1].min())
    return total


def soft(v, l1):
    return np.sign(v) * np.maximum(np.abs(v) - l1, 0)


def optimum(A, Y, C, l1, m):
    """The least objective, by the dual."""
    kept = (Y.sum(axis=1) > 0) & (Y.sum(axis=1) < Y.shape[1])
    A, Y, m = A[kept], Y[kept], m[kept]
    n, c = Y.shape
    if n == 0:
        return 0.0

    def dual(flat):
        alpha = flat.reshape(n, c)
        w = soft(alpha.T @ A, l1)
        return (w**2).sum() / 2 + alpha[Y == 0].sum(), (A @ w.T + (Y == 0)).ravel()

    rows = np.repeat(np.eye(n), c, axis=1)
    zero_sums = LinearConstraint(rows, 0, 0)
    few = LinearConstraint(rows * Y.ravel(), -np.inf, C * m)
    bounds = [(0, None) if y else (None, 0) for y in Y.ravel()]
    found = minimize(
        dual,
        np.zeros(n * c),
        jac=True,
        method="SLSQP",
        bounds=bounds,
        constraints=[zero_sums, few],
        options={"maxiter": 1000, "ftol": 1e-12},
    )
    return -found.fun


def mean_precisions(scores, Y):
    """Label ranking average precision of every row that has a label."""
    return np.array(
        [
            np.mean([y[row >= least].mean() for least in row[y == 1]])
            for row, y in zip(scores, Y, strict=True)
            if y.any()
        ]
    )


def factor(scores, Y, log_frequencies, m):
    """The smallest factor of the log frequencies that is within a standard error of the best."""
    factors = [0.0, *2.0 ** np.arange(-9, 2)]
    precisions = np.array([mean_precisions(scores + by * log_frequencies, Y) for by in factors])
    share = m[Y.any(axis=1)] / m[Y.any(axis=1)].sum()
    best = (precisions @ share).argmax()
    for by, lost in zip(factors, precisions[best] - precisions, strict=True):
        mean, n = lost @ share, len(lost)
        if mean <= np.sqrt(((share * (lost - mean)) ** 2).sum() * n / (n - 1)):
            return by
    raise AssertionError("the best is no worse than itself")
