"""Fits, predictions and evaluations on the workers of a Dask cluster.

A fit is divided into pieces, such as groups of labels (see `manylabel.shards`). Each worker fits some of the
pieces. The workers read the data from a folder that all workers can reach, and write each finished piece to a
file in a shared folder. The scheduler therefore transfers neither data nor model weights. If all workers have
the same type of CPU, the fitted model does not depend on the number of workers. In this case, the model is
exactly the same as a model that was fitted with the method ``fit`` of the estimator.

This module needs the package distributed: ``pip install 'manylabel[dask]'``.
"""

from __future__ import annotations

import errno
import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy.sparse import csr_array, vstack

from manylabel import metrics, shards
from manylabel.datasets.blocks import stored_blocks
from manylabel.datasets.rows import folder_of, open_rows, store
from manylabel.estimator.parameters import Count
from manylabel.estimator.progress import Report, reported
from manylabel.estimator.validation import unknown_entries
from manylabel.metrics.ranking import check_k
from manylabel.persistence import load

__all__ = ["evaluate", "fit", "predict_topk"]

# Number of rows that are predicted or stored at a time.
_ROWS = 1 << 14

# The file of the weights of the rows.
_WEIGHTS = "weights.npy"

# Seconds to wait until all workers have stopped, after one of them has finished a piece that they share.
_SECONDS_TO_STOP = 10

# Only one piece runs in a process at a time, on all threads of the worker.
_ONE_PIECE = threading.Lock()


