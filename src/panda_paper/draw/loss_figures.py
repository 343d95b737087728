"""Drawings of size, time and loss: Figures 7 to 11, and loss against delta."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from panda_mdp.plot.style import INK, PALE
from panda_paper.cells.outcome import Row
from panda_paper.draw.panels import (
    draw_all,
    draw_series,
    label_axes,
    legend_below,
    log_or_linear,
    panels,
    say_empty,
    thousands,
)
from panda_paper.draw.series import (
    Axis,
    Series,
    collect,
    delta_of,
    epsilon_of,
    mean_of,
    no_points,
    present,
    records_of,
    users_of,
)
from panda_paper.settings.method_names import NOISE, OURS, PUBLISHED, TEXT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAPER_COVERED, PAPER_MOST = 0.1481, 450


def draw_covered(rows: Sequence[Row], city: str) -> Figure:
    """Figure 7: the size of the LP, under both forms of selection."""
    figure, axes = panels(2, f"Records covered by the LP, {city} (Figure 7)")
    published = [collect(rows, name, "anchors", records_of) for name in PUBLISHED]
    text = [collect(rows, name, "anchors", records_of) for name in TEXT]
    for axes_, chosen, title in (
        (axes[0], published, "published code: its tail, its radii"),
        (axes[1], text, "the text: clipped at h(gamma)"),
    ):
        if not draw_all(axes_, chosen):
            say_empty(axes_)
            continue
        sizes = np.unique(np.concatenate([one.x for one in chosen]))
        axes_.plot(sizes, sizes, color=PALE, lw=1, ls="--", label="all K records")
        axes_.plot(
            sizes, PAPER_COVERED * sizes, color=INK, lw=1, ls=":", label="14.81 % (the paper)"
        )
        axes_.set_ylim(bottom=0)
        thousands(axes_)
        label_axes(axes_, title, "K", "records that the LP covers")
    top = max((float(one.mean.max()) for one in present(published)), default=1.0)
    axes[0].set_ylim(0, 1.6 * top)
    legend_below(figure, axes)
    return figure


def tell_covered(rows: Sequence[Row], city: str) -> list[str]:
    """How large the LPs are."""
    sentences = []
    for name, methods in (("published code", PUBLISHED), ("the text", TEXT)):
        shares = covered_shares(rows, methods)
        if shares:
            largest = max(
                float(collect(rows, one, "anchors", records_of).mean.max())
                for one in methods
                if len(collect(rows, one, "anchors", records_of))
            )
            sentences.append(
                f"Selection of the {name.removeprefix('the ')}: the LP covers "
                f"{np.mean(shares):.1%} of the records of {city} on average and at most "
                f"{largest:,.0f} (the paper: 14.81 % and 450)."
            )
    return sentences


def covered_shares(rows: Sequence[Row], methods: Sequence[str]) -> list[float]:
    """Anchors over K, one number for each size and method."""
    out: list[float] = []
    for name in methods:
        series = collect(rows, name, "anchors", records_of)
        out += (series.mean / series.x).tolist()
    return out


def _flat(rows: Sequence[Row], method: str, value: str, like: Series) -> Series:
    """A method that does not depend on users, as a line over all of them."""
    mean = mean_of(rows, (method,), value)
    if np.isnan(mean) or not len(like):
        return no_points(method)
    shape = np.ones(len(like))
    return Series(method, like.x, mean * shape, 0 * shape, shape, flat=method not in TEXT)


def _by_users(
    rows: Sequence[Row], value: str, text_value: str, others: Sequence[str], other_value: str
) -> list[Series]:
    published = [collect(rows, name, value, users_of) for name in PUBLISHED]
    like = max(published, key=len)
    text = [collect(rows, name, text_value, users_of) for name in TEXT]
    flat = [_flat(rows, name, other_value, like) for name in others]
    return [*published, *text, *flat]


def draw_times(rows: Sequence[Row], city: str) -> Figure:
    """Figure 8: the whole pipeline, and the LP alone as the published code times it."""
    figure, axes = panels(2, f"Computation time against users, {city} (Figure 8)")
    _draw_or_say(
        axes[0],
        _by_users(rows, "seconds", "", OURS, "seconds"),
        ("whole pipeline", "users", "seconds"),
        log_or_linear,
    )
    alone = [collect(rows, name, "lp_seconds", users_of) for name in PUBLISHED]
    _draw_or_say(
        axes[1], alone, ("the LP alone, as the paper times it", "users", "seconds"), log_or_linear
    )
    legend_below(figure, axes)
    return figure


def draw_variables(rows: Sequence[Row], city: str) -> Figure:
    """Figure 9: decision variables, anchors times outputs."""
    figure, axes = panels(2, f"Decision variables against users, {city} (Figure 9)")
    _draw_or_say(
        axes[0],
        [collect(rows, name, "variables", users_of) for name in PUBLISHED],
        ("published code", "users", "variables"),
        _counted,
    )
    _draw_or_say(
        axes[1],
        [collect(rows, name, "variables", users_of) for name in TEXT],
        ("the text", "users", "variables"),
        _counted,
    )
    sizes = {row.cell.setting.records * row.cell.setting.outputs for row in rows}
    for count in sizes:
        axes[1].axhline(count, color=INK, lw=1, ls="--", label="all records: optimal")
    legend_below(figure, axes)
    return figure


def draw_losses(rows: Sequence[Row], city: str) -> Figure:
    """Figure 10: losses as the paper counts them, and over the users' true records."""
    figure, axes = panels(2, f"Utility loss against users, {city} (Figure 10)")
    _draw_or_say(
        axes[0],
        _by_users(rows, "loss_m", "", (*NOISE, *OURS), "loss_m"),
        ("averaged over anchors, as the paper does", "users", "loss [m]"),
        log_or_linear,
    )
    true = _by_users(rows, "true_loss_m", "", (*NOISE, *OURS), "loss_m")
    text = [_flat(rows, name, "loss_m", max(true, key=len)) for name in TEXT]
    _draw_or_say(
        axes[1],
        [*true, *text],
        ("averaged over the users' true records", "users", "loss [m]"),
        log_or_linear,
    )
    legend_below(figure, axes, columns=4)
    return figure


