"""The table of methods: what `compare`, `demo`, the paper and other surveys run, by name.

A method joins with one line in `METHODS`, and one of another package by an entry point of the group
`panda_mdp.methods`. Most give one table; those of PAnDA give both phases, which serve a report as
well but have no single row for a record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import get_args

from panda_mdp.base.arrays import real_numbers
from panda_mdp.errors import MethodError
from panda_mdp.methods.adjust import remap
from panda_mdp.methods.benders import benders
from panda_mdp.methods.closed_forms import (
    exponential,
    loss_exponential,
    permute_and_flip,
    tight_constraints,
)
from panda_mdp.methods.coarse import coarse
from panda_mdp.methods.constopt import constopt
from panda_mdp.methods.optimal.lp import solve_lp
from panda_mdp.methods.optimal.optimal import optimal
from panda_mdp.methods.planar_laplace import planar_laplace
from panda_mdp.methods.second.dominate import dominate
from panda_mdp.methods.second.second import second_objective
from panda_mdp.methods.words import RULES, field_table
from panda_mdp.panda.balls import BallAnchors
from panda_mdp.panda.coins import BernoulliAnchors, Decay
from panda_mdp.panda.panda_table import PandaTable
from panda_mdp.panda.selection import CENTRE_SHARE, PandaOptions, Selection
from panda_mdp.privacy.quantise import quantise
from panda_mdp.problem import Problem
from panda_mdp.table.mechanism import Mechanism, Table, audited_table

GROUP = "panda_mdp.methods"
"""Of entry points: each names a function of a `Problem`."""
DEMO_SECONDS = 600.0
"""Far beyond what a busy machine needs: a demo that shows other rows there shows the clock."""
PHASED_GAP = 0.02


@dataclass(frozen=True)
class Method:
    """How to run one method on a problem."""

    name: str
    label: str
    """For tables and charts."""
    function: Callable[..., Table | PandaTable]
    paper: str | None = None
    """Its name in the paper's tables."""
    timed: bool = False
    """Whether the function takes `time_limit` and returns its best so far when that is over."""
    demo_seconds: float | None = DEMO_SECONDS
    """Limit in the demo. None where a minute is too little to show more than what the method starts
    from."""

    def run(
        self, problem: Problem, time_limit: float | None = None, **delta: float
    ) -> Table | PandaTable:
        """What the method gives; `time_limit` (seconds) reaches methods that take it, and so does
        the `delta` of PAnDA's, where one is given."""
        if self.timed and time_limit is not None:
            return self.function(problem, time_limit=time_limit, **delta)
        return self.function(problem, **delta)


def remapped(function: Callable[[Problem], Mechanism], problem: Problem) -> Table:
    """A table with every output replaced by what serves best given that it was drawn."""
    return remap(function(problem))


def beside_noise(problem: Problem, time_limit: float | None = None) -> Mechanism:
    """What tells guessers least, in shares of remapped planar Laplace noise, at its loss."""
    return dominate(problem, remap(planar_laplace(problem)), time_limit=time_limit)


def centred(problem: Problem, delta: float) -> Selection:
    """Balls: a private centre, the ball's rows, a report from the own row, which fades at the edge.
    They need no delta."""
    del delta
    return BallAnchors(CENTRE_SHARE * problem.epsilon)


