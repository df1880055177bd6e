"""`LEMLClassifier` against its objective, the best fit of a given rank and published figures."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import check_grad
from scipy.sparse import csr_array
from scipy.special import expit
from sklearn.base import clone

from dense_rows import clusters
from manylabel import LEMLClassifier
from manylabel.datasets import load_xc, make_multilabel
from manylabel.metrics import precision_at_k
from oracle import leml as oracle
from oracle.linear import design

LOSSES = ["squared", "logistic", "squared-hinge"]
every_loss = pytest.mark.parametrize("loss", LOSSES)


@st.composite
def problems(draw):
    """Features, labels with at least one positive row each, a mask of known entries, and row weights."""
    n, d, c = draw(st.integers(2, 25)), draw(st.integers(1, 20)), draw(st.integers(1, 20))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < draw(st.sampled_from([0.3, 1.0])))
    Y = (rng.random((n, c)) < 0.3).astype(int)
    observed = (rng.random((n, c)) < draw(st.sampled_from([0.6, 1.0]))).astype(int)
    first = rng.integers(n, size=c), np.arange(c)
    Y[first] = observed[first] = 1
    weights = draw(st.sampled_from([None, rng.integers(1, 4, n) / 2]))
    return X, Y, observed, weights


def arguments(problem, model, observed):
    X, Y, _, weights = problem
    A = design(X, model.normalize, False)[:, model.features_]
    return A, Y, model.alpha, model.loss, observed, np.ones(len(X)) if weights is None else weights


@every_loss
@given(problem=problems(), seed=st.integers(0, 100))
def test_gradient_of_the_oracle(problem, loss, seed):
    X, Y, observed, weights = problem
    rng = np.random.default_rng(seed)
    W, H = rng.normal(size=(X.shape[1], 2)), rng.normal(size=(Y.shape[1], 2))
    rest = X, Y, 0.1, loss, observed, np.ones(len(X)) if weights is None else weights

    def split(flat):
        return flat[: W.size].reshape(W.shape), flat[W.size :].reshape(H.shape)

    def gradient(flat):
        return np.concatenate([part.ravel() for part in oracle.gradient(*split(flat), *rest)])

    start = np.concatenate([W.ravel(), H.ravel()])
    error = check_grad(lambda flat: oracle.value(*split(flat), *rest), gradient, start)
    assert error < 1e-4 * (1 + np.linalg.norm(gradient(start)))


@every_loss
@given(
    problem=problems(),
    masked=st.booleans(),
    rank=st.sampled_from([1, 3, 18]),
    alpha=st.sampled_from([0.03, 0.3]),
    normalize=st.booleans(),
)
def test_objective_falls_to_a_stationary_point(problem, loss, masked, rank, alpha, normalize):
    X, Y, observed, weights = problem
    if not masked:
        observed = np.ones_like(Y)
    params = {"alpha": alpha, "loss": loss, "fit_intercept": False, "normalize": normalize, "random_state": 0}
    model = LEMLClassifier(rank, **params, max_iter=60, tol=1e-9, cg_tol=1e-2)
    model.fit(X, Y, sample_weight=weights, observed=observed if masked else None)
    start = model.objective_[0]
    assert (np.diff(model.objective_) <= 1e-5 * start).all()
    assert len(model.objective_) == model.n_iter_
    assert model.feature_factors_.shape[1] <= min(rank, len(X), Y.shape[1])
    W, H = model.feature_factors_.astype(float), model.label_factors_.T.astype(float)
    rest = arguments(problem, model, observed)
    np.testing.assert_allclose(oracle.value(W, H, *rest), model.objective_[-1], rtol=1e-4, atol=1e-5)
    # If the fit has converged, the gradient is small.
    by_w, by_h = oracle.gradient(W, H, *rest)
    if model.n_iter_ < 60:
        assert np.sqrt((by_w**2).sum() + (by_h**2).sum()) < 0.03 * (1 + start)


@every_loss
@pytest.mark.parametrize("normalize", ["columns", "rows", False])
@pytest.mark.parametrize("shape", [(200, 20), (30, 80)])
def test_dense_and_sparse_rows_have_the_same_solution(loss, normalize, shape):
    """With a Gram matrix of the columns, and without if there are more columns than rows."""
    rng = np.random.default_rng(0)
    X, Y = rng.normal(1, 1, shape), (rng.random((shape[0], 9)) < 0.3).astype(float)
    X[:, 3], Y[:, 5] = 0, 0
    Y[rng.random(Y.shape) < 0.05] = np.nan
    weights = rng.uniform(0.5, 2, shape[0])
    model = LEMLClassifier(5, alpha=1.0, loss=loss, normalize=normalize, max_iter=3, random_state=0)
    model.set_params(cg_tol=1e-6, cg_max_iter=300, fit_intercept=normalize != "rows")
    dense = clone(model).fit(X, Y, weights)
    sparse = clone(model).fit(csr_array(X), Y, weights)
    np.testing.assert_array_equal(dense.features_, np.delete(np.arange(shape[1]), 3))
    np.testing.assert_array_equal(dense.features_, sparse.features_)
    np.testing.assert_allclose(dense.objective_, sparse.objective_, rtol=1e-4)
    scores = dense.decision_function(X)
    np.testing.assert_allclose(scores, sparse.decision_function(X), rtol=1e-3, atol=1e-3)
    # One row at a time, and sparse rows, have scores with the same bits.
    np.testing.assert_array_equal(
        np.vstack([dense.decision_function(row[None]) for row in X[:20]]), scores[:20]
    )
    np.testing.assert_array_equal(dense.decision_function(csr_array(X)), scores)


@pytest.mark.parametrize("ratio", [400, 3000])
@pytest.mark.parametrize(
    "parameters", [{"normalize": False}, {"normalize": "columns", "fit_intercept": False}]
)
def test_columns_with_large_means(ratio, parameters):
    """The deviations of the columns are small in comparison with their squares in a Gram matrix."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 6))
    Y = (X @ rng.normal(size=(6, 4)) > 0.5).astype(int)
    X = (X + ratio).astype(np.float32)
    model = LEMLClassifier(4, alpha=0.01, threshold=0.5, random_state=0, **parameters)
    dense, sparse = clone(model).fit(X, Y), clone(model).fit(csr_array(X), Y)
    assert dense.objective_[-1] < 1.005 * sparse.objective_[-1]
    assert (dense.predict(X) == Y).mean() > (sparse.predict(X) == Y).mean() - 0.005


