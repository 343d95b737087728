"""Large tables over a floor: a logarithm for every entry, as coarse as privacy lets it be.

A row is placed between rows of near records that come before it in the file: an entry lies in the
interval that epsilon leaves it, so that constraints of these pairs hold whatever is rounded, and a
few binary digits say where in the interval it is. Pairs that are not listed are farther; they have
the share of epsilon that the table left free. docs/format.md has the details, and the bytes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.base.floored import FlooredRows, Int32Array
from panda_mdp.compute.backend import host_backend
from panda_mdp.compute.highs import require_numba
from panda_mdp.compute.intervals import LIMIT, OCTAVE, decode_rows, grid_digits
from panda_mdp.errors import FileFormatError, PrivacyError
from panda_mdp.privacy.quantise import BITS, TOTAL
from panda_mdp.problem import Problem
from panda_mdp.space.domain import Domain
from panda_mdp.table import claims
from panda_mdp.table.mechanism import Mechanism, judged
from panda_mdp.table.pmdc.codec import deflate, inflate, pack_planes, shifts, unpack_planes

UNIT = 1 << OCTAVE
PER_NAT = UNIT / math.log(2)
LISTED = 24
"""Earlier rows that a row is placed between."""
RESERVE = 2e-4
"""Share of epsilon for what no level sees: rounding to integers and the rest of a row."""
CORE = 55
"""Octave, of 62, below which a level may be coarser by a digit for every octave."""
TAIL = 47
"""Octave below which privacy costs `BEND` more of epsilon than it must, and levels are coarser."""
BEND = 0.02
MORE = 4
"""Digits fewer in the tail."""
LARGE = 6
"""Octaves below the largest of a row: entries down to there are what makes the row full."""
ATTEMPTS = 4
LEVEL_BITS = 31
"""Weights of levels have one significant binary digit more, at most; the largest of a row any."""
SECTIONS = ("columns", "floors", "near", "costs", "digits", "fresh", "symbols")
MOST_COST = 1 << 40


@dataclass(frozen=True)
class Levelled:
    """A mechanism whose weights are levels, and the sections of its file."""

    mechanism: Mechanism
    rows: FlooredRows
    """The mechanism's weights."""
    header: Mapping[str, Any]
    sections: Mapping[str, bytes]
    order: IntArray


@cache
def factors() -> tuple[IntArray, IntArray]:
    """2^(31 + i / 2^10) and 2^(31 + i / 2^20) for i < 1024, from roots of 256 binary digits."""
    root, tables = 2 << 256, []
    for halving in range(1, OCTAVE + 1):
        root = math.isqrt(root << 256)
        if halving in (10, 20):
            power, table = 1 << 256, []
            for _ in range(1024):
                table.append(power >> 225)
                power = power * root >> 256
            tables.append(np.array(table, dtype=np.int64))
    return tables[0], tables[1]


def weights_of(levels: IntArray) -> IntArray:
    """The weight of each level: 2^(level / 2^20), less than one part in 2^29 below it.

    >>> weights_of(np.array([0, 3 << 20, (61 << 20) + (1 << 19)])).tolist()
    [1, 8, 3260954455285170176]
    """
    coarse, fine = factors()
    product = (coarse[(levels >> 10) & 1023] * fine[levels & 1023]) >> 31
    octave = levels >> OCTAVE
    longer, shorter = np.maximum(octave - 31, 0), np.maximum(31 - octave, 0)
    return np.asarray((product << longer) >> shorter)


