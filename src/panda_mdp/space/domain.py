"""The records that a user may have, and how far apart they are."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from math import isfinite
from typing import Any, Literal, Self, overload

import numpy as np
from numpy.typing import ArrayLike

from panda_mdp.base.arrays import (
    BLOCK_ENTRIES,
    CACHED_ENTRIES,
    FloatArray,
    IntArray,
    RebuiltOnCopy,
    delaunay,
    frozen,
    is_number,
    place_columns,
    real_numbers,
)
from panda_mdp.base.text import CONTROLS
from panda_mdp.base.threads import by_slices
from panda_mdp.errors import DomainError, SnapError, sealed
from panda_mdp.space.mesh import AGREEMENT_KM, Mesh, mesh_over
from panda_mdp.space.metrics import (
    SMALLEST_DEGREES,
    Angular,
    Euclidean,
    Haversine,
    Matrix,
    Metric,
    check_places,
    haversine_km,
    refuse_few,
    unit_vectors,
)
from panda_mdp.space.paths import PathMetric, by_density, graph_of_records, tree_edges
from panda_mdp.space.snapping import (
    Snap,
    Snaps,
    snap_place,
    snap_places,
    snap_values,
)
from panda_mdp.space.tiles import Tiles, tile

Label = str | int | float


@dataclass(frozen=True, eq=False)
class Domain(RebuiltOnCopy):
    """A finite set of records with a metric, which is checked: audits rest on it.

    Built by `from_points`, `from_vectors`, `from_matrix`, `from_graph` or `from_tree`; records are
    the indices 0..K-1.
    Distances are computed in blocks, so K = 128,000 places need a few MB.

    >>> home = Domain.from_points([41.90, 41.91], [12.49, 12.50])
    >>> len(home), home.unit, round(home.distance(0, 1), 3)
    (2, 'km', 1.386)
    """

    metric: Metric
    nodes: IntArray | None = None
    """The city's node of each record, where the domain was sampled from a city."""
    labels: tuple[Label, ...] | None = None
    """What each record is called: a word, an age, the name of a zone."""
    mesh: Mesh | None = None
    """For `from_area`: the triangles whose vertices the records are."""

    def __post_init__(self) -> None:
        if not isinstance(self.metric, Metric):
            raise DomainError(
                f"metric is a {type(self.metric).__name__}; use Domain.from_points or its kin"
            )
        refuse_few(self.metric.size)
        self.metric.check()
        self._take_over()

    def _take_over(self) -> None:
        """Own what goes with the records; one of each per record."""
        own: dict[str, Any] = {}
        if self.nodes is not None:
            own["nodes"] = frozen(np.asarray(self.nodes, dtype=np.int64))
        if self.labels is not None:
            own["labels"] = check_labels(self.labels, "labels", DomainError)
        vars(self).update(own)
        for name, entries in own.items():
            if len(entries) != self.size:
                raise DomainError(
                    f"{len(entries)} {name} for {self.size} records; give one per record"
                )
        if self.mesh is not None:
            self._check_mesh(self.mesh)

    def _check_mesh(self, mesh: Mesh) -> None:
        """The records are the vertices of the mesh, in their order."""
        lat, lon = mesh.places
        same = len(lat) == self.size and self.geographic
        if same and haversine_km(self.lat, self.lon, lat, lon).max() <= AGREEMENT_KM:
            return
        raise DomainError(
            "the records are not the vertices of the mesh; Domain.from_area makes both"
        )

    def _changed(self, **changes: Any) -> Self:
        """This domain with other fields, and a metric that is known to be one."""
        new = object.__new__(type(self))
        vars(new).update({part.name: getattr(self, part.name) for part in fields(self)} | changes)
        new._take_over()
        return new

    @classmethod
    def from_points(cls, lat: ArrayLike, lon: ArrayLike) -> Domain:
        """Places by latitude and longitude in degrees; great-circle distance in km."""
        lats, lons = _places(lat, lon)
        return cls(Haversine(lats, lons))

    @classmethod
    def from_vectors(
        cls,
        vectors: ArrayLike,
        *,
        metric: Literal["euclidean", "angular"] = "euclidean",
        unit: str = "unit",
    ) -> Domain:
        """Vectors, shape (K, p), under euclidean distance, or by the angle between them (rad)."""
        if metric not in ("euclidean", "angular"):
            raise DomainError(f"metric is {metric!r}; choose 'euclidean' or 'angular'")
        table = real_numbers(vectors, "vectors", DomainError)
        if table.ndim == 1:
            table = table[:, None]
        if table.ndim != 2 or table.shape[1] == 0:
            raise DomainError(
                f"vectors has shape {table.shape}; give a (records, dimensions) table"
            )
        return cls(
            Euclidean(table, unit) if metric == "euclidean" else Angular(unit_vectors(table))
        )

    @classmethod
    def from_values(cls, values: ArrayLike, *, unit: str = "unit") -> Domain:
        """Numbers such as ages or salaries, ascending, each once; records are called by them.

        >>> ages = Domain.from_values([38, 30, 30, 50], unit="years")
        >>> ages.labels, ages.record(38), ages.distance(0, 2)
        ((30, 38, 50), 1, 20.0)
        """
        numbers = real_numbers(values, "values", DomainError)
        if numbers.ndim != 1:
            raise DomainError(f"values have shape {numbers.shape}; give a list of numbers")
        # As they are: whole numbers stay whole.
        distinct_values = np.unique(np.asarray(values))
        return cls.from_vectors(distinct_values, unit=unit).with_labels(distinct_values.tolist())

    @classmethod
    def from_matrix(
        cls,
        distances: ArrayLike,
        *,
        unit: str = "unit",
        labels: Iterable[Label] | None = None,
    ) -> Domain:
        """Any metric, as its K x K matrix; the triangle inequality is checked for all triples.

        `labels` names the records, as `with_labels` does.
        """
        table = real_numbers(distances, "the distance matrix", DomainError).copy()
        if table.ndim != 2 or table.shape[0] != table.shape[1]:
            raise DomainError(
                f"the distance matrix has shape {table.shape}; it must be square, K x K"
            )
        return cls(Matrix(table, unit), labels=None if labels is None else tuple(labels))

    @classmethod
    def from_graph(
        cls,
        edges: ArrayLike,
        lengths: ArrayLike,
        *,
        records: ArrayLike | None = None,
        places: tuple[ArrayLike, ArrayLike] | None = None,
        unit: str = "unit",
    ) -> Domain:
        """Shortest paths over a graph: `edges`, shape (E, 2), join nodes 0, 1, ... both ways, and
        `lengths`, shape (E,), are in `unit`, rounded to whole multiples of 2^-30.

        `records` are the nodes that are records, in their order; all nodes where it is None.
        `places`, latitudes and longitudes of the records, are for maps and snapping alone. No table
        of all pairs is ever formed: edges imply all pairs (space/paths.py).

        >>> square = Domain.from_graph([[0, 1], [1, 2], [2, 3], [3, 0]], [1, 1, 1, 2])
        >>> square.distance(0, 2), square.distance(0, 3)
        (2.0, 2.0)
        """
        ends = np.asarray(edges)
        if ends.ndim != 2 or ends.shape[1] != 2:
            raise DomainError(f"edges has shape {ends.shape}; give pairs of nodes, (E, 2)")
        nodes = check_indices(ends.ravel(), np.iinfo(np.int32).max, "edges").reshape(-1, 2)
        given = np.broadcast_to(np.asarray(lengths, dtype=float), len(nodes))
        count = int(nodes.max(initial=-1)) + 1
        chosen = distinct_indices(np.arange(count) if records is None else records, count)
        lat, lon = (None, None) if places is None else _places(*places)
        return cls(PathMetric(*graph_of_records(nodes, given, chosen), unit, lat, lon))

    @classmethod
    def from_tree(
        cls,
        parents: Mapping[Label, Label],
        length: float | Mapping[Label, float] = 1.0,
        *,
        leaves: bool = False,
        unit: str = "unit",
    ) -> Domain:
        """Names in a tree, by the way up to where they meet and down again: codes of diseases,
        zones in districts.

        `parents` has the parent of every name but the root's; `length`, of the edge to its parent,
        is one for all or one for each name. Records are all names, in the order in which they come
        up, and are called by them; with `leaves` the leaves alone, whose pairs are all edges then.

        >>> codes = Domain.from_tree({"J10": "J", "J11": "J", "J": "all", "I21": "I", "I": "all"})
        >>> codes.distance(codes.record("J10"), codes.record("I21"))
        4.0
        """
        edges, lengths, names, records = tree_edges(parents, length, leaves)
        domain = cls.from_graph(edges, lengths, records=records, unit=unit)
        return domain.with_labels(names[k] for k in records)

    @classmethod
    def from_area(
        cls, area: Any, spacing: float | None = None, epsilon: float | None = None
    ) -> Domain:
        """The vertices of a mesh of equilateral triangles over an area, under distance in km.

        `area` is (south, west, north, east) in degrees, a list of corners (lat, lon), or a list of
        such rings (the first outside, the others holes).
        `spacing` is the triangles' side in km, 0.2 / epsilon where only `epsilon` (per km) is
        given. The mesh covers the convex hull of the area, so that between any two of its
        points the shortest way lies in it: `optimal_everywhere` is private for all of
        them. Where no prior is given people are in the area itself, and not in its holes. The mesh
        is public, and so is whatever it was made around.

        >>> Domain.from_area((41.89, 12.48, 41.91, 12.51), spacing=0.5)
        Domain(45 records, haversine, km)
        """
        mesh = mesh_over(area, spacing, epsilon)
        lat, lon = mesh.places
        return cls(Haversine(lat, lon), mesh=mesh)

    def __len__(self) -> int:
        return self.metric.size

    def __repr__(self) -> str:
        return f"Domain({len(self)} records, {self.metric.kind}, {self.unit})"

    @cached_property
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
        return self.metric.places is not None

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
        """Planar coordinates, shape (K, 2), where records lie in a plane; else None."""
        return self.metric.plane

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the records, metric and labels: the name of this domain for readers of files.

        Labels belong to it: with two of them exchanged a table protects other people.
        """
        if self.labels is None:
            return self.metric.fingerprint
        labels = json.dumps(self.labels, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(f"{self.metric.fingerprint}|{labels}".encode()).hexdigest()

    def triangulated(self) -> Domain:
        """The same places by shortest paths over straight lines, those of the Delaunay
        triangulation: up to rounding never shorter than the straight line, and in a plane less than
        1.998 times as long (Xia 2013); `projection_stretch` bounds what a projection adds."""
        if self.plane is None:
            raise DomainError(f"{self!r} lies in no plane; triangles are over places of an area")
        ends = delaunay(self.plane)
        lengths = self.metric.pairs(ends[:, 0], ends[:, 1])
        places = (self.lat, self.lon) if self.geographic else None
        found = self.from_graph(ends, lengths, places=places, unit=self.unit)
        return found._changed(nodes=self.nodes, labels=self.labels)

    def by_density(self, weights: ArrayLike, people: float) -> Domain:
        """The same graph with lengths in nats: every ball of radius 1 holds `people` of the
        `weights` of its records, so that at epsilon 1 each is hidden among so many.

        For path metrics (`triangulated`, `from_graph`, `city.road_domain`). Weights are public, and
        so is the metric that comes of them (space/paths.py).
        """
        if not isinstance(self.metric, PathMetric):
            raise DomainError(
                f"lengths by density are those of edges, and this domain is {self.metric.kind}; "
                "use triangulated() or city.road_domain()"
            )
        metric = by_density(self.metric, np.asarray(weights, dtype=float), people)
        return self._changed(metric=metric)

    def take(self, indices: ArrayLike) -> Domain:
        """The domain restricted to some of its records, in the given order."""
        chosen = distinct_indices(indices, self.size)
        nodes = None if self.nodes is None else self.nodes[chosen]
        labels = None if self.labels is None else tuple(self.labels[k] for k in chosen.tolist())
        return self._changed(metric=self.metric.take(chosen), nodes=nodes, labels=labels, mesh=None)

    def with_nodes(self, nodes: IntArray) -> Domain:
        """The same domain, remembering the city's node of each record."""
        return self._changed(nodes=nodes)

    def with_labels(self, labels: Iterable[Label]) -> Domain:
        """The same domain with a name for each record, all different.

        >>> ages = Domain.from_vectors([[30.0], [38.0]], unit="years").with_labels([30, 38])
        >>> ages.record(38)
        1
        """
        return self._changed(labels=tuple(labels))

    def record(self, label: Label) -> int:
        """The record of a label; the error does not show it, which is a user's secret."""
        if self.labels is None:
            raise DomainError("this domain has no labels; with_labels(...) gives each record one")
        try:
            return self._by_label[label]
        except (KeyError, TypeError):
            pass
        raise DomainError(f"the label is none of the {self.size} labels of this domain")

    @cached_property
    def _by_label(self) -> dict[Label, int]:
        return {label: k for k, label in enumerate(self.labels or ())}

    @sealed
    def distance(self, x: int, x2: int) -> float:
        """Distance of two records."""
        return float(self.metric.pairs(*check_records([x, x2], self.size)[:, None])[0])

    def distances(self, rows: ArrayLike | None = None, cols: ArrayLike | None = None) -> FloatArray:
        """A block of distances, shape (rows, cols); None means all records."""
        return self.metric.block(self._chosen(rows, "rows"), self._chosen(cols, "cols"))

    def blocks(self, cols: ArrayLike | None = None) -> Iterator[tuple[slice, FloatArray]]:
        """Row blocks of distances to `cols` (all records by default), each of bounded size."""
        target = self._chosen(cols, "cols")
        step = max(1, BLOCK_ENTRIES // max(1, len(target)))
        for start in range(0, self.size, step):
            rows = np.arange(start, min(start + step, self.size))
            yield slice(start, start + len(rows)), self.metric.block(rows, target)

    def _chosen(self, records: ArrayLike | None, name: str) -> IntArray:
        return np.arange(self.size) if records is None else check_indices(records, self.size, name)

    def pairs_within(self, radius: float) -> Iterator[tuple[IntArray, IntArray, FloatArray]]:
        """All pairs i < j at distance at most `radius`, in chunks of (i, j, distance)."""
        if not (is_number(radius) and radius >= 0):
            raise DomainError(f"the radius is {radius!r}; it must be a number, not negative")
        tiles = self.tiles
        near = tiles.pairs(float(np.nextafter(radius, np.inf)))
        for t in range(tiles.count):
            others = near.second[near.starts[t] : near.starts[t + 1]]
            rows = tiles.records(t)
            cols = np.concatenate([tiles.records(other) for other in others[others >= t].tolist()])
            block = self.metric.block(rows, cols)
            # The tile itself comes first: of its pairs, each counts once.
            a, b = np.nonzero(np.triu(block <= radius, 1))
            first, second = np.sort([rows[a], cols[b]], axis=0)
            yield first, second, block[a, b]

    def neighbours(self, count: int) -> tuple[IntArray, FloatArray]:
        """The `count` nearest other records of every record: indices and distances, (K, count)."""
        if not 1 <= count < self.size:
            raise DomainError(
                f"count is {count}; a domain of {self.size} has 1 to {self.size - 1} neighbours"
            )
        everything = np.arange(self.size)[:, None]
        if isinstance(self.metric, PathMetric):
            _, nearest, away = self.metric.balls(np.ones(self.size), count + 1, count + 1)
            indices = nearest[:, 1:]
            distance = away[:, 1:]
        else:
            if self.metric.tree is not None:
                found = self.metric.tree.query(self.metric.embedding, k=count + 1, workers=-1)[1]
                nearest = np.asarray(found, dtype=np.int64)
                itself = nearest == everything
                # Records closer than rounding may push a record out of its own list.
                itself[~itself.any(axis=1), -1] = True
                indices = nearest[~itself].reshape(self.size, count)
            else:
                parts = []
                for rows, block in self.blocks():
                    np.put_along_axis(block, everything[rows], np.inf, axis=1)
                    parts.append(np.argpartition(block, count - 1, axis=1)[:, :count])
                indices = np.concatenate(parts)
            distance = np.empty(indices.shape)

        def sort(part: slice) -> None:
            some = indices[part]
            if not isinstance(self.metric, PathMetric):
                own = np.repeat(everything[part], count)
                distance[part] = self.metric.pairs(own, some.ravel()).reshape(some.shape)
            order = np.lexsort((some, distance[part]), axis=1)
            indices[part], distance[part] = (
                np.take_along_axis(both[part], order, 1) for both in (indices, distance)
            )

        by_slices(sort, self.size, max(1, CACHED_ENTRIES // count))
        return indices, distance

    @overload
    def snap(self, lat: float, lon: float, limit: float) -> Snap: ...
    @overload
    def snap(self, lat: ArrayLike, lon: ArrayLike, limit: float) -> Snaps: ...
    @sealed
    def snap(self, lat: ArrayLike, lon: ArrayLike, limit: float) -> Snap | Snaps:
        """The record nearest to a place, if it lies within `limit` (km); of many, for arrays.

        A place that is not covered is an error; among many it has record -1. Snapping is not
        covered by the mechanism's guarantee: two places p, p' that snap to x, x' are
        epsilon (d(p, p') + snap(p) + snap(p'))-indistinguishable, at most
        epsilon (d(p, p') + 2 limit); under path metrics, which know records alone, they are
        epsilon d(x, x')-indistinguishable. Errors name neither the place nor its distance.

        >>> home = Domain.from_points([41.90, 41.91], [12.49, 12.50])
        >>> home.snap([41.9001, 0.0], [12.4901, 0.0], limit=0.5).record.tolist()
        [0, -1]
        """
        metric = self._haversine("snap")
        if np.ndim(lat) == 0 and np.ndim(lon) == 0:
            return snap_place(metric, lat, lon, limit)
        return snap_places(metric, lat, lon, limit)

    @property
    def values(self) -> FloatArray | None:
        """The numbers that records are, ascending, in a domain `from_values`; else None."""
        metric = self.metric
        if self.labels is None or not isinstance(metric, Euclidean) or metric.vectors.shape[1] > 1:
            return None
        numbers = metric.vectors[:, 0]
        same = np.array_equal(numbers, np.array(self.labels, dtype=object))
        return numbers if same and (np.diff(numbers) > 0).all() else None

    @overload
    def nearest(self, value: float, limit: float) -> Snap: ...
    @overload
    def nearest(self, value: ArrayLike, limit: float) -> Snaps: ...
    @sealed
    def nearest(self, value: ArrayLike, limit: float) -> Snap | Snaps:
        """The record nearest to a number, in a domain `from_values`; of many, for arrays.

        As `snap` is for places: beyond `limit` (in the domain's unit) one number is an error, which
        does not name it, and among many it has record -1.

        >>> ages = Domain.from_values([30, 38, 50], unit="years")
        >>> ages.labels[ages.nearest(36.5, limit=5).record]
        38
        """
        if self.values is None:
            raise DomainError(
                f"nearest needs a domain of numbers (from_values), and this is {self.metric.kind}"
            )
        given = np.atleast_1d(real_numbers(value, "the number", SnapError))
        snapped = snap_values(self.values, given, limit)
        if np.ndim(value):
            return snapped
        return snapped.first(
            f"the number is more than the limit of {limit:g} {self.unit} from every record; "
            "it is not covered by this domain"
        )

    @cached_property
    def tiles(self) -> Tiles:
        """Compact tiles of records, for work over all pairs."""
        return tile(self.metric)

    @cached_property
    def diameter(self) -> float:
        """The largest distance between two records, exactly."""
        if isinstance(self.metric, PathMetric):
            return self.metric.diameter
        tiles = self.tiles
        bound = np.triu(self.tiles.across)
        best = 0.0
        for k in np.argsort(-bound, axis=None):
            a, b = divmod(int(k), tiles.count)
            if bound[a, b] <= best:
                break
            best = max(best, float(self.metric.block(tiles.records(a), tiles.records(b)).max()))
        return best

    def _haversine(self, what: str) -> Haversine:
        places = self.metric.places
        if places is None:
            raise DomainError(
                f"{what} needs places, and this domain is {self.metric.kind}; use from_points"
            )
        return places


def check_labels(labels: Iterable[Label], name: str, error: type[Exception]) -> tuple[Label, ...]:
    """Labels as plain text or numbers, all different."""
    plain = tuple(k.item() if isinstance(k, np.generic) else k for k in labels)
    for k, label in enumerate(plain):
        number = isinstance(label, int | float) and isfinite(label)
        if not (number or (isinstance(label, str) and not CONTROLS.search(label))):
            raise error(f"{name}[{k}] is {label!r:.40}; labels are plain text or finite numbers")
    if len(set(plain)) != len(plain):
        again = next(label for label in plain if plain.count(label) > 1)
        raise error(f"{name} hold {again!r} more than once; labels are all different")
    return plain


def check_indices(
    values: ArrayLike, size: int, name: str, error: type[Exception] = DomainError
) -> IntArray:
    """Whole numbers in 0..size-1 as int64, or an error that names the first offender."""
    array = np.atleast_1d(np.asarray(values))
    if array.ndim != 1:
        raise error(f"{name} has shape {array.shape}; give a flat list of indices")
    if len(array) and not (array.dtype.kind in "iuf" and np.all(array == np.round(array))):
        raise error(f"{name} must be whole numbers, indices into the domain; got {array.dtype}")
    wrong = np.flatnonzero((array < 0) | (array >= size)) if len(array) else array
    if len(wrong):
        raise error(f"{name}[{wrong[0]}] is {array[wrong[0]]}; indices lie in 0..{size - 1}")
    return array.astype(np.int64)


def distinct_indices(
    values: ArrayLike, size: int, error: type[Exception] = DomainError
) -> IntArray:
    """Records of a domain, each named once."""
    chosen = check_indices(values, size, "records", error)
    refuse_few(len(chosen))
    if len(np.unique(chosen)) != len(chosen):
        raise error("a record is named twice; a domain's records are distinct")
    return chosen


def check_record(record: ArrayLike, size: int, error: type[Exception] = DomainError) -> int:
    """A record's index as an int; the error never shows the value, which is a user's secret."""
    return int(check_records(np.asarray(record).reshape(-1)[:1], size, error)[0])


def check_records(records: ArrayLike, size: int, error: type[Exception] = DomainError) -> IntArray:
    """Records' indices; the error shows none of the values, which are users' secrets."""
    try:
        return check_indices(records, size, "records")
    except (ValueError, TypeError):
        pass
    raise error(f"a record is not an index of this domain; records are whole numbers 0..{size - 1}")


def _places(lat: ArrayLike, lon: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Latitudes and longitudes of records, the latter in [-180, 180)."""
    lats, lons = place_columns(lat, lon, DomainError)
    check_places(lats, lons)
    lons = np.where(lons >= 180, lons - 360, lons)
    # Squares of such degrees underflow; as a length they are nothing.
    lats, lons = (np.where(np.abs(c) < SMALLEST_DEGREES, 0.0, c) for c in (lats, lons))
    return lats, lons
