"""Files are written as a whole, keep their permissions, and leave no traces of killed processes."""

import errno
import multiprocessing
import os
import random
import signal
import socket
import stat
import time

import numpy as np
import pytest
from sklearn.base import BaseEstimator

from children import forked, forks
from manylabel.aside import written_aside
from manylabel.persistence import load, register, save_model

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="needs POSIX permissions, pipes, locks and signals"),
    forks,
]


@register
class Weights(BaseEstimator):
    def __init__(self, number=0):
        self.number = number

    def fit(self, X, Y):
        raise NotImplementedError


def weights(number, size=10):
    model = Weights(number)
    model.coef_ = np.full(size, number, dtype=np.int32)
    return model


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def temporaries(folder):
    return [path for path in folder.iterdir() if path.name.startswith(".manylabel-")]


# --- existing files


@pytest.mark.parametrize("permissions", [0o600, 0o640, 0o664, 0o444, 0o755])
def test_the_permissions_of_a_file_stay(tmp_path, permissions):
    path = tmp_path / "model"
    path.touch()
    path.chmod(permissions)
    save_model(weights(1), path)
    assert mode(path) == permissions
    assert load(path).number == 1


def test_nobody_reads_a_private_file_while_it_is_written(tmp_path):
    path = tmp_path / "model"
    path.touch(0o600)
    with written_aside(path, "xb") as file:
        assert mode(file.name) == 0o600
        assert path.stat().st_size == 0


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root changes owners")
def test_owner_and_group_of_a_file_stay(tmp_path):
    path = tmp_path / "model"
    path.touch()
    os.chown(path, 1234, 2345)
    save_model(weights(1), path)
    assert (path.stat().st_uid, path.stat().st_gid) == (1234, 2345)


def test_another_group_gets_what_everybody_gets(tmp_path, monkeypatch):
    path = tmp_path / "model"
    path.touch()
    path.chmod(0o664)

    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr(os, "fchown", refuse)
    save_model(weights(1), path)
    assert mode(path) == 0o644


def test_pipes_and_devices_are_refused_and_stay(tmp_path):
    pipe, plug = tmp_path / "pipe", tmp_path / "socket"
    os.mkfifo(pipe)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(plug))
        for path in (pipe, plug, "/dev/null"):
            before = os.stat(path)
            with pytest.raises(OSError, match="must be a regular file or not exist, got a pipe or a device"):
                save_model(weights(1), path)
            assert os.path.samestat(os.stat(path), before)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert temporaries(tmp_path) == []


def save_to_standard_output(pipe):
    os.dup2(pipe.fileno(), 1)
    try:
        save_model(weights(1), "/dev/stdout")
    except OSError as error:
        pipe.send(error.strerror)


@forks
def test_standard_output_is_refused_when_it_is_a_pipe():
    with forked(save_to_standard_output) as (receiver, _):
        assert receiver.recv() == "the path must be a regular file or not exist, got a pipe or a device"


def test_a_link_to_nothing_becomes_one_to_the_file(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere" / "model")
    save_model(weights(3), tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert load(tmp_path / "elsewhere" / "model").number == 3


def test_the_new_name_is_on_the_disk_too(tmp_path, monkeypatch):
    """The file is synced before it is renamed, and its directory afterwards."""
    done = []
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: done.append(stat.S_IFMT(os.fstat(descriptor).st_mode))
    )
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda *names: (done.append("renamed"), replace(*names)))
    save_model(weights(1), tmp_path / "model")
    assert done == [stat.S_IFREG, "renamed", stat.S_IFDIR]


# --- files that are written only once


@pytest.mark.parametrize("links", [True, False], ids=["hard links", "no hard links"])
def test_a_file_that_exists_is_kept_without_replace(tmp_path, monkeypatch, links):
    def refuse(*names):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    for content in ("first", "second"):
        with written_aside(tmp_path / "once", "x", replace=False) as file:
            file.write(content)
    assert (tmp_path / "once").read_text() == "first"
    assert temporaries(tmp_path) == []


