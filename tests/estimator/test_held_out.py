"""Held-out rows: how they are drawn, and the strength of regularization they choose."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.special import expit

from manylabel import BlockPartitionClassifier, CorrLogClassifier, DiSMECClassifier
from manylabel.datasets import make_multilabel
from manylabel.estimator.held_out import (
    STRENGTH_STEP,
    best_ranked_strength,
    best_strength,
    clearly_lower,
    held_out_folds,
)
from manylabel.linear import dismec


def numbered(n_rows, n_labels, seed=0):
    """Rows whose feature is their number, and labels of decreasing frequency."""
    rng = np.random.default_rng(seed)
    Y = rng.random((n_rows, n_labels)) < 1 / (1 + np.arange(n_labels))
    return csr_array(np.arange(1.0, n_rows + 1)[:, None]), csr_array(Y.astype(np.float32))


@pytest.mark.parametrize(
    ("n_rows", "n_folds", "n_drawn"), [(100, 4, 100), (700, 3, 700), (5000, 1, 4096), (40_000, 1, 5000)]
)
def test_rows_are_fitted_or_held_out(n_rows, n_folds, n_drawn):
    X, Y = numbered(n_rows, 5)
    folds = held_out_folds(X, Y, None)
    assert len(folds) == n_folds
    held = np.concatenate([fold.X_held.data for fold in folds])
    assert len(np.unique(held)) == len(held)
    for fold in folds:
        rows = np.concatenate([fold.X.data, fold.X_held.data])
        assert len(np.unique(rows)) == len(rows) == n_drawn
        assert fold.X_held.shape[0] == n_drawn // 4
        np.testing.assert_array_equal(fold.Y_held, Y[(fold.X_held.data - 1).astype(int)].toarray() > 0)
        # Every tenth of the rows has its share of held-out rows, however the rows are sorted.
        assert np.histogram(fold.X_held.data, 10, (1, n_rows))[0].min() > 0.7 * n_drawn / 40


@pytest.mark.parametrize("order", ["C", "F"])
def test_dense_rows_of_folds_are_copies(order):
    """The choice of C overwrites the rows of a fold with scaled rows."""
    rng = np.random.default_rng(0)
    X = np.asarray(rng.normal(3, 2, (600, 8)), dtype=np.float32, order=order)
    Y = csr_array((rng.random((600, 40)) < 0.1).astype(np.float32))
    given = X.copy()
    for fold in held_out_folds(X, Y, None, for_rankings=True):
        assert not np.shares_memory(fold.X, X)
        assert not np.shares_memory(fold.X_held, X)
    of_single = DiSMECClassifier(normalize="columns", random_state=0).fit(X, Y)
    np.testing.assert_array_equal(X, given)
    # Rows in double precision are not overwritten, and have the same values.
    of_double = DiSMECClassifier(normalize="columns", random_state=0).fit(X.astype(np.float64), Y)
    assert of_single.C_ == of_double.C_


def test_frequent_labels_are_drawn():
    X, Y = numbered(3000, 400)
    counts = (Y != 0).sum(axis=0)
    (fold,) = held_out_folds(X, Y, None)
    assert 16 <= fold.Y.shape[1] <= 32
    # Labels are identified by their rows.
    columns = Y[(fold.X.data - 1).astype(int)].toarray().T
    drawn = {column.tobytes() for column in fold.Y.toarray().T}
    found = {label for label in range(400) if columns[label].tobytes() in drawn}
    # Every label with more than 1/32 of all ones is drawn.
    assert set(np.flatnonzero(counts > counts.sum() / 32)) <= found
    assert len(found) > 16


def test_weights_go_with_their_rows():
    X, Y = numbered(900, 5)
    weight = np.random.default_rng(0).integers(1, 4, 900).astype(np.float32)
    for fold in held_out_folds(X, Y, weight):
        np.testing.assert_array_equal(fold.sample_weight, weight[(fold.X.data - 1).astype(int)])
        np.testing.assert_array_equal(fold.weight_held, weight[(fold.X_held.data - 1).astype(int)])


@pytest.mark.parametrize(("n_rows", "n_ones"), [(3, 3), (100, 9)])
def test_few_rows_or_labels_say_nothing(n_rows, n_ones):
    Y = np.zeros((n_rows, 2), dtype=np.float32)
    Y[:n_ones, 0] = 1
    assert held_out_folds(csr_array(np.ones((n_rows, 1))), csr_array(Y), None) == []


@given(st.floats(-4, 4), st.floats(0.5, 3.0))
def test_the_walk_ends_where_the_loss_is_least(lowest, curvature):
    """No step from the result lowers the loss by 2 %, and at most 16 losses are computed."""
    asked = []

    def loss(strength):
        asked.append(strength)
        return 1 + curvature * (np.log10(strength) - lowest) ** 2

    found = best_strength(loss, clearly_lower, 1.0, 1e-3, 1e3)
    assert 0.99e-3 <= found <= 1.01e3
    for neighbour in (found * STRENGTH_STEP, found / STRENGTH_STEP):
        if 1e-3 <= neighbour <= 1e3:
            assert loss(neighbour) >= 0.98 * loss(found)
    assert len(asked) <= 16


def test_precisions_of_rows_are_those_of_their_rankings():
    rng = np.random.default_rng(3)
    X, Y = (rng.random((60, 8)) < 0.5).astype(np.float32), (rng.random((60, 7)) < 0.3).astype(np.float32)
    weight = rng.uniform(0.5, 2, 60).astype(np.float32)
    for fold in held_out_folds(csr_array(X), csr_array(Y), weight):
        model = DiSMECClassifier(0.5, threshold="zero").fit(fold.X, fold.Y)
        top = model.predict_topk(fold.X_held, 5)
        expected, weights = [], []
        for row, weight_of_row in enumerate(fold.weight_held):
            truth = set(np.flatnonzero(fold.Y_held[row] & (fold.Y.sum(axis=0) > 0)))
            if not truth:
                continue
            (scores,) = top[[row]].toarray()
            ranked = sorted(top[[row]].indices, key=lambda label: (-scores[label], label))
            hits = [label in truth for label in ranked]
            expected.append(sum(sum(hits[:k]) / k for k in (1, 3, 5)) * weight_of_row)
            weights.append(weight_of_row)
        np.testing.assert_allclose(fold.precisions(top), np.array(expected) / np.mean(weights), rtol=1e-12)


@given(st.floats(-1.9, 1.9), st.floats(0.3, 1.0))
def test_the_strength_of_the_best_rankings_is_the_top_of_a_parabola(top, curvature):
    noise = np.random.default_rng(0).normal(size=400) / 50
    noise -= noise.mean()

    def precisions(strength):
        return 2 - curvature * (np.log10(strength) - top) ** 2 + noise * (1 + np.log10(strength))

    found = best_ranked_strength(precisions, 1.0, 1e-3, 1e3)
    assert np.log10(found) == pytest.approx(top, abs=0.05)


@pytest.mark.parametrize("errors", [0.9, 1.1])
def test_a_ranking_is_better_only_beyond_its_standard_error(errors):
    noise = np.random.default_rng(0).normal(size=400)
    noise -= noise.mean()
    error = noise.std() / 20

    def precisions(strength):
        """One step up is better by some standard errors, and all other steps are much worse."""
        if strength == 1:
            return np.full(400, 2.0)
        return np.where(np.isclose(strength, STRENGTH_STEP), 2 + errors * error + noise, 1.0)

    found = best_ranked_strength(precisions, 1.0, 1e-3, 1e3)
    # The parabola adds at most half a step.
    assert (found > STRENGTH_STEP**0.5 * 1.001) == (errors > 1)


@pytest.mark.parametrize("gain", [0.004, 0.006])
def test_a_step_must_gain_half_a_percent(gain):
    tried = []

    def precisions(strength):
        tried.append(round(2 * np.log10(strength)))
        return np.full(50, {0: 2.0, 1: 2.0 * (1 + gain)}.get(tried[-1], 1.0))

    best_ranked_strength(precisions, 1.0, 1e-3, 1e3)
    assert tried == ([0, -1, 1, 2] if gain > 0.005 else [0, -1, 1])


@pytest.mark.parametrize("n_labels", [1, 3])
def test_few_labels_choose_by_the_loss_of_all_rows(n_labels):
    """Sampling only rows with a sampled label would leave no negative rows."""
    X, Y = make_multilabel(900, 60, 12, random_state=1)
    Y = Y[:, np.argsort(-Y.sum(axis=0))[:n_labels]]
    model = DiSMECClassifier(normalize="rows", random_state=0).fit(X, Y)
    how = {"prune": 0.0, "threshold": "zero", "normalize": True, "random_state": 0}

    def loss(C):
        losses = []
        for fold in held_out_folds(X, csr_array(Y).astype(np.float32), None):
            scores = DiSMECClassifier(C, **how).fit(fold.X, fold.Y).decision_function(fold.X_held)
            margins = np.where(fold.Y_held, scores, -scores)
            losses.append((np.maximum(1 - margins, 0) ** 2).sum(axis=1).mean())
        return np.mean(losses)

    for neighbour in (model.C_ * STRENGTH_STEP, model.C_ / STRENGTH_STEP):
        assert loss(neighbour) >= 0.98 * loss(model.C_)


def test_samples_for_rankings_have_only_rows_with_a_sampled_label():
    X, Y = make_multilabel(3000, 60, 400, random_state=0)
    order = np.random.default_rng(0).permutation(400)
    samples = [held_out_folds(X, labels, None, for_rankings=True) for labels in (Y, Y[:, order])]
    for fold, permuted in zip(*samples, strict=True):
        assert 64 <= fold.Y.shape[1] <= 128
        assert fold.Y_held.any(axis=1).all()
        assert (np.diff(fold.Y.indptr) > 0).all()
        # The numbers of the labels do not matter.
        np.testing.assert_array_equal(fold.X.toarray(), permuted.X.toarray())
        np.testing.assert_array_equal(np.sort(fold.Y.sum(axis=0)), np.sort(permuted.Y.sum(axis=0)))


def test_a_strength_that_cannot_be_fitted_ranks_nothing():
    fits = []

    def precisions(strength):
        fits.append(strength)
        return np.zeros(1) if strength > 0.5 else np.linspace(1, 2, 50) - (np.log10(strength) + 1) ** 2

    assert 0.05 < best_ranked_strength(precisions, 1.0, 1e-3, 1e3) < 0.5
    assert best_ranked_strength(lambda _: np.zeros(0), 1.0, 1e-3, 1e3) == pytest.approx(1.0)


def test_dismec_chooses_the_weight_of_the_best_rankings():
    """On rows of unit length, larger and smaller weights rank the held-out rows worse."""
    X, Y = make_multilabel(900, 60, 12, random_state=1)
    chosen = []
    for noise in (0.0, 0.4):
        rng = np.random.default_rng(0)
        chance = rng.random(Y.shape) < Y.mean()
        flipped = np.where(rng.random(Y.shape) < noise, chance, Y.toarray() > 0).astype(np.float32)
        model = DiSMECClassifier(normalize="rows", random_state=0).fit(X, flipped)
        folds = held_out_folds(X, csr_array(flipped), None, for_rankings=True)

        def precisions(C, folds=folds):
            how = {"prune": 0.0, "threshold": "zero", "normalize": True, "random_state": 0}
            tops = [DiSMECClassifier(C, **how).fit(f.X, f.Y).predict_topk(f.X_held, 5) for f in folds]
            return np.concatenate([fold.precisions(top) for fold, top in zip(folds, tops, strict=True)])

        steps = [STRENGTH_STEP**step for step in (-0.5, 0, 0.5)]
        near = [precisions(model.C_ * step).sum() for step in steps]
        far = [precisions(model.C_ * STRENGTH_STEP**step).sum() for step in (-2, 2)]
        assert max(near) > max(far)
        chosen.append(model.C_)
    assert chosen[1] < chosen[0]


@pytest.mark.parametrize(
    ("normalize", "n_labels", "search", "first"),
    [
        ("rows", 5, "best_strength", 1.0),
        ("rows", 6, "best_ranked_strength", 0.3),
        ("columns", 32, "best_strength", 1.0),
        ("columns", 33, "best_ranked_strength", 1.0),
    ],
)
def test_many_labels_choose_by_rankings(monkeypatch, normalize, n_labels, search, first):
    X, Y = make_multilabel(900, 60, 60, random_state=1)
    Y = Y[:, np.argsort(-Y.sum(axis=0))[:n_labels]]
    calls = []
    for name in ("best_strength", "best_ranked_strength"):
        monkeypatch.setattr(dismec, name, lambda *given, name=name: calls.append((name, given[-3])) or 1.0)
    DiSMECClassifier(normalize=normalize, random_state=0).fit(X.toarray(), Y)
    assert calls == [(search, first)]


@pytest.mark.parametrize(("scale", "solver"), [(1.0, "fast"), (30.0, "fast"), (1.0, "exact")])
def test_dismec_chooses_the_weight_of_least_loss(scale, solver):
    """The test computes the loss of each fold by its own fits."""
    X, Y = make_multilabel(800, 60, 12, random_state=1)
    X = X * scale
    as_is = {"normalize": False, "solver": solver, "random_state": 0}
    model = DiSMECClassifier(**as_is).fit(X, Y)

    def loss(C):
        losses = []
        for fold in held_out_folds(csr_array(X), csr_array(Y).astype(np.float32), None):
            fitted = DiSMECClassifier(C, prune=0.0, threshold="zero", **as_is)
            scores = fitted.fit(fold.X, fold.Y).decision_function(fold.X_held).astype(float)
            margins = np.where(fold.Y_held, scores, -scores)[:, fold.Y.sum(axis=0) > 0]
            losses.append((np.maximum(1 - margins, 0) ** 2).sum(axis=1).mean())
        return np.mean(losses)

    for neighbour in (model.C_ * STRENGTH_STEP, model.C_ / STRENGTH_STEP):
        assert loss(neighbour) >= 0.98 * loss(model.C_)
    same = DiSMECClassifier(model.C_, **as_is).fit(X, Y)
    np.testing.assert_array_equal(same.coef_.toarray(), model.coef_.toarray())
    np.testing.assert_array_equal(same.intercept_, model.intercept_)


def noisy(n_rows, scale=1.0, seed=0):
    """Labels that are hard to predict from the features."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 30))
    scores = X @ rng.normal(size=(30, 12)) / 5 + rng.normal(size=(n_rows, 12))
    return scale * X, (scores > 1.4).astype(int)


