"""The numpy oracle of boosted rules against its definitions, and `BoostedRulesClassifier` against it."""

import itertools
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_np

from manylabel import BoostedRulesClassifier
from oracle import rules as oracle

LOSSES = ["example-wise-logistic", "label-wise-logistic"]


def states(max_labels=6):
    """Scores and labels of one row."""
    score = st.floats(-3, 3, width=16)
    return st.integers(1, max_labels).flatmap(
        lambda k: st.tuples(
            st_np.arrays(float, k, elements=score),
            st_np.arrays(float, k, elements=st.sampled_from([-1.0, 1.0])),
        )
    )


def difference(f, p, width):
    """Central difference of f in each coordinate."""
    return np.array([(f(p + e) - f(p - e)) / (2 * width) for e in width * np.eye(len(p))])


@pytest.mark.parametrize("loss", LOSSES)
@given(states())
def test_derivatives_of_the_losses(loss, state):
    p, y = state
    g = difference(lambda p: oracle.value(loss, p, y), p, 1e-5)
    H = difference(lambda p: oracle.gradient(loss, p, y), p, 1e-5)
    np.testing.assert_allclose(oracle.gradient(loss, p, y), g, atol=1e-8)
    np.testing.assert_allclose(oracle.hessian(loss, p, y), H, atol=1e-8)


@given(states())
def test_example_wise_hessian_is_diagonal_less_rank_one(state):
    p, y = state
    g = oracle.gradient("example-wise-logistic", p, y)
    H = oracle.hessian("example-wise-logistic", p, y)
    np.testing.assert_allclose(H, np.diag(abs(g)) - np.outer(g, g), atol=1e-15)


@pytest.mark.parametrize("loss", LOSSES)
def test_far_scores_do_not_overflow(loss):
    p, y = np.array([700.0, -700.0, 1e30]), np.array([-1.0, 1.0, 1.0])
    wanted = {"example-wise-logistic": 700 + np.log(2), "label-wise-logistic": 1400}[loss]
    assert oracle.value(loss, p, y) == pytest.approx(wanted)
    assert np.isfinite(oracle.gradient(loss, p, y)).all()


def sums(seed, n_rows=30, n_labels=7):
    """g and H of random weighted rows at random scores."""
    rng = np.random.default_rng(seed)
    P = rng.normal(size=(n_rows, n_labels))
    Y = np.where(rng.random(P.shape) < 0.3, 1.0, -1.0)
    w = rng.integers(1, 4, n_rows)
    g = sum(a * oracle.gradient("example-wise-logistic", p, y) for a, p, y in zip(w, P, Y, strict=True))
    H = sum(a * oracle.hessian("example-wise-logistic", p, y) for a, p, y in zip(w, P, Y, strict=True))
    return g, H


@given(st.integers(0, 1000), st.sampled_from([0.1, 1.0, 10.0]))
def test_one_label_a_bin_is_no_binning(seed, l2):
    g, H = sums(seed)
    wanted = -np.linalg.solve(H + l2 * np.eye(len(g)), g)
    for hessian in ("paper", "restricted"):
        s = oracle.Settings(hessian=hessian, l2=l2)
        head, quality = oracle.step(g, H, [[k] for k in range(len(g))], s)
        np.testing.assert_allclose(head, wanted, rtol=1e-9)
        expanded = g @ head + head @ H @ head / 2 + l2 * head @ head / 2
        assert quality == pytest.approx(expanded, rel=1e-9)


@given(st.integers(0, 1000))
def test_one_bin_has_a_closed_form(seed):
    g, H = sums(seed)
    for hessian, curvature in {"paper": np.trace(H), "restricted": H.sum()}.items():
        head, _ = oracle.step(g, H, [list(range(len(g)))], oracle.Settings(hessian=hessian))
        np.testing.assert_allclose(head, -g.sum() / (curvature + len(g)), rtol=1e-9)


