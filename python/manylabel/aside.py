"""Functions to write files atomically (completely or not at all), to read or write arrays, and to lock files.

`written_aside` first writes the content to a temporary file in the same directory. When all content is on the
disk, the temporary file is renamed to the final name. Two processes can write to the same path at the same
time. Each process has its own temporary file. By default, the file that is renamed last replaces the other
file. With ``replace=False``, the first file is kept.

A process locks its temporary file while it writes. The operating system releases the lock when the process
ends, even if the process is killed. If a temporary file has no lock, the process that wrote it was killed.
The next call of `written_aside` for the same directory removes such a file.

Windows does not have these locks. An open file does not need a lock there, because Windows does not let any
process remove an open file. However, `written_aside` must close the temporary file before it renames the
file. Between these two steps, another process could remove the file. On Windows, `written_aside` therefore
removes only temporary files that are at least a day old.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

if sys.platform != "win32":
    import fcntl

__all__ = ["locked", "read_arrays", "write_arrays", "written_aside"]

_A_DAY = 24 * 60 * 60


@contextmanager
def written_aside(path: Path, mode: str, *, replace: bool = True, **options: Any) -> Iterator[IO[Any]]:
    """Open a temporary file, which is renamed to `path` when all its content is on the disk.

    Parameters
    ----------
    path : Path
        The file to write. Symbolic links are followed. By default, the temporary file replaces an existing
        file at the end. If anything fails, the old file is kept. The new file gets the permissions of the old
        file. The new file also gets the owner and group of the old file if the process is allowed to set
        them.
    mode : str
        The mode of `open` for the temporary file. The mode must contain "x" (exclusive creation), since the
        temporary file is always a new file.
    replace : bool, default=True
        What to do if `path` exists when the temporary file is complete. If True, the new file replaces the
        existing file. If False, the existing file is kept, and the new content is discarded.
    **options
        Further keyword arguments of `open`, such as ``encoding``.

    Yields
    ------
    file
        The temporary file, open for writing.

    Raises
    ------
    OSError
        If the file cannot be written, or if `path` is a pipe, a device or a directory. A pipe or a device is
        not accepted, because the rename would replace it with a regular file.
    """
    replaced = _regular_file(path)
    path = Path(os.path.realpath(path))
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path.parent))
    _remove_left(path.parent)
    # Only the owner can read the new file until it has the permissions of the old file.
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
                _rename(temporary, path, replace)  # the file is still locked here
        if sys.platform == "win32":
            _rename(temporary, path, replace)  # open files cannot be renamed
        _sync_directory(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_arrays(path: Path, arrays: dict[str, Any], *, replace: bool = True) -> None:
    """Write named arrays and numpy scalars to a ``.npz`` file. The file is opened with `written_aside`."""
    with written_aside(path, "xb", replace=replace) as file:
        np.savez(file, **arrays)


def read_arrays(path: Path) -> dict[str, Any] | None:
    """Return the arrays of a ``.npz`` file by name, or None if the file does not exist.

    Raises
    ------
    ValueError
        If the file is damaged.
    """
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except FileNotFoundError:
        return None
    except (ValueError, zipfile.BadZipFile, EOFError, OSError) as error:
        raise ValueError(
            f"{path}: the file is damaged ({error}); delete it and call `shards.fit` again"
        ) from None


@contextmanager
def locked(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Lock a file while the body of a ``with`` statement runs.

    If another process has locked the file, the function waits or raises an error, depending on `wait`. The
    operating system releases the lock when the process ends, even if the process is killed. The file itself
    is not removed. On Windows, and on file systems without locks, nothing is locked.

    Parameters
    ----------
    path : Path
        The file to lock. It is created if it does not exist.
    wait : bool, default=False
        Whether to wait if another process has locked the file.

    Raises
    ------
    BlockingIOError
        If another process has locked the file, and `wait` is False.
    OSError
        If the file cannot be created.
    """
    with open(path, "ab") as file:
        if wait and sys.platform != "win32":
            with suppress(OSError):  # the file system may not support locks
                fcntl.flock(file.fileno(), fcntl.LOCK_EX)
        elif not _lock(file.fileno(), unsupported=True):
            raise BlockingIOError(
                errno.EWOULDBLOCK,
                "another process has locked this file and is writing to the folder of this file",
                str(path),
            )
        yield


def _regular_file(path: Path) -> os.stat_result | None:
    """Return the result of `os.stat` for the file at `path`, or None if `path` does not exist.

    An OSError is raised if `path` is a directory, a pipe or a device.
    """
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

    # The file is created in the directory of the target, since a file cannot be moved to another file system
    # by renaming. The module `tempfile` is not used, because only the owner can read its files.
    while True:
        temporary = folder / f".manylabel-{secrets.token_hex(8)}.tmp"
        file = open(temporary, mode, opener=create, **options)  # noqa: SIM115  the caller closes it
        # Another process may have removed the file before it was locked. An unlocked file looks like a file
        # that a killed process left.
        if _lock(file.fileno(), unsupported=True) and _is_at(temporary, file.fileno()):
            return file
        file.close()
        temporary.unlink(missing_ok=True)


def _rename(temporary: Path, path: Path, replace: bool) -> None:
    """Rename `temporary` to `path`. With ``replace=False``, if `path` exists, remove `temporary` instead."""
    if not replace:
        try:
            os.link(temporary, path)  # unlike a rename, this fails if the file exists
        except FileExistsError:
            pass
        except OSError:  # a file system without hard links
            replace = not path.exists()
    if replace:
        os.replace(temporary, path)
    else:
        temporary.unlink()


def _remove_left(folder: Path) -> None:
    """Remove the temporary files of killed processes from a directory."""
    for left in folder.glob(".manylabel-*.tmp"):
        # Another process may have removed the file already, or this process may not be allowed to remove it.
        with suppress(OSError):
            if sys.platform == "win32":
                if left.stat().st_mtime < time.time() - _A_DAY:
                    left.unlink()
                continue
            # With these flags, `os.open` does not follow symbolic links and does not wait for pipes.
            descriptor = os.open(left, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                if _lock(descriptor, unsupported=False) and _is_at(left, descriptor):
                    left.unlink()
            finally:
                os.close(descriptor)


def _lock(descriptor: int, *, unsupported: bool) -> bool:
    """Lock a file until it is closed, and return whether this succeeded.

    The result is False if another process has locked the file. If the system does not support locks, the
    result is the argument `unsupported`.
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
    """Give a new file the permissions of the old file that it will replace.

    The new file also gets the owner and the group of the old file if the process is allowed to set them.
    """
    if sys.platform == "win32":
        return
    permissions = stat.S_IMODE(replaced.st_mode)
    try:
        os.fchown(descriptor, replaced.st_uid, replaced.st_gid)
    except PermissionError:
        try:
            os.fchown(descriptor, -1, replaced.st_gid)
        except PermissionError:
            # The group of the old file cannot be set. The group of the new file then gets the permissions
            # that all other users have.
            permissions = permissions & ~stat.S_IRWXG | (permissions & stat.S_IRWXO) << 3
    os.fchmod(descriptor, permissions)


def _sync_directory(folder: Path) -> None:
    """Flush a directory to the disk, so that the new name of a file is on the disk.

    Nothing happens if the system does not support this.
    """
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
