import gzip
import os
import re
import stat
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse
from sklearn.datasets import load_svmlight_file
from sklearn.preprocessing import MultiLabelBinarizer

from manylabel.datasets import dump_xc, load_xc


def equal(a, b):
    return (
        a.shape == b.shape
        and a.dtype == b.dtype
        and np.array_equal(a.indptr, b.indptr)
        and np.array_equal(a.indices, b.indices)
        and np.array_equal(a.data, b.data)
    )


def load(text, tmp_path, **options):
    path = tmp_path / "data.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_xc(path, **options)


def test_every_real_set_is_written_as_it_was(data, tmp_path):
    n_files = 0
    # Sets without a test file have the file `all`. The training files have the same form as the test files.
    for path in sorted([*data.glob("*/test.txt.gz"), *data.glob("*/all.txt.gz")]):
        text = gzip.decompress(path.read_bytes())
        X, Y = load_xc(path)
        dump_xc(X, Y, tmp_path / "copy.txt")
        assert (tmp_path / "copy.txt").read_bytes() == text, path
        n_files += 1
    assert n_files > 50


@pytest.mark.parametrize("name", ["bibtex", "yeast", "citeulike-t"])
def test_agrees_with_the_svmlight_reader(data, tmp_path, name):
    lines = gzip.decompress((data / name / "test.txt.gz").read_bytes()).split(b"\n", 1)[1]
    (tmp_path / "rows.svm").write_bytes(lines)
    X, Y = load_xc(data / name / "test.txt.gz")
    options = {"multilabel": True, "dtype": np.float32, "zero_based": True, "n_features": X.shape[1]}
    X_svm, labels = load_svmlight_file(str(tmp_path / "rows.svm"), **options)
    assert equal(X, sparse.csr_array(X_svm))
    classes = np.arange(Y.shape[1])
    Y_svm = MultiLabelBinarizer(classes=classes, sparse_output=True).fit_transform(labels)
    assert (Y_svm != Y).nnz == 0


def test_types_and_shapes(tmp_path):
    X, Y = load("3 5 4\n2,0 4:1.5 0:-2\n 1:1e-3\n3\n", tmp_path)
    assert (type(X), type(Y)) == (sparse.csr_array, sparse.csr_array)
    assert (X.dtype, Y.dtype) == (np.float32, np.int32)
    assert {X.indices.dtype, X.indptr.dtype, Y.indices.dtype, Y.indptr.dtype} == {np.dtype(np.int32)}
    assert X.has_canonical_format
    assert Y.has_canonical_format
    np.testing.assert_array_equal(X.toarray(), np.float32([[-2, 0, 0, 0, 1.5], [0, 0.001, 0, 0, 0], [0] * 5]))
    np.testing.assert_array_equal(Y.toarray(), [[1, 0, 1, 0], [0, 0, 0, 0], [0, 0, 0, 1]])
    X, _ = load("1 1 1\n0 0:0.1\n", tmp_path, dtype=np.float64)
    assert X.dtype == np.float64
    assert X.data.tolist() == [0.1]


def test_sizes_beyond_32_bits(tmp_path):
    X, Y = load(f"1 {10**18} {2**31}\n{2**31 - 1} 3:1 {10**18 - 1}:2\n", tmp_path)
    assert X.shape == (1, 10**18)
    assert X.indices.tolist() == [3, 10**18 - 1]
    assert X.indices.dtype == Y.indices.dtype == np.int64
    assert Y.indices.tolist() == [2**31 - 1]


@pytest.mark.parametrize(
    "text",
    [
        "2 3 3\r\n0,2 0:1 2:3\r\n 1:2\r\n",
        "2 3 3 \n0,2 0:1 2:3 \n  1:2\t\n",
        "2\t3\t3\n0,2\t0:1\t2:3\n\t1:2\n\n\n\r\n",
        "\ufeff2 3 3\n2,0,2 2:3.0 0:+1e0\n 1:.2E1",
        "2 3 3\n0,2 0:1 1:0 2:03\n 1:2. 0:-0 2:0e7",
    ],
    ids=["windows", "trailing", "tabs", "unsorted", "zeros"],
)
def test_what_is_let_through(tmp_path, text):
    expected = load("2 3 3\n0,2 0:1 2:3\n 1:2\n", tmp_path)
    for got, wanted in zip(load(text, tmp_path), expected, strict=True):
        assert equal(got, wanted)


