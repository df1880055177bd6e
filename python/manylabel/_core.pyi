# Types of the extension module, which is written in Rust. This file is written by hand, and stubtest of mypy
# checks it. An argument `model: Any` is an estimator, and the extension module reads the fitted attributes of
# the estimator by name. An argument `params` maps parameter names to checked values.

from collections.abc import Callable
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

__all__ = [
    "CorrelatedTask",
    "DismecDenseTask",
    "DismecTask",
    "PlsTask",
    "Scorer",
    "TreeTask",
    "block_scorer",
    "calibrated",
    "check_correlated",
    "check_link",
    "close_spill",
    "coherent",
    "column_scaling",
    "correlated_scorer",
    "crc32",
    "dense_linear_scorer",
    "dismec_cut",
    "expected_f1_sets",
    "fit_calibration",
    "fit_correlated",
    "fit_dismec",
    "fit_kmeans",
    "fit_leml",
    "fit_link",
    "fit_partition",
    "fit_pdsparse",
    "fit_pls",
    "fit_router",
    "fit_rules",
    "fit_tree",
    "is_canonical",
    "join_tree",
    "linear_scorer",
    "link_scorer",
    "low_rank_scorer",
    "memory_held",
    "merge_blocks",
    "open_spill",
    "parse_xc",
    "partition_labels",
    "pls_n_components",
    "pls_project",
    "private_memory",
    "read_arff",
    "read_xc",
    "restart_memory_peak",
    "route",
    "rules_add",
    "rules_fired",
    "rules_scorer",
    "scale_columns",
    "scale_rows",
    "set_memory_limit",
    "standardize_columns",
    "topk_of_rows",
    "transpose_rows",
    "tree_add_labels",
    "tree_scorer",
    "write_xc",
]

# The arrays of a CSR matrix: indptr, indices and data.
_Csr: TypeAlias = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]

# Sparse or dense features.
_Features: TypeAlias = csr_array | NDArray[Any]

# X, Y and the weights of the rows. If the weights are None, all rows have equal weights.
_Examples: TypeAlias = tuple[_Features, csr_array, NDArray[np.float32] | None]

# The number of threads, and a function that is called with the amount of work done so far.
_Job: TypeAlias = tuple[int, Callable[[int], object] | None]

# The total weight of the pairs to predict, and the scores of held-out pairs with their weights.
_Tally: TypeAlias = tuple[float, NDArray[np.float32], NDArray[np.float64]]

# The row ends, columns and values of a matrix.
_Rows: TypeAlias = tuple[NDArray[np.uint64], NDArray[np.uint32], NDArray[np.float32]]

# Rows, their transpose or None, the original numbers of their columns, and the numbers of features and
# columns.
_Prepared: TypeAlias = tuple[_Rows, _Rows | None, NDArray[np.uint32], int, int]

# The arrays of the weights and the intercepts; those of the couplings; the row ends and columns of the label
# sets and their energies; and the objective, the KKT violation, the number of iterations and whether the fit
# converged.
_Correlated: TypeAlias = tuple[
    _Csr,
    NDArray[np.float64],
    _Csr,
    tuple[NDArray[Any], NDArray[Any]],
    NDArray[np.float64],
    tuple[float, float, int, bool],
]

@final
class CorrelatedTask:
    def __new__(
        cls, examples: _Examples, unknown: csr_array | None, params: dict[str, Any], job: _Job
    ) -> CorrelatedTask: ...
    @property
    def n_rounds(self) -> int: ...
    @property
    def n_units(self) -> int: ...
    @property
    def work(self) -> float: ...
    def advance(self, x: _Features, least: float, seconds: float, job: _Job) -> None: ...
    def compute(self, first: int, end: int, job: _Job) -> list[NDArray[np.uint8]]: ...
    def complete(self, results: list[NDArray[np.uint8]], x: _Features, job: _Job) -> None: ...
    def state(self, job: _Job) -> NDArray[np.uint8]: ...
    def restore(self, state: NDArray[np.uint8], x: _Features, job: _Job) -> None: ...
    def take_model(self, y: csr_array, job: _Job) -> _Correlated: ...

