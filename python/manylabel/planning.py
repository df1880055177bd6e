"""Forecasts of the memory and the time of a fit, before the fit."""

from __future__ import annotations

import gc
import statistics
import time
import tracemalloc
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.base import clone

from manylabel import _core
from manylabel.datasets.rows import data_or_rows, folder_of
from manylabel.embedding import Rembrandt
from manylabel.estimator.names import column_names, values_of_frame
from manylabel.estimator.parameters import n_threads
from manylabel.estimator.validation import check_object, check_training_set
from manylabel.linear.dismec import DiSMECClassifier
from manylabel.memory import as_bytes
from manylabel.tree.classifier import LabelTreeClassifier

__all__ = ["Plan", "plan"]

# The sizes of the subsets, as shares of the rows. Large subsets are fitted only if this takes little time.
_SHARES = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2)
# The smallest number of rows in a subset.
_FEWEST_ROWS = 64
# A fit that takes less time than this, in seconds, is repeated, since short times are noisy.
_SHORT = 0.2
_REPEATS = 3
# The forecast of the memory can be too low by this share of the memory that the fit adds. For 7 estimators
# and 3 shapes of made data, at most 1.22 times the forecast was needed. For one of twelve fits to real data,
# Rembrandt on reuters-21578, it was 1.7 times.
_RESERVE = 0.25
# The memory that the reserve covers at least, in bytes: threads, blocks that are too small to be counted, and
# freed blocks between other blocks. A fit to 3,000 rows needed 6.6 MB more than the counted blocks.
_LEAST_RESERVE = 8 << 20
# The largest exponent of a growth with the number of rows. Larger exponents are measurement errors.
_MOST_EXPONENT = 2.0


@dataclass(frozen=True)
class Plan:
    """A forecast of the memory and the time of a fit; see `plan`.

    Parameters
    ----------
    memory : int
        Largest private memory of the process during the fit, in bytes (see `memory_limit`). X and Y are
        included if they are in memory.
    fit_memory : int
        Memory that the fit adds at its peak, in bytes.
    model_bytes : int
        Size of the fitted attributes, in bytes.
    seconds : float
        Time of the fit, in seconds.
    latency : float or None
        Time to predict a single row, in seconds. It is measured with the model that was fitted to the largest
        subset of the rows (see `rows`). The value is None if the estimator has no method ``predict_topk``.
    rows : tuple of int
        Number of rows of each subset to which `plan` fitted the estimator, in increasing order.
    budget : int or None
        The budget for the private memory of the process, in bytes. It is the argument `memory` of the
        function `plan`, converted to bytes. None means that there is no budget.
    advice : tuple of str
        What to change to stay within the budget. The tuple is empty if `keeps_budget` is True.

    Examples
    --------
    >>> import manylabel as ml
    >>> X, Y = ml.datasets.make_multilabel(2000, 50, 10, random_state=0)
    >>> plan = ml.plan(ml.DiSMECClassifier(random_state=0), X, Y, memory="1kB")
    >>> plan.keeps_budget, len(plan.advice) > 0
    (False, True)
    """

    memory: int
    fit_memory: int
    model_bytes: int
    seconds: float
    latency: float | None
    rows: tuple[int, ...]
    budget: int | None
    advice: tuple[str, ...]

    @property
    def keeps_budget(self) -> bool:
        """Whether the fit is expected to stay within the budget. The value is True if there is no budget.

        With a budget, the value is True if `memory` plus a reserve does not exceed `budget`. The forecast
        `memory` is not exact, so a reserve is needed. The reserve is a quarter of `fit_memory`, but at least
        8 MiB. This reserve was enough for most estimators and data sets, but not for all.
        """
        return self.budget is None or self.memory + self._reserve <= self.budget

    @property
    def _reserve(self) -> int:
        return max(int(_RESERVE * self.fit_memory), _LEAST_RESERVE)

    def __str__(self) -> str:
        lines = [
            f"memory   {_megabytes(self.memory)}, of which the fit adds {_megabytes(self.fit_memory)}",
            f"model    {_megabytes(self.model_bytes)}",
            f"time     {self.seconds:.3g} s",
        ]
        if self.latency is not None:
            lines.append(f"one row  {1e3 * self.latency:.2g} ms")
        if self.budget is not None:
            if self.keeps_budget:
                state = "kept"
            else:
                enough = np.ceil((self.memory + self._reserve) / 1e5) * 1e5
                state = "exceeded" if self.memory > self.budget else "perhaps exceeded"
                state += f"; {_megabytes(enough)} should be enough"
            lines.append(f"budget   {_megabytes(self.budget)}, {state}")
        lines += [f"- {change}" for change in self.advice]
        return "\n".join(lines)


