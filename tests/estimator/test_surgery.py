"""Labels changed after the fit: other labels keep their bits, and changed labels are as from a fit."""

import copy

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import manylabel as ml
from cases import case
from manylabel.datasets import make_multilabel

X, Y = make_multilabel(200, 30, 12, random_state=0)
X_new, Y_new = make_multilabel(150, 30, 3, random_state=1)
Y = Y.toarray()
NAMES = [f"label {chr(97 + at)}" for at in range(12)]

MODELS = {
    "dismec": ml.DiSMECClassifier(1.0, random_state=0),
    "dismec-columns": ml.DiSMECClassifier(1.0, normalize="columns", random_state=0),
    "tree": ml.LabelTreeClassifier(1.0, branching=3, max_leaf=3, beam=20, random_state=0),
    "trees": ml.LabelTreeClassifier(1.0, n_trees=3, branching=2, max_leaf=2, random_state=0),
    "leaf": ml.LabelTreeClassifier(1.0, random_state=0),
    "int8": ml.LabelTreeClassifier(1.0, branching=3, max_leaf=3, weights="int8", random_state=0),
    "float16": ml.LabelTreeClassifier(1.0, branching=3, max_leaf=3, weights="float16", random_state=0),
}


@pytest.fixture(scope="module", params=MODELS)
def fitted(request):
    return clone(MODELS[request.param]).fit(X, pd.DataFrame(Y, columns=NAMES))


@pytest.fixture
def model(fitted):
    """A model that the test may change."""
    return copy.deepcopy(fitted)


def assert_sound(model, tmp_path):
    """The model can be saved, and the loaded model gives the same scores and labels."""
    model.save(tmp_path / "model")
    loaded = ml.load(tmp_path / "model")
    assert np.array_equal(loaded.decision_function(X), model.decision_function(X))
    assert loaded.label_changes_.tolist() == model.label_changes_.tolist()
    assert (
        loaded.predict_topk(X, k=30).shape == model.predict_topk(X, k=30).shape == (200, len(model.classes_))
    )
    loaded.predict(X)


@pytest.mark.parametrize("dropped", [[3], ["label d", 0, "label l"], list(range(11)), np.arange(5, 9)])
def test_dropped_labels_leave_the_bits_of_the_others(model, dropped, tmp_path):
    before = model.decision_function(X)
    assert model.drop_labels(dropped) is model
    gone = [NAMES.index(label) if isinstance(label, str) else int(label) for label in dropped]
    kept = np.setdiff1d(np.arange(12), gone)
    assert np.array_equal(model.decision_function(X), before[:, kept])
    assert model.label_names_.tolist() == [NAMES[at] for at in kept]
    assert model.classes_.tolist() == list(range(len(kept)))
    assert model.label_changes_.tolist() == ["drop " + ", ".join(repr(NAMES[at]) for at in gone)]
    assert_sound(model, tmp_path)


def test_rankings_are_those_of_the_remaining_labels(model):
    full = model.predict_topk(X, k=12)
    model.drop_labels([1, 5, 6])
    kept = np.setdiff1d(np.arange(12), [1, 5, 6])
    left = csr_array(full[:, kept])
    left.sort_indices()
    found = model.predict_topk(X, k=12)
    assert np.array_equal(found.indptr, left.indptr)
    assert np.array_equal(found.indices, left.indices)
    assert np.array_equal(found.data, left.data)


def test_renamed_labels(model, tmp_path):
    before = model.decision_function(X)
    model.rename_labels({"label a": "felines", 3: "日本"})
    assert model.label_names_.tolist() == ["felines", *NAMES[1:3], "日本", *NAMES[4:]]
    assert np.array_equal(model.decision_function(X), before)
    assert model.label_changes_.tolist() == ["rename 'label a' to 'felines'", "rename 'label d' to '日本'"]
    model.rename_labels({"felines": "label b", "label b": "felines"})
    assert model.label_names_.tolist()[:2] == ["label b", "felines"]
    assert_sound(model, tmp_path)


def test_added_labels(model, tmp_path):
    before = model.decision_function(X)
    model.add_labels(X_new, Y_new, names=["x", "y", "z"])
    after = model.decision_function(X)
    assert np.array_equal(after[:, :12], before)
    assert model.label_names_.tolist() == [*NAMES, "x", "y", "z"]
    assert model.label_changes_.tolist() == ["add 'x', 'y', 'z', fitted on 150 rows"]
    assert_sound(model, tmp_path)


