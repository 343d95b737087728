"""A made-up city with the statistics of a real one, for tests and demonstrations.

Districts, each a jittered lattice with its own direction and spacing, are sown by a clustered
density (a centre, satellites, lognormal noise). Streets are the Gabriel graph of all lattice points
(two points are joined when the circle on their segment is empty: planar, connected, short detours),
thinned to junctions of mostly three streets, with dead ends branching off into the blocks.
"""

from __future__ import annotations

import numpy as np
import scipy

from panda_mdp.base.adjacency import adjacency
from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray
from panda_mdp.city.city import City
from panda_mdp.city.travel import group_starts
from panda_mdp.errors import CityError
from panda_mdp.space.metrics import EARTH_RADIUS_KM, haversine_km

LATITUDE, LONGITUDE = 45.0, 10.0
BASE_SHARE = 0.66
"""Share of nodes that are junctions of the lattice; the rest are dead ends and their branchings."""
CROSSINGS = 0.06
"""Share of the lattice junctions that keep four streets."""
DISTRICT_POINTS = 30
JITTER = 0.13
NODES_PER_KM2 = 230.0
MIN_NODES = 20


def synthetic_city(nodes: int = 5000, seed: int = 0) -> City:
    """A believable planar street network with exactly `nodes` junctions, connected.

    Clustered density, mostly three streets per junction, street lengths and detours as in a large
    European city (docs/cities.md has the figures side by side). The same seed gives the same city.

    >>> synthetic_city(500, seed=1).nodes
    500
    """
    if nodes < MIN_NODES:
        msg = f"nodes is {nodes}; a synthetic city has at least {MIN_NODES}"
        raise CityError(msg)
    rng = np.random.default_rng(seed)
    points = _lattice_points(max(MIN_NODES // 2, round(BASE_SHARE * nodes)), rng)
    u, v, apex = _gabriel(points)
    u, v, apex = _thin(points, u, v, apex, rng)
    points, u, v, bend = _branch(points, u, v, apex, nodes, rng)
    lat = LATITUDE + np.rad2deg(points[:, 1] / EARTH_RADIUS_KM)
    east = points[:, 0] / (EARTH_RADIUS_KM * np.cos(np.deg2rad(LATITUDE)))
    lon = LONGITUDE + np.rad2deg(east)
    length_m = 1000 * haversine_km(lat[u], lon[u], lat[v], lon[v]) * bend
    speed = np.where(length_m > 200, 50.0, 30.0)
    name = f"synthetic city of {nodes:,} nodes"
    return City(lat, lon, u, v, length_m, speed_kmh=speed, name=name)


def _lattice_points(count: int, rng: np.random.Generator) -> FloatArray:
    """`count` lattice points in km, districts of about equally many each."""
    area = count / BASE_SHARE / NODES_PER_KM2
    radius = np.sqrt(area / np.pi)
    districts = max(4, count // DISTRICT_POINTS)
    satellites = max(3, round(np.sqrt(districts) / 2))
    hubs = np.vstack([[0.0, 0.0], rng.normal(0, 0.8 * radius, (satellites, 2))])
    weights = np.concatenate([[2.0], rng.lognormal(0, 0.7, satellites)])
    sizes = radius * np.concatenate([[0.45], rng.uniform(0.1, 0.3, satellites)])
    seeds = _sow(districts, hubs, weights, sizes, radius, rng)
    tree = scipy.spatial.cKDTree(seeds)
    # Half the distance to the neighbours is the room that a district has.
    near = np.asarray(tree.query(seeds, k=min(5, districts))[0])[:, 1:].mean(axis=1)
    spacing = near / np.sqrt(DISTRICT_POINTS) * rng.lognormal(0, 0.25, districts)
    towards = np.arctan2(seeds[:, 1], seeds[:, 0])
    turn = towards + rng.normal(0, 0.3, districts)
    for _ in range(12):
        points = _districts(tree, seeds, near, spacing, turn, rng)
        if count <= len(points) <= 1.05 * count:
            break
        spacing = spacing * np.sqrt(len(points) / (1.02 * count))
    while len(points) < count:
        spacing = spacing * 0.9
        points = _districts(tree, seeds, near, spacing, turn, rng)
    # The few too many go at random, so that no district is hollowed out.
    return points[np.sort(rng.choice(len(points), size=count, replace=False))]


def _sow(
    count: int,
    hubs: FloatArray,
    weights: FloatArray,
    sizes: FloatArray,
    radius: float,
    rng: np.random.Generator,
) -> FloatArray:
    """Seeds of districts: most around the hubs, some anywhere, none on top of another."""
    scattered = round(0.35 * count)
    owner = rng.choice(len(hubs), size=count - scattered, p=weights / weights.sum())
    around = hubs[owner] + rng.normal(size=(len(owner), 2)) * sizes[owner, None]
    angle = rng.uniform(0, 2 * np.pi, scattered)
    reach = 1.9 * radius * np.sqrt(rng.uniform(size=scattered))
    anywhere = np.stack([reach * np.cos(angle), reach * np.sin(angle)], axis=1)
    return np.vstack([around, anywhere])


def _districts(
    tree: scipy.spatial.cKDTree,
    seeds: FloatArray,
    room: FloatArray,
    spacing: FloatArray,
    turn: FloatArray,
    rng: np.random.Generator,
) -> FloatArray:
    """Jittered lattice points of every district, each district within its Voronoi cell."""
    parts = []
    for d in range(len(seeds)):
        steps = np.arange(-np.ceil(room[d] / spacing[d]), np.ceil(room[d] / spacing[d]) + 1)
        grid = np.stack(np.meshgrid(steps, steps), axis=-1).reshape(-1, 2) * spacing[d]
        grid = grid + rng.normal(0, JITTER * spacing[d], grid.shape)
        cosine, sine = np.cos(turn[d]), np.sin(turn[d])
        placed = seeds[d] + grid @ np.array([[cosine, sine], [-sine, cosine]])
        parts.append(placed[tree.query(placed)[1] == d])
    return np.vstack(parts)


def _gabriel(points: FloatArray) -> tuple[IntArray, IntArray, IntArray]:
    """Edges u < v of the Gabriel graph, and for each the far corners of its two triangles.

    A Delaunay edge belongs to it when neither of the angles that face it is obtuse.
    """
    triangles = scipy.spatial.Delaunay(points).simplices.astype(np.int64)
    first = triangles[:, [0, 1, 2]].ravel()
    second = triangles[:, [1, 2, 0]].ravel()
    corner = triangles[:, [2, 0, 1]].ravel()
    a, b = np.minimum(first, second), np.maximum(first, second)
    facing = ((points[a] - points[corner]) * (points[b] - points[corner])).sum(axis=1)
    order = np.lexsort((b, a))
    a, b, corner, facing = a[order], b[order], corner[order], facing[order]
    starts = group_starts(a, b)
    open_angle = np.minimum.reduceat(facing, starts) >= 0
    # An edge of the hull has one triangle only.
    second_corner = np.append(corner[1:], -1)[starts]
    single = np.diff(np.append(starts, len(a))) == 1
    apex = np.stack([corner[starts], np.where(single, -1, second_corner)], axis=1)
    return a[starts][open_angle], b[starts][open_angle], apex[open_angle]


def _thin(
    points: FloatArray, u: IntArray, v: IntArray, apex: IntArray, rng: np.random.Generator
) -> tuple[IntArray, IntArray, IntArray]:
    """Remove streets until most junctions have three; a spanning tree stays."""
    size = len(points)
    length = np.hypot(*(points[u] - points[v]).T)
    tree = scipy.sparse.csgraph.minimum_spanning_tree(adjacency(u, v, size, length)).tocoo()
    code = np.minimum(tree.row, tree.col).astype(np.int64) * size + np.maximum(tree.row, tree.col)
    free = np.flatnonzero(~np.isin(u * size + v, code))
    degree = np.bincount(np.concatenate([u, v]), minlength=size)
    crossing = rng.uniform(size=size) < CROSSINGS
    keep = np.ones(len(u), dtype=np.bool_)
    # Junctions of five and more lose their longest street first.
    for k in free[np.argsort(-length[free])].tolist():
        if degree[u[k]] > 4 or degree[v[k]] > 4:
            _drop(k, u, v, degree, keep)
    for k in rng.permutation(free).tolist():
        i, j = u[k], v[k]
        wanted = not (crossing[i] or crossing[j])
        if keep[k] and wanted and degree[i] > 3 and degree[j] > 3:
            _drop(k, u, v, degree, keep)
    return u[keep], v[keep], apex[keep]


def _drop(k: int, u: IntArray, v: IntArray, degree: IntArray, keep: BoolArray) -> None:
    keep[k] = False
    degree[u[k]] -= 1
    degree[v[k]] -= 1


def _branch(
    points: FloatArray,
    u: IntArray,
    v: IntArray,
    apex: IntArray,
    nodes: int,
    rng: np.random.Generator,
) -> tuple[FloatArray, IntArray, IntArray, FloatArray]:
    """Dead ends: each splits a street and leads into a triangle beside it, crossing nothing."""
    size, ends = len(points), (nodes - len(points)) // 2
    extra = nodes - size - 2 * ends
    # Long streets carry more houses, so more branchings.
    length = np.hypot(*(points[u] - points[v]).T)
    inside = apex[:, 1] >= 0
    chance = np.where(inside, length, 0.0)
    split = rng.choice(len(u), size=ends, replace=False, p=chance / chance.sum())
    along = rng.uniform(0.3, 0.7, (ends, 1))
    branch = points[u[split]] + along * (points[v[split]] - points[u[split]])
    far = points[apex[split, rng.integers(0, 2, ends)]]
    centroid = (points[u[split]] + points[v[split]] + far) / 3
    end = branch + rng.uniform(0.4, 1.0, (ends, 1)) * (centroid - branch)
    branch_at = size + np.arange(ends)
    end_at = size + ends + np.arange(ends)
    whole = np.delete(np.arange(len(u)), split)
    pieces = [
        (u[whole], v[whole]),
        (u[split], branch_at),
        (branch_at, v[split]),
        (branch_at, end_at),
    ]
    all_points = [points, branch, end]
    if extra:
        # One node is left over where the count is odd: a lone house at the end of a street.
        at = int(rng.integers(size))
        all_points.append(points[at : at + 1] + 0.02)
        pieces.append((np.array([at]), np.array([nodes - 1])))
    first = np.concatenate([piece[0] for piece in pieces])
    second = np.concatenate([piece[1] for piece in pieces])
    bend = 1 + np.abs(rng.normal(0, 0.03, len(first)))
    return np.vstack(all_points), first, second, bend
