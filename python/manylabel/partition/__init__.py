"""Block-wise partitioning for extreme multi-label classification, and two baseline methods."""

from manylabel.partition.classifier import BlockPartitionClassifier
from manylabel.partition.clustered import CBMLCClassifier, LPSRClassifier
from manylabel.partition.partitioner import BlockPartitioner

__all__ = ["BlockPartitionClassifier", "BlockPartitioner", "CBMLCClassifier", "LPSRClassifier"]
