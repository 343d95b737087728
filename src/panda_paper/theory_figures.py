"""Figures with code of their own: selection, margins, estimated margins, how a budget is spent."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from panda_mdp.plot.style import (
    BLACK,
    BLUE,
    INK,
    ORANGE,
    PALE,
    SEQUENCE,
    SKY,
    STREET,
    VERMILION,
)
from panda_paper.cell import DECAYS, PUBLISHED, TEXT, VARIANTS
from panda_paper.items import ALPHAS
from panda_paper.margins import RADIUS_KM
from panda_paper.panels import Drawing, Line, Look, Panel, draw_series, label_axes
from panda_paper.results import Row
from panda_paper.series import Series, Trend, collect, mean_of, trend

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLES = {"exponential": "exponential decay", "power": "power law", "logistic": "logistic"}
ALPHA_LOOKS = {
    0.25: Look(STREET, "v"),
    0.5: Look(SKY, "^"),
    0.9: Look(BLUE, "s"),
    0.95: Look(BLACK, "o"),
}
ESTIMATES_ABOVE = {"exponential": 0.133, "power": 0.138, "logistic": 0.132}
"""How far the paper says estimated margins lie above real ones."""
PAPER_SHARES = {5.0: (0.2391, 0.0906, 0.6703), 15.0: (0.0791, 0.0306, 0.8903)}
"""Phase I, safety margin, perturbation: the paper's averages, by epsilon."""
SHARES = ("share_selection", "share_margin", "share_rest")
REAL_SHARES = ("real_selection", "real_margin", "real_rest")
"""The same run, Phase I charged in full."""
SHARE_BARS = {"Phase I": VERMILION, "safety margin": ORANGE, "left for the table": BLUE}


def _done(rows: Sequence[Row], method: str) -> list[Row]:
    return [row for row in rows if row.cell.method == method and row.status == "done"]


def _from_above(decay: str, axes: Axes, rows: Sequence[Row]) -> bool:
    """The probability of being selected, from above."""
    found = _done(rows, decay)
    if not found:
        return False
    side = np.linspace(-3, 3, 181)
    image = axes.imshow(
        np.interp(
            np.hypot(side[:, None], side), found[0].value("distance"), found[0].value("text")
        ),
        extent=(-3, 3, -3, 3),
        origin="lower",
        cmap=SEQUENCE,
        vmin=0,
        vmax=1,
        interpolation="bilinear",
    )
    axes.grid(False)
    angle = np.linspace(0, 2 * np.pi, 181)
    axes.plot(RADIUS_KM * np.cos(angle), RADIUS_KM * np.sin(angle), color="white", lw=1.2, ls="--")
    axes.plot(0, 0, marker="+", color="white", markersize=9)
    axes.figure.colorbar(image, ax=axes, label="w(x, a)", shrink=0.85)
    return True


def _along(decay: str, axes: Axes, rows: Sequence[Row]) -> bool:
    """The probability of being selected along a line, and how many records a user selects."""
    found = _done(rows, decay)
    if not found:
        return False
    row = found[0]
    distance = row.value("distance")
    axes.plot(distance, row.value("text"), color=BLUE, lw=2, label="text: clipped at h(gamma)")
    axes.plot(distance, row.value("code"), color=VERMILION, lw=2, label="published code: falls off")
    axes.set_yscale("log")
    axes.set_ylim(1e-6, 2)
    axes.axvline(RADIUS_KM, color=PALE, lw=0.8, ls="--")
    note = (
        f"a user selects on average\n"
        f"text: {row.value('text_near') + row.value('text_far'):,.0f} of "
        f"{row.cell.setting.records:,}\n"
        f"code: {row.value('code_near') + row.value('code_far'):,.1f}"
    )
    axes.text(0.97, 0.55, note, transform=axes.transAxes, ha="right", va="center", fontsize=9)
    return True


