"""What one step does: a head alone, or a whole network.

Shapes: b batch, c features, h and w map, n classes.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mldecoder.bench.place import Place
from mldecoder.bench.settings import BenchSettings, Mode
from mldecoder.errors import InputError

__all__ = ["Network", "Step", "make_step"]

Step = Callable[[], None]
_LEARNING_RATE = 1e-4  # small: the numbers stay finite however many steps are timed


class Network(nn.Module):
    """A backbone with a head."""

    def __init__(self, backbone: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head

    def forward(self, images: Tensor) -> Tensor:
        """Pictures to logits ``(b, n)``."""
        logits: Tensor = self.head(self.backbone(images))
        return logits


def make_step(
    model: nn.Module, settings: BenchSettings, place: Place, *, mode: Mode, batch: int, shape: tuple[int, ...]
) -> Step:
    """Allocate an input and return a function that does one step with it.

    Args:
        model: A head or a :class:`Network`, compiled or not, on the device.
        settings: Whether there is a backbone, and the layout of the input.
        place: Device and numbers.
        mode: ``infer`` is a forward pass. ``train`` of a head is forward and backward with a given gradient of the
            logits, down to the features; of a network it is forward, binary cross-entropy, backward and an SGD step.
        batch: Images.
        shape: Of one image's features ``(c, h, w)``, or of one picture.
    """
    layout = torch.channels_last if settings.channels_last else torch.contiguous_format
    x = torch.empty((batch, *shape), device=place.device, dtype=place.dtype, memory_format=layout).normal_()
    model.train(mode == "train")
    if mode == "infer":
        return _inference(model, x, place)
    if settings.backbone:
        return _network_training(model, x, place)
    return _head_training(model, x.requires_grad_(), place)


def _inference(model: nn.Module, x: Tensor, place: Place) -> Step:
    def step() -> None:
        with torch.inference_mode(), place.casting():
            _checked(model(x), x)

    return step


def _head_training(model: nn.Module, x: Tensor, place: Place) -> Step:
    gradient: Tensor | None = None

    def step() -> None:
        nonlocal gradient
        model.zero_grad(set_to_none=True)
        x.grad = None
        with place.casting():
            logits = _checked(model(x), x)
        if gradient is None:
            gradient = torch.randn_like(logits)
        logits.backward(gradient)  # type: ignore[no-untyped-call]

    return step


def _network_training(model: nn.Module, x: Tensor, place: Place) -> Step:
    optimiser = torch.optim.SGD(model.parameters(), lr=_LEARNING_RATE)
    targets: Tensor | None = None

    def step() -> None:
        nonlocal targets
        optimiser.zero_grad(set_to_none=True)
        with place.casting():
            logits = _checked(model(x), x)
        if targets is None:
            targets = torch.empty_like(logits, dtype=torch.float32, requires_grad=False).bernoulli_(0.01)
        loss = F.binary_cross_entropy_with_logits(logits.float(), targets)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()

    return step


def _checked(logits: object, x: Tensor) -> Tensor:
    """Refuse what is not a row of logits for each image, so that a peer that does something else is not timed."""
    if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != len(x):
        got = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise InputError(f"A head must return logits of shape ({len(x)}, classes), got {got}.")
    return logits
