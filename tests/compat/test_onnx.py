"""Classifiers that are exported to ONNX have the same scores and label sets in onnxruntime."""

from importlib.util import find_spec

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import manylabel as ml
from manylabel.decision import LabelCalibrator

# The packages take a second to import, so only the tests import them.
pytestmark = [
    pytest.mark.skipif(not find_spec("skl2onnx"), reason="manylabel.compat.onnx needs the package skl2onnx"),
    pytest.mark.skipif(not find_spec("onnxruntime"), reason="exported models run in the package onnxruntime"),
]

TOLERANCE = 1e-5
X, Y = (matrix.toarray() for matrix in ml.datasets.make_multilabel(150, 30, 12, random_state=0))
Y[:, 3] = 0  # a label without rows, whose scores are -inf
X[7] = 0


def missing(X):
    X = X.copy()
    X[::3, ::2] = np.nan
    return X


MODELS = {
    "DiSMEC, rows": (ml.DiSMECClassifier(normalize="rows", random_state=0), X),
    "DiSMEC, columns": (ml.DiSMECClassifier(normalize="columns", random_state=0), 100 * X + 5),
    "DiSMEC, a threshold": (ml.DiSMECClassifier(threshold=-0.5, random_state=0), X),
    "PD-Sparse": (ml.PDSparseClassifier(random_state=0), X),
    "LEML": (ml.LEMLClassifier(3, random_state=0), X),
    "rules, label sets": (ml.BoostedRulesClassifier(40, random_state=0), X),
    "rules, signs": (ml.BoostedRulesClassifier(40, loss="label-wise-logistic", random_state=0), X),
    "rules, subset accuracy": (
        ml.BoostedRulesClassifier(40, predictor="subset-accuracy", random_state=0),
        X,
    ),
    "rules, Hamming loss": (ml.BoostedRulesClassifier(40, predictor="hamming", random_state=0), X),
    "rules, F1": (ml.BoostedRulesClassifier(40, predictor="example-f1", random_state=0), X),
    "rules, one label": (ml.BoostedRulesClassifier(40, head="single-label", random_state=0), X),
    "rules, missing values": (ml.BoostedRulesClassifier(40, random_state=0), missing(X)),
    "rules, nominal": (
        ml.BoostedRulesClassifier(40, categorical_features=list(range(20)), random_state=0),
        np.round(3 * X),
    ),
    "one rule": (ml.BoostedRulesClassifier(1, random_state=0), missing(X)),
    "pipeline": (make_pipeline(StandardScaler(), ml.DiSMECClassifier(random_state=0)), X),
}


def run(model, X):
    """The label sets and the scores of the exported model."""
    import onnxruntime

    from manylabel.compat.onnx import to_onnx

    session = onnxruntime.InferenceSession(
        to_onnx(model).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(["labels", "scores"], {"X": X.astype(np.float32)})


@pytest.mark.parametrize("name", MODELS)
def test_scores_and_label_sets_are_those_of_the_model(name):
    model, X = MODELS[name]
    model.fit(X, Y)
    labels, scores = run(model, X)
    X = X.astype(np.float32)
    wanted = model.decision_function(X)
    assert scores.dtype == np.float32
    assert np.isneginf(wanted[:, 3]).all()
    np.testing.assert_allclose(scores, wanted, rtol=TOLERANCE, atol=TOLERANCE)
    assert labels.dtype == np.int64
    # A score within the tolerance of the threshold may fall on its other side.
    sure = np.abs(wanted) > TOLERANCE
    assert np.array_equal(labels[sure], model.predict(X)[sure])


@pytest.mark.parametrize("by_sets", [0, 1])
@pytest.mark.parametrize("measure", ["subset-accuracy", "example-f1"])
def test_choices_of_rules(by_sets, measure):
    model = ml.BoostedRulesClassifier(40, predictor=measure, random_state=0).fit(X, Y)
    model.choice_by_sets_ = np.full(3, by_sets, dtype=np.uint8)
    model.choice_bounds_, model.choice_powers_ = np.full(3, 0.75), np.full(3, 0.5)
    assert np.array_equal(run(model, X)[0], model.predict(X))


def test_rules_of_labels_without_rows():
    model = ml.BoostedRulesClassifier(5, predictor="example-f1", random_state=0).fit(X[:3], np.zeros((3, 2)))
    assert not model.predict(X).any()
    assert not run(model, X)[0].any()


def test_nominal_conditions_are_tested():
    model, X = MODELS["rules, nominal"]
    assert set(model.fit(X, Y).body_operator_) == {0, 1, 2, 3}


def test_a_single_label_is_a_column():
    y = Y[:, 0]
    model = ml.DiSMECClassifier(random_state=0).fit(X, y)
    labels, scores = run(model, X)
    assert labels.shape == (len(X), 1)
    np.testing.assert_allclose(scores[:, 0], model.decision_function(X), atol=TOLERANCE)
    assert np.array_equal(labels[:, 0], model.predict(X))


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (ml.LabelTreeClassifier(random_state=0), "LabelTreeClassifier"),
        (ml.SmoothLinkClassifier(random_state=0), "SmoothLinkClassifier"),
        (
            make_pipeline(StandardScaler(), ml.LabelTreeClassifier(random_state=0)),
            "a Pipeline that ends in LabelTreeClassifier",
        ),
        (LabelCalibrator(ml.DiSMECClassifier(random_state=0)), "LabelCalibrator"),
        (StandardScaler(), "StandardScaler"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_models_that_cannot_be_exported_are_named(model, name):
    from manylabel.compat.onnx import to_onnx

    with pytest.raises(
        TypeError, match=f"cannot export {name} to ONNX; .* BoostedRulesClassifier, DiSMECClassifier, "
    ):
        to_onnx(model.fit(X, Y))


def test_a_pipeline_of_texts_is_refused():
    from manylabel.compat.onnx import to_onnx

    model = make_pipeline(TfidfVectorizer(), ml.DiSMECClassifier(random_state=0))
    with pytest.raises(TypeError, match="a Pipeline whose first step takes texts cannot be exported"):
        to_onnx(model.fit(["a cat", "tax law", "my dog", "the law"], [[1, 0], [0, 1], [1, 0], [0, 1]]))


def test_a_model_that_is_too_large_or_not_fitted_is_refused(monkeypatch):
    from manylabel.compat import onnx

    with pytest.raises(NotFittedError):
        onnx.to_onnx(ml.DiSMECClassifier())
    monkeypatch.setattr(onnx, "_MOST_BYTES", 4 * 30 * 12 - 1)
    with pytest.raises(ValueError, match=r"of DiSMECClassifier must take at most 1,439 bytes.* got 1,440"):
        onnx.to_onnx(ml.DiSMECClassifier(random_state=0).fit(X, Y))
