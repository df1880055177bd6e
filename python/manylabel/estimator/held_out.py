"""Functions that choose the regularization strength by the loss or by the rankings on held-out rows.

Held-out rows are rows that a fit does not use, so that the quality of the fit can be measured on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from manylabel.estimator.costs import LabelCosts
from manylabel.estimator.validation import known_ones

__all__ = [
    "STRENGTH_STEP",
    "Fold",
    "best_ranked_strength",
    "best_strength",
    "clearly_lower",
    "held_out_folds",
    "held_out_parts",
    "spread_rows",
]

T = TypeVar("T")

# Ratio between neighboring candidates for the strength, half an order of magnitude. On 26 public data sets,
# precision at 1 differs by less than one percentage point between neighboring candidates near the best
# candidate.
STRENGTH_STEP = 10**0.5

# Minimum relative increase of the precision for which a step is accepted. On large data sets, the precision
# on the sample still rises a little at values of C far above the usual values, but fits with such values take
# longer. Label trees then also rank worse: on a synthetic set of 670,000 labels, 0.2 % led to C = 17, and
# precision at 1 was 4 percentage points lower than with C = 1. On 25 public data sets, values from 0.2 % to
# 0.5 % lead to the same C.
_LEAST_RANK_GAIN = 0.005

# Minimum relative decrease of the loss for which a step is accepted. The loss is flat near its minimum. Steps
# with a smaller decrease change precision at 1 by half a percentage point, up or down.
_LEAST_GAIN = 0.02

# What a true label at each rank adds to the sum of the precisions at 1, 3 and 5.
_GAINS = np.array([1 + 1 / 3 + 1 / 5, 1 / 3 + 1 / 5, 1 / 3 + 1 / 5, 1 / 5, 1 / 5])

# Sizes of the samples of rows and labels. The first number is the smallest size of a sample. The sample of a
# large data set has 1 in _ROW_IN rows and 1 in _LABEL_IN labels. The last number is the largest size of a
# sample. With these limits, the scores take less than 100 MB, and choosing the strength takes a few percent
# of the time of a large fit.
_MANY_ROWS, _ROW_IN, _MOST_ROWS = 4096, 8, 16_384
_MANY_LABELS, _LABEL_IN, _MOST_LABELS = 32, 64, 512

# The smallest number of labels in a sample for rankings. With 32 labels of delicious or stackex-cooking, the
# precision depended mostly on frequent labels, and the chosen values of C were three to ten times too small.
_LABELS_TO_RANK = 128

# The first split holds out one quarter of the rows. Further splits hold out the other quarters, until at
# least _ENOUGH_ROWS rows have been held out.
_N_PARTS = 4
_ENOUGH_ROWS = 512

# Minimum number of positive entries (ones) in the held-out rows of Y. With fewer entries, the loss is too
# noisy.
_FEWEST_POSITIVES = 10

# Multiplier of Knuth's multiplicative hash: a prime near 2**32 divided by the golden ratio. The hash spreads
# consecutive rows evenly over the parts and needs no random generator.
_HASH = 2654435769


class Fold(NamedTuple):
    """A split of a sample of rows into training rows and held-out rows; see `held_out_folds`.

    The labels are also sampled: ``labels`` has the column indices of the sampled labels, and ``Y`` has only
    these columns. ``X`` and ``X_held`` are copies, so a fit may overwrite them.
    """

    X: csr_array | NDArray[Any]
    Y: csr_array
    sample_weight: NDArray[np.float32] | None
    X_held: csr_array | NDArray[Any]
    Y_held: NDArray[np.bool_]
    weight_held: NDArray[np.float64]
    share: float
    """Total weight of the training rows, divided by the total weight of all rows."""
    labels: NDArray[np.intp]
    """Column indices of the labels of this `Fold` in the Y that was passed to `held_out_folds`."""
    unknown_held: NDArray[np.bool_] | None
    """Mask of the unknown entries (NaN in Y) of the held-out rows, or None if there are none."""

    @property
    def most_unknown(self) -> int:
        """Largest number of unknown entries of a held-out row."""
        return 0 if self.unknown_held is None else int(self.unknown_held.sum(axis=1).max())

    @property
    def _fitted(self) -> NDArray[np.bool_]:
        """Mask of the labels that occur in at least one training row."""
        return np.asarray(np.bincount(known_ones(self.Y).indices, minlength=self.Y.shape[1]) > 0)

    def mean_loss(
        self,
        loss_of_margin: Callable[[NDArray[Any]], NDArray[Any]],
        scores: NDArray[Any],
        costs: LabelCosts | None = None,
    ) -> float:
        """Return the mean loss of the held-out rows.

        Unknown entries, and labels that occur in no training row of this `Fold`, are left out.

        Parameters
        ----------
        loss_of_margin : callable
            Function that takes an array of margins and returns an array of losses. The margin of a label is
            its score if the label is present, and minus its score if the label is absent.
        scores : ndarray of shape (n_held_rows, n_labels)
            Scores of the held-out rows.
        costs : LabelCosts or None, default=None
            Two factors for each label of this `Fold`, in the order of the columns of `scores`. `LabelCosts`
            computes them from the weight and the propensity of each label. In rows that have a label, its
            loss is multiplied by its factor in ``costs.positive``. In all other rows, it is multiplied by its
            factor in ``costs.negative``. None means that no loss is multiplied by a factor.

        Returns
        -------
        float
            The mean loss of the held-out rows, weighted by the weights of the rows. The loss of a row is the
            sum of the losses of the labels that are not left out.
        """
        fitted = self._fitted
        scores = scores[:, fitted].astype(np.float64)
        margins = np.where(self.Y_held[:, fitted], scores, -scores)
        losses = loss_of_margin(margins)
        if costs is not None:
            losses = losses * np.where(self.Y_held, costs.positive, costs.negative)[:, fitted]
        if self.unknown_held is not None:
            losses = np.where(self.unknown_held[:, fitted], 0.0, losses)
        return float(np.average(losses.sum(axis=1), weights=self.weight_held))

    def precisions(self, top: csr_array, costs: LabelCosts | None = None) -> NDArray[np.float64]:
        """Return the sum of the precisions at 1, 3 and 5 for each held-out row.

        Rows are left out if none of their labels occurs in the training rows of this `Fold`. The same rows
        are left out for every `top`, so the results for different models have the same length. If the entry
        of a label is unknown for a row, the label is left out of the ranking of this row.

        Parameters
        ----------
        top : csr_array of shape (n_held_rows, n_labels)
            Scores of the best labels of each row, as returned by `predict_topk` with
            ``k = 5 + most_unknown``. Here, ``most_unknown`` is the largest number of unknown entries of a
            held-out row. Labels with an unknown entry in a row are left out of the ranking of this row. Each
            ranking therefore keeps at least the five best labels with known entries, or all labels with known
            entries if there are fewer than five.
        costs : LabelCosts or None, default=None
            Weights and propensities of the labels of this `Fold`, one for each column of `top`. A correct
            prediction of a label counts as ``costs.gain``, which is the weight of the label divided by its
            propensity. None means that every correct prediction counts as 1.

        Returns
        -------
        ndarray of shape (n_ranked_rows,), dtype float64
            The sums, each multiplied by the sample weight of its row. The sample weights are first scaled so
            that their mean is 1 over the rows that are not left out.
        """
        fitted = self._fitted
        row_of = np.repeat(np.arange(top.shape[0]), np.diff(top.indptr))
        labels, scores = top.indices, top.data
        begin: NDArray[Any] = top.indptr
        if self.unknown_held is not None:
            known = ~self.unknown_held[row_of, labels]
            row_of, labels, scores = row_of[known], labels[known], scores[known]
            begin = np.searchsorted(row_of, np.arange(top.shape[0]))
        # Within a row, labels are in increasing order, and the sort is stable.
        order = np.lexsort((-scores, row_of))
        rank = np.arange(len(order)) - begin[row_of]
        labels = labels[order]
        is_true = self.Y_held[row_of, labels] & fitted[labels] & (rank < len(_GAINS))
        gains = is_true * _GAINS[np.minimum(rank, len(_GAINS) - 1)]
        if costs is not None:
            gains = gains * costs.gain[labels]
        sums = np.bincount(row_of, weights=gains, minlength=top.shape[0])
        ranked = self.Y_held[:, fitted].any(axis=1)
        weights = self.weight_held[ranked]
        if len(weights) == 0:
            return weights
        values: NDArray[np.float64] = sums[ranked] * weights / weights.mean()
        return values


def held_out_folds(
    X: csr_array | NDArray[Any],
    Y: csr_array,
    sample_weight: NDArray[np.float32] | None,
    *,
    for_rankings: bool = False,
) -> list[Fold]:
    """Sample rows and labels, and split the sampled rows into training rows and held-out rows.

    Parameters
    ----------
    X : csr_array or ndarray, of shape (n_samples, n_features)
        Features.
    Y : csr_array of shape (n_samples, n_labels)
        Indicator matrix, in which NaN marks unknown entries.
    sample_weight : ndarray of shape (n_samples,), dtype float32, or None
        Weights of the rows, all > 0. None means equal weights.
    for_rankings : bool, default=False
        Whether the sample is for `Fold.precisions`. If True, each sampled row has at least one sampled label,
        and at least 128 labels are sampled, or all labels if there are fewer.

    Returns
    -------
    list of Fold
        The splits of the sampled rows. The list is empty if the held-out rows of all splits together have
        fewer than ten positive entries (ones in Y) in the columns of the sampled labels.

    Notes
    -----
    The sample has an eighth of the rows, but at least 4,096 rows and at most 16,384 rows. It has 1/64 of the
    labels, but at least 32 labels (128 labels for rankings) and at most 512 labels. If there are fewer rows
    or labels than the minimum, all of them are used. The probability that a label is drawn is proportional to
    the number of rows with the label. The same data always give the same sample.
    """
    weights = np.ones(X.shape[0]) if sample_weight is None else sample_weight.astype(np.float64)
    n_drawn = min(max(_MANY_ROWS, X.shape[0] // _ROW_IN), _MOST_ROWS)
    ones = known_ones(Y)
    if for_rankings:
        labels = _drawn_labels(ones, _LABELS_TO_RANK)
        # A row without a sampled label has no true label to rank, so it is not sampled. The sample then has
        # more of the rows of each sampled label. This matters because the best C depends on the number of
        # rows of a label in the whole data set.
        rows = np.flatnonzero(np.diff(ones[:, labels].indptr))
        rows = rows[spread_rows(len(rows), n_drawn)]
    else:
        rows = spread_rows(X.shape[0], n_drawn)
        labels = _drawn_labels(ones[rows], _MANY_LABELS)
    folds = []
    n_positive = 0
    for fit_rows, held_rows in held_out_parts(rows):
        of_held = Y[held_rows][:, labels].toarray()
        Y_held, unknown_held = of_held > 0, np.isnan(of_held)
        n_positive += int(np.count_nonzero(Y_held))
        share = float(weights[fit_rows].sum() / weights.sum())
        weight = None if sample_weight is None else sample_weight[fit_rows]
        folds.append(
            Fold(
                X[fit_rows],
                Y[fit_rows][:, labels],
                weight,
                X[held_rows],
                Y_held,
                weights[held_rows],
                share,
                labels,
                unknown_held if unknown_held.any() else None,
            )
        )
    return folds if n_positive >= _FEWEST_POSITIVES else []


def held_out_parts(rows: NDArray[np.intp]) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Yield up to four splits of `rows`. Each split divides `rows` into rows for a fit and held-out rows.

    For each split, a pair of arrays of row indices is yielded: first the rows of the fit, then the held-out
    rows. Each split holds out a quarter of `rows`, but at most 16,384 rows. All other rows are rows of the
    fit. No row is held out in two splits. The function stops after four splits, or earlier if at least 512
    rows have been held out in total. If there are fewer than four rows, nothing is yielded. Both arrays of a
    pair are sorted, so that rows that are adjacent in memory stay adjacent.
    """
    n_held = min(len(rows) // _N_PARTS, _MOST_ROWS)
    if n_held == 0:
        return
    for part in range(min(_N_PARTS, -(-_ENOUGH_ROWS // n_held))):
        held = np.zeros(len(rows), dtype=bool)
        held[part * n_held : (part + 1) * n_held] = True
        yield np.sort(rows[~held]), np.sort(rows[held])


def spread_rows(n_rows: int, n_drawn: int) -> NDArray[np.intp]:
    """Return the indices of up to `n_drawn` rows, spread evenly over all rows.

    The same arguments always give the same indices. The indices are not sorted.
    """
    return np.argsort(np.arange(n_rows, dtype=np.uint64) * _HASH % 2**32, kind="stable")[:n_drawn]


def _drawn_labels(Y: csr_array, many_labels: int) -> NDArray[np.intp]:
    """Draw labels by systematic sampling.

    The probability that a label is drawn is proportional to the number of rows with the label.
    """
    counts = np.bincount(Y.indices, minlength=Y.shape[1])
    n_drawn = min(max(many_labels, Y.shape[1] // _LABEL_IN), _MOST_LABELS)
    if np.count_nonzero(counts) <= n_drawn:
        return np.flatnonzero(counts)
    # Labels of equal frequency are sorted by their rows, so that the order of the columns of Y does not
    # matter.
    hashes = (np.arange(Y.shape[0], dtype=np.uint64) * _HASH % 2**32).astype(float)
    hashes = np.repeat(hashes, np.diff(Y.indptr))
    by_rows = np.bincount(Y.indices, weights=hashes, minlength=Y.shape[1])
    by_count = np.lexsort((by_rows, -counts))
    ends = np.cumsum(counts[by_count])
    drawn = np.searchsorted(ends, (np.arange(n_drawn) + 0.5) * (ends[-1] / n_drawn), side="right")
    return np.sort(by_count[np.unique(drawn)])


def best_strength(
    measure: Callable[[float], T], is_better: Callable[[T, T], bool], first: float, least: float, most: float
) -> float:
    """Search for the best regularization strength.

    The search starts at `first`. It divides the strength by `STRENGTH_STEP` (the square root of 10) as long
    as the measurement improves. If the first division brings no improvement, the search goes back to `first`,
    and multiplies the strength by `STRENGTH_STEP` as long as the measurement improves. If the first division
    brings an improvement, no strength above `first` is tried.

    Parameters
    ----------
    measure : callable
        Function that takes a strength, fits a model with it, and returns a measurement of the model. The
        search assumes that the measured quality has a single maximum.
    is_better : callable
        Function that compares the measurement of a new strength with the best measurement so far. It returns
        whether the new strength is an improvement.
    first, least, most : float
        `first` is the strength at which the search starts. `least` and `most` are the smallest and the
        largest strength that the search may try.

    Returns
    -------
    float
        The last strength that was an improvement, or `first` if there was none.
    """
    best, measured = first, measure(first)
    for step in (1 / STRENGTH_STEP, STRENGTH_STEP):
        while least <= best * step <= most and is_better(found := measure(best * step), measured):
            best, measured = best * step, found
        if best != first:
            break
    return best


def clearly_lower(loss: float, best: float) -> bool:
    """Return whether a loss is more than 2 % lower than the best loss so far."""
    return loss < (1 - _LEAST_GAIN) * best


def best_ranked_strength(
    precisions: Callable[[float], NDArray[np.float64]], first: float, least: float, most: float
) -> float:
    """Search for the regularization strength with the best rankings of held-out rows.

    The function first searches with `best_strength`. In this search, a new strength is an improvement if it
    increases the mean precision by more than 0.5 % of the best mean so far, and by more than the standard
    error of the increase. After the search, a parabola is fitted to the mean precisions at three strengths:
    ``s``, ``s / STRENGTH_STEP`` and ``s * STRENGTH_STEP``, where s is the best strength. The parabola is a
    function of the logarithm of the strength. The result is the strength at the maximum of the parabola. This
    result is limited to the range from ``s / STRENGTH_STEP**0.5`` to ``s * STRENGTH_STEP**0.5``.

    If the parabola has no maximum, the mean precisions at ``s / STRENGTH_STEP`` and ``s * STRENGTH_STEP`` are
    compared. If the first mean is higher, the result is the lower end of the range. If the second mean is
    higher, the result is the upper end. If both means are equal, the result is s. The result is also s if
    ``s / STRENGTH_STEP`` or ``s * STRENGTH_STEP`` was not tried, or has a mean precision of 0.

    Parameters
    ----------
    precisions : callable
        Function that fits a model with a strength and returns a precision for each held-out row; see
        `Fold.precisions`.
    first, least, most : float
        As in `best_strength`.

    Returns
    -------
    float
        The strength.
    """
    means = {}

    def measure(strength: float) -> NDArray[np.float64]:
        found = precisions(strength)
        means[strength] = found.mean() if len(found) else 0.0
        return found

    best = best_strength(measure, _rank_better, first, least, most)
    tried = sorted(means)
    at = tried.index(best)
    if not 0 < at < len(tried) - 1:
        return best
    below, here, above = (means[strength] for strength in tried[at - 1 : at + 2])
    if min(below, above) <= 0:
        return best  # the ranking of a neighbor has no correct label, so a parabola has no meaning
    bend = below - 2 * here + above
    # If the parabola has no maximum, the mean is higher at a neighbor, but not clearly higher.
    steps = (below - above) / (2 * bend) if bend < 0 else np.sign(above - below)
    return float(best * STRENGTH_STEP ** np.clip(steps, -0.5, 0.5))


def _rank_better(precisions: NDArray[np.float64], best: NDArray[np.float64]) -> bool:
    """Return whether a regularization strength gives clearly higher precisions than the best one so far.

    `precisions` and `best` have one entry for each held-out row; see `Fold.precisions`. The mean of
    ``precisions - best`` must exceed both its standard error and 0.5 % of the mean of `best`.
    """
    gains = precisions - best
    if len(gains) == 0:
        return False
    least = max(gains.std() / np.sqrt(len(gains)), _LEAST_RANK_GAIN * best.mean())
    return bool(gains.mean() > least)
