"""Messages about what is published: domains and tables."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, model_validator

from panda_mdp.protocol.messages.signing import Signed, signed_bytes
from panda_mdp.protocol.messages.types import (
    MOST_NAMES,
    MOST_NODES,
    Count,
    Epsilon,
    ForRecords,
    Hex,
    Latitude,
    Longitude,
    Message,
    Name,
    NonNegative,
    Sha256,
    Unit,
    Version,
)
from panda_mdp.space.domain import Domain


class PlaceName(Message):
    """The name of a street or of a landmark, and where to write it, in degrees."""

    name: Annotated[str, Field(min_length=1, max_length=120, pattern=r"^[^\x00-\x1f\x7f-\x9f]+$")]
    lat: Latitude
    lon: Longitude
    kind: Literal["street", "landmark"] = "street"


PlaceNames = Annotated[list[PlaceName], Field(max_length=MOST_NAMES, default_factory=list)]
Degrees = Annotated[
    list[Annotated[int, Field(ge=-180_000_000, le=360_000_000)]], Field(max_length=MOST_NODES)
]
Nodes = Annotated[list[Annotated[int, Field(ge=0, lt=MOST_NODES)]], Field(max_length=MOST_NODES)]


class Streets(Message):
    """GET /v1/domains/{id}/streets: a road network for drawing, edges by node; degrees as integers
    over 1e6."""

    lat: Degrees
    lon: Degrees
    u: Nodes
    v: Nodes
    names: PlaceNames
    """In degrees as they are; a person may search them, on the own device."""

    @model_validator(mode="after")
    def _fits(self) -> Streets:
        if len(self.lat) != len(self.lon) or len(self.u) != len(self.v):
            raise ValueError("lat and lon, u and v must have as many entries as each other")
        if max([*self.u, *self.v], default=-1) >= len(self.lat):
            raise ValueError("u and v must be nodes")
        return self


class Places(Message):
    """Records: places in degrees, whose great-circle distances in km everybody computes alike."""

    kind: Literal["haversine"] = "haversine"
    unit: Literal["km"] = "km"
    lat: ForRecords[Latitude]
    lon: ForRecords[Longitude]

    def domain(self) -> Domain:
        """The domain of these places; `DomainError` where they are none."""
        return Domain.from_points(self.lat, self.lon)


class DomainRequest(Places):
    """POST /v1/domains."""

    name: Name
    streets: Streets | None = None


class DomainInfo(Message):
    """The answer to POST /v1/domains."""

    id: Name
    name: Name
    records: Count
    fingerprint: Sha256
    streets: bool = False
    created: datetime


class DomainDetail(Places, DomainInfo):
    """GET /v1/domains/{id}: the whole domain, always; never a part that depends on a place."""


class TableRef(Message):
    """A version of a table."""

    name: Name
    version: Version


class TableInfo(Signed):
    """GET /v1/tables/{name}/{version}: what a table claims, and the operator's signature.

    `signature` is over `signed`. Nothing here is proof of privacy: a client audits
    the file itself.
    """

    name: Name
    version: Version
    domain: Sha256
    unit: Unit
    records: Count
    outputs: Count
    epsilon: Epsilon
    audited_epsilon: NonNegative
    loss: float
    lower_bound: float | None = None
    gap: float | None = None
    loss_cost: float
    size_bytes: Annotated[int, Field(gt=0, lt=2**40)]
    sha256: Sha256
    identity: Sha256
    """Of the table, however its file is written (`table.identity`)."""
    key_id: Hex
    created: datetime
    streets: Name | None = None
    """The id of a domain whose streets may be drawn below this table."""

    @property
    def signed(self) -> bytes:
        """What the operator signs: the name, version, file, claim and identity."""
        file = (self.sha256, self.size_bytes, self.domain)
        return signed_bytes("table", self.name, self.version, *file, self.epsilon, self.identity)


class TableList(Message):
    """GET /v1/tables."""

    tables: list[TableInfo]
