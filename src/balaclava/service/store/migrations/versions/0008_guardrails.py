"""Guardrails of an experiment, and readings of their metrics."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add two columns and an index."""
    op.add_column("experiments", sa.Column("guardrails", sa.Text))
    op.add_column("decisions", sa.Column("metrics", sa.Text))
    only = sa.text("metrics IS NOT NULL")
    op.create_index(
        "decisions_with_metrics",
        "decisions",
        ["experiment", "arm", "round"],
        sqlite_where=only,
        postgresql_where=only,
    )
