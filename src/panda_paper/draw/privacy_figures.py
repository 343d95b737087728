"""Drawings of what is kept and what is spent: Figures 12 to 15, 17, and the lower bounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from panda_mdp.plot.style import BLUE, INK, ORANGE, PALE, VERMILION
from panda_paper.cells.outcome import Row
from panda_paper.draw.panels import (
    Look,
    draw_all,
    draw_series,
    label_axes,
    legend_below,
    log_or_linear,
    look,
    panels,
    say_empty,
    thousands,
)
from panda_paper.draw.series import Series, collect, delta_of, epsilon_of, mean_of, records_of
from panda_paper.settings.method_names import COARSE, OURS, PUBLISHED, TEXT, VARIANTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAPER_SHARES = {5.0: (0.2391, 0.0906, 0.6703), 15.0: (0.0791, 0.0306, 0.8903)}
"""Phase I, safety margin, perturbation: the paper's averages, by epsilon."""
SHARES = ("share_selection", "share_margin", "share_rest")
REAL_SHARES = ("real_selection", "real_margin", "real_rest")
"""The same run, Phase I charged in full."""
SHARE_NAMES = ("Phase I", "safety margin", "left for the table")
SHARE_COLOURS = (VERMILION, ORANGE, BLUE)
BAND = 0.055
"""What a line of infinite values takes of an axis."""
FLOOR = 1e-9
"""Where a rate of 0 is drawn on a logarithmic axis."""


def draw_violations(rows: Sequence[Row], city: str) -> Figure:
    """Figures 12 and 14: pairs of records whose loss exceeds epsilon d, and by how much."""
    epsilon = epsilon_of(rows[0]) if rows else 5.0
    number = 12 if epsilon < 10 else 14
    figure, axes = panels(2, f"Violations at epsilon {epsilon:g} /km, {city} (Figure {number})")
    names = (COARSE, *PUBLISHED, *TEXT)
    rates = [collect(rows, name, "violated_pairs", records_of) for name in names]
    drawn = draw_all(axes[0], rates)
    ours = [name for name in OURS if _holds(rows, name)]
    if drawn:
        top = max(float((series.mean + series.spread).max()) for series in rates if len(series))
        axes[0].set_ylim(-0.04 * top, max(1.05 * top, 1e-3))
        axes[0].axhline(0, color=PALE, lw=0.8)
        axes[0].yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g}%")
        thousands(axes[0])
    else:
        say_empty(axes[0])
    title = "share of pairs of records violated"
    if ours and drawn:
        title = "\n".join([title, *_promises(ours, "0, audited", "at most delta")])
    label_axes(axes[0], title, "K", "violation rate")
    _audited_panel(axes[1], rows, names, epsilon)
    legend_below(figure, axes, columns=4)
    return figure


def _holds(rows: Sequence[Row], method: str) -> bool:
    """Whether a method has results and the audit of every one holds."""
    verdicts = [row.value("holds") for row in rows if row.cell.method == method]
    return bool(verdicts) and all(held is True for held in verdicts)


def _promises(methods: Sequence[str], never: str, rarely: str) -> list[str]:
    """What methods that hold keep, in words: balls keep (epsilon, delta), the others epsilon."""
    pure = ", ".join(name for name in methods if name != "ball")
    parts = [f"{pure}: {never}"] if pure else []
    return [*parts, f"ball: {rarely}"] if "ball" in methods else parts


def _audited_panel(axes: Axes, rows: Sequence[Row], names: Sequence[str], epsilon: float) -> None:
    """Audited epsilons; infinite ones stand at the upper edge."""
    curves = [collect(rows, name, "audited_epsilon", records_of) for name in (*names, *OURS)]
    curves = [series for series in curves if len(series)]
    if not curves:
        say_empty(axes)
        label_axes(axes, "audited epsilon, worst pair", "K", "epsilon [1/km]")
        return
    for series in curves:
        draw_series(axes, series, hollow=series.label.endswith("text"))
    axes.axhline(epsilon, color=INK, lw=1.2, ls="--", label=f"claimed: {epsilon:g} /km")
    log_or_linear(axes)
    thousands(axes)
    _infinite(axes, [series for series in curves if np.isinf(series.mean).any()])
    label_axes(axes, "audited epsilon, worst pair", "K", "epsilon [1/km]")


