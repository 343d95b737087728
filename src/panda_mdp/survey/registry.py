"""The table of methods: what `compare`, `demo` and other surveys run, by name.

A method joins with one line in `METHODS`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import get_args

from panda_mdp.errors import MethodError
from panda_mdp.methods.benders.benders import benders
from panda_mdp.methods.coarse import coarse
from panda_mdp.methods.constopt import constopt
from panda_mdp.methods.exponential import exponential
from panda_mdp.methods.laplace import planar_laplace
from panda_mdp.methods.loss_exponential import loss_exponential
from panda_mdp.methods.optimal.optimal import optimal
from panda_mdp.methods.permute_and_flip import permute_and_flip
from panda_mdp.methods.remap import remap
from panda_mdp.methods.tight_constraints import tight_constraints
from panda_mdp.panda.panda_table import PandaTable
from panda_mdp.panda.selection.bernoulli import Decay
from panda_mdp.problem import Problem
from panda_mdp.survey.phases import Phases, panda_ball, panda_candidates, panda_decay
from panda_mdp.table.mechanism import Table

DEMO_SECONDS = 600.0
"""Far beyond what a busy machine needs: a demo that shows other rows there shows the clock."""


@dataclass(frozen=True)
class Method:
    """How to run one method on a problem."""

    name: str
    label: str
    """For tables and charts."""
    function: Callable[..., Table]
    paper: str | None = None
    """Its name in the paper's tables."""
    options: tuple[tuple[str, bool | float | str], ...] = ()
    timed: bool = False
    """Whether the function takes `time_limit` and returns its best so far when that is over."""
    remapped: bool = False
    """Whether the table is remapped afterwards."""
    demo_seconds: float | None = DEMO_SECONDS
    """Limit in the demo. None where a minute is too little to show more than what the method starts
    from."""

    def run(self, problem: Problem, time_limit: float | None = None) -> Table:
        """The method's table for a problem; `time_limit` (seconds) reaches methods that take it."""
        options = dict(self.options)
        if self.timed and time_limit is not None:
            options["time_limit"] = time_limit
        start = time.perf_counter()
        table = self.function(problem, **options)
        if self.remapped:
            table = remap(table)
        if not table.stages:
            table = table.with_facts(stages=(("all", time.perf_counter() - start),))
        return table


@dataclass(frozen=True)
class PhasedMethod:
    """How to run PAnDA on a problem: two phases, and no single table."""

    name: str
    label: str
    function: Callable[[Problem, float | None], PandaTable]
    paper: str | None = None
    demo_seconds: float | None = DEMO_SECONDS
    timed: bool = True

    def table(self, problem: Problem, time_limit: float | None = None) -> PandaTable:
        """Both phases, to be saved and run."""
        return self.function(problem, time_limit)

    def run(self, problem: Problem, time_limit: float | None = None) -> Phases:
        """What the two phases cost and keep."""
        return Phases.of(self.table(problem, time_limit))


AnyMethod = Method | PhasedMethod
_TIGHT = (("tight", True),)
_HIGHS = (("backend", "highs"),)
_THEN = (("then", "vulnerability"), ("slack", 0.01))

METHODS = (
    Method("exponential", "exponential", exponential, "EM"),
    Method("exponential_tight", "exponential, tight", exponential, options=_TIGHT),
    Method("exponential_remap", "exponential + remap", exponential, "EM+BR", remapped=True),
    Method("planar_laplace", "planar Laplace", planar_laplace),
    Method("planar_laplace_remap", "planar Laplace + remap", planar_laplace, remapped=True),
    Method("loss_exponential", "loss exponential", loss_exponential),
    Method("loss_exponential_tight", "loss exponential, tight", loss_exponential, options=_TIGHT),
    Method("permute_and_flip", "permute and flip", permute_and_flip, demo_seconds=None),
    Method("tight_constraints", "tight constraints", tight_constraints, demo_seconds=None),
    Method("constopt", "ConstOPT", constopt, "LP+EM", timed=True, demo_seconds=None),
    Method("coarse", "coarse grid", coarse, "LP+CA", timed=True),
    Method("benders", "Benders", benders, "LP+BD", timed=True, demo_seconds=None),
    Method(
        "optimal_highs", "optimal, HiGHS", optimal, options=_HIGHS, timed=True, demo_seconds=None
    ),
    Method("optimal", "optimal", optimal, "LP", timed=True),
    Method("optimal_then", "optimal, then guesses", optimal, options=_THEN, timed=True),
)

PHASED: tuple[PhasedMethod, ...] = (
    PhasedMethod("panda", "PAnDA, balls", panda_ball),
    PhasedMethod("panda_candidates", "PAnDA, candidates", panda_candidates),
    *(
        PhasedMethod(
            f"panda_{decay}",
            f"PAnDA, {decay}",
            partial(panda_decay, decay=decay),
            demo_seconds=None,
        )
        for decay in get_args(Decay)
    ),
)


def methods() -> Mapping[str, AnyMethod]:
    """The methods by name, in the order of `METHODS`, then of `PHASED`.

    >>> list(methods())[:3]
    ['exponential', 'exponential_tight', 'exponential_remap']
    """
    known: tuple[AnyMethod, ...] = (*METHODS, *PHASED)
    return MappingProxyType({method.name: method for method in known})


def choose_methods(names: Iterable[str]) -> tuple[AnyMethod, ...]:
    """The methods of these names (dashes count as underscores), each once, in the given order."""
    known = methods()
    chosen: dict[str, AnyMethod] = {}
    for name in names:
        key = name.strip().replace("-", "_")
        if key not in known:
            msg = f"there is no method {name.strip()!r}; choose from {', '.join(known)}"
            raise MethodError(msg)
        chosen[key] = known[key]
    if not chosen:
        msg = f"no method is named; choose from {', '.join(known)}"
        raise MethodError(msg)
    return tuple(chosen.values())
