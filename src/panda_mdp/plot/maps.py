"""Pictures on the map: a city, where a record goes, what each record loses and tells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.base.packages import need
from panda_mdp.base.text import inverse, per, plural
from panda_mdp.city.city import City
from panda_mdp.city.layers import Shapes
from panda_mdp.city.places import Places
from panda_mdp.errors import DomainError, MethodError
from panda_mdp.meaning.attack import attack
from panda_mdp.meaning.explain import distance_words
from panda_mdp.panda.run import PandaRun
from panda_mdp.plot.measures import expected_losses, local_epsilons, radius_of_share
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
    new_figure,
    round_length,
)
from panda_mdp.problem import Problem
from panda_mdp.space.domain import Domain, check_indices, check_record
from panda_mdp.space.metrics import Haversine
from panda_mdp.survey.bench import MethodRun
from panda_mdp.table.mechanism import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import Collection
    from matplotlib.figure import Figure

SHARE = 0.8
PROBABILITY = "probability"
LEGEND_AREA = 80.0


class Ground:
    """What a picture stands on: records, or all junctions, in km; streets, and zones."""

    def __init__(
        self, domain: Domain | None, city: City | None, zones: Places | None = None
    ) -> None:
        lat, lon = places_of(domain, city)
        self._meridian = float(lon[0])
        self._plane = Haversine(lat, self._east(lon))
        self.points = self.km(lat, lon)
        self._city = city
        self.outlines: Shapes | None = None
        if zones is not None and zones.shapes is not None:
            self.outlines = outlines_of(zones, len(self.points), self.km)

    def _east(self, lon: FloatArray) -> FloatArray:
        """Degrees east of the first place, which may lie across the date line."""
        return (lon - self._meridian + 180) % 360 - 180

    def km(self, lat: FloatArray, lon: FloatArray) -> FloatArray:
        """Places on the picture, km east and north of its middle."""
        return self._plane.project(lat, self._east(lon))

    @property
    def extent(self) -> FloatArray:
        """All that a picture must hold, (n, 2)."""
        if self.outlines is None:
            return self.points
        return need("shapely", "drawing zones", "geo").get_coordinates(self.outlines)

    def figure(
        self, title: str, *, beside: float = 0.0, strong: bool = False
    ) -> tuple[Figure, Axes]:
        """A figure with the ground drawn; `beside` inches are for a colour bar."""
        figure, axes = map_figure(self.extent, title, beside=beside)
        self.draw(axes, strong=strong)
        return figure, axes

    def draw(self, axes: Axes, *, strong: bool = False) -> None:
        """Streets, the outlines of zones and the scale bar."""
        if self._city is not None:
            nodes = self.km(self._city.lat, self._city.lon)
            draw_streets(axes, nodes, self._city.u, self._city.v, strong=strong)
        if self.outlines is not None:
            axes.add_collection(zone_patches(self.outlines))
        map_axes(axes, self.extent)


def places_of(domain: Domain | None, city: City | None) -> tuple[FloatArray, FloatArray]:
    """Latitude and longitude of the records: their own, or those of their nodes in the city; of all
    nodes where there are no records."""
    nodes: Any = slice(None)
    if domain is not None:
        if domain.geographic:
            return domain.lat, domain.lon
        nodes = domain.nodes
    if city is None or nodes is None:
        kind = "none" if domain is None else domain.metric.kind
        raise DomainError(
            f"records of a domain of kind {kind} have no places to draw; "
            "give the city that the domain was made from"
        )
    if domain is not None and nodes.max(initial=0) >= city.nodes:
        raise DomainError(
            "the domain has nodes that this city lacks; give the city that it was made from"
        )
    return city.lat[nodes], city.lon[nodes]


def report_places(problem: Problem, ground: Ground) -> FloatArray:
    """Where the outputs lie, in km: their records', or their own places."""
    reports = problem.reports
    if reports.records is not None:
        return ground.points[reports.records]
    if reports.lat is None or reports.lon is None:
        raise DomainError(
            "these outputs are labels and have no places to draw; use Outputs.at(lat, lon)"
        )
    return ground.km(reports.lat, reports.lon)


def outlines_of(zones: Places, size: int, km: Callable[..., FloatArray]) -> Shapes:
    """Every record's zone in km: holes turn the other way."""
    shapely = need("shapely", "drawing zones", "geo")
    if len(zones) != size:
        raise DomainError(
            f"the table has {size} records and there are {len(zones)} zones; "
            "give the places that its domain was made from"
        )
    # Matplotlib fills where rings wind around: normalised, a hole winds back.
    return shapely.transform(shapely.normalize(zones.shapes), lambda xy: km(*xy.T[::-1]))


