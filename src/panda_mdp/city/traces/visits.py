"""From positions to records: how often each record was visited, and who went where."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray
from panda_mdp.city.traces.reader import Progress, TraceReport, Traces
from panda_mdp.errors import InvalidInputError, PrivacyError
from panda_mdp.space.domain import Domain

if TYPE_CHECKING:
    from panda_mdp.prior import Prior

CONTRIBUTION = 16


@dataclass(frozen=True, eq=False)
class Visits:
    """Visits per record. They are people's own until they are made private or are public anyway.

    `bounded` holds at most `contribution` visits of each person, drawn at random from theirs:
    what a private prior is made of.
    """

    domain: Domain
    counts: IntArray
    bounded: IntArray
    contribution: int
    people: int
    outside: int
    """Fixes that lay beyond the limit from every record."""
    limit_km: float
    report: TraceReport
    source: str

    def __repr__(self) -> str:
        # Exact counts beside a private prior would undo its noise, and reprs end up in logs.
        return (
            f"Visits({self.domain.size:,} records, within {self.limit_km:g} km, at most "
            f"{self.contribution} of each person; counts <hidden>)"
        )

    def public_prior(self, *, smoothing: float = 0.0, source: str = "") -> Prior:
        """The shares of visits, where the traces are public already. See `Prior.public`."""
        from panda_mdp.prior import Prior

        described = source or f"{self.source}, {int(self.counts.sum()):,} fixes"
        return Prior.public(self.counts, source=described, smoothing=smoothing)

    def private_prior(
        self, epsilon: float, *, cell_km: float | None = 1.0, smoothing: float = 0.0
    ) -> Prior:
        """A differentially private prior, safe to optimise for. See `Prior.private`.

        Refused where it is not certain which rows are one person's: nothing else bounds what a
        person contributes.
        """
        from panda_mdp.prior import Prior

        if self.report.anonymous:
            msg = (
                f"{self.report.anonymous:,} fixes name no person, so nothing bounds what one "
                "person contributes; name the column: load_traces(..., columns={'user': ...})"
            )
            raise PrivacyError(msg)
        if self.report.doubtful is not None:
            name = self.report.doubtful
            msg = (
                f"the column {name!r} may number the rows and not name people, and then one person "
                f"counts without bound; if it names people, say so: "
                f"load_traces(..., columns={{'user': {name!r}}})"
            )
            raise PrivacyError(msg)
        return Prior.private(
            self.domain,
            self.bounded,
            epsilon=epsilon,
            contribution=self.contribution,
            cell_km=cell_km,
            smoothing=smoothing,
            source=self.source,
        )


@dataclass(frozen=True, eq=False)
class Trajectory:
    """The records that one person passed, in time. Its repr shows none of them."""

    times: FloatArray
    records: IntArray

    def __len__(self) -> int:
        return len(self.records)

    def __repr__(self) -> str:
        return f"Trajectory({len(self)} records, <hidden>)"


def snap_all(
    domain: Domain, lat: FloatArray, lon: FloatArray, limit_km: float
) -> tuple[IntArray, BoolArray]:
    """The nearest record of each place, and whether it lies within `limit_km`."""
    snaps = domain.snap(lat, lon, limit_km)
    return snaps.record, snaps.inside


def count_visits(
    traces: Traces,
    domain: Domain,
    *,
    limit_km: float = 0.5,
    contribution: int = CONTRIBUTION,
    source: str = "",
    progress: Progress | None = None,
) -> Visits:
    """Snap every fix to its nearest record and count; one pass, memory as domain and people.

    Fixes beyond `limit_km` from every record are counted as outside; where more of them would be
    inside with latitude and longitude exchanged than are inside, the file is refused. `source`
    describes the data in certificates; it is the file's name where empty.
    """
    if contribution < 1:
        msg = f"contribution is {contribution}; a person contributes at least 1 visit"
        raise InvalidInputError(msg)
    report = TraceReport()
    counts = np.zeros(domain.size, dtype=np.int64)
    sample = _PersonSample(contribution)
    outside = people = swapped = 0
    for fixes in traces.chunks(report, times=False, progress=progress):
        nearest, inside = snap_all(domain, fixes.lat, fixes.lon, limit_km)
        counts += np.bincount(nearest[inside], minlength=domain.size)
        outside += int((~inside).sum())
        swapped += _swapped(domain, fixes.lat[~inside], fixes.lon[~inside], limit_km)
        people = max(people, int(fixes.user.max()) + 1)
        sample.add(fixes.user[inside], nearest[inside])
    if swapped > counts.sum():
        msg = (
            "most fixes lie on the map only with latitude and longitude exchanged; "
            "name the columns: load_traces(..., columns={'lat': ..., 'lon': ...})"
        )
        raise InvalidInputError(msg)
    return Visits(
        domain=domain,
        counts=counts,
        bounded=np.bincount(sample.records, minlength=domain.size).astype(np.int64),
        contribution=contribution,
        people=people,
        outside=outside,
        limit_km=limit_km,
        report=report,
        source=source or f"traces {traces.name}",
    )


def _swapped(domain: Domain, lat: FloatArray, lon: FloatArray, limit_km: float) -> int:
    """How many places would be on the map with latitude and longitude exchanged."""
    possible = np.abs(lon) <= 90
    return int(snap_all(domain, lon[possible], lat[possible], limit_km)[1].sum())


class _PersonSample:
    """A uniform sample of at most `size` visits of each person, from a stream.

    Every visit gets a random key from the operating system and each person's smallest keys stay.
    Which visits of a person stay depends on that person alone, as the bound on a person's
    influence needs.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._user = np.empty(0, dtype=np.int64)
        self._key = np.empty(0, dtype=np.uint64)
        self.records = np.empty(0, dtype=np.int64)

    def add(self, user: IntArray, record: IntArray) -> None:
        user = np.concatenate([self._user, user])
        record = np.concatenate([self.records, record])
        fresh = secrets.token_bytes(8 * (len(user) - len(self._key)))
        key = np.concatenate([self._key, np.frombuffer(fresh, dtype=np.uint64)])
        order = np.lexsort((key, user))
        user, record, key = user[order], record[order], key[order]
        starts = np.flatnonzero(np.r_[True, user[1:] != user[:-1]]) if len(user) else user
        rank = np.arange(len(user)) - np.repeat(starts, np.diff(np.r_[starts, len(user)]))
        sampled = rank < self._size
        self._user, self.records, self._key = user[sampled], record[sampled], key[sampled]


