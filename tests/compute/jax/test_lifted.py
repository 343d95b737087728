"""Closing in blocks on an accelerator is closing the whole table."""

from __future__ import annotations

import numpy as np
import pytest

import panda_mdp as pm
from panda_mdp.base.floored import FlooredRows
from panda_mdp.compute.closure import Closure
from panda_mdp.compute.jax import blocks
from panda_mdp.compute.jax.device import make_mesh
from panda_mdp.compute.jax.lifted import BlockCut, JaxLiftedClosure
from panda_mdp.compute.lifted import LiftedClosure
from panda_mdp.privacy.quantise import SLACK, TOTAL, check_weights, quantise_floored
from panda_mdp.space.tiles import TILE

SIZE, EPSILON, FLOOR = 300, 6.0, 1e-5
GROUPS = 10


def rough_table(seed: int) -> tuple[pm.Domain, np.ndarray]:
    """Records on a map and a table of any place that is nearly private."""
    rng = np.random.default_rng(seed)
    domain = pm.Domain.from_points(41.9 + 0.07 * rng.random(SIZE), 12.4 + 0.09 * rng.random(SIZE))
    table = np.exp(-4 * domain.distances() + rng.normal(0, 0.2, (SIZE, SIZE)))
    table[table < 1e-3] = 0.0
    return domain, table / table.sum(axis=1, keepdims=True)


