"""Label trees: one-vs-rest classifiers for very many labels."""

from manylabel.tree.classifier import LabelTreeClassifier

__all__ = ["LabelTreeClassifier"]
