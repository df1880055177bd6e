"""Measures of the probabilities of labels, for dense and sparse probabilities.

Except for `calibration_error` with ``pairs="all"``, the measures use only the candidate labels of each row.
If probabilities are sparse, such as the result of ``predict_proba_topk``, the candidates of a row are the
labels with a stored entry in this row. If probabilities are dense, all labels are candidates. With
``pairs="all"``, labels without a stored entry have the probability 0.

Probabilities are calibrated if they equal the frequencies of true labels. For example, labels that are
predicted with the probability 0.3 are true in 30 % of the cases. To measure calibration, all pairs of a row
and a candidate are sorted by probability and divided into bins. The numbers of pairs in any two bins differ
by at most 1. In each bin, the mean probability is compared with the fraction of true labels. The calibration
error is the mean of the absolute differences over all bins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from manylabel.estimator.documentation import documented_like
from manylabel.estimator.parameters import Choice, Count, Number
from manylabel.estimator.plotting import pyplot
from manylabel.estimator.validation import known_ones, unknown_entries
from manylabel.metrics.ranking import (
    Floats,
    Matrix,
    as_asked,
    check_k,
    check_pair,
    hits_of_ranks,
    ranked,
    without,
)

__all__ = ["brier_at_k", "calibration_error", "log_loss_at_k", "plot_reliability", "reliability_curve"]

# Probabilities are clipped to [_LEAST, 1 - _LEAST] for the log loss, which is infinite for 0 and 1. The value
# is the resolution of float32.
_LEAST = float(np.finfo(np.float32).eps)

_AVERAGE = Choice("all", "label")
_PAIRS = Choice("candidates", "all")
_BINS = Count(1)
_ABOVE = Number(least=0, below=1)
_POSITIVES = Count(1)


class Reliability(NamedTuple):
    """The points of a reliability curve; see `reliability_curve`."""

    probability: Floats
    """Mean probability of each bin."""
    frequency: Floats
    """Fraction of true labels of each bin."""
    n_pairs: NDArray[np.int64]
    """Number of (row, candidate) pairs in each bin."""


def calibration_error(
    Y_true: Matrix,
    probabilities: Matrix,
    *,
    n_bins: int = 15,
    average: Literal["all", "label"] = "all",
    pairs: Literal["candidates", "all"] = "candidates",
    above: float = 0.0,
    least_positives: int = 1,
) -> float:
    """Compute the expected calibration error, with the same number of probabilities in each bin.

    Parameters
    ----------
    Y_true : ndarray or sparse matrix of shape (n, c)
        True labels: a 0/1 indicator matrix of any numeric or bool dtype. Unknown entries, marked by NaN, are
        left out.
    probabilities : ndarray or sparse matrix of shape (n, c)
        Probabilities of the labels, in [0, 1].
    n_bins : int, default=15
        Number of bins, >= 1. The (row, label) pairs are sorted by probability and divided into bins. The
        numbers of pairs in any two bins differ by at most 1. If there are fewer pairs than `n_bins`, each
        pair is a bin.
    average : {"all", "label"}, default="all"
        "all" uses the pairs of all labels together. "label" computes the error of each label, and returns the
        mean over the labels.
    pairs : {"candidates", "all"}, default="candidates"
        Which (row, label) pairs are used. If `probabilities` is sparse, "candidates" uses only pairs with a
        stored entry, and "all" uses all pairs. With "all", entries that are not stored have the
        probability 0. If `probabilities` is dense, both choices use all pairs.
    above : float, default=0.0
        If `above` is > 0, only pairs with probabilities greater than `above` are used. With ``above=0``,
        pairs of every probability are used, including 0.
    least_positives : int, default=1
        With ``average="label"``, labels that are true in fewer than `least_positives` rows are left out.

    Returns
    -------
    float
        The calibration error, in [0, 1]. The result is NaN if no pair or no label is left.

    Raises
    ------
    ValueError
        If `Y_true` and `probabilities` have different shapes, if `Y_true` has values other than 0, 1 and NaN,
        if a probability is outside [0, 1], or if another argument is not valid.

    Notes
    -----
    Even perfectly calibrated probabilities have an error above 0, because the fraction of true labels in a
    bin differs from the mean probability by chance. The error due to chance increases with the number of bins
    and decreases with the number of pairs. With ``average="label"`` and ``pairs="candidates"``, the error of
    a label is mostly due to chance if few rows have a stored entry for this label. If most labels have few
    stored entries, the mean over the labels is mostly due to chance, too.

    The time is O(m log m), where m is the number of stored entries of `Y_true` and `probabilities`. If an
    argument is dense, all of its entries count as stored. Sparse arguments are never made dense.

    Examples
    --------
    >>> from manylabel.metrics import calibration_error
    >>> Y, P = [[1, 0], [0, 0], [0, 0], [1, 0]], [[0.5, 0.1], [0.5, 0.1], [0.5, 0.1], [0.5, 0.1]]
    >>> round(calibration_error(Y, P, n_bins=2), 3)
    0.05
    """
    average, pairs = _AVERAGE.check("average", average), _PAIRS.check("pairs", pairs)
    n_bins, above = _BINS.check("n_bins", n_bins), _ABOVE.check("above", above)
    least_positives = _POSITIVES.check("least_positives", least_positives)
    Y, P, n_known = _checked(Y_true, probabilities)
    hits = hits_of(P, Y)
    used = P.data > above if above > 0 else np.ones(len(P.data), dtype=bool)
    labels = P.indices[used]
    values, hits = P.data[used].astype(np.float64), hits[used]
    adds_others = pairs == "all" and above == 0
    if average == "all":
        others = int(n_known.sum()) - len(values) if adds_others else 0
        missed = int(Y.nnz - np.count_nonzero(hits)) if adds_others else 0
        return _error(values, hits, others, missed, n_bins)
    order = np.argsort(labels, kind="stable")
    ends = np.searchsorted(labels[order], np.arange(len(n_known) + 1))
    n_true = np.bincount(Y.indices, minlength=len(n_known))
    errors = []
    for label in np.flatnonzero(n_true >= least_positives):
        of_label = order[ends[label] : ends[label + 1]]
        found = int(np.count_nonzero(hits[of_label]))
        others = int(n_known[label]) - len(of_label) if adds_others else 0
        missed = int(n_true[label]) - found if adds_others else 0
        if len(of_label) + others:
            errors.append(_error(values[of_label], hits[of_label], others, missed, n_bins))
    return float(np.mean(errors)) if errors else float("nan")


def _error(values: Floats, hits: NDArray[np.bool_], others: int, missed: int, n_bins: int) -> float:
    """Return the calibration error of (row, label) pairs.

    `values` contains the probabilities of pairs that have a stored entry. `hits` states for each of these
    pairs whether its label is true. `others` is the number of additional pairs, which have no stored entry
    and count with the probability 0. `missed` is the number of these additional pairs whose label is true.
    """
    n = len(values) + others
    if n == 0:
        return float("nan")
    order = np.argsort(values, kind="stable")
    # Sum of the differences over the first i pairs. The pairs of probability 0 come first, and their true
    # labels are spread evenly.
    sums = np.concatenate([[0.0], np.cumsum(values[order] - hits[order])]) - missed
    edges = np.arange(min(n_bins, n) + 1) * n // min(n_bins, n)
    within = -missed * edges / others if others else np.zeros(len(edges))
    at = np.where(edges < others, within, sums[np.maximum(edges - others, 0)])
    return float(np.abs(np.diff(at)).sum() / n)


@documented_like(calibration_error)
def reliability_curve(
    Y_true: Matrix, probabilities: Matrix, *, n_bins: int = 15, above: float = 0.0
) -> Reliability:
    """Compute a reliability curve: for each bin, the mean probability and the fraction of true labels.

    If `probabilities` is sparse, only the (row, label) pairs with a stored entry are used. If `probabilities`
    is dense, all (row, label) pairs are used.

    Returns
    -------
    Reliability
        A named tuple of three arrays with one element per bin. `probability` is the mean probability,
        `frequency` is the fraction of true labels, and `n_pairs` is the number of pairs. There are at most
        `n_bins` bins. If probabilities are calibrated, `probability` and `frequency` differ only by chance.

    Examples
    --------
    >>> from manylabel.metrics import reliability_curve
    >>> reliability_curve([[1, 0], [0, 0]], [[0.9, 0.1], [0.7, 0.3]], n_bins=2).frequency
    array([0. , 0.5])
    """
    n_bins, above = _BINS.check("n_bins", n_bins), _ABOVE.check("above", above)
    Y, P, _ = _checked(Y_true, probabilities)
    hits = hits_of(P, Y)
    used = P.data > above if above > 0 else np.ones(len(P.data), dtype=bool)
    values, hits = P.data[used].astype(np.float64), hits[used]
    order = np.argsort(values, kind="stable")
    bins = [bin for bin in np.array_split(order, min(n_bins, max(1, len(order)))) if len(bin)]
    return Reliability(
        np.array([values[bin].mean() for bin in bins]),
        np.array([hits[bin].mean() for bin in bins]),
        np.array([len(bin) for bin in bins], dtype=np.int64),
    )


@documented_like(calibration_error)
def plot_reliability(
    Y_true: Matrix, probabilities: Matrix, *, n_bins: int = 15, above: float = 0.0, ax: Any = None
) -> Any:
    """Plot the reliability curve, which `reliability_curve` computes.

    If the probabilities are calibrated, the points differ from the diagonal only by chance. The plot requires
    matplotlib.

    Parameters
    ----------
    ax : matplotlib.axes.Axes, default=None
        Axes for the plot. None creates a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the plot. The error bars extend two standard errors above and below each point.
    """
    curve = reliability_curve(Y_true, probabilities, n_bins=n_bins, above=above)
    if ax is None:
        _, ax = pyplot().subplots(figsize=(5, 5), layout="constrained")
    errors = 2 * np.sqrt(curve.frequency * (1 - curve.frequency) / curve.n_pairs)
    ax.plot([0, 1], [0, 1], color="0.7", linewidth=1)
    ax.errorbar(curve.probability, curve.frequency, yerr=errors, marker="o", markersize=4)
    ax.set(xlabel="mean probability", ylabel="fraction of true labels", aspect="equal")
    return ax


def brier_at_k(Y_true: Matrix, probabilities: Matrix, k: int | Sequence[int] = (1, 3, 5)) -> float | Floats:
    """Compute the mean squared error of the probabilities of the k most probable labels of each row.

    Parameters
    ----------
    Y_true : ndarray or sparse matrix of shape (n, c)
        True labels: a 0/1 indicator matrix of any numeric or bool dtype. NaN marks unknown entries. They are
        left out before the k most probable labels of a row are chosen.
    probabilities : ndarray or sparse matrix of shape (n, c)
        Probabilities of the labels, in [0, 1].
    k : int or sequence of int, default=(1, 3, 5)
        Number of labels to use in each row, >= 1. The k most probable candidates of a row are used. If
        `probabilities` is sparse, the candidates are the labels with a stored entry in the row. If
        `probabilities` is dense, all labels are candidates. If a row has fewer than k candidates, all its
        candidates are used.

    Returns
    -------
    float or ndarray of shape (len(k),), dtype float64
        The mean of ``(p - h)**2`` over all (row, label) pairs in which the label is one of the k most
        probable labels of the row. Here, p is the probability of a label, and h is 1 for a true label and 0
        otherwise. The result is a float if `k` is an int. The mean is NaN if no row has a candidate.

    Raises
    ------
    ValueError
        If `Y_true` and `probabilities` have different shapes, if `Y_true` has values other than 0, 1 and NaN,
        if a probability is outside [0, 1], or if `k` is < 1.

    Examples
    --------
    >>> from manylabel.metrics import brier_at_k
    >>> round(brier_at_k([[1, 0], [0, 1]], [[0.9, 0.1], [0.7, 0.3]], k=1), 2)
    0.25
    """
    return _at_k(Y_true, probabilities, k, lambda p, hits: (p - hits) ** 2)


@documented_like(brier_at_k)
def log_loss_at_k(
    Y_true: Matrix, probabilities: Matrix, k: int | Sequence[int] = (1, 3, 5)
) -> float | Floats:
    """Compute the mean log loss of the probabilities of the k most probable labels of each row.

    Returns
    -------
    float or ndarray of shape (len(k),), dtype float64
        The mean loss over all (row, label) pairs in which the label is one of the k most probable labels of
        the row. The loss of a label with probability p is ``-log p`` if the label is true, and
        ``-log(1 - p)`` otherwise. Probabilities are clipped to the range from 1.2e-7 to 1 - 1.2e-7, because
        the logarithm of 0 is not finite. The result is a float if `k` is an int. The mean is NaN if no row
        has a candidate.

    Examples
    --------
    >>> from manylabel.metrics import log_loss_at_k
    >>> round(log_loss_at_k([[1, 0], [0, 1]], [[0.9, 0.1], [0.5, 0.3]], k=1), 3)
    0.399
    """

    def loss(p: Floats, hits: NDArray[np.bool_]) -> Floats:
        p = np.clip(p, _LEAST, 1 - _LEAST)
        return -np.log(np.where(hits, p, 1 - p))

    return _at_k(Y_true, probabilities, k, loss)


def _at_k(Y_true: Matrix, probabilities: Matrix, k: int | Sequence[int], loss: Any) -> float | Floats:
    ks = check_k(k)
    Y, P, _ = _checked(Y_true, probabilities)
    depth = min(int(ks.max()), Y.shape[1])
    sums, counts = np.zeros(len(ks)), np.zeros(len(ks))
    for block, top in ranked(P, depth):
        part = P[block]
        rows, ranks = np.nonzero(top >= 0)
        found = np.zeros(top.shape)
        # Positions of the ranked labels among the stored entries, whose cells are increasing.
        stored = np.repeat(np.arange(part.shape[0]), np.diff(part.indptr)) * np.int64(Y.shape[1])
        cells = rows * np.int64(Y.shape[1]) + top[rows, ranks]
        found[rows, ranks] = part.data[np.searchsorted(stored + part.indices, cells)]
        losses = np.where(top >= 0, loss(found, hits_of_ranks(Y, block, top)), 0.0)
        for at, each in enumerate(np.minimum(ks, depth).tolist()):
            sums[at] += losses[:, :each].sum()
            counts[at] += np.count_nonzero(top[:, :each] >= 0)
    means = np.divide(sums, counts, out=np.full(len(ks), np.nan), where=counts > 0)
    return as_asked(k, means)


def _checked(Y_true: Matrix, probabilities: Matrix) -> tuple[csr_array, csr_array, NDArray[np.int64]]:
    """Check true labels and probabilities, and convert both to CSR arrays without unknown entries.

    Zeros of dense probabilities are kept as stored entries. The third result contains, for each label, the
    number of rows in which the entry of `Y_true` is known.
    """
    Y, P = check_pair(Y_true, probabilities, "probabilities")
    if not isinstance(P, csr_array):
        n, c = P.shape
        every = (P.ravel(), np.tile(np.arange(c), n), np.arange(n + 1) * c)
        P = csr_array(every, shape=P.shape)
    if P.nnz and not (P.data.min() >= 0 and P.data.max() <= 1):
        outside = P.data.max() if P.data.min() >= 0 else P.data.min()
        raise ValueError(f"values of `probabilities` must be from 0 to 1, got {outside}")
    n_known = np.full(Y.shape[1], Y.shape[0], dtype=np.int64)
    unknown = unknown_entries(Y)
    if unknown is None:
        return Y, P, n_known
    n_known -= np.bincount(unknown.indices, minlength=Y.shape[1])
    marked = without(P, unknown)
    kept = marked.data >= 0
    ends = np.concatenate([[0], np.cumsum(kept)])[marked.indptr]
    return known_ones(Y), csr_array((P.data[kept], P.indices[kept], ends), P.shape), n_known


def hits_of(P: csr_array, Y: csr_array) -> NDArray[np.bool_]:
    """Return a boolean array that states for each stored entry of P whether its label is true.

    The label of an entry of P is true if Y has a stored entry in the same row and column.
    """
    if Y.nnz == 0:
        return np.zeros(P.nnz, dtype=bool)
    c = np.int64(Y.shape[1])
    true = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr)) * c + Y.indices
    cells = np.repeat(np.arange(P.shape[0]), np.diff(P.indptr)) * c + P.indices
    found: NDArray[np.bool_] = true[np.minimum(np.searchsorted(true, cells), len(true) - 1)] == cells
    return found
