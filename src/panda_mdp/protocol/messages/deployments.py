"""Messages about deployments: what is in force, balls, and the rounds of anchors."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, field_validator, model_validator

from panda_mdp.protocol.messages.catalogue import DistanceLoss, Loss, TableInfo, TableRef
from panda_mdp.protocol.messages.types import (
    MOST_RECORDS,
    Base64,
    ClientId,
    Count,
    Day,
    Epsilon,
    GuaranteeInfo,
    Hex,
    Index,
    Indices,
    Line,
    Message,
    Name,
    Outputs,
    Probability,
    Rows,
    Sha256,
    Text,
    Unit,
    Version,
)

ReportsPerPeriod = Annotated[int, Field(ge=1, le=1_000_000)]


class Advice(Message):
    """What the operator says and suggests; a client's own limits decide."""

    period_s: Annotated[int, Field(ge=1, le=366 * 86_400)] = 86_400
    reports_per_period: ReportsPerPeriod = 1
    retention_days: Annotated[int, Field(ge=1, le=36_600)] | None = None
    """What was sent is deleted after so many days; None: kept until the operator deletes it."""
    collector: Line = ""
    """Who collects the reports, for people to read."""
    purpose: Line = ""
    """What they are collected for."""
    until: Day | None = None
    """The last day, in UTC, on which reports are taken; None where no end is promised."""

    @field_validator("until")
    @classmethod
    def _a_day(cls, given: str | None) -> str | None:
        if given is not None:
            date.fromisoformat(given)
        return given


