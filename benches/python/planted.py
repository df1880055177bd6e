"""Documents with one class each, of the shape of a web directory: many rows, features and classes, few words.

A row has a class, a class belongs to a topic, and each word of a row comes from all the language, from the
topic or from the class. Words are Zipf-distributed in all three, over vocabularies of the source's own, which
are themselves drawn by Zipf's law from the features: so the features' frequencies fall as in text, while
topics plant a low rank and classes what sticks out of it. Blocks of rows have their own seed: the first rows
are the same however many there are.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

BLOCK = 8192  # rows made at a time: some hundred megabytes
TOPICS = 1000
VOCABULARY = np.array([0, 2000, 50])  # of the language (all features), of a topic, of a class
SHARES = np.array([0.4, 0.8])  # of words: up to the first from the language, up to the second from the topic
WORDS = 95.0  # per row on average, repetitions included; some 70 of them differ


@dataclass(frozen=True)
class Planted:
    n_rows: int = 1_500_000
    n_features: int = 500_000
    n_labels: int = 100_000
    seed: int = 0

    def blocks(self) -> Iterator[tuple[sp.csr_matrix, sp.csr_matrix]]:
        """X of unit rows and Y of one label a row, block by block."""
        # The numbers of features say nothing of their frequency, as in data that were hashed.
        number = np.random.default_rng(self.seed).permutation(self.n_features).astype(np.int32)
        for start in range(0, self.n_rows, BLOCK):
            rng = np.random.default_rng([self.seed, start])
            n_rows = min(BLOCK, self.n_rows - start)
            # Frequencies of classes fall with the root of their rank: the rarest has half the mean.
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
        # The power of a uniform number is Zipf-distributed: P(rank) ~ 1 / rank.
        size = np.where(source == 0, self.n_features, VOCABULARY[source])
        rank = (size ** rng.random(len(row))).astype(np.int64)
        word = (self.n_features ** uniform(owner << 20 | rank)).astype(np.int64)
        common = np.where(source == 0, rank, word) - 1  # 0 is the most frequent feature

        key, times = np.unique(row * self.n_features + common, return_counts=True)
        row, common = np.divmod(key, self.n_features)
        indptr = np.searchsorted(row, np.arange(len(label) + 1))
        values = ((1 + np.log(times)) * np.log(2 + common)).astype(np.float32)  # rank as frequency's inverse
        values /= np.repeat(np.sqrt(np.add.reduceat(values**2, indptr[:-1])), np.diff(indptr))
        X = sp.csr_matrix((values, number[common], indptr), shape=(len(label), self.n_features))
        X.sort_indices()
        return X


def uniform(key: np.ndarray) -> np.ndarray:
    """Numbers in [0, 1) by the finaliser of splitmix64: a fixed draw for every key."""
    z = key.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z ^ (z >> np.uint64(31))).astype(np.float64) / 2.0**64
