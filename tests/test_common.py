"""All estimators: the checks of scikit-learn, and properties that users with many labels rely on."""

import copy
import inspect
import pickle

import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy.sparse import coo_array, csc_array, csr_array, csr_matrix, issparse, lil_array
from scipy.special import logit
from sklearn.base import BaseEstimator, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GridSearchCV, ShuffleSplit, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MultiLabelBinarizer, StandardScaler
from sklearn.utils import get_tags
from sklearn.utils.fixes import parse_version

import manylabel as ml
from cases import case
from checks import assert_checks_pass
from estimators import (
    CLASSIFIERS,
    ONE_OF_EACH,
    PARTITIONERS,
    TAGGERS,
    TRANSFORMERS,
    WITH_GIVEN_VALUES,
    as_written,
    compares_labels,
    is_sampled,
    predicts_signs,
    ranks_by_probabilities,
    scores_every_label,
)
from manylabel import decision
from manylabel.datasets import make_multilabel
from manylabel.decision import DecisionClassifier, LabelCalibrator
from manylabel.estimator import validation

not_0_and_1 = "passes a 1-D target of other values than 0 and 1; tested here with indicator matrices instead"
single = "needs seven digits of weights, which are in single precision"
EXPECTED_FAILED_CHECKS = {
    "check_classifier_data_not_an_array": not_0_and_1,
    "check_classifiers_classes": not_0_and_1,
    "check_estimators_dtypes": not_0_and_1,
    "check_fit2d_1feature": not_0_and_1,
    "check_sample_weights_not_an_array": not_0_and_1,
    "check_sample_weights_not_overwritten": not_0_and_1,
    "check_sample_weights_pandas_series": not_0_and_1,
    "check_sample_weights_shape": not_0_and_1,
}
if parse_version(sklearn.__version__) < parse_version("1.7"):  # checks may use the classes 1 and 2
    EXPECTED_FAILED_CHECKS |= dict.fromkeys(
        (
            "check_dict_unchanged",
            "check_dont_overwrite_parameters",
            "check_dtype_object",
            "check_estimator_sparse_array",
            "check_estimator_sparse_matrix",
            "check_estimators_fit_returns_self",
            "check_estimators_overwrite_params",
            "check_estimators_pickle",
            "check_f_contiguous_array_estimator",
            "check_fit2d_predict1d",
            "check_fit_check_is_fitted",
            "check_methods_sample_order_invariance",
            "check_methods_subset_invariance",
            "check_pipeline_consistency",
            "check_readonly_memmap_input",
            "check_sample_weight_equivalence_on_dense_data",
            "check_sample_weight_equivalence_on_sparse_data",
        ),
        not_0_and_1,
    )


def expected_failed_checks(classifier):
    sampled = "a row of weight two is sampled as one row" if is_sampled(classifier) else None
    expected = dict(EXPECTED_FAILED_CHECKS)
    if not compares_labels(classifier):  # otherwise a single label leaves all weights at 0
        expected["check_sample_weight_equivalence_on_dense_data"] = sampled or single
        expected["check_sample_weight_equivalence_on_sparse_data"] = sampled or single
    else:
        expected["check_classifiers_train"] = "needs a fit to a single label"
    if getattr(classifier, "loss", "") == "squared" and hasattr(classifier, "predict_proba"):
        tied = "needs no ties; predictions of least squares are clipped to 0 and 1"
        expected["check_classifier_multioutput"] = tied
        expected["check_classifiers_multilabel_output_format_predict_proba"] = tied
    if hasattr(classifier, "decoder"):
        expected["check_classifier_multioutput"] = (
            "needs scores in the order of probabilities; the scores are conditional on the other labels"
        )
    if not predicts_signs(classifier):
        expected["check_classifier_multioutput"] = "needs predictions that are the signs of the scores"
    if isinstance(classifier, decision.DecisionClassifier):
        expected["check_classifiers_train"] = "needs rows without labels; sets of best expected F1 have one"
    return expected


