"""Fits without enough memory: they raise `MemoryError`, and the process can continue."""

import json
import sys

import pytest

import fresh
from estimators import CLASSIFIERS, PARTITIONERS, TRANSFORMERS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs RLIMIT_AS and /proc")

# A fit without limits shows how much address space it needs. Then child processes, which have imported
# everything, fit with less and report how the fit ended.
PROGRAM = """
import ctypes, json, os, random, resource, sys
from manylabel import *
from manylabel.decision import *
from manylabel.datasets import make_multilabel

def status(name):
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith(name))

def told(work):
    # The result of `work` in a child process, or the signal that ended the child.
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, json.dumps(work()).encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as file:
        text = file.read()
    ended = os.waitpid(child, 0)[1]
    return f"signal {os.WTERMSIG(ended)}" if os.WIFSIGNALED(ended) else json.loads(text)

def ending(model, data, limit):
    unlimited = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (limit, unlimited[1]))
    try:
        model.fit(*data)
        how = "fitted"
    except Exception as error:
        how = f"{type(error).__name__}: {error}" if not isinstance(error, MemoryError) else "MemoryError"
    resource.setrlimit(resource.RLIMIT_AS, unlimited)
    if how != "fitted":
        try:
            model.fit(*small)  # the process can still fit
        except Exception as error:
            return f"afterwards {type(error).__name__}: {error}"
    return how

def need(model, data):
    model.fit(*data)
    return status("VmPeak")

# A heap for every thread would take address space that the limits do not include.
libc, M_ARENA_MAX = ctypes.CDLL(None), -8
if hasattr(libc, "mallopt"):  # glibc
    libc.mallopt(M_ARENA_MAX, 1)
models, size, n_limits, seed = eval(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
small, large = make_multilabel(60, 30, 8, random_state=0), make_multilabel(*size, random_state=0)
draw = random.Random(seed)
for model in models:
    model.fit(*small)
    least = status("VmSize")
    most = told(lambda: need(model, large))
    # A limit would not change a fit that needs no more address space than the process already has.
    limits = [int(least + draw.random() * (most - least)) for _ in range(n_limits if most > least else 0)]
    endings = [told(lambda: ending(model, large, limit)) for limit in limits]
    # The process already has more address space, but freeing the reserve of the core would fulfil the limit.
    below = told(lambda: ending(model, large, least - (62 << 20)))
    print(json.dumps([str(model), (most - least) >> 20, endings, below]), flush=True)
"""


MODELS = CLASSIFIERS + TRANSFORMERS + PARTITIONERS


def test_a_fit_without_memory(pytestconfig):
    cases = pytestconfig.getoption("--fuzz-cases", default=None)
    n_limits, size = (cases, [20_000, 2_000, 300]) if cases else (1, [500, 150, 15])
    run = fresh.run(PROGRAM, repr(MODELS), json.dumps(size), n_limits, 0)
    assert run.returncode == 0, run.stderr
    told = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(told) == len(MODELS)
    for model, _, endings, below in told:
        assert set(endings) <= {"fitted", "MemoryError"}, (model, endings)
        assert below == "MemoryError", (model, below)
