"""Folders with the arrays of X and Y, for data sets that are larger than memory.

The arrays are in plain ``.npy`` files. If X is sparse, there are six files: ``indptr``, ``indices`` and
``data`` of the CSR matrices X and Y. If X is dense, there are four files: three for Y, and the file ``data``
of X, which has all values of X in C order.

The file ``rows.json`` has the sizes of the matrices and the checksums of the arrays. It is written last, so a
folder with this file is complete.

While `convert` runs, the arrays are in files that end in ``.part``. At regular intervals, `convert` flushes
these files to the disk, and writes their lengths and the position in the input to ``convert.json``. If the
process is killed, the next call truncates the files to these lengths and continues at this position.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path as FilePath
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from manylabel import _core
from manylabel.aside import locked, written_aside
from manylabel.datasets.files import Path
from manylabel.datasets.sources import FORMATS, Batch, MissingLabels, format_of, open_source
from manylabel.estimator.base import core_rows
from manylabel.estimator.parameters import n_threads

__all__ = [
    "checksum_of",
    "convert",
    "data_or_rows",
    "folder_of",
    "has_rows",
    "is_of_folder",
    "open_rows",
    "store",
]

# Version of the folder format, for a sparse and for a dense X.
_FORM, _DENSE_FORM = 1, 2

# The arrays of a folder, with their dtypes in the ``.part`` files.
_ARRAYS: dict[str, np.dtype[Any]] = {
    "X.indptr": np.dtype("<i8"),
    "X.indices": np.dtype("<i4"),
    "X.data": np.dtype("<f4"),
    "Y.indptr": np.dtype("<i8"),
    "Y.indices": np.dtype("<i4"),
    "Y.data": np.dtype("<f4"),
}

# Number of bytes that are written to the arrays before they are flushed to the disk and `convert.json` is
# written again. They are flushed while more text is parsed, so the flush at the end takes little time.
_CHECKPOINT = 64 << 20
# Number of bytes whose checksum is computed before they are written. They stay in the cache meanwhile.
_PIECE = 1 << 20
# Number of items of an array that are converted to another type at a time.
_ITEMS = 1 << 20
# From this number of stored values on, scipy needs 64-bit indices.
_WIDE = 2**31


def convert(
    paths: Path | Sequence[Path],
    folder: Path,
    *,
    format: Literal["auto", "xc", "svmlight", "arff", "parquet", "arrow"] = "auto",
    n_features: int | None = None,
    n_labels: int | None = None,
    zero_based: bool = False,
    columns: tuple[str, str, str] = ("features", "values", "labels"),
    xml: Path | None = None,
    missing_labels: MissingLabels = "error",
    n_jobs: int | None = None,
) -> None:
    r"""Convert data files to a folder of arrays, which `open_rows` can memory-map.

    The files are read once, from the beginning to the end. If the function is interrupted or the process is
    killed, call it again with the same arguments. It then continues at the last stored position in the input.
    A position is stored each time 64 MiB have been written to the arrays.

    Parameters
    ----------
    paths : str, bytes or path-like, or sequence of these
        The files to read. The rows of several files are stored in the order of the files. Text files may be
        compressed with gzip. Pipes are not supported.
    folder : str, bytes or path-like
        The folder to write. It is created if it does not exist.
    format : {"auto", "xc", "svmlight", "arff", "parquet", "arrow"}, default="auto"
        Format of the files. "xc" is the format of `load_xc`. "svmlight" is the same format without the first
        line. The features of svmlight files are usually numbered from 1 (see `zero_based`). "arff" is the
        format of `load_arff`. "parquet" and "arrow" (the file format of Arrow, not the stream format) need
        the package pyarrow. "auto" chooses the format by the extension of each file name. Files with an
        unknown extension have the format "xc".
    n_features : int or None, default=None
        Number of features. None means the number that the files state ("xc" and "arff"). For other formats,
        None means 1 plus the largest column index of a feature in the files. Pass the number if several
        folders must have the same columns.
    n_labels : int or None, default=None
        Number of labels. None means the number that the files state ("xc" and "arff"). For other formats,
        None means 1 plus the largest index of a label in the files.
    zero_based : bool, default=False
        Whether the features of svmlight files are numbered from 0. If False, they are numbered from 1. Labels
        are always numbered from 0.
    columns : tuple of three str, default=("features", "values", "labels")
        Names of the three columns that are read from Parquet and Arrow files. Each column contains one list
        per row. The first column has the indices of the features, the second column has the values of these
        features, and the third column has the indices of the labels. Indices begin with 0.
    xml : str, bytes, path-like or None, default=None
        The file that lists the labels of ARFF files.
    missing_labels : {"error", "absent", "unknown"}, default="error"
        What to do if the value of a label in an ARFF file is missing (``?``). "error" raises a ValueError,
        "absent" treats the label as absent, and "unknown" stores NaN in Y. Hierarchical attributes are
        treated differently (see `load_arff`). The parameter affects only ARFF files. In files of the formats
        "xc" and "svmlight", a question mark after a label always marks an unknown label.
    n_jobs : int or None, default=None
        Number of threads that parse text. None means 1 thread, and -1 means all cores. Three additional
        threads read, write and flush files.

    Raises
    ------
    ValueError
        If an argument is not valid, if a file is malformed, or if files have different numbers of features or
        labels. The error is also raised if the folder was written from other files or with other arguments,
        or if it contains files that this function did not write. The message states the file or the folder.
        For a text file, it also states the line.
    OSError
        If a file cannot be read or written. If the disk is full, free some space and call the function again.
    ModuleNotFoundError
        If pyarrow is needed but is not installed.

    See Also
    --------
    open_rows : Map the arrays of a folder into memory.

    Notes
    -----
    X is stored with float32 values and without zeros. Missing values of ARFF files are stored as NaN. Each
    stored value of X or Y takes 4 bytes, and its column index takes another 4 bytes. In a matrix with at
    least 2**31 stored values, a column index takes 8 bytes, because scipy then needs 64-bit indices.

    For files of any size, the function needs about 200 MB of memory ("xc" and "svmlight") or 100 MB
    ("parquet"). An Arrow file is memory-mapped. If it is compressed, each of its record batches must fit in
    memory. An ARFF file is read as a whole, so its data must fit in memory.

    An empty line of an svmlight file is a row without features and labels, but empty lines at the end of the
    file are ignored. Comments and query ids are not supported.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "tiny.txt").write_text("2 3 4\n1,3 0:0.5 2:2\n 1:1\n")
    >>> convert(folder / "tiny.txt", folder / "rows")
    >>> X, Y = open_rows(folder / "rows")
    >>> X.toarray()
    array([[0.5, 0. , 2. ],
           [0. , 1. , 0. ]], dtype=float32)
    """
    if format != "auto" and format not in FORMATS:
        raise ValueError(f'`format` must be "auto" or one of {", ".join(FORMATS)}, got {format!r}')
    given = [paths] if isinstance(paths, str | bytes | os.PathLike) else paths
    files = [_path(path) for path in given]
    if not files:
        raise ValueError("`paths` must have at least one file, got none")
    if missing_labels not in ("error", "absent", "unknown"):
        raise ValueError(f'`missing_labels` must be "error", "absent" or "unknown", got {missing_labels!r}')
    if len(columns) != 3 or not all(isinstance(name, str) for name in columns):
        raise ValueError(f"`columns` must be three names, got {columns!r}")
    for name, size in (("n_features", n_features), ("n_labels", n_labels)):
        if size is not None and (not isinstance(size, int) or size < 1):
            raise ValueError(f"`{name}` must be an integer >= 1 or None, got {size!r}")
    forms = [format_of(path) if format == "auto" else format for path in files]
    inputs = {
        "files": [
            [str(path.resolve()), form, *_version(path)] for path, form in zip(files, forms, strict=True)
        ],
        "options": [
            n_features,
            n_labels,
            zero_based,
            list(columns),
            None if xml is None else str(_path(xml)),
            missing_labels,
        ],
    }
    sources = [
        open_source(
            path,
            form,
            xml=None if xml is None else _path(xml),
            missing_labels=missing_labels,
            zero_based=zero_based,
            columns=tuple(columns),  # type: ignore[arg-type]
            threads=n_threads(n_jobs),
        )
        for path, form in zip(files, forms, strict=True)
    ]
    target = _path(folder)
    target.mkdir(parents=True, exist_ok=True)
    _check_own(target)  # before a lock file is created in a folder of others
    with locked(target / "convert.lock"):
        writer = _Writer(target, inputs)
        if writer.is_complete:
            open_rows(target)  # raises an error if the size of a file was changed
            return
        shape = [
            _agreed(what, given, [source.shape[axis] for source in sources], files)
            for axis, (what, given) in enumerate((("n_features", n_features), ("n_labels", n_labels)))
        ]
        with writer:
            for number in range(writer.file, len(sources)):
                at = writer.position if number == writer.file else None
                for batch in sources[number].batches(at):
                    writer.write(number, batch, files[number], shape)
            writer.end(len(sources))
        writer.finish(shape)


def store(blocks: Iterable[tuple[Any, sparse.csr_array]], folder: FilePath, identity: str) -> None:
    """Write blocks of rows to a folder, unless the folder already has the same data.

    Parameters
    ----------
    blocks : iterable of pairs
        X and Y of each block. Each Y is a csr_array. Either all X are csr_arrays of dtype float32 or float64,
        or all X are ndarrays of dtype float16, float32 or float64. All X have the same number of columns and
        the same dtype, and all Y have the same number of columns. In sparse matrices, the column indices of
        each row are sorted and unique. The stored values of Y are 1, or NaN for unknown entries.
    folder : Path
        The folder to write.
    identity : str
        Text that identifies the data, such as a checksum.

    Raises
    ------
    ValueError
        If the folder has data with another `identity`, or if there are no blocks.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _check_own(folder)
    with locked(folder / "convert.lock", wait=True):
        if (folder / "rows.json").exists():
            _Writer(folder, {"identity": identity})
            open_rows(folder)  # raises an error if the size of a file was changed
            return
        # `blocks` starts with the first block, so the files of an interrupted call cannot be continued.
        # `convert.json` is removed last, because it marks the folder as one of this module.
        for left in (*folder.glob("*.part"), *(folder / f"{name}.npy" for name in _ARRAYS)):
            left.unlink(missing_ok=True)
        (folder / "convert.json").unlink(missing_ok=True)
        shape = [0, 0]
        writer = None
        with ExitStack() as stack:
            for X, Y in blocks:
                dense = isinstance(X, np.ndarray)
                if writer is None:
                    inputs = {"identity": identity}
                    writer = stack.enter_context(_Writer(folder, inputs, X.dtype, dense=dense))
                    shape = [X.shape[1], Y.shape[1]]
                ends, columns = np.zeros(1, np.int64), np.zeros(0, np.int32)
                if not dense:
                    ends, columns = X.indptr.astype(np.int64), X.indices.astype(np.int32)
                of_x = ends, columns, np.ravel(X) if dense else X.data
                of_y = Y.indptr.astype(np.int64), Y.indices.astype(np.int32), Y.data
                batch = Batch(*of_x, *of_y, [0], (X.shape[1], 0))
                writer.write(0, batch, folder, shape)
            if writer is None:
                raise ValueError("X must have at least one block of rows, got none")
            writer.end(1)
        writer.finish(shape)