def tell_surfaces(rows: Sequence[Row], city: str) -> list[str]:
    """What Figure 4 means on a map."""
    template = (
        "{title}: with the text's parameters a user of {city} (K = {size:,}) selects "
        "{text_near:.1f} records within gamma and {text_far:,.0f} beyond it, and the choice costs "
        "up to {text_worst_epsilon:,.0f} /km; with the published code's {code_near:.1f} and "
        "{code_far:.2g}, and up to {code_worst_epsilon:,.0f} /km."
    )
    return [
        template.format(
            title=TITLES[decay].capitalize(),
            city=city,
            size=row.cell.setting.records,
            **row.outcome.values,
        )
        for decay in DECAYS
        for row in _done(rows, decay)[:1]
    ]


def margin_curve(rows: Sequence[Row], decay: str, alpha: float, value: str = "within") -> Series:
    """A value of the margin cells against lambda, averaged over repeats."""
    found = [row for row in _done(rows, decay) if row.cell.option("alpha", 0) == alpha]
    label = f"alpha {alpha:g}"
    if not found:
        return Series.of(label, [], [])
    table = np.array([row.value(value) for row in found], dtype=np.float64)
    rates = np.array(found[0].value("rates"), dtype=np.float64)
    shown = np.isfinite(table).any(axis=0)
    table = np.where(np.isfinite(table), table, np.nan)
    return Series.of(label, rates[shown], np.nanmean(table[:, shown], axis=0))


def trends(rows: Sequence[Row]) -> dict[tuple[str, float], Trend]:
    """How a margin moves with lambda, for each decay and alpha."""
    return {
        (decay, alpha): trend(margin_curve(rows, decay, alpha).mean)
        for decay in DECAYS
        for alpha in ALPHAS
    }


def alpha_trends(rows: Sequence[Row]) -> list[Trend]:
    """How a margin moves with alpha, for each decay and lambda that the first alpha has."""
    found: list[Trend] = []
    for decay in DECAYS:
        curves = [margin_curve(rows, decay, alpha) for alpha in ALPHAS]
        found += [trend([curve.at(rate) for curve in curves]) for rate in curves[0].x]
    return found


def _margins(decay: str, value: str, axes: Axes, rows: Sequence[Row]) -> bool:
    """Curves over lambda, one for each alpha."""
    curves = {alpha: margin_curve(rows, decay, alpha, value) for alpha in ALPHAS}
    curves = {
        alpha: curve
        for alpha, curve in curves.items()
        if len(margin_curve(rows, decay, alpha, "none"))
    }
    for alpha, curve in curves.items():
        draw_series(axes, curve, ALPHA_LOOKS[alpha])
    if value == "none":
        axes.set_ylim(-0.03, 1.03)
    elif curves:
        words = " / ".join(sorted({trend(curve.mean) for curve in curves.values()}))
        title = f"{TITLES[decay]}: {words} with lambda"
        label_axes(axes, title, axes.get_xlabel(), axes.get_ylabel())
        axes.axhline(0, color=PALE, lw=0.8)
    return bool(curves)


def tell_margins(rows: Sequence[Row], city: str) -> list[str]:
    """What Figure 6 settles, in words."""
    done = [row for row in rows if row.status == "done"]
    if not done:
        return []
    none = float(np.mean([np.mean(row.value("none")) for row in done]))
    directions = trends(rows)
    words = [word for word in directions.values() if word != "nothing to see"]
    sentences = [
        f"Section 4.2 says that the margin grows with lambda, the appendix that it falls. Exactly "
        f"computed it grows in {words.count('grows')} of {len(words)} curves, falls in "
        f"{words.count('falls')} and does neither in {words.count('neither')}.",
        f"{city}: for {none:.1%} of the pairs, over all settings shown, no margin suffices: one of "
        "the two records has no anchor within gamma more often than delta.",
    ]
    for decay in DECAYS:
        own = [directions[decay, alpha] for alpha in ALPHAS]
        counts = ", ".join(
            f"{word} in {own.count(word)} of {len(own)}" for word in dict.fromkeys(own)
        )
        curve = margin_curve(rows, decay, 0.95)
        if len(curve):
            sentences.append(
                f"{TITLES[decay].capitalize()}: {counts} curves; at alpha .95 from "
                f"{curve.mean[0]:.2f} to {curve.mean[-1]:.2f} nats as lambda goes from "
                f"{curve.x[0]:g} to {curve.x[-1]:g}."
            )
    by_alpha = alpha_trends(rows)
    sentences.append(
        f"With alpha the margin falls in {by_alpha.count('falls')} of {len(by_alpha)} columns of "
        f"the grid, grows in {by_alpha.count('grows')}."
    )
    return sentences


