"""The library that draws, which only those who draw need."""

from __future__ import annotations

from types import ModuleType

__all__ = ["pyplot"]


def pyplot() -> ModuleType:
    """Return ``matplotlib.pyplot``, or say how to install it."""
    try:
        import matplotlib.pyplot
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise ModuleNotFoundError(
            "a plot needs matplotlib: pip install 'manylabel[plot]'", name="matplotlib"
        ) from None
    return matplotlib.pyplot
