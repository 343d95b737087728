"""The paper's figures: for each what is drawn and what says it in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    entitle,
    limited,
    log_or_linear,
    look,
    tell_means,
)
from panda_paper.results import Row, Rows
from panda_paper.series import Axis, Series
from panda_paper.theory_figures import BUDGETS, ESTIMATES, MARGINS, SURFACES, WIDE_MARGINS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COVERED_SHARE = 0.1481
"""Records that the LP covers in the paper, on average."""
TRADED = (*NOISE, "LP+CA", *PUBLISHED, *TEXT, *OURS)
"""Methods whose loss is drawn against epsilon."""
AUDITED = "audited_epsilon"
LOSS, COVERED = "loss [m]", "records that the LP covers"
CERTIFIED = "every mechanism at epsilon: certified bound"
BAND = 0.055
"""What a line of infinite values takes of an axis."""
FLOOR = 1e-9
"""Where a rate of 0 is drawn on a logarithmic axis."""


def tell_against(axis: Axis, value: str, word: str, unit: str) -> tuple[Tell, ...]:
    """Sentences about a value's range over an axis, for every method."""

    def tell(rows: Rows, city: str) -> Iterator[str]:
        for one in rows.curves(rows.methods, value, axis):
            ends = (f"{mean:,.4g}{unit} at {x:g}" for x, mean in dict.fromkeys(one.ends))
            yield f"{one.label}: {word} {', '.join(ends)}."

    return (tell,)


def coverage(rows: Rows, methods: Sequence[str]) -> tuple[float, float]:
    """Anchors over K on average over sizes and methods, and the most at any size."""
    found = rows.curves(methods, "anchors")
    shares = [share for series in found for share in series.mean / series.x]
    most = max((series.high for series in found), default=np.nan)
    return float(np.mean(shares)) if shares else np.nan, most


def _coverage(axes: Axes, rows: Rows, drawn: list[Series]) -> None:
    sizes = np.unique(np.concatenate([one.x for one in drawn]))
    axes.plot(sizes, sizes, color=PALE, lw=1, ls="--", label="all K records")
    axes.plot(sizes, COVERED_SHARE * sizes, color=INK, lw=1, ls=":", label="14.81 % (the paper)")
    close = {one.label for one in drawn} <= set(PUBLISHED)
    axes.set_ylim(0, 1.6 * max(one.high for one in drawn) if close else None)


def tell_covered(rows: Rows, city: str) -> Iterator[str]:
    """How large the LPs are."""
    for name, methods in (("published code", PUBLISHED), ("text", TEXT)):
        share, most = coverage(rows, methods)
        if share > 0:
            yield (
                f"Selection of the {name}: the LP covers {share:.1%} of the records of {city} on "
                f"average and at most {most:,.0f} (the paper: 14.81 % and 450)."
            )


def _counts(axes: Axes, rows: Rows, drawn: list[Series]) -> None:
    axes.set_ylim(0, 1.12 * axes.get_ylim()[1])
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    if drawn[0].label in TEXT:
        for count in {row.cell.setting.records * row.cell.setting.outputs for row in rows}:
            axes.axhline(count, color=INK, lw=1, ls="--", label="all records: optimal")


def _audited_trade_offs(axes: Axes, rows: Rows, _: object) -> None:
    """Losses against the epsilon that an audit finds; what is infinite is named on the axis."""
    lost = []
    for loss in rows.curves(TRADED, "loss_m", "epsilon"):
        audited = rows.of(loss.label).series("audited_epsilon", "epsilon")
        both = np.intersect1d(loss.x, audited.x[np.isfinite(audited.mean)])
        points = sorted((audited.at(x), loss.at(x), 0.0) for x in both)
        draw_series(axes, Series.of(loss.label, points), replace(look(loss.label), aside=0.0))
        if not points and loss.label in PUBLISHED:
            lost.append(loss.label.removesuffix(" published"))
    if not axes.has_data():
        return
    axes.set_xscale("log")
    log_or_linear(axes)
    if lost:
        left_out = f"(infinite, so not here: {', '.join(lost)} published)"
        axes.set_xlabel(f"{axes.get_xlabel()}\n{left_out}", color=INK)


def _promises(rows: Rows, never: str, rarely: str) -> list[str]:
    """What methods that hold keep, in words: balls keep (epsilon, delta), the others epsilon."""
    pure = ", ".join(filter(rows.holds, OURS[:2]))
    parts = [f"{pure}: {never}"] if pure else []
    return [*parts, f"ball: {rarely}"] if rows.holds("ball") else parts


def _rates(axes: Axes, rows: Rows, drawn: list[Series]) -> None:
    """Violation rates from 0, with what ours keep in the title."""
    top = max(float((series.mean + series.spread).max()) for series in drawn)
    axes.set_ylim(-0.04 * top, max(1.05 * top, 1e-3))
    axes.axhline(0, color=PALE, lw=0.8)
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g}%")
    lines = (axes.get_title(loc="left"), *_promises(rows, "0, audited", "at most delta"))
    entitle(axes, "\n".join(lines))


def _against_claim(epsilon: float, axes: Axes, rows: Rows, drawn: list[Series]) -> None:
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
    middle = 1 - band / 2
    axes.text(-0.025, middle, "∞", transform=axes.transAxes, ha="right", va="center", fontsize=13)
    for k, series in enumerate(infinite):
        style, places = look(series.label), series.x[np.isinf(series.mean)]
        axes.plot(
            places,
            np.full(len(places), 1 - BAND * (k + 1)),
            transform=axes.get_xaxis_transform(),
            color=style.colour,
            marker=style.marker,
            linestyle="",
            label=series.label if len(places) == len(series) else "_nolegend_",
        )


