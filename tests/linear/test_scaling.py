"""`normalize`: rows of unit length for texts, columns of unit variance for measurements."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone

from manylabel import DiSMECClassifier, LEMLClassifier

# Columns scaled by the caller and columns scaled by the fit are equal up to rounding only.
MODELS = [DiSMECClassifier(threshold="zero", prune=0, random_state=0)]


@pytest.fixture
def measurements():
    """Columns of very different scales and means, one constant and one sparse, and four labels."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(300, 6))
    Y = (Z @ rng.normal(size=(6, 4)) + 0.3 * rng.normal(size=(300, 4)) > 0.5).astype(int)
    Z[:, 5] *= rng.random(300) < 0.3
    X = Z * [1.0, 1e4, 1e-3, 1.0, 5.0, 1.0] + [0.0, 3e4, 1.0, -7.0, 0.0, 0.0]
    return np.hstack([X, np.full((300, 1), 4.0)]), Y


def standardized(X):
    """Columns by definition: mostly nonzero columns are centred, and constant ones become 0."""
    mean = np.where((X != 0).mean(axis=0) > 0.5, X.mean(axis=0), 0)
    spread = X.std(axis=0)
    varies = spread > 0
    return (X - mean) * varies / np.where(varies, spread, 1) / np.sqrt(varies.sum())


@pytest.mark.parametrize(
    "model",
    [
        *map(clone, MODELS),
        LEMLClassifier(4, alpha=0.01, threshold="zero", random_state=0),
    ],
    ids=str,
)
def test_learns_from_columns_of_unit_variance(model, measurements):
    X, Y = measurements
    expected = model.__class__(**model.get_params() | {"normalize": False}).fit(standardized(X), Y)
    found = model.fit(X, Y)
    assert not found.normalize_
    np.testing.assert_allclose(
        found.decision_function(X), expected.decision_function(standardized(X)), atol=1e-3
    )
    assert (found.predict(X) == Y).mean() > 0.9


@pytest.mark.parametrize("model", [*map(clone, MODELS)], ids=str)
def test_units_and_forms_do_not_matter(model, measurements):
    X, Y = measurements
    scores = model.fit(X, Y).decision_function(X)
    units = 2.0 ** np.arange(-3, 4)
    np.testing.assert_allclose(model.fit(X * units, Y).decision_function(X * units), scores, rtol=1e-5)
    np.testing.assert_array_equal(clone(model).fit(X, Y).decision_function(csr_array(X)), scores)
    sparse = model.fit(csr_array(X), Y)
    of_sparse = sparse.decision_function(csr_array(X))
    np.testing.assert_array_equal(sparse.decision_function(X), of_sparse)
    # Dense and sparse rows have different solvers, which stop within a tolerance.
    np.testing.assert_allclose(of_sparse, scores, rtol=0.02, atol=0.05)


@pytest.mark.parametrize("model", [*map(clone, MODELS)], ids=str)
def test_a_row_of_weight_two_is_two_rows(model, measurements):
    X, Y = measurements
    weights = np.random.default_rng(1).integers(0, 3, len(X))
    weighted = model.fit(X, Y, weights).decision_function(X)
    repeated = model.fit(X.repeat(weights, axis=0), Y.repeat(weights, axis=0)).decision_function(X)
    np.testing.assert_allclose(weighted, repeated, atol=0.02)


@pytest.mark.parametrize("model", [*map(clone, MODELS)], ids=str)
def test_texts_have_rows_of_unit_length(model):
    rng = np.random.default_rng(0)
    X = csr_array(np.where(rng.random((200, 80)) < 0.08, rng.random((200, 80)), 0))
    Y = (X[:, :4].toarray() > 0).astype(int)
    found = clone(model).fit(X, Y)
    assert found.normalize_
    np.testing.assert_allclose(found.decision_function(3 * X), found.decision_function(X), rtol=1e-6)
    by_name = clone(model).set_params(normalize="rows").fit(X, Y)
    np.testing.assert_array_equal(by_name.decision_function(X), found.decision_function(X))
    columns = clone(model).set_params(normalize="columns").fit(X, Y)
    assert not columns.normalize_
    # Columns of mostly zeros are not centred.
    scaled = csr_array(standardized(X.toarray()))
    expected = model.set_params(normalize=False).fit(scaled, Y)
    np.testing.assert_allclose(columns.decision_function(X), expected.decision_function(scaled), atol=1e-3)


def test_no_intercept_stays_none(measurements):
    X, Y = measurements
    model = DiSMECClassifier(threshold="zero", fit_intercept=False, random_state=0).fit(X, Y)
    np.testing.assert_array_equal(model.intercept_, 0)


@pytest.mark.parametrize("model", [*map(clone, MODELS)], ids=str)
def test_values_beyond_single_precision(model):
    X, Y = np.array([[1e39, 1.0], [-1e39, 2.0], [0.5, 3.0]]), np.eye(3, dtype=int)
    with pytest.raises(ValueError, match="values of X must be finite in float32"):
        model.fit(X, Y)
    with pytest.raises(ValueError, match="standard deviations of at most 1e30"):
        model.fit(X / 1e4, Y)
    assert model.set_params(normalize="rows").fit(X, Y).normalize_
