"""The tagger: its suggestions are those of its parts, and one file holds all parts."""

import inspect
import os
import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csc_array, csr_array, issparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import Normalizer

import manylabel as ml
from manylabel.decision import DecisionClassifier, ExpectedF1, RiskControl, Thresholds
from manylabel.tagging.features import features_of_text
from oracle.tagging import indicator_of_lists

DISMEC = ml.DiSMECClassifier(1.0, random_state=0)
CLASSIFIERS = [DISMEC, ml.LabelTreeClassifier(1.0, branching=2, max_leaf=2, random_state=0)]
VECTORIZERS = [
    "tfidf",
    TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4)),
    HashingVectorizer(n_features=2**10),
    make_pipeline(CountVectorizer(), Normalizer()),
    make_union(TfidfVectorizer(), TfidfVectorizer(analyzer="char")),
]


def bits(matrix):
    return matrix.indptr.tolist(), matrix.indices.tolist(), matrix.data.tobytes()


@pytest.mark.parametrize("classifier", CLASSIFIERS, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("vectorizer", VECTORIZERS, ids=repr)
def test_suggestions_are_those_of_the_parts_and_come_back(classifier, vectorizer, train, held, tmp_path):
    texts, labels = train
    tagger = ml.TextTagger(classifier, vectorizer=vectorizer).fit(texts, labels)
    names, Y = indicator_of_lists(labels)
    assert tagger.label_names_.tolist() == names
    if vectorizer == "tfidf":
        vectorizer = TfidfVectorizer(sublinear_tf=True, dtype=np.float32)
    vectorizer = clone(vectorizer)
    model = clone(classifier).fit(vectorizer.fit_transform(texts), csr_array(Y))
    top = model.predict_topk(vectorizer.transform(held), k=3)
    wanted = []
    for row in range(len(held)):
        found = top[[row]]
        pairs = zip(found.indices.tolist(), found.data.tolist(), strict=True)
        wanted.append([(names[j], s) for j, s in sorted(pairs, key=lambda pair: (-pair[1], pair[0]))])
    tagger.save(tmp_path / "tagger")
    for each in (tagger, ml.load(tmp_path / "tagger"), pickle.loads(pickle.dumps(tagger))):
        assert each.suggest(held, k=3) == wanted
        assert each.suggest(iter(held), k=3) == wanted
        assert [each.suggest(text, k=3) for text in held[:10]] == wanted[:10]
        sets = model.predict(vectorizer.transform(held)).toarray() > 0
        assert each.predict(held) == [np.array(names)[row].tolist() for row in sets]
    tagger.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "tagger").read_bytes()


def test_it_learns(train, held):
    tagger = ml.TextTagger(DISMEC).fit(*train)
    assert tagger.suggest("a kitten and its taxes, by the cat", k=1)[0][0] == "cats"
    assert tagger.suggest("ñandú 日本", k=1)[0][0] == "Ünïcode 日本"


@pytest.mark.parametrize(
    "form", ["pairs", "stream", "indicator", "sparse", "frame", "series", "tuples", "sets"]
)
def test_every_form_of_input_gives_the_same_tagger(form, train, held):
    texts, labels = train
    names, Y = indicator_of_lists(labels)
    forms = {
        "pairs": lambda tagger: tagger.fit(list(zip(texts, labels, strict=True))),
        "stream": lambda tagger: tagger.fit(zip(iter(texts), iter(labels), strict=True)),
        "indicator": lambda tagger: tagger.fit(texts, Y, label_names=names),
        "sparse": lambda tagger: tagger.fit(iter(texts), csr_array(Y), label_names=names),
        "frame": lambda tagger: tagger.fit(texts, pd.DataFrame(Y.astype(int), columns=names)),
        "series": lambda tagger: tagger.fit(pd.Series(texts), pd.Series(labels)),
        "tuples": lambda tagger: tagger.fit(tuple(texts), [tuple(row) for row in labels]),
        "sets": lambda tagger: tagger.fit(texts, (set(row) for row in labels)),
    }
    tagger = forms[form](ml.TextTagger(DISMEC))
    wanted = ml.TextTagger(DISMEC).fit(texts, labels)
    assert tagger.label_names_.tolist() == wanted.label_names_.tolist()
    assert tagger.suggest(held) == wanted.suggest(held)


def test_features_instead_of_texts(train, tmp_path):
    _, labels = train
    X = np.random.default_rng(0).normal(size=(len(labels), 7)).astype(np.float32)
    tagger = ml.TextTagger(DISMEC, vectorizer=None).fit(X, labels)
    assert tagger.vectorizer_ is None
    tagger.save(tmp_path / "tagger")
    top = tagger.classifier_.predict_topk(X[:1], k=1)
    name = tagger.label_names_[top.indices[0]]
    assert ml.load(tmp_path / "tagger").suggest(X[:1], k=1) == [[(name, float(top.data[0]))]]
    with pytest.raises(ValueError, match="`texts` must be a matrix of features"):
        tagger.suggest("text")
    with pytest.raises(ValueError, match="`labels` must be given if `vectorizer` is None"):
        ml.TextTagger(DISMEC, vectorizer=None).fit(X)