def test_alpha_and_threshold_are_those_of_sparse_rows():
    X, Y = clusters(900, 24, 30)
    dense = LEMLClassifier(10, random_state=0).fit(X[:600], Y[:600])
    sparse = LEMLClassifier(10, random_state=0).fit(csr_array(X[:600]), Y[:600])
    assert dense.alpha_ == pytest.approx(sparse.alpha_, rel=1e-3)
    assert dense.threshold_ == pytest.approx(sparse.threshold_, abs=1e-3)
    scores = dense.decision_function(X[600:]), sparse.decision_function(X[600:])
    np.testing.assert_allclose(*scores, atol=1e-3)


@pytest.mark.parametrize("alpha", [1e-4, 0.5])
@pytest.mark.parametrize("rank", [3, 17, 18])
def test_identity_features_give_the_best_fit_of_that_rank(rank, alpha):
    Y = make_multilabel(30, 10, 18, random_state=0)[1].toarray()
    Y[np.arange(18), np.arange(18)] = 1
    params = {"fit_intercept": False, "max_iter": 2000, "tol": 1e-9, "cg_tol": 1e-3, "random_state": 0}
    model = LEMLClassifier(rank, alpha=alpha, **params).fit(np.eye(30), Y)
    best = oracle.best_scores_of_identity(Y, alpha, rank)
    found = model.decision_function(np.eye(30))
    # Singular values near the cut converge slowly, but they contribute little to the loss.
    assert ((Y - found) ** 2).sum() <= ((Y - best) ** 2).sum() * 1.01 + 1e-3
    assert np.linalg.norm(found - best) < 0.05 * np.linalg.norm(best)


