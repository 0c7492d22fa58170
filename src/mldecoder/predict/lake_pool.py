"""Ray Data at work: it hands blocks out to a pool of models, a few ahead at a time.

It starts models and blocks that were lost with their machine again elsewhere. It runs in a process beside the one that
asked, which can end it at any moment, and all models with it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mldecoder.predict.lake_ray import Slots, quiet
from mldecoder.predict.lake_todo import Block

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["pool"]

_RESTARTS = 8  # of a model whose process dies: a picture may kill it every time
_AHEAD = 2  # blocks a model has in hand: the one it works on, and the next


@contextmanager
def pool(blocks: Mapping[int, Block], work: Any, room: Slots) -> Iterator[Any]:  # noqa: ANN401 - Ray has no types
    """Tag blocks with as many models as there is room for; gives a stream of lists of reports.

    Leaving before the stream has ended ends the work.

    Args:
        blocks: The blocks by their numbers.
        work: Where Ray keeps the model and the job.
        room: How many models, and what each takes.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    rows = [
        {"number": number, "offset": block.offset, "length": block.length} for number, block in sorted(blocks.items())
    ]
    remote: Any = ray.remote  # its types do not know all that it takes
    with quiet():
        run = remote(num_cpus=0, max_retries=0, num_returns="streaming", scheduling_strategy=here)(_reports())
        coming = run.remote(rows, [work], min(room.count, len(rows)), room.cpus, room.gpus)
    try:
        yield coming
    finally:
        if not coming.is_finished():
            ray.cancel(coming, force=True)


def _reports() -> Callable[..., Iterator[list[str]]]:
    """The function that runs beside; Ray sends functions inside of others as they are, so it loads without torch."""
    restarts, ahead = _RESTARTS, _AHEAD

    def reports(
        rows: Sequence[Mapping[str, int]],
        work: Sequence[Any],  # a reference in a list stays one
        models: int,
        cpus: int,
        gpus: int,
    ) -> Iterator[list[str]]:
        import ray

        class Model:
            def __init__(self, work: "Sequence[Any]") -> None:  # quoted: only what runs is sent
                from mldecoder.predict.lake_worker import Tagger

                self.tagger = Tagger(*ray.get(work[0]))

            def __call__(self, batch: "dict[str, NDArray[Any]]") -> "dict[str, NDArray[Any]]":
                return self.tagger(batch)

        ray.data.DataContext.get_current().enable_progress_bars = False
        made = ray.data.from_items(list(rows), override_num_blocks=len(rows)).map_batches(
            Model,
            fn_constructor_args=(work,),
            batch_size=None,
            compute=ray.data.ActorPoolStrategy(size=models, max_tasks_in_flight_per_actor=ahead),
            num_cpus=cpus,
            num_gpus=gpus,
            max_restarts=restarts,
            max_task_retries=-1,  # calls to a machine that is gone fail many times before it is known to be gone
        )
        for batch in made.iter_batches(batch_size=None, prefetch_batches=0):
            yield list(batch["report"])

    return reports
