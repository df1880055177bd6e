"""Files that are there as a whole or not at all.

A file is written beside its place under a temporary name and renamed when all of it is on the disk. The
writer holds a lock on the temporary as long as it lives, and the system drops that lock with the process,
however it ends. So a temporary that nobody has locked was left by a process that was killed, and the next
save in the directory removes it. Two processes that save to one place do not wait for each other: each has
a temporary of its own, and the last one renamed stays.

Windows has no such locks; but what is open cannot be removed there. Temporaries are closed a moment before
they are renamed, so that only those of yesterday are taken for left.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

if sys.platform != "win32":
    import fcntl

__all__ = ["written_aside"]

_A_DAY = 24 * 60 * 60


@contextmanager
def written_aside(path: Path, mode: str, **options: Any) -> Iterator[IO[Any]]:
    """Open a file that appears at `path` only when all of it is written and on the disk.

    Parameters
    ----------
    path : Path
        Where to; a symbolic link is followed. What is there stays until then, and for good if anything fails.
        The new file has its permissions, and its owner and group if the process may give them.
    mode : str
        As in `open`, of the "x" kind: what is opened is a new file in the same directory.
    **options
        As in `open`.

    Yields
    ------
    file
        Open for writing.

    Raises
    ------
    OSError
        If the file cannot be written, or `path` is there and is no regular file: renaming would replace a
        pipe or a device, which others have open.
    """
    replaced = _regular_file(path)
    path = Path(os.path.realpath(path))
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path.parent))
    _remove_left(path.parent)
    # Until it is complete, nobody else reads what takes the place of a file that only some may read.
    file = _new_file(path.parent, mode, 0o666 if replaced is None else 0o600, options)
    temporary = Path(file.name)
    try:
        with file:
            yield file
            file.flush()
            if replaced is not None:
                _give_permissions(file.fileno(), replaced)
            os.fsync(file.fileno())
            if sys.platform != "win32":
                os.replace(temporary, path)  # while it is locked
        if sys.platform == "win32":
            os.replace(temporary, path)  # what is open cannot be renamed
        _sync_directory(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _regular_file(path: Path) -> os.stat_result | None:
    """Return the status of the file to replace; None if there is none."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "expected a regular file or nothing, got a pipe or a device", str(path))
    return status


def _new_file(folder: Path, mode: str, permissions: int, options: dict[str, Any]) -> IO[Any]:
    """Open a new temporary and lock it."""

    def create(name: str, flags: int) -> int:
        return os.open(name, flags, permissions)

    # In the directory of its place, or renaming would be copying. Not `tempfile`, whose files only the owner
    # may read, whatever the umask.
    while True:
        temporary = folder / f".manylabel-{secrets.token_hex(8)}.tmp"
        file = open(temporary, mode, opener=create, **options)  # noqa: SIM115  the caller closes it
        # Another process may have taken it for left, before it was locked.
        if _lock(file.fileno(), unsupported=True) and _is_at(temporary, file.fileno()):
            return file
        file.close()
        temporary.unlink(missing_ok=True)


def _remove_left(folder: Path) -> None:
    """Remove the temporaries of processes that were killed."""
    for left in folder.glob(".manylabel-*.tmp"):
        # Another process may be quicker; and not all that is there is ours to remove.
        with suppress(OSError):
            if sys.platform == "win32":
                if left.stat().st_mtime < time.time() - _A_DAY:
                    left.unlink()
                continue
            # Not for longer than a moment, whatever it is: no link is followed, no pipe waited for.
            descriptor = os.open(left, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                if _lock(descriptor, unsupported=False) and _is_at(left, descriptor):
                    left.unlink()
            finally:
                os.close(descriptor)


def _lock(descriptor: int, *, unsupported: bool) -> bool:
    """Lock a file until it is closed, unless another process has; `unsupported` where nothing locks."""
    if sys.platform == "win32":
        return unsupported
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return unsupported
    return True


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _give_permissions(descriptor: int, replaced: os.stat_result) -> None:
    """Let a new file be read and written by those who could read and write the old one."""
    if sys.platform == "win32":
        return
    permissions = stat.S_IMODE(replaced.st_mode)
    try:
        os.fchown(descriptor, replaced.st_uid, replaced.st_gid)
    except PermissionError:
        try:
            os.fchown(descriptor, -1, replaced.st_gid)
        except PermissionError:
            # The group is another now: it gets what everybody gets.
            permissions = permissions & ~stat.S_IRWXG | (permissions & stat.S_IRWXO) << 3
    os.fchmod(descriptor, permissions)


def _sync_directory(folder: Path) -> None:
    """See to it that a new name is on the disk as well, where directories can be synced."""
    if sys.platform == "win32":
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except PermissionError:  # of a directory that may be written but not read
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
