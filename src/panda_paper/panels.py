"""Figures from declared series: panels of lines, one look for each method, one function that draws.

A panel says which value of which methods it shows against what. Only what cannot be declared, as
bars, surfaces and remarks on the values, has code of its own (`figures.py`).
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from panda_mdp.base.arrays import FloatArray
from panda_mdp.plot.style import (
    BLACK,
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PALE,
    PURPLE,
    SKY,
    VERMILION,
    new_figure,
    plain_axes,
)
from panda_paper.results import Row
from panda_paper.series import Axis, Series, collect_all, mean_of

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL_WIDTH, PANEL_HEIGHT = 4.3, 3.7
TITLE_CHARACTERS = 9.5
"""Of a title, per inch."""


@dataclass(frozen=True)
class Look:
    """How a method is drawn, the same in every figure."""

    colour: str
    marker: str
    line: str = "-"


_VARIANT = {"e": (BLUE, "o", "-"), "p": (VERMILION, "s", "-"), "l": (GREEN, "^", "--")}
_ASIDE = {"PAnDA-e": -1.0, "PAnDA-l": 1.0, "loss exponential": -1.0, "ball": 1.0}
"""Methods that often agree with another are drawn a little to one side of it."""
ASIDE = 0.009
"""How far, as a share of the axis."""
_OTHERS = {
    "optimal": Look(BLACK, "X"),
    "optimal, certified bound": Look(BLACK, "", "--"),
    "loss exponential": Look(PURPLE, "D"),
    "ball": Look(ORANGE, "P"),
    "EM": Look(PALE, "v"),
    "EM+BR": Look(PALE, "<", "--"),
    "LP+CA": Look(SKY, "h"),
    "LP+CA 8x8": Look(SKY, "h"),
    "LP+CA published": Look(SKY, "*", "--"),
}


def look(method: str) -> Look:
    """The look of a method: colour by variant, text dotted."""
    for letter, (colour, marker, line) in _VARIANT.items():
        if method.startswith(f"PAnDA-{letter}"):
            return Look(colour, marker, ":" if "text" in method else line)
    return _OTHERS.get(method, Look(INK, "."))


Finish = Callable[["Axes", Sequence[Row], list[Series]], None]
"""What is done to the axes of a panel that has something to show."""
AXIS_LABELS: dict[Axis, str] = {
    "records": "K",
    "users": "users",
    "epsilon": "claimed epsilon [1/km]",
    "delta": "delta",
}


@dataclass(frozen=True)
class Line:
    """One value of some methods, a series for each."""

    methods: tuple[str, ...]
    value: str
    flat: bool = False
    """Whether it is one number that does not depend on the axis, drawn over all of it."""
    label: str | None = None
    style: Look | None = None
    aside: bool = True

    def series(self, rows: Sequence[Row], axis: Axis, x: FloatArray) -> list[Series]:
        """What there is of it; flat lines are drawn over the places `x`."""
        if not self.flat:
            found = collect_all(rows, self.methods, self.value, axis)
            return [
                series if self.label is None else replace(series, label=self.label)
                for series in found
            ]
        means = {name: mean_of(rows, (name,), self.value) for name in self.methods}
        return [
            replace(Series.of(name, x, np.full(len(x), mean)), flat=not name.endswith("text"))
            for name, mean in means.items()
            if len(x) and not np.isnan(mean)
        ]


@dataclass(frozen=True)
class Panel:
    """Lines against an axis of the experiment."""

    title: str
    axis: Axis
    y: str
    lines: tuple[Line, ...] = ()
    x: str | None = None
    """The label of the horizontal axis, where it is not the axis's own."""
    before: Finish | None = None
    finish: Finish | None = None
    custom: Callable[[Axes, Sequence[Row]], bool] | None = None
    """Draws what lines cannot show; says whether there was anything."""

    def draw(self, axes: Axes, rows: Sequence[Row]) -> None:
        """Draw the panel, or say that it is empty."""
        label_axes(axes, self.title, AXIS_LABELS[self.axis] if self.x is None else self.x, self.y)
        if self.custom is not None:
            if not self.custom(axes, rows):
                say_empty(axes)
            return
        nowhere = np.empty(0)
        own = [one for line in self.lines for one in line.series(rows, self.axis, nowhere)]
        if not own:
            say_empty(axes)
            return
        if self.before is not None:
            self.before(axes, rows, own)
        if self.axis == "delta":
            axes.set_xscale("log")
        everywhere = max(own, key=len).x
        for line in self.lines:
            for series in line.series(rows, self.axis, everywhere):
                draw_series(axes, series, line.style, aside=line.aside)
        if self.axis == "records":
            thousands(axes)
        if self.finish is not None:
            self.finish(axes, rows, own)


Tell = Callable[[Sequence[Row], str], list[str]]
"""Sentences about rows; the second argument is the city's name."""


