import numpy as np
from numpy.typing import NDArray

__all__ = ["crc32"]

def crc32(data: NDArray[np.uint8], start: int = 0) -> int: ...
