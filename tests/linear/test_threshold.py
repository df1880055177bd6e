"""The learned threshold: label sets have the size of true ones, and the weights stay the same."""

from functools import partial

import numpy as np
import pytest
from scipy.sparse import csr_array

from manylabel import DiSMECClassifier, PDSparseClassifier
from manylabel.datasets import load_xc, make_multilabel


def parts(n_rows, n_features, n_labels, share=0.5):
    """Planted rows. The first part, `share` of all, is for training and the rest for testing."""
    n_train = round(n_rows * share)
    X, Y = make_multilabel(n_rows, n_features, n_labels, random_state=0)
    return X[:n_train], Y[:n_train], X[n_train:], Y[n_train:]


def size_ratio(named, Y):
    """Number of predicted labels divided by the number of true labels."""
    return csr_array(named).sum() / csr_array(Y).sum()


@pytest.mark.parametrize("solver", ["fast", "exact"])
@pytest.mark.parametrize(
    "shape",
    [(400, 50, 5), (600, 2000, 30), (2400, 500, 200), (3000, 500, 1000)],
    ids=["small", "more features than rows", "panels", "many rare labels"],
)
def test_names_as_many_labels_as_unseen_rows_have(solver, shape):
    X, Y, X_new, Y_new = parts(*shape)
    model = DiSMECClassifier(solver=solver, random_state=0, n_jobs=2).fit(X, Y)
    assert 0.75 < size_ratio(model.predict(X_new), Y_new) < 1.33


def noisy(n_rows, n_features, n_labels, seed=0):
    """Labels that depend little on the features, so that the weights overfit."""
    rng = np.random.default_rng(seed)
    X = np.where(rng.random((n_rows, n_features)) < 0.05, rng.normal(size=(n_rows, n_features)), 0)
    scores = X @ rng.normal(size=(n_features, n_labels)) / np.sqrt(0.05 * n_features)
    return csr_array(X), (scores + rng.normal(size=scores.shape) > 1.8).astype(int)


def cut(scores, Y):
    """The score above which as many labels are predicted as there are true ones."""
    return np.sort(scores.ravel())[-int(Y.sum())]


@pytest.mark.parametrize(
    "make",
    [partial(DiSMECClassifier, 1.0), partial(PDSparseClassifier, fit_intercept=False)],
    ids=["DiSMEC", "PD-Sparse"],
)
def test_rows_are_forgotten(make):
    """The threshold is that of fits without the held-out rows, not that of training rows."""
    X, Y = noisy(600, 500, 30)
    model = make(random_state=0).fit(X, Y)
    honest = []
    for fold in range(5):
        held = np.arange(len(Y)) % 10 == fold
        unaware = make(threshold="zero", random_state=0).fit(X[~held], Y[~held])
        honest.append(cut(unaware.decision_function(X[held]), Y[held]))
    seen = cut(model.decision_function(X), Y) + model.threshold_
    assert abs(model.threshold_ - np.mean(honest)) < 0.4 * abs(seen - np.mean(honest))


@pytest.mark.parametrize("solver", ["fast", "exact"])
def test_weights_are_those_without_it(solver):
    X, Y, X_new, _ = parts(1500, 300, 150)
    for weights in (None, np.random.default_rng(0).random(X.shape[0])):
        learned = DiSMECClassifier(1.0, solver=solver, random_state=0).fit(X, Y, weights)
        plain = DiSMECClassifier(1.0, solver=solver, threshold="zero", random_state=0).fit(X, Y, weights)
        assert learned.threshold_ != 0
        assert plain.threshold_ == 0
        np.testing.assert_array_equal(learned.coef_.data, plain.coef_.data)
        lowered = plain.intercept_ - np.float32(learned.threshold_)
        np.testing.assert_array_equal(learned.intercept_, lowered)
        np.testing.assert_array_equal(learned.n_iter_, plain.n_iter_)
        np.testing.assert_array_equal(plain.predict(X_new).toarray(), plain.decision_function(X_new) > 0)


def test_the_same_bits_for_any_number_of_threads():
    X, Y, *_ = parts(1500, 300, 200)
    fits = [DiSMECClassifier(random_state=1, n_jobs=n).fit(X, Y).threshold_ for n in (1, 2, 1)]
    assert len(set(fits)) == 1


def test_a_number_is_what_it_says():
    X, Y, X_new, _ = parts(400, 50, 5)
    plain = DiSMECClassifier(threshold="zero", random_state=0).fit(X, Y)
    model = DiSMECClassifier(threshold=0.25, random_state=0).fit(X, Y)
    named = plain.decision_function(X_new) > 0.25
    np.testing.assert_array_equal(model.predict(X_new).toarray(), named)
    assert 0 < named.sum() < plain.predict(X_new).sum()


def test_nothing_to_learn_from():
    X = np.eye(3)
    for Y in (np.zeros((3, 2), dtype=int), np.ones((3, 2), dtype=int)):
        model = DiSMECClassifier(random_state=0).fit(X, Y)
        assert np.isfinite(model.threshold_)
        np.testing.assert_array_equal(model.predict(X), Y)
    assert DiSMECClassifier(random_state=0).fit(X[:1], [[1, 0]]).predict(X[:1]).tolist() == [[1, 0]]


@pytest.mark.parametrize(
    "name", ["yeast", "scene", "emotions", "enron", "medical", "bibtex", "corel5k", "delicious"]
)
def test_real_label_sets_are_of_a_sensible_size(data, name):
    (X, Y), (X_new, Y_new) = (load_xc(data / name / f"{part}.txt.gz") for part in ("train", "test"))
    model = DiSMECClassifier(random_state=0, n_jobs=2).fit(X, Y)
    assert 0.8 < size_ratio(model.predict(X_new), Y_new) < 1.25
