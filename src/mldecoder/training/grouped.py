"""Training on very many labels: the loss is computed with the group layer, block by block, and logits never exist."""

from torch import Tensor, nn

from mldecoder.errors import ConfigError
from mldecoder.heads import MLDecoder, MLDecoderPlus
from mldecoder.heads.split import SplitGroupLinear
from mldecoder.losses import grouped_loss, split_loss
from mldecoder.losses.grouped import COSTS
from mldecoder.model import Classifier
from mldecoder.recipes import Recipe

__all__ = ["MANY", "GroupedTraining", "grouped_training"]

MANY = 20_000  # labels from which on it is taken unasked: then a batch of 64 has over a million logits


class GroupedTraining(nn.Module):
    """A model as it is trained on very many labels: pictures and targets in, their loss out.

    Args:
        model: A model with an ML-Decoder head.
        kind: The loss, one of those with a sigmoid a label.
        options: Its options.
    """

    def __init__(self, model: Classifier, kind: str, options: dict[str, float | bool | str | None]) -> None:
        super().__init__()
        self.model, self.kind, self.options = model, kind, options

    def forward(self, images: Tensor, targets: Tensor) -> Tensor:
        """Pictures ``(b, 3, h, w)`` and targets ``(b, n)`` to the loss ``()``."""
        head = self.model.head
        if not isinstance(head, MLDecoder):
            raise ConfigError(f"The grouped loss needs an ML-Decoder head, got {type(head).__name__}.")
        decoded = head.decode(self.model.backbone(images))
        layer: nn.Module = head.classify
        if isinstance(layer, SplitGroupLinear):
            return split_loss(decoded, layer, targets, kind=self.kind, options=self.options)
        return grouped_loss(decoded, head.classify, targets, kind=self.kind, options=self.options)


def grouped_training(model: Classifier, recipe: Recipe) -> GroupedTraining | None:
    """The model with its loss in blocks, where the recipe wishes or needs it, or there are very many labels."""
    wish = True if recipe.training.parallel == "split" else recipe.training.grouped_loss
    kind, options = recipe.named_loss(model.config.task)
    plain = isinstance(model.head, MLDecoder) and not isinstance(model.head, MLDecoderPlus)  # logits from queries alone
    reasons = {
        f"head.kind={model.config.head.kind}": not plain,
        f"loss.kind={kind}": kind not in COSTS,
        "training.compile=true": recipe.training.compile,
    }
    against = [name for name, true in reasons.items() if true]
    if wish and against:
        raise ConfigError(
            f"training.grouped_loss needs head.kind=ml-decoder, a loss among {', '.join(COSTS)} and no compiling, "
            f"got {against[0]}. Change that, or leave training.grouped_loss out."
        )
    if against or wish is False or (wish is None and model.num_classes < MANY):
        return None
    return GroupedTraining(model, kind, options)
