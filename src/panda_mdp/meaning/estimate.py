"""Where people are, from what they reported: shares of zones with limits that hold.

Grouped counts of outputs and a release are all that it takes, so memory goes by outputs and not by
users. Outputs are put together into at most a few hundred groups that do not cross zones; what is
computed of them is in `deconvolution.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray
from panda_mdp.base.packages import need
from panda_mdp.base.text import Facts, picked
from panda_mdp.city.places import Places
from panda_mdp.errors import InvalidInputError
from panda_mdp.meaning.deconvolution import (
    Moments,
    bounding_weights,
    bumps_of,
    fit_shares,
    limits,
)
from panda_mdp.space.domain import Domain, Label, check_indices
from panda_mdp.table.mechanism import Release

MOST_ZONES = 32
"""Cells of near records where no zones are given and there are more records than that."""
GROUPS = 128
LABELS = 1024
GROUPS_PER_ZONE = 2
BLOCK_ENTRIES = 1 << 22
FLOW_WEIGHTS = 10.0 ** np.arange(1.0, -3.5, -0.5)
FLOW_STEPS = 60
"""Penalties of flows that are tried, and steps at each from where the last one ended."""
SURE = 1.2
"""How much wider limits are, in deviations, that shares of flows are held within; what limits are
handed out follows from reports alone, whatever the likeliest flows are."""
UNSEEN = 3.0
"""Trips that may well be made where none was seen: none of an expected 3 has a chance of 5 %."""
Zones = Mapping[Label, npt.ArrayLike] | Sequence[Label | None] | Places
"""Records of each zone, the zone of each record (None for none), or outlines on a map."""


@dataclass(frozen=True, eq=False)
class Flows:
    """Shares of trips from zone to zone, (zones, zones) each, and how sure they are.

    `low` and `high` hold each share with 95 % confidence, **whatever the truth is**: the limits
    assume nothing of how people are spread. Reports are taken for independent. A flow's share may
    lie a little outside its limits: one in twenty is wrong.
    """

    zones: tuple[Label, ...]
    reports: Any
    """How many: a number, or one for each window."""
    raw: FloatArray
    """The share of the reports that name an output in the zone, noise and all."""
    share: FloatArray
    low: FloatArray
    high: FloatArray
    heads: ClassVar[tuple[str, str]] = ("from", "to")

    @property
    def first(self) -> tuple[Label, ...]:
        """What the rows of the numbers are about; columns are zones."""
        return self.zones

    def numbers(self) -> dict[str, npt.NDArray[Any]]:
        """Those of a row of a table, by name."""
        return picked(self, "raw", "share", "low", "high")

    def rows(self) -> Iterator[Facts]:
        """One row per pair of zones, or per window and zone, for a table."""
        numbers = {name: part.tolist() for name, part in self.numbers().items()}
        for a, first in enumerate(self.first):
            for b, zone in enumerate(self.zones):
                told = {name: part[a][b] for name, part in numbers.items()}
                yield {self.heads[0]: first, self.heads[1]: zone, **told}


@dataclass(frozen=True, eq=False)
class Estimate(Flows):
    """Shares of people per time window and zone, (windows, zones) each; limits as in `Flows`."""

    windows: tuple[Label, ...]
    unplaced: FloatArray
    """The share of people that this table cannot place inside or outside the zone from so many
    reports: part of the width of the limits that is not chance."""
    records: FloatArray
    """(windows, records): the penalised likelihood's shares, for pictures; no limits hold here."""
    heads: ClassVar[tuple[str, str]] = ("window", "zone")

    @property
    def first(self) -> tuple[Label, ...]:
        return self.windows

    @property
    def told_apart(self) -> BoolArray:
        """False where over half of those who may be in the zone may as well be outside it."""
        return self.unplaced <= 0.5 * self.high

    def numbers(self) -> dict[str, npt.NDArray[Any]]:
        return super().numbers() | {"told_apart": self.told_apart}


@dataclass(frozen=True, eq=False)
class Trips(Flows):
    """Flows, and limits of their sums, such as all trips of one length."""

    sums: Callable[[FloatArray], tuple[FloatArray, FloatArray]]
    """Low and high of the shares of pairs together: (n, zones, zones) of 0 and 1 say which."""