def quarter(problem: Problem, delta: float) -> Selection:
    """A quarter of the records, as anchors of everybody."""
    return BernoulliAnchors.alike(problem.domain, max(1, problem.size // 4), delta, problem)


def decaying(decay: Decay, problem: Problem, delta: float) -> Selection:
    """One of the paper's decays: everything accounted for, refused on all of the paper's maps."""
    del problem, delta
    return BernoulliAnchors(decay)


def both_phases(
    choose: Callable[[Problem, float], Selection],
    problem: Problem,
    time_limit: float | None = None,
    delta: float = 1e-7,
) -> PandaTable:
    """PAnDA with the selection that is chosen for a problem and a delta."""
    options = PandaOptions(gap=PHASED_GAP, time_limit=time_limit)
    scheme = choose(problem, delta).scheme(problem, delta, options)
    if scheme.failure is not None:
        raise MethodError(
            f"does not fit: {str(scheme.failure).split('. ')[0]}; `panda`, with balls, or "
            "`panda_candidates` fit"
        )
    return PandaTable(scheme)


def from_outside(entry: EntryPoint, problem: Problem) -> Table:
    """What a function of another package makes of a problem, a table or a K x m array: its numbers
    alone are taken, and audited here."""
    made = entry.load()(problem)
    matrix = real_numbers(made.matrix if isinstance(made, Table) else made, entry.name, MethodError)
    if matrix.shape != problem.loss.shape:
        raise MethodError(
            f"{entry.name} ({entry.value}) gave {matrix.shape}; a method gives a table or an array "
            f"of probabilities, (records, outputs) = {problem.loss.shape}"
        )
    return audited_table(problem, quantise(matrix), entry.name)


_GUESSES = partial(second_objective, name="vulnerability", slack=0.01)
METHODS = (
    Method("exponential", "exponential", exponential, "EM"),
    Method("exponential_tight", "exponential, tight", partial(exponential, tight=True)),
    Method("exponential_remap", "exponential + remap", partial(remapped, exponential), "EM+BR"),
    Method("planar_laplace", "planar Laplace", planar_laplace),
    Method("planar_laplace_remap", "planar Laplace + remap", partial(remapped, planar_laplace)),
    Method("loss_exponential", "loss exponential", loss_exponential),
    Method(
        "loss_exponential_tight",
        "loss exponential, tight",
        partial(loss_exponential, tight=True),
    ),
    Method("permute_and_flip", "permute and flip", permute_and_flip, demo_seconds=None),
    Method("tight_constraints", "tight constraints", tight_constraints, demo_seconds=None),
    *(
        Method(name, name.replace("_", " "), partial(field_table, name), demo_seconds=None)
        for name in RULES
    ),
    Method("constopt", "ConstOPT", constopt, "LP+EM", timed=True, demo_seconds=None),
    Method("coarse", "coarse grid", coarse, "LP+CA", timed=True),
    Method("benders", "Benders", benders, "LP+BD", timed=True, demo_seconds=None),
    Method("optimal_highs", "optimal, HiGHS", solve_lp, timed=True, demo_seconds=None),
    Method("optimal", "optimal", optimal, "LP", timed=True),
    Method("optimal_then", "optimal, then guesses", _GUESSES, timed=True),
    Method("dominate", "dominate noise", beside_noise, timed=True),
    Method("panda", "PAnDA, balls", partial(both_phases, centred), timed=True),
    Method("panda_candidates", "PAnDA, candidates", partial(both_phases, quarter), timed=True),
    *(
        Method(
            f"panda_{decay}",
            f"PAnDA, {decay}",
            partial(both_phases, partial(decaying, decay)),
            timed=True,
            demo_seconds=None,
        )
        for decay in get_args(Decay)
    ),
)


def methods() -> Mapping[str, Method]:
    """The methods by name, in the order of `METHODS`, then those of other packages.

    >>> list(methods())[:3]
    ['exponential', 'exponential_tight', 'exponential_remap']
    """
    found = {
        entry.name.replace("-", "_"): Method(
            entry.name.replace("-", "_"), entry.name, partial(from_outside, entry)
        )
        for entry in entry_points(group=GROUP)
    }
    # Nothing from outside takes a name of ours.
    ours = {method.name: method for method in METHODS}
    return MappingProxyType(ours | found | ours)


def choose_methods(names: Iterable[str]) -> tuple[Method, ...]:
    """The methods of these names (dashes count as underscores), each once, in the given order."""
    existing = methods()
    keys = list(dict.fromkeys(name.strip().replace("-", "_") for name in names))
    unknown = [key for key in keys if key not in existing]
    if unknown or not keys:
        what = f"there is no method {unknown[0]!r}" if unknown else "no method is named"
        raise MethodError(f"{what}; choose from {', '.join(existing)}")
    return tuple(existing[key] for key in keys)
