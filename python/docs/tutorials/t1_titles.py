"""
Tagging titles with 23,664 subjects
===================================

A library has 120,000 titles of books, and a vocabulary of 23,664 subjects that librarians assigned. A
tagger suggests subjects for new titles: it is fitted, measured, saved in one file, and asked why.
"""

# %%
# The data
# --------
#
# Each line of the file has a title and the identifiers of its subjects. A second file has the name of each
# identifier. ``read_texts`` reads the lines one after the other.

import gzip
import os
from pathlib import Path
from time import perf_counter, process_time

import matplotlib.pyplot as plt
import numpy as np

import manylabel as ml

NEEDS = "texts/yso-finna-en"
folder = Path(os.environ["MANYLABEL_DATA"]) / NEEDS

with gzip.open(folder / "subjects.tsv.gz", "rt", encoding="utf-8") as file:
    cells = [line.rstrip("\n").split("\t") for line in file]
subject = {cell[0].strip("<>"): cell[1] for cell in cells}

train = list(ml.tagging.read_texts(folder / "train.tsv.gz"))
test = list(ml.tagging.read_texts(folder / "test.tsv.gz"))
print(f"{len(train):,} titles for training, {len(test):,} for testing")
print("words per title:", np.mean([len(title.split()) for title, _ in train]).round(1))
print("subjects per title:", np.mean([len(ids) for _, ids in train]).round(1))

# %%
# More than a third of the subjects have fewer than ten titles. A model for each subject has to be cheap.

counts = np.sort(np.unique([name for _, ids in train for name in ids], return_counts=True)[1])[::-1]
figure, ax = plt.subplots()
ax.loglog(np.arange(1, len(counts) + 1), counts)
ax.set(xlabel="subject, from the most to the least frequent", ylabel="titles with the subject")
print(f"{np.mean(counts < 10):.0%} of the subjects have fewer than ten titles")

# %%
# Fit
# ---
#
# By default, a tagger has tf-idf features of words and a label tree.

tagger = ml.TextTagger(n_jobs=-1)
start = process_time()
tagger.fit([title for title, _ in train], [ids for _, ids in train])
print(f"fit: {process_time() - start:.1f} processor seconds for {len(tagger.label_names_):,} subjects")

# %%
# Suggest
# -------
#
# Scores above 0 are what the tagger would assign by itself.

for title in ("a history of coffee in ethiopia", "machine learning for weather forecasts"):
    print(title)
    for identifier, score in tagger.suggest(title, k=5):
        print(f"  {score:+.2f}  {subject[identifier]}")

# %%
# Measure
# -------
#
# P@k is the share of the first k suggestions that a librarian also chose, and R@k is the share of the
# librarian's subjects among the first k suggestions. Suggestions that are right but were not chosen count
# as wrong, so the true precision is higher.

titles = [title for title, _ in test]
start = perf_counter()
suggested = tagger.suggest(titles, k=10)
seconds = perf_counter() - start
print(f"{len(titles) / seconds:,.0f} titles per second")

hits = np.zeros((len(test), 10))
for at, (names, (_, ids)) in enumerate(zip(suggested, test, strict=True)):
    truth = set(ids)
    hits[at, : len(names)] = [name in truth for name, _ in names]
n_true = np.array([len(set(ids)) for _, ids in test])
k = np.arange(1, 11)
precision = hits.cumsum(axis=1).mean(axis=0) / k
recall = (hits.cumsum(axis=1) / n_true[:, None]).mean(axis=0)
for at in (1, 3, 5):
    print(f"P@{at} {100 * precision[at - 1]:.1f} %   R@{at} {100 * recall[at - 1]:.1f} %")

figure, ax = plt.subplots()
ax.plot(k, 100 * precision, "o-", label="precision")
ax.plot(k, 100 * recall, "s-", label="recall")
ax.set(xlabel="number of suggestions", ylabel="percent", ylim=0, xticks=k)
_ = ax.legend()

# %%
# Where is it good? Subjects with few titles are found least often.

frequency = dict(zip(*np.unique([name for _, ids in train for name in ids], return_counts=True), strict=True))
edges = [1, 10, 30, 100, 10**6]
found, total = np.zeros(4), np.zeros(4)
for names, (_, ids) in zip(suggested, test, strict=True):
    first = {name for name, _ in names}
    for identifier in set(ids):
        group = np.searchsorted(edges, frequency.get(identifier, 0), side="right") - 1
        if group >= 0:
            total[group] += 1
            found[group] += identifier in first
figure, ax = plt.subplots(figsize=(6.4, 2.4))
ax.barh(["1 to 9", "10 to 29", "30 to 99", "100 and more"], 100 * found / total, height=0.6)
_ = ax.set(xlabel="found among ten suggestions, percent", ylabel="training titles\nof the subject")

# %%
# Ask why
# -------
#
# The contributions of the words to the score of a subject:

title = "a history of coffee in ethiopia"
best, _ = tagger.suggest(title, k=1)[0]
print(subject[best])
figure, ax = plt.subplots(figsize=(6.4, 2.6))
ml.plotting.explanation(tagger.explain(title, best), ax=ax)
_ = ax.set_title(f"{title}: {subject[best]}")

# %%
# Save
# ----
#
# One file has the vocabulary, the identifiers and the weights. A service maps it into memory.

tagger.save("tagger.safetensors")
start = perf_counter()
loaded = ml.load("tagger.safetensors")
seconds = perf_counter() - start
print(f"{Path('tagger.safetensors').stat().st_size / 1e6:.0f} MB, loaded in {1000 * seconds:.0f} ms")
Path("tagger.safetensors").unlink()

# %%
# Next steps: :doc:`decision rules </guide/decisions>` choose how many subjects a title gets.
# :doc:`Serving with eight workers <t7_serving>` puts the file behind a service.