@pytest.mark.parametrize("normalize", ["rows", "columns", False])
def test_labels_added_to_one_vs_rest_are_those_of_a_fit(normalize):
    plain = ml.DiSMECClassifier(0.7, normalize=normalize, solver="exact", threshold=0.1, random_state=0)
    whole = plain.fit(X, Y).decision_function(X)
    parts = plain.fit(X, Y[:, :9]).add_labels(X, Y[:, 9:])
    np.testing.assert_array_equal(parts.decision_function(X), whole)


def test_refitted_labels(model, tmp_path):
    before = model.decision_function(X)
    model.refit_labels(X, Y[:, [7, 2]], ["label h", 2])
    after = model.decision_function(X)
    others = np.setdiff1d(np.arange(12), [2, 7])
    assert np.array_equal(after[:, others], before[:, others])
    if isinstance(model, ml.DiSMECClassifier):  # the rows of the fit give the weights of the fit
        assert np.array_equal(after, before)
    model.refit_labels(X_new, Y_new[:, [0]], 4)
    assert np.array_equal(model.decision_function(X)[:, others[others != 4]], before[:, others[others != 4]])
    assert not np.array_equal(model.decision_function(X)[:, 4], before[:, 4])
    assert model.label_names_.tolist() == NAMES
    assert model.label_changes_.tolist() == [
        "refit 'label h', 'label c' on 200 rows",
        "refit 'label e' on 150 rows",
    ]
    assert_sound(model, tmp_path)


@pytest.mark.parametrize("normalize", ["rows", "columns", False])
@pytest.mark.parametrize("intercept", [True, False])
def test_a_warm_start_gives_the_same_weights_in_fewer_steps(normalize, intercept):
    plain = ml.DiSMECClassifier(
        0.5, normalize=normalize, fit_intercept=intercept, threshold=0.3, tol=1e-4, random_state=0
    )
    labels = [7, 2, 11]
    cold, warm = (plain.fit(X[:190], Y[:190]) for plain in (clone(plain), clone(plain)))
    before = warm.decision_function(X)
    cold.refit_labels(X, Y[:, labels], labels)
    warm.refit_labels(X, Y[:, labels], labels, warm_start=True)
    whole = plain.fit(X, Y).decision_function(X)
    assert np.array_equal(cold.decision_function(X)[:, labels], whole[:, labels])
    after = warm.decision_function(X)
    np.testing.assert_allclose(after[:, labels], whole[:, labels], rtol=0, atol=2e-3)
    others = np.setdiff1d(np.arange(12), labels)
    assert np.array_equal(after[:, others], before[:, others])
    assert warm.n_iter_[labels].sum() < cold.n_iter_[labels].sum()


def test_a_warm_start_of_rare_labels_and_of_trees_gives_the_same_bits():
    Z, labels = make_multilabel(400, 30, 3, random_state=2)
    labels = csr_array(labels.toarray() * (np.arange(400)[:, None] % 200 == np.arange(3) * 7))
    labels = csr_array(labels + csr_array(np.eye(400)[:, [5, 6, 7]]))
    for model in (MODELS["dismec"], MODELS["tree"]):
        cold, warm = (clone(model).fit(Z[:390], labels[:390]) for _ in range(2))
        cold.refit_labels(Z, labels[:, [1]], [1])
        warm.refit_labels(Z, labels[:, [1]], [1], warm_start=True)
        assert np.array_equal(cold.decision_function(Z), warm.decision_function(Z))


def test_a_label_without_rows_has_no_weights_to_start_from():
    model = ml.DiSMECClassifier(1.0, threshold=0.0, tol=1e-5, random_state=0).fit(X, Y * (np.arange(12) != 4))
    assert (model.decision_function(X)[:, 4] == -np.inf).all()
    model.refit_labels(X, Y[:, [4]], [4], warm_start=True)
    whole = ml.DiSMECClassifier(1.0, threshold=0.0, tol=1e-5, random_state=0).fit(X, Y)
    assert np.array_equal(model.decision_function(X)[:, 4], whole.decision_function(X)[:, 4])


