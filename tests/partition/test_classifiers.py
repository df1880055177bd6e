"""Block classifiers: equal models, scores and merging of blocks, and estimators of other libraries."""

import numpy as np
import pytest
from scipy.sparse import csr_array, eye_array, vstack
from sklearn.base import BaseEstimator, clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC
from sklearn.utils import get_tags

import manylabel as ml
from dense_rows import clusters
from manylabel import _core
from manylabel.datasets import load_xc, make_multilabel
from manylabel.metrics import precision_at_k
from manylabel.partition.base import _MOST_ROUTES
from manylabel.partition.choice import (
    FOUND,
    MOST_BLOCKS,
    RULE_SHARE,
    RULE_SHARE_OF_ONE,
    TOLERANCE,
    blocks_by_rule,
    default_lam,
)
from manylabel.partition.clustered import _MOST_CLUSTERS
from manylabel.partition.naive_bayes import NaiveBayes
from oracle import partition as oracle


@pytest.fixture(scope="module")
def problem():
    return make_multilabel(600, 60, 30, random_state=0)


@pytest.fixture(scope="module")
def base():
    return ml.DiSMECClassifier(1.0, random_state=0)


# This solver takes less time for a few hundred rows than the default one.
LOGISTIC = LogisticRegression(solver="liblinear")


def same_bits(one, other):
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


# --- one block


@pytest.mark.parametrize("lam", [0.0, 1e-300])
def test_one_block_of_all_labels_is_the_estimator(problem, base, lam):
    X, Y = problem
    plain = clone(base).fit(X, Y)
    block = ml.BlockPartitionClassifier(base, n_blocks=1, lam=lam).fit(X, Y)
    np.testing.assert_array_equal(block.decision_function(X), plain.decision_function(X))
    same_bits(block.predict_topk(X, 5), plain.predict_topk(X, 5))
    same_bits(block.predict(X), plain.predict(X))
    assert block.speedup_ == (1, 30 / 31)
    cluster = ml.CBMLCClassifier(base, n_clusters=1).fit(X, Y)
    np.testing.assert_array_equal(cluster.decision_function(X), plain.decision_function(X))
    leaf = ml.LPSRClassifier(base, leaf_size=600, n_candidates=30).fit(X, Y)
    np.testing.assert_array_equal(leaf.decision_function(X), plain.decision_function(X))
    same_bits(leaf.predict_topk(X, 5), plain.predict_topk(X, 5))
    same_bits(leaf.predict(X), plain.predict(X))


def test_one_block_of_another_library(problem):
    X, Y = problem[0][:200], problem[1][:200, :10]
    plain = OneVsRestClassifier(LOGISTIC).fit(X, Y)
    block = ml.BlockPartitionClassifier(plain, n_blocks=1, lam=0).fit(X, Y)
    np.testing.assert_allclose(block.decision_function(X), plain.decision_function(X), rtol=1e-6)
    np.testing.assert_array_equal(block.predict(X).toarray(), plain.predict(X).toarray())


# --- scores of blocks


@pytest.mark.parametrize("kind", [ml.BlockPartitionClassifier, ml.CBMLCClassifier])
def test_a_row_has_the_scores_of_the_model_of_its_block(problem, base, kind):
    X, Y = problem
    how = {"n_blocks": 4, "lam": 1.0} if kind is ml.BlockPartitionClassifier else {"n_clusters": 4}
    model = kind(base, random_state=0, **how).fit(X, Y)
    units = X / np.sqrt(X.multiply(X).sum(axis=1))[:, None]
    routed = (units @ model.router_coef_.T).toarray() + model.router_intercept_
    scores = model.decision_function(X)
    sizes = []
    for i, block in enumerate(routed.argmax(axis=1)):
        labels = model.label_blocks_[block]
        alone = np.full(30, -np.inf, dtype=np.float32)
        alone[labels] = model.estimators_[block].decision_function(X[i : i + 1])
        np.testing.assert_array_equal(scores[i], alone)
        sizes.append(len(labels))
    # The definition of measure_speedup.
    assert model.speedup_ == pytest.approx((30 / np.mean(sizes), 30 / (np.mean(sizes) + 4)))
    assert model.measure_speedup(X[:10]) == pytest.approx(
        (30 / np.mean(sizes[:10]), 30 / (np.mean(sizes[:10]) + 4))
    )
    for block, labels in enumerate(model.label_blocks_):
        rows = model.row_blocks_ == block
        expected = clone(base).fit(X[rows], Y[rows][:, labels])
        np.testing.assert_array_equal(
            model.estimators_[block].decision_function(X), expected.decision_function(X)
        )


