"""The mesh over an area: what it covers, where points lie, and what it refuses."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest

import panda_mdp as pm
from panda_mdp.errors import DomainError
from panda_mdp.space.mesh import SLANT, UNITS, convex_hull, project, unproject
from panda_mdp.space.metrics import haversine_km

ROME = (41.88, 12.45, 41.92, 12.51)
SQUARE = [(41.0, 12.0), (41.0, 12.4), (41.3, 12.4), (41.3, 12.0)]
HOLE = [(41.1, 12.1), (41.1, 12.3), (41.2, 12.3), (41.2, 12.1)]


def points(count, box=ROME, seed=0):
    south, west, north, east = box
    rng = np.random.default_rng(seed)
    return rng.uniform(south, north, count), rng.uniform(west, east, count)


def test_weights_are_whole_and_give_the_point_back():
    mesh = pm.Domain.from_area(ROME, spacing=0.3).mesh
    lat, lon = points(5_000)
    located = mesh.locate(lat, lon)
    assert located.inside.all()
    assert (located.weights >= 0).all()
    assert (located.weights.sum(axis=1) == UNITS).all()
    plane, _ = project(lat, lon, mesh.middle)
    weights = located.weights / UNITS
    again = (mesh.plane[located.vertices] * weights[..., None]).sum(axis=1)
    assert np.hypot(*(again - plane).T).max() <= mesh.resolution_km


def test_a_vertex_is_itself_and_a_side_belongs_to_both_triangles():
    domain = pm.Domain.from_area(ROME, spacing=0.3)
    mesh = domain.mesh
    inner = np.flatnonzero(mesh.interior)
    located = mesh.locate(domain.lat[inner], domain.lon[inner])
    heaviest = np.take_along_axis(located.vertices, located.weights.argmax(1)[:, None], 1)[:, 0]
    assert (heaviest == inner).all()
    assert located.weights.max(axis=1).min() >= UNITS - 4
    ends = mesh.plane[inner[:1]], mesh.plane[mesh.neighbours[inner[:1], 0]]
    lat, lon = unproject((ends[0] + ends[1]) / 2, mesh.middle)
    halves = mesh.locate(lat, lon).weights[0]
    assert np.sort(halves)[0] <= 2
    assert abs(int(np.sort(halves)[1]) - UNITS // 2) <= 2


def test_great_circles_are_straight_and_stretch_is_what_it_says():
    mesh = pm.Domain.from_area((40.0, 10.0, 44.0, 16.0), spacing=20.0).mesh
    lat, lon = points(400, (40.0, 10.0, 44.0, 16.0))
    plane, _ = project(lat, lon, mesh.middle)
    flat = np.hypot(*(plane[1:] - plane[:-1]).T)
    arc = haversine_km(lat[1:], lon[1:], lat[:-1], lon[:-1])
    assert (flat >= arc * (1 - 1e-12)).all()
    assert (flat <= arc * mesh.stretch.max()).all()
    assert mesh.stretch.max() > 1.001
    half_lat, half_lon = unproject((plane[1:] + plane[:-1]) / 2, mesh.middle)
    legs = haversine_km(half_lat, half_lon, lat[1:], lon[1:])
    legs += haversine_km(half_lat, half_lon, lat[:-1], lon[:-1])
    assert np.allclose(legs, arc, rtol=1e-9), "the way through the middle is the shortest"


def test_what_lies_outside_the_area_is_outside():
    """Beside it, where triangles of the rim still lie, and on the other side of the earth."""
    mesh = pm.Domain.from_area(ROME, spacing=0.3).mesh
    corners = mesh.area @ SLANT * mesh.spacing
    middles = (corners + np.roll(corners, -1, axis=0)) / 2
    along = np.roll(corners, -1, axis=0) - corners
    outward = np.stack([along[:, 1], -along[:, 0]], axis=1) / np.hypot(*along.T)[:, None]
    for km, inside in ((-1e-3, True), (1e-3, False), (0.1, False), (0.25, False)):
        lat, lon = unproject(middles + km * outward, mesh.middle)
        assert (mesh.locate(lat, lon).inside == inside).all()
    lat, lon = points(50)
    assert not mesh.locate(-lat, lon - 180).inside.any()


def test_stretch_and_interior_are_as_defined():
    mesh = pm.Domain.from_area((40.0, 10.0, 42.0, 13.0), spacing=20.0).mesh
    far = np.hypot(*mesh.plane.T) / 6371.0088
    assert mesh.stretch == pytest.approx(1 + (far[mesh.triangles] ** 2).max(axis=1), rel=1e-14)
    assert (mesh.stretch >= 1 + (far[mesh.triangles] ** 2).max(axis=1)).all()
    inner = [all(k >= 0 and mesh.covered[k] for k in around) for around in mesh.neighbours.tolist()]
    assert mesh.interior.tolist() == inner
    assert (mesh.neighbours >= 0).all(axis=1).sum() > sum(inner) > 0


def test_a_mesh_has_each_vertex_once_and_stays_near_its_middle():
    mesh = pm.Domain.from_area(ROME, spacing=0.3).mesh
    with pytest.raises(DomainError, match="three or more different vertices"):
        replace(
            mesh,
            vertices=np.concatenate([mesh.vertices, mesh.vertices[:1]]),
            inside=np.append(mesh.inside, 0),
        )
    with pytest.raises(DomainError, match="split the area"):
        replace(mesh, spacing=200.0)


def test_the_hull_is_covered_and_people_are_where_the_area_is():
    full = pm.Domain.from_area(SQUARE, spacing=1.5)
    hollow = pm.Domain.from_area([SQUARE, HOLE], spacing=1.5)
    assert hollow.size == full.size, "the hole is covered: shortest ways lead through it"
    assert hollow.mesh.inside.sum() < full.mesh.inside.sum()
    assert hollow.mesh.locate(np.array([41.15]), np.array([12.2])).inside.all()
    assert not hollow.mesh.locate(np.array([41.4]), np.array([12.2])).inside.any()
    outputs = np.flatnonzero(hollow.mesh.inside)[:3]
    problem = pm.Problem(hollow, outputs, pm.distance_loss(hollow, outputs), 0.1)
    assert np.array_equal(problem.prior > 0, hollow.mesh.inside == 1)


def test_a_ring_may_end_where_it_began():
    again = pm.Domain.from_area([*SQUARE, SQUARE[0]], spacing=3.0)
    assert again.fingerprint == pm.Domain.from_area(SQUARE, spacing=3.0).fingerprint


@pytest.mark.parametrize("box", [(-0.1, 179.9, 0.1, -179.9), (89.0, 0.0, 90.0, 90.0)])
def test_date_line_and_pole(box):
    mesh = pm.Domain.from_area(box, spacing=2.0 if box[0] < 0 else 10.0).mesh
    middle = (np.array([(box[0] + box[2]) / 2]), np.array([180.0 if box[0] < 0 else 45.0]))
    assert mesh.locate(*middle).inside.all()


def test_spacing_follows_epsilon():
    assert pm.Domain.from_area(ROME, epsilon=0.5).mesh.spacing == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("area", "spacing", "says"),
    [
        ((41.0, 12.0, 41.0, 13.0), 1.0, "empty"),
        ([(41, 12), (41, 12), (41, 13)], 1.0, "three different corners"),
        ([(41, 12), (41.1, 12.1), (41.2, 12.2)], 1.0, "too thin"),
        ((41.0, 12.0, 41.001, 12.001), 1.0, "too thin or too small"),
        ((0.0, 0.0, 40.0, 40.0), 1.0, "split the area"),
        (SQUARE, 0.001, "spacing="),
        (SQUARE, -1.0, "spacing is -1.0"),
        (SQUARE, None, "give the mesh's spacing"),
        ([], 1.0, "0 parts"),
        ("Rome", 1.0, "holds no numbers"),
        ((91.0, 12.0, 92.0, 13.0), 1.0, "latitude"),
    ],
)
def test_what_is_no_area_is_refused(area, spacing, says):
    with pytest.raises(DomainError, match=says):
        pm.Domain.from_area(area, spacing=spacing)


def test_a_mesh_that_does_not_cover_its_area_is_refused():
    domain = pm.Domain.from_area(ROME, spacing=0.5)
    mesh = domain.mesh
    for index in (0, len(mesh.vertices) // 2):
        left = np.arange(len(mesh.vertices)) != index
        with pytest.raises(DomainError, match=r"cover|lacks a neighbour"):
            replace(mesh, vertices=mesh.vertices[left], inside=mesh.inside[left])
    with pytest.raises(DomainError, match="convex"):
        replace(mesh, area=mesh.area[::-1])
    with pytest.raises(DomainError, match="lacks a neighbour"):
        replace(mesh, inside=np.ones_like(mesh.inside))
    with pytest.raises(DomainError, match="not the vertices"):
        replace(domain, mesh=replace(mesh, spacing=0.51))


def test_pickles_and_parts():
    domain = pm.Domain.from_area(ROME, spacing=0.5)
    again = pickle.loads(pickle.dumps(domain))
    assert np.array_equal(again.mesh.vertices, domain.mesh.vertices)
    assert domain.take([0, 1, 2]).mesh is None


def test_hull_of_random_points_holds_them():
    cloud = np.random.default_rng(1).normal(size=(200, 2))
    hull = convex_hull(cloud)
    along = np.roll(hull, -1, axis=0) - hull
    offset = cloud[:, None] - hull
    assert (along[:, 0] * offset[..., 1] - along[:, 1] * offset[..., 0] >= -1e-12).all()
