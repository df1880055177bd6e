"""Features of texts: checks of texts, and a fast conversion of a single text to tf-idf features."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from itertools import chain
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import FeatureUnion, Pipeline

from manylabel.estimator.base import core_rows
from manylabel.estimator.names import values_of_column
from manylabel.estimator.parameters import shown

__all__ = [
    "at_least_one",
    "checked_texts",
    "features_of_text",
    "names_of_features",
    "prepare_text",
    "readable",
    "takes_texts",
]

# Functions that convert one text to a row of features, by the fitted vectorizer.
_CONVERTERS: WeakKeyDictionary[Any, Callable[[str], Any]] = WeakKeyDictionary()


def checked_texts(texts: Iterable[Any]) -> Iterator[str]:
    """Yield the texts, and raise an error at the first text that is not a str."""
    texts = values_of_column(texts, "texts")
    if isinstance(texts, str):
        raise ValueError("`texts` must be an iterable of str, got a str; pass a single text as [text]")
    if not hasattr(texts, "__iter__"):
        raise ValueError(f"`texts` must be an iterable of str, got {shown(texts)}")
    for at, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"each of `texts` must be a str, got {shown(text)} at position {at}")
        yield text


def at_least_one(texts: Iterator[str]) -> Iterator[str]:
    """Return the texts, and raise an error if there are no texts."""
    first = next(texts, None)
    if first is None:
        raise ValueError("`texts` must have at least one text, got none")
    return chain([first], texts)


def readable(texts: Iterator[str], vectorizer: Any) -> Iterator[str] | list[str]:
    """Return the iterator `texts` if `vectorizer` reads it only once, and a list of the texts otherwise.

    The text vectorizers of scikit-learn read the texts once. Other transformers may read the texts several
    times. For example, a `FeatureUnion` passes the texts to several vectorizers. An iterator can be read only
    once, so these transformers need a list.
    """
    first = vectorizer
    while isinstance(first, Pipeline):
        first = next((step for _, step in first.steps if step not in (None, "passthrough")), None)
    return texts if hasattr(first, "build_analyzer") else list(texts)


def prepare_text(vectorizer: Any) -> Callable[[str], Any]:
    """Return a function that converts one text to a row of features, as ``vectorizer.transform`` does."""
    convert = _CONVERTERS.get(vectorizer)
    if convert is None:
        if type(vectorizer) is TfidfVectorizer and vectorizer.norm in ("l2", None):
            convert = _TfidfRow(vectorizer)
        else:
            # The function must not keep the vectorizer alive, so it does not refer to it.
            return lambda text: vectorizer.transform([text])
        _CONVERTERS[vectorizer] = convert
    return convert


def features_of_text(vectorizer: Any, text: str) -> Any:
    """Return the features of one text, equal to ``vectorizer.transform([text])``."""
    return prepare_text(vectorizer)(text)


def takes_texts(transformer: Any) -> bool:
    """Return whether a transformer of scikit-learn converts texts, and not numbers, to features."""
    if isinstance(transformer, Pipeline | FeatureUnion):
        steps = transformer.steps if isinstance(transformer, Pipeline) else transformer.transformer_list
        used = [step[1] for step in steps if step[1] not in (None, "passthrough", "drop")]
        return bool(used) and takes_texts(used[0])
    return hasattr(transformer, "build_analyzer")


def names_of_features(vectorizer: Any) -> Any:
    """Return the feature names of a fitted vectorizer, or None if it does not name its features."""
    try:
        return vectorizer.get_feature_names_out()
    except AttributeError:  # the vectorizer, or a step of a pipeline, has no such method
        return None


class _TfidfRow:
    """Converts one text to a row of features, with exactly the same values as a `TfidfVectorizer`.

    Every call of `TfidfVectorizer.transform` creates an analyzer, copies data, and checks the matrix of the
    features. For a short text, this extra work takes ten times as long as the computation of the features.
    """

    def __init__(self, vectorizer: TfidfVectorizer) -> None:
        # The analyzer refers to its vectorizer. A reference to the key of a weak dict would keep it alive.
        self.analyze = copy(vectorizer).build_analyzer()
        self.vocabulary = vectorizer.vocabulary_
        self.n_features = len(self.vocabulary)
        self.idf = vectorizer.idf_ if vectorizer.use_idf else None
        self.norm = vectorizer.norm
        self.binary = vectorizer.binary
        self.sublinear = vectorizer.sublinear_tf
        self.dtype = vectorizer.dtype

    def __call__(self, text: str) -> csr_array:
        counts: dict[int, int] = {}
        column_of = self.vocabulary.get
        for term in self.analyze(text):
            column = column_of(term)
            if column is not None:
                counts[column] = counts.get(column, 0) + 1
        columns = sorted(counts)
        indices = np.array(columns, dtype=np.int32)
        ones = self.binary
        data: NDArray[Any] = np.array([1 if ones else counts[column] for column in columns], dtype=self.dtype)
        if data.dtype.kind != "f":
            data = data.astype(np.float64)
        if self.sublinear:
            np.log(data, data)
            data += 1.0
        if self.idf is not None:
            data *= self.idf[indices]
        if self.norm == "l2" and len(data):
            # As in scikit-learn: the squares have the dtype of the values, and are added one by one in double
            # precision. `cumsum` adds in this order, but `sum` does not.
            total = float(np.cumsum(data * data, dtype=np.float64)[-1])
            if total > 0:
                np.divide(data, np.sqrt(total), out=data, casting="unsafe", dtype=np.float64)
        indptr = np.array([0, len(columns)], dtype=np.int32)
        return core_rows((indptr, indices, data), (1, self.n_features))
