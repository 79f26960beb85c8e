"""The sticky arm of a person, and the decision that set it."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add two columns."""
    op.add_column("persons", sa.Column("arm", sa.Integer))
    op.add_column("persons", sa.Column("decision", sa.String(22)))
