"""The audit of every point: never exceeded between any two, attained where it says."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import panda_mdp as pm
from panda_mdp.privacy.continuous import audit_mesh, triangle_rates
from panda_mdp.privacy.quantise import TOTAL, quantise
from panda_mdp.space.mesh import unproject
from panda_mdp.space.metrics import haversine_km


@pytest.fixture(scope="module")
def mesh():
    return pm.Domain.from_area((41.89, 12.48, 41.91, 12.505), spacing=0.4).mesh


@pytest.fixture(scope="module")
def weights(mesh):
    rng = np.random.default_rng(3)
    table = np.exp(-np.hypot(*(mesh.plane[:, None] - mesh.plane[::9]).transpose(2, 0, 1)))
    table *= rng.uniform(0.9, 1.1, table.shape)
    return quantise(table / table.sum(axis=1, keepdims=True))


def grid(count):
    """Barycentric weights of a grid in a triangle, its sides and corners included."""
    a, b = np.meshgrid(np.arange(count + 1), np.arange(count + 1))
    inside = a + b <= count
    return np.stack([count - (a + b)[inside], a[inside], b[inside]], axis=1) / count


def test_no_two_points_of_a_grid_in_any_triangle_exceed_it(mesh, weights):
    verdict = audit_mesh(mesh, np.arange(weights.shape[1]), weights, 10.0)
    bary = grid(6)
    worst = 0.0
    for corners in mesh.triangles:
        z = bary @ (weights[corners] / TOTAL)
        lat, lon = unproject(bary @ mesh.plane[corners], mesh.middle)
        apart = haversine_km(lat[:, None], lon[:, None], lat, lon)
        np.fill_diagonal(apart, np.inf)
        for y in range(z.shape[1]):
            rate = np.abs(np.subtract.outer(np.log(z[:, y]), np.log(z[:, y]))) / apart
            worst = max(worst, rate.max())
    assert 0.8 * verdict.epsilon < worst <= verdict.epsilon


def test_points_of_different_triangles_do_not_exceed_it(mesh, weights):
    verdict = audit_mesh(mesh, np.arange(weights.shape[1]), weights, 10.0)
    rng = np.random.default_rng(4)
    lat, lon = rng.uniform(41.89, 41.91, 600), rng.uniform(12.48, 12.505, 600)
    located = mesh.locate(lat, lon)
    z = np.einsum("nk,nkm->nm", located.weights / 2**30, weights[located.vertices] / TOTAL)
    apart = haversine_km(lat[:, None], lon[:, None], lat, lon) + 2 * mesh.resolution_km
    logs = np.log(z)
    for y in range(z.shape[1]):
        assert (np.abs(np.subtract.outer(logs[:, y], logs[:, y])) <= verdict.epsilon * apart).all()


def test_the_worst_point_attains_it(mesh, weights):
    """A short step from the least corner along the gradient has the audited rate."""
    verdict = audit_mesh(mesh, np.arange(weights.shape[1]), weights, 10.0)
    corners, y = list(verdict.worst[:3]), verdict.worst[3]
    values = weights[corners, y] / TOTAL
    assert values[0] == values.min()
    sides = mesh.plane[corners[1:]] - mesh.plane[corners[0]]
    gradient = np.linalg.solve(sides, values[1:] - values[0])
    step = 1e-5 * mesh.spacing * gradient / np.hypot(*gradient)
    # The step must lie in the triangle: start a little way in from the corner.
    start = mesh.plane[corners[0]] + 1e-4 * sides.sum(axis=0)
    ends = np.array([start, start + step])
    z = values[0] + (ends - mesh.plane[corners[0]]) @ gradient
    lat, lon = unproject(ends, mesh.middle)
    rate = abs(np.log(z[1] / z[0])) / haversine_km(lat[:1], lon[:1], lat[1:], lon[1:])[0]
    assert rate == pytest.approx(verdict.epsilon, rel=1e-3)


def test_rates_are_those_of_rational_arithmetic(mesh, weights):
    """Squares of rates as fractions: the float is an upper bound of each, by a few roundings."""
    corners = mesh.triangles[:40]
    verdict = triangle_rates(weights[corners], mesh.spacing)
    side = Fraction(mesh.spacing)
    for t, y in np.ndindex(verdict.shape):
        a, b, c = (Fraction(int(v)) for v in weights[corners[t], y])
        exact = Fraction(2, 3) * ((a - b) ** 2 + (b - c) ** 2 + (c - a) ** 2)
        exact /= (side * min(a, b, c)) ** 2
        above = Fraction(float(verdict[t, y] * (1 + 32 * 2.0**-53))) ** 2
        assert exact <= above <= exact * (1 + Fraction(1, 10**13))


def test_the_rate_is_never_below_the_exact_one(mesh, weights):
    """Squares of rates in fractions: what float64 rounds is on the safe side."""
    for k in range(0, len(mesh.triangles), 7):
        only = np.full_like(weights, TOTAL // weights.shape[1])
        only[mesh.triangles[k]] = weights[mesh.triangles[k]]
        found = Fraction(audit_mesh(mesh, np.arange(weights.shape[1]), only, 10.0).epsilon)
        exact = Fraction(0)
        for t, corners in enumerate(mesh.triangles):
            if not np.isin(corners, mesh.triangles[k]).any():
                continue
            scale = Fraction(mesh.stretch[t]) / Fraction(mesh.spacing)
            for a, b, c in only[corners].T.tolist():
                steps = (a - b) ** 2 + (b - c) ** 2 + (c - a) ** 2
                exact = max(exact, Fraction(2 * steps, 3 * min(a, b, c) ** 2) * scale**2)
        assert exact <= found**2 <= exact * (1 + Fraction(1, 10**14))


def test_the_last_of_many_triangles_is_looked_at():
    """More triangles times outputs than are looked at together. Of changes by 2, 1 and -2 at the
    corners of the last one its neighbours see two at the most, and a smaller gradient."""
    mesh = pm.Domain.from_area((41.88, 12.46, 41.92, 12.51), spacing=0.14).mesh
    outputs = (1 << 21) // len(mesh.triangles) + 50
    weights = np.full((len(mesh.vertices), outputs), TOTAL // outputs)
    assert len(mesh.triangles) * outputs > 1 << 21
    last = mesh.triangles[-1]
    weights[last, -1] += np.array([2, 1, -2]) << 40
    verdict = audit_mesh(mesh, np.arange(outputs), weights, 1e-3)
    (rates,) = triangle_rates(weights[last[None]], mesh.spacing)
    assert verdict.epsilon == pytest.approx(rates.max() * mesh.stretch[-1], rel=1e-12)
    assert verdict.worst == (last[2], last[1], last[0], outputs - 1)


def test_a_planted_corner_is_caught(mesh, weights):
    outputs = np.arange(weights.shape[1])
    before = audit_mesh(mesh, outputs, weights, 10.0)
    changed = weights.copy()
    vertex = int(np.flatnonzero(mesh.interior)[0])
    taken = changed[vertex, 2] // 2
    changed[vertex, 2] -= taken
    changed[vertex, 3] += taken
    after = audit_mesh(mesh, outputs, changed, 10.0)
    assert after.epsilon > before.epsilon
    assert after.worst[0] == vertex
    assert after.worst[3] == 2
    assert not audit_mesh(mesh, outputs, changed, after.epsilon * (1 - 1e-9)).holds
    assert audit_mesh(mesh, outputs, changed, after.epsilon).holds


def test_zeros(mesh, weights):
    outputs = np.arange(weights.shape[1])
    nowhere = weights.copy()
    nowhere[:, 1] += nowhere[:, 0]
    nowhere[:, 0] = 0
    assert np.isfinite(audit_mesh(mesh, outputs, nowhere, 10.0).epsilon)
    once = weights.copy()
    once[5, 1] += once[5, 0]
    once[5, 0] = 0
    verdict = audit_mesh(mesh, outputs, once, 10.0)
    assert verdict.epsilon == np.inf
    assert "output 0" in verdict.shortfall
    assert "DOES NOT HOLD" in repr(verdict)
