"""Draws for columns of rows: what every kind of frame comes down to.

Without a key each row is an independent draw with the operating system's bits. With one, the bits
are a pseudo-random function of person, period and record (`key.py`): a person's repeated reports
of a record in a period are the same draw, in every process and on every retry.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from panda_mdp.base.arrays import FloatArray, IntArray, digest
from panda_mdp.base.packages import need
from panda_mdp.base.units import per
from panda_mdp.errors import BudgetError, InvalidInputError, NotForReleaseError, SnapError
from panda_mdp.frames.key import DrawKey, Words
from panda_mdp.panda.panda_table import PandaTable
from panda_mdp.privacy.quantise import TOTAL
from panda_mdp.privacy.sampler import BitSource, SystemBits
from panda_mdp.space.snapping import check_limit, snap_places
from panda_mdp.table.everywhere import EverywhereMechanism, draw_vertices
from panda_mdp.table.mechanism import Mechanism

if TYPE_CHECKING:
    from panda_mdp.frames.kernel import Thresholds
    from panda_mdp.space.mesh import Mesh
    from panda_mdp.space.metrics import Haversine
    from panda_mdp.space.nearest import Grid

OUTSIDE, HELD = -1, -2
"""In place of an output: a row that is not covered, and one that the budget holds back."""
ROUNDING = 1e-9
People = tuple[IntArray, list[tuple[Any, str]]]
"""The number of every row's group, and whose each group is, in which period."""


