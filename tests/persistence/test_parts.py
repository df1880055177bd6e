"""Model files with classes of scikit-learn: loaded models give the same answers, and code is refused."""

import numpy as np
import pytest
from scipy.sparse import issparse
from sklearn.decomposition import TruncatedSVD
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import (
    CountVectorizer,
    HashingVectorizer,
    TfidfTransformer,
    TfidfVectorizer,
)
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MultiLabelBinarizer,
    Normalizer,
    StandardScaler,
)

import manylabel as ml
from forgery import put_together, taken_apart
from manylabel.parts import PARTS

TEXTS = ["a cat and a dog", "tax law", "dogs law", "the law cat", "", "Ünïcode, cät 日本 日本"]
Y = np.array([[1, 0], [0, 1], [1, 1], [1, 1], [0, 1], [1, 0]])

FEATURES = [
    TfidfVectorizer(),
    TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, dtype=np.float32, stop_words=["the"]),
    TfidfVectorizer(use_idf=False, norm=None, binary=True),
    TfidfVectorizer(vocabulary=["law", "cat"], stop_words="english"),
    TfidfVectorizer(min_df=2, max_df=0.9, max_features=3),
    CountVectorizer(analyzer="char_wb", ngram_range=(2, 3), strip_accents="unicode"),
    HashingVectorizer(n_features=64, alternate_sign=False),
    make_pipeline(CountVectorizer(), TfidfTransformer(sublinear_tf=True)),
    make_pipeline(CountVectorizer(), TfidfTransformer(use_idf=False), MaxAbsScaler(), Normalizer("l1")),
    make_union(TfidfVectorizer(), TfidfVectorizer(analyzer="char", ngram_range=(1, 2))),
    make_pipeline(TfidfVectorizer(), StandardScaler(with_mean=False)),
    make_pipeline(TfidfVectorizer(), TruncatedSVD(2, random_state=0), StandardScaler()),
    make_pipeline(TfidfVectorizer(), StandardScaler(with_mean=False, with_std=False), "passthrough"),
]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


def dense(matrix):
    return matrix.toarray() if issparse(matrix) else matrix


@pytest.mark.parametrize("features", FEATURES, ids=repr)
def test_a_pipeline_comes_back(features, path):
    model = make_pipeline(features, ml.DiSMECClassifier(random_state=0)).fit(TEXTS, Y)
    ml.save(model, path)
    loaded = ml.load(path)
    assert repr(loaded) == repr(model)
    texts = [*TEXTS, "cat dog law", "unseen words"]
    for one, other in ((model, loaded), (loaded, model)):
        assert np.array_equal(dense(one[:-1].transform(texts)), dense(other[:-1].transform(texts)))
    assert np.array_equal(loaded.decision_function(texts), model.decision_function(texts))
    again = path.with_name("again")
    ml.save(loaded, again)
    assert again.read_bytes() == path.read_bytes()
    loaded.fit(TEXTS, Y)


def test_a_vocabulary_given_as_a_dict_comes_back_as_a_list(path):
    model = TfidfVectorizer(vocabulary={"law": 1, "cat": 0}).fit(TEXTS)
    ml.save(model, path)
    loaded = ml.load(path)
    assert loaded.vocabulary == ["cat", "law"]
    assert np.array_equal(dense(loaded.transform(TEXTS)), dense(model.transform(TEXTS)))


@pytest.mark.parametrize("rows", [[["b", "a"], ["日本"]], [[3, 1], [2]]])
def test_a_binarizer_comes_back(rows, path):
    binarizer = MultiLabelBinarizer(sparse_output=True).fit(rows)
    ml.save(binarizer, path)
    loaded = ml.load(path)
    assert np.array_equal(dense(loaded.transform(rows)), dense(binarizer.transform(rows)))
    assert loaded.inverse_transform(loaded.transform(rows)) == binarizer.inverse_transform(
        binarizer.transform(rows)
    )


def test_missing_values_of_a_scaler_come_back(path):
    X = np.array([[1.0, np.nan], [2.0, 3.0], [4.0, 1.0]])
    scaler = StandardScaler().fit(X)
    ml.save(scaler, path)
    assert np.array_equal(ml.load(path).n_samples_seen_, [3, 2])
    assert np.array_equal(ml.load(path).transform(X), scaler.transform(X), equal_nan=True)


def test_functions_are_refused_with_the_reason(path):
    for vectorizer in (
        TfidfVectorizer(tokenizer=str.split, token_pattern=None),
        HashingVectorizer(preprocessor=str.lower),
        CountVectorizer(analyzer=str.split),
    ):
        model = make_pipeline(vectorizer, ml.DiSMECClassifier(random_state=0)).fit(TEXTS, Y)
        with pytest.raises(TypeError, match=r"`steps\.0\.1\.\w+` cannot be saved: .* not code"):
            ml.save(model, path)
    assert not path.exists()


def test_unknown_classes_are_refused(path):
    class Own(TfidfVectorizer):
        pass

    for model in (make_pipeline(TfidfVectorizer(), FunctionTransformer()), Own()):
        model.fit(TEXTS)
        with pytest.raises(TypeError, match="expected an estimator of manylabel or an instance of"):
            ml.save(model, path)


def test_an_unfitted_vectorizer_is_refused(path):
    with pytest.raises(NotFittedError):
        ml.save(TfidfVectorizer(), path)


def set_tensor(name, value):
    return lambda state, tensors: tensors.__setitem__(name, value)


def set_state(part, name, value):
    return lambda state, tensors: state[part].__setitem__(name, value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_tensor("idf_", np.ones(3)), "shape of `idf_`"),
        (set_tensor("idf_", np.full(2, np.nan)), "values of `idf_` must be finite"),
        (set_tensor("terms_.utf8", np.frombuffer(b"catcat", dtype="u1")), "must be unique"),
        (set_state("fitted", "fixed_vocabulary_", 3), "`fixed_vocabulary_` must be a bool"),
        (set_state("fitted", "other_", 3), "has no fitted attribute 'other_'"),
        (set_state("params", "use_idf", False), "`idf_` if, and only if, `use_idf` is True"),
        (set_state("params", "vocabulary", 3), "cannot load"),
        (
            set_state("params", "dtype", {"dtype": "F99"}),
            "entry `dtype` in `state` of the header must be one of",
        ),
        (set_state("params", "token_pattern", "("), "must be a regular expression"),
        (set_state("params", "ngram_range", "x"), "'ngram_range' parameter of TfidfVectorizer must be"),
        (set_state("params", "surprise", 3), "has no parameter 'surprise'"),
    ],
)
def test_manipulated_vectorizers_are_refused(change, message, path):
    ml.save(TfidfVectorizer().fit(["cat", "law law", "law cat"]), path)
    state, tensors = taken_apart(path)
    change(state, tensors)
    path.write_bytes(put_together(state, tensors))
    with pytest.raises(ValueError, match=message):
        ml.load(path)


def test_every_part_is_a_class_of_scikit_learn():
    assert all(part.cls.__module__.startswith("sklearn.") for part in PARTS.values())
    assert all(name == f"sklearn.{part.cls.__name__}" for name, part in PARTS.items())
