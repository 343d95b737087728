"""Reports: taken, counted, exported, estimated from."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated

from fastapi import Query
from fastapi.responses import Response, StreamingResponse
from sqlalchemy import select
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool

from panda_mdp.protocol.messages.deployments import (
    Counts,
    Estimate,
    ReportAccepted,
    ReportLine,
    ReportRequest,
)
from panda_mdp.protocol.server.context import Context
from panda_mdp.protocol.server.estimate import AnchorsInputs, TableInputs, compute, gather, span
from panda_mdp.protocol.server.failures import Failure
from panda_mdp.protocol.server.routes import (
    Admin,
    NamePath,
    Reporter,
    Responses,
    Routes,
    Shared,
    answer,
    body_of,
)
from panda_mdp.protocol.server.store.deployments import find
from panda_mdp.protocol.server.store.reports import Report, count_reports, export_page
from panda_mdp.protocol.server.store.schema import ReportRow

router = Routes()
PAGE = 2_000
NDJSON = "application/x-ndjson"
_EXPORT: Responses = {
    200: {
        "description": "One line of JSON per report, in the order of seq.",
        "content": {NDJSON: {"schema": {"type": "string"}}},
    }
}


@router.serves("POST", "/v1/deployments/{name}/reports", ReportAccepted, 201, 200)
async def post_report(
    context: Shared,
    reporter: Reporter,
    name: NamePath,
    message: Annotated[ReportRequest, body_of(ReportRequest)],
) -> Response:
    """Take one report: an output that was drawn. The answer comes after it is on the disk."""
    live = await context.deployment(name)
    refusal = live.problem(message, reporter.id)
    if refusal is not None:
        # A worker may have put a round into force a moment ago.
        live = await run_in_threadpool(context.live.fetch, name)
        refusal = live.problem(message, reporter.id)
    made = bytes.fromhex(message.id.replace("-", ""))
    report = Report(live.id, made, reporter.id, live.version, message.output)
    outcome = "conflict" if refusal else await context.writer.write(report, live.quota)
    if outcome == "conflict" and await context.read(lambda session: _accepted(session, report)):
        # A repeat of what was accepted stays accepted, whatever has changed since.
        outcome = "known"
    elif refusal is not None:
        raise refusal
    if outcome == "spent":
        raise live.quota.refusal()
    if outcome == "conflict":
        raise Failure("conflict", "another report has this id", "make a new id for each report")
    return answer(ReportAccepted(id=message.id), 201 if outcome == "new" else 200)


def _accepted(session: Session, report: Report) -> bool:
    """Whether a report of this id and content is there, of whichever version."""
    row = session.scalar(select(ReportRow).filter_by(deployment=report.deployment, id=report.id))
    return row is not None and (row.token, row.output) == (report.token, report.output)


@router.serves("GET", "/v1/deployments/{name}/reports", _EXPORT)
async def get_reports(
    context: Shared,
    operator: Admin,
    name: NamePath,
    after: Annotated[int, Query(ge=0, lt=2**53)] = 0,
) -> Response:
    """Export all reports, or those after a `seq`, as NDJSON."""
    live = await context.deployment(name)
    headers = {"cache-control": "no-store"}
    return StreamingResponse(_lines(context, live.id, after), 200, headers, media_type=NDJSON)


async def _lines(context: Context, deployment: int, after: int) -> AsyncIterator[bytes]:
    while True:
        rows = await context.read(
            partial(export_page, deployment=deployment, after=after, limit=PAGE)
        )
        if not rows:
            return
        yield b"".join(_line(row) for row in rows)
        after = rows[-1].seq


def _line(row: ReportRow) -> bytes:
    line = ReportLine(
        seq=row.seq, at=row.at, version=row.version, output=row.output, user=row.token
    )
    return line.model_dump_json().encode() + b"\n"


@router.serves("GET", "/v1/deployments/{name}/counts", Counts)
async def get_counts(context: Shared, operator: Admin, name: NamePath) -> Response:
    """How often each output was reported, and how many reports came in each hour."""
    live = await context.deployment(name)
    return answer(await context.read(lambda session: count_reports(session, live.id, live.outputs)))


@router.serves("GET", "/v1/deployments/{name}/estimate", Estimate)
async def get_estimate(context: Shared, operator: Admin, name: NamePath) -> Response:
    """The share of people at each record, by the iterative Bayesian update on the audited tables.

    `low` and `high` are pointwise 95 % limits of a bootstrap over users.
    """

    def look(session: Session) -> tuple[str, bytes | TableInputs | AnchorsInputs]:
        row = find(session, name)
        key = f"estimate/{row.id}/{row.version}/{span(session, row.id)}"
        inputs = context.files.peek(key)
        return key, inputs if inputs is not None else gather(session, row)

    key, inputs = await context.read(look)
    if isinstance(inputs, bytes):
        return answer(inputs)
    message = await context.pool.run(compute, inputs)
    return answer(context.files.put(key, message.model_dump_json().encode()))
