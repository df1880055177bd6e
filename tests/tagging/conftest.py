"""A small corpus of generated texts whose words determine their labels."""

import numpy as np
import pytest

WORDS = {
    "cats": ["cat", "kitten", "purr"],
    "dogs": ["dog", "puppy", "bark"],
    "tax": ["tax", "income", "levy"],
    "law": ["law", "court", "statute"],
    "Ünïcode 日本": ["日本", "straße", "ñandú"],
}
FILLERS = ["the", "of", "a", "and", "report", "study", "new"]


def corpus(n_texts, seed):
    """Texts and the lists of their label names."""
    rng = np.random.default_rng(seed)
    names = list(WORDS)
    texts, labels = [], []
    for _ in range(n_texts):
        chosen = [names[at] for at in rng.choice(len(names), rng.integers(0, 3), replace=False)]
        words = [rng.choice(WORDS[name]) for name in chosen for _ in range(2)]
        words += list(rng.choice(FILLERS, 3))
        texts.append(" ".join(rng.permutation(words)))
        labels.append(chosen)
    return texts, labels


@pytest.fixture(scope="session")
def train():
    return corpus(120, 0)


@pytest.fixture(scope="session")
def held():
    return corpus(40, 1)[0]
