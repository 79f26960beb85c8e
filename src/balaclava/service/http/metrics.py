"""Counters and latencies for Prometheus. Nothing here depends on a reward's value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

if TYPE_CHECKING:
    from balaclava.service.service import Service

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_KNOWN_METHODS = {"GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS"}


class Metrics:
    """Of one process."""

    media_type = CONTENT_TYPE_LATEST

    def __init__(self, service: Service) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "balaclava_requests",
            "Requests by route and status.",
            ["method", "route", "status"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "balaclava_request_seconds",
            "How long answers took.",
            ["route"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        waiting = Gauge(
            "balaclava_waiting", "Decisions and rewards in the queue.", registry=self._registry
        )
        waiting.set_function(lambda: service.writer.waiting)
        commits = Gauge("balaclava_commits", "Commits since the start.", registry=self._registry)
        commits.set_function(lambda: service.writer.commits)

    def note(self, method: str, route: str, status: int, seconds: float) -> None:
        """A request was answered."""
        method = method if method in _KNOWN_METHODS else "other"
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def text(self) -> bytes:
        """In the format of Prometheus."""
        return generate_latest(self._registry)
