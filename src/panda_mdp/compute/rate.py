"""The largest privacy loss per unit of distance over all pairs of records.

    max over x, x' and y of  |log w_xy - log w_x'y| / d(x, x'),

with every rounding error on the safe side (docs/audit.md), compiled by numba or in NumPy; the same
on accelerators is in compute/jax. Tables lie on the nodes of a cut (compute/cut.py), in memory
proportional to what is stored: pairs of nodes of a group are compared, a node and any other record
by the node's distance to its floor, and two that are both at the floor are equal.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.base.floored import FlooredRows
from panda_mdp.compute.cut import Cut, Rows
from panda_mdp.space.domain import Domain
from panda_mdp.space.tiles import Pairs

LOG_ERROR = 2e-13
"""Bounds the error of a difference of two float64 logarithms of integers up to 2^62, and of the
additions around it: 7e-14 where the library's logarithm errs by up to 4 ulp."""
ARITHMETIC_ERROR = 2e-15
"""Bounds the relative error of the products and divisions around a distance: 9 roundings."""
SMALL_TILES = 8
"""Up to this many tiles NumPy takes a tenth of a second; compiling, once, takes ten."""
WIDTH = 32
"""Outputs of a group of rows over a floor."""
CHUNK_ENTRIES = 1 << 21

Worst = tuple[float, int, int]
"""A rate and the two positions, or records, that attain it."""


def host_rate(
    domain: Domain, logs: FloatArray, weights: IntArray, *, compiled: bool | None = None
) -> Worst:
    """An upper bound, within the stated error, on max |log ratio| / d, and the pair of records.

    Records with equal rows of `weights` count as 0. `compiled` says whether numba's threads do it;
    by default for all but small domains.
    """
    if (weights == weights[0]).all():
        return 0.0, 0, 1
    order = domain.tiles.order
    cut = Cut.whole(domain, logs.shape[1])
    along = np.ascontiguousarray(logs[order]), np.ascontiguousarray(weights[order])
    return _by_record(domain, largest_rate(cut, *along, compiled=compiled))


def floored_rate(domain: Domain, rows: FlooredRows, *, compiled: bool | None = None) -> Worst:
    """`host_rate` of rows over a floor in which every column is 0 for all records or for none."""
    best = (0.0, 0, 1)
    for cut, weights in cuts(domain, rows):
        # A column that is 0 in all rows tells nothing.
        logs = np.log(np.maximum(weights, 1).astype(np.float64))
        floors = np.log(np.maximum(cut.floors, 1).astype(np.float64))
        lifts = lifts_of(cut, weights, logs, floors)
        best = largest_rate(cut, logs, weights, lifts, compiled, best)
    return _by_record(domain, best)


def _by_record(domain: Domain, worst: Worst) -> Worst:
    value, i, j = worst
    order = domain.tiles.order
    return (0.0, 0, 1) if value == 0.0 else (float(value), int(order[i]), int(order[j]))


