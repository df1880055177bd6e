"""Tests of `LabelTreeClassifier` with scaled columns: comparison with scaling by hand, and invariants."""

import numpy as np
import pytest
from scipy.sparse import csr_array

import manylabel as ml
from manylabel import LabelTreeClassifier
from manylabel.metrics import precision_at_k

N_LABELS = 60
PARAMS = {"C": 1.0, "branching": 4, "max_leaf": 10, "beam": 3, "random_state": 0}


@pytest.fixture(scope="module")
def measured():
    """Measurements in different units: centered columns, columns with many zeros, and a constant column."""
    random = np.random.default_rng(0)
    X = random.normal(size=(900, 20))
    Y = (X @ random.normal(size=(20, N_LABELS)) > 5).astype(np.int64)
    X[:, 10:15] *= random.random((900, 5)) < 0.3
    X[:, 19] = 7.0
    X[:, :10] += 3.0
    X *= 10.0 ** np.linspace(-4, 4, 20)
    return X[:600], Y[:600], X[600:], Y[600:]


def by_hand(X):
    """The shift and the scale of each column."""
    mean, deviation = X.mean(0), X.std(0)
    varies = deviation > 1e-6 * np.abs(mean)
    scale = np.where(varies, 1 / (np.where(varies, deviation, 1.0) * np.sqrt(varies.sum())), 0.0)
    return np.where(varies & ((X != 0).mean(0) > 0.5), mean, 0.0), scale


@pytest.mark.parametrize("weights", ["float32", "float16", "int8"])
@pytest.mark.parametrize("form", [np.asarray, csr_array])
def test_scaling_columns_is_the_same_as_scaling_them_before(measured, form, weights):
    X, Y, X_new, _ = measured
    X, X_new = (x.astype(np.float32).astype(np.float64) for x in (X, X_new))
    model = LabelTreeClassifier(**PARAMS, weights=weights).fit(form(X), Y)
    shift, scale = by_hand(X)
    assert (shift[:10] != 0).all()
    assert (shift[10:15] == 0).all()
    assert scale[19] == 0
    np.testing.assert_allclose(model.column_shift_, shift, rtol=1e-9)
    np.testing.assert_allclose(model.column_scale_, scale, rtol=1e-9)
    one, two = (((x - model.column_shift_) * model.column_scale_).astype(np.float32) for x in (X, X_new))
    before = LabelTreeClassifier(**PARAMS, weights=weights, normalize=False).fit(form(one), Y)
    assert not hasattr(before, "column_shift_")
    np.testing.assert_array_equal(model.decision_function(form(X_new)), before.decision_function(two))
    np.testing.assert_array_equal(model.predict(form(X_new)), before.predict(two))
    for first, second in ((form(X_new), two), (form(X_new[[0]]), two[[0]])):
        top, expected = model.predict_topk(first, 3), before.predict_topk(second, 3)
        np.testing.assert_array_equal(top.indices, expected.indices)
        np.testing.assert_array_equal(top.data, expected.data)


def test_units_of_the_columns_do_not_matter(measured):
    X, Y, X_new, Y_new = measured
    units = 2.0 ** np.arange(-10, 10)
    one = LabelTreeClassifier(random_state=0).fit(X, Y).predict_topk(X_new, 5)
    two = LabelTreeClassifier(random_state=0).fit(X * units, Y).predict_topk(X_new * units, 5)
    np.testing.assert_array_equal(one.indices, two.indices)
    np.testing.assert_allclose(one.data, two.data, rtol=1e-4)
    unscaled = LabelTreeClassifier(C=1.0, normalize=False, max_iter=10, random_state=0)
    with pytest.warns(UserWarning, match="did not converge"):
        worse = unscaled.fit(X, Y).predict_topk(X_new, 5)
    assert precision_at_k(Y_new, one, k=(5,))[0] > precision_at_k(Y_new, worse, k=(5,))[0] + 0.2


def test_new_labels_are_fitted_to_scaled_columns(measured):
    X, Y, X_new, _ = measured
    old = LabelTreeClassifier(**PARAMS | {"max_leaf": N_LABELS}).fit(X, Y[:, :50])
    scores = old.decision_function(X_new)
    full = LabelTreeClassifier(**PARAMS | {"max_leaf": N_LABELS}).fit(X, Y)
    added = old.add_labels(X, Y[:, 50:]).decision_function(X_new)
    np.testing.assert_array_equal(added[:, :50], scores)
    threshold = full.threshold_ - old.threshold_
    np.testing.assert_allclose(added[:, 50:], full.decision_function(X_new)[:, 50:] + threshold, atol=1e-4)


def test_contributions_of_scaled_columns_sum_to_the_score(measured):
    X, Y, *_ = measured
    model = LabelTreeClassifier(**PARAMS, combine="leaf").fit(X, Y)
    label = int(model.predict_topk(X[[3]], 1).indices[0])
    explanation = model.explain(X[[3]], label)
    score = float(model.decision_function(X[[3]])[0, label])
    assert sum(part.contribution for part in explanation) == pytest.approx(score, abs=1e-4)


def test_files_have_the_scaling_of_the_columns(measured, tmp_path):
    X, Y, X_new, _ = measured
    model = LabelTreeClassifier(**PARAMS).fit(X, Y)
    model.save(tmp_path / "model.safetensors")
    loaded = ml.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.decision_function(X_new), model.decision_function(X_new))
    del loaded.column_shift_
    with pytest.raises(ValueError, match="`column_shift_` and `column_scale_` must have the same length"):
        loaded.set_params(beam=4).decision_function(X_new)
    model.column_scale_[2] = np.nan
    with pytest.raises(ValueError, match="`column_scale_` must be finite"):
        model.set_params(beam=4).decision_function(X_new)


def test_a_later_fit_without_scaled_columns_forgets_them(measured):
    X, Y, X_new, _ = measured
    model = LabelTreeClassifier(**PARAMS).fit(X, Y)
    again = model.set_params(normalize="rows").fit(X, Y).decision_function(X_new)
    expected = LabelTreeClassifier(**PARAMS, normalize="rows").fit(X, Y).decision_function(X_new)
    assert not hasattr(model, "column_shift_")
    np.testing.assert_array_equal(again, expected)
