"""Puts the server together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import JSONResponse, Response
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException

from panda_mdp.errors import PandaError
from panda_mdp.protocol.server.context import Context
from panda_mdp.protocol.server.failures import Failure, invalid
from panda_mdp.protocol.server.gate import INTERNAL, App, Gate, Receive, Scope, Send, failure_of
from panda_mdp.protocol.server.openapi import describe
from panda_mdp.protocol.server.routes import (
    catalogue,
    deployments,
    jobs,
    reports,
    rounds,
    tokens,
)
from panda_mdp.protocol.server.routes.pages import add_pages
from panda_mdp.protocol.server.settings import Settings
from panda_mdp.protocol.server.store.database import Store

_ASKED = ("authorization", "content-type", "if-none-match", "if-range", "range")
_ROUTERS = (
    reports.router,
    catalogue.router,
    tokens.router,
    deployments.router,
    rounds.router,
    jobs.router,
)


class Server:
    """The ASGI application: other origins, the gate, and the routes behind it."""

    def __init__(self, context: Context, api: FastAPI) -> None:
        self.context = context
        self.api = api
        self._door: App = Gate(api, context.book, context.settings)
        if context.settings.cors_origins:
            # Outermost, so that refusals have its headers too.
            self._door = CORSMiddleware(
                self._door,
                allow_origins=list(context.settings.cors_origins),
                allow_methods=["GET", "POST", "PATCH", "DELETE"],
                allow_headers=[
                    "authorization",
                    "content-type",
                    "if-none-match",
                    "if-range",
                    "range",
                ],
                expose_headers=["etag", "content-range", "retry-after"],
            )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection's event loop, as ASGI has it."""
        await self._door(scope, receive, send)


def create_app(store: Store, key: Path, settings: Settings | None = None) -> Server:
    """A server of a store, signing with the key in a file."""
    context = Context(store, key, settings or Settings())

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await context.start()
        try:
            yield
        finally:
            await context.stop()

    api = FastAPI(
        title="panda-mdp",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
    )
    api.state.context = context
    for router in _ROUTERS:
        api.include_router(router)

    @api.get("/v1/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        return JSONResponse(describe(api))

    add_pages(api)
    _add_handlers(api)
    return Server(context, api)


def _add_handlers(api: FastAPI) -> None:
    @api.exception_handler(Failure)
    async def refused(request: Request, failure: Failure) -> Response:
        return _response(failure)

    @api.exception_handler(RequestValidationError)
    async def broken(request: Request, error: RequestValidationError) -> Response:
        return _response(invalid(error.errors()))

    @api.exception_handler(PandaError)
    async def unfit(request: Request, error: PandaError) -> Response:
        # The library's messages name public inputs only: an operator's domain, table or options.
        return _response(Failure("invalid", str(error), "change the request accordingly"))

    @api.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> Response:
        headers = dict(error.headers or {})
        if error.status_code == 405:
            return _response(
                Failure("method_not_allowed", "the path takes other methods", "", headers)
            )
        if error.status_code == 404:
            return _response(
                Failure("not_found", "there is no such path", "see /v1/openapi.json", headers)
            )
        return _response(Failure("invalid", "the request cannot be understood", "", headers))

    @api.exception_handler(SQLAlchemyError)
    async def unavailable(request: Request, error: SQLAlchemyError) -> Response:
        return _response(failure_of(error))

    @api.exception_handler(Exception)
    async def mistaken(request: Request, error: Exception) -> Response:
        # Raised again afterwards, to the gate, which writes it into the log.
        return _response(INTERNAL)


def _response(failure: Failure) -> Response:
    headers = {"cache-control": "no-store", **failure.headers}
    return Response(failure.body, failure.status, headers, "application/json")
