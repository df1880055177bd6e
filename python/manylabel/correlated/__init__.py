"""Logistic regressions, one per label, with an additional weight (coupling) for each pair of labels."""

from manylabel.correlated.classifier import CorrLogClassifier, corrlog_path, corrlog_space
from manylabel.correlated.inspection import Explanation

__all__ = ["CorrLogClassifier", "Explanation", "corrlog_path", "corrlog_space"]
