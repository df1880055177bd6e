"""Label sets and probabilities of `CorrLogClassifier`, compared with enumeration."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csc_array, csr_array

from manylabel import CorrLogClassifier
from oracle import correlated as oracle


def random_model(rng, m, scale=2.0):
    C = rng.normal(scale=scale, size=(m, m)) * (rng.random((m, m)) < 0.7)
    C = np.triu(C, 1)
    return rng.normal(scale=scale, size=m), C + C.T


def model_of(u, C, decoder, sets=None):
    """A fitted model with these intercepts and couplings and without weights."""
    m = len(u)
    model = CorrLogClassifier(decoder=decoder)
    model.n_features_in_, model.classes_, model.sparse_output_ = 1, np.arange(m), False
    model.coef_, model.intercept_ = csc_array((m, 1)), np.asarray(u, dtype=float)
    model.correlations_ = csr_array(C)
    sets = np.zeros((0, m)) if sets is None else sets
    model.label_sets_ = csr_array(sets.astype(np.float32))
    model.label_set_energies_ = oracle.score(np.zeros(m), C, sets)
    return model


def decoded(u, C, decoder, sets=None):
    return model_of(u, C, decoder, sets).predict([[0.0]])[0]


@given(st.integers(0, 10**6), st.integers(1, 9))
def test_exact_is_the_most_probable_set(seed, m):
    u, C = random_model(np.random.default_rng(seed), m)
    best = oracle.most_probable(u, C)
    found = decoded(u, C, "exact")
    np.testing.assert_allclose(oracle.score(u, C, found[None])[0], oracle.score(u, C, best[None])[0])
    odds = model_of(u, C, "exact").decision_function([[0.0]])[0]
    np.testing.assert_allclose(odds, u + C @ found, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(found, odds > 0)


def test_exact_beyond_one_table_of_states():
    u, C = random_model(np.random.default_rng(0), 14)
    np.testing.assert_array_equal(decoded(u, C, "exact"), oracle.most_probable(u, C))
    np.testing.assert_array_equal(decoded(u, C, "auto"), oracle.most_probable(u, C))
    u, C = random_model(np.random.default_rng(1), 17)
    np.testing.assert_array_equal(decoded(u, C, "exact"), oracle.most_probable(u, C))
    with pytest.raises(
        ValueError, match=r"`decoder` must be .* more than 20 coupled labels, got .* for 21 coupled labels"
    ):
        decoded(np.zeros(21), np.ones((21, 21)) - np.eye(21), "exact")


@given(st.integers(0, 10**6), st.integers(2, 12))
def test_search_is_no_worse_than_its_seeds_and_left_by_no_flip(seed, m):
    rng = np.random.default_rng(seed)
    u, C = random_model(rng, m)
    sets = np.unique(rng.integers(0, 2, size=(7, m)), axis=0).astype(float)
    found = decoded(u, C, "search", sets)
    seeds = np.vstack([sets, (u > 0).astype(float)])
    value = oracle.score(u, C, found[None])[0]
    assert value >= oracle.score(u, C, seeds).max() - 1e-9
    for i in range(m):
        for k in range(i, m):
            other = found.astype(float)
            other[[i, k]] = 1 - other[[i, k]]
            assert oracle.score(u, C, other[None])[0] <= value + 1e-9


def chain(rng, m):
    C = np.zeros((m, m))
    for i in range(m - 1):
        C[i, i + 1] = C[i + 1, i] = rng.normal(scale=3)
    return rng.normal(scale=2, size=m), C


@given(st.integers(0, 10**6))
def test_messages_are_exact_on_chains(seed):
    u, C = chain(np.random.default_rng(seed), 8)
    np.testing.assert_array_equal(decoded(u, C, "bp"), oracle.most_probable(u, C))


def test_messages_are_those_of_the_two_state_code():
    rng = np.random.default_rng(0)
    same = 0
    for _ in range(60):
        u, C = random_model(rng, 5, scale=1.0)
        same += np.array_equal(decoded(u, C, "bp"), oracle.messages(u, C, rounds=20))
    assert same >= 59  # messages do not converge on frustrated cycles


@given(st.integers(0, 10**6), st.integers(1, 9))
def test_marginals_are_sums_over_all_sets(seed, m):
    u, C = random_model(np.random.default_rng(seed), m)
    np.testing.assert_allclose(
        model_of(u, C, "auto").predict_proba([[0.0]])[0], oracle.marginals(u, C), atol=1e-12
    )


@given(st.integers(0, 10**6), st.integers(1, 9))
def test_ranked_by_marginals(seed, m):
    """Labels are ranked by marginals. Odds given the most probable set may order them differently."""
    u, C = random_model(np.random.default_rng(seed), m)
    C[0] = C[:, 0] = 0  # a label without couplings
    u[0] = -60 + seed % 120  # its probability may be 1 in double precision
    top = model_of(u, C, "auto").predict_topk([[0.0]], k=m)
    q = oracle.marginals(u, C)[1:]
    np.testing.assert_array_equal(top.indices, np.arange(m))
    np.testing.assert_allclose(top.data[0], u[0], rtol=1e-6)
    np.testing.assert_allclose(top.data[1:], np.log(q) - np.log1p(-q), rtol=1e-3, atol=1e-4)
    k = (m + 1) // 2
    best = np.sort(np.lexsort([np.arange(m), -top.data])[:k])
    np.testing.assert_array_equal(model_of(u, C, "auto").predict_topk([[0.0]], k=k).indices, best)


def test_rankings_of_the_two_kinds_differ():
    # Given the most probable set {1, 2}, label 0 is improbable, but its marginal is large.
    u, C = np.array([1.0, 0.9, 0.9]), np.array([[0, -5, -5], [-5, 0, 1], [-5, 1, 0]], dtype=float)
    model = model_of(u, C, "auto")
    assert model.predict([[0.0]])[0].tolist() == [0, 1, 1]
    u[0] = 2.5
    model = model_of(u, C, "auto")
    assert model.predict([[0.0]])[0].tolist() == [0, 1, 1]
    odds, q = model.decision_function([[0.0]])[0], model.predict_proba([[0.0]])[0]
    assert odds.argmin() == 0
    top = model.predict_topk([[0.0]], k=3)
    np.testing.assert_allclose(1 / (1 + np.exp(-top.data)), q, rtol=1e-5)
    assert 1 / (1 + np.exp(-odds[0])) < 0.01 < 0.3 < q[0]


def test_ranking_of_certain_labels_is_finite():
    u, C = random_model(np.random.default_rng(0), 13)
    for scale in (1e3, 1e10):
        top = model_of(u * scale, C, "auto").predict_topk([[0.0]], k=13)
        assert np.isfinite(top.data).all()
        assert top.nnz == 13


def test_marginals_of_large_scores():
    """If the scores are so large that one label set is certain, the marginals are that set."""
    rng = np.random.default_rng(0)
    for scale in (1e10, 1e18, 1e25):
        u, C = random_model(rng, 13)
        u *= scale
        np.testing.assert_array_equal(model_of(u, C, "auto").predict_proba([[0.0]])[0], u > 0)


def test_marginals_of_many_labels():
    """Marginals are exact on a chain, close for weak couplings, and mean field without convergence."""
    rng = np.random.default_rng(0)
    u, C = chain(rng, 16)
    found = model_of(u, C, "auto").predict_proba([[0.0]])[0]
    np.testing.assert_allclose(found, oracle.marginals(u, C), atol=1e-3)
    u, C = random_model(rng, 16, scale=0.3)
    found = model_of(u, C, "auto").predict_proba([[0.0]])[0]
    np.testing.assert_allclose(found, oracle.marginals(u, C), atol=0.02)
    u, C = random_model(rng, 16, scale=6)  # messages do not converge
    found = model_of(u, C, "auto").predict_proba([[0.0]])[0]
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-u - C @ found)), atol=1e-3)


def test_marginals_of_many_pairs():
    """With more pairs than the limit of message passing, the marginals are those of mean field."""
    u, C = np.full(80, -1.0), 0.01 * (1 - np.eye(80))
    found = model_of(u, C, "auto").predict_proba([[0.0]])[0]
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-u - C @ found)), atol=1e-4)


@pytest.mark.parametrize("how", ["column", "length", "symmetry", "diagonal"])
def test_a_spoiled_start_of_the_search_is_an_error(problem, how):
    model = CorrLogClassifier(0.02, 0.01, decoder="search").fit(*problem)
    if how == "column":
        model.label_sets_.indices[-1] = 9
    elif how == "length":
        model.label_set_energies_ = model.label_set_energies_[1:]
    elif how == "symmetry":
        model.correlations_.data[0] += 1
    else:
        model.correlations_ = csr_array(model.correlations_.toarray() + np.eye(5))
    with pytest.raises(ValueError, match=r"label_sets_|length of label_set_energies_|correlations_"):
        model.predict(problem[0])


def test_label_sets_are_those_of_the_training_rows(problem):
    model = CorrLogClassifier(0.02, 0.01).fit(*problem)
    sets, counts = np.unique(problem[1], axis=0, return_counts=True)
    found = model.label_sets_.toarray()
    np.testing.assert_array_equal(np.unique(found, axis=0), sets)
    frequencies = [counts[(sets == one).all(axis=1)][0] for one in found]
    assert frequencies == sorted(counts, reverse=True)
    energies = oracle.score(np.zeros(5), model.correlations_.toarray(), found)
    np.testing.assert_allclose(model.label_set_energies_, energies, atol=1e-12)


def test_a_decoder_set_after_the_fit(problem):
    model = CorrLogClassifier(0.02, 0.01).fit(*problem)
    with pytest.raises(ValueError, match=r"`decoder` must be .* got 3"):
        model.set_params(decoder=3).predict(problem[0])
