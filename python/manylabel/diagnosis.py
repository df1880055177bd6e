"""The function `doctor`, which looks for faults in multi-label data and suggests a first estimator."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array, issparse
from sklearn.model_selection import KFold

from manylabel.estimator.names import as_names, column_names, values_of_frame
from manylabel.estimator.parameters import check_count, shown
from manylabel.estimator.validation import canonical_csr, check_labels, known_ones

__all__ = ["Diagnosis", "Finding", "doctor"]

# Labels and features in fewer rows than this may be equal by chance.
_LEAST_EQUAL = 5
# Labels with fewer rows than this number are too rare to be learned well.
_RARE = 5
# Number of items that the text of a finding names.
_NAMED = 5

# Kinds of findings, in order of harm.
_KINDS = (
    "copied rows across the split",
    "leaking features",
    "not finite",
    "labels of the test rows that no training row has",
    "labels that are always on",
    "labels that are never on",
    "twin labels",
    "contradicting rows",
    "duplicate rows",
    "folds without a label",
    "rows without labels",
    "rows without features",
    "rare labels",
    "constant features",
)


@dataclass(frozen=True)
class Finding:
    """A kind of fault, and the rows, labels or features with this fault.

    Parameters
    ----------
    kind : str
        Kind of the fault, for example "twin labels" (labels that are 1 in exactly the same rows).
    text : str
        Text that describes the fault, its consequences, and a remedy.
    count : int
        Number of rows, labels, features, groups or pairs with the fault: the length of `items`.
    items : list
        Indices of the rows, labels or features with the fault, or tuples of indices. Depending on the kind, a
        tuple is a group of rows, a group of labels, or a pair: (training row, test row), (feature, label) or
        (label, fold).

    Examples
    --------
    >>> import numpy as np
    >>> import manylabel as ml
    >>> Y = np.array([[1, 1], [0, 0], [1, 1]] * 2)
    >>> ml.doctor(np.arange(12.0).reshape(6, 2), Y).findings[0].kind
    'twin labels'
    """

    kind: str
    text: str
    count: int
    items: list[Any] = field(repr=False)


@dataclass(frozen=True)
class Diagnosis:
    """Result of `doctor`: the faults of the data, and an estimator to start with.

    Parameters
    ----------
    shape : dict of str to int
        Numbers of rows, test rows, features and labels.
    findings : list of Finding
        The findings, most harmful first.
    estimator : str
        The estimator to start with, as Python code such as ``"DiSMECClassifier(random_state=0)"``.
    reason : str
        The reason for this estimator.

    Examples
    --------
    >>> import manylabel as ml
    >>> X, Y = ml.datasets.make_multilabel(200, 500, 10, random_state=0)
    >>> print(ml.doctor(X, Y).estimator)
    DiSMECClassifier(random_state=0)
    """

    shape: dict[str, int]
    findings: list[Finding]
    estimator: str
    reason: str

    def __str__(self) -> str:
        size = ", ".join(f"{count:,} {what}" for what, count in self.shape.items())
        lines = [size, ""]
        lines += [f"{at}. {finding.text}" for at, finding in enumerate(self.findings, 1)]
        lines += [
            "" if self.findings else "Nothing unusual was found.",
            f"Start with {self.estimator}: {self.reason}",
        ]
        return "\n".join(lines)

    def to_json(self) -> str:
        """Return the diagnosis as a JSON object.

        Returns
        -------
        str
            The JSON text.
        """
        return json.dumps(asdict(self), indent=2)

    def to_frame(self) -> Any:
        """Return the findings as a data frame.

        Returns
        -------
        pandas.DataFrame
            One row per finding, with the columns "kind", "count", "items" and "text".

        Raises
        ------
        ModuleNotFoundError
            If pandas is not installed.
        """
        import pandas as pd

        rows = [(each.kind, each.count, each.items, each.text) for each in self.findings]
        return pd.DataFrame(rows, columns=["kind", "count", "items", "text"])


def doctor(
    X: Any,
    Y: Any,
    X_test: Any = None,
    Y_test: Any = None,
    *,
    cv: Any = 5,
    label_names: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
) -> Diagnosis:
    """Look for faults in multi-label data, and suggest an estimator to start with.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_samples, n_features)
        Features of the training rows.
    Y : array-like or sparse matrix of shape (n_samples, n_labels)
        0/1 indicator matrix of the training rows. If Y is a data frame, its column names are the names of the
        labels. Unknown entries, marked by NaN, count as 0.
    X_test, Y_test : array-like or sparse matrix, default=None
        Features and labels of the test rows. If they are given, the function also looks for faults in
        the split of the rows into training and test rows.
    cv : int, splitter or iterable, default=5
        The folds of a cross-validation. The function reports each label that is missing from the training
        rows or from the test rows of a fold. Labels with fewer rows than the number of folds are not checked.
        An int is the number of folds; the test rows of each fold are then consecutive rows. Otherwise, pass a
        splitter of scikit-learn, or an iterable with two arrays per fold: the indices of the training rows
        and the indices of the test rows.
    label_names, feature_names : sequence of str, default=None
        Names that the findings use for the labels and the features. None means the column names of Y and of
        X. If a matrix is not a data frame, names such as "label 3" and "feature 5" are used instead.

    Returns
    -------
    Diagnosis
        The diagnosis, with all findings. Print it, or use its methods `to_json` and `to_frame`.

    Raises
    ------
    ValueError
        If an argument is not valid.

    Notes
    -----
    The function looks for the following faults, listed from the most to the least harmful:

    - test rows with the same features as a training row;
    - features that identify a label, for example because they are nonzero in exactly the rows with the label;
    - values of X that are not finite;
    - labels that only test rows have;
    - labels that all rows have, and labels that no row has;
    - labels that are 1 in the same rows;
    - rows with the same features and different labels;
    - rows with the same features and the same labels;
    - folds in which a label has no training row or no test row (labels with fewer rows than the number of
      folds are not checked);
    - rows without labels, and rows without features;
    - labels with fewer than 5 rows;
    - features with only one value.

    Two checks leave out very rare and very frequent labels: the check for features that identify a label, and
    the check for labels that are 1 in the same rows. These two checks only use labels that are 1 in at least
    m training rows and 0 in at least m training rows. If X has 15 rows or more, m is 5. Otherwise, m is a
    third of the number of rows of X, rounded down, but at least 1.

    The time is proportional to the number of stored values. Y and a sparse X are never made dense.

    Examples
    --------
    >>> import numpy as np
    >>> import manylabel as ml
    >>> X, Y = ml.datasets.make_multilabel(200, 50, 10, random_state=0)
    >>> [finding.kind for finding in ml.doctor(X[:150], Y[:150], X[100:], Y[100:]).findings][0]
    'copied rows across the split'
    """
    if (X_test is None) != (Y_test is None):
        given = "Y_test" if X_test is None else "X_test"
        raise ValueError(f"`X_test` and `Y_test` must both be given or both be None, got only `{given}`")
    label_names = column_names(Y) if label_names is None else label_names
    feature_names = column_names(X) if feature_names is None else feature_names
    rows, labels = _matrices(X, Y, "")
    n_rows, n_labels = labels.shape
    names = _Names(label_names, n_labels, feature_names, rows.shape[1])
    found = [*_of_folds(cv, labels, names)]
    tested_labels = np.zeros(n_labels, dtype=bool)
    shape = {"rows": n_rows, "features": rows.shape[1], "labels": n_labels}
    if X_test is not None:
        tested, of_test = _matrices(X_test, Y_test, "_test")
        if tested.shape[1] != rows.shape[1] or of_test.shape[1] != n_labels:
            raise ValueError(
                f"the test rows must have {rows.shape[1]} features and {n_labels} labels, as the training "
                f"rows have, got {tested.shape[1]} features and {of_test.shape[1]} labels"
            )
        found += _of_split(rows, labels, tested, of_test, names)
        shape["test rows"] = of_test.shape[0]
        tested_labels[of_test.indices] = True
    found += _of_training(rows, labels, tested_labels, names)
    found.sort(key=lambda finding: _KINDS.index(finding.kind))
    return Diagnosis(shape, found, *_advice(X, rows, labels))


class _Names:
    """Names of labels and features in the texts of findings. A default name is, for example, "label 3"."""

    def __init__(self, labels: Any, n_labels: int, features: Any, n_features: int) -> None:
        self._labels = None if labels is None else as_names([str(name) for name in labels], n_labels)
        if features is not None and len(features) != n_features:
            raise ValueError(f"`feature_names` must have {n_features} names, got {len(features)}")
        self._features = features

    def label(self, label: int) -> str:
        return f"label {label}" if self._labels is None else repr(str(self._labels[label]))

    def feature(self, feature: int) -> str:
        return f"feature {feature}" if self._features is None else repr(str(self._features[feature]))


def _matrices(X: Any, Y: Any, suffix: str) -> tuple[csr_array, csr_array]:
    if column_names(Y) is not None:
        Y = values_of_frame(Y)
    labels = known_ones(check_labels(Y, f"Y{suffix}", unknown=True))
    if column_names(X) is not None:
        X = values_of_frame(X)
    if not issparse(X):
        X = np.asarray(X)
        if X.dtype.kind not in "biuf":
            raise ValueError(f"X{suffix} must be a matrix of numbers, got dtype {X.dtype}")
    if X.ndim != 2:
        raise ValueError(f"X{suffix} must be a 2-D matrix, got a {X.ndim}-D array")
    rows = canonical_csr(X, f"X{suffix}")
    if not rows.data.all():
        rows = rows.copy()
        rows.eliminate_zeros()
    if rows.shape[0] != labels.shape[0]:
        raise ValueError(
            f"number of rows of Y{suffix}: expected {rows.shape[0]} as in X{suffix}, got {labels.shape[0]}"
        )
    if not rows.shape[0]:
        raise ValueError(f"X{suffix} must have at least one row, got none")
    return rows, labels


def _finding(kind: str, items: list[Any], text: str, shown: list[str]) -> Iterator[Finding]:
    """Yield a finding if `items` is not empty.

    The text of the finding has the kind, the number of items, the first 5 names in `shown`, and `text`.
    """
    if items:
        named = ", ".join(shown[:_NAMED]) + (", ..." if len(items) > _NAMED else "")
        yield Finding(kind, f"{kind.capitalize()} ({len(items):,}): {named}. {text}", len(items), items)


def _of_training(X: csr_array, Y: csr_array, tested: NDArray[np.bool_], names: _Names) -> Iterator[Finding]:
    n_rows = X.shape[0]
    bad = sorted(set(X.indices[~np.isfinite(X.data)].tolist())) if X.dtype.kind == "f" else []
    yield from _finding(
        "not finite",
        bad,
        "These features have NaN or infinite values. Most estimators refuse them; "
        "BoostedRulesClassifier accepts NaN.",
        [names.feature(feature) for feature in bad],
    )
    by_label, by_feature = csc_array(Y), csc_array(X)
    counts = np.diff(by_label.indptr)
    yield from _labels_on(counts, n_rows, tested, names)
    rows_of = _patterns(by_label)
    twins = [labels for labels in rows_of.values() if len(labels) > 1]
    yield from _finding(
        "twin labels",
        [tuple(labels) for labels in twins],
        "These labels have the same rows. Keep one label of each group.",
        [" = ".join(map(names.label, labels[:3])) for labels in twins],
    )
    leaks = _leaks(by_feature, rows_of)
    yield from _finding(
        "leaking features",
        leaks,
        "Each of these features identifies a label exactly. Remove it, unless its value is also known for "
        "new rows.",
        [f"{names.feature(feature)} = {names.label(label)}" for feature, label in leaks],
    )
    yield from _equal_rows(X, Y)
    for kind, matrix, advice in (
        (
            "labels",
            Y,
            "These rows have no labels, so they are negative rows for every label. Remove the rows whose "
            "labels are unknown.",
        ),
        ("features", X, "A model cannot distinguish these rows from each other."),
    ):
        empty = np.flatnonzero(np.diff(matrix.indptr) == 0).tolist()
        yield from _finding(
            f"rows without {kind}",
            empty,
            advice,
            [f"row {row}" for row in empty[:_NAMED]],
        )
    same = _constant(by_feature)
    yield from _finding(
        "constant features",
        same,
        "These features take memory, but contain no information about the labels.",
        [names.feature(feature) for feature in same],
    )


def _labels_on(
    counts: NDArray[Any], n_rows: int, tested: NDArray[np.bool_], names: _Names
) -> Iterator[Finding]:
    # Labels that only test rows have are a finding of their own.
    never = np.flatnonzero((counts == 0) & ~tested).tolist()
    always = np.flatnonzero(counts == n_rows).tolist()
    rare = np.flatnonzero((counts > 0) & (counts < _RARE)).tolist()
    yield from _finding(
        "labels that are never on",
        never,
        "These labels are never predicted.",
        [names.label(label) for label in never[:_NAMED]],
    )
    yield from _finding(
        "labels that are always on",
        always,
        "All rows have these labels, so a model has nothing to learn about them.",
        [names.label(label) for label in always[:_NAMED]],
    )
    yield from _finding(
        "rare labels",
        rare,
        f"These labels have fewer than {_RARE} rows, too few to learn them well. Collect more "
        "rows, merge the labels, or measure with propensities (PSP@k).",
        [f"{names.label(label)} ({counts[label]})" for label in rare[:_NAMED]],
    )


def _patterns(columns: csc_array) -> dict[bytes, list[int]]:
    """Group the columns that are nonzero in exactly the same rows.

    The result has one item per group. The key is the array of the row indices (int64), converted to bytes.
    The value is the list of the column indices. Columns that are nonzero in few rows, or in nearly all rows,
    are left out.
    """
    n_rows = columns.shape[0]
    found: dict[bytes, list[int]] = defaultdict(list)
    ends = columns.indptr.tolist()
    for column in np.flatnonzero(_between(np.diff(columns.indptr), n_rows)).tolist():
        rows = columns.indices[ends[column] : ends[column + 1]].astype(np.int64)
        found[rows.tobytes()].append(column)
    return found


def _between(counts: NDArray[Any], n_rows: int) -> Any:
    least = min(_LEAST_EQUAL, n_rows // 3)
    return (counts >= max(least, 1)) & (counts <= n_rows - max(least, 1))


def _leaks(features: csc_array, rows_of: dict[bytes, list[int]]) -> list[tuple[int, int]]:
    """Return the pairs (feature, label) in which the feature identifies the label.

    A feature identifies a label if it is nonzero in exactly the rows with the label, or in exactly the rows
    without the label. A feature without zeros identifies a label if it has only two values, and one of them
    occurs in exactly the rows with the label.
    """
    n_rows = features.shape[0]
    every = np.arange(n_rows)
    lengths = {len(rows) // 8 for rows in rows_of}
    found = []
    ends = features.indptr.tolist()
    for feature in range(features.shape[1]):
        stored = slice(ends[feature], ends[feature + 1])
        rows, values = features.indices[stored].astype(np.int64), features.data[stored]
        sets = [rows]
        if len(rows) == n_rows:  # without zeros, the two values tell the rows
            high = values == values.max()
            if not (values[~high] == values.min()).all():
                continue
            sets = [rows[high]]
        for each in sets:
            for of_value in (each, None):
                count = len(each) if of_value is not None else n_rows - len(each)
                if count not in lengths:
                    continue
                wanted = each if of_value is not None else np.setdiff1d(every, each, assume_unique=True)
                found += [(feature, label) for label in rows_of.get(wanted.tobytes(), ())]
    return found


def _row_keys(X: csr_array) -> Iterator[tuple[int, tuple[bytes, bytes]]]:
    """Yield the index and a key of each row that is not all zeros. Identical rows have equal keys."""
    ends = X.indptr.tolist()
    indices, data = X.indices.astype(np.int64, copy=False), X.data.astype(np.float64, copy=False)
    for row, (begin, end) in enumerate(pairwise(ends)):
        if begin < end:
            yield row, (indices[begin:end].tobytes(), data[begin:end].tobytes())


def _equal_rows(X: csr_array, Y: csr_array) -> Iterator[Finding]:
    groups: dict[Any, list[int]] = defaultdict(list)
    for row, key in _row_keys(X):
        groups[key].append(row)
    equal = [rows for rows in groups.values() if len(rows) > 1]
    ends = Y.indptr.tolist()
    sets = [[Y.indices[ends[row] : ends[row + 1]].tobytes() for row in rows] for rows in equal]
    other = [tuple(rows) for rows, of_rows in zip(equal, sets, strict=True) if len(set(of_rows)) > 1]
    same = [tuple(rows) for rows, of_rows in zip(equal, sets, strict=True) if len(set(of_rows)) == 1]
    for kind, found, what in (
        ("contradicting rows", other, "and different labels. No model can tell them apart."),
        (
            "duplicate rows",
            same,
            "and the same labels. In a cross-validation, a test row may be a copy of a training row.",
        ),
    ):
        yield from _finding(
            kind,
            found,
            "These rows have the same features " + what,
            [" = ".join(f"row {row}" for row in rows[:3]) for rows in found],
        )


def _constant(features: csc_array) -> list[int]:
    n_rows = features.shape[0]
    counts = np.diff(features.indptr)
    never = np.flatnonzero(counts == 0).tolist()
    full = [
        feature
        for feature in np.flatnonzero(counts == n_rows).tolist()
        if (features.data[(part := slice(features.indptr[feature], features.indptr[feature + 1]))]
            == features.data[part][0]).all()
    ]  # fmt: skip
    return sorted([*never, *full])


def _of_folds(cv: Any, Y: csr_array, names: _Names) -> Iterator[Finding]:
    n_rows = Y.shape[0]
    if isinstance(cv, int | np.integer) and not isinstance(cv, bool):
        n_folds = check_count("cv", cv, 2)
        if n_folds > n_rows:
            return
        folds = list(KFold(n_folds).split(np.empty(n_rows)))
    elif isinstance(cv, str | bool) or not (hasattr(cv, "split") or hasattr(cv, "__iter__")):
        raise ValueError(
            f"`cv` must be an integer >= 2, a splitter or pairs of arrays of row indices, got {shown(cv)}"
        )
    else:
        folds = list(cv.split(np.empty((n_rows, 1)), Y) if hasattr(cv, "split") else cv)
    counts = np.bincount(Y.indices, minlength=Y.shape[1])
    lacking: dict[int, list[int]] = defaultdict(list)
    for fold, (train, test) in enumerate(folds):
        for part in (train, test):
            seen = np.bincount(Y[part].indices, minlength=Y.shape[1])
            for label in np.flatnonzero((seen == 0) & (counts >= len(folds))).tolist():
                lacking[label].append(fold)
    # The most frequent labels first, for which this is least likely by chance.
    found = [
        (label, fold) for label in sorted(lacking, key=lambda at: -counts[at]) for fold in lacking[label]
    ]
    yield from _finding(
        "folds without a label",
        found,
        "The training rows or the test rows of the fold lack the label, although the label has enough rows "
        "for all folds. Shuffle the rows, or use model_selection.MultilabelStratifiedKFold.",
        [f"{names.label(label)} in fold {fold}" for label, fold in found[:_NAMED]],
    )


def _of_split(
    X: csr_array, Y: csr_array, X_test: csr_array, Y_test: csr_array, names: _Names
) -> Iterator[Finding]:
    known: dict[Any, int] = {}
    for row, key in _row_keys(X):
        known.setdefault(key, row)
    copies = [(known[key], row) for row, key in _row_keys(X_test) if key in known]
    yield from _finding(
        "copied rows across the split",
        copies,
        "These test rows have the feature values of a training row. Results on these rows say nothing "
        "about new rows.",
        [f"test row {tested} = row {row}" for row, tested in copies[:_NAMED]],
    )
    n_labels = Y.shape[1]
    counts, tested = (np.bincount(each.indices, minlength=n_labels) for each in (Y, Y_test))
    unseen = np.flatnonzero((counts == 0) & (tested > 0)).tolist()
    yield from _finding(
        "labels of the test rows that no training row has",
        unseen,
        "They cannot be predicted. Split with model_selection.iterative_split.",
        [names.label(label) for label in unseen[:_NAMED]],
    )


def _advice(given: Any, X: csr_array, Y: csr_array) -> tuple[str, str]:
    """Return the estimator to start with, and the reason."""
    n_seen = np.count_nonzero(np.bincount(Y.indices, minlength=Y.shape[1]))
    filled = X.nnz / max(1, X.shape[0] * X.shape[1])
    if X.dtype.kind == "f" and np.isnan(X.data).any():
        return "BoostedRulesClassifier(random_state=0)", "X has missing values, which boosted rules accept."
    # As `normalize="auto"`: an eighth of the values of measurements is not zero.
    if filled > 1 / 8 and n_seen <= 100:
        return (
            "BoostedRulesClassifier(random_state=0)",
            f"more than an eighth of X is nonzero, and {n_seen:,} labels are few enough for nonlinear rules.",
        )
    if filled > 1 / 8 and n_seen <= 2000:
        return (
            "SmoothLinkClassifier(random_state=0)",
            f"more than an eighth of X is nonzero, and a nonlinear model is possible with {n_seen:,} labels.",
        )
    if n_seen > 10_000:
        return (
            "LabelTreeClassifier(random_state=0)",
            f"with {n_seen:,} labels, a label tree fits and predicts much faster than one-vs-rest models.",
        )
    return (
        "DiSMECClassifier(random_state=0)",
        f"one linear classifier per label is accurate and fast for sparse features and {n_seen:,} labels.",
    )
