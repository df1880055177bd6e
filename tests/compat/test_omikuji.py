"""The interface of omikuji: the calls of its example work, and hyper-parameters mean what they say."""

import os
import shutil
import sys
import textwrap

import numpy as np
import pytest

import manylabel as ml
from manylabel.compat import omikuji
from manylabel.datasets import dump_xc, make_multilabel


@pytest.fixture(scope="module")
def data():
    return make_multilabel(300, 60, 30, n_nonzero=10, random_state=0)


@pytest.fixture(scope="module")
def path(data, tmp_path_factory):
    file = tmp_path_factory.mktemp("omikuji") / "train.txt"
    dump_xc(*data, file)
    return str(file)


def small(**more):
    hyper_param = omikuji.Model.default_hyper_param()
    hyper_param.n_trees = 1
    hyper_param.min_branch_size = 8
    for name, value in more.items():
        setattr(hyper_param, name, value)
    return hyper_param


def row(X, number):
    x = X[[number]]
    return list(zip(x.indices.tolist(), x.data.tolist(), strict=True))


def test_the_calls_of_the_example(data, path, tmp_path):
    model = omikuji.Model.train_on_data(path, small(n_trees=2), 2)
    assert (model.n_trees, model.n_features) == (2, 60)
    folder = str(tmp_path / "model")
    model.save(folder)
    loaded = omikuji.Model.load(folder)
    shutil.rmtree(folder)
    loaded.densify_weights(0.05)
    loaded.densify_weights(max_sparse_density=0.05, n_threads=1)
    loaded.init_prediction_thread_pool(2)
    for number in range(20):
        pairs = row(data[0], number)
        found = loaded.predict(pairs, top_k=3)
        assert found == model.predict(pairs[::-1], 10, 3)
        scores = [score for _, score in found]
        assert scores == sorted(scores, reverse=True)
        assert all(0 < score <= 1 for score in scores)
    if hasattr(os, "fork"):
        child = os.fork()
        if child == 0:
            os._exit(0 if loaded.predict(pairs, top_k=3) == found else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_predictions_are_those_of_the_classifier(data, path):
    model = omikuji.Model.train_on_data(path, small())
    X, Y = data
    tree = ml.LabelTreeClassifier(
        1.0,
        branching=2,
        max_leaf=7,
        negatives="siblings",
        path_weight=1.0,
        prune=0.1,
        tol=0.1 / 30,
        threshold="zero",
        normalize=True,
        random_state=0,
    )
    top = tree.fit(X, Y).predict_topk(X[:10], k=5, beam=10)
    for number in range(10):
        wanted = top[[number]]
        found = dict(model.predict(row(X, number), beam_size=10, top_k=5))
        assert sorted(found) == wanted.indices.tolist()
        np.testing.assert_allclose([found[j] for j in wanted.indices], np.exp(wanted.data - 1), rtol=1e-5)


def test_default_hyper_parameters_are_those_of_omikuji():
    found = omikuji.Model.default_hyper_param()
    program = pytest.importorskip("omikuji", reason="the package omikuji is needed")
    wanted = program.Model.default_hyper_param()
    for name in found.__slots__:
        value = getattr(found, name)
        value = value.value if isinstance(value, omikuji.LossType) else value
        assert np.float32(value) == np.float32(getattr(wanted, name)), name
    assert {name for name in dir(wanted) if not name.startswith("_")} == set(found.__slots__)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"collapse_every_n_layers": 5}, {"branching": 64}),
        ({"cluster_k": 100, "cluster_balanced": False}, {"branching": 100, "balanced": False}),
        ({"min_branch_size": 50}, {"max_leaf": 49}),
        ({"max_depth": 1}, {"max_leaf": 5000}),
        ({"linear_c": 0.5, "linear_weight_threshold": 0.2}, {"C": 0.5, "prune": 0.2}),
        ({"linear_eps": 0.3}, {"tol": 0.01}),
        ({"linear_loss_type": omikuji.LossType.HINGE.value, "train_trees_1_by_1": True}, {}),
    ],
)
def test_hyper_parameters(given, wanted):
    found = small(**given).classifier(5000).get_params()
    assert {name: found[name] for name in wanted} == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("n_trees", 0, "`n_trees`"),
        ("min_branch_size", 1, "`min_branch_size`"),
        ("max_depth", 3, "`max_depth` must be 1 or at least"),
        ("centroid_threshold", 0.1, "must be 0, got 0[.]1; label vectors are not pruned"),
        ("collapse_every_n_layers", 16, "at most 65535 children"),
        ("tree_structure_only", True, "a tree without classifiers"),
        ("linear_loss_type", omikuji.LossType.LOG, "squared hinge loss"),
        ("linear_loss_type", 1, "squared hinge loss"),
        ("linear_eps", 0.0, "`linear_eps` must be finite and > 0"),
        ("linear_c", float("nan"), "`linear_c`"),
        ("linear_weight_threshold", -1, "`linear_weight_threshold` must be finite and >= 0"),
        ("linear_max_iter", 0, "`linear_max_iter`"),
        ("cluster_k", 1, "`cluster_k`"),
        ("cluster_eps", 0.1, "the clustering has no such tolerance"),
        ("cluster_min_size", 3, "the clustering has no such limit"),
        ("train_trees_1_by_1", 3, "must be True or False"),
    ],
)
def test_hyper_parameters_that_cannot_be_converted(name, value, error):
    with pytest.raises(ValueError, match=error):
        small(**{name: value}).classifier(5000)


def test_unknown_hyper_parameters_are_errors():
    with pytest.raises(AttributeError):
        omikuji.Model.default_hyper_param().n_tree = 3
    with pytest.raises(ValueError, match="`hyper_param` must be a HyperParam"):
        omikuji.Model.train_on_data("nothing", {"n_trees": 3})


def test_errors(path, tmp_path):
    model = omikuji.Model.train_on_data(path, small())
    for pairs in ([(1, 0.5), (1, 0.5)], [(60, 1.0)], [(-1, 1.0)]):
        with pytest.raises(ValueError, match="must have features from 0 to 59, each at most once"):
            model.predict(pairs)
    with pytest.raises(ValueError, match=r"NaN|nan|finite"):
        model.predict([(0, float("nan"))])
    with pytest.raises(ValueError, match="`k`"):
        model.predict([(0, 1.0)], top_k=0)
    with pytest.raises(RuntimeError, match="Failed to load data"):
        omikuji.Model.train_on_data(str(tmp_path / "none"), small())
    with pytest.raises(RuntimeError, match="Failed to load model"):
        omikuji.Model.load(str(tmp_path / "none"))
    model.save(str(tmp_path / "model"))
    with pytest.raises(RuntimeError, match="folder without a model"):
        model.save(str(tmp_path / "model"))
    with pytest.raises(ValueError, match="max_sparse_density"):
        model.densify_weights(2)
    with pytest.raises(ValueError, match="n_threads"):
        model.init_prediction_thread_pool(-1)


def test_a_program_that_imports_omikuji(path, monkeypatch):
    program = textwrap.dedent(
        f"""
        import sys, manylabel.compat.omikuji
        sys.modules["omikuji"] = manylabel.compat.omikuji
        import omikuji
        hyper_param = omikuji.Model.default_hyper_param()
        hyper_param.n_trees = 1
        model = omikuji.Model.train_on_data({path!r}, hyper_param)
        n_found = len(model.predict([(0, 0.5), (3, 0.5)], top_k=3))
        """
    )
    monkeypatch.setitem(sys.modules, "omikuji", None)  # removed again after the test
    names = {}
    exec(program, names)
    assert names["n_found"] == 3
