"""What deletes old decisions and erases persons."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add columns and indexes, and let the service look at each experiment once."""
    op.add_column("experiments", sa.Column("next_cleanup", sa.Float))
    op.execute("UPDATE experiments SET next_cleanup = 0")
    op.add_column("decisions", sa.Column("person", sa.BigInteger))
    op.create_index("decisions_by_age", "decisions", ["experiment", "made"])
    for name, columns, condition in (
        ("decisions_of_person", ["person"], "person IS NOT NULL"),
        ("decisions_held", ["experiment", "arm", "phase"], "value IS NOT NULL AND state <> 0"),
    ):
        only = sa.text(condition)
        op.create_index(name, "decisions", columns, sqlite_where=only, postgresql_where=only)
