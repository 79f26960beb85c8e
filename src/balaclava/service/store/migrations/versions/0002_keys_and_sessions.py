"""Keys that expire, and sessions that were ended."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a column and a table."""
    op.add_column("keys", sa.Column("expires", sa.Float))
    op.create_table(
        "ended_sessions",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("expires", sa.Float, nullable=False),
    )
