"""Methods side by side: where each sends one record, and what each loses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from panda_mdp.base.arrays import IntArray
from panda_mdp.base.units import per, plural
from panda_mdp.city.city import City
from panda_mdp.plot.maps import draw_reports, draw_reports_legend
from panda_mdp.plot.positions import places_of, plane_of
from panda_mdp.plot.style import (
    BLUE,
    INK,
    ORANGE,
    VERMILION,
    circle_areas,
    draw_streets,
    map_axes,
    new_figure,
    plain_axes,
)
from panda_mdp.survey.runs import Outcome

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_side_by_side(city: City, tasks: IntArray, shown: Sequence[Outcome]) -> Figure:
    """Where the report for one central record may lie, one panel per method."""
    drawn = [o for o in shown if o.reports is not None]
    problem = drawn[0].problem
    lat, lon = places_of(problem.domain, city)
    plane = plane_of(lat, lon)
    points, nodes = plane.km(lat, lon), plane.km(city.lat, city.lon)
    record = int(np.argmin(((points - points.mean(axis=0)) ** 2).sum(axis=1)))
    figure = new_figure(6.2 * len(drawn), 6.6)
    figure.suptitle(
        f"What is reported for one record, epsilon {problem.epsilon:g} {per(problem.domain.unit)}",
        color=INK,
    )
    # One scale for all panels: a circle twice as large is twice as likely in any of them.
    areas = circle_areas(np.stack([np.asarray(o.reports)[record] for o in drawn]))
    panels = np.atleast_1d(figure.subplots(1, len(drawn)))
    for axes, outcome, area in zip(panels, drawn, areas, strict=True):
        draw_streets(axes, nodes, city.u, city.v)
        draw_reports(axes, points[problem.outputs], area, points[record], points[tasks])
        map_axes(axes, nodes)
        draw_reports_legend(axes, area)
        axes.set_title(
            f"{outcome.method.label}\nexpected loss over all records "
            f"{outcome.loss:.3f} {problem.loss_unit}",
            color=INK,
        )
    return figure


def draw_losses(outcomes: Sequence[Outcome], bound: float | None) -> Figure:
    """Expected loss of every method, and the bound that none can pass."""
    done = sorted((o for o in outcomes if o.loss is not None), key=lambda o: -(o.loss or 0.0))
    problem = outcomes[0].problem
    figure = new_figure(8.4, 1.6 + 0.42 * len(done))
    axes = figure.subplots()
    plain_axes(axes)
    losses = [o.loss or 0.0 for o in done]
    bars = axes.barh(
        [o.method.label + ("" if o.method.paper is None else f" ({o.method.paper})") for o in done],
        losses,
        color=[BLUE if o.holds else "white" for o in done],
        edgecolor=[BLUE if o.holds else VERMILION for o in done],
        hatch=["" if o.holds else "///" for o in done],
    )
    axes.bar_label(bars, [f"{o.loss:.3f}  ({o.seconds:.1f} s)" for o in done], padding=4)
    title = "Expected loss of mechanisms that keep the same epsilon"
    if bound is not None:
        axes.axvline(bound, color=ORANGE, linestyle="--", linewidth=2)
        title += f"\ndashed: no mechanism is below {bound:.3f} {problem.loss_unit}"
    if not all(o.holds for o in done):
        title += "\nhatched: no privacy guarantee"
    axes.set_title(title, loc="left", color=INK)
    axes.set_xlim(0, 1.22 * max(losses, default=1.0))
    axes.set_xlabel(
        f"expected loss [{plural(problem.loss_unit)}], epsilon {problem.epsilon:g} "
        f"{per(problem.domain.unit)}, {problem.size:,} records"
    )
    return figure
