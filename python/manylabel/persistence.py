"""Functions that save fitted estimators to model files and load them again.

A model file has the safetensors format. It contains the constructor parameters and the fitted attributes of
an estimator. Arrays are stored as tensors. All other values are stored as JSON text in the header of the
file, in the entry ``state`` of ``__metadata__``. This JSON text refers to tensors by their names. An
estimator may contain other estimators as parameters, as attributes or in lists. The contained estimators may
be fitted or not. They are stored in the same file as the estimator that contains them. Any estimator in the
file may be an instance of a scikit-learn class that `manylabel.parts` describes, such as `Pipeline` or
`TfidfVectorizer`.

Three other entries of ``__metadata__`` identify the file. ``manylabel_format`` is the version number of the
format, which is 1. ``manylabel_version`` is the version of manylabel that wrote the file. ``crc32`` is the
CRC-32 checksum of the whole file, written as eight hexadecimal digits. The checksum is computed with zeros in
place of these digits. The three entries have a fixed order and come before ``state``.

The tensors are sorted by decreasing item size, so that all tensors are aligned without gaps between them.
Other safetensors readers can open the file. If another program rewrites the file, `load` raises an error.

Security: `load` checks the whole file before the model is used. A class name in the file must be the name of
a registered estimator (see `register`) or of a class that `manylabel.parts` describes. Every parameter in the
file must be a parameter of this class. Sizes, offsets, types and the structure of sparse matrices are
checked. The nesting depth and the size of the header are limited. Nothing is unpickled or imported by name.
The checksum detects accidental damage, but not manipulation. A manipulated file can contain arbitrary
*numbers*. The author of the file can therefore choose the predictions of the model.
"""

from __future__ import annotations

import importlib.metadata
import inspect
import json
import math
import mmap
import os
import re
from copy import copy
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from manylabel import _core
from manylabel.aside import written_aside
from manylabel.estimator.parameters import shown
from manylabel.estimator.registry import CLASSES, register
from manylabel.parts import PARTS, part_of

__all__ = [
    "description_of",
    "from_description",
    "load",
    "register",
    "save",
    "save_model",
    "written_aside",
]

FORMAT = 1

# The numpy dtypes, by their names in safetensors files. Files are little-endian on every machine.
_DTYPES = {
    **{f"{kind}{8 * size}": np.dtype(f"<{kind.lower()}{size}") for kind in "IU" for size in (1, 2, 4, 8)},
    **{f"F{8 * size}": np.dtype(f"<f{size}") for size in (2, 4, 8)},
    "BOOL": np.dtype(bool),
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}

# Every model file begins with eight bytes for the length of the header, followed by this text.
_BEGINNING = re.compile(
    rb'\{"__metadata__":\{"manylabel_format":"(\d{1,9})","manylabel_version":"([\w.+!-]{1,64})",'
    rb'"crc32":"([0-9a-f]{8})","state":'
)
_NO_CHECKSUM = b"00000000"

# Maximum length of the header in bytes, which is enough for about 200,000 tensors. A parsed header takes
# about twenty times its length in memory.
_MAX_HEADER = 32 << 20
# Maximum nesting depth of estimators, lists and tuples.
_MAX_DEPTH = 32
# The first tensor begins at a multiple of the cache line size, so that none of its items is split between two
# cache lines.
_ALIGNMENT = 64


