"""A limit on the memory of the process."""

from __future__ import annotations

import os
import re
import tempfile
from types import TracebackType
from typing import Any

import numpy as np

from manylabel import _core

__all__ = ["as_bytes", "memory_limit"]

_UNITS = {
    "": 1,
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", start=1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", start=1)},
}


class memory_limit:  # noqa: N801  used like a function, and in `with` statements
    """Limit the memory that this process may use.

    If a fit or another computation would exceed the limit, it raises a MemoryError that states the limit and
    the memory in use. The limit applies as soon as `memory_limit` is called. If it is called in a ``with``
    statement, the previous limit applies again after the block.

    Parameters
    ----------
    limit : int, str or None
        The largest amount of private memory that the process may use (see Notes). It is a number of bytes, or
        a string such as "8GB" or "8GiB"; 1 GB is 10⁹ bytes, and 1 GiB is 2³⁰ bytes. None removes the limit.
    spill : str, path or None, default=None
        A folder for a temporary file, which is memory-mapped. Only Linux supports this. The Rust core puts
        each new array of at least 128 KiB into the file if more than half of the limit would otherwise be in
        use. Arrays in the file do not count towards the limit. With None, this call creates no file, but the
        file of an earlier call stays in use until the ``with`` block of that call ends.

    Raises
    ------
    ValueError
        If `limit` is not an amount from 1 to 2**62 - 1 bytes, or if it is None although `spill` is given.
    TypeError
        If `limit` is not an int, a str or None.
    OSError
        With `spill`, if the folder does not exist, if the temporary file cannot be created in the folder, or
        if the system is not Linux.

    See Also
    --------
    manylabel.shards.fit : Fit a model piece by piece, which needs less memory.

    Notes
    -----
    Private memory is all memory of the process, except memory-mapped files and shared memory. For example,
    the arrays of `manylabel.datasets.open_rows` are memory-mapped, so they do not count towards the limit.
    The Rust core compares each large allocation with the limit before it allocates. On Linux, the memory of
    Python and numpy also counts. The core asks Linux for the size of the private memory when a computation
    begins, then 20 times per second, and before it refuses an allocation. Other operating systems do not
    report the private memory, so only the memory of the core counts there.

    With `spill`, a fit can work on data that are larger than memory. The results are the same as without a
    limit. The operating system writes the pages of the file to the disk if memory is short, and reads them
    again when they are needed. `DiSMECClassifier`, `LabelTreeClassifier` and `Rembrandt` read and write the
    file sequentially, which is fast. The fits of other estimators may become much slower. If the parameter
    `normalize` of an estimator scales columns, the scaled X is kept in memory, not in the file, so the limit
    must be large enough for it. Use a folder on a fast local disk, not on a file system in memory. The file
    needs as much space as the arrays in it. If the disk is full, the fit raises a MemoryError. The file has
    no name, so it does not appear in the folder. It is deleted at the end of the ``with`` block, or when the
    process ends.

    On Linux, the C library glibc does not return all freed memory to the system. The freed memory that glibc
    keeps counts towards the limit. By default, glibc keeps up to 64 MiB for each of its heaps. The first call
    of `memory_limit` that sets a limit reduces this amount to a few MiB per heap. The reduction lasts until
    the process ends, even if the limit is removed, and may make the process slightly slower. Memory that was
    freed before this first call may still count, so set the limit before the first fit. Blocks of more than
    4 MiB that the Rust core allocates always return to the system when they are freed.

    The limit cannot stop copies of X or Y that numpy and scipy make before the Rust core starts. The limit
    applies to the process as a whole, not to each thread. A child process that is started with fork has a
    separate limit of the same size. This limit applies to the private memory of the child process, including
    the memory that it inherits from its parent. Child processes that are started in another way have no
    limit.

    Examples
    --------
    >>> import manylabel as ml
    >>> X, Y = ml.datasets.make_multilabel(200, 50, 10, random_state=0)
    >>> with ml.memory_limit("8GB"):
    ...     model = ml.DiSMECClassifier(random_state=0).fit(X, Y)
    """

    def __init__(self, limit: int | str | None, *, spill: str | os.PathLike[str] | None = None) -> None:
        if limit is None and spill is not None:
            raise ValueError("`limit` must be an amount of memory if `spill` is a folder, got None")
        bytes_ = None if limit is None else as_bytes(limit, "limit")
        self._spills = spill is not None
        if spill is not None:
            os.listdir(spill)  # raises an error that names the folder if there is no such folder
            with tempfile.TemporaryFile(dir=spill) as file:
                _core.open_spill(file.fileno())
        self._before = _core.set_memory_limit(bytes_)

    def __enter__(self) -> memory_limit:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _core.set_memory_limit(self._before)
        if self._spills:
            _core.close_spill()
            self._spills = False


def as_bytes(amount: Any, name: str) -> int:
    """Return an amount of memory, such as "8GB", as a number of bytes."""
    if isinstance(amount, str):
        found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", amount)
        unit = None if found is None else _UNITS.get(found[2].lower())
        if found is None or unit is None:
            raise ValueError(f'`{name}` must be an amount of memory such as "8GB", got {amount!r}')
        if not 1 <= float(found[1]) * unit < 2**62:
            raise ValueError(f"`{name}` must be from 1 to 2**62 - 1 bytes, got {amount!r}")
        return int(float(found[1]) * unit)
    if isinstance(amount, bool) or not isinstance(amount, int | np.integer):
        raise TypeError(f'`{name}` must be an int or a str such as "8GB", got {type(amount).__name__}')
    if not 1 <= amount < 2**62:
        raise ValueError(f"`{name}` must be from 1 to 2**62 - 1 bytes, got {amount}")
    return int(amount)
