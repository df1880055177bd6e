"""`Rembrandt` against its definition and the authors' unit test, and its solvers against each other."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_np
from scipy.sparse import csr_array
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from manylabel import Rembrandt, load
from manylabel.datasets import load_xc, make_multilabel
from oracle import pls as oracle

SOLVERS = ["cholesky", "cg", "dual"]


def exact(k=100, **params):
    """An estimator that computes the definition to many digits."""
    given = {
        "l2_final": 1e-6,
        "n_iter": 40,
        "fit_intercept": False,
        "max_iter": 2000,
        "tol": 1e-12,
        "random_state": 0,
    }
    return Rembrandt(k, **given | params)


@pytest.fixture(scope="module")
def noisy():
    """The problem of the authors' unit test with fewer rows and features.

    Latent variables, their noisy image, and labels by thresholds.
    """
    rng = np.random.default_rng(0)
    n, d, c, latent = 500, 1107, 47, 105
    Z = rng.normal(size=(n, latent))
    X = Z @ rng.normal(size=(latent, d)) / np.sqrt(latent) + 0.1 * rng.normal(size=(n, d))
    Y = (Z[:, :c] @ (rng.normal(size=(c, c)) * 0.8 ** np.arange(c)[:, None]) > 1).astype(int)
    return X, Y, oracle.embedding(X, Y, 11, l2=1e-4)


@pytest.fixture(scope="module")
def small():
    rng = np.random.default_rng(1)
    X = np.where(rng.random((60, 25)) < 0.3, rng.normal(size=(60, 25)), 0)
    Y = (X[:, :12] + X[:, 5:17] + 0.5 * rng.normal(size=(60, 12)) > 0.4).astype(int)
    return X, Y


def error_of(model, X, Y):
    return np.linalg.norm(Y - model.transform(X) @ model.label_embedding_.T) ** 2


def assert_equal_models(model, other, rtol=1e-6):
    for name in ("label_embedding_", "coef_", "intercept_", "eigenvalues_"):
        one, two = getattr(model, name), getattr(other, name)
        np.testing.assert_allclose(one, two, rtol=rtol, atol=rtol * max(abs(two).max(), 1e-9), err_msg=name)


# --- the definition


@pytest.mark.parametrize(("n_iter", "angle"), [(1, 0.5), (5, 0.01)])
def test_angles_of_the_authors_unit_test(noisy, n_iter, angle):
    X, Y, expected = noisy
    # The solvers agree, and this one is the fastest for so few rows.
    model = Rembrandt(11, n_iter=n_iter, l2=1e-4, solver="dual", fit_intercept=False, random_state=0).fit(
        X, Y
    )
    assert oracle.sine_of_largest_angle(model.label_embedding_, expected.U) < angle
    assert abs(model.label_embedding_.T @ model.label_embedding_ - np.eye(11)).max() < 1e-10
    if n_iter == 5:
        np.testing.assert_allclose(model.eigenvalues_, expected.eigenvalues[:11], rtol=1e-4)
    np.testing.assert_array_equal(model.singular_values_, np.sqrt(model.eigenvalues_))
    # The estimates are eigenvalues of a compression of B, so none exceeds the exact one.
    assert (np.diff(model.eigenvalues_) < 0).all()
    assert (model.eigenvalues_ <= expected.eigenvalues[:11] * (1 + 1e-9)).all()


def test_power_is_one_more_iteration_than_ritz(noisy):
    X, Y, expected = noisy
    fit = {"n_oversamples": 5, "l2": 1e-4, "solver": "dual", "fit_intercept": False, "random_state": 0}
    angles = {}
    for variant in ("power", "ritz"):
        U = Rembrandt(11, variant=variant, **fit).fit(X, Y).label_embedding_
        assert abs(U.T @ U - np.eye(11)).max() < 1e-10
        angles[variant] = oracle.sine_of_largest_angle(U, expected.U)
    assert angles["power"] < angles["ritz"]


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("k", [1, 5, 12])
def test_residual_is_that_of_the_best_matrix_of_that_rank(small, solver, k):
    X, Y = small
    fitted = X @ np.linalg.lstsq(X, Y, rcond=None)[0]
    singular = np.linalg.svd(fitted, compute_uv=False)
    best = np.linalg.norm(Y - fitted) ** 2 + sum(singular[k:] ** 2)
    model = exact(k, l2=0.0, solver=solver).fit(X, Y)
    assert error_of(model, X, Y) == pytest.approx(best, rel=1e-6)
    np.testing.assert_allclose(model.singular_values_, singular[:k], rtol=1e-6)
    if k == 12:
        np.testing.assert_allclose(model.transform(X) @ model.label_embedding_.T, fitted, atol=1e-6)


@st.composite
def problems(draw):
    """Wide and tall problems with empty rows, empty columns and labels without rows."""
    n, d, c = draw(st.integers(1, 14)), draw(st.integers(1, 20)), draw(st.integers(1, 20))
    values = draw(st.sampled_from([st.integers(-2, 2), st.sampled_from([0, 0, 0, 1, 2])]))
    X = draw(st_np.arrays(np.float64, (n, d), elements=values))
    Y = draw(st_np.arrays(np.int8, (n, c), elements=st.integers(0, 1)))
    weights = draw(st.none() | st_np.arrays(np.float64, n, elements=st.sampled_from([0.5, 1.0, 3.0])))
    return X, Y, weights


@settings(max_examples=100)
@given(
    problems(),
    st.integers(1, 20),
    st.sampled_from(SOLVERS),
    st.sampled_from([1.0, 1e-3]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_definition(problem, k, solver, l2, center, fit_intercept, sparse):
    X, Y, weights = problem
    # After centring, constant features are only rounding errors, and so is a regression on them.
    assume(not center or np.ptp(X, axis=0).any())
    how = {"l2": l2, "l2_final": 1.0, "center": center, "fit_intercept": fit_intercept}
    model = exact(k, solver=solver, **how).fit(csr_array(X) if sparse else X, Y, weights)
    expected = oracle.embedding(X, Y, k, weights=weights, **how)
    asked, k = k, model.n_components_
    U, top = model.label_embedding_, expected.eigenvalues[0]
    scale = max(top, 1.0)
    np.testing.assert_allclose(model.eigenvalues_, expected.eigenvalues[:k], atol=1e-6 * scale)
    assert k == asked or expected.eigenvalues[k:].sum() < 1e-6 * scale
    # Directions of equal eigenvalues are not unique, but their trace is.
    np.testing.assert_allclose(
        np.trace(U.T @ expected.B @ U), expected.eigenvalues[:k].sum(), atol=1e-6 * scale
    )
    assert (U[~Y.any(axis=0)] == 0).all() or center
    A, Yc, omega, *_ = oracle.parts(X, Y, weights, center, fit_intercept)
    W = model.coef_
    if fit_intercept and not center:
        W = np.vstack([W, model.intercept_])
    expected_W = oracle.regress(A, omega, Yc @ U, oracle.ridge(A, omega, l2))
    np.testing.assert_allclose(W, expected_W, atol=1e-6 * max(abs(expected_W).max(), 1.0))
    # With centring, projections and embedded labels have equal means.
    if center:
        residual = model.transform(X) - model.embed_labels(Y)
        np.testing.assert_allclose(np.average(residual, axis=0, weights=weights), 0, atol=1e-6)
    np.testing.assert_allclose(model.transform(X), X @ model.coef_ + model.intercept_, atol=1e-9)
    np.testing.assert_allclose(model.embed_labels(Y), Y @ U, atol=1e-9)


# --- solvers, weights and precision


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_solvers_agree(small, center, sparse):
    X, Y = small
    X = csr_array(X) if sparse else X
    models = [exact(4, l2=0.1, solver=solver, center=center).fit(X, Y) for solver in SOLVERS]
    for model in models[1:]:
        assert_equal_models(model, models[0])


def test_solvers_agree_on_more_features_than_are_factored_in_one_block(noisy):
    X, Y = noisy[0][:, :1100], noisy[1]
    fit = {"l2": 1e-2, "l2_final": 1.0, "n_iter": 3, "random_state": 0}
    auto, cholesky, dual = (
        Rembrandt(5, solver=solver, **fit).fit(X, Y) for solver in ("auto", "cholesky", "dual")
    )
    assert_equal_models(cholesky, dual, rtol=1e-8)
    assert_equal_models(auto, dual, rtol=1e-8)


def test_weights_are_repeated_rows(small):
    X, Y = small
    weights = np.arange(len(X)) % 4
    repeated = np.repeat(np.arange(len(X)), weights)
    for solver in SOLVERS:
        model = exact(4, solver=solver, fit_intercept=True).fit(X, Y, weights)
        assert_equal_models(model, exact(4, solver=solver, fit_intercept=True).fit(X[repeated], Y[repeated]))


def test_scale_of_weights_and_features(small):
    X, Y = small
    model = exact(4).fit(X, Y)
    weighted = exact(4).fit(X, Y, np.full(len(X), 1e-6))
    np.testing.assert_allclose(weighted.eigenvalues_, model.eigenvalues_ * 1e-6, rtol=1e-5)
    np.testing.assert_allclose(weighted.coef_, model.coef_, rtol=1e-6, atol=1e-9)
    for factor in (1e-30, 1e30):
        scaled = exact(4).fit(X * factor, Y)
        np.testing.assert_allclose(scaled.transform(X * factor), model.transform(X), rtol=1e-6, atol=1e-9)


def test_more_rows_than_a_block_holds():
    X, Y = make_multilabel(5000, 50, 30, n_nonzero=5, random_state=0)
    X = X.astype(np.float64)
    expected = oracle.embedding(X.toarray(), Y.toarray(), 5, l2=0.1, fit_intercept=True)
    for features in (X, X.toarray()):
        for solver in ("cholesky", "cg"):
            model = exact(5, l2=0.1, solver=solver, fit_intercept=True, n_iter=15).fit(features, Y)
            np.testing.assert_allclose(model.eigenvalues_, expected.eigenvalues[:5], rtol=1e-6)
            np.testing.assert_allclose(model.label_embedding_, expected.U, atol=1e-5)
            np.testing.assert_allclose(model.coef_, expected.W, atol=1e-4)
            np.testing.assert_allclose(model.intercept_, expected.intercept, atol=1e-4)


@pytest.mark.parametrize("sparse", [False, True])
def test_single_precision(sparse):
    X, Y = make_multilabel(1000, 150, 30, random_state=0)
    X = X if sparse else X.toarray()
    for solver in SOLVERS:
        fit = {
            "solver": solver,
            "n_iter": 4,
            "max_iter": 100,
            "tol": 1e-4,
            "l2_final": 1e-2,
            "random_state": 0,
        }
        double, single = (Rembrandt(8, **fit).fit(X.astype(dtype), Y) for dtype in (np.float64, np.float32))
        assert {single.coef_.dtype, single.transform(X.astype(np.float32)).dtype} == {np.dtype(np.float32)}
        np.testing.assert_allclose(single.eigenvalues_, double.eigenvalues_, rtol=1e-3)
        assert abs(single.label_embedding_.T @ single.label_embedding_ - np.eye(8)).max() < 1e-5
        np.testing.assert_allclose(single.transform(X), double.transform(X), atol=2e-2)


def test_defaults_choose_the_solver_by_size(small):
    X, Y = small
    assert exact(4, solver="auto").fit(X, Y).n_iter_ == 1
    wide = np.hstack([X, np.zeros((len(X), 4000))])
    assert exact(4, solver="auto").fit(wide, Y).n_iter_ == 1
    rng = np.random.default_rng(0)
    sparse = csr_array(np.where(rng.random((60, 4100)) < 0.5, 1.0, 0.0))
    assert exact(4, solver="auto", max_iter=3, tol=None).fit(sparse, Y).n_iter_ == 3


# --- early stopping of conjugate gradients


def test_stopping_early_is_silent_unless_a_tolerance_was_asked_for(small):
    X, Y = small
    model = Rembrandt(4, solver="cg", max_iter=2, random_state=0).fit(X, Y)
    assert model.n_iter_ == 2
    with pytest.warns(
        ConvergenceWarning, match=r"did not reach tol=1e-08 in max_iter=2 steps for \d+ solutions"
    ):
        Rembrandt(4, solver="cg", max_iter=2, tol=1e-8, random_state=0).fit(X, Y)
    assert 2 < Rembrandt(4, solver="cg", max_iter=500, tol=1e-8, random_state=0).fit(X, Y).n_iter_ < 500


@pytest.mark.parametrize("max_iter", [1, 3, 7])
def test_early_iterates_are_those_of_conjugate_gradients(small, max_iter):
    """W given U is that of textbook conjugate gradients after the same number of steps."""
    X, Y = small
    fit = {"solver": "cg", "max_iter": max_iter, "tol": 1e-300, "fit_intercept": False, "random_state": 0}
    with pytest.warns(ConvergenceWarning, match="did not reach"):
        model = Rembrandt(3, l2=0.5, l2_final=0.1, **fit).fit(X, Y)
    A = X.T @ X + 0.1 * oracle.ridge(X, np.ones(len(X)), 0.5) * np.eye(X.shape[1])
    for col in range(3):
        b = X.T @ (Y @ model.label_embedding_[:, col])
        z, r = np.zeros_like(b), b.copy()
        y = r / np.diag(A)
        p = y.copy()
        iterates = [(np.linalg.norm(r), z)]
        for _ in range(max_iter):
            alpha = (r @ y) / (p @ A @ p)
            z, before, r = z + alpha * p, r @ y, r - alpha * (A @ p)
            y = r / np.diag(A)
            p = y + (r @ y) / before * p
            iterates.append((np.linalg.norm(r), z))
        best = min(iterates, key=lambda iterate: iterate[0])[1]
        np.testing.assert_allclose(model.coef_[:, col], best, atol=1e-8)


# --- sizes and kinds of input


def test_fewer_directions_than_components(small):
    X, Y = small
    assert exact(100).fit(X, Y).label_embedding_.shape == (12, 12)
    assert exact(100).fit(X[:, :3], Y).n_components_ == 3
    assert exact(100).fit(X[:2], Y[:2]).n_components_ == 2
    model = exact(100).fit(np.zeros_like(X), Y)
    assert model.eigenvalues_.tolist() == [0]
    assert not model.transform(X).any()
    assert not exact(5).fit(X, np.zeros_like(Y)).embed_labels(Y).any()


def test_labels_and_rows_without_anything(small):
    X, Y = small
    Y = np.hstack([np.zeros((60, 1), int), Y, np.zeros((60, 2), int)])
    X = X.copy()
    X[::7] = 0
    model = exact(5).fit(csr_array(X), csr_array(Y))
    assert not model.label_embedding_[[0, 13, 14]].any()
    expected = oracle.embedding(X, Y, 5)
    np.testing.assert_allclose(model.label_embedding_, expected.U, atol=1e-5)
    assert not model.transform(np.zeros((1, 25))).any()


def test_classes_in_one_column_are_one_hot(tmp_path):
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(6, 4)) @ rng.normal(size=(4, 30))
    y = rng.integers(6, size=600)
    X = centres[y] + 0.3 * rng.normal(size=(600, 30))
    names = np.array(["ash", "elm", "fir", "oak", "yew", "birch"])
    order = np.argsort(names)
    model = Rembrandt(4, random_state=0).fit(X, names[y])
    assert model.classes_.tolist() == sorted(names)
    same = Rembrandt(4, random_state=0).fit(X, np.eye(6, dtype=int)[y][:, order])
    np.testing.assert_array_equal(model.coef_, same.coef_)
    np.testing.assert_array_equal(
        model.embed_labels(names[y[:9]]), same.embed_labels(np.eye(6, dtype=int)[y[:9]][:, order])
    )
    # Y'Y is diagonal: an embedding of Y alone would have to drop two classes.
    assert LogisticRegression().fit(model.transform(X), y).score(model.transform(X), y) > 0.98
    with pytest.raises(ValueError, match=r"y must have only classes seen in fit, got .*'box'"):
        model.embed_labels(["box"])
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(
        load(tmp_path / "model").embed_labels(names[y]), model.embed_labels(names[y])
    )
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        model.fit(X, X[:, 0])


def test_features_of_very_different_scale_without_ridge(small):
    """The squares of one feature overflow single precision."""
    X, Y = small
    wide = np.column_stack([X, 1e25 * X[:, :1]])
    model = exact(4, l2=0.0, solver="cg")
    expected = model.fit(X, Y).eigenvalues_
    np.testing.assert_allclose(model.fit(wide, Y).eigenvalues_, expected, rtol=1e-6)
    with pytest.raises(ValueError, match=r"`l2` must be > 0, because the scales .* float32 .*, got 0"):
        model.fit(wide.astype(np.float32), Y)


# --- a share of the label covariance


@given(problems(), st.sampled_from([0.3, 0.5, 0.9, 0.99]))
def test_share(problem, share):
    X, Y, weights = problem
    if not Y.any():
        Y[0, 0] = 1
    expected = oracle.components_of_share(Y.astype(float), share, weights)
    # Sums of equal eigenvalues may be on either side of the share by rounding.
    about = {oracle.components_of_share(Y.astype(float), share + e, weights) for e in (-1e-9, 1e-9)}
    model = Rembrandt(share, l2=1e-9, embedding="gaussian").fit(X, Y, weights)
    assert model.n_components_ in about | {expected}


def test_share_of_many_labels():
    """More labels than are decomposed at once. They come in groups of ten, so counts give the eigenvalues."""
    counts = np.maximum(1, (100 * 0.99 ** np.arange(502)).astype(int))
    group = np.repeat(np.arange(502), counts)
    Y = csr_array(np.eye(502, dtype=int))[group][:, np.arange(5020) // 10]
    expected = 1 + int(np.argmax(np.cumsum(counts) > 0.6 * counts.sum()))
    fit = {"embedding": "gaussian", "solver": "cg", "random_state": 0}
    k = Rembrandt(0.6, **fit).fit(np.ones((len(group), 1)), Y).n_components_
    assert expected <= k <= 1.05 * expected
    everywhere = csr_array((np.ones(6000), np.arange(6000), np.arange(6001)), shape=(6000, 6000))
    with pytest.raises(
        ValueError, match=r"that 1024 components can explain, got 0.9; 1024 components explain at most 0.1"
    ):
        Rembrandt(0.9, **fit).fit(np.ones((6000, 1)), everywhere)


# --- embeddings for comparison


def test_gaussian(small):
    X, Y = small
    model = Rembrandt(8, embedding="gaussian", l2=0.1, l2_final=0.1, fit_intercept=False, random_state=0)
    U = model.fit(X, Y).label_embedding_
    expected = oracle.regress(X, np.ones(60), Y @ U, 0.1 * oracle.ridge(X, np.ones(60), 0.1))
    np.testing.assert_allclose(model.coef_, expected, atol=1e-9)
    assert not hasattr(model, "eigenvalues_")
    wide = Rembrandt(40, embedding="gaussian", random_state=1).fit(X, np.eye(60, dtype=int))
    np.testing.assert_allclose((wide.label_embedding_**2).sum(axis=1).mean(), 1, atol=0.15)


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_pca(small, center, sparse):
    X, Y = small
    weights = np.linspace(1, 2, 60)
    model = exact(4, embedding="pca", center=center).fit(csr_array(X) if sparse else X, Y, weights)
    mean = np.average(X, axis=0, weights=weights) if center else 0
    singular, vectors = np.linalg.svd(np.sqrt(weights)[:, None] * (X - mean))[1:]
    np.testing.assert_allclose(model.singular_values_, singular[:4], rtol=1e-6)
    np.testing.assert_allclose(abs(np.sum(model.coef_ * vectors[:4].T, axis=0)), 1, atol=1e-6)
    np.testing.assert_allclose(model.transform(X), (X - mean) @ model.coef_, atol=1e-9)
    assert not hasattr(model, "embed_labels")
    model.set_params(embedding="rembrandt").fit(X, Y)
    assert model.embed_labels(Y).shape == (60, 4)
    assert not hasattr(model.set_params(embedding="pca").fit(X, Y), "label_embedding_")


# --- real data


def test_embedding_of_eurlex_holds_what_long_iterations_do(data):
    """One pass with ten steps of conjugate gradients has most of the energy of a long fit."""
    X, Y = (part[::16] for part in load_xc(data / "eurlex57k" / "train.txt.gz"))
    fit = {"l2_final": 1.0, "random_state": 0, "n_jobs": 2}
    quick = Rembrandt(10, **fit).fit(X, Y)
    slow = Rembrandt(10, n_iter=3, max_iter=60, **fit).fit(X.astype(np.float64), Y)
    assert 0.93 < quick.eigenvalues_.sum() / slow.eigenvalues_.sum() < 1
    more = Rembrandt(10, n_iter=2, **fit).fit(X, Y)
    assert 0.97 < more.eigenvalues_.sum() / slow.eigenvalues_.sum() < 1


# --- few passes of the range finder, chosen ridges, and leave-one-out predictions


@pytest.mark.parametrize("n_iter", [0, 1])
@pytest.mark.parametrize("variant", ["power", "ritz"])
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_few_passes_keep_to_the_definition(small, n_iter, variant, solver, center, sparse):
    """If the probe is as wide as the number of labels, one product is exact for any probe."""
    X, Y = small
    expected = oracle.embedding(X, Y, 5, l2=0.5, center=center)
    X = csr_array(X) if sparse else X
    fit = {"l2": 0.5, "variant": variant, "solver": solver, "center": center, "n_iter": n_iter}
    model = exact(5, n_oversamples=7, **fit).fit(X, Y)
    np.testing.assert_allclose(model.eigenvalues_, expected.eigenvalues[:5], rtol=1e-5)
    U = model.label_embedding_
    np.testing.assert_allclose(U.T @ U, np.eye(5), atol=1e-5)
    np.testing.assert_allclose(abs(np.sum(U * expected.U, axis=0)), 1, atol=1e-5)
    # A narrow probe gives singular values of BQ for an orthonormal Q, none above those of B.
    model = exact(3, n_oversamples=2, **fit).fit(X, Y)
    U = model.label_embedding_
    np.testing.assert_allclose(U.T @ U, np.eye(3), atol=1e-5)
    assert (model.eigenvalues_ <= expected.eigenvalues[:3] * (1 + 1e-5)).all()
    if variant == "ritz":
        np.testing.assert_allclose(np.linalg.norm(expected.B @ U, axis=0), model.eigenvalues_, rtol=1e-5)


@pytest.mark.parametrize("sparse", [False, True])
def test_few_passes_of_pca(small, sparse):
    X, Y = small
    values = np.linalg.svd(X, compute_uv=False)[:4]
    model = exact(4, n_oversamples=21, n_iter=0, embedding="pca").fit(csr_array(X) if sparse else X, Y)
    np.testing.assert_allclose(model.singular_values_, values, rtol=1e-5)
    np.testing.assert_allclose(model.coef_.T @ model.coef_, np.eye(4), atol=1e-5)


@pytest.mark.parametrize("solver", ["cholesky", "dual"])
@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_rows_left_out(small, solver, center, sparse, fit_intercept):
    X, Y = small
    weights = np.random.default_rng(0).integers(1, 4, len(X)).astype(float)
    model = exact(3, l2=0.3, l2_final=0.5, solver=solver, center=center, fit_intercept=fit_intercept)
    found = model._fit(csr_array(X) if sparse else X, Y, weights, None, leave_one_out=True)
    expected = oracle.leave_one_out(
        X, Y, model.label_embedding_, 0.15, weights, center, fit_intercept, keep_means=True
    )
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_rows_left_out_are_estimated_by_conjugate_gradients(small):
    X, Y = small
    model = exact(3, l2=0.5, l2_final=1.0, solver="cg", center=True)
    found = model._fit(csr_array(X), Y, None, None, leave_one_out=True)
    expected = oracle.leave_one_out(X, Y, model.label_embedding_, 0.5, center=True, keep_means=True)
    in_sample = model.transform(X)
    # Leverages have standard deviations of at most 0.06.
    assert np.linalg.norm(found - expected) < 0.25 * np.linalg.norm(in_sample - expected)


@pytest.mark.parametrize("solver", ["cholesky", "dual"])
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_ridges_of_least_error_left_out(small, solver, scale):
    """A column of large scale dominates the mean diagonal, so the best ridge is far below 1."""
    X, Y = small
    X = X * np.r_[scale, np.ones(24)]
    auto = {"l2_final": "auto", "solver": solver, "center": True}
    model = exact(3, l2=1.0, **auto).fit(X, Y)
    assert model.l2_ == 1.0
    assert (model.l2_final_ < 1e-4) == (scale > 1)
    U = model.label_embedding_

    def error(l2):
        return np.linalg.norm(Y @ U - oracle.leave_one_out(X, Y, U, l2, center=True))

    chosen = error(model.l2_final_)
    assert chosen < error(model.l2_final_ * np.sqrt(10))
    assert chosen < error(model.l2_final_ / np.sqrt(10))
    both = exact(12, l2="auto", **auto).fit(X, Y)
    assert 0.1 < both.l2_ * both.l2_final_ / model.l2_final_ < 10
    assert exact(3, l2=0.0, **auto).fit(X, Y).l2_final_ == 0
    given = exact(3, l2=1.0, l2_final=model.l2_final_, solver=solver, center=True).fit(X, Y)
    np.testing.assert_allclose(given.coef_, model.coef_, rtol=1e-6, atol=1e-12)
