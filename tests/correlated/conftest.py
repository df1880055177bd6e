"""Fixtures shared by the tests of the correlated model."""

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler


@pytest.fixture(scope="module")
def problem():
    """Standardized features and five labels that depend on each other in several ways."""
    rng = np.random.default_rng(0)
    X = StandardScaler().fit_transform(rng.normal(size=(250, 7)) @ rng.normal(size=(7, 7)))
    E = X @ rng.normal(size=(7, 5)) / 3 + rng.logistic(size=(250, 5)) - [0, 0.5, 1, 1.5, 1]
    Z = (E > 0).astype(float)
    Z[:, 3] = np.maximum(Z[:, 3], Z[:, 0] * (rng.random(250) < 0.5))
    Z[:, 4] *= 1 - Z[:, 1]
    return X, Z


@pytest.fixture(scope="module")
def weights():
    return np.random.default_rng(1).integers(1, 4, 250).astype(float)
