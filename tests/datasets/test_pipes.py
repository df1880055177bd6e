"""Pipes are read like files, and Ctrl-C ends the wait for a pipe without data."""

import gzip
import os
import sys
import threading
from pathlib import Path
from time import monotonic, sleep

import pytest

from manylabel.datasets import load_arff, load_xc

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs named pipes of POSIX")
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc or the pipes of Linux")

XC = b"2 3 2\n0 0:1 2:0.5\n1 1:2\n"
ARFF = b"@relation 'r: -C 1'\n@attribute a {0,1}\n@attribute x numeric\n@data\n1,2\n0,3\n"
XML = b'<labels><label name="a"/></labels>'


@pytest.fixture
def pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def arff_with_xml(pipe):
    path = pipe.with_name("data.arff")
    path.write_bytes(ARFF)
    return load_arff(path, pipe)


READERS = {"xc": (load_xc, XC), "arff": (load_arff, ARFF), "xml": (arff_with_xml, XML)}
readers = pytest.mark.parametrize(("load", "text"), READERS.values(), ids=READERS)


def stops_at_ctrl_c(interrupt, load, path):
    interrupt(0.2)
    started = monotonic()
    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        load(path)
    assert monotonic() - started < 1.2


@readers
def test_nobody_writes(pipe, interrupt, load, text):
    stops_at_ctrl_c(interrupt, load, pipe)


@readers
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize("share", [0, 0.5, 1], ids=["nothing", "half", "all"])
def test_a_writer_falls_silent(pipe, interrupt, load, text, pack, share):
    text = pack(text)
    with open(pipe, "r+b", buffering=0) as writer:  # "r+" does not wait for a reader
        writer.write(text[: int(share * len(text))])
        stops_at_ctrl_c(interrupt, load, pipe)


@linux_only
def test_no_thread_is_left_waiting(pipe, interrupt):
    before = len(os.listdir("/proc/self/task"))
    for _ in range(3):
        stops_at_ctrl_c(interrupt, load_xc, pipe)
    # A pool does not wait for its threads to end, so on a loaded machine some end later.
    deadline = monotonic() + 30
    while len(os.listdir("/proc/self/task")) > before and monotonic() < deadline:
        sleep(0.05)
    assert len(os.listdir("/proc/self/task")) <= before


def write_slowly(pipe, text):
    with open(pipe, "wb", buffering=0) as writer:
        for start in range(0, len(text), 20):
            sleep(0.06)
            writer.write(text[start : start + 20])


@readers
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_slow_text_is_read_as_from_a_file(pipe, load, text, pack):
    writer = threading.Thread(target=write_slowly, args=(pipe, pack(text)))
    writer.start()
    found = load(pipe)
    writer.join()
    path = pipe.with_name("file")
    path.write_bytes(text)
    for a, b in zip(found, load(path), strict=True):
        assert (a != b).sum() == 0


def test_a_pipe_of_many_megabytes(pipe):
    n = 300_000
    rows = b"".join(b"%d 1:%d 7:0.25\n" % (row % 3, row + 1) for row in range(n))
    text = b"%d 9 3\n" % n + rows
    assert len(text) > 4 << 20
    writer = threading.Thread(target=pipe.write_bytes, args=(text,))
    writer.start()
    X, _ = load_xc(pipe)
    writer.join()
    assert X[:, [1]].toarray().ravel().tolist() == list(range(1, n + 1))


@linux_only
def test_a_writer_that_has_nothing_to_say(pipe):
    writer = threading.Thread(target=pipe.write_bytes, args=(b"",))
    writer.start()
    with pytest.raises(ValueError, match=r"line 1: expected .*, got an empty file"):
        load_xc(pipe)
    writer.join()


@linux_only
def test_pipes_without_a_name(interrupt):
    reader, writer = os.pipe()
    try:
        stops_at_ctrl_c(interrupt, load_xc, f"/dev/fd/{reader}")
        os.write(writer, XC)
        os.close(writer)
        assert load_xc(f"/dev/fd/{reader}")[0].toarray().tolist() == [[1, 0, 0.5], [0, 2, 0]]
        # Reading from the pipe does not change its blocking mode for other users.
        assert os.get_blocking(reader)
    finally:
        os.close(reader)


def test_devices():
    with pytest.raises(ValueError, match=r"null, line 1: expected .*, got an empty file"):
        load_xc(os.devnull)
    if Path("/dev/zero").exists():
        with pytest.raises(ValueError, match=r"zero, line 1: expected lines of at most \d+ bytes"):
            load_xc("/dev/zero")
