"""`manylabel.metrics` against its definitions, and on inputs with ties, zeros and infinities."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array, csc_array, csr_array, csr_matrix
from sklearn.metrics import ndcg_score

from manylabel.metrics import (
    ndcg_at_k,
    precision_at_k,
    propensities,
    psndcg_at_k,
    psp_at_k,
    ranking,
    recall_at_k,
)

_spec = importlib.util.spec_from_file_location(
    "oracle_metrics", Path(__file__).parents[1] / "oracle" / "metrics.py"
)
oracle = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(oracle)

KS = (1, 2, 3, 5, 9)
EYE = np.eye(3)


@st.composite
def problems(draw):
    """Number of labels, true sets, a dict of scores per row (without entry: no candidate), propensities."""
    n, c = draw(st.integers(1, 6)), draw(st.integers(1, 7))
    labels = st.integers(0, c - 1)
    # Few distinct values, so that ties, zeros, negatives and both infinities are common.
    values = st.sampled_from([-np.inf, -2.0, -0.5, 0.0, 0.5, 0.5, 3.0, np.inf])
    truth = draw(st.lists(st.sets(labels), min_size=n, max_size=n))
    rows = draw(st.lists(st.dictionaries(labels, values), min_size=n, max_size=n))
    return c, truth, rows, draw(st.lists(st.floats(0.01, 1.0), min_size=c, max_size=c))


def indicator(truth, c):
    Y = np.zeros((len(truth), c), dtype=np.int8)
    for i, y in enumerate(truth):
        Y[i, sorted(y)] = 1
    return Y


def sparse_scores(rows, c, order):
    """CSR that stores exactly the given entries, with the labels of a row in the given order."""
    stored = [(i, j, row[j]) for i, row in enumerate(rows) for j in sorted(row, reverse=order == "falling")]
    indptr = np.cumsum([0] + [len(row) for row in rows])
    data, indices = np.array([v for *_, v in stored], dtype=float), np.array([j for _, j, _ in stored], int)
    return csr_array((data, indices, indptr), shape=(len(rows), c))


def dense_scores(rows, c):
    return np.array([[row.get(j, -np.inf) for j in range(c)] for row in rows])


@settings(deadline=None)
@given(
    problems(),
    st.sampled_from([1, 8, 1 << 22]),
    st.sampled_from([np.asarray, csr_matrix, csc_array, lambda Y: coo_array(Y.astype(bool))]),
)
def test_every_measure_equals_its_definition(problem, block, form):
    c, truth, rows, propensity = problem
    Y_true = form(indicator(truth, c))
    expected = {
        precision_at_k: [oracle.precision(truth, rows, k) for k in KS],
        recall_at_k: [oracle.recall(truth, rows, k) for k in KS],
        ndcg_at_k: [oracle.ndcg(truth, rows, k) for k in KS],
        psp_at_k: [oracle.psp(truth, rows, propensity, k) for k in KS],
        psndcg_at_k: [oracle.psndcg(truth, rows, propensity, k) for k in KS],
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking, "_BLOCK", block)
        for scores in (
            dense_scores(rows, c),
            dense_scores(rows, c).astype(np.float32, order="F"),
            sparse_scores(rows, c, "rising"),
            sparse_scores(rows, c, "falling"),
        ):
            before = scores.copy()
            found = {}
            for measure in expected:
                needed = (propensity,) if measure in (psp_at_k, psndcg_at_k) else ()
                one = measure(Y_true, scores, *needed, k=KS[1])
                found[measure] = [*measure(Y_true, scores, *needed, k=KS), one]
            # Rows are measures in the order of `expected`. The last column is the call with one number.
            wanted = [[*values, values[1]] for values in expected.values()]
            np.testing.assert_allclose(list(found.values()), wanted, rtol=1e-12)
            if isinstance(scores, np.ndarray):
                np.testing.assert_array_equal(scores, before)
            else:
                np.testing.assert_array_equal(scores.indices, before.indices)
                np.testing.assert_array_equal(scores.data, before.data)


@settings(deadline=None)
@given(problems(), st.floats(0.1, 2.0), st.floats(0.1, 3.0))
def test_propensities_equal_their_definition(problem, a, b):
    c, truth, *_ = problem
    truth = truth * 3  # at least three rows
    expected = oracle.propensities(truth, c, a, b)
    np.testing.assert_allclose(propensities(csr_array(indicator(truth, c)), A=a, B=b), expected, rtol=1e-12)


def test_propensity_of_a_label_never_seen_is_the_smallest():
    Y = np.array([[1, 0, 1], [1, 0, 0], [1, 0, 0], [1, 0, 1]])
    p = propensities(Y)
    assert p[1] < p[2] < p[0] < 1
    assert p[1] > 0


@settings(deadline=None)
@given(problems())
def test_a_perfect_ranking_reaches_one(problem):
    c, truth, _, propensity = problem
    truth[0] = truth[0] | {0}  # psp needs at least one true label
    Y = indicator(truth, c)
    scores = Y / np.array(propensity)
    np.testing.assert_allclose(psp_at_k(Y, scores, propensity, k=KS), 1.0)
    np.testing.assert_allclose(psndcg_at_k(Y, scores, propensity, k=KS), 1.0)
    n_labelled = sum(map(bool, truth))
    np.testing.assert_allclose(ndcg_at_k(Y, scores, k=KS), n_labelled / len(truth))
    assert recall_at_k(Y, scores, k=c) == pytest.approx(1.0)


def test_ndcg_agrees_with_scikit_learn_where_no_score_is_tied():
    rng = np.random.default_rng(0)
    Y = rng.random((200, 30)) < 0.1
    scores = rng.permuted(np.tile(np.arange(30.0), (200, 1)), axis=1)
    assert ndcg_at_k(Y, scores, k=7) == pytest.approx(ndcg_score(Y, scores, k=7), rel=1e-12)


def test_rows_of_very_different_length_in_one_sparse_matrix():
    rng = np.random.default_rng(1)
    n, c = 300, 2000
    counts = rng.choice([0, 1, 2, 3, 5, 17, 64, 65, 1999], n)
    scores = csr_array(
        (
            rng.integers(-3, 3, counts.sum()).astype(np.float32),
            np.concatenate([np.sort(rng.choice(c, count, replace=False)) for count in counts]),
            np.concatenate([[0], np.cumsum(counts)]),
        ),
        shape=(n, c),
    )
    truth = [set(rng.choice(50, 5).tolist()) for _ in range(n)]
    rows = [
        dict(zip(scores.indices[a:b].tolist(), scores.data[a:b].tolist(), strict=True))
        for a, b in zip(scores.indptr[:-1], scores.indptr[1:], strict=True)
    ]
    expected = [oracle.precision(truth, rows, k) for k in (1, 5, 100)]
    np.testing.assert_allclose(precision_at_k(indicator(truth, c), scores, k=[1, 5, 100]), expected)


def test_duplicates_in_sparse_scores_are_summed_and_the_caller_keeps_them():
    scores = coo_array(([1.0, 1.0, 1.5], ([0, 0, 0], [1, 1, 0])), shape=(1, 3))
    twice = csr_array((np.array([1.0, 1.0, 1.5]), np.array([1, 1, 0]), np.array([0, 3])), shape=(1, 3))
    for form in (scores, twice):
        assert precision_at_k(np.array([[0, 1, 0]]), form, k=1) == 1.0
    assert twice.nnz == 3


def test_more_ranks_than_labels_are_misses():
    np.testing.assert_allclose(precision_at_k(EYE, EYE, k=(3, 6)), [1 / 3, 1 / 6])
    assert ndcg_at_k(EYE, EYE, k=6) == 1.0


def test_only_explicit_zeros_of_sparse_scores_are_candidates():
    Y = np.array([[1, 0, 0]])
    stored = csr_array((np.array([0.0]), np.array([0]), np.array([0, 1])), shape=(1, 3))
    assert precision_at_k(Y, stored, k=1) == 1.0
    assert precision_at_k(Y, csr_array((1, 3)), k=1) == 0.0


def test_explicit_zeros_of_the_truth_are_no_labels():
    Y = csr_array((np.array([0, 1]), np.array([0, 1]), np.array([0, 2])), shape=(1, 2))
    assert precision_at_k(Y, np.array([[1.0, 0.0]]), k=1) == 0.0
    assert Y.nnz == 2


def test_integer_and_bool_scores_rank():
    Y = np.array([[0, 1, 0]])
    assert precision_at_k(Y, np.array([[0, 7, 3]], dtype=np.uint8), k=1) == 1.0
    assert precision_at_k(Y, csr_array(np.array([[False, True, False]])), k=1) == 1.0


def test_no_labels_at_all_leave_nothing_to_recall():
    Y = np.zeros((2, 3))
    assert precision_at_k(Y, np.ones((2, 3)), k=1) == 0.0
    assert ndcg_at_k(Y, np.ones((2, 3)), k=1) == 0.0
    for value in (
        recall_at_k(Y, np.ones((2, 3)), k=1),
        psp_at_k(Y, np.ones((2, 3)), np.ones(3), k=1),
        psndcg_at_k(Y, np.ones((2, 3)), np.ones(3), k=1),
    ):
        assert np.isnan(value)


def test_columns_beyond_32_bits_do_not_overflow():
    c = 2**40
    Y = csr_array((np.ones(2), np.array([c - 1, 5]), np.array([0, 1, 2])), shape=(2, c))
    assert precision_at_k(Y, Y, k=1) == 1.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": 0}, "`k` must be an integer >= 1 or a non-empty sequence of integers >= 1, got 0"),
        ({"k": (1, 0)}, r"`k` must be .* got \(1, 0\)"),
        ({"k": ()}, r"`k` must be .* got \(\)"),
        ({"k": 2.0}, r"`k` must be .* got 2\.0"),
        ({"k": True}, "`k` must be .* got True"),
        ({"k": "5"}, "`k` must be .* got '5'"),
        (
            {"scores": np.ones((3, 4))},
            r"`scores` must have the shape of `Y_true`, which is \(3, 3\), got \(3, 4\)",
        ),
        (
            {"scores": csr_array((2, 3))},
            r"`scores` must have the shape of `Y_true`, which is \(3, 3\), got \(2, 3\)",
        ),
        ({"scores": np.where(EYE == 1, np.nan, 0)}, "`scores` must not contain NaN"),
        ({"scores": csr_array(EYE * np.nan)}, "`scores` must not contain NaN"),
        ({"scores": np.full((3, 3), "a")}, "`scores` must be numeric or bool, got dtype <U1"),
        ({"scores": np.ones(3)}, r"`scores` must be 2-D, with at least one row and column, got shape \(3,\)"),
        ({"Y_true": EYE * 2}, r"`Y_true` must contain only 0, 1 and NaN, got 2\.0"),
        ({"Y_true": csr_array(-EYE)}, r"`Y_true` must contain only 0, 1 and NaN, got -1\.0"),
        ({"Y_true": np.where(EYE == 1, np.inf, 0)}, "`Y_true` must contain only 0, 1 and NaN, got inf"),
        (
            {"Y_true": np.ones((0, 3))},
            r"`Y_true` must be 2-D, with at least one row and column.* got shape \(0, 3\)",
        ),
        (
            {"Y_true": csr_array((3, 0))},
            r"`Y_true` must be 2-D, with at least one row and column.* got shape \(3, 0\)",
        ),
        pytest.param(
            {"Y_true": coo_array(np.ones(3))},
            r"`Y_true` must be 2-D, with at least one row and column.* got shape \(3,\)",
            marks=pytest.mark.skipif(coo_array(np.ones(3)).ndim == 2, reason="2-D before scipy 1.13"),
        ),
    ],
)
def test_bad_input_is_named(change, message):
    arguments = {"Y_true": EYE, "scores": EYE, "k": 1} | change
    for measure in (precision_at_k, recall_at_k, ndcg_at_k):
        with pytest.raises(ValueError, match=message):
            measure(**arguments)
    for measure in (psp_at_k, psndcg_at_k):
        with pytest.raises(ValueError, match=message):
            measure(propensities=np.ones(3), **arguments)


@pytest.mark.parametrize("bad", [[0.0, 1.0, 1.0], [1.0, 1.0, 1.5], [np.nan, 1.0, 1.0]])
def test_propensities_out_of_range_are_refused(bad):
    for measure in (psp_at_k, psndcg_at_k):
        with pytest.raises(ValueError, match=r"`propensities` must all be > 0 and <= 1"):
            measure(EYE, EYE, bad)
        with pytest.raises(ValueError, match=r"`propensities` must have shape \(3,\).* got shape \(2,\)"):
            measure(EYE, EYE, [1.0, 1.0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"A": 0.0}, r"`A` must be a finite number > 0, got 0\.0"),
        ({"B": np.inf}, "`B` must be a finite number > 0, got inf"),
        ({"A": 10**400}, "`A` must be a finite number > 0, got 1000"),
        ({"B": "1"}, "`B` must be a finite number > 0, got '1'"),
        ({"A": 1e300}, r"`A` must be small enough that \(B \+ 1\)\*\*A is finite, got 1e\+300 with B=1.5"),
        ({"Y_train": np.eye(2)}, "`Y_train` must have at least 3 rows, got 2"),
        ({"Y_train": np.eye(4) * 3}, "`Y_train` must contain only 0, 1 and NaN"),
    ],
)
def test_bad_input_of_propensities_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        propensities(**({"Y_train": EYE} | arguments))
