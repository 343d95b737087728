"""Puts the server together: routes, pages, the description of the API, and what surrounds them."""

from __future__ import annotations

import mimetypes
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import lru_cache
from pathlib import Path

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import FileResponse, JSONResponse, Response
from pydantic import TypeAdapter
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp

from panda_mdp.base.text import Facts
from panda_mdp.protocol.messages.signing import KeySheet
from panda_mdp.protocol.server.context import Context, Settings
from panda_mdp.protocol.server.failures import Failure, failure_of
from panda_mdp.protocol.server.gate import Gate, Metrics
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


def create_app(
    store: Store, key: Path, settings: Settings | None = None, sheet: KeySheet | None = None
) -> ASGIApp:
    """A server of a store, signing with the key in a file, which a sheet certifies: other origins,
    the gate, and the routes behind it."""
    settings = settings or Settings()
    context = Context(store, key, settings, sheet)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await context.start()
        try:
            yield
        finally:
            await context.stop()

    api = FastAPI(
        title="panda-mdp",
        version=__version__,
        description=_DESCRIPTION,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        # Its own spans have paths and queries, and go on with traces that clients name.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
        exception_handlers=dict.fromkeys(
            (HTTPException, RequestValidationError, Exception), _refuse
        ),
        lifespan=lifespan,
    )
    for module in (reports, catalogue, deployments, rounds, operators):
        api.include_router(module.router)
    api.include_router(_pages)
    api.state.context = context
    api.state.metrics = metrics = Metrics(context.writer, context.ready)
    gate = Gate(api, context.book, settings, metrics)
    if not settings.cors_origins:
        return gate
    # Outermost, so that refusals have its headers too.
    return CORSMiddleware(
        gate,
        allow_origins=list(settings.cors_origins),
        allow_methods=["GET", "POST", "PATCH", "DELETE"],
        allow_headers=["authorization", "content-type"],
        expose_headers=["retry-after"],
    )


async def _refuse(request: Request, error: Exception) -> Response:
    if isinstance(error, ClientDisconnect):
        # Nobody is there to be answered.
        raise error
    failure = failure_of(error)
    request.scope["state"]["code"] = failure.code
    return failure.response


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
mimetypes.add_type("text/javascript", ".js")
mimetypes.add_type("application/manifest+json", ".webmanifest")
_TOP = {"": "index.html", "operator": "operator.html"}


@_pages.get("/v1/openapi.json")
def openapi(request: Request) -> Response:
    """The description of the API."""
    return JSONResponse(_describe(request.app))


@lru_cache(maxsize=1)
def _describe(app: FastAPI) -> Facts:
    """The OpenAPI document: FastAPI's, with the bodies that routes read themselves."""
    document = app.openapi()
    template = "#/components/schemas/{model}"
    references, shared = TypeAdapter.json_schemas(MESSAGES, ref_template=template)
    bodies = {name: schema for (name, _), schema in references.items()}
    components = document["components"]
    components["schemas"] = bodies | shared.get("$defs", {}) | components["schemas"]
    return document


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
    return FileResponse(target, headers=_HEADERS | {"cache-control": cache})