@pytest.mark.parametrize("form", ["list", "int", "float16", "frame", "csr", "csc of int8"])
def test_features_of_any_form_are_kept_and_saved(form, train, tmp_path):
    _, labels = train
    X = np.random.default_rng(0).integers(0, 5, (len(labels), 7))
    forms = {
        "list": X.tolist,
        "int": X.copy,
        "float16": lambda: X.astype(np.float16),
        "frame": lambda: pd.DataFrame(X, columns=list("abcdefg")),
        "csr": lambda: csr_array(X.astype(np.float32)),
        "csc of int8": lambda: csc_array(X.astype(np.int8)),
    }
    given = forms[form]()
    tagger = ml.TextTagger(DISMEC, vectorizer=None, keep_rows=True).fit(given, labels)
    wanted = ml.TextTagger(DISMEC, vectorizer=None).fit(forms[form](), labels).suggest(given)
    assert tagger.suggest(given) == wanted
    if isinstance(given, np.ndarray):
        given[:] = 0  # the kept rows are copies
    kept = tagger.rows_.toarray() if issparse(tagger.rows_) else tagger.rows_
    assert np.array_equal(kept, X)
    tagger.save(tmp_path / "tagger")
    loaded = ml.load(tmp_path / "tagger")
    for each in (tagger, loaded):
        each.update(given[:1] if form == "list" else X[:1], [["cats"]])
        assert each.rows_.shape == (121, 7)


def test_weights_are_not_kept(train):
    texts, labels = train
    with pytest.raises(ValueError, match="`sample_weight` must be None if `keep_rows` is True"):
        ml.TextTagger(DISMEC, keep_rows=True).fit(texts, labels, np.ones(len(texts)))


def test_identifiers(train, held, tmp_path):
    texts, labels = train
    names = sorted({name for row in labels for name in row})
    uris = {name: f"http://example.org/{at}" for at, name in enumerate(names)}
    tagger = ml.TextTagger(DISMEC).fit(texts, labels, label_ids=uris)
    tagger.save(tmp_path / "tagger")
    loaded = ml.load(tmp_path / "tagger")
    for named, identified in zip(loaded.suggest(held), loaded.suggest(held, ids=True), strict=True):
        assert [(uris[name], score) for name, score in named] == identified
    assert loaded.predict(held, ids=True) == [[uris[name] for name in row] for row in loaded.predict(held)]
    with pytest.raises(ValueError, match="identifier for each label, got none for 'law'"):
        ml.TextTagger(DISMEC).fit(texts, labels, label_ids={"cats": "1", "dogs": "2"})
    with pytest.raises(ValueError, match="`label_ids` must be unique"):
        ml.TextTagger(DISMEC).fit(texts, labels, label_ids=["1"] * len(names))
    with pytest.raises(ValueError, match="fitted without `label_ids`"):
        ml.TextTagger(DISMEC).fit(texts, labels).suggest(held, ids=True)
    assert not hasattr(tagger.fit(texts, labels), "label_ids_")


@pytest.mark.parametrize(
    "decision",
    [Thresholds("example_f1"), ExpectedF1(), RiskControl(0.9, delta=0.5)],
    ids=["Thresholds", "ExpectedF1", "RiskControl"],
)
def test_a_decision_rule_chooses_from_calibrated_probabilities(decision, train, held, tmp_path):
    texts, labels = (rows * 8 for rows in train)
    tagger = ml.TextTagger(DISMEC, decision=decision, n_jobs=2).fit(texts, labels)
    model = tagger.classifier_
    assert type(model) is DecisionClassifier
    assert model.n_jobs is None
    X = tagger.vectorizer_.transform(held)
    chosen = model.predict(X).toarray().astype(bool)
    assert tagger.predict(held) == [tagger.label_names_[row].tolist() for row in chosen]
    for text, row in zip(held, model.predict_proba_topk(X, k=2), strict=True):
        found = dict(tagger.suggest(text, k=2))
        assert found == dict(zip(tagger.label_names_[row.indices].tolist(), row.data.tolist(), strict=True))
        assert all(0 <= p <= 1 for p in found.values())
    tagger.save(tmp_path / "tagger")
    back = ml.load(tmp_path / "tagger")
    assert back.predict(held) == tagger.predict(held)
    assert back.suggest(held) == tagger.suggest(held)
    name = tagger.label_names_[0]
    part = back.explain(held[0], name)
    assert part.score == pytest.approx(model.decision_at(X[[0]], [[1, *[0] * (chosen.shape[1] - 1)]]).data[0])
    with pytest.raises(ValueError, match="`decision` must be None to change the labels"):
        back.drop_labels([name])