def test_a_second_name_of_a_killed_process_is_removed(tmp_path, monkeypatch):
    """Without replacement, a temporary file has two names for a moment."""
    link = os.link

    def killed_after_the_link(*names):
        link(*names)
        os.kill(os.getpid(), signal.SIGKILL)

    def write():
        monkeypatch.setattr(os, "link", killed_after_the_link)
        with written_aside(tmp_path / "once", "x", replace=False) as file:
            file.write("first")

    process = multiprocessing.get_context("fork").Process(target=write)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert (tmp_path / "once").read_text() == "first"
    assert len(temporaries(tmp_path)) == 1
    save_model(weights(1), tmp_path / "model")
    assert temporaries(tmp_path) == []
    assert (tmp_path / "once").read_text() == "first"


# --- temporary files of killed processes


def test_what_nobody_writes_is_removed_by_the_next_save(tmp_path):
    for name in (".manylabel-0123456789abcdef.tmp", ".manylabel-fedcba9876543210.tmp"):
        (tmp_path / name).write_bytes(bytes(1000))
    (tmp_path / ".manylabel-mine.txt").touch()
    os.mkfifo(tmp_path / ".manylabel-0000000000000000.tmp")  # a save must not wait for it
    (tmp_path / ".manylabel-1111111111111111.tmp").symlink_to(tmp_path / "precious")
    (tmp_path / "precious").touch()
    save_model(weights(1), tmp_path / "model")
    kept = {path.name for path in tmp_path.iterdir()}
    assert {"model", "precious", ".manylabel-mine.txt"} <= kept
    assert not {".manylabel-0123456789abcdef.tmp", ".manylabel-fedcba9876543210.tmp"} & kept


def test_what_is_being_written_stays(tmp_path):
    with written_aside(tmp_path / "first", "xb") as file:
        file.write(b"one")
        for number in range(3):
            save_model(weights(number), tmp_path / "second")
        assert len(temporaries(tmp_path)) == 1
    assert (tmp_path / "first").read_bytes() == b"one"
    assert load(tmp_path / "second").number == 2
    assert temporaries(tmp_path) == []


def test_a_temporary_that_was_taken_for_left_is_made_again(tmp_path, monkeypatch):
    """Between the creation of a file and its lock another process may remove it."""
    from manylabel import aside

    lock, removed = aside._lock, []

    def late(descriptor, *, unsupported):
        if unsupported and not removed:
            removed.extend(temporaries(tmp_path))
            removed[0].unlink()
        return lock(descriptor, unsupported=unsupported)

    monkeypatch.setattr(aside, "_lock", late)
    save_model(weights(5), tmp_path / "model")
    assert len(removed) == 1
    assert load(tmp_path / "model").number == 5


def save_for_ever(path, number, size):
    while True:
        save_model(weights(number, size), path)


def assert_whole(path, numbers, size):
    model = load(path)
    assert model.number in numbers
    assert model.coef_.shape == (size,)
    assert (model.coef_ == model.number).all()


def test_kills_tear_no_file_and_leave_one_temporary_at_most(tmp_path, request):
    kills = 300 if request.config.getoption("--fuzz-cases", default=None) else 15
    rng, size = random.Random(0), 1 << 20
    path = tmp_path / "model"
    save_model(weights(-1, size), path)
    context = multiprocessing.get_context("fork")
    left = number = 0
    # A busy machine may start the writer late, so that no kill comes during a write.
    while number < kills or (left == 0 and number < 20 * kills):
        process = context.Process(target=save_for_ever, args=(path, number, size))
        process.start()
        time.sleep(rng.uniform(0.0, 0.05))
        process.kill()
        process.join()
        assert_whole(path, range(-1, number + 1), size)
        left = max(left, len(temporaries(tmp_path)))
        assert left <= 1
        number += 1
    assert left == 1  # at least one kill came during a write
    save_model(weights(number, size), path)
    assert temporaries(tmp_path) == []


def save_often(path, number, size, times):
    for _ in range(times):
        save_model(weights(number, size), path)


def test_processes_that_save_to_one_place(tmp_path):
    """Each save succeeds, and the file is complete at any time."""
    path, size = tmp_path / "model", 1 << 17
    save_model(weights(0, size), path)
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=save_often, args=(path, number, size, 40)) for number in (1, 2, 3)]
    killed = context.Process(target=save_for_ever, args=(path, 4, size))
    for process in (*writers, killed):
        process.start()
    while any(process.is_alive() for process in writers):
        assert_whole(path, range(5), size)
        if killed.is_alive():
            killed.kill()
    killed.join()
    assert [process.exitcode for process in writers] == [0, 0, 0]
    save_model(weights(0, size), path)
    assert temporaries(tmp_path) == []