def open_rows(folder: Path) -> tuple[Any, sparse.csr_array]:
    r"""Memory-map the arrays of a folder that was written by `convert` or by `manylabel.dask.fit`.

    Parameters
    ----------
    folder : str, bytes or path-like
        The folder.

    Returns
    -------
    X : csr_array or ndarray of shape (n_samples, n_features)
        Features. If `convert` wrote the folder, X is a csr_array of dtype float32. If `manylabel.dask.fit`
        wrote the folder, the type (csr_array or ndarray) and the dtype of X depend on the X that was passed
        to `manylabel.dask.fit`. The arrays are read-only and memory-mapped. The operating system reads a part
        of a file when the part is used, and can remove the part from memory when memory is needed. All
        processes on a machine share the memory of these arrays.
    Y : csr_array of shape (n_samples, n_labels), dtype float32
        Labels, memory-mapped like X. A one is stored for each label that a row has, and NaN for each unknown
        label.

    Raises
    ------
    ValueError
        If the folder was not written by `convert` or `manylabel.dask.fit`, or if the size of an array was
        changed. The error is also raised if the folder is not complete, for example because `convert` was
        interrupted.
    OSError
        If the folder does not exist, or if a file cannot be opened.

    See Also
    --------
    convert : Write such a folder.

    Notes
    -----
    Do not change the files while the arrays are in use. The function reads only the sizes of the arrays, so
    it takes less than a millisecond. It does not check the content of the arrays.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "tiny.txt").write_text("2 3 4\n1,3 0:0.5 2:2\n 1:1\n")
    >>> convert(folder / "tiny.txt", folder / "rows")
    >>> X, Y = open_rows(folder / "rows")
    >>> Y.toarray()
    array([[0., 1., 0., 1.],
           [0., 0., 0., 0.]], dtype=float32)
    """
    target = _path(folder)
    about = _about(target)
    matrices: list[Any] = []
    for name, n_columns in (("X", about["n_features"]), ("Y", about["n_labels"])):
        parts = []
        dense = name == "X" and about["form"] == _DENSE_FORM
        for part in ("data",) if dense else ("indptr", "indices", "data"):
            path = target / f"{name}.{part}.npy"
            n_bytes = path.stat().st_size
            try:
                # An empty array cannot be mapped.
                array = np.load(path, mmap_mode=None if n_bytes <= _HEADER else "r", allow_pickle=False)
            except (ValueError, EOFError) as error:
                raise ValueError(
                    f"{path}: the file is damaged ({error}); delete the folder and write it again"
                ) from None
            expected = about["n_rows"] + 1 if part == "indptr" else about["stored"][name]
            if array.shape != (expected,):
                raise ValueError(f"{path}: expected {expected} numbers, got an array of shape {array.shape}")
            if n_bytes != _HEADER + array.nbytes:
                raise ValueError(
                    f"{path}: expected {_HEADER + array.nbytes:,} bytes, got {n_bytes:,} bytes; delete "
                    "the folder and write it again"
                )
            parts.append(array)
        shape = about["n_rows"], n_columns
        matrices.append(
            parts[0].reshape(shape) if dense else core_rows((parts[0], parts[1], parts[2]), shape)
        )
    return matrices[0], matrices[1]