def test_data_frames_and_nothing_are_no_texts(train):
    texts, labels = train
    frame = pd.DataFrame({"title": texts, "note": texts})
    with pytest.raises(
        ValueError, match=r"`texts` must be one column, got a table with the columns \['title', 'note'\]"
    ):
        ml.TextTagger(DISMEC).fit(frame, labels)
    tagger = ml.TextTagger(DISMEC).fit(frame["title"], labels)
    with pytest.raises(ValueError, match="`texts` must be one column"):
        tagger.suggest(frame)
    with pytest.raises(ValueError, match="`texts` must have at least one text, got none"):
        ml.TextTagger(DISMEC).fit([], [])
    assert tagger.suggest([]) == []


def test_a_tagger_is_cross_validated(train):
    """The precision equals that of the suggestions of taggers fitted here."""
    texts, labels = train
    rows = np.arange(len(texts))
    folds = [(rows[::2], rows[1::2]), (rows[1::2], rows[::2])]
    found = ml.model_selection.cross_validate(ml.TextTagger(DISMEC), texts, labels, scoring="P@1", cv=folds)
    for (fitted, tested), precision in zip(folds, found["test_P@1"], strict=True):
        tagger = ml.TextTagger(DISMEC).fit([texts[row] for row in fitted], [labels[row] for row in fitted])
        best = tagger.suggest([texts[row] for row in tested], k=1)
        hits = [bool(top) and top[0][0] in labels[row] for top, row in zip(best, tested, strict=True)]
        assert precision == pytest.approx(np.mean(hits))


def test_rankings_are_those_of_suggest(train, held):
    tagger = ml.TextTagger(DISMEC).fit(*train)
    top = tagger.predict_topk(held, k=2)
    for row, suggested in zip(top, tagger.suggest(held, k=2), strict=True):
        assert dict(suggested) == dict(
            zip(tagger.label_names_[row.indices].tolist(), row.data.tolist(), strict=True)
        )
    assert tagger.predict_topk([]).shape == (0, len(tagger.label_names_))


def test_kept_rows_and_a_decision_rule_exclude_each_other(train):
    tagger = ml.TextTagger(DISMEC, decision=ExpectedF1(), keep_rows=True)
    with pytest.raises(ValueError, match="`keep_rows` must be False if `decision` is given"):
        tagger.fit(*train)
    assert not hasattr(tagger, "classifier_")


@pytest.mark.parametrize(("verbose", "shown"), [(0, False), (1, True)])
def test_progress_of_texts_is_shown(verbose, shown, train, capsys):
    ml.TextTagger(DISMEC, verbose=verbose).fit(*train)
    assert ("120 texts" in capsys.readouterr().err) == shown
    ml.TextTagger(clone(DISMEC).set_params(verbose=verbose)).fit(*train)
    assert ("120 texts" in capsys.readouterr().err) == shown


def test_a_callback_stops_the_reading_of_texts(train):
    def stop(done):
        raise RuntimeError(f"stopped at {done}")

    texts = iter(train[0] * 100)
    with pytest.raises(RuntimeError, match="stopped at 0"):
        ml.TextTagger(DISMEC).fit(texts, train[1] * 100, progress=stop)
    assert next(texts, None) is not None  # long before the end


@pytest.mark.parametrize("method", ["fit", "drop_labels", "add_labels", "update"])
def test_signatures_show_what_is_returned(method):
    assert inspect.signature(getattr(ml.TextTagger, method)).return_annotation == "Self"


def test_kept_rows_come_back(train, tmp_path):
    texts, labels = train
    tagger = ml.TextTagger(DISMEC, keep_rows=True).fit(texts, labels)
    tagger.save(tmp_path / "tagger")
    loaded = ml.load(tmp_path / "tagger")
    assert bits(loaded.rows_) == bits(tagger.vectorizer_.transform(texts))
    assert np.array_equal(loaded.row_labels_.toarray(), indicator_of_lists(labels)[1])
    assert not hasattr(tagger.set_params(keep_rows=False).fit(texts, labels), "rows_")


def test_weights_reach_the_classifier(train, held):
    texts, labels = train
    weights = np.r_[np.zeros(60), np.ones(60)]
    some = ml.TextTagger(DISMEC, vectorizer=HashingVectorizer(n_features=256))
    weighted = clone(some).fit(texts, labels, weights)
    without = clone(some).fit(texts[60:], labels[60:])
    assert weighted.suggest(held) == without.suggest(held)


