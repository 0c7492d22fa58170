"""Losses for tags and for classes: pure functions, and ``build`` for recipes.

Shapes: b images, n classes.

A target is 1, 0, anything between (mixup), or below 0: unknown. An unknown entry costs nothing and gets no
gradient, whatever its logit. Logits may be half precision; all arithmetic is float32 (float64 stays float64).

``reduction`` is the same for all:
    ``"sum"``         sum over everything, as in the paper's loss;
    ``"mean"``        that sum divided by the number of entries (softmax: images) that take part;
    ``"image_mean"``  that sum divided by b, so that the learning rate does not depend on the batch size;
    ``"none"``        nothing is added up: (b, n), or (b,) for softmax.
``sample_weights`` (b,) and ``class_weights`` (n,) multiply the costs and never enter a denominator.
``grouped_loss`` takes what comes before the logits, for heads of so many classes that their logits do not fit;
``split_loss`` is the same where the layer itself does not fit and is split over processes.
Values of targets are not checked: that would stop a GPU at every step.
"""

from mldecoder.losses.angular import angular_loss as angular_loss
from mldecoder.losses.grouped import grouped_loss as grouped_loss
from mldecoder.losses.registry import LOSSES as LOSSES
from mldecoder.losses.registry import Loss as Loss
from mldecoder.losses.registry import build as build
from mldecoder.losses.sigmoid import asymmetric_loss as asymmetric_loss
from mldecoder.losses.sigmoid import binary_cross_entropy as binary_cross_entropy
from mldecoder.losses.sigmoid import focal_loss as focal_loss
from mldecoder.losses.softmax import softmax_cross_entropy as softmax_cross_entropy
from mldecoder.losses.sparse_targets import SparseTargets as SparseTargets
from mldecoder.losses.split import split_loss as split_loss
