"""Functions that load a small real data set, and make synthetic data sets."""

from collections.abc import Iterable, Iterator
from math import isqrt
from typing import Any, Literal, TypeAlias, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from manylabel.datasets.files import Floats, Names

__all__ = ["load_digit_attributes", "make_multilabel"]

# The digits that have each attribute. Loops and strokes are counted in printed digits. The digit 4 is an
# exception. It counts as a digit without a loop, since few people write a 4 with a closed loop.
_DIGIT_ATTRIBUTES = {
    "even": (0, 2, 4, 6, 8),
    "prime": (2, 3, 5, 7),
    "square": (0, 1, 4, 9),
    "at least five": (5, 6, 7, 8, 9),
    "multiple of three": (0, 3, 6, 9),
    "power of two": (1, 2, 4, 8),
    "Fibonacci number": (0, 1, 2, 3, 5, 8),
    "closed loop": (0, 6, 8, 9),
    "straight strokes only": (1, 4, 7),
    "a digit upside down": (0, 1, 6, 8, 9),
}


@overload
def load_digit_attributes(*, return_names: Literal[False] = ...) -> tuple[Floats, NDArray[np.int32]]: ...
@overload
def load_digit_attributes(
    *, return_names: Literal[True]
) -> tuple[Floats, NDArray[np.int32], Names, Names]: ...
def load_digit_attributes(*, return_names: bool = False) -> Any:
    """Load images of handwritten digits, with ten attributes of the digits as labels.

    The images come from :func:`sklearn.datasets.load_digits`. The digit in an image determines all labels of
    the image. The labels therefore strongly depend on one another. For example, the digit 6 is even, at least
    five, and a multiple of three. It also has a closed loop, and is still a digit when it is turned upside
    down.

    Parameters
    ----------
    return_names : bool, default=False
        Whether to also return the names of the features and labels.

    Returns
    -------
    X : ndarray of shape (1797, 64), dtype float32
        Amount of ink, from 0 to 1, in each cell of an 8 x 8 grid. The cells are in row-major order.
    Y : ndarray of shape (1797, 10), dtype int32
        1 if the digit has the attribute, else 0. The columns are: even; prime; square; at least five;
        multiple of three; power of two; Fibonacci number; closed loop (0, 6, 8, 9); straight strokes only
        (1, 4, 7); still a digit when turned upside down (0, 1, 6, 8, 9).
    feature_names : list of str
        Names of the cells, such as "row 0, column 0". The list is returned only if ``return_names`` is True.
    label_names : list of str
        Names of the attributes. The list is returned only if ``return_names`` is True.

    Examples
    --------
    >>> X, Y, _, label_names = load_digit_attributes(return_names=True)
    >>> [name for name, present in zip(label_names, Y[6]) if present]
    ['even', 'at least five', 'multiple of three', 'closed loop', 'a digit upside down']
    """
    from sklearn.datasets import load_digits

    images, digits = load_digits(return_X_y=True)
    X = (images / 16).astype(np.float32)
    Y = np.stack([np.isin(digits, having) for having in _DIGIT_ATTRIBUTES.values()], axis=1).astype(np.int32)
    if not return_names:
        return X, Y
    return X, Y, [f"row {row}, column {col}" for row in range(8) for col in range(8)], list(_DIGIT_ATTRIBUTES)


