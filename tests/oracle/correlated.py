"""The correlated logistic model from its definition: dense, in double precision, by enumeration.

In "01" coding labels z are 0 and 1 and log-odds of z_i are E_i = b_i x + v_i + sum_k c_ik z_k; in "pm1"
coding y = 2 z - 1 and half the log-odds of y_i are w_i x + v_i + sum_k a_ik y_k. Parameters are (B, v, C):
rows of weights, intercepts, and a symmetric matrix without diagonal.
"""

from itertools import product

import numpy as np
from scipy.special import expit, logsumexp


def activation(parameters, X, Z, coding="01"):
    """Log-odds of every label given the others."""
    B, v, C = parameters
    if coding == "01":
        return X @ B.T + v + Z @ C
    return 2 * (X @ B.T + v + (2 * Z - 1) @ C)


def loss(parameters, X, Z, weights, coding="01"):
    """Mean negative log pseudo-likelihood of a row."""
    E = activation(parameters, X, Z, coding)
    return np.average((np.logaddexp(0, E) - Z * E).sum(axis=1), weights=weights)


def gradient(parameters, X, Z, weights, coding="01"):
    """Gradient of the loss. Both cells of a pair in C have the derivative by their common parameter."""
    share = weights / weights.sum()
    residual = share[:, None] * (expit(activation(parameters, X, Z, coding)) - Z)
    labels = Z if coding == "01" else 2 * Z - 1
    half = residual.T @ labels
    pairs = half + half.T
    np.fill_diagonal(pairs, 0)
    factor = 1 if coding == "01" else 2
    return factor * residual.T @ X, factor * residual.sum(axis=0), factor * pairs


def penalty(parameters, l2_features, l2_pairs, epsilon):
    B, _, C = parameters
    pairs = C[np.triu_indices(len(C), 1)]
    return (
        l2_features * (B**2 + epsilon * np.abs(B)).sum()
        + l2_pairs * (pairs**2 + epsilon * np.abs(pairs)).sum()
    )


def violations(parameters, X, Z, weights, l2_features, l2_pairs, epsilon, coding="01"):
    """Least subgradients of weights, intercepts and couplings."""
    of_B, of_v, of_C = gradient(parameters, X, Z, weights, coding)

    def least(value, slope, l2):
        slope = slope + 2 * l2 * value
        return np.where(
            value != 0,
            np.abs(slope + l2 * epsilon * np.sign(value)),
            np.maximum(np.abs(slope) - l2 * epsilon, 0),
        )

    B, _, C = parameters
    return least(B, of_B, l2_features), np.abs(of_v), least(C, of_C, l2_pairs) * (1 - np.eye(len(C)))


def to_pm1(parameters):
    B, v, C = parameters
    return B / 2, v / 2 + C.sum(axis=1) / 4, C / 4


def soft(u, bound):
    return np.sign(u) * np.maximum(np.abs(u) - bound, 0)


def ista(X, Z, weights, l2_features, l2_pairs, epsilon, *, accelerated, n_iter, coding="01"):
    """Proximal gradient steps with the step size of the Lipschitz constant; FISTA if `accelerated`."""
    n, m = Z.shape
    labels = Z if coding == "01" else 2 * Z - 1
    design = np.sqrt(weights / weights.sum())[:, None] * np.column_stack([X, np.ones(n), labels])
    largest = np.linalg.eigvalsh(design.T @ design)[-1]
    step = 1 / (2 * (0.25 if coding == "01" else 1) * largest + 2 * max(l2_features, l2_pairs))
    point = before = np.zeros((m, X.shape[1])), np.zeros(m), np.zeros((m, m))
    tau, current = 1.0, point
    for _ in range(n_iter):
        of_B, of_v, of_C = gradient(current, X, Z, weights, coding)
        B, v, C = current
        point = (
            soft(B - step * (of_B + 2 * l2_features * B), step * l2_features * epsilon),
            v - step * of_v,
            soft(C - step * (of_C + 2 * l2_pairs * C), step * l2_pairs * epsilon),
        )
        following = (1 + np.sqrt(1 + 4 * tau**2)) / 2 if accelerated else 1.0
        momentum = (tau - 1) / following
        current = tuple(new + momentum * (new - old) for new, old in zip(point, before, strict=True))
        before, tau = point, following
    return point


