"""What runs the loops over all pairs: numba's threads, accelerators through JAX, or NumPy."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal

from panda_mdp.base.forks import threads_lost

Backend = Literal["numba", "jax", "numpy"]
MEMORY_FULL = "RESOURCE_EXHAUSTED"
"""JAX's own word, in a RuntimeError, for a device whose memory is full."""


def default_backend() -> Backend:
    """numba where it is installed and can run, else an accelerator that JAX sees, else NumPy."""
    host = host_backend()
    return "jax" if host == "numpy" and accelerator() else host


def host_backend() -> Backend:
    """numba where it is installed and can run, else NumPy."""
    try:
        installed = find_spec("numba") is not None
    except ImportError:
        installed = False
    return "numba" if installed and not threads_lost() else "numpy"


def accelerator() -> bool:
    """Whether JAX is installed and sees something faster than this CPU."""
    try:
        import jax
    except ImportError:
        return False
    return bool(jax.default_backend() != "cpu")
