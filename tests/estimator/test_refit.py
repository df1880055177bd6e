"""A fit that fails leaves the estimator as it was."""

import pickle
import threading

import numpy as np
import pytest
from sklearn.base import clone

from estimators import CLASSIFIERS, PARTITIONERS, TRANSFORMERS
from manylabel import CorrLogClassifier, DiSMECClassifier
from manylabel.correlated import corrlog_path
from manylabel.datasets import make_multilabel

ALL = CLASSIFIERS + TRANSFORMERS + PARTITIONERS


@pytest.fixture(scope="module")
def small():
    return make_multilabel(200, 40, 12, random_state=0)


class StoppedError(Exception):
    pass


def refuse(_):
    raise StoppedError


@pytest.mark.parametrize("estimator", ALL, ids=repr)
def test_a_failed_refit_changes_nothing(estimator, small):
    X, Y = small
    model = clone(estimator).fit(X, Y)
    before = pickle.dumps(vars(model))
    wrong = Y.toarray()
    wrong[3, 1] = 2
    with pytest.raises(ValueError, match="only 0, 1 and NaN"):
        model.fit(X[:, :30], wrong)
    assert pickle.dumps(vars(model)) == before
    if not isinstance(estimator, type(PARTITIONERS[0])):
        with pytest.raises(StoppedError):
            model.fit(X[:, :30], Y[:, :5], progress=refuse)
        assert pickle.dumps(vars(model)) == before


@pytest.mark.parametrize("estimator", ALL, ids=repr)
def test_an_unfitted_estimator_stays_unfitted(estimator, small):
    X, Y = small
    model = clone(estimator)
    before = dict(vars(model))
    wrong = Y.toarray()
    wrong[3, 1] = 2
    with pytest.raises(ValueError, match="only 0, 1 and NaN"):
        model.fit(X, wrong)
    assert vars(model) == before


def test_a_failed_path_leaves_its_estimator(small):
    X, Y = small
    model = CorrLogClassifier().fit(X, Y)
    before = pickle.dumps(vars(model))
    wrong = Y.toarray()
    wrong[3, 1] = 2
    with pytest.raises(ValueError, match="only 0, 1 and NaN"):
        corrlog_path(X[:, :30], wrong, [0.1, 0.01], estimator=model)
    assert pickle.dumps(vars(model)) == before
    first, second = corrlog_path(X, Y, [0.1, 0.01], estimator=model)
    assert (first.n_features_in_, first.l2_features_, second.l2_features_) == (40, 0.1, 0.01)
    assert pickle.dumps(vars(model)) == before


def test_threads_predict_with_one_state_or_the_other(small):
    X, Y = small
    model = DiSMECClassifier(random_state=0).fit(X, Y)
    states = [model.predict_topk(X, 3)]
    other = clone(model).set_params(C=0.01).fit(X, Y)
    states.append(other.predict_topk(X, 3))
    model.C = 0.01
    stop = threading.Event()
    seen, failures = set(), []

    def predict():
        while not stop.is_set():
            try:
                top = model.predict_topk(X, 3)
                seen.add(next(i for i, state in enumerate(states) if np.array_equal(state.data, top.data)))
            except (StopIteration, ValueError, AttributeError) as error:
                failures.append(repr(error))
                return

    threads = [threading.Thread(target=predict) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        model.fit(X, Y)
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == []
    np.testing.assert_array_equal(model.predict_topk(X, 3).data, states[1].data)
    assert seen <= {0, 1}