def save(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator or a scikit-learn pipeline to a file.

    The file is written completely or not at all. The content is first written to a temporary file in the same
    directory and flushed to the disk. The temporary file is then renamed to `path`. If anything fails, an
    older file at `path` is not changed. If saving succeeds, the new file replaces the older file and gets the
    permissions of the older file. If a process is killed while it saves, its temporary file remains. The next
    save in the same directory removes this temporary file.

    Parameters
    ----------
    estimator : estimator
        A fitted estimator. Its class must be a class of this library, a known class of scikit-learn (see
        Notes), or a class that was registered with `manylabel.persistence.register`. Its parameters may be
        None, bool, int, float, str, numpy scalars, numpy types such as ``np.float32``, estimators, and lists
        and tuples of these values. Its fitted attributes may also be ndarrays of numbers or bool, 1-D
        ndarrays of str, `scipy.sparse.csr_array` and `csc_array`.
    path : str or path-like
        The file to write. If it exists, it must be a regular file. Symbolic links are followed.

    Raises
    ------
    TypeError
        If the class of an estimator is not known, or if a value has a type that cannot be saved, such as a
        function. The message names the attribute.
    ValueError
        If a parameter or a fitted attribute is not valid, for example because it was changed after fit.
    sklearn.exceptions.NotFittedError
        If `estimator` is not fitted.
    OSError
        If the file cannot be written, or if `path` is a pipe or a device. On Windows, the error is also
        raised if a process uses a model that was loaded from `path`. A loaded model memory-maps its file, and
        Windows does not replace a memory-mapped file. Use a new file name in this case.

    Notes
    -----
    The known classes of scikit-learn are `Pipeline`, `FeatureUnion`, `CountVectorizer`, `TfidfVectorizer`,
    `HashingVectorizer`, `TfidfTransformer`, `TruncatedSVD`, `StandardScaler`, `MaxAbsScaler`, `Normalizer`
    and `MultiLabelBinarizer`. Every step of a pipeline must be an instance of a known class or of a class of
    this library. Instances of subclasses of the known classes cannot be saved. A vectorizer also cannot be
    saved if one of its parameters, such as `tokenizer`, is a function. A model file contains no code.

    Contiguous arrays are written without a copy. If the same estimator is saved twice, the two files are
    identical. An array in C order or Fortran order is loaded in the same order. Any other array is loaded in
    C order. A value of type ``numpy.str_`` is loaded as a Python str. The parameter `vocabulary` of a
    vectorizer is loaded as a list of terms.

    Examples
    --------
    >>> import manylabel as ml
    >>> from sklearn.feature_extraction.text import TfidfVectorizer
    >>> from sklearn.pipeline import make_pipeline
    >>> texts, Y = ["cats and dogs", "tax law", "dogs", "law"], [[1, 0], [0, 1], [1, 0], [0, 1]]
    >>> model = make_pipeline(TfidfVectorizer(), ml.DiSMECClassifier(random_state=0)).fit(texts, Y)
    >>> ml.save(model, "model.safetensors")
    >>> ml.load("model.safetensors").predict(["a cat, two dogs"])
    array([[1, 0]])
    """
    header, tensors = _content(estimator)
    with written_aside(Path(path), "xb") as file:
        file.write(header)
        for tensor in tensors:
            file.write(_bytes_of(tensor))


def to_bytes(estimator: Any) -> NDArray[np.uint8]:
    """Return the bytes of the file that `save` would write. `from_bytes` converts them to an estimator."""
    header, tensors = _content(estimator)
    return np.concatenate([np.frombuffer(header, dtype=np.uint8), *map(_bytes_of, tensors)])


def from_bytes(content: NDArray[np.uint8]) -> Any:
    """Return the estimator that is stored in `content`, a result of `to_bytes`.

    The arrays of the estimator are views of `content`.
    """
    return _decode(content)


def _content(estimator: Any) -> tuple[bytearray, list[NDArray[Any]]]:
    """Return the header and the tensors to write to the file of an estimator."""
    check_is_fitted(estimator)
    encoder = _Encoder()
    state = encoder.estimator(estimator, "", 0)
    # Tensors are sorted by decreasing item size, so that every offset is a multiple of the item size. The
    # sort is stable.
    tensors = dict(sorted(encoder.tensors.items(), key=lambda item: -item[1].itemsize))
    header = _header(state, tensors)
    checksum = _core.crc32(np.frombuffer(header, dtype=np.uint8))
    for tensor in tensors.values():
        checksum = _core.crc32(_bytes_of(tensor), checksum)
    digits = _beginning(header[8:]).span(3)
    header[8 + digits[0] : 8 + digits[1]] = b"%08x" % checksum
    return header, list(tensors.values())


# The earlier name of `save`, which still works.
save_model = save


def load(path: str | os.PathLike[str]) -> Any:
    """Load a model file that `manylabel.save` or the method ``save`` of an estimator wrote.

    The file is memory-mapped. The fitted arrays are read-only views of the file. If several processes on a
    machine load the file, they share the memory of these arrays. No code from the file is executed.

    Parameters
    ----------
    path : str or path-like
        The file to load.

    Returns
    -------
    estimator
        The saved estimator. It can be copied, pickled and saved again. The file stays memory-mapped while the
        arrays of the estimator are in use.

    Raises
    ------
    OSError
        If the file cannot be opened. The error is a `FileNotFoundError` if the file does not exist.
    ValueError
        If the file is not a model file, or if it is damaged or incomplete. The error is also raised if the
        file has a format version, a class or a parameter that this version of manylabel does not support.
        Finally, the error is raised if the content is not valid. Examples are a parameter value that is not
        allowed, shapes that do not agree, an index out of range, and a weight that is not finite. The message
        states the path and the reason.

    Notes
    -----
    `load` reads the whole file once to compute a checksum, on two threads. If the file is in the cache of the
    operating system, this takes about ten milliseconds per 100 MB. Otherwise, it takes as long as reading the
    file from the disk. The index arrays of sparse matrices are read a second time, to check the indices. The
    process needs private memory only for the header of the file. The arrays need no private memory.

    On Linux and macOS, the file may be deleted or replaced while the loaded model is in use. `save` can
    therefore write a new model to the same path. On Windows, the file cannot be deleted or replaced while the
    model is in use. On all systems, do not truncate the file, and do not overwrite it in place, because this
    would change the arrays of the loaded model or crash the process.
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        # An empty file cannot be mapped, and every model file has more than eight bytes.
        if size <= 8:
            raise ValueError(
                f"cannot load {os.fspath(path)}: not a manylabel model file, since it has only {size} bytes"
            )
        content = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), dtype=np.uint8)
    try:
        return _decode(content)
    except RecursionError:
        raise ValueError(f"cannot load {os.fspath(path)}: the header is nested too deeply") from None
    except (ValueError, OverflowError) as error:
        raise ValueError(f"cannot load {os.fspath(path)}: {error}") from error


