"""Domains and tables: checked, audited, signed, never changed again."""

from __future__ import annotations

import hashlib
import io
import secrets
from collections.abc import Mapping
from dataclasses import asdict

import numpy as np
import numpy.typing as npt
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from panda_mdp.base.arrays import Sections
from panda_mdp.base.text import Facts
from panda_mdp.errors import FileFormatError
from panda_mdp.panda.file import decode
from panda_mdp.panda.panda_table import PandaTable
from panda_mdp.protocol.messages.catalogue import (
    DomainDetail,
    DomainInfo,
    DomainRequest,
    Places,
    Streets,
    TableInfo,
    TableRef,
)
from panda_mdp.protocol.messages.signing import SigningKey
from panda_mdp.protocol.server.failures import Failure
from panda_mdp.protocol.server.store.database import found
from panda_mdp.protocol.server.store.log import append
from panda_mdp.protocol.server.store.schema import DomainRow, TableRow, now
from panda_mdp.table.decode import look
from panda_mdp.table.encode import encode
from panda_mdp.table.everywhere import EverywhereMechanism
from panda_mdp.table.mechanism import Mechanism
from panda_mdp.table.thin import compact


def pack(arrays: Mapping[str, npt.ArrayLike]) -> bytes:
    """Arrays as one compressed file."""
    stream = io.BytesIO()
    np.savez_compressed(stream, allow_pickle=False, **dict(arrays))
    return stream.getvalue()


def unpack(data: bytes) -> Sections:
    """The arrays of `pack`."""
    with np.load(io.BytesIO(data), allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


# Domains


def check_domain(request: DomainRequest) -> DomainRow:
    """The domain of a request, triangle inequality included, ready to be stored. Runs in a worker
    process."""
    domain = request.domain()
    return DomainRow(
        id=secrets.token_hex(8),
        name=request.name,
        records=domain.size,
        fingerprint=domain.fingerprint,
        places=Places(lat=request.lat, lon=request.lon),
        streets=request.streets is not None,
        drawn=request.streets,
    )


def store_domain(session: Session, domain: DomainRow) -> tuple[DomainRow, bool]:
    """Keep a domain; and whether it is new. A name stands for the same records for ever."""
    before = session.scalar(select(DomainRow).filter_by(name=domain.name))
    if before is None:
        session.add(domain)
        session.flush()
        return domain, True
    if (before.fingerprint, before.drawn) != (domain.fingerprint, domain.drawn):
        msg = "another domain has this name; domains do not change"
        raise Failure("conflict", msg, "choose another name")
    return before, False


def domain_row(session: Session, domain_id: str) -> DomainRow:
    """A stored domain by its id or its name."""
    query = select(DomainRow).where((DomainRow.id == domain_id) | (DomainRow.name == domain_id))
    return found(session.scalar(query), "domain of this id or name", "POST /v1/domains makes one")


def domain_detail(row: DomainRow) -> DomainDetail:
    """All of a domain."""
    return DomainDetail(**dict(DomainInfo.model_validate(row)) | dict(row.places))


def streets_of(row: DomainRow) -> Streets:
    """The streets of a domain, for drawing."""
    return found(row.drawn, "map of streets for this domain", "draw its records alone")


# Tables


def examine(data: bytes) -> TableRow:
    """Read a published file, audit it over all pairs, and give it its compact form.

    Runs in a worker process. Raises `FileFormatError` where the file is none or breaks its claim.
    """
    table = decode(data)
    kind = "plain"
    if isinstance(table, PandaTable):
        kind = "panda"
        facts = {"loss": table.loss}
        data = table.wire
    elif isinstance(table, EverywhereMechanism):
        # Rounded it would be private between its vertices alone.
        kind = "everywhere"
        facts = _losses(table, table.everywhere.epsilon)
    else:
        shapes = look(data).header["shapes"]
        table = table if "blocks" in shapes else compact(table)
        if "blocks" not in shapes or "bound_pairs" in shapes:
            # Clients need no losses and no proof of a bound.
            data = encode(table, losses=False)
        facts = _losses(table, table.audit.epsilon)
    problem = table.problem
    domain = problem.domain
    if problem.reports.kind != "records":
        raise FileFormatError(
            f"outputs are {problem.reports.kind}; reports of this service are records"
        )
    every: Facts = {
        "domain": domain.fingerprint,
        "unit": domain.unit,
        "records": domain.size,
        "outputs": len(problem.outputs),
        "epsilon": problem.epsilon,
        "audited_epsilon": problem.epsilon,
        "loss_cost": 0.0,
        "size_bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "identity": table.identity,
    }
    return TableRow(
        info=TableInfo.model_construct(**every | facts),
        kind=kind,
        metric=domain.metric.kind,
        outputs=problem.outputs.tolist(),
        promise={"guarantee": asdict(table.guarantee)},
        file=data,
    )


def _losses(table: Mechanism, audited_epsilon: float) -> Facts:
    """Loss and bound: computed, or as stated in a file that left the losses out."""
    loss = table.details.get("stated_loss", table.loss)
    bound = table.lower_bound
    if loss is None:
        raise FileFormatError(
            "the file holds neither losses nor their mean; publish one that was saved with losses"
        )
    return {
        "audited_epsilon": audited_epsilon,
        "loss": loss,
        "lower_bound": bound,
        "gap": max(0.0, loss / bound - 1) if bound is not None and bound > 0 else None,
        "loss_cost": table.details.get("compact", {}).get("loss_cost", 0.0),
    }


def store_table(
    session: Session, key: SigningKey, name: str, row: TableRow, streets: str | None = None
) -> TableInfo:
    """Sign a table and keep it as the next version of its name."""
    query = select(func.max(TableRow.version)).where(TableRow.name == name)
    row.name = name
    row.version = (session.scalar(query) or 0) + 1
    signed = {"key_id": key.id, "created": now(), "streets": streets}
    row.info = info = TableInfo.by(key, **dict(row.info) | signed, name=name, version=row.version)
    append(session, key, info.signed)
    session.add(row)
    return info


def table_row(session: Session, ref: TableRef) -> TableRow:
    """A version of a table."""
    row = session.get(TableRow, (ref.name, ref.version))
    return found(row, "such version of this table", "GET /v1/tables lists them")


def all_tables(session: Session) -> list[TableInfo]:
    """What is said about every version of every table."""
    query = select(TableRow.info).order_by(TableRow.name, TableRow.version)
    return list(session.scalars(query))
