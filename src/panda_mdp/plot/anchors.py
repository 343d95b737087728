"""Pictures of PAnDA: one user's anchors on the map, and what fits as a frontier."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from panda_mdp.base.units import per
from panda_mdp.city.city import City
from panda_mdp.panda.calibrate import Calibration
from panda_mdp.panda.result import PandaRun
from panda_mdp.plot.positions import places_of, plane_of
from panda_mdp.plot.style import (
    BLUE,
    MARKERS,
    PALE,
    PALETTE,
    VERMILION,
    draw_streets,
    legend_below,
    map_axes,
    map_figure,
    new_figure,
    plain_axes,
)
from panda_mdp.problem import Problem

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_anchors(run: PandaRun, user: int, *, city: City | None = None) -> Figure:
    """The anchors that a simulated user (by position) uploaded, among all records.

    They are public; the star is the simulated record, which is not.
    """
    lat, lon = places_of(run.problem.domain, city)
    plane = plane_of(lat, lon)
    points = plane.km(lat, lon)
    chosen = run.anchor_sets[user]
    share = len(chosen) / run.problem.size
    count = f"{len(chosen):,} of {run.problem.size:,} records"
    title = f"One user's anchors: {count}\n{run.selection!r}"
    figure, axes = map_figure(points, title)
    if city is not None:
        draw_streets(axes, plane.km(city.lat, city.lon), city.u, city.v)
    home = points[run._records[user]]
    rest = np.setdiff1d(np.arange(run.problem.size), chosen)
    x, y = points.T
    size = float(np.clip(6000 / len(points), 2, 30))
    axes.scatter(x[rest], y[rest], s=size, color=PALE, zorder=2, label="other records")
    axes.scatter(
        points[chosen, 0],
        points[chosen, 1],
        s=1.6 * size,
        color=BLUE,
        zorder=3,
        label=f"anchors, {share:.0%}",
    )
    axes.scatter(
        home[0],
        home[1],
        s=240,
        marker="*",
        color=VERMILION,
        edgecolor="white",
        zorder=6,
        label="simulated record",
    )
    map_axes(axes, points)
    legend_below(axes)
    return figure


def draw_frontier(calibration: Calibration, problem: Problem) -> Figure:
    """Loss against download; what the upload tells joins points and is written beside one."""
    figure = new_figure(6.8, 4.4)
    axes = figure.subplots()
    kinds = dict.fromkeys(
        type(trial.selection).__name__ for trial in calibration.tried if trial.fits
    )
    for kind, colour, marker in zip(kinds, PALETTE, MARKERS, strict=False):
        some = [t for t in calibration.tried if t.fits and type(t.selection).__name__ == kind]
        axes.scatter(
            [100 * t.anchors / problem.size for t in some],
            np.array([t.loss for t in some], dtype=np.float64),
            color=colour,
            marker=marker,
            s=42,
            zorder=3,
            label={"BallAnchors": "balls", "BernoulliAnchors": "candidates, coins"}[kind],
        )
    alike: dict[tuple[str, float], list[tuple[float, float]]] = {}
    for trial in calibration.frontier:
        key = (type(trial.selection).__name__, trial.selection_epsilon)
        at = (100 * trial.anchors / problem.size, trial.loss or 0.0)
        alike.setdefault(key, []).append(at)
    for (_, epsilon), points in alike.items():
        axes.plot(*zip(*sorted(points), strict=True), color=PALE, lw=0.8, zorder=1)
        axes.annotate(
            f"ε₁ {epsilon:.2g}", points[0], xytext=(5, 5), textcoords="offset points", fontsize=8
        )
    axes.set(
        xlabel="download per user, % of the table",
        ylabel=f"expected loss, {problem.loss_unit}",
        title=f"epsilon {problem.epsilon:g} {per(problem.domain.unit)}, "
        f"delta {calibration.delta:g}",
        xlim=(0, 108),
    )
    # From zero, with room for the marker and the words of the highest point.
    axes.set_ylim(0, 1.12 * max(trial.loss or 0.0 for trial in calibration.tried if trial.fits))
    axes.legend(frameon=False)
    plain_axes(axes)
    return figure
