"""Functions that read and write text files.

Nothing is downloaded. In a label matrix, NaN marks an unknown entry: nobody checked whether the row has the
label. Label matrices without NaN have dtype int32, because ``Y.T @ Y`` could overflow with int8. Label
matrices with NaN have dtype float32, because NaN is a float.
"""

import os
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse

from manylabel import _core
from manylabel.estimator.parameters import n_threads
from manylabel.estimator.validation import canonical_csr

__all__ = ["dump_xc", "load_arff", "load_xc", "with_unknown"]

Path: TypeAlias = str | bytes | os.PathLike[str] | os.PathLike[bytes]
Names: TypeAlias = list[str]
Floats: TypeAlias = NDArray[np.floating[Any]]


def load_xc(
    path: Path, *, dtype: DTypeLike = np.float32, n_jobs: int | None = None
) -> tuple[sparse.csr_array, sparse.csr_array]:
    r"""Read a file in the text format of the Extreme Classification Repository [1]_.

    The first line has the numbers of examples, features and labels. Each further line is one example, in the
    form ``label,label feature:value feature:value``. An example becomes a row of X and a row of Y. Labels and
    features are numbered from 0. If an example has no labels, its line begins with a space. A question mark
    after a label marks an unknown label: nobody checked whether the example has the label. For example,
    ``3,7?`` means that label 7 is unknown. The question mark is an extension of the format.

    Parameters
    ----------
    path : str, bytes or path-like
        The file to read, which may be compressed with gzip. The first bytes of the file show whether it is
        compressed.
    dtype : {float32, float64}, default=float32
        Type of the feature values. Each decimal in the file is rounded to the nearest number of this type.
    n_jobs : int or None, default=None
        Number of threads. None means 1 thread, and -1 means all cores. The number of threads never changes
        the result.

    Returns
    -------
    X : csr_array of shape (n_samples, n_features), dtype ``dtype``
        Features. Zeros in the file are not stored in X.
    Y : csr_array of shape (n_samples, n_labels), dtype int32, or float32 if Y has unknown entries
        Labels. A one is stored for each label that a row has, and NaN for each unknown label.

    Raises
    ------
    ValueError
        If the file is malformed. Possible reasons are a feature that an example has twice, a value that is
        not finite, and a wrong number of examples in the first line. The error is also raised if a line is
        longer than 256 MiB. The message states the file, the line, the expected text and the text in the
        file.
    OSError
        If the file cannot be read. The error is a FileNotFoundError if the file does not exist.
    MemoryError
        If the result does not fit in memory.

    See Also
    --------
    dump_xc : Write a file in this format.

    Notes
    -----
    Labels and features may be in any order, and labels may be repeated. Windows line ends, tabs, trailing
    spaces, and empty lines at the end are accepted.

    The file is read once. The time is linear in the size of the file. The function needs little more memory
    than the result. Index arrays have dtype int32, or int64 if int32 is too small. The file may be a pipe.
    Ctrl-C also works while the function waits for data from the pipe.

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
    (n, d, m), x, y, unknown = _core.read_xc(
        os.fsdecode(path), double=_is_double(dtype), n_threads=n_threads(n_jobs)
    )
    return _csr(x, (n, d)), with_unknown(_csr(y, (n, m)), unknown)


def dump_xc(X: Any, Y: Any, path: Path) -> None:
    """Write a file in the text format of the Extreme Classification Repository.

    :func:`load_xc` describes the format.

    Parameters
    ----------
    X : {array-like, sparse matrix or array} of shape (n_samples, n_features)
        Features. All values must be finite. float32 values are written with float32 precision. Values of
        other numeric dtypes are written with float64 precision.
    Y : {array-like, sparse matrix or array} of shape (n_samples, n_labels)
        0/1 indicator matrix, of any numeric or bool dtype. NaN marks unknown entries.
    path : str, bytes or path-like
        The file to write. It is compressed with gzip if its name ends in ``.gz``.

    Raises
    ------
    ValueError
        If X and Y are not 2-D matrices with the same number of rows, if X has values that are not finite, or
        if Y has values other than 0, 1 and NaN.
    OSError
        If the file cannot be written.

    See Also
    --------
    load_xc : Read a file in this format.

    Notes
    -----
    Each value is written as the shortest decimal that is read back as the same number. Whole numbers, such as
    2.0, are written without a decimal point. Zeros are left out. If the file is read with the precision in
    which it was written (float32 or float64), and is then written again, the new file is identical.

    The text is written to a temporary file in the same folder. When the temporary file is complete, it is
    renamed to ``path``. After an error or Ctrl-C, an existing file at ``path`` is unchanged.

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
    valid = (y.data == 0) | (y.data == 1) | np.isnan(y.data)
    if not np.all(valid):
        wrong = y.data[~valid][0]
        raise ValueError(f"Y must contain only 0, 1 and NaN, got {wrong}")
    _core.write_xc(os.fsdecode(path), x, y.astype(np.float32))


