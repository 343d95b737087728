"""What routes are made of: who may call them, what they take, how they answer."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Request
from fastapi.responses import Response
from pydantic import BaseModel, TypeAdapter

from panda_mdp.protocol.messages.service import ErrorBody
from panda_mdp.protocol.messages.types import Role
from panda_mdp.protocol.server.auth import Token
from panda_mdp.protocol.server.context import Context
from panda_mdp.protocol.server.failures import Failure
from panda_mdp.protocol.server.gate import NO_TOKEN

JSON = "application/json"
OCTETS = "application/octet-stream"
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"

NamePath = Annotated[str, Path(pattern=NAME_PATTERN, max_length=64)]
VersionPath = Annotated[int, Path(ge=1, lt=2**31)]

REQUESTS: dict[str, TypeAdapter[Any]] = {}
"""Bodies that routes take, by the name of their schema; `openapi.py` describes them."""


def context(request: Request) -> Context:
    """The server that a request came to."""
    shared: Context = request.app.state.context
    return shared


def require(request: Request, *roles: Role) -> Token:
    """The caller's token, of one of the roles; asked for before anything of a body is read."""
    state = request.scope["state"]
    token: Token | None = state.get("token")
    if token is None:
        refusal: Failure | None = state.get("refusal")
        raise refusal or NO_TOKEN
    if token.role not in roles:
        wanted = " or ".join(roles)
        raise Failure(
            "forbidden",
            f"this needs a token of role {wanted}, and the token has role {token.role}",
            f"use a token that was made with role {wanted}",
        )
    return token


def answer(message: BaseModel, status: int = 200, **headers: str) -> Response:
    """A message as a response."""
    fields = {"cache-control": "no-store"}
    fields |= {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(message.model_dump_json(), status, fields, JSON)


def accepts(name: str, kind: TypeAdapter[Any]) -> dict[str, Any]:
    """The part of the API's description that says what a body is."""
    REQUESTS[name] = kind
    schema = {"$ref": f"#/components/schemas/{name}"}
    return {"requestBody": {"required": True, "content": {JSON: {"schema": schema}}}}


_MEANING = {
    400: "The request is not HTTP that can be understood.",
    401: "The token is missing, unknown, revoked or expired.",
    403: "The token has another role.",
    404: "There is no such thing.",
    405: "The path takes other methods.",
    409: "It conflicts with what is there: another content, a closed round, another version.",
    413: "The body is larger than this route takes.",
    416: "Only whole files are served; a range may resume a download and nothing else.",
    422: "A field breaks its rule.",
    429: "Too many requests; Retry-After says when to come back.",
    500: "A mistake of the server.",
    503: "The server is busy; Retry-After says when to come back.",
}


Responses = dict[int | str, dict[str, Any]]


def fails(*statuses: int) -> Responses:
    """The errors that a route may answer with, beside those that every route may."""
    return {
        status: {"model": ErrorBody, "description": _MEANING[status]}
        for status in sorted({*statuses, 422, 429, 500, 503})
    }


def gives(model: type[BaseModel], *statuses: int) -> Responses:
    """The messages that a route may answer with."""
    words = {200: "As asked.", 201: "Made.", 202: "Taken; it is being worked on."}
    return {status: {"model": model, "description": words[status]} for status in statuses}