def test_a_larger_scale_wants_less_weight_of_the_loss():
    small, large = (
        DiSMECClassifier(normalize=False, random_state=0).fit(*noisy(100, scale)).C_ for scale in (0.1, 3.0)
    )
    assert large < 0.1 * small


def test_corrlog_names_as_many_labels_as_there_are():
    """The most probable sets of noisy labels are too small. The learned threshold corrects this."""
    X, Y = noisy(1500)
    named = {}
    for threshold in ("zero", "auto"):
        model = CorrLogClassifier(threshold=threshold).fit(X[:1000], Y[:1000])
        named[threshold] = model.predict(X[1000:]).sum() / Y[1000:].sum()
    assert 0.8 <= named["auto"] <= 1.25
    assert abs(named["auto"] - 1) <= abs(named["zero"] - 1) + 0.05
    # The threshold does not change rankings and probabilities.
    zero = CorrLogClassifier(model.l2_features_, model.l2_pairs_, threshold="zero").fit(X[:1000], Y[:1000])
    np.testing.assert_array_equal(zero.predict_proba(X[:50]), model.predict_proba(X[:50]))
    np.testing.assert_array_equal(zero.predict_topk(X[:50]).toarray(), model.predict_topk(X[:50]).toarray())
    given = CorrLogClassifier(model.l2_features_, model.l2_pairs_, threshold=model.threshold_)
    np.testing.assert_array_equal(
        given.fit(X[:1000], Y[:1000]).decision_function(X[1000:]), model.decision_function(X[1000:])
    )


