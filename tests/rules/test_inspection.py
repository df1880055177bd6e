"""Text, frames, explanations and plots of rules that are written by hand."""

import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from manylabel import BoostedRulesClassifier
from manylabel.rules import export_text, plot_importance

FEATURES, LABELS = ["alpha", "beta", "color"], ["red", "green", "blue", "grey"]


def by_hand(bodies, heads, coverage, n_features=3):
    """A fitted model: for each rule its conditions (feature, operator, threshold) and its head."""
    model = BoostedRulesClassifier()
    conditions = [condition for body in bodies for condition in body]
    model.body_indptr_ = np.cumsum([0, *map(len, bodies)], dtype=np.int64)
    model.body_feature_ = np.array([feature for feature, *_ in conditions], dtype=np.int32)
    model.body_operator_ = np.array([operator for _, operator, _ in conditions], dtype=np.uint8)
    model.body_threshold_ = np.array([threshold for *_, threshold in conditions], dtype=np.float32)
    model.heads_ = csr_array(np.array(heads, dtype=np.float32))
    model.coverage_ = np.array(coverage, dtype=np.float64)
    model.validation_loss_ = np.zeros(0)
    model.label_sets_ = csr_array(np.ones((1, model.heads_.shape[1]), dtype=np.float32))
    model.label_set_weights_ = np.ones(1)
    model.classes_ = np.arange(model.heads_.shape[1])
    model.sparse_output_ = False
    model.n_features_in_ = n_features
    return model


@pytest.fixture
def model():
    return by_hand(
        [[], [(0, 1, 0.5), (1, 0, 1.25)], [(0, 1, 0.25), (2, 2, 3), (0, 0, 0.5), (0, 1, 0.125)], [(2, 3, 1)]],
        [[-2, -2, -1.5, -2], [0.8, 0, 0, 0], [0, 0.3, 0.304, -0.1], [0, 0, 0, -0.004]],
        [1200, 123, 40.5, 7],
    )


def test_text(model):
    assert export_text(model, feature_names=FEATURES, label_names=LABELS).splitlines() == [
        "always  (covers 1,200)",
        "    -2.00 red, green, grey",
        "    -1.50 blue",
        "if alpha > 0.5 and beta <= 1.25 then +0.80 red  (covers 123)",
        "if 0.25 < alpha <= 0.5 and color == 3 then  (covers 40.5)",
        "    +0.30 green, blue",
        "    -0.10 grey",
        "if color != 1 then -0.00 grey  (covers 7)",
    ]


def test_text_in_short(model):
    text = export_text(model, max_rules=3, max_labels=1, decimals=1)
    assert text.splitlines() == [
        "always  (covers 1,200)",
        "    -2.0 label 0 and 2 more",
        "    -1.5 1 other labels",
        "if feature 0 > 0.5 and feature 1 <= 1.25 then +0.8 label 0  (covers 123)",
        "if 0.25 < feature 0 <= 0.5 and feature 2 == 3 then  (covers 40.5)",
        "    +0.3 label 2 and 1 more",
        "    -0.1 1 other labels",
        "... and 1 more rules",
    ]
    model.heads_ = csr_array(np.arange(1, 17, dtype=np.float32).reshape(4, 4))
    assert export_text(model, max_rules=1, max_labels=2).splitlines()[1:4] == [
        "    +4.00 label 3",
        "    +3.00 label 2",
        "    +1.00 to +2.00 2 other labels",
    ]


def test_every_label_can_be_named():
    model = by_hand([[]], [np.linspace(0.02, 2, 159)], [5])
    text = export_text(model, max_labels=None)
    assert all(f" label {at}\n" in f"{text}\n" for at in range(159))
    assert text.count("\n") == 159
    assert "149 other labels" in export_text(model)


def test_zeros_are_no_scores():
    model = by_hand([[]], [[1, 2]], [3])
    model.heads_.data[:] = 0
    assert export_text(model) == "always nothing  (covers 3)"
    assert model.to_frame()["n_labels"].tolist() == [0]
    assert model.explain(np.zeros(3), label=0) == []


@pytest.mark.parametrize(
    ("threshold", "digits"),
    [
        (0.5, "0.5"),
        (0.123456, "0.1235"),
        (2019, "2019"),
        (123456, "123456"),
        (-70000.5, "-70000"),
        (1e30, "1e+30"),
    ],
)
def test_digits_of_thresholds(threshold, digits):
    model = by_hand([[(0, 0, threshold)]], [[1]], [1])
    assert f"if feature 0 <= {digits} then" in export_text(model)


values = st.integers(-8, 8).map(lambda eighths: eighths / 8)
bodies = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), values), min_size=1, max_size=6)


@given(bodies, st.lists(st.tuples(values, values, values), min_size=1, max_size=20))
def test_a_printed_rule_covers_what_the_rule_covers(body, rows):
    """Printed conditions are Python expressions."""
    model = by_hand([[], body], [[1.0], [1.0]], [1, 1])
    condition = model.to_frame(feature_names=list("abc"))["conditions"][1]
    covered = [eval(condition, dict(zip("abc", row, strict=True))) for row in rows]
    np.testing.assert_array_equal(model.decision_function(rows)[:, 0] == 2, covered)


