"""One study: a city, and its draws of records, outputs, prior and users for all methods."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from panda_mdp.base.arrays import FloatArray, IntArray, stopwatch
from panda_mdp.base.text import Facts
from panda_mdp.city.city import City
from panda_mdp.city.draw import draw_problem
from panda_mdp.panda.coins import Decay
from panda_mdp.prior import Prior
from panda_mdp.problem import Problem
from panda_mdp.space.domain import Domain
from panda_paper.items import Cell, PriorName, decay_of

STREETS = "public: number of streets at the record's node, as in the published code"
USERS_STREAM = 2
"""Records are drawn from the seed itself, outputs and tasks from its stream 1."""
METRES = 1000.0
"""In a km: losses are shown in metres."""


@dataclass(frozen=True, eq=False)
class Study:
    """A city, where its results go, and what its real prior is made of."""

    city: City
    name: str
    folder: Path
    synthetic: bool = False
    visits: FloatArray | None = None
    """How often each node of the city was visited, from traces; None for the streets' number."""
    visits_source: str = ""
    remark: str = ""
    """On the map, for titles: "reconstructed streets"."""

    @property
    def facts(self) -> Facts:
        """What is kept with the results, to tell them from another study's."""
        digest = hashlib.sha256()
        city = self.city
        for array in (city.lat, city.lon, city.u, city.v, city.length_m):
            digest.update(np.ascontiguousarray(array).tobytes())
        return {
            "city": self.name,
            "synthetic": self.synthetic,
            "nodes": city.nodes,
            "streets": city.streets,
            "fingerprint": digest.hexdigest()[:16],
            "real_prior": STREETS if self.visits is None else f"public: {self.visits_source}",
            "remark": self.remark,
        }

    def real_prior(self, domain: Domain) -> Prior:
        """The prior of a sampled domain: visits of the nearest nodes, or streets at the own node.

        Visits are counted per node of the city; every node counts for the record nearest to it, as
        a trace snapped to the records would. The paper's text names a taxi trace, its published
        code takes the number of streets at the node (`street_count`), which is what there is
        without one.
        """
        if self.visits is None:
            return Prior.public(self.street_counts(domain), source=STREETS.removeprefix("public: "))
        nearest = domain.snap(self.city.lat, self.city.lon, np.inf).record
        counts = np.bincount(nearest, self.visits, minlength=domain.size)
        return Prior.public(counts, source=self.visits_source)

    def street_counts(self, domain: Domain) -> IntArray:
        """How many streets end at each record's node."""
        ends = np.concatenate([self.city.u, self.city.v])
        return np.bincount(ends, minlength=self.city.nodes)[np.asarray(domain.nodes)]


@dataclass(frozen=True, eq=False)
class Draw:
    """A cell at hand: its problem with users, and what a method may need beside.

    The domain is fresh: a method's time contains all of its work.
    """

    cell: Cell
    study: Study
    limit: float | None
    """Seconds that the cell may take; a cell that watches the clock ends before them."""
    problem: Problem
    users: IntArray
    """Records of made-up users, drawn from the prior."""
    seconds: float
    """Time that drawing the problem took, which no method is charged."""

    @property
    def seed(self) -> int:
        return self.cell.repeat

    @property
    def delta(self) -> float:
        return self.cell.setting.delta

    @property
    def decay(self) -> Decay:
        """Of the cell's method."""
        return decay_of(self.cell.method)


def draw_cell(study: Study, cell: Cell, limit: float | None = None) -> Draw:
    """The draw of a cell that may take so many seconds.

    Problems are the same for all methods, epsilons and deltas.
    """
    setting = cell.setting
    problem, seconds = _drawn(
        study, setting.records, setting.outputs, setting.tasks, cell.repeat, setting.prior
    )
    fresh = problem.domain.take(np.arange(problem.size))
    problem = replace(problem, domain=fresh, epsilon=setting.epsilon)
    generator = np.random.default_rng([cell.repeat, USERS_STREAM])
    count = min(setting.users, int(np.count_nonzero(problem.prior)))
    # At distinct records, as in the published code.
    users = generator.choice(problem.size, size=count, replace=False, p=problem.prior)
    return Draw(cell, study, limit, problem, users, seconds)


@lru_cache(maxsize=2)
def _drawn(
    study: Study, records: int, outputs: int, tasks: int, seed: int, prior: PriorName
) -> tuple[Problem, float]:
    spent = stopwatch()
    problem = draw_problem(study.city, records, outputs, tasks, 1.0, seed).problem
    if prior == "real":
        problem = study.real_prior(problem.domain).on(problem)
    ((_, seconds),) = spent("draw")
    return problem, seconds
