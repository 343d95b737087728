"""A made-up city with the statistics of a real one, for tests and demonstrations.

Districts, each a jittered lattice with its own direction and spacing, are sown by a clustered
density (a centre, satellites, lognormal noise). Streets are the Gabriel graph of all lattice points
(two points are joined when the circle on their segment is empty: planar, connected, short detours),
thinned to junctions of mostly three streets, with dead ends branching off into the blocks.
"""

from __future__ import annotations

import numpy as np
import scipy

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray, adjacency
from panda_mdp.city.city import City
from panda_mdp.errors import CityError
from panda_mdp.space.metrics import EARTH_RADIUS_KM, haversine_km

LATITUDE = 45.0
LONGITUDE = 10.0
BASE_SHARE = 0.66
"""Share of nodes that are junctions of the lattice; the rest are dead ends and their branchings."""
CROSSINGS = 0.06
"""Share of the lattice junctions that keep four streets."""
DISTRICT_POINTS = 30
JITTER = 0.13
NODES_PER_KM2 = 230.0
MIN_NODES = 20
TRIES = 12
"""Lattices that are laid to meet the number of points from both sides; then too many will do."""


def synthetic_city(nodes: int = 5000, seed: int = 0) -> City:
    """A believable planar street network with exactly `nodes` junctions, connected.

    Clustered density, mostly three streets per junction, street lengths and detours as in a large
    European city (docs/cities.md has the figures side by side). The same seed gives the same city.

    >>> synthetic_city(500, seed=1).nodes
    500
    """
    if nodes < MIN_NODES:
        raise CityError(f"nodes is {nodes}; a synthetic city has at least {MIN_NODES}")
    rng = np.random.default_rng(seed)
    points = _lattice_points(max(MIN_NODES // 2, round(BASE_SHARE * nodes)), rng)
    streets, apex = _gabriel(points)
    kept = _thin(points, streets, rng)
    points, streets = _branch(points, streets[kept], apex[kept], nodes, rng)
    u, v = streets.T
    bend = 1 + np.abs(rng.normal(0, 0.03, len(u)))
    lat = LATITUDE + np.rad2deg(points[:, 1] / EARTH_RADIUS_KM)
    lon = LONGITUDE + np.rad2deg(points[:, 0] / (EARTH_RADIUS_KM * np.cos(np.deg2rad(LATITUDE))))
    length_m = 1000 * haversine_km(lat[u], lon[u], lat[v], lon[v]) * bend
    return City(lat, lon, u, v, length_m, name=f"synthetic city of {nodes:,} nodes")


def _lattice_points(count: int, rng: np.random.Generator) -> FloatArray:
    """`count` lattice points in km, districts of about equally many each."""
    radius = np.sqrt(count / BASE_SHARE / NODES_PER_KM2 / np.pi)
    seeds = _sow(max(4, count // DISTRICT_POINTS), radius, rng)
    tree = scipy.spatial.cKDTree(seeds)
    # Half the distance to the neighbours is the room that a district has.
    room = np.asarray(tree.query(seeds, k=min(5, len(seeds)))[0])[:, 1:].mean(axis=1)
    spacing = room / np.sqrt(DISTRICT_POINTS) * rng.lognormal(0, 0.25, len(seeds))
    turn = np.arctan2(seeds[:, 1], seeds[:, 0]) + rng.normal(0, 0.3, len(seeds))

    def lattices() -> FloatArray:
        """Jittered lattice points of every district, each district within its Voronoi cell."""
        parts = []
        for d, (side, angle) in enumerate(zip(spacing, turn, strict=True)):
            reach = np.ceil(room[d] / side)
            steps = np.arange(-reach, reach + 1)
            grid = np.stack(np.meshgrid(steps, steps), axis=-1).reshape(-1, 2) * side
            grid += rng.normal(0, JITTER * side, grid.shape)
            cosine = np.cos(angle)
            sine = np.sin(angle)
            placed = seeds[d] + grid @ np.array([[cosine, sine], [-sine, cosine]])
            parts.append(placed[tree.query(placed)[1] == d])
        return np.vstack(parts)

    points = lattices()
    tries = 1
    while len(points) < count or (len(points) > 1.05 * count and tries < TRIES):
        spacing *= np.sqrt(len(points) / (1.02 * count)) * (1.0 if tries < TRIES else 0.9)
        points = lattices()
        tries += 1
    # The few too many go at random, so that no district is hollowed out.
    return points[np.sort(rng.choice(len(points), size=count, replace=False))]


def _sow(count: int, radius: float, rng: np.random.Generator) -> FloatArray:
    """Seeds of districts: most around the centre and its satellites, some anywhere."""
    satellites = max(3, round(np.sqrt(count) / 2))
    hubs = np.vstack([[0.0, 0.0], rng.normal(0, 0.8 * radius, (satellites, 2))])
    weights = np.append(2.0, rng.lognormal(0, 0.7, satellites))
    sizes = radius * np.append(0.45, rng.uniform(0.1, 0.3, satellites))
    scattered = round(0.35 * count)
    owner = rng.choice(len(hubs), size=count - scattered, p=weights / weights.sum())
    around = hubs[owner] + rng.normal(size=(len(owner), 2)) * sizes[owner, None]
    angle = rng.uniform(0, 2 * np.pi, scattered)
    reach = 1.9 * radius * np.sqrt(rng.uniform(size=scattered))
    return np.vstack([around, np.column_stack([reach * np.cos(angle), reach * np.sin(angle)])])


def _gabriel(points: FloatArray) -> tuple[IntArray, IntArray]:
    """Edges u < v of the Gabriel graph, and for each the far corners of its two triangles.

    A Delaunay edge belongs to it when neither of the angles that face it is obtuse. An edge of the
    hull has one triangle only, and -1 for the other corner.
    """
    triangles = scipy.spatial.Delaunay(points).simplices.astype(np.int64)
    edges = np.sort(triangles[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2), axis=1)
    corner = triangles[:, [2, 0, 1]].ravel()
    arms = points[edges] - points[corner][:, None]
    facing = (arms[:, 0] * arms[:, 1]).sum(axis=1)
    code = edges[:, 0] * len(points) + edges[:, 1]
    first = np.unique(code, return_index=True)[1]
    last = len(code) - 1 - np.unique(code[::-1], return_index=True)[1]
    wide = np.minimum(facing[first], facing[last]) >= 0
    apex = np.stack([corner[first], np.where(first == last, -1, corner[last])], axis=1)
    return edges[first][wide], apex[wide]


def _thin(points: FloatArray, streets: IntArray, rng: np.random.Generator) -> BoolArray:
    """The streets that stay when most junctions shall have three; a spanning tree does."""
    size, (u, v) = len(points), streets.T
    length = _lengths(points, streets)
    tree = scipy.sparse.csgraph.minimum_spanning_tree(adjacency(u, v, size, length)).tocoo()
    free = np.flatnonzero(~np.isin(u * size + v, tree.row.astype(np.int64) * size + tree.col))
    degree = np.bincount(streets.ravel(), minlength=size)
    crossing = rng.uniform(size=size) < CROSSINGS
    shuffled = rng.permutation(free)
    keep = np.ones(len(u), bool)
    # Junctions of five and more lose their longest street first, then those of four any.
    passes = (
        (free[np.argsort(-length[free])], max, 4),
        (shuffled[~crossing[streets[shuffled]].any(axis=1)], min, 3),
    )
    for order, of_both, few in passes:
        for k in order:
            if keep[k] and of_both(degree[streets[k]]) > few:
                keep[k] = False
                degree[streets[k]] -= 1
    return keep


def _branch(
    points: FloatArray, streets: IntArray, apex: IntArray, nodes: int, rng: np.random.Generator
) -> tuple[FloatArray, IntArray]:
    """Dead ends: each splits a street and leads into a triangle beside it, crossing nothing."""
    size = len(points)
    ends = (nodes - len(points)) // 2
    # Long streets carry more houses, so more branchings.
    chance = np.where(apex[:, 1] >= 0, _lengths(points, streets), 0.0)
    split = rng.choice(len(streets), size=ends, replace=False, p=chance / chance.sum())
    start, stop = points[streets[split]].swapaxes(0, 1)
    branch = start + rng.uniform(0.3, 0.7, (ends, 1)) * (stop - start)
    far = points[apex[split, rng.integers(0, 2, ends)]]
    end = branch + rng.uniform(0.4, 1.0, (ends, 1)) * ((start + stop + far) / 3 - branch)
    at = size + np.arange(ends)
    halves = [[streets[split, 0], at], [at, streets[split, 1]], [at, at + ends]]
    places = [points, branch, end]
    pieces = [np.delete(streets, split, axis=0), *(np.stack(half, axis=1) for half in halves)]
    if nodes > size + 2 * ends:
        # One node is left over where the count is odd: a lone house at the end of a street.
        house = int(rng.integers(size))
        places.append(points[house : house + 1] + 0.02)
        pieces.append(np.array([[house, nodes - 1]]))
    return np.vstack(places), np.vstack(pieces)


def _lengths(points: FloatArray, streets: IntArray) -> FloatArray:
    return np.hypot(*(points[streets[:, 0]] - points[streets[:, 1]]).T)