@every_loss
def test_a_mask_of_ones_is_no_mask(loss):
    """Squared loss without a mask is solved by ridge regressions, everything else by Newton's method."""
    X, Y = make_multilabel(200, 40, 15, random_state=0)
    # For the other losses, both fits take the same steps and differ only by rounding.
    (n_iter, n_steps), tolerance = ((50, 20), 0.1) if loss == "squared" else ((1, 3), 0.01)
    params = {"loss": loss, "max_iter": n_iter, "cg_max_iter": n_steps, "tol": 1e-9, "random_state": 0}
    params["alpha"] = 0.1
    plain, masked = (
        LEMLClassifier(6, **params).fit(X, Y, observed=mask) for mask in (None, np.ones(Y.shape))
    )
    np.testing.assert_allclose(masked.objective_[-1], plain.objective_[-1], rtol=5e-3)
    np.testing.assert_allclose(masked.decision_function(X), plain.decision_function(X), atol=tolerance)


@every_loss
def test_what_is_unknown_does_not_matter(loss):
    X, Y = make_multilabel(150, 40, 12, random_state=0)
    Y = Y.toarray()
    known = np.random.default_rng(0).random(Y.shape) < 0.5
    model = LEMLClassifier(6, loss=loss, random_state=0)
    first = model.fit(X, Y, observed=known).decision_function(X)
    learned = model.alpha_, model.threshold_
    second = model.fit(X, np.where(known, Y, 1), observed=csr_array(known)).decision_function(X)
    np.testing.assert_array_equal(first, second)
    assert (model.alpha_, model.threshold_) == learned
    # If unknown entries count as absent, the scores of hidden positives are lower.
    absent = model.fit(X, Y * known).decision_function(X)
    hidden = (Y == 1) & ~known
    assert first[hidden].mean() > absent[hidden].mean()


def test_predictions_are_those_of_the_factors():
    X, Y = make_multilabel(300, 40, 37, random_state=0)
    Y = Y.toarray()
    Y[:, 5] = 0
    for loss in LOSSES:
        params = {"loss": loss, "threshold": "zero", "max_iter": 3, "random_state": 0}
        model = LEMLClassifier(7, **params, normalize=False).fit(X, Y)
        scores = X[:, model.features_] @ model.feature_factors_ @ model.label_factors_ + model.intercept_
        found = model.decision_function(X)
        np.testing.assert_allclose(found, scores, rtol=1e-4, atol=1e-5)
        assert np.isneginf(found).any(axis=0).nonzero()[0].tolist() == [5]
        np.testing.assert_array_equal(model.predict(X), found > 0)
        assert hasattr(model, "predict_proba") == (loss == "logistic")
        if loss == "logistic":
            np.testing.assert_allclose(model.predict_proba(X), expit(found))
        assert (model.intercept_[[0, 5]] + model.threshold_ != 0).all()
        without = LEMLClassifier(7, fit_intercept=False).fit(X, Y)
        np.testing.assert_array_equal(without.intercept_[[0, 1]], -np.float32(without.threshold_))


def test_factors_are_few_where_rows_or_labels_are():
    X, Y = make_multilabel(50, 30, 20, random_state=0)
    assert LEMLClassifier(100).fit(X, Y).label_factors_.shape == (20, 20)
    assert LEMLClassifier(100).fit(X[:3], Y[:3]).feature_factors_.shape[1] == 3
    Y = np.zeros((50, 4))
    model = LEMLClassifier(3).fit(X, Y)
    assert model.label_factors_.shape == (0, 4)
    assert (model.n_iter_, model.predict_topk(X).nnz) == (0, 0)


