"""The largest privacy loss per unit of distance of a table that is stored over a floor.

    max over x, x' and y of  |log w_xy - log w_x'y| / d(x, x')

over all pairs and all outputs, in memory proportional to what is stored. Outputs are taken in
groups that the same records use. Inside a group a record is a node where it has a weight other than
the floor's: pairs of nodes are compared as ever, a node and any other record by the node's distance
to its floor, and two that are both at the floor are equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.base.floored import FlooredRows
from panda_mdp.compute.rate import ARITHMETIC_ERROR, LOG_ERROR
from panda_mdp.space.domain import Domain

WIDTH = 32
"""Outputs of a group."""
CHUNK_ENTRIES = 1 << 21


@dataclass(frozen=True)
class Group:
    """Some outputs, and the records that have weights of their own in them."""

    position: IntArray
    """Of the records along the domain's tiles, ascending."""
    weights: IntArray
    """(nodes, WIDTH)."""
    floor: IntArray
    """(WIDTH,)."""

    @property
    def logs(self) -> FloatArray:
        """Logarithms; a column that is 0 in all rows tells nothing."""
        return np.log(np.maximum(self.weights, 1).astype(np.float64))

    @property
    def lifts(self) -> FloatArray:
        """The largest log ratio of every node to the floor; -1 where it is equal to it."""
        floor = np.log(np.maximum(self.floor, 1).astype(np.float64))
        largest = np.abs(self.logs - floor).max(axis=1)
        return np.where((self.weights == self.floor).all(axis=1), -1.0, largest)


def groups(domain: Domain, rows: FlooredRows) -> Iterator[Group]:
    """All outputs in groups of `WIDTH`, the last one filled up with columns of nothing."""
    shape = rows.shape
    # The numbers of the entries, not the weights: those may be 0, and are then dropped.
    entry = np.arange(1, rows.stored + 1)
    table = scipy.sparse.csr_array((entry, rows.columns, rows.starts), shape=shape)
    by_column = scipy.sparse.csc_array(table[domain.tiles.order])
    order = _alike(by_column, rows)
    by_column = by_column[:, order]
    mark = np.zeros(shape[0], dtype=np.bool_)
    place = np.empty(shape[0], dtype=np.int64)
    for first in range(0, shape[1], WIDTH):
        last = min(first + WIDTH, shape[1])
        part = slice(by_column.indptr[first], by_column.indptr[last])
        at = by_column.indices[part]
        mark[at] = True
        position = np.flatnonzero(mark)
        mark[at] = False
        if len(position) == 0:
            continue
        place[position] = np.arange(len(position))
        floor = np.zeros(WIDTH, dtype=np.int64)
        floor[: last - first] = rows.floor[order[first:last]]
        weights = np.tile(floor, (len(position), 1))
        column = np.repeat(np.arange(last - first), np.diff(by_column.indptr[first : last + 1]))
        weights[place[at], column] = rows.values[by_column.data[part] - 1]
        yield Group(position, weights, floor)


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


def floored_rate(
    domain: Domain, rows: FlooredRows, *, compiled: bool = True
) -> tuple[float, int, int]:
    """An upper bound, within the error of `compute/rate.py`, on max |log ratio| / d, and the pair.

    Of `rows` in which every column is 0 for all records or for none.
    """
    shrink = 1 - (domain.metric.relative_error + ARITHMETIC_ERROR)
    scan = _compiled if compiled else _plain
    best = (0.0, 0, 1)
    waiting: list[Group] = []
    for group in groups(domain, rows):
        waiting.append(group)
        if sum(g.weights.size for g in waiting) >= CHUNK_ENTRIES:
            best = scan(domain, waiting, shrink, best)
            waiting = []
    if waiting:
        best = scan(domain, waiting, shrink, best)
    order = domain.tiles.order
    value, i, j = best
    return (0.0, 0, 1) if value == 0.0 else (value, int(order[i]), int(order[j]))


def _compiled(
    domain: Domain, some: list[Group], shrink: float, best: tuple[float, int, int]
) -> tuple[float, int, int]:
    from panda_mdp.compute.numba.distance import coordinates
    from panda_mdp.compute.numba.floored import worst_of_groups

    tiles = domain.tiles
    position = np.concatenate([g.position for g in some])
    kind, table, along = coordinates(domain.metric, tiles.order)
    value, i, j = worst_of_groups(
        np.concatenate([g.logs for g in some]),
        np.concatenate([g.weights for g in some]),
        np.concatenate([g.lifts for g in some]),
        position,
        np.searchsorted(tiles.starts, position, side="right") - 1,
        np.cumsum([0, *(len(g.position) for g in some)]),
        kind,
        table,
        along,
        tiles.starts,
        tiles.between,
        LOG_ERROR,
        shrink,
        best[0],
    )
    return (float(value), int(i), int(j)) if value > best[0] else best


def _plain(
    domain: Domain, some: list[Group], shrink: float, best: tuple[float, int, int]
) -> tuple[float, int, int]:
    """The compiled kernel's answer in NumPy and SciPy."""
    order = domain.tiles.order
    for group in some:
        logs, lifts, position = group.logs, group.lifts, group.position
        _, same = np.unique(group.weights, axis=0, return_inverse=True)
        other = np.ones(domain.size, dtype=np.bool_)
        other[position] = False
        outside = np.flatnonzero(other)
        for k, (own, lift) in enumerate(zip(position.tolist(), lifts.tolist(), strict=True)):
            gaps = np.asarray(scipy.spatial.distance.cdist(logs[k : k + 1], logs, "chebyshev"))[0]
            differs = same.reshape(-1) != same.reshape(-1)[k]
            raised = np.concatenate([gaps[differs], np.full(len(outside), lift)])
            if lift < 0:
                raised = gaps[differs]
            partner = np.concatenate([position[differs], outside])[: len(raised)]
            if len(partner) == 0:
                continue
            distance = domain.metric.block(order[own : own + 1], order[partner])[0]
            rates = (raised + LOG_ERROR) / (distance * shrink)
            worst = int(rates.argmax())
            if rates[worst] > best[0]:
                best = (float(rates[worst]), own, int(partner[worst]))
    return best