MALFORMED = {
    "empty": (b"", r"line 1: expected the numbers of examples, features and labels.*got an empty file"),
    "header missing": (b"1,2 3:4\n", r"line 1: expected the numbers .*got `1,2 3:4`"),
    "header short": (b"1 2\n", r"line 1: expected the numbers .*got `1 2`"),
    "header long": (b"1 2 3 4\n", r"line 1: expected the numbers .*got `1 2 3 4`"),
    "header negative": (b"1 -2 3\n", r"line 1: expected the numbers .*got `1 -2 3`"),
    "header beyond 63 bits": (b"1 9223372036854775808 3\n", r"line 1: expected the numbers "),
    "binary": (bytes(range(255, 127, -1)), r"line 1: expected the numbers "),
    "many rows declared": (
        b"1000000000000000000 2 2\n0 0:1\n",
        r"line 3: expected 1000000000000000000 examples, as line 1 states, got the end of the file after 1",
    ),
    "too few rows": (b"3 2 2\n0 0:1\n1 1:1\n", r"line 4: expected 3 examples.*got the end .* after 2"),
    "too many rows": (
        b"1 2 2\n0 0:1\n\n1 1:1\n",
        r"line 4: expected the end of the file after 1 examples, as line 1 states, got `1 1:1`",
    ),
    "a row of zeros too many": (
        b"1 2 2\n0 0:1\n 1:0\n",
        r"line 3: expected the end of the file after 1 examples, as line 1 states, got ` 1:0`",
    ),
    "an example without anything too many": (
        b"1 2 2\n0 0:1\n\n \n",
        r"line 4: expected the end of the file after 1 examples, as line 1 states, got ` `",
    ),
    "label too large": (
        b"1 2 2\n0,2 0:1\n",
        r"line 2: expected a label below 2 \(counted from 0\), got 2",
    ),
    "label beyond 64 bits": (
        b"1 2 2\n99999999999999999999\n",
        r"line 2: expected a label below 2 .*got 99999999999999999999",
    ),
    "label negative": (b"1 2 2\n-1 0:1\n", r"line 2: expected labels as whole numbers .*got `-1`"),
    "label a word": (b"1 2 2\nsport 0:1\n", r"line 2: expected labels as whole numbers .*got `sport`"),
    "label a decimal": (b"1 2 2\n1.0 0:1\n", r"line 2: expected labels as whole numbers .*got `1.0`"),
    "label cut": (b"1 2 2\n1, 0:1\n", r"line 2: expected labels as whole numbers .*got ``"),
    "no blank before features": (b"1 2 2\n0:1\n", r"line 2: expected labels, or a blank .*got `0:1`"),
    "feature too large": (b"1 2 2\n0 2:1\n", r"line 2: expected a feature below 2 .*got 2"),
    "feature negative": (b"1 2 2\n0 -1:1\n", r"line 2: expected a pair `feature:value`, got `-1:1`"),
    "feature twice": (b"1 2 2\n0 1:1 0:1 1:2\n", r"line 2: expected each feature once, got feature 1 twice"),
    "colon missing": (b"1 2 2\n0 1\n", r"line 2: expected a pair `feature:value`, got `1`"),
    "value missing": (b"2 2 2\n0\n0 1:\n", r"line 3: expected a finite number .* after `1:`, got ``"),
    "value a word": (b"1 2 2\n0 1:one\n", r"line 2: expected a finite number .* after `1:`, got `one`"),
    "value with more": (b"1 2 2\n0 1:1;2\n", r"line 2: expected a finite number .* after `1:`, got `1;2`"),
    "value nan": (b"1 2 2\n0 1:nan\n", r"line 2: expected a finite number .*got `nan`"),
    "value infinite": (b"1 2 2\n0 1:-inf\n", r"line 2: expected a finite number .*got `-inf`"),
    "value beyond 32 bits": (
        b"1 2 2\n0 1:1e39\n",
        r"line 2: expected a finite number in the range of 32-bit",
    ),
    "null bytes": (b"1 2 2\n0 1:1\0\0 0:2\n", r"line 2: expected a finite number .*got `1\\0\\0`"),
    "a return within": (b"1 2 2\n0 1:1\r0:1\n", r"line 2: expected a finite number .*got `1\\r0:1`"),
}


