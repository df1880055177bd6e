"""The commands on tables of texts, and the commands `explain`, `params` and `doctor`."""

import csv
import json

import numpy as np
import pandas as pd
import pytest
from sklearn.feature_extraction.text import TfidfTransformer, TfidfVectorizer
from sklearn.pipeline import make_pipeline

import manylabel as ml
from manylabel import cli
from manylabel.cli import prediction
from manylabel.datasets import dump_xc, make_multilabel
from manylabel.tagging import read_texts

WORDS = {"cats & dogs": ["cat", "dog"], "tax:law": ["tax", "court"], "日本": ["日本", "tokyo"]}


def rows(n, seed):
    rng = np.random.default_rng(seed)
    for _ in range(n):
        names = [name for name in WORDS if rng.random() < 0.5]
        words = [str(rng.choice(WORDS[name])) for name in names] + ["the", "of"]
        yield " ".join(words), "abstract", "; ".join(names)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    for name, n, seed in (("docs.csv", 120, 0), ("test.csv", 40, 1)):
        with open(folder / name, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("title", "abstract", "subjects"), *rows(n, seed)])
    (folder / "new.jsonl").write_text('{"title": "a dog", "abstract": ""}\n{"title": "tokyo tax"}\n')
    X, Y = make_multilabel(100, 30, 4, random_state=0)
    dump_xc(X, Y, folder / "data.txt")
    named = pd.DataFrame(Y.toarray(), columns=["a", "b b", "c", "d"])
    ml.DiSMECClassifier(random_state=0).fit(X, named).save(folder / "named.safetensors")
    ml.DiSMECClassifier(random_state=0).fit(X, Y).save(folder / "plain.safetensors")
    return folder


@pytest.fixture
def run(capsys, folder, monkeypatch):
    monkeypatch.chdir(folder)

    def run(*words):
        code = cli.main([str(word) for word in words])
        return code, *capsys.readouterr()

    return run


COLUMNS = ("--text", "title,abstract", "--labels", "subjects")


@pytest.fixture
def tagger(run, folder):
    if not (folder / "tagger.safetensors").exists():
        code, out, err = run(
            "train", "docs.csv", *COLUMNS, "--seed", 0, "--set", "C=0.5", "-o", "tagger.safetensors"
        )
        assert (code, out) == (0, "")
        assert "docs.csv: 9 features, 3 labels" in err
    return ml.load(folder / "tagger.safetensors")


def test_train_on_a_table_makes_a_tagger(tagger, folder):
    assert isinstance(tagger, ml.TextTagger)
    assert tagger.label_names_.tolist() == list(WORDS)
    expected = ml.TextTagger(ml.LabelTreeClassifier(0.5, random_state=0))
    assert repr(tagger) == repr(expected)
    expected.fit(read_texts(folder / "docs.csv", "title,abstract", "subjects"))
    assert tagger.suggest("a dog") == expected.suggest("a dog")


@pytest.mark.parametrize("data", ["new.jsonl", "test.csv"])
def test_predict_writes_names(run, folder, tagger, data, monkeypatch):
    monkeypatch.setattr(prediction, "_BLOCK", 7)
    if data == "new.jsonl":
        texts = ["a dog", "tokyo tax"]
        options = ("--text", "title")
    else:
        texts = [text for text, _ in read_texts(folder / data, "title,abstract")]
        options = COLUMNS
    code, out, err = run("predict", "tagger.safetensors", data, *options, "-k", 2)
    assert (code, err) == (0, "")
    wanted = tagger.suggest(texts, k=2)
    found = [[pair.rpartition(":") for pair in line.split("\t")] for line in out.splitlines()]
    assert [[(name, np.float32(score)) for name, _, score in line] for line in found] == wanted
    code, out, _ = run("predict", "tagger.safetensors", data, *options, "-k", 2, "--json")
    lines = [json.loads(line)["labels"] for line in out.splitlines()]
    assert [[(pair["label"], np.float32(pair["score"])) for pair in line] for line in lines] == wanted


