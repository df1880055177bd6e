"""Damaged and hostile files: `load` raises an error and does nothing else."""

import json
import os
import pickle
import re
import zlib

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator

from manylabel import persistence
from manylabel.persistence import load, register, save_model


@register
class Plain(BaseEstimator):
    def __init__(self, C=1.0, mode="accuracy"):
        self.C = C
        self.mode = mode

    def fit(self, X, Y):
        raise NotImplementedError


@register
class Outer(BaseEstimator):
    def __init__(self, estimator):
        self.estimator = estimator

    def fit(self, X, Y):
        raise NotImplementedError


def fitted(estimator, **attributes):
    vars(estimator).update(attributes)
    return estimator


def small_model():
    return fitted(
        Outer(Plain(C=np.inf)),
        feature_names_in_=np.array(["a", "", "日本"], dtype=object),
        estimators_=[
            fitted(Plain(np.float32(0.1)), coef_=csr_array(np.array([[0, 1.5], [2, 0]])), n_iter_=3),
            fitted(Plain(), coef_=np.asfortranarray(np.ones((2, 3))), mask_=np.array([True, False])),
        ],
    )


# --- damaged files


@pytest.fixture
def content(tmp_path):
    save_model(small_model(), tmp_path / "whole")
    return (tmp_path / "whole").read_bytes()


def test_every_truncation_is_noticed(tmp_path, content):
    path = tmp_path / "model"
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match=f"cannot load {re.escape(str(path))}: "):
            load(path)


def test_a_flipped_bit_at_every_byte_is_noticed(tmp_path, content):
    path = tmp_path / "model"
    for i in range(len(content)):
        path.write_bytes(content[:i] + bytes([content[i] ^ 1 << i % 8]) + content[i + 1 :])
        with pytest.raises(ValueError, match=f"cannot load {re.escape(str(path))}: "):
            load(path)


def test_a_flipped_bit_far_inside_a_large_file_is_noticed(tmp_path):
    save_model(fitted(Plain(), coef_=np.zeros(3_000_000)), tmp_path / "model")
    with open(tmp_path / "model", "r+b") as file:
        file.seek(20_000_001)
        file.write(b"\x10")
    with pytest.raises(ValueError, match="damaged or incomplete: its checksum is"):
        load(tmp_path / "model")


@pytest.mark.parametrize(
    ("bytes_", "message"),
    [
        (b"", "not a manylabel model file, since it has only 0 bytes"),
        (pickle.dumps({"a": 1}), "not a manylabel model file"),
        (b"just a text\n" * 99, "not a manylabel model file, since it does not begin with the header"),
        (b"\x02\0\0\0\0\0\0\0{}", "not a manylabel model file, since it does not begin with the header"),
        (bytes(5000), "not a manylabel model file, since it does not begin with the header"),
    ],
)
def test_other_kinds_of_file(tmp_path, bytes_, message):
    (tmp_path / "model").write_bytes(bytes_)
    with pytest.raises(ValueError, match=f"cannot load .*model: {message}"):
        load(tmp_path / "model")


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="missing"):
        load(tmp_path / "missing")
    with pytest.raises(IsADirectoryError if os.name == "posix" else PermissionError, match="Errno"):
        load(tmp_path)


# --- hostile files with a right checksum


def seal(header, data=b"", length=None):
    """A file with this header text and a right checksum."""
    length = len(header) if length is None else length
    blank = length.to_bytes(8, "little") + header + data
    return blank.replace(b'"crc32":"00000000"', b'"crc32":"%08x"' % zlib.crc32(blank), 1)


def forge(state, tensors="", data=b"", **how):
    """A file with this state and these further header entries (as JSON text, padded to 8 bytes)."""
    state = state if isinstance(state, str) else json.dumps(state)
    header = (
        '{"__metadata__":{"manylabel_format":"1","manylabel_version":"0.1.0","crc32":"00000000",'
        f'"state":{json.dumps(state)}}}{tensors and ","}{tensors}}}'
    ).encode()
    return seal(header + b" " * (-len(header) % 8), data, **how)


