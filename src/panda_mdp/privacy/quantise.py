"""From a solver's table to the integers that are sampled and audited.

**Repair.** A nearly feasible table becomes one that is private over all pairs, exactly: closed and
normalised in turn (compute/closure.py) until the audited rate is at most epsilon.

**Integers.** A row becomes integers that sum to 2^62 exactly, so that a 62-bit uniform draw selects
an output with exactly the audited probability. Equal rows become equal integers.

**Draws** are made with the operating system's generator. A row sums to 2^62, so 62 random bits u
select output y exactly when w_1 + .. + w_(y-1) <= u < w_1 + .. + w_y. The sums are exact integers;
no float is involved, and the probabilities are the audited ones to the last bit.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.base.factored import FactoredRows
from panda_mdp.base.floored import FlooredRows, Int32Array, Weights
from panda_mdp.base.threads import by_slices, check_time
from panda_mdp.compute.closure import FLOOR, NEAR_NATS, UNUSED, Closure, closure_of, floor_row
from panda_mdp.compute.pairs import Backend, accelerator, chosen_backend, has_numba
from panda_mdp.errors import PrivacyError
from panda_mdp.space.domain import Domain

BITS = 62
TOTAL = 1 << BITS
ROW_TOLERANCE = 1e-6
SLACK = 2.0**-40
"""Of what is shared out in proportion: a little less than the whole, twice, and then the rest."""
_CHUNK = 1 << 20


def quantise(matrix: FloatArray) -> IntArray:
    """Integer weights, shape of `matrix`, each row summing to 2^62.

    An entry moves from its exact share of the row, z_xy / sum z_x, by at most two units of 2^-62
    and four parts in 2^53; zeros stay zero. Rows must be finite, non-negative and sum to 1 within
    1e-6.

    >>> quantise(np.array([[0.25, 0.75]])).tolist() == [[2**60, 3 * 2**60]]
    True
    """
    sums = _check_rows(matrix)
    weights = np.empty(matrix.shape, np.int64)

    def work(part: slice) -> None:
        weights[part] = _quantise_rows(matrix[part] / sums[part, None])

    by_slices(work, len(matrix), max(1, _CHUNK // matrix.shape[1]))
    return weights


def _quantise_rows(rows: FloatArray) -> IntArray:
    # Twice a little less than the whole, so that what is missing is never negative: a row sums to
    # 1 within 2^-45 (pairwise summation), and a 2^-40 of slack is shared out by the second step.
    weights = np.zeros(rows.shape, np.int64)
    for _ in range(2):
        missing = TOTAL - weights.sum(axis=1)
        weights += np.floor(rows * (missing * (1 - SLACK))[:, None]).astype(np.int64)
    missing = TOTAL - weights.sum(axis=1)
    # The last units, about as many as outputs, go to the largest entries in turn.
    rank = np.argsort(-rows, axis=1, kind="stable")
    positive = np.count_nonzero(rows, axis=1)
    each, rest = np.divmod(missing, positive)
    place = np.arange(rows.shape[1])
    units = np.where(place < positive[:, None], each[:, None], 0) + (place < rest[:, None])
    np.put_along_axis(weights, rank, np.take_along_axis(weights, rank, 1) + units, 1)
    return weights


def _check_rows(matrix: FloatArray) -> FloatArray:
    bad = np.argwhere(~(np.isfinite(matrix) & (matrix >= 0)))
    if len(bad):
        x, y = bad[0]
        raise PrivacyError(
            f"matrix[{x}, {y}] is {matrix[x, y]}; probabilities are finite and not negative"
        )
    sums = matrix.sum(axis=1)
    _check_sums(sums)
    return sums


def _check_sums(sums: FloatArray) -> None:
    wrong = np.flatnonzero(~(np.abs(sums - 1) <= ROW_TOLERANCE))
    if len(wrong):
        raise PrivacyError(f"row {wrong[0]} sums to {sums[wrong[0]]:.12g}; every row must sum to 1")


def quantise_floored(
    floor: FloatArray, starts: IntArray, columns: Int32Array, values: FloatArray
) -> FlooredRows:
    """Integer rows over a floor, each summing to 2^62, from probabilities in the same form.

    The floor is rounded down to whole units. What a row stores is scaled so that the row is full,
    which moves an entry by at most two units, four parts in 2^53 and what the row was off; it
    stays at or above the floor. The last units, fewer than a row stores, go to its largest entry.
    """
    if not (np.isfinite(values).all() and (values >= 0).all() and (floor >= 0).all()):
        raise PrivacyError("probabilities are finite and not negative; these are not")
    if not (np.diff(starts) > 0).all():
        raise PrivacyError(
            "every row over a floor stores at least one entry, which takes what the others leave"
        )
    whole = np.floor(floor * TOTAL).astype(np.int64)
    least = whole[columns]
    first = starts[:-1]
    sums = np.add.reduceat(values, first) + floor.sum() - np.add.reduceat(floor[columns], first)
    _check_sums(sums)
    count = np.diff(starts)
    room = TOTAL - int(whole.sum()) + np.add.reduceat(least, first)
    share = values / np.repeat(np.add.reduceat(values, first), count)
    weights = np.zeros(len(values), np.int64)
    for _ in range(2):
        # Twice a little less than the whole, so that what is missing is never negative.
        missing = room - np.add.reduceat(weights, first)
        weights += np.floor(share * np.repeat(missing * (1 - SLACK), count)).astype(np.int64)
    weights = np.maximum(weights, least)
    largest = FlooredRows(whole, starts, columns, weights).largest()
    weights[largest] += room - np.add.reduceat(weights, first)
    return FlooredRows(whole, starts, columns, weights)


def check_weights(weights: Weights, shape: tuple[int, int], backend: Backend | None = None) -> None:
    """Refuse anything but int64 weights of this shape, none negative, rows summing to 2^62. An
    accelerator goes through rows in factors, where `backend` says so or they are many."""
    if weights.shape != shape or weights.dtype != np.int64:
        raise PrivacyError(
            f"weights are {weights.dtype} of shape {weights.shape}; int64 of shape {shape} needed"
        )
    if isinstance(weights, FactoredRows):
        if chosen_backend(math.prod(shape), backend) == "jax" and "facts" not in vars(weights):
            from panda_mdp.compute.jax.peaks import row_facts

            vars(weights)["facts"] = row_facts(weights)
        if not math.isfinite(weights.facts.most_rest):
            raise PrivacyError(f"a factored row exceeds 2^{BITS} or is empty; make weights less")
        return
    if isinstance(weights, FlooredRows):
        if weights.values.min(initial=0) < 0 or weights.floor.min(initial=0) < 0:
            raise PrivacyError(
                f"a weight is negative; weights are whole numbers from 0 to 2^{BITS}"
            )
        sums, nearly = weights.sums()
    else:
        negative = np.argwhere(weights < 0)
        if len(negative):
            x, y = negative[0]
            raise PrivacyError(
                f"weights[{x}, {y}] is negative; weights are whole numbers from 0 to 2^{BITS}"
            )
        sums = weights.sum(axis=1)
        nearly = weights.sum(axis=1, dtype=float)
    # Integer sums are exact modulo 2^64; the float sums rule out that they went round.
    wrong = np.flatnonzero((sums != TOTAL) | (np.abs(nearly - TOTAL) >= TOTAL / 2))
    if len(wrong):
        raise PrivacyError(
            f"the weights of row {wrong[0]} do not sum to 2^{BITS}; quantise a matrix first"
        )


ROWS_TOGETHER = 64
"""Rows that are taken at a time: those that are computed are so in one matrix product."""


class BitSource(Protocol):
    """Where random bits come from."""

    def integers(self, count: int) -> IntArray:
        """`count` independent uniform integers in [0, 2^62)."""


class SystemBits:
    """The operating system's generator, through `secrets`."""

    def integers(self, count: int) -> IntArray:
        """Uniform integers in [0, 2^62)."""
        raw = np.frombuffer(secrets.token_bytes(8 * count), dtype="<u8")
        return (raw & np.uint64(TOTAL - 1)).astype(np.int64)