def test_evaluate_counts_unknown_names_as_misses(run, folder, tagger):
    code, out, _ = run(
        "evaluate", "tagger.safetensors", "test.csv", *COLUMNS, "-k", "1,3", "--train", "docs.csv", "--json"
    )
    assert code == 0
    measures = json.loads(out)
    assert measures["rows"] == 40
    assert measures["P@1"] > 0.5
    assert measures["R@3"] == 1.0
    text = (folder / "test.csv").read_text(encoding="utf-8").replace("日本\n", "日本; unknown\n")
    (folder / "more.csv").write_text(text, encoding="utf-8")
    code, out, _ = run("evaluate", "tagger.safetensors", "more.csv", *COLUMNS, "-k", "1,3", "--json")
    more = json.loads(out)
    assert more["P@1"] == measures["P@1"]
    assert more["R@3"] < 1


def test_names_of_a_classifier_are_written_and_shown(run, folder):
    code, out, _ = run("predict", "named.safetensors", "data.txt", "-k", 1)
    assert code == 0
    assert {line.rpartition(":")[0] for line in out.splitlines()} <= {"a", "b b", "c", "d"}
    _, plain, _ = run("predict", "plain.safetensors", "data.txt", "-k", 1)
    names = dict(zip("0123", ["a", "b b", "c", "d"], strict=True))
    assert [names[line.partition(":")[0]] for line in plain.splitlines()] == [
        line.rpartition(":")[0] for line in out.splitlines()
    ]
    _, out, _ = run("inspect", "named.safetensors")
    assert "4: 'a', 'b b', 'c', 'd'\n" in out


def test_inspect_shows_a_tagger(run, tagger):
    code, out, _ = run("inspect", "tagger.safetensors")
    assert code == 0
    assert "TextTagger" in out
    assert "3: 'cats & dogs', 'tax:law', '日本'" in out


def test_explain(run, folder, tagger):
    code, out, _ = run("explain", "tagger.safetensors", "cats & dogs", "a dog")
    assert code == 0
    assert "feature: dog" in out
    assert out == f"{tagger.explain('a dog', 'cats & dogs')!r}\n"
    code, out, _ = run(
        "explain", "tagger.safetensors", "日本", 1, "--data", "new.jsonl", "--text", "title", "--json"
    )
    assert code == 0
    assert json.loads(out) == json.loads(json.dumps(tagger.explain("tokyo tax", "日本").to_dict()))
    code, out, _ = run("explain", "plain.safetensors", "2", 5, "--data", "data.txt")
    assert code == 0
    assert out.startswith("label 2: score ")


def test_params(run, folder):
    code, out, _ = run("params", "dismec")
    assert code == 0
    assert "C='auto'\n" in out
    for name in ml.DiSMECClassifier.parameters:
        assert f"\n{name}=" in f"\n{out}"
    code, out, _ = run("params", "plain.safetensors")
    assert code == 0
    assert "prune=0.01\n" in out


def test_doctor(run, folder):
    code, out, _ = run("doctor", "docs.csv", *COLUMNS, "--test", "docs.csv")
    assert code == 0
    assert "1. Copied rows across the split (120): " in out
    code, out, _ = run("doctor", "data.txt", "--json")
    assert code == 0
    assert json.loads(out)["shape"] == {"rows": 100, "features": 30, "labels": 4}


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("train data.txt -o x", 2, "required: --model"),
        ("train docs.csv --text nothing -o x", 1, "expected the column 'nothing'"),
        ("train docs.csv --text title -o x", 1, "`labels` must have at least one label"),
        ("predict tagger.safetensors data.txt", 1, "data.txt: expected a table of texts"),
        ("predict plain.safetensors data.txt --json", 2, "no label names"),
        ("explain tagger.safetensors cats dog", 1, "`label` must be a label of the model, got 'cats'"),
        ("explain tagger.safetensors 7 dog", 2, "expected a name, or a number from 0 to 2, got '7'"),
        ("explain plain.safetensors a 1 --data data.txt", 2, "expected a number"),
        ("explain plain.safetensors 1 1", 2, "--data: required"),
        ("explain plain.safetensors 1 x --data data.txt", 2, "expected the number of a row"),
        (
            "explain plain.safetensors 1 100 --data data.txt",
            1,
            "the data set has no row 100 (the first row is row 0, and the number of rows is 100)",
        ),
        ("params nothing", 1, "nothing: No such file"),
        ("doctor docs.csv --text title", 1, "expected labels in the table, got none"),
    ],
)
def test_misuse_has_its_line(run, tagger, words, code, message):
    found, out, err = run(*words.split())
    assert (found, out) == (code, "")
    assert err.startswith("manylabel: error: ")
    assert message in err


