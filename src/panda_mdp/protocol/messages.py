"""Every message of the protocol, version 1: what may travel between a client and a server.

Models are strict and closed: no conversion, no unknown field, bounded sizes, finite numbers. A
request has no field in which a user's record could travel: a client sends outputs and anchors that
were drawn, ids that it made from the operating system's generator, and nothing else. Validation
errors name the field and never show the value.

Weights have 62 bits and travel as decimal strings, because a JSON number in a browser has 53.
"""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator

PROTOCOL = 1
SERVICE = "panda-mdp"

MOST_RECORDS = 1_000_000
MOST_OUTPUTS = 65_536
MOST_LOSSES = 4_000_000
"""Entries of a matrix (losses, distances) that may travel as JSON."""
MOST_NODES = 2_000_000
MOST_TOKENS = 10_000

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", max_length=64)]
"""Names of tables, deployments and domains: safe in a path, an ETag and a log."""
ClientId = Annotated[
    str,
    Field(
        pattern=r"^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$",
        min_length=36,
        max_length=36,
    ),
]
"""An id that a client made: a random UUID (version 4) in lower case."""
Hex = Annotated[str, Field(pattern=r"^[0-9a-f]{16,64}$", max_length=64)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", min_length=64, max_length=64)]
Base64 = Annotated[str, Field(pattern=r"^[A-Za-z0-9+/]{4,128}={0,2}$", max_length=130)]
Text = Annotated[str, Field(max_length=2_000)]
Label = Annotated[str, Field(max_length=200, pattern=r"^[^\x00]*$")]
"""Any text but NUL, which PostgreSQL does not store."""
Index = Annotated[int, Field(ge=0, lt=MOST_RECORDS)]
Count = Annotated[int, Field(ge=0, lt=2**53)]
Version = Annotated[int, Field(ge=1, lt=2**31)]
Epsilon = Annotated[float, Field(gt=0, le=1e9)]
Probability = Annotated[float, Field(ge=0, le=1)]
Weight = Annotated[str, Field(pattern=r"^(0|[1-9][0-9]{0,18})$", max_length=19)]
"""An integer weight over 2^62, in decimal digits."""
Indices = Annotated[list[Index], Field(max_length=MOST_RECORDS)]
Outputs = Annotated[list[Index], Field(min_length=1, max_length=MOST_OUTPUTS)]
Degrees = Annotated[float, Field(ge=-180, le=360)]
Row = Annotated[list[Weight], Field(min_length=1, max_length=MOST_OUTPUTS)]
Rows = Annotated[list[Row], Field(max_length=MOST_RECORDS)]
Losses = Annotated[list[float], Field(max_length=MOST_OUTPUTS)]
Unit = Annotated[str, Field(min_length=1, max_length=32, pattern=r"^[ -~]+$")]

Role = Literal["admin", "reporter"]
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
    "range",
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
        regex_engine="rust-regex",
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


class Health(Message):
    """GET /v1/health."""

    status: Literal["ok"] = "ok"


class GuaranteeInfo(Message):
    """(epsilon, delta) per unit of the domain's metric, for all that one user releases once."""

    epsilon: Annotated[float, Field(ge=0)]
    delta: Probability = 0.0
    unit: Unit


class StreetsUpload(Message):
    """A road network for drawing: nodes in degrees, edges by node."""

    lat: Annotated[list[Annotated[float, Field(ge=-90, le=90)]], Field(max_length=MOST_NODES)]
    lon: Annotated[list[Degrees], Field(max_length=MOST_NODES)]
    u: Annotated[list[Annotated[int, Field(ge=0, lt=MOST_NODES)]], Field(max_length=MOST_NODES)]
    v: Annotated[list[Annotated[int, Field(ge=0, lt=MOST_NODES)]], Field(max_length=MOST_NODES)]

    @model_validator(mode="after")
    def _fits(self) -> StreetsUpload:
        if len(self.lat) != len(self.lon) or len(self.u) != len(self.v):
            msg = "lat and lon, u and v must have as many entries as each other"
            raise ValueError(msg)
        if any(node >= len(self.lat) for end in (self.u, self.v) for node in end):
            msg = "u and v must be nodes"
            raise ValueError(msg)
        return self


class Streets(Message):
    """GET /v1/domains/{id}/streets: degrees as integers over 1e6."""

    lat: Annotated[list[int], Field(max_length=MOST_NODES)]
    lon: Annotated[list[int], Field(max_length=MOST_NODES)]
    u: Annotated[list[int], Field(max_length=MOST_NODES)]
    v: Annotated[list[int], Field(max_length=MOST_NODES)]


class DomainArrays(Message):
    """Records with their metric; exactly the arrays of `kind` are given.

    haversine: `lat`, `lon` in degrees, unit km. euclidean: `vectors`. matrix: `distances`.
    """

    kind: Literal["haversine", "euclidean", "matrix"]
    unit: Unit = "km"
    lat: (
        Annotated[list[Annotated[float, Field(ge=-90, le=90)]], Field(max_length=MOST_RECORDS)]
        | None
    ) = None
    lon: Annotated[list[Degrees], Field(max_length=MOST_RECORDS)] | None = None
    vectors: (
        Annotated[
            list[Annotated[list[float], Field(min_length=1, max_length=4096)]],
            Field(max_length=MOST_RECORDS),
        ]
        | None
    ) = None
    distances: (
        Annotated[list[Annotated[list[float], Field(max_length=2_000)]], Field(max_length=2_000)]
        | None
    ) = None

    @model_validator(mode="after")
    def _arrays_of_kind(self) -> DomainArrays:
        wanted = {"haversine": {"lat", "lon"}, "euclidean": {"vectors"}, "matrix": {"distances"}}
        names = ("lat", "lon", "vectors", "distances")
        given = {name for name in names if getattr(self, name) is not None}
        if given != wanted[self.kind]:
            msg = f"kind {self.kind} needs exactly {' and '.join(sorted(wanted[self.kind]))}"
            raise ValueError(msg)
        if self.kind == "haversine" and self.unit != "km":
            msg = "places are in km"
            raise ValueError(msg)
        return self


class DomainRequest(DomainArrays):
    """POST /v1/domains."""

    name: Name
    streets: StreetsUpload | None = None


class DomainInfo(Message):
    """One domain in GET /v1/domains, and the answer to its POST."""

    id: Name
    name: Name
    kind: Literal["haversine", "euclidean", "angular", "matrix"]
    unit: Unit
    records: Count
    fingerprint: Sha256
    streets: bool = False
    created: datetime


class DomainDetail(DomainArrays):
    """GET /v1/domains/{id}: the whole domain, always; never a part that depends on a place."""

    id: Name
    name: Name
    records: Count
    fingerprint: Sha256
    streets: bool = False
    created: datetime


class DomainList(Message):
    """GET /v1/domains."""

    domains: list[DomainInfo]


class TableRef(Message):
    """A version of a table."""

    name: Name
    version: Version


class TableInfo(Message):
    """GET /v1/tables/{name}/{version}: what a table claims, and the operator's signature.

    `signature` is over `signing.table_bytes`. Nothing here is proof of privacy: a client audits
    the file itself.
    """

    name: Name
    version: Version
    domain: Sha256
    unit: Unit
    records: Count
    outputs: Count
    epsilon: Epsilon
    audited_epsilon: Annotated[float, Field(ge=0)]
    loss: float
    lower_bound: float | None = None
    gap: float | None = None
    loss_cost: float
    size_bytes: Annotated[int, Field(gt=0, lt=2**40)]
    sha256: Sha256
    signature: Base64
    key_id: Hex
    created: datetime
    streets: Name | None = None
    """The id of a domain whose streets may be drawn below this table."""


class TableList(Message):
    """GET /v1/tables."""

    tables: list[TableInfo]


class DistanceLoss(Message):
    """Loss: the distance from record to output."""

    kind: Literal["distance"] = "distance"


class MatrixLoss(Message):
    """Loss: records x outputs, given."""

    kind: Literal["matrix"] = "matrix"
    values: Annotated[list[Losses], Field(max_length=MOST_RECORDS)]

    @model_validator(mode="after")
    def _size(self) -> MatrixLoss:
        if sum(len(row) for row in self.values) > MOST_LOSSES:
            msg = f"values has more than {MOST_LOSSES} entries"
            raise ValueError(msg)
        return self


Loss = Annotated[DistanceLoss | MatrixLoss, Field(discriminator="kind")]


class JobRequest(Message):
    """POST /v1/jobs: solve a table for a domain and publish it under a name."""

    id: ClientId
    table: Name
    domain: Name
    outputs: Outputs
    loss: Loss = DistanceLoss()
    epsilon: Epsilon
    gap: Annotated[float, Field(gt=0, lt=1)] = 0.01
    time_limit: Annotated[float, Field(gt=0, le=86_400)] | None = None
    prior: Annotated[list[Annotated[float, Field(ge=0)]], Field(max_length=MOST_RECORDS)] | None = (
        None
    )


class Progress(Message):
    """How far a solve is."""

    iterations: Count = 0
    loss: float | None = None
    lower_bound: float | None = None
    gap: float | None = None
    seconds: Annotated[float, Field(ge=0)] = 0.0


JobState = Literal["queued", "running", "done", "failed", "cancelled"]


class JobInfo(Message):
    """GET /v1/jobs/{id}."""

    id: ClientId
    state: JobState
    table: TableRef | None = None
    name: Name
    domain: Name
    epsilon: Epsilon
    progress: Progress
    error: Text | None = None
    created: datetime


class JobList(Message):
    """GET /v1/jobs."""

    jobs: list[JobInfo]


class Advice(Message):
    """What the operator suggests; a client's own limits decide."""

    period_s: Annotated[int, Field(ge=1, le=366 * 86_400)] = 86_400
    reports_per_period: Annotated[int, Field(ge=1, le=1_000_000)] = 1


class SelectionInfo(Message):
    """The paper's Phase I (`BernoulliAnchors`): decay, alpha, lambda, gamma, tail, candidates."""

    decay: Literal["exponential", "power", "logistic"]
    alpha: Annotated[float, Field(gt=0, lt=1)]
    lam: Annotated[float, Field(ge=0, le=1e9)]
    gamma: Annotated[float, Field(gt=0)] | None = None
    tail: Annotated[float, Field(gt=0, lt=1)] | Literal["clip"] = "clip"
    candidates: Indices | None = None
    neighbours: Annotated[int, Field(ge=1, le=MOST_RECORDS)] = 20
    delta_selection: Probability = 0.0


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
    TableDeploymentRequest | BallDeploymentRequest | AnchorsDeploymentRequest,
    Field(discriminator="kind"),
]


