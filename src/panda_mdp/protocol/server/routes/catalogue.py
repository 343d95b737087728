"""The service, its domains, tables and log: the same for everyone, so reading needs no token."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import TypeAdapter
from sqlalchemy import select
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool

from panda_mdp.protocol.messages.catalogue import (
    DomainDetail,
    DomainInfo,
    DomainList,
    DomainRequest,
    Streets,
    TableInfo,
    TableList,
    TableRef,
)
from panda_mdp.protocol.messages.log import MOST_LEAVES, Log, LogEntries, LogProof
from panda_mdp.protocol.messages.service import Health, KeyInfo, ServiceInfo
from panda_mdp.protocol.messages.types import Message
from panda_mdp.protocol.server.context import Context
from panda_mdp.protocol.server.failures import Failure, parse
from panda_mdp.protocol.server.routes import (
    NAME_PATTERN,
    OCTETS,
    Admin,
    File,
    NamePath,
    Responses,
    Routes,
    Shared,
    VersionPath,
    answer,
    body_of,
)
from panda_mdp.protocol.server.store.catalogue import (
    CheckedDomain,
    all_tables,
    check_domain,
    domain_detail,
    domain_info,
    domain_row,
    examine,
    store_domain,
    store_table,
    streets_of,
    table_row,
)
from panda_mdp.protocol.server.store.log import entries, proof, record_action, whole_log
from panda_mdp.protocol.server.store.schema import DomainRow
from panda_mdp.version import __version__

router = Routes()
_DOMAIN = TypeAdapter(DomainRequest)
CHUNK = 64 << 10
TURN_S = 0.0002
"""Between two pieces of files, of all downloads together."""
_FOREVER = "public, max-age=31536000, immutable"
_RESUME = re.compile(r"bytes=(\d{1,15})-")
_OCTETS = {OCTETS: {"schema": {"type": "string", "format": "binary"}}}
_FILE: Responses = {
    200: {"description": "The whole file.", "content": _OCTETS},
    206: {"description": "The rest of a download that was interrupted.", "content": _OCTETS},
    304: {"description": "The file that the client has is this one."},
}


@router.serves("GET", "/v1", ServiceInfo)
async def service(context: Shared) -> Response:
    """What this server is, and the operator's public key."""
    info = KeyInfo(id=context.key.id, public=context.key.public.base64)
    return answer(ServiceInfo(version=__version__, key=info, keys=context.sheet))


@router.serves("GET", "/v1/health", Health)
async def health(context: Shared) -> Response:
    """Whether the server answers and its database does."""
    await run_in_threadpool(context.store.value, "layout")
    return answer(Health())


# Domains


@router.serves("POST", "/v1/domains", DomainInfo, 201, 200)
async def post_domain(
    context: Shared,
    operator: Admin,
    body: Annotated[bytes, body_of(DomainRequest, "document_bytes", read=False)],
) -> Response:
    """Publish a domain, with streets for drawing if it has any."""
    checked = await context.pool.run(_checked_domain, body)

    def store(session: Session) -> tuple[DomainInfo, bool]:
        row, new = store_domain(session, checked)
        if new:
            record_action(session, operator.id, "publish domain", row.name)
        return domain_info(row), new

    info, new = await context.write(store)
    return answer(info, 201 if new else 200)


def _checked_domain(body: bytes) -> CheckedDomain:
    return check_domain(parse(_DOMAIN, body))


@router.serves("GET", "/v1/domains", DomainList)
def get_domains(context: Shared) -> Response:
    """All domains."""
    with context.store.read() as session:
        rows = session.scalars(select(DomainRow).order_by(DomainRow.created))
        return answer(DomainList(domains=[domain_info(row) for row in rows]))


@router.serves("GET", "/v1/domains/{domain_id}", DomainDetail)
def get_domain(context: Shared, domain_id: NamePath) -> Response:
    """A whole domain; parts of one are not served, because a part tells a place."""
    return _of_domain(context, domain_id, domain_detail)


@router.serves("GET", "/v1/domains/{domain_id}/streets", Streets)
def get_streets(context: Shared, domain_id: NamePath) -> Response:
    """The streets of a domain, for drawing only; degrees as integers over 1e6."""
    return _of_domain(context, domain_id, streets_of)


def _of_domain(context: Context, domain_id: str, say: Callable[[DomainRow], Message]) -> Response:
    def make() -> bytes:
        with context.store.read() as session:
            return say(domain_row(session, domain_id)).model_dump_json().encode()

    body = context.files.get(f"{say.__name__}/{domain_id}", make)
    return answer(body, cache="public, max-age=300")


# Tables


@router.serves("POST", "/v1/tables/{name}", TableInfo, 201)
async def post_table(
    context: Shared,
    operator: Admin,
    name: NamePath,
    body: File,
    domain: Annotated[str | None, Query(pattern=NAME_PATTERN)] = None,
    epsilon: Annotated[float | None, Query(gt=0, le=1e9)] = None,
    unit: Annotated[str | None, Query(pattern=r"^[ -~]{1,32}$")] = None,
    fingerprint: Annotated[str | None, Query(pattern=r"^[0-9a-f]{64}$")] = None,
) -> Response:
    """Publish a table, a .pmdp file: audited over all pairs, signed, the next version.

    Streets are those of the domain that is named, or else of one with the same records.
    `epsilon` (at most), `unit` and `fingerprint` say what is expected: any other table is refused.
    """
    if domain is not None:
        await context.read(lambda session: domain_row(session, domain))
    candidate = await context.pool.run(examine, body)
    facts = candidate.facts
    for field, wrong in (
        ("epsilon", epsilon is not None and facts["epsilon"] > epsilon),
        ("unit", unit is not None and facts["unit"] != unit),
        ("fingerprint", fingerprint is not None and facts["domain"] != fingerprint),
    ):
        if wrong:
            raise Failure(
                "invalid",
                f"{field}: the table is not the expected one",
                "compare it with `panda-mdp info`, or expect something else",
            )

    def store(session: Session) -> TableInfo:
        streets = _streets_for(session, domain, facts["domain"])
        info = store_table(session, context.key, name, candidate, streets)
        target, digest = f"{name}/{info.version}", f"sha256 {info.sha256}"
        record_action(session, operator.id, "publish table", target, digest)
        return info

    return answer(await context.write(store), 201)


