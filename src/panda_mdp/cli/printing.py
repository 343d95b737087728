"""Results as tables on the terminal, and progress while they are made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from panda_mdp.cli.frame import output_console, progress_console, write_json

if TYPE_CHECKING:
    from panda_mdp.problem import Problem
    from panda_mdp.survey.bench import MethodRun
    from panda_mdp.survey.registry import Method

NOTES = (
    "Attacker: the best who knows the table and the prior; how far off on average, how often the "
    "guess of the record is right. What helps the user helps the attacker: docs/lab.md.",
    "optimal makes the loss alone least; optimal_then, within 1 % of that loss, how often a guess "
    "is right (solve --then).",
    "Audited ε: over all pairs of records, on the integers that are sampled. MB: largest resident "
    "memory of a process of its own.",
)


def best_bound(outcomes: Sequence[MethodRun]) -> float | None:
    """The largest lower bound: every method's holds for the problem, so for all of them."""
    return max((o.lower_bound for o in outcomes if o.lower_bound is not None), default=None)


def print_comparison(console: Console, outcomes: Sequence[MethodRun], title: str) -> None:
    """Print one line per method, and below it what there is to say about single methods."""
    problem, bound = outcomes[0].problem, best_bound(outcomes)
    unit, per = problem.loss_unit, problem.domain.unit
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
        loss, label, gap = outcome.loss, outcome.method.label, None
        if loss is None:
            table.add_row(label, "none", style="dim")
            continue
        if outcome.holds and bound is not None and bound > 0:
            gap = loss / bound - 1
        table.add_row(
            label,
            _number(loss, ",.4f"),
            _number(gap, ".1%"),
            _number(outcome.audited_epsilon, ",.4f"),
            _number(outcome.attacker_error, ",.4f"),
            _number(outcome.vulnerability, ".2%"),
            _number(outcome.seconds, ",.2f"),
            _number(outcome.peak_mb, ",.0f"),
            style="red" if outcome.holds is False else "bold" if loss == best else None,
        )
    console.print(table)
    notes = [f"{outcome.method.label}: {outcome.note}." for outcome in outcomes if outcome.note]
    if bound is not None:
        notes.append(f"Gap: to {bound:.4f} {unit}, a proven bound below which no mechanism lies.")
    for note in (*notes, *NOTES):
        console.print(note)


def run_all(
    methods: tuple[Method, ...], problem: Problem, limits: tuple[float | None, ...]
) -> Iterator[MethodRun]:
    """Run methods one after the other, with progress on standard error."""
    from panda_mdp.survey.bench import Comparison

    console = progress_console()
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed} of {task.total}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task("methods", total=len(methods))
        for method, limit in zip(methods, limits, strict=True):
            until = "" if limit is None else f" (at most {limit:g} s)"
            bar.update(task, description=f"{method.label}{until}")
            yield Comparison(problem).outcome(method, limit)
            bar.advance(task)


def facts(title: str, rows: Sequence[tuple[str, Any]]) -> Table:
    """Two columns: a name and its value."""
    table = Table("name", title=title, title_justify="left", show_header=False)
    table.add_column("value", overflow="fold")
    for name, value in rows:
        table.add_row(name, str(value))
    return table


def show(
    title: str, rows: Sequence[tuple[str, Any]], json: Path | None = None, value: Any = None
) -> None:
    """Print names with their values, and write what there is of them as JSON."""
    output_console().print(facts(title, rows))
    write_json(json, value)


def _number(value: float | None, form: str) -> str:
    return "" if value is None else f"{value:{form}}"
