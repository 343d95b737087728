"""Charts: what is told apart at a distance, and what methods cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING

from panda_mdp.base.text import per, plural
from panda_mdp.errors import MethodError
from panda_mdp.panda.calibrate import Calibration
from panda_mdp.plot.measures import privacy_losses
from panda_mdp.plot.style import (
    BLUE,
    INK,
    LINE_STYLES,
    ORANGE,
    PALE,
    PALETTE,
    VERMILION,
    chart_figure,
)
from panda_mdp.problem import Problem
from panda_mdp.survey.bench import MethodRun
from panda_mdp.table.mechanism import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FAMILIES = {
    "BallAnchors": "balls",
    "BernoulliAnchors": "candidates, coins",
    "NoneType": "whole table",
}


def draw_privacy_loss(
    tables: Mapping[str, Table] | Sequence[Table], *, reach: float | None = None, title: str = ""
) -> Figure:
    """How well two records can be told apart, against their distance, beside what is allowed.

    Solid: the worst pair of records at that distance (of 1,500 records where there are more), up to
    `reach`, a third of the diameter by default; black: epsilon d.
    """
    named = tables if isinstance(tables, Mapping) else {t.method: t for t in tables}
    if not named:
        raise MethodError("there are no tables to draw; give at least one")
    domain = next(iter(named.values())).problem.domain
    end = domain.diameter / 3 if reach is None else reach
    unit = domain.unit
    figure, axes = chart_figure(7.6, 5, title or "How well two records can be told apart")
    for (name, table), colour in zip(named.items(), cycle(PALETTE), strict=False):
        label = f"{name}: worst pair"
        axes.plot(*privacy_losses(table, end), color=colour, linewidth=2, label=label)
    for epsilon in sorted({table.epsilon for table in named.values()}):
        axes.plot([0, end], [0, epsilon * end], color=INK, linewidth=1.5, linestyle="--", zorder=5,
                  label=f"allowed: epsilon {epsilon:g} {per(unit)}")  # fmt: skip
    axes.set(
        xlabel=f"distance of two records [{plural(unit)}]",
        ylabel="privacy loss: log of the largest odds change [nats]",
        xlim=(0, end),
        ylim=(0, None),
    )
    axes.legend(frameon=False, loc="upper left")
    return figure


def draw_losses(outcomes: Sequence[MethodRun], bound: float | None) -> Figure:
    """Expected loss of every method, and the bound that none can pass."""
    done = sorted((o for o in outcomes if o.loss is not None), key=lambda o: -(o.loss or 0.0))
    problem = outcomes[0].problem
    title = "Expected loss of mechanisms that keep the same epsilon"
    if bound is not None:
        title += f"\ndashed: no mechanism is below {bound:.3f} {problem.loss_unit}"
    if not all(o.holds for o in done):
        title += "\nhatched: no privacy guarantee"
    figure, axes = chart_figure(8.4, 1.6 + 0.42 * len(done), title)
    losses = [o.loss or 0.0 for o in done]
    looks = [(BLUE, BLUE, "") if o.holds else ("white", VERMILION, "///") for o in done]
    inner, edge, hatch = ([look[k] for look in looks] for k in range(3))
    names = [o.method.label + (f" ({o.method.paper})" if o.method.paper else "") for o in done]
    bars = axes.barh(names, losses, color=inner, edgecolor=edge, hatch=hatch)
    axes.bar_label(bars, [f"{o.loss:.3f}  ({o.seconds:.1f} s)" for o in done], padding=4)
    if bound is not None:
        axes.axvline(bound, color=ORANGE, linestyle="--", linewidth=2)
    axes.set(
        xlim=(0, 1.22 * max(losses, default=1.0)),
        xlabel=f"expected loss [{plural(problem.loss_unit)}], epsilon {problem.epsilon:g} "
        f"{per(problem.domain.unit)}, {problem.size:,} records",
    )
    return figure


def draw_calibration(calibration: Calibration, problem: Problem) -> Figure:
    """Loss against bytes of all that fits; a line joins the frontier, whose points are named by
    what the upload tells, the knee among them."""
    title = f"epsilon {problem.epsilon:g} {per(problem.domain.unit)}, delta {calibration.delta:g}"
    figure, axes = chart_figure(6.8, 4.4, title)
    looks = dict(zip(FAMILIES, LINE_STYLES, strict=False))
    of_family: dict[str, list[tuple[float, float]]] = {}
    for trial in (trial for trial in calibration.tried if trial.fits):
        place = trial.download / 1000, trial.loss or 0.0
        of_family.setdefault(type(trial.selection).__name__, []).append(place)
        if trial in calibration.frontier:
            knee = " (knee)" if trial is calibration.knee else ""
            told = f"ε₁ {trial.selection_epsilon:.2g}{knee}"
            axes.annotate(told, place, (5, -11), textcoords="offset points", fontsize=8)
    for family, places in of_family.items():
        look = {**looks[family], "s": 42, "zorder": 3, "label": FAMILIES[family]}
        axes.scatter(*zip(*places, strict=True), **look)
    best = sorted((trial.download / 1000, trial.loss or 0.0) for trial in calibration.frontier)
    told = "frontier: nothing is better in loss, bytes and secrecy"
    axes.plot(*zip(*best, strict=True), color=PALE, lw=0.8, zorder=1, label=told)
    axes.set(
        xlabel="download per user, kB",
        ylabel=f"expected loss, {problem.loss_unit}",
        xscale="log",
        # From zero, with room for the marker and the words of the highest point.
        ylim=(0, 1.12 * max(loss for places in of_family.values() for _, loss in places)),
    )
    for ticks in (axes.xaxis.set_major_formatter, axes.xaxis.set_minor_formatter):
        ticks(lambda kilobytes, _: f"{kilobytes:g}")
    axes.legend(frameon=False, fontsize=9)
    return figure
