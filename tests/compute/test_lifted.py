"""Closing group by group over a floor is closing the whole table."""

from __future__ import annotations

import numpy as np
import pytest

import panda_mdp as pm
from panda_mdp.compute.closure import Closure
from panda_mdp.compute.lifted import Cut, LiftedClosure

SIZE, EPSILON, FLOOR = 130, 6.0, 1e-5


def rough_table(seed: int) -> tuple[pm.Domain, np.ndarray]:
    """Records on a map and a table of any place that is nearly private."""
    rng = np.random.default_rng(seed)
    domain = pm.Domain.from_points(41.9 + 0.05 * rng.random(SIZE), 12.4 + 0.06 * rng.random(SIZE))
    table = np.exp(-4 * domain.distances() + rng.normal(0, 0.2, (SIZE, SIZE)))
    table[table < 1e-3] = 0.0
    return domain, table / table.sum(axis=1, keepdims=True)


def cut_up(domain: pm.Domain, table: np.ndarray) -> tuple[LiftedClosure, Cut, np.ndarray]:
    """The table on nodes, outputs in groups of 32 of which the last has two."""
    closure = LiftedClosure(domain, EPSILON)
    columns = np.full((5, 32), -1)
    columns.ravel()[:SIZE] = np.arange(SIZE)
    along = table[closure.order]
    blocks = np.where(columns >= 0, along[:, np.maximum(columns, 0)], 0.0).transpose(1, 0, 2)
    sees = blocks.max(axis=2) > 0
    cut = closure.cut(columns, sees, blocks[sees], np.full(SIZE, FLOOR))
    return closure, cut, closure.begin(cut, sees, blocks[sees])


def whole(closure: LiftedClosure, cut: Cut, z: np.ndarray) -> np.ndarray:
    """All of a table on nodes, records along the tiles."""
    out = np.tile(cut.floor, (SIZE, 1))
    columns = cut.columns[cut.group]
    node, k = np.nonzero(columns >= 0)
    out[cut.position[node], columns[node, k]] = z[node, k]
    return out


@pytest.mark.parametrize("seed", [0, 1])
def test_closing_and_scaling(seed: int) -> None:
    domain, table = rough_table(seed)
    closure, cut, z = cut_up(domain, table)
    full = whole(closure, cut, z)
    assert np.allclose(full.sum(axis=1), 1, atol=1e-12) and (full >= FLOOR).all()
    active = np.ones(SIZE, dtype=np.bool_)
    closed = whole(closure, cut, closure.closed(cut, z, EPSILON, active))
    # The dense closure, of which what is below the floor does not count.
    assert np.allclose(closed, Closure(domain).close(full, EPSILON), rtol=1e-13, atol=0)
    one = active.copy()
    one[3:] = False
    some = whole(closure, cut, closure.closed(cut, z, EPSILON, one))
    assert np.array_equal(some[:3], closed[:3]) and np.array_equal(some[3:], full[3:])
    scaled, sums = closure.scaled(cut, closure.closed(cut, z, EPSILON, active))
    assert np.allclose(sums, closed.sum(axis=1), rtol=1e-13)
    assert np.allclose(whole(closure, cut, scaled).sum(axis=1), 1, atol=1e-12)


def test_the_audited_rate_is_the_one_of_the_whole_table() -> None:
    domain, table = rough_table(2)
    closure, cut, z = cut_up(domain, table)
    dense = Closure(domain)
    assert closure.audited(cut, z) == pytest.approx(dense.rate(whole(closure, cut, z)), rel=1e-11)


def test_broken_pairs_are_those_of_the_whole_table() -> None:
    domain, table = rough_table(3)
    closure, cut, z = cut_up(domain, table)
    full = whole(closure, cut, z)
    pairs, mass = closure.broken(cut, z, np.inf, 0.0)
    factor = np.exp(-EPSILON * domain.distances(closure.order, closure.order))
    assert len(pairs) > 100
    for (i, j), missed in zip(pairs.tolist(), mass.tolist(), strict=True):
        exact = np.maximum(0, factor[i, j] * full[j] - full[i]).sum()
        # A node names its four worst partners; what is left out of a pair only lowers it.
        assert 0 < missed <= exact * (1 + 1e-9)
    worst = max(
        (np.maximum(0, factor[i][:, None] * full - full[i]).sum(axis=1).max(), i)
        for i in range(SIZE)
    )
    assert mass.max() == pytest.approx(worst[0], rel=0.5)


def test_rows_are_what_lies_above_the_floor() -> None:
    domain, table = rough_table(4)
    closure, cut, z = cut_up(domain, table)
    starts, columns, values = closure.rows(cut, z)
    full = np.empty((SIZE, SIZE))
    full[closure.order] = whole(closure, cut, z)
    assert np.array_equal(np.diff(starts), (full > FLOOR).sum(axis=1))
    assert np.array_equal(columns, np.nonzero(full > FLOOR)[1])
    assert np.array_equal(values, full[full > FLOOR])