@pytest.mark.parametrize("n_routes", [2, 9])
def test_scores_of_several_blocks_are_merged_by_probability(problem, base, n_routes):
    X, Y = problem
    model = ml.BlockPartitionClassifier(base, n_blocks=4, lam=1.0, n_routes=n_routes, random_state=0).fit(
        X, Y
    )
    units = X / np.sqrt(X.multiply(X).sum(axis=1))[:, None]
    routed = (units @ model.router_coef_.T).toarray() + model.router_intercept_
    scores, top = model.decision_function(X), model.predict_topk(X, 3)
    n_routes = min(n_routes, 4)
    for i in range(0, 600, 20):
        blocks = np.argsort(-routed[i], kind="stable")[:n_routes]
        parts = np.full((n_routes, 30), -np.inf)
        for part, block in zip(parts, blocks, strict=True):
            # Scores of DiSMEC are margins, and 4 times a margin approximates the log-odds.
            part[model.label_blocks_[block]] = 4 * model.estimators_[block].decision_function(X[i : i + 1])[0]
        probabilities = 1 / (1 + np.exp(-routed[i, blocks]))
        expected = [oracle.merged(probabilities, parts[:, label]) for label in range(30)]
        np.testing.assert_allclose(scores[i], expected, rtol=1e-3, atol=1e-4)
        best = np.sort(np.lexsort([np.arange(30), -scores[i]])[:3])
        np.testing.assert_array_equal(top.indices[top.indptr[i] : top.indptr[i + 1]], best)
    np.testing.assert_array_equal(model.predict(X).toarray(), scores > 0)
    assert (
        model.speedup_[0]
        < ml.BlockPartitionClassifier(base, n_blocks=4, lam=1.0, random_state=0).fit(X, Y).speedup_[0]
    )


def test_margins_within_blocks_are_margins(problem, base):
    """CBMLC with one cluster changes neither the scores of its estimator nor that they are margins."""
    X, Y = problem
    plain, nested = (
        ml.BlockPartitionClassifier(inner, n_blocks=4, lam=1.0, n_routes=2, random_state=0).fit(X, Y)
        for inner in (base, ml.CBMLCClassifier(base, 1, random_state=0))
    )
    np.testing.assert_allclose(nested.decision_function(X), plain.decision_function(X), rtol=1e-5)


def test_constant_scores_of_others_are_log_odds_already():
    X = np.repeat(np.eye(2), 20, axis=0)
    Y = np.column_stack([np.arange(40) < 20, np.arange(40) % 2, np.ones(40)]).astype(int)
    model = ml.BlockPartitionClassifier(
        OneVsRestClassifier(LinearSVC()), n_blocks=2, lam=0, n_routes=2, random_state=0
    ).fit(X, Y)
    # Label 2 is in all rows of both blocks, so its score does not depend on the router.
    np.testing.assert_allclose(model.decision_function(X)[:, 2], np.log(20.5 / 0.5), rtol=1e-5)


def test_merging_in_parts_changes_nothing(problem, monkeypatch):
    X, Y = problem
    model = ml.BlockPartitionClassifier(
        OneVsRestClassifier(LinearSVC()), n_blocks=4, lam=1.0, n_routes=2, random_state=0
    ).fit(X, Y)
    X = X[:60]
    whole, scores = model.predict_topk(X, 5), model.decision_function(X)
    monkeypatch.setattr("manylabel.partition.asked._SCORES_AT_ONCE", 100)
    same_bits(model.predict_topk(X, 5), whole)
    np.testing.assert_array_equal(model.decision_function(X), scores)


class Elsewhere(ml.DiSMECClassifier):
    """A classifier that overrides a method and gives the same scores."""

    def decision_function(self, X):
        return super().decision_function(X)


@pytest.mark.parametrize("n_routes", [1, 2])
@pytest.mark.parametrize("lam", [0.0, 1.0])
def test_the_core_answers_what_the_models_would(problem, base, n_routes, lam):
    """Models that override methods are called through these methods."""
    X, Y = problem
    inside, outside = (
        ml.BlockPartitionClassifier(inner, n_blocks=4, lam=lam, n_routes=n_routes, random_state=0).fit(X, Y)
        for inner in (base, Elsewhere(1.0, random_state=0))
    )
    X = csr_array(X + X[::-1])
    assert isinstance(inside._scorer(), _core.Scorer)
    assert not isinstance(outside._scorer(), _core.Scorer)
    for rows in (X[:1], X[:40], X):
        np.testing.assert_array_equal(inside.decision_function(rows), outside.decision_function(rows))
        same_bits(inside.predict_topk(rows, 4), outside.predict_topk(rows, 4))
        same_bits(inside.predict(rows), outside.predict(rows))


@pytest.mark.parametrize("n_routes", [1, 2, "auto"])
def test_scores_of_given_labels(problem, base, small_blocks, n_routes):
    X, Y = problem
    how = {} if n_routes == "auto" else {"n_blocks": 4, "lam": 1.0}
    model = ml.BlockPartitionClassifier(base, n_routes=n_routes, random_state=0, **how).fit(X, Y)
    X = csr_array(X + X[::-1])
    pattern = csr_array(Y, dtype=np.float32)
    pattern.sort_indices()
    scores = model.decision_function(X)
    np.testing.assert_array_equal(model._scorer().at(X, pattern, 1), scores[pattern.nonzero()])
    bounds = np.where(np.isfinite(scores), scores, 0).mean(axis=0, dtype=np.float32)
    indptr, indices, data = model._scorer().above(X, bounds, 2)
    above = csr_array((data, indices, indptr), shape=scores.shape).toarray()
    np.testing.assert_array_equal(above, np.where(scores > bounds, scores, 0))


@pytest.mark.parametrize("inner", [ml.SmoothLinkClassifier(n_features=40, loss="softmax", random_state=0)])
def test_models_of_one_label_a_row_name_one(inner):
    rng = np.random.default_rng(0)
    X, label = rng.random((300, 8)), rng.integers(0, 4, 300)
    Y = np.eye(4, dtype=int)[label]
    model = ml.CBMLCClassifier(inner, 3, random_state=0).fit(X, Y)
    predicted = model.predict(X)
    np.testing.assert_array_equal(predicted.sum(axis=1), 1)
    np.testing.assert_array_equal(predicted.argmax(axis=1), model.decision_function(X).argmax(axis=1))


