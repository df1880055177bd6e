"""The commands called through `main`: outputs equal the library's, and each misuse prints one line."""

import json
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator

import manylabel as ml
from children import forks, posix_only
from manylabel import cli, metrics
from manylabel.cli import prediction
from manylabel.cli.messages import UsageError
from manylabel.cli.settings import set_parameter
from manylabel.datasets import convert, dump_xc, load_xc, make_multilabel
from manylabel.estimator.parameters import Classifier, Count, Either, Parameters
from manylabel.linear.pieces import DiSMECPieces


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Data files with 60 features and 12 labels, fewer or more, and a model. Tests must not change them."""
    folder = tmp_path_factory.mktemp("cli")
    X, Y = make_multilabel(300, 60, 12, random_state=0)
    dump_xc(X[:200], Y[:200], folder / "train.txt.gz")
    dump_xc(X[200:], Y[200:], folder / "test.txt")
    dump_xc(X[200:, :50], Y[200:], folder / "narrow.txt")
    dump_xc(X[200:], Y[200:, :9], folder / "few.txt")
    dump_xc(*make_multilabel(50, 61, 13, random_state=0), folder / "wide.txt")
    (folder / "text.txt").write_text("no numbers here\n")
    ml.DiSMECClassifier(random_state=0).fit(X[:200], Y[:200]).save(folder / "model.safetensors")
    return folder


@pytest.fixture
def run(capsys, folder, monkeypatch):
    """Run a command in the folder and return the exit code, stdout and stderr."""
    monkeypatch.chdir(folder)

    def run(words, *more):
        code = cli.main([*words.split(), *map(str, more)])
        return code, *capsys.readouterr()

    return run


def dense_topk(folder, data, k):
    return ml.load(folder / "model.safetensors").predict_topk(load_xc(folder / data)[0], k=k)


def test_train_writes_the_model_that_fit_gives(run, folder, tmp_path):
    path = tmp_path / "model.safetensors"
    code, out, err = run(
        "train --model dismec train.txt.gz --seed 0 --set C=0.5 --set solver=exact --set fit_intercept=false",
        "-o",
        path,
    )
    assert (code, out) == (0, "")
    assert "train.txt.gz: 200 rows, 60 features, 12 labels" in err
    model = ml.load(path)
    expected = ml.DiSMECClassifier(C=0.5, solver="exact", fit_intercept=False, random_state=0)
    assert model.get_params() == expected.get_params()
    expected.fit(*load_xc(folder / "train.txt.gz"))
    assert np.array_equal(model.coef_.toarray(), expected.coef_.toarray())
    assert not list(tmp_path.glob(".*"))


def test_train_reads_arff_with_its_xml(run, folder, tmp_path):
    rows = "".join(f"{i / 7},{int(i > 8)},{i % 2}\n" for i in range(20))
    (tmp_path / "a.arff").write_text(
        "@relation a\n@attribute x numeric\n@attribute l {0,1}\n@attribute m {0,1}\n@data\n" + rows
    )
    (tmp_path / "a.xml").write_text('<labels><label name="l"/><label name="m"/></labels>')
    path = tmp_path / "model.safetensors"
    assert run(f"train --quiet --model dismec {tmp_path}/a.arff --xml {tmp_path}/a.xml -o", path) == (
        0,
        "",
        "",
    )
    code, out, _ = run(f"predict {path} {tmp_path}/a.arff --xml {tmp_path}/a.xml -k 1")
    assert code == 0
    assert len(out.splitlines()) == 20


@pytest.mark.parametrize("k", [3, 12, 40])
@pytest.mark.parametrize("to_file", [False, True])
def test_predict_writes_predict_topk_best_first(run, folder, tmp_path, monkeypatch, k, to_file):
    monkeypatch.setattr(prediction, "_BLOCK", 7)  # several blocks, the last one short
    path = tmp_path / "out.txt"
    code, out, err = run(f"predict model.safetensors test.txt -k {k}", *(("-o", path) if to_file else ()))
    assert (code, err) == (0, "")
    lines = (path.read_text() if to_file else out).splitlines()
    rows = [[(int(j), np.float32(s)) for j, s in (p.split(":") for p in line.split())] for line in lines]
    for row in rows:
        assert row == sorted(row, key=lambda pair: (-pair[1], pair[0]))
    written = csr_array(
        (
            np.array([s for row in rows for _, s in row], dtype=np.float32),
            np.array([j for row in rows for j, _ in row]),
            np.cumsum([0] + [len(row) for row in rows]),
        ),
        shape=(100, 12),
    )
    written.sort_indices()
    expected = dense_topk(folder, "test.txt", k)
    assert np.array_equal(written.indptr, expected.indptr)
    assert np.array_equal(written.indices, expected.indices)
    assert np.array_equal(written.data, expected.data)


def test_equal_scores_are_written_lower_label_first():
    top = csr_array(
        (np.array([0.5, 0.5, 0.75], np.float32), np.array([0, 1, 2]), np.array([0, 0, 3])), shape=(2, 3)
    )
    assert list(prediction._lines(top)) == ["", "2:0.75 0:0.5 1:0.5"]


def test_evaluate_prints_the_metrics(run, folder):
    code, out, err = run("evaluate model.safetensors test.txt --train train.txt.gz -k 1,4 --json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    Y, scores = load_xc(folder / "test.txt")[1], dense_topk(folder, "test.txt", 4)
    p = metrics.propensities(load_xc(folder / "train.txt.gz")[1])
    expected = {"rows": 100}
    for at, k in enumerate((1, 4)):
        expected |= {
            f"P@{k}": metrics.precision_at_k(Y, scores, (1, 4))[at],
            f"nDCG@{k}": metrics.ndcg_at_k(Y, scores, (1, 4))[at],
            f"R@{k}": metrics.recall_at_k(Y, scores, (1, 4))[at],
            f"PSP@{k}": metrics.psp_at_k(Y, scores, p, (1, 4))[at],
            f"PSnDCG@{k}": metrics.psndcg_at_k(Y, scores, p, (1, 4))[at],
        }
    assert found == expected

    code, table, _ = run("evaluate model.safetensors test.txt --train train.txt.gz -k 1,4")
    assert code == 0
    assert {f"{name}@{k}": float(value)
            for name, *values in (line.replace("@k", "").split() for line in table.splitlines()[1:])
            for k, value in zip((1, 4), values, strict=True)
    } == {name: round(value, 4) for name, value in expected.items() if name != "rows"}  # fmt: skip


def test_json_has_null_where_there_is_nothing_to_recall(run, folder, tmp_path):
    dump_xc(np.ones((3, 60)), np.zeros((3, 12)), tmp_path / "unlabelled.txt")
    code, out, _ = run("evaluate model.safetensors -k 1 --json", tmp_path / "unlabelled.txt")
    assert code == 0
    assert json.loads(out) == {"rows": 3, "P@1": 0.0, "nDCG@1": 0.0, "R@1": None}


def test_inspect_tells_what_the_model_is(run, folder):
    code, out, _ = run("inspect model.safetensors")
    assert code == 0
    rows = dict(line.split(maxsplit=1) for line in out.splitlines())
    model = ml.load(folder / "model.safetensors")
    assert rows["class"] == "DiSMECClassifier"
    assert rows["features"] == "60"
    assert rows["labels"] == "12"
    assert "solver='fast'" in rows["parameters"]
    assert f"{model.coef_.nnz} stored" in rows["coef_"]
    assert rows["file"].startswith(f"{(folder / 'model.safetensors').stat().st_size:,} bytes, format 1,")


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("", 2, "the following arguments are required: command"),
        ("train train.txt.gz -o m", 2, "the following arguments are required: --model"),
        ("train --model disco train.txt.gz -o m", 2, "invalid choice: 'disco'"),
        ("train --model disco train.txt.gz -o m", 2, "dismec"),
        (
            "train --model dismec train.txt.gz -o m --set c=1",
            2,
            "expected a parameter of DiSMECClassifier (C, loss, prune, fit_intercept, ",
        ),
        ("train --model dismec train.txt.gz -o m --set n_jobs=2", 2, "got 'n_jobs'; use --jobs"),
        ("train --model dismec train.txt.gz -o m --set C", 2, "expected NAME=VALUE, got 'C'"),
        (
            "train --model dismec train.txt.gz -o m --set C=high",
            2,
            "--set C: expected \"auto\" or a finite number > 0, got 'high'",
        ),
        (
            "train --model dismec train.txt.gz -o m --set max_iter=1.5",
            2,
            "expected an integer >= 1, got '1.5'",
        ),
        (
            "train --model dismec train.txt.gz -o m --set fit_intercept=1",
            2,
            "expected True or False, got '1'",
        ),
        (
            "train --model dismec train.txt.gz -o m --set C__x=1",
            2,
            "the parameter before __ must hold an estimator, got C='auto'",
        ),
        (
            "train --model dismec train.txt.gz -o m --xml a.xml",
            2,
            "--xml: the data file must be an ARFF file",
        ),
        ("train --model dismec train.txt.gz -o m --seed one", 2, "invalid int value: 'one'"),
        ("train --model dismec train.txt.gz -o m --set C=-1", 2, "a finite number > 0, got '-1'"),
        ("train --model dismec absent.txt -o m", 1, "absent.txt: No such file or directory"),
        ("train --model dismec text.txt -o m", 1, "text.txt, line 1: expected "),
        ("train --model dismec train.txt.gz -o no/folder/m", 1, "folder: No such file or directory"),
        ("train --model dismec absent.txt -o .", 1, ".: Is a directory"),
        ("predict absent.safetensors test.txt", 1, "absent.safetensors: No such file or directory"),
        ("predict test.txt test.txt", 1, "cannot load test.txt: not a manylabel model file"),
        ("predict model.safetensors wide.txt", 1, "wide.txt: expected 60 features as in the model, got 61"),
        (
            "predict model.safetensors narrow.txt",
            1,
            "narrow.txt: expected 60 features as in the model, got 50",
        ),
        (
            "evaluate model.safetensors narrow.txt",
            1,
            "narrow.txt: expected 60 features as in the model, got 50",
        ),
        ("evaluate model.safetensors few.txt", 1, "few.txt: expected 12 labels as in the model, got 9"),
        (
            "evaluate model.safetensors test.txt --train few.txt",
            1,
            "expected 12 labels as in the model, got 9",
        ),
        ("predict model.safetensors test.txt -k 0", 2, "argument -k: expected an integer >= 1, got '0'"),
        ("predict model.safetensors test.txt -o .", 1, ".: Is a directory"),
        ("evaluate model.safetensors test.txt -k 1,x", 2, "argument -k: expected an integer >= 1, got 'x'"),
        (
            "evaluate model.safetensors test.txt --train wide.txt",
            1,
            "expected 12 labels as in the model, got 13",
        ),
        ("inspect text.txt", 1, "cannot load text.txt: not a manylabel model file"),
    ],
)
def test_misuse_is_one_line_and_leaves_nothing(run, folder, line, code, message):
    before = sorted(folder.iterdir())
    found, out, err = run(line)
    last = err.splitlines()[-1]
    assert (found, out) == (code, "")
    assert last.startswith("manylabel: error: ")
    assert message in last
    assert "Traceback" not in err
    assert sorted(folder.iterdir()) == before


@posix_only
def test_a_device_is_not_replaced_by_a_model(run, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    code, _, err = run("train --model dismec train.txt.gz -o", tmp_path / "pipe")
    assert code == 1
    assert "pipe: expected a regular file" in err
    assert (tmp_path / "pipe").is_fifo()


def test_a_failed_prediction_leaves_the_older_file(run, folder, tmp_path, monkeypatch):
    path = tmp_path / "out.txt"
    path.write_text("older")
    monkeypatch.setattr(prediction, "_BLOCK", 40)
    blocks = iter(range(1))
    whole = ml.DiSMECClassifier.predict_topk

    def fails_at_the_second_block(self, X, k):
        if next(blocks, None) is None:
            raise MemoryError
        return whole(self, X, k)

    monkeypatch.setattr(ml.DiSMECClassifier, "predict_topk", fails_at_the_second_block)
    code, _, err = run("predict model.safetensors test.txt -o", path)
    assert (code, err) == (1, "manylabel: error: not enough memory\n")
    assert [file.name for file in tmp_path.iterdir()] == ["out.txt"]
    assert path.read_text() == "older"


@pytest.mark.parametrize(("terminal", "quiet"), [(True, False), (True, True), (False, False)])
def test_progress_is_for_terminals_that_want_it(run, monkeypatch, tmp_path, terminal, quiet):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    more = ["--quiet"] if quiet else []
    _, _, trained = run(f"train --model dismec train.txt.gz -o {tmp_path}/m", *more)
    _, _, predicted = run(f"predict {tmp_path}/m test.txt", *more)
    assert ("12/12" in trained) == (terminal and not quiet)
    assert ("100/100" in predicted) == (terminal and not quiet)
    if quiet:
        assert trained == predicted == ""


class Nested(BaseEstimator):
    parameters = Parameters(estimator=Either(None, Classifier()), n_blocks=Either("auto", Count(1)))

    def __init__(self, estimator=None, n_blocks="auto"):
        self.estimator = estimator
        self.n_blocks = n_blocks


def test_an_estimator_is_set_by_its_name_and_then_from_inside(monkeypatch):
    monkeypatch.setitem(cli.MODELS, "nested", Nested)
    model = Nested()
    for name, text in [("estimator", "dismec"), ("estimator__C", "3"), ("n_blocks", "4")]:
        set_parameter(model, name, text)
    assert model.estimator.get_params() == ml.DiSMECClassifier(C=3.0).get_params()
    assert model.n_blocks == 4
    set_parameter(model, "n_blocks", "auto")
    assert model.n_blocks == "auto"
    set_parameter(model, "estimator", "None")
    assert model.estimator is None
    with pytest.raises(
        UsageError, match="the parameter before __ must hold an estimator, got estimator=None"
    ):
        set_parameter(model, "estimator__C", "3")
    with pytest.raises(
        UsageError, match=r"--set estimator: expected None or a multi-label classifier, got 'no'"
    ):
        set_parameter(model, "estimator", "no")


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("label_binning", "None", None),
        ("label_binning", "0.1", 0.1),
        ("max_bins", "3", 3),
        ("max_features", "7", 7),
        ("max_features", "0.5", 0.5),
        ("max_features", "log2", "log2"),
        ("categorical_features", "None", None),
        ("categorical_features", "3", [3]),
        ("categorical_features", "0,3,12", [0, 3, 12]),
        ("categorical_features", "color,size", ["color", "size"]),
    ],
)
def test_values_of_several_kinds(name, text, value):
    model = ml.BoostedRulesClassifier(label_binning=0.5, categorical_features=[1], max_features=1)
    set_parameter(model, name, text)
    assert getattr(model, name) == value
    assert type(getattr(model, name)) is type(value)


def test_a_value_of_none_of_the_kinds():
    model = ml.BoostedRulesClassifier()
    for name, kind in [("max_features", '"log2", .* or None'), ("label_binning", "a number > 0")]:
        with pytest.raises(UsageError, match=rf"--set {name}: expected .*{kind}.*, got 'all'"):
            set_parameter(model, name, "all")


class Command:
    """The command line in a forked child, with pipes as its standard streams."""

    def __init__(self, *arguments):
        ends = [os.pipe() for _ in range(3)]  # (to read, to write) for stdin, stdout and stderr
        theirs = [ends[0][0], ends[1][1], ends[2][1]]
        ours = [ends[0][1], ends[1][0], ends[2][0]]
        context = multiprocessing.get_context("fork")
        self.process = context.Process(target=self._run, args=(theirs, ours, list(map(str, arguments))))
        self.process.start()
        for end in theirs:
            os.close(end)
        self.stdin, self.stdout, self.stderr = map(open, ours, ["w", "r", "r"])

    @staticmethod
    def _run(theirs, ours, arguments):
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number, (end, other) in enumerate(zip(theirs, ours, strict=True)):
            os.close(other)
            os.dup2(end, number)
            os.close(end)
        sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
        sys.stderr = os.fdopen(2, "w", buffering=1)  # by lines, as in a new interpreter
        sys.exit(cli.main(arguments))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pipe in (self.stdin, self.stdout, self.stderr):
            pipe.close()
        self.process.kill()
        self.process.join()


def test_the_module_is_the_command(capsys, folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--help"])
    command = [sys.executable, "-m", "manylabel", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (capsys.readouterr().out, "")
    # Exit codes and messages of `python -m manylabel`, run in this process.
    for arguments, code, expected in [
        (["predict"], 2, "manylabel: error: the following arguments are required: model, data\n"),
        (["inspect", str(folder / "text.txt")], 1, "manylabel: error: cannot"),
    ]:
        monkeypatch.setattr(sys, "argv", ["manylabel", *arguments])
        monkeypatch.delitem(sys.modules, "manylabel.__main__", raising=False)  # another test may import it
        with pytest.raises(SystemExit) as ended:
            runpy.run_module("manylabel", run_name="__main__")
        out, err = capsys.readouterr()
        assert (ended.value.code, out) == (code, "")
        assert err.startswith(expected)
        assert len(err.splitlines()) == 1


def unread(pipe):
    """Number of bytes in a pipe that its reader has not taken yet."""
    import fcntl  # POSIX only
    import termios

    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


@posix_only
@forks
def test_ctrl_c_ends_the_wait_for_a_silent_pipe(tmp_path):
    with Command("train", "--model", "dismec", "/dev/stdin", "-o", tmp_path / "m") as command:
        command.stdin.write("2 3 2\n0 0:1\n")
        command.stdin.flush()
        while unread(command.stdin) and command.process.is_alive():
            time.sleep(0.05)
        command.process.join(1)
        assert command.process.is_alive()
        os.kill(command.process.pid, signal.SIGINT)
        assert command.stderr.read() == "manylabel: interrupted\n"
        command.process.join(10)
        assert command.process.exitcode == 130
    assert list(tmp_path.iterdir()) == []


@posix_only
@forks
def test_ctrl_c_stops_training_and_leaves_nothing(tmp_path):
    # Random labels, nearly no regularizer and a tolerance out of reach: the fit would take very long.
    rng = np.random.default_rng(0)
    dump_xc(rng.normal(size=(1500, 300)), rng.random((1500, 400)) < 0.5, tmp_path / "train.txt")
    with Command(
        "train", "--model", "dismec", tmp_path / "train.txt", "-o", tmp_path / "m", "--set", "solver=exact",
        "--set", "tol=1e-300", "--set", "max_iter=2000000000", "--set", "C=1e9",
    ) as command:  # fmt: skip
        assert "1,500 rows" in command.stderr.readline()
        os.kill(command.process.pid, signal.SIGINT)
        assert command.stderr.read() == "manylabel: interrupted\n"
        command.process.join(10)
        assert command.process.exitcode == 130
    assert [file.name for file in tmp_path.iterdir()] == ["train.txt"]


@posix_only
@forks
def test_a_reader_that_leaves_is_no_error(folder, tmp_path):
    X = load_xc(folder / "test.txt")[0][np.arange(5000) % 100]
    dump_xc(X, np.zeros((5000, 12)), tmp_path / "long.txt")  # more than a pipe holds
    with Command("predict", folder / "model.safetensors", tmp_path / "long.txt", "-k", "12") as command:
        assert ":" in command.stdout.readline()
        command.stdout.close()
        assert command.stderr.read() == ""
        command.process.join(10)
        assert command.process.exitcode == 141


def test_probabilities_and_label_sets(run, folder, tmp_path):
    path = tmp_path / "model.safetensors"
    assert run("train --model dismec train.txt.gz --seed 0 --calibrate --quiet -o", path)[0] == 0
    model, X = ml.load(path), load_xc(folder / "test.txt")[0]
    code, out, _ = run(f"predict {path} test.txt -k 3 --probabilities --quiet")
    assert code == 0
    found = model.predict_proba_topk(X, 3)
    lines = [dict(pair.split(":") for pair in line.split()) for line in out.splitlines()]
    assert [{int(label): np.float32(p) for label, p in line.items()} for line in lines] == [
        dict(zip(row.indices.tolist(), row.data, strict=True))
        for row in (found[[i]] for i in range(X.shape[0]))
    ]
    for measure in ("macro_f1", "micro_f1", "example_f1", "hamming"):
        command = f"train --model dismec train.txt.gz --seed 0 --decide {measure} --quiet -o {path}"
        assert run(command)[0] == 0
        code, out, _ = run(f"predict {path} test.txt --sets --quiet")
        assert code == 0
        sets = csr_array(ml.load(path).predict(X))
        assert [list(map(int, line.split())) for line in out.splitlines()] == [
            sets[[i]].indices.tolist() for i in range(X.shape[0])
        ]
    assert run(f"evaluate {path} test.txt --json --quiet")[0] == 0
    assert run(f"inspect {path}")[0] == 0


def test_probabilities_need_a_calibrated_model(run):
    code, _, err = run("predict model.safetensors test.txt --probabilities")
    assert code == 1
    assert "expected a model trained with `train --calibrate`, got DiSMECClassifier" in err


def test_train_in_pieces(run, tmp_path, monkeypatch):
    monkeypatch.setattr(DiSMECPieces, "most_units", 1)
    dump_xc(*make_multilabel(300, 60, 40, random_state=0), tmp_path / "data.txt")
    convert(tmp_path / "data.txt", tmp_path / "rows")
    common = "train --model dismec --seed 0 --jobs 1"
    assert run(common, tmp_path / "data.txt", "-o", tmp_path / "plain")[0] == 0
    pieces = (tmp_path / "rows", "-o", tmp_path / "model", "--checkpoint", tmp_path / "fit")
    code, out, err = run(common, *pieces, "--piece", "1/2")
    assert (code, out) == (0, "")
    assert "other pieces are missing" in err
    assert not (tmp_path / "model").exists()
    code, _, err = run("merge", tmp_path / "fit", "-o", tmp_path / "merged")
    assert code == 1
    assert "pieces are missing; the first is piece-000001.npz" in err
    assert run(common, *pieces, "--piece", "2/2")[0] == 0
    assert run("merge", tmp_path / "fit", "-o", tmp_path / "merged")[::2] == (0, "")
    plain = (tmp_path / "plain").read_bytes()
    assert (tmp_path / "model").read_bytes() == plain
    assert (tmp_path / "merged").read_bytes() == plain


def test_folders_of_rows_and_folders_of_texts(run, tmp_path):
    dump_xc(*make_multilabel(300, 60, 40, random_state=0), tmp_path / "data.txt")
    convert(tmp_path / "data.txt", tmp_path / "rows")
    assert run("train --model dismec --seed 0 --quiet", tmp_path / "rows", "-o", tmp_path / "model")[0] == 0
    from_file = run("evaluate --json --quiet", tmp_path / "model", tmp_path / "data.txt")
    assert run("evaluate --json --quiet", tmp_path / "model", tmp_path / "rows") == from_file
    (tmp_path / "rows" / "rows.json").rename(tmp_path / "rows" / "convert.json")
    code, _, err = run("train --model dismec", tmp_path / "rows", "-o", tmp_path / "model")
    assert code == 1
    assert "the conversion is not complete" in err


def test_what_cannot_be_fitted_in_pieces(run, tmp_path):
    (tmp_path / "docs.csv").write_text("text,labels\na b,x\nc d,y\n")
    pieces = ("-o", tmp_path / "model", "--checkpoint", tmp_path / "fit")
    code, _, err = run("train", tmp_path / "docs.csv", *pieces)
    assert code == 2
    assert "--checkpoint: the fit to a table of texts" in err
    code, _, err = run("train --piece 1/2", tmp_path / "docs.csv", "-o", tmp_path / "model")
    assert code == 2
    assert "--piece: requires --checkpoint, the folder" in err
    for option in ("--calibrate", "--decide macro_f1"):
        code, _, err = run(f"train --model dismec train.txt.gz {option}", *pieces)
        assert code == 1
        assert "cannot be divided into pieces" in err


def test_pieces_need_a_folder(run, tmp_path):
    code, _, err = run("train --model dismec train.txt.gz --piece 1/2 -o", tmp_path / "model")
    assert code == 2
    assert "--piece: requires --checkpoint, the folder" in err
    for wrong in ("0/2", "3/2", "2", "a/b"):
        code, _, err = run("train --model dismec train.txt.gz --checkpoint x -o model --piece", wrong)
        assert code == 2
        assert "expected i/N" in err
    code, _, err = run(
        "train --model leml train.txt.gz -o", tmp_path / "model", "--checkpoint", tmp_path / "fit"
    )
    assert code == 1
    assert "cannot be divided into pieces" in err
