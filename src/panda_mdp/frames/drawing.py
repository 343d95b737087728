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
from itertools import compress
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import FloatArray, IntArray, group_ranks
from panda_mdp.base.packages import need
from panda_mdp.base.text import Facts, per, present
from panda_mdp.errors import InvalidInputError, NotForReleaseError, SnapError
from panda_mdp.frames.key import DrawKey
from panda_mdp.panda.panda_table import PandaTable
from panda_mdp.privacy.guarantee import Guarantee
from panda_mdp.privacy.quantise import TOTAL, BitSource, GivenBits, SystemBits
from panda_mdp.problem import Outputs
from panda_mdp.space.domain import Domain
from panda_mdp.table.everywhere import draw_vertices
from panda_mdp.table.mechanism import Mechanism

if TYPE_CHECKING:
    from panda_mdp.frames.kernel import Thresholds
    from panda_mdp.space.mesh import Mesh

OUTSIDE = -1
HELD = -2
"""In place of an output: a row that is not covered, and one that the budget holds back."""
People = tuple[IntArray, list[tuple[Any, str]]]
"""The number of every row's group, and whose each group is, in which period."""


@dataclass(frozen=True, eq=False)
class Sampler:
    """The integers of an audited mechanism, ready to be drawn from; picklable, without an audit."""

    thresholds: Thresholds | None
    """Cumulative weights; rows end at 2^62. None where a report takes two phases."""
    domain: Domain
    reported: Facts
    """The columns of reports."""
    guarantee: Guarantee
    table: bytes
    """The identity of the table, which keys are derived for."""
    mesh: Mesh | None
    """Of a table that is private at every point: places draw at it and are not snapped."""
    phases: PandaTable | None
    """PAnDA's."""

    @classmethod
    def of(cls, mechanism: Mechanism | PandaTable) -> Sampler:
        """The sampler of a mechanism: nothing without a guarantee gets this far."""
        phases = mechanism if isinstance(mechanism, PandaTable) else None
        if phases is None and not isinstance(mechanism, Mechanism):
            raise NotForReleaseError(
                f"{type(mechanism).__name__} has no guarantee; perturb needs a Mechanism"
            )
        need("numba", "drawing for frames")
        from panda_mdp.frames.kernel import Thresholds

        return cls(
            Thresholds.of(mechanism.weights) if isinstance(mechanism, Mechanism) else None,
            mechanism.problem.domain,
            reported_columns(mechanism.problem.domain, mechanism.problem.reports),
            mechanism.guarantee,
            bytes.fromhex(mechanism.identity),
            mechanism.mesh if isinstance(mechanism, Mechanism) else None,
            phases,
        )

    def __repr__(self) -> str:
        outputs = len(next(iter(self.reported.values())))
        epsilon = self.guarantee.epsilon
        return f"Sampler({self.domain.size} records, {outputs} outputs, epsilon {epsilon:g})"

    def snapped(self, lat: FloatArray, lon: FloatArray, limit: float) -> IntArray:
        """Records of places: the nearest, or a random corner of the triangle over a mesh."""
        if self.mesh is not None:
            located = self.mesh.locate(lat, lon)
            return np.where(located.inside, draw_vertices(located, SystemBits()), OUTSIDE)
        if not self.domain.geographic:
            raise SnapError("this table is not of places; name the column of records: record=...")
        return self.domain.snap(lat, lon, limit).record

    def records(
        self,
        records: IntArray,
        words: Sequence[npt.NDArray[np.uint64]] | None = None,
        selected: IntArray | None = None,
    ) -> IntArray:
        """A draw for every record, with fresh bits or the words and coins given; OUTSIDE stays.

        PAnDA's Phase I, where there is one, is run for each of them, unless `selected` says what it
        led to.
        """
        covered = np.flatnonzero(records >= 0)
        if self.thresholds is None:
            drawn = records.copy()
            some = records[covered]
            phases = cast("PandaTable", self.phases).scheme
            bits = SystemBits()
            led = phases.draw_selections(some, bits) if selected is None else selected[covered]
            source: BitSource = bits
            if words is not None:
                source = GivenBits(
                    *((part[covered] & np.uint64(TOTAL - 1)).astype(np.int64) for part in words)
                )
            drawn[covered] = phases.draw_reports(some, led, source)
            return drawn
        from panda_mdp.frames.kernel import draw_records

        fresh = np.frombuffer(secrets.token_bytes(8 * len(records)), "<u8")
        used = fresh if words is None else words[0]
        return draw_records(records, self.thresholds, used)

    def selections(self, records: IntArray, group: IntArray, seeds: list[bytes]) -> IntArray | None:
        """Phase I once for each group and record: what it leads to."""
        if self.phases is None:
            return None
        selected = records.copy()
        covered = np.flatnonzero(records >= 0)
        different, which = np.unique(
            np.stack([group[covered], records[covered]]), axis=1, return_inverse=True
        )
        drawn = [
            self.phases.scheme.draw_selections(
                np.array([x]), DerivedBits(seeds[g] + x.to_bytes(8, "little"))
            )
            for g, x in different.T.tolist()
        ]
        selected[covered] = np.concatenate([selected[:0], *drawn])[which.reshape(-1)]
        return selected

    def reports(self, drawn: IntArray) -> Facts:
        """The columns of what was drawn; NaN or None where nothing was."""
        some = drawn >= 0
        made: Facts = {}
        for name, values in self.reported.items():
            if isinstance(values, tuple):
                made[name] = [values[k] if k >= 0 else None for k in drawn.tolist()]
            elif some.all():
                made[name] = values[drawn]
            else:
                made[name] = np.where(some, values[drawn].astype(float), np.nan)
        return made


