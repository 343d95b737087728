"""Curves: what is told apart at a distance, and what privacy costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from panda_mdp.base.units import amount, inverse, per, plural
from panda_mdp.errors import MethodError
from panda_mdp.plot.measures import privacy_loss_curve
from panda_mdp.plot.style import (
    BLUE,
    INK,
    MARKERS,
    PALE,
    PALETTE,
    VERMILION,
    new_figure,
    plain_axes,
)
from panda_mdp.problem import Problem
from panda_mdp.space.domain import check_record
from panda_mdp.table.mechanism import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
    figure = new_figure(7.6, 5)
    axes = figure.subplots()
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
    bounds = _best_bounds(curves)
    if bounds:
        axes.fill_between(
            list(bounds),
            list(bounds.values()),
            color="#E3E6EA",
            zorder=0,
            label="below the bound: no table",
        )
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    ticks = sorted({point.epsilon for points in curves.values() for point in points})
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel(f"epsilon [{inverse(unit)}] (more privacy to the left)")
    axes.set_ylabel(f"expected loss [{plural(loss_unit)}]")
    plain_axes(axes)
    upper = axes.secondary_xaxis("top", functions=(_doubling, _doubling))
    upper.set_xticks([np.log(2) / tick for tick in ticks], [_length(t, unit) for t in ticks])
    noun = "places" if unit == "km" else "records"
    upper.set_xlabel(f"odds of two {noun} change by less than a factor 2 within", color=PALE)
    upper.tick_params(colors=PALE)
    upper.minorticks_off()
    axes.legend(frameon=False)
    axes.set_title(title or "What privacy costs", loc="left", color=INK)
    return figure


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
    figure = new_figure(7.6, 5)
    axes = figure.subplots()
    first = next(iter(named.values()))
    unit = first.problem.domain.unit
    sampled = False
    end = 0.0
    for k, (name, table) in enumerate(named.items()):
        curve = privacy_loss_curve(table, reach=reach)
        colour = PALETTE[k % len(PALETTE)]
        # Distances of ages are whole years: bins between them are empty, the line goes on.
        seen = ~np.isnan(curve.largest)
        at = curve.distance[seen]
        axes.plot(at, curve.largest[seen], color=colour, linewidth=2, label=f"{name}: worst pair")
        axes.plot(
            at, curve.median[seen], color=colour, linewidth=1.5, linestyle=":",
            label=f"{name}: median pair",
        )  # fmt: skip
        sampled |= curve.sampled
        end = max(end, float(curve.distance[-1]))
    for epsilon in sorted({table.epsilon for table in named.values()}):
        axes.plot(
            [0, end],
            [0, epsilon * end],
            color=INK,
            linewidth=1.5,
            linestyle="--",
            zorder=5,
            label=f"allowed: epsilon {epsilon:g} {per(unit)}",
        )
    axes.set_xlim(0, end)
    axes.set_ylim(bottom=0)
    axes.set_xlabel(f"distance of two records [{plural(unit)}]")
    axes.set_ylabel("privacy loss: log of the largest odds change [nats]")
    plain_axes(axes)
    pairs = "pairs of a sample of records" if sampled else "all pairs"
    axes.set_title(
        f"{title or 'How well two records can be told apart'}\nby their distance, over {pairs}",
        loc="left",
        color=INK,
    )
    axes.legend(frameon=False, loc="upper left")
    return figure


def _best_bounds(curves: Mapping[str, Sequence[Point]]) -> dict[float, float]:
    best: dict[float, float] = {}
    for points in curves.values():
        for point in points:
            if point.lower_bound is not None:
                best[point.epsilon] = max(best.get(point.epsilon, 0.0), point.lower_bound)
    return dict(sorted(best.items()))


def _doubling(epsilon: Any) -> Any:
    """ln 2 over epsilon, which is its own inverse."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(2) / np.maximum(epsilon, 1e-300))


def _length(epsilon: float, unit: str) -> str:
    distance = np.log(2) / epsilon
    if unit == "km" and distance < 1:
        return f"{1000 * distance:.0f} m"
    return amount(f"{distance:.2g}", unit)


def draw_row(table: Table, record: int, *, most: int = 30, title: str = "") -> Figure:
    """What is reported for a record that is no place: bars at the numbers of a domain
    `from_values`, or the `most` likeliest outputs by their labels."""
    problem = table.problem
    domain, row = problem.domain, check_record(record, problem.size)
    share = table.row(row)
    names = output_labels(problem)
    figure = new_figure(7.6, 4.6)
    axes = figure.add_subplot()
    plain_axes(axes)
    called = str(row if domain.labels is None else domain.labels[row])
    if domain.values is not None and problem.reports.records is not None:
        at = domain.values[problem.outputs]
        width = 0.9 * np.diff(np.sort(at)).min() if len(at) > 1 else 1.0
        axes.bar(at, share, width=width, color=BLUE, label="reported")
        axes.axvline(domain.values[row], color=VERMILION, linestyle="--", label=f"true: {called}")
        axes.set_xlabel(f"reported [{plural(domain.unit)}]")
        axes.set_ylabel("probability")
    else:
        chosen = np.argsort(-share, kind="stable")[:most]
        ticks = np.arange(len(chosen))
        axes.barh(ticks, share[chosen], color=BLUE, label="reported")
        axes.set_yticks(ticks, [str(names[k]) for k in chosen])
        axes.invert_yaxis()
        axes.set_xlabel(f"probability; all others together {1 - share[chosen].sum():.0%}")
    heading = title or f"What is reported for {called}: {table.method}"
    figure.suptitle(f"{heading}\nepsilon {table.epsilon:g} {per(domain.unit)}", x=0.02, ha="left")
    if axes.get_legend_handles_labels()[0] and domain.values is not None:
        axes.legend(frameon=False)
    return figure


def output_labels(problem: Problem) -> Sequence[Any]:
    """What outputs are called: their own names, or those of the records that they are."""
    reports, labels = problem.reports, problem.domain.labels
    if reports.names is not None:
        return reports.names
    if reports.records is None:
        return range(problem.outputs_count)
    chosen = [int(k) for k in reports.records]
    return chosen if labels is None else [labels[k] for k in chosen]
