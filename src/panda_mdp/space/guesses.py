"""Where somebody who guesses a place may point: anywhere, not only at records.

**Within a radius.** A centre holds the records within `radius` of it. A largest set of records that
some centre holds is the set of an intersection of discs of one size about its records. Of one
record that is its disc, whose middle is the record; of several it is an intersection of different
discs of one size, and has a corner, where two of their circles meet. So the records and the points
where two circles meet are all the centres that need to be tried, whatever the records weigh, and
the best of them is the best of all.

**Nearest on average.** The geometric median, by Weiszfeld's steps from the best record.
"""

from __future__ import annotations

from itertools import chain, pairwise

import numpy as np
import scipy

from panda_mdp.base.arrays import AnyArray, FloatArray, IntArray
from panda_mdp.base.threads import by_slices, check_time
from panda_mdp.errors import ProblemError
from panda_mdp.space.domain import Domain
from panda_mdp.space.metrics import (
    EARTH_RADIUS_KM,
    Euclidean,
    Haversine,
    Metric,
    check_coordinates,
    check_places,
    haversine_km,
)

MOST_CENTRES = 400_000
"""Centres that are tried; more take minutes."""
MOST_RADIUS_KM = 1000.0
"""Discs on the sphere that are small enough for what is said above of discs."""
CLOSED = 1 + 1e-9
"""Radii are taken so much larger: a record on the circle is inside, however it is rounded."""
STEPS = 200
AT_REST = 1e-9
"""Steps at most, and the share of the distances that a step is worth while it goes on."""
LONGER = 0.7
"""By which steps are longer than Weiszfeld's, which end in the same places up to twice as long."""
NO_NEARER = 1e-9
"""Distances below this do not weigh more in a step than it does."""
LIGHTEST = 1e-200
SHARED_AT_ONCE = 1e8
"""Sums of products at a time, where sets are compared with all sets."""
ENTRIES = 1 << 20


def has_places(metric: Metric) -> bool:
    """Whether there are places between the records: on the sphere, in a plane, on a line."""
    flat = isinstance(metric, Euclidean) and metric.vectors.shape[1] <= 2
    return flat or isinstance(metric, Haversine)


def held_sets(domain: Domain, radius: float) -> tuple[scipy.sparse.csr_array, FloatArray] | None:
    """Sets of records that one centre holds within `radius`, the largest of all among them, (sets,
    K) of ones, and their centres, points of the embedding; None where there are no places between
    the records, or too many centres to try.

    >>> line = Domain.from_vectors([[0.0], [1.0], [2.0], [4.0]])
    >>> sets, centres = held_sets(line, 0.5)
    >>> largest = largest_sets(sets)
    >>> sets[largest].toarray().astype(int).tolist(), centres[largest].tolist()
    ([[0, 0, 0, 1], [1, 1, 0, 0], [0, 1, 1, 0]], [[4.0], [0.5], [1.5]])
    """
    metric = domain.metric
    on_sphere = isinstance(metric, Haversine)
    if not has_places(metric) or (on_sphere and radius > MOST_RADIUS_KM):
        return None
    points = metric.embedding
    reach = radius * CLOSED
    if points.shape[1] == 1:
        # A line in the plane: circles round two of its records hold what lies between them.
        points = np.pad(points, ((0, 0), (0, 1)))
    pairs = np.zeros((0, 2), np.int64)
    if radius > 0:
        found = [np.stack(part[:2], axis=1) for part in domain.pairs_within(2 * radius)]
        if 2 * sum(map(len, found)) > MOST_CENTRES:
            return None
        pairs = np.concatenate([pairs, *found])
    centres = np.concatenate([points, *_crossings(points, pairs, radius, on_sphere)])
    # A straight line through the sphere is shorter than the way round it.
    chord = 2 * EARTH_RADIUS_KM * np.sin(reach / EARTH_RADIUS_KM / 2) if on_sphere else reach
    tree = scipy.spatial.cKDTree(points)
    held = tree.query_ball_point(centres, max(chord, 0.0), return_sorted=True, workers=-1)
    # In the order of the centres, the first of those that hold the same.
    first = dict(zip(map(tuple, held[::-1]), range(len(held) - 1, -1, -1), strict=True))
    kept = sorted(first.values())
    # What a centre beside the line holds, the line's point nearest to it holds as well.
    return _as_sets(held[kept], domain.size), centres[kept, : metric.embedding.shape[1]]


