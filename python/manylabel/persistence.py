"""The model file: one safetensors file, which is memory-mapped and checked when it is loaded.

A fitted estimator consists of constructor parameters and plain fitted arrays, and so does its file. The
arrays are tensors. Everything else is a JSON tree in the header's ``__metadata__`` under ``state``, whose
leaves name tensors. Estimators may contain estimators, fitted or not, as parameters, as attributes or in
lists; all are written to the same file.

Three more entries start the header, in this order, and identify the file: ``manylabel_format`` (the number
of this format: 1), ``manylabel_version`` (the version that wrote it) and ``crc32``, the CRC-32 of the whole
file with the eight digits of this entry read as zeros. The tensors follow by decreasing item size, so that
they are aligned without gaps. Other safetensors readers can open the file; a file rewritten by them is
refused here.

Security: `load` trusts nothing in the file. Class names are looked up among the registered estimators (see
`register`); parameters must exist in the class; sizes, offsets, types and the structure of sparse matrices
are checked before they are used; nesting and header size are limited. Nothing is unpickled or imported by
name. The checksum detects damage, not manipulation: a crafted file can contain any *numbers*, so its author
decides what the model predicts.
"""

from __future__ import annotations

import importlib.metadata
import inspect
import json
import math
import mmap
import os
import re
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array
from sklearn.utils.validation import check_is_fitted

from manylabel import _core
from manylabel.aside import written_aside
from manylabel.estimator.registry import CLASSES, register

__all__ = ["load", "register", "save_model", "written_aside"]

FORMAT = 1

# Item types by their safetensors names; files are little-endian on every machine.
_DTYPES = {
    **{f"{kind}{8 * size}": np.dtype(f"<{kind.lower()}{size}") for kind in "IU" for size in (1, 2, 4, 8)},
    **{f"F{8 * size}": np.dtype(f"<f{size}") for size in (2, 4, 8)},
    "BOOL": np.dtype(bool),
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}

# The start of every model file, after the eight bytes of the header's length.
_BEGINNING = re.compile(
    rb'\{"__metadata__":\{"manylabel_format":"(\d{1,9})","manylabel_version":"([\w.+!-]{1,64})",'
    rb'"crc32":"([0-9a-f]{8})","state":'
)
_NO_CHECKSUM = b"00000000"

# A parsed header takes about twenty times its length; about 200,000 tensors fit.
_MAX_HEADER = 32 << 20
# Nesting of estimators, lists and tuples.
_MAX_DEPTH = 32
# Data start at a cache line, so that no item of the first tensors straddles two.
_ALIGNMENT = 64


