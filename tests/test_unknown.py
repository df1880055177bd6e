"""Unknown entries of Y, marked by NaN: every estimator against its objective in plain numpy."""

import re

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.tree import DecisionTreeClassifier

import manylabel as ml
from estimators import CLASSIFIERS, TRANSFORMERS, WITH_GIVEN_VALUES
from manylabel import decision
from manylabel.embedding import rembrandt
from manylabel.estimator.held_out import held_out_folds
from oracle import leml as oracle_leml
from oracle import linear as oracle_linear
from oracle import unknown as oracle


def names(estimator):
    return re.sub(r"\s+", " ", repr(estimator))


def examples(n_rows, n_features, n_labels, *, unknown=0.15, share=0.35, seed=0):
    """Dense X and Y, where Y depends on X and has unknown entries. Every label has known ones and zeros."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, n_features))
    scores = X @ rng.normal(size=(n_features, n_labels)) + rng.normal(size=(n_rows, n_labels))
    Y = (scores > np.quantile(scores, 1 - share, axis=0)).astype(float)
    Y[rng.random(Y.shape) < unknown] = np.nan
    assert ((Y == 0).any(axis=0) & (Y == 1).any(axis=0)).all()
    return X, Y


def exact(C, **parameters):
    return ml.DiSMECClassifier(
        C, solver="exact", normalize=False, prune=0.0, threshold="zero", tol=1e-6, **parameters
    )


@pytest.mark.parametrize("estimator", CLASSIFIERS, ids=names)
def test_unknown_entries_change_the_fit_in_both_formats(estimator):
    X, Y = examples(120, 8, 6)
    X = np.abs(X)
    Y[:, 4] = np.nan
    if isinstance(estimator, ml.LEMLClassifier):
        # Products with dense and sparse rows are rounded differently. With larger tolerances, the fits could
        # take different numbers of steps.
        estimator = clone(estimator).set_params(cg_tol=1e-6, cg_max_iter=300)
    # DiSMEC has different solvers for the squared hinge loss, which stop within a tolerance.
    two_solvers = "DiSMECClassifier" in repr(estimator) and "logistic" not in repr(estimator)
    if two_solvers and isinstance(estimator, (ml.BlockPartitionClassifier, ml.CBMLCClassifier)):
        # The solvers learn thresholds in different ways, and blocks have only a few rows for that.
        estimator = clone(estimator).set_params(estimator__tol=1e-4, estimator__threshold="zero")
    dense = clone(estimator).fit(X, Y).decision_function(X)
    sparse = clone(estimator).fit(csr_array(X), csr_array(Y)).decision_function(csr_array(X))
    np.testing.assert_allclose(dense, sparse, rtol=1e-4, atol=0.02 if two_solvers else 1e-4)
    assert np.isneginf(dense[:, 4]).all(), "a label that is unknown everywhere has no rows"
    zeros = clone(estimator).fit(X, np.nan_to_num(Y)).decision_function(X)
    others = np.delete(np.arange(6), 4)
    assert not np.allclose(dense[:, others], zeros[:, others], rtol=1e-3, atol=1e-3)


def test_the_softmax_refuses_them():
    X, Y = examples(60, 4, 3)
    with pytest.raises(ValueError, match="must not have unknown entries"):
        ml.SmoothLinkClassifier(loss="softmax").fit(X, Y)


def test_estimators_of_other_libraries_refuse_them():
    X, Y = examples(60, 4, 3)
    with pytest.raises(ValueError, match="if `estimator` is from another library"):
        ml.BlockPartitionClassifier(DecisionTreeClassifier(), n_blocks=1, lam=0.0).fit(X, Y)


@pytest.mark.parametrize("form", [np.asarray, csr_array])
@pytest.mark.parametrize("intercept", [False, True])
def test_dismec_minimizes_the_loss_of_known_entries(intercept, form):
    X, Y = examples(60, 5, 4)
    weight = np.array([0.5, 1, 2, 3])
    p = np.array([0.9, 0.5, 0.2, 1.0])
    model = exact(0.7, fit_intercept=intercept).fit(form(X), Y, label_weight=weight, propensities=p)
    A = oracle_linear.design(X, normalize=False, fit_intercept=intercept)
    for label in range(4):
        expected = oracle.hinge_minimum(
            A, Y[:, label], 0.7, weight[label] * (2 / p[label] - 1), weight[label]
        )
        found = csr_array(model.coef_).toarray()[label]
        if intercept:
            found = np.r_[found, model.intercept_[label]]
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def rare(n_rows, n_labels, unknown, seed=0):
    """Sparse rows with labels that fewer than one in 100 rows have."""
    rng = np.random.default_rng(seed)
    X = csr_array((rng.random((n_rows, 40)) < 0.1) * rng.random((n_rows, 40)))
    Y = np.zeros((n_rows, n_labels))
    for label in range(n_labels):
        Y[rng.choice(np.flatnonzero(X[:, [label]].toarray()[:, 0]), 8, replace=False), label] = 1
    hidden = rng.random(Y.shape) < unknown
    hidden[Y == 1] &= rng.random(8 * n_labels) < 0.3
    Y[hidden] = np.nan
    return X, Y


@pytest.mark.parametrize("unknown", [0.01, 0.3, 0.9])
def test_the_background_of_the_fast_solver_is_that_of_the_known_rows(unknown):
    X, Y = rare(2000, 6, unknown)
    fast = ml.DiSMECClassifier(1.0, prune=0.0, threshold="zero", tol=1e-7, random_state=0)
    fast.set_params(max_iter=10_000)
    coef = fast.fit(X, Y).coef_.toarray()
    for label in range(6):
        known = ~np.isnan(Y[:, label])
        # The random order depends on the number of the label, so the number is kept.
        alone = np.zeros((known.sum(), 6))
        alone[:, label] = Y[known, label]
        expected = clone(fast).fit(X[known], alone).coef_.toarray()[label]
        np.testing.assert_allclose(coef[label], expected, rtol=1e-5, atol=1e-5)


def test_labels_do_not_depend_on_unknown_entries_of_others():
    X, Y = rare(2000, 20, 0.0)
    fast = ml.DiSMECClassifier(1.0, threshold="zero", random_state=0)
    partly = Y.copy()
    partly[::3, 5] = partly[::3, 5] * np.nan
    for solver in ("fast", "exact"):
        before, after = (fast.set_params(solver=solver).fit(X, one).coef_.toarray() for one in (Y, partly))
        others = np.delete(np.arange(20), 5)
        np.testing.assert_array_equal(before[others], after[others])
        assert (before[5] != after[5]).any()


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
def test_tree_leaves_out_unknown_pairs_of_labels_and_of_children(loss):
    X, Y = examples(150, 6, 6, unknown=0.05)
    tree = ml.LabelTreeClassifier(
        0.5,
        branching=2,
        max_leaf=3,
        beam=10,
        negatives="siblings",
        loss=loss,
        path_weight=1.0,
        normalize=False,
        prune=0.0,
        solver="exact",
        tol=1e-6,
        threshold="zero",
        random_state=0,
    ).fit(X, Y)
    ends = tree.node_label_ends_
    leaves = [tree.leaf_labels_[ends[leaf] : ends[leaf + 1]] for leaf in (1, 2)]
    A = oracle_linear.design(X, normalize=False)

    def minimum(A, y):
        if loss == "squared_hinge":
            return oracle.hinge_minimum(A, y, 0.5)
        known = ~np.isnan(y)
        return oracle_linear.minimum(A[known], 2 * y[known] - 1, 0.5, np.ones(known.sum()), logistic=True)

    def log_probability(v):
        return -np.logaddexp(0, -A @ v) if loss == "logistic" else -(np.maximum(0, 1 - A @ v) ** 3)

    expected = np.empty(Y.shape)
    some = [np.where((Y[:, leaf] == 1).any(axis=1), 1, 0.0) for leaf in leaves]
    for leaf, of_child in zip(leaves, some, strict=True):
        of_child[(of_child == 0) & np.isnan(Y[:, leaf]).any(axis=1)] = np.nan
    at_root = np.nansum(some, axis=0) > 0
    for leaf, of_child in zip(leaves, some, strict=True):
        path = log_probability(minimum(A[at_root], of_child[at_root]))
        here = of_child == 1
        for label in leaf:
            own = log_probability(minimum(A[here], Y[here, label]))
            expected[:, label] = path + own
    found = tree.decision_function(X) + tree.threshold_
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_blocks_minimize_the_loss_of_known_entries_of_their_rows():
    """Two blocks, one of which has fewer labels, and one cluster with all labels."""
    X, Y = examples(80, 5, 4)
    X[:40, 0] += 4
    X[40:, 0] -= 4
    Y[:40, 3], Y[0, 3] = 0, np.nan
    base = exact(0.7)
    blocks = ml.BlockPartitionClassifier(base, n_blocks=2, lam=0.5, random_state=0).fit(X, Y)
    assert len(blocks.estimators_) == 2
    for part in (blocks, ml.CBMLCClassifier(base, 1).fit(X, Y), ml.LPSRClassifier(base, 2, 4).fit(X, Y)):
        if isinstance(part, ml.LPSRClassifier):
            models = [(part.estimators_[0], np.arange(80), part.labels_)]
        else:
            rows = [np.flatnonzero(part.row_blocks_ == block) for block in range(len(part.estimators_))]
            models = list(zip(part.estimators_, rows, part.label_blocks_, strict=True))
        assert models
        for model, of_block, labels in models:
            A = oracle_linear.design(X[of_block], normalize=False)
            for at, label in enumerate(labels):
                y = Y[of_block, label]
                if not (y == 1).any():
                    continue
                expected = oracle.hinge_minimum(A, y, 0.7)
                found = np.r_[csr_array(model.coef_).toarray()[at], model.intercept_[at]]
                np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_pdsparse_leaves_unknown_labels_out_of_the_margin():
    X, Y = examples(14, 3, 4, unknown=0.2)
    model = ml.PDSparseClassifier(
        0.8, l1=0.0, normalize=False, fit_intercept=False, threshold="zero", tol=1e-7, max_iter=2000
    ).fit(X, Y)
    scores = X @ model.coef_.toarray().T
    worst = np.where(Y == 0, scores, -np.inf).max(axis=1) - np.where(Y == 1, scores, np.inf).min(axis=1)
    value = (model.coef_.data**2).sum() / 2 + 0.8 * np.maximum(0, 1 + worst).sum()
    assert value == pytest.approx(oracle.margin_optimum(X, Y, 0.8), rel=1e-5)


@pytest.mark.parametrize("loss", ["squared", "logistic", "squared-hinge"])
@pytest.mark.parametrize("weighted", [False, True])
def test_leml_minimizes_the_loss_of_known_entries(loss, weighted):
    X, Y = examples(50, 6, 5)
    m = np.random.default_rng(1).uniform(0.5, 2, 50) if weighted else np.ones(50)
    model = ml.LEMLClassifier(
        3,
        alpha=0.5,
        loss=loss,
        normalize=False,
        fit_intercept=False,
        threshold=0.0,
        max_iter=300,
        tol=1e-9,
        cg_max_iter=200,
        cg_tol=1e-4,
        random_state=0,
    ).fit(X, Y, m if weighted else None)
    W, H = model.feature_factors_.astype(float), model.label_factors_.T.astype(float)
    known, labels = ~np.isnan(Y), np.nan_to_num(Y)
    value = oracle_leml.value(W, H, X, labels, 0.5, loss, known, m)
    assert model.objective_[-1] == pytest.approx(value, rel=1e-5)
    slopes = oracle_leml.gradient(W, H, X, labels, 0.5, loss, known, m)
    assert max(np.abs(slope).max() for slope in slopes) < 0.02
    told = clone(model).fit(X, labels, m if weighted else None, observed=known)
    assert model.objective_[-1] == pytest.approx(told.objective_[-1], rel=1e-5)


# The products of dense rows are rounded differently, and one of the fits ends at a slope of 0.021.
@pytest.mark.parametrize(("form", "steepest"), [(csr_array, 0.02), (np.asarray, 0.03)])
@pytest.mark.parametrize("loss", ["squared", "logistic", "squared-hinge"])
@pytest.mark.parametrize("unknown", [0.0, 0.1])
@pytest.mark.parametrize("observed", [False, True])
def test_the_losses_of_leml_are_multiplied_by_label_weights(loss, unknown, observed, form, steepest):
    X, Y = examples(50, 6, 5, unknown=unknown)
    m = np.random.default_rng(1).uniform(0.5, 2, 50)
    weight = np.array([1, 0.3, 4, 2, 0.5])
    model = ml.LEMLClassifier(3, alpha=0.5, loss=loss, normalize=False, fit_intercept=False, threshold=0.0)
    model.set_params(max_iter=300, tol=1e-9, cg_max_iter=200, cg_tol=1e-4, random_state=0)
    known = ~np.isnan(Y)
    model.fit(form(X), Y, m, label_weight=weight, observed=known if observed else None)
    W, H = model.feature_factors_.astype(float), model.label_factors_.T.astype(float)
    counted, labels = known * weight, np.nan_to_num(Y)
    value = oracle_leml.value(W, H, X, labels, 0.5, loss, counted, m)
    assert model.objective_[-1] == pytest.approx(value, rel=1e-5)
    slopes = oracle_leml.gradient(W, H, X, labels, 0.5, loss, counted, m)
    assert max(np.abs(slope).max() for slope in slopes) < steepest


def test_equal_label_weights_of_leml_are_equal_sample_weights():
    """Also with the choice of alpha and of the threshold, which use held-out rows."""
    X, Y = examples(120, 6, 5)
    model = ml.LEMLClassifier(3, loss="logistic", random_state=0)
    by_label = clone(model).fit(X, Y, label_weight=np.full(5, 4.0))
    by_row = clone(model).fit(X, Y, np.full(120, 4.0))
    assert by_label.alpha_ == pytest.approx(by_row.alpha_, rel=1e-5)
    found, expected = by_label.decision_function(X), by_row.decision_function(X)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_ridge_regressions_of_leml_leave_unknown_entries_out(weighted):
    """Few entries are unknown. With as many factors as labels, there are no local minima."""
    X, Y = examples(90, 5, 4, unknown=0.08)
    m = np.random.default_rng(1).uniform(0.5, 2, 90) if weighted else np.ones(90)
    model = ml.LEMLClassifier(
        4, alpha=0.5, normalize=False, fit_intercept=False, threshold=0.0, max_iter=2000, tol=1e-12
    )
    model.set_params(cg_max_iter=200, cg_tol=1e-4, random_state=0).fit(X, Y, m if weighted else None)
    W, H = model.feature_factors_.astype(float), model.label_factors_.T.astype(float)
    known, labels = ~np.isnan(Y), np.nan_to_num(Y)
    value = oracle_leml.value(W, H, X, labels, 0.5, "squared", known, m)
    assert model.objective_[-1] == pytest.approx(value, rel=1e-5)
    least = oracle.least_low_rank(X, labels, 4, 0.5, known, m)
    assert value == pytest.approx(least, rel=1e-5)
    # A mask in place of unknown entries has the same optimum, but uses another solver.
    told = clone(model).fit(X, labels, m if weighted else None, observed=known)
    assert model.objective_[-1] == pytest.approx(told.objective_[-1], rel=1e-5)
    assert (np.diff(model.objective_) <= 1e-6 * model.objective_[0]).all(), "the objective must not increase"


def test_corrlog_leaves_out_conditionals_of_unknown_entries():
    X, Y = examples(60, 3, 3)
    model = ml.CorrLogClassifier(
        0.02, 0.03, epsilon=0.0, standardize=False, threshold="zero", tol=1e-8, max_iter=20_000
    ).fit(X, Y)
    parameters = model.coef_.toarray(), model.intercept_, model.correlations_.toarray()
    value = oracle.pseudo_likelihood(parameters, X, Y, 0.02, 0.03)
    assert value == pytest.approx(model.objective_, rel=1e-5)
    assert value == pytest.approx(oracle.least_pseudo_likelihood(X, Y, 0.02, 0.03), rel=1e-5)


def test_corrlog_finds_the_couplings_of_a_synthetic_truth():
    rng = np.random.default_rng(0)
    n, C = 6000, np.array([[0, 1.5, 0], [1.5, 0, -1.5], [0, -1.5, 0]])
    states = np.array([[a, b, c] for a in (0, 1) for b in (0, 1) for c in (0, 1)], dtype=float)
    chances = np.exp(np.einsum("si,ij,sj->s", states, C, states) / 2)
    Y = states[rng.choice(8, n, p=chances / chances.sum())]
    X = rng.normal(size=(n, 1))
    hidden = rng.random(Y.shape) < 0.1
    model = ml.CorrLogClassifier(1e-4, 1e-4, epsilon=0.0, threshold="zero", tol=1e-6)
    full, told, zeros = (
        clone(model).fit(X, one).correlations_.toarray()
        for one in (Y, np.where(hidden, np.nan, Y), np.where(hidden, 0, Y))
    )
    assert np.abs(full - C).max() < 0.3
    assert np.abs(told - C).max() < np.abs(zeros - C).max()


@pytest.mark.parametrize("loss", ["label-wise-logistic", "example-wise-logistic"])
def test_rules_have_no_gradients_at_unknown_entries(loss):
    X, Y = examples(80, 3, 4)
    model = ml.BoostedRulesClassifier(
        1, loss=loss, head="complete", label_binning=None, l2=0.5, step="newton", random_state=0
    ).fit(X, Y)
    # At the scores 0: q is 1/2, or 1 / (1 + number of known labels of the row).
    known, y = ~np.isnan(Y), 2 * np.nan_to_num(Y) - 1
    q = known * (0.5 if loss == "label-wise-logistic" else 1 / (1 + known.sum(axis=1, keepdims=True)))
    g = (-y * q).sum(axis=0)
    H = np.diag((q * (1 - q)).sum(axis=0) if loss == "label-wise-logistic" else q.sum(axis=0))
    if loss == "example-wise-logistic":
        H -= (y * q).T @ (y * q)
    expected = -np.linalg.solve(H + 0.5 * np.eye(4), g)
    np.testing.assert_allclose(model.decision_function(X[:1])[0], expected, rtol=1e-5)


def test_rules_grow_on_known_entries_only():
    """Two labels of separate rows are two separate problems, if rules have single-label heads."""
    X, Y = examples(200, 4, 1, unknown=0.0)
    both = np.full((200, 2), np.nan)
    both[:100, 0], both[100:, 1] = Y[:100, 0], Y[100:, 0]
    model = ml.BoostedRulesClassifier(
        30, loss="label-wise-logistic", head="complete", label_binning=None, random_state=0
    ).fit(X, both)
    scores = model.decision_function(X)
    given = (2 * Y[:, 0] - 1) * np.r_[scores[:100, 0], scores[100:, 1]]
    assert np.mean(given > 0) > 0.9


def test_rembrandt_is_the_least_squares_solution_of_known_entries(monkeypatch):
    monkeypatch.setattr(rembrandt, "_TOL_OF_UNKNOWN", 1e-9)
    monkeypatch.setattr(rembrandt, "_MOST_ROUNDS", 500)
    X, Y = examples(60, 4, 3)
    model = ml.Rembrandt(3, l2=2.0, l2_final=1.0, solver="cholesky", n_iter=3, random_state=0)
    model.set_params(fit_intercept=False, center=False).fit(X, Y)
    U = model.label_embedding_
    found = model.coef_ @ np.linalg.pinv(U)
    for label in range(3):
        expected = oracle.ridge(X, Y[:, label], 2.0 * np.trace(X.T @ X) / 4)
        np.testing.assert_allclose(found[:, label], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("solver", ["cholesky", "cg", "dual"])
@pytest.mark.parametrize("l2_final", [1.0, 0.3])
@pytest.mark.parametrize("embedding", ["rembrandt", "gaussian"])
def test_rembrandt_replaces_unknown_entries_by_their_predictions(monkeypatch, embedding, l2_final, solver):
    monkeypatch.setattr(rembrandt, "_TOL_OF_UNKNOWN", 1e-9)
    monkeypatch.setattr(rembrandt, "_MOST_ROUNDS", 200)
    X, Y = examples(60, 4, 5, unknown=0.3)
    model = ml.Rembrandt(2, l2=0.5, l2_final=l2_final, solver=solver, embedding=embedding, n_iter=30)
    model.set_params(max_iter=100, tol=1e-12, fit_intercept=False, random_state=0).fit(X, Y)
    U, W = model.label_embedding_, model.coef_
    filled = np.where(np.isnan(Y), X @ W @ np.linalg.pinv(U), Y)
    l2 = 0.5 * np.trace(X.T @ X) / 4

    def regression(targets, l2):
        return np.linalg.solve(X.T @ X + l2 * np.eye(4), X.T @ targets)

    np.testing.assert_allclose(W, regression(filled @ U, l2 * l2_final), rtol=1e-5, atol=1e-5)
    if embedding == "rembrandt":
        product = filled.T @ X @ regression(filled @ U, l2)
        np.testing.assert_allclose(product, U * model.eigenvalues_, rtol=1e-5, atol=1e-5 * product.max())


@pytest.mark.parametrize("estimator", TRANSFORMERS, ids=names)
def test_transformers_take_unknown_entries(estimator):
    X, Y = examples(80, 8, 7)
    found = clone(estimator).fit(X, Y).transform(X)
    zeros = clone(estimator).fit(X, np.nan_to_num(Y)).transform(X)
    assert np.isfinite(found).all()
    assert np.allclose(found, zeros) == (estimator.embedding == "pca")


def test_metrics_leave_unknown_entries_out_of_the_rankings():
    Y = np.array([[np.nan, 1, 0, 1], [0, np.nan, np.nan, 1]])
    scores = np.array([[0.9, 0.2, 0.8, 0.5], [0.1, 0.9, 0.8, 0.2]])
    # The rankings of known labels are 2, 3, 1 and 3, 0.
    np.testing.assert_allclose(ml.metrics.precision_at_k(Y, scores, (1, 2, 3)), [0.5, 0.5, 0.5])
    for measure in (ml.metrics.precision_at_k, ml.metrics.recall_at_k, ml.metrics.ndcg_at_k):
        dense = measure(Y, scores)
        np.testing.assert_array_equal(dense, measure(csr_array(Y), csr_array(scores)))
        rows = [[1, 2, 3], [0, 3]]
        alone = [measure(Y[[i]][:, keep], scores[[i]][:, keep], (1, 3, 5)) for i, keep in enumerate(rows)]
        np.testing.assert_allclose(dense, np.mean(alone, axis=0))
    p = ml.metrics.propensities(np.nan_to_num(np.vstack([Y, Y])))
    np.testing.assert_array_equal(ml.metrics.propensities(np.vstack([Y, Y])), p)
    assert 0 < ml.metrics.psp_at_k(Y, scores, p, 1) < 1


def test_held_out_rows_leave_unknown_entries_out():
    X, Y = examples(200, 4, 6)
    for fold in held_out_folds(csr_array(X), csr_array(Y.astype(np.float32)), None):
        assert fold.unknown_held.mean() == pytest.approx(0.15, abs=0.05)
        assert np.isnan(fold.Y.data).any()
        scores = np.where(fold.unknown_held, 1e6, 0.5)
        assert fold.mean_loss(lambda margins: margins**2, scores) < 6
        top = csr_array(scores)
        known = csr_array(np.where(fold.unknown_held, 0, 0.5))
        np.testing.assert_array_equal(fold.precisions(top), fold.precisions(known))


@pytest.mark.parametrize("estimator", WITH_GIVEN_VALUES, ids=names)
def test_label_weights_are_used_or_refused(estimator):
    X, Y = examples(80, 5, 4, unknown=0.0)
    weight = np.array([1, 5, 0.2, 1])
    model = clone(estimator)
    if isinstance(estimator, ml.DiSMECClassifier | ml.LabelTreeClassifier | ml.LEMLClassifier):
        weighted = model.fit(X, Y, label_weight=weight).decision_function(X)
        assert not np.allclose(weighted, clone(estimator).fit(X, Y).decision_function(X))
        for wrong, message in (
            ([1, 2], "`label_weight` must have shape (4,)"),
            ([1, 0, 1, 1], "`label_weight` must be finite and > 0"),
            ([1, np.nan, 1, 1], "`label_weight` must be finite and > 0"),
        ):
            with pytest.raises(ValueError, match=re.escape(message)):
                model.fit(X, Y, label_weight=wrong)
        if isinstance(estimator, ml.LEMLClassifier):
            return
        with pytest.raises(ValueError, match="`propensities` must all be > 0 and <= 1"):
            model.fit(X, Y, propensities=[1, 0.5, 0, 1])
    else:
        with pytest.raises(ValueError, match="`label_weight` must be None for"):
            model.fit(X, Y, label_weight=weight)


@pytest.mark.parametrize(
    "model", [exact(1.0), ml.DiSMECClassifier(1.0, prune=0.0, threshold="zero", random_state=0)]
)
def test_a_label_weight_multiplies_the_strength_of_the_loss(model):
    X, Y = rare(1500, 5, 0.0)
    weighted = clone(model).fit(X, Y, label_weight=np.full(5, 2.5)).coef_.toarray()
    expected = clone(model).set_params(C=2.5).fit(X, Y).coef_.toarray()
    np.testing.assert_allclose(weighted, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("estimator", "dense"),
    [
        (ml.DiSMECClassifier(random_state=0), False),
        (ml.DiSMECClassifier(1.0, random_state=0), True),
        (ml.LabelTreeClassifier(1.0, random_state=0), False),
        (ml.LabelTreeClassifier(1.0, random_state=0), True),
    ],
)
def test_propensities_raise_rare_labels(estimator, dense):
    X, Y = ml.datasets.make_multilabel(600, 100, 40, random_state=0)
    X = X.toarray() if dense else X
    p = ml.metrics.propensities(Y[:400])
    plain = clone(estimator).fit(X[:400], Y[:400])
    scored = clone(estimator).fit(X[:400], Y[:400], propensities=p)
    rows, labels = Y[400:].nonzero()
    is_rare = np.argsort(np.argsort(p))[labels] < 13
    before, after = (model.decision_function(X[400:])[rows, labels] for model in (plain, scored))
    gains = (after - before)[np.isfinite(before)]
    is_rare = is_rare[np.isfinite(before)]
    assert gains[is_rare].mean() > gains[~is_rare].mean()
    same = clone(estimator).fit(X[:400], Y[:400], propensities=np.ones(40))
    np.testing.assert_allclose(same.decision_function(X), plain.decision_function(X), rtol=1e-4, atol=1e-4)


def probabilities_and_labels(n_rows=300, n_labels=6, unknown=0.2):
    rng = np.random.default_rng(0)
    P = rng.random((n_rows, n_labels)) ** 2
    Y = (rng.random(P.shape) < P).astype(float)
    Y[rng.random(P.shape) < unknown] = np.nan
    return P, Y


RULES = [
    decision.Thresholds(),
    decision.Thresholds("macro_f1"),
    decision.Thresholds("macro_f1", pooling="none"),
    decision.Thresholds("example_f1"),
    decision.Thresholds(precision=0.6),
    decision.Thresholds(recall=0.5),
    decision.RiskControl(0.3),
    decision.RiskControl(0.5, risk="false_discovery_rate", guarantee="probability"),
]


@pytest.mark.parametrize("rule", RULES, ids=names)
@pytest.mark.parametrize("form", [np.asarray, csr_array])
def test_decision_rules_learn_nothing_from_unknown_entries(rule, form):
    """An unknown label is like one that is never chosen and never true."""
    P, Y = probabilities_and_labels()
    found = clone(rule).fit(form(P), form(Y)).predict(P)
    expected = clone(rule).fit(np.where(np.isnan(Y), 0, P), np.nan_to_num(Y)).predict(P)
    np.testing.assert_array_equal(found, expected)
    # Recalls do not depend on chosen labels that are false. All other measures do.
    zeros = clone(rule).fit(P, np.nan_to_num(Y)).predict(P)
    recalls = "recall" in names(rule) or names(rule) == "RiskControl(alpha=0.3)"
    assert (found == zeros).all() == recalls


def test_a_number_of_labels_counts_unknown_entries():
    P, Y = probabilities_and_labels()
    found = decision.Thresholds(labels_per_row=2.0).fit(P, Y)
    np.testing.assert_array_equal(
        found.bounds_, decision.Thresholds(labels_per_row=2.0).fit(P, 0 * np.nan_to_num(Y)).bounds_
    )


def test_frequencies_of_labels_are_those_of_known_rows():
    P, Y = probabilities_and_labels()
    Y[:, 5] = np.nan
    rule = decision.F1Inference().fit(P, Y)
    np.testing.assert_allclose(rule.prior_[:5], np.nanmean(Y[:, :5], axis=0))
    assert rule.prior_[5] == 0


@pytest.mark.parametrize(("method", "pooling"), [("sigmoid", "none"), ("isotonic", "frequency")])
def test_a_calibrator_leaves_out_unknown_entries(method, pooling):
    """Rows without known entries have no effect."""
    X, Y = ml.datasets.make_multilabel(900, 60, 12, random_state=0)
    model = ml.DiSMECClassifier(1.0, random_state=0).fit(X[:400], Y[:400])
    calibrator = decision.LabelCalibrator(model, method=method, pooling=pooling, cv="prefit", n_candidates=6)
    told = Y[400:].toarray().astype(float)
    told[::3] = np.nan
    rest = np.arange(500) % 3 > 0
    found = clone(calibrator).set_params(estimator=model).fit(X[400:], told)
    expected = clone(calibrator).set_params(estimator=model).fit(X[400:][rest], Y[400:][rest])
    np.testing.assert_allclose(found.predict_proba(X), expected.predict_proba(X), rtol=1e-6)
    zeros = clone(calibrator).set_params(estimator=model).fit(X[400:], np.nan_to_num(told))
    assert not np.allclose(found.predict_proba(X), zeros.predict_proba(X), rtol=0.01)
    refit = decision.LabelCalibrator(ml.DiSMECClassifier(1.0), method=method, random_state=0)
    assert np.isfinite(refit.fit(X[400:], csr_array(told)).predict_proba(X)).all()
    with pytest.raises(
        ValueError, match="if `estimator` is from another library, got NaN with the estimator DecisionTree"
    ):
        decision.LabelCalibrator(DecisionTreeClassifier()).fit(X[400:], told)


def test_splits_distribute_known_ones():
    _, Y = probabilities_and_labels()
    for given in (Y, csr_array(Y)):
        for found, expected in zip(
            ml.model_selection.iterative_split(given, random_state=0),
            ml.model_selection.iterative_split(np.nan_to_num(Y), random_state=0),
            strict=True,
        ):
            np.testing.assert_array_equal(found, expected)
    folds = ml.model_selection.MultilabelStratifiedKFold(3)
    for found, expected in zip(folds.split(Y, Y), folds.split(Y, np.nan_to_num(Y)), strict=True):
        np.testing.assert_array_equal(found[1], expected[1])
    scores = ml.model_selection.cross_validate(
        ml.DiSMECClassifier(1.0, random_state=0), np.abs(np.nan_to_num(Y)), Y, cv=folds
    )
    assert scores["test_P@1"].min() > 0.5


def test_rows_that_stop_rules_have_no_loss_at_unknown_entries():
    X, Y = examples(160, 3, 4)
    model = ml.BoostedRulesClassifier(5, loss="label-wise-logistic", early_stopping=True, random_state=0)
    model.fit(X[:100], Y[:100], eval_set=(X[100:], Y[100:]))
    margins = (2 * np.nan_to_num(Y[100:]) - 1) * list(model.staged_decision_function(X[100:]))[-1]
    expected = np.where(np.isnan(Y[100:]), 0, np.logaddexp(0, -margins)).sum(axis=1).mean()
    assert model.validation_loss_[-1] == pytest.approx(expected, rel=1e-5)
