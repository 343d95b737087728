"""What the server answers, path by path, and what routes are made of: who may call them, what they
take, how they answer.

A route that does not wait for anything is a plain function of messages. It runs in a thread, with a
session of the database where it asks for one, and what it changed is durable before anybody hears.

Bodies are read after the caller's role is known, bounded in size, time and memory. What is larger
than a page of text is parsed in another process: the parser holds the interpreter's lock, and
everybody else would wait for it.
"""

from __future__ import annotations

import asyncio
import gzip
import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from fastapi.security import HTTPBearer
from pydantic import BaseModel, Field, TypeAdapter
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool

from panda_mdp.base.text import Facts
from panda_mdp.protocol.messages.service import ErrorBody
from panda_mdp.protocol.messages.types import Message, Role
from panda_mdp.protocol.server.auth import Token
from panda_mdp.protocol.server.context import Context
from panda_mdp.protocol.server.failures import JSON, Failure, parse
from panda_mdp.protocol.server.gate import NO_TOKEN

OCTETS = "application/octet-stream"
TABLE_BYTES = 512 << 20
"""Largest file that may be published."""
DOCUMENT_BYTES = 64 << 20
"""Largest JSON body of an operator: domains, deployments."""
DRAINED = 128 << 20
"""A refused body up to this length is read and dropped; beyond it the connection is closed."""
SHORT = 64 << 10
"""Bodies up to this length are parsed at once; most routes take no longer ones."""
T = TypeVar("T", bound=Callable[..., Any])
Responses = dict[int | str, Facts]

Limit = Annotated[int, Field(ge=1, le=1_000)]
"""Entries of a page."""


async def shared_context(request: Request) -> Context:
    """The server that a request came to."""
    shared: Context = request.app.state.context
    return shared


Shared = Annotated[Context, Depends(shared_context)]
Reading = Annotated[Session, "read"]
Writing = Annotated[Session, "write"]
"""What a plain route's `session` is: the name of the store's method that opens it."""


# Who


DESCRIBED = Depends(HTTPBearer(scheme_name="token", auto_error=False))
"""For the API's description alone: the gate has read the token."""


async def check_caller(request: Request, *roles: Role) -> Token:
    """The caller's token, which must have one of some roles."""
    state = request.scope["state"]
    names = " or ".join(roles)
    token: Token | None = state.get("token")
    if token is None:
        raise state.get("refusal") or NO_TOKEN
    if token.role not in roles:
        raise Failure(
            "forbidden",
            f"this needs a token of role {names}, and the token has role {token.role}",
            f"use a token that was made with role {names}",
        )
    return token


def _caller(*roles: Role) -> Any:
    async def check(request: Request, described: Annotated[Any, DESCRIBED]) -> Token:
        return await check_caller(request, *roles)

    return Depends(check)


Admin = Annotated[Token, _caller("admin")]
Reporter = Annotated[Token, _caller("reporter")]
Analyst = Annotated[Token, _caller("analyst", "admin")]
Auditor = Annotated[Token, _caller("auditor", "admin")]
Monitor = Annotated[Token, _caller("monitor", "admin")]


# Bodies: a parameter of a route whose type is a message is one


MESSAGES: list[tuple[str, Literal["validation", "serialization"], TypeAdapter[Any]]] = []
"""Bodies that routes take, with the name of their schema; the API's description has them."""
_CONTENT: dict[Any, Facts] = {}
"""What readers of bodies take, as the description says it."""


def body_of(kind: Any, name: str, limit: int = DOCUMENT_BYTES) -> Any:
    """A body that is a message, of so many bytes at most."""
    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    MESSAGES.append((name, "validation", adapter))

    async def reader(request: Request) -> Any:
        context: Context = request.app.state.context
        given = request.headers.getlist("content-type")
        if [each.split(";")[0].strip().lower() for each in given] not in ([], [JSON]):
            msg = "content-type: it is not application/json"
            raise Failure("invalid", msg, "send application/json")
        body = await read_body(request, context, limit)
        if len(body) <= SHORT:
            return parse(adapter, body)
        return await run_in_threadpool(context.pool.run, parse, adapter, body)

    _CONTENT[reader] = {JSON: {"schema": {"$ref": f"#/components/schemas/{name}"}}}
    return Depends(reader)


async def _file(request: Request, context: Shared) -> bytes:
    return await read_body(request, context, TABLE_BYTES)


_CONTENT[_file] = {OCTETS: {"schema": {"type": "string", "format": "binary"}}}
File = Annotated[bytes, Depends(_file)]
"""A body of bytes."""