@pytest.mark.parametrize("how", [{}, {"solver": "fista", "coding": "pm1", "epsilon": 0.0}], ids=str)
def test_corrlog_chooses_the_penalty_of_least_brier_score(how):
    X, Y = make_multilabel(600, 40, 8, random_state=2)
    how = {"l2_pairs": np.inf, "threshold": "zero", "max_iter": 300} | how
    model = CorrLogClassifier(**how).fit(X, Y)

    def loss(l2):
        losses = []
        for fold in held_out_folds(csr_array(X), csr_array(Y).astype(np.float32), None):
            fitted = CorrLogClassifier(
                l2 / np.sqrt(fold.share), **how, tol=1e-3, standardize=model_standardizes
            )
            scores = fitted.fit(fold.X, fold.Y).decision_function(fold.X_held).astype(float)
            margins = np.where(fold.Y_held, scores, -scores)[:, fold.Y.sum(axis=0) > 0]
            losses.append(np.square(expit(-margins)).sum(axis=1).mean())
        return np.mean(losses)

    model_standardizes = bool((X != 0).mean() > 1 / 8)
    for neighbour in (model.l2_features_ * STRENGTH_STEP, model.l2_features_ / STRENGTH_STEP):
        assert loss(neighbour) >= 0.98 * loss(model.l2_features_)