def _streets_for(session: Session, domain: str | None, fingerprint: str) -> str | None:
    """The id of the domain that is named, or of one with these records and with streets."""
    if domain is None:
        drawn = select(DomainRow.id).filter_by(fingerprint=fingerprint, streets=True)
        return session.scalar(drawn.order_by(DomainRow.created))
    row = domain_row(session, domain)
    if row.fingerprint != fingerprint:
        raise Failure(
            "invalid",
            "domain: it has other records than the table",
            "name the domain that the table was made for, or none",
        )
    return row.id


@router.serves("GET", "/v1/tables", TableList)
def get_tables(context: Shared) -> Response:
    """All versions of all tables."""
    with context.store.read() as session:
        return answer(TableList(tables=all_tables(session)))


@router.serves("GET", "/v1/tables/{name}/{version}", TableInfo)
def get_table(context: Shared, name: NamePath, version: VersionPath) -> Response:
    """What a version of a table claims, and the operator's signature."""
    with context.store.read() as session:
        info = table_row(session, TableRef(name=name, version=version)).info
    return answer(info, cache=_FOREVER)


@router.serves("GET", "/v1/tables/{name}/{version}/file", _FILE, also=416)
async def get_file(
    request: Request, context: Shared, name: NamePath, version: VersionPath
) -> Response:
    """The file of a table, whole. A range may only resume a download: which part somebody asks for
    would tell where they are."""
    ref = TableRef(name=name, version=version)
    info = await context.read(lambda session: table_row(session, ref).info)
    data = await context.file(ref)
    etag = f'"{info.sha256}"'
    headers = {"etag": etag, "accept-ranges": "bytes", "cache-control": _FOREVER}
    etags = request.headers.get("if-none-match", "").split(",")
    if not {"*", etag}.isdisjoint(part.strip().removeprefix("W/") for part in etags):
        return Response(status_code=304, headers=headers)
    start = _resume(request, etag, len(data))
    headers["content-length"] = str(len(data) - start)
    if start:
        headers["content-range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
    return StreamingResponse(
        _chunks(data, start), 206 if start else 200, headers, media_type=OCTETS
    )


def _resume(request: Request, etag: str, size: int) -> int:
    """Where the answer begins: 0, or where a download of this very file broke off."""
    asked = request.headers.get("range")
    if asked is None:
        return 0
    match = _RESUME.fullmatch(asked.strip())
    condition = request.headers.get("if-range")
    if match is not None and condition is not None and condition != etag:
        # Another file by now: all of it, as HTTP asks for.
        return 0
    if match is None or condition is None or not int(match[1]) < size:
        raise Failure(
            "range",
            "only whole files are served, because the part that somebody asks for tells a place",
            'ask without Range; to resume, send Range: bytes=N- with If-Range: "<ETag>"',
            {"content-range": f"bytes */{size}"},
        )
    return int(match[1])


class _Downloads:
    """How many files are on their way."""

    under_way = 0


async def _chunks(data: bytes, start: int) -> AsyncIterator[bytes]:
    view = memoryview(data)
    _Downloads.under_way += 1
    try:
        for begin in range(start, len(data), CHUNK):
            yield bytes(view[begin : begin + CHUNK])
            # A socket with room takes all of it at once: all downloads together leave the others
            # their turns, however many there are.
            await asyncio.sleep(TURN_S * _Downloads.under_way)
    finally:
        _Downloads.under_way -= 1


# The log


Number = Annotated[int, Query(ge=0, le=MOST_LEAVES)]


@router.serves("GET", "/v1/log", Log, also=404)
def get_log(context: Shared) -> Response:
    """The signed head and the hashes of all entries, the same for everybody."""
    with context.store.read() as session:
        return answer(whole_log(session))


@router.serves("GET", "/v1/log/entries", LogEntries)
def get_entries(
    context: Shared, first: Number = 0, limit: Annotated[int, Query(ge=1, le=1_000)] = 100
) -> Response:
    """Entries as they were signed: tables and deployments, one after the other."""
    with context.store.read() as session:
        return answer(entries(session, first, limit))


@router.serves("GET", "/v1/log/inclusion", LogProof)
def get_inclusion(context: Shared, first: Number, size: Number) -> Response:
    """A proof that entry `first` is among the first `size`."""
    with context.store.read() as session:
        return answer(proof(session, first, size, inclusion=True))


@router.serves("GET", "/v1/log/consistency", LogProof)
def get_consistency(context: Shared, first: Number, size: Number) -> Response:
    """A proof that the first `first` entries are the beginning of the first `size`."""
    with context.store.read() as session:
        return answer(proof(session, first, size, inclusion=False))