def make_multilabel(
    n_samples: int,
    n_features: int,
    n_labels: int,
    *,
    structure: Literal["blocks", "low-rank", "rules"] = "blocks",
    n_nonzero: int = 30,
    labels_per_sample: float = 3.0,
    random_state: Any = None,
) -> tuple[sparse.csr_array, sparse.csr_array]:
    """Make a sparse synthetic data set, in which the labels depend on the features in a known way.

    The features resemble word counts, and each feature is called a word. For each row, ``n_nonzero`` words
    are drawn from a set of words. The parameter ``structure`` determines this set. In the set, the words are
    sorted by their feature index. The word at position j = 0, 1, ... of the set is drawn with a probability
    that is about proportional to 1 / (j + 1). A word that is drawn k times has the value 1 + ln k. Each row
    is then scaled to unit length. Features and labels with low indices are more frequent than features and
    labels with high indices.

    Parameters
    ----------
    n_samples, n_features, n_labels : int
        Numbers of rows, features and labels, each >= 1.
    structure : {"blocks", "low-rank", "rules"}, default="blocks"
        How the labels depend on the features.

        - "blocks": Features and labels are divided into q = ``min(100, isqrt(n_labels), isqrt(n_features))``
          blocks. Feature j and label j belong to block ``j % q``. Each row belongs to one block, and all its
          labels and words come from this block. Each label is linked to eight words of its block. About half
          of the words of a row are drawn in two steps. First, a label of the row is drawn. Then one of the
          eight words of this label is drawn uniformly. The other words of the row are drawn from all words of
          the block, as described above.
        - "low-rank": There are r topics, where r is the smallest integer with r(r-1)/2 >= ``n_labels``. Each
          row has a few topics. The words of topic t are the features j with ``j % r == t``. For each word of
          a row, one of the topics of the row is drawn first. The word is then drawn from the words of this
          topic, as described above. Each label has two topics. Label ``b(b-1)/2 + a`` has the topics a and b,
          where a < b < r. A row has a label if and only if it has both topics of the label. The name
          "low-rank" refers to a matrix with one entry for each row and label. The entry is the number of
          topics that the row and the label have in common. The rank of this matrix is at most r.
        - "rules": A row has label ``b(b-1)/2 + a`` *if and only if* its features a and b are both nonzero.
          Here a < b < r, and r is the same number as for "low-rank". In each row, a few of the features 0 to
          r - 1 are nonzero. In addition, ``n_nonzero`` words are drawn from the other features r, r + 1, ...,
          which do not affect the labels.
    n_nonzero : int, default=30
        Number of words to draw per row, >= 1. A word can be drawn more than once, so fewer than ``n_nonzero``
        different words are usually drawn.
    labels_per_sample : float, default=3.0
        Approximate mean number of labels per row, from 1 to ``n_labels``. The actual mean is usually lower.
        With "blocks", a label can be drawn more than once for a row. The actual mean is therefore much lower
        unless ``labels_per_sample`` is small compared with the number of labels of a block. With "low-rank"
        and "rules", the actual mean is only slightly lower. Each label belongs to a pair of topics
        ("low-rank") or a pair of features ("rules"). There are usually more pairs than labels, so some pairs
        have no label. Such a pair adds no label to a row.
    random_state : int, RandomState or None, default=None
        Seed of all random draws. Pass an int for reproducible results.

    Returns
    -------
    X : csr_array of shape (n_samples, n_features), dtype float32
        Features. Rows have unit Euclidean length.
    Y : csr_array of shape (n_samples, n_labels), dtype int32
        Labels. A one is stored for each label that a row has.

    Raises
    ------
    ValueError
        If a parameter is out of range, or if ``n_features`` is too small. ``n_features`` must be at least r
        for "low-rank", and larger than r for "rules".

    Notes
    -----
    The time is O(n_samples * (n_nonzero + labels_per_sample)) with "blocks". With "low-rank" and "rules",
    it is O(n_samples * (n_nonzero + labels_per_sample + sqrt(n_labels))). In addition to the result, the
    function needs memory for a few thousand rows.

    Examples
    --------
    >>> X, Y = make_multilabel(1000, 500, 20, structure="rules", random_state=0)
    >>> X.shape, Y.shape
    ((1000, 500), (1000, 20))
    >>> bool((X[:, [0]] * X[:, [1]] != 0).toarray().ravel().tolist() == Y[:, [0]].toarray().ravel().tolist())
    True
    """
    from sklearn.utils import check_random_state

    sizes = {"n_samples": n_samples, "n_features": n_features, "n_labels": n_labels, "n_nonzero": n_nonzero}
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"`{name}` must be >= 1, got {size}")
    if not 1 <= labels_per_sample <= n_labels:
        raise ValueError(f"`labels_per_sample` must be from 1 to `n_labels`, got {labels_per_sample}")
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31))
    if structure == "blocks":
        chunks = _blocks(rng, n_samples, n_features, n_labels, n_nonzero, labels_per_sample)
    elif structure in ("low-rank", "rules"):
        # Every label is a pair of units, which are topics ("low-rank") or features ("rules"). The larger unit
        # of the last label is (1 + isqrt(8 n_labels - 7)) // 2.
        n_units = (1 + isqrt(8 * n_labels - 7)) // 2 + 1
        if n_features < n_units + (structure == "rules"):
            raise ValueError(
                f"`n_features` must be at least {n_units + (structure == 'rules')} for {n_labels} labels "
                f'and structure="{structure}", got {n_features}'
            )
        chunks = _pairs(
            rng, n_samples, n_features, n_units, n_nonzero, labels_per_sample, structure == "rules"
        )
    else:
        raise ValueError(f'`structure` must be "blocks", "low-rank" or "rules", got {structure!r}')
    return _assemble(chunks, n_features, n_labels)


# Number of rows that are made at a time. With this number, numpy's overhead per call is small, and temporary
# arrays are small compared with the result.
_CHUNK = 8192

# The content of a chunk: row and column numbers of its words, row and column numbers of its labels, and its
# number of rows.
_Chunk: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], int]


def _zipf(rng: np.random.Generator, size: ArrayLike) -> NDArray[np.int64]:
    """Draw a random integer k with 0 <= k < s for each element s of the array `size`.

    The probability of k is ln((k + 2) / (k + 1)) / ln(s + 1).
    """
    size = np.asarray(size)
    draws: NDArray[np.int64] = np.expm1(rng.random(size.shape) * np.log1p(size)).astype(np.int64)
    # Without this bound, rounding could give a number equal to `size`.
    np.minimum(draws, size - 1, out=draws)
    return draws


