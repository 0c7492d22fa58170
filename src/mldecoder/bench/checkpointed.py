"""ML-Decoder with ``checkpoint_layers``, to be measured beside the others as a peer: less memory, more time."""

from functools import partial

from mldecoder.heads import MLDecoder

__all__ = ["CheckpointedMLDecoder"]

CheckpointedMLDecoder = partial(MLDecoder, checkpoint_layers=True)