class DeploymentPatch(Message):
    """PATCH /v1/deployments/{name}: another table in force, or open and closed."""

    table: TableRef | None = None
    open: bool | None = None


class Deployed(Advice):
    """What all deployments say about themselves."""

    name: Name
    version: Version
    """Changes whenever the table in force changes; reports name it (rounds for `anchors`)."""
    open: bool
    snap_km: Annotated[float, Field(gt=0)]
    created: datetime


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
    reasons: Annotated[list[Text], Field(max_length=16)] = []
    """Why there is no guarantee."""
    round: Version | None = None
    """The round that is open now."""
    in_force: Version | None = None
    """The latest solved round: the one that reports are accepted for."""


Deployment = Annotated[
    TableDeployment | BallDeployment | AnchorsDeployment, Field(discriminator="kind")
]
deployment_request: TypeAdapter[
    TableDeploymentRequest | BallDeploymentRequest | AnchorsDeploymentRequest
] = TypeAdapter(DeploymentRequest)
deployment_info: TypeAdapter[TableDeployment | BallDeployment | AnchorsDeployment] = TypeAdapter(
    Deployment
)


class DeploymentList(Message):
    """GET /v1/deployments."""

    deployments: list[Deployment]


class BallRequest(Message):
    """POST /v1/deployments/{name}/balls: the centre that was drawn, a record of the domain."""

    id: ClientId
    centre: Index


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
    reasons: Annotated[list[Text], Field(max_length=16)] = []
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


