"""Explanations of every classifier: the form is the same, and contributions sum to the explained quantity."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier

import manylabel as ml
from estimators import WITH_GIVEN_VALUES, as_written
from manylabel.estimator.explanation import LabelExplanation

X, Y = ml.datasets.make_multilabel(150, 20, 8, n_nonzero=6, random_state=0)
Y = csr_array(Y)
UNSEEN = 5
Y = csr_array(Y.toarray() * (np.arange(8) != UNSEEN))
ROWS = [0, 30]


@pytest.fixture(scope="module", params=WITH_GIVEN_VALUES, ids=as_written)
def model(request):
    return clone(request.param).fit(X, Y)


def inner_score(model, explanation, row, label):
    """The explained quantity, computed in another way than by `explain`."""
    quantity = explanation.quantity
    if quantity == "score":
        return model.decision_function(X[[row]])[0, label]
    if quantity.startswith("log-odds"):
        return model.explain(X[[row]]).log_odds[label]
    if " of the model of block " in quantity:
        block = int(quantity.rpartition(" ")[2])
        inner, place = model._model_of_label(block, label)
        if quantity.startswith("score"):
            return inner.decision_function(X[[row]])[0, place]
    if quantity.startswith("margin"):
        return None
    raise AssertionError(f"unknown quantity {quantity}")


def test_contributions_sum_to_the_quantity(model):
    scores = model.decision_function(X)
    for row in ROWS:
        scored = None
        for label in range(8):
            found = model.explain(X[[row]], label)
            assert isinstance(found, LabelExplanation)
            assert found.label == f"label {label}"
            np.testing.assert_allclose(found.score, scores[row, label], rtol=1e-6, atol=1e-6)
            if not np.isfinite(found.score):
                continue
            total = sum(part.contribution for part in found)
            np.testing.assert_allclose(total, found.total, atol=1e-9)
            wanted = inner_score(model, found, row, label)
            if wanted is not None:
                np.testing.assert_allclose(total, wanted, rtol=1e-5, atol=1e-5)
            sizes = [abs(part.contribution) for part in found]
            assert sizes == sorted(sizes, reverse=True)
            stored = {f"feature {j}" for j in X[[row]].indices}
            assert {part.name for part in found if part.part == "feature"} <= stored
            assert json.loads(json.dumps(found.to_dict()))["label"] == found.label
            assert repr(found).startswith(f"label {label}: ")
            scored = found
        # One frame for each row, because a frame takes longer than an explanation.
        assert scored is not None
        assert scored.to_frame()["contribution"].tolist() == [part.contribution for part in scored]


@pytest.mark.parametrize("weights", ["float32", "float16", "int8"])
@pytest.mark.parametrize("combine", ["product", "leaf"])
def test_the_margin_and_the_path_of_a_tree_give_the_score(weights, combine):
    tree = ml.LabelTreeClassifier(
        0.5,
        branching=2,
        max_leaf=2,
        beam=20,
        combine=combine,
        weights=weights,
        path_weight=0.7,
        random_state=0,
    ).fit(X, Y)
    scores = tree.decision_function(X)
    for row in range(8):
        for label in range(8):
            if label == UNSEEN:
                continue
            found = tree.explain(X[[row]], label)
            if combine == "leaf":
                assert found.quantity == "score"
                np.testing.assert_allclose(found.total, scores[row, label], rtol=1e-5, atol=1e-5)
                continue
            assert found.quantity == "margin in its leaf"
            assert len(found.path) >= 2
            own = -(max(0.0, 1.0 - found.total) ** 3)
            path = sum(part.contribution for part in found.path)
            np.testing.assert_allclose(own + path - tree.threshold_, scores[row, label], rtol=1e-5, atol=1e-5)


def test_a_label_without_rows_is_said_to_have_no_score(model):
    found = model.explain(X[[0]], UNSEEN)
    if found.score == -np.inf and not isinstance(model, ml.BoostedRulesClassifier):
        assert found.total == -np.inf or found.quantity.startswith("log-odds")


def test_json_has_null_for_a_score_of_minus_infinity():
    found = ml.DiSMECClassifier(1.0, random_state=0).fit(X, Y).explain(X[[0]], UNSEEN)
    assert found.score == -np.inf
    text = json.dumps(found.to_dict(), allow_nan=False)
    assert json.loads(text)["score"] is json.loads(text)["rows"][0]["contribution"] is None


def test_names_of_features_and_labels():
    names = [f"word {at}" for at in range(20)]
    labels = [f"topic {at}" for at in range(8)]
    model = ml.DiSMECClassifier(1.0, random_state=0)
    model.fit(pd.DataFrame(X.toarray(), columns=names), pd.DataFrame(Y.toarray(), columns=labels))
    found = model.explain(pd.DataFrame(X[[3]].toarray(), columns=names), "topic 2")
    assert found.label == "topic 2"
    assert all(part.name.startswith("word ") for part in found if part.part == "feature")
    renamed = model.explain(
        pd.DataFrame(X[[3]].toarray(), columns=names), 2, feature_names=list("abcdefghijklmnopqrst")
    )
    assert [part.contribution for part in renamed] == [part.contribution for part in found]
    with pytest.raises(ValueError, match="`label` must be a label of the model, got 'x'"):
        model.explain(pd.DataFrame(X[[3]].toarray(), columns=names), "x")


def test_blocks_of_models_of_other_libraries():
    inner = OneVsRestClassifier(LogisticRegression())
    seen = Y[:, np.arange(8) != UNSEEN]
    model = ml.BlockPartitionClassifier(inner, n_blocks=2, random_state=0).fit(X, seen)
    scores = model.decision_function(X[ROWS])
    for at, row in enumerate(ROWS):
        for label in np.flatnonzero(np.isfinite(scores[at])):
            found = model.explain(X[[row]], int(label))
            np.testing.assert_allclose(sum(part.contribution for part in found), found.total, atol=1e-9)
            assert found.path[0].part == "route"
            pairs = csr_array(np.eye(7)[[label]])
            assert model.decision_at(X[[row]], pairs).data[0] == scores[at, label]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((X[:2], 0), "`x` must have exactly one row"),
        ((X[[0]], 8), "`label` must be an integer from 0 to 7, got 8"),
        ((X[[0]], "a"), "the model has no label names"),
        ((np.zeros(3), 0), "3 features"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        ml.DiSMECClassifier(1.0, random_state=0).fit(X, Y).explain(*arguments)


@pytest.mark.parametrize(
    "classifier",
    [ml.DiSMECClassifier, ml.LabelTreeClassifier, ml.SmoothLinkClassifier],
    ids=lambda of: of.__name__,
)
def test_the_length_of_a_row_does_not_matter_if_rows_are_scaled(classifier):
    """Contributions are those of the row of unit length, even if squares of its values are out of range."""
    X, Y = ml.datasets.make_multilabel(150, 200, 8, random_state=0)
    model = classifier(random_state=0).fit(X, Y)
    assert model.normalize_
    row = X[[0]].astype(np.float64)
    usual = {part.name: part.contribution for part in model.explain(row, 2)}
    for factor in (1e200, 1e-200):
        found = {part.name: part.contribution for part in model.explain(row * factor, 2)}
        assert found == pytest.approx(usual)


def test_a_row_is_scaled_before_its_features_are_removed():
    """With the linear kernel, contributions are products of weights with the row of unit length."""
    X, Y = ml.datasets.make_multilabel(200, 300, 8, random_state=0)
    model = ml.SmoothLinkClassifier(kernel="linear", random_state=0).fit(X, Y)
    assert model.normalize_
    row = X[[3]].toarray()[0].astype(float)
    expected = row / np.linalg.norm(row) * (model.projection_ @ model.coef_[2])
    found = {part.name: part.contribution for part in model.explain(X[[3]], 2) if part.part == "feature"}
    features = [f"feature {feature}" for feature in np.flatnonzero(row)]
    np.testing.assert_allclose([found[name] for name in features], expected[row != 0], atol=1e-5)


def test_a_text_is_explained_by_its_words(tmp_path):
    texts = ["a cat and a dog", "income tax law", "my dog", "the law of tax"] * 3
    labels = [["pets"], ["law", "money"], ["pets"], ["law", "money"]] * 3
    tagger = ml.TextTagger(ml.DiSMECClassifier(1.0, random_state=0)).fit(texts, labels)
    tagger.save(tmp_path / "tagger")
    found = ml.load(tmp_path / "tagger").explain("the dog and the tax of cats", "pets")
    assert found.label == "pets"
    words = {part.name: part.contribution for part in found if part.part == "feature"}
    assert set(words) <= {"the", "dog", "and", "tax", "of"}
    assert words["dog"] > 0 > words["tax"]
    np.testing.assert_allclose(
        found.total, dict(tagger.suggest("the dog and the tax of cats"))["pets"], atol=1e-5
    )
    with pytest.raises(ValueError, match="`label` must be a label of the model"):
        tagger.explain("dog", "dogs")
    with pytest.raises(ValueError, match="`text` must be a str"):
        tagger.explain(["dog"], "pets")


def test_a_plot_has_a_bar_for_each_part():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    from matplotlib import pyplot

    found = ml.DiSMECClassifier(1.0, random_state=0).fit(X, Y).explain(X[[0]], 1)
    for most in (2, 50):
        axes = ml.plotting.explanation(found, max_parts=most)
        assert len(axes.patches) == min(most + 1, len(found))
        widths = [bar.get_width() for bar in axes.patches]
        np.testing.assert_allclose(sum(widths), found.total)
        pyplot.close(axes.figure)
