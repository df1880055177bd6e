"""Tests of `LabelTreeClassifier`: comparisons with its oracle and with DiSMEC, invariants, and bad values."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import normalize as unit_rows

from cases import case
from manylabel import DiSMECClassifier, LabelTreeClassifier, Rembrandt
from manylabel.datasets import load_xc, make_multilabel
from manylabel.metrics import precision_at_k
from oracle import linear as linear_oracle
from oracle import tree as oracle

FITTED = [
    name
    for name, kind in LabelTreeClassifier.schema.attributes.items()
    if name.startswith(("node", "leaf", "chunk")) and not kind.optional
]


@pytest.fixture(scope="module")
def planted():
    X, Y = make_multilabel(3000, 400, 300, random_state=0)
    return X[:2400], Y[:2400], X[2400:], Y[2400:]


@pytest.fixture(scope="module")
def small():
    """For comparisons of bits, which need no accurate model."""
    X, Y = make_multilabel(1000, 200, 150, random_state=0)
    return X[:800], Y[:800], X[800:], Y[800:]


@pytest.fixture(scope="module")
def fitted(planted):
    X, Y, *_ = planted
    return LabelTreeClassifier(1.0, branching=4, max_leaf=20, beam=3, random_state=0).fit(X, Y)


def assert_same_model(one, two):
    for name in FITTED:
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name), err_msg=name)
    assert one.threshold_ == two.threshold_
    assert one.path_weight_ == two.path_weight_


@pytest.mark.parametrize(("C", "n_trees", "balanced"), [("auto", 1, True), (1.0, 2, True), (1.0, 2, False)])
def test_same_bits_for_any_number_of_threads(small, C, n_trees, balanced):
    X, Y, X_new, _ = small
    models = [
        LabelTreeClassifier(
            C,
            n_trees=n_trees,
            branching=4,
            max_leaf=20,
            beam=3,
            balanced=balanced,
            random_state=0,
            n_jobs=n_jobs,
        ).fit(X, Y)
        for n_jobs in (1, 2, 7)
    ]
    for other in models[1:]:
        assert_same_model(models[0], other)
    tops = [model.predict_topk(X_new, k=5) for model in models]
    for top in tops[1:]:
        np.testing.assert_array_equal(tops[0].indices, top.indices)
        np.testing.assert_array_equal(tops[0].data, top.data)


@pytest.mark.parametrize(
    ("solver", "loss"), [("exact", "squared_hinge"), ("fast", "squared_hinge"), ("fast", "logistic")]
)
def test_one_leaf_scored_by_leaf_is_dismec(solver, loss):
    X, Y = make_multilabel(1000, 200, 400, random_state=2)
    counts = np.bincount(Y.indices, minlength=400)
    # Both estimators treat a label as rare if fewer than one in 100 rows has it. So both use the same solver.
    Y = Y[:, (counts > 0) & (counts < (10 if solver == "fast" else 1000))]
    params = {"threshold": "zero", "prune": 0.01, "normalize": "rows", "random_state": 0}
    params |= {"solver": solver, "loss": loss}
    tree = LabelTreeClassifier(1.0, max_leaf=400, combine="leaf", **params).fit(X, Y).decision_function(X)
    flat = DiSMECClassifier(1.0, **params).fit(X, Y).decision_function(X)
    assert Y.shape[1] > 50
    if (solver, loss) != ("fast", "squared_hinge"):
        np.testing.assert_array_equal(tree, flat)
        return
    # For rare labels, the leaf uses fewer negative rows. Both scores approximate those of the exact solver.
    exact = DiSMECClassifier(1.0, **params | {"solver": "exact"}).fit(X, Y).decision_function(X)
    assert np.abs(tree - exact).mean() < 1.25 * np.abs(flat - exact).mean() < 0.1


def test_a_wide_beam_scores_all_labels(planted, fitted):
    *_, X_new, _ = planted
    scores = fitted.decision_function(X_new)
    top = fitted.predict_topk(X_new, k=5, beam=1000)
    for row in range(X_new.shape[0]):
        labels, found = top.indices[top.indptr[row] :][:5], top.data[top.indptr[row] :][:5]
        np.testing.assert_array_equal(found, scores[row, labels])
        assert np.min(found) >= np.sort(scores[row])[-5]


def test_a_narrow_beam_scores_some_labels_the_same(planted, fitted):
    *_, X_new, _ = planted
    scores = fitted.decision_function(X_new)
    for beam in (1, 2, 5):
        top = fitted.predict_topk(X_new, k=400, beam=beam)
        np.testing.assert_array_equal(
            top.data, scores[np.repeat(np.arange(600), np.diff(top.indptr)), top.indices]
        )
        assert np.diff(top.indptr).max() <= 20 * beam
    np.testing.assert_array_equal(
        fitted.predict_topk(X_new, 5).data, fitted.predict_topk(X_new, 5, beam=3).data
    )


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"combine": "leaf"},
        {"balanced": False},
        {"path_weight": 0.0},
        {"path_weight": 1.0, "threshold": 3.0},
        {"prune": 1e6, "path_weight": 0.5},  # all rows have the same scores, and many labels are tied
        {"beam": 20},
        {"n_trees": 3},
        {"n_trees": 2, "combine": "leaf"},
        {"n_trees": 2, "prune": 1e6, "path_weight": 0.5},
    ],
    ids=str,
)
def test_short_rankings_begin_long_ones(small, params):
    """A ranking of k labels skips leaves and labels that cannot be among the k best ones."""
    X, Y, X_new, _ = small
    params = {"branching": 4, "max_leaf": 20, "beam": 6, "random_state": 0} | params
    model = LabelTreeClassifier(1.0, **params).fit(X, Y)
    long = model.predict_topk(X_new, 150)
    rank, n_found = ranks(long), np.diff(long.indptr)
    for k in (1, 5, 19, 40):
        with case(k):
            short = model.predict_topk(X_new, k)
            np.testing.assert_array_equal(np.diff(short.indptr), np.minimum(n_found, k))
            np.testing.assert_array_equal(short.indices, long.indices[rank < k])
            np.testing.assert_array_equal(short.data, long.data[rank < k])


def ranks(top):
    """The place of each entry among those of its row, by descending score and then by label."""
    rows = np.repeat(np.arange(top.shape[0]), np.diff(top.indptr))
    order = np.lexsort((top.indices, -top.data, rows))
    found = np.empty_like(order)
    found[order] = np.arange(top.nnz) - top.indptr[rows]
    return found


@pytest.mark.parametrize(
    ("n_seen", "beam", "size"),
    [(300, 1, 100), (300, 2, 400), (1300, 7, 400), (1500, 7, 100), (4108, 7, 129), (20_000, 7, 400)],
)
def test_the_size_of_leaves_depends_on_the_number_of_labels(n_seen, beam, size):
    """Leaves of a balanced tree have almost the same number of labels, so the largest shows `max_leaf`."""
    n_labels = n_seen + 7  # seven labels have no row
    Y = csr_array((np.ones(n_seen), (np.arange(n_seen) % 500, np.arange(n_seen))), shape=(500, n_labels))
    X = make_multilabel(500, 60, 20, n_nonzero=5, random_state=0)[0]
    model = LabelTreeClassifier(1.0, beam=beam, path_weight=1.0, threshold=0.0, max_iter=1, random_state=0)
    with pytest.warns(ConvergenceWarning):
        model.fit(X, Y)
    leaf_sizes = np.diff(model.node_label_ends_)
    assert 0.5 * size < leaf_sizes.max() <= size


@pytest.mark.parametrize("beam", [3, 20])
@pytest.mark.parametrize("k", [1, 5])
def test_rows_alone_and_together(planted, fitted, beam, k):
    """The leaves of a row are scored one by one if the row is alone, and in batches otherwise."""
    *_, X_new, _ = planted
    together = fitted.predict_topk(X_new, k=k, beam=beam)
    for row in range(50):
        alone = fitted.predict_topk(X_new[[row]], k=k, beam=beam)
        np.testing.assert_array_equal(alone.indices, together[[row]].indices)
        np.testing.assert_array_equal(alone.data, together[[row]].data)


def leaves(model, names):
    ends = model.node_label_ends_
    parts = [frozenset(names[model.leaf_labels_[a:b]]) for a, b in pairwise(ends)]
    return {part for part in parts if part}


def test_permuted_labels_give_the_same_leaves(planted, fitted):
    X, Y, *_ = planted
    order = np.random.default_rng(0).permutation(Y.shape[1])
    permuted = LabelTreeClassifier(1.0, branching=4, max_leaf=20, beam=3, random_state=0).fit(X, Y[:, order])
    assert leaves(permuted, order) == leaves(fitted, np.arange(Y.shape[1]))


@pytest.mark.parametrize(
    ("fit_intercept", "path_weight", "negatives", "loss"),
    [
        (True, 1.0, "routed", "squared_hinge"),
        (False, 0.3, "routed", "squared_hinge"),
        (True, 0.0, "routed", "squared_hinge"),
        (True, 1.0, "siblings", "squared_hinge"),
        (False, 0.3, "routed", "logistic"),
        (True, 1.0, "siblings", "logistic"),
    ],
)
def test_agrees_with_the_oracle(fit_intercept, path_weight, negatives, loss):
    X, Y = make_multilabel(40, 12, 9, n_nonzero=5, random_state=3)
    X, Y = X.toarray(), Y.toarray()
    weights = np.random.default_rng(0).uniform(0.5, 2.0, len(X)).astype(np.float32)
    model = LabelTreeClassifier(
        1.0,
        branching=2,
        max_leaf=3,
        beam=1,
        prune=0,
        normalize=True,
        fit_intercept=fit_intercept,
        path_weight=path_weight,
        negatives=negatives,
        loss=loss,
        threshold=0.0,
        solver="exact",
        tol=1e-6,
        max_iter=100_000,
        random_state=0,
    ).fit(X, Y, sample_weight=weights)
    tree = oracle.Tree(model)
    twin = oracle.Model(
        tree,
        0,
        X,
        Y,
        1.0,
        weights,
        1,
        fit_intercept=fit_intercept,
        path_weight=path_weight,
        routed=negatives == "routed",
        logistic=loss == "logistic",
    )
    tolerance = 1e-4 if loss == "logistic" else 1e-3
    for beam in (1, 2, 9):
        top = model.predict_topk(X, k=9, beam=beam).toarray()
        for x, found in zip(X, top, strict=True):
            expected = twin.scores(x, beam)
            assert set(np.flatnonzero(found)) <= set(expected)
            np.testing.assert_allclose(found[list(expected)], list(expected.values()), atol=tolerance)


def test_logistic_scores_obey_the_chain_rule():
    """With one label per row, the scores of the leaves are the log-probabilities of a label tree of PLT."""
    X, Y = make_multilabel(400, 30, 8, n_nonzero=6, random_state=5)
    X, Y = X.toarray(), Y.toarray()
    model = LabelTreeClassifier(
        5.0,
        branching=2,
        max_leaf=1,
        loss="logistic",
        negatives="siblings",
        path_weight=1.0,
        threshold=0.0,
        prune=0.0,
        normalize="rows",
        tol=1e-5,
        random_state=0,
    ).fit(X, Y)
    tree = oracle.Tree(model)
    A = linear_oracle.design(X)
    expected = np.zeros(Y.shape)

    def descend(node, product):
        """Multiply P(child has a label | parent has a label), estimated on the rows of the parent."""
        rows = Y[:, tree.below(node)].any(axis=1)
        outputs = [(child, tree.below(child)) for child in tree.children[node]]
        for child, labels in outputs or [(None, [label]) for label in tree.labels[node]]:
            s = 2.0 * Y[rows][:, labels].any(axis=1) - 1
            w = linear_oracle.minimum(A[rows], s, 5.0, np.ones(rows.sum()), logistic=True)
            p = product * expit(A @ w)
            if child is None:
                expected[:, labels[0]] = p
            else:
                descend(child, p)

    descend(0, np.ones(len(X)))
    scores = model.decision_function(X)
    np.testing.assert_allclose(np.exp(scores), expected, atol=1e-4)
    top = model.predict_topk(X, 8, beam=8)
    np.testing.assert_array_equal(top.toarray(), scores)
    assert (model.set_params(threshold=np.log(0.5)).fit(X, Y).predict(X) == (expected > 0.5)).mean() > 0.999


def test_the_threshold_zero_of_the_logistic_loss_is_one_half(planted):
    X, Y, X_new, _ = planted
    params = {"loss": "logistic", "threshold": "zero", "max_leaf": 300, "random_state": 0}
    for combine, threshold in (("product", np.log(0.5)), ("leaf", 0.0)):
        model = LabelTreeClassifier(3.0, combine=combine, **params).fit(X[:600], Y[:600, :20])
        assert model.threshold_ == pytest.approx(threshold)
        flat = DiSMECClassifier(3.0, loss="logistic", threshold="zero", random_state=0, prune=0.1)
        predicted = flat.fit(X[:600], Y[:600, :20]).predict(X_new)
        assert (model.predict(X_new) != predicted).nnz == 0
        assert predicted.nnz > 0


def test_the_vectors_of_rembrandt_are_the_sums_of_reduced_rows(planted):
    X, Y, X_new, Y_new = planted
    params = {"C": 1.0, "branching": 4, "max_leaf": 20, "beam": 4, "random_state": 0}
    by_rows, reduced = (
        LabelTreeClassifier(label_vectors=vectors, **params).fit(X, Y) for vectors in ("rows", "rembrandt")
    )
    names = np.arange(Y.shape[1])
    assert leaves(by_rows, names) != leaves(reduced, names)
    rows = Rembrandt(random_state=0).fit(csr_array(unit_rows(X)), Y).transform(csr_array(unit_rows(X)))
    vectors = unit_rows(Y.T @ rows)

    def mean_cosine(model):
        """Return the mean cosine between the vectors of the labels and the directions of their leaves."""
        parts = [list(part) for part in leaves(model, names)]
        return sum(np.linalg.norm(vectors[part].sum(axis=0)) for part in parts) / Y.shape[1]

    assert mean_cosine(reduced) > mean_cosine(by_rows)
    one, two = (
        precision_at_k(Y_new, model.predict_topk(X_new, 5), k=(1,))[0] for model in (by_rows, reduced)
    )
    assert two > one - 0.03


def test_one_leaf_needs_no_label_vectors(small, monkeypatch):
    X, Y, *_ = small
    monkeypatch.setattr(Rembrandt, "fit", None)
    one, two = (
        LabelTreeClassifier(1.0, max_leaf=150, label_vectors=vectors, random_state=0).fit(X, Y)
        for vectors in ("rows", "rembrandt")
    )
    assert_same_model(one, two)


@pytest.mark.parametrize(
    ("normalize", "loss", "n_rows"),
    [(True, "squared_hinge", 800), (False, "squared_hinge", 800), (True, "logistic", 400)],
)
def test_dismec_chooses_the_same_c(small, normalize, loss, n_rows):
    X, Y = small[0][:n_rows], small[1][:n_rows, : n_rows // 8]
    params = {"normalize": normalize, "loss": loss, "random_state": 0}
    chosen = LabelTreeClassifier(max_leaf=20, **params).fit(X, Y)
    flat = DiSMECClassifier(**params).fit(X, Y)
    assert chosen.C_ == flat.C_ != 1.0
    given = LabelTreeClassifier(flat.C_, max_leaf=20, **params).fit(X, Y)
    assert_same_model(chosen, given)


def test_labels_without_rows_are_never_predicted(small):
    X, Y, *_ = small
    Y = Y.tolil()
    Y[:, [0, 7]] = 0
    model = LabelTreeClassifier(max_leaf=20, random_state=0).fit(X, csr_array(Y))
    assert np.isneginf(model.decision_function(X[:5])[:, [0, 7]]).all()
    assert not {0, 7} & set(model.leaf_labels_)


@pytest.mark.parametrize(
    "Y", [np.ones((6, 4)), np.eye(6)[:, :1], np.tile(np.eye(6)[:, :1], 5), np.zeros((6, 3))]
)
def test_degenerate_labels(Y):
    X = np.eye(6)
    model = LabelTreeClassifier(branching=2, max_leaf=1, random_state=0).fit(X, Y)
    assert model.predict(X).shape == Y.shape
    seen = np.flatnonzero(Y.any(axis=0))
    assert set(model.leaf_labels_) == set(seen)
    assert np.isfinite(model.decision_function(X)[:, seen]).all()


@pytest.mark.parametrize("beam", [0, -1, 1.5, "wide", True])
def test_bad_beam(planted, fitted, beam):
    with pytest.raises(ValueError, match="`beam` must be an integer >= 1, got"):
        fitted.predict_topk(planted[2], beam=beam)


@pytest.mark.parametrize("max_nodes", [0, -1, 1.5, "many", True])
def test_bad_max_nodes(planted, fitted, max_nodes):
    with pytest.raises(ValueError, match="`max_nodes` must be an integer >= 1, got"):
        fitted.predict_topk(planted[2], max_nodes=max_nodes)


def levels(model):
    """Return the level of each node."""
    found = np.zeros(len(model.node_intercept_), dtype=int)
    for node, (a, b) in enumerate(pairwise(model.node_children_)):
        found[a:b] = found[node] + 1
    return found


@pytest.mark.parametrize(("n_trees", "balanced"), [(1, True), (1, False), (2, True)])
def test_max_nodes_limits_the_visited_leaves(planted, n_trees, balanced):
    X, Y, X_new, Y_new = planted
    model = LabelTreeClassifier(
        1.0, n_trees=n_trees, branching=3, max_leaf=10, beam=8, balanced=balanced, random_state=0
    ).fit(X, Y)
    depth = levels(model).max() + 1
    assert depth > 2
    with pytest.raises(ValueError, match="`max_nodes` must be at least the number of levels"):
        model.predict_topk(X_new, max_nodes=n_trees * depth - 1)
    every = model.predict_topk(X_new, 400)
    enough = model.predict_topk(X_new, 400, max_nodes=10_000)
    np.testing.assert_array_equal(every.indices, enough.indices)
    np.testing.assert_array_equal(every.data, enough.data)
    precisions = []
    for each in (depth, 2 * depth, 4 * depth):
        top = model.predict_topk(X_new, 400, max_nodes=n_trees * each)
        # A row is sent to a node of every inner level. The rest of its nodes are leaves.
        assert 0 < np.diff(top.indptr).max() <= n_trees * 10 * (each - depth + 1)
        assert np.diff(top.indptr).min() > 0
        precisions.append(precision_at_k(Y_new, top, k=(5,))[0])
    # More nodes help, except by chance.
    assert np.diff(precisions).min() > -0.01
    assert precisions[-1] >= precisions[0]


@pytest.mark.parametrize("n_trees", [1, 2])
def test_the_learned_path_weight_ranks_new_rows_about_best(n_trees):
    # The worst of the weights below is worse than the best by 0.08.
    X, Y = make_multilabel(1800, 400, 300, random_state=1)
    X, Y, X_new, Y_new = X[:1200], Y[:1200], X[1200:], Y[1200:]
    params = {"C": 1.0, "n_trees": n_trees, "branching": 4, "max_leaf": 20, "beam": 4, "random_state": 0}

    def fit(path_weight):
        model = LabelTreeClassifier(path_weight=path_weight, **params).fit(X, Y)
        return model, sum(precision_at_k(Y_new, model.predict_topk(X_new, 5), k=(1, 3, 5)))

    model, learned = fit("auto")
    others = {weight: fit(weight)[1] for weight in (0.0, 0.2, 0.5, 1.0)}
    assert learned > max(others.values()) - 0.01
    again, same = fit(model.path_weight_)
    assert same == learned
    assert_same_model(model, again)


def test_without_enough_held_out_labels_the_path_weight_is_1():
    X, Y = make_multilabel(20, 10, 4, random_state=0)
    model = LabelTreeClassifier(branching=2, max_leaf=2, random_state=0).fit(X, Y)
    assert model.path_weight_ == 1.0
    assert model.threshold_ == -1.0


@pytest.mark.parametrize("combine", ["product", "leaf"])
def test_learned_threshold_names_as_many_labels_as_unseen_rows_have(planted, combine):
    X, Y, X_new, Y_new = planted
    model = LabelTreeClassifier(1.0, branching=4, max_leaf=20, beam=5, combine=combine, random_state=0)
    model.fit(X, Y)
    assert 0.7 < model.predict(X_new).sum() / Y_new.sum() < 1.4


def test_several_trees_rank_at_least_as_well_as_one(planted):
    X, Y, X_new, Y_new = planted
    one, three = (
        precision_at_k(
            Y_new,
            LabelTreeClassifier(1.0, n_trees=n, branching=4, max_leaf=20, beam=4, random_state=0)
            .fit(X, Y)
            .predict_topk(X_new, 5),
            k=(5,),
        )[0]
        for n in (1, 3)
    )
    assert three > one - 0.01


def test_the_path_weight_matters_on_real_labels(data):
    X, Y = load_xc(data / "citeulike-t" / "train.txt.gz")
    X_new, Y_new = load_xc(data / "citeulike-t" / "test.txt.gz")

    def precision(**params):
        model = LabelTreeClassifier(random_state=0, n_jobs=2, **params).fit(X[:6000], Y[:6000])
        return precision_at_k(Y_new, model.predict_topk(X_new, 5), k=(1,))[0]

    # Without routed negatives, the classifiers of a leaf do not know the rows of other leaves.
    siblings = {"C": 1.0, "max_leaf": 100, "beam": 10, "negatives": "siblings"}
    learned = precision(**siblings)
    assert learned > 0.54
    assert precision(path_weight=0.0, **siblings) < learned - 0.05
    assert precision() > 0.585


@pytest.mark.parametrize("n_trees", [1, 2])
def test_large_leaves_of_rows_with_many_labels_learn_the_size_of_label_sets(n_trees):
    rng = np.random.default_rng(0)
    X = rng.random((900, 200)) * (rng.random((900, 200)) < 0.1)
    scores = X @ rng.normal(size=(200, 300)) + 0.3 * rng.normal(size=(900, 300))
    Y = (scores > np.quantile(scores, 0.6)).astype(int)
    model = LabelTreeClassifier(1.0, n_trees=n_trees, max_leaf=150, random_state=0).fit(X[:600], Y[:600])
    assert 0.7 < model.predict(X[600:]).sum() / Y[600:].sum() < 1.4


def test_real_labels(data):
    X, Y = load_xc(data / "bibtex" / "train.txt.gz")
    X_new, Y_new = load_xc(data / "bibtex" / "test.txt.gz")
    model = LabelTreeClassifier(max_leaf=40, random_state=0, n_jobs=2).fit(X, Y)
    assert precision_at_k(Y_new, model.predict_topk(X_new, 5), k=(1,))[0] > 0.625
