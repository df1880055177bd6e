"""
A hundred thousand labels
=========================

With 100,000 labels, a score for each pair of a row and a label would take 40 GB for 100,000 rows. A label
tree computes only a few of them. This tutorial plans, fits and measures such a model on generated data.
"""

# %%
# The data
# --------
#
# The data are **generated**: 90,000 rows for training, 10,000 for testing, 50,000 words, 100,000 labels.
# The labels of a row determine about half of its words. Most labels have one or two rows.

from pathlib import Path
from time import perf_counter

import matplotlib.pyplot as plt
import numpy as np

import manylabel as ml

X, Y = ml.datasets.make_multilabel(100_000, 50_000, 100_000, random_state=0)
train, test = slice(0, 90_000), slice(90_000, None)
print(f"X has {X.nnz / X.shape[0]:.0f} words per row, Y has {Y.nnz / X.shape[0]:.1f} labels per row")
print(f"{np.sum(np.diff(Y[train].tocsc().indptr) > 0):,} labels have a training row")

# %%
# Plan
# ----
#
# ``plan`` fits samples and forecasts the fit to all rows.

model = ml.LabelTreeClassifier(random_state=0, n_jobs=-1)
print(ml.plan(model, X[train], Y[train], memory="4GB"))

# %%
# Fit
# ---

start = perf_counter()
model.fit(X[train], Y[train])
print(f"fit: {perf_counter() - start:.1f} s")
model.save("tree.safetensors")
print(f"model: {Path('tree.safetensors').stat().st_size / 1e6:.0f} MB")
Path("tree.safetensors").unlink()

# %%
# Predict
# -------
#
# The beam is the number of nodes of each level that a row visits. A larger beam finds more labels and takes
# more time. It can be chosen without a new fit.

beams = (1, 2, 4, 7, 14, 28)
rates, precisions = [], []
model.predict_topk(X[test][:10])  # the first prediction prepares the model
for beam in beams:
    start = perf_counter()
    top = model.predict_topk(X[test], k=5, beam=beam)
    rates.append(10_000 / (perf_counter() - start))
    precisions.append(ml.metrics.precision_at_k(Y[test], top, k=(1, 3, 5)))
    print(f"beam {beam:2}: {rates[-1]:9,.0f} rows/s, P@1, P@3, P@5 {precisions[-1].round(3)}")

figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.0))
for at, name in enumerate(("P@1", "P@3", "P@5")):
    left.plot(beams, [100 * p[at] for p in precisions], "o-", label=name)
left.set(xlabel="beam", ylabel="percent", xscale="log", xticks=beams, xticklabels=beams)
left.legend()
left.minorticks_off()
right.plot(beams, rates, "o-")
right.set(
    xlabel="beam", ylabel="rows per second", xscale="log", yscale="log", xticks=beams, xticklabels=beams
)
right.minorticks_off()

# %%
# One row at a time, as a service would ask:

times = []
for at in range(500):
    row = X[[90_000 + at]]
    start = perf_counter()
    model.predict_topk(row, k=5)
    times.append(1e6 * (perf_counter() - start))
print(f"one row: median {np.median(times):.0f} µs, 99th percentile {np.percentile(times, 99):.0f} µs")

# %%
# ``weights="int8"`` in the constructor stores each weight in one byte instead of four. Every weight also
# has two bytes for the number of its label, so the weights take about half of the memory.
#
# More? :doc:`Beyond one machine </generated/adopted/scale>` has a forecast for a million labels, with its
# assumptions.
