"""The service, its domains and tables: the same for everyone, so reading needs no token."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import TypeAdapter
from sqlalchemy import select
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
from panda_mdp.protocol.messages.service import Health, KeyInfo, ServiceInfo
from panda_mdp.protocol.server.bodies import parse, read_body, read_json
from panda_mdp.protocol.server.failures import Failure
from panda_mdp.protocol.server.routes.common import (
    JSON,
    NAME_PATTERN,
    OCTETS,
    NamePath,
    Responses,
    VersionPath,
    accepts,
    answer,
    context,
    fails,
    gives,
    require,
)
from panda_mdp.protocol.server.store.actions import record_action
from panda_mdp.protocol.server.store.catalogue import (
    Checked,
    all_tables,
    check_domain,
    domain_detail,
    domain_info,
    domain_row,
    drawn_domain,
    examine,
    store_domain,
    store_table,
    streets_of,
    table_info,
)
from panda_mdp.protocol.server.store.schema import domains
from panda_mdp.version import __version__

router = APIRouter()
_DOMAIN = TypeAdapter(DomainRequest)
CHUNK = 64 << 10
TURN_S = 0.0002
"""Between two pieces of files, of all downloads together."""
_FOREVER = "public, max-age=31536000, immutable"
_RESUME = re.compile(r"bytes=(\d{1,15})-")


@router.get("/v1", responses=gives(ServiceInfo, 200) | fails())
async def service(request: Request) -> Response:
    """What this server is, and the operator's public key."""
    here = context(request)
    info = KeyInfo(id=here.key.id, public=here.key.public.base64)
    return answer(ServiceInfo(version=__version__, key=info, keys=here.sheet))


@router.get("/v1/health", responses=gives(Health, 200) | fails())
async def health(request: Request) -> Response:
    """Whether the server answers and its database does."""
    await run_in_threadpool(context(request).store.value, "schema")
    return answer(Health())


@router.post(
    "/v1/domains",
    openapi_extra=accepts("DomainRequest", _DOMAIN),
    responses=gives(DomainInfo, 200, 201) | fails(401, 403, 409, 413),
    status_code=201,
)
async def post_domain(request: Request) -> Response:
    """Publish a domain, with streets for drawing if it has any."""
    token = require(request, "admin")
    here = context(request)
    body = await read_json(request, here, here.settings.document_bytes)
    checked = await here.pool.run(_checked_domain, body)

    def store() -> tuple[DomainInfo, bool]:
        with here.store.write() as connection:
            info, new = store_domain(connection, checked)
            if new:
                record_action(connection, token.id, "publish domain", info.name)
            return info, new

    info, new = await run_in_threadpool(store)
    return answer(info, 201 if new else 200)


def _checked_domain(body: bytes) -> Checked:
    return check_domain(parse(_DOMAIN, body))


@router.get("/v1/domains", responses=gives(DomainList, 200) | fails())
def get_domains(request: Request) -> Response:
    """All domains."""
    with context(request).store.read() as connection:
        rows = connection.execute(select(domains).order_by(domains.c.created)).all()
    return answer(DomainList(domains=[domain_info(row) for row in rows]))


@router.get("/v1/domains/{domain_id}", responses=gives(DomainDetail, 200) | fails(404))
def get_domain(request: Request, domain_id: NamePath) -> Response:
    """A whole domain; parts of one are not served, because a part tells a place."""
    here = context(request)

    def make() -> bytes:
        with here.store.read() as connection:
            return domain_detail(domain_row(connection, domain_id)).model_dump_json().encode()

    return _cacheable(here.files.get(f"domain/{domain_id}", make))


@router.get("/v1/domains/{domain_id}/streets", responses=gives(Streets, 200) | fails(404))
def get_streets(request: Request, domain_id: NamePath) -> Response:
    """The streets of a domain, for drawing only; degrees as integers over 1e6."""
    here = context(request)

    def make() -> bytes:
        with here.store.read() as connection:
            return streets_of(domain_row(connection, domain_id)).model_dump_json().encode()

    return _cacheable(here.files.get(f"streets/{domain_id}", make))


