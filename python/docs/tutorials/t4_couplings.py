"""
Couplings you can see
=====================

People described the mood of songs with six words. Some moods go together, others exclude each other.
CorrLog learns the couplings between labels along with the weights of features, and predicts whole label
sets.
"""

# %%
# The data
# --------
#
# The data set *emotions* has 391 songs for training and 202 for testing. The 72 features describe rhythm
# and timbre.

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import f1_score, hamming_loss, zero_one_loss

import manylabel as ml

NEEDS = "_arff"
folder = Path(os.environ["MANYLABEL_DATA"]) / NEEDS

X, Y, features, moods = ml.datasets.load_arff(
    folder / "emotions-train.arff.gz", folder / "emotions.xml.gz", return_names=True
)
X_test, Y_test = ml.datasets.load_arff(folder / "emotions-test.arff.gz", folder / "emotions.xml.gz")
print(f"{X.shape[0]} + {X_test.shape[0]} songs, {X.shape[1]} features; moods: {', '.join(moods)}")

# %%
# Fit
# ---
#
# ``threshold="zero"`` predicts the most probable set of moods.

model = ml.CorrLogClassifier(threshold="zero").fit(X, Y)
figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.8))
model.plot_correlations(label_names=moods, axes=axes)
axes[0].set_title("all couplings")
_ = axes[1].set_title("the strongest couplings", pad=36)

# %%
# Blue labels pull each other up, and red ones push each other down. A coupling is not a correlation: it is
# what two labels tell about each other *when the features and all other labels are known*.
#
# What do couplings change?
# -------------------------

alone = ml.CorrLogClassifier(l2_pairs=float("inf"), threshold="zero").fit(X, Y)
print(f"{'':22}{'0/1 loss':>9}{'Hamming':>9}{'F1':>7}")
for name, fitted in (("without couplings", alone), ("with couplings", model)):
    sets = fitted.predict(X_test)
    print(
        f"{name:22}{zero_one_loss(Y_test, sets):9.3f}{hamming_loss(Y_test, sets):9.3f}"
        f"{f1_score(Y_test, sets, average='samples', zero_division=0):7.3f}"
    )

# %%
# With 202 test songs, differences of a few hundredths are within chance. The :doc:`user guide
# </guide/correlated>` has cross-validated figures of seven data sets.
#
# Sets that nobody has
# --------------------
#
# Without couplings, each mood is decided by itself. Some predicted sets then occur in no training song.


def unseen(sets):
    known = {tuple(row) for row in Y}
    return np.mean([tuple(row) not in known for row in sets])


print(f"unseen sets without couplings: {unseen(alone.predict(X_test)):.1%}")
print(f"unseen sets with couplings:    {unseen(model.predict(X_test)):.1%}")
print(f"unseen sets in the test songs: {unseen(Y_test):.1%}")

# %%
# One song
# --------
#
# The parts of a score are features and couplings to the other moods of the predicted set.

song = 7
best = int(model.decision_function(X_test[[song]])[0].argmax())
figure, ax = plt.subplots(figsize=(6.4, 3.4))
_ = ml.plotting.explanation(model.explain(X_test[[song]], best), max_parts=8, ax=ax)
print("predicted:", [mood for mood, on in zip(moods, model.predict(X_test[[song]])[0], strict=True) if on])
print("true:     ", [mood for mood, on in zip(moods, Y_test[song], strict=True) if on])

# %%
# A path of penalties
# -------------------
#
# ``corrlog_path`` fits one model for each penalty. With a large penalty, the couplings vanish one after the
# other.

penalties = np.geomspace(0.3, 0.003, 12)
models = ml.correlated.corrlog_path(X, Y, penalties)
figure, ax = plt.subplots()
pairs = [(i, j) for i in range(6) for j in range(i)]
for i, j in pairs:
    ax.semilogx(penalties, [fitted.correlations_[[i]].toarray()[0, j] for fitted in models], linewidth=1)
_ = ax.set(xlabel="penalty", ylabel="coupling")
ax.invert_xaxis()
