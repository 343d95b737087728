"""The paper's figures: panels of declared lines (`figures.toml`), one look for each method, one
function that draws, and a table of what is drawn.

A panel says which value of which methods it shows against what, and what matplotlib is to set of
its axes. A line is the means of a value by place, with 1.96 standard deviations of the repeats.
"""

from __future__ import annotations

import textwrap
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from panda_mdp.base.text import Facts
from panda_mdp.plot import style
from panda_mdp.plot.style import INK, PALE, new_figure, plain_axes
from panda_paper.items import named
from panda_paper.results import SPREAD, Frame, means_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL_WIDTH = 4.3
PANEL_HEIGHT = 3.7
TITLE_CHARACTERS = 9.5
"""Of a title, per inch."""
EDGE = 0.055
"""What a line of infinite values takes of an axis."""
AXIS_LABELS: dict[str, str] = {"records": "K", "epsilon": "claimed epsilon [1/km]"}


@dataclass(frozen=True, eq=False)
class Curve:
    """One line of a panel: what it is called, how it looks, and its means by place."""

    label: str
    method: str
    look: Facts
    mean: Frame
    deviation: Frame
    flat: bool
    """Whether it is one number, whatever the place."""


def curves(panel: Facts, rows: Frame) -> list[Curve]:
    """What there is of every line of a panel."""
    found = []
    axis = panel.get("axis", "records")
    for line in panel["lines"]:
        fitting = rows
        for name, value in line.get("where", {}).items():
            fitting = fitting[fitting.reindex(columns=[name])[name] == value]
        for method in named(line.get("methods", [panel.get("method")])):
            mine = fitting[fitting["method"] == method]
            points = means_of(mine, line["value"], [axis], of=["mean", "std"])
            label = line.get("label", method)
            if len(points):
                names = (label, method, method.split()[0])
                look = next((LOOKS[name] for name in names if name in LOOKS), {"color": INK})
                look = {**look, **line.get("look", {})}
                points = points * line.get("times", 1)
                flat = line.get("flat", False)
                found.append(Curve(label, method, look, points["mean"], points["std"], flat))
    return found


def panels(name: str, *, drawn: bool = True) -> Iterator[Facts]:
    """The panels of a figure, one for each method where one is declared for several; with those
    that only its table shows where not `drawn` alone."""
    declared = FIGURES[name]["panels"]
    for panel in FIGURES[declared]["panels"] if isinstance(declared, str) else declared:
        for method in named(panel.get("each", [""])):
            if panel.get("drawn", True) or not drawn:
                yield {**panel, "method": method, "title": panel["title"].format(method)}