def test_frame(model):
    frame = model.to_frame(feature_names=FEATURES, label_names=LABELS)
    expected = pd.DataFrame(
        {
            "conditions": [
                "", "alpha > 0.5 and beta <= 1.25", "0.25 < alpha <= 0.5 and color == 3", "color != 1",
            ],
            "head": [
                "-2.00 red, green, grey; -1.50 blue", "+0.80 red", "+0.30 green, blue; -0.10 grey",
                "-0.00 grey",
            ],
            "n_conditions": [0, 2, 4, 1],
            "coverage": [1200, 123, 40.5, 7],
            "n_labels": [4, 1, 3, 1],
            "strongest_label": ["red", "red", "blue", "grey"],
            "score": [-2, 0.8, 0.304, -0.004],
        },
        index=pd.RangeIndex(4, name="rule"),
    )  # fmt: skip
    pd.testing.assert_frame_equal(frame, expected, check_exact=False, atol=1e-7)
    model.validation_loss_ = np.array([3.0, 2.5, 2.0, 1.0])
    assert model.to_frame()["validation_loss"].tolist() == [3, 2.5, 2, 1]


def test_explanation(model):
    row = np.array([0.375, np.nan, 3])
    for x in (row, row.tolist(), row[None], csr_array(row[None])):
        fired = model.explain(x)
        assert [each.rule for each in fired] == [0, 2, 3]
        total = np.zeros(4, dtype=np.float32)
        for each in fired:
            total[each.labels] += each.scores
        np.testing.assert_allclose(total, model.decision_function(row[None])[0], rtol=1e-6)
    assert [each.coverage for each in fired] == [1200, 40.5, 7]
    assert repr(model.explain(row, feature_names=FEATURES, label_names=LABELS)[-1]) == (
        "3: if color != 1 then -0.00 grey  (covers 7)"
    )
    assert [each.rule for each in model.explain(row, label=3)] == [0, 2, 3]
    model.heads_[[2], [3]] = 9
    assert [each.rule for each in model.explain(row, label=3)] == [2, 0, 3]
    assert [each.rule for each in model.explain(row, label=0)] == [0]


def test_importances(model):
    moved = np.array([0, 0.8 * 123, 0.704 * 40.5, 0.004 * 7])
    features = [moved[1] / 2 + 0.75 * moved[2], moved[1] / 2, moved[2] / 4 + moved[3]]
    np.testing.assert_allclose(model.feature_importances_, features / moved.sum(), rtol=1e-6)
    labels = [0.8 * 123, 0.3 * 40.5, 0.304 * 40.5, 0.1 * 40.5 + 0.004 * 7]
    np.testing.assert_allclose(model.label_importances_, labels / moved.sum(), rtol=1e-6)


def test_importances_without_conditions():
    model = by_hand([[]], [[1, 2]], [5])
    assert model.feature_importances_.tolist() == [0, 0, 0]
    assert model.label_importances_.tolist() == [0, 0]


def test_bars(model):
    plt = pytest.importorskip("matplotlib.pyplot")
    features, labels = plot_importance(model, feature_names=FEATURES, label_names=LABELS, max_bars=2)
    assert [tick.get_text() for tick in features.get_yticklabels()] == ["alpha", "beta"]
    assert [tick.get_text() for tick in labels.get_yticklabels()] == ["red", "blue"]
    widths = [bar.get_width() for bar in labels.patches]
    np.testing.assert_allclose(widths, model.label_importances_[[0, 2]])
    assert features.yaxis_inverted()
    axes = plt.subplots(2)[1]
    assert plot_importance(model, axes=axes).tolist() == axes.tolist()
    assert [tick.get_text() for tick in axes[0].get_yticklabels()] == ["feature 0", "feature 1", "feature 2"]
    plt.close("all")


def test_names_of_a_frame_are_used(model):
    model.feature_names_in_ = np.array(FEATURES, dtype=object)
    assert "if alpha > 0.5 and beta <= 1.25 then" in export_text(model)
    fired = model.explain(pd.DataFrame([[1.0, 1.0, 1.0]], columns=FEATURES))
    assert fired[1].text.startswith("if alpha > 0.5 and")


def test_misuse(model):
    with pytest.raises(ValueError, match="`feature_names` must be a sequence of 3 names, got 2"):
        export_text(model, feature_names=["a", "b"])
    with pytest.raises(ValueError, match="`label_names` must be a sequence of 4 names, got 1"):
        model.to_frame(label_names=["a"])
    for name in ("max_rules", "max_labels"):
        with pytest.raises(ValueError, match=f"`{name}` must be an integer >= 1, got 0"):
            export_text(model, **{name: 0})
    with pytest.raises(ValueError, match="`decimals` must be an integer >= 0, got -1"):
        export_text(model, decimals=-1)
    with pytest.raises(ValueError, match="`x` must have exactly one row, got 2"):
        model.explain(np.zeros((2, 3)))
    with pytest.raises(ValueError, match=r"X has 2 features, but .* is expecting 3 features"):
        model.explain(np.zeros(2))
    with pytest.raises(ValueError, match="`label` must be an integer from 0 to 3, got 4"):
        model.explain(np.zeros(3), label=4)
    with pytest.raises(ValueError, match="`axes` must have two entries, for features and labels"):
        plot_importance(model, axes=[None])
    for question in (export_text, plot_importance, BoostedRulesClassifier.to_frame):
        with pytest.raises(ValueError, match="is not fitted yet"):
            question(BoostedRulesClassifier())


def test_without_the_packages_that_draw(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(
        ModuleNotFoundError, match="`to_frame` requires pandas; install it with: pip install pandas"
    ):
        model.to_frame()
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(
        ModuleNotFoundError,
        match=r"plots need matplotlib, which is not installed; run: pip install 'manylabel\[plot\]'",
    ):
        plot_importance(model)
