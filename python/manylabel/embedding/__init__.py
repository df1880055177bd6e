"""Low-dimensional label embeddings that a linear model can predict from the features."""

from manylabel.embedding.rembrandt import Rembrandt

__all__ = ["Rembrandt"]
