"""Compute once what does not change from batch to batch."""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import torch
from torch import Tensor

__all__ = ["Memo"]

T = TypeVar("T")


class Memo(Generic[T]):
    """The last result of a function of some tensors, reused as long as these tensors hold the same numbers.

    Every in-place change that autograd can see (an optimiser step, ``load_state_dict``, an EMA update) moves a
    tensor's version counter, and a conversion moves its storage or dtype. Writes through ``.data`` move nothing,
    so on the CPU the numbers themselves are compared as well: that reads a few megabytes, where the function
    multiplies matrices. On other devices the comparison would make the host wait; there ``clear`` is called on
    every ``train()`` and ``eval()``.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget the result."""
        self._key: object = None
        self._inputs: list[Tensor] = []
        self._result: T | None = None

    def __call__(self, function: Callable[[], T], inputs: Sequence[Tensor]) -> T:
        """Return ``function()``, or what it returned when ``inputs`` were last the same.

        Where gradients are wanted or a graph is being recorded, nothing is kept.
        """
        if torch.is_grad_enabled() or torch.compiler.is_compiling() or torch.onnx.is_in_onnx_export():
            return function()
        if any(tensor.is_inference() for tensor in inputs):  # these have no version counter
            return function()
        key = _state(inputs)
        if self._result is None or key != self._key or not self._same_numbers(inputs):
            self._result = function()
            self._key = key
            self._inputs = [tensor.detach().clone() for tensor in inputs if tensor.device.type == "cpu"]
        return self._result

    def __deepcopy__(self, memo: object) -> "Memo[T]":
        return Memo()

    def __getstate__(self) -> dict[str, object]:
        return {}  # a result is never saved

    def __setstate__(self, state: dict[str, object]) -> None:
        self.clear()

    def _same_numbers(self, inputs: Sequence[Tensor]) -> bool:
        here = (tensor for tensor in inputs if tensor.device.type == "cpu")
        return all(torch.equal(now, then) for now, then in zip(here, self._inputs, strict=True))


def _state(inputs: Sequence[Tensor]) -> object:
    """What tells one moment of the tensors from another, without reading them."""
    kind = inputs[0].device.type
    autocast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
    moments = tuple((id(t), t.data_ptr(), t._version, t.dtype, t.device) for t in inputs)
    return moments, autocast, torch.is_inference_mode_enabled()
