"""The largest privacy loss per unit of distance over all pairs of records.

    max over x, x' and y of  |log w_xy - log w_x'y| / d(x, x'),

with every rounding error on the safe side (docs/audit.md), compiled by numba or in NumPy; the same
on accelerators is in compute/jax/closure.py.
"""

from __future__ import annotations

import numpy as np
import scipy

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.space.domain import Domain

LOG_ERROR = 2e-13
"""Bounds the error of a difference of two float64 logarithms of integers up to 2^62, and of the
additions around it: 7e-14 where the library's logarithm errs by up to 4 ulp."""
ARITHMETIC_ERROR = 2e-15
"""Bounds the relative error of the products and divisions around a distance: 9 roundings."""
SMALL_TILES = 8
"""Up to this many tiles NumPy takes a tenth of a second; compiling, once, takes ten."""

Bounds = tuple[FloatArray, FloatArray]
"""The highest and the lowest logarithms of every tile, (T, m)."""


def host_rate(
    domain: Domain, logs: FloatArray, weights: IntArray, *, compiled: bool = True
) -> tuple[float, int, int]:
    """An upper bound, within the stated error, on max |log ratio| / d, and the pair.

    Records with equal rows of `weights` count as 0. `compiled` takes numba's threads for all but
    small domains.
    """
    tiles = domain.tiles
    order = tiles.order
    sorted_logs = np.ascontiguousarray(logs[order])
    sorted_weights = np.ascontiguousarray(weights[order])
    shrink = 1 - (domain.metric.relative_error + ARITHMETIC_ERROR)
    bounds = _bounds(sorted_logs, tiles.starts)
    scan = _compiled_worst_pair if compiled and tiles.count > SMALL_TILES else _worst_pair
    value, i, j = scan(domain, sorted_logs, sorted_weights, bounds, shrink)
    if value == 0.0:
        return 0.0, 0, 1
    return value, int(order[i]), int(order[j])


def open_radius(high: FloatArray, low: FloatArray, best: float, shrink: float) -> float:
    """How near records must be to exceed `best`: no log ratio is larger than the span of any
    output's logarithms."""
    span = float((high.max(axis=0) - low.min(axis=0)).max()) + LOG_ERROR
    return span / (best * shrink) if best > 0 else np.inf


def _compiled_worst_pair(
    domain: Domain, logs: FloatArray, weights: IntArray, bounds: Bounds, shrink: float
) -> tuple[float, int, int]:
    from panda_mdp.compute.numba.audit import worst_pair
    from panda_mdp.compute.numba.distance import coordinates

    tiles = domain.tiles
    table = (logs, weights, *coordinates(domain.metric, tiles.order), tiles.starts, *bounds)
    own = np.arange(tiles.count)
    value, i, j, _ = worst_pair(*table, own, own, np.zeros(len(own)), LOG_ERROR, shrink)
    for pairs in tiles.later(open_radius(*bounds, value, shrink)):
        more, first, second, _ = worst_pair(*table, *pairs, LOG_ERROR, shrink, value)
        if more > value:
            value, i, j = more, first, second
    return float(value), int(i), int(j)


def _bounds(logs: FloatArray, starts: IntArray) -> Bounds:
    return (
        np.maximum.reduceat(logs, starts[:-1], axis=0),
        np.minimum.reduceat(logs, starts[:-1], axis=0),
    )


def _worst_pair(
    domain: Domain, logs: FloatArray, weights: IntArray, bounds: Bounds, shrink: float
) -> tuple[float, int, int]:
    """The compiled kernel's answer in NumPy and SciPy, in the memory of a few tiles."""
    tiles = domain.tiles
    high, low = bounds
    # Equal rows get equal numbers.
    same = np.unique(weights, axis=0, return_inverse=True)[1].reshape(-1)
    best, where = 0.0, (0, 1)
    for t in range(tiles.count):
        best, where = _scan_tiles(domain, logs, same, shrink, (t, t), best, where)
    for first, second, between in tiles.later(open_radius(high, low, best, shrink)):
        # Near tiles first: they tend to hold the worst pair, and then spare the far ones.
        for k in np.argsort(between, kind="stable").tolist():
            a, b = int(first[k]), int(second[k])
            reach = max((high[a] - low[b]).max(), (high[b] - low[a]).max())
            if reach + LOG_ERROR > best * between[k] * shrink:
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
    distance = domain.metric.block(order[rows], order[cols])
    gaps = np.asarray(scipy.spatial.distance.cdist(logs[rows], logs[cols], "chebyshev"))
    differ = same[rows][:, None] != same[cols]
    rates = np.zeros_like(gaps)
    rates[differ] = (gaps[differ] + LOG_ERROR) / (distance[differ] * shrink)
    i, j = divmod(int(rates.argmax()), rates.shape[1])
    if rates[i, j] > best:
        return float(rates[i, j]), (int(starts[pair[0]]) + i, int(starts[pair[1]]) + j)
    return best, where
