"""Solves that the server does: asked for, watched and cancelled by operators."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request
from fastapi.responses import Response
from pydantic import TypeAdapter
from starlette.concurrency import run_in_threadpool

from panda_mdp.protocol.messages.catalogue import JobInfo, JobList, JobRequest
from panda_mdp.protocol.server.bodies import read_message
from panda_mdp.protocol.server.routes.common import (
    accepts,
    answer,
    context,
    fails,
    gives,
    require,
)
from panda_mdp.protocol.server.store.actions import record_action
from panda_mdp.protocol.server.store.catalogue import domain_row
from panda_mdp.protocol.server.store.jobs import all_jobs, cancel_job, find_job, job_info, queue_job

router = APIRouter()
_REQUEST = TypeAdapter(JobRequest)
JobPath = Annotated[
    str,
    Path(pattern=r"^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"),
]


@router.post(
    "/v1/jobs",
    openapi_extra=accepts("JobRequest", _REQUEST),
    responses=gives(JobInfo, 200, 202) | fails(401, 403, 404, 409, 413),
    status_code=202,
)
async def post_job(request: Request) -> Response:
    """Solve a table for a domain, in a process of its own, and publish it under a name."""
    token = require(request, "admin")
    here = context(request)
    wanted = await read_message(request, here, _REQUEST, here.settings.document_bytes)

    def store() -> tuple[JobInfo, bool]:
        with here.store.write() as connection:
            domain_row(connection, wanted.domain)
            new = queue_job(connection, wanted.id, "table", wanted.model_dump_json().encode())
            if new:
                record_action(connection, token.id, "solve table", wanted.table, wanted.id)
            return job_info(find_job(connection, wanted.id)), new

    info, new = await run_in_threadpool(store)
    here.supervisor.wake()
    return answer(info, 202 if new else 200)


@router.get("/v1/jobs", responses=gives(JobList, 200) | fails(401, 403))
def get_jobs(request: Request) -> Response:
    """All jobs."""
    require(request, "admin")
    with context(request).store.read() as connection:
        return answer(JobList(jobs=all_jobs(connection)))


@router.get("/v1/jobs/{job_id}", responses=gives(JobInfo, 200) | fails(401, 403, 404))
def get_job(request: Request, job_id: JobPath) -> Response:
    """How a job stands: its loss, its bound and the gap between them."""
    require(request, "admin")
    with context(request).store.read() as connection:
        return answer(job_info(find_job(connection, job_id)))


@router.post("/v1/jobs/{job_id}/cancel", responses=gives(JobInfo, 200) | fails(401, 403, 404, 413))
def post_cancel(request: Request, job_id: JobPath) -> Response:
    """Cancel a job. One that has ended stays as it is."""
    token = require(request, "admin")
    here = context(request)
    with here.store.write() as connection:
        cancel_job(connection, job_id)
        record_action(connection, token.id, "cancel job", job_id)
        info = job_info(find_job(connection, job_id))
    here.supervisor.wake()
    return answer(info)
