"""Classifier that scores labels by a nonlinear function of a few linear predictions."""

from manylabel.link.classifier import SmoothLinkClassifier, smooth_link_space

__all__ = ["SmoothLinkClassifier", "smooth_link_space"]
