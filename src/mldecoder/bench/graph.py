"""The device's own time: a step recorded once and replayed, so that the host that starts the kernels does not count."""

import torch

from mldecoder.bench.place import Place
from mldecoder.bench.work import Step

__all__ = ["captured"]

_WARM_UP = 3


def captured(step: Step, place: Place) -> Step:
    """Record a step as a CUDA graph and return its replay."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # recording wants everything lazy to have happened, on a stream of its own
        for _ in range(_WARM_UP):
            step()
    torch.cuda.current_stream().wait_stream(side)
    place.synchronise()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()

    def replay(_keep: Step = step) -> None:  # the graph knows addresses only: the step keeps what lies there
        graph.replay()

    return replay
