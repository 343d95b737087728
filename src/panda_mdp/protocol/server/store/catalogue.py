"""Domains, tables and the jobs that solve tables: checked, audited, signed, never changed again.

A job is queued in the store and run by one server of the database at a time:

    queued -> running -> done | failed | cancelled
       ^---------'  the server ended meanwhile: run again after its restart

Every run of a job has a number (`attempt`); a worker that was given up cannot publish, because its
number is no longer the job's.
"""

from __future__ import annotations

import hashlib
import io
import math
import secrets
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from panda_mdp.errors import FileFormatError
from panda_mdp.panda.file import decode
from panda_mdp.panda.panda_table import PandaTable
from panda_mdp.protocol.messages.catalogue import (
    DomainDetail,
    DomainInfo,
    DomainRequest,
    JobInfo,
    JobRequest,
    JobState,
    PlaceName,
    Streets,
    StreetsUpload,
    TableInfo,
    TableRef,
)
from panda_mdp.protocol.messages.signing import SigningKey
from panda_mdp.protocol.server.failures import LONGEST, Failure
from panda_mdp.protocol.server.store.database import found
from panda_mdp.protocol.server.store.log import append
from panda_mdp.protocol.server.store.schema import DomainRow, JobRow, RoundRow, TableRow, now
from panda_mdp.space.domain import Domain
from panda_mdp.table.decode import look, restore_domain
from panda_mdp.table.encode import encode
from panda_mdp.table.everywhere import EverywhereMechanism
from panda_mdp.table.mechanism import Mechanism, Release
from panda_mdp.table.thin import compact

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


def check_domain(request: DomainRequest) -> DomainRow:
    """The domain of a request, triangle inequality included, ready to be stored. Runs in a worker
    process."""
    domain, streets = request.domain(), request.streets
    return DomainRow(
        id=secrets.token_hex(8),
        name=request.name,
        kind=domain.metric.kind,
        unit=domain.unit,
        records=domain.size,
        fingerprint=domain.fingerprint,
        arrays=pack(domain.metric.arrays()),
        streets=streets is not None,
        street_arrays=None if streets is None else _pack_streets(streets),
    )


def _pack_streets(given: StreetsUpload) -> bytes:
    """Degrees as integers over 1e6, names as their JSON."""
    arrays = {end: np.array(getattr(given, end), dtype=np.int64) for end in ("u", "v")}
    for axis in ("lat", "lon"):
        arrays[axis] = np.rint(1e6 * np.array(getattr(given, axis))).astype(np.int64)
    names = np.frombuffer(_NAMES.dump_json(given.names), dtype=np.uint8)
    return pack({**arrays, "names": names})


def store_domain(session: Session, domain: DomainRow) -> tuple[DomainRow, bool]:
    """Keep a domain; and whether it is new. A name stands for the same records for ever."""
    before = session.scalar(select(DomainRow).filter_by(name=domain.name))
    if before is None:
        session.add(domain)
        session.flush()
        return domain, True
    if (before.fingerprint, before.street_arrays) != (domain.fingerprint, domain.street_arrays):
        msg = "another domain has this name; domains do not change"
        raise Failure("conflict", msg, "choose another name")
    return before, False


def domain_row(session: Session, domain_id: str) -> DomainRow:
    """A stored domain by its id or its name."""
    query = select(DomainRow).where((DomainRow.id == domain_id) | (DomainRow.name == domain_id))
    return found(session.scalar(query), "domain of this id", "GET /v1/domains lists them")


DomainParts = tuple[str, str, bytes]
"""Metric, unit and arrays: what another process makes a stored domain of."""


def domain_parts(session: Session, domain_id: str) -> DomainParts:
    """The parts of a stored domain."""
    row = domain_row(session, domain_id)
    return row.kind, row.unit, row.arrays


def domain_of(parts: DomainParts) -> Domain:
    """A stored domain; its matrix was checked when it came."""
    kind, unit, arrays = parts
    return restore_domain(kind, unit, unpack(arrays))


def domain_info(row: DomainRow) -> DomainInfo:
    """What the list says about a domain."""
    return DomainInfo.model_validate(row, from_attributes=True)


def domain_detail(row: DomainRow) -> DomainDetail:
    """All of a domain."""
    arrays = {name: values.tolist() for name, values in unpack(row.arrays).items()}
    return DomainDetail(**dict(domain_info(row)), **arrays)


def streets_of(row: DomainRow) -> Streets:
    """The streets of a domain, for drawing."""
    if row.street_arrays is None:
        raise Failure("not_found", "this domain has no streets", "draw its records alone")
    arrays = unpack(row.street_arrays)
    names = _NAMES.validate_json(arrays.pop("names").tobytes())
    return Streets(names=names, **{name: values.tolist() for name, values in arrays.items()})


# Tables


def examine(data: bytes) -> TableRow:
    """Read a published file, audit it over all pairs, and give it its compact form.

    Runs in a worker process. Raises `FileFormatError` where the file is none or breaks its claim.
    """
    table = decode(data)
    if isinstance(table, PandaTable):
        selection = look(data).header["selection"]["kind"]
        told = {"selection": selection, "selection_epsilon": table.selection_epsilon}
        return _candidate(table, {"loss": table.loss}, "panda", data, told)
    if isinstance(table, EverywhereMechanism):
        # Rounded it would be private between its vertices alone.
        facts = {"audited_epsilon": table.everywhere.epsilon, **_losses(table)}
        return _candidate(table, facts, "everywhere", data)
    if "blocks" not in look(data).header["shapes"]:
        return compacted(table)
    return _plain(table, data)


