"""Metrics for tags and for classes: pure functions, and small classes that collect batches.

Functions return fractions (0 to 1); ``compute()`` of the classes returns percent (0 to 100), as papers print them.
A target above 0 is positive, 0 is negative, below 0 is unknown: unknown entries take no part anywhere.
"""

from mldecoder.metrics.average_precision import MeanAveragePrecision as MeanAveragePrecision
from mldecoder.metrics.average_precision import average_precision as average_precision
from mldecoder.metrics.average_precision import mean_average_precision as mean_average_precision
from mldecoder.metrics.collect import MultiLabelMetrics as MultiLabelMetrics
from mldecoder.metrics.collect import SingleLabelMetrics as SingleLabelMetrics
from mldecoder.metrics.counts import precision_recall as precision_recall
from mldecoder.metrics.counts import precision_recall_at_k as precision_recall_at_k
from mldecoder.metrics.counts import top_k_accuracy as top_k_accuracy
