"""The largest rate over all pairs: every machine finds the pair that brute force finds."""

from __future__ import annotations

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import KINDS, exact_epsilon, random_domain
from machines import dense, table, tiled, town

from panda_mdp import Domain
from panda_mdp.base.floored import FlooredRows
from panda_mdp.compute.jax.closure import closure_for, device_rate
from panda_mdp.compute.pairs import (
    ARITHMETIC_ERROR,
    LARGE,
    LOG_ERROR,
    chosen_backend,
    cuts,
    floored_rate,
    host_rate,
    plain_rate,
)
from panda_mdp.privacy.audit import audit_weights
from panda_mdp.privacy.quantise import TOTAL, quantise
from panda_mdp.space.tiles import tile

SIZE = 200
HOSTS = [False, True]


def brute_force(domain: Domain, logs: np.ndarray) -> tuple[float, set[int]]:
    best, pair = 0.0, {0, 1}
    apart = domain.distances()
    shrink = 1 - (domain.metric.relative_error + ARITHMETIC_ERROR)
    for i in range(domain.size):
        for j in range(i):
            if (logs[i] != logs[j]).any():
                rate = (np.abs(logs[i] - logs[j]).max() + LOG_ERROR) / (apart[i, j] * shrink)
                if rate > best:
                    best, pair = rate, {i, j}
    return best, pair


def integers(logs: np.ndarray) -> np.ndarray:
    """Different where the logarithms are."""
    return (logs * 1e6).astype(np.int64)


