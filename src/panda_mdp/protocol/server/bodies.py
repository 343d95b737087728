"""Bodies of requests: read after the caller's role is known, bounded in size, time and memory.

What is larger than a page of text is parsed in another process: the parser holds the interpreter's
lock, and everybody else would wait for it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from fastapi import Request
from pydantic import TypeAdapter, ValidationError

from panda_mdp.protocol.server.auth import Token
from panda_mdp.protocol.server.failures import Failure, invalid

if TYPE_CHECKING:
    from panda_mdp.protocol.server.context import Context

T = TypeVar("T")
DRAINED = 128 << 20
"""A refused body up to this length is read and dropped; beyond it the connection is closed."""
SHORT = 64 << 10
"""Bodies up to this length are parsed at once."""
_JSON = b"application/json"


async def read_body(request: Request, here: Context, limit: int) -> bytes:
    """The bytes of a body. Raises `Failure` beyond `limit`, and where it takes too long."""
    declared = _header(request.scope["headers"], b"content-length")
    size = int(declared[0][:20]) if declared and declared[0].isdigit() else 0
    if size > limit:
        raise _too_large(limit, close=size > DRAINED)
    parts: list[bytes] = []
    seconds = here.settings.body_seconds
    token: Token | None = request.scope["state"].get("token")
    room = here.room if token is not None and token.role == "reporter" else None
    arrived = 0
    try:
        async with asyncio.timeout(seconds):
            async for part in request.stream():
                arrived += len(part)
                if arrived > limit:
                    raise _too_large(limit, close=True)
                if room is not None and arrived > SHORT:
                    room.take(request.scope, len(part))
                parts.append(part)
    except TimeoutError:
        msg = f"the body had not arrived after {seconds:g} s"
        raise Failure("invalid", msg, "send it at once", {"connection": "close"}) from None
    return parts[0] if len(parts) == 1 else b"".join(parts)


class Room:
    """Memory for the bodies of all reporters together: one cannot fill it for the others for long.

    What a request took is given back when its answer was sent (`Gate`).
    """

    def __init__(self, size: int) -> None:
        self._free = size

    def take(self, scope: MutableMapping[str, Any], count: int) -> None:
        """Take some for a request, or refuse it."""
        if count > self._free:
            raise Failure(
                "unavailable",
                "the server has its hands full of long requests",
                "try again",
                {"retry-after": "2", "connection": "close"},
            )
        self._free -= count
        state = scope["state"]
        state["taken"] = state.get("taken", 0) + count
        state["room"] = self

    def give_back(self, count: int) -> None:
        """Free what a request took."""
        self._free += count


def _header(headers: Sequence[tuple[bytes, bytes]], wanted: bytes) -> list[bytes]:
    """All values of a header. Its name is in lower case already, as ASGI has it."""
    return [value for name, value in headers if name == wanted]


def check_kind(headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Refuse a body that is said to be something else than JSON."""
    kinds = _header(headers, b"content-type")
    if not kinds or kinds == [_JSON]:
        return
    if len(kinds) > 1 or kinds[0].split(b";")[0].strip().lower() != _JSON:
        raise Failure(
            "invalid", "content-type: it is not application/json", "send application/json"
        )


async def read_json(request: Request, here: Context, limit: int) -> bytes:
    """The bytes of a body that is said to be JSON, or nothing else."""
    check_kind(request.scope["headers"])
    return await read_body(request, here, limit)


async def read_message(
    request: Request, here: Context, wanted: TypeAdapter[T], limit: int | None = None
) -> T:
    """The body as a message; refused without showing any of it."""
    body = await read_json(request, here, limit or here.settings.small_bytes)
    if len(body) <= SHORT:
        return parse(wanted, body)
    return await here.pool.run(parse, wanted, body)


def parse(wanted: TypeAdapter[T], body: bytes) -> T:
    """Bytes as a message: strict JSON, every field once.

    >>> parse(TypeAdapter(dict[str, int]), b'{"a": 1, "a": 2}')
    Traceback (most recent call last):
    panda_mdp.protocol.server.failures.Failure: invalid: a field is given twice
    """
    try:
        message = wanted.validate_json(body)
    except ValidationError as error:
        raise invalid(error.errors(include_url=False, include_input=False)) from None
    # The parser takes the last of two fields of one name; others take the first.
    _EACH_ONCE.decode(body.decode())
    return message


def _once(pairs: list[tuple[str, Any]]) -> None:
    if len({name for name, _ in pairs}) != len(pairs):
        raise Failure("invalid", "a field is given twice", "send each field once")


_EACH_ONCE = json.JSONDecoder(object_pairs_hook=_once)


def _too_large(limit: int, close: bool = False) -> Failure:
    return Failure(
        "too_large",
        f"the body has more than the {limit} bytes that this route takes",
        "send less; the operator sets the limit",
        {"connection": "close"} if close else None,
    )
