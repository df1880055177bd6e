"""The numpy twin of boosted rules against its definitions, and `BoostedRulesClassifier` against the twin."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_np

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
    """Derivative of f by each coordinate, in the middle."""
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
    """g and H of random rows at random scores, weighted."""
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
        ([1.0, 2.0, 0.0, -1.0], 0.04, {}, [[3], [0, 1]]),  # no gradient, no bin; signs apart
        ([0.0, -0.0], 1.0, {}, []),
        ([3.0], 1.0, {}, [[0]]),
        ([2.0, 2.0, 2.0], 1.0, {}, [[0, 1, 2]]),  # no width
        ([1.0, 2.0, 3.0], 0.5, {}, [[0], [1, 2]]),  # on an edge: above; the largest: in the last
        ([1.0, 1.5, 9.0], 1.0, {}, [[0, 1], [2]]),  # an empty bin between
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
    alone = list(range(len(criteria)))
    rng = np.random.default_rng(0)
    noise = np.full(len(criteria), 1e-6)
    ways = list(oracle.possible_bins(criteria, noise, alone, s))
    for _ in range(5):
        near = criteria + noise * rng.uniform(-1, 1, len(criteria)) * rng.integers(0, 2, len(criteria))
        assert oracle.bins(near, s) in ways


def sparse_labels(n_rows, n_labels, density):
    rng = np.random.default_rng(0)
    share = rng.exponential(density, n_labels).clip(1 / n_rows, 0.5)
    return rng.random((n_rows, n_labels)) < share


def losses_of_default_rules(n_rows, n_labels, density):
    """Mean losses at the start and after the default rule of several settings."""
    Y = sparse_labels(n_rows, n_labels, density)
    tried = {
        "full": {"label_binning": None},
        "restricted": {"hessian": "restricted"},
        "paper": {"hessian": "paper"},
        "safeguarded": {"label_binning": None, "step": "safeguarded"},
    }
    heads = {"start": np.zeros(n_labels)}
    for name, parameters in tried.items():
        boosting = oracle.Boosting(np.empty((n_rows, 0)), Y, oracle.Settings(**parameters))
        heads[name] = boosting.default_head()
    y = np.where(Y, 1.0, -1.0)
    return {
        name: np.mean([oracle.value("example-wise-logistic", p, row) for row in y])
        for name, p in heads.items()
    }


def test_newton_goes_too_far_on_many_rare_labels_unless_bins_drop_pairs():
    loss = losses_of_default_rules(978, 45, 0.028)
    assert loss["safeguarded"] < loss["paper"] < loss["start"] < min(loss["full"], loss["restricted"])
    # Means found on other labels of this size and density.
    assert list(loss.values()) == pytest.approx([3.83, 3.99, 4.03, 2.98, 2.42], abs=0.25)


def test_newton_does_well_on_few_frequent_labels():
    loss = losses_of_default_rules(500, 14, 0.3)
    assert loss["safeguarded"] <= loss["full"] < loss["start"]