def test_models_name_labels_as_they_do_alone(problem):
    """In a block, too, rules predict known label sets, and the correlated model ranks by marginals."""
    X, Y = problem
    for inner in (ml.BoostedRulesClassifier(40, random_state=0), ml.CorrLogClassifier()):
        model = ml.BlockPartitionClassifier(inner, n_blocks=3, lam=1.0, random_state=0).fit(X, Y)
        blocks = model._routes(X).indices
        predicted, top = model.predict(X), model.predict_topk(X, 3)
        for block, labels in enumerate(model.label_blocks_):
            rows = np.flatnonzero(blocks == block)
            alone = model.estimators_[block]
            np.testing.assert_array_equal(
                predicted[rows][:, labels].toarray(), alone.predict(X[rows]).toarray()
            )
            of_alone = alone.predict_topk(X[rows], 3)
            np.testing.assert_array_equal(top[rows].data, of_alone.data)
            np.testing.assert_array_equal(top[rows].indices, labels[of_alone.indices])


def test_rows_without_labels(base):
    X, Y = np.repeat(np.eye(3), 20, axis=0), np.repeat([[1, 0], [0, 1], [0, 0]], 20, axis=0)
    model = ml.BlockPartitionClassifier(base, n_blocks=3, lam=0.5, random_state=0).fit(X, Y)
    empty = [block for block, labels in enumerate(model.label_blocks_) if len(labels) == 0]
    assert [model.estimators_[block] for block in empty] == [None]
    assert np.isneginf(model.router_intercept_[empty]).all()
    assert model.predict_topk(X, 1).nnz == 60  # no row goes to a block without labels
    # With drop_unlabeled, the router is fitted without the rows that have no labels.
    Y = np.repeat([[1, 0], [0, 1]], 30, axis=0)
    Y[::3] = 0
    X = np.repeat(np.eye(2), 30, axis=0)
    params = {"n_blocks": 2, "lam": 0.5, "random_state": 0}
    kept = ml.BlockPartitionClassifier(base, drop_unlabeled=True, **params).fit(X, Y)
    rows = Y.any(axis=1)
    without = ml.BlockPartitionClassifier(base, **params).fit(X[rows], Y[rows])
    order = np.argsort(kept.router_coef_.toarray()[:, 0]), np.argsort(without.router_coef_.toarray()[:, 0])
    np.testing.assert_allclose(
        kept.router_coef_.toarray()[order[0]], without.router_coef_.toarray()[order[1]], atol=0.05
    )


# --- estimators of other libraries


FOREIGN = {
    "linear": OneVsRestClassifier(LOGISTIC),
    "pipeline": make_pipeline(TfidfTransformer(), OneVsRestClassifier(LOGISTIC)),
    "forest": RandomForestClassifier(5, random_state=0),
    "neighbors": KNeighborsClassifier(3),
}


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize(("dense", "n_routes"), [(False, 1), (True, 2)])
def test_other_estimators(problem, name, dense, n_routes):
    X, Y = problem[0][:300], problem[1][:300, :15]
    if name in ("forest", "neighbors") and not dense:
        Y = Y.toarray()  # these estimators need a dense Y
    if dense:
        X, Y = X.toarray(), np.asarray(Y.toarray())
    model = ml.BlockPartitionClassifier(
        FOREIGN[name], n_blocks=3, lam=1.0, n_routes=n_routes, random_state=0, n_jobs=2
    ).fit(X, Y)
    scores, top = model.decision_function(X), model.predict_topk(X, k=3)
    assert isinstance(model.predict(X), np.ndarray if dense or name in ("forest", "neighbors") else csr_array)
    plain = clone(FOREIGN[name]).fit(X, Y)
    assert model.score(X, Y) > 0.6 * plain.score(X, Y)
    best = np.argsort(-scores, axis=1, kind="stable")[:, :3]
    np.testing.assert_array_equal(top.indices.reshape(-1, 3), np.sort(best, axis=1))
    with pytest.raises(TypeError, match=r"cannot be saved: expected .*an estimator"):
        model.save("never")


class Spy(OneVsRestClassifier):
    """An estimator that overwrites X."""

    def fit(self, X, y):
        self.form_ = type(X), X.dtype, X.flags.c_contiguous
        super().fit(X, y)
        X *= 2
        return self

    def decision_function(self, X):
        assert (type(X), X.dtype, X.flags.c_contiguous) == self.form_
        scores = super().decision_function(X)
        X *= 2
        return scores


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(
    "model",
    [
        ml.BlockPartitionClassifier(Spy(LOGISTIC), n_blocks=1, lam=0.0, random_state=0),
        ml.BlockPartitionClassifier(Spy(LOGISTIC), n_blocks=2, lam=1.0, random_state=0),
        ml.CBMLCClassifier(Spy(LOGISTIC), n_clusters=2, random_state=0),
        ml.LPSRClassifier(Spy(LOGISTIC), 50, 10, random_state=0),
    ],
    ids=["one block", "blocks", "clusters", "LPSR"],
)
def test_other_estimators_get_copies_of_dense_rows(model, dtype):
    X, Y = clusters(150, 12, 8)
    X = np.asfortranarray(X).astype(dtype)
    before = X.copy()
    fitted = clone(model).fit(X, Y)
    # Predictions get X in float32 or float64, as the fit did.
    wide = X.astype(np.float32) if dtype == np.float16 else X
    scores = fitted.decision_function(wide)
    np.testing.assert_array_equal(X, before)
    np.testing.assert_array_equal(wide, before)
    np.testing.assert_array_equal(scores, fitted.decision_function(csr_array(wide)))
    assert (np.argmax(scores, axis=1) == np.argmax(Y, axis=1)).mean() > 0.3