def level(mechanism: Mechanism, rows: FlooredRows, slack: float) -> Levelled:
    """The nearest table of levels, epsilon-mDP over all pairs by audit.

    `slack` is the share of epsilon that the table leaves free; where rounding needs more, levels
    become finer.
    """
    require_numba("rounding rows over a floor to levels")
    from panda_mdp.compute.numba.intervals import encode_rows

    start = time.perf_counter()
    problem, domain = mechanism.problem, mechanism.problem.domain
    order = coarse_to_fine(domain)
    near, length = earlier_neighbours(domain, order)
    cost = np.floor(problem.epsilon * (1 - RESERVE) * length * PER_NAT).astype(np.int64)
    free = problem.epsilon * np.stack(
        [domain.neighbours(1)[1][order, 0] / 2, _first_unlisted(domain, order, near)]
    )
    across = _columns(problem)
    floor, starts, columns, targets = _targets(rows, order, across)
    coarse, fine = factors()
    for attempt in range(ATTEMPTS):
        allowed = max(slack - RESERVE, RESERVE) / 2**attempt * free * PER_NAT
        base, cap = np.log2(np.maximum(allowed, 1)).astype(np.int64)
        base = np.minimum(base, cap)
        out = np.zeros(8 * len(targets) + 1024, dtype=np.uint8)
        begin, own, levels, fresh_starts, fresh, length_bytes = encode_rows(
            near, cost, _grids(base, cap, CORE, TAIL, MORE), floor, starts, columns, targets,
            LARGE << OCTAVE, TOTAL, coarse, fine, out,
        )  # fmt: skip
        if (np.diff(begin) == 0).any():
            msg = (
                "a row lies at the floor that all records share, and levels have nothing to make "
                "it full with; use mechanism.save(path)"
            )
            raise PrivacyError(msg)
        short = _weighed(floor, begin, own, levels, order, across)
        answer = judged(
            problem,
            short,
            mechanism.method,
            lower_bound=mechanism.lower_bound,
            stages=(*mechanism.stages, ("thin", time.perf_counter() - start)),
            details=mechanism.details,
        )
        if isinstance(answer, Mechanism):
            break
    else:
        msg = f"the compact form misses epsilon: {answer.audit.shortfall}; use mechanism.save(path)"
        raise PrivacyError(msg)
    rising = np.diff(fresh, prepend=0)
    sections = {
        "columns": deflate(pack_planes(np.diff(across, prepend=0))),
        "floors": deflate(pack_planes(np.diff(floor, prepend=0))),
        "near": deflate(pack_planes((np.arange(len(near))[:, None] - near).T.ravel())),
        "costs": deflate(pack_planes(np.diff(cost, axis=1, prepend=0).T.ravel())),
        "digits": deflate(pack_planes(np.concatenate([base, cap]))),
        "fresh": deflate(pack_planes(np.concatenate([np.diff(fresh_starts), rising]))),
        "symbols": out[:length_bytes].tobytes(),
    }
    header = {
        "stored": len(own),
        "levels": {
            "listed": near.shape[1], "fresh": len(fresh), "core": CORE, "tail": TAIL, "more": MORE,
        },
    }  # fmt: skip
    return Levelled(answer, short, header, sections, order)


def read_levels(
    header: Mapping[str, Any], sections: Mapping[str, bytes], order: IntArray, outputs: int
) -> FlooredRows:
    """The rows of a file, every field checked."""
    size, said = len(order), header["levels"]
    listed, news = claims.whole(said, "listed", 1), claims.whole(said, "fresh", 0)
    stored = claims.whole(header, "stored", 1)
    core, tail, more = (claims.whole(said, name, 0) for name in ("core", "tail", "more"))
    _refuse(max(core, tail, more) > BITS or listed > size or news > stored, "the header")
    claims.check_unpacked(16 * (stored + size * listed), sum(map(len, sections.values())))

    def numbers(name: str, count: int) -> IntArray:
        return unpack_planes(inflate(sections[name], 1 + 8 * count), count)

    across = np.cumsum(numbers("columns", outputs))
    _refuse(not np.array_equal(np.sort(across), np.arange(outputs)), "the order of columns")
    floor = np.cumsum(numbers("floors", outputs))
    _refuse(bool(((floor < 0) | (floor > LIMIT)).any()), "a floor")
    near = np.arange(size)[:, None] - numbers("near", size * listed).reshape(listed, size).T
    cost = np.cumsum(numbers("costs", size * listed).reshape(listed, size).T, axis=1)
    there = near >= 0
    _refuse(bool((near < -1).any() or (near >= np.arange(size)[:, None]).any()), "a listed row")
    _refuse(bool((there[:, 1:] & ~there[:, :-1]).any()), "a list of rows")
    _refuse(bool(((cost < 0) | (cost > MOST_COST)).any()), "a cost")
    base, cap = numbers("digits", 2 * size).reshape(2, size)
    _refuse(bool(((base < 0) | (base > cap) | (cap > BITS)).any()), "a precision")
    counts, rising = np.split(numbers("fresh", size + news), [size])
    fresh_starts = np.concatenate([[0], np.cumsum(counts)])
    _refuse(bool((counts < 0).any()) or fresh_starts[-1] != news, "a number of columns")
    fresh = np.cumsum(rising)
    row = np.repeat(np.arange(size), counts)
    _refuse(bool(((fresh < 0) | (fresh >= outputs)).any()), "a column")
    _refuse(bool(((np.diff(fresh) <= 0) & (np.diff(row) == 0)).any()), "a column")
    digits = _grids(base, cap, core, tail, more)
    data = np.frombuffer(sections["symbols"], dtype=np.uint8)
    reader = decode_rows
    if host_backend() == "numba":
        from panda_mdp.compute.numba import intervals

        reader = intervals.decode_rows
    begin, own, levels, fault, used = reader(
        near, cost, digits, floor, fresh_starts, fresh, stored, data
    )
    if fault >= 0 or begin[-1] != stored or used != len(data):
        msg = "the rows are not what the header says, or end elsewhere; the file is damaged"
        raise FileFormatError(msg)
    _refuse(bool((np.diff(begin) == 0).any()), "a row without entries")
    return _weighed(floor, begin, own, levels, order, across)