def plain(params=(), **attributes):
    return {"estimator": "Plain", "params": dict(params), "fitted": attributes}


def entry(name="a_", dtype="U8", shape=(4,), offsets=(0, 4)):
    return json.dumps({name: {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}})[1:-1]


def sparse_file(data=(1.0, 2.0), indices=(0, 1), indptr=(0, 1, 2), shape=(2, 2), index="<i4"):
    parts = {
        "data": np.array(data, dtype="<f8"),
        "indices": np.array(indices, dtype=index),
        "indptr": np.array(indptr, dtype=index),
    }
    entries, bytes_ = [], b""
    for name, part in parts.items():
        code = {"<f8": "F64", "<i4": "I32", "<i8": "I64", "<u4": "U32"}[part.dtype.str]
        entries.append(entry(f"a_.{name}", code, part.shape, (len(bytes_), len(bytes_) + part.nbytes)))
        bytes_ += part.tobytes()
    return forge(plain(a_={"sparse": "a_", "format": "csr", "shape": list(shape)}), ",".join(entries), bytes_)


def strings_file(ends, texts=b"abc", bytes_="U8", positions="I64"):
    ends = np.array(ends, dtype="<i8")
    entries = [entry("a_.ends", positions, ends.shape, (0, ends.nbytes))]
    entries.append(entry("a_.utf8", bytes_, (len(texts),), (ends.nbytes, ends.nbytes + len(texts))))
    return forge(plain(a_={"strings": "a_"}), ",".join(entries), ends.tobytes() + texts)


def test_forged_files_load_when_nothing_is_wrong(tmp_path):
    """Correct forged files load. Each case below differs from one of them in the named point."""
    path = tmp_path / "model"
    path.write_bytes(forge(plain({"C": 2.5}, a_={"array": "a_"}), entry(), b"\1\2\3\4"))
    model = load(path)
    assert (type(model), model.C, model.a_.tolist()) == (Plain, 2.5, [1, 2, 3, 4])
    path.write_bytes(sparse_file())
    assert load(path).a_.toarray().tolist() == [[1.0, 0.0], [0.0, 2.0]]
    path.write_bytes(strings_file([0, 1, 3]))
    assert load(path).a_.tolist() == ["a", "bc"]


