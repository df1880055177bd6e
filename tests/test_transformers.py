"""All transformers: the checks of scikit-learn, hostile input, and invariance of results."""

import copy
import multiprocessing
from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MultiLabelBinarizer
from sklearn.utils import get_tags

import manylabel as ml
from cases import case
from checks import assert_checks_pass
from children import forks, posix_only
from estimators import TRANSFORMERS, as_written
from manylabel.datasets import make_multilabel
from test_bad_input import BAD_TRAINING_SETS, X, Y, assert_bad_rows_are_refused
from test_common import TEXTS, TOPICS, X_FORMS, Y_FORMS, bits, copies, frozen
from test_processes import told_after_ctrl_c

every_transformer = pytest.mark.parametrize("transformer", TRANSFORMERS, ids=as_written)


def expected_failed_checks(transformer):
    name = "check_sample_weight_equivalence_on"
    if transformer.embedding == "pca":
        return {}
    reason = "leave-one-out errors choose the ridge, and leave out only one of two equal rows"
    if transformer.solver == "dual":
        return {f"{name}_sparse_data": reason}  # on the dense data the choice is the same
    if transformer.solver == "cg" and transformer.embedding == "rembrandt":
        reason = "needs seven digits; rounding errors of few steps of conjugate gradients are larger"
    return {f"{name}_dense_data": reason, f"{name}_sparse_data": reason}


@every_transformer
def test_scikit_learn_checks(transformer):
    assert_checks_pass(transformer, expected_failed_checks(transformer))


@pytest.fixture(scope="module")
def problem():
    X, Y = make_multilabel(300, 60, 40, n_nonzero=10, random_state=0)
    X.data = np.ceil(X.data * 8)  # integers, which all dtypes can represent
    return X.astype(np.float64), Y


@pytest.fixture(scope="module", params=TRANSFORMERS, ids=as_written)
def fitted(request, problem):
    return clone(request.param).fit(*problem)


@pytest.fixture(scope="module")
def few(problem):
    """The first rows and labels of `problem`, for fits to many forms."""
    return problem[0][:100], problem[1][:100, :24]


@pytest.fixture(scope="module", params=TRANSFORMERS, ids=as_written)
def fitted_to_few(request, few):
    return clone(request.param).fit(*few)


def answers(model, X, Y):
    embedded = model.embed_labels(Y) if hasattr(model, "embed_labels") else None
    return bits([model.transform(X), embedded])


def test_tags(fitted):
    tags = get_tags(fitted)
    assert tags.transformer_tags.preserves_dtype == ["float64", "float32"]
    assert tags.input_tags.sparse
    assert tags.target_tags.required


@every_transformer
def test_text_pipeline(transformer):
    Y = MultiLabelBinarizer().fit_transform(TOPICS)
    model = make_pipeline(
        TfidfVectorizer(token_pattern=r"\w{3,}"), transformer, OneVsRestClassifier(LogisticRegression(C=100))
    )
    assert model.fit(TEXTS, Y).score(TEXTS, Y) == 1


def test_names_of_output(fitted, problem):
    k = fitted.n_components_
    names = [f"rembrandt{at}" for at in range(k)]
    assert fitted.get_feature_names_out().tolist() == names
    frame = clone(fitted).set_output(transform="pandas").fit(*problem).transform(problem[0])
    assert frame.columns.tolist() == names


def test_copies_of_every_kind(fitted, problem, tmp_path):
    for model in [*copies(fitted, tmp_path), clone(fitted).fit(*problem)]:
        assert model.get_params() == fitted.get_params()
        assert bits(model) == bits(fitted)
        assert answers(model, *problem) == answers(fitted, *problem)


# --- invariance of results


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_number_of_threads(fitted, problem, dtype):
    X, Y = problem[0].astype(dtype), problem[1]
    one, two = (clone(fitted).set_params(n_jobs=n).fit(X, Y) for n in (1, 2))
    assert bits(one) == bits(two)
    assert answers(one, X, Y) == answers(two, X, Y)


