"""Cities as NumPy archives: the project's own format."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from panda_mdp.base.atomic import atomic_file

if TYPE_CHECKING:
    from panda_mdp.city.city import City

REQUIRED = ("lat", "lon", "u", "v", "length_m")
OPTIONAL = ("oneway", "speed_kmh", "osmid")


def save_npz(city: City, path: Path) -> Path:
    """Write a city as compressed `.npz`; a reader never sees half a file."""
    arrays = {name: getattr(city, name) for name in REQUIRED}
    arrays |= {name: getattr(city, name) for name in OPTIONAL if getattr(city, name) is not None}
    with atomic_file(path) as stream:
        np.savez_compressed(stream, allow_pickle=False, name=np.array(city.name), **arrays)
    return path
