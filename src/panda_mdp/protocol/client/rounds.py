"""Balls and rounds of anchors: a first draw, what the server sends back for it, a second draw.

Everything that is drawn is in the ledger before each step, so all of them can be done again.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.spatial.distance import cdist

from panda_mdp.base.arrays import FloatArray, IntArray, frozen
from panda_mdp.compute.pairs import LOG_ERROR
from panda_mdp.errors import DomainError, MethodError, ProtocolError, ServerError, sealed
from panda_mdp.panda.coins import BernoulliAnchors
from panda_mdp.panda.lattice import GRID, BallLaw, Centre, to_grid
from panda_mdp.panda.law import surrogates
from panda_mdp.privacy.audit import audit_weights
from panda_mdp.privacy.guarantee import Guarantee
from panda_mdp.privacy.quantise import TOTAL, SystemBits, quantise
from panda_mdp.protocol.client.plans import (
    BOX_BYTES,
    Plan,
    PlanFacts,
    Record,
)
from panda_mdp.protocol.ledger.books import AnchorsDrawn, BallDrawn, Books, Entry
from panda_mdp.protocol.messages.deployments import (
    MOST_CENTRE,
    AnchorsAccepted,
    AnchorsDeployment,
    AnchorsRequest,
    BallDeployment,
    BallRequest,
    BallRows,
    RoundInfo,
    RoundRows,
    Statement,
)
from panda_mdp.protocol.messages.signing import rows_digest, signed_bytes
from panda_mdp.space.domain import Domain, check_record
from panda_mdp.space.metrics import haversine_km
from panda_mdp.space.snapping import check_place

if TYPE_CHECKING:
    from panda_mdp.protocol.client.client import Client

EDGE_KM = 1e-6
"""What rounding may make of a record at the edge of its ball."""
POLL_S = 0.25
LONGEST_POLL_S = 5.0
BUDGET_ERROR = 1e-12
"""Relative and absolute; budgets are trimmed by ten times as much (`panda.plan.TRIM`)."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class BallPlan(Plan):
    """A centre is drawn and sent, the rows of its ball come back, the report is drawn from them.

    Nobody needs the map: the centre is drawn for the place itself, rounded to a grid, and the rows
    come with the places of their records. `domain` has the outputs and what the plane comes from.
    """

    second_step: ClassVar[bool] = True
    info: BallDeployment
    law: BallLaw

    @classmethod
    def of(cls, client: Client, info: BallDeployment) -> BallPlan:
        """The plan of a ball deployment; nothing of the map is fetched."""
        try:
            domain = info.places.domain()
            law = info.law(domain, info.table.epsilon)
        except (MethodError, DomainError) as error:
            raise ProtocolError(f"the deployment has no law of centres: {error}") from None
        if max(int(np.abs(end).max()) for end in law.box) >= MOST_CENTRE:
            raise ProtocolError("the deployment's lattice is finer than centres can be sent of")
        if not len({*info.outputs}) == len(info.outputs) <= domain.size:
            raise ProtocolError("the outputs are not distinct records with places")
        # Rounding may make the server claim a trifle more; never less is charged.
        epsilon = max(law.epsilon + law.second, info.guarantee.epsilon)
        return cls(
            domain=domain,
            cost=Guarantee(epsilon, 0.0, domain.unit),
            server=client.server,
            info=info,
            law=law,
        )

    def check_stated(self, stated: Statement) -> None:
        """Nothing more: the places that there are of records are signed as they are sent."""

    @property
    def size(self) -> int:
        """Those of the table."""
        return self.info.table.records

    @property
    def snap_km(self) -> float:
        """How far from a place the record is whose row it takes, at most."""
        return self.info.snap

    @property
    def snapping(self) -> str:
        """What it costs that a place takes the row of a record near it."""
        nats = 2 * self.snap_km * self.info.table.epsilon
        return (
            f"to 1/{GRID} degrees, and rows of records up to {self.snap_km:.3g} km away: two "
            f"places are epsilon d-indistinguishable, {nats:.3g} nats more"
        )

    @sealed
    def place(self, lat: float, lon: float) -> Record:
        """A place anywhere, rounded to the grid. Stays in memory."""
        check_place(lat, lon)
        cell = to_grid(lat, lon)
        return Record(self.domain.fingerprint, lambda: cell)

    @sealed
    def record(self, index: int) -> Record:
        """The place of a record of `domain`."""
        at = check_record(index, self.domain.size, MethodError)
        return self.place(float(self.domain.lat[at]), float(self.domain.lon[at]))

    def where(self, output: int) -> tuple[float, float] | None:
        """Latitude and longitude of an output."""
        return super().where(self.info.outputs.index(output))

    def draw(self, record: Record) -> BallDrawn:
        """A centre on the lattice; costs epsilon_1."""

        def draw(cell: tuple[int, int]) -> Centre:
            return self.law.draws(self.law.among(*np.divide(cell, GRID)), SystemBits(), 1)[0]

        centre = record.unseal(self.domain, draw)
        return self._drawn(BallDrawn, centre=centre, epsilon_1=self.law.epsilon)

    def still_valid(self, entry: Entry) -> bool:
        """As of all plans; a ball that is not drawn from yet, under the terms it was charged for
        alone: they are the deployment's, and may change without the table."""
        drawn = entry.content
        if isinstance(drawn, BallDrawn) and drawn.output is None and entry.state != "accepted":
            same = (drawn.epsilon_1, entry.cost) == (self.law.epsilon, self.cost)
            return same and super().still_valid(entry)
        return super().still_valid(entry)

    def finish(self, client: Client, record: Record, entry: Entry, wait_s: float) -> Entry:
        """Ask for the ball around the centre, check its rows, draw the output once."""
        del wait_s
        content = entry.drawn(BallDrawn)
        if content.output is not None:
            return entry
        message = BallRequest(centre=content.centre)
        rows = client.wire.post(BallRows, message, "deployments", self.name, "balls")
        # The limits of a deployment may have changed since, and its version with them.
        if rows.version not in (content.version, self.version):
            raise ProtocolError(
                f"the server sent rows of version {rows.version}; make the plan again"
            )
        places, weights = self.check(content.centre, rows)

        def row_of(cell: tuple[int, int]) -> IntArray:
            share, common, own = self.fade(content.centre, places, weights, np.divide(cell, GRID))
            return common if SystemBits().integers(1)[0] < share else own

        return self._with_output(client, record, entry, np.array(self.info.outputs), row_of)

    def fade(
        self, centre: Centre, places: FloatArray, weights: IntArray, place: FloatArray
    ) -> tuple[int, IntArray, IntArray]:
        """Out of 2^62, how often a place reports from the common row of a ball; that row; and the
        row of the nearest record of the ball.

        What decides is how deep the place lies in the ball, and at most how much nearer than
        `snap_km` that record is: either changes by no more than the place does.
        """
        apart = np.append(haversine_km(*place, *places.T), np.inf)
        deep = self.law.depths(centre, self.law.among(*place))
        share, common = self.law.fade(np.minimum([deep], self.snap_km - apart.min()), weights)
        return int(share[0]), common, np.append(weights, [common], axis=0)[apart.argmin()]

    def check(self, centre: tuple[int, int], rows: BallRows) -> tuple[FloatArray, IntArray]:
        """The places of the ball's records, (n, 2) in degrees, and their rows of the table that was
        signed.

        All pairs inside are audited; that rows fade is proved. That is all that the guarantee needs
        of a table: whatever place it was, this ball was asked for because of its centre alone.
        Nothing is unpacked before all tiles are known to reach into the ball.
        """
        places = np.array([rows.lat, rows.lon]).T
        depths = self.law.depths(centre, self.law.flat(rows.lat, rows.lon))
        tile = np.repeat(rows.tiles, rows.sizes)
        if rows.centre != centre or {*tile[depths > -EDGE_KM].tolist()} != {*rows.tiles}:
            raise ProtocolError(
                "the server sent other tiles than those of the ball that was asked for"
            )
        if len(rows.floors) != len(self.info.outputs):
            raise ProtocolError("the server's rows have another number of outputs than it said")
        weights = rows.unpack(self.info.rows, self.info.tiles)
        inside = depths > 0
        places, weights = places[inside], weights[inside]
        limit = self.info.table.epsilon
        told = 0.0
        if len(places) > 1:
            ball, outputs = Domain.from_points(*places.T), np.array(self.info.outputs)
            told = audit_weights(ball, outputs, weights, limit).epsilon
        if not told <= limit:
            raise ProtocolError(
                f"the rows of the ball are {told:g}-mDP and not {limit:g}; nothing is reported "
                "from them"
            )
        return places, weights

    def facts(self) -> PlanFacts:
        """How centres are drawn, and how large balls are."""
        return [
            ("centre", f"epsilon {self.law.epsilon:g} at every place, by proof"),
            ("radius", f"{self.law.radius:.4g} {self.domain.unit}"),
        ]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class AnchorsPlan(Plan):
    """Anchors are sent, a round is solved, the row of the nearest of the user's anchors is used."""

    second_step: ClassVar[bool] = True
    info: AnchorsDeployment
    selection: BernoulliAnchors
    outputs: IntArray
    candidates: IntArray
    budgets: FloatArray | None
    """What rows may differ by between candidates, nats; None where there is no guarantee."""

    @classmethod
    def of(cls, client: Client, info: AnchorsDeployment) -> AnchorsPlan:
        """Certify the deployment with the client's own distances, over all pairs of records.

        The certificate bounds the violation probability for one user and one set, whatever other
        users upload, provided that rows keep the budgets, which `check` looks at.
        """
        domain = client.domain(info.domain)
        outputs = check_outputs(info.outputs, domain)
        try:
            scheme = info.scheme(domain)
        except MethodError as error:
            raise ProtocolError(f"the deployment's selection cannot be used: {error}") from None
        proved = scheme.failure is None
        cost = (info.epsilon, info.delta) if proved else (float("inf"), 1.0)
        return cls(
            domain=domain,
            outputs=outputs,
            cost=Guarantee(*cost, domain.unit),
            selection=scheme.selection,
            budgets=scheme.budgets if proved else None,
            candidates=scheme.law.candidates,
            reasons=() if proved else (str(scheme.failure),),
            server=client.server,
            info=info,
        )

    @property
    def box_bytes(self) -> int:
        """Room for all records, whichever are drawn."""
        return BOX_BYTES + self.domain.size * (len(str(self.domain.size)) + 1)

    def facts(self) -> PlanFacts:
        """The round that is open, and why there is no guarantee."""
        return [("open round", self.info.round or "none"), *(("why", why) for why in self.reasons)]

    def check_draw(self, books: Books) -> None:
        """Refuse a second anchor set for a round, which the server would read and not take."""
        for entry in books.pending(self.server):
            waiting = getattr(entry.content, "round", None)
            if entry.charge.deployment == self.name and waiting == self.info.round is not None:
                raise ProtocolError(
                    f"another record's anchors are in round {waiting} already, and a round takes "
                    "one set of a user; finish that report or wait for the next round"
                )

    def draw(self, record: Record) -> AnchorsDrawn:
        """An anchor set by independent coins (Phase I of the paper)."""
        anchors = record.unseal(
            self.domain, lambda index: self.selection.draw(self.domain, index, SystemBits())
        )
        return self._drawn(AnchorsDrawn, anchors=anchors.tolist())

    def upload(self, client: Client, entry: Entry) -> Entry:
        """Upload the anchors of an entry to the open round. The same anchors go to a later round
        where the one that was meant has closed: that tells nothing more."""
        aimed = entry.drawn(AnchorsDrawn).round
        if aimed is not None:
            # Sent before, and perhaps accepted: the same set is accepted again.
            try:
                return self._send(client, entry, aimed)
            except ServerError as error:
                if error.code != "round_closed":
                    raise
        info = client.wire.get(AnchorsDeployment, "deployments", self.name)
        number = info.round
        if number is None:
            raise ProtocolError(
                f"no round of deployment {self.name} is open; wait until the operator opens one"
            )
        if number != self.info.round:
            client.trust.witnessed(client.log()).check_round(self.name, number)
        # On disk before it is sent: retries go to the same round.
        return self._send(client, _aimed(client, entry, number), number)

    def _send(self, client: Client, entry: Entry, number: int) -> Entry:
        message = AnchorsRequest(anchors=entry.drawn(AnchorsDrawn).anchors)
        address = (*self._address(number), "anchors")
        answer = client.wire.post(AnchorsAccepted, message, *address)
        if answer.round != number:
            raise ProtocolError("the server accepted another upload than the one that was sent")
        return entry

    def finish(self, client: Client, record: Record, entry: Entry, wait_s: float) -> Entry:
        """Upload, wait for the round, check the rows, draw the output once."""
        if entry.drawn(AnchorsDrawn).output is not None:
            return entry
        entry = self.upload(client, entry)
        content = entry.drawn(AnchorsDrawn)
        if content.output is not None or content.round is None:
            return entry
        number = content.round
        anchors = content.anchors
        state = self._wait(client, number, wait_s)
        if state.state == "failed":
            _aimed(client, entry, None)
            raise ProtocolError(
                f"round {number} failed ({state.error or 'no reason given'}); report again when "
                "another is open: the same anchors are used, nothing is drawn again"
            )
        rows = client.wire.get(RoundRows, *self._address(number), "rows", own=True)
        digest = rows_digest(rows.anchors, rows.outputs, rows.weights)
        client.key.verify(signed_bytes("rows", self.name, rows.round, digest), rows.signature)
        if rows.round != number:
            raise ProtocolError(
                f"the server sent rows of round {rows.round}; this user is in round {number}"
            )
        weights = self.check(anchors, rows)
        row_of = partial(surrogate_row, self.domain, np.array(anchors, dtype=np.int64), weights)
        return self._with_output(client, record, entry, self.outputs, row_of)

    def _wait(self, client: Client, number: int, wait_s: float) -> RoundInfo:
        """Poll until the round is solved or failed. When to ask depends on the clock alone."""
        deadline = time.monotonic() + wait_s
        pause = POLL_S
        while True:
            info = client.wire.get(RoundInfo, *self._address(number))
            if info.state in ("solved", "failed"):
                return info
            if time.monotonic() + pause > deadline:
                raise ProtocolError(
                    f"round {number} is {info.state} and not solved after {wait_s:g} s; report "
                    "again later: the anchors are uploaded and nothing is drawn again"
                )
            time.sleep(pause)
            pause = min(1.5 * pause, LONGEST_POLL_S)

    def _address(self, number: int) -> tuple[str, ...]:
        return ("deployments", self.name, "rounds", str(number))

    def check(self, anchors: list[int], rows: RoundRows) -> IntArray:
        """The weights of the user's anchors, where they are the right ones and keep the budgets."""
        if rows.anchors != anchors or rows.outputs != self.outputs.tolist():
            raise ProtocolError(
                "the server sent rows of other anchors or outputs than those of this round"
            )
        weights = parse_rows(rows.weights, len(anchors), len(self.outputs))
        if self.budgets is not None:
            at = np.searchsorted(self.candidates, np.array(anchors))
            _check_budgets(weights, self.budgets[np.ix_(at, at)])
        return weights


