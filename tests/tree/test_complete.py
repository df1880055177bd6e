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
    X = random.normal(size=(650, N_FEATURES)).astype(np.float32)
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
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"n_trees": 2, "normalize": "rows"},
        {"normalize": False, "loss": "logistic"},
        {"normalize": False, "combine": "leaf"},
    ],
)
def test_scores_are_exactly_those_of_hash_tables(embedded, weights, params):
    X, Y, X_new = embedded
    model = LabelTreeClassifier(**PARAMS, **params, weights=weights).fit(X, Y)
    assert are_complete(model).all()
    other = hashed(model)
    # With zeros, some rows have more than half of the features, and others have fewer.
    some_zero = np.where(np.abs(X_new) < np.linspace(0, 2, len(X_new))[:, None], 0, X_new)
    counts = np.count_nonzero(some_zero, axis=1)
    assert counts.min() < N_FEATURES / 2 < counts.max() == N_FEATURES
    np.testing.assert_array_equal(
        model.decision_function(some_zero), model.decision_function(csr_array(some_zero))
    )
    for x in (X_new, X_new[:1], X_new[:5], csr_array(X_new), csr_array(some_zero), some_zero, some_zero[:9]):
        np.testing.assert_array_equal(model.decision_function(x), other.decision_function(x))
        for k in (1, 7):
            top, expected = model.predict_topk(x, k), other.predict_topk(x, k)
            np.testing.assert_array_equal(top.indices, expected.indices)
            np.testing.assert_array_equal(top.data, expected.data)
    # Rows do not influence each other.
    for x in (X_new, some_zero):
        together = model.decision_function(x)[::2]
        np.testing.assert_array_equal(together, [model.decision_function(row[None])[0] for row in x[::2]])


def test_columns_and_sizes_are_special(embedded):
    """A constant column, few features, a single label, and any number of threads."""
    X, Y, X_new = embedded
    constant = np.where(np.arange(N_FEATURES) == 3, 7.0, X)
    model = LabelTreeClassifier(**PARAMS).fit(constant, Y)
    threads = LabelTreeClassifier(**PARAMS, n_jobs=3).fit(constant, Y)
    np.testing.assert_array_equal(model.chunk_weights_, threads.chunk_weights_)
    x = np.where(np.arange(N_FEATURES) == 3, 7.0, X_new)
    np.testing.assert_array_equal(model.decision_function(x), model.decision_function(csr_array(x)))
    for n_features in (1, 2, 3):
        few = LabelTreeClassifier(**PARAMS).fit(X[:, :n_features], Y)
        x = X_new[:, :n_features]
        np.testing.assert_array_equal(few.decision_function(x), few.decision_function(csr_array(x)))
    one = LabelTreeClassifier(**PARAMS).fit(X, Y[:, :1])
    assert one.decision_function(X_new).shape == (50, 1)
    # Large values give a result.
    huge = np.where(np.arange(N_FEATURES) == 5, 3e38, X_new)
    assert np.isfinite(model.decision_function(huge)).all()


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


def test_one_call_for_each_label_gives_the_same_nodes(embedded):
    X, Y, _ = embedded
    once, often = (LabelTreeClassifier(**PARAMS, prune=0.4).fit(X, Y) for _ in range(2))
    assert 0 < are_complete(once).sum() < len(are_complete(once))
    once.add_labels(X, Y[:, :8])
    for label in range(8):
        often.add_labels(X, Y[:, [label]])
    for name in LabelTreeClassifier.schema.attributes:
        if name.startswith(("chunk_", "leaf_", "node_")) and hasattr(once, name):
            np.testing.assert_array_equal(getattr(once, name), getattr(often, name))


@pytest.mark.parametrize("place", [0, -2])
@pytest.mark.parametrize("name", ["chunk_features_", "chunk_outputs_", "chunk_row_ends_"])
def test_another_order_in_a_file_is_an_error(embedded, tmp_path, name, place):
    X, Y, _ = embedded
    LabelTreeClassifier(**PARAMS).fit(X, Y).save(tmp_path / "saved")
    state, tensors = taken_apart(tmp_path / "saved")
    values = tensors[name].copy()
    if name == "chunk_row_ends_":
        values[place] += 1
    else:
        values[[place, place + 1]] = values[[place + 1, place]]
    tensors[name] = values
    (tmp_path / "forged").write_bytes(put_together(state, tensors))
    with pytest.raises(ValueError, match=f"`{name}` must be .* for nodes that have all weights"):
        ml.load(tmp_path / "forged").predict(X[:1])


def test_rare_labels_of_measurements_are_fitted_like_those_of_one_vs_rest():
    """With features that depend on each other, a rare label needs many negative rows."""
    random = np.random.default_rng(0)
    centers = random.normal(size=(300, 10))
    of_row = np.arange(4200) % 300
    X = (centers[of_row] + 0.3 * random.normal(size=(4200, 10))) @ random.normal(size=(10, 100))
    Y = np.eye(300, dtype=np.int64)[of_row]
    train, new = slice(0, 2940), slice(2940, None)
    params = {"C": 15.0, "random_state": 0}
    hits = []
    for model in (LabelTreeClassifier(**params), ml.DiSMECClassifier(**params)):
        top = model.fit(X[train], Y[train]).predict_topk(X[new], 1)
        hits.append(np.mean(top.indices == of_row[new]))
    # With the settings for text, the first number is 0.66.
    assert hits[0] > hits[1] - 0.05 > 0.8
