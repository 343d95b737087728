"""The records that a user may have, and how far apart they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, Protocol, overload

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import FloatArray, IntArray, frozen
from panda_mdp.errors import DomainError
from panda_mdp.space.metrics import (
    BLOCK_ENTRIES,
    Euclidean,
    Haversine,
    Matrix,
    Metric,
)
from panda_mdp.space.snapping import Snap, Snaps, grid_of, snap_place, snap_places
from panda_mdp.space.tiles import Tiles, tile

if TYPE_CHECKING:
    from panda_mdp.space.nearest import Grid

TRIANGLE_TOLERANCE = 1e-9
SMALL_MATRIX = 128
"""Up to this many records NumPy is done before compiled threads have started."""
PAIR_ENTRIES = 1 << 20
SMALLEST_DEGREES = 1e-100
SMALLEST_COORDINATE, LARGEST_COORDINATE = 1e-120, 1e140
SMALLEST_DISTANCE, LARGEST_DISTANCE = 1e-250, 1e250
"""Between these no square, product or quotient of distances leaves the range of float64."""


class RoadNetwork(Protocol):
    """What has streets: a `City`."""

    def road_domain(
        self, records: int | npt.ArrayLike | None, *, seed: int, by: Literal["length", "time"]
    ) -> Domain: ...


@dataclass(frozen=True, eq=False)
class Domain:
    """A finite set of records with a metric.

    Built by `from_points`, `from_vectors` or `from_matrix`; records are the indices 0..K-1.
    Distances are computed in blocks, so K = 128,000 places need a few MB.

    >>> home = Domain.from_points([41.90, 41.91], [12.49, 12.50])
    >>> len(home), home.unit, round(home.distance(0, 1), 3)
    (2, 'km', 1.386)
    """

    metric: Metric
    nodes: IntArray | None = None
    """The city's node of each record, where the domain was sampled from a city."""
    merged: IntArray | None = None
    """For `merge=True`: the domain's record of each record that was given."""

    @classmethod
    def from_points(cls, lat: npt.ArrayLike, lon: npt.ArrayLike, *, merge: bool = False) -> Domain:
        """Places by latitude and longitude in degrees; great-circle distance in km."""
        lats, lons = _column(lat, "lat"), _column(lon, "lon")
        if len(lats) != len(lons):
            msg = f"lat has {len(lats)} entries and lon {len(lons)}; give one of each per record"
            raise DomainError(msg)
        _refuse_bad(
            np.asarray(np.abs(lats) > 90), lats, "latitude", "lie in [-90, 90] degrees (swapped?)"
        )
        _refuse_bad(
            np.asarray((lons < -180) | (lons > 360)),
            lons,
            "longitude",
            "lie in [-180, 360] degrees",
        )
        _refuse_few(len(lats))
        lons = np.where(lons >= 180, lons - 360, lons)
        # Squares of such degrees underflow; as a length they are nothing.
        lats, lons = (np.where(np.abs(c) < SMALLEST_DEGREES, 0.0, c) for c in (lats, lons))
        # A pole has one place and every longitude.
        keys = np.stack([lats + 0.0, np.where(np.abs(lats) == 90, 0.0, lons) + 0.0], axis=1)
        keep, mapping = _distinct(keys, merge)
        return cls(Haversine(lats[keep], lons[keep]), merged=mapping)

    @classmethod
    def from_vectors(
        cls,
        vectors: npt.ArrayLike,
        *,
        metric: Literal["euclidean", "angular"] = "euclidean",
        unit: str = "unit",
        merge: bool = False,
    ) -> Domain:
        """Vectors, shape (K, p), under euclidean distance, or by the angle between them (rad)."""
        if metric not in ("euclidean", "angular"):
            msg = f"metric is {metric!r}; choose 'euclidean' or 'angular'"
            raise DomainError(msg)
        table = np.asarray(vectors, dtype=np.float64)
        if table.ndim == 1:
            table = table[:, None]
        if table.ndim != 2 or table.shape[1] == 0:
            msg = f"vectors has shape {table.shape}; give a (records, dimensions) table"
            raise DomainError(msg)
        _refuse_few(len(table))
        _check_coordinates(table, any_size=metric == "angular")
        if metric == "angular":
            from panda_mdp.space.angular import Angular, check_directions, unit_vectors

            table = unit_vectors(table)
        keep, mapping = _distinct(table + 0.0, merge)
        if metric == "angular":
            angles = Angular(table[keep])
            check_directions(angles)
            return cls(angles, merged=mapping)
        return cls(Euclidean(table[keep], unit), merged=mapping)

    @classmethod
    def from_matrix(
        cls, distances: npt.ArrayLike, *, unit: str = "unit", merge: bool = False
    ) -> Domain:
        """Any metric, as its K x K matrix; the triangle inequality is checked for all triples."""
        table = np.array(distances, dtype=np.float64)
        if table.ndim != 2 or table.shape[0] != table.shape[1]:
            msg = f"the distance matrix has shape {table.shape}; it must be square, K x K"
            raise DomainError(msg)
        _refuse_few(len(table))
        _check_entries(table)
        _check_triangles(table)
        mapping: IntArray | None = None
        if merge:
            keep, mapping = _merge_zero_distances(table)
            table = table[np.ix_(keep, keep)]
            _refuse_few(len(table))
        _refuse_zero_distances(table)
        return cls(Matrix(table, unit), merged=mapping)

    @classmethod
    def from_graph(
        cls,
        city: RoadNetwork,
        records: int | IntArray | None = None,
        *,
        seed: int = 0,
        by: Literal["length", "time"] = "length",
    ) -> Domain:
        """Nodes of a city under road distance in km, or travel time in minutes by `time`.

        The same as `city.road_domain(records, seed=seed, by=by)`.
        """
        return city.road_domain(records, seed=seed, by=by)

    def __len__(self) -> int:
        return self.metric.size

    def __repr__(self) -> str:
        return f"Domain({len(self)} records, {self.metric.kind}, {self.unit})"

    @property
    def size(self) -> int:
        """Number of records, K."""
        return self.metric.size

    @property
    def unit(self) -> str:
        """The unit of distances; epsilon is per this unit."""
        return self.metric.unit

    @property
    def geographic(self) -> bool:
        """Whether records are places with latitude and longitude."""
        return isinstance(self.metric, Haversine)

    @property
    def lat(self) -> FloatArray:
        """Latitudes in degrees (geographic domains only)."""
        return self._haversine("lat").lat

    @property
    def lon(self) -> FloatArray:
        """Longitudes in degrees (geographic domains only)."""
        return self._haversine("lon").lon

    @property
    def plane(self) -> FloatArray | None:
        """Planar coordinates, shape (K, 2), where records lie in a plane: exact for vectors of
        two dimensions, a local projection in km for places within a few degrees; else None."""
        if isinstance(self.metric, Haversine):
            small = np.ptp(self.metric.lat) < 10 and np.ptp(self.metric.lon) < 10
            return self.metric.plane if small and np.abs(self.metric.lat).max() < 80 else None
        if isinstance(self.metric, Euclidean) and self.metric.vectors.shape[1] == 2:
            return self.metric.vectors
        return None

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the records and metric, the name of this domain in certificates."""
        return self.metric.fingerprint

    def take(self, indices: npt.ArrayLike) -> Domain:
        """The domain restricted to some of its records, in the given order."""
        chosen = check_indices(indices, self.size, "records", DomainError)
        _refuse_few(len(chosen))
        if len(np.unique(chosen)) != len(chosen):
            msg = "a record is named twice; a domain's records are distinct"
            raise DomainError(msg)
        nodes = None if self.nodes is None else frozen(self.nodes[chosen])
        return Domain(self.metric.take(chosen), nodes=nodes)

    def with_nodes(self, nodes: IntArray) -> Domain:
        """The same domain, remembering the city's node of each record."""
        return replace(self, nodes=frozen(np.asarray(nodes, dtype=np.int64)))

    def distance(self, x: int, x2: int) -> float:
        """Distance of two records."""
        pair = check_indices([x, x2], self.size, "records", DomainError)
        return float(self.metric.pairs(pair[:1], pair[1:])[0])

    def distances(
        self, rows: npt.ArrayLike | None = None, cols: npt.ArrayLike | None = None
    ) -> FloatArray:
        """A block of distances, shape (rows, cols); None means all records."""
        everything = np.arange(self.size)
        first = everything if rows is None else check_indices(rows, self.size, "rows", DomainError)
        second = everything if cols is None else check_indices(cols, self.size, "cols", DomainError)
        return self.metric.block(first, second)

    def blocks(self, cols: npt.ArrayLike | None = None) -> Iterator[tuple[slice, FloatArray]]:
        """Row blocks of distances to `cols` (all records by default), each of bounded size."""
        everything = np.arange(self.size)
        target = everything if cols is None else check_indices(cols, self.size, "cols", DomainError)
        step = max(1, BLOCK_ENTRIES // max(1, len(target)))
        for start in range(0, self.size, step):
            rows = np.arange(start, min(start + step, self.size))
            yield slice(start, int(rows[-1]) + 1), self.metric.block(rows, target)

    def within(self, record: int, radius: float) -> IntArray:
        """Records at distance at most `radius` of a record, itself included, ascending."""
        at = np.array([check_record(record, self.size, DomainError)])
        _check_radius(radius)
        tree = self.metric.tree
        if tree is None:
            near = np.arange(self.size)
        else:
            reach = self.metric.embedded_radius(radius)
            near = np.sort(
                np.asarray(tree.query_ball_point(self.metric.embedding[at[0]], reach), np.int64)
            )
        return np.asarray(near[self.metric.block(at, near)[0] <= radius])

    def pairs_within(self, radius: float) -> Iterator[tuple[IntArray, IntArray, FloatArray]]:
        """All pairs i < j at distance at most `radius`, in chunks of (i, j, distance)."""
        _check_radius(radius)
        tiles = self.tiles
        for t in range(tiles.count):
            rows = tiles.order[tiles.starts[t] : tiles.starts[t + 1]]
            close = np.flatnonzero(tiles.between[t] <= radius)
            close = close[close >= t]
            near = np.concatenate(
                [tiles.order[tiles.starts[s] : tiles.starts[s + 1]] for s in close]
            )
            step = max(len(rows), PAIR_ENTRIES // len(rows))
            for start in range(0, len(near), step):
                cols = near[start : start + step]
                block = self.metric.block(rows, cols)
                chosen = block <= radius
                if start == 0:
                    # The tile itself comes first; of its pairs, each counts once.
                    chosen[:, : len(rows)][np.tril_indices(len(rows))] = False
                a, b = np.nonzero(chosen)
                first, second = rows[a], cols[b]
                yield np.minimum(first, second), np.maximum(first, second), block[a, b]

    def neighbours(self, count: int) -> tuple[IntArray, FloatArray]:
        """The `count` nearest other records of every record: indices and distances, (K, count)."""
        if not 1 <= count < self.size:
            msg = f"count is {count}; a domain of {self.size} has 1 to {self.size - 1} neighbours"
            raise DomainError(msg)
        tree = self.metric.tree
        indices = np.empty((self.size, count), dtype=np.int64)
        if tree is not None:
            found = np.asarray(tree.query(self.metric.embedding, k=count + 1)[1], dtype=np.int64)
            itself = found == np.arange(self.size)[:, None]
            # Records closer than rounding may push a record out of its own list.
            itself[~itself.any(axis=1), -1] = True
            indices[:] = found[~itself].reshape(self.size, count)
        else:
            for rows, block in self.blocks():
                block[np.arange(len(block)), np.arange(rows.start, rows.stop)] = np.inf
                part = np.argpartition(block, count - 1, axis=1)[:, :count]
                indices[rows] = part
        flat = self.metric.pairs(np.repeat(np.arange(self.size), count), indices.ravel())
        apart = flat.reshape(self.size, count)
        order = np.lexsort((indices, apart), axis=1)
        return np.take_along_axis(indices, order, 1), np.take_along_axis(apart, order, 1)

    @overload
    def snap(self, lat: float, lon: float, limit: float) -> Snap: ...
    @overload
    def snap(self, lat: npt.ArrayLike, lon: npt.ArrayLike, limit: float) -> Snaps: ...
    def snap(self, lat: npt.ArrayLike, lon: npt.ArrayLike, limit: float) -> Snap | Snaps:
        """The record nearest to a place, if it lies within `limit` (km); of many, for arrays.

        A place that is not covered is an error; among many it has record -1. Snapping is not
        covered by the mechanism's guarantee: two places p, p' that snap to x, x' are
        epsilon (d(p, p') + snap(p) + snap(p'))-indistinguishable, at most
        epsilon (d(p, p') + 2 limit). Errors name neither the place nor its distance.

        >>> home = Domain.from_points([41.90, 41.91], [12.49, 12.50])
        >>> home.snap([41.9001, 0.0], [12.4901, 0.0], limit=0.5).record.tolist()
        [0, -1]
        """
        metric = self._haversine("snap")
        if np.ndim(lat) == 0 and np.ndim(lon) == 0:
            return snap_place(metric, lat, lon, limit)  # type: ignore[arg-type]
        return snap_places(metric, self.grid, lat, lon, limit)

    @cached_property
    def grid(self) -> Grid | None:
        """Cells of places, for searches over many; None where records are spread too far."""
        return grid_of(self._haversine("grid"))

    @cached_property
    def tiles(self) -> Tiles:
        """Compact tiles of records, for work over all pairs."""
        return tile(self.metric)

    @cached_property
    def diameter(self) -> float:
        """The largest distance between two records, exactly."""
        tiles = self.tiles
        first, second = np.triu_indices(tiles.count)
        bound = tiles.across[first, second]
        best = 0.0
        for k in np.argsort(-bound):
            if bound[k] <= best:
                break
            rows = tiles.order[tiles.starts[first[k]] : tiles.starts[first[k] + 1]]
            cols = tiles.order[tiles.starts[second[k]] : tiles.starts[second[k] + 1]]
            best = max(best, float(self.metric.block(rows, cols).max()))
        return best

    def _haversine(self, what: str) -> Haversine:
        if not isinstance(self.metric, Haversine):
            msg = f"{what} needs places, and this domain is {self.metric.kind}; use from_points"
            raise DomainError(msg)
        return self.metric


def check_indices(
    values: npt.ArrayLike, size: int, name: str, error: type[Exception] = DomainError
) -> IntArray:
    """Whole numbers in 0..size-1 as int64, or an error that names the first offender."""
    array = np.atleast_1d(np.asarray(values))
    if array.ndim != 1:
        msg = f"{name} has shape {array.shape}; give a flat list of indices"
        raise error(msg)
    if array.size == 0:
        return np.empty(0, dtype=np.int64)
    whole = np.issubdtype(array.dtype, np.integer) or (
        np.issubdtype(array.dtype, np.floating) and bool(np.all(array == np.round(array)))
    )
    if not whole:
        msg = f"{name} must be whole numbers, indices into the domain; got {array.dtype}"
        raise error(msg)
    wrong = np.flatnonzero((array < 0) | (array >= size))
    if len(wrong):
        msg = f"{name}[{wrong[0]}] is {array[wrong[0]]}; indices lie in 0..{size - 1}"
        raise error(msg)
    return array.astype(np.int64)


def check_record(record: int, size: int, error: type[Exception] = DomainError) -> int:
    """A record's index as an int; the error never shows the value, which is a user's secret."""
    try:
        return int(check_indices([record], size, "record")[0])
    except (ValueError, TypeError):
        pass
    msg = f"the record is not an index of this domain; records are whole numbers 0..{size - 1}"
    raise error(msg)


def _check_radius(radius: float) -> None:
    if not radius >= 0:
        msg = f"the radius is {radius!r}; it must be a number, not negative"
        raise DomainError(msg)


def _column(values: npt.ArrayLike, name: str) -> FloatArray:
    column = np.asarray(values, dtype=np.float64)
    if column.ndim != 1:
        msg = f"{name} has shape {column.shape}; give a flat list of degrees"
        raise DomainError(msg)
    _refuse_bad(~np.isfinite(column), column, name, "be finite: repair or leave out the record")
    return column


def _check_coordinates(table: FloatArray, any_size: bool) -> None:
    wrong = ~np.isfinite(table)
    if not any_size:
        size = np.abs(table)
        wrong |= (size > LARGEST_COORDINATE) | ((size < SMALLEST_COORDINATE) & (table != 0))
    bad = np.argwhere(wrong)
    if len(bad):
        i, j = bad[0]
        more = f" ({len(bad)} such)" if len(bad) > 1 else ""
        rule = (
            f"be 0 or of a size from {SMALLEST_COORDINATE:g} to {LARGEST_COORDINATE:g}: "
            "use another unit of length"
            if np.isfinite(table[i, j])
            else "be finite: repair or leave out the record"
        )
        msg = f"coordinate {j} of record {i} is {table[i, j]}; it must {rule}{more}"
        raise DomainError(msg)


def _refuse_few(count: int) -> None:
    if count < 2:
        msg = (
            f"the domain has {count} distinct record(s); privacy between records needs at least 2: "
            "add records"
        )
        raise DomainError(msg)


def _refuse_bad(bad: npt.NDArray[np.bool_], values: FloatArray, what: str, rule: str) -> None:
    wrong = np.flatnonzero(bad)
    if len(wrong):
        more = f" ({len(wrong)} such)" if len(wrong) > 1 else ""
        msg = f"{what} of record {wrong[0]} is {values[wrong[0]]}; it must {rule}{more}"
        raise DomainError(msg)


def _distinct(keys: FloatArray, merge: bool) -> tuple[IntArray, IntArray | None]:
    """Indices of distinct rows in order of first appearance, and the map onto them."""
    _, first, inverse = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    inverse = inverse.reshape(-1)
    if not merge:
        if len(first) < len(keys):
            repeats = np.flatnonzero(first[inverse] != np.arange(len(keys)))
            again = int(repeats[0])
            msg = (
                f"record {again} repeats record {first[inverse[again]]} ({len(repeats)} repeats); "
                "merge=True merges equal records and keeps the map"
            )
            raise DomainError(msg)
        return np.arange(len(keys)), None
    keep = np.sort(first)
    _refuse_few(len(keep))
    return keep, frozen(np.searchsorted(keep, first[inverse]))


def _merge_zero_distances(table: FloatArray) -> tuple[IntArray, IntArray]:
    # At distance 0 the triangle inequality makes the relation transitive.
    representative = (table == 0).argmax(axis=1)
    keep = np.unique(representative)
    return keep, frozen(np.searchsorted(keep, representative))


def _check_entries(table: FloatArray) -> None:
    rules = (
        (~np.isfinite(table), "be finite: give records without a path a large finite distance"),
        (table < 0, "not be negative: take absolute values or repair the matrix"),
        (np.diag(np.diag(table) != 0), "be 0 on the diagonal: np.fill_diagonal(D, 0) sets it"),
        (
            (table > LARGEST_DISTANCE) | ((table > 0) & (table < SMALLEST_DISTANCE)),
            f"be 0 or from {SMALLEST_DISTANCE:g} to {LARGEST_DISTANCE:g}: use another unit",
        ),
    )
    for broken, rule in rules:
        bad = np.argwhere(broken)
        if len(bad):
            i, j = bad[0]
            msg = f"distance ({i}, {j}) is {table[i, j]}; distances must {rule}"
            raise DomainError(msg)
    bad = np.argwhere(np.triu(table != table.T))
    if len(bad):
        i, j = bad[0]
        msg = (
            f"distance ({i}, {j}) is {table[i, j]} but ({j}, {i}) is {table[j, i]}; "
            "the matrix must be symmetric: take (D + D.T) / 2 if the difference is rounding"
        )
        raise DomainError(msg)


def _refuse_zero_distances(table: FloatArray) -> None:
    zero = np.argwhere(np.triu(table == 0, k=1))
    if len(zero):
        i, j = zero[0]
        msg = (
            f"records {i} and {j} are at distance 0; records must be distinct: "
            "merge=True merges them and keeps the map"
        )
        raise DomainError(msg)


def _check_triangles(table: FloatArray) -> None:
    triple = _broken_triangle(table)
    if triple is not None:
        i, j, k = triple
        msg = (
            f"the triangle inequality fails for records ({i}, {j}, {k}): "
            f"d({i}, {j}) = {table[i, j]:.12g} exceeds d({i}, {k}) + d({k}, {j}) = "
            f"{table[i, k] + table[k, j]:.12g} by more than 1e-9; "
            "replace the matrix by its shortest-path closure (scipy.sparse.csgraph)"
        )
        raise DomainError(msg)


def _broken_triangle(table: FloatArray) -> tuple[int, int, int] | None:
    if len(table) > SMALL_MATRIX:
        try:
            from panda_mdp.space.triangles import broken_triangle
        except ImportError:
            pass
        else:
            i, j, k = broken_triangle(table, 1 + TRIANGLE_TOLERANCE)
            return None if i < 0 else (int(i), int(j), int(k))
    for k in range(len(table)):
        detour = (table[:, k, None] + table[k]) * (1 + TRIANGLE_TOLERANCE)
        bad = np.argwhere(table > detour)
        if len(bad):
            return int(bad[0][0]), int(bad[0][1]), k
    return None
