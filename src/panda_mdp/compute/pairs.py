"""All pairs of records of a table: what runs loops over them, where the rows lie that they compare,
and the largest privacy loss per unit of distance.

**What runs them**: numba's threads, accelerators through JAX, or, of small domains, NumPy.

**Where rows lie**: groups of outputs times the records that each group holds. A node is a record in
a group of outputs; whatever is no node is at the floor, which all records share. A dense table is
the cut with one group that holds every record. Within a group nodes follow the domain's tiles;
those of one group and one tile are a part, and loops go from part to part of a group.

**The largest loss**

    max over x, x' and y of  |log w_xy - log w_x'y| / d(x, x'),

with every rounding error on the safe side (docs/audit.md), compiled by numba; of small domains, and
where it is asked for, row by row in NumPy. The same on accelerators is in compute/jax. Memory is in
proportion to what is stored: pairs of nodes of a group are compared, a node and any other record by
the node's distance to its floor, and two that are both at the floor are equal. Of path metrics
(space/paths.py) the pairs that imply all others are compared.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy

from panda_mdp.base.arrays import (
    AnyArray,
    BoolArray,
    FloatArray,
    IntArray,
    incidence,
    offsets,
    owners,
)
from panda_mdp.base.factored import MOST_DENSE
from panda_mdp.base.floored import FlooredRows
from panda_mdp.base.threads import by_slices, in_parts
from panda_mdp.space.domain import Domain
from panda_mdp.space.tiles import TILE, Coordinates, Pairs, TilePairs, coordinates, joined

Backend = Literal["numba", "jax", "numpy"]
LARGE = 1 << 25
"""Entries, stored or of rows in factors, beyond which an accelerator audits them where there is
one: threads would take minutes."""
MEMORY_FULL = "RESOURCE_EXHAUSTED"
"""JAX's own word, in a RuntimeError, for a device whose memory is full."""


def has_numba() -> bool:
    """Whether loops can be compiled on this host; a machine with an accelerator may go without."""
    try:
        return find_spec("numba") is not None
    except ImportError:
        return False


def take_memory_as_needed() -> None:
    """Have JAX take a device's memory as it is needed, unless it was told what to do.

    All at once, as it would, takes its time on a large device, and leaves others nothing. It is too
    late once JAX has looked for devices.
    """
    if "XLA_PYTHON_CLIENT_ALLOCATOR" not in os.environ:
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def accelerator() -> bool:
    """Whether JAX is installed and sees something faster than this CPU."""
    try:
        import jax
    except ImportError:
        return False
    take_memory_as_needed()
    return bool(jax.default_backend() != "cpu")


def chosen_backend(entries: int, backend: Backend | None = None) -> Backend:
    """What audits so many entries: `backend`, or an accelerator where they are many and there is
    one, or numba; where that is missing an accelerator, or NumPy."""
    if backend is not None:
        return backend
    compiled = has_numba()
    if (entries > LARGE or not compiled) and accelerator():
        return "jax"
    return "numba" if compiled else "numpy"


TURNS = 16
Worst = tuple[float, int, int]
"""A rate and the two positions, or records, that attain it."""


class Links(NamedTuple):
    """The constrained pairs of every node: others[starts[i]:starts[i + 1]] of node i, -1 where the
    other record is no node of its group."""

    starts: IntArray
    others: IntArray
    lengths: FloatArray
    places: IntArray
    """Positions of the others, nodes or not."""

    @property
    def firsts(self) -> IntArray:
        """The node that every entry of `others` belongs to."""
        return owners(self.starts)


