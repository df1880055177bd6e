"""Readers and writers of local data files, a small real data set, and synthetic data sets."""

from manylabel.datasets.files import dump_xc, load_arff, load_xc
from manylabel.datasets.made import load_digit_attributes, make_multilabel
from manylabel.datasets.rows import convert, open_rows

__all__ = [
    "convert",
    "dump_xc",
    "load_arff",
    "load_digit_attributes",
    "load_xc",
    "make_multilabel",
    "open_rows",
]
