"""Calibrated probabilities of labels, and rules that choose label sets from probabilities."""

from manylabel.decision.calibrator import LabelCalibrator
from manylabel.decision.classifier import DecisionClassifier
from manylabel.decision.f1_inference import F1Inference
from manylabel.decision.hierarchy import HierarchicalSets
from manylabel.decision.risk import RiskControl
from manylabel.decision.rules import Costs, ExpectedF1, TopLabels
from manylabel.decision.thresholds import Thresholds

__all__ = [
    "Costs",
    "DecisionClassifier",
    "ExpectedF1",
    "F1Inference",
    "HierarchicalSets",
    "LabelCalibrator",
    "RiskControl",
    "Thresholds",
    "TopLabels",
]