@pytest.mark.parametrize(
    ("criteria", "label_binning", "limits", "wanted"),
    [
        ([1.0, 2.0, 0.0, -1.0], 0.04, {}, [[3], [0, 1]]),  # no bin without gradient; separate signs
        ([0.0, -0.0], 1.0, {}, []),
        ([3.0], 1.0, {}, [[0]]),
        ([2.0, 2.0, 2.0], 1.0, {}, [[0, 1, 2]]),  # equal criteria
        ([0.3, 0.1 + 0.2, -0.3, -0.1 - 0.2], 1.0, {}, [[2, 3], [0, 1]]),  # equal up to rounding
        ([1.0, 2.0, 3.0], 0.5, {}, [[0], [1, 2]]),  # edges belong to the upper bin, the maximum to the last
        ([1.0, 1.5, 9.0], 1.0, {}, [[0, 1], [2]]),  # an empty bin is left out
        ([-1.0, -5.0, -9.0], 0.5, {}, [[2], [0, 1]]),
        ([1.0, 2.0, 3.0, 4.0], 0.04, {"min_bins": 2}, [[0, 1], [2, 3]]),
        ([1.0, 2.0, 3.0, 4.0], 1.0, {"max_bins": 2}, [[0, 1], [2, 3]]),
        ([1.0, 2.0], 0.04, {"min_bins": 9}, [[0], [1]]),  # no more bins than labels
    ],
)
def test_bins(criteria, label_binning, limits, wanted):
    assert oracle.bins(criteria, oracle.Settings(label_binning=label_binning, **limits)) == wanted


def test_a_whole_number_of_bins_stays_whole():
    assert [oracle.count_bins(n, oracle.Settings(label_binning=0.04)) for n in (1, 25, 26, 75)] == [
        1,
        1,
        2,
        3,
    ]
    assert oracle.count_bins(25, oracle.Settings(label_binning=0.28)) == 7  # 0.28 · 25 rounds to more than 7


@given(
    st.lists(st.sampled_from([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 2.5]), max_size=6),
    st.sampled_from([0.3, 0.5, 1.0]),
)
def test_possible_bins_hold_the_bins_of_criteria_nearby(criteria, label_binning):
    s = oracle.Settings(label_binning=label_binning)
    rng = np.random.default_rng(0)
    noise = np.full(len(criteria), 1e-12)
    ways = list(oracle.possible_bins(criteria, noise, s))
    for _ in range(5):
        near = criteria + noise * rng.uniform(-1, 1, len(criteria)) * rng.integers(0, 2, len(criteria))
        assert oracle.bins(near, s) in ways


def sparse_labels(n_rows, n_labels, density):
    rng = np.random.default_rng(0)
    share = rng.exponential(density, n_labels).clip(1 / n_rows, 0.5)
    return rng.random((n_rows, n_labels)) < share


def losses_of_default_rules(n_rows, n_labels, density):
    """Mean losses at the start and after the default rule of several settings."""
    # Equal rows are one row with a weight.
    Y, counts = np.unique(sparse_labels(n_rows, n_labels, density), axis=0, return_counts=True)
    tried = {
        "full": {"label_binning": None},
        "restricted": {"hessian": "restricted"},
        "paper": {"hessian": "paper"},
        "safeguarded": {"label_binning": None, "step": "safeguarded"},
    }
    heads = {"start": np.zeros(n_labels)}
    boosting = oracle.Boosting(np.empty((len(Y), 0)), Y, oracle.Settings(), counts)
    for name, parameters in tried.items():
        boosting.settings = oracle.Settings(**parameters)
        heads[name] = boosting.default_head()
    y = np.where(Y, 1.0, -1.0)
    return {
        name: np.average([oracle.value("example-wise-logistic", p, row) for row in y], weights=counts)
        for name, p in heads.items()
    }


def test_newton_goes_too_far_on_many_rare_labels_unless_bins_drop_pairs():
    loss = losses_of_default_rules(978, 45, 0.028)
    assert loss["safeguarded"] < loss["paper"] < loss["start"] < min(loss["full"], loss["restricted"])
    # Mean losses of other random labels of this size and density.
    assert list(loss.values()) == pytest.approx([3.83, 3.99, 4.03, 2.98, 2.42], abs=0.25)


def test_newton_does_well_on_few_frequent_labels():
    loss = losses_of_default_rules(500, 14, 0.3)
    assert loss["safeguarded"] <= loss["full"] < loss["start"]