def _infinite(axes: Axes, curves: Sequence[Series]) -> None:
    """A band of its own above the finite values, marked on the axis, a line for each series."""
    if not curves:
        return
    low, high = axes.get_ylim()
    ticks = [tick for tick in axes.get_yticks() if low <= tick <= high]
    band = BAND * (len(curves) + 1)
    whole = 1 / (1 - band)
    axes.set_ylim(low, low * (high / low) ** whole if low > 0 else low + whole * (high - low))
    axes.set_yticks(ticks)
    axes.set_yticks([], minor=True)
    axes.axhline(high, color=PALE, lw=0.8, ls=":")
    axes.text(
        -0.025, 1 - band / 2, "∞", transform=axes.transAxes, ha="right", va="center", fontsize=13
    )
    for k, series in enumerate(curves):
        style = look(series.label)
        places = series.x[np.isinf(series.mean)]
        axes.plot(
            places,
            np.full(len(places), 1 - BAND * (k + 1)),
            transform=axes.get_xaxis_transform(),
            color=style.colour,
            marker=style.marker,
            linestyle="",
            label=series.label if np.isinf(series.mean).all() else "_nolegend_",
        )


def tell_violations(rows: Sequence[Row], city: str) -> list[str]:
    """Rates and audited epsilons in words."""
    sentences = []
    for name in (*PUBLISHED, *TEXT, COARSE):
        rate = mean_of(rows, (name,), "violated_pairs")
        if np.isnan(rate):
            continue
        values = [
            float(row.value("audited_epsilon"))
            for row in rows
            if row.cell.method == name and row.value("audited_epsilon") is not None
        ]
        least = f"{min(values):,.3g}" if values else "unknown"
        sentences.append(
            f"{name}: {rate:.2%} of the pairs of records exceed epsilon d on average over sizes; "
            f"audited epsilon at least {least} /km in every cell."
        )
    holding = [name for name in OURS if _holds(rows, name)]
    audited = "no pair, by an audit over all of them"
    rare = "every pair with probability at most delta, by its account over all pairs"
    sentences += [f"{one}." for one in _promises(holding, audited, rare)]
    return sentences


def draw_budgets(rows: Sequence[Row], city: str) -> Figure:
    """Figures 13 and 15: who spends eps d, in three accounts."""
    epsilon = epsilon_of(rows[0]) if rows else 5.0
    number = 13 if epsilon < 10 else 15
    figure, axes = panels(
        4, f"How epsilon d is spent at epsilon {epsilon:g} /km, {city} (Figure {number})", rows=2
    )
    paper = PAPER_SHARES.get(epsilon)
    if paper is None:
        say_empty(axes[0], "the paper has no such epsilon")
    else:
        _bars(axes[0], ["average"], [paper])
    label_axes(axes[0], "as the paper reports it", "", "share of epsilon d")
    for axes_, methods, names, title in (
        (axes[1], PUBLISHED, SHARES, "published accounting"),
        (axes[2], PUBLISHED, REAL_SHARES, "the same, Phase I charged in full"),
        (axes[3], TEXT, SHARES, "the text, exact accounting"),
    ):
        labels, parts = [], []
        for letter, method in zip(VARIANTS, methods, strict=True):
            for size in sorted({records_of(row) for row in rows if row.cell.method == method}):
                here = [row for row in rows if records_of(row) == size]
                shares = tuple(mean_of(here, (method,), name) for name in names)
                if not np.isnan(shares).any():
                    labels.append(f"{letter} {size / 1000:g}k")
                    parts.append(shares)
        if parts:
            _bars(axes_, labels, parts)
        else:
            say_empty(axes_)
        label_axes(axes_, title, "variant and K", "share of epsilon d")
    legend_below(figure, axes)
    return figure


def _bars(axes: Axes, labels: Sequence[str], parts: Sequence[tuple[float, ...]]) -> None:
    table = np.array(parts)
    place = np.arange(len(labels))
    bottom = np.zeros(len(labels))
    for k, (name, colour) in enumerate(zip(SHARE_NAMES, SHARE_COLOURS, strict=True)):
        axes.bar(place, table[:, k], 0.78, bottom=bottom, color=colour, label=name)
        for x, low, share in zip(place, bottom, table[:, k], strict=True):
            if share > 0.045 and len(labels) <= 8:
                text = f"{share:.0%}"
                axes.text(float(x), low + share / 2, text, ha="center", va="center", color="white")
        bottom = bottom + table[:, k]
    axes.set_xticks(place, labels, rotation=90 if len(labels) > 8 else 0, fontsize=8)
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")