def reported_columns(domain: Domain, outputs: Outputs) -> Facts:
    """The columns of reports, with what they say of each output: names, places or indices.

    Outputs that are records are called as the domain calls them.
    """
    chosen, names, lat, lon = outputs.records, outputs.names, outputs.lat, outputs.lon
    if chosen is not None and domain.labels is not None:
        names = tuple(domain.labels[k] for k in chosen.tolist())
    if chosen is not None and domain.geographic:
        lat = domain.lat[chosen]
        lon = domain.lon[chosen]
    made = present({"reported": names, "reported_lat": lat, "reported_lon": lon})
    return made or {"reported": outputs.codes}


@dataclass
class FrameSummary:
    """Counts of rows, filled while a frame is perturbed; one may collect several frames.

    The counts are exact and so are people's own: read them (`print(summary)`), do not publish
    them. The repr shows none.
    """

    guarantee: Guarantee = field(default_factory=lambda: Guarantee(0.0, 0.0, ""))
    """Of one report."""
    limit: float | None = None
    """How far a place or a number may be snapped, in the unit; None where records are given."""
    keyed: bool = False
    phased: bool = False
    """Whether PAnDA's Phase I ran before the reports."""
    places: int = 1
    """Places of a row, each with a report."""
    rows: int = 0
    """Rows, or places of rows where there are several."""
    reported: int = 0
    complete: int = 0
    """Rows of whose places each has a report."""
    outside: int = 0
    """Rows without a place, beyond the snap limit, or whose record the table does not have."""
    swapped: int = 0
    """Rows that are not covered and would be with latitude and longitude exchanged."""
    over_budget: int = 0
    """Rows that were held back because their person's budget was spent."""
    draws: dict[bytes, int] = field(default_factory=dict)
    """Independent draws of each person in each period, under names that only the key gives."""
    totals: dict[bytes, int] = field(default_factory=dict)
    """The same of each person over all periods."""
    beside: str = ""
    """Columns of a frame that stayed and may give places away, and what each looks like."""

    def __repr__(self) -> str:
        return "FrameSummary(<hidden>; print it)"

    def add(self, other: FrameSummary) -> None:
        """Take in what became of rows that were drawn elsewhere, of other people or of none."""
        counted = {name: getattr(self, name) + getattr(other, name) for name in COUNTS}
        people = {name: getattr(self, name) | getattr(other, name) for name in ("draws", "totals")}
        vars(self).update(vars(other) | counted | people)

    def refuse_none(self) -> None:
        """Refuse a result without one whole row, with a guess at what is wrong."""
        if self.complete or not self.rows or self.over_budget:
            return
        guess = "are table and rows of one area, and the places in degrees?"
        if self.limit is not None and self.guarantee.unit != "km":
            guess = f"none is within {self.limit:g} {self.guarantee.unit} of a record: raise limit"
        if 2 * self.swapped * self.places > self.rows:
            guess = "latitude and longitude are exchanged: name the columns the other way round"
        rows = self.rows // self.places
        raise SnapError(f"not one of {rows:,} rows is covered by the table; {guess}")

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
        return self.guarantee.epsilon * self.most

    @property
    def spent_in_all(self) -> float:
        """The most that one person spent over all periods, per unit."""
        return self.guarantee.epsilon * max(self.totals.values(), default=0)

    def lines(self) -> list[str]:
        """What happened, for people."""
        unit = self.guarantee.unit
        shared = "for every row"
        noun = "rows" if self.places == 1 else "places"
        what = noun if self.places == 1 else f"places ({self.places} in a row)"
        each = f"epsilon {self.guarantee.epsilon:g} {per(unit)}"
        where = "" if self.limit is None else f" beyond {self.limit:g} {unit}"
        spent = (
            f"every place is an independent draw of {each}: a person in n rows spends "
            f"{'' if self.places == 1 else f'{self.places} '}n times "
            "that; name the person's column (person=) to see and bound it"
        )
        if self.draws:
            shared = "once for each person, period and place, whose rows share it"
            how = "different places" if self.keyed else f"{noun}, each an independent draw"
            spent = (
                f"{len(self.totals):,} persons, {self.people:,} persons and periods; at most "
                f"{self.most:,} {how} in a period: up to {self.spent:g} {per(unit)} in a period, "
                f"{self.spent_in_all:g} {per(unit)} in all ({each} each)"
            )
        told = (
            (True, f"{self.reported:,} of {self.rows:,} {what} reported"),
            (self.outside, f"{self.outside:,} {noun} not covered{where}"),
            (
                self.over_budget,
                f"{self.over_budget:,} rows held back: their person's budget was spent",
            ),
            (True, spent),
            (self.beside, f"other columns stay as they are: {self.beside}"),
            (
                self.phased,
                f"Phase I was drawn {shared}; epsilon holds for each row except with probability "
                f"{self.guarantee.delta:g}, and both add up over rows",
            ),
            (
                self.limit is not None,
                "rows are snapped first: two at distance d are epsilon (d + "
                f"{2 * (self.limit or 0):g} {unit})-indistinguishable",
            ),
            (
                self.keyed,
                "the guarantee holds against whoever lacks the key, and repeats of a place show",
            ),
        )
        return [line for holds, line in told if holds]

    def __str__(self) -> str:
        return "\n".join(self.lines())


