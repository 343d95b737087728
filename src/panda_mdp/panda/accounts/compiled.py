"""Compiled kernels that have no counterpart in NumPy: loaded when they are needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.errors import MissingDependencyError
from panda_mdp.space.domain import Domain


def kernels(name: str) -> Any:
    """The module `panda_mdp.compute.numba.<name>`, or an error that says what is missing."""
    try:
        return import_module(f"panda_mdp.compute.numba.{name}")
    except ImportError as error:
        msg = "margins, quantiles and certificates over all pairs need numba: pip install numba"
        raise MissingDependencyError(msg) from error


def is_compiled(name: str) -> bool:
    """Whether the module can be loaded: where a bound does without, it need not be."""
    try:
        kernels(name)
    except MissingDependencyError:
        return False
    return True


def coordinates_of(domain: Domain) -> tuple[int, FloatArray, IntArray]:
    """A domain's metric in the form that compiled loops take."""
    from panda_mdp.compute.numba.distance import coordinates

    return coordinates(domain.metric, np.arange(domain.size))