@dataclass(frozen=True)
class _Sample:
    """Measured memory, model size and time of a fit to a subset of the rows."""

    n_rows: int
    memory: float
    model_bytes: float
    seconds: float


def plan(
    estimator: Any,
    X: Any,
    Y: Any = None,
    *,
    memory: int | str | None = None,
    n_jobs: int | None = None,
    max_seconds: float = 20.0,
    random_state: int = 0,
) -> Plan:
    """Forecast the memory and the time of a fit.

    Parameters
    ----------
    estimator : estimator
        The estimator. The given object is not changed.
    X : array-like or sparse matrix of shape (n_samples, n_features), str or path-like
        Features, or the path of a folder that `manylabel.datasets.convert` has written.
    Y : array-like or sparse matrix of shape (n_samples, n_labels), default=None
        0/1 indicator matrix, in which NaN marks unknown entries. Y must be None if X is a folder.
    memory : int, str or None, default=None
        A budget for the private memory of the process (see `memory_limit`), such as "8GB". If the fit
        may exceed the budget (see `Plan`), the plan contains advice. None means that there is no budget.
    n_jobs : int or None, default=None
        Number of threads of the fit. None means the parameter `n_jobs` of the estimator.
    max_seconds : float, default=20.0
        Limit on the total time of all fits to subsets of the rows (see Notes), in seconds; > 0. The estimator
        is always fitted to the two smallest subsets, even if this takes longer.
    random_state : int, default=0
        Seed of the random choice of the subsets.

    Returns
    -------
    Plan
        The forecast.

    Raises
    ------
    TypeError
        If the estimator is not an estimator of this package, or if `memory` is not an int, a str or None.
    ValueError
        If an argument is not valid, or if X is the path of a folder that `convert` has not written.
    OSError
        If the folder X does not exist, or if a file cannot be opened.

    See Also
    --------
    memory_limit : Limits the memory of the process. A fit that needs more memory raises a MemoryError.

    Notes
    -----
    The estimator is fitted to subsets with 1/32, 1/16, 1/8, 1/4 and 1/2 of the rows. A subset with fewer than
    64 rows is enlarged to 64 rows, or to all rows if X has fewer than 64. If several subsets have the same
    size, only one of them is used. If X has fewer than 130 rows, all subsets have the same size, so the
    estimator is fitted to a single subset. The largest subsets are left out if the fits are expected to take
    longer than `max_seconds` in total.

    The memory, the model size and the time are forecast separately. Each forecast uses the two values
    measured with the two largest subsets that were fitted. A power law ``a * n_rows**b`` with
    ``0 <= b <= 2`` is computed from the two values. If ``b >= 1``, the forecast is the value of the power law
    for all rows. If ``b < 1``, a straight line with a slope of at least 0 is also computed from the two
    values and extrapolated to all rows. The forecast is then the geometric mean of the value of the power law
    and the value of the line. With a single subset, the forecast is the measured value multiplied by the
    ratio of all rows to the rows of the subset.

    With ``C="auto"``, the C of `DiSMECClassifier` and `LabelTreeClassifier` is chosen on a sample drawn from
    all rows, and all subsets use this C. The time of the choice is added to the forecast. With
    ``max_leaf="auto"``, `LabelTreeClassifier` uses the same leaf size for the subsets as for all rows.

    The forecast of the time applies only to this machine. If the fit uses one thread, the forecast is
    processor time, which does not depend on other programs on the machine. The forecast of the memory
    includes the memory of the Rust core and of numpy, but no allocations of less than 1 kB.

    Examples
    --------
    >>> import manylabel as ml
    >>> X, Y = ml.datasets.make_multilabel(2000, 50, 10, random_state=0)
    >>> plan = ml.plan(ml.DiSMECClassifier(random_state=0), X, Y, memory="8GB")
    >>> plan.keeps_budget
    True
    """
    check_object(estimator)
    if not hasattr(estimator, "parameters"):
        raise TypeError(f"`estimator` must be an estimator of manylabel, got {type(estimator).__name__}")
    if not max_seconds > 0:
        raise ValueError(f"`max_seconds` must be > 0, got {max_seconds}")
    budget = None if memory is None else as_bytes(memory, "memory")
    model = clone(estimator)
    if n_jobs is not None:
        model.set_params(n_jobs=n_jobs)
    model.parameters.check(model)
    clock = time.process_time if n_threads(model.n_jobs) == 1 else time.perf_counter
    before = _core.private_memory(keep_little=memory is not None)
    X, Y = data_or_rows(X, Y)
    if column_names(Y) is not None:
        Y = values_of_frame(Y)
    dense = getattr(model, "_dense", False)
    in_memory = folder_of(X) is None
    with _MemoryPeak() as of_check:
        X, Y, _ = check_training_set(clone(model), X, Y, None, dense=dense, unknown=True)
    with _MemoryPeak() as of_choice:
        begun = clock()
        model = _settled(model, X, Y)
        choice = clock() - begun
    n_rows = X.shape[0]
    samples: list[_Sample] = []
    spent = 0.0
    rng = np.random.default_rng(random_state)
    order = rng.permutation(n_rows)
    fitted: Any = None
    for share in _SHARES:
        size = max(min(n_rows, _FEWEST_ROWS), int(share * n_rows))
        if samples and size <= samples[-1].n_rows:
            continue
        if (
            len(samples) >= 2
            and _forecast([(s.n_rows, s.seconds) for s in samples], size) > max_seconds - spent
        ):
            break
        rows = np.sort(order[:size])
        wall = time.perf_counter()
        sample, fitted = _measured(model, X[rows], Y[rows], clock)
        spent += time.perf_counter() - wall
        samples.append(sample)

    def all_rows(value: Callable[[_Sample], float]) -> float:
        return _forecast([(sample.n_rows, value(sample)) for sample in samples], n_rows)

    # The samples are rows of the converted X and Y, so their fits do not contain copies by the conversion.
    of_fit = max(of_choice.added, all_rows(lambda sample: sample.memory))
    fit_memory = max(of_check.added, of_check.kept + of_fit)
    model_bytes = min(all_rows(lambda sample: sample.model_bytes), _most_model_bytes(model, X, Y))
    latency, is_sparse = _latency(fitted, X), issparse(X)
    # The first fit of a process imports modules and allocates memory that the process keeps.
    del fitted, X, Y, order, rows
    gc.collect()
    before = max(before, _core.private_memory(False))
    forecast = Plan(
        memory=before + int(fit_memory),
        fit_memory=int(fit_memory),
        model_bytes=int(model_bytes),
        seconds=choice + all_rows(lambda sample: sample.seconds),
        latency=latency,
        rows=tuple(sample.n_rows for sample in samples),
        budget=budget,
        advice=(),
    )
    if forecast.keeps_budget:
        return forecast
    return replace(forecast, advice=_advice(model, is_sparse, forecast, in_memory))