def zone_patches(outlines: Shapes, values: FloatArray | None = None) -> Collection:
    """Zones for a picture: filled by their values, or only outlined."""
    from matplotlib.collections import PatchCollection

    patch = need("shapely.plotting", "drawing zones", "geo").patch_from_polygon
    look: Any = {"facecolors": "none", "zorder": 2} if values is None else {"zorder": 3}
    marks = PatchCollection([*map(patch, outlines)], edgecolors=PALE, linewidths=0.6, **look)
    marks.set_array(values)
    return marks


def mark(axes: Axes, points: FloatArray, **look: Any) -> Collection:
    """Marks at places (..., 2) in km."""
    return axes.scatter(points[..., 0], points[..., 1], **look)


def draw_city(city: City, *, domain: Domain | None = None) -> Figure:
    """The streets of a city, and the records of a domain on them where one is given."""
    caption = f"{city.nodes:,} junctions, {city.streets:,} streets, {city.total_km:,.0f} km of road"
    ground = Ground(None, city)
    figure, axes = ground.figure(f"{city.name or 'City'}\n{caption}", strong=domain is None)
    if domain is not None:
        records = ground.km(*places_of(domain, city))
        size = np.clip(4000 / len(records), 1.5, 30)
        mark(axes, records, s=size, color=BLUE, zorder=3, label=f"{len(records):,} records")
        legend_below(axes)
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
    row = check_record(record, problem.size, MethodError)
    ground = Ground(problem.domain, city, zones)
    home = ground.points[row]
    share = table.row(row)
    heading = title or f"Where one record goes: {table.method}"
    caption = f"expected loss here {problem.loss[row] @ share:.3g} {problem.loss_unit}"
    radius = radius_of_share(table, row, SHARE) if problem.domain.geographic else None
    if radius is not None:
        where = f"within {distance_words(radius)}" if radius > 0 else "at the record itself"
        caption += f", {SHARE:.0%} of reports {where}"
    figure, axes = ground.figure(f"{heading}, epsilon {_epsilon(table)}\n{caption}")
    goals = None if tasks is None else ground.points[check_indices(tasks, problem.size, "tasks")]
    areas = circle_areas(share)
    draw_reports(axes, report_places(problem, ground), areas, home, goals)
    if radius:
        angle = np.linspace(0, 2 * np.pi, 200)
        ring = home[:, None] + radius * np.stack([np.cos(angle), np.sin(angle)])
        axes.plot(*ring, color=VERMILION, linewidth=1.2, linestyle="--", zorder=4,
                  label=f"holds {SHARE:.0%} of reports")  # fmt: skip
    draw_reports_legend(axes, areas)
    return figure


def draw_reports(
    axes: Axes,
    reports: FloatArray,
    areas: FloatArray,
    home: FloatArray,
    goals: FloatArray | None = None,
) -> None:
    """Where one record's reports go: places (m, 2) in km, areas (m,) of circles, its own."""
    mark(axes, reports, s=8, color=PALE, zorder=2, label="possible report")
    mark(axes, reports, s=areas, color=BLUE, alpha=0.72, linewidth=0, zorder=3,
                 label=PROBABILITY)  # fmt: skip
    _draw_star(axes, home, "true place")
    if goals is not None:
        mark(axes, goals, s=70, marker="s", color=ORANGE, edgecolor=INK, zorder=5,
                     label="task")  # fmt: skip


def _draw_star(axes: Axes, home: FloatArray, label: str) -> None:
    mark(axes, home, s=260, marker="*", color=VERMILION, edgecolor="white", zorder=6,
                 label=label)  # fmt: skip


def draw_reports_legend(axes: Axes, areas: FloatArray) -> None:
    """What the marks of `draw_reports` mean, and the percentage that a circle of some area is."""
    # Probabilities sum to 1, so the sum of the areas is that of a certain report.
    whole = areas.sum()
    share = round_length(LEGEND_AREA / whole)
    legend: Any = legend_below(axes)
    for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True):
        if text.get_text() == PROBABILITY:
            handle.set_sizes([share * whole])
            text.set_text(f"probability: this area is {100 * share:g} %")


def draw_side_by_side(city: City, tasks: IntArray, shown: Sequence[MethodRun]) -> Figure:
    """Where the report for one central record may lie, one panel per method."""
    drawn = [o for o in shown if o.reports is not None]
    problem = drawn[0].problem
    ground = Ground(problem.domain, city)
    points = ground.points
    record = np.argmin(((points - points.mean(axis=0)) ** 2).sum(axis=1))
    figure = new_figure(6.2 * len(drawn), 6.6)
    figure.suptitle(
        f"What is reported for one record, epsilon {problem.epsilon:g} {per(problem.domain.unit)}",
        color=INK,
    )
    # One scale for all panels: a circle twice as large is twice as likely in any of them.
    areas = circle_areas(np.stack([np.asarray(o.reports)[record] for o in drawn]))
    panels = np.atleast_1d(figure.subplots(1, len(drawn)))
    for axes, outcome, area in zip(panels, drawn, areas, strict=True):
        ground.draw(axes)
        draw_reports(axes, points[problem.outputs], area, points[record], points[tasks])
        draw_reports_legend(axes, area)
        axes.set_title(
            f"{outcome.method.label}\nexpected loss over all records "
            f"{outcome.loss:.3f} {problem.loss_unit}",
            color=INK,
        )
    return figure


