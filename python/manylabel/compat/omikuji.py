"""The Python interface of omikuji, implemented with `LabelTreeClassifier`.

The library omikuji trains label trees. In a program that uses omikuji, replace the import of omikuji by the
following line::

    from manylabel.compat import omikuji

If the source of a program cannot be changed, as for Annif's own backend ``omikuji``, run the following two
lines before the program imports omikuji::

    import sys, manylabel.compat.omikuji
    sys.modules["omikuji"] = manylabel.compat.omikuji

For Annif, write these lines to a file, and set the environment variable ``ANNIF_SETTINGS`` to the path of the
file. The package omikuji need not be installed.

`Model.load` also reads the folders that omikuji itself has written; see
:func:`manylabel.compat.load_omikuji`.

Notes
-----
The hyper-parameters have the names and default values of omikuji 0.5. They are converted as follows.

========================== ===================================================================================
omikuji                    `LabelTreeClassifier`
========================== ===================================================================================
n_trees                    ``n_trees``
min_branch_size            ``max_leaf=min_branch_size - 1``: a node with fewer than ``min_branch_size`` labels
                           is a leaf
max_depth                  1 means a single leaf. Any other value has no effect, but must be at least the
                           number of levels that the tree needs.
centroid_threshold         must be 0, because label vectors are not pruned
collapse_every_n_layers    ``branching=cluster_k ** (collapse_every_n_layers + 1)``
tree_structure_only        must be False
train_trees_1_by_1         no effect on the result; the trees share all threads in any case
linear_loss_type           must be ``LossType.HINGE``, the squared hinge loss
linear_eps                 ``tol=linear_eps / 30``. The classifier of a rare label or of a rare child node is
                           fitted by dual coordinate descent. For the definition of rare, see ``solver`` of
                           `LabelTreeClassifier`. Coordinate descent stops by the rule of omikuji. The
                           tolerance of this rule is ``30 * tol``, which is ``linear_eps``. For all other
                           classifiers, the stopping rule uses the norm of the gradient; see ``tol`` of
                           `DiSMECClassifier`.
linear_c                   ``C``
linear_weight_threshold    ``prune``
linear_max_iter            must be positive, and has no effect: solvers stop at ``tol`` or after 1,000 steps
cluster_k                  see collapse_every_n_layers
cluster_balanced           ``balanced``
cluster_eps                must be 0.0001, the default, because the clustering has no such tolerance
cluster_min_size           must be 2, the default, because the clustering has no such limit
========================== ===================================================================================

A value that cannot be converted raises a ValueError that states the reason.

A row is a negative example of a node if it has a label below a sibling of the node, but no label below the
node. This is the rule of omikuji (``negatives="siblings"``). In the score of a label, the label and all nodes
on the path to the label have the same weight (``path_weight=1``). The default values of `LabelTreeClassifier`
for `negatives` and `path_weight` are different. The default hyper-parameters of omikuji give binary trees.
With these hyper-parameters, ``negatives="siblings"`` and ``path_weight=1`` are better than the default values
of `LabelTreeClassifier`. On yso-finna-en, a data set of titles, they increase the precision at 5 from 24.38 %
to 25.13 %, and the fit takes half the time.

A score of `Model.predict` is ``exp(score + threshold_)``. Here ``score`` is the score of
`LabelTreeClassifier.predict_topk`, and ``threshold_`` is an attribute of `LabelTreeClassifier`. The scores of
`Model.predict` are from 0 to 1. If omikuji and this module train models on the same data, the scores of the
two models differ. `Model.load` can also read a model that omikuji has trained. If such a model has one tree,
`Model.predict` returns the same scores as omikuji, up to rounding.

Examples
--------
>>> import pathlib, tempfile
>>> import manylabel as ml
>>> from manylabel.compat import omikuji
>>> folder = pathlib.Path(tempfile.mkdtemp())
>>> ml.datasets.dump_xc(*ml.datasets.make_multilabel(200, 50, 10, random_state=0), folder / "train.txt")
>>> hyper_param = omikuji.Model.default_hyper_param()
>>> hyper_param.n_trees = 2
>>> model = omikuji.Model.train_on_data(str(folder / "train.txt"), hyper_param)
>>> model.save(str(folder / "model"))
>>> model = omikuji.Model.load(str(folder / "model"))
>>> len(model.predict([(0, 0.6), (3, 0.8)], top_k=3))
3
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import Enum
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from manylabel.datasets import load_xc
from manylabel.estimator.base import core_rows
from manylabel.estimator.parameters import check_count, shown
from manylabel.persistence import load
from manylabel.tree import LabelTreeClassifier

__all__ = ["HyperParam", "LossType", "Model"]

# The file in the folder of a model.
_FILE = "model.safetensors"

# The largest number of children of a node, and of labels of a leaf.
_MOST_OUTPUTS = 2**16 - 1

# The solvers stop if projected gradients differ by at most 30 * tol. LIBLINEAR and omikuji stop at eps.
_EPS_OF_TOL = 30


class LossType(Enum):
    """Losses of the linear classifiers. Only models with the squared hinge loss can be trained."""

    HINGE = 0
    LOG = 1


@dataclass(slots=True)
class HyperParam:
    """Hyper-parameters of `Model.train_on_data`, with the names and defaults of omikuji.

    The Notes of the module describe how the hyper-parameters are converted to parameters of
    `LabelTreeClassifier`. Setting an attribute that omikuji does not have raises an AttributeError.
    """

    n_trees: int = 3
    min_branch_size: int = 100
    max_depth: int = 20
    centroid_threshold: float = 0.0
    collapse_every_n_layers: int = 0
    tree_structure_only: bool = False
    train_trees_1_by_1: bool = False
    linear_loss_type: LossType | int = LossType.HINGE
    linear_eps: float = 0.1
    linear_c: float = 1.0
    linear_weight_threshold: float = 0.1
    linear_max_iter: int = 20
    cluster_k: int = 2
    cluster_balanced: bool = True
    cluster_eps: float = 0.0001
    cluster_min_size: int = 2

    def classifier(self, n_labels: int) -> LabelTreeClassifier:
        """Return an unfitted classifier with these hyper-parameters.

        Parameters
        ----------
        n_labels : int
            Number of labels of the data.

        Returns
        -------
        LabelTreeClassifier
            The classifier, with seed 0.

        Raises
        ------
        ValueError
            If a hyper-parameter is not valid, or has a value that this module does not support. The message
            states the reason.
        """
        for name, value in asdict(self).items():
            _CHECKS[name](name, value)
        branching = self.cluster_k ** min(self.collapse_every_n_layers + 1, 17)
        if branching > _MOST_OUTPUTS:
            raise _unsupported(
                "collapse_every_n_layers",
                "smaller",
                self.collapse_every_n_layers,
                f"a node can have at most {_MOST_OUTPUTS} children, and would have {self.cluster_k} ** "
                f"{self.collapse_every_n_layers + 1} children",
            )
        max_leaf = min(self.min_branch_size - 1, _MOST_OUTPUTS)
        if self.max_depth == 1:
            if n_labels > _MOST_OUTPUTS:
                raise _unsupported(
                    "max_depth",
                    "at least 2",
                    self.max_depth,
                    f"a leaf has at most {_MOST_OUTPUTS} labels, and the data have {n_labels}",
                )
            max_leaf = max(n_labels, 1)
        levels, leaves = 1, 1
        while leaves * max_leaf < n_labels:
            levels, leaves = levels + 1, leaves * branching
        if levels > self.max_depth:
            raise _unsupported(
                "max_depth",
                f"at least {levels}" if n_labels > _MOST_OUTPUTS else f"1 or at least {levels}",
                self.max_depth,
                f"with {branching} children per node and {max_leaf} labels per leaf, a tree of "
                f"{n_labels} labels has at least {levels} levels",
            )
        return LabelTreeClassifier(
            float(self.linear_c),
            n_trees=self.n_trees,
            branching=branching,
            max_leaf=max_leaf,
            balanced=bool(self.cluster_balanced),
            negatives="siblings",
            path_weight=1.0,
            prune=float(self.linear_weight_threshold),
            tol=float(self.linear_eps) / _EPS_OF_TOL,
            threshold="zero",
            normalize=True,
            random_state=0,
        )


class Model:
    """A label-tree classifier with the methods of omikuji's class ``Model``.

    Call `load` or `train_on_data` to make a model.

    Parameters
    ----------
    classifier : LabelTreeClassifier
        A fitted classifier.
    """

    def __init__(self, classifier: LabelTreeClassifier) -> None:
        self._classifier = classifier

    @property
    def classifier(self) -> LabelTreeClassifier:
        """The fitted classifier. It has further methods, for example for predictions of many rows at once."""
        return self._classifier

    @property
    def n_features(self) -> int:
        """Number of features."""
        return int(self._classifier.n_features_in_)

    @property
    def n_trees(self) -> int:
        """Number of trees."""
        return int(self._classifier.node_children_[0])

    @classmethod
    def default_hyper_param(cls) -> HyperParam:
        """Return the default hyper-parameters, as an object whose attributes can be changed.

        Returns
        -------
        HyperParam
            The hyper-parameters.
        """
        return HyperParam()

    @classmethod
    def train_on_data(
        cls, data_path: str, hyper_param: HyperParam | None = None, n_threads: int | None = None
    ) -> Model:
        """Train a model on a file in the format of the Extreme Classification Repository.

        Parameters
        ----------
        data_path : str
            The file; see :func:`manylabel.datasets.load_xc`.
        hyper_param : HyperParam or None, default=None
            Hyper-parameters. None means the defaults.
        n_threads : int or None, default=None
            Number of threads. None and 0 mean all cores.

        Returns
        -------
        Model
            The model. The same file and hyper-parameters give the same model, with any number of threads.

        Raises
        ------
        RuntimeError
            If the file does not exist or is malformed.
        ValueError
            If `hyper_param` is not a HyperParam, if `n_threads` or a hyper-parameter is not valid, or if a
            hyper-parameter has a value that this module does not support. The message states the reason.
        """
        threads = _threads(n_threads)
        hyper_param = cls.default_hyper_param() if hyper_param is None else hyper_param
        if not isinstance(hyper_param, HyperParam):
            raise ValueError(
                f"`hyper_param` must be a HyperParam or None, got {type(hyper_param).__name__}; "
                "`default_hyper_param()` returns a HyperParam"
            )
        try:
            X, Y = load_xc(data_path, n_jobs=threads)
        except (OSError, ValueError) as error:
            raise RuntimeError(f"Failed to load data from {data_path}: {error}") from error
        classifier = hyper_param.classifier(Y.shape[1]).set_params(n_jobs=threads).fit(X, Y)
        return cls(classifier.set_params(n_jobs=None))

    @classmethod
    def load(cls, path: str) -> Model:
        """Load a model from a folder that `save` or omikuji itself has written.

        Parameters
        ----------
        path : str
            The folder.

        Returns
        -------
        Model
            The model. If `save` has written the folder, the model file is memory-mapped, so processes share
            the memory of the weights. A folder of omikuji is read into the memory of each process.

        Raises
        ------
        RuntimeError
            If the folder has no valid model.
        ImportError
            If omikuji itself has written the folder, and the package cbor2 is not installed.
        """
        try:
            folder = Path(path)
            if not (folder / _FILE).exists() and (folder / "settings.json").exists():
                from manylabel.compat.trees import load_omikuji

                return cls(load_omikuji(folder))
            classifier = load(folder / _FILE)
        except (OSError, ValueError) as error:
            raise RuntimeError(f"Failed to load model from {path}: {error}") from error
        if not isinstance(classifier, LabelTreeClassifier):
            raise RuntimeError(
                f"Failed to load model from {path}: expected a LabelTreeClassifier, got "
                f"{type(classifier).__name__}"
            )
        return cls(classifier)

    def save(self, path: str) -> None:
        """Save the model to a folder.

        Parameters
        ----------
        path : str
            The folder, which is created if it does not exist. The model is saved in this folder, as the file
            ``model.safetensors``.

        Raises
        ------
        RuntimeError
            If the file cannot be written, or if the folder already has a model. In contrast to omikuji, this
            method does not add trees to an existing model.
        """
        folder = Path(path)
        found = [name for name in (_FILE, "settings.json") if (folder / name).exists()]
        if found:
            raise RuntimeError(
                f"Failed to save model to {path}: expected a folder without a model, got a folder with the "
                f"file {found[0]}"
            )
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._classifier.save(folder / _FILE)
        except OSError as error:
            raise RuntimeError(f"Failed to save model to {path}: {error}") from error

    def predict(
        self, feature_value_pairs: Iterable[tuple[int, float]], beam_size: int = 10, top_k: int = 10
    ) -> list[tuple[int, float]]:
        """Predict the best labels of one row.

        Parameters
        ----------
        feature_value_pairs : iterable of tuple (int, float)
            The features of the row and their values, in any order.
        beam_size : int, default=10
            Maximum number of nodes that the row visits on each level of a tree; >= 1.
        top_k : int, default=10
            Maximum number of labels; >= 1.

        Returns
        -------
        list of tuple (int, float)
            The labels and their scores, best label first. The scores are from 0 to 1; see the Notes of the
            module.

        Raises
        ------
        ValueError
            If a feature is given twice or does not exist, if a value is not finite, or if `beam_size` or
            `top_k` is not valid.
        """
        pairs = sorted(feature_value_pairs)
        features = np.array([feature for feature, _ in pairs], dtype=np.int64)
        values = np.array([value for _, value in pairs], dtype=np.float32)
        if len(features) and not (
            features[0] >= 0 and features[-1] < self.n_features and (features[1:] > features[:-1]).all()
        ):
            raise ValueError(
                f"`feature_value_pairs` must have features from 0 to {self.n_features - 1}, each at most "
                f"once, got {shown(features.tolist())}"
            )
        row = core_rows(
            (np.array([0, len(features)], dtype=np.int32), features.astype(np.int32), values),
            (1, self.n_features),
        )
        top = self._classifier.predict_topk(row, k=top_k, beam=beam_size)
        order = np.argsort(-top.data, kind="stable")
        # The threshold is subtracted from the logarithms of probabilities.
        probabilities = np.exp(top.data[order] + np.float32(self._classifier.threshold_))
        return list(zip(top.indices[order].tolist(), probabilities.tolist(), strict=True))

    def init_prediction_thread_pool(self, n_threads: int | None) -> None:
        """Set the number of threads (the parameter `n_jobs`) of the attribute `classifier`.

        The method `predict` of this class is not affected. It scores a single row with one thread.

        Parameters
        ----------
        n_threads : int or None
            Number of threads. None and 0 mean all cores.

        Raises
        ------
        ValueError
            If `n_threads` is neither None nor an integer >= 0.
        """
        self._classifier.set_params(n_jobs=_threads(n_threads))

    def densify_weights(self, max_sparse_density: float = 0.1, n_threads: int | None = None) -> None:
        """Check the arguments, and do nothing else.

        In omikuji, this method converts weights to dense arrays to make predictions faster.
        `LabelTreeClassifier` looks up weights in hash tables when it predicts, so it needs no dense arrays.

        Parameters
        ----------
        max_sparse_density : float, default=0.1
            Not used.
        n_threads : int or None, default=None
            Not used.

        Raises
        ------
        ValueError
            If an argument is not valid.
        """
        if not 0 <= max_sparse_density <= 1:
            raise ValueError(
                f"`max_sparse_density` must be a number from 0 to 1, got {shown(max_sparse_density)}"
            )
        _threads(n_threads)


def _threads(n_threads: int | None) -> int:
    """Convert omikuji's number of threads to a value of `n_jobs`."""
    return -1 if n_threads is None else check_count("n_threads", n_threads, 0) or -1


