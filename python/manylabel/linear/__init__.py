"""Linear classifiers for data with many features and many labels."""

from manylabel.linear.dismec import DiSMECClassifier
from manylabel.linear.leml import LEMLClassifier
from manylabel.linear.pdsparse import PDSparseClassifier

__all__ = ["DiSMECClassifier", "LEMLClassifier", "PDSparseClassifier"]
