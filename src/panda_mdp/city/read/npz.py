"""Cities as NumPy archives: the project's own format."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

import numpy as np

from panda_mdp.city.city import City
from panda_mdp.city.write.npz import OPTIONAL, REQUIRED
from panda_mdp.errors import CityError, FileFormatError


def load_npz(path: Path) -> City:
    """Read a city from `.npz`; what is missing, damaged or not a network is named."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            missing = [name for name in REQUIRED if name not in archive]
            if missing:
                msg = (
                    f"{path.name} has no array {', '.join(missing)}; "
                    f"a city holds {', '.join(REQUIRED)}"
                )
                raise FileFormatError(msg)
            arrays = {name: archive[name] for name in REQUIRED}
            extra = {name: archive[name] for name in OPTIONAL if name in archive}
            name = str(archive["name"]) if "name" in archive else path.stem
    except (zipfile.BadZipFile, zlib.error, EOFError, TypeError, AttributeError) as error:
        msg = f"{path.name} is damaged or not an .npz archive ({error})"
        raise FileFormatError(msg) from error
    except ValueError as error:
        if isinstance(error, FileFormatError):
            raise
        msg = f"{path.name} is damaged or holds objects instead of numbers ({error})"
        raise FileFormatError(msg) from error
    try:
        return City(
            arrays["lat"],
            arrays["lon"],
            arrays["u"],
            arrays["v"],
            arrays["length_m"],
            oneway=extra.get("oneway"),
            speed_kmh=extra.get("speed_kmh"),
            osmid=extra.get("osmid"),
            name=name,
        )
    except (CityError, TypeError, ValueError) as error:
        msg = f"{path.name} does not hold a road network: {error}"
        raise FileFormatError(msg) from error