def save_model(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator to a file.

    The file is written completely or not at all: it is written to a temporary file in the same directory,
    flushed to the disk and then renamed. If anything fails, an older file at `path` is not changed;
    otherwise the new file gets its permissions. Temporary files of killed processes are removed by the next
    save in the directory.

    Parameters
    ----------
    estimator : estimator
        Fitted, of a registered class. Its parameters may be None, bool, int, float, str, numpy scalars,
        estimators, and lists and tuples of these. Its fitted attributes may also be ndarrays of numbers or
        bool, 1-D ndarrays of str, `scipy.sparse.csr_array` and `csc_array`.
    path : str or path-like
        The file to write; an existing one must be a regular file. Symbolic links are followed.

    Raises
    ------
    TypeError
        If a class is not registered or a value is of another type; the message names the attribute.
    ValueError
        If parameters or fitted attributes were changed after fit and are not valid.
    sklearn.exceptions.NotFittedError
        If `estimator` is not fitted.
    OSError
        If the file cannot be written, or `path` is a pipe or a device, which renaming would replace. On
        Windows also if any process has loaded a model from `path`, since Windows does not replace a mapped
        file; use a new name then.

    Notes
    -----
    Arrays are written without a copy unless they are strided. The same estimator gives the same bytes.
    Arrays in C and in Fortran order keep their order; others are loaded in C order. A numpy str becomes a
    str.
    """
    check_is_fitted(estimator)
    encoder = _Encoder()
    state = encoder.estimator(estimator, "", 0)
    # By falling item size, so that every offset is a multiple of its item size. Sorting is stable.
    tensors = dict(sorted(encoder.tensors.items(), key=lambda item: -item[1].itemsize))
    header = _header(state, tensors)
    checksum = _core.crc32(np.frombuffer(header, dtype=np.uint8))
    for tensor in tensors.values():
        checksum = _core.crc32(_bytes_of(tensor), checksum)
    digits = _beginning(header[8:]).span(3)
    header[8 + digits[0] : 8 + digits[1]] = b"%08x" % checksum
    with written_aside(Path(path), "xb") as file:
        file.write(header)
        for tensor in tensors.values():
            file.write(_bytes_of(tensor))


def load(path: str | os.PathLike[str]) -> Any:
    """Load a model file written by an estimator's ``save``.

    The file is memory-mapped: the fitted arrays are read-only views of it, whose memory is shared by all
    processes of a machine. Nothing in the file is executed.

    Parameters
    ----------
    path : str or path-like
        The file.

    Returns
    -------
    estimator
        The estimator as it was saved. It keeps the file open. It can be copied, pickled and saved again.

    Raises
    ------
    OSError
        If the file cannot be opened; `FileNotFoundError` if there is none.
    ValueError
        If the file is not a model file, is damaged or incomplete, has another format, or names a class or
        parameter that this version does not have; if a parameter is not valid, shapes of fitted attributes
        do not agree, indices are out of range, or weights are not finite. The message names the path and
        the reason.

    Notes
    -----
    The checksum reads the file once, on two threads. This takes about ten milliseconds per 100 MB that the
    system has cached, and otherwise the time of the disk. The index arrays of sparse matrices are read a
    second time. Private memory is that of the header, whatever the size of the arrays.

    While a model is loaded, its file may be replaced (as saving does) or deleted on Linux and macOS, but not
    on Windows. It must not be overwritten in place or truncated: the arrays would change, or reading them
    would end the process.
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        # An empty file cannot be mapped, and no model file is this short.
        if size <= 8:
            raise ValueError(
                f"cannot load {os.fspath(path)}: not a manylabel model file, it has {size} bytes"
            )
        content = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), dtype=np.uint8)
    try:
        return _decode(content)
    except RecursionError:
        raise ValueError(f"cannot load {os.fspath(path)}: the header is nested too deeply") from None
    except (ValueError, OverflowError) as error:
        raise ValueError(f"cannot load {os.fspath(path)}: {error}") from error


def _bytes_of(tensor: NDArray[Any]) -> NDArray[np.uint8]:
    return tensor.reshape(-1).view(np.uint8)


def _beginning(header: bytes | bytearray) -> re.Match[bytes]:
    beginning = _BEGINNING.match(header)
    if beginning is None:
        raise ValueError("not a manylabel model file, it does not begin as one")
    return beginning


