"""Settings of an experiment that may change."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a column."""
    op.add_column("experiments", sa.Column("settings", sa.Text))
