"""A deployment that a client has checked: what it draws from, how a report is finished, its cost;
and the record that it draws for.

A plan is made from public things alone and before the record is known, so nothing that is fetched
for it can depend on the record. Its `cost` is the client's own reckoning, not the server's claim:

    table     epsilon of the table, audited over all pairs, or over every point of its area
    panda     (epsilon, delta) of the file, both phases accounted for over all pairs
    ball      epsilon_1 + epsilon_2: centres by proof, the rows of a ball audited when they come
    anchors   (epsilon, delta) where the certificate over all pairs holds (both in `rounds`)

A user's `Record` is sealed: it can be drawn from, and not be shown, stored, sent or logged. It has
no attribute, conversion or representation that gives it away: `repr`, `str`, `format`, `vars`,
pickling, JSON, logging and equality see nothing. Messages take plain integers of their own types,
so a record put into one is a type error before anything runs and a validation error, without the
value, when it does. One door is left, `Record.unseal`, which hands the index to a function: the
draws of plans, and the client's memo, a keyed hash that stays on the device (a test reads the
source). What comes out may be released; draws are exact, on integers, from the operating system's
generator.

What happens behind the door leaves no trace in tracebacks: an error inside is thrown away with its
frames, and a new one without them is raised. Whoever can run code in the process or read its memory
can read the record; no type prevents that.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar, final

import numpy as np

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.errors import MethodError, ProtocolError, SignatureError, sealed
from panda_mdp.panda.file import load
from panda_mdp.panda.panda_table import PandaTable
from panda_mdp.privacy.guarantee import Guarantee
from panda_mdp.privacy.quantise import SystemBits, choose
from panda_mdp.protocol.client.trust import check_domain
from panda_mdp.protocol.ledger.books import (
    Books,
    Charge,
    D,
    Drawn,
    Entry,
    account_of,
    new_id,
)
from panda_mdp.protocol.messages.deployments import (
    AnyDeployment,
    PandaDeployment,
    Statement,
    TableDeployment,
)
from panda_mdp.space.area import Area
from panda_mdp.space.domain import Domain, check_record
from panda_mdp.table.everywhere import EverywhereMechanism
from panda_mdp.table.mechanism import Mechanism

if TYPE_CHECKING:
    from panda_mdp.protocol.client.client import Client

BOX_BYTES = 512
"""Room in the ledger for what is drawn and sent, apart from anchors."""
MOST_WRITTEN_OUT = 1 << 25
"""Weights of a table whose rows are looked up in one array."""
PlanFacts = list[tuple[str, object]]
T = TypeVar("T")


# The record


@final
class Record:
    """A record of one domain, known to this process alone. Made by `seal_place` or `seal_index`.

    >>> domain = Domain.from_points([41.90, 41.91], [12.49, 12.50])
    >>> home = seal_index(domain, 1)
    >>> print(home, repr(home), f"{home:>40}")
    Record(<sealed>) Record(<sealed>) Record(<sealed>)
    """

    __slots__ = ("__domain", "__open", "__weakref__")

    def __init__(self, domain: str, open_seal: Callable[[], Any]) -> None:
        self.__domain = domain
        self.__open = open_seal

    @property
    def domain(self) -> str:
        """The fingerprint of the domain, which is public."""
        return self.__domain

    def unseal(self, domain: Domain, action: Callable[[Any], T]) -> T:
        """Call `action` with the index, or the cell of a grid, for draws alone; its errors come
        back without frames."""
        if domain.fingerprint != self.__domain:
            raise MethodError(
                "the record belongs to another domain; make it with this deployment's plan"
            )
        return _opened(self.__open, action)

    def __repr__(self) -> str:
        return "Record(<sealed>)"

    __str__ = __repr__

    def __format__(self, _: str) -> str:
        return repr(self)

    def __reduce_ex__(self, _: Any) -> NoReturn:
        raise TypeError("a record is kept in memory only and is not copied")

    def __init_subclass__(cls) -> NoReturn:
        raise TypeError("Record is sealed and has no subclasses")


@sealed
def _opened(open_seal: Callable[[], Any], action: Callable[[Any], T]) -> T:
    return action(open_seal())


@sealed
def seal_index(domain: Domain, index: int) -> Record:
    """A record by its index. The error for a wrong one does not show it."""
    checked = check_record(index, domain.size, MethodError)
    return Record(domain.fingerprint, lambda: checked)


@sealed
def seal_place(domain: Domain, area: Area, lat: float, lon: float) -> Record:
    """The record nearest to a place; ties go to the lowest index.

    A place outside the area is the nearest point of it, so that there is always an answer: silence
    would tell a server who is outside.
    """
    nearest = domain.snap(*area.clamp(lat, lon), np.inf).record
    return Record(domain.fingerprint, lambda: nearest)


def draw_column(row: IntArray) -> int:
    """A column of a row of weights."""
    return int(choose(row, SystemBits().integers(1))[0])


# Plans


@dataclass(frozen=True, eq=False, kw_only=True)
class Plan(ABC):
    """What all deployments share: the client knows this and no kind of them."""

    server: str
    info: AnyDeployment
    """The deployment, as it was signed and checked."""
    domain: Domain
    cost: Guarantee
    """What one release costs: everything that is sent about one record, anchors included."""
    reasons: tuple[str, ...] = ()
    """Why there is no guarantee; empty where there is one."""

    always_fresh: ClassVar[bool] = False
    """Whether every report draws and pays, whatever the ledger's rule for repeats is."""
    second_step: ClassVar[bool] = False
    """Whether the output is drawn from what the server sends back: what was begun is found again
    and finished, also where every report draws anew."""

    @abstractmethod
    def draw(self, record: Record) -> Drawn:
        """What is charged and sent first, drawn for a record."""

    def finish(self, client: Client, record: Record, entry: Entry, wait_s: float) -> Entry:
        """The entry with its output, asked for where the first draw was not the output."""
        return entry

    def check_draw(self, books: Books) -> None:
        """Raise where nothing may be drawn now, whatever the record is."""
        del books

    @abstractmethod
    def facts(self) -> PlanFacts:
        """What a person is shown of it, beside its cost."""

    def still_valid(self, entry: Entry) -> bool:
        """Whether an entry answers for this plan: it was accepted, or can still be."""
        drawn = entry.content
        return drawn is not None and (entry.state == "accepted" or drawn.table == self.identity)

    def charge(self, accept_no_guarantee: bool = False) -> Charge:
        """What the ledger is charged for one release."""
        unproved = accept_no_guarantee and self.guarantee is None
        return Charge(
            account_of(self.domain),
            self.server,
            self.name,
            self.cost,
            unproved,
            quota=self.info.reports_per_period,
            quota_s=self.info.period_s,
        )

    @property
    def name(self) -> str:
        """Of the deployment."""
        return self.info.name

    @property
    def version(self) -> int:
        """Of what is in force."""
        return self.info.version

    @property
    def identity(self) -> str | None:
        """Of the table that reports are drawn from, as the log has it; rounds have none."""
        table = getattr(self.info, "table", None)
        return table and table.identity

    def check_stated(self, stated: Statement) -> None:
        """Raise unless the records are those that the operator signed."""
        check_domain(stated, self.domain)

    @property
    def guarantee(self) -> Guarantee | None:
        """(epsilon, delta) that this client has checked, or None."""
        return self.cost if np.isfinite(self.cost.epsilon) else None

    @property
    def size(self) -> int:
        """How many records people are told apart among."""
        return self.domain.size

    @cached_property
    def places(self) -> tuple[FloatArray, FloatArray] | None:
        """Latitudes and longitudes of the records; None where they are no places."""
        domain = self.domain
        return (domain.lat, domain.lon) if domain.geographic else None

    @cached_property
    def area(self) -> Area:
        """What places outside are moved to."""
        return Area.around(self.domain.lat, self.domain.lon)

    @cached_property
    def snap_km(self) -> float:
        """How far a point of the area is from the nearest record at most."""
        return self.area.hole_km(self.domain.lat, self.domain.lon)

    @property
    def snapping(self) -> str:
        """What it costs that a place is moved to the nearest record: the table protects records,
        and two places lose what their distances to the records add to that between them."""
        both_km = 2 * self.snap_km
        if self.domain.metric.kind == "graph":
            return f"up to {self.snap_km:g} km: along paths the records alone are covered"
        return (
            f"up to {self.snap_km:.3g} km in the area, outside from its nearest point: two places "
            f"are epsilon (d + {both_km:.3g} km)-indistinguishable, "
            f"{both_km * self.cost.epsilon:.3g} nats more"
        )

    @property
    def box_bytes(self) -> int:
        """Bytes that an entry of the ledger takes, the same for every record."""
        return BOX_BYTES * (1 + self.info.one_use)

    @sealed
    def place(self, lat: float, lon: float) -> Record:
        """The record nearest to a place, or to the point of the area that is nearest to one
        outside. Stays in memory."""
        return seal_place(self.domain, self.area, lat, lon)

    @sealed
    def record(self, index: int) -> Record:
        """A record by its index, for domains that are not places."""
        return seal_index(self.domain, index)

    def where(self, output: int) -> tuple[float, float] | None:
        """Latitude and longitude of an output; None where records are not places."""
        if self.places is None:
            return None
        lat, lon = self.places
        return float(lat[output]), float(lon[output])

    def _with_output(
        self,
        client: Client,
        record: Record,
        entry: Entry,
        outputs: IntArray,
        row_of: Callable[[Any], IntArray],
    ) -> Entry:
        """The entry with an output from a record's row, drawn once."""

        def draw(drawn: Drawn) -> Drawn:
            column = record.unseal(self.domain, lambda index: draw_column(row_of(index)))
            return drawn.but(output=int(outputs[column]))

        with client.ledger.books() as books:
            return books.amend(entry, Drawn, draw)

    def _drawn(self, kind: type[D], **facts: Any) -> D:
        """What was drawn, with what every draw of this plan is noted with."""
        return kind(report=new_id(), version=self.version, table=self.identity, **facts)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}, version {self.version}, {self.cost})"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TablePlan(Plan):
    """Everyone has the whole table, or file of PAnDA: nothing is sent but the report."""

    table: Mechanism | PandaTable
    sample: Callable[[int], Any]
    """An output for a record: from its row, or through both phases, which stay on the device."""

    @staticmethod
    def of(client: Client, info: TableDeployment | PandaDeployment) -> TablePlan:
        """The plan of a file, every claim of which this client computed again."""
        claimed = info.table
        table = load(client.file(claimed))
        problem = table.problem
        cost = table.guarantee
        domain = problem.domain
        epsilon = table.epsilon
        claims = (domain.fingerprint, epsilon, problem.outputs_count, domain.size, table.identity)
        sizes = (claimed.outputs, claimed.records)
        signed = (claimed.domain, claimed.epsilon, *sizes, claimed.identity)
        fits = problem.reports.records is not None and claims == signed
        if not fits or isinstance(table, PandaTable) != (info.kind == "panda"):
            raise ProtocolError(
                f"table {claimed.name} version {claimed.version} is not what its description says: "
                "other records, outputs or phases, or another epsilon; do not report, and tell the "
                "operator"
            )
        if (cost.epsilon, cost.delta) != (info.guarantee.epsilon, info.guarantee.delta):
            raise SignatureError(
                "the file costs something else than its operator signed; do not report"
            )
        kind: type[TablePlan] = TablePlan
        if isinstance(table, EverywhereMechanism):
            kind = EverywherePlan
        sample = table.sample if isinstance(table, PandaTable) else _sampler(table)
        return kind(
            server=client.server, info=info, domain=domain, cost=cost, table=table, sample=sample
        )

    def draw(self, record: Record) -> Drawn:
        """The output, which is all that is drawn."""
        return self._drawn(Drawn, output=int(record.unseal(self.domain, self.sample)))

    def facts(self) -> PlanFacts:
        """The audit and the loss."""
        table = self.table
        if isinstance(table, PandaTable):
            audited = f"violation at most {table.account.violation:.4g} over all pairs"
            phases = f"run here; {table.scheme.selection!r}"
            return [("audited here", audited), ("both phases", phases)]
        audited = f"epsilon {table.audit.epsilon:.9g} over {table.audit.pairs:,} pairs"
        return [("audited here", audited), ("expected loss", table.loss_words)]