class ReportRequest(Message):
    """POST /v1/deployments/{name}/reports: an output that was drawn, and nothing else."""

    id: ClientId
    version: Version
    output: Index


class ReportAccepted(Message):
    """The answer to a report, the first time and every time."""

    id: ClientId
    accepted: Literal[True] = True


class ReportLine(Message):
    """One line of the export, GET .../reports (NDJSON)."""

    seq: Count
    at: datetime
    version: Version
    output: Index
    user: Label


class HourCount(Message):
    """Reports of one hour."""

    hour: datetime
    count: Count


class Counts(Message):
    """GET .../counts."""

    reports: Count
    outputs: Indices
    counts: Annotated[list[Count], Field(max_length=MOST_OUTPUTS)]
    per_hour: Annotated[list[HourCount], Field(max_length=100_000)]


class Estimate(Message):
    """GET .../estimate: the share of users at each record, with an interval."""

    records: Indices
    share: Annotated[list[Probability], Field(max_length=MOST_RECORDS)]
    low: Annotated[list[Probability], Field(max_length=MOST_RECORDS)]
    high: Annotated[list[Probability], Field(max_length=MOST_RECORDS)]
    iterations: Count
    reports: Count
    confidence: Probability = 0.95


class TokenRequest(Message):
    """POST /v1/tokens."""

    role: Role
    label: Label = ""
    expires_in_s: Annotated[float, Field(gt=0, le=10 * 366 * 86_400)] | None = None
    count: Annotated[int, Field(ge=1, le=MOST_TOKENS)] = 1


class TokenMade(Message):
    """A token, shown once."""

    id: Annotated[str, Field(pattern=r"^[0-9a-f]{12}$")]
    token: Annotated[str, Field(pattern=r"^pmt_[0-9a-f]{12}_[A-Za-z0-9_-]{43}$")]
    role: Role
    label: Label
    expires: datetime | None = None

    def __repr__(self) -> str:
        return f"TokenMade(id={self.id!r}, role={self.role!r}, token=<hidden>)"

    __str__ = __repr__


class TokensMade(Message):
    """The answer to POST /v1/tokens."""

    tokens: list[TokenMade]


class TokenInfo(Message):
    """A token without its secret."""

    id: Annotated[str, Field(pattern=r"^[0-9a-f]{12}$")]
    role: Role
    label: Label
    created: datetime
    expires: datetime | None = None


class TokenList(Message):
    """GET /v1/tokens."""

    tokens: list[TokenInfo]


def new_id() -> str:
    """A client-made id: 122 random bits of the operating system, and nothing else.

    >>> len(new_id()), new_id() != new_id()
    (36, True)
    """
    return str(uuid.uuid4())
