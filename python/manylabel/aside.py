"""Files that are written completely or not at all.

A file is written under a temporary name in the same directory, and renamed when all of it is on the disk.
The writer holds a lock on the temporary file, which the system releases when the process ends, however it
ends. A temporary file without a lock was therefore left by a killed process, and the next save in the
directory removes it. Two processes that save to the same path do not wait for each other: each has its own
temporary file, and the last one renamed remains.

Windows has no such locks, but open files cannot be removed there. Temporary files are closed shortly before
they are renamed, so only those that are a day old are removed.
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
    """Open a file that appears at `path` only when all of it is on the disk.

    Parameters
    ----------
    path : Path
        The file to write; symbolic links are followed. An existing file is replaced at the end, and kept if
        anything fails. The new file gets its permissions, and its owner and group if the process may set
        them.
    mode : str
        As in `open`, with "x": a new file in the same directory is opened.
    **options
        As in `open`.

    Yields
    ------
    file
        Open for writing.

    Raises
    ------
    OSError
        If the file cannot be written, or `path` exists and is not a regular file: renaming would replace a
        pipe or a device.
    """
    replaced = _regular_file(path)
    path = Path(os.path.realpath(path))
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path.parent))
    _remove_left(path.parent)
    # A replacement stays private until it has the permissions of the old file.
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
            os.replace(temporary, path)  # open files cannot be renamed
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
    """Open a new temporary file and lock it."""

    def create(name: str, flags: int) -> int:
        return os.open(name, flags, permissions)

    # In the directory of the target, since renaming works within a file system only. Not `tempfile`, which
    # ignores the umask and makes files that only the owner may read.
    while True:
        temporary = folder / f".manylabel-{secrets.token_hex(8)}.tmp"
        file = open(temporary, mode, opener=create, **options)  # noqa: SIM115  the caller closes it
        # Before it was locked, another process may have removed it as a leftover.
        if _lock(file.fileno(), unsupported=True) and _is_at(temporary, file.fileno()):
            return file
        file.close()
        temporary.unlink(missing_ok=True)


def _remove_left(folder: Path) -> None:
    """Remove the temporary files of killed processes."""
    for left in folder.glob(".manylabel-*.tmp"):
        # Another process may be faster, and some files may not be removable.
        with suppress(OSError):
            if sys.platform == "win32":
                if left.stat().st_mtime < time.time() - _A_DAY:
                    left.unlink()
                continue
            # Never blocks: no link is followed and no pipe is waited for.
            descriptor = os.open(left, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                if _lock(descriptor, unsupported=False) and _is_at(left, descriptor):
                    left.unlink()
            finally:
                os.close(descriptor)


def _lock(descriptor: int, *, unsupported: bool) -> bool:
    """Lock a file until it is closed, unless another process has; return `unsupported` without locks."""
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
    """Give a new file the permissions, owner and group of the old one, as far as allowed."""
    if sys.platform == "win32":
        return
    permissions = stat.S_IMODE(replaced.st_mode)
    try:
        os.fchown(descriptor, replaced.st_uid, replaced.st_gid)
    except PermissionError:
        try:
            os.fchown(descriptor, -1, replaced.st_gid)
        except PermissionError:
            # The group is a different one, which gets the permissions of others.
            permissions = permissions & ~stat.S_IRWXG | (permissions & stat.S_IRWXO) << 3
    os.fchmod(descriptor, permissions)


def _sync_directory(folder: Path) -> None:
    """Flush the new name to the disk as well, where directories can be synced."""
    if sys.platform == "win32":
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except PermissionError:  # the directory may be writable but not readable
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
