"""`SmoothLinkClassifier` against its oracle and ridge regression, and the effects of its parameters."""

from itertools import permutations, product

import numpy as np
import pytest
from scipy.optimize import check_grad
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import RandomizedSearchCV
from sklearn.multiclass import OneVsRestClassifier

import manylabel as ml
from manylabel import SmoothLinkClassifier
from manylabel.datasets import make_multilabel
from manylabel.link import smooth_link_space
from oracle import link as oracle

CLOSED = {"loss": "squared", "shrink": 1.0}
# Bytes of memory that are too few to keep the features of 300 rows.
ANEW = 150_000


@pytest.fixture(scope="module")
def problem():
    X, Y = make_multilabel(300, 40, 12, random_state=0)
    return X.toarray().astype(np.float64), Y.toarray().astype(float)


@pytest.fixture(scope="module")
def weights():
    return np.random.default_rng(1).integers(1, 4, 300).astype(float)


def fit(problem, sample_weight=None, **params):
    return (
        SmoothLinkClassifier(
            5, n_features=60, gamma=1.0, l2=1e-4, l2_link=0.01, threshold="zero", random_state=0
        )
        .set_params(**params)
        .fit(*problem, sample_weight=sample_weight)
    )


def design(model, X):
    p = X @ model.projection_ + model.projection_intercept_
    return oracle.design(p, model.frequencies_, model.phases_)


def weights_of(model):
    """The weights V. The last row is that of the constant feature."""
    middle = 0.5 if model.loss == "squared" else 0
    return np.vstack([model.coef_.T, model.intercept_ + middle])


KERNELS = ["gaussian", "matern-3", "matern-5", "cauchy", "linear", "quasi-gaussian"]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("shrink", [1.0, 0.9])
def test_squared_loss_is_least_squares(problem, weights, kernel, shrink):
    model = fit(problem, weights, kernel=kernel, loss="squared", shrink=shrink)
    Phi = design(model, problem[0])
    V = oracle.least_squares(Phi, oracle.smoothed(problem[1], shrink), weights, model.l2_link)
    np.testing.assert_allclose(model.decision_function(problem[0]) + 0.5, Phi @ V, atol=2e-4)
    np.testing.assert_allclose(model.predict_proba(problem[0]), np.clip(Phi @ V, 0, 1), atol=2e-4)


@pytest.mark.parametrize("max_memory", [None, 80_000])
def test_unknown_entries_have_no_gradients(max_memory):
    X = make_multilabel(300, 40, 12, random_state=0)[0].toarray()[:3].astype(np.float64)
    Y = np.eye(3)
    Y[0, 1] = Y[2, 0] = np.nan
    params = {"step_size": 0.7, "momentum": 0.4, "decay": 0.9}
    model = fit((X, Y), None, n_passes=2, max_memory=max_memory, shrink=0.9, l2_link=0.05, **params)
    known, weights = ~np.isnan(Y), np.ones(3)
    Phi, targets = design(model, X), oracle.smoothed(np.nan_to_num(Y), 0.9)
    orders = [[[row] for row in order] for order in permutations(range(3))]
    errors = []
    for batches in product(orders, repeat=2):
        V = oracle.steps(Phi, targets, weights, 0.05, batches, loss="logistic", known=known, **params)
        errors.append(np.abs(Phi @ (weights_of(model) - V)).max())
    assert sum(error < 1e-5 for error in errors) == 1, sorted(errors)[:3]


def with_unknown(problem, share):
    Y = problem[1].copy()
    Y[np.random.default_rng(2).random(Y.shape) < share] = np.nan
    Y[:, 3] = problem[1][:, 3]  # one label is known for all rows
    return problem[0], Y


