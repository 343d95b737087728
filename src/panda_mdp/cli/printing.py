"""Results as tables on the terminal, and progress while they are made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from panda_mdp.base.text import one_line, per, present
from panda_mdp.cli.frame import output_console, progress_console, write_json
from panda_mdp.problem import Problem
from panda_mdp.survey.bench import Comparison, MethodRun
from panda_mdp.survey.registry import Method

COLUMNS = {
    "loss\n{unit}": ("loss", ",.4f"),
    "gap": ("gap", ".1%"),
    "audited ε\n/{per}": ("audited_epsilon", ",.4f"),
    "attacker\noff, {per}": ("attacker_error", ",.4f"),
    "guess\nright": ("vulnerability", ".2%"),
}
"""Of a comparison: a number and how it is written."""
SECONDS = {"s": ("seconds", ",.2f")}
OF_ONE = SECONDS | {"MB": ("peak_mb", ",.0f")}
OF_PHASES = SECONDS | {"δ": ("delta", ".0e")}
OF_WORDS = {"kept": ("kept", ".1%"), "topic\ntold": ("topics", ".1%")}
"""The last two: of tables alone, where some methods have two phases, where records are words."""
NOTES = (
    "Attacker: the best who knows the table and the prior, and sees both of two phases; how far "
    "off on average, how often the guess of the record is right. What helps the user helps the "
    "attacker: docs/lab.md.",
    "optimal makes the loss alone least; optimal_then, within 1 % of that loss, how often a guess "
    "is right; dominate, at the loss of planar Laplace noise, all that guesses gain "
    "(solve --radius).",
    "Audited ε: over all pairs of records, on the integers that are sampled. MB, or `peak_mb` of "
    "--json: largest resident memory of a process of its own.",
)


def best_bound(outcomes: Sequence[MethodRun]) -> float | None:
    """The largest lower bound: every method's holds for the problem, so for all of them."""
    return max((o.lower_bound for o in outcomes if o.lower_bound is not None), default=None)


def print_comparison(console: Console, outcomes: Sequence[MethodRun], title: str) -> None:
    """Print one line per method, under what is compared, and what there is to say about single
    ones."""
    problem = outcomes[0].problem
    bound = best_bound(outcomes)
    unit = problem.loss_unit
    # Eight columns within 80 characters: no frame, one blank between them.
    table = Table(
        title=f"{title}: {problem.size:,} records, {problem.outputs_count} outputs, "
        f"epsilon {problem.epsilon:g} {per(problem.domain.unit)}",
        title_justify="left",
        box=SIMPLE_HEAD,
        show_edge=False,
        padding=0,
    )
    table.add_column("method", no_wrap=True)
    columns = COLUMNS | OF_ONE
    if any(outcome.delta is not None for outcome in outcomes):
        columns = COLUMNS | OF_PHASES
    if any(outcome.kept is not None for outcome in outcomes):
        columns = COLUMNS | OF_WORDS
    for heading in columns:
        said = heading.format(unit=unit, per=problem.domain.unit)
        table.add_column(said, justify="right", no_wrap=True)
    best = min((o.loss for o in outcomes if o.loss is not None and o.holds), default=None)
    for outcome in outcomes:
        loss = outcome.loss
        label = outcome.method.label
        if loss is None:
            table.add_row(label, "none", style="dim")
            continue
        gap = loss / bound - 1 if outcome.holds and bound else None
        numbers = vars(outcome) | {"gap": gap}
        cells = (
            "" if numbers[name] is None else f"{numbers[name]:{form}}"
            for name, form in columns.values()
        )
        style = "red" if outcome.holds is False else "bold" if loss == best else None
        table.add_row(label, *cells, style=style)
    console.print(table)
    notes = [f"{outcome.method.label}: {outcome.note}." for outcome in outcomes if outcome.note]
    if bound is not None:
        notes.append(f"Gap: to {bound:.4f} {unit}, a proven bound below which no mechanism lies.")
    for note in (*notes, *NOTES):
        console.print(note)


@contextmanager
def progress(total: int) -> Iterator[Callable[[int, object], None]]:
    """A bar on a terminal: gives what shows how many steps are done and what is going on."""
    console = progress_console()
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=total)
        yield lambda done, what: bar.update(task, completed=done, description=str(what))


def run_all(
    methods: tuple[Method, ...], problem: Problem, limits: tuple[float | None, ...]
) -> Iterator[MethodRun]:
    """Run methods one after the other, with progress on standard error."""
    with progress(len(methods)) as show_step:
        for done, (method, limit) in enumerate(zip(methods, limits, strict=True)):
            until = "" if limit is None else f" (at most {limit:g} s)"
            show_step(done, f"{method.label}{until}")
            yield Comparison(problem).outcome(method, limit)


def tell(words: Mapping[str, str], /, *things: Any, **facts: Any) -> list[tuple[str, str]]:
    """Rows of a table: what templates say of things and of facts, where these are known.

    Of the facts `unit` and `holds` templates may say `per` and `verdict`.
    """
    said = present(facts)
    verdict = "yes" if said.get("holds") else "NO"
    said = {"per": per(said.get("unit", "")), "verdict": verdict, **said}
    rows = []
    for name, template in words.items():
        with suppress(KeyError):
            rows.append((name, template.format(*things, **said)))
    return rows


def show(
    title: str,
    rows: Mapping[str, str] | Iterable[tuple[str, Any]],
    json: Path | None = None,
    facts: Any = None,
) -> None:
    """Print rows, or what templates say of the facts, in two columns; write the facts as JSON."""
    table = Table("name", title=title, title_justify="left", show_header=False)
    table.add_column("value", overflow="fold")
    for name, shown in tell(rows, **facts) if isinstance(rows, Mapping) else rows:
        table.add_row(name, one_line(str(shown)))
    output_console().print(table)
    write_json(json, facts)
