"""Models of blocks: one clone of an estimator per block, fitted to its rows and labels."""

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
from manylabel.linear import DiSMECClassifier
from manylabel.partition.any_classifier import AnyClassifier

__all__ = ["base_estimator", "fit_models", "rows_of_blocks", "seeded"]


# The largest block may have so many times the mean work per worker. The other workers are then idle for a
# fifth of the time, about what threads within one block lose.
_UNEVEN = 1.25


class _StoppedError(Exception):
    """A sibling failed, or the caller asked to stop."""


def base_estimator(estimator: Any) -> Any:
    """Return the estimator to clone; DiSMEC for None."""
    return DiSMECClassifier() if estimator is None else estimator


def rows_of_blocks(row_blocks: NDArray[np.int32], n_blocks: int) -> list[NDArray[np.intp]]:
    """Return the rows of every block, in increasing order."""
    order = np.argsort(row_blocks, kind="stable")
    return np.split(order, np.cumsum(np.bincount(row_blocks, minlength=n_blocks))[:-1])


def seeded(estimator: Any, seed: int, block: int) -> Any:
    """Clone an estimator and give every ``random_state=None`` in it a seed of its own."""
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
    X: csr_array,
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
        Estimators of this library are fitted to blocks directly, with automatic parameters chosen on all
        rows. Others are wrapped in `AnyClassifier`.
    X : csr_array of shape (n_samples, n_features)
    Y : csr_array of shape (n_samples, n_labels), dtype float32
    sample_weight : ndarray of shape (n_samples,), dtype float32, or None
    rows_of_blocks, label_blocks : sequences of ndarrays, as many as there are blocks
        Rows and labels of each block.
    seed : int
        Seed used in place of each ``random_state=None`` in `estimator`.
    dense : pair of bool
        Whether to pass X, and whether to pass Y, as a dense array to an estimator of another library; True
        for what the user gave as a dense array.
    threads : int
        Maximum number of blocks fitted at once. If there are fewer blocks, or one has most of the work, fewer
        are fitted at once, and estimators of this library get several threads each.
    progress : callable
        Called with the number of labels fitted so far, over all blocks.

    Returns
    -------
    list of estimators
        None for a block without labels.

    Raises
    ------
    ValueError
        If an estimator of this library fails on some block, or one of another library fails on every block.

    Warns
    -----
    UserWarning
        If an estimator of another library could not be fitted to some of the blocks; their labels get
        constant scores.
    """
    ours = isinstance(estimator, MultiLabelClassifier)
    # The largest first, so that it does not run alone at the end.
    work = [len(rows) * len(labels) for rows, labels in zip(rows_of_blocks, label_blocks, strict=True)]
    blocks = sorted(
        (block for block, labels in enumerate(label_blocks) if len(labels)), key=lambda block: -work[block]
    )
    workers = max(1, min(threads, len(blocks)))
    lendable = ours and estimator.get_params(deep=False).get("n_jobs", 1) is None
    if lendable and work and sum(work):
        # Fewer at once, with more threads each, if the others would finish long before the largest.
        workers = max(1, min(workers, int(_UNEVEN * sum(work) / max(work))))
    models: list[Any] = [None] * len(label_blocks)
    if ours:
        estimator = estimator._settled(X, Y, sample_weight, threads, lambda _: progress(0))

    def fit(block: int, report: Callable[[int], None]) -> None:
        rows, labels = rows_of_blocks[block], label_blocks[block]
        all_rows = len(rows) == X.shape[0]
        of_rows = Y if all_rows else Y[rows]
        if len(labels) < Y.shape[1]:
            # 64-bit labels let scipy see that there may be more columns than 32 bits can count.
            of_rows = of_rows[:, labels.astype(np.int64)]
        model = seeded(estimator, seed, block)
        if not ours:
            model = AnyClassifier(model, dense_X=dense[0], dense_Y=dense[1])
        arguments: dict[str, Any] = {} if sample_weight is None else {"sample_weight": sample_weight[rows]}
        if "progress" in inspect.signature(model.fit).parameters:
            arguments["progress"] = report
        # `n_jobs` is set for the fit only: fitted models must not depend on the number of threads.
        lent = threads // workers > 1 and lendable
        model.set_params(**({"n_jobs": threads // workers} if lent else {}))
        model.fit(X if all_rows else X[rows], of_rows, **arguments)
        model.set_params(**({"n_jobs": None} if lent else {}))
        report(len(labels))
        models[block] = model

    _in_threads(fit, blocks, workers, progress)
    broken = [models[block] for block in blocks if getattr(models[block], "error_", None)]
    if broken:
        learned = any(getattr(models[block], "estimator_", None) is not None for block in blocks)
        if not learned:
            raise ValueError(f"`estimator` could not be fitted to any block: {broken[0].error_}")
        warnings.warn(
            f"`estimator` could not be fitted to {len(broken)} of {len(blocks)} blocks, whose labels get "
            f"constant scores: {broken[0].error_}",
            UserWarning,
            stacklevel=4,
        )
    return models


def _in_threads(
    work: Callable[[Any, Callable[[int], None]], None],
    items: Sequence[Any],
    threads: int,
    progress: Callable[[int], object],
) -> None:
    """Call ``work(item, report)`` for all items, where `report` takes how much of the item is done.

    An exception of one item or of `progress`, or Ctrl-C, stops the others the next time they report.
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