@dataclass(frozen=True, eq=False)
class Cut:
    """Groups of outputs and the nodes that each has."""

    domain: Domain
    columns: IntArray
    """(groups, width) outputs; -1 where a group has fewer."""
    groups: IntArray
    """(groups + 1,): nodes of group g from groups[g] on."""
    position: IntArray
    """Of every node along the domain's tiles, ascending within a group."""
    floor: AnyArray
    """(m,): what entries that are no nodes are; whole numbers where the table has such."""

    @classmethod
    def whole(cls, domain: Domain, outputs: int) -> Cut:
        """One group of all outputs that holds every record, over no floor."""
        position = np.arange(domain.size)
        groups = np.array([0, domain.size])
        return cls(domain, np.arange(outputs)[None], groups, position, np.zeros(outputs))

    @cached_property
    def dense(self) -> bool:
        """Whether this is one group that holds every record, over no floor."""
        one = len(self.columns) == 1 and len(self.position) == self.domain.size
        return one and not self.floor.any()

    @cached_property
    def group(self) -> IntArray:
        """The group of every node."""
        return owners(self.groups)

    @cached_property
    def record(self) -> IntArray:
        """The record of every node."""
        return self.domain.tiles.order[self.position]

    @cached_property
    def exists(self) -> BoolArray:
        """(groups, width): whether a column is an output."""
        return self.columns >= 0

    @cached_property
    def floors(self) -> AnyArray:
        """(groups, width); 1 in columns that do not exist, where every entry is 1 too."""
        one = self.floor.dtype.type(1)
        return np.where(self.exists, self.floor[np.maximum(self.columns, 0)], one)

    @cached_property
    def by_position(self) -> tuple[IntArray, IntArray]:
        """The nodes of every position: offsets and nodes."""
        return incidence(self.position, self.domain.size)

    @cached_property
    def tile(self) -> IntArray:
        """The tile of every node."""
        return np.searchsorted(self.domain.tiles.starts, self.position, side="right") - 1

    @cached_property
    def starts(self) -> IntArray:
        """Where the nodes of every part begin, and where the last ends."""
        number = self.group * self.domain.tiles.count + self.tile
        return np.append(np.flatnonzero(np.diff(number, prepend=-1)), len(number))

    @cached_property
    def runs(self) -> IntArray:
        """Where the parts of every group begin, and where the last ends."""
        return np.searchsorted(self.starts, self.groups)

    @property
    def leading(self) -> IntArray:
        """The first part of every group that has one."""
        return self.runs[:-1][np.diff(self.runs) > 0]

    @cached_property
    def parts(self) -> IntArray:
        """(groups, tiles): the part of a group and a tile, -1 where it has none."""
        first = self.starts[:-1]
        out = np.full((len(self.columns), self.domain.tiles.count), -1)
        out[self.group[first], self.tile[first]] = np.arange(len(first))
        return out

    def pairs_of(self, tiles: TilePairs) -> TilePairs:
        """Pairs of parts of one group whose tiles are paired."""
        if self.dense:
            return tiles
        pairs = self._paired(tiles.first, tiles.second, tiles.between)
        return TilePairs.over(len(self.starts) - 1, *pairs)

    def later_pairs(self, radius: float) -> Iterator[Pairs]:
        """Pairs of different parts of one group within a radius, each once, and their distance at
        least; sorted by the first."""
        for pairs in self.domain.tiles.later(radius):
            yield self._paired(*pairs)

    def _paired(self, first: IntArray, second: IntArray, between: FloatArray) -> Pairs:
        def of_group(parts: IntArray) -> Pairs:
            a = parts[first]
            b = parts[second]
            both = np.flatnonzero((a >= 0) & (b >= 0))
            return a[both], b[both], between[both]

        return joined(of_group(parts) for parts in self.parts)

    @cached_property
    def links(self) -> Links | None:
        """The pairs that imply all others, node by node; None for metrics that have none."""
        known = self.domain.tiles.links
        if known is None:
            return None
        starts = offsets(np.diff(known.indptr)[self.position])
        node = owners(starts)
        at = np.arange(len(node)) - starts[node] + known.indptr[self.position[node]]
        place = known.indices[at].astype(np.int64)
        if self.dense:
            return Links(starts, place, known.data[at], place)
        keys = self.group * self.domain.size + self.position
        wanted = self.group[node] * self.domain.size + place
        found = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return Links(starts, np.where(keys[found] == wanted, found, -1), known.data[at], place)

    @cached_property
    def places(self) -> Coordinates:
        """The metric as compiled loops take it, node by node."""
        return coordinates(self.domain.metric, self.record)

    @cached_property
    def turns(self) -> IntArray:
        """The parts so that each thread's share of them is spread over the domain."""
        return np.argsort(np.arange(len(self.starts) - 1) % TURNS, kind="stable")


LOG_ERROR = 2e-13
"""Bounds the error of a difference of two float64 logarithms of integers up to 2^62, and of the
additions around it: 7e-14 where the library's logarithm errs by up to 4 ulp."""
ARITHMETIC_ERROR = 2e-15
"""Bounds the relative error of the products and divisions around a distance: 9 roundings."""
SMALL_TILES = 8
"""Up to this many tiles NumPy takes a tenth of a second; compiling, once, takes ten."""
WIDTH = 32
"""Outputs of a group of rows over a floor."""
CHUNK_ENTRIES = 1 << 19
"""Stored entries of the groups that are looked at together."""


def host_rate(
    domain: Domain, logs: FloatArray, weights: IntArray, compiled: bool | None = None
) -> Worst:
    """An upper bound, within the stated error, on max |log ratio| / d, and the pair of records.

    Records with equal rows of `weights` count as 0. `compiled` says whether numba's threads do it;
    by default for all but small domains, where it is installed.
    """
    if (weights == weights[0]).all():
        return 0.0, 0, 1
    order = domain.tiles.order
    links = domain.metric.generating_pairs
    if compiled is None:
        compiled = domain.tiles.count > SMALL_TILES and has_numba()
    if not compiled and links is None:
        return plain_rate(domain, logs, weights)
    cut = Cut.whole(domain, logs.shape[1])
    along = np.ascontiguousarray(logs[order]), np.ascontiguousarray(weights[order])
    return _by_record(domain, largest_rate(cut, *along))


