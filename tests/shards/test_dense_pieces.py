"""Fits of `DiSMECClassifier` and `LabelTreeClassifier` to a dense X in pieces give the bits of one fit."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

import manylabel as ml
from fitted_in_pieces import assert_same_bits, with_unknown
from manylabel import shards

VARIANTS = {
    "fast": {},
    "auto": {"C": "auto"},
    "exact": {"solver": "exact"},
    "columns": {"normalize": "columns"},
    "rows": {"normalize": "rows", "prune": 0.05},
    "no intercept": {"fit_intercept": False, "threshold": "zero", "normalize": False},
}


def classifier(**params):
    return ml.DiSMECClassifier(**({"C": 1.0, "random_state": 0} | params))


@pytest.fixture(scope="module")
def data():
    """540 labels, which are three units. One label has no row, and a few are frequent."""
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((540, 24), dtype=np.float32)
    rows = np.arange(700)
    labels = np.r_[rows % 540, rng.integers(540, size=700) ** 3 // 540**2]
    Y = sparse.csr_array((np.ones(1400, np.float32), (np.r_[rows, rows], labels)), shape=(700, 540))
    Y.data[:] = 1
    X = (Y @ centers + 0.3 * rng.standard_normal((700, 24))).astype(np.float32)
    Y = Y.tolil()
    Y[:, 5] = 0
    return X, Y.tocsr()


@pytest.mark.parametrize("name", VARIANTS)
def test_same_bits_as_one_fit(tmp_path, data, name):
    X, Y = data
    expected = classifier(**VARIANTS[name]).fit(X, Y)
    got = shards.fit(classifier(**VARIANTS[name]), X, Y, checkpoint=tmp_path / "fit")
    assert isinstance(got.coef_, np.ndarray)
    assert_same_bits(got, expected)
    assert_same_bits(shards.merge(tmp_path / "fit"), expected)
    assert len(list((tmp_path / "fit").glob("piece-*.npz"))) == 3  # a piece is a unit
    got.save(tmp_path / "model")
    expected.save(tmp_path / "expected")
    assert (tmp_path / "model").read_bytes() == (tmp_path / "expected").read_bytes()


@pytest.mark.parametrize("n_pieces", [1, 2, 100])
def test_several_processes(tmp_path, data, n_pieces):
    X, Y = data
    expected = classifier().fit(X, Y)
    second = shards.fit(classifier(n_jobs=2), X, Y, checkpoint=tmp_path, n_pieces=n_pieces, piece=(2, 2))
    assert second is None
    got = shards.fit(classifier(n_jobs=1), X, Y, checkpoint=tmp_path, n_pieces=n_pieces, piece=(1, 2))
    assert_same_bits(got.set_params(n_jobs=None), expected)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_memory_order_and_files(tmp_path, data, dtype):
    X, Y = data[0].astype(dtype), data[1]
    np.save(tmp_path / "X.npy", np.asfortranarray(X))
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    strided = np.zeros((700, 48), dtype)[::-1, ::2]
    strided[:] = X
    expected = classifier(normalize="columns").fit(X, Y)
    for number, form in enumerate((mapped, X, strided), start=1):
        model = classifier(normalize="columns")
        shards.fit(model, form, Y, checkpoint=tmp_path / "fit", n_pieces=3, piece=(number, 3))
    assert_same_bits(shards.merge(tmp_path / "fit"), expected)


@pytest.mark.parametrize("C", [1.0, "auto"])
def test_unknown_entries_and_costs(tmp_path, data, C):
    X, Y = data[0], with_unknown(data[1])
    rng = np.random.default_rng(1)
    given = {"propensities": rng.uniform(0.2, 1, 540), "label_weight": rng.uniform(0.5, 2, 540)}
    weights = rng.uniform(0.1, 2, 700)
    expected = classifier(C=C).fit(X, Y, weights, **given)
    assert_same_bits(shards.fit(classifier(C=C), X, Y, weights, checkpoint=tmp_path, **given), expected)
    assert not np.array_equal(classifier(C=C).fit(X, data[1]).intercept_, expected.intercept_)


def test_continued_after_an_interruption(tmp_path, data):
    X, Y = data

    def stop(n_labels):
        if n_labels >= 300:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shards.fit(classifier(), X, Y, checkpoint=tmp_path, progress=stop)
    finished = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("piece-*.npz")}
    assert 0 < len(finished) < 3
    assert_same_bits(shards.fit(classifier(), X, Y, checkpoint=tmp_path), classifier().fit(X, Y))
    for name, time in finished.items():
        assert (tmp_path / name).stat().st_mtime_ns == time


def test_without_ones(tmp_path, data):
    X, Y = data[0], sparse.csr_array((700, 4), dtype=np.float32)
    expected = classifier().fit(X, Y)
    assert_same_bits(shards.fit(classifier(), X, Y, checkpoint=tmp_path), expected)


def test_other_features_are_refused(tmp_path, data):
    X, Y = data
    shards.fit(classifier(), X, Y, checkpoint=tmp_path, piece=(1, 2))
    changed = X.copy()
    changed[-1, -1] += 1
    for other in (changed, X.astype(np.float64), sparse.csr_array(X), X.T.reshape(X.shape)):
        with pytest.raises(ValueError, match="another X"):
            shards.fit(classifier(), other, Y, checkpoint=tmp_path)
    changed[-1, -1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        shards.fit(classifier(), changed, Y, checkpoint=tmp_path)
    assert_same_bits(shards.fit(classifier(), X, Y, checkpoint=tmp_path), classifier().fit(X, Y))


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("params", [{}, {"C": "auto", "n_trees": 2}, {"normalize": "rows"}])
def test_label_trees(tmp_path, data, params, dtype):
    X, Y = data
    np.save(tmp_path / "X.npy", np.asfortranarray(X, dtype=dtype))
    X = np.load(tmp_path / "X.npy", mmap_mode="r")
    tree = ml.LabelTreeClassifier(**({"C": 1.0, "max_leaf": 60, "branching": 4, "random_state": 0} | params))
    expected = clone(tree).fit(X, Y)
    assert len(expected.node_intercept_) > 4
    assert_same_bits(shards.fit(tree, X, Y, checkpoint=tmp_path / "fit", n_pieces=3), expected)
