"""
Label sets with a promised recall
=================================

A librarian wants a list of tags that misses at most a fifth of the right ones, on average, and wants to
rely on it. Risk control finds the shortest lists that keep this promise on new rows.
"""

# %%
# The data
# --------
#
# The data set *bibtex* has bookmarks of articles with 159 tags.

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import manylabel as ml
from manylabel.decision import DecisionClassifier, LabelCalibrator, RiskControl

NEEDS = "bibtex"
folder = Path(os.environ["MANYLABEL_DATA"]) / NEEDS
X, Y = ml.datasets.load_xc(folder / "train.txt.gz")
X_test, Y_test = ml.datasets.load_xc(folder / "test.txt.gz")
print(f"{X.shape[0]:,} + {X_test.shape[0]:,} rows, {Y.shape[1]} tags, {Y.sum() / Y.shape[0]:.1f} per row")

# %%
# Fit
# ---
#
# A third of the rows is held out. One half of it calibrates the probabilities, and the other half sets the
# bound. The classifier must not see them: this is the price of the promise.

model = DecisionClassifier(
    ml.DiSMECClassifier(random_state=0, n_jobs=-1),
    RiskControl(0.2),
    cv=1 / 3,
    refit=False,
    n_candidates=159,
    random_state=0,
)
model.fit(X, Y)
print(f"labels with a probability of at least {model.decision_.bound_:.4f} are chosen")

# %%
# Does it hold?
# -------------


def missed(sets, truth):
    """Mean share of the true labels that a set lacks."""
    found = np.asarray(sets.multiply(truth).sum(axis=1)).ravel()
    true = np.asarray(truth.sum(axis=1)).ravel()
    return np.mean(np.where(true > 0, 1 - found / np.maximum(true, 1), 0))


sets = model.predict(X_test)
print(f"missed on the test rows: {missed(sets, Y_test):.3f} (promised: at most 0.2 on average)")
print(f"labels per row: {sets.sum() / sets.shape[0]:.1f}")

# %%
# A promise has a price: the more it promises, the longer the lists. The rule can be replaced without
# a new fit of
# the model. Here, each bound is set on one half of the test rows and measured on the other half, for twenty
# random halves.

rng = np.random.default_rng(0)
P = model.predict_proba_topk(X_test, k=159)
levels = np.array([0.05, 0.1, 0.2, 0.3, 0.4])
risks, lengths = np.zeros((20, len(levels))), np.zeros((20, len(levels)))
for split in range(20):
    half = rng.permutation(X_test.shape[0]) < X_test.shape[0] // 2
    for at, level in enumerate(levels):
        rule = RiskControl(level).fit(P[half], Y_test[half])
        chosen = rule.predict(P[~half])
        risks[split, at] = missed(chosen, Y_test[~half])
        lengths[split, at] = chosen.sum() / chosen.shape[0]
for level, risk, length in zip(levels, risks.mean(axis=0), lengths.mean(axis=0), strict=True):
    print(f"promised {level:.2f}: missed {risk:.3f} on average, {length:.1f} labels per row")

figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.0))
left.plot([0, 0.45], [0, 0.45], color="0.6", linewidth=1)
left.plot(np.tile(levels, (20, 1)), risks, ".", color="C0", alpha=0.3)
left.plot(levels, risks.mean(axis=0), "o")
left.set(xlabel="promised", ylabel="missed on new rows")
right.plot(levels, lengths.mean(axis=0), "o-", color="C1")
_ = right.set(xlabel="promised", ylabel="labels per row", ylim=0)

# %%
# The promise is about the average over calibration rows and new rows (large points). A single half may miss a
# little more or less (small points). With ``guarantee="probability"``, the bound is safe with a
# probability of
# 95 %, and lists are longer.
#
# Probabilities
# -------------
#
# Are the probabilities right? Among all pairs with a probability of about 0.4, about 40 % should be true.

calibrated = LabelCalibrator(ml.DiSMECClassifier(random_state=0, n_jobs=-1), random_state=0).fit(X, Y)
P = calibrated.predict_proba_topk(X_test, k=20)
figure, ax = plt.subplots(figsize=(4.2, 3.8))
ml.metrics.plot_reliability(Y_test, P, ax=ax)
print(f"calibration error {ml.metrics.calibration_error(Y_test, P):.4f}")