def plain_rate(domain: Domain, logs: FloatArray, weights: IntArray) -> Worst:
    """`host_rate` in NumPy and SciPy, over all pairs, some rows at a time."""
    every, best = np.arange(domain.size), (0.0, 0, 1)
    alike = np.unique(weights, axis=0, return_inverse=True)[1].ravel()
    for some in np.split(every, every[TILE::TILE]):
        apart = domain.metric.block(some, every) * shrinking(domain)
        gaps = scipy.spatial.distance.cdist(logs[some], logs, "chebyshev") + LOG_ERROR
        rates = np.divide(gaps, apart, out=np.zeros_like(gaps), where=alike[some][:, None] != alike)
        i, j = divmod(int(rates.argmax()), domain.size)
        best = max(best, (float(rates[i, j]), int(some[i]), j), key=lambda worst: worst[0])
    return best


def shrinking(domain: Domain) -> float:
    """By what distances are multiplied, so that none is too large."""
    return 1 - (domain.metric.relative_error + ARITHMETIC_ERROR)


def floored_rate(
    domain: Domain,
    rows: FlooredRows,
    compiled: bool | None = None,
) -> Worst:
    """`host_rate` of rows over a floor in which every column is 0 for all records or for none."""
    if not rows.stored:
        return 0.0, 0, 1
    small = domain.tiles.count <= SMALL_TILES and rows.shape[0] * rows.shape[1] <= MOST_DENSE
    if compiled is None:
        compiled = not small and has_numba()
    if not compiled:
        whole = np.asarray(rows)
        return host_rate(domain, np.log(np.maximum(whole, 1).astype(float)), whole, False)
    best = (0.0, 0, 1)
    for cut, weights in cuts(domain, rows):
        # A column that is 0 in all rows tells nothing.
        logs = np.log(np.maximum(weights, 1).astype(float))
        floors = np.log(np.maximum(cut.floors, 1).astype(float))
        best = largest_rate(cut, logs, weights, lifts_of(cut, weights, logs, floors), best)
    return _by_record(domain, best)


def _by_record(domain: Domain, worst: Worst) -> Worst:
    value, *pair = worst
    i, j = domain.tiles.order[pair].tolist()
    return (value, i, j) if value > 0 else (0.0, 0, 1)


