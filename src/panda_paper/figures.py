"""The paper's figures: what `figures.toml` declares, and what else is drawn into a panel."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from panda_mdp.plot import style
from panda_mdp.plot.style import INK, PALE
from panda_paper.cell import PUBLISHED, TEXT, named
from panda_paper.margins import RADIUS_KM
from panda_paper.panels import Drawing, Finish, Line, Look, Panel
from panda_paper.results import Row, Rows
from panda_paper.series import Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
        title, each = fields.pop("title"), named(fields.pop("each", ()))
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
