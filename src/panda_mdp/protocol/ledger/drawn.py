"""What was drawn for a release and may be sent: all that a ledger keeps of it, by deployment."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import Field, TypeAdapter, ValidationError

from panda_mdp.errors import LedgerError
from panda_mdp.protocol.messages.types import ClientId, Index, Message, Sha256, Version


class Drawn(Message):
    """A report from a whole table; the others begin with less and end as one."""

    report: ClientId
    """The id of the report, made with the draw, so that sending it again is safe."""
    version: Version
    table: Sha256 | None = None
    """The table's SHA-256; None for rounds of anchors, and where an earlier version drew."""
    output: Index | None = None
    """None until it is drawn."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<hidden>)"

    __str__ = __repr__

    def but(self, **changes: Any) -> Self:
        """The same with other fields."""
        return self.model_copy(update=changes)


class BallDrawn(Drawn):
    """A centre, whose ball is asked for under an id of its own."""

    ball: ClientId
    centre: Index


class AnchorsDrawn(Drawn):
    """An anchor set, the round that it was aimed at, and whether it is known to have arrived."""

    anchors: Annotated[str, Field(pattern=r"^([0-9a-f]{2})*$")]
    upload: ClientId | None = None
    round: Version | None = None
    uploaded: bool = False


_ANY: TypeAdapter[AnchorsDrawn | BallDrawn | Drawn] = TypeAdapter(AnchorsDrawn | BallDrawn | Drawn)


def to_bytes(drawn: Drawn) -> bytes:
    """As it is encrypted."""
    return drawn.model_dump_json().encode()


def from_bytes(data: bytes) -> Drawn:
    """What was encrypted, by whichever version of this library."""
    try:
        return _ANY.validate_json(data)
    except ValidationError:
        pass
    msg = "an entry of the ledger holds something else than a draw; the ledger is damaged"
    raise LedgerError(msg)
