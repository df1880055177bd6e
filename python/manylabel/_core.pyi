from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

__all__ = ["read_arff", "read_xc", "write_xc"]

# indptr, indices, data
_Csr: TypeAlias = tuple[NDArray[np.integer[Any]], NDArray[np.integer[Any]], NDArray[Any]]

def read_arff(
    path: str, xml: str | None, *, ignore: list[str], missing_is_absent: bool, double: bool
) -> tuple[NDArray[Any] | _Csr, _Csr, list[str], list[str]]: ...
def read_xc(path: str, *, double: bool, n_threads: int) -> tuple[tuple[int, int, int], _Csr, _Csr]: ...
def write_xc(path: str, x: csr_array, y: csr_array) -> None: ...
