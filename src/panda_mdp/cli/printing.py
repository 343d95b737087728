"""Results as tables on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from panda_mdp.survey.bench import MethodRun


def best_bound(outcomes: Sequence[MethodRun]) -> float | None:
    """The largest lower bound: every method's holds for the problem, so for all of them."""
    bounds = [o.lower_bound for o in outcomes if o.lower_bound is not None]
    return max(bounds, default=None)


def print_comparison(console: Console, outcomes: Sequence[MethodRun], title: str) -> None:
    """Print one line per method, and below it what there is to say about single methods."""
    problem = outcomes[0].problem
    unit, per = problem.loss_unit, problem.domain.unit
    bound = best_bound(outcomes)
    # Eight columns within 80 characters: no frame, one blank between them.
    table = Table(
        title=title, title_justify="left", box=SIMPLE_HEAD, show_edge=False, padding=(0, 0, 0, 0)
    )
    table.add_column("method", no_wrap=True)
    for heading in (
        f"loss\n{unit}", "gap", f"audited ε\n/{per}", f"attacker\noff, {per}", "guess\nright",
        "s", "MB",
    ):  # fmt: skip
        table.add_column(heading, justify="right", no_wrap=True)
    best = min((o.loss for o in outcomes if o.loss is not None and o.holds), default=None)
    for outcome in outcomes:
        first = outcome.holds and outcome.loss == best
        if outcome.loss is None:
            table.add_row(outcome.method.label, "none", style="dim")
            continue
        table.add_row(
            outcome.method.label,
            _number(outcome.loss, 4),
            _gap(outcome, bound),
            _number(outcome.audited_epsilon, 4),
            _number(outcome.attacker_error, 4),
            "" if outcome.vulnerability is None else f"{100 * outcome.vulnerability:.2f}%",
            _number(outcome.seconds, 2),
            _number(outcome.peak_mb, 0),
            style="bold" if first else ("red" if outcome.holds is False else None),
        )
    console.print(table)
    for outcome in outcomes:
        if outcome.note:
            console.print(f"{outcome.method.label}: {outcome.note}.")
    console.print(
        "Attacker: the best who knows the table and the prior; how far off on average, how often "
        "the guess of the record is right. What helps the user helps the attacker: docs/lab.md."
    )
    if any(outcome.method.name.startswith("optimal") for outcome in outcomes):
        console.print(
            "optimal makes the loss alone least; optimal_then, within 1 % of that loss, how often "
            "a guess is right (solve --then)."
        )
    console.print(
        "Audited ε: over all pairs of records, on the integers that are sampled. "
        "MB: largest resident memory of a process of its own."
    )
    if bound is not None:
        console.print(f"Gap: to {bound:.4f} {unit}, a proven bound below which no mechanism lies.")


def facts(title: str, rows: Sequence[tuple[str, Any]]) -> Table:
    """Two columns: a name and its value."""
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column("name")
    table.add_column("value", overflow="fold")
    for name, value in rows:
        table.add_row(name, str(value))
    return table


def _gap(outcome: MethodRun, bound: float | None) -> str:
    if bound is None or outcome.loss is None or not outcome.holds or bound <= 0:
        return ""
    return f"{100 * (outcome.loss / bound - 1):.1f}%"


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:,.{digits}f}"