@router.post(
    "/v1/tables/{name}",
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {OCTETS: {"schema": {"type": "string", "format": "binary"}}},
        }
    },
    responses=gives(TableInfo, 201) | fails(401, 403, 404, 413),
    status_code=201,
)
async def post_table(
    request: Request,
    name: NamePath,
    domain: Annotated[str | None, Query(pattern=NAME_PATTERN)] = None,
    epsilon: Annotated[float | None, Query(gt=0, le=1e9)] = None,
    unit: Annotated[str | None, Query(pattern=r"^[ -~]{1,32}$")] = None,
    fingerprint: Annotated[str | None, Query(pattern=r"^[0-9a-f]{64}$")] = None,
) -> Response:
    """Publish a table, a .pmdp or .pmdc file: audited over all pairs, signed, the next version.

    Streets are those of the domain that is named, or else of one with the same records.
    `epsilon` (at most), `unit` and `fingerprint` say what is expected: any other table is refused.
    """
    token = require(request, "admin")
    here = context(request)

    def streets_for(fingerprint: str | None = None) -> str | None:
        with here.store.read() as connection:
            if domain is None:
                return drawn_domain(connection, fingerprint)
            row = domain_row(connection, domain)
        if fingerprint is not None and row.fingerprint != fingerprint:
            raise Failure(
                "invalid",
                "domain: it has other records than the table",
                "name the domain that the table was made for, or none",
            )
        return str(row.id)

    await run_in_threadpool(streets_for)
    body = await read_body(request, here, here.settings.table_bytes)
    candidate = await here.pool.run(examine, body)
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

    def store() -> TableInfo:
        streets = streets_for(candidate.facts["domain"])
        with here.store.write() as connection:
            info = store_table(connection, here.key, name, candidate, streets)
            target = f"{name}/{info.version}"
            record_action(connection, token.id, "publish table", target, f"sha256 {info.sha256}")
            return info

    return answer(await run_in_threadpool(store), 201)


@router.get("/v1/tables", responses=gives(TableList, 200) | fails())
def get_tables(request: Request) -> Response:
    """All versions of all tables."""
    with context(request).store.read() as connection:
        return answer(TableList(tables=all_tables(connection)))


@router.get("/v1/tables/{name}/{version}", responses=gives(TableInfo, 200) | fails(404))
def get_table(request: Request, name: NamePath, version: VersionPath) -> Response:
    """What a version of a table claims, and the operator's signature."""
    with context(request).store.read() as connection:
        info = table_info(connection, TableRef(name=name, version=version))
    return answer(info, cache_control=_FOREVER)


_FILE: Responses = {
    200: {
        "description": "The whole file.",
        "content": {OCTETS: {"schema": {"type": "string", "format": "binary"}}},
    },
    206: {
        "description": "The rest of a download that was interrupted.",
        "content": {OCTETS: {"schema": {"type": "string", "format": "binary"}}},
    },
    304: {"description": "The file that the client has is this one."},
}


@router.get(
    "/v1/tables/{name}/{version}/file",
    responses=_FILE | fails(404, 416),
    response_class=StreamingResponse,
)
async def get_file(request: Request, name: NamePath, version: VersionPath) -> Response:
    """The file of a table, whole. A range may only resume a download: which part somebody asks for
    would tell where they are."""
    here = context(request)
    ref = TableRef(name=name, version=version)
    data = here.files.peek(f"{name}/{version}")
    if data is None:
        data = await run_in_threadpool(here.file, ref)
    with_etag = await run_in_threadpool(_etag, request, ref)
    headers = {"etag": with_etag, "accept-ranges": "bytes", "cache-control": _FOREVER}
    known = request.headers.get("if-none-match")
    if known is not None and _matches(known, with_etag):
        return Response(status_code=304, headers=headers)
    start = _resume(request, with_etag, len(data))
    headers["content-length"] = str(len(data) - start)
    if start:
        headers["content-range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
    return StreamingResponse(
        _chunks(data, start), 206 if start else 200, headers, media_type=OCTETS
    )


def _etag(request: Request, ref: TableRef) -> str:
    here = context(request)

    def make() -> bytes:
        with here.store.read() as connection:
            return f'"{table_info(connection, ref).sha256}"'.encode()

    return here.files.get(f"etag/{ref.name}/{ref.version}", make).decode()


def _matches(given: str, etag: str) -> bool:
    names = [part.strip().removeprefix("W/") for part in given.split(",")]
    return "*" in names or etag in names


def _resume(request: Request, etag: str, size: int) -> int:
    """Where the answer begins: 0, or where a download of this very file broke off."""
    wanted = request.headers.get("range")
    if wanted is None:
        return 0
    match = _RESUME.fullmatch(wanted.strip())
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


def _cacheable(body: bytes) -> Response:
    return Response(body, 200, {"cache-control": "public, max-age=300"}, JSON)
