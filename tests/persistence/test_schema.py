"""Schemas of fitted attributes: loaded parts must fit together, and a small file makes no large model."""

import copy

import numpy as np
import pytest
from scipy.sparse import csr_array, issparse

import manylabel as ml
from estimators import CLASSIFIERS, PARTITIONERS, TRANSFORMERS
from golden import FOLDER
from manylabel import persistence
from manylabel.datasets import make_multilabel
from manylabel.estimator.base import Estimator
from manylabel.estimator.registry import CLASSES
from manylabel.estimator.schema import Array, Each, Scalar, Schema

FILES = sorted(FOLDER.glob("*.model"))


def spoiled(value):
    """Wrong values of an attribute, each with a description."""
    if issparse(value):
        yield "rows missing", value[:-1]
        yield "another type", value.astype(np.int8)
        yield "dense", value.toarray()
        if value.nnz:
            infinite = value.copy()
            infinite.data[0] = np.nan
            yield "NaN", infinite
    elif isinstance(value, np.ndarray) and value.size:
        yield "another type", value.astype("M8[s]") if value.dtype != object else value.astype("U")
        yield "flat" if value.ndim > 1 else "deep", value.ravel() if value.ndim > 1 else value[:, None]
        if value.dtype.kind == "f":
            yield "NaN", np.full_like(value, np.nan)
            yield "infinite", np.full_like(value, np.inf)
    elif isinstance(value, list):
        yield "parts missing", value[:-1]
        yield "a part of no use", ["x", *value[1:]]
    elif isinstance(value, bool | int | float):
        yield "another type", "x"
        yield "None", None


def refuses(model):
    try:
        type(model).schema.check(model)
    except ValueError as error:
        return "must " in str(error) or "expected " in str(error)
    return False


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_attribute_is_looked_at(path):
    model = ml.load(path)
    for name, value in vars(model).items():
        if not name.endswith("_"):
            continue
        for what, wrong in spoiled(value):
            # Rows of a tagger and weights of DiSMEC may be dense.
            if what == "dense" and (
                name == "rows_" or (name == "coef_" and type(model) is ml.DiSMECClassifier)
            ):
                continue
            broken = copy.copy(model)
            vars(broken)[name] = wrong
            assert refuses(broken), f"{name}: {what}"


def test_dense_weights_are_looked_at():
    X, Y = make_multilabel(80, 12, 6, random_state=0)
    model = ml.DiSMECClassifier(1.0, random_state=0).fit(X.toarray(), Y)
    cases = dict(spoiled(model.coef_)) | {
        "rows missing": model.coef_[:-1],
        "columns missing": model.coef_[:, 1:],
    }
    for what, model.coef_ in cases.items():
        assert refuses(model), what


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_nothing_may_be_missing(path):
    model = ml.load(path)
    for name, attribute in type(model).schema.attributes.items():
        if not attribute.optional:
            broken = copy.copy(model)
            del vars(broken)[name]
            with pytest.raises(ValueError, match=f"the fitted attribute `{name}` of .* is missing"):
                type(model).schema.check(broken)


def test_every_class_has_a_schema_that_its_fits_meet():
    X, Y = make_multilabel(80, 12, 6, random_state=0)
    for estimator in CLASSIFIERS + TRANSFORMERS + PARTITIONERS:
        model = estimator.fit(X, Y)
        fitted = {name for name in vars(model) if name.endswith("_")}
        assert fitted <= set(type(model).schema.attributes), type(model)
        type(model).schema.check(model)
    ours = {name: cls for name, cls in CLASSES.items() if issubclass(cls, Estimator)}
    assert [name for name, cls in ours.items() if not hasattr(cls, "schema")] == []


def test_a_small_file_makes_no_large_model(tmp_path, monkeypatch):
    X, Y = make_multilabel(80, 12, 6, random_state=0)
    model = ml.BoostedRulesClassifier(5, random_state=0).fit(X, Y)
    wide = model.heads_
    model.heads_ = csr_array((wide.data, wide.indices, wide.indptr), shape=(wide.shape[0], 2**30))
    with pytest.raises(ValueError, match=r"shape of `heads_`: expected \(n_rules, n_labels\) = \(5, 6\)"):
        model.save(tmp_path / "model")
    monkeypatch.setattr(persistence, "_check_fitted", lambda estimator: None)
    model.save(tmp_path / "model")
    monkeypatch.undo()
    assert (tmp_path / "model").stat().st_size < 10_000
    with pytest.raises(ValueError, match=r"cannot load .*model: shape of `heads_`"):
        ml.load(tmp_path / "model")


def test_inner_models_are_checked_before_a_file_is_written(tmp_path):
    X, Y = make_multilabel(80, 12, 6, random_state=0)
    model = ml.BlockPartitionClassifier(n_blocks=2, lam=0.1, random_state=0).fit(X, Y)
    inner = next(each for each in model.estimators_ if each is not None)
    inner.intercept_ = np.full_like(inner.intercept_, np.nan)
    with pytest.raises(ValueError, match="values of `intercept_` must be finite, got nan"):
        model.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_ends_rise_and_indices_are_in_range():
    schema = Schema(
        ends_=Array(("n_parts + 1",), "i8", ends="n"),
        items_=Array(("n",), "i4", below="n_features"),
        parts_=Each(Scalar(int), "n_parts"),
    )

    def check(ends=(0, 1, 3), items=(0, 4, 2), parts=(1, 2)):
        class Model:
            n_features_in_ = 5
            ends_, items_, parts_ = np.array(ends), np.array(items, dtype=np.int32), list(parts)

        model = Model()
        vars(model).update({name: value for name, value in vars(Model).items() if name.endswith("_")})
        schema.check(model)

    check()
    for wrong in ({"ends": (1, 1, 3)}, {"ends": (0, 4, 3)}, {"items": (0, 5, 2)}, {"items": (0, -1, 2)},
                  {"items": (0, 1)}, {"parts": (1,)}, {"parts": (1, "x")}):  # fmt: skip
        with pytest.raises(ValueError, match=r"`(ends|items|parts)_"):
            check(**wrong)


@pytest.mark.parametrize("name", ["coef_", "intercept_", "label_embedding_"])
def test_an_embedding_is_of_one_precision(name):
    model = ml.Rembrandt(2, random_state=0).fit(*make_multilabel(40, 6, 5, random_state=0))
    value = getattr(model, name)
    setattr(model, name, value.astype("f4" if value.dtype == "f8" else "f8"))
    assert refuses(model)