def test_blocks_choose_together():
    """The models of all blocks have the same `C`, which is that of one model of all rows."""
    X, Y = make_multilabel(1200, 200, 40, random_state=0)
    blocks = BlockPartitionClassifier(n_blocks=4, lam=1.0, random_state=0).fit(X, Y)
    chosen = {model.C_ for model in blocks.estimators_ if model is not None}
    assert chosen == {DiSMECClassifier(random_state=5).fit(X, Y).C_}


def test_unit_rows_of_many_features_have_a_penalty_to_choose():
    """The penalties for unit rows are at most a thousandth of those for features of unit variance."""
    rng = np.random.default_rng(0)
    X = csr_array((rng.random((400, 3000)) < 0.005) * rng.random((400, 3000)))
    X = csr_array(X / np.sqrt(X.multiply(X).sum(axis=1))[:, None])
    Y = (X[:, :200].sum(axis=1) > 0.2).astype(int)[:, None] * [[1, 1, 0]]
    Y[:, 1:] |= rng.random((400, 2)) < 0.1
    variances = X.multiply(X).sum(axis=0) / 400 - np.square(X.sum(axis=0) / 400)
    start = 2 / 400 * variances[variances > 0].mean()
    model = CorrLogClassifier(threshold="zero").fit(X, Y)
    assert start < 1e-5
    assert abs(np.log10(model.l2_features_ / start)) > 0.4
    np.testing.assert_allclose(model.l2_pairs_ / model.l2_features_, 2 / 400 / start)


