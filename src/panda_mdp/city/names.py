"""Names of streets and landmarks, for people who look for a place on a map.

Streets from OpenStreetMap extracts (names of roads); both from a `.csv` with columns name, lat, lon
and, if wanted, kind. A street's name stands at the middle
of its longest piece; longer streets come first.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from panda_mdp.city.layers import OSM, read_layers
from panda_mdp.city.places import read_columns, read_points
from panda_mdp.errors import FileFormatError

Kind = Literal["street", "landmark"]


@dataclass(frozen=True)
class PlaceName:
    """A name, and where it stands in degrees."""

    name: str
    lat: float
    lon: float
    kind: Kind


def read_names(path: Path) -> list[PlaceName]:
    """The names of a map; none where its format holds none.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "names.csv"
    ...     _ = file.write_text("name,lat,lon,kind\\nGhirlandina,44.6463,10.9258,landmark\\n")
    ...     read_names(file)
    [PlaceName(name='Ghirlandina', lat=44.6463, lon=10.9258, kind='landmark')]
    """
    name = path.name.lower()
    if name.endswith(".csv"):
        return _read_csv(path)
    if name.endswith(OSM):
        return _streets(path)
    return []


def _read_csv(path: Path) -> list[PlaceName]:
    columns = read_columns(path)
    if not {"name", "lat", "lon"} <= columns.keys():
        raise FileFormatError(f"{path.name} needs the columns name, lat and lon")
    lon, lat = read_points(columns, path.name)
    kinds: list[Kind] = [
        "landmark" if kind.strip() == "landmark" else "street"
        for kind in columns.get("kind", [""] * len(lat))
    ]
    rows = zip(columns["name"], lat.tolist(), lon.tolist(), kinds, strict=True)
    return [PlaceName(name.strip(), *row) for name, *row in rows if name.strip()]


def _streets(path: Path) -> list[PlaceName]:
    """One label for each name: at the middle of its longest piece; the longest street first."""
    (roads,) = read_layers(path, "lines", where="highway IS NOT NULL AND name IS NOT NULL")
    if not len(roads):
        return []
    # In metres of the mean latitude: a degree of longitude is shorter than one of latitude.
    flat = roads.geometry.to_crs(roads.estimate_utm_crs())
    middle = flat.interpolate(0.5, normalized=True).to_crs(4326)
    pieces = roads[["name"]].assign(lat=middle.y, lon=middle.x, length=flat.length)
    streets = pieces.sort_values("length").groupby("name")
    ranked = streets.last().assign(whole=streets["length"].sum())
    ranked = ranked.sort_values("whole", ascending=False, kind="stable")
    rows = zip(ranked.index, ranked["lat"], ranked["lon"], strict=True)
    return [PlaceName(name, lat, lon, "street") for name, lat, lon in rows]
