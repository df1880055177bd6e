"""Classifiers that split rows and labels into blocks, for data with very many labels."""

from manylabel.partition.classifier import BlockPartitionClassifier
from manylabel.partition.clustered import CBMLCClassifier, LPSRClassifier
from manylabel.partition.partitioner import BlockPartitioner

__all__ = ["BlockPartitionClassifier", "BlockPartitioner", "CBMLCClassifier", "LPSRClassifier"]
