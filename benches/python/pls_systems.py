"""The label embeddings that are measured, and the files that contain their data.

The systems are our label embedding and a numpy implementation. Both take the same settings with the same
names. A CSR matrix is stored as three plain files. Blocks of rows can be appended to these files as they are
made. A process can read the files without a second copy in memory.
"""

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from systems import System


def append_csr(folder: Path, name: str, block: sp.csr_matrix):
    """Append rows to the matrix called `name`. The first call creates the matrix."""
    parts = {"counts": np.diff(block.indptr).astype(np.int32)}
    parts |= {"indices": block.indices.astype(np.int32), "data": block.data.astype(np.float32)}
    for part, array in parts.items():
        with (folder / f"{name}.{part}").open("ab") as file:
            array.tofile(file)
    (folder / f"{name}.columns").write_text(str(block.shape[1]))


def read_csr(folder: Path, name: str) -> sp.csr_matrix:
    counts = np.fromfile(folder / f"{name}.counts", np.int32)
    indptr = np.zeros(len(counts) + 1, np.int32)  # this machine cannot hold 2^31 entries
    np.cumsum(counts, out=indptr[1:])
    indices = np.fromfile(folder / f"{name}.indices", np.int32)
    data = np.fromfile(folder / f"{name}.data", np.float32)
    shape = len(counts), int((folder / f"{name}.columns").read_text())
    return sp.csr_matrix((data, indices, indptr), shape=shape, copy=False)


class LabelEmbedding(System):
    """Protocol of a model with ``label_embedding_`` and ``transform``."""

    def __init__(self, n_threads: int, settings: dict[str, Any]):
        super().__init__(n_threads)
        self.settings = settings

    def read(self, data, scratch):
        return read_csr(data, "X"), read_csr(data, "Y")

    def fit(self, X, Y):
        self.model.fit(X, Y)

    def transform(self, X) -> np.ndarray:
        return self.model.transform(X)

    def set_coef(self, W: np.ndarray):
        """Use W for projections from now on. The time of `transform` does not depend on the values of W."""
        self.model.coef_ = W

    def n_iter(self) -> int:
        """Return the number of steps of the solution that took longest."""
        return int(self.model.n_iter_)


class Ours(LabelEmbedding):
    title = "manylabel Rembrandt"

    def __init__(self, n_threads, settings):
        super().__init__(n_threads, settings)
        from manylabel import Rembrandt

        # The numpy implementation has no column of ones either.
        self.model = Rembrandt(fit_intercept=False, n_jobs=n_threads, **settings)

    def set_coef(self, W):
        super().set_coef(W)
        self.model.intercept_ = np.zeros(W.shape[1], W.dtype)


class Numpy(LabelEmbedding):
    title = "numpy and scipy"
    threads_of_products = False  # scipy computes products on one thread

    def __init__(self, n_threads, settings):
        super().__init__(n_threads, settings)
        from pls_peer import RandomizedLabelEmbedding

        n_products = n_threads if self.threads_of_products else 1
        self.model = RandomizedLabelEmbedding(n_threads=n_products, **settings)


class NumpyThreads(Numpy):
    title = "numpy and scipy, rows of products shared among threads"
    threads_of_products = True


SYSTEMS: dict[str, type[LabelEmbedding]] = {
    "manylabel": Ours,
    "numpy": Numpy,
    "numpy-threads": NumpyThreads,
}