def description_of(estimator: Any) -> dict[str, Any]:
    """Return a JSON object with the class and the parameters of an estimator, but no fitted attributes.

    Parameters
    ----------
    estimator : estimator
        The estimator. Its parameters must have types that `save` allows, but must not be numpy scalars.

    Returns
    -------
    dict
        The JSON object, for `from_description`.

    Raises
    ------
    TypeError
        If a parameter cannot be described.
    """
    encoder = _Encoder()
    node = encoder.estimator(clone(estimator), "", 0)
    if encoder.tensors:
        name = next(iter(encoder.tensors))
        raise TypeError(f"`{name}` must be a Python int, float or bool, got a numpy scalar")
    return node


def from_description(node: Any) -> Any:
    """Return an unfitted estimator from a JSON object that `description_of` has made.

    Parameters
    ----------
    node : dict
        The JSON object.

    Returns
    -------
    estimator
        The unfitted estimator.

    Raises
    ------
    ValueError
        If the object does not describe an estimator.
    """
    return _Decoder({}).estimator(node, 0)


def _bytes_of(tensor: NDArray[Any]) -> NDArray[np.uint8]:
    return tensor.reshape(-1).view(np.uint8)


def _beginning(header: bytes | bytearray) -> re.Match[bytes]:
    beginning = _BEGINNING.match(header)
    if beginning is None:
        raise ValueError(
            "not a manylabel model file, since it does not begin with the header of a model file"
        )
    return beginning


def _header(state: dict[str, Any], tensors: dict[str, NDArray[Any]]) -> bytearray:
    """Return the part of the file that comes before the tensors.

    It consists of the length of the header in bytes and the header itself. The returned header has zeros in
    place of the checksum, which is not known yet.
    """
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
            f"the model cannot be saved: the header of its file must have at most {_MAX_HEADER} bytes, got "
            f"{len(text)}; the header has the name of each array, and all values that are not arrays"
        )
    return bytearray(len(text).to_bytes(8, "little") + text)


def _is_fitted_name(name: str) -> bool:
    return _fault_of_name(name) is None


def _fault_of_name(name: str) -> str | None:
    """Return the rule that the name of a fitted attribute violates, as text, or None if the name is valid."""
    if not name.isidentifier():
        return "must be a Python identifier"
    if name.startswith("_"):
        return "must not begin with `_`"
    return None if name.endswith("_") else "must end in `_`"


