"""OpenStreetMap's tags: which roads a traveller may use, in which direction and how fast."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Protocol

from panda_mdp.city.read.map_options import Network

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
WALK_SPEED, BIKE_SPEED = 4.8, 15.0
NEVER = frozenset(
    {
        *("abandoned", "construction", "disused", "no", "none", "planned", "proposed", "razed"),
        *("bus_guideway", "corridor", "elevator", "emergency_bay", "escalator", "platform"),
        *("raceway", "rest_area", "services"),
    }
)
"""What is no road, or no longer, or not yet."""
NO_WALK = NEVER | {"motorway", "motorway_link", "trunk", "trunk_link", "cycleway"}
NO_BIKE = NEVER | {
    "motorway",
    "motorway_link",
    "trunk",
    "trunk_link",
    "steps",
    "footway",
    "pedestrian",
    "bridleway",
}
CLOSED = frozenset({"no", "private"})
MPH_KMH = 1.609344
_SPEED = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(mph|knots|km/h|kmh)?\s*$")


class Tags(Protocol):
    """Key-value pairs of a road: a mapping, or osmium's own list."""

    def get(self, key: str, default: str, /) -> str: ...


def allowed(tags: Tags, network: Network) -> bool:
    """Whether a traveller of this network may use the road."""
    highway = tags.get("highway", "no")
    if tags.get("area", "no") == "yes":
        return False
    access = tags.get("access", "")
    if network == "drive":
        if highway not in DRIVE_SPEEDS:
            return False
        own = tags.get("motorcar", "") or tags.get("motor_vehicle", "")
    elif network == "walk":
        if highway in NO_WALK and not (highway == "cycleway" and tags.get("foot", "") == "yes"):
            return False
        own = tags.get("foot", "")
    else:
        designated = tags.get("bicycle", "") in ("yes", "designated")
        if highway in NEVER or (highway in NO_BIKE and not designated):
            return False
        own = tags.get("bicycle", "")
    # A traveller's own tag overrides the general one.
    return own not in CLOSED if own else access not in CLOSED


def direction(tags: Tags, network: Network) -> int:
    """1 for one-way along the road, -1 against it, 0 for both ways."""
    if network == "walk":
        return 0
    if network == "bike" and tags.get("oneway:bicycle", "") == "no":
        return 0
    oneway = tags.get("oneway", "")
    if oneway in ("yes", "true", "1"):
        return 1
    if oneway in ("-1", "reverse"):
        return -1
    if oneway in ("no", "false", "0"):
        return 0
    round_trip = tags.get("junction", "") in ("roundabout", "circular")
    fast = tags.get("highway", "") in ("motorway", "motorway_link")
    return 1 if round_trip or fast else 0


def speed_kmh(tags: Tags, network: Network) -> float:
    """The signed speed for drivers, or the class's usual one; a traveller's pace otherwise."""
    if network == "walk":
        return WALK_SPEED
    if network == "bike":
        return BIKE_SPEED
    usual = DRIVE_SPEEDS.get(tags.get("highway", ""), 40.0)
    return parse_speed(tags.get("maxspeed", ""), usual)


@lru_cache(maxsize=4096)
def parse_speed(text: str, usual: float) -> float:
    """km/h from '50', '30 mph' or '50;30' (the lowest counts); `usual` where it says nothing.

    >>> parse_speed("30 mph", 50.0), parse_speed("RU:urban", 50.0), parse_speed("70;50", 1.0)
    (48.28032, 50.0, 50.0)
    """
    speeds = []
    for part in text.replace("|", ";").split(";"):
        match = _SPEED.match(part)
        if match is None:
            continue
        value = float(match[1]) * {"mph": MPH_KMH, "knots": 1.852}.get(match[2] or "", 1.0)
        if value > 0:
            speeds.append(value)
    return min(speeds) if speeds else usual


__all__ = ["Tags", "allowed", "direction", "parse_speed", "speed_kmh"]
