"""Every message of the protocol, version 1: what may travel between a client and a server.

Models are strict and closed: no conversion, no unknown field, bounded sizes, finite numbers. A
request has no field in which a user's record could travel: a client sends outputs and anchors that
were drawn, ids that it made from the operating system's generator, and nothing else. Validation
errors name the field and never show the value.

Domains, tables and jobs are in `message_catalogue`, deployments and rounds in
`message_deployments`; all are imported from here. Weights have 62 bits and travel as decimal
strings, because a JSON number in a browser has 53.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from panda_mdp.protocol.message_catalogue import (
    DistanceLoss,
    DomainArrays,
    DomainDetail,
    DomainInfo,
    DomainList,
    DomainRequest,
    JobInfo,
    JobList,
    JobRequest,
    JobState,
    Loss,
    MatrixLoss,
    Progress,
    Streets,
    StreetsUpload,
    TableInfo,
    TableList,
    TableRef,
)
from panda_mdp.protocol.message_deployments import (
    Advice,
    AnchorsAccepted,
    AnchorsDeployment,
    AnchorsDeploymentRequest,
    AnchorsRequest,
    BallDeployment,
    BallDeploymentRequest,
    BallRequest,
    BallRows,
    Deployed,
    Deployment,
    DeploymentList,
    DeploymentPatch,
    DeploymentRequest,
    PlanInfo,
    RoundInfo,
    RoundList,
    RoundRequest,
    RoundRows,
    RoundState,
    RoundUser,
    SelectionInfo,
    TableDeployment,
    TableDeploymentRequest,
    UserState,
    deployment_info,
    deployment_request,
)
from panda_mdp.protocol.message_types import (
    MOST_LOSSES,
    MOST_NODES,
    MOST_OUTPUTS,
    MOST_RECORDS,
    MOST_TOKENS,
    PROTOCOL,
    SERVICE,
    Base64,
    ClientId,
    Count,
    Degrees,
    Epsilon,
    ErrorCode,
    GuaranteeInfo,
    Hex,
    Index,
    Indices,
    Label,
    Losses,
    Message,
    Name,
    Outputs,
    Probability,
    Role,
    Row,
    Rows,
    Sha256,
    Text,
    Unit,
    Version,
    Weight,
    new_id,
)

__all__ = [
    "MOST_LOSSES",
    "MOST_NODES",
    "MOST_OUTPUTS",
    "MOST_RECORDS",
    "MOST_TOKENS",
    "PROTOCOL",
    "SERVICE",
    "Advice",
    "AnchorsAccepted",
    "AnchorsDeployment",
    "AnchorsDeploymentRequest",
    "AnchorsRequest",
    "BallDeployment",
    "BallDeploymentRequest",
    "BallRequest",
    "BallRows",
    "Base64",
    "ClientId",
    "Count",
    "Counts",
    "Degrees",
    "Deployed",
    "Deployment",
    "DeploymentList",
    "DeploymentPatch",
    "DeploymentRequest",
    "DistanceLoss",
    "DomainArrays",
    "DomainDetail",
    "DomainInfo",
    "DomainList",
    "DomainRequest",
    "Epsilon",
    "ErrorBody",
    "ErrorCode",
    "ErrorDetail",
    "Estimate",
    "GuaranteeInfo",
    "Health",
    "Hex",
    "HourCount",
    "Index",
    "Indices",
    "JobInfo",
    "JobList",
    "JobRequest",
    "JobState",
    "KeyInfo",
    "Label",
    "Loss",
    "Losses",
    "MatrixLoss",
    "Message",
    "Name",
    "Outputs",
    "PlanInfo",
    "Probability",
    "Progress",
    "ReportAccepted",
    "ReportLine",
    "ReportRequest",
    "Role",
    "RoundInfo",
    "RoundList",
    "RoundRequest",
    "RoundRows",
    "RoundState",
    "RoundUser",
    "Row",
    "Rows",
    "SelectionInfo",
    "ServiceInfo",
    "Sha256",
    "Streets",
    "StreetsUpload",
    "TableDeployment",
    "TableDeploymentRequest",
    "TableInfo",
    "TableList",
    "TableRef",
    "Text",
    "TokenInfo",
    "TokenList",
    "TokenMade",
    "TokenRequest",
    "TokensMade",
    "Unit",
    "UserState",
    "Version",
    "Weight",
    "deployment_info",
    "deployment_request",
    "new_id",
]


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