def test_company_and_order_of_rows(fitted, problem):
    X = problem[0]
    projected = fitted.transform(X)
    order = np.random.default_rng(0).permutation(X.shape[0])
    assert bits(fitted.transform(X[order])) == bits(projected[order])
    assert bits(fitted.transform(X[5:6])) == bits(projected[5:6])


# Forms that are stored in single precision, so that the bits of the results differ.
SINGLE = {"float32", "float16", "sparse float16", "sparse other byte order"}
DENSE = {
    "long double",
    "dense",
    "Fortran order",
    "every other column",
    "lists",
    "float16",
    "object",
    "mapped dense",
    "other byte order",
}


def test_form_of_features(fitted_to_few, few, tmp_path):
    X, Y = few
    of_sparse, of_dense = bits(fitted_to_few), bits(clone(fitted_to_few).fit(X.toarray(), Y))
    for form in (form for form in X_FORMS if form not in SINGLE):
        with case(form):
            same = X_FORMS[form](X, tmp_path)
            before = frozen(same)
            model = clone(fitted_to_few).fit(same, Y)
            assert bits(model) == (of_dense if form in DENSE else of_sparse)
            assert frozen(same) == before
            np.testing.assert_allclose(model.transform(same), model.transform(X), rtol=1e-10, atol=1e-10)


def test_form_of_labels(fitted_to_few, few):
    X, Y = few
    expected = bits(fitted_to_few), answers(fitted_to_few, X, Y)
    for form in Y_FORMS:
        with case(form):
            same = Y_FORMS[form](Y)
            before = frozen(same)
            model = clone(fitted_to_few).fit(X, same)
            assert (bits(model), answers(model, X, same)) == expected
            assert frozen(same) == before


def test_form_of_sample_weight(fitted, problem):
    X, Y = problem
    weights = np.random.default_rng(0).integers(0, 4, X.shape[0]).astype(np.float64)
    expected = bits(clone(fitted).fit(X, Y, weights))
    for same in (weights.astype(int), weights.tolist(), pd.Series(weights)):
        assert bits(clone(fitted).fit(X, Y, sample_weight=same)) == expected
    kept = weights > 0
    assert bits(clone(fitted).fit(X[kept], Y[kept], weights[kept])) == expected


# --- hostile input


@every_transformer
def test_bad_training_set(transformer):
    for name, (features, labels, message) in BAD_TRAINING_SETS.items():
        if not name.startswith("Y 1-D"):  # a 1-D y contains classes
            with case(name), pytest.raises(ValueError, match=message):
                clone(transformer).fit(features, labels)


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")  # of scikit-learn
@pytest.mark.parametrize(("name", "message"), [("NaN", "contains NaN"), ("sets", "Unknown label type")])
@every_transformer
def test_what_are_no_classes(transformer, name, message):
    features, labels, _ = BAD_TRAINING_SETS[f"Y 1-D of {name}"]
    with pytest.raises(ValueError, match=message):
        clone(transformer).fit(features, labels)


def test_bad_question(fitted):
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        clone(fitted).transform(X)
    model = clone(fitted).fit(X, Y)
    assert_bad_rows_are_refused(model.transform)
    if hasattr(model, "embed_labels"):
        with pytest.raises(ValueError, match="Y must have 4 labels, as in fit, got 3"):
            model.embed_labels(Y[:, :3])


SPOILED = {
    "features missing": lambda model: setattr(model, "coef_", model.coef_[1:]),
    "components missing": lambda model: setattr(model, "coef_", model.coef_[:, 1:]),
    "by component": lambda model: setattr(model, "coef_", np.asfortranarray(model.coef_)),
    "intercepts missing": lambda model: setattr(model, "intercept_", model.intercept_[1:]),
    "of another type": lambda model: setattr(model, "coef_", model.coef_.astype(int)),
}


