"""The classifiers `CBMLCClassifier` and `LPSRClassifier`, which cluster rows by their features only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array, issparse, vstack
from sklearn.base import BaseEstimator
from sklearn.utils import get_tags

from manylabel import _core
from manylabel.estimator import parameters as kinds
from manylabel.estimator.base import core_parts
from manylabel.estimator.progress import Progress, reported
from manylabel.estimator.registry import register
from manylabel.estimator.scaling import core_features
from manylabel.estimator.schema import Array, Models, Scalar, Schema
from manylabel.estimator.validation import (
    check_training_set,
    known_ones,
)
from manylabel.linear import DiSMECClassifier
from manylabel.partition.any_classifier import rows_at_once, topk_of_decisions
from manylabel.partition.base import Block, BlockClassifier, core_scorer, meaning
from manylabel.partition.models import base_estimator, fit_models, rows_of_blocks
from manylabel.partition.naive_bayes import NaiveBayes
from manylabel.partition.router import nearest_center

__all__ = ["CBMLCClassifier", "LPSRClassifier"]

# Number of rows per cluster with ``n_clusters="auto"``, and the maximum number of clusters. On delicious,
# three clusters with 4,300 rows each lower P@1 by 1.3 points.
_ROWS_OF_A_CLUSTER = 10_000
_MOST_CLUSTERS = 8
# The number c of clusters is halved if the clusters explain less than c - 1 times this fraction of the
# variance of the rows. With 8 clusters on eurlex57k, they explain c - 1 times 1.3 %, and ten clusters lower
# P@1 by 0.8 points. On citeulike-t and yso-finna-en, they explain c - 1 times 0.2 %, and ten clusters lower
# P@1 by 3 and by 13 points.
_EXPLAINED = 0.01
# Number of labels that LPSR ranks for each row. All other labels get this number as their rank.
_RANKS = 100
# In 2-means, the weight of a row is the precision at this rank.
_PRECISION_AT = 5


@register(command="cbmlc-dismec", make=lambda blocks: blocks(DiSMECClassifier()))
class CBMLCClassifier(BlockClassifier):
    """Classifier that clusters the rows by k-means and fits one model for each cluster.

    The labels of a cluster are all labels that occur in its rows. A new row is scored by the model of the
    cluster with the nearest center [1]_. In contrast to `BlockPartitionClassifier`, the clusters depend only
    on the features, not on the labels.

    Parameters
    ----------
    estimator : estimator or None, default=None
        Multi-label classifier, as in `BlockPartitionClassifier`. None means `DiSMECClassifier()`.
    n_clusters : int or "auto", default="auto"
        Number of clusters; >= 1. Rows are scaled to unit length. There are never more clusters than distinct
        scaled rows. "auto" first tries one cluster per 10,000 rows, but at most 8 clusters. If c clusters
        explain less than ``c - 1`` percent of the variance of the rows, c is halved and tried again. For
        example, 8 clusters must explain at least 7 percent. Too many clusters lower the accuracy for two
        reasons. Each model learns from fewer rows. In addition, similar rows are split between clusters, so
        no model learns from all of them.
    n_init : int, default=1
        Number of times that k-means is run with different seeds; >= 1. The clusters with the lowest inertia
        are kept.
    random_state : int, RandomState instance or None, default=None
        Seed of k-means. Each ``random_state=None`` of `estimator` and of its inner estimators is replaced by
        a seed that is derived from the seed of k-means. Pass an int for reproducible results. If `estimator`
        is reproducible, two fits with the same int are exactly equal.

    Attributes
    ----------
    row_blocks_ : ndarray of shape (n_samples,), dtype int32
        The cluster of each training row.
    label_blocks_ : list of ndarray, dtype int32
        The labels that occur in the rows of each cluster, in increasing order.
    estimators_ : list of estimators
        The fitted model of each cluster. The model of a cluster without labels is None.
    router_coef_ : csc_array of shape (n_clusters, n_features), dtype float32
        The cluster centers. Rows are scaled to unit length before their distances to the centers are
        computed.
    router_intercept_ : ndarray of shape (n_clusters,), dtype float32
        Intercepts: minus half the squared length of each center. A row is scaled to unit length. Its nearest
        center is the center for which the dot product of the scaled row and the center, plus the intercept,
        is largest. A cluster without labels has the intercept -inf.
    inertia_ : float
        Sum of the squared distances between the rows, scaled to unit length, and the centers of their
        clusters. The sum is weighted by `sample_weight`.
    speedup_ : tuple of two float
        Result of `measure_speedup` for the training rows. Each value is the number of labels divided by the
        mean number of scores that are computed per row. For the first value, only the scores of labels are
        counted. For the second value, the scores that are computed to find the nearest center are also
        counted: one score per cluster.

    See Also
    --------
    BlockPartitionClassifier : Uses blocks that depend on the features and on the labels.

    Notes
    -----
    The scores of a row are the scores from the model of its cluster, and `predict` returns the labels that
    this model predicts. Labels that are not in the cluster have the score -inf. If `estimator` has no
    `decision_function`, the scores are the logits of its probabilities.

    A dense X may have the dtype float16, float32 or float64 and any memory order, and may be memory-mapped.
    If more than half of its values are nonzero, k-means makes a float32 copy of the rows, and each model gets
    a copy of the rows of its cluster. Otherwise, X is copied to a sparse matrix, which takes 8 bytes per
    nonzero value if X is float32, and 12 bytes otherwise.

    If Y has unknown entries (NaN), they are passed on to `estimator`, which must be from this library. The
    labels of a cluster are the labels that are known to be present in its rows.

    If `estimator` is from another library, Ctrl-C may take effect late. The fit then continues until the
    running fits of `estimator` are done.

    References
    ----------
    .. [1] Nasierding, Tsoumakas, Kouzani, "Clustering Based Multi-Label Classification for Image Annotation
       and Retrieval", 2009.

    Examples
    --------
    >>> import manylabel as ml
    >>> X, Y = ml.datasets.make_multilabel(300, 50, 20, random_state=0)
    >>> model = ml.CBMLCClassifier(ml.DiSMECClassifier(), n_clusters=4, random_state=0).fit(X, Y)
    >>> model.predict_topk(X, k=3).shape
    (300, 20)
    """

    parameters = kinds.Parameters(
        estimator=kinds.Either(None, kinds.Classifier()),
        n_clusters=kinds.Either("auto", kinds.Count(1)),
        n_init=kinds.Count(1),
        **kinds.SEEDED_RUN,
    )

    schema = Schema(
        **BlockClassifier.fitted,
        estimators_=Models("n_blocks", "label_blocks_"),
        inertia_=Scalar(float),
    )

    def __init__(
        self,
        estimator: BaseEstimator | None = None,
        n_clusters: int | Literal["auto"] = "auto",
        *,
        n_init: int = 1,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self._assign(locals())

    def _fit(self, X: Any, y: Any, sample_weight: Any, progress: Progress) -> None:
        params = self.parameters.check(self)
        seed, threads = params["random_state"], params["n_jobs"]
        dense, sparse_output = (not issparse(X), not issparse(y)), issparse(y)
        X, y, sample_weight = check_training_set(self, X, y, sample_weight, dense=self._dense, unknown=True)
        with reported(None, "label", params["verbose"], progress) as report:

            def kmeans(n_clusters: int) -> Any:
                return _core.fit_kmeans(
                    core_features(X),
                    sample_weight,
                    params | {"n_clusters": n_clusters},
                    (threads, report),
                )

            clusters, centers, intercept, inertia = (
                _clusters_by_rule(X.shape[0], kmeans)
                if params["n_clusters"] == "auto"
                else kmeans(params["n_clusters"])
            )
            ends, labels, _ = _core.partition_labels(
                known_ones(y), clusters, len(intercept), 0.0, None, threads
            )
            label_blocks = np.split(labels, ends[1:-1])
            report.restart(len(labels))
            models = fit_models(
                base_estimator(self.estimator),
                X,
                y,
                sample_weight,
                rows_of_blocks(clusters, len(intercept)),
                label_blocks,
                seed=seed,
                dense=dense,
                threads=threads,
                progress=report,
            )
        self.row_blocks_, self.label_blocks_, self.estimators_ = clusters, label_blocks, models
        self.inertia_ = inertia
        self._finish(
            X, nearest_center(centers, intercept, label_blocks, X.shape[1]), y.shape[1], sparse_output
        )


def _clusters_by_rule(n_rows: int, kmeans: Callable[[int], Any]) -> Any:
    """Cluster the rows as `CBMLCClassifier` does with ``n_clusters="auto"``."""
    n_clusters = min(_MOST_CLUSTERS, max(1, n_rows // _ROWS_OF_A_CLUSTER))
    one = kmeans(1)
    while n_clusters > 1:
        found = kmeans(n_clusters)
        if one[-1] - found[-1] >= _EXPLAINED * (n_clusters - 1) * one[-1]:
            return found
        n_clusters //= 2
    return one


@register(command="lpsr")
class LPSRClassifier(BlockClassifier):
    """Label partitioning for sublinear ranking: a single model that ranks only a few labels for each row.

    `fit` first trains a base scorer, which is a classifier for all rows and labels. `fit` then splits the
    rows into two parts by 2-means, which is k-means with two clusters. Large parts are split again. Each part
    gets a list of candidates, which are labels of the rows of the part. The parameter `weighting` determines
    which labels are chosen. A new row is routed to the part with the nearest center. The base scorer then
    ranks only the candidates of this part [1]_.

    Parameters
    ----------
    estimator : estimator, "naive-bayes" or None, default=None
        Base scorer, which is fitted to all rows. It can be any multi-label classifier. None means
        `DiSMECClassifier()`. "naive-bayes" is multinomial naive Bayes with add-one smoothing. "naive-bayes"
        requires features >= 0. The fit of naive Bayes is fast, because only sums of features are computed.
        However, naive Bayes gives worse rankings than `DiSMECClassifier`.
    leaf_size : int, default=1000
        Number of rows above which a part is split again; >= 1. There are at most
        ``2 * n_samples / leaf_size`` parts. After all splits, every row is moved to the part with the nearest
        center. A part may then have more than `leaf_size` rows. Every part has at most ``2 * leaf_size``
        rows, unless the rows are too similar to be separated.
    n_candidates : int, default=500
        Maximum number of candidates per part; >= 1.
    weighting : {"rank", "counts"}, default="rank"
        Method that computes a weight for each label in each part. The labels with the largest weights are the
        candidates of the part. With "counts", the weight of a label is the number of rows of the part that
        have the label. With "rank", the base scorer ranks the labels for each row. The label with the highest
        score has rank 0. Each row of the part then adds ``1 / (1 + rank)`` to the weight of every label that
        the row has. Ranks larger than 100 are replaced by 100. "rank" has a second effect: the rows are
        weighted in 2-means. The weight of a row is the precision at 5 of the base scorer for this row. Rows
        with weight 0 do not influence the centers.
    random_state : int, RandomState instance or None, default=None
        Seed of 2-means. Each ``random_state=None`` of `estimator` and of its inner estimators is replaced by
        a seed that is derived from the seed of 2-means. Pass an int for reproducible results. If `estimator`
        is reproducible, two fits with the same int are exactly equal.

    Attributes
    ----------
    row_blocks_ : ndarray of shape (n_samples,), dtype int32
        The part of each training row.
    label_blocks_ : list of ndarray, dtype int32
        The candidates of each part, in increasing order.
    labels_ : ndarray of shape (n_seen,), dtype int64
        The labels that occur in the training rows, in increasing order. The base scorer ``estimators_[0]``
        scores these labels in this order.
    estimators_ : list of one estimator
        The base scorer.
    router_coef_ : csc_array of shape (n_parts, n_features), dtype float32
        The centers of the parts. Rows are scaled to unit length before their distances to the centers are
        computed.
    router_intercept_ : ndarray of shape (n_parts,), dtype float32
        The intercepts of the parts. A row is scaled to unit length, and routed to the part for which the dot
        product of the scaled row and the center, plus the intercept, is largest. The intercept is minus half
        the squared length of the center. If a part would otherwise get too many rows, its intercept is
        lowered (see Notes). A part without labels has the intercept -inf.
    speedup_ : tuple of two float
        Result of `measure_speedup` for the training rows. Each value is the number of labels divided by the
        mean number of scores that are needed per row. For the first value, only the scores of candidates are
        counted. For the second value, the scores that are needed to find the nearest center are also counted:
        one score per part. Some base scorers nevertheless compute the scores of all labels (see Notes).
        Predictions with such a base scorer do not get this speedup.

    See Also
    --------
    BlockPartitionClassifier : Fits a separate model for each block.

    Notes
    -----
    The scores of a row are the scores from the base scorer, and `predict` returns the candidates that the
    base scorer predicts. Labels that are not candidates have the score -inf. If the base scorer has no
    `decision_function`, the scores are the logits of its probabilities.

    A dense X may have the dtype float16, float32 or float64 and any memory order, and may be memory-mapped.
    If more than half of its values are nonzero, 2-means makes a float32 copy of the rows. Otherwise, X is
    copied to a sparse matrix, which takes 8 bytes per nonzero value if X is float32, and 12 bytes otherwise.

    If Y has unknown entries (NaN), they are passed on to `estimator`, which must be from this library. The
    choice of the candidates uses only positive entries.

    If the base scorer is from another library, a fit may continue after Ctrl-C until the fit of the base
    scorer is done.

    If the base scorer is naive Bayes, predictions compute only the scores of the candidates.
    `DiSMECClassifier` does the same if more than 32 rows are predicted in one call. For at most 32 rows, it
    computes the scores of all labels, because this is faster than selecting the weights of the candidates.
    Other base scorers always compute the scores of all labels, for a few rows at a time, and only the scores
    of the candidates are kept.

    A split separates the rows of a part by a plane that is perpendicular to the line between the two centers.
    Each side must get at least ``leaf_size / 2`` rows and at least an eighth of the rows of the part. If one
    side of the plane has too few rows, rows from the other side are moved to it. The rows nearest to the
    plane are moved first.

    After all splits, more than ``2 * leaf_size`` rows may have the same nearest center. In this case, `fit`
    lowers the intercept of this center. Rows of this center that are nearly as close to another center are
    then routed to that other center.

    References
    ----------
    .. [1] Weston, Makadia, Yee, "Label Partitioning for Sublinear Ranking", ICML 2013.

    Examples
    --------
    >>> import manylabel as ml
    >>> X, Y = ml.datasets.make_multilabel(300, 50, 20, random_state=0)
    >>> model = ml.LPSRClassifier(leaf_size=100, n_candidates=10, random_state=0).fit(abs(X), Y)
    >>> model.predict_topk(abs(X), k=3).shape
    (300, 20)
    """

    parameters = kinds.Parameters(
        estimator=kinds.Either("naive-bayes", kinds.Classifier(), None),
        leaf_size=kinds.Count(1),
        n_candidates=kinds.Count(1),
        weighting=kinds.Choice("rank", "counts"),
        **kinds.SEEDED_RUN,
    )

    schema = Schema(
        **BlockClassifier.fitted,
        labels_=Array(("n_seen",), "i8", below="n_labels"),
        estimators_=Models(1, "labels_"),
    )

    def __init__(
        self,
        estimator: BaseEstimator | Literal["naive-bayes"] | None = None,
        leaf_size: int = 1000,
        n_candidates: int = 500,
        *,
        weighting: Literal["rank", "counts"] = "rank",
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self._assign(locals())

    def _fit(self, X: Any, y: Any, sample_weight: Any, progress: Progress) -> None:
        params = self.parameters.check(self)
        seed, threads = params["random_state"], params["n_jobs"]
        dense, sparse_output = (not issparse(X), not issparse(y)), issparse(y)
        X, y, sample_weight = check_training_set(self, X, y, sample_weight, dense=self._dense, unknown=True)
        ones = known_ones(y)
        labels = np.unique(ones.indices).astype(np.int64)
        with reported(len(labels), "label", params["verbose"], progress) as report:
            models = fit_models(
                NaiveBayes() if self._naive_bayes() else base_estimator(self.estimator),
                X,
                y,
                sample_weight,
                [np.arange(X.shape[0])],
                [labels],
                seed=seed,
                dense=dense,
                threads=threads,
                progress=report,
            )
            gains, weights = ones, None
            if params["weighting"] == "rank" and len(labels):
                gains, weights = _by_rank(models[0], X, ones, labels)
            leaves, centers, intercept, _ = _core.fit_kmeans(
                core_features(X),
                weights,
                params | {"n_clusters": None, "n_init": 1},
                (threads, lambda _: report(len(labels))),
            )
        in_leaf = csr_array(
            (np.ones(len(leaves)), (leaves, np.arange(len(leaves)))), shape=(len(intercept), len(leaves))
        )
        gained = csr_array((in_leaf @ gains).astype(np.float32))
        gained.sort_indices()
        _, candidates, indptr = core_parts(_core.topk_of_rows(gained, params["n_candidates"]))
        self.row_blocks_ = leaves
        self.label_blocks_ = np.split(candidates.astype(np.int32), indptr[1:-1])
        self.labels_, self.estimators_ = labels, models
        router = nearest_center(centers, intercept, self.label_blocks_, X.shape[1])
        self._finish(X, router, y.shape[1], sparse_output)

    def _naive_bayes(self) -> bool:
        return isinstance(self.estimator, str) and self.estimator == "naive-bayes"

    def _make_scorer(self) -> Any:
        base, places = self.estimators_[0], self._places()
        scorer = core_scorer(base)
        if scorer is None:
            return self._asked(_RestrictedModels(base, places, len(self.labels_)))
        means = meaning(base)
        weights = None
        if isinstance(base, DiSMECClassifier):
            weights = base.coef_, base.intercept_, base._normalizes_rows
        blocks = [
            Block(labels, scorer, of_base, *means)
            for labels, of_base in zip(self.label_blocks_, places, strict=True)
        ]
        return self._scored(blocks, weights)

    def _model_of_label(self, block: int, label: int) -> tuple[Any, int]:
        if label not in self.label_blocks_[block]:
            return None, -1
        return self.estimators_[0], int(np.searchsorted(self.labels_, label))

    def _places(self) -> list[NDArray[np.int32]]:
        """Return one array per part, with the positions of the part's candidates in the array `labels_`."""
        if not self.label_blocks_:
            return []
        if (np.diff(self.labels_) <= 0).any():
            at = int(np.argmax(np.diff(self.labels_) <= 0))
            raise ValueError(
                f"values of labels_ must be in strictly increasing order, got {self.labels_[at]} followed by "
                f"{self.labels_[at + 1]}"
            )
        every = np.concatenate(self.label_blocks_)
        others = np.setdiff1d(every, self.labels_)
        if len(others):
            raise ValueError(f"every label in label_blocks_ must be in labels_, got {others[0]}")
        places = np.searchsorted(self.labels_, every).astype(np.int32)
        ends = np.cumsum([len(labels) for labels in self.label_blocks_])
        return np.split(places, ends[:-1])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = self._naive_bayes() or (
            # If `estimator` is not an estimator, `fit` raises an error.
            not isinstance(self.estimator, type)
            and hasattr(self.estimator, "__sklearn_tags__")
            and get_tags(self.estimator).input_tags.positive_only
        )
        return tags


