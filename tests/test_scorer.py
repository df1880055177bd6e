"""The prepared model behind every prediction: results, errors, lifetime, and use by several threads."""

import copy
import multiprocessing
import pickle
import re
import threading
import weakref

import numpy as np
import pytest
from scipy.sparse import csr_array, issparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import manylabel as ml
from cases import case
from children import forked
from estimators import WITH_GIVEN_VALUES, as_written
from manylabel.datasets import make_multilabel
from manylabel.decision import LabelCalibrator
from manylabel.estimator import base

every_classifier = pytest.mark.parametrize("classifier", WITH_GIVEN_VALUES, ids=as_written)


@pytest.fixture(scope="module")
def small():
    return make_multilabel(150, 40, 12, n_nonzero=8, random_state=0)


# The scorers of these classifiers combine a router and models of blocks.
BLOCKS = (ml.BlockPartitionClassifier, ml.CBMLCClassifier, ml.LPSRClassifier)
WITH_OWN_SCORER = [each for each in WITH_GIVEN_VALUES if not isinstance(each, BLOCKS)]
# Classifiers that predict the labels with scores above a bound.
BOUNDED = [each for each in WITH_OWN_SCORER if getattr(each, "predictor", "signs") == "signs"]


@pytest.fixture(scope="module", params=WITH_GIVEN_VALUES, ids=as_written)
def fitted(request, small):
    return clone(request.param).fit(*small)


@pytest.fixture
def model(small):
    return ml.DiSMECClassifier(1.0, random_state=0).fit(*small)


def scorer_of(model):
    return base._SCORERS.get(model)


# --- results


@pytest.mark.parametrize("fitted", WITH_OWN_SCORER, ids=as_written, indirect=True)
def test_given_labels_have_the_scores_of_all(fitted, small):
    X, Y = small
    scores = fitted.decision_function(X)
    pattern = csr_array(Y, dtype=np.float32)
    pattern.sort_indices()
    rows, labels = pattern.nonzero()
    found = fitted._scorer().at(X, pattern, 1)
    np.testing.assert_array_equal(found, scores[rows, labels])
    np.testing.assert_array_equal(fitted._scorer().at(X, pattern, 2), found)


def test_decision_at_has_the_scores_of_the_candidates(fitted, small):
    X, Y = small
    candidates = csr_array(Y) if fitted.sparse_output_ else csr_array(Y)[:, ::-1]
    found = fitted.decision_at(X, candidates)
    rows, labels = csr_array(candidates).sorted_indices().nonzero()
    assert found.nnz == candidates.nnz
    assert found.has_sorted_indices
    np.testing.assert_array_equal(found.data, fitted.decision_function(X)[rows, labels])
    empty = fitted.decision_at(X, np.zeros(candidates.shape, dtype=bool))
    assert empty.shape == candidates.shape
    assert empty.nnz == 0


@pytest.mark.parametrize(
    ("candidates", "message"),
    [
        (np.ones((150, 11)), r"shape of `candidates`: expected \(150, 12\), got \(150, 11\)"),
        (np.full((150, 12), 2), "candidates must contain only 0 and 1"),
    ],
)
def test_wrong_candidates_are_refused(model, small, candidates, message):
    with pytest.raises(ValueError, match=message):
        model.decision_at(small[0], candidates)


@pytest.mark.parametrize("fitted", BOUNDED, ids=as_written, indirect=True)
def test_every_label_may_have_a_bound(fitted, small):
    X, _ = small
    scores = fitted.decision_function(X)
    bounds = np.where(np.isfinite(scores), scores, 0).mean(axis=0, dtype=np.float32)
    indptr, indices, data = fitted._scorer().above(X, bounds, 1)
    above = csr_array((data, indices, indptr), shape=scores.shape).toarray()
    np.testing.assert_array_equal(above, np.where(scores > bounds, scores, 0))


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (csr_array((150, 11), dtype=np.float32), "labels of the pairs: expected 12, got 11"),
        (csr_array((149, 12), dtype=np.float32), "rows of the pairs: expected 150, got 149"),
    ],
)
def test_pairs_must_fit(model, small, pairs, message):
    with pytest.raises(ValueError, match=message):
        model._scorer().at(small[0], pairs, 1)


def test_there_is_a_bound_for_each_label(model, small):
    with pytest.raises(ValueError, match="number of bounds: expected 12, got 3"):
        model._scorer().above(small[0], np.zeros(3, dtype=np.float32), 1)


def test_only_some_models_know_probabilities(model, small):
    assert not hasattr(model, "predict_proba")
    with pytest.raises(ValueError, match="a model that computes probabilities"):
        model._scorer().probabilities(small[0], 1)


# --- errors


def with_arrays(matrix, **arrays):
    """Return a copy of a sparse matrix in which some arrays are replaced without checks."""
    changed = matrix.copy()
    for name, values in arrays.items():
        setattr(changed, name, np.array(values, dtype=getattr(matrix, name).dtype))
    return changed


