"""One model, many processes: every process has a whole copy (``ddp``), or a part of each weight (``fsdp``).

In between, every process has a copy of all but the head's group layer, and a part of that one (``split``). The loop
asks for the few things in which these differ. In one process there is nothing to share, and all are the plain model on
its device.
"""

from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast, broadcast_object_list
from timm.layers.norm_act import convert_sync_batchnorm
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.optim import Optimizer

from mldecoder.errors import ConfigError
from mldecoder.heads.split_training import clip_grad_norm_, common_buffers, keep_from_ddp
from mldecoder.model import Classifier
from mldecoder.model.split_folder import save_split
from mldecoder.recipes.recipe import TrainingSettings
from mldecoder.training.sharded import release, shard

__all__ = ["Copies", "Shards", "SplitCopies", "parallel_of"]


class Copies:
    """Every process holds the whole model; gradients are averaged (DDP).

    Args:
        accelerator: Device, precision and processes.
        settings: The loop's settings.
    """

    def __init__(self, accelerator: Accelerator, settings: TrainingSettings) -> None:
        self.accelerator, self.settings = accelerator, settings

    def place(self, model: Classifier, *extra: nn.Module) -> None:
        """Put a model, and what is trained beside it, where it computes."""
        self._synchronise(model)
        for module in (model, *extra):
            module.to(self.accelerator.device)
        if self.settings.channels_last and self.accelerator.device.type == "cuda":
            model.to(memory_format=torch.channels_last)

    def prepare(self, trained: nn.Module, optimiser: Optimizer) -> tuple[Any, Any]:
        """Model and optimiser as the loop calls them."""
        model, prepared = self.accelerator.prepare(trained, optimiser)
        return torch.compile(model) if self.settings.compile else model, prepared

    def go(self, model: nn.Module, last: bool) -> AbstractContextManager[Any]:
        """One go of a step: gradients are exchanged in the last one."""
        return nullcontext() if last else self.accelerator.no_sync(model)

    def clip(self, model: nn.Module, max_norm: float) -> None:
        """Clip the gradient's norm."""
        self.accelerator.clip_grad_norm_(model.parameters(), max_norm)

    def save(self, model: Classifier, folder: Path) -> None:
        """Write the model folder; every process calls this, the first one writes."""
        if self.accelerator.is_main_process:
            model.save_pretrained(folder)

    def evaluated(self, model: Classifier) -> None:
        """After an evaluation."""

    def agree_on_buffers(self, model: nn.Module) -> None:
        """Give every process the first one's batch-norm statistics: what is saved is what is measured."""
        if self.accelerator.num_processes > 1:
            for buffer in common_buffers(model):
                broadcast(buffer)

    def _synchronise(self, model: Classifier) -> None:
        """Let batch norm see the whole step, where the recipe wishes it; names of weights stay the same."""
        if self.settings.sync_batch_norm and self.accelerator.num_processes > 1:
            convert_sync_batchnorm(model.backbone)  # type: ignore[no-untyped-call]

    def agree(self, figures: dict[str, float]) -> dict[str, float]:
        """The first process's figures, in all of them: machines of two kinds may differ in the last digit."""
        return broadcast_object_list([figures])[0] if self.accelerator.num_processes > 1 else figures


class Shards(Copies):
    """Every process holds a part of each weight, of its gradient, its optimiser state and its average (FSDP2).

    Precision is autocast's, as with copies, so that both give the same numbers; weights travel in float32.
    """

    def __init__(self, accelerator: Accelerator, settings: TrainingSettings) -> None:
        super().__init__(accelerator, settings)
        self.mesh = init_device_mesh(accelerator.device.type, (accelerator.num_processes,))
        self._shell: Classifier | None = None

    def place(self, model: Classifier, *extra: nn.Module) -> None:
        """Split a model, and what is trained beside it, over the processes."""
        if self._shell is None and self.accelerator.is_main_process:
            self._shell = deepcopy(model).to("meta")  # a model without numbers, to be filled and saved
        self._synchronise(model)
        shard(model, self.mesh, self.accelerator.device, *extra)

    def prepare(self, trained: nn.Module, optimiser: Optimizer) -> tuple[Any, Any]:
        """Model and optimiser as the loop calls them; torch's hooks do the rest."""
        return trained, self.accelerator.prepare(optimiser)

    def go(self, model: nn.Module, last: bool) -> AbstractContextManager[Any]:  # noqa: ARG002
        """One go of a step: gradients are exchanged in each one, since a whole one is what we have no room for."""
        return nullcontext()

    def save(self, model: Classifier, folder: Path) -> None:
        """Gather the whole weights in the memory of the first process, which writes them."""
        release(model)
        state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
        if self._shell is not None:
            self._shell.config = model.config
            self._shell.load_state_dict(state, assign=True)
            self._shell.save_pretrained(folder)
            self._shell.to("meta")

    def evaluated(self, model: Classifier) -> None:
        """Let go of the whole weights that the evaluation gathered."""
        release(model)


class SplitCopies(Copies):
    """Every process holds the whole model but for the group layer, of which it has a part.

    See :mod:`mldecoder.heads.split`: what is split is a process's own, and nobody averages or broadcasts it.
    """

    def prepare(self, trained: nn.Module, optimiser: Optimizer) -> tuple[Any, Any]:
        """Model and optimiser as the loop calls them; DDP leaves the shares alone."""
        keep_from_ddp(trained)
        return super().prepare(trained, optimiser)

    def clip(self, model: nn.Module, max_norm: float) -> None:
        """Clip by the norm of the whole gradient."""
        clip_grad_norm_(model, max_norm)

    def save(self, model: Classifier, folder: Path) -> None:
        """Write the model folder; the first process writes what the others send it."""
        save_split(model, folder)


def parallel_of(settings: TrainingSettings, accelerator: Accelerator) -> Copies:
    """How the processes of a run share its model."""
    if settings.sync_batch_norm and accelerator.device.type == "cpu":
        raise ConfigError(
            "training.sync_batch_norm needs an accelerator: torch has it for GPUs only. Leave it out on CPUs, "
            "where every process has its own statistics, or take a backbone without batch norm."
        )
    if settings.parallel == "fsdp" and accelerator.num_processes > 1:
        return Shards(accelerator, settings)
    if settings.parallel == "split":
        return SplitCopies(accelerator, settings)
    return Copies(accelerator, settings)