class _RestrictedModels:
    """Callable that takes the index of a part and returns a model that scores the candidates of this part.

    The model is the base scorer, restricted to these candidates.
    """

    def __init__(self, base: Any, places: list[NDArray[np.int32]], n_labels: int) -> None:
        self._base = base
        self._places = places
        self._n_labels = n_labels  # number of labels of the base scorer

    def __call__(self, part: int) -> Any:
        if isinstance(self._base, NaiveBayes):
            return self._base.restricted(self._places[part])
        return _Restricted(self._base, self._places[part], self._n_labels)


class _Restricted:
    """Wrapper that returns the scores and predictions of a model for only some of its labels.

    The model itself still computes the scores and predictions of all its labels.
    """

    def __init__(self, model: Any, labels: NDArray[Any], n_labels: int) -> None:
        self.model = model
        self.labels = labels
        self.n_labels = n_labels  # number of labels of `model`

    def decision_function(self, X: csr_array | NDArray[Any]) -> NDArray[np.float32]:
        parts = [
            np.asarray(self.model.decision_function(X[rows]))[:, self.labels]
            for rows in rows_at_once(X.shape[0], self.n_labels)
        ]
        return np.concatenate(parts).astype(np.float32, copy=False)

    def predict_topk(self, X: csr_array | NDArray[Any], k: int) -> csr_array:
        return topk_of_decisions(self.decision_function, X, len(self.labels), k)

    def predict(self, X: csr_array | NDArray[Any]) -> csr_array:
        return csr_array(csc_array(self.model.predict(X))[:, self.labels])


