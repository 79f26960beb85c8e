"""Tables of the service's database. Migrations create them; a test compares the two.

`decisions.value` holds a reward from its arrival to the end of its window, and only where batches
settle by windows. `experiments.policy_state` holds the policy's sums. Persons and request ids are
stored as keyed digests only.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    UniqueConstraint,
)

metadata = MetaData()

Serial = BigInteger().with_variant(Integer, "sqlite")  # SQLite increments INTEGER keys only

# States of a decision
OPEN, REWARDED, DEFAULTED, GIVEN_UP, UNLEARNED = range(5)
STATES = ("open", "rewarded", "defaulted", "given up", "not learned from")

meta = Table(
    "meta",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("value", Text, nullable=False),
)

experiments = Table(
    "experiments",
    metadata,
    Column("id", Serial, primary_key=True),
    Column("uid", String(64), nullable=False, unique=True),  # the experiment in the ledger
    Column("name", String(200), nullable=False, unique=True),
    Column("definition", Text, nullable=False),
    Column("state", String(16), nullable=False),
    Column("created", Float, nullable=False),
    Column("version", BigInteger, nullable=False),  # incremented by each commit that changes it
    Column("books", Text, nullable=False),  # the counters, in JSON
    Column("policy_state", LargeBinary, nullable=False),
    Column("next_due", Float),  # end of the oldest open window
)

decisions = Table(
    "decisions",
    metadata,
    Column("id", String(22), primary_key=True),
    Column("experiment", BigInteger, ForeignKey("experiments.id"), nullable=False),
    Column("round", BigInteger),  # ordinal among the decisions that learn
    Column("arm", Integer, nullable=False),
    Column("phase", BigInteger, nullable=False),
    Column("learns", Boolean, nullable=False),
    Column("propensity", Float),
    Column("level", Float),
    Column("made", Float, nullable=False),
    Column("closes", Float, nullable=False),
    Column("state", SmallInteger, nullable=False),
    Column("kind", String(8)),  # "reward" or "report" that waits for the end of its window
    Column("value", Float),
    Column("request", BigInteger),
    Column("position", Integer),  # within its request
)
Index(
    "decisions_open",
    decisions.c.experiment,
    decisions.c.round,
    sqlite_where=decisions.c.state == OPEN,
    postgresql_where=decisions.c.state == OPEN,
)
Index(
    "decisions_of_request",
    decisions.c.request,
    decisions.c.position,
    sqlite_where=decisions.c.request.is_not(None),
    postgresql_where=decisions.c.request.is_not(None),
)

requests = Table(
    "requests",
    metadata,
    Column("id", Serial, primary_key=True),
    Column("experiment", BigInteger, ForeignKey("experiments.id"), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("body", String(64), nullable=False),
    UniqueConstraint("experiment", "digest"),
)

persons = Table(
    "persons",
    metadata,
    Column("experiment", BigInteger, ForeignKey("experiments.id"), primary_key=True),
    Column("digest", String(64), primary_key=True),
    Column("decisions", Integer, nullable=False),  # that learn
)

snapshots = Table(
    "snapshots",
    metadata,
    Column("id", Serial, primary_key=True),
    Column("experiment", BigInteger, ForeignKey("experiments.id"), nullable=False),
    Column("decisions", BigInteger, nullable=False),
    Column("at", Float, nullable=False),
    Column("content", Text, nullable=False),
)
Index("snapshots_in_order", snapshots.c.experiment, snapshots.c.id)

keys = Table(
    "keys",
    metadata,
    Column("id", String(16), primary_key=True),
    Column("role", String(8), nullable=False),
    Column("label", String(200), nullable=False),
    Column("digest", String(64), nullable=False, unique=True),
    Column("created", Float, nullable=False),
    Column("revoked", Float),
)
