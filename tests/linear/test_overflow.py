"""Scores stay finite for features so large that products overflow single precision."""

from itertools import product

import numpy as np
import pytest
from scipy.sparse import csr_array

from cases import case
from manylabel import DiSMECClassifier, LEMLClassifier, PDSparseClassifier

MODELS = [
    DiSMECClassifier(normalize=False, random_state=0),
    LEMLClassifier(4, alpha=0.1, normalize=False, random_state=0),
    LEMLClassifier(4, alpha=0.1, loss="logistic", normalize=False, random_state=0),
    PDSparseClassifier(normalize=False, random_state=0),
]

LARGEST = float(np.finfo(np.float32).max)


def measurements(size=1.0):
    """Features of about this size with both signs, and labels of which the last has no positive row."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 8))
    Y = (X @ rng.normal(size=(8, 5)) > 0.5).astype(int)
    Y[:, 4] = 0
    return X * size, Y


def assert_finite(model, X):
    scores = model.decision_function(X)
    assert np.isfinite(scores[:, :4]).all()
    assert (scores[:, 4] == -np.inf).all()  # -inf because no row has the label, which is no overflow
    top = model.predict_topk(X, 3)
    assert np.isfinite(top.data).all()
    assert (np.diff(top.indptr) == 3).all()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_scores_of_huge_features_are_finite(model):
    X, Y = measurements()
    model.fit(X, Y)
    for size, form in product([1e30, 1e36, LARGEST / 8], [np.asarray, csr_array]):
        with case(size, form.__name__):
            huge, _ = measurements(size)
            assert_finite(model, form(huge))
            # Huge rows do not change the scores of other rows.
            both = model.decision_function(form(np.vstack([huge, X])))
            np.testing.assert_array_equal(both[len(X) :], model.decision_function(form(X)))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("size", [1e3, 1e6, 1e7, 1e9, 1e12, 1e14, 1e19, 1e38])
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_a_fit_on_huge_features_is_finite_or_names_them(model, size):
    X, Y = measurements(size)
    X = X / np.abs(X).max() * size
    refused = ""
    try:
        model.fit(X, Y)
    except ValueError as error:
        refused = str(error)
    if refused:
        assert refused.startswith("`X` must be small enough that "), refused
        assert "normalize" in refused
        assert size > 1e3
    else:
        assert size < 1e15
        assert_finite(model, X)
