"""Fits on a Dask cluster give the same bits as a plain fit, also if workers die or join."""

import os
import signal
import tempfile
import threading
import time

import numpy as np
import pytest
from sklearn.base import clone

import manylabel as ml
from children import posix_only
from manylabel import metrics, shards
from manylabel.datasets import convert, dump_xc, load_xc, make_multilabel, open_rows

distributed = pytest.importorskip("distributed", reason="manylabel.dask needs the package distributed")

import dask  # noqa: E402  distributed needs it
import manylabel.dask  # noqa: E402  needs distributed

# distributed leaves sockets and event loops open when processes are killed.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

N_PIECES = 19


@pytest.fixture(scope="module", autouse=True)
def workers_that_are_forked():
    """Fork workers from a process that has imported everything, because imports take longer than the fits."""
    if os.name != "posix":
        yield
        return
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        context = distributed.utils.get_mp_context()
        context.set_forkserver_preload(["distributed.nanny", "distributed.worker", "manylabel.dask"])
        yield


def cluster(n_workers, threads=1):
    return distributed.LocalCluster(
        n_workers=n_workers,
        threads_per_worker=threads,
        processes=True,
        dashboard_address=None,
        silence_logs=50,
    )


@pytest.fixture(scope="module")
def two():
    """A client of a cluster with two workers. It is not the current client."""
    with cluster(2) as workers, distributed.Client(workers, set_as_default=False) as client:
        yield client


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """X and Y, the folder with the same rows, and a plain fit."""
    folder = tmp_path_factory.mktemp("dask")
    dump_xc(*make_multilabel(3000, 150, 300, random_state=2), folder / "data.txt")
    convert(folder / "data.txt", folder / "rows")
    X, Y = load_xc(folder / "data.txt")
    for name in ("X.npy", "weights.npy"):  # files of the user, which are not used
        np.save(folder / "rows" / name, np.ones((3000, 150)))
    plain = ml.DiSMECClassifier(random_state=0).fit(X, Y)
    plain.save(folder / "model")
    return X, Y, folder, plain


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """X and Y with fewer rows and labels, and the folder with the same rows."""
    folder = tmp_path_factory.mktemp("few")
    dump_xc(*make_multilabel(600, 60, 80, random_state=2), folder / "data.txt")
    convert(folder / "data.txt", folder / "rows")
    return *load_xc(folder / "data.txt"), folder


def assert_same_bits(model, folder, tmp_path):
    model.save(tmp_path / "mine")
    assert (tmp_path / "mine").read_bytes() == (folder / "model").read_bytes()


@pytest.mark.parametrize("n_workers", [1, 3])
def test_any_number_of_workers(tmp_path, data, n_workers):
    _, _, folder, _ = data
    model = ml.DiSMECClassifier(random_state=0)
    with cluster(n_workers, threads=3 - min(n_workers, 2)) as workers, distributed.Client(workers):
        got = ml.dask.fit(model, folder / "rows", n_pieces=N_PIECES)
    assert not hasattr(model, "coef_")
    assert_same_bits(got, folder, tmp_path)


