"""What the machine does at best at this hour: the rates other figures are to be seen beside."""

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

SIDE = 4096  # of the matrices multiplied
COPIED = 512 * 2**20  # bytes a thread copies, beyond any cache


def best_seconds(call, n_repeats: int = 3) -> float:
    seconds = []
    for _ in range(n_repeats):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def gemm_rate() -> float:
    """Floating-point operations a second of numpy's float32 matrix product, on the threads of its BLAS."""
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((2, SIDE, SIDE), dtype=np.float32)
    out = np.empty_like(A)
    return 2 * SIDE**3 / best_seconds(lambda: np.matmul(A, B, out=out))


def copy_rate(n_threads: int) -> float:
    """Bytes a second, those read and those written, of `n_threads` threads that copy arrays."""
    pairs = [(np.ones(COPIED // 8), np.ones(COPIED // 8)) for _ in range(n_threads)]
    with ThreadPoolExecutor(n_threads) as pool:
        seconds = best_seconds(lambda: list(pool.map(lambda pair: np.copyto(*pair), pairs)))
    return 2 * COPIED * n_threads / seconds


def rates(n_threads: int) -> tuple[float, float, str]:
    """Both, and a sentence that says them."""
    gemm, copy = gemm_rate(), copy_rate(n_threads)
    text = (
        f"Beside it, {n_threads} threads: float32 matrix product {gemm / 1e9:.0f} GFLOP/s,"
        f" copy {copy / 1e9:.1f} GB/s (read and written)."
    )
    return gemm, copy, text
