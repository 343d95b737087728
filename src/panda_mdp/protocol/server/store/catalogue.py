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
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from panda_mdp.errors import FileFormatError
from panda_mdp.panda.file import decode
from panda_mdp.panda.panda_table import PandaTable
from panda_mdp.problem import Problem
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
from panda_mdp.protocol.messages.signing import SigningKey, signed_bytes
from panda_mdp.protocol.server.failures import LONGEST, Failure
from panda_mdp.protocol.server.store.database import found
from panda_mdp.protocol.server.store.log import append
from panda_mdp.protocol.server.store.schema import DomainRow, JobRow, TableRow, now
from panda_mdp.space.domain import Domain
from panda_mdp.table.decode import look, restore_domain
from panda_mdp.table.encode import encode
from panda_mdp.table.everywhere import EverywhereMechanism
from panda_mdp.table.mechanism import Mechanism, Release
from panda_mdp.table.thin import compact

MICRODEGREES = 1e6
_NAMES = TypeAdapter(list[PlaceName])
Arrays = dict[str, npt.NDArray[Any]]
TableKind = Literal["plain", "everywhere", "panda"]
Lane = Literal["table", "round"]
LANES: tuple[Lane, ...] = ("table", "round")


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
class CheckedDomain:
    """A domain that is one, ready to be stored."""

    name: str
    kind: str
    unit: str
    records: int
    fingerprint: str
    arrays: bytes
    streets: bool
    street_arrays: bytes | None


def check_domain(request: DomainRequest) -> CheckedDomain:
    """Build the domain of a request, triangle inequality included. Runs in a worker process."""
    domain = request.domain()
    return CheckedDomain(
        name=request.name,
        kind=domain.metric.kind,
        unit=domain.unit,
        records=domain.size,
        fingerprint=domain.fingerprint,
        arrays=pack(domain.metric.arrays()),
        streets=request.streets is not None,
        street_arrays=None if request.streets is None else _streets(request.streets),
    )


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


def store_domain(session: Session, domain: CheckedDomain) -> tuple[DomainRow, bool]:
    """Keep a domain; and whether it is new. A name stands for the same records for ever."""
    before = session.scalar(select(DomainRow).filter_by(name=domain.name))
    if before is not None:
        if (before.fingerprint, before.street_arrays) == (domain.fingerprint, domain.street_arrays):
            return before, False
        msg = "another domain has this name; domains do not change"
        raise Failure("conflict", msg, "choose another name")
    row = DomainRow(id=secrets.token_hex(8), **asdict(domain))
    session.add(row)
    session.flush()
    return row, True


def domain_row(session: Session, domain_id: str) -> DomainRow:
    """A stored domain by its id or its name."""
    query = select(DomainRow).where((DomainRow.id == domain_id) | (DomainRow.name == domain_id))
    return found(session.scalar(query), "domain of this id", "GET /v1/domains lists them")


DomainParts = tuple[dict[str, str], bytes]


def domain_parts(row: DomainRow) -> DomainParts:
    """What another process makes a stored domain of."""
    claims = {"kind": row.kind, "unit": row.unit, "fingerprint": row.fingerprint}
    return claims, row.arrays


def domain_of(parts: DomainParts) -> Domain:
    """A stored domain; its matrix was checked when it came."""
    claims, arrays = parts
    return restore_domain(claims["kind"], claims["unit"], unpack(arrays))


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


@dataclass(frozen=True)
class Candidate:
    """A table that passed its audit and is ready to be stored and signed."""

    facts: dict[str, Any]
    kind: TableKind
    metric: str
    outputs: list[int]
    promise: dict[str, Any]
    """What a deployment of the table guarantees, and how a table of PAnDA selects."""
    data: bytes


def examine(data: bytes) -> Candidate:
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


def compacted(table: Mechanism) -> Candidate:
    """The compact form of a table, ready to be stored; clients need no losses."""
    short = compact(table)
    return _plain(short, encode(short, losses=False))


