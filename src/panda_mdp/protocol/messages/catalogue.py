"""Messages about what is published: domains, tables, and the jobs that solve tables."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, model_validator

from panda_mdp.protocol.messages.types import (
    MOST_LOSSES,
    MOST_NAMES,
    MOST_NODES,
    MOST_RECORDS,
    Base64,
    ClientId,
    Count,
    Degrees,
    Epsilon,
    Hex,
    Losses,
    Message,
    Name,
    Outputs,
    Sha256,
    Text,
    Unit,
    Version,
)


class PlaceName(Message):
    """The name of a street or of a landmark, and where to write it, in degrees."""

    name: Annotated[str, Field(min_length=1, max_length=120, pattern=r"^[^\x00-\x1f\x7f-\x9f]+$")]
    lat: Annotated[float, Field(ge=-90, le=90)]
    lon: Degrees
    kind: Literal["street", "landmark"] = "street"


class StreetsUpload(Message):
    """A road network for drawing: nodes in degrees, edges by node, names."""

    lat: Annotated[list[Annotated[float, Field(ge=-90, le=90)]], Field(max_length=MOST_NODES)]
    lon: Annotated[list[Degrees], Field(max_length=MOST_NODES)]
    u: Annotated[list[Annotated[int, Field(ge=0, lt=MOST_NODES)]], Field(max_length=MOST_NODES)]
    v: Annotated[list[Annotated[int, Field(ge=0, lt=MOST_NODES)]], Field(max_length=MOST_NODES)]
    names: Annotated[list[PlaceName], Field(max_length=MOST_NAMES, default_factory=list)]

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
    names: Annotated[list[PlaceName], Field(max_length=MOST_NAMES, default_factory=list)]
    """In degrees as they are; a person may search them, on the own device."""


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
