"""Models of other programs have the same scores after they are read.

Small models are written by hand here, in the formats of the programs, and compared with numpy. Where a
program is installed, a model that it has trained is compared with its own predictions.
"""

import json
import zipfile
from io import BytesIO

import numpy as np
import pytest
from scipy.sparse import csc_matrix, csr_array, csr_matrix, save_npz

import manylabel as ml
from manylabel.compat import load_dismec, load_liblinear, load_omikuji, load_pecos
from manylabel.datasets import dump_xc, make_multilabel

RNG = np.random.default_rng(0)
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def examples():
    X, Y = make_multilabel(300, 40, 30, n_nonzero=8, random_state=0)
    return csr_array(X), csr_array(Y)


def sparse_weights(n_rows, n_columns):
    return np.where(RNG.random((n_rows, n_columns)) < 0.4, RNG.normal(size=(n_rows, n_columns)), 0)


def liblinear_text(W, labels, bias, solver="L2R_L2LOSS_SVC"):
    """The text of a model with weights of shape (n_rows, n_columns)."""
    head = f"solver_type {solver}\nnr_class {len(labels)}\nlabel {' '.join(map(str, labels))}\n"
    head += f"nr_feature {W.shape[0] - (bias >= 0)}\nbias {bias}\nw\n"
    return head + "".join(" ".join(f"{w:.17g}" for w in row) + " \n" for row in W)


def npy(array):
    """The content of a file in NPY format."""
    file = BytesIO()
    np.save(file, array)
    return file.getvalue()


def larger(content):
    """The content of a file in NPY format, with a header that promises petabytes."""
    return content.replace(b"(2, 3), }" + 14 * b" ", b"(2, 300000000000000), }")


@pytest.mark.parametrize("bias", [-1, 0, 1, 2.5])
def test_liblinear(tmp_path, examples, bias):
    X = examples[0]
    W = sparse_weights(40 + (bias >= 0), 5)
    (tmp_path / "model").write_text(liblinear_text(W, [3, 1, 9, 4, 2], bias))
    model = load_liblinear(tmp_path / "model")
    wanted = X @ W[:40] + (bias * W[40] if bias >= 0 else 0)
    np.testing.assert_allclose(model.decision_function(X), wanted, atol=TOLERANCE)
    assert model.label_names_.tolist() == ["3", "1", "9", "4", "2"]
    model.save(tmp_path / "saved")
    assert (ml.load(tmp_path / "saved").decision_function(X) == model.decision_function(X)).all()


def test_liblinear_with_two_classes_has_opposite_scores(tmp_path, examples):
    X = examples[0]
    W = sparse_weights(40, 1)
    (tmp_path / "model").write_text(liblinear_text(W, [1, -1], -1))
    found = load_liblinear(tmp_path / "model").decision_function(X)
    np.testing.assert_allclose(found, np.hstack([X @ W, -(X @ W)]), atol=TOLERANCE)


def test_batches_of_labels_are_joined(tmp_path, examples):
    X = examples[0]
    W = sparse_weights(41, 7)
    (tmp_path / "1.model").write_text(liblinear_text(W[:, :4], [1, 2, 3, 4], 1))
    (tmp_path / "2.model").write_text(liblinear_text(W[:, 4:], [5, 6, 7], 1))
    model = load_liblinear([tmp_path / "1.model", tmp_path / "2.model"])
    np.testing.assert_allclose(model.decision_function(X), X @ W[:40] + W[40], atol=TOLERANCE)
    with pytest.raises(ValueError, match="label"):
        load_liblinear([tmp_path / "1.model", tmp_path / "1.model"])


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (("L2R_L2LOSS_SVC", "L2R_L2LOSS_SVR"), "solver_type: expected one of"),
        (("nr_class 3", "nr_class 4"), "expected 4 labels in the line `label`, got 3"),
        (("nr_feature 2", "nr_feature 3"), "row 4 of the weights: expected 3 numbers, got 0"),
        (("nr_feature 2", ""), "expected solver_type, nr_class, nr_feature and bias"),
        (("w\n", ""), "expected a line `w`"),
        (("0.5", "nan"), "expected finite numbers, got nan"),
        (("0.5", "x"), "expected numbers"),
        (("0.5", "1e300"), "values of `coef_` must be finite, got inf"),
        (("bias 1", "bias nan"), "expected nr_feature >= 0 and a finite bias"),
        (("nr_feature 2", "nr_feature -2"), "expected nr_feature >= 0 and a finite bias"),
        (("label 1 2 3", "label 1 2 2"), "expected 3 different labels in the line `label`, got 2"),
    ],
)
def test_malformed_liblinear(tmp_path, change, error):
    text = liblinear_text(np.array([[0.5, 1, 2], [3, 4, 5], [6, 7, 8.0]]), [1, 2, 3], 1)
    (tmp_path / "model").write_text(text.replace(*change))
    with pytest.raises(ValueError, match=f"model: .*{error}"):
        load_liblinear(tmp_path / "model")
    (tmp_path / "model").write_bytes(b"\xff")
    with pytest.raises(ValueError, match="model: expected text in UTF-8"):
        load_liblinear(tmp_path / "model")


