"""ML-Decoder with words for queries: it scores labels that were never trained.

With one label a group (full decoding) each label's text vector becomes a query, and one shared linear layer reads
every answer, so that any number of labels in any order can be scored at call time, each as if it were alone. With
several labels a group (the paper's appendix *ZSL Group Decoder*) a query carries the words of its whole group. With
common queries, our own variant, queries know no words: the words read what a few learnt queries saw.

Shapes: b batch, n labels, k groups, g labels a group, t tokens, d width, e text width.
"""

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mldecoder.errors import ConfigError, InputError
from mldecoder.heads.decoder import Decoder, ReturnAttention, with_attention
from mldecoder.heads.memo import Memo
from mldecoder.heads.zero_shot_groups import (
    CommonReadout,
    QueryKind,
    ReadoutKind,
    check_capacity,
    count_groups,
    join_parts,
    make_readout,
    needed,
)

__all__ = ["ZeroShotMLDecoder"]

ENTRIES = 2**25
"""Numbers that one layer may hold at once in evaluation: 128 MiB of float32."""


class ZeroShotMLDecoder(nn.Module):
    """Attention head whose classes are given as text vectors with every call.

    Args:
        in_features: Channels of the features that come in.
        text_width: Length of a text vector.
        width: Length of queries and embedded tokens, D.
        ff_width: Width inside the feed-forward layer.
        heads: Attention heads.
        depth: Decoder layers.
        dropout: Dropout probability in training.
        group_size: Labels that share a query, g; 1 is full decoding.
        query: ``"text"``, queries made of the labels' text vectors; ``"learnable"`` ones, one a group; or
            ``"common"``, ``num_groups`` learnt queries that all labels read, with ``readout="text"``: the cost hardly
            depends on the number of labels.
        readout: What turns answers into logits: ``"shared"``, one layer for all groups; ``"text"``, weights made of
            the text vectors; ``"learnable"``, a layer a group.
        num_groups: The most groups that can be scored; needed where query or readout are learnable.
        query_relu: Whether projected words go through a ReLU; by default as published: with one label a group yes
            (the official code), in groups no (the paper's formula).
        checkpoint_layers: Save memory in training: the batch goes through the layers in slices, and the inside of
            a slice is computed again in the backward pass.

    Example:
        >>> head = ZeroShotMLDecoder(in_features=64, text_width=300, width=32)
        >>> head(torch.zeros(2, 64, 7, 7), torch.randn(5, 300)).shape
        torch.Size([2, 5])
    """

    def __init__(
        self,
        in_features: int,
        text_width: int,
        *,
        width: int = 768,
        ff_width: int = 2048,
        heads: int = 8,
        depth: int = 1,
        dropout: float = 0.1,
        group_size: int = 1,
        query: QueryKind = "text",
        readout: ReadoutKind = "shared",
        num_groups: int | None = None,
        query_relu: bool | None = None,
        checkpoint_layers: bool = False,
    ) -> None:
        super().__init__()
        if text_width < 1:
            raise ConfigError(f"text_width must be at least 1, got {text_width}.")
        if not 1 <= group_size <= width:
            raise ConfigError(
                f"group_size must be between 1 and width={width}, got {group_size}. "
                f"Every label of a group needs a number of the query."
            )
        if query not in ("text", "learnable", "common"):
            raise ConfigError(f"query must be text, learnable or common, got {query!r}.")
        if query == "common" and (readout != "text" or group_size != 1):
            raise ConfigError(
                f"query=common needs readout=text and group_size=1, since no query belongs to a label, "
                f"got readout={readout} and group_size={group_size}."
            )
        self.in_features = in_features
        self.text_width = text_width
        self.group_size = group_size
        self.query, self.readout = query, readout
        learnt = query != "text" or readout == "learnable"
        self.num_groups = needed(num_groups) if learnt else None
        self.query_relu = group_size == 1 if query_relu is None else query_relu
        if query == "text":
            self.query_projection = nn.Linear(text_width, width // group_size, bias=group_size == 1)
        else:
            self.queries = nn.Parameter(torch.randn(needed(num_groups), width))
        self.decoder = Decoder(
            in_features,
            width=width,
            ff_width=ff_width,
            heads=heads,
            depth=depth,
            dropout=dropout,
            checkpoint_layers=checkpoint_layers,
        )
        self.classify = (
            CommonReadout(text_width, width)
            if query == "common"
            else make_readout(readout, text_width, width, group_size, num_groups)
        )
        self._memo: Memo[Tensor] = Memo()

    def forward(
        self,
        x: Tensor,
        text_vectors: Tensor,
        *,
        key_padding_mask: Tensor | None = None,
        return_attention: ReturnAttention = False,
        chunk: int | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Score the labels of ``text_vectors`` ``(n, e)``: logits ``(b, n)``, in their order.

        Args:
            x: Features ``(b, c, h, w)``, ``(b, h, w, c)``, ``(b, c, f, h, w)`` or tokens ``(b, t, c)``.
            text_vectors: One vector a label, from the encoder that the head was trained with.
            key_padding_mask: ``(b, t)``, true where a token is padding.
            return_attention: Return the last layer's attention over the tokens as well, ``(b, h, k, t)`` or its
                mean over the heads; label i looks with query ``i // group_size``.
            chunk: How many labels to score at a time; the result is the same. Where no gradient is wanted, ``None``
                takes as many as keep the memory fixed, else all.
        """
        self._check(text_vectors)
        size = self._chunk(x, chunk)
        if self.query == "common":
            return self._from_common(x, text_vectors, size, key_padding_mask, return_attention)
        if size is None or size >= len(text_vectors):
            queries = self._memo(lambda: self._queries(text_vectors, 0), self._query_inputs(text_vectors))
            decoded, weights = self._decode(x, queries, key_padding_mask, need_weights=bool(return_attention))
            return with_attention(self.classify(decoded, text_vectors), weights, return_attention)
        logits, seen = [], []
        for start in range(0, len(text_vectors), size):
            part, group = text_vectors[start : start + size], start // self.group_size
            decoded, weights = self._decode(
                x, self._queries(part, group), key_padding_mask, need_weights=bool(return_attention)
            )
            logits.append(self.classify(decoded, part, group))
            seen += [] if weights is None else [weights]
        return with_attention(torch.cat(logits, dim=1), torch.cat(seen, dim=2) if seen else None, return_attention)

    def decode(self, x: Tensor, text_vectors: Tensor) -> Tensor:
        """What the queries saw before anything is read off it: ``(b, k, d)``."""
        self._check(text_vectors)
        return self._decode(x, self._queries(text_vectors, 0), None, need_weights=False)[0]

    def read(self, decoded: Tensor, text_vectors: Tensor) -> Tensor:
        """Logits ``(b, n)`` of what :meth:`decode` returned."""
        logits: Tensor = self.classify(decoded, text_vectors)
        return logits

    def _from_common(
        self, x: Tensor, text_vectors: Tensor, size: int | None, mask: Tensor | None, wish: ReturnAttention
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Decode once and let all labels read it, some at a time; a label's map is that of the answers it reads."""
        decoded, weights = self._decode(x, self.queries, mask, need_weights=bool(wish))
        size = size or len(text_vectors)
        parts = [text_vectors[start : start + size] for start in range(0, len(text_vectors), size)]
        logits = torch.cat([self.classify(decoded, part) for part in parts], dim=1)
        if weights is not None:
            share = cast("CommonReadout", self.classify).scores(decoded, text_vectors).softmax(dim=1)  # (b, k, n)
            weights = torch.einsum("bkn,bhkt->bhnt", share, weights)
        return with_attention(logits, weights, wish)

    def _decode(
        self, x: Tensor, queries: Tensor, mask: Tensor | None, *, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        decoded: tuple[Tensor, Tensor | None] = self.decoder(
            x, queries, key_padding_mask=mask, need_weights=need_weights
        )
        return decoded

    def _queries(self, text_vectors: Tensor, first_group: int) -> Tensor:
        """The queries of the labels' groups: ``(k, d)``."""
        if self.query == "common":
            return self.queries
        if self.query == "learnable":
            return self.queries[first_group : first_group + count_groups(len(text_vectors), self.group_size)]
        parts = self.query_projection(text_vectors)  # (n, d // g)
        if self.query_relu:
            parts = F.relu(parts)
        return parts if self.group_size == 1 else join_parts(parts, self.group_size, self.decoder.embed.out_features)

    def _query_inputs(self, text_vectors: Tensor) -> list[Tensor]:
        own = [self.queries] if self.query != "text" else list(self.query_projection.parameters())
        return [text_vectors, *own]

    def _check(self, text_vectors: Tensor) -> None:
        if text_vectors.ndim != 2 or text_vectors.shape[1] != self.text_width or len(text_vectors) == 0:
            raise InputError(
                f"text_vectors must be (labels, {self.text_width}), at least one label, "
                f"got {tuple(text_vectors.shape)}. Use the text encoder that the head was trained with."
            )
        if self.num_groups is not None and self.query != "common":
            check_capacity(count_groups(len(text_vectors), self.group_size), self.num_groups, len(text_vectors))

    def _chunk(self, x: Tensor, wish: int | None) -> int | None:
        """How many labels to score at a time, in whole groups; ``None`` for all."""
        if wish is not None:
            if wish < 1:
                raise ConfigError(f"chunk must be at least 1 label, got {wish}.")
            return max(1, wish // self.group_size) * self.group_size
        if torch.is_grad_enabled() or torch.compiler.is_compiling() or torch.onnx.is_in_onnx_export():
            return None
        layer = self.decoder.first_layer
        tokens = x.numel() // max(1, x.shape[0] * self.in_features)
        a_query = x.shape[0] * max(layer.linear1.out_features, layer.attention.heads * tokens)
        return max(1, ENTRIES // a_query) * self.group_size