def test_labels_that_do_not_vary_have_constant_scores():
    """In block 1, label 0 is in all rows, 1 in none and 2 in some. In block 2, label 3 is in all rows."""
    X = np.repeat(np.eye(2), 10, axis=0)
    X[:10, 1] = np.linspace(0, 0.3, 10)
    Y = np.zeros((20, 4), dtype=int)
    Y[:10, 0] = Y[5:10, 2] = Y[10:, 3] = 1
    plain = OneVsRestClassifier(LOGISTIC)
    model = ml.BlockPartitionClassifier(plain, n_blocks=2, lam=0, random_state=0).fit(X, Y)
    assert sorted(map(len, model.label_blocks_)) == [1, 2]
    scores = model.decision_function(X)
    np.testing.assert_allclose(scores[:10, 0], np.log(10.5 / 0.5), rtol=1e-6)
    np.testing.assert_allclose(scores[10:, 3], np.log(10.5 / 0.5), rtol=1e-6)
    assert len(np.unique(scores[:10, 2])) > 5
    assert model.predict(X)[:10, 0].all()


class Picky(BaseEstimator):
    """An estimator that refuses to fit fewer than `least` rows."""

    def __init__(self, least=30):
        self.least = least

    def fit(self, X, y):
        if X.shape[0] < self.least:
            raise ValueError(f"wants {self.least} rows")
        self.n_ = y.shape[1]
        return self

    def decision_function(self, X):
        return np.zeros((X.shape[0], self.n_))

    def predict(self, X):
        return np.zeros((X.shape[0], self.n_), dtype=int)


def test_blocks_an_estimator_cannot_take():
    X = np.repeat(np.eye(2), [40, 10], axis=0)
    Y = np.zeros((50, 2), dtype=int)
    Y[:40:2, 0] = Y[40::2, 1] = 1
    with pytest.warns(
        UserWarning,
        match="to 1 of 2 blocks of labels, so .* get constant scores; the first error: wants 30 rows",
    ):
        model = ml.BlockPartitionClassifier(Picky(), n_blocks=2, lam=0, random_state=0).fit(X, Y)
    scores = model.decision_function(X)
    assert (scores[:40, 0] == 0).all()
    np.testing.assert_allclose(scores[40:, 1], 0)  # log-odds of five in ten rows
    with pytest.raises(
        ValueError, match="`estimator` could not be fitted to any block; the first error: wants 99 rows"
    ):
        ml.BlockPartitionClassifier(Picky(99), n_blocks=2, lam=0, random_state=0).fit(X, Y)
    with pytest.raises(ValueError, match='`C` must be "auto" or a finite number > 0, got -1'):
        ml.BlockPartitionClassifier(ml.DiSMECClassifier(C=-1), n_blocks=2, lam=0, random_state=0).fit(X, Y)


def test_seeds_reach_what_has_none(problem):
    X, Y = (part[:200] for part in problem)
    forest = RandomForestClassifier(3)
    first, second, other = (
        ml.BlockPartitionClassifier(forest, n_blocks=2, lam=1, random_state=seed)
        .fit(X, Y.toarray())
        .decision_function(X)
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, second)
    assert (first != other).any()
    params = ml.BlockPartitionClassifier(
        ml.DiSMECClassifier(random_state=7), n_blocks=2, lam=1, random_state=0
    )
    assert {model.random_state for model in params.fit(X, Y).estimators_} == {7}


# --- the choice of lam


@pytest.mark.parametrize("estimator", [ml.DiSMECClassifier(1.0, random_state=0), KNeighborsClassifier(3)])
def test_lam_by_cross_validation(problem, estimator):
    """Many scores of nearest neighbours are equal, and ties must be ranked the same everywhere."""
    base, n_jobs = estimator, 2
    X, Y = (matrix.toarray() for matrix in problem)
    accurate, speedy = (
        ml.BlockPartitionClassifier(base, n_blocks=3, mode=mode, random_state=0, n_jobs=n_jobs).fit(X, Y)
        for mode in ("accuracy", "speed")
    )
    precision = accurate.lam_precision_
    assert precision.shape == (len(accurate.lams_), 5, 3)
    assert accurate.lam_ == accurate.lams_[precision.sum(axis=(1, 2)).argmax()]
    # The precision of the least weight with the same folds, computed here.
    fold_of_row = np.random.default_rng(0).permutation(np.arange(600) % 5)
    plain = np.empty((5, 3))
    for fold in range(5):
        inside, outside = fold_of_row != fold, fold_of_row == fold
        model = ml.BlockPartitionClassifier(base, n_blocks=3, lam=accurate.lams_[0] * 0.8, random_state=0)
        top = model.fit(X[inside], Y[inside]).predict_topk(X[outside], 5)
        expected = precision_at_k(Y[outside], top, (1, 3, 5))
        np.testing.assert_allclose(precision[0, fold], expected)
        model = ml.BlockPartitionClassifier(base, n_blocks=1, lam=0)
        top = model.fit(X[inside], Y[inside]).predict_topk(X[outside], 5)
        plain[fold] = precision_at_k(Y[outside], top, (1, 3, 5))
    np.testing.assert_array_equal(speedy.lam_precision_, precision)
    within = speedy.lams_[(precision >= plain - 0.02).all(axis=(1, 2))]
    if len(within):
        assert speedy.lam_ == within.max()


