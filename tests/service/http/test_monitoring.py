"""What monitoring reads: log lines in JSON, and metrics with the names that Prometheus asks for."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Callable

from prometheus_client.parser import text_string_to_metric_families

from balaclava.service.http.server import JsonLines
from balaclava.service.service import Service
from tests.service.http.test_app import client_of, create, decide, reward

NOT_BASE = re.compile(r"milli|micro|nano|minutes|hours|days|kilo|mega|percent")


def test_a_log_line_is_one_object() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        fault = sys.exc_info()
    place = ("balaclava.service", logging.ERROR, __file__, 1)
    line = JsonLines().format(logging.LogRecord(*place, 'a "%s"\n', ("quoted",), fault))
    assert "\n" not in line
    told = json.loads(line)
    assert told.keys() == {"time", "level", "logger", "message", "exception"}
    assert (told["level"], told["message"]) == ("error", 'a "quoted"\n')
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", told["time"])
    assert "two\nlines" in told["exception"]


def test_metrics_are_named_as_prometheus_asks(open_service: Callable[..., Service]) -> None:
    """The rules of `promtool check metrics`, on every metric that the service has."""
    client = client_of(open_service())
    create(client)
    families = list(text_string_to_metric_families(client.get("/metrics").text))
    assert len(families) >= 5
    for family in families:
        assert re.fullmatch(r"balaclava_[a-z]+(_[a-z]+)*", family.name)
        assert family.documentation.endswith(".")
        assert not NOT_BASE.search(family.name)
        assert family.type not in family.name.split("_")
        names = {sample.name for sample in family.samples}
        if family.type == "counter":
            assert {name for name in names if not name.endswith("_created")} == (
                {f"{family.name}_total"}
            )
        if family.type == "histogram":
            assert family.name.endswith("_seconds")
            assert {f"{family.name}_bucket", f"{family.name}_sum"} <= names
        for sample in family.samples:
            assert all(re.fullmatch("[a-z]+", label) for label in sample.labels)
            # Paths contain decision ids: only the names of routes are labels.
            assert "{" in sample.labels.get("route", "{") or sample.labels["route"].count("/") < 4


def test_drift_alarms_count_changed_arms_and_restarts(open_service: Callable[..., Service]) -> None:
    """All arms pay 1, then 0: noise and chance explain that with probability below 1e-9."""
    client = client_of(open_service())

    def drift() -> dict[tuple[str, str], float]:
        families = text_string_to_metric_families(client.get("/metrics").text)
        samples = [s for family in families for s in family.samples if "experiment" in s.labels]
        return {(s.name, s.labels["experiment"]): s.value for s in samples}

    for name, memory in (("whole", None), ("detects", "detect")):
        own = {"epsilon": 20.0, "first_batch": 4, "memory": memory}
        create(client, name=name, parameters=own, arms=["a", "b"], settle="arrival")
    create(client, name="other", policy="dp-se", parameters={"epsilon": 1.0, "horizon": 99})
    for value in (1.0, 0.0):
        for name in ("whole", "detects"):
            for each in decide(client, name, count=150):
                assert reward(client, each, value).status_code == 200
        if value:
            assert drift() == {
                ("balaclava_changed_arms", "whole"): 0,
                ("balaclava_restarts", "detects"): 0,
            }
    after = drift()
    assert after["balaclava_changed_arms", "whole"] >= 1
    assert after["balaclava_restarts", "detects"] >= 1
    client.post("/v1/experiments/whole/finish")
    assert ("balaclava_changed_arms", "whole") not in drift()
