"""What stands before the page: bodies have a limit, and the browser is told that nothing may leave this machine."""

from contextlib import suppress
from typing import TYPE_CHECKING

from starlette.responses import JSONResponse

from mldecoder.web.limits import as_text

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["ContentPolicy", "LimitBody"]

# Gradio compiles its templates in the browser, hence 'unsafe-eval'; every address is this server's or inline.
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self' blob: data:; worker-src 'self' blob:; "
    "media-src 'self' blob:; object-src 'none'; base-uri 'self'; form-action 'self'"
)

_DRAINED = 256 * 2**20  # bytes beyond the limit that are still read, and thrown away, before the answer


class LimitBody:
    """Refuse requests whose body is larger than allowed, by what they announce and by what comes."""

    def __init__(self, app: "ASGIApp", max_bytes: int) -> None:
        self.app, self.max_bytes = app, max_bytes

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Pass a request on, up to the limit."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if not announced.isdigit() or int(announced) > self.max_bytes:
            await self._refuse(scope, receive, send, more=True)
            return
        came, refused = 0, False

        async def counted() -> "Message":
            nonlocal came, refused
            message = await receive()
            came += len(message.get("body", b""))
            if came > self.max_bytes:
                refused = True
                await self._refuse(scope, receive, send, more=message.get("more_body", False))
                raise _TooLargeError
            return message

        async def unless_refused(message: "Message") -> None:
            if not refused:  # the app behind may answer to the error above
                await send(message)

        with suppress(_TooLargeError):
            await self.app(scope, counted, unless_refused)

    async def _refuse(self, scope: "Scope", receive: "Receive", send: "Send", *, more: bool) -> None:
        error = f"The file must have at most {as_text(self.max_bytes)}. Make it smaller."
        drained = 0
        while more and drained < _DRAINED:  # who is still sending does not listen yet
            message = await receive()
            drained += len(message.get("body", b""))
            more = message.get("more_body", False)
        response = JSONResponse({"error": error}, status_code=413, headers={"Connection": "close"})
        await response(scope, receive, send)


class ContentPolicy:
    """Add the headers by which the browser itself keeps everything on this machine."""

    def __init__(self, app: "ASGIApp") -> None:
        self.app = app

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Pass a request on, and add to its answer."""

        async def with_policy(message: "Message") -> None:
            if message["type"] == "http.response.start":
                own = [
                    (b"content-security-policy", _POLICY.encode()),
                    (b"referrer-policy", b"no-referrer"),
                    (b"x-content-type-options", b"nosniff"),
                ]
                message = {**message, "headers": [*message["headers"], *own]}
            await send(message)

        await self.app(scope, receive, with_policy)


class _TooLargeError(Exception):
    """More came than was announced."""
