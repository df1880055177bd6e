"""Splits, cross-validation and parameter searches for multi-label data, with a sparse or a dense Y."""

from manylabel.model_selection.scorers import scorer
from manylabel.model_selection.splits import MultilabelStratifiedKFold, iterative_split
from manylabel.model_selection.validation import cross_val_predict, cross_validate, search

__all__ = [
    "MultilabelStratifiedKFold",
    "cross_val_predict",
    "cross_validate",
    "iterative_split",
    "scorer",
    "search",
]
