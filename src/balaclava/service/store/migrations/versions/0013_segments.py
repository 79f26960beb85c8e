"""Segments: the part of a population that a person learns in."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create a table."""
    op.create_table(
        "members",
        sa.Column("population", sa.String(200), primary_key=True),
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("segment", sa.String(200), nullable=False),
    )
