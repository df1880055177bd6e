"""The smooth link from its definition: dense, in double precision, given frequencies.

Phi = [cos(H R + b), 1] with H = [p, 1]; without frequencies Phi = H.
"""

import numpy as np
from scipy.special import expit
from scipy.special import softmax as softmax_of


def design(p, R, b):
    """Features of linear predictions p."""
    H = np.column_stack([p, np.ones(len(p))])
    if R.shape[1] == 0:
        return H
    return np.column_stack([np.cos(H @ R.astype(float) + b), np.ones(len(p))])


def smoothed(Y, shrink, multiclass=False):
    """Targets: rows of a multiclass Y still sum to 1."""
    return shrink * Y + (1 - shrink) / Y.shape[1] if multiclass else (2 * shrink - 1) * Y + (1 - shrink)


def gram(Phi, weights, l2):
    """The regularized Gram matrix C, and its ridge."""
    C = Phi.T @ (weights[:, None] * Phi)
    ridge = l2 * np.trace(C) / len(C)
    return C + ridge * np.eye(len(C)), ridge


def least_squares(Phi, targets, weights, l2):
    C, _ = gram(Phi, weights, l2)
    return np.linalg.solve(C, Phi.T @ (weights[:, None] * targets))


def probabilities(scores, loss):
    return softmax_of(scores, axis=1) if loss == "softmax" else expit(np.minimum(scores, 40))


def steps(Phi, targets, weights, l2, batches, *, step_size, momentum, decay, loss, known=None):
    """Weights after passes of preconditioned gradient steps. A pass is a list of batches of row numbers.

    Targets and probabilities are 0 where `known` is 0.
    """
    known = np.ones_like(targets) if known is None else known
    targets = known * targets
    C, _ = gram(Phi, weights, l2)
    M = Phi.T @ (weights[:, None] * targets)
    V = np.linalg.solve(C, M)
    D = np.zeros_like(V)
    eta, n = step_size * (1 - momentum), len(Phi)
    for one_pass in batches:
        for rows in one_pass:
            P = known[rows] * probabilities(Phi[rows] @ V, loss)
            g = len(rows) / n * M - Phi[rows].T @ (weights[rows, None] * P)
            D = momentum * D + eta * n / len(rows) * np.linalg.solve(C, g)
            V = V + D
        if decay < 1:
            D, eta = decay * D, decay * eta
    return V


def loss(V, Phi, targets, weights, ridge, loss):
    """The loss summed over rows and labels, plus the ridge."""
    scores = Phi @ V
    if loss == "softmax":
        highest = scores.max(axis=1, keepdims=True)
        partition = highest[:, 0] + np.log(np.exp(scores - highest).sum(axis=1))
    else:
        partition = np.logaddexp(0, scores).sum(axis=1)
    return weights @ (partition - (targets * scores).sum(axis=1)) + ridge * (V**2).sum()


def gradient(V, Phi, targets, weights, ridge, loss):
    residual = probabilities(Phi @ V, loss) - targets
    return Phi.T @ (weights[:, None] * residual) + 2 * ridge * V


def optimum(Phi, targets, weights, ridge):
    """The V that minimizes the logistic loss plus the ridge, by Newton's method."""
    V = np.zeros((Phi.shape[1], targets.shape[1]))
    for column, v in enumerate(V.T):
        for _ in range(50):
            q = expit(Phi @ v)
            H = Phi.T @ ((weights * q * (1 - q))[:, None] * Phi) + 2 * ridge * np.eye(len(v))
            change = np.linalg.solve(H, Phi.T @ (weights * (q - targets[:, column])) + 2 * ridge * v)
            v -= change
            if abs(change).max() < 1e-12 * abs(v).max():
                break
    return V