SETTINGS = [
    {"loss": loss, "head": head, "hessian": hessian, "step": step, **binning}
    for loss, head, binning, hessian, step in itertools.product(
        LOSSES,
        ["complete", "single-label"],
        [
            {"label_binning": None},
            {"label_binning": 0.3},
            {"label_binning": 1.0},
            {"label_binning": 1.0, "max_bins": 1},
            {"label_binning": 0.01, "min_bins": 2, "max_bins": 3},
        ],
        ["paper", "restricted"],
        ["newton", "safeguarded"],
    )
]


@st.composite
def chosen_settings(draw):
    return oracle.Settings(
        **draw(st.sampled_from(SETTINGS)),
        learning_rate=draw(st.sampled_from([0.3, 1.0])),
        l2=draw(st.sampled_from([0.25, 1.0, 8.0])),
        min_coverage=draw(st.sampled_from([1, 1, 2, 5])),
        max_conditions=draw(st.sampled_from([None, None, 1, 2])),
    )


def column(kind, rng, n_rows):
    far = [-3e38, -1e-45, 0.0, 1e-45, 1.0, np.nextafter(np.float32(1), 2), 3e38]
    draw = {
        "continuous": lambda: rng.normal(size=n_rows),
        "whole": lambda: rng.integers(-2, 3, n_rows),
        "sparse": lambda: rng.choice([-1.5, -1.0, 1.0, 2.5], n_rows) * (rng.random(n_rows) < 0.25),
        "constant": lambda: np.full(n_rows, 3.0),
        "far": lambda: rng.choice(far, n_rows),
        "nominal": lambda: rng.integers(0, 4, n_rows),
    }[kind]
    return draw().astype(np.float32)