TEXTS = st.text(st.sampled_from(" abcäß日.'-1"), max_size=40)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(TEXTS, min_size=3, max_size=8),
    TEXTS,
    st.booleans(),
    st.booleans(),
    st.sampled_from([np.float32, np.float64]),
    st.sampled_from(["l2", "l1", None]),
    st.booleans(),
)
def test_one_text_has_the_bits_of_transform(corpus, text, sublinear, use_idf, dtype, norm, binary):
    vectorizer = TfidfVectorizer(
        token_pattern=r"\w", sublinear_tf=sublinear, use_idf=use_idf, dtype=dtype, norm=norm, binary=binary,
        ngram_range=(1, 2),
    ).fit([*corpus, "a"])  # fmt: skip
    found, wanted = features_of_text(vectorizer, text), csr_array(vectorizer.transform([text]))
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype
    assert bits(csr_array(found)) == bits(wanted)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a text", [["a"]]), "`texts` must be an iterable of str, got a str; pass a single text as"),
        ((["a b", 3], [["a"], ["b"]]), "each of `texts` must be a str, got 3 at position 1"),
        ((["a b", np.nan], [["a"], ["b"]]), "each of `texts` must be a str, got nan at position 1"),
        ((["ab", "cd"], [["a"]]), "number of rows of `labels`: expected 2 as in `texts`, got 1"),
        ((["ab", "cd"], ["a", "b"]), "labels of row 0 must be a list of names, got 'a'"),
        ((["ab", "cd"], [[], []]), "`labels` must have at least one label"),
        ((["ab", "cd"], np.eye(2)), "`label_names` must be given if `labels` is an indicator matrix"),
        ((["ab", "cd"],), r"row 0 of `texts` must be a pair \(text, label names\)"),
        (([("ab", ["a"]), ("cd",)],), r"row 1 of `texts` must be a pair \(text, label names\)"),
        ((3,), "must be an iterable of pairs"),
    ],
)
def test_wrong_input_is_refused_and_changes_nothing(arguments, message, train):
    tagger = ml.TextTagger(DISMEC).fit(*train)
    before = vars(tagger).copy()
    with pytest.raises(ValueError, match=message):
        tagger.fit(*arguments)
    assert vars(tagger) == before


def test_wrong_label_names_are_refused():
    for names, message in ((["a"], "must have 2 names"), (["a", "a"], "must be unique"), ("ab", "got 'ab'")):
        with pytest.raises(ValueError, match=message):
            ml.TextTagger(DISMEC).fit(["ab", "cd"], np.eye(2), label_names=names)


def test_calls_before_fit_and_of_wrong_kind(train):
    with pytest.raises(NotFittedError):
        ml.TextTagger().suggest("text")
    tagger = ml.TextTagger(DISMEC).fit(*train)
    with pytest.raises(ValueError, match="pass a single text as"):
        tagger.predict("text")
    for wrong in (0, 1.5, True, "5"):
        for ask in (tagger.suggest, tagger.predict_topk):
            with pytest.raises(ValueError, match="`k` must be an integer >= 1"):
                ask([], k=wrong)
    assert tagger.suggest("cat", k=10**30) == tagger.suggest("cat", k=5)
    assert tagger.suggest([]) == tagger.predict([]) == []
    assert tagger.suggest("") == tagger.suggest([""])[0]


def test_functions_cannot_be_saved(train, tmp_path):
    tagger = ml.TextTagger(DISMEC, vectorizer=TfidfVectorizer(tokenizer=str.split, token_pattern=None))
    tagger.fit(*train)
    assert tagger.suggest("cat")
    with pytest.raises(TypeError, match=r"`vectorizer\.tokenizer` cannot be saved: .* not code"):
        tagger.save(tmp_path / "tagger")


def test_a_file_with_parts_that_do_not_fit_is_refused(train, tmp_path):
    tagger = ml.TextTagger(DISMEC).fit(*train)
    tagger.label_names_ = tagger.label_names_[:-1]
    with pytest.raises(ValueError, match="`n_labels` of `classifier_`: expected 4, got 5"):
        tagger.save(tmp_path / "tagger")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_worker_suggests(train, held):
    tagger = ml.TextTagger(CLASSIFIERS[1]).fit(*train).prepare()
    wanted = tagger.suggest(held)
    child = os.fork()
    if child == 0:
        os._exit(0 if tagger.suggest(held) == wanted else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_the_number_of_threads_changes_nothing(train, tmp_path):
    files = []
    for n_jobs in (None, 2):
        tagger = ml.TextTagger(CLASSIFIERS[1], n_jobs=n_jobs).fit(*train)
        tagger.set_params(n_jobs=None).save(tmp_path / "tagger")
        files.append((tmp_path / "tagger").read_bytes())
    assert files[0] == files[1]
