"""The first schema."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_serial = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Make every table."""
    op.create_table(
        "meta",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
    op.create_table(
        "experiments",
        sa.Column("id", _serial, primary_key=True),
        sa.Column("uid", sa.String(64), nullable=False, unique=True),
        sa.Column("name", sa.String(200), nullable=False, unique=True),
        sa.Column("definition", sa.Text, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("books", sa.Text, nullable=False),
        sa.Column("policy_state", sa.LargeBinary, nullable=False),
        sa.Column("next_due", sa.Float),
    )
    _create_decisions()
    op.create_table(
        "requests",
        sa.Column("id", _serial, primary_key=True),
        sa.Column("experiment", sa.BigInteger, sa.ForeignKey("experiments.id"), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("body", sa.String(64), nullable=False),
        sa.UniqueConstraint("experiment", "digest"),
    )
    op.create_table(
        "persons",
        sa.Column("experiment", sa.BigInteger, sa.ForeignKey("experiments.id"), primary_key=True),
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("decisions", sa.Integer, nullable=False),
    )
    op.create_table(
        "snapshots",
        sa.Column("id", _serial, primary_key=True),
        sa.Column("experiment", sa.BigInteger, sa.ForeignKey("experiments.id"), nullable=False),
        sa.Column("decisions", sa.BigInteger, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
    )
    op.create_index("snapshots_in_order", "snapshots", ["experiment", "id"])
    op.create_table(
        "keys",
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column("role", sa.String(8), nullable=False),
        sa.Column("label", sa.String(200), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False, unique=True),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("revoked", sa.Float),
    )


def _create_decisions() -> None:
    op.create_table(
        "decisions",
        sa.Column("id", sa.String(22), primary_key=True),
        sa.Column("experiment", sa.BigInteger, sa.ForeignKey("experiments.id"), nullable=False),
        sa.Column("round", sa.BigInteger),
        sa.Column("arm", sa.Integer, nullable=False),
        sa.Column("phase", sa.BigInteger, nullable=False),
        sa.Column("learns", sa.Boolean, nullable=False),
        sa.Column("propensity", sa.Float),
        sa.Column("level", sa.Float),
        sa.Column("made", sa.Float, nullable=False),
        sa.Column("closes", sa.Float, nullable=False),
        sa.Column("state", sa.SmallInteger, nullable=False),
        sa.Column("kind", sa.String(8)),
        sa.Column("value", sa.Float),
        sa.Column("request", sa.BigInteger),
        sa.Column("position", sa.Integer),
    )
    is_open, of_request = sa.text("state = 0"), sa.text("request IS NOT NULL")
    op.create_index(
        "decisions_open",
        "decisions",
        ["experiment", "round"],
        sqlite_where=is_open,
        postgresql_where=is_open,
    )
    op.create_index(
        "decisions_of_request",
        "decisions",
        ["request", "position"],
        sqlite_where=of_request,
        postgresql_where=of_request,
    )