@pytest.mark.parametrize("form", ["SparseTXT", "DenseTXT", "DenseNPY"])
def test_dismec(tmp_path, examples, form):
    X = examples[0]
    W = sparse_weights(6, 40).astype(np.float32)
    files = []
    for first, count in ((4, 2), (0, 4)):
        name, rows = f"weights-{first}", W[first : first + count]
        files.append({"first": first, "count": count, "file": name, "weight-format": form})
        if form == "DenseNPY":
            with (tmp_path / name).open("wb") as file:
                np.save(file, rows)
        elif form == "DenseTXT":
            (tmp_path / name).write_text("".join(" ".join(map(str, row)) + "\n" for row in rows))
        else:
            pairs = ("".join(f"{j}:{row[j]} " for j in np.flatnonzero(row)) for row in rows)
            (tmp_path / name).write_text("".join(line + "\n" for line in pairs))
    meta = {"num-features": 40, "num-labels": 6, "date": "today", "files": files}
    (tmp_path / "model").write_text(json.dumps(meta))
    model = load_dismec(tmp_path / "model")
    np.testing.assert_allclose(model.decision_function(X), X @ W.T, atol=TOLERANCE)
    (tmp_path / "model").write_text(json.dumps(meta | {"num-labels": 7}))
    with pytest.raises(ValueError, match="expected weights of 7 labels, got 6"):
        load_dismec(tmp_path / "model")
    (tmp_path / "model").write_text(json.dumps(meta | {"files": files[:1]}))
    with pytest.raises(ValueError, match="expected a file whose first label is 0"):
        load_dismec(tmp_path / "model")


@pytest.mark.parametrize(
    ("form", "content", "error"),
    [
        ("DenseNPY", b"", "expected an array in NPY format"),
        ("DenseNPY", b"no array", "expected an array in NPY format"),
        ("DenseNPY", npy(np.ones((2, 3)))[:-8], "expected an array in NPY format"),
        ("DenseNPY", npy(np.ones((2, 3))).replace(b"}", b" "), "expected an array in NPY format"),
        ("DenseNPY", larger(npy(np.ones((2, 3)))), "expected an array in NPY format"),
        ("DenseNPY", npy(np.full((2, 3), 1e300)), "expected a model with valid values"),
        ("DenseNPY", npy(np.array([["a", "b", "c"]] * 2)), "expected an array of numbers, got dtype <U1"),
        ("DenseNPY", npy(np.ones((2, 4))), r"expected weights of shape \(2, 3\), got shape \(2, 4\)"),
        ("DenseTXT", b"1 2 3\n4 5\xff 6\n", "expected "),
        ("DenseTXT", b"", "row 1 of the weights: expected 3 numbers, got 0"),
        ("SparseTXT", b"0:1\n\xff\n", "expected text in UTF-8"),
        ("SparseTXT", b"0:1\n", "expected 2 lines, got 1"),
        ("SparseTXT", b"0:1\n7:1\n", "expected features from 0 to 2, got 0 to 7"),
    ],
)
def test_malformed_weights_of_dismec_are_named(tmp_path, form, content, error):
    (tmp_path / "weights").write_bytes(content)
    files = [{"first": 0, "count": 2, "file": "weights", "weight-format": form}]
    (tmp_path / "model").write_text(json.dumps({"num-features": 3, "num-labels": 2, "files": files}))
    with pytest.raises(ValueError, match=f"(weights|model).*: {error}"):
        load_dismec(tmp_path / "model")


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", "expected metadata of DiSMEC"),
        (b"\xff", "expected metadata of DiSMEC"),
        (b'{"num-features": Infinity, "num-labels": 2, "files": []}', "expected metadata of DiSMEC"),
        (
            b'{"num-features": -1, "num-labels": 0, "files": []}',
            "must be an integer from 0 to 2147483647, got -1",
        ),
    ],
)
def test_malformed_metadata_of_dismec_is_named(tmp_path, content, error):
    (tmp_path / "meta").write_bytes(content)
    with pytest.raises(ValueError, match=f"meta: .*{error}"):
        load_dismec(tmp_path / "meta")


