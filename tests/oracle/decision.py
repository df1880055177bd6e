"""Algorithm 4 for one label, by trying every number of rows."""

import numpy as np


def named_for_f1(probabilities, prior):
    """0/1 column for one label."""
    z = np.asarray(probabilities, dtype=float)
    if prior == 0:
        return np.zeros(len(z), dtype=int)
    falling = sorted(z, reverse=True)
    best, least = -1.0, None
    for m in range(1, len(z) + 1):
        expected = 2 * sum(falling[:m]) / (prior * len(z) + m)
        if expected > best:
            best, least = expected, falling[m - 1]
    return ((z >= least) & (z > 0)).astype(int)
