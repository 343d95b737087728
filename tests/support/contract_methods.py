"""Every method that hands out mechanisms. A new one joins the suite with one line here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import panda_mdp as pm


@dataclass(frozen=True)
class Method:
    """A method, and what the suite may ask of it."""

    name: str
    make: Callable[[pm.Problem], pm.Mechanism]
    optimal: bool = False
    """Claims the optimum to within `gap`: its loss falls with epsilon, down to the minimum."""
    planar_only: bool = False
    """Takes only records in a plane."""
    tolerance: float = 1e-9
    """How far, relatively, the loss may move when the records are listed in another order."""
    gap: float = 0.0
    """The relative gap that it is asked to reach."""


METHODS = (
    Method("exponential", pm.exponential),
    Method("exponential, tight", partial(pm.exponential, tight=True)),
    Method("loss_exponential", pm.loss_exponential, tolerance=1e-4),
    Method("loss_exponential, tight", partial(pm.loss_exponential, tight=True), tolerance=1e-4),
    Method("planar_laplace", pm.planar_laplace, planar_only=True),
    Method("permute_and_flip", pm.permute_and_flip),
    Method("remap", lambda problem: pm.remap(pm.exponential(problem))),
    Method("optimal", partial(pm.optimal, gap=0.01), optimal=True, gap=0.01, tolerance=0.01),
    Method("coarse", partial(pm.coarse, cells=4, gap=0.001), tolerance=0.005),
    Method("constopt", pm.constopt, tolerance=1e-4),
    Method("benders", partial(pm.benders, gap=0.01), optimal=True, gap=0.01, tolerance=0.01),
    Method(
        "optimal, HiGHS",
        partial(pm.solve_lp, pairs="all"),
        optimal=True,
        gap=1e-3,
        tolerance=1e-3,
    ),
    Method(
        "second_objective",
        partial(pm.second_objective, name="vulnerability", slack=0.01, gap=0.01),
        tolerance=0.03,
    ),
)
