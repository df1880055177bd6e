"""Multi-label and extreme multi-label classification with scikit-learn's API and a Rust core."""

from importlib.metadata import version

from manylabel import correlated, datasets, decision, link, metrics, partition, rules, shards, tree
from manylabel.correlated import CorrLogClassifier
from manylabel.embedding import Rembrandt
from manylabel.linear import DiSMECClassifier, LEMLClassifier, PDSparseClassifier
from manylabel.link import SmoothLinkClassifier
from manylabel.partition import BlockPartitionClassifier, BlockPartitioner, CBMLCClassifier, LPSRClassifier
from manylabel.persistence import load
from manylabel.rules import BoostedRulesClassifier
from manylabel.tree import LabelTreeClassifier

__all__ = [
    "BlockPartitionClassifier",
    "BlockPartitioner",
    "BoostedRulesClassifier",
    "CBMLCClassifier",
    "CorrLogClassifier",
    "DiSMECClassifier",
    "LEMLClassifier",
    "LPSRClassifier",
    "LabelTreeClassifier",
    "PDSparseClassifier",
    "Rembrandt",
    "SmoothLinkClassifier",
    "__version__",
    "correlated",
    "datasets",
    "decision",
    "link",
    "load",
    "metrics",
    "partition",
    "rules",
    "shards",
    "tree",
]

__version__ = version("manylabel")
