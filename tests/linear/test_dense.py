"""`DiSMECClassifier` on dense features: the same optimum as on sparse features."""

import numpy as np
import pytest
from scipy.sparse import csr_array, issparse

from dense_rows import clusters
from manylabel import DiSMECClassifier, load
from manylabel.datasets import make_multilabel
from manylabel.metrics import precision_at_k
from oracle import linear as oracle

MARGINS = {"threshold": "zero", "prune": 0, "random_state": 0}


@pytest.fixture(scope="module")
def data():
    X, Y = clusters(1500, 24, 90)
    return X[:1200], Y[:1200], X[1200:], Y[1200:]


@pytest.mark.parametrize("normalize", ["columns", "rows", False])
@pytest.mark.parametrize("weighted", [False, True])
def test_same_optimum_as_sparse(data, normalize, weighted):
    X, Y, X_test, _ = data
    given, Y = {}, Y.astype(np.float32)
    if weighted:
        rng = np.random.default_rng(0)
        Y[rng.random(Y.shape) < 0.02] = np.nan
        given = {
            "sample_weight": rng.uniform(0, 2, len(X)),
            "label_weight": rng.uniform(0.5, 2, Y.shape[1]),
            "propensities": rng.uniform(0.5, 1, Y.shape[1]),
        }
    model = DiSMECClassifier(
        1.0, solver="exact", tol=1e-4, normalize=normalize, fit_intercept=not weighted, **MARGINS
    )
    dense = model.fit(X, Y, **given).decision_function(X_test)
    assert isinstance(model.coef_, np.ndarray)
    assert model.coef_.flags.c_contiguous
    sparse = model.fit(csr_array(X), Y, **given).decision_function(X_test)
    assert issparse(model.coef_)
    seen = np.nansum(Y, axis=0) > 0
    assert np.isneginf(dense[:, ~seen]).all()
    np.testing.assert_allclose(dense[:, seen], sparse[:, seen], atol=0.02)


def test_tolerances(data):
    X, Y, *_ = data
    A = oracle.design(X.astype(float), False, True)
    exact, fast = (
        DiSMECClassifier(0.01, solver=solver, normalize=False, **MARGINS).fit(X, Y)
        for solver in ("exact", "fast")
    )
    assert exact.n_iter_.max() < 30
    rare, saved = 0, 0
    for label in range(0, Y.shape[1], 6):
        y = Y[:, label]
        if not y.any():
            continue
        arguments = A, 2.0 * y - 1, 0.01, np.ones(len(X))
        w, near = (np.append(m.coef_[label], m.intercept_[label]).astype(float) for m in (exact, fast))
        share = y.sum() / len(y)
        at_zero = np.linalg.norm(oracle.gradient(np.zeros_like(w), *arguments))
        allowed = 1.01 * 0.01 * min(share, 1 - share) * at_zero + 1e-4
        assert np.linalg.norm(oracle.gradient(w, *arguments)) <= allowed
        if share >= 0.01:
            assert np.linalg.norm(oracle.gradient(near, *arguments)) <= allowed
            continue
        constant_loss = 4 * 0.01 * y.sum() * (1 - share)
        assert oracle.value(near, *arguments) - oracle.value(w, *arguments) <= 0.03 * constant_loss
        rare += 1
        saved += exact.n_iter_[label] - fast.n_iter_[label]
    assert rare >= 3
    assert saved > 0


def test_labels_leave_a_group_when_they_converge(data):
    X, Y, X_test, _ = data
    model = DiSMECClassifier(1.0, solver="exact", tol=1e-5, normalize=False, **MARGINS)
    together = model.fit(X, Y).decision_function(X_test)
    # Labels take different numbers of steps, so they leave the group at different times.
    assert len(np.unique(model.n_iter_)) > 3
    for label in (0, 7, 21):
        alone = model.fit(X, Y[:, [label]]).decision_function(X_test)[:, 0]
        np.testing.assert_allclose(together[:, label], alone, atol=2e-3)


