"""The server's tables, for SQLite and PostgreSQL alike.

Times are stored as milliseconds since 1970 (UTC), messages as their JSON. What a user sent is in
`uploads` and `reports` only; none of them has a column for a record.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar

from pydantic import TypeAdapter
from sqlalchemy import (
    JSON,
    BigInteger,
    Dialect,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    Text,
    TypeDecorator,
    func,
    select,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, column_property, mapped_column, relationship

from panda_mdp.protocol.messages.catalogue import Places, Streets, TableInfo, TableRef
from panda_mdp.protocol.messages.deployments import (
    AnyRequest,
    RoundState,
    deployment_request,
)
from panda_mdp.protocol.messages.types import MetricKind, Role

LAYOUT = "6"
"""Of these tables; a server refuses a database of another one."""


def now_ms() -> int:
    """The time as it is stored."""
    return time.time_ns() // 1_000_000


def when(milliseconds: int) -> datetime:
    """A stored time as a date."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def now() -> datetime:
    """The time, in whole milliseconds."""
    return when(now_ms())


class Moment(TypeDecorator[datetime]):
    """A time, stored in milliseconds."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        """Milliseconds since 1970."""
        return None if value is None else round(1000 * value.timestamp())

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:
        """The time again."""
        return None if value is None else when(value)


class Document(TypeDecorator[Any]):
    """A message, stored as its JSON."""

    impl = Text
    cache_ok = True

    def __init__(self, kind: TypeAdapter[Any]) -> None:
        super().__init__()
        self.kind = kind

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        """The message's JSON."""
        return None if value is None else self.kind.dump_json(value).decode()

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        """The message again."""
        return None if value is None else self.kind.validate_json(value)


def _document(kind: Any, **options: Any) -> Any:
    return mapped_column(Document(TypeAdapter(kind)), **options)


Key = Annotated[str, mapped_column(primary_key=True)]
Number = Annotated[int, mapped_column(primary_key=True, autoincrement=False)]
# SQLite numbers rows by itself only where the key is called INTEGER.
Serial = Annotated[
    int, mapped_column(BigInteger().with_variant(Integer, "sqlite"), primary_key=True)
]
Created = Annotated[datetime, mapped_column(default=now)]
Blob = Annotated[bytes, mapped_column(deferred=True)]
"""Read when it is asked for."""
_NEVER_AGAIN: dict[str, bool] = {"sqlite_autoincrement": True}
"""Numbers of rows that are gone are not given to others."""


class Base(DeclarativeBase):
    """All tables."""

    type_annotation_map: ClassVar[dict[Any, Any]] = {
        datetime: Moment,
        bytes: LargeBinary,
        str: Text,
        dict[str, Any]: JSON,
        list[int]: JSON,
    }


class SettingRow(Base):
    """Facts about the database itself, and counters of changes."""

    __tablename__ = "meta"
    key: Mapped[Key]
    value: Mapped[str]


class Secret:
    """What tokens and invitations have: an id, and the digest of what only their bearer knows."""

    id: Mapped[Key]
    digest: Mapped[bytes]
    created: Mapped[Created]
    expires: Mapped[datetime | None]
    revoked: Mapped[datetime | None]


class TokenRow(Secret, Base):
    """A token."""

    __tablename__ = "tokens"
    label: Mapped[str]
    role: Mapped[Role] = mapped_column(Text)
    batch: Mapped[str] = mapped_column(index=True, default="")
    """The invitation that it came of, or the request that it was made in with others: what can be
    removed together. Everybody with the same code has the same one."""


class InvitationRow(Secret, Base):
    """A code that people exchange for a token of their own."""

    __tablename__ = "invitations"
    places: Mapped[int]
    taken: Mapped[int] = mapped_column(default=0)


class DomainRow(Base):
    """A published domain."""

    __tablename__ = "domains"
    id: Mapped[Key]
    name: Mapped[str] = mapped_column(unique=True)
    records: Mapped[int]
    fingerprint: Mapped[str] = mapped_column(index=True)
    places: Mapped[Places] = _document(Places, deferred=True)
    streets: Mapped[bool]
    drawn: Mapped[Streets | None] = _document(Streets, deferred=True)
    created: Mapped[Created]


class TableRow(Base):
    """A version of a table: what is said about it, and its file."""

    __tablename__ = "tables"
    name: Mapped[Key]
    version: Mapped[Number]
    info: Mapped[TableInfo] = _document(TableInfo)
    kind: Mapped[str]
    """Plain, everywhere or panda."""
    metric: Mapped[MetricKind] = mapped_column(Text)
    outputs: Mapped[list[int]]
    promise: Mapped[dict[str, Any]]
    """What a deployment of the table guarantees."""
    file: Mapped[Blob]
    tiles: Mapped[bytes | None] = mapped_column(deferred=True)
    """What balls are cut from, where a deployment does (`solving.Tiles`)."""


