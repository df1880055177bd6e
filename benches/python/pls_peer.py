"""The randomized label embedding in numpy and scipy, which is the implementation to compare with.

It is written to be fast without a compiler. Sparse matrices and their transposes are scipy CSR matrices, so
that every product reads rows. Dense algebra is numpy's BLAS on all cores. The names of the sizes are as in
the papers: X is n×d, Y is n×c, and a random test matrix has l columns.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import scipy.linalg
import scipy.sparse as sp

CHOLESKY_UP_TO = 4000  # features
NEGLIGIBLE = 1e-12  # eigenvalues below this fraction of the largest are treated as noise


class RandomizedLabelEmbedding:
    """The randomized label embedding: a range finder with `n_iter` passes, one more application of B, and the
    ridge fit of W.
    """

    def __init__(
        self,
        n_components: int,
        *,
        n_oversamples: int = 20,
        n_iter: int = 1,
        l2: float = 1.0,
        l2_final: float = 1e-6,
        max_iter: int = 10,
        tol: float = 1e-2,
        random_state: int = 0,
        n_threads: int = 1,
    ):
        self.n_components = n_components
        self.n_oversamples = n_oversamples
        self.n_iter = n_iter
        self.l2 = l2
        self.l2_final = l2_final
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.n_threads = n_threads

    def fit(self, X: sp.csr_matrix, Y: sp.csr_matrix) -> "RandomizedLabelEmbedding":
        normal = NormalEquations(X, self.max_iter, self.tol, self.n_threads)
        times_y, times_yt = product(Y, self.n_threads), product(Y.T.tocsr(), self.n_threads)
        ridge = self.l2 * normal.mean_diagonal

        width = min(X.shape[1], Y.shape[1], self.n_components + self.n_oversamples)
        rng = np.random.default_rng(self.random_state)
        Q = rng.standard_normal((Y.shape[1], width), dtype=np.float32)
        for left in reversed(range(self.n_iter + 1)):
            Z = normal.solve(normal.times_xt(times_y(Q)), ridge)
            T = times_yt(normal.times_x(Z))
            if left:
                Q, _ = orthonormal(T)

        U, squares = orthonormal(T, self.n_components)
        W = normal.solve(normal.times_xt(times_y(U)), self.l2_final * ridge)
        signs = np.sign(np.take_along_axis(U, np.abs(U).argmax(axis=0)[None], axis=0))
        self.label_embedding_, self.coef_ = U * signs, W * signs
        self.eigenvalues_ = np.sqrt(squares)
        self.n_iter_ = normal.n_iter
        return self

    def transform(self, X: sp.csr_matrix) -> np.ndarray:
        return product(X, self.n_threads)(self.coef_)


def orthonormal(T: np.ndarray, n_columns: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return the leading left singular vectors of a tall matrix T, and the squares of its singular values."""
    wide = T.astype(np.float64)
    squares, V = np.linalg.eigh(wide.T @ wide)
    # The result is empty if T has no columns or only zeros. This can happen after one step of conjugate
    # gradients.
    kept = np.flatnonzero(squares > NEGLIGIBLE * squares.max(initial=0))[::-1][:n_columns]
    return T @ (V[:, kept] / np.sqrt(squares[kept])).astype(T.dtype), squares[kept]


