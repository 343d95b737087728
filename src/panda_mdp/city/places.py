"""Places without streets: points and zones become the records of a domain."""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from panda_mdp.base.arrays import FloatArray
from panda_mdp.base.packages import need
from panda_mdp.base.text import Facts
from panda_mdp.city.city import distinct_places
from panda_mdp.city.layers import Frame, Shapes, find_name, read_layers, shape_kind, system_of
from panda_mdp.city.network import to_degrees
from panda_mdp.city.traces import COLUMNS
from panda_mdp.errors import FileFormatError
from panda_mdp.space.domain import Domain

NAMES = ("name", "label", "zone", "id", "code")


@dataclass(frozen=True, eq=False)
class Places:
    """Records of a domain with the names and the outlines that they came with."""

    domain: Domain
    names: tuple[str, ...]
    """One per record; numbers from 0 where the source names none."""
    shapes: Shapes | None = None
    """Outlines in longitude and latitude (shapely), where records are zones."""

    def __len__(self) -> int:
        return len(self.domain)

    def __repr__(self) -> str:
        kind = "points" if self.shapes is None else "zones"
        return f"Places({len(self):,} {kind})"


def load_places(source: Any, *, name: str | None = None, crs: str | None = None) -> Places:
    """Points, polygons or zones from a file or frame, as records; equal places are one record.

    A file is a `.csv` of points (columns `lat` and `lon`), or any that `load_city` reads through
    layers: GeoPackage, shapefile, GeoJSON, GeoParquet. A frame is a GeoDataFrame, a GeoSeries or a
    DataFrame. `name` is the column of names. A zone stands where its representative point is, which
    lies inside it.
    """
    table = source
    title = "the frame"
    if isinstance(source, str | os.PathLike):
        table = _read(path := Path(source))
        title = path.name
    listed = table if isinstance(table, dict) else getattr(table, "columns", ())
    columns = {str(column): list(table[column]) for column in listed}
    used = name or find_name(columns, *NAMES)
    if used is not None and used not in columns:
        raise FileFormatError(f"{title} has no column {name!r} among {', '.join(columns)}")
    shapes = None
    system = crs
    if hasattr(table, "geometry"):
        shapes = table.geometry.to_numpy()
        system = system_of(table, crs, title)
        if table.geometry.isna().any():
            raise FileFormatError(f"{title} has rows without a shape; leave them out")
    if shapes is None:
        x, y = read_points(columns, title)
    else:
        shapely = need("shapely", "reading shapes", "geo")
        x, y = shapely.get_coordinates(shapely.point_on_surface(shapes)).T
    lon, lat = to_degrees(x, y, system, title)
    first = distinct_places(lat, lon)
    domain = Domain.from_points(lat[first], lon[first])
    names = tuple(str(columns[used][k]) if used else str(k) for k in first.tolist())
    if used and len(set(names)) == len(names):
        domain = domain.with_labels(names)
    if shapes is None or shapely.get_dimensions(shapes).max() < 2:
        return Places(domain, names)
    turned = shapely.transform(
        shapes[first], lambda xy: np.column_stack(to_degrees(xy[:, 0], xy[:, 1], system, title))
    )
    return Places(domain, names, turned)


def _read(path: Path) -> Frame | dict[str, list[str]]:
    if path.suffix.lower() == ".csv":
        return read_columns(path)
    for layer in read_layers(path):
        if shape_kind(layer) in ("point", "polygon"):
            return layer
    raise FileFormatError(f"{path.name} has no layer of points or polygons")


def read_columns(path: Path) -> dict[str, list[str]]:
    """The columns of a `.csv` by name; of rows that are too short the rest is empty."""
    with path.open(encoding="utf-8-sig", newline="") as stream:
        rows = list(csv.DictReader(stream, restval=""))
    return {key: [row[key] for row in rows] for key in (rows[0] if rows else {})}


def read_points(columns: Facts, title: str) -> FloatArray:
    """Longitudes and latitudes among columns, (2, n)."""
    found = [find_name(columns, *COLUMNS[kind]) for kind in ("lon", "lat")]
    if None in found:
        raise FileFormatError(f"{title} has no columns lat and lon among {', '.join(columns)}")
    try:
        return np.array([columns[name] for name in found], dtype=float)
    except ValueError as error:
        raise FileFormatError(
            f"{title} has latitudes or longitudes that are no numbers ({error}); correct them"
        ) from error