@pytest.mark.parametrize(
    "form",
    [
        "memory",
        "dense X",
        "dense Y",
        "float64",
        "weights",
        "dask",
        "dense dask",
        "weights, dense dask",
        "logistic loss, dense dask",
        "unknown entries",
        "unknown entries in dask",
    ],
)
def test_forms_of_data(two, tmp_path, few, form, monkeypatch):
    X, Y, _ = few
    n_rows = X.shape[0]
    weights = None
    if form == "dense X":
        X, weights = np.asfortranarray(X.toarray(), dtype=np.float16), np.arange(n_rows) % 3 / 2.0
    elif form == "dense Y":
        Y = Y.toarray()
    elif form == "float64":
        X = X.astype(np.float64) * 1.1
    elif form == "weights":
        weights = np.arange(n_rows) % 3 / 2.0
    elif form.endswith("dense dask"):
        weights = np.arange(n_rows) % 3 / 2.0 if form.startswith("weights") else None
        X = dense = X.toarray() + np.float32(0.5)
    costs = {}
    if form.startswith("unknown"):
        Y = Y.astype(np.float32)
        Y.data[::5] = np.nan
        costs = {"propensities": np.linspace(0.3, 1, Y.shape[1]), "label_weight": np.full(Y.shape[1], 2.0)}
    model = ml.DiSMECClassifier(C=1.0, random_state=0)
    if form.startswith("logistic"):
        model.set_params(loss="logistic", normalize="rows")
    expected = clone(model).fit(X, Y, weights, **costs)
    if form.endswith("dask"):
        from_rows = pytest.importorskip("dask.array").map_blocks
        import dask.array

        rows = dask.array.from_array(np.arange(n_rows)[:, None], chunks=(140, 1))

        def of(matrix):
            return from_rows(
                lambda at: matrix[at[:, 0]] if at.size else matrix[:0],
                rows,
                dtype=matrix.dtype,
                chunks=(rows.chunks[0], (matrix.shape[1],)),
                meta=matrix[:0],
            )

        X, Y = of(X), of(Y)
    checkpoint = tmp_path / "fit"
    if form == "dask":
        checkpoint = None
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
        (tmp_path / "temporary").mkdir()
    got = ml.dask.fit(model, X, Y, weights, client=two, checkpoint=checkpoint, n_pieces=5, **costs)
    assert form != "dask" or not list((tmp_path / "temporary").iterdir())
    if form == "dense dask":
        # Neither the client nor the workers write another copy of X.
        assert [path.parent.name for path in tmp_path.rglob("X.*.npy")] == ["fit-data"]
        np.testing.assert_array_equal(open_rows(tmp_path / "fit-data")[0], dense)
    got.save(tmp_path / "got")
    expected.save(tmp_path / "expected")
    assert (tmp_path / "got").read_bytes() == (tmp_path / "expected").read_bytes()


@posix_only
def test_workers_are_killed_and_join(tmp_path, data):
    """For each kind of pieces, a worker is killed while it fits a piece, and another worker joins."""
    X, Y, folder, plain = data
    # Each fit has one more worker than the fit before. The fits that many workers slow down come first.
    fits = {
        "rounds": (
            ml.CorrLogClassifier(1e-3, 1e-3, threshold="zero", solver="fista", max_iter=40, tol=1e-7),
            None,
            4,
        ),
        "components": (
            ml.Rembrandt(200, solver="cg", n_iter=2, random_state=0),
            None,
            5,
        ),
        "nodes": (ml.LabelTreeClassifier(C=1.0, max_leaf=9, branching=6, random_state=0), None, 20),
        "labels": (ml.DiSMECClassifier(random_state=0), plain, N_PIECES),
        "blocks": (
            ml.BlockPartitionClassifier(ml.DiSMECClassifier(C=1.0), n_blocks=6, lam=1.0, random_state=0),
            None,
            6,
        ),
    }
    n_workers, counted = 2, {}
    with cluster(n_workers) as workers, distributed.Client(workers) as client:
        for kind, (model, expected, n_pieces) in fits.items():
            checkpoint = tmp_path / kind

            def kill(kind=kind, checkpoint=checkpoint, n_workers=n_workers):
                pids = list(client.run(os.getpid).values())
                begun = "rounds/00000009" if kind == "rounds" else "piece-*.npz"
                while not list(checkpoint.glob(begun)):
                    time.sleep(0.005)
                os.kill(pids[0], signal.SIGKILL)
                counted[kind] = len(list(checkpoint.glob("piece-*.npz")))
                workers.scale(n_workers + 1)

            thread = threading.Thread(target=kill)
            thread.start()
            got = ml.dask.fit(model, folder / "rows", checkpoint=checkpoint, n_pieces=n_pieces)
            thread.join()
            n_workers += 1
            assert counted[kind] < shards.Folder(checkpoint).n_pieces
            if expected is None:
                expected = type(model)(**model.get_params(deep=False)).fit(X, Y)
            expected.save(tmp_path / "expected")
            got.save(tmp_path / "got")
            assert (tmp_path / "got").read_bytes() == (tmp_path / "expected").read_bytes()


