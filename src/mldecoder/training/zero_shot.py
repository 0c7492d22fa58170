"""Training by words: the seen labels' vectors, varied in each step, and the targets that go with them.

The paper's query augmentations (section *ML-Decoder for ZSL*) and what we add to them. They change vectors and targets
of a step, never what is saved. Random numbers come from torch's generator, which the loop sets anew for every step.

Shapes: b batch, n labels, r random queries, x mixed queries, e text width.
"""

import math

import torch
from torch import Tensor, nn

from mldecoder.data.dataset import UNKNOWN
from mldecoder.errors import ConfigError
from mldecoder.heads import ZeroShotMLDecoder
from mldecoder.model import Classifier
from mldecoder.recipes.recipe import ZeroShotSettings

__all__ = ["WordTraining", "cutout", "mixed_queries", "noisy", "random_queries"]


class WordTraining(nn.Module):
    """A zero-shot model as it is trained: pictures and the seen labels' targets in, logits and targets out.

    Args:
        model: The model; its ``seen`` labels are those of the targets, in that order.
        settings: Which augmentations.
    """

    rows: Tensor

    def __init__(self, model: Classifier, settings: ZeroShotSettings) -> None:
        super().__init__()
        head = model.head
        if not isinstance(head, ZeroShotMLDecoder):
            raise ConfigError("The settings in zero_shot are for the zero-shot head. Set head.kind=zero-shot.")
        if model.config.task == "single-label" and (settings.random_queries or settings.mix):
            raise ConfigError(
                "zero_shot.random_queries and zero_shot.mix are for pictures with several labels. Set them to 0."
            )
        self.model, self.settings = model, settings
        place = {label: i for i, label in enumerate(model.labels)}
        self.register_buffer("rows", torch.tensor([place[label] for label in model.seen]), persistent=False)
        self.says_random: nn.Linear | None = None
        if settings.random_queries and settings.random_reading == "extra":
            if head.group_size > 1:
                raise ConfigError(
                    "zero_shot.random_reading=extra needs a query of its own for each label (head.group_size=1). "
                    "Take class or negatives with groups."
                )
            self.says_random = nn.Linear(head.decoder.embed.out_features, 1)
        # A readout that is learnt place by place must find its labels where they were.
        self.shuffle = settings.shuffle
        if self.shuffle is None:
            self.shuffle = head.group_size > 1 and head.readout == "text"

    def forward(self, images: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Pictures and targets ``(b, n)`` to logits and targets ``(b, n + x + r)``.

        With ``random_reading: extra`` the answers to "is this a random query?" follow, one for each query.
        """
        words = self.model.words
        if words is None:
            raise ConfigError("Training by words needs a zero-shot model.")
        vectors = words.vectors[self.rows]
        queries, wanted, strangers = self._varied(vectors, targets)
        if self.shuffle:
            order = torch.randperm(len(queries), device=queries.device)
            queries, wanted = queries[order], wanted[:, order]
        if self.says_random is None:
            return self.model(images, queries), wanted
        head = self.model.head
        decoded = head.decode(self.model.backbone(images), queries)  # type: ignore[operator]
        told = self.says_random(decoded).squeeze(-1)
        own = len(queries) - strangers  # random queries have no answer of their own
        is_random = torch.arange(len(queries), device=queries.device) >= own
        logits = torch.cat([head.read(decoded, queries)[:, :own], told], dim=1)  # type: ignore[operator]
        return logits, torch.cat([wanted[:, :own], is_random.to(wanted).expand(len(wanted), -1)], dim=1)

    def _varied(self, vectors: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, int]:
        """Queries and targets of this step, and how many random queries stand at their end."""
        wish = self.settings
        queries, wanted = vectors, targets
        if wish.mix:
            count = math.ceil(wish.mix * len(vectors))
            more, theirs = mixed_queries(vectors, targets, count, wish.mix_alpha, maximum=wish.mix_targets == "maximum")
            queries, wanted = torch.cat([queries, more]), torch.cat([wanted.to(theirs), theirs], dim=1)
        if wish.noise:
            queries = noisy(queries, wish.noise, spread_of=vectors if wish.noise_scale == "spread" else None)
        if wish.cutout:
            queries = cutout(queries, wish.cutout)
        strangers = math.ceil(wish.random_queries * len(vectors))
        if strangers:
            queries = torch.cat([queries, random_queries(vectors, strangers)])
            answer = 0 if wish.random_reading == "negatives" else 1
            wanted = torch.cat([wanted, wanted.new_full((len(wanted), strangers), answer)], dim=1)
        return queries, wanted, strangers


def noisy(vectors: Tensor, amount: float, *, spread_of: Tensor | None = None) -> Tensor:
    """Query-noise: add normal noise of the size ``amount``, or ``amount`` times the spread of each number over labels.

    The paper adds "a small random noise" and does not say how small.
    """
    scale = 1.0 if spread_of is None else spread_of.std(dim=0, correction=0)
    return vectors + amount * scale * torch.randn_like(vectors)


def cutout(vectors: Tensor, share: float) -> Tensor:
    """Query-cutout: about that share of each vector's numbers is zero. A vector has no neighbours to cut together."""
    return vectors * (torch.rand_like(vectors) >= share)


def random_queries(vectors: Tensor, count: int) -> Tensor:
    """Random-query: vectors that are no words, normal with mean and spread of the labels' numbers: ``(r, e)``."""
    mean, spread = vectors.mean(dim=0), vectors.std(dim=0, correction=0)
    return mean + spread * torch.randn(count, vectors.shape[1], device=vectors.device, dtype=vectors.dtype)


def mixed_queries(
    vectors: Tensor, targets: Tensor, count: int, alpha: float, *, maximum: bool = False
) -> tuple[Tensor, Tensor]:
    """Queries between two labels, ``share v_i + (1 - share) v_j``, and their targets mixed alike: ``(x, e), (b, x)``.

    Args:
        vectors: The labels' vectors (n, e).
        targets: 1, 0, between, or -1 for unknown (b, n).
        count: How many queries.
        alpha: The shares follow Beta(alpha, alpha).
        maximum: Take the larger target of the two instead: the mixture asks for either label.
    """
    n = len(vectors)
    first = torch.randint(n, (count,), device=vectors.device)
    second = (first + torch.randint(1, max(2, n), (count,), device=vectors.device)) % n  # another label
    beta = torch.distributions.Beta(torch.tensor(alpha), torch.tensor(alpha))
    share = beta.sample((count,)).to(vectors)
    between = vectors[second].lerp(vectors[first], share.unsqueeze(1))
    own, other = targets[:, first].float(), targets[:, second].float()
    mixed = torch.maximum(own, other) if maximum else other.lerp(own, share.float())
    return between, mixed.masked_fill((own == UNKNOWN) | (other == UNKNOWN), UNKNOWN)