@final
class DismecTask:
    def __new__(
        cls,
        examples: _Examples,
        prepared: _Prepared | None,
        factors: tuple[NDArray[np.float32], NDArray[np.float32]] | None,
        params: dict[str, Any],
        job: _Job,
    ) -> DismecTask: ...
    @property
    def n_units(self) -> int: ...
    def fit(
        self, first: int, end: int, job: _Job
    ) -> tuple[
        NDArray[np.int32],
        _Csr,
        NDArray[np.float32],
        NDArray[np.int32],
        _Tally | None,
    ]: ...

@final
class DismecDenseTask:
    def __new__(
        cls,
        examples: tuple[NDArray[Any], csr_array, NDArray[np.float32] | None],
        columns: tuple[NDArray[np.float64], NDArray[np.float64]] | None,
        factors: tuple[NDArray[np.float32], NDArray[np.float32]] | None,
        params: dict[str, Any],
        job: _Job,
    ) -> DismecDenseTask: ...
    def model(
        self, start: tuple[NDArray[np.float32], NDArray[np.float32]] | None, job: _Job
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int32], float | None]: ...
    @property
    def n_units(self) -> int: ...
    def fit(
        self, first: int, end: int, job: _Job
    ) -> tuple[
        NDArray[np.int32],
        NDArray[np.float32],
        NDArray[np.float32],
        NDArray[np.int32],
        _Tally | None,
    ]: ...

@final
class Scorer:
    @property
    def n_labels(self) -> int: ...
    def above(self, x: _Features, bounds: float | NDArray[np.float32], n_threads: int) -> _Csr: ...
    def at(self, x: _Features, pairs: csr_array, n_threads: int) -> NDArray[np.float32]: ...
    def decision(self, x: _Features, n_threads: int) -> NDArray[np.float32]: ...
    def probabilities(self, x: _Features, n_threads: int) -> NDArray[np.float64]: ...
    def topk(
        self,
        x: _Features,
        k: int,
        n_threads: int,
        beam: int | None = None,
        max_nodes: int | None = None,
    ) -> _Csr: ...

@final
class PlsTask:
    def __new__(cls, examples: _Examples, params: dict[str, Any], job: _Job) -> PlsTask: ...
    @property
    def stages(self) -> list[int]: ...
    def complete(self, pieces: list[dict[str, Any]], job: _Job) -> None: ...
    def fit(self, first: int, end: int, job: _Job) -> dict[str, Any]: ...
    def take_model(
        self, job: _Job
    ) -> tuple[
        NDArray[Any] | None,
        NDArray[Any],
        NDArray[Any],
        NDArray[np.float64] | None,
        int,
        int,
        tuple[float, float],
        NDArray[np.float32] | None,
    ]: ...

@final
class TreeTask:
    def __new__(
        cls,
        examples: _Examples,
        columns: tuple[NDArray[np.float64], NDArray[np.float64]] | None,
        prepared: _Prepared | None,
        factors: tuple[NDArray[np.float32], NDArray[np.float32]] | None,
        params: dict[str, Any],
        trees: dict[str, Any] | None,
        vectors: Any,
        job: _Job,
    ) -> TreeTask: ...
    @property
    def first_node(self) -> int: ...
    @property
    def levels(self) -> NDArray[np.int64]: ...
    def complete(self, pieces: list[dict[str, Any]], job: _Job) -> None: ...
    def fit(self, first: int, end: int, job: _Job) -> dict[str, Any]: ...
    def learn(self, job: _Job) -> tuple[float, float | None]: ...
    def take_model(self, job: _Job) -> tuple[dict[str, Any], int, int]: ...
    def trees(self) -> dict[str, Any]: ...

def block_scorer(
    router: Scorer,
    blocks: list[Any],
    n_labels: int,
    routing: Any,
    weights: tuple[Any, NDArray[np.float32], bool] | None,
) -> Scorer: ...
def calibrated(scores: csr_array, curves: dict[str, Any], n_threads: int) -> NDArray[np.float32]: ...
def check_correlated(params: dict[str, Any]) -> None: ...
def check_link(params: dict[str, Any]) -> None: ...
def coherent(probabilities: csr_array, hierarchy: list[list[int]], job: _Job) -> _Csr: ...
def crc32(data: NDArray[np.uint8], start: int = 0) -> int: ...
def column_scaling(
    x: NDArray[Any], sample_weight: NDArray[np.float32] | None, center: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]: ...
