"""For whoever runs the server: is it alive, is it ready, what does it do."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from panda_mdp.protocol.messages.service import Health
from panda_mdp.protocol.server.counters import TYPE
from panda_mdp.protocol.server.failures import Failure
from panda_mdp.protocol.server.routes.common import answer, context, fails, gives, require

router = APIRouter()


@router.get("/healthz", responses=gives(Health, 200) | fails())
async def healthz() -> Response:
    """Whether the process answers; nothing else is asked."""
    return answer(Health())


@router.get("/readyz", responses=gives(Health, 200) | fails())
async def readyz(request: Request) -> Response:
    """Whether reports can be stored: the database answers and the writer runs."""
    if not await run_in_threadpool(context(request).ready):
        raise Failure(
            "unavailable", "reports cannot be stored now", "try again", {"retry-after": "2"}
        )
    return answer(Health())


@router.get("/metrics", include_in_schema=False)
async def metrics(request: Request) -> Response:
    """Counters in Prometheus's text format, for a token of role monitor or admin."""
    require(request, "monitor", "admin")
    body = await run_in_threadpool(context(request).metrics.text)
    return Response(body, 200, {"cache-control": "no-store"}, TYPE)
