"""Forecasts of memory and time. Their accuracy is measured in benches/python/scale.py."""

import dataclasses
import sys

import numpy as np
import pytest

import fresh
import manylabel as ml
from manylabel import _core, planning
from manylabel.planning import _LEAST_RESERVE, _forecast, _size_of


@pytest.fixture(scope="module")
def data():
    return ml.datasets.make_multilabel(3000, 200, 50, random_state=0)


def test_the_forecast_continues_the_growth():
    assert _forecast([(100, 2.0), (200, 4.0)], 800) == pytest.approx(16.0)
    assert _forecast([(100, 1.0), (200, 4.0)], 800) == pytest.approx(64.0)
    assert _forecast([(100, 3.0), (200, 3.0)], 800) == pytest.approx(3.0)
    assert _forecast([(100, 4.0), (200, 3.0)], 800) == pytest.approx(3.0)
    # The result is between the line 5 + n / 100 and the power of n.
    assert 9 < _forecast([(100, 6.0), (200, 7.0)], 800) < 13
    assert _forecast([(100, 6.0)], 800) == pytest.approx(48.0)
    assert _forecast([(100, 0.0), (200, 5.0)], 800) == 5.0


@pytest.mark.parametrize(
    "model",
    [
        ml.DiSMECClassifier(random_state=0),
        ml.LabelTreeClassifier(max_leaf=20, random_state=0),
        ml.LEMLClassifier(rank=10, alpha=1.0, random_state=0),
        ml.Rembrandt(n_components=10, random_state=0),
    ],
)
def test_memory_and_model(data, model, monkeypatch):
    """Time is not tested, since it depends on the load of the machine."""
    monkeypatch.setattr(planning, "_SHORT", 0.0)  # no fit is repeated for the sake of its time
    X, Y = data
    plan = ml.plan(model, X, Y, n_jobs=1)
    assert plan.rows[-1] <= X.shape[0] // 2
    assert len(plan.rows) >= 2
    before = _core.restart_memory_peak()
    fitted = model.fit(X, Y)
    assert 0.4 < plan.model_bytes / _size_of(fitted) < 2.5
    assert plan.fit_memory > 0.4 * (_core.memory_held()[1] - before)
    assert plan.memory >= plan.fit_memory
    assert plan.seconds > 0
    assert (plan.latency is None) == (not hasattr(model, "predict_topk"))


def test_dense_features(data):
    X, Y = data[0][:1000].toarray(), data[1][:1000]
    plan = ml.plan(ml.DiSMECClassifier(1.0, random_state=0), X, Y, n_jobs=1, memory="1MB")
    fitted = ml.DiSMECClassifier(1.0, random_state=0).fit(X, Y)
    assert plan.model_bytes == pytest.approx(_size_of(fitted), rel=0.01)
    assert not any("shards.fit" in change for change in plan.advice)


def test_a_budget(data):
    X, Y = data
    model = ml.LabelTreeClassifier(C=1.0, n_trees=3, random_state=0)
    plan = ml.plan(model, X, Y, memory="1MB")
    assert not plan.keeps_budget
    assert plan.budget == 10**6
    assert "budget   1.0 MB, exceeded" in str(plan)
    assert any("datasets.convert" in change for change in plan.advice)
    if sys.platform == "linux":  # the private memory of the process is known
        assert plan.advice[-1].startswith("a larger budget: the process uses")
        # More than the process needs without the fit, and less than the reserve of the fit.
        plan = ml.plan(model, X, Y, memory=_core.private_memory(False) + _LEAST_RESERVE // 2)
        assert not plan.keeps_budget
    assert any("shards.fit" in change for change in plan.advice)
    assert any("n_trees < 3" in change for change in plan.advice)
    tight = dataclasses.replace(plan, budget=plan.memory + 1)
    assert not tight.keeps_budget
    assert "perhaps exceeded" in str(tight)
    plan = ml.plan(model, X, Y, memory="1TB")
    assert plan.keeps_budget
    assert not plan.advice
    assert ml.plan(model, X, Y, max_seconds=1e-9).rows == (93, 187)
    assert not hasattr(model, "C_")


PROGRAM = """
import dataclasses
import sys
import warnings
import manylabel as ml
from manylabel import planning

planning._SHORT = 0.0  # no fit is repeated for the sake of its time
warnings.simplefilter("ignore")

for name, n_features, n_labels in eval(sys.argv[1]):
    X, Y = ml.datasets.make_multilabel(3000, n_features, n_labels, random_state=0)
    model = getattr(ml, name)(random_state=0, n_jobs=1)
    plan = ml.plan(model, X, Y, memory="1TB")
    enough = plan.memory + plan._reserve
    assert dataclasses.replace(plan, budget=enough).keeps_budget
    with ml.memory_limit(enough):
        model.fit(X, Y)
    del X, Y, model
    print(name)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_fits_stay_within_budgets_that_their_plans_keep():
    # The first fit of a process needs the most memory, because it also imports modules.
    sizes = [("LabelTreeClassifier", 500, 1000), ("DiSMECClassifier", 1000, 400), ("Rembrandt", 1000, 400)]
    run = fresh.run(PROGRAM, repr(sizes))
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == [name for name, *_ in sizes]


def test_a_folder_of_rows(data, tmp_path):
    X, Y = data
    ml.datasets.dump_xc(X, Y, tmp_path / "rows.txt")
    ml.datasets.convert(tmp_path / "rows.txt", tmp_path / "rows")
    plan = ml.plan(ml.DiSMECClassifier(1.0, random_state=0), tmp_path / "rows", memory="1TB")
    assert plan.keeps_budget
    with pytest.raises(ValueError, match="`Y` must be None if `X` is a folder"):
        ml.plan(ml.DiSMECClassifier(1.0, random_state=0), tmp_path / "rows", Y)


def test_arguments(data):
    X, Y = data
    with pytest.raises(TypeError, match="`estimator` must be an estimator of manylabel, got object"):
        ml.plan(object(), X, Y)
    with pytest.raises(TypeError, match="`estimator` must be an estimator instance, got the class Rembrandt"):
        ml.plan(ml.Rembrandt, X, Y)
    with pytest.raises(ValueError, match="`max_seconds` must be > 0, got 0"):
        ml.plan(ml.DiSMECClassifier(), X, Y, max_seconds=0)
    with pytest.raises(ValueError, match="`memory` must be an amount of memory"):
        ml.plan(ml.DiSMECClassifier(), X, Y, memory="much")
    with pytest.raises(ValueError, match="`C` must be"):
        ml.plan(ml.DiSMECClassifier(C=-1), X, Y)
    with pytest.raises(ValueError, match="rows"):
        ml.plan(ml.DiSMECClassifier(), X, Y[:-1])


def test_a_few_rows():
    X, Y = ml.datasets.make_multilabel(20, 10, 3, random_state=0)
    plan = ml.plan(ml.DiSMECClassifier(C=1.0, random_state=0), np.asarray(X.todense()), Y)
    assert plan.rows == (20,)
    assert plan.model_bytes > 0
