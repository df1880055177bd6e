"""Functions that divide rows into blocks, and choose the number of blocks and `lam`.

Each block has a set of labels. `lam` is the weight of the penalty on large label sets in the objective of
`BlockPartitioner`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from manylabel import _core
from manylabel.estimator.documentation import documented_like
from manylabel.estimator.scaling import core_features
from manylabel.estimator.validation import known_ones, unknown_entries
from manylabel.metrics import precision_at_k
from manylabel.partition.models import fit_models, rows_of_blocks
from manylabel.partition.router import best_blocks, fit_router

__all__ = [
    "Chosen",
    "Partition",
    "Setting",
    "choose_lam",
    "default_lam",
    "find_partition",
    "lam_by_rule",
    "partition_by_rule",
    "routing_rows",
    "with_fewer_labels",
]

# The precision at these ranks is compared (P@1, P@3 and P@5).
KS = (1, 3, 5)
# The candidates for `lam`. Each candidate is given by a fraction: with this candidate, a single block of all
# rows would capture this fraction of the positive entries of Y.
SHARES = (0.99, 0.97, 0.95, 0.9, 0.8, 0.65, 0.5, 0.35)
# The default fraction of `default_lam`, which computes a value of `lam` without cross-validation.
DEFAULT_SHARE = 0.9
# Minimum number of rows and labels per block with ``mode="rule"``, and the maximum number of blocks. More
# blocks have two disadvantages. The router fits one binary model per block to all rows. Block models that are
# fitted to fewer rows give worse rankings. On eurlex57k, fits with ten blocks and with four blocks take the
# same time and give equally good rankings. On citeulike-t, ten blocks give worse rankings.
ROWS_OF_A_BLOCK = 5000
LABELS_OF_A_BLOCK = 500
MOST_BLOCKS = 4
# The value of `lam` with ``mode="rule"``, given by the fraction of the positive entries that a single block
# of all rows would capture. The first constant applies to several blocks, and the second constant to one
# block. On citeulike-t, four blocks with the fraction 0.99 take as long as the estimator alone. With 0.95,
# four blocks take 70 % of this time. On eurlex57k with 0.95, P@5 is 0.7 points lower than with the estimator
# alone. On yso-finna-en, one block with 0.97 takes about 80 % of the time of the estimator alone, and P@1 is
# 0.1 points lower and P@5 is 0.3 points lower than with the estimator alone.
RULE_SHARE = 0.95
RULE_SHARE_OF_ONE = 0.97
# The number of blocks is halved if the router finds the right block for less than this fraction of the
# held-out rows. On eurlex57k with four blocks, the router finds the right block for 97 % of the rows, and P@1
# is 0.2 points lower than without blocks. On citeulike-t, it finds 89 % with four blocks, and P@1 is 0.4
# points lower. With two blocks, it finds 98 %, and P@1 is not lower. On yso-finna-en, it finds 66 % with four
# blocks, and P@1 is at least 2 points lower. With two blocks, it finds 90 %, and P@1 is 0.8 points lower.
FOUND = 0.92
# Maximum number of rows that are held out to test the router.
HELD_OUT = 2000
# Number of folds of the cross-validation.
FOLDS = 5
# Largest accepted decrease of P@1, P@3 and P@5. The value for "speed" is from the published experiments.
TOLERANCE = {"accuracy": 0.01, "speed": 0.02}
# Maximum number of dense scores of held-out rows in memory at a time.
_SCORES_AT_ONCE = 1 << 23


@dataclass(frozen=True)
class Partition:
    """Partition of the rows into blocks, with a set of labels for each block.

    A label may be in several blocks or in no block.

    ``row_blocks`` has the block of each row, and ``label_blocks`` has the labels of each block. ``objective``
    is the value of the objective of `BlockPartitioner` for this partition, and ``history`` has the values of
    the objective during the optimization. A positive entry of Y is captured if its label is in the block of
    its row. ``captured`` is the number of captured entries divided by the number of positive entries of Y.
    """

    row_blocks: NDArray[np.int32]
    label_blocks: list[NDArray[np.int32]]
    objective: float
    history: NDArray[np.float64]
    captured: float


@dataclass(frozen=True)
class Chosen:
    """Values chosen for the parameters `n_blocks` and `lam` of `BlockPartitioner`.

    ``n_blocks`` and ``lam`` are the chosen values. ``n_blocks`` is None if no number was chosen.
    `BlockPartitioner` then searches for the number itself. ``lams`` are the candidates for `lam` in
    increasing order. ``precision`` is an array of shape (n_lams, n_folds, 3). For each candidate and each
    fold, it contains the precision at 1, 3 and 5 on the held-out rows.
    """

    n_blocks: int | None
    lam: float
    lams: NDArray[np.float64]
    precision: NDArray[np.float64]


@dataclass(frozen=True)
class Setting:
    """Settings for a fit of a block classifier, without the data.

    ``params`` contains all checked parameters of the block classifier. `find_partition` ignores the values of
    ``n_blocks`` and ``lam`` in ``params``, and uses its arguments with the same names. ``router`` contains
    the parameters of the router, which is the classifier that predicts the block of a row. ``dense`` has two
    values: whether the user passed X as a dense array, and whether the user passed Y as a dense array.
    """

    estimator: Any
    params: dict[str, Any]
    router: dict[str, Any]
    dense: tuple[bool, bool]
    drop_unlabeled: bool
    seed: int
    threads: int


def default_lam(Y: csr_array, share: float = DEFAULT_SHARE) -> float:
    """Return a value of `lam` with which a single block captures a given fraction of the positive entries.

    `lam` is the weight of the penalty on large label sets in the objective of `BlockPartitioner`. A positive
    entry of Y is captured if its label is in the block. The single block contains all rows. If it has m
    labels, its objective is ``lam * m^2`` minus the number of captured entries.

    Let N_j be the number of rows that have the j-th most frequent label. Let J be the smallest number such
    that the J most frequent labels together have at least the given fraction of the positive entries. Adding
    the J-th most frequent label to the block captures N_J more entries, and increases the penalty by
    ``lam * (2 J - 1)``. The label is in the block if N_J is larger than this increase, that is, if `lam` is
    less than ``N_J / (2 J - 1)``. The returned value is slightly less than this bound. If the number of rows
    increases and the relative frequencies of the labels stay unchanged, N_J and the returned value increase
    in proportion to the number of rows.

    Parameters
    ----------
    Y : csr_array of shape (n_samples, n_labels)
        0/1 indicator matrix.
    share : float, default=0.9
        Fraction of the positive entries.

    Returns
    -------
    float
        The weight. It is 0 if Y has no positive entries.
    """
    counts = np.sort(np.bincount(Y.indices, minlength=1))[::-1]
    total = np.cumsum(counts)
    if total[-1] == 0:
        return 0.0
    size = int(np.searchsorted(total, share * total[-1])) + 1
    # The factor makes the weight slightly smaller than ``N_J / (2 J - 1)``. With exactly this weight, label J
    # would not lower the objective and would therefore not be in the block.
    return float(counts[size - 1] / (2 * size - 1) * (1 - 1e-9))


def blocks_by_rule(Y: csr_array) -> int:
    """Return the number of blocks with which the search of ``mode="rule"`` starts.

    This is the largest number n from 1 to 4 for which Y has at least ``5000 n`` rows, and at least ``500 n``
    labels with a positive entry. If there is no such number, the result is 1.
    """
    n_labels = len(np.unique(Y.indices))
    return max(1, min(MOST_BLOCKS, Y.shape[0] // ROWS_OF_A_BLOCK, n_labels // LABELS_OF_A_BLOCK))


def lam_by_rule(Y: csr_array, n_blocks: int) -> float:
    """Return the value of `lam` for ``mode="rule"`` and a given number of blocks.

    If `n_blocks` is 1, the value is 0, so that the block has all labels. Otherwise, `default_lam` computes
    the value. `partition_by_rule` replaces this value if its search starts with several blocks and ends with
    one block.
    """
    return 0.0 if n_blocks == 1 else default_lam(Y, RULE_SHARE)


def partition_by_rule(
    X: csr_array | NDArray[Any],
    Y: csr_array,
    sample_weight: NDArray[np.float32] | None,
    setting: Setting,
    progress: Callable[[int], object],
) -> tuple[Partition, float]:
    """Partition the rows and labels as `BlockPartitionClassifier` does with ``mode="rule"``.

    The number of blocks is found by a search, which starts with the number that `blocks_by_rule` returns. To
    test a number of blocks, all rows are partitioned. Then a router, a classifier that predicts the block of
    a row, is fitted to some of the rows. If too few of its predictions for the other rows agree with the
    partition, the test fails. The number of blocks is then halved. The search ends when a test succeeds or
    one block remains.

    Parameters
    ----------
    X : csr_array or ndarray, of shape (n_samples, n_features)
        Features. An ndarray may have any memory order, and dtype float16, float32 or float64.
    Y : csr_array of shape (n_samples, n_labels), dtype float32
        0/1 indicator matrix.
    sample_weight : ndarray of shape (n_samples,), dtype float32, or None
        Weights of the rows.
    setting : Setting
        Settings of the fit.
    progress : callable
        Function that is called regularly, always with the argument 0. If it raises an exception, the fit
        stops.

    Returns
    -------
    found : Partition
        The partition.
    lam : float
        The value of `lam` that was used to find the partition. `lam` is the weight of the penalty on large
        blocks in the objective.
    """
    n_blocks = blocks_by_rule(Y)
    lam = lam_by_rule(Y, n_blocks)
    while n_blocks > 1:
        found = find_partition(X, Y, n_blocks, lam, setting.params, setting.threads, progress)
        if len(found.label_blocks) > 1 and (
            _share_found(X, Y, sample_weight, found, setting, progress) >= FOUND
        ):
            return found, lam
        n_blocks //= 2
    if lam > 0:
        lam = default_lam(Y, RULE_SHARE_OF_ONE)
    return find_partition(X, Y, 1, lam, setting.params, setting.threads, progress), lam


def _share_found(
    X: csr_array | NDArray[Any],
    Y: csr_array,
    sample_weight: NDArray[np.float32] | None,
    found: Partition,
    setting: Setting,
    progress: Callable[[int], object],
) -> float:
    """Fit a router to some of the rows, and return its accuracy on the held-out rows.

    The router predicts the block of a row. It is fitted to the rows that are not held out. The accuracy is
    the fraction of the held-out rows for which the router finds the right block. If `sample_weight` is given,
    the fit and the accuracy use these weights.
    """
    usable = np.array([len(labels) > 0 for labels in found.label_blocks])
    rows = routing_rows(Y, found.row_blocks, drop_unlabeled=setting.drop_unlabeled)
    there = np.flatnonzero((rows >= 0) & usable[rows])
    n_out = min(HELD_OUT, len(there) // 10)
    if n_out == 0:
        return 0.0
    held_out = np.sort(np.random.default_rng(setting.seed).choice(there, n_out, replace=False))
    inside = np.setdiff1d(there, held_out, assume_unique=True)
    weights = None if sample_weight is None else sample_weight[inside]
    router, _ = fit_router(
        X[inside], rows[inside], usable, weights, setting.router, setting.threads, progress
    )
    routes = best_blocks(router.scorer(), X[held_out], 1, setting.threads)
    hits = routes.indices == rows[held_out]
    counted = np.ones(n_out) if sample_weight is None else sample_weight[held_out].astype(np.float64)
    return float(hits @ counted / max(counted.sum(), np.finfo(np.float64).tiny))


def find_partition(
    X: csr_array | NDArray[Any],
    Y: csr_array,
    n_blocks: int | None,
    lam: float,
    params: dict[str, Any],
    threads: int,
    progress: Callable[[int], object] | None,
) -> Partition:
    """Partition rows and labels into `n_blocks` blocks. If `n_blocks` is None, search for the best number."""
    row_blocks, ends, labels, history, captured = _core.fit_partition(
        core_features(X), Y, params | {"n_blocks": n_blocks, "lam": lam}, (threads, progress)
    )
    return Partition(
        row_blocks, np.split(labels, ends[1:-1]), float(history[-1]), history, captured / max(1, Y.nnz)
    )


def with_fewer_labels(Y: csr_array, found: Partition, lam: float, setting: Setting) -> Partition:
    """Choose the labels of each block again, with a new value of `lam`. The rows of each block do not change.

    `lam` is the weight of the penalty on large label sets in the objective of `BlockPartitioner`.
    """
    ends, labels, captured = _core.partition_labels(
        Y, found.row_blocks, len(found.label_blocks), lam, setting.params["max_labels"], setting.threads
    )
    label_blocks = np.split(labels, ends[1:-1])
    objective = lam * sum(len(labels) ** 2 for labels in label_blocks) - captured
    return Partition(
        found.row_blocks, label_blocks, float(objective), found.history, captured / max(1, Y.nnz)
    )


def routing_rows(Y: csr_array, row_blocks: NDArray[np.int32], *, drop_unlabeled: bool) -> NDArray[np.int32]:
    """Return the block index of each row, for the fit of the router.

    If `drop_unlabeled` is True, rows without labels get the index -1. The fit of the router ignores these
    rows.
    """
    if not drop_unlabeled:
        return row_blocks
    return np.where(np.diff(Y.indptr) > 0, row_blocks, np.int32(-1))


@documented_like(partition_by_rule)
def choose_lam(
    X: csr_array | NDArray[Any],
    Y: csr_array,
    sample_weight: NDArray[np.float32] | None,
    n_blocks: int,
    mode: str,
    setting: Setting,
    progress: Callable[[int], object],
    *,
    or_fewer: bool,
) -> Chosen:
    """Choose `lam` by 5-fold cross-validation.

    `lam` is the weight of the penalty on large label sets in the objective of `BlockPartitioner`. A few
    candidates for `lam` are computed from Y. The router is the classifier that predicts the block of a row.

    For a given number of blocks, the partition, the router and the models of the blocks are fitted only once
    in each fold. These fits use the smallest candidate, because the smallest penalty gives the blocks the
    most labels. For a larger candidate, each block keeps its rows and a subset of its labels. The scores of
    the kept labels are taken from the fitted models, so no new fit is needed.

    P@k is the precision at k on the held-out rows. ``mode="accuracy"`` chooses the candidate with the largest
    sum of P@1, P@3 and P@5 over all folds.

    The baseline is a model without blocks: the base estimator, fitted to all training rows and labels of the
    fold. ``mode="speed"`` chooses the largest candidate that satisfies a condition: in every fold, P@1, P@3
    and P@5 are at most 2 percentage points lower than the values of the baseline. If no candidate satisfies
    this condition, "speed" chooses the same candidate as "accuracy".

    Parameters
    ----------
    n_blocks : int
        Number of blocks.
    mode : {"accuracy", "speed"}
        Criterion for the choice.
    or_fewer : bool
        Whether `n_blocks` may be reduced. If True, `n_blocks` is halved until a candidate for `lam` is
        accurate enough, or one block remains. With "accuracy", a candidate is accurate enough if, in every
        fold, P@1, P@3 and P@5 are at most 1 percentage point lower than the values of the baseline. With
        "speed", the limit is 2 percentage points.

    Returns
    -------
    Chosen
        The chosen number of blocks, the chosen `lam`, and the precision of all candidates for `lam`.

    Warns
    -----
    UserWarning
        If `mode` is "speed" and no candidate satisfies the condition.
    """
    lams = np.unique([default_lam(known_ones(Y), share) for share in SHARES])
    n_folds = min(FOLDS, X.shape[0])
    if n_folds < 2 or len(lams) < 2:
        return Chosen(n_blocks, float(lams[0]), lams[:1], np.empty((1, 0, len(KS))))
    fold_of_row = np.random.default_rng(setting.seed).permutation(np.arange(X.shape[0]) % n_folds)
    allowed = TOLERANCE[mode]
    judged = or_fewer or mode == "speed"
    plain: list[NDArray[np.float64]] = []
    while True:
        precision = np.empty((len(lams), n_folds, len(KS)))
        within = np.ones(len(lams), dtype=bool)
        for fold in range(n_folds):
            inside, outside = np.flatnonzero(fold_of_row != fold), np.flatnonzero(fold_of_row == fold)
            weights = None if sample_weight is None else sample_weight[inside]
            training, held_out = (X[inside], Y[inside], weights), (X[outside], Y[outside])
            # The candidates are multiplied by the fraction of the rows that are fitted in the fold, because
            # the number of rows with each label decreases by this factor.
            precision[:, fold] = _precisions(
                *training, *held_out, lams * len(inside) / X.shape[0], n_blocks, setting, progress
            )
            if judged and len(plain) == fold:
                plain.append(_plain_precision(*training, *held_out, setting, progress))
            if judged:
                within &= (precision[:, fold] >= plain[fold] - allowed).all(axis=1)
                if or_fewer and n_blocks > 1 and not within.any():
                    break
        else:
            break
        n_blocks //= 2
    best = int(np.argmax(precision.sum(axis=(1, 2))))
    if mode == "speed" and within.any():
        best = int(np.flatnonzero(within)[-1])
    elif mode == "speed":
        lost = (np.array(plain) - precision[best]).max()
        warnings.warn(
            f'no `lam` from {lams[0]:.3g} to {lams[-1]:.3g} is accurate enough for `mode`="speed": with '
            f"each value, P@1, P@3 or P@5 is more than {100 * allowed:.0f} percentage points lower than with "
            "`estimator` without blocks, in at least one fold; the fit uses the most accurate `lam`, with "
            f"which P@1, P@3 or P@5 is up to {100 * lost:.1f} percentage points lower",
            UserWarning,
            stacklevel=4,
        )
    return Chosen(n_blocks, float(lams[best]), lams, precision)


def _precisions(
    X: csr_array | NDArray[Any],
    Y: csr_array,
    sample_weight: NDArray[np.float32] | None,
    X_out: csr_array | NDArray[Any],
    Y_out: csr_array,
    lams: NDArray[np.float64],
    n_blocks: int,
    setting: Setting,
    progress: Callable[[int], object],
) -> NDArray[np.float64]:
    """Return the precision at 1, 3 and 5 on held-out rows for each candidate; shape (n_lams, 3).

    `lams` contains the candidates for `lam` in increasing order. The partition, the router and the block
    models are fitted only once. This fit uses the first and smallest candidate, with which the blocks have
    the most labels. With a larger candidate, each block keeps a subset of these labels, and the scores of the
    other labels are ignored.
    """
    ones, unknown_out = known_ones(Y), unknown_entries(Y_out)
    found = find_partition(X, ones, n_blocks, float(lams[0]), setting.params, setting.threads, progress)
    usable = np.array([len(labels) > 0 for labels in found.label_blocks])
    rows = routing_rows(ones, found.row_blocks, drop_unlabeled=setting.drop_unlabeled)
    router, _ = fit_router(X, rows, usable, sample_weight, setting.router, setting.threads, progress)
    models = fit_models(
        setting.estimator,
        X,
        Y,
        sample_weight,
        rows_of_blocks(found.row_blocks, len(usable)),
        found.label_blocks,
        seed=setting.seed,
        dense=setting.dense,
        threads=setting.threads,
        progress=lambda _: progress(0),
    )
    # For each candidate and each block, compute a mask of the labels that the block has with this candidate.
    chosen = []
    for lam in lams:
        ends, labels, _ = _core.partition_labels(
            ones, found.row_blocks, len(usable), float(lam), setting.params["max_labels"], setting.threads
        )
        sets = np.split(labels, ends[1:-1])
        chosen.append([np.isin(of, some) for of, some in zip(found.label_blocks, sets, strict=True)])
    routes = best_blocks(router.scorer(), X_out, 1, setting.threads)
    # If no block has labels, no labels are predicted.
    block_of_row = np.full(X_out.shape[0], -1)
    block_of_row[np.diff(routes.indptr) > 0] = routes.indices
    k = max(KS)
    best = np.full((len(lams), X_out.shape[0], k), -1, dtype=np.int64)
    for block in np.unique(block_of_row[block_of_row >= 0]):
        labels = found.label_blocks[block]
        of_block = np.flatnonzero(block_of_row == block)
        step = max(1, _SCORES_AT_ONCE // len(labels))
        for start in range(0, len(of_block), step):
            progress(0)
            part = of_block[start : start + step]
            scores = np.asarray(models[block].decision_function(X_out[part]))
            if unknown_out is not None:  # unknown entries are left out of the rankings
                scores = np.where(unknown_out[part][:, labels].toarray() > 0, -np.inf, scores)
            for i, masks in enumerate(chosen):
                kept = np.flatnonzero(masks[block])
                best[i, part, : len(kept)] = _named(scores[:, kept], labels[kept], k)
    return np.array([_hits(named, known_ones(Y_out)) for named in best])


def _named(scores: NDArray[Any], labels: NDArray[np.int32], k: int) -> NDArray[np.int64]:
    """Return the k labels with the largest scores of each row, in decreasing order of the scores.

    If scores are equal, the label with the lower column index comes first, as in `predict_topk`. Labels with
    the score -inf are not included. Rows with fewer than k labels are padded with -1.
    """
    k = min(k, scores.shape[1])
    if k == 0:
        return np.empty((len(scores), 0), dtype=np.int64)
    # Only the scores that are at least the k-th largest score of the row are sorted.
    least = np.partition(scores, -k, axis=1)[:, -k]
    rows, columns = np.nonzero(scores >= least[:, None])
    reached = scores[rows, columns]
    order = np.lexsort([columns, -reached, rows])
    starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(scores)))[:-1]])
    first = order[starts[:, None] + np.arange(k)]
    return np.where(reached[first] > -np.inf, labels[columns[first]], -1)


def _hits(named: NDArray[np.int64], Y: csr_array) -> NDArray[np.float64]:
    """Return the precision at 1, 3 and 5 of ranked labels, where -1 means that a rank has no label."""
    rows = np.broadcast_to(np.arange(len(named))[:, None], named.shape)
    there = named >= 0
    hits = np.zeros(named.shape)
    hits[there] = np.asarray(Y[rows[there], named[there]]).ravel()
    return np.array([hits[:, :k].sum(axis=1).mean() / k for k in KS])


def _plain_precision(
    X: csr_array | NDArray[Any],
    Y: csr_array,
    sample_weight: NDArray[np.float32] | None,
    X_out: csr_array | NDArray[Any],
    Y_out: csr_array,
    setting: Setting,
    progress: Callable[[int], object],
) -> NDArray[np.float64]:
    """Return P@1, P@3 and P@5 on held-out rows for the estimator without blocks, fitted to all labels."""
    labels = np.unique(known_ones(Y).indices)
    if len(labels) == 0:
        return np.zeros(len(KS))
    (model,) = fit_models(
        setting.estimator,
        X,
        Y,
        sample_weight,
        [np.arange(X.shape[0])],
        [labels],
        seed=setting.seed,
        dense=setting.dense,
        threads=setting.threads,
        progress=lambda _: progress(0),
    )
    unknown = unknown_entries(Y_out)
    most_unknown = 0 if unknown is None else int(np.diff(unknown.indptr).max())
    top = model.predict_topk(X_out, k=max(KS) + most_unknown)
    # The labels that occur in no training row are left out. P@k still divides by k.
    found = precision_at_k(Y_out[:, labels], top, KS)
    return np.asarray(found)
