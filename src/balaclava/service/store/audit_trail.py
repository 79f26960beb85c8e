"""The audit trail: each entry of the ledger with its actor, chained by digests.

A link's digest is SHA-256 over the digest before it and the entry. Changing or removing an entry
changes every later digest, so keeping the latest one elsewhere detects any change. The trail
contains no person, no digest of one, and no reward.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import sqlalchemy as sa

from balaclava.service.problems import StartError

START_OF_CHAIN = "0" * 64
_ENTRY_COLUMNS = ("id", "at", "event", "population", "experiment", "epsilon", "delta", "note")


class AuditTrail:
    """Links of the ledger's entries. The caller holds the ledger's lock to add one."""

    def __init__(self, metadata: sa.MetaData, entries: sa.Table) -> None:
        self._entries = entries
        self.links = sa.Table(
            "links",
            metadata,
            sa.Column("entry", sa.BigInteger, primary_key=True, autoincrement=False),
            sa.Column("actor", sa.Text, nullable=False),
            sa.Column("digest", sa.String(64), nullable=False),
        )

    def link(self, connection: sa.Connection, actor: str = "") -> None:
        """Chain the entries that have no link yet, oldest first."""
        links, entries = self.links, self._entries
        last = connection.execute(sa.select(links).order_by(links.c.entry.desc()).limit(1)).first()
        digest = START_OF_CHAIN if last is None else last.digest
        wanted = sa.select(*(entries.c[name] for name in _ENTRY_COLUMNS)).order_by(entries.c.id)
        for row in connection.execute(wanted.where(entries.c.id > (last.entry if last else 0))):
            digest = entry_digest(digest, actor, dict(row._mapping))
            values = {"entry": row.id, "actor": actor, "digest": digest}
            connection.execute(sa.insert(links).values(**values))

    def read(self, connection: sa.Connection, after: int, limit: int) -> list[dict[str, Any]]:
        """Entries with an id above `after`, oldest first, each with the digest before it."""
        links, entries = self.links, self._entries
        columns = (*(entries.c[name] for name in _ENTRY_COLUMNS), links.c.actor, links.c.digest)
        joined = entries.join(links, links.c.entry == entries.c.id)
        wanted = sa.select(*columns).select_from(joined).order_by(entries.c.id)
        rows = connection.execute(wanted.where(entries.c.id > after).limit(limit)).all()
        before = sa.select(links.c.digest).where(links.c.entry <= after)
        newest = connection.scalar(before.order_by(links.c.entry.desc()).limit(1))
        digests = [newest or START_OF_CHAIN, *(row.digest for row in rows)]
        return [
            {**row._mapping, "previous": previous}
            for previous, row in zip(digests, rows, strict=False)
        ]

    def require_intact(self, connection: sa.Connection) -> int:
        """Recompute the chain; returns its length, or raises at the first entry that differs."""
        entries = self.read(connection, 0, 2**62)
        digest = START_OF_CHAIN
        for entry in entries:
            content = {name: entry[name] for name in _ENTRY_COLUMNS}
            digest = entry_digest(digest, entry["actor"], content)
            if digest != entry["digest"]:
                raise StartError(
                    f"entry {entry['id']} of the audit trail was changed, or one before it was "
                    "removed; restore the newest ledger"
                )
        return len(entries)


def entry_digest(previous: str, actor: str, entry: dict[str, Any]) -> str:
    """SHA-256 of the digest before, the actor and the entry, as JSON with sorted keys."""
    text = json.dumps([previous, actor, entry], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