def correlated_scorer(model: Any, params: dict[str, Any]) -> Scorer: ...
def dense_linear_scorer(model: Any) -> Scorer: ...
def dismec_cut(wanted: float, scores: NDArray[np.float32], weights: NDArray[np.float64]) -> float | None: ...
def expected_f1_sets(probabilities: csr_array, of_empty: float, job: _Job) -> _Csr: ...
def fit_calibration(
    scores: csr_array,
    y: csr_array,
    frequency: NDArray[np.int32],
    params: dict[str, Any],
    job: _Job,
) -> dict[str, Any]: ...
def fit_correlated(
    examples: _Examples,
    unknown: csr_array | None,
    start: Any | None,
    params: dict[str, Any],
    job: _Job,
) -> _Correlated: ...
def fit_dismec(
    examples: _Examples,
    prepared: _Prepared | None,
    start: tuple[csr_array, NDArray[np.float32]] | None,
    factors: tuple[NDArray[np.float32], NDArray[np.float32]] | None,
    params: dict[str, Any],
    job: _Job,
) -> tuple[_Csr, NDArray[np.float32], NDArray[np.int32], float | None]: ...
def fit_kmeans(
    x: csr_array | NDArray[Any],
    sample_weight: NDArray[np.float32] | None,
    params: dict[str, Any],
    job: _Job,
) -> tuple[NDArray[np.int32], _Csr, NDArray[np.float32], float]: ...
def fit_leml(
    examples: _Examples,
    columns: tuple[NDArray[np.float64], NDArray[np.float64]] | None,
    observed: csr_array | None,
    label_weight: NDArray[np.float32] | None,
    params: dict[str, Any],
    job: _Job,
) -> tuple[
    NDArray[np.int32],
    NDArray[np.float32],
    NDArray[np.float32],
    NDArray[np.float32],
    NDArray[np.float64],
    float,
    float | None,
]: ...
def fit_link(
    examples: _Examples,
    projection_weights: NDArray[np.float64],
    projection_intercept: NDArray[np.float64],
    predictions: NDArray[np.float32] | None,
    held_out: NDArray[np.bool_] | None,
    params: dict[str, Any],
    job: _Job,
) -> tuple[
    NDArray[np.float32],
    NDArray[np.float32],
    NDArray[np.float32],
    NDArray[np.float32],
    float,
    NDArray[np.float64],
    NDArray[np.int32],
    float,
    float,
]: ...
def fit_partition(
    x: csr_array | NDArray[Any],
    y: csr_array,
    params: dict[str, Any],
    job: _Job,
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int32], NDArray[np.float64], int]: ...
def fit_pdsparse(
    examples: _Examples,
    columns: tuple[NDArray[np.float64], NDArray[np.float64]] | None,
    held_out: NDArray[np.bool_] | None,
    params: dict[str, Any],
    job: _Job,
) -> tuple[_Csr, NDArray[np.float32], int, float, NDArray[np.float64], float | None]: ...
def fit_pls(
    x: csr_array | NDArray[Any],
    y: csr_array,
    sample_weight: NDArray[np.float32] | None,
    params: dict[str, Any],
    job: _Job,
) -> tuple[
    NDArray[Any] | None,
    NDArray[Any],
    NDArray[Any],
    NDArray[np.float64] | None,
    int,
    int,
    tuple[float, float],
    NDArray[np.float32] | None,
]: ...
def fit_router(
    x: csr_array | NDArray[Any],
    classes: NDArray[np.int32],
    n_classes: int,
    sample_weight: NDArray[np.float32] | None,
    params: dict[str, Any],
    job: _Job,
) -> tuple[_Csr, NDArray[np.float32], NDArray[np.int32]]: ...
def fit_rules(
    examples: _Examples,
    held_out: NDArray[np.bool_] | None,
    categorical: NDArray[np.int32],
    start: Any | None,
    params: dict[str, Any],
    job: _Job,
) -> tuple[
    NDArray[np.int64],
    NDArray[np.int32],
    NDArray[np.uint8],
    NDArray[np.float32],
    _Csr,
    NDArray[np.float64],
    NDArray[np.float64],
]: ...
def fit_tree(
    examples: _Examples,
    columns: tuple[NDArray[np.float64], NDArray[np.float64]] | None,
    factors: tuple[NDArray[np.float32], NDArray[np.float32]] | None,
    params: dict[str, Any],
    vectors: csr_array | None,
    job: _Job,
) -> tuple[dict[str, Any], float | None, int, int]: ...
def is_canonical(matrix: Any) -> bool: ...
def join_tree(
    trees: dict[str, Any],
    shape: tuple[int, int],
    pieces: list[dict[str, Any]],
    params: dict[str, Any],
) -> tuple[dict[str, Any], int, int]: ...
def linear_scorer(model: Any) -> Scorer: ...
def link_scorer(model: Any) -> Scorer: ...
def low_rank_scorer(model: Any) -> Scorer: ...
def memory_held() -> tuple[int, int]: ...
def private_memory(keep_little: bool) -> int: ...
def merge_blocks(
    routes: csr_array,
    labels: list[NDArray[np.int32]],
    scores: list[NDArray[np.float32]],
    n_labels: int,
    k: int | None,
    n_threads: int,
) -> _Csr: ...
def partition_labels(
    y: csr_array,
    row_blocks: NDArray[np.int32],
    n_blocks: int,
    lam: float,
    max_labels: int | None,
    n_threads: int,
) -> tuple[NDArray[np.int64], NDArray[np.int32], int]: ...
def pls_n_components(
    y: csr_array, sample_weight: NDArray[np.float32] | None, params: dict[str, Any], n_threads: int
) -> int: ...
def pls_project(
    x: csr_array | NDArray[Any], coef: tuple[NDArray[Any], NDArray[Any]], n_threads: int
) -> NDArray[Any]: ...
def parse_xc(
    path: str,
    text: NDArray[np.uint8],
    before: tuple[int, int],
    shape: tuple[int, int, int],
    *,
    n_threads: int,
) -> tuple[
    tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]],
    tuple[NDArray[np.int64], NDArray[np.int32]],
    tuple[NDArray[np.int64], NDArray[np.int32]],
]: ...
def read_arff(
    path: str, xml: str | None, *, ignore: list[str], missing_labels: str, double: bool
) -> tuple[NDArray[Any] | _Csr, _Csr, _Csr, list[str], list[str]]: ...
def read_xc(path: str, *, double: bool, n_threads: int) -> tuple[tuple[int, int, int], _Csr, _Csr, _Csr]: ...
def restart_memory_peak() -> int: ...
def route(router: Scorer, x: _Features, routing: Any, n_threads: int) -> _Csr: ...
def rules_add(
    model: Any, x: csr_array, scores: NDArray[np.float64], begin: int, end: int, n_threads: int
) -> None: ...
def rules_fired(model: Any, x: csr_array, n_threads: int) -> _Csr: ...
def rules_scorer(model: Any) -> Scorer: ...
def scale_columns(x: csr_array, shift: NDArray[np.float64], scale: NDArray[np.float64]) -> _Csr: ...
def scale_rows(x: csr_array, normalize: bool, ones: bool, out: _Rows, job: _Job) -> NDArray[np.uint32]: ...
def set_memory_limit(limit: int | None) -> int | None: ...
def open_spill(file: int) -> None: ...
def close_spill() -> None: ...
def standardize_columns(
    x: csr_array, sample_weight: NDArray[np.float32] | None, center: bool
) -> tuple[_Csr, NDArray[np.float64], NDArray[np.float64]]: ...
def topk_of_rows(scores: csr_array, k: int) -> _Csr: ...
def transpose_rows(rows: _Rows, n_cols: int, out: _Rows, job: _Job) -> None: ...
def tree_add_labels(
    model: Any,
    examples: _Examples,
    columns: tuple[NDArray[np.float64], NDArray[np.float64]] | None,
    factors: tuple[NDArray[np.float32], NDArray[np.float32]] | None,
    params: dict[str, Any],
    job: _Job,
) -> tuple[dict[str, Any], int, int]: ...
def tree_scorer(model: Any) -> Scorer: ...
def write_xc(path: str, x: csr_array, y: csr_array) -> None: ...
