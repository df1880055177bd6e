"""Lazy import of matplotlib, which only plots need."""

from __future__ import annotations

from types import ModuleType

__all__ = ["pyplot"]


def pyplot() -> ModuleType:
    """Return ``matplotlib.pyplot``; raise with an installation hint if it is missing."""
    try:
        import matplotlib.pyplot
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise ModuleNotFoundError(
            "a plot needs matplotlib: pip install 'manylabel[plot]'", name="matplotlib"
        ) from None
    return matplotlib.pyplot