A = {"array": "a_"}
HOSTILE = {
    "format of the future": (
        forge(plain()).replace(b'format":"1"', b'format":"2"'),
        "has format 2 and was written by manylabel 0.1.0; this version of manylabel reads format 1",
    ),
    "header longer than the file": (
        forge(plain(), length=10**6),
        r"the header must fit in the file of \d+ bytes, got a header of 1000000 bytes",
    ),
    "header of 2**63 bytes": (
        forge(plain(), length=2**63),
        r"the header must fit in the file of \d+ bytes, got a header of 9223372036854775808 bytes",
    ),
    "header cut short": (forge(plain(), length=100), "nterminated string|Expecting"),
    "header not ASCII": (forge(plain(), '"é":0'), "'ascii' codec"),
    "header nested deeply": (forge(plain(), '"a":' + "[" * 10**5 + "]" * 10**5), "nested too deeply"),
    "state nested deeply": (forge("[" * 10**5), "nested too deeply"),
    "lists nested deeply": (forge(plain(a_=json.loads("[" * 40 + "]" * 40))), "deeper than 32 levels"),
    "header with NaN": (forge(plain(), '"a":NaN'), "NaN, which is not valid JSON"),
    "name twice": (forge(plain(a_=A), entry() + "," + entry(), bytes(4)), "contains the same name twice"),
    "second metadata": (forge(plain(), '"__metadata__":{"state":"1"}'), "contains the same name twice"),
    "state a number": (
        seal(
            b'{"__metadata__":{"manylabel_format":"1","manylabel_version":"0.1.0","crc32":"00000000",'
            b'"state":7}}'
        ),
        "the entry `state` of the header must be a string, got a number",
    ),
    "state not JSON": (forge("{"), "Expecting property name"),
    "state a list": (
        forge([]),
        "an estimator in `state` of the header must be a JSON object, got a list",
    ),
    "state without params": (
        forge({"estimator": "Plain", "fitted": {}}),
        "an estimator in `state` of the header has no entry `params`",
    ),
    "params a list": (
        forge({"estimator": "Plain", "params": [], "fitted": {}}),
        "the entry `params` of an estimator in `state` of the header must be a JSON object, got a list",
    ),
    "fitted null": (
        forge({"estimator": "Plain", "params": {}, "fitted": None}),
        "the entry `fitted` of an estimator in `state` of the header must be a JSON object, got null",
    ),
    "huge number": (
        forge('{"estimator":' + "9" * 5000 + "}"),
        "Exceeds the limit|"
        "the entry `estimator` of an estimator in `state` of the header must be a string, got a number",
    ),
    "unknown class": (
        forge(plain() | {"estimator": "os.system"}),
        "this version of manylabel has no class 'os.system'",
    ),
    "unknown parameter": (forge(plain({"shell": "rm"})), "Plain has no parameter 'shell'"),
    "missing parameter": (
        forge({"estimator": "Outer", "params": {}, "fitted": {}}),
        "Outer cannot be constructed from its parameters: .*missing",
    ),
    "attribute not fitted": (
        forge(plain(fit="x")),
        "Plain cannot have a fitted attribute 'fit': its name must end in `_`",
    ),
    "attribute private": (
        forge(plain(__class__="x")),
        "Plain cannot have a fitted attribute '__class__': its name must not begin with `_`",
    ),
    "attribute no name": (
        forge(plain(**{"a.b_": "x"})),
        "Plain cannot have a fitted attribute 'a.b_': its name must be a Python identifier",
    ),
    "unknown part": (
        forge(plain(a_={"pickle": "gASV"})),
        r"JSON object of unknown kind, with the keys \['pickle'\]",
    ),
    "unknown float": (
        forge(plain(a_={"float": "1e5"})),
        'the entry `float` in `state` of the header must be "nan", "inf" or "-inf", got \'1e5\'',
    ),
    "tuple of a string": (
        forge(plain(a_={"tuple": "ab"})),
        "the entry `tuple` in `state` of the header must be a list, got a string",
    ),
    "tensor without name": (
        forge(plain(a_={"array": ["a_"]})),
        "the entry `array` in `state` of the header must be the name of a tensor, got a list",
    ),
    "sparse without shape": (
        forge(plain(a_={"sparse": "a_", "format": "csr"})),
        "the sparse matrix 'a_' in `state` of the header has no entry `shape`",
    ),
    "sparse of another format": (
        forge(plain(a_={"sparse": "a_", "format": "coo", "shape": [2, 2]})),
        "the format of the sparse matrix 'a_' in `state` of the header must be \"csr\" or \"csc\", got 'coo'",
    ),
    "sparse of three dimensions": (
        forge(plain(a_={"sparse": "a_", "format": "csr", "shape": [2, 2, 2]})),
        r"the shape of the sparse matrix 'a_' in `state` of the header must be a list of two integers, "
        r"got \[2, 2, 2\]",
    ),
    "tensor missing": (forge(plain(a_=A)), "tensor 'a_' is missing from the file"),
    "tensor used twice": (
        forge(plain(a_=A, b_=A), entry(), bytes(4)),
        "more than one parameter or attribute of the model uses tensor 'a_'",
    ),
    "tensor unused": (forge(plain(), entry(), bytes(4)), "tensor that the model does not use: 'a_'"),
    "tensor not described": (
        forge(plain(a_=A), '"a_":{"dtype":"U8"}'),
        "the header entry of tensor 'a_' has no `shape`",
    ),
    "tensor a number": (
        forge(plain(a_=A), '"a_":7'),
        "the header entry of tensor 'a_' must be a JSON object, got a number",
    ),
    "tensor of objects": (
        forge(plain(a_=A), entry(dtype="O"), bytes(4)),
        "the dtype of tensor 'a_' must be one of .*, got 'O'",
    ),
    "shape not a list": (
        forge(plain(a_=A), '"a_":{"dtype":"U8","shape":4,"data_offsets":[0,4]}', bytes(4)),
        "the shape of tensor 'a_' must be a list, got a number",
    ),
    "one offset": (
        forge(plain(a_=A), entry(offsets=(4,)), bytes(4)),
        r"the offsets of tensor 'a_' must be a list of two integers, got \[4\]",
    ),
    "offsets beyond the file": (
        forge(plain(a_=A), entry(shape=[8], offsets=(0, 8)), bytes(4)),
        "tensor 'a_' must end at or before the offset 4, the end of the data, got 8",
    ),
    "offsets with a gap": (
        forge(plain(a_=A), entry(offsets=(4, 8)), bytes(8)),
        "tensor 'a_' must begin at the offset 0, without a gap or an overlap, got 4",
    ),
    "offsets overlapping": (
        forge(plain(a_=A, b_={"array": "b_"}), entry() + "," + entry("b_", offsets=(2, 6)), bytes(6)),
        "tensor 'b_' must begin at the offset 4, without a gap or an overlap, got 2",
    ),
    "offsets backwards": (
        forge(plain(a_=A), entry(offsets=(0, 0)), bytes(4)),
        "tensor 'a_' must have 4 bytes, as its shape and dtype require, got 0 bytes, from 0 to 0",
    ),
    "offsets negative": (
        forge(plain(a_=A), entry(offsets=(-4, 0)), bytes(4)),
        r"the offsets of tensor 'a_' must have integers from 0 to 2\*\*63 - 1, got -4",
    ),
    "offsets not numbers": (
        forge(plain(a_=A), entry(offsets=("0", 4)), bytes(4)),
        r"the offsets of tensor 'a_' must have integers from 0 to 2\*\*63 - 1, got '0'",
    ),
    "shape negative": (
        forge(plain(a_=A), entry(shape=(-2, -2)), bytes(4)),
        r"the shape of tensor 'a_' must have integers from 0 to 2\*\*63 - 1, got -2",
    ),
    "shape not whole": (
        forge(plain(a_=A), entry(shape=(4.0,)), bytes(4)),
        r"the shape of tensor 'a_' must have integers from 0 to 2\*\*63 - 1, got 4\.0",
    ),
    "shape with bool": (
        forge(plain(a_=A), entry(shape=(True, 4)), bytes(4)),
        r"the shape of tensor 'a_' must have integers from 0 to 2\*\*63 - 1, got True",
    ),
    "shape of 2**70": (
        forge(plain(a_=A), entry(shape=(0, 2**70), offsets=(0, 0))),
        r"the shape of tensor 'a_' must have integers from 0 to 2\*\*63 - 1, got 1180591620717411303424",
    ),
    "shape overflowing": (
        forge(plain(a_=A), entry(shape=(2**62, 2**62, 0, 2), offsets=(0, 0))),
        "cannot load",
    ),
    "many dimensions": (
        forge(plain(a_=A), entry(shape=[1] * 32 + [4]), bytes(4)),
        "tensor 'a_' must have at most 32 dimensions, got 33",
    ),
    "shape and offsets": (
        forge(plain(a_=A), entry(shape=(3,)), bytes(4)),
        "tensor 'a_' must have 3 bytes, as its shape and dtype require, got 4 bytes, from 0 to 4",
    ),
    "bytes left over": (forge(plain(a_=A), entry(), bytes(5)), "1 bytes at the end of the file"),
    "misaligned": (
        forge(
            plain(a_=A, b_={"array": "b_"}),
            entry() + "," + entry("b_", "F64", (1,), (4, 12)),
            bytes(12),
        ),
        "offset of tensor 'b_' must be a multiple of its item size",
    ),
    "bool of 2": (forge(plain(a_=A), entry(dtype="BOOL"), b"\0\1\2\0"), "values other than 0 and 1"),
    "scalar with dimensions": (
        forge(plain(a_={"scalar": "a_"}), entry(), bytes(4)),
        "must have 0 dimensions",
    ),
    "strings from 1": (
        strings_file([1, 3]),
        "the end positions of the strings 'a_' must begin with 0, got 1",
    ),
    "strings overlapping": (
        strings_file([0, 2, 1, 3]),
        "the end positions of the strings 'a_' must not decrease, got 2 followed by 1",
    ),
    "strings too short": (
        strings_file([0, 1]),
        "the last value of the end positions of the strings 'a_' must be 3, the number of bytes, got 1",
    ),
    "strings without ends": (
        strings_file([]),
        "the end positions of the strings 'a_' must have at least one entry, got none",
    ),
    "strings of signed bytes": (
        strings_file([0, 3], bytes_="I8"),
        "the bytes of the strings 'a_' must be uint8, got int8",
    ),
    "strings with float ends": (
        strings_file([0, 3], positions="F64"),
        "the end positions of the strings 'a_' must be int64, got float64",
    ),
    "strings not UTF-8": (strings_file([0, 3], b"\xff\xfe\xfd"), "'utf-8' codec"),
    "indices too large": (
        sparse_file(indices=(0, 2)),
        "`indices` of a sparse matrix must be >= 0 and < 2, got 2",
    ),
    "indices negative": (
        sparse_file(indices=(0, -1)),
        "`indices` of a sparse matrix must be >= 0 and < 2, got -1",
    ),
    "pointers falling": (
        sparse_file(indptr=(0, 3, 2)),
        "`indptr` of a sparse matrix must not decrease, got 3 followed by 2",
    ),
    "pointers from 1": (
        sparse_file(indptr=(1, 1, 2)),
        "`indptr` of a sparse matrix must begin with 0, got 1",
    ),
    "pointers too far": (
        sparse_file(indptr=(0, 1, 3)),
        "the last value of `indptr` of a sparse matrix must be 2, the number of indices, got 3",
    ),
    "pointers missing": (
        sparse_file(shape=(3, 2)),
        r"`indptr` of a sparse matrix of shape \(3, 2\) in CSR format must have 4 entries, got 3",
    ),
    "no pointers": (sparse_file(indptr=(), shape=(-1, 2)), "shape of a sparse matrix must have sizes"),
    "more values than indices": (
        sparse_file(data=(1.0, 2.0, 3.0)),
        "`data` and `indices` of a sparse matrix must have the same length, got 3 values and 2 indices",
    ),
    "unsigned indices": (sparse_file(index="<u4"), "must both be int32 or both be int64"),
    "columns negative": (sparse_file((), (), (0, 0, 0), (2, -1)), "shape of a sparse matrix must have sizes"),
    "columns of 2**70": (sparse_file(shape=(2, 2**70)), "shape of a sparse matrix must have sizes"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_files_get_an_error(tmp_path, case):
    file, message = HOSTILE[case]
    path = tmp_path / "model"
    path.write_bytes(file)
    with pytest.raises(ValueError, match=message) as raised:
        load(path)
    assert str(raised.value).startswith(f"cannot load {path}: ")


def test_a_header_above_the_limit_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "model"
    path.write_bytes(forge(plain()))
    monkeypatch.setattr(persistence, "_MAX_HEADER", 100)
    with pytest.raises(ValueError, match=r"the header must have at most 100 bytes, got \d+"):
        load(path)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=500)
@given(st.data())
def test_resealed_damage_gets_an_error_or_a_sound_model(tmp_path, content, data):
    """Damage at random places, under a right checksum: an error, or arrays that can be read."""
    damaged = bytearray(content.replace(content[content.index(b'"crc32":"') + 9 :][:8], b"00000000", 1))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        damaged[at] = data.draw(st.sampled_from(list(b'0129-{}[]",:eI_\\')) | st.integers(0, 255))
    length = int.from_bytes(damaged[:8], "little")
    path = tmp_path / "model"
    path.write_bytes(seal(bytes(damaged[8:]), length=min(length, 2**64 - 1)))
    message = f"cannot load {path}: "
    try:
        pickle.dumps(load(path))  # reads every byte of every array
    except ValueError as error:
        message = str(error)
    assert message.startswith(f"cannot load {path}: ")


def test_parameters_newer_than_the_file_take_their_defaults(tmp_path):
    (tmp_path / "model").write_bytes(forge(plain({"C": 2.0})))
    assert load(tmp_path / "model").mode == "accuracy"
