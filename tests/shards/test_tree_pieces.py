"""Fits of label trees in pieces give the bits of one fit. The pieces are fitted level by level."""

import numpy as np
import pytest
from scipy import sparse

import manylabel as ml
from fitted_in_pieces import saved, with_empty_columns
from manylabel import shards
from manylabel.datasets import convert, dump_xc, load_xc, make_multilabel, open_rows

PLAIN = {"random_state": 0, "C": 1.0, "max_leaf": 12, "branching": 6}
VARIANTS = {
    "one tree": {},
    "auto": {"C": "auto", "max_leaf": "auto", "normalize": "auto"},
    "three trees": {"n_trees": 3},
    "siblings": {"negatives": "siblings"},
    "rembrandt": {"label_vectors": "rembrandt"},
    "logistic": {"loss": "logistic", "C": 3.0, "tol": 0.1},
    "leaf": {"combine": "leaf", "threshold": 0.1},
    "nothing to learn": {"path_weight": 0.5, "threshold": "zero"},
    "not balanced": {"balanced": False, "branching": 3},
    "float16": {"weights": "float16"},
    "int8": {"weights": "int8"},
    "not scaled": {"normalize": False, "fit_intercept": False},
    "columns": {"normalize": "columns"},
}


@pytest.fixture(scope="module")
def data():
    return with_empty_columns(800, 80, 300)


@pytest.mark.parametrize("name", VARIANTS)
def test_same_bits_as_one_fit(tmp_path, data, name):
    X, Y = data
    params = PLAIN | VARIANTS[name]
    expected = saved(ml.LabelTreeClassifier(**params).fit(X, Y), tmp_path / "expected")
    got = shards.fit(ml.LabelTreeClassifier(**params), X, Y, checkpoint=tmp_path / "fit", n_pieces=3)
    assert saved(got, tmp_path / "got") == expected
    assert saved(shards.merge(tmp_path / "fit"), tmp_path / "merged") == expected


@pytest.mark.parametrize("n_pieces", [1, 2, 50, "auto"])
def test_any_number_of_pieces_and_threads(tmp_path, data, n_pieces):
    X, Y = data
    expected = ml.LabelTreeClassifier(**PLAIN).fit(X, Y)
    model = ml.LabelTreeClassifier(**PLAIN, n_jobs=2)
    got = shards.fit(model, X, Y, checkpoint=tmp_path / "fit", n_pieces=n_pieces).set_params(n_jobs=None)
    assert saved(got, tmp_path / "got") == saved(expected, tmp_path / "expected")


def test_costs_weights_and_unknown_entries(tmp_path, data):
    X, Y = data
    marked = sparse.random_array(Y.shape, density=0.02, rng=np.random.default_rng(0), format="csr")
    marked.data[:] = np.nan
    Y = sparse.csr_array(Y.astype(np.float32) + marked)
    weights = np.arange(X.shape[0]) % 3 / 2.0
    costs = {"propensities": np.linspace(0.3, 1, 300), "label_weight": np.linspace(1, 2, 300)}
    expected = ml.LabelTreeClassifier(**PLAIN).fit(X, Y, weights, **costs)
    got = shards.fit(
        ml.LabelTreeClassifier(**PLAIN), X, Y, weights, checkpoint=tmp_path / "fit", n_pieces=4, **costs
    )
    assert saved(got, tmp_path / "got") == saved(expected, tmp_path / "expected")


def test_machines_that_share_a_folder(tmp_path, data):
    """A process also fits missing pieces of other processes on upper levels, but not those of leaves."""
    X, Y = data
    expected = ml.LabelTreeClassifier(**PLAIN).fit(X, Y)
    model, folder = ml.LabelTreeClassifier(**PLAIN), tmp_path / "fit"
    assert shards.fit(model, X, Y, checkpoint=folder, n_pieces=4, piece=(1, 3)) is None
    missing = shards.Folder(folder).missing()
    assert missing
    assert min(missing) >= shards.Folder(folder).stages[-2].start
    assert shards.fit(model, X, Y, checkpoint=folder, n_pieces=4, piece=(3, 3)) is None
    got = shards.fit(model, X, Y, checkpoint=folder, n_pieces=4, piece=(2, 3))
    assert saved(got, tmp_path / "got") == saved(expected, tmp_path / "expected")


