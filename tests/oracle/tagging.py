"""A slow oracle for taggers: the indicator matrix of lists of names."""

import numpy as np


def indicator_of_lists(rows):
    """The sorted names, and the 0/1 matrix of the lists, as a dense array."""
    names = sorted({name for row in rows for name in row})
    return names, np.array([[float(name in row) for name in names] for row in rows])
