"""Fits of label embeddings in pieces give the bits of one fit."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import manylabel as ml
from fitted_in_pieces import saved, with_empty_columns
from manylabel import shards
from manylabel.datasets import convert, dump_xc, load_xc

PLAIN = {"random_state": 0, "n_components": 70}
VARIANTS = {
    "factorized": {},
    "conjugate gradients": {"solver": "cg", "n_iter": 2},
    "dual": {"solver": "dual"},
    "penalties": {"l2": "auto", "l2_final": 0.1},
    "penalties and gradients": {"l2": "auto", "solver": "cg"},
    "one penalty": {"l2_final": 1.0, "variant": "ritz", "n_iter": 0},
    "no penalty": {"l2": 0.0, "center": True},
    "gaussian": {"embedding": "gaussian", "l2": "auto", "l2_final": 1.0},
    "fraction": {"n_components": 0.9},
    "more than the rank": {"n_components": 500, "fit_intercept": False},
}

# The variants that are fitted in double precision.
DOUBLE = {"conjugate gradients", "no penalty", "fraction", "penalties and gradients"}


@pytest.fixture(scope="module")
def data():
    return with_empty_columns(300, 150, 120)


@pytest.mark.parametrize("dense", [False, True], ids=["sparse", "dense"])
@pytest.mark.parametrize("name", VARIANTS)
def test_same_bits_as_one_fit(tmp_path, data, name, dense):
    dtype = np.float64 if name in DOUBLE else np.float32
    X, Y = data[0].astype(dtype), data[1]
    if dense:
        X = np.asfortranarray(X.toarray())
    weights = 1 + np.arange(X.shape[0]) % 2
    params = PLAIN | VARIANTS[name]
    expected = saved(ml.Rembrandt(**params).fit(X, Y, weights), tmp_path / "expected")
    model = ml.Rembrandt(**params, n_jobs=2)
    assert shards.fit(model, X, Y, weights, checkpoint=tmp_path / "fit", n_pieces=2, piece=(1, 2)) is None
    got = shards.fit(model, X, Y, weights, checkpoint=tmp_path / "fit", n_pieces=2, piece=(2, 2))
    assert not hasattr(model, "coef_")
    assert got.coef_.dtype == dtype
    assert saved(got.set_params(n_jobs=None), tmp_path / "got") == expected
    assert saved(shards.merge(tmp_path / "fit"), tmp_path / "merged") == expected


@pytest.mark.parametrize("n_pieces", [1, 3, 50, "auto"])
def test_any_number_of_pieces(tmp_path, data, n_pieces):
    X, Y = data
    expected = saved(ml.Rembrandt(**PLAIN).fit(X, Y), tmp_path / "expected")
    got = shards.fit(ml.Rembrandt(**PLAIN), X, Y, checkpoint=tmp_path / "fit", n_pieces=n_pieces)
    assert saved(got, tmp_path / "got") == expected
    sizes = [len(stage) for stage in shards.Folder(tmp_path / "fit").stages]
    # The Gram matrix of 150 columns has 10 strips, and 90 and 70 columns have 3 panels.
    most = {"auto": (2, 1, 1, 1, 1, 1)}.get(n_pieces, (10, 3, 3, 1, 3, 1))
    assert sizes == [min(size, n_pieces) if n_pieces != "auto" else size for size in most]


def test_a_folder_of_rows(tmp_path, data):
    dump_xc(*data, tmp_path / "data.txt")
    convert(tmp_path / "data.txt", tmp_path / "rows")
    expected = ml.Rembrandt(**PLAIN).fit(*load_xc(tmp_path / "data.txt"))
    got = shards.fit(ml.Rembrandt(**PLAIN), tmp_path / "rows", checkpoint=tmp_path / "fit", n_pieces=2)
    assert saved(got, tmp_path / "got") == saved(expected, tmp_path / "expected")


def test_a_lost_piece_is_fitted_again(tmp_path, data):
    X, Y = data
    model, folder = ml.Rembrandt(**PLAIN), tmp_path / "fit"
    expected = saved(shards.fit(model, X, Y, checkpoint=folder, n_pieces=2), tmp_path / "expected")
    for number in range(shards.Folder(folder).n_pieces):
        before = shards.Folder(folder).piece_path(number).read_bytes()
        shards.Folder(folder).piece_path(number).unlink()
        with pytest.raises(
            ValueError, match=rf"1 of .* pieces are missing; the first is piece-{number:06}\.npz"
        ):
            shards.merge(folder)
        got = shards.fit(model, X, Y, checkpoint=folder, n_pieces=2)
        assert saved(got, tmp_path / "got") == expected
        assert shards.Folder(folder).piece_path(number).read_bytes() == before


def test_folders_of_other_fits_and_damaged_pieces(tmp_path, data):
    X, Y = data
    fit = {"checkpoint": tmp_path / "fit", "n_pieces": 2}
    shards.fit(ml.Rembrandt(**PLAIN), X, Y, **fit)
    with pytest.raises(ValueError, match="other parameters: `n_iter` was 1, now it is 2"):
        shards.fit(ml.Rembrandt(**PLAIN, n_iter=2), X, Y, **fit)
    with pytest.raises(ValueError, match="another Y"):
        shards.fit(ml.Rembrandt(**PLAIN), X, Y[:, ::-1], **fit)
    folder = shards.Folder(tmp_path / "fit")
    for number, name in ((0, "numbers"), (folder.stages[1][0], "panels")):
        whole = folder.piece_path(number).read_bytes()
        arrays = folder.piece(number)
        folder.store(number, arrays | {name: arrays[name][:-1]})
        folder.piece_path(folder.n_pieces - 1).unlink(missing_ok=True)
        with pytest.raises(ValueError, match=r"cells of the Gram matrix|panels of all pieces"):
            shards.fit(ml.Rembrandt(**PLAIN), X, Y, **fit)
        folder.piece_path(number).write_bytes(whole)


def test_regressions_that_do_not_converge(tmp_path, data):
    model = ml.Rembrandt(**PLAIN, solver="cg", max_iter=1, tol=1e-9)
    with pytest.warns(
        ConvergenceWarning, match=r"did not reach tol=1e-09 in max_iter=1 steps for \d+ solutions"
    ):
        shards.fit(model, *data, checkpoint=tmp_path)


def test_what_cannot_be_divided(tmp_path, data):
    X, Y = data
    unknown = Y.astype(np.float32)
    unknown.data[3] = np.nan
    for params, labels, message in [
        ({"embedding": "pca"}, Y, '`embedding` must not be "pca"'),
        ({}, unknown, "`Y` must have no unknown entries"),
    ]:
        with pytest.raises(TypeError, match=message):
            shards.fit(ml.Rembrandt(**PLAIN | params), X, labels, checkpoint=tmp_path / "fit")
        for file in tmp_path.glob("fit/*"):
            file.unlink()
    with pytest.raises(TypeError, match="`label_weight` and `propensities` must be None"):
        shards.fit(ml.Rembrandt(**PLAIN), X, Y, checkpoint=tmp_path / "costs", label_weight=np.full(120, 2.0))
    with pytest.raises(ValueError, match="`Y` must be a 2-D indicator matrix, got one class per row"):
        shards.fit(ml.Rembrandt(**PLAIN), X, np.arange(300) % 3, checkpoint=tmp_path / "classes")