def data_or_rows(X: Any, Y: Any) -> tuple[Any, Any]:
    """Return X and Y. If the argument X is the path of a folder, memory-map both from this folder.

    The folder must have been written by `convert` or `manylabel.dask.fit`. If X is not a path, X and Y are
    returned as they are.

    Raises
    ------
    ValueError
        If X is a folder and Y is given, or if the folder is not valid.
    """
    if not isinstance(X, str | os.PathLike):
        return X, Y
    if Y is not None:
        raise ValueError(f"`Y` must be None if `X` is a folder, got {type(Y).__name__}")
    return open_rows(X)


def has_rows(folder: FilePath) -> bool:
    """Return whether a folder contains the result of `convert`, complete or incomplete."""
    return any((folder / name).exists() for name in ("rows.json", "convert.json", "Y.indptr.part"))


def checksum_of(X: Any) -> str | None:
    """Return the checksum of the folder that the arrays of X are memory-mapped from.

    The result is None if X is not the complete feature matrix of a folder, for example if X has only some of
    the rows.
    """
    folder = folder_of(X)
    return None if folder is None else str(_about(folder)["checksum"])


def is_of_folder(checksum: str) -> bool:
    """Return whether a checksum is the checksum of a folder, as returned by `checksum_of`.

    If the result is False, the checksum was computed from arrays in memory.
    """
    return "-" in checksum