@pytest.mark.parametrize("share", [0.02, 0.6])
@pytest.mark.parametrize("max_memory", [None, 400_000])  # features are kept or computed anew
def test_squared_loss_leaves_unknown_entries_out(problem, weights, share, max_memory):
    X, Y = with_unknown(problem, share)
    model = fit((X, Y), weights, l2_link=0.3, max_memory=max_memory, loss="squared", shrink=0.9)
    Phi = design(model, X)
    _, ridge = oracle.gram(Phi, weights, model.l2_link)
    for label in range(Y.shape[1]):
        known = ~np.isnan(Y[:, label])
        A, targets = Phi[known], oracle.smoothed(Y[known][:, [label]], 0.9)
        m = weights[known, None]
        v = np.linalg.solve(A.T @ (m * A) + ridge * np.eye(A.shape[1]), A.T @ (m * targets))
        found = model.decision_function(X)[:, label] + 0.5
        np.testing.assert_allclose(found, (Phi @ v)[:, 0], atol=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_newton_leaves_unknown_entries_out(problem, weights, seed):
    X, Y = with_unknown(problem, 0.3)
    options = {"solver": "newton-cg", "l2_link": 0.3, "tol": 1e-6, "shrink": 0.95, "random_state": seed}
    model = fit((X, Y), weights, **options)
    Phi = design(model, X)
    _, ridge = oracle.gram(Phi, weights, model.l2_link)
    for label in range(Y.shape[1]):
        known = ~np.isnan(Y[:, label])
        A, targets = Phi[known], oracle.smoothed(Y[known][:, [label]], 0.95)
        v = oracle.optimum(A, targets, weights[known], ridge)
        np.testing.assert_allclose(model.decision_function(X)[:, label], (Phi @ v)[:, 0], atol=1e-5)


@pytest.mark.parametrize("loss", ["logistic", "softmax"])
@pytest.mark.parametrize("max_memory", [None, 80_000])  # features are kept and whitened, or computed anew
def test_passes_are_those_of_the_oracle(problem, loss, max_memory):
    """At most ten rows make batches of one row, so two passes over three rows have 36 possible orders."""
    X, Y = problem[0][:3], np.eye(3)
    weights = np.array([1.0, 3.0, 2.0])
    params = {"step_size": 0.7, "momentum": 0.4, "decay": 0.9}
    model = fit(
        (X, Y), weights, loss=loss, n_passes=2, max_memory=max_memory, shrink=0.9, l2_link=0.05, **params
    )
    Phi, targets = design(model, X), oracle.smoothed(Y, 0.9, loss == "softmax")
    orders = [[[row] for row in order] for order in permutations(range(3))]
    errors = []
    for batches in product(orders, repeat=2):
        V = oracle.steps(Phi, targets, weights, 0.05, batches, loss=loss, **params)
        errors.append(np.abs(Phi @ (weights_of(model) - V)).max())
    assert sum(error < 1e-4 for error in errors) == 1, sorted(errors)[:3]


@pytest.mark.parametrize("loss", ["logistic", "softmax"])
def test_gradient_of_the_oracle(problem, weights, loss):
    Phi = oracle.design(problem[0][:20, :3], np.zeros((4, 0)), np.zeros(0))
    targets, m = oracle.smoothed(problem[1][:20, :3], 0.9, loss == "softmax"), weights[:20]
    if loss == "softmax":
        targets = targets / targets.sum(axis=1, keepdims=True)
    V = np.random.default_rng(0).normal(size=(4, 3))

    def value(v):
        return oracle.loss(v.reshape(4, 3), Phi, targets, m, 0.3, loss)

    def slope(v):
        return oracle.gradient(v.reshape(4, 3), Phi, targets, m, 0.3, loss).ravel()

    assert check_grad(value, slope, V.ravel()) < 1e-4


@pytest.mark.parametrize("max_memory", [None, 400_000])  # features are kept or computed anew
def test_newton_reaches_the_optimum(problem, weights, max_memory):
    model = fit(problem, weights, solver="newton-cg", tol=1e-4, shrink=0.95, max_memory=max_memory)
    Phi, targets = design(model, problem[0]), oracle.smoothed(problem[1], 0.95)
    _, ridge = oracle.gram(Phi, weights, model.l2_link)
    V = weights_of(model)
    # The gradient is small relative to that of zero weights.
    at_zero = oracle.gradient(0 * V, Phi, targets, weights, ridge, "logistic")
    left = oracle.gradient(V, Phi, targets, weights, ridge, "logistic")
    assert (np.linalg.norm(left, axis=0) < 3e-4 * np.linalg.norm(at_zero, axis=0)).all()


def test_many_passes_approach_newtons_without_ridge(problem):
    """Both solvers minimize the same smoothed loss, except for the ridge."""
    settings = {"kernel": "linear", "l2_link": 1e-6, "shrink": 0.9}
    newton = fit(problem, solver="newton-cg", tol=1e-4, **settings)
    passes = fit(problem, n_passes=200, decay=0.98, step_size=3.0, **settings)
    np.testing.assert_allclose(
        passes.decision_function(problem[0]), newton.decision_function(problem[0]), atol=0.05
    )


def test_linear_kernel_of_full_rank_is_ridge_regression(problem):
    X, Y = problem
    l2 = 1e-3
    n_components = 12
    model = fit(problem, n_components=n_components, kernel="linear", l2_link=1e-9, l2=1e-9, **CLOSED)
    expected = Ridge(1e-9).fit(X, Y).predict(X)
    np.testing.assert_allclose(model.decision_function(X) + 0.5, expected, atol=1e-3)
    # Algorithm 2: ridge regressions of the labels. The constant of X is penalized too.
    model = fit(problem, embedding="none", l2=l2, **CLOSED)
    A = np.column_stack([X, np.ones(len(X))])
    ridge = l2 * np.trace(A.T @ A) / A.shape[1]
    W = np.linalg.solve(A.T @ A + ridge * np.eye(A.shape[1]), A.T @ Y)
    np.testing.assert_allclose(X @ model.projection_ + model.projection_intercept_, A @ W, atol=1e-6)


def test_bandwidth_is_that_of_the_median(problem):
    """Frequencies are proportional to gamma and to the inverse of the median distance."""
    base, double = fit(problem), fit(problem, gamma=2.0)
    np.testing.assert_allclose(double.frequencies_, 2 * base.frequencies_, rtol=1e-6)
    p = problem[0] @ base.projection_ + base.projection_intercept_
    median = np.median(((p[:, None] - p[None]) ** 2).sum(axis=2))
    many = fit(problem, n_features=1000, loss="squared", kernel="quasi-gaussian", n_passes=1)
    np.testing.assert_allclose(many.frequencies_.std() ** 2, 2 / median, rtol=0.02)


def test_more_features_than_rows_and_no_ridge(problem):
    few = problem[0][:20], problem[1][:20]
    with pytest.warns(ConvergenceWarning, match="the Gram matrix was singular with l2_link=0"):
        model = fit(few, n_features=100, gamma=3.0, l2_link=0.0, **CLOSED)
    assert model.ridge_ > 0
    # The error is not 0, because two rows have nearly equal predictions and different labels.
    assert ((model.decision_function(few[0]) + 0.5 - few[1]) ** 2).mean() < 0.02


def test_early_stopping_keeps_the_best_pass(problem):
    X, Y = problem
    model = fit(problem, early_stopping=True, n_passes=30, step_size=4.0, decay=1.0, n_iter_no_change=3)
    losses = model.validation_loss_
    assert model.n_iter_ == len(losses) < 30
    assert losses.argmin() == len(losses) - 4
    shorter = fit(problem, early_stopping=True, n_passes=int(losses.argmin()) + 1, step_size=4.0, decay=1.0)
    np.testing.assert_allclose(model.decision_function(X), shorter.decision_function(X), atol=2e-3)
    held_out = np.random.default_rng(0).permutation(300)[:30]
    np.testing.assert_allclose(
        oracle.loss(weights_of(model), design(model, X[held_out]), Y[held_out], np.ones(30), 0, "logistic")
        / 30,
        losses.min(),
        rtol=1e-4,
    )


def test_blocks_of_labels_do_not_matter(monkeypatch):
    """More labels than are fitted together. Copies of a label in other blocks have equal weights."""
    X, Y = make_multilabel(200, 30, 4100, random_state=0)
    model = SmoothLinkClassifier(3, n_features=30, n_passes=2, random_state=0)
    first = model.fit(X, Y[:, :2050]).decision_function(X)
    twice = SmoothLinkClassifier(3, n_features=30, n_passes=2, random_state=0)
    columns = csr_array(Y[:, np.r_[:2050, :2050, :2050]])
    scores = twice.fit(X, columns).decision_function(X)
    seen = np.isfinite(first).all(axis=0)
    np.testing.assert_allclose(scores[:, 4100:][:, seen], scores[:, :2050][:, seen], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kernel", ["gaussian", "linear"])
def test_softmax(problem, tmp_path, kernel):
    X = problem[0]
    names = np.array(["red", "green", "blue"])
    y = names[np.argmax(X[:, :3], axis=1)]
    model = fit((X, y), loss="softmax", kernel=kernel, n_components=3, preflate=kernel == "linear")
    assert model.classes_.tolist() == sorted(names)
    assert (model.predict(X) == y).mean() > 0.8
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1)
    assert model.score(X, y) == (model.predict(X) == y).mean()
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(ml.load(tmp_path / "model").predict(X), model.predict(X))
    # An indicator matrix gives the same model.
    Y = (y[:, None] == np.sort(names)).astype(int)
    same = fit((X, Y), loss="softmax", kernel=kernel, n_components=3, preflate=kernel == "linear")
    np.testing.assert_array_equal(same.coef_, model.coef_)
    np.testing.assert_array_equal(
        same.predict(X).argmax(axis=1), np.searchsorted(np.sort(names), model.predict(X))
    )
    with pytest.raises(
        ValueError,
        match=r'`loss="softmax"`, .* exactly one label, got 1 rows .* the first of these rows has 0',
    ):
        fit((X, np.where(np.arange(len(Y))[:, None] == 4, 0, Y)), loss="softmax")
    with pytest.raises(ValueError, match=r"Y must be a 2-D indicator matrix .* rows of unequal length"):
        fit((X[:2], [[1], [0, 1]]), loss="softmax")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"loss": "softmax", "solver": "newton-cg"}, '`solver` must be "psgd" for the loss "softmax"'),
        ({"preflate": True}, '`preflate` must be False unless the kernel is "linear"'),
    ],
)
def test_parameters_that_do_not_go_together(problem, params, message):
    with pytest.raises(ValueError, match=message):
        fit(problem, **params)


