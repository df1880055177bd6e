"""Documentation: docstrings follow numpydoc, and their examples and the code of the README run."""

import doctest
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest
from numpydoc.validate import validate

import manylabel as ml
from cases import case
from manylabel.datasets import dump_xc, make_multilabel
from manylabel.estimator.surgery import EditableLabels
from manylabel.tagging.changes import EditableTagger

README = Path(__file__).parents[1] / "README.md"
API_PAGE = Path(__file__).parents[1] / "python/docs/api.md"
MODULES = ["manylabel", *(module.name for module in pkgutil.walk_packages(ml.__path__, "manylabel."))]
MODULES.remove("manylabel.compat.mlflow")  # has no examples, and MLflow takes a second to import

NOT_ASKED_FOR = {
    "ES01",  # an extended summary is not required
    "SA01",  # a section "See Also" is not required
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


def test_docstrings():
    names = list(documented())
    assert len(names) > 100
    for name in names:
        result = validate(name)
        ignored = NOT_ASKED_FOR if result["type"] == "type" else NOT_ASKED_FOR | {CLASSES_SHOW_IT}
        with case(name):
            assert [error for error in result["errors"] if error[0] not in ignored] == []


def test_api_page():
    """The page lists every public class and function once."""
    listed = re.findall(r"^   (manylabel\.[\w.]+)$", API_PAGE.read_text(), re.MULTILINE)
    assert len(listed) == len(set(listed))
    # Some modules of `compat` need other software, so their names are not resolved.
    compat = importlib.import_module("manylabel.compat")
    readers = {f"manylabel.compat.{name}" for name in compat.__all__}
    others = {name for name in listed if name.startswith("manylabel.compat.")} - readers
    assert readers <= set(listed)
    assert {name.split(".")[2] for name in others} == set(
        re.findall(r":mod:`manylabel\.compat\.(\w+)`", compat.__doc__)
    )
    shown = [pkgutil.resolve_name(name) for name in listed if name not in others]
    modules = [ml, *(thing for name in ml.__all__ if inspect.ismodule(thing := getattr(ml, name)))]
    for module in modules:
        for name in module.__all__:
            thing = getattr(module, name)
            assert not callable(thing) or thing in shown, f"{module.__name__}.{name}"


# The packages that modules need, apart from those of the library.
NEEDS = {
    "manylabel.compat.annif": "annif",
    "manylabel.compat.onnx": "skl2onnx",
}


class Finder(doctest.DocTestFinder):
    """Finds decorated functions too, whose globals are those of the decorator."""

    def _from_module(self, module, object):
        if inspect.isfunction(object):
            return object.__module__ == module.__name__
        return super()._from_module(module, object)


@pytest.mark.parametrize("name", MODULES)
def test_examples(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if name in NEEDS:
        pytest.importorskip(NEEDS[name], reason=f"{name} needs the package {NEEDS[name]}")
    module, runner = importlib.import_module(name), doctest.DocTestRunner()
    for test in Finder().find(module, module.__name__):
        if test.examples:  # a run takes some time even without examples
            runner.run(test)
    assert runner.summarize().failed == 0


def test_decorated_methods_have_their_examples_run():
    module = importlib.import_module("manylabel.tagging.changes")
    names = {test.name.rpartition(".")[2] for test in Finder().find(module, module.__name__) if test.examples}
    assert names >= {"rename_labels", "drop_labels", "add_labels", "merge_labels", "refit_labels", "update"}


def own(cls, base):
    """The public methods that a class or one of its bases defines."""
    return [
        f"{cls.__name__}.{name}"
        for name, value in vars(base).items()
        if not name.startswith("_") and (isinstance(value, classmethod) or inspect.isfunction(value))
    ]


# Methods that only taggers have, or classifiers whose labels can be changed. Those that all estimators share,
# such as `save`, are shown in the examples of the classes.
OWN = [
    *own(ml.TextTagger, ml.TextTagger),
    *own(ml.TextTagger, EditableTagger),
    *own(ml.DiSMECClassifier, EditableLabels),
    "DiSMECClassifier.decision_at",
    "DiSMECClassifier.explain",
    "LabelTreeClassifier.add_labels",
]


@pytest.mark.parametrize("name", OWN)
def test_methods_have_examples(name):
    cls, _, method = name.partition(".")
    assert ">>>" in getattr(getattr(ml, cls), method).__doc__


def test_readme(tmp_path, monkeypatch):
    """The Python code of the README runs from top to bottom, if the files that it reads exist."""
    blocks = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    assert blocks, "README.md shows no Python"
    monkeypatch.chdir(tmp_path)
    X, Y = make_multilabel(400, 100, 30, random_state=0)
    dump_xc(X[:300], Y[:300], "train.txt.gz")
    dump_xc(X[300:], Y[300:], "test.txt.gz")
    namespace = {"__name__": "readme"}
    for block in blocks:
        exec(compile(block, str(README), "exec"), namespace)


# Documented names of earlier versions, which must stay.
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