def test_the_defaults_are_those_of_the_tagger(run, folder):
    for name in ("a", "b"):
        run("train", "docs.csv", *COLUMNS, "-o", name)
    assert (folder / "a").read_bytes() == (folder / "b").read_bytes()


def test_a_rule_is_part_of_the_tagger(run, folder):
    run("train", "docs.csv", *COLUMNS, "--decide", "example_f1", "-o", "tagger")
    model = ml.load(folder / "tagger")
    assert type(model.decision).__name__ == "ExpectedF1"
    assert type(model.classifier_).__name__ == "DecisionClassifier"
    code, out, _ = run("predict", "tagger", "test.csv", *COLUMNS[:2], "--sets")
    assert code == 0
    assert len(out.splitlines()) == 40


def test_empty_tables(run, folder):
    (folder / "empty.csv").write_text("title,abstract,subjects\n")
    code, _, err = run("train", "empty.csv", *COLUMNS, "-o", "nothing")
    assert code == 1
    assert "empty.csv: expected at least one row, got an empty table" in err


@pytest.fixture
def pipelines(folder):
    """A pipeline for texts and a pipeline for features, both saved to files."""
    texts, labels = zip(*read_texts(folder / "docs.csv", "title,abstract", "subjects"), strict=True)
    names = list(WORDS)
    Y = pd.DataFrame([[int(name in row) for name in names] for row in labels], columns=names)
    of_texts = make_pipeline(TfidfVectorizer(), ml.DiSMECClassifier(1.0, random_state=0)).fit(texts, Y)
    ml.save(of_texts, folder / "texts.pipeline")
    X, Y = make_multilabel(100, 30, 4, random_state=0)
    of_rows = make_pipeline(TfidfTransformer(), ml.DiSMECClassifier(1.0, random_state=0)).fit(X, Y)
    ml.save(of_rows, folder / "rows.pipeline")
    return ml.TextTagger.from_pipeline(of_texts), of_rows, X


def test_pipelines_predict_and_are_measured(run, folder, pipelines):
    tagger, of_rows, X = pipelines
    texts, labels = zip(*read_texts(folder / "test.csv", "title,abstract", "subjects"), strict=True)
    code, out, err = run("predict", "texts.pipeline", "test.csv", *COLUMNS, "-k", 2)
    assert (code, err) == (0, "")
    found = [[pair.rpartition(":") for pair in line.split("\t")] for line in out.splitlines()]
    wanted = tagger.suggest(texts, k=2)
    assert [[(name, np.float32(score)) for name, _, score in line] for line in found] == wanted
    code, out, _ = run("predict", "texts.pipeline", "test.csv", *COLUMNS, "--sets")
    assert [line.split("\t") if line else [] for line in out.splitlines()] == tagger.predict(texts)
    code, out, _ = run("evaluate", "texts.pipeline", "test.csv", *COLUMNS, "-k", 1, "--json")
    best = [row[0][0] for row in tagger.suggest(texts, k=1)]
    hits = [name in row for name, row in zip(best, labels, strict=True)]
    assert json.loads(out)["P@1"] == pytest.approx(np.mean(hits))
    code, out, _ = run("predict", "rows.pipeline", "data.txt", "-k", 1)
    assert code == 0
    top = of_rows[-1].predict_topk(of_rows[:-1].transform(X), k=1)
    assert [int(line.partition(":")[0]) for line in out.splitlines()] == top.indices.tolist()
    code, out, _ = run("predict", "rows.pipeline", "data.txt", "--sets")
    sets = of_rows.predict(X)
    assert [list(map(int, line.split())) for line in out.splitlines()] == [
        sets[[row]].indices.tolist() for row in range(100)
    ]
    code, out, _ = run("evaluate", "rows.pipeline", "data.txt", "-k", 1, "--json")
    Y = make_multilabel(100, 30, 4, random_state=0)[1]
    assert json.loads(out)["P@1"] == pytest.approx(ml.metrics.precision_at_k(Y, top, 1))