def test_memory_is_forecast(problem):
    with pytest.raises(MemoryError, match=r"the fit is too large: about \d+ bytes for 12 labels"):
        fit(problem, max_memory=10_000)
    # Keeping the features or computing them anew changes the model by rounding only.
    kept, anew = fit(problem), fit(problem, max_memory=ANEW)
    np.testing.assert_allclose(
        kept.decision_function(problem[0]), anew.decision_function(problem[0]), atol=5e-3
    )


@pytest.mark.parametrize("embedding", ["rembrandt", "gaussian"])
def test_an_embedding_of_ones_own(problem, tmp_path, embedding):
    """An estimator gives the same model as its name, and its parameters can be set by name."""
    own = ml.Rembrandt(5, embedding=embedding, l2=1e-4, l2_final=1.0)
    model = fit(problem, embedding=own)
    np.testing.assert_array_equal(model.coef_, fit(problem, embedding=embedding).coef_)
    assert not hasattr(own, "coef_")
    rough = fit(problem, n_components=3, embedding=own, embedding__solver="cg", embedding__max_iter=1)
    assert rough.n_components_ == 5
    assert abs(rough.projection_ - model.projection_).max() > 1e-3 * abs(model.projection_).max()
    rough.save(tmp_path / "model")
    loaded = ml.load(tmp_path / "model")
    assert loaded.embedding.max_iter == 1
    np.testing.assert_array_equal(loaded.predict(problem[0]), rough.predict(problem[0]))
    # The embedding has its own seed, or that of the classifier.
    seeded = fit(problem, embedding=ml.Rembrandt(5, embedding="gaussian", random_state=1))
    assert abs(seeded.projection_ - fit(problem, embedding="gaussian").projection_).max() > 1e-3


