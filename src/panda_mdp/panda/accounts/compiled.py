"""Compiled kernels that have no counterpart in NumPy: loaded when they are needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from panda_mdp.errors import MissingDependencyError


def kernels(name: str) -> Any:
    """The module `panda_mdp.compute.numba.<name>`, or an error that says what is missing."""
    try:
        return import_module(f"panda_mdp.compute.numba.{name}")
    except ImportError as error:
        msg = "margins, quantiles and certificates over all pairs need numba: pip install numba"
        raise MissingDependencyError(msg) from error