def folder_of(matrix: Any, name: str = "X") -> FilePath | None:
    """Return the folder that the arrays of a matrix are memory-mapped from, or None.

    `name` is "X" or "Y". The result is None if `matrix` is not the complete X or Y of a folder.
    """
    if isinstance(matrix, np.ndarray):
        arrays = {"data": matrix}
    elif isinstance(matrix, sparse.csr_array):
        arrays = {part: getattr(matrix, part) for part in ("indptr", "indices", "data")}
    else:
        return None
    folders = set()
    for part, array in arrays.items():
        mapped: Any = array
        while isinstance(mapped, np.ndarray) and not isinstance(mapped, np.memmap):
            mapped = mapped.base
        while isinstance(mapped, np.memmap) and isinstance(mapped.base, np.memmap):
            mapped = mapped.base
        if not isinstance(mapped, np.memmap) or mapped.filename is None:
            return None
        path = FilePath(mapped.filename)
        whole = (
            mapped.mode == "r"
            and array.flags.c_contiguous
            and array.dtype == mapped.dtype
            and array.size == mapped.size
            and array.__array_interface__["data"] == mapped.__array_interface__["data"]
        )
        if path.name != f"{name}.{part}.npy" or not whole:
            return None
        folders.add(path.parent)
    folder = folders.pop()
    if folders or not (folder / "rows.json").exists():
        return None
    if isinstance(matrix, np.ndarray):
        about = _about(folder)
        if about["form"] != _DENSE_FORM or matrix.shape != (about["n_rows"], about["n_features"]):
            return None
    return folder


