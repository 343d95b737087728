"""For operators: tokens, what was done; and for whoever watches the server."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import Response
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from sqlalchemy import select

from panda_mdp.protocol.messages.service import (
    ActionInfo,
    ActionList,
    EnrolRequest,
    Health,
    RemovalDone,
    RemovalRequest,
    TokenList,
    TokenMade,
    TokenRequest,
    TokensMade,
)
from panda_mdp.protocol.messages.types import Count, TokenId
from panda_mdp.protocol.server.failures import unavailable
from panda_mdp.protocol.server.gate import ENROL, Metrics
from panda_mdp.protocol.server.routes import (
    Admin,
    Auditor,
    Limit,
    Monitor,
    Reading,
    Reporter,
    Routes,
    Shared,
    answer,
)
from panda_mdp.protocol.server.store.reports import remove, remove_reports
from panda_mdp.protocol.server.store.schema import ActionRow, ReportRow

router = Routes()

# Tokens


@router.serves("POST", "/v1/tokens", TokensMade, 201)
def post_tokens(context: Shared, operator: Admin, message: TokenRequest) -> TokensMade:
    """Make tokens. This answer is the only place where their secrets appear."""
    made = context.book.make(
        message.role, message.label, message.expires_in_s, message.count, by=operator.id
    )
    return TokensMade(tokens=made)


@router.serves("POST", ENROL, TokenMade, 201)
def post_enrol(context: Shared, message: EnrolRequest) -> TokenMade:
    """Exchange an invitation for a reporter's token, without one. It is shown this once."""
    return context.book.make("reporter", code=message.code)[0]


@router.serves("GET", "/v1/tokens", TokenList)
def get_tokens(
    context: Shared,
    operator: Admin,
    after: Annotated[str, Query(pattern=r"^[0-9a-f]{0,12}$")] = "",
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1_000,
) -> TokenList:
    """Tokens that are not revoked, without secrets, by their ids; `after` pages on."""
    return TokenList(tokens=context.book.list(after, limit), total=context.book.count())


@router.serves("DELETE", "/v1/tokens/{token_id}", {204: {"description": "Revoked."}})
def delete_token(context: Shared, operator: Admin, token_id: TokenId) -> Response:
    """Revoke a token at once. Its reports stay."""
    context.book.revoke(token_id, operator.id)
    return Response(status_code=204)


@router.serves("POST", "/v1/removals", RemovalDone)
def post_removal(context: Shared, operator: Admin, message: RemovalRequest) -> RemovalDone:
    """Erase the reports of a token, a batch or a receipt, set them aside, or take them back."""
    with context.store.everything() as session:
        done = remove(session, context.key, message, operator.id)
    context.book.refresh()
    return done


@router.serves("DELETE", "/v1/reports", RemovalDone)
def delete_reports(context: Shared, reporter: Reporter) -> RemovalDone:
    """Erase everything that this token has reported. Its quota stays spent."""
    with context.store.everything() as session:
        mine = ReportRow.token == reporter.id
        touched = remove_reports(session, context.key, mine, "erase")
    return RemovalDone(reports=touched, tokens=0)


@router.serves("GET", "/v1/actions", ActionList)
def get_actions(
    session: Reading,
    auditor: Auditor,
    before: Count = 2**53 - 1,
    limit: Limit = 100,
) -> ActionList:
    """What operators did, the latest first; `before` pages on."""
    acts = select(ActionRow).where(ActionRow.seq < before).order_by(ActionRow.seq.desc())
    rows = session.scalars(acts.limit(limit))
    return ActionList(actions=[ActionInfo.model_validate(r) for r in rows])


# Is it alive, is it ready, what does it do


@router.serves("GET", "/healthz", Health)
async def healthz() -> Response:
    """Whether the process answers; nothing else is asked."""
    return answer(Health())


@router.serves("GET", "/readyz", Health)
def readyz(context: Shared) -> Health:
    """Whether reports can be stored: the database reads and writes, and the writer runs."""
    if not context.ready():
        raise unavailable("reports cannot be stored now", seconds=2)
    return Health()


@router.get("/metrics", include_in_schema=False)
def metrics(request: Request, monitor: Monitor) -> Response:
    """Counters in Prometheus's text format, for a token of role monitor or admin."""
    counters: Metrics = request.app.state.metrics
    return Response(counters.text(), 200, {"cache-control": "no-store"}, CONTENT_TYPE_LATEST)
