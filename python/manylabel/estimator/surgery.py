"""A base class with methods that rename, drop, merge, add and refit labels of a fitted model.

Each method changes only the labels that are passed to it. The scores of all other labels stay exactly the
same.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.exceptions import ConvergenceWarning

from manylabel.estimator.base import MultiLabelClassifier, built_aside
from manylabel.estimator.names import as_names, check_label, label_name, renamed
from manylabel.estimator.parameters import shown
from manylabel.estimator.progress import Progress
from manylabel.estimator.schema import Array, Attribute
from manylabel.estimator.validation import as_column, check_labels, check_training_set

__all__ = ["EditableLabels", "union_of"]

Labels = int | str | Iterable[int | str]


class EditableLabels(MultiLabelClassifier):
    """Base class of classifiers whose labels can be changed after the fit.

    A subclass must implement two methods. `_select_labels` keeps, drops and reorders labels, and
    `_append_labels` fits new labels.

    Attributes
    ----------
    label_changes_ : ndarray of shape (n_changes,), dtype object
        Descriptions (str) of the changes of labels after the fit, such as added or renamed labels, oldest
        first. This attribute exists only if there were such changes.
    """

    fitted: ClassVar[dict[str, Attribute]] = {
        **MultiLabelClassifier.fitted,
        "label_changes_": Array(("n_changes",), "O", optional=True),
    }

    label_changes_: NDArray[Any]
    max_iter: int

    def _select_labels(self, labels: NDArray[np.int64]) -> None:
        """Keep only the given labels, in this order. Their scores do not change."""
        raise NotImplementedError

    def _append_labels(
        self,
        X: Any,
        Y: csr_array,
        sample_weight: Any,
        progress: Progress,
        label_weight: Any = None,
        propensities: Any = None,
        start: list[int] | None = None,
    ) -> int:
        """Fit new labels, and append them. Return the number of labels whose fit did not converge.

        If `start` is given, it has one element per new label: the column index of an old label. The fit of
        the new label then starts from the weights of this old label, if the solver supports such a start.
        """
        raise NotImplementedError

    @built_aside
    def rename_labels(self, names: Mapping[int | str, str] | Sequence[str]) -> None:
        """Change the names of labels.

        Parameters
        ----------
        names : mapping, or sequence of str of length n_labels
            A mapping changes the names of some labels. Its keys are labels, given by column index in Y or by
            old name. Its values are the new names. A sequence sets the names of all labels, in the order of
            the columns. If the model has no label names, `names` must be a sequence.

        Returns
        -------
        self
            The estimator itself.

        Raises
        ------
        ValueError
            If the model does not have one of the labels, or if the new names are not unique.

        Examples
        --------
        >>> import manylabel as ml
        >>> X, Y = ml.datasets.make_multilabel(200, 50, 6, random_state=0)
        >>> model = ml.DiSMECClassifier(random_state=0).fit(X, Y)
        >>> model.rename_labels(list("abcdef")).rename_labels({"a": "first"}).label_names_.tolist()
        ['first', 'b', 'c', 'd', 'e', 'f']
        """
        self._check_fitted()
        if not isinstance(names, Mapping):
            self.label_names_ = as_names(names, self._n_labels, "names")
            self._log(f"name {self._n_labels} labels")
            return
        old = getattr(self, "label_names_", None)
        if old is None:
            raise ValueError(
                "`names` must be a sequence with the names of all labels, got a mapping; a mapping can only "
                "change names, and the labels of this model have no names"
            )
        changes = {old[check_label(self, label, self._n_labels)]: name for label, name in names.items()}
        self.label_names_ = renamed(old, changes)
        for name, new in changes.items():
            self._log(f"rename {name!r} to {new!r}")

    @built_aside
    def drop_labels(self, labels: Labels) -> None:
        """Remove labels from the model.

        Parameters
        ----------
        labels : int, str, or iterable of these
            The labels to remove, by column index or by name. At least one label must remain.

        Returns
        -------
        self
            The estimator itself. The remaining labels keep their order and get the column indices 0, 1 and so
            on. Their scores do not change.

        Raises
        ------
        ValueError
            If the model does not have one of the labels, if a label is given twice, or if no label would
            remain.

        Examples
        --------
        >>> import manylabel as ml
        >>> X, Y = ml.datasets.make_multilabel(200, 50, 6, random_state=0)
        >>> model = ml.DiSMECClassifier(random_state=0).fit(X, Y)
        >>> scores = model.decision_function(X)
        >>> bool((model.drop_labels([0, 2]).decision_function(X) == scores[:, [1, 3, 4, 5]]).all())
        True
        """
        self._check_fitted()
        dropped = self._numbers(labels)
        self._log(f"drop {self._shown(dropped)}")
        self._drop(dropped)

    @built_aside
    def add_labels(
        self,
        X: Any,
        Y_new: Any,
        sample_weight: Any = None,
        *,
        label_weight: Any = None,
        propensities: Any = None,
        names: Sequence[str] | None = None,
        progress: Progress = None,
    ) -> None:
        """Add labels to the fitted model, without fitting the old labels again.

        The new labels get the column indices ``n_labels``, ``n_labels + 1`` and so on, where ``n_labels`` is
        the number of labels before the call. Only the classifiers of the new labels are fitted. The scores of
        the old labels do not change.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features of the rows to which the classifiers of the new labels are fitted. The rows can differ
            from the rows of `fit`. The columns must be the same features as in `fit`. Include rows that have
            none of the new labels. The classifiers need such rows as negative examples.
        Y_new : array-like or sparse matrix of shape (n_samples, n_new), or array-like of shape (n_samples,)
            0/1 indicator matrix of the new labels only, with at least one column. NaN marks unknown entries.
            A 1-D array of 0 and 1 is a single new label. All numeric dtypes are accepted.
        label_weight : array-like of shape (n_new,), default=None
            Weights of the new labels, as in `fit`.
        propensities : array-like of shape (n_new,), default=None
            Propensities of the new labels, as in `fit`.
        names : sequence of str of length n_new, default=None
            Names of the new labels. Required if the model has label names. Otherwise, `names` must be
            None.
        progress : callable, default=None
            Function that is called about 20 times per second. Its argument is the number of new labels that
            are finished. If the function raises an exception, the work stops.

        Returns
        -------
        self
            The estimator itself. Its `classes_` has the old and the new labels. The estimator does not change
            if the method fails or is interrupted.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            If the model is not fitted.
        ValueError
            If an argument or parameter is not valid.

        Warns
        -----
        sklearn.exceptions.ConvergenceWarning
            If some new labels did not converge in `max_iter` steps.

        Examples
        --------
        >>> import manylabel as ml
        >>> X, Y = ml.datasets.make_multilabel(200, 50, 6, random_state=0)
        >>> model = ml.DiSMECClassifier(random_state=0).fit(X, Y[:, :5])
        >>> model.add_labels(X, Y[:, [5]]).classes_.tolist()
        [0, 1, 2, 3, 4, 5]
        """
        self._add(X, Y_new, sample_weight, names, progress, label_weight, propensities)

    @built_aside
    def refit_labels(
        self,
        X: Any,
        Y: Any,
        labels: Labels,
        sample_weight: Any = None,
        *,
        warm_start: bool = False,
        progress: Progress = None,
    ) -> None:
        """Fit some labels of the model again, on the given rows only.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features of the rows to which the labels are fitted.
        Y : array-like or sparse matrix of shape (n_samples, n_refitted), or array-like of shape (n_samples,)
            0/1 indicator matrix of the labels to fit, with one column per label of `labels`, in the same
            order. NaN marks unknown entries.
        labels : int, str, or iterable of these
            The labels to fit, by column index or by name.
        warm_start : bool, default=False
            Whether the solver starts from the present weights of the labels. The solver then takes fewer
            steps if the new rows are similar to the rows of the previous fit. The results with True and with
            False are equal up to the tolerance of the solver. For some labels, `warm_start` has no effect
            (see Notes).
        progress : callable, default=None
            Function that is called about 20 times per second. Its argument is the number of finished labels.

        Returns
        -------
        self
            The estimator itself. It does not change if the method fails or is interrupted.

        Raises
        ------
        ValueError
            If an argument or parameter is not valid.

        Warns
        -----
        sklearn.exceptions.ConvergenceWarning
            If some labels did not converge in `max_iter` steps.

        Notes
        -----
        For label trees, `warm_start` has no effect. For `DiSMECClassifier`, it has an effect on all labels if
        X is dense, if `solver` is "exact", or if `loss` is "logistic". Otherwise, it has no effect on rare
        labels. A label is rare if it occurs in fewer than 1 % of the given rows. Rows in which the entry of
        the label is unknown are not counted. Rare labels are fitted by dual coordinate descent. This solver
        cannot start from weights. It can only start from dual variables, which a model does not contain. The
        weights of rare labels are therefore the same with and without `warm_start`.

        Examples
        --------
        >>> import manylabel as ml
        >>> X, Y = ml.datasets.make_multilabel(200, 50, 6, random_state=0)
        >>> model = ml.DiSMECClassifier(random_state=0).fit(X, Y)
        >>> model.refit_labels(X[:150], Y[:150, [3]], [3], warm_start=True).label_changes_.tolist()
        ["refit 'label 3' on 150 rows"]
        """
        self._check_fitted()
        places = self._numbers(labels)
        X, Y, sample_weight = self._checked_rows(X, Y, sample_weight, len(places), unknown=True)
        self._log(f"refit {self._shown(places)} on {X.shape[0]} rows")
        self._replace(places, X, Y, sample_weight, progress, warm_start=warm_start)

    @built_aside
    def merge_labels(
        self,
        labels: Iterable[int | str],
        X: Any,
        Y: Any,
        sample_weight: Any = None,
        *,
        name: str | None = None,
        progress: Progress = None,
    ) -> None:
        """Replace several labels by one merged label.

        A row has the merged label if it has any of the labels that are merged. The merged label is fitted to
        the given rows. It takes the place of the first label in `labels`, and the other labels in `labels`
        are removed.

        Parameters
        ----------
        labels : iterable of int or str
            Two or more labels to merge, by column index or by name.
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features of the rows to which the classifier of the merged label is fitted.
        Y : array-like or sparse matrix of shape (n_samples, n_merged)
            0/1 indicator matrix of the labels to merge, with one column per label of `labels`, in the same
            order.
        name : str, default=None
            Name of the merged label. None means the name of the first label in `labels`.
        progress : callable, default=None
            Function that is called about 20 times per second. Its argument is the number of finished labels.

        Returns
        -------
        self
            The estimator itself. It does not change if the method fails or is interrupted.

        Raises
        ------
        ValueError
            If an argument or parameter is not valid.

        Warns
        -----
        sklearn.exceptions.ConvergenceWarning
            If the merged label did not converge in `max_iter` steps.

        Examples
        --------
        >>> import manylabel as ml
        >>> X, Y = ml.datasets.make_multilabel(200, 50, 6, random_state=0)
        >>> model = ml.DiSMECClassifier(random_state=0).fit(X, Y)
        >>> model.merge_labels([1, 4], X, Y[:, [1, 4]]).predict(X).shape
        (200, 5)
        """
        self._check_fitted()
        places = self._numbers(labels)
        if len(places) < 2:
            raise ValueError(f"`labels` must have at least two labels to merge, got {len(places)}")
        if name is not None:
            if not isinstance(name, str):
                raise ValueError(f"`name` must be a str, got {shown(name)}")
            if not hasattr(self, "label_names_"):
                raise ValueError("`name` must be None, since the model has no label names")
        X, Y, sample_weight = self._checked_rows(X, Y, sample_weight, len(places))
        into = label_name(self, places[0]) if name is None else name
        self._log(f"merge {self._shown(places)} into {into!r}")
        self._replace(places[:1], X, union_of(Y), sample_weight, progress)
        if name is not None:
            names = self.label_names_.copy()
            names[places[0]] = name
            self.label_names_ = names
        self._drop(places[1:])
        if name is not None:
            self.label_names_ = as_names(self.label_names_, self._n_labels, "name")

    def _add(
        self,
        X: Any,
        Y_new: Any,
        sample_weight: Any,
        names: Sequence[str] | None,
        progress: Progress,
        label_weight: Any = None,
        propensities: Any = None,
    ) -> None:
        self._check_fitted()
        column = as_column(Y_new)
        X, Y, sample_weight = check_training_set(
            self,
            X,
            Y_new if column is None else column,
            sample_weight,
            reset=False,
            dense=self._dense,
            name="Y_new",
            unknown=True,
        )
        old = getattr(self, "label_names_", None)
        n_new, n_labels = Y.shape[1], self._n_labels + Y.shape[1]
        if (names is None) != (old is None):
            wanted = f"the names of {n_new} labels"
            if old is None:
                wanted = "None, since the model has no label names"
            raise ValueError(f"`names` must be {wanted}, got {shown(names)}")
        if names is not None:
            new = as_names(names, n_new, "names").tolist()
            every = as_names([*old.tolist(), *new], n_labels, "names")  # type: ignore[union-attr]
        self._warn_unfinished(self._append_labels(X, Y, sample_weight, progress, label_weight, propensities))
        self.one_dimensional_ = False
        self.classes_ = np.arange(n_labels)
        if names is not None:
            self.label_names_ = every
        self._log(f"add {self._shown(range(n_labels - n_new, n_labels))}, fitted on {X.shape[0]} rows")

    def _replace(
        self,
        places: list[int],
        X: Any,
        Y: csr_array,
        sample_weight: Any,
        progress: Progress,
        *,
        warm_start: bool = False,
    ) -> None:
        n_labels = self._n_labels
        start = places if warm_start else None
        self._warn_unfinished(self._append_labels(X, Y, sample_weight, progress, start=start))
        order = np.arange(n_labels)
        order[places] = np.arange(n_labels, n_labels + len(places))
        self._select_labels(order)

    def _drop(self, dropped: list[int]) -> None:
        kept = np.setdiff1d(np.arange(self._n_labels), dropped)
        if not len(kept):
            raise ValueError(
                "`labels` must not contain all labels of the model, because at least one label must remain"
            )
        self._select_labels(kept)
        if not self._is_one_label:
            self.classes_ = np.arange(len(kept))
        if hasattr(self, "label_names_"):
            self.label_names_ = self.label_names_[kept]

    def _checked_rows(
        self, X: Any, Y: Any, sample_weight: Any, n_labels: int, *, unknown: bool = False
    ) -> tuple[Any, csr_array, Any]:
        column = as_column(Y)
        X, Y, sample_weight = check_training_set(
            self,
            X,
            Y if column is None else column,
            sample_weight,
            reset=False,
            dense=self._dense,
            unknown=unknown,
        )
        if Y.shape[1] != n_labels:
            raise ValueError(
                f"Y must have {n_labels} columns, one for each label of `labels`, got {Y.shape[1]}"
            )
        return X, Y, sample_weight

    def _numbers(self, labels: Labels) -> list[int]:
        """Return the column indices of labels. Raise an error if a label is unknown or occurs twice."""
        given = [labels] if isinstance(labels, int | np.integer | str) else list(labels)
        numbers = [check_label(self, label, self._n_labels) for label in given]
        if not numbers:
            raise ValueError("`labels` must have at least one label, got none")
        if len(set(numbers)) != len(numbers):
            raise ValueError(f"`labels` must be unique, got {shown(given)}")
        return numbers

    def _shown(self, labels: Iterable[int]) -> str:
        return ", ".join(repr(label_name(self, label)) for label in labels)

    def _log(self, change: str) -> None:
        changes = [*getattr(self, "label_changes_", ()), change]
        self.label_changes_ = np.array(changes, dtype=object)

    def _warn_unfinished(self, n_unfinished: int) -> None:
        if n_unfinished:
            warnings.warn(
                f"{n_unfinished} linear classifiers did not converge in max_iter={self.max_iter} steps",
                ConvergenceWarning,
                stacklevel=5,
            )


def union_of(Y: csr_array) -> csr_array:
    """Return an indicator matrix with one column. It is 1 in the rows that have at least one label of Y."""
    return check_labels((np.diff(Y.indptr) > 0)[:, None])
