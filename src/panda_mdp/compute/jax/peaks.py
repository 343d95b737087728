"""Passes over all pairs of points of a lattice on an accelerator, some rows at a time.

Points are whole numbers whose squared distances float64 sums exactly in any order, so that a matrix
product here gives what the host gives. What is done with them is said in base/factored.py and
table/bound.py, once for both.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.base.factored import (
    ROW_BITS,
    FactoredRows,
    RowFacts,
    falls,
    numbers_at,
    power_tables,
    row_parts,
)
from panda_mdp.compute.jax.device import precise, put
from panda_mdp.errors import MethodError

MOST_ROWS = 512
MOST_ENTRIES = 1 << 26
"""Of a block: half a GiB for each array of its pairs."""
CHECKED = 16
"""Rows that the host computes too."""


class Costs(NamedTuple):
    """Losses d(x, y)^power between points that are placed."""

    points: Any
    unit: float
    """Of the points, in the metric's."""
    outputs: IntArray
    power: float


def placed(points: IntArray | FloatArray) -> Any:
    """Points on the first device."""
    with precise():
        return put(np.asarray(points, dtype=float))


def swept(part: Any, points: Any, others: Any, *given: Any, **fixed: Any) -> tuple[Any, Any]:
    """What `part(squares, records, real, *given, **fixed)` says of every point and all others: its
    first answer, arrays along the points, and the sum of its second over them."""
    with precise():
        found = _swept(part, points, others, given, tuple(fixed.items()))
        return jax.tree.map(np.asarray, found)


@partial(jax.jit, static_argnames=("part", "fixed"))
def _swept(part, points, others, given, fixed):
    size = len(points)
    step = max(1, min(size, MOST_ROWS, MOST_ENTRIES // len(others)))
    norms, far = ((p * p).sum(axis=1) for p in (points, others))

    def some(sums, begin):
        records = begin + jnp.arange(step)
        here = jnp.minimum(records, size - 1)
        squares = norms[here][:, None] + far - 2 * (points[here] @ others.T)
        each, added = part(squares, here, records < size, *given, **dict(fixed))
        return sums + added, each

    sums, each = jax.lax.scan(some, jnp.zeros(len(others)), jnp.arange(0, size, step))
    return jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:])[:size], each), sums


def _times(squares, records, real, vectors, law, *, power):
    return falls(squares, law, power, jnp) @ vectors, 0.0


def falls_times(points: Any, vectors: FloatArray, law: Any, power: float) -> FloatArray:
    """The matrix of `falls` of placed points times some vectors, (K, n)."""
    return swept(_times, points, points, vectors, law, power=power)[0]


def _nearest(squares, records, real):
    own = jnp.arange(squares.shape[1]) == records[:, None]
    return jnp.where(own, jnp.inf, squares).min(axis=1), 0.0


def least_square(points: Any) -> float:
    """The least squared distance of two of the placed points."""
    return float(swept(_nearest, points, points)[0].min())


def _numbers(squares, table):
    centres, peaks, law, tables = table
    return numbers_at(squares[:, centres], peaks, law, tables, jnp)


def _row_parts(squares, records, real, table):
    return row_parts(squares, records, _numbers(squares, table), jnp), 0.0


def _table(rows: FactoredRows) -> tuple[Any, ...]:
    return rows.centres, rows.peaks, rows.law, power_tables()


def row_facts(rows: FactoredRows) -> RowFacts:
    """`FactoredRows.facts`; a few rows are compared with the host's."""
    points = placed(rows.points)
    each, _ = swept(_row_parts, points, points, _table(rows))
    some = np.linspace(0, len(rows) - 1, CHECKED).astype(np.int64)
    squares = rows.squares(some)
    here = row_parts(squares, some, rows.numbers(squares))
    # All but the sums that are only nearly so.
    for k in (0, 2, 3, 4):
        if (each[k][some] != here[k]).any():
            raise MethodError(
                "an accelerator's whole numbers are not the host's; use backend='cpu'"
            )
    return RowFacts.of(each)


def _lost(squares, records, real, table, outputs, unit, *, power):
    rows = _numbers(squares, table)
    costs = (jnp.sqrt(squares[:, outputs]) * unit) ** power
    rest = (1 << ROW_BITS) - rows.sum(axis=1)
    top = costs[jnp.arange(len(rows)), rows.argmax(axis=1)]
    return (rows * costs).sum(axis=1) + rest * top, 0.0


def losses(rows: FactoredRows, costs: Costs) -> FloatArray:
    """sum_y w_xy d(x, y)^power of every record x."""
    given = _table(rows), costs.outputs, costs.unit
    return swept(_lost, costs.points, costs.points, *given, power=costs.power)[0]


def _weighted(squares, records, real, weights, unit, *, power):
    return (jnp.sqrt(squares) * unit) ** power @ weights, 0.0


def weighted_sums(costs: Costs, weights: FloatArray) -> FloatArray:
    """sum_x weights[w, x] d(x, y)^power of every output y, (w, m)."""
    some = costs.points[costs.outputs]
    return swept(_weighted, some, costs.points, weights.T, costs.unit, power=costs.power)[0].T


def _stars(squares, records, real, stars, outputs, unit, *, power, block):
    prior, prices, slope = stars
    far = jnp.sqrt(squares[:, outputs]) * unit
    own = outputs == records[:, None]
    costs = prior[records, None] * far**power
    least, lent = block(costs, far, own, prices[records], slope, jnp)
    return least, real @ lent


def star_sums(
    costs: Costs, prior: FloatArray, prices: FloatArray, slope: float, block: Any
) -> tuple[FloatArray, FloatArray]:
    """What `block` (table/bound.py) says of every record and, summed over all, of every output."""
    given = (prior, prices, slope), costs.outputs, costs.unit
    return swept(_stars, costs.points, costs.points, *given, power=costs.power, block=block)
