"""A deployment that a client has checked: what it draws from and what a release costs.

A plan is made from public things alone and before the record is known, so nothing that is fetched
for it can depend on the record. Its `cost` is the client's own reckoning, not the server's claim:

    table     epsilon of the table, audited over all pairs, or over every point of its area
    panda     (epsilon, delta) of the file, both phases accounted for over all pairs
    ball      (epsilon_1 + 2 epsilon_2, delta): centres audited, radius exact, rows audited later
    anchors   (epsilon, delta) where the certificate over all pairs holds; otherwise no guarantee
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np

from panda_mdp.base.arrays import FloatArray, IntArray, frozen
from panda_mdp.base.floored import FlooredRows, owned
from panda_mdp.base.sealing import Failed, attempt
from panda_mdp.compute.rate import LOG_ERROR
from panda_mdp.errors import DomainError, MethodError, ProtocolError
from panda_mdp.loss import distance_loss
from panda_mdp.panda.options import Options
from panda_mdp.panda.panda_table import PandaTable
from panda_mdp.panda.selection.ball import BallAnchors
from panda_mdp.panda.selection.bernoulli import BernoulliAnchors
from panda_mdp.panda.selection.centres import BallLaw
from panda_mdp.privacy.audit import audit_weights
from panda_mdp.privacy.guarantee import Guarantee, compose
from panda_mdp.privacy.quantise import TOTAL
from panda_mdp.problem import Problem
from panda_mdp.protocol.client.record import (
    Record,
    Snapping,
    seal_index,
    seal_place,
    seal_point,
)
from panda_mdp.protocol.ledger.allowance import account_of
from panda_mdp.protocol.messages.catalogue import DomainDetail
from panda_mdp.protocol.messages.deployments import (
    AnchorsDeployment,
    BallDeployment,
    BallRows,
    PandaDeployment,
    RoundRows,
    SelectionInfo,
    TableDeployment,
)
from panda_mdp.space.domain import Domain
from panda_mdp.table.everywhere import EverywhereMechanism
from panda_mdp.table.pmdc.compact import CompactTable

BOX_BYTES = 512
"""Room in the ledger for what is drawn and sent, apart from anchors."""
NEAREST_SLACK = {"matrix": 4e-9}
"""How far d(x, s(x')) <= 2 d(x, x') may be off, relatively: see `panda.schemes.ball_scheme`."""
BUDGET_ERROR = 1e-12
"""Relative and absolute; budgets are trimmed by ten times as much (`panda.plan.TRIM`)."""


@dataclass(frozen=True, eq=False)
class Plan:
    """What all deployments share."""

    server: str
    name: str
    version: int
    open: bool
    domain: Domain
    outputs: IntArray
    cost: Guarantee
    """What one release costs: everything that is sent about one record, anchors included."""
    snap_km: float
    sha256: str | None = field(default=None, kw_only=True)
    """Of the table that reports are drawn from, as the log has it; None for rounds of anchors."""
    made: float = field(default_factory=time.monotonic, kw_only=True)
    """When, on this process's clock."""

    @property
    def account(self) -> str:
        """The account of the ledger that is charged."""
        return account_of(self.domain)

    @property
    def guarantee(self) -> Guarantee | None:
        """(epsilon, delta) that this client has checked, or None."""
        return self.cost if np.isfinite(self.cost.epsilon) else None

    @property
    def snapping(self) -> Snapping:
        """What it costs that a place is moved to the nearest record."""
        return Snapping(self.snap_km, self.cost.epsilon)

    @property
    def box_bytes(self) -> int:
        """Bytes that an entry of the ledger takes, the same for every record."""
        return BOX_BYTES

    def place(self, lat: float, lon: float) -> Record:
        """The record nearest to a place; `SnapError` beyond `snap_km`. Stays in memory."""
        sealed = attempt(seal_place, self.domain, lat, lon, self.snap_km)
        # The frame of the error below must not show the place.
        del lat, lon
        if isinstance(sealed, Failed):
            raise sealed.error()
        return sealed

    def record(self, index: int) -> Record:
        """A record by its index, for domains that are not places."""
        sealed = attempt(seal_index, self.domain, index)
        del index
        if isinstance(sealed, Failed):
            raise sealed.error()
        return sealed

    def where(self, output: int) -> tuple[float, float] | None:
        """Latitude and longitude of an output; None where records are not places."""
        if not self.domain.geographic:
            return None
        return float(self.domain.lat[output]), float(self.domain.lon[output])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}, version {self.version}, {self.cost})"


