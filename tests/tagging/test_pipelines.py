"""Taggers made from fitted pipelines: they give the same answers and have the methods of a tagger."""

import numpy as np
import pandas as pd
import pytest
from sklearn.decomposition import TruncatedSVD
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline, make_union
from sklearn.preprocessing import StandardScaler

import manylabel as ml
from manylabel.decision import LabelCalibrator
from oracle.tagging import indicator_of_lists

DISMEC = ml.DiSMECClassifier(1.0, random_state=0)
STEPS = [
    (TfidfVectorizer(),),
    (HashingVectorizer(n_features=2**8), TfidfTransformer()),
    (TfidfVectorizer(), TruncatedSVD(5, random_state=0), StandardScaler()),
    (make_union(TfidfVectorizer(), TfidfVectorizer(analyzer="char")), "passthrough"),
]


@pytest.mark.parametrize("steps", STEPS, ids=repr)
def test_a_saved_pipeline_becomes_a_tagger(steps, train, held, tmp_path):
    texts, labels = train
    names, Y = indicator_of_lists(labels)
    pipeline = make_pipeline(*steps, DISMEC).fit(texts, pd.DataFrame(Y, columns=names))
    ml.save(pipeline, tmp_path / "pipeline")
    loaded = ml.load(tmp_path / "pipeline")
    tagger = ml.TextTagger.from_pipeline(loaded)
    assert tagger.label_names_.tolist() == names
    scores = pipeline.decision_function(held)
    top = tagger.predict_topk(held, k=2)
    assert np.array_equal(top.max(axis=1).toarray().ravel(), np.maximum(scores.max(axis=1), 0))
    for row, suggested in zip(scores, tagger.suggest(held, k=2), strict=True):
        assert [(names[at], row[at]) for at in np.argsort(-row, kind="stable")[:2]] == suggested
    assert tagger.suggest(held[0], k=2) == tagger.suggest(held[:1], k=2)[0]
    sets = pipeline.predict(held).astype(bool)
    assert tagger.predict(held) == [np.array(names)[row].tolist() for row in sets]
    found = tagger.explain(held[0], names[1])
    assert found.score == pytest.approx(scores[0, 1], abs=1e-5)
    tagger.save(tmp_path / "tagger")
    assert ml.load(tmp_path / "tagger").suggest(held) == tagger.suggest(held)
    # The pipeline itself stays as it was.
    assert loaded.steps[-1][1].label_names_.tolist() == names
    tagger.rename_labels({names[0]: "new"}).add_labels(["a b"], [["other"]]).drop_labels(["new"])
    assert tagger.label_names_.tolist() == [*names[1:], "other"]
    assert np.array_equal(loaded.decision_function(held), scores)
    assert tagger.fit(texts, labels).label_names_.tolist() == names


def test_names_and_identifiers(train, held):
    texts, labels = train
    names, Y = indicator_of_lists(labels)
    pipeline = make_pipeline(TfidfVectorizer(), LabelCalibrator(DISMEC, random_state=0)).fit(texts, Y)
    numbered = ml.TextTagger.from_pipeline(pipeline)
    assert numbered.label_names_.tolist() == ["0", "1", "2", "3", "4"]
    ids = [f"id {name}" for name in names]
    named = ml.TextTagger.from_pipeline(pipeline, label_names=names, label_ids=ids)
    for a, b in zip(numbered.suggest(held), named.suggest(held, ids=True), strict=True):
        assert [(ids[int(name)], score) for name, score in a] == b
        assert all(0 <= score <= 1 for _, score in b)


@pytest.mark.parametrize(
    ("pipeline", "message"),
    [
        (DISMEC, "must be a Pipeline of a vectorizer and a classifier"),
        (Pipeline([("only", DISMEC)]), "must be a Pipeline of a vectorizer and a classifier"),
        (make_pipeline(StandardScaler(), DISMEC), "must convert texts to features, .* got StandardScaler"),
        (make_pipeline(TfidfVectorizer(), LogisticRegression()), "the method predict_topk, got LogisticReg"),
    ],
)
def test_other_pipelines_are_refused(pipeline, message):
    with pytest.raises(ValueError, match=message):
        ml.TextTagger.from_pipeline(pipeline)


def test_unfitted_and_one_dimensional(train):
    pipeline = make_pipeline(TfidfVectorizer(), DISMEC.__class__(1.0))
    with pytest.raises(NotFittedError):
        ml.TextTagger.from_pipeline(pipeline)
    pipeline.fit(train[0], ["cats" in row for row in train[1]])
    with pytest.raises(ValueError, match="must be fitted with a 2-D Y, got a 1-D y"):
        ml.TextTagger.from_pipeline(pipeline)
    names = indicator_of_lists(train[1])[0]
    pipeline.fit(train[0], indicator_of_lists(train[1])[1])
    with pytest.raises(ValueError, match="must have 5 names"):
        ml.TextTagger.from_pipeline(pipeline, label_names=names[:2])