class SeededBits:
    """A seeded generator for simulations. Its draws are predictable: never release them."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def integers(self, count: int) -> IntArray:
        """Uniform integers in [0, 2^62)."""
        return self._generator.integers(0, TOTAL, size=count, dtype=np.int64)


class GivenBits:
    """Words that were made elsewhere: at each call the next ones."""

    def __init__(self, *words: IntArray) -> None:
        self._words = list(words)

    def integers(self, count: int) -> IntArray:
        """The next `count` integers, which were given together."""
        words = self._words.pop(0)
        if len(words) != count:
            raise ValueError("another number of words was given")
        return words


def choose(weights: IntArray, uniforms: IntArray) -> IntArray:
    """The column that each uniform integer in [0, 2^62) selects."""
    # Exact sums: entry y is the first u that is beyond output y.
    beyond = np.cumsum(weights, dtype=np.int64)
    return np.searchsorted(beyond, uniforms, side="right").astype(np.int64)


def choose_rows(weights: Weights, rows: IntArray, bits: BitSource) -> IntArray:
    """A column for each of `rows` of a K x m table, drawn independently; rows may repeat.

    Rows are taken in order, so that each one's sums are formed once.
    """
    uniforms = bits.integers(len(rows))
    order = np.argsort(rows, kind="stable")
    columns = np.empty(len(rows), np.int64)
    wanted, starts = np.unique(rows[order], return_index=True)
    ends = np.append(starts, len(rows))[1:]
    for first in range(0, len(wanted), ROWS_TOGETHER):
        some = slice(first, first + ROWS_TOGETHER)
        block = weights[wanted[some]]
        for row, start, end in zip(block, starts[some].tolist(), ends[some].tolist(), strict=True):
            places = order[start:end]
            columns[places] = choose(row, uniforms[places])
    return columns


TIGHTENING = 3e-4
"""The closure runs at epsilon (1 - TIGHTENING): room for what scaling leaves open."""
MARGIN = 1e-6
"""What is left of epsilon for quantising to integers."""


@dataclass(frozen=True)
class RepairTuning:
    """How long a repair goes on in which way before it tries the next."""

    rounds: int = 400
    """Rows that are closed again become few: most of these rounds cost next to nothing."""
    centred_rounds: int = 80
    attempts: int = 3
    sampled_records: int = 4096
    """From so many records on an estimate looks at one of `sampled`."""
    sampled: int = 4


PLAIN = RepairTuning()


@dataclass(frozen=True)
class Repaired:
    """A table whose audited rate, before it is quantised, is at most epsilon."""

    matrix: Any
    """Where `closure` has it, or on the host."""
    closure: Closure
    rounds: int
    tightening: float
    """The closure ran at epsilon (1 - tightening)."""
    common_share: float
    """Share of a row common to all records that had to be mixed in; 0 as a rule."""

    @property
    def facts(self) -> dict[str, float]:
        """What a mechanism's details say of it."""
        return {"closure_rounds": self.rounds, "common_share": self.common_share}


