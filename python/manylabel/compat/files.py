"""Functions for the modules that read models of other programs.

The functions read arrays from files, and check the models that these modules build from the arrays.

Errors about malformed files are ValueErrors that name the file.
"""

from __future__ import annotations

import errno
import lzma
import math
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tokenize import TokenError
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, load_npz

__all__ = ["checked_model", "mapped_npy", "read_csc"]

Model = TypeVar("Model")

# What NumPy, SciPy and the modules for ZIP files raise for malformed files.
_MALFORMED = (
    *(ArithmeticError, AttributeError, EOFError, LookupError, RuntimeError, TypeError, ValueError),
    *(SyntaxError, TokenError, lzma.LZMAError, zipfile.BadZipFile, zlib.error),
)

# They also raise an OSError without a number for a damaged stream, and one with the following number for an
# offset that is no position in the file.
_NO_POSITION = errno.EINVAL


@contextmanager
def _naming(path: Path, wanted: str) -> Iterator[None]:
    try:
        yield
    except (*_MALFORMED, OSError) as error:
        if isinstance(error, OSError) and error.errno not in (None, _NO_POSITION):
            raise
        raise ValueError(f"{path}: expected {wanted} ({type(error).__name__}: {error})") from error


def mapped_npy(path: Path) -> NDArray[Any]:
    """Map an array in NPY format into memory.

    If the header states a larger array than the file contains, the function raises an error and allocates no
    memory.
    """
    with _naming(path, "an array in NPY format"):
        array: NDArray[Any] = np.lib.format.open_memmap(path, mode="r")
    return array


def read_csc(path: Path) -> csc_array:
    """Read a sparse matrix that ``scipy.sparse.save_npz`` has written, and check its indices."""
    with _naming(path, "a sparse matrix in NPZ format"):
        _check_sizes(path)
        matrix: Any = load_npz(path)
        if hasattr(matrix, "check_format"):
            matrix.check_format()
        return csc_array(matrix)


def _check_sizes(path: Path) -> None:
    """Raise an error if a header in an NPZ file describes a larger array than the file contains.

    The check allocates no memory for the arrays.
    """
    headers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    with zipfile.ZipFile(path) as archive:
        for part in archive.infolist():
            with archive.open(part) as file:
                shape, _, dtype = headers[np.lib.format.read_magic(file)](file)
            n_bytes = math.prod(shape) * dtype.itemsize
            if n_bytes > part.file_size:
                raise ValueError(
                    f"{part.filename} has {part.file_size} bytes, but its header describes an array of "
                    f"{n_bytes} bytes"
                )


def checked_model(model: Model, source: object) -> Model:
    """Check the fitted attributes of a model, as `manylabel.save` does, and return the model.

    `source` names the files in error messages.
    """
    cls: Any = type(model)
    try:
        cls.schema.check(model)
    except ValueError as error:
        raise ValueError(f"{source}: expected a model with valid values ({error})") from error
    return model
