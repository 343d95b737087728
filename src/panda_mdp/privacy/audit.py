"""The exact statement of how private a table is: all pairs, all outputs.

With integer weights w (rows summing to 2^62) the audited epsilon is

    max over x, x' and y of  log(w_xy / w_x'y) / d(x, x'),

evaluated in float64 with every rounding error on the safe side, so that it is an upper bound, at
most 1e-12 nats per pair above the exact value. `holds` means audited epsilon <= epsilon.
The error analysis is in docs/audit.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from panda_mdp._arrays import FloatArray, IntArray
from panda_mdp.domain import Domain
from panda_mdp.errors import ProblemError

if TYPE_CHECKING:
    from panda_mdp.mechanism import Table

LOG_ERROR = 2e-13
"""Bounds the error of a difference of two logarithms of integers up to 2^62."""
ARITHMETIC_ERROR = 2e-15
"""Bounds the relative error of the products and divisions around a distance."""


@dataclass(frozen=True)
class Audit:
    """How private a table is over all pairs of records.

    `epsilon` is the smallest epsilon for which the table is epsilon-mDP (inf where an output is
    possible for one record and impossible for another), `worst` the two records and the output
    (domain indices) that attain it, the more likely record first.
    """

    holds: bool
    epsilon: float
    worst: tuple[int, int, int]
    claimed: float
    unit: str
    distance: float
    """Distance of the worst pair."""
    pairs: int
    """Pairs that the statement covers: all of them."""

    def __repr__(self) -> str:
        x, x2, y = self.worst
        verdict = "holds" if self.holds else "DOES NOT HOLD"
        return (
            f"Audit({verdict}: epsilon {self.epsilon:.9g} of {self.claimed:.9g} per {self.unit}; "
            f"worst: records {x} and {x2}, {self.distance:.6g} {self.unit} apart, output {y}; "
            f"all {self.pairs:,} pairs)"
        )


def audit(mechanism: Table, epsilon: float | None = None) -> Audit:
    """Audit a table over all pairs of records, against its own epsilon or another one.

    Covers K (K - 1) / 2 pairs and all outputs; pairs too far apart to matter are passed over only
    where a bound proves it. Works on the integers that `sample` draws from.
    """
    if epsilon is not None and not epsilon > 0:
        msg = f"epsilon is {epsilon!r}; it must be positive"
        raise ProblemError(msg)
    problem = mechanism.problem
    claimed = problem.epsilon if epsilon is None else float(epsilon)
    return audit_weights(problem.domain, problem.outputs, mechanism.weights, claimed)


def audit_weights(domain: Domain, outputs: IntArray, weights: IntArray, epsilon: float) -> Audit:
    """Audit integer weights, shape (K, m), rows summing to 2^62."""
    pairs = domain.size * (domain.size - 1) // 2
    zero = weights == 0
    column = np.flatnonzero(zero.any(axis=0) & ~zero.all(axis=0))
    if len(column):
        y = int(column[0])
        x, x2 = int(np.argmin(zero[:, y])), int(np.argmax(zero[:, y]))
        worst, value = (x, x2, int(outputs[y])), np.inf
    else:
        # A column that is zero everywhere tells nothing.
        logs = np.log(np.where(zero, 1, weights).astype(np.float64))
        value, x, x2 = largest_rate(domain, logs, weights)
        y = int(np.argmax(np.abs(logs[x] - logs[x2])))
        if logs[x, y] < logs[x2, y]:
            x, x2 = x2, x
        worst = (x, x2, int(outputs[y]))
    return Audit(
        holds=bool(value <= epsilon),
        epsilon=float(value),
        worst=worst,
        claimed=float(epsilon),
        unit=domain.unit,
        distance=domain.distance(x, x2),
        pairs=pairs,
    )


def largest_rate(domain: Domain, logs: FloatArray, weights: IntArray) -> tuple[float, int, int]:
    """An upper bound, within the stated error, on max |log ratio| / d, and the pair."""
    tiles = domain.tiles
    order = tiles.order
    sorted_logs = np.ascontiguousarray(logs[order])
    sorted_weights = np.ascontiguousarray(weights[order])
    reach = _reach(sorted_logs, tiles.starts)
    shrink = 1 - (domain.metric.relative_error + ARITHMETIC_ERROR)
    try:
        from panda_mdp.kernels.audit import worst_pair
        from panda_mdp.kernels.distance import coordinates
    except ImportError:
        value, i, j = _worst_pair(domain, sorted_logs, sorted_weights, reach, shrink)
    else:
        kind, table, along = coordinates(domain.metric, order)
        value, i, j, _ = worst_pair(
            sorted_logs,
            sorted_weights,
            kind,
            table,
            along,
            tiles.starts,
            tiles.between,
            reach,
            LOG_ERROR,
            shrink,
        )
    if value == 0.0:
        return 0.0, 0, 1
    return float(value), int(order[i]), int(order[j])


def _reach(logs: FloatArray, starts: IntArray) -> FloatArray:
    """Upper bounds on |log ratio| between records of two tiles, shape (T, T)."""
    highest = np.maximum.reduceat(logs, starts[:-1], axis=0)
    lowest = np.minimum.reduceat(logs, starts[:-1], axis=0)
    reach = np.empty((len(highest), len(highest)))
    for a in range(len(highest)):
        up = (highest[a] - lowest).max(axis=1)
        reach[a] = np.maximum(up, (highest - lowest[a]).max(axis=1))
    return reach


def _worst_pair(
    domain: Domain, logs: FloatArray, weights: IntArray, reach: FloatArray, shrink: float
) -> tuple[float, int, int]:
    """The compiled kernel's answer in NumPy."""
    tiles = domain.tiles
    starts = tiles.starts
    best, where = 0.0, (0, 1)
    near_first = sorted(
        ((a, b) for a in range(tiles.count) for b in range(a, tiles.count)),
        key=lambda ab: (ab[0] != ab[1], tiles.between[ab]),
    )
    for a, b in near_first:
        if a != b and reach[a, b] + LOG_ERROR <= best * tiles.between[a, b] * shrink:
            continue
        rows, cols = slice(starts[a], starts[a + 1]), slice(starts[b], starts[b + 1])
        apart = domain.metric.block(tiles.order[rows], tiles.order[cols])
        gaps = np.abs(logs[rows][:, None, :] - logs[cols]).max(axis=2)
        if a == b:
            gaps[np.tril_indices(len(gaps))] = -1.0
        with np.errstate(divide="ignore", invalid="ignore"):
            rates = np.where(gaps < 0, 0.0, (gaps + LOG_ERROR) / (apart * shrink))
        for flat in np.argsort(-rates, axis=None):
            i, j = divmod(int(flat), rates.shape[1])
            if not rates[i, j] > best:
                break
            first, second = int(starts[a]) + i, int(starts[b]) + j
            if not np.array_equal(weights[first], weights[second]):
                best, where = float(rates[i, j]), (first, second)
                break
    return best, where[0], where[1]
