"""Objectives in which some entries of Y are unknown (NaN), from their definitions: dense, in doubles."""

import numpy as np
from scipy.optimize import minimize

from oracle import correlated, leml


def hinge_minimum(A, y, C, positive=1.0, negative=1.0):
    """The minimizer of |v|^2/2 + C sum_i f_i max(0, 1 - s_i a_i.v)^2 over the rows with a known y_i.

    f_i is `positive` where y_i is 1 and `negative` where it is 0.
    """
    known = ~np.isnan(y)
    A, s = A[known], 2 * y[known] - 1
    cost = C * np.where(s > 0, positive, negative)

    def objective(v):
        error = np.maximum(0, 1 - s * (A @ v))
        return v @ v / 2 + cost @ error**2, v - 2 * A.T @ (cost * error * s)

    options = {"maxiter": 10_000, "maxfun": 100_000, "ftol": 0, "gtol": 1e-10}
    return minimize(objective, np.zeros(A.shape[1]), jac=True, method="L-BFGS-B", options=options).x


def margin_optimum(A, Y, C):
    """The least |W|^2/2 + C sum_i xi_i, xi_i >= 1 + z_ik - z_ij for ones j and known zeros k of row i."""
    n, d = A.shape
    c = Y.shape[1]
    triples = [
        (i, j, k) for i in range(n) for j in np.flatnonzero(Y[i] == 1) for k in np.flatnonzero(Y[i] == 0)
    ]
    rows = np.zeros((len(triples), c * d + n))
    for row, (i, j, k) in zip(rows, triples, strict=True):
        row[j * d : (j + 1) * d] += A[i]
        row[k * d : (k + 1) * d] -= A[i]
        row[c * d + i] = 1
    rows = np.vstack([rows, np.eye(c * d + n)[c * d :]])
    least = np.r_[np.ones(len(triples)), np.zeros(n)]

    def objective(v):
        slope = np.full(len(v), float(C))
        slope[: c * d] = v[: c * d]
        return v[: c * d] @ v[: c * d] / 2 + C * v[c * d :].sum(), slope

    limits = {"type": "ineq", "fun": lambda v: rows @ v - least, "jac": lambda _: rows}
    start = np.r_[np.zeros(c * d), np.ones(n)]
    options = {"maxiter": 1000, "ftol": 1e-14}
    return minimize(objective, start, jac=True, method="SLSQP", constraints=limits, options=options).fun


def pseudo_likelihood(parameters, X, Y, l2_features, l2_pairs):
    """The objective of the correlated logistic model without the conditionals of unknown entries.

    In the other conditionals of a row, an unknown label counts as 0.
    """
    E = correlated.activation(parameters, X, np.nan_to_num(Y))
    losses = np.where(np.isnan(Y), 0, np.logaddexp(0, E) - np.nan_to_num(Y) * E)
    return losses.sum(axis=1).mean() + correlated.penalty(parameters, l2_features, l2_pairs, 0.0)


def least_pseudo_likelihood(X, Y, l2_features, l2_pairs):
    """The minimum of `pseudo_likelihood`, by numeric gradients."""
    m, d = Y.shape[1], X.shape[1]
    pairs = np.triu_indices(m, 1)

    def parameters(v):
        C = np.zeros((m, m))
        C[pairs] = v[m * d + m :]
        return v[: m * d].reshape(m, d), v[m * d : m * d + m], C + C.T

    def objective(v):
        return pseudo_likelihood(parameters(v), X, Y, l2_features, l2_pairs)

    start = np.zeros(m * d + m + len(pairs[0]))
    return minimize(objective, start, method="BFGS", options={"gtol": 1e-7, "maxiter": 2000}).fun


def ridge(A, y, l2):
    """The minimizer of |A w - y|^2 + l2 |w|^2 over the rows with a known y_i."""
    known = ~np.isnan(y)
    A, y = A[known], y[known]
    return np.linalg.solve(A.T @ A + l2 * np.eye(A.shape[1]), A.T @ y)


def least_low_rank(X, Y, rank, alpha, known, weights):
    """The least objective of LEML with the squared loss."""
    d, c = X.shape[1], Y.shape[1]

    def objective(v):
        W, H = v[: d * rank].reshape(d, rank), v[d * rank :].reshape(c, rank)
        slopes = leml.gradient(W, H, X, Y, alpha, "squared", known, weights)
        value = leml.value(W, H, X, Y, alpha, "squared", known, weights)
        return value, np.concatenate([slope.ravel() for slope in slopes])

    start = np.random.default_rng(0).normal(size=(d + c) * rank)
    options = {"maxiter": 20_000, "maxfun": 50_000, "ftol": 1e-14, "gtol": 1e-8}
    return minimize(objective, start, jac=True, method="L-BFGS-B", options=options).fun
