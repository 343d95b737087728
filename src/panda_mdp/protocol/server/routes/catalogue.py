"""The service, its domains, tables and log: the same for everyone, so reading needs no token."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable
from typing import Annotated

from fastapi import Request
from fastapi.responses import Response, StreamingResponse
from sqlalchemy import select

from panda_mdp.protocol.messages.catalogue import (
    DomainDetail,
    DomainInfo,
    DomainRequest,
    Streets,
    TableInfo,
    TableList,
    TableRef,
)
from panda_mdp.protocol.messages.log import CoSigned, Log, LogEntries
from panda_mdp.protocol.messages.service import KeyInfo, ServiceInfo
from panda_mdp.protocol.messages.types import Count, Message, Name, Version
from panda_mdp.protocol.server.context import Context
from panda_mdp.protocol.server.routes import (
    OCTETS,
    Admin,
    Auditor,
    File,
    Limit,
    Reading,
    Responses,
    Routes,
    Shared,
    Writing,
    answer,
    answer_packed,
    body_of,
)
from panda_mdp.protocol.server.store.catalogue import (
    all_tables,
    check_domain,
    domain_detail,
    domain_row,
    examine,
    store_domain,
    store_table,
    streets_of,
    table_row,
)
from panda_mdp.protocol.server.store.log import entries, keep_witness, record_action, whole_log
from panda_mdp.protocol.server.store.schema import DomainRow
from panda_mdp.version import __version__

router = Routes()
CHUNK = 64 << 10
TURN_S = 0.0002
"""Between two pieces of files, of all downloads together."""
_FOREVER = "public, max-age=31536000, immutable"
_OCTETS = {OCTETS: {"schema": {"type": "string", "format": "binary"}}}
_FILE: Responses = {
    200: {"description": "The whole file.", "content": _OCTETS},
}


@router.serves("GET", "/v1", ServiceInfo)
def service(context: Shared) -> ServiceInfo:
    """What this server is, and the operator's public key."""
    info = KeyInfo(id=context.key.id, public=context.key.public.base64)
    return ServiceInfo(version=__version__, key=info, keys=context.sheet)


# Domains


@router.serves("POST", "/v1/domains", DomainInfo, 201, 200)
def post_domain(
    context: Shared,
    operator: Admin,
    request: Annotated[DomainRequest, body_of(DomainRequest, "DomainRequest")],
) -> tuple[DomainInfo, bool]:
    """Publish a domain, with streets for drawing if it has any."""
    checked = context.pool.run(check_domain, request)
    with context.store.write() as session:
        row, new = store_domain(session, checked)
        if new:
            record_action(session, operator.id, "publish domain", row.name)
        return DomainInfo.model_validate(row), new


@router.serves("GET", "/v1/domains/{domain_id}", DomainDetail)
def get_domain(request: Request, context: Shared, domain_id: Name) -> Response:
    """A whole domain; parts of one are not served, because a part tells a place."""
    return _of_domain(request, context, domain_id, domain_detail)


@router.serves("GET", "/v1/domains/{domain_id}/streets", Streets)
def get_streets(request: Request, context: Shared, domain_id: Name) -> Response:
    """The streets of a domain, for drawing only; degrees as integers over 1e6."""
    return _of_domain(request, context, domain_id, streets_of)


def _of_domain(
    request: Request, context: Context, domain_id: str, say: Callable[[DomainRow], Message]
) -> Response:
    def make() -> bytes:
        with context.store.read() as session:
            said = say(domain_row(session, domain_id)).model_dump_json()
        return gzip.compress(said.encode(), mtime=0)

    packed = context.files(f"{say.__name__}/{domain_id}", make)
    return answer_packed(request, packed, "public, max-age=300")


# Tables


@router.serves("POST", "/v1/tables/{name}", TableInfo, 201)
def post_table(context: Shared, operator: Admin, name: Name, body: File) -> TableInfo:
    """Publish a table, a .pmdp file: audited over all pairs, signed, the next version.

    Streets are those of a domain with the same records.
    """
    candidate = context.pool.run(examine, body)
    drawn = select(DomainRow.id).filter_by(fingerprint=candidate.info.domain, streets=True)
    with context.store.write() as session:
        streets = session.scalar(drawn.order_by(DomainRow.created))
        info = store_table(session, context.key, name, candidate, streets)
        target = f"{name}/{info.version}"
        digest = f"sha256 {info.sha256}"
        record_action(session, operator.id, "publish table", target, digest)
    return info


@router.serves("GET", "/v1/tables", TableList)
def get_tables(session: Reading) -> TableList:
    """All versions of all tables."""
    return TableList(tables=all_tables(session))


@router.serves("GET", "/v1/tables/{name}/{version}", TableInfo)
def get_table(session: Reading, name: Name, version: Version) -> Response:
    """What a version of a table claims, and the operator's signature."""
    return answer(table_row(session, TableRef(name=name, version=version)).info, cache=_FOREVER)


@router.serves("GET", "/v1/tables/{name}/{version}/file", _FILE)
def get_file(context: Shared, name: Name, version: Version) -> Response:
    """The file of a table, always whole: which part somebody asks for would tell where they are."""
    data = context.file(TableRef(name=name, version=version))
    headers = {"accept-ranges": "none", "cache-control": _FOREVER}
    headers["content-length"] = str(len(data))
    return StreamingResponse(_chunks(data), 200, headers, OCTETS)


_under_way: list[int] = []
"""An entry for each file that is on its way."""


async def _chunks(data: bytes) -> AsyncIterator[bytes]:
    _under_way.append(len(data))
    try:
        for begin in range(0, len(data), CHUNK):
            yield data[begin : begin + CHUNK]
            # A socket with room takes all of it at once: all downloads together leave the others
            # their turns, however many there are.
            await asyncio.sleep(TURN_S * len(_under_way))
    finally:
        _under_way.pop()


# The log


@router.serves("GET", "/v1/log", Log)
def get_log(session: Reading) -> Log:
    """The signed head and the hashes of all entries, the same for everybody."""
    return whole_log(session)


@router.serves("POST", "/v1/log/witnesses", CoSigned)
def post_witness(session: Writing, auditor: Auditor, message: CoSigned) -> CoSigned:
    """Publish what a witness has signed about the log, beside it."""
    keep_witness(session, message)
    return message


@router.serves("GET", "/v1/log/entries", LogEntries)
def get_entries(session: Reading, first: Count = 0, limit: Limit = 100) -> LogEntries:
    """Entries as they were signed: tables and deployments, one after the other."""
    return entries(session, first, limit)
