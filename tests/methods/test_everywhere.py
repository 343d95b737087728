"""Tables for every point: private there, better than solving again at a smaller epsilon."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import panda_mdp as pm
from panda_mdp.compute.numba.mesh import cone, project
from panda_mdp.errors import MethodError, PrivacyError, SnapError
from panda_mdp.methods.mesh_repair import MeshRepair, faint
from panda_mdp.privacy.continuous import triangle_rates
from panda_mdp.privacy.quantise import TOTAL, SeededBits
from panda_mdp.space.metrics import haversine_km
from panda_mdp.table.claims import lowered, spread
from panda_mdp.table.everywhere import draw_at
from panda_mdp.table.mechanism import normalise

BOX = (41.89, 12.48, 41.91, 12.505)


def ask(spacing=0.4, epsilon=0.5, box=BOX):
    domain = pm.Domain.from_area(box, spacing=spacing)
    outputs = np.flatnonzero(domain.mesh.inside)[::3]
    return pm.Problem(domain, outputs, pm.distance_loss(domain, outputs), epsilon)


@pytest.fixture(scope="module")
def mechanism():
    return pm.optimal_everywhere(ask())


def places(count, seed=0):
    rng = np.random.default_rng(seed)
    return rng.uniform(BOX[0], BOX[2], count), rng.uniform(BOX[1], BOX[3], count)


def test_both_audits_hold_and_the_gap_is_certified(mechanism):
    assert isinstance(mechanism, pm.EverywhereMechanism)
    assert mechanism.audit.holds
    assert mechanism.everywhere.holds
    assert 0.9 * mechanism.epsilon < mechanism.everywhere.epsilon <= mechanism.epsilon
    assert 0 < mechanism.lower_bound <= mechanism.loss
    assert mechanism.gap < 0.08


def test_rows_at_points_keep_epsilon(mechanism):
    lat, lon = places(120)
    rows = np.array([mechanism.row_at(a, b) for a, b in zip(lat, lon, strict=True)])
    reported = mechanism.weights.any(axis=0)
    assert not rows[:, ~reported].any()
    logs = np.log(rows[:, reported])
    apart = haversine_km(lat[:, None], lon[:, None], lat, lon)
    apart += 2 * mechanism.everywhere.resolution_km
    spread_ = np.abs(logs[:, None] - logs).max(axis=2)
    assert (spread_ <= mechanism.epsilon * apart * (1 + 1e-9)).all()


def test_draws_at_a_point_follow_its_row(mechanism):
    lat, lon = 41.9012, 12.4931
    row = mechanism.row_at(lat, lon)
    count = 60_000
    drawn = draw_at(mechanism, SeededBits(5), np.full(count, lat), np.full(count, lon))
    columns = np.searchsorted(mechanism.problem.outputs, drawn)
    seen = np.bincount(columns, minlength=len(row)) / count
    assert np.abs(seen - row).max() < 5 * np.sqrt(row.max() / count)
    assert mechanism.sample_at(lat, lon) in mechanism.problem.outputs
    assert mechanism.sample_at([lat, lat], [lon, lon]).shape == (2,)


def test_a_place_outside_is_refused_and_not_named(mechanism):
    for place in ((45.4642, 9.19), (12.4931, 41.9012), (np.nan, 12.5), ("x", 1)):
        with pytest.raises(SnapError) as caught:
            mechanism.sample_at(*place)
        assert "45.4642" not in str(caught.value)
        assert caught.value.__traceback__.tb_next.tb_next is None, "no frame saw the place"


def test_the_loss_is_the_mean_over_points(mechanism):
    """The linear form equals a fine quadrature of loss over points, to quadrature's precision."""
    problem = ask()
    mesh = problem.domain.mesh
    count = 30
    a, b = np.meshgrid(np.arange(count), np.arange(count))
    lower = a + b < count
    upper = a + b < count - 1
    bary = np.concatenate(
        [
            np.stack([a[lower] + 1 / 3, b[lower] + 1 / 3], axis=1),
            np.stack([a[upper] + 2 / 3, b[upper] + 2 / 3], axis=1),
        ]
    )
    bary = np.column_stack([bary, count - bary.sum(axis=1)]) / count
    total = 0.0
    for corners in mesh.triangles:
        density = bary @ problem.prior[corners] / 2
        cost = bary @ problem.loss[corners]
        chance = bary @ mechanism.matrix[corners]
        total += (density[:, None] * cost * chance).sum() / len(bary)
    assert mechanism.loss == pytest.approx(total, rel=1e-3)
    assert spread(problem).prior.sum() == pytest.approx(1.0)


