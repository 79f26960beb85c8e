"""Middleware around every request: body limits, security headers, metrics."""

import asyncio
import contextlib
import ipaddress
import time
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from balaclava.service.http.connections import BODY_IS_WHOLE
from balaclava.service.http.metrics import Metrics
from balaclava.service.http.tracing import RequestTracer
from balaclava.service.problems import Problem, problem_response

LARGEST_BODY = 1_000_000  # bytes, part of the HTTP contract
BODY_SECONDS = 30.0  # timeout of a whole body
_TOO_SLOW = Problem(408, f"timeout: the body was not complete after {BODY_SECONDS:g} seconds")
_NOT_LOCAL = Problem(
    403, "without keys the service accepts requests to localhost or 127.0.0.1 only"
)
_SECURITY_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
]


def too_large(most: int) -> Problem:
    """The answer to a body of more than `most` bytes."""
    return Problem(413, f"the body is too large: at most {most:,} bytes; split it")


class _RefusedError(Exception):
    """Stop reading the body."""


class RequestMiddleware:
    """ASGI middleware that limits bodies, adds headers and records metrics."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        metrics: Metrics,
        local: bool = False,
        root_path: str = "",
        largest_body: int = LARGEST_BODY,
        tracer: RequestTracer | None = None,
    ) -> None:
        self._app, self._metrics, self._local = app, metrics, local
        self._root_path, self._largest, self._tracer = root_path, largest_body, tracer
        self._too_large = too_large(largest_body)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._root_path:
            scope["root_path"] = self._root_path
        began, sent, status, whole = time.perf_counter(), 0, 500, False
        deadline = asyncio.get_running_loop().time() + BODY_SECONDS
        refusal = self._too_large if _content_length(scope) > self._largest else None
        if "\0" in scope["path"]:
            refusal = Problem(404, "no page or endpoint at this path")
        if self._local and not all(map(is_loopback, _host_names(scope))):
            refusal = _NOT_LOCAL

        async def limited() -> Message:
            nonlocal sent, whole, refusal
            if whole or scope.get(BODY_IS_WHOLE):
                message = await receive()
            else:
                try:
                    async with asyncio.timeout_at(deadline):
                        message = await receive()
                except TimeoutError:
                    refusal = _TOO_SLOW
                    raise _RefusedError from None
            sent += len(message.get("body", b""))
            whole = whole or not message.get("more_body", False)
            if sent > self._largest:
                refusal = self._too_large
                raise _RefusedError
            return message

        async def guarded(message: Message) -> None:
            nonlocal status
            if refusal is not None and status != refusal.status:
                return  # the application's answer to a truncated body
            if message["type"] == "http.response.start":
                status = message["status"]
                names = {name for name, _ in message["headers"]}
                extra = [item for item in _SECURITY_HEADERS if item[0] not in names]
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
            seconds = time.perf_counter() - began
            self._metrics.record(scope["method"], route, status, seconds)
            if self._tracer is not None:
                self._tracer.record(scope, route, status, seconds)


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _host_names(scope: Scope) -> list[str]:
    """Host names in the Host and Origin headers.

    A foreign page may resolve its name to this machine, or post a form to localhost.
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


def _content_length(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0
