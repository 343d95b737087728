"""Every refusal of the server: a stable code, what broke which rule, and what helps.

    {"error": {"code": "round_closed", "message": "...", "remedy": "..."}}

Messages are written here and in the routes, never copied from a request: they contain no token, no
anchor set and no output that somebody sent.
"""

from __future__ import annotations

import json
import logging
import math
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import TypeAdapter, ValidationError
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from starlette.exceptions import HTTPException

from panda_mdp.errors import PandaError
from panda_mdp.protocol.messages.service import ErrorBody, ErrorDetail
from panda_mdp.protocol.messages.types import ErrorCode

T = TypeVar("T")
_log = logging.getLogger("panda_mdp.server")
JSON = "application/json"
STATUS: Mapping[ErrorCode, int] = {
    "unauthorised": 401,
    "token_expired": 401,
    "forbidden": 403,
    "not_found": 404,
    "method_not_allowed": 405,
    "conflict": 409,
    "round_closed": 409,
    "wrong_version": 409,
    "too_large": 413,
    "invalid": 422,
    "rate_limited": 429,
    "internal": 500,
    "unavailable": 503,
}
LONGEST = 1_900
"""Characters of a message; longer ones are cut."""


class Failure(Exception):
    """A request that is refused. `str` is safe to log: it holds nothing of the request."""

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        remedy: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.status = STATUS[code]
        self.message = message
        self.remedy = remedy
        self.headers = {"cache-control": "no-store", **(headers or {})}

    def __reduce__(self) -> tuple[Any, ...]:
        return Failure, (self.code, self.message, self.remedy, self.headers)

    @property
    def body(self) -> bytes:
        """The envelope.

        >>> Failure("not_found", "there is no such path").body
        b'{"error":{"code":"not_found","message":"there is no such path","remedy":""}}'
        """
        message = self.message[:LONGEST]
        remedy = self.remedy[:LONGEST]
        detail = ErrorDetail(code=self.code, message=message, remedy=remedy)
        return ErrorBody(error=detail).model_dump_json().encode()

    @property
    def response(self) -> Response:
        """What is sent."""
        return Response(self.body, self.status, self.headers, JSON)


def unavailable(
    message: str, remedy: str = "try again", seconds: float = 1, code: ErrorCode = "unavailable"
) -> Failure:
    """A refusal that will pass by itself."""
    return Failure(code, message, remedy, {"retry-after": str(max(1, math.ceil(seconds)))})


def parse(kind: TypeAdapter[T], body: bytes) -> T:
    """Bytes as a message: strict JSON, every field once; refused without showing any of it.

    >>> parse(TypeAdapter(dict[str, int]), b'{"a": 1, "a": 2}')
    Traceback (most recent call last):
    panda_mdp.protocol.server.failures.Failure: invalid: a field is given twice
    """
    try:
        message = kind.validate_json(body)
    except ValidationError as error:
        raise invalid(error.errors(include_url=False, include_input=False)) from None
    # The parser takes the last of two fields of one name; others take the first.
    _EACH_ONCE.decode(body.decode())
    return message


def _once(pairs: list[tuple[str, Any]]) -> None:
    if len({name for name, _ in pairs}) != len(pairs):
        raise Failure("invalid", "a field is given twice", "send each field once")


_EACH_ONCE = json.JSONDecoder(object_pairs_hook=_once)


def invalid(errors: Sequence[Any]) -> Failure:
    """Validation errors of pydantic as one refusal: the fields and rules, never the values."""
    parts = []
    for error in errors[:5]:
        place = ".".join(_step(step) for step in error["loc"]) or "the body"
        parts.append(f"{place}: {_rule(error)}")
    more = f" ({len(errors) - 5} more)" if len(errors) > 5 else ""
    remedy = "see /v1/openapi.json for the fields and their ranges"
    return Failure("invalid", "; ".join(parts) + more, remedy)


def _step(step: Any) -> str:
    """A field's name, if it is one of ours: names in a request are the sender's choice too."""
    if isinstance(step, int):
        return str(step)
    return step if step.isascii() and step.isidentifier() and len(step) <= 40 else "field"


def _rule(error: Mapping[str, Any]) -> str:
    """The rule that was broken, from the schema alone: the words for a wrong tag quote it."""
    tags = error.get("ctx", {}).get("expected_tags")
    return str(error["msg"]) if tags is None else f"Input should be one of {tags}"


def failure_of(error: Exception) -> Failure:
    """What is answered to an error. What it was is for the log alone, if nobody expected it."""
    match error:
        case Failure():
            return error
        case RequestValidationError():
            return invalid(error.errors())
        case PandaError():
            # The library's messages name public inputs only: an operator's domain, table, options.
            return Failure("invalid", str(error), "change the request accordingly")
        case HTTPException(status_code=405):
            return Failure("method_not_allowed", "the path takes other methods", "", error.headers)
        case HTTPException(status_code=404):
            return Failure("not_found", "there is no such path", "see /v1/openapi.json")
        case HTTPException():
            return Failure("invalid", "the request cannot be understood", "", error.headers)
        case OperationalError() | PoolTimeoutError():
            _log.error("the database does not answer: %s", type(error).__name__)
            return unavailable("the database does not answer", seconds=2)
    _log.error("unhandled %s\n%s", type(error).__name__, stack_of(error))
    remedy = "try again; the operator finds it in the server's log"
    return Failure("internal", "the server made a mistake", remedy)


def stack_of(error: BaseException) -> str:
    """Where an error came from, without its message, which may hold a value."""
    return "".join(
        f"  {frame.filename}:{frame.lineno} {frame.name}\n"
        for frame in traceback.extract_tb(error.__traceback__)
    )
