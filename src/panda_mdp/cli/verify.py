"""`panda-mdp verify`: the second checker, in a process that cannot see this library."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

HERE = Path(__file__).resolve()
PLACES = (
    HERE.parents[1] / "_verify" / "panda_verify.py",
    HERE.parents[3] / "verify" / "panda_verify.py",
)
"""Where an installed library has it, and where the repository does."""


def verify(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A .pmdp file.")],
) -> None:
    """Prove again what a file claims, by a second checker that shares no code with this library.

    Standard-library Python does it, in integers of its own, run with `python -I`.
    Prints a line for each thing that it checked. Exit code 0: all of it holds; 1: something does
    not; 2: the file cannot be read.
    """
    if not file.is_file():
        raise FileNotFoundError(f"{file}: there is no such file; give the path of a .pmdp file")
    source = next((place for place in PLACES if place.is_file()), None)
    if source is None:
        raise FileNotFoundError(
            "the second checker, panda_verify.py, is not installed; install panda-mdp again"
        )
    command = [sys.executable, "-I", "-u", str(source), str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        for line in process.stdout or ():
            typer.echo(line, nl=False)
    raise typer.Exit(process.returncode)
