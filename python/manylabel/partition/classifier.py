"""Blocks with a router in front and a classifier in each."""

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

# LIBLINEAR's, for its logistic regression.
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
    """One classifier in each block of rows and labels, and a router that finds a row's block.

    Rows and labels are partitioned as by `BlockPartitioner`; in each block a clone of `estimator` learns the
    block's labels from the block's rows; one-vs-rest logistic regressions learn the block of a row from its
    features. A prediction scores the labels of the row's block only, and so takes a fraction of the time
    [1]_.

    Parameters
    ----------
    estimator : estimator or None, default=None
        Any multi-label classifier of scikit-learn's conventions. None is `DiSMECClassifier()`. Others than
        this library's see labels that vary within a block, have the rest scored by their log-odds, and are
        given X and Y dense if they were so in fit; those fitted cannot be saved by `save`.
    n_blocks : int or "auto", default="auto"
        Blocks to start with, >= 1. "auto" is 1 to 4 by the number of rows and the quality of the router if
        `mode` is "rule", and what cross-validation leaves of the number of `BlockPartitioner` otherwise (see
        Notes). If `lam` or `max_labels` is given, it is that of `BlockPartitioner`.
    lam : float or "auto", default="auto"
        Weight of squared label-set sizes, finite and >= 0: the larger, the fewer labels are scored. "auto" is
        what `mode` makes of it, or 0 if `max_labels` is given.
    max_labels : int or None, default=None
        Most labels of a block, >= 1.
    n_routes : int or "auto", default="auto"
        Blocks a row is sent to, >= 1. "auto" sends a row to the fewest of its three best blocks that hold
        nine tenths of the three's probability if `n_blocks` and `lam` are automatic and `mode` is "rule", and
        to one block otherwise. Wherever it may be more than one, scores are log-odds: a label's score is the
        logit of ``sum_l p_l / (1 + exp(-s_l))`` over the row's blocks l that have it, s_l being its log-odds
        there and p_l the router's probability of the block, scaled to sum to 1: 0 where it is as likely as
        not. Scores of models that learn a margin of 1, as `DiSMECClassifier` does, count fourfold as
        log-odds.
    mode : {"rule", "accuracy", "speed"}, default="rule"
        How an automatic `lam` is chosen. "rule" takes the weight at which a single block of all rows would
        capture 95 % of the ones, or 0 with one block, without cross-validation. The others search by 5-fold
        cross-validation: "accuracy" has the largest P@1 + P@3 + P@5, "speed" is the largest weight that loses
        at most 2 points of each against `estimator` alone.
    router_C : float, default=1.0
        Weight of the router's loss against its regularizer; finite and > 0.
    router_intercept : bool, default=True
        Whether the router has intercepts, regularized as the weight of a feature that is 1 everywhere.
    drop_unlabeled : bool, default=False
        Whether the router is not to learn from rows without labels, which stay where k-means put them.
    n_init : int, default=1
        Starts of the partition, >= 1; the one with the lowest objective is kept.
    max_iter : int, default=100
        Rounds of the partition at most, >= 1.
    tol : float, default=1e-5
        The partition's last round lowers its objective by less; finite and > 0.
    random_state : int, RandomState instance or None, default=None
        Seeds k-means, the router, and what in `estimator` has ``random_state=None``. An int gives the same
        bits every time, if `estimator` does.
    n_jobs : int or None, default=None
        Threads over blocks; None means 1, -1 all cores. Never changes the result.

    Attributes
    ----------
    row_blocks_ : ndarray of shape (n_samples,), dtype int32
        The block of each training row.
    label_blocks_ : list of ndarray, dtype int32
        The labels of each block, increasing.
    estimators_ : list of estimators
        The model of each block; None for a block without labels, where no row is sent.
    router_coef_ : csc_array of shape (n_blocks_, n_features), dtype float32
        Weights of the router, for rows of unit length.
    router_intercept_ : ndarray of shape (n_blocks_,), dtype float32
        Its intercepts; -inf for a block without labels.
    n_blocks_ : int
        Blocks there are.
    lam_ : float
        The weight used.
    lams_ : ndarray of shape (n_lams,), dtype float64
        Weights that were cross-validated; only `lam_` if none were.
    lam_precision_ : ndarray of shape (n_lams, n_folds, 3), dtype float64
        Their P@1, P@3 and P@5 on held-out rows.
    objective_ : float
        The partition's objective.
    objective_history_ : ndarray of shape (n_half_steps,), dtype float64
        After each half step, at the least of `lams_`.
    n_iter_ : int
        Rounds of the partition.
    captured_ : float
        Share of the ones of Y that lie in a block.
    speedup_ : tuple of two float
        What `measure_speedup` counts on the training rows.

    See Also
    --------
    BlockPartitioner : The partition alone.
    CBMLCClassifier : Clusters of rows from the features alone, and all labels in each.

    Notes
    -----
    The router and `estimator`, which must take them, get the `sample_weight` of `fit`; the partition does not
    know them. Ctrl-C ends a fit within a second if `estimator` is one of this library's, else when the blocks
    at work are done. A `UserWarning` names blocks that another's `estimator` could not be fitted to, and
    ``mode="speed"`` that finds no `lam` within its tolerance.

    While the router is fitted, it has 4 bytes a block and feature.

    With one block and ``lam=0`` the scores are those of `estimator` fitted to the labels that any row
    carries.

    By default a fit takes no longer than one of `estimator` to all rows and labels, if the time of that grows
    with rows and labels. An automatic `n_blocks` begins with a block for each 5,000 rows and 500 labels, at
    most four, and is halved while a router fitted without 2,000 rows (a tenth, if that is less) finds the
    blocks of fewer than 92 % of these: routing loses rows sent to a wrong block, and how many these are is
    known for the cost of a router. Below 10,000 rows or 1,000 labels there is one block of all labels, which
    is `estimator` itself: models of part of the rows learn less where rows are few, and there is no time to
    save. Where rows and labels would be enough and the router is not good, there is one block as well,
    without the rarest labels: those beyond 97 % of the ones.

    With ``mode="accuracy"`` an automatic `lam` costs five fits more, each of partition, router and models
    with the least of eight candidates; greater ones are judged by the parts of these models that they keep,
    for the same rows, and so is the model fitted in the end. ``mode="speed"`` costs five fits of `estimator`
    to all labels besides. Candidates are the weights at which a single block of all rows would capture 35 to
    99 % of the ones. An automatic `n_blocks` is first that of `BlockPartitioner` with its default weight,
    then halved while every candidate loses more than `mode` allows in some fold against `estimator` alone, of
    P@1, P@3 or P@5: 1 point for "accuracy", 2 for "speed". This costs the five fits of `estimator` in either
    mode.

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
                # What cross-validation judged is the partition with the least weight, and the parts of its
                # label sets that the weight chosen keeps.
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