@dataclass(frozen=True, eq=False, repr=False)
class TablePlan(Plan):
    """Everyone has the whole table: nothing is sent but the report."""

    table: CompactTable | EverywhereMechanism
    weights: IntArray | FlooredRows
    """All rows, decoded at once: looking one up takes the same time for every record."""

    @classmethod
    def of(
        cls, server: str, info: TableDeployment, table: CompactTable, snap_km: float
    ) -> TablePlan:
        """The plan of a table that was verified."""
        return cls(
            server=server,
            name=info.name,
            version=info.version,
            open=info.open,
            domain=table.domain,
            outputs=table.outputs,
            cost=Guarantee(table.epsilon, 0.0, table.domain.unit),
            snap_km=snap_km,
            sha256=info.table.sha256,
            table=table,
            weights=owned(table.weights()),
        )


@dataclass(frozen=True, eq=False, repr=False)
class EverywherePlan(TablePlan):
    """A table for every point: a place is not snapped, and a vertex is drawn for each report.

    The same place has no answer that is kept: a repeated one would tell that the same vertex was
    drawn, which depends on the place beyond epsilon. So every report draws and pays.
    """

    points: EverywhereMechanism

    @classmethod
    def over(cls, server: str, info: TableDeployment, table: EverywhereMechanism) -> EverywherePlan:
        """The plan of a file that was verified, at every point."""
        return cls(
            server=server,
            name=info.name,
            version=info.version,
            open=info.open,
            domain=table.problem.domain,
            outputs=table.problem.outputs,
            cost=Guarantee(table.epsilon, 0.0, table.problem.domain.unit),
            snap_km=table.everywhere.resolution_km,
            sha256=info.table.sha256,
            table=table,
            weights=owned(table.weights),
            points=table,
        )

    def place(self, lat: float, lon: float) -> Record:
        """A place in the area; `SnapError` outside. Stays in memory."""
        sealed = attempt(seal_point, self.points, lat, lon)
        # The frame of the error below must not show the place.
        del lat, lon
        if isinstance(sealed, Failed):
            raise sealed.error()
        return sealed


@dataclass(frozen=True, eq=False, repr=False)
class PandaPlan(Plan):
    """Everyone has the whole file of PAnDA: both phases run here, and only the report is sent."""

    table: PandaTable

    @classmethod
    def of(cls, server: str, info: PandaDeployment, table: PandaTable, snap_km: float) -> PandaPlan:
        """The plan of a file that was verified: its cost is what this client computed."""
        if table.problem.reports.records is None:
            msg = "the outputs of this deployment are no records; reports here are"
            raise ProtocolError(msg)
        return cls(
            server=server,
            name=info.name,
            version=info.version,
            open=info.open,
            domain=table.problem.domain,
            outputs=table.problem.outputs,
            cost=table.guarantee,
            snap_km=snap_km,
            sha256=info.table.sha256,
            table=table,
        )


