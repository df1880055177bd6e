"""Make synthetic documents with one class each, whose shape resembles a web directory.

The data have many rows, features and classes, and few words per row. Each row has a class, and each class
belongs to a topic. Each word of a row comes from the vocabulary of the language, of the topic or of the
class. The words of each vocabulary follow Zipf's law. The vocabularies are drawn from the features, also by
Zipf's law. So the frequencies of features decrease as in text. Topics give the data a low-rank structure, and
classes add structure beyond it. Each block of rows has its own seed, so the first rows are the same for every
number of rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

BLOCK = 8192  # number of rows that are made at a time, which takes a few hundred megabytes
TOPICS = 1000
# Vocabulary sizes of the language, of a topic and of a class. The vocabulary of the language is all features.
VOCABULARY = np.array([0, 2000, 50])
# A uniform number decides the source of a word. Below the first bound, it is the language. Below the second
# bound, it is the topic. Otherwise it is the class.
SHARES = np.array([0.4, 0.8])
WORDS = 95.0  # mean number of words per row with repetitions; about 70 of them are different


@dataclass(frozen=True)
class Planted:
    n_rows: int = 1_500_000
    n_features: int = 500_000
    n_labels: int = 100_000
    seed: int = 0

    def blocks(self) -> Iterator[tuple[sp.csr_matrix, sp.csr_matrix]]:
        """Yield X with rows of unit length and Y with one label per row, block by block."""
        # The number of a feature does not depend on its frequency, as in hashed data.
        number = np.random.default_rng(self.seed).permutation(self.n_features).astype(np.int32)
        for start in range(0, self.n_rows, BLOCK):
            rng = np.random.default_rng([self.seed, start])
            n_rows = min(BLOCK, self.n_rows - start)
            # The frequency of a class decreases with the square root of its rank. The rarest class has half
            # the mean frequency.
            label = (self.n_labels * rng.random(BLOCK) ** 2).astype(np.int32)
            X = self.documents(label, number, rng)[:n_rows]
            one = np.ones(n_rows, np.float32), label[:n_rows], np.arange(n_rows + 1)
            yield X, sp.csr_matrix(one, shape=(n_rows, self.n_labels))

    def documents(self, label: np.ndarray, number: np.ndarray, rng: np.random.Generator) -> sp.csr_matrix:
        lengths = 1 + rng.poisson(rng.gamma(4.0, (WORDS - 1) / 4, len(label)))
        row = np.repeat(np.arange(len(label)), lengths)
        source = np.searchsorted(SHARES, rng.random(len(row)))
        topic = label % TOPICS
        owner = np.choose(source, [0, 1 + topic[row], 1 + TOPICS + label[row]])
        # A power of `size` with a uniform exponent follows Zipf's law: P(rank) ~ 1 / rank.
        size = np.where(source == 0, self.n_features, VOCABULARY[source])
        rank = (size ** rng.random(len(row))).astype(np.int64)
        word = (self.n_features ** uniform(owner << 20 | rank)).astype(np.int64)
        common = np.where(source == 0, rank, word) - 1  # rank 0 is the most frequent feature

        key, times = np.unique(row * self.n_features + common, return_counts=True)
        row, common = np.divmod(key, self.n_features)
        indptr = np.searchsorted(row, np.arange(len(label) + 1))
        # The rank of a feature replaces 1 / frequency in its weight.
        values = ((1 + np.log(times)) * np.log(2 + common)).astype(np.float32)
        values /= np.repeat(np.sqrt(np.add.reduceat(values**2, indptr[:-1])), np.diff(indptr))
        X = sp.csr_matrix((values, number[common], indptr), shape=(len(label), self.n_features))
        X.sort_indices()
        return X


def uniform(key: np.ndarray) -> np.ndarray:
    """Return numbers in [0, 1) from the finalizer of splitmix64. Each key always gives the same number."""
    z = key.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z ^ (z >> np.uint64(31))).astype(np.float64) / 2.0**64