@dataclass(frozen=True)
class Drawing:
    """How a figure's rows become a picture and sentences; both get the city's name."""

    title: str
    panels: tuple[Panel, ...]
    sentences: Tell
    columns: int = 5
    """Of the legend."""
    lines: int = 1
    """Of panels."""
    same_draws: bool = False
    """Whether balls are shown on the draws of `optimal` alone."""

    def draw(self, rows: Sequence[Row], city: str) -> Figure:
        """The picture."""
        shown = same_draws(rows) if self.same_draws else rows
        figure, axes = panels(len(self.panels), self.title.format(city=city), rows=self.lines)
        for one, panel in zip(axes, self.panels, strict=True):
            panel.draw(one, shown)
        legend_below(figure, axes, columns=self.columns)
        return figure

    def tell(self, rows: Sequence[Row], city: str) -> list[str]:
        """The picture in words."""
        return self.sentences(same_draws(rows) if self.same_draws else rows, city)


def same_draws(rows: Sequence[Row]) -> list[Row]:
    """The rows with balls on the draws of `optimal` alone: losses vary so much between draws that a
    mean over others may lie below the optimum."""
    draws = {row.cell.repeat for row in rows if row.cell.method == "optimal"}
    return [
        row for row in rows if row.cell.method != "ball" or not draws or row.cell.repeat in draws
    ]


def panels(count: int, title: str, *, rows: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure with panels side by side, its title at the left edge."""
    columns = -(-count // rows)
    width = max(6.2, PANEL_WIDTH * columns)
    figure = new_figure(width, PANEL_HEIGHT * rows + 0.55)
    # A long name of a city goes on in a second line.
    title = textwrap.fill(title, int(TITLE_CHARACTERS * width))
    figure.suptitle(title, x=0.012, ha="left", color=INK, fontsize=12.5, fontweight="bold")
    axes = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for one in axes:
        plain_axes(one)
    return figure, axes


def draw_series(
    axes: Axes,
    series: Series,
    style: Look | None = None,
    *,
    aside: bool = True,
) -> None:
    """A line with bars of 1.96 standard deviations; points that are infinite are left out.

    Bars end at 0, below which nothing that is drawn here can lie, and at a thirtieth of the mean,
    so that one wide bar does not take all of a logarithmic axis.
    """
    drawn = style or look(series.label)
    shown = np.isfinite(series.mean)
    if not shown.any():
        return
    mean, above = series.mean[shown], series.spread[shown]
    below = np.minimum(above, np.maximum(mean, 0.0) * (1 - 1 / 30))
    axes.errorbar(
        _aside(axes, series.label, series.x[shown]) if aside else series.x[shown],
        mean,
        yerr=[below, above] if above.any() else None,
        color=drawn.colour,
        marker=None if series.flat else drawn.marker or None,
        markersize=5.5,
        markerfacecolor="white" if series.label.endswith("text") else drawn.colour,
        linestyle=drawn.line,
        linewidth=1.8,
        elinewidth=0.9,
        capsize=2.5,
        label=series.label,
    )


def _aside(axes: Axes, label: str, x: FloatArray) -> FloatArray:
    """Places of a series, a little aside where it would hide another."""
    share = ASIDE * next((side for name, side in _ASIDE.items() if label.startswith(name)), 0.0)
    low, high = float(x[0]), float(x[-1])
    if axes.has_data():
        drawn = axes.dataLim.intervalx
        low, high = min(low, float(drawn[0])), max(high, float(drawn[1]))
    if axes.get_xscale() == "log":
        return np.asarray(x * (high / low) ** share)
    return np.asarray(x + share * (high - low))


def label_axes(axes: Axes, title: str, x: str, y: str) -> None:
    """Titles of a panel and of its axes."""
    axes.set_title(title, loc="left", color=INK, fontsize=10.5)
    axes.set_xlabel(x, color=INK)
    axes.set_ylabel(y, color=INK)


def legend_below(figure: Figure, axes: Sequence[Axes], *, columns: int = 5) -> None:
    """One legend for all panels, each label once, below them."""
    handles: dict[str, Artist] = {}
    for one in axes:
        for handle, label in zip(*one.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if handles:
        figure.legend(
            list(handles.values()),
            list(handles),
            loc="outside lower center",
            ncols=min(columns, len(handles)),
            frameon=False,
            fontsize=9,
        )


def say_empty(axes: Axes, text: str = "no results yet") -> None:
    """A panel without anything to draw says so."""
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=PALE)
    axes.set_xticks([])
    axes.set_yticks([])


def thousands(axes: Axes) -> None:
    """K on the horizontal axis, with separators."""
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def log_or_linear(axes: Axes, *_: object) -> None:
    """A logarithmic vertical axis where positive values span more than a factor of 20."""
    values = np.concatenate(
        [np.asarray(line.get_ydata(), dtype=np.float64) for line in axes.get_lines()]
        or [np.ones(1)]
    )
    values = values[np.isfinite(values)]
    if len(values) and values.min() > 0 and values.max() > 20 * values.min():
        from matplotlib.ticker import LogLocator, NullFormatter

        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_ylim(bottom=0)
