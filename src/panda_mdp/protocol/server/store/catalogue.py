"""Domains and tables as the server keeps them: checked, audited, signed, never changed again."""

from __future__ import annotations

import hashlib
import io
import json
import math
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter
from sqlalchemy import Column, Connection, Row, func, insert, select

from panda_mdp.errors import DomainError, FileFormatError
from panda_mdp.panda.file.decode import decode as decode_panda
from panda_mdp.panda.file.decode import peek
from panda_mdp.panda.panda_table import PandaTable
from panda_mdp.protocol.messages.catalogue import (
    DomainDetail,
    DomainInfo,
    DomainRequest,
    PlaceName,
    Streets,
    StreetsUpload,
    TableInfo,
    TableRef,
)
from panda_mdp.protocol.messages.signing import SigningKey, table_bytes
from panda_mdp.protocol.server.failures import Failure
from panda_mdp.protocol.server.store.database import now_ms
from panda_mdp.protocol.server.store.log import append
from panda_mdp.protocol.server.store.schema import domains, tables, when
from panda_mdp.space.domain import Domain
from panda_mdp.table.certificate import EVERYWHERE_VERSION, PHASED_VERSION, restore_domain
from panda_mdp.table.everywhere import EverywhereMechanism
from panda_mdp.table.pmdc import layout
from panda_mdp.table.pmdc.archive import decode as decode_compact
from panda_mdp.table.pmdc.archive import encode as encode_compact
from panda_mdp.table.pmdc.compact import CompactTable
from panda_mdp.table.pmdp.decode import array, contradictions, decode, version_of
from panda_mdp.table.pmdp.decode import unpack as unpack_file

MICRODEGREES = 1e6
_NAMES = TypeAdapter(list[PlaceName])
Arrays = dict[str, npt.NDArray[Any]]


def pack(arrays: Mapping[str, npt.ArrayLike]) -> bytes:
    """Arrays as one compressed file."""
    stream = io.BytesIO()
    np.savez_compressed(stream, allow_pickle=False, **dict(arrays))
    return stream.getvalue()


