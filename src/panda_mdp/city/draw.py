"""Problems drawn from a city: records, outputs and tasks at random."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from panda_mdp.base.arrays import IntArray
from panda_mdp.city.city import City, travel_loss
from panda_mdp.city.layers import NoStreetsError
from panda_mdp.city.maps import MapOptions, load_city
from panda_mdp.city.places import load_places
from panda_mdp.city.synthetic import synthetic_city
from panda_mdp.errors import CityError, ProblemError
from panda_mdp.loss import distance_loss
from panda_mdp.problem import Problem
from panda_mdp.space.domain import Domain

SYNTHETIC = "synthetic"
SYNTHETIC_NODES = 5000


def find_city(name: str, records: int | None, seed: int, crs: str | None = None) -> City:
    """The city of a path, or the synthetic one with at least twice as many nodes as records."""
    if name == SYNTHETIC:
        return synthetic_city(max(SYNTHETIC_NODES, 2 * (records or 0)), seed)
    return load_city(name, MapOptions(crs=crs))


@dataclass(frozen=True)
class Source:
    """What records are drawn from: places, and the streets between them where a map has any."""

    places: Domain
    city: City | None = None

    @classmethod
    def find(cls, name: str, records: int | None, seed: int, crs: str | None = None) -> Source:
        """The city of a path, or its points, zones or cells; `crs` where the file names none."""
        if not (name.lower().endswith(".csv") and Path(name).exists()):
            with suppress(NoStreetsError):
                city = find_city(name, records, seed, crs)
                return cls(city.domain(None), city)
        return cls(load_places(name, crs=crs).domain)

    @property
    def streets(self) -> City:
        """The city; an error where there are places alone."""
        if self.city is None:
            raise CityError(
                "travel needs streets, and road distance too, and this file has places alone; "
                "leave --tasks and --metric out, or give a road map"
            )
        return self.city

    def sample(self, records: int | None, seed: int) -> Domain:
        """Records drawn at random, as `City.domain` does; all where None."""
        if records is None:
            return self.places
        generator = np.random.default_rng(seed)
        return self.places.take(generator.choice(self.places.size, records, replace=False))


@dataclass(frozen=True)
class Draw:
    """A problem and the tasks (domain indices) that its loss travels to."""

    problem: Problem
    tasks: IntArray


def draw_problem(
    city: City, records: int | None, outputs: int, tasks: int, epsilon: float, seed: int
) -> Draw:
    """The paper's set-up: records, outputs among them and tasks among them, all drawn uniformly.

    The loss is the travel loss in km, the prior uniform; `records=None` takes all nodes.
    """
    domain = city.domain(records, seed)
    _check_count("tasks", tasks, domain)
    generator, output_records = _draw_outputs(domain, outputs, seed)
    goals = generator.choice(domain.size, tasks, replace=False)
    loss = travel_loss(city, domain, output_records, goals)
    return Draw(Problem(domain, output_records, loss, epsilon), goals)


def draw_displacement(domain: Domain, outputs: int, epsilon: float, seed: int) -> Problem:
    """The same draw of outputs; the loss is the distance to what is reported."""
    output_records = _draw_outputs(domain, outputs, seed)[1]
    return Problem(domain, output_records, distance_loss(domain, output_records), epsilon)


def _draw_outputs(domain: Domain, outputs: int, seed: int) -> tuple[np.random.Generator, IntArray]:
    _check_count("outputs", outputs, domain)
    # A stream of its own: the city and the records are drawn from the seed itself.
    generator = np.random.default_rng([seed, 1])
    return generator, generator.choice(domain.size, outputs, replace=False)


def _check_count(name: str, count: int, domain: Domain) -> None:
    if not 1 <= count <= domain.size:
        raise ProblemError(f"{name} is {count}; it must be between 1 and the {domain.size} records")
