"""LEML from its definition: dense, in double precision.

    f(W, H) = sum_ij O_ij m_i loss(y_ij, a_i.W h_j) + alpha/2 (|W|^2 + |H|^2)

a_i is row i of the features as `oracle.linear.design` makes it, m_i its weight, O_ij is 1 where y_ij
is known.
"""

import numpy as np


def losses(Z, Y, loss):
    """Cost of each entry and its derivative by the score."""
    signs = 2 * Y - 1
    if loss == "squared":
        return (Y - Z) ** 2 / 2, Z - Y
    if loss == "logistic":
        return np.logaddexp(0, -signs * Z), -signs / (1 + np.exp(signs * Z))
    error = np.maximum(0, 1 - signs * Z)
    return error**2 / 2, -signs * error


def value(W, H, A, Y, alpha, loss, observed, m):
    cost = losses(A @ W @ H.T, Y, loss)[0]
    return (observed * m[:, None] * cost).sum() + alpha / 2 * ((W**2).sum() + (H**2).sum())


def gradient(W, H, A, Y, alpha, loss, observed, m):
    """Gradients by W and by H."""
    pull = observed * m[:, None] * losses(A @ W @ H.T, Y, loss)[1]
    return A.T @ pull @ H + alpha * W, pull.T @ A @ W + alpha * H


def best_scores_of_identity(Y, alpha, rank):
    """Optimal scores if A is the identity: `rank` largest singular values of Y, each reduced by alpha.

    The least ``(|W|^2 + |H|^2) / 2`` for a product is the sum of its singular values.
    """
    U, s, V = np.linalg.svd(Y, full_matrices=False)
    return (U[:, :rank] * np.maximum(s[:rank] - alpha, 0)) @ V[:rank]
