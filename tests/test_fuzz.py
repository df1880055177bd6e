"""Random arrays and parameters: a documented result, or an ordinary exception that states what is wrong.

A few cases run by default, and `--fuzz-cases` sets their number.
"""

import sys
import warnings

import numpy as np
import pytest
from scipy.sparse import coo_array, csc_array, csr_array, issparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from children import forks
from estimators import CLASSIFIERS, PARTITIONERS, TRANSFORMERS
from fuzzing import check, is_our_fault

MODELS = CLASSIFIERS + TRANSFORMERS + PARTITIONERS

# Exceptions that a mistake of a user may raise.
EXPECTED = (ValueError, TypeError, NotFittedError, AttributeError)

NUMBERS = (0.0, -0.0, 1.0, -1.0, 1e-45, 1e-38, 1e38, 3e38, -3e38, 1e39, 1e300, np.nan, np.inf, -np.inf)
DTYPES = ("f2", "f4", "f8", ">f8", ">f4", "g", "i1", "i8", "u8", ">i4", "?", "O", "U3", "c16", "M8[s]")
VALUES = (
    *(0, 1, 2, 3, -1, 7, 10**400, -(10**400), 2**63, True, False, None),
    *(0.0, 0.5, 1.0, -0.5, 1e-300, 1e300, float("nan"), float("inf"), float("-inf")),
    *("", "auto", "zero", "exact", "\ud800", "x" * 1000, b"auto", [], (), {}, object(), print),
    *(np.float32(0.5), np.int64(3), np.float64("nan"), np.array(2), np.array([1, 2]), 1j),
)
# Parameters that keep their values.
SLOW = ("verbose", "n_jobs")
# Numbers of rounds that always run in full. Values above 7 are skipped.
REPEATED = {"n_init", "n_iter", "n_passes", "n_rules"}


def small_set(rng):
    n, d, c = (int(rng.integers(1, high)) for high in (24, 12, 6))
    X = np.where(rng.random((n, d)) < rng.random(), rng.normal(size=(n, d)), 0)
    return X, (rng.random((n, c)) < rng.random()).astype(int)


def in_some_form(rng, matrix):
    """The matrix in another dtype, order or class, if the conversion is possible."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if rng.random() < 0.5:
                matrix = matrix.astype(rng.choice(DTYPES))
        except (TypeError, ValueError):
            pass
    form = rng.integers(9)
    if form >= 6 or matrix.dtype.kind in "OUM" or matrix.dtype.char == "e":
        return [matrix, np.asfortranarray(matrix), matrix[::-1], matrix.tolist()][form % 4]
    try:
        sparse = [csr_array, csc_array, coo_array][form % 3](matrix)
    except (TypeError, ValueError):  # scipy knows fewer types than numpy
        return matrix
    if form >= 3 and sparse.nnz and not isinstance(sparse, coo_array):
        spoil(rng, sparse)
    return sparse


def spoil(rng, matrix):
    """Write a random value into one of the arrays of a compressed matrix."""
    part = [matrix.indices, matrix.indptr, matrix.data][rng.integers(3)]
    at = rng.integers(len(part))
    if part is matrix.data:
        if part.dtype.kind == "f":
            with np.errstate(over="ignore"):
                part[at] = rng.choice(NUMBERS)
        return
    part[at] = rng.choice([-1, 0, 1, 2, 5, 100, 2**31 - 1, -(2**31), part[at] + 1, part[at] - 1])
    if rng.random() < 0.2:
        matrix.indices = matrix.indices[: rng.integers(len(matrix.indices) + 1)]


def disturbed(rng, X, Y):
    """X and Y with some of the possible faults."""
    if rng.random() < 0.3:
        X[rng.integers(X.shape[0]), rng.integers(X.shape[1])] = rng.choice(NUMBERS)
    if rng.random() < 0.1:
        X = X * rng.choice([1e-30, 1e30, 1e37])
    if rng.random() < 0.1:
        X, Y = X[:, : rng.integers(X.shape[1] + 1)], Y[:, : rng.integers(Y.shape[1] + 1)]
    if rng.random() < 0.1:
        Y = Y[: rng.integers(len(Y) + 1)]
    if rng.random() < 0.1:
        Y = Y * rng.choice([-1, 2, 1.0, 0.5, np.nan])
    return in_some_form(rng, X), in_some_form(rng, Y)


def weights(rng, n):
    if rng.random() < 0.7:
        return None
    weight = rng.random(n) if rng.random() < 0.7 else rng.random(rng.integers(2 * n + 1))
    if len(weight) and rng.random() < 0.5:
        weight[rng.integers(len(weight))] = rng.choice(NUMBERS)
    return weight


def answers(model, X):
    """Yield the predictions of the fitted model by every method that it has."""
    for name in ("predict", "predict_topk", "decision_function", "predict_proba", "transform"):
        if hasattr(model, name):
            yield name, getattr(model, name)(X)


def run_case(number):
    """Run one case and return its fault, or None."""
    rng = np.random.default_rng(number)
    model = clone(MODELS[rng.integers(len(MODELS))])
    X, Y = small_set(rng)
    given = {}
    if rng.random() < 0.3:
        names = [name for name in model.get_params() if not name.endswith(SLOW)]
        given = {str(rng.choice(names)): VALUES[rng.integers(len(VALUES))]}
        if given.keys() & REPEATED and type(value := next(iter(given.values()))) is int and value > 7:
            return None
    try:
        model.set_params(**given)
        model.fit(*disturbed(rng, X.copy(), Y.copy()), sample_weight=weights(rng, len(X)))
        for name, answer in answers(model, in_some_form(rng, X)):
            values = answer.data if issparse(answer) else answer
            if np.isnan(values).any() or (name == "predict_proba" and (values < 0).any()):
                return f"{name} of {model} has NaN"
            if name == "decision_function" and (values == np.inf).any():
                return f"{name} of {model} is infinite"
    except EXPECTED as error:
        if is_our_fault(error):
            return f"{type(error).__name__}: {error} ({model})"
    except MemoryError as error:
        # A parameter may ask for too much memory. Small arrays need little.
        if not given:
            return f"MemoryError: {error} ({model})"
    except BaseException as error:
        return f"{type(error).__name__}: {error} ({model})"
    return None


@forks
@pytest.mark.skipif(sys.platform != "linux", reason="needs RLIMIT_AS and /proc")
def test_arrays_and_parameters(pytestconfig):
    n_cases = pytestconfig.getoption("--fuzz-cases", default=None) or 300
    check(run_case, n_cases)
