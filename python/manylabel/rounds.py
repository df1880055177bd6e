"""Fits that consist of many rounds. Several processes can share such a fit through a common folder.

The fits of some estimators consist of many rounds. For example, a round computes a gradient and then takes a
step along the gradient. Most rounds are so short that writing a file for each would take longer than the
round. The state of the fit is therefore stored only from time to time. A fit that is started again continues
from the last stored state. The result does not depend on when states are stored.

If several processes fit the same model, they share the work of long rounds. The computation of a long round
is divided into pieces. Each process has the complete state, computes some of the pieces, and writes the
results to the folder. When the results of all pieces are available, each process takes the step of the round.
All processes take the same step. A process never waits long: if the results of another process are late, the
waiting process computes the missing pieces itself.

With ``n_pieces="auto"`` (see `SharedRounds`), short rounds are not shared, because an exchange of files would
take longer than the round. Each process then computes the short rounds completely. If `n_pieces` is an
integer, short rounds can be shared, too.

The subfolder ``rounds`` has the states that were stored last, such as ``state-00000120.npz``. It also has the
results of each shared round after the last stored state, in files such as ``00000121/0-0.bin``. The subfolder
is removed at the end of the fit.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from manylabel import _core
from manylabel.aside import read_arrays, write_arrays
from manylabel.estimator.pieces import Rounds
from manylabel.estimator.progress import Tell

__all__ = ["SharedRounds", "SumOfJobs"]

# Least number of seconds between two stored states. Storing takes at most a twentieth of the time.
_SECONDS = 5.0
_SHARE_OF_STORING = 0.05

# With an automatic number of pieces, a round with fewer multiplications per thread is not shared. A thread
# needs about 40 ms for this number, and an exchange of files on a local disk takes less than 10 ms.
_LEAST_WORK = 3e8

# With an automatic number of pieces, a shared round has at most this number of pieces.
_MOST_PIECES = 16

# Seconds to wait for other processes, in addition to twice the time of the own part.
_PATIENCE = 0.1

# A process whose results have been late in this number of successive rounds is not waited for.
_MOST_LATE = 2

# Seconds between two looks for results of other processes.
_POLL = 0.001


class SumOfJobs:
    """Reports the total work of several jobs, which run one after the other.

    A job is a part of the fit, such as a call of the Rust core. Each job counts its own work from 0.
    """

    def __init__(self, report: Tell) -> None:
        self._report = report
        self._before = self._done = 0

    def __call__(self, done: int) -> None:
        """Report the total work so far. `done` is the work that the current job has done so far."""
        self._done = self._before + done
        self._report(self._done)

    def restart(self) -> SumOfJobs:
        """Begin the next job."""
        self._before = self._done
        return self


class SharedRounds:
    """Carries out the rounds of a fit, alone or together with other processes that use the same folder.

    Parameters
    ----------
    folder : Path
        The folder of the fit.
    end : Path
        The file for the result of the fit. If this file exists, another process has ended the fit.
    fit : Rounds
        The object that computes the rounds of the fit.
    share : tuple of two int
        ``(i, N)`` for the i-th of N processes that share the rounds.
    n_pieces : int or "auto"
        Largest number of pieces of a shared round. With "auto", this number is 16, and short rounds are not
        shared.
    """

    def __init__(
        self,
        folder: Path,
        end: Path,
        fit: Rounds,
        share: tuple[int, int],
        n_pieces: int | Literal["auto"],
    ) -> None:
        self._folder, self._end, self._fit = folder / "rounds", end, fit
        self._me, self._n_processes = share[0] - 1, share[1]
        self._n_pieces = _MOST_PIECES if isinstance(n_pieces, str) else n_pieces
        least = _LEAST_WORK * fit.n_threads if isinstance(n_pieces, str) else 0.0
        self._least = least if self._n_processes > 1 else float("inf")
        # The first states of several processes are stored at different times. Later, only one process stores.
        self._due = time.monotonic() + _SECONDS + self._me
        # The number of rounds of the newest state that this process has stored or seen.
        self._newest = -1
        # For each process, the number of successive rounds in which its results were late. At first, no
        # process is waited for, because it may not have started.
        self._n_late = [_MOST_LATE] * self._n_processes

    def run(self, tell: SumOfJobs) -> bool:
        """Carry out all rounds, starting from the last stored state.

        Returns
        -------
        bool
            True if this process has reached the end of the last round. False if another process has already
            stored the result of the fit. This process then skips the rounds that are left.
        """
        _make(self._folder)
        self._continue(tell)
        while not self._end.exists():
            left = self._due - time.monotonic()
            self._fit.advance(self._least, max(left, 0.0), tell.restart())
            if self._fit.n_units == 0:
                return True
            if time.monotonic() >= self._due:
                try:
                    self._store()
                except FileNotFoundError:
                    # The process that ends the fit removes the folder of states.
                    if not self._end.exists():
                        raise
            elif self._n_processes > 1 and not self._continue(tell):
                self._share(tell)
        return False

    def remove(self) -> None:
        """Remove the states and results after the end of the fit."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _states(self) -> list[tuple[int, Path]]:
        """Return a pair for each stored state, oldest first: the number of finished rounds, and the path."""
        return sorted((int(path.stem.split("-")[1]), path) for path in self._folder.glob("state-*.npz"))

    def _continue(self, tell: SumOfJobs) -> bool:
        """Restore the newest stored state if it is newer than the current state.

        Return whether a state was restored.
        """
        for number, path in reversed(self._states()):
            if number <= self._fit.n_rounds:
                break
            # Another process may have replaced the state by a newer one.
            if (arrays := read_arrays(path)) is not None:
                self._fit.restore(arrays["state"], tell.restart())
                self._newest = number
                return True
        return False

    def _store(self) -> None:
        """Store the current state and remove older states.

        A state with more rounds is newer. `_newest` is the largest number of rounds of a state that this
        process has stored or seen. If the folder has a state with more rounds than `_newest`, another process
        has stored that state. In this case, the current state is not stored.
        """
        begun = time.monotonic()
        states = self._states()
        if states and states[-1][0] > self._newest:
            self._newest = states[-1][0]
        else:
            self._newest = self._fit.n_rounds
            path = self._folder / f"state-{self._newest:08}.npz"
            write_arrays(path, {"state": self._fit.state()})
        for number, path in states:
            if number < self._newest:
                path.unlink(missing_ok=True)
        for path in self._folder.glob("[0-9]*"):
            if int(path.name) < self._newest:
                shutil.rmtree(path, ignore_errors=True)
        now = time.monotonic()
        self._due = now + max(_SECONDS, (now - begun) / _SHARE_OF_STORING)

    def _share(self, tell: SumOfJobs) -> None:
        """Carry out the next round together with the other processes."""
        fit, folder = self._fit, self._folder / f"{self._fit.n_rounds:08}"
        n_pieces = min(self._n_pieces, fit.n_units)
        units = [piece * fit.n_units // n_pieces for piece in range(n_pieces + 1)]
        owned = [process * n_pieces // self._n_processes for process in range(self._n_processes + 1)]
        results = _Results(folder)

        def compute(first: int, end: int) -> None:
            of_units = fit.compute(units[first], units[end], tell.restart())
            offset = units[first]
            computed = {
                piece: np.concatenate(of_units[units[piece] - offset : units[piece + 1] - offset])
                for piece in range(first, end)
            }
            results.write(self._me, computed)

        own = range(owned[self._me], owned[self._me + 1])
        results.read()
        begun = time.monotonic()
        if not results.has(own):
            compute(own.start, own.stop)
        done = time.monotonic()
        patient_until = done + 2 * (done - begun) + _PATIENCE
        # Each process computes late pieces in another order, so that few of them are computed twice.
        others = [
            (process, first + (step + self._me * n // self._n_processes) % n)
            for process, (first, end) in enumerate(pairwise(owned))
            if process != self._me and (n := end - first) > 0
            for step in range(n)
        ]
        while missing := [(process, piece) for process, piece in others if piece not in results.found]:
            if results.read():
                continue
            if self._end.exists() or self._continue(tell):
                return
            impatient = time.monotonic() >= patient_until
            late = [piece for process, piece in missing if impatient or self._n_late[process] >= _MOST_LATE]
            if not late:
                time.sleep(_POLL)
                continue
            # Each thread computes a unit.
            first, end = late[0], late[0] + 1
            while end in late and units[end] - units[first] < fit.n_threads:
                end += 1
            compute(first, end)
        for process in range(self._n_processes):
            self._n_late[process] = 0 if process in results.writers else self._n_late[process] + 1
        fit.complete([results.found[piece] for piece in range(n_pieces)], tell.restart())


class _Results:
    """The results that this process has computed or read for the pieces of a round."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: set[str] = set()
        self.found: dict[int, NDArray[np.uint8]] = {}
        # The processes that have computed results.
        self.writers: set[int] = set()

    def has(self, pieces: range) -> bool:
        """Return whether the results of all given pieces are known."""
        return all(piece in self.found for piece in pieces)

    def write(self, process: int, computed: dict[int, NDArray[np.uint8]]) -> None:
        """Write the results of some pieces to a file.

        The file is not flushed to the disk. After a power failure, it may be damaged, and then it is ignored.
        """
        self.found |= computed
        aside = self._folder / f".{secrets.token_hex(8)}.tmp"
        # Another process removes the folder if it has stored a later state or ended the fit.
        with suppress(FileNotFoundError):
            _make(self._folder)
            with open(aside, "xb") as file:
                for part in _packed(computed):
                    file.write(part.data)
            name = f"{process}-{min(computed)}.bin"
            self._read.add(name)
            os.replace(aside, self._folder / name)

    def read(self) -> bool:
        """Read the results that other processes have written. Return whether any of them were new."""
        n_found = len(self.found)
        for path in self._new():
            self._read.add(path.name)
            # Another process may have removed the file, or it may not be readable.
            with suppress(OSError):
                found = _unpacked(np.fromfile(path, np.uint8))
                if found is not None:
                    self.found |= found
                    self.writers.add(int(path.name.split("-")[0]))
        return len(self.found) > n_found

    def _new(self) -> Iterator[Path]:
        with suppress(FileNotFoundError), os.scandir(self._folder) as entries:
            for entry in entries:
                if entry.name.endswith(".bin") and entry.name not in self._read:
                    yield self._folder / entry.name


def _make(folder: Path) -> None:
    """Make a folder if it does not exist.

    `Path.mkdir` with ``exist_ok=True`` is not used here. It raises an error if another process removes the
    folder during the call.
    """
    with suppress(FileExistsError):
        os.mkdir(folder)


def _packed(results: dict[int, NDArray[np.uint8]]) -> list[NDArray[np.uint8]]:
    """Return the content of a file of results, as a list of arrays to write one after the other.

    The content begins with 64-bit integers: a checksum of everything that follows, the number of results, and
    the piece index and the length in bytes of each result. The results follow, one after the other.
    A ``.npz`` file would take several times as long to write and to read.
    """
    numbers = [len(results)]
    for piece, result in results.items():
        numbers += [piece, len(result)]
    parts = [np.array(numbers, "<i8").view(np.uint8), *results.values()]
    checksum = 0
    for part in parts:
        checksum = _core.crc32(part, checksum)
    return [np.array([checksum], "<i8").view(np.uint8), *parts]


def _unpacked(content: NDArray[np.uint8]) -> dict[int, NDArray[np.uint8]] | None:
    """Return the results in the content of a file, or None if the file is damaged."""
    if len(content) < 16 or _core.crc32(content[8:], 0) != content[:8].view("<i8")[0]:
        return None
    end = 16 + 16 * int(content[8:16].view("<i8")[0])
    results = {}
    for piece, length in content[16:end].view("<i8").reshape(-1, 2).tolist():
        results[piece] = content[end : end + length]
        end += length
    return results
