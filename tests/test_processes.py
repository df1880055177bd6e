"""Fits and predictions with signals, threads and processes."""

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest
from scipy.sparse import csc_array, csr_array, issparse, vstack
from sklearn.base import clone

from children import forked, forks, posix_only
from estimators import CLASSIFIERS, ONE_OF_EACH, as_written
from manylabel import (
    BoostedRulesClassifier,
    CorrLogClassifier,
    DiSMECClassifier,
    LEMLClassifier,
    PDSparseClassifier,
    _core,
)
from manylabel.datasets import make_multilabel
from manylabel.decision import LabelCalibrator

every_classifier = pytest.mark.parametrize("classifier", CLASSIFIERS, ids=as_written)
every_class = pytest.mark.parametrize("classifier", ONE_OF_EACH, ids=as_written)


@pytest.fixture(scope="module")
def small():
    return make_multilabel(300, 50, 20, random_state=0)


@pytest.fixture(scope="module")
def few():
    """X and Y for fits whose size does not matter."""
    return make_multilabel(100, 30, 10, random_state=0)


@pytest.fixture(scope="module")
def fitted_to_few(few):
    """A function that returns a fitted copy of a classifier. Tests must not change this copy."""
    return cache(lambda classifier: clone(classifier).fit(*few))


def assert_same(some, others):
    for one, other in zip(some, others, strict=True):
        if issparse(one):
            one, other = one.toarray(), other.toarray()
        np.testing.assert_array_equal(one, other)


def answers(model, X):
    return model.decision_function(X), model.predict(X), model.predict_topk(X, k=3)


def fit_and_tell(pipe, model, large, then):
    """Fit in a child; send "begun" at the first report, "stopped" at Ctrl-C, and `then(model)` at the end."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    begun = False

    def tell(_):
        nonlocal begun
        if not begun:
            begun = True
            pipe.send("begun")

    try:
        model.fit(*large, progress=tell)
    except KeyboardInterrupt:
        pipe.send("stopped")
    pipe.send(then(model))


def told_after_ctrl_c(model, large, then):
    """The messages of a process that gets Ctrl-C while `model` is fitted."""
    with forked(fit_and_tell, model, large, then) as (receiver, child):
        assert receiver.recv() == "begun"
        os.kill(child.pid, signal.SIGINT)
        # A fit stops within a second if the machine is not busy. The limit only detects hangs.
        return [receiver.recv() if receiver.poll(10) else "silence" for _ in range(2)]


def interrupted(form, matrix):
    """A copy of `matrix` whose shape cannot be read, as if Ctrl-C came in scipy's property."""

    class Interrupted(form):
        @property
        def shape(self):
            if interrupts:
                raise KeyboardInterrupt
            return super().shape

    interrupts = False
    copy = Interrupted(matrix)
    interrupts = True
    return copy


def test_ctrl_c_while_a_matrix_is_handed_over(small):
    X, Y = (interrupted(csr_array, matrix) for matrix in small)
    job = (1, None)
    model = DiSMECClassifier().fit(*small)
    for hand_over in [
        lambda: _core.is_canonical(X),
        lambda: _core.pls_n_components(Y, None, {}, 1),
        lambda: _core.fit_correlated((X, Y, None), None, None, {}, job),
        lambda: _core.fit_correlated((csr_array(small[0]), Y, None), None, None, {}, job),
        lambda: _core.linear_scorer(model).topk(X, 3, 1),
    ]:
        with pytest.raises(KeyboardInterrupt):
            hand_over()


@pytest.mark.parametrize(
    ("classifier", "attribute", "form", "hand_over"),
    [
        (DiSMECClassifier(), "coef_", csc_array, _core.linear_scorer),
        (CorrLogClassifier(), "coef_", csr_array, lambda model: _core.correlated_scorer(model, {})),
        (BoostedRulesClassifier(n_rules=3), "heads_", csr_array, _core.rules_scorer),
    ],
    ids=["DiSMECClassifier", "CorrLogClassifier", "BoostedRulesClassifier"],
)
def test_ctrl_c_while_a_model_is_handed_over(classifier, attribute, form, hand_over, small):
    model = clone(classifier).fit(*small)
    setattr(model, attribute, interrupted(form, getattr(model, attribute)))
    with pytest.raises(KeyboardInterrupt):
        hand_over(model)


@posix_only
@forks
@every_classifier
def test_ctrl_c(classifier, large, few):
    model = clone(classifier).set_params(n_jobs=2)
    told = told_after_ctrl_c(model, large, lambda model: model.fit(*few).predict(few[0]).shape)
    assert told == ["stopped", (100, 10)]


@every_classifier
def test_an_exception_of_the_callback_stops_the_fit(classifier, middling, few, fitted_to_few):
    calls = []

    def refuse(done):
        calls.append(done)
        raise LookupError("enough")

    model = clone(classifier).set_params(n_jobs=2)
    with pytest.raises(LookupError, match="enough"):
        model.fit(*middling, progress=refuse)
    assert len(calls) == 1
    assert calls[0] <= middling[1].shape[1]
    assert not hasattr(model, "classes_")
    assert_same(answers(model.fit(*few), few[0]), answers(fitted_to_few(classifier), few[0]))


