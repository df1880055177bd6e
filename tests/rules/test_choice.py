"""`BoostedRulesClassifier(predictor=...)` with a measure: the choice on held-out rows against brute force."""

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

import manylabel as ml
from manylabel import BoostedRulesClassifier
from manylabel.estimator.held_out import held_out_parts, spread_rows
from oracle import set_choice
from oracle.rules import rows_covered

MEASURES = set_choice.MEASURES
CHOICES = ("choice_powers_", "choice_bounds_", "choice_by_sets_")


def problem(n=120, seed=0):
    """Labels that depend on three features, a label without rows, and rows without labels."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6))
    Z = np.column_stack([X[:, 0], X[:, 0] + X[:, 1], X[:, 1] - 1, X[:, 2] - X[:, 0] - 0.5, np.full(n, -9.0)])
    return X, (Z + 0.8 * rng.normal(size=Z.shape) > 0).astype(float)


def classifier(**params):
    return BoostedRulesClassifier(
        **{"n_rules": 25, "random_state": 0, "predictor": "subset-accuracy"} | params
    )


def all_sums(model, X):
    """The scores in double precision, also of labels that occur in no training row."""
    return rows_covered(model, X) @ model.heads_.toarray().astype(float)


def parts_of(n):
    return held_out_parts(spread_rows(n, n))


def values_of_bounds(measure, scores, Y, weights):
    """The measure of every bound. Bounds with the same number of scores above them choose the same labels."""
    n_above = [np.count_nonzero(scores > bound) for bound in set_choice.BOUNDS]
    _, first, which = np.unique(n_above, return_index=True, return_inverse=True)
    chosen = [set_choice.by_bound(scores, set_choice.BOUNDS[at], measure) for at in first]
    return np.array([set_choice.value(measure, each, Y, weights) for each in chosen])[which]


def of_held_out_rows(model, X, Y, weights):
    """The sums of the measures of all powers and all bounds, and the held-out scores, labels and weights."""
    of_power, of_bound = np.zeros((3, len(set_choice.POWERS))), np.zeros((3, len(set_choice.BOUNDS)))
    pairs = []
    for fitted, held in parts_of(len(X)):
        part = clone(model).set_params(predictor="auto").fit(X[fitted], Y[fitted], weights[fitted])
        scores, every = part.decision_function(X[held]), all_sums(part, X[held])
        sets, counts = part.label_sets_.toarray(), part.label_set_weights_
        for number, measure in enumerate(MEASURES):
            for at, power in enumerate(set_choice.POWERS):
                chosen = set_choice.by_power(every, sets, counts, power)
                of_power[number, at] += set_choice.value(measure, chosen, Y[held], weights[held])
            of_bound[number] += values_of_bounds(measure, scores, Y[held], weights[held])
        known = ~np.isnan(Y[held]) & np.isfinite(scores)
        of_rows = np.broadcast_to(weights[held][:, None], scores.shape)
        pairs.append((scores[known], Y[held][known], of_rows[known]))
    return of_power, of_bound, [np.concatenate(parts) for parts in zip(*pairs, strict=True)]


@pytest.mark.parametrize(("loss", "unknown"), [("example-wise-logistic", 0.1), ("label-wise-logistic", 0.0)])
def test_the_best_power_and_the_best_bound_are_found(loss, unknown):
    X, Y = problem(80)
    rng = np.random.default_rng(1)
    Y[rng.random(Y.shape) < unknown] = np.nan
    weights = rng.integers(1, 4, len(X)).astype(float)
    model = classifier(loss=loss).fit(X, Y, weights)
    of_power, of_bound, (scores, present, of_pairs) = of_held_out_rows(model, X, Y, weights)
    bounds = np.array(set_choice.BOUNDS)
    for number, measure in enumerate(MEASURES):
        power, bound = model.choice_powers_[number], model.choice_bounds_[number]
        assert of_power[number, set_choice.POWERS.index(power)] == pytest.approx(of_power[number].max())
        if measure == "hamming":
            curve = LogisticRegression(C=1e6, max_iter=1000).fit(scores[:, None], present, of_pairs)
            # The scores are rounded to 1/128 before the regression.
            assert bound == pytest.approx(-curve.intercept_[0] / curve.coef_[0, 0], abs=1 / 128)
            best = of_bound[number, np.searchsorted(bounds, bound)]
        else:
            padded = np.pad(of_bound[number], 64, mode="edge")
            means = np.lib.stride_tricks.sliding_window_view(padded, 129).mean(axis=1)
            equal = np.flatnonzero(means >= means.max() - 1e-9)
            assert np.flatnonzero(bounds == bound)[0] in equal
            assert abs(bound) <= np.abs(bounds[equal]).min() + 1 / 128
            best = of_bound[number, np.flatnonzero(bounds == bound)[0]]
        assert abs(best - of_power[number].max()) > 1e-6  # otherwise, both choices are right
        assert model.choice_by_sets_[number] == (of_power[number].max() > best)


def test_predictions_follow_the_choice():
    X, Y = problem()
    model = classifier().fit(X[:90], Y[:90])
    scores, every = model.decision_function(X), all_sums(model, X)
    sets, counts = model.label_sets_.toarray(), model.label_set_weights_
    for by_sets in (0, 1):
        for number, measure in enumerate(MEASURES):
            model.set_params(predictor=measure)
            for at in (0.0, 0.5, 1.0):
                model.choice_by_sets_ = np.full(3, by_sets, dtype=np.uint8)
                model.choice_powers_ = np.full(3, at)
                model.choice_bounds_ = np.full(3, 2 - 4 * at)
                wanted = (
                    set_choice.by_power(every, sets, counts, at)
                    if by_sets
                    else set_choice.by_bound(scores, model.choice_bounds_[number], measure)
                )
                np.testing.assert_array_equal(model.predict(X), wanted)


def test_the_measure_may_be_changed_after_the_fit():
    X, Y = problem()
    models = [classifier(predictor=measure).fit(X, Y) for measure in MEASURES]
    for model in models:
        for measure, other in zip(MEASURES, models, strict=True):
            np.testing.assert_array_equal(
                model.set_params(predictor=measure).predict(X), other.set_params(predictor=measure).predict(X)
            )
    plain = classifier(predictor="auto").fit(X, Y)
    np.testing.assert_array_equal(models[0].set_params(predictor="auto").predict(X), plain.predict(X))
    np.testing.assert_array_equal(models[0].decision_function(X), plain.decision_function(X))
    with pytest.raises(
        ValueError, match=r"`predictor` must be .*, got 'hamming'; to predict with this measure"
    ):
        plain.set_params(predictor="hamming").predict(X)


def test_every_measure_gains():
    """With labels that are hard to predict, each measure is best with its own choice."""
    X, Y = problem(3000, seed=3)
    model = classifier(n_rules=100).fit(X[:1500], Y[:1500])
    values = {}
    for measure in MEASURES:
        chosen = model.set_params(predictor=measure).predict(X[1500:])
        values[measure] = [set_choice.value(of, chosen, Y[1500:], np.ones(1500)) for of in MEASURES]
    plain = model.set_params(predictor="auto").predict(X[1500:])
    for number, measure in enumerate(MEASURES):
        assert values[measure][number] >= max(of[number] for of in values.values()) - 10
        assert values[measure][number] >= set_choice.value(measure, plain, Y[1500:], np.ones(1500)) - 10
    assert values["example-f1"][2] > values["subset-accuracy"][2] + 30


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7])
def test_few_rows(n):
    X, Y = problem(n)
    model = classifier().fit(X, Y)
    assert model.predict(X).shape == Y.shape
    if n < 4:
        np.testing.assert_array_equal(model.choice_by_sets_, [1, 0, 0])
        np.testing.assert_array_equal(model.choice_powers_, 0)


@pytest.mark.parametrize("n", [0, 3, 4, 200, 600, 2047, 2048, 100_000])
def test_parts_of_the_rows(n):
    parts = list(parts_of(n))
    assert len(parts) == (0 if n < 4 else min(4, -(-512 // (n // 4))))
    held = np.concatenate([held for _, held in parts]) if parts else np.zeros(0)
    assert len(np.unique(held)) == len(held)
    for fitted, held in parts:
        assert len(held) == min(n // 4, 16_384)
        np.testing.assert_array_equal(np.sort(np.concatenate([fitted, held])), np.arange(n))


def test_forms_of_data_and_threads_do_not_matter():
    X, Y = problem()
    expected = classifier().fit(X, Y)
    for params, data in [
        ({"n_jobs": 3}, (X, Y)),
        ({}, (csr_array(X), csr_array(Y))),
        ({}, (np.asfortranarray(X), Y.astype(bool))),
    ]:
        model = classifier(**params).fit(*data)
        for name in CHOICES:
            np.testing.assert_array_equal(getattr(model, name), getattr(expected, name))


def assert_same_choice(model, other):
    for name in CHOICES:
        np.testing.assert_allclose(getattr(model, name), getattr(other, name), rtol=1e-6, err_msg=name)


def test_a_single_label():
    X, Y = problem()
    one = classifier(predictor="example-f1").fit(X, Y[:, 0])
    column = classifier(predictor="example-f1").fit(X, Y[:, :1])
    assert_same_choice(one, column)
    np.testing.assert_array_equal(one.predict(X), column.predict(X)[:, 0])


@pytest.mark.parametrize("seed", [None, np.random.RandomState(3), 2**32 - 1], ids=["none", "state", "int"])
def test_every_kind_of_seed(seed):
    X, Y = problem()
    model = classifier(random_state=seed, warm_start=True).fit(X, Y)
    assert_same_choice(model.set_params(n_rules=30).fit(X, Y), model)


def test_nominal_features_are_nominal_in_all_parts():
    X, Y = problem()
    X = np.round(X)
    model = classifier(categorical_features=[0, 1]).fit(X, Y)
    names = list("abcdef")
    named = classifier(categorical_features=["b", "a"]).fit(pd.DataFrame(X, columns=names), Y)
    assert_same_choice(named, model)
    # With other numbers for the values of the nominal features, conditions are the same, up to these numbers.
    renumbered = X.copy()
    renumbered[:, :2] = (7 * X[:, :2]) % 23
    assert_same_choice(classifier(categorical_features=[0, 1]).fit(renumbered, Y), model)
    numeric = classifier().fit(X, Y), classifier().fit(renumbered, Y)
    assert any((getattr(numeric[0], name) != getattr(numeric[1], name)).any() for name in CHOICES)


def test_rows_of_eval_set_stop_the_fits_and_are_never_held_out():
    X, Y = problem()
    stopped = classifier(early_stopping=True, n_iter_no_change=2, n_rules=60)
    model = clone(stopped).fit(X[:80], Y[:80], eval_set=(X[80:], Y[80:]))
    assert len(model.rules_) < 60
    # The rows held out are rows of X only, and the parts are stopped by the rows of `eval_set`.
    for fitted, held in parts_of(80):
        assert max(fitted.max(), held.max()) < 80
        part = clone(stopped).set_params(predictor="auto")
        assert len(part.fit(X[fitted], Y[fitted], eval_set=(X[80:], Y[80:])).rules_) < 60
    other = clone(stopped).fit(X[:80], Y[:80], eval_set=(X[80:], 1 - Y[80:]))
    assert any((getattr(model, name) != getattr(other, name)).any() for name in CHOICES)


def test_a_warm_start_makes_the_choice_again():
    X, Y = problem()
    longer = classifier(n_rules=10, warm_start=True).fit(X, Y).set_params(n_rules=25).fit(X, Y)
    assert_same_choice(longer, classifier().fit(X, Y))
    longer.set_params(predictor="signs").fit(X, Y)
    assert not hasattr(longer, "choice_bounds_")


def test_the_unit_of_weights_does_not_matter():
    X, Y = problem()
    weights = np.random.default_rng(0).integers(1, 4, len(X)).astype(float)
    model = classifier(l2=1.0).fit(X, Y, weights)
    scaled = classifier(l2=2.0**-10).fit(X, Y, weights * 2.0**-10)
    assert_same_choice(scaled, model)


def test_a_saved_model_keeps_its_choice(tmp_path):
    X, Y = problem()
    model = classifier(predictor="hamming").fit(X, Y)
    model.save(tmp_path / "model.safetensors")
    loaded = ml.load(tmp_path / "model.safetensors")
    for measure in MEASURES:
        np.testing.assert_array_equal(
            loaded.set_params(predictor=measure).predict(X), model.set_params(predictor=measure).predict(X)
        )


def test_progress_counts_the_rules_of_all_fits():
    X, Y = problem()
    calls = []
    classifier(n_rules=40).fit(X, Y, progress=calls.append)
    assert calls == sorted(calls)
    assert calls[-1] == 5 * 40
    assert {(done - 1) // 40 for done in calls} >= {0, 1, 2, 3, 4}


def test_progress_can_stop_the_choice():
    X, Y = problem()

    def stop(done):
        if done > 60:
            raise KeyboardInterrupt

    model = classifier()
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y, progress=stop)
    assert not hasattr(model, "heads_")
