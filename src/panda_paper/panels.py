"""Figures from declared series: panels of lines, one look for each method, one function that draws.

A panel says which value of which methods it shows against what. Only what cannot be declared, as
bars, surfaces and remarks on the values, has code of its own (`figures.py`, `theory_figures.py`).
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

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
from panda_paper.results import Row, Rows
from panda_paper.series import Axis, Series

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
    aside: float = 0.0
    """How far it is drawn to one side, as a share of the axis: some methods often agree."""


ASIDE = 0.009
_LOOKS = {
    "PAnDA-e": Look(BLUE, "o", aside=-ASIDE),
    "PAnDA-p": Look(VERMILION, "s"),
    "PAnDA-l": Look(GREEN, "^", "--", ASIDE),
    "optimal": Look(BLACK, "X"),
    "loss exponential": Look(PURPLE, "D", aside=-ASIDE),
    "ball": Look(ORANGE, "P", aside=ASIDE),
    "EM": Look(PALE, "v"),
    "EM+BR": Look(PALE, "<", "--"),
    "LP+CA": Look(SKY, "h"),
}


def look(method: str) -> Look:
    """The look of a method: colour by variant, text dotted."""
    found = _LOOKS.get(method) or _LOOKS.get(method.split(" ", maxsplit=1)[0], Look(INK, "."))
    return replace(found, line=":") if method.endswith("text") else found


Finish = Callable[["Axes", Rows, list[Series]], object]
"""What is done to the axes of a panel, given the series that its lines have."""
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
    label: str | None = None
    style: Look | None = None
    flat: bool = False
    """Whether it is one number that does not depend on the axis, drawn over all of it."""

    def series(self, rows: Rows, axis: Axis, places: FloatArray) -> list[Series]:
        """What there is of it; flat lines are drawn over the places."""
        if not self.flat:
            found = rows.curves(self.methods, self.value, axis)
            return [replace(series, label=self.label or series.label) for series in found]
        means = {name: rows.of(name).mean(self.value) for name in self.methods}
        return [
            Series.of(name, [(x, mean, 0.0) for x in places], flat=not name.endswith("text"))
            for name, mean in means.items()
            if len(places) and not np.isnan(mean)
        ]


@dataclass(frozen=True)
class Panel:
    """Lines against an axis of the experiment."""

    title: str
    y: str
    axis: Axis = "records"
    lines: tuple[Line, ...] = ()
    finish: Finish | None = None
    """Sets the axes where the lines have anything, and draws what lines cannot show."""
    x: str | None = None
    """The label of the horizontal axis, where it is not the axis's own."""

    def draw(self, axes: Axes, rows: Rows) -> None:
        """Draw the panel, or say that it is empty."""
        x = AXIS_LABELS[self.axis] if self.x is None else self.x
        entitle(axes, self.title)
        axes.set_xlabel(x, color=INK)
        axes.set_ylabel(self.y, color=INK)
        found = [line.series(rows, self.axis, np.empty(0)) for line in self.lines]
        own = [series for several in found for series in several]
        if own:
            if self.axis == "delta":
                axes.set_xscale("log")
            everywhere = max(own, key=len).x
            for line in self.lines:
                for series in line.series(rows, self.axis, everywhere):
                    draw_series(axes, series, line.style)
            if self.axis == "records":
                axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        if self.finish is not None and (own or not self.lines):
            self.finish(axes, rows, own)
        if not axes.has_data():
            centre: Any = {"transform": axes.transAxes, "ha": "center", "va": "center"}
            axes.text(0.5, 0.5, "no results yet", color=PALE, **centre)
            axes.set(xticks=[], yticks=[])


Tell = Callable[[Rows, str], Iterable[str]]
"""Sentences about rows; the second argument is the city's name."""
Words = str | Sequence[str]
"""Templates over quantities; a part of which a quantity is unknown is left out."""


class Means(dict[str, Any]):
    """What templates may say of rows: their values' means by name, and whatever is given."""

    def __init__(self, rows: Rows, **given: Any) -> None:
        super().__init__(given)
        self.rows = rows

    def __missing__(self, name: str) -> float:
        mean = self.rows.mean(name)
        if np.isnan(mean):
            raise KeyError(name)
        return mean


def fill(words: Words, found: Mapping[str, Any]) -> str:
    """The templates with the quantities in them.

    >>> fill(("{share:.0%} of all", "; {rest:.0%} left"), {"share": 0.5})
    '50% of all'
    """
    text = ""
    for part in (words,) if isinstance(words, str) else words:
        try:
            text += part.format_map(found)
        except KeyError:
            continue
    return text.removeprefix("; ")