def test_scores_of_extreme_rows_are_finite(problem):
    """The features of the linear kernel may be as large as float32 allows."""
    X = problem[0]
    y = np.argmax(X[:, :3], axis=1)
    rows = np.full((64, 40), 3e38) * np.random.default_rng(0).choice([-1.0, 1.0], size=(64, 40))
    model = fit((1e-3 * X, y), kernel="linear", loss="softmax", n_components=3)
    assert np.isfinite(model.decision_function(rows)).all()
    assert model.predict(rows).shape == (64,)
    assert np.isfinite(model.predict_proba(rows)).all()


def test_weights_of_many_orders_leave_a_held_out_loss(problem):
    model = fit(problem, np.r_[3e38, np.full(299, 1e-30)], early_stopping=True)
    assert np.isfinite(model.validation_loss_).all()


def test_random_search(problem):
    X, Y = (part[:80] for part in problem)
    search = RandomizedSearchCV(
        SmoothLinkClassifier(3, random_state=0), smooth_link_space(40), n_iter=1, cv=2, random_state=1
    ).fit(X, Y.astype(int))
    assert 0 <= search.best_score_ <= 1
    assert smooth_link_space(5)["shrink"].support()[0] > 0.5
    with pytest.raises(ValueError, match=r"`n_samples` must be an integer >= 5, got 4"):
        smooth_link_space(4)


