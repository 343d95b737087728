"""What all commands share: consoles, exit codes, files that are written whole or not at all.

Exit codes: 0 done, 1 done with a negative answer, 2 bad input, 130 interrupted.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from panda_mdp.base.atomic import write_whole
from panda_mdp.base.text import one_line, plain
from panda_mdp.errors import PandaError

BAD_INPUT = 2
INTERRUPTED = 130

# Base of the command-line parser's errors, which typer takes from click or has in itself.
ParserError: type[Exception] = typer.BadParameter.__mro__[2]


class Frame(TyperGroup):
    """Runs a command and turns what goes wrong into one line and an exit code."""

    def main(self, *given: Any, **options: Any) -> Any:
        """As in typer, with errors as one line on standard error."""
        warnings.showwarning = _warn
        try:
            code = super().main(*given, **{**options, "standalone_mode": False})
        except (KeyboardInterrupt, typer.Abort):
            code = INTERRUPTED
        except (ParserError, PandaError, OSError) as error:
            code = _complain(error)
        if not options.get("standalone_mode", True):
            return code
        if code == INTERRUPTED:
            sys.stderr.write("interrupted; nothing was written\n")
        sys.exit(code if isinstance(code, int) else 0)


def output_console() -> Console:
    """The console for results. Made when used: tests and pipes replace the streams."""
    return Console(highlight=False, markup=False)


def progress_console() -> Console:
    """The console for progress, which never mixes with results."""
    return Console(stderr=True, highlight=False, markup=False)


def working(what: str) -> AbstractContextManager[object]:
    """Says what is going on while it does, to people and not to files."""
    console = progress_console()
    return console.status(what) if console.is_terminal else nullcontext()


def check_target(path: Path | None) -> Path | None:
    """The path; refused where no file could be written there, before the work, not after it."""
    if path is not None:
        folder = path.resolve().parent
        if not folder.is_dir():
            raise FileNotFoundError(f"{path}: the folder {folder} does not exist; create it first")
        if path.is_dir():
            raise IsADirectoryError(f"{path} is a folder; give the name of a file")
        if not os.access(folder, os.W_OK):
            raise PermissionError(f"{path}: the folder {folder} is not writable")
    return path


def write_json(path: Path | None, value: Any) -> None:
    """Write JSON atomically; infinities, which JSON lacks, become null."""
    if path is not None:
        text = json.dumps(plain(value, "null"), indent=2, allow_nan=False) + "\n"
        write_whole(path, text)


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    """A warning as one line, without the place in the source."""
    _say("warning", str(message))


def _complain(error: Exception) -> int:
    describe = getattr(error, "format_message", None)
    message = str(error) or type(error).__name__
    if callable(describe):
        message = str(describe())
    elif isinstance(error, OSError) and not isinstance(error, PandaError) and error.strerror:
        message = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    _say("error", message)
    return BAD_INPUT


def _say(kind: str, message: str) -> None:
    sys.stderr.write(f"{kind}: {one_line(' '.join(message.split()))}\n")
