"""Descriptions of the scikit-learn classes that a model file can contain, such as `TfidfVectorizer`.

`manylabel.save` can save a pipeline if each step is an estimator of this library or an instance of one of
these classes.

An instance of a scikit-learn class is stored in the same way as an estimator of this library: parameters and
small values as JSON, and arrays as tensors. There are two differences. First, the class name in the file has
the prefix ``sklearn.``. Second, only parameters that differ from their defaults are stored, so that the file
can be loaded with other versions of scikit-learn.

A parameter that is a function cannot be stored, since a model file contains no code.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import (
    CountVectorizer,
    HashingVectorizer,
    TfidfTransformer,
    TfidfVectorizer,
)
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import MaxAbsScaler, MultiLabelBinarizer, Normalizer, StandardScaler

from manylabel.estimator.parameters import shown
from manylabel.estimator.schema import ANY, Array, Attribute, Scalar, Schema

__all__ = ["PARTS", "Part", "part_of"]


class Part(Schema):
    """Description of a scikit-learn class and of the fitted attributes that a model file stores.

    Parameters
    ----------
    cls : type
        The class.
    **attributes : Attribute
        Descriptions of the fitted attributes, by name.
    """

    def __init__(self, cls: type, **attributes: Attribute) -> None:
        super().__init__()
        self.cls = cls
        self.attributes = attributes
        self.name = f"sklearn.{cls.__name__}"
        self.defaults = {
            name: parameter.default for name, parameter in inspect.signature(cls).parameters.items()
        }

    def params(self, estimator: Any) -> dict[str, Any]:
        """Return the parameters that differ from their defaults."""
        return {
            name: value
            for name, value in estimator.get_params(deep=False).items()
            if not _is_same(value, self.defaults[name])
        }

    def fitted(self, estimator: Any) -> dict[str, Any]:
        """Return a dict of the fitted attributes of the estimator.

        Attributes that are not in ``self.attributes`` are left out.
        """
        return {name: vars(estimator)[name] for name in self.attributes if name in vars(estimator)}

    def check_params(self, estimator: Any) -> None:
        """Check the parameters of an estimator as its `fit` does. Raise ValueError if one is not valid."""
        if hasattr(estimator, "_parameter_constraints"):
            estimator._validate_params()

    def restore(self, estimator: Any, fitted: dict[str, Any]) -> None:
        """Check fitted attributes that were read from a file, and set them on the estimator."""
        if not fitted:
            return
        unknown = fitted.keys() - self.attributes.keys()
        if unknown:
            raise ValueError(f"{self.name} has no fitted attribute {min(unknown)!r}")
        vars(estimator).update(fitted)
        self.check(estimator)


class _StepsPart(Part):
    """Description of a class that consists of named estimators, such as `Pipeline`."""

    def __init__(self, cls: type, steps: str) -> None:
        super().__init__(cls)
        self.steps = steps

    def check_params(self, estimator: Any) -> None:
        """Check the parameters of an estimator; see `Part.check_params`."""
        super().check_params(estimator)
        steps = getattr(estimator, self.steps)
        for step in steps:
            if not isinstance(step, tuple | list) or len(step) != 2 or not isinstance(step[0], str):
                raise ValueError(
                    f"`{self.steps}` of {self.name} must be pairs of a name and an estimator, "
                    f"got {shown(step)}"
                )
            if step[1] not in ("passthrough", "drop", None) and not hasattr(step[1], "get_params"):
                raise ValueError(
                    f"`{self.steps}` of {self.name} must have an estimator in each pair, "
                    f"got {shown(step[1])} for {shown(step[0])}"
                )
        if not steps:
            raise ValueError(f"`{self.steps}` of {self.name} must have at least one step, got none")


class _AnalyzerPart(Part):
    """Description of a class that divides texts into terms."""

    def check_params(self, estimator: Any) -> None:
        """Check the parameters of an estimator; see `Part.check_params`."""
        super().check_params(estimator)
        try:
            estimator.build_analyzer()
        except re.error as error:
            raise ValueError(
                f"`token_pattern` of {self.name} must be a regular expression: {error}"
            ) from None


class _TextPart(_AnalyzerPart):
    """Description of a vectorizer with a vocabulary.

    The file of a saved model contains the attribute ``terms_`` instead of ``vocabulary_``. The attribute
    ``terms_`` lists the terms in the order of their columns.
    """

    def __init__(self, cls: type, **attributes: Attribute) -> None:
        super().__init__(cls, fixed_vocabulary_=Scalar(bool), terms_=Array(("n_terms",), "O"), **attributes)

    def params(self, estimator: Any) -> dict[str, Any]:
        found = super().params(estimator)
        given = found.get("vocabulary")
        if isinstance(given, Mapping):
            found["vocabulary"] = _terms(given, "vocabulary").tolist()
        elif isinstance(given, set | frozenset):
            found["vocabulary"] = sorted(given)
        if isinstance(found.get("stop_words"), set | frozenset):
            found["stop_words"] = sorted(found["stop_words"])
        return found

    def fitted(self, estimator: Any) -> dict[str, Any]:
        if not hasattr(estimator, "vocabulary_"):
            return {}
        found = {
            "fixed_vocabulary_": bool(estimator.fixed_vocabulary_),
            "terms_": _terms(estimator.vocabulary_, "vocabulary_"),
        }
        # `idf_` of a TfidfVectorizer is a property, which fails if the vectorizer does not use idf.
        if "idf_" in self.attributes and estimator.use_idf:
            found["idf_"] = estimator.idf_
        return found

    def restore(self, estimator: Any, fitted: dict[str, Any]) -> None:
        if not fitted:
            return
        idf = fitted.pop("idf_", None)
        super().restore(estimator, fitted)
        terms = vars(estimator).pop("terms_")
        vocabulary = dict(zip(terms.tolist(), range(len(terms)), strict=True))
        if len(vocabulary) != len(terms):
            raise ValueError(f"`terms_` of {self.name} must be unique, got a term twice")
        estimator.vocabulary_ = vocabulary
        if "idf_" not in self.attributes:
            return
        if (idf is not None) != bool(estimator.use_idf):
            raise ValueError(
                f"{self.name} must have `idf_` if, and only if, `use_idf` is True, got "
                f"use_idf={estimator.use_idf} {'without' if idf is None else 'with'} `idf_`"
            )
        if idf is None:
            estimator._tfidf = TfidfTransformer(
                norm=estimator.norm, use_idf=False, sublinear_tf=estimator.sublinear_tf
            )
            estimator._tfidf.n_features_in_ = len(terms)  # without it, the transformer is not fitted
            return
        self.attributes["idf_"].check("idf_", idf, {"n_terms": len(terms)})
        try:
            estimator.idf_ = idf
        except TypeError as error:  # the parameter `vocabulary` is not a list of terms
            raise ValueError(f"{self.name} cannot be restored: {error}") from error


class _BinarizerPart(Part):
    """Description of `MultiLabelBinarizer`, which caches its classes in a private attribute."""

    def restore(self, estimator: Any, fitted: dict[str, Any]) -> None:
        super().restore(estimator, fitted)
        estimator._cached_dict = None


def _terms(vocabulary: Mapping[str, Any], name: str) -> Any:
    """Return the terms of a vocabulary in the order of their columns, as an array of str."""
    terms = np.empty(len(vocabulary), dtype=object)
    for term, column in vocabulary.items():
        if not 0 <= column < len(terms):
            raise ValueError(
                f"the columns in `{name}` must be from 0 to {len(terms) - 1}, got {column} for {shown(term)}"
            )
        if terms[column] is not None:
            raise ValueError(
                f"the columns in `{name}` must be unique, got {column} for both {shown(terms[column])} and "
                f"{shown(term)}"
            )
        terms[column] = term
    return terms


def _is_same(value: Any, default: Any) -> bool:
    return value is default or (
        type(value) is type(default) and not callable(value) and bool(value == default)
    )


class _AnyOf(Attribute):
    """Description of a fitted attribute for which several kinds of values are allowed.

    Parameters
    ----------
    *kinds : Attribute or None
        A description of each allowed kind of value. None means that the value may be None.
    """

    def __init__(self, *kinds: Attribute | None) -> None:
        super().__init__()
        self.kinds = kinds

    def check(self, name: str, value: Any, sizes: dict[str, int]) -> None:
        """Check the value of the attribute; see `Attribute.check`."""
        if value is None and None in self.kinds:
            return
        *others, last = [kind for kind in self.kinds if kind is not None]
        for kind in others:
            try:
                kind.check(name, value, dict(sizes))
            except ValueError:
                continue
            return
        last.check(name, value, sizes)


_WIDTH = {
    "n_features_in_": Scalar(int, size="n_features"),
    "feature_names_in_": Array(("n_features",), "O", optional=True),
}
_FLOATS = "f4 f8"

# The classes that a model file can contain, by their names in the file.
PARTS = {
    part.name: part
    for part in (
        _TextPart(CountVectorizer),
        _TextPart(TfidfVectorizer, idf_=Array(("n_terms",), _FLOATS, optional=True)),
        _AnalyzerPart(HashingVectorizer),
        Part(TfidfTransformer, **_WIDTH, idf_=Array(("n_features",), _FLOATS, optional=True)),
        Part(
            TruncatedSVD,
            **_WIDTH,
            components_=Array(("n_components", "n_features"), _FLOATS),
            explained_variance_=Array(("n_components",), _FLOATS),
            explained_variance_ratio_=Array(("n_components",), _FLOATS),
            singular_values_=Array(("n_components",), _FLOATS),
        ),
        Part(
            StandardScaler,
            **_WIDTH,
            n_samples_seen_=_AnyOf(Scalar(float), Array(("n_features",), "i8 f8")),
            mean_=_AnyOf(None, Array(("n_features",), _FLOATS)),
            var_=_AnyOf(None, Array(("n_features",), _FLOATS)),
            scale_=_AnyOf(None, Array(("n_features",), _FLOATS)),
        ),
        Part(
            MaxAbsScaler,
            **_WIDTH,
            n_samples_seen_=Scalar(int),
            max_abs_=Array(("n_features",), _FLOATS),
            scale_=Array(("n_features",), _FLOATS),
        ),
        Part(Normalizer, **_WIDTH),
        _BinarizerPart(MultiLabelBinarizer, classes_=Array(("n_labels",), ANY)),
        _StepsPart(Pipeline, "steps"),
        _StepsPart(FeatureUnion, "transformer_list"),
    )
}


def part_of(estimator: Any) -> Part | None:
    """Return the `Part` that describes the class of an estimator, or None if the class is not in `PARTS`."""
    part = PARTS.get(f"sklearn.{type(estimator).__name__}")
    return part if part is not None and part.cls is type(estimator) else None
