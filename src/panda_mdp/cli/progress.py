"""Progress of runs on standard error."""

from __future__ import annotations

from collections.abc import Iterator

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from panda_mdp.cli.frame import progress_console
from panda_mdp.problem import Problem
from panda_mdp.survey.registry import AnyMethod
from panda_mdp.survey.runs import Outcome, run


def run_all(
    methods: tuple[AnyMethod, ...], problem: Problem, limits: tuple[float | None, ...]
) -> Iterator[Outcome]:
    """Run methods one after the other, with progress on standard error."""
    console = progress_console()
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed} of {task.total}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task("methods", total=len(methods))
        for method, limit in zip(methods, limits, strict=True):
            until = "" if limit is None else f" (at most {limit:g} s)"
            bar.update(task, description=f"{method.label}{until}")
            yield run(method, problem, limit)
            bar.advance(task)