# A tree of two levels: three leaves with the labels 0 and 3, 1 and 4, and 2.
CLUSTERS = np.array([0, 1, 2, 0, 1])


def margins(X, weights):
    return X @ weights[:-1] + weights[-1]


def tree_probabilities(X, top, labels, power):
    """The product of the probabilities of leaf and label, for all labels."""

    def probability(margin):
        return np.exp(-(np.maximum(0, 1 - margin) ** power))

    return probability(margins(X, top))[:, CLUSTERS] * probability(margins(X, labels))


def probabilities(model, X):
    return np.exp(model.decision_function(X) + model.threshold_)


def pecos_folder(folder, top, labels, post="l3-hinge", bias=1.0, clusters=None):
    codes = csr_matrix((np.ones(5), (np.arange(5), CLUSTERS))) if clusters is None else clusters
    levels = [(top, csr_matrix(np.ones((3, 1)))), (labels, codes)]
    for level, (W, C) in enumerate(levels):
        place = folder / "ranker" / f"{level}.model"
        place.mkdir(parents=True)
        save_npz(place / "W.npz", csc_matrix(W.astype(np.float32)))
        save_npz(place / "C.npz", csc_matrix(C.astype(np.float32)))
        about = {"model": "MLModel", "nr_labels": W.shape[1], "nr_features": 40, "bias": bias}
        about["pred_kwargs"] = {"only_topk": 20, "post_processor": post}
        (place / "param.json").write_text(json.dumps(about))
    about = {"model": "HierarchicalMLModel", "depth": 2}
    (folder / "ranker" / "param.json").write_text(json.dumps(about))


@pytest.mark.parametrize(("post", "power"), [("l3-hinge", 3), ("l2-hinge", 2)])
def test_pecos(tmp_path, examples, post, power):
    X = examples[0]
    top, labels = sparse_weights(41, 3), sparse_weights(41, 5)
    pecos_folder(tmp_path / "model", top, labels, post)
    model = load_pecos(tmp_path / "model")
    wanted = tree_probabilities(X, top, labels, power)
    np.testing.assert_allclose(probabilities(model, X), wanted, atol=TOLERANCE)
    found = model.predict_topk(X, k=5, beam=3).toarray()
    np.testing.assert_allclose(np.exp(found + model.threshold_), wanted, atol=TOLERANCE)
    model.save(tmp_path / "saved")
    assert (ml.load(tmp_path / "saved").decision_function(X) == model.decision_function(X)).all()
    assert model.beam == 20


def test_pecos_that_is_no_such_tree(tmp_path):
    top, labels = sparse_weights(41, 3), sparse_weights(41, 5)
    pecos_folder(tmp_path / "sigmoid", top, labels, "sigmoid")
    with pytest.raises(
        ValueError,
        match="the post-processor must be l3-hinge or l2-hinge, and the same on all levels, got sigmoid",
    ):
        load_pecos(tmp_path / "sigmoid")
    both = csr_matrix(np.ones((5, 3)))
    pecos_folder(tmp_path / "both", top, labels, clusters=both)
    with pytest.raises(ValueError, match="in several clusters"):
        load_pecos(tmp_path / "both")
    with pytest.raises(OSError, match="param"):
        load_pecos(tmp_path)


def npz(**arrays):
    """The content of a file in NPZ format."""
    file = BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def archive(content):
    """The content of a ZIP file with one file."""
    file = BytesIO()
    with zipfile.ZipFile(file, "w") as opened:
        opened.writestr("data.npy", content)
    return file.getvalue()


