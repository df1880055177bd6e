"""Folders of arrays: `convert` writes the data that the loaders read, also after it was killed."""

import gzip
import json
import multiprocessing
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array, vstack

import manylabel as ml
from children import forks, posix_only
from manylabel.datasets import convert, dump_xc, load_arff, load_xc, make_multilabel, open_rows, rows, sources


def assert_equal(got, expected):
    assert got.shape == expected.shape
    assert np.array_equal(got.indptr, expected.indptr)
    assert np.array_equal(got.indices, expected.indices)
    assert np.array_equal(got.data, expected.data)


@pytest.fixture
def data():
    return make_multilabel(300, 80, 40, random_state=3)


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of a few lines of text, and an entry in convert.json after every block."""
    monkeypatch.setattr(sources, "_TEXT", 2000)
    monkeypatch.setattr(rows, "_CHECKPOINT", 1)


@pytest.mark.parametrize("name", ["data.txt", "data.txt.gz"])
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_what_load_xc_reads(tmp_path, data, small_blocks, name, n_jobs):
    dump_xc(*data, tmp_path / name)
    convert(tmp_path / name, tmp_path / "rows", n_jobs=n_jobs)
    for got, expected in zip(open_rows(tmp_path / "rows"), load_xc(tmp_path / name), strict=True):
        assert_equal(got, expected)
        assert got.dtype == np.float32
        assert got.indptr.dtype == got.indices.dtype == np.int32
    for path in (tmp_path / "rows").glob("*.npy"):
        assert np.load(path).ndim == 1  # plain files, which numpy reads


def test_arrays_are_mapped_read_only(tmp_path, data):
    dump_xc(*data, tmp_path / "data.txt")
    convert(tmp_path / "data.txt", tmp_path / "rows")
    X, Y = open_rows(tmp_path / "rows")
    for matrix in (X, Y):
        for part in (matrix.indptr, matrix.indices, matrix.data):
            assert isinstance(part, np.memmap)
            assert not part.flags.writeable
    assert rows.folder_of(X) == tmp_path / "rows"
    assert rows.folder_of(X[:10]) is None
    assert rows.folder_of(csr_array(X.toarray())) is None
    assert rows.checksum_of(X).count("-") == 7


def test_several_files(tmp_path, data, small_blocks):
    X, Y = data
    dump_xc(X[:200], Y[:200], tmp_path / "a.txt")
    dump_xc(X[200:], Y[200:], tmp_path / "b.txt.gz")
    convert([tmp_path / "a.txt", tmp_path / "b.txt.gz"], tmp_path / "rows")
    got_x, got_y = open_rows(tmp_path / "rows")
    assert_equal(got_x, X.astype(np.float32))
    assert_equal(got_y, Y)


@pytest.mark.parametrize("zero_based", [False, True])
def test_svmlight(tmp_path, data, small_blocks, zero_based):
    X, Y = data
    dump_xc(X, Y, tmp_path / "data.txt")
    lines = (tmp_path / "data.txt").read_text().splitlines(keepends=True)[1:]
    if not zero_based:
        lines = [
            " ".join(
                f"{int(word.split(':')[0]) + 1}:{word.split(':')[1]}" if ":" in word else word
                for word in line.rstrip("\n").split(" ")
            )
            + "\n"
            for line in lines
        ]
    (tmp_path / "data.svm").write_text("".join(lines) + "\n\n")
    sizes = {"n_features": X.shape[1], "n_labels": Y.shape[1]}
    convert(tmp_path / "data.svm", tmp_path / "rows", zero_based=zero_based, **sizes)
    got_x, got_y = open_rows(tmp_path / "rows")
    assert_equal(got_x, X.astype(np.float32))
    assert_equal(got_y, Y)
    convert(tmp_path / "data.svm", tmp_path / "seen", zero_based=zero_based)
    got_x, got_y = open_rows(tmp_path / "seen")
    assert got_x.shape[1] == X.indices.max() + 1
    assert got_y.shape[1] == Y.indices.max() + 1


def test_columns_of_arff_files_without_values(tmp_path):
    text = "@relation 't: -C 2'\n" + "".join(f"@attribute {kind} {{0,1}}\n" for kind in ("a", "b"))
    text += "@attribute x numeric\n@attribute y numeric\n@data\n1,0,0.5,0\n0,0,1.5,0\n"
    (tmp_path / "a.arff").write_text(text)
    convert(tmp_path / "a.arff", tmp_path / "rows")
    X, Y = open_rows(tmp_path / "rows")
    assert X.shape == Y.shape == (2, 2)
    assert X.toarray().tolist() == [[0.5, 0.0], [1.5, 0.0]]
    assert Y.toarray().tolist() == [[1, 0], [0, 0]]
    with pytest.raises(ValueError, match=r"expected a feature below 1"):
        convert(tmp_path / "a.arff", tmp_path / "other", n_features=1)


def test_arff(tmp_path):
    (tmp_path / "tiny.arff").write_text(
        "@relation 't: -C 2'\n@attribute a {0,1}\n@attribute b {0,1}\n@attribute x numeric\n"
        "@attribute y numeric\n@data\n1,0,0.5,0\n0,1,?,2\n"
    )
    convert(tmp_path / "tiny.arff", tmp_path / "rows")
    X, Y = open_rows(tmp_path / "rows")
    expected_x, expected_y = load_arff(tmp_path / "tiny.arff")
    assert np.array_equal(X.toarray(), expected_x, equal_nan=True)
    assert_equal(Y, expected_y)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_unknown_labels_of_text_files(tmp_path, data, small_blocks, n_jobs):
    X, Y = data[0], data[1].astype(np.float32)
    Y.data[::7] = np.nan
    dump_xc(X, Y, tmp_path / "data.txt")
    convert(tmp_path / "data.txt", tmp_path / "rows", n_jobs=n_jobs)
    got = open_rows(tmp_path / "rows")[1]
    expected = load_xc(tmp_path / "data.txt")[1]
    assert np.isnan(expected.data).sum() == len(Y.data[::7])
    assert np.array_equal(got.toarray(), expected.toarray(), equal_nan=True)
    assert got.has_sorted_indices
    # The same lines without the header are an svmlight file.
    (tmp_path / "data.svm").write_text((tmp_path / "data.txt").read_text().partition("\n")[2])
    sizes = {"n_features": X.shape[1], "n_labels": Y.shape[1]}
    convert(tmp_path / "data.svm", tmp_path / "svm", zero_based=True, n_jobs=n_jobs, **sizes)
    got = open_rows(tmp_path / "svm")[1]
    assert np.array_equal(got.toarray(), expected.toarray(), equal_nan=True)


def test_unknown_labels_of_arff_files(tmp_path):
    path = tmp_path / "tiny.arff"
    path.write_text(
        "@relation 't: -C 2'\n@attribute a {0,1}\n@attribute b {0,1}\n@attribute x numeric\n"
        "@data\n1,?,0.5\n?,1,2\n"
    )
    with pytest.raises(ValueError, match="missing"):
        convert(path, tmp_path / "error")
    for missing in ("absent", "unknown"):
        convert(path, tmp_path / missing, missing_labels=missing)
        expected = load_arff(path, missing_labels=missing)[1].toarray()
        assert np.array_equal(open_rows(tmp_path / missing)[1].toarray(), expected, equal_nan=True)
    with pytest.raises(ValueError, match="other files or with other arguments"):
        convert(path, tmp_path / "absent", missing_labels="unknown")
    with pytest.raises(ValueError, match="`missing_labels` must be"):
        convert(path, tmp_path / "no", missing_labels="maybe")


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_tables(tmp_path, data, form, monkeypatch):
    arrow = pytest.importorskip("pyarrow", reason="Parquet and Arrow files need pyarrow")
    from pyarrow import ipc, parquet

    monkeypatch.setattr(sources, "_ROWS", 70)
    monkeypatch.setattr(rows, "_CHECKPOINT", 1)
    X, Y = data

    def lists(matrix, values):
        return [
            values[begin:end].tolist() for begin, end in zip(matrix.indptr, matrix.indptr[1:], strict=False)
        ]

    table = arrow.table(
        {
            "words": lists(X, X.indices[::1]),
            "counts": arrow.array(lists(X, X.data), arrow.list_(arrow.float64())),
            "labels": arrow.array(lists(Y, Y.indices), arrow.large_list(arrow.int16())),
            "other": np.arange(X.shape[0]),
        }
    )
    path = tmp_path / f"data.{form}"
    if form == "parquet":
        parquet.write_table(table, path, row_group_size=150)
    else:
        with ipc.new_file(path, table.schema) as file:
            file.write_table(table, max_chunksize=150)
    convert(path, tmp_path / "rows", columns=("words", "counts", "labels"), n_features=80, n_labels=40)
    got_x, got_y = open_rows(tmp_path / "rows")
    assert_equal(got_x, X.astype(np.float32))
    assert_equal(got_y, Y)
    with pytest.raises(
        ValueError, match=r"expected the columns \['features', 'values', 'labels'\], got \['words'"
    ):
        convert(path, tmp_path / "other")


def test_without_a_label_or_feature(tmp_path):
    (tmp_path / "none.txt").write_text("2 3 4\n \n \n")
    convert(tmp_path / "none.txt", tmp_path / "rows")
    X, Y = open_rows(tmp_path / "rows")
    assert (X.shape, X.nnz, Y.shape, Y.nnz) == ((2, 3), 0, (2, 4), 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: expected the numbers of examples, features and labels"),
        ("2 3\n", "line 1: expected the numbers of examples, features and labels"),
        ("2 3 4\n0 1:1\n", "line 3: expected 2 examples, as line 1 states, got the end of the file after 1"),
        ("1 3 4\n0 1:1\n1 1:1\n", "line 3: expected the end of the file after 1 examples"),
        ("1 3 4\n0 3:1\n", "line 2: expected a feature below 3"),
        ("1 3 4\n4 0:1\n", "line 2: expected a label below 4"),
        ("1 3 4\n0 0:x\n", "line 2: expected a finite"),
        ("2 3 4\n0 0:1\n0 1:1 1:2\n", "line 3: expected each feature once"),
    ],
)
def test_malformed_files(tmp_path, text, message):
    (tmp_path / "data.txt").write_text(text)
    with pytest.raises(ValueError, match=message) as of_convert:
        convert(tmp_path / "data.txt", tmp_path / "rows")
    with pytest.raises(ValueError, match=message) as of_load:
        load_xc(tmp_path / "data.txt")
    assert str(of_convert.value) == str(of_load.value)
    with pytest.raises((ValueError, FileNotFoundError)):
        open_rows(tmp_path / "rows")


def test_damaged_gzip(tmp_path, data):
    dump_xc(*data, tmp_path / "data.txt.gz")
    whole = (tmp_path / "data.txt.gz").read_bytes()
    (tmp_path / "data.txt.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="expected a valid gzip stream"):
        convert(tmp_path / "data.txt.gz", tmp_path / "rows")
    (tmp_path / "no.txt.gz").write_bytes(gzip.compress(b"1 2 3\n0 1:1\n")[:-9] + b"123456789")
    with pytest.raises(ValueError, match="expected a valid gzip stream"):
        convert(tmp_path / "no.txt.gz", tmp_path / "no")


def test_arguments(tmp_path, data):
    dump_xc(*data, tmp_path / "data.txt")
    path = tmp_path / "data.txt"
    for wrong, message in [
        ({"format": "csv"}, '`format` must be "auto" or one of xc'),
        ({"n_features": 0}, "`n_features` must be an integer >= 1"),
        ({"n_features": 79}, "expected `n_features` = 79 as in the argument, got 80"),
        ({"columns": ("a", "b")}, "`columns` must be three names"),
    ]:
        with pytest.raises(ValueError, match=message):
            convert(path, tmp_path / "rows", **wrong)
    with pytest.raises(ValueError, match="at least one file"):
        convert([], tmp_path / "rows")
    with pytest.raises(FileNotFoundError):
        convert(tmp_path / "no.txt", tmp_path / "rows")
    (tmp_path / "one.svm").write_text("0 0:1\n")
    with pytest.raises(ValueError, match="line 1: expected features numbered from 1"):
        convert(tmp_path / "one.svm", tmp_path / "svm")


def test_folder_of_other_data(tmp_path, data):
    X, Y = data
    dump_xc(X, Y, tmp_path / "a.txt")
    dump_xc(X, Y, tmp_path / "b.txt")
    convert(tmp_path / "a.txt", tmp_path / "rows")
    convert(tmp_path / "a.txt", tmp_path / "rows")  # the folder is complete
    with pytest.raises(ValueError, match="written from other files or with other arguments"):
        convert(tmp_path / "b.txt", tmp_path / "rows")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    with pytest.raises(ValueError, match="the folder must be empty"):
        convert(tmp_path / "a.txt", tmp_path / "mine")
    assert [file.name for file in (tmp_path / "mine").iterdir()] == ["thesis.tex"]
    with pytest.raises(ValueError, match=r"mine: expected a folder that `datasets\.convert` has written"):
        open_rows(tmp_path / "mine")
    with pytest.raises(FileNotFoundError, match=r"no'$"):
        open_rows(tmp_path / "no")
    with pytest.raises(NotADirectoryError, match=r"a\.txt'$"):
        open_rows(tmp_path / "a.txt")
    path = tmp_path / "rows" / "X.indices.npy"
    whole = path.read_bytes()
    for content, message in ((whole + b"12345678", "expected .* bytes, got"), (whole[:-4], "is damaged")):
        path.write_bytes(content)
        for call in (open_rows, lambda folder: convert(tmp_path / "a.txt", folder)):
            with pytest.raises(ValueError, match=rf"X.indices.npy: .*{message}.*delete the folder and"):
                call(tmp_path / "rows")
    path.write_bytes(whole)
    np.save(tmp_path / "rows" / "X.data.npy", np.ones(3, np.float32))
    with pytest.raises(ValueError, match=r"expected .* numbers, got an array of shape"):
        open_rows(tmp_path / "rows")
    (tmp_path / "rows" / "rows.json").write_text("{}")
    with pytest.raises(ValueError, match="by another version of manylabel"):
        open_rows(tmp_path / "rows")


def convert_in_small_steps(files, folder):
    sources._TEXT, rows._CHECKPOINT = 4000, 1
    convert(files, folder)


@posix_only
@forks
def test_killed_at_random_moments(tmp_path):
    """A child process is killed again and again. The folder is the same as without kills."""
    X, Y = make_multilabel(3000, 200, 60, random_state=5)
    dump_xc(X[:1500], Y[:1500], tmp_path / "a.txt")
    dump_xc(X[1500:], Y[1500:], tmp_path / "b.txt.gz")
    files = [str(tmp_path / "a.txt"), str(tmp_path / "b.txt.gz")]
    convert(files, tmp_path / "whole")
    context = multiprocessing.get_context("fork")
    rng = np.random.default_rng(0)
    n_kills, round_number = 0, 0
    while n_kills < 6:  # one round, or more if a conversion ends before it is killed often enough
        target = tmp_path / f"rows {round_number}"
        while True:
            child = context.Process(target=convert_in_small_steps, args=(files, target))
            child.start()
            while not (target / "convert.json").exists() and child.is_alive():
                time.sleep(0.002)
            if n_kills < 6:
                time.sleep(rng.uniform(0, 0.2))
                child.kill()
            child.join(60)
            if child.exitcode == 0:
                break
            assert child.exitcode == -signal.SIGKILL
            n_kills += 1
            # The kill may come after the last step, which writes rows.json and then removes convert.json.
            if (target / "convert.json").exists() and not (target / "rows.json").exists():
                with pytest.raises(ValueError, match="not complete"):
                    open_rows(target)
        for got, expected in zip(open_rows(target), open_rows(tmp_path / "whole"), strict=True):
            assert_equal(got, expected)
        checksums = [
            json.loads((folder / "rows.json").read_text())["checksum"]
            for folder in (target, tmp_path / "whole")
        ]
        assert checksums[0] == checksums[1]
        assert not list(target.glob("*.part"))
        round_number += 1


def test_resumes_in_every_batch(tmp_path, data, small_blocks, monkeypatch):
    """The conversion stops after each batch in turn and continues in a new call."""
    dump_xc(*data, tmp_path / "data.txt")
    real, n_stops = rows._Writer._save, 0

    def stop(writer, saved):
        nonlocal n_stops
        time.sleep(0.005)  # meanwhile, the next batch is written, which `saved` must not count
        real(writer, saved)
        if saved["position"] is not None:  # not at the end
            n_stops += 1
            raise KeyboardInterrupt

    monkeypatch.setattr(rows._Writer, "_save", stop)
    for _ in range(200):
        try:
            convert(tmp_path / "data.txt", tmp_path / "rows")
            break
        except KeyboardInterrupt:
            continue
    assert n_stops > 10
    for got, expected in zip(open_rows(tmp_path / "rows"), load_xc(tmp_path / "data.txt"), strict=True):
        assert_equal(got, expected)


@posix_only
def test_full_disk(tmp_path, data, small_blocks):
    """After an error of the operating system, the same call continues the conversion."""
    import resource  # POSIX only

    dump_xc(*data, tmp_path / "data.txt")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (6000, limits[1]))
        with pytest.raises(OSError, match="File too large"):
            convert(tmp_path / "data.txt", tmp_path / "rows")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    convert(tmp_path / "data.txt", tmp_path / "rows")
    for got, expected in zip(open_rows(tmp_path / "rows"), load_xc(tmp_path / "data.txt"), strict=True):
        assert_equal(got, expected)


def test_two_processes(tmp_path, data):
    from manylabel.aside import locked

    dump_xc(*data, tmp_path / "data.txt")
    (tmp_path / "rows").mkdir()
    held = locked(tmp_path / "rows" / "convert.lock")
    with held, pytest.raises(BlockingIOError, match="another process"):
        convert(tmp_path / "data.txt", tmp_path / "rows")
    convert(tmp_path / "data.txt", tmp_path / "rows")


@pytest.mark.parametrize("solver", ["fast", "exact"])
@pytest.mark.parametrize("normalize", ["rows", False])
def test_dismec_fits_mapped_rows_without_a_copy(tmp_path, data, solver, normalize):
    X, Y = data
    dump_xc(X, Y, tmp_path / "data.txt")
    convert(tmp_path / "data.txt", tmp_path / "rows")
    X, Y = load_xc(tmp_path / "data.txt")
    model = ml.DiSMECClassifier(C=1.0, solver=solver, normalize=normalize, random_state=0)
    expected = model.fit(X, Y)
    before = {path.name for path in (tmp_path / "rows").iterdir()}
    mapped = ml.DiSMECClassifier(**model.get_params()).fit(*open_rows(tmp_path / "rows"))
    assert_equal(mapped.coef_, expected.coef_)
    assert np.array_equal(mapped.intercept_, expected.intercept_)
    written = {path.name for path in (tmp_path / "rows").iterdir()} - before
    assert written == {"unit-ones" if normalize else "given-ones", "prepare.lock"}
    again = ml.DiSMECClassifier(**model.get_params()).fit(*open_rows(tmp_path / "rows"))
    assert_equal(again.coef_, expected.coef_)


@pytest.mark.parametrize("frequent", [False, True])
def test_dismec_fits_mapped_rows_with_unknown_entries(tmp_path, frequent):
    """A label may be frequent only among the rows for which it is known."""
    rng = np.random.default_rng(0)
    X, _ = make_multilabel(2500, 80, 40, random_state=3)
    Y = np.zeros((2500, 12), np.float32)
    for label in range(12):
        Y[rng.choice(2500, 12, replace=False), label] = 1
    hidden = rng.random(Y.shape) < 0.1
    if frequent:
        hidden[:, 3] = (rng.random(2500) < 0.9) & (Y[:, 3] == 0)
    Y[hidden] = np.nan
    dump_xc(X, Y, tmp_path / "data.txt")
    convert(tmp_path / "data.txt", tmp_path / "rows")
    costs = {"propensities": np.linspace(0.2, 1, 12), "label_weight": np.linspace(1, 3, 12)}
    params = {"C": 1.0, "normalize": "rows", "random_state": 0}
    expected = ml.DiSMECClassifier(**params).fit(*load_xc(tmp_path / "data.txt"), **costs)
    mapped = ml.DiSMECClassifier(**params).fit(*open_rows(tmp_path / "rows"), **costs)
    assert (tmp_path / "rows" / "unit-ones").exists()
    assert_equal(mapped.coef_, expected.coef_)
    assert np.array_equal(mapped.intercept_, expected.intercept_)
    assert (tmp_path / "rows" / "unit-ones" / "columns").exists() == frequent


def test_all_classifiers_fit_mapped_rows(tmp_path, data):
    X, Y = data
    dump_xc(X, Y, tmp_path / "data.txt")
    convert(tmp_path / "data.txt", tmp_path / "rows")
    X, Y = load_xc(tmp_path / "data.txt")
    mapped = open_rows(tmp_path / "rows")
    for model in (
        ml.LabelTreeClassifier(max_leaf=10, random_state=0),
        ml.PDSparseClassifier(random_state=0),
        ml.LEMLClassifier(rank=5, random_state=0),
        ml.BlockPartitionClassifier(ml.DiSMECClassifier(C=1.0), n_blocks=2, random_state=0),
    ):
        expected = model.fit(X, Y).predict_topk(X)
        assert_equal(model.fit(*mapped).predict_topk(X), expected)
    assert_equal(csr_array(vstack([mapped[0]])), csr_array(X))


def test_folder_that_may_not_be_written(tmp_path, data, monkeypatch):
    """If the folder is not writable, X is copied in memory."""
    from manylabel.linear import prepared

    def refused(*_):
        raise PermissionError(13, "Permission denied")

    X, Y = data
    dump_xc(X, Y, tmp_path / "data.txt")
    convert(tmp_path / "data.txt", tmp_path / "rows")
    monkeypatch.setattr(Path, "mkdir", refused)
    model = ml.DiSMECClassifier(C=1.0, random_state=0).fit(*open_rows(tmp_path / "rows"))
    assert not (tmp_path / "rows" / "unit-ones").exists()
    assert model.coef_.nnz
    assert prepared.has_frequent_labels(csr_array(Y), "fast")
    assert os.path.isdir(tmp_path / "rows")
