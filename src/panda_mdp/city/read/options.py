"""What to take from a map: which network, which area."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from panda_mdp.errors import CityError

Network = Literal["drive", "walk", "bike"]


@dataclass(frozen=True)
class MapOptions:
    """`network` chooses who travels; `bbox` is (south, west, north, east) in degrees.

    `simplify` contracts chains of nodes that are no junctions; None does so for files that still
    have them. `largest` keeps the largest connected part only.
    """

    network: Network = "drive"
    bbox: tuple[float, float, float, float] | None = None
    simplify: bool | None = None
    largest: bool = True

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
