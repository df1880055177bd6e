import re
import signal

import pytest
from scipy.sparse import issparse


@pytest.fixture
def interrupt():
    """A function that raises KeyboardInterrupt after the given number of seconds."""
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.setitimer(signal.ITIMER_REAL, 0)


@pytest.fixture(autouse=True)
def _alarm_is_ctrl_c():
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    yield
    signal.signal(signal.SIGALRM, previous)


@pytest.fixture(scope="session")
def read_or_refused(tmp_path_factory):
    """A function that calls a reader on any bytes. The data must be valid, or the error must name a line."""
    folder = tmp_path_factory.mktemp("any")

    def check(read, name, content):
        path = folder / name
        path.write_bytes(content)
        try:
            X, Y = read(path)
        except ValueError:
            with pytest.raises(ValueError, match=re.escape(name) + r", line \d+: expected (.|\n)*, got "):
                read(path)
        else:
            assert X.shape[0] == Y.shape[0]
            for matrix in filter(issparse, (X, Y)):
                matrix.check_format(full_check=True)

    return check