every_classifier = pytest.mark.parametrize("classifier", CLASSIFIERS, ids=as_written)
every_quick_one = pytest.mark.parametrize("classifier", WITH_GIVEN_VALUES, ids=as_written)
every_class = pytest.mark.parametrize("classifier", ONE_OF_EACH, ids=as_written)


def test_no_public_estimator_is_left_out():
    public = [getattr(module, name) for module in (ml, decision) for name in module.__all__]
    rules = decision.rules.DecisionRule  # are no estimators of labels from features
    classes = {value for value in public if inspect.isclass(value) and issubclass(value, BaseEstimator)}
    classes -= {value for value in classes if issubclass(value, rules)}
    others = TRANSFORMERS + PARTITIONERS + TAGGERS
    assert classes == {type(estimator) for estimator in CLASSIFIERS + others}


@every_class
def test_scikit_learn_checks(classifier):
    assert_checks_pass(classifier, expected_failed_checks(classifier))


def test_tags():
    for classifier in CLASSIFIERS:
        tags = get_tags(classifier)
        with case(classifier):
            assert tags.estimator_type == "classifier"
            assert tags.input_tags.sparse
            assert tags.classifier_tags.multi_label
            assert not tags.classifier_tags.multi_class
            assert tags.target_tags.multi_output
            assert tags.target_tags.single_output


# --- comparison of models


def bits(value):
    """A value in a form whose `==` compares bit for bit."""
    if isinstance(value, BaseEstimator):
        return {name: bits(part) for name, part in vars(value).items() if name.endswith("_")}
    if issparse(value):
        return value.format, value.shape, [bits(part) for part in (value.data, value.indices, value.indptr)]
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, list | np.ndarray):
        return [bits(part) for part in value]
    return value


def predictions(model, X):
    return bits([model.predict(X), model.decision_function(X), model.predict_topk(X, k=3)])


def planted(n_rows):
    X, Y = make_multilabel(n_rows, 60, 40, n_nonzero=10, random_state=0)
    X.data = np.ceil(X.data * 8)  # integers, which all dtypes can represent
    return X, Y


@pytest.fixture(scope="module")
def problem():
    """The most frequent label has a fifth of the rows and the rarest has two, so all solvers are used.

    The columns of Y are half of the planted labels, with these two among them.
    """
    X, Y = planted(300)
    return X, Y[:, np.r_[0:20:2, 21:40:2]]


@pytest.fixture(scope="module", params=CLASSIFIERS, ids=as_written)
def fitted(request, problem):
    return clone(request.param).fit(*problem)


@pytest.fixture(scope="module")
def told(fitted, problem):
    """What `fitted` predicts, in the order of `predictions`."""
    X = problem[0]
    return fitted.predict(X), fitted.decision_function(X), fitted.predict_topk(X, k=3)


@pytest.fixture(scope="module")
def few(problem):
    """The first rows and labels of `problem`."""
    return problem[0][:80], problem[1][:80, :12]


@pytest.fixture(scope="module", params=ONE_OF_EACH, ids=as_written)
def fitted_to_few(request, few):
    return clone(request.param).fit(*few)


@pytest.fixture(scope="module")
def told_of_few(fitted_to_few, few):
    """The state and the predictions of `fitted_to_few`, to compare with."""
    return bits(fitted_to_few), predictions(fitted_to_few, few[0]), fitted_to_few.predict(few[0]).toarray()


# --- tools of scikit-learn


TEXTS = ["a cat sat", "a dog ran", "cat and dog", "the sun rose", "sun and cat", "dog in sun"] * 6
TOPICS = [{"cat"}, {"dog"}, {"cat", "dog"}, {"sun"}, {"sun", "cat"}, {"dog", "sun"}] * 6


