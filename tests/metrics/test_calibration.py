"""Measures of calibration against their definitions, for sparse and dense probabilities."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.metrics import brier_score_loss, log_loss

from manylabel.metrics import (
    brier_at_k,
    calibration_error,
    log_loss_at_k,
    plot_reliability,
    reliability_curve,
)
from oracle import calibration as oracle


def draw(seed, n, c):
    rng = np.random.default_rng(seed)
    P = rng.random((n, c)) ** 3
    return (rng.random((n, c)) < P).astype(int), P


@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.integers(1, 5), st.integers(1, 20))
def test_error_by_definition(seed, n, c, n_bins):
    Y, P = draw(seed, n, c)
    expected = oracle.calibration_error(P, Y, n_bins)
    assert calibration_error(Y, P, n_bins=n_bins) == pytest.approx(expected)
    of_labels = [oracle.calibration_error(P[:, [j]], Y[:, [j]], n_bins) for j in range(c) if Y[:, j].any()]
    found = calibration_error(Y, P, n_bins=n_bins, average="label")
    assert found == pytest.approx(np.mean(of_labels)) if of_labels else np.isnan(found)


def test_pairs_that_are_not_stored():
    Y, P = draw(0, 300, 6)
    kept = csr_array(np.where(P > 0.3, P, 0))
    candidates = calibration_error(Y, kept)
    p, y = P[P > 0.3], Y[P > 0.3]
    assert candidates == pytest.approx(oracle.calibration_error(p[None], y[None], 15))
    # With 2 bins, all labels of the first bin are not stored.
    P = np.where(P > 0.9, P, 0)
    error = calibration_error(Y, csr_array(P), n_bins=2, pairs="all")
    order = np.argsort(P.ravel(), kind="stable")
    n_zero = np.count_nonzero(P == 0)
    missed = Y[P == 0].sum()
    first = missed * 900 / n_zero
    assert error == pytest.approx((first + abs(P.sum() - (Y.sum() - first))) / 1800)
    assert len(order) == 1800


def test_dense_zeros_are_candidates():
    Y, P = draw(1, 50, 4)
    P[P < 0.2] = 0
    every = calibration_error(Y, P)
    assert every == pytest.approx(oracle.calibration_error(P, Y, 15))
    assert every != calibration_error(Y, csr_array(P))


def test_calibrated_probabilities_have_a_small_error_and_others_do_not():
    Y, P = draw(2, 20_000, 5)
    assert calibration_error(Y, P) < 0.005
    assert calibration_error(Y, P, average="label", least_positives=50) < 0.015
    assert calibration_error(Y, np.sqrt(P)) > 0.1
    assert calibration_error(Y, P, above=0.5) < 0.02
    curve = reliability_curve(Y, P)
    assert np.abs(curve.probability - curve.frequency).max() < 0.03
    assert curve.n_pairs.sum() == P.size


def test_losses_at_k_equal_scikit_learn():
    Y, P = draw(3, 40, 6)
    for matrix in (P, csr_array(P)):
        assert log_loss_at_k(Y, matrix, 6) == pytest.approx(log_loss(Y.ravel(), P.ravel()))
        assert brier_at_k(Y, matrix, 6) == pytest.approx(brier_score_loss(Y.ravel(), P.ravel()))
        best = P.argmax(axis=1)[:, None]
        p, y = np.take_along_axis(P, best, 1), np.take_along_axis(Y, best, 1)
        np.testing.assert_allclose(
            brier_at_k(Y, matrix, (1, 99)), [((p - y) ** 2).mean(), ((P - Y) ** 2).mean()]
        )
    assert np.isnan(brier_at_k(Y, csr_array(P.shape), 1))
    assert np.isfinite(log_loss_at_k(Y, np.ones_like(P), 6))


def test_plot():
    pytest.importorskip("matplotlib").use("agg")
    Y, P = draw(4, 100, 3)
    axes = plot_reliability(Y, P)
    assert axes.get_xlabel() == "mean probability"
    assert plot_reliability(Y, P, ax=axes) is axes


def test_bad_input():
    Y, P = draw(5, 10, 3)
    with pytest.raises(ValueError, match="values of `probabilities` must be from 0 to 1, got"):
        calibration_error(Y, P + 1)
    with pytest.raises(ValueError, match="`probabilities` must have the shape of `Y_true`"):
        calibration_error(Y, P[:, :2])
    with pytest.raises(ValueError, match='`average` must be "all" or "label"'):
        calibration_error(Y, P, average="micro")
    with pytest.raises(ValueError, match="`n_bins` must be an integer >= 1"):
        reliability_curve(Y, P, n_bins=0)
    with pytest.raises(ValueError, match="`probabilities` must not contain NaN"):
        brier_at_k(Y, np.full((10, 3), np.nan))
