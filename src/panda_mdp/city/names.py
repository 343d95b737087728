"""Names of streets and landmarks, for people who look for a place on a map.

Streets from OpenStreetMap extracts (names of roads); both from a `.csv` with columns name, lat, lon
and, if wanted, kind. A street's name stands at the middle
of its longest piece; longer streets come first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from operator import itemgetter
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


Piece = tuple[str, float, float, float]
"""A name with the middle of a piece of street, and its length in km."""


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
        return _longest_first(_osm_pieces(path))
    return []


def _longest_first(pieces: Iterable[Piece]) -> list[PlaceName]:
    """One label for each name: at its longest piece; the longest street first."""
    lengths: defaultdict[str, float] = defaultdict(float)
    longest: dict[str, tuple[float, float]] = {}
    for name, lat, lon, length in sorted(pieces, key=itemgetter(3)):
        lengths[name] += length
        longest[name] = (lat, lon)
    ranked = sorted(lengths, key=lambda name: (-lengths[name], name))
    return [PlaceName(name, *longest[name], "street") for name in ranked]


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


def _osm_pieces(path: Path) -> Iterable[Piece]:
    (roads,) = read_layers(path, "lines", where="highway IS NOT NULL AND name IS NOT NULL")
    # In metres of the mean latitude: a degree of longitude is shorter than one of latitude.
    flat = roads.geometry.to_crs(roads.estimate_utm_crs()) if len(roads) else roads.geometry
    middle = flat.interpolate(0.5, normalized=True).to_crs(4326)
    yield from zip(roads["name"], middle.y, middle.x, flat.length / 1000, strict=True)
