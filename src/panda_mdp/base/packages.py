"""Optional packages: imported where they are used, and named where they are missing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from panda_mdp.errors import MissingDependencyError


def need(module: str, purpose: str, extra: str = "") -> Any:
    """A module of an optional package, or an error that says what brings it.

    `extra` is the extra of panda-mdp that installs it; none where it is installed by itself.

    >>> need("json", "reading notes").__name__
    'json'
    """
    try:
        return import_module(module)
    except ImportError as error:
        # A module of this one misses what it imports.
        package = (error.name or module).partition(".")[0]
        if package == __name__.partition(".")[0]:
            raise
        source = f"'panda-mdp[{extra}]'" if extra else package
        raise MissingDependencyError(
            f"{purpose} needs {package}, which is not installed: pip install {source}"
        ) from error
