"""Charts: what is told apart at a distance, and what privacy costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from panda_mdp.base.units import amount, inverse, per, plural
from panda_mdp.errors import MethodError
from panda_mdp.panda.calibrate import Calibration
from panda_mdp.plot.measures import privacy_loss_curve
from panda_mdp.plot.style import (
    BLUE,
    INK,
    MARKERS,
    ORANGE,
    PALE,
    PALETTE,
    VERMILION,
    chart_figure,
)
from panda_mdp.problem import Problem
from panda_mdp.space.domain import check_record
from panda_mdp.survey.bench import MethodRun
from panda_mdp.table.mechanism import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FAMILIES = {"BallAnchors": "balls", "BernoulliAnchors": "candidates, coins"}


@dataclass(frozen=True)
class Point:
    """A method at an epsilon: its loss, and the bound below which no table can be."""

    epsilon: float
    loss: float
    lower_bound: float | None = None


def trade_off(
    problem: Problem,
    methods: Mapping[str, Callable[[Problem], Table]],
    epsilons: Sequence[float],
) -> dict[str, list[Point]]:
    """Run methods over a list of epsilons and note their losses and bounds."""
    return {
        name: [
            Point(epsilon, table.loss, table.lower_bound)
            for epsilon in epsilons
            for table in [method(problem.with_epsilon(epsilon))]
        ]
        for name, method in methods.items()
    }


def draw_trade_off(
    curves: Mapping[str, Sequence[Point]], *, loss_unit: str, unit: str, title: str = ""
) -> Figure:
    """Expected loss against epsilon, a line per method, and the bound that none can pass.

    The upper axis says what epsilon means: the distance within which odds change by less than 2.
    """
    if not curves:
        msg = "there are no curves to draw; give at least one method"
        raise MethodError(msg)
    figure, axes = chart_figure(7.6, 5, title or "What privacy costs")
    bounds: dict[float, float] = {}
    for k, (name, points) in enumerate(curves.items()):
        ordered = sorted(points, key=lambda point: point.epsilon)
        axes.plot(
            [point.epsilon for point in ordered],
            [point.loss for point in ordered],
            color=PALETTE[k % len(PALETTE)],
            marker=MARKERS[k % len(MARKERS)],
            linewidth=2,
            label=name,
        )
        for point in points:
            if point.lower_bound is not None:
                bounds[point.epsilon] = max(bounds.get(point.epsilon, 0.0), point.lower_bound)
    if bounds:
        axes.fill_between(sorted(bounds), [bounds[at] for at in sorted(bounds)], color="#E3E6EA",
                          zorder=0, label="below the bound: no table")  # fmt: skip
    ticks = sorted({point.epsilon for points in curves.values() for point in points})
    axes.set(
        xscale="log",
        xlabel=f"epsilon [{inverse(unit)}] (more privacy to the left)",
        ylabel=f"expected loss [{plural(loss_unit)}]",
    )
    axes.set_ylim(bottom=0)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    upper = axes.secondary_xaxis("top", functions=(_doubling, _doubling))
    upper.set_xticks([np.log(2) / tick for tick in ticks], [_length(t, unit) for t in ticks])
    noun = "places" if unit == "km" else "records"
    upper.set_xlabel(f"odds of two {noun} change by less than a factor 2 within", color=PALE)
    upper.tick_params(colors=PALE)
    upper.minorticks_off()
    axes.legend(frameon=False)
    return figure


def _doubling(epsilon: Any) -> Any:
    """ln 2 over epsilon, which is its own inverse."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(2) / np.maximum(epsilon, 1e-300))


def _length(epsilon: float, unit: str) -> str:
    distance = np.log(2) / epsilon
    if unit == "km" and distance < 1:
        return f"{1000 * distance:.0f} m"
    return amount(f"{distance:.2g}", unit)


def draw_privacy_loss(
    tables: Mapping[str, Table] | Sequence[Table], *, reach: float | None = None, title: str = ""
) -> Figure:
    """How well two records can be told apart, against their distance, beside what is allowed.

    Solid: the worst pair of records at that distance; dotted: the median pair; black: epsilon d.
    """
    named = tables if isinstance(tables, Mapping) else {t.method: t for t in tables}
    if not named:
        msg = "there are no tables to draw; give at least one"
        raise MethodError(msg)
    curves = [privacy_loss_curve(table, reach=reach) for table in named.values()]
    sampled = any(curve.sampled for curve in curves)
    pairs = "pairs of a sample of records" if sampled else "all pairs"
    heading = title or "How well two records can be told apart"
    figure, axes = chart_figure(7.6, 5, f"{heading}\nby their distance, over {pairs}")
    for k, (name, curve) in enumerate(zip(named, curves, strict=True)):
        colour = PALETTE[k % len(PALETTE)]
        # Distances of ages are whole years: bins between them are empty, the line goes on.
        seen = ~np.isnan(curve.largest)
        lines = {"worst": (curve.largest, 2, "-"), "median": (curve.median, 1.5, ":")}
        for which, (losses, width, style) in lines.items():
            axes.plot(curve.distance[seen], losses[seen], color=colour, linewidth=width,
                      linestyle=style, label=f"{name}: {which} pair")  # fmt: skip
    end = max(float(curve.distance[-1]) for curve in curves)
    unit = next(iter(named.values())).problem.domain.unit
    for epsilon in sorted({table.epsilon for table in named.values()}):
        axes.plot([0, end], [0, epsilon * end], color=INK, linewidth=1.5, linestyle="--", zorder=5,
                  label=f"allowed: epsilon {epsilon:g} {per(unit)}")  # fmt: skip
    axes.set(
        xlabel=f"distance of two records [{plural(unit)}]",
        ylabel="privacy loss: log of the largest odds change [nats]",
        xlim=(0, end),
    )
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, loc="upper left")
    return figure