@every_class
@pytest.mark.parametrize("sparse_output", [False, True])
def test_text_pipeline(classifier, sparse_output):
    Y = MultiLabelBinarizer(sparse_output=sparse_output).fit_transform(TOPICS)
    model = make_pipeline(TfidfVectorizer(token_pattern=r"\w{3,}"), classifier)
    if not sparse_output:  # cross_val_score does not take a sparse Y
        assert cross_val_score(model, TEXTS, Y, cv=2).tolist() == [1, 1]
    step = model.steps[-1][0]
    halves = ShuffleSplit(1, test_size=0.5, random_state=0)
    search = GridSearchCV(model, {f"{step}__n_jobs": [1, 2]}, cv=halves).fit(TEXTS, Y)
    assert search.cv_results_["mean_test_score"].tolist() == [1, 1]
    assert issparse(search.predict(TEXTS)) == sparse_output


@every_quick_one
def test_feature_names(classifier, few):
    X = pd.DataFrame(few[0].toarray()[:, :3], columns=["red", "green", "blue"])
    model = make_pipeline(StandardScaler(), clone(classifier)).set_output(transform="pandas")
    model.fit(X, pd.DataFrame(few[1].toarray()))
    assert model[-1].feature_names_in_.tolist() == ["red", "green", "blue"]
    scaled = model[0].transform(X)
    with pytest.raises(ValueError, match=r"feature names should match.*\n.*unseen at fit time:\n- cyan"):
        model[-1].predict(scaled.rename(columns={"red": "cyan"}))
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        np.testing.assert_array_equal(model[-1].predict(scaled.to_numpy()), model.predict(X))
    model[-1].fit(*few)
    assert not hasattr(model[-1], "feature_names_in_")
    assert model[-1].n_features_in_ == few[0].shape[1]


@every_class
def test_full_validation_gives_the_same_as_quick_checks(classifier, few, monkeypatch):
    X, Y = few
    X = X.astype(np.float32)
    expected = bits(clone(classifier).fit(X, Y))
    monkeypatch.setattr(validation, "_is_ready", lambda *_, **__: False)
    assert bits(clone(classifier).fit(X, Y.astype(np.float64))) == expected


def params(model):
    """The parameters, including those of nested estimators, which are replaced by their class."""
    return {
        name: type(value) if isinstance(value, BaseEstimator) else value
        for name, value in model.get_params().items()
    }


def copies(fitted, folder):
    """Copies of a model by every way to copy or store it."""
    joblib.dump(fitted, folder / "model")
    fitted.save(folder / "model.safetensors")
    return [
        copy.deepcopy(fitted),
        pickle.loads(pickle.dumps(fitted)),
        joblib.load(folder / "model"),
        joblib.load(folder / "model", mmap_mode="r"),
        ml.load(folder / "model.safetensors"),
    ]


def test_copies_of_every_kind(fitted, problem, tmp_path):
    X = problem[0][:40]
    assert not [name for name in vars(clone(fitted)) if name.endswith("_")]
    expected = predictions(fitted, X)
    for model in copies(fitted, tmp_path):
        assert type(model) is type(fitted)
        assert params(model) == params(fitted)
        assert bits(model) == bits(fitted)
        assert predictions(model, X) == expected


# --- invariance of results


def test_number_of_threads(fitted, told, problem):
    model = clone(fitted).set_params(n_jobs=2).fit(*problem)
    assert bits(model) == bits(fitted)
    assert predictions(model, problem[0]) == bits([*told])


@pytest.mark.parametrize(
    "classifier",
    [each for each in CLASSIFIERS if "random_state" in each.get_params()],
    ids=as_written,
)
def test_a_random_state_instance_is_a_seed(classifier, problem):
    first, second = (
        clone(classifier).set_params(random_state=np.random.RandomState(5)).fit(*problem) for _ in range(2)
    )
    assert bits(first) == bits(second)


