"""Tests of `LabelTreeClassifier.add_labels`: what changes, what does not, and bad values."""

import copy

import numpy as np
import pytest
from scipy.sparse import csr_array, hstack
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import manylabel as ml
from manylabel import LabelTreeClassifier
from manylabel.datasets import make_multilabel
from manylabel.metrics import precision_at_k, recall_at_k

# A leaf has about 15 of the first labels. With new labels, some leaves have more than a panel of 16 labels.
N_LABELS, N_OLD = 150, 135
N_TRAIN, N_NEW, N_FEATURES = 800, 300, 200
PARAMS = {"C": 1.0, "branching": 4, "max_leaf": 20, "beam": 3, "random_state": 0}
# Of these attributes, only models with int8 weights have scales.
FITTED = [
    name
    for name in LabelTreeClassifier.schema.attributes
    if name != "feature_names_in_" and not name.startswith("label_")
]
ARRAYS = [name for name in FITTED if name.startswith(("node", "leaf", "chunk"))]


@pytest.fixture(scope="module")
def planted():
    X, Y = make_multilabel(N_TRAIN + N_NEW, N_FEATURES, N_LABELS, random_state=0)
    return X[:N_TRAIN], Y[:N_TRAIN], X[N_TRAIN:], Y[N_TRAIN:]


_models = {}


def old_model(planted, **params):
    """A copy of a model of the first labels, which the caller may change."""
    params = PARAMS | params
    key = tuple(sorted(params.items()))
    if key not in _models:
        X, Y, *_ = planted
        _models[key] = LabelTreeClassifier(**params).fit(X, Y[:, :N_OLD])
    return copy.deepcopy(_models[key])


def assert_same_model(one, two, names=ARRAYS):
    absent = {"margin_power_", "column_shift_", "column_scale_"}
    if one.weights != "int8":
        absent |= {"node_scale_", "leaf_scale_"}
    for name in names:
        first, second = (getattr(model, name, None) for model in (one, two))
        assert (first is None) == (second is None) == (name in absent)
        np.testing.assert_array_equal(first, second, err_msg=name)


def scores_of_pairs(model, X):
    """Rows, labels and finite scores of all labels that each row reaches."""
    top = model.predict_topk(X, k=model.classes_.size)
    return np.repeat(np.arange(top.shape[0]), np.diff(top.indptr)), top.indices, top.data


@pytest.mark.parametrize("n_trees", [1, 2])
@pytest.mark.parametrize("balanced", [True, False])
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"C": "auto", "combine": "leaf"},
        {"weights": "float16"},
        {"weights": "int8"},
        {"loss": "logistic", "C": 3.0, "tol": 0.1},
    ],
    ids=str,
)
def test_old_labels_keep_the_bits_of_their_scores(planted, n_trees, balanced, params):
    X, Y, X_new, _ = planted
    model = old_model(planted, n_trees=n_trees, balanced=balanced, **params)
    before, scores, pairs = (
        copy.deepcopy(model),
        model.decision_function(X_new),
        scores_of_pairs(model, X_new),
    )
    assert model.add_labels(X, Y[:, N_OLD:]) is model
    np.testing.assert_array_equal(model.classes_, np.arange(N_LABELS))
    grown = model.decision_function(X_new)
    assert grown.shape == (N_NEW, N_LABELS)
    np.testing.assert_array_equal(grown[:, :N_OLD], scores)
    after = scores_of_pairs(model, X_new)
    is_old = after[1] < N_OLD
    for one, two in zip(after, pairs, strict=True):
        np.testing.assert_array_equal(one[is_old], two)
    assert not is_old.all()
    same = ["C_", "threshold_", "path_weight_", "normalize_", "by_leaf_", "sparse_output_"]
    assert_same_model(before, model, [*same, "node_children_", "node_intercept_"])


