"""Take model files apart, and put their parts together with a right checksum."""

import json
import zlib

import numpy as np

CODES = {
    np.dtype(code).str[1:]: name
    for name, code in {
        "U8": "u1", "I8": "i1", "U16": "u2", "I16": "i2", "U32": "u4", "I32": "i4", "U64": "u8", "I64": "i8",
        "F16": "f2", "F32": "f4", "F64": "f8", "BOOL": "b1",
    }.items()
}  # fmt: skip
DTYPES = {name: np.dtype(code) for code, name in CODES.items()}


def taken_apart(path):
    """The state of a model file, as a tree of JSON, and its tensors by name."""
    content = path.read_bytes()
    begin = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:begin])
    state = json.loads(header.pop("__metadata__")["state"])
    tensors = {}
    for name, entry in header.items():
        start, stop = (begin + offset for offset in entry["data_offsets"])
        array = np.frombuffer(content[start:stop], dtype=DTYPES[entry["dtype"]])
        tensors[name] = array.reshape(entry["shape"]).copy()
    return state, tensors


def put_together(state, tensors):
    """The bytes of a file with this state and these tensors."""
    metadata = {
        "manylabel_format": "1",
        "manylabel_version": "0.1.0",
        "crc32": "00000000",
        "state": json.dumps(state),
    }
    header, data = {"__metadata__": metadata}, []
    end = 0
    for name, tensor in sorted(tensors.items(), key=lambda item: -item[1].itemsize):
        header[name] = {
            "dtype": CODES[tensor.dtype.str[1:]],
            "shape": list(tensor.shape),
            "data_offsets": [end, end + tensor.nbytes],
        }
        data.append(tensor.tobytes())
        end += tensor.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % 64)
    blank = len(text).to_bytes(8, "little") + text + b"".join(data)
    return blank.replace(b'"crc32":"00000000"', b'"crc32":"%08x"' % zlib.crc32(blank), 1)
