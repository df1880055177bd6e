"""Models of blocks: the distribution of threads."""

from typing import ClassVar

import numpy as np
import pytest
from scipy.sparse import csr_array

import manylabel as ml
from manylabel.partition.models import fit_models


class Counted(ml.DiSMECClassifier):
    """Records the number of threads of every fit by its number of rows."""

    threads: ClassVar[dict[int, int]] = {}

    def fit(self, X, Y, sample_weight=None, *, progress=None):
        self.threads[X.shape[0]] = 1 if self.n_jobs is None else self.n_jobs
        return super().fit(X, Y, sample_weight, progress=progress)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([60, 20], [4, 4]),  # one after the other, as the first takes too long with one thread
        ([40, 39], [2, 2]),  # both at the same time
        ([20, 19, 18, 17, 16], [1, 1, 1, 1, 1]),
        ([40, 15, 14], [2, 2, 2]),
    ],
)
def test_threads_follow_the_work_of_blocks(sizes, expected):
    rng = np.random.default_rng(0)
    X = csr_array(rng.random((sum(sizes), 6), dtype=np.float32))
    Y = csr_array((rng.random((sum(sizes), 4)) < 0.5).astype(np.float32))
    rows = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    labels = [np.arange(4)] * len(sizes)
    Counted.threads = {}
    models = fit_models(
        Counted(threshold="zero"),
        X,
        Y,
        None,
        rows,
        labels,
        seed=0,
        dense=(False, False),
        threads=4,
        progress=lambda done: None,
    )
    assert [Counted.threads[size] for size in sizes] == expected
    assert all(model.n_jobs is None for model in models)