def test_company_and_order_of_rows(fitted, told, problem):
    X = problem[0]
    indicator, scores, top = told
    order = np.random.default_rng(0).permutation(X.shape[0])
    assert bits(fitted.decision_function(X[order])) == bits(scores[order])
    assert bits(fitted.predict(X[order])) == bits(indicator[order])
    assert bits(fitted.predict_topk(X[order], k=3)) == bits(top[order])
    for i in range(0, X.shape[0], 30):
        row = slice(i, i + 1)
        assert predictions(fitted, X[row]) == bits([indicator[row], scores[row], top[row]])


def read_only(X):
    X = X.copy()
    for part in (X.data, X.indices, X.indptr):
        part.flags.writeable = False
    return X


def shifted(array):
    """The same numbers at an address that is not aligned."""
    room = np.empty(array.nbytes + 1, dtype=np.uint8)[1:].view(array.dtype)
    room[...] = array
    assert not room.flags.aligned
    return room


def by_parts(X, change):
    X = X.copy()
    X.data, X.indices, X.indptr = change(X.data), change(X.indices), change(X.indptr)
    return X


def with_values(X, dtype):
    """The same matrix with a dtype that scipy's constructors may not take."""
    X = X.copy()
    X.data = X.data.astype(dtype)
    return X


def untidy(X):
    """The same matrix with reversed columns, split values, stored zeros, and unused room at the end."""
    X = X.tocsr()
    coo = coo_array(X)
    rows = np.concatenate([coo.row, coo.row, coo.row])
    cols = np.concatenate([coo.col, coo.col, (coo.col + 1) % X.shape[1]])
    data = np.concatenate([coo.data / 2, coo.data / 2, coo.data * 0])
    order = np.lexsort([-cols, rows])
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=X.shape[0]))])
    result = csr_array((data[order], cols[order], indptr), shape=X.shape)
    result.data, result.indices = np.append(result.data, 7.0), np.append(result.indices, 0)
    assert not result.has_canonical_format
    return csr_array((result.data, result.indices, result.indptr), shape=X.shape)


def mapped(array, folder):
    path = folder / f"{len(list(folder.iterdir()))}.npy"
    np.save(path, array)
    return np.load(path, mmap_mode="r")


X_FORMS = {
    "dense": lambda X, _: X.toarray(),
    "Fortran order": lambda X, _: np.asfortranarray(X.toarray()),
    "every other column": lambda X, _: np.repeat(X.toarray(), 2, axis=1)[:, ::2],
    "lists": lambda X, _: X.toarray().tolist(),
    "CSR matrix": lambda X, _: csr_matrix(X),
    "CSC": lambda X, _: csc_array(X),
    "COO": lambda X, _: coo_array(X),
    "LIL": lambda X, _: lil_array(X),
    "float32": lambda X, _: X.astype(np.float32),
    "float64": lambda X, _: X.astype(np.float64),
    "float16": lambda X, _: X.toarray().astype(np.float16),
    "int8": lambda X, _: X.astype(np.int8),
    "uint64": lambda X, _: X.astype(np.uint64),
    "object": lambda X, _: X.toarray().astype(object),
    "other byte order": lambda X, _: X.toarray().astype(">f8"),
    "long double": lambda X, _: X.toarray().astype(np.longdouble),
    "sparse float16": lambda X, _: with_values(X, np.float16),
    "sparse other byte order": lambda X, _: with_values(X, ">f4"),
    "sparse long double": lambda X, _: with_values(X, np.longdouble),
    "COO other byte order": lambda X, _: with_values(coo_array(X), ">i8"),
    "positions of other byte order": lambda X, _: by_parts(
        X, lambda part: part.astype(">i4") if part.dtype == np.int32 else part
    ),
    "int64 positions": lambda X, _: by_parts(
        X, lambda part: part.astype(np.int64) if part.dtype == np.int32 else part
    ),
    "int16 positions": lambda X, _: by_parts(
        X, lambda part: part.astype(np.int16) if part.dtype == np.int32 else part
    ),
    "positions of both widths": lambda X, _: by_parts(
        X, lambda part: part.astype(np.int64) if len(part) == X.shape[0] + 1 else part
    ),
    "read-only": lambda X, _: read_only(X),
    "not aligned": lambda X, _: by_parts(X, shifted),
    "strided": lambda X, _: by_parts(X, lambda part: np.repeat(part, 2)[::2]),
    "mapped": lambda X, folder: by_parts(X, lambda part: mapped(part, folder)),
    "mapped dense": lambda X, folder: mapped(X.toarray(), folder),
    "not canonical": lambda X, _: untidy(X),
}


