"""Replaying steps as CUDA graphs: only where there is CUDA."""

import pytest
import torch

from mldecoder.bench import BenchSettings, bench_heads
from mldecoder.errors import ConfigError


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_graphs_are_refused_in_one_line() -> None:
    with pytest.raises(ConfigError, match="records CUDA graphs, and this is a CPU"):
        bench_heads(BenchSettings(graph=True, classes=(4,), batch=1, features=4))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_replayed_step_keeps_its_tensors() -> None:
    settings = BenchSettings(graph=True, classes=(40,), batch=4, features=64, width=64, ff_width=64, repeats=2)
    assert [row.status for row in bench_heads(settings)] == ["ok"] * 6
