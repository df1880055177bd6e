"""`BlockPartitioner`, k-means and router against definitions, enumeration, scikit-learn and scipy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_np
from scipy.sparse import csr_array
from sklearn.cluster import KMeans
from sklearn.preprocessing import normalize

import manylabel as ml
from manylabel import BlockPartitioner, _core
from manylabel.datasets import load_xc, make_multilabel
from manylabel.partition.choice import default_lam
from oracle import partition as oracle

lams = st.sampled_from([0.0, 0.1, 0.5, 1.0, 1.7, 4.0])


@st.composite
def problems(draw):
    n, d, c = draw(st.integers(1, 14)), draw(st.integers(1, 5)), draw(st.integers(1, 7))
    X = draw(st_np.arrays(np.float32, (n, d), elements=st.sampled_from([0, 0, 1, 2, -1])))
    Y = draw(st_np.arrays(np.int8, (n, c), elements=st.integers(0, 1)))
    return X, Y


@given(problems(), st.integers(1, 5), lams, st.sampled_from([None, 1, 3]))
def test_a_partition_is_what_it_says(problem, n_blocks, lam, max_labels):
    X, Y = problem
    found = BlockPartitioner(n_blocks, lam, max_labels, random_state=0).fit(X, Y)
    assert (np.diff(found.objective_history_) <= 1e-9).all()
    assert found.objective_ == found.objective_history_[-1]
    value = oracle.objective(Y, found.row_blocks_, found.label_blocks_, lam)
    assert value == pytest.approx(found.objective_, abs=1e-9)
    inside = -oracle.objective(Y, found.row_blocks_, found.label_blocks_, 0)
    assert found.captured_ == pytest.approx(inside / max(1, Y.sum()))
    assert set(found.row_blocks_) == set(range(found.n_blocks_))
    assert found.n_blocks_ == len(found.label_blocks_) <= min(n_blocks, len(X))
    for block, labels in enumerate(found.label_blocks_):
        assert (np.diff(labels) > 0).all()
        rows = np.flatnonzero(found.row_blocks_ == block)
        if max_labels is None:
            best = oracle.best_labels(Y, rows, lam)
            assert oracle.objective(Y[rows], np.zeros(len(rows), int), [labels], lam) == pytest.approx(best)
        else:
            assert len(labels) <= max_labels
    # No row has more of its labels in another block.
    held = np.array([[np.isin(np.flatnonzero(y), labels).sum() for labels in found.label_blocks_] for y in Y])
    np.testing.assert_array_equal(held.max(axis=1), held[np.arange(len(Y)), found.row_blocks_])


@pytest.mark.parametrize("n_blocks", [4, "auto"])
def test_planted_blocks_are_found(n_blocks):
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(4), 50)
    X, Y = np.zeros((200, 20)), np.zeros((200, 12), dtype=int)
    for block in range(4):
        rows = truth == block
        X[np.ix_(rows, range(5 * block, 5 * block + 5))] = rng.random((50, 5)) + 0.2
        Y[np.ix_(rows, range(3 * block, 3 * block + 3))] = rng.random((50, 3)) < 0.7
    order = rng.permutation(200)
    found = BlockPartitioner(n_blocks, lam=5.0, n_init=4, random_state=0).fit(X[order], Y[order])
    pairs = set(zip(truth[order], found.row_blocks_, strict=True))
    assert len(pairs) == found.n_blocks_ == 4
    for block, name in pairs:
        assert found.label_blocks_[name].tolist() == [3 * block, 3 * block + 1, 3 * block + 2]
    assert found.captured_ == 1
    assert found.overlap_ == 1


def test_the_search_takes_no_block_that_is_empty():
    """There are two kinds of rows, so a third block would capture nothing more."""
    X = np.repeat(np.eye(2), 20, axis=0)
    Y = np.repeat([[1, 0], [0, 1]], 20, axis=0)
    found = BlockPartitioner(lam=0.9, random_state=0).fit(X, Y)
    assert found.n_blocks_ == 1  # one block captures all labels
    # With room for one label, two blocks capture twice as much.
    found = BlockPartitioner(lam=0.9, max_labels=1, random_state=0).fit(X, Y)
    assert (found.n_blocks_, found.captured_) == (2, 1)


def test_more_starts_are_never_worse():
    X, Y = make_multilabel(400, 60, 40, random_state=0)
    values = [
        BlockPartitioner(8, lam=0.5, n_init=n_init, random_state=0).fit(X, Y).objective_
        for n_init in (1, 3, 9)
    ]
    assert values == sorted(values, reverse=True)
    assert values[0] > values[-1]


def test_lam_of_a_share():
    Y = csr_array(np.repeat(np.eye(4, dtype=int), [50, 30, 15, 5], axis=0))
    for share, lam in [(0.5, 50), (0.8, 30 / 3), (0.95, 15 / 5), (0.9, 15 / 5), (1.0, 5 / 7)]:
        assert default_lam(Y, share) == pytest.approx(lam, rel=1e-8)
        # One block has the label that completes the share, but not with a larger weight.
        for factor, captures in [(1, True), (1 + 2e-9, False)]:
            found = BlockPartitioner(1, lam=default_lam(Y, share) * factor).fit(np.ones((100, 1)), Y)
            assert (found.captured_ >= share) == captures
    assert default_lam(csr_array((5, 3))) == 0
    assert BlockPartitioner(2).fit(np.eye(100), Y).lam_ == default_lam(Y)
    # A single label is captured.
    assert BlockPartitioner(1).fit(np.eye(100), np.ones((100, 1))).captured_ == 1
    assert BlockPartitioner(2, max_labels=2).fit(np.eye(100), Y).lam_ == 0


@pytest.mark.parametrize("n_clusters", [1, 3, 20])
def test_kmeans_is_as_good_as_another(n_clusters):
    X, _ = make_multilabel(600, 80, 30, random_state=1)
    points = normalize(X).toarray()
    found, reference = [], []
    for seed in range(20 if n_clusters > 1 else 2):  # one cluster is the same for all seeds
        clusters, _, _, inertia = kmeans(X, n_clusters=n_clusters, seed=seed)
        means = np.array([points[clusters == k].mean(axis=0) for k in range(clusters.max() + 1)])
        assert inertia == pytest.approx(((points - means[clusters]) ** 2).sum(), rel=1e-4)
        found.append(inertia)
        other = KMeans(n_clusters, n_init=1, max_iter=20, random_state=seed).fit(points)
        reference.append(other.inertia_)
    assert np.mean(found) < np.mean(reference) * 1.03
    assert min(found) < min(reference) * 1.01


def kmeans(X, weights=None, n_clusters=1, leaf_size=None, n_init=1, seed=0, n_threads=1):
    params = {
        "n_clusters": n_clusters if leaf_size is None else None,
        "leaf_size": leaf_size,
        "n_init": n_init,
        "random_state": seed,
    }
    return _core.fit_kmeans(X, weights, params, (n_threads, None))


def test_centers_are_the_means_of_their_rows():
    X, _ = make_multilabel(400, 60, 30, random_state=1)
    points = normalize(X).toarray()
    clusters, centers, intercept, _ = kmeans(X, n_clusters=7)
    indptr, indices, data = centers
    dense = csr_array((data, indices, indptr), shape=(60, len(intercept))).toarray()
    np.testing.assert_allclose(intercept, -0.5 * (dense**2).sum(axis=0), rtol=1e-5)
    for k in range(len(intercept)):
        np.testing.assert_allclose(dense[:, k], points[clusters == k].mean(axis=0), atol=1e-6)


def test_rows_of_a_leaf_are_those_nearest_to_its_center():
    """The intercepts are those of distances, or lower for leaves that would have too many rows."""
    X, _ = make_multilabel(400, 60, 30, random_state=1)
    points = normalize(X).toarray()
    for leaf_size in (50, 10):
        clusters, centers, intercept, _ = kmeans(X, leaf_size=leaf_size)
        indptr, indices, data = centers
        dense = csr_array((data, indices, indptr), shape=(60, len(intercept))).toarray()
        scores = points @ dense + intercept
        np.testing.assert_allclose(scores[np.arange(400), clusters], scores.max(axis=1), atol=1e-6)
        of_distance = -0.5 * (dense**2).sum(axis=0)
        assert (intercept <= of_distance + 1e-6).all()
        assert 400 / leaf_size <= len(intercept) <= 2 * 400 / leaf_size
        assert np.bincount(clusters).max() <= 2 * leaf_size


def test_rows_that_weigh_nothing_are_halved_as_well():
    X, _ = make_multilabel(400, 60, 30, random_state=1)
    for weights in (np.zeros(400), np.arange(400) < 5):
        sizes = np.bincount(kmeans(X, weights.astype(np.float32), leaf_size=50)[0])
        assert len(sizes) >= 8
        assert sizes.max() < 100


def test_whole_weights_of_kmeans_equal_repeated_rows():
    X, _ = make_multilabel(200, 40, 20, random_state=1)
    weights = np.random.default_rng(0).integers(1, 4, 200)
    clusters, _, _, inertia = kmeans(X, weights.astype(np.float32), n_clusters=4)
    points = normalize(X).toarray()
    means = [np.average(points[clusters == k], axis=0, weights=weights[clusters == k]) for k in range(4)]
    expected = sum(w * ((x - means[k]) ** 2).sum() for w, x, k in zip(weights, points, clusters, strict=True))
    assert inertia == pytest.approx(expected, rel=1e-4)


@given(
    problems(),
    st.sampled_from([0.1, 1.0, 10.0]),
    st.booleans(),
    st.one_of(st.none(), st.lists(st.sampled_from([0.25, 1.0, 3.0]), min_size=14, max_size=14)),
    st.integers(0, 2),
)
def test_the_router_reaches_the_minimum(problem, C, fit_intercept, weights, seed):
    X = problem[0]
    classes = np.random.default_rng(seed).integers(0, 3, len(X)).astype(np.int32)
    m = None if weights is None else np.array(weights[: len(X)], dtype=np.float32)
    params = {"C": C, "fit_intercept": fit_intercept, "tol": 1e-6, "max_iter": 100_000, "random_state": seed}
    coef, intercept, _ = _core.fit_router(csr_array(X), classes, 3, m, params, (1, None))
    indptr, indices, data = coef
    dense = csr_array((data, indices, indptr), shape=(X.shape[1], 3)).toarray()
    A = normalize(X.astype(float))
    if fit_intercept:
        A, dense = np.hstack([A, np.ones((len(X), 1))]), np.vstack([dense, intercept])
    for k in range(3):
        s = np.where(classes == k, 1.0, -1.0)
        arguments = A, s, C, np.ones(len(X)) if m is None else m
        best = oracle.logistic_minimum(*arguments)
        value = oracle.logistic(dense[:, k], *arguments)
        assert value <= oracle.logistic(best, *arguments) * (1 + 1e-6) + 1e-9
        np.testing.assert_allclose(dense[:, k], best, atol=2e-3)


def test_threads_change_nothing():
    X, Y = make_multilabel(3000, 200, 100, random_state=0)
    first, second = (BlockPartitioner(20, random_state=0, n_jobs=n_jobs).fit(X, Y) for n_jobs in (1, 2))
    assert vars(first).keys() == vars(second).keys()
    for name in (name for name in vars(first) if name.endswith("_")):
        np.testing.assert_equal(getattr(first, name), getattr(second, name))


def test_a_partition_is_saved_and_drawn(tmp_path):
    plt = pytest.importorskip("matplotlib.pyplot")
    X, Y = make_multilabel(300, 50, 20, random_state=0)
    found = BlockPartitioner(3, random_state=0).fit(X, Y)
    found.save(tmp_path / "blocks")
    loaded = ml.load(tmp_path / "blocks")
    np.testing.assert_array_equal(loaded.row_blocks_, found.row_blocks_)
    figure, ax = plt.subplots()
    assert loaded.plot(Y, max_rows=10, ax=ax) is ax
    (points,) = (line for line in ax.lines if line.get_marker() == "s")
    shown = [np.flatnonzero(found.row_blocks_ == block)[:10] for block in range(3)]
    assert len(points.get_xdata()) == Y[np.concatenate(shown)].nnz
    assert len(ax.images) == 3
    assert ax.images[0].get_array().sum() == len(found.label_blocks_[0])
    plt.close(figure)
    with pytest.raises(ValueError, match=r"Y must have the shape \(300, 20\), as in fit, got \(299, 20\)"):
        found.plot(Y[:299])
    with pytest.raises(ValueError, match=r"Y must have the shape \(300, 20\), as in fit, got \(300, 10\)"):
        found.plot(Y[:, :10])


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("n_blocks", 0, '`n_blocks` must be "auto" or an integer >= 1, got 0'),
        ("n_blocks", "many", "`n_blocks` must be \"auto\" or an integer >= 1, got 'many'"),
        ("lam", -1.0, '`lam` must be "auto" or a finite number >= 0, got -1'),
        ("lam", "much", '`lam` must be "auto" or a finite number >= 0, got'),
        ("max_labels", 1.5, "`max_labels` must be None or an integer >= 1, got 1.5"),
        ("n_init", 0, "`n_init` must be an integer >= 1, got 0"),
        ("max_iter", 0, "`max_iter` must be an integer >= 1, got 0"),
        ("tol", -1.0, "`tol` must be a finite number > 0, got -1"),
        ("n_jobs", 0, "`n_jobs` must be None or an integer other than 0, got 0"),
        ("random_state", "x", "`random_state` must be None, an integer"),
    ],
)
def test_bad_parameters(name, value, message):
    with pytest.raises(ValueError, match=message):
        BlockPartitioner(**{name: value}).fit(np.eye(3), np.eye(3))


def test_many_blocks_of_a_large_set(data):
    X, Y = load_xc(data / "eurlex57k" / "train.txt.gz")
    few, many = (BlockPartitioner(n, lam=0.02, random_state=0, n_jobs=-1).fit(X, Y) for n in (5, 100))
    assert many.n_blocks_ == 100
    assert 0.85 < few.captured_ < many.captured_
    assert (np.diff(many.objective_history_) <= 1e-6).all()
