"""The paper's figures: for each what is drawn and what says it in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from panda_mdp.plot.style import INK, ORANGE, PALE
from panda_paper.cell import COARSE, NOISE, OURS, PUBLISHED, TEXT
from panda_paper.panels import (
    Drawing,
    Line,
    Look,
    Panel,
    Tell,
    draw_series,
    label_axes,
    log_or_linear,
    look,
)
from panda_paper.results import Row
from panda_paper.series import Axis, Series, collect, collect_all, mean_of, numbers
from panda_paper.theory_figures import BUDGETS, ESTIMATES, MARGINS, SURFACES, WIDE_MARGINS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COVERED_SHARE, COVERED_MOST = 0.1481, 450
"""Records that the LP covers in the paper: their share on average, and the most."""
BAND = 0.055
"""What a line of infinite values takes of an axis."""
FLOOR = 1e-9
"""Where a rate of 0 is drawn on a logarithmic axis."""


def tell_against(axis: Axis, value: str, word: str, unit: str) -> Tell:
    """Sentences about a value's range over an axis, for every method."""

    def tell(rows: Sequence[Row], city: str) -> list[str]:
        sentences = []
        methods = tuple(dict.fromkeys(row.cell.method for row in rows))
        for one in collect_all(rows, methods, value, axis):
            ends = dict.fromkeys((0, len(one) - 1))
            parts = ", ".join(f"{one.mean[k]:,.4g}{unit} at {one.x[k]:g}" for k in ends)
            sentences.append(f"{one.label}: {word} {parts}.")
        return sentences

    return tell


def covered_shares(rows: Sequence[Row], methods: Sequence[str]) -> list[float]:
    """Anchors over K, one number for each size and method."""
    found = collect_all(rows, methods, "anchors", "records")
    return [float(share) for series in found for share in series.mean / series.x]


def most_covered(rows: Sequence[Row], methods: Sequence[str]) -> float:
    """The most anchors, on average over the repeats of a size."""
    found = collect_all(rows, methods, "anchors", "records")
    return max(series.high for series in found)


def _paper_coverage(axes: Axes, rows: Sequence[Row], drawn: list[Series]) -> None:
    sizes = np.unique(np.concatenate([one.x for one in drawn]))
    axes.plot(sizes, sizes, color=PALE, lw=1, ls="--", label="all K records")
    axes.plot(sizes, COVERED_SHARE * sizes, color=INK, lw=1, ls=":", label="14.81 % (the paper)")
    axes.set_ylim(bottom=0)


def _close_coverage(axes: Axes, rows: Sequence[Row], drawn: list[Series]) -> None:
    _paper_coverage(axes, rows, drawn)
    axes.set_ylim(0, 1.6 * most_covered(rows, PUBLISHED))


def tell_covered(rows: Sequence[Row], city: str) -> list[str]:
    """How large the LPs are."""
    return [
        f"Selection of the {name}: the LP covers {np.mean(shares):.1%} of the records of {city} on "
        f"average and at most {most_covered(rows, methods):,.0f} (the paper: 14.81 % and 450)."
        for name, methods in (("published code", PUBLISHED), ("text", TEXT))
        if (shares := covered_shares(rows, methods))
    ]


def _counts(axes: Axes, *_: object) -> None:
    axes.set_ylim(0, 1.12 * axes.get_ylim()[1])
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def _counts_of_all(axes: Axes, rows: Sequence[Row], drawn: list[Series]) -> None:
    _counts(axes)
    for count in {row.cell.setting.records * row.cell.setting.outputs for row in rows}:
        axes.axhline(count, color=INK, lw=1, ls="--", label="all records: optimal")


def _from_zero(axes: Axes, *_: object) -> None:
    axes.set_ylim(bottom=0)


TRADED = (*NOISE, "LP+CA", *PUBLISHED, *TEXT, *OURS)


def _audited_trade_offs(axes: Axes, rows: Sequence[Row]) -> bool:
    """Losses against the epsilon that an audit finds; what is infinite is named on the axis."""
    shown = [one for method in TRADED if len(one := _audited(rows, method))]
    for series in shown:
        draw_series(axes, series, aside=False)
    if not shown:
        return False
    axes.set_xscale("log")
    log_or_linear(axes)
    lost = [
        series.label.removesuffix(" published")
        for series in collect_all(rows, PUBLISHED, "loss_m", "epsilon")
        if not len(_audited(rows, series.label))
    ]
    if lost:
        axes.set_xlabel(
            f"audited epsilon [1/km], log scale\n(infinite, so not here: {', '.join(lost)} "
            "published)",
            color=INK,
        )
    return True


def _audited(rows: Sequence[Row], method: str) -> Series:
    """Loss against the audited epsilon; empty where that is infinite."""
    loss = collect(rows, method, "loss_m", "epsilon")
    audited = collect(rows, method, "audited_epsilon", "epsilon")
    both = np.intersect1d(loss.x, audited.x[np.isfinite(audited.mean)])
    points = sorted(((audited.at(x), loss.at(x)) for x in both), key=lambda point: point[0])
    return Series.of(method, [x for x, _ in points], [y for _, y in points])


