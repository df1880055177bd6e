"""The linear classifier of one label from its definition: dense, in double precision, minimized by scipy.

    f(v) = |v|^2 / 2 + C sum_i m_i max(0, 1 - s_i a_i.v)^2
    f(v) = |v|^2 / 2 + C sum_i m_i log(1 + exp(-s_i a_i.v))     logistic loss

a_i is row i of the features, scaled to unit length on request and followed by a 1 if there is an intercept. v
holds the weights and the intercept. s_i is 1 if row i has the label and -1 otherwise. m_i is its weight.
"""

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit


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


def logistic_value(v, A, s, C, m):
    return v @ v / 2 + C * np.sum(m * np.logaddexp(0, -s * (A @ v)))


def logistic_gradient(v, A, s, C, m):
    return v - C * A.T @ (m * s * expit(-s * (A @ v)))


def minimum(A, s, C, m, logistic=False):
    """The minimizer of the objective."""
    value_of, gradient_of = (logistic_value, logistic_gradient) if logistic else (value, gradient)
    options = {"maxiter": 10_000, "maxfun": 100_000, "ftol": 0, "gtol": 1e-9}
    start = np.zeros(A.shape[1])
    return minimize(value_of, start, (A, s, C, m), "L-BFGS-B", jac=gradient_of, options=options).x