# Dense forms of X. The fit of `DiSMECClassifier` to a dense X has the same optimum as the fit to a sparse X,
# but not the same bits.
DENSE_FORMS = {
    "dense",
    "Fortran order",
    "every other column",
    "lists",
    "float16",
    "object",
    "other byte order",
    "long double",
    "mapped dense",
}


def frozen(value):
    """The state of an argument, which must not change."""
    if isinstance(value, coo_array):
        return [(id(part), bits(part)) for part in (value.data, value.row, value.col)]
    if isinstance(value, lil_array):
        return value.rows.tolist(), value.data.tolist()
    if issparse(value):
        return [(id(part), bits(part)) for part in (value.data, value.indices, value.indptr)]
    return bits(np.asarray(value, dtype=float))


def fits_dense_rows(model):
    """Whether the fit to a dense X has other bits than the fit to a sparse X."""
    inner = model.estimator if type(model) in (LabelCalibrator, DecisionClassifier) else model
    return isinstance(inner, ml.LEMLClassifier) or (
        isinstance(inner, ml.DiSMECClassifier) and inner.loss == "squared_hinge"
    )


def test_form_of_features(fitted_to_few, told_of_few, few, tmp_path):
    X, Y = few
    of_dense = clone(fitted_to_few).fit(X.toarray(), Y) if fits_dense_rows(fitted_to_few) else None
    for form in X_FORMS:
        with case(form):
            same = X_FORMS[form](X, tmp_path)
            before = frozen(same)
            model = clone(fitted_to_few).fit(same, Y)
            expected = told_of_few[:2]
            if form in DENSE_FORMS and fits_dense_rows(model):
                expected = bits(of_dense), predictions(of_dense, X.toarray())
            assert (bits(model), predictions(model, same)) == expected
            assert frozen(same) == before


@every_class
def test_bool_features(classifier, few):
    X, Y = few[0].astype(bool), few[1]
    assert bits(clone(classifier).fit(X, Y)) == bits(clone(classifier).fit(X.astype(np.float32), Y))


Y_FORMS = {
    "dense": lambda Y: Y.toarray(),
    "lists": lambda Y: Y.toarray().tolist(),
    "bool": lambda Y: Y.toarray().astype(bool),
    "frame": lambda Y: pd.DataFrame(Y.toarray()),
    "sparse bool": lambda Y: Y.astype(bool),
    "uint8": lambda Y: Y.astype(np.uint8),
    "float64": lambda Y: Y.astype(np.float64),
    "float16": lambda Y: Y.toarray().astype(np.float16),
    "long double": lambda Y: Y.toarray().astype(np.longdouble),
    "other byte order": lambda Y: Y.toarray().astype(">i4"),
    "frame of float16": lambda Y: pd.DataFrame(Y.toarray().astype(np.float16)),
    "sparse float16": lambda Y: with_values(Y, np.float16),
    "sparse other byte order": lambda Y: with_values(Y, ">f8"),
    "COO other byte order": lambda Y: with_values(coo_array(Y), ">i2"),
    "CSR matrix": lambda Y: csr_matrix(Y),
    "CSC": lambda Y: csc_array(Y),
    "COO": lambda Y: coo_array(Y),
    "LIL": lambda Y: lil_array(Y),
    "int64 positions": lambda Y: by_parts(Y, lambda part: part.astype(np.int64)),
    "read-only": lambda Y: read_only(Y),
    "not canonical": lambda Y: untidy(Y),
}


