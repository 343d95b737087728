"""What operators did."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, Integer, String, Text

revision = "3"
down_revision = "2"

_Serial = BigInteger().with_variant(Integer, "sqlite")


def upgrade() -> None:
    """Add a table; what is there stays as it is."""
    op.create_table(
        "actions",
        Column("seq", _Serial, primary_key=True, autoincrement=True),
        Column("at", BigInteger, nullable=False),
        Column("token", String(12), nullable=False),
        Column("action", String(40), nullable=False),
        Column("target", String(200), nullable=False),
        Column("detail", Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.execute("UPDATE meta SET value = '3' WHERE key = 'schema'")
