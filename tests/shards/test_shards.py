"""Fits in pieces give the bits of one fit, also after kills. Folders of other fits are refused."""

import errno
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import manylabel as ml
from children import forked, forks, posix_only
from fitted_in_pieces import assert_same_bits, with_unknown
from manylabel import rounds, shards
from manylabel.datasets import convert, dump_xc, load_xc, make_multilabel

PLAIN = {"random_state": 0, "C": 1.0}
VARIANTS = {
    "fast": {},
    "auto": {"C": "auto"},
    "exact": {"solver": "exact"},
    "columns": {"normalize": "columns"},
    "threshold": {"threshold": 0.25, "prune": 0.0},
    "no intercept": {"fit_intercept": False, "threshold": "zero", "normalize": False},
}


@pytest.fixture(scope="module")
def data():
    X, Y = make_multilabel(1000, 80, 300, n_nonzero=20, random_state=2)
    Y = Y.tolil()
    Y[:, 7] = 0  # a label without a row
    return X, Y.tocsr()


@pytest.mark.parametrize("name", VARIANTS)
def test_same_bits_as_one_fit(tmp_path, data, name):
    X, Y = data
    model = ml.DiSMECClassifier(**(PLAIN | VARIANTS[name]))
    expected = ml.DiSMECClassifier(**model.get_params()).fit(X, Y)
    got = shards.fit(model, X, Y, checkpoint=tmp_path / "fit", n_pieces=5)
    assert not hasattr(model, "coef_")
    assert_same_bits(got, expected)
    assert_same_bits(shards.merge(tmp_path / "fit"), expected)
    assert len(list((tmp_path / "fit").glob("piece-*.npz"))) == 5
    got.save(tmp_path / "model")
    expected.save(tmp_path / "expected")
    assert (tmp_path / "model").read_bytes() == (tmp_path / "expected").read_bytes()


@pytest.mark.parametrize(
    ("C", "costs"),
    [(1.0, "none"), (1.0, "propensities"), (1.0, "label_weight"), ("auto", "none"), ("auto", "propensities")],
)
def test_unknown_entries_and_costs_of_labels(tmp_path, data, costs, C):
    X, Y = data[0], with_unknown(data[1])
    rng = np.random.default_rng(1)
    given = {} if costs == "none" else {costs: rng.uniform(0.2, 1, Y.shape[1])}
    model = ml.DiSMECClassifier(C=C, random_state=0)
    expected = ml.DiSMECClassifier(C=C, random_state=0).fit(X, Y, **given)
    first = shards.fit(model, X, Y, checkpoint=tmp_path / "fit", n_pieces=5, piece=(1, 2), **given)
    assert first is None
    got = shards.fit(model, X, Y, checkpoint=tmp_path / "fit", n_pieces=5, **given)
    assert_same_bits(got, expected)
    assert_same_bits(shards.merge(tmp_path / "fit"), expected)
    other = ml.DiSMECClassifier(C=expected.C_, random_state=0).fit(X, data[1], **given)
    assert not np.array_equal(other.intercept_, expected.intercept_)  # the unknown entries make a difference


def test_names_of_labels(tmp_path, data):
    pandas = pytest.importorskip("pandas")
    X, Y = data
    frame = pandas.DataFrame(Y.toarray(), columns=[f"label {name}" for name in range(Y.shape[1])])
    expected = ml.DiSMECClassifier(**PLAIN).fit(X, frame)
    got = shards.fit(ml.DiSMECClassifier(**PLAIN), X, frame, checkpoint=tmp_path / "fit")
    assert got.label_names_.tolist() == expected.label_names_.tolist()
    got.save(tmp_path / "model")
    expected.save(tmp_path / "expected")
    assert (tmp_path / "model").read_bytes() == (tmp_path / "expected").read_bytes()
    renamed = frame.rename(columns={"label 3": "x"})
    with pytest.raises(ValueError, match="other label names"):
        shards.fit(ml.DiSMECClassifier(**PLAIN), X, renamed, checkpoint=tmp_path / "fit")


def test_any_number_of_pieces_and_threads(tmp_path, data):
    X, Y = data
    expected = ml.DiSMECClassifier(**PLAIN).fit(X, Y)
    for number, n_pieces in enumerate([1, 2, 19, 10_000, "auto"]):
        model = ml.DiSMECClassifier(**PLAIN, n_jobs=1 + number % 2)
        got = shards.fit(model, X, Y, checkpoint=tmp_path / str(n_pieces), n_pieces=n_pieces)
        assert_same_bits(got.set_params(n_jobs=None), expected)


