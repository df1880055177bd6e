"""Very long lines: files without newlines are refused in bounded memory, and merely long lines are read."""

import gzip
import os

import pytest

from manylabel.datasets import load_arff, load_xc

LONGEST = 256 << 20
BLANKS = gzip.compress(b" " * (1 << 20))


def refused(line):
    return pytest.raises(
        ValueError, match=rf"line {line}: expected lines of at most {LONGEST} bytes, got a longer line"
    )


def write(path, *members, length=None):
    path.write_bytes(b"".join(members))
    if length is not None:
        os.truncate(path, length)  # a hole, which takes no space
    return path


@pytest.mark.parametrize(("n_jobs", "head", "line"), [(1, b"", 1), (2, b"3 2 2\n0 0:1\n1", 3)])
def test_a_file_with_a_hole(tmp_path, n_jobs, head, line):
    with refused(line):
        load_xc(write(tmp_path / "data.txt", head, length=10 << 30), n_jobs=n_jobs)


def test_an_arff_file_with_a_hole(tmp_path):
    path = tmp_path / "data.arff"
    head = b"@relation 'r: -C 1'\n@attribute a {0,1}\n@attribute x numeric\n@data\n"
    with refused(5):
        load_arff(write(path, head, length=10 << 30))
    write(path, head)
    with refused(2):
        load_arff(path, write(tmp_path / "labels.xml", b"<labels>\n", length=10 << 30))


def test_a_packed_line_without_end(tmp_path):
    path = write(tmp_path / "data.txt", gzip.compress(b"1 2 2\n0 0:1"), BLANKS * 600)
    assert path.stat().st_size < 1 << 20
    with refused(2):
        load_xc(path)


def test_the_longest_line(tmp_path):
    start = b"0 0:1"
    head, blanks = gzip.compress(b"2 2 2\n" + start), BLANKS * (LONGEST // (1 << 20) - 1)
    rest = b" " * ((1 << 20) - len(start))
    X, _ = load_xc(write(tmp_path / "data.txt", head, blanks, gzip.compress(rest + b"\n1 1:1\n")))
    assert X.toarray().tolist() == [[1, 0], [0, 1]]
    with refused(2):
        load_xc(write(tmp_path / "data.txt", head, blanks, gzip.compress(rest + b" \n1 1:1\n")))
