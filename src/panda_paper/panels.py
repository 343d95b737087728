"""Figures from declared series: panels of lines, one look for each method, one function that draws.

A panel says which value of which methods it shows against what; the same series say it in words.
Only what cannot be declared has code of its own (`figures.py`).
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from panda_mdp.plot.style import INK, PALE, new_figure, plain_axes
from panda_paper.cell import named
from panda_paper.results import Row, Rows
from panda_paper.series import Averages, Series, below

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL_WIDTH, PANEL_HEIGHT = 4.3, 3.7
TITLE_CHARACTERS = 9.5
"""Of a title, per inch."""
EDGE = 0.055
"""What a line of infinite values takes of an axis."""
AXIS_LABELS = {"records": "K", "epsilon": "claimed epsilon [1/km]"}


@dataclass(frozen=True)
class Look:
    """How a method is drawn, the same in every figure."""

    colour: str
    marker: str
    line: str = "-"
    aside: float = 0.0
    """How far it is drawn to one side, as a share of the axis: some methods often agree."""


Finish = Callable[["Axes", Rows, list[Series]], object]
"""What is done to the axes of a panel, given the series that it shows."""


@dataclass(frozen=True)
class Line:
    """One value of some methods, a series for each."""

    value: str
    methods: tuple[str, ...] = ()
    """Those of the panel where there are none."""
    label: str | None = None
    look: Mapping[str, Any] = field(default_factory=dict)
    """Where it is not the method's own."""
    flat: bool = False
    """Whether it is one number that does not depend on the axis, drawn over all of it."""
    options: Mapping[str, float] = field(default_factory=dict)
    """Of the cells that it is about."""


@dataclass(frozen=True)
class Panel:
    """Lines against an axis of the experiment."""

    title: str
    y: str
    lines: tuple[Line, ...]
    looks: Mapping[str, Look]
    axis: str = "records"
    """A field of the setting, or a value."""
    finish: Finish | None = None
    """Sets the axes, and draws what lines cannot show."""
    x: str | None = None
    """The label of the horizontal axis, where it is not the axis's own."""
    method: str | None = None
    bars: bool = False
    """Whether shares of a whole are stacked, a bar for each method at each point."""

    def series(self, rows: Rows) -> list[tuple[Series, Look]]:
        """What there is of every line; flat ones over all places of the others."""
        found = [
            (line, one)
            for line in self.lines
            for one in rows.with_options(line.options).curves(
                line.methods or (str(self.method),), line.value, self.axis
            )
        ]
        places = max((one.x for line, one in found if not line.flat), key=len, default=np.empty(0))
        shown = []
        for line, one in found if len(places) else ():
            look = replace(self.look(line.label or "", one.label), **line.look)
            series = replace(one, label=line.label or one.label)
            if line.flat:
                mean = float(one.mean.mean())
                series = Series.of(one.label, [(x, mean, 0.0) for x in places])
                look = look if one.label.endswith("text") else replace(look, marker="")
            shown.append((series, look))
        return shown

    def look(self, label: str, method: str) -> Look:
        """The look of a label or of a method: colour by variant, text dotted."""
        names = (label, method, method.split(" ", maxsplit=1)[0])
        look = next((self.looks[name] for name in names if name in self.looks), Look(INK, "."))
        return replace(look, line=":") if method.endswith("text") else look

    def draw(self, axes: Axes, rows: Rows) -> None:
        """Draw the panel, or say that it is empty."""
        axes.set_title(self.title, loc="left", color=INK, fontsize=10.5)
        axes.set_xlabel(self.x or AXIS_LABELS.get(self.axis, self.axis), color=INK)
        axes.set_ylabel(self.y, color=INK)
        shown = self.series(rows)
        if not shown:
            centre: Any = {"transform": axes.transAxes, "ha": "center", "va": "center"}
            axes.text(0.5, 0.5, "no results yet", color=PALE, **centre)
            axes.set(xticks=[], yticks=[])
            return
        if self.bars:
            draw_bars(axes, shown)
            return
        if self.axis == "delta":
            axes.set_xscale("log")
        elif self.axis == "records":
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        for series, look in shown:
            draw_series(axes, series, look)
        if self.finish is not None:
            about = rows if self.method is None else rows.of(self.method)
            self.finish(axes, about, [series for series, _ in shown])
        mark_infinite(axes, shown)

    def tell(self, rows: Rows) -> str:
        """The series in words: each at its first point and its last; bars have templates."""
        told = []
        for series, _ in () if self.bars else self.series(rows):
            ends = (f"{mean:,.4g} at {x:,g}" for x, mean in dict.fromkeys(series.ends))
            told.append(f"{series.label} {' to '.join(ends)}")
        return f"{self.title}, {' '.join(self.y.split())}: {'; '.join(told)}." if told else ""


Words = str | Sequence[str]
"""Templates over quantities; a part of which a quantity is unknown is left out."""