def test_the_scheduler_is_restarted(tmp_path, data):
    """The first cluster is closed during the fit. A second cluster finishes the fit from the checkpoint."""
    _, _, folder, _ = data
    model = ml.DiSMECClassifier(random_state=0)
    fit = {"checkpoint": tmp_path / "fit", "n_pieces": N_PIECES}
    failed = []
    with cluster(1) as workers:
        client = distributed.Client(workers)

        def run():
            try:
                ml.dask.fit(model, folder / "rows", client=client, **fit)
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        while not list((tmp_path / "fit").glob("piece-*.npz")):
            time.sleep(0.01)
        client.close()
        thread.join()
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "fit").glob("piece-*.npz")}
    assert failed
    assert 0 < len(before) < N_PIECES
    with cluster(2) as workers, distributed.Client(workers) as client:
        got = ml.dask.fit(model, folder / "rows", client=client, **fit)
    assert_same_bits(got, folder, tmp_path)
    assert all(path.stat().st_mtime_ns == then for path, then in before.items())


def test_a_piece_that_fails(two, tmp_path, data):
    """The error of the piece itself is raised."""
    X, Y, _, _ = data
    model = ml.DiSMECClassifier(C=1e30, random_state=0)
    with pytest.raises(ValueError, match="`C` must be small enough that 2"):
        ml.dask.fit(model, X, Y, client=two, checkpoint=tmp_path / "fit")


def test_another_type_of_cpu_is_refused(two, tmp_path, data, monkeypatch):
    _, _, folder, _ = data
    monkeypatch.setattr(shards, "cpu_type", lambda: "abacus")
    model = ml.DiSMECClassifier(random_state=0)
    with pytest.raises(ValueError, match="the fit was begun with abacus"):
        ml.dask.fit(model, folder / "rows", client=two, checkpoint=tmp_path / "fit")
    got = ml.dask.fit(model, folder / "rows", client=two, checkpoint=tmp_path / "fit", any_cpu=True)
    assert_same_bits(got, folder, tmp_path)


@posix_only
def test_ctrl_c_cancels_the_pieces(two, tmp_path, data):
    _, _, folder, _ = data
    model = ml.DiSMECClassifier(random_state=0, solver="exact", tol=1e-9, max_iter=100_000, C=100.0)
    ended = threading.Event()

    def executing():
        return two.run(lambda dask_worker: dask_worker.state.executing_count).values()

    def interrupt():
        longest = time.monotonic() + 20  # one worker may have both pieces
        while not ended.is_set():
            if all(executing()) or time.monotonic() > longest:
                os.kill(os.getpid(), signal.SIGALRM)
                return
            time.sleep(0.02)

    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            ml.dask.fit(model, folder / "rows", client=two, checkpoint=tmp_path / "fit", n_pieces=2)
    finally:
        ended.set()
        thread.join()
        signal.signal(signal.SIGALRM, previous)
    begun = time.monotonic()
    assert two.submit(lambda: 1, pure=False).result(timeout=30) == 1
    while any(executing()):
        assert time.monotonic() - begun < 10, "the workers still fit the pieces"
        time.sleep(0.1)


def test_predictions_and_measures(two, data, monkeypatch):
    X, Y, folder, plain = data
    monkeypatch.setattr(ml.dask, "_ROWS", 3000)
    top = ml.dask.predict_topk(folder / "model", folder / "rows", k=4, client=two)
    expected = plain.predict_topk(X, k=4)
    assert np.array_equal(top.indptr, expected.indptr)
    assert np.array_equal(top.indices, expected.indices)
    assert np.array_equal(top.data, expected.data)
    propensities = metrics.propensities(Y)
    found = ml.dask.evaluate(folder / "model", folder / "rows", (1, 3), propensities=propensities, client=two)
    top = plain.predict_topk(open_rows(folder / "rows")[0], k=3)
    assert found["P@1"] == metrics.precision_at_k(Y, top, 1)
    assert found["PSP@3"] == metrics.psp_at_k(Y, top, propensities, 3)
    assert set(found) == {f"{name}@{k}" for name in ("P", "nDCG", "R", "PSP", "PSnDCG") for k in (1, 3)}


