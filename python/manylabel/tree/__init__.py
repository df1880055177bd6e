"""Label trees: one-vs-rest classifiers for very large numbers of labels."""

from manylabel.tree.classifier import LabelTreeClassifier

__all__ = ["LabelTreeClassifier"]
