"""Tests of the parameter `weights` of `LabelTreeClassifier`: errors of scores, files, and bad values."""

import copy

import numpy as np
import pytest
from scipy.sparse import csr_array

import manylabel as ml
from forgery import put_together, taken_apart
from manylabel import LabelTreeClassifier
from manylabel.datasets import make_multilabel
from manylabel.metrics import precision_at_k

KINDS = ["float32", "float16", "int8"]
N_LABELS, N_OLD = 150, 135
DTYPES = {"float32": np.float32, "float16": np.float16, "int8": np.int8}


@pytest.fixture(scope="module")
def planted():
    X, Y = make_multilabel(1200, 200, N_LABELS, random_state=0)
    return X[:900], Y[:900], X[900:], Y[900:]


def fit(X, Y, weights, **params):
    params = {"C": 1.0, "branching": 4, "max_leaf": 20, "beam": 3, "random_state": 0} | params
    return LabelTreeClassifier(weights=weights, **params).fit(X, Y)


@pytest.fixture(scope="module")
def models(planted):
    X, Y, *_ = planted
    return {weights: fit(X, Y, weights) for weights in KINDS}


def blocks(model):
    """For each node, its dense weights, of shape (features, outputs), the scales and the intercepts."""
    names = ("bucket_ends", "feature_ends", "weight_ends", "features", "row_ends", "outputs", "weights")
    _, feature_ends, weight_ends, features, row_ends, outputs, weights = (
        getattr(model, f"chunk_{name}_") for name in names
    )
    children, ends = model.node_children_, model.node_label_ends_
    for node in range(len(children) - 1):
        inner = children[node] < children[node + 1]
        of_node = slice(*(children if inner else ends)[node : node + 2])
        intercept = (model.node_intercept_ if inner else model.leaf_intercept_)[of_node]
        scale = np.ones(len(intercept))
        if model.chunk_weights_.dtype == np.int8:
            scale = (model.node_scale_ if inner else model.leaf_scale_)[of_node]
        at = slice(*weight_ends[node : node + 2])
        cols = slice(*feature_ends[node : node + 2])
        counts = np.diff(row_ends[cols].astype(np.int64), prepend=0)
        dense = np.zeros((model.n_features_in_, len(intercept)))
        rows = np.repeat(features[cols], counts)
        dense[rows, outputs[at]] = weights[at].astype(np.float64) * scale[outputs[at]]
        yield dense, scale, intercept


def test_float32_is_the_default(planted, models):
    X, Y, X_new, _ = planted
    default = LabelTreeClassifier(1.0, branching=4, max_leaf=20, beam=3, random_state=0).fit(X, Y)
    assert not hasattr(default, "node_scale_")
    for name in LabelTreeClassifier.schema.attributes:
        if hasattr(default, name):
            np.testing.assert_array_equal(getattr(default, name), getattr(models["float32"], name))
    np.testing.assert_array_equal(
        default.decision_function(X_new), models["float32"].decision_function(X_new)
    )


@pytest.mark.parametrize("prune", ["auto", 0.0])
def test_numpy_rounds_weights_the_same(planted, prune):
    X, Y, *_ = planted
    wide, half, codes = (fit(X, Y, weights, prune=prune) for weights in KINDS)
    for name in ("C_", "threshold_", "path_weight_"):
        assert getattr(wide, name) == getattr(half, name) == getattr(codes, name)
    n_dropped = 0
    sizes = np.diff(wide.chunk_weight_ends_)
    are_complete = []  # such nodes store zeros, too
    for size, exact, rounded, coded in zip(sizes, blocks(wide), blocks(half), blocks(codes), strict=True):
        are_complete.append(size == exact[0].size)
        np.testing.assert_array_equal(exact[0].astype(np.float16), rounded[0])
        largest = np.abs(exact[0]).max(axis=0, initial=0.0).astype(np.float32)
        np.testing.assert_array_equal(coded[1], largest / np.float32(127))
        assert (np.abs(exact[0] - coded[0]) <= 0.50001 * coded[1]).all()
        for other in (rounded, coded):
            np.testing.assert_array_equal(exact[2], other[2])
        if not are_complete[-1]:
            n_dropped += np.count_nonzero(exact[0]) - np.count_nonzero(coded[0])
    assert len(wide.chunk_weights_) - len(codes.chunk_weights_) == n_dropped
    assert (n_dropped > 0) == (prune == 0.0)
    for model, dtype in zip((wide, half, codes), DTYPES.values(), strict=True):
        assert model.chunk_weights_.dtype == dtype
        assert len(model.chunk_outputs_) == len(model.chunk_weights_) == model.chunk_weight_ends_[-1]
        stores_zeros = np.repeat(are_complete, np.diff(model.chunk_weight_ends_))
        assert model.chunk_weights_[~stores_zeros].all()
    assert not all(are_complete)


