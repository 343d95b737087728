"""What runs the loops over all pairs: numba's threads, accelerators through JAX, or NumPy."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Literal

Backend = Literal["numba", "jax", "numpy"]
MEMORY_FULL = "RESOURCE_EXHAUSTED"
"""JAX's own word, in a RuntimeError, for a device whose memory is full."""


def has_numba() -> bool:
    """Whether loops can be compiled on this host; a machine with an accelerator may go without."""
    try:
        return find_spec("numba") is not None
    except ImportError:
        return False


def take_memory_as_needed() -> None:
    """Have JAX take a device's memory as it is needed, unless it was told what to do.

    All at once, as it would, takes its time on a large device, and leaves others nothing. It is too
    late once JAX has looked for devices.
    """
    if "XLA_PYTHON_CLIENT_ALLOCATOR" not in os.environ:
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def accelerator() -> bool:
    """Whether JAX is installed and sees something faster than this CPU."""
    try:
        import jax
    except ImportError:
        return False
    take_memory_as_needed()
    return bool(jax.default_backend() != "cpu")