def test_a_spoiled_model_is_an_error(fitted):
    whole = clone(fitted).fit(X, Y)
    for how, n_rows in product(SPOILED, [2, 200]):  # projected without and with threads
        model = copy.deepcopy(whole)
        SPOILED[how](model)
        error = pytest.raises((ValueError, TypeError), match=r"expected|must be|PyCoef")
        with case(how, n_rows), error:
            model.transform(np.resize(X, (n_rows, X.shape[1])))


EXTREMES = [
    {"l2": 0.0},
    {"l2": 1e300},
    {"l2_final": 0.0},
    {"l2_final": 1e300},
    {"n_components": 2**70},
    {"n_oversamples": 2**70},
    {"max_iter": 2**70},
    {"tol": 1e300},
    {"sample_weight": np.full(len(X), 1e38)},
    {"sample_weight": np.full(len(X), 1e-44)},
    {"X": X * 1e38},
    {"X": X * 1e-30},
    {"X": X * 1e-44},
    {"X": np.zeros_like(X)},
    {"Y": np.zeros_like(Y)},
    {"Y": np.ones_like(Y)},
]


@every_transformer
def test_extreme_numbers_fit_or_are_refused(transformer):
    for extreme, dtype in product(EXTREMES, [np.float32, np.float64]):
        features, labels = extreme.get("X", X).astype(dtype), extreme.get("Y", Y)
        model = clone(transformer).set_params(
            **{name: value for name, value in extreme.items() if name in transformer.get_params()}
        )
        with case(*(f"{name}={np.ravel(value)[0]:.3g}" for name, value in extreme.items()), dtype):
            try:
                model.fit(features, labels, sample_weight=extreme.get("sample_weight"))
            except ValueError as error:
                assert "must be" in str(error)  # noqa: PT017
                continue
            for array in (model.coef_, model.intercept_, model.transform(features)):
                assert np.isfinite(array).all()


# --- signals, threads and processes


# Conjugate gradients take many seconds on the large set.
SLOW = ml.Rembrandt(300, max_iter=1000, tol=1e-12, random_state=0, n_jobs=2)


@posix_only
@forks
def test_ctrl_c(large):
    small = make_multilabel(300, 50, 20, random_state=0)

    def projected(model):
        return model.set_params(tol=None).fit(*small).transform(small[0])

    stopped, after = told_after_ctrl_c(clone(SLOW), large, projected)
    assert stopped == "stopped"
    np.testing.assert_array_equal(after, projected(clone(SLOW)))


def test_an_exception_of_the_callback_stops_the_fit(middling):
    def refuse(done):
        raise LookupError("enough")

    model = clone(SLOW)
    with pytest.raises(LookupError, match="enough"):
        model.fit(*middling, progress=refuse)
    assert not hasattr(model, "coef_")


def test_progress_counts_panels(problem):
    done = []
    ml.Rembrandt(36, n_oversamples=0, n_iter=2).fit(*problem, progress=done.append)
    assert done == sorted(done)
    assert done[-1] == 4 * 2  # two panels in each of three passes for U and one for W


def fit_and_answer(model, X, Y):
    return answers(model, X, Y), answers(clone(model).fit(X, Y), X, Y)


@posix_only
@forks
def test_a_forked_child_fits_and_transforms(problem):
    X, Y = problem
    models = [clone(each).set_params(n_jobs=2).fit(X, Y) for each in TRANSFORMERS]
    expected = [answers(model, X, Y) for model in models]
    with multiprocessing.get_context("fork").Pool(2) as pool:
        work = [(model, X, Y) for model in models for _ in range(2)]
        found = pool.starmap_async(fit_and_answer, work).get(timeout=60)
    for model, same, first, second in zip(models, expected, found[::2], found[1::2], strict=True):
        with case(model):
            assert first == second == (same, same)


def test_values_beyond_single_precision_are_refused(fitted):
    for form in (np.asarray, csr_array):
        huge = X.copy()
        huge[3, 1] = 1e39
        with pytest.raises(ValueError, match=r"values of X must be finite in float32 .*, got 1e\+39"):
            clone(fitted).fit(form(huge), Y)
