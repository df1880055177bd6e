"""`LabelCalibrator` against scikit-learn, a general optimizer and planted probabilities."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier

import manylabel as ml
from manylabel import _core, metrics
from manylabel.datasets import make_multilabel
from manylabel.decision import DecisionClassifier, ExpectedF1, LabelCalibrator, RiskControl, TopLabels
from manylabel.partition import choice
from oracle import calibration as oracle


def pairs(rng, n_rows, n_labels, scores=None):
    """Scores of all labels as candidates, labels drawn with planted probabilities, and the probabilities."""
    scores = rng.normal(size=(n_rows, n_labels)).astype(np.float32) if scores is None else scores
    p = expit(1.5 * scores - 1)
    Y = (rng.random(scores.shape) < p).astype(np.float32)
    ends = np.arange(n_rows + 1) * n_labels
    candidates = csr_array((scores.ravel(), np.tile(np.arange(n_labels), n_rows), ends), shape=scores.shape)
    return candidates, csr_array(Y), p


def curves(scores, Y, frequency=None, **params):
    params = {"method": "sigmoid", "pooling": "frequency", **params}
    frequency = np.full(Y.shape[1], 10) if frequency is None else frequency
    found = _core.fit_calibration(scores, Y, frequency.astype(np.int32), params, (1, None))
    return {**found, "method": params["method"]}


def probabilities(scores, fitted, n_threads=1):
    return _core.calibrated(scores, fitted, n_threads)


class Scores(ClassifierMixin, BaseEstimator):
    """A binary classifier whose score is the only feature."""

    def fit(self, X, y):
        self.classes_ = np.arange(2)
        return self

    def decision_function(self, X):
        return np.asarray(X)[:, 0]


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
def test_one_label_equals_scikit_learn(method):
    rng = np.random.default_rng(0)
    scores, Y, _ = pairs(rng, 400, 1)
    X = scores.toarray().astype(float)
    y = Y.toarray()[:, 0].astype(int)
    peer = CalibratedClassifierCV(Scores(), method=method, cv=[(np.arange(400), np.arange(400))]).fit(X, y)
    for pooling in ("none", "all"):
        found = probabilities(scores, curves(scores, Y, method=method, pooling=pooling))
        np.testing.assert_allclose(found, peer.predict_proba(X)[:, 1], atol=2e-4)


def test_isotonic_curves_of_labels_equal_isotonic_regression():
    rng = np.random.default_rng(1)
    # Rounded scores have ties.
    scores, Y, _ = pairs(rng, 200, 3, np.round(rng.normal(size=(200, 3)), 1).astype(np.float32))
    fitted = curves(scores, Y, method="isotonic", pooling="none")
    fresh = np.linspace(-5, 5, 60).astype(np.float32).reshape(20, 3)
    found = probabilities(pairs(rng, 20, 3, fresh)[0], fitted).reshape(20, 3)
    for label in range(3):
        peer = IsotonicRegression(out_of_bounds="clip")
        peer.fit(scores.toarray()[:, label], Y.toarray()[:, label])
        np.testing.assert_allclose(found[:, label], peer.predict(fresh[:, label]), atol=1e-6)


def test_shrunken_sigmoids_equal_a_general_optimizer():
    rng = np.random.default_rng(2)
    shift = np.where(np.arange(6) % 2, 1.5, -1.5)
    scores, _, _ = pairs(rng, 500, 6)
    Y = csr_array((rng.random((500, 6)) < expit(scores.toarray() + shift)).astype(np.float32))
    fitted = curves(scores, Y)
    assert fitted["variance"] > 0
    x = scores.toarray().astype(float)
    h = Y.toarray()
    f = np.interp(x, fitted["knot_scores"], fitted["knot_log_odds"])
    inside = (x >= fitted["knot_scores"][0]) & (x <= fitted["knot_scores"][-1])
    ends = fitted["knot_scores"], fitted["knot_log_odds"]
    fifth = max(1, len(ends[0]) // 5)
    for at, other in ((0, fifth), (-1, -1 - fifth)):
        slope = (ends[1][at] - ends[1][other]) / (ends[0][at] - ends[0][other])
        beyond = ~inside & ((x < ends[0][0]) if at == 0 else (x > ends[0][-1]))
        f[beyond] = ends[1][at] + slope * (x[beyond] - ends[0][at])
    center = f[h > 0].mean()
    u = f - center
    group = oracle.shrunken_sigmoid(u.ravel(), f.ravel(), h.ravel(), [0, 0], [1, 4])
    for label in range(6):
        precision = np.array([1, 5]) / fitted["variance"]
        a, b = oracle.shrunken_sigmoid(u[:, label], f[:, label], h[:, label], group, precision)
        np.testing.assert_allclose(fitted["slope"][label], 1 + b, atol=1e-4)
        np.testing.assert_allclose(fitted["intercept"][label], a - b * center, atol=1e-4)


def test_equal_labels_are_not_told_apart_and_different_labels_are():
    rng = np.random.default_rng(3)
    scores, Y, _ = pairs(rng, 1000, 40)
    assert curves(scores, Y)["variance"] <= 0.01
    shift = rng.normal(size=40)
    Y = csr_array((rng.random((1000, 40)) < expit(scores.toarray() + shift)).astype(np.float32))
    assert 0.3 <= curves(scores, Y)["variance"] <= 3


def test_pooling_has_the_lowest_loss_on_fresh_rows():
    rng = np.random.default_rng(4)
    shift, slope = 0.7 * rng.normal(size=60), np.exp(0.2 * rng.normal(size=60))

    def draw(n):
        scores, _, _ = pairs(rng, n, 60)
        p = expit(slope * (2 * np.arctan(scores.toarray()) - 2) + shift)
        return scores, csr_array((rng.random(p.shape) < p).astype(np.float32))

    scores, Y = draw(60)
    fresh, truth = draw(2000)
    losses = {}
    for pooling in ("frequency", "none", "all"):
        p = np.clip(probabilities(fresh, curves(scores, Y, pooling=pooling)), 1e-7, 1 - 1e-7)
        losses[pooling] = -np.log(np.where(truth.toarray().ravel() > 0, p, 1 - p)).mean()
    assert losses["frequency"] < min(losses["none"], losses["all"])


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
@pytest.mark.parametrize("pooling", ["frequency", "all"])
def test_curves_do_not_decrease(method, pooling):
    rng = np.random.default_rng(5)
    scores, Y, _ = pairs(rng, 300, 8)
    Y = csr_array((rng.random((300, 8)) < expit(-scores.toarray())).astype(np.float32))  # decreasing
    fitted = curves(scores, Y, method=method, pooling=pooling)
    if (method, pooling) == ("sigmoid", "all"):
        return  # Platt's sigmoid over all labels may decrease
    grid = np.repeat(np.linspace(-6, 6, 50, dtype=np.float32)[:, None], 8, axis=1)
    found = probabilities(pairs(rng, 50, 8, grid)[0], fitted).reshape(50, 8)
    assert (np.diff(found, axis=0) >= -1e-7).all()


def test_threads_and_the_order_of_labels_do_not_matter():
    rng = np.random.default_rng(6)
    scores, Y, _ = pairs(rng, 300, 30)
    frequency = rng.integers(1, 100, 30)
    one = curves(scores, Y, frequency)
    params = {"method": "sigmoid", "pooling": "frequency"}
    two = _core.fit_calibration(scores, Y, frequency.astype(np.int32), params, (2, None))
    for name, value in two.items():
        np.testing.assert_array_equal(value, one[name])
    np.testing.assert_array_equal(probabilities(scores, one), probabilities(scores, one, 2))


@pytest.fixture(scope="module")
def data():
    X, Y = make_multilabel(900, 60, 25, random_state=0)
    return X[:600], Y[:600], X[600:], Y[600:]


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
@pytest.mark.parametrize("cv", [0.3, 3])
def test_fit_calibrates(data, method, cv):
    X, Y, X_test, Y_test = data
    model = LabelCalibrator(ml.DiSMECClassifier(random_state=0), method=method, cv=cv, random_state=0)
    P = model.fit(X, Y).predict_proba_topk(X_test, 25)
    assert metrics.calibration_error(Y_test, P) < 0.03
    raw = csr_array(model.predict_topk(X_test, 25))
    raw.data = expit(raw.data)
    assert metrics.log_loss_at_k(Y_test, P, 5) < metrics.log_loss_at_k(Y_test, raw, 5)
    dense = model.predict_proba(X_test)
    assert dense.shape == Y_test.shape
    assert dense.min() >= 0
    assert dense.max() <= 1
    np.testing.assert_array_equal(dense[P.nonzero()], P.data[P.data != 0])


def test_the_tail_has_the_probability_of_true_labels_that_are_not_candidates(data):
    X, Y, X_test, _ = data
    estimator = ml.DiSMECClassifier(random_state=0).fit(X[:300], Y[:300])
    model = LabelCalibrator(estimator, cv="prefit", n_candidates=2).fit(X[300:], Y[300:])
    top = estimator.predict_topk(X[300:], 2)
    top.data[:] = 1
    missed = Y[300:].nnz - top.multiply(Y[300:]).sum()
    assert model.tail_probability_ == pytest.approx(missed / (300 * 25 - top.nnz))
    dense = model.predict_proba(X_test)
    assert (np.isclose(dense, np.float32(model.tail_probability_)).sum(axis=1) >= 23).all()
    # A label that occurs in no row of the calibration is left out.
    Y = Y[300:].copy()
    Y.data[Y.indices == 0] = 0
    Y.eliminate_zeros()
    model.fit(X[300:], Y)
    assert model.unseen_.tolist() == [0]
    others = np.ones((300, 25), dtype=bool)
    others[top.nonzero()] = False
    assert model.tail_probability_ == pytest.approx(Y.toarray()[:, 1:][others[:, 1:]].mean())


def test_held_out_rows_are_not_seen(data):
    X, Y, _, _ = data
    seen = []

    class Spy(ml.DiSMECClassifier):
        def fit(self, X, y, sample_weight=None, *, progress=None):
            seen.append(X.shape[0])
            return super().fit(X, y, sample_weight, progress=progress)

    LabelCalibrator(Spy(1.0, threshold="zero"), cv=0.25, random_state=0).fit(X, Y)
    assert seen == [600, 450]
    seen.clear()
    LabelCalibrator(Spy(1.0, threshold="zero"), cv=0.25, refit=False, random_state=0).fit(X, Y)
    assert seen == [450]
    seen.clear()
    LabelCalibrator(Spy(1.0, threshold="zero"), cv=4, random_state=0).fit(X, Y)
    assert seen == [600, 450, 450, 450, 450]


def test_auto_means_five_folds_for_few_ones_and_a_tenth_for_many():
    rng = np.random.default_rng(8)
    X, Y = rng.normal(size=(2700, 3)), rng.random((2700, 100)) < 0.95
    few, many = Y[:2550], Y
    assert few.sum() < 250_000 <= many.sum()
    dismec = ml.DiSMECClassifier(1.0, threshold="zero")
    for rows, expected in ((few, 5), (many, 0.1)):
        auto, given = (
            LabelCalibrator(dismec, cv=cv, n_candidates=5, random_state=0).fit(
                X[: len(rows)], rows.astype(int)
            )
            for cv in ("auto", expected)
        )
        assert auto.cv_ == given.cv_ == expected
        np.testing.assert_array_equal(auto.intercept_, given.intercept_)
    # Without a refit one model is needed, so a tenth is held out. There are no more folds than rows.
    few = few.astype(int)
    one = LabelCalibrator(dismec, refit=False, n_candidates=5, random_state=0)
    assert one.fit(X[:2550], few).cv_ == 0.1
    assert LabelCalibrator(dismec, random_state=0).fit(X[:3], few[:3]).cv_ == 3
    model = LabelCalibrator(dismec.fit(X[:300], few[:300]), cv="prefit").fit(X[:300], few[:300])
    assert not hasattr(model, "cv_")
    with pytest.raises(ValueError, match="X must have at least two rows, so that rows can be held out"):
        LabelCalibrator(dismec).fit(X[:1], few[:1])


@pytest.mark.parametrize(
    "estimator",
    [
        ml.DiSMECClassifier(random_state=0),
        ml.LabelTreeClassifier(random_state=0),
        ml.LEMLClassifier(4, random_state=0),
        ml.BlockPartitionClassifier(n_blocks=2, random_state=0),
        ml.SmoothLinkClassifier(n_features=50, random_state=0),
        OneVsRestClassifier(LogisticRegression(tol=0.01)),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_any_classifier_is_calibrated_and_saved(data, estimator, tmp_path):
    X, Y, X_test, _ = data
    model = LabelCalibrator(estimator, n_candidates=10, cv=2, random_state=0).fit(X, Y)
    P = model.prepare().predict_proba_topk(X_test, 5)
    assert P.nnz == 5 * X_test.shape[0]
    scores = model.decision_function(X_test)
    top = model.predict_topk(X_test, 5)
    np.testing.assert_allclose(top.data, scores[top.nonzero()], rtol=1e-5)
    assert model.predict(X_test).shape == (300, 25)
    if isinstance(estimator, OneVsRestClassifier):
        with pytest.raises(TypeError, match="OneVsRestClassifier"):
            model.save(tmp_path / "model.safetensors")
        return
    model.save(tmp_path / "model.safetensors")
    loaded = ml.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.predict_proba_topk(X_test, 5).toarray(), P.toarray())
    for name, value in model.calibration_.items():
        np.testing.assert_array_equal(loaded.calibration_[name], value)


def test_a_single_label():
    rng = np.random.default_rng(7)
    X = rng.normal(size=(300, 5))
    y = (X[:, 0] + rng.normal(size=300) > 0).astype(int)
    model = LabelCalibrator(ml.DiSMECClassifier(random_state=0), cv=0.3, random_state=0).fit(X, y)
    proba = model.predict_proba(X)
    assert proba.shape == (300, 2)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    assert model.predict(X).shape == (300,)


def test_chosen_values_are_used_again(data):
    X, Y, _, _ = data
    for estimator in (ml.DiSMECClassifier(random_state=0), ml.LabelTreeClassifier(random_state=0)):
        fitted = clone(estimator).fit(X, Y)
        again = fitted._as_chosen()
        for name in type(estimator).chosen:
            assert getattr(again, name) == getattr(fitted, f"{name}_")


@pytest.mark.parametrize(("found_first", "n_blocks"), [(1.0, 3), (0.0, 1)])
def test_held_out_rows_are_scored_by_as_many_blocks(data, monkeypatch, found_first, n_blocks):
    """The scores of several blocks have another scale than those of one block."""
    X, Y, _, _ = data
    shares = [found_first]
    monkeypatch.setattr(choice, "blocks_by_rule", lambda Y: 3)
    # Later calls would lead to the opposite decision.
    monkeypatch.setattr(choice, "_share_found", lambda *_: shares.pop() if shares else 1.0 - found_first)
    fitted = []

    class Spy(ml.BlockPartitionClassifier):
        def _fit(self, *args):
            super()._fit(*args)
            fitted.append((self.n_blocks_, self._n_routes, self.lam_ > 0))

    estimator = Spy(ml.DiSMECClassifier(1.0, threshold="zero"), random_state=0)
    LabelCalibrator(estimator, cv=2, random_state=0).fit(X, Y)
    assert fitted == [(n_blocks, None if n_blocks > 1 else 1, True)] * 3
    fitted.clear()
    shares.append(found_first)
    monkeypatch.setattr(choice, "blocks_by_rule", lambda Y: 1)
    LabelCalibrator(estimator, cv=2, random_state=0).fit(X, Y)
    assert fitted == [(1, 1, False)] * 3


def test_bad_input(data):
    X, Y, X_test, _ = data
    dismec = ml.DiSMECClassifier(1.0, threshold="zero")
    with pytest.raises(ValueError, match=r"`cv` must leave at least one row to fit `estimator`, got 0\.9999"):
        LabelCalibrator(dismec, cv=0.9999).fit(X, Y)
    with pytest.raises(ValueError, match="`cv` must be at most 600, the number of rows, got 601"):
        LabelCalibrator(dismec, cv=601).fit(X, Y)
    with pytest.raises(ValueError, match='if `refit` is False, `cv` must be a fraction, "auto" or "prefit"'):
        LabelCalibrator(dismec, cv=3, refit=False).fit(X, Y)
    with pytest.raises(ValueError, match="`estimator` must be a multi-label classifier"):
        LabelCalibrator(3).fit(X, Y)
    with pytest.raises(ValueError, match="Y must have 25 columns, as in the fit of `estimator`, got 24"):
        LabelCalibrator(clone(dismec).fit(X, Y), cv="prefit").fit(X, Y[:, :24])
    model = LabelCalibrator(dismec, max_memory=1000, random_state=0).fit(X, Y)
    with pytest.raises(MemoryError, match=r"more than `max_memory`=1000; use predict_proba_topk"):
        model.predict_proba(X_test)


def test_decisions_are_swapped_without_a_fit(data, tmp_path):
    X, Y, X_test, _ = data
    model = DecisionClassifier(ml.DiSMECClassifier(random_state=0), ExpectedF1(), cv=0.3, random_state=0)
    model.fit(X, Y)
    P = model.predict_proba_topk(X_test, 25)
    np.testing.assert_array_equal(model.predict(X_test).toarray(), ExpectedF1().predict(P).toarray())
    model.decision_ = TopLabels(3)
    assert (model.predict(X_test).sum(axis=1) == 3).all()
    model.save(tmp_path / "model.safetensors")
    loaded = ml.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.predict(X_test).toarray(), model.predict(X_test).toarray())
    assert loaded.decision_.k == 3


def test_risk_control_gets_rows_that_no_model_has_seen(data, tmp_path):
    X, Y, X_test, Y_test = data
    dismec = ml.DiSMECClassifier(1.0, threshold="zero")
    rule = RiskControl(0.3)
    for wrong in ({}, {"cv": 3, "refit": False}):
        with pytest.raises(
            ValueError,
            match='`refit` must be False and `cv` must be a fraction or "auto", unless `cv` is "prefit", got',
        ):
            DecisionClassifier(dismec, rule, **wrong).fit(X, Y)
    model = DecisionClassifier(dismec, rule, cv=0.5, refit=False, n_candidates=25, random_state=0)
    model.fit(X, Y)
    missed = oracle.false_negative_rate(
        Y_test.toarray().astype(int), model.predict(X_test).toarray().astype(int)
    )
    assert missed < 0.36
    model.save(tmp_path / "model.safetensors")
    loaded = ml.load(tmp_path / "model.safetensors")
    assert loaded.decision_.bound_ == model.decision_.bound_

    # With a prefitted model, half of the rows fit the curves and the other half the rule.
    prefit = DecisionClassifier(clone(dismec).fit(X[:300], Y[:300]), rule, cv="prefit", n_candidates=25)
    seen = []

    class Spy(RiskControl):
        def _learn(self, probabilities, Y, params):
            seen.append(Y.shape[0])
            super()._learn(probabilities, Y, params)

    prefit.set_params(decision=Spy(0.3)).fit(X[300:], Y[300:])
    assert seen == [150]
