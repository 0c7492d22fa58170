"""The server on Ray Serve: a front that answers, copies of the model that score, and a bound on what waits."""

import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from mldecoder.errors import ConfigError
from mldecoder.predict.lake_ray import LOCAL, Slots, joined, quiet, slots
from mldecoder.serve.ask import MODEL, NAME, front_of
from mldecoder.serve.settings import Settings

__all__ = ["application", "check_free", "check_model", "serving"]


def application(settings: Settings, room: Slots) -> Any:  # noqa: ANN401 - Ray has no types
    """What Ray Serve runs.

    Args:
        settings: The model and its limits; ``replicas`` must be a number.
        room: What one copy of the model takes.
    """
    from ray import serve

    quietly = {"enable_access_log": False, "log_level": "WARNING"}
    copies, in_work = settings.replicas or 1, 2 * settings.batch_size  # one batch is scored while the next gathers
    waiting = settings.queue or 2 * settings.batch_size * copies
    model = serve.deployment(
        name=MODEL,
        num_replicas=copies,
        max_ongoing_requests=in_work,
        max_queued_requests=waiting,
        ray_actor_options={"num_cpus": room.cpus, "num_gpus": room.gpus},
        health_check_period_s=5,
        logging_config=quietly,
    )(_model())
    front = serve.deployment(
        name="Front",
        max_ongoing_requests=copies * in_work + waiting + 256,  # room to say no, and for the short routes
        max_queued_requests=256,
        ray_actor_options={"num_cpus": 0},
        logging_config=quietly,
    )(serve.ingress(lambda: front_of(settings))())
    return front.bind(model.bind(settings))


@contextmanager
def serving(
    settings: Settings, *, host: str = "127.0.0.1", port: int = 8000, address: str = LOCAL
) -> Iterator[Callable[[], str]]:
    """Serve a model while the block runs; gives a function that says how the server is.

    Args:
        settings: The model and its limits.
        host: The address to listen on.
        port: The port.
        address: Where Ray runs; ``"local"`` starts one here.
    """
    check_free(host, port)
    with joined(address):
        with quiet():
            from ray import serve

        room = slots()
        whole = replace(settings, replicas=settings.replicas or max(1, room.count))
        logging.getLogger("ray.serve").setLevel(logging.WARNING)
        with quiet():
            serve.start(
                proxy_location="HeadOnly",
                http_options={"host": host, "port": port, "request_timeout_s": 3 * settings.timeout},
                logging_config={"enable_access_log": False, "log_level": "WARNING"},
            )
        try:
            with quiet():
                serve.run(application(whole, room), name=NAME, route_prefix="/")
            yield lambda: str(serve.status().applications[NAME].status.value)
        except RuntimeError as error:
            raise ConfigError(f"The model could not be served: {_reason(error)}.") from None
        finally:
            with quiet():
                serve.shutdown()  # type: ignore[no-untyped-call]


def check_model(settings: Settings) -> None:
    """Load the model once here: what is wrong with it or its options is then one line, not a copy that dies."""
    from mldecoder.model import load
    from mldecoder.predict import Predictor

    Predictor(load(settings.run), labels=settings.labels, top_k=settings.top_k, threshold=settings.threshold)


def _model() -> type:
    """The class of a copy; Ray Serve's way to gather batches must be there when it is defined."""
    from ray import serve

    from mldecoder.serve.model import ServedModel

    class Model:
        def __init__(self, settings: Settings) -> None:
            self.model = ServedModel(settings)
            gather: Any = self.together
            gather.set_max_batch_size(settings.batch_size)
            gather.set_batch_wait_timeout_s(settings.batch_wait)

        async def __call__(self, content: bytes, all_scores: bool) -> dict[str, Any]:
            picture = await self.model.prepared(content)
            if isinstance(picture, dict):
                return picture
            return self.model.answer(await self.together(picture), all_scores=all_scores)

        @serve.batch
        async def together(self, pictures: list[Any]) -> list[Any]:
            return await self.model.scored(pictures)

        async def ping(self) -> bool:
            return True

    return Model


def check_free(host: str, port: int) -> None:
    """Refuse an address that cannot be listened on, before anything is started."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        with socket.create_server((host, port), family=family):
            pass
    except OSError as error:
        raise ConfigError(
            f"The server cannot listen on {host}, port {port} ({error.strerror}). Pass another --port or --host."
        ) from None


def _reason(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if line.startswith("mldecoder.errors.")]
    return (told or lines or [type(error).__name__])[-1].removeprefix("mldecoder.errors.").removesuffix(".")
