"""Every refusal of the server: a stable code, what broke which rule, and what helps.

    {"error": {"code": "round_closed", "message": "...", "remedy": "..."}}

Messages are written here and in the routes, never copied from a request: they contain no token, no
anchor set and no output that somebody sent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from panda_mdp.protocol.messages.types import ErrorCode

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
    "range": 416,
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
        self.headers = dict(headers or {})

    def __reduce__(self) -> tuple[Any, ...]:
        return Failure, (self.code, self.message, self.remedy, self.headers)

    @property
    def body(self) -> bytes:
        """The envelope."""
        return envelope(self.code, self.message, self.remedy)


def envelope(code: ErrorCode, message: str, remedy: str = "") -> bytes:
    """The body of an error.

    >>> envelope("not_found", "there is no table of this name")
    b'{"error":{"code":"not_found","message":"there is no table of this name","remedy":""}}'
    """
    detail = {"code": code, "message": message[:LONGEST], "remedy": remedy[:LONGEST]}
    return json.dumps({"error": detail}, separators=(",", ":")).encode()


def invalid(errors: Sequence[Any]) -> Failure:
    """Validation errors of pydantic as one refusal: the fields and rules, never the values."""
    parts = []
    for error in errors[:5]:
        place = ".".join(_step(step) for step in error["loc"]) or "the body"
        parts.append(f"{place}: {_rule(error)}")
    more = f" ({len(errors) - 5} more)" if len(errors) > 5 else ""
    return Failure(
        "invalid",
        "; ".join(parts) + more,
        "see /v1/openapi.json for the fields and their ranges",
    )


def _step(step: Any) -> str:
    """A field's name, if it is one of ours: names in a request are the sender's choice too."""
    if isinstance(step, int):
        return str(step)
    return step if step.isascii() and step.isidentifier() and len(step) <= 40 else "field"


def _rule(error: Mapping[str, Any]) -> str:
    """The rule that was broken, from the schema alone."""
    kind, context = str(error["type"]), error.get("ctx") or {}
    if kind == "extra_forbidden":
        return "there is no such field"
    if kind == "json_invalid":
        return "the body is not JSON"
    if kind == "value_error":
        # Written in messages.py, without the value.
        return str(context.get("error", "it breaks a rule"))
    limits = ", ".join(
        f"{name} {value}"
        for name, value in context.items()
        if name in _LIMITS and isinstance(value, int | float | str)
    )
    return kind.replace("_", " ") + (f" ({limits})" if limits else "")


_LIMITS = frozenset(
    {"ge", "gt", "le", "lt", "min_length", "max_length", "pattern", "expected", "expected_tags"}
)