@pytest.mark.parametrize("case", MALFORMED)
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_malformed_files_are_told_with_their_line(tmp_path, case, pack):
    text, message = MALFORMED[case]
    with pytest.raises(ValueError, match=r"data\.txt, " + message):
        load(pack(text), tmp_path)


def test_damaged_gzip(tmp_path):
    text = b"3 9 2\n" + b"0 0:1 1:0.25 8:3\n" * 3
    packed = gzip.compress(text)
    for cut in range(10, len(packed)):
        with pytest.raises(
            ValueError, match=r"data\.txt, line \d: expected a valid gzip stream, got a truncated gzip stream"
        ):
            load(packed[:cut], tmp_path)
    flipped = packed[:-6] + bytes([packed[-6] ^ 1]) + packed[-5:]
    with pytest.raises(ValueError, match="damaged gzip stream"):
        load(flipped, tmp_path)
    with pytest.raises(ValueError, match="damaged gzip stream"):
        load(packed + b"what is this doing here?", tmp_path)


def test_gzip_of_several_members(tmp_path):
    X, Y = load(gzip.compress(b"2 3 3\n0,2 0:") + gzip.compress(b"") + gzip.compress(b"1\n1 2:3\n"), tmp_path)
    assert X.toarray().tolist() == [[1, 0, 0], [0, 0, 3]]
    assert Y.toarray().tolist() == [[1, 0, 1], [0, 1, 0]]


def test_paths(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"No such file.*nothing\.txt"):
        load_xc(tmp_path / "nothing.txt")
    with pytest.raises(IsADirectoryError, match=re.escape(str(tmp_path))):
        load_xc(tmp_path)
    with pytest.raises(TypeError, match="PathLike"):
        load_xc(3)
    path = os.fsencode(tmp_path) + b"/latin \xe9.txt.gz"
    dump_xc([[1.0]], [[1]], path)
    with open(path, "rb") as file:
        assert file.read(2) == b"\x1f\x8b"
    for same in (path, os.fsdecode(path), Path(os.fsdecode(path))):
        assert load_xc(same)[0].toarray().tolist() == [[1.0]]


def test_parameters(tmp_path):
    with pytest.raises(ValueError, match="`dtype` must be float32 or float64, got float16"):
        load("0 0 0\n", tmp_path, dtype=np.float16)
    X, Y = load("0 3 2\n", tmp_path)
    assert (X.shape, Y.shape) == ((0, 3), (0, 2))
    X, Y = load("2 0 0\n\n \n", tmp_path)
    assert (X.shape, Y.shape) == ((2, 0), (2, 0))


@pytest.fixture(scope="module")
def long_text():
    """Several blocks of lines of very different lengths."""
    rng = np.random.default_rng(0)
    lines = [f"{n % 50} " + " ".join(f"{j}:{n % 9 + 1}.25" for j in range(n % 90)) for n in range(12000)]
    lines[7000] = "3,4,5 " + " ".join(f"{j}:{v:.7f}" for j, v in enumerate(rng.random(200_000)))
    return "12000 200000 50\n" + "\n".join(lines) + "\n"


def test_threads_change_nothing(tmp_path, long_text):
    assert len(long_text) > 6 << 20
    one = load(long_text, tmp_path, n_jobs=1)
    assert one[0].nnz == sum(n % 90 for n in range(12000) if n != 7000) + 200_000
    for n_jobs in (2, 3, 8):
        for a, b in zip(one, load(long_text, tmp_path, n_jobs=n_jobs), strict=True):
            assert equal(a, b)


@pytest.mark.parametrize("line", [2, 100, 7001, 7003, 11999, 12001])
def test_lines_are_counted_across_blocks(tmp_path, long_text, line):
    lines = long_text.split("\n")
    lines[min(line + 2000, 12000)] = "0 0:y"
    lines[line - 1] = "0 0:x"
    for n_jobs in (1, 3):
        with pytest.raises(ValueError, match=rf"line {line}: .*got `x`"):
            load("\n".join(lines), tmp_path, n_jobs=n_jobs)