class Evidence(dict[str, Any]):
    """What templates and rules may say: quantities by name, values of items by path.

    A path is an item, a method or group of them, a value, and what of it: its `mean`, the `means`
    of the methods, their curves over an axis, or how far these are on average `below` or `above`
    those of another method: `table4/published/loss_m/below EM+BR.low`.
    """

    def __init__(self, rows_of: Callable[[str], Rows], quantities: Mapping[str, Any]) -> None:
        super().__init__(quantities)
        self.rows_of = rows_of
        for name, one in quantities.items():
            if one is None or (isinstance(one, float) and np.isnan(one)):
                del self[name]

    def __missing__(self, path: str) -> Any:
        item, *parts = path.split("/")
        if len(parts) != 3:
            raise KeyError(path)
        group, value, what = parts
        rows, (how, _, other) = self.rows_of(item), what.partition(" ")
        finished = rows.of(*named([group]))
        axis = "records" if other or how in ("mean", "means") else what
        found: Any = finished.curves(finished.methods, value, axis)
        if how == "means":
            found = Averages({one.label: finished.of(one.label).mean(value) for one in found})
        elif other:
            theirs = rows.of(other).series(value.removeprefix("true_"))
            sign = 1 if how == "below" else -1
            shares = ((one.label, sign * below(one, theirs)) for one in found)
            found = Averages({name: float(one.mean()) for name, one in shares if len(one)})
        if not found:
            raise KeyError(path)
        return finished.mean(value) if how == "mean" else found


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


@dataclass(frozen=True)
class Drawing:
    """How a figure's rows become a picture and sentences; both get the city's name."""

    title: str
    panels: tuple[Panel, ...]
    sentences: Sequence[str] = ()
    """Templates over the rows, whose paths begin with `figure`."""
    columns: int = 5
    """Of the legend."""
    rows: int = 1
    """Of panels."""
    same_draws: bool = False
    """Whether balls are shown on the draws of `optimal` alone."""

    def shown(self, rows: Iterable[Row]) -> Rows:
        """The rows that the figure is about."""
        return same_draws(Rows(rows)) if self.same_draws else Rows(rows)

    def draw(self, rows: Iterable[Row], city: str) -> Figure:
        """The picture."""
        figure, axes = subplots(len(self.panels), self.title.format(city=city), lines=self.rows)
        handles: dict[str, Artist] = {}
        for one, panel in zip(axes, self.panels, strict=True):
            panel.draw(one, self.shown(rows))
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
        found = Evidence(lambda _: shown, {"city": city})
        told = (fill(sentence, found) for sentence in self.sentences)
        return [*filter(None, (*told, *(panel.tell(shown) for panel in self.panels)))]


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


def draw_series(axes: Axes, series: Series, look: Look) -> None:
    """A line with bars of 1.96 standard deviations; points that are infinite are left out.

    Bars end at 0, below which nothing that is drawn here can lie, and at a thirtieth of the mean,
    so that one wide bar does not take all of a logarithmic axis.
    """
    shown = np.isfinite(series.mean) & np.isfinite(series.x)
    if not shown.any():
        return
    x, mean, above = series.x[shown], series.mean[shown], series.spread[shown]
    below = np.minimum(above, np.maximum(mean, 0.0) * (1 - 1 / 30))
    whole = np.append(x, axes.dataLim.intervalx if axes.has_data() else x)
    logarithmic = axes.get_xscale() == "log"
    if logarithmic:
        x = x * (whole.max() / whole.min()) ** look.aside
    axes.errorbar(
        x if logarithmic else x + look.aside * np.ptp(whole),
        mean,
        yerr=[below, above] if above.any() else None,
        color=look.colour,
        marker=look.marker or None,
        markersize=5.5,
        markerfacecolor="white" if series.label.endswith("text") else look.colour,
        linestyle=look.line,
        linewidth=1.8,
        elinewidth=0.9,
        capsize=2.5,
        label=series.label,
    )


def mark_infinite(axes: Axes, shown: Iterable[tuple[Series, Look]]) -> None:
    """What is infinite, at the upper edge: a line of marks for each series, above all others."""
    infinite = [(one, look) for one, look in shown if np.isinf(one.mean).any()]
    if not infinite:
        return
    axes.margins(y=EDGE * (len(infinite) + 2))
    axes.text(1.01, 1 - EDGE, "∞", transform=axes.transAxes, fontsize=13)
    for k, (series, look) in enumerate(infinite, start=1):
        places = series.x[np.isinf(series.mean)]
        axes.plot(
            places,
            np.full(len(places), 1 - EDGE * k),
            transform=axes.get_xaxis_transform(),
            color=look.colour,
            marker=look.marker,
            linestyle="",
            label=series.label if len(places) == len(series) else "_nolegend_",
        )


def draw_bars(axes: Axes, shown: Sequence[tuple[Series, Look]]) -> None:
    """Shares of a whole, stacked: a bar for each method at each point."""
    parts: dict[str, list[Series]] = {}
    for series, _ in shown:
        parts.setdefault(series.label, []).append(series)
    colours = {series.label: look.colour for series, look in shown}
    bottom: Any = 0.0
    for label, several in parts.items():
        column = np.concatenate([series.mean for series in several])
        axes.bar(range(len(column)), column, 0.78, bottom, color=colours[label], label=label)
        bottom = bottom + column
    names = [
        f"{letter} {size / 1000:g}k"
        for letter, series in zip("epl", several, strict=False)
        for size in series.x
    ]
    axes.set_xticks(range(len(names)), names, rotation=90, fontsize=8)
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