@pytest.mark.parametrize("weights", ["float16", "int8"])
@pytest.mark.parametrize("seed", range(3))
def test_margins_are_within_the_bound_of_rounding(weights, seed):
    """The margin of a leaf is off by at most the sum of |x| times the largest error of a weight."""
    X, Y = make_multilabel(500, 80, 60, random_state=seed)
    # A single leaf, so that scores are margins. Features of very different sizes.
    X = csr_array(X.multiply(np.logspace(-1, 0, 80)[None, :]))
    params = {"max_leaf": 100, "combine": "leaf", "threshold": "zero", "normalize": False, "prune": 0.0}
    wide, narrow = (fit(X, Y, kind, **params) for kind in ("float32", weights))
    ((exact, *_),) = blocks(wide)
    if weights == "float16":
        bound = np.maximum(np.abs(exact) * 2.0**-11, 2.0**-25)
    else:
        bound = np.broadcast_to(np.abs(exact).max(axis=0) / 127 / 2, exact.shape)
    sizes = abs(X)
    # Sums of float32 are rounded after each of up to 80 additions.
    largest = sizes @ np.abs(exact)
    allowed = sizes @ bound * 1.0001 + 81 * 2.0**-23 * (largest + 1)
    error = wide.decision_function(X).astype(np.float64) - narrow.decision_function(X)
    error = np.abs(error[:, wide.leaf_labels_])
    assert (error <= allowed).all()
    assert error.max() > 0


@pytest.mark.parametrize("n_trees", [1, 2])
def test_rankings_are_about_as_good(n_trees):
    X, Y = make_multilabel(3000, 400, 300, random_state=0)
    X, Y, X_new, Y_new = X[:2400], Y[:2400], X[2400:], Y[2400:]
    wide, *narrow = (
        precision_at_k(Y_new, fit(X, Y, kind, n_trees=n_trees).predict_topk(X_new, 5), k=(1, 3, 5))
        for kind in KINDS
    )
    for kind, precision in zip(KINDS[1:], narrow, strict=True):
        np.testing.assert_allclose(precision, wide, atol=0.01, err_msg=kind)


@pytest.mark.parametrize("weights", KINDS)
def test_a_wide_beam_scores_all_labels(planted, models, weights):
    *_, X_new, _ = planted
    scores = models[weights].decision_function(X_new)
    top = models[weights].predict_topk(X_new, k=5, beam=1000)
    rows = np.repeat(np.arange(X_new.shape[0]), np.diff(top.indptr))
    np.testing.assert_array_equal(top.data, scores[rows, top.indices])
    assert (np.diff(top.indptr) == 5).all()
    alone = models[weights].predict_topk(X_new[[7]], k=5, beam=1000)
    np.testing.assert_array_equal(alone.toarray(), top[[7]].toarray())


@pytest.mark.parametrize("weights", ["float16", "int8"])
def test_same_bits_for_any_number_of_threads(planted, models, weights):
    X, Y, X_new, _ = planted
    top = models[weights].predict_topk(X_new, 5)
    for n_jobs in (2, 7):
        other = fit(X, Y, weights, n_jobs=n_jobs)
        for name in LabelTreeClassifier.schema.attributes:
            if hasattr(other, name):
                np.testing.assert_array_equal(getattr(other, name), getattr(models[weights], name), name)
        found = other.predict_topk(X_new, 5)
        np.testing.assert_array_equal(found.indices, top.indices)
        np.testing.assert_array_equal(found.data, top.data)


