"""The fit of `CorrLogClassifier`, compared with its oracle."""

import numpy as np
import pytest
from scipy.optimize import check_grad
from scipy.sparse import csr_array
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import RandomizedSearchCV
from sklearn.preprocessing import StandardScaler

from manylabel import CorrLogClassifier
from manylabel.correlated import corrlog_path, corrlog_space
from manylabel.datasets import make_multilabel
from oracle import correlated as oracle

PENALTIES = {"l2_features": 0.02, "l2_pairs": 0.01, "epsilon": 0.5}
# The automatic threshold needs further fits, and none of the weights depends on it.
GIVEN = {"threshold": "zero"}


def parameters(model, coding="01"):
    coef, intercept, couplings = model.in_coding(coding)
    return coef.toarray(), intercept, couplings.toarray()


def fit(problem, sample_weight=None, **params):
    settings = PENALTIES | GIVEN | {"standardize": False, "tol": 1e-10, "max_iter": 20_000} | params
    return CorrLogClassifier(**settings).fit(*problem, sample_weight=sample_weight)


def symmetric(rng):
    C = np.triu(rng.normal(size=(5, 5)), 1)
    return C + C.T


# --- the oracle


@pytest.mark.parametrize("coding", ["01", "pm1"])
def test_gradient_of_the_oracle(problem, weights, coding):
    X, Z = problem
    X, Z, share = X[:30, :3], Z[:30], weights[:30]
    upper = np.triu_indices(5, 1)

    def unpack(flat):
        C = np.zeros((5, 5))
        C[upper] = flat[20:]
        return flat[:15].reshape(5, 3), flat[15:20], C + C.T

    def value(flat):
        return oracle.loss(unpack(flat), X, Z, share, coding)

    def slope(flat):
        of_B, of_v, of_C = oracle.gradient(unpack(flat), X, Z, share, coding)
        return np.concatenate([of_B.ravel(), of_v, of_C[upper]])

    flat = np.random.default_rng(0).normal(size=30)
    assert check_grad(value, slope, flat) < 1e-6


@pytest.mark.parametrize("coding", ["01", "pm1"])
def test_conditional_probabilities_are_those_of_the_joint_ones(coding):
    rng = np.random.default_rng(0)
    u, C = rng.normal(size=5), symmetric(rng)
    for z in oracle.states(5):
        E = oracle.activation((np.zeros((5, 1)), u, C), np.zeros((1, 1)), z[None], coding)[0]
        for i in range(5):
            expected = oracle.conditional(u, C, z, i, coding)
            np.testing.assert_allclose(1 / (1 + np.exp(-E[i])), expected, rtol=1e-12)


def test_both_codings_have_the_same_likelihood(problem, weights):
    X, Z = problem
    rng = np.random.default_rng(0)
    v, C = rng.normal(size=5), symmetric(rng)
    zero_one = rng.normal(size=(5, 7)), v, C
    plus_minus = oracle.to_pm1(zero_one)
    for values in zip(
        oracle.activation(zero_one, X, Z), oracle.activation(plus_minus, X, Z, "pm1"), strict=True
    ):
        np.testing.assert_allclose(*values)
    np.testing.assert_allclose(
        oracle.loss(zero_one, X, Z, weights), oracle.loss(plus_minus, X, Z, weights, "pm1")
    )


# --- the fit


@pytest.mark.parametrize("coding", ["01", "pm1"])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 3.0])
def test_optimality(problem, weights, coding, epsilon):
    """The fit satisfies the optimality conditions in both codings, for dense and sparse features."""
    X, Z = problem
    sparse = np.where(X > 0.7, X, 0)
    for features in (X, sparse):
        model = fit((features, Z), weights, coding=coding, epsilon=epsilon)
        found = parameters(model, coding)
        least = oracle.violations(found, features, Z, weights, 0.02, 0.01, epsilon, coding)
        # The fit measures violations for standardized features, so this bound is larger than `tol`.
        assert max(part.max() for part in least) < 1e-8
        assert (epsilon > 0) == (found[0] == 0).any()
        value = oracle.loss(found, features, Z, weights, coding) + oracle.penalty(found, 0.02, 0.01, epsilon)
        np.testing.assert_allclose(model.objective_, value, rtol=1e-12)
        assert model.kkt_ <= 1e-10