async def read_body(request: Request, context: Context, limit: int) -> bytes:
    """The bytes of a body. Raises `Failure` beyond `limit`, and where it takes too long."""
    declared = request.headers.get("content-length", "")
    size = int(declared[:20]) if declared.isascii() and declared.isdigit() else 0
    if size > limit:
        raise _too_large(limit, close=size > DRAINED)
    parts: list[bytes] = []
    seconds = context.settings.body_seconds
    arrived = 0
    try:
        async with asyncio.timeout(seconds):
            async for part in request.stream():
                arrived += len(part)
                if arrived > limit:
                    raise _too_large(limit, close=True)
                parts.append(part)
    except TimeoutError:
        msg = f"the body had not arrived after {seconds:g} s"
        raise Failure("invalid", msg, "send it at once", {"connection": "close"}) from None
    return b"".join(parts)


def _too_large(limit: int, close: bool = False) -> Failure:
    return Failure(
        "too_large",
        f"the body has more than the {limit} bytes that this route takes",
        "send less; the operator sets the limit",
        {"connection": "close"} if close else None,
    )


# Answers


def answer(message: BaseModel | bytes, status: int = 200, cache: str = "no-store") -> Response:
    """A message as a response."""
    text = message if isinstance(message, bytes) else message.model_dump_json()
    return Response(text, status, {"cache-control": cache}, JSON)


def answer_packed(request: Request, packed: bytes, cache: str = "no-store") -> Response:
    """A message that was compressed once, and is sent so to whoever takes it: digits are two thirds
    air."""
    takes = "gzip" in request.headers.get("accept-encoding", "")
    made = answer(packed if takes else gzip.decompress(packed), cache=cache)
    made.headers["vary"] = "accept-encoding"
    if takes:
        made.headers["content-encoding"] = "gzip"
    return made


_REFUSALS: Responses = {
    "default": {"model": ErrorBody, "description": "Refused, for a reason with a stable code."}
}
_WORDS = {200: "As asked.", 201: "Made."}


class Routes(APIRouter):
    """Routes that describe themselves."""

    def serves(self, method: str, path: str, gives: Any, *statuses: int) -> Callable[[T], T]:
        """A route that answers with a message, or with what a table of responses says."""
        said = statuses or (200,)
        answers: Responses = {each: {"model": gives, "description": _WORDS[each]} for each in said}
        if isinstance(gives, dict):
            answers = gives

        def add(endpoint: T) -> T:
            signature = inspect.signature(endpoint, eval_str=True)
            shown = dict(signature.parameters)
            session = shown.pop("session", None)
            route: Any = endpoint
            if not inspect.iscoroutinefunction(endpoint):
                opens = None if session is None else session.annotation.__metadata__[0]
                route = _answering(endpoint, opens, said[0], method != "GET")
                shown["serving"] = _SERVING
            body = {}
            for name, each in shown.items():
                kind = each.annotation
                if isinstance(kind, type) and issubclass(kind, Message):
                    kind = Annotated[Any, body_of(kind, kind.__name__, SHORT)]
                for mark in getattr(kind, "__metadata__", ()):
                    content = _CONTENT.get(getattr(mark, "dependency", None))
                    if content is not None:
                        body["requestBody"] = {"required": True, "content": content}
                shown[name] = each.replace(annotation=kind, kind=_SERVING.kind)
            route.__signature__ = signature.replace(parameters=[*shown.values()])
            self.add_api_route(
                path,
                route,
                methods=[method],
                status_code=int(next(iter(answers))),
                responses=answers | _REFUSALS,
                response_class=Response,
                openapi_extra=body or None,
            )
            return endpoint

        return add


_SERVING = inspect.Parameter("serving", inspect.Parameter.KEYWORD_ONLY, annotation=Shared)


def _answering(
    endpoint: Callable[..., Any], opens: str | None, status: int, changes: bool
) -> Callable[..., Any]:
    """A plain function as the framework takes it, with a session that a method of the store
    `opens`. One that returns a message and False has done what was done before: 200."""

    @wraps(endpoint)
    def run(serving: Context, **given: Any) -> Response:
        if opens is None:
            made = endpoint(**given)
        else:
            # Not a dependency of the framework: what waits for the database in other threads could
            # leave none for whoever holds it.
            with getattr(serving.store, opens)() as session:
                made = endpoint(session=session, **given)
        if changes:
            serving.notice_changes()
        if isinstance(made, Response):
            return made
        message, new = made if isinstance(made, tuple) else (made, True)
        return answer(message, status if new else 200)

    return run