@every_classifier
def test_progress_counts_what_is_learned(classifier, small):
    X, Y = small
    done = []
    model = clone(classifier).fit(X, Y, progress=done.append)
    assert done == sorted(done)
    n_labels = (Y.sum(axis=0) > 0).sum()
    if hasattr(model, "rules_"):
        assert done[-1] == len(model.rules_)
    elif hasattr(model, "label_blocks_") and len(model.estimators_) > 1:
        assert done[-1] == sum(map(len, model.label_blocks_))
    elif isinstance(model, LEMLClassifier | PDSparseClassifier):
        assert done[-1] == model.n_iter_
    elif isinstance(model, LabelCalibrator):
        folds = model.cv_ if isinstance(model.cv_, int) else 1
        assert done[-1] == (1 + folds) * n_labels
    else:
        assert done[-1] == n_labels


@every_class
def test_other_threads_run_during_a_fit(classifier, middling):
    # A short fit can end before the operating system runs the other thread, or before the second report. It
    # is therefore tried several times, with more and more rows.
    X, Y = middling
    for _ in range(7):
        if any(another_thread_runs_during_a_fit(classifier, X, Y) for _ in range(10)):
            return
        X, Y = vstack([X, X], format="csr"), vstack([Y, Y], format="csr")
    pytest.fail("no other thread ran during a fit")


def another_thread_runs_during_a_fit(classifier, X, Y):
    begun, counted = threading.Event(), threading.Event()

    def count():
        begun.wait()
        for _ in range(1000):
            pass
        counted.set()

    thread = threading.Thread(target=count)
    thread.start()

    def report(_):
        # The callback is too short for the interpreter to switch threads. It switches during the fit.
        begun.set()
        if counted.is_set():
            raise LookupError("counted")

    try:
        clone(classifier).fit(X, Y, progress=report)
    except LookupError:
        return True
    finally:
        begun.set()
        thread.join()
    return False


@every_class
def test_predictions_in_many_threads(classifier, small):
    X, Y = small
    model = clone(classifier).set_params(n_jobs=2).fit(X, Y)
    expected = answers(model, X)
    with ThreadPoolExecutor(8) as pool:
        for result in pool.map(lambda _: answers(model, X), range(24)):
            assert_same(result, expected)


@every_class
def test_fits_in_many_threads(classifier, small):
    X, Y = small
    expected = answers(clone(classifier).fit(X, Y), X)
    with ThreadPoolExecutor(4) as pool:
        for model in pool.map(lambda _: clone(classifier).set_params(n_jobs=2).fit(X, Y), range(4)):
            assert_same(answers(model, X), expected)


def fit_and_answer(model, X, Y):
    return answers(model, X), answers(clone(model).fit(X, Y), X)


@posix_only
@forks
@every_class
def test_a_forked_child_fits_and_predicts(classifier, few):
    X, Y = few
    model = clone(classifier).set_params(n_jobs=2).fit(X, Y)
    expected = answers(model, X)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        for of_parent, of_child in pool.starmap_async(fit_and_answer, [(model, X, Y)] * 2).get(timeout=60):
            assert_same(of_parent, expected)
            assert_same(of_child, expected)


def test_a_spawned_child_predicts(few, fitted_to_few, tmp_path):
    expected = []
    for at, classifier in enumerate(CLASSIFIERS):
        model = fitted_to_few(classifier)
        model.save(tmp_path / f"model{at}")
        expected.append(model.decision_function(few[0]))
    np.save(tmp_path / "X.npy", few[0].toarray())
    code = f"""
        import numpy as np, manylabel as ml
        from pathlib import Path
        folder = Path({str(tmp_path)!r})
        X = np.load(folder / "X.npy")
        models = [ml.load(folder / f"model{{at}}") for at in range({len(CLASSIFIERS)})]
        np.save(folder / "scores.npy", [model.decision_function(X) for model in models])
        """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=60)
    for classifier, found, scores in zip(
        CLASSIFIERS, np.load(tmp_path / "scores.npy"), expected, strict=True
    ):
        np.testing.assert_array_equal(found, scores, err_msg=repr(classifier))


def fit_without_threads(pipe, model, data):
    """Fit in a child that cannot start threads. Send the error, and the shape of predictions."""
    import resource  # POSIX only

    if os.getuid() == 0:
        os.setuid(65534)  # the limit does not hold for root
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    try:
        model.fit(*data)
    except Exception as error:
        pipe.send(f"{type(error).__name__} {error}")
    else:
        pipe.send("fitted")
    pipe.send(model.predict(data[0][:2]).shape)  # the earlier model; so few rows need no thread


@pytest.mark.skipif(sys.platform != "linux", reason="needs RLIMIT_NPROC")
@forks
def test_a_thread_that_cannot_start_is_an_ordinary_exception(small):
    model = DiSMECClassifier(n_jobs=2).fit(*small)
    with forked(fit_without_threads, model, small) as (receiver, _):
        assert receiver.recv().startswith("RuntimeError cannot start ")
        assert receiver.recv() == (2, 20)
