"""Places without streets: points, zones and cells become the records of a domain."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from panda_mdp.base.arrays import FloatArray
from panda_mdp.base.packages import need
from panda_mdp.city.layers import Frame, Shapes, read_layers, shape_kind
from panda_mdp.city.network import to_degrees
from panda_mdp.city.traces import COLUMNS
from panda_mdp.errors import FileFormatError, InvalidInputError
from panda_mdp.space.domain import Domain

NAMES = ("name", "label", "zone", "id", "code")
S2_LEAF_LEVEL = 30
Inside = Literal["representative", "centroid"]


@dataclass(frozen=True, eq=False)
class Places:
    """Records of a domain with the names and the outlines that they came with."""

    domain: Domain
    names: tuple[str, ...]
    """One per record; numbers from 0 where the source names none."""
    shapes: Shapes | None = None
    """Outlines in longitude and latitude (shapely), where records are zones or cells."""

    def __len__(self) -> int:
        return len(self.domain)

    def __repr__(self) -> str:
        kind = "points" if self.shapes is None else "zones"
        return f"Places({len(self):,} {kind})"

    def record(self, name: str) -> int:
        """The record of a name."""
        if name not in self.names:
            msg = f"there is no place of that name among {len(self):,}"
            raise InvalidInputError(msg)
        return self.names.index(name)


def load_places(
    source: Any,
    *,
    name: str | None = None,
    inside: Inside = "representative",
    crs: str | None = None,
) -> Places:
    """Points, polygons or zones from a file or frame, as records.

    A file is a `.csv` of points (columns `lat` and `lon`), of H3 cells (column `h3`) or of S2 cells
    (columns `s2` of tokens or `s2_id` of numbers), or any that `load_city` reads
    through layers: GeoPackage, shapefile, GeoJSON, GeoParquet. A frame is a GeoDataFrame, a
    GeoSeries or a DataFrame. `name` is the column of names. A zone stands where its representative
    point is, which lies inside it, or its centroid, which may not.
    """
    if inside not in ("representative", "centroid"):
        msg = f"inside is {inside!r}; choose 'representative' or 'centroid'"
        raise InvalidInputError(msg)
    if hasattr(source, "geometry"):
        return _from_layer(source, name, inside, crs, "the frame")
    if hasattr(source, "columns"):
        return _from_columns({str(c): list(source[c]) for c in source.columns}, name, "the frame")
    path = Path(source)
    if path.suffix.lower() == ".csv":
        with path.open(encoding="utf-8-sig", newline="") as stream:
            rows = list(csv.DictReader(stream))
        columns = {key: [row[key] for row in rows] for key in (rows[0] if rows else {})}
        return _from_columns(columns, name, path.name)
    layers = [layer for layer in read_layers(path) if shape_kind(layer) in ("point", "polygon")]
    if not layers:
        msg = f"{path.name} has no layer of points or polygons"
        raise FileFormatError(msg)
    return _from_layer(layers[0], name, inside, crs, path.name)


def cells(ids: Sequence[str]) -> Places:
    """H3 cells by their ids: records at the cells' centres, outlines for pictures."""
    h3 = need("h3", "H3 cells", "geo")
    wrong = next((cell for cell in ids if not h3.is_valid_cell(str(cell))), None)
    if wrong is not None:
        msg = f"{str(wrong)[:20]!r} is no H3 cell"
        raise InvalidInputError(msg)
    names = tuple(map(str, ids))
    return _cells(
        names, [h3.cell_to_latlng(cell) for cell in names], map(h3.cell_to_boundary, names)
    )


def s2_cells(ids: Sequence[int | str]) -> Places:
    """S2 cells by their ids (whole numbers, signed or not) or tokens (texts), as records.

    Records lie at the cells' centres. An outline joins the leaf cells in a cell's four corners: a
    centimetre from its own corners, and straight where its edges bend a little.
    """
    s2cell = need("s2cell", "S2 cells", "geo")
    numbers = []
    for cell in ids:
        token = cell if isinstance(cell, str) else s2cell.cell_id_to_token(int(cell) % 2**64)
        if not s2cell.token_is_valid(token):
            msg = f"{str(cell)[:20]!r} is no S2 cell; texts are tokens, whole numbers are ids"
            raise InvalidInputError(msg)
        numbers.append(s2cell.token_to_cell_id(token))

    def outline(number: int) -> list[tuple[float, float]]:
        size = 1 << (S2_LEAF_LEVEL - s2cell.cell_id_to_level(number))
        face, i, j = s2cell.s2_cell_id_to_face_ij(number)
        left, low = i & -size, j & -size
        right, high = left + size - 1, low + size - 1
        ring = ((left, low), (right, low), (right, high), (left, high))
        leaves = (s2cell.s2_face_ij_to_cell_id(face, *corner, S2_LEAF_LEVEL) for corner in ring)
        return [s2cell.cell_id_to_lat_lon(leaf) for leaf in leaves]

    names = tuple(map(s2cell.cell_id_to_token, numbers))
    return _cells(names, list(map(s2cell.cell_id_to_lat_lon, numbers)), map(outline, numbers))