def test_a_lost_piece_is_fitted_again(tmp_path, data):
    X, Y = data
    model, folder = ml.LabelTreeClassifier(**PLAIN), tmp_path / "fit"
    expected = saved(shards.fit(model, X, Y, checkpoint=folder, n_pieces=4), tmp_path / "expected")
    for number in (0, 3, shards.Folder(folder).n_pieces - 1):
        before = shards.Folder(folder).piece_path(number).read_bytes()
        shards.Folder(folder).piece_path(number).unlink()
        with pytest.raises(
            ValueError, match=rf"1 of .* pieces are missing; the first is piece-{number:06}\.npz"
        ):
            shards.merge(folder)
        got = shards.fit(model, X, Y, checkpoint=folder, n_pieces=4)
        assert saved(got, tmp_path / "got") == expected
        assert shards.Folder(folder).piece_path(number).read_bytes() == before


def test_damaged_pieces(tmp_path, data):
    X, Y = data
    model, folder = ml.LabelTreeClassifier(**PLAIN), tmp_path / "fit"
    shards.fit(model, X, Y, checkpoint=folder, n_pieces=4)
    pieces = shards.Folder(folder)
    arrays = pieces.piece(2)
    pieces.store(2, arrays | {"intercept": arrays["intercept"][:-1]})
    with pytest.raises(ValueError, match="intercepts of a piece"):
        shards.merge(folder)
    pieces.store(2, arrays | {"weight_ends": arrays["weight_ends"][:-1]})
    with pytest.raises(ValueError, match=r"`piece` must be the fit of some nodes|nodes of all pieces"):
        shards.merge(folder)


@pytest.mark.parametrize("normalize", [True, False])
def test_a_folder_of_rows(tmp_path, data, normalize):
    dump_xc(*data, tmp_path / "data.txt")
    convert(tmp_path / "data.txt", tmp_path / "rows")
    params = PLAIN | {"normalize": normalize}
    expected = ml.LabelTreeClassifier(**params).fit(*load_xc(tmp_path / "data.txt"))
    model = ml.LabelTreeClassifier(**params)
    got = shards.fit(model, tmp_path / "rows", checkpoint=tmp_path / "fit", n_pieces=4)
    assert saved(got, tmp_path / "got") == saved(expected, tmp_path / "expected")
    assert (tmp_path / "rows" / ("unit" if normalize else "given") / "original").exists()
    mapped = ml.LabelTreeClassifier(**params).fit(*open_rows(tmp_path / "rows"))
    assert saved(mapped, tmp_path / "mapped") == saved(expected, tmp_path / "expected")


def test_mapped_rows_are_not_copied(tmp_path):
    """The labels are few, so that X is most of the memory."""
    from manylabel import _core

    X, _ = make_multilabel(20_000, 300, 20, random_state=0)
    Y = sparse.csr_array(np.arange(len(X.data[:20_000]))[:, None] % 400 == np.arange(3))
    dump_xc(X, Y, tmp_path / "data.txt")
    convert(tmp_path / "data.txt", tmp_path / "rows")
    model = ml.LabelTreeClassifier(C=1.0, max_leaf=3, combine="leaf", threshold="zero", random_state=0)
    peaks = []
    for data in (load_xc(tmp_path / "data.txt"), open_rows(tmp_path / "rows")):
        model.fit(*data)  # writes the prepared rows of the folder
        before = _core.restart_memory_peak()
        model.fit(*data)
        peaks.append(_core.memory_held()[1] - before)
    assert peaks[1] < peaks[0] - 0.9 * 8 * X.nnz
