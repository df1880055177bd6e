"""Explanations and plots of `CorrLogClassifier`, and its results on the data of the paper."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from manylabel import CorrLogClassifier
from manylabel.datasets import load_xc
from oracle import correlated as oracle


def test_explanation(problem):
    X, Z = problem
    model = CorrLogClassifier(0.02, 0.01).fit(X, Z)
    for x, scores in zip(X[:20], model.decision_function(X[:20]), strict=True):
        told = model.explain(x)
        np.testing.assert_allclose(told.log_odds, scores, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(told.predicted, scores > 0)
        np.testing.assert_allclose(told.features.toarray(), model.coef_.toarray() * x)
        np.testing.assert_array_equal(told.labels.toarray(), model.correlations_.toarray() * told.predicted)
        for label in np.flatnonzero(told.predicted):
            assert f"label {label}: log-odds {scores[label]:+.2f}" in repr(told)
    assert "other features" in repr(
        CorrLogClassifier(1e-4, 0.01).fit(X, Z).explain(X[Z.sum(axis=1).argmax()])
    )
    with pytest.raises(ValueError, match="`x` must have exactly one row, got 2"):
        model.explain(X[:2])
    told = model.explain(csr_array(X)[[Z.sum(axis=1).argmax()]], label_names=["a", "b", "c", "d", "e"])
    assert repr(told)[:2] in ("a:", "b:", "c:", "d:", "e:")
    with pytest.raises(ValueError, match="`label_names` must be a sequence of 5 names, got 'abcde'"):
        model.explain(X[0], label_names="abcde")


def test_explanation_of_a_row_with_names(problem):
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame(problem[0], columns=list("abcdefg"))
    model = CorrLogClassifier(0.02, 0.01).fit(X, problem[1])
    at = int(problem[1].sum(axis=1).argmax())
    told = model.explain(X.iloc[[at]])
    assert repr(told) == repr(model.explain(X.iloc[at]))
    assert any(f" {name}\n" in repr(told) for name in "abcdefg")
    with pytest.raises(ValueError, match="feature names should match"):
        model.explain(X.iloc[[at], ::-1])


@pytest.mark.parametrize("decoder", ["auto", "search", "bp"])
def test_scores_of_huge_values_are_finite(problem, decoder):
    X, Z = problem
    huge = np.copysign(3e38, X).astype(np.float32)
    model = CorrLogClassifier(1e-4, 0.01, standardize=False, decoder=decoder).fit(X, Z)
    # Some sums exceed single precision. Beside such scores the couplings do not matter.
    exact = huge.astype(float) @ model.coef_.toarray().T
    assert (np.abs(exact) > np.finfo(np.float32).max).any()
    scores = model.decision_function(huge)
    np.testing.assert_allclose(scores, np.clip(exact, *(np.finfo(np.float32).max * np.array([-1, 1]))))
    np.testing.assert_array_equal(model.predict_proba(huge), exact > 0)
    assert model.predict_topk(huge, k=5).nnz == 5 * len(X)


def test_fit_to_huge_values(problem):
    X, Z = problem
    factor = 3e38 / np.abs(X).max()
    for standardize in (False, True):
        settings = {"standardize": standardize, "max_iter": 5000}
        model = CorrLogClassifier(1e-3, 0.01, **settings).fit(X * factor, Z)
        assert np.isfinite(model.coef_.data).all()
        assert np.isfinite(model.intercept_).all()
        if standardize:
            usual = CorrLogClassifier(1e-3, 0.01, **settings).fit(X, Z)
            np.testing.assert_allclose(model.coef_.toarray() * factor, usual.coef_.toarray(), rtol=1e-3)


def test_fixed_steps_that_diverge_are_refused(problem):
    with pytest.raises(ValueError, match=r"`solver` must be .* because steps of fixed length diverge"):
        CorrLogClassifier(100.0, 1.0, epsilon=0.0, solver="reference").fit(*problem)


def test_plot(problem):
    plt = pytest.importorskip("matplotlib.pyplot")
    model = CorrLogClassifier(0.02, 0.01).fit(*problem)
    names = ["sea", "sand", "city", "night", "fog"]
    heat_map, graph = model.plot_correlations(label_names=names, max_labels=3, max_pairs=2)
    image = heat_map.images[0].get_array()
    shown = [text.get_text() for text in heat_map.get_xticklabels()]
    at = [names.index(name) for name in shown]
    np.testing.assert_allclose(image, model.correlations_.toarray()[np.ix_(at, at)])
    edges = [line for line in graph.lines if len(line.get_xdata()) == 2]
    strongest = np.sort(np.abs(np.triu(model.correlations_.toarray())).ravel())[::-1][:2]
    widths = sorted((line.get_linewidth() for line in edges), reverse=True)
    np.testing.assert_allclose(widths, 0.5 + 4 * strongest / strongest[0])
    plt.close(heat_map.figure)
    with pytest.raises(ValueError, match="`label_names` must be a sequence of 5 names, got 4"):
        model.plot_correlations(label_names=names[:4])
    with pytest.raises(ValueError, match="`axes` must have two entries, for the heat map and the graph"):
        model.plot_correlations(axes=[heat_map])


def disc(seed, n):
    """The toy data of the paper: the second label is the union of the first one and another half plane."""
    rng = np.random.default_rng(seed)
    angle, radius = rng.uniform(0, 2 * np.pi, n), np.sqrt(rng.random(n))
    X = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
    first, other = X @ [1, 1] >= 0.5, X @ [-1, 1] >= 0.5
    return X, np.column_stack([first, first | other]).astype(int)


def test_the_toy_of_the_paper():
    """Couplings reduce the error of label sets by at least a fifth."""
    losses = []
    for l2_pairs in (np.inf, 1e-2):
        for seed in range(3):
            model = CorrLogClassifier(1e-3, l2_pairs, epsilon=0.0, standardize=False, tol=1e-6, max_iter=5000)
            model.fit(*disc(seed, 1000))
            losses.append(1 - model.score(*disc(100 + seed, 5000)))
    assert np.mean(losses[3:]) <= 0.8 * np.mean(losses[:3])


def split(data, name):
    """Dense training and test rows of the official split."""
    for part in ("train", "test"):
        X, Y = load_xc(data / name / f"{part}.txt.gz")
        yield csr_array(X).toarray().astype(float), csr_array(Y).toarray()


@pytest.mark.parametrize(
    ("name", "l2_pairs", "expected"),
    [
        ("emotions", np.inf, [0.2120, 0.7475, 0.4748, 0.5431, 0.6101, 0.6248]),
        ("emotions", 0.01, [0.2063, 0.6683, 0.5689, 0.6472, 0.6786, 0.6835]),
        ("yeast", np.inf, [0.1991, 0.8539, 0.4985, 0.6086, 0.3788, 0.6307]),
        ("yeast", 0.01, [0.2095, 0.7863, 0.5224, 0.6256, 0.3597, 0.6395]),
    ],
)
def test_official_splits(data, name, l2_pairs, expected):
    """The measures agree with those of our reference implementation in double precision."""
    (X, Y), (X_test, Y_test) = split(data, name)
    model = CorrLogClassifier(0.01, l2_pairs, threshold="zero", tol=1e-6, decoder="exact").fit(X, Y)
    predicted = model.predict(X_test)
    np.testing.assert_allclose(oracle.measures(Y_test, predicted), expected, atol=0.003)
    model.set_params(decoder="search")
    assert (model.predict(X_test) == predicted).all(axis=1).mean() >= 0.995


@pytest.mark.parametrize("name", ["emotions", "yeast"])
def test_solvers_agree_on_official_splits(data, name):
    (X, Y), (X_test, _) = split(data, name)
    fit = {"threshold": "zero", "tol": 1e-6, "max_iter": 20_000}
    auto, fista = (CorrLogClassifier(0.01, 0.01, solver=each, **fit).fit(X, Y) for each in ("auto", "fista"))
    np.testing.assert_allclose(auto.objective_, fista.objective_, rtol=1e-8)
    np.testing.assert_allclose(auto.predict_proba(X_test), fista.predict_proba(X_test), atol=1e-4)
    np.testing.assert_array_equal(auto.predict(X_test), fista.predict(X_test))


def of_folds(X, Y, model, standardized):
    """Measures of five seeded folds. As in the authors' code, test rows use their own deviations."""
    for test in np.array_split(np.random.default_rng(0).permutation(len(Y)), 5):
        train = np.setdiff1d(np.arange(len(Y)), test)
        X_train, X_test = X[train], X[test]
        if standardized:
            mean = X_train.mean(axis=0)
            X_train, X_test = ((part - mean) / part.std(axis=0, ddof=1) for part in (X_train, X_test))
        yield oracle.measures(Y[test], model.fit(X_train, Y[train]).predict(X_test))


