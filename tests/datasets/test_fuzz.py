"""Random files: data that are read are valid, and errors name file and line, in bounded time and memory.

Small valid texts are mutated. A few cases run by default, and `--fuzz-cases` sets their number.
"""

import gzip
import os
import re
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import issparse

from children import forks
from fuzzing import check, is_our_fault
from manylabel.datasets import dump_xc, load_arff, load_xc

XC = [
    b"4 6 3\n0,2 0:0.5 3:-2 5:1e-3\n 1:1\n1 2:3.25 4:1e10\n\n",
    b"3 4 2\r\n1 0:1 1:2 2:3 3:4\r\n0,1\t3:7\r\n 0:0\r\n",
    b"\xef\xbb\xbf2 100000 5000\n4999,17 99999:0.123456789 17:2\n0 1:1.7976931348623157e308\n",
    b"0 0 0\n",
    b"1 9223372036854775807 9223372036854775807\n9223372036854775806 9223372036854775806:1\n",
]
DENSE = b"""% Comment
@relation 'r: -C 2'
@attribute a {0,1}
@attribute 'b c' {no, yes}
@attribute x numeric
@attribute "it's" {u,'v w',"\\"x"}
@attribute s string
@data
1,no,0.5,u,text
0,yes,-1e-3,'v w',?
?,no,?,"\\"x",'it\\'s' % end
"""
SPARSE = DENSE[: DENSE.index(b"1,no")] + b"{0 1, 2 7.5,3 'v w'}\n{}\n{1 yes,4 'a\\tb'}\n"
TREE = b"""@RELATION tree
@ATTRIBUTE x REAL
@ATTRIBUTE class hierarchical a/b/c, a/d , e
@DATA
1,a/b/c@e
2.5,a/d
"""
ABROAD = "@relation 'ü: -C 1'\n@attribute ß {0,1}\n@attribute é real\n@data\n1,2\n".encode()
ARFF = [DENSE, SPARSE, TREE, ABROAD]
XML = [
    b"""<?xml version="1.0" encoding="utf-8"?>
<labels xmlns="http://mulan.sourceforge.net/labels">
<!-- <label name="no"/> -->
<label name="a"><label name='b c'></label></label>
</labels>
""",
    b'<labels><label name="a"/><label name="&#98; c"/><label name="&lt;&amp;"/></labels>',
]

NUMBERS = b"0 -0 1 -1 7 00 1e5 1e400 -1e-400 .5 5. nan inf -inf 0x10 1_0 +3 127 128 255 \xc2\xb2".split()
NUMBERS += [str(2**k + more).encode() for k in (24, 31, 32, 53, 63, 64, 128) for more in (-1, 0, 1)]
NUMBERS += [b"9" * 400, b"0." + b"3" * 400, b"1" + b"0" * 30]
PIECES = b", : ? % ' \" \\ { } @ / < > <!-- --> &#x110000; & = @data @attribute hierarchical".split()
PIECES += [b"\n", b"\r", b"\r\n", b"\0", b" ", b"\t", b"\xff\xfe", b"\xe4", b"\x1f\x8b"]
PIECES += [b"-C -1", b"-C 9", b"-C 0", b"/a" * 3000, b"<label>" * 3000]
ENCODINGS = ("utf-16", "utf-32-le", "utf-8-sig", "latin-1", "cp037")


def choice(rng, options):
    return options[rng.integers(len(options))]


def span(rng, text, longest=40):
    """Begin and end of a random slice of a text."""
    begin = int(rng.integers(len(text) + 1))
    return begin, min(len(text), begin + int(rng.integers(longest)))


def flip(rng, text, _):
    text = bytearray(text)
    for _ in range(rng.integers(1, 4)):
        if text:
            text[rng.integers(len(text))] ^= 1 << rng.integers(8)
    return bytes(text)


def truncate(rng, text, _):
    return text[: span(rng, text)[0]]


def explode(rng, text, _):
    """Replace a random number in the text by one of NUMBERS."""
    numbers = list(re.finditer(rb"[0-9][0-9.e-]*", text))
    if not numbers:
        return text
    begin, end = choice(rng, numbers).span()
    return text[:begin] + choice(rng, NUMBERS) + text[end:]


def duplicate(rng, text, _):
    begin, end = span(rng, text)
    return text[:end] + text[begin:end] * int(choice(rng, [1, 1, 2, 300])) + text[end:]


def duplicate_line(rng, text, _):
    lines = text.splitlines(keepends=True)
    at = rng.integers(len(lines) + 1)
    return b"".join([*lines[:at], *lines[at : at + 1] * int(choice(rng, [0, 2, 2, 500])), *lines[at + 1 :]])


