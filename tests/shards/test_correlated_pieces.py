"""Fits of `CorrLogClassifier` in rounds give the bits of one fit, also if processes share the rounds."""

import os
import threading
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

import manylabel as ml
from fitted_in_pieces import saved, with_empty_columns
from manylabel import rounds, shards
from manylabel.correlated import pieces
from manylabel.datasets import convert, dump_xc, load_xc
from manylabel.rounds import _packed

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

# With given penalties and a given threshold, nothing is chosen on held-out rows.
GIVEN = {"l2_features": 1e-3, "l2_pairs": 1e-3, "threshold": "zero"}
VARIANTS = {
    "auto": {},
    "fista": GIVEN | {"solver": "fista", "threshold": 0.5, "max_iter": 40},
    "double": GIVEN | {"tol": 1e-7, "standardize": True},
    "no couplings": GIVEN | {"l2_pairs": np.inf},
    "no l1": {"epsilon": 0.0, "l2_features": 0.1, "coding": "pm1", "tol": 1e-3},
    "reference": GIVEN | {"solver": "reference", "max_iter": 30},
    "not converged": GIVEN | {"max_iter": 27, "tol": 1e-9},
}


@pytest.fixture(scope="module")
def data():
    return with_empty_columns(300, 30, 100)


def labels(data, variant):
    """Return fewer labels for some variants. Up to 16 labels have narrow panels, and all their couplings."""
    return data[1][:, :14] if variant in ("auto", "double", "no l1", "reference") else data[1]


@pytest.mark.parametrize("variant", VARIANTS)
def test_same_bits_as_one_fit(tmp_path, data, variant):
    X, Y = data[0], labels(data, variant)
    weights = 1 + np.arange(X.shape[0]) % 2
    expected = ml.CorrLogClassifier(**VARIANTS[variant]).fit(X, Y, weights)
    model = ml.CorrLogClassifier(**VARIANTS[variant], n_jobs=2)
    for name, options in {
        "alone": {},
        # The other two processes never start, so this one also computes their parts of each round.
        "third": {"piece": (2, 3), "n_pieces": 5},
    }.items():
        got = shards.fit(model, X, Y, weights, checkpoint=tmp_path / name, **options)
        assert not hasattr(model, "coef_")
        assert saved(got.set_params(n_jobs=None), tmp_path / "got") == saved(expected, tmp_path / "expected")
        assert saved(shards.merge(tmp_path / name), tmp_path / "got") == saved(
            expected, tmp_path / "expected"
        )
        assert not (tmp_path / name / "rounds").exists()


def test_forms_of_data(tmp_path, data):
    X, Y = data[0], data[1][:, :14].astype(np.float32)
    unknown = Y.copy()
    unknown.data[::5] = np.nan
    dump_xc(X, Y, tmp_path / "data.txt")
    convert(tmp_path / "data.txt", tmp_path / "rows")
    for name, (features, targets) in {
        "unknown": (X, unknown),
        "dense": (X.toarray(), Y.toarray()),
        "mostly nonzero": (np.asfortranarray(1 + X.toarray()), Y),
        "column": (X, Y[:, [0]].toarray()[:, 0]),
        "constant": (X, sparse.csr_array(np.ones((300, 2)))),
        "folder": (tmp_path / "rows", None),
    }.items():
        rows = load_xc(tmp_path / "data.txt") if targets is None else (features, targets)
        expected = ml.CorrLogClassifier(**GIVEN).fit(*rows)
        got = shards.fit(ml.CorrLogClassifier(**GIVEN), features, targets, checkpoint=tmp_path / name)
        assert saved(got, tmp_path / "got") == saved(expected, tmp_path / "expected"), name


def store_after_each_round(monkeypatch):
    monkeypatch.setattr(rounds, "_SECONDS", 0.0)
    monkeypatch.setattr(rounds, "_SHARE_OF_STORING", np.inf)


