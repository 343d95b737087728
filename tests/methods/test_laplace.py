"""Planar Laplace: exact cells, exact masses, honest epsilon."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import k1

from panda_mdp import Domain, Problem, planar_laplace
from panda_mdp.errors import MethodError
from panda_mdp.methods.planar_laplace import laplace_matrix, projection_stretch, voronoi


def beyond(height: float, scale: float) -> float:
    """Mass of planar Laplace noise beyond a line at a distance: the marginal is a Bessel law."""
    return float(quad(lambda u: u / np.pi * k1(u), scale * height, np.inf, epsabs=1e-13)[0])


def by_rays(
    point: np.ndarray, outputs: np.ndarray, scale: float, rays: int = 4001, steps: int = 4000
) -> np.ndarray:
    """Cell masses by brute force: many rays, equal quantiles of the radius along each."""
    from scipy.special import gammaincinv

    radius = gammaincinv(2.0, (np.arange(steps) + 0.5) / steps) / scale
    counts = np.zeros(len(outputs))
    for angle in (np.arange(rays) + 0.5) * (2 * np.pi / rays):
        along = point + radius[:, None] * np.array([np.cos(angle), np.sin(angle)])
        near = ((along[:, None] - outputs) ** 2).sum(axis=2).argmin(axis=1)
        counts += np.bincount(near, minlength=len(outputs))
    return counts / (rays * steps)


@pytest.mark.parametrize("height", [1e-9, 1e-3, 0.4, 3.0, 40.0])
@pytest.mark.parametrize("scale", [0.1, 1.0, 7.0])
def test_half_planes_match_the_bessel_integral(height: float, scale: float) -> None:
    outputs = np.array([[0.0, -2.0], [0.0, 2.0]])
    matrix, error = laplace_matrix(np.array([[5.0, height], [-1.0, -height]]), outputs, scale)
    assert error < 1e-11
    assert matrix[0, 0] == pytest.approx(beyond(height, scale), abs=1e-11)
    assert matrix[1, 0] == pytest.approx(1 - beyond(height, scale), abs=1e-11)


def test_general_cells_match_brute_force() -> None:
    generator = np.random.default_rng(1)
    outputs, points = generator.normal(size=(8, 2)), generator.normal(size=(2, 2))
    matrix, _ = laplace_matrix(points, outputs, 1.7)
    for x in range(2):
        rays = by_rays(points[x], outputs, 1.7, rays=501, steps=2000)
        np.testing.assert_allclose(matrix[x], rays, atol=3e-4)


def test_symmetry_gives_exact_answers_on_edges_and_vertices() -> None:
    grid = np.stack(np.meshgrid([0.0, 1.0], [0.0, 1.0]), axis=-1).reshape(-1, 2)
    points = np.array([[0.5, 0.5], [0.5, 0.0], [0.5 + 1e-15, 0.5 - 1e-15], [0.5, 7.0]])
    matrix, _ = laplace_matrix(points, grid, 2.0)
    np.testing.assert_allclose(matrix[0], 0.25, atol=1e-14)
    np.testing.assert_allclose(matrix[2], 0.25, atol=1e-13)
    # On an edge the two sides are equal.
    for row in (1, 3):
        assert matrix[row, 0] == pytest.approx(matrix[row, 1], abs=1e-14)
        assert matrix[row, 2] == pytest.approx(matrix[row, 3], abs=1e-14)


def test_quadrature_agrees_with_a_finer_one() -> None:
    generator = np.random.default_rng(5)
    points, outputs = generator.normal(size=(40, 2)), generator.normal(size=(25, 2))
    matrix, error = laplace_matrix(points, outputs, 3.0)
    finer, _ = laplace_matrix(points, outputs, 3.0, quadrature=(40, 0.7))
    assert np.abs(matrix - finer).max() <= error


@pytest.mark.parametrize("shape", ["line", "slanted", "grid", "random", "ring"])
def test_cells_partition_the_plane(shape: str) -> None:
    generator = np.random.default_rng(2)
    turn = np.linspace(0, 2 * np.pi, 12, endpoint=False)
    sites = {
        "line": np.stack([generator.permutation(9).astype(float), np.zeros(9)], axis=1),
        "slanted": np.outer(generator.permutation(9).astype(float), [1.0, 2.0]) / 3,
        "grid": np.stack(np.meshgrid(np.arange(4.0), np.arange(3.0)), -1).reshape(-1, 2),
        "random": generator.normal(size=(30, 2)),
        "ring": np.stack([np.cos(turn), np.sin(turn)], axis=1),
    }[shape]
    points = generator.uniform(-3, 6, size=(200, 2))
    cells = voronoi(sites, 1e4)
    own = np.diag(cells.turns(sites))
    inside = 1 + np.rint(cells.turns(points) - own)
    nearest = ((points[:, None] - sites) ** 2).sum(axis=2).argmin(axis=1)
    assert np.array_equal(inside, np.eye(len(sites))[nearest])
    matrix, _ = laplace_matrix(points, sites, 1.0)
    assert matrix.min() > 0
    np.testing.assert_allclose(matrix.sum(axis=1), 1.0, atol=1e-13)


def test_stretch_bounds_every_pair() -> None:
    generator = np.random.default_rng(3)
    for centre in (0.0, 41.9, -60.0, 75.0):
        lat = centre + generator.uniform(-4, 4, 150)
        domain = Domain.from_points(lat, generator.uniform(10, 18, 150))
        plane = domain.plane
        assert plane is not None
        flat = np.sqrt(((plane[:, None] - plane) ** 2).sum(axis=2))
        apart = domain.distances()
        ratio = flat[apart > 0] / apart[apart > 0]
        assert ratio.max() <= projection_stretch(domain)
        assert projection_stretch(domain) < 1.8


def test_along_a_parallel_the_plane_is_longer_than_the_great_circle() -> None:
    """Which leaves the parallel towards the pole: by more than the latitudes of its ends tell."""
    domain = Domain.from_points([60.0, 60.0], [10.0, 19.0])
    plane = domain.plane
    assert plane is not None
    ratio = np.linalg.norm(plane[0] - plane[1]) / domain.distances()[0, 1]
    assert 1.0005 < ratio <= projection_stretch(domain) < 1.01


def test_places_far_north_keep_the_guarantee() -> None:
    generator = np.random.default_rng(4)
    domain = Domain.from_points(
        70 + generator.uniform(-2, 2, 120), 20 + generator.uniform(-4, 4, 120)
    )
    outputs = np.arange(10)
    problem = Problem(domain, outputs, domain.distances(None, outputs), epsilon=0.05)
    mechanism = planar_laplace(problem)
    assert mechanism.audit.holds
    assert mechanism.details["stretch"] > 1.05


def test_records_metres_apart_keep_the_guarantee() -> None:
    generator = np.random.default_rng(6)
    lat = 41.9 + generator.normal(0, 0.02, 80)
    lon = 12.5 + generator.normal(0, 0.02, 80)
    lat[1], lon[1] = lat[0] + 1e-9, lon[0]
    domain = Domain.from_points(lat, lon)
    problem = Problem(domain, np.arange(2, 32), domain.distances(None, np.arange(2, 32)), 5.0)
    mechanism = planar_laplace(problem)
    assert mechanism.audit.holds
    assert mechanism.audit.epsilon > 4.0


def test_one_output_is_always_reported() -> None:
    domain = Domain.from_vectors([[0.0, 0.0], [1.0, 1.0]])
    assert planar_laplace(Problem(domain, [1], [[1], [0]], 1.0)).matrix.tolist() == [[1.0], [1.0]]


def test_tiny_epsilon_makes_rows_equal() -> None:
    generator = np.random.default_rng(7)
    domain = Domain.from_vectors(generator.normal(size=(30, 2)))
    problem = Problem(domain, np.arange(8), domain.distances(None, np.arange(8)), 1e-9)
    matrix = planar_laplace(problem).matrix
    assert np.abs(matrix - matrix[0]).max() < 1e-8


@pytest.mark.parametrize(
    "domain",
    [
        Domain.from_vectors(np.eye(3)),
        Domain.from_matrix([[0.0, 1.0], [1.0, 0.0]]),
        Domain.from_points([0.0, 40.0], [0.0, 40.0]),
    ],
    ids=["three dimensions", "matrix", "continents"],
)
def test_domains_without_a_plane_are_refused(domain: Domain) -> None:
    problem = Problem(domain, [0], np.ones((domain.size, 1)), 1.0)
    with pytest.raises(MethodError, match="needs records in a plane"):
        planar_laplace(problem)