class _Encoder:
    """Converts an estimator to a JSON tree and to a dict of tensors.

    The tree refers to tensors by their names. In all methods, ``at`` is the attribute path of a value, such
    as ``estimator.coef_``. If the value is an array, ``at`` is also the name of its tensor.
    """

    def __init__(self) -> None:
        self.tensors: dict[str, NDArray[Any]] = {}

    def estimator(self, estimator: Any, at: str, depth: int) -> dict[str, Any]:
        cls = type(estimator)
        part = part_of(estimator)
        if part is None and CLASSES.get(cls.__name__) is not cls:
            known = ", ".join(known.cls.__name__ for known in PARTS.values())
            _refuse(estimator, at or "estimator", f"an estimator of manylabel or an instance of {known}")
        prefix = at and f"{at}."
        if part is None:
            params = estimator.get_params(deep=False)
            fitted = {name: value for name, value in vars(estimator).items() if _is_fitted_name(name)}
        else:
            params, fitted = part.params(estimator), part.fitted(estimator)
        # A second fit of an object may set the attributes in another order, but its file is the same.
        fitted = dict(sorted(fitted.items()))
        state = {
            "estimator": cls.__name__ if part is None else part.name,
            "params": {name: self.value(value, prefix + name, depth) for name, value in params.items()},
            "fitted": {
                name: self.value(value, prefix + name, depth, fitted=True) for name, value in fitted.items()
            },
        }
        if fitted:
            # `load` makes the same checks, so every saved model can be loaded.
            if part is None:
                _check_fitted(estimator)
            else:
                part.restore(copy(estimator), fitted)
        return state

    def value(self, value: Any, at: str, depth: int, *, fitted: bool = False) -> Any:
        """Encode a parameter, or a fitted attribute if `fitted` is True.

        More types are allowed for fitted attributes than for parameters. For example, a fitted attribute may
        be an array, but a parameter may not.
        """
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
        if isinstance(value, type) and issubclass(value, np.generic) and np.dtype(value) in _NAMES:
            return {"dtype": _NAMES[np.dtype(value)]}
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
            # "surrogatepass" keeps lone surrogates, which Python uses for undecodable file names.
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
            raise TypeError(f"`{at}` cannot be saved: another part of the model has the same name")
        self.tensors[at] = np.asarray(array, dtype=dtype, order="C")
        return at


def _refuse(value: Any, at: str, expected: str) -> NoReturn:
    if isinstance(value, np.random.RandomState):
        raise TypeError(
            f"`{at}` cannot be saved: a RandomState cannot be stored in a model file. "
            f"First replace it with an integer or None, for example set_params({at.replace('.', '__')}=None)"
        )
    if callable(value) and not isinstance(value, type):
        raise TypeError(
            f"`{at}` cannot be saved: model files store data, not code; expected {expected}, "
            f"got {type(value).__name__}"
        )
    what = f"an ndarray of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
    raise TypeError(f"`{at}` cannot be saved: expected {expected}, got {what}")