def test_weights_and_one_label(tmp_path, data):
    X, Y = data
    weights = np.arange(X.shape[0]) % 3 / 2.0
    expected = ml.DiSMECClassifier(**PLAIN).fit(X, Y, weights)
    got = shards.fit(ml.DiSMECClassifier(**PLAIN), X, Y, weights, checkpoint=tmp_path / "a", n_pieces=3)
    assert_same_bits(got, expected)
    one = Y[:, [0]].toarray()[:, 0]
    expected = ml.DiSMECClassifier(**PLAIN).fit(X, one)
    got = shards.fit(ml.DiSMECClassifier(**PLAIN), X, one, checkpoint=tmp_path / "b")
    assert_same_bits(got, expected)
    assert np.array_equal(got.predict(X[:20]), expected.predict(X[:20]))


def test_names_of_features(tmp_path, data):
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame.sparse.from_spmatrix(data[0][:300]).add_prefix("word ")
    Y = data[1][:300]
    expected = ml.DiSMECClassifier(**PLAIN).fit(X, Y)
    got = shards.fit(ml.DiSMECClassifier(**PLAIN), X, Y, checkpoint=tmp_path)
    assert list(got.feature_names_in_) == list(expected.feature_names_in_)
    assert got.feature_names_in_.dtype == expected.feature_names_in_.dtype
    assert np.array_equal(got.decision_function(X), expected.decision_function(X))


def test_dense_features_with_the_logistic_loss(tmp_path, data):
    X, Y = np.asfortranarray(1 + data[0][:300].toarray()), data[1][:300]
    model = ml.DiSMECClassifier(**PLAIN, loss="logistic")
    got = shards.fit(model, X, Y, checkpoint=tmp_path / "logistic")
    assert_same_bits(got, model.fit(X, Y))


def test_a_folder_of_rows(tmp_path, data):
    dump_xc(*data, tmp_path / "data.txt")
    convert(tmp_path / "data.txt", tmp_path / "rows")
    expected = ml.DiSMECClassifier(**PLAIN).fit(*load_xc(tmp_path / "data.txt"))
    got = shards.fit(ml.DiSMECClassifier(**PLAIN), tmp_path / "rows", checkpoint=tmp_path / "fit", n_pieces=4)
    assert_same_bits(got, expected)


def test_machines_share_the_pieces(tmp_path, data):
    X, Y = data
    expected = ml.DiSMECClassifier(**PLAIN).fit(X, Y)
    fitted = []
    for number in (2, 3, 1):
        before = set(tmp_path.glob("piece-*.npz"))
        model = shards.fit(
            ml.DiSMECClassifier(**PLAIN), X, Y, checkpoint=tmp_path, n_pieces=7, piece=(number, 3)
        )
        fitted.append(len(set(tmp_path.glob("piece-*.npz")) - before))
        if number != 1:
            assert model is None
            with pytest.raises(ValueError, match=r"of 7 pieces are missing; the first is piece-000000\.npz"):
                shards.merge(tmp_path)
    assert fitted == [2, 2, 3]
    assert_same_bits(model, expected)


def test_a_drawn_seed_is_kept(tmp_path, data):
    X, Y = data
    model = ml.DiSMECClassifier(C=1.0)
    shards.fit(model, X, Y, checkpoint=tmp_path, n_pieces=4, piece=(1, 2))
    got = shards.fit(model, X, Y, checkpoint=tmp_path, n_pieces=4, piece=(2, 2))
    assert got.random_state is None
    seed = json.loads((tmp_path / "fit.json").read_text())["seed"]
    expected = ml.DiSMECClassifier(C=1.0, random_state=seed).fit(X, Y)
    assert_same_bits(got.set_params(random_state=seed), expected)


