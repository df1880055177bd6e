"""A function that imports matplotlib. It is called when a plot is drawn, since only plots need matplotlib."""

from __future__ import annotations

from types import ModuleType

__all__ = ["pyplot"]


def pyplot() -> ModuleType:
    """Return ``matplotlib.pyplot``. If matplotlib is missing, raise an error that says how to install it."""
    try:
        import matplotlib.pyplot
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise ModuleNotFoundError(
            "plots need matplotlib, which is not installed; run: pip install 'manylabel[plot]'",
            name="matplotlib",
        ) from None
    return matplotlib.pyplot
