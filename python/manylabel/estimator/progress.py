"""Functions that report the progress of a fit to a progress bar and to a callback function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock

from tqdm.auto import tqdm

__all__ = ["Bar", "Progress", "Report", "Tell", "reported"]

# A function that is called with the amount of work done so far. If it raises an exception, the work stops.
Tell = Callable[[int], object]
Progress = Tell | None


class Bar(tqdm):  # type: ignore[misc]  # tqdm has no types
    """Progress bar whose lock is not shared with other processes.

    The default lock of tqdm is shared with forked processes. If a process is killed while it holds this lock,
    all other processes wait for it forever.
    """


Bar.set_lock(RLock())


class Report:
    """Callable that reports progress. The Rust core calls it with the amount of work done so far."""

    def __init__(self, bar: tqdm | None, progress: Progress) -> None:
        self._bar = bar
        self._progress = progress

    def __call__(self, done: int) -> None:
        """Report the amount of work done so far, in the unit of the progress bar."""
        if self._bar is not None:
            self._bar.update(done - self._bar.n)
        if self._progress is not None:
            self._progress(done)

    def restart(self, total: int) -> None:
        """Reset the progress bar to 0 for the next part of the fit, which has `total` units of work."""
        if self._bar is not None:
            self._bar.reset(total=total)


@contextmanager
def reported(total: int | None, unit: str, verbose: bool, progress: Progress) -> Iterator[Report]:
    """Yield a `Report` that calls `progress` with the amount of work done so far.

    If `verbose` is True, the `Report` also updates a progress bar. `progress` may be None.
    """
    if not verbose:
        yield Report(None, progress)
        return
    with Bar(total=total, unit=unit) as bar:
        yield Report(bar, progress)
        if bar.total is not None:
            bar.update(bar.total - bar.n)  # the bar ends full, even if some work was skipped
