"""The demo's two pictures, as PNG."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from panda_mdp.base.arrays import IntArray
from panda_mdp.city.city import City
from panda_mdp.privacy.quantise import TOTAL
from panda_mdp.survey.runs import Outcome

# Okabe and Ito's colours, told apart by all kinds of colour vision.
BLUE, ORANGE, VERMILION, GREY, LIGHT = "#0072B2", "#E69F00", "#D55E00", "#6E6E6E", "#C4C4C4"


def draw_map(city: City, tasks: IntArray, shown: Sequence[Outcome]) -> bytes:
    """Where the report for one central record may lie, one panel per method."""
    problem = shown[0].problem
    domain = problem.domain
    lat0, lon0 = float(domain.lat.mean()), float(domain.lon.mean())
    record = int(np.argmin((domain.lat - lat0) ** 2 + (domain.lon - lon0) ** 2))
    east = 111.195 * np.cos(np.deg2rad(lat0))

    def km(lat: Any, lon: Any) -> Any:
        return np.stack([(lon - lon0) * east, (lat - lat0) * 111.195], axis=-1)

    nodes = km(city.lat, city.lon)
    home = km(domain.lat[record], domain.lon[record])
    reports = km(domain.lat[problem.outputs], domain.lon[problem.outputs])
    goals = km(domain.lat[tasks], domain.lon[tasks])
    streets = nodes[np.stack([city.u, city.v], axis=1)]
    figure = Figure(figsize=(6.2 * len(shown), 6.6), dpi=110, layout="constrained")
    figure.suptitle(
        f"What is reported for one record, epsilon {problem.epsilon:g} per {domain.unit}"
    )
    for axes, outcome in zip(np.atleast_1d(figure.subplots(1, len(shown))), shown, strict=True):
        if outcome.weights is None or outcome.loss is None:
            continue
        share = outcome.weights[record] / float(TOTAL)
        axes.add_collection(LineCollection(list(streets), colors=LIGHT, linewidths=0.4, zorder=1))
        axes.scatter(*reports.T, s=9, color=GREY, zorder=2, label="output")
        axes.scatter(
            *reports.T, s=1400 * share, color=BLUE, alpha=0.75, zorder=3, label="area: probability"
        )
        axes.scatter(*home, s=150, marker="*", color=VERMILION, edgecolor="black", zorder=4,
                     label="true record")  # fmt: skip
        axes.scatter(*goals.T, s=80, marker="s", color=ORANGE, edgecolor="black", zorder=4,
                     label="task")  # fmt: skip
        axes.set_title(
            f"{outcome.method.label}\nexpected loss over all records "
            f"{outcome.loss:.3f} {problem.loss_unit}"
        )
        axes.set_aspect("equal")
        axes.autoscale_view()
        axes.set_xlabel("east of the centre [km]")
        axes.set_ylabel("north of the centre [km]")
        legend = axes.legend(loc="lower right", framealpha=0.95)
        for handle in legend.legend_handles:
            handle.set_sizes([60])
    return _png(figure)


def draw_chart(outcomes: Sequence[Outcome], bound: float | None) -> bytes:
    """Expected loss of every method, and the bound that none can pass."""
    done = sorted((o for o in outcomes if o.loss is not None), key=lambda o: -(o.loss or 0.0))
    problem = outcomes[0].problem
    figure = Figure(figsize=(8.4, 1.6 + 0.42 * len(done)), dpi=110, layout="constrained")
    axes = figure.subplots()
    losses = [o.loss or 0.0 for o in done]
    bars = axes.barh(
        [o.method.label + ("" if o.method.paper is None else f" ({o.method.paper})") for o in done],
        losses,
        color=[BLUE if o.holds else "white" for o in done],
        edgecolor=[BLUE if o.holds else VERMILION for o in done],
        hatch=["" if o.holds else "///" for o in done],
    )
    axes.bar_label(
        bars,
        [f"{o.loss:.3f}  ({o.seconds:.1f} s)" for o in done],
        padding=4,
    )
    title = "Expected loss of mechanisms that keep the same epsilon"
    if bound is not None:
        axes.axvline(bound, color=ORANGE, linestyle="--", linewidth=2)
        title += f"\ndashed: no mechanism is below {bound:.3f} {problem.loss_unit}"
    if not all(o.holds for o in done):
        title += "\nhatched: no privacy guarantee"
    axes.set_title(title, loc="left")
    axes.set_xlim(0, 1.22 * max(losses, default=1.0))
    axes.set_xlabel(
        f"expected loss [{problem.loss_unit}], epsilon {problem.epsilon:g} per "
        f"{problem.domain.unit}, {problem.size:,} records"
    )
    axes.spines[["top", "right"]].set_visible(False)
    return _png(figure)


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    FigureCanvasAgg(figure).print_figure(buffer, format="png")
    return buffer.getvalue()
