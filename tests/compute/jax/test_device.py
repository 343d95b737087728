"""Arrays on devices: sizes, placement, memory, and distances that keep their stated error."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from helpers import DIGITS, KINDS, exact_distance, random_domain

from panda_mdp import Domain
from panda_mdp.compute.jax.device import (
    FEW,
    distance_error,
    ladder,
    laid_out,
    members_of,
    precise,
    put,
    require_memory,
    waking,
)
from panda_mdp.errors import MethodError
from panda_mdp.space.tiles import TILE


def test_the_ladder_has_few_steps_and_wastes_little():
    sizes = np.concatenate([np.arange(1, 5000), np.arange(FEW - 9, 3 * FEW, 7)])
    steps = np.array([ladder(int(size)) for size in sizes])
    assert (steps >= sizes).all()
    most = np.where(sizes > FEW, 9 / 8, 5 / 4)
    assert (steps[64:] <= (sizes * most)[64:] + 1e-9).all()
    assert (np.diff(steps) >= 0).all()
    assert steps[0] == 64
    assert len(np.unique(steps)) <= 1 + 4 * np.log2(FEW / 64) + 8 * np.log2(3) + 2
    assert all(ladder(int(step)) == step for step in np.unique(steps))
    for size in (1, 64, 65, FEW + 1, 2 * FEW, 12_345_678):
        assert size <= ladder(size, fine=False) <= max(64, 5 / 4 * size)
        assert ladder(size, fine=False) >= ladder(size)


def test_arrays_come_back_as_they_went():
    table = np.random.default_rng(0).random((7, 2, 5))
    with precise():
        there = put(table)
        assert there.dtype == np.float64 and there.devices() == {jax.devices()[0]}
        np.testing.assert_array_equal(np.asarray(there), table)


def test_what_fails_while_devices_wake_is_raised_where_they_are_asked_for(monkeypatch):
    def none() -> None:
        raise RuntimeError("no devices")

    monkeypatch.setattr(jax, "devices", none)
    wake = waking()
    with pytest.raises(RuntimeError, match="no devices"):
        wake()


def test_64_bits_are_for_the_inside_only():
    with precise():
        assert jnp.ones(1).dtype == np.float64
    assert jnp.ones(1).dtype == np.float32
    assert not jax.config.jax_enable_x64


# Memory.


def test_a_job_that_does_not_fit_is_refused_with_what_it_needs():
    require_memory(1 << 30, available=1 << 30)
    with pytest.raises(MethodError) as caught:
        require_memory(10 << 30, available=1 << 30)
    message = str(caught.value)
    assert "needs 10.0 GiB, and the device has 1.0 GiB" in message
    assert "fewer outputs or records" in message


def test_one_byte_too_many_is_too_many():
    require_memory(1000, available=1000)
    with pytest.raises(MethodError, match="the device has"):
        require_memory(1001, available=1000)


def test_a_device_that_does_not_tell_its_memory_is_trusted(monkeypatch):
    monkeypatch.setattr(jax, "devices", lambda: [SimpleNamespace(memory_stats=lambda: None)])
    require_memory(1 << 60)


def test_the_device_is_asked_where_it_can_tell(monkeypatch):
    told = SimpleNamespace(memory_stats=lambda: {"bytes_limit": 100})
    monkeypatch.setattr(jax, "devices", lambda: [told])
    require_memory(100)
    with pytest.raises(MethodError, match="the device has"):
        require_memory(101)


# Distances.


def corners() -> Domain:
    """Places where great-circle formulas lose digits: poles, date line, antipodes, centimetres."""
    return Domain.from_points(
        [41.9, 41.9 + 1e-7, 89.99999, 89.999990001, -89.9999, 0.0, 0.0, 1e-9, 60.0, 60.0, -41.9],
        [12.5, 12.5, 10.0, -170.0, 33.0, 180.0, -179.9999999, 0.0, 179.99999999, -180.0, -167.5],
    )


def on_device(domain: Domain) -> tuple[np.ndarray, np.ndarray]:
    """Positions by tile, and all distances along the tiles, computed there: (T, T, 64, 64)."""
    with precise():
        members = members_of(domain.tiles)
        records = domain.tiles.order[np.maximum(members, 0)]
        measure = laid_out(domain.metric, records)
        count = domain.tiles.count
        first, second = (jnp.asarray(a.ravel()) for a in np.indices((count, count)))
        apart = jax.jit(measure)(first, second)
        return members, np.asarray(apart).reshape(count, count, TILE, TILE)


@pytest.mark.parametrize("kind", [*KINDS, "corners"])
def test_distances_keep_their_stated_error(kind):
    domain = corners() if kind == "corners" else random_domain(kind, 20, seed=4)
    _, apart = on_device(domain)
    error = mp.mpf(distance_error(domain.metric))
    order = domain.tiles.order
    with mp.workdps(DIGITS):
        for i in range(domain.size):
            for j in range(domain.size):
                if i == j:
                    assert apart[0, 0, i, j] == 0
                    continue
                true = exact_distance(domain, order[i], order[j])
                assert abs(mp.mpf(float(apart[0, 0, i, j])) - true) <= error * true, (i, j)


@pytest.mark.parametrize("kind", KINDS)
def test_every_record_has_its_place_in_a_tile(kind):
    domain = random_domain(kind, 150)
    members, apart = on_device(domain)
    assert sorted(members[members >= 0].tolist()) == list(range(150))
    order = domain.tiles.order
    true = domain.distances(order, order)
    for a in range(len(members)):
        for b in range(len(members)):
            rows, cols = members[a][members[a] >= 0], members[b][members[b] >= 0]
            found = apart[a, b][: len(rows), : len(cols)]
            np.testing.assert_allclose(found, true[np.ix_(rows, cols)], rtol=1e-13, atol=1e-300)


def test_a_metric_without_device_distances_is_refused():
    strange = SimpleNamespace(kind="taxi")
    with pytest.raises(MethodError, match="no distances for 'taxi' domains; use backend 'cpu'"):
        laid_out(strange, np.arange(3))
