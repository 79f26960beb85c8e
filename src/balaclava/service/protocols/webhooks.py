"""Webhooks: the service tells other servers what was released, signed, at least once.

Events are read from the committed state by the clock, never from a request: a winner was named, an
arm's mean changed, a guardrail's limit was crossed, or a population's budget is nearly spent. All
are computed from released values and charges, so no event and no time of one depends on an
unreleased reward. An event is a row with a unique key, in the queue until it is delivered: a crash
neither loses nor repeats it, but a delivery whose answer was lost is sent again, with the same id.

Addresses: a webhook reaches public addresses over https only. Others must be in a network that the
operator allowed at the start. The address is checked when it is resolved for a delivery, and the
connection goes to that address: DNS rebinding reaches nothing else. Redirects are not followed, and
the answer's body is not read.
"""

from __future__ import annotations

import contextlib
import hmac
import http.client
import ipaddress
import json
import logging
import socket
import ssl
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import sqlalchemy as sa

import balaclava
from balaclava.agents.estimates import EstimateReader
from balaclava.service.engine.jobs import WriteJob
from balaclava.service.engine.unit_of_work import UnitOfWork
from balaclava.service.problems import Problem
from balaclava.service.service import Service
from balaclava.service.store.ledger import Ledger
from balaclava.service.store.schema import deliveries, webhooks
from balaclava.service.store.sql import QUEUE_DELIVERY, execute_many
from balaclava.service.store.storage import DATABASE_ERRORS

log = logging.getLogger("balaclava.service")

NEARLY_SPENT = 0.9  # share of a population's epsilon or delta; early enough to act, a guess
SIGNATURE = "Balaclava-Signature"
# Seconds. All are guesses: an event may be minutes late, and a receiver that is down for a day must
# neither lose it nor be flooded.
_PASS_SECONDS = 5.0  # between two looks at the committed state
_CONNECT_SECONDS, _WHOLE_SECONDS = 5.0, 15.0  # timeouts of a delivery
_STOP_SECONDS = 2.0
_LEASE_SECONDS = 120.0  # in which another process does not try the same delivery
_FIRST_RETRY, _LONGEST_RETRY = 10.0, 3_600.0
MOST_ATTEMPTS = 30  # the last one comes 21 hours after the first
_MOST_CLAIMED = 20  # deliveries of one pass

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
# Global unicast of IPv6 (RFC 4291), and its prefixes that carry any address of IPv4.
_UNICAST = ipaddress.IPv6Network("2000::/3")
_TUNNELS = [ipaddress.IPv6Network(each) for each in ("2002::/16", "2001::/32")]


class AddressRefusedError(Exception):
    """A webhook's address is not public, and no allowed network has it."""


def checked_address(url: str, allowed: Iterable[Network]) -> tuple[str, int, str]:
    """Resolve a webhook's host; returns the address to connect to, the port, and the host.

    Raises `AddressRefusedError` if any address of the host is refused.
    """
    parts = urlsplit(url)
    host, secure = parts.hostname or "", parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    addresses = {entry[4][0] for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    for text in addresses:
        address = ipaddress.ip_address(str(text).partition("%")[0])
        mapped = getattr(address, "ipv4_mapped", None) or address
        if any(mapped in network for network in allowed):
            continue
        if not _is_public(mapped):
            raise AddressRefusedError(
                "the host is at an address that is not public; allow its network with "
                "--webhook-network, such as 10.1.0.0/16"
            )
        if not secure:
            raise AddressRefusedError("public addresses are reached over https only")
    return str(sorted(map(str, addresses))[0]), port, host


def _is_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address) and (
        address not in _UNICAST or any(address in network for network in _TUNNELS)
    ):
        return False
    return address.is_global and not address.is_multicast


def sign(secret: str, body: bytes, now: float) -> str:
    """The header of a delivery: the time, and HMAC-SHA256 of the time, a dot and the body."""
    moment = int(now)
    digest = hmac.digest(secret.encode(), f"{moment}.".encode() + body, "sha256").hex()
    return f"t={moment},v1={digest}"


