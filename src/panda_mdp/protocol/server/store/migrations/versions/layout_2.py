"""Quotas of tokens, and the operator's statements about deployments."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, Integer, String, Text

revision = "2"
down_revision = "1"

_Serial = BigInteger().with_variant(Integer, "sqlite")


def upgrade() -> None:
    """Add two tables; what is there stays as it is."""
    op.create_table(
        "quotas",
        Column("deployment", Integer, primary_key=True, autoincrement=False),
        Column("token", String(12), primary_key=True),
        Column("period", Integer, primary_key=True, autoincrement=False),
        Column("count", Integer, nullable=False),
    )
    op.create_table(
        "statements",
        Column("seq", _Serial, primary_key=True, autoincrement=True),
        Column("name", String(64), nullable=False, index=True),
        Column("text", Text, nullable=False),
        Column("signature", String(130), nullable=False),
        Column("created", BigInteger, nullable=False),
        sqlite_autoincrement=True,
    )
    op.execute("UPDATE meta SET value = '2' WHERE key = 'schema'")
