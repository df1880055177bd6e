"""Read label trees of omikuji and PECOS."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array

from manylabel.compat.files import checked_model, read_csc
from manylabel.tree import LabelTreeClassifier

__all__ = ["load_omikuji", "load_pecos"]

# Knuth's multiplicative hash of features, as in the Rust core.
_HASH = np.uint64(0x9E3779B1)

# The largest number of children of a node, and of labels of a leaf.
_MOST_OUTPUTS = 2**16 - 1


@dataclass
class _Node:
    """A node of a tree. It has weights and intercepts. An inner node has children, and a leaf has labels.

    The outputs of a node are its children or its labels. The weights have the shape (n_features, n_outputs).
    """

    weights: csr_array
    intercept: NDArray[np.float32]
    children: list[_Node] = field(default_factory=list)
    labels: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))


def load_omikuji(path: str | os.PathLike[str]) -> LabelTreeClassifier:
    """Read a model folder of omikuji. This function needs the package cbor2.

    Parameters
    ----------
    path : path-like
        The folder that omikuji's ``Model.save`` or its command ``train`` has written.

    Returns
    -------
    LabelTreeClassifier
        The classifier. Labels and features have the same indices as in omikuji.

    Raises
    ------
    ValueError
        If the folder has no trees, if a file is malformed, or if a node has more than 65,535 children or
        labels. The error is also raised if the model was trained with the log loss, because omikuji then
        computes probabilities by a formula that this function does not support.
    OSError
        If a file cannot be read.
    ImportError
        If the package cbor2 is not installed.

    Notes
    -----
    A score of `predict_topk` is ``log(p) - threshold_``, where p is the probability of the label and
    ``threshold_`` is an attribute of the classifier. The probability is thus ``exp(score + threshold_)``.

    With one tree, the probability equals the score of omikuji, up to rounding. With several trees, both
    libraries use the mean of the probabilities in the trees. However, the two libraries differ in two ways.
    First, the beam search for a row may fail to reach the leaf of a label in one of the trees. For this tree,
    omikuji then uses the probability 0, and `LabelTreeClassifier` estimates the probability. The beam search
    reaches all leaves if the ``beam`` that is passed to `predict_topk` is at least the number of nodes of the
    largest level. Second, omikuji keeps only the ``beam_size`` best labels of each leaf.
    `LabelTreeClassifier` keeps all labels of each leaf.
    """
    try:
        import cbor2
    except ImportError as error:
        raise ImportError("the package cbor2 must be installed to read models of omikuji") from error
    folder = Path(path)
    try:
        settings = json.loads((folder / "settings.json").read_text(encoding="utf-8"))
        n_features, loss = int(settings["n_features"]), settings["classifier_loss_type"]
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(
            f"{folder / 'settings.json'}: expected n_features and classifier_loss_type "
            f"({type(error).__name__}: {error})"
        ) from error
    if loss != "Hinge":
        raise ValueError(
            f"{folder}: expected a model with the loss Hinge, got {loss!r}; models with "
            "other losses are not supported"
        )
    malformed = (
        *(AttributeError, IndexError, KeyError, OverflowError, RecursionError, TypeError, ValueError),
        cbor2.CBORDecodeError,
    )
    roots = []
    for file in sorted(folder.glob("tree*.cbor")):
        try:
            with file.open("rb") as stream:
                roots.append(_omikuji_node(cbor2.load(stream), n_features))
        except malformed as error:
            raise ValueError(
                f"{file}: expected a tree of omikuji ({type(error).__name__}: {error})"
            ) from error
    if not roots:
        raise ValueError(f"{folder}: expected files tree*.cbor, got none")
    model = _assembled(roots, n_features)
    model.normalize = model.normalize_ = True
    model.margin_power_ = 2  # omikuji's probability is exp(-max(0, 1 - margin) ** 2)
    return checked_model(model, folder)


def _omikuji_node(entry: Mapping[str, Any], n_features: int) -> _Node:
    ((kind, content),) = entry.items()
    weights = _omikuji_weights(content["weights"], n_features)
    n_outputs = len(content["children"] if kind == "Branch" else content["labels"])
    if weights.shape[1] != n_outputs:
        raise ValueError(
            f"expected {n_outputs} columns of weights, one for each child or label of a node, got "
            f"{weights.shape[1]}"
        )
    # The last row has the weights of a constant feature with the value 1.
    intercept = weights[[n_features]].toarray()[0].astype(np.float32)
    node = _Node(csr_array(weights[:n_features]), intercept)
    if kind == "Branch":
        node.children = [_omikuji_node(child, n_features) for child in content["children"]]
    else:
        node.labels = np.array(content["labels"], dtype=np.int32).reshape(n_outputs)
    return node


def _omikuji_weights(entry: Mapping[str, Any], n_features: int) -> csr_array:
    """Return the weights of a node, of shape (n_features + 1, n_outputs).

    The last row has the weights of a constant feature with the value 1.
    """
    ((kind, content),) = entry.items()
    if kind == "Dense":
        dense = np.array(content["data"], dtype=np.float32).reshape(content["dim"])
        if dense.shape[0] != n_features + 1:
            raise ValueError(f"expected {n_features + 1} rows of weights, got {dense.shape[0]}")
        return csr_array(dense)
    rows = np.array(content["outer_inds"], dtype=np.int64)
    ends = np.array(content["indptr"], dtype=np.int64)
    if int(content["outer_dim"]) != n_features + 1:
        raise ValueError(f"expected {n_features + 1} rows of weights, got {content['outer_dim']}")
    data = np.array(content["data"], dtype=np.float32)
    counts = np.diff(ends)
    if counts.sum() != len(data):
        raise ValueError(f"expected {counts.sum()} weights according to indptr, got {len(data)}")
    entries = (data, (np.repeat(rows, counts), np.array(content["inner_inds"], dtype=np.int64)))
    return csr_array(entries, shape=(n_features + 1, int(content["inner_dim"])))


def load_pecos(path: str | os.PathLike[str]) -> LabelTreeClassifier:
    """Read a model folder of PECOS XR-Linear.

    Parameters
    ----------
    path : path-like
        The folder that ``XLinearModel.save`` or ``pecos.xmc.xlinear.train`` has written.

    Returns
    -------
    LabelTreeClassifier
        The classifier. Labels and features have the same indices as in PECOS. PECOS stores a value
        ``only_topk`` for each level of the tree, and the last level consists of the labels. The parameter
        `beam` of the classifier is set to the ``only_topk`` of the level before the last. If the model has
        only one level, `beam` keeps its default.

    Raises
    ------
    ValueError
        If a file is malformed, or if the model is not a tree of linear classifiers with the post-processor
        ``l3-hinge`` (the default of PECOS) or ``l2-hinge``. A model with a label in several clusters is not a
        tree. The message states the reason.
    OSError
        If a file cannot be read.

    Notes
    -----
    A score of `predict_topk` is ``log(p) - threshold_``, where p is the probability of the label and
    ``threshold_`` is an attribute of the classifier. The probability is thus ``exp(score + threshold_)``.

    If `beam` equals the ``beam_size`` with which PECOS predicts, the probability equals the value that PECOS
    predicts, up to rounding. The classifier does not scale the rows of X, so pass the same features as to
    PECOS. If the model has a bias, PECOS appends a feature that is equal to the bias in every row. Do not
    append this feature to X, because the classifier has intercepts instead. The intercept of a node or label
    is its weight for the appended feature, times the bias. Models in PECOS' memory-mapped format must be
    saved again as npz.
    """
    folder = Path(path)
    ranker = folder / "ranker" if (folder / "ranker").is_dir() else folder
    levels, posts, beams = [], set(), []
    for level in range(_depth(ranker)):
        weights, clusters, bias, post, beam = _pecos_level(ranker / f"{level}.model")
        levels.append((weights, clusters, bias))
        posts.add(post)
        beams.append(beam)
    powers = {"l3-hinge": 3, "l2-hinge": 2}
    if len(posts) != 1 or not posts <= powers.keys():
        raise ValueError(
            f"{folder}: the post-processor must be l3-hinge or l2-hinge, and the same on all levels, got "
            f"{', '.join(sorted(posts))}"
        )
    below: list[_Node] = []
    for weights, clusters, bias in reversed(levels):
        below = _pecos_nodes(weights, clusters, bias, below, folder)
    if len(below) != 1:
        raise ValueError(f"{folder}: the label tree must have one root, got {len(below)}")
    n_features = levels[0][0].shape[0] - (levels[0][2] > 0)
    model = _assembled(below, n_features)
    model.normalize = model.normalize_ = False
    power = powers[posts.pop()]
    if power != 3:
        model.margin_power_ = power
    model.classes_ = np.arange(levels[-1][0].shape[1])
    if len(beams) > 1:
        model.beam = beams[-2]
    return checked_model(model, folder)


def _depth(ranker: Path) -> int:
    try:
        params = json.loads((ranker / "param.json").read_text(encoding="utf-8"))
        if params["model"] != "HierarchicalMLModel" or params.get("is_mmap"):
            found = f"model={params['model']!r} and is_mmap={bool(params.get('is_mmap'))}"
            raise ValueError(f"expected model='HierarchicalMLModel' and is_mmap=False, got {found}")
        return int(params["depth"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(
            f"{ranker / 'param.json'} does not describe a model that can be read "
            f"({type(error).__name__}: {error})"
        ) from error


def _pecos_level(folder: Path) -> tuple[csc_array, csc_array, float, str, int]:
    """Return the weights, the clusters, the bias, the post-processor and the beam of one level.

    The weights have one column per output. The clusters are a sparse matrix of shape (n_outputs, n_nodes).
    Entry (i, j) of this matrix is stored if output i belongs to node j.
    """
    path = folder / "param.json"
    try:
        params = json.loads(path.read_text(encoding="utf-8"))
        bias, kwargs = float(params["bias"]), params["pred_kwargs"]
        post, beam = str(kwargs["post_processor"]), int(kwargs["only_topk"])
        wanted = (int(params["nr_features"]) + (bias > 0), int(params["nr_labels"]))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(
            f"{path}: expected the parameters of a level of a PECOS model ({type(error).__name__}: {error})"
        ) from error
    weights, clusters = read_csc(folder / "W.npz"), read_csc(folder / "C.npz")
    if weights.shape != wanted:
        raise ValueError(f"{folder / 'W.npz'}: expected weights of shape {wanted}, got shape {weights.shape}")
    return csc_array(weights, dtype=np.float32), clusters, bias, post, beam


def _pecos_nodes(
    weights: csc_array, clusters: csc_array, bias: float, below: list[_Node], folder: Path
) -> list[_Node]:
    """Return the nodes of one level.

    The outputs of a node are its children, which are nodes of the level below. On the lowest level, the
    outputs are labels.
    """
    n_outputs, n_nodes = clusters.shape
    if below and len(below) != n_outputs:
        raise ValueError(
            f"{folder}: expected a level with {len(below)} outputs, one for each node of the next level, "
            f"got {n_outputs}"
        )
    if n_outputs != weights.shape[1]:
        raise ValueError(
            f"{folder}: expected {weights.shape[1]} rows in C.npz, one for each column of W.npz, got "
            f"{n_outputs}"
        )
    if np.bincount(clusters.indices, minlength=n_outputs).max(initial=0) > 1:
        raise ValueError(f"{folder}: expected each label in one cluster, got a label in several clusters")
    nodes = []
    for node in range(n_nodes):
        outputs = np.sort(clusters.indices[clusters.indptr[node] : clusters.indptr[node + 1]])
        W = csr_array(weights[:, outputs])
        intercept = np.zeros(len(outputs), dtype=np.float32)
        if bias > 0:
            intercept = (bias * W[[-1]].toarray()[0]).astype(np.float32)
            W = csr_array(W[:-1])
        if below:
            nodes.append(_Node(W, intercept, children=[below[output] for output in outputs]))
        else:
            nodes.append(_Node(W, intercept, labels=outputs.astype(np.int32)))
    return nodes


def _assembled(roots: list[_Node], n_features: int) -> LabelTreeClassifier:
    """Return a fitted classifier with the given trees.

    The caller sets the attributes that depend on the program that trained the trees.
    """
    nodes = list(roots)
    children = [len(roots)]
    parents: list[tuple[int, NDArray[np.float32]]] = []
    at = 0
    while at < len(nodes):
        node = nodes[at]
        if node.weights.shape[1] > _MOST_OUTPUTS:
            raise ValueError(
                f"a node must have at most {_MOST_OUTPUTS} children or labels, got {node.weights.shape[1]}"
            )
        if node.children:
            parents.append((len(nodes), node.intercept))
        nodes += node.children
        children.append(len(nodes))
        at += 1
    model = LabelTreeClassifier(1.0, n_trees=len(roots), path_weight=1.0, threshold="zero")
    model.node_children_ = np.array(children, dtype=np.int64)
    model.node_intercept_ = np.zeros(len(nodes), dtype=np.float32)
    for first, intercept in parents:
        model.node_intercept_[first : first + len(intercept)] = intercept
    model.node_label_ends_ = _ends([len(node.labels) for node in nodes])
    model.leaf_labels_ = np.concatenate([node.labels for node in nodes])
    model.leaf_intercept_ = np.concatenate(
        [np.empty(0, np.float32), *(node.intercept for node in nodes if not node.children)]
    )
    chunks = [_chunk(node.weights) for node in nodes]
    for name, of_chunk in zip(("bucket", "feature", "weight"), (0, 1, 4), strict=True):
        setattr(model, f"chunk_{name}_ends_", _ends([len(chunk[of_chunk]) for chunk in chunks]))
    names = ("buckets", "features", "row_ends", "outputs", "weights")
    for name, arrays in zip(names, zip(*chunks, strict=True), strict=True):
        setattr(model, f"chunk_{name}_", np.concatenate(arrays))
    model.C_, model.n_iter_ = 1.0, 0
    model.by_leaf_, model.path_weight_ = False, 1.0
    model.threshold_ = -1.0  # the score of a label with margin 0, for both powers of the margin
    model.classes_ = np.arange(int(model.leaf_labels_.max(initial=-1)) + 1)
    model.sparse_output_ = True
    model.n_features_in_ = n_features
    return model


def _ends(sizes: list[int]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _chunk(weights: csr_array) -> tuple[NDArray[Any], ...]:
    """Return the weights of a node as the five arrays that the Rust core uses.

    - Array 1 holds, for each bucket of a hash table of features, the position in array 2 at which the bucket
      begins. The last entry is the length of array 2.
    - Array 2 holds the features with nonzero weights, in the order of the buckets.
    - Arrays 3 to 5 hold the weights in CSR format, with one row for each feature in array 2. Array 3 holds
      the row ends, without a leading 0. Array 4 holds the outputs (column indices). Array 5 holds the weights
      themselves.
    """
    weights.sum_duplicates()
    weights.eliminate_zeros()
    features = np.flatnonzero(np.diff(weights.indptr))
    # As in the core, there are at least half as many buckets as features, and their number is a power of two.
    bits = max(int(len(features) // 2) - 1, 0).bit_length()
    hashes = (features.astype(np.uint64) * _HASH) & np.uint64(0xFFFFFFFF)
    buckets = (hashes >> np.uint64(32 - bits)).astype(np.int64)
    order = np.argsort(buckets, kind="stable")
    features = features[order]
    table = _ends(np.bincount(buckets, minlength=1 << bits).tolist()).astype(np.uint32)
    rows = weights[features]
    return (
        table,
        features.astype(np.uint32),
        np.cumsum(np.diff(rows.indptr)).astype(np.uint32),
        rows.indices.astype(np.uint16),
        rows.data.astype(np.float32),
    )
