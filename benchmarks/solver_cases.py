"""The instances that all solvers get: samples of a city, grids, clusters in twenty dimensions."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import panda_mdp as pm

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Case:
    """One instance; `series` names what grows along it."""

    family: str
    series: str
    records: int
    outputs: int
    seed: int = 0

    @property
    def key(self) -> str:
        return f"{self.family}/{self.series}/K={self.records}/m={self.outputs}/seed={self.seed}"


FULL = (
    *(Case("city", "K", k, 100) for k in (500, 1000, 2000, 5000, 10_000, 20_000)),
    *(Case("city", "m", 2000, m) for m in (25, 50, 100, 200, 400)),
    *(Case("grid", "K", n * n, n * n) for n in (5, 7, 10, 14, 20)),
    *(Case("clusters, near", "K", k, 60) for k in (125, 250, 500, 1000, 2000)),
    *(Case("clusters, far", "K", k, 60) for k in (125, 250, 500, 1000, 2000)),
)
GPU_CASES = tuple(Case("city", "K", k, 100) for k in (500, 1000, 5000))
TOY = (
    *(Case("city", "K", k, 10) for k in (60, 120, 240)),
    *(Case("city", "m", 100, m) for m in (5, 10, 20)),
    *(Case("grid", "K", n * n, n * n) for n in (3, 4, 5)),
    *(Case("clusters, near", "K", k, 8) for k in (40, 80)),
    *(Case("clusters, far", "K", k, 8) for k in (40, 80)),
)


def build(case: Case) -> pm.Problem:
    """The problem of a case."""
    if case.family == "city":
        return city_sample(case)
    if case.family == "grid":
        return square_grid(round(case.records**0.5))
    # Epsilon times the distance of nearest neighbours about 1, and about 4.
    return clusters(case, 1.0 if case.family == "clusters, near" else 4.0)


def city_sample(case: Case) -> pm.Problem:
    """The paper's set-up: random records, outputs and one task, travel loss, epsilon 5 per km."""
    folder = Path(os.environ.get("PANDA_MDP_DATA", ROOT.parent / "shared" / "data"))
    path = folder / "rome.npz"
    size = max(5000, 2 * case.records)
    city = pm.load_city(path) if path.exists() else pm.synthetic_city(nodes=size, seed=case.seed)
    domain = city.domain(records=case.records, seed=case.seed)
    rng = np.random.default_rng(case.seed)
    outputs = rng.choice(domain.size, case.outputs, replace=False)
    task = rng.choice(domain.size, 1)
    return pm.Problem(domain, outputs, pm.travel_loss(city, domain, outputs, task), 5.0)


def square_grid(n: int) -> pm.Problem:
    """An n x n grid, epsilon times the cell 1, inputs = outputs, loss the displacement."""
    axis = np.arange(n, dtype=float)
    domain = pm.Domain.from_vectors(np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2))
    return pm.Problem(domain, np.arange(n * n), domain.distances(), 1.0)


def clusters(case: Case, nats: float) -> pm.Problem:
    """Points around ten centres in twenty dimensions; `nats` is epsilon times the median distance
    of nearest neighbours."""
    rng = np.random.default_rng(case.seed)
    centres = 3 * rng.normal(size=(10, 20))
    points = centres[rng.integers(10, size=case.records)] + rng.normal(size=(case.records, 20))
    domain = pm.Domain.from_vectors(points)
    outputs = rng.choice(case.records, case.outputs, replace=False)
    near = float(np.median(domain.neighbours(1)[1]))
    return pm.Problem(domain, outputs, domain.distances(None, outputs), nats / near)


def city_name() -> str:
    """Which city the samples come from."""
    folder = Path(os.environ.get("PANDA_MDP_DATA", ROOT.parent / "shared" / "data"))
    return "Rome" if (folder / "rome.npz").exists() else "a synthetic city"
