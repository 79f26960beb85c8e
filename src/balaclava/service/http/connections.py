"""Limits of connections, which uvicorn does not have: a client needs no key to open one.

A request's headers have a deadline and a size. A whole request, with its answer, has a deadline:
clients may send a body or read an answer slowly. Connections without a request are limited in
number; beyond it the oldest is closed, so that callers who send a request at once are served.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# Seconds
HEAD_SECONDS = 10.0
REQUEST_SECONDS = 90.0  # more than a body (30) and a commit (30) may take
LARGEST_HEAD = 65_536  # bytes: the limit of common proxies is 8,192 to 65,536
MOST_IDLE = 400  # connections without a request
MOST_CONCURRENT = 900  # requests; a process may often open only 1,024 files and sockets


class LimitedProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with limits."""

    _timer: asyncio.TimerHandle | None = None
    _head_size = 0  # bytes of incomplete headers
    _in_head = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # The connections of this server without a request, oldest first.
        self._idle: dict[LimitedProtocol, None] = vars(self.server_state).setdefault("idle", {})
        self._set_idle()
        self._set_timer(HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._set_timer(None)
        self._idle.pop(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        in_head = self._in_head
        super().data_received(data)
        self._head_size = self._head_size + len(data) if in_head and self._in_head else 0
        if self._head_size > LARGEST_HEAD:
            self.transport.abort()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        if self.cycle is None or self.cycle.response_complete:
            self._set_timer(HEAD_SECONDS)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._idle.pop(self, None)
        self._set_timer(REQUEST_SECONDS)
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            return
        if self.pipeline or (self.cycle is not None and not self.cycle.response_complete):
            self._set_timer(REQUEST_SECONDS)
            return
        self._set_idle()
        self._set_timer(HEAD_SECONDS if self._in_head else None)  # otherwise keep-alive has one

    def _set_idle(self) -> None:
        self._idle[self] = None
        if len(self._idle) > MOST_IDLE:
            oldest = next(iter(self._idle))
            del self._idle[oldest]
            oldest.transport.abort()

    def _set_timer(self, seconds: float | None) -> None:
        """Close the connection after so many seconds, or never."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(seconds, self._abort)

    def _abort(self) -> None:
        self.transport.abort()


LIMITS: dict[str, Any] = {"http": LimitedProtocol, "limit_concurrency": MOST_CONCURRENT}