def cuts(domain: Domain, rows: FlooredRows) -> Iterator[tuple[Cut, IntArray]]:
    """All outputs in groups of `WIDTH` that the same records use, a few groups at a time, and the
    weights of their nodes; the last group is filled up with columns of nothing."""
    size, outputs = rows.shape
    # The numbers of the entries, not the weights: those may be 0, and are then dropped.
    entry = np.arange(1, rows.stored + 1)
    table = scipy.sparse.csr_array((entry, rows.columns, rows.starts), shape=rows.shape)
    by_column = scipy.sparse.csc_array(table[domain.tiles.order])
    order = _alike(by_column, rows)
    by_column = by_column[:, order]
    columns = np.full((-(-outputs // WIDTH), WIDTH), -1)
    columns.ravel()[:outputs] = order
    groups, positions, tables = [0], [], []
    place = np.empty(size, dtype=np.int64)
    first = 0
    for g, listed in enumerate(columns):
        begin, end = by_column.indptr[[g * WIDTH, min((g + 1) * WIDTH, outputs)]]
        at = by_column.indices[begin:end]
        position = np.unique(at).astype(np.int64)
        place[position] = np.arange(len(position))
        floor = np.where(listed >= 0, rows.floor[listed], 1)
        weights = np.tile(floor, (len(position), 1))
        ends = by_column.indptr[g * WIDTH : min((g + 1) * WIDTH, outputs) + 1]
        column = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
        weights[place[at], column] = rows.values[by_column.data[begin:end] - 1]
        groups.append(groups[-1] + len(position))
        positions.append(position)
        tables.append(weights)
        if g + 1 == len(columns) or groups[-1] * WIDTH >= CHUNK_ENTRIES:
            some = columns[first : g + 1]
            cut = Cut(domain, some, np.array(groups), np.concatenate(positions), rows.floor)
            yield cut, np.concatenate(tables)
            groups, positions, tables, first = [0], [], [], g + 1


def _alike(by_column: scipy.sparse.csc_array, rows: FlooredRows) -> IntArray:
    """An order of the outputs by where on the map their largest weight lies."""
    value = rows.values[by_column.data - 1]
    count = np.diff(by_column.indptr)
    used = np.flatnonzero(count)
    peak = np.zeros(len(count), dtype=np.int64)
    if len(used):
        highest = np.maximum.reduceat(value, by_column.indptr[used])
        top = np.flatnonzero(value == np.repeat(highest, count[used]))
        # The first that attains it.
        column = np.repeat(used, count[used])[top]
        peak[column[::-1]] = by_column.indices[top[::-1]]
    return np.argsort(peak, kind="stable")


def uneven_column(rows: FlooredRows) -> tuple[int, int, int] | None:
    """An output that is possible for one record and impossible for another: both, and its column;
    None where there is none."""
    size, outputs = rows.shape
    if rows.floor.min() > 0 and rows.values.min(initial=1) > 0:
        return None
    count = np.bincount(rows.columns, minlength=outputs)
    stored_zeros = np.bincount(rows.columns[rows.values == 0], minlength=outputs)
    zeros = stored_zeros + np.where(rows.floor == 0, size - count, 0)
    uneven = np.flatnonzero((zeros > 0) & (zeros < size))
    if len(uneven) == 0:
        return None
    y = int(uneven[0])
    column = np.full(size, rows.floor[y])
    here = rows.columns == y
    column[rows.records[here]] = rows.values[here]
    return int(np.argmax(column != 0)), int(np.argmax(column == 0)), y


def lifts_of(
    cut: Cut, weights: npt.NDArray[Any], logs: FloatArray, floor_logs: FloatArray
) -> FloatArray:
    """The largest log ratio of every node to the floor; -1 where it is equal to it."""
    largest = np.abs(logs - floor_logs[cut.group]).max(axis=1)
    return np.where((weights == cut.floors[cut.group]).all(axis=1), -1.0, largest)


def largest_rate(
    cut: Cut,
    logs: FloatArray,
    weights: IntArray,
    lifts: FloatArray | None = None,
    compiled: bool | None = None,
    best: Worst = (0.0, 0, 1),
) -> Worst:
    """An upper bound, within the stated error, on max |log ratio| / d of a table on a cut, where it
    exceeds that of `best`, and the positions of the pair.

    Nodes with equal rows of `weights` count as 0. `lifts` are those of `lifts_of`, where some
    records are no nodes.
    """
    if len(cut.position) == 0:
        return best
    if compiled is None:
        compiled = cut.domain.tiles.count > SMALL_TILES
    high = np.maximum.reduceat(logs, cut.starts[:-1], axis=0)
    low = np.minimum.reduceat(logs, cut.starts[:-1], axis=0)
    shrink = 1 - (cut.domain.metric.relative_error + ARITHMETIC_ERROR)
    rows = Rows(logs, weights, high, low, shrink)
    scan = _compiled_pairs if compiled else _plain_pairs
    parts = np.arange(len(high))
    best = scan(cut, rows, (parts, parts, np.zeros(len(parts))), best)
    # No log ratio is larger than the span of any output's logarithms.
    begin = cut.runs[:-1][np.diff(cut.runs) > 0]
    span = np.maximum.reduceat(high, begin, axis=0) - np.minimum.reduceat(low, begin, axis=0)
    open_span = float(span.max()) + LOG_ERROR
    radius = open_span / (best[0] * shrink) if best[0] > 0 else np.inf
    for pairs in cut.later_pairs(radius):
        best = scan(cut, rows, pairs, best)
    if lifts is None:
        return best
    return (_compiled_floor if compiled else _plain_floor)(cut, lifts, shrink, best)


def _compiled_pairs(cut: Cut, rows: Rows, pairs: Pairs, best: Worst) -> Worst:
    from panda_mdp.compute.numba.audit import worst_pair

    value, i, j, _ = worst_pair(rows, cut.places, cut.starts, pairs, LOG_ERROR, best[0])
    return (value, int(cut.position[i]), int(cut.position[j])) if value > best[0] else best


def _compiled_floor(cut: Cut, lifts: FloatArray, shrink: float, best: Worst) -> Worst:
    from panda_mdp.compute.numba.audit import worst_at_floor

    value, i, j = worst_at_floor(cut, lifts, LOG_ERROR, shrink, best[0])
    return (value, i, j) if value > best[0] else best


def _plain_pairs(cut: Cut, rows: Rows, pairs: Pairs, best: Worst) -> Worst:
    """The compiled kernel's answer in NumPy and SciPy, in the memory of a few parts."""
    first, second, between = pairs
    high, low, shrink = rows.high, rows.low, rows.shrink
    # Near parts first: they tend to hold the worst pair, and then spare the far ones.
    for k in np.argsort(between, kind="stable").tolist():
        a, b = int(first[k]), int(second[k])
        reach = max((high[a] - low[b]).max(), (high[b] - low[a]).max())
        if reach + LOG_ERROR > best[0] * between[k] * shrink:
            best = _scan_parts(cut, rows, (a, b), best)
    return best


def _scan_parts(cut: Cut, rows: Rows, pair: tuple[int, int], best: Worst) -> Worst:
    """`best`, raised by the pairs of nodes of two parts."""
    one, other = (slice(cut.starts[t], cut.starts[t + 1]) for t in pair)
    distance = cut.domain.metric.block(cut.record[one], cut.record[other])
    gaps = scipy.spatial.distance.cdist(rows.logs[one], rows.logs[other], "chebyshev")
    differ = (rows.weights[one][:, None] != rows.weights[other]).any(axis=2)
    rates = np.zeros_like(distance)
    rates[differ] = (gaps[differ] + LOG_ERROR) / (distance[differ] * rows.shrink)
    i, j = divmod(int(rates.argmax()), rates.shape[1])
    if rates[i, j] > best[0]:
        return float(rates[i, j]), int(cut.position[one][i]), int(cut.position[other][j])
    return best


def _plain_floor(cut: Cut, lifts: FloatArray, shrink: float, best: Worst) -> Worst:
    """`best`, raised by nodes and records that are none of their group."""
    order = cut.domain.tiles.order
    for g, (begin, end) in enumerate(itertools.pairwise(cut.groups)):
        outside = np.setdiff1d(np.arange(cut.domain.size), cut.position[begin:end])
        for i in np.flatnonzero((cut.group == g) & (lifts >= 0)) if len(outside) else ():
            distance = cut.domain.metric.block(cut.record[i : i + 1], order[outside])[0]
            near = int(distance.argmin())
            rate = (lifts[i] + LOG_ERROR) / (distance[near] * shrink)
            if rate > best[0]:
                best = (float(rate), int(cut.position[i]), int(outside[near]))
    return best