@pytest.mark.parametrize("n_trees", [1, 2])
def test_each_new_label_is_in_one_leaf_of_each_tree(planted, n_trees):
    X, Y, *_ = planted
    model = old_model(planted, n_trees=n_trees)
    before = copy.deepcopy(model)
    model.add_labels(X, Y[:, N_OLD:])
    seen = np.flatnonzero(np.bincount(Y.indices, minlength=N_LABELS))
    counts = np.bincount(model.leaf_labels_, minlength=N_LABELS)
    np.testing.assert_array_equal(np.flatnonzero(counts), seen)
    assert (counts[seen] == n_trees).all()
    # In a leaf, the old labels come first.
    for node in range(len(before.node_label_ends_) - 1):
        old, new = (
            each.leaf_labels_[each.node_label_ends_[node] : each.node_label_ends_[node + 1]]
            for each in (before, model)
        )
        np.testing.assert_array_equal(new[: len(old)], old)
        assert (new[len(old) :] >= N_OLD).all()
        assert (np.diff(new[len(old) :]) > 0).all()


@pytest.mark.parametrize("n_trees", [1, 2])
def test_new_labels_rank_about_as_well_as_in_a_full_fit(n_trees):
    X, Y = make_multilabel(2200, 400, 300, random_state=0)
    X, Y, X_new, Y_new = X[:1600], Y[:1600], X[1600:], Y[1600:]
    frequent = np.argsort(-np.bincount(Y.indices, minlength=300), kind="stable")
    added, kept = frequent[[5, 20, 60]], np.delete(frequent, [5, 20, 60])
    order = np.concatenate([kept, added])
    full = LabelTreeClassifier(n_trees=n_trees, **PARAMS).fit(X, Y[:, order])
    grown = LabelTreeClassifier(n_trees=n_trees, **PARAMS).fit(X, Y[:, kept]).add_labels(X, Y[:, added])
    truth = Y_new[:, order]
    for k in (1, 3, 5):
        of_full, of_grown = (
            precision_at_k(truth, model.predict_topk(X_new, 5), k=(k,))[0] for model in (full, grown)
        )
        # The standard error of the difference is about 0.01 with 600 rows.
        assert of_grown > of_full - 0.02
    # The new labels alone: the fraction of their occurrences that the five best labels of a row have.
    with_new = truth[:, -3:].toarray() > 0
    found_full, found_grown = (
        (model.predict_topk(X_new, 5)[:, -3:].toarray() != 0)[with_new].mean() for model in (full, grown)
    )
    assert with_new.sum() > 20
    assert found_grown > found_full - 0.1
    assert found_grown > 0.4


@pytest.mark.parametrize("weights", ["float32", "float16", "int8"])
@pytest.mark.parametrize("solver", ["fast", "exact"])
def test_in_a_single_leaf_the_result_is_that_of_a_full_fit(planted, solver, weights):
    """All rows reach the only leaf, so the new labels have the same training rows as in a full fit."""
    X, Y, X_new, _ = planted
    Y = Y[:, np.bincount(Y.indices, minlength=N_LABELS) > 0]
    params = {"max_leaf": N_LABELS, "path_weight": 1.0, "threshold": "zero", "random_state": 3}
    params |= {"solver": solver, "weights": weights}
    full = LabelTreeClassifier(0.5, **params).fit(X, Y)
    grown = LabelTreeClassifier(0.5, **params).fit(X, Y[:, :-3]).add_labels(X, Y[:, -3:])
    if weights == "float32":  # a fit keeps features whose narrow weights are all 0
        assert_same_model(full, grown, FITTED)
    np.testing.assert_array_equal(full.decision_function(X_new), grown.decision_function(X_new))


@pytest.fixture(scope="module")
def mixed(planted):
    """New labels. All rows of the first 8 reach one leaf, the rows of the last 4 do not."""
    _, Y, *_ = planted
    order = np.random.default_rng(0).permutation(Y.shape[0])
    frequent = np.argsort(-np.bincount(Y.indices, minlength=N_LABELS), kind="stable")[:4]
    return csr_array(hstack([Y[:, N_OLD : N_OLD + 8], Y[order][:, frequent]]))