def test_files_are_smaller_and_predict_the_same(planted, models, tmp_path):
    *_, X_new, _ = planted
    sizes = {}
    for weights, model in models.items():
        path = tmp_path / weights
        model.save(path)
        sizes[weights] = path.stat().st_size
        loaded = ml.load(path)
        assert loaded.weights == weights
        assert loaded.chunk_weights_.dtype == DTYPES[weights]
        assert not loaded.chunk_weights_.flags.writeable
        np.testing.assert_array_equal(loaded.decision_function(X_new), model.decision_function(X_new))
        np.testing.assert_array_equal(
            copy.deepcopy(loaded).predict_topk(X_new).toarray(), model.predict_topk(X_new).toarray()
        )
    n_weights = len(models["float32"].chunk_weights_)
    assert sizes["float32"] - sizes["float16"] == pytest.approx(2 * n_weights, abs=1000)
    n_scales = len(models["int8"].node_scale_) + len(models["int8"].leaf_scale_)
    assert sizes["float32"] - sizes["int8"] == pytest.approx(3 * n_weights - 4 * n_scales, abs=1000)


def test_another_fit_leaves_no_scales(planted):
    X, Y, *_ = planted
    model = LabelTreeClassifier(1.0, max_leaf=20, weights="int8", random_state=0).fit(X[:300], Y[:300])
    assert model.node_scale_.shape == (len(model.node_children_) - 1,)
    assert model.leaf_scale_.shape == model.leaf_labels_.shape
    model.set_params(weights="float16").fit(X[:300], Y[:300])
    assert not hasattr(model, "node_scale_")
    assert not hasattr(model, "leaf_scale_")


def test_the_parameter_does_not_change_a_fitted_model(planted, models):
    *_, X_new, _ = planted
    model = copy.deepcopy(models["int8"])
    model.weights = "float32"
    np.testing.assert_array_equal(model.decision_function(X_new), models["int8"].decision_function(X_new))


@pytest.mark.parametrize("size", [1e-7, 1.0, 1e3, 1e7])
@pytest.mark.parametrize("weights", ["float16", "int8"])
def test_weights_of_any_size(size, weights):
    """Weights grow as features shrink. Only large weights do not fit in float16."""
    X, Y = make_multilabel(200, 30, 10, random_state=0)
    X = X * size
    params = {"C": 1.0 / size**2, "tol": 1.0, "normalize": False, "prune": 0.0}
    if weights == "float16" and size < 1e-5:
        with pytest.raises(ValueError, match=r"`weights` must be .* float16 has no numbers above 65504, got"):
            fit(X, Y, weights, **params)
        return
    wide, narrow = (fit(X, Y, kind, **params) for kind in ("float32", weights))
    scores, found = wide.decision_function(X), narrow.decision_function(X)
    assert np.isfinite(found[:, narrow.leaf_labels_]).all()
    if weights == "int8":
        np.testing.assert_allclose(found, scores, atol=0.1 * np.abs(scores).max())


@pytest.mark.parametrize("weights", KINDS)
def test_outputs_without_weights(weights):
    X, Y = np.eye(12), np.tile(np.eye(3), (4, 1))
    # Every weight is pruned, and only intercepts remain.
    model = fit(X, Y, weights, branching=2, max_leaf=1, prune=1e6)
    assert len(model.chunk_weights_) == 0
    if weights == "int8":
        assert not model.node_scale_.any()
        assert not model.leaf_scale_.any()
    scores = model.decision_function(X)
    assert np.isfinite(scores).all()
    np.testing.assert_array_equal(scores, np.broadcast_to(scores[0], scores.shape))


@pytest.mark.parametrize("weights", ["float16", "int8"])
@pytest.mark.parametrize("n_trees", [1, 2])
def test_added_labels_are_stored_like_old_ones(planted, tmp_path, weights, n_trees):
    X, Y, X_new, _ = planted
    old = fit(X, Y[:, :N_OLD], weights, n_trees=n_trees)
    grown = copy.deepcopy(old)
    grown.weights = "float32"  # the fitted weights decide
    grown.add_labels(X, Y[:, N_OLD:])
    assert grown.chunk_weights_.dtype == DTYPES[weights]
    scores = grown.decision_function(X_new)
    np.testing.assert_array_equal(scores[:, :N_OLD], old.decision_function(X_new))
    assert np.isfinite(scores).all()
    # The new labels of a leaf come after its old labels.
    n_new = 0
    for before, after in zip(blocks(old), blocks(grown), strict=True):
        n_old = before[0].shape[1]
        for one, two in zip(before, after, strict=True):
            np.testing.assert_array_equal(one, two[..., :n_old])
        if weights == "int8":
            largest = np.abs(after[0][:, n_old:]).max(axis=0, initial=0.0)
            np.testing.assert_allclose(largest, 127 * after[1][n_old:], rtol=1e-6)
        n_new += after[0].shape[1] - n_old
    assert n_new == (N_LABELS - N_OLD) * n_trees
    grown.save(tmp_path / "grown")
    np.testing.assert_array_equal(ml.load(tmp_path / "grown").decision_function(X_new), scores)


