"""Closing, scaling and looking for broken pairs: every machine does what brute force does."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from helpers import KINDS, is_private, random_domain
from machines import FLOOR, OUTPUTS, SIZE, dense, table, tiled, town

import panda_mdp as pm
from panda_mdp.base.floored import FlooredRows
from panda_mdp.compute.closure import AGREED, AROUND, Closure, closure_of
from panda_mdp.compute.jax.closure import closure_for
from panda_mdp.compute.jax.device import precise
from panda_mdp.errors import SlowerWarning
from panda_mdp.methods.optimal.program import Graph, broken_pairs
from panda_mdp.privacy.quantise import (
    SLACK,
    TOTAL,
    check_weights,
    estimate,
    quantise_floored,
    repair,
)

HOSTS = ["numpy", "numba"]
MACHINES = [*HOSTS, "jax"]
TILED = ["numba", "jax"]
NONE = Graph(np.empty((0, 2), dtype=np.int64), np.empty(0))


def closed(z: np.ndarray, apart: np.ndarray, epsilon: float) -> np.ndarray:
    return (z[None] * np.exp(-epsilon * apart)[:, :, None]).max(axis=1)


def along(closure: Closure) -> np.ndarray:
    """Distances between positions."""
    return closure.domain.distances(closure.order, closure.order)


# Dense tables.


@pytest.mark.parametrize("machine", HOSTS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 20.0])
def test_is_the_maximum_over_all_records(machine, kind, epsilon):
    """Over twenty orders of magnitude, and more than one tile."""
    closure = dense(machine, random_domain(kind, SIZE))
    z = np.exp(np.random.default_rng(0).uniform(-45, 0, (SIZE, 5)))
    once = closure.close(z, epsilon)
    np.testing.assert_allclose(once, closed(z, along(closure), epsilon), rtol=1e-12)
    np.testing.assert_allclose(closure.close(once, epsilon), once, rtol=1e-12)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("factor", [0.01, 1.0, 20.0])
def test_a_round_closes_and_scales(machine, kind, factor):
    domain, epsilon = town(kind)
    closure = dense(machine, domain)
    start = closure.start(table())
    whole = closed(closure.host(start)[closure.order], along(closure), factor * epsilon)
    z, sums = next(closure.rounds(start, factor * epsilon))
    found = closure.host(z)[closure.order]
    # Devices compare sources in single precision.
    close = {"rtol": 1e-5 if machine == "jax" else 1e-12}
    np.testing.assert_allclose(found, whole / whole.sum(axis=1, keepdims=True), **close)
    excess = np.abs(np.log(whole.sum(axis=1))[:, None] - np.log(whole.sum(axis=1)))
    near, distance = closure.near
    rates = np.take_along_axis(excess, near, axis=1) / distance
    assert closure.excess(sums) == pytest.approx(rates.max(), rel=1e-3)


@pytest.mark.parametrize("machine", HOSTS)
def test_only_active_records_are_closed(machine):
    closure = dense(machine, random_domain("euclidean", SIZE))
    z, active = closure.start(table()), np.isin(np.arange(SIZE), [3, 70, 149])
    expected = np.where(active[:, None], closed(z, along(closure), 1.0), z)
    np.testing.assert_allclose(closure.close(z, 1.0, active), expected, rtol=1e-12)


@pytest.mark.parametrize("machine", HOSTS)
def test_near_pairs_lie_between_the_table_and_the_whole_closure(machine):
    domain, epsilon = town("euclidean")
    closure = dense(machine, domain)
    z, exponent = closure.start(table()), epsilon * along(closure)
    whole = closure.close(z, epsilon)
    for nats in (1.0, 4.0):
        near = closure.close(z, epsilon, nats=nats)
        factor = np.where(exponent < nats, np.exp(-exponent), 0.0)
        np.testing.assert_allclose(near, (factor[:, :, None] * z).max(axis=1), rtol=1e-12)
        assert np.all(near <= whole) and np.any(near < whole)
    np.testing.assert_array_equal(closure.close(z, epsilon, nats=1e9), whole)


def test_rows_at_rest_are_short_of_no_claim_by_more_than_that():
    closure = dense("numba", random_domain("euclidean", 180), rest=0.01)
    apart = along(closure)
    np.fill_diagonal(apart, np.inf)
    epsilon = 3.0 / float(np.median(apart))
    rounds = closure.rounds(closure.start(table(180, 6, 4)), epsilon)
    for _ in range(12):
        z, sums = next(rounds)
        logs, scaled = np.log(z), np.log(sums)
        short = (logs[None] - logs[:, None]).max(axis=2) / apart - epsilon
        allowed = np.maximum(scaled[:, None] - scaled, 0) / apart + 0.01 * epsilon
        assert (short <= allowed + 1e-9).all()


@pytest.mark.parametrize("machine", HOSTS)
def test_the_greatest_table_below_is_log_lipschitz(machine):
    domain, epsilon = town("matrix")
    closure = dense(machine, domain)
    z, exponent = closure.start(table()), epsilon * along(closure)[:, :, None]
    lowered = np.log(closure.lowered(z, epsilon))
    below = (np.log(z)[None] + exponent).min(axis=1)
    np.testing.assert_allclose(lowered, below, rtol=1e-9, atol=1e-9)
    assert (np.abs(lowered[:, None] - lowered) <= exponent + 1e-9).all()


@pytest.mark.parametrize("machine", MACHINES)
def test_centred_rounds_come_to_rest(machine):
    domain, epsilon = town()
    closure = dense(machine, domain)
    z, sums = closure.start(table()), None
    rounds = closure.rounds(z, epsilon * (1 - 3e-4))
    for _ in range(10):
        z, sums = next(rounds)
    centred = closure.centred_rounds(z, epsilon * (1 - 3e-4), np.inf, sums)
    for _ in range(60):
        z, sums = next(centred)
    assert closure.excess(sums) < 2e-4 * epsilon
    assert closure.rate(z) <= epsilon


def test_later_centred_rounds_leave_rows_that_agree_where_they_are():
    """One sum is off: its record and those around it move, all others stay."""
    domain, epsilon = town("euclidean", 3000)
    closure = dense("numba", domain)
    z = closure.start(np.random.default_rng(0).dirichlet(np.full(OUTPUTS, 3.0), 3000))
    rounds = closure.rounds(z, epsilon)
    for _ in range(3):
        z, sums = next(rounds)
    odd = np.ones(sums.shape)
    odd[1700] = 1.5
    before = closure.host(z).copy()
    moved, after = next(closure.centred_rounds(z, epsilon, np.inf, odd))
    logs, (near, distance) = np.log(odd), closure.near
    around = (np.abs(logs[:, None] - logs[near]) / distance).max(axis=1) > AGREED * epsilon
    for _ in range(AROUND):
        around |= around[near].any(axis=1)
    assert around[1700] and around.sum() < 2000
    same = np.isclose(closure.host(moved), before, rtol=1e-14, atol=0).all(axis=1)[closure.order]
    assert same[~around].all() and not same[around].all()
    assert (after[~around] == 1).all()


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("kind", KINDS)
def test_broken_pairs_are_the_worst_ones(machine, kind):
    domain, epsilon = town(kind)
    closure = dense(machine, domain)
    z, most = closure.start(table()), 5
    rows = closure.host(z)[closure.order]
    factor = np.exp(-epsilon * along(closure))
    true = np.maximum(0, rows[None] * factor[:, :, None] - rows[:, None]).sum(axis=2)
    np.fill_diagonal(true, 0)
    best = -np.sort(-true, axis=1)[:, :most]
    least = float(np.median(best))
    ends, mass = closure.broken(z, epsilon, 8.0, (least, least), most)
    np.testing.assert_array_equal(np.bincount(ends[:, 0], minlength=SIZE), (best > least).sum(1))
    # Compiled loops add up in single precision, devices in multiples of 2^-30.
    np.testing.assert_allclose(true[ends[:, 0], ends[:, 1]], mass, rtol=1e-4, atol=2e-6)
    assert (mass >= best[ends[:, 0], -1] * (1 - 1e-4) - 2e-6).all()
    found = broken_pairs(closure, NONE, closure.start(table()), epsilon, 2).ends
    plain = dense("numpy", domain)
    expected = broken_pairs(plain, NONE, plain.start(table()), epsilon, 2).ends
    assert {tuple(p) for p in found.tolist()} == {tuple(p) for p in expected.tolist()}


@pytest.mark.parametrize("machine", MACHINES)
def test_tables_losses_and_peaks_are_those_of_the_matrix(machine):
    closure = dense(machine, town()[0])
    weighted = np.random.default_rng(5).random((SIZE, OUTPUTS))
    peaks, loss = closure.survey(2 * table(), weighted)
    np.testing.assert_allclose(peaks, 2 * table().max(axis=0), rtol=1e-15)
    assert loss == pytest.approx((weighted * table()).sum(), rel=1e-12)
    z = closure.start(table())
    np.testing.assert_allclose(closure.host(z), table(), atol=2e-8)
    assert closure.expected(z, weighted) == pytest.approx((weighted * closure.host(z)).sum())


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("kind", KINDS)
def test_estimates_and_repairs_alike(machine, kind):
    domain, epsilon = town(kind)
    closure, plain = dense(machine, domain), dense("numpy", domain)
    weights = np.exp(-1.1 * epsilon * domain.distances(None, np.arange(0, SIZE, 13)[:OUTPUTS]))
    matrix = weights / weights.sum(axis=1, keepdims=True)
    near, expected = estimate(closure, matrix, epsilon), estimate(plain, matrix, epsilon)
    np.testing.assert_allclose(near, expected, rtol=1e-5)
    repaired, expected = repair(closure, matrix, epsilon), repair(plain, matrix, epsilon)
    assert plain.rate(repaired.matrix[plain.order]) <= epsilon
    # Rounds may go another way, and no farther.
    moved, usual = (np.abs(one.matrix - matrix).sum() for one in (repaired, expected))
    assert moved <= 1.02 * usual
    np.testing.assert_allclose(repaired.matrix, expected.matrix, atol=5e-3)


@pytest.mark.parametrize("machine", MACHINES)
def test_repaired_tables_are_exactly_private(machine):
    domain = random_domain("haversine", 12, seed=7)
    matrix = np.random.default_rng(2).dirichlet(np.full(3, 0.2), 12)
    repaired = repair(dense(machine, domain, 3), matrix, 1.0)
    np.testing.assert_allclose(repaired.matrix.sum(axis=1), 1, rtol=1e-12)
    assert is_private(domain, repaired.matrix, 1.0)


def test_repairing_a_solved_table_costs_next_to_nothing():
    city = pm.synthetic_city(600, seed=7)
    domain = city.road_domain(200, seed=0)
    rng = np.random.default_rng(1)
    outputs, tasks = rng.choice(200, 20, replace=False), rng.choice(200, 1)
    problem = pm.Problem(domain, outputs, pm.travel_loss(city, domain, outputs, tasks), 5.0)
    solved = pm.optimal(problem, 0.01, backend="cpu")
    repaired = repair(Closure(domain), solved.matrix, 5.0)
    assert repaired.common_share == 0
    assert problem.expected_loss(repaired.matrix) <= 1.001 * solved.loss


@pytest.mark.parametrize("rounds", ["rounds", "centred_rounds"])
def test_closing_along_links_on_a_device_is_the_hosts(rounds):
    domain = pm.synthetic_city(300, seed=7).road_domain(90, seed=0)
    host = closure_of(domain)
    device = closure_for(domain, OUTPUTS)
    matrix = np.random.default_rng(1).dirichlet(np.full(OUTPUTS, 0.2), 90)
    starts = [closure.start(matrix, 1e-3) for closure in (host, device)]
    both = [getattr(c, rounds)(z, 2.0) for c, z in zip((host, device), starts, strict=True)]
    for _ in range(4):
        (here, sums), (there, others) = (next(one) for one in both)
        np.testing.assert_allclose(device.host(there), host.host(here), rtol=1e-6)
    assert device.excess(others) == pytest.approx(host.excess(sums), rel=1e-3, abs=1e-7)
    repaired = repair(device, matrix, 2.0)
    assert repaired.common_share == 0 and is_private(domain, repaired.matrix, 2.0)


# Tables over a floor.


@pytest.mark.parametrize("machine", TILED)
def test_closing_and_scaling_over_a_floor(machine):
    case = tiled(machine, 0)
    closure, z, size = case.closure, case.z, case.closure.domain.size
    full = case.whole(z)
    assert np.allclose(full.sum(axis=1), 1, atol=1e-12) and (full >= FLOOR * (1 - 1e-15)).all()
    found = case.whole(closure.close(z, 6.0))
    # The dense closure, of which what is below the floor does not count.
    assert np.allclose(found, closed(full, along(closure), 6.0), rtol=1e-12, atol=0)
    some = case.whole(closure.close(z, 6.0, case.rows(3)))
    assert np.allclose(some[:3], found[:3], rtol=1e-14) and np.array_equal(some[3:], full[3:])
    near = case.whole(closure.close(z, 6.0, None, 2.0))
    assert (near <= found).all() and (near >= full).all() and (near > full).any()
    scaled, sums = closure.scaled(closure.close(z, 6.0))
    assert np.allclose(case.sums(sums), found.sum(axis=1), rtol=1e-13)
    assert np.allclose(case.whole(scaled).sum(axis=1), 1, atol=1e-12)
    assert closure.excess(sums) == pytest.approx(Closure(closure.domain).excess(case.sums(sums)))
    assert len(full) == size


def test_the_device_settles_on_the_hosts_table():
    host, device = tiled("numba", 5, rest=0.0), tiled("jax", 5)
    steps = [case.closure.rounds(case.z, 6.0) for case in (host, device)]
    for _ in range(6):
        (here, _), (there, _) = (next(step) for step in steps)
    assert np.allclose(device.whole(there), host.whole(here), rtol=1e-5, atol=0)


@pytest.mark.parametrize("machine", TILED)
def test_centring_over_a_floor_begins_from_below(machine):
    case = tiled(machine, 6)
    full = case.whole(case.z)
    expected = dense("numpy", case.closure.domain).lowered(full, 6.0)
    centred = case.whole(next(case.closure.centred_rounds(case.z, 6.0))[0])
    assert np.allclose(centred.sum(axis=1), 1, atol=1e-12)
    for row, target in zip(centred, expected, strict=True):
        above = row > 1.01 * FLOOR
        share = row[above] / target[above]
        assert above.sum() > 3 and np.ptp(share) < 1e-9 * share.max()


@pytest.mark.parametrize("machine", TILED)
def test_broken_pairs_over_a_floor_are_those_of_the_whole_table(machine):
    case = tiled(machine, 3)
    full, most = case.whole(case.z), 4
    ends, mass = case.closure.broken(case.z, 6.0, np.inf, (0.0, 1e-6), most)
    factor = np.exp(-6.0 * along(case.closure))
    missed = np.stack(
        [
            np.maximum(0, f[:, None] * full - r).sum(axis=1)
            for f, r in zip(factor, full, strict=True)
        ]
    )
    np.fill_diagonal(missed, 0.0)
    assert len(ends) > 500
    exact = missed[ends[:, 0], ends[:, 1]]
    # On the host a node names its four worst partners; what is left out of a pair only lowers it.
    assert (mass <= exact * (1 + 1e-5) + 1e-9).all()
    if machine == "jax":
        assert np.allclose(exact, mass, rtol=1e-6, atol=1e-9)
    top = np.zeros(len(full))
    np.maximum.at(top, ends[:, 0], mass)
    assert (top >= 0.5 * missed.max(axis=1) - 1e-6).all()


@pytest.mark.parametrize("machine", TILED)
def test_rows_are_what_lies_above_the_floor(machine):
    case = tiled(machine, 4)
    closure, size = case.closure, case.closure.domain.size
    starts, columns, values = closure.rows(case.z)
    full = np.empty((size, size))
    full[closure.order] = case.whole(case.z)
    assert np.array_equal(np.diff(starts), (full > FLOOR).sum(axis=1))
    assert np.array_equal(columns, np.nonzero(full > FLOOR)[1])
    assert np.array_equal(values, full[full > FLOOR])


@pytest.mark.parametrize("machine", TILED)
def test_a_common_row_raises_the_floor(machine):
    case = tiled(machine, 2)
    rate = case.closure.rate(case.z)
    mixed, table = case.closure.mixed(case.z, 0.5)
    assert mixed.rate(table) < rate
    assert mixed.cut.floor.sum() == pytest.approx(0.5 * case.closure.cut.floor.sum() + 0.5)


def test_whole_numbers_are_those_that_the_host_rounds_to():
    case = tiled("jax", 4)
    closure, size = case.closure, case.closure.domain.size
    floor, starts, columns, whole = closure.whole_rows(case.z, TOTAL, SLACK)
    expected = quantise_floored(closure.cut.floor, *closure.rows(case.z))
    assert np.array_equal(floor, expected.floor) and np.array_equal(starts, expected.starts)
    assert np.array_equal(columns, expected.columns)
    check_weights(FlooredRows(floor, starts, columns, whole), (size, size))
    # Sums in another order move a share by its rounding.
    assert np.allclose(whole.astype(float), expected.values.astype(float), rtol=1e-14)


def test_kernels_of_our_own_close_as_xla_does():
    case = tiled("jax", 0)
    closure, rows = case.closure, case.rows(200)
    found = np.asarray(closure.close(case.z, 6.0, rows, 5.0))
    closure.kernels = "interpret"
    assert np.array_equal(np.asarray(closure.close(case.z, 6.0, rows, 5.0)), found)
    # As on this machine, which has no card for them.
    closure.kernels = "triton"
    with warnings.catch_warnings():
        # Said once in a process, by whichever test comes first.
        warnings.simplefilter("ignore", SlowerWarning)
        assert np.array_equal(np.asarray(closure.close(case.z, 6.0, rows, 5.0)), found)
    assert closure.kernels == "xla"


def test_kernels_of_our_own_close_any_number_of_outputs():
    domain = random_domain("haversine", 150)
    closure = dense("jax", domain, 70)
    z = closure.start(table(150, 70))
    epsilon = 1.0 / float(np.median(domain.neighbours(1)[1]))
    found = np.asarray(closure.close(z, epsilon))
    closure.kernels = "interpret"
    assert np.array_equal(np.asarray(closure.close(z, epsilon)), found)


def test_many_chunks_of_pairs_are_one():
    from panda_mdp.compute.jax.blocks import CHUNK, distances

    domain = random_domain("euclidean", 1800)
    closure = dense("jax", domain, 3)
    z, apart = closure.start(table(1800, 3)), along(closure)
    assert closure.tiles.count**2 > CHUNK
    epsilon = 1.0 / float(np.median(domain.neighbours(1)[1]))
    expected = closed(closure.host(z)[closure.order], apart, epsilon)
    found = closure.host(closure.close(z, epsilon))[closure.order]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    with precise():
        near = closure._near(np.inf)
        between = np.asarray(distances(near, closure._real))
    between = between[np.isfinite(np.asarray(near.between))]
    assert len(between) > CHUNK
    listed = between[np.isfinite(between)]
    np.testing.assert_allclose(np.sort(listed), np.sort(apart, axis=None), rtol=1e-12, atol=1e-12)


def test_the_switch_from_a_kernel_to_xla_is_said_once(monkeypatch):
    jax = pytest.importorskip("jax")
    from panda_mdp.compute.jax import triton

    assert not triton.available()
    triton.available.cache_clear()
    triton.warn_slower.cache_clear()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    with pytest.warns(SlowerWarning, match="XLA does the same") as said:
        assert not triton.available()
        assert not triton.available()
    assert len(said) == 1
    triton.available.cache_clear()