def test_the_price_is_below_solving_again():
    """What the plain optimum misses is met at less than the price of a smaller epsilon."""
    problem = spread(ask(spacing=0.2, epsilon=1.0))
    mesh = problem.domain.mesh
    nats = problem.epsilon * mesh.spacing
    plain = pm.optimal(problem, backend="cpu")
    rates = triangle_rates(plain.matrix[mesh.triangles], mesh.spacing)
    assert rates.max() > 1.1 * problem.epsilon, "the vertices' optimum is not private between them"
    smaller = problem.epsilon * np.log1p(np.sqrt(0.75) * nats) / nats * (1 - 1e-6)
    again = pm.optimal(problem.with_epsilon(smaller), backend="cpu")
    here = pm.optimal_everywhere(ask(spacing=0.2, epsilon=1.0))
    assert here.everywhere.holds
    assert plain.lower_bound * (1 - 0.01) < here.loss < again.loss


def test_the_bound_lies_below_the_largest_losses_and_below_another_table(mechanism):
    """Necessary only: that it lies below every mechanism rests on the proof in lower_bound.py."""
    problem = ask()
    assert (lowered(problem, problem.domain.mesh) <= problem.loss.max()).all()
    exponential = pm.exponential(spread(problem))
    assert mechanism.lower_bound < exponential.loss


def test_lowered_losses_are_the_integrals_of_the_proof():
    """Over a triangle of area 1 the integral of products of its hats is 2 a! b! c! / (a+b+c+2)!."""

    def integral(*powers):
        top = 2 * math.prod(map(math.factorial, powers))
        return Fraction(top, math.factorial(sum(powers) + 2))

    hat = 6 * integral(1)
    own, other = 6 * integral(2) / hat, 2 * integral(1, 1) / hat
    own_off = 6 * (integral(2) - integral(3)) / hat
    other_off = 2 * (integral(1, 1) - integral(2, 1)) / hat
    problem = ask()
    mesh, loss = problem.domain.mesh, problem.loss
    found = lowered(problem, mesh)
    nats = problem.epsilon * mesh.spacing
    inside = np.flatnonzero((mesh.neighbours >= 0).all(axis=1))
    assert not found[np.delete(np.arange(problem.size), inside)].any()
    for v in inside:
        around = loss[mesh.neighbours[v]]
        mean = float(own) * loss[v] + float(other) * around.sum(axis=0)
        off = float(own_off) * np.abs(loss[v] - mean)
        off = off + float(other_off) * np.abs(around - mean).sum(axis=0)
        beta = math.expm1(nats) * math.exp(nats / 2) * off
        assert found[v] == pytest.approx(np.maximum(mean - beta, 0.0), rel=1e-11)
        assert (found[v] <= np.maximum(mean - beta, 0.0)).all()


@pytest.mark.parametrize("slope", [0.05, 0.15, 0.5])
def test_projection_on_the_cone_is_the_nearest_point(slope):
    """v - p is a normal of the cone at p: at right angles to p, and to no ray of it acute."""
    shape = cone(slope)
    rng = np.random.default_rng(0)
    angle = np.linspace(0, 2 * np.pi, 721)
    flat = np.array([[1, -1, 0], [1, 1, -2]]) / np.sqrt([[2], [6]])
    round_ = np.cos(angle)[:, None] * flat[0] + np.sin(angle)[:, None] * flat[1]
    # The cone's rim: 1 + t direction with t = slope (1 + t least), least the direction's least.
    rim = 1 + round_ * (slope / (1 - slope * round_.min(axis=1)))[:, None]
    near_one = 1 + 2 * slope * rng.normal(size=(60, 3))
    for v in np.sort(np.concatenate([rng.normal(size=(60, 3)), near_one])).astype(np.float32):
        near = np.array(project(*v, shape), dtype=np.float64)
        assert np.linalg.norm(near - near.mean()) <= slope * near.min() + 1e-6
        normal = v - near
        size = np.linalg.norm(v)
        assert abs(normal @ near) <= 3e-6 * size**2
        # The rim has 721 rays only, and "nearest up to slope^4" is what is claimed.
        assert (rim @ normal).max() <= (3e-6 + 0.1 * slope**4) * size


def test_a_projection_lies_in_the_cone_and_reaches_its_rim():
    """At any slope that is allowed, and no further inside than rounding."""
    rng = np.random.default_rng(1)
    for slope in (0.01, 0.1, 0.3, 0.7):
        shape = cone(slope)
        for v in np.sort(1 + 3 * slope * rng.random((40, 3))).astype(np.float32):
            near = np.array(project(*v, shape), dtype=np.float64)
            rate = np.linalg.norm(near - near.mean()) / (slope * near.min())
            assert rate <= 1 + 2e-6 / slope
            if np.abs(near - v).max() > 1e-5:
                assert rate >= 1 - 2e-6 / slope


