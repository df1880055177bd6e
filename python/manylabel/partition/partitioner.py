"""The estimator `BlockPartitioner`, which splits rows and labels into blocks."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from manylabel.estimator import parameters as kinds
from manylabel.estimator.base import Estimator, built_aside
from manylabel.estimator.parameters import check_count
from manylabel.estimator.registry import register
from manylabel.estimator.schema import Array, Each, Scalar, Schema
from manylabel.estimator.validation import (
    check_labels,
    check_training_set,
    known_ones,
)
from manylabel.partition.choice import (
    default_lam,
    find_partition,
)
from manylabel.partition.plot import draw_blocks

__all__ = ["BlockPartitioner"]


@register
class BlockPartitioner(Estimator):
    """Partition of rows into blocks, where each block has the most frequent labels of its rows.

    `fit` assigns each row i to a cluster c_i, and chooses a label set L_l for each cluster l. A cluster and
    its label set form a block. Clusters are disjoint, but label sets may overlap. A positive entry of Y is
    called captured if its row and its label are in the same block. The partition minimizes
    ``-sum_i |y_i & L_{c_i}| + lam * sum_l |L_l|^2``, where y_i is the set of labels of row i. The first term
    counts the captured entries. The second term keeps the label sets small [1]_. The initial clusters are
    computed by k-means on the rows of X, scaled to unit length. `fit` then optimizes the label sets and the
    clusters alternately.

    Parameters
    ----------
    n_blocks : int or "auto", default="auto"
        Initial number of clusters; >= 1. If X has fewer than `n_blocks` distinct rows, the number of distinct
        rows is used. Rows count as equal if they are equal after they are scaled to unit length. "auto"
        searches for the number of clusters with which the partition captures the most positive entries. The
        search first tries every number from 1 to 16. It then tries larger numbers, each about 25 % larger
        than the previous number. No number exceeds 2,048 or the number of rows. A number replaces the best
        number so far only if its partition captures more positive entries, and the difference exceeds 0.1 %
        of all positive entries. The search stops when five consecutive numbers have not replaced the best
        number. It also stops at the first number above 1 with which a cluster has no rows or a block has no
        labels. This last number is not chosen.
    lam : float or "auto", default="auto"
        Weight of the term ``sum_l |L_l|^2`` in the objective; finite and >= 0. Larger values give smaller
        label sets. "auto" is 0 if `max_labels` is given. Otherwise, let J be the smallest number for which
        the J most frequent labels together have at least 90 % of the positive entries of Y. "auto" is a
        weight with which a single block of all rows would contain exactly these J labels. This weight is just
        below ``N_J / (2 J - 1)``, where N_J is the number of rows with the J-th most frequent label. The
        weight increases in proportion to the number of rows, because N_J does.
    max_labels : int or None, default=None
        Maximum number of labels per block; >= 1. None means no limit.
    n_init : int, default=1
        Number of times that the partition is computed, with different seeds; >= 1. The partition with the
        lowest objective is kept.
    max_iter : int, default=100
        Maximum number of rounds; >= 1. Each round optimizes the clusters and then the label sets. Before the
        first round, the label sets are optimized once.
    tol : float, default=1e-5
        Tolerance; finite and > 0. `fit` stops after a round that lowers the objective by less than `tol`. The
        objective changes in discrete steps. With a small `tol`, `fit` therefore stops only when the objective
        no longer changes.
    random_state : int, RandomState instance or None, default=None
        Seed of k-means. Pass an int for reproducible results.

    Attributes
    ----------
    row_blocks_ : ndarray of shape (n_samples,), dtype int32
        The block of each row. Every block has at least one row.
    label_blocks_ : list of ndarray, dtype int32
        The labels of each block, in increasing order. A block has no labels if no label lowers the objective.
    n_labels_ : int
        Number of labels, including labels that are in no block.
    n_blocks_ : int
        Number of blocks. Clusters that lose all rows are removed, so the number may be smaller than
        `n_blocks`.
    lam_ : float
        The weight `lam` of the fit: the given number, or the number that "auto" stands for.
    objective_ : float
        Final value of the objective.
    objective_history_ : ndarray of shape (n_half_steps,), dtype float64
        Value of the objective after each half step. A half step optimizes either the clusters or the label
        sets. The values never increase.
    n_iter_ : int
        Number of rounds.
    captured_ : float
        Fraction of the positive entries of Y whose row and label are in the same block.
    overlap_ : float
        Mean number of blocks per label, over all labels that are in at least one block.

    See Also
    --------
    BlockPartitionClassifier : Fits a separate classifier to each block.

    Notes
    -----
    Unknown entries of Y (NaN) count as 0: like zeros, they are never captured.

    A dense X may have the dtype float16, float32 or float64 and any memory order, and may be memory-mapped.
    If more than half of its values are nonzero, k-means makes a float32 copy of the rows. Otherwise, X is
    copied to a sparse matrix, which takes 8 bytes per nonzero value if X is float32, and 12 bytes otherwise.

    A row moves to another block only if more of the row's labels are in that block than in the current block.
    Rows therefore never move back and forth between equally good blocks. A round never raises the objective.
    If a round does not change the objective, `fit` stops.

    An iteration of k-means takes O(nnz(X) n_blocks) time, where nnz is the number of nonzero values. k-means
    computes the centers from at most ``256 * n_blocks`` randomly drawn rows, and then assigns all rows to
    their nearest centers. A round takes O(nnz(Y) + n_samples n_blocks) time, or more if frequent labels are
    in many blocks. The centers take 4 bytes of memory per cluster and feature. If this would be more than
    1 GiB, k-means ignores the rarest features.

    With ``n_blocks="auto"``, let k be the number of clusters that the search finds. A fit with ``n_blocks=k``
    gives the same blocks.

    References
    ----------
    .. [1] Liang, Hsieh, Lee, "Block-wise Partitioning for Extreme Multi-label Classification", algorithms 1
       and 2.

    Examples
    --------
    >>> import manylabel as ml
    >>> X, Y = ml.datasets.make_multilabel(300, 50, 20, random_state=0)
    >>> blocks = ml.BlockPartitioner(n_blocks=4, random_state=0).fit(X, Y)
    >>> len(blocks.label_blocks_)
    4
    """

    parameters = kinds.Parameters(
        n_blocks=kinds.Either("auto", kinds.Count(1)),
        lam=kinds.Either("auto", kinds.Number(least=0)),
        max_labels=kinds.Either(None, kinds.Count(1)),
        n_init=kinds.Count(1),
        max_iter=kinds.Count(1),
        tol=kinds.Number(above=0),
        random_state=kinds.Seed(),
        n_jobs=kinds.Threads(),
    )

    schema = Schema(
        n_labels_=Scalar(int, size="n_labels"),
        n_blocks_=Scalar(int, size="n_blocks"),
        row_blocks_=Array(("n_rows",), "i4", below="n_blocks"),
        label_blocks_=Each(Array(("n_labels_of_block",), "i4", below="n_labels"), "n_blocks"),
        lam_=Scalar(float),
        objective_=Scalar(float),
        objective_history_=Array(("n_half_steps",), "f8"),
        n_iter_=Scalar(int),
        captured_=Scalar(float),
        overlap_=Scalar(float),
    )

    row_blocks_: NDArray[np.int32]
    label_blocks_: list[NDArray[np.int32]]

    def __init__(
        self,
        n_blocks: int | Literal["auto"] = "auto",
        lam: float | Literal["auto"] = "auto",
        max_labels: int | None = None,
        *,
        n_init: int = 1,
        max_iter: int = 100,
        tol: float = 1e-5,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self._assign(locals())

    @built_aside
    def fit(self, X: Any, y: Any) -> BlockPartitioner:
        """Partition the rows and labels.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features, of any numeric dtype. Values must be finite. A sparse matrix may have int32 or int64
            indices.
        y : array-like or sparse matrix of shape (n_samples, n_labels)
            0/1 indicator matrix Y, in which NaN marks unknown entries.

        Returns
        -------
        BlockPartitioner
            The estimator itself.

        Raises
        ------
        ValueError
            If an argument or parameter is not valid. The message states the expected value and the given
            value.
        KeyboardInterrupt
            If Ctrl-C is pressed. The fit stops within a second.
        """
        params = self.parameters.check(self)
        X, y, _ = check_training_set(self, X, y, None, dense="as given if mostly nonzero", unknown=True)
        y = known_ones(y)  # only positive entries are captured
        n_blocks = None if params["n_blocks"] == "auto" else params["n_blocks"]
        lam = params["lam"]
        if lam == "auto":
            lam = default_lam(y) if params["max_labels"] is None else 0.0
        found = find_partition(X, y, n_blocks, lam, params, params["n_jobs"], None)
        self.row_blocks_, self.label_blocks_ = found.row_blocks, found.label_blocks
        self.n_labels_ = y.shape[1]
        self.n_blocks_ = len(found.label_blocks)
        self.lam_ = lam
        self.objective_history_ = found.history
        self.n_iter_ = len(found.history) // 2
        self.objective_ = found.objective
        self.captured_ = found.captured
        held = np.unique(np.concatenate(found.label_blocks))
        self.overlap_ = sum(map(len, found.label_blocks)) / max(1, len(held))
        return self

    def plot(self, Y: Any, *, max_rows: int = 400, ax: Any = None) -> Any:
        """Plot the positive entries of the label matrix, with rows and labels sorted by block.

        Parameters
        ----------
        Y : array-like or sparse matrix of shape (n_samples, n_labels)
            The label matrix that was passed to `fit`.
        max_rows : int, default=400
            Maximum number of rows per block in the plot; >= 1. The first rows of each block are shown.
        ax : matplotlib.axes.Axes, default=None
            Axes for the plot. None creates a new figure.

        Returns
        -------
        matplotlib.axes.Axes
            The axes with the plot. Each positive entry is a point. The background is shaded where a row and a
            label are in the same block.

        Raises
        ------
        ModuleNotFoundError
            If matplotlib is not installed.
        ValueError
            If the shape of Y differs from the shape in `fit`.
        """
        check_is_fitted(self)
        max_rows = check_count("max_rows", max_rows, 1)
        Y = known_ones(check_labels(Y, unknown=True))
        expected = len(self.row_blocks_), self.n_labels_
        if Y.shape != expected:
            raise ValueError(f"Y must have the shape {expected}, as in fit, got {Y.shape}")
        return draw_blocks(Y, self.row_blocks_, self.label_blocks_, max_rows, ax)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = False
        return tags
