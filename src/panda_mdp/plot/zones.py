"""Zones as they are: polygons with holes and parts, in km, filled by a value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from panda_mdp.base.arrays import FloatArray
from panda_mdp.city.read.places import Places
from panda_mdp.errors import DomainError
from panda_mdp.plot.positions import Plane
from panda_mdp.plot.style import PALE

if TYPE_CHECKING:
    from matplotlib.collections import PathCollection

Outline = list[FloatArray]
"""Rings of one zone, (n, 2) in km: those of holes turn the other way."""


def outlines_of(zones: Places | None, size: int, plane: Plane) -> list[Outline] | None:
    """The rings of every record's zone, or None where there are no zones to draw."""
    if zones is None or zones.shapes is None:
        return None
    if len(zones.shapes) != size:
        msg = (
            f"the table has {size} records and there are {len(zones.shapes)} zones; "
            "give the places that its domain was made from"
        )
        raise DomainError(msg)
    import shapely

    # Matplotlib fills where rings wind around: normalised, a hole winds back.
    shapes = shapely.normalize(zones.shapes)
    parts, owner = shapely.get_parts(shapes, return_index=True)
    rings, part = shapely.get_rings(parts, return_index=True)
    outlines: list[Outline] = [[] for _ in range(size)]
    for ring, record in zip(rings, owner[part], strict=True):
        lon, lat = shapely.get_coordinates(ring).T
        outlines[record].append(plane.km(lat, lon))
    return outlines


def reach_of(outlines: Sequence[Outline]) -> FloatArray:
    """All corners, (n, 2): what a picture must hold."""
    return np.concatenate([ring for outline in outlines for ring in outline])


def zone_patches(outlines: Sequence[Outline], values: FloatArray | None = None) -> PathCollection:
    """Zones for a picture: filled by their values, or only outlined."""
    from matplotlib.collections import PathCollection
    from matplotlib.path import Path

    paths = [
        Path.make_compound_path(*(Path(ring, closed=True) for ring in outline))
        for outline in outlines
    ]
    plain = {"facecolors": "none", "zorder": 2} if values is None else {"zorder": 3}
    return PathCollection(paths, array=values, edgecolors=PALE, linewidths=0.6, **plain)
