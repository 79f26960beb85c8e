"""Endpoints of the snapshot and of webhooks."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import APIRouter, Depends, Header, Response

from balaclava.service.credentials import ApiKey
from balaclava.service.http.answers import AnswerBody
from balaclava.service.http.payloads import Name, WebhookIn
from balaclava.service.protocols.feature_flags import conditional
from balaclava.service.protocols.signed_snapshot import publish, require_signatures
from balaclava.service.protocols.webhooks import DeleteWebhook, PutWebhook
from balaclava.service.service import Service
from balaclava.service.store.schema import webhooks


class SnapshotOut(AnswerBody):
    """A signed snapshot: content and signature in base64, and the public key to pin."""

    content: str
    signature: str
    public_key: str


class WebhookOut(AnswerBody):
    """A webhook, without its secret."""

    name: str
    url: str
    events: list[str]


class WebhooksOut(AnswerBody):
    """All webhooks."""

    webhooks: list[WebhookOut]


def add_snapshot(router: APIRouter, service: Service) -> None:
    """Add the snapshot to a router whose key may read."""

    @router.get("/v1/snapshot", response_model=SnapshotOut)
    def snapshot(if_none_match: Annotated[str, Header()] = "") -> Response:
        """Return finished experiments, signed, for deciders without a database."""
        require_signatures()
        body = publish(service.vault, service.all_committed(), service.clock.now())
        return conditional(body, if_none_match)


def add_webhooks(
    router: APIRouter, service: Service, key_of: Callable[..., Awaitable[ApiKey]]
) -> None:
    """Add the administration of webhooks to a router whose key is an admin's."""

    @router.put("/v1/webhooks/{name}", response_model=WebhookOut)
    async def set_webhook(
        name: Name, payload: WebhookIn, key: Annotated[ApiKey, Depends(key_of)]
    ) -> dict[str, Any]:
        """Create or change a webhook. The secret signs deliveries, and is never displayed."""
        events: list[str] = sorted(set(payload.events))
        ledger, secret = service.ledger, payload.secret
        job = PutWebhook(ledger, name, payload.url, events, secret, key.actor)
        await service.await_job(job)
        return {"name": name, "url": payload.url, "events": events}

    @router.delete("/v1/webhooks/{name}", status_code=204)
    async def delete_webhook(name: str, key: Annotated[ApiKey, Depends(key_of)]) -> Response:
        """Delete a webhook, and what it still had to deliver."""
        await service.await_job(DeleteWebhook(service.ledger, name, key.actor))
        return Response(status_code=204)

    @router.get("/v1/webhooks", response_model=WebhooksOut)
    async def list_webhooks() -> dict[str, Any]:
        """List all webhooks, without their secrets."""
        return {"webhooks": await asyncio.to_thread(_all, service)}


def _all(service: Service) -> list[dict[str, Any]]:
    columns = webhooks.c.name, webhooks.c.url, webhooks.c.events
    with service.storage.reading() as connection:
        rows = connection.execute(sa.select(*columns).order_by(webhooks.c.name)).all()
    return [dict(row._mapping) for row in rows]
