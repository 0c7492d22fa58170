"""A group fully-connected layer wider than one device: every process holds the groups of some queries.

Backbone and decoder stay data-parallel, each process with its own images; the group layer is model-parallel. Process r
holds the weights of queries r * ceil(K / ranks) onwards, their gradients and their optimiser state, and nothing of the
others'. Between the two stands one all-to-all: all queries of one's own images become one's own queries of all images.

Plain process groups, and not DTensor or FSDP2: FSDP2 gathers a whole parameter where it is used, and that is what does
not fit; DTensor does not know the fused loss, which computes gradients block by block on the way forwards. The shares
are cut as DTensor's ``Shard(0)`` cuts them, so torch's distributed checkpoints read and write them
(:mod:`mldecoder.heads.split_state`).

The other way would be to split the decoder by queries too: tokens of all images go to every process (all-gather, and
reduce-scatter of their gradients), and no decoded query travels. A process then receives (ranks - 1) * b * t * d values
each way, here b * K * d * (ranks - 1) / ranks: this way moves fewer where K < ranks * t, t tokens an image. With
K = 400 and t = 196 (448 px, stride 32) on eight ranks that is a quarter. The other way also projects every image's
tokens to keys and values on every process, and takes the decoder out of DDP's or FSDP's hands. So this way was taken.

Shapes: b images of this process, a images of all, n classes, m classes of this process, k queries, q of this process,
g columns a group, d width.
"""

import math
from typing import cast

import torch
from torch import Tensor, nn

from mldecoder.errors import ConfigError, InputError
from mldecoder.heads.groups import Assignment, GroupLayout, assign, slots_of
from mldecoder.heads.layers import GroupLinear, _counts_up, _inverse
from mldecoder.heads.ml_decoder import MLDecoder
from mldecoder.heads.ranks import Ranks

__all__ = ["GroupShare", "SplitGroupLinear", "split_head"]


class GroupShare(GroupLinear):
    """Some queries of a group fully-connected layer: a layer of its own, with classes numbered from 0.

    Args:
        slots: Where each of the n classes stands in the flattened ``(k, g)`` slots of the whole layer.
        queries: The queries of this share.
        group_size: Columns a group, in the whole layer.
        width: Length of a query vector.

    The weights are not drawn.
    """

    classes: Tensor

    def __init__(self, slots: Tensor, queries: slice, group_size: int, width: int) -> None:
        nn.Module.__init__(self)  # the parent would deal the classes out anew
        first, last = queries.start * group_size, queries.stop * group_size
        classes = ((slots >= first) & (slots < last)).nonzero().squeeze(1)
        own = slots[classes] - first
        self.num_classes = len(classes)
        self.num_queries = queries.stop - queries.start
        self.group_size = group_size
        self.queries = queries
        self.weight = nn.Parameter(torch.empty(self.num_queries, width, group_size))
        self.bias = nn.Parameter(torch.zeros(self.num_classes))
        self.register_buffer("slots", own)
        self.register_buffer("classes", classes)  # (m,), the number of each in the whole layer, rising
        self.register_buffer("class_of_slot", _inverse(own, self.num_queries * group_size), persistent=False)
        self.in_order = _counts_up(own)

    def draw(self, num_queries: int, seed: int) -> None:
        """Draw the weights as the whole layer would, by Xavier; each query has its own seed, whoever holds it."""
        width = self.weight.shape[1]
        std = math.sqrt(2 / (self.group_size * (width + num_queries)))  # what nn.init makes of (k, d, g)
        generator = torch.Generator(self.weight.device)
        with torch.no_grad():
            for row, query in zip(self.weight, range(self.queries.start, self.queries.stop), strict=True):
                row.normal_(0, std, generator=generator.manual_seed(seed * 1_000_003 + query))


