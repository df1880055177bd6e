"""Every estimator goes through a file of skops, with no types but those of `trusted_types`."""

import numpy as np
import pytest
from scipy.sparse import issparse
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

import manylabel as ml
from estimators import CLASSIFIERS, PARTITIONERS, TRANSFORMERS
from manylabel.compat.skops import trusted_types


@pytest.fixture(scope="module")
def skops():
    """The module that reads and writes files. It is imported here, because this takes a second."""
    return pytest.importorskip("skops.io", reason="files of skops need the package skops")


X, Y = ml.datasets.make_multilabel(80, 10, 6, random_state=0)
# One estimator of each class. Variants with other parameters have the same attributes.
ONE_OF_EACH = {type(each).__name__: each for each in reversed([*CLASSIFIERS, *TRANSFORMERS, *PARTITIONERS])}


def same(found, wanted):
    """Whether two values of attributes are equal in all bits, types and orders."""
    if isinstance(wanted, np.ndarray):
        return found.dtype == wanted.dtype and np.array_equal(
            found, wanted, equal_nan=wanted.dtype.kind == "f"
        )
    if issparse(wanted):
        parts = ("data", "indices", "indptr")
        return found.shape == wanted.shape and all(
            same(getattr(found, part), getattr(wanted, part)) for part in parts
        )
    if hasattr(wanted, "get_params"):
        return all(same(vars(found)[name], value) for name, value in vars(wanted).items())
    if isinstance(wanted, list | tuple):
        return all(same(*pair) for pair in zip(found, wanted, strict=True))
    return type(found) is type(wanted) and found == wanted


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_an_estimator_is_the_same_after_it_is_loaded(skops, name):
    model = clone(ONE_OF_EACH[name])
    if "cv" in model.get_params():
        model.set_params(cv=0.3)
    model.fit(X, Y)
    loaded = skops.loads(skops.dumps(model), trusted=trusted_types())
    assert type(loaded) is type(model)
    assert same(loaded, model)
    if hasattr(model, "predict_topk"):
        assert same(loaded.predict_topk(X, 3), model.predict_topk(X, 3))


def test_a_tagger_and_a_pipeline_predict_the_same(skops):
    texts, labels = ["a cat", "tax law", "my dog", "the law"], [["pets"], ["law", "tax"], ["pets"], ["law"]]
    tagger = ml.TextTagger(ml.DiSMECClassifier(random_state=0)).fit(texts, labels)
    loaded = skops.loads(skops.dumps(tagger), trusted=trusted_types())
    assert loaded.suggest("a law", k=3) == tagger.suggest("a law", k=3)
    pipeline = make_pipeline(MaxAbsScaler(), ml.DiSMECClassifier(random_state=0)).fit(X, Y)
    loaded = skops.loads(skops.dumps(pipeline), trusted=trusted_types())
    assert same(loaded.decision_function(X), pipeline.decision_function(X))


def test_types_are_not_trusted_unasked_and_name_no_code(skops):
    content = skops.dumps(ml.DiSMECClassifier(random_state=0).fit(X, Y))
    with pytest.raises(Exception, match=r"manylabel\.linear\.dismec\.DiSMECClassifier"):
        skops.loads(content)
    assert set(skops.get_untrusted_types(data=content)) <= set(trusted_types())
    for name in trusted_types():
        module, _, cls = name.rpartition(".")
        assert isinstance(getattr(__import__(module, fromlist=[cls]), cls), type)
