import gc
import os
from pathlib import Path

import pytest
from hypothesis import settings

# Products in tests are small, and the workers of pytest-xdist share the cores. Numpy and scikit-learn read
# the variables when they are imported. This file imports neither them nor manylabel, because the main
# process of pytest-xdist does not need them.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

# There is no deadline, because a busy machine is not a failure. The workflow draws more examples with
# `--hypothesis-profile=thorough`.
settings.register_profile("manylabel", deadline=None, max_examples=50)
settings.register_profile("thorough", deadline=None, max_examples=1000)
settings.load_profile("manylabel")


def pytest_addoption(parser):
    parser.addoption(
        "--fuzz-cases", type=int, metavar="N", help="number of cases of every fuzzer (default: a few)"
    )


@pytest.hookimpl(tryfirst=True)  # before pytest-timeout reads the option
def pytest_configure(config):
    if config.getoption("--fuzz-cases", default=None):
        config.option.timeout = 0  # fuzzers run for long, and limit the time of each case


def pytest_collection_finish():
    # Thousands of tests are many objects. The garbage collector would visit them again and again. With the
    # default thresholds, it would still take 5 % of the time of the tests.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture(scope="session")
def data():
    """The folder of real data sets."""
    folder = os.environ.get("MANYLABEL_DATA")
    if not folder:
        pytest.skip("MANYLABEL_DATA does not name the folder of data sets")
    return Path(folder)


@pytest.fixture(scope="session")
def large():
    """X and Y whose fit takes many seconds."""
    from manylabel.datasets import make_multilabel

    return make_multilabel(30_000, 5_000, 2_000, n_nonzero=40, random_state=0)


@pytest.fixture(scope="session")
def middling():
    """X and Y whose fit reports progress several times."""
    from manylabel.datasets import make_multilabel

    return make_multilabel(4_000, 500, 200, n_nonzero=40, random_state=0)
