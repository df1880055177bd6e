"""Multi-label and extreme multi-label classification with scikit-learn's API and a Rust core."""

from importlib.metadata import version

from manylabel import correlated, datasets, decision, link, metrics, rules
from manylabel.correlated import CorrLogClassifier
from manylabel.linear import DiSMECClassifier
from manylabel.link import SmoothLinkClassifier
from manylabel.persistence import load
from manylabel.pls import Rembrandt
from manylabel.rules import BoostedRulesClassifier

__all__ = [
    "BoostedRulesClassifier",
    "CorrLogClassifier",
    "DiSMECClassifier",
    "Rembrandt",
    "SmoothLinkClassifier",
    "__version__",
    "correlated",
    "datasets",
    "decision",
    "link",
    "load",
    "metrics",
    "rules",
]

__version__ = version("manylabel")
