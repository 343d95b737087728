"""Figures that tell whether a street network is like a real one."""

from __future__ import annotations

import numpy as np

from panda_mdp.base.text import Facts
from panda_mdp.city.city import City, travel
from panda_mdp.space.metrics import Haversine, haversine_km

CELL_KM = 0.5
WORDS = {
    "nodes": "{nodes:,}",
    "streets": "{streets:,}",
    "degree 1/2/3/4": "{degrees} %",
    "street length, median": "{median_length_m:.0f} m",
    "street length, 90th percentile": "{long_length_m:.0f} m",
    "mean detour": "{detour:.2f}",
    "Gini of junctions per 500 m cell": "{gini:.2f}",
    "extent": "{width_km:.1f} x {height_km:.1f} km",
    "streets in all": "{total_km:,.0f} km",
    "connected parts": "{components:,}",
}
"""What a table calls each figure, and how it writes it."""


def city_statistics(city: City, *, sources: int = 20) -> Facts:
    """What a city measures, by name; `WORDS` says it.

    `detour` is the mean of road distance over straight distance from `sources` random nodes to all
    others, `gini` the inequality of junctions per 500 m cell that has any, `degree_shares` are
    those of nodes with 1, 2, 3 and 4 streets.
    """
    length = city.pairs[2]
    shares = np.bincount(city.degrees, minlength=5)[1:5] / city.nodes
    plane = Haversine(city.lat, city.lon).project(city.lat, city.lon)
    some = np.random.default_rng(0).choice(city.nodes, min(sources, city.nodes), replace=False)
    roads = travel(city, some)
    straight = haversine_km(city.lat[some, None], city.lon[some, None], city.lat, city.lon)
    reached = np.isfinite(roads) & (straight > 0)
    junctions = np.sort(np.unique(np.floor(plane / CELL_KM), axis=0, return_counts=True)[1])
    width, height = np.ptp(plane, axis=0).tolist()
    ranks = 2 * np.arange(1, len(junctions) + 1) - len(junctions) - 1
    return {
        "nodes": city.nodes,
        "streets": city.streets,
        "degree_shares": shares.tolist(),
        "degrees": "/".join(f"{100 * share:.0f}" for share in shares),
        "median_length_m": float(np.median(length)),
        "long_length_m": float(np.percentile(length, 90)),
        "detour": float((roads[reached] / straight[reached]).mean()),
        "gini": float(ranks @ junctions / (len(junctions) * junctions.sum())),
        "width_km": width,
        "height_km": height,
        "total_km": city.total_km,
        "components": int(city.components().max()) + 1,
    }
