"""Problems drawn from a city: records, outputs and tasks at random."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from panda_mdp.base.arrays import IntArray
from panda_mdp.city.city import City, travel_loss
from panda_mdp.city.layers import NoStreetsError
from panda_mdp.city.maps import load_city
from panda_mdp.city.places import load_places
from panda_mdp.city.synthetic import synthetic_city
from panda_mdp.errors import ProblemError
from panda_mdp.loss import distance_loss
from panda_mdp.problem import Problem
from panda_mdp.space.domain import Domain

SYNTHETIC = "synthetic"
SYNTHETIC_NODES = 5000


def find_city(name: str, records: int | None, seed: int) -> City:
    """The city of a path, or the synthetic one with at least twice as many nodes as records."""
    if name == SYNTHETIC:
        return synthetic_city(max(SYNTHETIC_NODES, 2 * (records or 0)), seed)
    if not Path(name).exists():
        raise FileNotFoundError(f"{name}: no such file; give a road map or the word {SYNTHETIC!r}")
    return load_city(name)


def find_places(name: str, records: int | None, seed: int) -> City | Domain:
    """The city of a path; of a file without streets (points, zones, cells) the domain."""
    if not (name.lower().endswith(".csv") and Path(name).exists()):
        with suppress(NoStreetsError):
            return find_city(name, records, seed)
    return load_places(name).domain


def places_count(source: City | Domain) -> int:
    """How many records a source has."""
    return source.size if isinstance(source, Domain) else len(source.sample_nodes(None))


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


def draw_displacement(
    source: City | Domain, records: int | None, outputs: int, epsilon: float, seed: int
) -> Problem:
    """The same draw of records and outputs; the loss is the distance to what is reported."""
    domain = source if isinstance(source, Domain) else source.domain(records, seed)
    if domain is source and records is not None:
        drawn_records = np.random.default_rng(seed).choice(domain.size, records, replace=False)
        domain = domain.take(np.sort(drawn_records))
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
