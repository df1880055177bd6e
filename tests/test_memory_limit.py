"""The memory limit of `memory_limit`: a MemoryError with numbers comes before the allocation."""

import subprocess
import sys

import numpy as np
import pytest

import manylabel as ml
from manylabel.memory import as_bytes

# A fit shows how much memory it needs. Then child processes fit with a lower limit.
PROGRAM = """
import json, os, random
from manylabel import *
from manylabel import _core
from manylabel.datasets import make_multilabel

def private():
    lines = open("/proc/self/status")
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))

def told(work):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, json.dumps(work()).encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as file:
        text = file.read()
    os.waitpid(child, 0)
    return json.loads(text or '"killed"')

def need(model):
    before = _core.restart_memory_peak()
    model.fit(X, Y)
    return _core.memory_held()[1] - before

def limited(model, room):
    limit, most = private() + room, 0
    def look(_):
        nonlocal most
        most = max(most, private())
    with memory_limit(limit):
        try:
            model.fit(X, Y, progress=look)
        except MemoryError as error:
            how = str(error)
            look(0)
        else:
            return "fitted"
    if "of the memory limit of" not in how or most > limit + (8 << 20):
        return f"{how} (limit {limit}, private {most})"
    model.fit(*small)  # without the limit
    return "refused"

small, (X, Y) = make_multilabel(60, 30, 8, random_state=0), make_multilabel(3000, 2000, 200, random_state=0)
draw = random.Random(0)
for model in (
    DiSMECClassifier(C=1.0, random_state=0),
    LabelTreeClassifier(C=1.0, max_leaf=20, random_state=0),
    LEMLClassifier(rank=50, alpha=1.0, random_state=0),
    Rembrandt(n_components=20, random_state=0),
):
    model.fit(*small)
    most = told(lambda: need(model))
    for _ in range(3):
        print(told(lambda: limited(model, int(most * draw.uniform(0.1, 0.8)))))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_fits_beyond_the_limit_are_refused():
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == ["refused"] * 12


def test_the_limit_is_restored():
    X, Y = ml.datasets.make_multilabel(100, 30, 5, random_state=0)
    model = ml.DiSMECClassifier(C=1.0, random_state=0)
    with ml.memory_limit("100TB"):
        with (
            pytest.raises(MemoryError, match=r"of the memory limit of 1\.0 MB are in use"),
            ml.memory_limit(10**6),
        ):
            _ = (
                model.fit(X, Y)
                if sys.platform == "linux"
                else model.fit(np.ones((10**4, 100)), np.ones((10**4, 2)))
            )
        model.fit(X, Y)
    model.fit(X, Y)


@pytest.mark.parametrize(
    ("amount", "expected"),
    [(5, 5), ("5", 5), ("8GB", 8 * 10**9), (" 1.5 MiB", 3 << 19), ("2tb", 2 * 10**12), (np.int64(7), 7)],
)
def test_amounts(amount, expected):
    assert as_bytes(amount, "limit") == expected


@pytest.mark.parametrize("amount", ["", "GB", "8 XB", "-1GB", "0", "8GB per machine", 0, -1, 2**63])
def test_wrong_amounts(amount):
    with pytest.raises(ValueError, match="`limit` must be"):
        ml.memory_limit(amount)


@pytest.mark.parametrize("amount", [1.5, True, [8]])
def test_amounts_of_a_wrong_type(amount):
    with pytest.raises(TypeError, match="`limit` must be an int or a str such as"):
        ml.memory_limit(amount)


# Each fit needs more memory than the limit, and most of it for copies of X.
SPILLS = """
import os, sys, zlib
import numpy as np
from scipy.sparse import random_array
from manylabel import *
from manylabel import _core

def private():
    lines = open("/proc/self/status")
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))

def checksum(model):
    model.save(folder + "/model")
    return zlib.crc32(open(folder + "/model", "rb").read())

folder = sys.argv[1]
X = random_array((16_000, 2000), density=0.05, format="csr", dtype=np.float32, rng=np.random.default_rng(0))
Y = X[:, [0, 1, 2, 3]].sign()
for model in (
    LabelTreeClassifier(C=1.0, random_state=0),
    Rembrandt(n_components=2, l2_final=1.0, n_iter=0, solver="cg", max_iter=2, random_state=0),
):
    model.fit(X[:1000], Y[:1000])
    start = private()
    limit, most = start + int(sys.argv[2]), 0
    def look(_):
        global most
        most = max(most, private())
    with memory_limit(limit, spill=folder):
        model.fit(X, Y, progress=look)
    found = checksum(model)
    print(most <= limit + (4 << 20), os.listdir(folder) == ["model"], _core.restart_memory_peak() > 0)
    child = os.fork()
    if child == 0:
        os._exit(0 if checksum(model) == found else 1)
    print(os.waitpid(child, 0)[1] == 0)
    print(checksum(model.fit(X, Y)) == found, _core.memory_held()[1] > limit - start)
    with memory_limit(limit):
        try:
            model.fit(X, Y)
        except MemoryError:
            print(True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_fits_beyond_the_limit_can_use_a_file(tmp_path):
    run = subprocess.run(
        [sys.executable, "-c", SPILLS, str(tmp_path), str(12 << 20)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert set(run.stdout.split()) == {"True"}, run.stdout
    assert len(run.stdout.split()) == 14


def test_a_folder_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError):
        ml.memory_limit("1GB", spill=tmp_path / "missing")
    with pytest.raises(ValueError, match="`limit` must be an amount of memory"):
        ml.memory_limit(None, spill=tmp_path)
