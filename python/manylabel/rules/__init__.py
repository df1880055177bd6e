"""Gradient-boosted rules: a human-readable model for multi-label classification."""

from manylabel.rules.classifier import BoostedRulesClassifier
from manylabel.rules.inspection import FiredRule, Rules, export_text, plot_importance

__all__ = ["BoostedRulesClassifier", "FiredRule", "Rules", "export_text", "plot_importance"]
