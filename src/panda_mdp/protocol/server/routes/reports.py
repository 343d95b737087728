"""Reports: taken, counted, exported, estimated from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from fastapi import Query
from fastapi.responses import Response, StreamingResponse
from sqlalchemy import select
from starlette.concurrency import run_in_threadpool

from panda_mdp.protocol.messages.deployments import (
    Counts,
    Estimate,
    ReportAccepted,
    ReportLine,
    ReportRequest,
)
from panda_mdp.protocol.server.context import Context
from panda_mdp.protocol.server.estimate import compute, gather, span
from panda_mdp.protocol.server.failures import Failure
from panda_mdp.protocol.server.routes import (
    Admin,
    NamePath,
    Reading,
    Reporter,
    Responses,
    Routes,
    Shared,
    answer,
    body_of,
)
from panda_mdp.protocol.server.store.deployments import find
from panda_mdp.protocol.server.store.reports import Report, count_reports
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
    live = context.live.cached(name)
    refusal = None if live is None else live.problem(message, reporter.id)
    if live is None or refusal is not None:
        # A worker may have put a round into force a moment ago.
        live = await run_in_threadpool(context.live.get, name)
        refusal = live.problem(message, reporter.id)
    made = bytes.fromhex(message.id.replace("-", ""))
    report = Report(live.id, made, reporter.id, live.version, message.output)
    outcome = "conflict" if refusal else await context.writer.write(report, live.quota)
    if outcome == "conflict" and await run_in_threadpool(_accepted, context, report):
        # A repeat of what was accepted stays accepted, whatever has changed since.
        outcome = "known"
    elif refusal is not None:
        raise refusal
    if outcome == "spent":
        raise live.quota.refusal()
    if outcome == "conflict":
        raise Failure("conflict", "another report has this id", "make a new id for each report")
    return answer(ReportAccepted(id=message.id), 201 if outcome == "new" else 200)


def _accepted(context: Context, report: Report) -> bool:
    """Whether a report of this id and content is there, of whichever version."""
    mine = select(ReportRow).filter_by(deployment=report.deployment, id=report.id)
    with context.store.read() as session:
        row = session.scalar(mine)
    return row is not None and (row.token, row.output) == (report.token, report.output)


@router.serves("GET", "/v1/deployments/{name}/reports", _EXPORT)
def get_reports(
    context: Shared,
    operator: Admin,
    name: NamePath,
    after: Annotated[int, Query(ge=0, lt=2**53)] = 0,
) -> Response:
    """Export all reports, or those after a `seq`, as NDJSON."""
    lines = _lines(context, context.live.get(name).id, after)
    return StreamingResponse(lines, 200, {"cache-control": "no-store"}, media_type=NDJSON)


def _lines(context: Context, deployment: int, after: int) -> Iterator[bytes]:
    mine = select(ReportRow).filter_by(deployment=deployment).order_by(ReportRow.seq).limit(PAGE)
    while True:
        with context.store.read() as session:
            rows = session.scalars(mine.where(ReportRow.seq > after)).all()
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
def get_counts(context: Shared, session: Reading, operator: Admin, name: NamePath) -> Counts:
    """How often each output was reported, and how many reports came in each hour."""
    live = context.live.get(name)
    return count_reports(session, live.id, live.outputs)


@router.serves("GET", "/v1/deployments/{name}/estimate", Estimate)
def get_estimate(context: Shared, operator: Admin, name: NamePath) -> Response:
    """The share of people in each zone of near records, with 95 % limits that hold for every truth.

    Beside it the shares of single records, for maps: the penalised likelihood's, without limits.
    """
    with context.store.read() as session:
        row = find(session, name)
        key = f"estimate/{row.id}/{row.version}/{span(session, row.id)}"

    def make() -> bytes:
        with context.store.read() as session:
            inputs = gather(session, row)
        return context.pool.run(compute, *inputs).model_dump_json().encode()

    return answer(context.files.get(key, make))
