"""Blocks of rows and labels, without classifiers."""

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
)
from manylabel.partition.choice import (
    default_lam,
    find_partition,
)
from manylabel.partition.plot import draw_blocks

__all__ = ["BlockPartitioner"]


@register
class BlockPartitioner(Estimator):
    """Partition of rows into blocks, each with the labels that its rows have most.

    Rows i are assigned to clusters c_i, and each cluster l has a set L_l of labels; sets may overlap. The
    partition minimizes ``-sum_i |y_i & L_{c_i}| + lam * sum_l |L_l|^2``: it captures many ones of Y in blocks
    with few labels [1]_. It starts from k-means of the rows of X, scaled to unit length. Then label sets and
    clusters are optimized in turns.

    Parameters
    ----------
    n_blocks : int or "auto", default="auto"
        Initial number of clusters; >= 1, and no more than there are distinct rows. "auto" tries 1 to 16, then
        numbers that grow by a quarter, as long as every block has rows and labels. A number replaces the best
        so far if it captures more ones, by at least a thousandth of all ones. The search ends after five
        numbers without improvement.
    lam : float or "auto", default="auto"
        Weight of squared label-set sizes, in units of ones; finite and >= 0. "auto" is 0 if `max_labels` is
        given. Otherwise it is the weight at which a single block of all rows would capture nine tenths of the
        ones, which is just below ``N_J / (2 J - 1)``: J is the smallest number of labels that have nine
        tenths of the ones, and N_J the count of the J-th most frequent label. It grows with the number of
        rows.
    max_labels : int or None, default=None
        Maximum number of labels per block; >= 1. None for no limit.
    n_init : int, default=1
        Number of starts with different seeds; >= 1. The one with the lowest objective is kept.
    max_iter : int, default=100
        Maximum number of rounds, each of labels and rows; >= 1.
    tol : float, default=1e-5
        The partition stops after a round that lowers the objective by less; finite and > 0. The objective
        changes in steps, so any small number means "no change".
    random_state : int, RandomState instance or None, default=None
        Seeds k-means. Pass an int for reproducible results.

    Attributes
    ----------
    row_blocks_ : ndarray of shape (n_samples,), dtype int32
        The block of each row; no block is without rows.
    label_blocks_ : list of ndarray, dtype int32
        The labels of each block, increasing. Empty for a block in which no label is worth its cost.
    n_labels_ : int
        Number of labels, including those in no block.
    n_blocks_ : int
        Number of blocks; fewer than `n_blocks` if some lost their rows.
    lam_ : float
        The weight used.
    objective_ : float
        Final value of the objective.
    objective_history_ : ndarray of shape (n_half_steps,), dtype float64
        The objective after each choice of labels and of rows; it never rises.
    n_iter_ : int
        Number of rounds.
    captured_ : float
        Share of the ones of Y that lie in a block.
    overlap_ : float
        Mean number of blocks per label, over the labels that are in any block.

    See Also
    --------
    BlockPartitionClassifier : Fits a classifier in each block.

    Notes
    -----
    Rows that tie between blocks keep their block, so that the objective falls. Time is O(nnz(X) n_blocks) per
    sweep of k-means, over at most 256 randomly drawn rows per cluster, and O(nnz(Y) + n_samples n_blocks) per
    round, more if frequent labels are in many blocks. k-means takes 4 bytes per cluster and feature, at most
    1 GiB; beyond that the rarest features are ignored. The search for `n_blocks` returns the same blocks as a
    fit with the number it found.

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
            Features; finite, any numeric dtype, int32 or int64 indices.
        y : array-like or sparse matrix of shape (n_samples, n_labels)
            0/1 indicator matrix Y.

        Returns
        -------
        BlockPartitioner
            The estimator itself.

        Raises
        ------
        ValueError
            If an argument or parameter is not as described; the message states what was expected and what
            was given.
        KeyboardInterrupt
            Within a second of Ctrl-C.
        """
        params = self.parameters.check(self)
        X, y, _ = check_training_set(self, X, y, None)
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
        """Draw the label matrix, with the rows and labels of each block next to one another.

        Parameters
        ----------
        Y : array-like or sparse matrix of shape (n_samples, n_labels)
            The label matrix of fit.
        max_rows : int, default=400
            Maximum number of rows drawn per block, from the first; >= 1.
        ax : matplotlib.axes.Axes, default=None
            Where to draw; None for a new figure.

        Returns
        -------
        matplotlib.axes.Axes
            The axes drawn on. Ones are points; the labels of a block are shaded.

        Raises
        ------
        ModuleNotFoundError
            If matplotlib is not installed.
        ValueError
            If Y has another shape than in fit.
        """
        check_is_fitted(self)
        max_rows = check_count("max_rows", max_rows, 1)
        Y = check_labels(Y)
        expected = len(self.row_blocks_), self.n_labels_
        if Y.shape != expected:
            raise ValueError(f"shape of Y: expected {expected} as in fit, got {Y.shape}")
        return draw_blocks(Y, self.row_blocks_, self.label_blocks_, max_rows, ax)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = False
        return tags
