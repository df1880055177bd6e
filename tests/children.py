"""Children of the test process, forked: they have imported everything."""

import multiprocessing
from contextlib import contextmanager

import pytest

forks = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")


@contextmanager
def forked(work, *args):
    """Runs `work(pipe, *args)` in a child; gives the other end of the pipe and the child, which is killed."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=work, args=(sender, *args))
    child.start()
    sender.close()  # so that the end of the child is an EOFError
    try:
        yield receiver, child
    finally:
        child.kill()
        child.join()