def _crossings(
    points: FloatArray, pairs: IntArray, radius: float, on_sphere: bool
) -> tuple[FloatArray, FloatArray]:
    """The two points at `radius` from both records of each pair, which are at most twice as far
    apart."""
    a = points[pairs[:, 0]]
    b = points[pairs[:, 1]]
    if not on_sphere:
        middle = (a + b) / 2
        apart = b - a
        high = np.sqrt(np.maximum(radius**2 / (apart**2).sum(axis=1, keepdims=True) - 0.25, 0.0))
        across = high * np.stack([-apart[:, 1], apart[:, 0]], axis=1)
        return middle + across, middle - across
    u = a / EARTH_RADIUS_KM
    v = b / EARTH_RADIUS_KM
    both = u + v
    normal = np.cross(u, v)
    # With angle t between them: cos(t/2)^2 and sin(t/2)^2, so that nothing small is a difference.
    cosine, sine = ((part**2).sum(axis=1, keepdims=True) / 4 for part in (both, u - v))
    angle = radius / EARTH_RADIUS_KM
    along = np.cos(angle) / (2 * cosine)
    left = np.maximum(np.sin(angle) ** 2 - sine, 0.0) / cosine
    across = np.sqrt(left / (4 * cosine * sine)) * normal
    return EARTH_RADIUS_KM * (along * both + across), EARTH_RADIUS_KM * (along * both - across)


def _as_sets(sets: AnyArray, size: int) -> scipy.sparse.csr_array:
    """Lists of records, ascending, as sets."""
    members = np.fromiter(chain.from_iterable(sets), np.int64)
    starts = np.cumsum([0, *map(len, sets)])
    return scipy.sparse.csr_array((np.ones(len(members)), members, starts), (len(sets), size))


def largest_sets(sets: scipy.sparse.csr_array) -> IntArray:
    """Which of some different sets, (sets, K), are part of no other."""
    lengths = np.diff(sets.indptr)
    kept = np.ones(len(lengths), bool)
    # As many at a time as share so many entries with all.
    work = np.cumsum(sets @ sets.sum(axis=0))
    starts = np.unique(np.searchsorted(work, np.arange(0, work[-1], SHARED_AT_ONCE)))
    for start, end in pairwise([*starts, len(lengths)]):
        check_time()
        shared = scipy.sparse.coo_array(sets[start:end] @ sets.T)
        inside = shared.data == lengths[start + shared.row]
        kept[start + shared.row[inside & (lengths[shared.col] > shared.data)]] = False
    return np.flatnonzero(kept)


def best_records(
    domain: Domain, columns: FloatArray, radius: float | None = None
) -> tuple[FloatArray, IntArray]:
    """The least cost under each column of weights over the records, and the record that has it,
    (columns,): a guess costs its distance; or -1 where it lies within a radius. K x K distances
    are not held."""
    least = np.full(columns.shape[1], np.inf)
    best = np.zeros(len(least), np.int64)
    for guesses, distance in domain.blocks():
        each = distance if radius is None else -(distance <= radius).astype(float)
        cost = each @ columns
        first = cost.argmin(axis=0)
        now = cost.min(axis=0)
        better = now < least
        least[better], best[better] = now[better], guesses.start + first[better]
    return least, best


def best_guesses(
    domain: Domain, columns: FloatArray, at_rest: float = AT_REST
) -> tuple[AnyArray, FloatArray]:
    """The guess of least expected distance under each column of weights over the records, (K, m),
    and that distance, (m,).

    Guesses are places, as points of the embedding, (m, p), where there are any between records,
    else records, (m,). What is said of a place is attained by it: no guess may be better than it.
    """
    least, best = best_records(domain, columns)
    if has_places(domain.metric):
        return refined_medians(domain, columns, best, at_rest)
    return best, least


