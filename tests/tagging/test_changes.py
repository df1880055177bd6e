"""Labels of a tagger changed after the fit, and updates of existing labels with more texts."""

import numpy as np
import pytest
from sklearn.base import clone

import manylabel as ml
from oracle.tagging import indicator_of_lists

CLASSIFIERS = {
    "dismec": ml.DiSMECClassifier(1.0, tol=1e-5, random_state=0),
    "tree": ml.LabelTreeClassifier(1.0, branching=2, max_leaf=2, random_state=0),
}
NAMES = ["cats", "dogs", "law", "tax", "Ünïcode 日本"]


@pytest.fixture(params=CLASSIFIERS)
def classifier(request):
    return CLASSIFIERS[request.param]


@pytest.fixture
def tagger(classifier, train):
    return ml.TextTagger(classifier).fit(*train)


@pytest.fixture
def keeping(classifier, train):
    return ml.TextTagger(classifier, keep_rows=True).fit(*train)


def scores(tagger, texts):
    """The score of every label, by name."""
    found = tagger.classifier_.decision_function(tagger.vectorizer_.transform(texts))
    return dict(zip(tagger.label_names_.tolist(), found.T, strict=True))


def assert_same_scores(after, before, names):
    for name in names:
        assert np.array_equal(after[name], before[name]), name


def assert_comes_back(tagger, texts, tmp_path):
    tagger.save(tmp_path / "tagger")
    loaded = ml.load(tmp_path / "tagger")
    assert loaded.suggest(texts) == tagger.suggest(texts)
    assert loaded.label_changes_.tolist() == tagger.label_changes_.tolist()
    return loaded


def test_renamed(tagger, held, tmp_path):
    before = scores(tagger, held)
    tagger.rename_labels({"cats": "felines", "law": "statutes"})
    after = scores(tagger, held)
    assert np.array_equal(after["felines"], before["cats"])
    assert_same_scores(after, before, ["dogs", "tax"])
    assert_comes_back(tagger, held, tmp_path).rename_labels({"felines": "cats"})


def test_dropped(tagger, held, tmp_path):
    before = scores(tagger, held)
    tagger.drop_labels(["dogs", "tax"])
    assert tagger.label_names_.tolist() == ["cats", "law", "Ünïcode 日本"]
    assert_same_scores(scores(tagger, held), before, tagger.label_names_)
    loaded = assert_comes_back(tagger, held, tmp_path)
    assert loaded.drop_labels(["law"]).label_changes_.tolist() == ["drop 'dogs', 'tax'", "drop 'law'"]


def test_added(tagger, train, held, tmp_path):
    before = scores(tagger, held)
    texts, labels = train
    more = [["pets", *names] if {"cats", "dogs"} & set(names) else names for names in labels]
    tagger.add_labels(texts, more)
    assert tagger.label_names_.tolist() == [*NAMES, "pets"]
    assert_same_scores(scores(tagger, held), before, NAMES)
    assert tagger.suggest("puppy bark", k=2)[0][0] in ("pets", "dogs")
    assert_comes_back(tagger, held, tmp_path)


def test_merged(tagger, train, held, tmp_path):
    before = scores(tagger, held)
    tagger.merge_labels(["dogs", "cats"], "pets", *train)
    assert tagger.label_names_.tolist() == ["pets", "law", "tax", "Ünïcode 日本"]
    after = scores(tagger, held)
    assert_same_scores(after, before, ["law", "tax", "Ünïcode 日本"])
    has = np.array([any(word in text for word in ("cat", "kitten", "purr", "dog")) for text in held])
    assert after["pets"][has].mean() > after["pets"][~has].mean()
    assert_comes_back(tagger, held, tmp_path)


def test_merged_texts_may_have_the_new_name(tagger, train, held):
    texts, labels = train
    pets = [["pets" if name in ("cats", "dogs") else name for name in names] for names in labels]
    named = clone(tagger).fit(texts, labels).merge_labels(["cats", "dogs"], "pets", texts, pets)
    wanted = tagger.merge_labels(["cats", "dogs"], "pets", texts, labels)
    assert named.suggest(held) == wanted.suggest(held)


def test_refitted_and_kept_rows_follow(keeping, train, held, tmp_path):
    texts, labels = train
    before = scores(keeping, held)
    keeping.refit_labels(["tax"])
    assert_same_scores(scores(keeping, held), before, ["cats", "dogs", "law", "Ünïcode 日本"])
    keeping.merge_labels(["cats", "dogs"], "cats")
    keeping.drop_labels(["law"])
    names, Y = indicator_of_lists([[n if n != "dogs" else "cats" for n in row] for row in labels])
    kept = [names.index(name) for name in keeping.label_names_]
    assert np.array_equal(keeping.row_labels_.toarray(), Y[:, kept])
    keeping.add_labels(["ein neues Thema", "a cat"], [["neu", "cats"], ["cats"]])
    assert keeping.row_labels_.toarray()[-2:].tolist() == [[1, 0, 0, 1], [1, 0, 0, 0]]
    assert keeping.rows_.shape[0] == len(texts) + 2
    assert_comes_back(keeping, held, tmp_path)
    assert keeping.label_changes_.tolist() == [
        "refit 'tax' on 120 rows",
        "merge 'cats', 'dogs' into 'cats', fitted on 120 rows",
        "drop 'law'",
        "add 'neu', fitted on 2 rows",
    ]