def test_merged_labels(model, tmp_path):
    before = model.decision_function(X)
    model.merge_labels(["label c", "label b", 9], X, Y[:, [2, 1, 9]], name="both")
    kept = [0, 3, 4, 5, 6, 7, 8, 10, 11]
    names = [NAMES[at] for at in kept]
    assert model.label_names_.tolist() == [names[0], "both", *names[1:]]
    after = model.decision_function(X)
    assert np.array_equal(np.delete(after, 1, axis=1), before[:, kept])
    union = Y[:, [2, 1, 9]].any(axis=1).astype(int)
    if isinstance(model, ml.DiSMECClassifier):
        alone = ml.DiSMECClassifier(
            1.0, normalize=model.normalize, threshold=model.threshold_, random_state=0
        ).fit(X, union[:, None])
        assert np.array_equal(after[:, 1], alone.decision_function(X)[:, 0])
    else:
        assert after[union == 1, 1].mean() > after[union == 0, 1].mean()
    assert_sound(model, tmp_path)


def test_wrong_changes_change_nothing(model):
    for call, message in [
        (lambda model: model.drop_labels(range(12)), "must not contain all labels of the model"),
        (lambda model: model.drop_labels([1, "label b"]), "`labels` must be unique"),
        (lambda model: model.drop_labels([]), "at least one label, got none"),
        (lambda model: model.drop_labels("label x"), "`label` must be a label of the model, got 'label x'"),
        (lambda model: model.drop_labels([12]), "`label` must be an integer from 0 to 11, got 12"),
        (lambda model: model.rename_labels({"label a": "label b"}), "must be unique, got 'label b' twice"),
        (lambda model: model.rename_labels(["a"]), "`names` must have 12 names"),
        (lambda model: model.add_labels(X_new, Y_new), "`names` must be the names of 3 labels, got None"),
        (lambda model: model.add_labels(X_new, Y_new, names=["x", "y", "label a"]), "must be unique"),
        (lambda model: model.add_labels(X_new[:, :5], Y_new, names=list("xyz")), "5 features"),
        (lambda model: model.refit_labels(X, Y[:, :3], [1, 2]), "Y must have 2 columns"),
        (lambda model: model.merge_labels([1], X, Y[:, [1]]), "at least two labels"),
        (lambda model: model.merge_labels([1, 2], X, Y[:, :2], name="label a"), "must be unique"),
        (lambda model: model.merge_labels([1, 2], X, Y[:, :2], name=3), "`name` must be a str, got 3"),
        (lambda model: model.merge_labels([1, 2], X, Y[:, :2] * 2), "only 0 and 1"),
    ]:
        before = vars(model).copy()
        with case(message), pytest.raises(ValueError, match=message):
            call(model)
        assert vars(model) == before


def test_models_without_names_and_with_one_label():
    model = ml.DiSMECClassifier(1.0, random_state=0).fit(X, Y)
    with pytest.raises(ValueError, match="`names` must be a sequence with the names of all"):
        model.rename_labels({0: "a"})
    with pytest.raises(ValueError, match="`names` must be None, since the model has no label names"):
        model.add_labels(X_new, Y_new, names=["a", "b", "c"])
    with pytest.raises(ValueError, match="`name` must be None, since the model has no label names"):
        model.merge_labels([0, 1], X, Y[:, :2], name="a")
    assert model.drop_labels(0).label_changes_.tolist() == ["drop 'label 0'"]
    assert not hasattr(model.fit(X, Y), "label_changes_")
    assert model.rename_labels(NAMES).label_names_.tolist() == NAMES
    one = ml.DiSMECClassifier(1.0, random_state=0).fit(X, Y[:, 0])
    scores = one.decision_function(X)
    one.add_labels(X, Y[:, 1])
    assert np.array_equal(one.decision_function(X)[:, 0], scores)
    assert one.drop_labels(1).decision_function(X).shape == (200, 1)
    with pytest.raises(NotFittedError):
        ml.DiSMECClassifier().drop_labels(0)


def test_an_unfinished_label_warns_the_caller():
    model = ml.DiSMECClassifier(100.0, max_iter=1, tol=1e-9, random_state=0)
    with pytest.warns(ConvergenceWarning):
        model.fit(X, Y)
    with pytest.warns(ConvergenceWarning, match="3 linear classifiers did not") as caught:
        model.add_labels(X_new, Y_new)
    assert caught[0].filename == __file__