def test_speed_without_a_weight_that_is_near_enough(base):
    """The features do not determine the block of a new row, so routing loses much with any weight."""
    X, Y = csr_array(np.eye(200)), np.eye(4, dtype=int)[np.arange(200) % 4]
    model = ml.BlockPartitionClassifier(base, n_blocks=100, mode="speed", random_state=0)
    with pytest.warns(UserWarning, match=r"no `lam` from .* is more than 2 percentage points lower"):
        model.fit(X, Y)
    assert model.lam_ == model.lams_[model.lam_precision_.sum(axis=(1, 2)).argmax()]
    bounded = ml.BlockPartitionClassifier(base, n_blocks=8, max_labels=2, mode="speed", random_state=0)
    assert bounded.fit(X, Y).lam_ == 0  # nothing is left to choose


def test_folds_without_labels(base):
    Y = np.zeros((10, 3), dtype=int)
    Y[3, 1] = 1
    for mode in ("rule", "accuracy", "speed"):
        model = ml.BlockPartitionClassifier(base, mode=mode, random_state=0).fit(np.eye(10), Y)
        assert set(model.predict_topk(np.eye(10), 2).indices) == {1}


@pytest.mark.parametrize("allowed", [1.0, -1.0])
def test_blocks_become_fewer_while_each_weight_loses_too_much(problem, base, monkeypatch, allowed):
    X, Y = problem
    monkeypatch.setitem(TOLERANCE, "accuracy", allowed)
    several = ml.BlockPartitioner(random_state=0).fit(X, Y).n_blocks_
    assert several > 1
    found = ml.BlockPartitionClassifier(base, mode="accuracy", random_state=0).fit(X, Y).n_blocks_
    assert found == (several if allowed > 0 else 1)
    fixed = ml.BlockPartitionClassifier(base, n_blocks=several, mode="accuracy", random_state=0).fit(X, Y)
    assert fixed.n_blocks_ == several


def test_what_was_cross_validated_is_what_is_fitted(problem, base, monkeypatch):
    """Blocks have the rows of the least weight, and those of its labels that the chosen weight keeps."""
    X, Y = problem
    monkeypatch.setitem(TOLERANCE, "speed", 0.2)
    model = ml.BlockPartitionClassifier(base, n_blocks=6, mode="speed", random_state=0).fit(X, Y)
    assert model.lam_ > model.lams_[0]
    blocks = ml.BlockPartitioner(6, model.lams_[0], random_state=0).fit(X, Y)
    np.testing.assert_array_equal(model.row_blocks_, blocks.row_blocks_)
    captured = cost = 0
    for block, labels in enumerate(model.label_blocks_):
        counts = Y[model.row_blocks_ == block].sum(axis=0)
        order = np.argsort(-counts, kind="stable")
        gains = counts[order] - model.lam_ * (2 * np.arange(30) + 1)
        np.testing.assert_array_equal(labels, np.sort(order[gains > 0]))
        assert set(labels) <= set(blocks.label_blocks_[block])
        captured += counts[labels].sum()
        cost += model.lam_ * len(labels) ** 2
    assert model.captured_ == pytest.approx(captured / Y.sum())
    assert model.objective_ == pytest.approx(cost - captured)
    np.testing.assert_array_equal(model.objective_history_, blocks.objective_history_)


# --- number of blocks by rule


def test_as_many_blocks_as_rows_and_labels_are_enough_for():
    Y = csr_array((np.ones(20_000), np.arange(20_000) % 1999, np.arange(20_001)), shape=(20_000, 5000))
    assert blocks_by_rule(Y) == 3
    assert blocks_by_rule(Y[:10_000]) == 2
    assert blocks_by_rule(Y[:9999]) == blocks_by_rule(Y[:, :999]) == 1
    assert blocks_by_rule(vstack([eye_array(2000, format="csr")] * 15)) == MOST_BLOCKS


@pytest.mark.parametrize(("noise", "expected"), [(0.0, 4), (30.0, 1)])
def test_there_are_as_many_blocks_as_the_router_finds(small_blocks, base, monkeypatch, noise, expected):
    """Labels in four groups. Features determine the groups of new rows, or those of training rows only."""
    monkeypatch.setattr("manylabel.partition.choice.FOUND", FOUND)
    rng = np.random.default_rng(0)
    group = np.arange(800) % 4
    X = np.eye(4)[group] + noise * rng.random((800, 4))
    Y = np.zeros((800, 40), dtype=int)
    for _ in range(3):
        Y[np.arange(800), 10 * group + rng.integers(0, 10, 800)] = 1
    model = ml.BlockPartitionClassifier(base, random_state=0).fit(X, Y)
    assert model.n_blocks_ == expected
    if expected == 1:
        # A single block leaves out the rarest labels.
        assert model.lam_ == default_lam(csr_array(Y), RULE_SHARE_OF_ONE)


def test_few_rows_make_one_block_which_is_the_estimator(problem, base):
    X, Y = problem
    plain = clone(base).fit(X, Y)
    model = ml.BlockPartitionClassifier(base, random_state=0).fit(X, Y)
    assert (model.n_blocks_, model.lam_, model.captured_) == (1, 0, 1)
    np.testing.assert_array_equal(model.decision_function(X), plain.decision_function(X))
    same_bits(model.predict_topk(X, 5), plain.predict_topk(X, 5))
    same_bits(model.predict(X), plain.predict(X))