def test_standardizing_is_scaling(problem, weights):
    X, Z = problem
    raw = X * [1, 10, 100, 0.1, 5, 1e4, 1] + [0, 5, -3, 1e3, 2, 0, 7]
    scaled = StandardScaler().fit(raw, sample_weight=weights)
    model = fit((raw, Z), weights, standardize=True)
    same = fit((scaled.transform(raw), Z), weights)
    np.testing.assert_allclose(model.coef_.toarray() * scaled.scale_, same.coef_.toarray(), atol=1e-7)
    np.testing.assert_allclose(model.correlations_.toarray(), same.correlations_.toarray(), atol=1e-7)
    np.testing.assert_allclose(model.predict_proba(raw), same.predict_proba(scaled.transform(raw)), atol=1e-4)


def test_without_couplings_it_is_logistic_regression(problem, weights):
    X, Z = problem
    model = fit(problem, weights, epsilon=0.0, l2_pairs=np.inf)
    assert model.correlations_.nnz == 0
    C = 1 / (2 * weights.sum() * 0.02)
    for label in range(5):
        one = LogisticRegression(C=C, tol=1e-10, max_iter=10_000, solver="newton-cholesky")
        one.fit(X, Z[:, label], sample_weight=weights)
        np.testing.assert_allclose(model.coef_.toarray()[label], one.coef_[0], atol=1e-6)
        np.testing.assert_allclose(model.intercept_[label], one.intercept_[0], atol=1e-6)


