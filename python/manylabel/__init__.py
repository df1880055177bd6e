"""Multi-label and extreme multi-label classification with scikit-learn's API and a Rust core."""

from importlib.metadata import version

from manylabel import (
    correlated,
    datasets,
    decision,
    link,
    metrics,
    model_selection,
    partition,
    plotting,
    rules,
    shards,
    tagging,
    tree,
)
from manylabel.correlated import CorrLogClassifier
from manylabel.diagnosis import doctor
from manylabel.embedding import Rembrandt
from manylabel.linear import DiSMECClassifier, LEMLClassifier, PDSparseClassifier
from manylabel.link import SmoothLinkClassifier
from manylabel.memory import memory_limit
from manylabel.partition import BlockPartitionClassifier, BlockPartitioner, CBMLCClassifier, LPSRClassifier
from manylabel.persistence import load, save
from manylabel.planning import Plan, plan
from manylabel.rules import BoostedRulesClassifier
from manylabel.tagging import TextTagger
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
    "Plan",
    "Rembrandt",
    "SmoothLinkClassifier",
    "TextTagger",
    "__version__",
    "correlated",
    "datasets",
    "decision",
    "doctor",
    "link",
    "load",
    "memory_limit",
    "metrics",
    "model_selection",
    "partition",
    "plan",
    "plotting",
    "rules",
    "save",
    "shards",
    "tagging",
    "tree",
]

__version__ = version("manylabel")
