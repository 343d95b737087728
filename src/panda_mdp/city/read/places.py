"""Places without streets: points, zones and cells become the records of a domain."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from panda_mdp.base.arrays import FloatArray
from panda_mdp.city.read.layers import Layer, Shapes, frame_layer, read_layers, to_degrees
from panda_mdp.city.read.network import need
from panda_mdp.errors import FileFormatError, InvalidInputError
from panda_mdp.space.domain import Domain

LATS, LONS = ("lat", "latitude", "y"), ("lon", "lng", "long", "longitude", "x")
S2_LEAF_LEVEL = 30
NAMES = ("name", "label", "zone", "id", "code")
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
        return _from_layer(frame_layer(source), name, inside, crs, "the frame")
    if hasattr(source, "columns"):
        columns = {str(c): list(source[c]) for c in source.columns}
        return _from_columns(columns, name, "the frame")
    path = Path(source)
    if path.suffix.lower() == ".csv":
        with path.open(encoding="utf-8-sig", newline="") as stream:
            rows = list(csv.DictReader(stream))
        columns = {key: [row[key] for row in rows] for key in (rows[0] if rows else {})}
        return _from_columns(columns, name, path.name)
    layers = [layer for layer in read_layers(path) if layer.kind in ("point", "polygon")]
    if not layers:
        msg = f"{path.name} has no layer of points or polygons"
        raise FileFormatError(msg)
    return _from_layer(layers[0], name, inside, crs, path.name)


def cells(ids: Sequence[str]) -> Places:
    """H3 cells by their ids: records at the cells' centres, outlines for pictures."""
    try:
        import h3
        import shapely
    except ImportError as error:
        raise need("h3", "H3 cells", "geo") from error
    wrong = next((cell for cell in ids if not h3.is_valid_cell(str(cell))), None)
    if wrong is not None:
        msg = f"{str(wrong)[:20]!r} is no H3 cell"
        raise InvalidInputError(msg)
    centres = np.array([h3.cell_to_latlng(str(cell)) for cell in ids]).reshape(-1, 2)
    rings = [[(lon, lat) for lat, lon in h3.cell_to_boundary(str(cell))] for cell in ids]
    shapes = np.array([shapely.Polygon(ring) for ring in rings], dtype=object)
    domain = Domain.from_points(centres[:, 0], centres[:, 1])
    return _named(domain, tuple(map(str, ids)), shapes)


def s2_cells(ids: Sequence[int | str]) -> Places:
    """S2 cells by their ids (whole numbers, signed or not) or tokens (texts), as records.

    Records lie at the cells' centres. An outline joins the leaf cells in a cell's four corners: a
    centimetre from its own corners, and straight where its edges bend a little.
    """
    try:
        import s2cell
        import shapely
    except ImportError as error:
        raise need("s2cell", "S2 cells", "geo") from error
    numbers = []
    for cell in ids:
        if isinstance(cell, str) and not s2cell.token_is_valid(cell):
            msg = f"{cell[:20]!r} is no S2 cell; texts are tokens, whole numbers are ids"
            raise InvalidInputError(msg)
        number = s2cell.token_to_cell_id(cell) if isinstance(cell, str) else int(cell) % 2**64
        if not s2cell.cell_id_is_valid(number):
            msg = f"{cell} is no S2 cell"
            raise InvalidInputError(msg)
        numbers.append(number)

    def outline(number: int) -> Any:
        size = 1 << (S2_LEAF_LEVEL - s2cell.cell_id_to_level(number))
        face, i, j = s2cell.s2_cell_id_to_face_ij(number)
        left, low = i & -size, j & -size
        right, high = left + size - 1, low + size - 1
        ring = ((left, low), (right, low), (right, high), (left, high))
        leaves = (s2cell.s2_face_ij_to_cell_id(face, *corner, S2_LEAF_LEVEL) for corner in ring)
        return shapely.Polygon([s2cell.cell_id_to_lat_lon(leaf)[::-1] for leaf in leaves])

    centres = np.array([s2cell.cell_id_to_lat_lon(number) for number in numbers]).reshape(-1, 2)
    shapes = np.array([outline(number) for number in numbers], dtype=object)
    domain = Domain.from_points(centres[:, 0], centres[:, 1])
    return _named(domain, tuple(map(s2cell.cell_id_to_token, numbers)), shapes)


def _from_columns(columns: dict[str, list[Any]], name: str | None, source: str) -> Places:
    lower = {key.lower(): key for key in columns}
    if "h3" in lower or "h3_cell" in lower:
        return cells(columns[lower.get("h3", lower.get("h3_cell", ""))])
    if "s2" in lower or "s2_token" in lower:
        return s2_cells(columns[lower.get("s2", lower.get("s2_token", ""))])
    if "s2_id" in lower:
        return s2_cells([int(cell) for cell in columns[lower["s2_id"]]])
    lat = next((columns[lower[n]] for n in LATS if n in lower), None)
    lon = next((columns[lower[n]] for n in LONS if n in lower), None)
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
    layer: Layer, name: str | None, inside: Inside, crs: str | None, source: str
) -> Places:
    import shapely

    if any(shape is None for shape in layer.shapes):
        msg = f"{source} has rows without a shape; leave them out"
        raise FileFormatError(msg)
    polygons = layer.kind == "polygon"
    middle = shapely.point_on_surface if inside == "representative" else shapely.centroid
    points = middle(layer.shapes) if polygons else shapely.centroid(layer.shapes)
    lon, lat = to_degrees(shapely.get_x(points), shapely.get_y(points), crs or layer.crs, source)
    outlines = None
    if polygons:
        said = crs or layer.crs
        outlines = shapely.transform(
            layer.shapes, lambda xy: np.stack(to_degrees(xy[:, 0], xy[:, 1], said, source), axis=1)
        )
    names = _names(dict(layer.columns), name, len(layer), source)
    return _distinct(lat, lon, names, outlines)


def _names(columns: dict[str, Any], name: str | None, count: int, source: str) -> tuple[str, ...]:
    if name is not None and name not in columns:
        msg = f"{source} has no column {name!r} among {', '.join(columns)}"
        raise FileFormatError(msg)
    lower = {key.lower(): key for key in columns}
    chosen = name or next((lower[n] for n in NAMES if n in lower), None)
    return tuple(str(v) for v in (range(count) if chosen is None else columns[chosen]))


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