@pytest.mark.parametrize("weights", ["float16", "int8"])
def test_new_weights_have_the_type_of_the_old_weights(planted, weights):
    """The parameter may be changed after `fit`."""
    X, Y, *_ = planted
    same = old_model(planted, weights=weights).add_labels(X, Y[:, N_OLD:])
    changed = old_model(planted, weights=weights).set_params(weights="float32").add_labels(X, Y[:, N_OLD:])
    assert changed.chunk_weights_.dtype == weights
    assert_same_model(same, changed.set_params(weights=weights), FITTED)


@pytest.mark.parametrize("n_trees", [1, 2])
def test_same_bits_for_any_number_of_threads(planted, mixed, n_trees):
    X, *_ = planted
    models = [
        old_model(planted, n_trees=n_trees).set_params(n_jobs=n_jobs).add_labels(X, mixed)
        for n_jobs in (1, 2, 5)
    ]
    for other in models[1:]:
        assert_same_model(models[0], other, FITTED)


@pytest.mark.parametrize("n_trees", [1, 2])
@pytest.mark.parametrize(
    ("solver", "weights"), [("fast", "float32"), ("exact", "float32"), ("fast", "float16"), ("fast", "int8")]
)
def test_one_call_for_each_label_gives_the_same_bits(planted, mixed, n_trees, solver, weights):
    X, *_ = planted
    params = {"n_trees": n_trees, "solver": solver, "weights": weights}
    together = old_model(planted, **params).add_labels(X, mixed)
    alone = old_model(planted, **params)
    for label in range(mixed.shape[1]):
        alone.add_labels(X, mixed[:, [label]])
    assert_same_model(together, alone, FITTED)
    if n_trees == 1:
        reached = together.predict_topk(X, N_OLD + 12)[:, N_OLD:].toarray() != 0
        is_complete = (reached | (mixed.toarray() == 0)).all(axis=0)
        assert is_complete[:8].all()
        assert not is_complete[8:].any()


def test_the_weights_of_rows_count(planted):
    X, Y, *_ = planted
    model, twice, weighted, same = (old_model(planted) for _ in range(4))
    model.add_labels(X, Y[:, N_OLD:])
    weights = np.ones(N_TRAIN)
    same.add_labels(X, Y[:, N_OLD:], weights)
    assert_same_model(model, same, FITTED)
    # A row of weight 0 is left out.
    weights[:400] = 0
    weighted.add_labels(X, Y[:, N_OLD:], sample_weight=weights)
    twice.add_labels(X[400:], Y[400:, N_OLD:])
    assert_same_model(twice, weighted, FITTED)
    weights[:400] = 0.25
    weighted = old_model(planted).add_labels(X, Y[:, N_OLD:], sample_weight=weights)
    assert (model.leaf_intercept_ != weighted.leaf_intercept_).any()


@pytest.mark.parametrize("weights", ["float32", "float16", "int8"])
@pytest.mark.parametrize("n_trees", [1, 2])
def test_loaded_models_with_read_only_arrays_grow(planted, tmp_path, n_trees, weights):
    X, Y, X_new, _ = planted
    model = old_model(planted, n_trees=n_trees, weights=weights)
    model.save(tmp_path / "old")
    content = (tmp_path / "old").read_bytes()
    loaded = ml.load(tmp_path / "old")
    assert not loaded.chunk_weights_.flags.writeable
    loaded.predict_topk(X_new)
    loaded.add_labels(X, Y[:, N_OLD:])
    model.add_labels(X, Y[:, N_OLD:])
    assert_same_model(model, loaded, FITTED)
    assert (tmp_path / "old").read_bytes() == content
    loaded.save(tmp_path / "grown")
    again = ml.load(tmp_path / "grown")
    assert_same_model(model, again, FITTED)
    np.testing.assert_array_equal(model.decision_function(X_new), again.decision_function(X_new))