def _check_depth(depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise ValueError(
            f"estimators, lists and tuples of the model are nested deeper than {_MAX_DEPTH} levels"
        )


def _check_sparse(
    data: NDArray[Any], indices: NDArray[Any], indptr: NDArray[Any], shape: tuple[int, ...], kind: str
) -> None:
    """Check the structure of a sparse matrix in CSR or CSC format.

    Its indices need not be sorted or unique.
    """
    major, minor = shape if kind == "csr" else shape[::-1]
    if {indices.dtype, indptr.dtype} not in ({np.dtype("<i4")}, {np.dtype("<i8")}):
        raise ValueError(
            "`indices` and `indptr` of a sparse matrix must both be int32 or both be int64, "
            f"got {indices.dtype} and {indptr.dtype}"
        )
    if not (0 <= major < 2**63 and 0 <= minor < 2**63):
        raise ValueError(f"the shape of a sparse matrix must have sizes from 0 to 2**63 - 1, got {shape}")
    for name, array in (("data", data), ("indices", indices), ("indptr", indptr)):
        if array.ndim != 1:
            raise ValueError(f"`{name}` of a sparse matrix must be 1-D, got the shape {array.shape}")
    if len(indptr) != major + 1:
        raise ValueError(
            f"`indptr` of a sparse matrix of shape {shape} in {kind.upper()} format must have {major + 1} "
            f"entries, got {len(indptr)}"
        )
    _check_ends("`indptr` of a sparse matrix", indptr, len(indices), "indices")
    if len(data) != len(indices):
        raise ValueError(
            "`data` and `indices` of a sparse matrix must have the same length, "
            f"got {len(data)} values and {len(indices)} indices"
        )
    # Negative indices are large numbers when viewed as unsigned, so one pass checks both bounds.
    if len(indices) and indices.view(f"<u{indices.itemsize}").max() >= minor:
        outside = indices.min() if indices.min() < 0 else indices.max()
        raise ValueError(f"`indices` of a sparse matrix must be >= 0 and < {minor}, got {outside}")


def _check_ends(name: str, ends: NDArray[np.integer[Any]], count: int, items: str) -> None:
    """Check that the positions in `ends` begin with 0, do not decrease, and end with `count`.

    The positions divide a sequence of `count` items into parts. Error messages use the text `name` for the
    positions and the text `items` for the items.
    """
    if ends[0] != 0:
        raise ValueError(f"{name} must begin with 0, got {ends[0]}")
    falls = ends[1:] < ends[:-1]
    if falls.any():
        at = int(falls.argmax())
        raise ValueError(f"{name} must not decrease, got {ends[at]} followed by {ends[at + 1]}")
    if ends[-1] != count:
        raise ValueError(f"the last value of {name} must be {count}, the number of {items}, got {ends[-1]}")


def _decode(content: NDArray[np.uint8]) -> Any:
    """Return the estimator that is stored in the bytes of a file."""
    beginning = _beginning(content[8:256].tobytes())
    version, checksum = int(beginning[1]), beginning[3].decode()
    if version != FORMAT:
        raise ValueError(
            f"the file has format {version} and was written by manylabel {beginning[2].decode()}; "
            f"this version of manylabel reads format {FORMAT}"
        )
    length = int.from_bytes(content[:8].tobytes(), "little")
    if length > len(content) - 8:
        raise ValueError(
            f"the header must fit in the file of {len(content)} bytes, got a header of {length} bytes"
        )
    if length > _MAX_HEADER:
        raise ValueError(f"the header must have at most {_MAX_HEADER} bytes, got {length}")
    digits = slice(8 + beginning.start(3), 8 + beginning.end(3))
    found = _core.crc32(content[: digits.start])
    found = _core.crc32(np.frombuffer(_NO_CHECKSUM, dtype=np.uint8), found)
    found = _core.crc32(content[digits.stop :], found)
    if f"{found:08x}" != checksum:
        raise ValueError(
            f"the file is damaged or incomplete: its checksum is {found:08x}, but must be {checksum}"
        )
    header = _parse(content[8 : 8 + length].tobytes().decode("ascii"))
    metadata = header.pop("__metadata__")
    state = metadata.get("state")
    if not isinstance(state, str):
        raise ValueError(f"the entry `state` of the header must be a string, got {_kind(state)}")
    decoder = _Decoder(_tensors(header, content[8 + length :]))
    estimator = decoder.estimator(_parse(state), 0)
    if decoder.tensors:
        unused = next(iter(decoder.tensors))
        raise ValueError(f"the file has a tensor that the model does not use: {unused!r}")
    return estimator


def _parse(text: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        mapping = dict(pairs)
        if len(mapping) != len(pairs):
            raise ValueError("the header contains the same name twice")
        return mapping

    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"the header contains {constant}, which is not valid JSON")

    return json.loads(text, object_pairs_hook=unique, parse_constant=refuse)


def _kind(node: Any) -> str:
    """Return the JSON type of a value in words, for error messages."""
    names = {dict: "a JSON object", list: "a list", str: "a string", bool: "a bool"}
    return "null" if node is None else names.get(type(node), "a number")


def _layout(name: str, entry: Any) -> tuple[str, list[int], int, int]:
    """Check the entry of a tensor in the header. Return the dtype, the shape and the two offsets."""
    if not isinstance(entry, dict):
        raise ValueError(f"the header entry of tensor {name!r} must be a JSON object, got {_kind(entry)}")
    for key in ("dtype", "shape", "data_offsets"):
        if key not in entry:
            raise ValueError(f"the header entry of tensor {name!r} has no `{key}`")
    code, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(code, str) or code not in _DTYPES:
        raise ValueError(
            f"the dtype of tensor {name!r} must be one of {', '.join(_DTYPES)}, got {shown(code)}"
        )
    if not isinstance(shape, list):
        raise ValueError(f"the shape of tensor {name!r} must be a list, got {_kind(shape)}")
    if len(shape) > 32:
        raise ValueError(f"tensor {name!r} must have at most 32 dimensions, got {len(shape)}")
    if not isinstance(offsets, list) or len(offsets) != 2:
        raise ValueError(
            f"the offsets of tensor {name!r} must be a list of two integers, got {shown(offsets)}"
        )
    for what, sizes in (("shape", shape), ("offsets", offsets)):
        wrong = [size for size in sizes if not (type(size) is int and 0 <= size < 2**63)]
        if wrong:
            raise ValueError(
                f"the {what} of tensor {name!r} must have integers from 0 to 2**63 - 1, got {shown(wrong[0])}"
            )
    return code, shape, offsets[0], offsets[1]


def _tensors(entries: dict[str, Any], data: NDArray[np.uint8]) -> dict[str, NDArray[Any]]:
    """Return a dict that maps the names of the tensors of a file to the tensors.

    `entries` contains the entries of the header, one per tensor. `data` contains the bytes after the header.
    The tensors are views of `data`. They must cover `data` completely, in the order of the entries, and
    without gaps or overlaps.
    """
    tensors: dict[str, NDArray[Any]] = {}
    end = 0
    for name, entry in entries.items():
        code, shape, begin, stop = _layout(name, entry)
        dtype = _DTYPES[code]
        size = math.prod(shape) * dtype.itemsize
        if begin != end:
            raise ValueError(
                f"tensor {name!r} must begin at the offset {end}, without a gap or an overlap, got {begin}"
            )
        if stop > len(data):
            raise ValueError(
                f"tensor {name!r} must end at or before the offset {len(data)}, the end of the data, "
                f"got {stop}"
            )
        if stop - begin != size:
            raise ValueError(
                f"tensor {name!r} must have {size} bytes, as its shape and dtype require, "
                f"got {stop - begin} bytes, from {begin} to {stop}"
            )
        array = data[begin:stop].view(dtype).reshape(shape)
        if not array.flags.aligned:
            raise ValueError(f"the offset of tensor {name!r} must be a multiple of its item size")
        if code == "BOOL" and array.size and array.view(np.uint8).max() > 1:
            raise ValueError(f"tensor {name!r} has dtype bool, but contains values other than 0 and 1")
        tensors[name], end = array, stop
    if end != len(data):
        raise ValueError(f"{len(data) - end} bytes at the end of the file belong to no tensor")
    return tensors


def _check_fitted(estimator: Any) -> None:
    """Check the parameters and the fitted attributes of a fitted estimator.

    The class attribute ``parameters`` describes the valid parameters, and the class attribute ``schema``
    describes the valid fitted attributes. If a class has no ``parameters``, its parameters are not checked.
    If a class has no ``schema``, its fitted attributes are not checked.
    """
    parameters = getattr(type(estimator), "parameters", None)
    if parameters is not None:
        parameters.require(estimator)
    schema = getattr(type(estimator), "schema", None)
    if schema is not None:
        schema.check(estimator)


def _parts_of_estimator(node: Any) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Check a JSON object that describes an estimator. Return the class name, parameters and attributes."""
    if not isinstance(node, dict):
        raise ValueError(f"an estimator in `state` of the header must be a JSON object, got {_kind(node)}")
    for key, kind, wanted in (
        ("estimator", str, "a string"),
        ("params", dict, "a JSON object"),
        ("fitted", dict, "a JSON object"),
    ):
        if key not in node:
            raise ValueError(f"an estimator in `state` of the header has no entry `{key}`")
        if not isinstance(node[key], kind):
            raise ValueError(
                f"the entry `{key}` of an estimator in `state` of the header must be {wanted}, "
                f"got {_kind(node[key])}"
            )
    return node["estimator"], node["params"], node["fitted"]


def _fault_of_value(node: dict[str, Any]) -> str:
    """Return the error message for a JSON object in `state` that is not a valid description of a value."""
    if "tuple" in node:
        return f"the entry `tuple` in `state` of the header must be a list, got {_kind(node['tuple'])}"
    if "dtype" in node:
        allowed = ", ".join(_DTYPES)
        return (
            f"the entry `dtype` in `state` of the header must be one of {allowed}, got {shown(node['dtype'])}"
        )
    if "float" in node:
        return (
            'the entry `float` in `state` of the header must be "nan", "inf" or "-inf", '
            f"got {shown(node['float'])}"
        )
    for kind in ("scalar", "array", "transposed", "strings", "sparse"):
        if kind in node and not isinstance(node[kind], str):
            return (
                f"the entry `{kind}` in `state` of the header must be the name of a tensor, "
                f"got {_kind(node[kind])}"
            )
    if "sparse" in node:
        matrix = f"the sparse matrix {node['sparse']!r} in `state` of the header"
        for key in ("format", "shape"):
            if key not in node:
                return f"{matrix} has no entry `{key}`"
        if node["format"] not in ("csr", "csc"):
            return f'the format of {matrix} must be "csr" or "csc", got {shown(node["format"])}'
        return f"the shape of {matrix} must be a list of two integers, got {shown(node['shape'])}"
    return (
        f"the entry `state` of the header has a JSON object of unknown kind, with the keys {sorted(node)[:3]}"
    )


class _Decoder:
    """Converts a JSON tree and its tensors back to an estimator. Each tensor is used exactly once.

    The attribute ``tensors`` contains the tensors that have not been used yet.
    """

    def __init__(self, tensors: dict[str, NDArray[Any]]) -> None:
        self.tensors = tensors
        self._names = frozenset(tensors)

    def estimator(self, node: Any, depth: int) -> Any:
        name, params, fitted = _parts_of_estimator(node)
        part = PARTS.get(name)
        cls = CLASSES.get(name) if part is None else part.cls
        if cls is None:
            raise ValueError(
                f"this version of manylabel has no class {name!r}. It has the classes "
                f"{', '.join(sorted([*CLASSES, *PARTS]))}"
            )
        unknown = params.keys() - inspect.signature(cls).parameters.keys()
        if unknown:
            raise ValueError(f"{name} has no parameter {min(unknown)!r}")
        for attribute in fitted:
            fault = _fault_of_name(attribute)
            if fault is not None:
                raise ValueError(f"{name} cannot have a fitted attribute {attribute!r}: its name {fault}")
        arguments = {name: self.value(value, depth) for name, value in params.items()}
        try:
            estimator = cls(**arguments)
        except TypeError as error:
            raise ValueError(f"{name} cannot be constructed from its parameters: {error}") from error
        values = {name: self.value(value, depth) for name, value in fitted.items()}
        if part is not None:
            part.check_params(estimator)
            part.restore(estimator, values)
            return estimator
        # `setattr` is not used, since it would run descriptors of the class.
        vars(estimator).update(values)
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
            case {"dtype": str() as code} if code in _DTYPES:
                return _DTYPES[code].type
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
        raise ValueError(_fault_of_value(node))

    def tensor(self, at: str, ndim: int | None = None) -> NDArray[Any]:
        tensor = self.tensors.pop(at, None)
        if tensor is None and at in self._names:
            raise ValueError(f"more than one parameter or attribute of the model uses tensor {at!r}")
        if tensor is None:
            raise ValueError(f"tensor {at!r} is missing from the file")
        if ndim not in (None, tensor.ndim):
            raise ValueError(f"tensor {at!r} must have {ndim} dimensions, got {tensor.ndim}")
        return tensor

    def strings(self, at: str) -> NDArray[Any]:
        utf8, ends = self.tensor(f"{at}.utf8", ndim=1), self.tensor(f"{at}.ends", ndim=1)
        positions = f"the end positions of the strings {at!r}"
        if utf8.dtype != np.dtype("u1"):
            raise ValueError(f"the bytes of the strings {at!r} must be uint8, got {utf8.dtype}")
        if ends.dtype != np.dtype("<i8"):
            raise ValueError(f"{positions} must be int64, got {ends.dtype}")
        if not len(ends):
            raise ValueError(f"{positions} must have at least one entry, got none")
        _check_ends(positions, ends, len(utf8), "bytes")
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
        # The arrays are assigned, because the constructor may convert 64-bit indices to 32-bit indices.
        matrix = (csr_array if kind == "csr" else csc_array)(shape, dtype=data.dtype)
        matrix.data, matrix.indices, matrix.indptr = data, indices, indptr
        return matrix
