"""Folders of rows that are written from the blocks of dask arrays.

A dense X is stored in the file ``X.npy``, which is complete if ``rows.json`` exists. The rows of X in the
other files are then empty. The other files are those that `convert` writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from manylabel.aside import written_aside
from manylabel.datasets.rows import open_rows, store
from manylabel.estimator.validation import canonical_csr

__all__ = ["DENSE", "stored_blocks"]

# The file of a dense X.
DENSE = "X.npy"


def stored_blocks(X: Any, Y: Any, folder: Path) -> tuple[Any, csr_array]:
    """Write the blocks of dask arrays to a folder, one after the other, and memory-map X and Y from it.

    Parameters
    ----------
    X, Y : dask.array.Array
        Features and labels. Each block has all columns, and X and Y have the same number of blocks. If more
        than half of the values of the first block of X are nonzero and this block is an ndarray, X is written
        as a dense array, with the dtype of this block. Otherwise it is written as sparse rows.
    folder : Path
        The folder. If a complete call has already written these arrays to it, nothing is written.

    Returns
    -------
    X : csr_array or ndarray, of shape (n_samples, n_features)
        Features. Integers become float64.
    Y : csr_array of shape (n_samples, n_labels), dtype float32
        Labels, as `open_rows` returns them.

    Raises
    ------
    ValueError
        If the blocks do not fit together, if there are none, or if the folder has other data.
    """
    from dask.base import tokenize

    if not hasattr(Y, "to_delayed"):
        raise ValueError(f"`Y` must be a dask array if `X` is a dask array, got {type(Y).__name__}")
    if X.numblocks[1] != 1 or Y.numblocks[1] != 1 or X.numblocks[0] != Y.numblocks[0]:
        raise ValueError(
            "each block of X and Y must have all columns, and X and Y must have the same number of blocks, "
            f"got X.numblocks={X.numblocks} and Y.numblocks={Y.numblocks}"
        )

    def blocks() -> Iterator[tuple[csr_array, csr_array]]:
        (folder / DENSE).unlink(missing_ok=True)
        pairs = zip(X.to_delayed()[:, 0], Y.to_delayed()[:, 0], strict=True)
        with ExitStack() as stack:
            dense = None
            for number, (x, y) in enumerate(pairs):
                of_x, of_y = x.compute(), canonical_csr(y.compute(), "Y")
                of_y.eliminate_zeros()
                if number == 0 and isinstance(of_x, np.ndarray) and 2 * np.count_nonzero(of_x) > of_x.size:
                    dtype = of_x.dtype if of_x.dtype.kind == "f" else np.dtype(np.float64)
                    file = stack.enter_context(written_aside(folder / DENSE, "xb"))
                    dense = _DenseRows(file, X.shape[1], dtype)
                if dense is None:
                    of_x = canonical_csr(of_x, "X")
                    if of_x.dtype not in (np.float32, np.float64):
                        of_x = of_x.astype(np.float64)
                else:
                    dense.append(of_x, number, of_y.shape[0])
                    of_x = csr_array((of_y.shape[0], X.shape[1]), dtype=np.float32)
                yield of_x, of_y
            if dense is not None:
                dense.end()

    store(blocks(), folder, tokenize(X, Y))
    of_x, of_y = open_rows(folder)
    if (folder / DENSE).exists():
        of_x = np.load(folder / DENSE, mmap_mode="r")
    return of_x, of_y


class _DenseRows:
    """A new ``.npy`` file of dense rows. The number of rows is known at the end."""

    def __init__(self, file: IO[bytes], n_columns: int, dtype: np.dtype[Any]) -> None:
        self._file, self._n_columns, self._dtype = file, n_columns, dtype
        self._n_rows = 0
        self._write_header()

    def _write_header(self) -> None:
        """Write the header. numpy pads it, so that it is as long for any number of rows."""
        about = {
            "descr": np.lib.format.dtype_to_descr(self._dtype),
            "fortran_order": False,
            "shape": (self._n_rows, self._n_columns),
        }
        np.lib.format.write_array_header_1_0(self._file, about)

    def append(self, block: Any, number: int, n_rows: int) -> None:
        """Write the block with the given number, which must have `n_rows` rows."""
        found: NDArray[Any] = block.toarray() if hasattr(block, "toarray") else np.asarray(block)
        if found.shape != (n_rows, self._n_columns):
            raise ValueError(
                f"block {number} of X must have the shape {(n_rows, self._n_columns)}, got {found.shape}"
            )
        if not np.can_cast(found.dtype, self._dtype):
            raise ValueError(
                f"block {number} of X must have a dtype that fits in {self._dtype}, got {found.dtype}"
            )
        self._file.write(np.ascontiguousarray(found, dtype=self._dtype).data)
        self._n_rows += n_rows

    def end(self) -> None:
        self._file.seek(0)
        self._write_header()
