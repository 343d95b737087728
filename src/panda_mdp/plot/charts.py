"""Charts: what methods cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from panda_mdp.base.text import per, plural
from panda_mdp.panda.calibrate import Calibration
from panda_mdp.plot.style import BLUE, LINE_STYLES, ORANGE, PALE, VERMILION, chart_figure
from panda_mdp.problem import Problem
from panda_mdp.survey.bench import MethodRun

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FAMILIES = {
    "BallAnchors": "balls",
    "BernoulliAnchors": "candidates, coins",
    "NoneType": "whole table",
}


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
