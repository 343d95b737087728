"""The paper's figures: panels of declared lines (`figures.toml`), one look for each method, one
function that draws.

A panel says which value of which methods it shows against what; the same series say it in words.
Only what cannot be declared has code of its own: a function that finishes a panel.
"""

from __future__ import annotations

import textwrap
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from panda_mdp.plot import style
from panda_mdp.plot.style import INK, PALE, new_figure, plain_axes
from panda_paper.accounts import RADIUS_KM
from panda_paper.evidence import Evidence, fill
from panda_paper.items import PUBLISHED, TEXT, named
from panda_paper.results import Row, Rows, Series

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL_WIDTH = 4.3
PANEL_HEIGHT = 3.7
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
            for one in rows.where(**line.options).curves(
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
    x = series.x[shown]
    mean = series.mean[shown]
    above = series.spread[shown]
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


COVERED_SHARE = 0.1481
"""Records that the LP covers in the paper, on average."""
FLOOR = 1e-9
"""Where a rate of 0 is drawn on a logarithmic axis."""


def from_zero(axes: Axes, *_: object) -> None:
    """A vertical axis that begins at 0."""
    axes.set_ylim(bottom=0)


def share(axes: Axes, *_: object) -> None:
    """A vertical axis for shares."""
    axes.set_ylim(-0.03, 1.03)


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
        from_zero(axes)


def audited(axes: Axes, *_: object) -> None:
    """Losses against the epsilon that an audit finds."""
    axes.set_xscale("log")
    log_or_linear(axes)


def selection(axes: Axes, rows: Rows, _: object) -> None:
    """How many records a user selects, beside the probabilities along a line."""
    axes.set(yscale="log", ylim=(1e-6, 2))
    axes.axvline(RADIUS_KM, color=PALE, lw=0.8, ls="--")
    text, code = (rows.mean(f"{one}_near") + rows.mean(f"{one}_far") for one in ("text", "code"))
    note = (
        f"a user selects on average\ntext: {text:,.0f} of {rows.mean('records'):,.0f}\n"
        f"code: {code:,.1f}"
    )
    axes.text(0.97, 0.55, note, transform=axes.transAxes, ha="right", va="center", fontsize=9)


def coverage(axes: Axes, _: Rows, drawn: list[Series]) -> None:
    """All records, and the paper's share of them."""
    sizes = np.unique(np.concatenate([one.x for one in drawn]))
    axes.plot(sizes, sizes, color=PALE, lw=1, ls="--", label="all K records")
    axes.plot(sizes, COVERED_SHARE * sizes, color=INK, lw=1, ls=":", label="14.81 % (the paper)")
    close = {one.label for one in drawn} <= set(PUBLISHED)
    axes.set_ylim(0, 1.6 * max(one.high for one in drawn) if close else None)


def counts(axes: Axes, rows: Rows, drawn: list[Series]) -> None:
    """Numbers of variables, that over all records beside those of the text."""
    axes.set_ylim(0, 1.12 * axes.get_ylim()[1])
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    if drawn[0].label in TEXT:
        for count in {row.cell.setting.records * row.cell.setting.outputs for row in rows}:
            axes.axhline(count, color=INK, lw=1, ls="--", label="all records: optimal")


def rates(axes: Axes, _: Rows, drawn: list[Series]) -> None:
    """Violation rates from 0."""
    top = max(float((series.mean + series.spread).max()) for series in drawn)
    axes.set_ylim(-0.04 * top, max(1.05 * top, 1e-3))
    axes.axhline(0, color=PALE, lw=0.8)
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g}%")


def claimed(axes: Axes, rows: Rows, _: object) -> None:
    """Audited epsilons beside the claimed one."""
    for epsilon in rows.places("epsilon"):
        axes.axhline(epsilon, color=INK, lw=1.2, ls="--", label=f"claimed: {epsilon:g} /km")
    log_or_linear(axes)


def delta_itself(axes: Axes, rows: Rows, _: object) -> None:
    """Violation rates beside delta."""
    deltas = rows.places("delta")
    axes.plot(deltas, deltas, color=INK, lw=1.2, ls="--", label="delta itself")
    axes.set_yscale("log")
    axes.set_ylim(bottom=FLOOR)


FINISHES: Mapping[str, Finish] = {
    finish.__name__: finish
    for finish in (
        *(audited, claimed, counts, coverage, delta_itself, from_zero, log_or_linear),
        *(rates, selection, share),
    )
}
"""What else is drawn, by the name that `figures.toml` has for it."""


def _panels(declared: Sequence[Mapping[str, Any]], looks: Mapping[str, Look]) -> Iterator[Panel]:
    for panel in declared:
        fields = {**panel, "finish": FINISHES.get(panel.get("finish", ""))}
        lines = tuple(
            Line(**{**line, "methods": named(line.get("methods", ()))})
            for line in fields.pop("lines")
        )
        title = fields.pop("title")
        each = named(fields.pop("each", ()))
        for method in each or (None,):
            yield Panel(title.format(method), lines=lines, looks=looks, method=method, **fields)


def _drawings() -> Iterator[tuple[str, Drawing]]:
    """The figures as they are declared; one may have the panels and sentences of another."""
    text = files("panda_paper").joinpath("figures.toml").read_text(encoding="utf-8")
    declared = tomllib.loads(text)
    looks = {
        name: Look(getattr(style, look.pop("colour")), **look)
        for name, look in declared.pop("looks").items()
    }
    for name, figure in declared.items():
        shared = {
            part: declared[other][part]
            for part, other in figure.items()
            if part in ("panels", "sentences") and isinstance(other, str)
        }
        whole = {**figure, **shared}
        yield name, Drawing(**{**whole, "panels": tuple(_panels(whole["panels"], looks))})


DRAWINGS = dict(_drawings())
"""How each figure is drawn and told, in the paper's order."""


def unfinished(rows: Sequence[Row]) -> list[str]:
    """A sentence for each way in which cells ended without a result, with an example."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.status != "done":
            groups.setdefault((row.cell.method, row.status), []).append(row)
    return [
        f"{method}: {len(group)} cells {status}; for example {group[0].outcome.note}"
        for (method, status), group in groups.items()
    ]
