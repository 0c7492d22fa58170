"""What every backbone must do, whatever its library."""

import torch
from torch import nn

from mldecoder.backbones import Backbone


def check_shapes_and_gradients(backbone: Backbone, size: tuple[int, int] | None = None) -> torch.Tensor:
    """Run forward and backward in training mode; a mean over positions and a linear layer stand in for the head."""
    height, width = size or backbone.preprocessing.size
    backbone.train()
    features: torch.Tensor = backbone(torch.randn(2, backbone.in_chans, height, width))
    if features.ndim == 4:
        b, c, h, w = features.shape
        tokens = features.flatten(2).transpose(1, 2)
        assert (h, w) == backbone.token_grid(height, width)
    else:
        b, t, c = features.shape
        tokens = features
        grid = backbone.token_grid(height, width)
        extra = backbone.num_prefix_tokens if backbone.keep_prefix_tokens else 0
        assert grid is None or grid[0] * grid[1] + extra == t
    assert (b, c) == (2, backbone.num_features)
    nn.Linear(c, 3)(tokens.mean(dim=1)).sum().backward()
    without = [name for name, parameter in backbone.named_parameters() if parameter.grad is None]
    assert not without, f"no gradient: {without}"
    return features
