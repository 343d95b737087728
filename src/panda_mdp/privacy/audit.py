"""The exact statement of how private a table is: all pairs, all outputs.

With integer weights w (rows summing to 2^62) the audited epsilon is

    max over x, x' and y of  log(w_xy / w_x'y) / d(x, x'),

evaluated in float64 with every rounding error on the safe side, so that it is an upper bound, at
most 1e-12 nats per pair above the exact value. `holds` means audited epsilon <= epsilon.
The error analysis is in docs/audit.md. Records with equal rows are told apart by nothing and count
as 0, however near they are.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.spatial.distance import cdist

from panda_mdp._arrays import FloatArray, IntArray, digest
from panda_mdp.domain import Domain
from panda_mdp.errors import ProblemError

if TYPE_CHECKING:
    from panda_mdp.mechanism import Table

LOG_ERROR = 2e-13
"""Bounds the error of a difference of two float64 logarithms of integers up to 2^62, and of the
additions around it: 7e-14 where the library's logarithm errs by up to 4 ulp."""
ARITHMETIC_ERROR = 2e-15
"""Bounds the relative error of the products and divisions around a distance: 9 roundings."""
SMALL_TILES = 4
"""Up to this many tiles NumPy is done before compiled threads have started."""
MANY_TILES = 256
"""Beyond this many tiles an accelerator that is in use already is faster than all cores."""


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
    subject: str = ""
    """Digest of the domain, outputs and weights that were audited."""

    @property
    def shortfall(self) -> str:
        """In words, what is wrong with a table whose audit does not hold."""
        x, x2, y = self.worst
        return (
            f"not {self.claimed:g}-mDP: the audit finds epsilon {self.epsilon:.9g} per {self.unit} "
            f"at records {x} and {x2}, output {y}"
        )

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
        differs = weights[x] != weights[x2]
        y = int(np.argmax(np.where(differs, np.abs(logs[x] - logs[x2]), -1.0)))
        if weights[x, y] < weights[x2, y]:
            x, x2 = x2, x
        worst = (x, x2, int(outputs[y]))
    return Audit(
        holds=bool(value <= epsilon),
        epsilon=float(value),
        worst=worst,
        claimed=float(epsilon),
        unit=domain.unit,
        distance=domain.distance(x, x2),
        pairs=domain.size * (domain.size - 1) // 2,
        subject=subject(domain, outputs, weights),
    )


def subject(domain: Domain, outputs: IntArray, weights: IntArray) -> str:
    """Digest of what an audit speaks about, so that it cannot be carried to another table."""
    return f"{domain.fingerprint[:32]}:{digest(outputs, weights)}"


def largest_rate(domain: Domain, logs: FloatArray, weights: IntArray) -> tuple[float, int, int]:
    """An upper bound, within the stated error, on max |log ratio| / d, and the pair."""
    tiles = domain.tiles
    order = tiles.order
    sorted_logs = np.ascontiguousarray(logs[order])
    sorted_weights = np.ascontiguousarray(weights[order])
    shrink = 1 - (domain.metric.relative_error + ARITHMETIC_ERROR)
    found = None
    if tiles.count > MANY_TILES and "jax" in sys.modules:
        found = _device_worst_pair(domain, sorted_logs, sorted_weights)
    if found is None:
        reach = _reach(sorted_logs, tiles.starts)
        if tiles.count > SMALL_TILES:
            found = _compiled_worst_pair(domain, sorted_logs, sorted_weights, reach, shrink)
            if found is None:
                found = _device_worst_pair(domain, sorted_logs, sorted_weights)
        if found is None:
            found = _worst_pair(domain, sorted_logs, sorted_weights, reach, shrink)
    value, i, j = found
    if value == 0.0:
        return 0.0, 0, 1
    return value, int(order[i]), int(order[j])


def _compiled_worst_pair(
    domain: Domain, logs: FloatArray, weights: IntArray, reach: FloatArray, shrink: float
) -> tuple[float, int, int] | None:
    """The kernel's answer, or None where numba is not installed."""
    try:
        from panda_mdp.kernels.audit import worst_pair
        from panda_mdp.kernels.distance import coordinates
    except ImportError:
        return None
    tiles = domain.tiles
    kind, table, along = coordinates(domain.metric, tiles.order)
    value, i, j, _ = worst_pair(
        logs,
        weights,
        kind,
        table,
        along,
        tiles.starts,
        tiles.between,
        reach,
        LOG_ERROR,
        shrink,
    )
    return float(value), int(i), int(j)


def _device_worst_pair(
    domain: Domain, logs: FloatArray, weights: IntArray
) -> tuple[float, int, int] | None:
    """An accelerator's answer, or None where there is none or it does not know the metric."""
    from panda_mdp.engine.backends import accelerator

    if not accelerator():
        return None
    import jax

    from panda_mdp.engine.closure_jax import closure_for
    from panda_mdp.engine.device import make_mesh, measures

    if not measures(domain.metric):
        return None
    # This process's own: others may have nothing to audit, and would be waited for.
    mesh = make_mesh(jax.local_devices())
    return closure_for(domain, mesh, logs.shape[1]).largest(logs, weights)


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
    """The compiled kernel's answer in NumPy and SciPy, in the memory of a few tiles."""
    tiles = domain.tiles
    # Equal rows get equal numbers.
    same = np.unique(weights, axis=0, return_inverse=True)[1].reshape(-1)
    best, where = 0.0, (0, 1)
    for t in range(tiles.count):
        best, where = _scan_tiles(domain, logs, same, shrink, (t, t), best, where)
    first, second = np.triu_indices(tiles.count, k=1)
    # Near tiles first: they tend to hold the worst pair, and then spare the far ones.
    nearest = np.argsort(tiles.between[first, second], kind="stable")
    for a, b in zip(first[nearest].tolist(), second[nearest].tolist(), strict=True):
        if reach[a, b] + LOG_ERROR > best * tiles.between[a, b] * shrink:
            best, where = _scan_tiles(domain, logs, same, shrink, (a, b), best, where)
    return best, where[0], where[1]


def _scan_tiles(
    domain: Domain,
    logs: FloatArray,
    same: IntArray,
    shrink: float,
    pair: tuple[int, int],
    best: float,
    where: tuple[int, int],
) -> tuple[float, tuple[int, int]]:
    """`best` and `where`, raised by the pairs of records of two tiles."""
    starts, order = domain.tiles.starts, domain.tiles.order
    rows, cols = (slice(starts[t], starts[t + 1]) for t in pair)
    apart = domain.metric.block(order[rows], order[cols])
    gaps = np.asarray(cdist(logs[rows], logs[cols], "chebyshev"))
    differ = same[rows][:, None] != same[cols]
    rates = np.zeros_like(gaps)
    rates[differ] = (gaps[differ] + LOG_ERROR) / (apart[differ] * shrink)
    i, j = divmod(int(rates.argmax()), rates.shape[1])
    if rates[i, j] > best:
        return float(rates[i, j]), (int(starts[pair[0]]) + i, int(starts[pair[1]]) + j)
    return best, where
