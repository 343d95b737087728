"""Reports: taken, counted, exported."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import TypeAdapter
from sqlalchemy import Row, func, select
from starlette.concurrency import run_in_threadpool

from panda_mdp.protocol.messages.reports import (
    Counts,
    Estimate,
    HourCount,
    ReportAccepted,
    ReportLine,
    ReportRequest,
)
from panda_mdp.protocol.server.aggregate import (
    AnchorsInputs,
    TableInputs,
    compute,
    gather,
    span,
)
from panda_mdp.protocol.server.bodies import read_message
from panda_mdp.protocol.server.context import Context
from panda_mdp.protocol.server.failures import Failure
from panda_mdp.protocol.server.live import Live
from panda_mdp.protocol.server.routes.common import (
    JSON,
    NamePath,
    Responses,
    accepts,
    answer,
    context,
    fails,
    gives,
    require,
)
from panda_mdp.protocol.server.store.batches import HOUR_MS, Outcome, Report
from panda_mdp.protocol.server.store.database import now_ms
from panda_mdp.protocol.server.store.deployments import find
from panda_mdp.protocol.server.store.schema import counts, reports, when
from panda_mdp.protocol.server.writer import NOT_STORED

router = APIRouter()
REPORT = TypeAdapter(ReportRequest)
PATH = "/v1/deployments/{name}/reports"
PAGE = 2_000
NDJSON = "application/x-ndjson"
MOST_HOURS = 24 * 366
_EXPORT: Responses = {
    200: {
        "description": "One line of JSON per report, in the order of seq.",
        "content": {NDJSON: {"schema": {"type": "string"}}},
    }
}


@router.post(
    PATH,
    openapi_extra=accepts("ReportRequest", REPORT),
    responses=gives(ReportAccepted, 200, 201) | fails(401, 403, 404, 409, 413),
    status_code=201,
)
async def post_report(request: Request, name: NamePath) -> Response:
    """Take one report: an output that was drawn. The answer comes after it is on the disk."""
    token = require(request, "reporter")
    here = context(request)
    message = await read_message(request, here, REPORT)
    live = here.live.cached(name) or await here.deployment(name)
    refusal = live.problem(message, token.id)
    if refusal is not None:
        # A worker may have put a round into force a moment ago.
        live = await run_in_threadpool(here.live.fetch, name)
        refusal = live.problem(message, token.id)
    report = report_of(message, live, token.id)
    outcome: Outcome = "conflict"
    if refusal is None:
        outcome = await here.writer.write(report, live.quota)
    return await conclude(here, live, message, report, outcome, refusal)


def report_of(message: ReportRequest, live: Live, token: str) -> Report:
    """A report as it is stored."""
    made = bytes.fromhex(message.id.replace("-", ""))
    version = live.version if message.version is None else message.version
    return Report(live.id, made, token, version, message.output)


async def conclude(
    here: Context,
    live: Live,
    message: ReportRequest,
    report: Report,
    outcome: Outcome,
    refusal: Failure | None = None,
) -> Response:
    """What is answered to a report."""
    if outcome == "conflict" and await run_in_threadpool(
        _accepted_before, here, report, message.version is None
    ):
        # A repeat of what was accepted stays accepted, whatever has changed since.
        outcome = "known"
    elif refusal is not None:
        raise refusal
    if outcome == "failed":
        raise NOT_STORED
    if outcome == "spent":
        raise live.quota.refusal(now_ms())
    if outcome == "conflict":
        raise Failure("conflict", "another report has this id", "make a new id for each report")
    return answer(ReportAccepted(id=message.id), 201 if outcome == "new" else 200)


def _accepted_before(here: Context, report: Report, any_version: bool) -> bool:
    with here.store.read() as connection:
        row = connection.execute(
            select(reports.c.token, reports.c.version, reports.c.output).where(
                reports.c.deployment == report.deployment, reports.c.id == report.id
            )
        ).first()
    if row is None or (row.token, row.output) != (report.token, report.output):
        return False
    return any_version or bool(row.version == report.version)


@router.get(
    "/v1/deployments/{name}/reports",
    responses=_EXPORT | fails(401, 403, 404),
    response_class=StreamingResponse,
)
async def get_reports(
    request: Request,
    name: NamePath,
    after: Annotated[int, Query(ge=0, lt=2**53)] = 0,
) -> Response:
    """Export all reports, or those after a `seq`, as NDJSON."""
    require(request, "admin")
    here = context(request)
    live = await here.deployment(name)
    headers = {"cache-control": "no-store"}
    return StreamingResponse(_lines(here, live, after), 200, headers, media_type=NDJSON)


async def _lines(here: Context, live: Live, after: int) -> AsyncIterator[bytes]:
    while True:
        rows = await run_in_threadpool(_page, here, live.id, after)
        if not rows:
            return
        yield b"".join(_line(row) for row in rows)
        after = rows[-1].seq


def _page(here: Context, deployment: int, after: int) -> list[Row[Any]]:
    with here.store.read() as connection:
        return list(
            connection.execute(
                select(reports)
                .where(reports.c.seq > after, reports.c.deployment == deployment)
                .order_by(reports.c.seq)
                .limit(PAGE)
            )
        )


def _line(row: Row[Any]) -> bytes:
    line = ReportLine(
        seq=row.seq, at=when(row.at), version=row.version, output=row.output, user=row.token
    )
    return line.model_dump_json().encode() + b"\n"


@router.get(
    "/v1/deployments/{name}/counts",
    responses=gives(Counts, 200) | fails(401, 403, 404),
)
async def get_counts(request: Request, name: NamePath) -> Response:
    """How often each output was reported, and how many reports came in each hour."""
    require(request, "admin")
    here = context(request)
    live = await here.deployment(name)
    return answer(await run_in_threadpool(_counts, here, live))


@router.get(
    "/v1/deployments/{name}/estimate",
    responses=gives(Estimate, 200) | fails(401, 403, 404),
)
async def get_estimate(request: Request, name: NamePath) -> Response:
    """The share of people at each record, by the iterative Bayesian update on the audited tables.

    `low` and `high` are pointwise 95 % limits of a bootstrap over users.
    """
    require(request, "admin")
    here = context(request)

    def look() -> tuple[str, bytes | TableInputs | AnchorsInputs]:
        with here.store.read() as connection:
            row = find(connection, name)
            key = f"estimate/{row.id}/{row.version}/{span(connection, row.id)}"
            known = here.files.peek(key)
            return key, known if known is not None else gather(connection, row, here.file)

    key, cached = await run_in_threadpool(look)
    if isinstance(cached, bytes):
        body = cached
    else:
        message = await here.pool.run(compute, cached)
        body = here.files.put(key, message.model_dump_json().encode())
    return Response(body, 200, {"cache-control": "no-store"}, JSON)


def _counts(here: Context, live: Live) -> Counts:
    mine = counts.c.deployment == live.id
    with here.store.read() as connection:
        by_output = connection.execute(
            select(counts.c.output, func.sum(counts.c.count)).where(mine).group_by(counts.c.output)
        ).all()
        by_hour = connection.execute(
            select(counts.c.hour, func.sum(counts.c.count))
            .where(mine)
            .group_by(counts.c.hour)
            .order_by(counts.c.hour.desc())
            .limit(MOST_HOURS)
        ).all()
    seen = {int(output): int(number) for output, number in by_output}
    outputs = sorted(live.outputs | seen.keys())
    return Counts(
        reports=sum(seen.values()),
        outputs=outputs,
        counts=[seen.get(output, 0) for output in outputs],
        per_hour=[
            HourCount(hour=when(int(hour) * HOUR_MS), count=int(number))
            for hour, number in reversed(by_hour)
        ],
    )