def _refuse(wrong: bool, what: str) -> None:
    if wrong:
        msg = f"{what} is out of range; the file is damaged"
        raise FileFormatError(msg)


def _grids(base: IntArray, cap: IntArray, core: int, tail: int, more: int) -> IntArray:
    """The digits of every row's grid, (K, 62)."""
    kinds, which = np.unique(np.stack([base, cap]), axis=1, return_inverse=True)
    grids = [grid_digits(int(b), int(c), core, tail, more) for b, c in kinds.T]
    return np.asarray(np.stack(grids)[which.reshape(-1)])


def coarse_to_fine(domain: Domain) -> IntArray:
    """All records such that those of any beginning are spread over the domain: their places along
    a path through space, binary digits reversed."""
    path = domain.tiles.order
    digits = (len(path) - 1).bit_length()
    number = np.arange(1 << digits)
    turned = np.zeros_like(number)
    for k in range(digits):
        turned |= ((number >> k) & 1) << (digits - 1 - k)
    return np.asarray(path[turned[turned < len(path)]])


def earlier_neighbours(domain: Domain, order: IntArray) -> tuple[IntArray, FloatArray]:
    """For every row of the order up to `LISTED` of the rows before it, the nearest first, and how
    far they are; -1 and the last distance after them."""
    size = len(order)
    width = min(LISTED, size - 1)
    near, length = np.full((size, width), -1), np.zeros((size, width))
    begin = 1
    while begin < size:
        end = min(size, max(2 * LISTED, 2 * begin))
        known, far = domain.take(order[:end]).neighbours(min(end - 1, 3 * LISTED))
        known, far = known[begin:], far[begin:]
        earlier = known < np.arange(begin, end)[:, None]
        rank = np.argsort(~earlier, axis=1, kind="stable")[:, :width]
        there = np.take_along_axis(earlier, rank, 1)
        wide = rank.shape[1]
        near[begin:end, :wide] = np.where(there, np.take_along_axis(known, rank, 1), -1)
        length[begin:end, :wide] = np.where(there, np.take_along_axis(far, rank, 1), 0.0)
        for x in begin + np.flatnonzero(~there[:, 0]):
            to = domain.distances(order[x : x + 1], order[:x])[0]
            near[x, 0], length[x, 0] = to.argmin(), to.min()
        begin = end
    return near, np.maximum.accumulate(length, axis=1)


def _first_unlisted(domain: Domain, order: IntArray, near: IntArray) -> FloatArray:
    """For every row how far the nearest record is that is in no list with it."""
    size = len(order)
    row, column = np.nonzero(near >= 0)
    other = near[row, column]
    pairs = np.unique(np.minimum(row, other) * size + np.maximum(row, other))
    known, far = domain.neighbours(min(size - 1, 3 * LISTED))
    place = np.argsort(order)
    mine, theirs = place[:, None], place[known]
    key = np.minimum(mine, theirs) * size + np.maximum(mine, theirs)
    open_ = pairs[np.minimum(np.searchsorted(pairs, key), len(pairs) - 1)] != key
    first = np.where(open_.any(axis=1), open_.argmax(axis=1), far.shape[1] - 1)
    return np.asarray(far[np.arange(size), first][order])


