"""A block partition with a router and one classifier per block."""

from __future__ import annotations

import warnings
from typing import Any, Literal

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning

from manylabel.estimator import parameters as kinds
from manylabel.estimator.progress import Progress, reported
from manylabel.estimator.registry import register
from manylabel.estimator.schema import Array, Models, Scalar, Schema
from manylabel.estimator.validation import (
    check_training_set,
)
from manylabel.linear import DiSMECClassifier
from manylabel.partition.base import BlockClassifier
from manylabel.partition.choice import (
    Chosen,
    Setting,
    choose_lam,
    default_lam,
    find_partition,
    lam_by_rule,
    partition_by_rule,
    routing_rows,
    with_fewer_labels,
)
from manylabel.partition.models import base_estimator, fit_models, rows_of_blocks
from manylabel.partition.router import fit_router

__all__ = ["BlockPartitionClassifier"]

# LIBLINEAR's values for its logistic regression.
_ROUTER_TOL = 0.1
_ROUTER_MAX_ITER = 1000


@register(
    command="bp-dismec",
    make=lambda blocks: blocks(DiSMECClassifier()),
    demo=(
        "Blocks of DiSMEC",
        lambda blocks: blocks(DiSMECClassifier(), n_blocks=4, lam=1.0, n_routes=2, random_state=0),
    ),
)
class BlockPartitionClassifier(BlockClassifier):
    """One classifier per block of rows and labels, and a router that finds the block of a row.

    Rows and labels are partitioned as by `BlockPartitioner`. In each block a clone of `estimator` is fitted
    to the block's rows and labels. The router, one-vs-rest logistic regressions, learns the block of a row
    from its features. A prediction scores the labels of one block only, or of a few, which takes a fraction
    of the time [1]_.

    Parameters
    ----------
    estimator : estimator or None, default=None
        Any multi-label classifier with scikit-learn's interface. None is `DiSMECClassifier()`. Estimators of
        other libraries are fitted to the labels that vary within a block, while the others are scored by
        their log-odds; they get X and Y dense if these were dense in fit, and cannot be saved by `save`.
    n_blocks : int or "auto", default="auto"
        Initial number of blocks; >= 1. "auto" with ``mode="rule"`` is 1 to 4, by the number of rows and
        labels and the quality of the router. With other modes it starts from the number of
        `BlockPartitioner`, which cross-validation may reduce (see Notes). If `lam` or `max_labels` is given,
        it is that of `BlockPartitioner`.
    lam : float or "auto", default="auto"
        Weight of squared label-set sizes; finite and >= 0. The larger it is, the fewer labels are scored.
        "auto" is chosen by `mode`, or 0 if `max_labels` is given.
    max_labels : int or None, default=None
        Maximum number of labels per block; >= 1. None for no limit.
    n_routes : int or "auto", default="auto"
        Number of blocks that a row is sent to; >= 1. If `n_blocks` and `lam` are automatic and `mode` is
        "rule", "auto" sends a row to as many of its three best blocks as are needed for nine tenths of the
        probability of the three, and otherwise to one block. If a row may be sent to more than one block,
        scores are log-odds: the logit of ``sum_l p_l / (1 + exp(-s_l))`` over the row's blocks l that have
        the label. s_l is the log-odds of the label in block l, and p_l the router's probability of the block,
        scaled to sum to 1. Scores of models with a margin of 1, such as `DiSMECClassifier`, are multiplied by
        4 to approximate log-odds.
    mode : {"rule", "accuracy", "speed"}, default="rule"
        How an automatic `lam` is chosen. "rule" needs no cross-validation: it is the weight at which a single
        block of all rows would capture 95 % of the ones, or 0 with one block. The others search by 5-fold
        cross-validation: "accuracy" maximizes P@1 + P@3 + P@5; "speed" takes the largest weight that loses at
        most 2 points of each against `estimator` alone.
    router_C : float, default=1.0
        Weight of the router's loss against its regularizer; finite and > 0.
    router_intercept : bool, default=True
        Whether the router has intercepts, regularized like the weight of a feature that is 1 in every row.
    drop_unlabeled : bool, default=False
        Whether to fit the router without the rows that have no labels; they stay where k-means put them.
    n_init : int, default=1
        Number of starts of the partition; >= 1. The one with the lowest objective is kept.
    max_iter : int, default=100
        Maximum number of rounds of the partition; >= 1.
    tol : float, default=1e-5
        The partition stops after a round that lowers its objective by less; finite and > 0.
    random_state : int, RandomState instance or None, default=None
        Seeds k-means, the router, and every ``random_state=None`` in `estimator`. An int gives the same bits
        every time, if `estimator` does.
    n_jobs : int or None, default=None
        Threads over blocks; None means 1, -1 all cores. Never changes the result.

    Attributes
    ----------
    row_blocks_ : ndarray of shape (n_samples,), dtype int32
        The block of each training row.
    label_blocks_ : list of ndarray, dtype int32
        The labels of each block, increasing.
    estimators_ : list of estimators
        The model of each block; None for a block without labels, to which no row is sent.
    router_coef_ : csc_array of shape (n_blocks_, n_features), dtype float32
        Weights of the router, for rows of unit length.
    router_intercept_ : ndarray of shape (n_blocks_,), dtype float32
        Its intercepts; -inf for a block without labels.
    n_blocks_ : int
        Number of blocks.
    lam_ : float
        The weight used.
    lams_ : ndarray of shape (n_lams,), dtype float64
        The weights that were cross-validated; only `lam_` if none were.
    lam_precision_ : ndarray of shape (n_lams, n_folds, 3), dtype float64
        Their P@1, P@3 and P@5 on held-out rows, from 0 to 1.
    objective_ : float
        Objective of the partition.
    objective_history_ : ndarray of shape (n_half_steps,), dtype float64
        The objective after each half step, with the smallest of `lams_`.
    n_iter_ : int
        Number of rounds of the partition.
    captured_ : float
        Share of the ones of Y that lie in a block.
    speedup_ : tuple of two float
        Result of `measure_speedup` for the training rows.

    See Also
    --------
    BlockPartitioner : The partition alone.
    CBMLCClassifier : Clusters of rows from the features alone, and all labels in each.

    Notes
    -----
    `sample_weight` is passed to the router and to `estimator`, which must accept it; the partition ignores
    it. Ctrl-C ends a fit within a second if `estimator` is one of this library, and otherwise when the blocks
    at work are done. A `UserWarning` reports blocks that an estimator of another library could not be fitted
    to, and that ``mode="speed"`` found no `lam` within its tolerance.

    While the router is fitted, it takes 4 bytes per block and feature.

    With one block and ``lam=0`` the scores are those of `estimator` fitted to the labels that any row has.

    With the default parameters a fit takes no longer than that of `estimator` to all rows and labels, if the
    time of the latter grows with rows and labels. An automatic `n_blocks` starts with one block per 5,000
    rows and 500 labels, at most four. It is halved as long as the router finds the blocks of fewer than 92 %
    of 2,000 held-out rows (a tenth of the rows, if that is less). Rows sent to a wrong block lose their
    labels, and this test costs one fit of the router. Below 10,000 rows or 1,000 labels there is one block
    with all labels, which is `estimator` itself: models of some of the rows learn less, and there is little
    time to save. With enough rows and labels but a poor router there is also one block, without the rarest
    labels: those beyond 97 % of the ones.

    With ``mode="accuracy"``, an automatic `lam` costs five more fits, each of partition, router and models
    with the smallest of eight candidates. Larger candidates are judged by the parts of these models that they
    keep, for the same blocks of rows; the final model is fitted in the same way. ``mode="speed"`` also costs
    five fits of `estimator` to all labels. The candidates are the weights at which a single block of all rows
    would capture 35 to 99 % of the ones. An automatic `n_blocks` is first that of `BlockPartitioner` with its
    default weight. It is halved as long as every candidate loses too much against `estimator` alone in some
    fold: of P@1, P@3 or P@5, more than 1 point for "accuracy" and 2 for "speed". This costs the five fits of
    `estimator` in either mode.

    References
    ----------
    .. [1] Liang, Hsieh, Lee, "Block-wise Partitioning for Extreme Multi-label Classification".

    Examples
    --------
    >>> import manylabel as ml
    >>> X, Y = ml.datasets.make_multilabel(300, 50, 20, random_state=0)
    >>> model = ml.BlockPartitionClassifier(ml.DiSMECClassifier(), n_blocks=4, lam=1.0, random_state=0)
    >>> model.fit(X, Y).predict_topk(X, k=3).shape
    (300, 20)
    """

    parameters = kinds.Parameters(
        estimator=kinds.Either(None, kinds.Classifier()),
        n_blocks=kinds.Either("auto", kinds.Count(1)),
        lam=kinds.Either("auto", kinds.Number(least=0)),
        max_labels=kinds.Either(None, kinds.Count(1)),
        n_routes=kinds.Either("auto", kinds.Count(1)),
        mode=kinds.Choice("rule", "accuracy", "speed"),
        router_C=kinds.Number(above=0),
        router_intercept=kinds.Flag(),
        drop_unlabeled=kinds.Flag(),
        n_init=kinds.Count(1),
        max_iter=kinds.Count(1),
        tol=kinds.Number(above=0),
        **kinds.SEEDED_RUN,
    )

    schema = Schema(
        **BlockClassifier.fitted,
        estimators_=Models("n_blocks", "label_blocks_"),
        n_blocks_=Scalar(int, size="n_blocks"),
        lam_=Scalar(float),
        lams_=Array(("n_lams",), "f8"),
        lam_precision_=Array(("n_lams", "n_folds", 3), "f8"),
        objective_=Scalar(float),
        objective_history_=Array(("n_half_steps",), "f8"),
        n_iter_=Scalar(int),
        captured_=Scalar(float),
    )

    def __init__(
        self,
        estimator: BaseEstimator | None = None,
        *,
        n_blocks: int | Literal["auto"] = "auto",
        lam: float | Literal["auto"] = "auto",
        max_labels: int | None = None,
        n_routes: int | Literal["auto"] = "auto",
        mode: str = "rule",
        router_C: float = 1.0,
        router_intercept: bool = True,
        drop_unlabeled: bool = False,
        n_init: int = 1,
        max_iter: int = 100,
        tol: float = 1e-5,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self._assign(locals())

    def _fit(self, X: Any, y: Any, sample_weight: Any, progress: Progress) -> None:
        params = self.parameters.check(self)
        n_blocks = None if params["n_blocks"] == "auto" else params["n_blocks"]
        lam = None if params["lam"] == "auto" else params["lam"]
        setting = Setting(
            estimator=base_estimator(self.estimator),
            params=params,
            router={
                "C": params["router_C"],
                "fit_intercept": params["router_intercept"],
                "tol": _ROUTER_TOL,
                "max_iter": _ROUTER_MAX_ITER,
                "random_state": params["random_state"],
            },
            dense=(not issparse(X), not issparse(y)),
            drop_unlabeled=params["drop_unlabeled"],
            seed=params["random_state"],
            threads=params["n_jobs"],
        )
        sparse_output = issparse(y)
        X, y, sample_weight = check_training_set(self, X, y, sample_weight)

        with reported(None, "label", params["verbose"], progress) as report:
            if lam is None and params["max_labels"] is not None:
                lam = 0.0
            found = None
            if lam is None and self.mode == "rule":
                if n_blocks is None:
                    found, lam = partition_by_rule(X, y, sample_weight, setting, report)
                else:
                    lam = lam_by_rule(y, n_blocks)
            if lam is None:
                most = n_blocks
                if most is None:
                    searched = find_partition(X, y, None, default_lam(y), params, setting.threads, report)
                    most = len(searched.label_blocks)
                choice = choose_lam(
                    X, y, sample_weight, most, self.mode, setting, report, or_fewer=n_blocks is None
                )
            else:
                choice = Chosen(n_blocks, lam, np.array([lam]), np.empty((1, 0, 3)))
            if found is None:
                # As in cross-validation: the partition with the smallest weight, of whose label sets the
                # chosen weight then keeps a part.
                least = float(choice.lams[0])
                found = find_partition(X, y, choice.n_blocks, least, params, setting.threads, report)
            if choice.lam != choice.lams[0]:
                found = with_fewer_labels(y, found, choice.lam, setting)
            blocks = found.label_blocks
            usable = np.array([len(labels) > 0 for labels in blocks])
            rows = routing_rows(y, found.row_blocks, drop_unlabeled=setting.drop_unlabeled)
            router, n_iter = fit_router(
                X, rows, usable, sample_weight, setting.router, setting.threads, report
            )
            report.restart(sum(map(len, blocks)))
            models = fit_models(
                setting.estimator,
                X,
                y,
                sample_weight,
                rows_of_blocks(found.row_blocks, len(blocks)),
                blocks,
                seed=setting.seed,
                dense=setting.dense,
                threads=setting.threads,
                progress=report,
            )
        self.row_blocks_, self.label_blocks_, self.estimators_ = found.row_blocks, blocks, models
        self.n_blocks_ = len(blocks)
        self.lam_, self.lams_, self.lam_precision_ = choice.lam, choice.lams, choice.precision
        self.objective_history_ = found.history
        self.n_iter_ = len(found.history) // 2
        self.objective_ = found.objective
        self.captured_ = found.captured
        self._finish(X, router, y.shape[1], sparse_output)
        if (n_iter >= _ROUTER_MAX_ITER).any():
            warnings.warn(
                f"the router did not converge in {_ROUTER_MAX_ITER} passes; a smaller `router_C` helps",
                ConvergenceWarning,
                stacklevel=3,
            )

    @property
    def _n_routes(self) -> int | None:
        n_routes = self.parameters["n_routes"].check("n_routes", self.n_routes)  # it may be set after fit
        if n_routes == "auto":
            by_rule = (self.n_blocks, self.lam, self.max_labels, self.mode) == ("auto", "auto", None, "rule")
            return None if by_rule and len(self.label_blocks_) > 1 else 1
        return min(int(n_routes), len(self.label_blocks_))
