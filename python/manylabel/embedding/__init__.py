"""Randomized partial least squares: low-dimensional embeddings of labels that features can predict."""

from manylabel.embedding.rembrandt import Rembrandt

__all__ = ["Rembrandt"]
