"""Tests of nodes of `LabelTreeClassifier` that store all weights, as usual for dense features."""

import copy

import numpy as np
import pytest
from scipy.sparse import csr_array

import manylabel as ml
from forgery import put_together, taken_apart
from manylabel import LabelTreeClassifier

N_FEATURES = 37
PARAMS = {"C": 1.0, "branching": 5, "max_leaf": 21, "beam": 3, "random_state": 0}


@pytest.fixture(scope="module")
def embedded():
    """Rows without zeros, and 120 labels. Each label is a direction."""
    random = np.random.default_rng(0)
    X = random.normal(size=(700, N_FEATURES)).astype(np.float32)
    scores = X @ random.normal(size=(N_FEATURES, 120))
    Y = (scores >= np.sort(scores, axis=1)[:, [-4]]).astype(np.int64)
    return X[:600], Y[:600], X[600:]


def n_outputs(model):
    return np.diff(model.node_children_) + np.diff(model.node_label_ends_)


def are_complete(model):
    return np.diff(model.chunk_weight_ends_) == model.n_features_in_ * n_outputs(model)


def hashed(model):
    """The same model with the features of each node in a hash table of many buckets."""
    other = copy.deepcopy(model)
    d = model.n_features_in_
    bits = 4
    features = np.arange(d, dtype=np.uint32)
    buckets = (features * np.uint32(0x9E3779B1)) >> np.uint32(32 - bits)
    order = np.argsort(buckets, kind="stable")
    ends = np.concatenate([[0], np.cumsum(np.bincount(buckets, minlength=1 << bits))]).astype(np.uint32)
    n_nodes = len(model.node_intercept_)
    other.chunk_buckets_ = np.tile(ends, n_nodes)
    other.chunk_bucket_ends_ = np.arange(n_nodes + 1, dtype=np.int64) * len(ends)
    other.chunk_features_ = np.tile(features[order], n_nodes)
    weights = [
        model.chunk_weights_[begin:end].reshape(d, -1)[order].ravel()
        for begin, end in zip(model.chunk_weight_ends_[:-1], model.chunk_weight_ends_[1:], strict=True)
    ]
    other.chunk_weights_ = np.concatenate(weights)
    return other


@pytest.mark.parametrize("weights", ["float32", "float16", "int8"])
@pytest.mark.parametrize("n_trees", [1, 2])
def test_scores_are_exactly_those_of_hash_tables(embedded, weights, n_trees):
    X, Y, X_new = embedded
    model = LabelTreeClassifier(**PARAMS, n_trees=n_trees, weights=weights).fit(X, Y)
    assert are_complete(model).all()
    other = hashed(model)
    some_zero = np.where(np.abs(X_new) < 0.3, 0, X_new)
    for x in (X_new, X_new[:1], X_new[:5], csr_array(X_new), csr_array(some_zero), some_zero):
        np.testing.assert_array_equal(model.decision_function(x), other.decision_function(x))
        for k in (1, 7):
            top, expected = model.predict_topk(x, k), other.predict_topk(x, k)
            np.testing.assert_array_equal(top.indices, expected.indices)
            np.testing.assert_array_equal(top.data, expected.data)
    # Rows do not influence each other.
    together = model.decision_function(X_new)
    np.testing.assert_array_equal(together, [model.decision_function(x[None])[0] for x in X_new])


def test_only_measurements_keep_all_weights(embedded):
    X, Y, X_new = embedded
    default = LabelTreeClassifier(**PARAMS).fit(X, Y)
    kept = LabelTreeClassifier(**PARAMS, prune=0).fit(csr_array(X), Y)
    np.testing.assert_array_equal(default.chunk_weights_, kept.chunk_weights_)
    np.testing.assert_array_equal(default.predict(X_new), kept.predict(csr_array(X_new)))
    pruned = LabelTreeClassifier(**PARAMS, prune=0.4).fit(X, Y)
    complete = are_complete(pruned)
    share = np.array(
        [
            np.mean(np.abs(default.chunk_weights_[begin:end]) >= 0.4)
            for begin, end in zip(
                default.chunk_weight_ends_[:-1], default.chunk_weight_ends_[1:], strict=True
            )
        ]
    )
    np.testing.assert_array_equal(complete, share > 0.5)
    assert 0 < complete.sum() < len(complete)
    # With few nonzero values, X is treated as word counts.
    words = csr_array(np.where(np.abs(X) > 1.7, X, 0))
    assert words.nnz * 8 < X.size
    sparse = LabelTreeClassifier(**PARAMS).fit(words, Y)
    kept_weights = sparse.chunk_weights_[sparse.chunk_weights_ != 0]
    assert np.abs(kept_weights).min() >= 0.1


def test_labels_can_be_added_and_removed(embedded):
    X, Y, X_new = embedded
    model = LabelTreeClassifier(**PARAMS).fit(X, Y)
    before = model.decision_function(X_new)
    model.add_labels(X, Y[:, :3])
    assert are_complete(model).all()
    np.testing.assert_array_equal(model.decision_function(X_new)[:, :120], before)
    model.drop_labels([0, 121])
    assert are_complete(model).all()
    np.testing.assert_array_equal(model.decision_function(X_new)[:, :119], before[:, 1:])


@pytest.mark.parametrize("name", ["chunk_features_", "chunk_outputs_", "chunk_row_ends_"])
def test_another_order_in_a_file_is_an_error(embedded, tmp_path, name):
    X, Y, _ = embedded
    LabelTreeClassifier(**PARAMS).fit(X, Y).save(tmp_path / "saved")
    state, tensors = taken_apart(tmp_path / "saved")
    values = tensors[name].copy()
    values[:2] = values[0] + 1 if name == "chunk_row_ends_" else values[1::-1]
    tensors[name] = values
    (tmp_path / "forged").write_bytes(put_together(state, tensors))
    with pytest.raises(ValueError, match="for nodes that have all weights"):
        ml.load(tmp_path / "forged").predict(X[:1])
