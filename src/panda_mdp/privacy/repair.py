"""From a nearly feasible table to one that is private over all pairs, exactly.

Closing and normalising in turn (compute/closure.py) until the audited rate is at most epsilon.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from panda_mdp.base.arrays import FloatArray
from panda_mdp.base.threads import check_time
from panda_mdp.compute.closure import FLOOR, NEAR_NATS, UNUSED, Closure, floor_row

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
            if done or not (closure.centres_near or np.isinf(nats)):
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