@st.composite
def problems(draw):
    """X, 0/1 Y, weights or None, and nominal columns: small, with ties and missing values."""
    kinds = draw(
        st.lists(
            st.sampled_from(["continuous", "whole", "sparse", "nominal", "constant", "far"]),
            min_size=1,
            max_size=5,
        )
    )
    n_rows, n_labels = (
        draw(st.sampled_from([2, 5, 9, 16, 25, 40, 40])),
        draw(st.sampled_from([1, 2, 3, 5, 8, 17])),
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    X = np.column_stack([column(kind, rng, n_rows) for kind in kinds]).astype(float)  # sums do not overflow
    X[rng.random(X.shape) < draw(st.sampled_from([0.0, 0.0, 0.2]))] = np.nan
    Y = (rng.random((n_rows, n_labels)) < draw(st.sampled_from([0.15, 0.5]))).astype(int)
    weights = None
    if draw(st.booleans()):
        weights = rng.integers(0, 9, n_rows) / draw(st.sampled_from([1, 4]))
        weights[0] = 1.0
    return X, Y, weights, [at for at, kind in enumerate(kinds) if kind == "nominal"]


def fitted(problem, s, n_rules, search, **sampling):
    X, Y, weights, nominal = problem
    sampling = {"bootstrap": False, "max_features": None, "random_state": 0} | sampling
    model = BoostedRulesClassifier(
        n_rules, **asdict(s), search=search, categorical_features=nominal, **sampling
    )
    return model.fit(X, Y, sample_weight=weights)


def learned(Y, weights):
    """The labels of the rows with a positive weight."""
    return Y if weights is None else Y[weights > 0]


def bodies(model):
    """Conditions of each rule."""
    conditions = [
        (int(feature), oracle.OPERATORS[operator], threshold)
        for feature, operator, threshold in zip(
            model.body_feature_, model.body_operator_, model.body_threshold_, strict=True
        )
    ]
    return [conditions[begin:end] for begin, end in itertools.pairwise(model.body_indptr_)]


def near(head):
    """Equal up to single precision."""
    return pytest.approx(head, rel=1e-6, abs=1e-6 * max(abs(head), default=0) + 1e-12)


def qualities(boosting, rows, label):
    """The range of qualities that rounding allows for a rule that covers the rows."""
    found = [quality for _, quality in boosting.heads(rows, label)]
    slack = 1e-9 * max(map(abs, found), default=np.inf) + 1e-12
    return min(found, default=0) - slack, max(found, default=0) + slack


def follow(model, boosting):
    """Check every choice in the rules of a model against the oracle."""
    sampled = model.bootstrap or model.max_features is not None
    heads = model.heads_.toarray().astype(float)
    everywhere = np.arange(len(boosting.y))
    for (number, body), head in zip(enumerate(bodies(model)), heads, strict=True):
        if number == 0:
            assert body == []
            follow_default(boosting, head)
            boosting.add(head, everywhere)
            continue
        label = None
        if boosting.settings.head == "single-label":
            assert np.count_nonzero(head) <= 1
            label = int(np.argmax(abs(head)))
            if head[label] == 0:  # the head does not show which label it was
                return
        assert body
        if not sampled:
            follow_body(boosting, body, label, model.search)
        rows = boosting.covered(body)
        assert model.coverage_[number] == pytest.approx(boosting.weights[rows].sum())
        possible = [boosting.shrunken(possible, rows) for possible, _ in boosting.heads(rows, label)]
        assert not possible or any(head == near(p) for p in possible), (head, possible)
        boosting.add(head, rows)
    if len(heads) < model.n_rules and not sampled:
        assert not list(boosting.conditions(boosting.sampled_rows()))


def follow_default(boosting, head):
    everywhere = np.arange(len(boosting.y))
    if boosting.settings.step == "newton":
        possible = [p for p, _ in boosting.heads(everywhere, complete=True)]
        assert not possible or any(head == near(p) for p in possible), (head, possible)
    else:
        best = boosting.objective(everywhere, boosting.default_head())
        assert boosting.objective(everywhere, head) == pytest.approx(best, rel=1e-6)


def follow_body(boosting, body, label, search):
    """Check that each condition improves the rule, and for exact search that no other condition is better."""
    rows, least, most = boosting.sampled_rows(), np.inf, np.inf
    for number, (feature, operator, threshold) in enumerate(body):
        assert boosting.may_grow(rows, number)
        candidates = list(boosting.conditions(rows))
        covered = rows[oracle.covered_by(boosting.X[rows, feature], operator, threshold)]
        same = [c for c in candidates if c[:2] == (feature, operator) and np.array_equal(c[3], covered)]
        assert same, (feature, operator, threshold)
        before, (least, most) = most, qualities(boosting, covered, label)
        assert least < before
        if search == "exact":
            assert threshold == pytest.approx(same[0][2], rel=1e-6)
            for *condition, other in candidates:
                assert least <= qualities(boosting, other, label if number else None)[1], condition
        rows = covered
    if search == "exact" and boosting.may_grow(rows, len(body)):
        for *condition, other in boosting.conditions(rows):
            assert qualities(boosting, other, label)[1] >= least, condition


@pytest.mark.parametrize("search", ["exact", "fast"])
@given(problems(), chosen_settings())
def test_every_rule_is_what_the_definitions_ask(search, problem, s):
    X, Y, weights, nominal = problem
    model = fitted(problem, s, 4, search)
    follow(model, oracle.Boosting(X, Y, s, weights, nominal))


@given(problems(), chosen_settings(), st.sampled_from(["exact", "fast"]), st.integers(0, 99))
def test_heads_of_sampled_rules_come_from_all_rows(problem, s, search, seed):
    X, Y, weights, nominal = problem
    model = fitted(problem, s, 6, search, bootstrap=True, max_features="log2", random_state=seed)
    follow(model, oracle.Boosting(X, Y, s, weights, nominal))


def roomy(seed, n_rows=50, n_labels=5):
    """Rows whose subsets have different sums, so that no choice depends on rounding."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 4)).astype(np.float32)
    X[rng.random(X.shape) < 0.1] = np.nan
    X[:, 3] = rng.integers(0, 5, n_rows)
    margins = np.nan_to_num(X) @ rng.normal(size=(4, n_labels)) + rng.normal(size=(n_rows, n_labels))
    return X, (margins > 1).astype(int), rng.integers(0, 4, n_rows), [3]


@pytest.mark.parametrize("parameters", SETTINGS)
def test_whole_ensembles_equal_those_of_the_twin(parameters):
    X, Y, weights, nominal = roomy(4, n_rows=20)
    s = oracle.Settings(**parameters)
    model = fitted((X, Y, weights, nominal), s, 3, "exact")
    rules = oracle.Boosting(X, Y, s, weights, nominal).fit(3)
    assert [len(body) for body, _ in rules] == [len(body) for body in bodies(model)]
    seen = X[weights > 0]  # equivalent conditions may differ on rows of weight 0
    wanted = np.where(learned(Y, weights).any(axis=0), oracle.decision(rules, seen), -np.inf)
    np.testing.assert_allclose(model.decision_function(seen), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("search", ["exact", "fast"])
@pytest.mark.parametrize("parameters", SETTINGS[::7])
def test_whole_weights_equal_repeated_rows(parameters, search):
    X, Y, weights, nominal = roomy(5)
    rows = np.repeat(np.arange(len(X)), weights)
    s = oracle.Settings(**parameters)
    weighted = fitted((X, Y, weights, nominal), s, 12, search)
    repeated = fitted((X[rows], Y[rows], None, nominal), s, 12, search)
    np.testing.assert_allclose(
        weighted.decision_function(X[rows]), repeated.decision_function(X[rows]), rtol=1e-5, atol=1e-5
    )


@given(problems(), chosen_settings())
def test_scores_are_sums_of_the_heads_that_fire(problem, s):
    X, Y, weights, _ = problem
    model = fitted(problem, s, 6, "fast")
    others = np.random.default_rng(0).permuted(X, axis=0)
    rules = list(zip(bodies(model), model.heads_.toarray().astype(float), strict=True))
    wanted = np.where(learned(Y, weights).any(axis=0), oracle.decision(rules, others), -np.inf)
    np.testing.assert_allclose(model.decision_function(others), wanted, rtol=1e-6, atol=1e-6)


@given(problems(), chosen_settings())
def test_label_sets_are_those_of_the_rows_most_frequent_first(problem, s):
    _, Y, weights, _ = problem
    model = fitted(problem, s, 2, "fast")
    total = {}
    for labels, weight in zip(Y, np.ones(len(Y)) if weights is None else weights, strict=True):
        if weight > 0:
            total[tuple(labels)] = total.get(tuple(labels), 0.0) + weight
    ranked = sorted(total, key=lambda labels: -total[labels])  # keeps the order of first sight
    assert [tuple(labels) for labels in model.label_sets_.toarray()] == ranked
    np.testing.assert_allclose(model.label_set_weights_, [total[labels] for labels in ranked])


@given(problems(), chosen_settings())
def test_predicted_label_sets_cost_least(problem, s):
    X, *_ = problem
    model = fitted(problem, s, 6, "fast").set_params(predictor="known-label-sets")
    sets = model.label_sets_.toarray()
    rules = list(zip(bodies(model), model.heads_.toarray().astype(float), strict=True))
    for p, labels in zip(oracle.decision(rules, X), model.predict(X), strict=True):
        costs = oracle.set_costs(p, sets)
        (chosen,) = np.flatnonzero((sets == labels).all(axis=1))
        assert costs[chosen] <= costs.min() * (1 + 1e-12)
        assert chosen <= np.argmin(costs) or costs[chosen] < costs[np.argmin(costs)] * (1 + 1e-12)


@given(problems(), chosen_settings(), st.sampled_from([1.0, 30.0, 700.0, 1e30]))
def test_probabilities_are_marginals_over_label_sets(problem, s, scale):
    X, Y, weights, _ = problem
    model = fitted(problem, s, 4, "fast")
    heads = model.heads_ * np.float32(scale)
    model.heads_ = heads.astype(np.float32)
    rules = list(zip(bodies(model), model.heads_.toarray().astype(float), strict=True))
    scores = oracle.decision(rules, X)
    if s.loss == "label-wise-logistic":
        wanted = np.where(learned(Y, weights).any(axis=0), oracle.expit(scores), 0.0)
    else:
        wanted = [oracle.marginals(p, model.label_sets_.toarray()) for p in scores]
    got = model.predict_proba(X)
    assert np.isfinite(got).all()
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-9)
