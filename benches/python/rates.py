"""Measure the best rates that the machine reaches at the moment, to compare other figures with."""

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

SIDE = 4096  # size of the matrices that are multiplied
COPIED = 512 * 2**20  # bytes that each thread copies, more than any cache holds


def best_seconds(call, n_repeats: int = 3) -> float:
    seconds = []
    for _ in range(n_repeats):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def gemm_rate() -> float:
    """Return the floating-point operations per second of numpy's float32 matrix product, on all threads of
    its BLAS.
    """
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((2, SIDE, SIDE), dtype=np.float32)
    out = np.empty_like(A)
    return 2 * SIDE**3 / best_seconds(lambda: np.matmul(A, B, out=out))


def copy_rate(n_threads: int) -> float:
    """Return the bytes per second that `n_threads` threads read and write when they copy arrays."""
    pairs = [(np.ones(COPIED // 8), np.ones(COPIED // 8)) for _ in range(n_threads)]
    with ThreadPoolExecutor(n_threads) as pool:
        seconds = best_seconds(lambda: list(pool.map(lambda pair: np.copyto(*pair), pairs)))
    return 2 * COPIED * n_threads / seconds


def rates(n_threads: int) -> tuple[float, float, str]:
    """Return both rates, and a sentence that states them."""
    gemm, copy = gemm_rate(), copy_rate(n_threads)
    text = (
        f"Beside it, {n_threads} threads: float32 matrix product {gemm / 1e9:.0f} GFLOP/s,"
        f" copy {copy / 1e9:.1f} GB/s (read and written)."
    )
    return gemm, copy, text