def _sampler(table: Mechanism) -> Callable[[int], int]:
    """Draws from a record's row. Rows are written out at once, so that looking one up takes the
    same time for every record."""
    weights = table.weights
    outputs = table.problem.outputs
    if len(weights) * len(outputs) <= MOST_WRITTEN_OUT:
        weights = np.asarray(weights)
    return lambda index: int(outputs[draw_column(weights[index])])


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class EverywherePlan(TablePlan):
    """A table for every point: a place is not snapped, and a vertex is drawn for each report.

    The same place has no answer that is kept: a repeated one would tell that the same vertex was
    drawn, which depends on the place beyond epsilon. So every report draws and pays.
    """

    always_fresh: ClassVar[bool] = True
    table: EverywhereMechanism

    @cached_property
    def area(self) -> Area:
        """That of the mesh."""
        return Area.of_mesh(self.table.mesh)

    @cached_property
    def snap_km(self) -> float:
        """How far a point is from the one that stands for it at most."""
        return self.table.everywhere.resolution_km

    @sealed
    def place(self, lat: float, lon: float) -> Record:
        """A place in the area, or the nearest point of it. Stays in memory.

        Each time it is opened another vertex of its triangle is drawn, with the place's weight for
        it: one vertex for two draws would tell where in the triangle the place is.
        """
        place = self.area.clamp(lat, lon)
        draw_vertex = self.table.draw_vertex
        draw_vertex(*place)
        return Record(self.domain.fingerprint, lambda: draw_vertex(*place))