def test_folders_of_other_fits_are_refused(tmp_path, data, monkeypatch):
    X, Y = data
    model = ml.DiSMECClassifier(**PLAIN)
    shards.fit(model, X, Y, checkpoint=tmp_path / "fit", n_pieces=3)
    before = {path: path.read_bytes() for path in (tmp_path / "fit").iterdir()}
    other_x, other_y = X.copy(), Y.copy()
    other_x.data[17] += 1
    other_y.indices[0] += 1
    other_y.has_canonical_format = False

    def refused(message, model=model, X=X, Y=Y, weights=None, n_pieces=3, propensities=None):
        options = {"n_pieces": n_pieces, "propensities": propensities}
        with pytest.raises(ValueError, match=message):
            shards.fit(model, X, Y, weights, checkpoint=tmp_path / "fit", **options)

    refused("other parameters: `C` was 1.0, now it is 2.0", ml.DiSMECClassifier(C=2.0, random_state=0))
    refused("another random_state: it was 0, now it is 1", ml.DiSMECClassifier(C=1.0, random_state=1))
    refused("another (seed|random_state)", ml.DiSMECClassifier(C=1.0))
    refused("another X", X=other_x)
    refused("another Y", Y=other_y)
    refused("another number of rows", X=X[:-1], Y=Y[:-1])
    refused("Y in another form", Y=Y.toarray())
    refused("another Y", Y=with_unknown(Y))
    refused("another `label_weight`", propensities=np.full(Y.shape[1], 0.5))
    refused("other sample weights", weights=np.full(X.shape[0], 2.0))
    refused("another number of pieces: it was 3, now it is 4", n_pieces=4)
    monkeypatch.setattr(shards, "cpu_type", lambda: "abacus")
    refused("another type of CPU")
    again = shards.fit(model, X, Y, checkpoint=tmp_path / "fit", n_pieces=3, any_cpu=True)
    assert again.coef_.nnz
    assert {path: path.read_bytes() for path in (tmp_path / "fit").iterdir()} == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    with pytest.raises(ValueError, match="the folder must be empty or written by"):
        shards.fit(model, X, Y, checkpoint=tmp_path / "mine")


def test_arguments(tmp_path, data):
    X, Y = data
    model = ml.DiSMECClassifier(**PLAIN)
    for piece in [(0, 1), (2, 1), (1,), "1/2", (1.0, 2)]:
        with pytest.raises(ValueError, match="`piece` must be a pair"):
            shards.fit(model, X, Y, checkpoint=tmp_path, piece=piece)
    for n_pieces in [0, "many", True]:
        with pytest.raises(ValueError, match="`n_pieces` must be"):
            shards.fit(model, X, Y, checkpoint=tmp_path, n_pieces=n_pieces)
    with pytest.raises(TypeError, match="the fit of LEMLClassifier cannot be divided into pieces"):
        shards.fit(ml.LEMLClassifier(), X, Y, checkpoint=tmp_path)
    with pytest.raises(TypeError, match="`random_state` must be None or an integer"):
        shards.fit(model.set_params(random_state=np.random.RandomState(0)), X, Y, checkpoint=tmp_path)
    with pytest.raises(ValueError, match="`Y` must be None"):
        shards.fit(ml.DiSMECClassifier(), tmp_path, Y, checkpoint=tmp_path)
    for wrong in ({"propensities": [0.5]}, {"label_weight": np.zeros(Y.shape[1])}):
        with pytest.raises(ValueError, match=f"`{next(iter(wrong))}` must"):
            shards.fit(ml.DiSMECClassifier(), X, Y, checkpoint=tmp_path / "no", **wrong)
    with pytest.raises(ValueError, match="`tol` must be"):
        shards.fit(ml.DiSMECClassifier(tol=-1), X, Y, checkpoint=tmp_path / "no")
    with pytest.raises(FileNotFoundError, match=r"no'$"):
        shards.merge(tmp_path / "no")
    (tmp_path / "other").mkdir()
    with pytest.raises(ValueError, match=r"other: expected a folder that `shards.fit` has written"):
        shards.merge(tmp_path / "other")
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match=r"file'$"):
        shards.merge(tmp_path / "file")


def test_damaged_pieces_are_refused(tmp_path, data):
    X, Y = data
    shards.fit(ml.DiSMECClassifier(**PLAIN), X, Y, checkpoint=tmp_path, n_pieces=3)
    path = tmp_path / "piece-000001.npz"
    whole = path.read_bytes()
    for content in (b"", whole[:1000], whole[:3000] + b"\xff\xff" + whole[3002:]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"piece-000001.npz: the file is damaged"):
            shards.merge(tmp_path)
    path.unlink()
    got = shards.fit(ml.DiSMECClassifier(**PLAIN), X, Y, checkpoint=tmp_path, n_pieces=3)
    assert_same_bits(got, ml.DiSMECClassifier(**PLAIN).fit(X, Y))


