"""The classifier `BlockPartitionClassifier`, with a separate model for each block of rows and labels."""

from __future__ import annotations

import warnings
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning

from manylabel.estimator import parameters as kinds
from manylabel.estimator.base import MultiLabelClassifier
from manylabel.estimator.progress import Progress, Report, reported
from manylabel.estimator.registry import register
from manylabel.estimator.schema import Array, Models, Scalar, Schema
from manylabel.estimator.validation import (
    check_training_set,
    known_ones,
)
from manylabel.linear import DiSMECClassifier
from manylabel.partition.base import BlockClassifier
from manylabel.partition.choice import (
    RULE_SHARE,
    RULE_SHARE_OF_ONE,
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
from manylabel.partition.pieces import BlockPieces
from manylabel.partition.router import fit_router

__all__ = ["BlockPartitionClassifier"]

# Default values of LIBLINEAR for logistic regression.
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
    """One classifier per block of rows and labels, and a router that selects the block of a row.

    `fit` computes blocks in the same way as `BlockPartitioner`. A block consists of a group of rows and the
    labels that are frequent in these rows. Each row is in one block, but a label can be in several blocks or
    in no block. For each block, `fit` trains a clone of `estimator` on the rows and labels of the block.
    `fit` also trains a router: one-vs-rest logistic regressions that predict the block of a row from the
    features.

    For a new row, the router selects one or a few blocks, and only the labels of these blocks are scored. The
    prediction takes only a fraction of the time of scoring all labels [1]_.

    Parameters
    ----------
    estimator : estimator or None, default=None
        Multi-label classifier with scikit-learn's interface. None means `DiSMECClassifier()`. An estimator of
        another library is fitted only to the labels that occur in some but not all rows of a block. Every
        other label of the block gets the constant score ``log((n_1 + 1/2) / (n_0 + 1/2))``. Here, n_1 rows of
        the block have the label, and n_0 rows do not. An estimator of another library gets X and Y in the
        form in which they were passed to `fit`, dense or sparse. The method `save` does not support
        estimators of other libraries.
    n_blocks : int or "auto", default="auto"
        Initial number of blocks; >= 1. Blocks that lose all their rows during the partition are removed. If
        `lam` or `max_labels` is given, "auto" is the number of blocks that `BlockPartitioner` finds.
        Otherwise, "auto" depends on `mode`. With ``mode="rule"``, "auto" is 1 to 4, depending on the number
        of rows, the number of labels and the accuracy of the router. With the other modes, cross-validation
        chooses the number (see Notes).
    lam : float or "auto", default="auto"
        Weight of the penalty on large blocks in the objective of the partition; finite and >= 0. The number
        of labels of each block is squared, and the penalty is the sum of these squares. A larger weight gives
        blocks with fewer labels, and therefore faster predictions. The rarest labels of a block are removed
        first. "auto" is 0 if `max_labels` is given. Otherwise, `mode` determines how the weight is chosen.
    max_labels : int or None, default=None
        Maximum number of labels per block; >= 1. None means no limit.
    n_routes : int or "auto", default="auto"
        Number of blocks that a row is routed to; >= 1. If `n_blocks`, `lam`, `max_labels` or `mode` has a
        value other than its default, "auto" means one block. Otherwise, "auto" means one to three blocks per
        row, in the order of the router's probabilities. The less certain the router is about a row, the more
        blocks the row is routed to. If rows may be routed to more than one block, the scores of the blocks
        are merged (see Notes).
    mode : {"rule", "accuracy", "speed"}, default="rule"
        Method that chooses the weight `lam` if `lam` is "auto" and `max_labels` is None. If `n_blocks` is
        also "auto", the method chooses the number of blocks too. "rule" computes `lam` from the frequencies
        of the labels, without cross-validation. "accuracy" and "speed" use 5-fold cross-validation and the
        precision at 1, 3 and 5 (P@1, P@3 and P@5). "accuracy" chooses the weight with the largest sum of P@1,
        P@3 and P@5. With "speed", P@1, P@3 and P@5 must each be at most 2 percentage points lower than
        without blocks, in every fold. Of the weights that satisfy this condition, "speed" chooses the
        largest. "Without blocks" means that `estimator` is fitted to all labels and all training rows of the
        fold.
    router_C : float, default=1.0
        Weight of the loss of the router relative to its regularization; finite and > 0. Smaller values
        regularize more strongly.
    router_intercept : bool, default=True
        Whether the router has intercepts. The intercepts are regularized like the weight of a feature that is
        1 in every row.
    drop_unlabeled : bool, default=False
        Whether the fit of the router ignores rows that have no labels. The partition assigns rows without
        labels to blocks by k-means on their features, whether or not `drop_unlabeled` is True.
    n_init : int, default=1
        Number of times that the partition is computed, with different seeds; >= 1. The partition with the
        lowest objective is kept.
    max_iter : int, default=100
        Maximum number of rounds of the partition; >= 1. Each round optimizes the rows of the blocks and then
        the labels of the blocks.
    tol : float, default=1e-5
        Tolerance of the partition; finite and > 0. The optimization of the partition stops after a round that
        lowers the objective by less than `tol`.
    random_state : int, RandomState instance or None, default=None
        Seed of k-means and of the router. If `estimator` or one of its inner estimators has
        ``random_state=None``, this None is replaced by a seed that is derived from `random_state`. Pass an
        int for reproducible results. If `estimator` is reproducible, two fits with the same int are exactly
        equal.
    n_jobs : int or None, default=None
        Number of threads. Different threads fit different blocks. None means 1, and -1 means all cores. The
        result does not depend on this number.

    Attributes
    ----------
    row_blocks_ : ndarray of shape (n_samples,), dtype int32
        The block of each training row.
    label_blocks_ : list of ndarray, dtype int32
        The labels of each block, in increasing order.
    estimators_ : list of estimators
        The fitted model of each block. The model of a block without labels is None, and no row is routed to
        this block.
    router_coef_ : csc_array of shape (n_blocks_, n_features), dtype float32
        Weights of the router. They apply to rows that are scaled to unit length.
    router_intercept_ : ndarray of shape (n_blocks_,), dtype float32
        Intercepts of the router. A block without labels has the intercept -inf.
    n_blocks_ : int
        Number of blocks.
    lam_ : float
        The value of `lam`, as given or chosen.
    lams_ : ndarray of shape (n_lams,), dtype float64
        The candidates for `lam` that cross-validation compared. Without cross-validation, the array contains
        only `lam_`.
    lam_precision_ : ndarray of shape (n_lams, n_folds, 3), dtype float64
        Precision at 1, 3 and 5 with each candidate in `lams_`, on the held-out rows of each fold. The values
        are from 0 to 1. Without cross-validation, n_folds is 0.
    objective_ : float
        Final value of the objective of the partition, with the weight `lam_`.
    objective_history_ : ndarray of shape (n_half_steps,), dtype float64
        Value of the objective after each half step of the partition. A half step optimizes either the rows or
        the labels of the blocks. If cross-validation chooses `lam`, the rows are partitioned with the
        smallest candidate in `lams_`. The values are then for this candidate, not for `lam_`.
    n_iter_ : int
        Number of rounds of the partition.
    captured_ : float
        Fraction of the positive entries of Y for which the row and the label are in the same block.
    speedup_ : tuple of two float
        Result of `measure_speedup` for the training rows. Each value is the number of labels divided by the
        mean number of scores that are computed per row. The first value counts only scores of labels. The
        second value also counts the scores of the router.

    See Also
    --------
    BlockPartitioner : Computes only the partition.
    CBMLCClassifier : Clusters the rows by their features only. A cluster has all labels of its rows.

    Notes
    -----
    A row has finite scores only for labels of the blocks that it is routed to. All other labels have the
    score -inf. If each row is routed to a single block, the scores and predicted labels of a row are those of
    its block's model. If `estimator` has no `decision_function`, the scores of a block model are the logits
    of its probabilities.

    If rows may be routed to more than one block, the scores of the blocks are merged. Margins, such as the
    scores of `DiSMECClassifier` with its default loss, are first multiplied by 4 to approximate log-odds. All
    scores are then converted to probabilities. The probabilities of a label are averaged over the blocks of
    the row, with the router's probabilities of the blocks as weights. A block without the label counts as
    probability 0. The merged score is the logit of the average, and `predict` returns the labels with
    positive merged scores.

    The following rules for `mode` apply if `lam` is "auto" and `max_labels` is None.

    With ``mode="rule"`` and ``n_blocks="auto"``, there are at most 4 blocks. Two blocks require at least
    10,000 rows and 1,000 labels. Each further block requires another 5,000 rows and another 500 labels.
    Labels that occur in no row are not counted. With less data, several blocks would be less accurate and
    would save little time.

    A row that is routed to a wrong block usually gets wrong labels. `fit` therefore tests on held-out rows
    how often the router finds the right block. If the router is right for less than 92 % of the held-out
    rows, the number of blocks is halved. `fit` tests at most two numbers of blocks. Each test takes about as
    long as one fit of the partition and of the router.

    With ``mode="rule"``, `lam` depends on the number of blocks:

    - With several blocks, `lam` is the weight with which a single block of all rows would have only the most
      frequent labels. These labels would be just enough to cover 95 % of the positive entries of Y.
    - With ``n_blocks=1``, `lam` is 0. ``n_blocks="auto"`` also means one block with ``lam=0`` if there are
      fewer than 10,000 rows or fewer than 1,000 labels. In both cases, the model has the same scores as
      `estimator` alone, fitted to all rows and to all labels that occur in these rows.
    - If ``n_blocks="auto"`` starts with several blocks, and the tests of the router reduce them to one block,
      `lam` is chosen so that this block has only the most frequent labels. These labels are just enough to
      cover 97 % of the positive entries of Y.

    ``mode="accuracy"`` and ``mode="speed"`` compare up to eight candidates for `lam`. Each candidate is
    chosen so that a single block of all rows would cover a certain fraction of the positive entries of Y.
    This fraction is 35 % for the largest candidate and 99 % for the smallest. Each fold fits the partition,
    the router and the block models only once for all candidates. If `n_blocks` is "auto", the
    cross-validation starts with the number of blocks that `BlockPartitioner` finds. The cross-validation is
    repeated with half as many blocks until at least one candidate is accurate enough, or one block remains.

    A candidate is accurate enough if, in every fold, P@1, P@3 and P@5 are at most 1 percentage point lower
    than without blocks. With ``mode="speed"``, the limit is 2 percentage points. For this comparison, each
    fold also fits `estimator` once without blocks. With ``mode="accuracy"``, the comparison only decides
    whether the number of blocks is halved, so it is omitted if `n_blocks` is given.

    A fit with the default parameters usually takes at most as long as a fit of `estimator` to all rows and
    labels. This holds only if the fit time of `estimator` increases with the number of rows and labels. The
    fit of the router takes 4 bytes of memory for each pair of a block and a feature.

    A dense X may have the dtype float16, float32 or float64 and any memory order, and may be memory-mapped.
    If at most half of the values of X are nonzero, X is copied to a sparse matrix. The sparse matrix takes 8
    bytes per nonzero value if X is float16 or float32, and 12 bytes otherwise. If more than half of the
    values of X are nonzero, X stays dense.

    If X stays dense, the fit of the partition and later the fit of the router each make a temporary float32
    copy of X. If no value of X is 0, the copy is dense and takes 4 bytes per value. Otherwise, the copy is
    sparse and takes 8 bytes per nonzero value. The tests of the router and the fits of cross-validation also
    copy the rows that they use. Each block model gets a copy of the rows of its block. With a single block,
    no router is fitted, and the block model gets X itself.

    If Y has unknown entries (NaN), they are passed on to `estimator`, which must be from this library. The
    partition and the router use only positive entries.

    If `sample_weight` is given, the router and `estimator` use it, and the `fit` method of `estimator` must
    accept it. The partition ignores the weights. However, the tests of the router and the fits of
    cross-validation use the weights. The weights can therefore change the values that are chosen for
    `n_blocks` and `lam`.

    `fit` issues a `ConvergenceWarning` if the router does not converge. `fit` issues a `UserWarning` if an
    estimator of another library could not be fitted to some blocks. All labels of these blocks then get
    constant scores. `fit` also issues a `UserWarning` if no candidate for `lam` satisfies the condition of
    ``mode="speed"``. `lam` is then chosen as with ``mode="accuracy"``.

    If `estimator` is from this library, Ctrl-C ends a fit within a second. With an estimator of another
    library, Ctrl-C ends the fit when the current fits of blocks are done.

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

    def _as_chosen(self) -> BlockPartitionClassifier:
        model: BlockPartitionClassifier = clone(self)
        # The models of blocks have values for parameters that were "auto", except for thresholds, which
        # differ between blocks. The parameters of the blocks stay "auto", since `_n_routes` depends on them.
        if self._goes_by_rule():
            model._blocks_of_rule = (self.n_blocks_, self.lam_ > 0)
        inner = next((each for each in self.estimators_ if isinstance(each, MultiLabelClassifier)), None)
        if inner is not None:
            model.estimator = clone(inner)
        return model

    # What an earlier fit has chosen by ``mode="rule"``: the number of blocks, and whether `lam` is positive.
    # Scores of several blocks have another scale than scores of one block. So models that are fitted to parts
    # of the rows must have as many blocks as the model of all rows.
    _blocks_of_rule: tuple[int, bool] | None = None

    def __sklearn_clone__(self) -> BlockPartitionClassifier:
        model: BlockPartitionClassifier = super().__sklearn_clone__()
        if self._blocks_of_rule is not None:
            model._blocks_of_rule = self._blocks_of_rule
        return model

    def _goes_by_rule(self) -> bool:
        """Return whether the number of blocks and `lam` are chosen by ``mode="rule"``."""
        return (self.n_blocks, self.lam, self.max_labels, self.mode) == ("auto", "auto", None, "rule")

    def __init__(
        self,
        estimator: BaseEstimator | None = None,
        *,
        n_blocks: int | Literal["auto"] = "auto",
        lam: float | Literal["auto"] = "auto",
        max_labels: int | None = None,
        n_routes: int | Literal["auto"] = "auto",
        mode: Literal["rule", "accuracy", "speed"] = "rule",
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
        setting = self._setting(params, (not issparse(X), not issparse(y)))
        sparse_output = issparse(y)
        X, y, sample_weight = check_training_set(self, X, y, sample_weight, dense=self._dense, unknown=True)
        with reported(None, "label", params["verbose"], progress) as report:
            self._fit_partition(X, y, sample_weight, setting, report)
            report.restart(sum(map(len, self.label_blocks_)))
            self.estimators_ = fit_models(
                setting.estimator,
                X,
                y,
                sample_weight,
                rows_of_blocks(self.row_blocks_, len(self.label_blocks_)),
                self.label_blocks_,
                seed=setting.seed,
                dense=setting.dense,
                threads=setting.threads,
                progress=report,
            )
        self.sparse_output_ = sparse_output

    def _setting(self, params: dict[str, Any], dense: tuple[bool, bool]) -> Setting:
        """Return the settings of a fit.

        `dense` is a pair of bools. The first bool tells whether the user passed X as a dense array. The
        second bool tells the same for Y.
        """
        return Setting(
            estimator=base_estimator(self.estimator),
            params=params,
            router={
                "C": params["router_C"],
                "fit_intercept": params["router_intercept"],
                "tol": _ROUTER_TOL,
                "max_iter": _ROUTER_MAX_ITER,
                "random_state": params["random_state"],
            },
            dense=dense,
            drop_unlabeled=params["drop_unlabeled"],
            seed=params["random_state"],
            threads=params["n_jobs"],
        )

    def _fit_partition(
        self,
        X: csr_array | NDArray[Any],
        y: csr_array,
        sample_weight: NDArray[np.float32] | None,
        setting: Setting,
        report: Report,
    ) -> None:
        """Divide rows and labels into blocks, fit the router, and set the fitted attributes.

        The block models are not fitted: `estimators_` is set to an empty list, which the caller replaces.
        """
        params = setting.params
        n_blocks = None if params["n_blocks"] == "auto" else params["n_blocks"]
        lam = None if params["lam"] == "auto" else params["lam"]
        # The partition uses only positive entries. The block models also get the unknown entries.
        ones = known_ones(y)
        if lam is None and params["max_labels"] is not None:
            lam = 0.0
        found = None
        if lam is None and self.mode == "rule":
            if n_blocks is None and self._blocks_of_rule is not None:
                n_blocks, is_positive = self._blocks_of_rule
                share = RULE_SHARE if n_blocks > 1 else RULE_SHARE_OF_ONE
                lam = default_lam(ones, share) if is_positive else 0.0
            elif n_blocks is None:
                found, lam = partition_by_rule(X, ones, sample_weight, setting, report)
            else:
                lam = lam_by_rule(ones, n_blocks)
        if lam is None:
            most = n_blocks
            if most is None:
                searched = find_partition(X, ones, None, default_lam(ones), params, setting.threads, report)
                most = len(searched.label_blocks)
            choice = choose_lam(
                X, y, sample_weight, most, self.mode, setting, report, or_fewer=n_blocks is None
            )
        else:
            choice = Chosen(n_blocks, lam, np.array([lam]), np.empty((1, 0, 3)))
        if found is None:
            # As in cross-validation, compute the partition with the smallest weight. The chosen weight then
            # selects a subset of each label set.
            least = float(choice.lams[0])
            found = find_partition(X, ones, choice.n_blocks, least, params, setting.threads, report)
        if choice.lam != choice.lams[0]:
            found = with_fewer_labels(ones, found, choice.lam, setting)
        blocks = found.label_blocks
        usable = np.array([len(labels) > 0 for labels in blocks])
        rows = routing_rows(ones, found.row_blocks, drop_unlabeled=setting.drop_unlabeled)
        router, n_iter = fit_router(X, rows, usable, sample_weight, setting.router, setting.threads, report)
        # The caller replaces the list of models. Files have the attributes in the order of their assignment.
        self.row_blocks_, self.label_blocks_, self.estimators_ = found.row_blocks, blocks, []
        self.n_blocks_ = len(blocks)
        self.lam_, self.lams_, self.lam_precision_ = choice.lam, choice.lams, choice.precision
        self.objective_history_ = found.history
        self.n_iter_ = len(found.history) // 2
        self.objective_ = found.objective
        self.captured_ = found.captured
        self._finish(X, router, y.shape[1], sparse_output=True)
        if (n_iter >= _ROUTER_MAX_ITER).any():
            warnings.warn(
                "the router, which selects the blocks of a row, did not converge in "
                f"{_ROUTER_MAX_ITER} passes over the rows; try a smaller `router_C`",
                ConvergenceWarning,
                stacklevel=4,
            )

    def _cut(self) -> type[BlockPieces]:
        inner = base_estimator(self.estimator)
        if not isinstance(inner, MultiLabelClassifier):
            raise TypeError(
                "the fit of BlockPartitionClassifier can be divided into pieces only if `estimator` is from "
                f"this library, got {type(inner).__name__}"
            )
        return BlockPieces

    @property
    def _n_routes(self) -> int | None:
        n_routes = self.parameters["n_routes"].check("n_routes", self.n_routes)  # may be set after fit
        if n_routes == "auto":
            return None if self._goes_by_rule() and len(self.label_blocks_) > 1 else 1
        return min(int(n_routes), len(self.label_blocks_))
