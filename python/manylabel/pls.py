"""Label embeddings (see `manylabel.embedding`), named after their method, partial least squares."""

from manylabel.embedding import Rembrandt

__all__ = ["Rembrandt"]
