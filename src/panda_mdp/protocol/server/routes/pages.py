"""The browser client and the operator's page, as they were built, under a strict policy."""

from __future__ import annotations

import mimetypes
from pathlib import Path

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import FileResponse, Response

from panda_mdp.protocol.server.failures import Failure
from panda_mdp.protocol.server.routes.common import context

router = APIRouter(include_in_schema=False)
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


@router.get("/")
async def index(request: Request) -> Response:
    """The browser client."""
    return _file(request, "index.html")


@router.get("/operator")
async def operator(request: Request) -> Response:
    """The operator's page."""
    return _file(request, "operator.html")


@router.get("/assets/{path:path}")
async def asset(request: Request, path: str) -> Response:
    """A part of a page."""
    return _file(request, f"assets/{path}")


@router.get("/{name}")
async def top(request: Request, name: str) -> Response:
    """Files that must lie at the top, such as a service worker and an icon."""
    return _file(request, name)


def _file(request: Request, name: str) -> Response:
    root = context(request).settings.static.resolve()
    target = root / name
    try:
        target = target.resolve()
        exists = target.is_relative_to(root) and target.is_file()
    except (OSError, ValueError):
        # Longer than a file's name can be, or no name at all.
        exists = False
    if not exists:
        raise Failure("not_found", "there is no such page", "/v1/openapi.json describes the API")
    cache = _HASHED if name.startswith("assets/") else "no-cache"
    return FileResponse(
        target, headers=_HEADERS | {"cache-control": cache}, media_type=_kind(target)
    )


def _kind(path: Path) -> str:
    known = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0]
    return known or "application/octet-stream"


def add_pages(app: FastAPI) -> None:
    """Put the pages behind the API: what is not part of one is looked for among the other."""
    app.include_router(router)