def _path(path: Path) -> FilePath:
    return FilePath(os.fsdecode(path))


def _version(path: FilePath) -> tuple[int, int]:
    """Return the size of a file and the time of its last change."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _check_own(folder: FilePath) -> None:
    """Raise a ValueError if a folder contains files that this module did not write."""
    # Another process may finish meanwhile. It writes rows.json before it removes convert.json.
    if (folder / "convert.json").exists() or (folder / "rows.json").exists():
        return
    others = [
        path.name
        for path in folder.iterdir()
        if not path.name.startswith((".", "convert.lock")) and path.suffix != ".part"
    ]
    if others:
        raise ValueError(
            f"{folder}: the folder must be empty or written by `datasets.convert`, but it contains "
            f"{min(others)}"
        )


def _about(folder: FilePath) -> dict[str, Any]:
    """Return the content of ``rows.json``, such as the sizes of X and Y and the checksums of the arrays."""
    os.listdir(folder)  # raises an error that names the folder if there is no such folder
    try:
        about = json.loads((folder / "rows.json").read_text())
    except FileNotFoundError:
        if has_rows(folder):
            raise ValueError(
                f"{folder}: the conversion is not complete; call `datasets.convert` again"
            ) from None
        raise ValueError(
            f"{folder}: expected a folder that `datasets.convert` has written, got a folder without rows.json"
        ) from None
    except ValueError:
        about = None
    if not isinstance(about, dict) or about.get("form") not in (_FORM, _DENSE_FORM):
        raise ValueError(f"{folder}: rows.json is damaged or was written by another version of manylabel")
    return about


def _agreed(what: str, given: int | None, stated: list[int | None], files: Sequence[FilePath]) -> int | None:
    """Return the number of features or labels, as stated by the caller or by the files.

    The result is None if neither the caller nor any file states the number. If two of the stated numbers
    differ, a ValueError is raised.
    """
    source = "as in the other files" if given is None else "as in the argument"
    for size, file in zip(stated, files, strict=True):
        if size is not None and given is not None and size != given:
            raise ValueError(f"{file}: expected `{what}` = {given} {source}, got {size}")
        given = size if given is None else given
    return given


def _header(dtype: np.dtype[Any], n_items: int) -> bytes:
    """Return the header of a ``.npy`` file. The length of the header does not depend on `n_items`."""
    text = io.BytesIO()
    about = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (n_items,)}
    np.lib.format.write_array_header_1_0(text, about)
    return text.getvalue()


# The length of the header. numpy pads the header, so that its length is the same for any number of items.
_HEADER = len(_header(np.dtype("<f4"), 0))


class _Writer:
    """Appends batches to the files of a folder.

    A second thread writes the batches, and a third thread flushes the files to the disk.
    """

    def __init__(
        self,
        folder: FilePath,
        inputs: dict[str, Any],
        values: np.dtype[Any] = _ARRAYS["X.data"],
        *,
        dense: bool = False,
    ) -> None:
        self._folder, self._inputs, self._dense = folder, inputs, dense
        self._dtypes = _ARRAYS | {"X.data": values}
        if dense:
            del self._dtypes["X.indptr"], self._dtypes["X.indices"]
        self.is_complete = False
        self.file = 0
        self.position: list[int] | None = None
        self._counts = dict.fromkeys(_ARRAYS, 0)
        self._checksums = dict.fromkeys(_ARRAYS, 0)
        self._columns = [0, 0]
        self._unsaved = 0
        self._pending: Future[None] | None = None
        self._saving: Future[None] | None = None
        if (folder / "rows.json").exists():
            if _about(folder)["inputs"] != inputs:
                raise ValueError(
                    f"{folder}: the folder was written from other files or with other arguments; "
                    "delete it or choose another folder"
                )
            self.is_complete = True
        elif (folder / "convert.json").exists():
            self._resume()

    def _resume(self) -> None:
        try:
            saved = json.loads((self._folder / "convert.json").read_text())
            self.file, self.position = saved["file"], saved["position"]
            self._counts, self._checksums = saved["counts"], saved["checksums"]
            self._columns = saved["columns"]
            inputs = saved["inputs"]
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"{self._folder}: convert.json is damaged; delete the folder") from None
        if inputs != self._inputs:
            raise ValueError(
                f"{self._folder}: the folder was written from other files or with other arguments; "
                "delete it or choose another folder"
            )

    def __enter__(self) -> _Writer:
        self._stack = ExitStack()
        with self._stack as stack:
            self._files: dict[str, BinaryIO] = {}
            for name, dtype in self._dtypes.items():
                path = self._folder / f"{name}.part"
                if not path.exists() and (self._folder / f"{name}.npy").exists():
                    continue  # an earlier call has already finished this array
                file = stack.enter_context(open(path, "r+b" if path.exists() else "x+b", buffering=0))
                end = _HEADER + self._counts[name] * dtype.itemsize
                if os.fstat(file.fileno()).st_size < (end if self._counts[name] else 0):
                    raise ValueError(
                        f"{path}: the file is shorter than convert.json states; delete the folder"
                    )
                file.truncate(end)
                file.seek(end)
                self._files[name] = file
            self._flusher = stack.enter_context(ThreadPoolExecutor(1))
            self._worker = stack.enter_context(ThreadPoolExecutor(1))
            if self._counts["Y.indptr"] == 0:
                for name in self._dtypes.keys() & {"X.indptr", "Y.indptr"}:
                    self._append(name, np.zeros(1, np.int64))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def write(self, file: int, batch: Batch, path: FilePath, shape: Sequence[int | None]) -> None:
        """Wait until the previous batch is written, and let the second thread check and write this batch.

        `file` is the number of the input file. `path` is the path of this file, for error messages. `shape`
        has the number of features and the number of labels. A number that is not known is None.
        """
        self._wait()
        self._pending = self._worker.submit(self._write, file, batch, path, shape)

    def _wait(self) -> None:
        if self._pending is not None:
            self._pending.result()
            self._pending = None

    def _write(self, file: int, batch: Batch, path: FilePath, shape: Sequence[int | None]) -> None:
        for axis, (what, columns) in enumerate((("feature", batch.x_columns), ("label", batch.y_columns))):
            last, size = max(int(columns.max(initial=-1)), batch.widths[axis] - 1), shape[axis]
            if size is not None and last >= size:
                raise ValueError(f"{path}: expected a {what} below {size} (counted from 0), got {last}")
            self._columns[axis] = max(self._columns[axis], last + 1)
        if not self._dense:
            self._append("X.indptr", batch.x_ends[1:] + self._counts["X.indices"])
            self._append("X.indices", batch.x_columns)
        self._append("X.data", batch.x_values)
        self._append("Y.indptr", batch.y_ends[1:] + self._counts["Y.indices"])
        self._append("Y.indices", batch.y_columns)
        self._append("Y.data", batch.y_values)
        self.file, self.position = file, batch.position
        if self._unsaved >= _CHECKPOINT:
            self._begin_to_save()

    def _append(self, name: str, items: NDArray[Any]) -> None:
        content = np.ascontiguousarray(items, dtype=self._dtypes[name]).view(np.uint8)
        for first in range(0, len(content), _PIECE):
            piece = content[first : first + _PIECE]
            self._checksums[name] = _core.crc32(piece, self._checksums[name])
            left = piece.data
            while left:
                left = left[self._files[name].write(left) :]
        self._counts[name] += len(items)
        self._unsaved += len(content)

    def _begin_to_save(self) -> None:
        """Wait until the previous save has ended, and let the third thread save what has been written."""
        if self._saving is not None:
            self._saving.result()
        saved = {
            "inputs": self._inputs,
            "file": self.file,
            "position": self.position,
            "counts": dict(self._counts),
            "checksums": dict(self._checksums),
            "columns": list(self._columns),
        }
        self._saving = self._flusher.submit(self._save, saved)
        self._unsaved = 0

    def _save(self, saved: dict[str, Any]) -> None:
        """Flush the arrays to the disk, and write `saved` to ``convert.json``.

        `saved` has the lengths and checksums of the arrays and the position in the input. Rows that are
        written while this method runs are not counted in `saved`.
        """
        for file in self._files.values():
            os.fsync(file.fileno())
        with written_aside(self._folder / "convert.json", "x") as journal:
            json.dump(saved, journal)

    def end(self, n_files: int) -> None:
        """Wait until the last batch is written, and store that the input has been read completely."""
        self._wait()
        if len(self._files) == len(self._dtypes):
            self.file, self.position = n_files, None
            self._begin_to_save()
        if self._saving is not None:
            self._saving.result()

    def finish(self, shape: Sequence[int | None]) -> None:
        """Convert the ``.part`` files to ``.npy`` files, and write ``rows.json``."""
        n_features, n_labels = (
            seen if size is None else size for size, seen in zip(shape, self._columns, strict=True)
        )
        stored = {name: self._counts[f"{name}.data"] for name in ("X", "Y")}
        for name, dtype in self._dtypes.items():
            part, path = self._folder / f"{name}.part", self._folder / f"{name}.npy"
            if not part.exists():
                continue  # an earlier call has already finished this array
            matrix, _, array = name.partition(".")
            wide = stored[matrix] >= _WIDE
            final = dtype if array == "data" else np.dtype("<i8" if wide else "<i4")
            count = self._counts[name]
            if final == dtype:
                with open(part, "r+b") as file:
                    file.write(_header(final, count))
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(part, path)
                continue
            with written_aside(path, "xb") as file:
                file.write(_header(final, count))
                for items in _read_items(part, dtype):
                    file.write(items.astype(final))
            part.unlink()
        checksums = [f"{self._checksums[name]:08x}" for name in _ARRAYS]
        about = {
            "form": _DENSE_FORM if self._dense else _FORM,
            "n_rows": self._counts["Y.indptr"] - 1,
            "n_features": n_features,
            "n_labels": n_labels,
            "stored": stored,
            "checksum": "-".join([*checksums, str(n_features), str(n_labels)]),
            "inputs": self._inputs,
        }
        with written_aside(self._folder / "rows.json", "x") as file:
            json.dump(about, file, indent=1)
        (self._folder / "convert.json").unlink(missing_ok=True)


def _read_items(path: FilePath, dtype: np.dtype[Any]) -> Iterator[NDArray[Any]]:
    with open(path, "rb") as file:
        file.seek(_HEADER)
        while len(items := np.fromfile(file, dtype, _ITEMS)):
            yield items