def draw_figure(name: str, rows: Frame, city: str) -> Figure:
    """A figure of an item's rows, with the city's name in its title."""
    declared = FIGURES[name]
    shown = [*panels(name)]
    lines = declared.get("rows", 1)
    columns = -(-len(shown) // lines)
    width = max(6.2, PANEL_WIDTH * columns)
    figure = new_figure(width, PANEL_HEIGHT * lines + 0.55)
    # A long name of a city goes on in a second line.
    title = textwrap.fill(declared["title"].format(city=city), int(TITLE_CHARACTERS * width))
    figure.suptitle(title, x=0.012, ha="left", color=INK, fontsize=12.5, fontweight="bold")
    handles: dict[str, Any] = {}
    for axes, panel in zip(figure.subplots(lines, columns, squeeze=False).flat, shown, strict=True):
        plain_axes(axes)
        draw_panel(axes, panel, rows)
        drawn, labels = axes.get_legend_handles_labels()
        handles |= dict(zip(labels, drawn, strict=True))
    if handles:
        figure.legend(
            handles.values(),
            handles.keys(),
            loc="outside lower center",
            ncols=min(declared.get("columns", 5), len(handles)),
            frameon=False,
            fontsize=9,
        )
    return figure


def draw_panel(axes: Axes, panel: Facts, rows: Frame) -> None:
    """Draw a panel, or say that it is empty."""
    axis = str(panel.get("axis", "records"))
    axes.set_title(panel["title"], loc="left", color=INK, fontsize=10.5)
    axes.set_xlabel(panel.get("x") or AXIS_LABELS.get(axis, axis), color=INK)
    axes.set_ylabel(panel["y"], color=INK)
    shown = curves(panel, rows)
    if not shown:
        axes.text(0.5, 0.5, "no results yet", color=PALE, transform=axes.transAxes, ha="center")
        axes.set(xticks=[], yticks=[])
        return
    if panel.get("bars"):
        draw_bars(axes, shown)
        return
    axes.set(**panel.get("set", {}))
    infinite = [curve for curve in shown if np.isinf(curve.mean).any()]
    for curve in shown:
        draw_curve(axes, curve)
    if "bottom" in panel:
        axes.set_ylim(panel["bottom"], 1.06 * axes.dataLim.y1)
    elif "ylim" not in panel.get("set", {}):
        log_or_linear(axes)
    if "percent" in panel:
        axes.yaxis.set_major_formatter("{x:.1%}")
    if infinite:
        axes.margins(y=EDGE * (len(infinite) + 2))
        axes.text(1.01, 1 - EDGE, "∞", transform=axes.transAxes, fontsize=13)
    for place, curve in enumerate(infinite, start=1):
        # At the upper edge, a line of marks for each, above all that is finite.
        x = curve.mean.index[np.isinf(curve.mean)]
        edge = axes.get_xaxis_transform()
        look = {**curve.look, "linestyle": "", "label": curve.label}
        look.pop("aside", None)
        axes.plot(x, np.full(len(x), 1 - EDGE * place), transform=edge, **look)


def draw_curve(axes: Axes, curve: Curve) -> None:
    """A line with bars of 1.96 standard deviations; points that are infinite are left out.

    Bars end at a thirtieth of the mean, so that one wide bar does not take all of a logarithmic
    axis. What often agrees is drawn a little aside: `aside`, in points.
    """
    from matplotlib.transforms import offset_copy

    finite = np.isfinite(curve.mean) & np.isfinite(curve.mean.index)
    # A single repeat has no spread, and numbers that are all the same none but rounding.
    mean, above = curve.mean[finite], SPREAD * curve.deviation[finite]
    above = above.where(above > 1e-9 * mean.abs(), 0.0)
    look = {"linewidth": 1.8, "label": curve.label, **curve.look}
    if curve.method.endswith("text"):
        look |= {"linestyle": ":", "markerfacecolor": "white"}
    aside = look.pop("aside", 0)
    whole: Any = axes.figure
    if curve.flat:
        look.pop("marker", None)
        axes.axhline(mean.mean(), **look)
    elif len(mean):
        below = np.minimum(above, mean * (1 - 1 / 30))
        axes.errorbar(
            mean.index,
            mean,
            yerr=[below, above] if above.any() else None,
            transform=offset_copy(axes.transData, whole, aside, units="points"),
            markersize=5.5,
            elinewidth=0.9,
            capsize=2.5,
            **look,
        )
        # What is drawn aside does not count when axes are scaled.
        for ends in (mean - below, mean + above):
            axes.update_datalim(np.stack([ends.index, ends], axis=1))


def draw_bars(axes: Axes, shown: list[Curve]) -> None:
    """Shares of a whole, stacked: a bar for each method at each place."""
    bottom: dict[str, float] = {}
    for curve in shown:
        letter = curve.method.split()[0][-1]
        shares = curve.mean.rename(lambda size, letter=letter: f"{letter} {size / 1000:g}k")
        below = [bottom.get(name, 0.0) for name in shares.index]
        look = {"color": curve.look["color"], "label": curve.label}
        axes.bar(shares.index, shares, 0.78, below, **look)
        bottom |= dict(shares + below)
    axes.tick_params("x", rotation=90, labelsize=8)
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter("{x:.0%}")


def log_or_linear(axes: Axes) -> None:
    """A logarithmic vertical axis where positive values span more than a factor of 20; else one
    that begins at 0."""
    low, high = axes.dataLim.intervaly
    if 0 < 20 * low < high:
        from matplotlib.ticker import LogLocator, NullFormatter

        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter("{x:,g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_ylim(bottom=0)


def drawn_rows(name: str, rows: Frame) -> list[Facts]:
    """The lines of a figure as a table: each at its first place and its last, and its mean."""
    told = []
    for panel in panels(name, drawn=False):
        for curve in curves(panel, rows):
            first, last = curve.mean.iloc[0], curve.mean.iloc[-1]
            told.append(
                {
                    "panel": panel["title"],
                    "shown": " ".join(panel["y"].split()),
                    "line": " ".join(dict.fromkeys((curve.method, curve.label))),
                    "first": f"{first:,.4g} at {curve.mean.index[0]:,g}",
                    "last": f"{last:,.4g} at {curve.mean.index[-1]:,g}",
                    "mean": f"{curve.mean.mean():,.4g}",
                }
            )
    return told


_TEXT = files("panda_paper").joinpath("figures.toml").read_text(encoding="utf-8")
FIGURES: dict[str, Facts] = tomllib.loads(_TEXT)
"""How each figure is drawn, in the paper's order."""
LOOKS = {
    name: {**look, "color": getattr(style, look["color"])}
    for name, look in FIGURES.pop("looks").items()
}
"""How methods and labels are drawn, the same in every figure."""
