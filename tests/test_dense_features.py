"""Estimators that keep dense features dense.

Some read X in any memory order without a copy, by matrix products. Others read dense rows like sparse rows of
which all entries are stored, and have the same bits for both forms.
"""

import numpy as np
import pytest
from scipy.sparse import csr_array, issparse
from sklearn.base import BaseEstimator, clone

import manylabel as ml
from dense_rows import clusters, peak_of

DISMEC = ml.DiSMECClassifier(C=1.0, random_state=0)

MODELS = {
    "DiSMEC": ml.DiSMECClassifier(random_state=0),
    "LEML": ml.LEMLClassifier(20, max_iter=3, random_state=0),
    "label tree": ml.LabelTreeClassifier(max_leaf=8, random_state=0),
    "label tree, unit rows": ml.LabelTreeClassifier(
        C=1.0, n_trees=2, max_leaf=8, normalize="rows", label_vectors="rembrandt", random_state=0
    ),
    "label tree, logistic": ml.LabelTreeClassifier(C=1.0, max_leaf=8, loss="logistic", random_state=0),
    "LEML, logistic": ml.LEMLClassifier(4, alpha=0.1, loss="logistic", max_iter=1, random_state=0),
    "PD-Sparse": ml.PDSparseClassifier(max_iter=3, random_state=0),
    "blocks": ml.BlockPartitionClassifier(DISMEC, n_blocks=3, lam=1.0, n_routes=2, random_state=0),
    "clusters": ml.CBMLCClassifier(DISMEC, n_clusters=3, random_state=0),
    "LPSR": ml.LPSRClassifier(DISMEC, leaf_size=200, n_candidates=20, random_state=0),
}

# The fits have the same bits for dense and sparse rows.
SAME = {
    "CorrLog": ml.CorrLogClassifier(tol=1e-2),
    "CorrLog, given scales": ml.CorrLogClassifier(standardize=False, threshold="zero", tol=1e-2),
    "link": ml.SmoothLinkClassifier(n_features=32, random_state=0),
    "link, held-out rows": ml.SmoothLinkClassifier(
        n_features=32, loss="logistic", n_passes=2, early_stopping=True, random_state=0
    ),
    "rules": ml.BoostedRulesClassifier(n_rules=8, random_state=0),
    "DiSMEC, logistic": ml.DiSMECClassifier(loss="logistic", random_state=0),
    "PD-Sparse": ml.PDSparseClassifier(max_iter=3, random_state=0),
    "blocks of PD-Sparse": ml.BlockPartitionClassifier(
        ml.PDSparseClassifier(max_iter=3), n_blocks=3, lam=1.0, mode="speed", random_state=0
    ),
    "clusters of PD-Sparse": ml.CBMLCClassifier(ml.PDSparseClassifier(max_iter=3), random_state=0),
    "LPSR of PD-Sparse": ml.LPSRClassifier(ml.PDSparseClassifier(max_iter=3), 200, 20, random_state=0),
}

every_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)


@pytest.fixture(scope="module")
def data():
    X, Y = clusters(840, 24, 40)
    return X[:640], Y[:640], X[640:], Y[640:]


def bits(value):
    """The fitted attributes of an estimator, or the bytes of an array."""
    if isinstance(value, BaseEstimator):
        return {name: bits(part) for name, part in vars(value).items() if name.endswith("_")}
    if isinstance(value, list):
        return [bits(part) for part in value]
    if issparse(value):
        return [bits(part) for part in (value.data, value.indices, value.indptr)]
    return value.tobytes() if isinstance(value, np.ndarray) else value