def tell_budgets(rows: Sequence[Row], city: str) -> list[str]:
    """Average shares in both accounts."""
    sentences = []
    for name, methods, names in (
        ("Published accounting", PUBLISHED, SHARES),
        ("The same with Phase I charged in full", PUBLISHED, REAL_SHARES),
        ("Exact accounting of the text", TEXT, SHARES),
    ):
        shares = [mean_of(rows, methods, share) for share in names]
        if not np.isnan(shares).any():
            first, second, rest = shares
            sentences.append(
                f"{name} on {city}: Phase I {first:.1%}, margin {second:.1%}, left for the table "
                f"{rest:.1%}."
            )
    for name, methods in (("published code's", PUBLISHED), ("text's", TEXT)):
        near = mean_of(rows, methods, "near_cost")
        if not np.isnan(near):
            sentences.append(
                f"Averages over all pairs are about far ones. Between anchors nearer than 2 km the "
                f"{name} selection costs {near:.0%} of epsilon d (median), before any report."
            )
    clipped = mean_of(rows, TEXT, "clipped")
    if not np.isnan(clipped):
        sentences.append(
            f"Exact accounting leaves {clipped:.1%} of the pairs of anchors nothing at all: their "
            "rows must be equal."
        )
    return sentences


def draw_delta_violations(rows: Sequence[Row], city: str) -> Figure:
    """Figure 17: measured violation rates against the delta that was asked for."""
    figure, axes = panels(1, f"Violation rate against delta, {city} (Figure 17)")
    ball = collect(rows, "ball", "audited_delta", delta_of, "ball: its delta, by audit")
    rates = [collect(rows, name, "violated_pairs", delta_of) for name in (*PUBLISHED, *TEXT)]
    if any(len(one) for one in (*rates, ball)):
        x = np.array(sorted({delta_of(row) for row in rows}))
        axes[0].plot(x, x, color=INK, lw=1.2, ls="--", label="delta itself")
        axes[0].set_xscale("log")
        axes[0].set_yscale("log")
        draw_all(axes[0], rates)
        if len(ball):
            draw_series(axes[0], ball, Look(ORANGE, "P", ""), aside=False)
        axes[0].set_ylim(bottom=FLOOR)
    else:
        say_empty(axes[0])
    label_axes(
        axes[0],
        "measured over all pairs, sets that were drawn",
        "delta",
        "share of pairs violated",
    )
    legend_below(figure, axes, columns=3)
    return figure


def draw_bounds(rows: Sequence[Row], city: str) -> Figure:
    """Figures 23 to 25: loss beside two lower bounds."""
    figure, axes = panels(3, f"PAnDA, its lower bound and the optimum, {city} (Figures 23 to 25)")
    optimal = collect(rows, "optimal", "loss_m", records_of)
    floor = collect(
        rows, "optimal", "lower_bound_m", records_of, "every mechanism at epsilon: certified bound"
    )
    for axes_, name in zip(axes, PUBLISHED, strict=True):
        anchors = collect(rows, name, "loss_m", records_of, "loss over anchors (the paper's)")
        true = collect(rows, name, "true_loss_m", records_of, "loss over users' records")
        relaxed = collect(rows, name, "relaxed_m", records_of, "relaxed AnPO: bound over anchors")
        colour = look(name).colour
        lines = (
            (anchors, Look(colour, "o")),
            (true, Look(colour, "s", "--")),
            (relaxed, Look(colour, "", ":")),
            (optimal, Look(INK, "X")),
            (floor, Look(INK, "", "--")),
        )
        for one, style in lines:
            if len(one):
                draw_series(axes_, one, style)
        if any(len(one) for one, _ in lines):
            axes_.set_ylim(bottom=0)
            thousands(axes_)
        else:
            say_empty(axes_)
        label_axes(axes_, name, "K", "loss [m]")
    legend_below(figure, axes, columns=3)
    return figure


def ratios(rows: Sequence[Row], method: str) -> list[float]:
    """Loss over anchors against relaxed AnPO over the same anchors, cell by cell."""
    return [
        float(row.value("ratio"))
        for row in rows
        if row.cell.method == method and row.status == "done" and row.value("ratio") is not None
    ]


def tell_bounds(rows: Sequence[Row], city: str) -> list[str]:
    """Approximation ratios, and what the optimum is."""
    sentences = []
    for name in PUBLISHED:
        measured = ratios(rows, name)
        if measured:
            sentences.append(
                f"{name}: loss over anchors {np.mean(measured):.3f} times relaxed AnPO's bound on "
                f"{city} (the paper: 1.36 to 1.37)."
            )
    losses = collect(rows, "optimal", "loss_m", records_of)
    floor = collect(rows, "optimal", "lower_bound_m", records_of)
    if len(losses) and len(floor):
        sentences.append(
            f"The library's optimal mechanism, pure epsilon-mDP over all records, loses "
            f"{losses.mean.min():,.0f} to {losses.mean.max():,.0f} m and is proved to be within "
            f"{float((losses.mean / floor.mean - 1).max()):.1%} of the best possible."
        )
    return sentences