def test_measures_leave_out_unknown_entries(two, tmp_path, data):
    X, Y, folder, plain = data
    Y = Y.astype(np.float32)
    Y.data[::3] = np.nan
    dump_xc(X, Y, tmp_path / "data.txt")
    convert(tmp_path / "data.txt", tmp_path / "rows")
    found = ml.dask.evaluate(folder / "model", tmp_path / "rows", (1, 5), client=two)
    everything = plain.predict_topk(X, k=Y.shape[1])
    assert found["P@5"] == metrics.precision_at_k(Y, everything, 5)
    assert found["nDCG@5"] == metrics.ndcg_at_k(Y, everything, 5)


def test_without_a_client(data):
    _, _, folder, _ = data
    with pytest.raises(ValueError, match="`client` must be given, since there is no current client"):
        ml.dask.predict_topk(folder / "model", folder / "rows")


def test_wrong_folders_and_models(two, tmp_path, data):
    _, _, folder, _ = data
    model = ml.DiSMECClassifier(random_state=0)
    run = manylabel.dask._choose
    future = two.submit(run, checkpoint="/nowhere", data=str(folder / "rows"), more=(), any_cpu=False)
    with pytest.raises(ValueError, match="cannot reach the folder /nowhere"):
        future.result()
    (tmp_path / "fit.json").touch()
    checkpoint, rows = str(tmp_path), str(folder / "rows")
    future = two.submit(run, checkpoint=checkpoint, data=rows, more=("none.npy",), any_cpu=False)
    with pytest.raises(ValueError, match=r"cannot reach the file .*none\.npy"):
        future.result()
    with pytest.raises(TypeError, match="cannot be divided into pieces"):
        ml.dask.fit(ml.LEMLClassifier(), folder / "rows", client=two)
    with pytest.raises(ValueError, match="`Y` must be None"):
        ml.dask.fit(model, folder / "rows", data[1], client=two)
    assert folder.exists()
    with pytest.raises(TypeError, match="`model` must be the path of a model file, got DiSMECClassifier"):
        ml.dask.evaluate(data[3], folder / "rows", client=two)
    with pytest.raises(IsADirectoryError, match="`model` must be a model file, got a folder"):
        ml.dask.predict_topk(folder / "rows", folder / "rows", client=two)
    with pytest.raises(NotADirectoryError, match="model"):
        ml.dask.evaluate(folder / "model", folder / "model", client=two)
    with pytest.raises(
        TypeError, match=r"`X` must be the path of a folder that `datasets\.convert` has written, got csr"
    ):
        ml.dask.predict_topk(folder / "model", data[0], client=two)
    with pytest.raises(ValueError, match="`k` must be an integer >= 1, got 0"):
        ml.dask.predict_topk(folder / "model", folder / "rows", 0, client=two)
    with pytest.raises(ValueError, match="`k` must be an integer >= 1 or a non-empty sequence"):
        ml.dask.evaluate(folder / "model", folder / "rows", (), client=two)
    with pytest.raises(TypeError, match=r"`client` must be a distributed.Client, got str"):
        ml.dask.evaluate(folder / "model", folder / "rows", client="localhost:8786")
    found = ml.dask.evaluate(folder / "model", folder / "rows", 3, client=two)
    assert found.keys() == {"P@3", "nDCG@3", "R@3"}
    X, Y = data[:2]
    dump_xc(X, Y[:, :-1], tmp_path / "fewer.txt")
    convert(tmp_path / "fewer.txt", tmp_path / "fewer")
    with pytest.raises(
        ValueError, match=rf"expected {Y.shape[1]} labels as in the model, got {Y.shape[1] - 1}"
    ):
        ml.dask.evaluate(folder / "model", tmp_path / "fewer", client=two)