def fit(
    estimator: Any,
    X: Any,
    Y: Any = None,
    sample_weight: Any = None,
    *,
    client: Any = None,
    checkpoint: str | os.PathLike[str] | None = None,
    n_pieces: int | Literal["auto"] = "auto",
    any_cpu: bool = False,
    label_weight: Any = None,
    propensities: Any = None,
) -> Any:
    """Fit an estimator on the workers of a cluster.

    The work is divided into pieces, such as groups of labels (see `manylabel.shards`). Each worker fits some
    of the pieces, one at a time.

    Parameters
    ----------
    estimator : estimator
        The estimator: a `DiSMECClassifier`, a `LabelTreeClassifier`, a `CorrLogClassifier`, a
        `BlockPartitionClassifier` whose `estimator` is from this library, or a `Rembrandt` whose `embedding`
        is not "pca". The given object is not changed.
    X : array-like, sparse matrix or dask array of shape (n_samples, n_features), str or path-like
        Features, or the path of a folder that `manylabel.datasets.convert` has written and that all workers
        can reach. Each block of a dask array must be an array or a sparse matrix, and have all columns.
    Y : array-like, sparse matrix or dask array of shape (n_samples, n_labels), default=None
        0/1 indicator matrix, in which NaN marks unknown entries. Y must be None if X is a folder. If X is a
        dask array, Y must be a dask array with the same blocks of rows.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the rows, >= 0. None means equal weights.
    client : distributed.Client or None, default=None
        The client of the cluster. None means the current client.
    checkpoint : str, path-like or None, default=None
        The folder in which the finished pieces are stored. All workers must be able to reach this folder. If
        the call is interrupted or the scheduler is restarted, make the same call again with the same folder.
        The second call fits only the pieces that are not finished. None means a temporary folder on the
        machine of the client. Usually, only workers on this machine can reach a temporary folder.
    n_pieces : int or "auto", default="auto"
        Number of pieces, as in `manylabel.shards.fit`.
    any_cpu : bool, default=False
        Whether workers may have different types of CPU. If their types differ, the last digits of the weights
        depend on which worker fitted a piece.
    label_weight : array-like of shape (n_labels,), default=None
        Weights of the labels, > 0, as in the method ``fit`` of the estimator. None means equal weights.
    propensities : array-like of shape (n_labels,), default=None
        Propensities of the labels, in (0, 1], as in the method ``fit`` of the estimator. None means that all
        true labels are recorded in Y.

    Returns
    -------
    estimator
        The fitted estimator. It can be saved and used without Dask.

    Raises
    ------
    ModuleNotFoundError
        If the package distributed is not installed.
    TypeError
        If `client` is not a client, and in the cases that `manylabel.shards.fit` lists.
    ValueError
        If an argument is not valid, if there is no client, or if a worker cannot reach the folder
        `checkpoint` or the folder of the data. The error is also raised if `any_cpu` is False and the CPU
        type of a worker differs from that of the client's machine. The error is also raised in the cases that
        `manylabel.shards.fit` lists.
    Exception
        If the fit of a piece raises an error, this error is raised, and all other pieces are canceled.

    See Also
    --------
    manylabel.shards.fit : Fit the pieces in processes without Dask.

    Notes
    -----
    Each worker fits one piece at a time, with all its threads. The parameter `n_jobs` of the estimator
    applies only to the work of the client. If a worker dies, its piece is fitted again on another worker.
    Workers may join the cluster during the fit. If the cluster has no workers left, the fit waits until one
    joins. A ``LocalCluster`` replaces a killed worker with a new worker. The new worker must connect within
    15 seconds after the cluster has lost the killed worker. If the new worker does not connect in time, for
    example because it was also killed, the cluster does not start another worker. The setting
    ``distributed.deploy.lost-worker-timeout`` changes this time limit.

    The fit of a `CorrLogClassifier` consists of rounds. A round usually computes a gradient and then takes a
    step. If there are several workers, long rounds are divided into pieces, and the workers share these
    pieces. Short rounds are divided only if `n_pieces` is an int (see `manylabel.shards.fit`). The workers
    exchange the results of the pieces as files in the folder `checkpoint`. Unlike other fits, the fit of a
    `CorrLogClassifier` uses only the workers that the cluster has when the first round starts. A worker that
    joins later is used only if it replaces a worker that has died.

    Several workers are useful for a `CorrLogClassifier` only if the computation of a gradient takes at least
    about 0.1 seconds. Otherwise, the estimator's own method ``fit`` is faster. For example, a fit to 3,000
    rows with 2,000 features and 300 labels takes 0.27 seconds with the method ``fit``, and 0.37 seconds with
    two workers.

    All workers memory-map X and Y from the files of one folder. Workers on the same machine share the memory
    of these files. Without `sample_weight`, the type of X determines the folder:

    - If X is a folder, the workers read this folder.
    - If X and Y are arrays or sparse matrices in memory, the client writes them to the folder `checkpoint`.
    - If X and Y are dask arrays, the client computes their blocks one after the other. It writes them to the
      folder ``<checkpoint>-data`` next to `checkpoint`.

    If `sample_weight` is given, the workers read the data from the folder `checkpoint`. The client writes X,
    Y and the weights to `checkpoint`, even if X is a folder. Dask arrays are then written twice: first to
    ``<checkpoint>-data``, and then to `checkpoint`.

    If `checkpoint` is given, the folders `checkpoint` and ``<checkpoint>-data`` are kept after the fit. If
    `checkpoint` is None, both folders are temporary, and they are deleted after the fit.

    If X is a dask array, its first block with at least one row determines whether X is written as a dense
    array or as a sparse matrix. X is dense if this block is an ndarray in which more than half of the values
    are nonzero. The fitted model depends on whether X is dense or sparse.

    Examples
    --------
    >>> import manylabel as ml
    >>> import manylabel.dask
    >>> from distributed import Client  # doctest: +SKIP
    >>> client = Client(n_workers=2, threads_per_worker=1)  # doctest: +SKIP
    >>> X, Y = ml.datasets.make_multilabel(200, 50, 40, random_state=0)
    >>> model = ml.dask.fit(ml.DiSMECClassifier(random_state=0), X, Y)  # doctest: +SKIP
    """
    client = _client(client)
    options = {"any_cpu": any_cpu, "label_weight": label_weight, "propensities": propensities}
    if checkpoint is None:
        with tempfile.TemporaryDirectory(prefix="manylabel-") as folder:
            # The blocks of dask arrays are stored next to this path, so they are also removed.
            path = Path(folder, "fit")
            return _fit(estimator, X, Y, sample_weight, client, path, n_pieces, options)
    path = shards.checkpoint_path(checkpoint)
    return _fit(estimator, X, Y, sample_weight, client, path, n_pieces, options)


