"""ML-Decoder with a branch beside the queries, and other options that the paper does not have.

What each of them does to accuracy is measured: docs/head-options.md.

Shapes: b batch, t tokens, c channels, k queries, n classes, d width.
"""

import math
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mldecoder.errors import ConfigError
from mldecoder.heads.decoder import ReturnAttention, with_attention
from mldecoder.heads.groups import Assignment, GroupLayout
from mldecoder.heads.ml_decoder import MLDecoder, Queries
from mldecoder.heads.plus_layers import PlusLayer
from mldecoder.heads.plus_options import PlusOptions
from mldecoder.heads.plus_tokens import Positions, TokenBranch, drop_tokens, map_size
from mldecoder.heads.tokens import padding_mask, to_tokens

__all__ = ["MLDecoderPlus"]

FIRST_SCALE = 20.0  # of cosines: a class can reach a probability of 1


class MLDecoderPlus(MLDecoder):
    """:class:`mldecoder.MLDecoder` with a branch, and more options; without any it is that head, number for number.

    Args:
        num_classes: How many classes are scored, N.
        in_features: Channels of the features that come in.
        options: What is otherwise; see :class:`mldecoder.heads.plus_options.PlusOptions`.
        num_queries: How many queries share the classes, K; ``None`` means min(100, N).
        width: Length of queries and embedded tokens, D.
        ff_width: Width inside the feed-forward layer; 0 leaves it out.
        heads: Attention heads.
        depth: Decoder layers.
        dropout: Dropout probability in training.
        queries: As for ``MLDecoder``; ``"learnable"`` ones start where the fixed ones are.
        groups: As for ``MLDecoder``.
        group_layout: As for ``MLDecoder``.
        seed: As for ``MLDecoder``.
        checkpoint_layers: As for ``MLDecoder``.

    Example:
        >>> head = MLDecoderPlus(80, 2048, options=PlusOptions(branch="mean", token_dropout=0.2))
        >>> head(torch.zeros(2, 2048, 7, 7)).shape
        torch.Size([2, 80])
    """

    def __init__(
        self,
        num_classes: int,
        in_features: int,
        *,
        options: PlusOptions | None = None,
        num_queries: int | None = None,
        width: int = 768,
        ff_width: int = 2048,
        heads: int = 8,
        depth: int = 1,
        dropout: float = 0.1,
        queries: Queries = "fixed",
        groups: Assignment = "random",
        group_layout: GroupLayout = "balanced",
        seed: int = 0,
        checkpoint_layers: bool = False,
    ) -> None:
        if ff_width < 0:
            raise ConfigError(f"ff_width must be at least 0, got {ff_width}. 0 leaves the feed-forward layer out.")
        super().__init__(
            num_classes,
            in_features,
            num_queries=num_queries,
            width=width,
            ff_width=max(1, ff_width),
            heads=heads,
            depth=depth,
            dropout=dropout,
            queries=queries,
            groups=groups,
            group_layout=group_layout,
            seed=seed,
            checkpoint_layers=checkpoint_layers,
        )
        self.options = options = options or PlusOptions()
        self.ff_width = ff_width
        if not options.paper_layer or ff_width == 0:
            self.decoder.layers = nn.ModuleList(
                PlusLayer(width, ff_width, heads, dropout, options=options, last=i + 1 == depth) for i in range(depth)
            )
        self.token_norm = nn.LayerNorm(in_features) if options.token_norm else None
        self.positions = None if options.positions == "none" else Positions(options.positions, in_features, seed=seed)
        self.scale = nn.Parameter(torch.tensor(FIRST_SCALE)) if options.cosine else None
        if options.prior is not None:
            nn.init.constant_(self.classify.bias, math.log(options.prior / (1 - options.prior)))
        self.branch = None
        if options.branch != "none":
            parts = options.branch.split("+")
            self.branch = TokenBranch(
                num_classes, in_features, mean="mean" in parts, most="max" in parts, dropout=dropout
            )

    def forward(
        self, x: Tensor, *, key_padding_mask: Tensor | None = None, return_attention: ReturnAttention = False
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Score every class: logits ``(b, n)``; the arguments are those of :meth:`MLDecoder.forward`.

        Attention is over the tokens that were kept: in training with ``token_dropout`` these are fewer.
        """
        tokens, padding = self._tokens(x, key_padding_mask)
        decoded, weights = self.decoder(
            tokens, self._widened(), key_padding_mask=padding, need_weights=bool(return_attention)
        )
        logits = self._classified(self._with_silent_queries(decoded))
        if self.branch is not None:
            mask = padding_mask(padding, tokens)
            logits = logits + self._branch_kept(self.branch(tokens, None if mask is None else mask.flatten(1)))
        return with_attention(logits, weights, return_attention)

    def decode(self, x: Tensor) -> Tensor:
        """What the queries saw: ``(b, k, d)``. Logits need more than that where there is a branch or a cosine."""
        return super().decode(self._tokens(x, None)[0])

    def settings(self) -> dict[str, Any]:
        """Sizes and options, as the constructor and the config name them."""
        layer = self.decoder.first_layer
        return {
            "width": self.decoder.embed.out_features,
            "ff_width": self.ff_width,
            "heads": layer.attention.heads,
            "depth": len(self.decoder.layers),
            "dropout": layer.dropout.p,
            "checkpoint_layers": self.decoder.checkpoint_layers,
            **asdict(self.options),
        }

    def _tokens(self, x: Tensor, padding: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The tokens that the decoder sees ``(b, t, c)``, and which of them are padding."""
        tokens = to_tokens(x, self.in_features)
        padding_mask(padding, tokens)  # refuses what does not fit
        if self.token_norm is not None:
            tokens = self.token_norm(tokens).to(tokens.dtype)  # autocast raises the precision of norms
        if self.positions is not None:
            tokens = tokens + self.positions(*map_size(x, self.in_features)).to(tokens.dtype)
        padding = None if padding is None else padding.flatten(1).bool()
        if self.training and self.options.token_dropout > 0:
            tokens, padding = drop_tokens(tokens, padding, self.options.token_dropout)
        return tokens, padding

    def _classified(self, decoded: Tensor) -> Tensor:
        """Logits of the queries' answers, by product or by angle."""
        logits: Tensor
        layer = self.classify
        if self.scale is None:
            logits = layer(decoded)
            return logits
        lengths = layer.weight.norm(dim=1).flatten().index_select(0, layer.slots).clamp(min=1e-6)  # (n,)
        unit = F.normalize(decoded, dim=-1, eps=1e-6).to(decoded.dtype)
        logits = layer(unit * self.scale)  # scaled first: in half precision a small product would drown in the bias
        logits = (logits - layer.bias) / lengths + layer.bias
        return logits

    def _with_silent_queries(self, decoded: Tensor) -> Tensor:
        share = self.options.query_drop
        if not self.training or share == 0:
            return decoded
        speaks = torch.rand(decoded.shape[:2], device=decoded.device) >= share
        return decoded * speaks.unsqueeze(2).to(decoded.dtype)

    def _branch_kept(self, logits: Tensor) -> Tensor:
        share = self.options.branch_drop
        if not self.training or share == 0:
            return logits
        return logits * (torch.rand(len(logits), 1, device=logits.device) >= share).to(logits.dtype)
