"""The backend for Annif: it is trained, suggests and learns in a project of Annif, and saves one file."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("annif", reason="manylabel.compat.annif needs the package annif")

from annif.corpus import Document, DocumentList, SubjectSet
from annif.exception import (
    ConfigurationException,
    NotEnabledException,
    NotInitializedException,
    NotSupportedException,
    OperationFailedException,
)
from annif.registry import AnnifRegistry
from annif.vocab.subject_file import VocabFileCSV

import manylabel as ml
import manylabel.compat.annif
import manylabel.compat.omikuji

WORDS = {
    "cats": "cat kitten purr",
    "dogs": "dog puppy bark",
    "tax": "tax income levy",
    "law": "law court act",
}
NAMES = [*WORDS, "birds", "removed"]
URI = "http://example.org/"

PROJECT = """
[{name}]
name={name}
language=en
backend=manylabel
analyzer=simple
vocab=topics
limit=4
random_state=1
C=1
{more}
"""


@pytest.fixture(scope="module", autouse=True)
def tokenizer(tmp_path_factory):
    """A tokenizer without abbreviations, in place of the tokenizer punkt_tab that Annif would download."""
    import nltk
    from nltk.tokenize.punkt import PunktParameters, save_punkt_params

    folder = tmp_path_factory.mktemp("nltk")
    (folder / "tokenizers" / "punkt_tab").mkdir(parents=True)
    save_punkt_params(PunktParameters(), str(folder / "tokenizers" / "punkt_tab" / "english"))
    nltk.data.path.insert(0, str(folder))
    yield folder
    nltk.data.path.remove(str(folder))


def projects(folder):
    """The projects of a folder, as a new process of Annif would read them."""
    return AnnifRegistry(str(folder / "projects.cfg"), str(folder / "data"), False)


def vocabulary(folder, registry, names=NAMES):
    lines = ["uri,label_en", *(f"{URI}{name},{name} label" for name in names)]
    (folder / "topics.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    registry.get_vocab("topics").load_vocabulary(VocabFileCSV(str(folder / "topics.csv")))


def corpus(project, n_documents, seed, names=tuple(WORDS)):
    """Documents whose words determine their subjects. Some have no subject or no words."""
    rng = np.random.default_rng(seed)
    words = {**WORDS, "birds": "bird wing egg", "removed": "gone lost"}
    documents = []
    for _ in range(n_documents):
        chosen = rng.choice(names, rng.integers(0, 3), replace=False).tolist()
        text = " ".join(w for name in chosen for w in rng.choice(words[name].split(), 2))
        numbers = [project.subjects.by_uri(URI + name) for name in chosen]
        documents.append(Document(f"report {text}", SubjectSet(numbers)))
    documents.append(Document("", SubjectSet([0])))
    return DocumentList(documents)


@pytest.fixture
def folder(tmp_path):
    more = {"learns": "allow_learn=true", "plain": "calibrate=false\nn_trees=2", "rules": "classifier=dismec"}
    more |= {"wrong": "n_trees=none", "unknown": "classifier=nothing"}
    text = "".join(PROJECT.format(name=name, more=lines) for name, lines in more.items())
    (tmp_path / "projects.cfg").write_text(text)
    vocabulary(tmp_path, projects(tmp_path))
    return tmp_path


def suggested(project, texts):
    """The subjects and scores of texts, best subject first."""
    batch = project.suggest([Document(text) for text in texts])
    return [[(project.subjects[s.subject_id].uri[len(URI) :], s.score) for s in result] for result in batch]


@pytest.mark.parametrize("name", ["learns", "plain", "rules"])
def test_training_and_suggestions(folder, name):
    project = projects(folder).get_project(name)
    with pytest.raises(NotInitializedException):
        project.suggest([Document("cat")])
    project.train(corpus(project, 150, 0), jobs=1)
    assert project.is_trained
    files = [path.name for path in Path(project.datadir).iterdir()]
    assert files == ["manylabel-model.safetensors"]
    fresh = projects(folder).get_project(name)  # reads the file
    texts = ["a kitten and a cat", "income tax law", "xyzzy", ""]
    found = suggested(fresh, texts)
    assert found == suggested(project, texts)
    assert found[0][0][0] == "cats"
    assert {subject for subject, _ in found[1][:2]} == {"tax", "law"}
    assert found[2:] == [[], []]
    assert all(0 < score <= 1 for result in found for _, score in result)


def test_probabilities_are_those_of_the_calibrator(folder):
    project = projects(folder).get_project("learns")
    project.train(corpus(project, 150, 0))
    tagger = ml.load(Path(project.datadir) / "manylabel-model.safetensors")
    wanted = tagger.suggest("\x1f".join(["cat", "dog", "and", "tax"]), k=4)
    found = suggested(project, ["Cat, dog and TAX of!"])[0]
    assert found == [(uri[len(URI) :], pytest.approx(score)) for uri, score in wanted]


def test_settings_reach_the_classifier(folder):
    project = projects(folder).get_project("plain")
    project.train(corpus(project, 60, 0), {"plain": {}, "manylabel": {"max_leaf": "2", "min_df": 2}})
    tagger = ml.load(Path(project.datadir) / "manylabel-model.safetensors")
    params = tagger.classifier_.get_params()
    assert {name: params[name] for name in ("n_trees", "max_leaf", "C", "random_state")} == {
        "n_trees": 2,
        "max_leaf": 2,
        "C": 1.0,
        "random_state": 1,
    }
    assert tagger.vectorizer_.min_df == 2


def test_wrong_settings(folder):
    registry = projects(folder)
    for name, error in (
        ("wrong", "n_trees: expected an integer"),
        ("unknown", "classifier: expected one of"),
    ):
        project = registry.get_project(name)
        with pytest.raises(ConfigurationException, match=error):
            project.train(corpus(project, 20, 0))
    project = registry.get_project("plain")
    with pytest.raises(NotSupportedException, match="no documents"):
        project.train(DocumentList([]))
    with pytest.raises(NotSupportedException, match="cached"):
        project.train("cached")
    with pytest.raises(OperationFailedException, match="text"):
        project.train(DocumentList([Document("cat", SubjectSet())]))


def raw_scores(project, words):
    """The scores of the classifier before they are calibrated, by subject."""
    tagger = ml.load(Path(project.datadir) / "manylabel-model.safetensors")
    X = tagger.vectorizer_.transform(["\x1f".join(words)])
    scores = tagger.classifier_.estimator_.decision_function(X)[0]
    return dict(zip(tagger.label_names_.tolist(), scores.tolist(), strict=True))


def test_learning(folder):
    project = projects(folder).get_project("learns")
    project.train(corpus(project, 150, 0))
    before = raw_scores(project, ["puppy"])
    number = project.subjects.by_uri(URI + "cats")
    project.learn(DocumentList([Document("puppy puppy bark", SubjectSet([number]))] * 12))
    after = raw_scores(project, ["puppy"])
    # Subjects without new documents keep their scores.
    changed = {uri for uri, score in after.items() if score != before[uri]}
    assert changed == {URI + "cats"}
    assert after[URI + "cats"] > before[URI + "cats"]
    assert dict(suggested(projects(folder).get_project("learns"), ["puppy"])[0])["cats"] > 0


def test_learning_new_subjects(folder):
    project = projects(folder).get_project("learns")
    project.train(corpus(project, 150, 0))
    old = dict(suggested(project, ["court"])[0])
    birds = project.subjects.by_uri(URI + "birds")
    project.learn(DocumentList([Document("report kitten kitten purr", SubjectSet([birds]))] * 12))
    found = suggested(project, ["kitten purr"])[0]
    assert "birds" in dict(found)
    new = dict(suggested(project, ["court"])[0])
    assert all(new[subject] == score for subject, score in old.items() if subject in new)


def test_learning_that_is_not_possible(folder):
    project = projects(folder).get_project("plain")
    project.train(corpus(project, 60, 0))
    with pytest.raises(NotEnabledException):
        project.learn(corpus(project, 5, 1))
    project.config["allow_learn"] = "true"
    with pytest.raises(NotSupportedException, match="without allow_learn"):
        project.learn(corpus(project, 5, 1))


def test_subjects_that_the_vocabulary_lost(folder):
    project = projects(folder).get_project("plain")
    project.train(corpus(project, 150, 0, (*WORDS, "removed")))
    assert "removed" in dict(suggested(project, ["gone lost"])[0])
    vocabulary(folder, projects(folder), NAMES[:-1])
    later = projects(folder).get_project("plain")
    assert "removed" not in dict(suggested(later, ["gone lost"])[0])


def test_the_command_line(folder, tokenizer):
    (folder / "new.tsv").write_text(f"the kitten cat\t<{URI}cats>\nthe law court\t<{URI}law>\n" * 10)
    environment = os.environ | {"ANNIF_CONFIG": "manylabel.compat.annif.Config", "NLTK_DATA": str(tokenizer)}
    command = [sys.executable, "-c", "import sys; from annif.cli import cli; sys.exit(cli())"]
    for call in (["train", "learns", "new.tsv"], ["suggest", "learns"]):
        done = subprocess.run(
            [*command, *call], cwd=folder, env=environment, input="kitten", capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
    assert f"<{URI}cats>" in done.stdout.splitlines()[0]


def test_the_omikuji_backend_runs_on_our_omikuji(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "omikuji", manylabel.compat.omikuji)
    monkeypatch.delitem(sys.modules, "annif.backend.omikuji", raising=False)
    text = PROJECT.format(name="parabel", more="cluster_k=2\nmax_depth=20").replace("manylabel", "omikuji")
    with (folder / "projects.cfg").open("a") as file:
        file.write(text)
    project = projects(folder).get_project("parabel")
    project.train(corpus(project, 150, 0))
    project.train(corpus(project, 150, 0))  # replaces the model
    fresh = projects(folder).get_project("parabel")
    assert suggested(fresh, ["a kitten and a cat"])[0][0][0] == "cats"
    monkeypatch.delitem(sys.modules, "annif.backend.omikuji", raising=False)