def estimate(
    closure: Closure, matrix: FloatArray, epsilon: float, floor: float | FloatArray = FLOOR
) -> FloatArray:
    """One round of near pairs: nearly private, of nearly the loss that `repair` ends with."""
    z, _ = next(closure.rounds(closure.start(matrix, floor), epsilon, NEAR_NATS))
    return closure.host(z)


def estimated_loss(
    closure: Closure,
    matrix: FloatArray,
    epsilon: float,
    floor: float | FloatArray,
    cost: FloatArray,
    prior: FloatArray,
    tuning: RepairTuning = PLAIN,
) -> float:
    """The loss, sum `cost` z, after `estimate`.

    On the host of many records every fourth along the tiles is closed and the rise of its loss
    taken for that of its neighbours.
    """
    z = closure.start(matrix, floor)
    few = len(matrix) < tuning.sampled_records or not closure.near_first
    if few or not isinstance(z, np.ndarray):
        after, _ = next(closure.rounds(z, epsilon, NEAR_NATS))
        return closure.expected(after, cost)
    some = np.arange(0, len(z), tuning.sampled)
    active = np.zeros(len(z), bool)
    active[some] = True
    closed = closure.close(z, epsilon, active, nats=NEAR_NATS)[some]
    closed /= closed.sum(axis=1, keepdims=True)
    rise = np.einsum("xy,xy->", cost[closure.order[some]], closed - z[some])
    share = prior[closure.order[some]].sum()
    before = np.einsum("xy,xy->", cost, closure.host(z))
    return float(before + (rise / share if share > 0 else 0.0))


