"""Small files with large sizes are refused, or give models that take no more memory than small ones."""

import copy
import os
import sys
import textwrap
from functools import cache
from itertools import product

import numpy as np
import pytest

import fresh
import manylabel as ml
from forgery import put_together, taken_apart
from golden import FOLDER

FILES = sorted(FOLDER.glob("*.model"))
LARGE = [2**31 - 1, 10**9, 10**12, 2**63 - 1]
WHAT = ["features", "features alone", "columns", "labels"]
# Bytes allowed beyond those of the imports. Memory for any of the large sizes would be several times as much.
ROOM = 1 << 30


def with_features(state, tensors, count, old):
    """Change the number of features everywhere in a model."""
    nodes = [state]
    while nodes:
        node = nodes.pop()
        if isinstance(node, dict):
            for key, value in node.items():
                if key == "n_features_in_":
                    node[key] = count
                elif key == "shape":
                    node[key] = [count if size == old else size for size in value]
            nodes += node.values()
        elif isinstance(node, list):
            nodes += node
    for name, array in tensors.items():
        if old in array.shape and array.ndim == 2 and count < 2**40:
            # The other dimension is 0, so the array has no values.
            tensors[name] = np.empty([count if size == old else 0 for size in array.shape], array.dtype)


@cache
def whole(path):
    """The state and tensors of a model, and its number of features."""
    return *taken_apart(path), ml.load(path).n_features_in_


def forged(path, what, count):
    state, tensors, n_features = copy.deepcopy(whole(path))
    if what == "features":
        with_features(state, tensors, count, n_features)
    elif what == "features alone":
        state["fitted"]["n_features_in_"] = count
    elif what == "columns":
        for value in state["fitted"].values():
            if isinstance(value, dict) and "shape" in value:
                value["shape"][1 if value["format"] == "csr" else 0] = count
    elif what == "labels":
        for name in ("n_labels_", "n_blocks_", "n_components_"):
            if name in state["fitted"]:
                state["fitted"][name] = count
        for name, array in tensors.items():
            if 8 in array.shape and array.ndim == 2:
                tensors[name] = np.empty([count if size == 8 else 0 for size in array.shape], array.dtype)
        tensors["classes_"] = tensors.get("classes_", np.arange(8))[:0]
    return put_together(state, tensors)


@pytest.mark.skipif(sys.platform != "linux", reason="needs RLIMIT_AS and /proc")
def test_no_count_takes_memory(tmp_path):
    """One process calls all methods of all models with one row."""
    for what, (at, path), count in product(WHAT, enumerate(FILES), LARGE):
        if what != "labels" or count < 2**40:
            (tmp_path / f"{what}-{at}-{count}").write_bytes(forged(path, what, count))
    code = f"""
        import resource, sys, warnings
        from pathlib import Path
        sys.path.insert(0, {os.path.dirname(os.path.dirname(__file__))!r})
        warnings.simplefilter("ignore")
        import numpy as np, pandas
        import manylabel as ml
        from scipy.sparse import csr_array
        with open("/proc/self/statm") as statm:
            used = int(statm.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + {ROOM}, used + {ROOM}))
        loaded = 0
        for path in sorted(Path({str(tmp_path)!r}).iterdir()):
            try:
                model = ml.load(path)
            except ValueError as error:
                assert str(error).startswith(f"cannot load {{path}}: "), error
                continue
            loaded += 1
            if isinstance(model, ml.TextTagger):
                print(type(model).__name__, path.name, end=": ", flush=True)
                str(model.suggest("a cat") + model.predict(["a cat"]))
                print("done")
                continue
            n = model.n_features_in_
            x = csr_array((np.ones(2), [0, n - 1], [0, 2]), shape=(1, n))
            methods = "predict predict_topk decision_function predict_proba transform explain"
            for name in methods.split():
                if hasattr(model, name):
                    print(type(model).__name__, name, path.name, end=": ", flush=True)
                    str(getattr(model, name)(*([x, 0] if name == "explain" else [x])))
                    print("done")
            if hasattr(model, "to_frame"):
                model.to_frame()
                ml.rules.export_text(model)
        print("loaded", loaded)
        """
    done = fresh.run(textwrap.dedent(code))
    assert done.returncode == 0, done.stdout[-200:] + done.stderr[-600:]
    assert done.stdout.splitlines()[-1].startswith("loaded")


def test_names_of_a_billion_features_are_made_when_asked_for():
    X, Y = ml.datasets.make_multilabel(60, 15, 8, random_state=0)
    model = ml.BoostedRulesClassifier(5, random_state=0).fit(X, Y)
    model.n_features_in_ = 10**18
    assert "feature " in ml.rules.export_text(model)
    assert model.to_frame().shape[0] == 5
