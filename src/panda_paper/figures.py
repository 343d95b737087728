"""The figures: for each item what draws it and what says it in words, and the files of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from panda_mdp.base.atomic import atomic_file
from panda_mdp.errors import MethodError
from panda_mdp.plot.style import save_figure
from panda_paper import figures_curves as curves
from panda_paper import figures_privacy as privacy
from panda_paper import figures_theory as theory
from panda_paper.draws import Study
from panda_paper.figures_series import delta_of, epsilon_of, users_of
from panda_paper.specs import Item
from panda_paper.store import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Draw = Callable[[Sequence[Row], str], "Figure"]
Tell = Callable[[Sequence[Row], str], list[str]]


@dataclass(frozen=True)
class Drawing:
    """How an item's rows become a picture and sentences; both get the city's name."""

    draw: Draw
    tell: Tell


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
    "figure10": Drawing(curves.draw_losses, _USERS),
    "figure11": Drawing(curves.draw_trade_offs, _EPSILONS),
    "figure12": Drawing(privacy.draw_violations, privacy.tell_violations),
    "figure13": Drawing(privacy.draw_budgets, privacy.tell_budgets),
    "figure14": Drawing(privacy.draw_violations, privacy.tell_violations),
    "figure15": Drawing(privacy.draw_budgets, privacy.tell_budgets),
    "figure16": Drawing(curves.draw_delta_losses, _DELTAS),
    "figure17": Drawing(privacy.draw_delta_violations, _DELTA_RATES),
    "figure18": Drawing(theory.draw_estimates, theory.tell_estimates),
    "figure23": Drawing(privacy.draw_bounds, privacy.tell_bounds),
}


def drawing_of(name: str) -> Drawing:
    """The drawing of an item."""
    if name not in DRAWINGS:
        msg = f"{name!r} is no figure; choose from {', '.join(DRAWINGS)}"
        raise MethodError(msg)
    return DRAWINGS[name]


def render_figure(item: Item, rows: Sequence[Row], study: Study) -> list[Path]:
    """Write an item's picture as PNG and SVG, and what it shows as markdown."""
    made = drawing_of(item.name)
    city = study.name[:1].upper() + study.name[1:]
    figure = made.draw(rows, city)
    files = [
        save_figure(figure, study.folder / f"{item.name}{suffix}") for suffix in (".png", ".svg")
    ]
    text = study.folder / f"{item.name}.md"
    sentences = made.tell(rows, city) or ["There are no results yet."]
    lines = [
        f"# {item.title}",
        "",
        f"![{item.title}]({item.name}.png)",
        "",
        *(f"- {one}" for one in sentences),
        *unfinished(rows),
        "",
    ]
    with atomic_file(text) as stream:
        stream.write("\n".join(lines).encode())
    return [*files, text]


def unfinished(rows: Sequence[Row]) -> list[str]:
    """A line for each way in which cells ended without a result, with an example."""
    told: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.status != "done":
            told.setdefault((row.cell.method, row.status), []).append(row)
    return [
        f"- {method}: {len(found)} cells {status}; for example {found[0].outcome.note}"
        for (method, status), found in told.items()
    ]