def draw_anchors(run: PandaRun, user: int, *, city: City | None = None) -> Figure:
    """The anchors that a simulated user (by position) uploaded, among all records.

    They are public; the star is the simulated record, which is not.
    """
    ground = Ground(run.problem.domain, city)
    anchors = run.anchor_sets[user]
    total = run.problem.size
    size = np.clip(6000 / total, 2, 30)
    figure, axes = ground.figure(
        f"One user's anchors: {len(anchors):,} of {total:,} records\n{run.scheme.selection!r}"
    )
    rest = np.delete(ground.points, anchors, axis=0)
    mark(axes, rest, s=size, color=PALE, zorder=2, label="other records")
    mark(axes, ground.points[anchors], s=1.6 * size, color=BLUE, zorder=3,
                 label=f"anchors, {len(anchors) / total:.0%}")  # fmt: skip
    _draw_star(axes, ground.points[run._records[user]], "simulated record")
    legend_below(axes)
    return figure


def draw_expected_loss(
    table: Table, *, city: City | None = None, zones: Places | None = None, title: str = ""
) -> Figure:
    """The expected loss of each record on the map."""
    unit = table.problem.loss_unit
    heading = title or f"Expected loss of each record: {table.method}, epsilon {_epsilon(table)}"
    words = f"{heading}\nmean under the prior {table.loss:.3g} {unit}"
    ground = Ground(table.problem.domain, city, zones)
    return draw_values(ground, expected_losses(table), words, f"expected loss [{plural(unit)}]")


def draw_local_epsilon(
    table: Table, *, city: City | None = None, zones: Places | None = None
) -> Figure:
    """The epsilon that each record really has, on the map: at most the one that was promised."""
    unit = table.problem.domain.unit
    words = (
        f"Epsilon that each record really has: {table.method}\n"
        f"promised {_epsilon(table)}; largest {table.audit.epsilon:.4g} {per(unit)}"
    )
    ground = Ground(table.problem.domain, city, zones)
    return draw_values(ground, local_epsilons(table), words, f"local epsilon [{inverse(unit)}]")


def draw_attacker_error(
    table: Table, *, city: City | None = None, zones: Places | None = None
) -> Figure:
    """The best attacker's expected error for each record, on the map: dark is well protected."""
    seen = attack(table, radii=())
    words = (
        f"How far off the best attacker is: {table.method}\n"
        f"on average {seen.error:.3g} {seen.unit} (without a report {seen.prior_error:.3g})\n"
        f"least protected record {seen.least_error:.3g} {seen.unit}"
    )
    ground = Ground(table.problem.domain, city, zones)
    label = f"attacker's expected error [{plural(seen.unit)}]"
    return draw_values(ground, seen.error_by_record, words, label)


def draw_values(ground: Ground, values: FloatArray, title: str, label: str) -> Figure:
    """One value per record on the map: points, high ones on top, or zones filled by it.

    The scale lies between the 1st and 99th percentiles, so that one record does not take all the
    colours; values that are all but equal get one colour, and a scale whose ticks can be read.
    """
    figure, axes = ground.figure(title, beside=0.9)
    points = ground.points
    finite = np.isfinite(values)
    finite_values = values[finite]
    low, high = np.percentile(finite_values, [1, 99]) if len(finite_values) else (0.0, 1.0)
    high = max(high, low + 0.01 * abs(low) + 1e-12)
    size = np.clip(36000 / len(points), 4, 60)
    # High values last: they are what one looks for.
    order = np.flatnonzero(finite)[np.argsort(finite_values, kind="stable")]
    marks: Collection
    if ground.outlines is not None:
        marks = zone_patches(ground.outlines[order], values[order])
        axes.add_collection(marks)
    else:
        marks = mark(axes, points[order], s=size, c=values[order], linewidth=0, zorder=3)
    marks.set(cmap=SEQUENCE, clim=(low, high))
    if not finite.all():
        mark(axes, points[~finite], s=size, marker="x", color=VERMILION, zorder=4,
                     label="unbounded")  # fmt: skip
        legend_below(axes)
    beyond = {(0, 0): "neither", (1, 0): "min", (0, 1): "max", (1, 1): "both"}
    extend = beyond[int((finite_values < low).any()), int((finite_values > high).any())]
    bar = figure.colorbar(marks, ax=axes, shrink=0.72, pad=0.01, extend=extend)
    bar.ax.ticklabel_format(axis="y", useOffset=False)
    bar.set_label(label)
    bar.outline.set_visible(False)
    return figure


def _epsilon(table: Table) -> str:
    return f"{table.epsilon:g} {per(table.problem.domain.unit)}"