def test_form_of_labels(fitted_to_few, told_of_few, few):
    X, Y = few
    for form in Y_FORMS:
        with case(form):
            same = Y_FORMS[form](Y)
            before = frozen(same)
            model = clone(fitted_to_few).fit(X, same)
            assert frozen(same) == before
            assert model.sparse_output_ == issparse(same)
            prediction = model.predict(X)
            assert (prediction.shape, prediction.dtype) == (Y.shape, np.int64)
            assert type(prediction) is (csr_array if issparse(same) else np.ndarray)
            np.testing.assert_array_equal(np.asarray(csr_array(prediction).todense()), told_of_few[2])
            model.sparse_output_ = True
            assert bits(model) == told_of_few[0]


@every_class
def test_form_of_sample_weight(classifier, few):
    X, Y = few
    weights = np.random.default_rng(0).integers(1, 4, X.shape[0]).astype(np.float64)
    before = weights.copy()
    expected = bits(clone(classifier).fit(X, Y, weights))
    np.testing.assert_array_equal(weights, before)
    for same in (weights.astype(int), weights.tolist(), pd.Series(weights), weights.astype(np.float32)):
        assert bits(clone(classifier).fit(X, Y, sample_weight=same)) == expected
    assert bits(clone(classifier).fit(X, Y, np.ones(X.shape[0]))) == bits(clone(classifier).fit(X, Y))


@every_classifier
def test_a_row_of_weight_zero_is_absent(classifier, problem):
    X, Y = problem
    kept = np.arange(X.shape[0]) % 3 > 0
    weighted = clone(classifier).fit(X, Y, sample_weight=kept)
    assert bits(weighted) == bits(clone(classifier).fit(X[kept], Y[kept]))


# --- consistency of predictions


@every_quick_one
def test_rankings_are_those_of_the_scores(classifier):
    X, Y = planted(700)  # enough rows to have every label in a block
    Y = Y.toarray()
    Y[:, 20:] = Y[:, :20]  # copies, which may have equal scores
    Y[:, [4, 24, 30]] = 0  # labels without rows
    model = clone(classifier).fit(X, Y)
    X, Y = X[:150], Y[:150]  # enough to have scores of every label of a block
    assert model.score(X, Y) == (model.predict(X) == Y).all(axis=1).mean()
    X = csr_array(np.vstack([X.toarray(), np.zeros((1, X.shape[1]))]))
    predicted, scores = model.predict(X), model.decision_function(X)
    assert not predicted[:, [4, 24, 30]].any()
    if predicts_signs(model):
        np.testing.assert_array_equal(predicted, scores > 0)
    if ranks_by_probabilities(model):
        with np.errstate(divide="ignore"):
            scores = logit(model.predict_proba(X)).astype(np.float32)
    for k in (1, 3, 39, 41, 2**70):
        assert_ranked(model, X, k, scores.copy())


def assert_ranked(model, X, k, scores):
    top = model.predict_topk(X, k=k)
    if ranks_by_probabilities(model):  # the order of nearly equal scores is not compared
        coo = top.tocoo()
        at = coo.row, coo.col
        np.testing.assert_allclose(top.data, scores[at], rtol=1e-3, atol=1e-4)
        scores -= 1e-3 * (1 + np.abs(scores))
        scores[at] = top.data
    assert scores.shape == top.shape == (X.shape[0], 40)
    assert np.isneginf(scores).all(axis=0).nonzero()[0].tolist() == [4, 24, 30]
    scored = np.isfinite(scores).sum(axis=1)
    assert (scored == 37).all() or not scores_every_label(model)
    kept = np.minimum(min(k, 40), scored)
    np.testing.assert_array_equal(np.diff(top.indptr), kept)
    order = np.lexsort([np.broadcast_to(np.arange(40), scores.shape), -scores])
    best = np.zeros(scores.shape, dtype=bool)
    np.put_along_axis(best, order, np.arange(40) < kept[:, None], axis=1)
    np.testing.assert_array_equal(top.indices, best.nonzero()[1])
    np.testing.assert_array_equal(top.data, scores[best])


