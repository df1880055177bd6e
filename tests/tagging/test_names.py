"""Names of labels from the columns of data frames, in files, explanations and the command line."""

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone

import manylabel as ml
from estimators import ONE_OF_EACH, as_written
from manylabel.datasets import make_multilabel
from manylabel.estimator.names import NamedRows, as_names, check_label, named_indicator
from oracle.tagging import indicator_of_lists

X, Y = make_multilabel(80, 12, 6, random_state=0)
NAMES = ["ä", "cats & dogs", "", "日本", "e", "f"]


class ArrowTable:
    """A table like Arrow's, with columns by name and no method that returns a matrix."""

    def __init__(self, Y, names):
        self.column_names = names
        self.columns_by_name = dict(zip(names, Y.T, strict=True))

    def __getitem__(self, name):
        return self.columns_by_name[name]

    def __arrow_c_stream__(self, requested_schema=None):
        raise NotImplementedError


class PolarsFrame:
    """A data frame like that of polars, with a list of column names and `to_numpy`."""

    def __init__(self, Y, names):
        self.columns = names
        self._values = Y

    def to_numpy(self):
        return self._values

    def __arrow_c_stream__(self, requested_schema=None):
        raise NotImplementedError


FRAMES = {
    "pandas": lambda Y, names: pd.DataFrame(Y, columns=names),
    "sparse pandas": lambda Y, names: pd.DataFrame.sparse.from_spmatrix(csr_array(Y), columns=names),
    "polars": PolarsFrame,
    "arrow": ArrowTable,
}


@pytest.mark.parametrize("classifier", ONE_OF_EACH, ids=as_written)
def test_every_classifier_keeps_the_names(classifier, tmp_path):
    model = clone(classifier).fit(X, pd.DataFrame(Y.toarray(), columns=NAMES))
    assert model.label_names_.tolist() == NAMES
    assert model.label_names_.dtype == object
    model.save(tmp_path / "model")
    assert ml.load(tmp_path / "model").label_names_.tolist() == NAMES
    assert not hasattr(model.fit(X, Y), "label_names_")


@pytest.mark.parametrize("kind", FRAMES)
def test_every_kind_of_frame_gives_names_and_the_same_model(kind):
    frame = FRAMES[kind](Y.toarray(), NAMES)
    model = ml.DiSMECClassifier(1.0, random_state=0).fit(X, frame)
    assert model.label_names_.tolist() == NAMES
    assert model.sparse_output_ == (kind == "sparse pandas")
    plain = ml.DiSMECClassifier(1.0, random_state=0).fit(X, Y)
    assert np.array_equal(model.decision_function(X), plain.decision_function(X))


def test_numbered_columns_are_no_names_and_equal_names_are_refused():
    model = ml.DiSMECClassifier(1.0, random_state=0)
    assert not hasattr(model.fit(X, pd.DataFrame(Y.toarray())), "label_names_")
    with pytest.raises(ValueError, match="column names of Y` must be unique, got 'a' twice"):
        model.fit(X, pd.DataFrame(Y.toarray(), columns=list("abcdea")))


def test_wrong_names_cannot_be_saved_or_loaded(tmp_path):
    model = ml.DiSMECClassifier(1.0, random_state=0).fit(X, Y)
    model.label_names_ = as_names(list("abc"), 3)
    with pytest.raises(ValueError, match=r"shape of `label_names_`: expected \(n_labels\) = \(6,\)"):
        model.save(tmp_path / "model")


def test_rules_are_shown_with_names():
    model = ml.BoostedRulesClassifier(3, random_state=0).fit(X, pd.DataFrame(Y.toarray(), columns=NAMES))
    assert "cats & dogs" in ml.rules.export_text(model)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["a"], "labels of row 0 must be a list of names, got 'a'; pass a single name as"),
        ([["a"], None], "labels of row 1 must be a list of names, got None"),
        ([["a"], [3]], "names of the labels of row 1 must be str, got 3"),
        ([["a"], [np.nan]], "names of the labels of row 1 must be str, got nan"),
    ],
)
def test_wrong_lists_are_refused(rows, message):
    with pytest.raises(ValueError, match=message):
        named_indicator(rows, None)


def test_arrays_of_names_are_lists_of_names():
    for dtype in (str, object):
        names, found = named_indicator(np.array([["b", "a"], ["a", "a"]], dtype=dtype), None)
        assert names.tolist() == ["a", "b"]
        assert found.toarray().tolist() == [[1, 1], [1, 0]]


def test_known_names_fix_the_columns():
    names, found = named_indicator([["b"], [], ["a", "b", "b"]], ["c", "b", "a"])
    assert names.tolist() == ["c", "b", "a"]
    assert found.toarray().tolist() == [[0, 1, 0], [0, 0, 0], [0, 1, 1]]
    with pytest.raises(ValueError, match="row 0 must be in `label_names`, got 'd'"):
        named_indicator([["d"]], ["c", "b", "a"])


def test_lists_equal_the_oracle():
    rng = np.random.default_rng(0)
    rows = [[str(name) for name in rng.choice(list("zyxäbc日"), rng.integers(0, 5))] for _ in range(50)]
    collected = NamedRows()
    for row in rows:
        collected.add(row)
    names, found = collected.indicator()
    wanted_names, wanted = indicator_of_lists(rows)
    assert names.tolist() == wanted_names
    assert np.array_equal(found.toarray(), wanted)
    assert found.has_canonical_format


def test_labels_by_number_and_by_name():
    model = ml.DiSMECClassifier(1.0, random_state=0).fit(X, pd.DataFrame(Y.toarray(), columns=NAMES))
    assert check_label(model, "日本", 6) == check_label(model, np.int64(3), 6) == 3
    for wrong in ("x", 6, -1, True, 1.0, None):
        with pytest.raises(ValueError, match="`label` must be"):
            check_label(model, wrong, 6)
