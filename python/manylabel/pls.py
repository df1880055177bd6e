"""Alternative import path for `manylabel.embedding.Rembrandt`, which uses partial least squares (PLS)."""

from manylabel.embedding import Rembrandt

__all__ = ["Rembrandt"]