def compacted(table: Mechanism) -> TableRow:
    """The compact form of a table, ready to be stored; clients need no losses."""
    short = compact(table)
    return _plain(short, encode(short, losses=False))


def _plain(table: Mechanism, data: bytes) -> TableRow:
    price = table.details.get("compact", {}).get("loss_cost", 0.0)
    facts = {"audited_epsilon": table.audit.epsilon, "loss_cost": price, **_losses(table)}
    return _candidate(table, facts, "plain", data)


def _losses(table: Mechanism) -> dict[str, Any]:
    """Loss and bound: computed, or as stated in a file that left the losses out."""
    loss, bound = table.loss, table.lower_bound
    if "stated_loss" in table.details:
        loss, bound = table.details["stated_loss"], table.details["stated_bound"]
    if loss is None:
        raise FileFormatError(
            "the file holds neither losses nor their mean; publish one that was saved with losses"
        )
    if bound is None or not math.isfinite(bound):
        return {"loss": loss, "lower_bound": None, "gap": None}
    gap = max(0.0, loss / bound - 1) if bound > 0 else None
    return {"loss": loss, "lower_bound": bound, "gap": gap}


def _candidate(
    table: Release,
    facts: dict[str, Any],
    kind: str,
    data: bytes,
    told: Mapping[str, Any] | None = None,
) -> TableRow:
    """A table that was audited, with what is said about it and what its deployments promise."""
    problem, domain = table.problem, table.problem.domain
    if problem.reports.kind != "records":
        raise FileFormatError(
            f"outputs are {problem.reports.kind}; reports of this service are records"
        )
    every: dict[str, Any] = {
        "domain": domain.fingerprint,
        "unit": domain.unit,
        "records": domain.size,
        "outputs": len(problem.outputs),
        "epsilon": problem.epsilon,
        "audited_epsilon": problem.epsilon,
        "loss_cost": 0.0,
        "size_bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }
    return TableRow(
        info=TableInfo.model_construct(**every | facts),
        kind=kind,
        metric=domain.metric.kind,
        outputs=problem.outputs.tolist(),
        promise={"guarantee": asdict(table.guarantee), **(told or {})},
        file=data,
    )


def store_table(
    session: Session, key: SigningKey, name: str, row: TableRow, streets: str | None = None
) -> TableInfo:
    """Sign a table and keep it as the next version of its name."""
    query = select(func.max(TableRow.version)).where(TableRow.name == name)
    row.name, row.version = name, (session.scalar(query) or 0) + 1
    named = {"name": name, "version": row.version, "streets": streets}
    facts = dict(row.info) | named | {"key_id": key.id, "created": now()}
    row.info = info = TableInfo.by(key, **facts)
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


# Jobs


def queue_job(session: Session, job: JobRow) -> bool:
    """Queue a job; False where the same one is there already."""
    before = session.get(JobRow, job.id)
    if before is not None:
        if before.request == job.request:
            return False
        raise Failure("conflict", "another job has this id", "make a new id for each job")
    job.seq = (session.scalar(select(func.max(JobRow.seq))) or 0) + 1
    session.add(job)
    session.flush()
    return True


def find_job(session: Session, job_id: str) -> JobRow:
    """A job of an operator."""
    row = session.scalar(select(JobRow).filter_by(id=job_id, kind="table"))
    return found(row, "job of this id", "GET /v1/jobs lists them")


def job_info(row: JobRow) -> JobInfo:
    """What is said about a job."""
    request: JobRequest = found(row.request, "request of this job", "it solves a round")
    return JobInfo(
        id=row.id,
        state=row.state,
        table=row.result,
        name=request.table,
        domain=request.domain,
        epsilon=request.epsilon,
        progress=row.progress,
        error=row.error,
        created=row.created,
    )


def all_jobs(session: Session) -> list[JobInfo]:
    """The operator's jobs, the oldest first."""
    rows = session.scalars(select(JobRow).filter_by(kind="table").order_by(JobRow.seq))
    return [job_info(row) for row in rows]


def cancel_job(session: Session, job_id: str) -> JobRow:
    """Cancel a job; one that runs is ended by the supervisor. One that has ended stays as it is."""
    row = find_job(session, job_id)
    row.cancel = row.cancel or row.state in ("queued", "running")
    if row.state == "queued":
        row.state = "cancelled"
    return row


def running_job(session: Session, job_id: str, attempt: int) -> JobRow | None:
    """A job that is in the run of this number; None where it is no longer."""
    row = session.get_one(JobRow, job_id)
    return row if (row.state, row.attempt) == ("running", attempt) else None


class GivenUpError(Exception):
    """The job is no longer this run's."""


def end_job(
    session: Session,
    job_id: str,
    attempt: int,
    state: JobState,
    *,
    result: TableRef | None = None,
    error: str = "",
) -> None:
    """Say how a run of a job ended, and of which round a table is missing then; raises
    `GivenUpError` where it is no longer this run's to say."""
    row = running_job(session, job_id, attempt)
    if row is None:
        raise GivenUpError
    row.state, row.result, row.error = state, result, error[:LONGEST] or None
    if error and row.kind == "round":
        failed = session.get_one(RoundRow, (row.deployment, row.round))
        failed.state, failed.error = "failed", row.error