# In the order of the authors' log, whose frequencies are too small by a factor of the square root of two.
_OF_LOG = ["n_features", "gamma", "l2_link", "n_passes", "step_size", "momentum", "decay", "kernel", "shrink"]


def published(data, *of_log):
    """Training and test set of yeast, and a model fitted to the training set."""
    folder = data / "_arff"
    sets = [
        ml.datasets.load_arff(folder / f"yeast-{part}.arff.gz", folder / "yeast.xml.gz")
        for part in ("train", "test")
    ]
    own = {"n_iter": 2, "l2": 1e-4, "threshold": "zero", "random_state": 0, "n_jobs": -1}
    return sets, SmoothLinkClassifier(0.9, **own, **dict(zip(_OF_LOG, of_log, strict=True))).fit(*sets[0])


def test_yeast_as_published(data):
    """With the settings of the authors' log, one seed reaches the intervals of their tables."""
    settings = 1638, 1.388 / np.sqrt(2), 0.0978, 6, 0.835, 0.530, 0.937, "quasi-matern-5", 0.9827
    (_, (X, Y)), model = published(data, *settings)
    assert model.n_components_ == 6
    assert (model.predict(X) != Y).mean() < 0.2305
    settings = 3228, 0.566 / np.sqrt(2), 0.0801, 3, 0.901, 0.085, 1.0, "quasi-gaussian", 0.9735
    ((_, Y_train), (X, Y)), model = published(data, *settings)
    named = ml.decision.F1Inference().fit(None, Y_train).predict(model.predict_proba(X))
    true = csr_array(Y).toarray()
    named = csr_array(named).toarray()
    f1 = 2 * (true * named).sum(axis=0) / np.maximum(1, true.sum(axis=0) + named.sum(axis=0))
    assert f1.mean() > 0.4681


# --- automatic choices


@pytest.fixture(scope="module")
def made():
    """Training rows and twice as many test rows, with many features."""
    X, Y = make_multilabel(900, 300, 20, random_state=3)
    X, Y = X.toarray().astype(np.float64), Y.toarray()
    return (X[:300], Y[:300]), (X[300:], Y[300:])


def of_the_best(model, X, Y):
    top = model.predict_topk(X, k=1)
    return Y[np.arange(len(Y)), top.indices].mean()


def test_link_learns_from_predictions_of_rows_left_out(made):
    """With few rows, predictions for training rows are much too good, and a link fitted to them overfits."""
    train, test = made
    auto = SmoothLinkClassifier(random_state=0).fit(*train)
    in_sample = SmoothLinkClassifier(l2=1e-4, random_state=0).fit(*train)
    assert of_the_best(auto, *test) > of_the_best(in_sample, *test) + 0.1
    by_odds = OneVsRestClassifier(LogisticRegression(max_iter=300)).fit(*train).predict_proba(test[0])
    by_odds = test[1][np.arange(len(by_odds)), by_odds.argmax(axis=1)].mean()
    assert of_the_best(auto, *test) > by_odds - 0.02


@pytest.mark.parametrize("kernel", ["gaussian", "linear"])
def test_least_squares_of_predictions_left_out(problem, weights, kernel):
    """V by definition: each row is predicted by the last regression of the embedding without this row.

    The means of all rows are subtracted.
    """
    X, Y = problem
    model = fit(problem, weights, l2="auto", kernel=kernel, **CLOSED)
    embedding = ml.Rembrandt(5, l2=model.l2_, l2_final=1.0, center=True, random_state=0)
    std = np.sqrt(np.average((X - np.average(X, axis=0, weights=weights)) ** 2, axis=0, weights=weights))
    dense = np.count_nonzero(X) > X.size / 8
    A = X / std if dense else X
    U = embedding.fit(A, Y, weights).label_embedding_
    A = A - np.average(A, axis=0, weights=weights)
    mean = np.average(Y, axis=0, weights=weights)
    ridge = model.l2_ * (weights[:, None] * A**2).sum() / A.shape[1]
    H = np.empty((len(X), 5))
    for row in range(len(X)):
        rest = np.arange(len(X)) != row
        a, t, m = A[rest], (Y[rest] - mean) @ U, weights[rest]
        W = np.linalg.solve((m[:, None] * a).T @ a + ridge * np.eye(a.shape[1]), (m[:, None] * a).T @ t)
        H[row] = A[row] @ W + mean @ U
    Phi = oracle.design(H, model.frequencies_, model.phases_)
    V = oracle.least_squares(Phi, Y, weights, model.l2_link)
    fitted = weights_of(model)
    np.testing.assert_allclose(Phi @ fitted, Phi @ V, atol=2e-3)


