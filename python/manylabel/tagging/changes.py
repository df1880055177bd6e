"""Changes of the labels of a tagger: rename, drop, add, merge and refit labels, and learn from more texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse, vstack

from manylabel.estimator.base import Estimator, built_aside
from manylabel.estimator.names import (
    as_names,
    check_label,
    column_names,
    named_indicator,
    renamed,
    rows_of_names,
)
from manylabel.estimator.parameters import shown
from manylabel.estimator.progress import Tell

__all__ = ["EditableTagger", "identifiers"]


class EditableTagger(Estimator):
    """Base class of `TextTagger`, with the methods that change labels after the fit.

    A subclass must have the parameter `decision`. Its method `fit` must set `classifier_` and `label_names_`.
    The fitted attributes `label_ids_`, `label_changes_`, `rows_` and `row_labels_` are optional. The subclass
    must also implement `_check_fitted` and `_matrices`.
    """

    classifier_: Any
    decision: Any
    label_names_: NDArray[Any]
    label_ids_: NDArray[Any]
    label_changes_: NDArray[Any]
    rows_: Any
    row_labels_: csr_array

    def _check_fitted(self) -> None:
        """Raise an error if the tagger is not fitted."""
        raise NotImplementedError

    def _matrices(
        self,
        texts: Any,
        labels: Any,
        label_names: Sequence[str] | None,
        *,
        fits: bool,
        tell: Tell | None = None,
    ) -> tuple[Any, NDArray[Any], csr_array]:
        """Return the features of texts, an array of label names, and the indicator matrix of the labels.

        If `fits` is True, the vectorizer is fitted first. `tell` is called with the number of texts that have
        been read so far.
        """
        raise NotImplementedError

    @built_aside
    def rename_labels(self, names: Mapping[str, str]) -> None:
        """Change the names of labels.

        Parameters
        ----------
        names : mapping of str to str
            Mapping from old names to new names.

        Returns
        -------
        self
            The tagger itself. The scores of the labels do not change.

        Raises
        ------
        ValueError
            If an old name is not a label, if a new name is not a str, or if two labels would have the same
            name after the change.

        Examples
        --------
        >>> import manylabel as ml
        >>> texts = ["my cat", "a dog", "tax law", "law"]
        >>> labels = [["cats"], ["dogs"], ["law", "tax"], ["law"]]
        >>> tagger = ml.TextTagger(ml.DiSMECClassifier(random_state=0)).fit(texts, labels)
        >>> tagger.rename_labels({"cats": "felines"}).label_names_.tolist()
        ['felines', 'dogs', 'law', 'tax']
        """
        self._check_fitted()
        self.label_names_ = renamed(self.label_names_, names)
        for old, new in names.items():
            self._log(f"rename {old!r} to {new!r}")

    @built_aside
    def drop_labels(self, names: Iterable[str]) -> None:
        """Remove labels.

        Parameters
        ----------
        names : iterable of str
            Names of the labels to remove. At least one label must remain.

        Returns
        -------
        self
            The tagger itself. The scores of the other labels do not change.

        Raises
        ------
        ValueError
            If a name is not a label or is given twice, if no label would remain, if the parameter `decision`
            of the tagger is not None, or if the classifier has no methods that change its labels. Only
            `DiSMECClassifier` and `LabelTreeClassifier` have such methods.

        Examples
        --------
        >>> import manylabel as ml
        >>> texts = ["my cat", "a dog", "tax law", "law"]
        >>> labels = [["cats"], ["dogs"], ["law", "tax"], ["law"]]
        >>> tagger = ml.TextTagger(ml.DiSMECClassifier(random_state=0)).fit(texts, labels)
        >>> tagger.drop_labels(["tax"]).label_names_.tolist()
        ['cats', 'dogs', 'law']
        """
        places = self._places(names)
        self._edit("drop_labels", places)
        self._log(f"drop {_listed(self.label_names_[places])}")
        self._keep(np.setdiff1d(np.arange(len(self.label_names_)), places))

    @built_aside
    def add_labels(self, texts: Any, labels: Any, *, label_ids: Mapping[str, str] | None = None) -> None:
        """Add labels. Only the new labels are fitted.

        Parameters
        ----------
        texts : iterable of str, or matrix of shape (n_samples, n_features)
            Texts to fit the new labels to. Include texts that do not have the new labels, because these texts
            are the negative examples. If `vectorizer` is None, pass a matrix of features.
        labels : iterable of iterables of str
            The names of the labels of each text. Names that are not labels of the tagger become new labels,
            sorted by name. Existing labels are not fitted again.
        label_ids : mapping of str to str, default=None
            Identifiers of the new labels, with the names of the labels as keys. This argument is necessary if
            the tagger has identifiers, and must be None otherwise.

        Returns
        -------
        self
            The tagger itself. The scores of the other labels do not change. If the method fails or is
            interrupted, the tagger is not changed.

        Raises
        ------
        ValueError
            If an argument is not valid, if there is no new label, if the parameter `decision` of the tagger
            is not None, or if the classifier has no methods that change its labels. Only `DiSMECClassifier`
            and `LabelTreeClassifier` have such methods.

        Notes
        -----
        Terms that are not in the vocabulary of the vectorizer are ignored.

        If the tagger keeps rows (see the parameter `keep_rows` of `TextTagger`), the new texts are added to
        the kept rows. Each new row is stored with all of its label names, including names of existing labels.
        The rows that were kept before the call do not get the new labels, and this method does not use them
        to fit the new labels. If `refit_labels` or `update` later fits one of the new labels to all kept
        rows, the rows from before the call are negative examples of this label.

        Examples
        --------
        >>> import manylabel as ml
        >>> texts = ["my cat", "a dog", "tax law", "law"]
        >>> labels = [["cats"], ["dogs"], ["law", "tax"], ["law"]]
        >>> tagger = ml.TextTagger(ml.DiSMECClassifier(random_state=0)).fit(texts, labels)
        >>> tagger.add_labels(["a bird", "my cat"], [["birds"], ["cats"]]).label_names_.tolist()
        ['cats', 'dogs', 'law', 'tax', 'birds']
        >>> tagger.label_changes_.tolist()
        ["add 'birds', fitted on 2 rows"]
        """
        self._check_fitted()
        known = set(self.label_names_.tolist())
        given = [_row(names) for names in rows_of_names(labels)]
        X, names, Y = self._matrices(texts, [_without(row, known) for row in given], None, fits=False)
        if not len(names):
            raise ValueError("`labels` must have at least one new name, got none")
        if (label_ids is None) == hasattr(self, "label_ids_"):
            wanted, how = (
                ("identifiers of the new labels", "with") if label_ids is None else ("None", "without")
            )
            raise ValueError(
                f"`label_ids` must be {wanted}, got {label_ids!r}; the tagger was fitted {how} `label_ids`"
            )
        self._edit("add_labels", X, Y)
        every = [*self.label_names_.tolist(), *names.tolist()]
        if label_ids is not None:
            ids = [*self.label_ids_.tolist(), *identifiers(names, label_ids).tolist()]
            self.label_ids_ = as_names(ids, len(ids), "label_ids")
        self.label_names_ = as_names(every, len(every))
        if hasattr(self, "rows_"):
            # The rows of the fit do not have the new labels.
            old = self.row_labels_
            wide = csr_array((old.data, old.indices, old.indptr), shape=(old.shape[0], len(every)))
            self.row_labels_ = _stacked(wide, named_indicator(given, every)[1])
            self.rows_ = _stacked(self.rows_, X)
        self._log(f"add {_listed(names)}, fitted on {Y.shape[0]} rows")

    @built_aside
    def merge_labels(self, names: Iterable[str], into: str, texts: Any = None, labels: Any = None) -> None:
        """Replace several labels by one merged label.

        A text has the merged label if the names of its labels include `into` or at least one of `names`.

        Parameters
        ----------
        names : iterable of str
            Names of two or more labels.
        into : str
            Name of the merged label. It must be one of `names`, or a name that no label has yet.
        texts : iterable of str, or matrix of shape (n_samples, n_features), default=None
            Texts to fit the merged label to. None means the rows that the tagger keeps (see the parameter
            `keep_rows` of `TextTagger`).
        labels : iterable of iterables of str, default=None
            The names of the labels of each text. All labels except `into` and those in `names` are ignored.
            None means the labels of the rows that the tagger keeps.

        Returns
        -------
        self
            The tagger itself. The scores of the other labels do not change. If the method fails or is
            interrupted, the tagger is not changed.

        Raises
        ------
        ValueError
            If an argument is not valid, if there are neither texts nor kept rows, if the parameter `decision`
            of the tagger is not None, or if the classifier has no methods that change its labels. Only
            `DiSMECClassifier` and `LabelTreeClassifier` have such methods.

        Examples
        --------
        >>> import manylabel as ml
        >>> texts = ["my cat", "a dog", "tax law", "law"]
        >>> labels = [["cats"], ["dogs"], ["law", "tax"], ["law"]]
        >>> tagger = ml.TextTagger(ml.DiSMECClassifier(random_state=0)).fit(texts, labels)
        >>> tagger.merge_labels(["cats", "dogs"], "pets", texts, labels).label_names_.tolist()
        ['pets', 'law', 'tax']
        """
        places = self._places(names)
        if not isinstance(into, str):
            raise ValueError(f"`into` must be a str, got {shown(into)}")
        X, Y = self._rows_for("merge_labels", texts, labels, into)
        more = range(len(self.label_names_), Y.shape[1])  # the column of `into`, if it is a new name
        has_any = np.diff(csr_array(Y[:, [*places, *more]]).indptr) > 0
        rows = np.flatnonzero(has_any)
        union = csr_array(
            (np.ones(len(rows), dtype=np.float32), (rows, np.zeros(len(rows), dtype=np.int64))),
            shape=(Y.shape[0], len(places)),
        )
        self._edit("merge_labels", places, X, union)
        self._log(f"merge {_listed(self.label_names_[places])} into {into!r}, fitted on {X.shape[0]} rows")
        if hasattr(self, "rows_"):
            self.row_labels_ = _merged(self.row_labels_, places)
        changed = self.label_names_.copy()
        changed[places[0]] = into
        self.label_names_ = changed
        self._keep(np.setdiff1d(np.arange(len(changed)), places[1:]))
        self.label_names_ = as_names(self.label_names_, len(self.label_names_), "into")

    @built_aside
    def refit_labels(self, names: Iterable[str], texts: Any = None, labels: Any = None) -> None:
        """Fit some labels again.

        Parameters
        ----------
        names : iterable of str
            Names of the labels to fit.
        texts : iterable of str, or matrix of shape (n_samples, n_features), default=None
            Texts to fit the labels to. None means the rows that the tagger keeps (see the parameter
            `keep_rows` of `TextTagger`).
        labels : iterable of iterables of str, default=None
            The names of the labels of each text. Labels that are not in `names` are ignored. None means the
            labels of the rows that the tagger keeps.

        Returns
        -------
        self
            The tagger itself. The scores of the other labels do not change. If the method fails or is
            interrupted, the tagger is not changed.

        Raises
        ------
        ValueError
            If an argument is not valid, if there are neither texts nor kept rows, if the parameter `decision`
            of the tagger is not None, or if the classifier has no methods that change its labels. Only
            `DiSMECClassifier` and `LabelTreeClassifier` have such methods.

        Examples
        --------
        >>> import manylabel as ml
        >>> texts = ["my cat", "a dog", "tax law", "law"]
        >>> labels = [["cats"], ["dogs"], ["law", "tax"], ["law"]]
        >>> tagger = ml.TextTagger(ml.DiSMECClassifier(random_state=0)).fit(texts, labels)
        >>> more = (["my cat", "cat food", "a dog"], [["cats"], ["cats"], ["dogs"]])
        >>> tagger.refit_labels(["cats"], *more).label_changes_.tolist()
        ["refit 'cats' on 3 rows"]
        """
        places = self._places(names)
        X, Y = self._rows_for("refit_labels", texts, labels)
        self._edit("refit_labels", X, Y[:, places], places)
        self._log(f"refit {_listed(self.label_names_[places])} on {X.shape[0]} rows")

    @built_aside
    def update(self, texts: Any, labels: Any) -> None:
        """Add training texts, and fit their labels again.

        The texts are added to the rows that the tagger keeps (see the parameter `keep_rows` of `TextTagger`).
        The labels of the new texts are then fitted again to all kept rows, old and new, as `refit_labels`
        does. The result may differ from a new fit to all rows (see Notes). The other labels are not fitted
        again, so their scores do not change. The new texts are not used as negative examples of the other
        labels.

        Parameters
        ----------
        texts : iterable of str, or matrix of shape (n_samples, n_features)
            The new texts. If `vectorizer` is None, pass a matrix of features.
        labels : iterable of iterables of str
            The names of the labels of each text, which must be labels of the tagger.

        Returns
        -------
        self
            The tagger itself. It does not change if the method fails or is interrupted.

        Raises
        ------
        ValueError
            If an argument is not valid, if the tagger keeps no rows, or if the classifier has no method
            `refit_labels`. Only `DiSMECClassifier` and `LabelTreeClassifier` have this method.

        Notes
        -----
        The vocabulary and the idf weights of the vectorizer do not change. If a parameter of the classifier
        is "auto", such as `C` or `threshold`, the value that `fit` chose is used again.

        With `DiSMECClassifier`, the labels are fitted with ``warm_start=True`` (see
        `DiSMECClassifier.refit_labels`). A new fit to all kept rows with the same C would give these labels
        the same weights, up to the tolerance of the solver. With ``solver="fast"``, the weights of rare
        labels may differ more, because this solver only approximates these weights.

        With `LabelTreeClassifier`, the nodes of the trees and their classifiers do not change. A label that
        is fitted again may move to another leaf. A new fit to all rows would build other trees.

        Examples
        --------
        >>> import manylabel as ml
        >>> texts = ["my cat", "a dog", "tax law", "law"]
        >>> labels = [["cats"], ["dogs"], ["law", "tax"], ["law"]]
        >>> tagger = ml.TextTagger(ml.DiSMECClassifier(random_state=0), keep_rows=True)
        >>> tagger = tagger.fit(texts, labels)
        >>> tagger.update(["cats and dogs"], [["cats", "dogs"]]).label_changes_.tolist()
        ["update 'cats', 'dogs' with 1 rows"]
        """
        self._check_fitted()
        if not hasattr(self, "rows_"):
            raise ValueError(
                "`update` needs the training rows, but this tagger has not kept them; fit it again with "
                "keep_rows=True, or use `refit_labels`, which fits the labels only to the texts that you pass"
            )
        X, _, Y = self._matrices(texts, labels, self.label_names_.tolist(), fits=False)
        self.rows_, self.row_labels_ = _stacked(self.rows_, X), _stacked(self.row_labels_, Y)
        touched = np.unique(Y.indices)
        if len(touched):
            self._edit("refit_labels", self.rows_, self.row_labels_[:, touched], touched, warm_start=True)
        self._log(f"update {_listed(self.label_names_[touched])} with {Y.shape[0]} rows")

    def _edit(self, change: str, *arguments: Any, **options: Any) -> None:
        """Call a method on a copy of the classifier, and replace the classifier with the copy.

        `change` is the name of the method.
        """
        if self.decision is not None:
            raise ValueError(
                f"`decision` must be None to change the labels, got {type(self.decision).__name__}; the "
                "decision rule was fitted to the old labels"
            )
        if not hasattr(self.classifier_, "refit_labels"):
            raise ValueError(
                f"`classifier` must be a classifier whose labels can be changed, such as DiSMECClassifier or "
                f"LabelTreeClassifier, got {type(self.classifier_).__name__}"
            )
        edited = copy(self.classifier_)
        # Kept rows have no names of features, so scikit-learn would warn.
        names = None if any(map(column_names, arguments)) else vars(edited).pop("feature_names_in_", None)
        getattr(edited, change)(*arguments, **options)
        if names is not None:
            edited.feature_names_in_ = names
        edited.__dict__.pop("label_changes_", None)  # the tagger keeps its own
        self.classifier_ = edited

    def _places(self, names: Iterable[str]) -> NDArray[np.int64]:
        """Return the indices of the labels with the given names."""
        self._check_fitted()
        if isinstance(names, str):
            raise ValueError(
                f"`names` must be an iterable of str, got {names!r}; pass a single name as [{names!r}]"
            )
        names = list(names)
        places = [check_label(self, str(name), len(self.label_names_)) for name in names]
        if not places or len(set(places)) != len(places):
            raise ValueError(
                f"`names` must contain at least one label, and no label twice, got {shown(names)}"
            )
        return np.array(places)

    def _rows_for(self, method: str, texts: Any, labels: Any, *names: str) -> tuple[Any, csr_array]:
        """Return the features and labels of the given texts, or of the kept rows if no texts are given."""
        if (texts is None) != (labels is None):
            given = "labels" if texts is None else "texts"
            raise ValueError(f"`texts` and `labels` must both be given or both be None, got only `{given}`")
        if texts is None:
            if not hasattr(self, "rows_"):
                raise ValueError(
                    f"`texts` must be given to `{method}`, got None; this tagger keeps no rows to use instead"
                )
            return self.rows_, self.row_labels_
        every = list(dict.fromkeys([*self.label_names_.tolist(), *names]))
        known = set(every)
        rows = (_row(row) for row in rows_of_names(labels))
        X, _, Y = self._matrices(texts, [_among(row, known) for row in rows], every, fits=False)
        return X, Y

    def _keep(self, kept: NDArray[np.int64]) -> None:
        """Remove all labels except `kept` from the attributes of the tagger, but not from the classifier."""
        for name in ("label_names_", "label_ids_"):
            if hasattr(self, name):
                setattr(self, name, getattr(self, name)[kept])
        if hasattr(self, "row_labels_"):
            self.row_labels_ = csr_array(self.row_labels_[:, kept])

    def _log(self, change: str) -> None:
        self.label_changes_ = np.array([*getattr(self, "label_changes_", ()), change], dtype=object)


def _row(names: Any) -> Any:
    """Return the names of a row as a list. A str, or a value that is not iterable, is returned unchanged."""
    return names if isinstance(names, str) or not isinstance(names, Iterable) else list(names)


def _among(row: Any, names: set[str]) -> Any:
    """Return the items of `row` that are in `names`.

    Items that are not strings are also returned. If `row` is not a list, it is returned unchanged.
    """
    return [name for name in row if not isinstance(name, str) or name in names] if type(row) is list else row


def _without(row: Any, names: set[str]) -> Any:
    """Return the names of a row that are not in `names`. An item that is not a str is always returned."""
    return [name for name in row if name not in names] if type(row) is list else row


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(str(name)) for name in names)


def _stacked(above: Any, below: Any) -> Any:
    if issparse(above):
        parts: list[Any] = [above, csr_array(below)]
        return csr_array(vstack(parts, format="csr", dtype=parts[0].dtype))
    return np.vstack([above, below]).astype(above.dtype, copy=False)


def _merged(Y: csr_array, places: NDArray[np.int64]) -> csr_array:
    """Return a copy of the indicator matrix Y in which some labels are merged.

    The column ``places[0]`` becomes the union of the columns `places`. The other columns in `places` become
    empty.
    """
    columns = np.arange(Y.shape[1])
    columns[places] = places[0]
    merged = csr_array((Y.data.copy(), columns[Y.indices], Y.indptr.copy()), shape=Y.shape)
    merged.sum_duplicates()
    merged.data[:] = 1
    return merged


def identifiers(names: NDArray[Any], label_ids: Mapping[str, str] | Sequence[str]) -> NDArray[Any]:
    """Return the identifiers of labels as an array, and check that they are unique."""
    if isinstance(label_ids, Mapping):
        missing = [name for name in names if name not in label_ids]
        if missing:
            raise ValueError(
                f"`label_ids` must have an identifier for each label, got none for {missing[0]!r}"
            )
        label_ids = [label_ids[name] for name in names]
    return as_names(label_ids, len(names), "label_ids")
