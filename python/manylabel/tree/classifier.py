"""Label trees: linear classifiers, arranged in a tree over the labels."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import normalize

from manylabel import _core
from manylabel.embedding.rembrandt import Rembrandt
from manylabel.estimator import parameters as kinds
from manylabel.estimator.base import ODDS_OF_MARGINS, built_aside, core_rows
from manylabel.estimator.costs import LabelCosts, label_costs
from manylabel.estimator.explanation import Explained
from manylabel.estimator.parameters import check_count, fixed_threshold, n_threads
from manylabel.estimator.progress import Progress, Tell, reported
from manylabel.estimator.registry import register
from manylabel.estimator.scaling import (
    Features,
    ScaledFeatures,
    ScaledTable,
    holds_measurements,
    scaled_columns,
    scaled_features,
    unit_rows,
)
from manylabel.estimator.schema import Array, Scalar, Schema
from manylabel.estimator.surgery import EditableLabels
from manylabel.estimator.validation import KeptDense, check_training_set, known_ones
from manylabel.linear.base import unit_length
from manylabel.linear.dismec import DiSMECClassifier
from manylabel.tree.inspection import explained
from manylabel.tree.outputs import without_outputs
from manylabel.tree.pieces import TreePieces, core_examples, fitted_trees

__all__ = ["LabelTreeClassifier"]

# The value of PECOS and Parabel, which fit with C = 1. With C = 0.1 on yso-finna-en, it removes so many
# weights that P@1 falls from 40.8 to 39.7.
_MOST_PRUNE = 0.1

# Larger leaves rank better up to 400 labels (citeulike-t, yso-finna-en). But a beam of 10 nodes saves little
# time if there are few leaves. On eurlex57k with 4,108 labels, the fit takes 1.5 times as long with leaves of
# 400 labels as with leaves of 129. P@1, P@3 and P@5 are then up to 0.3 points higher with one tree, and up to
# 0.25 points lower with three.
_LEAVES = 32
_LEAST_LEAF, _MOST_LEAF = 100, 400


def _leaf_size(n_labels: int, beam: int) -> int:
    """Return the maximum number of labels of a leaf if `max_leaf` is "auto"."""
    # A row reaches `beam` leaves. If these are more than half of the small leaves, small leaves save little.
    # On delicious with 983 labels, leaves of 328 labels instead of 99 raise P@1 by 0.2 points (mean of three
    # seeds).
    if n_labels < 2 * beam * _LEAST_LEAF:
        return _MOST_LEAF
    return min(max(-(-n_labels // _LEAVES), _LEAST_LEAF), _MOST_LEAF)


# The largest number of labels of a leaf. The position of a label in its leaf is stored in 16 bits.
_MOST_OUTPUTS = 2**16 - 1

# The attributes that exist only if columns are scaled.
_COLUMNS = ("column_shift_", "column_scale_")


def _least_weight(params: dict[str, Any]) -> float:
    """Return the value of `prune` as a number.

    If `prune` is "auto", the number depends on ``params["measurements"]`` (the result of
    `holds_measurements`) and on ``params["C"]``. In this case, ``params["C"]`` must be a number, not "auto".
    """
    prune: float | str = params["prune"]
    if not isinstance(prune, str):
        return prune
    return 0.0 if params["measurements"] else _MOST_PRUNE * min(1.0, params["C"]) ** 0.5


@register(command="label-tree", demo=("Label tree", lambda tree: tree(random_state=0)))
class LabelTreeClassifier(EditableLabels):
    """Label tree: linear classifiers that are arranged in a tree over the labels.

    The root of the tree has all labels. `fit` divides them into clusters of similar labels, one cluster for
    each child of the root. Each child is divided again in the same way, until a node has few labels. Such a
    node is a leaf. Inner nodes have a linear classifier for each child, and leaves have a linear classifier
    for each label.

    The output ``w.x + b`` of a linear classifier is called a margin. The margin of a row determines the
    probability of the child or label (see Notes). The path probability of a node is the product of the
    probabilities of all nodes on the path from the root to this node.

    To predict a row, the tree is searched from the root down. On each level, the search keeps only the `beam`
    nodes with the highest path probabilities. The row is said to reach these nodes. Only the labels of the
    leaves that the row reaches are scored. If `branching` and `max_leaf` are fixed and the tree has many
    levels, the time of a prediction grows with the logarithm of the number of labels [1]_.

    Parameters
    ----------
    C : float or "auto", default="auto"
        Weight of the loss relative to the regularization, in each linear classifier; finite and > 0. Smaller
        values regularize more strongly. "auto" is the value that `DiSMECClassifier` would choose for the same
        data, with the same `loss` and the same scaling of the features. To find this value, one-vs-rest
        classifiers are fitted to a sample of the data.
    n_trees : int, default=1
        Number of trees; >= 1. The trees have different seeds. The score of a label is computed from a mean
        over the trees (see Notes). Rankings are slightly better with three trees than with one tree. The size
        of the model is proportional to `n_trees`. Trees after the first one take less time to fit (see
        Notes). Predictions with three trees take four to ten times as long as with one tree.
    branching : int, default=512
        Maximum number of children of a node; from 2 to 65,535. With few children, a tree has more levels, and
        a prediction is more likely to miss a correct label. With the defaults of `branching` and `max_leaf`,
        the root can have 512 leaves of 400 labels, so 204,800 labels in total. With up to this number of
        labels, all leaves of a balanced tree are children of the root. On synthetic data with 72,354 labels,
        the precision at 1 (P@1) is 94.5 % with ``branching=512`` and 92.6 % with ``branching=64``. The two
        fits take about the same time.
    max_leaf : int or "auto", default="auto"
        Maximum number of labels of a leaf; from 1 to 65,535. Larger leaves often rank better, and the model
        is smaller, but the fit takes longer. If Y has at most `max_leaf` labels, the tree is a single leaf,
        which is a one-vs-rest classifier. If Y has fewer than ``200 * beam`` labels, "auto" is 400, because
        smaller leaves would save little time. With more labels, "auto" is the number of labels divided by 32,
        but at least 100 and at most 400. Labels that occur in no training row are not counted.
    beam : int, default=10
        Maximum number of nodes that a row reaches on each level of a tree in a prediction; >= 1. Larger
        values take more time and may find better labels. `predict_topk` can use another value without a new
        fit. `fit` also uses `beam` to find negative examples (see `negatives`).
    balanced : bool, default=True
        Whether the tree is balanced. If True, the numbers of labels of any two leaves differ by at most 1. If
        False, the sizes of the clusters depend on the data, and leaves can be at different depths.
    label_vectors : {"rows", "rembrandt"}, default="rows"
        Vectors that represent the labels when they are clustered. With "rows", the vector of a label is the
        sum of the rows that have the label. This method is known as PIFA, positive instance feature
        aggregation [1]_. With "rembrandt", :class:`~manylabel.Rembrandt` first reduces the rows to 100
        components. For the memory of the vectors, see Notes. If the tree is a single leaf, `label_vectors`
        has no effect.
    negatives : {"routed", "siblings"}, default="routed"
        Rows that are the negative examples of a classifier. With "siblings", the negative examples of a label
        are the rows that have another label of the same leaf, but not this label. The negative examples of a
        child are the rows that have a label below another child of the same node, but none below this child.
        This is the rule of [1]_. With "routed", the labels of a leaf have further negative examples: the rows
        that reach the leaf, but have none of its labels. The children of a node also have further negative
        examples: the rows that reach the node, but have no label below this node. To find these rows, `fit`
        searches the tree with up to ``1.25 * beam`` nodes of each level (see Notes). With "siblings", the fit
        is faster, but rankings are usually worse.
    loss : {"squared_hinge", "logistic"}, default="squared_hinge"
        Loss of the linear classifiers. With "logistic", each classifier is an L2-regularized logistic
        regression, and the probability of a node or label is the logistic function of its margin. A fit with
        "logistic" takes longer, because ``solver="fast"`` then saves no time. For a comparison of the losses,
        see Notes.
    combine : {"product", "leaf"}, default="product"
        How the score of a label is computed. The score is a number minus the threshold (see `threshold`).
        With "product", the number is the logarithm of a product (see Notes). The factors are the probability
        of the label and a power of the path probability of its leaf. With "leaf", the number is the margin of
        the label, and the probabilities of the nodes only determine which leaves a row reaches.
    path_weight : float or "auto", default="auto"
        Exponent of the path probability of the leaf, with ``combine="product"``; finite and >= 0. With 0, the
        path does not influence the score. "auto" tries eight values from 0 to 1. It chooses the smallest
        value whose rankings of held-out rows are nearly the best (see Notes).
    prune : float or "auto", default="auto"
        Weights with an absolute value below `prune` are set to zero; finite and >= 0. "auto" is 0 if more
        than an eighth of the values of X are nonzero (see Notes). Otherwise, "auto" is
        ``0.1 * sqrt(min(1, C_))``, because a smaller C gives smaller weights.
    weights : {"float32", "float16", "int8"}, default="float32"
        How the fitted weights are stored. A weight takes 4 bytes with "float32", 2 bytes with "float16" and 1
        byte with "int8". Two more bytes per weight store the child or label to which the weight belongs.
        "float16" rounds every weight to about three decimal digits. "int8" stores an integer from -127 to 127
        for each weight, and one scale for each child and label. Scores change slightly (see Notes). All
        computations of `fit` use float32, and the weights are converted at the end. With "float16", `fit`
        raises an error if the absolute value of a weight exceeds 65,504.
    fit_intercept : bool, default=True
        Whether to fit intercepts. An intercept is regularized like the weight of a feature that is 1 in every
        row.
    threshold : {"auto", "zero"} or float, default="auto"
        Number that is subtracted to get the score of a label (see `combine`). `predict` assigns the labels
        with positive scores. "auto" learns the threshold on held-out rows, so that about the right number of
        labels is predicted (see Notes). "zero" is a threshold that does not depend on the data. With
        ``combine="leaf"``, this threshold is 0, so that labels with positive margins are predicted. With
        ``combine="product"``, this threshold is the logarithm of the probability of a label with the margin
        0. This logarithm is -1 with the squared hinge loss, and ``log(0.5)`` with the logistic loss.
    normalize : {"auto", "rows", "columns"} or bool, default="auto"
        Scaling of the features, in `fit` and in predictions. "rows" or True scales every row to unit
        Euclidean length. This scaling suits text data. "columns" scales each column to unit variance over the
        training rows. It then divides all columns by the square root of the number of columns that are not
        constant. The training rows then have a mean squared length of about 1. Columns with mostly nonzero
        values are also centered if an intercept is fitted. This scaling suits measurements, which have
        different units. False does not scale the features. "auto" is "columns" if more than an eighth of the
        values of X are nonzero, and "rows" otherwise.
    solver : {"fast", "exact"}, default="fast"
        Solver for the weights. "exact" computes the optimum of every linear classifier over all its positive
        and negative examples, within `tol`. "fast" only approximates the optimum for rare labels and rare
        children, as `DiSMECClassifier` does for rare labels of a sparse X. For other labels and children,
        "fast" computes the optimum as "exact" does. With the logistic loss, "fast" is the same as "exact".
        The positive examples of a child are the rows with a label below the child. A label or child is rare
        if the share of positive examples among its examples is below a limit. If more than an eighth of the
        values of X are nonzero, the limit is 1 %. Otherwise, the limit is 20 % for labels and children with
        up to 300 positive examples, and 1 % for all others.
    tol : float, default=0.01
        Tolerance of the solver; finite and > 0. `tol` has the same meaning as in `DiSMECClassifier`.
    max_iter : int, default=1000
        Maximum number of steps for each linear classifier; >= 1.
    random_state : int, RandomState instance or None, default=None
        Seed of the clustering, of the order in which "fast" visits rows, and of `Rembrandt` if it is used.
        Pass an int for exactly reproducible results.

    Attributes
    ----------
    C_ : float
        The value of `C`, as given or chosen.
    threshold_ : float
        The value of `threshold`, as given or learned. The threshold is already subtracted in all scores, so
        that predicted labels have positive scores.
    normalize_ : bool
        Whether rows are scaled to unit length before they are scored.
    column_shift_, column_scale_ : ndarray of shape (n_features,), dtype float64
        Scaling of the columns. Before a row is scored, the value ``x`` of a column becomes
        ``(x - column_shift_) * column_scale_``. The shift of a column that is not centered is 0. The scale of
        a constant column is 0. The attributes exist only if `normalize` scales the columns.
    by_leaf_ : bool
        Whether the score of a label is its margin minus `threshold_`. The value is True if `combine` is
        "leaf".
    logistic_ : bool
        Whether the classifiers were fitted with the logistic loss.
    path_weight_ : float
        The value of `path_weight`, as given or chosen. It is 0 if `combine` is "leaf".
    margin_power_ : int
        The exponent, 2 or 3, in the formula ``exp(-max(0, 1 - s)**margin_power_)`` for the probability of a
        node or label with margin s. This attribute exists only if the model was fitted by another program
        (see :mod:`manylabel.compat`). If the attribute does not exist, the exponent is 3.
    n_iter_ : int
        Largest number of steps of a linear classifier. The value is `max_iter` if a classifier did not
        converge.
    node_children_ : ndarray of shape (n_nodes + 1,), dtype int64
        The children of node v are the nodes ``range(node_children_[v], node_children_[v + 1])``. This range
        is empty if node v is a leaf. The first nodes are the roots of the trees, one for each tree. The
        children of the roots follow directly after the roots. Therefore, ``node_children_[0]`` is the number
        of trees.
    node_label_ends_ : ndarray of shape (n_nodes + 1,), dtype int64
        Node v has the labels ``leaf_labels_[node_label_ends_[v]:node_label_ends_[v + 1]]``. Nodes with
        children have no labels.
    node_intercept_ : ndarray of shape (n_nodes,), dtype float32
        For each node, the intercept of the classifier whose output is the margin of the node. Roots have the
        value 0.
    leaf_labels_ : ndarray of shape (n_leaf_labels,), dtype int32
        Labels of all leaves. Labels that occur in no training row are in no leaf.
    leaf_intercept_ : ndarray of shape (n_leaf_labels,), dtype float32
        Intercept of each entry of `leaf_labels_`.
    chunk_bucket_ends_, chunk_feature_ends_, chunk_weight_ends_ : ndarray of shape (n_nodes + 1,), dtype int64
        A chunk consists of the weights of all children or labels of a node. These arrays contain the
        positions at which the entries of each node begin and end in `chunk_buckets_`, `chunk_features_` and
        `chunk_weights_`. For example, the chunk of node v has the weights
        ``chunk_weights_[chunk_weight_ends_[v]:chunk_weight_ends_[v + 1]]``.
    chunk_buckets_ : ndarray of shape (n_buckets,), dtype uint32
        Hash tables of the nodes, one after the other. A prediction uses the hash table of a node to find the
        weights of a feature. The features of a node are divided into buckets. The table of a node has one
        entry for each bucket: the position of the first feature of the bucket, counted from the first feature
        of the node in `chunk_features_`. The table ends with one more entry, which is the number of features
        of the node.
    chunk_features_ : ndarray of shape (n_chunk_features,), dtype uint32
        The features that have weights: first those of node 0, then those of node 1, and so on. The features
        of a node are sorted by bucket. A feature remains in the array even if all its weights were rounded to
        0 and removed. A node that stores all weights (see Notes) has all features, in order and in one
        bucket.
    chunk_row_ends_ : ndarray of shape (n_chunk_features,), dtype uint32
        For each entry of `chunk_features_`, the position after the last weight of the feature, counted from
        the first weight of the node in `chunk_weights_`.
    chunk_outputs_ : ndarray of shape (n_weights,), dtype uint16
        Child or label of each weight. The value is the position among the children or labels of the node.
    chunk_weights_ : ndarray of shape (n_weights,), dtype float32, float16 or int8
        Weights of all linear classifiers. The dtype is the value of `weights`. Weights of dtype int8 must be
        multiplied by the scales of their children or labels.
    node_scale_ : ndarray of shape (n_nodes,), dtype float32
        For each node, the scale of the weights of the classifier whose output is the margin of the node. The
        scale is the largest absolute value of these weights, divided by 127. Roots have the value 0. This
        attribute exists only if `weights` is "int8".
    leaf_scale_ : ndarray of shape (n_leaf_labels,), dtype float32
        Scale of the weights of each entry of `leaf_labels_`. This attribute exists only if `weights` is
        "int8".

    See Also
    --------
    DiSMECClassifier : One linear classifier per label, without a tree.
    manylabel.metrics : Metrics for the rankings of `predict_topk`.

    Notes
    -----
    If an entry of Y is unknown (NaN), the row is left out of the loss of the label. For a child of an inner
    node, a row is left out if it is unknown whether the row has a label below the child. In the label
    vectors, unknown entries count as 0.

    To build a tree, each label is represented by a vector of unit length (see `label_vectors`). The labels of
    a node are clustered by spherical 2-means of these vectors (2-means with cosine similarity). The clusters
    are divided again in the same way, until there is one for each child.

    The linear classifiers are fitted level by level, from the root down. They minimize the objective of
    `DiSMECClassifier` over their positive and negative examples. With ``negatives="routed"``, `fit` searches
    the tree for each training row. The row reaches up to ``1.25 * beam`` likely nodes of a level (rounded
    up). In a prediction, a row reaches at most `beam` nodes. The negative examples of a label therefore
    include rows that narrowly miss its leaf in a prediction.

    With several trees, ``solver="fast"`` and the squared hinge loss, the fit of a label starts from its
    result in the previous tree. On eurlex57k, the fit of three trees takes 1.9 times as long as the fit of
    one tree. If every tree were fitted from scratch, the fit of three trees would take 2.7 times as long.
    Starting from the previous tree changes the precisions at 1, 3 and 5 (P@1, P@3 and P@5) by at most 0.1
    percentage points.

    The probability of a node or label with margin s is ``exp(-max(0, 1 - s)**3)`` with the squared hinge
    loss, and ``1 / (1 + exp(-s))`` with the logistic loss. Let p be the probability of a label, and q the
    path probability of its leaf. The score of the label depends on `combine`:

    - "product": The score is ``log(p * q**path_weight_) - threshold_``. With several trees, it is
      ``log(m) - threshold_``, where m is the mean of ``p * q**path_weight_`` over the trees.
    - "leaf": The score is the margin of the label minus `threshold_`. With several trees, the margin is the
      mean over the trees.

    `predict` and `predict_topk` score the labels of the leaves that a row reaches. `decision_function` scores
    all labels. With several trees, a label has one leaf in each tree, and a row may reach only some of these
    leaves. With ``combine="leaf"``, `predict` and `predict_topk` use the mean margin over the trees in which
    the row reaches the leaf of the label. With ``combine="product"``, both methods estimate
    ``p * q**path_weight_`` for each tree t in which the row does not reach the leaf. On each level, the
    search drops all but `beam` nodes. Let r be the highest path probability of all nodes that the search
    drops in tree t. The estimate is the smaller of two numbers. The first number is the mean of
    ``p * q**path_weight_`` over the trees in which the row reaches the leaf. The second number is
    ``(r / 2)**path_weight_``. `decision_function` needs no estimates, so its scores can differ from the
    scores of `predict_topk`.

    ``path_weight=1`` is the rule of [1]_. With ``negatives="routed"``, a smaller value is often better,
    because the margins of the labels already contain a part of the information in the path probability.

    Scores rank labels, but they are not calibrated. `LabelCalibrator` computes calibrated probabilities for
    both losses. With ``loss="logistic"`` and ``negatives="siblings"``, the model is a probabilistic label
    tree [2]_. With one tree and ``path_weight=1``, ``exp(score + threshold_)`` then estimates the probability
    of the label. With ``negatives="routed"``, this value does not estimate the probability, because there are
    more negative examples.

    The squared hinge loss gives better rankings for data with many rare labels, and its fit is faster. The
    table compares P@1, P@3 and P@5 of the two losses in percent, with the default parameters and one seed.
    The last column is the processor time of a fit with the logistic loss, relative to a fit with the squared
    hinge loss.

    =========== ================ ================ ====
    data        squared hinge    logistic         time
    =========== ================ ================ ====
    bibtex      64.3, 39.8, 29.0 63.4, 39.4, 28.8 1.7
    delicious   67.2, 60.9, 56.3 67.4, 61.0, 56.2 1.5
    citeulike-t 66.7, 49.5, 40.3 62.9, 46.2, 37.7 6.5
    =========== ================ ================ ====

    With ``path_weight="auto"`` or ``threshold="auto"``, these values are chosen on held-out rows. A tenth of
    the rows is held out, or up to a quarter if the data set is small, but at most 4,096 rows. With several
    trees, fewer rows may be held out to save memory. The weights of the model are fitted to all rows,
    including the held-out rows. With these weights, the scores of the held-out rows would be too good.
    Therefore, `fit` copies the weights, and a few solver steps adapt the copy to the rows that are not held
    out. This copy scores the held-out rows. With ``label_vectors="rows"``, the label vectors are also
    computed without held-out rows. The vector of a label contains held-out rows only if the label has no
    other rows.

    With ``path_weight="auto"``, `fit` computes the sum of P@1, P@3 and P@5 on the held-out rows for each of
    eight values from 0 to 1. `path_weight_` is the smallest value whose sum is within 0.1 percent of the
    largest sum. There are two exceptions: `path_weight_` is 1 if all sums are equal, or if the held-out rows
    have fewer than 200 labels in total. With ``threshold="auto"``, `threshold_` is chosen so that the
    held-out rows get as many predicted labels as they have true labels. If the held-out rows have fewer than
    ten labels in total, the threshold is the same as with "zero".

    If most weights of a node are not 0, as is usual for dense features, the node stores all weights,
    including those that are 0. Predictions then need no hash table to find the weights of a feature. For
    dense features, predictions with ``prune=0`` are therefore faster than with pruning. With ``prune=0``,
    P@1, P@3 and P@5 are also higher by 0.1 to 0.3 percentage points on two data sets of text embeddings with
    512 columns.

    With ``weights="float16"``, the error of a weight w is at most ``max(abs(w) * 2**-11, 2**-25)``. With
    ``weights="int8"``, the error is at most half the scale of the child or label. Weights that are rounded to
    0 are removed, except from nodes that store all weights. Intercepts, and the products and sums of a
    prediction, are always float32. Predictions do not copy the weights to float32. At the end of the fit, the
    float32 weights and the converted weights are both in memory.

    The result does not depend on `n_jobs`. `fit` allocates no array of shape (n_samples, n_labels). The
    result of `decision_function` is a dense array of this shape. The result of `predict` is also dense if Y
    was dense in `fit`. No other results are dense arrays of this shape. If most weights are not 0, each tree
    stores about ``n_labels * n_features`` weights. If most weights are 0 and X is sparse, neither `fit` nor
    the model needs an array of ``n_labels * n_features`` values.

    The vectors of the labels need memory while the trees are built. For a sparse X, a vector takes up to 8
    bytes for each stored value in the rows with the label. For a dense X, a vector takes ``4 * n_features``
    bytes. With ``label_vectors="rembrandt"``, a vector takes 1,600 bytes, a reduced row takes 400 bytes, and
    a dense X is copied once.

    A dense X is converted to sparse rows if at most half of its values are nonzero. Otherwise, X is used as
    it is, in float16, float32 or float64 and in any memory order. In this case, each thread fits up to four
    nodes at a time, and makes one or two float32 copies of the rows of each node. The root of a tree has all
    rows, so the copies for the root take up to twice the memory of a float32 X.

    The dtype and the memory order of a dense X do not change the result if the values are the same. A sparse
    X with the same values gives the same trees, unless `label_vectors` is "rembrandt". With the same C, it
    also gives the same weights within `tol`. ``C="auto"`` may choose slightly different values for a sparse
    and a dense X.

    References
    ----------
    .. [1] H.-F. Yu, K. Zhong, J. Zhang, W.-C. Chang and I. S. Dhillon, "PECOS: Prediction for Enormous and
       Correlated Output Spaces", JMLR 2022; Y. Prabhu et al., "Parabel: Partitioned Label Trees for Extreme
       Classification", WWW 2018.
    .. [2] K. Jasinska et al., "Extreme F-measure Maximization Using Sparse Probability Estimates", ICML 2016.

    Examples
    --------
    >>> import manylabel as ml
    >>> X, Y = ml.datasets.make_multilabel(200, 50, 10, random_state=0)
    >>> model = ml.LabelTreeClassifier(max_leaf=4, random_state=0).fit(X, Y)
    >>> model.predict_topk(X, k=3, beam=2).shape
    (200, 10)
    """

    parameters = kinds.Parameters(
        C=kinds.Either("auto", kinds.Number(above=0)),
        n_trees=kinds.Count(1),
        branching=kinds.Count(2, _MOST_OUTPUTS),
        max_leaf=kinds.Either("auto", kinds.Count(1, _MOST_OUTPUTS)),
        beam=kinds.Count(1),
        balanced=kinds.Flag(),
        label_vectors=kinds.Choice("rows", "rembrandt"),
        negatives=kinds.Choice("routed", "siblings"),
        loss=kinds.Choice("squared_hinge", "logistic"),
        combine=kinds.Choice("product", "leaf"),
        path_weight=kinds.Either("auto", kinds.Number(least=0)),
        prune=kinds.Either("auto", kinds.Number(least=0)),
        weights=kinds.Choice("float32", "float16", "int8"),
        fit_intercept=kinds.Flag(),
        threshold=kinds.Threshold(),
        normalize=kinds.Normalization(),
        solver=kinds.Choice("fast", "exact"),
        tol=kinds.Number(above=0),
        max_iter=kinds.Count(1),
        **kinds.SEEDED_RUN,
    )

    schema = Schema(
        **EditableLabels.fitted,
        C_=Scalar(float),
        threshold_=Scalar(float, finite=True),
        normalize_=Scalar(bool),
        column_shift_=Array(("n_features",), "f8", optional=True),
        column_scale_=Array(("n_features",), "f8", optional=True),
        by_leaf_=Scalar(bool),
        logistic_=Scalar(bool, optional=True),  # missing in files of version 0.1
        path_weight_=Scalar(float, finite=True),
        margin_power_=Scalar(int, optional=True),
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
        chunk_weights_=Array(("n_weights",), "f4 f2 i1"),
        node_scale_=Array(("n_nodes",), "f4", optional=True),
        leaf_scale_=Array(("n_leaf_labels",), "f4", optional=True),
    )

    chosen = ("C", "path_weight", "threshold")

    C_: float
    threshold_: float
    normalize_: bool
    by_leaf_: bool
    logistic_: bool
    path_weight_: float
    n_iter_: int
    node_children_: NDArray[np.int64]
    node_label_ends_: NDArray[np.int64]
    node_intercept_: NDArray[np.float32]
    leaf_labels_: NDArray[np.int32]
    leaf_intercept_: NDArray[np.float32]

    def __init__(
        self,
        C: float | Literal["auto"] = "auto",
        *,
        n_trees: int = 1,
        branching: int = 512,
        max_leaf: int | Literal["auto"] = "auto",
        beam: int = 10,
        balanced: bool = True,
        label_vectors: Literal["rows", "rembrandt"] = "rows",
        negatives: Literal["routed", "siblings"] = "routed",
        loss: Literal["squared_hinge", "logistic"] = "squared_hinge",
        combine: Literal["product", "leaf"] = "product",
        path_weight: float | Literal["auto"] = "auto",
        prune: float | Literal["auto"] = "auto",
        weights: Literal["float32", "float16", "int8"] = "float32",
        fit_intercept: bool = True,
        threshold: float | Literal["auto", "zero"] = "auto",
        normalize: bool | Literal["auto", "rows", "columns"] = "auto",
        solver: Literal["fast", "exact"] = "fast",
        tol: float = 0.01,
        max_iter: int = 1000,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self._assign(locals())

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        label_weight: Any = None,
        propensities: Any = None,
        progress: Progress = None,
    ) -> LabelTreeClassifier:
        """Build the trees and fit the classifiers of their nodes.

        Parameters
        ----------
        label_weight : array-like of shape (n_labels,), default=None
            Weights of the labels, > 0. The loss of a label is multiplied by its weight. An inner node has a
            classifier for each of its children. The loss of the classifier for a child is multiplied by the
            mean weight of the labels below this child. In this mean, each label counts in proportion to the
            number of training rows that have the label. None means equal weights.
        propensities : array-like of shape (n_labels,), default=None
            Propensities of the labels, > 0 and <= 1. Some true labels of a row can be missing in Y. The
            propensity of a label is the probability that Y has the label in a row for which the label is
            true. `manylabel.metrics.propensities` estimates propensities. None means that Y is complete.

            The loss of a label with propensity p is multiplied by ``2/p - 1`` in the rows that have this
            label in Y. `DiSMECClassifier.fit` explains this factor. With propensities, rare labels get higher
            scores.

            In an inner node, the loss of the classifier for a child has a similar factor. The positive rows
            of the child are the rows for which Y has at least one of the labels below the child. In the
            positive rows, the loss is multiplied by the mean of ``2/p - 1`` over the labels below the child.
            Frequent labels count more in this mean, as described for `label_weight`. If `label_weight` is
            also given, the factor in the positive rows is the mean of ``w * (2/p - 1)``, where w is the
            weight of a label. The factor in all other rows is then the mean of w.

            With ``C="auto"``, C is sometimes chosen by the precisions at 1, 3 and 5 on held-out rows (see the
            Notes of `DiSMECClassifier`). In these precisions, a correctly predicted label counts ``w/p``
            instead of 1. Here, w is the weight of the label, or 1 if `label_weight` is None.

        Warns
        -----
        sklearn.exceptions.ConvergenceWarning
            If some linear classifiers did not converge in `max_iter` steps.
        """
        with self._fitting(y) as (built, Y):
            built._fit(X, Y, sample_weight, progress, label_weight=label_weight, propensities=propensities)
        return self

    @property
    def _dense(self) -> KeptDense:
        return "as given if mostly nonzero"

    def _fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        progress: Progress,
        *,
        label_weight: Any = None,
        propensities: Any = None,
    ) -> None:
        params = self.parameters.check(self)
        sparse_output = issparse(y)
        X, y, sample_weight = check_training_set(self, X, y, sample_weight, dense=self._dense, unknown=True)
        n_labels = y.shape[1]
        costs = label_costs(n_labels, label_weight, propensities)
        total = len(np.unique(known_ones(y).indices))
        with reported(total, "label", params["verbose"], progress) as report:
            params, scaled, vectors = self._settled_params(params, X, y, sample_weight, costs, report)
            attributes, cut, n_iter, n_unfinished = fitted_trees(
                scaled, y, sample_weight, costs, params, vectors, report
            )
        self._set_fitted(attributes, cut, n_iter, params, n_labels, scaled.columns)
        self.sparse_output_ = sparse_output
        self._warn_of_unfinished(n_unfinished, stacklevel=4)

    @staticmethod
    def _core_params(params: dict[str, Any]) -> dict[str, Any]:
        """Return `params` with the added entry "learn_cut".

        The entry states whether the Rust core learns the threshold. In `params`, "C", "prune" and "max_leaf"
        must be numbers, and "normalize" must be a bool.
        """
        learn_cut = fixed_threshold(params["threshold"]) is None
        return params | {"learn_cut": learn_cut}

    def _settled_params(
        self,
        params: dict[str, Any],
        X: csr_array | NDArray[Any],
        Y: csr_array,
        sample_weight: NDArray[np.float32] | None,
        costs: LabelCosts | None,
        report: Tell,
    ) -> tuple[dict[str, Any], ScaledFeatures | ScaledTable, Any]:
        """Return three values: parameters for the core, scaled features, and label vectors.

        The label vectors are None if `label_vectors` is "rows" or if each tree is a single leaf. The argument
        `params` contains the checked parameters of the estimator.
        """
        params = dict(params)
        scaled = scaled_features(X, sample_weight, params["normalize"], center=params["fit_intercept"])
        total = len(np.unique(known_ones(Y).indices))
        if params["max_leaf"] == "auto":
            params["max_leaf"] = _leaf_size(total, params["beam"])
        if params["C"] == "auto":
            flat = DiSMECClassifier(
                loss=params["loss"],
                fit_intercept=params["fit_intercept"],
                solver=params["solver"],
                tol=params["tol"],
                max_iter=params["max_iter"],
                n_jobs=params["n_jobs"],
            )
            # With the squared hinge loss, the search fits a dense sample by matrix products. The chosen C may
            # therefore differ slightly from the C for a sparse X with the same values.
            params["C"] = flat._chosen_strength(scaled, Y, sample_weight, costs, report)
        params["measurements"] = holds_measurements(X)
        params["prune"] = _least_weight(params)
        params = self._core_params(params | {"normalize": scaled.by_row})
        vectors = None
        if params["label_vectors"] == "rembrandt" and total > params["max_leaf"]:
            rows: Any = scaled.X
            if isinstance(scaled, ScaledTable):
                rows = unit_rows(scaled.X) if scaled.by_row else scaled.rows(scaled.X)
                rows = np.ascontiguousarray(rows, dtype=np.float32)
            elif scaled.by_row:
                rows = csr_array(normalize(scaled.X))
            vectors = _reduced_vectors(rows, Y, sample_weight, params)
        return params, scaled, vectors

    def _set_fitted(
        self,
        attributes: dict[str, Any],
        cut: float | None,
        n_iter: int,
        params: dict[str, Any],
        n_labels: int,
        columns: tuple[NDArray[np.float64], NDArray[np.float64]] | None,
    ) -> None:
        """Set the fitted attributes, except those that depend on the form of Y."""
        # An earlier fit may have set these attributes.
        for name in (*_COLUMNS, "node_scale_", "leaf_scale_", "label_changes_", "margin_power_"):
            self.__dict__.pop(name, None)
        if columns is not None:
            self.column_shift_, self.column_scale_ = columns
        for name, value in attributes.items():
            setattr(self, name, value)
        of_product = float(np.log(0.5)) if params["loss"] == "logistic" else -1.0
        textbook = of_product if params["combine"] == "product" else 0.0
        threshold = fixed_threshold(params["threshold"], textbook)
        if threshold is None:
            threshold = textbook if cut is None else cut
        self.C_ = float(params["C"])
        self.threshold_ = float(threshold)
        self.by_leaf_ = params["combine"] == "leaf"
        self.logistic_ = params["loss"] == "logistic"
        self.n_iter_ = n_iter
        self.normalize_ = bool(params["normalize"])
        self.classes_ = np.arange(n_labels)

    def _warn_of_unfinished(self, n_unfinished: int, stacklevel: int) -> None:
        if n_unfinished:
            warnings.warn(
                f"{n_unfinished} linear classifiers did not converge in max_iter={self.max_iter} steps",
                ConvergenceWarning,
                stacklevel=stacklevel,
            )

    def _cut(self) -> type[TreePieces]:
        return TreePieces

    @built_aside
    def add_labels(
        self,
        X: Any,
        Y_new: Any,
        sample_weight: Any = None,
        *,
        label_weight: Any = None,
        propensities: Any = None,
        names: Sequence[str] | None = None,
        progress: Progress = None,
    ) -> None:
        """Add labels to the fitted model, without fitting the old labels again.

        The new labels get the column indices ``n_labels``, ``n_labels + 1`` and so on, where ``n_labels`` is
        the number of labels before the call. Only the linear classifiers of the new labels are fitted. The
        rest of the model does not change. In particular, the scores of the old labels are exactly the same as
        before. The new weights have the dtype of the old weights.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features of the rows to which the classifiers of the new labels are fitted. The rows may differ
            from the rows of `fit`, but the features must be the same. Include rows without the new labels,
            because they are the negative rows of the classifiers.
        Y_new : array-like or sparse matrix of shape (n_samples, n_new), or array-like of shape (n_samples,)
            0/1 indicator matrix of the new labels only, with at least one label. NaN marks unknown entries. A
            1-D array of 0 and 1 is a single new label. All numeric dtypes are accepted.
        label_weight : array-like of shape (n_new,), default=None
            Weights of the new labels, as in `fit`.
        propensities : array-like of shape (n_new,), default=None
            Propensities of the new labels, as in `fit`.
        names : sequence of str of length n_new, default=None
            Names of the new labels. This argument is necessary if the model has label names, and must be
            None otherwise.
        progress : callable, default=None
            Function that is called about 20 times per second. Its argument is the number of new labels that
            are finished. If the function raises an exception, the work stops.

        Returns
        -------
        self
            The estimator itself, with `classes_` for the old and the new labels. It does not change if the
            method fails or is interrupted.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            If the model is not fitted.
        ValueError
            If an argument or parameter is not valid. For example, X has a different number of features than
            in `fit`, or `Y_new` and X have different numbers of rows. The message states the expected value
            and the given value. The error is also raised if, in some tree, the rows with a new label reach
            only full leaves. A leaf is full if it has the maximum of 65,535 labels.

        Warns
        -----
        sklearn.exceptions.ConvergenceWarning
            If some new linear classifiers did not converge in `max_iter` steps.

        Notes
        -----
        In each tree, a new label joins one leaf. The rows with the label choose this leaf. Each of these rows
        divides its weight in `sample_weight` among the leaves that it reaches in a prediction, in proportion
        to their path probabilities. If `sample_weight` is None, every row has the weight 1. The weights that
        a leaf gets from all these rows are added. Of all leaves that are not full, the label joins the leaf
        with the largest sum. As in `fit`, a label that occurs in no row is not added to a leaf, and its score
        is -inf.

        The classifier of a new label is fitted to the rows with the label and to negative rows. To find the
        negative rows, the method searches the trees as `fit` does with ``negatives="routed"``, even if the
        parameter `negatives` is "siblings". A row is negative if it reaches the leaf of the label in this
        search, but does not have the label.

        The new classifiers are fitted with the same loss as the old classifiers, and with the C in `C_`. The
        features are scaled as in `fit`. The parameters `prune`, `fit_intercept`, `solver`, `tol`, `max_iter`,
        `beam` and `random_state` are used as in `fit`. If `prune` is "auto", its value is computed from `C_`
        and from the X that is passed to `add_labels`. `threshold_` and `path_weight_` do not change. If a new
        classifier needs more steps than `n_iter_`, `n_iter_` becomes this larger number.

        With a fixed `random_state`, the result does not depend on `n_jobs`. Adding several labels in one call
        gives the same result as adding them one after the other.

        The trees do not change, so the nodes on the path to a leaf do not learn from the new labels, and
        leaves can grow beyond `max_leaf`. Fit the model again if rankings become worse or predictions become
        slow, for example after the number of labels has grown by half.

        For each row of X, the method searches the trees twice: first to choose leaves, and then to find the
        negative rows. In the second search, rows with a new label may miss the leaf of the label. If none of
        these rows misses the leaf, the label takes about as much time as in `fit`. Otherwise, the label takes
        more time, because it cannot be fitted together with other labels. In this case, the time grows with
        the number of rows that reach the leaf, and with the number of labels of the leaf. On eurlex57k,
        adding 428 labels to a model with 3,843 labels takes half as long as fitting a new model to the old
        and the new labels.

        The method copies all weights as float32, and then converts the copy to the dtype of the old weights.
        It therefore needs memory for a second model with float32 weights. If the old weights are not float32,
        the converted weights take additional memory.

        Examples
        --------
        >>> import manylabel as ml
        >>> X, Y = ml.datasets.make_multilabel(200, 50, 6, random_state=0)
        >>> model = ml.LabelTreeClassifier(random_state=0).fit(X, Y[:, :5])
        >>> model.add_labels(X, Y[:, [5]]).classes_.tolist()
        [0, 1, 2, 3, 4, 5]
        """
        self._add(X, Y_new, sample_weight, names, progress, label_weight, propensities)

    def _append_labels(
        self,
        X: Any,
        Y: csr_array,
        sample_weight: Any,
        progress: Progress,
        label_weight: Any = None,
        propensities: Any = None,
        start: list[int] | None = None,
    ) -> int:
        params = self.parameters.check(self)
        costs = label_costs(Y.shape[1], label_weight, propensities)
        params |= {"C": self.C_, "max_leaf": _MOST_OUTPUTS, "normalize": self.normalize_, "learn_cut": False}
        params["loss"] = "logistic" if self._is_logistic else "squared_hinge"
        params["measurements"] = holds_measurements(X)
        params["prune"] = _least_weight(params)
        columns = self._columns if len(self._columns[1]) else None
        with reported(len(np.unique(known_ones(Y).indices)), "label", params["verbose"], progress) as report:
            attributes, n_iter, n_unfinished = _core.tree_add_labels(
                self,
                *core_examples(X, columns, Y, sample_weight),
                None if costs is None else (costs.positive, costs.negative),
                params,
                (params["n_jobs"], report),
            )
        for name, value in attributes.items():
            setattr(self, name, value)
        self.n_iter_ = max(self.n_iter_, n_iter)
        return int(n_unfinished)

    def _select_labels(self, labels: NDArray[np.int64]) -> None:
        new = np.full(max(self._n_labels, labels.max() + 1), -1, dtype=np.int32)
        new[labels] = np.arange(len(labels), dtype=np.int32)
        kept = new[self.leaf_labels_] >= 0
        if not kept.all():
            without_outputs(self, kept)
        self.leaf_labels_ = new[self.leaf_labels_[kept]]

    def _explained(self, x: csr_array, label: int, names: Sequence[str]) -> Explained:
        x = self._scaled(x)
        values = unit_length(x.data) if self._normalizes_rows else x.data.astype(np.float64)
        return explained(self, x.indices, values, label, names)

    def _scaled(self, X: Features) -> Features:
        """Scale the columns of X, if the columns of the training rows were scaled."""
        columns = self._columns
        return scaled_columns(X, columns if len(columns[1]) else None)

    @property
    def _columns(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The shift and the scale of each column. Both arrays are empty if columns are not scaled."""
        none = np.empty(0, np.float64)
        shift, scale = (getattr(self, name, none) for name in _COLUMNS)
        if len(shift) != len(scale) or (len(scale) and self.normalize_):
            raise ValueError(
                "`column_shift_` and `column_scale_` must have the same length, and must be missing "
                f"(length 0) if `normalize_` is True, got the lengths {len(shift)} and {len(scale)}, and "
                f"normalize_={self.normalize_}"
            )
        return shift, scale

    @property
    def _beam(self) -> int:
        """The parameter `beam`, checked again because it can be changed after `fit`."""
        return int(self.parameters["beam"].check("beam", self.beam))

    @property
    def _scales(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The scales of the int8 weights of nodes and of labels. Both arrays are empty for float weights."""
        none = np.empty(0, np.float32)
        return getattr(self, "node_scale_", none), getattr(self, "leaf_scale_", none)

    @property
    def _is_logistic(self) -> bool:
        """Whether the classifiers were fitted with the logistic loss."""
        return getattr(self, "logistic_", False)

    @property
    def _power(self) -> int:
        """The exponent `margin_power_`, 2 or 3. The value is checked because it may come from a file."""
        power = int(getattr(self, "margin_power_", 3))
        if power not in (2, 3):
            raise ValueError(f"`margin_power_` must be 2 or 3, got {power}")
        return power

    @property
    def _normalizes_rows(self) -> bool:
        """Whether rows are scaled to unit length before they are scored."""
        return self.normalize_

    def _make_scorer(self) -> _core.Scorer:
        return _core.tree_scorer(self)

    def _log_odds(self, scores: NDArray[Any]) -> NDArray[Any]:
        return scores if self._is_logistic else ODDS_OF_MARGINS * scores

    def predict_topk(
        self, X: Any, k: int = 5, beam: int | None = None, max_nodes: int | None = None
    ) -> csr_array:
        """Return the k labels with the highest scores for every row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features of the rows.
        k : int, default=5
            Number of labels per row; >= 1. A row gets fewer labels if the leaves that it reaches have fewer
            than k different labels in total.
        beam : int or None, default=None
            Maximum number of nodes that a row reaches on each level of a tree; >= 1. If None, the parameter
            `beam` of the model is used. Larger values take more time and may find better labels.
        max_nodes : int or None, default=None
            Maximum number of nodes that a row reaches, summed over all levels and trees. Only the children
            and labels of these nodes are scored, so predictions are faster with a smaller maximum.
            `max_nodes` must be at least the number of levels of a tree times the number of trees. The maximum
            is divided equally among the trees, and about equally among the levels of a tree. In a tree that
            is not balanced, the nodes that a row reaches may have few children. The row may then reach fewer
            nodes than allowed. None means that only `beam` limits the number of nodes.

        Returns
        -------
        csr_array of shape (n_samples, n_labels), dtype float32
            Scores of the k best labels of each row. The entries of a row are sorted by label and not by
            score. If ``row`` is one row of the result, ``np.argsort(-row.data, kind="stable")`` gives the
            order of its entries by score. If scores are equal, the label with the lower column index ranks
            first.

        Raises
        ------
        ValueError
            If X is invalid or does not have the number of features that X had in `fit`. The error is also
            raised if `k`, `beam` or `max_nodes` is not an integer >= 1, or if `max_nodes` is too small to
            reach a leaf.

        Notes
        -----
        Rows are processed in groups. Besides the result, the method needs up to about 100 MB of memory for
        each thread.
        """
        X = self._features(X)
        k = check_count("k", k, 1)
        if beam is not None:
            beam = check_count("beam", beam, 1)
        if max_nodes is not None:
            max_nodes = check_count("max_nodes", max_nodes, 1)
        scorer = self._scorer()
        top = scorer.topk(X, k, n_threads(self.n_jobs), beam, max_nodes)
        return core_rows(top, (X.shape[0], scorer.n_labels))


def _reduced_vectors(
    X: csr_array | NDArray[Any],
    Y: csr_array,
    sample_weight: NDArray[np.float32] | None,
    params: dict[str, Any],
) -> csr_array:
    """Return an array whose rows are the vectors of the labels that occur in Y.

    `Rembrandt` first reduces the rows of X. The vector of a label is the sum of the reduced rows that are
    known to have the label. Unknown entries of Y therefore count as 0.
    """
    X = X.astype(np.float32, copy=False)  # so that the reduced rows are float32
    reduction = Rembrandt(random_state=params["random_state"], n_jobs=params["n_jobs"])
    Y = known_ones(Y)
    reduced = reduction.fit(X, Y, sample_weight).transform(X)
    seen = np.unique(Y.indices)
    sums = Y.T.tocsr()[seen] @ reduced
    n, k = sums.shape
    # The constructor of csr_array would need several times as much memory for a dense array.
    columns = np.tile(np.arange(k, dtype=np.int32), n)
    return csr_array((sums.ravel(), columns, np.arange(0, n * k + 1, k)), shape=(n, k))
