"""Multi-label and extreme multi-label classification with scikit-learn's API and a Rust core."""

from importlib.metadata import version

from manylabel import datasets, metrics
from manylabel.linear import DiSMECClassifier
from manylabel.persistence import load

__all__ = ["DiSMECClassifier", "__version__", "datasets", "load", "metrics"]

__version__ = version("manylabel")
