"""Drawings of what can be computed without a table: selection, margins, estimated margins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from panda_mdp.base.arrays import FloatArray
from panda_mdp.plot.style import BLACK, BLUE, INK, PALE, SEQUENCE, SKY, STREET, VERMILION
from panda_paper.cells.outcome import Row
from panda_paper.cells.selection_profile import RADIUS_KM
from panda_paper.draw.panels import Look, draw_series, label_axes, legend_below, panels, say_empty
from panda_paper.draw.series import Series, Trend, collect, delta_of, mean_of, no_points, trend
from panda_paper.settings.method_names import DECAYS
from panda_paper.settings.paper_figures import ALPHAS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLES = {"exponential": "exponential decay", "power": "power law", "logistic": "logistic"}
LABEL = "mean margin, given anchors\nwithin gamma [nats]"
ALPHA_LOOKS = {
    0.25: Look(STREET, "v"),
    0.5: Look(SKY, "^"),
    0.9: Look(BLUE, "s"),
    0.95: Look(BLACK, "o"),
}


def draw_surfaces(rows: Sequence[Row], city: str) -> Figure:
    """Figure 4: the probability of being selected, from above and along a line."""
    figure, axes = panels(6, f"Selection probability (Figure 4); anchors on {city}", rows=2)
    for k, decay in enumerate(DECAYS):
        known = [row for row in rows if row.cell.method == decay and row.status == "done"]
        if not known:
            say_empty(axes[k])
            say_empty(axes[k + 3])
            continue
        _from_above(figure, axes[k], known[0], TITLES[decay])
        _along(axes[k + 3], known[0])
    legend_below(figure, axes[3:])
    return figure


def _from_above(figure: Figure, axes: Axes, row: Row, title: str) -> None:
    distance, text = np.array(row.value("distance")), np.array(row.value("text"))
    side = np.linspace(-3, 3, 181)
    away = np.hypot(side[:, None], side)
    image = axes.imshow(
        np.interp(away, distance, text),
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
    label_axes(axes, f"{title}: the text, from above", "east of the record [km]", "north [km]")
    figure.colorbar(image, ax=axes, label="w(x, a)", shrink=0.85)


def _along(axes: Axes, row: Row) -> None:
    distance = np.array(row.value("distance"))
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
    label_axes(axes, "along a line", "distance of the anchor [km]", "probability, log scale")


def tell_surfaces(rows: Sequence[Row], city: str) -> list[str]:
    """What Figure 4 means on a map."""
    sentences = []
    for decay in DECAYS:
        known = [row for row in rows if row.cell.method == decay and row.status == "done"]
        if known:
            row = known[0]
            sentences.append(
                f"{TITLES[decay].capitalize()}: with the text's parameters a user of {city} (K = "
                f"{row.cell.setting.records:,}) selects {row.value('text_near'):.1f} records "
                f"within gamma and {row.value('text_far'):,.0f} beyond it, and the choice costs up "
                f"to {row.value('text_worst_epsilon'):,.0f} /km; with the published code's "
                f"{row.value('code_near'):.1f} and {row.value('code_far'):.2g}, and up to "
                f"{row.value('code_worst_epsilon'):,.0f} /km."
            )
    return sentences


def margin_curve(rows: Sequence[Row], decay: str, alpha: float, value: str) -> Series:
    """A value of the margin cells against lambda, averaged over repeats."""
    known = [
        row
        for row in rows
        if row.cell.method == decay
        and row.status == "done"
        and row.cell.option("alpha", 0) == alpha
    ]
    label = f"alpha {alpha:g}"
    if not known:
        return no_points(label)
    table = np.array([row.value(value) for row in known], dtype=np.float64)
    rates = np.array(known[0].value("rates"), dtype=np.float64)
    counts = np.isfinite(table).sum(axis=0)
    shown = counts > 0
    mean = np.array([column[np.isfinite(column)].mean() for column in table.T[shown]])
    return Series(label, rates[shown], mean, np.zeros(len(mean)), counts[shown].astype(float))


def trends(rows: Sequence[Row]) -> dict[tuple[str, float], Trend]:
    """How a margin moves with lambda, for each decay and alpha."""
    return {
        (decay, alpha): trend(margin_curve(rows, decay, alpha, "within").mean)
        for decay in DECAYS
        for alpha in ALPHAS
    }


def alpha_trends(rows: Sequence[Row]) -> dict[tuple[str, float], Trend]:
    """How a margin moves with alpha, for each decay and lambda that all alphas have."""
    out: dict[tuple[str, float], Trend] = {}
    for decay in DECAYS:
        curves = [margin_curve(rows, decay, alpha, "within") for alpha in ALPHAS]
        for rate in curves[0].x.tolist() if curves else []:
            out[decay, rate] = trend([curve.at(rate) for curve in curves])
    return out


def draw_margins(rows: Sequence[Row], city: str) -> Figure:
    """Figure 6 at the paper's gamma and delta: no margin exists, so the one given an anchor."""
    return _draw_margins(
        rows, f"Safety margin at the paper's gamma (d_max/50) and delta (1e-7), {city} (Figure 6)"
    )


def draw_wide_margins(rows: Sequence[Row], city: str) -> Figure:
    """Figure 6 where most pairs have a margin: a wider gamma, a larger delta."""
    return _draw_margins(
        rows, f"Safety margin with a wide gamma (d_max/16) and delta = 1e-2, {city}"
    )