OUTSIDE = {"data": np.ones(1), "indices": [10**6], "indptr": [0, 1, 1, 1, 1, 1], "shape": [41, 5]}
LEVEL = {"nr_labels": 5, "nr_features": 40, "bias": 1.0}


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("W.npz", b"", "W.npz: expected a sparse matrix in NPZ format"),
        ("W.npz", b"PK" + bytes(40), "W.npz: expected a sparse matrix in NPZ format"),
        ("W.npz", npy(np.ones(3)), "W.npz: expected a sparse matrix in NPZ format"),
        ("W.npz", npz(data=np.ones(3)), "W.npz: expected a sparse matrix in NPZ format"),
        ("W.npz", npz(format="csc", **OUTSIDE), "W.npz: expected a sparse matrix in NPZ format .*indices"),
        ("C.npz", archive(larger(npy(np.ones((2, 3))))), "C.npz: .* describes an array of 4800000000000000"),
        ("W.npz", None, r"W.npz: expected weights of shape \(41, 5\), got shape \(41, 3\)"),
        ("param.json", b"", "param.json: expected the parameters of a level"),
        ("param.json", json.dumps(LEVEL).encode(), "param.json: expected .*KeyError: 'pred_kwargs'"),
    ],
)
def test_malformed_pecos_is_named(tmp_path, name, content, error):
    pecos_folder(tmp_path, sparse_weights(41, 3), sparse_weights(41, 5))
    ranker = tmp_path / "ranker"
    if content is None:
        content = (ranker / "0.model" / name).read_bytes()
    (ranker / "1.model" / name).write_bytes(content)
    with pytest.raises(ValueError, match=error):
        load_pecos(tmp_path)


def test_weights_that_are_not_finite_are_refused(tmp_path):
    labels = sparse_weights(41, 5)
    labels[0, 0] = np.nan
    pecos_folder(tmp_path / "pecos", sparse_weights(41, 3), labels)
    with pytest.raises(
        ValueError, match=r"pecos: expected a model with valid values \(values of `chunk_weights_`"
    ):
        load_pecos(tmp_path / "pecos")
    omikuji_folder(tmp_path / "omikuji", [(sparse_weights(41, 3), labels)])
    with pytest.raises(
        ValueError, match=r"omikuji: expected a model with valid values \(values of `chunk_weights_`"
    ):
        load_omikuji(tmp_path / "omikuji")


def omikuji_weights(W, dense):
    W = W.astype(np.float32)
    if dense:
        return {"Dense": {"v": 1, "dim": list(W.shape), "data": W.ravel().tolist()}}
    rows = np.flatnonzero(W.any(axis=1))
    stored = csr_array(W[rows])
    return {
        "Sparse": {
            "outer_dim": W.shape[0],
            "inner_dim": W.shape[1],
            "indptr": stored.indptr.tolist(),
            "outer_inds": rows.tolist(),
            "inner_inds": stored.indices.tolist(),
            "data": stored.data.tolist(),
        }
    }


def omikuji_folder(folder, trees, loss="Hinge"):
    cbor2 = pytest.importorskip("cbor2", reason="models of omikuji are read with the package cbor2")
    folder.mkdir()
    (folder / "settings.json").write_text(json.dumps({"n_features": 40, "classifier_loss_type": loss}))
    for number, (top, labels) in enumerate(trees):
        leaves = []
        for leaf in range(3):
            mine = np.flatnonzero(leaf == CLUSTERS)
            weights = omikuji_weights(labels[:, mine], dense=leaf == 1)
            leaves.append({"Leaf": {"weights": weights, "labels": mine.tolist()}})
        tree = {"Branch": {"weights": omikuji_weights(top, dense=False), "children": leaves}}
        (folder / f"tree{number}.cbor").write_bytes(cbor2.dumps(tree))


@pytest.mark.parametrize("n_trees", [1, 3])
def test_omikuji(tmp_path, examples, n_trees):
    X = examples[0]
    trees = [(sparse_weights(41, 3), sparse_weights(41, 5)) for _ in range(n_trees)]
    omikuji_folder(tmp_path / "model", trees)
    model = load_omikuji(tmp_path / "model")
    unit = X / np.sqrt((X * X).sum(axis=1))[:, None]
    wanted = np.mean([tree_probabilities(csr_array(unit), *tree, 2) for tree in trees], axis=0)
    np.testing.assert_allclose(probabilities(model, X), wanted, atol=TOLERANCE)
    found = model.predict_topk(X, k=5, beam=3).toarray()
    np.testing.assert_allclose(np.exp(found + model.threshold_), wanted, atol=TOLERANCE)
    model.save(tmp_path / "saved")
    assert (ml.load(tmp_path / "saved").decision_function(X) == model.decision_function(X)).all()
    refitted = model.fit(*examples)
    assert not hasattr(refitted, "margin_power_")