def tell_violations(rows: Rows, city: str) -> Iterator[str]:
    """Rates and audited epsilons in words."""
    for name in (*PUBLISHED, *TEXT, COARSE):
        rate, audited = rows.of(name).mean("violated_pairs"), rows.of(name).numbers(AUDITED)
        if rate >= 0:
            least = f"{audited.min():,.3g}" if len(audited) else "unknown"
            yield (
                f"{name}: {rate:.2%} of the pairs of records exceed epsilon d on average over "
                f"sizes; audited epsilon at least {least} /km in every cell."
            )
    audit = "no pair, by an audit over all of them."
    rare = "every pair with probability at most delta, by its account over all pairs."
    yield from _promises(rows, audit, rare)


def _delta_itself(axes: Axes, rows: Rows, _: object) -> None:
    deltas = rows.places("delta")
    axes.plot(deltas, deltas, color=INK, lw=1.2, ls="--", label="delta itself")
    axes.set_yscale("log")
    axes.set_ylim(bottom=FLOOR)


def tell_optimum(rows: Rows, city: str) -> Iterator[str]:
    """What the optimum is."""
    losses, floor = (rows.of("optimal").series(name) for name in ("loss_m", "lower_bound_m"))
    if len(losses) and len(floor):
        yield (
            f"The library's optimal mechanism, pure epsilon-mDP over all records, loses "
            f"{losses.low:,.0f} to {losses.high:,.0f} m and is proved to be within "
            f"{float((losses.mean / floor.mean - 1).max()):.1%} of the best possible."
        )


def _users(title: str, y: str, *lines: Line) -> Panel:
    return Panel(title, y, "users", lines, log_or_linear)


def _violations(number: int, epsilon: float) -> Drawing:
    names = (COARSE, *PUBLISHED, *TEXT)
    rates, audited = (Line(names, "violated_pairs"),), (Line((*names, *OURS), AUDITED),)
    claim = partial(_against_claim, epsilon)
    return Drawing(
        f"Violations at epsilon {epsilon:g} /km, {{city}} (Figure {number})",
        (
            Panel(
                "share of pairs of records violated", "violation rate", lines=rates, finish=_rates
            ),
            Panel("audited epsilon, worst pair", "epsilon [1/km]", lines=audited, finish=claim),
        ),
        (tell_violations,),
        columns=4,
    )


def _bounds(name: str) -> Panel:
    own = look(name).colour
    lines = (
        (name, "loss_m", "loss over anchors (the paper's)", Look(own, "o")),
        (name, "true_loss_m", "loss over users' records", Look(own, "s", "--")),
        (name, "relaxed_m", "relaxed AnPO: bound over anchors", Look(own, "", ":")),
        ("optimal", "loss_m", None, Look(INK, "X")),
        ("optimal", "lower_bound_m", CERTIFIED, Look(INK, "", "--")),
    )
    series = tuple(Line((method,), *rest) for method, *rest in lines)
    return Panel(name, LOSS, lines=series, finish=limited(0))


_AROUND = Line((*NOISE, *OURS), "loss_m", flat=True)
DRAWINGS = {
    "figure4": SURFACES,
    "figure6": MARGINS,
    "figure6-wide": WIDE_MARGINS,
    "figure7": Drawing(
        "Records covered by the LP, {city} (Figure 7)",
        tuple(
            Panel(title, COVERED, lines=(Line(methods, "anchors"),), finish=_coverage)
            for title, methods in (
                ("published code: its tail, its radii", PUBLISHED),
                ("the text: clipped at h(gamma)", TEXT),
            )
        ),
        (tell_covered,),
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
        tuple(
            Panel(title, "variables", "users", (Line(methods, "variables"),), _counts)
            for title, methods in (("published code", PUBLISHED), ("the text", TEXT))
        ),
        tell_against("users", "variables", "variables", ""),
    ),
    "figure10": Drawing(
        "Utility loss against users, {city} (Figure 10)",
        (
            _users(
                "averaged over anchors, as the paper does",
                LOSS,
                Line(PUBLISHED, "loss_m"),
                _AROUND,
            ),
            _users(
                "averaged over the users' true records",
                LOSS,
                Line(PUBLISHED, "true_loss_m"),
                _AROUND,
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
                LOSS,
                "epsilon",
                (Line(TRADED, "loss_m"),),
                log_or_linear,
            ),
            Panel(
                "against the epsilon that an audit finds",
                LOSS,
                finish=_audited_trade_offs,
                x="audited epsilon [1/km], log scale",
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
                LOSS,
                "delta",
                (
                    Line((*PUBLISHED, *TEXT, "ball"), "loss_m"),
                    Line((*NOISE, *OURS[:2]), "loss_m", flat=True),
                ),
                log_or_linear,
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
                "share of pairs violated",
                "delta",
                (
                    Line((*PUBLISHED, *TEXT), "violated_pairs"),
                    Line(
                        ("ball",),
                        "audited_delta",
                        "ball: its delta, by audit",
                        Look(ORANGE, "P", ""),
                    ),
                ),
                _delta_itself,
            ),
        ),
        tell_against("delta", "violated_pairs", "share of pairs violated", ""),
        columns=3,
    ),
    "figure18": ESTIMATES,
    "figure23": Drawing(
        "PAnDA, its lower bound and the optimum, {city} (Figures 23 to 25)",
        tuple(map(_bounds, PUBLISHED)),
        (
            tell_means(
                "{name}: loss over anchors {ratio:.3f} times relaxed AnPO's bound on {city} (the "
                "paper: 1.36 to 1.37).",
                {name: (name,) for name in PUBLISHED},
            ),
            tell_optimum,
        ),
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
