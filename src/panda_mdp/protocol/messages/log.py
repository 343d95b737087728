"""Messages about the log of everything that an operator signed for good: tables and deployments."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from panda_mdp.protocol.messages.types import Base64, Count, Message, Sha256

MOST_LEAVES = 100_000


class LogHead(Message):
    """The log's length and root (`merkle.root_of`), signed over `signing.head_bytes`."""

    size: Count
    root: Sha256
    at: Count
    """Milliseconds since 1970."""
    signature: Base64


class Log(Message):
    """GET /v1/log: the latest head and the hashes of all entries.

    All of them, for everybody: a client that asked for a proof from where it was would tell which
    head it saw last, and a server could give everybody another one.
    """

    head: LogHead
    leaves: Annotated[list[Sha256], Field(max_length=MOST_LEAVES)]


class LogEntries(Message):
    """GET /v1/log/entries: the entries as they were signed, from a number on."""

    first: Count
    entries: Annotated[list[Annotated[str, Field(max_length=2_000)]], Field(max_length=1_000)]


class LogProof(Message):
    """GET /v1/log/inclusion and /v1/log/consistency, for those who watch a log."""

    first: Count
    size: Count
    proof: Annotated[list[Sha256], Field(max_length=64)]
