"""Estimators that keep dense features dense: X is read as it is, in any memory order, without a copy."""

import numpy as np
import pytest
from scipy.sparse import csr_array, issparse
from sklearn.base import BaseEstimator, clone

import manylabel as ml
from dense_rows import clusters, peak_of

MODELS = {
    "DiSMEC": ml.DiSMECClassifier(random_state=0),
    "LEML": ml.LEMLClassifier(20, max_iter=3, random_state=0),
    "LEML, logistic": ml.LEMLClassifier(4, alpha=0.1, loss="logistic", max_iter=1, random_state=0),
}

every_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)


@pytest.fixture(scope="module")
def data():
    X, Y = clusters(1500, 24, 90)
    return X[:1200], Y[:1200], X[1200:], Y[1200:]


def bits(value):
    """The fitted attributes of an estimator, or the bytes of an array."""
    if isinstance(value, BaseEstimator):
        return {name: bits(part) for name, part in vars(value).items() if name.endswith("_")}
    if issparse(value):
        return [bits(part) for part in (value.data, value.indices, value.indptr)]
    return value.tobytes() if isinstance(value, np.ndarray) else value


@every_model
def test_same_bits_for_every_memory_order_and_number_of_threads(data, model):
    X, Y, *_ = data
    X = X.astype(np.float16)
    expected = bits(clone(model).fit(X, Y))
    wide = X.astype(np.float32)
    padded = np.zeros((len(X), 50), dtype=np.float64)
    padded[:, ::-2][:, : X.shape[1]] = X
    forms = [wide, X.astype(np.float64), np.asfortranarray(wide), np.asfortranarray(X)]
    forms += [padded[:, ::-2][:, : X.shape[1]], np.repeat(wide, 2, axis=0)[::2]]
    for form in forms:
        assert bits(clone(model).fit(form, Y)) == expected
    assert bits(clone(model).set_params(n_jobs=3).fit(wide, Y)) == expected


@every_model
def test_mapped_rows(data, model, tmp_path):
    X, Y, *_ = data
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    assert bits(clone(model).fit(mapped, Y)) == bits(clone(model).fit(X, Y))


@every_model
def test_dense_rows_are_never_made_sparse(data, model, monkeypatch):
    X, Y, X_test, _ = data

    def refused(*arguments, **_):
        if isinstance(arguments[0], np.ndarray) and arguments[0].shape[1:] == X.shape[1:]:
            raise AssertionError("X was made sparse")
        return csr_array(*arguments)

    monkeypatch.setattr("manylabel.estimator.validation.csr_array", refused)
    clone(model).fit(X, csr_array(Y)).predict_topk(X_test)


@pytest.mark.parametrize("form", [np.ascontiguousarray, np.asfortranarray])
@pytest.mark.parametrize(
    "model",
    [
        ml.DiSMECClassifier(1.0, threshold="zero", max_iter=2, tol=10, random_state=0),
        ml.LEMLClassifier(8, threshold="zero", max_iter=2, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_memory_beyond_x_and_the_model(model, form):
    rng = np.random.default_rng(0)
    X = rng.random((36_000, 512), dtype=np.float32)
    Y = csr_array((np.ones(len(X)), rng.integers(16, size=len(X)), np.arange(len(X) + 1)), shape=(len(X), 16))
    model, given = clone(model), form(X)
    # A dense copy takes 1.0 X, and sparse rows take at least 2 X.
    assert peak_of(lambda: model.fit(given, Y)) < 0.5 * X.nbytes
    assert peak_of(lambda: model.predict_topk(X, 1)) < 0.1 * X.nbytes