def _header(state: dict[str, Any], tensors: dict[str, NDArray[Any]]) -> bytearray:
    """Return length and header as in the file, with zeros as the checksum."""
    entries: dict[str, Any] = {
        "__metadata__": {
            "manylabel_format": str(FORMAT),
            "manylabel_version": importlib.metadata.version("manylabel"),
            "crc32": _NO_CHECKSUM.decode(),
            "state": json.dumps(state, allow_nan=False, separators=(",", ":")),
        }
    }
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.nbytes
        entries[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(entries, separators=(",", ":")).encode("ascii")
    text += b" " * (-(8 + len(text)) % _ALIGNMENT)
    if len(text) > _MAX_HEADER:
        raise ValueError(
            "the model has too many parts to save: "
            f"its header takes {len(text)} bytes, at most {_MAX_HEADER} are allowed"
        )
    return bytearray(len(text).to_bytes(8, "little") + text)


def _is_fitted_name(name: str) -> bool:
    return name.isidentifier() and name.endswith("_") and not name.startswith("_")


class _Encoder:
    """Turns an estimator into a JSON tree and the tensors that it names.

    ``at`` is the attribute path of a value, as a user would write it, and the name of its tensor.
    """

    def __init__(self) -> None:
        self.tensors: dict[str, NDArray[Any]] = {}

    def estimator(self, estimator: Any, at: str, depth: int) -> dict[str, Any]:
        cls = type(estimator)
        if CLASSES.get(cls.__name__) is not cls:
            _refuse(estimator, at or "estimator", "an estimator of manylabel")
        prefix = at and f"{at}."
        fitted = {name: value for name, value in vars(estimator).items() if _is_fitted_name(name)}
        state = {
            "estimator": cls.__name__,
            "params": {
                name: self.value(value, prefix + name, depth)
                for name, value in estimator.get_params(deep=False).items()
            },
            "fitted": {
                name: self.value(value, prefix + name, depth, fitted=True) for name, value in fitted.items()
            },
        }
        if fitted:
            _check_fitted(estimator)  # as `load` does: what is saved can be loaded
        return state

    def value(self, value: Any, at: str, depth: int, *, fitted: bool = False) -> Any:
        """Encode a parameter or, if `fitted`, a fitted attribute, which may be of more types."""
        _check_depth(depth)
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"float": str(value)}
        if isinstance(value, np.str_):
            return str(value)
        if isinstance(value, np.generic) and value.dtype.newbyteorder("<") in _NAMES:
            return {"scalar": self.tensor(np.asarray(value), at)}
        if type(value) in (list, tuple):
            items = [self.value(item, f"{at}.{i}", depth + 1, fitted=fitted) for i, item in enumerate(value)]
            return items if type(value) is list else {"tuple": items}
        if hasattr(value, "get_params"):
            return self.estimator(value, at, depth + 1)
        if not fitted:
            _refuse(value, at, "None, bool, int, float, str, an estimator, or a list or tuple of these")
        if type(value) in (csr_array, csc_array) and value.ndim == 2:
            return self.sparse(value, at)
        if type(value) in (np.ndarray, np.memmap):
            return self.array(value, at)
        return _refuse(
            value, at, "a number, str, ndarray, csr_array, csc_array, estimator or a list of these"
        )

    def sparse(self, matrix: Any, at: str) -> Any:
        _check_sparse(matrix.data, matrix.indices, matrix.indptr, matrix.shape, matrix.format)
        for part in ("data", "indices", "indptr"):
            self.tensor(getattr(matrix, part), f"{at}.{part}")
        return {"sparse": at, "format": matrix.format, "shape": list(matrix.shape)}

    def array(self, array: NDArray[Any], at: str) -> Any:
        if array.dtype == object and array.ndim == 1 and all(type(text) is str for text in array):
            # Lone surrogates, as in undecodable file names, are kept.
            encoded = [text.encode("utf-8", "surrogatepass") for text in array]
            self.tensor(np.frombuffer(b"".join(encoded), dtype=np.uint8), f"{at}.utf8")
            self.tensor(np.cumsum([0, *map(len, encoded)], dtype=np.int64), f"{at}.ends")
            return {"strings": at}
        if array.flags.f_contiguous and not array.flags.c_contiguous:
            return {"transposed": self.tensor(array.T, at)}
        return {"array": self.tensor(array, at)}

    def tensor(self, array: NDArray[Any], at: str) -> str:
        dtype = array.dtype.newbyteorder("<")
        if dtype not in _NAMES:
            _refuse(array, at, "numbers of at most 64 bits, bool or (1-D) str objects")
        if at in self.tensors:
            raise TypeError(f"`{at}` cannot be saved: another part has that name")
        self.tensors[at] = np.asarray(array, dtype=dtype, order="C")
        return at


def _refuse(value: Any, at: str, expected: str) -> NoReturn:
    if isinstance(value, np.random.RandomState):
        raise TypeError(
            f"`{at}` cannot be saved: a RandomState cannot be stored in a model file. "
            f"Replace it first: set_params({at.replace('.', '__')}=None), or an integer"
        )
    what = f"an ndarray of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
    raise TypeError(f"`{at}` cannot be saved: expected {expected}, got {what}")


