"""Webhooks, and the queue of what they are told."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create two tables."""
    serial = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    op.create_table(
        "webhooks",
        sa.Column("name", sa.String(200), primary_key=True),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("events", sa.JSON, nullable=False),
        sa.Column("secret", sa.String(200), nullable=False),
    )
    op.create_table(
        "deliveries",
        sa.Column("id", serial, primary_key=True),
        sa.Column("webhook", sa.String(200), nullable=False),
        sa.Column("event", sa.String(32), nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("due", sa.Float),
        sa.UniqueConstraint("webhook", "event"),
    )
