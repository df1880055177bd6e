"""Multi-label and extreme multi-label classification with scikit-learn's API and a Rust core."""

from importlib.metadata import version

from manylabel import datasets, metrics, partition, rules
from manylabel.linear import DiSMECClassifier
from manylabel.partition import BlockPartitionClassifier, BlockPartitioner, CBMLCClassifier, LPSRClassifier
from manylabel.persistence import load
from manylabel.rules import BoostedRulesClassifier

__all__ = [
    "BlockPartitionClassifier",
    "BlockPartitioner",
    "BoostedRulesClassifier",
    "CBMLCClassifier",
    "DiSMECClassifier",
    "LPSRClassifier",
    "__version__",
    "datasets",
    "load",
    "metrics",
    "partition",
    "rules",
]

__version__ = version("manylabel")
