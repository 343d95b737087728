"""OpenStreetMap's tags: which roads a traveller may use."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Literal

Traveller = Literal["drive", "walk", "bike"]
Tags = Mapping[str, str]
DRIVABLE = frozenset(
    {
        *("motorway", "motorway_link", "trunk", "trunk_link", "primary", "primary_link"),
        *("secondary", "secondary_link", "tertiary", "tertiary_link", "unclassified"),
        *("residential", "living_street", "road"),
    }
)
NO_ROAD = frozenset(
    {
        *("abandoned", "construction", "disused", "no", "none", "planned", "proposed", "razed"),
        *("bus_guideway", "corridor", "elevator", "emergency_bay", "escalator", "platform"),
        *("raceway", "rest_area", "services"),
    }
)
"""What is no road, or no longer, or not yet."""
FAST = frozenset({"motorway", "motorway_link", "trunk", "trunk_link"})
UNFIT = {
    "walk": FAST | {"cycleway"},
    "bike": FAST | {"steps", "footway", "pedestrian", "bridleway"},
}
"""Roads that are taken only where a traveller's own tag allows it."""
OWN_TAGS = {"drive": ("motorcar", "motor_vehicle"), "walk": ("foot",), "bike": ("bicycle",)}
CLOSED = frozenset({"no", "private"})


def allowed(tags: Tags, traveller: Traveller) -> bool:
    """Whether a traveller may use the road."""
    highway = first_of(tags.get("highway", "no"))
    if highway in NO_ROAD or tags.get("area") == "yes":
        return False
    # A traveller's own tag overrides the general one.
    said = next((tags[key] for key in OWN_TAGS[traveller] if tags.get(key)), "")
    if traveller == "drive":
        fit = highway in DRIVABLE
    else:
        fit = highway not in UNFIT[traveller] or said in ("yes", "designated")
    return fit and (said or tags.get("access", "")) not in CLOSED


def first_of(text: str) -> str:
    """The first of what may be a list written as text, as OSMnx writes streets that differed."""
    try:
        return str(ast.literal_eval(text)[0]) if text[:1] == "[" else text
    except (ValueError, SyntaxError, IndexError):
        return text