def test_a_fit_continues_from_its_last_state(tmp_path, data, monkeypatch):
    """Each call ends with an error after its third state, until a call finds little to do."""
    X, Y = data
    model = ml.CorrLogClassifier(**GIVEN)
    expected = ml.CorrLogClassifier(**GIVEN).fit(X, Y)
    store_after_each_round(monkeypatch)
    starts = []
    restore, store = pieces._Rounds.restore, rounds.SharedRounds._store
    n_stored = 0

    def restored(self, state, report):
        restore(self, state, report)
        starts.append(self.n_rounds)

    def stored(self):
        nonlocal n_stored
        store(self)
        n_stored += 1
        if n_stored == 3:
            raise OSError("enough")

    monkeypatch.setattr(pieces._Rounds, "restore", restored)
    monkeypatch.setattr(rounds.SharedRounds, "_store", stored)
    n_calls = 0
    while True:
        n_stored = 0
        try:
            got = shards.fit(model, X, Y, checkpoint=tmp_path / "fit")
        except OSError:
            assert len(list(tmp_path.glob("fit/rounds/*"))) == 1
            with pytest.raises(ValueError, match="1 of 1 pieces are missing"):
                shards.merge(tmp_path / "fit")
            n_calls += 1
        else:
            break
    assert saved(got, tmp_path / "got") == saved(expected, tmp_path / "expected")
    assert starts == [3 * n for n in range(1, n_calls + 1)]
    assert len(starts) > 5


