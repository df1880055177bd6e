"""Bad and extreme input: a documented result, or an error with the expected and the given value."""

import copy
import sys
from itertools import product
from operator import attrgetter
from pathlib import Path

import numpy as np
import pytest
import sklearn
from scipy.sparse import coo_array, csc_array, csr_array, issparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.fixes import parse_version

import manylabel as ml
from cases import case
from children import forked, forks
from estimators import (
    CLASSIFIERS,
    TRANSFORMERS,
    as_written,
    compares_labels,
    predicts_signs,
    scales_rows,
    takes_missing_values,
    with_given_values,
)
from manylabel.decision import LabelCalibrator
from manylabel.estimator.schema import Array
from manylabel.persistence import to_bytes

N, D, C = 40, 6, 4
RNG = np.random.default_rng(0)
X = RNG.random((N, D))
Y = (RNG.random((N, C)) < 0.4).astype(int)
X_SPARSE = csr_array(np.where(X < 0.5, X, 0))

every_classifier = pytest.mark.parametrize("classifier", CLASSIFIERS, ids=as_written)

_models = {}


def of_the_small_set(classifier):
    """A model fitted to `X` and `Y`, which the caller may spoil."""
    if classifier not in _models:
        _models[classifier] = clone(classifier).fit(X, Y)
    return copy.deepcopy(_models[classifier])


def with_value(matrix, value):
    matrix = np.array(matrix, dtype=np.result_type(matrix, type(value)))
    matrix[3, 1] = value
    return matrix


def broken(form, part, at, value):
    """A sparse X whose array `part` has `value` at position `at`."""
    matrix = form(X_SPARSE.copy())
    getattr(matrix, part)[at] = value
    return matrix


def hollow():
    """A matrix without values whose indptr rises to a billion and falls back."""
    matrix = csr_array((3, D))
    matrix.indptr = np.array([0, 10**9, 10**9, 0], dtype=np.int32)
    return matrix


def repeated():
    return csr_array((np.ones(2), np.array([0, 0]), np.repeat([0, 2], [1, N])), shape=(N, C))


INDICATOR = r"Y must be a 2-D indicator matrix \(n_samples, n_labels\) of 0 and 1"

