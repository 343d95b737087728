"""Figures that tell whether a street network is like a real one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from panda_mdp.city.city import City, travel
from panda_mdp.space.metrics import Haversine, haversine_km

CELL_KM = 0.5
ROWS = (
    ("nodes", "{nodes:,}"),
    ("streets", "{streets:,}"),
    ("degree 1/2/3/4", "{shares} %"),
    ("street length, median", "{median_length_m:.0f} m"),
    ("street length, 90th percentile", "{long_length_m:.0f} m"),
    ("mean detour", "{detour:.2f}"),
    ("Gini of junctions per 500 m cell", "{gini:.2f}"),
    ("extent", "{width_km:.1f} x {height_km:.1f} km"),
    ("streets in all", "{total_km:,.0f} km"),
    ("connected parts", "{components:,}"),
)
"""What a table calls each figure, and how it writes it."""


@dataclass(frozen=True)
class CityStatistics:
    """What a street network measures."""

    nodes: int
    streets: int
    degree_shares: tuple[float, ...]
    """Shares of nodes with 1, 2, 3 and 4 streets."""
    median_length_m: float
    long_length_m: float
    """90th percentile of street lengths."""
    detour: float
    """Mean of road distance over straight distance, random pairs."""
    gini: float
    """Inequality of junctions per 500 m cell, over cells that have any."""
    width_km: float
    height_km: float
    total_km: float
    components: int

    def rows(self) -> list[tuple[str, str]]:
        """Name and value of each figure, for tables."""
        shares = "/".join(f"{100 * share:.0f}" for share in self.degree_shares)
        return [(name, words.format(shares=shares, **vars(self))) for name, words in ROWS]


def city_statistics(city: City, *, sources: int = 20, seed: int = 0) -> CityStatistics:
    """Measure a city; the detour is taken over `sources` random nodes against all others."""
    length = city.pairs[2]
    shares = np.bincount(city.degrees, minlength=5)[1:5] / city.nodes
    plane = Haversine(city.lat, city.lon).project(city.lat, city.lon)
    some = np.random.default_rng(seed).choice(city.nodes, min(sources, city.nodes), replace=False)
    roads = travel(city, some)
    straight = haversine_km(city.lat[some, None], city.lon[some, None], city.lat, city.lon)
    reached = np.isfinite(roads) & (straight > 0)
    cells = np.floor(plane / CELL_KM)
    junctions = np.sort(np.unique(cells, axis=0, return_counts=True)[1])
    width, height = np.ptp(plane, axis=0).tolist()
    ranks = 2 * np.arange(1, len(junctions) + 1) - len(junctions) - 1
    return CityStatistics(
        nodes=city.nodes,
        streets=city.streets,
        degree_shares=tuple(shares.tolist()),
        median_length_m=float(np.median(length)),
        long_length_m=float(np.percentile(length, 90)),
        detour=float((roads[reached] / straight[reached]).mean()),
        gini=float(ranks @ junctions / (len(junctions) * junctions.sum())),
        width_km=width,
        height_km=height,
        total_km=city.total_km,
        components=int(city.components().max()) + 1,
    )
