"""Readers and a writer of local data files, a small real data set, and synthetic sets of any size.

Nothing is downloaded. Sparse label matrices hold ones of dtype int32, which does not overflow in
``Y.T @ Y`` as int8 would.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from math import isqrt
from typing import Any, Literal, TypeAlias, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy import sparse

from manylabel import _core
from manylabel.estimator.parameters import n_threads
from manylabel.estimator.validation import canonical_csr

__all__ = ["dump_xc", "load_arff", "load_digit_attributes", "load_xc", "make_multilabel"]

Path: TypeAlias = str | bytes | os.PathLike[str] | os.PathLike[bytes]
Names: TypeAlias = list[str]
Floats: TypeAlias = NDArray[np.floating[Any]]


def load_xc(
    path: Path, *, dtype: DTypeLike = np.float32, n_jobs: int | None = None
) -> tuple[sparse.csr_array, sparse.csr_array]:
    r"""Read a file in the text format of the Extreme Classification Repository [1]_.

    The first line has the numbers of examples, features and labels. Each further line is one
    example, ``label,label feature:value feature:value``. Labels and features are numbered from 0;
    a line without labels begins with a space.

    Parameters
    ----------
    path : str, bytes or path-like
        The file, plain or gzip, which is recognized by its first bytes.
    dtype : {float32, float64}, default=float32
        Type of the feature values. Each is the number nearest to the decimal in the file.
    n_jobs : int or None, default=None
        Threads; None means 1, -1 all cores. Never changes the result.

    Returns
    -------
    X : csr_array of shape (n_samples, n_features), dtype ``dtype``
        Features; zeros in the file are not stored.
    Y : csr_array of shape (n_samples, n_labels), dtype int32
        Ones where a label is present.

    Raises
    ------
    ValueError
        If the file is malformed. The message names the file and the line, what was expected and what
        was found. Windows line ends, trailing spaces, tabs, empty lines at the end, any order of
        labels and features, and repeated labels are accepted. Repeated features in an example,
        values that are not finite, another number of examples than the first line states, and lines
        longer than 256 MiB are errors.
    OSError
        If the file cannot be read, for example FileNotFoundError.
    MemoryError
        If the result does not fit in memory.

    See Also
    --------
    dump_xc : Write such a file.

    Notes
    -----
    Time is linear in the size of the file, which is read once; memory is that of the result. Index
    arrays are int32 unless a size needs int64. Pipes can be read, and Ctrl-C ends the wait for a
    silent one.

    References
    ----------
    .. [1] Bhatia et al., "The extreme classification repository: Multi-label datasets and code",
       2016.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "tiny.txt")
    >>> _ = path.write_text("2 3 4\n1,3 0:0.5 2:2\n 1:1\n")
    >>> X, Y = load_xc(path)
    >>> X.toarray()
    array([[0.5, 0. , 2. ],
           [0. , 1. , 0. ]], dtype=float32)
    >>> Y.toarray()
    array([[0, 1, 0, 1],
           [0, 0, 0, 0]], dtype=int32)
    """
    (n, d, m), x, y = _core.read_xc(os.fsdecode(path), double=_is_double(dtype), n_threads=n_threads(n_jobs))
    return _csr(x, (n, d)), _csr(y, (n, m))


def dump_xc(X: Any, Y: Any, path: Path) -> None:
    """Write a file in the text format of the Extreme Classification Repository.

    :func:`load_xc` describes the format.

    Parameters
    ----------
    X : {array-like, sparse matrix or array} of shape (n_samples, n_features)
        Features, finite. float32 is written as float32, every other type as float64.
    Y : {array-like, sparse matrix or array} of shape (n_samples, n_labels)
        0 or 1, of any numeric or bool dtype.
    path : str, bytes or path-like
        The file to write; compressed with gzip if the name ends in ``.gz``.

    Raises
    ------
    ValueError
        If X and Y do not have the same number of rows, are not 2-D, or hold other values.
    OSError
        If the file cannot be written.

    See Also
    --------
    load_xc : Read such a file.

    Notes
    -----
    Values are the shortest decimals that read back as the same number, integers without a decimal
    point; zeros are left out. Reading and writing such a file gives the same bytes.

    The text is written to a new file in the same folder, which is renamed to ``path`` when it is
    complete. An error or Ctrl-C leaves an existing file as it was.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "tiny.txt")
    >>> dump_xc([[0.5, 0, 2], [0, 1, 0]], [[0, 1], [0, 0]], path)
    >>> print(path.read_text())
    2 3 2
    1 0:0.5 2:2
     1:1
    <BLANKLINE>
    """
    x, y = _canonical(X, "X"), _canonical(Y, "Y")
    if not np.all((y.data == 0) | (y.data == 1)):
        wrong = y.data[(y.data != 0) & (y.data != 1)][0]
        raise ValueError(f"Y must hold 0 and 1 only, got {wrong}")
    _core.write_xc(os.fsdecode(path), x, y.astype(np.float32))


@overload
def load_arff(
    path: Path,
    xml: Path | None = None,
    *,
    dtype: DTypeLike = ...,
    ignore: Sequence[str] = ...,
    missing_labels: Literal["error", "absent"] = ...,
    return_names: Literal[False] = ...,
) -> tuple[Floats | sparse.csr_array, sparse.csr_array]: ...
@overload
def load_arff(
    path: Path,
    xml: Path | None = None,
    *,
    dtype: DTypeLike = ...,
    ignore: Sequence[str] = ...,
    missing_labels: Literal["error", "absent"] = ...,
    return_names: Literal[True],
) -> tuple[Floats | sparse.csr_array, sparse.csr_array, Names, Names]: ...
def load_arff(
    path: Path,
    xml: Path | None = None,
    *,
    dtype: DTypeLike = np.float32,
    ignore: Sequence[str] = (),
    missing_labels: Literal["error", "absent"] = "error",
    return_names: bool = False,
) -> Any:
    """Read a multi-label ARFF file of MULAN [1]_, MEKA [2]_ or Clus [3]_.

    The labels are determined by the first of these that is present:

    1. ``xml``, a file ``<labels><label name="..."/>...</labels>`` (MULAN); labels may be nested;
    2. an attribute of type ``hierarchical`` that lists paths ``a/b/c`` (Clus); every ancestor of
       an example's label is also a label of the example;
    3. ``-C n`` in ``@relation`` (MEKA): the first n attributes are labels, or the last if n is
       negative.

    Parameters
    ----------
    path : str, bytes or path-like
        The ARFF file, plain or gzip, with dense or sparse rows.
    xml : str, bytes, path-like or None, default=None
        The file that names the labels, plain or gzip. Takes precedence over the ARFF file.
    dtype : {float32, float64}, default=float32
        Type of the feature values.
    ignore : sequence of str, default=()
        Names of attributes to leave out, such as identifiers. Attributes of type string or date
        cannot be features and must be listed here.
    missing_labels : {"error", "absent"}, default="error"
        How to treat a missing label value ``?``: as an error, or as an absent label.
    return_names : bool, default=False
        Whether to return the names as well.

    Returns
    -------
    X : ndarray or csr_array of shape (n_samples, n_features), dtype ``dtype``
        Features; an ndarray if the rows of the file are dense. Missing values are NaN. A numeric
        attribute is one feature. A nominal attribute with two values is one 0/1 feature: 1 stands
        for yes, true, y, t or 1 (in any case) if the other value is its opposite, and otherwise for
        the value declared second. A nominal attribute with more values is one 0/1 feature per value.
    Y : csr_array of shape (n_samples, n_labels), dtype int32
        Ones where a label is present.
    feature_names : list of str
        Only if ``return_names``. "attribute=value" for nominal attributes, unless their two values
        are opposites.
    label_names : list of str
        Only if ``return_names``. In the order of the attributes.

    Raises
    ------
    ValueError
        If a file is malformed or does not determine its labels; the message names the file and the
        line, what was expected and what was found. If a line is longer than 256 MiB, the name of an
        attribute longer than 4096 bytes, or a path has more than 100 parts. If an entry of
        ``ignore`` is not an attribute.
    OSError
        If a file cannot be read, for example FileNotFoundError.
    MemoryError
        If the result does not fit in memory.

    Notes
    -----
    A sparse row omits attributes with value 0 and nominal attributes with *the value declared
    first*. So a nominal attribute with more than two values has a one in every row of X.

    Text is decoded as UTF-8, and as Latin-1 if it is not valid UTF-8. Time is linear in the size of
    the file; memory is that of the result. Pipes can be read, and Ctrl-C ends the wait for a silent
    one.

    References
    ----------
    .. [1] Tsoumakas et al., "MULAN: A Java library for multi-label learning", JMLR 12, 2011.
    .. [2] Read et al., "MEKA: A multi-label/multi-target extension to WEKA", JMLR 17, 2016.
    .. [3] Vens et al., "Decision trees for hierarchical multi-label classification", Machine
       Learning 73, 2008.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "tiny.arff")
    >>> _ = path.write_text('''@relation 'tiny: -C 2'
    ... @attribute red {0,1}
    ... @attribute blue {0,1}
    ... @attribute width numeric
    ... @attribute shape {round,square,star}
    ... @data
    ... 1,0,0.5,star
    ... ''')
    >>> X, Y, feature_names, label_names = load_arff(path, return_names=True)
    >>> feature_names, X
    (['width', 'shape=round', 'shape=square', 'shape=star'], array([[0.5, 0. , 0. , 1. ]], dtype=float32))
    >>> label_names, Y.toarray()
    (['red', 'blue'], array([[1, 0]], dtype=int32))
    """
    if missing_labels not in ("error", "absent"):
        raise ValueError(f'`missing_labels` must be "error" or "absent", got {missing_labels!r}')
    if isinstance(ignore, str):
        raise TypeError(f"`ignore` must be a sequence of names, got the str {ignore!r}")
    double = _is_double(dtype)
    x, y, feature_names, label_names = _core.read_arff(
        os.fsdecode(path),
        None if xml is None else os.fsdecode(xml),
        ignore=list(ignore),
        missing_is_absent=missing_labels == "absent",
        double=double,
    )
    shape = (len(y[0]) - 1, len(feature_names))
    X = _csr(x, shape) if isinstance(x, tuple) else x.reshape(shape)
    Y = _csr(y, (shape[0], len(label_names)))
    return (X, Y, feature_names, label_names) if return_names else (X, Y)


# Attributes by name, and the digits that have them. Loops and strokes are those of the printed digit, except
# that 4 has no loop, since few people write it closed.
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
    """Load handwritten digits with ten attributes of the digit as labels.

    The images are those of :func:`sklearn.datasets.load_digits`, which is part of scikit-learn. All
    labels follow from the digit, so they strongly depend on one another: 6 is even, at least five, a
    multiple of three, has a closed loop, and is still a digit when it is turned upside down.

    Parameters
    ----------
    return_names : bool, default=False
        Whether to return the names as well.

    Returns
    -------
    X : ndarray of shape (1797, 64), dtype float32
        Amount of ink in each cell of an 8 x 8 grid, from 0 to 1, row by row.
    Y : ndarray of shape (1797, 10), dtype int32
        Whether the digit has each attribute, 0 or 1. The columns are: even; prime; square; at least five;
        multiple of three; power of two; Fibonacci number; closed loop (0, 6, 8, 9); straight strokes only
        (1, 4, 7); still a digit when turned upside down (0, 1, 6, 8, 9).
    feature_names : list of str
        Only if ``return_names``: "row 0, column 0" and so on.
    label_names : list of str
        Only if ``return_names``.

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
    """Make a sparse data set of any size whose labels follow from its features by a known structure.

    Features resemble word counts. ``n_nonzero`` words are drawn per sample from the words that the
    structure allows, the j-th of these with a probability about proportional to 1 / (j + 1). A word
    drawn k times has the value 1 + ln k; rows are then scaled to unit length. Features and labels
    with small numbers are the frequent ones.

    Parameters
    ----------
    n_samples, n_features, n_labels : int
        Sizes, each >= 1.
    structure : {"blocks", "low-rank", "rules"}, default="blocks"
        How labels and features are related.

        - "blocks": there are b = ``min(100, isqrt(n_labels), isqrt(n_features))`` blocks. Feature j
          and label j belong to block ``j % b``. A sample belongs to one block, from which all its
          labels and words come. Half of the words are drawn from eight words per label.
        - "low-rank": there are r topics, where r is the smallest number with
          r(r-1)/2 >= ``n_labels``, and a sample has some of them. Topic t has the words
          ``j % r == t``. Label ``b(b-1)/2 + a`` is present if and only if both topics a < b are. So
          scores of rank r determine the labels: the number of topics that sample and label share.
        - "rules": with r as above, label ``b(b-1)/2 + a`` is present *if and only if* both features
          a < b < r are nonzero. All other words are features from r on.
    n_nonzero : int, default=30
        Words drawn per sample, >= 1. Rows have somewhat fewer entries, since words repeat.
    labels_per_sample : float, default=3.0
        Approximate mean number of labels per sample, from 1 to ``n_labels``. It is somewhat lower
        since labels repeat and, with "low-rank" and "rules", some pairs have no label.
    random_state : int, RandomState or None, default=None
        An int gives the same data every time.

    Returns
    -------
    X : csr_array of shape (n_samples, n_features), dtype float32
        Word weights; rows have unit Euclidean length.
    Y : csr_array of shape (n_samples, n_labels), dtype int32
        Ones where a label is present.

    Raises
    ------
    ValueError
        If a parameter is out of range, or ``n_features`` is too small: "low-rank" needs r features,
        "rules" more than r.

    Notes
    -----
    Time is O(n_samples * (n_nonzero + labels_per_sample)), plus O(n_samples * sqrt(n_labels)) with
    "low-rank" and "rules". Memory is that of the result and of a few thousand rows.

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
        # The last label is a pair whose larger unit is (1 + isqrt(8 n_labels - 7)) // 2.
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


# Rows made at a time: enough to hide numpy's overhead, few compared with the result.
_CHUNK = 8192

# Rows and columns of the words of a chunk, rows and columns of its labels, and its number of rows.
_Chunk: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], int]


def _zipf(rng: np.random.Generator, size: ArrayLike) -> NDArray[np.int64]:
    """Draw from 0 <= k < size with probability ln((k + 2) / (k + 1)) / ln(size + 1), elementwise."""
    size = np.asarray(size)
    draws: NDArray[np.int64] = np.expm1(rng.random(size.shape) * np.log1p(size)).astype(np.int64)
    # Rounding may give `size` itself.
    np.minimum(draws, size - 1, out=draws)
    return draws


def _blocks(
    rng: np.random.Generator, n: int, d: int, m: int, n_nonzero: int, labels_per_sample: float
) -> Iterator[_Chunk]:
    n_blocks = min(100, isqrt(m), isqrt(d))
    for start in range(0, n, _CHUNK):
        n_rows = min(_CHUNK, n - start)
        block = _zipf(rng, np.full(n_rows, n_blocks))
        # Features and labels of block b are b, b + n_blocks, b + 2 n_blocks, ...
        n_block_features = (d - block - 1) // n_blocks + 1
        n_block_labels = (m - block - 1) // n_blocks + 1
        counts = 1 + rng.poisson(labels_per_sample - 1, n_rows)
        label_rows = np.repeat(np.arange(n_rows), counts)
        label = _zipf(rng, n_block_labels[label_rows])
        # Each word is from the sample's block, or one of the eight of one of its labels.
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
    # k units make k(k-1)/2 pairs. Samples have k or k + 1 units, so that the mean is as requested.
    few = int((1 + np.sqrt(1 + 8 * labels_per_sample)) / 2)
    share_of_more = (labels_per_sample - few * (few - 1) / 2) / few
    most = min(few + 1, n_units)
    frequency = np.log1p(1 / np.arange(1, n_units + 1))
    first, second = np.triu_indices(most, k=1)
    for start in range(0, n, _CHUNK):
        n_rows = min(_CHUNK, n - start)
        n_own = np.minimum(few + (rng.random(n_rows) < share_of_more), most)
        # The smallest of independent exponential times give a draw without replacement.
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


def _is_double(dtype: DTypeLike) -> bool:
    wanted = np.dtype(dtype)
    if wanted not in (np.float32, np.float64):
        raise ValueError(f"`dtype` must be float32 or float64, got {wanted}")
    return bool(wanted == np.float64)


def _csr(arrays: Any, shape: tuple[int, int]) -> sparse.csr_array:
    indptr, indices, data = arrays
    matrix = sparse.csr_array((data, indices, indptr), shape=shape)
    # The reader ensures this; scipy would inspect every index to find out.
    matrix.has_canonical_format = True
    return matrix


def _canonical(matrix: Any, name: str) -> sparse.csr_array:
    """Return ``matrix`` as CSR of float32 or float64 with sorted unique indices; never changes it."""
    if not sparse.issparse(matrix):
        matrix = np.asarray(matrix)
    if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
        raise ValueError(f"{name} must be a 2-D matrix of numbers, got {matrix.ndim}-D of {matrix.dtype}")
    csr = canonical_csr(matrix, name)
    return csr if csr.dtype in (np.float32, np.float64) else csr.astype(np.float64)