@pytest.mark.parametrize(
    ("observed", "message"),
    [
        (np.ones((4, 3)), r"`observed` must have the shape of Y, \(50, 3\), got \(4, 3\)"),
        (np.ones((50, 2)), r"`observed` must have the shape of Y, \(50, 3\), got \(50, 2\)"),
        (np.full((50, 3), 2), "observed must contain only 0 and 1, got 2"),
        (np.full((50, 3), np.nan), "observed must be a 2-D indicator matrix .* NaN"),
    ],
)
def test_bad_mask(observed, message):
    X, Y = make_multilabel(50, 10, 3, random_state=0)
    with pytest.raises(ValueError, match=message):
        LEMLClassifier(2).fit(X, Y, observed=observed)


# --- penalty and threshold learned from held-out rows


def noisy(seed, n=300, d=60, c=12):
    """Labels with three latent directions and a large noise."""
    rng = np.random.default_rng(7)
    M = rng.normal(size=(d, 3)) @ rng.normal(size=(3, c))
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, (X @ M / 10 + rng.normal(size=(n, c)) > 1.5).astype(int)


@every_loss
def test_the_chosen_alpha_predicts_other_rows_best(loss):
    (X, Y), (X_test, Y_test) = noisy(0, 150, 50), noisy(1, 2000, 50)
    params = {"loss": loss, "threshold": "zero", "random_state": 0}

    def of_other_rows(alpha):
        model = LEMLClassifier(alpha=alpha, **params).fit(X, Y)
        return model, oracle.losses(model.decision_function(X_test).astype(float), Y_test, loss)[0].sum()

    model, chosen = of_other_rows("auto")
    others = [of_other_rows(alpha)[1] for alpha in (0.01, 0.1, 0.3, 1, 3, 10, 30, 100)]
    assert chosen <= 1.02 * min(others)
    assert chosen <= 0.9 * max(others)  # alpha has an effect
    again = of_other_rows(model.alpha_)[0]
    np.testing.assert_array_equal(again.feature_factors_, model.feature_factors_)
    np.testing.assert_array_equal(again.label_factors_, model.label_factors_)


@pytest.mark.parametrize(("scale", "weight"), [(64, 1), (2.0**-10, 1), (1, 8), (16, 0.125)])
def test_the_chosen_alpha_grows_with_rows_and_weights(scale, weight):
    X, Y = noisy(0)
    params = {"fit_intercept": False, "normalize": False, "random_state": 0}
    model = LEMLClassifier(**params).fit(X, Y)
    scaled = LEMLClassifier(**params).fit(scale * X, Y, sample_weight=np.full(len(X), weight))
    # The initial H is not scaled, so the agreement is not exact.
    np.testing.assert_allclose(scaled.alpha_, model.alpha_ * scale * weight, rtol=0.15)
    assert np.abs(scaled.decision_function(scale * X) - model.decision_function(X)).mean() < 0.02


@every_loss
@pytest.mark.parametrize("share", [None, 0.5])
def test_as_many_labels_are_named_as_are_true(loss, share):
    """On new rows the threshold gives about the true number of labels. Without it far fewer are predicted."""
    (X, Y), (X_test, Y_test) = noisy(0), noisy(1, 2000)
    known = None if share is None else np.random.default_rng(0).random(Y.shape) < share
    params = {"loss": loss, "random_state": 0}
    model = LEMLClassifier(**params).fit(X, Y, observed=known)
    assert 0.8 <= model.predict(X_test).sum() / Y_test.sum() <= 1.25
    plain = LEMLClassifier(**params, threshold="zero").fit(X, Y, observed=known)
    assert plain.predict(X_test).sum() < 0.7 * Y_test.sum()
    # Learning a threshold does not change the factors.
    np.testing.assert_array_equal(plain.feature_factors_, model.feature_factors_)
    np.testing.assert_array_equal(plain.label_factors_, model.label_factors_)
    np.testing.assert_array_equal(plain.objective_, model.objective_)