@dataclass(frozen=True, eq=False)
class Sampler:
    """The integers of an audited mechanism, ready to be drawn from; picklable."""

    thresholds: Thresholds
    """Cumulative weights; rows end at 2^62."""
    grid: Grid | None
    metric: Haversine | None
    epsilon: float
    unit: str
    table: bytes
    """A name of the table, which keys are derived for."""
    phases: PandaTable | None = None
    """Phase I, where the thresholds are PAnDA's."""
    delta: float = 0.0
    mesh: Mesh | None = None
    """Of a table that is private at every point: places draw at it and are not snapped."""

    @classmethod
    def of(cls, mechanism: Mechanism | PandaTable) -> Sampler:
        """The sampler of a mechanism: nothing without a guarantee gets this far."""
        if not isinstance(mechanism, Mechanism | PandaTable):
            raise NotForReleaseError(
                f"{type(mechanism).__name__} has no guarantee; perturb needs a Mechanism"
            )
        need("numba", "drawing for frames")
        from panda_mdp.frames.kernel import Thresholds

        problem = mechanism.problem
        domain = problem.domain
        outputs = problem.reports
        placed = [np.zeros(0) if part is None else part for part in (outputs.lat, outputs.lon)]
        law = repr(mechanism.scheme.selection) if isinstance(mechanism, PandaTable) else ""
        called = np.frombuffer((repr(outputs.names) + law).encode(), dtype=np.uint8)
        name = digest(mechanism.weights, outputs.codes, *placed, called) + domain.fingerprint
        return cls(
            thresholds=Thresholds.of(mechanism.weights),
            grid=domain.grid if domain.geographic else None,
            metric=domain.metric if domain.geographic else None,  # type: ignore[arg-type]
            epsilon=problem.epsilon,
            unit=domain.unit,
            table=bytes.fromhex(name),
            phases=mechanism if isinstance(mechanism, PandaTable) else None,
            delta=mechanism.delta if isinstance(mechanism, PandaTable) else 0.0,
            mesh=mechanism.mesh if isinstance(mechanism, EverywhereMechanism) else None,
        )

    @property
    def size(self) -> int:
        """Records that are covered."""
        rows = len(self.thresholds.starts) - 1
        return rows if self.phases is None else self.phases.problem.size

    def __repr__(self) -> str:
        outputs = len(self.thresholds.floor)
        return f"Sampler({self.size} records, {outputs} outputs, epsilon {self.epsilon:g})"

    def snapped(self, lat: FloatArray, lon: FloatArray, limit: float) -> IntArray:
        """Records of places: the nearest, or a random corner of the triangle over a mesh."""
        if self.mesh is not None:
            located = self.mesh.locate(lat, lon)
            return np.where(located.inside, draw_vertices(located, SystemBits()), OUTSIDE)
        if self.metric is None:
            raise SnapError("this table is not of places; name the column of records: record=...")
        return snap_places(self.metric, self.grid, lat, lon, limit).record

    def records(
        self, records: IntArray, words: Words | None = None, rows: IntArray | None = None
    ) -> IntArray:
        """A draw for every record, with fresh bits or those given; OUTSIDE stays.

        PAnDA's Phase I, where there is one, is run for each of them, unless `rows` says what it
        led to.
        """
        from panda_mdp.frames.kernel import draw_records

        bits = _system_words(len(records)) if words is None else words
        used = records
        if self.phases is not None:
            used = self._selected(records, SystemBits()) if rows is None else rows
        return np.asarray(draw_records(used, self.thresholds, bits))

    def shared(self, records: IntArray, group: IntArray, seeds: list[bytes]) -> IntArray | None:
        """Phase I once for each group and record: the rows that they report from."""
        if self.phases is None:
            return None
        width = np.int64(self.size)
        rows = np.full(len(records), OUTSIDE, dtype=np.int64)
        covered = np.flatnonzero(records >= 0)
        different, which = np.unique(group[covered] * width + records[covered], return_inverse=True)
        chosen = np.empty(len(different), dtype=np.int64)
        for k, pair in enumerate(different.tolist()):
            seed = seeds[pair // width] + int(pair % width).to_bytes(8, "little")
            chosen[k] = self._selected(np.array([pair % width]), DerivedBits(seed))[0]
        rows[covered] = chosen[which.reshape(-1)]
        return rows

    def _selected(self, records: IntArray, bits: BitSource) -> IntArray:
        rows = np.full(len(records), OUTSIDE, dtype=np.int64)
        covered = records >= 0
        if self.phases is not None and covered.any():
            rows[covered] = self.phases.draw_rows(records[covered], bits)
        return rows


@dataclass
class FrameSummary:
    """Counts of rows, filled while a frame is perturbed; one may collect several frames.

    The counts are exact and so are people's own: read them (`print(summary)`), do not publish
    them. The repr shows none.
    """

    epsilon: float = 0.0
    unit: str = ""
    limit: float | None = None
    """How far a place or a number may be snapped, in the unit; None where records are given."""
    keyed: bool = False
    delta: float = 0.0
    phased: bool = False
    """Whether PAnDA's Phase I ran before the reports."""
    rows: int = 0
    reported: int = 0
    outside: int = 0
    """Rows without a place, beyond the snap limit, or whose record the table does not have."""
    over_budget: int = 0
    """Rows that were held back because their person's budget was spent."""
    draws: dict[bytes, int] = field(default_factory=dict)
    """Independent draws of each person in each period, under names that only the key gives."""

    def __repr__(self) -> str:
        return "FrameSummary(<hidden>; print it)"

    def add(self, other: FrameSummary) -> None:
        """Take in what became of rows that were drawn elsewhere, of other people or of none."""
        self.epsilon, self.unit, self.keyed = other.epsilon, other.unit, other.keyed
        self.delta, self.phased = other.delta, other.phased
        self.limit = other.limit
        self.rows += other.rows
        self.reported += other.reported
        self.outside += other.outside
        self.over_budget += other.over_budget
        self.draws |= other.draws

    @property
    def people(self) -> int:
        """Persons and periods with at least one report; 0 where no person's column was named."""
        return len(self.draws)

    @property
    def most(self) -> int:
        """The most independent draws of one person in one period."""
        return max(self.draws.values(), default=0)

    @property
    def spent(self) -> float:
        """The most that one person spent in one period: epsilon times draws, per unit."""
        return self.epsilon * self.most

    def lines(self) -> list[str]:
        """What happened, for people."""
        text = [f"{self.reported:,} of {self.rows:,} rows reported"]
        if self.outside:
            where = "" if self.limit is None else f" beyond {self.limit:g} {self.unit}"
            text.append(f"{self.outside:,} rows not covered{where}")
        if self.over_budget:
            text.append(f"{self.over_budget:,} rows held back: their person's budget was spent")
        each = f"epsilon {self.epsilon:g} {per(self.unit)}"
        if self.draws:
            how = "different places" if self.keyed else "rows, each an independent draw"
            text.append(
                f"{self.people:,} persons and periods; at most {self.most:,} {how}: "
                f"up to {self.spent:g} {per(self.unit)} in all ({each} each)"
            )
        else:
            text.append(
                f"every row is an independent draw of {each}: a person in n rows spends n times "
                "that; name the person's column (person=) to see and bound it"
            )
        if self.phased:
            shared = "once for each person, period and place, whose rows share it"
            text.append(
                f"Phase I was drawn {shared if self.draws else 'for every row'}; epsilon holds "
                f"for each row except with probability {self.delta:g}, and both add up over rows"
            )
        if self.limit is not None:
            text.append(
                f"rows are snapped first: two at distance d are epsilon (d + "
                f"{2 * self.limit:g} {self.unit})-indistinguishable"
            )
        if self.keyed:
            text.append(
                "the guarantee holds against whoever lacks the key, and repeats of a place show"
            )
        return text

    def __str__(self) -> str:
        return "\n".join(self.lines())


class DerivedBits:
    """Bits that follow from a secret seed of 256 bits and more, by SHAKE-256."""

    def __init__(self, seed: bytes) -> None:
        self._seed, self._used = seed, 0

    def __repr__(self) -> str:
        return "DerivedBits(<hidden>)"

    def integers(self, count: int) -> IntArray:
        """Integers in [0, 2^62), other ones at every call."""
        self._used += 1
        state = hashlib.shake_256(self._seed + self._used.to_bytes(8, "little"))
        raw = np.frombuffer(state.digest(8 * count), dtype="<u8")
        return (raw & np.uint64(TOTAL - 1)).astype(np.int64)


class Drawer:
    """Draws for batch after batch, and remembers what each person has spent.

    `budget` bounds, for each person and period, epsilon times the number of independent draws: of
    different records with a key, of rows without one. Rows beyond it are held back, later ones
    first; whether a row is held back depends on which rows are the same place, not on where.
    """

    def __init__(
        self,
        sampler: Sampler,
        *,
        limit: float = 0.5,
        key: DrawKey | None = None,
        budget: float | None = None,
        summary: FrameSummary | None = None,
    ) -> None:
        check_limit(limit)
        if budget is not None and not budget >= sampler.epsilon * (1 - ROUNDING):
            raise BudgetError(
                f"the budget of {budget!r} is less than one report costs "
                f"({sampler.epsilon:g} per {sampler.unit}); allow at least that"
            )
        self.sampler = sampler
        self.limit = limit
        self.key = key
        self.most = None if budget is None else int(budget / sampler.epsilon * (1 + ROUNDING))
        self.summary = summary if summary is not None else FrameSummary()
        self.summary.epsilon, self.summary.unit = sampler.epsilon, sampler.unit
        self.summary.keyed = key is not None
        self.summary.delta = sampler.delta
        self.summary.phased = sampler.phases is not None
        # Names for people in the summary: of the key, or of this process alone.
        self._names = key or DrawKey.fresh()
        self._seen: dict[bytes, set[int]] = {}

    def __repr__(self) -> str:
        return f"Drawer({self.sampler!r}, state=<hidden>)"

    def draw(self, records: IntArray, people: People | None, *, snapped: bool) -> IntArray:
        """An output's column for every row, or OUTSIDE or HELD; `snapped` records are the nearest
        ones to what was given."""
        if people is None and (self.key is not None or self.most is not None):
            raise InvalidInputError(
                "a key or a budget is per person; name the person's column: person=..."
            )
        covered = (records >= 0) & (records < self.sampler.size)
        records = np.where(covered, records, OUTSIDE)
        drawn = self.sampler.records(records) if people is None else self._shared(records, people)
        summary = self.summary
        if snapped:
            summary.limit = self.limit
        summary.rows += len(records)
        summary.outside += int((drawn == OUTSIDE).sum())
        summary.over_budget += int((drawn == HELD).sum())
        summary.reported += int((drawn >= 0).sum())
        return drawn

    def _shared(self, records: IntArray, people: People) -> IntArray:
        """Draws of rows that belong to people: what repeats is drawn once, what is spent counts."""
        group, pairs = people
        nonces = self._names.nonces(self.sampler.table, pairs)
        words = None
        if self.key is not None:
            from panda_mdp.frames.kernel import CONSTANTS, keyed_words

            key = self.key.draw_key(self.sampler.table)
            words = keyed_words(key, nonces, group, records, CONSTANTS)
        secret = self._names.draw_key(self.sampler.table + b"selection").tobytes()
        selected = self.sampler.shared(records, group, [secret + n.tobytes() for n in nonces])
        drawn = self.sampler.records(records, words, selected)
        drawn[self._spend(group, [nonce.tobytes() for nonce in nonces], records)] = HELD
        return drawn

    def _spend(self, group: IntArray, names: list[bytes], records: IntArray) -> IntArray:
        """Count independent draws per person and period; the rows that are held back."""
        covered = np.flatnonzero(records >= 0)
        if self.key is None:
            return self._spend_rows(group, names, covered)
        width = np.int64(self.sampler.size)
        different, first, which = np.unique(
            group[covered] * width + records[covered], return_index=True, return_inverse=True
        )
        refused = np.zeros(len(different), dtype=np.bool_)
        for k in np.argsort(first):
            name, record = names[int(different[k] // width)], int(different[k] % width)
            seen = self._seen.setdefault(name, set())
            if record in seen:
                continue
            if self.most is not None and len(seen) >= self.most:
                refused[k] = True
                continue
            seen.add(record)
            self.summary.draws[name] = len(seen)
        held: IntArray = covered[refused[which.reshape(-1)]]
        return held

    def _spend_rows(self, group: IntArray, names: list[bytes], covered: IntArray) -> IntArray:
        order = np.argsort(group[covered], kind="stable")
        sorted_group = group[covered][order]
        present, start, count = np.unique(sorted_group, return_index=True, return_counts=True)
        rank = np.arange(len(order)) - np.repeat(start, count)
        before = np.array([self.summary.draws.get(names[g], 0) for g in present], dtype=np.int64)
        allowed = np.full(len(present), np.iinfo(np.int64).max)
        if self.most is not None:
            allowed = np.maximum(self.most - before, 0)
        refused = rank >= np.repeat(allowed, count)
        for k, g in enumerate(present):
            spent = int(before[k] + min(count[k], allowed[k]))
            if spent:
                self.summary.draws[names[g]] = spent
        return covered[order[refused]]


def _system_words(count: int) -> Any:
    return np.frombuffer(secrets.token_bytes(8 * count), dtype="<u8")


def people_of(person: Any, period: Any, step: str) -> People:
    """Which pair of a person and a period each row belongs to, and the pairs.

    `step` says what a period is, so that the fifth day is not the fifth week.
    """
    people, who = _codes(person)
    periods, when = ([""], np.zeros_like(who)) if period is None else _codes(period)
    present, group = np.unique(who * len(periods) + when, return_inverse=True)
    pairs = [(people[j // len(periods)], f"{step}{periods[j % len(periods)]}") for j in present]
    return group.reshape(-1).astype(np.int64), pairs


def _codes(values: Sequence[Any]) -> tuple[list[Any], IntArray]:
    """Different values and the number of each row's; a missing one is nobody's."""
    pyarrow = need("pyarrow", "people and periods", "frames")
    coded = pyarrow.array(values).dictionary_encode()
    different = coded.dictionary.to_pylist()
    nobody = any(value is None or value != value for value in different)  # noqa: PLR0124 -- NaN
    if coded.indices.null_count or nobody:
        raise InvalidInputError(
            "some rows name no person or period; leave them out, or draw without person=..."
        )
    return different, coded.indices.to_numpy().astype(np.int64)