@pytest.mark.parametrize("stores", [False, True])
def test_processes_share_the_rounds(tmp_path, data, monkeypatch, stores):
    X, Y = data
    model = ml.CorrLogClassifier(**GIVEN, solver="fista", max_iter=20)
    expected = saved(ml.CorrLogClassifier(**model.get_params()).fit(X, Y), tmp_path / "expected")
    n_units = {}
    compute = pieces._Rounds.compute

    # On a busy machine, a thread can be late. Both begin together, and then wait long for each other.
    begin = threading.Barrier(2)

    def counted(self, first, end, report):
        name = threading.current_thread().name
        if name in ("1", "2") and name not in n_units:
            begin.wait(timeout=60)
        n_units[name] = n_units.get(name, 0) + end - first
        return compute(self, first, end, report)

    monkeypatch.setattr(pieces._Rounds, "compute", counted)
    monkeypatch.setattr(rounds, "_PATIENCE", 60.0)
    models = {}

    def run(folder, piece):
        models[piece] = shards.fit(model, X, Y, checkpoint=tmp_path / folder, piece=piece, n_pieces=4)

    run("alone", (1, 2))
    (total,) = n_units.values()
    n_units.clear()
    if stores:
        monkeypatch.setattr(rounds, "_SECONDS", 0.02)
    threads = [threading.Thread(target=run, args=("shared", (i, 2)), name=str(i)) for i in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(models) == 2
    assert set(n_units) == {"1", "2"}
    assert sum(n_units.values()) < 2 * total
    for fitted in models.values():
        assert saved(fitted, tmp_path / "got") == expected


@pytest.mark.parametrize("error", [FileExistsError, FileNotFoundError])
def test_another_process_removes_the_folder_of_a_round(tmp_path, data, monkeypatch, error):
    """It removes the folder at the moment when this process makes it, or removes the folder above."""
    model = ml.CorrLogClassifier(**GIVEN, max_iter=5)
    expected = saved(ml.CorrLogClassifier(**model.get_params()).fit(*data), tmp_path / "expected")
    make, n_removed = os.mkdir, 0

    def removed(path, *args):
        nonlocal n_removed
        if Path(path).parent.name == "rounds":
            n_removed += 1
            raise error(path)
        make(path, *args)

    monkeypatch.setattr(os, "mkdir", removed)
    got = shards.fit(model, *data, checkpoint=tmp_path / "fit", piece=(1, 2), n_pieces=3)
    monkeypatch.undo()
    assert n_removed > 1
    assert saved(got, tmp_path / "got") == expected


def test_short_rounds_are_not_shared(tmp_path, data, monkeypatch):
    monkeypatch.setattr(pieces._Rounds, "compute", None)  # an error if it is called
    got = shards.fit(ml.CorrLogClassifier(**GIVEN), *data, checkpoint=tmp_path / "fit", piece=(1, 2))
    assert got.n_iter_ > 1


def test_the_first_choice_counts(tmp_path, data, monkeypatch):
    """Two processes choose at the same time. On different CPUs, their values may differ."""
    model = ml.CorrLogClassifier(**GIVEN, max_iter=5)
    expected = saved(ml.CorrLogClassifier(**model.get_params()).fit(*data), tmp_path / "expected")
    first, second = (
        shards.Work(model, *data, None, tmp_path / "fit", "auto", any_cpu=True) for _ in range(2)
    )
    choose = pieces.CorrLogPieces.choose

    def choose_later(*args):
        monkeypatch.setattr(pieces.CorrLogPieces, "choose", choose)
        first.choose(lambda _: None)
        return choose(*args) | {"l2_features": np.asarray(2e-3)}

    monkeypatch.setattr(pieces.CorrLogPieces, "choose", choose_later)
    second.choose(lambda _: None)
    second.fit([0], lambda _: None)
    assert saved(second.join(), tmp_path / "got") == expected


def test_damaged_files(tmp_path, data, monkeypatch):
    X, Y = data
    model = ml.CorrLogClassifier(**GIVEN, max_iter=5)
    expected = saved(ml.CorrLogClassifier(**model.get_params()).fit(X, Y), tmp_path / "expected")
    for number in range(20):
        folder = tmp_path / "results" / "rounds" / f"{number:08}"
        folder.mkdir(parents=True)
        whole = b"".join(part.tobytes() for part in _packed({2: np.zeros(9, dtype=np.uint8)}))
        # The files are too short, cut off, or have a wrong byte.
        damaged = [whole[:9], whole[:-1], whole[:-1] + b"x"][number % 3]
        (folder / "1-2.bin").write_bytes(damaged)
    (tmp_path / "results" / "rounds").rename(tmp_path / "damaged")
    (tmp_path / "results").rmdir()
    fit = {"checkpoint": tmp_path / "results", "n_pieces": 4, "piece": (1, 2)}
    choose = shards.Work.choose

    def with_results(self, report):
        choose(self, report)
        if (tmp_path / "damaged").exists():
            (tmp_path / "damaged").rename(tmp_path / "results" / "rounds")

    monkeypatch.setattr(shards.Work, "choose", with_results)
    assert saved(shards.fit(model, X, Y, **fit), tmp_path / "got") == expected
    (tmp_path / "results" / "piece-000000.npz").unlink()
    (tmp_path / "results" / "rounds").mkdir()
    state = tmp_path / "results" / "rounds" / "state-00000007.npz"
    state.write_bytes(b"PK")
    with pytest.raises(ValueError, match=r"state-00000007.npz: the file is damaged"):
        shards.fit(model, X, Y, **fit)
    np.savez(state, state=np.zeros(20, dtype=np.uint8))
    with pytest.raises(ValueError, match="`checkpoint` must be a folder with files of the same fit"):
        shards.fit(model, X, Y, **fit)
    state.unlink()
    assert saved(shards.fit(model, X, Y, **fit), tmp_path / "got") == expected


def test_what_is_refused(tmp_path, data):
    X, Y = data
    fit = {"checkpoint": tmp_path / "fit"}
    shards.fit(ml.CorrLogClassifier(**GIVEN), X, Y, **fit)
    for params, message in [
        ({"tol": 1e-3}, "other parameters: `tol` was 0.0001, now it is 0.001"),
        ({"l2_pairs": np.inf}, "other parameters: `l2_pairs` was 0.001, now it is {'float': 'inf'}"),
    ]:
        with pytest.raises(ValueError, match=message):
            shards.fit(ml.CorrLogClassifier(**GIVEN | params), X, Y, **fit)
    with pytest.raises(ValueError, match="another Y"):
        shards.fit(ml.CorrLogClassifier(**GIVEN), X, Y[:, ::-1], **fit)
    with pytest.raises(TypeError, match="`label_weight` and `propensities` must be None"):
        shards.fit(ml.CorrLogClassifier(), X, Y, checkpoint=tmp_path / "c", label_weight=np.full(100, 2.0))
    with pytest.raises(ValueError, match='`coding` must be "01" for the solver "reference"'):
        shards.fit(ml.CorrLogClassifier(coding="pm1", solver="reference"), X, Y, checkpoint=tmp_path / "p")


def test_fits_that_do_not_converge(tmp_path, data):
    with pytest.warns(ConvergenceWarning, match="did not converge in 3 gradient evaluations"):
        shards.fit(ml.CorrLogClassifier(**GIVEN, max_iter=3), *data, checkpoint=tmp_path)
