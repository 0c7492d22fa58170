"""ML-Decoder that computes its layer again in the backward pass, to be measured beside the others as a peer."""

from mldecoder.heads import MLDecoder

__all__ = ["CheckpointedMLDecoder"]


class CheckpointedMLDecoder(MLDecoder):
    """ML-Decoder with ``checkpoint_layers``: less memory in training, more time.

    Args:
        num_classes: Classes.
        in_features: Channels of the features.
        num_queries: Queries.
        width: Width of the decoder.
        ff_width: Feed-forward width.
    """

    def __init__(
        self,
        num_classes: int,
        in_features: int,
        num_queries: int | None = None,
        *,
        width: int = 768,
        ff_width: int = 2048,
    ) -> None:
        super().__init__(
            num_classes,
            in_features,
            num_queries=num_queries,
            width=width,
            ff_width=ff_width,
            checkpoint_layers=True,
        )
