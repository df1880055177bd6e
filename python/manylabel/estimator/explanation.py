"""Explanations that divide a score into parts, in the same form for every classifier."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

__all__ = ["Explained", "LabelExplanation", "Part", "by_removal", "feature_parts"]

# Number of rows of an explanation that its text shows.
_SHOWN = 10


@dataclass(frozen=True)
class Part:
    """A part of an explained score, such as the contribution of one feature.

    Parameters
    ----------
    part : str
        Kind of the part, such as "feature" or "intercept".
    name : str
        Name of the part, such as the name of the feature.
    contribution : float
        The number that the part adds to the explained quantity, such as the score.

    Examples
    --------
    >>> Part("feature", "cats", 0.5)
    Part(part='feature', name='cats', contribution=0.5)
    """

    part: str
    name: str
    contribution: float


class LabelExplanation(list[Any]):
    """List of the parts of the score of a label, in order of decreasing absolute contribution.

    Every item has the attributes `part`, `name` and `contribution`. The contributions sum to `total`.

    Parameters
    ----------
    rows : iterable of Part
        The parts, in any order. A classifier that learns rules passes `FiredRule` objects, which have the
        same attributes.
    label : str
        Name of the label.
    quantity : str
        Name of the quantity that the contributions sum to. The name is "score" if this quantity is the score
        that `decision_function` returns. Otherwise, the name describes another quantity. An example is
        "margin in its leaf" for a label tree, where "its" refers to the label.
    total : float
        Sum of the contributions.
    score : float
        Score of the label.
    path : list of Part, default=()
        For label trees, one `Part` for each node on the path from the root to the leaf of the label. The
        root has no `Part`. The contribution of a node is ``path_weight_ * log(p)``. Here p is the probability
        of the node, and `path_weight_` is an attribute of the label tree. `total` does not include these
        contributions.

    Examples
    --------
    >>> import manylabel as ml
    >>> X, Y = ml.datasets.make_multilabel(200, 50, 10, random_state=0)
    >>> explanation = ml.DiSMECClassifier(random_state=0).fit(X, Y).explain(X[[0]], 3)
    >>> abs(sum(row.contribution for row in explanation) - explanation.score) < 1e-5
    True
    """

    def __init__(
        self,
        rows: Iterable[Any],
        *,
        label: str,
        quantity: str,
        total: float,
        score: float,
        path: Iterable[Part] = (),
    ) -> None:
        super().__init__(sorted(rows, key=lambda row: -abs(row.contribution)))
        self.label, self.quantity, self.total, self.score = label, quantity, total, score
        self.path = list(path)

    def __repr__(self) -> str:
        lines = [f"{self.label}: {self.quantity} {self.total:+.3f}"]
        if self.quantity != "score":
            lines[0] += f", score {self.score:+.3f}"
        lines += [f"    {row.contribution:+.3f} {row.part}: {row.name}" for row in self[:_SHOWN]]
        if len(self) > _SHOWN:
            rest = sum(row.contribution for row in self[_SHOWN:])
            lines.append(f"    {rest:+.3f} {len(self) - _SHOWN} other parts")
        return "\n".join(lines + [f"    path {row.contribution:+.3f} {row.name}" for row in self.path])

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as a dict of strings, numbers and lists, which JSON can hold.

        Returns
        -------
        dict
            A dict with the keys "label", "quantity", "total", "score", "rows" and "path". A label that occurs
            in no training row has the score -inf. JSON has no infinite numbers, so -inf is replaced by None.
        """

        def finite(value: float) -> float | None:
            return value if math.isfinite(value) else None

        def listed(rows: Iterable[Any]) -> list[dict[str, Any]]:
            return [{"part": r.part, "name": r.name, "contribution": finite(r.contribution)} for r in rows]

        return {
            "label": self.label,
            "quantity": self.quantity,
            "total": finite(self.total),
            "score": finite(self.score),
            "rows": listed(self),
            "path": listed(self.path),
        }

    def to_frame(self) -> Any:
        """Return the parts of the score as a data frame.

        Returns
        -------
        pandas.DataFrame
            One row for each part, with the columns "part", "name" and "contribution".

        Raises
        ------
        ModuleNotFoundError
            If pandas is not installed.
        """
        import pandas as pd

        rows = [(row.part, row.name, row.contribution) for row in self]
        return pd.DataFrame(rows, columns=["part", "name", "contribution"])


@dataclass(frozen=True)
class Explained:
    """Parts of a score, as a classifier computes them for a `LabelExplanation`.

    Parameters
    ----------
    rows : list
        The parts.
    quantity : str, default="score"
        Name of the quantity that is the sum of the contributions of the parts.
    path : list of Part, default=()
        The path to the label in a label tree.
    """

    rows: list[Any]
    quantity: str = "score"
    path: tuple[Part, ...] = ()


def feature_parts(
    features: NDArray[Any], contributions: NDArray[Any], names: Any, more: Iterable[Part] = ()
) -> list[Part]:
    """Return one `Part` for each feature with a nonzero contribution, and then the parts in `more`.

    `features` has the column indices of features, and `contributions` has the contribution of each of these
    features to the score. Features with the contribution 0 are left out.
    """
    used = np.flatnonzero(contributions)
    pairs = zip(features[used].tolist(), contributions[used].tolist(), strict=True)
    return [*(Part("feature", str(names[feature]), value) for feature, value in pairs), *more]


def by_removal(
    score: Callable[[csr_array], NDArray[Any]], x: csr_array, names: Any, quantity: str = "score"
) -> Explained:
    """Explain a score by its changes when the features are set to 0, one after the other.

    The features are set to 0 in two passes: once in the order of their column indices, and once in the
    reverse order. In a pass, features that were set to 0 stay 0. The contribution of a feature is the
    decrease of the score when this feature is set to 0, averaged over both passes. The intercept is the score
    of a row of zeros. The contributions of the features and the intercept sum to the score of the row.

    Parameters
    ----------
    score : callable
        Function that takes rows and returns their scores, as an array of shape (n_rows,).
    x : csr_array of shape (1, n_features)
        The row. If it has n stored features, `score` is called with 2 n + 2 rows.
    names : sequence of str
        Names of the features.
    quantity : str, default="score"
        Name of the quantity that `score` computes.

    Returns
    -------
    Explained
        One part for each feature with a nonzero contribution, and one part for the intercept.
    """
    n = x.nnz
    kept = np.arange(n + 1)
    # Row i of the first half has the last n - i features, and row i of the second half the first n - i.
    indices = [x.indices[i:] for i in kept] + [x.indices[: n - i] for i in kept]
    data = [x.data[i:] for i in kept] + [x.data[: n - i] for i in kept]
    ends = np.concatenate([[0], np.cumsum([len(part) for part in indices])]).astype(x.indptr.dtype)
    rows = csr_array((np.concatenate(data), np.concatenate(indices), ends), shape=(2 * (n + 1), x.shape[1]))
    found = np.asarray(score(rows), dtype=np.float64)
    down, up = -np.diff(found[: n + 1]), -np.diff(found[n + 1 :])[::-1]
    base = Part("intercept", "all features 0", float(found[n]))
    return Explained(feature_parts(x.indices, (down + up) / 2, names, [base]), quantity)
