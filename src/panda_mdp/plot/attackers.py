"""Pictures of attackers: how well each record is protected, and the frontier of two objectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from panda_mdp.base.units import plural
from panda_mdp.city.city import City
from panda_mdp.meaning.attack import attack
from panda_mdp.methods.optimal.solve import Solve
from panda_mdp.methods.second.first_order import Recorder
from panda_mdp.methods.second.objectives import Name
from panda_mdp.methods.second.second import lower_objective
from panda_mdp.plot.maps import draw_values
from panda_mdp.plot.style import BLUE, INK, VERMILION, new_figure, plain_axes
from panda_mdp.problem import Problem
from panda_mdp.table.mechanism import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_attacker_error(table: Table, *, city: City | None = None, title: str = "") -> Figure:
    """The best attacker's expected error for each record, on the map: dark is well protected."""
    seen = attack(table, radii=())
    unit = seen.unit
    heading = title or f"How far off the best attacker is: {table.method}"
    words = (
        f"on average {seen.error:.3g} {unit} (without a report {seen.prior_error:.3g})\n"
        f"least protected record {seen.least_error:.3g} {unit}"
    )
    label = f"attacker's expected error [{plural(unit)}]"
    return draw_values(table, seen.error_by_record, city, f"{heading}\n{words}", label)


@dataclass(frozen=True)
class FrontierPoint:
    """One table of the frontier: its slack, loss, the objective with its bound, the error."""

    slack: float
    loss: float
    value: float
    bound: float
    error: float


def frontier(
    problem: Problem,
    slacks: Sequence[float] = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2),
    then: Name = "vulnerability",
    *,
    gap: float = 0.01,
) -> tuple[FrontierPoint, ...]:
    """Tables of `optimal` whose second objective was made best within each slack, slack 0 first."""
    engine = Recorder()
    first = Solve(problem, gap, engine).run()
    points: list[FrontierPoint] = []
    for slack in slacks:
        table = lower_objective(first, then, slack, solver=engine.made)
        facts = table.details["second"]
        if not points:
            error = attack(first, radii=()).error
            points.append(FrontierPoint(0.0, first.loss, facts["before"], float("nan"), error))
        error = attack(table, radii=()).error
        points.append(FrontierPoint(slack, table.loss, facts["value"], facts["bound"], error))
    return tuple(points)


def draw_frontier(points: Sequence[FrontierPoint], *, unit: str, title: str = "") -> Figure:
    """Loss against how often a guess is right, with the proven bound, and the attacker's error."""
    figure = new_figure(10, 4.4)
    figure.suptitle(title or "What a little more loss buys", x=0.015, ha="left", color=INK)
    left, right = figure.subplots(1, 2)
    loss = [point.loss for point in points]
    left.plot(loss, [100 * p.value for p in points], "o-", color=BLUE, label="reached")
    left.plot(
        loss[1:], [100 * p.bound for p in points[1:]], "_", color=VERMILION, markersize=14,
        markeredgewidth=2, label="no private table of this loss has less",
    )  # fmt: skip
    left.set_ylabel("best guess of the record is right [%]")
    left.set_ylim(bottom=0)
    left.legend(frameon=False)
    right.plot(loss, [point.error for point in points], "o-", color=BLUE)
    right.set_ylabel(f"best attacker off by [{plural(unit)}]")
    for axes in (left, right):
        axes.set_xlabel(f"expected loss [{plural(unit)}]")
        plain_axes(axes)
    return figure
