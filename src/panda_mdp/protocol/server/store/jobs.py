"""Solves, queued in the store.

    queued -> running -> done | failed | cancelled
       ^---------'  the server ended meanwhile: run again after its restart

Every run of a job has a number (`attempt`); a worker that was given up cannot publish, because its
number is no longer the job's.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal

from sqlalchemy import Connection, Row, func, insert, select, update

from panda_mdp.protocol.messages.catalogue import JobInfo, JobRequest, Progress, TableRef
from panda_mdp.protocol.server.failures import Failure
from panda_mdp.protocol.server.store.database import now_ms
from panda_mdp.protocol.server.store.schema import jobs, rounds, when

Lane = Literal["table", "round"]
LANES: tuple[Lane, ...] = ("table", "round")
LONGEST = 1_900


def queue_job(connection: Connection, job_id: str, kind: Lane, request: bytes) -> bool:
    """Queue a job; False where the same one is there already."""
    digest = hashlib.sha256(request).hexdigest()
    before = connection.execute(select(jobs.c.digest).where(jobs.c.id == job_id)).scalar()
    if before is not None:
        if before == digest:
            return False
        raise Failure("conflict", "another job has this id", "make a new id for each job")
    latest = connection.execute(select(func.max(jobs.c.seq))).scalar()
    connection.execute(
        insert(jobs).values(
            id=job_id,
            seq=1 if latest is None else int(latest) + 1,
            kind=kind,
            request=request,
            digest=digest,
            state="queued",
            attempt=0,
            cancel=False,
            created=now_ms(),
        )
    )
    return True


def find_job(connection: Connection, job_id: str) -> Row[Any]:
    """A job of an operator."""
    row = connection.execute(
        select(jobs).where(jobs.c.id == job_id, jobs.c.kind == "table")
    ).first()
    if row is None:
        raise Failure("not_found", "there is no job of this id", "GET /v1/jobs lists them")
    return row


def job_info(row: Row[Any]) -> JobInfo:
    """What is said about a job."""
    request = JobRequest.model_validate_json(row.request)
    return JobInfo(
        id=row.id,
        state=row.state,
        table=None if row.result is None else TableRef.model_validate_json(row.result),
        name=request.table,
        domain=request.domain,
        epsilon=request.epsilon,
        progress=Progress() if row.progress is None else Progress.model_validate_json(row.progress),
        error=row.error,
        created=when(row.created),
    )


def all_jobs(connection: Connection) -> list[JobInfo]:
    """The operator's jobs, the oldest first."""
    rows = connection.execute(select(jobs).where(jobs.c.kind == "table").order_by(jobs.c.seq))
    return [job_info(row) for row in rows]


def cancel_job(connection: Connection, job_id: str) -> None:
    """Cancel a job; one that runs is ended by the supervisor. One that has ended stays as it is."""
    row = find_job(connection, job_id)
    values: dict[str, Any] = {"cancel": True}
    if row.state == "queued":
        values["state"] = "cancelled"
    if row.state in ("queued", "running"):
        connection.execute(update(jobs).where(jobs.c.id == job_id).values(**values))


def end_job(
    connection: Connection,
    job_id: str,
    attempt: int,
    state: str,
    *,
    result: str | None = None,
    error: str | None = None,
) -> bool:
    """Say how a run of a job ended; False where it is no longer this run's to say."""
    changed = connection.execute(
        update(jobs)
        .where(jobs.c.id == job_id, jobs.c.attempt == attempt, jobs.c.state == "running")
        .values(state=state, result=result, error=None if error is None else error[:LONGEST])
    ).rowcount
    return bool(changed)


def close_round(connection: Connection, deployment: int, number: int) -> bool:
    """Take no more uploads and solve; False where the round is not open."""
    changed = connection.execute(
        update(rounds)
        .where(
            rounds.c.deployment == deployment,
            rounds.c.number == number,
            rounds.c.state == "open",
        )
        .values(state="solving")
    ).rowcount
    if changed:
        request = json.dumps({"deployment": deployment, "round": number}).encode()
        queue_job(connection, f"round-{deployment}-{number}", "round", request)
    return bool(changed)


def fail_round(connection: Connection, request: bytes, error: str) -> None:
    """A round that has no table; its users may take part in the next one."""
    wanted = json.loads(request)
    connection.execute(
        update(rounds)
        .where(
            rounds.c.deployment == wanted["deployment"],
            rounds.c.number == wanted["round"],
            rounds.c.state == "solving",
        )
        .values(state="failed", error=error[:LONGEST])
    )
