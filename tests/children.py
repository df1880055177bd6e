"""Child processes forked from the test process, which has imported everything."""

import multiprocessing
import os
from contextlib import contextmanager

import pytest

forks = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
posix_only = pytest.mark.skipif(os.name != "posix", reason="needs signals and fork")


@contextmanager
def forked(work, *args):
    """Run `work(pipe, *args)` in a child, yield the other end of the pipe and the child, and kill it."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=work, args=(sender, *args))
    child.start()
    sender.close()  # so that the end of the child raises EOFError
    try:
        yield receiver, child
    finally:
        child.kill()
        child.join()