def test_empty_lines_at_the_end_take_no_memory(tmp_path):
    resource = pytest.importorskip("resource")  # POSIX only
    text = gzip.compress(b"1 2 2\n0 0:1\n") + gzip.compress(b"\n" * 1_000_000) * 50
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    X, Y = load(text, tmp_path, n_jobs=2)
    assert (X.shape, Y.shape) == ((1, 2), (1, 2))
    kilobytes = 1 if sys.platform != "darwin" else 1 << 10
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < (200 << 10) * kilobytes
    with pytest.raises(ValueError, match=r"line 50000003: expected the end of the file after 1 examples"):
        load(text + gzip.compress(b" "), tmp_path)


def test_a_line_of_many_megabytes(tmp_path):
    d = 1_000_000
    text = f"1 {d} 2\n0,1 " + " ".join(f"{j}:{j % 9 + 1}.25" for j in range(d)) + "\n"
    assert len(text) > 8 << 20  # more than eight blocks of a file
    X, Y = load(text, tmp_path)
    assert np.array_equal(X.indices, np.arange(d))
    assert np.array_equal(X.data, np.float32(np.arange(d) % 9 + 1.25))
    assert Y.toarray().tolist() == [[1, 1]]
    dump_xc(X, Y, tmp_path / "copy.txt")
    assert (tmp_path / "copy.txt").read_text() == text


def test_ctrl_c_stops_reading(tmp_path, interrupt):
    path = tmp_path / "long.txt.gz"
    lines = gzip.compress(b"1,2 3:0.25 4:1 5:0.125 6:0.0001 7:1e-7\n" * 100_000)
    path.write_bytes(gzip.compress(b"100000000 10 10\n") + lines * 400)
    interrupt(0.2)
    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        load_xc(path)


