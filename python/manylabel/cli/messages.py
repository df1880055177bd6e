"""Functions that write messages to stderr, and the error for invalid command-line arguments."""

from __future__ import annotations

import os
import sys
from argparse import Namespace

__all__ = ["UsageError", "reason", "say", "shows_progress"]


class UsageError(Exception):
    """Error for invalid command-line arguments. The program ends with the exit code 2."""


def say(text: str) -> None:
    """Write a line to stderr."""
    print("manylabel:", " ".join(text.split()), file=sys.stderr)


def reason(error: Exception) -> str:
    """Return the text that is printed for an exception."""
    if isinstance(error, OSError) and error.errno is not None and error.filename is not None:
        return f"{error.filename}: {os.strerror(error.errno)}"
    return str(error) or ("not enough memory" if isinstance(error, MemoryError) else type(error).__name__)


def shows_progress(arguments: Namespace) -> bool:
    """Return whether progress bars are shown."""
    return not arguments.quiet and sys.stderr.isatty()