def cuts(
    domain: Domain, rows: FlooredRows, entries: int = CHUNK_ENTRIES
) -> Iterator[tuple[Cut, IntArray]]:
    """All outputs in groups of `WIDTH` that the same records use, a few groups at a time, and the
    weights of their nodes; the last group is filled up with columns of nothing."""
    (size, outputs), column, value = rows.shape, rows.columns, rows.values
    position = np.argsort(domain.tiles.order)[rows.records]
    # Alike by where on the map their largest weight lies.
    largest = np.full(outputs, -1)
    peak = np.full(outputs, size)
    np.maximum.at(largest, column, value)
    highest = value == largest[column]
    np.minimum.at(peak, column[highest], position[highest])
    order = np.argsort(peak, kind="stable")
    columns = np.full((-(-outputs // WIDTH), WIDTH), -1)
    columns.ravel()[:outputs] = order
    group, k = np.divmod(np.argsort(order)[column], WIDTH)
    along = np.argsort(group, kind="stable")
    begin = np.searchsorted(group[along], np.arange(len(columns) + 1))
    few = max(1, entries * len(columns) // max(1, rows.stored))
    for first in range(0, len(columns), few):
        some = columns[first : first + few]
        here = along[begin[first] : begin[first + len(some)]]
        key, node = np.unique((group[here] - first) * size + position[here], return_inverse=True)
        groups = np.searchsorted(key, size * np.arange(len(some) + 1))
        cut = Cut(domain, some, groups, key % size, rows.floor)
        weights = cut.floors[cut.group]
        weights[node, k[here]] = value[here]
        yield cut, weights


def uneven_column(rows: FlooredRows) -> tuple[int, int, int] | None:
    """An output that is possible for one record and impossible for another: both, and its column;
    None where there is none."""
    size, outputs = rows.shape
    if rows.floor.min() > 0 and rows.values.min(initial=1) > 0:
        return None
    stored, zeros = (
        np.bincount(some, minlength=outputs)
        for some in (rows.columns, rows.columns[rows.values == 0])
    )
    zeros += np.where(rows.floor == 0, size - stored, 0)
    mixed = np.flatnonzero((zeros > 0) & (zeros < size))
    if not len(mixed):
        return None
    y = int(mixed[0])
    weights = np.full(size, rows.floor[y])
    here = rows.columns == y
    weights[rows.records[here]] = rows.values[here]
    return int(weights.argmax()), int(weights.argmin()), y


def lifts_of(cut: Cut, weights: AnyArray, logs: FloatArray, floor_logs: FloatArray) -> FloatArray:
    """The largest log ratio of every node to the floor; -1 where it is equal to it."""
    largest = np.abs(logs - floor_logs[cut.group]).max(axis=1)
    return np.where((weights == cut.floors[cut.group]).all(axis=1), -1.0, largest)


def largest_rate(
    cut: Cut,
    logs: FloatArray,
    weights: IntArray,
    lifts: FloatArray | None = None,
    best: Worst = (0.0, 0, 1),
) -> Worst:
    """An upper bound, within the stated error, on max |log ratio| / d of a table on a cut, where it
    exceeds that of `best`, and the positions of the pair.

    Nodes with equal rows of `weights` count as 0. `lifts` are those of `lifts_of`, where some
    records are no nodes. The distance of a pair of parts and the extremes of their rows bound what
    it can attain, so one that cannot exceed what was found already is passed over, and so is a pair
    of nodes.
    """
    if len(cut.position) == 0:
        return best
    if cut.links is not None:
        return _along_links(cut, cut.links, logs, weights, lifts, best)
    from panda_mdp.compute.numba.audit import scan_floor, scan_runs

    high = np.maximum.reduceat(logs, cut.starts[:-1], axis=0)
    low = np.minimum.reduceat(logs, cut.starts[:-1], axis=0)
    tiles = cut.domain.tiles
    shrink = shrinking(cut.domain)
    rows = logs, weights, high, low, shrink

    def worst(loop: Any, count: int, shared: tuple[Any, ...], places: IntArray) -> Worst:
        found = np.full((count + 1, 3), best[0])
        in_parts(loop, count, *shared, LOG_ERROR, found)
        value, *pair = found[found[:, 0].argmax()].tolist()
        i, j = places[np.array(pair, dtype=np.int64)].tolist() if value > best[0] else best[1:]
        return value, i, j

    def scanned(pairs: Pairs) -> Worst:
        # Sorted by the first part, which threads share.
        runs = np.append(np.flatnonzero(np.diff(pairs[0], prepend=-1)), len(pairs[0]))
        shared = (rows, cut.places, cut.starts, runs, pairs)
        return worst(scan_runs, len(runs) - 1, shared, cut.position)

    parts = np.arange(len(high))
    best = scanned((parts, parts, np.zeros(len(parts))))
    # No log ratio is larger than the span of any output's logarithms.
    spans = np.maximum.reduceat(high, cut.leading) - np.minimum.reduceat(low, cut.leading)
    open_span = float(spans.max()) + LOG_ERROR
    radius = open_span / (best[0] * shrink) if best[0] > 0 else np.inf
    for pairs in cut.later_pairs(radius):
        best = scanned(pairs)
    if lifts is None or lifts.max() < 0:
        return best
    nodes = (lifts, (cut.groups, cut.position, cut.tile))
    reach = float(lifts.max()) + LOG_ERROR
    near = tiles.pairs(reach / (best[0] * shrink) if best[0] > 0 else np.inf)
    where = (coordinates(cut.domain.metric, tiles.order), tiles.starts, near)
    shared = (*nodes, *where, shrink)
    return worst(scan_floor, len(cut.columns), shared, np.arange(cut.domain.size))


def _along_links(
    cut: Cut,
    links: Links,
    logs: FloatArray,
    weights: IntArray,
    lifts: FloatArray | None,
    best: Worst,
) -> Worst:
    """`largest_rate` over the pairs that imply all others.

    If every log ratio of such a pair is at most rate times its length, then so is that of any two
    records: add up along a shortest path. So the largest rate over these pairs is that of all.
    """
    first = links.firsts
    shrink = shrinking(cut.domain)
    rates = np.zeros(len(first))
    inside = np.flatnonzero(links.others > first)

    def work(part: slice) -> None:
        some = inside[part]
        i = first[some]
        j = links.others[some]
        gap = np.abs(logs[i] - logs[j]).max(axis=1) + LOG_ERROR
        differ = (weights[i] != weights[j]).any(axis=1)
        rates[some] = np.where(differ, gap / (links.lengths[some] * shrink), 0.0)

    by_slices(work, len(inside), max(1, CHUNK_ENTRIES // logs.shape[1]))
    if lifts is not None:
        edge = np.flatnonzero((links.others < 0) & (lifts[first] >= 0))
        rates[edge] = (lifts[first[edge]] + LOG_ERROR) / (links.lengths[edge] * shrink)
    worst = int(rates.argmax()) if len(rates) else 0
    if not len(rates) or rates[worst] <= best[0]:
        return best
    return float(rates[worst]), int(cut.position[first[worst]]), int(links.places[worst])
