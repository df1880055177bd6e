"""Fits of block classifiers in pieces: the bits of one fit."""

import numpy as np
import pytest

import manylabel as ml
from dense_rows import clusters
from fitted_in_pieces import saved
from manylabel import shards
from manylabel.datasets import make_multilabel

PLAIN = {"n_blocks": 4, "lam": 1.0, "random_state": 0}
VARIANTS = {
    "dismec": {},
    "fixed": {"estimator": ml.DiSMECClassifier(C=1.0, random_state=3), "n_routes": 2},
    "trees": {"estimator": ml.LabelTreeClassifier(C=1.0, max_leaf=20), "max_labels": 200},
    "one block": {"n_blocks": "auto", "lam": "auto"},
    "rules": {"estimator": ml.BoostedRulesClassifier(n_rules=5), "n_blocks": 3},
}


@pytest.fixture(scope="module")
def data():
    return make_multilabel(1000, 100, 120, random_state=1)


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_same_bits_as_one_fit(tmp_path, data, name):
    X, Y = data
    params = PLAIN | VARIANTS[name]
    weights = 1 + np.arange(X.shape[0]) % 2
    expected = ml.BlockPartitionClassifier(**params).fit(X, Y, weights)
    model = ml.BlockPartitionClassifier(**params, n_jobs=2)
    n_blocks = len(expected.label_blocks_)
    if n_blocks > 1:
        first = shards.fit(model, X, Y, weights, checkpoint=tmp_path / "fit", piece=(2, 2))
        assert first is None
    got = shards.fit(model, X, Y, weights, checkpoint=tmp_path / "fit")
    assert shards.Folder(tmp_path / "fit").n_pieces == n_blocks
    got.set_params(n_jobs=None)
    assert saved(got, tmp_path / "got") == saved(expected, tmp_path / "expected")
    assert saved(shards.merge(tmp_path / "fit"), tmp_path / "merged") == saved(
        expected, tmp_path / "expected"
    )
    assert np.array_equal(got.predict_topk(X, k=3).data, expected.predict_topk(X, k=3).data)


@pytest.mark.parametrize("form", [np.asfortranarray, lambda X: X.astype(np.float16)])
def test_dense_rows(tmp_path, form):
    X, Y = clusters(1500, 12, 90)
    X = form(X)
    expected = ml.BlockPartitionClassifier(**PLAIN).fit(X, Y)
    assert isinstance(expected.estimators_[0].coef_, np.ndarray)
    got = shards.fit(ml.BlockPartitionClassifier(**PLAIN), X, Y, checkpoint=tmp_path / "fit")
    assert saved(got, tmp_path / "got") == saved(expected, tmp_path / "expected")
    loaded = ml.load(tmp_path / "got")
    assert np.array_equal(loaded.predict_topk(X, k=3).data, expected.predict_topk(X, k=3).data)


def test_what_cannot_be_cut(tmp_path, data):
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    X, Y = data
    foreign = ml.BlockPartitionClassifier(OneVsRestClassifier(LogisticRegression()), **PLAIN)
    with pytest.raises(TypeError, match="only if `estimator` is from this library, got OneVsRestClassifier"):
        shards.fit(foreign, X, Y, checkpoint=tmp_path / "foreign")
    model = ml.BlockPartitionClassifier(**PLAIN)
    with pytest.raises(TypeError, match="`label_weight` and `propensities` must be None"):
        shards.fit(model, X, Y, checkpoint=tmp_path / "costs", label_weight=np.full(120, 2.0))
