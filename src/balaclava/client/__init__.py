"""A client of the decision service: `Client`, and `AsyncClient` for programs with an event loop.

>>> from balaclava.client import Client
>>> def serve_visitor(client: Client, visitor: str) -> str:
...     decision = client.decide("landing-page", person=visitor)
...     client.reward(decision, 1.0)  # later, in any order, from any process
...     return decision.label

Both take the same requests, send them the same way and raise the same errors. What may pass (a
connection that breaks, a service that starts again) is tried again, which is safe: decisions are
asked for under a `request_id`, of which the service remembers what it answered, and a reward
counts once however often it is sent. What is wrong is raised at once, in the service's own words:

- `ServiceKeyError`, `ServiceLookupError`, `ServiceConflictError`, `WindowOverError`,
  `ServiceRequestError`, by cause, all of them a `ServiceError`;
- `ServiceUnavailableError` when `patience` is over. It names the request_id to go on with.

Needs httpx: `pip install 'balaclava[client]'`.
"""

from __future__ import annotations

from balaclava.client.asynchronous import AsyncClient
from balaclava.client.blocking import Client
from balaclava.client.calls import RewardReceipt, ServiceDecision

__all__ = ["AsyncClient", "Client", "RewardReceipt", "ServiceDecision"]
