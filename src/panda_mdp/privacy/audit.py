"""The exact statement of how private a table is: all pairs, all outputs.

With integer weights w (rows summing to 2^62) the audited epsilon is

    max over x, x' and y of  log(w_xy / w_x'y) / d(x, x'),

evaluated in float64 with every rounding error on the safe side, so that it is an upper bound, at
most 1e-12 nats per pair above the exact value. `holds` means audited epsilon <= epsilon.
The error analysis is in docs/audit.md. Records with equal rows are told apart by nothing and count
as 0, however near they are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.base.factored import RATE_BITS, RELATIVE_ERROR, WEIGHT_BITS, FactoredRows
from panda_mdp.base.floored import FlooredRows, Weights
from panda_mdp.base.text import per
from panda_mdp.compute.pairs import (
    Backend,
    chosen_backend,
    floored_rate,
    host_rate,
    uneven_column,
)
from panda_mdp.errors import ProblemError
from panda_mdp.space.domain import Domain
from panda_mdp.space.metrics import Euclidean

if TYPE_CHECKING:
    from panda_mdp.table.mechanism import Table

DENSE, DENSE_ENTRIES = 16, (1 << 18, 1 << 25)
"""Rows over a floor that store a share of at least 1 / DENSE of so many entries are audited as an
array: it is faster."""


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

    @property
    def shortfall(self) -> str:
        """In words, what is wrong with a table whose audit does not hold."""
        x, x2, y = self.worst
        claimed = f"{self.claimed:g}"
        audited = f"{self.epsilon:.9g}"
        if float(claimed) != self.claimed or float(audited) <= self.claimed:
            # As many digits as it takes to see that one is larger.
            claimed = repr(self.claimed)
            audited = repr(self.epsilon)
        return (
            f"not {claimed}-mDP: the audit finds epsilon {audited} {per(self.unit)} "
            f"at records {x} and {x2}, output {y}"
        )

    def __repr__(self) -> str:
        x, x2, y = self.worst
        return (
            f"Audit({'holds' if self.holds else 'DOES NOT HOLD'}: epsilon {self.epsilon:.9g} of "
            f"{self.claimed:.9g} {per(self.unit)}; worst: records {x} and {x2}, "
            f"{self.distance:.6g} {self.unit} apart, output {y}; all {self.pairs:,} pairs)"
        )


def audit(mechanism: Table, epsilon: float | None = None) -> Audit:
    """Audit a table over all pairs of records, against its own epsilon or another one.

    Covers K (K - 1) / 2 pairs and all outputs; pairs too far apart to matter are passed over only
    where a bound proves it. Works on the integers that `sample` draws from.
    """
    if epsilon is not None and not epsilon > 0:
        raise ProblemError(f"epsilon is {epsilon!r}; it must be positive")
    problem = mechanism.problem
    claimed = problem.epsilon if epsilon is None else float(epsilon)
    return audit_weights(problem.domain, problem.outputs, mechanism.weights, claimed)


def audit_weights(
    domain: Domain,
    outputs: IntArray,
    weights: Weights,
    epsilon: float,
    backend: Backend | None = None,
) -> Audit:
    """Audit integer weights, shape (K, m), rows summing to 2^62, by `backend` or the default."""
    value = math.inf
    if isinstance(weights, FactoredRows):
        value, (x, x2) = factored_rate(domain, weights)
        y = 0
        few = math.prod(weights.shape) <= DENSE_ENTRIES[0] and math.isfinite(value)
        # Few rows need no bound: their integers decide.
        weights = np.asarray(weights) if few and value > epsilon else weights
    if not isinstance(weights, FactoredRows):
        value, (x, x2, y) = _worst(domain, weights, backend)
    return Audit(
        holds=bool(value <= epsilon),
        epsilon=float(value),
        worst=(x, x2, int(outputs[y])),
        claimed=float(epsilon),
        unit=domain.unit,
        distance=domain.distance(x, x2),
        pairs=domain.size * (domain.size - 1) // 2,
    )


def _worst(
    domain: Domain, weights: IntArray | FlooredRows, backend: Backend | None
) -> tuple[float, tuple[int, int, int]]:
    """The audited epsilon, the two records that attain it, the more likely one first, and the
    column."""
    if isinstance(weights, FlooredRows):
        entries = weights.shape[0] * weights.shape[1]
        few = DENSE_ENTRIES[0] <= entries <= DENSE_ENTRIES[1]
        weights = np.asarray(weights) if few and DENSE * weights.stored >= entries else weights
    if isinstance(weights, FlooredRows):
        uneven = uneven_column(weights)
    else:
        zero = weights == 0
        mixed = np.flatnonzero(zero.any(axis=0) & ~zero.all(axis=0)).tolist()
        ends = ((int(zero[:, y].argmin()), int(zero[:, y].argmax()), y) for y in mixed)
        uneven = next(ends, None)
    if uneven is not None:
        return np.inf, uneven
    value, x, x2 = largest_rate(domain, None, weights, backend)
    first = weights[x]
    second = weights[x2]
    ratio = np.log(np.maximum(first, 1)) - np.log(np.maximum(second, 1))
    y = int(np.argmax(np.where(first != second, np.abs(ratio), -1.0)))
    return value, (x2, x, y) if first[y] < second[y] else (x, x2, y)


def factored_rate(domain: Domain, rows: FactoredRows) -> tuple[float, tuple[int, int]]:
    """An upper bound on max |log ratio| / d over all pairs, and the nearest two records; inf where
    the rows are none that sum to 2^62, or of other vectors.

    With u the lattice's unit, g the rate in nats per u, r the farthest that a vector lies from its
    point and s the least distance of two records, for all records x, x' and every output

        |log n_x - log n_x'|  <=  g t(x, x') + a,      t(x, x') <= (d(x, x') + 2 r) / u + 1,

    by the triangle inequality of t; a is what rounding down takes of a peak's smallest number and
    what the rest adds to a row's largest entry. So the rate is at most
    g / u + (g (2 r / u + 1) + a) / s. (docs/words.md)
    """
    facts = rows.facts
    if not isinstance(domain.metric, Euclidean) or rows.points.shape != domain.metric.vectors.shape:
        return np.inf, facts.nearest
    unit = 2.0**-rows.unit_bits
    nearest, astray = lattice_facts(domain, rows.points, rows.unit_bits, facts.least_square)
    halvings = rows.rate * rows.law.reach >> RATE_BITS
    smallest = int(rows.peaks.min()) * 2.0 ** (WEIGHT_BITS - 1 - halvings)
    lost = RELATIVE_ERROR + 1 / (smallest * (1 - RELATIVE_ERROR))
    if not (nearest > 0 and lost < 0.5 and math.isfinite(facts.most_rest)):
        return np.inf, facts.nearest
    rounding = -math.log1p(-lost) + math.log1p(facts.most_rest)
    rate = rows.rate * 2.0**-RATE_BITS * math.log(2)
    value = rate / unit + (rate * (2 * astray / unit + 1) + rounding) / nearest
    return value * (1 + 1e-13), facts.nearest


def lattice_facts(
    domain: Domain, points: IntArray, bits: int, least_square: float
) -> tuple[float, float]:
    """Of vectors and their points, whole numbers of 2^-bits: at most the least distance of two
    records, from the least square of two points, and at least how far one lies from its point."""
    # The difference of a float and a nearby multiple of a power of two is exact.
    off = domain.metric.embedding - np.ldexp(points.astype(float), -bits)
    astray = np.sqrt(np.square(off).sum(axis=1).max()) * (1 + 1e-12)
    return math.ldexp(math.sqrt(least_square) * (1 - 1e-15), -bits) - 2 * astray, astray


def largest_rate(
    domain: Domain,
    logs: FloatArray | None,
    weights: IntArray | FlooredRows,
    backend: Backend | None = None,
) -> tuple[float, int, int]:
    """An upper bound, within the stated error, on max |log ratio| / d, and the pair.

    Without `logs` they are those of the weights, each column all positive or all zero: one that is
    zero everywhere tells nothing.
    """
    chosen = chosen_backend(getattr(weights, "stored", 0), backend)
    if chosen == "jax":
        from panda_mdp.compute.jax.closure import device_rate

        # A metric that the devices cannot measure goes to the host.
        measured = device_rate(domain, weights, logs)
        if measured is not None:
            return measured
    compiled = chosen == "numba" if backend in ("numba", "numpy") else None
    if isinstance(weights, FlooredRows):
        return floored_rate(domain, weights, compiled)
    if logs is None:
        logs = np.log(np.maximum(weights, 1).astype(float))
    return host_rate(domain, logs, weights, compiled)
