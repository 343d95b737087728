"""OpenStreetMap's tags: which roads a traveller may use, in which direction and how fast."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

Traveller = Literal["drive", "walk", "bike"]
Tags = Mapping[str, str]
DRIVE_SPEEDS = {
    "motorway": 110.0,
    "motorway_link": 60.0,
    "trunk": 90.0,
    "trunk_link": 50.0,
    "primary": 60.0,
    "primary_link": 40.0,
    "secondary": 50.0,
    "secondary_link": 40.0,
    "tertiary": 45.0,
    "tertiary_link": 35.0,
    "unclassified": 40.0,
    "residential": 30.0,
    "living_street": 10.0,
    "road": 40.0,
}
"""Drivable classes and the speed that is assumed, km/h, where none is signed."""
USUAL_SPEED = 40.0
PACES = {"walk": 4.8, "bike": 15.0}
"""km/h of those who do not drive."""
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
DIRECTIONS = {
    **dict.fromkeys(("yes", "true", "t", "1"), 1),
    **dict.fromkeys(("-1", "reverse"), -1),
    **dict.fromkeys(("no", "false", "0"), 0),
}
KMH = {"mph": 1.609344, "knots": 1.852, "km/h": 1.0, "kmh": 1.0, None: 1.0}
_SPEED = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(mph|knots|km/h|kmh)?\s*")


def allowed(tags: Tags, traveller: Traveller) -> bool:
    """Whether a traveller may use the road."""
    highway = first_of(tags.get("highway", "no"))
    if highway in NO_ROAD or tags.get("area") == "yes":
        return False
    # A traveller's own tag overrides the general one.
    said = next((tags[key] for key in OWN_TAGS[traveller] if tags.get(key)), "")
    if traveller == "drive":
        fit = highway in DRIVE_SPEEDS
    else:
        fit = highway not in UNFIT[traveller] or said in ("yes", "designated")
    return fit and (said or tags.get("access", "")) not in CLOSED


def direction(tags: Tags, traveller: Traveller) -> int:
    """1 for one-way along the road, -1 against it, 0 for both ways."""
    if traveller == "walk" or (traveller == "bike" and tags.get("oneway:bicycle") == "no"):
        return 0
    round_trip = tags.get("junction") in ("roundabout", "circular")
    motorway = tags.get("highway") in ("motorway", "motorway_link")
    return DIRECTIONS.get(first_of(tags.get("oneway", "")).lower(), int(round_trip or motorway))


def speed_kmh(tags: Tags, traveller: Traveller) -> float:
    """The signed speed for drivers, or the class's usual one; a traveller's pace otherwise.

    What OSMnx made of the signs (`speed_kph`) comes first.

    >>> speed_kmh({"highway": "['primary', 'tertiary']"}, "drive")
    60.0
    """
    if traveller in PACES:
        return PACES[traveller]
    usual = DRIVE_SPEEDS.get(first_of(tags.get("highway", "")), USUAL_SPEED)
    return parse_speed(tags.get("speed_kph", ""), parse_speed(tags.get("maxspeed", ""), usual))


@lru_cache(maxsize=4096)
def parse_speed(text: str, usual: float) -> float:
    """km/h from '50', '30 mph' or a list (the lowest counts); `usual` where it says nothing.

    >>> parse_speed("30 mph", 50.0), parse_speed("RU:urban", 50.0), parse_speed("['70', '50']", 1.0)
    (48.28032, 50.0, 50.0)
    """
    parts = map(_SPEED.fullmatch, re.split("[;|,]", re.sub(r"[\[\]']", "", text)))
    speeds = [float(part[1]) * KMH[part[2]] for part in parts if part is not None]
    return min((speed for speed in speeds if speed > 0), default=usual)


def first_of(text: str) -> str:
    """The first of what may be a list written as text, as OSMnx writes streets that differed."""
    try:
        return str(ast.literal_eval(text)[0]) if text[:1] == "[" else text
    except (ValueError, SyntaxError, IndexError):
        return text