@pytest.fixture
def small_blocks(monkeypatch):
    """Constants with which the rule makes several blocks for small data."""
    monkeypatch.setattr("manylabel.partition.choice.ROWS_OF_A_BLOCK", 100)
    monkeypatch.setattr("manylabel.partition.choice.LABELS_OF_A_BLOCK", 5)
    monkeypatch.setattr("manylabel.partition.choice.FOUND", 0.0)


def test_blocks_by_rule(problem, base, small_blocks):
    X, Y = problem
    model = ml.BlockPartitionClassifier(base, random_state=0).fit(X, Y)
    lam = default_lam(csr_array(Y), RULE_SHARE)
    by_hand = ml.BlockPartitionClassifier(base, n_blocks=MOST_BLOCKS, lam=lam, random_state=0).fit(X, Y)
    assert (model.n_blocks_, model.lam_) == (MOST_BLOCKS, lam)
    np.testing.assert_array_equal(model.row_blocks_, by_hand.row_blocks_)
    # With a given number of blocks, each row goes to one block.
    between = csr_array(X + X[::-1])
    assert by_hand.measure_speedup(between)[0] > model.measure_speedup(between)[0]
    known = np.isfinite(by_hand.decision_function(between))
    sets = [np.isin(np.arange(30), labels) for labels in model.label_blocks_]
    assert {tuple(row) for row in known} <= {tuple(each) for each in sets}


@pytest.mark.parametrize("share", [0.3, 0.6, 0.995, 1.0])
def test_a_row_goes_to_more_blocks_where_the_router_is_in_doubt(
    problem, base, small_blocks, monkeypatch, share
):
    monkeypatch.setattr("manylabel.partition.base._ROUTED", share)
    X, Y = problem
    model = ml.BlockPartitionClassifier(base, random_state=0).fit(X, Y)
    X = csr_array(X + X[::-1])  # rows between blocks
    units = X / np.sqrt(X.multiply(X).sum(axis=1))[:, None]
    routed = (units @ model.router_coef_.T).toarray() + model.router_intercept_
    scores, top = model.decision_function(X), model.predict_topk(X, 3)
    n_scored, n_routes = 0, []
    for i in range(600):
        order = np.argsort(-routed[i], kind="stable")[:_MOST_ROUTES]
        probabilities = 1 / (1 + np.exp(-routed[i, order]))
        before = np.cumsum(probabilities)
        n = 1 + np.count_nonzero(before[:-1] < share * before[-1])
        n_routes.append(n)
        blocks = order[:n]
        n_scored += sum(len(model.label_blocks_[block]) for block in blocks)
        if i % 20:
            continue
        parts = np.full((n, 30), -np.inf)
        for part, block in zip(parts, blocks, strict=True):
            part[model.label_blocks_[block]] = 4 * model.estimators_[block].decision_function(X[i : i + 1])[0]
        expected = [oracle.merged(probabilities[:n], parts[:, label]) for label in range(30)]
        np.testing.assert_allclose(scores[i], expected, rtol=1e-3, atol=1e-4)
        best = np.lexsort([np.arange(30), -scores[i]])[:3]
        best = np.sort(best[scores[i, best] > -np.inf])
        np.testing.assert_array_equal(top.indices[top.indptr[i] : top.indptr[i + 1]], best)
        np.testing.assert_array_equal(top.data[top.indptr[i] : top.indptr[i + 1]], scores[i, best])
    assert max(n_routes) == {0.3: 1, 0.6: 2, 0.995: 3, 1.0: 3}[share]
    assert min(n_routes) == 1 or share > 0.6
    assert model.measure_speedup(X)[0] == pytest.approx(600 * 30 / n_scored)
    np.testing.assert_array_equal(model.predict(X).toarray(), scores > 0)
    # Results do not depend on the other rows of a call.
    same_bits(model.predict_topk(X[7:8], 3), top[7:8])
    same_bits(model.set_params(n_jobs=2).predict_topk(X, 3), top)


def test_other_estimators_are_merged_as_well(problem, small_blocks):
    """Scores of estimators of other libraries may be log-odds or margins."""
    X, Y = problem
    model = ml.BlockPartitionClassifier(OneVsRestClassifier(LinearSVC()), random_state=0).fit(X, Y)
    scores, top = model.decision_function(X), model.predict_topk(X, 30)
    np.testing.assert_array_equal(scores[np.isfinite(scores)], top.data)
    np.testing.assert_array_equal(model.predict(X).toarray(), scores > 0)


# --- CBMLC and LPSR


def test_naive_bayes_is_that_of_its_definition():
    rng = np.random.default_rng(0)
    X, Y = rng.integers(0, 4, (30, 6)).astype(float), (rng.random((30, 5)) < 0.4).astype(int)
    Y[:, 2] = 0
    scores = NaiveBayes().fit(X, Y).decision_function(X)
    expected = oracle.naive_bayes(X, Y)
    seen = [0, 1, 3, 4]
    # Equal up to a constant per row. The exponentials sum to twice the mean number of labels.
    offset = scores[:, [0]] - expected[:, [0]]
    np.testing.assert_allclose(scores[:, seen], expected[:, seen] + offset, atol=1e-4)
    np.testing.assert_allclose(np.exp(scores[:, seen]).sum(axis=1), 2 * Y.sum() / 30, rtol=1e-4)
    assert np.isneginf(scores[:, 2]).all()
    weights = rng.integers(1, 4, 30)
    weighted = NaiveBayes().fit(X, Y, weights).decision_function(X)
    repeated = NaiveBayes().fit(np.repeat(X, weights, axis=0), np.repeat(Y, weights, axis=0))
    np.testing.assert_allclose(weighted, repeated.decision_function(X), atol=1e-4)


