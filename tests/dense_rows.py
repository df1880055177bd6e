"""Dense features for tests, and the memory that a call needs."""

import tracemalloc

import numpy as np

from manylabel import _core


def clusters(n_rows, n_columns, n_labels, seed=0):
    """Rows with up to three labels, each of which adds its own direction. Columns have different means."""
    rng = np.random.default_rng(seed)
    frequency = 1 / np.arange(1, n_labels + 1)
    frequency /= frequency.sum()
    centers = rng.normal(size=(n_labels, n_columns))
    X, Y = rng.normal(size=(n_rows, n_columns)), np.zeros((n_rows, n_labels), dtype=np.int8)
    for row in range(n_rows):
        Y[row, rng.choice(n_labels, rng.integers(1, 4), p=frequency)] = 1
        X[row] += centers[Y[row] > 0].mean(axis=0)
    return (X + rng.normal(size=n_columns)).astype(np.float32), Y


def peak_of(call):
    """The largest memory of numpy's arrays and of the core during a call, beyond the memory before it."""
    tracemalloc.start()
    try:
        core, python = _core.restart_memory_peak(), tracemalloc.get_traced_memory()[0]
        call()
        return tracemalloc.get_traced_memory()[1] - python + _core.memory_held()[1] - core
    finally:
        tracemalloc.stop()
