"""The label embedding from its definition: dense, in double precision, by full eigendecompositions.

B = Y' Omega A (A' Omega A + lambda I)^-1 A' Omega Y. A is X, with a column of ones if there is an intercept;
with centring, X and Y are reduced by their weighted means. lambda is `l2` times the mean diagonal of
A' Omega A. U holds the top eigenvectors of B. W regresses YU on A with a ridge of `l2_final` times lambda.
"""

from dataclasses import dataclass

import numpy as np


@dataclass
class Embedding:
    B: np.ndarray
    eigenvalues: np.ndarray
    U: np.ndarray
    W: np.ndarray
    intercept: np.ndarray


def parts(X, Y, weights=None, center=False, fit_intercept=False):
    """A, Y and the diagonal of Omega, with the means that were subtracted."""
    X, Y = np.asarray(X, dtype=float), np.asarray(Y, dtype=float)
    weights = np.ones(len(X)) if weights is None else np.asarray(weights, dtype=float)
    x_mean, y_mean = np.zeros(X.shape[1]), np.zeros(Y.shape[1])
    if center:
        x_mean, y_mean = (np.average(M, axis=0, weights=weights) for M in (X, Y))
    elif fit_intercept:
        X = np.hstack([X, np.ones((len(X), 1))])
        x_mean = np.zeros(X.shape[1])
    return X - x_mean, Y - y_mean, weights, x_mean, y_mean


def ridge(A, weights, l2):
    return l2 * np.sum(weights[:, None] * A**2) / A.shape[1]


def regress(A, weights, R, lam):
    """argmin |R - A Z|^2 + lam |Z|^2 in the norm of Omega; of least norm if lam is 0."""
    root = np.sqrt(weights)[:, None]
    A, R = root * A, root * R
    if lam > 0:
        return np.linalg.solve(A.T @ A + lam * np.eye(A.shape[1]), A.T @ R)
    return np.linalg.lstsq(A, R, rcond=None)[0]


def embedding(X, Y, k, l2=1.0, l2_final=1e-6, weights=None, center=False, fit_intercept=False):
    A, Y, weights, x_mean, y_mean = parts(X, Y, weights, center, fit_intercept)
    lam = ridge(A, weights, l2)
    B = (weights[:, None] * Y).T @ A @ regress(A, weights, Y, lam)
    values, vectors = np.linalg.eigh((B + B.T) / 2)
    U = vectors[:, ::-1][:, :k]
    U = U * np.sign(U[np.argmax(abs(U), axis=0), np.arange(U.shape[1])])
    W = regress(A, weights, Y @ U, l2_final * lam)
    intercept = y_mean @ U - x_mean @ W
    if fit_intercept and not center:
        W, intercept = W[:-1], W[-1]
    return Embedding(B, values[::-1], U, W, intercept)


def leave_one_out(X, Y, U, l2, weights=None, center=False, fit_intercept=False, keep_means=False):
    """Predictions of YU for each row by a regression fitted to the other rows, with the ridge of all rows.

    Centring subtracts the means of the other rows, or those of all rows if `keep_means`.
    """
    A, targets, weights, _, y_mean = parts(X, Y, weights, center, fit_intercept)
    lam, out = ridge(A, weights, l2), np.empty((len(Y), U.shape[1]))
    for row in range(len(Y)):
        rest = np.arange(len(Y)) != row
        if keep_means:
            out[row] = A[row] @ regress(A[rest], weights[rest], targets[rest] @ U, lam) + y_mean @ U
            continue
        B, targets, own, x_mean, y_mean = parts(
            np.asarray(X, dtype=float)[rest], Y[rest], weights[rest], center, fit_intercept
        )
        one = A[row] if not center else np.asarray(X, dtype=float)[row] - x_mean
        out[row] = one @ regress(B, own, targets @ U, lam) + y_mean @ U
    return out


def sine_of_largest_angle(U, V):
    """Sine of the largest angle between the spaces spanned by two matrices of orthonormal columns."""
    return np.linalg.norm(U - V @ (V.T @ U), 2)


def components_of_share(Y, share, weights=None):
    """The smallest k whose top eigenvalues of Y' Omega Y sum to more than a share of its trace."""
    weights = np.ones(len(Y)) if weights is None else weights
    C = Y.T @ (weights[:, None] * Y)
    values = np.linalg.eigvalsh(C)[::-1]
    return 1 + int(np.argmax(np.cumsum(values) > share * np.trace(C)))
