"""Maps in: road networks from files, each format in its own module."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from panda_mdp.city import City
from panda_mdp.errors import FileFormatError
from panda_mdp.maps.options import MapOptions


@dataclass(frozen=True)
class MapReport:
    """A city read from a map, and what was left out of it."""

    city: City
    source: str
    dropped_nodes: int = 0
    """Junctions outside the largest connected part."""


def read_map(path: Path, options: MapOptions | None = None) -> MapReport:
    """Read a map of any known format; the suffix decides."""
    from panda_mdp.maps.npz import load_npz

    if not path.exists():
        msg = f"{path} does not exist"
        raise FileNotFoundError(msg)
    if path.suffix == ".npz":
        return MapReport(load_npz(path), "npz")
    msg = f"{path.name} has an unknown suffix; known: .npz"
    raise FileFormatError(msg)


__all__ = ["MapOptions", "MapReport", "read_map"]
