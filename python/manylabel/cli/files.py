"""Files that the command line reads and writes: matrices, tables of texts, and results."""

from __future__ import annotations

import errno
import os
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from scipy.sparse import csr_array

from manylabel.cli.messages import UsageError
from manylabel.datasets import load_arff, load_xc, open_rows
from manylabel.persistence import written_aside

__all__ = ["check_width", "output_path", "read_matrices", "writing"]


def read_matrices(path: str, arguments: Namespace) -> tuple[Any, csr_array]:
    """Read the matrices X and Y of a data file."""
    if path.lower().endswith((".arff", ".arff.gz")):
        return load_arff(path, arguments.xml)
    if arguments.xml is not None:
        raise UsageError(f"--xml: the data file must be an ARFF file, got {path}")
    if os.path.isdir(path):
        return open_rows(path)
    return load_xc(path, n_jobs=arguments.jobs)


def check_width(matrix: Any, width: int, what: str, path: str) -> None:
    """Raise an error if a data file and the model have different numbers of features or labels."""
    found = matrix.shape[1]
    if found != width:
        raise ValueError(f"{path}: expected {width:,} {what} as in the model, got {found:,}")


def output_path(path: str) -> Path:
    """Resolve the symbolic links of an output path, and check that a file can be written there."""
    real = Path(os.path.realpath(path))
    if real.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not real.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(real.parent))
    if real.exists() and not real.is_file():
        # The rename would replace a device or a pipe by a regular file.
        raise ValueError(f"{path}: expected a regular file, got a device or a pipe")
    if not os.access(real.parent, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
    return real


@contextmanager
def writing(path: Path | None) -> Iterator[IO[str]]:
    """Open the output file, or stdout if `path` is None.

    The file appears at `path` only when it is complete.
    """
    if path is None:
        yield sys.stdout
        return
    with written_aside(path, "x", encoding="utf-8", newline="\n") as file:
        yield file
