"""Linear one-vs-rest classifiers that a tree over the labels routes to."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse
from sklearn.exceptions import ConvergenceWarning

from manylabel import _core
from manylabel.estimator import parameters as kinds
from manylabel.estimator.base import ODDS_OF_MARGINS, MultiLabelClassifier, core_rows
from manylabel.estimator.parameters import check_count, fixed_threshold, n_threads
from manylabel.estimator.progress import Progress, reported
from manylabel.estimator.registry import register
from manylabel.estimator.scaling import holds_measurements
from manylabel.estimator.schema import Array, Scalar, Schema
from manylabel.estimator.validation import check_training_set

__all__ = ["LabelTreeClassifier"]


@register(command="label-tree", demo=("Label tree", lambda tree: tree(random_state=0)))
class LabelTreeClassifier(MultiLabelClassifier):
    """Linear one-vs-rest classifiers that a tree over the labels routes to.

    The labels are divided into clusters of similar labels, and these into smaller ones, until a cluster has
    few labels: a leaf. Every node has a linear classifier for each of its children, or for each label of a
    leaf. A row is sent to the `beam` best nodes of each level, and only the labels of the leaves that it
    reaches are scored. The time of a prediction grows with the logarithm of the number of labels [1]_.

    Parameters
    ----------
    C : float, default=1.0
        Weight of the loss against the regularizer in the squared hinge loss of each linear classifier; finite
        and > 0.
    n_trees : int, default=1
        Number of trees with different seeds, whose probabilities are averaged; >= 1. Three trees rank a
        little better than one. Time and size grow in proportion.
    branching : int, default=16
        Maximum number of children of a node; from 2 to 65,535.
    max_leaf : int, default=100
        Maximum number of labels of a leaf; from 1 to 65,535.
    beam : int, default=10
        Number of nodes in each level that a row is sent to, in fit and in prediction; >= 1. Predictions can
        use another number without a new fit: see `predict_topk`.
    balanced : bool, default=True
        Whether all leaves have the same number of labels, up to 1. With False, the sizes of clusters follow
        the data, and the leaves can be at different depths.
    combine : {"product", "leaf"}, default="product"
        How the score of a label is computed. "product" adds the logarithms of the probabilities of the nodes
        on the path to the label to that of the label itself. "leaf" is the margin of
        the label alone; the path then only decides which labels are scored.
    prune : float, default=0.1
        Weights with a smaller absolute value are dropped; finite and >= 0.
    fit_intercept : bool, default=True
        Whether to fit intercepts. They are regularized like the weight of a feature that is 1 in every row.
    threshold : {"auto", "zero"} or float, default="auto"
        Score above which `predict` assigns a label. "auto" learns it, so that rows get about as many labels
        as they have (see Notes). "zero" is the score of a label with the margin 0 in a leaf that the row
        certainly belongs to.
    normalize : {"auto", "rows"} or bool, default="auto"
        "rows" (or True) scales every row to unit Euclidean length, in fit and in prediction; it suits text.
        "auto" is "rows" unless more than an eighth of the values of X are nonzero. False scales nothing.
    solver : {"fast", "exact"}, default="fast"
        "exact" finds the optimum of every linear classifier over the rows of its node, to `tol`. "fast"
        solves children and labels with few rows as `DiSMECClassifier` solves rare labels: those that at most
        300 rows and fewer than one in five rows of the node have, or fewer than one in 100.
    tol : float, default=0.01
        Tolerance of the linear classifiers, as in `DiSMECClassifier`; finite and > 0.
    max_iter : int, default=1000
        Maximum number of steps per linear classifier; >= 1.
    random_state : int, RandomState instance or None, default=None
        Seeds the clusters, and the order in which "fast" visits rows. An int gives the same bits every time.

    Attributes
    ----------
    threshold_ : float
        The threshold, as given or learned. It is subtracted from all scores, so that predicted labels have
        positive scores.
    normalize_ : bool
        Whether rows are scaled to unit length before they are scored.
    by_leaf_ : bool
        Whether scores are the margins of labels alone: ``combine="leaf"``.
    n_iter_ : int
        Most steps that a linear classifier took; `max_iter` if one did not converge.
    node_children_ : ndarray of shape (n_nodes + 1,), dtype int64
        Node v has the children ``node_children_[v]`` to ``node_children_[v + 1] - 1``. The first nodes are
        the roots of the trees; ``node_children_[0]`` is their number.
    node_label_ends_ : ndarray of shape (n_nodes + 1,), dtype int64
        Node v has the labels ``leaf_labels_[node_label_ends_[v]:node_label_ends_[v + 1]]``; nodes with
        children have none.
    node_intercept_ : ndarray of shape (n_nodes,), dtype float32
        Intercept of the classifier that sends rows to a node; 0 for roots.
    leaf_labels_ : ndarray of shape (n_leaf_labels,), dtype int32
        The labels of all leaves. Labels that no training row has are in no leaf.
    leaf_intercept_ : ndarray of shape (n_leaf_labels,), dtype float32
        Intercepts of the labels of all leaves.
    chunk_bucket_ends_, chunk_feature_ends_, chunk_weight_ends_ : ndarray of shape (n_nodes + 1,), dtype int64
        Where the hash table, the features and the weights of each node begin and end in the following arrays.
    chunk_buckets_ : ndarray of shape (n_buckets,), dtype uint32
        Hash tables of the nodes: for each bucket, where its features begin.
    chunk_features_ : ndarray of shape (n_chunk_features,), dtype uint32
        Features that have weights in a node.
    chunk_row_ends_ : ndarray of shape (n_chunk_features,), dtype uint32
        Where the weights of each feature end.
    chunk_outputs_ : ndarray of shape (n_weights,), dtype uint16
        The child or label of each weight, by its position in its node.
    chunk_weights_ : ndarray of shape (n_weights,), dtype float32
        The weights.

    See Also
    --------
    DiSMECClassifier : One-vs-rest without a tree.
    manylabel.metrics : Measures for the rankings of `predict_topk`.

    Notes
    -----
    Labels are represented by the sum of the rows that have them, at unit length, and clustered by spherical
    2-means. Each level is trained on the rows of each node: those that have a label below it, and those that
    the levels above send to it. So the negative rows of a label are those that a prediction would compare
    with it. The classifiers are those of `DiSMECClassifier`.

    The probability of a node or label with margin s is ``exp(-max(0, 1 - s)**3)``. With
    ``combine="product"``, scores are logarithms of products of these numbers minus `threshold_`. They rank
    labels, but they are not calibrated. `predict` and `predict_topk` consider the labels of the leaves that a
    row reaches; `decision_function` scores all labels. With several trees, a label that a tree did not score
    counts with half of the probability of the best node that this tree left out, so `predict_topk` may return
    other scores than `decision_function`.

    The learned threshold is the score at which as many labels are predicted on held-out rows as these rows
    have. A tenth of the rows is held out, at most 4,096. Each node is made to forget these rows by a few
    solver steps after its weights are stored. If the held-out rows have fewer than ten labels in all, the
    threshold is that of "zero".

    The result does not depend on `n_jobs`. No array of size n_samples x n_labels or n_labels x n_features is
    allocated, except for the scores that `decision_function` returns and, if Y was dense in fit, the
    predictions of `predict`. While the tree is built, label vectors take up to 8 bytes for each stored value
    of the rows of all labels.

    References
    ----------
    .. [1] H.-F. Yu, K. Zhong, J. Zhang, W.-C. Chang and I. S. Dhillon, "PECOS: Prediction for Enormous and
       Correlated Output Spaces", JMLR 2022; Y. Prabhu et al., "Parabel: Partitioned Label Trees for Extreme
       Classification", WWW 2018.

    Examples
    --------
    >>> import manylabel as ml
    >>> X, Y = ml.datasets.make_multilabel(200, 50, 10, random_state=0)
    >>> model = ml.LabelTreeClassifier(max_leaf=4, random_state=0).fit(X, Y)
    >>> model.predict_topk(X, k=3, beam=2).shape
    (200, 10)
    """

    parameters = kinds.Parameters(
        C=kinds.Number(above=0),
        n_trees=kinds.Count(1),
        branching=kinds.Count(2, 2**16 - 1),
        max_leaf=kinds.Count(1, 2**16 - 1),
        beam=kinds.Count(1),
        balanced=kinds.Flag(),
        combine=kinds.Choice("product", "leaf"),
        prune=kinds.Number(least=0),
        fit_intercept=kinds.Flag(),
        threshold=kinds.Threshold(),
        normalize=kinds.Either("auto", "rows", kinds.Flag()),
        solver=kinds.Choice("fast", "exact"),
        tol=kinds.Number(above=0),
        max_iter=kinds.Count(1),
        **kinds.SEEDED_RUN,
    )

    schema = Schema(
        **MultiLabelClassifier.fitted,
        threshold_=Scalar(float, finite=True),
        normalize_=Scalar(bool),
        by_leaf_=Scalar(bool),
        n_iter_=Scalar(int),
        node_children_=Array(("n_nodes + 1",), "i8"),
        node_label_ends_=Array(("n_nodes + 1",), "i8", ends="n_leaf_labels"),
        node_intercept_=Array(("n_nodes",), "f4"),
        leaf_labels_=Array(("n_leaf_labels",), "i4", below="n_labels"),
        leaf_intercept_=Array(("n_leaf_labels",), "f4"),
        chunk_bucket_ends_=Array(("n_nodes + 1",), "i8", ends="n_buckets"),
        chunk_feature_ends_=Array(("n_nodes + 1",), "i8", ends="n_chunk_features"),
        chunk_weight_ends_=Array(("n_nodes + 1",), "i8", ends="n_weights"),
        chunk_buckets_=Array(("n_buckets",), "u4"),
        chunk_features_=Array(("n_chunk_features",), "u4", below="n_features"),
        chunk_row_ends_=Array(("n_chunk_features",), "u4"),
        chunk_outputs_=Array(("n_weights",), "u2"),
        chunk_weights_=Array(("n_weights",), "f4"),
    )

    threshold_: float
    normalize_: bool
    by_leaf_: bool
    n_iter_: int
    node_children_: NDArray[np.int64]
    node_label_ends_: NDArray[np.int64]
    node_intercept_: NDArray[np.float32]
    leaf_labels_: NDArray[np.int32]
    leaf_intercept_: NDArray[np.float32]

    def __init__(
        self,
        C: float = 1.0,
        *,
        n_trees: int = 1,
        branching: int = 16,
        max_leaf: int = 100,
        beam: int = 10,
        balanced: bool = True,
        combine: str = "product",
        prune: float = 0.1,
        fit_intercept: bool = True,
        threshold: float | str = "auto",
        normalize: bool | str = "auto",
        solver: str = "fast",
        tol: float = 0.01,
        max_iter: int = 1000,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self._assign(locals())

    def _fit(self, X: Any, y: Any, sample_weight: Any, progress: Progress) -> None:
        params = self.parameters.check(self)
        textbook = -1.0 if params["combine"] == "product" else 0.0
        threshold = fixed_threshold(params["threshold"], textbook)
        sparse_output = issparse(y)
        X, y, sample_weight = check_training_set(self, X, y, sample_weight)
        by_row = params["normalize"]
        if by_row == "auto":
            by_row = not holds_measurements(X)
        params |= {"learn_cut": threshold is None, "normalize": bool(by_row)}
        n_labels = y.shape[1]
        total = len(np.unique(y.indices))
        with reported(total, "label", params["verbose"], progress) as report:
            arrays, cut, n_iter, n_unfinished = _core.fit_tree(
                (X, y, sample_weight), params, (params["n_jobs"], report)
            )
        for name, array in arrays.items():
            setattr(self, name, array)
        if threshold is None:
            threshold = textbook if cut is None else cut
        self.threshold_ = float(threshold)
        self.by_leaf_ = params["combine"] == "leaf"
        self.n_iter_ = n_iter
        self.normalize_ = bool(by_row)
        self.classes_ = np.arange(n_labels)
        self.sparse_output_ = sparse_output
        if n_unfinished:
            warnings.warn(
                f"{n_unfinished} linear classifiers did not converge in max_iter={self.max_iter} steps",
                ConvergenceWarning,
                stacklevel=3,
            )

    @property
    def _beam(self) -> int:
        """The width of the search, which may be set after fit."""
        return int(self.parameters["beam"].check("beam", self.beam))

    @property
    def _normalizes_rows(self) -> bool:
        """Whether rows are scaled to unit length before they are scored."""
        return self.normalize_

    def _make_scorer(self) -> _core.Scorer:
        return _core.tree_scorer(self)

    def _log_odds(self, scores: NDArray[Any]) -> NDArray[Any]:
        return ODDS_OF_MARGINS * scores

    def predict_topk(self, X: Any, k: int = 5, beam: int | None = None) -> csr_array:
        """Return the best labels of every row with their scores.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features.
        k : int, default=5
            Number of labels per row; >= 1. Rows get fewer if fewer labels were seen in fit, or if the leaves
            that a row reaches have fewer.
        beam : int or None, default=None
            Number of nodes in each level that a row is sent to; >= 1. None is the parameter `beam` of the
            model. A larger number costs time and may find better labels.

        Returns
        -------
        csr_array of shape (n_samples, n_labels), dtype float32
            The scores of the k best labels of each row, in order of label. Ties go to the lower label.
            ``np.argsort(-row.data, kind="stable")`` ranks them.

        Raises
        ------
        ValueError
            If X has another number of features than in fit or is invalid, or k < 1, or beam < 1.

        Notes
        -----
        Besides the result, memory holds the nodes and labels that a few rows are scored for.
        """
        self._check_fitted()
        k = check_count("k", k, 1)
        if beam is not None:
            beam = check_count("beam", beam, 1)
        X = self._features(X)
        scorer = self._scorer()
        top = scorer.topk(X, k, n_threads(self.n_jobs), beam)
        return core_rows(top, (X.shape[0], scorer.n_labels))
