"""Messages about the service itself: errors, the operator's key, tokens."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from panda_mdp.protocol.messages.signing import KeySheet
from panda_mdp.protocol.messages.types import (
    MOST_TOKENS,
    Base64,
    ClientId,
    Count,
    ErrorCode,
    Hex,
    Label,
    Message,
    Role,
    Text,
    TokenId,
)


class ErrorDetail(Message):
    """What went wrong, by a stable code; `remedy` says what helps."""

    code: ErrorCode
    message: Text
    remedy: Text = ""


class ErrorBody(Message):
    """The body of every answer that is not a success."""

    error: ErrorDetail


class KeyInfo(Message):
    """The operator's public key."""

    id: Hex
    algorithm: Literal["Ed25519"] = "Ed25519"
    public: Base64


class ServiceInfo(Message):
    """GET /v1."""

    service: Literal["panda-mdp"] = "panda-mdp"
    protocol: Literal[1] = 1
    version: Label
    key: KeyInfo
    """The one that this server signs with."""
    keys: KeySheet | None = None
    """The operator's own key, where it is another one, and what it says about others."""


class Health(Message):
    """GET /healthz and /readyz."""

    status: Literal["ok"] = "ok"


class ActionInfo(Message):
    """One act of an operator: who, when, what, on what."""

    seq: Count
    at: datetime
    by: Annotated[str, Field(pattern=r"^([0-9a-f]{12})?$")]
    """The id of the admin token; empty where it was done on the server's machine."""
    action: Label
    target: Label
    detail: Text = ""


class ActionList(Message):
    """GET /v1/actions: the latest first."""

    actions: list[ActionInfo]


class TokenRequest(Message):
    """POST /v1/tokens."""

    role: Role
    label: Label = ""
    expires_in_s: Annotated[float, Field(gt=0, le=10 * 366 * 86_400)] | None = None
    count: Annotated[int, Field(ge=1, le=MOST_TOKENS)] = 1


class TokenMade(Message):
    """A token, shown once."""

    id: TokenId
    token: Annotated[str, Field(pattern=r"^pmt_[0-9a-f]{12}_[A-Za-z0-9_-]{43}$", repr=False)]
    role: Role
    label: Label
    expires: datetime | None = None


class EnrolRequest(Message):
    """POST /v1/enrol: an invitation's code, which whoever was invited has."""

    code: Annotated[str, Field(pattern=r"^pmi_[0-9a-f]{12}_[A-Za-z0-9_-]{43}$", repr=False)]


class TokensMade(Message):
    """The answer to POST /v1/tokens."""

    tokens: list[TokenMade]


class TokenInfo(Message):
    """A token without its secret."""

    id: TokenId
    role: Role
    label: Label
    created: datetime
    expires: datetime | None = None
    batch: Label = ""
    """The id of the invitation that it came of, or what it was made with."""


class RemovalRequest(Message):
    """POST /v1/removals: whose reports are erased, set aside, or taken back.

    By a token, by a batch of them, or by the receipt of one report, which is its id. What is set
    aside is in no count, export or estimate. Tokens and invitations are revoked with it.
    """

    action: Literal["erase", "exclude", "include"]
    token: TokenId | None = None
    batch: TokenId | None = None
    receipt: ClientId | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(each is not None for each in (self.token, self.batch, self.receipt)) != 1:
            raise ValueError("give one of token, batch and receipt")
        return self


class RemovalDone(Message):
    """How many reports were touched, and tokens revoked."""

    reports: Count
    tokens: Count


class TokenList(Message):
    """GET /v1/tokens: a page of them, and how many there are."""

    tokens: list[TokenInfo]
    total: Count