def test_labels_without_rows_are_in_no_leaf(planted):
    X, Y, X_new, _ = planted
    new = Y[:, N_OLD:].tolil()
    new[:, [0, 7]] = 0
    model = old_model(planted).add_labels(X, csr_array(new))
    assert len(model.classes_) == N_LABELS
    assert np.isneginf(model.decision_function(X_new)[:, [N_OLD, N_OLD + 7]]).all()
    assert not {N_OLD, N_OLD + 7} & set(model.leaf_labels_)
    none = old_model(planted).add_labels(X, np.zeros((N_TRAIN, 2)))
    assert len(none.classes_) == N_OLD + 2
    assert_same_model(none, old_model(planted))


def test_a_model_without_seen_labels_grows(planted):
    X = np.eye(6)
    model = LabelTreeClassifier(branching=2, max_leaf=1, random_state=0).fit(X, np.zeros((6, 3)))
    model.add_labels(X, np.eye(6)[:, :2])
    assert np.isneginf(model.decision_function(X)[:, :3]).all()
    assert np.isfinite(model.decision_function(X)[:, 3:]).all()
    assert set(model.leaf_labels_) == {3, 4}


def test_the_forms_of_x_and_y(planted):
    X, Y, *_ = planted
    y = Y[:, [N_OLD + 3]]
    expected = old_model(planted).add_labels(X, y)
    column = y.toarray()
    for given in (column, column.astype(bool), column[:, 0], column[:, 0].tolist(), y.tocsc()):
        assert_same_model(expected, old_model(planted).add_labels(X, given), FITTED)
    dense = old_model(planted).add_labels(X.toarray(), column)
    assert_same_model(expected, dense, FITTED)
    assert dense.sparse_output_


def test_a_model_of_one_label_becomes_a_model_of_several():
    X, Y = make_multilabel(200, 50, 3, random_state=0)
    Y = Y.toarray()
    model = LabelTreeClassifier(random_state=0).fit(X, Y[:, 0])
    before = model.decision_function(X)
    assert before.ndim == 1
    model.add_labels(X, Y[:, 1:])
    assert model.predict(X).shape == (200, 3)
    np.testing.assert_array_equal(model.classes_, [0, 1, 2])
    np.testing.assert_array_equal(model.decision_function(X)[:, 0], before)


@pytest.mark.parametrize("params", [{"negatives": "siblings"}, {"label_vectors": "rembrandt"}])
def test_models_with_other_trees_and_negatives_grow(planted, params):
    X, Y, X_new, Y_new = planted
    model = old_model(planted, **params)
    scores = model.decision_function(X_new)
    recall = recall_at_k(Y_new[:, :N_OLD], model.predict_topk(X_new, 5), k=(5,))[0]
    model.add_labels(X, Y[:, N_OLD:])
    np.testing.assert_array_equal(model.decision_function(X_new)[:, :N_OLD], scores)
    assert recall_at_k(Y_new, model.predict_topk(X_new, 5), k=(5,))[0] > recall - 0.05


@pytest.mark.parametrize("normalize", [True, False])
def test_rows_are_scaled_as_in_fit(planted, normalize):
    X, Y, X_new, _ = planted
    scaled = X.multiply(np.full((N_TRAIN, 1), 8.0)).tocsr()
    one, two = (old_model(planted, normalize=normalize).add_labels(x, Y[:, N_OLD:]) for x in (X, scaled))
    same = np.array_equal(one.decision_function(X_new), two.decision_function(X_new))
    assert same == normalize