def _cells(
    names: tuple[str, ...],
    centres: Sequence[tuple[float, float]],
    rings: Iterable[Sequence[tuple[float, float]]],
) -> Places:
    shapely = need("shapely", "the outlines of cells", "geo")
    lat, lon = np.array(centres, dtype=np.float64).reshape(-1, 2).T
    shapes = np.array([shapely.Polygon([place[::-1] for place in ring]) for ring in rings], object)
    return _named(Domain.from_points(lat, lon), names, shapes)


def _from_columns(columns: Mapping[str, Sequence[Any]], name: str | None, source: str) -> Places:
    def column(*names: str) -> Sequence[Any] | None:
        lower = {key.lower(): key for key in columns}
        return next((columns[lower[name]] for name in names if name in lower), None)

    if (ids := column("h3", "h3_cell")) is not None:
        return cells(ids)
    if (ids := column("s2", "s2_token")) is not None:
        return s2_cells(ids)
    if (ids := column("s2_id")) is not None:
        return s2_cells([int(cell) for cell in ids])
    lat, lon = column(*COLUMNS["lat"]), column(*COLUMNS["lon"])
    if lat is None or lon is None:
        msg = f"{source} has no columns lat and lon (nor h3 or s2) among {', '.join(columns)}"
        raise FileFormatError(msg)
    try:
        north, east = np.array(lat, dtype=np.float64), np.array(lon, dtype=np.float64)
    except ValueError as error:
        msg = f"{source} has latitudes or longitudes that are no numbers"
        raise FileFormatError(msg) from error
    to_degrees(east, north, None, source)
    return _distinct(north, east, _names(columns, name, len(north), source), None)


def _from_layer(
    layer: Frame, name: str | None, inside: Inside, crs: str | None, source: str
) -> Places:
    shapely = need("shapely", "reading shapes", "geo")
    shapes = layer.geometry.to_numpy()
    if layer.geometry.isna().any():
        msg = f"{source} has rows without a shape; leave them out"
        raise FileFormatError(msg)
    polygons = shape_kind(layer) == "polygon"
    point = (
        shapely.point_on_surface if polygons and inside == "representative" else shapely.centroid
    )

    def degrees(xy: FloatArray) -> FloatArray:
        return np.stack(to_degrees(xy[:, 0], xy[:, 1], crs or layer.crs, source), axis=1)

    lon, lat = degrees(shapely.get_coordinates(point(shapes))).T
    outlines = shapely.transform(shapes, degrees) if polygons else None
    columns = {str(c): layer[c].tolist() for c in getattr(layer, "columns", ()) if c != "geometry"}
    return _distinct(lat, lon, _names(columns, name, len(layer), source), outlines)


def _names(
    columns: Mapping[str, Sequence[Any]], name: str | None, count: int, source: str
) -> tuple[str, ...]:
    if name is not None and name not in columns:
        msg = f"{source} has no column {name!r} among {', '.join(columns)}"
        raise FileFormatError(msg)
    lower = {key.lower(): key for key in columns}
    used = name or next((lower[n] for n in NAMES if n in lower), None)
    return tuple(str(v) for v in (range(count) if used is None else columns[used]))


def _distinct(
    lat: FloatArray, lon: FloatArray, names: tuple[str, ...], shapes: Shapes | None
) -> Places:
    """Equal places are one record, under the first name."""
    domain = Domain.from_points(lat, lon, merge=True)
    merged = np.arange(len(lat)) if domain.merged is None else domain.merged
    first = np.unique(merged, return_index=True)[1]
    outlines = None if shapes is None else shapes[first]
    return _named(
        Domain.from_points(lat[first], lon[first]), tuple(names[k] for k in first), outlines
    )


def _named(domain: Domain, names: tuple[str, ...], shapes: Shapes | None) -> Places:
    """Records are called by their names where no two have the same, and where they have any."""
    distinct = len(set(names)) == len(names) and names[:1] != ("0",)
    return Places(domain.with_labels(names) if distinct else domain, names, shapes)