def test_rankings_and_thresholds_are_those_of_sparse_rows(data):
    X, Y, X_test, Y_test = data
    dense = DiSMECClassifier(random_state=0).fit(X, Y)
    sparse = DiSMECClassifier(random_state=0).fit(csr_array(X), Y)
    # The solvers differ, so the rankings of the held-out rows differ a little.
    assert 10**-0.25 < dense.C_ / sparse.C_ < 10**0.25
    assert abs(dense.threshold_ - sparse.threshold_) < 0.1
    precisions = [precision_at_k(Y_test, m.predict_topk(X_test), (1, 3, 5)) for m in (dense, sparse)]
    np.testing.assert_allclose(*precisions, atol=0.02)


def test_scores_do_not_depend_on_the_batch_or_the_form(data):
    X, Y, X_test, _ = data
    model = DiSMECClassifier(1.0, random_state=0).fit(X, Y)
    scores = model.decision_function(X_test)
    np.testing.assert_array_equal(
        np.vstack([model.decision_function(x[None]) for x in X_test[:50]]), scores[:50]
    )
    np.testing.assert_array_equal(model.decision_function(csr_array(X_test)), scores)
    exact = X_test.astype(float) @ model.coef_.T.astype(float) + model.intercept_
    np.testing.assert_allclose(scores, exact, atol=1e-4)
    top = model.predict_topk(X_test, 4)
    best = np.sort(np.argsort(-scores, axis=1, kind="stable")[:, :4], axis=1)
    np.testing.assert_array_equal(top.indices.reshape(-1, 4), best)
    np.testing.assert_array_equal(model.predict(X_test), scores > 0)


def test_pruned_weights_are_zero(data):
    X, Y, *_ = data
    full = DiSMECClassifier(1.0, normalize=False, **MARGINS).fit(X, Y)
    pruned = DiSMECClassifier(1.0, normalize=False, **MARGINS).set_params(prune=0.05).fit(X, Y)
    expected = np.where(np.abs(full.coef_) < np.float32(0.05), 0, full.coef_)
    assert 0 < np.count_nonzero(expected) < np.count_nonzero(full.coef_)
    np.testing.assert_array_equal(pruned.coef_, expected)


def test_changes_of_labels(data, tmp_path):
    X, Y, X_test, _ = data
    model = DiSMECClassifier(1.0, random_state=0).fit(X, Y[:, :20])
    scores = model.decision_function(X_test)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").decision_function(X_test), scores)
    model.add_labels(X, Y[:, 20:22]).add_labels(csr_array(X), Y[:, 22:24]).drop_labels([3])
    assert model.coef_.shape == (23, X.shape[1])
    np.testing.assert_array_equal(np.delete(scores, 3, axis=1), model.decision_function(X_test)[:, :19])
    again = model.refit_labels(X, Y[:, [4]], [3], warm_start=True).decision_function(X_test)
    np.testing.assert_allclose(again[:, 3], scores[:, 4], atol=0.1)
    sparse = DiSMECClassifier(1.0, random_state=0).fit(csr_array(X), Y[:, :20])
    sparse.add_labels(X, Y[:, 20:22])
    assert issparse(sparse.coef_)
    assert sparse.coef_.shape == (22, X.shape[1])


def test_explanations_sum_to_the_score(data):
    X, Y, X_test, _ = data
    model = DiSMECClassifier(1.0, random_state=0).fit(X, Y)
    explanation = model.explain(X_test[0], 3)
    assert abs(sum(part.contribution for part in explanation) - explanation.score) < 1e-4


def test_logistic_loss_has_sparse_weights(data):
    X, Y, *_ = data
    model = DiSMECClassifier(1.0, loss="logistic", random_state=0).fit(X, Y[:, :20])
    assert issparse(model.coef_)
    model.add_labels(X, Y[:, 20:22])
    assert issparse(model.coef_)


def test_many_columns_need_no_gram_matrix():
    X, Y = make_multilabel(60, 2500, 5, random_state=0)
    dense = DiSMECClassifier(1.0, solver="exact", tol=1e-4, **MARGINS)
    margins = dense.fit(X.toarray(), Y).decision_function(X)
    sparse = DiSMECClassifier(1.0, solver="exact", tol=1e-4, **MARGINS).fit(X, Y).decision_function(X)
    np.testing.assert_allclose(margins, sparse, atol=0.01)