@every_model
def test_same_bits_for_every_memory_order_and_number_of_threads(data, model, tmp_path):
    X, Y, *_ = data
    X = X.astype(np.float16)
    expected = bits(clone(model).fit(X, Y))
    wide = X.astype(np.float32)
    padded = np.zeros((len(X), 50), dtype=np.float64)
    padded[:, ::-2][:, : X.shape[1]] = X
    np.save(tmp_path / "X.npy", wide)
    forms = {
        "float32": wide,
        "float64": X.astype(np.float64),
        "float32, Fortran order": np.asfortranarray(wide),
        "float16, Fortran order": np.asfortranarray(X),
        "every second column, reversed": padded[:, ::-2][:, : X.shape[1]],
        "every second row": np.repeat(wide, 2, axis=0)[::2],
        "mapped": np.load(tmp_path / "X.npy", mmap_mode="r"),
    }
    for name, form in forms.items():
        assert bits(clone(model).fit(form, Y)) == expected, name
    assert bits(clone(model).set_params(n_jobs=3).fit(wide, Y)) == expected


@every_model
def test_dense_rows_are_never_made_sparse(data, model, monkeypatch):
    X, Y, X_test, _ = data

    def refused(*arguments, **_):
        if isinstance(arguments[0], np.ndarray) and arguments[0].shape[1:] == X.shape[1:]:
            raise AssertionError("X was made sparse")
        return csr_array(*arguments)

    for name in ("estimator.validation", "partition.base", "partition.any_classifier", "partition.asked"):
        monkeypatch.setattr(f"manylabel.{name}.csr_array", refused)
    clone(model).fit(X, csr_array(Y)).predict_topk(X_test)


@pytest.mark.parametrize("model", [*MODELS.values(), *SAME.values()], ids=[*MODELS, *SAME])
def test_predictions_of_half_precision(data, model):
    X, Y, X_test, _ = data
    fitted = clone(model).fit(X, Y[:, :20])
    half = X_test.astype(np.float16)
    expected = fitted.decision_function(half.astype(np.float64))
    np.testing.assert_array_equal(fitted.decision_function(half), expected)
    np.testing.assert_array_equal(fitted.decision_function(half.astype(np.float32)), expected)


def test_memory_of_predictions_of_half_precision(data):
    fitted = clone(MODELS["DiSMEC"]).fit(*data[:2])
    half = np.repeat(data[2], 150, axis=0).astype(np.float16)
    # A copy in float32 takes 2 X.
    assert peak_of(lambda: fitted.predict_topk(half, 1)) < 2.9 * half.nbytes


