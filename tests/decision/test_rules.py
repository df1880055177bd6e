"""Decision rules against enumeration, exhaustive search and simulation."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array, issparse
from sklearn.metrics import f1_score

from manylabel.decision import (
    Costs,
    ExpectedF1,
    F1Inference,
    HierarchicalSets,
    RiskControl,
    Thresholds,
    TopLabels,
)
from manylabel.decision.risk import _Entries, p_values
from oracle import calibration as oracle

eighth = st.sampled_from([p / 8 for p in range(9)])
eighths = st.lists(eighth, min_size=1, max_size=6)

RULES = [TopLabels(2), Costs(1, 3), ExpectedF1(), Thresholds(), Thresholds("macro_f1"), RiskControl(0.5)]


def draw(rng, n, c, power=3):
    """Probabilities, and labels drawn from them."""
    P = rng.random((n, c)) ** power
    return P, (rng.random((n, c)) < P).astype(int)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_sparse_and_dense_probabilities_give_the_same_sets(rule):
    P, Y = draw(np.random.default_rng(0), 200, 12)
    P[P < 0.1] = 0
    dense = rule.fit(P, Y).predict(P)
    sparse = rule.fit(csr_array(P), csr_array(Y)).predict(csr_array(P))
    assert issparse(sparse)
    assert not issparse(dense)
    assert dense.dtype == sparse.dtype == np.int64
    np.testing.assert_array_equal(sparse.toarray(), dense)
    assert (dense[P == 0] == 0).all()
    alone = np.vstack([rule.predict(P[[row]]) for row in range(20)])
    np.testing.assert_array_equal(alone, dense[:20])


@given(eighths, st.sampled_from([0.0, 0.5, 1.0]))
def test_expected_f1_is_the_largest_of_all_sets(p, zero_division):
    p = np.array(p)
    chosen = ExpectedF1(zero_division).predict(p[None])[0]
    best = max(oracle.expected_f1(p, each, zero_division) for each in oracle.sets(len(p)))
    if chosen.any() or zero_division or not p.any():
        assert oracle.expected_f1(p, chosen, zero_division) == pytest.approx(best)


@given(eighths, st.sampled_from([0.3, 1.0, 2.5]))
def test_costs_are_the_least_of_all_sets(p, false_negative):
    p = np.array(p)

    def cost(chosen):
        return ((1 - p) * chosen + false_negative * p * (1 - chosen)).sum()

    chosen = Costs(1.0, false_negative).predict(p[None])[0]
    assert cost(chosen) == pytest.approx(min(cost(each) for each in oracle.sets(len(p))))


@st.composite
def hierarchies(draw):
    p = draw(st.lists(eighth, min_size=2, max_size=6))
    ordered = list(itertools.combinations(range(len(p)), 2))  # no cycles
    pairs = draw(st.lists(st.sampled_from(ordered), max_size=8))
    order = draw(st.permutations(range(len(p))))  # parents may have higher numbers than their children
    return np.array(p), [(order[a], order[b]) for a, b in pairs]


def is_closed(chosen, pairs):
    return all(chosen[parent] or not chosen[child] for parent, child in pairs)


@given(hierarchies(), st.sampled_from([0.3, 1.0, 2.5]))
def test_closed_sets_have_the_least_cost_of_all_closed_sets(problem, false_negative):
    p, pairs = problem

    def cost(chosen):
        return ((1 - p) * chosen + false_negative * p * (1 - chosen)).sum()

    chosen = HierarchicalSets(Costs(1.0, false_negative), pairs).predict(p[None])[0]
    assert is_closed(chosen, pairs)
    assert cost(chosen) <= min(cost(each) for each in oracle.sets(len(p)) if is_closed(each, pairs)) + 1e-6


@given(hierarchies())
def test_closed_sets_have_the_largest_expected_f1_of_all_closed_sets(problem):
    p, pairs = problem
    rule = HierarchicalSets(ExpectedF1(1.0), pairs)
    chosen = rule.predict(p[None])[0]
    assert is_closed(chosen, pairs)
    coherent = rule._coherent(csr_array(p[None])).toarray()[0]
    best = max(
        oracle.expected_f1(coherent, each, 1.0) for each in oracle.sets(len(p)) if is_closed(each, pairs)
    )
    assert oracle.expected_f1(coherent, chosen, 1.0) == pytest.approx(best, abs=1e-6)


@given(hierarchies(), st.integers(1, 5))
def test_top_labels_are_the_closed_set_with_the_largest_sum(problem, k):
    p, pairs = problem
    rule = HierarchicalSets(TopLabels(k), pairs)
    chosen = rule.predict(p[None])[0]
    coherent = rule._coherent(csr_array(p[None])).toarray()[0]
    assert is_closed(chosen, pairs)
    assert chosen.sum() == min(k, np.count_nonzero(coherent))
    best = max(coherent @ each for each in oracle.sets(len(p)) if is_closed(each, pairs) and each.sum() <= k)
    assert coherent @ chosen == pytest.approx(best, abs=1e-6)


def test_parents_are_chosen_before_their_children():
    # The parents have higher numbers, and all corrected probabilities are equal.
    pairs, P = [(2, 1), (1, 0)], [[0.9, 0.1, 0.2]]
    for k, expected in enumerate([[0, 0, 1], [0, 1, 1], [1, 1, 1]], start=1):
        np.testing.assert_array_equal(HierarchicalSets(TopLabels(k), pairs).predict(P), [expected])


@pytest.mark.parametrize("rule", [TopLabels(3), RiskControl(0.4)], ids=lambda rule: type(rule).__name__)
def test_other_rules_are_closed_too(rule):
    rng = np.random.default_rng(1)
    P, Y = draw(rng, 100, 10)
    pairs = [(9, 5), (5, 7), (1, 7), (8, 2)]
    Y[:, [5, 1]] |= Y[:, [7]]
    Y[:, 9] |= Y[:, 5]
    Y[:, 8] |= Y[:, 2]
    for chosen in HierarchicalSets(rule, pairs).fit(P, Y).predict(P):
        assert is_closed(chosen, pairs)


@pytest.mark.parametrize("metric", ["micro_f1", "example_f1"])
def test_one_bound_is_the_best_of_all(metric):
    P, Y = draw(np.random.default_rng(2), 150, 6)
    axes = {"micro_f1": None, "example_f1": 1}[metric]

    def measure(Y, chosen):
        hits, n = (Y & chosen).sum(axis=axes), (Y + chosen).sum(axis=axes)
        return np.mean(2 * hits / np.maximum(n, 1))

    found = measure(Y, Thresholds(metric).fit(P, Y).predict(P))
    best = oracle.best_bound(measure, P, Y)
    assert found == pytest.approx(
        best, abs=1e-12 if metric == "micro_f1" else 0.01
    )  # example_f1 is searched on a grid


def test_bounds_of_labels_without_pooling_are_the_best_of_all():
    P, Y = draw(np.random.default_rng(3), 80, 5)
    chosen = Thresholds("macro_f1", pooling="none").fit(P, Y).predict(P)
    for label in range(5):
        p, y = P[:, [label]], Y[:, [label]]

        def measure(y, chosen):
            return 2 * (y & chosen).sum() / max((y + chosen).sum(), 1)

        assert measure(y, chosen[:, [label]]) == pytest.approx(oracle.best_bound(measure, p, y))


def test_pooled_bounds_are_better_on_fresh_rows():
    rng = np.random.default_rng(4)
    scale = rng.uniform(0.02, 0.3, 100)

    def rows(n):
        P = rng.random((n, 100)) ** 2 * scale * 3
        P = np.clip(P, 0, 1)
        return P, (rng.random(P.shape) < P).astype(int)

    (P, Y), (fresh, truth) = rows(80), rows(3000)
    measured = {
        pooling: f1_score(
            truth, Thresholds("macro_f1", pooling=pooling).fit(P, Y).predict(fresh), average="macro"
        )
        for pooling in ("frequency", "none")
    }
    assert measured["frequency"] > measured["none"] + 0.01


def test_targets_hold_on_fresh_rows():
    rng = np.random.default_rng(5)
    fails = {"precision": 0, "recall": 0}
    for _ in range(40):
        (P, Y), (fresh, truth) = draw(rng, 150, 20), draw(rng, 2000, 20)
        for name in fails:
            chosen = Thresholds(**{name: 0.7}).fit(P, Y).predict(fresh).astype(bool)
            share = truth[chosen].mean() if name == "precision" else chosen[truth > 0].mean()
            fails[name] += share < 0.7
    # Each of them fails with a probability of about 0.05 or less.
    assert max(fails.values()) <= 7
    chosen = Thresholds(labels_per_row=3.0).fit(P, Y).predict(P)
    assert chosen.sum() / len(P) == pytest.approx(3.0, abs=0.01)


def test_f1_inference_takes_sparse_probabilities():
    P, Y = draw(np.random.default_rng(6), 60, 70)
    P[P < 0.2] = 0
    for threshold in ("test", "train"):
        dense = F1Inference(threshold).fit(P, Y).predict(P)
        sparse = F1Inference(threshold).fit(csr_array(P), csr_array(Y)).predict(csr_array(P))
        np.testing.assert_array_equal(sparse.toarray(), dense)


# --- risk control ---

CASES = [
    ("false_negative_rate", "expectation"),
    ("false_negative_rate", "probability"),
    ("false_discovery_rate", "probability"),
]


@pytest.mark.parametrize(("risk", "guarantee"), CASES)
def test_the_risk_is_controlled_over_1000_draws(risk, guarantee):
    """Rows are drawn from a finite population, whose risks are known exactly."""
    rng = np.random.default_rng(7)
    alpha, delta, n, n_draws = 0.2, 0.1, 200, 1000
    P, Y = draw(rng, 5000, 8)
    P = P**1.5  # not calibrated
    measure = {"false_negative_rate": oracle.false_negative_rate}.get(risk, oracle.false_discovery_rate)
    bounds = np.linspace(0, 1, 401)
    true_risks = np.array([measure(Y, (bound <= P).astype(int)) for bound in bounds])
    rule = RiskControl(alpha, risk=risk, guarantee=guarantee, delta=delta)
    params, drawn, labels = rule.parameters.check(rule), csr_array(P), csr_array(Y)
    found = []
    for _ in range(n_draws):
        rows = rng.integers(0, len(P), n)
        rule._learn(drawn[rows], labels[rows], params)  # checks of the input would take most of the time
        found.append(rule.bound_)
    # The larger of the risks at the two nearest bounds of the table.
    above = np.minimum(np.searchsorted(bounds, found), 400)
    risks = np.maximum(true_risks[above], true_risks[np.maximum(above - 1, 0)])
    if guarantee == "expectation":
        standard_error = risks.std() / np.sqrt(n_draws)
        assert risks.mean() <= alpha + 3 * standard_error + 1e-3  # the table is not exact
        # The sets are nearly as small as those of the largest bound with the risk alpha.
        sizes = np.array([(bound <= P).sum(axis=1).mean() for bound in bounds])
        assert np.interp(found, bounds, sizes).mean() <= 1.05 * sizes[true_risks <= alpha].min()
    else:
        share = (risks > alpha).mean()
        assert share <= delta + 3 * np.sqrt(delta * (1 - delta) / n_draws)
        assert risks.mean() > 0.5 * alpha


def test_false_discovery_rates_by_definition():
    P, Y = draw(np.random.default_rng(11), 60, 5)
    P = np.round(P, 1)
    bounds = np.linspace(0.05, 1, 20)
    found = _Entries(csr_array(P), csr_array(Y)).false_discovery_rates(bounds)
    expected = [oracle.false_discovery_rate(Y, (bound <= P).astype(int)) for bound in bounds]
    np.testing.assert_allclose(found, expected)


def test_p_values_are_valid():
    """The share of p-values up to delta is at most delta if the true risk is alpha."""
    rng = np.random.default_rng(8)
    for alpha, n in itertools.product((0.05, 0.3), (20, 300)):
        risks = rng.binomial(n, alpha, 20_000) / n
        p = p_values(risks, n, alpha)
        for delta in (0.05, 0.2):
            assert (p <= delta).mean() <= delta + 3 * np.sqrt(delta * (1 - delta) / 20_000)


@pytest.mark.parametrize(
    ("alpha", "bound", "size"), [(0.1, 0.25, 504), (0.2, 0.4, 407), (0.3, 0.51, 344), (0.4, 0.59, 300)]
)
def test_dense_sets_equal_those_of_mapie(alpha, bound, size):
    """The bounds and sizes are those of `MultiLabelClassificationController(risk="recall", method="crc")` of
    MAPIE 1.6, which tries the bounds 0, 0.01, 0.02, ... The probabilities are between these bounds, so that
    equal bounds give equal sets.
    """
    row, label = np.ogrid[:120, :6]
    percent = (37 * row + 59 * label + 13 * row * label) % 100
    P, Y = (percent + 0.5) / 100, ((61 * row + 83 * label + 7 * row * row) % 100 < percent).astype(int)
    Y[Y.sum(axis=1) == 0, 0] = 1  # MAPIE refuses rows without labels
    found = RiskControl(alpha).fit(P, Y).predict(P)
    np.testing.assert_array_equal(found, bound < P)
    assert found.sum() == size


def test_p_values_equal_those_of_mapie():
    """The numbers are those of `compute_hoeffding_bentkus_p_value` of MAPIE 1.6."""
    risks = np.array([0.05, 0.1, 0.12, 0.15, 0.18])
    of_120 = [7.117193204071802e-06, 0.006851810861331057, 0.05922965501567471, 0.27690383175560834]
    np.testing.assert_allclose(p_values(risks, 120, 0.2), [*of_120, 0.8573012196077894], rtol=1e-9)
    of_500 = [3.0168211225597723e-12, 0.0017733575631503963, 0.0867182805834882, 1, 1]
    np.testing.assert_allclose(p_values(risks, 500, 0.15), of_500, rtol=1e-9)


def test_expectation_is_the_largest_bound_by_exhaustive_search():
    P, Y = draw(np.random.default_rng(9), 100, 6)
    Y[:10] = 0
    rule = RiskControl(0.25).fit(P, Y)
    good = [
        bound
        for bound in np.unique(P)
        if (100 * oracle.false_negative_rate(Y, (bound <= P).astype(int)) + 1) / 101 <= 0.25
    ]
    assert rule.bound_ == max(good)
    assert rule.risk_ == pytest.approx(oracle.false_negative_rate(Y, rule.predict(P)))


def test_bad_input():
    P, Y = draw(np.random.default_rng(10), 30, 4)
    with pytest.raises(ValueError, match='`guarantee` must be "probability" if `risk` is "false_disc'):
        RiskControl(risk="false_discovery_rate").fit(P, Y)
    with pytest.raises(ValueError, match="a limit that can be guaranteed with these 30 rows, got"):
        RiskControl(0.01).fit(P, Y)
    with pytest.raises(ValueError, match="`alpha` must be a limit that can be guaranteed"):
        RiskControl(0.1).fit(TopLabels(1).predict(P) * P, Y)  # too few true labels are candidates
    with pytest.raises(ValueError, match=r"values of `probabilities` must be from 0 to 1, got 1\.5"):
        TopLabels().predict([[1.5, 0.2]])
    with pytest.raises(ValueError, match="values of `probabilities` must be from 0 to 1, got nan"):
        Costs().predict([[np.nan, 0.2]])
    with pytest.raises(
        ValueError, match=r"`probabilities` must have the shape of Y, \(30, 4\), got \(30, 3\)"
    ):
        Thresholds().fit(P[:, :3], Y)
    with pytest.raises(ValueError, match=r"`precision` must be a value that can be reached"):
        Thresholds(precision=0.9999).fit(P, Y)
    with pytest.raises(ValueError, match="at most one of `precision`, `recall` and `labels_per_row`"):
        Thresholds(precision=0.5, recall=0.5).fit(P, Y)
    with pytest.raises(ValueError, match="`decision` must be a rule that chooses the most probable labels"):
        HierarchicalSets(Thresholds(), [(0, 1)]).fit(P, Y)
    with pytest.raises(ValueError, match="`hierarchy` must be pairs without a cycle, got a cycle through"):
        HierarchicalSets(Costs(), [(0, 1), (1, 0)]).predict(P)
    with pytest.raises(ValueError, match="labels of `hierarchy` must be from 0 to 3, got 4"):
        HierarchicalSets(Costs(), [(0, 4)]).predict(P)
