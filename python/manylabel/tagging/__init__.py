"""Tagging of texts: `TextTagger` learns named labels from texts, and `read_texts` reads files of texts."""

from manylabel.tagging.sources import read_texts
from manylabel.tagging.tagger import TextTagger

__all__ = ["TextTagger", "read_texts"]