def trajectories(
    traces: Traces,
    domain: Domain,
    *,
    people: int = 50,
    limit_km: float = 0.5,
    every_s: float = 0.0,
    progress: Progress | None = None,
) -> list[Trajectory]:
    """Where the first `people` persons went, as records in time, for simulations of the protocol.

    Fixes outside the limit or without a time are left out; so is a fix at the same record as the
    one before, and one less than `every_s` seconds after the last that was kept.
    """
    if people < 1:
        msg = f"people is {people}; ask for at least 1"
        raise InvalidInputError(msg)
    users: list[IntArray] = []
    times: list[FloatArray] = []
    records: list[IntArray] = []
    for fixes in traces.chunks(progress=progress):
        mine = (fixes.user < people) & np.isfinite(fixes.time)
        nearest, inside = snap_all(domain, fixes.lat[mine], fixes.lon[mine], limit_km)
        users.append(fixes.user[mine][inside])
        times.append(fixes.time[mine][inside])
        records.append(nearest[inside])
    user, time, record = np.concatenate(users), np.concatenate(times), np.concatenate(records)
    order = np.lexsort((time, user))
    user, time, record = user[order], time[order], record[order]
    return [
        _thin(time[user == person], record[user == person], every_s) for person in np.unique(user)
    ]


def _thin(time: FloatArray, record: IntArray, every_s: float) -> Trajectory:
    visits: list[int] = []
    for k in range(len(time)):
        if visits and (record[k] == record[visits[-1]] or time[k] - time[visits[-1]] < every_s):
            continue
        visits.append(k)
    return Trajectory(time[visits], record[visits])