def _forecast(measured: list[tuple[int, float]], n_rows: int) -> float:
    """Return the expected value for `n_rows` rows, extrapolated from values measured with subsets.

    `measured` has the pair (number of rows, value) of each subset, from the smallest to the largest subset.
    """
    (last_rows, last) = measured[-1]
    if len(measured) == 1 or last_rows >= n_rows:
        return last * n_rows / last_rows
    (rows, value) = measured[-2]
    if min(value, last) <= 0:
        return last
    exponent = np.log(last / value) / np.log(last_rows / rows)
    power = last * (n_rows / last_rows) ** float(np.clip(exponent, 0.0, _MOST_EXPONENT))
    if exponent >= 1:
        return float(power)
    slope = max(last - value, 0.0) / (last_rows - rows)
    line = last + slope * (n_rows - last_rows)
    return float(np.sqrt(power * line))


def _measured(model: Any, X: Any, Y: Any, clock: Callable[[], float]) -> tuple[_Sample, Any]:
    """Fit the model to a subset of the rows. Return the measurements (see `_Sample`) and the fitted model."""

    def fit() -> tuple[Any, float]:
        fitted = clone(model)
        begun = clock()
        fitted.fit(X, Y)
        return fitted, clock() - begun

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fit to all rows will warn
        gc.collect()
        with _MemoryPeak() as peak:  # the measurement takes time, so only the first fit measures memory
            fitted, first = fit()
        times = [first]
        while first < _SHORT and len(times) < _REPEATS:
            times.append(fit()[1])
    sample = _Sample(X.shape[0], peak.added, _size_of(fitted), statistics.median(times))
    return sample, fitted


class _MemoryPeak:
    """Measures the memory use of the Rust core, Python and numpy in the block of a ``with`` statement.

    Attributes
    ----------
    added : int
        The peak memory use in the block minus the memory use at the beginning of the block, in bytes.
    kept : int
        The memory use at the end of the block minus the memory use at its beginning, in bytes.
    """

    added = 0
    kept = 0

    def __enter__(self) -> _MemoryPeak:
        self._is_traced = tracemalloc.is_tracing()
        if not self._is_traced:
            tracemalloc.start()
        tracemalloc.reset_peak()
        self._before = tracemalloc.get_traced_memory()[0] + _core.restart_memory_peak()
        return self

    def __exit__(self, *_: object) -> None:
        (python, python_peak), (core, core_peak) = tracemalloc.get_traced_memory(), _core.memory_held()
        # The two peaks need not be at the same time, so the sum can be too large.
        self.added = max(python_peak + core_peak - self._before, 0)
        self.kept = max(python + core - self._before, 0)
        if not self._is_traced:
            tracemalloc.stop()


