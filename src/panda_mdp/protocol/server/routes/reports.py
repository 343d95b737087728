"""Reports: taken, counted, exported, estimated from."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from importlib.util import find_spec
from tempfile import TemporaryFile
from typing import Annotated, Any, Literal

from fastapi import Depends, Query, Request
from fastapi.responses import Response, StreamingResponse
from sqlalchemy import Select, select
from starlette.concurrency import run_in_threadpool

from panda_mdp.protocol.messages.blind import Issued, Issuer, IssueRequest, sign_all
from panda_mdp.protocol.messages.deployments import (
    Counts,
    Estimate,
    ReportAccepted,
    ReportLine,
    ReportRequest,
)
from panda_mdp.protocol.messages.signing import digest_of
from panda_mdp.protocol.messages.types import Count, Name
from panda_mdp.protocol.server.auth import Token
from panda_mdp.protocol.server.context import Context, Live
from panda_mdp.protocol.server.estimate import estimate, gather, span
from panda_mdp.protocol.server.failures import Failure
from panda_mdp.protocol.server.routes import (
    DESCRIBED,
    Analyst,
    Reading,
    Reporter,
    Responses,
    Routes,
    Shared,
    answer,
    check_caller,
)
from panda_mdp.protocol.server.store.deployments import find, make_issuers
from panda_mdp.protocol.server.store.reports import Report, count_reports, take_one_use
from panda_mdp.protocol.server.store.schema import IssuerRow, ReportRow

router = Routes()
PAGE = 2_000
CHUNK = 256 << 10
Form = Literal["ndjson", "csv", "parquet", "arrow"]
NDJSON = "application/x-ndjson"
_EXPORT: Responses = {
    200: {
        "description": "Reports in the order of seq: a line of JSON each, or in another format.",
        "content": {NDJSON: {"schema": {"type": "string"}}},
    }
}


async def _sender(
    request: Request, context: Shared, name: Name, described: Annotated[Any, DESCRIBED]
) -> Token | None:
    """Who reports, before anything of the body is read: nobody where tokens are used once."""
    live = context.live.cached(name)
    if live is None:
        live = await run_in_threadpool(context.live.get, name)
    if live.issuers is None:
        return await check_caller(request, "reporter")
    if request.scope["state"].get("token") is not None:
        msg = "reports of this deployment come without a token, which would name you"
        raise Failure("forbidden", msg, "send the one-use token alone")
    return None


@router.serves("POST", "/v1/deployments/{name}/reports", ReportAccepted, 201, 200)
async def post_report(
    context: Shared,
    sender: Annotated[Token | None, Depends(_sender)],
    name: Name,
    message: ReportRequest,
) -> Response:
    """Take one report: an output that was drawn. The answer comes after it is on the disk."""
    live = context.live.cached(name)
    refusal = None if live is None else live.problem(message, sender)
    if live is None or sender is None or refusal is not None:
        # A worker may have put a round into force a moment ago, another server made a key.
        live = await run_in_threadpool(context.live.get, name)
        refusal = live.problem(message, sender)
    if sender is None:
        user, quota = live.nameless(name, message)
    else:
        user = sender.id
        quota = live.quota_of(sender)
    made = bytes.fromhex(message.id.replace("-", ""))
    report = Report(live.row.id, made, user, live.version, message.output)
    if refusal is not None:
        # A repeat of what was accepted stays accepted, whatever has changed since; nothing is new.
        quota = replace(quota, most=0)
    outcome = await context.writer.write(report, quota)
    if refusal is not None and outcome != "known":
        raise refusal
    if outcome == "spent":
        raise quota.refusal()
    if outcome == "conflict":
        raise Failure("conflict", "another report has this id", "make a new id for each report")
    return answer(ReportAccepted(id=message.id), 201 if outcome == "new" else 200)


@router.serves("GET", "/v1/deployments/{name}/issuer", Issuer)
def get_issuer(context: Shared, name: Name) -> Issuer:
    """The key that signs one-use tokens in the running period, the same for everybody."""
    live, period = _one_use(context, name)
    if {period, period + 1} - {*(live.issuers or {})}:
        with context.store.write() as session:
            make_issuers(session, context.key, name, period)
        live = context.live.get(name)
    return Issuer(period=period, modulus=(live.issuers or {})[period])


@router.serves("POST", "/v1/deployments/{name}/issue", Issued)
def post_issue(
    context: Shared,
    reporter: Reporter,
    name: Name,
    message: IssueRequest,
) -> Response:
    """Sign one-use tokens blindly: one request of a token in a period, as often as it is sent."""
    live, period = _one_use(context, name)
    if message.period != period or len(message.blinded) > live.quota.most:
        msg = f"period, blinded: up to {live.quota.most} tokens of period {period} are signed now"
        raise Failure("invalid", msg, "ask for the running period, GET .../issuer")
    digest = digest_of(message.blinded)
    with context.store.reports() as session:
        if not take_one_use(session, (live.row.id, reporter.id, period), digest):
            raise live.quota.refusal()
        key = session.get_one(IssuerRow, (live.row.id, period))

    def sign() -> bytes:
        issued = context.pool.run(sign_all, key.modulus, key.exponent, message.blinded)
        return issued.model_dump_json().encode()

    return answer(context.files(f"issue/{live.row.id}/{period}/{digest}", sign))


def _one_use(context: Context, name: str) -> tuple[Live, int]:
    """A deployment whose reports come with one-use tokens, and the running period. One that is
    over gets no more keys: each is in the log for ever."""
    live = context.live.get(name)
    if live.issuers is None:
        raise Failure("not_found", "this deployment has no one-use tokens", "report with a token")
    over = live.over()
    if over is not None:
        raise over
    return live, live.quota.period()


@router.serves("GET", "/v1/deployments/{name}/reports", _EXPORT)
def get_reports(
    context: Shared,
    analyst: Analyst,
    name: Name,
    after: Count = 0,
    since: datetime | None = None,
    until: datetime | None = None,
    form: Annotated[Form, Query(alias="format")] = "ndjson",
) -> Response:
    """Export reports in the order of `seq`: those after one, from a time on, before another.

    Times are ISO 8601, UTC where they name no zone. Parquet and Arrow's stream need pyarrow on the
    server.
    """
    mine = select(ReportRow).filter_by(deployment=context.live.get(name).row.id)
    for bound, compare in ((since, operator.ge), (until, operator.lt)):
        if bound is not None:
            at = bound if bound.tzinfo else bound.replace(tzinfo=UTC)
            mine = mine.where(compare(ReportRow.at, at))
    write = _text
    if form in ("parquet", "arrow"):
        # Before the answer begins: a refusal has no place in the middle of it.
        if find_spec("pyarrow") is None:
            msg = f"format: this server cannot write {form}, for want of pyarrow"
            raise Failure("invalid", msg, "ask for csv, or install panda-mdp[frames]")
        write = _columns
    body = write(form, _pages(context, mine, after))
    return StreamingResponse(body, 200, {"cache-control": "no-store"}, media_type=MEDIA[form])


Pages = Iterator[list[ReportLine]]


def _pages(context: Context, mine: Select[Any], after: int) -> Pages:
    while True:
        page = mine.where(ReportRow.seq > after).order_by(ReportRow.seq).limit(PAGE)
        with context.store.read() as session:
            rows = session.scalars(page).all()
        if not rows:
            return
        yield [
            ReportLine(seq=r.seq, at=r.at, version=r.version, output=r.output, user=r.token)
            for r in rows
        ]
        after = rows[-1].seq


def _text(form: Form, pages: Pages) -> Iterator[bytes]:
    """Lines. Fields are numbers, a time and hexadecimal digits: none needs a quote."""
    if form == "csv":
        yield ",".join(ReportLine.model_fields).encode() + b"\r\n"
    for page in pages:
        if form == "ndjson":
            lines = [f"{line.model_dump_json()}\n" for line in page]
        else:
            fields = (line.model_dump(mode="json").values() for line in page)
            lines = [",".join(map(str, each)) + "\r\n" for each in fields]
        yield "".join(lines).encode()


def _columns(form: Form, pages: Pages) -> Iterator[bytes]:
    """A file of Arrow's columns: written whole beside the memory, then sent."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = pa.int64()
    moment = pa.timestamp("ms", tz="UTC")
    kinds = {"seq": number, "at": moment, "version": number, "output": number}
    schema = pa.schema({**kinds, "user": pa.string()})
    opened = pq.ParquetWriter if form == "parquet" else pa.ipc.new_stream
    with TemporaryFile() as file:
        with opened(file, schema) as writer:
            for page in pages:
                rows = [line.model_dump() for line in page]
                writer.write_table(pa.Table.from_pylist(rows, schema))
        file.seek(0)
        while part := file.read(CHUNK):
            yield part


MEDIA: dict[Form, str] = {
    "ndjson": NDJSON,
    "csv": "text/csv",
    "parquet": "application/vnd.apache.parquet",
    "arrow": "application/vnd.apache.arrow.stream",
}


@router.serves("GET", "/v1/deployments/{name}/counts", Counts)
def get_counts(context: Shared, session: Reading, analyst: Analyst, name: Name) -> Counts:
    """How often each output was reported, and how many reports came in each hour."""
    live = context.live.get(name)
    return count_reports(session, live.row.id, live.outputs)


@router.serves("GET", "/v1/deployments/{name}/estimate", Estimate)
def get_estimate(context: Shared, analyst: Analyst, name: Name) -> Response:
    """The share of people in each zone of near records, with 95 % limits that hold for every truth.

    Beside it the shares of single records, for maps: the penalised likelihood's, without limits.
    """
    with context.store.read() as session:
        row = find(session, name)
        removed = context.store.value("removals")
        key = f"estimate/{row.id}/{row.version}/{span(session, row.id)}/{removed}"

    def make() -> bytes:
        with context.store.read() as session:
            reported = gather(session, row)
        return context.pool.run(estimate, reported).model_dump_json().encode()

    return answer(context.files(key, make))