def authors_run(X, Z, rho, epsilon, max_iter=500):
    """The authors' run: couplings are penalized in both orders, but thresholded once."""
    n, m = Z.shape
    weights = np.ones(n)
    step = 30 / ((X**2).sum() / n + 1)
    current = point = before = np.zeros((m, X.shape[1])), np.zeros(m), np.zeros((m, m))
    tau, last = 1.0, np.inf
    for iteration in range(1, max_iter + 1):
        of_B, of_v, of_C = gradient(current, X, Z, weights)
        B, v, C = current
        value = loss(current, X, Z, weights) + rho * sum((P**2 + epsilon * np.abs(P)).sum() for P in (B, C))
        point = (
            soft(B - step * (of_B + 2 * rho * B), step * rho * epsilon),
            v - step * of_v,
            soft(C - step * (of_C + 4 * rho * C), step * rho * epsilon),
        )
        following = (1 + np.sqrt(1 + 4 * tau**2)) / 2
        momentum = (tau - 1) / following
        current = tuple(new + momentum * (new - old) for new, old in zip(point, before, strict=True))
        before, tau = point, following
        if iteration > 20 and abs((value - last) / last) < 1e-3:
            break
        last = value
    return point, iteration


def states(m):
    """All sets of m labels, one per row."""
    return np.array(list(product([0, 1], repeat=m)), dtype=float)


def score(u, C, Z):
    """The log of the probability of label sets, up to a constant."""
    return Z @ u + ((Z @ C) * Z).sum(axis=1) / 2


def most_probable(u, C):
    Z = states(len(u))
    return Z[np.argmax(score(u, C, Z))]


def marginals(u, C):
    Z = states(len(u))
    scores = score(u, C, Z)
    return np.exp(scores - logsumexp(scores)) @ Z


def conditional(u, C, z, i, coding="01"):
    """The probability that label i is present given the others, from the probabilities of two label sets."""
    both = np.array([z, z])
    both[:, i] = 0, 1
    if coding == "01":
        scores = score(u, C, both)
    else:
        Y = 2 * both - 1
        scores = Y @ u + ((Y @ C) * Y).sum(axis=1) / 2
    return np.exp(scores[1] - logsumexp(scores))


def messages(u, C, rounds=50):
    """The label set found by two-state max-product messages. The largest entry of a message is 0."""
    m = len(u)
    own = np.column_stack([np.zeros(m), u])
    pair = np.zeros((m, m, 2, 2))
    pair[:, :, 1, 1] = C
    message = np.zeros((m, m, 2))  # from, to, state of the receiver
    for _ in range(rounds):
        new = np.zeros_like(message)
        for i, j in product(range(m), repeat=2):
            if i != j:
                others = [k for k in range(m) if k not in (i, j)]
                inside = own[i] + message[others, i].sum(axis=0)
                new[i, j] = (inside[:, None] + pair[i, j]).max(axis=0)
                new[i, j] -= new[i, j].max()
        message = new
    beliefs = own + message.sum(axis=0)
    return (beliefs[:, 1] > beliefs[:, 0]).astype(float)


def measures(Y, predicted):
    """The six measures of the paper: Hamming and 0-1 loss, accuracy, F1, macro-F1 and micro-F1.

    A row without true and predicted labels has accuracy and F1 zero; macro-F1 is the harmonic mean of the
    labels' mean precision and mean recall.
    """
    both = Y * predicted
    either = np.maximum(Y, predicted)
    sizes = (Y + predicted).sum(axis=1)
    precision = (both.sum(axis=0) / np.maximum(predicted.sum(axis=0), 1)).mean()
    recall = (both.sum(axis=0) / np.maximum(Y.sum(axis=0), 1)).mean()
    return np.array(
        [
            (predicted != Y).mean(),
            (predicted != Y).any(axis=1).mean(),
            (both.sum(axis=1) / np.maximum(either.sum(axis=1), 1)).mean(),
            (2 * both.sum(axis=1) / np.maximum(sizes, 1)).mean(),
            2 * precision * recall / (precision + recall),
            2 * both.sum() / sizes.sum(),
        ]
    )