def predict_topk(
    model: str | os.PathLike[str], X: Any, k: int = 5, *, client: Any = None, **options: Any
) -> csr_array:
    """Predict the k labels with the highest scores for every row, on the workers of a cluster.

    Parameters
    ----------
    model : str or path-like
        A model file that `manylabel.save` has written. All workers must be able to reach the file. Each
        worker loads it once.
    X : str or path-like
        A folder that `manylabel.datasets.convert` wrote. The client and all workers must be able to reach the
        folder.
    k : int, default=5
        Number of labels per row, >= 1.
    client : distributed.Client or None, default=None
        The client of the cluster. None means the current client.
    **options
        Further arguments of the method ``predict_topk`` of the model, such as ``beam``.

    Returns
    -------
    csr_array of shape (n_samples, n_labels), dtype float32
        The scores of the k best labels of each row, as returned by the method ``predict_topk`` of the model.

    Raises
    ------
    ModuleNotFoundError
        If the package distributed is not installed.
    ValueError
        If `k` is not valid, if there is no client, if the folder or the model file is not valid, or if the
        number of features of X differs from that of the model.
    TypeError
        If `model` or X is not a path, or if `client` is not a client.
    AttributeError
        If the model has no method ``predict_topk``.
    OSError
        If the folder or the model file cannot be read.

    Notes
    -----
    The rows are predicted in tasks of 16,384 rows. The workers send the results directly to the client.

    Examples
    --------
    >>> import manylabel.dask
    >>> top = manylabel.dask.predict_topk("model.safetensors", "rows", k=3)  # doctest: +SKIP
    """
    client = _client(client)
    Count(1).require("k", k)
    model, folder = _model_path(model), _rows_path(X)
    n_rows = open_rows(folder)[0].shape[0]
    starts = range(0, n_rows, _ROWS)
    futures = client.map(_topk, starts, model=model, folder=folder, k=k, options=options, pure=False)
    return csr_array(vstack(client.gather(futures, direct=True), format="csr"))


def evaluate(
    model: str | os.PathLike[str],
    X: Any,
    k: int | Sequence[int] = (1, 3, 5),
    *,
    propensities: Any = None,
    client: Any = None,
) -> dict[str, float]:
    """Compute quality measures of a model on the workers of a cluster.

    Parameters
    ----------
    model : str or path-like
        A model file that `manylabel.save` has written. All workers must be able to reach the file.
    X : str or path-like
        A folder with X and Y that `manylabel.datasets.convert` wrote. The client and all workers must be able
        to reach the folder.
    k : int or sequence of int, default=(1, 3, 5)
        Numbers of top-ranked labels to use; each >= 1.
    propensities : ndarray of shape (n_labels,), default=None
        Propensities of the labels, in (0, 1]. If given, propensity-scored measures are also computed.
    client : distributed.Client or None, default=None
        The client of the cluster. None means the current client.

    Returns
    -------
    dict of str to float
        A dict from the names of the measures, such as "P@1", to their values, which are from 0 to 1. The
        measures are P@k, nDCG@k and R@k. If propensities are given, PSP@k and PSnDCG@k are added. The module
        `manylabel.metrics` defines these measures.

    Raises
    ------
    ModuleNotFoundError
        If the package distributed is not installed.
    ValueError
        If `k` or `propensities` is not valid, if the folder has another number of labels than the model, and
        in the cases that `predict_topk` lists.
    TypeError, AttributeError, OSError
        In the cases that `predict_topk` lists.

    Notes
    -----
    The workers predict rankings, and the client compares the rankings with Y.

    Examples
    --------
    >>> import manylabel.dask
    >>> manylabel.dask.evaluate("model.safetensors", "rows")["P@1"]  # doctest: +SKIP
    0.7
    """
    client, model = _client(client), _model_path(model)
    ks = check_k(k).tolist()
    _, Y = open_rows(_rows_path(X))
    # The measures remove unknown entries from the rankings, so the rankings must be longer.
    unknown = unknown_entries(Y)
    most_unknown = 0 if unknown is None else int(np.diff(unknown.indptr).max())
    n_labels = client.submit(_n_labels, model, pure=False).result()
    if n_labels != Y.shape[1]:
        raise ValueError(f"{X}: expected {n_labels:,} labels as in the model, got {Y.shape[1]:,}")
    top = predict_topk(model, X, max(ks) + most_unknown, client=client)
    found = {
        "P": metrics.precision_at_k(Y, top, ks),
        "nDCG": metrics.ndcg_at_k(Y, top, ks),
        "R": metrics.recall_at_k(Y, top, ks),
    }
    if propensities is not None:
        found["PSP"] = metrics.psp_at_k(Y, top, propensities, ks)
        found["PSnDCG"] = metrics.psndcg_at_k(Y, top, propensities, ks)
    return {
        f"{name}@{length}": float(value)
        for name, values in found.items()
        for length, value in zip(ks, values, strict=True)
    }


def _model_path(model: Any) -> str:
    if not isinstance(model, str | os.PathLike):
        raise TypeError(
            f"`model` must be the path of a model file, got {type(model).__name__}; `manylabel.save` writes "
            "model files"
        )
    if os.path.isdir(model):
        raise IsADirectoryError(errno.EISDIR, "`model` must be a model file, got a folder", str(model))
    return str(Path(model).resolve())