def test_omikuji_that_cannot_be_read(tmp_path):
    cbor2 = pytest.importorskip("cbor2", reason="models of omikuji are read with the package cbor2")
    trees = [(sparse_weights(41, 3), sparse_weights(41, 5))]
    omikuji_folder(tmp_path / "log", trees, "Log")
    with pytest.raises(ValueError, match="loss Hinge, got 'Log'"):
        load_omikuji(tmp_path / "log")
    omikuji_folder(tmp_path / "none", [])
    with pytest.raises(ValueError, match="got none"):
        load_omikuji(tmp_path / "none")
    omikuji_folder(tmp_path / "cut", trees)
    file = tmp_path / "cut" / "tree0.cbor"
    file.write_bytes(file.read_bytes()[:-50])
    with pytest.raises(ValueError, match="expected a tree of omikuji"):
        load_omikuji(tmp_path / "cut")
    sparse = {"outer_dim": 41, "inner_dim": 1, "outer_inds": [0], "inner_inds": [0], "data": [1.0]}
    for tree in (
        5,
        {"Leaf": {"weights": {"Sparse": sparse | {"indptr": [0, 10**15]}}, "labels": [0]}},
        {"Leaf": {"weights": {"Sparse": sparse | {"indptr": [0, 1]}}, "labels": [2**31]}},
        {"Leaf": {"weights": {"Dense": {"dim": [], "data": [1.0]}}, "labels": [0]}},
    ):
        file.write_bytes(cbor2.dumps(tree))
        with pytest.raises(ValueError, match=r"tree0\.cbor: expected a tree of omikuji"):
            load_omikuji(tmp_path / "cut")


def test_liblinear_itself(tmp_path, examples):
    liblinear = pytest.importorskip(
        "liblinear.liblinearutil", reason="the package liblinear-official is needed"
    )
    X, Y = csr_matrix(examples[0]), examples[1].toarray()
    classes = Y[:, :6].argmax(axis=1).astype(float)
    trained = liblinear.train(classes, X, "-s 2 -B 1 -q")
    liblinear.save_model(str(tmp_path / "model"), trained)
    _, _, wanted = liblinear.predict(classes, X, trained, "-q")
    model = load_liblinear(tmp_path / "model")
    # LIBLINEAR leaves out the features after the last one that has a value.
    found = model.decision_function(examples[0][:, : model.n_features_in_])
    np.testing.assert_allclose(found, np.array(wanted), atol=TOLERANCE)


def test_omikuji_itself(tmp_path, examples):
    omikuji = pytest.importorskip("omikuji", reason="the package omikuji is needed")
    X, Y = examples
    dump_xc(X, Y, tmp_path / "train.txt")
    hyper_param = omikuji.Model.default_hyper_param()
    hyper_param.min_branch_size = 8
    trained = omikuji.Model.train_on_data(str(tmp_path / "train.txt"), hyper_param)
    trained.save(str(tmp_path / "model"))
    model = load_omikuji(tmp_path / "model")
    for row in range(50):
        x = X[[row]]
        pairs = list(zip(x.indices.tolist(), x.data.tolist(), strict=True))
        wanted = dict(trained.predict(pairs, beam_size=64, top_k=30))
        top = model.predict_topk(x, k=30, beam=64)
        found = dict(zip(top.indices.tolist(), np.exp(top.data + model.threshold_).tolist(), strict=True))
        assert found.keys() == wanted.keys()
        np.testing.assert_allclose([found[label] for label in wanted], list(wanted.values()), atol=TOLERANCE)


def test_pecos_itself(tmp_path, examples):
    pytest.importorskip("pecos", reason="the package libpecos is needed")
    from pecos.xmc import Indexer, LabelEmbeddingFactory
    from pecos.xmc.xlinear.model import XLinearModel

    X, Y = csr_matrix(examples[0], dtype=np.float32), csr_matrix(examples[1], dtype=np.float32)
    chain = Indexer.gen(LabelEmbeddingFactory.create(Y, X, method="pifa"), max_leaf_size=5, nr_splits=2)
    trained = XLinearModel.train(X, Y, C=chain)
    trained.save(str(tmp_path / "model"))
    wanted = trained.predict(X, beam_size=3, only_topk=10).toarray()
    model = load_pecos(tmp_path / "model")
    top = model.predict_topk(examples[0], k=10, beam=3)
    top.data = np.exp(top.data + model.threshold_)
    np.testing.assert_allclose(top.toarray(), wanted, atol=TOLERANCE)
