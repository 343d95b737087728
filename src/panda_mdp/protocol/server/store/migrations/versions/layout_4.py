"""Several servers on one database, the log, invitations, retention."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, Integer, LargeBinary, String, Text

revision = "4"
down_revision = "3"


def upgrade() -> None:
    """Add columns and tables; what is there stays as it is."""
    op.add_column("jobs", Column("lease", BigInteger))
    op.add_column("uploads", Column("fetched", BigInteger))
    op.create_index("reports_by_age", "reports", ["deployment", "at"])
    op.create_table(
        "log",
        Column("number", Integer, primary_key=True, autoincrement=False),
        Column("entry", Text, nullable=False),
        Column("leaf", String(64), nullable=False, unique=True),
        Column("at", BigInteger, nullable=False),
    )
    op.create_table(
        "heads",
        Column("size", Integer, primary_key=True, autoincrement=False),
        Column("root", String(64), nullable=False),
        Column("at", BigInteger, nullable=False),
        Column("signature", String(130), nullable=False),
    )
    op.create_table(
        "invitations",
        Column("id", String(12), primary_key=True),
        Column("digest", LargeBinary(32), nullable=False),
        Column("label", String(200), nullable=False),
        Column("places", Integer, nullable=False),
        Column("taken", Integer, nullable=False),
        Column("created", BigInteger, nullable=False),
        Column("expires", BigInteger),
        Column("revoked", BigInteger),
    )
    op.execute("INSERT INTO meta (key, value) VALUES ('deployment_changes', '0')")
    op.execute("UPDATE meta SET value = '4' WHERE key = 'schema'")