def test_plain_proximal_gradients_end_at_the_same_point(problem, weights):
    X, Z = problem
    models = [fit(problem, weights, solver=solver) for solver in ("auto", "fista")]
    for accelerated in (False, True):
        n_iter = 700 if accelerated else 2000
        found = oracle.ista(X, Z, weights, 0.02, 0.01, 0.5, accelerated=accelerated, n_iter=n_iter)
        value = oracle.loss(found, X, Z, weights) + oracle.penalty(found, 0.02, 0.01, 0.5)
        for model in models:
            np.testing.assert_allclose(model.objective_, value, rtol=1e-9)
            for ours, theirs in zip(parameters(model), found, strict=True):
                np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_the_codings_meet_where_penalties_correspond(problem):
    """The codings agree if -1/1 has 4 times the ridge penalty of weights and 16 times that of pairs."""
    ridge = {"epsilon": 0.0}
    one = fit(problem, **ridge)
    other = fit(problem, coding="pm1", l2_features=0.08, l2_pairs=0.16, **ridge)
    for ours, theirs in zip(parameters(one), parameters(other), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
    np.testing.assert_allclose(one.objective_, other.objective_, rtol=1e-9)
    with pytest.raises(ValueError, match=r"`coding` must be .* got 'pm'"):
        one.in_coding("pm")


def test_order_of_labels_does_not_matter(problem):
    order = np.array([3, 0, 4, 2, 1])
    model, other = fit(problem), fit((problem[0], problem[1][:, order]))
    B, v, C = parameters(model)
    for ours, theirs in zip((B[order], v[order], C[np.ix_(order, order)]), parameters(other), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_single_precision_is_as_good_as_the_tolerance(problem):
    rough = fit(problem, tol=1e-4)
    least = oracle.violations(
        parameters(rough), *problem, np.ones(250), PENALTIES["l2_features"], PENALTIES["l2_pairs"], 0.5
    )
    assert max(part.max() for part in least) < 1.2e-4
    assert rough.n_iter_ < fit(problem).n_iter_


def standardized_violation(model, X, Z, weights=None):
    """The largest violation over all pairs of labels, for standardized features."""
    weights = np.ones(len(X)) if weights is None else weights
    scaler = StandardScaler().fit(X, sample_weight=weights)
    B, v, C = parameters(model)
    seen = np.isfinite(v)
    standardized = (B * scaler.scale_)[seen], (v + B @ scaler.mean_)[seen], C[np.ix_(seen, seen)]
    penalties = model.l2_features, model.l2_pairs, model.epsilon
    least = oracle.violations(standardized, scaler.transform(X), Z[:, seen], weights, *penalties)
    return max(part.max() for part in least)


@pytest.mark.parametrize("solver", ["auto", "fista"])
@pytest.mark.parametrize("epsilon", [1.0, 0.05])
def test_pairs_left_out_are_those_that_stay_at_zero(epsilon, solver):
    """With 120 labels the fit does not consider all pairs at once. The oracle checks all pairs."""
    X, Y = make_multilabel(500, 40, 120, random_state=0)
    X, Z = X.toarray().astype(float), Y.toarray().astype(float)
    model = CorrLogClassifier(0.01, 0.002, epsilon=epsilon, solver=solver, tol=1e-7, max_iter=20_000, **GIVEN)
    model.fit(X, Z)
    assert standardized_violation(model, X, Z) < 2e-7
    assert 0 < model.correlations_.nnz < 120 * 119 / 2


def test_a_pair_that_couples_only_at_the_optimum():
    """Features and noise have opposite effects on two labels, which are uncorrelated but coupled."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 40))
    drive, noise = X.sum(axis=1) / np.sqrt(40), rng.normal(size=4000)
    Z = (rng.random((4000, 100)) < 0.1).astype(float)
    Z[:, 0], Z[:, 1] = drive + noise > 0, noise - drive > 0
    model = CorrLogClassifier(1e-3, 0.05, **GIVEN).fit(X, Z)
    assert model.correlations_[0, 1] > 0.5
    assert standardized_violation(model, X, Z) < 1.2e-4


def test_no_pair_is_left_out_along_a_path():
    X, Y = make_multilabel(800, 60, 150, random_state=1)
    X, Z = X.toarray().astype(float), Y.toarray().astype(float)
    tight = CorrLogClassifier(1e-3, 3e-3, max_iter=5000, **GIVEN)
    for model in corrlog_path(X, Z, [1e-4, 1e-3, 1e-2], estimator=tight):
        assert standardized_violation(model, X, Z) < 1.2e-4


@pytest.mark.parametrize("max_iter", [1, 2, 3, 8, 16, 35])
@pytest.mark.parametrize("solver", ["auto", "fista"])
def test_violation_where_a_fit_ends_early(solver, max_iter):
    """`kkt_` is the violation of the returned model over all pairs."""
    X, Y = make_multilabel(500, 40, 120, random_state=0)
    X, Z = X.toarray().astype(float), Y.toarray().astype(float)
    model = CorrLogClassifier(0.01, 0.002, solver=solver, tol=1e-9, max_iter=max_iter, **GIVEN)
    with pytest.warns(ConvergenceWarning, match="did not converge"):
        model.fit(X, Z)
    np.testing.assert_allclose(model.kkt_, standardized_violation(model, X, Z), rtol=1e-2)


def test_features_far_from_zero(problem):
    """Features such as times in seconds have a small deviation compared with their mean."""
    X, Z = problem
    sparse = np.hstack([X[:, :1], np.where(np.abs(X) > 1.2, X, 0)])
    for features in (X, sparse):
        model = CorrLogClassifier(0.02, 0.01, tol=1e-6, **GIVEN).fit(features, Z)
        features = features.copy()
        features[:, 0] = 100 * features[:, 0] + 1.7e9
        far = CorrLogClassifier(0.02, 0.01, tol=1e-6, **GIVEN).fit(csr_array(features), Z)
        scale = [100.0] + [1.0] * (features.shape[1] - 1)
        np.testing.assert_allclose(far.coef_.toarray() * scale, model.coef_.toarray(), atol=1e-4)


@pytest.mark.parametrize("solver", ["auto", "fista"])
@pytest.mark.parametrize("light", [1e-3, 1e-6, 1e-10, 1e-30])
def test_a_label_that_hardly_any_weight_lacks(problem, solver, light):
    X, Z = problem
    Z = Z.copy()
    Z[:, 0] = 1
    Z[5, 0] = 0
    weights = np.ones(250)
    weights[5] = light
    model = CorrLogClassifier(solver=solver, max_iter=5000).fit(X, Z, weights)
    assert np.isfinite(model.objective_)
    assert model.intercept_[0] > 2
    assert (model.predict(X)[np.arange(250) != 5, 0] == 1).all()


@pytest.mark.parametrize("solver", ["auto", "fista"])
def test_couplings_stronger_than_features(solver):
    """A hundred dependent labels and one uninformative feature: only couplings explain the labels."""
    rng = np.random.default_rng(0)
    shared = rng.normal(size=(400, 1))
    X, Z = rng.normal(size=(400, 1)), (2 * shared + rng.normal(size=(400, 101)) > 0.5).astype(float)
    model = CorrLogClassifier(1e-3, 3e-3, epsilon=0.5, solver=solver, max_iter=20_000, **GIVEN).fit(X, Z)
    assert standardized_violation(model, X, Z) < 1.2e-4
    odds = np.log(Z.mean(axis=0) / (1 - Z.mean(axis=0)))
    start = oracle.loss((np.zeros((101, 1)), odds, np.zeros((101, 101))), X, Z, np.ones(400))
    assert model.objective_ < start


def test_many_labels_and_rows():
    """Sparse data with more labels than a panel and more rows than a block. The oracle checks all pairs."""
    X, Y = make_multilabel(9000, 20, 300, random_state=0)
    model = CorrLogClassifier(0.003, 0.001, **GIVEN).fit(X, Y)
    violation = standardized_violation(model, X.toarray(), Y.toarray())
    np.testing.assert_allclose(violation, model.kkt_, rtol=0.05)
    assert model.kkt_ < 1e-4
    assert 0 < model.correlations_.nnz < 300 * 299


def test_what_has_not_converged_says_so(problem):
    with pytest.warns(
        ConvergenceWarning,
        match=r"did not converge in 3 gradient evaluations; the KKT violation is .* \(max_iter=3",
    ):
        model = fit(problem, max_iter=3)
    assert (model.n_iter_, model.kkt_ > 1e-10) == (3, True)


@pytest.mark.parametrize("epsilon", [0.0, 1.0])
@pytest.mark.parametrize("raw", [False, True])
def test_reference_repeats_the_authors_run(epsilon, raw):
    X, Y = make_multilabel(300, 80, 6, random_state=0)
    X, Z = StandardScaler().fit_transform(X.toarray().astype(float)), Y.toarray().astype(float)
    if raw:
        X = 3 * X + 1
    expected, n_iter = oracle.authors_run(X, Z, 1e-3, epsilon)
    model = CorrLogClassifier(epsilon=epsilon, solver="reference", standardize=not raw).fit(X, Z)
    assert model.n_iter_ == n_iter
    for ours, theirs in zip(parameters(model), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-10)
    with pytest.raises(ValueError, match='`coding` must be "01" for the solver "reference"'):
        CorrLogClassifier(coding="pm1", solver="reference").fit(X, Z)
    with pytest.warns(
        ConvergenceWarning,
        match=r"did not reach its stopping rule in 5 gradient evaluations; the KKT .* \(max_iter=5",
    ):
        CorrLogClassifier(solver="reference", max_iter=5).fit(X, Z)


def test_path(problem):
    lambdas = [0.1, 0.03, 0.01, 0.003]
    tight = CorrLogClassifier(0.02, 0.04, tol=1e-9, max_iter=20_000, **GIVEN)
    models = corrlog_path(*problem, lambdas, estimator=tight)
    cold = [fit(problem, l2_features=v, l2_pairs=2 * v, epsilon=1.0, tol=1e-9) for v in lambdas]
    for model, alone in zip(models, cold, strict=True):
        np.testing.assert_allclose(model.objective_, alone.objective_, rtol=1e-8)
        for ours, theirs in zip(parameters(model), parameters(alone), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert sum(model.n_iter_ for model in models) < sum(model.n_iter_ for model in cold)
    with pytest.raises(
        ValueError, match=r'`estimator\.solver` must be "auto" or "fista" in `corrlog_path`, got "reference"'
    ):
        corrlog_path(*problem, lambdas, estimator=CorrLogClassifier(solver="reference"))


@pytest.mark.parametrize(
    ("lambdas", "estimator", "message"),
    [
        ([0.1, np.nan], {}, "`lambdas` must be a finite number > 0, got"),
        ([0.1, 0.0], {}, "`lambdas` must be a finite number > 0, got"),
        ([0.1, "a"], {}, "`lambdas` must be a finite number > 0, got 'a'"),
        (0.1, {}, "`lambdas` must be a sequence of numbers, got 0.1"),
        ([0.1], {"l2_features": 0.0}, "`l2_(features|pairs)` must be .auto. or a (finite )?number > 0, got"),
        ([0.1], {"l2_pairs": np.nan}, "`l2_(features|pairs)` must be .auto. or a (finite )?number > 0, got"),
        ([0.1], {"l2_pairs": "a"}, '`l2_pairs` must be "auto" or a number'),
    ],
)
def test_a_path_of_what_cannot_be(problem, lambdas, estimator, message):
    with pytest.raises((ValueError, TypeError), match=message):
        corrlog_path(*problem, lambdas, estimator=CorrLogClassifier(**estimator))
    with pytest.raises(TypeError, match="`estimator` must be None or a CorrLogClassifier, got 'x'"):
        corrlog_path(*problem, [0.1], estimator="x")


def test_random_search(problem):
    search = RandomizedSearchCV(CorrLogClassifier(tol=1e-3), corrlog_space(), n_iter=3, cv=2, random_state=0)
    _, counts = np.unique(problem[1], axis=0, return_counts=True)
    assert counts.max() / len(problem[1]) < search.fit(*problem).best_score_ <= 1


# --- the choice of penalties


def test_few_long_rows_do_not_decide_the_penalty():
    """If 2 % of the rows have large values and wrong labels, the log loss chooses 230 times the penalty."""
    X, Y = make_multilabel(1500, 300, 8, random_state=0)
    rng = np.random.default_rng(0)
    is_long = np.isin(np.arange(1500), rng.permutation(1500)[:30])
    lengths = np.where(is_long, 30.0, 1.0)
    long_X = csr_array((X.data * np.repeat(lengths, np.diff(X.indptr)), X.indices, X.indptr), shape=X.shape)
    long_Y = csr_array(Y)[np.where(is_long, rng.permutation(1500), np.arange(1500))]
    usual, changed = (CorrLogClassifier(standardize=False).fit(*data) for data in ((X, Y), (long_X, long_Y)))
    assert usual.l2_features_ < changed.l2_features_ < 10 * usual.l2_features_


def test_penalties_that_are_not_learned():
    """Given numbers are used as they are. For the reference solver and few labels they are fixed."""
    X, Y = make_multilabel(100, 20, 4, random_state=0)
    model = CorrLogClassifier(0.3, "auto").fit(X, Y)
    assert (model.l2_features_, model.l2_pairs_) == (0.3, 0.3)
    model = CorrLogClassifier(solver="reference", epsilon=0.0).fit(X, Y)
    assert (model.l2_features_, model.l2_pairs_, model.threshold_) == (0.001, 0.001, 0.0)
    few = np.zeros((100, 3))
    few[:9, 0] = 1
    model = CorrLogClassifier(standardize=True, max_iter=5000).fit(X, few)
    assert (model.l2_features_, model.l2_pairs_, model.threshold_) == (0.02, 0.02, 0.0)
    # A row of weight 4 counts as 4 rows.
    model = CorrLogClassifier(standardize=True, max_iter=5000).fit(X, few, sample_weight=np.full(100, 4))
    assert model.l2_features_ == 0.005
    for name in ("l2_features", "l2_pairs"):
        with pytest.raises(
            ValueError, match=f"`{name}` must be \"auto\" or a (finite )?number > 0, got 'none'"
        ):
            CorrLogClassifier(**{name: "none"}).fit(X, Y)
    # A path uses only the ratio of the two penalties, and "auto" counts as 0.001 in it.
    (model,) = corrlog_path(X, Y, [0.1], estimator=CorrLogClassifier("auto", 0.002))
    assert (model.l2_features_, model.l2_pairs_) == (0.1, 0.2)
