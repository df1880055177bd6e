import os
import signal
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data():
    """The folder of real data sets."""
    folder = os.environ.get("MANYLABEL_DATA")
    if not folder:
        pytest.skip("MANYLABEL_DATA does not name the folder of data sets")
    return Path(folder)


@pytest.fixture
def interrupt():
    """Call with seconds to have Ctrl-C pressed so much later."""
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.setitimer(signal.ITIMER_REAL, 0)


@pytest.fixture(autouse=True)
def _alarm_is_ctrl_c():
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    yield
    signal.signal(signal.SIGALRM, previous)
