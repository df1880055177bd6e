"""The function `stored_blocks`, which writes dask arrays to a folder and memory-maps them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from manylabel.datasets.rows import open_rows, store
from manylabel.estimator.validation import canonical_csr, mostly_nonzero

__all__ = ["stored_blocks"]


def stored_blocks(X: Any, Y: Any, folder: Path, scheduler: Any = None) -> tuple[Any, csr_array]:
    """Write the blocks of dask arrays to a folder, one after the other, and memory-map the folder.

    Parameters
    ----------
    X, Y : dask.array.Array
        Features and labels. Each block has all columns, and X and Y have the same number of blocks. Empty
        blocks, which have no rows, are skipped. If the first nonempty block of X is an ndarray in which more
        than half of the values are nonzero, X is written as a dense array. The array has the dtype of this
        block, or float64 if this dtype is not float16, float32 or float64. Otherwise X is written as sparse
        rows.
    folder : Path
        The folder. If it already contains these arrays from an earlier, completed call, nothing is written.
    scheduler : object, default=None
        The scheduler that computes the blocks, as `dask.compute` takes it. None means the current scheduler.

    Returns
    -------
    X : csr_array or ndarray, of shape (n_samples, n_features)
        Features, of dtype float32 or float64. A dense X may also have the dtype float16.
    Y : csr_array of shape (n_samples, n_labels), dtype float32
        Labels, as `open_rows` returns them.

    Raises
    ------
    ValueError
        If X and Y have different numbers of blocks or rows, if there are no rows, or if the blocks of X have
        different numbers of columns. The error is also raised if a block of a dense X has a dtype that cannot
        be cast safely to the dtype in which X is written, or if the folder contains other data.
    """
    from dask.base import tokenize

    if not hasattr(Y, "to_delayed"):
        raise ValueError(f"`Y` must be a dask array if `X` is a dask array, got {type(Y).__name__}")
    if X.numblocks[1] != 1 or Y.numblocks[1] != 1 or X.numblocks[0] != Y.numblocks[0]:
        raise ValueError(
            "X and Y must each have one block of columns, and must have the same number of blocks of rows, "
            f"got X.numblocks={X.numblocks} and Y.numblocks={Y.numblocks}"
        )

    def blocks() -> Iterator[tuple[csr_array | NDArray[Any], csr_array]]:
        n_columns, dtype = None, None
        pairs = zip(X.to_delayed()[:, 0], Y.to_delayed()[:, 0], strict=True)
        for number, (x, y) in enumerate(pairs):
            of_x: Any = x.compute(scheduler=scheduler)
            of_y = canonical_csr(y.compute(scheduler=scheduler), "Y")
            if of_x.shape[0] != of_y.shape[0]:
                raise ValueError(
                    f"block {number} of X and Y must have the same number of rows, got {of_x.shape[0]} and "
                    f"{of_y.shape[0]}"
                )
            if of_x.shape[0] == 0:
                continue
            of_y.eliminate_zeros()
            if n_columns is None:
                n_columns, dtype = of_x.shape[1], _dtype_if_dense(of_x)
            if of_x.shape[1] != n_columns:
                raise ValueError(
                    f"block {number} of X must have {n_columns} columns, like the blocks before it, got "
                    f"{of_x.shape[1]}"
                )
            if dtype is None:
                of_x = canonical_csr(of_x, "X")
                if of_x.dtype not in (np.float32, np.float64):
                    of_x = of_x.astype(np.float64)
                yield of_x, of_y
                continue
            if not np.can_cast(of_x.dtype, dtype):
                raise ValueError(
                    f"block {number} of X must have a dtype that can be cast safely to {dtype}, the "
                    f"dtype in which X is written, got {of_x.dtype}"
                )
            of_x = of_x.toarray() if hasattr(of_x, "toarray") else np.asarray(of_x)
            yield of_x.astype(dtype, copy=False), of_y

    store(blocks(), folder, tokenize(X, Y))
    return open_rows(folder)


def _dtype_if_dense(block: Any) -> np.dtype[Any] | None:
    """Return the dtype in which a dense X is written, or None if X is written as sparse rows.

    `block` is the first nonempty block of X. It determines the result.
    """
    if not isinstance(block, np.ndarray) or not mostly_nonzero(block):
        return None
    dtype = block.dtype.newbyteorder("=")
    return dtype if dtype in (np.float16, np.float32, np.float64) else np.dtype(np.float64)