def holds(rows: Sequence[Row], method: str) -> bool:
    """Whether a method has results and the audit of every one holds."""
    verdicts = [row.value("holds") for row in rows if row.cell.method == method]
    return bool(verdicts) and all(held is True for held in verdicts)


def _promises(rows: Sequence[Row], never: str, rarely: str) -> list[str]:
    """What methods that hold keep, in words: balls keep (epsilon, delta), the others epsilon."""
    pure = ", ".join(name for name in OURS if name != "ball" and holds(rows, name))
    parts = [f"{pure}: {never}"] if pure else []
    return [*parts, f"ball: {rarely}"] if holds(rows, "ball") else parts


def _rates(axes: Axes, rows: Sequence[Row], drawn: list[Series]) -> None:
    """Violation rates from 0, with what ours keep in the title."""
    top = max(float((series.mean + series.spread).max()) for series in drawn)
    axes.set_ylim(-0.04 * top, max(1.05 * top, 1e-3))
    axes.axhline(0, color=PALE, lw=0.8)
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g}%")
    lines = (axes.get_title(loc="left"), *_promises(rows, "0, audited", "at most delta"))
    label_axes(axes, "\n".join(lines), axes.get_xlabel(), axes.get_ylabel())


def _against_claim(epsilon: float, axes: Axes, rows: Sequence[Row], drawn: list[Series]) -> None:
    """Audited epsilons beside the claimed one; infinite ones in a band above all others."""
    axes.axhline(epsilon, color=INK, lw=1.2, ls="--", label=f"claimed: {epsilon:g} /km")
    log_or_linear(axes)
    infinite = [series for series in drawn if np.isinf(series.mean).any()]
    if not infinite:
        return
    low, high = axes.get_ylim()
    ticks = [tick for tick in axes.get_yticks() if low <= tick <= high]
    band = BAND * (len(infinite) + 1)
    whole = 1 / (1 - band)
    axes.set_ylim(low, low * (high / low) ** whole if low > 0 else low + whole * (high - low))
    axes.set_yticks(ticks)
    axes.set_yticks([], minor=True)
    axes.axhline(high, color=PALE, lw=0.8, ls=":")
    axes.text(
        -0.025, 1 - band / 2, "∞", transform=axes.transAxes, ha="right", va="center", fontsize=13
    )
    for k, series in enumerate(infinite):
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
        values = numbers(rows, (name,), "audited_epsilon")
        least = f"{min(values):,.3g}" if values else "unknown"
        sentences.append(
            f"{name}: {rate:.2%} of the pairs of records exceed epsilon d on average over sizes; "
            f"audited epsilon at least {least} /km in every cell."
        )
    audited = "no pair, by an audit over all of them."
    rare = "every pair with probability at most delta, by its account over all pairs."
    return [*sentences, *_promises(rows, audited, rare)]


def _delta_itself(axes: Axes, rows: Sequence[Row], drawn: list[Series]) -> None:
    deltas = sorted({row.cell.setting.delta for row in rows})
    axes.plot(deltas, deltas, color=INK, lw=1.2, ls="--", label="delta itself")
    axes.set_yscale("log")


def _from_floor(axes: Axes, *_: object) -> None:
    axes.set_ylim(bottom=FLOOR)


def tell_bounds(rows: Sequence[Row], city: str) -> list[str]:
    """Approximation ratios, and what the optimum is."""
    sentences = [
        f"{name}: loss over anchors {mean_of(rows, (name,), 'ratio'):.3f} times relaxed AnPO's "
        f"bound on {city} (the paper: 1.36 to 1.37)."
        for name in PUBLISHED
        if numbers(rows, (name,), "ratio")
    ]
    losses = collect(rows, "optimal", "loss_m", "records")
    floor = collect(rows, "optimal", "lower_bound_m", "records")
    if len(losses) and len(floor):
        sentences.append(
            f"The library's optimal mechanism, pure epsilon-mDP over all records, loses "
            f"{losses.low:,.0f} to {losses.high:,.0f} m and is proved to be within "
            f"{float((losses.mean / floor.mean - 1).max()):.1%} of the best possible."
        )
    return sentences


def _users(title: str, y: str, *lines: Line) -> Panel:
    return Panel(title, "users", y, lines, finish=log_or_linear)


def _violations(number: int, epsilon: float) -> Drawing:
    names = (COARSE, *PUBLISHED, *TEXT)
    return Drawing(
        f"Violations at epsilon {epsilon:g} /km, {{city}} (Figure {number})",
        (
            Panel(
                "share of pairs of records violated",
                "records",
                "violation rate",
                (Line(names, "violated_pairs"),),
                finish=_rates,
            ),
            Panel(
                "audited epsilon, worst pair",
                "records",
                "epsilon [1/km]",
                (Line((*names, *OURS), "audited_epsilon"),),
                finish=partial(_against_claim, epsilon),
            ),
        ),
        tell_violations,
        columns=4,
    )


