"""Functions that read data files batch by batch, so that files may be larger than memory.

A batch is a range of rows. Every batch has a position: the place in the file where the batch ends. Reading
can continue there later. A position is a list of numbers, whose meaning depends on the format of the file.
"""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from manylabel import _core
from manylabel.datasets.files import load_arff, with_unknown

__all__ = ["FORMATS", "Batch", "Columns", "MissingLabels", "Source", "format_of", "open_source"]

FORMATS = ("xc", "svmlight", "arff", "parquet", "arrow")

# The formats of the usual file name extensions. All other files have the format "xc".
_EXTENSIONS = {
    ".arff": "arff",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".svm": "svmlight",
    ".svmlight": "svmlight",
    ".libsvm": "svmlight",
}

# Number of bytes of text that all threads together parse at a time.
_TEXT = 16 << 20
# Number of bytes that are reserved before each block, for the beginning of the first line of the block.
_ROOM = 1 << 20
# The length of a line is limited as in `load_xc`.
_LONGEST_LINE = 256 << 20
# Number of rows of a Parquet or Arrow file that are read at a time.
_ROWS = 1 << 14
# Column numbers must be below this limit, because they are stored as int32.
_MOST_COLUMNS = 2**31 - 2

_HEADER = re.compile(rb"[ \t]*(\d{1,18})[ \t]+(\d{1,18})[ \t]+(\d{1,18})[ \t\r]*")

Columns = tuple[str, str, str]
MissingLabels = Literal["error", "absent", "unknown"]
_Positions = tuple[NDArray[np.int64], NDArray[np.int32]]
T = TypeVar("T")


class Batch(NamedTuple):
    """Consecutive rows of X and Y."""

    #: The array indptr of X in CSR format; shape (n_rows + 1,), dtype int64.
    x_ends: NDArray[np.int64]
    #: Columns of the stored values of X, sorted within each row; dtype int32.
    x_columns: NDArray[np.int32]
    #: Stored values of X; dtype float32.
    x_values: NDArray[np.float32]
    #: The array indptr of Y in CSR format; shape (n_rows + 1,), dtype int64.
    y_ends: NDArray[np.int64]
    #: Labels of the rows, sorted within each row; dtype int32.
    y_columns: NDArray[np.int32]
    #: 1 for each label that a row has, and NaN for each unknown label; dtype float32.
    y_values: NDArray[np.float32]
    #: The position after the batch.
    position: list[int]
    #: Minimum numbers of features and labels of the data set. 0 means that there is no minimum.
    widths: tuple[int, int] = (0, 0)


class Source(NamedTuple):
    """An open data file."""

    #: Numbers of features and labels, or None if the file does not state them.
    shape: tuple[int | None, int | None]
    #: Function that takes a position and yields the batches from there on. None means the beginning.
    batches: Any


