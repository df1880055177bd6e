"""Reports of the progress of a fit, to a progress bar and to the caller."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm.auto import tqdm

__all__ = ["Progress", "Report", "Tell", "reported"]

# A function that is called with the amount of work done. If it raises an exception, the work stops.
Tell = Callable[[int], object]
Progress = Tell | None


class Report:
    """The callable that the core calls with the amount of work done."""

    def __init__(self, bar: tqdm, progress: Progress) -> None:
        self._bar = bar
        self._progress = progress

    def __call__(self, done: int) -> None:
        """Report the amount of work done, in the units of the bar."""
        self._bar.update(done - self._bar.n)
        if self._progress is not None:
            self._progress(done)

    def restart(self, total: int) -> None:
        """Set the bar to 0, for the next part of the work, which has the size `total`."""
        self._bar.reset(total=total)


@contextmanager
def reported(total: int | None, unit: str, verbose: bool, progress: Progress) -> Iterator[Report]:
    """Yield a callable that reports to `progress` (unless None) and, if `verbose`, to a progress bar."""
    with tqdm(total=total, unit=unit, disable=not verbose) as bar:
        yield Report(bar, progress)
        if bar.total is not None:
            bar.update(bar.total - bar.n)  # some of the work may have been skipped
