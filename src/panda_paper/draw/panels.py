"""Drawing that the figures share: one look for each method, panels of lines, captions, files."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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
from panda_paper.draw.series import Series

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
    hollow: bool = False,
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
        markerfacecolor="white" if hollow else drawn.colour,
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


def draw_all(axes: Axes, all_series: Iterable[Series]) -> int:
    """All series that have points; returns how many were drawn."""
    count = 0
    for series in all_series:
        if len(series):
            draw_series(axes, series, hollow=series.label.endswith("text"))
            count += 1
    return count


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


def log_or_linear(axes: Axes) -> None:
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
