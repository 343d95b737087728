"""What all commands share: consoles, exit codes, files that are written whole or not at all.

Exit codes: 0 done, 1 done with a negative answer, 2 bad input, 130 interrupted.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from panda_mdp.base.atomic import atomic_file
from panda_mdp.base.plain import plain
from panda_mdp.errors import PandaError

BAD_INPUT = 2
INTERRUPTED = 130

# Base of the command-line parser's errors, which typer takes from click or has in itself.
ParserError: type[Exception] = typer.BadParameter.__mro__[2]


class Frame(TyperGroup):
    """Runs a command and turns what goes wrong into one line and an exit code."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """As in typer, with errors as one line on standard error."""
        warnings.showwarning = _warn
        try:
            code = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
        except (KeyboardInterrupt, typer.Abort):
            code = INTERRUPTED
        except ParserError as error:
            code = _complain(_parser_message(error))
        except (PandaError, OSError) as error:
            code = _complain(_message(error))
        if not standalone_mode:
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
    if path is None:
        return None
    folder = path.resolve().parent
    if not folder.is_dir():
        msg = f"{path}: the folder {folder} does not exist; create it first"
        raise FileNotFoundError(msg)
    if path.is_dir():
        msg = f"{path} is a folder; give the name of a file"
        raise IsADirectoryError(msg)
    if not os.access(folder, os.W_OK):
        msg = f"{path}: the folder {folder} is not writable"
        raise PermissionError(msg)
    return path


def write_json(path: Path | None, value: Any) -> None:
    """Write JSON atomically; infinities, which JSON lacks, become null."""
    if path is not None:
        text = json.dumps(plain(value, "null"), indent=2, allow_nan=False) + "\n"
        with atomic_file(path) as stream:
            stream.write(text.encode())


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    """A warning as one line, without the place in the source."""
    line = " ".join(str(message).split())
    sys.stderr.write(f"warning: {line}\n")


def _complain(message: str) -> int:
    line = " ".join(message.split())
    sys.stderr.write(f"error: {line}\n")
    return BAD_INPUT


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and not isinstance(error, PandaError) and error.strerror:
        where = "" if error.filename is None else f"{error.filename}: "
        return f"{where}{error.strerror}"
    return str(error) or type(error).__name__


def _parser_message(error: Exception) -> str:
    describe = getattr(error, "format_message", None)
    return str(describe()) if callable(describe) else str(error)
