"""What is written about the package: docstrings by numpydoc's rules, their examples, the README's code."""

import doctest
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest
from numpydoc.validate import validate

import manylabel as ml
from manylabel.datasets import dump_xc, make_multilabel

README = Path(__file__).parents[1] / "README.md"
MODULES = ["manylabel", *(module.name for module in pkgutil.walk_packages(ml.__path__, "manylabel."))]

NOT_ASKED_FOR = {
    "ES01",  # a second paragraph, where the first sentence says all
    "SA01",  # See Also, where there is nothing to see
}
CLASSES_SHOW_IT = "EX01"  # an example for every function and method


def documented():
    """Full names of the public functions, classes and methods."""
    for name in ml.__all__:
        thing = getattr(ml, name)
        if inspect.ismodule(thing):
            yield from (f"manylabel.{name}.{inner}" for inner in thing.__all__)
        elif callable(thing):
            yield f"manylabel.{name}"
        if inspect.isclass(thing):
            for method, function in inspect.getmembers(thing, inspect.isfunction):
                if not method.startswith("_") and function.__module__.startswith("manylabel"):
                    yield f"manylabel.{name}.{method}"


@pytest.mark.parametrize("name", list(documented()))
def test_docstring(name):
    result = validate(name)
    ignored = NOT_ASKED_FOR if result["type"] == "type" else NOT_ASKED_FOR | {CLASSES_SHOW_IT}
    assert [error for error in result["errors"] if error[0] not in ignored] == []


@pytest.mark.parametrize("name", MODULES)
def test_examples(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_readme(tmp_path, monkeypatch):
    """Its Python runs from top to bottom, beside files such as a reader would have."""
    blocks = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    assert blocks, "README.md shows no Python"
    monkeypatch.chdir(tmp_path)
    X, Y = make_multilabel(400, 100, 30, random_state=0)
    dump_xc(X[:300], Y[:300], "train.txt.gz")
    dump_xc(X[300:], Y[300:], "test.txt.gz")
    namespace = {"__name__": "readme"}
    for block in blocks:
        exec(compile(block, str(README), "exec"), namespace)


# Names that were documented before there were packages; they stay.
PUBLIC = {
    "manylabel": ["load", "__version__"],
    "manylabel.cli": ["main"],
    "manylabel.correlated": ["CorrLogClassifier", "Explanation", "corrlog_path", "corrlog_space"],
    "manylabel.datasets": ["dump_xc", "load_arff", "load_digit_attributes", "load_xc", "make_multilabel"],
    "manylabel.decision": ["F1Inference"],
    "manylabel.linear": ["DiSMECClassifier", "LEMLClassifier", "PDSparseClassifier"],
    "manylabel.link": ["SmoothLinkClassifier", "smooth_link_space"],
    "manylabel.metrics": [
        "ndcg_at_k",
        "precision_at_k",
        "propensities",
        "psndcg_at_k",
        "psp_at_k",
        "recall_at_k",
    ],
    "manylabel.partition": [
        "BlockPartitionClassifier",
        "BlockPartitioner",
        "CBMLCClassifier",
        "LPSRClassifier",
    ],
    "manylabel.persistence": ["load", "register", "save_model", "written_aside"],
    "manylabel.pls": ["Rembrandt"],
    "manylabel.rules": ["BoostedRulesClassifier", "FiredRule", "Rules", "export_text", "plot_importance"],
    "manylabel.tree": ["LabelTreeClassifier"],
}


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_stay(module):
    found = importlib.import_module(module)
    for name in PUBLIC[module]:
        assert hasattr(found, name), name
        assert getattr(ml, name, None) in (None, getattr(found, name))
