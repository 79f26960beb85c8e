"""Around every request: a limit on its size, headers that browsers obey, a count and a time."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import time
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from balaclava.service.http.metrics import Metrics
from balaclava.service.problems import Problem, problem_response

LARGEST_BODY = 1_000_000
BODY_SECONDS = 30.0
_TOO_LARGE = Problem(413, f"a body has at most {LARGEST_BODY:,} bytes; send less at once")
_TOO_SLOW = Problem(408, f"the rest of the body did not come within {BODY_SECONDS:g} seconds")
_NOT_LOCAL = Problem(
    403, "without keys the service answers to this machine's own names alone: localhost, 127.0.0.1"
)
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
]


class _RefusedError(Exception):
    """The body is not read any further."""


class RequestMiddleware:
    """Plain ASGI: it costs next to nothing."""

    def __init__(
        self, app: ASGIApp, *, metrics: Metrics, local: bool = False, root_path: str = ""
    ) -> None:
        self._app, self._metrics, self._local = app, metrics, local
        self._root_path = root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, unless it is too large."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._root_path:
            scope["root_path"] = self._root_path
        began, sent, status, whole = time.perf_counter(), 0, 500, False
        refusal = _TOO_LARGE if _announced(scope) > LARGEST_BODY else None
        if "\0" in scope["path"]:
            refusal = Problem(404, "there is nothing at this address")
        if self._local and not all(map(is_loopback, _names(scope))):
            refusal = _NOT_LOCAL

        async def limited() -> Message:
            nonlocal sent, whole, refusal
            try:
                async with asyncio.timeout(None if whole else BODY_SECONDS):
                    message = await receive()
            except TimeoutError:
                refusal = _TOO_SLOW
                raise _RefusedError from None
            sent += len(message.get("body", b""))
            whole = whole or not message.get("more_body", False)
            if sent > LARGEST_BODY:
                refusal = _TOO_LARGE
                raise _RefusedError
            return message

        async def guarded(message: Message) -> None:
            nonlocal status
            if refusal is not None and status != refusal.status:
                return  # what the application makes of a body that it did not get
            if message["type"] == "http.response.start":
                status = message["status"]
                names = {name for name, _ in message["headers"]}
                extra = [item for item in _HEADERS if item[0] not in names]
                if b"cache-control" not in names:
                    extra.append((b"cache-control", b"no-store"))
                message["headers"] = [*message["headers"], *extra]
            await send(message)

        try:
            if refusal is None:
                with contextlib.suppress(_RefusedError):
                    await self._app(scope, limited, guarded)
            if refusal is not None:
                status = refusal.status
                await problem_response(refusal)(scope, receive, guarded)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self._metrics.note(scope["method"], route, status, time.perf_counter() - began)


def is_loopback(host: str) -> bool:
    """Whether it is a name, or an address, of this machine that no other can reach."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _names(scope: Scope) -> list[str]:
    """Whom the request is addressed to, and whose page sent it, if one did.

    A page elsewhere may point a name of its own at us, or post a form to our own name.
    """
    headers = dict(scope["headers"])
    addresses = [b"//" + headers.get(b"host", b"")]
    if b"origin" in headers:
        addresses.append(headers[b"origin"])
    names = []
    for address in addresses:
        try:
            names.append(urlsplit(address.decode("latin-1")).hostname or "")
        except ValueError:
            names.append("")
    return names


def _announced(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0
