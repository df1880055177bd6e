"""Gradient-boosted rules for multi-label classification, a human-readable model."""

from manylabel.rules.classifier import BoostedRulesClassifier
from manylabel.rules.inspection import FiredRule, Rules, export_text, plot_importance

__all__ = ["BoostedRulesClassifier", "FiredRule", "Rules", "export_text", "plot_importance"]
