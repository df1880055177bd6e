"""`DiSMECClassifier` on dense features: the same optimum as on sparse features, read without a copy."""

import tracemalloc

import numpy as np
import pytest
from scipy.sparse import csr_array, issparse

from manylabel import DiSMECClassifier, _core, load
from manylabel.datasets import make_multilabel
from manylabel.metrics import precision_at_k
from oracle import linear as oracle

MARGINS = {"threshold": "zero", "prune": 0, "random_state": 0}


def clusters(n_rows, n_columns, n_labels, seed=0):
    """Rows with up to three labels, each of which adds its own direction. Columns have different means."""
    rng = np.random.default_rng(seed)
    frequency = 1 / np.arange(1, n_labels + 1)
    frequency /= frequency.sum()
    centers = rng.normal(size=(n_labels, n_columns))
    X, Y = rng.normal(size=(n_rows, n_columns)), np.zeros((n_rows, n_labels), dtype=np.int8)
    for row in range(n_rows):
        Y[row, rng.choice(n_labels, rng.integers(1, 4), p=frequency)] = 1
        X[row] += centers[Y[row] > 0].mean(axis=0)
    return (X + rng.normal(size=n_columns)).astype(np.float32), Y


@pytest.fixture(scope="module")
def data():
    X, Y = clusters(1500, 24, 90)
    return X[:1200], Y[:1200], X[1200:], Y[1200:]


def bits(model):
    return [part.tobytes() for part in (model.coef_, model.intercept_, model.n_iter_)] + [model.threshold_]


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


def test_same_bits_for_every_memory_order_and_number_of_threads(data):
    X, Y, *_ = data
    X = X.astype(np.float16)
    expected = bits(DiSMECClassifier(random_state=0).fit(X, Y))
    wide = X.astype(np.float32)
    padded = np.zeros((len(X), 50), dtype=np.float64)
    padded[:, ::-2][:, : X.shape[1]] = X
    forms = [wide, X.astype(np.float64), np.asfortranarray(wide), np.asfortranarray(X)]
    forms += [padded[:, ::-2][:, : X.shape[1]], np.repeat(wide, 2, axis=0)[::2]]
    for form in forms:
        assert bits(DiSMECClassifier(random_state=0).fit(form, Y)) == expected
    assert bits(DiSMECClassifier(random_state=0, n_jobs=3).fit(wide, Y)) == expected


def test_mapped_rows(data, tmp_path):
    X, Y, *_ = data
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    assert bits(DiSMECClassifier(1.0).fit(mapped, Y)) == bits(DiSMECClassifier(1.0).fit(X, Y))


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


def test_dense_rows_are_never_made_sparse(data, monkeypatch):
    X, Y, X_test, _ = data
    Y, model = csr_array(Y), DiSMECClassifier(1.0, random_state=0)

    def refused(*arguments, **_):
        if isinstance(arguments[0], np.ndarray) and arguments[0].shape[1:] == X.shape[1:]:
            raise AssertionError("X was made sparse")
        return csr_array(*arguments)

    monkeypatch.setattr("manylabel.estimator.validation.csr_array", refused)
    model.fit(X, Y).predict_topk(X_test)


def test_logistic_loss_uses_sparse_rows(data):
    X, Y, X_test, _ = data
    model = DiSMECClassifier(1.0, loss="logistic", random_state=0).fit(X, Y[:, :20])
    margins = model.decision_function(X_test)
    assert issparse(model.coef_)
    same = DiSMECClassifier(1.0, loss="logistic", random_state=0).fit(csr_array(X), Y[:, :20])
    np.testing.assert_array_equal(margins, same.decision_function(X_test))
    model.add_labels(X, Y[:, 20:22])
    assert issparse(model.coef_)


def peak_of(call):
    """The largest memory of numpy's arrays and of the core during a call, beyond the memory before it."""
    tracemalloc.start()
    try:
        core, python = _core.restart_memory_peak(), tracemalloc.get_traced_memory()[0]
        call()
        return tracemalloc.get_traced_memory()[1] - python + _core.memory_held()[1] - core
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("form", [np.ascontiguousarray, np.asfortranarray])
def test_memory_beyond_x_and_the_model(form):
    rng = np.random.default_rng(0)
    X = rng.random((36_000, 512), dtype=np.float32)
    Y = csr_array((np.ones(len(X)), rng.integers(16, size=len(X)), np.arange(len(X) + 1)), shape=(len(X), 16))
    model = DiSMECClassifier(1.0, threshold="zero", max_iter=2, tol=10, random_state=0)
    given = form(X)
    # A dense copy takes 1.0 X, and sparse rows take at least 2 X.
    assert peak_of(lambda: model.fit(given, Y)) < 0.5 * X.nbytes
    assert peak_of(lambda: model.predict_topk(X, 1)) < 0.1 * X.nbytes


def test_many_columns_need_no_gram_matrix():
    X, Y = make_multilabel(60, 2500, 5, random_state=0)
    dense = DiSMECClassifier(1.0, solver="exact", tol=1e-4, **MARGINS)
    margins = dense.fit(X.toarray(), Y).decision_function(X)
    sparse = DiSMECClassifier(1.0, solver="exact", tol=1e-4, **MARGINS).fit(X, Y).decision_function(X)
    np.testing.assert_allclose(margins, sparse, atol=0.01)