# name: (X, Y, message of the ValueError)
MISSING_VALUES = ("X NaN", "X sparse NaN")
BAD_TRAINING_SETS = {
    "X NaN": (with_value(X, np.nan), Y, "Input X contains NaN"),
    "X sparse NaN": (csr_array(with_value(X, np.nan)), Y, "Input X contains NaN"),
    "X inf": (with_value(X, np.inf), Y, "Input X contains infinity"),
    "X -inf": (with_value(X, -np.inf), Y, "Input X contains infinity"),
    "X complex": (X + 1j, Y, "Complex data not supported"),
    "X sparse complex": (csr_array(X + 1j), Y, "Complex data not supported"),
    "X words": (with_value(X.astype(object), "much"), Y, "could not convert string to float: 'much'"),
    "X 1-D": (X[:, 0], Y, "Expected 2D array, got 1D array"),
    "X 3-D": (X.reshape(N, 3, 2), Y, "Found array with dim 3"),
    "X no rows": (X[:0], Y[:0], "0 sample"),
    "X no columns": (X[:, :0], Y, "0 feature"),
    "X None": (None, Y, "Expected 2D array, got scalar"),
    "CSR column too large": (broken(csr_array, "indices", [3], D), Y, "X is not a valid CSR.*must be < 6"),
    "CSR column negative": (broken(csr_array, "indices", [3], -1), Y, "X is not a valid CSR.*must be >= 0"),
    "CSC row too large": (broken(csc_array, "indices", [3], 2**30), Y, "X is not a valid CSC.*must be < 40"),
    "CSC row negative": (
        broken(csc_array, "indices", [3], -(2**30)),
        Y,
        "X is not a valid CSC.*be >= 0",
    ),
    "COO row too large": (broken(coo_array, "row", 3, 2**30), Y, r"COO.*row.*from 0 to 39"),
    "COO column negative": (broken(coo_array, "col", 3, -(2**30)), Y, r"COO.*col.*0 to 5"),
    "CSR indptr falls": (broken(csr_array, "indptr", [7], 0), Y, "X is not a valid CSR.*non-decreasing"),
    "CSR indptr falls in nothing": (hollow(), Y[:3], "X is not a valid CSR.*non-decreasing"),
    "CSR indptr too long": (
        broken(csr_array, "indptr", [-1], 10**6),
        Y,
        "X is not a valid CSR.*pointer",
    ),
    "Y rows": (X, Y[:-1], "rows of Y: expected 40 as in X, got 39"),
    "Y None": (X, None, "requires y to be passed, but the target y is None"),
    "Y infinite": (X, with_value(Y, np.inf), f"{INDICATOR}: Input Y contains infinity"),
    "Y negative": (X, with_value(Y, -1), "Y must contain only 0, 1 and NaN, got -1"),
    "Y signs": (X, 2 * Y - 1, "Y must contain only 0, 1 and NaN, got -1"),
    "Y three values": (X, with_value(Y, 2), "Y must contain only 0, 1 and NaN, got 2"),
    "Y fractions": (X, Y * 0.5, "Y must contain only 0, 1 and NaN, got 0.5"),
    "Y duplicates": (X, repeated(), "Y must contain only 0, 1 and NaN, got 2"),
    "Y complex": (X, Y + 0j, f"{INDICATOR}: Complex data not supported"),
    "Y words": (X, Y.astype(str), f"{INDICATOR}: .*strings"),
    "Y labels": (X, [["cat", "dog"], ["sun"]] * 20, f"{INDICATOR}, got rows of unequal length"),
    "Y 1-D of three values": (
        X,
        np.arange(N) % 3,
        f"{INDICATOR}, got a 1-D array with .*2.*; a 1-D y is a single label, so its values must be 0 and 1. "
        "For such a y: Only binary classification is supported.*; sklearn.preprocessing.MultiLabelBinarizer",
    ),
    "Y 1-D of signs": (
        X,
        2 * Y[:, 0] - 1,
        f"{INDICATOR}, got a 1-D array with .*-1.*; a 1-D y is a single label",
    ),
    "Y 1-D of words": (X, np.array(["no", "yes"])[Y[:, 0]], f"{INDICATOR}, got a 1-D array with .*(no|yes)"),
    "Y 1-D of digits": (X, Y[:, 0].astype(str).astype(object), f"{INDICATOR}, got a 1-D array with '[01]'"),
    "Y 1-D of NaN": (X, np.where(Y[:, 0] > 0, np.nan, 1), f"{INDICATOR}, got a 1-D array with .*nan"),
    "Y 1-D of sets": (X, [{"cat"}, {"dog", "cat"}] * (N // 2), f"{INDICATOR}, got a 1-D array with .*cat"),
    "Y 3-D": (X, Y.reshape(N, 2, 2), f"{INDICATOR}, got a 3-D array"),
    "Y scalar": (X, 1, f"{INDICATOR}, got a 0-D array"),
    "Y no columns": (X, Y[:, :0], f"{INDICATOR}: .*0 feature"),
    "Y column too large": (
        X[:, :C],
        broken(csr_array, "indices", [3], 9),
        "Y is not a valid CSR.*< 6",
    ),
}
if coo_array(X[:, 0]).ndim == 1:  # since scipy 1.13
    BAD_TRAINING_SETS |= {
        "X sparse 1-D": (coo_array(X[:, 0]), Y, "Expected 2D input, got input with shape"),
        "Y sparse 1-D": (X, coo_array(Y[:, 0]), f"{INDICATOR}, got a 1-D array"),
    }


@every_classifier
def test_bad_training_set(classifier):
    model = clone(classifier)
    for name in BAD_TRAINING_SETS:
        with case(name):
            features, labels, message = BAD_TRAINING_SETS[name]
            if name in MISSING_VALUES and takes_missing_values(classifier):
                assert fitted(classifier, features, labels).predict(features).shape == Y.shape
                continue
            with pytest.raises(ValueError, match=message):
                model.fit(features, labels)


# Versions of scikit-learn before 1.8 do not say this.
GOT_2D = ", got 2D" if parse_version(sklearn.__version__) >= parse_version("1.8") else ""
BAD_WEIGHTS = {
    "too few": (np.ones(N - 1), r"sample_weight.shape == \(39,\), expected \(40,\)"),
    "2-D": (np.ones((N, 1)), f"Sample weights must be 1D array or scalar{GOT_2D}"),
    "negative": (np.where(np.arange(N) == 3, -1.0, 1.0), "Negative values in data passed to `sample_weight`"),
    "NaN": (np.where(np.arange(N) == 3, np.nan, 1.0), "Input sample_weight contains NaN"),
    "infinite": (np.full(N, np.inf), "Input sample_weight contains infinity"),
    "beyond float32": (np.full(N, 1e39), r"sample_weight must be finite in float32 .*, got 1e\+39"),
    "zero": (np.zeros(N), "(S|s)ample.weight.* must .*zero"),
    "words": (["much"] * N, "could not convert string to float: .*'much'"),
}


@pytest.mark.parametrize("estimator", CLASSIFIERS + TRANSFORMERS, ids=as_written)
def test_bad_sample_weight(estimator):
    for name, (weights, message) in BAD_WEIGHTS.items():
        with case(name), pytest.raises(ValueError, match=message):
            clone(estimator).fit(X, Y, sample_weight=weights)


# --- predictions before a fit, with bad arguments, and by spoiled models


def assert_bad_rows_are_refused(ask, *, missing_values=False):
    """Check that `ask`, a method of a model fitted to `X` and `Y`, refuses bad rows."""
    for name in (
        "X NaN",
        "X inf",
        "X complex",
        "X 1-D",
        "X no rows",
        "CSR column too large",
        "CSR indptr falls",
    ):
        features, _, message = BAD_TRAINING_SETS[name]
        if missing_values and name in MISSING_VALUES:
            continue
        with pytest.raises(ValueError, match=message):
            ask(features)
    with pytest.raises(ValueError, match=r"X has 5 features, but .* is expecting 6 features"):
        ask(X[:, :5])


@every_classifier
def test_bad_question(classifier):
    model = of_the_small_set(classifier)
    for method in ("predict", "decision_function", "predict_topk"):
        with case(method):
            with pytest.raises(NotFittedError, match="is not fitted yet"):
                getattr(clone(classifier), method)(X)
            assert_bad_rows_are_refused(
                getattr(model, method), missing_values=takes_missing_values(classifier)
            )


@every_classifier
def test_bad_k(classifier):
    model = of_the_small_set(classifier)
    for k in (0, -1, 2.5, "five", None, True):
        with case(k), pytest.raises(ValueError, match="`k` must be an integer >= 1, got"):
            model.predict_topk(X, k=k)


def put(name, at, value):
    """Return a function that overwrites an element of a fitted array, such as ``coef_.indices``."""
    return lambda model: attrgetter(name)(model).__setitem__(at, value)


def change(name, how):
    """Return a function that replaces a fitted array, or an array of a fitted sparse matrix."""
    *owner, last = name.split(".")

    def spoil(model):
        owned = attrgetter(owner[0])(model) if owner else model
        setattr(owned, last, how(getattr(owned, last)))

    return spoil


def spoiled_sparse(name):
    return {
        f"{name} column too large": put(f"{name}.indices", 0, 10**6),
        f"{name} column negative": put(f"{name}.indices", 0, -1),
        f"{name} position too large": put(f"{name}.indptr", 1, 2**30),
        f"{name} positions fall": lambda model: put(f"{name}.indptr", 1, getattr(model, name).indptr[-1] + 1)(
            model
        ),
        f"{name} values missing": change(f"{name}.data", lambda data: data[:2]),
        f"{name} positions missing": change(f"{name}.indptr", lambda indptr: indptr[:0]),
        f"{name} values of another type": change(f"{name}.data", lambda data: data.astype(np.int8)),
        f"{name} dense": change(name, lambda matrix: matrix.toarray()),
    }


ARRAYS_OF_TREES = ("node_children_", "leaf_labels_", "leaf_intercept_", "chunk_features_", "chunk_weights_")
SPOILED_BLOCKS = {
    **spoiled_sparse("router_coef_"),
    "router of another type": change("router_intercept_", lambda intercept: intercept.astype(int)),
    "router of fewer blocks": change("router_intercept_", lambda intercept: intercept[:0]),
    "blocks missing": change("label_blocks_", lambda blocks: blocks[:0]),
    "labels too large": change("label_blocks_", lambda blocks: [labels + 10**6 for labels in blocks]),
    "labels negative": change("label_blocks_", lambda blocks: [labels - 10**6 for labels in blocks]),
    "labels missing": change("label_blocks_", lambda blocks: [labels[:1] for labels in blocks]),
}

SPOILED_SPARSE_WEIGHTS = {
    **spoiled_sparse("coef_"),
    "features missing": change("coef_.indptr", lambda indptr: indptr[[0, 1, 2, -1]]),
    "by label": change("coef_", lambda coef: coef.tocsr()),
    "intercepts missing": change("intercept_", lambda intercept: intercept[:1]),
    "intercepts of another type": change("intercept_", lambda intercept: intercept.astype(int)),
}


def of_sparse_rows(how):
    """Return a function that makes the weights sparse, as a fit to sparse rows does, and spoils the model."""

    def spoil(model):
        model.coef_ = csc_array(model.coef_)
        how(model)

    return spoil


SPOILED = {
    ml.DiSMECClassifier: {
        # A model with dense weights is a sound model.
        **{
            name: of_sparse_rows(how) for name, how in SPOILED_SPARSE_WEIGHTS.items() if name != "coef_ dense"
        },
        "dense weights of features missing": change("coef_", lambda coef: coef[:, 1:].copy()),
        "dense weights of labels missing": change("coef_", lambda coef: coef[1:]),
        "dense weights by feature": change("coef_", np.asfortranarray),
        "dense weights of another type": change("coef_", lambda coef: coef.astype(float)),
        "dense weights flat": change("coef_", np.ravel),
    },
    ml.PDSparseClassifier: SPOILED_SPARSE_WEIGHTS,
    ml.LEMLClassifier: {
        "feature too large": put("features_", -1, D),
        "feature negative": put("features_", 0, -1),
        "feature twice": put("features_", 1, 0),
        "features missing": change("features_", lambda features: features[1:]),
        "features' factors missing": change("feature_factors_", lambda factors: factors[1:]),
        "factors missing": change("feature_factors_", lambda factors: factors[:, 1:]),
        "labels missing": change("label_factors_", lambda factors: factors[:, 1:].copy()),
        "factors transposed": change("label_factors_", np.asfortranarray),
        "factors of another type": change("label_factors_", lambda factors: factors.astype(float)),
        "intercepts missing": change("intercept_", lambda intercept: intercept[:1]),
    },
    ml.BlockPartitionClassifier: {
        **SPOILED_BLOCKS,
        "models missing": change("estimators_", lambda models: models[:1]),
    },
    ml.CBMLCClassifier: {
        **SPOILED_BLOCKS,
        "models missing": change("estimators_", lambda models: models[:1]),
    },
    ml.LPSRClassifier: {name: how for name, how in SPOILED_BLOCKS.items() if name != "labels missing"},
    ml.BoostedRulesClassifier: {
        **spoiled_sparse("heads_"),
        **spoiled_sparse("label_sets_"),
        "labels missing": change("label_sets_", lambda sets: sets[:, :2]),
        "rules missing": change("heads_", lambda heads: heads[:3]),
        "feature too large": put("body_feature_", 0, D),
        "feature negative": put("body_feature_", 0, -1),
        "operator unknown": put("body_operator_", 0, 4),
        "threshold NaN": put("body_threshold_", 0, np.nan),
        "score NaN": put("heads_.data", 0, np.nan),
        "ends fall": put("body_indptr_", 2, -1),
        "ends beyond the conditions": put("body_indptr_", 2, 10**9),
        **{
            f"{name} too short": change(name, lambda array: array[:-1])
            for name in ("body_indptr_", "body_feature_", "body_operator_", "body_threshold_")
        },
        **{
            f"{name} of another type": change(name, lambda array: array.astype(np.float64))
            for name in ("body_indptr_", "body_feature_", "body_operator_", "body_threshold_")
        },
    },
    ml.LabelTreeClassifier: {
        "children fall": put("node_children_", 0, 10**6),
        "no trees": put("node_children_", 0, 0),
        "trees negative": put("node_children_", 0, -1),
        "trees very negative": put("node_children_", 0, -(2**63)),
        "labels too large": put("leaf_labels_", 0, 10**6),
        "labels negative": put("leaf_labels_", 0, -1),
        "labels twice": change("leaf_labels_", np.zeros_like),
        "buckets fall": put("chunk_buckets_", 0, 10**6),
        "weights end too late": put("chunk_row_ends_", 0, 2**31),
        "outputs too large": put("chunk_outputs_", 0, 2**16 - 1),
        **{f"{name} too short": change(name, lambda array: array[:-1]) for name in ARRAYS_OF_TREES},
        **{
            f"{name} of another type": change(name, lambda array: array.astype(np.float64))
            for name in ARRAYS_OF_TREES
        },
    },
    ml.SmoothLinkClassifier: {
        "labels missing": change("coef_", lambda coef: coef[:2]),
        "random features missing": change("coef_", lambda coef: np.ascontiguousarray(coef[:, :2])),
        "intercepts missing": change("intercept_", lambda intercept: intercept[:1]),
        "features missing": change("projection_", lambda projection: projection[:2]),
        "components missing": change("projection_intercept_", lambda intercept: intercept[:0]),
        "phases too many": change("phases_", lambda phases: np.append(phases, np.float32(1))),
        **{f"{name} by columns": change(name, np.asfortranarray) for name in ("coef_", "projection_")},
        **{
            # Signs, because fitted values may be too large for the type.
            f"{name} of another type": change(name, lambda array: np.sign(array).astype(np.int16))
            for name in ("coef_", "intercept_", "projection_", "frequencies_", "phases_")
        },
    },
    ml.CorrLogClassifier: {
        **spoiled_sparse("coef_"),
        **spoiled_sparse("correlations_"),
        "features missing": change("coef_.indptr", lambda indptr: indptr[[0, 1, 2, -1]]),
        "intercepts missing": change("intercept_", lambda intercept: intercept[:1]),
        "intercepts of another type": change("intercept_", lambda intercept: intercept.astype(int)),
        "labels missing": change("correlations_", lambda couplings: couplings[:2]),
        "label sets missing": change("label_set_energies_", lambda energies: energies[:1]),
        "label sets of another type": change("label_sets_.data", lambda data: data.astype(np.int8)),
    },
}


def wrong_shapes(model):
    """Ways to spoil a fitted model: each array in its schema without the last element."""
    arrays = [name for name, kind in model.schema.attributes.items() if isinstance(kind, Array)]
    return {
        f"{name} too short": change(name, lambda array: array[:-1]) for name in arrays if name != "classes_"
    }


@every_classifier
def test_what_the_schema_refuses_is_no_wrong_answer(classifier):
    model = of_the_small_set(classifier)
    answer = model.decision_function(X)
    for name, how in wrong_shapes(model).items():
        broken = copy.copy(model)
        if not hasattr(broken, name.split()[0]):
            continue
        how(broken)
        try:
            scores = broken.decision_function(X)
        except (ValueError, TypeError, RuntimeError, IndexError) as error:
            assert str(error), name  # noqa: PT017
        else:
            np.testing.assert_array_equal(scores, answer, err_msg=name)  # scores do not use the array


@pytest.mark.parametrize(
    "classifier", [each for each in CLASSIFIERS if type(each) in SPOILED], ids=as_written
)
def test_a_spoiled_model_is_an_error(classifier):
    # Numbers of rows that are scored without and with threads.
    questions = list(product(["predict", "decision_function", "predict_topk"], [2, 3 * N]))
    rows = {n_rows: np.resize(X, (n_rows, D)) for _, n_rows in questions}
    for how, spoil in SPOILED[type(classifier)].items():
        model = of_the_small_set(classifier)
        spoil(model)
        for method, n_rows in questions:
            error = pytest.raises(
                (ValueError, TypeError, RuntimeError),
                match=r"internal error|expected|must be|is not a valid"
                r"|PyLinear|PyDenseLinear|PyLowRank|PyRules|PyLink|PyCorrelated|PyTree",
            )
            with case(how, method, n_rows), error:
                getattr(model, method)(rows[n_rows])


# --- extreme input


def fitted(classifier, X=X, Y=Y, sample_weight=None, **params):
    model = clone(classifier).set_params(**params).fit(X, Y, sample_weight=sample_weight)
    scores = model.decision_function(X)
    assert not np.isnan(scores).any()
    assert not np.isposinf(scores).any()
    predicted = csr_array(model.predict(X)).toarray()
    if predicts_signs(model):
        np.testing.assert_array_equal(predicted, scores > 0)
    assert not predicted[np.isneginf(scores)].any()
    return model


def unscaled(classifier):
    """The classifier without scaling of rows."""
    return clone(classifier).set_params(**({"normalize": False} if scales_rows(classifier) else {}))


def same(model, other):
    """Assert that all fitted attributes are equal up to rounding."""
    for name in (name for name in vars(model) if name.endswith("_") and name != "n_iter_"):
        same_value(getattr(model, name), getattr(other, name), name)


def same_value(one, two, name):
    if isinstance(one, list):
        for first, second in zip(one, two, strict=True):
            same_value(first, second, name)
    elif hasattr(one, "get_params"):
        same(one, two)
    else:
        one, two = (each.toarray() if issparse(each) else each for each in (one, two))
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("classifier", [each for each in CLASSIFIERS if scales_rows(each)], ids=as_written)
def test_scale_of_rows_does_not_matter(classifier):
    classifier = with_given_values(classifier).set_params(normalize="rows")
    model = fitted(classifier)
    for factor in (1e38, 1e39, 1e-39, 1e-150, 1e200, 1e-200):
        with case(factor):
            scaled = X * np.where(np.arange(N) % 2, factor, 1.0)[:, None]
            same(model, fitted(classifier, X=scaled))
            np.testing.assert_allclose(
                model.decision_function(scaled), model.decision_function(X), rtol=1e-5, atol=1e-6
            )


@every_classifier
def test_values_beyond_single_precision_are_refused_where_they_stay(classifier):
    as_they_are = unscaled(with_given_values(classifier))
    with pytest.raises(ValueError, match=r"values of X must be finite in float32 .*, got -?1e\+39"):
        fitted(as_they_are, X=with_value(X, 1e39))
    model = fitted(as_they_are)
    with pytest.raises(ValueError, match=r"values of X must be finite in float32 .*, got -?1e\+39"):
        model.decision_function(with_value(X, -1e39))


EXTREMES = [
    {"C": 1e30},
    {"C": 1e-30},
    {"sample_weight": np.full(N, 1e30)},
    {"sample_weight": np.full(N, 1e-30)},
    {"tol": 1e300},
    {"prune": 1e300},
    {"max_iter": 2**70},
    {"X": X * 1e10},
    {"X": X * 1e-44},
    {"alpha": 1e-30},
    {"alpha": 1e12},
    {"rank": 2**70},
    {"cg_max_iter": 2**70},
    {"cg_tol": 1e300},
    {"l1": 0.0},
    {"l1": 1e300},
    {"n_candidates": 2**70},
    {"C": 1e300},
    {"C": 1e-300},
    {"l2": 0.0},
    {"l2": 1e300},
    {"learning_rate": 1e-300},
    {"label_binning": 1e-300},
    {"min_bins": 2**70},
    {"max_bins": 2**70},
    {"max_features": 2**70},
    {"min_coverage": 2**70},
    {"max_conditions": 2**70},
    {"gamma": 1e-300},
    {"gamma": 1e300},
    {"l2_link": 0.0},
    {"l2_link": 1e300},
    {"step_size": 1e-300},
    {"step_size": 1e300},
    {"shrink": 0.5000001},
    {"l2_features": 1e-300},
    {"l2_features": 1e300},
    {"l2_pairs": 1e-300},
    {"l2_pairs": 1e300},
    {"epsilon": 1e300},
    {"n_components": 2**70},
    {"n_oversamples": 2**70},
    {"sample_weight": np.full(N, 1e38)},
    {"sample_weight": np.full(N, 1e-44)},
    {"X": X * 1e38},
]


@every_classifier
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_extreme_numbers_fit_or_are_refused(classifier):
    quick = with_given_values(classifier)
    for extreme in EXTREMES:
        if extreme.keys() <= classifier.get_params().keys() | {"X", "sample_weight"}:
            with case(*(f"{name}={np.ravel(value)[0]:.3g}" for name, value in extreme.items())):
                try:
                    # Parameters are also chosen by fits to extreme data.
                    given = classifier if extreme.keys() & {"X", "sample_weight"} else quick
                    fitted(unscaled(given) if "X" in extreme else given, **extreme)
                except ValueError as error:
                    assert "must be" in str(error) or "too large" in str(error)  # noqa: PT017


@every_classifier
def test_rows_of_zeros_and_one_label(classifier):
    scores = fitted(classifier, X=np.zeros((N, D))).decision_function(X)
    assert (scores == scores[0]).all()  # scores do not depend on the features
    assert fitted(classifier, Y=Y[:, :1]).predict(X).shape == (N, 1)
    if isinstance(classifier, LabelCalibrator):
        with pytest.raises(ValueError, match="X must have at least two rows, so that rows can be held out"):
            fitted(classifier, X=X[:1], Y=[[1, 0]])
        return
    model = fitted(classifier, X=X[:1], Y=[[1, 0]])
    assert model.predict_topk(X[:1], k=2).indices.tolist() == [0]
    assert model.predict(X[:1]).tolist() == [[not compares_labels(classifier), 0]]


@every_classifier
def test_labels_held_by_no_row_or_by_all(classifier):
    none = fitted(classifier, Y=np.zeros((N, C)))
    assert np.isneginf(none.decision_function(X)).all()
    assert none.predict(X).sum() == none.predict_topk(X, k=9).nnz == 0
    assert fitted(classifier, Y=np.ones((N, C))).predict(X).all()
    some = fitted(classifier, Y=np.hstack([Y[:, :1], np.zeros((N, 1))]))
    assert set(some.predict_topk(X, k=2).indices) == {0}


@every_classifier
def test_a_second_fit_forgets_the_first(classifier):
    model = of_the_small_set(classifier)
    model.fit(X_SPARSE[:30, :3], csr_array(Y[:30, :2]))
    fresh = fitted(classifier, X=X_SPARSE[:30, :3], Y=csr_array(Y[:30, :2]))
    same(model, fresh)
    assert vars(model).keys() == vars(fresh).keys()
    assert to_bytes(model).tobytes() == to_bytes(fresh).tobytes()
    assert (model.n_features_in_, len(model.classes_), model.sparse_output_) == (3, 2, True)


@every_classifier
def test_a_failed_fit_leaves_no_wrong_model(classifier):
    model = of_the_small_set(classifier)
    with pytest.raises(ValueError, match="rows of Y"):
        model.fit(X[:, :3], Y[:-1])
    with pytest.raises(ValueError, match=r"features|is not fitted yet"):
        model.predict(X[:, :3])


# --- sizes beyond the memory of any machine


@pytest.mark.skipif(sys.platform != "linux", reason="needs RLIMIT_AS and /proc")
@forks
def test_columns_beyond_memory_are_an_error():
    """All classifiers in one child, because the child and its pages cost more time than its fits."""
    shapes = [(2**31 + 5, 3), (3, 2**31 + 5), (2**31 - 2, 3), (2**40, 3), (3, 2**40)]
    cases = list(product(CLASSIFIERS, shapes))
    with forked(fit_in_3_gib, cases) as (receiver, _):
        for classifier, n_columns in cases:
            with case(classifier, n_columns):
                assert receiver.poll(120), "still fitting"
                assert receiver.recv().startswith("refused: ")  # EOFError: the process died


def fit_in_3_gib(pipe, cases):
    """Fit to diagonal X and Y of these shapes in a child process that may allocate 3 GiB more."""
    import resource  # POSIX only

    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    most = int(status["VmSize"].split()[0]) * 1024 + (3 << 30)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    for classifier, n_columns in cases:
        X, Y = (csr_array((np.ones(3), [0, n // 2, n - 1], np.arange(4)), shape=(3, n)) for n in n_columns)
        try:
            clone(classifier).fit(X, Y)
        except (MemoryError, ValueError) as error:
            pipe.send(f"refused: {error}")
        else:
            pipe.send("fitted")


def malformed(kind):
    if kind == "indptr":
        matrix = csr_array(np.eye(3))
        matrix.indptr[1] = 10**8
    elif kind == "column":
        matrix = csr_array(np.eye(3))
        matrix.indices[1] = 10**8
    else:
        matrix = coo_array(np.eye(3))
        matrix.row[1] = 10**8
    return matrix


@pytest.mark.parametrize("kind", ["indptr", "column", "row"])
def test_malformed_matrices_are_refused_outside_of_estimators_too(kind, tmp_path):
    with pytest.raises(ValueError, match=r"scores.* is not a valid"):
        ml.metrics.precision_at_k(np.eye(3), malformed(kind), k=1)
    with pytest.raises(ValueError, match=r"Y_true.* is not a valid"):
        ml.metrics.precision_at_k(malformed(kind), np.eye(3), k=1)
    with pytest.raises(ValueError, match="X is not a valid"):
        ml.datasets.dump_xc(malformed(kind), np.eye(3), tmp_path / "out.txt")


@every_classifier
def test_entries_that_add_up_to_infinity_are_refused(classifier):
    matrix = csr_array((np.full(3, 3e38, np.float32), [0, 0, 1], [0, 3, *[3] * (N - 1)]), shape=(N, D))
    for each in (classifier, unscaled(classifier)):
        with pytest.raises(ValueError, match="values of X must be finite"):
            fitted(each, X=matrix)
