"""Label embeddings, which summarize the labels of a row by a short vector."""

from manylabel.embedding.rembrandt import Rembrandt

__all__ = ["Rembrandt"]
