import signal

import pytest


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