def test_the_threshold_is_that_of_a_fit_without_the_rows():
    """The threshold is close to that of new rows. That of training rows is larger."""
    (X, Y), fresh = noisy(0, 400, 500), noisy(1, 2000, 500)
    params = {"alpha": 0.3, "normalize": False, "random_state": 0}
    model = LEMLClassifier(**params).fit(X, Y)

    def cut(X, Y):
        return np.sort(model.decision_function(X).ravel())[-Y.sum()]

    honest, by_heart = (cut(*rows) + model.threshold_ for rows in (fresh, (X, Y)))
    assert by_heart - honest > 0.05
    assert abs(model.threshold_ - honest) < (by_heart - honest) / 3


def test_thresholds_that_are_given():
    X, Y = noisy(0)
    for loss, zero in [("squared", 0.5), ("logistic", 0), ("squared-hinge", 0)]:
        params = {"alpha": 1.0, "loss": loss, "max_iter": 2, "random_state": 0}
        for asked, threshold in [("zero", zero), (0.25, 0.25), (-1, -1)]:
            model = LEMLClassifier(threshold=asked, **params).fit(X, Y)
            assert model.threshold_ == threshold
            np.testing.assert_array_equal(model.predict(X), model.decision_function(X) > 0)
            if loss == "logistic":
                odds = model.decision_function(X).astype(float) + threshold
                np.testing.assert_allclose(model.predict_proba(X), expit(odds), rtol=1e-5)
        # Models of an earlier version have no `threshold_`, and their intercepts are the fitted ones.
        del model.threshold_
        np.testing.assert_array_equal(model.predict(X), model.decision_function(X) > zero)
        # There is nothing to learn from if no row can be held out or no label is present.
        assert LEMLClassifier(**params).fit(X[:1], np.ones((1, 2))).threshold_ == zero
        assert LEMLClassifier(**params).fit(X, 0 * Y).threshold_ == zero
    for bad in ("half", None, [0.5]):
        with pytest.raises(ValueError, match="`threshold` must be"):
            LEMLClassifier(threshold=bad).fit(X, Y)


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_few_rows(n):
    X, Y = noisy(0, n)
    Y[0, 0] = 1
    model = LEMLClassifier(random_state=0).fit(X, Y)
    assert np.isfinite([model.alpha_, model.threshold_]).all()
    assert np.isfinite(model.decision_function(X)[:, 0]).all()


FLOORS = {"bibtex": [62.0, 36.0, 26.0], "delicious": [65.0, 59.0, 54.0]}


@pytest.mark.parametrize("name", FLOORS)
def test_published_figures(data, name):
    X, Y = load_xc(data / name / "train.txt.gz")
    X_test, Y_test = load_xc(data / name / "test.txt.gz")
    model = LEMLClassifier(100, alpha=0.1, random_state=0, n_jobs=-1).fit(X, Y)
    found = 100 * precision_at_k(Y_test, model.predict_topk(X_test, 5), k=(1, 3, 5))
    assert (found >= FLOORS[name]).all()


# One-vs-rest logistic regression has 63.1, 72.5 and 83.1; LEML with alpha=0.1 has 62.5, 58.0 and 82.5.
@pytest.mark.parametrize(("name", "least"), [("bibtex", 61.5), ("enron", 77.0), ("medical", 83.0)])
def test_defaults_on_real_sets(data, name, least):
    X, Y = load_xc(data / name / "train.txt.gz")
    X_test, Y_test = load_xc(data / name / "test.txt.gz")
    model = LEMLClassifier(random_state=0, n_jobs=-1).fit(X, Y)
    assert 100 * precision_at_k(Y_test, model.predict_topk(X_test, 1), k=1) >= least
    assert 0.85 <= model.predict(X_test).sum() / Y_test.sum() <= 1.15
