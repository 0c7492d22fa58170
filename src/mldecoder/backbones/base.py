"""A backbone: any vision model, cut so that it yields a map or tokens instead of a pooled vector.

Shapes: b batch, c channels, h and w rows and columns of the map, t tokens.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from torch import Tensor, nn

from mldecoder.backbones._probe import output_shape
from mldecoder.errors import BackboneError

__all__ = ["Backbone", "Layout", "Preprocessing", "Route", "remove_parts"]

Layout = Literal["NCHW", "NHWC", "NLC"]
MOST_PREFIX_TOKENS = 16
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Preprocessing:
    """How a picture becomes the tensor that the backbone was trained on."""

    size: tuple[int, int] = (224, 224)  # height, width
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    interpolation: str = "bicubic"
    crop_pct: float = 1.0


@dataclass(frozen=True)
class Route:
    """The way through a model to its unpooled features.

    ``features(model, x)`` gives ``(b, c, h, w)``, ``(b, h, w, c)`` or ``(b, t, c)``; ``map_layout`` says which
    of the first two. ``grid=False``: the tokens do not lie on one grid over the picture.
    """

    features: Callable[[Any, Tensor], Tensor]
    map_layout: Layout = "NCHW"
    num_prefix_tokens: int | None = 0  # None: as many as do not fit the grid
    grid: bool = True


class Backbone(nn.Module):
    """A vision model without its classifier; ``forward`` yields a map ``(b, c, h, w)`` or tokens ``(b, t, c)``.

    Built by ``create_backbone`` and ``wrap_backbone``. The weights keep the names of their library under
    ``model.``.

    Attributes:
        num_features: Channels c of what ``forward`` yields.
        layout: How the model itself lays out its features; NHWC maps are permuted by ``forward``.
        num_prefix_tokens: Class and register tokens in front of the picture's own tokens. ``forward`` drops
            them unless ``keep_prefix_tokens`` is set.
        preprocessing: Size, mean and spread of the pictures that the weights expect.
        name: With ``options`` what ``create_backbone`` takes to build the same model, also without a network.
        options: Arguments of the model, or fields of its config.
        in_chans: Channels of the pictures.
    """

    num_features: int
    layout: Layout

    def __init__(
        self,
        model: nn.Module,
        route: Route,
        *,
        name: str,
        preprocessing: Preprocessing,
        in_chans: int = 3,
        keep_prefix_tokens: bool = False,
        options: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.name = name
        self.options = dict(options or {})
        self.preprocessing = preprocessing
        self.in_chans = in_chans
        self.keep_prefix_tokens = keep_prefix_tokens
        self._route = route
        shape = output_shape(model, route.features, name=name, in_chans=in_chans, size=preprocessing.size)
        self.layout, self.num_features = read_shape(shape, route, name)
        prefix = route.num_prefix_tokens
        self.num_prefix_tokens = count_prefix(shape, preprocessing.size, name) if prefix is None else prefix
        self._grids: dict[tuple[int, int], tuple[int, int] | None] = {}

    def forward(self, x: Tensor) -> Tensor:
        """Give the features of a batch of pictures ``(b, in_chans, height, width)``."""
        x = self._route.features(self.model, x)
        if self.layout == "NHWC":
            return x.permute(0, 3, 1, 2)  # a view
        if self.layout == "NLC" and self.num_prefix_tokens and not self.keep_prefix_tokens:
            return x[:, self.num_prefix_tokens :]
        return x

    def token_grid(self, height: int, width: int) -> tuple[int, int] | None:
        """Rows and columns of the features of a picture of this size; None where they lie on no single grid.

        Prefix tokens are not part of the grid.
        """
        size = (height, width)
        if size not in self._grids:
            route = self._route
            shape = output_shape(self.model, route.features, name=self.name, in_chans=self.in_chans, size=size)
            if self.layout == "NCHW":
                self._grids[size] = (shape[2], shape[3])
            elif self.layout == "NHWC":
                self._grids[size] = (shape[1], shape[2])
            else:
                tokens = shape[1] - self.num_prefix_tokens
                self._grids[size] = lay_out(tokens, height, width) if route.grid else None
        return self._grids[size]

    def extra_repr(self) -> str:
        """Say what comes out, in front of the long list of layers."""
        return (
            f"name={self.name!r}, num_features={self.num_features}, layout={self.layout!r}, "
            f"num_prefix_tokens={self.num_prefix_tokens}, keep_prefix_tokens={self.keep_prefix_tokens}"
        )


def read_shape(shape: Sequence[int], route: Route, name: str) -> tuple[Layout, int]:
    """Tell layout and width from the shape of the features; refuse pooled ones."""
    if len(shape) == 4:
        return route.map_layout, shape[1] if route.map_layout == "NCHW" else shape[3]
    if len(shape) == 3:
        return "NLC", shape[2]
    raise BackboneError(
        f"A head needs a map or tokens, but {name} gives pooled features of shape {tuple(shape)}. "
        f"Take another backbone (mld.list_backbones()), or call the head on unpooled features of your own."
    )


def count_prefix(shape: Sequence[int], size: tuple[int, int], name: str) -> int:
    """Count the tokens in front of those that cover the picture, where the model does not say."""
    if len(shape) != 3:
        return 0
    for prefix in range(MOST_PREFIX_TOKENS + 1):
        if lay_out(shape[1] - prefix, *size) is not None:
            return prefix
    raise BackboneError(
        f"The {shape[1]} tokens of {name} cover no grid over a picture of {size[0]} x {size[1]} px. "
        f"Pass img_size as the model needs it, or call the head on features of your own."
    )


def lay_out(tokens: int, height: int, width: int) -> tuple[int, int] | None:
    """Lay tokens out in rows and columns over a picture, in cells that are nearly square; None if none fit."""
    if tokens < 1:
        return None
    rows = round((tokens * height / width) ** 0.5)
    for candidate in (rows, rows - 1, rows + 1):
        if candidate < 1 or tokens % candidate:
            continue
        cell_height, cell_width = height / candidate, width / (tokens // candidate)
        if max(cell_height, cell_width) < 1.25 * min(cell_height, cell_width):  # sizes are rounded to cells
            return candidate, tokens // candidate
    return None


def remove_parts(model: nn.Module, names: Sequence[str]) -> None:
    """Take modules and parameters that are not on the way to the features out of a model, in place.

    A module becomes an identity, a parameter None. A part that the family leaves out (None) stays out.
    """
    for name in names:
        parent_name, _, leaf = name.rpartition(".")
        parent = model.get_submodule(parent_name)
        part = cast(object, getattr(parent, leaf))
        if isinstance(part, nn.Parameter):
            setattr(parent, leaf, None)
        elif isinstance(part, nn.Module):
            setattr(parent, leaf, nn.Identity().train(part.training))