def test_new_predictions_use_the_new_labels(planted):
    """The scorer of earlier predictions is replaced."""
    X, Y, X_new, _ = planted
    model = old_model(planted)
    assert model.predict(X_new).shape == (N_NEW, N_OLD)
    model.add_labels(X, Y[:, N_OLD:])
    assert model.predict(X_new).shape == (N_NEW, N_LABELS)
    assert model.predict_topk(X_new, 5).shape == (N_NEW, N_LABELS)


def test_progress_counts_the_labels_with_rows(planted):
    X, Y, *_ = planted
    told = []
    old_model(planted, n_trees=2).add_labels(X, Y[:, N_OLD:], progress=told.append)
    assert told[-1] == len(np.unique(Y[:, N_OLD:].indices))
    assert told == sorted(told)


def interrupted(done):
    raise KeyboardInterrupt


X_BAD = np.full((N_TRAIN, N_FEATURES), np.inf)
SPOILED = {
    "features": (lambda X, Y: (X[:, :-1], Y), ValueError, f"{N_FEATURES - 1} features"),
    "infinite": (lambda X, Y: (X_BAD, Y), ValueError, "X contains infinity"),
    "rows": (
        lambda X, Y: (X, Y[:7]),
        ValueError,
        f"number of rows of Y_new: expected {N_TRAIN} as in X, got 7",
    ),
    "values": (lambda X, Y: (X, 2 * Y), ValueError, r"Y_new must contain only 0, 1 and NaN, got 2"),
    "classes": (lambda X, Y: (X, np.arange(N_TRAIN)), ValueError, "Y_new must be a 2-D indicator matrix"),
    "names": (lambda X, Y: (X, ["a"] * N_TRAIN), ValueError, "Y_new must be a 2-D indicator matrix"),
    "no labels": (lambda X, Y: (X, Y[:, :0]), ValueError, "Y_new must be a 2-D indicator matrix.* 0 feature"),
    "none": (lambda X, Y: (X, None), ValueError, "Y_new must be an indicator matrix"),
    "weights": (lambda X, Y: (X, Y, -np.ones(N_TRAIN)), ValueError, "sample_weight"),
}


@pytest.mark.parametrize("spoiled", SPOILED)
def test_bad_values_leave_the_model_unchanged(planted, spoiled):
    X, Y, X_new, _ = planted
    spoil, kind, text = SPOILED[spoiled]
    model = old_model(planted)
    before = copy.deepcopy(model)
    with pytest.raises(kind, match=text):
        model.add_labels(*spoil(X, Y[:, N_OLD:]))
    assert_same_model(before, model, FITTED)
    assert vars(model).keys() == vars(before).keys()
    np.testing.assert_array_equal(model.decision_function(X_new[:5]), before.decision_function(X_new[:5]))


def test_an_interrupt_leaves_the_model_unchanged(planted):
    X, Y, *_ = planted
    model = old_model(planted)
    with pytest.raises(KeyboardInterrupt):
        model.add_labels(X, Y[:, N_OLD:], progress=interrupted)
    assert_same_model(model, old_model(planted), FITTED)


def test_bad_parameters_and_unfitted_models(planted):
    X, Y, *_ = planted
    with pytest.raises(NotFittedError):
        LabelTreeClassifier().add_labels(X, Y)
    with pytest.raises(ValueError, match="`beam` must be an integer >= 1, got 0"):
        old_model(planted).set_params(beam=0).add_labels(X, Y)
    forged = old_model(planted)
    forged.chunk_outputs_ = forged.chunk_outputs_ + np.uint16(1000)
    with pytest.raises(ValueError, match="`chunk_outputs_` must be less than"):
        forged.add_labels(X, Y)


def test_classifiers_that_do_not_converge_are_told(planted):
    X, Y, *_ = planted
    model = old_model(planted).set_params(max_iter=1)
    with pytest.warns(ConvergenceWarning, match="did not converge in max_iter=1 steps") as told:
        model.add_labels(X, Y[:, N_OLD:])
    assert told[0].filename == __file__
    assert model.n_iter_ == old_model(planted).n_iter_