@posix_only
def test_trees(two, tmp_path, data):
    """The levels of a tree are fitted one after the other, also if a worker is paused for a while."""
    X, Y, folder, _ = data
    model = ml.LabelTreeClassifier(C=1.0, max_leaf=9, branching=6, random_state=0)
    expected = ml.LabelTreeClassifier(**model.get_params()).fit(X, Y)
    expected.save(tmp_path / "expected")
    paused = []

    def pause():
        pid = next(iter(two.run(os.getpid).values()))
        while not (tmp_path / "fit" / "piece-000002.npz").exists():
            time.sleep(0.005)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(1)
        paused.append(len(list((tmp_path / "fit").glob("piece-*.npz"))))
        os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=pause)
    thread.start()
    fit = {"client": two, "checkpoint": tmp_path / "fit", "n_pieces": 40}
    got = ml.dask.fit(model, folder / "rows", **fit)
    thread.join()
    assert paused[0] < shards.Folder(tmp_path / "fit").n_pieces  # the paused worker had a piece
    got.save(tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == (tmp_path / "expected").read_bytes()
    assert not hasattr(model, "chunk_weights_")


def test_blocks(two, tmp_path, data):
    X, Y, folder, _ = data
    model = ml.BlockPartitionClassifier(ml.DiSMECClassifier(C=1.0), n_blocks=3, lam=1.0, random_state=0)
    expected = ml.BlockPartitionClassifier(**model.get_params(deep=False)).fit(X, Y)
    got = ml.dask.fit(model, folder / "rows", client=two)
    got.save(tmp_path / "got")
    expected.save(tmp_path / "expected")
    assert (tmp_path / "got").read_bytes() == (tmp_path / "expected").read_bytes()


@posix_only
def test_rounds_do_not_wait_for_a_paused_worker(two, tmp_path, data, monkeypatch):
    X, Y, folder, _ = data
    model = ml.CorrLogClassifier(1e-3, 1e-3, threshold="zero", solver="fista", max_iter=40, tol=1e-7)
    expected = ml.CorrLogClassifier(**model.get_params()).fit(X, Y)
    monkeypatch.setattr(ml.dask, "_SECONDS_TO_STOP", 0.1)
    pid = next(iter(two.run(os.getpid).values()))

    def pause():
        while not (tmp_path / "fit" / "rounds" / "00000009").exists():
            time.sleep(0.005)
        os.kill(pid, signal.SIGSTOP)

    thread = threading.Thread(target=pause)
    thread.start()
    try:
        got = ml.dask.fit(model, folder / "rows", client=two, checkpoint=tmp_path / "fit", n_pieces=4)
    finally:
        thread.join()
        os.kill(pid, signal.SIGCONT)
    got.save(tmp_path / "got")
    expected.save(tmp_path / "expected")
    assert (tmp_path / "got").read_bytes() == (tmp_path / "expected").read_bytes()


def test_each_worker_has_a_share_of_the_rounds(tmp_path, few):
    """Workers with several threads also get one share each."""
    X, Y, folder = few
    begun = tmp_path / "begun"
    begun.mkdir()

    # The workers cannot import this module, but they get copies of functions that are defined in a function.
    def wait_for_both():
        choose = shards.Work.choose

        def choose_together(self, report):
            (begun / f"{os.getpid()}").touch()
            for _ in range(2000):
                if len(list(begun.iterdir())) == 2:
                    return choose(self, report)
                time.sleep(0.01)
            raise AssertionError("the other worker has not begun")

        shards.Work.choose = choose_together

    model = ml.CorrLogClassifier(1e-3, 1e-3, threshold="zero", solver="fista", max_iter=40, tol=1e-7)
    with cluster(2, threads=2) as workers, distributed.Client(workers) as client:
        client.run(wait_for_both)
        ml.dask.fit(model, folder / "rows", n_pieces=4).save(tmp_path / "got")
    ml.CorrLogClassifier(**model.get_params()).fit(X, Y).save(tmp_path / "expected")
    assert (tmp_path / "got").read_bytes() == (tmp_path / "expected").read_bytes()


@pytest.mark.parametrize("n_workers", [1, 3])
def test_embeddings_and_rounds(tmp_path, few, n_workers):
    X, Y, folder = few
    with cluster(n_workers) as workers, distributed.Client(workers):
        for model, n_pieces in [
            (ml.Rembrandt(40, l2="auto", random_state=0), 4),
            (ml.CorrLogClassifier(), 6),
        ]:
            expected = type(model)(**model.get_params()).fit(X, Y)
            got = ml.dask.fit(model, folder / "rows", n_pieces=n_pieces)
            got.save(tmp_path / "got")
            expected.save(tmp_path / "expected")
            assert (tmp_path / "got").read_bytes() == (tmp_path / "expected").read_bytes()
