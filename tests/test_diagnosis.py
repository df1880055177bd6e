"""The doctor finds every planted fault in real and generated data, and no faults in sound data."""

import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array, hstack, issparse, lil_array, vstack

import manylabel as ml
from manylabel.model_selection import MultilabelStratifiedKFold

SETS = ["emotions", "flags", "scene", "yeast", "birds", "enron", "medical", "bibtex", "genbase", "cal500"]


def found(diagnosis, kind):
    return next((finding.items for finding in diagnosis.findings if finding.kind == kind), [])


def made():
    return ml.datasets.make_multilabel(300, 40, 12, random_state=0)


def real(name):
    if "MANYLABEL_DATA" not in os.environ:
        pytest.skip("needs the data sets of MANYLABEL_DATA")
    folder = Path(os.environ["MANYLABEL_DATA"]) / name
    path = next(path for path in (folder / "train.txt.gz", folder / "all.txt.gz") if path.exists())
    return ml.datasets.load_xc(path)


@pytest.mark.parametrize("name", ["made", *SETS])
@pytest.mark.parametrize("dense", [False, True])
def test_planted_faults_are_found(name, dense):
    X, Y = made() if name == "made" else real(name)
    n_rows, n_labels = Y.shape
    rng = np.random.default_rng(0)
    counts = np.bincount(Y.indices, minlength=n_labels)
    usual = [label for label in np.argsort(-counts) if 5 <= counts[label] <= n_rows - 5]
    leaked, twin = int(usual[0]), int(usual[1])
    # A label of the first rows only, a copy of a label, and a feature that determines a label.
    first = csr_array((np.arange(n_rows) < max(6, n_rows // 10)).astype(Y.dtype)[:, None])
    Y = csr_array(hstack([Y, Y[:, [twin]], first]))
    column = csr_array(Y[:, [leaked]]) * rng.uniform(1, 2, n_rows)[:, None]
    X = csr_array(hstack([X, csr_array(column)]))
    copied = rng.choice(np.flatnonzero(np.diff(X.indptr) > 0), 3, replace=False)
    test = np.r_[np.arange(n_rows - 20, n_rows), copied]
    kept = np.setdiff1d(np.arange(n_rows - 20), [])
    copied = copied[copied < n_rows - 20]
    X_train, Y_train, X_test, Y_test = X[kept], Y[kept], X[test], Y[test]
    if dense:
        X_train, X_test = X_train.toarray(), X_test.toarray()
    diagnosis = ml.doctor(X_train, Y_train, X_test, Y_test)
    pairs = {b: a for a, b in found(diagnosis, "copied rows across the split")}
    for at in range(20, 23):
        if test[at] < n_rows - 20:
            original, copy = X[[pairs[at]]], X[[test[at]]]
            assert (original != copy).nnz == 0
    assert (X.shape[1] - 1, leaked) in found(diagnosis, "leaking features")
    assert any({twin, n_labels} <= set(group) for group in found(diagnosis, "twin labels"))
    lacking = found(diagnosis, "folds without a label")
    assert {fold for label, fold in lacking if label == n_labels + 1} >= {1, 2, 3, 4}
    kinds = [finding.kind for finding in diagnosis.findings]
    assert kinds == sorted(kinds, key=ml.diagnosis._KINDS.index)


def test_sound_data_have_no_findings():
    X, Y = made()
    kept = np.bincount(Y.indices, minlength=12) >= 5
    keys = {finding.kind for finding in ml.doctor(X, Y[:, kept], cv=MultilabelStratifiedKFold(3)).findings}
    assert keys <= {"rows without labels", "rows without features"}


def test_smaller_faults():
    X, Y = (matrix.toarray().astype(float) for matrix in made())
    X[5], Y[6] = 0, 0
    X[:, 3], X[:, 4] = 0, 7.5
    Y[:, 0], Y[:, 1], Y[:, 2] = 1, 0, 0
    Y[[10, 20], 2] = 1
    X[31], Y[31] = X[30], Y[30]
    X[41], Y[41] = X[40], 1 - Y[40]
    Y[:, 0], Y[:, 1] = 1, 0
    diagnosis = ml.doctor(X, Y)
    assert found(diagnosis, "labels that are always on") == [0]
    assert found(diagnosis, "labels that are never on") == [1]
    assert 2 in found(diagnosis, "rare labels")
    assert found(diagnosis, "constant features") == [3, 4]
    assert (30, 31) in found(diagnosis, "duplicate rows")
    assert (40, 41) in found(diagnosis, "contradicting rows")
    sparse = X.copy()
    sparse[:, 4] = 0
    diagnosis = ml.doctor(csr_array(sparse), lil_array(Y[:, 2:]))
    assert found(diagnosis, "constant features") == [3, 4]
    assert 5 in found(diagnosis, "rows without features")
    assert 6 in found(diagnosis, "rows without labels")
    X[0, 0] = np.nan
    diagnosis = ml.doctor(X, Y)
    assert found(diagnosis, "not finite") == [0]
    assert diagnosis.estimator.startswith("BoostedRules")


@pytest.mark.parametrize("values", [(0, 1), (1, 0), (2, -3), (-1, 5)])
def test_a_leak_with_any_two_values(values):
    X, Y = made()
    X, Y = X.toarray(), Y.toarray()
    X[:, 7] = np.where(Y[:, 3] == 1, *values)
    assert (7, 3) in found(ml.doctor(X, Y), "leaking features")


def test_labels_that_only_test_rows_have():
    X, Y = made()
    Y = lil_array(Y)
    Y[:200, 4] = 0
    Y[250, 4] = 1
    Y = csr_array(Y)
    diagnosis = ml.doctor(X[:200], Y[:200], X[200:], Y[200:])
    assert found(diagnosis, "labels of the test rows that no training row has") == [4]
    assert "labels that are never on" not in [finding.kind for finding in diagnosis.findings]
    assert found(ml.doctor(X[:200], Y[:200]), "labels that are never on") == [4]


def test_unknown_entries_count_as_zeros():
    X, Y = made()
    unknown = Y.toarray().astype(float)
    unknown[(unknown == 0) & (np.arange(300)[:, None] % 3 == 0)] = np.nan
    assert str(ml.doctor(X, unknown)) == str(ml.doctor(X, Y))
    assert str(ml.doctor(X, csr_array(unknown))) == str(ml.doctor(X, Y))


def test_text_json_and_frame():
    X, Y = made()
    Y = csr_array(hstack([Y, Y[:, [3]]]))
    names = [f"label {chr(97 + at)}" for at in range(13)]
    diagnosis = ml.doctor(X, pd.DataFrame(Y.toarray(), columns=names))
    assert "'label d' = 'label m'" in str(diagnosis)
    assert f"Start with {diagnosis.estimator}: " in str(diagnosis)
    loaded = json.loads(diagnosis.to_json())
    assert [finding["kind"] for finding in loaded["findings"]] == diagnosis.to_frame()["kind"].tolist()
    assert loaded["shape"] == {"rows": 300, "features": 40, "labels": 13}


def test_a_first_estimator_can_be_made():
    rng = np.random.default_rng(0)
    Y = np.eye(4, dtype=int)[np.arange(40) % 4]
    wide = np.tile(np.eye(200, dtype=int), (2, 1))
    cases = [(rng.normal(size=(40, 5)), Y), (rng.normal(size=(400, 5)), wide), (csr_array(np.eye(40)), Y)]
    wanted = ["BoostedRulesClassifier", "SmoothLinkClassifier", "DiSMECClassifier"]
    for (X, labels), name in zip(cases, wanted, strict=True):
        call = ml.doctor(X, labels).estimator
        assert type(eval(call, vars(ml))).__name__ == name
    many = csr_array((np.ones(10_001), (np.arange(10_001), np.arange(10_001))))
    assert ml.doctor(many, many).estimator.startswith("LabelTreeClassifier")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.ones((3, 2)), np.ones((4, 2))), "number of rows of Y: expected 3 as in X, got 4"),
        ((np.ones(3), np.ones((3, 2))), "X must be a 2-D matrix"),
        ((np.array([["a"]]), np.ones((1, 1))), "X must be a matrix of numbers"),
        ((np.ones((3, 2)), np.full((3, 2), 2)), "Y must contain only 0, 1 and NaN"),
        ((np.ones((3, 2)), np.ones((3, 2)), np.ones((3, 2))), "must both be given"),
        ((np.ones((3, 2)), np.ones((3, 2)), np.ones((3, 1)), np.ones((3, 2))), "must have 2 features"),
        ((np.ones((0, 2)), np.ones((0, 2))), "at least one row"),
        ((np.ones((3, 2)), np.eye(3), None, None, "five"), "`cv` must be an integer >= 2"),
        ((np.ones((3, 2)), np.eye(3), None, None, True), "`cv` must be an integer >= 2"),
        ((np.ones((3, 2)), np.eye(3), None, None, 1), "`cv` must be an integer >= 2"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    more = {} if len(arguments) < 5 else {"cv": arguments[4]}
    with pytest.raises(ValueError, match=message):
        ml.doctor(*arguments[:4], **more)


def test_rows_stay_sparse(monkeypatch):
    X, Y = made()
    assert issparse(X)
    monkeypatch.setattr(csr_array, "toarray", lambda self, *_: pytest.fail("a matrix was made dense"))
    ml.doctor(X, Y, vstack([X, X]), vstack([Y, Y]))
