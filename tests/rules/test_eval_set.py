"""Early stopping on given rows. These rows only decide when the fit stops."""

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array

import manylabel as ml
from manylabel.datasets import make_multilabel

X, Y = make_multilabel(260, 15, 6, random_state=0)
X, Y = csr_array(X), csr_array(Y)
FIT, MORE = slice(0, 200), slice(200, 260)


def stopping(**params):
    return ml.BoostedRulesClassifier(
        60,
        search="exact",
        early_stopping=True,
        n_iter_no_change=10,
        bootstrap=False,
        random_state=0,
        **params,
    )


@pytest.mark.parametrize("loss", ["example-wise-logistic", "label-wise-logistic"])
def test_the_rules_are_those_of_a_fit_to_the_other_rows(loss):
    stopped = stopping(loss=loss).fit(X[FIT], Y[FIT], eval_set=(X[MORE], Y[MORE]))
    n_rules = len(stopped.coverage_)
    plain = ml.BoostedRulesClassifier(n_rules, loss=loss, search="exact", bootstrap=False, random_state=0)
    plain.fit(X[FIT], Y[FIT])
    np.testing.assert_array_equal(stopped.heads_.toarray(), plain.heads_.toarray())
    np.testing.assert_array_equal(stopped.body_threshold_, plain.body_threshold_)
    np.testing.assert_array_equal(stopped.label_sets_.toarray(), plain.label_sets_.toarray())
    np.testing.assert_array_equal(stopped.predict(X[MORE]).toarray(), plain.predict(X[MORE]).toarray())


def test_the_loss_is_that_of_the_given_rows():
    model = stopping(loss="label-wise-logistic").fit(X[FIT], Y[FIT], eval_set=(X[MORE], Y[MORE]))
    signs = 2 * Y[MORE].toarray() - 1.0
    losses = [
        np.log1p(np.exp(-signs * scores.astype(np.float64))).sum(axis=1).mean()
        for scores in model.staged_decision_function(X[MORE])
        if np.isfinite(scores).all()
    ]
    found = model.validation_loss_[: len(losses)]
    np.testing.assert_allclose(found / found[0], np.array(losses) / losses[0], rtol=1e-4)


def test_weights_and_other_forms():
    weights = np.linspace(0.5, 1.5, 200)
    sparse = stopping().fit(X[FIT], Y[FIT], weights, eval_set=(X[MORE], Y[MORE]))
    frame = pd.DataFrame(Y.toarray(), columns=list("abcdef"))
    dense = stopping().fit(X[FIT].toarray(), frame[:200], weights, eval_set=(X[MORE].toarray(), frame[200:]))
    np.testing.assert_array_equal(sparse.heads_.toarray(), dense.heads_.toarray())
    one = Y.toarray()[:, 0]
    assert stopping().fit(X[FIT], one[FIT], eval_set=(X[MORE], one[MORE])).one_dimensional_


@pytest.mark.parametrize(
    ("eval_set", "message"),
    [
        ((X[MORE], Y[MORE, :5]), "y of `eval_set` must have 6 labels, as in y, got 5"),
        ((X[MORE, :5], Y[MORE]), "5 features"),
        ((X[MORE], Y[FIT]), "number of rows of y of `eval_set`: expected 60"),
        ((X[MORE],), r"`eval_set` must be a pair \(X, y\)"),
        ((X[MORE], Y[MORE] * 2), "only 0, 1 and NaN"),
    ],
)
def test_wrong_rows_are_refused(eval_set, message):
    with pytest.raises(ValueError, match=message):
        stopping().fit(X[FIT], Y[FIT], eval_set=eval_set)


def test_without_early_stopping_rows_are_refused():
    with pytest.raises(ValueError, match="`eval_set` must be None if `early_stopping` is False"):
        ml.BoostedRulesClassifier(5).fit(X[FIT], Y[FIT], eval_set=(X[MORE], Y[MORE]))
