"""Puts the server together."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException
from starlette.routing import Mount, Route, Router

from panda_mdp.errors import PandaError
from panda_mdp.protocol.messages.keys import KeySheet
from panda_mdp.protocol.server.context import Context
from panda_mdp.protocol.server.express import Express
from panda_mdp.protocol.server.failures import Failure, invalid
from panda_mdp.protocol.server.gate import INTERNAL, App, Gate, Receive, Scope, Send, failure_of
from panda_mdp.protocol.server.openapi import describe
from panda_mdp.protocol.server.routes import (
    catalogue,
    deployments,
    jobs,
    log,
    reports,
    rounds,
    tokens,
    watch,
)
from panda_mdp.protocol.server.routes.common import NAME_PATTERN
from panda_mdp.protocol.server.routes.pages import add_pages
from panda_mdp.protocol.server.settings import Settings
from panda_mdp.protocol.server.store.database import Store

NAME = re.compile(NAME_PATTERN)
_ASKED = ("authorization", "content-type", "if-none-match", "if-range", "range")
Handler = Callable[[Request, Any], Coroutine[Any, Any, Response]]
_ROUTERS = (
    reports.router,
    catalogue.router,
    tokens.router,
    deployments.router,
    rounds.router,
    jobs.router,
    log.router,
    watch.router,
)


class Server:
    """The ASGI application: other origins, the gate, and the routes behind it."""

    def __init__(self, context: Context, app: App) -> None:
        self.context = context
        gate = Gate(app, context.book, context.settings, context.metrics)
        self.express = Express(context, gate)
        self._door: App = gate
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


def create_app(
    store: Store, key: Path, settings: Settings | None = None, sheet: KeySheet | None = None
) -> Server:
    """A server of a store, signing with the key in a file, which a sheet certifies."""
    context = Context(store, key, settings or Settings(), sheet)

    @asynccontextmanager
    async def lifespan(app: Router) -> AsyncIterator[None]:
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
        redirect_slashes=False,
        exception_handlers=_HANDLERS,
    )
    for router in _ROUTERS:
        api.include_router(router)

    @api.get("/v1/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        return JSONResponse(describe(api))

    add_pages(api)
    api.state.context = context
    # Most requests are reports: the API's router describes their route, and a plain one of the same
    # function serves it, in a third of the time. What it raises is the gate's to answer.
    reporting = Route(reports.PATH, _Reporting(api), methods=["POST"])
    # A path with a line break matches no route, not even the one of everything.
    return Server(context, Router([reporting, Mount("", api)], default=api, lifespan=lifespan))


class _Reporting:
    """The route of reports without the framework's wrappers."""

    def __init__(self, api: FastAPI) -> None:
        self._api = api
        self._template = next(r for r in reports.router.routes if isinstance(r, APIRoute))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = scope["path_params"]["name"]
        scope["app"], scope["route"] = self._api, self._template
        if not NAME.fullmatch(name):
            raise Failure("invalid", "path.name: it is not a name", "see /v1/openapi.json")
        response = await reports.post_report(Request(scope, receive), name)
        await response(scope, receive, send)


async def _refused(request: Request, failure: Exception) -> Response:
    return _response(request, failure if isinstance(failure, Failure) else INTERNAL)


async def _broken(request: Request, error: Exception) -> Response:
    errors = error.errors() if isinstance(error, RequestValidationError) else []
    return _response(request, invalid(errors))


async def _unfit(request: Request, error: Exception) -> Response:
    # The library's messages name public inputs only: an operator's domain, table or options.
    return _response(request, Failure("invalid", str(error), "change the request accordingly"))


async def _unknown(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 400
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    if status == 405:
        return _response(
            request, Failure("method_not_allowed", "the path takes other methods", "", headers)
        )
    if status == 404:
        return _response(
            request, Failure("not_found", "there is no such path", "see /v1/openapi.json", headers)
        )
    return _response(request, Failure("invalid", "the request cannot be understood", "", headers))


async def _unavailable(request: Request, error: Exception) -> Response:
    return _response(request, failure_of(error))


async def _mistaken(request: Request, error: Exception) -> Response:
    # Raised again afterwards, to the gate, which writes it into the log.
    return _response(request, INTERNAL)


_HANDLERS: dict[int | type[Exception], Handler] = {
    Failure: _refused,
    RequestValidationError: _broken,
    PandaError: _unfit,
    HTTPException: _unknown,
    SQLAlchemyError: _unavailable,
    Exception: _mistaken,
}


def _response(request: Request, failure: Failure) -> Response:
    request.scope["state"]["code"] = failure.code
    headers = {"cache-control": "no-store", **failure.headers}
    return Response(failure.body, failure.status, headers, "application/json")