def test_warning_filters_stay():
    """Fits in threads do not change the warning filters of the process."""
    X, Y = make_multilabel(200, 30, 12, random_state=0)
    before = list(warnings.filters)
    BlockPartitionClassifier(
        CorrLogClassifier(max_iter=20000), n_blocks=4, lam=1.0, random_state=0, n_jobs=2
    ).fit(X, Y)
    assert list(warnings.filters) == before


def test_blocks_of_corrlog_are_penalized_alike():
    X, Y = make_multilabel(300, 50, 15, random_state=0)
    model = BlockPartitionClassifier(
        CorrLogClassifier(threshold="zero"), n_blocks=3, lam=1.0, random_state=0
    ).fit(X, Y)
    chosen = {
        (block.l2_features_, block.l2_pairs_, block.standardize) for block in model.estimators_ if block
    }
    assert len(chosen) == 1
    assert chosen == {
        (whole.l2_features_, whole.l2_pairs_, True)
        for whole in [CorrLogClassifier(threshold="zero").fit(X, Y)]
    }


def test_the_threshold_counts_rows_by_weight():
    """A row of weight 5 counts as five rows."""
    X, Y = noisy(600)
    weight = np.where(Y.any(axis=1), 5.0, 1.0)
    penalties = {"l2_features": 0.01, "l2_pairs": 0.01}
    rows = np.repeat(np.arange(600), weight.astype(int))
    weighted = CorrLogClassifier(**penalties).fit(X, Y, sample_weight=weight).threshold_
    repeated = CorrLogClassifier(**penalties).fit(X[rows], Y[rows]).threshold_
    plain = CorrLogClassifier(**penalties).fit(X, Y).threshold_
    assert abs(weighted - repeated) < 0.5
    assert np.isfinite(plain)


def test_a_cost_the_core_refuses_is_not_chosen():
    """With so small row weights, the core refuses smaller values of `C`."""
    X, Y = noisy(100)
    weight = np.full(100, 8e-31)
    model = DiSMECClassifier(normalize=False, random_state=0).fit(X, Y, sample_weight=weight)
    assert model.C_ >= 1


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (DiSMECClassifier(prune=-1.0), "`prune` must be a finite number >= 0, got -1"),
        (CorrLogClassifier(l2_pairs=-1.0), '`l2_pairs` must be "auto" or a number > 0, got -1'),
        (CorrLogClassifier(-1.0), '`l2_features` must be "auto" or a finite number > 0, got -1'),
        (CorrLogClassifier(tol=0.0), "`tol` must be a finite number > 0, got 0"),
    ],
)
def test_ranges_are_checked_before_the_data(estimator, message):
    with pytest.raises(ValueError, match=message):
        estimator.fit("no data", "at all")