def _blocks(
    rng: np.random.Generator, n: int, d: int, m: int, n_nonzero: int, labels_per_sample: float
) -> Iterator[_Chunk]:
    n_blocks = min(100, isqrt(m), isqrt(d))
    for start in range(0, n, _CHUNK):
        n_rows = min(_CHUNK, n - start)
        block = _zipf(rng, np.full(n_rows, n_blocks))
        # Block b has the features and labels b, b + n_blocks, b + 2 n_blocks, ...
        n_block_features = (d - block - 1) // n_blocks + 1
        n_block_labels = (m - block - 1) // n_blocks + 1
        counts = 1 + rng.poisson(labels_per_sample - 1, n_rows)
        label_rows = np.repeat(np.arange(n_rows), counts)
        label = _zipf(rng, n_block_labels[label_rows])
        # Each word is drawn from all words of the block, or from the eight words of one label of the row.
        rows = np.repeat(np.arange(n_rows), n_nonzero)
        chosen = (np.cumsum(counts) - counts)[rows] + (rng.random(rows.size) * counts[rows]).astype(np.int64)
        own = (label[chosen] * 7919 + rng.integers(8, size=rows.size) * 104729) % n_block_features[rows]
        word = np.where(rng.random(rows.size) < 0.5, own, _zipf(rng, n_block_features[rows]))
        yield rows, word * n_blocks + block[rows], label_rows, label * n_blocks + block[label_rows], n_rows


def _pairs(
    rng: np.random.Generator,
    n: int,
    d: int,
    n_units: int,
    n_nonzero: int,
    labels_per_sample: float,
    rules: bool,
) -> Iterator[_Chunk]:
    # k units make k(k-1)/2 pairs. Each row has k or k + 1 units, so that the mean is as requested.
    few = int((1 + np.sqrt(1 + 8 * labels_per_sample)) / 2)
    share_of_more = (labels_per_sample - few * (few - 1) / 2) / few
    most = min(few + 1, n_units)
    frequency = np.log1p(1 / np.arange(1, n_units + 1))
    first, second = np.triu_indices(most, k=1)
    for start in range(0, n, _CHUNK):
        n_rows = min(_CHUNK, n - start)
        n_own = np.minimum(few + (rng.random(n_rows) < share_of_more), most)
        # Units are drawn without replacement. Each unit gets an independent exponential time, and the units
        # with the smallest times are drawn.
        times = rng.standard_exponential((n_rows, n_units)) / frequency
        units = np.argpartition(times, most - 1, axis=1)[:, :most]
        units = np.take_along_axis(units, np.argsort(np.take_along_axis(times, units, 1), axis=1), 1)
        a, b = units[:, first], units[:, second]
        a, b = np.minimum(a, b), np.maximum(a, b)
        has = second < n_own[:, None]
        label_rows, at = np.nonzero(has)
        labels = (b * (b - 1) // 2 + a)[label_rows, at]
        rows = np.repeat(np.arange(n_rows), n_nonzero)
        if rules:
            own_rows, at = np.nonzero(np.arange(most) < n_own[:, None])
            words = np.concatenate(
                [units[own_rows, at], n_units + _zipf(rng, np.full(rows.size, d - n_units))]
            )
            rows = np.concatenate([own_rows, rows])
        else:
            unit = units[rows, (rng.random(rows.size) * n_own[rows]).astype(np.int64)]
            words = unit + n_units * _zipf(rng, (d - unit - 1) // n_units + 1)
        yield rows, words, label_rows, labels, n_rows


def _assemble(chunks: Iterable[_Chunk], d: int, m: int) -> tuple[sparse.csr_array, sparse.csr_array]:
    X, Y = [], []
    for rows, words, label_rows, labels, n_rows in chunks:
        x = _counts(rows, words, (n_rows, d))
        x.data = 1 + np.log(x.data)
        lengths = np.sqrt(np.add.reduceat(x.data**2, x.indptr[:-1]))
        x.data /= np.repeat(lengths, np.diff(x.indptr))
        kept = labels < m
        y = _counts(label_rows[kept], labels[kept], (n_rows, m))
        y.data[:] = 1
        X.append(x)
        Y.append(y.astype(np.int32))
    return sparse.vstack(X, format="csr"), sparse.vstack(Y, format="csr")


def _counts(rows: NDArray[np.int64], cols: NDArray[np.int64], shape: tuple[int, int]) -> sparse.csr_array:
    index: type[np.signedinteger[Any]] = np.int32 if max(shape) <= np.iinfo(np.int32).max else np.int64
    pairs = (rows.astype(index), cols.astype(index))
    return sparse.coo_array((np.ones(rows.size, np.float32), pairs), shape=shape).tocsr()