@pytest.mark.parametrize("compiled", HOSTS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("leaf", [1, 7, 64])
def test_matches_brute_force(compiled, kind, leaf):
    domain = random_domain(kind, 100, seed=8)
    vars(domain)["tiles"] = tile(domain.metric, leaf)
    logs = np.round(np.random.default_rng(3).normal(size=(100, 5)), 3)
    value, *pair = host_rate(domain, logs, integers(logs), compiled=compiled)
    best, expected = brute_force(domain, logs)
    assert value == pytest.approx(best, rel=1e-13)
    assert set(pair) == expected


@pytest.mark.parametrize("compiled", HOSTS)
def test_passes_over_far_tiles_and_still_finds_the_worst(compiled):
    domain = random_domain("haversine", 600, seed=1)
    logs = np.round(-0.5 * domain.distances(None, [0, 200, 500]), 6)
    value, *pair = host_rate(domain, logs, integers(logs), compiled=compiled)
    best, expected = brute_force(domain, logs)
    assert value == pytest.approx(best, rel=1e-13)
    assert set(pair) == expected


@pytest.mark.parametrize("compiled", HOSTS)
def test_tiles_as_far_as_a_rate_could_reach_are_looked_at(compiled):
    """Two clusters whose rows differ by the whole span, and within each a rate nearly as large: the
    pair lies farther apart than half of what that rate leaves open."""
    rng = np.random.default_rng(6)
    places = 0.05 * rng.random((128, 2)) + np.repeat([[0.0, 0.0], [10.0, 0.0]], 64, axis=0)
    domain = Domain.from_vectors(places)
    logs = np.repeat([[0.0], [1.0]], 64, axis=0)
    nearest = np.delete(domain.distances([3])[0], 3).min()
    logs[3] = 0.08 * nearest
    best, expected = brute_force(domain, logs)
    i, j = sorted(expected)
    assert i < 64 <= j
    weights = np.round(logs * 1e12).astype(np.int64)
    value, *pair = host_rate(domain, logs, weights, compiled=compiled)
    assert value == pytest.approx(best, rel=1e-13)
    assert set(pair) == expected


@pytest.mark.parametrize("compiled", HOSTS)
def test_equal_rows_are_no_loss(compiled):
    domain = random_domain("euclidean", 150)
    logs = np.repeat([[0.0, 1.0], [1.0, 0.0]], 75, axis=0)
    value, *pair = host_rate(domain, logs, integers(logs), compiled=compiled)
    best, expected = brute_force(domain, logs)
    assert value == pytest.approx(best, rel=1e-13)
    assert set(pair) == expected
    same = np.ones((150, 3))
    assert host_rate(domain, same, integers(same), compiled=compiled) == (0.0, 0, 1)


@pytest.mark.parametrize("compiled", HOSTS)
def test_the_worst_pair_may_lie_in_two_far_tiles(compiled):
    """A pair that only a visit to two distant tiles can find."""
    domain = random_domain("euclidean", SIZE, seed=2)
    logs = np.zeros((SIZE, 2))
    apart = domain.distances()
    i, j = np.unravel_index(apart.argmax(), apart.shape)
    logs[i, 0], logs[j, 0] = 1.0, -1000.0
    value, *pair = host_rate(domain, logs, integers(logs), compiled=compiled)
    best, expected = brute_force(domain, logs)
    assert value == pytest.approx(best, rel=1e-13)
    assert set(pair) == expected


@pytest.mark.parametrize("compiled", HOSTS)
@pytest.mark.parametrize("gap", [20.0, -20.0])
def test_the_worst_pair_may_lie_across_far_tiles(gap, compiled):
    """Rate 1 within a tile; 20 over 9 and 1/64 between its last record and the next tile's first.

    One direction of the ratio between the tiles is 0, and three times the rate within spares them.
    """
    steps = np.arange(64) / 64
    domain = Domain.from_vectors(np.concatenate([steps, 10 + steps]))
    assert domain.tiles.count == 2
    logs = np.zeros((128, 2))
    logs[0, 0] = 1 / 64
    logs[64:, 1] = gap
    value, i, j = host_rate(domain, logs, (64 * logs).astype(np.int64), compiled=compiled)
    exact = Fraction(20) / (10 - Fraction(63, 64))
    assert exact <= Fraction(value) <= exact * (1 + Fraction(1, 10**12))
    assert {i, j} == {63, 64}


@pytest.mark.parametrize("kind", KINDS)
def test_devices_audit_alike_and_the_pair_attains_it(kind):
    domain, epsilon = town(kind)
    here, there = dense("numba", domain), dense("jax", domain)
    z, _ = next(here.rounds(here.start(table()), epsilon))
    assert there.rate(there.start(here.host(z), 1e-25)) == pytest.approx(here.rate(z), rel=1e-9)
    weights = quantise(here.host(z))
    logs = np.log(weights.astype(np.float64))
    value, *pair = there.largest(weights, logs)
    expected, first, second = host_rate(domain, logs, weights, compiled=True)
    assert value == pytest.approx(expected, rel=1e-12)
    apart = domain.distance(*pair)
    attained = np.abs(logs[pair[0]] - logs[pair[1]]).max() / apart
    assert attained <= value <= attained + 1e-12 / apart + 1e-12 * value
    assert set(pair) == {first, second}


def test_devices_never_audit_below_the_exact_value():
    domain = random_domain("haversine", 12, seed=7)
    weights = quantise(np.random.default_rng(2).dirichlet(np.full(3, 2.0), 12))
    value, _, _ = dense("jax", domain, 3).largest(weights)
    exact = exact_epsilon(domain, weights)
    assert exact <= value <= exact * (1 + 1e-11)


def test_rows_that_are_equal_are_left_to_the_host():
    domain = Domain.from_vectors([[0.0], [1e-9], [1.0], [2.0]])
    weights = quantise(np.array([[0.5, 0.5], [0.5, 0.5], [0.4, 0.6], [0.4, 0.6]]))
    verdict = audit_weights(domain, np.arange(2), weights, 1.0, "jax")
    assert verdict.epsilon == pytest.approx(np.log(5 / 4), rel=1e-8)
    assert set(verdict.worst[:2]) == {1, 2}
    assert audit_weights(domain, np.arange(2), weights[[0, 0, 0, 0]], 1.0, "jax").epsilon == 0.0


def test_a_closure_is_kept_for_the_next_audit():
    domain = random_domain("haversine", 20)
    assert closure_for(domain, 3) is closure_for(domain, 3)
    assert closure_for(domain, 4) is not closure_for(domain, 3)


# Rows over a floor.


def test_outputs_in_any_number_of_groups_are_all_looked_at():
    """However few groups are held at a time."""
    domain = random_domain("euclidean", 110, seed=2)
    rows = sparse_rows(domain, 100, 3, 0.5)
    whole = np.asarray(rows)
    for entries in (1, 500, 1 << 19):
        seen = np.full(whole.shape, -1)
        for cut, weights in cuts(domain, rows, entries):
            for group, record, row in zip(cut.group, cut.record, weights, strict=True):
                columns = cut.columns[group]
                seen[record, columns[columns >= 0]] = row[columns >= 0]
        stored = whole != rows.floor
        assert np.array_equal(seen[stored], whole[stored])


@pytest.mark.parametrize("machine", ["numba", "jax"])
def test_the_rate_over_a_floor_is_the_one_of_the_whole_table(machine):
    case = tiled(machine, 2)
    full = np.ascontiguousarray(case.whole(case.z)[case.closure.place])
    expected = plain_rate(case.closure.domain, np.log(full), full.view(np.int64))[0]
    assert case.closure.rate(case.z) == pytest.approx(expected, rel=1e-11)


def sparse_rows(domain: Domain, outputs: int, seed: int, rough: float) -> FlooredRows:
    """Rows that fall off with the distance, down to a floor that is another one in each column."""
    rng = np.random.default_rng(seed)
    distance = domain.distances(None, rng.choice(domain.size, outputs, replace=False))
    steep = 60 / domain.diameter
    floor = (1e-4 / outputs * rng.uniform(0.5, 2, outputs) * TOTAL).astype(np.int64)
    shape = np.exp(-steep * distance + rough * rng.normal(size=distance.shape))
    weights = np.maximum((shape / shape.sum(axis=1, keepdims=True) * TOTAL).astype(np.int64), floor)
    top = weights.argmax(axis=1)
    weights[np.arange(domain.size), top] += TOTAL - weights.sum(axis=1)
    return FlooredRows.of(weights, floor)


def every_rate(domain: Domain, rows: FlooredRows) -> list[tuple[float, int, int] | None]:
    """By NumPy, by compiled loops, on a device."""
    hosts = [floored_rate(domain, rows, compiled=compiled) for compiled in HOSTS]
    return [*hosts, device_rate(domain, rows)]


@pytest.mark.parametrize(("kind", "rough"), [("haversine", 0.0), ("matrix", 1.0)])
def test_every_machine_finds_the_dense_rate_and_pair(kind, rough):
    domain = random_domain(kind, SIZE, seed=3)
    rows = sparse_rows(domain, 150, 4, rough)
    assert 0 < rows.stored < 0.9 * SIZE * 150
    whole = np.asarray(rows)
    value, i, j = host_rate(domain, np.log(whole.astype(np.float64)), whole)
    for found in every_rate(domain, rows):
        assert found[0] == pytest.approx(value, rel=1e-11) and {*found[1:]} == {i, j}
        # Never below the exact value by more than the error that is allowed for.
        logs = np.log(whole.astype(np.longdouble))
        assert found[0] >= np.abs(logs[i] - logs[j]).max() / domain.distances([i], [j])[0, 0]


def test_a_row_that_only_the_floor_of_far_records_contradicts():
    """The worst pair is one of a stored row and a record whose tile has no entry at all."""
    rng = np.random.default_rng(0)
    places = np.concatenate([rng.normal(0, 1, (64, 2)), rng.normal(0, 1, (64, 2))])
    places[64:, 0] += 30
    domain = Domain.from_vectors(places)
    floor = np.full(70, TOTAL // 70, dtype=np.int64)
    floor[69] += TOTAL - floor.sum()
    weights = np.tile(floor, (128, 1))
    near = np.flatnonzero(places[:, 0] < 15)
    weights[near, 0] += 10**15
    weights[near, 1] -= 10**15
    rows = FlooredRows.of(weights, floor)
    value, i, j = host_rate(domain, np.log(weights.astype(np.float64)), weights)
    for found in every_rate(domain, rows):
        assert found[0] == pytest.approx(value, rel=1e-11) and {*found[1:]} == {i, j}
    verdict = audit_weights(domain, np.arange(70), rows, 1.0, "jax")
    assert verdict.epsilon == pytest.approx(value, rel=1e-11) and {*verdict.worst[:2]} == {i, j}


def test_stored_rows_of_different_tiles_are_compared_over_a_floor():
    """Within a tile all rows are alike, and nobody is at the floor: the worst pair lies across."""
    domain = Domain.from_vectors(np.arange(128.0)[:, None])
    assert domain.tiles.count > 1
    first = np.array([TOTAL // 2, TOTAL // 4, TOTAL // 4])
    second = np.array([TOTAL // 4, TOTAL // 4, TOTAL // 2])
    later = np.isin(np.arange(128), domain.tiles.records(0), invert=True)
    rows = FlooredRows.of(np.where(later[:, None], second, first), np.ones(3, dtype=np.int64))
    for found in every_rate(domain, rows):
        assert found[0] == pytest.approx(np.log(2), rel=1e-11)
        assert later[found[1]] != later[found[2]] and abs(found[1] - found[2]) == 1


@pytest.mark.parametrize("backend", ["numba", "numpy", "jax"])
def test_an_output_of_one_record_alone_is_seen_over_a_floor(backend):
    """Whether the others are at a floor of 0, or one is 0 where the floor is not."""
    domain = random_domain("euclidean", 5, seed=2)
    for floor, own in (([0, TOTAL], [5, TOTAL - 5]), ([5, TOTAL - 5], [0, TOTAL])):
        weights = np.tile(floor, (5, 1))
        weights[3] = own
        rows = FlooredRows.of(weights, np.array(floor))
        found = audit_weights(domain, np.array([8, 9]), rows, 100.0, backend)
        assert found.epsilon == np.inf and not found.holds
        assert found.worst[2] == 8 and (found.worst[0] == 3) == (own[0] == 5)
        assert found == audit_weights(domain, np.array([8, 9]), weights, 100.0, backend)


def test_rows_that_are_alike_over_a_floor_tell_nothing():
    domain = random_domain("euclidean", 70, seed=1)
    floor = np.array([TOTAL // 2, TOTAL // 2])
    plain = FlooredRows.of(np.tile(floor, (70, 1)), floor)
    other = FlooredRows.of(np.tile([TOTAL // 4, 3 * (TOTAL // 4)], (70, 1)), floor)
    assert device_rate(domain, plain) is None
    for rows in (plain, other):
        assert audit_weights(domain, np.arange(2), rows, 1.0, "jax").epsilon == 0.0
        for compiled in HOSTS:
            assert floored_rate(domain, rows, compiled=compiled) == (0.0, 0, 1)


def test_a_devices_logarithms_err_by_less_than_is_allowed_for():
    numbers = np.random.default_rng(2).integers(1, 1 << 62, 100_000)
    numbers = np.concatenate([numbers >> k for k in range(0, 60, 7)] + [np.arange(1, 5000)])
    numbers = np.maximum(numbers, 1)
    with jax.enable_x64(True):
        logs = np.asarray(jnp.log(jnp.asarray(numbers).astype(jnp.float64)))
    exact = np.log(numbers.astype(np.float64).astype(np.longdouble))
    assert float(np.abs(logs - exact).max()) < 4 * np.spacing(64.0) / 2


@pytest.mark.parametrize(
    ("words", "left_to_the_host"),
    [("RESOURCE_EXHAUSTED: out of memory", True), ("INTERNAL: something else", False)],
)
def test_a_device_whose_memory_is_full_leaves_it_to_the_host(words, left_to_the_host):
    class Device:
        def __getattr__(self, _: str) -> None:
            raise RuntimeError(words)

    domain = random_domain("haversine", SIZE, seed=3)
    rows = sparse_rows(domain, 150, 4, 0.0)
    if left_to_the_host:
        assert device_rate(domain, rows, closure=Device()) is None
        return
    with pytest.raises(RuntimeError, match="something else"):
        device_rate(domain, rows, closure=Device())


def test_an_accelerator_audits_what_would_take_the_host_minutes(monkeypatch):
    assert chosen_backend(LARGE + 1) == chosen_backend(LARGE) == "numba"
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert chosen_backend(LARGE + 1) == "jax"
    assert chosen_backend(LARGE) == chosen_backend(LARGE + 1, "numba") == "numba"