def test_errors_name_the_piece_and_keep_the_others(tmp_path, data):
    X, Y = data

    def stop(done):
        if done > 100:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough") as error:
        shards.fit(ml.DiSMECClassifier(**PLAIN), X, Y, checkpoint=tmp_path, n_pieces=13, progress=stop)
    if sys.version_info >= (3, 11):
        assert re.fullmatch(r"while fitting piece-\d{6}\.npz, one of 13 pieces", error.value.__notes__[0])
    n_finished = len(list(tmp_path.glob("piece-*.npz")))
    assert 0 < n_finished < 13
    got = shards.fit(ml.DiSMECClassifier(**PLAIN), X, Y, checkpoint=tmp_path, n_pieces=13)
    assert_same_bits(got, ml.DiSMECClassifier(**PLAIN).fit(X, Y))


def test_labels_that_do_not_converge(tmp_path, data):
    X, Y = data
    with pytest.warns(ConvergenceWarning, match="labels did not converge in max_iter=1 steps"):
        shards.fit(ml.DiSMECClassifier(**PLAIN, max_iter=1), X, Y, checkpoint=tmp_path)


def files_in(folder):
    return {os.path.join(path, name) for path, _, names in os.walk(folder) for name in names}


def fit_and_save(model, rows, folder, path):
    shards.fit(model, *rows, checkpoint=folder, n_pieces=13).save(path)


@posix_only
@forks
@pytest.mark.parametrize(
    "model",
    [
        ml.DiSMECClassifier(random_state=0),
        ml.LabelTreeClassifier(max_leaf=9, branching=6, random_state=0),
        ml.Rembrandt(200, solver="cg", random_state=0),
        ml.CorrLogClassifier(1e-3, 1e-3, threshold="zero", solver="fista", tol=1e-6),
    ],
    ids=["DiSMECClassifier", "LabelTreeClassifier", "Rembrandt", "CorrLogClassifier"],
)
def test_killed_at_twenty_random_moments(tmp_path, data, monkeypatch, model):
    """Each kill loses at most the current piece or round, and the model file is the same, byte for byte."""
    monkeypatch.setattr(rounds, "_SECONDS", 0.0)
    clone(model).fit(*data).save(tmp_path / "expected")
    context = multiprocessing.get_context("fork")
    rng = np.random.default_rng(0)
    n_kills, n_fits = 0, 0
    while n_kills < 20:
        folder = tmp_path / f"fit {n_fits}"
        while True:
            before, files = len(list(folder.glob("piece-*.npz"))), files_in(folder)
            child = context.Process(target=fit_and_save, args=(model, data, folder, tmp_path / "model"))
            begun = time.monotonic()
            child.start()
            # Every second kill waits for a new file, such as a piece or a round. On a busy machine, the
            # other kills may all come before the first file.
            await_file = n_kills % 2 == 1
            while child.is_alive() and not (
                files_in(folder) - files if await_file else (folder / "fit.json").exists()
            ):
                time.sleep(0.001)
            if n_kills < 20 and child.is_alive():
                longest = 0.01 if await_file else max(0.1, 0.7 * (time.monotonic() - begun))
                time.sleep(rng.uniform(0, longest))
                if child.is_alive():
                    child.kill()
                    n_kills += 1
            child.join(100)
            if child.exitcode == 0:
                break
            assert child.exitcode == -signal.SIGKILL
            assert len(list(folder.glob("piece-*.npz"))) >= before
        assert (tmp_path / "model").read_bytes() == (tmp_path / "expected").read_bytes()
        n_fits += 1
    assert not list(folder.glob("*.tmp"))


def fit_with_small_files(pipe, data, folder, limit):
    """Fit in a child whose files may have at most `limit` bytes, and send the number of the error."""
    import resource  # POSIX only

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write then fails with an error
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        shards.fit(ml.DiSMECClassifier(**PLAIN), *data, checkpoint=folder, n_pieces=3)
    except OSError as error:
        pipe.send(error.errno)
    else:
        pipe.send("fitted")


