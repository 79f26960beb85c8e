"""Features of a decision."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a column."""
    op.add_column("decisions", sa.Column("features", sa.Text))
