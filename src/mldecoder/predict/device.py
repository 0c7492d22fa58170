"""Where a model runs when nobody said where."""

import torch

__all__ = ["best_device"]


def best_device() -> torch.device:
    """The accelerator, or the CPU where there is none."""
    found = torch.accelerator.current_accelerator(check_available=True)
    return torch.device("cpu") if found is None else found
