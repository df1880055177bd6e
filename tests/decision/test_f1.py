"""`F1Inference` against an algorithm that tries all numbers of rows, and against a fixed threshold."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array, issparse
from sklearn.metrics import f1_score
from sklearn.model_selection import cross_val_predict

from manylabel import SmoothLinkClassifier
from manylabel.datasets import make_multilabel
from manylabel.decision import F1Inference
from oracle import decision as oracle

# Few values, so that there are ties.
levels = st.sampled_from([0.0, 0.125, 0.25, 0.5, 0.75, 1.0])


@st.composite
def problems(draw):
    """Probabilities of some rows and labels of others. Probabilities are binary fractions: sums are exact."""
    c, n, m = draw(st.sampled_from([1, 2, 70])), draw(st.integers(1, 7)), draw(st.sampled_from([1, 2, 4]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return draw(levels) * rng.integers(0, 5, (n, c)) / 4, (rng.random((m, c)) < draw(levels)).astype(int)


@given(problems(), st.booleans())
def test_names_the_rows_of_the_oracle(problem, sparse):
    probabilities, Y = problem
    named = F1Inference().fit(None, csr_array(Y) if sparse else Y).predict(probabilities)
    assert issparse(named) == sparse
    expected = [
        oracle.named_for_f1(z, prior) for z, prior in zip(probabilities.T, Y.mean(axis=0), strict=True)
    ]
    np.testing.assert_array_equal(csr_array(named).toarray(), np.transpose(expected))


@given(problems())
def test_thresholds_of_training_name_what_the_algorithm_names_there(problem):
    probabilities, _ = problem
    Y = (probabilities > 0.3).astype(int)
    model = F1Inference("train").fit(probabilities, Y)
    named = model.predict(probabilities)
    np.testing.assert_array_equal(named, F1Inference().fit(None, Y).predict(probabilities))
    for row in range(len(Y)):  # one row at a time
        np.testing.assert_array_equal(model.predict(probabilities[[row]])[0], named[row])


def test_macro_f1_is_better_than_at_a_half():
    X, Y = make_multilabel(1200, 60, 30, random_state=0)
    model = SmoothLinkClassifier(n_features=200, random_state=0)
    out_of_fold = cross_val_predict(model, X[:800], Y[:800].toarray(), method="predict_proba", cv=3)
    model.fit(X[:800], Y[:800])
    probabilities = model.predict_proba(X[800:])

    def measure(labels):
        return f1_score(Y[800:].toarray(), csr_array(labels).toarray(), average="macro", zero_division=0)

    at_a_half = measure(model.predict(X[800:]))
    assert measure(F1Inference().fit(None, Y[:800]).predict(probabilities)) > at_a_half
    assert measure(F1Inference("train").fit(out_of_fold, Y[:800]).predict(probabilities)) > at_a_half


def test_bad_input():
    P, Y = np.full((3, 2), 0.5), np.eye(3, 2)
    with pytest.raises(ValueError, match=r'`threshold` must be "test" or "train", got 0.5'):
        F1Inference(0.5).fit(P, Y)
    with pytest.raises(
        ValueError, match='`probabilities` must be an array if `threshold` is "train", got None'
    ):
        F1Inference("train").fit(None, Y)
    with pytest.raises(ValueError, match="`probabilities` must have 3 rows, one for each row of Y, got 2"):
        F1Inference("train").fit(P[:2], Y)
    with pytest.raises(ValueError, match="`probabilities` must have 2 columns, one for each label, got 1"):
        F1Inference().fit(None, Y).predict(P[:, :1])
    with pytest.raises(ValueError, match=r"values of `probabilities` must be from 0 to 1, got 1.5"):
        F1Inference().fit(None, Y).predict(P + 1)
    with pytest.raises(ValueError, match="Y must contain only 0, 1 and NaN"):
        F1Inference().fit(None, Y * 2)
