"""Puts the server together: routes, pages, the description of the API, and what surrounds them."""

from __future__ import annotations

import mimetypes
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.openapi.utils import get_openapi
from fastapi.responses import FileResponse, JSONResponse, Response
from pydantic import TypeAdapter
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException

from panda_mdp.errors import PandaError
from panda_mdp.protocol.messages.signing import KeySheet
from panda_mdp.protocol.server.context import Context, Settings
from panda_mdp.protocol.server.failures import Failure, invalid
from panda_mdp.protocol.server.gate import App, Gate, Metrics, Receive, Scope, Send, failure_of
from panda_mdp.protocol.server.routes import (
    MESSAGES,
    Shared,
    catalogue,
    deployments,
    operators,
    reports,
    rounds,
)
from panda_mdp.protocol.server.store.database import Store
from panda_mdp.version import __version__

_DESCRIPTION = (
    "Metric differential privacy as a service. A person's record never leaves the person's device: "
    "no message here has a field for one. Reading domains, tables and deployments needs no token."
)


class Server:
    """The ASGI application: other origins, the gate, and the routes behind it."""

    def __init__(self, context: Context, app: FastAPI) -> None:
        self.context = context
        app.state.context = context
        app.state.metrics = metrics = Metrics(context.writer, context.ready)
        settings = context.settings
        self._door: App = Gate(app, context.book, settings, metrics)
        if settings.cors_origins:
            # Outermost, so that refusals have its headers too.
            self._door = CORSMiddleware(
                self._door,
                allow_origins=list(settings.cors_origins),
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
        redirect_slashes=False,
        exception_handlers=dict.fromkeys(_EXPECTED, _refused),
        lifespan=lifespan,
    )
    for module in (reports, catalogue, deployments, rounds, operators):
        api.include_router(module.router)
    api.include_router(_pages)
    return Server(context, api)


# Refusals


_EXPECTED = (
    Failure,
    RequestValidationError,
    PandaError,
    HTTPException,
    SQLAlchemyError,
)
"""Whatever else is raised reaches the gate, which writes it into the log."""


async def _refused(request: Request, error: Exception) -> Response:
    failure = _failure(error)
    request.scope["state"]["code"] = failure.code
    return Response(failure.body, failure.status, failure.headers, "application/json")


def _failure(error: Exception) -> Failure:
    if isinstance(error, RequestValidationError):
        return invalid(error.errors())
    if isinstance(error, PandaError):
        # The library's messages name public inputs only: an operator's domain, table or options.
        return Failure("invalid", str(error), "change the request accordingly")
    if isinstance(error, HTTPException):
        headers = dict(error.headers or {})
        if error.status_code == 405:
            return Failure("method_not_allowed", "the path takes other methods", "", headers)
        if error.status_code == 404:
            return Failure("not_found", "there is no such path", "see /v1/openapi.json", headers)
        return Failure("invalid", "the request cannot be understood", "", headers)
    return failure_of(error)


# Pages: the browser client and the operator's, as they were built, under a strict policy


_pages = APIRouter(include_in_schema=False)
POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; worker-src 'self'; manifest-src 'self'; object-src 'none'; "
    "base-uri 'none'; frame-ancestors 'none'; form-action 'none'"
)
_HEADERS = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(self), microphone=(), payment=(), usb=()",
}
_HASHED = "public, max-age=31536000, immutable"
_TYPES = {".js": "text/javascript", ".webmanifest": "application/manifest+json"}
_TOP = {"": "index.html", "operator": "operator.html"}


@_pages.get("/v1/openapi.json")
async def openapi(request: Request) -> Response:
    """The description of the API."""
    return JSONResponse(_describe(request.app))


@_pages.get("/assets/{path:path}")
async def asset(context: Shared, path: str) -> Response:
    """A part of a page."""
    return _file(context.settings.static, f"assets/{path}", _HASHED)


@_pages.get("/")
@_pages.get("/{name}")
async def page(context: Shared, name: str = "") -> Response:
    """The pages, and files that must lie at the top, such as a service worker and an icon."""
    return _file(context.settings.static, _TOP.get(name, name), "no-cache")


def _file(folder: Path, name: str, cache: str) -> Response:
    root = folder.resolve()
    try:
        target = (root / name).resolve()
        exists = target.is_relative_to(root) and target.is_file()
    except (OSError, ValueError):
        # Longer than a file's name can be, or no name at all.
        exists = False
    if not exists:
        raise Failure("not_found", "there is no such page", "/v1/openapi.json describes the API")
    kind = _TYPES.get(target.suffix) or mimetypes.guess_type(target.name)[0]
    headers = _HEADERS | {"cache-control": cache}
    return FileResponse(target, headers=headers, media_type=kind or "application/octet-stream")


def _describe(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, made once: FastAPI's, with the bodies that routes read themselves."""
    if app.openapi_schema:
        return app.openapi_schema
    document = get_openapi(
        title="panda-mdp", version=__version__, description=_DESCRIPTION, routes=app.routes
    )
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    named: list[tuple[str, Literal["validation", "serialization"], TypeAdapter[Any]]] = [
        (name, "validation", adapter) for name, adapter in MESSAGES.items()
    ]
    template = "#/components/schemas/{model}"
    references, shared = TypeAdapter.json_schemas(named, ref_template=template)
    bodies = {name: schema for (name, _), schema in references.items()}
    components["schemas"] = bodies | shared.get("$defs", {}) | schemas
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for operations in document["paths"].values():
        for operation in operations.values():
            if "401" in operation.get("responses", {}):
                operation["security"] = [{"token": []}]
    app.openapi_schema = document
    return document