class SplitGroupLinear(nn.Module):
    """One process's part of a group fully-connected layer, and the way from and to the others.

    ``share`` is what this process holds. :func:`mldecoder.losses.split_loss` trains it,
    :func:`mldecoder.heads.split_top_k.split_top_k` asks it; ``forward`` gives all logits, where those fit.

    Args:
        num_classes: How many classes all processes score together.
        num_queries: How many query vectors come in.
        width: Length of a query vector.
        groups: Which query owns which class; see :func:`mldecoder.heads.groups.assign`.
        layout: How large the groups are.
        seed: Seed of the random assignment and of the weights, which are the same on any number of processes.
        ranks: The processes; all of them by default.

    Example:
        >>> layer = SplitGroupLinear(num_classes=10, num_queries=3, width=8)
        >>> layer(torch.zeros(2, 3, 8)).shape
        torch.Size([2, 10])
    """

    share: GroupShare

    def __init__(
        self,
        num_classes: int,
        num_queries: int,
        width: int,
        *,
        groups: Assignment = "ordered",
        layout: GroupLayout = "balanced",
        seed: int = 0,
        ranks: Ranks | None = None,
    ) -> None:
        super().__init__()
        slots, group_size = slots_of(assign(num_classes, num_queries, groups, layout=layout, seed=seed))
        self._hold(slots, num_queries, group_size, width, ranks)
        self.share.draw(num_queries, seed)

    @classmethod
    def empty(
        cls, slots: Tensor, num_queries: int, group_size: int, width: int, ranks: Ranks | None = None
    ) -> "SplitGroupLinear":
        """A layer with these slots ``(n,)`` whose weights somebody else fills in."""
        layer = cls.__new__(cls)
        nn.Module.__init__(layer)
        layer._hold(slots, num_queries, group_size, width, ranks)
        return layer

    @classmethod
    def of(cls, whole: GroupLinear, ranks: Ranks | None = None) -> "SplitGroupLinear":
        """This process's part of a layer that every process has whole."""
        k, width, group_size = whole.weight.shape
        layer = cls.empty(whole.slots.cpu(), k, group_size, width, ranks).to(whole.weight)
        with torch.no_grad():
            layer.share.weight.copy_(whole.weight[layer.share.queries])
            layer.share.bias.copy_(whole.bias[layer.share.classes])
        layer.share.weight.requires_grad_(whole.weight.requires_grad)
        layer.share.bias.requires_grad_(whole.bias.requires_grad)
        return layer

    def _hold(self, slots: Tensor, num_queries: int, group_size: int, width: int, ranks: Ranks | None) -> None:
        self.ranks = Ranks() if ranks is None else ranks
        self.num_classes, self.num_queries, self.group_size, self.width = len(slots), num_queries, group_size, width
        self.share = GroupShare(slots, self.ranks.shares(num_queries)[self.ranks.rank], group_size, width)

    def forward(self, x: Tensor) -> Tensor:
        """Queries ``(b, k, d)`` of one's own images to their logits ``(b, n)``; all processes call it together.

        The gradients of the share are those of the sum of all processes' losses.
        """
        images = self.images(x)
        logits = self.share(self.ranks.to_queries(x, images))  # (a, m)
        if self.ranks.size == 1:
            return cast(Tensor, logits)
        classes = self.all_classes()
        logits = self.ranks.to_images(logits, images, [len(c) for c in classes])  # (b, n), process by process
        return logits.index_select(1, torch.cat(classes).argsort())

    def images(self, x: Tensor) -> list[int]:
        """How many images each process has; all processes call it together."""
        self.check(x)
        return [count for (count,) in self.ranks.numbers([len(x)], x.device)]

    def check(self, x: Tensor) -> None:
        """Refuse anything but one vector a query."""
        if x.ndim != 3 or x.shape[1:] != (self.num_queries, self.width):
            raise InputError(
                f"x must have the shape (images, {self.num_queries} queries, width {self.width}), "
                f"got {tuple(x.shape)}. It is what the decoder gives, all queries of this process's images."
            )

    def all_classes(self) -> list[Tensor]:
        """The classes of each process, in the order in which it scores them; all processes call it together."""
        counts = [count for (count,) in self.ranks.numbers([self.share.num_classes], self.share.classes.device)]
        return self.ranks.gather(self.share.classes, counts)

    def all_slots(self) -> Tensor:
        """Where each class stands in the slots of the whole layer: ``(n,)``; all processes call it together."""
        return self.by_class(self.share.slots + self.share.queries.start * self.group_size)

    def by_class(self, own: Tensor) -> Tensor:
        """One value a class from the values of each process's classes: ``(m,) -> (n,)``; all call it together."""
        classes = self.all_classes()
        values = self.ranks.gather(own, [len(c) for c in classes])
        return torch.cat(values)[torch.cat(classes).argsort()]

    def extra_repr(self) -> str:
        """Sizes, for ``print(model)``."""
        return f"{self.width} -> {self.num_classes}, queries={self.num_queries}, {self.ranks}"


def split_head(head: MLDecoder, ranks: Ranks | None = None) -> MLDecoder:
    """Put this process's part of the group layer in the place of the whole one, and return the head.

    Every process must have the same weights. A head that does not fit one process is never built whole:
    :func:`mldecoder.model.split_folder.build_split` and ``load_split`` see to that.
    """
    if type(head) is not MLDecoder:  # a head that builds on it may read the weights itself
        raise ConfigError(f"Only a plain ML-Decoder head can be split over processes, got {type(head).__name__}.")
    if not isinstance(head.classify, SplitGroupLinear):
        head.classify = SplitGroupLinear.of(head.classify, ranks)  # type: ignore[assignment]
    return head
