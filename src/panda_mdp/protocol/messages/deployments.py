"""Messages about deployments: what is in force, reports, balls, and the rounds of anchors."""

from __future__ import annotations

import base64
import io
from datetime import date, datetime
from itertools import pairwise
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import AfterValidator, Field, TypeAdapter, model_validator

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.base.text import Facts, picked
from panda_mdp.errors import FileFormatError, MethodError, ProtocolError, SignatureError
from panda_mdp.loss import distance_loss
from panda_mdp.panda.coins import BernoulliAnchors, CoinScheme
from panda_mdp.panda.lattice import APART_KM, BallLaw
from panda_mdp.panda.selection import DEFAULT_OPTIONS, PandaOptions
from panda_mdp.problem import Problem
from panda_mdp.protocol.messages.blind import OneUse
from panda_mdp.protocol.messages.catalogue import Places, TableInfo, TableRef
from panda_mdp.protocol.messages.log import leaf_hash, root_from
from panda_mdp.protocol.messages.signing import Signed, digest_of, statement_bytes
from panda_mdp.protocol.messages.types import (
    MOST_OUTPUTS,
    MOST_RECORDS,
    Base64,
    ClientId,
    Count,
    Day,
    Epsilon,
    ForRecords,
    Fraction,
    GuaranteeInfo,
    Index,
    Indices,
    Label,
    Line,
    Message,
    MetricKind,
    Name,
    NonNegative,
    Outputs,
    Positive,
    Probability,
    Rows,
    Sha256,
    Text,
    Unit,
    Version,
    Weight,
)
from panda_mdp.space.domain import Domain
from panda_mdp.space.tiles import TILE
from panda_mdp.table.blocks import decode_block

NODE_BYTES = 32
Length = Annotated[float, Field(gt=0, le=1e9)]
ReportsPerPeriod = Annotated[int, Field(ge=1, le=1_000_000)]
Reasons = Annotated[list[Text], Field(max_length=16, default_factory=list)]


def _a_day(text: str) -> str:
    date.fromisoformat(text)
    return text


LastDay = Annotated[Day, AfterValidator(_a_day)]


def _ascending(anchors: list[int]) -> list[int]:
    if any(b <= a for a, b in pairwise(anchors)):
        raise ValueError("anchors must be distinct and ascending")
    return anchors


LEAST_ONE_USE_S = 3_600
"""The shortest period of one-use tokens."""


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
    until: LastDay | None = None
    """The last day, in UTC, on which reports are taken; None where no end is promised."""
    one_use: bool = False
    """Reports come with one-use tokens, signed blindly: whose they are is not known."""


class SelectionInfo(Message):
    """The paper's Phase I (`BernoulliAnchors`): decay, alpha, rate, radius, tail, candidates."""

    decay: Literal["exponential", "power", "logistic"]
    alpha: Fraction
    rate: Annotated[float, Field(ge=0, le=1e9)]
    radius: Positive | None = None
    tail: Fraction | Literal["clip"] = "clip"
    candidates: Indices | None = None
    neighbours: Annotated[int, Field(ge=1, le=MOST_RECORDS)] = 20

    def law(self) -> BernoulliAnchors:
        """The law that anchors are drawn by."""
        fields = self.model_dump(exclude={"candidates"})
        candidates = None if self.candidates is None else np.array(self.candidates)
        return BernoulliAnchors(candidates=candidates, **fields)


class Requested(Advice):
    """What every deployment is asked for with."""

    kind: Literal["table", "panda", "ball", "anchors"]
    name: Name

    @model_validator(mode="after")
    def _one_use_fits(self) -> Self:
        if self.one_use and self.kind not in ("table", "panda"):
            raise ValueError("one_use is for kinds table and panda, which send a report alone")
        if self.one_use and self.period_s < LEAST_ONE_USE_S:
            raise ValueError("one_use needs a period_s of 3600 or more: the log has a key for each")
        return self


class TableDeploymentRequest(Requested):
    """Everyone downloads the whole public table, or the file of PAnDA, and sends a report alone."""

    kind: Literal["table", "panda"]
    table: TableRef


