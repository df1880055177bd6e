"""A second import path for `manylabel.embedding`. PLS is short for partial least squares."""

from manylabel.embedding import Rembrandt

__all__ = ["Rembrandt"]