class NormalEquations:
    """Solver for (XᵀX + ridge I) Z = R, for all columns at once. It uses Cholesky, or conjugate gradients if
    there are many features.
    """

    def __init__(self, X: sp.csr_matrix, max_iter: int, tol: float, n_threads: int):
        transposed = X.T.tocsr()
        self.times_x, self.times_xt = product(X, n_threads), product(transposed, n_threads)
        self.max_iter = max_iter
        self.tol = tol
        self.diagonal = np.asarray(transposed.multiply(transposed).sum(axis=1)).ravel()
        self.mean_diagonal = float(self.diagonal.mean(dtype=np.float64))
        self.n_iter = 1  # number of steps of the solution that takes longest
        self.gram = None
        if X.shape[1] <= CHOLESKY_UP_TO:
            wide = X.astype(np.float64)
            self.gram = (wide.T @ wide).toarray()

    def solve(self, R: np.ndarray, ridge: float) -> np.ndarray:
        if self.gram is not None:
            ridged = self.gram + ridge * np.eye(len(self.gram))
            return scipy.linalg.solve(ridged, R, assume_a="pos", overwrite_a=True).astype(R.dtype)
        Z, n_iter = conjugate_gradients(
            lambda P: self.matrix(P, ridge), self.diagonal + ridge, R, self.max_iter, self.tol
        )
        self.n_iter = max(self.n_iter, n_iter)
        return Z

    def matrix(self, P: np.ndarray, ridge: float) -> np.ndarray:
        AP = self.times_xt(self.times_x(P))
        AP += P.dtype.type(ridge) * P
        return AP


def conjugate_gradients(
    matrix: Callable[[np.ndarray], np.ndarray],
    diagonal: np.ndarray,
    R: np.ndarray,
    max_iter: int,
    tol: float,
) -> tuple[np.ndarray, int]:
    """Return the solutions for all columns of R, and the number of iterations.

    The products are computed for all columns together, but each column has its own step length. `diagonal` is
    the preconditioner. The iteration ends when the norm of all residuals together is less than `tol` times
    its initial value. Residuals may temporarily increase, so the best iterate is returned.
    """
    inverse = (1 / diagonal).astype(R.dtype)[:, None]
    tiny = np.finfo(R.dtype).tiny
    Z, residual = np.zeros_like(R), R.copy()
    P = inverse * residual
    rho = by_column(residual, P)
    best, at = None, squares(residual)  # None means that Z itself is the best iterate so far
    goal = tol**2 * at
    for iteration in range(max_iter):
        if at < goal or at == 0:
            return (Z if best is None else best), iteration
        AP = matrix(P)
        step = rho / np.maximum(by_column(P, AP), tiny)
        AP *= step
        residual -= AP
        now = squares(residual)
        if now >= at and best is None:
            best = Z.copy()
        Z += step * P
        if now < at:
            best, at = None, now
        preconditioned = inverse * residual
        rho, before = by_column(residual, preconditioned), rho
        P *= rho / np.maximum(before, tiny)
        P += preconditioned
    return (Z if best is None else best), max_iter


def by_column(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    return np.einsum("ij,ij->j", A, B)


def squares(A: np.ndarray) -> float:
    return float(np.vdot(A, A))


def product(matrix: sp.csr_matrix, n_threads: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return the function D -> matrix @ D. scipy uses one thread and releases the interpreter lock, so
    several threads can each compute some of the rows.
    """
    if n_threads == 1:
        return lambda D: matrix @ D
    shares = np.linspace(0, matrix.nnz, n_threads + 1)
    bounds = np.searchsorted(matrix.indptr, shares)
    bounds[-1] = matrix.shape[0]
    blocks = [rows_between(matrix, lo, hi) for lo, hi in pairwise(bounds)]

    pool = ThreadPoolExecutor(n_threads)

    def times(D: np.ndarray) -> np.ndarray:
        out = np.empty((matrix.shape[0], D.shape[1]), D.dtype)

        def one(block: int):
            out[bounds[block] : bounds[block + 1]] = blocks[block] @ D

        list(pool.map(one, range(n_threads)))
        return out

    return times


def rows_between(matrix: sp.csr_matrix, lo: int, hi: int) -> sp.csr_matrix:
    """Return rows lo to hi without copying them. Indexing would copy them."""
    begin, end = matrix.indptr[lo], matrix.indptr[hi]
    parts = matrix.data[begin:end], matrix.indices[begin:end], matrix.indptr[lo : hi + 1] - begin
    return sp.csr_matrix(parts, shape=(hi - lo, matrix.shape[1]), copy=False)
