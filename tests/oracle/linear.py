"""The linear classifier of one label from its definition: dense, in double precision, minimized by scipy.

    f(v) = |v|^2 / 2 + C sum_i m_i max(0, 1 - s_i a_i.v)^2

a_i is row i of the features, scaled to unit length on request and followed by a 1 if there is an intercept. v
holds the weights and the intercept. s_i is 1 if row i has the label and -1 otherwise. m_i is its weight.
"""

import numpy as np
from scipy.optimize import minimize


def design(X, normalize=True, fit_intercept=True):
    """Rows a_i."""
    rows = []
    for x in np.asarray(X, dtype=float):
        length = np.sqrt(sum(x**2))
        row = x / length if normalize and length > 0 else x
        rows.append([*row, 1.0] if fit_intercept else row)
    return np.array(rows)


def value(v, A, s, C, m):
    losses = [max(0.0, 1 - s_i * (a @ v)) ** 2 for a, s_i in zip(A, s, strict=True)]
    return v @ v / 2 + C * sum(m_i * loss for m_i, loss in zip(m, losses, strict=True))


def gradient(v, A, s, C, m):
    total = v.copy()
    for a, s_i, m_i in zip(A, s, m, strict=True):
        error = 1 - s_i * (a @ v)
        if error > 0:
            total -= 2 * C * m_i * error * s_i * a
    return total


def minimum(A, s, C, m):
    """The minimizer of `value`."""
    options = {"maxiter": 10_000, "maxfun": 100_000, "ftol": 0, "gtol": 1e-9}
    start = np.zeros(A.shape[1])
    return minimize(value, start, (A, s, C, m), "L-BFGS-B", jac=gradient, options=options).x
