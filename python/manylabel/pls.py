"""Another import path for `manylabel.embedding`; PLS means partial least squares."""

from manylabel.embedding import Rembrandt

__all__ = ["Rembrandt"]