@overload
def load_arff(
    path: Path,
    xml: Path | None = None,
    *,
    dtype: DTypeLike = ...,
    ignore: Sequence[str] = ...,
    missing_labels: Literal["error", "absent", "unknown"] = ...,
    return_names: Literal[False] = ...,
) -> tuple[Floats | sparse.csr_array, sparse.csr_array]: ...
@overload
def load_arff(
    path: Path,
    xml: Path | None = None,
    *,
    dtype: DTypeLike = ...,
    ignore: Sequence[str] = ...,
    missing_labels: Literal["error", "absent", "unknown"] = ...,
    return_names: Literal[True],
) -> tuple[Floats | sparse.csr_array, sparse.csr_array, Names, Names]: ...
def load_arff(
    path: Path,
    xml: Path | None = None,
    *,
    dtype: DTypeLike = np.float32,
    ignore: Sequence[str] = (),
    missing_labels: Literal["error", "absent", "unknown"] = "error",
    return_names: bool = False,
) -> Any:
    """Read a multi-label ARFF file of MULAN [1]_, MEKA [2]_ or Clus [3]_.

    Some of the attributes in an ARFF file are labels. The labels are determined by the first source in this
    list that is present:

    1. The file ``xml``, which MULAN uses: ``<labels><label name="..."/>...</labels>``. The file lists the
       names of the attributes that are labels. Label elements may be nested.
    2. An attribute of type ``hierarchical``, which Clus uses. The declaration of this attribute lists the
       labels as paths. If a row has the label ``a/b/c``, the row also has the labels ``a/b`` and ``a``.
    3. The option ``-C n`` in ``@relation``, which MEKA uses. The first n attributes are labels. If n is
       negative, the last -n attributes are labels.

    Parameters
    ----------
    path : str, bytes or path-like
        The ARFF file, which may be compressed with gzip. The rows in the file may be dense or sparse.
    xml : str, bytes, path-like or None, default=None
        The file that lists the labels, which may be compressed with gzip. If this argument is given, label
        declarations in the ARFF file are ignored.
    dtype : {float32, float64}, default=float32
        Type of the feature values.
    ignore : sequence of str, default=()
        Names of attributes to leave out, such as identifiers. Attributes of type string or date cannot be
        features and must be listed here.
    missing_labels : {"error", "absent", "unknown"}, default="error"
        What to do if the value of a label is missing (``?``). "error" raises a ValueError, "absent" treats
        the label as absent, and "unknown" stores NaN in Y to mark an unknown entry. A hierarchical attribute
        contains all labels of a row. If its value is missing, "absent" means that the row has no labels, and
        the other two choices raise a ValueError.
    return_names : bool, default=False
        Whether to also return the names of the features and labels.

    Returns
    -------
    X : ndarray or csr_array of shape (n_samples, n_features), dtype ``dtype``
        Features. X is an ndarray if the rows of the file are dense, and a csr_array if they are sparse.
        Missing values are NaN. A numeric attribute becomes one feature. A nominal attribute with two values
        becomes one 0/1 feature. If the two values are opposites, such as yes and no, the feature is 1 for the
        positive value. Positive values are yes, true, y, t and 1, in upper or lower case. If the two values
        are not opposites, the feature is 1 for the second declared value. If a nominal attribute does not
        have exactly two values, each value becomes one 0/1 feature.
    Y : csr_array of shape (n_samples, n_labels), dtype int32, or float32 if Y has unknown entries
        Labels. A one is stored for each label that a row has, and NaN for each unknown label.
    feature_names : list of str
        Names of the features. The feature of a numeric attribute has the name of the attribute. The feature
        of a nominal attribute with two opposite values also has the name of the attribute. Each remaining
        feature is 1 for one value of a nominal attribute. Its name is "attribute=value", such as
        "shape=star". The list is returned only if ``return_names`` is True.
    label_names : list of str
        Names of the labels, in the order of the attributes. The list is returned only if ``return_names`` is
        True.

    Raises
    ------
    ValueError
        If a file is malformed, if the labels are not declared, or if an entry of ``ignore`` is not an
        attribute. The error is also raised if a line is longer than 256 MiB, if the name of an attribute is
        longer than 4096 bytes, or if a label path such as ``a/b/c`` has more than 100 parts. The message
        states the file, the line, the expected text and the text in the file.
    OSError
        If a file cannot be read. The error is a FileNotFoundError if the file does not exist.
    MemoryError
        If the result does not fit in memory.

    Notes
    -----
    If a sparse row omits a numeric attribute, the attribute has the value 0 in this row. If a sparse row
    omits a nominal attribute, the attribute has *the first declared value* in this row.

    A nominal attribute with more than two values becomes one feature per value. In a row that omits the
    attribute, the feature of the first declared value is therefore 1. In a row in which the value is missing
    (``?``), all features of the attribute are NaN. In any other row, the feature of the given value is 1.

    Each name, value or list of label paths is decoded as UTF-8, or as Latin-1 if it is not valid UTF-8. The
    time is linear in the size of the file. The function needs little more memory than the result. The file
    may be a pipe. Ctrl-C also works while the function waits for data from the pipe.

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
    if missing_labels not in ("error", "absent", "unknown"):
        raise ValueError(f'`missing_labels` must be "error", "absent" or "unknown", got {missing_labels!r}')
    if isinstance(ignore, str):
        raise TypeError(f"`ignore` must be a sequence of names, got the str {ignore!r}")
    double = _is_double(dtype)
    x, y, unknown, feature_names, label_names = _core.read_arff(
        os.fsdecode(path),
        None if xml is None else os.fsdecode(xml),
        ignore=list(ignore),
        missing_labels=missing_labels,
        double=double,
    )
    shape = (len(y[0]) - 1, len(feature_names))
    X = _csr(x, shape) if isinstance(x, tuple) else x.reshape(shape)
    Y = with_unknown(_csr(y, (shape[0], len(label_names))), unknown)
    return (X, Y, feature_names, label_names) if return_names else (X, Y)


def _is_double(dtype: DTypeLike) -> bool:
    wanted = np.dtype(dtype)
    if wanted not in (np.float32, np.float64):
        raise ValueError(f"`dtype` must be float32 or float64, got {wanted}")
    return bool(wanted == np.float64)


def _csr(arrays: Any, shape: tuple[int, int]) -> sparse.csr_array:
    indptr, indices, data = arrays
    matrix = sparse.csr_array((data, indices, indptr), shape=shape)
    # The reader returns sorted, unique indices. With this flag, scipy does not check the indices again.
    matrix.has_canonical_format = True
    return matrix


def with_unknown(Y: sparse.csr_array, unknown: Sequence[NDArray[Any]]) -> sparse.csr_array:
    """Return a label matrix with NaN in its unknown entries. Y itself is not changed.

    `unknown` contains the arrays indptr and indices of a CSR matrix whose stored entries are the unknown
    entries. If an entry is 1 in Y and also unknown, it is NaN in the result. If there are no unknown entries,
    Y is returned.
    """
    indptr, indices = unknown[:2]
    if len(indices) == 0:
        return Y
    marked = sparse.csr_array((np.full(len(indices), np.nan, np.float32), indices, indptr), shape=Y.shape)
    both = sparse.csr_array(Y.astype(np.float32) + marked)
    both.sort_indices()
    return both


def _canonical(matrix: Any, name: str) -> sparse.csr_array:
    """Convert ``matrix`` to a CSR array of float32 or float64 with sorted, unique indices.

    ``matrix`` itself is not changed.
    """
    if not sparse.issparse(matrix):
        matrix = np.asarray(matrix)
    if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
        raise ValueError(
            f"{name} must be a 2-D matrix of numbers, got a {matrix.ndim}-D array of {matrix.dtype}"
        )
    csr = canonical_csr(matrix, name)
    return csr if csr.dtype in (np.float32, np.float64) else csr.astype(np.float64)