def unpack(data: bytes) -> Arrays:
    """The arrays of `pack`."""
    with np.load(io.BytesIO(data), allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


# Domains


@dataclass(frozen=True)
class Checked:
    """A domain that is one, ready to be stored."""

    name: str
    kind: str
    unit: str
    records: int
    fingerprint: str
    arrays: bytes
    streets: bytes | None


def check_domain(request: DomainRequest) -> Checked:
    """Build the domain of a request, triangle inequality included. Runs in a worker process."""
    domain = _build(request)
    return Checked(
        name=request.name,
        kind=domain.metric.kind,
        unit=domain.unit,
        records=domain.size,
        fingerprint=domain.fingerprint,
        arrays=pack(domain.metric.arrays()),
        streets=None if request.streets is None else _streets(request.streets),
    )


def _build(request: DomainRequest) -> Domain:
    if request.kind == "haversine":
        return Domain.from_points(request.lat or [], request.lon or [])
    rows = (request.vectors if request.kind == "euclidean" else request.distances) or []
    if len({len(row) for row in rows}) > 1:
        msg = "the rows of the table differ in length; give a rectangular one"
        raise DomainError(msg)
    if request.kind == "euclidean":
        return Domain.from_vectors(rows, unit=request.unit)
    return Domain.from_matrix(rows, unit=request.unit)


def _streets(given: StreetsUpload) -> bytes:
    return pack(
        {
            "lat": np.rint(np.array(given.lat) * MICRODEGREES).astype(np.int64),
            "lon": np.rint(np.array(given.lon) * MICRODEGREES).astype(np.int64),
            "u": np.array(given.u, dtype=np.int64),
            "v": np.array(given.v, dtype=np.int64),
            "names": np.frombuffer(_NAMES.dump_json(given.names), dtype=np.uint8),
        }
    )


def store_domain(connection: Connection, domain: Checked) -> tuple[DomainInfo, bool]:
    """Keep a domain; and whether it is new. A name stands for the same records for ever."""
    named = select(domains).where(domains.c.name == domain.name)
    before = connection.execute(named).first()
    if before is not None:
        if before.fingerprint == domain.fingerprint and before.streets == domain.streets:
            return domain_info(before), False
        raise Failure(
            "conflict",
            "another domain has this name; domains do not change",
            "choose another name",
        )
    values = {**asdict(domain), "id": secrets.token_hex(8), "created": now_ms()}
    connection.execute(insert(domains).values(values))
    return domain_info(connection.execute(named).one()), True


def domain_info(row: Row[Any]) -> DomainInfo:
    """What the list says about a domain."""
    return DomainInfo(
        id=row.id,
        name=row.name,
        kind=row.kind,
        unit=row.unit,
        records=row.records,
        fingerprint=row.fingerprint,
        streets=row.streets is not None,
        created=when(row.created),
    )


def domain_row(connection: Connection, domain_id: str) -> Row[Any]:
    """A stored domain by its id or its name."""
    row = connection.execute(
        select(domains).where((domains.c.id == domain_id) | (domains.c.name == domain_id))
    ).first()
    if row is None:
        raise Failure("not_found", "there is no domain of this id", "GET /v1/domains lists them")
    return row


def domain_of(row: Row[Any]) -> Domain:
    """The domain of a stored row; its matrix was checked when it came."""
    claims = {"kind": row.kind, "unit": row.unit, "fingerprint": row.fingerprint}
    return restore_domain(claims, unpack(row.arrays))


def domain_detail(row: Row[Any]) -> DomainDetail:
    """All of a domain."""
    arrays = {name: values.tolist() for name, values in unpack(row.arrays).items()}
    return DomainDetail(**dict(domain_info(row)), **arrays)


def drawn_domain(connection: Connection, fingerprint: str | None) -> str | None:
    """The id of a domain with these records and with streets, if there is one."""
    wanted = select(domains.c.id).where(
        domains.c.fingerprint == fingerprint, domains.c.streets.is_not(None)
    )
    return connection.execute(wanted.order_by(domains.c.created).limit(1)).scalar()


def streets_of(row: Row[Any]) -> Streets:
    """The streets of a domain, for drawing."""
    if row.streets is None:
        raise Failure("not_found", "this domain has no streets", "draw its records alone")
    arrays = unpack(row.streets)
    # Streets that were stored before there were names have none.
    names = arrays.pop("names", np.frombuffer(b"[]", dtype=np.uint8))
    lines = {name: values.tolist() for name, values in arrays.items()}
    return Streets(names=_NAMES.validate_json(names.tobytes()), **lines)


# Tables


@dataclass(frozen=True)
class Candidate:
    """A table that passed its audit and is ready to be stored and signed."""

    facts: dict[str, Any]
    data: bytes


def examine(data: bytes) -> Candidate:
    """Read a published file, audit it over all pairs, and give it its compact form.

    Runs in a worker process. Raises `FileFormatError` where the file is none or breaks its claim.
    """
    if data.startswith(layout.MAGIC):
        table = decode_compact(data)
        if table.certificate["version"] == layout.LEVELS_VERSION:
            msg = (
                "a compact table of levels (version 3), which browsers do not read; publish the "
                ".pmdp file of mechanism.save, and the service writes what they read"
            )
            raise FileFormatError(msg)
        return Candidate(table_facts(table), data)
    if is_panda(data):
        return Candidate(_facts(decode_panda(data)), data)
    if data.startswith(b"PK"):
        mechanism = decode(data)
        if isinstance(mechanism, EverywhereMechanism):
            # Compacted it would be private between its vertices alone.
            return Candidate(_facts(mechanism), data)
        compact = encode_compact(mechanism)
        return Candidate(table_facts(decode_compact(compact)), compact)
    msg = "the body is neither a .pmdp nor a .pmdc file; mechanism.save and pm.save_compact do"
    raise FileFormatError(msg)


def is_panda(data: bytes) -> bool:
    """Whether a file is a table of PAnDA."""
    return data.startswith(b"PK") and version_of(data) == PHASED_VERSION


def is_everywhere(data: bytes) -> bool:
    """Whether a file is a table for every point of an area."""
    return data.startswith(b"PK") and version_of(data) == EVERYWHERE_VERSION


def _facts(table: EverywhereMechanism | PandaTable) -> dict[str, Any]:
    """What is said about a file that is served as it is; it was verified when it was read."""
    problem, audited = table.problem, table.epsilon
    bound, gap = None, None
    if isinstance(table, EverywhereMechanism):
        audited, bound, gap = table.everywhere.epsilon, table.lower_bound, table.gap
    if problem.reports.kind != "records":
        msg = f"outputs are {problem.reports.kind}; reports of this service are records"
        raise FileFormatError(msg)
    return {
        "domain": problem.domain.fingerprint,
        "unit": problem.domain.unit,
        "records": problem.size,
        "outputs": problem.outputs_count,
        "epsilon": table.epsilon,
        "audited_epsilon": audited,
        "loss": table.loss,
        "lower_bound": bound,
        "gap": gap if gap is not None and math.isfinite(gap) else None,
        "loss_cost": 0.0,
    }


def promise_of_panda(data: bytes) -> dict[str, Any]:
    """What a stored file of PAnDA promises; it was verified when it was published."""
    certificate, _ = peek(data)
    return {
        "epsilon": certificate["epsilon"],
        "delta": certificate["delta"],
        "unit": certificate["domain"]["unit"],
        "selection": certificate["selection"]["kind"],
        "selection_epsilon": certificate["account"]["selection_epsilon"],
    }


def table_facts(table: CompactTable) -> dict[str, Any]:
    """What is said about a table, from its audited file."""
    stated = table.certificate
    gap = stated.get("gap")
    bound = stated.get("lower_bound")
    return {
        "domain": table.domain.fingerprint,
        "unit": table.domain.unit,
        "records": table.domain.size,
        "outputs": len(table.outputs),
        "epsilon": table.epsilon,
        "audited_epsilon": table.audit.epsilon,
        "loss": table.loss,
        "lower_bound": None if bound is None else float(bound),
        "gap": float(gap) if isinstance(gap, int | float) and math.isfinite(gap) else None,
        "loss_cost": table.loss_cost,
    }


def store_table(
    connection: Connection,
    key: SigningKey,
    name: str,
    candidate: Candidate,
    streets: str | None = None,
) -> TableInfo:
    """Sign a table and keep it as the next version of its name."""
    latest = connection.execute(
        select(func.max(tables.c.version)).where(tables.c.name == name)
    ).scalar()
    version = 1 if latest is None else int(latest) + 1
    facts, created = candidate.facts, now_ms()
    digest, size = hashlib.sha256(candidate.data).hexdigest(), len(candidate.data)
    signed = table_bytes(name, version, digest, size, facts["domain"], facts["epsilon"])
    append(connection, key, signed)
    info = TableInfo(
        name=name,
        version=version,
        size_bytes=size,
        sha256=digest,
        signature=key.sign(signed),
        key_id=key.id,
        created=when(created),
        streets=streets,
        **facts,
    )
    connection.execute(
        insert(tables).values(
            name=name,
            version=version,
            domain=facts["domain"],
            info=info.model_dump_json(),
            sha256=digest,
            file=candidate.data,
            created=created,
        )
    )
    return info


def table_info(connection: Connection, ref: TableRef) -> TableInfo:
    """What is said about a version of a table."""
    return TableInfo.model_validate_json(_of_version(connection, ref, tables.c.info))


def all_tables(connection: Connection) -> list[TableInfo]:
    """Every version of every table."""
    rows = connection.execute(select(tables.c.info).order_by(tables.c.name, tables.c.version))
    return [TableInfo.model_validate_json(row.info) for row in rows]


def table_file(connection: Connection, ref: TableRef) -> bytes:
    """The file of a version."""
    return bytes(_of_version(connection, ref, tables.c.file))


def _of_version(connection: Connection, ref: TableRef, column: Column[Any]) -> Any:
    content = connection.execute(
        select(column).where(tables.c.name == ref.name, tables.c.version == ref.version)
    ).scalar()
    if content is None:
        raise Failure(
            "not_found", "there is no such version of this table", "GET /v1/tables lists them"
        )
    return content


def read_table(data: bytes) -> CompactTable:
    """A stored table; it was audited when it was published."""
    return decode_compact(data)


def table_outputs(data: bytes) -> frozenset[int]:
    """The outputs of a stored table, which was audited when it was published."""
    if is_panda(data):
        return frozenset(peek(data)[1].tolist())
    if data.startswith(b"PK"):
        with contradictions():
            certificate, members = unpack_file(data)
            return frozenset(array(members, "outputs", (int(certificate["outputs"]),)).tolist())
    header, sections = layout.unpack(data)
    return frozenset(layout.unpack_integers(sections["outputs"], header["outputs"]).tolist())


def table_metric(data: bytes) -> str:
    """The kind of a stored table's metric."""
    if is_everywhere(data):
        return "haversine"
    header = peek(data)[0] if is_panda(data) else layout.unpack(data)[0]
    return str(header["domain"]["kind"])


def plain(value: Mapping[str, Any]) -> str:
    """A JSON text for a column."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
