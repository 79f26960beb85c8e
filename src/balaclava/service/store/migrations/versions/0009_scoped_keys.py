"""Keys that are valid for some experiments only."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a column."""
    op.add_column("keys", sa.Column("experiments", sa.JSON))