@pytest.mark.parametrize("name", ["kept.txt", "kept.txt.gz"])
def test_ctrl_c_while_writing_loses_nothing(tmp_path, interrupt, name):
    path = tmp_path / name
    dump_xc([[1.0]], [[1]], path)
    before = path.read_bytes()
    n, d = 10_000, 1000
    values = np.tile(np.random.default_rng(0).random(d), n)
    X = sparse.csr_array(
        (values, np.tile(np.arange(d, dtype=np.int32), n), np.arange(n + 1) * d), shape=(n, d)
    )
    Y = sparse.csr_array((n, 1), dtype=np.int8)
    interrupt(0.2)
    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        dump_xc(X, Y, path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == [name]


def test_an_error_while_writing_loses_nothing(tmp_path):
    path = tmp_path / "kept.txt"
    path.write_text("kept")
    X = np.ones((50_000, 5))
    X[-1, -1] = np.nan
    with pytest.raises(ValueError, match="`X` must be finite, got NaN"):
        dump_xc(X, np.ones((50_000, 1)), path)
    assert path.read_text() == "kept"
    assert os.listdir(tmp_path) == ["kept.txt"]


def test_where_files_are_written(tmp_path):
    real, link = tmp_path / "real.txt", tmp_path / "link.txt"
    real.write_text("old")
    link.symlink_to(real)
    dump_xc([[2.0]], [[0]], link)
    assert link.is_symlink()
    assert real.read_text() == "1 1 1\n 0:2\n"
    dump_xc([[2.0]], [[0]], os.devnull)
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
    with pytest.raises(IsADirectoryError, match=re.escape(str(tmp_path))):
        dump_xc([[2.0]], [[0]], tmp_path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        dump_xc([[2.0]], [[0]], tmp_path / "nowhere" / "a.txt")
    mask = os.umask(0o022)
    os.umask(mask)
    dump_xc([[2.0]], [[0]], tmp_path / "new.txt")
    assert stat.S_IMODE((tmp_path / "new.txt").stat().st_mode) == 0o666 & ~mask
    real.chmod(0o600)
    dump_xc([[2.0]], [[0]], real)
    assert stat.S_IMODE(real.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("X", "Y", "message"),
    [
        ([[1.0]], [[1], [0]], "rows of Y: expected 1, got 2"),
        ([[1.0]], [[2]], "Y must contain only 0, 1 and NaN, got 2"),
        ([[1.0]], [[np.inf]], "Y must contain only 0, 1 and NaN, got inf"),
        ([1.0], [[1]], "X must be a 2-D matrix of numbers, got a 1-D array of float64"),
        ([["a"]], [[1]], "X must be a 2-D matrix of numbers, got a 2-D array of <U1"),
        ([[1j]], [[1]], "X must be a 2-D matrix of numbers, got a 2-D array of complex128"),
        ([[1.0]], [["a"]], "Y must be a 2-D matrix of numbers"),
        ([[np.inf]], [[1]], "`X` must be finite, got inf"),
    ],
)
def test_what_cannot_be_written(tmp_path, X, Y, message):
    with pytest.raises(ValueError, match=message):
        dump_xc(X, Y, tmp_path / "data.txt")
    assert os.listdir(tmp_path) == []


def test_callers_matrices_stay_as_they_are(tmp_path):
    X = sparse.csr_array((np.float32([1, 2, 3, 0]), [2, 0, 2, 1], [0, 4]), shape=(1, 3))
    Y = sparse.csc_matrix(np.array([[True, False]]))
    dump_xc(X, Y, tmp_path / "data.txt")
    assert (tmp_path / "data.txt").read_text() == "1 3 2\n0 0:2 2:4\n"
    assert X.indices.tolist() == [2, 0, 2, 1]
    wide = sparse.csr_array(([7], [2], [0, 1]), shape=(1, 3))
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    dump_xc(wide, Y, tmp_path / "data.txt")
    assert (tmp_path / "data.txt").read_text() == "1 3 2\n0 2:7\n"


shapes = st.tuples(st.integers(0, 6), st.integers(0, 7))


@settings(deadline=None)
@given(data=st.data(), dtype=st.sampled_from([np.float32, np.float64]), suffix=st.sampled_from(["", ".gz"]))
def test_round_trip(tmp_path_factory, data, dtype, suffix):
    width = 32 if dtype == np.float32 else 64
    values = st.floats(allow_nan=False, allow_infinity=False, width=width)
    X = data.draw(hnp.arrays(dtype, shapes, elements=st.one_of(st.just(0), values)))
    Y = data.draw(hnp.arrays(np.bool_, (X.shape[0], data.draw(st.integers(0, 5)))))
    path = tmp_path_factory.mktemp("round") / f"trip.txt{suffix}"
    dump_xc(X, sparse.csr_array(Y), path)
    X_read, Y_read = load_xc(path, dtype=dtype)
    assert X_read.dtype == dtype
    np.testing.assert_array_equal(X_read.toarray(), X)
    np.testing.assert_array_equal(Y_read.toarray(), Y)
    assert 0 not in X_read.data


@settings(deadline=None, max_examples=300)
@given(
    header=st.sampled_from([b"", b"2 3 4\n", b"2 3 4\n1,2 0:1 1:2.5\n"]),
    garbage=st.one_of(st.binary(), st.text("0123456789:,. \n\r\t-e+x").map(str.encode)),
)
def test_no_content_is_more_than_a_value_error(read_or_refused, header, garbage):
    read_or_refused(load_xc, "data.txt", header + garbage)


def test_unknown_labels_are_followed_by_a_question_mark(tmp_path):
    path = tmp_path / "unknown.txt"
    path.write_text("3 2 9\n7?,3,1? 0:1\n0? 1:2\n 0:1\n")
    X, Y = load_xc(path)
    expected = np.zeros((3, 9))
    expected[0, 3], expected[0, [1, 7]], expected[1, 0] = 1, np.nan, np.nan
    assert Y.dtype == np.float32
    assert Y.has_sorted_indices
    np.testing.assert_array_equal(Y.toarray(), expected)
    copies = [tmp_path / name for name in ("one.txt", "two.txt", "three.txt.gz")]
    dump_xc(X, Y, copies[0])
    assert copies[0].read_text().splitlines()[1] == "3,1?,7? 0:1"
    dump_xc(X.toarray(), expected, copies[1])
    dump_xc(*load_xc(copies[0]), copies[2])
    assert copies[0].read_text() == copies[1].read_text()
    np.testing.assert_array_equal(load_xc(copies[2])[1].toarray(), expected)


@pytest.mark.parametrize("labels", ["?", "3??", "3,?", "?3", "3 ?", "12?"])
def test_malformed_unknown_labels_are_refused(tmp_path, labels):
    path = tmp_path / "wrong.txt"
    path.write_text(f"1 2 9\n{labels} 0:1\n")
    with pytest.raises(ValueError, match="line 2"):
        load_xc(path)
