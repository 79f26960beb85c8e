"""Leases: runs of slots that a process decides by."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create a table."""
    op.create_table(
        "leases",
        sa.Column("id", sa.String(22), primary_key=True),
        sa.Column("experiment", sa.BigInteger, sa.ForeignKey("experiments.id"), nullable=False),
        sa.Column("runs", sa.Text, nullable=False),
        sa.Column("granted", sa.Integer, nullable=False),
        sa.Column("used", sa.Integer, nullable=False),
        sa.Column("anonymous", sa.Integer, nullable=False),
        sa.Column("others", sa.Text, nullable=False),
        sa.Column("ends", sa.Float, nullable=False),
    )
    op.create_index("leases_of_experiment", "leases", ["experiment"])
