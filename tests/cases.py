"""Loops over cases that take less time than pytest takes for a test."""

from contextlib import contextmanager


@contextmanager
def case(*names):
    """Add the name of the case to an error in the block."""
    try:
        yield
    except BaseException as error:  # pytest's failures are no Exception
        if hasattr(error, "add_note"):  # since Python 3.11
            error.add_note(f"case: {', '.join(map(str, names))}")
        raise