def draw_row(table: Table, record: int, *, most: int = 30, title: str = "") -> Figure:
    """What is reported for a record that is no place: bars at the numbers of a domain
    `from_values`, or the `most` likeliest outputs by their labels."""
    problem = table.problem
    domain, row = problem.domain, check_record(record, problem.size)
    share = table.row(row)
    figure, axes = chart_figure(7.6, 4.6)
    called = str(row if domain.labels is None else domain.labels[row])
    if domain.values is not None and problem.reports.records is not None:
        at = domain.values[problem.outputs]
        width = 0.9 * np.diff(np.sort(at)).min() if len(at) > 1 else 1.0
        axes.bar(at, share, width=width, color=BLUE, label="reported")
        axes.axvline(domain.values[row], color=VERMILION, linestyle="--", label=f"true: {called}")
        axes.set(xlabel=f"reported [{plural(domain.unit)}]", ylabel="probability")
        axes.legend(frameon=False)
    else:
        likeliest = np.argsort(-share, kind="stable")[:most]
        names = output_labels(problem)
        axes.barh(np.arange(len(likeliest)), share[likeliest], color=BLUE)
        axes.set_yticks(np.arange(len(likeliest)), [str(names[k]) for k in likeliest])
        axes.invert_yaxis()
        axes.set_xlabel(f"probability; all others together {1 - share[likeliest].sum():.0%}")
    heading = title or f"What is reported for {called}: {table.method}"
    figure.suptitle(f"{heading}\nepsilon {table.epsilon:g} {per(domain.unit)}", x=0.02, ha="left")
    return figure


def output_labels(problem: Problem) -> Sequence[Any]:
    """What outputs are called: their own names, or those of the records that they are."""
    reports, labels = problem.reports, problem.domain.labels
    if reports.names is not None:
        return reports.names
    if reports.records is None:
        return range(problem.outputs_count)
    records = [int(k) for k in reports.records]
    return records if labels is None else [labels[k] for k in records]


def draw_losses(outcomes: Sequence[MethodRun], bound: float | None) -> Figure:
    """Expected loss of every method, and the bound that none can pass."""
    done = sorted((o for o in outcomes if o.loss is not None), key=lambda o: -(o.loss or 0.0))
    problem = outcomes[0].problem
    title = "Expected loss of mechanisms that keep the same epsilon"
    if bound is not None:
        title += f"\ndashed: no mechanism is below {bound:.3f} {problem.loss_unit}"
    if not all(o.holds for o in done):
        title += "\nhatched: no privacy guarantee"
    figure, axes = chart_figure(8.4, 1.6 + 0.42 * len(done), title)
    losses = [o.loss or 0.0 for o in done]
    bars = axes.barh(
        [o.method.label + ("" if o.method.paper is None else f" ({o.method.paper})") for o in done],
        losses,
        color=[BLUE if o.holds else "white" for o in done],
        edgecolor=[BLUE if o.holds else VERMILION for o in done],
        hatch=["" if o.holds else "///" for o in done],
    )
    axes.bar_label(bars, [f"{o.loss:.3f}  ({o.seconds:.1f} s)" for o in done], padding=4)
    if bound is not None:
        axes.axvline(bound, color=ORANGE, linestyle="--", linewidth=2)
    axes.set(
        xlim=(0, 1.22 * max(losses, default=1.0)),
        xlabel=f"expected loss [{plural(problem.loss_unit)}], epsilon {problem.epsilon:g} "
        f"{per(problem.domain.unit)}, {problem.size:,} records",
    )
    return figure


def draw_calibration(calibration: Calibration, problem: Problem) -> Figure:
    """Loss against download; what the upload tells joins points and is written beside one."""
    title = f"epsilon {problem.epsilon:g} {per(problem.domain.unit)}, delta {calibration.delta:g}"
    figure, axes = chart_figure(6.8, 4.4, title)
    families: dict[str, list[tuple[float, float]]] = {}
    alike: dict[tuple[str, float], list[tuple[float, float]]] = {}
    for trial in calibration.tried:
        family = type(trial.selection).__name__
        at = (100 * trial.anchors / problem.size, trial.loss or 0.0)
        if trial.fits:
            families.setdefault(family, []).append(at)
        if trial in calibration.frontier:
            alike.setdefault((family, trial.selection_epsilon), []).append(at)
    for (family, points), colour, marker in zip(families.items(), PALETTE, MARKERS, strict=False):
        download, loss = zip(*points, strict=True)
        axes.scatter(download, loss, color=colour, marker=marker, s=42, zorder=3,
                     label=FAMILIES[family])  # fmt: skip
    for (_, epsilon), points in alike.items():
        axes.plot(*zip(*sorted(points), strict=True), color=PALE, lw=0.8, zorder=1)
        axes.annotate(
            f"ε₁ {epsilon:.2g}", points[0], xytext=(5, 5), textcoords="offset points", fontsize=8
        )
    axes.set(
        xlabel="download per user, % of the table",
        ylabel=f"expected loss, {problem.loss_unit}",
        xlim=(0, 108),
        # From zero, with room for the marker and the words of the highest point.
        ylim=(0, 1.12 * max(loss for points in families.values() for _, loss in points)),
    )
    axes.legend(frameon=False)
    return figure
