"""The data set of the package, and generated data sets."""

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from sklearn.datasets import load_digits

from manylabel.datasets import load_digit_attributes, make_multilabel

STRUCTURES = ["blocks", "low-rank", "rules"]


def test_digit_attributes():
    X, Y, feature_names, label_names = load_digit_attributes(return_names=True)
    assert (X.shape, X.dtype, Y.shape, Y.dtype) == ((1797, 64), np.float32, (1797, 10), np.int32)
    assert (X.min(), X.max()) == (0, 1)
    assert (len(set(feature_names)), len(label_names)) == (64, 10)
    digits = load_digits().target
    of_digit = {digit: Y[digits == digit] for digit in range(10)}
    assert all((rows == rows[0]).all() for rows in of_digit.values())
    table = {
        name: [digit for digit in range(10) if of_digit[digit][0, column]]
        for column, name in enumerate(label_names)
    }
    fibonacci = [0, 1]
    while fibonacci[-1] < 9:
        fibonacci.append(sum(fibonacci[-2:]))
    assert table["even"] == [n for n in range(10) if n % 2 == 0]
    assert table["prime"] == [n for n in range(2, 10) if all(n % k for k in range(2, n))]
    assert table["square"] == [n for n in range(10) if round(n**0.5) ** 2 == n]
    assert table["at least five"] == list(range(5, 10))
    assert table["multiple of three"] == [n for n in range(10) if n % 3 == 0]
    assert table["power of two"] == [n for n in range(1, 10) if n & (n - 1) == 0]
    assert table["Fibonacci number"] == sorted(set(fibonacci) & set(range(10)))
    assert len({tuple(rows[0]) for rows in of_digit.values()}) == 10
    assert [a.tolist() for a in load_digit_attributes()] == [X.tolist(), Y.tolist()]


@pytest.mark.parametrize("structure", STRUCTURES)
def test_sizes_and_seeds(structure):
    X, Y = make_multilabel(20_000, 5000, 1000, structure=structure, random_state=3)
    assert (X.shape, X.dtype, Y.shape, Y.dtype) == ((20_000, 5000), np.float32, (20_000, 1000), np.int32)
    assert type(X) is type(Y) is sparse.csr_array
    assert X.indices.dtype == Y.indices.dtype == np.int32
    assert X.has_canonical_format
    assert Y.has_canonical_format
    assert set(Y.data) == {1}
    np.testing.assert_allclose(np.sqrt((X * X).sum(axis=1)), 1, rtol=1e-5)
    assert 0.6 * 30 < X.nnz / 20_000 <= 30 + 4
    assert 0.8 * 3 < Y.nnz / 20_000 < 1.1 * 3
    frequency = Y.sum(axis=0)
    assert frequency[:100].sum() > 4 * frequency[500:600].sum() > 0
    again = make_multilabel(20_000, 5000, 1000, structure=structure, random_state=np.random.RandomState(3))
    assert (again[0] != X).nnz == (again[1] != Y).nnz == 0
    other = make_multilabel(20_000, 5000, 1000, structure=structure, random_state=4)
    assert (other[1] != Y).nnz > 0


@pytest.mark.parametrize("structure", STRUCTURES)
def test_a_linear_model_finds_the_labels(structure):
    X, Y = make_multilabel(6000, 500, 100, structure=structure, random_state=0)
    X, Y = X.toarray(), Y.toarray()
    half = X[:3000]
    weights = np.linalg.solve(half.T @ half + np.eye(500), half.T @ Y[:3000])
    labelled = Y[3000:].any(axis=1)
    X_test, Y_test = X[3000:][labelled], Y[3000:][labelled]
    best = (X_test @ weights).argmax(axis=1)
    precision = Y_test[np.arange(len(Y_test)), best].mean()
    assert precision > 0.6 > 0.4 > Y_test.mean(axis=0).max()


def test_blocks_share_no_label():
    X, Y = make_multilabel(5000, 300, 90, structure="blocks", random_state=0)
    n_blocks = 9
    for matrix in (X, Y):
        n, of_column = connected_components(matrix.T @ matrix)
        assert n == n_blocks
        np.testing.assert_array_equal(of_column, of_column[np.arange(matrix.shape[1]) % n_blocks])
    assert connected_components(X.T @ Y @ Y.T @ X)[0] == n_blocks


@pytest.mark.parametrize("n_labels", [1, 2, 3, 4, 21, 50])
def test_rules_hold_exactly(n_labels):
    X, Y = make_multilabel(3000, 60, n_labels, structure="rules", labels_per_sample=1, random_state=0)
    present = X.toarray() != 0
    pairs = [(a, b) for b in range(60) for a in range(b)][:n_labels]
    expected = np.stack([present[:, a] & present[:, b] for a, b in pairs], axis=1)
    np.testing.assert_array_equal(Y.toarray(), expected)
    assert expected.any(axis=0).all()


def test_low_rank_scores_tell_the_labels():
    X, Y = make_multilabel(2000, 400, 45, structure="low-rank", n_nonzero=100, random_state=0)
    rank = 10  # 45 labels are the pairs of 10 topics
    topics = np.stack([X[:, topic::rank].sum(axis=1) > 0 for topic in range(rank)], axis=1).astype(float)
    pairs = [(a, b) for b in range(rank) for a in range(b)]
    of_label = np.stack([np.eye(rank)[a] + np.eye(rank)[b] for a, b in pairs], axis=1)
    np.testing.assert_array_equal(Y.toarray(), topics @ of_label == 2)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((0, 5, 5), {}, "`n_samples` must be >= 1, got 0"),
        ((5, 0, 5), {}, "`n_features` must be >= 1, got 0"),
        ((5, 5, 0), {}, "`n_labels` must be >= 1, got 0"),
        ((5, 5, 5), {"n_nonzero": 0}, "`n_nonzero` must be >= 1, got 0"),
        ((5, 5, 5), {"labels_per_sample": 6}, "`labels_per_sample` must be from 1 to `n_labels`, got 6"),
        (
            (5, 5, 5),
            {"structure": "trees"},
            '`structure` must be "blocks", "low-rank" or "rules", got \'trees\'',
        ),
        ((5, 14, 100), {"structure": "low-rank"}, "`n_features` must be at least 15 for 100 labels"),
        ((5, 15, 100), {"structure": "rules"}, "`n_features` must be at least 16 for 100 labels"),
    ],
)
def test_parameters(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        make_multilabel(*arguments, **options)
