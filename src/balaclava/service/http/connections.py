"""Limits of connections, which uvicorn does not have: a client needs no key to open one.

A request's headers have a deadline and a size. A whole request, with its answer, has a deadline:
clients may send a body or read an answer slowly. What comes between requests, or of a body after
its answer, has a deadline too. Connections without a request are limited in number; beyond it the
oldest is closed, so that callers who send a request at once are served.

Trailers, the headers after a body in chunks, are dropped: a proxy in front does not check them.
"""

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# Seconds
HEAD_SECONDS = 10.0
REQUEST_SECONDS = 90.0  # more than a body (30) and a commit (30) may take
# Bytes of headers, of trailers or between chunks. The limit of common proxies is 8,192 to 65,536.
LARGEST_HEAD = 65_536
BODY_IS_WHOLE = "balaclava.body_is_whole"  # in the scope of a request: a timeout costs time
MOST_IDLE = 400  # connections without a request
MOST_CONCURRENT = 900  # requests; a process may often open only 1,024 files and sockets


class JoinedWrites:
    """A transport that sends the head of an answer with the first part of the body, for speed."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""
        self._begins = True  # no part of the answer was written

    def write(self, data: bytes) -> None:
        if self._begins and not data.startswith(b"HTTP/1.1 100 "):
            self._begins, self._head = False, data
            return
        head, self._head = self._head, b""
        self._transport.write(head + data)

    def end_answer(self) -> None:
        """Send a head without a body; the next write begins another answer."""
        if self._head:
            self.write(b"")
        self._begins = True

    def close(self) -> None:
        self.end_answer()
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()


class LimitedProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with limits."""

    _timer: asyncio.TimerHandle | None = None
    _deadline: float | None = None  # by the loop's clock
    _overhead = 0  # bytes since a head, a part of a body or a request was complete
    _advanced = False  # one of them was, in the data that are parsed
    _in_head = True
    _is_complete = False  # the request that came last

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._writes = JoinedWrites(transport)
        # The connections of this server without a request, oldest first.
        self._idle: dict[LimitedProtocol, None] = vars(self.server_state).setdefault("idle", {})
        self._set_idle()
        self._set_timer(HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline = None
        if self._timer is not None:
            self._timer.cancel()
        self._idle.pop(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._advanced = False
        super().data_received(data)
        self._overhead = 0 if self._advanced else self._overhead + len(data)
        if self._overhead > LARGEST_HEAD:
            self.transport.abort()
        elif self._deadline is None and not self.transport.is_closing():
            self._set_timer(HEAD_SECONDS)  # line breaks before a request: keep-alive has ended

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._is_complete = True, False
        if self.cycle is None or self.cycle.response_complete:
            self._set_timer(HEAD_SECONDS)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # otherwise a trailer
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head, self._advanced = False, True
        self._idle.pop(self, None)
        self._set_timer(REQUEST_SECONDS)
        super().on_headers_complete()
        if self.cycle is not None:
            self.cycle.transport = self._writes  # type: ignore[assignment]

    def on_body(self, body: bytes) -> None:
        self._advanced = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._is_complete = self._advanced = True
        cast(dict[str, Any], self.scope)[BODY_IS_WHOLE] = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._writes.end_answer()
        super().on_response_complete()
        if self.transport.is_closing():
            return
        if self.pipeline or (self.cycle is not None and not self.cycle.response_complete):
            self._set_timer(REQUEST_SECONDS)
            return
        self._set_idle()
        self._set_timer(None if self._is_complete else HEAD_SECONDS)  # keep-alive has its own

    def _set_idle(self) -> None:
        self._idle[self] = None
        if len(self._idle) > MOST_IDLE:
            oldest = next(iter(self._idle))
            del self._idle[oldest]
            oldest.transport.abort()

    def _set_timer(self, seconds: float | None) -> None:
        """Close the connection after so many seconds, or never.

        A timer that runs is left alone if the deadline is later: a new one costs more.
        """
        self._deadline = None if seconds is None else self.loop.time() + seconds
        if self._deadline is None or (self._timer and self._timer.when() <= self._deadline):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_at(self._deadline, self._time_out)

    def _time_out(self) -> None:
        self._timer = None
        if self._deadline is not None and self.loop.time() >= self._deadline:
            self.transport.abort()
        elif self._deadline is not None:
            self._timer = self.loop.call_at(self._deadline, self._time_out)


LIMITS: dict[str, Any] = {"http": LimitedProtocol, "limit_concurrency": MOST_CONCURRENT}
