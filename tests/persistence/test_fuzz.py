"""Model files with right checksums and wrong contents: an ordinary error, or a model that can be used.

Some hundred files are tested by default, and ``--fuzz-cases`` sets their number. The number of a case decides
which file is taken and what is changed in it.
"""

import copy
import json
import math
import mmap
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pandas  # noqa: F401  imported here, so that child processes need not
import pytest
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, ClassifierMixin

import manylabel as ml
from children import forks
from estimators import CLASSIFIERS, PARTITIONERS, TRANSFORMERS
from forgery import DTYPES, put_together, taken_apart
from golden import FOLDER
from manylabel.datasets import make_multilabel
from manylabel.estimator.parameters import Choice, Either
from manylabel.persistence import register

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="needs RLIMIT_AS and /proc"),
    forks,
]

FEW = 400
# Cases per process, seconds allowed per case, and bytes allowed beyond those at the start of the process.
CHUNK, PATIENCE, ROOM = 1000, 20, 1 << 30

METHODS = ["predict", "predict_topk", "decision_function", "predict_proba", "transform", "to_frame"]
METHODS += ["explain", "measure_speedup", "prepare"]

TELLTALES = ("internal error", "panicked", "out of bounds", "index out of")


@register
class Halves(ClassifierMixin, BaseEstimator):
    """A classifier of another library that may be saved."""

    def fit(self, X, Y):
        self.halves_ = np.full(Y.shape[1], 0.5)
        return self

    def predict_proba(self, X):
        return np.tile(self.halves_, (X.shape[0], 1))

    def predict(self, X):
        return (self.predict_proba(X) > 0.5).astype(int)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Small models of every class, taken apart."""
    X, Y = make_multilabel(60, 9, 5, n_nonzero=4, random_state=0)
    X = abs(X)
    one = Y.toarray()[:, 0].astype(int)
    path = tmp_path_factory.mktemp("models") / "model"
    found = [taken_apart(file) for file in sorted(FOLDER.glob("*.model"))]
    for model in (
        ml.DiSMECClassifier(random_state=0).fit(X, one),
        ml.SmoothLinkClassifier(2, n_features=7, random_state=0).fit(X, one),
        ml.SmoothLinkClassifier(2, n_features=7, loss="softmax", random_state=0).fit(X, one * 2),
        ml.SmoothLinkClassifier(2, n_features=7, loss="softmax", random_state=0).fit(
            X, np.array(["no", "yes"])[one]
        ),
        ml.LPSRClassifier("naive-bayes", leaf_size=20, n_candidates=3, random_state=0).fit(X, Y),
        ml.BlockPartitionClassifier(Halves(), n_blocks=2, max_labels=3, n_routes=2, random_state=0).fit(X, Y),
        ml.CBMLCClassifier(ml.CorrLogClassifier(), 2, random_state=0).fit(X, Y),
        ml.CorrLogClassifier(decoder="bp").fit(X, Y),
    ):
        model.save(path)
        found.append(taken_apart(path))
    return found


WORDS = sorted(
    {
        word
        for estimator in CLASSIFIERS + TRANSFORMERS + PARTITIONERS
        for parameter in type(estimator).parameters.values()
        for kind in (parameter.kinds if isinstance(parameter, Either) else [parameter])
        if isinstance(kind, Choice)
        for word in kind.words
    }
)
INTEGERS = [
    -1,
    0,
    1,
    2,
    3,
    5,
    2**31 - 1,
    2**31,
    2**32,
    10**9,
    10**12,
    2**62,
    2**63 - 1,
    2**63,
    2**64,
    10**400,
]
LEAVES = [None, True, False, "x", "", 0.5, -1.5, 1e300, [], [1], {}, {"tuple": []}, {"float": "nan"},
          {"float": "inf"}, {"float": "-inf"}, {"array": "new"}, {"scalar": "new"}]  # fmt: skip
NUMBERS = [0.0, -0.0, 1.0, -1.0, 1e-40, 1e6, -1e6, np.nan, np.inf, -np.inf, 3e38, -3e38]


def places(node, path=()):
    """The paths of all nodes of a tree."""
    yield path
    if isinstance(node, dict | list):
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            yield from places(value, (*path, key))


def at(tree, path):
    for key in path:
        tree = tree[key]
    return tree


def change_leaf(rng, state, tensors):
    *owner, key = rng.choice([path for path in places(state) if path])
    node = at(state, owner)
    kind = rng.randrange(6)
    if kind == 0 and isinstance(node, dict):
        del node[key]
    elif kind == 1 and isinstance(node, list):
        node.insert(rng.randrange(len(node) + 1), copy.deepcopy(node[key]))
    elif kind == 2:
        node[key] = copy.deepcopy(at(state, rng.choice(list(places(state)))))
    elif kind == 3:
        node[key] = rng.choice(WORDS)
    elif kind == 4:
        node[key] = rng.choice(INTEGERS)
    else:
        node[key] = copy.deepcopy(rng.choice(LEAVES))
    if rng.random() < 0.3:
        tensors["new"] = np.zeros(
            rng.choice([(), (1,), (0,), (2, 3)]), dtype=rng.choice(list(DTYPES.values()))
        )


def change_size(rng, state, tensors):
    """Replace a size everywhere by another one, so that the sizes agree but are absurd."""
    sizes = [path for path in places(state) if type(at(state, path)) is int]
    if not sizes:
        return
    old, new = at(state, rng.choice(sizes)), rng.choice(INTEGERS)
    for path in sizes:
        if at(state, path) == old:
            at(state, path[:-1])[path[-1]] = new
    for name, array in tensors.items():
        if old in array.shape and rng.random() < 0.5:
            shape = [new if size == old else size for size in array.shape]
            if 0 <= new < 100 and 0 < array.size < 10_000:
                tensors[name] = np.resize(array, shape)
            elif new > 0 and len(shape) > 1:
                shape[rng.randrange(len(shape))] = 0
                if math.prod(size for size in shape if size) * array.itemsize < 2**63:  # a limit of numpy
                    tensors[name] = np.empty(shape, dtype=array.dtype)


def change_values(rng, state, tensors):
    array = tensors[rng.choice(list(tensors))]
    flat = array.reshape(-1)
    for _ in range(rng.randrange(1, 4) if flat.size else 0):
        if array.dtype.kind == "f":
            value = rng.choice(NUMBERS)
        elif array.dtype.kind == "b":
            value = rng.random() < 0.5
        else:
            limits = np.iinfo(array.dtype)
            value = min(max(rng.choice([*INTEGERS, *range(-2, 20)]), limits.min), limits.max)
        with np.errstate(over="ignore"):
            flat[rng.randrange(flat.size) if rng.random() < 0.9 else slice(None)] = value


def change_array(rng, state, tensors):
    name = rng.choice(list(tensors))
    array = tensors[name]
    kind = rng.randrange(9)
    if kind == 0:
        tensors[name] = np.ascontiguousarray(array.T)
    elif kind == 1:
        tensors[name] = array.reshape(-1)
    elif kind == 2:
        tensors[name] = array.reshape(rng.choice([(-1, 1), (1, -1), (1, *array.shape), (*array.shape, 1)]))
    elif kind == 3:
        tensors[name] = array[: rng.randrange(len(array) + 1)] if array.ndim else array
    elif kind == 4:
        tensors[name] = np.concatenate([array, array]) if array.ndim else array
    elif kind == 5:
        with np.errstate(invalid="ignore", over="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tensors[name] = array.astype(rng.choice(list(DTYPES.values())))
    elif kind == 6:
        other = rng.choice(list(tensors))
        tensors[name], tensors[other] = tensors[other], tensors[name]
    elif kind == 7:
        tensors[name] = np.flip(array).copy()
    else:
        tensors[name] = np.empty(rng.choice([(0,), (0, 2**40), (2**40, 0), (0, 0)]), dtype=array.dtype)


def exchange_models(rng, state, tensors):
    """Put an estimator in the place of another one."""
    inner = [
        path for path in places(state) if isinstance(at(state, path), dict) and "estimator" in at(state, path)
    ]
    if not inner:
        return
    first, second = rng.choice(inner), rng.choice(inner)
    if second and first != second[: len(first)]:
        at(state, second[:-1])[second[-1]] = copy.deepcopy(at(state, first))
    else:
        at(state, first)["estimator"] = rng.choice(sorted(ml.persistence.CLASSES))


CHANGES = [change_leaf, change_size, change_values, change_values, change_array, exchange_models]


def forged(case, models):
    """The state and tensors of a case, and the names of what was changed."""
    rng = random.Random(case)
    state, tensors = copy.deepcopy(rng.choice(models))
    changes = [rng.choice(CHANGES) for _ in range(rng.choice([1, 1, 1, 2, 3]))]
    for change in changes:
        if tensors and isinstance(state, dict):
            change(rng, state, tensors)
    return state, tensors, [change.__name__ for change in changes]


def are_large(arrays):
    """Whether scores may overflow, which is not a fault."""
    return any(array.dtype.kind == "f" and (abs(array) > 1e10).any() for array in arrays)


def asked(model):
    """Call all methods of a model with one row, and return the scores."""
    if isinstance(model, ml.TextTagger) and model.vectorizer_ is not None:
        model.predict(["a cat tax 日本", ""])
        return [np.array([score for _, score in model.suggest("a cat tax 日本")])]
    n_features = int(model.n_features_in_)
    columns = np.unique([0, n_features // 2, n_features - 1])
    x = csr_array((np.ones(len(columns)), columns, [0, len(columns)]), shape=(1, n_features))
    answers = []
    for name in METHODS:
        method = getattr(model, name, None)
        if method is not None:
            arguments = {"to_frame": [], "prepare": [], "explain": [x, 0]}
            answer = method(*arguments.get(name, [x]))
            if name in ("decision_function", "predict_proba", "transform"):
                answers.append(np.asarray(answer))
            elif name == "predict_topk":
                answers.append(answer.data)
            elif name == "explain":
                assert isinstance(repr(answer), str)
    return answers


def attempt(case, models, path):
    """Run one case and return its fault, or None."""
    state, tensors, changes = forged(case, models)
    path.write_bytes(put_together(state, tensors))
    stage = "load"
    try:
        model = ml.load(path)
        stage = "use"
        for scores in asked(model):
            unsound = np.isnan(scores) | np.isposinf(scores)
            if unsound.any() and not are_large(tensors.values()):
                return f"{changes}: scores of {type(model).__name__} are {scores[unsound][:3]}"
    except (ValueError, OSError) as error:
        if any(telltale in str(error) for telltale in TELLTALES):
            return f"{changes}, {stage}: {error!r}"
        if stage == "load" and not str(error).startswith(f"cannot load {path}: "):
            return f"{changes}, {stage}: {error!r} names no file"
    except BaseException as error:
        return f"{changes}, {stage}: {error!r}"
    return None


def work(cases, models, path, progress, found):
    """Run cases in a child process, which may crash."""
    import resource  # POSIX only

    with open("/proc/self/statm") as statm:
        used = int(statm.read().split()[0]) * mmap.PAGESIZE
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, resource.RLIM_INFINITY))
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    for case in cases:
        progress[:] = case.to_bytes(8, "little")
        signal.alarm(PATIENCE)
        wrong = attempt(case, models, path)
        signal.alarm(0)
        if wrong is not None:
            with open(found, "a") as file:
                file.write(json.dumps([case, wrong]) + "\n")


def failures(cases, models, folder):
    """The cases that fail, with their faults."""
    context = multiprocessing.get_context("fork")
    progress, found = mmap.mmap(-1, 8), folder / "found"
    found.touch()
    died, left = [], list(cases)
    # Files are in memory if possible, because a disk would take as long as all the rest.
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else folder) as place:
        while left:
            arguments = (left[:CHUNK], models, Path(place) / "model", progress, found)
            process = context.Process(target=work, args=arguments)
            process.start()
            process.join()
            if process.exitcode == 0:
                left = left[CHUNK:]
                continue
            last = int.from_bytes(progress[:], "little")
            died.append([last, f"the process ended with {process.exitcode}"])
            left = left[left.index(last) + 1 :]
    return died + [json.loads(line) for line in found.read_text().splitlines()]


def test_the_forger_changes_nothing_by_itself(models, tmp_path):
    for model in models:
        (tmp_path / "model").write_bytes(put_together(*model))
        asked(ml.load(tmp_path / "model"))


def test_wrong_contents_under_a_right_checksum(models, tmp_path, request):
    n_cases = request.config.getoption("--fuzz-cases", default=None) or FEW
    assert failures(range(n_cases), models, tmp_path)[:20] == []
