"""Around every request: a limit on its size, headers that browsers obey, a count and a time."""

from __future__ import annotations

import time
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from balaclava.service.metrics import Metrics
from balaclava.service.problems import Problem

LARGEST_BODY = 1_000_000
BODY_SECONDS = 30.0
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
]


class _TooLargeError(Exception):
    """More was sent than is taken."""


class Guards:
    """Plain ASGI: it costs next to nothing."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, unless it is too large."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, sent, status = time.perf_counter(), 0, 500

        async def limited() -> Message:
            nonlocal sent
            message = await receive()
            sent += len(message.get("body", b""))
            if sent > LARGEST_BODY:
                raise _TooLargeError
            return message

        async def guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                names = {name for name, _ in message["headers"]}
                extra = [item for item in _HEADERS if item[0] not in names]
                if b"cache-control" not in names:
                    extra.append((b"cache-control", b"no-store"))
                message["headers"] = [*message["headers"], *extra]
            await send(message)

        try:
            if _announced(scope) > LARGEST_BODY:
                raise _TooLargeError
            await self._app(scope, limited, guarded)
        except _TooLargeError:
            status = 413
            await _refuse(scope, receive, guarded)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self._metrics.note(scope["method"], route, status, time.perf_counter() - began)


def _announced(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0


async def _refuse(scope: Scope, receive: Receive, send: Any) -> None:
    from balaclava.service.app import problem_response

    problem = Problem(413, f"a body has at most {LARGEST_BODY:,} bytes; send less at once")
    await problem_response(problem)(scope, receive, send)
