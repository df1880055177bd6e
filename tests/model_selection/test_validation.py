"""Cross-validation with a sparse Y gives the results of scikit-learn with a dense Y."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.sparse import csr_array, issparse
from scipy.stats import loguniform
from sklearn import model_selection as sklearn_selection
from sklearn.feature_extraction.text import TfidfTransformer, TfidfVectorizer
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline

import manylabel as ml
from cases import case
from manylabel import metrics
from manylabel.model_selection import (
    MultilabelStratifiedKFold,
    cross_val_predict,
    cross_validate,
    scorer,
    search,
)

X, Y = ml.datasets.make_multilabel(150, 40, 12, random_state=0)
DENSE = Y.toarray()
MODEL = ml.DiSMECClassifier(1.0, random_state=0)
NAMES = ["P@1", "P@5", "R@3", "nDCG@3", "PSP@5", "PSnDCG@3", "f1_micro", "f1_samples"]


def by_hand(name):
    """The scorer with this name, computed from a dense Y and the scores of all labels."""
    measure, _, k = name.partition("@")
    function = {"P": metrics.precision_at_k, "R": metrics.recall_at_k, "nDCG": metrics.ndcg_at_k}[measure]
    return lambda model, X, y: float(function(y, model.decision_function(X), int(k)))


@pytest.mark.parametrize(
    "cv", [3, KFold(4, shuffle=True, random_state=0), MultilabelStratifiedKFold(3)], ids=str
)
def test_scores_equal_scikit_learns_on_a_dense_copy(cv):
    found = cross_validate(MODEL, X, Y, scoring=NAMES, cv=cv)
    measures = {name: by_hand(name) if "@" in name else name for name in NAMES if not name.startswith("PS")}
    wanted = sklearn_selection.cross_validate(MODEL, X, DENSE, scoring=measures, cv=cv)
    for name in (f"test_{name}" for name in measures):
        np.testing.assert_allclose(found[name], wanted[name], rtol=0, atol=1e-12, err_msg=name)
    dense = cross_validate(MODEL, X, DENSE, scoring=NAMES, cv=cv)
    for name in NAMES:
        assert np.array_equal(found[f"test_{name}"], dense[f"test_{name}"])


def test_propensities_are_those_of_the_training_rows():
    found = cross_validate(MODEL, X, Y, scoring="PSP@3", cv=3)["test_PSP@3"]
    wanted = []
    for train, test in KFold(3).split(X):
        top = MODEL.fit(X[train], Y[train]).predict_topk(X[test], k=3)
        wanted.append(metrics.psp_at_k(Y[test], top, metrics.propensities(Y[train]), 3))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("method", ["predict", "decision_function", "predict_topk"])
@pytest.mark.parametrize("sparse", [True, False])
def test_predictions_equal_those_of_each_fold(method, sparse):
    cv = KFold(4, shuffle=True, random_state=1)
    found = cross_val_predict(MODEL, X, Y if sparse else DENSE, method=method, cv=cv)
    assert issparse(found) == (method == "predict_topk" or (method == "predict" and sparse))
    found = found.toarray() if issparse(found) else found
    for train, test in cv.split(X):
        model = MODEL.fit(X[train], Y[train])
        part = getattr(model, method)(X[test])
        assert np.array_equal(found[test], part.toarray() if issparse(part) else part)
    if method != "predict_topk":
        wanted = sklearn_selection.cross_val_predict(MODEL, X, DENSE, method=method, cv=cv)
        assert np.array_equal(found, wanted)


def test_probabilities():
    model = ml.CorrLogClassifier(0.01, 0.01)
    found = cross_val_predict(model, X, Y, method="predict_proba", cv=3)
    wanted = sklearn_selection.cross_val_predict(model, X, DENSE, method="predict_proba", cv=3)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)


def test_a_search_finds_the_best_of_its_scores():
    grid = {"C": [0.01, 0.1, 1.0]}
    found = search(MODEL, X, Y, grid, scoring="nDCG@3", cv=3)
    scores = [
        cross_validate(ml.DiSMECClassifier(C, random_state=0), X, Y, scoring="nDCG@3", cv=3)[
            "test_nDCG@3"
        ].mean()
        for C in grid["C"]
    ]
    np.testing.assert_allclose(found.cv_results_["mean_test_score"], scores, rtol=0, atol=1e-12)
    assert found.best_params_["C"] == grid["C"][int(np.argmax(scores))]
    assert found.best_estimator_.sparse_output_
    drawn = search(MODEL, X, Y, {"C": loguniform(0.1, 1)}, scoring="PSP@1", n_iter=2, cv=3, random_state=0)
    assert len(drawn.cv_results_["params"]) == 2


def test_weights_are_divided_into_folds():
    weights = np.random.default_rng(0).uniform(0.5, 2, X.shape[0])
    found = cross_validate(MODEL, X, Y, cv=3, params={"sample_weight": weights}, return_estimator=True)
    for model, (train, _) in zip(found["estimator"], KFold(3).split(X), strict=True):
        wanted = MODEL.fit(X[train], Y[train], sample_weight=weights[train])
        assert np.array_equal(model.coef_.toarray(), wanted.coef_.toarray())


def test_texts_and_pipelines():
    texts = [" ".join(f"w{j}" for j in X[[row]].indices) for row in range(X.shape[0])]
    model = make_pipeline(TfidfVectorizer(), MODEL)
    found = cross_validate(model, texts, Y, scoring={"f1": "f1_micro"}, cv=3)["test_f1"]
    assert found.shape == (3,)
    assert (found > 0.1).all()


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_folds_at_the_same_time_give_the_same(n_jobs):
    found = cross_validate(MODEL, X, Y, cv=3, n_jobs=n_jobs)
    assert np.array_equal(found["test_P@1"], cross_validate(MODEL, X, Y, cv=3)["test_P@1"])


def test_scorers_by_name():
    model = MODEL.fit(X, Y)
    assert scorer("P@3")(model, X, Y) == metrics.precision_at_k(Y, model.predict_topk(X, 3), 3)
    with pytest.raises(ValueError, match="`propensities` must be given for PSP@1"):
        scorer("PSP@1")(model, X, Y)
    assert scorer("PSP@1", propensities=metrics.propensities(Y))(model, X, Y) > 0
    assert repr(scorer("P@3")) == "scorer('P@3')"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: scorer("P@0"), "`name` must be P@k"),
        (lambda: scorer("P"), "`name` must be P@k"),
        (lambda: scorer(3), "`name` must be P@k"),
        (lambda: cross_validate(MODEL, X, Y, scoring=[]), "`scoring` must be the name of a scorer"),
        (lambda: cross_validate(MODEL, X, Y, cv=1), "`cv` must be an integer >= 2"),
        (lambda: cross_validate(MODEL, X, Y, cv="x"), "`cv` must be an integer >= 2, a splitter"),
        (lambda: cross_validate(MODEL, X[:9], Y), "inconsistent numbers of samples"),
        (lambda: cross_val_predict(MODEL, X, Y, method="fit"), "`method` must be one of"),
        (lambda: cross_val_predict(MODEL, X, Y, cv=[(np.arange(9), np.arange(9))]), "exactly one fold"),
        (lambda: search(MODEL, X, Y, {"C": [1]}, scoring=["P@1", "P@3"]), "one name or one function"),
        (lambda: search(MODEL, X, Y, {"C": [1]}, n_iter=0), "`n_iter` must be"),
    ],
)
def test_wrong_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_sparse_rows_stay_sparse(monkeypatch):
    monkeypatch.setattr(csr_array, "toarray", lambda self, *_: pytest.fail("Y was made dense"))
    cross_validate(MODEL, X, Y, cv=3)
    cross_val_predict(MODEL, X, Y, method="predict_topk", cv=3)


TEXTS = [" ".join(f"w{j}" for j in X[[row]].indices) for row in range(X.shape[0])]
LISTS = [[f"label {chr(97 + j)}" for j in Y[[row]].indices] for row in range(X.shape[0])]
ALL = [f"label {chr(97 + j)}" for j in range(12)]


def test_lists_of_names_are_those_of_a_matrix():
    tagger, how = ml.TextTagger(MODEL), {"cv": 2, "params": {"label_names": ALL}}
    grid, name = {"classifier__C": [0.1, 1.0]}, "mean_test_score"
    matrix = cross_validate(tagger, TEXTS, Y, **how)
    wanted = cross_val_predict(tagger, TEXTS, Y, method="predict_topk", **how)
    by_matrix = search(tagger, TEXTS, Y, grid, **how)
    for form in (list, tuple, pd.Series, pl.Series):
        with case(form.__module__, form.__name__):
            lists = form([*LISTS])
            found = cross_validate(tagger, TEXTS, lists, **how)
            assert np.array_equal(found["test_P@1"], matrix["test_P@1"])
            top = cross_val_predict(tagger, TEXTS, lists, method="predict_topk", **how)
            assert np.array_equal(top.toarray(), wanted.toarray())
            chosen = search(tagger, TEXTS, lists, grid, **how)
            assert np.array_equal(chosen.cv_results_[name], by_matrix.cv_results_[name])
            assert chosen.best_estimator_.label_names_.tolist() == ALL


def test_predicted_names_are_in_the_order_of_the_rows():
    cv = KFold(3, shuffle=True, random_state=0)
    tagger = ml.TextTagger(MODEL)
    found = cross_val_predict(tagger, TEXTS, LISTS, cv=cv, params={"label_names": ALL})
    for train, test in cv.split(TEXTS):
        tagger.fit([TEXTS[row] for row in train], [LISTS[row] for row in train], label_names=ALL)
        assert [found[row] for row in test] == tagger.predict([TEXTS[row] for row in test])


def test_as_many_names_as_rows_are_not_divided_into_folds():
    texts, lists = TEXTS[:24], [[f"label {row}", f"label {(row + 12) % 24}"] for row in range(24)]
    assert len({name for row in lists for name in row}) == 24
    folds = [(np.arange(12), np.arange(12, 24)), (np.arange(12, 24), np.arange(12))]
    tagger = ml.TextTagger(MODEL)
    assert cross_validate(tagger, texts, lists, cv=folds)["test_P@1"].shape == (2,)
    assert search(tagger, texts, lists, {"classifier__C": [1.0]}, cv=folds).best_score_ >= 0


def test_frames_of_labels_of_polars():
    frame = pl.DataFrame(DENSE.astype(np.int8), ALL)
    found = cross_validate(MODEL, X, frame, cv=3)
    assert np.array_equal(found["test_P@1"], cross_validate(MODEL, X, DENSE, cv=3)["test_P@1"])


def test_rankings_of_a_pipeline_are_measured():
    """A pipeline has no method predict_topk, so its steps are applied one by one."""
    X, Y = ml.datasets.make_multilabel(120, 40, 6, random_state=0)
    pipeline = make_pipeline(TfidfTransformer(), "passthrough", ml.DiSMECClassifier(1.0, random_state=0))
    assert 0 <= ml.model_selection.scorer("P@1")(pipeline.fit(X, Y), X, Y) <= 1
    Z = TfidfTransformer().fit(X[:60]).transform(X)
    plain = ml.DiSMECClassifier(1.0, random_state=0)
    folds = [(np.arange(60), np.arange(60, 120))]
    found = ml.model_selection.cross_validate(pipeline, X, Y, cv=folds, scoring=["P@1", "nDCG@3"])
    wanted = ml.model_selection.cross_validate(plain, Z, Y, cv=folds, scoring=["P@1", "nDCG@3"])
    for name in ("test_P@1", "test_nDCG@3"):
        np.testing.assert_array_equal(found[name], wanted[name])
    top = ml.model_selection.cross_val_predict(pipeline, X, Y, cv=3, method="predict_topk", k=2)
    assert top.shape == Y.shape
    search = GridSearchCV(
        pipeline,
        {"dismecclassifier__C": [0.01, 1.0]},
        scoring=ml.model_selection.scorer("P@1"),
        cv=2,
        refit=False,
    )
    search.fit(X, Y)
    assert np.isfinite(search.best_score_)
    with pytest.raises(ValueError, match="must have the method predict_topk"):
        ml.model_selection.scorer("P@1")(TfidfTransformer().fit(X), X, Y)