class BallTerms(Message):
    """What a centre tells, what rows may tell more than the table's to fade at the edge, how large
    a ball is, and how far from a place the record may be whose row it takes, in km."""

    epsilon_1: Epsilon
    edge: Epsilon
    radius: Length
    snap: Length

    def law(self, domain: Domain, table_epsilon: float) -> BallLaw:
        """How centres are drawn beside rows of a table; `MethodError` where nothing is."""
        law = BallLaw(domain, self.epsilon_1, self.radius, table_epsilon + self.edge, self.edge)
        if domain.metric.kind != "haversine" or not law.least <= APART_KM:
            raise MethodError(
                "balls are for places with distances on the earth, and an edge that pays for the "
                f"rounding of places {APART_KM:g} km apart, not {law.least:.2g}"
            )
        return law


class BallDeploymentRequest(Requested, BallTerms):
    """Everyone draws a centre (epsilon_1) and downloads the ball around it."""

    kind: Literal["ball"]
    table: TableRef


class AnchorsTerms(Message):
    """What sets of anchors are drawn by, and what the tables of rounds keep."""

    domain: Name
    outputs: Outputs
    epsilon: Epsilon
    delta: Fraction
    selection: SelectionInfo

    def scheme(self, domain: Domain, options: PandaOptions = DEFAULT_OPTIONS) -> CoinScheme:
        """What can be proved before anybody uploads, for every set that anybody may draw; raises
        where the parts do not fit each other. It does not depend on losses; distances will do."""
        losses = distance_loss(domain, self.outputs)
        problem = Problem(domain, np.array(self.outputs), losses, self.epsilon)
        return self.selection.law().scheme(problem, self.delta, options)


class AnchorsDeploymentRequest(Requested, AnchorsTerms):
    """The paper: rounds of anchor uploads, a table over their union, rows for everyone."""

    kind: Literal["anchors"]
    accept_no_guarantee: bool = False
    """Open it although no guarantee could be certified; every answer then says that."""


AnyRequest = TableDeploymentRequest | BallDeploymentRequest | AnchorsDeploymentRequest
DeploymentRequest = Annotated[AnyRequest, Field(discriminator="kind")]


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
    metric: MetricKind
    unit: Unit
    domain: Sha256
    epsilon: NonNegative | None
    """What one release costs, per unit; None where there is no guarantee."""
    delta: Probability
    table: TableRef | None = None
    table_identity: Sha256 | None = None
    """Of the table in force, however its file is written."""
    epsilon_1: Epsilon | None = None
    edge: Epsilon | None = None
    radius: Length | None = None
    snap: Length | None = None
    rows: Sha256 | None = None
    """The root over the tiles of a table that balls are cut from."""
    tiles: Count | None = None
    places: Sha256 | None = None
    """Of the outputs, and of records that the plane of centres comes from."""
    outputs: Sha256 | None = None
    selection: Sha256 | None = None

    @property
    def content(self) -> str:
        """A digest of what is stated, whenever it was signed."""
        return digest_of(self.model_dump(mode="json", exclude={"issued"}))


class DeploymentPatch(Message):
    """PATCH /v1/deployments/{name}: another table in force, open and closed, other limits.

    What is signed changes with a table and with limits, and so does the version.
    """

    table: TableRef | None = None
    open: bool | None = None
    reports_per_period: ReportsPerPeriod | None = None
    until: Day | None = None


class Deployed(Advice, Signed):
    """What all deployments say about themselves."""

    name: Name
    version: Version
    """Changes whenever the table in force changes; reports name it (rounds for `anchors`)."""
    open: bool
    created: datetime
    statement: Annotated[str, Field(max_length=4_000)]
    """A `Statement` as the text that was signed."""

    @property
    def signed(self) -> bytes:
        """What the operator signs: the name, and the very text of the statement."""
        return statement_bytes(self.name, self.statement)

    def stated(self) -> Facts:
        """What a statement about this deployment must say, by field."""
        return picked(self, "name", *Advice.model_fields)


class TableBased(Deployed):
    """A deployment of a table that was published."""

    table: TableInfo
    guarantee: GuaranteeInfo

    def stated(self) -> Facts:
        """The table, and what one release from it costs."""
        return super().stated() | {
            "version": self.version,
            "epsilon": self.guarantee.epsilon,
            "delta": self.guarantee.delta,
            "unit": self.table.unit,
            "domain": self.table.domain,
            "table": TableRef(name=self.table.name, version=self.table.version),
            "table_identity": self.table.identity,
        }


