"""Pictures on the map: a city, where a record goes, what each record loses and tells."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import FloatArray
from panda_mdp.base.units import inverse, per, plural
from panda_mdp.city.city import City
from panda_mdp.city.read.places import Places
from panda_mdp.errors import MethodError
from panda_mdp.meaning.words import distance_words
from panda_mdp.plot.measures import expected_losses, local_epsilons, radius_of_share
from panda_mdp.plot.positions import Plane, output_places, places_of, plane_of
from panda_mdp.plot.style import (
    BLUE,
    INK,
    ORANGE,
    PALE,
    SEQUENCE,
    VERMILION,
    circle_areas,
    draw_streets,
    legend_below,
    map_axes,
    map_figure,
    round_length,
)
from panda_mdp.plot.zones import outlines_of, reach_of, zone_patches
from panda_mdp.space.domain import Domain, check_indices
from panda_mdp.table.mechanism import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import Collection
    from matplotlib.figure import Figure

SHARE = 0.8
PROBABILITY = "probability"
LEGEND_AREA = 80.0


def draw_city(city: City, *, domain: Domain | None = None, title: str = "") -> Figure:
    """The streets of a city, and the records of a domain on them where one is given."""
    plane = plane_of(city.lat, city.lon)
    nodes = plane.km(city.lat, city.lon)
    caption = f"{city.nodes:,} junctions, {city.streets:,} streets, {city.total_km:,.0f} km of road"
    figure, axes = map_figure(nodes, f"{title or city.name or 'City'}\n{caption}")
    draw_streets(axes, nodes, city.u, city.v, strong=domain is None)
    if domain is not None:
        records = plane.km(*places_of(domain, city))
        size = float(np.clip(4000 / len(records), 1.5, 30))
        axes.scatter(
            records[:, 0],
            records[:, 1],
            s=size,
            color=BLUE,
            zorder=3,
            label=f"{len(records):,} records",
        )
        legend_below(axes)
    map_axes(axes, nodes)
    return figure


def draw_record(
    table: Table,
    record: int,
    *,
    city: City | None = None,
    tasks: npt.ArrayLike | None = None,
    zones: Places | None = None,
    title: str = "",
) -> Figure:
    """Where a record goes: the area of a circle is the probability that its place is reported.

    The dashed ring holds 80 % of the reports (for distances along a straight line).
    """
    problem = table.problem
    try:
        row = int(check_indices([record], problem.size, "record")[0])
    except ValueError:
        # The value is left out: a record may be somebody's.
        msg = f"the record is not one of 0..{problem.size - 1}"
        raise MethodError(msg) from None
    lat, lon = places_of(problem.domain, city)
    plane = plane_of(lat, lon)
    points = plane.km(lat, lon)
    reports, home = plane.km(*output_places(problem, city)), points[row]
    share = table.row(row)
    heading = title or f"Where one record goes: {table.method}"
    caption = f"expected loss here {problem.loss[row] @ share:.3g} {problem.loss_unit}"
    radius = radius_of_share(table, row, SHARE) if problem.domain.geographic else None
    if radius is not None:
        where = f"within {distance_words(radius)}" if radius > 0 else "at the record itself"
        caption += f", {SHARE:.0%} of reports {where}"
    outlines = outlines_of(zones, problem.size, plane)
    extent = points if outlines is None else reach_of(outlines)
    figure, axes = map_figure(extent, f"{heading}, epsilon {_epsilon(table)}\n{caption}")
    _draw_ground(axes, plane, city)
    if outlines is not None:
        axes.add_collection(zone_patches(outlines))
    goals = None if tasks is None else points[check_indices(tasks, problem.size, "tasks")]
    draw_reports(axes, reports, circle_areas(share), home, goals)
    if radius:
        angle = np.linspace(0, 2 * np.pi, 200)
        ring = home + radius * np.stack([np.cos(angle), np.sin(angle)], axis=1)
        axes.plot(
            ring[:, 0], ring[:, 1], color=VERMILION, linewidth=1.2, linestyle="--", zorder=4,
            label=f"holds {SHARE:.0%} of reports",
        )  # fmt: skip
    map_axes(axes, extent)
    draw_reports_legend(axes, circle_areas(share))
    return figure


def draw_reports(
    axes: Axes,
    reports: FloatArray,
    areas: FloatArray,
    home: FloatArray,
    goals: FloatArray | None = None,
) -> None:
    """Where one record's reports go: places (m, 2) in km, areas (m,) of circles, its own."""
    axes.scatter(reports[:, 0], reports[:, 1], s=8, color=PALE, zorder=2, label="possible report")
    axes.scatter(
        reports[:, 0],
        reports[:, 1],
        s=areas,
        color=BLUE,
        alpha=0.72,
        linewidth=0,
        zorder=3,
        label=PROBABILITY,
    )
    axes.scatter(
        home[0],
        home[1],
        s=260,
        marker="*",
        color=VERMILION,
        edgecolor="white",
        zorder=6,
        label="true place",
    )
    if goals is not None:
        axes.scatter(
            goals[:, 0],
            goals[:, 1],
            s=70,
            marker="s",
            color=ORANGE,
            edgecolor=INK,
            zorder=5,
            label="task",
        )


