"""Plot of a label matrix, with rows and labels sorted by block."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from manylabel.estimator.plotting import pyplot

__all__ = ["draw_blocks"]


def draw_blocks(
    Y: csr_array,
    row_blocks: NDArray[np.int32],
    label_blocks: list[NDArray[np.int32]],
    max_rows: int,
    ax: Any,
) -> Any:
    """Plot the positive entries of Y, with rows and labels sorted by block.

    Parameters
    ----------
    Y : csr_array of shape (n_samples, n_labels)
        0/1 indicator matrix.
    row_blocks : ndarray of shape (n_samples,), dtype int32
        The block of each row.
    label_blocks : list of ndarray, dtype int32
        The labels of each block.
    max_rows : int
        Maximum number of rows per block in the plot.
    ax : matplotlib.axes.Axes or None
        Axes for the plot. None creates a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the plot.
    """
    if ax is None:
        _, ax = pyplot().subplots(figsize=(7, 7), layout="constrained")
    n_blocks = len(label_blocks)
    shown = [np.flatnonzero(row_blocks == block)[:max_rows] for block in range(n_blocks)]
    order = _label_order(Y, row_blocks, label_blocks)
    place = np.empty(Y.shape[1], dtype=np.int64)
    place[order] = np.arange(len(order))
    part = Y[np.concatenate(shown)]
    of_row = np.repeat(np.arange(part.shape[0]), np.diff(part.indptr))
    ends = np.cumsum([len(rows) for rows in shown])
    for block, (labels, end) in enumerate(zip(label_blocks, ends, strict=True)):
        held = np.zeros((1, Y.shape[1]))
        held[0, place[labels]] = 1
        extent = (-0.5, Y.shape[1] - 0.5, end - 0.5, end - len(shown[block]) - 0.5)
        ax.imshow(held, cmap="Blues", vmin=0, vmax=4, extent=extent, aspect="auto", interpolation="nearest")
        ax.axhline(end - 0.5, color="0.5", linewidth=0.6)
    ax.plot(place[part.indices], of_row, "s", color="black", markersize=1, linestyle="none")
    ax.set(
        xlim=(-0.5, Y.shape[1] - 0.5),
        ylim=(part.shape[0] - 0.5, -0.5),
        xlabel="labels",
        ylabel="rows, block after block",
    )
    return ax


def _label_order(
    Y: csr_array, row_blocks: NDArray[np.int32], label_blocks: list[NDArray[np.int32]]
) -> NDArray[np.int64]:
    """Return the labels in the order of the plot.

    Labels in several blocks come first. Then come the labels in exactly one block, block after block. Labels
    in no block come last.
    """
    n_labels = Y.shape[1]
    counts = np.bincount(Y.indices, minlength=n_labels)
    n_held, most, home = np.zeros(n_labels, int), np.full(n_labels, -1), np.zeros(n_labels, int)
    for block, labels in enumerate(label_blocks):
        here = np.bincount(Y[row_blocks == block].indices, minlength=n_labels)
        better = labels[here[labels] > most[labels]]
        most[better], home[better] = here[better], block
        n_held[labels] += 1
    shared = n_held > 1
    group = np.where(shared, -n_held, np.where(n_held == 1, home, len(label_blocks)))
    return np.lexsort([-counts, group, np.where(shared, 0, 1)])