@dataclass(frozen=True, eq=False, repr=False)
class BallPlan(Plan):
    """A centre is drawn and sent, the rows of its ball come back, the report is drawn from them."""

    law: BallLaw
    epsilon_2: float

    @classmethod
    def of(cls, server: str, info: BallDeployment, domain: Domain, snap_km: float) -> BallPlan:
        """The plan of a ball deployment on a domain that was fetched whole."""
        selection = BallAnchors(
            epsilon=info.epsilon_1,
            delta=info.delta,
            candidates=None if info.candidates is None else np.array(info.candidates),
            centre="exponential",
        )
        unit = domain.unit
        own = compose(
            Guarantee(info.epsilon_1, 0.0, unit),
            Guarantee(2 * info.table.epsilon, info.delta, unit),
        )
        # Rounding may make the server claim a trifle more; never less is charged.
        claimed = info.guarantee.epsilon
        cost = Guarantee(max(own.epsilon, claimed), own.delta, unit)
        return cls(
            server=server,
            name=info.name,
            version=info.version,
            open=info.open,
            domain=domain,
            # The ball brings its outputs along.
            outputs=np.empty(0, dtype=np.int64),
            cost=cost,
            snap_km=snap_km,
            sha256=info.table.sha256,
            law=selection.on(domain),
            epsilon_2=info.table.epsilon,
        )

    def check(self, centre: int, rows: BallRows) -> IntArray:
        """The weights of a ball, where it is the right one and epsilon_2-mDP over all its pairs.

        That is all that (epsilon_1 + 2 epsilon_2, delta) needs of a table: whatever record it was,
        the rows that can be used are those of this ball (`panda.schemes.ball_scheme`).
        """
        ball = self.law.ball(int(np.argmax(self.law.centres == centre)))
        if rows.centre != centre or rows.records != ball.tolist():
            msg = "the server sent other records than those of the ball that was asked for"
            raise ProtocolError(msg)
        weights = parse_rows(rows.weights, len(ball), len(rows.outputs))
        outputs = check_outputs(rows.outputs, self.domain)
        if len(ball) > 1:
            verdict = audit_weights(self.domain.take(ball), outputs, weights, self.epsilon_2)
            slack = NEAREST_SLACK.get(self.domain.metric.kind, 1e-12)
            whole = self.law.mechanism.epsilon + 2 * verdict.epsilon * (1 + slack)
            if not verdict.holds or whole > self.cost.epsilon:
                msg = (
                    f"the rows of the ball are {verdict.epsilon:g}-mDP and not {self.epsilon_2:g}; "
                    "nothing is reported from them"
                )
                raise ProtocolError(msg)
        return weights