def _settled(model: Any, X: Any, Y: Any) -> Any:
    """Replace values such as ``C="auto"`` by values that are chosen on all rows. Return the model.

    `plan` then fits the returned model to each subset of the rows, so all these fits use the chosen values. A
    `DiSMECClassifier` is not changed, and a copy with the chosen values is returned. A `LabelTreeClassifier`
    is changed in place. All other estimators are returned unchanged.
    """
    threads = n_threads(model.n_jobs)
    if isinstance(model, DiSMECClassifier):
        return clone(model._settled(X, Y, None, threads, lambda _: None))
    if isinstance(model, LabelTreeClassifier):
        # The vectors of the labels do not matter for the choice.
        chooser = clone(model).set_params(label_vectors="rows")
        params, *_ = chooser._settled_params(
            chooser.parameters.check(chooser), X, Y, None, None, lambda _: None
        )
        model.set_params(C=params["C"], max_leaf=params["max_leaf"], prune=params["prune"])
    return model


def _size_of(fitted: Any) -> int:
    """Return the size of all fitted arrays in bytes, including the arrays of nested fitted estimators."""
    seen: set[int] = set()

    def size(value: Any) -> int:
        if id(value) in seen:
            return 0
        seen.add(id(value))
        if isinstance(value, np.ndarray):
            return value.nbytes
        if issparse(value):
            return sum(size(getattr(value, part)) for part in ("indptr", "indices", "data"))
        if isinstance(value, list | tuple):
            return sum(map(size, value))
        if isinstance(value, dict):
            return sum(map(size, value.values()))
        if hasattr(value, "get_params"):
            return sum(size(inner) for name, inner in vars(value).items() if name.endswith("_"))
        return 0

    return size(fitted)


def _most_model_bytes(model: Any, X: Any, Y: Any) -> float:
    """Return an upper bound for the size of the model, in bytes.

    For `DiSMECClassifier`, the bound is the size of a model in which no weight is zero. For other estimators,
    the bound is infinite.
    """
    if not isinstance(model, DiSMECClassifier):
        return float("inf")
    n_features, n_labels = int(X.shape[1]), int(Y.shape[1])
    return 8.0 * n_features * n_labels + 16.0 * (n_features + n_labels)


def _latency(fitted: Any, X: Any) -> float | None:
    """Return the median time to predict a single row, in seconds."""
    if not hasattr(fitted, "predict_topk"):
        return None
    times = []
    for row in range(min(21, X.shape[0])):
        one = X[[row]]
        begun = time.perf_counter()
        fitted.predict_topk(one)
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def _advice(model: Any, is_sparse: bool, forecast: Plan, in_memory: bool) -> tuple[str, ...]:
    """Return advice on how to stay within the memory budget, as a tuple of str."""
    before = forecast.memory - forecast.fit_memory
    changes = []
    has_pieces = isinstance(model, DiSMECClassifier | LabelTreeClassifier)
    is_mappable = has_pieces and is_sparse
    if is_mappable and in_memory:
        changes.append("memory-mapped rows: datasets.convert and datasets.open_rows")
    if forecast.budget is not None and before >= forecast.budget:
        changes.append(
            f"a larger budget: the process uses {_megabytes(before)} before the fit, including X and Y"
        )
        return tuple(changes)
    if has_pieces:
        changes.append("fit in pieces: shards.fit(..., checkpoint=...)")
    if getattr(model, "n_trees", 1) > 1:
        changes.append(f"fewer trees: n_trees < {model.n_trees}")
    if getattr(model, "weights", None) == "float32":
        changes.append('smaller weights in the model: weights="float16" or "int8"')
    if hasattr(model, "prune"):
        changes.append("fewer weights: a larger value of prune")
    for name in ("rank", "n_components"):
        if hasattr(model, name):
            changes.append(f"a smaller value of {name}")
    if isinstance(model, Rembrandt) and model.solver != "cg":
        changes.append('a solver that computes no matrix of shape (n_features, n_features): solver="cg"')
    if n_threads(model.n_jobs) > 1:
        changes.append("fewer threads: each thread needs memory of its own")
    return tuple(changes) or ("fewer rows or features",)


def _megabytes(n_bytes: float) -> str:
    return f"{n_bytes / 1e6:,.1f} MB"