def as_guesses(domain: Domain, records: IntArray) -> AnyArray:
    """Records as `best_guesses` gives guesses."""
    return domain.metric.embedding[records] if has_places(domain.metric) else records


def coordinates(domain: Domain, guesses: FloatArray) -> FloatArray:
    """Points of the embedding as they are told: degrees on the sphere, (n, 2), else vectors."""
    if not isinstance(domain.metric, Haversine):
        return guesses
    x, y, z = guesses.T
    lon = np.rad2deg(np.arctan2(y, x))
    lat = np.rad2deg(np.arctan2(z, np.hypot(x, y)))
    return np.stack([lat, np.where(lon == 180, -180.0, lon)], axis=1)


def check_guesses(domain: Domain, places: FloatArray) -> None:
    """Refuse what are no `coordinates` of places between records."""
    metric = domain.metric
    if not has_places(metric) or places.shape[1] != coordinates(domain, metric.embedding).shape[1]:
        raise ProblemError("guesses are at places, and there are none such between these records")
    if isinstance(metric, Haversine):
        check_places(places[:, 0], places[:, 1], turned=True)
    else:
        check_coordinates(places, any_size=False)


def place_distances(metric: Metric, places: FloatArray) -> FloatArray:
    """How far places told by their `coordinates` are from the records, (n, K)."""
    if isinstance(metric, Haversine):
        lat, lon = places.T[:, :, None]
        return haversine_km(lat, lon, metric.lat, metric.lon)
    return _straight(places, metric.embedding)


def guess_distances(domain: Domain, guesses: AnyArray) -> FloatArray:
    """How far guesses are from all records, (guesses, K)."""
    if not has_places(domain.metric):
        return domain.distances(guesses, None)
    return metric_distances(domain.metric, guesses).T


def refined_medians(
    domain: Domain, weights: FloatArray, start: IntArray, at_rest: float = AT_REST
) -> tuple[FloatArray, FloatArray]:
    """Guesses of a place that are off by little under each column of `weights`, (K, m), as points
    of the embedding, (m, p), from the records `start`, (m,); and how far off, (m,).

    Every guess is a place, so what it is off by is attained, and never more than at the start.
    """
    metric = domain.metric
    points = domain.metric.embedding
    few = max(1, ENTRIES // len(points))
    if len(start) > few:
        guesses, costs = np.empty((len(start), points.shape[1])), np.empty(len(start))

        def work(k: slice) -> None:
            guesses[k], costs[k] = refined_medians(domain, weights[:, k], start[k], at_rest)

        by_slices(work, len(start), few)
        return guesses, costs
    best = points[start]
    cost = (weights * metric_distances(metric, best)).sum(axis=0)
    # From the mean: steps do not leave a record. What nobody reports weighs nothing.
    pull = np.where(weights.sum(axis=0) > 0, weights, 1.0)
    before = np.inf
    at = (pull.T @ points) / pull.sum(axis=0)[:, None]
    for _ in range(STEPS):
        to = (pull.T @ points) / pull.sum(axis=0)[:, None]
        at = to + LONGER * (to - at)
        if isinstance(metric, Haversine):
            at *= EARTH_RADIUS_KM / np.sqrt((at**2).sum(axis=1, keepdims=True))
        apart = np.maximum(_straight(points, at), NO_NEARER)
        pull = np.maximum(weights, LIGHTEST) / apart
        now = float(np.vdot(weights, apart))
        if before - now <= at_rest * now:
            break
        before = now
    reached = (weights * metric_distances(metric, at)).sum(axis=0)
    return np.where((reached < cost)[:, None], at, best), np.minimum(reached, cost)


def metric_distances(metric: Metric, places: FloatArray) -> FloatArray:
    """How far the records are from places given as points of the embedding, (K, n)."""
    straight = _straight(metric.embedding, places)
    if isinstance(metric, Haversine):
        return np.asarray(
            2 * EARTH_RADIUS_KM * np.arcsin(np.minimum(straight / (2 * EARTH_RADIUS_KM), 1.0))
        )
    return straight


def _straight(points: FloatArray, places: FloatArray) -> FloatArray:
    return scipy.spatial.distance.cdist(points, places)
