"""Dask arrays become a folder of rows, in the form of their first block."""

import numpy as np
import pytest
from scipy.sparse import csr_array, issparse

from manylabel.datasets import open_rows, rows
from manylabel.datasets.blocks import stored_blocks

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
    blocks = joined([X[:0], X[:2], np.asfortranarray(X[2:])])
    labels = joined([Y[:0], Y[:2], Y[2:]])
    got, of_y = stored_blocks(blocks, labels, tmp_path / "rows")
    assert isinstance(got, np.memmap)
    assert got.dtype == (dtype if np.dtype(dtype).kind == "f" else np.float64)
    np.testing.assert_array_equal(got, X)
    np.testing.assert_array_equal(of_y.toarray(), Y)
    assert rows.folder_of(got) == rows.folder_of(of_y, "Y") == tmp_path / "rows"
    assert rows.checksum_of(got) is not None
    assert all(rows.folder_of(other) is None for other in (got[:4], got.T, np.array(got), got.reshape(3, 5)))
    again, _ = stored_blocks(blocks, labels, tmp_path / "rows")
    np.testing.assert_array_equal(again, X)
    assert sorted(path.name for path in (tmp_path / "rows").glob("X.*")) == ["X.data.npy"]
    np.testing.assert_array_equal(open_rows(tmp_path / "rows")[0], X)


def test_blocks_of_mostly_zeros_become_sparse(tmp_path):
    X = np.diag([1.0, 2, 3, 4, 5])
    got, _ = stored_blocks(joined([X[:2], X[2:]]), joined([Y[:2], Y[2:]]), tmp_path / "rows")
    assert issparse(got)
    np.testing.assert_array_equal(got.toarray(), X)


def test_later_blocks_take_the_form_of_the_first(tmp_path):
    first, second = np.ones((2, 3), dtype=np.float32), csr_array(np.diag([1, 0, 2]).astype(np.float32))
    got, _ = stored_blocks(joined([first, second]), joined([Y[:2], Y[2:]]), tmp_path / "rows")
    np.testing.assert_array_equal(got, np.r_[first, second.toarray()])


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (np.ones((3, 4), np.float32), "block 1 of X must have 3 columns, like the blocks before it, got 4"),
        (np.ones((2, 3), np.float32), "block 1 of X and Y must have the same number of rows, got 2 and 3"),
        (np.ones((3, 3), np.float64), r"block 1 of X .* can be cast safely to float32, .* got float64"),
        (np.ones((3, 3), complex), r"block 1 of X .* can be cast safely to float32, .* got complex128"),
    ],
)
def test_blocks_that_do_not_fit(tmp_path, second, message):
    blocks = joined([np.ones((2, 3), np.float32), second])
    labels = joined([Y[:2], Y[2:]])
    with pytest.raises(ValueError, match=message):
        stored_blocks(blocks, labels, tmp_path / "rows")
    with pytest.raises(ValueError, match="the conversion is not complete"):
        open_rows(tmp_path / "rows")
    # The next call writes the folder from the first block on.
    zeros = joined([np.zeros((2, 3), np.float32), np.zeros((3, 3), np.float32)])
    got, _ = stored_blocks(zeros, labels, tmp_path / "rows")
    assert issparse(got)
    assert got.shape == (5, 3)


def test_the_number_of_columns_is_that_of_the_blocks(tmp_path):
    X = np.arange(1.0, 16).reshape(5, 3)
    wide = da.from_array(X, chunks=(3, 3))
    narrow = wide.map_blocks(lambda block: block[:, :2])  # dask still states three columns
    got, _ = stored_blocks(narrow, da.from_array(Y, chunks=(3, 2)), tmp_path / "rows")
    np.testing.assert_array_equal(got, X[:, :2])


def test_a_damaged_folder_of_dense_rows(tmp_path):
    X = np.ones((5, 3), np.float32)
    arrays = da.from_array(X, chunks=(3, 3)), da.from_array(Y, chunks=(3, 2))
    stored_blocks(*arrays, tmp_path / "rows")
    path = tmp_path / "rows" / "X.data.npy"
    content = path.read_bytes()
    path.write_bytes(content[:-4])
    with pytest.raises(ValueError, match=r"X\.data\.npy"):
        open_rows(tmp_path / "rows")
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"X\.data\.npy"):
        stored_blocks(*arrays, tmp_path / "rows")


def test_a_write_that_failed_is_repeated(tmp_path, monkeypatch):
    X = np.ones((5, 3), np.float32)
    arrays = da.from_array(X, chunks=(3, 3)), da.from_array(Y, chunks=(3, 2))

    def full(*_):
        raise OSError("no space left")

    for step in ("end", "finish"):
        with monkeypatch.context() as patch:
            patch.setattr(rows._Writer, step, full)
            with pytest.raises(OSError, match="no space"):
                stored_blocks(*arrays, tmp_path / "rows")
    np.testing.assert_array_equal(stored_blocks(*arrays, tmp_path / "rows")[0], X)
