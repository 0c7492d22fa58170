"""Speed and memory of the heads, measured side by side in one run.

``bench_heads`` is imported when it is first used, so that wrong settings are told without waiting for torch.
"""

from typing import TYPE_CHECKING

from mldecoder.bench.rows import Row as Row
from mldecoder.bench.settings import BenchSettings as BenchSettings

if TYPE_CHECKING:
    from mldecoder.bench.sweep import bench_heads as bench_heads

__all__ = ["BenchSettings", "Row", "bench_heads"]


def __getattr__(name: str) -> object:
    if name == "bench_heads":
        from mldecoder.bench.sweep import bench_heads

        return bench_heads
    raise AttributeError(f"module 'mldecoder.bench' has no attribute {name!r}")
