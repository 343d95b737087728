"""What messages are made of: bounded types, and the strict, closed base of all of them."""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, PositiveFloat

MOST_RECORDS = 1_000_000
MOST_OUTPUTS = 65_536
MOST_NODES = 2_000_000
MOST_NAMES = 200_000
MOST_TOKENS = 10_000

T = TypeVar("T")
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
"""Names of tables, deployments and domains: safe in a path and a log."""
ClientId = Annotated[
    str,
    Field(
        pattern=r"^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$",
    ),
]
"""An id that a client made: a random UUID (version 4) in lower case."""
Hex = Annotated[str, Field(pattern=r"^[0-9a-f]{16,64}$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Base64 = Annotated[str, Field(pattern=r"^[A-Za-z0-9+/]{4,128}={0,2}$")]
Text = Annotated[str, Field(max_length=2_000)]
Label = Annotated[str, Field(max_length=200, pattern=r"^[^\x00]*$")]
"""Any text but NUL, which PostgreSQL does not store."""
Line = Annotated[str, Field(max_length=600, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]
"""Words for people, on one line."""
Day = Annotated[str, Field(pattern=r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])$")]
"""A day as in 2027-03-31."""
Index = Annotated[int, Field(ge=0, lt=MOST_RECORDS)]
Count = Annotated[int, Field(ge=0, lt=2**53)]
Version = Annotated[int, Field(ge=1, lt=2**31)]
Epsilon = Annotated[float, Field(gt=0, le=1e9)]
Probability = Annotated[float, Field(ge=0, le=1)]
Fraction = Annotated[float, Field(gt=0, lt=1)]
NonNegative = NonNegativeFloat
Positive = PositiveFloat
Weight = Annotated[str, Field(pattern=r"^(0|[1-9][0-9]{0,18})$")]
"""An integer weight over 2^62, in decimal digits."""
ForRecords = Annotated[list[T], Field(max_length=MOST_RECORDS)]
"""At most one of a thing for each record."""
Indices = ForRecords[Index]
Outputs = Annotated[list[Index], Field(min_length=1, max_length=MOST_OUTPUTS)]
Latitude = Annotated[float, Field(ge=-90, le=90)]
Longitude = Annotated[float, Field(ge=-180, le=360)]
Row = Annotated[list[Weight], Field(min_length=1, max_length=MOST_OUTPUTS)]
Rows = ForRecords[Row]
Unit = Annotated[str, Field(min_length=1, max_length=32, pattern=r"^[ -~]+$")]
TokenId = Annotated[str, Field(pattern=r"^[0-9a-f]{12}$")]
MetricKind = Literal["haversine", "euclidean", "angular", "matrix", "graph"]

Role = Literal["admin", "analyst", "auditor", "monitor", "reporter"]
ErrorCode = Literal[
    "unauthorised",
    "token_expired",
    "forbidden",
    "not_found",
    "method_not_allowed",
    "conflict",
    "round_closed",
    "wrong_version",
    "too_large",
    "invalid",
    "rate_limited",
    "unavailable",
    "internal",
]


class Message(BaseModel):
    """A message: strict, closed, frozen; its errors never show what was sent."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,
        from_attributes=True,
        regex_engine="rust-regex",
    )


class GuaranteeInfo(Message):
    """(epsilon, delta) per unit of the domain's metric, for all that one user releases once."""

    epsilon: NonNegative
    delta: Probability = 0.0
    unit: Unit