@pytest.mark.parametrize("weights", ["float16", "int8"])
def test_no_added_labels_change_nothing(planted, models, weights):
    X, _, X_new, _ = planted
    grown = copy.deepcopy(models[weights])
    grown.add_labels(X, csr_array((X.shape[0], 2)))
    for name in LabelTreeClassifier.schema.attributes:
        if hasattr(grown, name) and name not in ("classes_", "n_iter_", "label_changes_"):
            np.testing.assert_array_equal(getattr(grown, name), getattr(models[weights], name), name)
    np.testing.assert_array_equal(
        grown.decision_function(X_new)[:, :N_LABELS], models[weights].decision_function(X_new)
    )


def replaced(name, value):
    def change(state, tensors):
        tensors[name] = value(tensors[name])

    return change


def removed(*names):
    def change(state, tensors):
        for name in names:
            del tensors[name], state["fitted"][name]

    return change


def added(state, tensors):
    tensors["chunk_weights_"] = tensors["chunk_weights_"].astype(np.float32)


def first(value):
    def change(array):
        array[0] = value
        return array

    return change


@pytest.mark.parametrize(
    "change",
    [
        *(
            replaced(name, first(bad))
            for name in ("node_scale_", "leaf_scale_")
            for bad in (np.nan, np.inf, -1)
        ),
        *(replaced(name, lambda scale: scale[:-1]) for name in ("node_scale_", "leaf_scale_")),
        *(replaced(name, lambda scale: scale.astype(np.float64)) for name in ("node_scale_", "leaf_scale_")),
        removed("node_scale_"),
        removed("leaf_scale_"),
        removed("node_scale_", "leaf_scale_"),
        replaced("chunk_weights_", lambda codes: codes.astype(np.float32)),
        replaced("chunk_weights_", lambda codes: codes.astype(np.float16)),
        replaced("chunk_weights_", lambda codes: codes.astype(np.uint8)),
        replaced("chunk_weights_", lambda codes: codes.astype(np.uint16)),
        replaced("chunk_weights_", lambda codes: codes[:-1]),
        replaced("chunk_outputs_", first(2**16 - 1)),
    ],
)
def test_forged_files_are_rejected(planted, models, tmp_path, change):
    *_, X_new, _ = planted
    models["int8"].save(tmp_path / "saved")
    state, tensors = taken_apart(tmp_path / "saved")
    change(state, tensors)
    (tmp_path / "forged").write_bytes(put_together(state, tensors))
    with pytest.raises(ValueError, match=r"must |expected "):
        ml.load(tmp_path / "forged").predict_topk(X_new[:5])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_forged_halves_are_rejected(models, tmp_path, bad):
    models["float16"].save(tmp_path / "saved")
    state, tensors = taken_apart(tmp_path / "saved")
    tensors["chunk_weights_"][3] = bad
    (tmp_path / "forged").write_bytes(put_together(state, tensors))
    with pytest.raises(ValueError, match="values of `chunk_weights_` must be finite"):
        ml.load(tmp_path / "forged")


@pytest.mark.parametrize(
    "change",
    [
        lambda weights: weights.astype(">f2"),
        lambda weights: weights.view(np.uint16),
        lambda weights: np.repeat(weights, 2)[::2],
        lambda weights: weights.tolist(),
    ],
)
def test_replaced_halves_are_rejected(planted, models, change):
    *_, X_new, _ = planted
    model = copy.deepcopy(models["float16"])
    model.chunk_weights_ = change(model.chunk_weights_)
    with pytest.raises((TypeError, ValueError)):
        model.predict_topk(X_new)


@pytest.mark.parametrize("weights", ["float64", "half", 16, None, True])
def test_bad_kinds(planted, weights):
    X, Y, *_ = planted
    with pytest.raises(ValueError, match='`weights` must be "float32", "float16" or "int8", got'):
        LabelTreeClassifier(weights=weights).fit(X, Y)
