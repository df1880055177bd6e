"""Multi-label and extreme multi-label classification with scikit-learn's API and a Rust core."""

from importlib.metadata import version

from manylabel import datasets, metrics, rules
from manylabel.linear import DiSMECClassifier, LEMLClassifier, PDSparseClassifier
from manylabel.persistence import load
from manylabel.pls import Rembrandt
from manylabel.rules import BoostedRulesClassifier

__all__ = [
    "BoostedRulesClassifier",
    "DiSMECClassifier",
    "LEMLClassifier",
    "PDSparseClassifier",
    "Rembrandt",
    "__version__",
    "datasets",
    "load",
    "metrics",
    "rules",
]

__version__ = version("manylabel")