def test_a_repair_moves_little(mechanism):
    """A private table with noise of 1 %, so that triangles are open by a fifth."""
    problem = mechanism.problem
    repair = MeshRepair(problem, mechanism.mesh)
    for seed in range(3):
        noise = np.random.default_rng(seed).normal(size=mechanism.matrix.shape)
        noisy = normalise(mechanism.matrix * np.exp(0.01 * noise))
        given = noisy.copy()
        assert repair.excess(noisy).max() > 1.15
        moved = repair.run(noisy)
        assert (noisy == given).all()
        assert repair.fits(moved)
        assert problem.expected_loss(moved) < 1.001 * problem.expected_loss(mechanism.matrix)


def test_what_is_far_from_fitting_is_mixed_until_it_fits(mechanism):
    problem = mechanism.problem
    repair = MeshRepair(problem, mechanism.mesh)
    rough = np.random.default_rng(0).dirichlet(np.full(problem.outputs_count, 0.05), problem.size)
    assert repair.fits(repair.run(rough))


def test_outputs_that_are_given_up_hold_next_to_nothing():
    rows = np.array([[0.5, 2e-3, 0.4977, 3e-4, 0], [0.7, 1e-4, 0.2974, 2.5e-3, 0]])
    assert faint(rows).tolist() == [False, True, False, True, True]
    rows[0, 3] = 1.1e-3
    assert faint(rows).tolist() == [False, True, False, False, True]
    assert faint(np.full((3, 4_000), 1 / 4_000)).sum() == 11


def test_a_table_that_is_private_at_vertices_alone_is_refused():
    problem = spread(ask())
    plain = pm.optimal(problem, backend="cpu")
    with pytest.raises(PrivacyError, match="at every point"):
        pm.EverywhereMechanism.of(plain)
    with pytest.raises(PrivacyError, match="at every point"):
        pm.EverywhereMechanism(problem, plain.weights, "given")


def test_a_changed_weight_is_refused(mechanism):
    weights = mechanism.weights.copy()
    vertex = int(np.flatnonzero(mechanism.mesh.interior)[0])
    first, second = np.argsort(weights[vertex])[-2:]
    moved = weights[vertex, second] // 4
    weights[vertex, second] -= moved
    weights[vertex, first] += moved
    assert weights[vertex].sum() == TOTAL
    with pytest.raises(PrivacyError):
        replace(mechanism, weights=weights, backend=None)


def test_what_cannot_be_asked():
    problem = ask()
    with pytest.raises(MethodError, match="spacing="):
        pm.optimal_everywhere(problem.with_epsilon(4.0))
    with pytest.raises(MethodError, match="highs"):
        pm.optimal_everywhere(problem, backend="highs")
    plain = pm.Domain.from_points([41.9, 41.91, 41.92], [12.5, 12.5, 12.5])
    with pytest.raises(MethodError, match="from_area"):
        pm.optimal_everywhere(pm.Problem(plain, [0], pm.distance_loss(plain, [0]), 1.0))
    mesh = problem.domain.mesh
    # Outside the area, and inside with neighbours that are not.
    for vertex in (0, int(np.flatnonzero(mesh.covered & ~mesh.interior)[0])):
        rim = np.zeros(problem.size)
        rim[vertex] = 1.0
        with pytest.raises(MethodError, match="rim"):
            pm.optimal_everywhere(replace(problem, prior=rim))


def test_vertices_beyond_a_slanted_rim_are_private_too():
    """Between two of them the shortest way may leave the mesh: triangles alone do not suffice."""
    park = [(41.908, 12.476), (41.908, 12.497), (41.921, 12.501), (41.921, 12.472)]
    lake = [(41.912, 12.484), (41.912, 12.490), (41.916, 12.491), (41.916, 12.483)]
    domain = pm.Domain.from_area([park, lake], spacing=0.15)
    outputs = np.flatnonzero(domain.mesh.inside)[::6]
    problem = pm.Problem(domain, outputs, pm.distance_loss(domain, outputs), 2.0)
    answer = pm.optimal_everywhere(problem)
    assert answer.audit.holds
    assert answer.everywhere.holds
    assert answer.gap < 0.15


def test_a_time_limit_still_gives_a_private_table():
    hurried = pm.optimal_everywhere(ask(), time_limit=0.01)
    assert hurried.everywhere.holds


def test_pickles_by_being_audited_again(mechanism):
    again = pickle.loads(pickle.dumps(mechanism))
    assert again.everywhere.epsilon == mechanism.everywhere.epsilon
