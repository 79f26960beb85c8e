"""Tables of the service's database. Migrations create them; a test compares the two.

`decisions.value` holds a reward, and `decisions.metrics` readings of guardrails, only where batches
settle by windows: from its arrival to the end of its window, or for a named person until its batch
is released. `experiments.policy_state` holds
the policy's sums. `shares.share` is a uniform random number to anyone without the other share.
Persons and request ids are stored as keyed digests only.
"""

import sqlalchemy as sa

metadata = sa.MetaData()

Serial = sa.BigInteger().with_variant(sa.Integer, "sqlite")  # SQLite increments INTEGER keys only

WAS_ERASED = "erased"  # in `decisions.kind`: the participant's data were erased

# States of a decision
OPEN, REWARDED, DEFAULTED, GIVEN_UP, NOT_LEARNED, AWAITED = range(6)
STATES = (
    *("open", "rewarded", "defaulted", "given up", "not learned from"),
    "awaits the release of its batch",  # by the aggregators of secret shares
)


def decision_state(kind: str | None, state: int) -> str:
    """The state of a decision as an admin sees it."""
    if kind == WAS_ERASED:
        return WAS_ERASED
    return "rewarded" if kind is not None else STATES[state]


meta = sa.Table(
    "meta",
    metadata,
    sa.Column("name", sa.String(64), primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)

experiments = sa.Table(
    "experiments",
    metadata,
    sa.Column("id", Serial, primary_key=True),
    sa.Column("uid", sa.String(64), nullable=False, unique=True),  # the experiment in the ledger
    sa.Column("name", sa.String(200), nullable=False, unique=True),
    sa.Column("definition", sa.Text, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("created", sa.Float, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),  # grows with each commit that changes it
    sa.Column("books", sa.Text, nullable=False),  # `Counters` in JSON
    sa.Column("policy_state", sa.LargeBinary, nullable=False),
    sa.Column("next_due", sa.Float),  # end of the oldest open window
    sa.Column("next_cleanup", sa.Float),  # when a decision or a held reward is to be deleted
    sa.Column("guardrails", sa.Text),  # `Guardrails` in JSON, with raw sums
    sa.Column("settings", sa.Text),  # `ExperimentSettings` in JSON; NULL: none was changed
)

decisions = sa.Table(
    "decisions",
    metadata,
    sa.Column("id", sa.String(22), primary_key=True),
    sa.Column("experiment", sa.BigInteger, sa.ForeignKey("experiments.id"), nullable=False),
    sa.Column("round", sa.BigInteger),  # ordinal among the decisions that learn
    sa.Column("arm", sa.Integer, nullable=False),
    sa.Column("phase", sa.BigInteger, nullable=False),
    sa.Column("learns", sa.Boolean, nullable=False),
    sa.Column("propensity", sa.Float),
    sa.Column("level", sa.Float),
    sa.Column("made", sa.Float, nullable=False),
    sa.Column("closes", sa.Float, nullable=False),
    sa.Column("state", sa.SmallInteger, nullable=False),
    sa.Column("kind", sa.String(8)),  # "reward" or "report" that waits for the end of its window
    sa.Column("value", sa.Float),
    sa.Column("request", sa.BigInteger),
    sa.Column("position", sa.Integer),  # within its request
    sa.Column("person", sa.BigInteger),  # first 60 bits of the keyed digest
    sa.Column("features", sa.Text),  # public, as JSON
    sa.Column("metrics", sa.Text),  # readings that are not released, as JSON
    sa.Column("exposed", sa.SmallInteger),  # 1 if it was reported as displayed
)
sa.Index("decisions_by_age", decisions.c.experiment, decisions.c.made)
sa.Index(
    "decisions_of_person",
    decisions.c.person,
    sqlite_where=decisions.c.person.is_not(None),
    postgresql_where=decisions.c.person.is_not(None),
)
sa.Index(
    "decisions_with_metrics",
    decisions.c.experiment,
    decisions.c.arm,
    decisions.c.round,
    sqlite_where=decisions.c.metrics.is_not(None),
    postgresql_where=decisions.c.metrics.is_not(None),
)
_held = sa.and_(decisions.c.value.is_not(None), decisions.c.state != OPEN)
sa.Index(  # rewards of open batches, for erasure until they are released
    "decisions_held",
    decisions.c.experiment,
    decisions.c.arm,
    decisions.c.phase,
    sqlite_where=_held,
    postgresql_where=_held,
)
sa.Index(
    "decisions_open",
    decisions.c.experiment,
    decisions.c.round,
    sqlite_where=decisions.c.state == OPEN,
    postgresql_where=decisions.c.state == OPEN,
)
_awaited = decisions.c.state == AWAITED
sa.Index(
    "decisions_awaited",
    decisions.c.experiment,
    decisions.c.arm,
    decisions.c.phase,
    sqlite_where=_awaited,
    postgresql_where=_awaited,
)
sa.Index(
    "decisions_of_request",
    decisions.c.request,
    decisions.c.position,
    sqlite_where=decisions.c.request.is_not(None),
    postgresql_where=decisions.c.request.is_not(None),
)

requests = sa.Table(
    "requests",
    metadata,
    sa.Column("id", Serial, primary_key=True),
    sa.Column("experiment", sa.BigInteger, sa.ForeignKey("experiments.id"), nullable=False),
    sa.Column("digest", sa.String(64), nullable=False),
    sa.Column("body", sa.String(64), nullable=False),
    sa.UniqueConstraint("experiment", "digest"),
)

persons = sa.Table(
    "persons",
    metadata,
    sa.Column("experiment", sa.BigInteger, sa.ForeignKey("experiments.id"), primary_key=True),
    sa.Column("digest", sa.String(64), primary_key=True),
    sa.Column("decisions", sa.Integer, nullable=False),  # that learn
    sa.Column("arm", sa.Integer),  # that sticky decisions repeat
    sa.Column("decision", sa.String(22)),  # that set it
)

members = sa.Table(  # the segment of a population that a person learns in
    "members",
    metadata,
    sa.Column("population", sa.String(200), primary_key=True),
    sa.Column("digest", sa.String(64), primary_key=True),  # keyed
    sa.Column("segment", sa.String(200), nullable=False),
)

leases = sa.Table(  # runs of slots of an experiment that a process decides by
    "leases",
    metadata,
    sa.Column("id", sa.String(22), primary_key=True),  # random: the fencing token of its holder
    sa.Column("experiment", sa.BigInteger, sa.ForeignKey("experiments.id"), nullable=False),
    sa.Column("runs", sa.Text, nullable=False),  # JSON of [first round, slots, arm, phase, chance]
    sa.Column("granted", sa.Integer, nullable=False),  # slots
    sa.Column("used", sa.Integer, nullable=False),  # slots, in the order of their rounds
    sa.Column("anonymous", sa.Integer, nullable=False),  # of these, without a person
    sa.Column("others", sa.Text, nullable=False),  # JSON: decisions that do not learn, by arm
    sa.Column("ends", sa.Float, nullable=False),
)
sa.Index("leases_of_experiment", leases.c.experiment)

snapshots = sa.Table(
    "snapshots",
    metadata,
    sa.Column("id", Serial, primary_key=True),
    sa.Column("experiment", sa.BigInteger, sa.ForeignKey("experiments.id"), nullable=False),
    sa.Column("decisions", sa.BigInteger, nullable=False),
    sa.Column("at", sa.Float, nullable=False),
    sa.Column("content", sa.Text, nullable=False),
)
sa.Index("snapshots_in_order", snapshots.c.experiment, snapshots.c.id)

keys = sa.Table(
    "keys",
    metadata,
    sa.Column("id", sa.String(16), primary_key=True),
    sa.Column("role", sa.String(8), nullable=False),
    sa.Column("label", sa.String(200), nullable=False),
    sa.Column("digest", sa.String(64), nullable=False, unique=True),
    sa.Column("created", sa.Float, nullable=False),
    sa.Column("revoked", sa.Float),
    sa.Column("expires", sa.Float),
    sa.Column("experiments", sa.JSON),  # names; NULL: all
)

webhooks = sa.Table(
    "webhooks",
    metadata,
    sa.Column("name", sa.String(200), primary_key=True),
    sa.Column("url", sa.Text, nullable=False),
    sa.Column("events", sa.JSON, nullable=False),
    sa.Column("secret", sa.String(200), nullable=False),  # which signs what is delivered
)

deliveries = sa.Table(  # events that webhooks were or will be told
    "deliveries",
    metadata,
    sa.Column("id", Serial, primary_key=True),
    sa.Column("webhook", sa.String(200), nullable=False),
    sa.Column("event", sa.String(32), nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("due", sa.Float),  # None once it was delivered or given up
    sa.UniqueConstraint("webhook", "event"),
)

tasks = sa.Table(  # of an aggregator: what it knows of an experiment
    "tasks",
    metadata,
    sa.Column("id", Serial, primary_key=True),
    sa.Column("uid", sa.String(64), nullable=False, unique=True),
    sa.Column("document", sa.Text, nullable=False),
    sa.Column("ended", sa.SmallInteger, nullable=False),  # 1: after a restore, nothing is released
)

share_batches = sa.Table(  # a batch whose set of decisions is fixed
    "share_batches",
    metadata,
    sa.Column("id", Serial, primary_key=True),
    sa.Column("task", sa.BigInteger, sa.ForeignKey("tasks.id"), nullable=False),
    sa.Column("label", sa.String(64), nullable=False),
    sa.Column("proposed", sa.String(64), nullable=False),  # digest of the ids
    sa.Column("missing", sa.Text, nullable=False),  # JSON: proposed ids without a share
    sa.Column("agreed", sa.String(64)),  # digest of the ids in the release; NULL before it
    sa.Column("size", sa.Integer),  # of that set
    sa.Column("noisy_sum", sa.String(32)),  # modulo a power of two, hexadecimal
    sa.UniqueConstraint("task", "label"),
)

shares = sa.Table(
    "shares",
    metadata,
    sa.Column("task", sa.BigInteger, sa.ForeignKey("tasks.id"), primary_key=True),
    sa.Column("decision", sa.String(22), primary_key=True),
    sa.Column("share", sa.String(32)),  # hexadecimal; NULL: none came in time, or it is released
    sa.Column("batch", sa.BigInteger),  # that contains the decision, for good; NULL: none yet
)
_summable = sa.and_(shares.c.batch.is_not(None), shares.c.share.is_not(None))
sa.Index("shares_of_batch", shares.c.batch, sqlite_where=_summable, postgresql_where=_summable)

ended_sessions = sa.Table(  # of the dashboard, by logging out, until they expire
    "ended_sessions",
    metadata,
    sa.Column("digest", sa.String(64), primary_key=True),
    sa.Column("expires", sa.Float, nullable=False),
)