def _estimated(decay: str, axes: Axes, rows: Sequence[Row], drawn: list[Series]) -> None:
    """How far estimates lie above real margins, and how often there is none."""
    axes.set_ylim(bottom=0)
    own, guess = drawn
    above = guess.mean.mean() / own.mean.mean() - 1
    title = f"{TITLES[decay]}: {above:+.0%} (paper: +{ESTIMATES_ABOVE[decay]:.1%})"
    label_axes(axes, title, axes.get_xlabel(), axes.get_ylabel())
    none = collect(rows, decay, "none", "delta")
    ends = dict.fromkeys((0, len(none) - 1))
    axes.text(
        0.03,
        0.05,
        "no margin suffices for\n"
        + ", ".join(f"{none.mean[k]:.0%} at {none.x[k]:.0e}" for k in ends),
        transform=axes.transAxes,
        ha="left",
        va="bottom",
        fontsize=8.5,
        color=PALE,
    )


def tell_estimates(rows: Sequence[Row], city: str) -> list[str]:
    """What the comparison of margins shows."""
    template = (
        "{title}: estimates lie {above:.1%} above the real margins on average (the paper: "
        "{paper:.1%}); for {none:.1%} of the pairs no real margin suffices, and for {missed:.1%} "
        "the covered records miss the users' more often than delta, so that the estimate proves "
        "nothing."
    )
    return [
        template.format(
            title=TITLES[decay].capitalize(),
            above=mean_of(rows, (decay,), "estimated") / own - 1,
            paper=ESTIMATES_ABOVE[decay],
            none=mean_of(rows, (decay,), "none"),
            missed=mean_of(rows, (decay,), "uncovered"),
        )
        for decay in DECAYS
        if not np.isnan(own := mean_of(rows, (decay,), "real"))
    ]


def _paper_budget(epsilon: float, axes: Axes, rows: Sequence[Row]) -> bool:
    _bars(axes, ["average"], [PAPER_SHARES[epsilon]])
    return True


def _budget(methods: Sequence[str], names: Sequence[str], axes: Axes, rows: Sequence[Row]) -> bool:
    """Bars of shares, one for each variant and size."""
    parts: dict[str, tuple[float, ...]] = {}
    for letter, method in zip(VARIANTS, methods, strict=True):
        own = [row for row in rows if row.cell.method == method]
        for size in sorted({row.cell.setting.records for row in own}):
            here = [row for row in own if row.cell.setting.records == size]
            shares = tuple(mean_of(here, (method,), name) for name in names)
            if not np.isnan(shares).any():
                parts[f"{letter} {size / 1000:g}k"] = shares
    if parts:
        _bars(axes, list(parts), list(parts.values()))
    return bool(parts)


def _bars(axes: Axes, labels: Sequence[str], parts: Sequence[tuple[float, ...]]) -> None:
    table = np.array(parts)
    place = np.arange(len(labels))
    bottom = np.zeros(len(labels))
    for column, (name, colour) in zip(table.T, SHARE_BARS.items(), strict=True):
        axes.bar(place, column, 0.78, bottom=bottom, color=colour, label=name)
        for x, low, share in zip(place, bottom, column, strict=True):
            if share > 0.045 and len(labels) <= 8:
                text = f"{share:.0%}"
                axes.text(float(x), low + share / 2, text, ha="center", va="center", color="white")
        bottom = bottom + column
    axes.set_xticks(place, labels, rotation=90 if len(labels) > 8 else 0, fontsize=8)
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")