def _rows_path(X: Any) -> str:
    if not isinstance(X, str | os.PathLike):
        raise TypeError(
            f"`X` must be the path of a folder that `datasets.convert` has written, got {type(X).__name__}"
        )
    return str(Path(X).resolve())


def _client(client: Any) -> Any:
    try:
        import distributed
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "manylabel.dask needs the package distributed; run: pip install 'manylabel[dask]'"
        ) from None
    if client is not None:
        if not isinstance(client, distributed.Client):
            raise TypeError(f"`client` must be a distributed.Client, got {type(client).__name__}")
        return client
    try:
        return distributed.get_client()
    except ValueError:
        raise ValueError(
            "`client` must be given, since there is no current client; "
            "distributed.Client() starts a cluster on this machine"
        ) from None


def _fit(
    estimator: Any,
    X: Any,
    Y: Any,
    sample_weight: Any,
    client: Any,
    checkpoint: Path,
    n_pieces: int | Literal["auto"],
    options: dict[str, Any],
) -> Any:
    checkpoint = checkpoint.resolve()
    if hasattr(X, "to_delayed"):
        folder = checkpoint.with_name(f"{checkpoint.name}-data")
        X, Y = stored_blocks(X, Y, folder, scheduler=client.get)
    work = shards.Work(estimator, X, Y, sample_weight, checkpoint, n_pieces, **options)
    data, more = _stored(work, checkpoint / ".data")
    arguments = {
        "checkpoint": str(checkpoint),
        "data": str(data),
        "more": more,
        "any_cpu": options["any_cpu"],
    }
    if work.has_rounds:
        _fit_rounds(client, arguments)
        return work.join()
    if work.folder.choice is None:
        _finish(client, [client.submit(_choose, **arguments, pure=False)])
    missing = set(work.folder.missing())
    for stage in work.folder.stages:
        numbers = [number for number in stage if number in missing]
        _finish(client, client.map(_fit_piece, numbers, **arguments, pure=False))
    return work.join()


def _fit_rounds(client: Any, arguments: dict[str, Any]) -> None:
    """Fit an estimator whose fit consists of rounds.

    If a round is divided into pieces, the workers share these pieces. If the argument `n_pieces` of `fit` is
    "auto", short rounds are not divided.
    """
    from distributed import TimeoutError

    workers = list(client.nthreads())
    n_shares = max(1, len(workers))
    # Each share belongs to one worker, but if this worker dies or is paused, another worker takes the share.
    futures = [
        client.submit(
            _fit_share,
            (number + 1, n_shares),
            **arguments,
            pure=False,
            workers=workers[number : number + 1] or None,
            allow_other_workers=True,
        )
        for number in range(n_shares)
    ]
    _finish(client, futures, n_needed=1)
    # The other workers find the result and stop. A worker that was paused need not continue.
    with suppress(TimeoutError):
        for _ in _completed(client, futures, timeout=_SECONDS_TO_STOP):
            pass
    client.cancel(futures, force=True)


def _finish(client: Any, futures: list[Any], n_needed: int | None = None) -> None:
    """Wait for all tasks, or until `n_needed` tasks have finished.

    If a task fails or Ctrl-C is pressed, all tasks are canceled.
    """
    try:
        for future in islice(_completed(client, futures), n_needed):
            future.result()
    except BaseException:
        client.cancel(futures, force=True)
        raise


def _completed(client: Any, futures: list[Any], timeout: float | None = None) -> Iterator[Any]:
    """Return an iterator over tasks, in the order in which they finish.

    `client` need not be the current client. `Client.as_current` is not used here, because it would change the
    scheduler of Dask for all threads.
    """
    from distributed import as_completed

    return iter(as_completed(futures, loop=client.loop, timeout=timeout))  # type: ignore[no-untyped-call]


def _stored(work: shards.Work, folder: Path) -> tuple[Path, tuple[str, ...]]:
    """Return a folder with the checked data of a fit, and the names of additional files in this folder.

    If X and Y are already memory-mapped from one folder and the rows have no weights, this folder is
    returned. Otherwise, the data are written to `folder`, and `folder` is returned.

    If the rows have weights, the weights are written to an additional file, which `convert` does not write. A
    worker opens this file only if its name is returned here. Without this rule, a worker could open an
    unrelated file with the same name in a folder of the user.
    """
    X, Y, weights, _ = work.examples
    about = work.folder.about
    mapped = folder_of(X)
    if mapped is not None and weights is None and folder_of(Y, "Y") == mapped:
        return mapped.resolve(), ()
    form = "dense" if isinstance(X, np.ndarray) else "sparse"
    identity = f"{form} {about['X']} {about['Y']} {about['sample_weight']}"
    ranges = (slice(first, first + _ROWS) for first in range(0, X.shape[0], _ROWS))
    store(((X[rows], Y[rows]) for rows in ranges), folder, identity)
    if weights is None:
        return folder, ()
    np.save(folder / _WEIGHTS, weights)
    return folder, (_WEIGHTS,)


