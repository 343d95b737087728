"""Closure, audit and violated pairs in JAX are those of the compiled loops."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import KINDS, exact_epsilon, is_private, random_domain

from panda_mdp import Domain
from panda_mdp.compute.closure import AGREED, Closure
from panda_mdp.compute.jax.closure import JaxClosure, closure_for, equal_rows
from panda_mdp.compute.jax.device import make_mesh, precise
from panda_mdp.methods.optimal.graph import Graph, missing_pairs
from panda_mdp.privacy.audit import largest_rate
from panda_mdp.privacy.quantise import quantise
from panda_mdp.privacy.repair import estimate, repair

SIZE, OUTPUTS = 150, 12
NONE = Graph(np.empty((0, 2), dtype=np.int64), np.empty(0))


@pytest.fixture(scope="module")
def mesh():
    return make_mesh(jax.devices()[:1])


@pytest.fixture(scope="module", params=KINDS)
def both(request, mesh) -> tuple[Closure, JaxClosure, float]:
    """The closure here, the one there, and an epsilon at which neighbours bind."""
    domain = random_domain(request.param, SIZE)
    epsilon = 1.0 / float(np.median(domain.neighbours(1)[1]))
    return Closure(domain), JaxClosure(domain, mesh, OUTPUTS), epsilon


def table(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.full(OUTPUTS, 0.3), SIZE)


def test_tables_come_back_as_they_went(both):
    here, there, _ = both
    z = here.start(table())
    # Sums are added in another order there.
    np.testing.assert_allclose(there.host(there.start(table())), here.host(z), rtol=1e-14)
    assert here.host(z).shape == (SIZE, OUTPUTS)


@pytest.mark.parametrize("factor", [0.01, 1.0, 20.0])
def test_closes_alike(both, factor):
    here, there, epsilon = both
    expected = here.host(here.close(here.start(table()), factor * epsilon))
    found = there.host(there.close(there.start(table()), factor * epsilon))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_active_rows_are_closed_and_far_tiles_left_alone(both):
    here, there, epsilon = both
    active = np.zeros(SIZE, dtype=bool)
    active[[3, 5]] = True
    everything = here.close(here.start(table()), epsilon)
    nothing = there.host(there.start(table()))[there.order]
    found = there.host(there.close(there.start(table()), epsilon, active))[there.order]
    np.testing.assert_allclose(found[active], everything[active], rtol=1e-12)
    # Devices close the whole tile of an active row; no row of another tile moves.
    tile = here.tiles.starts[1]
    np.testing.assert_array_equal(found[tile:], nothing[tile:])
    none = there.close(there.start(table()), epsilon, np.zeros(SIZE, dtype=bool))
    np.testing.assert_array_equal(there.host(none)[there.order], nothing)


def test_losses_and_peaks_are_those_of_the_host(both):
    here, there, _ = both
    weighted = np.random.default_rng(5).random((SIZE, OUTPUTS))
    peaks, loss = here.survey(2 * table(), weighted)
    also, same = there.survey(2 * table(), weighted)
    np.testing.assert_array_equal(also, peaks)
    assert same == pytest.approx(loss, rel=1e-12)
    assert there.expected(there.start(table()), weighted) == pytest.approx(
        here.expected(here.start(table()), weighted), rel=1e-12
    )


def test_no_turn_has_a_tile_twice(both):
    _, there, _ = both
    tiles = there.tiles.count
    first, second = (a.ravel() for a in np.indices((tiles, tiles)))
    keep = (first + 2 * second) % 3 > 0
    turns = there._in_turns(first[keep], second[keep])
    target, source = np.asarray(turns.target), np.asarray(turns.source)
    assert all(len(set(row)) == len(row) for row in target.tolist())
    assert (target[turns.count :] >= tiles).all()
    real = target < tiles
    listed = sorted(zip(target[real].tolist(), source[real].tolist(), strict=True))
    assert listed == sorted(zip(first[keep].tolist(), second[keep].tolist(), strict=True))


def test_lenders_are_the_best_sources(both):
    here, there, epsilon = both
    z = here.start(table())
    factor = np.exp(-epsilon * here.domain.distances(here.order, here.order))
    lent = (factor[:, :, None] * z).max(axis=1)
    with precise():
        slots, shares = there._lenders(there.start(table()), epsilon, np.inf)
    position = np.maximum(there._grid.members.ravel(), 0)[np.asarray(slots).reshape(-1, OUTPUTS)]
    position, shares = position[there._slots], np.asarray(shares).reshape(-1, OUTPUTS)[there._slots]
    np.testing.assert_allclose(shares * np.take_along_axis(z, position, 0), lent, rtol=1e-5)


def test_normalises_and_centres_alike(both):
    here, there, epsilon = both
    expected, sums = here.normalise(here.centre(here.start(table()), epsilon))
    found, also = there.normalise(there.centre(there.start(table()), epsilon))
    np.testing.assert_allclose(there.host(found), here.host(expected), rtol=1e-11)
    np.testing.assert_allclose(np.asarray(also).ravel()[there._slots], sums, rtol=1e-11)


def test_audits_alike_and_the_pair_attains_it(both):
    here, there, epsilon = both
    z, _ = next(here.rounds(here.start(table()), epsilon))
    assert there.rate(there.start(here.host(z), 1e-25)) == pytest.approx(here.rate(z), rel=1e-9)
    weights = quantise(here.host(z))
    logs = np.log(weights.astype(np.float64))
    value, *pair = there.largest(logs, weights)
    expected, first, second = largest_rate(here.domain, logs, weights)
    assert value == pytest.approx(expected, rel=1e-12)
    apart = here.domain.distance(*pair)
    attained = np.abs(logs[pair[0]] - logs[pair[1]]).max() / apart
    assert attained <= value <= attained + 1e-12 / apart + 1e-12 * value
    assert set(pair) == {first, second}


def test_finds_the_same_violated_pairs(both):
    here, there, epsilon = both
    z, most = here.start(table()), 5
    factor = np.exp(-epsilon * here.domain.distances(here.order, here.order))
    true = np.maximum(0, z[None] * factor[:, :, None] - z[:, None]).sum(axis=2)
    np.fill_diagonal(true, 0)
    worst = np.argsort(-true, axis=1)[:, :most]
    gains = np.take_along_axis(true, worst, axis=1)
    least = float(np.median(gains))
    found, value = there.violated(there.start(table()), epsilon, most, least)
    np.testing.assert_array_equal(found, np.where(gains > least, worst, -1))
    # Devices round a gain down to a multiple of 2^-30.
    np.testing.assert_allclose(value, np.where(gains > least, gains, 0), atol=2e-9)
    assert (found >= 0).any()
    assert (found < 0).any()
    # The compiled loops add up in float32: only what is nearly equal may change places.
    also, _ = here.violated(z, epsilon, most, least)
    rows, places = np.nonzero((found != also) & (found >= 0) & (also >= 0))
    assert len(rows) <= 0.01 * found.size
    np.testing.assert_allclose(
        true[rows, found[rows, places]], true[rows, also[rows, places]], rtol=1e-5
    )
    pairs = missing_pairs(there, NONE, table(), epsilon, 2)
    assert {tuple(p) for p in pairs.ends.tolist()} == {
        tuple(p) for p in missing_pairs(here, NONE, table(), epsilon, 2).ends.tolist()
    }


def test_estimates_and_repairs_alike(both):
    here, there, epsilon = both
    weights = np.exp(-1.1 * epsilon * here.domain.distances(None, np.arange(0, SIZE, 13)[:OUTPUTS]))
    matrix = weights / weights.sum(axis=1, keepdims=True)
    # Rounds compare sources in single precision there; `close` does not.
    np.testing.assert_allclose(
        estimate(there, matrix, epsilon), estimate(here, matrix, epsilon), rtol=1e-5
    )
    repaired = repair(there, matrix, epsilon)
    assert here.rate(repaired.matrix[here.order]) <= epsilon
    expected = repair(here, matrix, epsilon)
    # Rounds there go another way, and no farther.
    moved, usual = (np.abs(one.matrix - matrix).sum() for one in (repaired, expected))
    assert moved <= 1.02 * usual
    np.testing.assert_allclose(repaired.matrix, expected.matrix, atol=5e-3)


def test_exactly_private_and_never_audited_below_the_exact_value(mesh):
    domain = random_domain("haversine", 12, seed=7)
    closure = JaxClosure(domain, mesh, 3)
    matrix = np.random.default_rng(2).dirichlet(np.full(3, 0.2), 12)
    repaired = repair(closure, matrix, 1.0)
    np.testing.assert_allclose(repaired.matrix.sum(axis=1), 1, rtol=1e-12)
    assert is_private(domain, repaired.matrix, 1.0)
    weights = quantise(repaired.matrix)
    logs = np.log(weights.astype(np.float64))
    value, _, _ = closure.largest(logs, weights)
    exact = exact_epsilon(domain, weights)
    assert exact <= value <= exact * (1 + 1e-11)


def test_equal_rows_tell_nothing(mesh):
    domain = Domain.from_vectors([[0.0], [1e-9], [1.0], [2.0]])
    weights = quantise(np.array([[0.5, 0.5], [0.5, 0.5], [0.4, 0.6], [0.4, 0.6]]))
    closure = JaxClosure(domain, mesh, 2)
    logs = np.log(weights.astype(np.float64))
    value, i, j = closure.largest(logs, weights)
    assert value == pytest.approx(np.log(5 / 4), rel=1e-8)
    assert {i, j} == {1, 2}
    same = weights[[0, 0, 0, 0]]
    assert closure.largest(np.log(same.astype(float)), same)[0] == 0.0
    assert missing_pairs(closure, NONE, same / same.sum(axis=1, keepdims=True), 1.0).count == 0


def test_rows_that_differ_in_one_unit_are_not_equal():
    rows = np.array([[1, 2, 3], [1, 2, 4], [1, 2, 3], [0, 2, 3]])
    numbers = equal_rows(rows)
    assert numbers[0] == numbers[2]
    assert len(set(numbers.tolist())) == 3


def test_rows_that_only_hash_alike_are_told_apart():
    factors = np.random.default_rng(0).integers(2**63, size=2, dtype=np.uint64)
    odd = 2 * factors + np.uint64(1)
    # Moving one entry by the other's factor, and back, leaves the weighted sum as it was.
    other = np.array([7, 9], dtype=np.uint64) + odd[::-1] * np.array(
        [1, 2**64 - 1], dtype=np.uint64
    )
    rows = np.array([[7, 9], other.view(np.int64), [7, 9]], dtype=np.int64)
    sums = (rows.view(np.uint64) * odd).sum(axis=1, dtype=np.uint64)
    assert sums[0] == sums[1]
    numbers = equal_rows(rows)
    assert numbers[0] == numbers[2] != numbers[1]


def test_a_closure_is_kept_for_the_next_audit(mesh):
    domain = random_domain("haversine", 20)
    assert closure_for(domain, mesh, 3) is closure_for(domain, mesh, 3)
    assert closure_for(domain, mesh, 4) is not closure_for(domain, mesh, 3)


def test_settings_do_not_leak(mesh):
    domain = random_domain("haversine", 20)
    closure = JaxClosure(domain, mesh, 3)
    z = closure.start(np.full((20, 3), 1 / 3))
    closure.rate(closure.close(z, 1.0))
    closure.violated(z, 1.0, 2, 0.0)
    assert not jax.config.jax_enable_x64
    assert jnp.ones(2).dtype == np.float32
    with precise():
        assert z.dtype == np.float64


def test_centring_moves_rows_whose_sums_disagree_and_no_others(mesh):
    """One sum is off: its record and those around it move, all others stay to the bit."""
    domain = random_domain("euclidean", 3000)
    epsilon = 1.0 / float(np.median(domain.neighbours(1)[1]))
    closure = JaxClosure(domain, mesh, OUTPUTS)
    z = closure.start(np.random.default_rng(0).dirichlet(np.full(OUTPUTS, 3.0), 3000))
    rounds = closure.rounds(z, epsilon)
    for _ in range(3):
        z, sums = next(rounds)
    odd = np.ones(np.asarray(sums).shape)
    odd.ravel()[closure._slots[1700]] = 1.5
    moved, after = next(closure.centred_rounds(z, epsilon, np.inf, odd))
    logs, (near, distance) = np.log(odd.ravel()[closure._slots]), closure.near
    worst = (np.abs(logs[:, None] - logs[near]) / distance).max(axis=1)
    around = closure._around(worst > AGREED * epsilon)
    assert around[1700] and around.sum() < 2000
    same = (closure.host(moved) == closure.host(z)).all(axis=1)[closure.order]
    assert same[~around].all() and not same[around].all()
    assert (np.asarray(after).ravel()[closure._slots][~around] == 1).all()
