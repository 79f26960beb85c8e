"""Request counts, latencies and drift alarms for Prometheus, for admins only.

No metric contains a reward's value. But counts of requests follow rewards if not all are reported:
where only purchases are, counting reports counts purchases.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector
from sqlalchemy.exc import SQLAlchemyError

import balaclava
from balaclava.service.documents import drift_document
from balaclava.service.engine.served_experiment import FINISHED
from balaclava.service.problems import Problem

if TYPE_CHECKING:
    from balaclava.service.service import Service

# Bucket bounds in seconds: a decision takes milliseconds, a timeout 30 s.
_LATENCY_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_KNOWN_METHODS = {"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"}


FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"  # where workers keep metrics; read by the library


class DriftCollector(Collector):
    """Drift alarms of the experiments that are not finished, from released values only.

    Read from the database at each scrape, so any worker answers for all. Without the database they
    are left out.
    """

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[GaugeMetricFamily]:
        label = ["experiment"]
        changed = GaugeMetricFamily(
            "balaclava_changed_arms", "Arms whose released means changed.", labels=label
        )
        restarts = GaugeMetricFamily(
            "balaclava_restarts",
            "Times that the policy started again after a change.",
            labels=label,
        )
        try:
            running = [e for e in self._service.all_committed() if e.state != FINISHED]
        except (Problem, SQLAlchemyError):
            return
        for experiment in running:
            drift, name = drift_document(experiment), [experiment.definition.name]
            if drift["changed"] is not None:
                changed.add_metric(name, len(drift["changed"]))
            if drift["restarts"] is not None:
                restarts.add_metric(name, drift["restarts"])
        yield from (changed, restarts)


class Metrics:
    """Metrics of one process, or of all workers if they share a folder."""

    media_type = CONTENT_TYPE_LATEST

    def __init__(self, service: Service) -> None:
        self._registry = CollectorRegistry()
        folder = os.environ.get(FOLDER_VARIABLE)
        self._folder = None if folder is None else Path(folder)
        self._requests = Counter(
            "balaclava_requests",
            "Requests by route and status.",
            ["method", "route", "status"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "balaclava_request_seconds",
            "Latency of responses.",
            ["route"],
            buckets=_LATENCY_BUCKETS,
            registry=self._registry,
        )
        self._labelled = cache(self._children)
        self._drift = DriftCollector(service)
        self._registry.register(self._drift)
        self._writer = service.writer
        self._waiting = Gauge(
            "balaclava_waiting",
            "Decisions and rewards in the queue.",
            registry=self._registry,
            multiprocess_mode="livesum",
        )
        build = Gauge(
            "balaclava_build_info",
            "The version.",
            ["version"],
            registry=self._registry,
            multiprocess_mode="livemax",
        )
        build.labels(balaclava.__version__).set(1)
        commits = Histogram(
            "balaclava_commit_seconds",
            "Duration of commits, with the ledger.",
            buckets=_LATENCY_BUCKETS,
            registry=self._registry,
        )
        service.writer.observe_commit = commits.observe

    def record(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        method = method if method in _KNOWN_METHODS else "other"
        requests, latency = self._labelled(method, route, status)
        requests.inc()
        latency.observe(seconds)
        if self._folder is not None:  # another worker may answer for this one
            self._waiting.set(self._writer.waiting)

    def _children(self, method: str, route: str, status: int) -> tuple[Counter, Histogram]:
        """The metrics of a route, cached: a look-up by labels is slow."""
        return self._requests.labels(method, route, str(status)), self._seconds.labels(route)

    def text(self) -> bytes:
        """All metrics in Prometheus's format, summed over the workers."""
        self._waiting.set(self._writer.waiting)
        if self._folder is None:
            return generate_latest(self._registry)
        _forget_dead_workers(self._folder)
        together = CollectorRegistry()
        MultiProcessCollector(together)  # type: ignore[no-untyped-call]
        together.register(self._drift)
        return generate_latest(together)


def _forget_dead_workers(folder: Path) -> None:
    """Drop the gauges of workers that died; their counters still count."""
    for file in folder.glob("gauge_live*_*.db"):
        process = int(file.stem.rpartition("_")[2])
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            mark_process_dead(process)  # type: ignore[no-untyped-call]
        except PermissionError:
            pass  # it lives