@pytest.mark.parametrize(
    ("epsilon", "mean", "deviation"),
    [
        (
            0.0,
            [0.1005, 0.3577, 0.7003, 0.7214, 0.7343, 0.7228],
            [0.0095, 0.0299, 0.0262, 0.0244, 0.0232, 0.0235],
        ),
        (
            1.0,
            [0.0947, 0.3411, 0.7097, 0.7280, 0.7451, 0.7340],
            [0.0069, 0.0198, 0.0180, 0.0172, 0.0161, 0.0173],
        ),
    ],
)
def test_scene_with_the_authors_settings(data, epsilon, mean, deviation):
    """The means agree with the authors' results within their deviations. The folds are not the same."""
    X, Y = (np.vstack(part) for part in zip(*split(data, "scene"), strict=True))
    model = CorrLogClassifier(epsilon=epsilon, solver="reference", decoder="bp", standardize=False)
    scaled = (X - X.mean(axis=0)) / X.std(axis=0, ddof=1)
    expected, _ = oracle.authors_run(scaled, Y, 1e-3, epsilon)
    model.fit(scaled, Y)
    found = model.coef_.toarray(), model.intercept_, model.correlations_.toarray()
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-8)
    found = np.mean(list(of_folds(X, Y, model, standardized=True)), axis=0)
    assert (np.abs(found - mean) <= deviation).all(), found


def test_scene_with_the_defaults(data):
    """The optimum gives fewer wrong label sets than the authors' early stop."""
    X, Y = (np.vstack(part) for part in zip(*split(data, "scene"), strict=True))
    found = np.mean(list(of_folds(X, Y, CorrLogClassifier(threshold="zero"), standardized=False)), axis=0)
    assert found[1] <= 0.325
    assert found[2] >= 0.71