def _bounds(name: str) -> Panel:
    own = look(name)
    return Panel(
        name,
        "records",
        "loss [m]",
        (
            Line(
                (name,),
                "loss_m",
                False,
                "loss over anchors (the paper's)",
                replace(own, marker="o", line="-"),
            ),
            Line(
                (name,),
                "true_loss_m",
                False,
                "loss over users' records",
                Look(own.colour, "s", "--"),
            ),
            Line(
                (name,),
                "relaxed_m",
                False,
                "relaxed AnPO: bound over anchors",
                Look(own.colour, "", ":"),
            ),
            Line(("optimal",), "loss_m", style=Look(INK, "X")),
            Line(
                ("optimal",),
                "lower_bound_m",
                label="every mechanism at epsilon: certified bound",
                style=Look(INK, "", "--"),
            ),
        ),
        finish=_from_zero,
    )


_AROUND = (Line((*NOISE, *OURS), "loss_m", flat=True),)
DRAWINGS = {
    "figure4": SURFACES,
    "figure6": MARGINS,
    "figure6-wide": WIDE_MARGINS,
    "figure7": Drawing(
        "Records covered by the LP, {city} (Figure 7)",
        (
            Panel(
                "published code: its tail, its radii",
                "records",
                "records that the LP covers",
                (Line(PUBLISHED, "anchors"),),
                finish=_close_coverage,
            ),
            Panel(
                "the text: clipped at h(gamma)",
                "records",
                "records that the LP covers",
                (Line(TEXT, "anchors"),),
                finish=_paper_coverage,
            ),
        ),
        tell_covered,
    ),
    "figure8": Drawing(
        "Computation time against users, {city} (Figure 8)",
        (
            _users(
                "whole pipeline",
                "seconds",
                Line(PUBLISHED, "seconds"),
                Line(OURS, "seconds", flat=True),
            ),
            _users("the LP alone, as the paper times it", "seconds", Line(PUBLISHED, "lp_seconds")),
        ),
        tell_against("users", "seconds", "whole pipeline", " s"),
    ),
    "figure9": Drawing(
        "Decision variables against users, {city} (Figure 9)",
        (
            Panel(
                "published code",
                "users",
                "variables",
                (Line(PUBLISHED, "variables"),),
                finish=_counts,
            ),
            Panel(
                "the text",
                "users",
                "variables",
                (Line(TEXT, "variables"),),
                finish=_counts_of_all,
            ),
        ),
        tell_against("users", "variables", "variables", ""),
    ),
    "figure10": Drawing(
        "Utility loss against users, {city} (Figure 10)",
        (
            _users(
                "averaged over anchors, as the paper does",
                "loss [m]",
                Line(PUBLISHED, "loss_m"),
                *_AROUND,
            ),
            _users(
                "averaged over the users' true records",
                "loss [m]",
                Line(PUBLISHED, "true_loss_m"),
                *_AROUND,
                Line(TEXT, "loss_m", flat=True),
            ),
        ),
        tell_against("users", "loss_m", "loss", " m"),
        columns=4,
        same_draws=True,
    ),
    "figure11": Drawing(
        "Utility loss against epsilon, {city} (Figure 11)",
        (
            Panel(
                "against the epsilon that is claimed",
                "epsilon",
                "loss [m]",
                (Line(TRADED, "loss_m"),),
                finish=log_or_linear,
            ),
            Panel(
                "against the epsilon that an audit finds",
                "epsilon",
                "loss [m]",
                x="audited epsilon [1/km], log scale",
                custom=_audited_trade_offs,
            ),
        ),
        tell_against("epsilon", "loss_m", "loss", " m"),
        same_draws=True,
    ),
    "figure12": _violations(12, 5.0),
    "figure13": BUDGETS[5.0],
    "figure14": _violations(14, 15.0),
    "figure15": BUDGETS[15.0],
    "figure16": Drawing(
        "Utility loss against delta, {city} (Figure 16)",
        (
            Panel(
                "published accounting, the text charged in full, and ours",
                "delta",
                "loss [m]",
                (
                    Line((*PUBLISHED, *TEXT, "ball"), "loss_m"),
                    Line((*NOISE, *OURS[:2]), "loss_m", flat=True),
                ),
                finish=log_or_linear,
            ),
        ),
        tell_against("delta", "loss_m", "loss", " m"),
        columns=4,
        same_draws=True,
    ),
    "figure17": Drawing(
        "Violation rate against delta, {city} (Figure 17)",
        (
            Panel(
                "measured over all pairs, sets that were drawn",
                "delta",
                "share of pairs violated",
                (
                    Line((*PUBLISHED, *TEXT), "violated_pairs"),
                    Line(
                        ("ball",),
                        "audited_delta",
                        label="ball: its delta, by audit",
                        style=Look(ORANGE, "P", ""),
                        aside=False,
                    ),
                ),
                before=_delta_itself,
                finish=_from_floor,
            ),
        ),
        tell_against("delta", "violated_pairs", "share of pairs violated", ""),
        columns=3,
    ),
    "figure18": ESTIMATES,
    "figure23": Drawing(
        "PAnDA, its lower bound and the optimum, {city} (Figures 23 to 25)",
        tuple(map(_bounds, PUBLISHED)),
        tell_bounds,
        columns=3,
    ),
}
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
