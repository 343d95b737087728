"""The figures: for each item what draws it and what says it in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from panda_paper.cells.outcome import Row
from panda_paper.draw import loss_figures as curves
from panda_paper.draw import privacy_figures as privacy
from panda_paper.draw import theory_figures as theory
from panda_paper.draw.series import delta_of, epsilon_of, users_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Draw = Callable[[Sequence[Row], str], "Figure"]
Tell = Callable[[Sequence[Row], str], list[str]]


@dataclass(frozen=True)
class Drawing:
    """How an item's rows become a picture and sentences; both get the city's name."""

    draw: Draw
    tell: Tell


def same_draws(rows: Sequence[Row]) -> list[Row]:
    """The rows with balls on the draws of `optimal` alone: losses vary so much between draws that a
    mean over others may lie below the optimum."""
    draws = {row.cell.repeat for row in rows if row.cell.method == "optimal"}
    return [
        row for row in rows if row.cell.method != "ball" or not draws or row.cell.repeat in draws
    ]


def _compared(draw: Draw, tell: Tell) -> Drawing:
    """A figure that sets losses of balls beside the optimum's."""
    return Drawing(
        lambda rows, city: draw(same_draws(rows), city),
        lambda rows, city: tell(same_draws(rows), city),
    )


_TIMES = curves.tell_against(users_of, "seconds", "whole pipeline", " s")
_VARIABLES = curves.tell_against(users_of, "variables", "variables", "")
_USERS = curves.tell_against(users_of, "loss_m", "loss", " m")
_EPSILONS = curves.tell_against(epsilon_of, "loss_m", "loss", " m")
_DELTAS = curves.tell_against(delta_of, "loss_m", "loss", " m")
_DELTA_RATES = curves.tell_against(delta_of, "violated_pairs", "share of pairs violated", "")
DRAWINGS = {
    "figure4": Drawing(theory.draw_surfaces, theory.tell_surfaces),
    "figure6": Drawing(theory.draw_margins, theory.tell_margins),
    "figure6-wide": Drawing(theory.draw_wide_margins, theory.tell_margins),
    "figure7": Drawing(curves.draw_covered, curves.tell_covered),
    "figure8": Drawing(curves.draw_times, _TIMES),
    "figure9": Drawing(curves.draw_variables, _VARIABLES),
    "figure10": _compared(curves.draw_losses, _USERS),
    "figure11": _compared(curves.draw_trade_offs, _EPSILONS),
    "figure12": Drawing(privacy.draw_violations, privacy.tell_violations),
    "figure13": Drawing(privacy.draw_budgets, privacy.tell_budgets),
    "figure14": Drawing(privacy.draw_violations, privacy.tell_violations),
    "figure15": Drawing(privacy.draw_budgets, privacy.tell_budgets),
    "figure16": _compared(curves.draw_delta_losses, _DELTAS),
    "figure17": Drawing(privacy.draw_delta_violations, _DELTA_RATES),
    "figure18": Drawing(theory.draw_estimates, theory.tell_estimates),
    "figure23": Drawing(privacy.draw_bounds, privacy.tell_bounds),
}


def unfinished(rows: Sequence[Row]) -> list[str]:
    """A sentence for each way in which cells ended without a result, with an example."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.status != "done":
            groups.setdefault((row.cell.method, row.status), []).append(row)
    return [
        f"{method}: {len(group)} cells {status}; for example {group[0].outcome.note}"
        for (method, status), group in groups.items()
    ]