@lru_cache(maxsize=1)
def _opened(checkpoint: str, data: str, more: tuple[str, ...], made: int, n_threads: int) -> shards.Work:
    """Open the folder of a fit. The result is cached for further calls in the same process.

    `made` is the time at which the fit was begun. It is used only as a part of the cache key.
    """
    X, Y = open_rows(data)
    sample_weight = np.load(Path(data, _WEIGHTS)) if _WEIGHTS in more else None
    return shards.Work.opened(shards.Folder(Path(checkpoint)), (X, Y, sample_weight), n_threads)


def _work(checkpoint: str, data: str, more: tuple[str, ...], any_cpu: bool) -> shards.Work:
    from distributed import get_worker

    worker = get_worker()
    begun = Path(checkpoint, "fit.json")
    for folder in (begun, Path(data, "rows.json")):
        if not folder.exists():
            raise ValueError(f"the worker {worker.address} cannot reach the folder {folder.parent}")
    for name in more:
        if not Path(data, name).exists():
            raise ValueError(f"the worker {worker.address} cannot reach the file {Path(data, name)}")
    work = _opened(checkpoint, data, more, begun.stat().st_mtime_ns, worker.state.nthreads)
    cpu, own = work.folder.about["cpu"], shards.cpu_type()
    if cpu != own and not any_cpu:
        raise ValueError(
            f"the worker {worker.address} has the CPU {own}, but the fit was begun with {cpu}; "
            "`any_cpu=True` allows this, but the last digits of the weights then depend on the CPU"
        )
    return work


@contextmanager
def _one_piece() -> Iterator[Report]:
    """Wait until no other piece runs in this process, and yield a `Report` for the piece of this task.

    When the `Report` is called, it raises an error if the client has canceled the task. The error ends the
    fit of the piece.
    """
    check = _check_cancelled()
    with _ONE_PIECE, reported(None, "label", False, check) as report:
        check(0)
        yield report


def _choose(checkpoint: str, data: str, more: tuple[str, ...], any_cpu: bool) -> None:
    with _one_piece() as report:
        _work(checkpoint, data, more, any_cpu).choose(report)


def _fit_piece(number: int, checkpoint: str, data: str, more: tuple[str, ...], any_cpu: bool) -> None:
    with _one_piece() as report:
        _work(checkpoint, data, more, any_cpu).fit([number], report)


def _fit_share(
    share: tuple[int, int], checkpoint: str, data: str, more: tuple[str, ...], any_cpu: bool
) -> None:
    """Fit an estimator in rounds, together with the other workers.

    `share` is ``(i, N)`` for the i-th of N workers, with 1 <= i <= N.
    """
    with _one_piece() as report:
        work = _work(checkpoint, data, more, any_cpu)
        # Each worker chooses, so that the workers start the first round at about the same time.
        work.choose(report)
        work.fit(range(work.n_pieces), report, share)


def _check_cancelled() -> Any:
    """Return a function that raises an error if the client has canceled the task of this thread."""
    from distributed import get_worker

    worker = get_worker()
    key = worker.get_current_task()

    def check(_: int) -> None:
        task = worker.state.tasks.get(key)
        if task is None or task.state == "cancelled":
            raise RuntimeError("the client canceled this piece of the fit")

    return check


@lru_cache(maxsize=2)
def _model(path: str, made: int) -> Any:
    return load(path)


def _n_labels(model: str) -> int:
    with _ONE_PIECE:
        return int(_model(model, os.stat(model).st_mtime_ns)._n_labels)


def _topk(first: int, model: str, folder: str, k: int, options: dict[str, Any]) -> csr_array:
    from distributed import get_worker

    with _ONE_PIECE:
        fitted = _model(model, os.stat(model).st_mtime_ns)
        fitted.set_params(n_jobs=get_worker().state.nthreads)
        top: csr_array = fitted.predict_topk(open_rows(folder)[0][first : first + _ROWS], k=k, **options)
    return top