def format_of(path: Path) -> str:
    """Return the format of a file, which is determined by the extension of its name."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    return _EXTENSIONS.get(suffixes[-1], "xc") if suffixes else "xc"


def open_source(
    path: Path,
    form: str,
    *,
    xml: Path | None,
    missing_labels: MissingLabels,
    zero_based: bool,
    columns: Columns,
    threads: int,
) -> Source:
    """Open a data file.

    Parameters
    ----------
    path : Path
        The file.
    form : str
        The format, one of `FORMATS`.
    xml : Path or None
        The file that lists the labels of an ARFF file.
    missing_labels : {"error", "absent", "unknown"}
        What to do if the value of a label of an ARFF file is missing.
    zero_based : bool
        Whether the features of an svmlight file are numbered from 0.
    columns : tuple of three str
        Names of the three columns that are read from a Parquet or Arrow file: the column of feature indices,
        the column of feature values and the column of label indices, in this order.
    threads : int
        Number of threads.

    Returns
    -------
    Source
        The numbers of features and labels, and a function that yields the batches.
    """
    if form == "xc":
        with _opened(path) as file:
            shape, _ = _header(path, file)
        return Source(shape[1:], lambda at: _xc(path, at, threads))
    if form == "svmlight":
        return Source((None, None), lambda at: _svmlight(path, at, zero_based, threads))
    if form == "arff":
        return Source((None, None), lambda at: _arff(path, at, xml, missing_labels))
    return Source((None, None), lambda at: _tables(path, at, form, columns))


def _opened(path: Path) -> BinaryIO:
    """Open a text file, which may be compressed with gzip."""
    file: BinaryIO = open(path, "rb", buffering=0)  # noqa: SIM115  the caller closes it
    try:
        packed = os.pread(file.fileno(), 2, 0) == b"\x1f\x8b" if hasattr(os, "pread") else _is_packed(file)
        if not packed:
            return file
    except OSError:
        file.close()
        raise
    file.close()
    return gzip.open(path, "rb")  # type: ignore[return-value]


def _is_packed(file: BinaryIO) -> bool:
    start = file.read(2)
    file.seek(0)
    return start == b"\x1f\x8b"


def _fault(path: Path, line: int, expected: str, got: str) -> ValueError:
    return ValueError(f"{path}, line {line}: expected {expected}, got {got}")


def _header(path: Path, file: BinaryIO) -> tuple[tuple[int, int, int], int]:
    """Read the first line of a file in the format of the Extreme Classification Repository.

    Return the numbers of rows, features and labels in this line, and the length of the line in bytes.
    """
    line = b""
    while b"\n" not in line and len(line) < 4096 and (more := _guarded(path, 1, lambda: file.read(4096))):
        line += more
    end = line.find(b"\n")
    words = _HEADER.fullmatch(line[: max(end, 0)].removeprefix(b"\xef\xbb\xbf"))
    if words is None:
        text = line.split(b"\n")[0][:40].decode(errors="replace").strip()
        got = f"`{text}`" if line else "an empty file"
        raise _fault(path, 1, "the numbers of examples, features and labels, as in `100 5000 20`", got)
    n, d, m = map(int, words.groups())
    if max(d, m) > _MOST_COLUMNS:
        raise ValueError(
            f"{path}: at most {_MOST_COLUMNS:,} features and at most {_MOST_COLUMNS:,} labels are supported, "
            f"got {d} features and {m} labels"
        )
    return (n, d, m), end + 1


def _guarded(path: Path, line: int, read: Callable[[], T]) -> T:
    """Call `read`. If the gzip stream is damaged, raise a ValueError that states the file and the line."""
    try:
        return read()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise _fault(path, line, "a valid gzip stream", f"a damaged gzip stream ({error})") from None


def _xc(path: Path, at: list[int] | None, threads: int) -> Iterator[Batch]:
    with _opened(path) as file:
        (n_rows, d, m), length = _header(path, file)
        offset, line, done = at or (length, 2, 0)
        lines = _Lines(path, file, offset, line)
        for text in lines:
            before = (done, lines.line)
            x, y, unknown = _core.parse_xc(str(path), text, before, (n_rows, d, m), n_threads=threads)
            done += lines.count(x[0])
            yield Batch(*x, *_labels(y, unknown, m), position=[lines.offset, lines.line, done])
        if done < n_rows:
            got = f"the end of the file after {done} examples"
            raise _fault(path, done + 2, f"{n_rows} examples, as line 1 states", got)


def _svmlight(path: Path, at: list[int] | None, zero_based: bool, threads: int) -> Iterator[Batch]:
    limits = (2**62, _MOST_COLUMNS + (not zero_based), _MOST_COLUMNS)
    with _opened(path) as file:
        lines = _Lines(path, file, *(at or (0, 1)))
        for text in lines:
            x, y, unknown = _core.parse_xc(str(path), text, (0, lines.line), limits, n_threads=threads)
            x_ends, columns, values = x
            if not zero_based and len(columns):
                if columns.min() == 0:
                    row = int(np.searchsorted(x_ends, np.argmin(columns), side="right")) - 1
                    wanted = "features numbered from 1 (`zero_based=True` reads features numbered from 0)"
                    raise _fault(path, lines.line + row, wanted, "feature 0")
                columns -= 1
            lines.count(x_ends)
            of_labels = _labels(y, unknown, _MOST_COLUMNS)
            yield Batch(x_ends, columns, values, *of_labels, position=[lines.offset, lines.line])


def _labels(
    ones: _Positions, unknown: _Positions, n_labels: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
    """Return the CSR arrays indptr, indices and data of rows of Y.

    The rows store the entries at the positions `ones` and `unknown`. The values in data are 1, or NaN for
    unknown entries.
    """
    ends, labels = ones
    if not len(unknown[1]):
        return ends, labels, np.ones(len(labels), np.float32)
    Y = csr_array((np.ones(len(labels), np.float32), labels, ends), shape=(len(ends) - 1, n_labels))
    Y = with_unknown(Y, unknown)
    return Y.indptr.astype(np.int64), Y.indices.astype(np.int32), Y.data


class _Lines:
    """Iterator over blocks of complete lines of a file. Empty lines at the end of the file are left out.

    While the caller processes a block, the next block is read. The caller must call `count` after every
    block. The block that was yielded most recently is called the current block.

    Attributes
    ----------
    offset : int
        Number of bytes of uncompressed text from the start of the file to the end of the current block.
    line : int
        The number of the first line of the current block, counted from 1. After a call of `count`, `line` is
        the number of the first line of the next block.
    """

    def __init__(self, path: Path, file: BinaryIO, offset: int, line: int) -> None:
        self._path, self._file = path, file
        self.offset, self.line = offset, line
        file.seek(offset)

    def count(self, ends: NDArray[np.int64]) -> int:
        """Return the number of rows of the current block, and add it to `line`.

        Each line of the block is one row. `ends` is the array indptr of these rows in CSR format.
        """
        self.line += len(ends) - 1
        return len(ends) - 1

    def __iter__(self) -> Iterator[NDArray[np.uint8]]:
        # The beginning of a line that continues in the next block is copied to the bytes before this block.
        buffers = [bytearray(_ROOM + _TEXT) for _ in range(2)]
        carry = b""
        with ThreadPoolExecutor(1) as reader:
            ahead = reader.submit(self._read, buffers[0])
            while True:
                n_read = ahead.result()
                text: bytes | bytearray = buffers[0]
                begin, end = _ROOM - len(carry), _ROOM + n_read
                if begin >= 0:
                    buffers[0][begin:_ROOM] = carry
                else:
                    text, begin, end = carry + text[_ROOM:end], 0, len(carry) + n_read
                buffers.reverse()
                if n_read:
                    ahead = reader.submit(self._read, buffers[0])
                # The last line and the empty lines after it are left for the next block.
                last = end
                while last > begin and text[last - 1] in b"\r\n":
                    last -= 1
                stop = max(text.rfind(b"\n", begin, last) + 1, begin) if n_read else last
                carry = bytes(text[stop:end])
                if len(carry) > _LONGEST_LINE:
                    raise _fault(
                        self._path, self.line, f"lines of at most {_LONGEST_LINE} bytes", "a longer line"
                    )
                if stop > begin:
                    self.offset += stop - begin
                    block = memoryview(text)[begin:stop]
                    yield np.frombuffer(block if n_read else bytes(block) + b"\n", dtype=np.uint8)
                if not n_read:
                    return

    def _read(self, buffer: bytearray) -> int:
        """Fill the buffer from index `_ROOM` on, and return the number of bytes that were read."""
        filled = _ROOM
        with memoryview(buffer) as view:
            while filled < len(buffer):
                got = self._read_some(view[filled:])
                if not got:
                    break
                filled += got
        return filled - _ROOM

    def _read_some(self, into: memoryview) -> int:
        file: Any = self._file
        return _guarded(self._path, self.line, lambda: int(file.readinto(into) or 0))


def _arff(
    path: Path, at: list[int] | None, xml: Path | None, missing_labels: MissingLabels
) -> Iterator[Batch]:
    if at is None:
        X, Y = load_arff(path, xml, missing_labels=missing_labels)
        rows = csr_array(X)
        yield _batch(rows, csr_array(Y), [1])._replace(widths=(X.shape[1], Y.shape[1]))


def _batch(X: csr_array, Y: csr_array, position: list[int]) -> Batch:
    return Batch(
        X.indptr.astype(np.int64),
        X.indices.astype(np.int32),
        X.data.astype(np.float32),
        Y.indptr.astype(np.int64),
        Y.indices.astype(np.int32),
        Y.data.astype(np.float32),
        position,
    )


def _tables(path: Path, at: list[int] | None, form: str, columns: Columns) -> Iterator[Batch]:
    try:
        import pyarrow
        from pyarrow import ipc, parquet
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            f"{path}: reading Parquet and Arrow files needs pyarrow; run: pip install 'manylabel[arrow]'"
        ) from None
    done = at[0] if at else 0
    try:
        if form == "parquet":
            file = parquet.ParquetFile(path)
            names = file.schema_arrow.names
            tables = file.iter_batches(batch_size=_ROWS, columns=[name for name in columns if name in names])
        else:
            file = ipc.open_file(pyarrow.memory_map(str(path)))
            names = file.schema.names
            tables = (
                whole.slice(first, _ROWS)
                for whole in (file.get_batch(i) for i in range(file.num_record_batches))
                for first in range(0, whole.num_rows, _ROWS)
            )
        missing = [name for name in columns if name not in names]
        if missing:
            raise ValueError(f"{path}: expected the columns {list(columns)}, got {names}")
        for number, table in enumerate(tables, 1):
            if number > done:
                yield _of_table(path, table, columns, number)
    except pyarrow.ArrowInvalid as error:
        raise ValueError(f"{path}: {error}") from None


def _of_table(path: Path, table: Any, columns: Columns, number: int) -> Batch:
    features, values, labels = columns
    x_ends, x_columns = _list(path, table, features, "integers")
    value_ends, x_values = _list(path, table, values, "numbers")
    y_ends, y_columns = _list(path, table, labels, "integers")
    if not np.array_equal(x_ends, value_ends):
        row = int(np.argmax(x_ends != value_ends)) - 1
        expected = f"{x_ends[row + 1] - x_ends[row]} entries in `{values}` as in `{features}`"
        got = value_ends[row + 1] - value_ends[row]
        raise ValueError(
            f"{path}: row {row} (counted from 0) of batch {number} (counted from 1): "
            f"expected {expected}, got {got}"
        )
    with np.errstate(over="ignore"):
        x_values = x_values.astype(np.float32)
    finite = np.isfinite(x_values)
    if not finite.all():
        raise ValueError(
            f"{path}: `{values}` must be finite in float32 (at most 3.4e38 in absolute value), "
            f"got {x_values[~finite][0]}"
        )
    for name, found in ((features, x_columns), (labels, y_columns)):
        if len(found) and not 0 <= found.min() <= found.max() < _MOST_COLUMNS:
            raise ValueError(
                f"{path}: values of `{name}` must be from 0 to {_MOST_COLUMNS - 1}, "
                f"got {found.min()} to {found.max()}"
            )
    shape = (len(x_ends) - 1, _MOST_COLUMNS)
    X = csr_array((x_values, x_columns.astype(np.int32), x_ends), shape=shape)
    Y = csr_array((np.ones(len(y_columns), np.float32), y_columns.astype(np.int32), y_ends), shape=shape)
    X.sort_indices()
    if not X.has_canonical_format:
        raise ValueError(
            f"{path}: batch {number} of rows: expected each feature at most once per row, got a feature twice"
        )
    X.eliminate_zeros()
    Y.sum_duplicates()
    Y.data[:] = 1
    return _batch(X, Y, [number])


def _list(path: Path, table: Any, name: str, kind: str) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return the lists in a column as two arrays: the offsets, like indptr in CSR format, and the items."""
    column = table.column(name)
    wanted = "iu" if kind == "integers" else "iuf"
    if not hasattr(column, "offsets"):
        raise ValueError(f"{path}: `{name}` must be a column of lists of {kind}, got {column.type}")
    n_nulls = column.null_count + column.flatten().null_count
    if n_nulls:
        raise ValueError(f"{path}: `{name}` must not have nulls, got {n_nulls} of them")
    items = column.flatten().to_numpy(zero_copy_only=False)
    if items.dtype.kind not in wanted:
        raise ValueError(f"{path}: `{name}` must be a column of lists of {kind}, got {column.type}")
    ends = column.offsets.to_numpy().astype(np.int64)
    return ends - ends[0], items