class SelectionInfo(Message):
    """The paper's Phase I (`BernoulliAnchors`): decay, alpha, rate, radius, tail, candidates.

    What was stored or is sent with the paper's letters, `lam` and `gamma`, is still read.
    """

    decay: Literal["exponential", "power", "logistic"]
    alpha: Annotated[float, Field(gt=0, lt=1)]
    rate: Annotated[float, Field(ge=0, le=1e9)]
    radius: Annotated[float, Field(gt=0)] | None = None
    tail: Annotated[float, Field(gt=0, lt=1)] | Literal["clip"] = "clip"
    candidates: Indices | None = None
    neighbours: Annotated[int, Field(ge=1, le=MOST_RECORDS)] = 20
    delta_selection: Probability = 0.0

    @model_validator(mode="before")
    @classmethod
    def _letters(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        named = dict(given)
        for letter, word in (("lam", "rate"), ("gamma", "radius")):
            if letter in named and word not in named:
                named[word] = named.pop(letter)
        return named


class TableDeploymentRequest(Advice):
    """Everyone downloads the whole public table."""

    kind: Literal["table"]
    name: Name
    table: TableRef
    snap_km: Annotated[float, Field(gt=0, le=20_000)] = 0.5


class BallDeploymentRequest(Advice):
    """Everyone draws a centre (epsilon_1) and downloads the ball around it."""

    kind: Literal["ball"]
    name: Name
    table: TableRef
    epsilon_1: Epsilon
    delta: Annotated[float, Field(gt=0, lt=1)]
    candidates: Indices | None = None
    snap_km: Annotated[float, Field(gt=0, le=20_000)] = 0.5


class PandaDeploymentRequest(Advice):
    """Everyone downloads a file of PAnDA and runs both phases alone; only the report is sent."""

    kind: Literal["panda"]
    name: Name
    table: TableRef
    snap_km: Annotated[float, Field(gt=0, le=20_000)] = 0.5


class AnchorsDeploymentRequest(Advice):
    """The paper: rounds of anchor uploads, a table over their union, rows for everyone."""

    kind: Literal["anchors"]
    name: Name
    domain: Name
    outputs: Outputs
    loss: Loss = DistanceLoss()
    epsilon: Epsilon
    delta: Annotated[float, Field(gt=0, lt=1)]
    selection: SelectionInfo
    screen: Literal["none", "median", "distance"] = "none"
    screen_limit: Annotated[float, Field(gt=0)] | None = None
    accept_no_guarantee: bool = False
    """Open it although no guarantee could be certified; every answer then says that."""
    snap_km: Annotated[float, Field(gt=0, le=20_000)] = 0.5


DeploymentRequest = Annotated[
    TableDeploymentRequest
    | BallDeploymentRequest
    | PandaDeploymentRequest
    | AnchorsDeploymentRequest,
    Field(discriminator="kind"),
]


class Statement(Advice):
    """What the operator signs about a deployment: everything that a client lets itself be told.

    Lists are given by the SHA-256 of their canonical JSON. For rounds of anchors `version` is 1:
    their deployment never changes.
    """

    statement: Literal["panda-mdp deployment 1"] = "panda-mdp deployment 1"
    name: Name
    kind: Literal["table", "ball", "panda", "anchors"]
    version: Version
    issued: Count
    """Seconds since 1970; a later statement about the same deployment replaces this one."""
    metric: Literal["haversine", "euclidean", "angular", "matrix"]
    unit: Unit
    domain: Sha256
    epsilon: Annotated[float, Field(ge=0)] | None
    """What one release costs, per unit; None where there is no guarantee."""
    delta: Probability
    snap_km: Annotated[float, Field(gt=0)]
    table: TableRef | None = None
    table_sha256: Sha256 | None = None
    epsilon_1: Epsilon | None = None
    candidates: Sha256 | None = None
    outputs: Sha256 | None = None
    selection: Sha256 | None = None


class DeploymentPatch(Message):
    """PATCH /v1/deployments/{name}: another table in force, open and closed, other limits.

    What is signed changes with a table and with limits, and so does the version.
    """

    table: TableRef | None = None
    open: bool | None = None
    reports_per_period: ReportsPerPeriod | None = None
    until: Day | None = None


class Deployed(Advice):
    """What all deployments say about themselves."""

    name: Name
    version: Version
    """Changes whenever the table in force changes; reports name it (rounds for `anchors`)."""
    open: bool
    snap_km: Annotated[float, Field(gt=0)]
    created: datetime
    statement: Annotated[str, Field(max_length=4_000)]
    """A `Statement` as the text that was signed."""
    signature: Base64
    """The operator's, over `signing.statement_bytes`."""


class TableDeployment(Deployed):
    """GET /v1/deployments/{name}, kind table."""

    kind: Literal["table"] = "table"
    table: TableInfo
    guarantee: GuaranteeInfo


class BallDeployment(Deployed):
    """GET /v1/deployments/{name}, kind ball.

    `domain` names the whole domain, which a client fetches to draw its centre. `guarantee` is
    (epsilon_1 + 2 epsilon of the table, delta).
    """

    kind: Literal["ball"] = "ball"
    table: TableInfo
    domain: Name
    epsilon_1: Epsilon
    delta: Annotated[float, Field(gt=0, lt=1)]
    candidates: Indices | None = None
    guarantee: GuaranteeInfo


class PandaDeployment(Deployed):
    """GET /v1/deployments/{name}, kind panda: the file has everything, and proves `guarantee`."""

    kind: Literal["panda"] = "panda"
    table: TableInfo
    selection: Literal["ball", "coins"]
    selection_epsilon: Annotated[float, Field(ge=0)]
    """What Phase I would tell if it were released; here it stays with the client."""
    guarantee: GuaranteeInfo


class AnchorsDeployment(Deployed):
    """GET /v1/deployments/{name}, kind anchors. `guarantee` is None where there is none."""

    kind: Literal["anchors"] = "anchors"
    domain: Name
    outputs: Outputs
    epsilon: Epsilon
    delta: Annotated[float, Field(gt=0, lt=1)]
    selection: SelectionInfo
    screen: Literal["none", "median", "distance"] = "none"
    guarantee: GuaranteeInfo | None
    reasons: Annotated[list[Text], Field(max_length=16, default_factory=list)]
    """Why there is no guarantee."""
    round: Version | None = None
    """The round that is open now."""
    in_force: Version | None = None
    """The latest solved round: the one that reports are accepted for."""


Deployment = Annotated[
    TableDeployment | BallDeployment | PandaDeployment | AnchorsDeployment,
    Field(discriminator="kind"),
]
deployment_request: TypeAdapter[
    TableDeploymentRequest
    | BallDeploymentRequest
    | PandaDeploymentRequest
    | AnchorsDeploymentRequest
] = TypeAdapter(DeploymentRequest)
deployment_info: TypeAdapter[
    TableDeployment | BallDeployment | PandaDeployment | AnchorsDeployment
] = TypeAdapter(Deployment)


class DeploymentList(Message):
    """GET /v1/deployments."""

    deployments: list[Deployment]


class BallRequest(Message):
    """POST /v1/deployments/{name}/balls: the centre that was drawn, a record of the domain."""

    id: ClientId
    centre: Index
    compact: bool = False
    """Whether the rows are to come as `CompactBallRows`."""


class BallRows(Message):
    """The rows of all records within the radius of the centre; `signing.rows_bytes` is signed."""

    version: Version
    centre: Index
    records: Indices
    outputs: Outputs
    weights: Rows
    guarantee: GuaranteeInfo
    signature: Base64
    key_id: Hex


class RoundRequest(Message):
    """POST /v1/deployments/{name}/rounds: a round closes by time, by users, or by hand."""

    closes_after_s: Annotated[float, Field(gt=0, le=366 * 86_400)] | None = None
    closes_at_users: Annotated[int, Field(ge=1, le=1_000_000)] | None = None


RoundState = Literal["open", "solving", "solved", "failed"]
UserState = Literal["silent", "uploaded", "filtered", "served"]


class RoundUser(Message):
    """GET .../rounds/{n}/me: what became of the own upload."""

    round: Version
    state: UserState


class RoundInfo(Message):
    """GET /v1/deployments/{name}/rounds/{n}."""

    round: Version
    state: RoundState
    users: Count
    filtered: Count = 0
    opened: datetime
    closes_at: datetime | None = None
    closes_at_users: int | None = None
    error: Text | None = None


class RoundList(Message):
    """GET /v1/deployments/{name}/rounds."""

    rounds: list[RoundInfo]


class AnchorsRequest(Message):
    """POST .../rounds/{n}/anchors: the anchors that were drawn, distinct, ascending."""

    id: ClientId
    anchors: Indices

    @model_validator(mode="after")
    def _ascending(self) -> AnchorsRequest:
        if any(b <= a for a, b in zip(self.anchors, self.anchors[1:], strict=False)):
            msg = "anchors must be distinct and ascending"
            raise ValueError(msg)
        return self


class AnchorsAccepted(Message):
    """The answer to an upload; it does not repeat the anchors."""

    id: ClientId
    round: Version
    accepted: Literal[True] = True


class PlanInfo(Message):
    """What the server's audit of a round found. `guarantee` None: none, for `reasons`."""

    guarantee: GuaranteeInfo | None
    reasons: Annotated[list[Text], Field(max_length=16, default_factory=list)]
    violation: Probability | None = None
    """The largest probability, over all pairs, of a release beyond epsilon d."""
    phase_one_epsilon: Annotated[float, Field(ge=0)] | None = None
    anchors: Count
    """Anchors in the union of all users."""
    loss: float | None = None
    lower_bound: float | None = None


class RoundRows(Message):
    """GET .../rounds/{n}/rows: the rows of the anchors that this token uploaded."""

    round: Version
    anchors: Indices
    outputs: Outputs
    weights: Rows
    plan: PlanInfo
    signature: Base64
    key_id: Hex
