"""The server's tables, for SQLite and PostgreSQL alike.

Times are milliseconds since 1970 (UTC). What a user sent is in `uploads`, `balls` and `reports`
only; none of them has a column for a record.
"""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

VERSION = "4"
"""Of this layout; a server refuses a database of another one."""

metadata = MetaData()

# SQLite numbers rows by itself only where the key is called INTEGER.
_Serial = BigInteger().with_variant(Integer, "sqlite")

meta = Table(
    "meta",
    metadata,
    Column("key", String(64), primary_key=True),
    Column("value", Text, nullable=False),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", String(12), primary_key=True),
    Column("digest", LargeBinary(32), nullable=False),
    Column("role", String(16), nullable=False),
    Column("label", String(200), nullable=False),
    Column("created", BigInteger, nullable=False),
    Column("expires", BigInteger),
    Column("revoked", BigInteger),
)

domains = Table(
    "domains",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("name", String(64), nullable=False, unique=True),
    Column("kind", String(16), nullable=False),
    Column("unit", String(32), nullable=False),
    Column("records", Integer, nullable=False),
    Column("fingerprint", String(64), nullable=False, index=True),
    Column("arrays", LargeBinary, nullable=False),
    Column("streets", LargeBinary),
    Column("created", BigInteger, nullable=False),
)

tables = Table(
    "tables",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("domain", String(64), nullable=False),
    Column("info", Text, nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("file", LargeBinary, nullable=False),
    Column("created", BigInteger, nullable=False),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("seq", Integer, nullable=False, unique=True),
    Column("kind", String(16), nullable=False),
    Column("request", LargeBinary, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("state", String(16), nullable=False, index=True),
    Column("attempt", Integer, nullable=False),
    Column("cancel", Boolean, nullable=False),
    Column("progress", Text),
    Column("result", Text),
    Column("error", Text),
    Column("created", BigInteger, nullable=False),
    Column("lease", BigInteger),
)
"""`lease`: until when the server that runs a job has said that it still does."""

deployments = Table(
    "deployments",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(64), nullable=False, unique=True),
    Column("kind", String(16), nullable=False),
    Column("request", LargeBinary, nullable=False),
    Column("facts", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("open", Boolean, nullable=False),
    Column("created", BigInteger, nullable=False),
)

deployment_versions = Table(
    "deployment_versions",
    metadata,
    Column("deployment", Integer, ForeignKey("deployments.id"), primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("table_name", String(64), nullable=False),
    Column("table_version", Integer, nullable=False),
    Column("facts", Text, nullable=False),
    Column("created", BigInteger, nullable=False),
    ForeignKeyConstraint(["table_name", "table_version"], ["tables.name", "tables.version"]),
)

rounds = Table(
    "rounds",
    metadata,
    Column("deployment", Integer, ForeignKey("deployments.id"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("state", String(16), nullable=False, index=True),
    Column("opened", BigInteger, nullable=False),
    Column("closes_at", BigInteger),
    Column("closes_at_users", Integer),
    Column("plan", Text),
    Column("solution", LargeBinary),
    Column("error", Text),
)

uploads = Table(
    "uploads",
    metadata,
    Column("deployment", Integer, primary_key=True),
    Column("round", Integer, primary_key=True),
    Column("token", String(12), ForeignKey("tokens.id"), primary_key=True),
    Column("id", String(36), nullable=False),
    Column("anchors", LargeBinary, nullable=False),
    Column("state", String(16), nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("fetched", BigInteger),
    ForeignKeyConstraint(["deployment", "round"], ["rounds.deployment", "rounds.number"]),
    UniqueConstraint("deployment", "id"),
)
"""`fetched`: when the token got its rows; it cannot have drawn from them before."""

balls = Table(
    "balls",
    metadata,
    Column("deployment", Integer, ForeignKey("deployments.id"), primary_key=True),
    Column("id", String(36), primary_key=True),
    Column("token", String(12), ForeignKey("tokens.id"), nullable=False),
    Column("version", Integer, nullable=False),
    Column("centre", Integer, nullable=False),
    Column("at", BigInteger, nullable=False),
)

reports = Table(
    "reports",
    metadata,
    Column("seq", _Serial, primary_key=True, autoincrement=True),
    Column("deployment", Integer, nullable=False),
    Column("id", LargeBinary(16), nullable=False),
    Column("token", String(12), nullable=False),
    Column("version", Integer, nullable=False),
    Column("output", Integer, nullable=False),
    Column("at", BigInteger, nullable=False),
    Index("reports_by_id", "deployment", "id", unique=True),
    Index("reports_by_age", "deployment", "at"),
    sqlite_autoincrement=True,
)

counts = Table(
    "counts",
    metadata,
    Column("deployment", Integer, primary_key=True, autoincrement=False),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("output", Integer, primary_key=True, autoincrement=False),
    Column("hour", Integer, primary_key=True, autoincrement=False),
    Column("count", Integer, nullable=False),
)
"""Reports by hour (since 1970), written in the transaction that stores them."""


quotas = Table(
    "quotas",
    metadata,
    Column("deployment", Integer, primary_key=True, autoincrement=False),
    Column("token", String(12), primary_key=True),
    Column("period", Integer, primary_key=True, autoincrement=False),
    Column("count", Integer, nullable=False),
)
"""Reports accepted of a token in a period (its number since 1970)."""

statements = Table(
    "statements",
    metadata,
    Column("seq", _Serial, primary_key=True, autoincrement=True),
    Column("name", String(64), nullable=False, index=True),
    Column("text", Text, nullable=False),
    Column("signature", String(130), nullable=False),
    Column("created", BigInteger, nullable=False),
    sqlite_autoincrement=True,
)
"""What the operator has signed about deployments, in the order of signing; never changed."""

actions = Table(
    "actions",
    metadata,
    Column("seq", _Serial, primary_key=True, autoincrement=True),
    Column("at", BigInteger, nullable=False),
    Column("token", String(12), nullable=False),
    Column("action", String(40), nullable=False),
    Column("target", String(200), nullable=False),
    Column("detail", Text, nullable=False),
    sqlite_autoincrement=True,
)
"""What operators did, written in the transaction that did it; never changed."""


log = Table(
    "log",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("entry", Text, nullable=False),
    Column("leaf", String(64), nullable=False, unique=True),
    Column("at", BigInteger, nullable=False),
)
"""Everything that was signed for good, in the order of signing: leaves of a hash tree."""

heads = Table(
    "heads",
    metadata,
    Column("size", Integer, primary_key=True, autoincrement=False),
    Column("root", String(64), nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("signature", String(130), nullable=False),
)
"""What the operator signed about the log, at each of its lengths."""

invitations = Table(
    "invitations",
    metadata,
    Column("id", String(12), primary_key=True),
    Column("digest", LargeBinary(32), nullable=False),
    Column("label", String(200), nullable=False),
    Column("places", Integer, nullable=False),
    Column("taken", Integer, nullable=False),
    Column("created", BigInteger, nullable=False),
    Column("expires", BigInteger),
    Column("revoked", BigInteger),
)
"""Codes that people exchange for a token of their own."""


def when(milliseconds: int) -> datetime:
    """A stored time as a date."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