def _draw_margins(rows: Sequence[Row], title: str) -> Figure:
    figure, axes = panels(6, title, rows=2)
    for k, decay in enumerate(DECAYS):
        drawn = 0
        for alpha in ALPHAS:
            curve = margin_curve(rows, decay, alpha, "within")
            none = margin_curve(rows, decay, alpha, "none")
            if len(none):
                draw_series(axes[k], curve, ALPHA_LOOKS[alpha])
                draw_series(axes[k + 3], none, ALPHA_LOOKS[alpha])
                drawn += 1
        if not drawn:
            say_empty(axes[k])
            say_empty(axes[k + 3])
            continue
        trends = {trend(margin_curve(rows, decay, alpha, "within").mean) for alpha in ALPHAS}
        words = " / ".join(sorted(trends))
        unit = "" if decay == "power" else " [1/km]"
        label_axes(axes[k], f"{TITLES[decay]}: {words} with lambda", f"lambda{unit}", LABEL)
        label_axes(axes[k + 3], "", f"lambda{unit}", "share of pairs for which\nno margin suffices")
        axes[k + 3].set_ylim(-0.03, 1.03)
        axes[k].axhline(0, color=PALE, lw=0.8)
    legend_below(figure, axes[:3])
    return figure


def tell_margins(rows: Sequence[Row], city: str) -> list[str]:
    """What Figure 6 settles, in words."""
    done = [row for row in rows if row.status == "done"]
    if not done:
        return []
    none = float(np.mean([np.mean(row.value("none")) for row in done]))
    words = [word for word in trends(rows).values() if word != "nothing to see"]
    sentences = [
        f"Section 4.2 says that the margin grows with lambda, the appendix that it falls. Exactly "
        f"computed it grows in {words.count('grows')} of {len(words)} curves, falls in "
        f"{words.count('falls')} and does neither in {words.count('neither')}.",
        f"{city}: for {none:.1%} of the pairs, over all settings shown, no margin suffices: one of "
        "the two records has no anchor within gamma more often than delta.",
    ]
    for decay in DECAYS:
        directions = [trend(margin_curve(rows, decay, alpha, "within").mean) for alpha in ALPHAS]
        counts = ", ".join(
            f"{word} in {directions.count(word)} of {len(directions)}"
            for word in dict.fromkeys(directions)
        )
        curve = margin_curve(rows, decay, 0.95, "within")
        if len(curve):
            sentences.append(
                f"{TITLES[decay].capitalize()}: {counts} curves; at alpha .95 from "
                f"{curve.mean[0]:.2f} to {curve.mean[-1]:.2f} nats as lambda goes from "
                f"{curve.x[0]:g} to {curve.x[-1]:g}."
            )
    by_alpha = list(alpha_trends(rows).values())
    falls = by_alpha.count("falls")
    sentences.append(
        f"With alpha the margin falls in {falls} of {len(by_alpha)} columns of the grid, grows in "
        f"{by_alpha.count('grows')}."
    )
    return sentences


def draw_estimates(rows: Sequence[Row], city: str) -> Figure:
    """Figures 18 to 20: the server's estimate of the margin beside the real one."""
    figure, axes = panels(3, f"Estimated and real safety margins, {city} (Figures 18 to 20)")
    for axes_, decay in zip(axes, DECAYS, strict=True):
        real = collect(rows, decay, "real", delta_of, "real margin")
        guess = collect(rows, decay, "estimated", delta_of, "estimated margin (Eq. 37)")
        if not len(real):
            say_empty(axes_)
            continue
        draw_series(axes_, real, Look(INK, "o"))
        draw_series(axes_, guess, Look(VERMILION, "s"))
        axes_.set_xscale("log")
        axes_.set_ylim(bottom=0)
        above = guess.mean.mean() / real.mean.mean() - 1
        label_axes(
            axes_,
            f"{TITLES[decay]}: {above:+.0%} (paper: +{PAPER_ABOVE[decay]:.1%})",
            "delta",
            "mean margin [nats]",
        )
        none = collect(rows, decay, "none", delta_of)
        axes_.text(
            0.03,
            0.05,
            "no margin suffices for\n"
            + ", ".join(f"{share:.0%} at {x:.0e}" for x, share in _ends(none)),
            transform=axes_.transAxes,
            ha="left",
            va="bottom",
            fontsize=8.5,
            color=PALE,
        )
    legend_below(figure, axes)
    return figure


PAPER_ABOVE = {"exponential": 0.133, "power": 0.138, "logistic": 0.132}
"""How far the paper says estimated margins lie above real ones."""


def tell_estimates(rows: Sequence[Row], city: str) -> list[str]:
    """What the comparison of margins shows."""
    sentences = []
    for decay in DECAYS:
        real, guess = mean_of(rows, (decay,), "real"), mean_of(rows, (decay,), "estimated")
        if np.isnan(real):
            continue
        none, missed = mean_of(rows, (decay,), "none"), mean_of(rows, (decay,), "uncovered")
        sentences.append(
            f"{TITLES[decay].capitalize()}: estimates lie {guess / real - 1:.1%} above the real "
            f"margins on average (the paper: {PAPER_ABOVE[decay]:.1%}); for {none:.1%} of the "
            f"pairs no real margin suffices, and for {missed:.1%} the covered records miss the "
            "users' more often than delta, so that the estimate proves nothing."
        )
    return sentences


def _ends(series: Series) -> list[tuple[float, float]]:
    if not len(series):
        return []
    places: FloatArray = series.x
    return [(float(places[k]), float(series.mean[k])) for k in dict.fromkeys((0, len(series) - 1))]