@pytest.mark.parametrize("weighting", ["rank", "counts"])
def test_candidates_of_a_leaf(problem, base, weighting):
    X, Y = problem
    model = ml.LPSRClassifier(base, 100, 7, weighting=weighting, random_state=0).fit(X, Y)
    scores = clone(base).fit(X, Y).decision_function(X)
    Y = Y.toarray()
    rank = np.argsort(np.argsort(-scores, axis=1, kind="stable"), axis=1)
    gains = Y / (1.0 + rank) if weighting == "rank" else Y.astype(float)
    assert len(model.label_blocks_) >= 6
    for leaf, labels in enumerate(model.label_blocks_):
        total = gains[model.row_blocks_ == leaf].sum(axis=0)
        assert len(labels) == min(7, np.count_nonzero(total))
        others = np.setdiff1d(np.arange(30), labels)
        assert total[labels].min() >= total[others].max() - 1e-6
    own = model.decision_function(X)
    assert set(np.isfinite(own).sum(axis=1)) <= set(map(len, model.label_blocks_))
    np.testing.assert_array_equal(own[np.isfinite(own)], scores[np.isfinite(own)])


def test_lpsr_over_naive_bayes(problem, tmp_path):
    X, Y = abs(problem[0]), problem[1]
    model = ml.LPSRClassifier("naive-bayes", leaf_size=150, n_candidates=10, random_state=0).fit(X, Y)
    model.save(tmp_path / "model")
    loaded = ml.load(tmp_path / "model")
    same_bits(loaded.predict_topk(X, 5), model.predict_topk(X, 5))
    popular = Y.sum(axis=0).argsort()[::-1][:3]
    assert precision_at_k(Y, model.predict_topk(X, 3), 3) > Y[:, popular].mean()
    np.testing.assert_array_equal(model.predict(X).toarray(), model.decision_function(X) > 0)
    with pytest.raises(ValueError, match="values of X must be >= 0 for naive Bayes, got -"):
        ml.LPSRClassifier("naive-bayes").fit(-X, Y)
    # None meant naive Bayes in earlier versions, and their files have None.
    assert get_tags(model).input_tags.positive_only
    model.set_params(estimator=None).save(tmp_path / "older")
    older = ml.load(tmp_path / "older")
    same_bits(older.predict_topk(X, 5), model.predict_topk(X, 5))
    assert not get_tags(older).input_tags.positive_only


def test_lpsr_by_default_is_its_base_where_rows_are_few(problem):
    X, Y = problem
    plain = ml.DiSMECClassifier(random_state=0).fit(-X, Y)
    model = ml.LPSRClassifier(random_state=0).fit(-X, Y)
    assert isinstance(model.estimators_[0], ml.DiSMECClassifier)
    same_bits(model.predict_topk(-X, 5), plain.predict_topk(-X, 5))
    same_bits(model.predict(-X), plain.predict(-X))


def test_lpsr_picks_the_weights_of_a_leaf(problem, base):
    """Calls with many and with few rows give the same scores, which are some of the scores of all labels."""
    X, Y = problem
    model = ml.LPSRClassifier(base, 100, 7, random_state=0).fit(X, Y)
    scores, top, positive = model.decision_function(X), model.predict_topk(X, 5), model.predict(X)
    every = model.estimators_[0].decision_function(X)
    seen = np.isfinite(scores)
    np.testing.assert_array_equal(scores[seen], every[seen])
    for i in range(0, 600, 30):
        some = slice(i, i + 30)
        np.testing.assert_array_equal(model.decision_function(X[some]), scores[some])
        same_bits(model.predict_topk(X[some], 5), top[some])
        same_bits(model.predict(X[some]), positive[some])


@pytest.mark.parametrize(
    "inner", [ml.BoostedRulesClassifier(40, random_state=0), ml.CorrLogClassifier(), LinearSVC()], ids=repr
)
def test_lpsr_looks_at_a_part_of_any_base(problem, inner):
    X, Y = problem[0][:300], problem[1][:300, :15]
    foreign = isinstance(inner, LinearSVC)
    model = ml.LPSRClassifier(OneVsRestClassifier(inner) if foreign else inner, 50, 7, random_state=0)
    model.fit(X, Y)
    base = model.estimators_[0]
    every, named = base.decision_function(X), csr_array(base.predict(X)).toarray()
    scores, top = model.decision_function(X), model.predict_topk(X, 3)
    seen = np.isfinite(scores)
    np.testing.assert_array_equal(scores[seen], every[seen])
    np.testing.assert_array_equal(model.predict(X).toarray(), named * seen)
    for i in range(0, 300, 10):
        best = np.sort(np.lexsort([np.arange(15), -scores[i]])[:3])
        np.testing.assert_array_equal(top.indices[top.indptr[i] : top.indptr[i + 1]], best)


# --- the size of leaves