def tell_means(template: str, groups: Mapping[str, Sequence[str]]) -> Tell:
    """A sentence over the means of each group of methods, those with unknown ones left out."""

    def tell(rows: Rows, city: str) -> list[str]:
        found = (
            fill(template, Means(rows.of(*methods), name=name, city=city))
            for name, methods in groups.items()
        )
        return [sentence for sentence in found if sentence]

    return tell


@dataclass(frozen=True)
class Drawing:
    """How a figure's rows become a picture and sentences; both get the city's name."""

    title: str
    panels: tuple[Panel, ...]
    sentences: tuple[Tell, ...]
    columns: int = 5
    """Of the legend."""
    lines: int = 1
    """Of panels."""
    same_draws: bool = False
    """Whether balls are shown on the draws of `optimal` alone."""

    def shown(self, rows: Iterable[Row]) -> Rows:
        """The rows that the figure is about."""
        return same_draws(Rows(rows)) if self.same_draws else Rows(rows)

    def draw(self, rows: Iterable[Row], city: str) -> Figure:
        """The picture."""
        title = self.title.format(city=city)
        figure, axes = subplots(len(self.panels), title, lines=self.lines)
        for one, panel in zip(axes, self.panels, strict=True):
            panel.draw(one, self.shown(rows))
        handles: dict[str, Artist] = {}
        for one in axes:
            for handle, label in zip(*one.get_legend_handles_labels(), strict=True):
                handles.setdefault(label, handle)
        if handles:
            figure.legend(
                list(handles.values()),
                list(handles),
                loc="outside lower center",
                ncols=min(self.columns, len(handles)),
                frameon=False,
                fontsize=9,
            )
        return figure

    def tell(self, rows: Iterable[Row], city: str) -> list[str]:
        """The picture in words."""
        shown = self.shown(rows)
        return [sentence for tell in self.sentences for sentence in tell(shown, city)]


def same_draws(rows: Rows) -> Rows:
    """The rows with balls on the draws of `optimal` alone: losses vary so much between draws that a
    mean over others may lie below the optimum."""
    draws = {row.cell.repeat for row in rows if row.cell.method == "optimal"}
    return Rows(
        row for row in rows if row.cell.method != "ball" or not draws or row.cell.repeat in draws
    )


def subplots(count: int, title: str, *, lines: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure with panels side by side, its title at the left edge."""
    columns = -(-count // lines)
    width = max(6.2, PANEL_WIDTH * columns)
    figure = new_figure(width, PANEL_HEIGHT * lines + 0.55)
    # A long name of a city goes on in a second line.
    title = textwrap.fill(title, int(TITLE_CHARACTERS * width))
    figure.suptitle(title, x=0.012, ha="left", color=INK, fontsize=12.5, fontweight="bold")
    axes = figure.subplots(lines, columns, squeeze=False).ravel().tolist()
    for one in axes:
        plain_axes(one)
    return figure, axes


def draw_series(axes: Axes, series: Series, style: Look | None = None) -> None:
    """A line with bars of 1.96 standard deviations; points that are infinite are left out.

    Bars end at 0, below which nothing that is drawn here can lie, and at a thirtieth of the mean,
    so that one wide bar does not take all of a logarithmic axis.
    """
    drawn = style or look(series.label)
    shown = np.isfinite(series.mean)
    if not shown.any():
        return
    x, mean, above = series.x[shown], series.mean[shown], series.spread[shown]
    below = np.minimum(above, np.maximum(mean, 0.0) * (1 - 1 / 30))
    whole = np.append(x, axes.dataLim.intervalx if axes.has_data() else x)
    logarithmic = axes.get_xscale() == "log"
    if logarithmic:
        x = x * (whole.max() / whole.min()) ** drawn.aside
    axes.errorbar(
        x if logarithmic else x + drawn.aside * np.ptp(whole),
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


def entitle(axes: Axes, title: str) -> None:
    """Give a panel its title."""
    axes.set_title(title, loc="left", color=INK, fontsize=10.5)


def log_or_linear(axes: Axes, *_: object) -> None:
    """A logarithmic vertical axis where positive values span more than a factor of 20."""
    values = np.concatenate([np.asarray(line.get_ydata(), float) for line in axes.get_lines()])
    values = values[np.isfinite(values)]
    if len(values) and values.min() > 0 and values.max() > 20 * values.min():
        from matplotlib.ticker import LogLocator, NullFormatter

        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_ylim(bottom=0)


def limited(bottom: float) -> Finish:
    """A vertical axis that begins there."""
    return lambda axes, *_: axes.set_ylim(bottom=bottom)