def closing(domain: Domain, outputs: int) -> Closure:
    """What closes dense tables over all pairs: loops of the host, and where none are compiled those
    of its accelerator."""
    if domain.metric.generating_pairs is None and not has_numba() and accelerator():
        from panda_mdp.compute.jax.closure import closure_for
        from panda_mdp.compute.jax.device import measures

        if measures(domain.metric):
            return closure_for(domain, outputs)
    return closure_of(domain)


def repair(
    closure: Closure,
    matrix: FloatArray,
    epsilon: float,
    tightening: float = TIGHTENING,
    floor: float | FloatArray = FLOOR,
    tuning: RepairTuning = PLAIN,
) -> Repaired:
    """A dense table near `matrix` that is epsilon-mDP over all pairs, up to what `release` absorbs.

    `floor` is spread over the outputs, or one for each; outputs whose floor is 0 are left out: no
    record reports them.
    """
    unused = floor_row(floor, matrix.shape[1]) <= UNUSED
    done = close_until_private(closure, closure.start(matrix, floor), epsilon, tightening, tuning)
    table = closure.host(done.matrix)
    if unused.any():
        # Entries of unused outputs are alike in all rows.
        table = np.where(unused, 0.0, table)
        table /= table.sum(axis=1, keepdims=True)
    return replace(done, matrix=table)


def close_until_private(
    closure: Closure,
    z: Any,
    epsilon: float,
    tightening: float = TIGHTENING,
    tuning: RepairTuning = PLAIN,
    *,
    audits: bool = True,
) -> Repaired:
    """Close and scale until the audited rate is at most epsilon, from above as long as that gets
    nearer and from both sides then.

    Where the rounds run out the closure is made tighter by what was still missing, and in the last
    resort a row common to all records is mixed in with the smallest share that passes, which always
    ends. Without `audits` a table whose sums agree well enough is taken for one that passes.
    """
    total = 0
    for _ in range(tuning.attempts):
        within = epsilon * (1 - tightening)
        allowed = epsilon * max(tightening - closure.rest, 0.5 * tightening)
        # Near pairs cost little, and leave next to nothing to be done over all.
        for nats in (NEAR_NATS, np.inf) if closure.near_first else (np.inf,):
            rounds = closure.rounds(z, within, nats)
            z, sums, count, done = run_rounds(closure, rounds, tuning.rounds, allowed)
            total += count
            if done or np.isfinite(nats):
                continue
            rounds = closure.centred_rounds(z, within, nats, sums)
            z, _, count, done = run_rounds(closure, rounds, tuning.centred_rounds, allowed)
            total += count
        rate = closure.rate(z) if audits or not done else 0.0
        if rate <= epsilon * (1 - MARGIN):
            return Repaired(z, closure, total, tightening, 0.0)
        tightening = min(0.5, 2 * tightening + max(0.0, rate / within - 1))
    share = _smallest_share(closure, z, epsilon)
    closure, z = closure.mixed(z, share)
    return Repaired(z, closure, total, tightening, share)


def run_rounds(
    closure: Closure,
    rounds: Iterator[tuple[Any, Any]],
    most: int,
    allowed: float,
) -> tuple[Any, Any, int, bool]:
    """Rounds until the excess is allowed, no longer falls, or there were `most` of them: the last
    table and its sums, how many they were, and whether the excess is allowed."""
    least = np.inf
    idle = 0
    for count in range(1, most + 1):
        check_time()
        z, sums = next(rounds)
        excess = closure.excess(sums)
        if excess <= allowed:
            return z, sums, count, True
        idle += 1
        if excess < 0.9 * least:
            least = excess
            idle = 0
        if idle >= closure.patience:
            break
    return z, sums, count, False


def _smallest_share(closure: Closure, z: Any, epsilon: float) -> float:
    """The least share of the common row that makes the audit pass, to 1 %, by bisection."""
    low = 1e-9
    high = 1.0
    while high / low > 1.01:
        check_time()
        middle = float(np.sqrt(low * high))
        mixed, table = closure.mixed(z, middle)
        if mixed.rate(table) <= epsilon * (1 - MARGIN):
            high = middle
        else:
            low = middle
    return high