class Channel(NamedTuple):
    """What a release makes of records, with outputs in groups."""

    rows: FloatArray
    """(K, p): the chance of each group."""
    groups: IntArray
    """(m,): the group of each output."""
    home: IntArray
    """(m,): the record that an output is, or is likeliest for."""

    @classmethod
    def of(cls, release: Release, zones: FloatArray) -> Channel:
        """The channel of a release, its outputs grouped within zones and near each other."""
        problem = release.problem
        home = problem.reports.records
        if home is None:
            home = _likeliest(release)
        count = problem.outputs_count
        groups = np.arange(count)
        # Labels that are no places may be read by nothing but their column.
        few = LABELS if problem.reports.kind == "labels" else GROUPS
        wanted = max(few, GROUPS_PER_ZONE * zones.shape[1])
        if count > wanted:
            plane = problem.domain.plane
            zone = np.where(zones.any(axis=1), zones.argmax(axis=1), zones.shape[1])[home]
            cell = cells(None if plane is None else plane[home], count, wanted)
            groups = np.unique(zone * count + cell, return_inverse=True)[1].reshape(-1)
        rows = np.empty((problem.size, int(groups.max()) + 1))
        order = np.argsort(groups, kind="stable")
        starts = np.searchsorted(groups[order], np.arange(rows.shape[1]))
        for part, block in _blocks(release):
            rows[part] = np.add.reduceat(block[:, order], starts, axis=1)
        return cls(rows, groups, home)

    def counts(self, counts: FloatArray) -> FloatArray:
        """(windows, m) counts of outputs, by groups."""
        grouped = np.zeros((len(counts), self.rows.shape[1]))
        np.add.at(grouped.T, self.groups, counts.T)
        return grouped


