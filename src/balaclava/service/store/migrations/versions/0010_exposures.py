"""Whether a decision was displayed."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a column."""
    op.add_column("decisions", sa.Column("exposed", sa.SmallInteger))
