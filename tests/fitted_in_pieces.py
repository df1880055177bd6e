"""What the tests of fits in pieces share."""

import numpy as np
from scipy import sparse

from manylabel.datasets import make_multilabel


def saved(model, path):
    """Save a model and return the bytes of its file."""
    model.save(path)
    return path.read_bytes()


def with_empty_columns(n_samples, n_features, n_labels):
    """Make X and Y with a feature and a label that occur in no row."""
    X, Y = make_multilabel(n_samples, n_features, n_labels, n_nonzero=20, random_state=2)
    X, Y = X.tolil(), Y.tolil()
    X[:, 5] = 0
    Y[:, 7] = 0
    return sparse.csr_array(X), sparse.csr_array(Y)


def with_unknown(Y):
    """Mark some entries of Y, zeros and ones, as unknown."""
    marked = sparse.random_array(Y.shape, density=0.02, rng=np.random.default_rng(0), format="csr")
    marked.data[:] = np.nan
    return sparse.csr_array(Y.astype(np.float32) + marked)


def assert_same_bits(got, expected):
    assert type(got) is type(expected)
    assert got.get_params() == expected.get_params()
    attributes = {name for name in vars(expected) if name.endswith("_")}
    assert {name for name in vars(got) if name.endswith("_")} == attributes
    for name in attributes:
        mine, other = getattr(got, name), getattr(expected, name)
        if hasattr(other, "indptr"):
            assert mine.shape == other.shape
            for part in ("indptr", "indices", "data"):
                assert getattr(mine, part).dtype == getattr(other, part).dtype
                assert getattr(mine, part).tobytes() == getattr(other, part).tobytes()
        elif isinstance(other, np.ndarray):
            assert mine.dtype == other.dtype
            assert mine.tobytes() == other.tobytes()
        else:
            assert type(mine) is type(other)
            assert mine == other