@dataclass(frozen=True, eq=False, repr=False)
class AnchorsPlan(Plan):
    """The paper: anchors are sent, a round is solved, the nearest own anchor's row is used."""

    selection: BernoulliAnchors
    budgets: FloatArray | None
    """What rows may differ by between candidates, nats; None where there is no guarantee."""
    candidates: IntArray
    reasons: tuple[str, ...]
    """Why there is no guarantee; empty where there is one."""
    round: int | None
    """The round that is open."""

    @classmethod
    def of(
        cls, server: str, info: AnchorsDeployment, domain: Domain, snap_km: float
    ) -> AnchorsPlan:
        """Certify the deployment with the client's own distances, over all pairs of records.

        The certificate bounds the violation probability for one user and one set, whatever other
        users upload, provided that rows keep the budgets, which `check` looks at.
        """
        selection = _selection(info.selection)
        outputs = check_outputs(info.outputs, domain)
        # The guarantee does not depend on losses; any will do.
        problem = Problem(domain, outputs, distance_loss(domain, outputs), info.epsilon)
        options = Options(
            neighbours=info.selection.neighbours, delta_selection=info.selection.delta_selection
        )
        scheme = selection.scheme(problem, info.delta, options)
        failure = scheme.failure
        safe = failure is None
        return cls(
            server=server,
            name=info.name,
            version=info.version,
            open=info.open,
            domain=domain,
            outputs=outputs,
            cost=Guarantee(
                info.epsilon if safe else float("inf"), info.delta if safe else 1.0, domain.unit
            ),
            snap_km=snap_km,
            selection=selection,
            budgets=scheme.plan.budgets if safe else None,
            candidates=selection.on(domain).candidates,
            reasons=() if failure is None else (str(failure),),
            round=info.round,
        )

    @property
    def box_bytes(self) -> int:
        """Room for one bit per record, as hexadecimal digits, whichever anchors are drawn."""
        return BOX_BYTES + 2 * ((self.domain.size + 7) // 8)

    def check(self, anchors: list[int], rows: RoundRows) -> IntArray:
        """The weights of the own anchors, where they are the right ones and keep the budgets."""
        if rows.anchors != anchors or rows.outputs != self.outputs.tolist():
            msg = "the server sent rows of other anchors or outputs than those of this round"
            raise ProtocolError(msg)
        weights = parse_rows(rows.weights, len(anchors), len(self.outputs))
        if self.budgets is not None:
            at = np.searchsorted(self.candidates, np.array(anchors))
            self._check_budgets(weights, self.budgets[np.ix_(at, at)])
        return weights

    def _check_budgets(self, weights: IntArray, budgets: FloatArray) -> None:
        zero = weights == 0
        mixed = bool((zero.any(axis=0) & ~zero.all(axis=0)).any())
        logs = np.log(np.where(zero, 1, weights).astype(np.float64))
        for a in range(len(weights)):
            gaps = np.abs(logs - logs[a]).max(axis=1)
            gaps[(weights == weights[a]).all(axis=1)] = -LOG_ERROR
            room = budgets[a] * (1 + BUDGET_ERROR) + BUDGET_ERROR
            if mixed or (gaps + LOG_ERROR > room).any():
                msg = (
                    "the rows of this round differ by more than the budgets between anchors, so "
                    "the guarantee does not hold; nothing is reported from them"
                )
                raise ProtocolError(msg)


def domain_of(detail: DomainDetail) -> Domain:
    """The domain of a message, checked as any other, with its fingerprint."""
    try:
        if detail.kind == "haversine":
            made = Domain.from_points(np.array(detail.lat), np.array(detail.lon))
        elif detail.kind == "euclidean":
            made = Domain.from_vectors(np.array(detail.vectors), unit=detail.unit)
        else:
            made = Domain.from_matrix(np.array(detail.distances), unit=detail.unit)
    except (DomainError, ValueError) as error:
        msg = f"the server's domain cannot be used: {error}"
        raise ProtocolError(msg) from None
    if made.fingerprint != detail.fingerprint:
        msg = "the server's domain is not the one of its fingerprint; fetch it again"
        raise ProtocolError(msg)
    return made


def check_outputs(outputs: list[int], domain: Domain) -> IntArray:
    """Outputs of a message as records of the domain."""
    chosen = np.array(outputs, dtype=np.int64)
    if len(np.unique(chosen)) != len(chosen) or chosen.max() >= domain.size:
        msg = "the outputs are not distinct records of the domain"
        raise ProtocolError(msg)
    return frozen(chosen)


def parse_rows(rows: list[list[str]], count: int, outputs: int) -> IntArray:
    """Weights from decimal strings; every row must sum to 2^62."""
    if len(rows) != count or any(len(row) != outputs for row in rows):
        msg = f"the rows are not {count} by {outputs}"
        raise ProtocolError(msg)
    if any(sum(map(int, row)) != TOTAL for row in rows):
        msg = "a row of weights does not sum to 2^62"
        raise ProtocolError(msg)
    return np.array([[int(weight) for weight in row] for row in rows], dtype=np.int64).reshape(
        count, outputs
    )


def _selection(info: SelectionInfo) -> BernoulliAnchors:
    try:
        return BernoulliAnchors(
            decay=info.decay,
            alpha=info.alpha,
            rate=info.rate,
            radius=info.radius,
            tail=info.tail,
            candidates=None if info.candidates is None else np.array(info.candidates),
            neighbours=info.neighbours,
        )
    except MethodError as error:
        msg = f"the deployment's selection cannot be used: {error}"
        raise ProtocolError(msg) from None
