"""How the front asks the copies of the model; loads without torch, as the front does not need it."""

import asyncio
from typing import TYPE_CHECKING, Any

from mldecoder.serve.settings import Settings

if TYPE_CHECKING:
    from fastapi import FastAPI

__all__ = ["MODEL", "NAME", "front_of"]

NAME, MODEL = "mldecoder", "Model"
_TRIES = 3  # copies asked, one after the other, when one dies with a picture in hand
_BUSY = "The model has as much to do as it may have. Try again later."


def front_of(settings: Settings) -> "FastAPI":
    """The front, with the model's copies behind it; built in the process that answers."""
    from ray import serve
    from ray.exceptions import RayError
    from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError

    from mldecoder.serve.front import BusyError, build_front

    seen: list[Any] = []

    def model() -> Any:  # noqa: ANN401
        if not seen:
            seen.append(serve.get_deployment_handle(MODEL, app_name=NAME))
        return seen[0]

    async def tag(content: bytes, all_scores: bool) -> dict[str, Any]:
        for _ in range(_TRIES):
            try:
                answer: dict[str, Any] = await model().remote(content, all_scores)
            except (BackPressureError, DeploymentUnavailableError):
                raise BusyError(_BUSY) from None
            except RayError:  # the copy died: a picture can be asked about again
                await asyncio.sleep(0.1)
            else:
                return answer
        raise BusyError("The model's processes died on it. Try again later.")

    async def ready() -> bool:
        try:
            async with asyncio.timeout(2.0):
                return bool(await model().ping.remote())
        except BackPressureError:
            return True  # busy is not ill
        except (RayError, DeploymentUnavailableError, TimeoutError):
            return False

    return build_front(settings, tag, ready)