def test_pipelines_are_explained_and_shown(run, pipelines):
    tagger, of_rows, X = pipelines
    code, out, _ = run("explain", "texts.pipeline", "cats & dogs", "a dog")
    assert (code, out) == (0, f"{tagger.explain('a dog', 'cats & dogs')!r}\n")
    code, out, _ = run("explain", "rows.pipeline", 2, 5, "--data", "data.txt", "--json")
    assert code == 0
    assert json.loads(out)["score"] == pytest.approx(of_rows.decision_function(X[[5]])[0, 2], abs=1e-6)
    for model, n_features in (("texts.pipeline", 9), ("rows.pipeline", 30)):
        code, out, _ = run("inspect", model)
        assert code == 0
        lines = dict(line.split(maxsplit=1) for line in out.splitlines())
        assert lines["class"] == "Pipeline"
        assert lines["features"] == str(n_features)
        assert lines["dismecclassifier.coef_"].startswith("csc_array")
    code, out, _ = run("params", "rows.pipeline")
    assert code == 0
    assert "\ndismecclassifier__C=1.0\n" in out
    assert all("=" in line for line in out.splitlines())


def test_other_pipelines_are_refused(run, folder):
    ml.save(make_pipeline(TfidfVectorizer()).fit(["a cat"]), folder / "no.pipeline")
    ml.save(TfidfVectorizer().fit(["a cat"]), folder / "vectorizer")
    for model, name in (("no.pipeline", "TfidfVectorizer"), ("vectorizer", "TfidfVectorizer")):
        code, _, err = run("predict", model, "test.csv", *COLUMNS)
        assert code == 1
        assert f"{model}: expected a classifier, got {name}" in err
        assert run("inspect", model)[0] == 0


@pytest.mark.filterwarnings("default")
def test_a_wrong_separator_warns(run, folder):
    lines = "".join(f"a text,cats; topic {at}\n" for at in range(20))
    (folder / "commas.csv").write_text("text,labels\n" + lines, encoding="utf-8")
    code, _, err = run("doctor", "commas.csv", "--sep", ",")
    assert code == 0
    assert "manylabel: warning: commas.csv: " in err
    assert "--sep ';'" in err


def test_names_that_lines_cannot_hold_need_json(run, folder):
    texts, names = ["a cat", "tax"] * 10, [["two\nlines"], ["a\ttab"]] * 10
    ml.TextTagger(ml.DiSMECClassifier(1.0, random_state=0)).fit(texts, names).save(folder / "odd")
    (folder / "one.csv").write_text("text\na cat\n")
    code, out, err = run("predict", "odd", "one.csv")
    assert (code, out) == (2, "")
    assert "--json: required, since the label name 'a\\ttab' has a tab or a line break" in err
    code, out, _ = run("predict", "odd", "one.csv", "-k", 1, "--json")
    assert code == 0
    assert json.loads(out)["labels"][0]["label"] == "two\nlines"


def test_a_rule_sees_all_rows(run, folder, monkeypatch):
    monkeypatch.setattr(prediction, "_BLOCK", 7)
    texts, labels = zip(*read_texts(folder / "docs.csv", "title,abstract", "subjects"), strict=True)
    rule = ml.decision.F1Inference(threshold="test")
    tagger = ml.TextTagger(ml.DiSMECClassifier(1.0, random_state=0), decision=rule).fit(texts, labels)
    tagger.save(folder / "ruled")
    code, out, _ = run("predict", "ruled", "test.csv", *COLUMNS, "--sets")
    assert code == 0
    held = [text for text, _ in read_texts(folder / "test.csv", "title,abstract")]
    assert [line.split("\t") if line else [] for line in out.splitlines()] == tagger.predict(held)
