"""Spans of requests for OpenTelemetry, with `--telemetry` only.

A span has the times, the method, the route and the status of a request. It has no path, since a
path may contain a decision's id, and no header, person or reward. When rewards arrive may reveal
them: the spans are for the operator. Where they go is the SDK's affair, such as that of
`opentelemetry-instrument`; without one they go nowhere.
"""

from __future__ import annotations

import time

from starlette.types import Scope

import balaclava
from balaclava._core.extras import import_extra

_PARENT = (b"traceparent", b"tracestate")  # of the caller's span (W3C Trace Context)


class RequestTracer:
    """Records a span for each request."""

    def __init__(self) -> None:
        self._trace = import_extra("opentelemetry.trace", "--telemetry")
        self._propagate = import_extra("opentelemetry.propagate", "--telemetry")
        self._tracer = self._trace.get_tracer("balaclava", balaclava.__version__)

    def record(self, scope: Scope, route: str, status: int, seconds: float) -> None:
        """Record a request that has just been answered."""
        parent = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in scope["headers"]
            if name in _PARENT
        }
        end = time.time_ns()
        span = self._tracer.start_span(
            f"{scope['method']} {route}",
            self._propagate.extract(parent),
            self._trace.SpanKind.SERVER,
            {
                "http.request.method": scope["method"],
                "http.route": route,
                "http.response.status_code": status,
            },
            start_time=end - int(1e9 * seconds),
        )
        span.end(end)