def _check_budgets(weights: IntArray, budgets: FloatArray) -> None:
    """Raise where rows differ by more than the budgets between their anchors."""
    zero = weights == 0
    mixed = (zero.any(axis=0) & ~zero.all(axis=0)).any()
    logs = np.log(np.where(zero, 1, weights))
    alike = np.unique(weights, axis=0, return_inverse=True)[1].reshape(-1)
    gaps = cdist(logs, logs, "chebyshev") + LOG_ERROR * (alike[:, None] != alike)
    if mixed or (gaps > budgets * (1 + BUDGET_ERROR) + BUDGET_ERROR).any():
        raise ProtocolError(
            "the rows of this round differ by more than the budgets between anchors, so the "
            "guarantee does not hold; nothing is reported from them"
        )


def surrogate_row(domain: Domain, anchors: IntArray, weights: IntArray, index: int) -> IntArray:
    """The row of the anchor nearest to a record, ties to the lowest index. Without anchors all
    outputs are as likely, whoever draws none: an error would tell that nothing was drawn."""
    if not len(anchors):
        return np.asarray(quantise(np.full((1, weights.shape[1]), 1 / weights.shape[1]))[0])
    return np.asarray(weights[surrogates(domain, anchors, np.array([index]))[0]])


def _aimed(client: Client, entry: Entry, number: int | None) -> Entry:
    """Note which round the anchors are for."""
    with client.ledger.books() as books:
        return books.amend(entry, AnchorsDrawn, lambda drawn: drawn.but(round=number))


def parse_rows(rows: list[list[str]], count: int, outputs: int) -> IntArray:
    """Weights from decimal strings; every row must sum to 2^62."""
    weights = [[int(weight) for weight in row] for row in rows]
    if [(len(row), sum(row)) for row in weights] != count * [(outputs, TOTAL)]:
        raise ProtocolError(f"the rows are not {count} of {outputs} weights that sum to 2^62")
    return np.array(weights, dtype=np.int64).reshape(count, outputs)


def check_outputs(outputs: list[int], domain: Domain) -> IntArray:
    """Outputs of a message as records of the domain."""
    records = np.array(outputs, dtype=np.int64)
    if len(np.unique(records)) != len(records) or records.max() >= domain.size:
        raise ProtocolError("the outputs are not distinct records of the domain")
    return frozen(records)
