"""Functions that fit a clone of an estimator to the rows and labels of each block."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from threading import Event
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.base import clone

from manylabel.estimator.base import MultiLabelClassifier
from manylabel.estimator.validation import unknown_entries
from manylabel.linear import DiSMECClassifier
from manylabel.partition.any_classifier import AnyClassifier

__all__ = ["base_estimator", "fit_block", "fit_models", "rows_of_blocks", "seeded"]


# The work for the largest block may be at most this factor times the mean work per thread. At this limit, the
# other threads are idle for a fifth of the time. Several threads for one block lose about as much time.
_UNEVEN = 1.25


class _StoppedError(Exception):
    """Exception that stops the fit of a block, because another fit failed or the caller stopped all fits."""


def base_estimator(estimator: Any) -> Any:
    """Return the given estimator, or `DiSMECClassifier()` if the given estimator is None."""
    return DiSMECClassifier() if estimator is None else estimator


def rows_of_blocks(row_blocks: NDArray[np.int32], n_blocks: int) -> list[NDArray[np.intp]]:
    """Return one array per block: the positions of the rows of the block, in increasing order."""
    order = np.argsort(row_blocks, kind="stable")
    return np.split(order, np.cumsum(np.bincount(row_blocks, minlength=n_blocks))[:-1])


def seeded(estimator: Any, seed: int, block: int) -> Any:
    """Return a clone of an estimator in which each ``random_state`` that is None is replaced by a seed.

    A ``random_state`` of an inner estimator is also replaced if it is None. Each replaced parameter gets a
    different seed, which is computed from `seed` and `block`.
    """
    model = clone(estimator)
    names = [
        name
        for name, value in model.get_params().items()
        if value is None and (name == "random_state" or name.endswith("__random_state"))
    ]
    for i, name in enumerate(sorted(names)):
        entropy = np.random.SeedSequence([seed, block, i])
        model.set_params(**{name: int(entropy.generate_state(1)[0])})
    return model


def fit_models(
    estimator: Any,
    X: csr_array | NDArray[Any],
    Y: csr_array,
    sample_weight: NDArray[np.float32] | None,
    rows_of_blocks: Sequence[NDArray[Any]],
    label_blocks: Sequence[NDArray[Any]],
    *,
    seed: int,
    dense: tuple[bool, bool],
    threads: int,
    progress: Callable[[int], object],
) -> list[Any]:
    """Fit a clone of `estimator` to the rows and labels of every block.

    Parameters
    ----------
    estimator : estimator
        Estimator to clone. An estimator of another library is wrapped in `AnyClassifier`. An estimator of
        this library is fitted to the blocks directly. Before that, its method `_settled` uses all rows and
        labels to choose values for parameters that are "auto". All blocks use these values. Parameters that
        `_settled` leaves at "auto", such as `threshold`, are chosen for each block separately.
    X : csr_array or ndarray, of shape (n_samples, n_features)
        Features. An ndarray may have any memory order, and dtype float16, float32 or float64.
    Y : csr_array of shape (n_samples, n_labels), dtype float32
        0/1 indicator matrix, in which NaN marks unknown entries.
    sample_weight : ndarray of shape (n_samples,), dtype float32, or None
        Weights of the rows.
    rows_of_blocks, label_blocks : sequences of n_blocks ndarrays
        For each block, the indices of its rows and the indices of its labels.
    seed : int
        Seed of the fits. In each clone and its inner estimators, every `random_state` that is None is set to
        a number that is computed from `seed`. Each of these parameters gets its own number.
    dense : pair of bool
        Two values: whether the user passed X as a dense array, and whether the user passed Y as a dense
        array. An estimator of another library gets X and Y as the user passed them, dense or sparse.
    threads : int
        Number of threads, and maximum number of blocks that are fitted at the same time. If `estimator` is
        from this library and its `n_jobs` is None, several threads may work on one block. For such an
        estimator, fewer blocks are fitted at the same time if the largest block would finish long after the
        other blocks. Each block then gets more threads.
    progress : callable
        Function that is called regularly. Its argument is the number of labels that have been fitted so far,
        over all blocks.

    Returns
    -------
    list of estimators
        The fitted model of each block. The model of a block without labels is None.

    Raises
    ------
    ValueError
        For an estimator of this library: if the fit of at least one block fails. For an estimator of another
        library: only if no block can be fitted, or if Y has unknown entries.

    Warns
    -----
    UserWarning
        If an estimator of another library can be fitted to some blocks, but not to all. In the blocks that
        cannot be fitted, the score of a label is the same for all rows.
    """
    ours = isinstance(estimator, MultiLabelClassifier)
    # Fit the largest block first, so that it does not run alone at the end.
    work = [len(rows) * len(labels) for rows, labels in zip(rows_of_blocks, label_blocks, strict=True)]
    blocks = sorted(
        (block for block, labels in enumerate(label_blocks) if len(labels)), key=lambda block: -work[block]
    )
    workers = max(1, min(threads, len(blocks)))
    lendable = ours and estimator.get_params(deep=False).get("n_jobs", 1) is None
    if lendable and work and sum(work):
        # If the small blocks would finish long before the largest block, fit fewer blocks at the same time,
        # each with more threads.
        workers = max(1, min(workers, int(_UNEVEN * sum(work) / max(work))))
    models: list[Any] = [None] * len(label_blocks)
    if not ours and unknown_entries(Y) is not None:
        raise ValueError(
            "Y must not have unknown entries (NaN) if `estimator` is from another library, "
            f"got NaN with the estimator {type(estimator).__name__}"
        )
    if ours:
        estimator = estimator._settled(X, Y, sample_weight, threads, lambda _: progress(0))

    def fit(block: int, report: Callable[[int], None]) -> None:
        models[block] = fit_block(
            estimator,
            X,
            Y,
            sample_weight,
            rows_of_blocks[block],
            label_blocks[block],
            seed=seed,
            block=block,
            threads=threads // workers,
            report=report,
            dense=None if ours else dense,
        )

    _in_threads(fit, blocks, workers, progress)
    broken = [models[block] for block in blocks if getattr(models[block], "error_", None)]
    if broken:
        learned = any(getattr(models[block], "estimator_", None) is not None for block in blocks)
        if not learned:
            raise ValueError(
                f"`estimator` could not be fitted to any block; the first error: {broken[0].error_}"
            )
        warnings.warn(
            f"`estimator` could not be fitted to {len(broken)} of {len(blocks)} blocks of labels, so the "
            f"labels of these blocks get constant scores; the first error: {broken[0].error_}",
            UserWarning,
            stacklevel=4,
        )
    return models


def fit_block(
    estimator: Any,
    X: csr_array | NDArray[Any],
    Y: csr_array,
    sample_weight: NDArray[np.float32] | None,
    rows: NDArray[Any],
    labels: NDArray[Any],
    *,
    seed: int,
    block: int,
    threads: int,
    report: Callable[[int], object],
    dense: tuple[bool, bool] | None = None,
) -> Any:
    """Fit a clone of `estimator` to the rows and labels of one block.

    `rows` and `labels` are the indices of the rows and labels of the block. `block` is the number of the
    block, from which seeds are computed. `report` is called with the number of labels of the block that have
    been fitted so far. If an estimator of this library has ``n_jobs=None``, its fit uses `threads` threads.

    `dense` must be None for an estimator of this library, and a pair of bools for an estimator of another
    library. The first bool states whether the estimator gets X as a dense array. The second bool states
    whether the estimator gets Y as a dense array. The other arguments are the same as in `fit_models`.
    """
    all_rows = len(rows) == X.shape[0]
    of_rows = Y if all_rows else Y[rows]
    if len(labels) < Y.shape[1]:
        # With 64-bit labels, scipy uses 64-bit indices if there are too many columns for 32-bit indices.
        of_rows = of_rows[:, labels.astype(np.int64)]
    model = seeded(estimator, seed, block)
    if dense is not None:
        model = AnyClassifier(model, dense_X=dense[0], dense_Y=dense[1])
    arguments: dict[str, Any] = {} if sample_weight is None else {"sample_weight": sample_weight[rows]}
    if "progress" in inspect.signature(model.fit).parameters:
        arguments["progress"] = report
    # `n_jobs` is reset after the fit, because fitted models must not depend on the number of threads.
    lendable = dense is None and estimator.get_params(deep=False).get("n_jobs", 1) is None
    lent = threads > 1 and lendable
    model.set_params(**({"n_jobs": threads} if lent else {}))
    model.fit(X if all_rows else X[rows], of_rows, **arguments)
    model.set_params(**({"n_jobs": None} if lent else {}))
    report(len(labels))
    return model


def _in_threads(
    work: Callable[[Any, Callable[[int], None]], None],
    items: Sequence[Any],
    threads: int,
    progress: Callable[[int], object],
) -> None:
    """Call ``work(item, report)`` for all items, in several threads.

    `work` must regularly call ``report`` with the total amount of work done so far for the item. `progress`
    is called with the sum of these amounts over all items. If `work` or `progress` raises an exception, or if
    the user presses Ctrl-C, the work for each of the other items stops at its next call of ``report``.
    """
    done = [0] * len(items)
    if threads == 1:
        for i, item in enumerate(items):

            def tell(count: int, i: int = i) -> None:
                done[i] = count
                progress(sum(done))

            work(item, tell)
        return
    stop = Event()

    def run(i: int) -> None:
        def tell(count: int) -> None:
            done[i] = count
            if stop.is_set():
                raise _StoppedError

        tell(0)
        work(items[i], tell)

    with ThreadPoolExecutor(threads) as pool:
        left = {pool.submit(run, i) for i in range(len(items))}
        try:
            while left:
                finished, left = wait(left, timeout=0.05, return_when="FIRST_EXCEPTION")
                for future in finished:
                    future.result()
                progress(sum(done))
        except BaseException:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
