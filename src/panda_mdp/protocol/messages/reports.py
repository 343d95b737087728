"""Messages about reports: what a user releases, and what the operator makes of all of them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from panda_mdp.protocol.messages.types import (
    MOST_OUTPUTS,
    MOST_RECORDS,
    ClientId,
    Count,
    Index,
    Indices,
    Label,
    Message,
    Probability,
    Sha256,
    Version,
)


class ReportRequest(Message):
    """POST /v1/deployments/{name}/reports: an output that was drawn, and nothing else.

    `table` is the SHA-256 of the file that it was drawn from, as the log has it for everybody:
    nothing that a server could give to one user alone goes back to it. Rounds of anchors have
    none. `version` is what older clients said instead.
    """

    id: ClientId
    version: Version | None = None
    table: Sha256 | None = None
    output: Index


class ReportAccepted(Message):
    """The answer to a report, the first time and every time."""

    id: ClientId
    accepted: Literal[True] = True


class ReportLine(Message):
    """One line of the export, GET .../reports (NDJSON)."""

    seq: Count
    at: datetime
    version: Version
    output: Index
    user: Label


class HourCount(Message):
    """Reports of one hour."""

    hour: datetime
    count: Count


class Counts(Message):
    """GET .../counts."""

    reports: Count
    outputs: Indices
    counts: Annotated[list[Count], Field(max_length=MOST_OUTPUTS)]
    per_hour: Annotated[list[HourCount], Field(max_length=100_000)]


class Estimate(Message):
    """GET .../estimate: the share of users at each record, with an interval."""

    records: Indices
    share: Annotated[list[Probability], Field(max_length=MOST_RECORDS)]
    low: Annotated[list[Probability], Field(max_length=MOST_RECORDS)]
    high: Annotated[list[Probability], Field(max_length=MOST_RECORDS)]
    iterations: Count
    reports: Count
    confidence: Probability = 0.95
