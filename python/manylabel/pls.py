"""Label embeddings under the name of what they compute, partial least squares; see `manylabel.embedding`."""

from manylabel.embedding import Rembrandt

__all__ = ["Rembrandt"]