def draw_reports_legend(axes: Axes, areas: FloatArray) -> None:
    """What the marks of `draw_reports` mean, and the percentage that a circle of some area is."""
    from matplotlib.collections import PathCollection

    # Probabilities sum to 1, so the sum of the areas is that of a certain report.
    whole = float(areas.sum())
    share = round_length(LEGEND_AREA / whole)
    legend = legend_below(axes)
    for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True):
        if isinstance(handle, PathCollection) and text.get_text() == PROBABILITY:
            handle.set_sizes([share * whole])
            text.set_text(f"probability: this area is {100 * share:g} %")


def draw_expected_loss(
    table: Table, *, city: City | None = None, zones: Places | None = None, title: str = ""
) -> Figure:
    """The expected loss of each record on the map."""
    unit = table.problem.loss_unit
    mean = f"mean under the prior {table.loss:.3g} {unit}"
    heading = title or f"Expected loss of each record: {table.method}, epsilon {_epsilon(table)}"
    return draw_values(
        table,
        expected_losses(table),
        city,
        f"{heading}\n{mean}",
        f"expected loss [{plural(unit)}]",
        zones,
    )


def draw_local_epsilon(
    table: Table, *, city: City | None = None, zones: Places | None = None, title: str = ""
) -> Figure:
    """The epsilon that each record really has, on the map: at most the one that was promised."""
    unit = table.problem.domain.unit
    heading = title or f"Epsilon that each record really has: {table.method}"
    caption = f"promised {_epsilon(table)}; largest {table.audit.epsilon:.4g} {per(unit)}"
    return draw_values(
        table,
        local_epsilons(table),
        city,
        f"{heading}\n{caption}",
        f"local epsilon [{inverse(unit)}]",
        zones,
    )


def draw_values(
    table: Table,
    values: FloatArray,
    city: City | None,
    title: str,
    label: str,
    zones: Places | None = None,
) -> Figure:
    """One value per record on the map: points, high ones on top, or zones filled by it."""
    lat, lon = places_of(table.problem.domain, city)
    plane = plane_of(lat, lon)
    points = plane.km(lat, lon)
    outlines = outlines_of(zones, len(points), plane)
    extent = points if outlines is None else reach_of(outlines)
    figure, axes = map_figure(extent, title, beside=0.9)
    _draw_ground(axes, plane, city)
    finite = np.isfinite(values)
    low, high = _range(values[finite])
    size = float(np.clip(36000 / len(points), 4, 60))
    # High values last: they are what one looks for.
    order = np.flatnonzero(finite)[np.argsort(values[finite], kind="stable")]
    marks: Collection
    if outlines is None:
        marks = axes.scatter(
            points[order, 0], points[order, 1], s=size, c=values[order], linewidth=0, zorder=3
        )
    else:
        axes.add_collection(zone_patches(outlines))
        marks = zone_patches([outlines[k] for k in order], values[order])
        axes.add_collection(marks)
    marks.set(cmap=SEQUENCE, clim=(low, high))
    if not finite.all():
        axes.scatter(
            points[~finite, 0],
            points[~finite, 1],
            s=size,
            marker="x",
            color=VERMILION,
            zorder=4,
            label="unbounded",
        )
        legend_below(axes)
    map_axes(axes, extent)
    below, above = (values[finite] < low).any(), (values[finite] > high).any()
    beyond = {(0, 0): "neither", (1, 0): "min", (0, 1): "max", (1, 1): "both"}
    extend = beyond[int(below), int(above)]
    bar = figure.colorbar(marks, ax=axes, shrink=0.72, pad=0.01, extend=extend)
    bar.ax.ticklabel_format(axis="y", useOffset=False)
    bar.set_label(label)
    bar.outline.set_visible(False)
    return figure


def _range(values: FloatArray) -> tuple[float, float]:
    """The scale: between the 1st and 99th percentiles, so that one record does not take all the
    colours."""
    if len(values) == 0:
        return 0.0, 1.0
    low, high = np.percentile(values, [1, 99])
    # Values that are all but equal get one colour, and a scale whose ticks can be read.
    return float(low), max(float(high), float(low) + 0.01 * abs(float(low)) + 1e-12)


def _draw_ground(axes: Axes, plane: Plane, city: City | None) -> None:
    if city is not None:
        draw_streets(axes, plane.km(city.lat, city.lon), city.u, city.v)


def _epsilon(table: Table) -> str:
    return f"{table.epsilon:g} {per(table.problem.domain.unit)}"