def _by_rank(
    model: Any, X: csr_array | NDArray[Any], y: csr_array, labels: NDArray[np.int64]
) -> tuple[csr_array, NDArray[np.float32]]:
    """Return ``1 / (1 + rank)`` for each positive entry of Y, and the precision at 5 for each row.

    For each row, the labels are sorted by the scores that `model` computes, highest score first. The rank of
    an entry is the position of its label among the sorted labels of its row. Ranks start at 0, and ranks
    larger than 100 are replaced by 100.
    """
    if isinstance(X, np.ndarray):
        # The copies of rows that are not in C order or in half precision stay small.
        tops = [model.predict_topk(X[rows], k=_RANKS) for rows in rows_at_once(*X.shape)]
        top = csr_array(vstack(tops, format="csr"))
    else:
        top = model.predict_topk(X, k=_RANKS)
    of_row = np.repeat(np.arange(X.shape[0]), np.diff(top.indptr))
    order = np.lexsort([top.indices, -top.data, of_row])
    rank = np.empty(top.nnz)
    rank[order] = np.arange(top.nnz) - top.indptr[of_row[order]]
    best = rank < _PRECISION_AT
    # Here, the weight of an unranked label is subtracted from the weight of each ranked label. Below, it is
    # added to all positive entries.
    more = 1 / (1 + rank) - 1 / (1 + _RANKS)
    shape = y.shape
    ranked = csr_array((more, labels[top.indices], top.indptr), shape=shape)
    gains = csr_array(y.multiply(ranked) + y / (1 + _RANKS))
    among = csr_array((best.astype(np.float64), labels[top.indices], top.indptr), shape=shape)
    precision = np.asarray(y.multiply(among).sum(axis=1)).ravel() / _PRECISION_AT
    return gains, precision.astype(np.float32)
