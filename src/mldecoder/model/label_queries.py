"""ML-Decoder whose queries are the labels' text vectors, or whose groups hold labels of similar meaning.

The paper's table of query types has fixed text queries beside random and learnable ones. Labels are those of training
and stay: a head that scores words it never saw is the zero-shot one.

Shapes: n labels, k queries, e text width.
"""

import torch
from torch import Tensor, nn

from mldecoder.config import MLDecoderConfig
from mldecoder.errors import ConfigError
from mldecoder.heads.groups import assign, slots_of
from mldecoder.heads.semantic_groups import semantic_groups

__all__ = ["build_from_words", "text_queries"]


def build_from_words(section: MLDecoderConfig, vectors: Tensor, in_features: int) -> tuple[nn.Module, MLDecoderConfig]:
    """The head for labels with these vectors ``(n, e)``, and its config once queries and groups are in its weights."""
    n = len(vectors)
    k = section.num_queries or min(100, n)
    updates: dict[str, object] = {"num_queries": k}
    state: dict[str, Tensor] = {}
    if section.groups == "semantic":
        groups = semantic_groups(vectors, k)
        state["classify.slots"], size = slots_of(groups)
        updates |= {"groups": "given", "group_size": size}
    elif section.groups == "given":
        raise ConfigError("queries=text needs groups=random, ordered or semantic, got given. Name one of them.")
    else:
        groups = assign(n, k, section.groups, layout=section.group_layout, seed=section.seed)
    if section.queries == "text":
        state["queries"] = text_queries(vectors, groups, k)
        updates |= {"queries": "given", "query_width": vectors.shape[1]}
    built = section.model_copy(update=updates)
    head = built.build(n, in_features)
    head.load_state_dict(head.state_dict() | state)  # the group layer brings what hangs on its slots up to date
    return head, built


def text_queries(vectors: Tensor, groups: Tensor, num_queries: int) -> Tensor:
    """One query a group ``(k, e)``: the mean of its labels' vectors, so with a query a label the label's own."""
    sums = torch.zeros(num_queries, vectors.shape[1]).index_add(0, groups, vectors.float().cpu())
    return sums / torch.bincount(groups, minlength=num_queries).clamp(min=1).unsqueeze(1)
