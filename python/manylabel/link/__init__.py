"""Classifier that predicts all labels of a row together, by a nonlinear function of linear predictions."""

from manylabel.link.classifier import SmoothLinkClassifier, smooth_link_space

__all__ = ["SmoothLinkClassifier", "smooth_link_space"]
