"""The largest privacy loss per unit of distance over all pairs of records.

    max over x, x' and y of  |log w_xy - log w_x'y| / d(x, x'),

with every rounding error on the safe side (docs/audit.md), compiled by numba; of small domains, and
where it is asked for, row by row in NumPy. The same on accelerators is in compute/jax. Tables lie
on the nodes of a cut (compute/cut.py), in memory proportional to what is stored: pairs of nodes of
a group are compared, a node and any other record by the node's distance to its floor, and two that
are both at the floor are equal. Of path metrics (space/paths.py) the pairs that imply all others
are compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy

from panda_mdp.base.arrays import AnyArray, FloatArray, IntArray
from panda_mdp.base.factored import MOST_DENSE
from panda_mdp.base.floored import FlooredRows
from panda_mdp.base.threads import by_slices, in_parts
from panda_mdp.compute.backend import has_numba
from panda_mdp.compute.cut import Cut, Links, Rows, Worst
from panda_mdp.space.domain import Domain
from panda_mdp.space.tiles import TILE, Pairs

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
    from panda_mdp.compute.numba.distance import coordinates

    high = np.maximum.reduceat(logs, cut.starts[:-1], axis=0)
    low = np.minimum.reduceat(logs, cut.starts[:-1], axis=0)
    tiles = cut.domain.tiles
    shrink = shrinking(cut.domain)
    rows = Rows(logs, weights, high, low, shrink)

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
    if lifts is None:
        return best
    nodes = (lifts, (cut.groups, cut.position, cut.tile))
    where = (coordinates(cut.domain.metric, tiles.order), tiles.starts, tiles.between)
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