@pytest.mark.skipif(sys.platform == "win32", reason="needs RLIMIT_FSIZE")
@forks
def test_files_that_cannot_be_written(tmp_path, data):
    """No partly written file remains, and the same call continues when there is space."""
    X, Y = data
    # Pieces have 43,572, 59,000 and 95,504 bytes.
    for limit, n_finished in ((5000, 0), (75_000, 2)):
        with forked(fit_with_small_files, data, tmp_path / "fit", limit) as (receiver, _):
            assert receiver.recv() == errno.EFBIG
        assert not list((tmp_path / "fit").glob(".*"))
        assert len(list((tmp_path / "fit").glob("piece-*.npz"))) == n_finished
    got = shards.fit(ml.DiSMECClassifier(**PLAIN), X, Y, checkpoint=tmp_path / "fit", n_pieces=3)
    assert_same_bits(got, ml.DiSMECClassifier(**PLAIN).fit(X, Y))


def test_a_full_disk(tmp_path, data):
    """Like `test_files_that_cannot_be_written`, on a small file system."""
    X, Y = data
    (tmp_path / "disk").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=60k", "tmpfs", str(tmp_path / "disk")]
    if sys.platform != "linux" or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("the process may not mount a file system")
    try:
        with pytest.raises(OSError, match="No space left on device"):
            shards.fit(ml.DiSMECClassifier(**PLAIN), X, Y, checkpoint=tmp_path / "disk", n_pieces=13)
        n_finished = len(list((tmp_path / "disk").glob("piece-*.npz")))
        assert 0 < n_finished < 13
        subprocess.run([*mount[:4], "remount,size=9M", *mount[5:]], check=True)
        got = shards.fit(ml.DiSMECClassifier(**PLAIN), X, Y, checkpoint=tmp_path / "disk", n_pieces=13)
    finally:
        subprocess.run(["umount", str(tmp_path / "disk")], check=True)
    assert_same_bits(got, ml.DiSMECClassifier(**PLAIN).fit(X, Y))


def test_pieces_of_other_fits_are_refused(tmp_path, data):
    X, Y = data
    for C in (1.0, 2.0):
        shards.fit(ml.DiSMECClassifier(C, random_state=0), X, Y, checkpoint=tmp_path / str(C), n_pieces=3)
    name = "piece-000001.npz"
    whole = (tmp_path / "1.0" / name).read_bytes()
    for other in ("2.0/" + name, "1.0/piece-000000.npz"):
        (tmp_path / "1.0" / name).write_bytes((tmp_path / other).read_bytes())
        with pytest.raises(ValueError, match=rf"{name}: the file belongs to another fit or is another piece"):
            shards.merge(tmp_path / "1.0")
    (tmp_path / "1.0" / name).write_bytes(whole)
    shards.merge(tmp_path / "1.0")


def test_damaged_descriptions_are_refused(tmp_path, data):
    X, Y = data
    shards.fit(ml.DiSMECClassifier(1.0, random_state=0), X, Y, checkpoint=tmp_path, n_pieces=2)
    description = (tmp_path / "fit.json").read_text()
    for text in ("", "{", "3", description.replace("feature_names", "feature_namer")):
        (tmp_path / "fit.json").write_text(text)
        with pytest.raises(ValueError, match=r"fit.json is damaged"):
            shards.merge(tmp_path)
    (tmp_path / "fit.json").write_text("{}")
    with pytest.raises(ValueError, match=r"fit.json was not written by this version"):
        shards.merge(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"n_pieces": 1.5}, ValueError, "`n_pieces` must be an integer >= 1"),
        ({"n_pieces": None}, ValueError, "`n_pieces` must be an integer >= 1"),
        ({"piece": (True, True)}, ValueError, "`piece` must be a pair"),
        ({"checkpoint": None}, TypeError, "`checkpoint` must be the path of a folder, got NoneType"),
        ({"checkpoint": ""}, ValueError, "`checkpoint` must be the path of a folder, got an empty path"),
        ({"estimator": ml.DiSMECClassifier}, TypeError, "instance, got the class DiSMECClassifier"),
    ],
)
def test_wrong_arguments(tmp_path, data, arguments, error, message):
    X, Y = data
    given = {"estimator": ml.DiSMECClassifier(1.0), "X": X, "Y": Y, "checkpoint": tmp_path} | arguments
    with pytest.raises(error, match=message):
        shards.fit(**given)
