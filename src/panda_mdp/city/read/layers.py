"""Layers of geographic files and frames: columns and shapes, in degrees whatever they were in."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.city.read.network import need
from panda_mdp.errors import FileFormatError

Shapes = npt.NDArray[np.object_]
DEGREES = "EPSG:4326"
VECTOR = (".gpkg", ".shp", ".geojson", ".fgb", ".zip")
"""What pyogrio is asked to read; a `.zip` holds a shapefile."""


@dataclass(frozen=True)
class Layer:
    """Rows of one layer: named columns, and a shapely geometry each (None where there is none)."""

    name: str
    columns: dict[str, Sequence[Any]]
    shapes: Shapes
    crs: str | None
    """The reference system that the file names; None where it names none."""

    def __len__(self) -> int:
        return len(self.shapes)

    def column(self, *names: str) -> Sequence[Any] | None:
        """The first of some columns that there is; names in any case."""
        lower = {name.lower(): name for name in self.columns}
        return next((self.columns[lower[name]] for name in names if name in lower), None)

    @property
    def kind(self) -> str:
        """`point`, `line`, `polygon` or `none`: what most of its shapes are."""
        import shapely

        sort = shapely.get_dimensions(self.shapes)
        present = sort[sort >= 0]
        if len(present) == 0:
            return "none"
        return ("point", "line", "polygon")[int(np.bincount(present).argmax())]


def read_layers(path: Path) -> list[Layer]:
    """All layers of a GeoPackage, shapefile, GeoJSON or FlatGeobuf, or the one of a GeoParquet."""
    if path.suffix.lower() in (".parquet", ".geoparquet"):
        return [_parquet_layer(path)]
    try:
        import pyogrio
        import shapely
    except ImportError as error:
        raise need("pyogrio", f"reading {path.suffix} files", "geo") from error
    layers = []
    try:
        # GDAL warns of oddities before it fails; what counts is said in the error.
        with warnings.catch_warnings(action="ignore"):
            for name, _ in pyogrio.list_layers(path):
                meta, _, shapes, values = pyogrio.raw.read(path, layer=str(name))
                named = zip(map(str, meta["fields"]), values, strict=True)
                columns = {label: column.tolist() for label, column in named}
                drawn = shapely.from_wkb(shapes) if shapes is not None else [None] * _rows(values)
                layers.append(Layer(str(name), columns, np.asarray(drawn, object), meta["crs"]))
    except (pyogrio.errors.DataSourceError, pyogrio.errors.DataLayerError, ValueError) as error:
        msg = f"{path.name} is damaged or of a foreign format ({str(error).splitlines()[0]})"
        raise FileFormatError(msg) from error
    return layers


def _rows(values: Sequence[Any]) -> int:
    return len(values[0]) if len(values) else 0


def _parquet_layer(path: Path) -> Layer:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise need("pyarrow", "reading GeoParquet", "geo") from error
    try:
        table = pyarrow.parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        msg = f"{path.name} is damaged or no Parquet file ({error})"
        raise FileFormatError(msg) from error
    return arrow_layer(path.stem, table)


def arrow_layer(name: str, table: Any) -> Layer:
    """An Arrow table as a layer; its geometry as GeoParquet's metadata says, or `geometry`."""
    import json

    notes = json.loads((table.schema.metadata or {}).get(b"geo", b"{}"))
    shape = notes.get("primary_column", "geometry")
    crs = None
    if notes:
        said = notes.get("columns", {}).get(shape, {}).get("crs", "absent")
        # GeoParquet: without the key it is longitude and latitude; null is unknown.
        crs = DEGREES if said == "absent" else (None if said is None else json.dumps(said))
    columns = {label: table[label].to_pylist() for label in table.column_names if label != shape}
    shapes: Shapes = np.full(table.num_rows, None, dtype=object)
    if shape in table.column_names:
        import shapely

        shapes = np.asarray(shapely.from_wkb(table[shape].to_pylist()), dtype=object)
    return Layer(name, columns, shapes, crs)


def frame_layer(frame: Any) -> Layer:
    """A GeoDataFrame or GeoSeries as a layer."""
    shapes = frame.geometry
    crs = None if shapes.crs is None else shapes.crs.to_string()
    columns: dict[str, Sequence[Any]] = {}
    if getattr(frame, "columns", None) is not None:
        flat = frame.reset_index() if frame.index.names != [None] else frame
        columns = {str(c): list(flat[c]) for c in flat.columns if c != shapes.name}
    return Layer("frame", columns, np.asarray(shapes.array, dtype=object), crs)


@dataclass(frozen=True)
class Coordinates:
    """Vertices of shapes: longitude, latitude in degrees, and the shape that each belongs to."""

    lon: FloatArray
    lat: FloatArray
    shape: IntArray
    x: FloatArray
    """As the file has them; equal ones are the same place."""
    y: FloatArray


def vertices(layer: Layer, shapes: Shapes, crs: str | None, source: str) -> Coordinates:
    """The vertices of shapes, in degrees. `crs` is said by the user and outranks the file."""
    import shapely

    flat, shape = shapely.get_coordinates(shapes, return_index=True)
    x, y = flat[:, 0].copy(), flat[:, 1].copy()
    lon, lat = to_degrees(x, y, crs or layer.crs, f"{source}, layer {layer.name}")
    return Coordinates(lon, lat, np.asarray(shape, dtype=np.int64), x, y)


def to_degrees(
    x: FloatArray, y: FloatArray, crs: str | None, source: str
) -> tuple[FloatArray, FloatArray]:
    """Longitude and latitude of coordinates in a reference system; None stands for degrees."""
    if len(x) == 0:
        return x, y
    if crs is None or crs == DEGREES:
        if _degrees(x, y):
            return x, y
        raise FileFormatError(_no_degrees(x, y, crs, source))
    try:
        import pyproj
    except ImportError as error:
        raise need("pyproj", "another reference system than degrees", "geo") from error
    try:
        system = pyproj.CRS.from_user_input(crs)
        turn = pyproj.Transformer.from_crs(system, DEGREES, always_xy=True)
        lon, lat = turn.transform(x, y)
    except pyproj.exceptions.ProjError as error:
        msg = f"the reference system {crs[:40]!r} of {source} is not known ({error})"
        raise FileFormatError(msg) from error
    if not _degrees(lon, lat):
        described = system.name if system.is_geographic else f"{system.name}, {_unit(system)}"
        msg = (
            f"coordinates of {source} do not fit its reference system ({described}); "
            "say the right one: crs='EPSG:...' (--crs)"
        )
        raise FileFormatError(msg)
    return np.asarray(lon), np.asarray(lat)


def _unit(system: Any) -> str:
    return f"in {system.axis_info[0].unit_name}s" if system.axis_info else "unit unknown"


def _degrees(lon: FloatArray, lat: FloatArray) -> bool:
    return bool((np.abs(lat) <= 90).all() and ((lon >= -180) & (lon <= 360)).all())


def _no_degrees(x: FloatArray, y: FloatArray, crs: str | None, source: str) -> str:
    if _degrees(y, x):
        return (
            f"{source} has latitude and longitude exchanged: x is the longitude, y the latitude; "
            "write it again in that order"
        )
    said = "names no reference system" if crs is None else f"says {crs}"
    return (
        f"{source} {said}, but its coordinates are no degrees (metres or feet of a projection?); "
        "say which: crs='EPSG:...' (--crs)"
    )
