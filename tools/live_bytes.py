"""Count the memory of tensors that a piece of code makes, on any device, CPU included.

    with LiveBytes() as count:
        loss = ...
    count.peak, count.largest

It sees every tensor that an operator of torch returns, but not what an operator takes for itself while it runs.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

__all__ = ["LiveBytes"]


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Bytes of the tensors made inside and still alive, their peak, and the largest of them in elements."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live = 0
        self.peak = 0
        self.largest = 0
        self._made: dict[int, tuple[StorageWeakRef, int]] = {}
        self._given: dict[int, StorageWeakRef] = {}  # a weak reference keeps the address from being used again

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401  # torch's own signature
        kwargs = kwargs or {}
        for tensor in _tensors((args, kwargs)):
            storage = tensor.untyped_storage()
            if storage._cdata not in self._made:
                self._given.setdefault(storage._cdata, _weak(storage))
        result = func(*args, **kwargs)
        for tensor in _tensors(result):
            storage = tensor.untyped_storage()
            if storage._cdata not in self._made and storage._cdata not in self._given:
                self._made[storage._cdata] = _weak(storage), storage.nbytes()
                self.live += storage.nbytes()
                self.largest = max(self.largest, storage.nbytes() // tensor.element_size())
        self.settle()
        self.peak = max(self.peak, self.live)
        return result

    def settle(self) -> None:
        """Take off what has been freed since."""
        for key, (reference, size) in list(self._made.items()):
            if _gone(reference):
                self.live -= size
                del self._made[key]
        for key, reference in list(self._given.items()):
            if _gone(reference):
                del self._given[key]


def _weak(storage: torch.UntypedStorage) -> StorageWeakRef:
    return StorageWeakRef(storage)  # type: ignore[no-untyped-call]


def _gone(reference: StorageWeakRef) -> bool:
    return bool(reference.expired())  # type: ignore[no-untyped-call]


def _tensors(tree: object) -> Iterator[Tensor]:
    return (leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor) and leaf.layout == torch.strided)