def _check_depth(depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise ValueError(f"the model is nested deeper than {_MAX_DEPTH} levels")


def _check_sparse(
    data: NDArray[Any], indices: NDArray[Any], indptr: NDArray[Any], shape: tuple[int, ...], kind: str
) -> None:
    """Check the structure of a compressed matrix; its indices need not be sorted or unique."""
    major, minor = shape if kind == "csr" else shape[::-1]
    if {indices.dtype, indptr.dtype} not in ({np.dtype("<i4")}, {np.dtype("<i8")}):
        raise ValueError(f"indices of a sparse matrix must be int32 or int64, got {indices.dtype}")
    if not (0 <= major < 2**63 and 0 <= minor < 2**63):
        raise ValueError(f"the shape of a sparse matrix is impossible, {shape}")
    if not data.ndim == indices.ndim == indptr.ndim == 1 or len(indptr) != major + 1:
        raise ValueError(f"a sparse matrix of shape {shape} does not have a pointer array of its length")
    if indptr[0] != 0 or (indptr[1:] < indptr[:-1]).any() or not len(data) == len(indices) == indptr[-1]:
        raise ValueError("the pointers of a sparse matrix do not rise from 0 to the number of its values")
    # As unsigned numbers, negative indices are too large: one pass checks both bounds.
    if len(indices) and indices.view(f"<u{indices.itemsize}").max() >= minor:
        raise ValueError(f"an index of a sparse matrix must be below {minor} and >= 0, the file has another")


def _decode(content: NDArray[np.uint8]) -> Any:
    """Return the estimator that the bytes of a file describe."""
    beginning = _beginning(content[8:256].tobytes())
    version, checksum = int(beginning[1]), beginning[3].decode()
    if version != FORMAT:
        raise ValueError(
            f"the file has format {version}, written by manylabel {beginning[2].decode()}; "
            f"this version reads format {FORMAT}"
        )
    length = int.from_bytes(content[:8].tobytes(), "little")
    if length > min(_MAX_HEADER, len(content) - 8):
        raise ValueError(
            f"the file states a header of {length} bytes, but has {len(content)} bytes in all; "
            f"at most {_MAX_HEADER} are allowed in a header"
        )
    digits = slice(8 + beginning.start(3), 8 + beginning.end(3))
    found = _core.crc32(content[: digits.start])
    found = _core.crc32(np.frombuffer(_NO_CHECKSUM, dtype=np.uint8), found)
    found = _core.crc32(content[digits.stop :], found)
    if f"{found:08x}" != checksum:
        raise ValueError(
            f"the file is damaged or incomplete, its checksum is {found:08x} instead of {checksum}"
        )
    header = _parse(content[8 : 8 + length].tobytes().decode("ascii"))
    metadata = header.pop("__metadata__")
    state = metadata.get("state")
    if not isinstance(state, str):
        raise ValueError("the header has no state")
    decoder = _Decoder(_tensors(header, content[8 + length :]))
    estimator = decoder.estimator(_parse(state), 0)
    if decoder.tensors:
        raise ValueError(f"tensor {next(iter(decoder.tensors))!r} belongs to no part of the model")
    return estimator


def _parse(text: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        mapping = dict(pairs)
        if len(mapping) != len(pairs):
            raise ValueError("the header has a name twice")
        return mapping

    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"the header has {constant}, which is not JSON")

    return json.loads(text, object_pairs_hook=unique, parse_constant=refuse)


def _tensors(entries: dict[str, Any], data: NDArray[np.uint8]) -> dict[str, NDArray[Any]]:
    """Return views of `data`, which the tensors must cover in order, without gaps or overlaps."""
    tensors: dict[str, NDArray[Any]] = {}
    end = 0
    for name, entry in entries.items():
        match entry:
            case {"dtype": str() as code, "shape": [*shape], "data_offsets": [begin, stop]} if (
                code in _DTYPES
            ):
                dtype = _DTYPES[code]
            case _:
                raise ValueError(f"tensor {name!r} has no known type, shape and offsets")
        if (
            not all(type(size) is int and 0 <= size < 2**63 for size in (*shape, begin, stop))
            or len(shape) > 32
        ):
            raise ValueError(f"tensor {name!r} has impossible sizes")
        if begin != end or stop > len(data) or stop - begin != math.prod(shape) * dtype.itemsize:
            raise ValueError(f"tensor {name!r} does not fit its place in the file")
        array = data[begin:stop].view(dtype).reshape(shape)
        if not array.flags.aligned:
            raise ValueError(f"tensor {name!r} is not aligned")
        if code == "BOOL" and array.size and array.view(np.uint8).max() > 1:
            raise ValueError(f"tensor {name!r} has values that are not bool")
        tensors[name], end = array, stop
    if end != len(data):
        raise ValueError(f"{len(data) - end} bytes at the end of the file belong to no tensor")
    return tensors


def _check_fitted(estimator: Any) -> None:
    """Check a fitted estimator by the parameter table and the schema of its class, if it has them."""
    parameters = getattr(type(estimator), "parameters", None)
    if parameters is not None:
        parameters.require(estimator)
    schema = getattr(type(estimator), "schema", None)
    if schema is not None:
        schema.check(estimator)


class _Decoder:
    """Turns a JSON tree and its tensors back into an estimator; each tensor is used once."""

    def __init__(self, tensors: dict[str, NDArray[Any]]) -> None:
        self.tensors = tensors

    def estimator(self, node: Any, depth: int) -> Any:
        match node:
            case {"estimator": str() as name, "params": dict() as params, "fitted": dict() as fitted}:
                cls = CLASSES.get(name)
            case _:
                raise ValueError("the state has no estimator where one belongs")
        if cls is None:
            raise ValueError(f"the class {name!r} is not one of this version's, {', '.join(sorted(CLASSES))}")
        unknown = params.keys() - inspect.signature(cls).parameters.keys()
        if unknown:
            raise ValueError(f"{name} has no parameter {min(unknown)!r}")
        not_fitted = [attribute for attribute in fitted if not _is_fitted_name(attribute)]
        if not_fitted:
            raise ValueError(f"{name} cannot have a fitted attribute {not_fitted[0]!r}")
        arguments = {name: self.value(value, depth) for name, value in params.items()}
        try:
            estimator = cls(**arguments)
        except TypeError as error:
            raise ValueError(f"{name} cannot be made of its parameters: {error}") from error
        # Not by `setattr`, so that no descriptor of the class runs.
        vars(estimator).update({name: self.value(value, depth) for name, value in fitted.items()})
        if fitted:
            _check_fitted(estimator)
        return estimator

    def value(self, node: Any, depth: int) -> Any:
        _check_depth(depth)
        match node:
            case None | bool() | int() | float() | str():
                return node
            case list():
                return [self.value(item, depth + 1) for item in node]
            case {"tuple": list() as items}:
                return tuple(self.value(item, depth + 1) for item in items)
            case {"float": "nan" | "inf" | "-inf" as text}:
                return float(text)
            case {"scalar": str() as at}:
                return self.tensor(at, ndim=0)[()]
            case {"array": str() as at}:
                return self.tensor(at)
            case {"transposed": str() as at}:
                return self.tensor(at).T
            case {"strings": str() as at}:
                return self.strings(at)
            case {"sparse": str() as at, "format": "csr" | "csc" as kind, "shape": [int(), int()] as shape}:
                return self.sparse(at, kind, tuple(shape))
            case {"estimator": _}:
                return self.estimator(node, depth + 1)
        raise ValueError(f"the state has a part of unknown kind, {sorted(node)[:3]}")

    def tensor(self, at: str, ndim: int | None = None) -> NDArray[Any]:
        tensor = self.tensors.pop(at, None)
        if tensor is None:
            raise ValueError(f"tensor {at!r} is missing or used twice")
        if ndim not in (None, tensor.ndim):
            raise ValueError(f"tensor {at!r} must have {ndim} dimensions, got {tensor.ndim}")
        return tensor

    def strings(self, at: str) -> NDArray[Any]:
        utf8, ends = self.tensor(f"{at}.utf8", ndim=1), self.tensor(f"{at}.ends", ndim=1)
        if (utf8.dtype, ends.dtype) != (np.dtype("u1"), np.dtype("<i8")) or not len(ends):
            raise ValueError(f"the texts of {at!r} are of the wrong type")
        if ends[0] != 0 or (ends[1:] < ends[:-1]).any() or ends[-1] != len(utf8):
            raise ValueError(f"the texts of {at!r} do not fill their place")
        text, bounds = utf8.tobytes(), ends.tolist()
        strings = np.empty(len(ends) - 1, dtype=object)
        for i in range(len(strings)):
            strings[i] = text[bounds[i] : bounds[i + 1]].decode("utf-8", "surrogatepass")
        return strings

    def sparse(self, at: str, kind: str, shape: tuple[int, int]) -> Any:
        data, indices, indptr = (
            self.tensor(f"{at}.{part}", ndim=1) for part in ("data", "indices", "indptr")
        )
        _check_sparse(data, indices, indptr, shape, kind)
        # By assignment: the constructor would copy 64-bit indices to 32-bit ones where they fit.
        matrix = (csr_array if kind == "csr" else csc_array)(shape, dtype=data.dtype)
        matrix.data, matrix.indices, matrix.indptr = data, indices, indptr
        return matrix