def test_dense_features_have_no_scale(problem):
    """If X is mostly nonzero, neither the units of its columns nor constant columns matter."""
    rng = np.random.default_rng(0)
    X, Y = problem[0] @ rng.normal(size=(40, 15)) + 5, problem[1]
    units = 2.0 ** rng.integers(-20, 21, 15)  # scaling by powers of 2 is exact
    one = SmoothLinkClassifier(random_state=0).fit(X, Y)
    other = SmoothLinkClassifier(random_state=0).fit(X * units, Y)
    np.testing.assert_allclose(one.decision_function(X), other.decision_function(X * units), atol=0.01)
    assert one.l2_ == other.l2_
    constant = np.column_stack([X, np.full(len(X), 1e6)])
    same = SmoothLinkClassifier(random_state=0).fit(constant, Y)
    np.testing.assert_allclose(one.decision_function(X), same.decision_function(constant), atol=0.2)


@pytest.mark.parametrize("early_stopping", [False, True])
def test_lengths_of_sparse_rows_do_not_matter(early_stopping):
    """If at most an eighth of X is nonzero, fits and predictions scale rows to unit length."""
    X, Y = make_multilabel(300, 200, 12, random_state=0)
    lengths = 2.0 ** np.random.default_rng(0).integers(-90, 91, 300)  # scaling by powers of 2 is exact
    scaled = csr_array((X.data * np.repeat(lengths, np.diff(X.indptr)), X.indices, X.indptr), shape=X.shape)
    one, other = (
        SmoothLinkClassifier(early_stopping=early_stopping, random_state=0).fit(rows, Y)
        for rows in (X, scaled)
    )
    assert one.normalize_
    np.testing.assert_array_equal(one.decision_function(X), other.decision_function(scaled))
    np.testing.assert_array_equal(one.decision_function(X), one.decision_function(scaled))
    unscaled = SmoothLinkClassifier(l2=0.01, random_state=0).fit(X, Y)
    assert not unscaled.normalize_
    del unscaled.normalize_  # as in models from files of version 0.1
    assert (unscaled.decision_function(X) != unscaled.decision_function(scaled)).any()


@pytest.mark.parametrize("share", [0.1, 0.2, 0.8])
def test_sparse_dense_and_held_out(problem, share):
    """Dense and sparse X give the same bits, with scaled rows or columns, and with held-out rows."""
    rng = np.random.default_rng(0)
    X = np.where(rng.random(problem[0].shape) < share, problem[0] + 1, 0)
    for params in ({}, {"early_stopping": True}):
        models = [
            SmoothLinkClassifier(random_state=0, **params).fit(form, problem[1])
            for form in (X, csr_array(X), X.astype(np.float32).astype(np.float64))
        ]
        np.testing.assert_array_equal(models[0].coef_, models[1].coef_)
        assert np.isfinite(models[2].coef_).all()


@pytest.mark.parametrize("loss", ["logistic", "squared"])
@pytest.mark.parametrize("solver", ["psgd", "newton-cg"])
def test_threshold_names_as_many_labels_as_are_true(made, loss, solver, tmp_path):
    train, (X, Y) = made
    model = SmoothLinkClassifier(loss=loss, solver=solver, random_state=0).fit(*train)
    assert 0.7 < model.predict(X).sum() / Y.sum() < 1.4
    np.testing.assert_array_equal(model.predict(X), model.decision_function(X) > 0)
    zero = clone(model).set_params(threshold="zero").fit(*train)
    np.testing.assert_array_equal(zero.coef_, model.coef_)
    np.testing.assert_array_equal(zero.predict(X), zero.decision_function(X) > 0)
    given = clone(model).set_params(threshold=0.25).fit(*train)
    assert (zero.threshold_, given.threshold_) == (0.0, 0.25)
    np.testing.assert_array_equal(given.predict(X), zero.decision_function(X) > 0.25)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(ml.load(tmp_path / "model").predict(X), model.predict(X))
    if loss == "logistic":
        np.testing.assert_allclose(given.predict_proba(X), zero.predict_proba(X), atol=1e-6)
    del zero.threshold_  # models of earlier versions have none
    np.testing.assert_array_equal(zero.predict(X), zero.decision_function(X) > 0)


