"""Dask arrays become a folder of rows, in the form of their first block."""

import numpy as np
import pytest
from scipy.sparse import csr_array, issparse

from manylabel.datasets.blocks import DENSE, stored_blocks

da = pytest.importorskip("dask.array")

Y = np.array([[1, 0], [0, 1], [1, 1], [0, 0], [1, 0]], dtype=np.float32)


def joined(blocks):
    """A dask array of the given blocks, which does not know its number of rows."""
    import dask

    n_columns = blocks[0].shape[1]
    parts = [
        da.from_delayed(dask.delayed(lambda block=block: block)(), (np.nan, n_columns), meta=blocks[0][:0])
        for block in blocks
    ]
    return da.concatenate(parts, allow_unknown_chunksizes=True)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int32, bool])
def test_dense_blocks_stay_dense(tmp_path, dtype):
    X = np.arange(15).reshape(5, 3).astype(dtype)
    blocks = joined([X[:2], np.asfortranarray(X[2:2]), np.asfortranarray(X[2:])])
    labels = joined([Y[:2], Y[2:2], Y[2:]])
    got, of_y = stored_blocks(blocks, labels, tmp_path / "rows")
    assert isinstance(got, np.memmap)
    assert got.dtype == (dtype if np.dtype(dtype).kind == "f" else np.float64)
    np.testing.assert_array_equal(got, X)
    np.testing.assert_array_equal(of_y.toarray(), Y)
    written = (tmp_path / "rows" / DENSE).stat().st_mtime_ns
    again, _ = stored_blocks(blocks, labels, tmp_path / "rows")
    np.testing.assert_array_equal(again, X)
    assert (tmp_path / "rows" / DENSE).stat().st_mtime_ns == written


def test_blocks_of_mostly_zeros_become_sparse(tmp_path):
    X = np.diag([1.0, 2, 3, 4, 5])
    got, _ = stored_blocks(joined([X[:2], X[2:]]), joined([Y[:2], Y[2:]]), tmp_path / "rows")
    assert issparse(got)
    np.testing.assert_array_equal(got.toarray(), X)
    assert not (tmp_path / "rows" / DENSE).exists()


def test_later_blocks_take_the_form_of_the_first(tmp_path):
    first, second = np.ones((2, 3), dtype=np.float32), csr_array(np.diag([1, 0, 2]).astype(np.float32))
    got, _ = stored_blocks(joined([first, second]), joined([Y[:2], Y[2:]]), tmp_path / "rows")
    np.testing.assert_array_equal(got, np.r_[first, second.toarray()])


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (np.ones((3, 4), np.float32), r"block 1 of X must have the shape \(3, 3\), got \(3, 4\)"),
        (np.ones((2, 3), np.float32), r"block 1 of X must have the shape \(3, 3\), got \(2, 3\)"),
        (np.ones((3, 3), np.float64), "block 1 of X must have a dtype that fits in float32, got float64"),
        (np.ones((3, 3), complex), "block 1 of X must have a dtype that fits in float32, got complex128"),
    ],
)
def test_blocks_that_do_not_fit(tmp_path, second, message):
    blocks = joined([np.ones((2, 3), np.float32), second])
    labels = joined([Y[:2], Y[2:]])
    with pytest.raises(ValueError, match=message):
        stored_blocks(blocks, labels, tmp_path / "rows")
    # The next call writes the folder from the first block on.
    zeros = joined([np.zeros((2, 3), np.float32), np.zeros((3, 3), np.float32)])
    got, _ = stored_blocks(zeros, labels, tmp_path / "rows")
    assert issparse(got)
    assert got.shape == (5, 3)
