"""Fits and predictions among signals, threads and processes."""

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy.sparse import issparse
from sklearn.base import clone

from estimators import CLASSIFIERS
from manylabel import LEMLClassifier, PDSparseClassifier
from manylabel.datasets import make_multilabel

every_classifier = pytest.mark.parametrize("classifier", CLASSIFIERS, ids=repr)
posix_only = pytest.mark.skipif(os.name != "posix", reason="needs signals and fork")


@pytest.fixture(scope="module")
def small():
    return make_multilabel(300, 50, 20, random_state=0)


def assert_same(some, others):
    for one, other in zip(some, others, strict=True):
        if issparse(one):
            one, other = one.toarray(), other.toarray()
        np.testing.assert_array_equal(one, other)


def answers(model, X):
    return model.decision_function(X), model.predict(X), model.predict_topk(X, k=3)


def printed_after_ctrl_c(model, then):
    """What a program prints when Ctrl-C comes while `model` is fitted, the result of `then` at the end."""
    code = f"""
        from manylabel import *
        from manylabel.datasets import make_multilabel
        large, small = make_multilabel(60_000, 5_000, 2_000, n_nonzero=60), make_multilabel(300, 50, 20)
        model = {model!r}
        begun = False
        def tell(done):
            global begun
            if not begun:
                begun = True
                print("begun", flush=True)
        try:
            model.fit(*large, progress=tell)
        except KeyboardInterrupt:
            print("stopped", flush=True)
        print({then})
        """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "begun\n"
            process.send_signal(signal.SIGINT)
            # Within a second on a machine that is not busy; a hang is what this must tell apart.
            return process.communicate(timeout=10)[0]
        finally:
            process.kill()


@posix_only
@every_classifier
def test_ctrl_c(classifier):
    model = clone(classifier).set_params(n_jobs=2)
    then = "model.fit(*small).predict(small[0]).shape"
    assert printed_after_ctrl_c(model, then) == "stopped\n(300, 20)\n"


@every_classifier
def test_an_exception_of_the_callback_stops_the_fit(classifier, large, small):
    calls = []

    def refuse(done):
        calls.append(done)
        raise LookupError("enough")

    model = clone(classifier).set_params(n_jobs=2)
    with pytest.raises(LookupError, match="enough"):
        model.fit(*large, progress=refuse)
    assert len(calls) == 1
    assert calls[0] < large[1].shape[1]
    assert not hasattr(model, "classes_")
    assert_same(answers(model.fit(*small), small[0]), answers(clone(classifier).fit(*small), small[0]))


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
    else:
        assert done[-1] == n_labels


@every_classifier
def test_other_threads_run_during_a_fit(classifier, large):
    begun, counted = threading.Event(), threading.Event()

    def count():
        begun.wait()
        for _ in range(1000):
            pass
        counted.set()

    thread = threading.Thread(target=count)
    thread.start()

    def report(_):
        # Too short for the interpreter to change threads in here: it does so while the fit goes on.
        begun.set()
        if counted.is_set():
            raise LookupError("counted")

    with pytest.raises(LookupError, match="counted"):
        clone(classifier).fit(*large, progress=report)
    thread.join()


@every_classifier
def test_predictions_in_many_threads(classifier, small):
    X, Y = small
    model = clone(classifier).set_params(n_jobs=2).fit(X, Y)
    expected = answers(model, X)
    with ThreadPoolExecutor(8) as pool:
        for result in pool.map(lambda _: answers(model, X), range(40)):
            assert_same(result, expected)


@every_classifier
def test_fits_in_many_threads(classifier, small):
    X, Y = small
    expected = answers(clone(classifier).fit(X, Y), X)
    with ThreadPoolExecutor(4) as pool:
        for model in pool.map(lambda _: clone(classifier).set_params(n_jobs=2).fit(X, Y), range(8)):
            assert_same(answers(model, X), expected)


def fit_and_answer(model, X, Y):
    return answers(model, X), answers(clone(model).fit(X, Y), X)


@posix_only
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@every_classifier
def test_a_forked_child_fits_and_predicts(classifier, small):
    X, Y = small
    model = clone(classifier).set_params(n_jobs=2).fit(X, Y)
    expected = answers(model, X)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        for of_parent, of_child in pool.starmap_async(fit_and_answer, [(model, X, Y)] * 4).get(timeout=60):
            assert_same(of_parent, expected)
            assert_same(of_child, expected)


@every_classifier
def test_a_spawned_child_predicts(classifier, small, tmp_path):
    model = clone(classifier).fit(*small)
    model.save(tmp_path / "model")
    np.save(tmp_path / "X.npy", small[0].toarray())
    code = f"""
        import numpy as np, manylabel as ml
        X = np.load({str(tmp_path / "X.npy")!r})
        np.save({str(tmp_path / "scores.npy")!r}, ml.load({str(tmp_path / "model")!r}).decision_function(X))
        """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=60)
    np.testing.assert_array_equal(np.load(tmp_path / "scores.npy"), model.decision_function(small[0]))


@pytest.mark.skipif(sys.platform != "linux", reason="needs RLIMIT_NPROC")
def test_a_thread_that_cannot_start_is_an_ordinary_exception():
    code = """
        import os, resource
        from manylabel import DiSMECClassifier
        from manylabel.datasets import make_multilabel
        data = make_multilabel(300, 50, 20, random_state=0)
        model = DiSMECClassifier(n_jobs=2)
        model.fit(*data)  # imports what it needs
        if os.getuid() == 0:
            os.setuid(65534)  # the limit does not hold for root
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
        try:
            model.fit(*data)
        except Exception as error:
            print(type(error).__name__, error)
        print(model.predict(data[0][:2]).shape)  # the model of before; so few rows need no thread
        """
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True)
    first, second = run.stdout.splitlines()
    assert first.startswith("RuntimeError cannot start "), first
    assert second == "(2, 20)"