def deliver(url: str, secret: str, body: bytes, now: float, allowed: Iterable[Network]) -> int:
    """Post a body; returns the status of the answer. Raises `OSError` if none comes in time."""
    address, port, host = checked_address(url, allowed)
    parts = urlsplit(url)
    raw = socket.create_connection((address, port), timeout=_CONNECT_SECONDS)
    same = raw.dup()  # TLS takes `raw` over: only a copy can still end the connection
    deadline = threading.Timer(_WHOLE_SECONDS, _end, [same])
    deadline.daemon = True
    deadline.start()
    connection = http.client.HTTPConnection(host, port)
    connection.sock = raw
    try:
        if parts.scheme == "https":
            connection.sock = ssl.create_default_context().wrap_socket(raw, server_hostname=host)
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"balaclava/{balaclava.__version__}",
            SIGNATURE: sign(secret, body, now),
            "Connection": "close",
        }
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", target, body, headers)
        return connection.getresponse().status
    finally:
        deadline.cancel()
        with contextlib.suppress(OSError):
            connection.close()
        same.close()


def _end(connection: socket.socket) -> None:
    """Make every read and write of a connection fail, if it is still open."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


# Jobs of the writer


@dataclass
class PutWebhook(WriteJob):
    """Create or change a webhook."""

    ledger: Ledger
    name: str
    url: str
    events: list[str]
    secret: str
    by: str

    def apply(self, work: UnitOfWork) -> None:
        self.ledger.note("webhook set", None, None, self.name, self.by)
        work.connection.execute(sa.delete(webhooks).where(webhooks.c.name == self.name))
        row = {"name": self.name, "url": self.url, "events": self.events, "secret": self.secret}
        work.connection.execute(sa.insert(webhooks).values(row))
        work.mark_written()


@dataclass
class DeleteWebhook(WriteJob):
    """Delete a webhook, and what it still had to deliver."""

    ledger: Ledger
    name: str
    by: str

    def apply(self, work: UnitOfWork) -> None:
        """Delete the rows; raises if there is no such webhook."""
        mine = sa.delete(webhooks).where(webhooks.c.name == self.name)
        if not work.connection.execute(mine).rowcount:
            raise Problem(404, "this webhook does not exist")
        self.ledger.note("webhook deleted", None, None, self.name, self.by)
        work.connection.execute(sa.delete(deliveries).where(deliveries.c.webhook == self.name))
        work.mark_written()


@dataclass
class QueueDeliveries(WriteJob):
    """Queue new events, and claim due deliveries for a while."""

    events: list[tuple[str, str, str]]  # webhook, id of the event, body; known ones are ignored

    def apply(self, work: UnitOfWork) -> list[Any]:
        """Return the claimed deliveries with their webhooks."""
        table, now = deliveries, work.now
        rows = [(*event, now) for event in self.events]
        if execute_many(work.connection, QUEUE_DELIVERY, rows):
            work.mark_written()
        due = sa.select(table.c.id).where(table.c.due <= now).order_by(table.c.id)
        due = due.limit(_MOST_CLAIMED).with_for_update(skip_locked=True)
        ids = list(work.connection.scalars(due))
        if not ids:
            return []
        later = {"due": now + _LEASE_SECONDS, "attempts": table.c.attempts + 1}
        work.connection.execute(sa.update(table).where(table.c.id.in_(ids)).values(**later))
        joined = sa.select(table, webhooks.c.url, webhooks.c.secret)
        joined = joined.join(webhooks, webhooks.c.name == table.c.webhook)
        work.mark_written()
        return list(work.connection.execute(joined.where(table.c.id.in_(ids))))


@dataclass
class NoteDelivery(WriteJob):
    """Note that a delivery succeeded, or when to try it again."""

    id: int
    attempts: int
    done: bool

    def apply(self, work: UnitOfWork) -> None:
        wait = min(_FIRST_RETRY * 2.0 ** (self.attempts - 1), _LONGEST_RETRY)
        again = not self.done and self.attempts < MOST_ATTEMPTS
        due = work.now + wait if again else None
        mine = sa.update(deliveries).where(deliveries.c.id == self.id)
        work.connection.execute(mine.values(due=due))
        work.mark_written()


# Events


def current_events(service: Service) -> list[tuple[str, str, dict[str, Any]]]:
    """The current events: name, key and body, all from released values."""
    events = []
    for experiment in service.all_committed():
        definition, reading = experiment.definition, experiment.reading()
        winner = reading.winner() if isinstance(reading, EstimateReader) else None
        if winner is not None:
            body = {"experiment": definition.name, "winner": experiment.arms[winner]}
            events.append(("winner", f"winner {definition.uid} {winner}", body))
        if (trip := experiment.guardrails.trip) is not None:
            body = {"experiment": definition.name, **trip._asdict()}
            events.append(("guardrail", f"guardrail {definition.uid} {trip.at!r}", body))
        for arm in experiment.runner.changed_arms() or ():
            body = {"experiment": definition.name, "arm": arm}
            events.append(("drift", f"drift {definition.uid} {arm}", body))
    for name, budget in service.ledger.budgets().items():
        epsilon, delta = NEARLY_SPENT * budget.epsilon, NEARLY_SPENT * budget.delta
        if budget.spent_epsilon >= epsilon or (delta > 0 and budget.spent_delta >= delta):
            left = {"left_epsilon": budget.document()["left_epsilon"], "epsilon": budget.epsilon}
            key = f"budget {name} {budget.epsilon!r} {budget.delta!r}"
            events.append(("budget", key, {"population": name, **left}))
    return events


class WebhookSender(threading.Thread):
    """Queues events and delivers them in its own thread, without blocking the writer."""

    def __init__(self, service: Service) -> None:
        super().__init__(name="balaclava-webhooks", daemon=True)
        self._service = service
        self._allowed = [ipaddress.ip_network(each) for each in service.webhook_networks]
        self._stopping = threading.Event()

    def run(self) -> None:
        """Make a pass every few seconds, until stopped."""
        while not self._stopping.wait(_PASS_SECONDS):
            try:
                self.run_once()
            except (Problem, TimeoutError, *DATABASE_ERRORS):
                if not self._stopping.is_set():
                    log.warning("webhooks wait: the database does not answer")
            except Exception:
                log.exception("the webhooks failed")

    def stop(self) -> None:
        """End after the current delivery; wait a little for it."""
        self._stopping.set()
        self.join(_STOP_SECONDS)

    def run_once(self) -> None:
        """Queue what is new, and try what is due."""
        with self._service.storage.reading() as connection:
            hooks = connection.execute(sa.select(webhooks)).all()
            if not hooks:
                return
            known = set(connection.scalars(sa.select(deliveries.c.event)))
            due = deliveries.c.due <= self._service.clock.now()
            waiting = connection.execute(sa.select(deliveries.c.id).where(due)).first()
        current = current_events(self._service)
        queued = []
        for hook in hooks:
            for event, key, body in current:
                if event in hook.events:
                    id = self._service.vault.digest("event", f"{hook.name}\0{key}")[:32]
                    if id not in known:
                        text = json.dumps({"id": id, "event": event, **body})
                        queued.append((hook.name, id, text))
        if not queued and waiting is None:
            return
        for row in self._service.run_job(QueueDeliveries(queued)):
            done = self._try(row)
            self._service.run_job(NoteDelivery(row.id, row.attempts, done))

    def _try(self, row: Any) -> bool:
        """Deliver; returns whether the receiver took it. The log has the webhook's name only."""
        now = self._service.clock.now()
        try:
            status = deliver(row.url, row.secret, row.body.encode(), now, self._allowed)
        except AddressRefusedError as error:
            log.warning("webhook %r was not delivered: %s", row.webhook, error)
            return False
        except (OSError, http.client.HTTPException, ValueError) as error:
            log.warning("webhook %r was not delivered: %s", row.webhook, type(error).__name__)
            return False
        if not 200 <= status < 300:
            log.warning("webhook %r was not delivered: HTTP %d", row.webhook, status)
        return 200 <= status < 300