def _unsupported(name: str, wanted: str, value: Any, reason: str) -> ValueError:
    return ValueError(f"`{name}` must be {wanted}, got {shown(value)}; {reason}")


def _count(least: int) -> Any:
    return lambda name, value: check_count(name, value, least)


def _number(least: float, *, above: bool = False) -> Any:
    def check(name: str, value: Any) -> None:
        if isinstance(value, bool | str) or not (least < value if above else least <= value) or value == inf:
            raise ValueError(
                f"`{name}` must be finite and {'>' if above else '>='} {least}, got {shown(value)}"
            )

    return check


def _flag(name: str, value: Any) -> None:
    if value not in (0, 1):
        raise ValueError(f"`{name}` must be True or False, got {shown(value)}")


def _only(wanted: Any, reason: str) -> Any:
    def check(name: str, value: Any) -> None:
        if value != wanted:
            raise _unsupported(name, str(wanted), value, reason)

    return check


def _loss(name: str, value: Any) -> None:
    if value not in (LossType.HINGE, LossType.HINGE.value):
        reason = "this module fits only models with the squared hinge loss"
        raise _unsupported(name, "LossType.HINGE", value, reason)


_CHECKS = {
    "n_trees": _count(1),
    "min_branch_size": _count(2),
    "max_depth": _count(1),
    "centroid_threshold": _only(0, "label vectors are not pruned"),
    "collapse_every_n_layers": _count(0),
    "tree_structure_only": _only(False, "a tree without classifiers cannot predict"),
    "train_trees_1_by_1": _flag,
    "linear_loss_type": _loss,
    "linear_eps": _number(0, above=True),
    "linear_c": _number(0, above=True),
    "linear_weight_threshold": _number(0),
    "linear_max_iter": _count(1),
    "cluster_k": _count(2),
    "cluster_balanced": _flag,
    "cluster_eps": _only(0.0001, "the clustering has no such tolerance"),
    "cluster_min_size": _only(2, "the clustering has no such limit"),
}
