"""A client of the decision service: `Client`, and `AsyncClient` for asyncio.

>>> from balaclava.client import Client
>>> def serve_visitor(client: Client, visitor: str) -> str:
...     decision = client.decide("landing-page", person=visitor)
...     client.reward(decision, 1.0)  # later, in any order, from any process
...     return decision.label

Both retry transient faults, such as a broken connection or a restart of the service. Retries are
safe: decisions carry a `request_id`, and a reward counts once. Other faults raise at once, with
the service's own message:

- `ServiceKeyError`, `ServiceLookupError`, `ServiceConflictError`, `WindowOverError` and
  `ServiceRequestError`, all subclasses of `ServiceError`;
- `ServiceUnavailableError` after `patience` seconds. It names the request_id to retry with.

Needs httpx: `pip install 'balaclava[client]'`.
"""

from balaclava.client.calls import RewardReceipt, ServiceDecision
from balaclava.client.clients import AsyncClient, Client
from balaclava.client.share_sender import ShareSender

__all__ = ["AsyncClient", "Client", "RewardReceipt", "ServiceDecision", "ShareSender"]
