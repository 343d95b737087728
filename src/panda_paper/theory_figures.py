"""Figures with code of their own: selection, margins, estimated margins, how a budget is spent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
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
from panda_paper.margins import RADIUS_KM
from panda_paper.panels import (
    Drawing,
    Finish,
    Line,
    Look,
    Panel,
    draw_series,
    entitle,
    tell_means,
)
from panda_paper.results import Rows
from panda_paper.series import Series, Trend, trend

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLES = {"exponential": "exponential decay", "power": "power law", "logistic": "logistic"}
CAPITALS = {title.capitalize(): (decay,) for decay, title in TITLES.items()}
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
ACCOUNTS = (
    ("", "published accounting", "Published accounting", PUBLISHED, SHARES),
    (
        "real_",
        "the same, Phase I charged in full",
        "The same with Phase I charged in full",
        PUBLISHED,
        REAL_SHARES,
    ),
    ("text_", "the text, exact accounting", "Exact accounting of the text", TEXT, SHARES),
)
"""Who counts a budget how: a name for quantities, a title, words, methods and their values."""
SHARE_BARS = {"Phase I": VERMILION, "safety margin": ORANGE, "left for the table": BLUE}


def _from_above(decay: str, axes: Axes, rows: Rows, _: object) -> None:
    """The probability of being selected, from above."""
    for row in rows.of(decay)[:1]:
        side, angle = np.linspace(-3, 3, 181), np.linspace(0, 2 * np.pi, 181)
        away = np.hypot(side[:, None], side)
        image = axes.imshow(
            np.interp(away, row.value("distance"), row.value("text")),
            extent=(-3, 3, -3, 3),
            origin="lower",
            cmap=SEQUENCE,
            vmin=0,
            vmax=1,
            interpolation="bilinear",
        )
        axes.grid(False)
        ring = RADIUS_KM * np.stack([np.cos(angle), np.sin(angle)])
        axes.plot(*ring, color="white", lw=1.2, ls="--")
        axes.plot(0, 0, marker="+", color="white", markersize=9)
        axes.figure.colorbar(image, ax=axes, label="w(x, a)", shrink=0.85)


def _along(decay: str, axes: Axes, rows: Rows, _: object) -> None:
    """The probability of being selected along a line, and how many records a user selects."""
    for row in rows.of(decay)[:1]:
        for value, colour, label in (
            ("text", BLUE, "text: clipped at h(gamma)"),
            ("code", VERMILION, "published code: falls off"),
        ):
            axes.plot(row.value("distance"), row.value(value), color=colour, lw=2, label=label)
        axes.set(yscale="log", ylim=(1e-6, 2))
        axes.axvline(RADIUS_KM, color=PALE, lw=0.8, ls="--")
        text, code = (
            row.value(f"{one}_near") + row.value(f"{one}_far") for one in ("text", "code")
        )
        note = (
            f"a user selects on average\ntext: {text:,.0f} of {row.cell.setting.records:,}\n"
            f"code: {code:,.1f}"
        )
        axes.text(0.97, 0.55, note, transform=axes.transAxes, ha="right", va="center", fontsize=9)


Curves = Mapping[tuple[str, float], Series]
"""Series over lambda, by decay and alpha."""


def margin_curves(rows: Rows, value: str = "within") -> Curves:
    """A value of the margin cells against lambda, averaged over repeats."""
    curves: dict[tuple[str, float], Series] = {}
    for decay in DECAYS:
        for alpha in ALPHA_LOOKS:
            found = [row for row in rows.of(decay) if row.cell.option("alpha", 0) == alpha]
            table = np.array([row.value(value) for row in found], dtype=np.float64)
            rates = found[0].value("rates") if found else []
            points = [
                (rate, float(column[np.isfinite(column)].mean()), 0.0)
                for rate, column in zip(rates, table.T, strict=True)
                if np.isfinite(column).any()
            ]
            curves[decay, alpha] = Series.of(f"alpha {alpha:g}", points)
    return curves


def trend_counts(*several: Curves) -> dict[str, Counter[Trend]]:
    """How often a margin moves how with lambda, for each decay over its alphas."""
    return {
        decay: Counter(
            trend(curves[decay, alpha].mean) for curves in several for alpha in ALPHA_LOOKS
        )
        for decay in DECAYS
    }


def alpha_trends(curves: Curves) -> list[Trend]:
    """How a margin moves with alpha, for each decay and lambda that the first alpha has."""
    return [
        trend([curves[decay, alpha].at(rate) for alpha in ALPHA_LOOKS])
        for decay in DECAYS
        for rate in curves[decay, min(ALPHA_LOOKS)].x
    ]


def _margins(decay: str, value: str, axes: Axes, rows: Rows, _: object) -> None:
    """Curves over lambda, one for each alpha."""
    curves, run = margin_curves(rows, value), margin_curves(rows, "none")
    shown = {alpha: curves[decay, alpha] for alpha in ALPHA_LOOKS if len(run[decay, alpha])}
    for alpha, curve in shown.items():
        draw_series(axes, curve, ALPHA_LOOKS[alpha])
    if value == "none":
        axes.set_ylim(-0.03, 1.03)
    elif shown:
        words = " / ".join(sorted({trend(curve.mean) for curve in shown.values()}))
        entitle(axes, f"{TITLES[decay]}: {words} with lambda")
        axes.axhline(0, color=PALE, lw=0.8)


def tell_margins(rows: Rows, city: str) -> Iterator[str]:
    """What Figure 6 settles, in words."""
    none = rows.of(*DECAYS).mean("none")
    if np.isnan(none):
        return
    curves = margin_curves(rows)
    counts = trend_counts(curves)
    every = sum(counts.values(), Counter[Trend]())
    yield (
        "Section 4.2 says that the margin grows with lambda, the appendix that it falls. Exactly "
        f"computed it grows in {every['grows']} of {every.total() - every['nothing to see']} "
        f"curves, falls in {every['falls']} and does neither in {every['neither']}."
    )
    yield (
        f"{city}: for {none:.1%} of the pairs, over all settings shown, no margin suffices: one of "
        "the two records has no anchor within gamma more often than delta."
    )
    for decay, title in TITLES.items():
        own, curve = counts[decay], curves[decay, 0.95]
        words = ", ".join(f"{word} in {count} of {own.total()}" for word, count in own.items())
        if len(curve):
            (first, low), (last, high) = curve.ends
            yield (
                f"{title.capitalize()}: {words} curves; at alpha .95 from {low:.2f} to {high:.2f} "
                f"nats as lambda goes from {first:g} to {last:g}."
            )
    by_alpha = Counter(alpha_trends(curves))
    yield (
        f"With alpha the margin falls in {by_alpha['falls']} of {by_alpha.total()} columns of the "
        f"grid, grows in {by_alpha['grows']}."
    )


def _estimated(decay: str, axes: Axes, rows: Rows, drawn: list[Series]) -> None:
    """How far estimates lie above real margins, and how often there is none."""
    axes.set_ylim(bottom=0)
    above = drawn[1].mean.mean() / drawn[0].mean.mean() - 1
    entitle(axes, f"{TITLES[decay]}: {above:+.0%} (paper: +{ESTIMATES_ABOVE[decay]:.1%})")
    ends = dict.fromkeys(rows.of(decay).series("none", "delta").ends)
    shares = ", ".join(f"{share:.0%} at {delta:.0e}" for delta, share in ends)
    note = f"no margin suffices for\n{shares}"
    axes.text(0.03, 0.05, note, transform=axes.transAxes, fontsize=8.5, color=PALE)


def tell_estimates(rows: Rows, city: str) -> Iterator[str]:
    """What the comparison of margins shows."""
    for decay, title in TITLES.items():
        own = rows.of(decay)
        if not np.isnan(own.mean("real")):
            above = own.mean("estimated") / own.mean("real") - 1
            yield (
                f"{title.capitalize()}: estimates lie {above:.1%} above the real margins on "
                f"average (the paper: {ESTIMATES_ABOVE[decay]:.1%}); for "
                f"{own.mean('none'):.1%} of the pairs no real margin suffices, and for "
                f"{own.mean('uncovered'):.1%} the covered records miss the users' more often than "
                "delta, so that the estimate proves nothing."
            )


def _paper_budget(epsilon: float, axes: Axes, *_: object) -> None:
    _bars(axes, {"average": PAPER_SHARES[epsilon]})


def _budget(methods: Sequence[str], names: Sequence[str]) -> Finish:
    """Bars of shares, one for each variant and size."""

    def draw(axes: Axes, rows: Rows, _: object) -> None:
        found = {
            f"{letter} {size / 1000:g}k": [own.at("records", size).mean(name) for name in names]
            for letter, own in zip(VARIANTS, map(rows.of, methods), strict=True)
            for size in own.places("records")
        }
        _bars(axes, {label: parts for label, parts in found.items() if not np.isnan(parts).any()})

    return draw


def _bars(axes: Axes, parts: Mapping[str, Sequence[float]]) -> None:
    few = len(parts) <= 8
    bottom = np.zeros(len(parts))
    columns = np.reshape([*parts.values()], (-1, len(SHARE_BARS))).T
    for (name, colour), column in zip(SHARE_BARS.items(), columns, strict=True):
        drawn = axes.bar(range(len(parts)), column, 0.78, bottom=bottom, color=colour, label=name)
        if few:
            shown = [f"{share:.0%}" if share > 0.045 else "" for share in column]
            axes.bar_label(drawn, shown, label_type="center", color="white")
        bottom = bottom + column
    axes.set_xticks(range(len(parts)), list(parts), rotation=0 if few else 90, fontsize=8)
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")


SURFACES = Drawing(
    "Selection probability (Figure 4); anchors on {city}",
    tuple(
        Panel(title.format(TITLES[decay]), y, finish=partial(draw, decay), x=x)
        for title, x, y, draw in (
            ("{}: the text, from above", "east of the record [km]", "north [km]", _from_above),
            ("along a line", "distance of the anchor [km]", "probability, log scale", _along),
        )
        for decay in DECAYS
    ),
    (
        tell_means(
            "{name}: with the text's parameters a user of {city} (K = {records:,.0f}) selects "
            "{text_near:.1f} records within gamma and {text_far:,.0f} beyond it, and the choice "
            "costs up to {text_worst_epsilon:,.0f} /km; with the published code's {code_near:.1f} "
            "and {code_far:.2g}, and up to {code_worst_epsilon:,.0f} /km.",
            CAPITALS,
        ),
    ),
    lines=2,
)
MARGINS, WIDE_MARGINS = (
    Drawing(
        title,
        tuple(
            Panel(
                TITLES[decay] if value == "within" else "",
                label,
                finish=partial(_margins, decay, value),
                x="lambda" if decay == "power" else "lambda [1/km]",
            )
            for value, label in (
                ("within", "mean margin, given anchors\nwithin gamma [nats]"),
                ("none", "share of pairs for which\nno margin suffices"),
            )
            for decay in DECAYS
        ),
        (tell_margins,),
        lines=2,
    )
    for title in (
        # No margin exists at the paper's gamma and delta, so the one given an anchor is drawn.
        "Safety margin at the paper's gamma (d_max/50) and delta (1e-7), {city} (Figure 6)",
        "Safety margin with a wide gamma (d_max/16) and delta = 1e-2, {city}",
    )
)
_COMPARED = (
    ("real", "real margin", Look(INK, "o")),
    ("estimated", "estimated margin (Eq. 37)", Look(VERMILION, "s")),
)
ESTIMATES = Drawing(
    "Estimated and real safety margins, {city} (Figures 18 to 20)",
    tuple(
        Panel(
            TITLES[decay],
            "mean margin [nats]",
            "delta",
            tuple(Line((decay,), *one) for one in _COMPARED),
            partial(_estimated, decay),
        )
        for decay in DECAYS
    ),
    (tell_estimates,),
)
_SPENT = (
    "{{name}} on {{city}}: Phase I {{{}:.1%}}, margin {{{}:.1%}}, left for the table {{{}:.1%}}."
)
BUDGETS = {
    epsilon: Drawing(
        f"How epsilon d is spent at epsilon {epsilon:g} /km, {{city}} (Figure {number})",
        (
            Panel(
                "as the paper reports it",
                "share of epsilon d",
                finish=partial(_paper_budget, epsilon),
                x="",
            ),
            *(
                Panel(title, "share of epsilon d", finish=_budget(*shares), x="variant and K")
                for _, title, _, *shares in ACCOUNTS
            ),
        ),
        (
            *(
                tell_means(_SPENT.format(*names), {words: methods})
                for _, _, words, methods, names in ACCOUNTS
            ),
            tell_means(
                "Averages over all pairs are about far ones. Between anchors nearer than 2 km the "
                "{name} selection costs {near_cost:.0%} of epsilon d (median), before any report.",
                {"published code's": PUBLISHED, "text's": TEXT},
            ),
            tell_means(
                "Exact accounting leaves {clipped:.1%} of the pairs of anchors nothing at all: "
                "their rows must be equal.",
                {"text": TEXT},
            ),
        ),
        lines=2,
    )
    for epsilon, number in ((5.0, 13), (15.0, 15))
}
"""Figures 13 and 15: who spends eps d, in three accounts."""
