"""Where records and nodes lie on a picture, in km."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from panda_mdp.base.arrays import FloatArray
from panda_mdp.city.city import City
from panda_mdp.errors import DomainError
from panda_mdp.problem import Problem
from panda_mdp.space.domain import Domain
from panda_mdp.space.metrics import EARTH_RADIUS_KM


@dataclass(frozen=True)
class Plane:
    """A local projection around a place: km east and north of it."""

    lat: float
    lon: float

    def km(self, lat: FloatArray, lon: FloatArray) -> FloatArray:
        """East and north in km, shape (..., 2)."""
        around = np.mod(np.asarray(lon) - self.lon + 180, 360) - 180
        east = EARTH_RADIUS_KM * np.deg2rad(around) * np.cos(np.deg2rad(self.lat))
        north = EARTH_RADIUS_KM * np.deg2rad(np.asarray(lat) - self.lat)
        return np.stack([east, north], axis=-1)


def places_of(domain: Domain, city: City | None) -> tuple[FloatArray, FloatArray]:
    """Latitude and longitude of the records: their own, or those of their nodes in the city."""
    if domain.geographic:
        return domain.lat, domain.lon
    if city is not None and domain.nodes is not None:
        if len(domain.nodes) and int(domain.nodes.max()) >= city.nodes:
            msg = "the domain has nodes that this city lacks; give the city that it was made from"
            raise DomainError(msg)
        return city.lat[domain.nodes], city.lon[domain.nodes]
    msg = (
        f"records of a domain of kind {domain.metric.kind} have no places to draw; "
        "give the city that the domain was made from"
    )
    raise DomainError(msg)


def plane_of(lat: FloatArray, lon: FloatArray) -> Plane:
    """The projection around the middle of some places."""
    return Plane(
        float((lat.min() + lat.max()) / 2),
        float((lon.min() + lon.max()) / 2),
    )


def output_places(problem: Problem, city: City | None) -> tuple[FloatArray, FloatArray]:
    """Latitude and longitude of the outputs: their records', or their own."""
    reports = problem.reports
    if reports.records is not None:
        lat, lon = places_of(problem.domain, city)
        return lat[reports.records], lon[reports.records]
    if reports.lat is None or reports.lon is None:
        msg = "these outputs are labels and have no places to draw; use Outputs.at(lat, lon)"
        raise DomainError(msg)
    return reports.lat, reports.lon
