"""What all pictures share: colours that everyone can tell apart, scale bars, files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from panda_mdp.base.arrays import FloatArray
from panda_mdp.base.atomic import FilePath, atomic_file
from panda_mdp.base.packages import need
from panda_mdp.errors import InvalidInputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend

# Okabe and Ito's palette, told apart by all kinds of colour vision.
BLUE, ORANGE, GREEN, VERMILION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PURPLE, SKY, BLACK = "#CC79A7", "#56B4E9", "#1A1A1A"
PALETTE = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, BLACK)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINE_STYLES: Sequence[Any] = [
    {"color": colour, "marker": marker} for colour, marker in zip(PALETTE, MARKERS, strict=True)
]
"""Of lines in turn."""
STREET, INK, PALE, GRID = "#B9BEC5", "#22262B", "#6B7280", "#E3E6EA"
SEQUENCE = "cividis_r"
"""A colour scale that darkens evenly, is read alike by all kinds of colour vision, and survives
grey printing."""
SUFFIXES = (".png", ".svg", ".pdf")
DPI = 100


def new_figure(width: float, height: float) -> Figure:
    """An empty figure in inches, without any global state."""
    drawing = need("matplotlib.figure", "a picture", "plot")
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = drawing.Figure(figsize=(width, height), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def map_figure(points: FloatArray, title: str, *, beside: float = 0.0) -> tuple[Figure, Axes]:
    """A figure in the shape of the places that it shows; `beside` inches are for a colour bar."""
    wide, high = np.ptp(points, axis=0) + 1e-9
    width = np.clip(6.4 * wide / high, 5.2, 9.5)
    height = np.clip(width * high / wide, 4.0, 6.6)
    figure = new_figure(width + beside, height + 0.9)
    # A title of the whole figure starts at its edge, however narrow the map is.
    figure.suptitle(title, x=0.015, ha="left", color=INK, fontsize=11.5)
    return figure, figure.subplots()


def chart_figure(width: float, height: float, title: str = "") -> tuple[Figure, Axes]:
    """A figure with the axes of one chart: no box, a faint grid."""
    figure = new_figure(width, height)
    axes = figure.subplots()
    plain_axes(axes)
    axes.set_title(title, loc="left", color=INK)
    return figure, axes


def save_figure(figure: Figure, path: FilePath) -> Path:
    """Write a figure as PNG, SVG or PDF, as the suffix says, atomically."""
    target = Path(path)
    if target.suffix.lower() not in SUFFIXES:
        raise InvalidInputError(f"{target.name} ends in none of {', '.join(SUFFIXES)}")
    with atomic_file(target) as stream:
        figure.savefig(stream, format=target.suffix[1:].lower())
    return target


def map_axes(axes: Axes, points: FloatArray) -> None:
    """Make axes a map: no frame, equal scale, a little room around the points, a scale bar."""
    artists = need("mpl_toolkits.axes_grid1.anchored_artists", "a scale bar", "plot")
    low = points.min(axis=0)
    high = points.max(axis=0)
    room = 0.03 * ((high - low).max() or 1.0)
    # The scale bar lies below what is drawn.
    (left, bottom), (right, top) = low - (room, 3 * room), high + room
    axes.set(xlim=(left, right), ylim=(bottom, top), aspect="equal")
    axes.set_axis_off()
    length = round_length((right - left) / 4)
    label = f"{length:g} km" if length >= 1 else f"{1000 * length:g} m"
    bar = artists.AnchoredSizeBar(
        axes.transData, length, label, "lower left", frameon=False, color=INK, label_top=True,
        size_vertical=0.008 * (top - bottom), fill_bar=True,
    )  # fmt: skip
    bar.set_zorder(9)
    axes.add_artist(bar)


def round_length(length: float) -> float:
    """The largest of 1, 2, 5 times a power of ten that is not above `length`.

    >>> round_length(7.3), round_length(0.43)
    (5.0, 0.2)
    """
    power = 10.0 ** math.floor(math.log10(length))
    return max(step * power for step in (1, 2, 5) if step * power <= length * (1 + 1e-12))


def draw_streets(axes: Axes, nodes: FloatArray, u: Any, v: Any, *, strong: bool = False) -> None:
    """Streets as thin lines under everything else; thinner where there are many."""
    from matplotlib.collections import LineCollection

    axes.add_collection(
        LineCollection(
            list(np.stack([nodes[u], nodes[v]], axis=1)),
            colors=INK if strong else STREET,
            linewidths=np.clip(60 / np.sqrt(len(u)), 0.15, 1.0),
            zorder=1,
        )
    )


def circle_areas(share: FloatArray) -> FloatArray:
    """Areas of circles in proportion to probabilities, the largest of them no blot."""
    return share * min(5000.0, 1600.0 / max(share.max(), 1e-300))


def legend_below(axes: Axes) -> Legend:
    """A legend under the map: a long or thin city leaves no corner free."""
    return axes.legend(
        loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=2, frameon=False, borderaxespad=0.2
    )


def plain_axes(axes: Axes) -> None:
    """Axes of a chart: no box, a faint grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
