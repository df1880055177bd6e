"""Label trees: linear classifiers in a tree over the labels, for very large numbers of labels."""

from manylabel.tree.classifier import LabelTreeClassifier

__all__ = ["LabelTreeClassifier"]