COUNTS = ("rows", "reported", "complete", "outside", "swapped", "over_budget")
"""What adds up in a summary."""


class DerivedBits:
    """Bits that follow from a secret seed of 256 bits and more, by SHAKE-256."""

    def __init__(self, seed: bytes) -> None:
        self._seed = seed
        self._used = 0

    def __repr__(self) -> str:
        return "DerivedBits(<hidden>)"

    def integers(self, count: int) -> IntArray:
        """Integers in [0, 2^62), other ones at every call."""
        self._used += 1
        state = hashlib.shake_256(self._seed + self._used.to_bytes(8, "little"))
        raw = np.frombuffer(state.digest(8 * count), dtype="<u8")
        return (raw & np.uint64(TOTAL - 1)).astype(np.int64)


@dataclass(eq=False)
class Drawer:
    """Draws for batch after batch, and remembers what each person has spent.

    At most `most` independent draws for each person and period: of different records with a key, of
    rows without one. Rows beyond it are held back, later ones first; whether a row is held back
    depends on which rows are the same place, not on where.
    """

    sampler: Sampler
    key: DrawKey | None
    most: int | None
    summary: FrameSummary

    def __post_init__(self) -> None:
        self.summary.guarantee = self.sampler.guarantee
        self.summary.keyed = self.key is not None
        self.summary.phased = self.sampler.phases is not None
        # Names for people in the summary: of the key, or of this process alone.
        self._names = self.key or DrawKey.fresh()
        self._people: dict[bytes, int] = {}
        self._seen: set[int] = set()

    def __repr__(self) -> str:
        return f"Drawer({self.sampler!r}, state=<hidden>)"

    def draw(self, records: IntArray, people: People | None) -> IntArray:
        """An output's column for every row, or OUTSIDE or HELD."""
        covered = (records >= 0) & (records < self.sampler.domain.size)
        records = np.where(covered, records, OUTSIDE)
        drawn = self.sampler.records(records) if people is None else self._shared(records, people)
        self.summary.rows += len(records)
        self.summary.outside += int((drawn == OUTSIDE).sum())
        self.summary.over_budget += int((drawn == HELD).sum())
        self.summary.reported += int((drawn >= 0).sum())
        return drawn

    def _shared(self, records: IntArray, people: People) -> IntArray:
        """Draws of rows that belong to people: what repeats is drawn once, what is spent counts."""
        group, pairs = people
        nonces = self._names.nonces(self.sampler.table, pairs)
        words = None
        if self.key is not None:
            from panda_mdp.frames.kernel import CONSTANTS, keyed_words

            # Two phases toss a coin beside their draw.
            tables = [self.sampler.table, self.sampler.table + b"coin"]
            words = [
                keyed_words(self.key.draw_key(table), nonces, group, records, CONSTANTS)
                for table in tables[: 1 + self.summary.phased]
            ]
        secret = self._names.draw_key(self.sampler.table + b"selection").tobytes()
        names = [nonce.tobytes() for nonce in nonces]
        selected = self.sampler.selections(records, group, [secret + name for name in names])
        drawn = self.sampler.records(records, words, selected)
        spent = self.summary.draws
        totals = self.summary.totals
        before = [spent.get(name, 0) for name in names]
        drawn[self._spend(group, names, records)] = HELD
        whole = self._names.nonces(self.sampler.table, [(who, "in all") for who, _ in pairs])
        for name, then, person in zip(names, before, whole, strict=True):
            if more := spent.get(name, 0) - then:
                totals[person.tobytes()] = totals.get(person.tobytes(), 0) + more
        return drawn

    def _spend(self, group: IntArray, names: list[bytes], records: IntArray) -> IntArray:
        """Count independent draws per person and period; the rows that are held back."""
        covered = np.flatnonzero(records >= 0)
        draws = self.summary.draws
        # A draw is a record of a group with a key, and a row of it without one.
        which = first = np.arange(len(covered))
        group = group[covered]
        fresh = np.ones(len(covered), bool)
        codes = []
        if self.key is not None:
            people = np.array([self._people.setdefault(name, len(self._people)) for name in names])
            pair = people[group] * self.sampler.domain.size + records[covered]
            different, first, which = np.unique(pair, return_index=True, return_inverse=True)
            codes = different.tolist()
            fresh = np.array([code not in self._seen for code in codes], dtype=bool)
        held = np.zeros(len(fresh), bool)
        if self.most is not None:
            # Of draws that were not made before, the earlier rows' come first.
            new = np.flatnonzero(fresh)[np.argsort(first[fresh])]
            spent = np.array([draws.get(name, 0) for name in names])[group[first[new]]]
            held[new] = spent + group_ranks(group[first[new]]) >= self.most
        made = fresh & ~held
        self._seen.update(compress(codes, made))
        for name, count in zip(names, np.bincount(group[first[made]]).tolist(), strict=False):
            if count:
                draws[name] = draws.get(name, 0) + count
        return covered[held[which.reshape(-1)]]


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