class TableDeployment(TableBased):
    """GET /v1/deployments/{name}, kind table."""

    kind: Literal["table"] = "table"


class BallDeployment(TableBased, BallTerms):
    """GET /v1/deployments/{name}, kind ball.

    No client needs the map: `places` are those of the outputs, then of up to eight records that
    have the plane and the box of all of them. `guarantee` is epsilon_1 + epsilon of the table +
    edge. `rows` is the root of the tree over all tiles (`tile_leaf`), which every ball is proved to
    be cut from.
    """

    kind: Literal["ball"] = "ball"
    places: Places
    outputs: Outputs
    rows: Sha256
    tiles: Annotated[int, Field(ge=1, le=MOST_RECORDS)]

    def stated(self) -> Facts:
        """The table, its rows, the cost, and what centres are drawn by."""
        terms = picked(self, "rows", "tiles", *BallTerms.model_fields)
        places = digest_of([self.places.lat, self.places.lon])
        digests = {"outputs": digest_of(self.outputs), "places": places, "metric": "haversine"}
        return super().stated() | terms | digests


class PandaDeployment(TableBased):
    """GET /v1/deployments/{name}, kind panda: the file has everything, and proves `guarantee`."""

    kind: Literal["panda"] = "panda"


class AnchorsDeployment(Deployed, AnchorsTerms):
    """GET /v1/deployments/{name}, kind anchors. `guarantee` is None where there is none."""

    kind: Literal["anchors"] = "anchors"
    guarantee: GuaranteeInfo | None
    reasons: Reasons
    """Why there is no guarantee."""
    round: Version | None = None
    """The round that is open now."""
    in_force: Version | None = None
    """The latest solved round: the one that reports are accepted for."""

    def stated(self) -> Facts:
        """Outputs, selection and cost; a deployment of rounds never changes."""
        return super().stated() | {
            "version": 1,
            "epsilon": None if self.guarantee is None else self.guarantee.epsilon,
            "delta": self.delta,
            "outputs": digest_of(self.outputs),
            "selection": digest_of(self.selection.model_dump(mode="json")),
        }


AnyDeployment = TableDeployment | BallDeployment | PandaDeployment | AnchorsDeployment
Deployment = Annotated[AnyDeployment, Field(discriminator="kind")]
deployment_request: TypeAdapter[AnyRequest] = TypeAdapter(DeploymentRequest)
deployment_info: TypeAdapter[AnyDeployment] = TypeAdapter(Deployment)


class DeploymentList(Message):
    """GET /v1/deployments."""

    deployments: list[Deployment]


# Reports


class ReportRequest(Message):
    """POST /v1/deployments/{name}/reports: an output that was drawn, and nothing else.

    `table` is the SHA-256 of the file that it was drawn from, as the log has it for everybody:
    nothing that a server could give to one user alone goes back to it. Rounds of anchors have
    none.
    """

    id: ClientId
    table: Sha256 | None = None
    output: Index
    proof: OneUse | None = None


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


class ZoneEstimate(Message):
    """The share of users in a zone: of their reports, estimated, and its limits."""

    raw: Probability
    share: Probability
    low: Probability
    high: Probability
    told_apart: bool


class Estimate(Message):
    """GET .../estimate: the share of users at each record, and of zones with limits that hold."""

    records: Indices
    share: ForRecords[Probability]
    zone: Indices
    """The number of each record's zone."""
    zones: ForRecords[ZoneEstimate]
    users: Count
    reports: Count
    confidence: Probability = 0.95
    batch: tuple[NonNegative, Probability] | None = None
    """(epsilon, delta) between any two records of who sees counts of these reports and nothing
    else, where each user made one draw of one table; None where that is not so, or not known."""


# Rows of a ball


MOST_CENTRE = 2**31
Coordinate = Annotated[int, Field(ge=-MOST_CENTRE, lt=MOST_CENTRE)]
Centre = tuple[Coordinate, Coordinate]
"""A point of the lattice (`panda.lattice`)."""


class BallRequest(Message):
    """POST /v1/deployments/{name}/balls: the centre that was drawn."""

    centre: Centre


Block = Annotated[str, Field(max_length=1 << 28)]