def spoiled(value):
    """Yield copies of a fitted array with other shapes, and with positions that are out of range."""
    yield value[:-1]
    if value.ndim == 2:
        yield value[:, :-1].copy()
    if not issparse(value):
        yield np.concatenate([value, value[-1:]])
        if value.dtype.kind in "iu" and value.size:
            for position in (-1, 10**6, 255):
                changed = value.copy()
                changed[-1] = np.asarray(position).astype(value.dtype)
                yield changed
        return
    yield with_arrays(value, indptr=value.indptr[:-1])
    yield with_arrays(value, indptr=[])
    if value.nnz:
        for position in (-1, max(value.shape), 2**31 - 1):
            yield with_arrays(value, indices=[*value.indices[:-1], position])
        yield with_arrays(value, indptr=[*value.indptr[:-1], value.nnz + 1])
        yield with_arrays(value, indptr=[*value.indptr[:-1], -1])
        yield with_arrays(value, indptr=value.indptr[::-1])
        yield with_arrays(value, data=value.data[:-1])


def test_spoiled_attributes_are_named(fitted, small):
    """If an array is replaced by one that does not fit, the error names an attribute."""
    X, _ = small
    arrays = {name: value for name, value in vars(fitted).items() if hasattr(value, "ndim") and value.size}
    n_refused = 0
    calibrates = isinstance(fitted, LabelCalibrator)  # its arrays are not those of the scorer
    for name, value in arrays.items():
        for wrong in spoiled(value):
            model = copy.copy(fitted)
            vars(model)[name] = wrong
            refused = ""
            try:
                _ = model.predict_proba(X) if calibrates else model._scorer().topk(X, 3, 1)
            except ValueError as error:
                refused = str(error)
            if refused:
                n_refused += 1
                assert re.search(r"\b[a-z][a-z_]*_\b", refused), (name, refused)
    assert n_refused >= 10


# --- lifetime


def test_it_is_made_once(fitted, small):
    fitted.predict_topk(small[0][:1])
    if isinstance(fitted, LabelCalibrator):
        fitted.prepare()  # because the scorer of the inner estimator ranks labels
    scorer = scorer_of(fitted)
    assert scorer is not None
    fitted.predict(small[0])
    fitted.decision_function(small[0][:3])
    assert scorer_of(fitted) is scorer
    assert fitted.prepare() is fitted
    assert scorer_of(fitted) is scorer


def test_it_leaves_no_trace_in_the_model(fitted, small):
    clean = copy.deepcopy(fitted)
    fitted.prepare()
    assert vars(fitted).keys() == vars(clean).keys()
    for twin in (copy.copy(fitted), copy.deepcopy(fitted), pickle.loads(pickle.dumps(fitted)), clone(fitted)):
        assert scorer_of(twin) is None
    X = small[0]
    twin = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(twin.decision_function(X), fitted.decision_function(X))


def test_another_fit_is_seen(fitted, small):
    X, Y = small
    model = copy.deepcopy(fitted)
    model.predict(X)
    again, fresh = model.fit(X[:100], Y[:100]), clone(fitted).fit(X[:100], Y[:100])
    np.testing.assert_array_equal(again.decision_function(X), fresh.decision_function(X))


def test_an_assigned_attribute_is_seen(model, small):
    X, _ = small
    before = model.decision_function(X)
    model.intercept_ = model.intercept_ - np.float32(1)
    np.testing.assert_allclose(model.decision_function(X), before - 1, atol=1e-6)
    model.coef_ = model.coef_ * np.float32(0)
    np.testing.assert_array_equal(model.decision_function(X), np.tile(model.intercept_, (X.shape[0], 1)))
    del model.coef_
    with pytest.raises(AttributeError):
        model.decision_function(X)


def test_a_parameter_of_prediction_is_seen(small):
    X, Y = small
    rules = ml.BoostedRulesClassifier(20, random_state=0).fit(X, Y)
    known = rules.predict(X)
    signs = rules.set_params(predictor="signs").predict(X)
    np.testing.assert_array_equal(signs.toarray(), rules.decision_function(X) > 0)
    assert (known != signs).nnz
    corrlog = ml.CorrLogClassifier(0.01, 0.01).fit(X, Y)
    corrlog.predict(X)
    with pytest.raises(ValueError, match="`decoder` must be"):
        corrlog.set_params(decoder="guess").predict(X)


def test_it_dies_with_the_model(small):
    model = ml.LEMLClassifier(3, random_state=0).fit(*small).prepare()
    known, gone = len(base._SCORERS), weakref.ref(model)
    del model
    assert gone() is None
    assert len(base._SCORERS) == known - 1


def test_arrays_are_kept_alive(model, small):
    X, _ = small
    scorer, expected = model._scorer(), model.decision_function(X)
    del model
    np.testing.assert_array_equal(scorer.decision(X, 1), expected)


# --- threads and processes


@every_classifier
def test_prepare_wants_a_fitted_model(classifier):
    with pytest.raises(NotFittedError):
        clone(classifier).prepare()


def test_threads_may_all_come_first(fitted, small):
    X, _ = small
    model = pickle.loads(pickle.dumps(fitted))
    expected = fitted.predict_topk(X).toarray()
    start, found = threading.Barrier(4), []

    def ask():
        start.wait()
        found.append(model.predict_topk(X).toarray())

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    for answer in found:
        np.testing.assert_array_equal(answer, expected)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
def test_a_forked_child_uses_it(small):
    """All models in one child, because a fork takes longer than a fit."""
    X, Y = small
    models = [clone(each).fit(X, Y).prepare() for each in WITH_GIVEN_VALUES]
    expected = [model.predict_topk(X).toarray() for model in models]

    def answer(pipe):
        for model in models:
            pipe.send(model.predict_topk(X))

    with forked(answer) as (receiver, _):
        for model, top in zip(models, expected, strict=True):
            with case(model):
                assert receiver.poll(60)
                np.testing.assert_array_equal(receiver.recv().toarray(), top)
