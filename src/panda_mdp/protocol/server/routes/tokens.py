"""Tokens, made and revoked by operators, and what operators did."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response
from pydantic import TypeAdapter
from starlette.concurrency import run_in_threadpool

from panda_mdp.protocol.messages.service import (
    ActionList,
    EnrolRequest,
    TokenList,
    TokenMade,
    TokenRequest,
    TokensMade,
)
from panda_mdp.protocol.server.bodies import read_message
from panda_mdp.protocol.server.gate import ENROL
from panda_mdp.protocol.server.routes.common import (
    accepts,
    answer,
    context,
    fails,
    gives,
    require,
)
from panda_mdp.protocol.server.store.actions import latest_actions

router = APIRouter()
_REQUEST = TypeAdapter(TokenRequest)
_ENROL = TypeAdapter(EnrolRequest)


@router.post(
    "/v1/tokens",
    openapi_extra=accepts("TokenRequest", _REQUEST),
    responses=gives(TokensMade, 201) | fails(401, 403, 413),
    status_code=201,
)
async def post_tokens(request: Request) -> Response:
    """Make tokens. This answer is the only place where their secrets appear."""
    token = require(request, "admin")
    here = context(request)
    wanted = await read_message(request, here, _REQUEST)
    made = await run_in_threadpool(
        here.book.make, wanted.role, wanted.label, wanted.expires_in_s, wanted.count, token.id
    )
    return answer(TokensMade(tokens=made), 201)


@router.post(
    ENROL,
    openapi_extra=accepts("EnrolRequest", _ENROL),
    responses=gives(TokenMade, 201) | fails(403, 413),
    status_code=201,
)
async def post_enrol(request: Request) -> Response:
    """Exchange an invitation for a reporter's token, without one. It is shown this once."""
    here = context(request)
    wanted = await read_message(request, here, _ENROL)
    made = await run_in_threadpool(here.book.make, "reporter", code=wanted.code)
    return answer(made[0], 201)


@router.get("/v1/tokens", responses=gives(TokenList, 200) | fails(401, 403))
def get_tokens(
    request: Request,
    after: Annotated[str, Query(pattern=r"^[0-9a-f]{0,12}$")] = "",
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1_000,
) -> Response:
    """Tokens that are not revoked, without secrets, by their ids; `after` pages on."""
    require(request, "admin")
    book = context(request).book
    return answer(TokenList(tokens=book.list(after, limit), total=book.count()))


@router.delete(
    "/v1/tokens/{token_id}",
    responses=fails(401, 403, 404) | {204: {"description": "Revoked."}},
    status_code=204,
    response_class=Response,
)
def delete_token(
    request: Request, token_id: Annotated[str, Path(pattern=r"^[0-9a-f]{12}$")]
) -> Response:
    """Revoke a token at once. Its reports stay."""
    token = require(request, "admin")
    context(request).book.revoke(token_id, token.id)
    return Response(status_code=204)


@router.get("/v1/actions", responses=gives(ActionList, 200) | fails(401, 403))
def get_actions(
    request: Request,
    before: Annotated[int | None, Query(ge=1, lt=2**53)] = None,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
) -> Response:
    """What operators did, the latest first; `before` pages on."""
    require(request, "admin")
    with context(request).store.read() as connection:
        return answer(ActionList(actions=latest_actions(connection, before, limit)))