class DeploymentRow(Base):
    """A deployment, as it was asked for, what was computed then, and what is signed about it."""

    __tablename__ = "deployments"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    request: Mapped[AnyRequest] = mapped_column(Document(deployment_request))
    facts: Mapped[dict[str, Any]]
    version: Mapped[int] = mapped_column(default=1)
    tables: Mapped[list[TableRef]] = _document(list[TableRef])
    """The table of each version; none where rounds make them."""
    open: Mapped[bool] = mapped_column(default=True)
    statement: Mapped[str] = mapped_column(default="")
    signature: Mapped[str] = mapped_column(default="")
    created: Mapped[Created]


class UploadRow(Base):
    """The anchors that a token uploaded in a round."""

    __tablename__ = "uploads"
    deployment: Mapped[Number]
    round: Mapped[Number]
    token: Mapped[str] = mapped_column(ForeignKey("tokens.id"), primary_key=True)
    anchors: Mapped[list[int]]
    at: Mapped[Created]
    __table_args__ = (
        ForeignKeyConstraint(["deployment", "round"], ["rounds.deployment", "rounds.round"]),
    )


class RoundRow(Base):
    """A round of anchors, and its table once it is solved."""

    __tablename__ = "rounds"
    deployment: Mapped[int] = mapped_column(ForeignKey("deployments.id"), primary_key=True)
    round: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    state: Mapped[RoundState] = mapped_column(Text, index=True, default="open")
    opened: Mapped[Created]
    closes_at: Mapped[datetime | None]
    closes_at_users: Mapped[int | None]
    solution: Mapped[bytes | None] = mapped_column(deferred=True)
    error: Mapped[str | None]
    users: Mapped[int] = column_property(
        select(func.count())
        .where(UploadRow.deployment == deployment, UploadRow.round == round)
        .correlate_except(UploadRow)
        .scalar_subquery()
    )
    """How many have uploaded."""
    uploads: Mapped[list[UploadRow]] = relationship()


class ReportRow(Base):
    """A report. One that was set aside has its deployment's number with the sign changed: nothing
    that looks for a deployment's finds it."""

    __tablename__ = "reports"
    seq: Mapped[Serial]
    deployment: Mapped[int]
    id: Mapped[bytes]
    token: Mapped[str]
    version: Mapped[int]
    output: Mapped[int]
    at: Mapped[datetime]
    __table_args__ = (
        Index("reports_by_id", "deployment", "id", unique=True),
        Index("reports_by_age", "deployment", "at"),
        Index("reports_by_token", "token"),
        _NEVER_AGAIN,
    )


class QuotaRow(Base):
    """Reports accepted of a token in a period (its number since 1970), and what else was asked
    for."""

    __tablename__ = "quotas"
    deployment: Mapped[Number]
    token: Mapped[Key]
    period: Mapped[Number]
    count: Mapped[int] = mapped_column(default=0)
    balls: Mapped[int] = mapped_column(default=0)
    asked: Mapped[str | None]
    """The digest of the request in which one-use tokens were signed: there is one in a period."""


class IssuerRow(Base):
    """The key that signs the one-use tokens of a deployment in a period."""

    __tablename__ = "issuers"
    deployment: Mapped[Number]
    period: Mapped[Number]
    modulus: Mapped[str]
    exponent: Mapped[str]
    """The private one."""


class ActionRow(Base):
    """What an operator did, written in the transaction that did it; never changed."""

    __tablename__ = "actions"
    seq: Mapped[Serial]
    at: Mapped[Created]
    by: Mapped[str]
    action: Mapped[str]
    target: Mapped[str]
    detail: Mapped[str]
    __table_args__ = (_NEVER_AGAIN,)


class WitnessRow(Base):
    """The latest head that a witness has signed."""

    __tablename__ = "witnesses"
    public: Mapped[Key]
    size: Mapped[int]
    root: Mapped[str]
    at: Mapped[int] = mapped_column(BigInteger)
    signature: Mapped[str]


class EntryRow(Base):
    """Something that was signed for good, a leaf of the log's hash tree, and what the operator
    signed about the log that ends with it."""

    __tablename__ = "log"
    size: Mapped[Number]
    """Of the log that ends here: its first entry has 1."""
    entry: Mapped[str]
    leaf: Mapped[str] = mapped_column(unique=True)
    root: Mapped[str]
    at: Mapped[int] = mapped_column(BigInteger)
    """Milliseconds since 1970, as they are signed."""
    signature: Mapped[str]
