"""What to take from a map: which network, which area."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from panda_mdp.errors import CityError

Network = Literal["drive", "walk", "bike"]
METRES = {"m": 1.0, "km": 1000.0, "ft": 0.3048, "mi": 1609.344}
"""Units in which a table may give the lengths of streets."""


@dataclass(frozen=True)
class MapOptions:
    """`network` chooses who travels; `bbox` is (south, west, north, east) in degrees.

    `simplify` contracts chains of nodes that are no junctions; None does so for files that still
    have them. `largest` keeps the largest connected part only. `crs` is the reference system of
    coordinates that name none or the wrong one (`EPSG:32632`), `length_unit` that of a column of
    lengths: m, km, ft or mi.
    """

    network: Network = "drive"
    bbox: tuple[float, float, float, float] | None = None
    simplify: bool | None = None
    largest: bool = True
    crs: str | None = None
    length_unit: str = "m"

    def __post_init__(self) -> None:
        if self.network not in ("drive", "walk", "bike"):
            msg = f"network is {self.network!r}; choose 'drive', 'walk' or 'bike'"
            raise CityError(msg)
        if self.bbox is not None:
            south, west, north, east = self.bbox
            if not (-90 <= south < north <= 90 and -180 <= west < east <= 180):
                msg = (
                    f"bbox is {self.bbox}; it is south, west, north, east in degrees, "
                    "south below north and west below east"
                )
                raise CityError(msg)
        if self.length_unit not in METRES:
            msg = f"length_unit is {self.length_unit!r}; choose one of {', '.join(METRES)}"
            raise CityError(msg)

    @property
    def metres(self) -> float:
        """Metres in a unit of length."""
        return METRES[self.length_unit]
