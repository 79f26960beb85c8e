"""Secret shares: tasks, batches and shares of an aggregator, and decisions that await them."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create tables and indexes."""
    serial = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    task = sa.ForeignKey("tasks.id")
    op.create_table(
        "tasks",
        sa.Column("id", serial, primary_key=True),
        sa.Column("uid", sa.String(64), nullable=False, unique=True),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("ended", sa.SmallInteger, nullable=False),
    )
    op.create_table(
        "share_batches",
        sa.Column("id", serial, primary_key=True),
        sa.Column("task", sa.BigInteger, task, nullable=False),
        sa.Column("label", sa.String(64), nullable=False),
        sa.Column("proposed", sa.String(64), nullable=False),
        sa.Column("missing", sa.Text, nullable=False),
        sa.Column("agreed", sa.String(64)),
        sa.Column("size", sa.Integer),
        sa.Column("noisy_sum", sa.String(32)),
        sa.UniqueConstraint("task", "label"),
    )
    op.create_table(
        "shares",
        sa.Column("task", sa.BigInteger, sa.ForeignKey("tasks.id"), primary_key=True),
        sa.Column("decision", sa.String(22), primary_key=True),
        sa.Column("share", sa.String(32)),
        sa.Column("batch", sa.BigInteger),
    )
    for name, table, columns, where in (
        ("shares_of_batch", "shares", ["batch"], "batch IS NOT NULL AND share IS NOT NULL"),
        ("decisions_awaited", "decisions", ["experiment", "arm", "phase"], "state = 5"),
    ):
        only = sa.text(where)
        op.create_index(name, table, columns, sqlite_where=only, postgresql_where=only)