class BallRows(Places):
    """The tiles that reach into a ball: places, and their rows as they lie in a compact table.

    `proof` has the nodes beside the way from tiles to the root that the operator signed, so
    everybody is given rows of one table. Who is sent fewer tiles than there are has rows as
    private: nothing of the guarantee asks which ones they are.
    """

    version: Version
    centre: Centre
    tiles: Indices
    """Their numbers, ascending."""
    sizes: Annotated[list[Annotated[int, Field(ge=1, le=TILE)]], Field(max_length=MOST_RECORDS)]
    """How many records each has."""
    floors: Annotated[list[Weight], Field(min_length=1, max_length=MOST_OUTPUTS)]
    blocks: Annotated[list[Block], Field(max_length=MOST_RECORDS)]
    """Base64 of a block of rows for each tile (docs/format.md)."""
    proof: Block
    """Base64 of nodes, level by level from the leaves, ascending (`log.root_from`)."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if not len({*self.tiles}) == len(self.sizes) == len(self.blocks) == len(self.tiles):
            raise ValueError("each tile must have a size and a block")
        if not len(self.lat) == len(self.lon) == sum(self.sizes):
            raise ValueError("each record must have a place")
        return self

    def unpack(self, root: str, count: int) -> IntArray:
        """The weights of all places; `SignatureError` unless these are tiles of the table of
        `count` tiles with this root, and the proof has nothing beyond that: of none there is
        none."""
        places = np.array([self.lat, self.lon]).T
        try:
            floors = np.array([int(floor) for floor in self.floors], dtype=np.int64)
            rows = [
                decode_block(base64.b64decode(block, validate=True), size, floors)
                for block, size in zip(self.blocks, self.sizes, strict=True)
            ]
            parts = np.split(places, np.cumsum(self.sizes, dtype=np.int64)[:-1])
            leaves = dict(zip(self.tiles, map(tile_leaf, parts, rows), strict=False))
            nodes = io.BytesIO(base64.b64decode(self.proof, validate=True))
        except (FileFormatError, ValueError, OverflowError) as error:
            raise ProtocolError(
                f"the server's rows cannot be read ({type(error).__name__}); ask again"
            ) from None

        def sibling(*_: int) -> bytes:
            return nodes.read(NODE_BYTES)

        try:
            found = root_from(leaves, count, sibling).hex() if leaves else root
        except ValueError:
            found = ""
        if found != root or nodes.read():
            raise SignatureError(
                "the rows of the ball are not those of the table that the operator signed; do not "
                "report"
            )
        return np.concatenate([np.zeros((0, len(floors)), dtype=np.int64), *rows])


def tile_leaf(places: FloatArray, weights: IntArray) -> bytes:
    """A leaf of the tree over tiles: of each record, by latitude and then longitude, both in
    degrees and its weights in 8 bytes each, low first."""
    rows = np.concatenate([places.astype("<f8").view("<i8"), weights.astype("<i8")], axis=1)
    return leaf_hash(rows[np.lexsort(places.T[::-1])].tobytes())


# Rounds of anchors


class RoundRequest(Message):
    """POST /v1/deployments/{name}/rounds: a round closes by time, by users, or by hand."""

    closes_after_s: Annotated[float, Field(gt=0, le=366 * 86_400)] | None = None
    closes_at_users: Annotated[int, Field(ge=1, le=1_000_000)] | None = None


RoundState = Literal["open", "solving", "solved", "failed"]


class RoundInfo(Message):
    """GET /v1/deployments/{name}/rounds/{n}."""

    round: Version
    state: RoundState
    users: Count
    opened: datetime
    closes_at: datetime | None = None
    closes_at_users: int | None = None
    error: Text | None = None


class RoundList(Message):
    """GET /v1/deployments/{name}/rounds."""

    rounds: list[RoundInfo]


class AnchorsRequest(Message):
    """POST .../rounds/{n}/anchors: the anchors that were drawn, distinct, ascending."""

    anchors: Annotated[Indices, AfterValidator(_ascending)]


class AnchorsAccepted(Message):
    """The answer to an upload; it does not repeat the anchors."""

    round: Version
    accepted: Literal[True] = True


class RoundRows(Message):
    """GET .../rounds/{n}/rows: the rows of the anchors that this token uploaded."""

    round: Version
    anchors: Indices
    outputs: Outputs
    weights: Rows
    signature: Base64