def draw_trade_offs(rows: Sequence[Row], city: str) -> Figure:
    """Figure 11: losses against the claimed epsilon, and against the audited one."""
    figure, axes = panels(2, f"Utility loss against epsilon, {city} (Figure 11)")
    names = (*NOISE, "LP+CA", *PUBLISHED, *TEXT, *OURS)
    lines = [collect(rows, name, "loss_m", epsilon_of) for name in names]
    _draw_or_say(
        axes[0],
        lines,
        ("against the epsilon that is claimed", "claimed epsilon [1/km]", "loss [m]"),
        log_or_linear,
    )
    real = [series for name in names for series in [_audited(rows, name)] if len(series)]
    for series in real:
        draw_series(axes[1], series, hollow=series.label.endswith("text"), aside=False)
    if real:
        axes[1].set_xscale("log")
        log_or_linear(axes[1])
    else:
        say_empty(axes[1])
    label_axes(
        axes[1],
        "against the epsilon that an audit finds",
        "audited epsilon [1/km], log scale",
        "loss [m]",
    )
    lost = [
        name for name in PUBLISHED if not len(_audited(rows, name)) and len(_points(rows, name))
    ]
    if lost:
        infinite = ", ".join(name.removesuffix(" published") for name in lost)
        axes[1].set_xlabel(
            f"audited epsilon [1/km], log scale\n(infinite, so not here: {infinite} published)",
            color=INK,
        )
    legend_below(figure, axes, columns=5)
    return figure


def _points(rows: Sequence[Row], method: str) -> Series:
    return collect(rows, method, "loss_m", epsilon_of)


def _audited(rows: Sequence[Row], method: str) -> Series:
    """Loss against the audited epsilon; empty where that is infinite."""
    loss = _points(rows, method)
    real = collect(rows, method, "audited_epsilon", epsilon_of)
    both = np.intersect1d(loss.x, real.x[np.isfinite(real.mean)])
    x = np.array([real.at(value) for value in both])
    order = np.argsort(x)
    mean = np.array([loss.at(value) for value in both])[order]
    return Series(method, x[order], mean, np.zeros(len(mean)), np.ones(len(mean)))


def draw_delta_losses(rows: Sequence[Row], city: str) -> Figure:
    """Figure 16: loss against delta."""
    figure, axes = panels(1, f"Utility loss against delta, {city} (Figure 16)")
    published = [collect(rows, name, "loss_m", delta_of) for name in PUBLISHED]
    ball = collect(rows, "ball", "loss_m", delta_of)
    like = max(published, key=len)
    flat = [_flat(rows, name, "loss_m", like) for name in (*NOISE, "loss exponential", "optimal")]
    text = [collect(rows, name, "loss_m", delta_of) for name in TEXT]
    if present(published):
        axes[0].set_xscale("log")
    _draw_or_say(
        axes[0],
        [*published, *text, ball, *flat],
        ("published accounting, the text charged in full, and ours", "delta", "loss [m]"),
        log_or_linear,
    )
    legend_below(figure, axes, columns=4)
    return figure


def tell_against(axis: Axis, value: str, word: str, unit: str) -> Callable[..., list[str]]:
    """Sentences about a value's range over an axis, for every method."""

    def tell(rows: Sequence[Row], city: str) -> list[str]:
        sentences = []
        for name in dict.fromkeys(row.cell.method for row in rows):
            series = collect(rows, name, value, axis)
            if not len(series):
                continue
            first, last = series.mean[0], series.mean[-1]
            if len(series) == 1:
                sentences.append(f"{name}: {word} {first:,.4g}{unit} at {series.x[0]:g}.")
            else:
                sentences.append(
                    f"{name}: {word} {first:,.4g}{unit} at {series.x[0]:g}, {last:,.4g}{unit} at "
                    f"{series.x[-1]:g}."
                )
        return sentences

    return tell


def _draw_or_say(
    axes: Axes,
    lines: Sequence[Series],
    labels: tuple[str, str, str],
    scale: Callable[[Axes], None],
) -> None:
    if draw_all(axes, lines):
        scale(axes)
    else:
        say_empty(axes)
    label_axes(axes, *labels)


def _counted(axes: Axes) -> None:
    axes.set_ylim(0, 1.12 * axes.get_ylim()[1])
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