def _blocks(release: Release) -> Iterator[tuple[slice, FloatArray]]:
    """The rows of a release, of any kind, a few at a time."""
    size = release.problem.size
    step = max(1, BLOCK_ENTRIES // release.problem.outputs_count)
    for start in range(0, size, step):
        part = slice(start, min(size, start + step))
        yield part, np.stack([release.row(x) for x in range(part.start, part.stop)])


def _likeliest(release: Release) -> IntArray:
    """For every output the record that reports it most often."""
    best = np.full(release.problem.outputs_count, -1.0)
    home = np.zeros(len(best), np.int64)
    for part, block in _blocks(release):
        here = block.max(axis=0)
        home = np.where(here > best, part.start + block.argmax(axis=0), home)
        best = np.maximum(best, here)
    return home


def cells(places: FloatArray | None, size: int, count: int) -> IntArray:
    """The number of each place's cell: the largest halved along its longer side, until there are
    `count`.

    Without places, stretches of what follows each other.

    >>> cells(np.array([[0.0, 0.0], [9.0, 0.0], [1.0, 0.0], [8.0, 1.0]]), 4, 2).tolist()
    [0, 1, 0, 1]
    """
    parts = [np.arange(size)]
    while len(parts) < min(count, size):
        members = parts.pop(int(np.argmax([*map(len, parts)])))
        if places is not None:
            axis = int(np.ptp(places[members], axis=0).argmax())
            members = members[np.argsort(places[members, axis], kind="stable")]
        parts += np.array_split(members, 2)
    labels = np.zeros(size, np.int64)
    for label, members in enumerate(sorted(parts, key=lambda members: int(members[0]))):
        labels[members] = label
    return labels


def zone_matrix(zones: Zones | None, domain: Domain) -> tuple[tuple[Label, ...], FloatArray]:
    """Names of zones, and which records (K) lie in which (G) as 0 and 1.

    Without zones every record is one, or where there are many, cells of near records are.
    """
    size = domain.size
    if zones is None and size <= MOST_ZONES:
        return domain.labels or tuple(range(size)), np.eye(size)
    if zones is None:
        label = cells(domain.plane, size, MOST_ZONES)
        zones = [f"cell {k + 1}" for k in label.tolist()]
    if isinstance(zones, Places):
        zones = _records_within(zones, domain)
    if not isinstance(zones, Mapping):
        if len(zones) != size:
            raise InvalidInputError(
                f"zones has {len(zones)} entries for {size} records; give the zone of each record, "
                "or a mapping of names to records"
            )
        named: dict[Label, list[int]] = {}
        for record, name in enumerate(zones):
            if name is not None:
                named.setdefault(name, []).append(record)
        zones = named
    matrix = np.zeros((size, len(zones)))
    for g, (name, records) in enumerate(zones.items()):
        matrix[check_indices(records, size, f"zone {name!r}", InvalidInputError), g] = 1.0
    if not (zones and matrix.any(axis=0).all()):
        raise InvalidInputError("no record lies in a zone; are zones and table of one area?")
    return tuple(zones), matrix


def _records_within(places: Places, domain: Domain) -> dict[Label, IntArray]:
    """The records inside each outline; outlines without any are left out."""
    shapely = need("shapely", "zones on a map", "geo")
    if places.shapes is None or not domain.geographic:
        raise InvalidInputError(
            "zones on a map need outlines, and a table of places; or give the zone of each record"
        )
    tree = shapely.STRtree(shapely.points(domain.lon, domain.lat))
    zone, record = tree.query(places.shapes, predicate="covers")
    found = {name: record[zone == g] for g, name in enumerate(places.names)}
    return {name: np.sort(records) for name, records in found.items() if len(records)}


def estimate_groups(
    channel: Channel,
    seen: FloatArray,
    zones: tuple[tuple[Label, ...], FloatArray],
    domain: Domain,
    windows: Sequence[Label],
) -> Estimate:
    """`estimate_counts` from (windows, m) counts of a channel's outputs, and zones as
    `zone_matrix` gives them."""
    names, matrix = zones
    rows = channel.rows
    total = seen.sum(axis=1)
    bounds = bounding_weights(rows, matrix, float(total.mean()))
    spread = rows @ (bounds.upper - bounds.lower)
    squares = [(rows @ weights, rows @ weights**2) for weights in bounds]
    bumps = bumps_of(domain)
    found: list[tuple[FloatArray, ...]] = []
    for counts, reports in zip(channel.counts(seen), total.tolist(), strict=True):
        records = fit_shares(rows, counts, bumps=bumps)
        sides = [_inside(records, part) for part in (matrix, 1 - matrix)]
        moments = [
            Moments(*((part * values).sum(axis=0) for values in pair for part in sides))
            for pair in squares
        ]
        low = np.zeros(matrix.shape[1])
        high = np.ones(matrix.shape[1])
        if reports:
            means = [counts @ weights / reports for weights in bounds]
            low, high = limits(means, moments, reports)
        share = np.clip(records @ matrix, low, high)
        found.append((share, low, high, np.clip(records @ spread, 0, 1), records))
    share, low, high, unplaced, every = (np.stack(part) for part in zip(*found, strict=True))
    raw = np.minimum(seen @ matrix[channel.home] / np.maximum(total, 1)[:, None], 1)
    return Estimate(names, total, raw, share, low, high, tuple(windows), unplaced, every)


def estimate_counts(
    counts: npt.ArrayLike,
    release: Release,
    zones: Zones | None = None,
    *,
    windows: Sequence[Label] = ("all",),
) -> Estimate:
    """Shares of people per zone from how often each of the m outputs was reported.

    `counts` is (m,), or (windows, m) with a name each. The limits hold the share of a zone in 95 %
    of all surveys, whatever the truth; where the table cannot tell a zone from others they are wide
    and `told_apart` is False.
    """
    seen = np.atleast_2d(np.asarray(counts, dtype=float))
    shape = (len(windows), release.problem.outputs_count)
    if seen.shape != shape or not (np.isfinite(seen).all() and (seen >= 0).all()):
        raise InvalidInputError(
            f"counts have the shape {seen.shape}; give {shape}, numbers from 0 on: one for each "
            "window and output"
        )
    domain = release.problem.domain
    named = zone_matrix(zones, domain)
    return estimate_groups(Channel.of(release, named[1]), seen, named, domain, windows)


def estimate_pairs(counts: Any, release: Release, zones: Zones | None = None) -> Trips:
    """Shares of trips from zone to zone from how often each pair of outputs was reported.

    `counts` is (m, m), dense or sparse: start by end, both drawn independently from the release.
    With a <= u, l <= a for both ends, u_a u_b lies above the product of two indicators and
    u_a l_b + l_a u_b - u_a u_b below it, at every pair of records: the limits hold as for one end.
    """
    import scipy.sparse

    pairs = scipy.sparse.coo_array(counts)
    size = release.problem.outputs_count
    if pairs.shape != (size, size) or not (pairs.data >= 0).all():
        raise InvalidInputError(
            f"counts of pairs have the shape {pairs.shape}; give {(size, size)}"
        )
    names, matrix = zone_matrix(zones, release.problem.domain)
    channel = Channel.of(release, matrix)
    rows = channel.rows
    width = channel.rows.shape[1]
    seen = np.zeros((width, width))
    start, end = pairs.coords
    np.add.at(seen, (channel.groups[start], channel.groups[end]), pairs.data)
    total = max(float(seen.sum()), 1.0)
    homes = matrix[channel.home]
    raw = homes.T @ (pairs.tocsr() @ homes) / total
    bumps = bumps_of(release.problem.domain)
    ends = [fit_shares(rows, seen.sum(axis=axis), bumps=bumps) for axis in (1, 0)]
    flows, told = _joint(rows, matrix, seen, ends)
    lower, upper = bounding_weights(rows, matrix, total)
    products = ([(1, upper, lower), (1, lower, upper), (-1, upper, upper)], [(1, upper, upper)])

    def sums(chosen: FloatArray) -> tuple[FloatArray, FloatArray]:
        weights = [np.asarray(sum(s * a @ chosen @ b.T for s, a, b in terms)) for terms in products]
        moments = [[np.einsum("nij,ij->n", w**k, told) for k in (1, 2)] for w in weights]
        means = [np.einsum("nij,ij->n", w, seen / total) for w in weights]
        return limits(means, _chance(moments, total), total)

    means = [_moments_of(terms, seen / total)[0] for terms in products]
    chance = _chance([_moments_of(terms, told) for terms in products], total)
    low, high = limits(means, chance, total)
    # Some of many limits are wrong: none is to decide what the likeliest flow is.
    share = np.clip(flows, *limits(means, chance, total / SURE**2))
    return Trips(names, float(seen.sum()), raw, share, low, high, sums)


def _chance(moments: Sequence[Sequence[FloatArray]], total: float) -> list[Moments]:
    """Of reports as the likeliest flows lead to them, whatever the share, and of `UNSEEN` trips
    more, from means and squares of lower and of upper weights."""
    nothing = np.zeros(1)
    variances = [np.maximum(squares - mean**2, 0.0) + UNSEEN / total for mean, squares in moments]
    return [Moments(nothing, nothing, each, each) for each in variances]


def _moments_of(
    terms: Sequence[tuple[int, FloatArray, FloatArray]], told: FloatArray
) -> list[FloatArray]:
    """First and second moments, over pairs of groups, of sums of products of weights."""
    first = sum(s * a.T @ told @ b for s, a, b in terms)
    second = sum(s * t * (a * c).T @ told @ (b * d) for s, a, b in terms for t, c, d in terms)
    return [np.asarray(first), np.asarray(second)]


def _inside(records: FloatArray, zones: FloatArray) -> FloatArray:
    """Shares of records within each zone, (K, G)."""
    part = records[:, None] * zones
    return part / np.maximum(part.sum(axis=0), 1e-300)


def _joint(
    rows: FloatArray, zones: FloatArray, seen: FloatArray, ends: list[FloatArray]
) -> tuple[FloatArray, FloatArray]:
    """Shares of pairs of zones, people within a zone spread as at that end alone; and
    of pairs of groups.

    The likeliest where `weight` n trips are added whose ends do not depend on each other; the
    weight predicts held-out trips best.
    """
    every = np.column_stack([zones, 1 - zones.max(axis=1)])
    every = every / np.maximum(every.sum(axis=1), 1)[:, None]
    first, last = (_inside(records, every).T @ rows for records in ends)
    independent = np.outer(*(records @ every for records in ends))
    independent /= max(float(independent.sum()), 1e-300)

    def path(counts: FloatArray) -> Iterator[FloatArray]:
        flows = independent
        trips = counts / max(float(counts.sum()), 1.0)
        for weight in FLOW_WEIGHTS:
            for _ in range(FLOW_STEPS):
                told = first.T @ flows @ last
                ratio = np.divide(trips, told, out=np.zeros_like(trips), where=told > 0)
                flows = (flows * (first @ ratio @ last.T) + weight * independent) / (1 + weight)
            yield flows

    half = np.random.default_rng(0).binomial(np.round(seen).astype(np.int64), 0.5).astype(float)
    rest = np.maximum(seen - half, 0.0)
    scores = [
        float((rest * np.log(np.maximum(first.T @ flows @ last, 1e-300))).sum())
        for flows in (independent, *path(half))
    ]
    found = (independent, *path(seen))[int(np.argmax(scores))]
    found = found / max(float(found.sum()), 1e-300)
    return found[:-1, :-1], first.T @ found @ last