def swap_lines(rng, text, _):
    lines = text.splitlines(keepends=True)
    return b"".join(lines[at] for at in rng.permutation(len(lines)))


def splice(rng, text, others):
    other = choice(rng, others)
    (begin, end), (start, stop) = span(rng, text), span(rng, other, len(other) + 1)
    return text[:begin] + other[start:stop] + text[end:]


def insert(rng, text, _):
    begin, end = span(rng, text, choice(rng, [1, 1, 5]))
    return text[:begin] + choice(rng, PIECES) + text[end:]


def encode(rng, text, _):
    return text.decode("utf-8", "replace").encode(choice(rng, ENCODINGS), "replace")


def end_lines_otherwise(rng, text, _):
    return text.replace(b"\n", choice(rng, [b"\r\n", b"\r", b"\n\n", b"\v\n"]))


MUTATIONS = (
    flip, flip, truncate, explode, explode, explode, duplicate, duplicate_line, swap_lines, splice,
    insert, insert, encode, end_lines_otherwise,
)  # fmt: skip


def mutated(rng, texts):
    text = choice(rng, texts)
    for _ in range(rng.integers(0, 5)):
        text = choice(rng, MUTATIONS)(rng, text, texts)
    if rng.random() < 0.15:
        text = gzip.compress(text, 1)
        if rng.random() < 0.5:
            text = choice(rng, [flip, truncate, duplicate])(rng, text, texts)
    return text


def fault(X, Y):
    """The fault of data that were read, or None."""
    if X.shape[0] != Y.shape[0]:
        return f"{X.shape[0]} rows of X, {Y.shape[0]} of Y"
    for matrix in filter(issparse, (X, Y)):
        matrix.check_format(full_check=True)
        if np.setdiff1d(np.flatnonzero(np.diff(matrix.indices) <= 0) + 1, matrix.indptr).size:
            return "indices are not in order"
    if (Y.data != 1).any():
        return "labels are not ones"
    return None


def read_xc(rng, folder):
    path = folder / "data.txt"
    path.write_bytes(mutated(rng, XC))
    dtype = choice(rng, [np.float32, np.float64])
    X, Y = load_xc(path, dtype=dtype, n_jobs=int(rng.integers(1, 4)))
    if not np.isfinite(X.data).all() or (X.data == 0).any():
        return "values are not finite or zero"
    if Y.shape[1] > 2**31 - 2:
        return fault(X, Y)  # more labels than can be written
    dump_xc(X, Y, path)
    for read, again in zip((X, Y), load_xc(path, dtype=dtype), strict=True):
        same = (np.array_equal(getattr(read, a), getattr(again, a)) for a in ("indptr", "indices", "data"))
        if read.shape != again.shape or not all(same):
            return "what was read is written otherwise"
    return fault(X, Y)


def read_arff(rng, folder):
    path, xml = folder / "data.arff", None
    path.write_bytes(mutated(rng, ARFF))
    if rng.random() < 0.4:
        xml = folder / "labels.xml"
        xml.write_bytes(mutated(rng, XML))
    X, Y, feature_names, label_names = load_arff(
        path,
        xml,
        dtype=choice(rng, [np.float32, np.float64]),
        ignore=["s"] if rng.random() < 0.8 else [],
        missing_labels=choice(rng, ["absent", "error"]),
        return_names=True,
    )
    if (X.shape[1], Y.shape[1]) != (len(feature_names), len(label_names)):
        return "names do not fit columns"
    return fault(X, Y)


def run_case(number, folder):
    """Run one case and return its fault, or None. Odd numbers are ARFF files."""
    read = read_arff if number % 2 else read_xc
    try:
        return read(np.random.default_rng(number // 2), folder)
    except ValueError as error:
        text = str(error)
        told = re.search(r"(data|labels)\.(txt|arff|xml), line \d+: expected (.|\n)+, got ", text)
        told = told or text.startswith("`ignore` must be names of attributes, got `s`")
        # Not `isprintable`, because Rust may know newer Unicode characters than Python.
        readable = len(text) < 1000 and not re.search(r"[\x00-\x1f\x7f-\x9f]", text)
        if is_our_fault(error) or not told or not readable:
            return f"ValueError: {text}"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return None


@forks
@pytest.mark.skipif(sys.platform != "linux", reason="needs RLIMIT_AS and /proc")
def test_files(pytestconfig):
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        check(lambda number: run_case(number, Path(folder)), pytestconfig.getoption("--fuzz-cases") or 1000)