@pytest.mark.parametrize(
    "model",
    [
        ml.DiSMECClassifier(1.0, threshold="zero", max_iter=2, tol=10, random_state=0),
        ml.LEMLClassifier(8, alpha=1.0, threshold="zero", max_iter=2, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_memory_beyond_x_and_the_model(model):
    rng = np.random.default_rng(0)
    X = rng.random((36_000, 512), dtype=np.float32)
    Y = csr_array((np.ones(len(X)), rng.integers(4, size=len(X)), np.arange(len(X) + 1)), shape=(len(X), 4))
    model = clone(model)
    # A dense copy takes 1.0 X, and sparse rows take at least 2 X.
    assert peak_of(lambda: model.fit(X, Y)) < 0.5 * X.nbytes, "C order"
    columns_first = np.asfortranarray(X)
    assert peak_of(lambda: model.fit(columns_first, Y)) < 0.5 * X.nbytes, "Fortran order"
    assert peak_of(lambda: model.predict_topk(X, 1)) < 0.1 * X.nbytes


@pytest.mark.parametrize("model", SAME.values(), ids=SAME)
@pytest.mark.parametrize("weighted", [False, True])
def test_same_bits_as_sparse_rows(data, model, weighted):
    X, Y, *_ = data
    X = np.where(np.random.default_rng(0).random(X.shape) < 0.2, 0, X)
    X[:, 3] = 0  # a constant column
    X[:, 4] = 1e4 + 0.01 * X[:, 4]
    weights = None
    if weighted:
        # More than half of all values are nonzero, but less than half of those in rows with a weight > 0.
        weights = np.random.default_rng(1).integers(0, 3, len(X)) / 2
        X[weights > 0] *= np.random.default_rng(2).random(X[weights > 0].shape) < 0.5
    for form in (np.asfortranarray(X), X.astype(np.float64)):
        expected = clone(model).fit(csr_array(form), Y[:, :20], weights)
        fitted = clone(model).fit(form, Y[:, :20], weights)
        assert bits(fitted) == bits(expected)
        top = fitted.predict_topk(form[:50], k=4)
        assert bits(top) == bits(expected.predict_topk(csr_array(form[:50]), k=4))


def test_same_bits_after_changes_of_labels(data):
    X, Y, *_ = data

    def changed(form):
        fitted = clone(SAME["DiSMEC, logistic"]).fit(form(X), Y[:, :20])
        return bits(fitted.add_labels(form(X), Y[:, 20:24]).refit_labels(form(X), Y[:, [1, 21]], [1, 21]))

    dense, sparse = changed(np.asarray), changed(csr_array)
    for attributes in (dense, sparse):
        del attributes["label_changes_"]  # has the times of the changes
    assert dense == sparse


@pytest.mark.parametrize("normalize", ["rows", "columns"])
@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
@pytest.mark.parametrize("with_weights", [False, True])
def test_trees_of_dense_and_sparse_rows(normalize, loss, with_weights):
    """The trees are the same, although the labels are noise. The margins are the same within `tol`."""
    rng = np.random.default_rng(0)
    X, Y = rng.random((300, 10)), (rng.random((300, 24)) < 0.2).astype(float)
    X[rng.random(X.shape) < 0.1] = 0
    X[:, 3] = 0  # a constant column
    if normalize == "columns":
        X[:, 4] = 1e9 + 100 * X[:, 4]
    Y[rng.random(Y.shape) < 0.05] = np.nan
    weights = rng.integers(0, 3, len(X)) / 2 if with_weights else None
    model = ml.LabelTreeClassifier(
        1.0,
        n_trees=2,
        max_leaf=4,
        normalize=normalize,
        loss=loss,
        path_weight=0.5,
        threshold="zero",
        solver="exact",
        tol=1e-4,
        random_state=0,
    )
    dense, sparse = (clone(model).fit(form(X), Y, weights) for form in (np.asfortranarray, csr_array))
    np.testing.assert_array_equal(dense.leaf_labels_, sparse.leaf_labels_)
    np.testing.assert_allclose(dense.decision_function(X), sparse.decision_function(X), atol=1e-2)

    def changed(fitted, form):
        fitted.add_labels(form(X), Y[:, :2], weights).refit_labels(form(X), Y[:, [1, 21]], [1, 21])
        return fitted.decision_function(X)

    expected = changed(sparse, csr_array)
    np.testing.assert_allclose(changed(dense, np.asfortranarray), expected, atol=1e-2)


@pytest.mark.parametrize("label_vectors", ["rows", "rembrandt"])
def test_rows_of_any_length(label_vectors):
    X, Y = clusters(600, 8, 40)
    X = X.astype(np.float64)
    model = ml.LabelTreeClassifier(
        1.0, max_leaf=4, normalize="rows", label_vectors=label_vectors, random_state=0
    )
    expected = bits(clone(model).fit(X, Y))
    for factor in (2.0**200, 2.0**-200):
        assert bits(clone(model).fit(X * factor, Y)) == expected


def test_rows_for_early_stopping_may_have_another_form(data):
    X, Y, X_test, Y_test = data
    model = ml.BoostedRulesClassifier(n_rules=12, early_stopping=True, random_state=0)
    fitted = [
        clone(model).fit(form(X), Y[:, :20], eval_set=(of_rows(X_test), Y_test[:, :20]))
        for form in (np.asarray, csr_array)
        for of_rows in (np.asarray, csr_array)
    ]
    assert all(bits(other) == bits(fitted[0]) for other in fitted)


@pytest.mark.parametrize(
    ("model", "most"),
    [
        # In float64, sparse rows take 1.5 X, and a copy of X takes 1 X.
        (ml.CorrLogClassifier(l2_features=0.01, threshold="zero", tol=0.1), 0.9),
        (ml.BoostedRulesClassifier(n_rules=2, random_state=0), 2.9),
        (ml.SmoothLinkClassifier(n_features=16, n_components=2, random_state=0), 2.4),
        # This fit copies X in float32, which takes 0.5 X.
        (ml.PDSparseClassifier(max_iter=1, random_state=0), 1.2),
        # A node copies its rows in float32, which take 0.5 X: once, and once more for frequent labels.
        (ml.LabelTreeClassifier(C=1.0, random_state=0), 1.9),
        (
            ml.DiSMECClassifier(1.0, loss="logistic", threshold="zero", max_iter=2, tol=10, random_state=0),
            2.4,
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_memory_without_sparse_rows(model, most):
    rng = np.random.default_rng(0)
    X = rng.random((6000, 200))
    Y = csr_array((np.ones(len(X)), rng.integers(4, size=len(X)), np.arange(len(X) + 1)), shape=(len(X), 4))
    model = clone(model)
    assert peak_of(lambda: model.fit(X, Y)) < most * X.nbytes
    assert peak_of(lambda: model.predict_topk(X, 1)) < 0.5 * X.nbytes


@pytest.mark.parametrize(
    "model",
    [
        ml.LPSRClassifier("naive-bayes", 300, 20, random_state=0),
        ml.LPSRClassifier("naive-bayes", 300, 20, weighting="counts", random_state=0),
    ],
    ids=lambda model: model.weighting,
)
def test_naive_bayes_of_dense_rows(data, model):
    X, Y = np.abs(data[0]), data[1]
    sparse = clone(model).fit(csr_array(X), Y)
    for form in (np.asfortranarray(X), X.astype(np.float64)):
        dense = clone(model).fit(form, Y)
        np.testing.assert_array_equal(dense.row_blocks_, sparse.row_blocks_)
        scores = dense.decision_function(form), sparse.decision_function(csr_array(X))
        np.testing.assert_allclose(*scores, rtol=1e-4, atol=1e-4)


def test_candidates_of_lpsr_have_the_scores_of_the_base_scorer(data):
    """Many rows are scored with the weights of the candidates, and a single row with all weights."""
    X, Y, X_test, _ = data
    model = clone(MODELS["LPSR"]).fit(X, Y)
    (base,) = model.estimators_
    assert isinstance(base.coef_, np.ndarray)
    scores = model.decision_function(X_test)
    np.testing.assert_array_equal(scores[:5], [model.decision_function(row)[0] for row in X_test[:5, None]])
    kept = np.isfinite(scores)
    assert kept.any()
    of_base = np.full_like(scores, -np.inf)
    of_base[:, model.labels_] = base.decision_function(X_test)
    np.testing.assert_allclose(scores[kept], of_base[kept], rtol=1e-5, atol=1e-5)


def test_memory_of_blocks():
    X, Y = np.random.default_rng(0).random((8000, 400)), np.eye(4)[np.arange(8000) % 4]
    inner = ml.DiSMECClassifier(1.0)
    model = ml.BlockPartitionClassifier(inner, n_blocks=2, lam=1e-3, n_jobs=1, random_state=0)
    # A copy of half of the rows takes 0.5 X, and the fit of a block about as much. Before these fits, k-means
    # and the router copy all rows in float32, one after the other. Sparse rows alone take 1.5 X.
    assert peak_of(lambda: model.fit(X, Y)) < 1.2 * X.nbytes
    # Rows are scored 4,096 at a time, and half of them are copied for each block.
    assert peak_of(lambda: model.predict_topk(X, 1)) < 0.8 * X.nbytes
    sparse = csr_array(X)
    assert peak_of(lambda: model.measure_speedup(sparse)) < 0.2 * X.nbytes


def test_mostly_zero_rows_become_sparse(data):
    X, Y, *_ = data
    X = np.where(np.random.default_rng(0).random(X.shape) < 0.9, 0, X)
    for model in (*SAME.values(), MODELS["label tree"], MODELS["label tree, logistic"]):
        dense, sparse = (clone(model).fit(form(X), Y[:, :20]) for form in (np.asarray, csr_array))
        assert bits(dense) == bits(sparse)
        np.testing.assert_array_equal(dense.predict(X), sparse.predict(csr_array(X)))
