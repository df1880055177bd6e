"""What the tests of fits in pieces share."""

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