def test_updated_labels_are_those_of_a_fit_to_all_rows(keeping, train, held, tmp_path):
    before = scores(keeping, held)
    new = ["the cat and the court", "a new puppy", "no label at all"]
    keeping.update(new, [["cats", "law"], ["dogs"], []])
    after = scores(keeping, held)
    assert_same_scores(after, before, ["tax", "Ünïcode 日本"])
    assert not np.array_equal(after["law"], before["law"])
    assert keeping.row_labels_.shape == (123, 5)
    if isinstance(keeping.classifier_, ml.DiSMECClassifier):
        old = keeping.classifier_
        whole = clone(old).set_params(threshold=old.threshold_)
        whole.fit(keeping.rows_, keeping.row_labels_)
        found = whole.decision_function(keeping.vectorizer_.transform(held))
        # The solver starts from the old weights, so the results agree up to its tolerance.
        for at in range(3):
            np.testing.assert_allclose(after[NAMES[at]], found[:, at], rtol=0, atol=1e-3)
    assert_comes_back(keeping, held, tmp_path)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: t.update(["a"], [["cats"]]), "this tagger has not kept them"),
        (lambda t: t.merge_labels(["cats", "dogs"], "pets"), "this tagger keeps no rows"),
        (lambda t: t.refit_labels(["cats"]), "this tagger keeps no rows"),
        (lambda t: t.refit_labels(["cats"], ["a"]), "must both be given"),
        (lambda t: t.rename_labels({"x": "y"}), "keys of `names` must be labels of the model, got 'x'"),
        (lambda t: t.rename_labels({"cats": "dogs"}), "must be unique"),
        (lambda t: t.drop_labels("cats"), "`names` must be an iterable of str, got 'cats'"),
        (lambda t: t.drop_labels(["x"]), "`label` must be a label of the model, got 'x'"),
        (lambda t: t.drop_labels(iter(["cats", "cats"])), r"no label twice, got \['cats', 'cats'\]"),
        (lambda t: t.drop_labels(NAMES), "must not contain all labels of the model"),
        (lambda t: t.add_labels(["a"], [["cats"]]), "at least one new name"),
        (lambda t: t.add_labels(["a"], ["cats"]), "must be a list of names"),
        (lambda t: t.add_labels(["a"], [["x"]], label_ids={"x": "1"}), "`label_ids` must be None"),
        (lambda t: t.merge_labels(["cats", "dogs"], "law", ["a"], [["cats"]]), "`into` must be unique"),
        (lambda t: t.merge_labels(["cats"], "law", ["a"], [["cats"]]), "at least two labels"),
        (lambda t: t.merge_labels(["cats", "dogs"], 3, ["a"], [["cats"]]), "`into` must be a str, got 3"),
        (lambda t: t.refit_labels(["cats"], [], []), "`texts` must have at least one text, got none"),
        (lambda t: t.add_labels([], []), "`texts` must have at least one text, got none"),
        (lambda t: t.add_labels(["a"], 3), "`labels` must be an iterable of lists of names, got 3"),
    ],
)
def test_wrong_changes_change_nothing(call, message, tagger):
    before = vars(tagger).copy()
    with pytest.raises(ValueError, match=message):
        call(tagger)
    assert vars(tagger) == before


def test_a_classifier_of_another_kind_says_so(train):
    tagger = ml.TextTagger(ml.LEMLClassifier(3, random_state=0)).fit(*train)
    assert tagger.rename_labels({"cats": "felines"}).label_names_[0] == "felines"
    with pytest.raises(ValueError, match="`classifier` must be a classifier whose labels can be changed"):
        tagger.drop_labels(["dogs"])


def test_identifiers_follow(train):
    ids = {name: f"id of {name}" for name in NAMES}
    tagger = ml.TextTagger(CLASSIFIERS["dismec"]).fit(*train, label_ids=ids)
    tagger.drop_labels(["cats"]).merge_labels(["dogs", "law"], "both", *train)
    assert tagger.label_ids_.tolist() == [ids[name] for name in ("dogs", "tax", "Ünïcode 日本")]
    with pytest.raises(ValueError, match="`label_ids` must be identifiers of the new labels"):
        tagger.add_labels(["a"], [["x"]])
    tagger.add_labels(["a", "tax"], [["x"], []], label_ids={"x": "1"})
    assert tagger.label_ids_[-1] == "1"