def test_gamma_follows_the_signal():
    """Targets with sharp bends choose a large gamma, and labels independent of the features a small one."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(3000, 2))
    Y = np.column_stack([X[:, 0] > 0, X[:, 1] > 0, (X[:, 0] > 0) ^ (X[:, 1] > 0)]).astype(int)
    sharp = SmoothLinkClassifier(random_state=0).fit(X, Y)
    assert sharp.gamma_ == 1.0
    X, Y = rng.normal(size=(300, 30)), rng.integers(0, 2, size=(300, 8))
    assert SmoothLinkClassifier(random_state=0).fit(X, Y).gamma_ == 0.25
    assert SmoothLinkClassifier(gamma=0.7, random_state=0).fit(X, Y).gamma_ == 0.7


def test_automatic_features_grow_with_rows(made):
    (X, Y), _ = made
    assert SmoothLinkClassifier(random_state=0).fit(X, Y).coef_.shape == (20, 100)
    assert (
        SmoothLinkClassifier(random_state=0).fit(np.tile(X, (2, 1)), np.tile(Y, (2, 1))).coef_.shape[1] == 150
    )


SETS = {"medical": False, "emotions": True}


@pytest.mark.filterwarnings("ignore:lbfgs failed to converge", "ignore:Label not .* is present")
@pytest.mark.parametrize("name", SETS)
def test_defaults_are_no_worse_than_logistic_regression(data, name):
    sets = [ml.datasets.load_xc(data / name / f"{part}.txt.gz") for part in ("train", "test")]
    (X, Y), (X_test, Y_test) = [(X.toarray() if SETS[name] else X, Y.toarray()) for X, Y in sets]
    model = SmoothLinkClassifier(random_state=0).fit(X, Y)
    other = OneVsRestClassifier(LogisticRegression(max_iter=300)).fit(X, Y)
    named, by_other = model.predict(X_test), other.predict(X_test)
    best = other.predict_proba(X_test).argmax(axis=1)
    assert of_the_best(model, X_test, Y_test) > Y_test[np.arange(len(best)), best].mean() - 0.01
    assert (named != Y_test).mean() < 1.05 * (by_other != Y_test).mean()
    assert 0.6 < named.sum() / Y_test.sum() < 1.5


def test_labels_that_features_know_nothing_of_keep_their_frequency():
    """Leave-one-out predictions of a row must not reveal its labels by the mean of the other rows."""
    rng = np.random.default_rng(2)
    X, Y = rng.normal(size=(800, 60)), (rng.random((800, 3)) < 0.1).astype(int)
    model = SmoothLinkClassifier(random_state=0).fit(X[:400], Y[:400])
    np.testing.assert_allclose(model.predict_proba(X[400:]).mean(axis=0), Y[:400].mean(axis=0), atol=0.05)
    assert model.predict(X[400:]).mean() < 0.3


def test_no_threshold_from_a_handful_of_labels():
    X, _ = make_multilabel(60, 20, 5, random_state=0)
    Y = np.zeros((60, 5), dtype=int)
    Y[::10, 0] = 1
    assert SmoothLinkClassifier(random_state=0).fit(X, Y).threshold_ == 0


def test_many_labels_do_not_make_the_threshold_large(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 8))
    labels = rng.integers(0, 20_000, 8000)
    Y = csr_array((np.ones(8000), labels, np.arange(0, 8001, 2)), shape=(4000, 20_000))
    model = SmoothLinkClassifier(
        8,
        kernel="linear",
        loss="squared",
        l2=1.0,
        embedding="gaussian",
        max_memory=60 * 2**20,
        random_state=0,
    )
    assert abs(model.fit(X, Y).threshold_) < 0.5
