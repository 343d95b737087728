"""Progress of runs on standard error."""

from __future__ import annotations

from collections.abc import Iterator

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from panda_mdp.cli.frame import progress_console
from panda_mdp.problem import Problem
from panda_mdp.survey.bench import Comparison, MethodRun
from panda_mdp.survey.registry import Method

COMPILING = "loading compiled loops; the first run on a machine compiles them, about a minute"


def show_compiling(methods: tuple[Method, ...], problem: Problem) -> None:
    """Compile before anything is measured, and say so: in a line, and in a bar on a terminal."""
    progress_console().print(f"{COMPILING}.", soft_wrap=True)
    with _bar() as bar:
        task = bar.add_task("compiling once", total=len(methods))
        for method in Comparison(problem).compile_kernels(methods):
            bar.update(task, description=f"compiled: {method.label}")
            bar.advance(task)


def run_all(
    methods: tuple[Method, ...], problem: Problem, limits: tuple[float | None, ...]
) -> Iterator[MethodRun]:
    """Run methods one after the other, with progress on standard error."""
    with _bar() as bar:
        task = bar.add_task("methods", total=len(methods))
        for method, limit in zip(methods, limits, strict=True):
            until = "" if limit is None else f" (at most {limit:g} s)"
            bar.update(task, description=f"{method.label}{until}")
            yield Comparison(problem).outcome(method, limit)
            bar.advance(task)


def _bar() -> Progress:
    console = progress_console()
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed} of {task.total}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
