"""Block-wise partitioning for extreme multi-label classification, and baselines for it."""

from manylabel.partition.classifier import BlockPartitionClassifier
from manylabel.partition.clustered import CBMLCClassifier, LPSRClassifier
from manylabel.partition.partitioner import BlockPartitioner

__all__ = ["BlockPartitionClassifier", "BlockPartitioner", "CBMLCClassifier", "LPSRClassifier"]
