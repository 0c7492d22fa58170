import os
import signal

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test asks the network for anything

import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # kernels run in Python, before anything imports them

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as in a script's background job: Ctrl-C would not be heard
    signal.signal(signal.SIGINT, signal.default_int_handler)

from hypothesis import settings

settings.register_profile("here", deadline=None, max_examples=30, derandomize=True)
settings.load_profile("here")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
