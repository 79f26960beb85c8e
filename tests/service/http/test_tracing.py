"""Spans of requests: only if asked for, and without what could identify a decision."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry import trace
from starlette.testclient import TestClient

from balaclava.service.http.app import create_app
from balaclava.service.service import Service
from tests.service.manual_service import SHOP


class Recorder(trace.TracerProvider, trace.Tracer):
    """An SDK that keeps the spans that it is given."""

    def __init__(self) -> None:
        self.spans: list[dict[str, Any]] = []

    def get_tracer(self, *arguments: Any, **more: Any) -> trace.Tracer:
        return self

    def start_span(self, name: str, context: Any = None, *more: Any, **times: Any) -> trace.Span:
        parent = trace.get_current_span(context).get_span_context()
        span = {"name": name, "parent": parent.span_id, "kind": more[0], "attributes": more[1]}
        self.spans.append({**span, **times})
        return trace.NonRecordingSpan(parent)

    def start_as_current_span(self, *arguments: Any, **more: Any) -> Iterator[trace.Span]:
        raise NotImplementedError  # type: ignore[misc]


@pytest.mark.parametrize("telemetry", [True, False])
def test_a_request_has_a_span_if_asked_for(
    open_service: Callable[..., Service], monkeypatch: pytest.MonkeyPatch, telemetry: bool
) -> None:
    recorder = Recorder()
    monkeypatch.setattr(trace, "get_tracer", lambda *name: recorder)
    service = open_service()
    service.telemetry = telemetry
    with TestClient(create_app(service, keys=False), base_url="http://localhost") as client:
        client.post("/v1/experiments", json=SHOP)
        asked = {"person": "ann", "request_id": "secret"}
        answer = client.post("/v1/experiments/shop/decisions", json=asked)
        (made,) = answer.json()["decisions"]
        parent = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
        path = f"/v1/decisions/{made['decision_id']}/reward"
        client.put(path, json={"value": 0.25}, headers=parent)
        client.get("/nothing/here")
    names = [span["name"] for span in recorder.spans]
    if not telemetry:
        assert names == []
        return
    assert names == [
        "POST /v1/experiments",
        "POST /v1/experiments/{name}/decisions",
        "PUT /v1/decisions/{decision_id}/reward",
        "GET other",
    ]
    assert [span["attributes"]["http.response.status_code"] for span in recorder.spans] == [
        *(201, 200, 200, 404)
    ]
    assert recorder.spans[2]["parent"] == 0xB7AD6B7169203331
    assert all(span["kind"] is trace.SpanKind.SERVER for span in recorder.spans)
    text = str(recorder.spans)
    assert not any(
        word in text for word in (made["decision_id"], "ann", "secret", "0.25", "nothing", "shop")
    )