def nodes(closure: Closure, table: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Groups of 32 outputs of which the last has 12, what they see, and the table on that."""
    columns = np.full((GROUPS, 32), -1)
    columns.ravel()[:SIZE] = closure.order
    along = table[closure.order]
    parts = np.where(columns >= 0, along[:, np.maximum(columns, 0)], 0.0).transpose(1, 0, 2)
    sees = parts.max(axis=2) > 0
    return columns, sees, parts[sees]


def cut_up(seed: int) -> tuple[JaxLiftedClosure, BlockCut, object]:
    domain, table = rough_table(seed)
    closure = JaxLiftedClosure(domain, EPSILON, make_mesh())
    columns, sees, z = nodes(closure, table)
    seen = closure.seen(sees)
    rows = closure.gathered(seen, z, np.tile(np.arange(32), (GROUPS, 1)))
    return closure, *closure.cut(columns, seen.mask, rows, np.full(SIZE, FLOOR))


def whole(closure: JaxLiftedClosure, cut: BlockCut, z: object) -> np.ndarray:
    """All of a table in blocks, records along the tiles."""
    out = np.tile(cut.floor, (SIZE, 1))
    table, starts = np.asarray(z), closure.tiles.starts
    group, tile = np.nonzero(cut.layout.number < cut.layout.size - 1)
    for g, t in zip(group.tolist(), tile.tolist(), strict=True):
        used = cut.columns[g] >= 0
        block = table[cut.layout.number[g, t], : starts[t + 1] - starts[t]]
        out[starts[t] : starts[t + 1], cut.columns[g][used]] = block[:, used]
    return out


def active(closure: JaxLiftedClosure, count: int) -> np.ndarray:
    """The first positions, as rows of tiles."""
    rows = np.zeros(len(closure.grid.members) * TILE, dtype=np.bool_)
    rows[closure.slot[:count]] = True
    return rows.reshape(-1, TILE)


def test_closing_and_scaling() -> None:
    closure, cut, z = cut_up(0)
    full = whole(closure, cut, z)
    assert np.allclose(full.sum(axis=1), 1, atol=1e-12) and (full >= FLOOR * (1 - 1e-15)).all()
    assert cut.layout.count < GROUPS * closure.tiles.count
    closed = whole(closure, cut, closure.closed(cut, z, EPSILON, active(closure, SIZE)))
    # The dense closure, of which what is below the floor does not count.
    assert np.allclose(closed, Closure(closure.domain).close(full, EPSILON), rtol=1e-12, atol=0)
    some = whole(closure, cut, closure.closed(cut, z, EPSILON, active(closure, 3)))
    assert np.array_equal(some[:3], closed[:3]) and np.array_equal(some[3:], full[3:])
    near = whole(closure, cut, closure.closed(cut, z, EPSILON, active(closure, SIZE), 2.0))
    assert (near <= closed).all() and (near >= full).all() and (near > full).any()
    scaled, sums = closure.scaled(cut, closure.closed(cut, z, EPSILON, active(closure, SIZE)))
    rows = np.asarray(sums).ravel()[closure.slot]
    assert np.allclose(rows, closed.sum(axis=1), rtol=1e-13)
    assert np.allclose(whole(closure, cut, scaled).sum(axis=1), 1, atol=1e-12)
    assert closure.excess(sums) == pytest.approx(Closure(closure.domain).excess(rows), rel=1e-9)


def test_many_chunks_of_distances_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "CHUNK", 3)
    closure, cut, z = cut_up(7)
    count = int((np.asarray(cut.pairs.near.pair) >= 0).sum())
    assert 3 < count <= len(cut.pairs.near.table) < 1.4 * count + 3
    closed = whole(closure, cut, closure.closed(cut, z, EPSILON, active(closure, SIZE)))
    dense = Closure(closure.domain).close(whole(closure, cut, z), EPSILON)
    assert np.allclose(closed, dense, rtol=1e-12, atol=0)


def test_kernels_of_our_own_close_as_xla_does() -> None:
    closure, cut, z = cut_up(0)
    rows = active(closure, 200)
    closed = np.asarray(closure.closed(cut, z, EPSILON, rows, 5.0))
    pairs, mass = closure.broken(cut, z, 5.0, 1e-6, 1e-5, 4)
    closure.kernels = "interpret"
    assert np.array_equal(np.asarray(closure.closed(cut, z, EPSILON, rows, 5.0)), closed)
    again, same_mass = closure.broken(cut, z, 5.0, 1e-6, 1e-5, 4)
    assert np.array_equal(again, pairs) and len(pairs) > 100
    assert np.allclose(same_mass, mass, rtol=1e-6)


def test_kernels_that_do_not_compile_are_done_without() -> None:
    """As on this machine, which has no card for them."""
    closure, cut, z = cut_up(0)
    rows = active(closure, 200)
    closed = np.asarray(closure.closed(cut, z, EPSILON, rows, 5.0))
    closure.kernels = "triton"
    assert np.array_equal(np.asarray(closure.closed(cut, z, EPSILON, rows, 5.0)), closed)
    assert closure.kernels == "xla"


def test_centring_goes_half_way_between_what_lies_above_and_below() -> None:
    closure, cut, z = cut_up(6)
    full = whole(closure, cut, z)
    expected = Closure(closure.domain).centre(full, EPSILON)
    centred = whole(closure, cut, next(closure.centring(cut, z, EPSILON))[0])
    assert np.allclose(centred.sum(axis=1), 1, atol=1e-12)
    for row, target in zip(centred, expected, strict=True):
        above = row > 1.01 * FLOOR
        share = row[above] / target[above]
        assert above.sum() > 3 and np.ptp(share) < 1e-9 * share.max()


def test_the_host_settles_on_the_same_table() -> None:
    domain, table = rough_table(5)
    host = LiftedClosure(domain, EPSILON)
    columns, sees, z = nodes(host, table)
    host_cut = host.cut(columns, sees, z, np.full(SIZE, FLOOR))
    host_z = host.begin(host_cut, sees, z)
    closure, cut, device_z = cut_up(5)
    steps = closure.settling(cut, device_z, EPSILON)
    expected = host.settling(host_cut, host_z, EPSILON)
    for _ in range(4):
        device_z, (host_z, _) = next(steps)[0], next(expected)
    starts, listed, values = host.rows(host_cut, host_z)
    full = np.full((SIZE, SIZE), FLOOR)
    full[np.repeat(np.arange(SIZE), np.diff(starts)), listed] = values
    assert np.allclose(whole(closure, cut, device_z), full[closure.order], rtol=1e-9, atol=0)


def test_the_audited_rate_is_the_one_of_the_whole_table() -> None:
    closure, cut, z = cut_up(2)
    expected = Closure(closure.domain).rate(whole(closure, cut, z))
    assert closure.audited(cut, z) == pytest.approx(expected, rel=1e-11)
    _, mixed = closure.mixed(cut, z, 0.5)
    whole_mixed = whole(closure, closure.mixed(cut, z, 0.5)[0], mixed)
    assert np.allclose(whole_mixed.sum(axis=1), 1, atol=1e-12)
    assert closure.audited(closure.mixed(cut, z, 0.5)[0], mixed) < expected


def test_broken_pairs_are_those_of_the_whole_table() -> None:
    closure, cut, z = cut_up(3)
    full = whole(closure, cut, z)
    most = 20
    pairs, mass = closure.broken(cut, z, np.inf, 0.0, 1e-6, most)
    factor = np.exp(-EPSILON * closure.domain.distances(closure.order, closure.order))
    missed = np.zeros((SIZE, SIZE))
    for i in range(SIZE):
        missed[i] = np.maximum(0, factor[i][:, None] * full - full[i]).sum(axis=1)
    assert len(pairs) > 1000
    assert np.allclose(missed[pairs[:, 0], pairs[:, 1]], mass, rtol=1e-6, atol=1e-9)
    np.fill_diagonal(missed, 0.0)
    worst = np.sort(missed, axis=1)[:, -most]
    assert (
        np.bincount(pairs[:, 0], minlength=SIZE) == (missed > 1e-6).sum(axis=1).clip(0, 20)
    ).all()
    assert (mass >= worst[pairs[:, 0]] * (1 - 1e-6)).all()


def test_rows_are_what_lies_above_the_floor() -> None:
    closure, cut, z = cut_up(4)
    starts, columns, values = closure.rows(cut, z)
    full = np.empty((SIZE, SIZE))
    full[closure.order] = whole(closure, cut, z)
    assert np.array_equal(np.diff(starts), (full > FLOOR).sum(axis=1))
    assert np.array_equal(columns, np.nonzero(full > FLOOR)[1])
    assert np.array_equal(values, full[full > FLOOR])


def test_whole_numbers_are_those_that_the_host_rounds_to() -> None:
    closure, cut, z = cut_up(4)
    floor, starts, columns, whole = closure.whole_rows(cut, z, TOTAL, SLACK)
    expected = quantise_floored(cut.floor, *closure.rows(cut, z))
    assert np.array_equal(floor, expected.floor) and np.array_equal(starts, expected.starts)
    assert np.array_equal(columns, expected.columns)
    rows = FlooredRows(floor, starts, columns, whole)
    check_weights(rows, (SIZE, SIZE))
    # Sums in another order move a share by its rounding.
    assert np.allclose(whole.astype(float), expected.values.astype(float), rtol=1e-14)
