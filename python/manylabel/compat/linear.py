"""Read one-vs-rest classifiers of LIBLINEAR and DiSMEC."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array, hstack, vstack

from manylabel.compat.files import checked_model, mapped_npy
from manylabel.estimator.names import as_names
from manylabel.linear import DiSMECClassifier

__all__ = ["load_dismec", "load_liblinear"]

# Solvers of LIBLINEAR whose models have scores of labels. The others are for regression and for one class.
_SOLVERS = (
    "L2R_LR",
    "L2R_L2LOSS_SVC_DUAL",
    "L2R_L2LOSS_SVC",
    "L2R_L1LOSS_SVC_DUAL",
    "MCSVM_CS",
    "L1R_L2LOSS_SVC",
    "L1R_LR",
    "L2R_LR_DUAL",
)

# The largest index of a feature or label in a model.
_MOST = 2**31 - 1


def load_liblinear(
    path: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
) -> DiSMECClassifier:
    r"""Read a model of LIBLINEAR [1]_ from one file, or from several files with different labels.

    The original program of DiSMEC [2]_ writes files in this format, one for each batch of labels.

    Parameters
    ----------
    path : path-like or iterable of path-like
        The model file. Several files must have different labels and the same number of features.

    Returns
    -------
    DiSMECClassifier
        The classifier. Its labels are the classes of the files, in the order of the files, and `label_names_`
        contains the class numbers as text. For a model with two classes, the file has only one weight vector
        (except with the solver MCSVM_CS). This vector belongs to the first label, and the second label gets
        the vector with the opposite sign.

    Raises
    ------
    ValueError
        If a file is malformed, if it contains a regression model or a one-class SVM, or if two files have a
        common label or different numbers of features.
    OSError
        If a file cannot be read.

    Notes
    -----
    Scores equal the decision values of LIBLINEAR, up to the rounding of weights to float32. The classifier
    does not scale rows. Feature j of LIBLINEAR is column ``j - 1`` of X, because LIBLINEAR counts from 1. A
    model with a bias has an additional feature, whose value is the bias in every row. The intercept of a
    label is the weight of this feature times the bias.

    References
    ----------
    .. [1] R.-E. Fan et al., "LIBLINEAR: A library for large linear classification", JMLR 2008.
    .. [2] R. Babbar and B. Schölkopf, "DiSMEC: Distributed Sparse Machines for Extreme Multi-label
       Classification", WSDM 2017.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from manylabel.compat import load_liblinear
    >>> path = pathlib.Path(tempfile.mkdtemp(), "model")
    >>> head = "solver_type L2R_L2LOSS_SVC\nnr_class 3\nlabel 7 2 4\nnr_feature 2\nbias 1\nw\n"
    >>> _ = path.write_text(head + "1 0 -1\n0 2 0\n-0.5 0 0.5\n")
    >>> model = load_liblinear(path)
    >>> model.label_names_.tolist()
    ['7', '2', '4']
    >>> model.decision_function([[2.0, 1.0]]).tolist()
    [[1.5, 2.0, -1.5]]
    """
    paths = [path] if isinstance(path, str | os.PathLike) else list(path)
    if not paths:
        raise ValueError("`path` must be one or more files, got none")
    names: list[str] = []
    weights: list[csr_array] = []
    intercepts = []
    for each in paths:
        with _text(Path(each)) as file:
            labels, W, bias = _liblinear(file, str(each))
        names += labels
        if bias >= 0:
            intercepts.append(bias * W[[-1]].toarray()[0])
            W = W[:-1]
        else:
            intercepts.append(np.zeros(W.shape[1]))
        if weights and W.shape[0] != weights[0].shape[0]:
            raise ValueError(
                f"{each}: expected {weights[0].shape[0]} features, as in the first file, got {W.shape[0]}"
            )
        weights.append(W)
    joined: Any = weights[0] if len(weights) == 1 else hstack(weights, format="csr")
    model = _classifier(joined, np.concatenate(intercepts), as_names(names, len(names), "label"))
    return checked_model(model, ", ".join(map(str, paths)))


def _liblinear(file: TextIO, path: str) -> tuple[list[str], csr_array, float]:
    """Read the labels, the weights and the bias from a file.

    The weights have the shape (n_features, n_labels). If the bias is >= 0, the weights have one more row, for
    the bias feature.
    """
    head: dict[str, list[str]] = {}
    for line in file:
        key, *values = line.split() or [""]
        if key == "w":
            break
        head[key] = values
    else:
        raise ValueError(f"{path}: expected a line `w` of a model of LIBLINEAR, got the end of the file")
    try:
        solver, n_classes = head["solver_type"][0], int(head["nr_class"][0])
        n_features, bias = int(head["nr_feature"][0]), float(head["bias"][0])
        labels = head.get("label", [])
    except (KeyError, IndexError, ValueError) as error:
        raise ValueError(
            f"{path}: expected solver_type, nr_class, nr_feature and bias before the line `w`, got {head}"
        ) from error
    if n_features < 0 or not np.isfinite(bias):
        raise ValueError(
            f"{path}: expected nr_feature >= 0 and a finite bias, got nr_feature {n_features} and bias {bias}"
        )
    if solver not in _SOLVERS:
        raise ValueError(f"{path}: solver_type: expected one of {', '.join(_SOLVERS)}, got {solver!r}")
    if len(labels) != n_classes:
        raise ValueError(f"{path}: expected {n_classes} labels in the line `label`, got {len(labels)}")
    if len(set(labels)) != n_classes:
        raise ValueError(
            f"{path}: expected {n_classes} different labels in the line `label`, got {len(set(labels))}"
        )
    two = n_classes == 2 and solver != "MCSVM_CS"
    W = _rows(file, n_features + (bias >= 0), 1 if two else n_classes, path)
    if two:
        both: list[Any] = [W, -W]
        W = csr_array(hstack(both, format="csr"))
    return labels, W, bias


def _rows(file: TextIO, n_rows: int, n_columns: int, path: str) -> csr_array:
    """Read a dense matrix row by row, and return a sparse array with the nonzero values of the matrix."""
    columns, values, ends = [], [], [0]
    for row in range(n_rows):
        try:
            numbers = np.array(file.readline().split(), dtype=np.float64)
        except ValueError as error:
            raise ValueError(f"{path}: row {row + 1} of the weights: expected numbers ({error})") from error
        if len(numbers) != n_columns:
            raise ValueError(
                f"{path}: row {row + 1} of the weights: expected {n_columns} numbers, got {len(numbers)}"
            )
        finite = np.isfinite(numbers)
        if not finite.all():
            raise ValueError(
                f"{path}: row {row + 1} of the weights: expected finite numbers, got {numbers[~finite][0]}"
            )
        stored = np.flatnonzero(numbers)
        columns.append(stored.astype(np.int32))
        values.append(numbers[stored])
        ends.append(ends[-1] + len(stored))
    arrays = (np.concatenate([*values, []]), np.concatenate([*columns, np.empty(0, np.int32)]), ends)
    return csr_array(arrays, shape=(n_rows, n_columns))


def load_dismec(path: str | os.PathLike[str]) -> DiSMECClassifier:
    r"""Read a model of the program DiSMEC++ [1]_.

    For files of the original program of DiSMEC, use :func:`load_liblinear`.

    Parameters
    ----------
    path : path-like
        The metadata file, in JSON. The files of the weights must be in the same folder.

    Returns
    -------
    DiSMECClassifier
        The classifier. Labels and features have the same indices as in DiSMEC++. All intercepts are 0, and
        the classifier does not scale rows. If DiSMEC++ transformed or scaled the rows in training, change the
        rows of X in the same way before you predict. If the model was trained with the option
        ``--augment-for-bias``, DiSMEC++ appended a constant feature to every row, after any transformation
        or scaling of the rows. The constant is 1, or the value that was given with the option. For such a
        model, append a column with the constant to X before you predict. The column must be the last column
        of X, and its values must not be scaled.

    Raises
    ------
    ValueError
        If a file is malformed, if the files do not have the weights of all labels, or if a weight is too
        large for float32. The message names the malformed file. In the other two cases, it names the
        metadata file.
    OSError
        If a file cannot be read.

    Notes
    -----
    The weight formats SparseTXT, DenseTXT and DenseNPY are read. Scores equal those of DiSMEC++, up to the
    rounding of weights to float32.

    References
    ----------
    .. [1] E. Schultheis and R. Babbar, "Speeding-up one-versus-all training for extreme classification via
       mean-separating initialization", Machine Learning 2022.

    Examples
    --------
    >>> import json, pathlib, tempfile
    >>> from manylabel.compat import load_dismec
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "w.txt").write_text("0:1.5 2:-1 \n\n")
    >>> files = [{"first": 0, "count": 2, "file": "w.txt", "weight-format": "SparseTXT"}]
    >>> meta = {"num-features": 3, "num-labels": 2, "files": files}
    >>> _ = (folder / "model.json").write_text(json.dumps(meta))
    >>> load_dismec(folder / "model.json").decision_function([[2.0, 0.0, 1.0]]).tolist()
    [[2.0, 0.0]]
    """
    source = Path(path)
    try:
        meta = json.loads(source.read_text(encoding="utf-8"))
        n_features, n_labels = int(meta["num-features"]), int(meta["num-labels"])
        files = sorted(meta["files"], key=lambda entry: int(entry["first"]))
        entries = [
            (int(entry["first"]), int(entry["count"]), str(entry["file"]), str(entry["weight-format"]))
            for entry in files
        ]
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(
            f"{source}: expected metadata of DiSMEC++ with num-features, num-labels and files, and "
            "with first, count, file and weight-format in each entry of files "
            f"({type(error).__name__}: {error})"
        ) from error
    for number in (n_features, n_labels, *(count for _, count, _, _ in entries)):
        if not 0 <= number <= _MOST:
            raise ValueError(
                f"{source}: each of num-features, num-labels and count must be an integer from 0 to {_MOST}, "
                f"got {number}"
            )
    blocks: list[csr_array] = []
    end = 0
    for first, count, name, form in entries:
        if first != end:
            raise ValueError(
                f"{source}: together, the files must have all labels from 0 on, without gaps or overlaps; "
                f"expected a file whose first label is {end}, got {first}"
            )
        end = first + count
        blocks.append(_block(source.parent / Path(name).name, form, count, n_features))
    if end != n_labels:
        raise ValueError(f"{source}: expected weights of {n_labels} labels, got {end}")
    every: list[Any] = [csr_array((0, n_features)), *blocks]
    W = csr_array(vstack(every, format="csr"))
    return checked_model(_classifier(csr_array(W.T.tocsr()), np.zeros(n_labels), None), source)


@contextmanager
def _text(path: Path) -> Iterator[TextIO]:
    """Open a text file. If the file is not valid UTF-8, the error message names the file."""
    with path.open(encoding="utf-8") as file:
        try:
            yield file
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: expected text in UTF-8 ({error})") from error


def _block(path: Path, form: str, n_labels: int, n_features: int) -> csr_array:
    """Read the weights in one file, of shape (n_labels, n_features).

    `n_labels` is the number of labels in this file.
    """
    if form == "DenseNPY":
        dense = mapped_npy(path)
        if dense.dtype.kind not in "biuf":
            raise ValueError(f"{path}: expected an array of numbers, got dtype {dense.dtype}")
        if dense.shape != (n_labels, n_features):
            raise ValueError(
                f"{path}: expected weights of shape {(n_labels, n_features)}, got shape {dense.shape}"
            )
        finite = np.isfinite(dense)
        if not finite.all():
            raise ValueError(f"{path}: expected finite weights, got {dense[~finite][0]}")
        return csr_array(dense)
    with _text(path) as text:
        if form == "DenseTXT":
            return _rows(text, n_labels, n_features, str(path))
        if form == "SparseTXT":
            return _sparse_rows(text, n_labels, n_features, path)
    raise ValueError(f"{path}: weight-format: expected SparseTXT, DenseTXT or DenseNPY, got {form!r}")


def _sparse_rows(file: Iterator[str], n_labels: int, n_features: int, path: Path) -> csr_array:
    columns: list[int] = []
    values: list[float] = []
    ends = [0]
    for label in range(n_labels):
        line = next(file, None)
        if line is None:
            raise ValueError(f"{path}: expected {n_labels} lines, got {label}")
        try:
            pairs = [(int(j), float(w)) for j, w in (pair.split(":") for pair in line.split())]
        except ValueError as error:
            raise ValueError(f"{path}, line {label + 1}: expected pairs feature:weight ({error})") from error
        columns += [j for j, _ in pairs]
        values += [w for _, w in pairs]
        ends.append(len(columns))
    if columns and not 0 <= min(columns) <= max(columns) < n_features:
        raise ValueError(
            f"{path}: expected features from 0 to {n_features - 1}, got {min(columns)} to {max(columns)}"
        )
    finite = np.isfinite(values)
    if not finite.all():
        raise ValueError(f"{path}: expected finite weights, got {np.array(values)[~finite][0]}")
    return csr_array((values, columns, ends), shape=(n_labels, n_features))


def _classifier(W: csr_array, intercept: NDArray[Any], names: NDArray[Any] | None) -> DiSMECClassifier:
    """Return a fitted classifier with weights of shape (n_features, n_labels)."""
    n_features, n_labels = W.shape
    W.sum_duplicates()
    model = DiSMECClassifier(normalize=False, threshold="zero")
    # A CSR matrix of shape (n_features, n_labels) has the same arrays as its transpose in CSC format.
    with np.errstate(over="ignore"):  # the check of the model finds infinite weights
        data = W.data.astype(np.float32)
        intercept = intercept.astype(np.float32)
    arrays = (data, W.indices.astype(np.int32), W.indptr.astype(np.int32))
    model.coef_ = csc_array(arrays, shape=(n_labels, n_features))
    model.intercept_ = intercept
    model.n_iter_ = np.zeros(n_labels, dtype=np.int32)
    model.threshold_ = 0.0
    model.normalize_ = False
    model.classes_ = np.arange(n_labels)
    model.sparse_output_ = True
    model.n_features_in_ = n_features
    if names is not None:
        model.label_names_ = names
    return model