def _plain(table: Mechanism, data: bytes) -> Candidate:
    price = table.details.get("compact", {}).get("loss_cost", 0.0)
    facts = {"audited_epsilon": table.audit.epsilon, "loss_cost": price, **_losses(table)}
    return _candidate(table, facts, "plain", data)


def _losses(table: Mechanism) -> dict[str, Any]:
    """Loss and bound: computed, or as stated in a file that left the losses out."""
    details = table.details
    if "stated_loss" not in details:
        bound, gap = table.lower_bound, table.gap
        return {"loss": table.loss, "lower_bound": _finite(bound), "gap": _finite(gap)}
    loss, bound = details["stated_loss"], details["stated_bound"]
    if loss is None:
        msg = "the file holds neither losses nor their mean; publish one that was saved with losses"
        raise FileFormatError(msg)
    gap = None if bound is None or bound <= 0 else max(0.0, loss / bound - 1)
    return {"loss": loss, "lower_bound": bound, "gap": gap}


def _candidate(
    table: Release,
    facts: Mapping[str, Any],
    kind: TableKind,
    data: bytes,
    told: Mapping[str, Any] | None = None,
) -> Candidate:
    """What is said about a table that was audited, and what its deployments promise."""
    problem, promised = table.problem, table.guarantee
    domain = problem.domain
    every = {
        "domain": domain.fingerprint,
        "unit": domain.unit,
        "records": domain.size,
        "epsilon": problem.epsilon,
        "audited_epsilon": problem.epsilon,
        "loss_cost": 0.0,
        **facts,
    }
    promise = {"guarantee": asdict(promised), **(told or {})}
    return Candidate(every, kind, domain.metric.kind, _outputs(problem), promise, data)


def _outputs(problem: Problem) -> list[int]:
    if problem.reports.kind != "records":
        msg = f"outputs are {problem.reports.kind}; reports of this service are records"
        raise FileFormatError(msg)
    return [int(output) for output in problem.outputs]


def _finite(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def store_table(
    session: Session,
    key: SigningKey,
    name: str,
    candidate: Candidate,
    streets: str | None = None,
) -> TableInfo:
    """Sign a table and keep it as the next version of its name."""
    query = select(func.max(TableRow.version)).where(TableRow.name == name)
    version = (session.scalar(query) or 0) + 1
    facts, data = candidate.facts, candidate.data
    digest = hashlib.sha256(data).hexdigest()
    signed = signed_bytes(
        "table", name, version, digest, len(data), facts["domain"], facts["epsilon"]
    )
    append(session, key, signed)
    info = TableInfo(
        name=name,
        version=version,
        outputs=len(candidate.outputs),
        size_bytes=len(data),
        sha256=digest,
        signature=key.sign(signed),
        key_id=key.id,
        created=now(),
        streets=streets,
        **facts,
    )
    row = TableRow(
        name=name,
        version=version,
        info=info,
        kind=candidate.kind,
        metric=candidate.metric,
        outputs=candidate.outputs,
        promise=candidate.promise,
        file=data,
    )
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
    row = session.get(JobRow, job_id)
    asked = row is not None and row.kind == "table"
    return found(row if asked else None, "job of this id", "GET /v1/jobs lists them")


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
    if row.state in ("queued", "running"):
        row.cancel = True
    if row.state == "queued":
        row.state = "cancelled"
    return row


def running_job(session: Session, job_id: str, attempt: int) -> JobRow | None:
    """A job that is in the run of this number; None where it is no longer."""
    row = session.get_one(JobRow, job_id)
    return row if (row.state, row.attempt) == ("running", attempt) else None


def end_job(
    session: Session,
    job_id: str,
    attempt: int,
    state: JobState,
    *,
    result: TableRef | None = None,
    error: str | None = None,
) -> JobRow | None:
    """Say how a run of a job ended; None where it is no longer this run's to say."""
    row = running_job(session, job_id, attempt)
    if row is not None:
        row.state, row.result = state, result
        row.error = None if error is None else error[:LONGEST]
    return row