def tell_budgets(rows: Sequence[Row], city: str) -> list[str]:
    """Average shares in both accounts."""
    accounts = (
        ("Published accounting", PUBLISHED, SHARES),
        ("The same with Phase I charged in full", PUBLISHED, REAL_SHARES),
        ("Exact accounting of the text", TEXT, SHARES),
    )
    spent = "{} on {}: Phase I {:.1%}, margin {:.1%}, left for the table {:.1%}."
    sentences = [
        spent.format(name, city, *(mean_of(rows, methods, share) for share in names))
        for name, methods, names in accounts
    ]
    nearby = (
        "Averages over all pairs are about far ones. Between anchors nearer than 2 km the {} "
        "selection costs {:.0%} of epsilon d (median), before any report."
    )
    selections = (("published code's", PUBLISHED), ("text's", TEXT))
    sentences += [
        nearby.format(name, mean_of(rows, methods, "near_cost")) for name, methods in selections
    ]
    sentences.append(
        f"Exact accounting leaves {mean_of(rows, TEXT, 'clipped'):.1%} of the pairs of anchors "
        "nothing at all: their rows must be equal."
    )
    # A sentence of which a number is not there is left out.
    return [sentence for sentence in sentences if "nan%" not in sentence]


SURFACES = Drawing(
    "Selection probability (Figure 4); anchors on {city}",
    tuple(
        Panel(title.format(TITLES[decay]), "records", y, x=x, custom=partial(draw, decay))
        for title, x, y, draw in (
            (
                "{}: the text, from above",
                "east of the record [km]",
                "north [km]",
                _from_above,
            ),
            (
                "along a line",
                "distance of the anchor [km]",
                "probability, log scale",
                _along,
            ),
        )
        for decay in DECAYS
    ),
    tell_surfaces,
    lines=2,
)


def _margin_drawing(title: str) -> Drawing:
    values = {
        "within": "mean margin, given anchors\nwithin gamma [nats]",
        "none": "share of pairs for which\nno margin suffices",
    }
    return Drawing(
        title,
        tuple(
            Panel(
                TITLES[decay] if value == "within" else "",
                "records",
                label,
                x="lambda" if decay == "power" else "lambda [1/km]",
                custom=partial(_margins, decay, value),
            )
            for value, label in values.items()
            for decay in DECAYS
        ),
        tell_margins,
        lines=2,
    )


MARGINS = _margin_drawing(
    "Safety margin at the paper's gamma (d_max/50) and delta (1e-7), {city} (Figure 6)"
)
"""No margin exists there, so the one given an anchor is drawn."""
WIDE_MARGINS = _margin_drawing(
    "Safety margin with a wide gamma (d_max/16) and delta = 1e-2, {city}"
)
ESTIMATES = Drawing(
    "Estimated and real safety margins, {city} (Figures 18 to 20)",
    tuple(
        Panel(
            TITLES[decay],
            "delta",
            "mean margin [nats]",
            (
                Line((decay,), "real", label="real margin", style=Look(INK, "o")),
                Line(
                    (decay,),
                    "estimated",
                    label="estimated margin (Eq. 37)",
                    style=Look(VERMILION, "s"),
                ),
            ),
            finish=partial(_estimated, decay),
        )
        for decay in DECAYS
    ),
    tell_estimates,
)
BUDGETS = {
    epsilon: Drawing(
        f"How epsilon d is spent at epsilon {epsilon:g} /km, {{city}} (Figure {number})",
        tuple(
            Panel(title, "records", "share of epsilon d", x=x, custom=custom)
            for title, x, custom in (
                ("as the paper reports it", "", partial(_paper_budget, epsilon)),
                ("published accounting", "variant and K", partial(_budget, PUBLISHED, SHARES)),
                (
                    "the same, Phase I charged in full",
                    "variant and K",
                    partial(_budget, PUBLISHED, REAL_SHARES),
                ),
                ("the text, exact accounting", "variant and K", partial(_budget, TEXT, SHARES)),
            )
        ),
        tell_budgets,
        lines=2,
    )
    for epsilon, number in ((5.0, 13), (15.0, 15))
}
"""Figures 13 and 15: who spends eps d, in three accounts."""