# --- a single label


@pytest.fixture(scope="module")
def binary():
    X, Y = make_multilabel(100, 20, 4, n_nonzero=8, random_state=0)
    y = Y.toarray()[:, 0].astype(int)
    return abs(X), y


@pytest.fixture(scope="module", params=CLASSIFIERS, ids=as_written)
def fitted_to_one(request, binary):
    return clone(request.param).fit(*binary)


ONE_FORMS = {
    "int": lambda y: y,
    "bool": lambda y: y.astype(bool),
    "float16": lambda y: y.astype(np.float16),
    "other byte order": lambda y: y.astype(">f8"),
    "list": lambda y: y.tolist(),
    "series": lambda y: pd.Series(y),
    "objects": lambda y: y.astype(object),
}


def test_one_label_may_be_a_vector(fitted_to_one, binary):
    X, y = binary
    column = clone(fitted_to_one).fit(X, y[:, None])
    model = fitted_to_one
    assert model.one_dimensional_
    assert not column.one_dimensional_
    assert (model.classes_.tolist(), column.classes_.tolist()) == ([0, 1], [0])
    prediction = model.predict(X)
    assert (prediction.shape, prediction.dtype) == (y.shape, np.int64)
    np.testing.assert_array_equal(prediction, column.predict(X)[:, 0])
    np.testing.assert_array_equal(model.decision_function(X), column.decision_function(X)[:, 0])
    assert bits(model.predict_topk(X)) == bits(column.predict_topk(X))
    assert model.score(X, y) == (prediction == y).mean()
    if hasattr(model, "predict_proba"):
        probabilities = model.predict_proba(X)
        np.testing.assert_array_equal(probabilities[:, 1], column.predict_proba(X)[:, 0])
        np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    if hasattr(model, "staged_decision_function"):
        *_, last = model.staged_decision_function(X)
        np.testing.assert_array_equal(last, model.decision_function(X))


@every_class
def test_forms_of_one_label(classifier, binary, tmp_path):
    X, y = binary
    model = clone(classifier).fit(X, y)
    for form in ONE_FORMS.values():
        assert bits(clone(classifier).fit(X, form(y))) == bits(model)
    for same in copies(model, tmp_path):
        assert bits(same) == bits(model)
        np.testing.assert_array_equal(same.predict(X), model.predict(X))
        np.testing.assert_array_equal(same.decision_function(X), model.decision_function(X))


def test_one_label_and_many_in_turn(fitted_to_one, binary, few):
    model = copy.deepcopy(fitted_to_one).fit(*few)
    assert bits(model) == bits(clone(fitted_to_one).fit(*few))
    assert bits(model.fit(*binary)) == bits(fitted_to_one)


@every_class
def test_wrappers_of_a_model_for_each_label(classifier, few):
    X, Y = few[0], few[1][:, :2].toarray()
    labels = clone(classifier).set_params(n_jobs=None)
    alone = OneVsRestClassifier(labels).fit(X, Y)
    chain = ClassifierChain(labels, order=[0, 1]).fit(X, Y)
    several = MultiOutputClassifier(labels).fit(X, Y)
    own = np.column_stack([clone(labels).fit(X, y).predict(X) for y in Y.T])
    if not isinstance(
        classifier, decision.LabelCalibrator
    ):  # its predictions are not the signs of its scores
        np.testing.assert_array_equal(alone.predict(X).astype(int), own)
    np.testing.assert_array_equal(several.predict(X), own)
    assert chain.predict(X).shape == alone.decision_function(X).shape == Y.shape
    calibrated = CalibratedClassifierCV(labels, cv=2).fit(X, Y[:, 0])
    assert calibrated.predict_proba(X).shape == (80, 2)
