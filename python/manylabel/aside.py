"""Writing of files that appear completely or not at all.

A file is first written under a temporary name in the same directory. It is renamed when all its content is on
the disk. While a process writes, it holds a lock on the temporary file. The operating system releases the
lock when the process ends, even if it is killed. A temporary file without a lock therefore belongs to a
process that was killed, and the next save in the directory removes the file. Two processes that save to the
same path do not wait for each other. Each process has its own temporary file, and the file that is renamed
last remains.

Windows does not have these locks, but open files cannot be removed there. Temporary files are closed shortly
before they are renamed. On Windows, a save therefore removes only temporary files that are at least a day
old.
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
    """Open a file for writing. It appears at `path` only when all its content is on the disk.

    Parameters
    ----------
    path : Path
        The file to write. Symbolic links are followed. If the file exists, it is replaced at the end, and it
        is kept if anything fails. The new file gets the permissions of the old file. It also gets the owner
        and group of the old file if the process may set them.
    mode : str
        The mode of `open` for the temporary file. It must contain "x", since the temporary file is new.
    **options
        Further keyword arguments of `open`, such as ``encoding``.

    Yields
    ------
    file
        The temporary file, open for writing.

    Raises
    ------
    OSError
        If the file cannot be written, or if `path` is a pipe, a device or a directory. Renaming the temporary
        file would replace a pipe or a device.
    """
    replaced = _regular_file(path)
    path = Path(os.path.realpath(path))
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path.parent))
    _remove_left(path.parent)
    # Until the new file has the permissions of the old file, only its owner can read it.
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
                os.replace(temporary, path)  # the file is still locked here
        if sys.platform == "win32":
            os.replace(temporary, path)  # open files cannot be renamed
        _sync_directory(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _regular_file(path: Path) -> os.stat_result | None:
    """Return the status of the file that will be replaced, or None if there is no such file."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(
            errno.EINVAL, "the path must be a regular file or not exist, got a pipe or a device", str(path)
        )
    return status


def _new_file(folder: Path, mode: str, permissions: int, options: dict[str, Any]) -> IO[Any]:
    """Open a new temporary file and lock it."""

    def create(name: str, flags: int) -> int:
        return os.open(name, flags, permissions)

    # The file is created in the directory of the target, since a file cannot be renamed to another file
    # system. The module `tempfile` is not used, because it ignores the umask and makes files that only the
    # owner can read.
    while True:
        temporary = folder / f".manylabel-{secrets.token_hex(8)}.tmp"
        file = open(temporary, mode, opener=create, **options)  # noqa: SIM115  the caller closes it
        # Before the file was locked, another process may have taken it for the file of a killed process and
        # removed it.
        if _lock(file.fileno(), unsupported=True) and _is_at(temporary, file.fileno()):
            return file
        file.close()
        temporary.unlink(missing_ok=True)


def _remove_left(folder: Path) -> None:
    """Remove the temporary files of killed processes."""
    for left in folder.glob(".manylabel-*.tmp"):
        # Another process may have removed the file already, or this process may not be allowed to remove it.
        with suppress(OSError):
            if sys.platform == "win32":
                if left.stat().st_mtime < time.time() - _A_DAY:
                    left.unlink()
                continue
            # These flags follow no symbolic link and wait for no pipe, so opening never blocks.
            descriptor = os.open(left, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                if _lock(descriptor, unsupported=False) and _is_at(left, descriptor):
                    left.unlink()
            finally:
                os.close(descriptor)


def _lock(descriptor: int, *, unsupported: bool) -> bool:
    """Lock a file until it is closed.

    Returns whether the file was locked: False if another process has locked it, and `unsupported` if the
    system has no locks.
    """
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
    """Give a new file the permissions, owner and group of the old file, as far as the process may."""
    if sys.platform == "win32":
        return
    permissions = stat.S_IMODE(replaced.st_mode)
    try:
        os.fchown(descriptor, replaced.st_uid, replaced.st_gid)
    except PermissionError:
        try:
            os.fchown(descriptor, -1, replaced.st_gid)
        except PermissionError:
            # The new file has another group than the old file. This group gets the permissions of other
            # users.
            permissions = permissions & ~stat.S_IRWXG | (permissions & stat.S_IRWXO) << 3
    os.fchmod(descriptor, permissions)


def _sync_directory(folder: Path) -> None:
    """Flush the directory, and so the new name of the file, to the disk if the system supports this."""
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