def _columns(problem: Problem) -> IntArray:
    """All columns, near ones beside each other where the outputs are records."""
    if problem.reports.kind != "records":
        return np.arange(problem.outputs_count)
    along = np.argsort(problem.domain.tiles.order)[problem.outputs]
    return np.asarray(np.argsort(along))


def _targets(
    rows: FlooredRows, order: IntArray, across: IntArray
) -> tuple[IntArray, IntArray, Int32Array, IntArray]:
    """Levels of the floor, and starts, columns and levels of the rows in their order.

    What is deep in the tail is raised by `BEND` of its depth, so that it keeps a smaller epsilon
    there; what is not is lowered until rows are full again.
    """
    tail = TAIL << OCTAVE

    def bent(weights: IntArray) -> FloatArray:
        levels = np.log2(np.maximum(weights, 1)) * UNIT
        return np.asarray(np.where(levels < tail, levels + BEND * (tail - levels), levels))

    floor = np.floor(bent(rows.floor[across])).astype(np.int64)
    count = np.diff(rows.starts)[order]
    starts = np.concatenate([[0], np.cumsum(count)])
    along = np.repeat(rows.starts[:-1][order] - starts[:-1], count) + np.arange(rows.stored)
    columns = np.argsort(across).astype(np.int32)[rows.columns[along]]
    levels = bent(rows.values[along])
    share, under = np.exp2(levels / UNIT - BITS), np.exp2(floor / UNIT - BITS)
    row = np.repeat(np.arange(len(count)), count)
    surplus = np.bincount(row, share - under[columns], len(count)) + under.sum() - 1
    large = levels >= tail
    heavy = np.bincount(row, np.where(large, share, 0.0), len(count))
    lift = np.log2(np.maximum(1 - surplus / np.maximum(heavy, 1e-300), 0.5)) * UNIT
    levels = np.where(large, levels + lift[row], levels)
    aims = np.rint(levels).astype(np.int64)
    return floor, starts, columns, np.clip(aims, floor[columns], LIMIT)


def _weighed(
    floor: IntArray,
    begin: IntArray,
    own: Int32Array,
    levels: IntArray,
    order: IntArray,
    across: IntArray,
) -> FlooredRows:
    """The weights of levels, in the domain's order, and rows made full."""
    shape = len(order), len(across)
    table = csr_array((levels, across[own], begin), shape)[np.argsort(order)]
    table.sort_indices()
    ground = weights_of(floor)[np.argsort(across)]
    starts, columns = table.indptr.astype(np.int64), table.indices.astype(np.int32, copy=False)
    rows = FlooredRows(ground, starts, columns, weights_of(table.data))
    return FlooredRows(ground, starts, columns, _full(rows))


def _full(rows: FlooredRows) -> IntArray:
    """The values of rows that sum to 2^62.

    What a row lacks is shared, in proportion, by the large ones: the largest alone would move by
    too much of epsilon where another record is metres away.
    """
    values, largest = rows.values.copy(), rows.largest()
    rest = TOTAL - rows.sums()[0]
    count = np.diff(rows.starts)
    at = np.flatnonzero(values >= np.repeat(values[largest] >> LARGE, count))
    row = np.repeat(np.arange(len(count)), count)[at]
    starts = np.searchsorted(row, np.arange(len(count)))
    large = values[at]
    mass, needed = np.add.reduceat(large, starts), rest + np.add.reduceat(large, starts)
    # 20 binary digits of the share at a time, so that no product is beyond 2^63.
    for digits in (20, 40):
        share = np.clip(rest // np.maximum(mass >> digits, 1), -(1 << 20), 1 << 20)
        more = ((large >> 20) * share[row]) >> (digits - 20)
        large += more
        rest -= np.add.reduceat(more, starts)
    cut = shifts(large, np.asarray(LEVEL_BITS))
    values[at] = (large >> cut) << cut
    values[largest] += needed - np.add.reduceat(values[at], starts)
    return values
