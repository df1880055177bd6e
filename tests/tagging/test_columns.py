"""Columns of texts and of names, and frames of labels: polars, Arrow, and the PyCapsule interface."""

import sys

import numpy as np
import pytest

import manylabel as ml
from manylabel.estimator.names import values_of_column
from oracle.tagging import indicator_of_lists

pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")

DISMEC = ml.DiSMECClassifier(1.0, random_state=0)


class OnlyArray:
    """An object of another library that only exports an Arrow array."""

    def __init__(self, values):
        self._array = pa.array(values)

    def __arrow_c_array__(self, requested_schema=None):
        return self._array.__arrow_c_array__(requested_schema)


class OnlyStream:
    """An object of another library that only exports a stream of Arrow arrays."""

    def __init__(self, values):
        self._array = pa.chunked_array([values[:3], values[3:]])

    def __arrow_c_stream__(self, requested_schema=None):
        return self._array.__arrow_c_stream__(requested_schema)


COLUMNS = {
    "polars": pl.Series,
    "arrow": pa.array,
    "chunks": lambda values: pa.chunked_array([values[:3], values[3:]]),
    "capsule of an array": OnlyArray,
    "capsule of a stream": OnlyStream,
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_columns_of_texts_and_of_names(kind, train, held):
    column = COLUMNS[kind]
    wanted = ml.TextTagger(DISMEC, keep_rows=True).fit(*train)
    tagger = ml.TextTagger(DISMEC, keep_rows=True).fit(*map(column, train))
    assert tagger.label_names_.tolist() == wanted.label_names_.tolist()
    assert tagger.suggest(column(held)) == wanted.suggest(held)
    assert tagger.predict(column(held)) == wanted.predict(held)
    more = (["a new text", "another"], [["cats", "topic"], []])
    for each, (texts, labels) in ((wanted, more), (tagger, map(column, more))):
        each.add_labels(texts, labels)
        each.refit_labels(["topic"], texts, labels)
    assert tagger.suggest(column(held)) == wanted.suggest(held)
    tagger.update(column(["a cat"]), column([["cats"]]))
    assert tagger.suggest(held) == wanted.update(["a cat"], [["cats"]]).suggest(held)


def test_frames_of_polars(train, held):
    texts, labels = train
    names, Y = indicator_of_lists(labels)
    frame = pl.DataFrame({name: Y[:, at].astype(np.int8) for at, name in enumerate(names)})
    table = pl.DataFrame({"title": texts, "subjects": labels})
    wanted = ml.TextTagger(DISMEC).fit(texts, labels).suggest(held)
    assert ml.TextTagger(DISMEC).fit(table["title"], frame).suggest(held) == wanted
    assert ml.TextTagger(DISMEC).fit(table["title"], frame.to_arrow()).suggest(held) == wanted
    assert ml.TextTagger(DISMEC).fit(table["title"], table["subjects"]).suggest(held) == wanted
    assert ml.TextTagger(DISMEC).fit(table.iter_rows()).suggest(held) == wanted
    with pytest.raises(ValueError, match=r"`texts` must be one column, got a table with the columns \['tit"):
        ml.TextTagger(DISMEC).fit(table, frame)
    tagger = ml.TextTagger(DISMEC).fit(texts, labels)
    for rows in (frame, frame.to_arrow(), frame.to_pandas()):
        with pytest.raises(ValueError, match=r"`labels` must be one column, got a table with the columns \["):
            tagger.refit_labels(["cats"], texts, rows)


def test_frames_of_polars_have_names_of_features_and_labels():
    X, Y = ml.datasets.make_multilabel(80, 6, 4, random_state=0)
    words, topics = list("uvwxyz"), ["ä", "b b", "c", "日本"]
    model = ml.DiSMECClassifier(1.0, random_state=0)
    model.fit(pl.DataFrame(X.toarray(), words), pl.DataFrame(Y.toarray(), topics))
    assert model.label_names_.tolist() == topics
    assert model.feature_names_in_.tolist() == words
    plain = ml.DiSMECClassifier(1.0, random_state=0).fit(X.toarray(), Y)
    found = model.decision_function(pl.DataFrame(X.toarray(), words))
    assert np.array_equal(found, plain.decision_function(X.toarray()))
    assert {part.name for part in model.explain(pl.DataFrame(X[[0]].toarray(), words), "b b")} <= {
        *words,
        "intercept",
    }


def test_output_is_a_frame_of_polars():
    X, Y = ml.datasets.make_multilabel(80, 6, 4, random_state=0)
    rembrandt = ml.Rembrandt(2, random_state=0).fit(X, Y)
    wanted = rembrandt.transform(X)
    found = rembrandt.set_output(transform="polars").transform(X)
    assert isinstance(found, pl.DataFrame)
    assert found.columns == ["rembrandt0", "rembrandt1"]
    assert np.array_equal(found.to_numpy(), wanted)


def test_what_is_missing_or_no_text_is_refused(train):
    tagger = ml.TextTagger(DISMEC).fit(*train)
    for column in (*COLUMNS.values(),):
        with pytest.raises(ValueError, match="must be a str, got None at position 1"):
            tagger.suggest(column(["a", None, "b", "c"]))
    with pytest.raises(ValueError, match="must be a str, got 1 at position 0"):
        tagger.suggest(pl.Series([1, 2]))
    with pytest.raises(ValueError, match=r"`texts` must be one column, got a table with the columns \['a'\]"):
        tagger.suggest(OnlyArray([{"a": "text"}]))


def test_capsules_need_pyarrow(monkeypatch):
    column = OnlyArray(["a"])
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ModuleNotFoundError, match="PyCapsule interface, which requires pyarrow"):
        values_of_column(column, "texts")