def leaf_sizes(X, weights, leaf_size, seed=0):
    """The leaf of each row, by the linear scores of the centers, and the sizes of the leaves."""
    X = csr_array(X.astype(np.float32))
    params = {"n_clusters": None, "leaf_size": leaf_size, "n_init": 1, "random_state": seed}
    leaves, (indptr, indices, data), intercept, _ = _core.fit_kmeans(X, weights, params, (1, None))
    centers = csr_array((data, indices, indptr), shape=(X.shape[1], len(intercept)))
    units = X / np.maximum(np.sqrt(X.multiply(X).sum(axis=1)), 1e-30)[:, None]
    routed = (csr_array(units) @ centers).toarray() + intercept
    # Equal up to single precision.
    np.testing.assert_allclose(routed[np.arange(len(leaves)), leaves], routed.max(axis=1), atol=1e-5)
    return leaves, np.bincount(leaves, minlength=len(intercept))


@pytest.mark.parametrize("weighed", [1.0, 0.3, 0.01, 0.0])
@pytest.mark.parametrize("seed", range(3))
def test_leaves_have_the_size_asked_for(weighed, seed):
    """Clusters of very different sizes and scattered rows, of which only some have a weight."""
    rng = np.random.default_rng(seed)
    sizes = [1000, 250, 150, 50, 25, 15, 10]
    rows = [abs(rng.standard_normal(40)) + 0.3 * rng.standard_normal((size, 40)) for size in sizes]
    scattered = np.zeros((500, 40))
    scattered[np.arange(500), rng.integers(0, 40, 500)] = 1
    X = np.concatenate([*rows, scattered + 0.05 * rng.random((500, 40))])
    weights = np.where(rng.random(len(X)) < weighed, rng.random(len(X)), 0).astype(np.float32)
    _, sizes = leaf_sizes(X, weights, 50, seed)
    assert sizes.min() > 0
    assert sizes.max() <= 100
    assert len(sizes) <= 2 * len(X) / 50


def test_rows_without_weight_follow_their_neighbours():
    rng = np.random.default_rng(0)
    cluster = rng.permutation(np.repeat(np.arange(8), 50))
    X = 3.0 * np.eye(8)[cluster] + 0.1 * rng.random((400, 8))
    for share in (1.0, 0.1):
        weights = (rng.random(400) < share).astype(np.float32)
        leaves, sizes = leaf_sizes(X, weights, 50)
        assert sizes.tolist() == [50] * 8
        for leaf in range(8):
            assert len(np.unique(cluster[leaves == leaf])) == 1


def test_rows_that_are_alike_stay_together():
    rng = np.random.default_rng(0)
    X = np.concatenate([np.zeros((300, 5)), np.tile([1.0, 0, 0, 0, 0], (400, 1)), rng.random((300, 5))])
    leaves, sizes = leaf_sizes(X, None, 50)
    assert len(np.unique(leaves[300:700])) == 1
    assert len(np.unique(leaves[:300])) == 1
    assert np.sort(sizes)[:-2].max() <= 100
    assert len(sizes) <= 2 * 1000 / 50
    leaves, sizes = leaf_sizes(np.ones((30, 2)), None, 5)
    assert sizes.tolist() == [30]


def test_one_cluster_where_rows_are_few(problem, base, monkeypatch):
    X, Y = problem
    plain = clone(base).fit(X, Y)
    model = ml.CBMLCClassifier(base, random_state=0).fit(X, Y)
    assert len(model.label_blocks_) == 1
    same_bits(model.predict_topk(X, 5), plain.predict_topk(X, 5))
    for rows, n_clusters in ((200, 3), (10, _MOST_CLUSTERS)):
        monkeypatch.setattr("manylabel.partition.clustered._ROWS_OF_A_CLUSTER", rows)
        assert len(ml.CBMLCClassifier(base, random_state=0).fit(X, Y).label_blocks_) == n_clusters
    # Data without clusters have one cluster, but a given number is kept.
    X = np.random.default_rng(0).standard_normal((600, 400))
    assert len(ml.CBMLCClassifier(base, random_state=0).fit(X, Y).label_blocks_) == 1
    assert len(ml.CBMLCClassifier(base, 3, random_state=0).fit(X, Y).label_blocks_) == 3


def test_nested_models_are_saved_and_loaded(problem, base, tmp_path):
    X, Y = problem
    inner = ml.CBMLCClassifier(base, 2, random_state=0)
    model = ml.BlockPartitionClassifier(inner, n_blocks=2, lam=0.5, n_routes=2, random_state=0).fit(X, Y)
    model.save(tmp_path / "model")
    loaded = ml.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))
    assert loaded.get_params().keys() == model.get_params().keys()
    assert loaded.estimator.estimator.random_state == 0
    assert loaded.set_params(estimator__estimator__C=3.0).estimator.estimator.C == 3


# --- real data


def test_blocks_cost_little_on_delicious(data):
    folder = data / "delicious"
    sets = *load_xc(folder / "train.txt.gz"), *load_xc(folder / "test.txt.gz")
    X, Y, X_test, Y_test = sets
    base = ml.DiSMECClassifier(random_state=0, n_jobs=-1)
    plain = precision_at_k(Y_test, base.fit(X, Y).predict_topk(X_test, 5), (1, 3, 5))
    model = ml.BlockPartitionClassifier(base, n_blocks=2, lam=0.3, random_state=0, n_jobs=-1).fit(X, Y)
    found = precision_at_k(Y_test, model.predict_topk(X_test, 5), (1, 3, 5))
    assert (found > plain - 0.02).all()
    assert model.speedup_[1] > 1.2
