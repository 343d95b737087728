"""The table of methods: what `compare`, `demo` and other surveys run, by name.

A method joins with one line in `METHODS`. Lines whose module is not part of the installation are
passed over, so a survey always covers exactly the methods that exist.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType

from panda_mdp.errors import MethodError
from panda_mdp.mechanism import Table
from panda_mdp.problem import Problem


@dataclass(frozen=True)
class Method:
    """How to run one method on a problem."""

    name: str
    label: str
    """For tables and charts."""
    function: str
    """Where it is, as `module:function`, imported when it is run."""
    paper: str | None = None
    """Its name in the paper's tables."""
    options: tuple[tuple[str, bool | float | str], ...] = ()
    timed: bool = False
    """Whether the function takes `time_limit` and returns its best so far when that is over."""
    remapped: bool = False
    """Whether the table is remapped afterwards."""
    demo_seconds: float = 10.0
    """Time limit in the demo."""

    @property
    def exists(self) -> bool:
        """Whether the method's module is part of this installation."""
        return find_spec(self.function.partition(":")[0]) is not None

    def run(self, problem: Problem, time_limit: float | None = None) -> Table:
        """The method's table for a problem; `time_limit` (seconds) reaches methods that take it."""
        module, _, attribute = self.function.partition(":")
        function = getattr(import_module(module), attribute)
        options = dict(self.options)
        if self.timed and time_limit is not None:
            options["time_limit"] = time_limit
        start = time.perf_counter()
        table: Table = function(problem, **options)
        if self.remapped:
            from panda_mdp.methods.remap import remap

            table = remap(table)
        if not table.stages:
            table = replace(table, stages=(("all", time.perf_counter() - start),))
        return table


_HOME = "panda_mdp.methods"
_EM = f"{_HOME}.exponential:exponential"
_LAPLACE = f"{_HOME}.laplace:planar_laplace"
_LOSS_EM = f"{_HOME}.loss_exponential:loss_exponential"
_OPTIMAL = f"{_HOME}.optimal:optimal"
_TIGHT = (("tight", True),)
_HIGHS = (("backend", "highs"),)

METHODS = (
    Method("exponential", "exponential", _EM, "EM"),
    Method("exponential_tight", "exponential, tight", _EM, options=_TIGHT),
    Method("exponential_remap", "exponential + remap", _EM, "EM+BR", remapped=True),
    Method("planar_laplace", "planar Laplace", _LAPLACE),
    Method("planar_laplace_remap", "planar Laplace + remap", _LAPLACE, remapped=True),
    Method("loss_exponential", "loss exponential", _LOSS_EM),
    Method("loss_exponential_tight", "loss exponential, tight", _LOSS_EM, options=_TIGHT),
    Method("constopt", "ConstOPT", f"{_HOME}.constopt:constopt", "LP+EM", timed=True),
    Method("coarse", "coarse grid", f"{_HOME}.coarse:coarse", "LP+CA", timed=True),
    Method("benders", "Benders", f"{_HOME}.benders:benders", "LP+BD", timed=True),
    Method("optimal_highs", "optimal, HiGHS", _OPTIMAL, options=_HIGHS, timed=True),
    Method("optimal", "optimal", _OPTIMAL, "LP", timed=True, demo_seconds=20.0),
)


def methods() -> Mapping[str, Method]:
    """The methods that exist here, by name, in the order of `METHODS`.

    >>> list(methods())[:3]
    ['exponential', 'exponential_tight', 'exponential_remap']
    """
    return MappingProxyType({method.name: method for method in METHODS if method.exists})


def choose_methods(names: Iterable[str]) -> tuple[Method, ...]:
    """The methods of these names (dashes count as underscores), each once, in the given order."""
    known = methods()
    chosen: dict[str, Method] = {}
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
